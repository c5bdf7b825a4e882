//! The views that there are: found by version, few enough. One that is forgotten goes, with what it keeps, when its last reader lets go of it.

use super::Version;
use super::resolve::Resolved;
use super::sources::Targets;
use super::view::View;
use crate::volume::Vfs;
use parking_lot::Mutex;
use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use weft_store::Ino;

/// Views at once, those that are kept included.
const VIEWS_MAX: usize = 1024;

/// The views of a volume.
#[derive(Default)]
pub(crate) struct Views {
    table: Mutex<Table>,
    /// One at a time looks for what can rest: while one does, views seem to be read.
    resting: Mutex<()>,
}

#[derive(Default)]
struct Table {
    views: HashMap<Version, Entry>,
    /// Versions by when they were used last.
    by_use: BTreeMap<u64, Version>,
    uses: u64,
    kept_bytes: u64,
}

struct Entry {
    view: Arc<Mutex<View>>,
    used: u64,
    kept_bytes: u64,
}

impl Views {
    /// The view of what link `ino` leads to.
    pub(super) fn get(&self, vfs: &Vfs, ino: Ino, resolved: &Resolved) -> Arc<Mutex<View>> {
        let mut table = self.table.lock();
        let version = resolved.version;
        table.views.entry(version).or_insert_with(|| {
            let may = resolved.link.definition.memo && !vfs.options.read_only && vfs.options.memo_bytes_max > 0;
            // What was encrypted is not to lie in the volume as it was before.
            let keep = may && !resolved.is_secret;
            let view = View::new(Targets::new(vfs.me.clone(), ino, resolved), keep);
            Entry { view: Arc::new(Mutex::new(view)), used: 0, kept_bytes: 0 }
        });
        let view = table.touch(&version);
        let gone = table.beyond(VIEWS_MAX, u64::MAX, &version);
        // They are given up without the lock.
        drop(table);
        drop(gone);
        view
    }

    /// The view of `version` keeps `bytes` now. Others go until there is room for all; false if there is none for this one.
    pub(super) fn keeps(&self, vfs: &Vfs, version: &Version, bytes: u64) -> bool {
        let max = vfs.options.memo_bytes_max;
        let mut table = self.table.lock();
        let Some(entry) = table.views.get_mut(version) else { return false };
        let before = std::mem::replace(&mut entry.kept_bytes, bytes);
        table.kept_bytes = table.kept_bytes - before + bytes;
        let gone = table.beyond(usize::MAX, max, version);
        let has_room = table.kept_bytes <= max;
        drop(table);
        drop(gone);
        has_room
    }

    /// Ends what runs of views that nobody reads at this moment, of half of them, those used longest ago first. Tells whether anything did.
    pub(super) fn rest(&self) -> bool {
        let _one = self.resting.lock();
        let idle: Vec<_> = {
            let table = self.table.lock();
            let of = |version| table.views.get(version).map(|entry| &entry.view);
            // Whoever reads one has it, too.
            table.by_use.values().filter_map(of).filter(|view| Arc::strong_count(view) == 1).cloned().collect()
        };
        let runs = |view: &&Arc<Mutex<View>>| view.try_lock().is_some_and(|view| view.has_exported());
        let running: Vec<_> = idle.iter().filter(runs).collect();
        let half = running.len().div_ceil(2);
        for view in &running[..half] {
            // Ending takes locks of its own, so it is done without this one.
            let run = view.try_lock().map(|mut view| view.rest());
            drop(run);
        }
        half > 0
    }

    /// Forgets the view of `version`.
    pub(super) fn forget(&self, version: &Version) {
        let gone = self.table.lock().remove(version);
        drop(gone);
    }

    /// Forgets all, so that what they keep is free again. Tells whether any kept something.
    pub(crate) fn clear(&self) -> bool {
        let table = std::mem::take(&mut *self.table.lock());
        table.kept_bytes > 0
    }

    /// Bytes that views keep.
    pub(crate) fn kept_bytes(&self) -> u64 {
        self.table.lock().kept_bytes
    }
}

impl Table {
    /// The view of `version`, which is there, used now.
    fn touch(&mut self, version: &Version) -> Arc<Mutex<View>> {
        self.uses += 1;
        let entry = self.views.get_mut(version).expect("the caller has made sure");
        self.by_use.remove(&entry.used);
        entry.used = self.uses;
        self.by_use.insert(self.uses, *version);
        entry.view.clone()
    }

    fn remove(&mut self, version: &Version) -> Option<Arc<Mutex<View>>> {
        let entry = self.views.remove(version)?;
        self.by_use.remove(&entry.used);
        self.kept_bytes -= entry.kept_bytes;
        Some(entry.view)
    }

    /// Takes out those that are beyond what there may be, the longest unused first, and never `but`.
    fn beyond(&mut self, views: usize, bytes: u64, but: &Version) -> Vec<Arc<Mutex<View>>> {
        let mut gone = Vec::new();
        while self.views.len() > views || self.kept_bytes > bytes {
            let oldest = self.by_use.values().find(|version| *version != but).copied();
            let Some(view) = oldest.and_then(|version| self.remove(&version)) else { break };
            gone.push(view);
        }
        gone
    }
}
