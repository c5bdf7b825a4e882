//! Definitions: what links are made of, as rows hold it and as it is compiled; making links; the
//! networks that a volume knows by name.

pub(crate) mod compiled;
mod link_definition;
mod looks;
mod making;
mod named_networks;
pub(crate) mod names;

pub(crate) use link_definition::modules;
pub use link_definition::{LinkDefinition, LinkError, LinkOrder, MADE_AS, ViewKind};
pub(crate) use looks::{Looks, Part, Writing};
