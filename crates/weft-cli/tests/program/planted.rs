//! Files that another user put into a volume, or that another copy of it has, too.

use crate::place::{Place, is_root, write_synced};
use std::os::unix::fs::{chown, symlink};
use std::path::Path;
use std::process::Command;

/// Names of files that a volume in a directory may have.
const FILES: [&str; 8] = [
    "meta.sqlite",
    "meta.sqlite-wal",
    "meta.sqlite-shm",
    "meta.sqlite-journal",
    "intents",
    "lock",
    "segments/00000001.seg",
    "segments/00000002.seg",
];

/// Commands that use volume `v`.
const COMMANDS: [&[&str]; 6] = [
    &["info", "v"],
    &["check", "v"],
    &["scrub", "v"],
    &["export", "v", "e"],
    &["mount", "v", "m"],
    &["mount", "--read-only", "v", "m"],
];

fn run(program: &str, arguments: &[&str], place: &Place) {
    assert!(Command::new(program).args(arguments).current_dir(place.path("")).status().unwrap().success());
}

/// Volume `v` with a file that lies in a segment, unmounted, and directory `m`.
fn filled(place: &Place, home: &str) {
    place.directory("in");
    std::fs::write(place.path("in/large"), vec![5; 300_000]).unwrap();
    place.weft(&["init", "v", "--blocks", home]).well();
    place.weft(&["import", "in", "v"]).well();
}

#[test]
fn files_that_others_put_into_a_volume_are_neither_followed_nor_waited_for() {
    let place = Place::new();
    place.weft(&["init", "v"]).well();
    place.weft(&["init", "w"]).well();
    let database = place.path("v/meta.sqlite");
    std::fs::remove_file(&database).unwrap();
    symlink(place.path("w/meta.sqlite"), &database).unwrap();
    place.weft(&["info", "v"]).failed(&["meta.sqlite", "it is a symbolic link"]);
    for command in [&["check", "v"][..], &["scrub", "v"], &["export", "v", "e"]] {
        place.weft(command).could_not(&["meta.sqlite", "it is a symbolic link"]);
    }
    std::fs::remove_file(&database).unwrap();
    assert!(Command::new("mkfifo").arg(&database).status().unwrap().success());
    place.weft(&["check", "v"]).could_not(&["meta.sqlite", "it is a pipe"]);
    std::fs::remove_dir(place.path("w/segments")).unwrap();
    symlink(place.path("v/segments"), place.path("w/segments")).unwrap();
    place.weft(&["check", "w"]).could_not(&["segments is a symbolic link", "mount --bind"]);
}

/// Puts a thing of `kind` where `file` is.
fn plant(kind: &str, file: &Path, place: &Place) {
    let aside = place.path("aside");
    let _ = std::fs::remove_file(&aside);
    if std::fs::rename(file, &aside).is_err() {
        std::fs::write(&aside, "").unwrap();
    }
    match kind {
        "pipe" => run("mkfifo", &[file.to_str().unwrap()], place),
        "symbolic link" => symlink(&aside, file).unwrap(),
        "directory" => std::fs::create_dir(file).unwrap(),
        _ => {
            std::fs::copy(&aside, file).unwrap();
            chown(file, Some(65533), None).unwrap();
        }
    }
}

#[test]
fn no_file_of_a_volume_is_anything_but_its_owners_regular_file() {
    let Some(place) = Place::to_mount() else { return };
    place.directory("m");
    filled(&place, "segments");
    let another = if is_root() { "another user" } else { "pipe" };
    let mut turn = 0;
    for file in FILES {
        for kind in ["pipe", "symbolic link", "directory", another] {
            // The owner of the database is the volume's.
            if file == "meta.sqlite" && kind == "another user" {
                continue;
            }
            run("cp", &["-a", "v", "kept"], &place);
            plant(kind, &place.path("v").join(file), &place);
            let words = [file, if file.ends_with("-journal") { "a rollback journal" } else { kind }];
            // Each meets each of the others as often.
            turn += 1;
            for command in [COMMANDS[turn % COMMANDS.len()], COMMANDS[(turn + 3) % COMMANDS.len()]] {
                let said = place.weft(command);
                let last = said.err.lines().last().unwrap_or_default();
                assert!(said.code != 0, "{file} {kind} {command:?}: {said:?}");
                assert!(words.iter().all(|word| last.contains(word)), "{file} {kind} {command:?}: {said:?}");
                assert!(!place.is_mounted("m"));
            }
            std::fs::remove_dir_all(place.path("v")).unwrap();
            std::fs::rename(place.path("kept"), place.path("v")).unwrap();
        }
    }
}

/// A copy `w` of volume `v` by hard links; of a volume in one file, a second name.
fn link(place: &Place, home: &str) {
    run("cp", &["-al", "v", "w"], place);
    if home == "segments" {
        // As a copy by rsync --link-dest has its own.
        for own in ["lock", "intents"] {
            let _ = std::fs::remove_file(place.path("w").join(own));
        }
    }
}

#[test]
fn files_that_two_copies_share_are_read_and_never_written() {
    for home in ["segments", "database"] {
        let Some(place) = Place::to_mount() else { return };
        let directory = place.directory("m");
        filled(&place, home);
        link(&place, home);
        let refusal = &["has 2 names (hard links)", "cp -a --reflink=auto"];
        for name in ["v", "w"] {
            place.weft(&["mount", name, "m"]).failed(refusal);
            place.weft(&["import", "in", name]).could_not(refusal);
            place.weft(&["convert", name, "new", "--blocks", home]).could_not(refusal);
            for repair in [&["check", name, "--repair"][..], &["check", name, "--repair", "--discard"]] {
                place.weft(repair).could_not(refusal);
            }
            for command in ["info", "check", "scrub", "log"] {
                let said = place.weft(&[command, name]);
                assert!(said.code == 0 && said.err.contains("has 2 names (hard links)"), "{command}: {said:?}");
            }
            let said = place.weft(&["mount", "--read-only", name, "m"]);
            assert!(said.code == 0 && said.err.contains("has 2 names (hard links)"), "{said:?}");
            assert_eq!(std::fs::read(directory.join("large")).unwrap(), vec![5; 300_000]);
            place.umount();
        }
        run("cp", &["-a", "w", "x"], &place);
        place.weft(&["mount", "x", "m"]).well();
        write_synced(&directory.join("more"), b"more");
        place.umount();
        std::fs::remove_dir_all(place.path("w")).or_else(|_| std::fs::remove_file(place.path("w"))).unwrap();
        place.mount();
        place.umount();
    }
}

#[test]
fn segments_that_two_copies_share_are_not_written() {
    let Some(place) = Place::to_mount() else { return };
    place.directory("m");
    filled(&place, "segments");
    run("cp", &["-a", "v", "w"], &place);
    let shared = place.path("w/segments/00000001.seg");
    std::fs::remove_file(&shared).unwrap();
    std::fs::hard_link(place.path("v/segments/00000001.seg"), shared).unwrap();
    place.weft(&["mount", "w", "m"]).failed(&["00000001.seg has 2 names (hard links)"]);
    assert_eq!(place.weft(&["check", "--read-data", "w"]).code, 0);
}

#[test]
fn a_volume_in_use_is_not_read_by_another_name() {
    for home in ["segments", "database"] {
        let Some(place) = Place::to_mount() else { return };
        place.directory("m");
        filled(&place, home);
        place.mount();
        link(&place, home);
        for command in [&["info", "w"], &["check", "w"], &["scrub", "w"]] {
            let said = place.weft(command);
            assert!(said.code != 0 && said.err.contains("in use by another process"), "{home} {command:?}: {said:?}");
        }
        place.umount();
    }
}
