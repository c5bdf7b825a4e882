//! Networks that would compute for ever: whoever waits for one can be killed, leaves others their
//! threads, and does not hold up the end of the mount.

use crate::fixture::{Mounted, on_each_transport};
use std::fs::{self, File};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::process::{Child, Command, Stdio};
use std::thread;
use weft_vfs::{Caller, Ino, LinkDefinition, Stats};

/// Makes a link to a file of 1000 TiB, all of it a hole, that is computed from all of that.
fn endless(mounted: &Mounted, name: &str) {
    let file = File::options().create(true).write(true).truncate(false).open(mounted.path("file")).expect("made");
    file.set_len(1000 << 40).expect("a hole");
    link(mounted, name, "/file", "sha256");
}

fn link(mounted: &Mounted, name: &str, target: &str, network: &str) {
    let definition = LinkDefinition::new(vec![target.into()], network);
    mounted.vfs.make_link(Caller::ROOT, Ino::ROOT, name.as_bytes(), 0o644, &definition).expect("made");
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
        // One computes, the other one waits for that.
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
        // In use, it stays; but whoever waits for the daemon is answered.
        let _ = rustix::mount::unmount(mounted.root(), rustix::mount::UnmountFlags::FORCE);
        assert!(!reader.wait().expect("ended").success());
        until(mounted, |stats| stats.requests_computing == 0);
    });
}
