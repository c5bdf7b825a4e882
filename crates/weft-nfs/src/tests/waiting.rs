//! Calls that wait for networks, which may never end.

use super::client::{Client, arguments};
use super::{Served, serve, serve_with};
use crate::programs::NFS;
use crate::rpc::Procedure;
use crate::server::waits::{LATE_AFTER_LOOKS, UNASKED_LOOKS};
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::time::{Duration, Instant};
use weft_links::{Exported, LinkDefinition, LinkOptions, WithLinks};
use weft_vfs::{Caller, FileId, Ino, Kind, MakeNode, SetAttributes, Stats};

const JUKEBOX: u32 = 10008;
const READ: Procedure = Procedure { program: NFS, version: 3, number: 6 };
/// Time after which something is wrong.
const TOO_LONG: Duration = Duration::from_secs(30);

fn file(served: &Served, name: &str, size: u64, text: &[u8]) {
    let node = MakeNode { kind: Kind::File, permissions: 0o644, umask: 0, rdev: 0 };
    let ino = served.vfs.make(Caller::ROOT, Ino::ROOT, name.as_bytes(), node).expect("made").ino;
    served.vfs.write(ino, 0, text, false).expect("written");
    let size = SetAttributes { size: Some(size), ..SetAttributes::default() };
    served.vfs.set_attributes(ino, size).expect("set");
}

/// Makes a link. Returns its handle: looking it up would compute its length.
fn link(served: &Served, name: &str, target: &str, network: &str) -> Vec<u8> {
    let definition = LinkDefinition::new(vec![target.into()], network);
    let made =
        served.vfs.links().expect("links").make_link(Caller::ROOT, Ino::ROOT, name.as_bytes(), 0o644, &definition);
    served.server.handle(FileId::from(&made.expect("made")))
}

fn until(served: &Served, is: impl Fn(&Stats) -> bool) {
    let began = Instant::now();
    while !is(&served.vfs.stats()) {
        assert!(began.elapsed() < TOO_LONG, "{:?}", served.vfs.stats());
        std::thread::yield_now();
    }
}

fn computing(served: &Served, requests: u64) {
    until(served, |stats| stats.requests_computing == requests);
}

/// Asks for the first bytes of file `handle`, and waits for nothing.
fn ask(client: &mut Client, handle: &[u8]) {
    client.ask(
        READ,
        arguments(|to| {
            to.opaque(handle);
            to.u64(0);
            to.u32(64);
        }),
    );
}

/// A connection as user `uid`, which waits for no answer for ever.
fn connect(served: &Served, uid: u32) -> Client {
    let client = served.client("/").as_user(uid, &[]);
    client.stream.set_read_timeout(Some(TOO_LONG)).expect("a socket");
    client
}

/// Returns handles of so many links that compute for ever.
fn endless(served: &Served, count: usize) -> Vec<Vec<u8>> {
    file(served, "huge", 1000 << 40, b"");
    (0..count).map(|number| link(served, &format!("endless {number}"), "/huge", "sha256")).collect()
}

/// One user's calls took all threads, for all clients, until the server was started again.
#[test]
fn a_users_computations_leave_others_threads_and_end_with_the_connection() {
    let served = serve("/ *(no_root_squash)");
    file(&served, "words", 11, b"some words\n");
    link(&served, "counted", "/words", "wc -w");
    let handles = endless(&served, 100);
    let mut greedy = connect(&served, 1000);
    handles.iter().for_each(|handle| ask(&mut greedy, handle));
    for _ in 0..60 {
        assert_eq!(greedy.answered_any().status, JUKEBOX, "it has five eighths of 64 already");
    }
    computing(&served, 40);
    // Other users of the same host have an eighth more.
    let mut same = connect(&served, 1001);
    handles.iter().for_each(|handle| ask(&mut same, handle));
    for _ in 0..92 {
        assert_eq!(same.answered_any().status, JUKEBOX);
    }
    computing(&served, 48);
    drop(same);
    computing(&served, 40);
    let mut other = connect(&served, 1002);
    let root = other.root.clone();
    let counted = other.lookup(&root, "counted").expect("there");
    assert_eq!(other.read(&counted, 0, 9), Ok((b"2\n".to_vec(), true)));
    assert_eq!(served.vfs.stats().requests_computing, 40);
    drop(greedy);
    computing(&served, 0);
}

#[test]
fn a_call_that_takes_long_is_put_off_goes_on_and_ends_when_nobody_asks_again() {
    let served = serve("/ *(no_root_squash)");
    let handles = endless(&served, 1);
    let mut client = connect(&served, 1000);
    let put_off = |client: &mut Client| {
        ask(client, &handles[0]);
        let root = client.root.clone();
        assert!(client.getattr(&root).is_ok(), "the call before was taken");
        (0..LATE_AFTER_LOOKS).for_each(|_| served.server.look());
        assert_eq!(client.answered_any().status, JUKEBOX);
    };
    put_off(&mut client);
    computing(&served, 1);
    let interrupted = served.vfs.stats().computing_interrupted;
    put_off(&mut client);
    let stats = served.vfs.stats();
    assert_eq!((stats.requests_computing, stats.computing_interrupted), (1, interrupted));
    (0..UNASKED_LOOKS).for_each(|_| served.server.look());
    computing(&served, 0);
    // A connection that was told to come again is waited for, and no longer than it is there.
    put_off(&mut client);
    drop(client);
    computing(&served, 0);
}

#[test]
fn whoever_asks_again_gets_what_was_computed_meanwhile() {
    if std::fs::metadata("/proc/self").expect("there").uid() != 0 {
        eprintln!("skipped: only root can become other users");
        return;
    }
    let options = LinkOptions { exported: Exported::Everybody, ..LinkOptions::default() };
    let served = serve_with("/ *(no_root_squash)", options);
    file(&served, "words", 4, b"abc\n");
    // A command has a /tmp of its own.
    let outside = tempfile::tempdir_in("/run").expect("a directory");
    std::fs::set_permissions(outside.path(), std::fs::Permissions::from_mode(0o755)).expect("set");
    let go = outside.path().join("go");
    let command = format!("exec 'until test -e {}; do sleep 0.02; done; cat' | upper", go.display());
    let handle = link(&served, "slow", "/words", &command);
    let mut client = connect(&served, 1000);
    ask(&mut client, &handle);
    computing(&served, 1);
    (0..LATE_AFTER_LOOKS).for_each(|_| served.server.look());
    assert_eq!(client.answered_any().status, JUKEBOX);
    ask(&mut client, &handle);
    std::fs::write(&go, "").expect("written");
    let mut answer = client.answered_any();
    assert_eq!(answer.status, 0);
    answer.optional_attributes().expect("told");
    assert_eq!((answer.u32(), answer.bool(), answer.bytes()), (4, true, b"ABC\n".to_vec()));
    assert_eq!(served.vfs.stats().computing_interrupted, 0);
}
