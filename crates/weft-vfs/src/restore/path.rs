//! Paths in a volume, as names from its root.

use super::{Restoring, refused};
use weft_store::{InvalidName, Name};

/// The names on the way from the root to a place.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct VolumePath(Vec<Name>);

impl VolumePath {
    /// The path that `bytes` spell. Refused if one of its names is none.
    pub(super) fn parse(bytes: &[u8]) -> Restoring<VolumePath> {
        let parts = bytes.split(|byte| *byte == b'/').filter(|part| !matches!(*part, b"" | b"."));
        let names = parts.map(Name::new).collect::<Result<Vec<_>, InvalidName>>();
        names.map(VolumePath).or_else(|why| refused(format!("{}: {why}", String::from_utf8_lossy(bytes))))
    }

    /// The names.
    pub(super) fn names(&self) -> &[Name] {
        &self.0
    }

    /// The directory and the name in it; none of the root.
    pub(super) fn split(&self) -> Option<(&[Name], &Name)> {
        self.0.split_last().map(|(name, directory)| (directory, name))
    }
}

/// The path of `names`, for people.
pub(super) fn shown(names: &[Name]) -> String {
    let mut path = String::new();
    for name in names {
        path.push('/');
        path.push_str(&String::from_utf8_lossy(name.as_bytes()));
    }
    if path.is_empty() { "/".into() } else { path }
}
