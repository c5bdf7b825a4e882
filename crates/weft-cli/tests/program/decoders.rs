//! Decoders of a mount and of an ordinary user: processes that end one by one, and all with what
//! began them.

use crate::place::{Place, Said, is_root};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, PidfdFlags, Resource, Rlimit, Signal, kill_process, pidfd_open, setrlimit};
use std::fs;
use std::io::Write;
use std::os::fd::OwnedFd;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::thread::yield_now;
use std::time::{Duration, Instant};

/// Returns a field of the kernel's status of process `pid`.
fn status(pid: Pid, field: &str) -> Option<String> {
    let status = fs::read_to_string(format!("/proc/{}/status", pid.as_raw_pid())).ok()?;
    status.lines().find_map(|line| Some(line.strip_prefix(field)?.strip_prefix(':')?.trim().to_owned()))
}

/// Processes that began at `pid`.
fn children(pid: Pid) -> Vec<Pid> {
    let number = |entry: std::io::Result<fs::DirEntry>| entry.ok()?.file_name().to_str()?.parse().ok();
    let all = fs::read_dir("/proc").unwrap().filter_map(number).filter_map(Pid::from_raw);
    let parent = pid.as_raw_pid().to_string();
    all.filter(|child| status(*child, "PPid").as_ref() == Some(&parent)).collect()
}

/// Waits for what `look` finds, which is soon there.
fn soon<T>(look: impl Fn() -> Option<T>) -> T {
    let begun = Instant::now();
    loop {
        if let Some(found) = look() {
            return found;
        }
        assert!(begun.elapsed() < Duration::from_secs(20), "it never is");
        yield_now();
    }
}

/// The process that decoders of `parent` come from.
fn nursery(parent: Pid) -> Pid {
    let words = |pid: &Pid| fs::read(format!("/proc/{}/cmdline", pid.as_raw_pid())).unwrap_or_default();
    let is_it = |pid: &Pid| words(pid).windows(14).any(|part| part == b"decode-streams");
    soon(|| children(parent).into_iter().find(is_it))
}

/// Returns the decoders that `nursery` has started, once there are some.
fn decoders(nursery: Pid) -> Vec<Pid> {
    soon(|| Some(children(nursery)).filter(|decoders| !decoders.is_empty()))
}

fn signal(processes: &[Pid], signal: Signal) {
    for process in processes {
        // It may have ended.
        let _ = kill_process(*process, signal);
    }
}

/// Compressed text, another one for each number.
fn packed(place: &Place, number: usize) -> (Vec<u8>, Vec<u8>) {
    let text = format!("a line of file {number}\n").repeat(5000).into_bytes();
    let mut weft = place.command(&["run", "--network", "zstd"]);
    let mut weft = weft.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    weft.stdin.take().unwrap().write_all(&text).unwrap();
    (weft.wait_with_output().unwrap().stdout, text)
}

/// Begins to read `link`, which waits for a decoder.
fn reader(place: &Place, link: &Path) -> Child {
    let mut reader = Command::new("cat");
    let child = reader.arg(link).stdout(Stdio::piped()).stderr(Stdio::piped()).env("LC_ALL", "C").spawn().unwrap();
    let computing = || place.weft(&["stats", "--json", "m"]).json()["volume"]["requests_computing"].as_u64();
    soon(|| computing().filter(|count| *count > 0));
    child
}

#[test]
fn a_decoder_that_is_killed_or_hangs_holds_up_nobody_and_all_end_with_the_mount() {
    let Some(place) = Place::to_mount() else { return };
    let directory = place.mounted();
    let texts: Vec<Vec<u8>> = (0..3)
        .map(|number| {
            let (packed, text) = packed(&place, number);
            fs::write(directory.join(format!("packed {number}")), packed).unwrap();
            let (file, link) = (format!("m/packed {number}"), format!("m/link {number}"));
            assert_eq!(place.weft(&["link", &file, &link, "-n", "zstd -d"]).code, 0);
            text
        })
        .collect();
    let link = |number: usize| directory.join(format!("link {number}"));
    assert!(fs::read(link(0)).unwrap() == texts[0]);
    let daemon = Pid::from_raw(place.daemon().cast_signed()).unwrap();
    let nursery = nursery(daemon);
    // The next stream is for the one that waits, in whose middle it is then.
    let stopped = decoders(nursery);
    signal(&stopped, Signal::STOP);
    let killed = reader(&place, &link(1));
    signal(&stopped, Signal::KILL);
    let said = Said::from(killed.wait_with_output().unwrap());
    // Even if a decoder starts again meanwhile, no program gets a part for the whole.
    let is_told = said.code == 1 && said.err.contains("Input/output error");
    assert!(is_told || said.code == 0 && said.out.as_bytes() == texts[1], "{said:?}");
    let read = soon(|| fs::read(link(1)).ok());
    assert!(read == texts[1], "{}", read.len());
    // Unmounting waits for no decoder.
    let stopped = decoders(nursery);
    signal(&stopped, Signal::STOP);
    let all: Vec<OwnedFd> =
        stopped.iter().chain([&nursery]).map(|pid| pidfd_open(*pid, PidfdFlags::empty()).unwrap()).collect();
    let interrupted = reader(&place, &link(2));
    place.umount();
    assert!(!interrupted.wait_with_output().unwrap().status.success());
    let time = Timespec { tv_sec: 20, tv_nsec: 0 };
    assert!(all.iter().all(|process| poll(&mut [PollFd::new(process, PollFlags::IN)], Some(&time)) == Ok(1)));
}

#[test]
fn an_ordinary_user_has_confined_decoders_too_and_none_where_there_can_be_no_process() {
    let place = Place::new();
    let (packed, text) = packed(&place, 0);
    let mut weft = place.command_as_stranger(&["run", "--network", "zstd -d"]);
    let mut weft = weft.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    let mut stdin = weft.stdin.take().unwrap();
    stdin.write_all(&packed[..packed.len() - 1]).unwrap();
    let nursery = nursery(Pid::from_child(&weft));
    soon(|| status(nursery, "Seccomp").filter(|mode| mode == "2"));
    assert_eq!(status(nursery, "NoNewPrivs").as_deref(), Some("1"));
    decoders(nursery);
    stdin.write_all(&packed[packed.len() - 1..]).unwrap();
    drop(stdin);
    assert!(weft.wait_with_output().unwrap().stdout == text);
    if !is_root() {
        return eprintln!("SKIPPED a user without processes: needs root");
    }
    let mut weft = place.command_as_stranger(&["run", "--network", "zstd -d"]);
    let none = Rlimit { current: Some(0), maximum: Some(0) };
    // SAFETY: it makes a system call and nothing else.
    unsafe { weft.pre_exec(move || Ok(setrlimit(Resource::Nproc, none)?)) };
    let mut weft = weft.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    // It may not read any of it.
    let _ = weft.stdin.take().unwrap().write_all(&packed);
    let said = Said::from(weft.wait_with_output().unwrap());
    assert!(said.code != 0 && said.out.is_empty() && said.err.contains("process"), "{said:?}");
}
