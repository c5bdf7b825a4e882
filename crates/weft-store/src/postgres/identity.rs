//! The volume that a connection reads. A schema's name may be given to another volume at any time,
//! and names of tables are looked up for each statement, so each answer is compared with that, in
//! the round trip that brings it: by a condition in the statement, which costs 2 µs, or where a
//! statement has none, or the engine would not join the row of the volume, by a statement behind
//! it.
//!
//! The name of the table `volume` is looked up last. Two exchanges of schemas in the microseconds
//! in between, which cancel one another, are not noticed.

use super::address::Address;
use super::statements::REFUSE_OTHER;
use crate::error::Error;
use std::borrow::Cow;
use std::sync::atomic::{AtomicBool, Ordering};
use tokio_postgres::error::SqlState;

/// Place of the condition in statements.
const PLACE: &str = "OF_VOLUME AND ";

/// True if `statement` has a place for the condition.
pub(super) fn has_place(statement: &str) -> bool {
    statement.contains(PLACE)
}

/// The statement without the condition.
pub(super) fn without(statement: &str) -> Cow<'_, str> {
    if has_place(statement) { statement.replace(PLACE, "").into() } else { statement.into() }
}

/// A volume, as all connections to it know it.
#[derive(Debug)]
pub(super) struct Identity {
    address: Address,
    /// A statement that fails if another volume is read: by [`Identity::refused`].
    question: String,
    /// True once another volume was seen in its place.
    is_replaced: AtomicBool,
}

impl Identity {
    pub(super) fn new(address: &Address, uuid: [u8; 16]) -> Identity {
        let uuid: String = uuid.iter().map(|byte| format!("{byte:02x}")).collect();
        let question = REFUSE_OTHER.replace("$1", &format!("decode('{uuid}', 'hex')"));
        Identity { address: address.clone(), question, is_replaced: AtomicBool::new(false) }
    }

    /// `statement` with the condition in its place: it fails where it would read another volume, by
    /// [`Identity::refused`], also if it finds nothing.
    pub(super) fn put_into<'a>(&self, statement: &'a str) -> Cow<'a, str> {
        if !has_place(statement) {
            return statement.into();
        }
        statement.replace(PLACE, &format!("({}) = 1 AND ", self.question)).into()
    }

    pub(super) fn question(&self) -> &str {
        &self.question
    }

    /// The error for what the server said of either, if it is that of another volume.
    pub(super) fn refused(&self, error: &tokio_postgres::Error) -> Option<Error> {
        let is_other = error.code() == Some(&SqlState::DIVISION_BY_ZERO);
        is_other.then(|| {
            self.is_replaced.store(true, Ordering::Release);
            self.error()
        })
    }

    /// The error for what is not this volume any more, once that was seen.
    pub(super) fn replaced(&self) -> Option<Error> {
        self.is_replaced.load(Ordering::Acquire).then(|| self.error())
    }

    fn error(&self) -> Error {
        Error::Unusable(format!(
            "{} is another volume now: its schema was removed or renamed, and one that was made or restored has its \
             name; unmount it if it is mounted (--lazy), then mount the one that you want",
            self.address
        ))
    }
}
