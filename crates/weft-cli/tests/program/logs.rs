//! The log of a daemon: its lines, and SIGHUP, which has it opened again.

use crate::place::{Place, Said};
use regex::Regex;
use rustix::process::{Pid, Signal, kill_process};
use std::fs;
use std::io::{BufRead, BufReader};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// Longest wait for an action that a daemon takes by itself.
const SOON: Duration = Duration::from_secs(60);

#[track_caller]
fn await_that(what: &str, is_so: impl Fn() -> bool) {
    let begun = Instant::now();
    while !is_so() {
        assert!(begun.elapsed() < SOON, "{what}");
        std::thread::yield_now();
    }
}

/// Sends SIGHUP to the daemon of `m`.
fn hang_up(place: &Place) {
    kill_process(Pid::from_raw(place.daemon().cast_signed()).unwrap(), Signal::HUP).unwrap();
}

/// Asserts that each line of the log at `path` has a time, a level and a target, and that there is
/// one of `level` that holds `words`.
#[track_caller]
fn assert_said(path: &Path, level: &str, words: &str) {
    let log = fs::read_to_string(path).unwrap();
    let line = r"^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z (ERROR|WARN|INFO) weft(::\w+)*(_\w+(::\w+)*)?: .";
    let line = Regex::new(line).unwrap();
    assert!(log.lines().all(|told| line.is_match(told)), "{log}");
    let told = |told: &str| told.contains(&format!(" {level} weft")) && told.contains(words);
    assert!(log.lines().any(told), "no {level} '{words}' in: {log}");
}

#[test]
fn a_hang_up_has_the_log_opened_again_and_the_mount_lives_on() {
    let Some(place) = Place::to_mount() else { return };
    let directory = place.mounted();
    let (log, pid) = (place.path("v/weft.log"), place.daemon());
    fs::write(directory.join("file"), "kept").unwrap();
    fs::rename(&log, place.path("v/weft.log.1")).unwrap();
    hang_up(&place);
    await_that("it is made anew", || log.exists());
    assert_eq!(std::os::unix::fs::MetadataExt::mode(&log.metadata().unwrap()) & 0o7777, 0o600);
    // A failure to open is logged where messages went before.
    fs::rename(&log, place.path("v/weft.log.2")).unwrap();
    fs::create_dir(&log).unwrap();
    hang_up(&place);
    let before = place.path("v/weft.log.2");
    await_that("it is told", || fs::read_to_string(&before).unwrap().ends_with("from before\n"));
    assert_said(&before, "ERROR", "weft.log again: Is a directory");
    fs::remove_dir(&log).unwrap();
    // Nor is a link followed.
    fs::write(place.path("victim"), "").unwrap();
    std::os::unix::fs::symlink(place.path("victim"), &log).unwrap();
    hang_up(&place);
    await_that("it is refused", || fs::read_to_string(&before).unwrap().lines().count() > 1);
    fs::remove_file(&log).unwrap();
    hang_up(&place);
    await_that("it is made anew", || log.exists());
    assert_eq!(fs::read_to_string(place.path("victim")).unwrap(), "");
    assert_eq!((place.daemon(), fs::read_to_string(directory.join("file")).unwrap().as_str()), (pid, "kept"));
    place.umount();
}

#[test]
fn what_a_mount_said_when_it_began_is_in_its_log_with_time_level_and_target() {
    let Some(place) = Place::to_mount() else { return };
    place.weft(&["init", "v"]).well();
    place.directory("m");
    let open = std::os::unix::fs::PermissionsExt::from_mode(0o644);
    fs::set_permissions(place.path("v/meta.sqlite"), open).unwrap();
    let said = place.weft(&["mount", "v", "m"]);
    assert!(said.code == 0 && said.err.starts_with("weft: "), "{said:?}");
    assert_said(&place.path("v/weft.log"), "WARN", "closed to other users");
    place.umount();
}

/// A server of `v` in the foreground, once it serves.
fn serving(mut command: Command) -> Child {
    let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines().map(Result::unwrap);
    assert!(lines.next().unwrap().starts_with("serving ") && lines.next().is_some());
    child
}

/// A command in a session of its own, whose terminal is `terminal`.
fn in_session(place: &Place, terminal: Option<OwnedFd>) -> Command {
    let mut command = place.command(&["serve", "v", "--nfs", "127.0.0.1:0"]);
    let begin = move || {
        rustix::process::setsid()?;
        if let Some(terminal) = &terminal {
            // SAFETY: the descriptor is open, and the call takes no pointer.
            let taken = unsafe { libc::ioctl(terminal.as_raw_fd(), libc::TIOCSCTTY, 0) };
            if taken != 0 {
                return Err(std::io::Error::last_os_error());
            }
        }
        Ok(())
    };
    // SAFETY: it makes system calls and nothing else.
    unsafe { command.pre_exec(begin) };
    command
}

#[test]
fn a_hang_up_ends_a_server_in_the_foreground_of_a_terminal_alone() {
    let place = Place::new();
    place.weft(&["init", "v"]).well();
    let server = serving(in_session(&place, None));
    let pid = Pid::from_child(&server);
    kill_process(pid, Signal::HUP).unwrap();
    // They come one after the other.
    kill_process(pid, Signal::TERM).unwrap();
    let said: Said = server.wait_with_output().unwrap().into();
    said.served_well();
    let (mut master, mut terminal) = (-1, -1);
    let none = std::ptr::null_mut();
    // SAFETY: the pointers are to locals; no name, settings or size are asked for or given.
    let opened = unsafe { libc::openpty(&raw mut master, &raw mut terminal, none, none.cast(), none.cast()) };
    assert_eq!(opened, 0);
    // SAFETY: the call opened both for this process alone.
    let (master, terminal) = unsafe { (OwnedFd::from_raw_fd(master), OwnedFd::from_raw_fd(terminal)) };
    rustix::io::fcntl_setfd(&master, rustix::io::FdFlags::CLOEXEC).unwrap();
    let server = serving(in_session(&place, Some(terminal)));
    drop(master);
    let said: Said = server.wait_with_output().unwrap().into();
    said.served_well();
}
