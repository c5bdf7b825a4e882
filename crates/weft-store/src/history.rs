//! The arithmetic of history: under which number each past version of a row is filed, and which
//! commits a rule keeps as time passes.
//!
//! Everything here is a function of its arguments: no clock, no I/O and no SQL, so that both
//! engines and a check agree. The engines call it once they write history.

pub(crate) mod fork;
#[cfg_attr(not(test), expect(dead_code, reason = "no command sets a rule yet"))]
pub mod rule;
