//! The looks of a link, as its definition says: a file or a directory, written in places or as a
//! whole, of all of its target or a part.

use super::link_definition::{LinkError, ViewKind};
use super::names::{Expression, Names, Rename};
use crate::Version;
use std::sync::Arc;

/// Content of a link that looks like a directory.
#[derive(Debug)]
pub(crate) enum Looks {
    /// The entries of another directory.
    Directory(Arc<Names>),
    /// The entries of a directory of an archive. Its path there has no slashes around it.
    Archive { within: Vec<u8> },
}

/// Mode of writing through a link.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Writing {
    /// Not at all.
    Not,
    /// Each byte where it is in the target.
    Places,
    /// All of it anew, when who writes closes it.
    Whole,
}

/// Part of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Part {
    pub(crate) start: u64,
    pub(crate) len: u64,
    /// As long as the file is this.
    pub(crate) of: Version,
}

impl Looks {
    pub(crate) fn of(view: &ViewKind) -> Result<Option<Looks>, LinkError> {
        let (rename, only) = match view {
            ViewKind::File => return Ok(None),
            ViewKind::Members => return Ok(Some(Looks::Archive { within: Vec::new() })),
            ViewKind::Directory { rename, only } => (rename, only),
        };
        let rename = rename.as_deref().map(|rule| {
            Rename::parse(rule).map_err(|error| LinkError::Names(format!("the rule '{rule}' makes no sense: {error}")))
        });
        let only = only.as_deref().map(|text| {
            Expression::compile(text, false)
                .map_err(|error| LinkError::Names(format!("the expression '{text}' makes no sense: {error}")))
        });
        let names = Names { rename: rename.transpose()?, only: only.transpose()? };
        Ok(Some(Looks::Directory(Arc::new(names))))
    }
}
