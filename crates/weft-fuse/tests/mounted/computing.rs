//! Networks that would compute for ever: a program that waits for one can be killed, leaves others
//! their threads, and does not hold up the end of the mount.

use crate::fixture::{Mounted, on_each_transport};
use rustix::fs::{Mode, OFlags};
use std::fs::{self, File};
use std::io::Seek;
use std::os::unix::fs::MetadataExt;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::channel;
use std::thread;
use std::time::Duration;
use weft_links::{LinkDefinition, Pushed, Scope, WithLinks};
use weft_vfs::{Caller, Ino, SetAttributes, Stats};

/// A test that fails does so instead of hanging.
const LONG: Duration = Duration::from_secs(20);

/// Makes a link to a file of 1000 TiB, all of it a hole, that is computed from all of that.
fn endless(mounted: &Mounted, name: &str) {
    let file = File::options().create(true).write(true).truncate(false).open(mounted.path("file")).expect("made");
    file.set_len(1000 << 40).expect("a hole");
    link(mounted, name, "/file", "sha256");
}

fn link(mounted: &Mounted, name: &str, target: &str, network: &str) {
    let definition = LinkDefinition::new(vec![target.into()], network);
    mounted
        .vfs
        .links()
        .expect("links")
        .make_link(Caller::ROOT, Ino::ROOT, name.as_bytes(), 0o644, &definition)
        .expect("made");
}

fn reader(mounted: &Mounted, name: &str, user: u32) -> Child {
    let mut cat = Command::new("cat");
    cat.arg(mounted.path(name)).stdout(Stdio::null()).stderr(Stdio::null());
    cat.uid(user).spawn().expect("cat")
}

fn until(mounted: &Mounted, is: impl Fn(&Stats) -> bool) -> Stats {
    loop {
        let stats = mounted.vfs.stats();
        if is(&stats) {
            return stats;
        }
        thread::yield_now();
    }
}

#[test]
fn a_killed_reader_ends_and_so_does_what_it_alone_waited_for() {
    on_each_transport(|mounted| {
        endless(mounted, "link");
        endless(mounted, "same");
        let mut first = reader(mounted, "link", 0);
        until(mounted, |stats| stats.requests_computing == 1);
        let mut second = reader(mounted, "same", 0);
        until(mounted, |stats| stats.requests_computing == 2);
        // One reader computes, the other waits for that.
        for reader in [&mut second, &mut first] {
            reader.kill().expect("there");
            assert_eq!(reader.wait().expect("ended").signal(), Some(9));
        }
        let stats = until(mounted, |stats| stats.requests_computing == 0);
        assert!(stats.computing_interrupted >= 2 && stats.users_computing == 0, "{stats:?}");
    });
}

#[test]
fn a_users_computations_leave_others_their_threads() {
    on_each_transport(|mounted| {
        fs::set_permissions(mounted.root(), std::os::unix::fs::PermissionsExt::from_mode(0o777)).expect("set");
        fs::write(mounted.path("small"), "some words\n").expect("written");
        link(mounted, "counted", "/small", "wc -w");
        let names: Vec<_> = (0..48).map(|number| format!("link {number}")).collect();
        names.iter().for_each(|name| endless(mounted, name));
        let mut readers: Vec<_> = names.iter().map(|name| reader(mounted, name, 1000)).collect();
        // More than its share is refused, and not waited for.
        until(mounted, |stats| stats.computing_refused > 0 && stats.requests_computing + stats.computing_refused >= 48);
        assert_eq!(fs::read_to_string(mounted.path("counted")).expect("computed"), "2\n");
        fs::write(mounted.path("other"), "written").expect("written");
        assert_eq!(fs::read_dir(mounted.root()).expect("listed").count(), 4 + names.len());
        readers.iter_mut().for_each(|reader| reader.kill().expect("not waited for yet"));
        readers.iter_mut().for_each(|reader| assert!(!reader.wait().expect("ended").success()));
        until(mounted, |stats| stats.requests_computing == 0);
    });
}

#[test]
fn the_end_of_a_mount_waits_for_no_computation() {
    on_each_transport(|mounted| {
        endless(mounted, "link");
        let mut reader = reader(mounted, "link", 0);
        until(mounted, |stats| stats.requests_computing == 1);
        // In use, it stays; but programs that wait for the daemon are answered.
        let _ = rustix::mount::unmount(mounted.root(), rustix::mount::UnmountFlags::FORCE);
        assert!(!reader.wait().expect("ended").success());
        until(mounted, |stats| stats.requests_computing == 0);
    });
}

/// Makes the kernel read `name` by a computation without end, since `file` has grown outside of the
/// mount. The kernel then holds a page of the file locked, and sees a shorter length: the new one
/// is not known until it is computed.
fn held_page(mounted: &Mounted, name: &str, file: Ino) -> Child {
    let mut open = File::open(mounted.path(name)).expect("opened");
    let grown = SetAttributes { size: Some(1000 << 40), ..SetAttributes::default() };
    mounted.vfs.set_attributes(file, grown).expect("grown");
    loop {
        // It asks for no more than the length that the kernel knows, nor for attributes.
        let mut dd = Command::new("dd");
        dd.args(["bs=2", "count=1", "status=none"]).stdin(open.try_clone().expect("cloned"));
        let mut reader = dd.stdout(Stdio::null()).stderr(Stdio::null()).spawn().expect("dd");
        // A reader that the kernel still answered is of no use.
        while reader.try_wait().expect("a child").is_none() {
            if mounted.vfs.stats().requests_computing == 1 {
                return reader;
            }
            thread::yield_now();
        }
        open.rewind().expect("rewound");
    }
}

/// Does `work`, which ends although another program reads for ever.
fn in_time(mounted: &Mounted, what: &str, work: impl FnOnce() + Send) {
    let (done, is_done) = channel();
    thread::scope(|scope| {
        scope.spawn(move || {
            work();
            done.send(()).expect("heard");
        });
        if is_done.recv_timeout(LONG).is_err() {
            answer_all(mounted);
            panic!("{what} waits for what somebody reads");
        }
    });
    assert_eq!(mounted.vfs.stats().requests_computing, 1, "it is still read");
}

/// Makes the kernel answer all programs that wait for the daemon.
fn answer_all(mounted: &Mounted) {
    // A mount in use stays.
    let _ = rustix::mount::unmount(mounted.root(), rustix::mount::UnmountFlags::FORCE);
}

/// Attack: a program reads content that takes long to compute, and changes it outside of the mount.
/// The kernel would wait for that read wherever it learns of another length, with the directory
/// locked.
fn uses_a_directory_while(mounted: &Mounted, name: &str, file: Ino, node: Ino) {
    assert_eq!(fs::read_to_string(mounted.path(name)).expect("computed"), "2\n");
    // A name that the kernel has not seen yet.
    mounted.vfs.link(Caller::ROOT, node, Ino::ROOT, b"other name").expect("linked");
    let mut reader = held_page(mounted, name, file);
    in_time(mounted, "ls", || assert!(fs::read_dir(mounted.root()).expect("listed").count() > 1));
    in_time(mounted, "looking up a name", || {
        rustix::fs::open(mounted.path("other name"), OFlags::PATH, Mode::empty()).expect("found");
    });
    in_time(mounted, "mkdir", || fs::create_dir(mounted.path("new")).expect("made"));
    answer_all(mounted);
    assert!(!reader.wait().expect("ended").success());
    until(mounted, |stats| stats.requests_computing == 0);
}

fn small_file(mounted: &Mounted) -> Ino {
    fs::write(mounted.path("file"), "some words\n").expect("written");
    Ino(fs::metadata(mounted.path("file")).expect("attributes").ino())
}

#[test]
fn a_pushed_file_that_is_read_for_long_holds_up_nobody_who_uses_its_directory() {
    on_each_transport(|mounted| {
        let file = small_file(mounted);
        let pushed = Pushed { network: "wc -w".into(), code: Vec::new(), may_resize: true };
        mounted.vfs.links().expect("links").push(Caller::ROOT, file, Scope::Everybody, &pushed).expect("pushed");
        uses_a_directory_while(mounted, "file", file, file);
    });
}

#[test]
fn a_link_that_is_read_for_long_holds_up_nobody_who_uses_its_directory() {
    on_each_transport(|mounted| {
        let file = small_file(mounted);
        link(mounted, "link", "/file", "wc -w");
        let node = Ino(fs::symlink_metadata(mounted.path("link")).expect("attributes").ino());
        uses_a_directory_while(mounted, "link", file, node);
    });
}
