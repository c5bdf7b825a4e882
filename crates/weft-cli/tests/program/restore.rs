//! Bringing back the past: `weft restore`, `weft undelete`, `weft snapshot restore`.

use crate::history::{ALL, assert_described, committed};
use crate::place::{Numbers, Place, is_root, on_each_engine};
use crate::tree;
use std::fs::{self, File, OpenOptions};
use std::io::{Read, Write};
use std::path::Path;
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::channel;
use std::thread;

fn copy(place: &Place, from: &str, to: &str) {
    let done = Command::new("cp").arg("-a").args([place.path(from), place.path(to)]).status().unwrap();
    assert!(done.success());
}

fn digest(place: &Place, path: &str) -> String {
    let said = place.weft(&["digest", path]).well();
    said.split(' ').next().unwrap().to_owned()
}

/// Changes that touch all kinds of things in `t`.
const CHANGES: &str = "set -e; cd t; find . -type f | sort | head -3 | while read f; do echo changed >>\"$f\"; done
    find . -type f | sort | tail -2 | xargs -d '\\n' rm; mkdir new; echo new >new/file
    mv empty ../moved; mv deep/er fifo new; rm dangling; chmod 700 deep; find . | xargs -d '\\n' touch -h";

#[test]
fn a_subtree_of_a_busy_mount_becomes_what_it_was() {
    on_each_engine(&[], |place, _| {
        place.weft(&["history", "set", "m", ALL]).well();
        let root = place.path("m");
        let top = root.join("t");
        fs::create_dir(&top).unwrap();
        tree::make(&top);
        fs::write(root.join("beside"), "beside").unwrap();
        let then = format!("@{}", committed(place));
        copy(place, "m/t", "copy");
        let before = digest(place, "m/t");
        assert_eq!(place.sh(CHANGES).code, 0);
        let mut gone = File::open(top.join("new/file")).unwrap();
        let told = place.weft(&["restore", "m/t", "--at", &then, "--dry-run"]).well();
        assert!(told.contains("removed  m/t/new/file\n") && told.contains("would be restored"), "{told}");
        assert!(told.contains("changed  m/t/fifo, moved back from m/t/new/fifo\n"), "{told}");
        assert!(top.join("new").is_dir(), "it only told");
        let report = place.weft(&["restore", "m/t", "--at", &then, "--json"]).json();
        assert!(report["back"].as_u64() > Some(0) && report["removed"].as_u64() > Some(1), "{report}");
        assert_described(&top, &place.path("copy"));
        assert_eq!(digest(place, "m/t"), before);
        let mut content = String::new();
        gone.read_to_string(&mut content).unwrap();
        assert_eq!(content, "new\n", "an open file keeps what it has");
        assert_eq!(fs::read_to_string(root.join("beside")).unwrap(), "beside");
        assert!(root.join("moved").is_dir(), "what was moved away stays there");
        place.sh("mv t/small t/other").well();
        let told = place.weft(&["restore", "m/t", "--at", &then, "--dry-run"]).well();
        assert!(
            told.contains("moved    m/t/small, back from m/t/other\n") && told.contains("1 moved back, "),
            "{told}"
        );
    });
}

#[test]
fn a_program_that_appends_goes_on_at_the_end_of_what_was_restored() {
    on_each_engine(&[], |place, _| {
        place.weft(&["history", "set", "m", ALL]).well();
        let log = place.path("m/log");
        for (then, meanwhile) in [("a long line of then\n", "short\n"), ("then\n", "a long line, written since\n")] {
            fs::write(&log, then).unwrap();
            let at = format!("@{}", committed(place));
            fs::write(&log, "").unwrap();
            let mut appending = OpenOptions::new().append(true).open(&log).unwrap();
            appending.write_all(meanwhile.as_bytes()).unwrap();
            place.weft(&["restore", "m/log", "--at", &at]).well();
            for line in ["one\n", "two\n"] {
                appending.write_all(line.as_bytes()).unwrap();
            }
            let expected = format!("{then}one\ntwo\n");
            assert_eq!(place.weft(&["cat", "--at", "now", "m/log"]).well(), expected);
            while fs::read_to_string(&log).unwrap() != expected {
                std::thread::yield_now();
            }
        }
    });
}

#[test]
fn a_directory_comes_back_with_what_was_changed_last_in_it() {
    on_each_engine(&[], |place, _| {
        place.weft(&["history", "set", "m", ALL]).well();
        for script in ["mkdir d && echo draft >d/report && echo x >d/one && echo x >d/two", "rm d/one"] {
            place.sh(script).well();
            committed(place);
        }
        place.sh("echo final >d/report").well();
        committed(place);
        // A removal in two commits.
        place.sh("rm d/two").well();
        committed(place);
        place.sh("rm -r d").well();
        committed(place);
        place.weft(&["undelete", "m/d"]).well();
        assert_eq!(place.sh("cat d/report; ls d").well(), "final\nreport\ntwo\n");
    });
}

#[test]
fn nobody_leads_a_change_of_the_past_to_other_files_by_a_symbolic_link() {
    on_each_engine(&["-o", "allow_other"], |place, volume| {
        if !is_root() {
            return eprintln!(
                "SKIPPED nobody_leads_a_change_of_the_past_to_other_files_by_a_symbolic_link: needs root"
            );
        }
        place.weft(&["history", "set", "m", ALL]).well();
        place.sh("mkdir -p system u/d own && echo precious >system/key && echo secret >u/d/key").well();
        committed(place);
        place.sh("echo later >system/key && rm u/d/key && mv u/d u/other && ln -s ../system u/d").well();
        place.sh("chown -h 65534 u u/other u/d && ln -s ../system own/d").well();
        for words in [&["history", "forget", "m/u/d/key"][..], &["restore", "m/u/d/key", "--at", "-1s"]] {
            place.weft(words).failed(&["m/u/d, a symbolic link of user 65534 to ../system; name the path itself"]);
        }
        place.weft(&["history", "forget", &format!("{volume}:u/d/key")]).well();
        assert!(place.weft(&["history", "m"]).well().contains("/u/d/key, 1 version"));
        place.weft(&["history", "forget", "m/own/d/key"]).well();
        assert!(place.weft(&["history", "m"]).well().contains("/system/key, 1 version"));
    });
}

#[test]
fn what_was_deleted_comes_back_and_nothing_is_replaced() {
    on_each_engine(&[], |place, volume| {
        place.weft(&["history", "set", "m", ALL]).well();
        let root = place.path("m");
        fs::create_dir_all(root.join("a/b")).unwrap();
        fs::write(root.join("a/b/file"), "first").unwrap();
        fs::write(root.join("a/b/other"), "other").unwrap();
        let first = format!("@{}", committed(place));
        fs::write(root.join("a/b/file"), "second").unwrap();
        committed(place);
        place.weft(&["undelete", "m/a/b/file"]).failed(&["cannot undelete m/a/b/file: /a/b/file is there"]);
        fs::remove_file(root.join("a/b/file")).unwrap();
        assert!(!root.join("a/b/file").exists());
        place.weft(&["undelete", "m/a/b/file"]).well();
        assert_eq!(fs::read_to_string(root.join("a/b/file")).unwrap(), "second");
        fs::remove_file(root.join("a/b/file")).unwrap();
        place.weft(&["undelete", "m/a/b/file", "--at", &first]).well();
        assert_eq!(fs::read_to_string(root.join("a/b/file")).unwrap(), "first");
        committed(place);
        fs::remove_dir_all(root.join("a")).unwrap();
        place.weft(&["undelete", "m/a/b/file"]).failed(&["there is no directory /a"]);
        place.weft(&["undelete", "--parents", "m/a/b/file"]).well();
        assert_eq!(fs::read_dir(root.join("a/b")).unwrap().count(), 1);
        place.weft(&["undelete", "m/a/never"]).failed(&["no commit that is kept has /a/never"]);
        fs::remove_dir_all(root.join("a")).unwrap();
        place.umount();
        place.weft(&["undelete", "--parents", &format!("{volume}:a/b/other")]).well();
        place.mount_with(volume, &[]);
        assert_eq!(fs::read_to_string(root.join("a/b/other")).unwrap(), "other");
    });
}

#[test]
fn a_copy_of_the_past_stands_beside_the_present() {
    on_each_engine(&[], |place, volume| {
        place.weft(&["history", "set", "m", ALL]).well();
        let root = place.path("m");
        fs::create_dir(root.join("d")).unwrap();
        fs::write(root.join("d/file"), vec![1; 300_000]).unwrap();
        let then = format!("@{}", committed(place));
        fs::write(root.join("d/file"), vec![2; 300_000]).unwrap();
        fs::hard_link(root.join("d/file"), root.join("d/linked")).unwrap();
        place.weft(&["restore", "m/d", "--at", &then, "--to", "m/before"]).well();
        assert!(fs::read(root.join("before/file")).unwrap() == vec![1; 300_000]);
        assert!(fs::read(root.join("d/linked")).unwrap() == vec![2; 300_000]);
        place.weft(&["restore", "m/d", "--at", &then, "--to", "m/before"]).failed(&["/before is there"]);
        place.weft(&["restore", "m/d", "--at", &then, "--to", "elsewhere"]).failed(&["not in the same mount"]);
        place.weft(&["restore", "m/none", "--at", &then]).failed(&["/none was not there at commit"]);
        place.weft(&["restore", "m/d", "--at", "nothing"]).failed(&["there is no snapshot 'nothing'"]);
        place.weft(&["restore", "m/d"]).fails_with("--at");
        place.weft(&["restore", "outside", "--at", &then]).failed(&["is in no mounted volume"]);
        // A hard link elsewhere sees the same, which is told before.
        fs::rename(root.join("d/linked"), root.join("linked")).unwrap();
        let told = place.weft(&["restore", "--dry-run", "m/d", "--at", &then]).well();
        assert!(told.contains("1 changed file has other hard links") && told.contains("/linked"), "{told}");
        place.weft(&["restore", "m/d", "--at", &then]).well();
        assert!(fs::read(root.join("linked")).unwrap() == vec![1; 300_000]);
        place.umount();
        let told = place.weft(&["restore", &format!("{volume}:d"), "--at", "now", "--to", "later"]).well();
        assert!(told.starts_with(&format!("{volume}:d")) || told.starts_with("later restored"), "{told}");
    });
}

#[test]
fn a_copy_of_the_past_is_made_in_no_other_volume_than_the_one_named() {
    let Some(place) = Place::to_mount() else { return };
    let directory = place.mounted();
    fs::write(directory.join("file"), "then").unwrap();
    place.weft(&["snapshot", "create", "m", "then"]).well();
    place.weft(&["init", "other"]).well();
    let restore = |path: &str, to: &str| place.weft(&["restore", path, "--at", "then", "--to", to]);
    restore("v:file", "other:copy").failed(&["other:copy is not in v, which is restored"]);
    restore("v:file", "nowhere:copy").failed(&["is not in v"]);
    restore("v:file", "m/copy").failed(&["name it as what is restored was named: 'v:PATH'"]);
    assert!(!directory.join("copy").exists());
    restore("v:file", "v:copy").well();
    restore("v:file", "another").well();
    assert_eq!(fs::read_to_string(directory.join("copy")).unwrap(), "then");
    assert_eq!(fs::read_to_string(directory.join("another")).unwrap(), "then");
}

#[test]
fn a_snapshot_is_restored_as_a_whole() {
    on_each_engine(&[], |place, volume| {
        place.weft(&["history", "set", "m", "hourly 1d"]).well();
        let root = place.path("m");
        fs::write(root.join("file"), "then").unwrap();
        fs::create_dir(root.join("d")).unwrap();
        place.weft(&["snapshot", "create", "m", "kept"]).well();
        fs::write(root.join("file"), "now").unwrap();
        fs::remove_dir(root.join("d")).unwrap();
        fs::write(root.join("later"), "later").unwrap();
        place.weft(&["snapshot", "restore", "m", "none"]).failed(&["no snapshot 'none'; 'weft snapshot list m'"]);
        place.weft(&["snapshot", "restore", "m", "kept"]).well();
        assert_eq!(fs::read_to_string(root.join("file")).unwrap(), "then");
        assert!(root.join("d").is_dir() && !root.join("later").exists());
        fs::remove_file(root.join("file")).unwrap();
        place.umount();
        place.weft(&["snapshot", "restore", volume, "kept"]).well();
        place.mount_with(volume, &[]);
        assert_eq!(fs::read_to_string(root.join("file")).unwrap(), "then");
    });
}

/// Fills `directory` with files that all say `what`.
fn fill(directory: &Path, what: &str) {
    for number in 0..600 {
        let below = directory.join((number % 7).to_string());
        fs::create_dir_all(&below).unwrap();
        fs::write(below.join(number.to_string()), what).unwrap();
    }
}

/// The text that all files of `directory` hold.
fn said_by_all(directory: &Path) -> String {
    let mut all = Vec::new();
    for below in fs::read_dir(directory).unwrap() {
        for file in fs::read_dir(below.unwrap().path()).unwrap() {
            all.push(fs::read_to_string(file.unwrap().path()).unwrap());
        }
    }
    assert_eq!(all.len(), 600);
    all.sort_unstable();
    all.dedup();
    assert_eq!(all.len(), 1, "{all:?}");
    all.remove(0)
}

#[test]
fn a_kill_leaves_all_of_a_restoration_or_nothing() {
    on_each_engine(&[], |place, volume| {
        place.weft(&["history", "set", "m", ALL]).well();
        let top = place.path("m/d");
        let commits = ["one", "two"].map(|what| {
            fill(&top, what);
            format!("@{}", committed(place))
        });
        let mut numbers = Numbers(7);
        for round in 0..4 {
            let (tell, done) = channel();
            thread::scope(|scope| {
                scope.spawn(|| {
                    let tell = tell;
                    for at in commits.iter().cycle() {
                        if place.weft(&["restore", "m/d", "--at", at]).code != 0 {
                            break;
                        }
                        let _ = tell.send(());
                    }
                });
                // It dies in the middle of the next one, wherever that is.
                (0..=numbers.below(4)).for_each(|_| done.recv().expect("restored"));
                place.kill_daemon();
            });
            place.mount_again(volume, &[]);
            let said = said_by_all(&top);
            assert!(said == "one" || said == "two", "round {round}: {said}");
        }
    });
}

#[test]
fn a_tree_that_programs_write_to_is_restored() {
    on_each_engine(&[], |place, _| {
        place.weft(&["history", "set", "m", ALL]).well();
        let top = place.path("m/d");
        fill(&top, "then");
        let then = format!("@{}", committed(place));
        fill(&top, "now");
        let ended = AtomicBool::new(false);
        thread::scope(|scope| {
            scope.spawn(|| {
                let mut log = File::create(place.path("m/log")).unwrap();
                while !ended.load(Ordering::Relaxed) {
                    log.write_all(b"a line\n").unwrap();
                    fs::write(place.path("m/other"), "x").unwrap();
                    let _ = fs::metadata(top.join("0/0"));
                }
            });
            for _ in 0..3 {
                place.weft(&["restore", "m/d", "--at", &then]).well();
                assert_eq!(said_by_all(&top), "then");
                fs::write(top.join("0/0"), "now").unwrap();
            }
            ended.store(true, Ordering::Relaxed);
        });
    });
}

/// Only who could write the volume's own files may have its past brought back.
#[test]
fn another_user_cannot_ask_the_daemon() {
    on_each_engine(&["-o", "allow_other"], |place, _| {
        place.weft(&["history", "set", "m", ALL]).well();
        fs::write(place.path("m/file"), "then").unwrap();
        let then = format!("@{}", committed(place));
        fs::write(place.path("m/file"), "now").unwrap();
        if !crate::place::is_root() {
            return eprintln!("SKIPPED another_user_cannot_ask_the_daemon: needs root");
        }
        place.weft_as_stranger(&["restore", "m/file", "--at", &then]).fails_with("cannot be asked by this user");
        assert_eq!(fs::read_to_string(place.path("m/file")).unwrap(), "now");
    });
}

#[test]
fn what_no_kept_commit_has_is_removed_at_once() {
    on_each_engine(&[], |place, volume| {
        place.weft(&["history", "set", "m", "--drop", "off"]).well();
        place.weft(&["gc", "m"]).failed(&["cannot remove dead history", "keeps no history"]);
        place.weft(&["history", "set", "m", "hourly 1d"]).well();
        fs::write(place.path("m/kept"), vec![1; 500_000]).unwrap();
        place.weft(&["snapshot", "create", "m", "kept"]).well();
        for round in 0..20 {
            fs::write(place.path("m/file"), vec![round; 500_000]).unwrap();
            committed(place);
        }
        fs::write(place.path("m/kept"), "now").unwrap();
        assert!(place.weft(&["gc", "m", "--json"]).json()["bytes_free"].is_u64());
        let said = place.weft(&["gc", "m"]).well();
        assert!(said.starts_with("m: nothing is left that no kept commit sees"), "{said}");
        assert!(fs::read(place.path("m/file")).unwrap() == vec![19; 500_000]);
        place.weft(&["snapshot", "restore", "m", "kept"]).well();
        assert!(fs::read(place.path("m/kept")).unwrap() == vec![1; 500_000]);
        place.umount();
        place.weft(&["gc", volume]).well();
        if volume == "v" {
            let kept = fs::read_dir(place.path("v/segments")).unwrap().map(|file| {
                use std::os::unix::fs::MetadataExt;
                file.unwrap().metadata().unwrap().blocks() * 512
            });
            let bytes = kept.sum::<u64>();
            assert!(bytes < 4_000_000, "blocks of 20 versions would be 10 MB: {bytes}");
        }
    });
}

#[test]
fn a_file_is_taken_out_of_history() {
    on_each_engine(&[], |place, volume| {
        place.weft(&["history", "set", "m", ALL]).well();
        let root = place.path("m");
        fs::create_dir(root.join("d")).unwrap();
        let secrets = ["small secret".repeat(10), "large secret".repeat(30_000)];
        for (name, secret) in ["small", "large"].iter().zip(&secrets) {
            fs::write(root.join("d").join(name), secret).unwrap();
            fs::write(root.join("d").join(format!("{name}.kept")), secret).unwrap();
        }
        let first = committed(place);
        // Another version of the row with the same content, then other content, then another file.
        for name in ["small", "large"] {
            assert_eq!(place.sh(&format!("chmod 600 d/{name}")).code, 0);
        }
        place.weft(&["snapshot", "create", "m", "kept"]).well();
        fs::write(root.join("d/small"), "now").unwrap();
        fs::remove_file(root.join("d/large")).unwrap();
        committed(place);
        fs::write(root.join("d/large"), "another file").unwrap();
        fs::write(root.join("d/new"), "same since").unwrap();
        let third = committed(place);
        assert_eq!(place.sh("chmod 640 d/new").code, 0);
        committed(place);
        place.weft(&["history", "forget", "m/d"]).failed(&["/d is a directory; only files"]);
        place.weft(&["history", "forget", "m/d/none"]).failed(&["no commit that is kept has a file /d/none"]);
        place.weft(&["snapshot", "hold", "m", "kept", "1h"]).well();
        place.weft(&["history", "forget", "m/d/small"]).failed(&["snapshot 'kept' is held and has it"]);
        let said = place.weft(&["history", "forget", "m/d/new"]).well();
        assert!(said.contains("history has nothing of its earlier content any more (1 file)"), "{said}");
        let last = place.weft(&["history", "--json", "m"]).json()["last"]["commit"].clone();
        let told = place.weft(&["history", "forget", "--json", "m/d/new"]).json();
        assert_eq!((&told["path"], &told["files"]), (&"m/d/new".into(), &1.into()), "{told}");
        assert!(told["commit"].as_u64() > last.as_u64(), "{told}");
        assert_eq!(fs::read_to_string(root.join("d/new")).unwrap(), "same since");
        assert_eq!(fs::read_to_string(root.join("d/small")).unwrap(), "now");
        place.umount();
        place.weft(&["check", "--read-data", volume]).well();
        place.weft(&["export", "--at", &format!("@{third}"), volume, "third"]).failed(&["d/new", "but empty"]);
        assert_eq!(fs::read_to_string(place.path("third/d/new")).unwrap(), "");
        place.weft(&["export", "--at", &format!("@{first}"), volume, "first"]).well();
        assert_eq!(fs::read_to_string(place.path("first/d/large")).unwrap(), secrets[1]);
    });
}

#[test]
fn all_files_of_a_name_are_taken_out_of_history() {
    on_each_engine(&[], |place, volume| {
        place.weft(&["history", "set", "m", ALL]).well();
        let root = place.path("m");
        let mut commits = Vec::new();
        for round in 0..4 {
            // Editors write a new file and rename it.
            fs::write(root.join("new"), format!("secret {round} ").repeat(20_000)).unwrap();
            fs::write(root.join("other"), format!("{round} ").repeat(20_000)).unwrap();
            fs::rename(root.join("new"), root.join("file")).unwrap();
            commits.push(committed(place));
        }
        fs::remove_file(root.join("file")).unwrap();
        committed(place);
        place.umount();
        let said = place.weft(&["history", "forget", &format!("{volume}:file")]).well();
        assert!(said.contains("(4 files)"), "{said}");
        for (round, commit) in commits.iter().enumerate() {
            let (at, to) = (format!("@{commit}"), format!("export{round}"));
            place.weft(&["export", "--at", &at, volume, &to]).failed(&["file", "but empty"]);
            assert_eq!(fs::read(place.path(format!("{to}/file"))).unwrap(), b"");
            let other = fs::read_to_string(place.path(format!("{to}/other"))).unwrap();
            assert_eq!(other, format!("{round} ").repeat(20_000));
        }
        if volume == "v" {
            let found = Command::new("grep").args(["-rac", "secret"]).arg(place.path("v/segments")).output().unwrap();
            let found = String::from_utf8(found.stdout).unwrap();
            assert!(found.lines().all(|line| line.ends_with(":0")), "its blocks are still there: {found}");
        }
        let of_volume = format!("{volume}:file");
        place.weft(&["undelete", &of_volume]).failed(&["the content of /file as of commit", "weft history forget"]);
    });
}

#[test]
fn links_come_back_and_give_what_their_targets_do_then() {
    on_each_engine(&[], |place, _| {
        place.weft(&["history", "set", "m", ALL]).well();
        let root = place.path("m");
        fs::create_dir(root.join("d")).unwrap();
        fs::write(root.join("d/target"), "then").unwrap();
        place.weft(&["link", "m/d/target", "m/d/link", "--network", "upper"]).well();
        let then = format!("@{}", committed(place));
        fs::write(root.join("d/target"), "now and longer").unwrap();
        assert_eq!(fs::read_to_string(root.join("d/link")).unwrap(), "NOW AND LONGER");
        place.weft(&["restore", "m/d", "--at", &then]).well();
        assert_eq!(fs::read_to_string(root.join("d/link")).unwrap(), "THEN");
        fs::remove_file(root.join("d/link")).unwrap();
        fs::write(root.join("d/target"), "later").unwrap();
        place.weft(&["undelete", "m/d/link"]).well();
        assert_eq!(fs::read_to_string(root.join("d/link")).unwrap(), "LATER");
    });
}

#[test]
fn a_link_of_another_user_leads_to_no_volume() {
    let Some(place) = Place::to_mount() else { return };
    if !crate::place::is_root() {
        return;
    }
    place.weft(&["init", "v"]).well();
    place.directory("m");
    place.mount();
    fs::write(place.path("m/file"), "then").unwrap();
    place.weft(&["snapshot", "create", "m", "kept"]).well();
    fs::write(place.path("m/file"), "now").unwrap();
    let link = place.directory("theirs").join("link");
    std::os::unix::fs::symlink(place.path("m"), &link).unwrap();
    std::os::unix::fs::lchown(&link, Some(65534), Some(65534)).unwrap();
    let own = place.path("own");
    std::os::unix::fs::symlink(place.path("m"), &own).unwrap();
    for words in [
        &["restore", "theirs/link/file", "--at", "kept"][..],
        &["undelete", "theirs/link/gone"],
        &["history", "forget", "theirs/link/file"],
        &["history", "set", "theirs/link", "all 1h"],
        &["snapshot", "delete", "theirs/link", "kept"],
        &["snapshot", "create", "theirs/link", "other"],
        &["set", "theirs/link", "size-max=1G"],
        &["sync", "theirs/link"],
        &["gc", "theirs/link"],
        &["umount", "theirs/link"],
    ] {
        let said = place.weft(words);
        assert!(said.code != 0 && said.err.contains("a symbolic link of user 65534"), "{words:?}: {said:?}");
    }
    assert_eq!(fs::read_to_string(place.path("m/file")).unwrap(), "now");
    // One's own leads there.
    place.weft(&["sync", "own"]).well();
    place.weft(&["restore", "own/file", "--at", "kept"]).well();
    assert_eq!(fs::read_to_string(place.path("m/file")).unwrap(), "then");
    place.umount();
}
