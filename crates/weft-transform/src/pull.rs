//! Parts of a network that give bytes when they are asked, and reasons why they cannot.

use crate::stage::StageError;
use std::io;
use weft_block::Rope;

/// Reason why a network does not run to its end.
#[derive(Debug, thiserror::Error)]
pub enum RunError {
    /// The source cannot be read.
    #[error("cannot read: {0}")]
    Source(#[source] io::Error),
    /// A stage cannot go on.
    #[error("{stage}: {source}")]
    Stage {
        /// The stage, as it was written.
        stage: String,
        /// The reason.
        source: StageError,
    },
    /// An error that another chain of the same join got already.
    #[error("{0}")]
    Before(String),
    /// The system gives no thread.
    #[error("cannot start a thread: {0}")]
    Thread(#[source] io::Error),
    /// A thread has ended before its work.
    #[error("a bug in Weft, told above: a stage has ended before its work")]
    Lost,
    /// Nobody waits for it any more. It goes on when it is asked for more.
    #[error("nobody waits for it any more")]
    Interrupted,
    /// Bytes that wait for slower readers cannot be stored.
    #[error("cannot use a temporary file: {0}")]
    Temporary(#[source] io::Error),
}

impl RunError {
    /// True if there is no room for a temporary file, or no more than others leave it.
    pub fn is_full(&self) -> bool {
        match self {
            RunError::Temporary(error) | RunError::Stage { source: StageError::Temporary(error), .. } => {
                error.kind() == io::ErrorKind::StorageFull
            }
            _ => false,
        }
    }

    /// True if it may run where other networks keep less.
    pub fn lacks_room(&self) -> bool {
        self.is_full() || matches!(self, RunError::Stage { source: StageError::Memory, .. })
    }
}

/// Something that gives bytes when asked.
pub(crate) trait Pull: Send {
    /// The next bytes; none at the end. After [`RunError::Interrupted`] it can be asked again.
    fn pull(&mut self) -> Result<Option<Rope>, RunError>;
    /// As [`Source::is_at_hand`].
    fn is_at_hand(&self) -> bool {
        false
    }
}
