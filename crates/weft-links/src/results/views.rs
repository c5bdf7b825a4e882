//! The views that there are: found by version, few enough. One that is forgotten goes, with what it
//! keeps, when its last reader lets go of it.
//!
//! What is complete is also known by what it is the result of ([`crate::results::memo`]), and stays
//! when its view goes for want of use: as long as there is room, whoever comes to want the same
//! finds it. Versions that are the same share a view.
//!
//! Locks: that of a view comes before that of the table, where one waits, and that before the
//! state's. Nothing that holds a file is let go of under that of the table.

use crate::Version;
use crate::layer::Links;
use crate::resolving::resolve::Resolved;
use crate::results::memo::{Key, Memo, Nameless};
use crate::results::sources::Targets;
use crate::results::view::View;
use parking_lot::Mutex;
use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use weft_store::Ino;
use weft_tree::Result;

/// Views at once, those that are kept included.
const VIEWS_MAX: usize = 1024;

/// Results at once that belong to no view: each is an inode.
const RESULTS_MAX: usize = 1024;

/// The views of a volume.
#[derive(Default)]
pub(crate) struct Views {
    table: Mutex<Table>,
    /// One at a time looks for what can rest: while one does, views seem to be read.
    resting: Mutex<()>,
    /// Results that were begun to be computed, and those that were there when somebody wanted them
    /// anew.
    pub(crate) computed: AtomicU64,
    pub(crate) found: AtomicU64,
}

#[derive(Default)]
struct Table {
    views: HashMap<Version, Entry>,
    /// Versions by when they were used last.
    by_use: BTreeMap<u64, Version>,
    /// Those that are complete, by what they are the result of.
    complete: HashMap<Key, Version>,
    /// Results that belong to no view.
    results: HashMap<Key, Stored>,
    /// Their keys, those that came first first.
    by_age: BTreeMap<u64, Key>,
    uses: u64,
    kept_bytes: u64,
}

struct Entry {
    view: Arc<Mutex<View>>,
    used: u64,
    kept_bytes: u64,
    key: Option<Key>,
}

/// A result that belongs to no view.
struct Stored {
    file: Nameless,
    bytes: u64,
    since: u64,
}

/// Entries taken out of the table, to be dropped without its lock.
#[derive(Default)]
struct Gone {
    views: Vec<Arc<Mutex<View>>>,
    files: Vec<Nameless>,
}

impl Views {
    /// The view of what link `ino` leads to. As [`Links::memo_key`].
    pub(crate) fn get(&self, vfs: &Links<'_>, ino: Ino, resolved: &Resolved) -> Result<Arc<Mutex<View>>> {
        let version = resolved.version;
        // What was encrypted is not to lie in the volume as it was before.
        let may = resolved.link.definition.memo && vfs.layer.options.memo_bytes_max > 0 && !resolved.is_secret;
        let wants_key = {
            let mut table = self.table.lock();
            if table.views.contains_key(&version) {
                return Ok(table.touch(&version));
            }
            may && !(table.complete.is_empty() && table.results.is_empty())
        };
        let key = if wants_key { vfs.memo_key(ino, version)? } else { None };
        let mut table = self.table.lock();
        if !table.views.contains_key(&version) {
            let targets = Targets::new(vfs.weak(), ino, resolved);
            let known = key.and_then(|key| table.known(&key, &version, targets.clone()));
            let counter = if known.is_some() { &self.found } else { &self.computed };
            counter.fetch_add(1, Ordering::Relaxed);
            let keep = may && !vfs.is_read_only();
            let entry = known.unwrap_or_else(|| Entry::new(View::new(targets, keep)));
            table.views.insert(version, entry);
        }
        let view = table.touch(&version);
        let gone = table.beyond(VIEWS_MAX, u64::MAX, &version);
        // They are given up without the lock.
        drop(table);
        drop(gone);
        Ok(view)
    }

    /// The view of `version` keeps `bytes` now. Others go until there is room for all; false if
    /// there is none for this one.
    pub(crate) fn keeps(&self, vfs: &Links<'_>, version: &Version, bytes: u64) -> bool {
        let max = vfs.layer.options.memo_bytes_max;
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

    /// Has the result of `version`, if `view` has all of it, known by what it is made of, if that
    /// is known.
    pub(crate) fn complete(&self, vfs: &Links<'_>, version: &Version, view: &View) {
        let Some(file) = view.whole() else { return };
        // What fails is computed again some day.
        let Some(key) = view.key(vfs, *version) else { return };
        {
            let mut table = self.table.lock();
            if table.knows(&key) {
                return;
            }
            let Some(entry) = table.views.get_mut(version) else { return };
            entry.key = Some(key);
            table.complete.insert(key, *version);
        }
        // Without, it is gone with the mount.
        let _ = vfs.mark_memo(file, &key);
    }

    /// A result from an earlier mount: `file`, of `bytes`, is what `key` tells. Where there is no
    /// room for all, those go that came first.
    pub(crate) fn found(&self, vfs: &Links<'_>, key: Key, file: Ino, bytes: u64) {
        vfs.hold(file);
        let file = Nameless::held(vfs, file);
        let mut table = self.table.lock();
        let twice = table.store(key, file, bytes);
        let gone = table.shrink(vfs.layer.options.memo_bytes_max);
        drop(table);
        drop((twice, gone));
    }

    /// Has what is complete belong to no view, and the rest forgotten, because the volume is
    /// closed. Its targets are to be committed before, and it after that.
    pub(crate) fn end(&self, vfs: &Links<'_>) {
        let views = {
            let mut table = self.table.lock();
            table.by_use.clear();
            table.complete.clear();
            table.kept_bytes = table.results.values().map(|stored| stored.bytes).sum();
            std::mem::take(&mut table.views)
        };
        for (version, entry) in views {
            // Whoever still waits for it has it to himself.
            let Some(mut view) = entry.view.try_lock() else { continue };
            let key = match (entry.key, view.whole()) {
                (Some(key), Some(_)) => Some(key),
                (None, Some(file)) => view.key(vfs, version).filter(|key| vfs.mark_memo(file, key).is_ok()),
                (_, None) => None,
            };
            let bytes = view.kept_bytes();
            let whole = key.and_then(|key| Some((key, view.take_whole()?)));
            drop(view);
            let twice = whole.and_then(|(key, file)| self.table.lock().store(key, file, bytes));
            drop(twice);
        }
    }

    /// Returns the memoised part of the result of `version`, to which link `ino` leads. As
    /// [`Links::memo_key`].
    pub(crate) fn memo(&self, vfs: &Links<'_>, ino: Ino, version: &Version) -> Result<Option<Memo>> {
        let known = |table: &Table| table.views.get(version).map(|entry| (entry.view.clone(), entry.kept_bytes));
        let found = known(&self.table.lock());
        if let Some((view, bytes)) = found {
            // Whoever has it computes the rest.
            let memo = view.try_lock().map_or(Memo { bytes, is_complete: false }, |view| view.memo());
            return Ok(Some(memo).filter(|memo| *memo != Memo::default()));
        }
        let Some(key) = vfs.memo_key(ino, *version)? else { return Ok(None) };
        let bytes = self.table.lock().bytes_of(&key);
        Ok(bytes.map(|bytes| Memo { bytes, is_complete: true }))
    }

    /// Ends what runs of views that nobody reads at this moment, of half of them, those used
    /// longest ago first. Tells whether anything did.
    pub(crate) fn rest(&self) -> bool {
        let _one = self.resting.lock();
        let idle = self.idle();
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

    /// Ends what runs of views of `owner`'s links that nobody reads at this moment, so that what it
    /// keeps is free for others. Tells whether anything did.
    pub(crate) fn rest_of(&self, owner: Option<u32>) -> bool {
        let _one = self.resting.lock();
        let mut rested = false;
        for view in self.idle() {
            let locked = view.try_lock().filter(|view| view.runs() && view.owner() == owner);
            let run = locked.map(|mut view| view.rest());
            rested |= run.is_some();
            drop(run);
        }
        rested
    }

    /// Those that nobody reads at this moment, the one that was used longest ago first.
    fn idle(&self) -> Vec<Arc<Mutex<View>>> {
        let table = self.table.lock();
        let of = |version| table.views.get(version).map(|entry| &entry.view);
        // Whoever reads one has it, too.
        table.by_use.values().filter_map(of).filter(|view| Arc::strong_count(view) == 1).cloned().collect()
    }

    /// Forgets the view of `version`, with what it keeps.
    pub(crate) fn forget(&self, version: &Version) {
        let gone = self.table.lock().remove(version);
        drop(gone);
    }

    /// Forgets `view`, whatever versions it is of.
    pub(crate) fn forget_all(&self, view: &Arc<Mutex<View>>) {
        let mut table = self.table.lock();
        let of = table.views.iter().filter(|(_, entry)| Arc::ptr_eq(&entry.view, view)).map(|(version, _)| *version);
        let versions: Vec<_> = of.collect();
        let gone: Vec<_> = versions.iter().filter_map(|version| table.remove(version)).collect();
        drop(table);
        drop(gone);
    }

    /// Forgets all, so that what they keep is free again. Tells whether any kept something.
    pub(crate) fn clear(&self) -> bool {
        let table = std::mem::take(&mut *self.table.lock());
        table.kept_bytes > 0 || !table.complete.is_empty() || !table.results.is_empty()
    }

    /// Bytes that views keep, and results that belong to none.
    pub(crate) fn kept_bytes(&self) -> u64 {
        self.table.lock().kept_bytes
    }
}

impl Entry {
    fn new(view: View) -> Entry {
        Entry { view: Arc::new(Mutex::new(view)), used: 0, kept_bytes: 0, key: None }
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

    fn knows(&self, key: &Key) -> bool {
        self.complete.contains_key(key) || self.results.contains_key(key)
    }

    /// Bytes of the result that `key` tells.
    fn bytes_of(&self, key: &Key) -> Option<u64> {
        let of_view = self.complete.get(key).and_then(|version| self.views.get(version)).map(|entry| entry.kept_bytes);
        of_view.or_else(|| self.results.get(key).map(|stored| stored.bytes))
    }

    /// The result that `key` tells, for `version`: that of another version, which has it, too, or
    /// one that belonged to none.
    fn known(&mut self, key: &Key, version: &Version, targets: Targets) -> Option<Entry> {
        if let Some(same) = self.complete.get(key).and_then(|same| self.views.get(same)) {
            return Some(Entry { view: same.view.clone(), used: 0, kept_bytes: 0, key: None });
        }
        let Stored { file, bytes, .. } = self.take(key)?;
        self.kept_bytes += bytes;
        self.complete.insert(*key, *version);
        Some(Entry { kept_bytes: bytes, key: Some(*key), ..Entry::new(View::complete(targets, file, bytes)) })
    }

    fn remove(&mut self, version: &Version) -> Option<Entry> {
        let mut entry = self.views.remove(version)?;
        self.by_use.remove(&entry.used);
        let Some(key) = entry.key else {
            self.kept_bytes -= entry.kept_bytes;
            return Some(entry);
        };
        // Another version that is the same answers for it from now on.
        let same = self.views.iter_mut().find(|(_, other)| Arc::ptr_eq(&other.view, &entry.view));
        match same {
            Some((version, other)) => {
                (other.kept_bytes, other.key) = (entry.kept_bytes, entry.key);
                self.complete.insert(key, *version);
                (entry.kept_bytes, entry.key) = (0, None);
            }
            None => {
                self.kept_bytes -= entry.kept_bytes;
                self.complete.remove(&key);
            }
        }
        Some(entry)
    }

    /// Keeps a result that belongs to no view; gives it back if it is here already.
    fn store(&mut self, key: Key, file: Nameless, bytes: u64) -> Option<Nameless> {
        if self.knows(&key) {
            return Some(file);
        }
        self.uses += 1;
        self.kept_bytes += bytes;
        self.by_age.insert(self.uses, key);
        self.results.insert(key, Stored { file, bytes, since: self.uses });
        None
    }

    fn take(&mut self, key: &Key) -> Option<Stored> {
        let stored = self.results.remove(key)?;
        self.by_age.remove(&stored.since);
        self.kept_bytes -= stored.bytes;
        Some(stored)
    }

    /// Takes out what is beyond what there may be, the longest unused first, those last that belong
    /// to a view, and never that of `but`. Of views that are too many results stay, if they are
    /// complete.
    fn beyond(&mut self, views: usize, bytes: u64, but: &Version) -> Gone {
        let mut gone = Gone::default();
        while self.views.len() > views {
            let Some(entry) = self.oldest(but) else { break };
            if let Some(key) = entry.key {
                let whole = entry.view.try_lock().and_then(|mut view| view.take_whole());
                gone.files.extend(whole.and_then(|file| self.store(key, file, entry.kept_bytes)));
            }
            gone.views.push(entry.view);
        }
        gone.files.extend(self.shrink(bytes));
        while self.kept_bytes > bytes {
            let Some(entry) = self.oldest(but) else { break };
            gone.views.push(entry.view);
        }
        gone
    }

    /// Takes out results that belong to no view, those that came first first, until all that is
    /// kept has `bytes` at most, as far as that helps.
    fn shrink(&mut self, bytes: u64) -> Vec<Nameless> {
        let mut gone = Vec::new();
        while self.kept_bytes > bytes || self.results.len() > RESULTS_MAX {
            let Some(key) = self.by_age.first_key_value().map(|(_, key)| *key) else { break };
            gone.extend(self.take(&key).map(|stored| stored.file));
        }
        gone
    }

    /// Takes out the view that was not used for longest, which is not that of `but`.
    fn oldest(&mut self, but: &Version) -> Option<Entry> {
        let oldest = self.by_use.values().find(|version| *version != but).copied();
        oldest.and_then(|version| self.remove(&version))
    }
}
