//! Programs that read files of a mount where the daemon has them: their output is that of the
//! machine's own, a file lies in memory once, and bytes stay whoever is killed.

use crate::place::{Numbers, Place, is_root, on_each_engine, write_synced};
use std::fs::{self, File, OpenOptions};
use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::fs::{FileExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

/// Texts that any locale reads alike; the other files of the corpus are `zeros`, `random`, `latin`
/// and `holes`.
const TEXTS: [&str; 7] = ["empty", "short", "text", "no-newline", "blanks", "one-word", "long-lines"];
const OTHERS: [&str; 4] = ["zeros", "random", "latin", "holes"];

/// At least `len` bytes of lines of words.
fn text(numbers: &mut Numbers, len: usize) -> Vec<u8> {
    let mut text = Vec::new();
    while text.len() < len {
        for word in 0..numbers.below(15) {
            text.extend_from_slice(if word == 0 { b"" } else { b" " });
            text.extend((0..1 + numbers.below(11)).map(|_| b'a' + numbers.below(26) as u8));
        }
        text.push(b'\n');
    }
    text
}

/// Writes the corpus to directory `plain`, and a copy of it into the mount at `m`.
fn write_corpus(place: &Place) {
    let mut numbers = Numbers(20260);
    let plain = place.directory("plain");
    let mut unended = text(&mut numbers, 300_000);
    unended.pop();
    let long = [b"w ".repeat(90_000), b"needle\n".to_vec()].concat().repeat(4);
    let latin = text(&mut numbers, 200_000).iter().map(|byte| if *byte == b'a' { 0xe4 } else { *byte }).collect();
    for (name, content) in [
        ("empty", Vec::new()),
        ("short", b"one line\n".to_vec()),
        ("text", text(&mut numbers, 1_750_000)),
        ("no-newline", unended),
        ("blanks", b" \t\n\x0b\x0c\r".repeat(30_000)),
        ("one-word", vec![b'x'; 400_000]),
        ("long-lines", long),
        ("zeros", vec![0; 200_000]),
        ("random", numbers.bytes(900_000)),
        ("latin", latin),
    ] {
        fs::write(plain.join(name), content).unwrap();
    }
    let holes = File::create(plain.join("holes")).unwrap();
    for at in [0, 131_072, 700_001] {
        holes.write_all_at(b"words between holes\n", at).unwrap();
    }
    holes.set_len(1 << 20).unwrap();
    let mut copying = Command::new("cp");
    copying.args(["--sparse=always", "-r", "plain/.", "m"]).current_dir(place.path(""));
    assert!(copying.status().unwrap().success());
    // Bytes that are not committed yet are not lent.
    place.weft(&["sync", "m"]).well();
}

fn shared_bytes(place: &Place) -> u64 {
    place.weft(&["stats", "m", "--json"]).json()["volume"]["shared_bytes"].as_u64().unwrap()
}

/// Runs `command` in `directory`, with `input` before it. Returns its output.
fn output(directory: &Path, command: &[&str], input: Option<&Path>) -> Vec<u8> {
    let program = if command[0] == "weft" { env!("CARGO_BIN_EXE_weft") } else { command[0] };
    let input = input.map_or(Stdio::null(), |input| File::open(input).unwrap().into());
    let mut process = Command::new(program);
    process.args(&command[1..]).env("LC_ALL", "C").current_dir(directory).stdin(input);
    process.output().expect("it runs").stdout
}

/// Checks that `ours` prints of files of the mount what `theirs` prints of their copies.
#[track_caller]
fn same(place: &Place, theirs: &[&str], ours: &[&str], files: &[&str]) {
    let theirs = output(&place.path("plain"), &[theirs, files].concat(), None);
    let printed = output(&place.path("m"), &[&["weft"], ours, files].concat(), None);
    assert!(theirs == printed, "{ours:?}: {} bytes, not {}", printed.len(), theirs.len());
}

#[test]
fn programs_print_of_a_mount_what_those_of_the_machine_do() {
    on_each_engine(&[], |place, volume| {
        write_corpus(place);
        let all = [&TEXTS[..], &OTHERS].concat();
        // What was counted before is found the second time.
        for _ in 0..2 {
            same(place, &["wc"], &["wc"], &TEXTS);
        }
        same(place, &["wc"], &["wc", "--recount"], &TEXTS);
        same(place, &["wc", "-w"], &["wc", "--recount", "-w"], &TEXTS);
        same(place, &["wc", "-lc"], &["wc", "-lc"], &all);
        same(place, &["wc", "-lc"], &["wc", "--recount", "-lc"], &all);
        for command in [&["cat"][..], &["sum"], &["sum", "-s"]] {
            same(place, command, command, &all);
        }
        for (theirs, ours) in [
            (["-c", "the"], &["-c", "the"][..]),
            (["-n", "needle"], &["-n", "needle"]),
            (["-vic", "e"], &["-v", "-i", "-c", "e"]),
            (["-oE", "[x-z]{2}[a-e]"], &["-o", "[x-z]{2}[a-e]"]),
        ] {
            same(place, &[&["grep"], &theirs[..]].concat(), &[&["grep"], ours].concat(), &TEXTS);
        }
        let lent = shared_bytes(place);
        assert!(lent > 1_000_000, "{lent} bytes are lent");
        place.umount();

        place.mount_with(volume, &["--shared-memory", "0"]);
        same(place, &["wc"], &["wc", "--recount"], &TEXTS);
        assert_eq!(shared_bytes(place), 0);
        place.umount();

        place.mount_with(volume, &["--shared-memory", "1M"]);
        same(place, &["wc"], &["wc", "--recount"], &TEXTS);
        same(place, &["grep", "-c", "the"], &["grep", "-c", "the"], &TEXTS);
        same(place, &["sum"], &["sum"], &["text", "random"]);
        assert!(shared_bytes(place) <= 1 << 20);
    });
}

#[test]
fn what_is_read_in_place_is_what_is_there_now() {
    on_each_engine(&[], |place, volume| {
        let directory = place.path("m");
        let mut text = text(&mut Numbers(7), 500_000);
        fs::write(directory.join("text"), &text).unwrap();
        fs::write(directory.join("changed"), &text).unwrap();
        place.weft(&["sync", "m"]).well();
        let told = |arguments: &[&str], input: Option<&str>| {
            let input = input.map(|input| directory.join(input));
            String::from_utf8(output(&directory, arguments, input.as_deref())).unwrap()
        };
        let before = told(&["weft", "wc", "changed"], None);
        OpenOptions::new().append(true).open(directory.join("changed")).unwrap().write_all(b"one more\n").unwrap();
        text.extend_from_slice(b"one more\n");
        let after = told(&["wc", "changed"], None);
        assert_ne!(before, after);
        assert_eq!(told(&["weft", "wc", "changed"], None), after);
        assert_eq!(told(&["weft", "wc", "--recount", "changed"], None), after);
        assert_eq!(told(&["weft", "wc"], Some("changed")), told(&["wc"], Some("changed")));
        assert_eq!(
            told(&["weft", "grep", "-n", "one more", "changed"], None),
            told(&["grep", "-n", "one more", "changed"], None)
        );

        place.weft(&["link", "m/text", "m/upper", "-n", "upper"]).well();
        assert_eq!(told(&["weft", "wc", "--recount"], Some("upper")), told(&["wc"], Some("text")));
        let lower = output(&directory, &["weft", "pipe", "cat upper | lower"], None);
        assert!(lower == fs::read(directory.join("text")).unwrap());

        place.weft(&["net", "push", "-n", "upper", "m/changed"]).well();
        assert!(fs::read(directory.join("changed")).unwrap() == text.to_ascii_uppercase());
        for command in ["wc", "sum"] {
            assert_eq!(told(&["weft", command, "changed"], None), told(&[command, "changed"], None));
        }
        assert_eq!(
            told(&["weft", "grep", "-c", "ONE", "changed"], None),
            told(&["grep", "-c", "ONE", "changed"], None)
        );
        place.weft(&["net", "pop", "m/changed"]).well();
        assert!(fs::read(directory.join("changed")).unwrap() == text);
        assert_eq!(told(&["weft", "sum", "changed"], None), told(&["sum", "changed"], None));

        if is_root() {
            fs::set_permissions(place.path(""), PermissionsExt::from_mode(0o1777)).unwrap();
            fs::set_permissions(directory.join("changed"), PermissionsExt::from_mode(0o600)).unwrap();
            let said = place.weft_as_stranger(&["wc", "--recount", "m/changed"]);
            assert!(said.code != 0 && said.err.contains("ermission denied"), "{said:?}");
            let theirs = place.weft_as_stranger(&["sum", "m/text"]).well();
            assert_eq!(theirs, place.weft(&["sum", "m/text"]).well());
        } else {
            eprintln!("SKIPPED rights of other users: needs root");
        }
        place.umount();

        // What the kernel keeps back is newer than anything that could be lent.
        place.mount_with(volume, &["--writeback"]);
        let mut file = OpenOptions::new().append(true).open(directory.join("changed")).unwrap();
        file.write_all(b"kept by the kernel\n").unwrap();
        assert_eq!(told(&["weft", "wc", "--recount"], Some("changed")), told(&["wc"], Some("changed")));
        assert_eq!(told(&["weft", "wc", "changed"], None), told(&["wc", "changed"], None));
    });
}

#[test]
fn a_pipeline_of_mounted_files_copies_nothing() {
    on_each_engine(&[], |place, _| {
        write_synced(&place.path("m/text"), &text(&mut Numbers(3), 1_750_000));
        place.weft(&["sync", "m"]).well();
        let said = place.weft(&["pipe", "--copies", "cat m/text m/text m/text | grep nothing-has-this | wc -l"]);
        assert_eq!(said.out.trim(), "0", "{said:?}");
        let copied: u64 = said.err.split(' ').next().unwrap().parse().unwrap();
        assert!(copied < 100_000, "{copied} bytes were copied");
    });
}

const HELD: &str = "held";
const FILE: &str = "WEFT_TEST_HOLD";
const COPY: &str = "WEFT_TEST_HOLD_COPY";

/// A process that has a file in memory, and has closed it, until it is told to end.
struct Holder {
    process: Child,
    orders: Option<ChildStdin>,
    _said: BufReader<ChildStdout>,
}

impl Holder {
    /// Starts one for `m/large`.
    fn start(place: &Place) -> Holder {
        let mut command = Command::new(std::env::current_exe().unwrap());
        command.args(["--exact", "in_place::holder", "--nocapture"]);
        command.env(FILE, place.path("m/large")).env(COPY, place.path("large"));
        let mut process = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        let mut said = BufReader::new(process.stdout.take().unwrap());
        let mut lines = said.by_ref().lines().map(Result::unwrap);
        assert!(lines.any(|line| line.ends_with(HELD)), "it cannot read the file");
        Holder { orders: process.stdin.take(), process, _said: said }
    }

    /// Has it compare the bytes that it holds, and end.
    fn end(mut self) {
        drop(self.orders.take());
        assert!(self.process.wait().unwrap().success(), "bytes that were lent have changed");
    }
}

impl Drop for Holder {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// The process of a [`Holder`]; no test of its own.
#[test]
fn holder() {
    let (Some(file), Some(copy)) = (std::env::var_os(FILE), std::env::var_os(COPY)) else { return };
    let opened = weft_client::File::open(&PathBuf::from(file)).unwrap();
    let (mut held, mut at) = (Vec::new(), 0);
    loop {
        let rope = opened.read(at, 8 << 20).unwrap();
        if rope.is_empty() {
            break;
        }
        at += rope.len() as u64;
        held.push(rope);
    }
    drop(opened);
    writeln!(std::io::stdout(), "{HELD}").unwrap();
    std::io::stdin().lines().for_each(drop);
    let bytes: Vec<u8> = held.iter().flat_map(|rope| rope.to_vec()).collect();
    assert!(bytes == fs::read(copy).unwrap());
}

const LARGE: usize = 20_000_000;

/// Writes the file that holders hold, and has the daemon read it.
fn write_large(place: &Place) {
    let content = Numbers(11).bytes(LARGE);
    fs::write(place.path("large"), &content).unwrap();
    write_synced(&place.path("m/large"), &content);
    place.weft(&["sum", "m/large"]).well();
}

/// The process's part of the bytes of shared memory that it has mapped.
fn share(pid: u32) -> u64 {
    let told = fs::read_to_string(format!("/proc/{pid}/smaps_rollup")).unwrap();
    let line = told.lines().find_map(|line| line.strip_prefix("Pss_Shmem:")).unwrap();
    line.trim().trim_end_matches(" kB").parse::<u64>().unwrap() << 10
}

#[test]
fn a_file_that_ten_programs_have_in_memory_is_there_once() {
    on_each_engine(&[], |place, _| {
        write_large(place);
        let holders: Vec<Holder> = (0..10).map(|_| Holder::start(place)).collect();
        let first = share(holders[0].process.id());
        assert!(first > LARGE as u64 / 50, "it is not read in place: {first} bytes");
        let total: u64 = holders.iter().map(|holder| share(holder.process.id())).sum();
        let total = total + share(place.daemon());
        assert!(total < LARGE as u64 * 3 / 2, "{total} bytes");
        holders.into_iter().for_each(Holder::end);
    });
}

#[test]
fn programs_keep_the_bytes_that_they_hold_when_the_volume_is_unmounted_and_its_daemon_killed() {
    on_each_engine(&[], |place, volume| {
        write_large(place);
        let holder = Holder::start(place);
        place.umount();
        holder.end();

        place.mount_with(volume, &[]);
        let holder = Holder::start(place);
        place.kill_daemon();
        holder.end();
        let said = place.weft(&["sum", "m/large"]);
        assert!(said.code != 0 && said.err.contains("not connected"), "{said:?}");
        place.weft(&["umount", "m"]);
        place.mount_with(volume, if volume == "v" { &[] } else { &["--wait", "60"] });
        place.weft(&["sum", "m/large"]).well();
    });
}
