//! The arithmetic of history: under which number each past version of a row is filed, and which
//! commits a rule keeps as time passes.
//!
//! Everything here is a function of its arguments: no clock, no I/O and no SQL, so that both
//! engines and a check agree. The engines call it once they write history.

pub(crate) mod fork;
pub mod rule;
#[cfg_attr(not(test), expect(dead_code, reason = "the engines write no history yet"))]
pub mod thinning;
