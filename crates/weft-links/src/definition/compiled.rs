//! A definition that was read, with its networks: shared, never copied, by all links that are made
//! alike. All entries of a view share the view's, and equal networks that are pushed are one.

use crate::definition::names::Names;
use crate::definition::{LinkDefinition, Looks, Part, ViewKind, Writing, modules};
use std::borrow::Cow;
use std::collections::BTreeSet;
use std::ops::Deref;
use std::sync::{Arc, OnceLock};
use weft_store::Ino;
use weft_transform::{Keeps, Network};
use weft_tree::Inode;

/// A definition and its networks.
#[derive(Debug)]
pub(crate) struct Compiled {
    pub(crate) definition: LinkDefinition,
    pub(crate) network: Network,
    /// Indices of its targets that hold code for its networks.
    pub(crate) modules: BTreeSet<usize>,
    /// Index of the first target that does not.
    pub(crate) data: usize,
    /// Properties of its data that the network preserves, if there is no other data target.
    pub(crate) keeps: Keeps,
    /// The network that undoes it, if it has no other data target.
    pub(crate) inverse: Option<Network>,
    /// The same without a network, for files in a view that it shows as they are.
    plain: OnceLock<Option<Arc<Compiled>>>,
    bytes: usize,
}

/// A link: what it is made of, and what it reads.
#[derive(Debug)]
pub(crate) struct Link {
    compiled: Arc<Compiled>,
    /// The path of its data, if that is not the one in the definition.
    path: Option<Vec<u8>>,
    /// If it looks like a directory.
    pub(crate) looks: Option<Looks>,
    /// If it reads part of its one target.
    pub(crate) part: Option<Part>,
    /// Length of its content, if known.
    pub(crate) size: Option<u64>,
    /// The inode that it reads as its data, regardless of the path.
    pub(crate) of: Option<Ino>,
}

/// A link exposes the members of its compiled definition.
impl Deref for Link {
    type Target = Compiled;

    fn deref(&self) -> &Compiled {
        &self.compiled
    }
}

impl Compiled {
    /// Reads the networks of a definition. None if they make no sense.
    pub(crate) fn new(definition: LinkDefinition) -> Option<Compiled> {
        let network = definition.parse()?;
        let write = match &definition.write {
            Some(text) => Some(Network::known(text).ok()?),
            None => None,
        };
        if network.files().max(write.as_ref().map_or(0, Network::files)) > definition.targets.len() {
            return None;
        }
        let modules = modules(&network, write.as_ref());
        let mut data = (0..definition.targets.len()).filter(|number| !modules.contains(number));
        let (first, is_alone) = (data.next()?, data.next().is_none());
        let keeps = if is_alone { network.keeps() } else { Keeps::default() };
        let inverse = write.or_else(|| network.inverse()).filter(|inverse| is_alone && !inverse.reads_files());
        let (data, plain) = (first, OnceLock::new());
        Some(Compiled { definition, network, modules, data, keeps, inverse, plain, bytes: 0 }.weighed())
    }

    /// One like it that gives its data as they are.
    fn plain(&self) -> Option<Arc<Compiled>> {
        let make = || {
            let targets = vec![self.definition.targets[self.data].clone()];
            let network = "identity".to_owned();
            Compiled::new(self.with(targets, network, None)).map(Arc::new)
        };
        self.plain.get_or_init(make).clone()
    }

    /// One like it of what `unpack` makes of its data. None if that makes no sense.
    fn unpacking(&self, unpack: &str) -> Option<Compiled> {
        let own = &self.definition.network;
        let network = if own == "identity" { unpack.to_owned() } else { format!("{unpack} | {own}") };
        let definition = self.with(self.definition.targets.clone(), network, self.definition.write.clone());
        let network = definition.parse()?;
        let keeps = network.keeps();
        let (modules, data, plain) = (self.modules.clone(), self.data, OnceLock::new());
        // Nobody writes to members of archives.
        Some(Compiled { definition, network, modules, data, keeps, inverse: None, plain, bytes: 0 }.weighed())
    }

    fn with(&self, targets: Vec<Vec<u8>>, network: String, write: Option<String>) -> LinkDefinition {
        let LinkDefinition { memo, lazy, direct, fuse, trusted, .. } = self.definition;
        LinkDefinition { targets, network, write, memo, lazy, direct, fuse, view: ViewKind::File, trusted }
    }

    /// True if it runs code of whoever made it.
    pub(crate) fn is_exported(&self) -> bool {
        self.network.is_exported() || self.inverse.as_ref().is_some_and(Network::is_exported)
    }

    /// True if it uses keys.
    pub(crate) fn has_keys(&self) -> bool {
        self.network.has_keys() || self.inverse.as_ref().is_some_and(Network::has_keys)
    }

    /// Bytes of memory that it takes, not less than it does.
    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }

    fn weighed(self) -> Compiled {
        let LinkDefinition { targets, network, write, view, .. } = &self.definition;
        let texts = targets.iter().map(|target| target.len() + size_of::<Vec<u8>>()).sum::<usize>()
            + network.len()
            + write.as_ref().map_or(0, String::len)
            + match view {
                ViewKind::Directory { rename, only } => [rename, only].into_iter().flatten().map(String::len).sum(),
                ViewKind::File | ViewKind::Members => 0,
            };
        let networks = self.network.bytes() + self.inverse.as_ref().map_or(0, Network::bytes);
        // Of a view there may be another without a network.
        let plain = if *view == ViewKind::File { 0 } else { size_of::<Compiled>() + targets[self.data].len() + 2048 };
        let bytes = size_of::<Compiled>() + texts + networks + plain + 192 * self.modules.len() + 64;
        Compiled { bytes, ..self }
    }
}

impl Link {
    /// The link that a row tells of.
    pub(crate) fn read(inode: &Inode) -> Option<Link> {
        let compiled = Compiled::new(LinkDefinition::decode(inode.row.inline.as_ref()?)?)?;
        let looks = Looks::of(&compiled.definition.view).ok()?;
        Some(Link { looks, ..Link::of(&Arc::new(compiled), None) })
    }

    fn of(compiled: &Arc<Compiled>, path: Option<Vec<u8>>) -> Link {
        let compiled = compiled.clone();
        Link { compiled, path, looks: None, part: None, size: None, of: None }
    }

    /// One that reads inode `of`.
    pub(crate) fn onto(compiled: Arc<Compiled>, of: Ino) -> Link {
        Link { of: Some(of), ..Link::of(&compiled, None) }
    }

    /// Returns the link for the directory that this view shows at `path` below its own.
    pub(crate) fn directory(&self, path: &[u8]) -> Link {
        match &self.looks {
            Some(Looks::Archive { .. }) => {
                let looks = Some(Looks::Archive { within: path.to_vec() });
                Link { looks, ..Link::of(&self.compiled, None) }
            }
            looks => {
                let looks = match looks {
                    Some(Looks::Directory(names)) => Some(Looks::Directory(names.clone())),
                    Some(Looks::Archive { .. }) | None => None,
                };
                Link { looks, ..Link::of(&self.compiled, Some(self.below(path))) }
            }
        }
    }

    /// The same: a file that it transforms.
    pub(crate) fn transformed(&self, path: &[u8]) -> Link {
        Link::of(&self.compiled, Some(self.below(path)))
    }

    /// The same: a file as it is. None if that makes no sense.
    pub(crate) fn untouched(&self, path: &[u8]) -> Option<Link> {
        Some(Link::of(&self.compiled.plain()?, Some(self.below(path))))
    }

    /// The same: a member of the archive, of `size` bytes before what the view makes of it. None if
    /// what unpacks it, and the view's network, make no sense together.
    pub(crate) fn member(&self, unpack: &str, size: u64, part: Part) -> Option<Link> {
        let compiled = Arc::new(self.compiled.unpacking(unpack)?);
        // The archive tells how long what is unpacked is.
        let size = self.network.keeps().length.then_some(size);
        Some(Link { part: Some(part), size, ..Link::of(&compiled, None) })
    }

    fn below(&self, path: &[u8]) -> Vec<u8> {
        let directory = self.target(self.data);
        // That of the root ends with it already.
        [directory.strip_suffix(b"/").unwrap_or(directory), b"/", path].concat()
    }

    /// The path of a target.
    fn target(&self, number: usize) -> &[u8] {
        match &self.path {
            Some(path) if number == self.data => path,
            _ => &self.definition.targets[number],
        }
    }

    /// The paths of its targets.
    pub(crate) fn targets(&self) -> impl Iterator<Item = &[u8]> {
        (0..self.definition.targets.len()).map(|number| self.target(number))
    }

    /// The path of its data.
    pub(crate) fn data_path(&self) -> &[u8] {
        self.target(self.data)
    }

    /// Its definition, as if it had been made by itself.
    pub(crate) fn definition(&self) -> Cow<'_, LinkDefinition> {
        let compiled = &self.compiled.definition;
        if self.path.is_none() && (self.looks.is_some() || compiled.view == ViewKind::File) {
            return Cow::Borrowed(compiled);
        }
        let mut definition = compiled.clone();
        definition.targets[self.data] = self.data_path().to_vec();
        if self.looks.is_none() {
            definition.view = ViewKind::File;
        }
        Cow::Owned(definition)
    }

    /// The names of what it shows, if it is a view of a directory.
    pub(crate) fn names(&self) -> Option<&Arc<Names>> {
        match &self.looks {
            Some(Looks::Directory(names)) => Some(names),
            Some(Looks::Archive { .. }) | None => None,
        }
    }

    /// Returns how the link can be written, provided that its target can.
    pub(crate) fn writing(&self) -> Writing {
        match &self.inverse {
            Some(inverse) if self.looks.is_none() && self.part.is_none() => {
                if self.keeps.place && inverse.keeps().place { Writing::Places } else { Writing::Whole }
            }
            _ => Writing::Not,
        }
    }

    /// Bytes of memory that it takes beside what it is made of.
    pub(crate) fn own_bytes(&self) -> usize {
        size_of::<Link>() + 16 + self.path.as_ref().map_or(0, Vec::len)
    }

    /// Bytes of memory that it takes with what it is made of, about.
    pub(crate) fn bytes(&self) -> usize {
        self.own_bytes() + self.compiled.bytes() + self.names().map_or(0, |names| names.bytes())
    }
}
