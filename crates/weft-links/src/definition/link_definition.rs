//! What a link is made of, and how a row holds that.

use super::looks::Looks;
use std::collections::BTreeSet;
use weft_transform::{Network, NetworkError};

/// Most bytes of a definition, as a row holds it: an extended attribute tells it.
const BYTES_MAX: usize = 32 << 10;

/// Prefix of the names under which programs have a link made. They rename it afterwards: users know
/// the link by another name.
pub const MADE_AS: &str = ".weft-link-";

/// Definition of a transformation link.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LinkDefinition {
    /// Paths of what it reads, from the root of the volume, beginning with `/`.
    pub targets: Vec<Vec<u8>>,
    /// The network that reads the targets, in the language of [`weft_transform`].
    pub network: String,
    /// The network that undoes it on writes through the link, if not the inverse that the stages
    /// declare.
    pub write: Option<String>,
    /// True if results are memoised.
    pub memo: bool,
    /// True if an unknown length stays open until a reader has come to the end of the content.
    /// Otherwise it is computed on the first request for it.
    pub lazy: bool,
    /// True if programs read it past the kernel's page cache.
    pub direct: bool,
    /// True if stages that change bytes one by one are fused into one; see [`Network::unfused`].
    pub fuse: bool,
    /// Appearance of the link.
    pub view: ViewKind,
    /// True if its maker is known to have ordered it, in case it runs code of its own. False for
    /// links made before this was recorded: a program that restored attributes may have made them.
    pub trusted: bool,
}

/// Appearance of a link to its users.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum ViewKind {
    /// A file.
    #[default]
    File,
    /// A directory that has what its one target has, a directory too: each file in it transformed,
    /// at any depth.
    Directory {
        /// Rule for the names of entries, as in sed(1): `s/REGEX/TEXT/`. Without one names are
        /// unchanged.
        rename: Option<String>,
        /// A regular expression that finds something in the names of those files that are
        /// transformed; the others are as they are.
        only: Option<String>,
    },
    /// A directory that has the members of its one target, a tar or zip archive, each transformed.
    Members,
}

/// A link to be made in a directory, as the attribute [`weft_attributes::Attribute::Link`] of that
/// directory takes it from programs, behind a [`weft_vfs::Nonce`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LinkOrder {
    /// Its name there.
    pub name: Vec<u8>,
    /// Its permission bits.
    pub permissions: u32,
    /// Its definition.
    pub definition: LinkDefinition,
}

/// Reason why a link cannot be made.
#[derive(Debug, thiserror::Error)]
pub enum LinkError {
    /// The network makes no sense.
    #[error("network: {0}")]
    Network(#[from] NetworkError),
    /// The network to write by makes no sense.
    #[error("network to write by: {0}")]
    Write(#[source] NetworkError),
    /// Nothing tells what would have to be in which file.
    #[error(
        "a link can be written if it has one target beside code, and the network to write by gets all it reads from the writer"
    )]
    Written,
    /// It reads a file that the link does not name.
    #[error("the network reads file ${wanted}, and {given} were given")]
    Files {
        /// The number of the file.
        wanted: usize,
        /// Number of targets.
        given: usize,
    },
    /// A path does not begin at the root, or holds a NUL.
    #[error("a target is no path from the root of the volume: '{0}'")]
    Target(String),
    /// The rule or expression for names makes no sense.
    #[error("{0}")]
    Names(String),
    /// A view of a directory or an archive is made of one.
    #[error("a view of a directory or an archive has one target, beside those with code that its network runs")]
    Targets,
    /// There is none, or more than a row takes.
    #[error(
        "a link has at least one target that is no code for its network, and its targets and network at most 32 KiB together"
    )]
    Size,
}

impl LinkDefinition {
    /// A link to `targets` that looks like a file, and is as links are if nothing else is said.
    pub fn new(targets: Vec<Vec<u8>>, network: impl Into<String>) -> LinkDefinition {
        let (network, view) = (network.into(), ViewKind::File);
        LinkDefinition {
            targets,
            network,
            write: None,
            memo: true,
            lazy: false,
            direct: false,
            fuse: true,
            view,
            trusted: false,
        }
    }

    /// Checks that a link can be made of the definition.
    pub fn check(&self) -> Result<(), LinkError> {
        if let Some(bad) = self.targets.iter().find(|path| !path.starts_with(b"/") || path.contains(&0)) {
            return Err(LinkError::Target(String::from_utf8_lossy(bad).into_owned()));
        }
        let network = Network::parse(&self.network)?;
        let write = self.write.as_ref().map(|text| Network::parse(text).map_err(LinkError::Write)).transpose()?;
        let files = [Some(&network), write.as_ref()].into_iter().flatten().map(Network::files).max().unwrap_or(0);
        if files > self.targets.len() {
            return Err(LinkError::Files { wanted: files, given: self.targets.len() });
        }
        let data = self.targets.len() - modules(&network, write.as_ref()).len();
        if write.is_some_and(|write| write.reads_files() || data != 1) {
            return Err(LinkError::Written);
        }
        if Looks::of(&self.view)?.is_some() && data != 1 {
            return Err(LinkError::Targets);
        }
        if data == 0
            || self.network.contains('\0')
            || self.write.as_ref().is_some_and(|text| text.contains('\0'))
            || self.encode().len() > BYTES_MAX
        {
            return Err(LinkError::Size);
        }
        Ok(())
    }

    /// Its network, as it is run.
    pub(crate) fn parse(&self) -> Option<Network> {
        let network = Network::known(&self.network).ok()?;
        Some(if self.fuse { network } else { network.unfused() })
    }

    /// True if it runs code that its maker brings.
    pub fn is_exported(&self) -> bool {
        self.networks().any(|network| network.is_exported())
    }

    /// True if programs gain from a way in that reports opens and closes of the link.
    pub fn wants_opens(&self) -> bool {
        // What cannot be read makes no link.
        let Some(network) = self.parse() else { return false };
        let write = self.write.as_ref().and_then(|text| Network::known(text).ok()).or_else(|| network.inverse());
        let by_places = |write: &Network| write.keeps().place && network.keeps().place;
        self.view != ViewKind::Members && (self.lazy || self.direct || write.is_some_and(|write| !by_places(&write)))
    }

    /// True if it uses keys.
    pub fn has_keys(&self) -> bool {
        self.networks().any(|network| network.has_keys())
    }

    /// Returns the networks that read and write the link.
    fn networks(&self) -> impl Iterator<Item = Network> {
        let read = Network::known(&self.network).ok();
        let inverse = read.as_ref().and_then(Network::inverse);
        let write = self.write.as_ref().and_then(|text| Network::known(text).ok());
        [read, inverse, write].into_iter().flatten()
    }

    /// As a row holds it: keys and values, each ended by a NUL. `target` comes once for each, in
    /// their order.
    pub fn encode(&self) -> Vec<u8> {
        let mut bytes = Vec::new();
        let mut put = |key: &str, value: &[u8]| {
            bytes.extend_from_slice(key.as_bytes());
            bytes.push(0);
            bytes.extend_from_slice(value);
            bytes.push(0);
        };
        self.targets.iter().for_each(|target| put("target", target));
        put("network", self.network.as_bytes());
        self.write.iter().for_each(|text| put("write", text.as_bytes()));
        if !self.memo {
            put("memo", b"off");
        }
        if self.lazy {
            put("lazy", b"on");
        }
        if self.direct {
            put("direct", b"on");
        }
        if !self.fuse {
            put("fuse", b"off");
        }
        if self.trusted {
            put("trusted", b"on");
        }
        match &self.view {
            ViewKind::File => {}
            ViewKind::Members => put("view", b"members"),
            ViewKind::Directory { rename, only } => {
                put("view", b"directory");
                rename.iter().for_each(|rule| put("rename", rule.as_bytes()));
                only.iter().for_each(|text| put("only", text.as_bytes()));
            }
        }
        bytes
    }

    /// Decodes the output of [`LinkDefinition::encode`]. None if `bytes` are anything else, or hold
    /// keys that only a later Weft may understand.
    pub fn decode(bytes: &[u8]) -> Option<LinkDefinition> {
        let mut definition = LinkDefinition::new(Vec::new(), "");
        let text = |value: &[u8]| String::from_utf8(value.to_vec()).ok();
        let mut words = bytes.strip_suffix(b"\0")?.split(|byte| *byte == 0);
        let mut has_network = false;
        while let Some(key) = words.next() {
            let value = words.next()?;
            match (key, value) {
                (b"target", path) => definition.targets.push(path.to_vec()),
                (b"network", _) if !has_network => {
                    definition.network = text(value)?;
                    has_network = true;
                }
                (b"write", _) if definition.write.is_none() => definition.write = Some(text(value)?),
                (b"memo", b"off") => definition.memo = false,
                (b"lazy", b"on") => definition.lazy = true,
                (b"direct", b"on") => definition.direct = true,
                (b"fuse", b"off") => definition.fuse = false,
                (b"trusted", b"on") => definition.trusted = true,
                (b"view", b"members") => definition.view = ViewKind::Members,
                (b"view", b"directory") => definition.view = ViewKind::Directory { rename: None, only: None },
                (key, value) => match (&mut definition.view, key) {
                    (ViewKind::Directory { rename: None, only: None }, b"rename") => {
                        definition.view = ViewKind::Directory { rename: Some(text(value)?), only: None };
                    }
                    (ViewKind::Directory { only: only @ None, .. }, b"only") => *only = Some(text(value)?),
                    _ => return None,
                },
            }
        }
        has_network.then_some(definition)
    }
}

impl LinkOrder {
    /// As [`LinkDefinition::encode`], after the name and, in octal, the permission bits, each ended
    /// by a NUL.
    pub fn encode(&self) -> Vec<u8> {
        let permissions = format!("{:o}", self.permissions);
        [&self.name[..], b"\0", permissions.as_bytes(), b"\0", &self.definition.encode()].concat()
    }

    /// Decodes the output of [`LinkOrder::encode`].
    pub fn decode(bytes: &[u8]) -> Option<LinkOrder> {
        let mut parts = bytes.splitn(3, |byte| *byte == 0);
        let name = parts.next()?.to_vec();
        let permissions = u32::from_str_radix(std::str::from_utf8(parts.next()?).ok()?, 8).ok()?;
        let definition = LinkDefinition::decode(parts.next()?)?;
        (permissions <= 0o777).then_some(LinkOrder { name, permissions, definition })
    }
}

/// Returns the indices of the targets that hold code for these networks.
pub(crate) fn modules(network: &Network, write: Option<&Network>) -> BTreeSet<usize> {
    network.modules().iter().chain(write.into_iter().flat_map(Network::modules)).copied().collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn view() -> impl Strategy<Value = ViewKind> {
        let text = || prop::option::of("[^\0]{0,20}");
        let directory = (text(), text()).prop_map(|(rename, only)| ViewKind::Directory { rename, only });
        prop_oneof![Just(ViewKind::File), Just(ViewKind::Members), directory]
    }

    proptest! {
        #[test]
        fn a_definition_comes_back_and_nothing_else_is_read_as_one(
            targets in prop::collection::vec(prop::collection::vec(1u8.., 0..20), 1..4),
            network in "[^\0]{0,30}", write in prop::option::of("[^\0]{0,30}"), memo: bool, lazy: bool, direct: bool, fuse: bool, view in view(), trusted: bool,
            cut: prop::sample::Index,
        ) {
            let targets = targets.into_iter().map(|path| [&b"/"[..], &path].concat()).collect();
            let definition = LinkDefinition { targets, network, write, memo, lazy, direct, fuse, view, trusted };
            let bytes = definition.encode();
            prop_assert_eq!(LinkDefinition::decode(&bytes), Some(definition.clone()));
            let order = LinkOrder { name: b"name".to_vec(), permissions: 0o640, definition: definition.clone() };
            prop_assert_eq!(LinkOrder::decode(&order.encode()), Some(order));
            let cut = cut.index(bytes.len());
            prop_assert_ne!(LinkDefinition::decode(&bytes[..cut]), Some(definition));
        }
    }

    #[test]
    fn what_makes_no_sense_is_refused() {
        let link = |targets: &[&str], network: &str| {
            LinkDefinition::new(targets.iter().map(|path| path.as_bytes().to_vec()).collect(), network)
        };
        let written =
            |network, write: &str| LinkDefinition { write: Some(write.into()), ..link(&["/a"], network) }.check();
        let link = |targets: &[&str], network: &str| link(targets, network).check();
        assert!(written("upper", "lower").is_ok());
        assert!(matches!(written("upper", "nothing"), Err(LinkError::Write(_))));
        assert!(written("upper", "gzip").is_ok());
        assert!(matches!(written("upper", "concat($1, lower)"), Err(LinkError::Written)));
        assert!(link(&["/a"], "upper").is_ok());
        assert!(matches!(link(&["/a"], "nothing-of-the-kind"), Err(LinkError::Network(_))));
        assert!(matches!(link(&["a"], "upper"), Err(LinkError::Target(_))));
        assert!(matches!(link(&[], "upper"), Err(LinkError::Size)));
        assert!(matches!(link(&["/a"], "concat($1, $2)"), Err(LinkError::Files { wanted: 2, given: 1 })));
    }
}
