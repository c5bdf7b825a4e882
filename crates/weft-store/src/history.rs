//! The arithmetic of history: under which number each past version of a row is filed, and which
//! commits a rule keeps as time passes.
//!
//! Forks, rules and thinning are functions of their arguments: no clock, no I/O and no SQL, so that
//! both engines and a check agree. What is due asks a store what it keeps, and changes nothing.

mod dropping;
mod due;
pub(crate) mod emptied;
pub(crate) mod fork;
pub(crate) mod kept;
mod rule;
#[cfg(test)]
mod testing;
mod thinning;

pub use dropping::{Dropped, dropped};
pub use due::{due, sweeping, yielding};
pub use rule::{Rule, RuleError};
