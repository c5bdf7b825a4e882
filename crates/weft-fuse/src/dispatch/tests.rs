//! Requests as bytes, replies as bytes, over a volume in memory.

use super::Server;
use crate::notify::Notifier;
use crate::options::{LockKeeper, SessionOptions};
use crate::protocol::flags::init;
use crate::protocol::{Offer, Opcode, Reply, Request};
use crate::transport::handler::{Handler, Served, Via};
use proptest::prelude::*;
use std::sync::Arc;
use weft_store::VolumeOptions;
use weft_store::memory::MemoryStore;
use weft_vfs::{ManualClock, Options, SetXattr};

const ROOT: u64 = 1;

fn server() -> Server {
    let store = Arc::new(MemoryStore::new(VolumeOptions::default()));
    let options = Options { background: false, ..Options::default() };
    let vfs =
        weft_links::open(store, None, options, weft_links::LinkOptions::default(), Arc::new(ManualClock::default()))
            .expect("opens");
    Server::new(vfs, SessionOptions::default(), None, None)
}

/// Returns a server that keeps locks, and the file that receives its late replies.
fn lock_server() -> (Server, std::fs::File) {
    let vfs = server().vfs;
    let options = SessionOptions { locks: LockKeeper::Volume, ..SessionOptions::default() };
    let server = Server::new(vfs, options, None, None);
    let sent = tempfile::tempfile().expect("a file");
    server.set_notifier(Notifier::new(Arc::new(sent.try_clone().expect("a file"))));
    (server, sent)
}

/// Arguments under construction.
#[derive(Default)]
struct Arguments(Vec<u8>);

impl Arguments {
    fn u32s(mut self, values: &[u32]) -> Arguments {
        self.0.extend(values.iter().flat_map(|value| value.to_ne_bytes()));
        self
    }

    fn u64s(mut self, values: &[u64]) -> Arguments {
        self.0.extend(values.iter().flat_map(|value| value.to_ne_bytes()));
        self
    }

    fn name(mut self, name: &str) -> Arguments {
        self.0.extend_from_slice(name.as_bytes());
        self.0.push(0);
        self
    }
}

fn message(opcode: Opcode, ino: u64, uid: u32, arguments: &[u8]) -> Vec<u8> {
    let len = u32::try_from(40 + arguments.len()).expect("short");
    let mut bytes = Arguments::default().u32s(&[len, opcode as u32]).u64s(&[77, ino]).u32s(&[uid, 0, 1, 0]).0;
    bytes.extend_from_slice(arguments);
    bytes
}

/// Content of a reply: the results, or an errno.
type Answer = Result<Vec<u8>, i32>;

fn answer(server: &Server, bytes: &[u8]) -> Option<Answer> {
    let mut reply = Reply::default();
    assert_eq!(server.serve(&Request::parse(bytes)?, &mut reply), Served::Done);
    reply.is_wanted().then(|| check(&reply))
}

/// The reply as the kernel would read it.
fn check(reply: &Reply) -> Answer {
    let mut bytes = reply.head().to_vec();
    for slice in reply.data().slices() {
        bytes.extend_from_slice(slice);
    }
    assert_eq!(u32_at(&bytes, 0) as usize, bytes.len(), "a reply tells its length");
    assert_eq!(u64_at(&bytes, 8), 77, "a reply tells its request");
    match u32_at(&bytes, 4).cast_signed() {
        0 => Ok(bytes[16..].to_vec()),
        error => {
            assert!((-511..0).contains(&error), "errno {error}");
            assert_eq!(bytes.len(), 16, "an error has no results");
            Err(-error)
        }
    }
}

fn u32_at(bytes: &[u8], at: usize) -> u32 {
    u32::from_ne_bytes(bytes[at..at + 4].try_into().expect("four bytes"))
}

fn u64_at(bytes: &[u8], at: usize) -> u64 {
    u64::from_ne_bytes(bytes[at..at + 8].try_into().expect("eight bytes"))
}

fn ask(server: &Server, opcode: Opcode, ino: u64, arguments: Arguments) -> Answer {
    answer(server, &message(opcode, ino, 0, &arguments.0)).expect("a reply")
}

fn make(server: &Server, parent: u64, name: &str) -> u64 {
    let arguments = Arguments::default().u32s(&[libc::S_IFREG | 0o644, 0, 0, 0]).name(name);
    u64_at(&ask(server, Opcode::Mknod, parent, arguments).expect("made"), 0)
}

/// Names and next offsets of a listing.
fn entries(listing: &[u8], prefix: usize) -> Vec<(String, u64)> {
    let mut found = Vec::new();
    let mut at = 0;
    while at < listing.len() {
        let entry = at + prefix;
        let len = u32_at(listing, entry + 16) as usize;
        let name = String::from_utf8_lossy(&listing[entry + 24..entry + 24 + len]).into_owned();
        found.push((name, u64_at(listing, entry + 8)));
        at = (entry + 24 + len).next_multiple_of(8);
    }
    found
}

fn list(server: &Server, opcode: Opcode, offset: u64, size: u32) -> Vec<(String, u64)> {
    let arguments = Arguments::default().u64s(&[0, offset]).u32s(&[size, 0]).u64s(&[0]).u32s(&[0, 0]);
    let listing = ask(server, opcode, ROOT, arguments).expect("listed");
    assert!(listing.len() <= size as usize, "a listing fits its buffer");
    entries(&listing, if opcode == Opcode::Readdirplus { 128 } else { 0 })
}

/// `struct fuse_lk_in`.
fn lock(owner: u64, range: (u64, u64), kind: i32, flags: u32) -> Arguments {
    let kind = kind.cast_unsigned();
    Arguments::default().u64s(&[0, owner, range.0, range.1]).u32s(&[kind, 9, flags, 0])
}

#[test]
fn locks_exclude_others_until_they_are_given_up_or_the_file_is_closed() {
    let (server, _) = lock_server();
    let file = make(&server, ROOT, "file");
    let set = |owner, range, kind| ask(&server, Opcode::Setlk, file, lock(owner, range, kind, 0));
    assert_eq!(set(1, (0, 9), libc::F_WRLCK), Ok(vec![]));
    assert_eq!(set(2, (9, u64::MAX), libc::F_RDLCK), Err(libc::EAGAIN));
    assert_eq!(set(2, (9, 8), libc::F_RDLCK), Err(libc::EINVAL));
    assert_eq!(set(2, (9, 9), 77), Err(libc::EINVAL));
    let found = ask(&server, Opcode::Getlk, file, lock(2, (5, 20), libc::F_RDLCK, 0)).expect("told");
    let told = (u64_at(&found, 0), u64_at(&found, 8), u32_at(&found, 16), u32_at(&found, 20));
    assert_eq!(told, (0, 9, libc::F_WRLCK.cast_unsigned(), 9));
    assert_eq!(set(1, (5, 9), libc::F_UNLCK), Ok(vec![]));
    assert_eq!(set(2, (9, 9), libc::F_RDLCK), Ok(vec![]));
    let flock = |owner, kind| ask(&server, Opcode::Setlk, file, lock(owner, (0, u64::MAX), kind, 1));
    assert_eq!(flock(3, libc::F_WRLCK), Ok(vec![]));
    assert_eq!(flock(4, libc::F_WRLCK), Err(libc::EAGAIN));
    ask(&server, Opcode::Flush, file, Arguments::default().u64s(&[0, 0, 1])).expect("closed");
    assert_eq!(set(2, (0, 4), libc::F_WRLCK), Ok(vec![]));
    assert_eq!(flock(4, libc::F_WRLCK), Err(libc::EAGAIN), "another descriptor is open");
    ask(&server, Opcode::Release, file, Arguments::default().u64s(&[0]).u32s(&[0, 2]).u64s(&[3])).expect("closed");
    assert_eq!(flock(4, libc::F_WRLCK), Ok(vec![]));
}

#[test]
fn who_waits_for_a_lock_is_answered_when_it_is_free_or_a_signal_comes() {
    let (server, sent) = lock_server();
    let file = make(&server, ROOT, "file");
    let set = |opcode, owner, kind| answer(&server, &message(opcode, file, 0, &lock(owner, (0, 0), kind, 0).0));
    let sent = || std::os::unix::fs::FileExt::read_at(&sent, &mut [0; 99], 0).expect("read");
    assert_eq!(set(Opcode::Setlk, 1, libc::F_WRLCK), Some(Ok(vec![])));
    assert_eq!(set(Opcode::Setlkw, 2, libc::F_WRLCK), None);
    assert_eq!(sent(), 0);
    assert_eq!(set(Opcode::Setlk, 1, libc::F_UNLCK), Some(Ok(vec![])));
    assert_eq!(sent(), 16, "the reply");
    assert_eq!(set(Opcode::Setlkw, 3, libc::F_WRLCK), None);
    let interrupt = message(Opcode::Interrupt, 0, 0, &77u64.to_ne_bytes());
    assert_eq!(answer(&server, &interrupt), None);
    assert_eq!(sent(), 32, "and the one that it was interrupted");
    assert_eq!(answer(&server, &interrupt), None);
    assert_eq!(sent(), 32);
    assert_eq!(set(Opcode::Setlkw, 2, libc::F_UNLCK), Some(Ok(vec![])));
    assert_eq!(set(Opcode::Setlkw, 3, libc::F_WRLCK), Some(Ok(vec![])), "it no longer waited");
}

/// One user took all locks of the mount.
#[test]
fn a_user_who_has_too_many_locks_leaves_other_users_and_the_super_user_theirs() {
    let (server, _) = lock_server();
    let file = make(&server, ROOT, "file");
    let set = |uid: u32, at| {
        let lock = lock(u64::from(uid), (at, at), libc::F_RDLCK, 0);
        answer(&server, &message(Opcode::Setlk, file, uid, &lock.0)).expect("a reply")
    };
    assert_eq!((0..1 << 16).take_while(|at| set(1000, 2 * at) == Ok(vec![])).count(), 1 << 14);
    assert_eq!(set(1000, 1 << 20), Err(libc::ENOLCK));
    assert_eq!((set(1001, 1 << 20), set(0, 1 << 20)), (Ok(vec![]), Ok(vec![])));
}

#[test]
fn a_mount_that_ends_holds_no_locks() {
    let (server, _) = lock_server();
    let file = make(&server, ROOT, "file");
    let vfs = server.vfs.clone();
    ask(&server, Opcode::Setlk, file, lock(1, (0, 0), libc::F_WRLCK, 0)).expect("locked");
    drop(server);
    let options = SessionOptions { locks: LockKeeper::Volume, ..SessionOptions::default() };
    let server = Server::new(vfs, options, None, None);
    ask(&server, Opcode::Setlk, file, lock(1, (0, 0), libc::F_WRLCK, 0)).expect("locked");
}

#[test]
fn a_missing_name_is_remembered_as_missing() {
    let server = server();
    let reply = ask(&server, Opcode::Lookup, ROOT, Arguments::default().name("nothing")).expect("an entry");
    assert_eq!((reply.len(), u64_at(&reply, 0)), (128, 0));
    assert!(u64_at(&reply, 16) > 3600, "for long");
}

#[test]
fn a_file_is_made_found_written_read_and_removed() {
    let server = server();
    let ino = make(&server, ROOT, "file");
    let found = ask(&server, Opcode::Lookup, ROOT, Arguments::default().name("file")).expect("found");
    assert_eq!((u64_at(&found, 0), u64_at(&found, 40)), (ino, ino));
    let mut write = Arguments::default().u64s(&[0, 3]).u32s(&[5, 0]).u64s(&[0]).u32s(&[0, 0]);
    write.0.extend_from_slice(b"hello");
    assert_eq!(ask(&server, Opcode::Write, ino, write), Ok(vec![5, 0, 0, 0, 0, 0, 0, 0]));
    let read = Arguments::default().u64s(&[0, 0]).u32s(&[100, 0]).u64s(&[0]).u32s(&[0, 0]);
    assert_eq!(ask(&server, Opcode::Read, ino, read), Ok(b"\0\0\0hello".to_vec()));
    assert_eq!(ask(&server, Opcode::Unlink, ROOT, Arguments::default().name("file")), Ok(vec![]));
    assert_eq!(server.vfs.stats().held_inodes, 1);
    let bytes = message(Opcode::Forget, ino, 0, &2u64.to_ne_bytes());
    assert_eq!(answer(&server, &bytes), None);
    assert_eq!(server.vfs.stats().held_inodes, 0);
    assert_eq!(ask(&server, Opcode::Getattr, ino, Arguments::default().u32s(&[0; 4])), Err(libc::ESTALE));
}

#[test]
fn a_listing_begins_with_the_dots_and_goes_on_anywhere() {
    let server = server();
    for i in 0..50 {
        make(&server, ROOT, &format!("file{i}"));
    }
    for opcode in [Opcode::Readdir, Opcode::Readdirplus] {
        for size in [512, 1000, 1 << 16] {
            let mut names = Vec::new();
            let mut offset = 0;
            loop {
                let page = list(&server, opcode, offset, size);
                let Some((_, next)) = page.last() else { break };
                offset = *next;
                names.extend(page.into_iter().map(|(name, _)| name));
            }
            let expected: Vec<String> =
                [".".into(), "..".into()].into_iter().chain((0..50).map(|i| format!("file{i}"))).collect();
            assert_eq!(names, expected, "{opcode:?} by {size}");
        }
        assert_eq!(list(&server, opcode, 1, 1 << 16)[0].0, "..");
        assert_eq!(list(&server, opcode, 2, 1 << 16)[0].0, "file0");
    }
}

#[test]
fn a_listing_with_attributes_holds_just_what_it_tells() {
    let server = server();
    for i in 0..20 {
        let ino = make(&server, ROOT, &format!("a name that takes some room {i}"));
        server.vfs.release(weft_vfs::Ino(ino), 1);
    }
    let told = list(&server, Opcode::Readdirplus, 2, 2000);
    assert!(told.len() > 3 && told.len() < 15);
    assert_eq!(server.vfs.stats().held_inodes, told.len() as u64);
}

#[test]
fn counters_are_an_attribute_of_the_root_alone_that_is_not_listed() {
    let server = server();
    let get = |ino, size: u32| {
        ask(&server, Opcode::Getxattr, ino, Arguments::default().u32s(&[size, 0]).name("user.weft.stats"))
    };
    let size = u32_at(&get(ROOT, 0).expect("a size"), 0);
    assert!(size > 100);
    let value: serde_json::Value = serde_json::from_slice(&get(ROOT, 65536).expect("a value")).expect("JSON");
    assert_eq!(value["transport"], "device");
    assert_eq!(value["requests"]["getxattr"], 1);
    assert_eq!(value["volume"]["inodes_used"], 1);
    assert_eq!(get(ROOT, 10), Err(libc::ERANGE));
    let file = make(&server, ROOT, "file");
    assert_eq!(get(file, 0), Err(libc::ENODATA));
    assert_eq!(ask(&server, Opcode::Listxattr, ROOT, Arguments::default().u32s(&[100, 0])), Ok(vec![]));
}

#[test]
fn trusted_attributes_are_listed_for_root_alone() {
    let server = server();
    let ino = make(&server, ROOT, "file");
    for name in ["trusted.a", "user.b"] {
        server.vfs.set_xattr(weft_vfs::Ino(ino), name.as_bytes(), b"1", SetXattr::Any, false).expect("set");
    }
    let arguments = Arguments::default().u32s(&[100, 0]).0;
    let listed = |uid| answer(&server, &message(Opcode::Listxattr, ino, uid, &arguments)).expect("a reply");
    assert_eq!(listed(0), Ok(b"trusted.a\0user.b\0".to_vec()));
    assert_eq!(listed(1000), Ok(b"user.b\0".to_vec()));
}

#[test]
fn an_unnamed_file_is_open_and_held_once() {
    let server = server();
    let arguments = Arguments::default().u32s(&[0, libc::S_IFREG | 0o600, 0, 0]).name("");
    let reply = ask(&server, Opcode::Tmpfile, ROOT, arguments).expect("made");
    assert_eq!(reply.len(), 128 + 16);
    assert_eq!(server.vfs.stats().held_inodes, 1);
}

#[test]
fn opens_are_left_to_the_kernel() {
    let server = server();
    let ino = make(&server, ROOT, "file");
    for opcode in [Opcode::Open, Opcode::Opendir, Opcode::Flush, Opcode::Create, Opcode::Access] {
        assert_eq!(ask(&server, opcode, ino, Arguments::default().u64s(&[0; 4])), Err(libc::ENOSYS), "{opcode:?}");
    }
    for opcode in [Opcode::Release, Opcode::Releasedir] {
        assert_eq!(ask(&server, opcode, ino, Arguments::default().u64s(&[0; 4])), Ok(vec![]), "{opcode:?}");
    }
}

fn shake(major: u32, minor: u32, flags: u64, via: Via) -> Answer {
    let low = u32::try_from(flags & u64::from(u32::MAX)).expect("masked");
    let high = u32::try_from(flags >> 32).expect("shifted");
    let arguments = Arguments::default().u32s(&[major, minor, 131_072, low, high]).0;
    let bytes = message(Opcode::Init, 0, 0, &arguments);
    let offer = Offer::parse(Request::parse(&bytes).expect("whole").body).expect("whole");
    let mut reply = Reply::default();
    reply.begin();
    let outcome = server().init(&offer, via, &mut reply);
    reply.finish(77, outcome.map_or_else(|failure| failure.errno(), |()| 0));
    check(&reply)
}

#[test]
fn only_what_the_kernel_offers_is_agreed_on() {
    let agreed = |reply: &[u8]| u64::from(u32_at(reply, 12)) | u64::from(u32_at(reply, 32)) << 32;
    let all = shake(7, 45, u64::MAX, Via::Rings).expect("agreed");
    assert_eq!(all.len(), 64);
    assert_ne!(agreed(&all) & init::OVER_IO_URING, 0);
    assert_eq!(agreed(&all) & (1 << 16), 0, "no write-back cache: it would reorder what is acknowledged");
    let device = shake(7, 45, u64::MAX, Via::Device).expect("agreed");
    assert_eq!(agreed(&device) & init::OVER_IO_URING, 0);
    let little = init::NO_OPEN_SUPPORT | init::MAX_PAGES;
    assert_eq!(agreed(&shake(7, 31, little, Via::Device).expect("agreed")), little);
}

#[test]
fn an_older_protocol_is_refused_and_a_newer_one_asked_to_speak_this() {
    assert_eq!(shake(7, 30, 0, Via::Device), Err(libc::EPROTO));
    let later = shake(8, 1, 0, Via::Device).expect("an answer");
    assert_eq!((u32_at(&later, 0), u32_at(&later, 4)), (7, 45));
}

proptest! {
    #[test]
    fn no_bytes_at_all_make_it_panic(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
        answer_any(&server(), &bytes);
    }

    #[test]
    fn no_arguments_of_any_opcode_make_it_panic(
        requests in proptest::collection::vec(
            (0u32..64, 0u64..24, proptest::collection::vec(prop_oneof![Just(0u8), Just(b'a'), any::<u8>()], 0..160)),
            1..20,
        ),
    ) {
        let server = server();
        make(&server, ROOT, "a");
        for (opcode, ino, arguments) in requests {
            let mut bytes = message(Opcode::Lookup, ino, 0, &arguments);
            bytes[4..8].copy_from_slice(&opcode.to_ne_bytes());
            answer_any(&server, &bytes);
        }
    }

    #[test]
    fn a_request_in_parts_is_answered_like_one_in_one_piece(name in "[a-c]{1,3}", mode in 0u32..0o777) {
        let arguments = Arguments::default().u32s(&[libc::S_IFREG | mode, 0, 0, 0]).name(&name).0;
        let bytes = message(Opcode::Mknod, ROOT, 0, &arguments);
        let mut fixed = [0; 128];
        fixed[..16].copy_from_slice(&arguments[..16]);
        let mut reply = Reply::default();
        let parts = Request::of_parts(&bytes[..40], &fixed, &arguments[16..]).expect("whole");
        server().serve(&parts, &mut reply);
        prop_assert_eq!(check(&reply), answer(&server(), &bytes).expect("a reply"));
    }
}

fn answer_any(server: &Server, bytes: &[u8]) {
    let Some(request) = Request::parse(bytes) else { return };
    let mut reply = Reply::default();
    server.serve(&request, &mut reply);
    if reply.is_wanted() {
        assert_eq!(u32_at(reply.head(), 0) as usize, reply.head().len() + reply.data().len());
    }
    // A read may have any size: what is held ready for it must stay within bounds.
    assert!(reply.data().len() <= crate::protocol::DATA_BYTES_MAX);
}

/// open(2) makes a file where the kernel finds none; one that came meanwhile is opened.
#[test]
fn who_makes_a_file_that_came_meanwhile_is_told_to_look_again() {
    let (server, _) = lock_server();
    make(&server, ROOT, "name");
    let arguments = |mode| Arguments::default().u32s(&[mode | 0o644, 0, 0, 0]).name("name");
    assert_eq!(ask(&server, Opcode::Mknod, ROOT, arguments(libc::S_IFREG)), Err(libc::ESTALE));
    assert_eq!(ask(&server, Opcode::Mknod, ROOT, arguments(libc::S_IFIFO)), Err(libc::EEXIST));
    let directory = Arguments::default().u32s(&[0o755, 0]).name("name");
    assert_eq!(ask(&server, Opcode::Mkdir, ROOT, directory), Err(libc::EEXIST));
}
