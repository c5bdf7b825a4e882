//! The side that the vfs asks outside of the lock.

use super::{LinkLayer, Links, layer};
use std::sync::atomic::{AtomicU64, Ordering};
use weft_attributes::Attribute;
use weft_block::Rope;
use weft_store::{Cookie, Ino};
use weft_tree::{Attributes, Caller, DirEntry, Miss, Privileges, Result, SetAttributes, Writer};
use weft_vfs::opaque::{Layer, OpaqueFiles, OpaqueLayer, Results, Substitutes, Turn};
use weft_vfs::{Stats, Vfs};

impl LinkLayer {
    fn of<'a>(&'a self, vfs: &'a Vfs) -> Links<'a> {
        Links { vfs, layer: self }
    }
}

impl OpaqueLayer for LinkLayer {
    fn another(&self) -> Layer {
        layer(self.options.clone(), false)
    }
}

impl OpaqueFiles for LinkLayer {
    fn lookup(&self, vfs: &Vfs, caller: Caller, parent: Ino, name: &[u8]) -> Result<Attributes> {
        self.of(vfs).lookup_in_view(caller, parent, name)
    }

    fn list(&self, vfs: &Vfs, ino: Ino, after: Cookie, limit: usize) -> Result<Vec<DirEntry>> {
        self.of(vfs).list_view(ino, after, limit)
    }

    fn read(&self, vfs: &Vfs, ino: Ino, offset: u64, len: usize) -> Result<Rope> {
        self.of(vfs).read_link(ino, offset, len)
    }

    fn write(&self, vfs: &Vfs, ino: Ino, offset: u64, data: &[u8], writer: Writer) -> Result<Privileges> {
        self.of(vfs).write_link(ino, offset, data, writer)
    }

    fn permit_unopened(&self, vfs: &Vfs, ino: Ino) -> Result<()> {
        self.of(vfs).refuse_drafts(ino)
    }

    fn set_attributes(&self, vfs: &Vfs, ino: Ino, changes: SetAttributes) -> Result<Attributes> {
        self.of(vfs).set_link_attributes(ino, changes)
    }

    fn attribute(&self, vfs: &Vfs, ino: Ino, attribute: Attribute<'_>) -> Result<Option<Vec<u8>>> {
        let links = self.of(vfs);
        match attribute {
            Attribute::Link => Ok(links.link_order(ino)?.map(|order| order.encode())),
            Attribute::Memo => Ok(links.memo(ino)?.map(|memo| memo.encode())),
            _ => Ok(None),
        }
    }

    fn fetch(&self, vfs: &Vfs, miss: &Miss) -> Result<()> {
        match miss {
            Miss::Length(ino) => self.of(vfs).measure_link(*ino),
            Miss::Shown(view, name) => self.of(vfs).look_into(*view, name),
            _ => Ok(()),
        }
    }

    fn take_turn<'a>(&'a self, vfs: &'a Vfs) -> Result<Box<dyn Turn + 'a>> {
        Ok(Box::new(self.of(vfs).take_turn()?))
    }
}

impl Substitutes for LinkLayer {
    fn seen(&self, ino: Ino, number: Option<u64>) -> Ino {
        self.stacks.seen(ino, number)
    }

    fn seen_in_place_of(&self, ino: Ino) -> Option<Ino> {
        self.stacks.pushed_onto(ino)
    }

    fn prepare_owner(&self, vfs: &Vfs, ino: Ino, owner: u32) -> Result<()> {
        self.of(vfs).ready_for_owner(ino, owner)
    }

    fn owner_changed(&self, vfs: &Vfs, ino: Ino, owner: u32) {
        self.of(vfs).pop_of_former_owner(ino, owner);
    }

    fn released(&self, vfs: &Vfs, ino: Ino) {
        self.of(vfs).pop_of_gone(ino);
    }
}

impl Results for LinkLayer {
    fn adopt(&self, vfs: &Vfs, ino: Ino) -> bool {
        let links = self.of(vfs);
        let Some((key, bytes)) = links.marked_memo(ino).unwrap_or(None) else { return false };
        self.views.found(&links, key, ino, bytes);
        true
    }

    fn keeps(&self, vfs: &Vfs, ino: Ino) -> Result<bool> {
        Ok(self.of(vfs).marked_memo(ino)?.is_some())
    }

    fn bytes(&self) -> u64 {
        self.views.kept_bytes()
    }

    fn clear(&self) -> bool {
        self.views.clear()
    }

    fn committed(&self, vfs: &Vfs) {
        self.of(vfs).forget_archives();
    }

    fn stop(&self) {
        self.places_ahead.close();
    }

    fn store(&self, vfs: &Vfs) {
        self.of(vfs).store_drafts();
    }

    fn end(&self, vfs: &Vfs) {
        self.views.end(&self.of(vfs));
    }

    fn count(&self, stats: &mut Stats) {
        let count = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        let pushed = self.stacks.ledger.counts();
        stats.networks_pushed = pushed.pushed;
        stats.pushed_bytes = pushed.bytes;
        stats.pushed_bytes_by_user = pushed.by_user;
        stats.pushes_refused = pushed.refused;
        stats.memo_bytes = self.views.kept_bytes();
        stats.results_computed = count(&self.views.computed);
        stats.results_found = count(&self.views.found);
        stats.bytes_computed_ahead = self.places_ahead.bytes();
        (stats.requests_computing, stats.users_computing) = self.computing.counts();
        stats.requests_computing_by_user = self.computing.by_user();
        stats.computing_interrupted = count(&self.computing.interrupted);
        stats.computing_refused = count(&self.computing.refused);
    }
}
