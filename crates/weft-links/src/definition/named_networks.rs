//! Networks that a volume knows by name, as extended attributes of its root.

use crate::layer::Links;
use std::collections::BTreeMap;
use weft_attributes::Attribute;
use weft_store::Ino;
use weft_transform::expand;
use weft_tree::{ErrorKind, Result};

impl Links<'_> {
    /// The networks that the volume knows by name; those of which somebody made what is no text are
    /// left out.
    pub fn networks(&self) -> Result<BTreeMap<String, String>> {
        self.run(|state| {
            let attributes = state.tree.xattrs(Ino::ROOT)?.map.iter();
            let named = attributes.filter_map(|(attribute, text)| {
                let Attribute::Network(name) = Attribute::parse(attribute.as_bytes())? else { return None };
                let text = String::from_utf8(text.to_vec()).ok()?;
                expand::is_name(name).then(|| (name.to_owned(), text))
            });
            Ok(named.collect())
        })
    }

    /// Has the volume know a network by `name`, or know it no more. `Invalid` if it is no name or
    /// the network makes no sense, `NoAttribute` if it was not known, `NoSpace`.
    pub fn define_network(&self, name: &str, network: Option<&str>) -> Result<()> {
        if !expand::is_name(name) || network.is_some_and(|text| expand::check(text).is_err()) {
            return Err(ErrorKind::Invalid.into());
        }
        self.control(Attribute::Network(name), network.map(str::as_bytes))
    }
}
