//! Reason why an operation on the tree was not done.

use weft_store::Ino;
use weft_tree::{Error, ErrorKind};

/// The reason.
#[derive(Debug)]
pub(crate) enum Refusal {
    /// It is on an inode whose content is computed: that is another way to do it, or none.
    Opaque,
    /// It failed.
    Error(Error),
}

impl Refusal {
    /// Says which inode an error is about, if it does not yet.
    pub(crate) fn about(self, ino: Ino) -> Refusal {
        match self {
            Refusal::Opaque => Refusal::Opaque,
            Refusal::Error(error) => Refusal::Error(error.about(ino)),
        }
    }
}

impl From<Error> for Refusal {
    fn from(error: Error) -> Refusal {
        Refusal::Error(error)
    }
}

/// Where there is no other way, the user may not do it.
impl From<Refusal> for Error {
    fn from(refusal: Refusal) -> Error {
        match refusal {
            Refusal::Opaque => ErrorKind::AccessDenied.into(),
            Refusal::Error(error) => error,
        }
    }
}
