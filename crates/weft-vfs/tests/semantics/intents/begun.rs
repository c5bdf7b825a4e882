//! A mount that ends before the intent log says that it has begun.

use super::{Files, LOG_BYTES, assert_all, with_records};
use crate::crashed::Crashed;
use std::sync::Arc;
use weft_block::Rope;
use weft_store::log::{
    Behind, DataLoss, IntentLog, LogAppends, LogEpochs, LogReplay, LogSync, Loss, OperationLog, Record,
};
use weft_store::{Batch, BlockHome, CommitNo, ErrorKind, Header, OpNo, Result, RowStore, sqlite};
use weft_testkit::{Calls, CrashStore, Faults};
use weft_vfs::{Caller, Ino, Kind, MakeNode, ManualClock, Options, Vfs};

/// A log of a mount that ends when it would begin.
struct NeverBegun(Box<dyn OperationLog>);

impl LogReplay for NeverBegun {
    fn loss(&self) -> Loss {
        self.0.loss()
    }
    fn check(&mut self, header: &Header) -> Result<Option<DataLoss>> {
        self.0.check(header)
    }
    fn records(&self, epoch: u64, after: OpNo) -> Result<Vec<Record>> {
        self.0.records(epoch, after)
    }
    fn carried(&self, epoch: u64) -> Result<Vec<Record>> {
        self.0.carried(epoch)
    }
    fn take_given_up(&self) -> Option<DataLoss> {
        self.0.take_given_up()
    }
    fn set_aside(&self) -> Result<Option<String>> {
        self.0.set_aside()
    }
}

impl LogEpochs for NeverBegun {
    fn next_epoch(&self, epoch: u64) -> u64 {
        self.0.next_epoch(epoch)
    }
    fn prepare(&mut self, epoch: u64, commit: CommitNo) -> Result<()> {
        self.0.prepare(epoch, commit)
    }
    fn go_without(&mut self) -> bool {
        self.0.go_without()
    }
    fn start(&mut self, _epoch: u64, _commit: CommitNo) -> Result<()> {
        Ok(())
    }
    fn leave(&mut self, epoch: u64, closing: bool) -> Option<u64> {
        self.0.leave(epoch, closing)
    }
    fn close(&mut self, commit: CommitNo, behind: Behind) -> Result<()> {
        self.0.close(commit, behind)
    }
    fn is_in_place(&self) -> bool {
        self.0.is_in_place()
    }
}

impl LogAppends for NeverBegun {
    fn outlives_process(&self) -> bool {
        self.0.outlives_process()
    }
    fn fits(&self, bytes: usize) -> bool {
        self.0.fits(bytes)
    }
    fn is_used(&self) -> bool {
        self.0.is_used()
    }
    fn is_half_full(&self) -> bool {
        self.0.is_half_full()
    }
    fn append(&mut self, first: OpNo, last: OpNo, bytes: &Rope) -> Result<()> {
        self.0.append(first, last, bytes)
    }
    fn carry(&mut self, batch: &mut Batch, bytes: Vec<u8>) -> Result<bool> {
        self.0.carry(batch, bytes)
    }
    fn name(&mut self, commit: CommitNo) -> Result<Option<Box<dyn LogSync>>> {
        self.0.name(commit)
    }
    fn syncer(&mut self) -> Result<Box<dyn LogSync>> {
        self.0.syncer()
    }
    fn keep(&mut self, sync: Box<dyn LogSync>) {
        self.0.keep(sync);
    }
    fn switch(&mut self) {
        self.0.switch();
    }
    fn release(&mut self, commit: CommitNo) {
        self.0.release(commit);
    }
}

/// There is no room for the first commit, and history, which then makes some, commits before it.
#[test]
fn history_may_make_room_for_the_first_commit_of_a_mount_that_ends_just_then() {
    let kept = with_history();
    let files = kept.crashed();
    let volume = sqlite::open(&files.path()).expect("opens");
    let store = Arc::new(CrashStore::over(volume.store.clone()));
    let before = store.header().expect("a header").commit;
    store.set_faults(Faults { count: 1, kind: ErrorKind::Full, calls: Calls::Commits, ..Faults::NONE });
    store.set_bytes_free(0);
    let log = NeverBegun(IntentLog::open(&volume.layout.log, LOG_BYTES).expect("a log").into());
    let options = Options { background: false, ..Options::default() };
    let clock = Arc::new(ManualClock::default());
    let vfs = Vfs::open(store.clone(), Some(Box::new(log)), options, clock).expect("opens");
    assert!(store.header().expect("a header").commit > before.next(), "history made room");
    let image = files.crashed();
    drop(vfs);
    let mounted = image.try_mount(Loss::Refuse).expect("opens");
    assert_all(&mounted);
    mounted.close();
}

/// A volume that crashed, with something in its log and commits that history may yield.
fn with_history() -> Files {
    let files = with_records(BlockHome::Segments).crashed();
    let mounted = files.try_mount(Loss::Refuse).expect("opens");
    mounted.vfs.keep_history("all forever", None).expect("kept");
    let file = MakeNode { kind: Kind::File, permissions: 0o644, umask: 0, rdev: 0 };
    let ino = mounted.vfs.make(Caller::ROOT, Ino::ROOT, b"other", file).expect("made").ino;
    for byte in 0..4 {
        mounted.vfs.write(ino, 0, &[byte; 9000], false).expect("written");
        mounted.vfs.commit_durably().expect("committed");
    }
    files.crashed()
}
