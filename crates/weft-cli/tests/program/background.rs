//! The daemon: its start, its end, and waits for it.

use crate::place::{Place, is_root};
use rustix::process::{Pid, Signal, kill_process};
use std::fs::File;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::path::Path;
use std::process::Stdio;

fn signal(pid: u32, signal: Signal) {
    kill_process(Pid::from_raw(pid.cast_signed()).unwrap(), signal).unwrap();
}

/// Waits until process `pid` is gone, by the one thing that ends when it does: its hold of the
/// volume.
fn await_release(volume: &Path) {
    await_end_of_hold(&volume.join("lock"));
}

fn await_end_of_hold(hold: &Path) {
    let lock = File::open(hold).unwrap();
    rustix::fs::flock(&lock, rustix::fs::FlockOperation::LockExclusive).unwrap();
}

#[test]
fn a_mount_serves_when_the_command_returns_and_can_be_repeated_at_once() {
    let Some(place) = Place::to_mount() else { return };
    let directory = place.mounted();
    for round in 0..10 {
        std::fs::write(directory.join(format!("file {round}")), [round; 5000]).unwrap();
        place.umount();
        assert!(!place.is_mounted("m"));
        place.mount();
    }
    for round in 0..10 {
        assert_eq!(std::fs::read(directory.join(format!("file {round}"))).unwrap(), [round; 5000]);
    }
    place.umount();
    place.weft(&["check", "v", "--read-data"]).well();
}

#[test]
fn a_volume_in_one_file_leaves_nothing_beside_it_but_its_log() {
    let Some(place) = Place::to_mount() else { return };
    place.weft(&["init", "v", "--blocks", "database"]).well();
    let directory = place.directory("m");
    place.mount();
    std::fs::write(directory.join("file"), vec![7; 300_000]).unwrap();
    place.umount();
    let mut names: Vec<_> = std::fs::read_dir(place.path("")).unwrap().map(|e| e.unwrap().file_name()).collect();
    names.sort();
    assert_eq!(names, ["m", "v", "v.log"]);
    place.mount();
    assert_eq!(std::fs::read(directory.join("file")).unwrap(), vec![7; 300_000]);
    place.umount();
}

#[test]
fn what_was_synced_before_a_kill_survives_reading_only() {
    let Some(place) = Place::to_mount() else { return };
    place.weft(&["init", "v", "--blocks", "database"]).well();
    let directory = place.directory("m");
    place.weft(&["mount", "v", "m", "--commit-interval", "1000"]).well();
    let file = File::create(directory.join("file")).unwrap();
    std::io::Write::write_all(&mut &file, b"synced").unwrap();
    file.sync_all().unwrap();
    drop(file);
    signal(place.daemon(), Signal::KILL);
    await_end_of_hold(&place.path("v"));
    place.umount();
    for out in ["once", "twice"] {
        place.weft(&["export", "v", out]).well();
        assert_eq!(std::fs::read(place.path(out).join("file")).unwrap(), b"synced");
        place.weft(&["mount", "--read-only", "v", "m"]).well();
        assert_eq!(std::fs::read(directory.join("file")).unwrap(), b"synced");
        place.umount();
    }
    place.mount();
    assert_eq!(std::fs::read(directory.join("file")).unwrap(), b"synced");
    place.umount();
}

#[test]
fn a_volume_whose_log_is_gone_after_a_kill_is_refused_until_the_loss_is_accepted() {
    let Some(place) = Place::to_mount() else { return };
    let directory = place.mounted();
    let file = File::create(directory.join("file")).unwrap();
    file.sync_all().unwrap();
    drop(file);
    signal(place.daemon(), Signal::KILL);
    await_release(&place.path("v"));
    place.umount();
    let waits = "in the intent log; a mount applies";
    for command in ["info", "log", "scrub"] {
        let said = place.weft(&[command, "v"]);
        assert!(said.code == 0 && said.err.contains(waits), "{said:?}");
    }
    assert!(place.weft(&["check", "v"]).well().contains(waits));
    let info: serde_json::Value = serde_json::from_str(&place.weft(&["info", "--json", "v"]).out).unwrap();
    assert!(info["operations_waiting"].as_u64() > Some(0), "{info}");
    std::fs::remove_file(place.path("v/intents")).unwrap();
    for (command, code) in [("info", 0), ("log", 0), ("scrub", 1), ("check", 1)] {
        let said = place.weft(&[command, "v"]);
        assert!(said.code == code && format!("{said:?}").contains("v/intents is missing"), "{said:?}");
    }
    for _ in 0..2 {
        place.weft(&["mount", "v", "m"]).failed(&["v/intents is missing", "--accept-loss"]);
        place.weft(&["export", "v", "out"]).could_not(&["v/intents is missing"]);
    }
    // A reader accepts it for this once, and does not hinder putting the log back.
    for options in [&["--read-only", "--accept-loss"][..], &["--read-only", "--accept-loss"], &["--accept-loss"]] {
        let said = place.weft(&[&["mount"], options, &["v", "m"]].concat());
        assert!(said.code == 0 && said.err.contains("going on without"), "{said:?}");
        place.umount();
        let names = std::fs::read_dir(place.path("v")).unwrap().map(|entry| entry.unwrap().file_name());
        let copies = names.filter(|name| name.to_string_lossy().contains(".aside-")).collect::<Vec<_>>();
        assert!(copies.len() <= 1, "copied more than once: {copies:?}");
    }
    place.mount();
    place.umount();
}

#[test]
fn a_terminated_daemon_commits_all_and_unmounts() {
    for stop in [Signal::TERM, Signal::INT] {
        let Some(place) = Place::to_mount() else { return };
        let directory = place.mounted();
        let daemon = place.daemon();
        std::fs::write(directory.join("file"), "kept").unwrap();
        signal(daemon, stop);
        await_release(&place.path("v"));
        assert!(!place.is_mounted("m"));
        place.mount();
        assert_eq!(std::fs::read(directory.join("file")).unwrap(), b"kept");
        place.umount();
    }
}

#[test]
fn a_foreground_mount_ends_well_when_it_is_unmounted() {
    let Some(place) = Place::to_mount() else { return };
    place.weft(&["init", "v"]).well();
    let directory = place.directory("m");
    let mut child = place.command(&["mount", "--foreground", "v", "m"]).spawn().unwrap();
    // The first answer waits for nothing but the mount; until then the directory is an empty one.
    while !place.is_mounted("m") {
        assert!(child.try_wait().unwrap().is_none());
        std::thread::yield_now();
    }
    std::fs::write(directory.join("file"), "x").unwrap();
    // This test is the daemon's parent, and does not take note of its end before the command has
    // returned.
    place.umount();
    assert!(child.wait().unwrap().success());
}

#[test]
fn after_a_kill_what_was_synced_is_there_and_the_mount_point_can_be_freed() {
    let Some(place) = Place::to_mount() else { return };
    let directory = place.mounted();
    let file = File::create(directory.join("file")).unwrap();
    std::io::Write::write_all(&mut &file, b"synced").unwrap();
    file.sync_all().unwrap();
    drop(file);
    signal(place.daemon(), Signal::KILL);
    await_release(&place.path("v"));
    place.weft(&["stats", "m"]).failed(&["the daemon of m has ended", "weft umount m"]);
    place.weft(&["mount", "v", "m"]).failed(&["unmount it first", "weft umount"]);
    place.umount();
    assert!(!place.is_mounted("m"));
    place.weft(&["check", "v"]).well();
    place.mount();
    assert_eq!(std::fs::read(directory.join("file")).unwrap(), b"synced");
    place.umount();
}

#[test]
fn a_mount_in_use_stays_unless_unmounted_lazily() {
    let Some(place) = Place::to_mount() else { return };
    let directory = place.mounted();
    let mut file = File::create_new(directory.join("file")).unwrap();
    place.weft(&["umount", "m"]).failed(&["cannot unmount", "busy", "--lazy"]);
    assert!(place.is_mounted("m"));
    place.weft(&["umount", "--lazy", "m"]).well();
    assert!(!place.is_mounted("m"));
    std::io::Write::write_all(&mut file, b"late").unwrap();
    drop(file);
    await_release(&place.path("v"));
    place.mount();
    assert_eq!(std::fs::read(directory.join("file")).unwrap(), b"late");
    place.umount();
}

#[test]
fn unmounting_gives_up_in_time_where_the_daemon_does_not_answer() {
    let Some(place) = Place::to_mount() else { return };
    place.mounted();
    let stats: serde_json::Value = place.weft(&["stats", "--json", "m"]).json();
    let pid = u32::try_from(stats["pid"].as_u64().unwrap()).unwrap();
    signal(pid, Signal::STOP);
    place.weft(&["umount", "--timeout", "1", "m"]).failed(&[
        "m has not been let go of for 1 second:",
        "--timeout",
        "mounted in another mount namespace (a container)",
    ]);
    let said = place.weft(&["umount", "--timeout", "11", "m"]);
    let (first, last) = said.err.split_once('\n').unwrap();
    assert!(first.starts_with("weft: waiting, up to 11 seconds, for the daemon of m to commit"), "{said:?}");
    assert!(said.code == 1 && last.contains("for 11 seconds") && last.lines().count() == 1, "{said:?}");
    assert!(place.is_mounted("m"));
    signal(pid, Signal::CONT);
    place.umount();
}

/// A program that reads a link that takes for ever keeps the mount in use, but not the daemon from
/// answering, and can be killed.
#[test]
fn links_that_are_computed_for_ever_hold_up_nobody() {
    let Some(place) = Place::to_mount() else { return };
    let directory = place.mounted();
    File::create_new(directory.join("hole")).unwrap().set_len(1000 << 40).unwrap();
    let mut readers = Vec::new();
    for number in 0..40 {
        let link = format!("m/link {number}");
        place.weft(&["link", "m/hole", &link, "-n", &format!("tr a-z A-Z | sha256 | head -n {}", number + 1)]).well();
        readers.push(std::process::Command::new("cat").arg(place.path(&link)).stderr(Stdio::null()).spawn().unwrap());
    }
    let waiting = || place.weft(&["stats", "--json", "m"]).json()["volume"]["requests_computing"].as_u64().unwrap();
    while waiting() < 20 {}
    assert!(place.weft(&["stats", "m"]).well().contains(" requests of 1 users wait for networks"));
    place.umount();
    for mut reader in readers {
        assert!(!reader.wait().unwrap().success());
    }
}

#[test]
fn a_program_that_stays_in_a_mount_is_told_of_at_once() {
    let Some(place) = Place::to_mount() else { return };
    let directory = place.mounted();
    std::fs::write(directory.join("file"), "held open").unwrap();
    let held = File::open(directory.join("file")).unwrap();
    let begun = std::time::Instant::now();
    place.weft(&["umount", "m"]).failed(&["busy", "--lazy"]);
    // No program that might leave was interrupted.
    assert!(begun.elapsed() < std::time::Duration::from_secs(8));
    drop(held);
    place.umount();
}

#[test]
fn the_daemon_keeps_nothing_open_that_the_command_was_started_with() {
    let Some(place) = Place::to_mount() else { return };
    place.weft(&["init", "v"]).well();
    place.directory("m");
    let mut script = std::process::Command::new("sh");
    script.args(["-c", "exec 7>&1; \"$0\" mount v m; echo mounted", env!("CARGO_BIN_EXE_weft")]);
    let mut child = script.current_dir(place.path("")).stdout(Stdio::piped()).spawn().unwrap();
    let mut out = BufReader::new(child.stdout.take().unwrap());
    let mut line = String::new();
    out.read_line(&mut line).unwrap();
    assert_eq!(line, "mounted\n");
    // Ends only if nobody holds the other end any more.
    assert_eq!(out.read_to_end(&mut Vec::new()).unwrap(), 0);
    child.wait().unwrap();
    assert!(place.is_mounted("m"));
    place.umount();
}

#[test]
fn a_read_only_mount_refuses_changes() {
    let Some(place) = Place::to_mount() else { return };
    let directory = place.mounted();
    std::fs::write(directory.join("file"), "x").unwrap();
    place.umount();
    for arguments in [&["mount", "--read-only", "v", "m"][..], &["mount", "v", "m", "-o", "ro"]] {
        place.weft(arguments).well();
        assert_eq!(std::fs::read(directory.join("file")).unwrap(), b"x");
        let refused = std::fs::write(directory.join("new"), "").unwrap_err();
        assert_eq!(refused.kind(), std::io::ErrorKind::ReadOnlyFilesystem);
        place.umount();
    }
}

#[test]
fn stats_count_what_happens() {
    let Some(place) = Place::to_mount() else { return };
    let directory = place.mounted();
    std::fs::write(directory.join("file"), vec![1; 100_000]).unwrap();
    let stats = place.weft(&["stats", "m", "--json"]).json();
    assert_eq!(stats["volume"]["inodes_used"], 2, "{stats}");
    assert!(stats["volume"]["bytes_written"].as_u64().unwrap() >= 100_000, "{stats}");
    let text = place.weft(&["stats", "m"]).well();
    assert!(text.contains("content     2 inodes"), "{text}");
    place.umount();
}

fn flags(directory: &Path) -> [bool; 4] {
    use rustix::fs::StatVfsMountFlags as Flags;
    let stat = rustix::fs::statvfs(directory).unwrap();
    [Flags::RDONLY, Flags::NOSUID, Flags::NODEV, Flags::NOEXEC].map(|flag| stat.f_flag.contains(flag))
}

#[test]
fn set_user_id_and_devices_work_only_where_they_are_asked_for() {
    let Some(place) = Place::to_mount() else { return };
    if !crate::place::is_root() {
        return eprintln!("SKIPPED: needs root");
    }
    place.weft(&["init", "v"]).well();
    let directory = place.directory("m");
    for (options, expected) in [
        ("rw", [false, true, true, false]),
        ("suid", [false, false, true, false]),
        ("nosuid,dev", [false, true, false, false]),
        ("ro,defaults,noexec", [false, false, false, true]),
    ] {
        place.weft(&["mount", "v", "m", "-o", options]).well();
        assert_eq!(flags(&directory), expected, "{options}");
        place.umount();
    }
}

#[test]
fn a_remount_has_changes_refused_and_taken_again() {
    let Some(place) = Place::to_mount() else { return };
    if !crate::place::is_root() {
        return eprintln!("SKIPPED: needs root");
    }
    let directory = place.mounted();
    let remount = |how: &str| place.weft(&["mount", "v", "m", "-o", how]);
    let is_refused = || {
        let refused = std::fs::write(directory.join("new"), "").err().map(|error| error.kind());
        refused == Some(std::io::ErrorKind::ReadOnlyFilesystem)
    };
    let mut file = File::create(directory.join("file")).unwrap();
    std::io::Write::write_all(&mut file, b"kept").unwrap();
    remount("remount,ro").failed(&["have files of it open for writing", "fuser -vm", "try again"]);
    let other = place.weft(&["mount", "another", "m", "-o", "remount,ro"]);
    other.failed(&["v is mounted at", "and not another"]);
    assert!(!is_refused());
    drop(file);
    remount("remount,ro").well();
    assert_eq!(flags(&directory), [true, true, true, false], "the rest stays");
    assert!(is_refused());
    assert_eq!(std::fs::read(directory.join("file")).unwrap(), b"kept");
    // All is committed, and reading moves no access time.
    assert_eq!(place.weft(&["stats", "m", "--json"]).json()["volume"]["dirty_bytes"], 0);
    remount("remount,rw").well();
    std::fs::write(directory.join("new"), "x").unwrap();
    remount("ro,remount").well();
    signal(place.daemon(), Signal::KILL);
    await_release(&place.path("v"));
    place.umount();
    place.weft(&["mount", "--read-only", "v", "m"]).well();
    assert_eq!(std::fs::read(directory.join("new")).unwrap(), b"x");
    remount("remount,rw").failed(&["mounted read-only", "unmount it"]);
    place.umount();
    remount("remount,ro").failed(&["no volume is mounted"]);
}

#[test]
fn a_mount_waits_for_a_daemon_that_is_about_to_let_go() {
    let Some(place) = Place::to_mount() else { return };
    if !crate::place::is_root() {
        return eprintln!("SKIPPED: needs root");
    }
    let directory = place.mounted();
    std::fs::write(directory.join("file"), "kept").unwrap();
    place.weft(&["mount", "v", "m2"]).failed(&["make the directory"]);
    place.directory("m2");
    // A mounted volume is not waited for.
    place.weft(&["mount", "v", "m2"]).failed(&["in use by another process"]);
    let daemon = place.daemon();
    signal(daemon, Signal::STOP);
    rustix::mount::unmount(&directory, rustix::mount::UnmountFlags::DETACH).unwrap();
    let mut mounting = place.command(&["mount", "v", "m"]).stderr(Stdio::piped()).spawn().unwrap();
    let mut said = String::new();
    BufReader::new(mounting.stderr.take().unwrap()).read_line(&mut said).unwrap();
    assert!(said.contains("waiting for process") && said.contains(&daemon.to_string()), "{said}");
    signal(daemon, Signal::CONT);
    assert!(mounting.wait().unwrap().success());
    assert_eq!(std::fs::read(directory.join("file")).unwrap(), b"kept");
    place.umount();
}

#[test]
fn stats_tell_what_clients_of_nfs_take_and_what_they_were_refused() {
    let Some(place) = Place::to_mount() else { return };
    place.weft(&["init", "v"]).well();
    place.directory("m");
    place.weft(&["mount", "v", "m", "--nfs", "127.0.0.1:0"]).well();
    let stats = || place.weft(&["stats", "m", "--json"]).json()["volume"]["nfs"].clone();
    let address = stats()["address"].as_str().unwrap().to_owned();
    // A call of NFS 3: one handle that nobody made, as AUTH_NONE; or an argument cut short.
    let call = |flavour: u32, arguments: &[u32]| {
        let words = [&[1, 0, 2, 100_003, 3, 1, flavour, 0, 0, 0], arguments].concat();
        let length = (1 << 31) | (4 * u32::try_from(words.len()).unwrap());
        [length].iter().chain(&words).flat_map(|word| word.to_be_bytes()).collect::<Vec<u8>>()
    };
    let mut client = TcpStream::connect(&address).unwrap();
    for call in [call(0, &[4, 7]), call(0, &[]), call(99, &[])] {
        client.write_all(&call).unwrap();
        let mut length = [0; 4];
        client.read_exact(&mut length).unwrap();
        let mut reply = vec![0; (u32::from_be_bytes(length) & !(1 << 31)) as usize];
        client.read_exact(&mut reply).unwrap();
    }
    let mut garbage = TcpStream::connect(&address).unwrap();
    garbage.write_all(&[0xff; 64]).unwrap();
    assert_eq!(garbage.read(&mut [0; 16]).unwrap_or(0), 0);
    let told = stats();
    let refused = serde_json::json!({"rights": 0, "credentials": 1, "handles": 1, "malformed": 1, "bounds": 0});
    assert_eq!(told["refused"], refused, "{told}");
    assert!(told["connections_by_address"]["127.0.0.1"].as_u64() >= Some(1), "{told}");
    let said = place.weft(&["stats", "m"]).well();
    assert!(said.contains("refused: ") && said.contains("by address: 127.0.0.1 "), "{said}");
    if is_root() {
        let theirs = place.weft_as_stranger(&["stats", "m", "--json"]).json()["volume"]["nfs"].clone();
        assert_eq!(theirs["connections_by_address"], serde_json::json!({}), "{theirs}");
        assert!(theirs["connections"].as_u64() >= Some(1), "{theirs}");
    }
    drop((client, garbage));
    place.umount();
}
