//! The log of one mounted volume in a file.

use super::judge::{Found, judge, missing, needs_log};
use super::scan::{Head, Kind, sectors};
use super::sector::{NUMBER_MAX, SECTOR, Stamp, VolumeId};
use super::slot::{Behind, HEADER_BYTES, Slot, Slots, Stage};
use super::writer::{Caching, Writer};
use super::{DataLoss, LogSync, Record, epoch_without_log};
use crate::copies;
use crate::error::{Error, Result};
use crate::files;
use crate::row::{CommitNo, OpNo};
use crate::store::Header;
use crate::user::{Rights, User};
use rustix::fs::{AtFlags, CWD, MemfdFlags, memfd_create};
use rustix::io::Errno;
use std::fs::File;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use weft_block::Rope;

/// Decides about a volume whose log lacks what it should have.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Loss {
    /// Refuse it.
    #[default]
    Refuse,
    /// Go on with what is left.
    Accept,
}

/// The log of one mounted volume in a file.
#[derive(Debug)]
pub struct IntentLog {
    file: File,
    path: PathBuf,
    /// The owner of the file, if this is root and that is another user.
    owner: Option<Arc<User>>,
    loss: Loss,
    /// Bytes of both halves together that were asked for.
    bytes_wanted: u64,
    slots: Box<Slots>,
    found: Box<Found>,
    id: VolumeId,
    /// The epoch that the database has until the mount's first commit.
    kept: u64,
    /// A random even number of epochs that the next mount leaves out.
    skipped: u64,
    epoch: u64,
    half_bytes: u64,
    /// Number of times it went on in the other half, in which the mount began.
    round: u64,
    /// Start of the round, and place of the next record, from the start of the half.
    began: u64,
    used: u64,
    /// The last durable commit.
    commit: CommitNo,
    /// The position after the last record of carried bytes.
    carried: u64,
    /// True if records can be appended: not before a mount has begun, nor when the file is gone.
    is_open: bool,
    /// True if all room is taken by what was found, until the first commit of the mount is durable.
    is_full: bool,
    /// True if the volume needs it no more.
    is_left: bool,
    progress: Arc<Progress>,
    writer: Writer,
    /// Not in use.
    syncs: Vec<Box<dyn LogSync>>,
}

/// Positions that all descriptors of a log know.
#[derive(Debug, Default)]
struct Progress {
    appended: AtomicU64,
    synced: AtomicU64,
}

/// Makes appends durable. Each has a descriptor of its own, since the kernel tells each descriptor
/// once of a write that failed.
#[derive(Debug)]
pub struct Sync {
    file: File,
    path: PathBuf,
    progress: Arc<Progress>,
}

impl Sync {
    /// Syncs `file`, which lies at `path`.
    pub fn new(file: File, path: &Path) -> Sync {
        Sync { file, path: path.into(), progress: Arc::default() }
    }
}

impl LogSync for Sync {
    /// Makes durable, when it returns without error, all that was appended before the call.
    fn sync(&self) -> Result<()> {
        let appended = self.progress.appended.load(Ordering::Acquire);
        let synced = self.file.sync_data();
        synced.map_err(|source| Error::Io { what: "cannot sync", path: self.path.clone(), source })?;
        self.progress.synced.fetch_max(appended, Ordering::AcqRel);
        Ok(())
    }
}

/// A log and a database that cannot be used together without losing what was synced.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Misfit {
    /// The reason, and what to do about it.
    pub why: String,
    /// True if the log knows of commits that the database lacks. One that is made now would be
    /// taken for one of them.
    pub is_ahead: bool,
    /// True if a mount that accepts the loss applies operations from the log.
    pub has_operations: bool,
}

/// Returns the reason that the volume with `header` cannot be used with the log at `path`, if it
/// cannot.
pub fn misfit(path: &Path, header: &Header) -> Result<Option<Misfit>> {
    match IntentLog::read(path)? {
        Some(mut log) => {
            log.find(header)?;
            let found = log.found;
            let has_operations = !found.records.is_empty() || !found.carried.is_empty();
            Ok(found.lost.map(|lost| Misfit { why: lost.to_string(), is_ahead: found.is_ahead, has_operations }))
        }
        None => {
            let is_missed = needs_log(header.counters.epoch);
            Ok(is_missed.then(|| Misfit {
                why: missing(path, header).to_string(),
                is_ahead: false,
                has_operations: false,
            }))
        }
    }
}

/// Returns the epoch of the volume with the id of `header` as of `commit`, by its log at `path`:
/// that of `header` may be older. None if there is no log that tells.
pub fn epoch_as_of(path: &Path, header: &Header, commit: CommitNo) -> Result<Option<u64>> {
    let Some(log) = IntentLog::read(path)? else { return Ok(None) };
    let is_known = |slot: &Slot| slot.id == header.uuid && slot.stage > Stage::Prepared && slot.commit <= commit.0;
    let last = log.slots.all().filter(is_known).max_by_key(|slot| slot.epoch);
    Ok(last.map(|slot| match slot.stage {
        Stage::Closed => epoch_without_log(slot.epoch),
        Stage::Prepared | Stage::Begun => slot.epoch,
    }))
}

/// True if `slot` is of the mount after which the volume with `header` was closed.
fn is_closed_by(slot: &Slot, header: &Header) -> bool {
    let is_last = (slot.stage, slot.commit) == (Stage::Closed, header.commit.0);
    is_last && slot.id == header.uuid && epoch_without_log(slot.epoch) == header.counters.epoch
}

/// Returns the note in the log at `path` about segments of the volume with `header`, which was
/// unmounted. None if there is no log.
pub fn behind(path: &Path, header: &Header) -> Result<Option<Behind>> {
    let Some(log) = IntentLog::read(path)? else { return Ok(None) };
    let own = log.slots.all().find(|slot| is_closed_by(slot, header));
    Ok(Some(own.map_or(Behind::Unknown, |slot| slot.behind)))
}

/// Takes back the note in the log at `path` that nothing lies behind the last commit of the volume
/// with `header`: blocks are to be put there while no mount has an epoch.
pub fn doubt_behind(path: &Path, header: &Header) -> Result<()> {
    let Some(mut log) = IntentLog::read(path)? else { return Ok(()) };
    let Some(own) = log.slots.all().find(|slot| is_closed_by(slot, header)) else { return Ok(()) };
    if own.behind == Behind::Unknown {
        return Ok(());
    }
    let io = |source| Error::Io { what: "cannot write to the intent log", path: path.into(), source };
    let file = files::open(files::options().read(true).write(true), path).map_err(io)?;
    let written = log.slots.write(&file, Slot { behind: Behind::Unknown, ..own }, own.epoch);
    written.and_then(|()| file.sync_data()).map_err(io)
}

impl IntentLog {
    /// Opens the log at `path` for a mount, making it when there is none: room for `bytes` of
    /// records, unless it has another size and holds records that are needed.
    pub fn open(path: &Path, bytes: u64) -> Result<IntentLog> {
        let io = |source| Error::Io { what: "cannot open the intent log", path: path.into(), source };
        let file =
            files::open(files::options().read(true).write(true).create(true).truncate(false), path).map_err(io)?;
        let log = IntentLog::new(file, path, bytes)?;
        Ok(IntentLog { skipped: random()? << 1, ..log })
    }

    /// Opens the log at `path`, if there is one, to look at it.
    pub fn read(path: &Path) -> Result<Option<IntentLog>> {
        match files::open(files::options().read(true), path) {
            Ok(file) => IntentLog::new(file, path, 0).map(Some),
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(None),
            Err(source) => Err(Error::Io { what: "cannot open the intent log", path: path.into(), source }),
        }
    }

    /// The log at `path`, to be read; if there is none, one with nothing in it takes its place, so
    /// that what is lost with it is judged as in one that is blank.
    pub fn read_or_blank(path: &Path) -> Result<IntentLog> {
        if let Some(log) = IntentLog::read(path)? {
            return Ok(log);
        }
        let blank = memfd_create("weft-intents", MemfdFlags::CLOEXEC);
        let failed =
            |source: Errno| Error::Io { what: "cannot stand in for", path: path.into(), source: source.into() };
        IntentLog::new(blank.map_err(failed)?.into(), path, 0)
    }

    fn new(file: File, path: &Path, bytes_wanted: u64) -> Result<IntentLog> {
        let io = |source| Error::Io { what: "cannot open the intent log", path: path.into(), source };
        let metadata = file.metadata().map_err(io)?;
        let slots = Slots::read(&file, metadata.len()).map_err(io)?;
        Ok(IntentLog {
            owner: User::other(metadata.uid()).map(Arc::new),
            file,
            path: path.into(),
            loss: Loss::Refuse,
            bytes_wanted,
            slots: Box::new(slots),
            found: Box::default(),
            id: [0; 16],
            kept: 0,
            skipped: 0,
            epoch: 0,
            half_bytes: 0,
            round: 0,
            began: 0,
            used: 0,
            commit: CommitNo(0),
            carried: 0,
            is_open: false,
            is_full: false,
            is_left: false,
            progress: Arc::default(),
            writer: Writer::default(),
            syncs: Vec::new(),
        })
    }

    /// The same, with this done about what it should have and has not.
    #[must_use]
    pub fn with(self, loss: Loss) -> IntentLog {
        IntentLog { loss, ..self }
    }

    /// Returns the action to take where the log lacks records that it should have.
    pub fn loss(&self) -> Loss {
        self.loss
    }

    /// Copies the file beside itself, durably, unless that was done because of what is lost with
    /// it. Gives the path of the copy.
    pub fn set_aside(&self) -> Result<Option<PathBuf>> {
        let _rights = self.rights()?;
        if self.found.lost.is_some() { Ok(None) } else { copies::set_aside(&self.path) }
    }

    fn find(&mut self, header: &Header) -> Result<()> {
        (self.id, self.kept) = (header.uuid, header.counters.epoch);
        *self.found = judge(&self.path, &self.file, &self.slots, header)?;
        Ok(())
    }

    /// Looks for what the volume that says `header` of itself needs of it. Tells what is lost, if
    /// that is accepted. `Lost` if it is not: then nothing was changed.
    pub fn check(&mut self, header: &Header) -> Result<Option<DataLoss>> {
        self.find(header)?;
        match (&self.found.lost, self.loss) {
            (Some(lost), Loss::Refuse) => Err(Error::Lost(lost.to_string())),
            (lost, _) => Ok(lost.clone()),
        }
    }

    /// The operations to apply that [`IntentLog::check`] found, in their order, without a gap.
    pub fn records(&self) -> &[Record] {
        &self.found.records
    }

    /// Returns the records that the last commit could not store, as given to [`IntentLog::carry`]:
    /// they come first.
    pub fn carried(&self) -> &[Record] {
        &self.found.carried
    }

    fn io(&self, what: &'static str, source: std::io::Error) -> Error {
        Error::Io { what, path: self.path.clone(), source }
    }

    /// The rights by which its path is used.
    fn rights(&self) -> Result<Rights> {
        Rights::of(self.owner.as_deref()).map_err(|source| self.io("cannot take the rights of the owner of", source))
    }

    /// The epoch of a mount after those of `epoch` and of all that used the file.
    ///
    /// How many it leaves out is random: of two copies of a volume that are both used, each has
    /// epochs that the other has not, so that the log of one is not taken for that of the other.
    pub fn next_epoch(&self, epoch: u64) -> u64 {
        let next = (self.found.epoch_max.max(epoch) + 1) | 1;
        // Nobody mounts a volume so often.
        if next < NUMBER_MAX / 2 { next + self.skipped } else { next }
    }

    /// The mount of `epoch` is about to make its first commit, after `commit`. What
    /// [`IntentLog::check`] found stays readable until that is durable.
    pub fn prepare(&mut self, epoch: u64, commit: CommitNo) -> Result<()> {
        self.half_bytes = self.make_room()?;
        let start = self.found.start;
        (self.epoch, self.commit, self.carried) = (epoch, commit, 0);
        (self.round, self.began) = (start / self.half_bytes, start % self.half_bytes);
        self.used = self.began;
        self.is_full = self.found.is_full;
        self.progress = Arc::default();
        self.progress.appended.store(start, Ordering::Release);
        self.progress.synced.store(start, Ordering::Release);
        self.write_slot(Stage::Prepared, start, Behind::Unknown)?;
        // Also where an earlier try made the file and could not do this.
        let _rights = self.rights()?;
        self.writer = Writer::new(&self.file, &self.path);
        let synced = File::open(files::parent_of(&self.path)).and_then(|directory| directory.sync_all());
        synced.map_err(|source| self.io("cannot sync the directory of", source))?;
        self.is_open = true;
        Ok(())
    }

    /// Sees that the file is as large as it should be, if nothing in it is needed. Tells the size
    /// of a half.
    fn make_room(&mut self) -> Result<u64> {
        let size = self.file.metadata().map_err(|source| self.io("cannot look at", source))?.len();
        if !self.found.is_free {
            let needed = self.slots.of(self.kept).ok_or_else(|| Error::Bug("an intent log without a header".into()))?;
            // One that was cut short gets its size again; the loss of what was there is accepted.
            let whole = HEADER_BYTES + 2 * needed.half_bytes;
            if size < whole {
                fill(&self.file, size, whole).map_err(|source| self.io("cannot make", source))?;
            }
            return Ok(needed.half_bytes);
        }
        let wanted = (self.bytes_wanted / 2 / SECTOR as u64 * SECTOR as u64).max(SECTOR as u64);
        let is_whole = |slot: &Slot| size >= HEADER_BYTES + 2 * slot.half_bytes;
        let ours = self.slots.all().filter(|slot| slot.id == self.id && self.found.lost.is_none());
        let largest = ours.filter(is_whole).map(|slot| slot.half_bytes).max();
        if let Some(half) = largest {
            // A smaller one does where there is no room for more.
            let is_filled = half >= wanted || fill(&self.file, size, HEADER_BYTES + 2 * wanted).is_ok();
            return Ok(if is_filled { half.max(wanted) } else { half });
        }
        // What it held, if anything, is another's or damaged, and was given up.
        let emptied = self.file.set_len(0).and_then(|()| fill(&self.file, 0, HEADER_BYTES + 2 * wanted));
        if let Err(source) = emptied {
            // What room there was is for others.
            let _ = self.file.set_len(0);
            return Err(self.io("cannot make", source));
        }
        *self.slots = Slots { is_blank: true, ..Slots::default() };
        Ok(wanted)
    }

    fn write_slot(&mut self, stage: Stage, start: u64, behind: Behind) -> Result<()> {
        let (id, epoch, half_bytes) = (self.id, self.epoch, self.half_bytes);
        let slot = Slot { id, epoch, half_bytes, start, stage, commit: self.commit.0, behind };
        let written = self.slots.write(&self.file, slot, self.kept);
        written.and_then(|()| self.file.sync_data()).map_err(|source| self.io("cannot write to", source))
    }

    /// The commit that begins the mount is durable: `commit`.
    pub fn begin(&mut self, commit: CommitNo) -> Result<()> {
        self.commit = commit;
        self.is_full = false;
        if self.is_left {
            return Ok(());
        }
        let start = self.slots.of(self.epoch).map_or(0, |slot| slot.start);
        self.write_slot(Stage::Begun, start, Behind::Unknown)
    }

    /// Begins the mount of `epoch` on the volume that says `header` of itself, without a commit of
    /// its own (tests).
    pub fn start(&mut self, header: &Header, epoch: u64) -> Result<()> {
        self.check(header)?;
        self.prepare(epoch, header.commit)?;
        self.begin(header.commit)
    }

    /// Takes no more: from now on all is in the database, whose epoch is even.
    pub fn leave(&mut self) {
        (self.is_open, self.is_left) = (false, true);
    }

    /// True if nothing of what [`IntentLog::check`] found has to be applied.
    pub fn is_free(&self) -> bool {
        self.found.is_free
    }

    /// True if a mount uses it.
    pub fn is_open(&self) -> bool {
        self.is_open
    }

    /// True if [`IntentLog::leave`] was called.
    pub fn is_left(&self) -> bool {
        self.is_left
    }

    /// All is in the database, durably; this lies behind it.
    pub fn close(&mut self, commit: CommitNo, behind: Behind) -> Result<()> {
        self.commit = commit;
        let start = self.slots.of(self.epoch).map_or(0, |slot| slot.start);
        self.write_slot(Stage::Closed, start, behind)
    }

    /// Names `commit`, which is durable. Once a [`Sync`] has made that durable as well, a database
    /// from before it is missed.
    pub fn name(&mut self, commit: CommitNo) -> Result<()> {
        let begun = self.slots.of(self.epoch).filter(|slot| self.is_open && slot.stage == Stage::Begun);
        let begun = begun.ok_or_else(|| Error::Bug("a commit is named in an intent log that is not in use".into()))?;
        let slot = Slot { commit: commit.0.max(begun.commit), ..begun };
        // Also if it is there already: the sync of the try before may have failed.
        let written = self.slots.write(&self.file, slot, self.kept);
        written.map_err(|source| self.io("cannot write to", source))
    }

    /// True if the file was removed, or another one lies in its place.
    pub fn is_gone(&self) -> bool {
        let Ok((own, names)) = files::inode_at(&self.file, Path::new(""), AtFlags::EMPTY_PATH) else { return false };
        let is_there =
            |_rights| files::inode_at(CWD, &self.path, AtFlags::empty()).is_ok_and(|(there, _)| there == own);
        names == 0 || !self.rights().is_ok_and(is_there)
    }

    /// True if a record of `bytes` bytes can be appended: there is room in what is left of the
    /// current half.
    pub fn fits(&self, bytes: usize) -> bool {
        self.is_open && !self.is_full && self.used + sectors(bytes as u64) * SECTOR as u64 <= self.half_bytes
    }

    /// True if anything was appended to the current half.
    pub fn is_used(&self) -> bool {
        self.used > self.began
    }

    /// True if the current half has less room left than it has used.
    pub fn is_half_full(&self) -> bool {
        self.used > self.half_bytes / 2
    }

    /// Appends `bytes`, the operations `first..=last`; a [`Sync`] then makes them durable.
    pub fn append(&mut self, first: OpNo, last: OpNo, bytes: &Rope) -> Result<()> {
        self.put(Kind::Operations, (first, last), self.commit, bytes, Caching::Direct)
    }

    /// Appends as [`IntentLog::append`] does, but does not wait for the disk: no [`Sync`] follows
    /// soon.
    pub fn append_unsynced(&mut self, first: OpNo, last: OpNo, bytes: &Rope) -> Result<()> {
        self.put(Kind::Operations, (first, last), self.commit, bytes, Caching::Cached)
    }

    /// True if appends go past the page cache.
    #[cfg(test)]
    pub(super) fn is_direct(&self) -> bool {
        self.writer.is_direct()
    }

    /// Appends as where the file takes no direct writes.
    #[cfg(test)]
    pub(super) fn write_through_the_cache(&mut self) {
        self.writer = Writer::default();
    }

    /// Appends the bytes that commit `commit`, whose last operation is `op`, will lack.
    pub fn carry(&mut self, commit: CommitNo, op: OpNo, bytes: Vec<u8>) -> Result<()> {
        if !self.fits(bytes.len()) {
            let what = "the intent log has no room for what was written over damaged blocks";
            return Err(Error::Corrupt(what.into()));
        }
        self.put(Kind::Carried, (op, op), commit, &Rope::from(bytes), Caching::Direct)?;
        self.carried = self.progress.appended.load(Ordering::Acquire);
        Ok(())
    }

    fn put(
        &mut self,
        kind: Kind,
        (first, last): (OpNo, OpNo),
        commit: CommitNo,
        bytes: &Rope,
        caching: Caching,
    ) -> Result<()> {
        if !self.fits(bytes.len()) {
            return Err(Error::Bug("a record that does not fit the intent log".into()));
        }
        let synced = self.progress.synced.load(Ordering::Acquire);
        let crc = bytes.slices().iter().fold(0, |crc, slice| crc32c::crc32c_append(crc, slice));
        let (carried, len) = (self.carried, bytes.len() as u64);
        let head = Head { kind, first, last, commit, synced, carried, len, crc }.encode();
        let at = self.round * self.half_bytes + self.used;
        let stamp = Stamp { epoch: self.epoch, position: at, index: 0 };
        let taken = self.writer.encode(&self.id, stamp, &head, bytes);
        let place = HEADER_BYTES + self.round % 2 * self.half_bytes + self.used;
        let written = self.writer.write(&self.file, place, caching);
        written.map_err(|source| self.io("cannot append to", source))?;
        self.used += taken;
        self.progress.appended.store(at + taken, Ordering::Release);
        Ok(())
    }

    /// Returns a handle to sync by. It is to be given back with [`IntentLog::keep`], unless it
    /// failed.
    pub fn syncer(&mut self) -> Result<Box<dyn LogSync>> {
        if let Some(sync) = self.syncs.pop() {
            return Ok(sync);
        }
        let _rights = self.rights()?;
        let opened = files::open(files::options().write(true), &self.path);
        let file = opened.map_err(|source| self.io("cannot open", source))?;
        if self.is_gone() {
            return Err(self.io("cannot sync", std::io::Error::other("another file lies in its place")));
        }
        Ok(Box::new(Sync { file, path: self.path.clone(), progress: self.progress.clone() }))
    }

    /// Keeps `sync` for later use.
    pub fn keep(&mut self, sync: Box<dyn LogSync>) {
        self.syncs.push(sync);
    }

    /// Goes on in the other half, whose records a durable commit must have made needless.
    pub fn switch(&mut self) {
        self.round += 1;
        (self.began, self.used) = (0, 0);
    }

    /// `commit` is durable, and contains all that was appended before [`IntentLog::switch`].
    pub fn release(&mut self, commit: CommitNo) {
        self.commit = commit;
    }
}

/// A random number of 32 bits.
fn random() -> Result<u64> {
    let [a, b, c, d, ..] = crate::uuid::new()?;
    Ok(u32::from_le_bytes([a, b, c, d]).into())
}

/// Writes zeros, so that an append changes no file-system metadata.
fn fill(file: &File, from: u64, to: u64) -> std::io::Result<()> {
    let zeros = vec![0; 1 << 20];
    let mut at = from;
    while at < to {
        let now = (to - at).min(zeros.len() as u64);
        file.write_all_at(&zeros[..usize::try_from(now).expect("at most the buffer")], at)?;
        at += now;
    }
    file.sync_all()
}
