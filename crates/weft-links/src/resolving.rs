//! Resolving: what a link leads to as the volume is now, who may know that, what follows from it
//! (attributes, lengths, rights), and which changes outdate it. All of it is under the lock of the
//! state; what takes long goes by turns.

pub(crate) mod attributes;
pub(crate) mod causes;
mod itself;
pub(crate) mod length;
pub(crate) mod reach;
pub(crate) mod resolve;
mod rights;
pub(crate) mod steps;
pub(crate) mod turns;
mod walk;
pub(crate) mod watch;

pub use attributes::is_for_everybody;
pub(crate) use length::Length;
