//! A daemon that sleeps past its lease: another one takes the volume, and the first one changes and
//! tells nothing until it has the volume again.

use super::{Writer, assert_numbered, schema, until};
use crate::place::{Place, write_synced};
use rustix::process::{Pid, Signal, kill_process, test_kill_process};
use std::fs::{self, File};
use std::os::unix::fs::symlink;
use std::path::Path;
use weft_testkit::Cluster;

/// A daemon that is stopped until this is dropped.
pub(super) struct Stopped(Pid);

impl Stopped {
    /// Stops the daemon of `m`.
    pub(super) fn new(place: &Place) -> Stopped {
        let pid = Pid::from_raw(place.daemon().cast_signed()).unwrap();
        kill_process(pid, Signal::STOP).unwrap();
        Stopped(pid)
    }
}

impl Drop for Stopped {
    fn drop(&mut self) {
        let _ = kill_process(self.0, Signal::CONT);
    }
}

/// Makes a volume, and mounts it at `m` with a lease of a second; `m2` is there, too.
fn mounted() -> Option<(Place, String)> {
    let place = Place::to_mount()?;
    let url = Cluster::shared().url();
    place.weft(&["init", &url]).well();
    place.directory("m");
    place.directory("m2");
    place.mount_with(&url, &["--lease", "1"]);
    Some((place, url))
}

/// Mounts the volume at `m2` as soon as its lease has expired.
#[track_caller]
pub(super) fn take(place: &Place, url: &str) {
    place.weft(&["mount", "--wait", "60", "--log", "log2", url, "m2"]).well();
}

/// True if nobody can be asked at `m`.
fn is_gone(place: &Place) -> bool {
    place.weft(&["stats", "m"]).code != 0
}

fn is_running(pid: Pid) -> bool {
    test_kill_process(pid).is_ok()
}

pub(super) fn write_and_sync(path: &Path, content: &str) -> std::io::Result<()> {
    fs::write(path, content)?;
    File::open(path)?.sync_all()
}

#[test]
fn a_daemon_that_lost_the_volume_changes_and_tells_nothing_until_it_has_it_again() {
    let Some((place, url)) = mounted() else { return };
    let path = |name: &str| place.path("m").join(name);
    write_synced(&path("fenced"), b"old");
    symlink("fenced", path("named")).unwrap();
    // The kernel has it all in its caches from now on.
    assert_eq!(fs::read(path("fenced")).unwrap(), b"old");
    assert_eq!(fs::read_dir(path("")).unwrap().count(), 2);
    fs::read_link(path("named")).unwrap();
    fs::metadata(path("missing")).unwrap_err();

    let stopped = Stopped::new(&place);
    let first = stopped.0;
    take(&place, &url);
    write_synced(&place.path("m2/fenced"), b"new");
    drop(stopped);
    write_and_sync(&path("fenced"), "late").unwrap_err();
    until("it still answers", || is_gone(&place));
    fs::read(path("fenced")).unwrap_err();
    fs::read_dir(path("")).unwrap_err();
    fs::read_link(path("named")).unwrap_err();
    assert_eq!(fs::metadata(path("missing")).unwrap_err().raw_os_error(), Some(libc::ENOTCONN));
    assert_eq!(fs::read(place.path("m2/fenced")).unwrap(), b"new");

    place.weft(&["umount", "m2"]).well();
    until("it has not got it again", || fs::read(path("fenced")).is_ok_and(|content| content == b"new"));
    let log = fs::read_to_string(place.path("log")).unwrap();
    assert!(log.contains("was taken over") && log.contains("waiting"), "{log}");
    assert_eq!(place.daemon().cast_signed(), first.as_raw_pid());
    write_and_sync(&path("fenced"), "again").unwrap();
    place.umount();
    place.weft(&["check", "--read-data", &url]).well();
}

#[test]
fn a_daemon_that_waits_for_its_volume_goes_on_until_it_is_unmounted() {
    let Some((place, url)) = mounted() else { return };
    write_synced(&place.path("m/file"), b"kept");
    let stopped = Stopped::new(&place);
    let first = stopped.0;
    take(&place, &url);
    drop(stopped);
    until("it still answers", || is_gone(&place));
    assert!(is_running(first));
    // It says that the daemon had lost it.
    assert_eq!(place.weft(&["umount", "m"]).code, 0);
    until("it goes on", || !is_running(first));
    assert_eq!(fs::read(place.path("m2/file")).unwrap(), b"kept");
    place.weft(&["umount", "m2"]).well();
}

#[test]
fn a_daemon_that_waits_for_a_volume_ends_if_another_one_has_its_name() {
    let Some((place, url)) = mounted() else { return };
    let cluster = Cluster::shared();
    let other = cluster.url();
    place.weft(&["init", &other]).well();
    let stopped = Stopped::new(&place);
    let first = stopped.0;
    take(&place, &url);
    drop(stopped);
    until("it still answers", || is_gone(&place));
    let (own, name) = (schema(&url), schema(&other));
    cluster.run(&format!("ALTER SCHEMA {own} RENAME TO {own}_before; ALTER SCHEMA {name} RENAME TO {own}"));
    until("it goes on", || !is_running(first));
    let log = fs::read_to_string(place.path("log")).unwrap();
    assert!(log.contains("is another volume"), "{log}");
    place.weft(&["umount", "--lazy", "m2"]);
}

#[test]
fn a_mount_that_waits_ends_with_the_command_that_waits_for_it() {
    let Some((place, url)) = mounted() else { return };
    // The process that waits for the volume: in the foreground the command itself.
    let waiting = |front: u32| {
        let children = fs::read_to_string(format!("/proc/{front}/task/{front}/children")).unwrap();
        children.split_whitespace().next().map(|pid| Pid::from_raw(pid.parse().unwrap()).unwrap())
    };
    for is_background in [true, false] {
        let arguments: &[&str] = if is_background { &[] } else { &["--foreground"] };
        let arguments = [&["mount", "--wait", "600", "--log", "log2"], arguments, &[&url, "m2"]].concat();
        let mut front = place.command(&arguments).spawn().unwrap();
        if is_background {
            until("no daemon has begun", || waiting(front.id()).is_some());
        }
        let daemon = waiting(front.id()).filter(|_| is_background);
        kill_process(Pid::from_child(&front), Signal::TERM).unwrap();
        front.wait().unwrap();
        until("it still waits", || daemon.is_none_or(|daemon| !is_running(daemon)));
    }
    assert!(!place.is_mounted("m2"));
    place.umount();
}

#[test]
fn what_a_daemon_synced_under_load_is_there_for_the_next_and_nothing_of_it_comes_after() {
    let Some((place, url)) = mounted() else { return };
    let writer = Writer::start(place.path("m/overslept"), 100_000);
    let synced = writer.await_synced(10);
    let stopped = Stopped::new(&place);
    take(&place, &url);
    assert_numbered(&place.path("m2/overslept"), writer.synced(synced));
    let listed = || {
        let entries = fs::read_dir(place.path("m2/overslept")).unwrap().map(|entry| entry.unwrap().file_name());
        let mut names: Vec<_> = entries.collect();
        names.sort();
        names
    };
    let before = listed();
    Writer::start(place.path("m2/after"), 50).end().unwrap();
    drop(stopped);
    until("it still answers", || is_gone(&place));
    writer.end().unwrap_err();
    assert_eq!(listed(), before);
    assert_numbered(&place.path("m2/after"), 50);
    place.weft(&["umount", "m2"]).well();
    until("it has not got it again", || place.path("m/after/49").exists());
    assert_numbered(&place.path("m/after"), 50);
    place.umount();
    place.weft(&["check", "--read-data", &url]).well();
}
