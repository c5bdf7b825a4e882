//! A volume as protocols without a kernel in between use it: by users, with rights, and beside
//! others.

use parking_lot::Mutex;
use std::sync::{Arc, Weak};
use weft_store::log::IntentLog;
use weft_store::memory::MemoryStore;
use weft_store::{BlockHome, Ino, Kind, Store, Timestamp, VolumeOptions, sqlite};
use weft_vfs::{
    Caller, Change, Credentials, ErrorKind, FileId, Holds, IfExists, MakeNode, ManualClock, Observer, Options,
    Privileges, SetAttributes, Vfs,
};

const FILE: MakeNode = MakeNode { kind: Kind::File, permissions: 0o644, umask: 0, rdev: 0 };
const ROOT: FileId = FileId { ino: Ino::ROOT, generation: 0 };
const HOLDING: Caller = Caller { uid: 0, gid: 0, holds: Holds::Counted };

fn open(store: Arc<dyn Store>) -> Arc<Vfs> {
    let options = Options { background: false, ..Options::default() };
    Vfs::open(store, None, options, Arc::new(ManualClock::default())).expect("opens")
}

fn in_memory() -> Arc<MemoryStore> {
    Arc::new(MemoryStore::new(VolumeOptions {
        block_size: 4096,
        home: BlockHome::Database,
        ..VolumeOptions::default()
    }))
}

#[test]
fn a_secret_is_made_once_and_shown_to_nobody() {
    let store = in_memory();
    let vfs = open(store.clone());
    assert_eq!(vfs.secret("handles").unwrap(), None);
    assert_eq!(vfs.secret_or("handles", [1; 32]).unwrap(), [1; 32]);
    assert_eq!(vfs.secret_or("handles", [2; 32]).unwrap(), [1; 32]);
    assert!(vfs.xattr_names(Ino::ROOT).unwrap().is_empty());
    for kind in ["weft.secret.handles", "user.weft.secret.handles"] {
        assert!(vfs.xattr(Ino::ROOT, kind.as_bytes()).is_err());
    }
    let error = vfs.remove_xattr(Ino::ROOT, b"weft.secret.handles").unwrap_err();
    assert_eq!(error.kind(), ErrorKind::NotSupported);
    drop(vfs);
    assert_eq!(open(store).secret("handles").unwrap(), Some([1; 32]), "it is durable when it is told");
}

#[test]
fn what_was_recorded_survives_the_end_of_the_process() {
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().join("volume");
    sqlite::create(&path, &VolumeOptions::default(), (0, 0), Timestamp(0)).expect("created");
    let mount = || {
        let opened = sqlite::open(&path).expect("opened");
        let log = IntentLog::open(&opened.layout.log, 1 << 20).expect("a log");
        let options = Options { background: false, ..Options::default() };
        Vfs::open(opened.store, Some(log.into()), options, Arc::new(ManualClock::default())).expect("mounts")
    };
    let vfs = mount();
    for name in ["first", "second"] {
        vfs.make(Caller::ROOT, Ino::ROOT, name.as_bytes(), FILE).expect("made");
        vfs.record().expect("recorded");
    }
    let (last, durable) = vfs.progress();
    assert!(durable < last, "nothing was waited for");
    vfs.make(Caller::ROOT, Ino::ROOT, b"third", FILE).expect("made");
    drop(vfs);
    let vfs = mount();
    assert!(vfs.lookup(Caller::ROOT, Ino::ROOT, b"second").is_ok());
    assert_eq!(vfs.lookup(Caller::ROOT, Ino::ROOT, b"third").unwrap_err().kind(), ErrorKind::NotFound);
}

#[derive(Default)]
struct Seen(Mutex<Vec<Change>>);

impl Observer for Seen {
    fn changed(&self, change: &Change) {
        self.0.lock().push(change.clone());
    }
}

#[test]
fn whoever_holds_an_inode_is_told_what_users_change_about_it_and_of_nothing_else() {
    let vfs = open(in_memory());
    let seen = Arc::new(Seen::default());
    let observer: Arc<dyn Observer> = seen.clone();
    vfs.observe(&observer);
    let taken = || std::mem::take(&mut *seen.0.lock());
    let root = Credentials::default();
    let user = vfs.user(&root);
    let made = user.create(ROOT, b"file", FILE, SetAttributes::default(), IfExists::Fail).expect("made").value;
    let file = FileId::from(&made);
    assert!(matches!(&taken()[..], [Change::Entry { parent: Ino::ROOT, name }] if name.as_bytes() == b"file"));
    user.write(file, 0, b"text").expect("written");
    assert_eq!(taken(), [], "nobody was told of the file");
    vfs.lookup(HOLDING, Ino::ROOT, b"file").expect("found");
    user.write(file, 2, b"text").expect("written");
    let change = Change::Content { ino: file.ino, range: 2..6 };
    assert_eq!(taken(), [change.clone(), change], "before it and after it");
    user.set_attributes(file, SetAttributes { size: Some(1), ..SetAttributes::default() }, |_| true).expect("cut");
    assert_eq!(taken(), [Change::Content { ino: file.ino, range: 1..u64::MAX }]);
    user.set_attributes(file, SetAttributes { permissions: Some(0), ..SetAttributes::default() }, |_| true)
        .expect("set");
    assert_eq!(taken(), [Change::Attributes { ino: file.ino }]);
    user.rename((ROOT, b"file"), (ROOT, b"moved")).expect("moved");
    assert_eq!(taken().len(), 2, "one name less and one more");
    user.unlink(ROOT, b"moved").expect("removed");
    assert!(taken().contains(&Change::Attributes { ino: file.ino }), "it has no name any more");
    vfs.write(file.ino, 0, b"its own", false).expect("written");
    assert_eq!(taken(), [], "of what it does itself nobody is told");
}

/// Writes what it has of a page, as a kernel does that is told to forget it.
struct Mapping(Weak<Vfs>, Mutex<Option<&'static [u8]>>);

impl Observer for Mapping {
    fn changed(&self, change: &Change) {
        let (Change::Content { ino, .. }, Some(vfs)) = (change, self.0.upgrade()) else { return };
        let page = self.1.lock().take();
        page.map_or(Ok(Privileges::Kept), |page| vfs.write(*ino, 0, page, false)).expect("written");
    }
}

#[test]
fn what_a_user_writes_stays_beside_what_a_program_changed_in_the_same_page() {
    let vfs = open(in_memory());
    let root = Credentials::default();
    let user = vfs.user(&root);
    let made = user.create(ROOT, b"file", FILE, SetAttributes::default(), IfExists::Fail).expect("made").value;
    let file = FileId::from(&made);
    user.write(file, 0, b"aaaaaaaa").expect("written");
    vfs.lookup(HOLDING, Ino::ROOT, b"file").expect("found");
    let mapping = Arc::new(Mapping(Arc::downgrade(&vfs), Mutex::new(Some(b"Laaaaaaa"))));
    let observer: Arc<dyn Observer> = mapping.clone();
    vfs.observe(&observer);
    let stranger = Credentials { uid: 7, ..Credentials::default() };
    assert_eq!(vfs.user(&stranger).write(file, 4, b"NO").unwrap_err().kind(), ErrorKind::AccessDenied);
    assert!(mapping.1.lock().is_some(), "nobody is told of what was not written");
    user.write(file, 4, b"NFS").expect("written");
    assert_eq!(vfs.read(file.ino, 0, 10).expect("read").to_vec(), b"LaaaNFSa");
}

#[test]
fn a_number_that_a_crash_gave_to_another_inode_is_stale() {
    let store = in_memory();
    let vfs = open(store.clone());
    let lost = FileId::from(&vfs.make(Caller::ROOT, Ino::ROOT, b"lost", FILE).expect("made"));
    drop(vfs);
    let vfs = open(store);
    let found = FileId::from(&vfs.make(Caller::ROOT, Ino::ROOT, b"found", FILE).expect("made"));
    assert_eq!(found.ino, lost.ino, "the number was never used, as far as the volume knows");
    let root = Credentials::default();
    assert_eq!(vfs.user(&root).attributes(lost).unwrap_err().kind(), ErrorKind::Stale);
    assert!(vfs.user(&root).attributes(found).is_ok());
}
