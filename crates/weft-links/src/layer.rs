//! The layer: both of its sides, as the vfs asks them, and what links add to a volume.

mod files;
mod under_lock;

use crate::directories::listing::Renamed;
use crate::directories::members::Indexes;
use crate::linked_tree::LinkedTree;
use crate::options::LinkOptions;
use crate::pushed::stacks::Stacks;
use crate::resolving::turns::Turns;
use crate::results::computing::Computing;
use crate::results::places::PlacesAhead;
use crate::results::views::Views;
use crate::state::LinkState;
use std::ops::Deref;
use std::sync::Arc;
use weft_store::Store;
use weft_store::log::OperationLog;
use weft_tree::{ErrorKind, Result, Stop};
use weft_vfs::opaque::Layer;
use weft_vfs::{Clock, Options, Vfs};

/// The layer's side outside of the state's lock.
pub(crate) struct LinkLayer {
    pub(crate) options: Arc<LinkOptions>,
    pub(crate) views: Views,
    /// Requests that wait for networks.
    pub(crate) computing: Arc<Computing>,
    /// Requests that resolve links at length.
    pub(crate) turns: Turns,
    pub(crate) places_ahead: PlacesAhead,
    pub(crate) indexes: Indexes,
    /// Names of entries in views that rename.
    pub(crate) renamed: Renamed,
    pub(crate) stacks: Stacks,
}

/// The links of a volume, and the volume.
#[derive(Clone, Copy)]
pub struct Links<'a> {
    vfs: &'a Vfs,
    pub(crate) layer: &'a LinkLayer,
}

/// Links can do what their volume can.
impl Deref for Links<'_> {
    type Target = Vfs;

    fn deref(&self) -> &Vfs {
        self.vfs
    }
}

/// Gives what links add to a volume.
pub trait WithLinks {
    /// The links of the volume. `NotSupported` if it was opened without ([`open`]).
    fn links(&self) -> Result<Links<'_>>;
}

impl WithLinks for Vfs {
    fn links(&self) -> Result<Links<'_>> {
        let layer = self.layer().ok_or(ErrorKind::NotSupported)?;
        Ok(Links { vfs: self, layer })
    }
}

/// Opens the volume in `store` with links, as [`Vfs::open_below`].
pub fn open(
    store: Arc<dyn Store>,
    log: Option<Box<dyn OperationLog>>,
    options: Options,
    links: LinkOptions,
    clock: Arc<dyn Clock>,
) -> Result<Arc<Vfs>> {
    Vfs::open_below(layer(Arc::new(links), options.background), store, log, options, clock)
}

/// Both sides of a layer, which reads ahead in the background or not.
pub(crate) fn layer(links: Arc<LinkOptions>, background: bool) -> Layer {
    let files = LinkLayer {
        options: links.clone(),
        views: Views::default(),
        computing: Arc::default(),
        turns: Turns::default(),
        places_ahead: PlacesAhead::new(background),
        indexes: Indexes::default(),
        renamed: Renamed::default(),
        stacks: Stacks::default(),
    };
    Layer { state: Box::new(LinkState::new(links)), files: Box::new(files) }
}

impl<'a> Links<'a> {
    /// Those of `vfs`, which was opened with links.
    pub(crate) fn of(vfs: &'a Vfs) -> Links<'a> {
        vfs.links().expect("links compute on volumes that were opened with them")
    }

    /// As [`Vfs::run`], with what links are computed from.
    pub(crate) fn run<T>(&self, mut operation: impl FnMut(&mut LinkedTree<'_>) -> Result<T, Stop>) -> Result<T> {
        self.vfs.run(|state| operation(&mut LinkedTree::of(state)))
    }

    /// As [`Vfs::locked`], with what links are computed from.
    pub(crate) fn locked<T>(&self, look: impl FnOnce(&mut LinkedTree<'_>) -> T) -> T {
        self.vfs.locked(|state| look(&mut LinkedTree::of(state)))
    }
}
