//! Files of a volume that are missing, of another time, or used by others: they are reported by
//! name, and nothing is changed.

use crate::place::{Place, write_synced};
use std::fs;
use std::process::Command;

#[test]
fn the_database_of_a_directory_volume_is_no_volume_of_its_own() {
    let Some(place) = Place::to_mount() else { return };
    place.directory("m");
    place.weft(&["init", "v"]).well();
    let refusal = &["is the database of a volume", "name the directory"];
    for command in [&["mount", "v/meta.sqlite", "m"][..], &["info", "v/meta.sqlite"]] {
        place.weft(command).failed(refusal);
    }
    place.weft(&["check", "v/meta.sqlite"]).could_not(refusal);
    fs::rename(place.path("v/meta.sqlite"), place.path("alone")).unwrap();
    place.weft(&["mount", "alone", "m"]).failed(&["is the database of a volume", "name the directory"]);
}

#[test]
fn a_directory_volume_without_its_database_is_told_of() {
    let place = Place::new();
    place.directory("m");
    place.weft(&["init", "v"]).well();
    fs::remove_file(place.path("v/meta.sqlite")).unwrap();
    let refusal = &["not a whole Weft volume", "v/meta.sqlite is missing", "from a copy"];
    for command in [&["mount", "v", "m"][..], &["info", "v"]] {
        place.weft(command).failed(refusal);
    }
    place.weft(&["check", "v"]).could_not(refusal);
}

#[test]
fn a_volume_whose_lock_was_removed_is_still_in_use() {
    let Some(place) = Place::to_mount() else { return };
    let directory = place.mounted();
    write_synced(&directory.join("file"), b"synced");
    fs::remove_file(place.path("v/lock")).unwrap();
    place.directory("m2");
    for command in [&["check", "--repair", "v"][..], &["check", "v"]] {
        place.weft(command).could_not(&["in use by another process"]);
    }
    place.weft(&["mount", "v", "m2"]).failed(&["in use by another process"]);
    place.umount();
    place.weft(&["check", "--read-data", "v"]).well();
}

/// Volume `v` with its `blocks` there, whose daemon was killed after `file` was synced; and its
/// write-ahead log and intent log. None where nothing can be mounted.
fn crashed(blocks: &str) -> Option<(Place, [&'static str; 2])> {
    let place = Place::to_mount()?;
    let directory = place.directory("m");
    place.weft(&["init", "v", "--blocks", blocks]).well();
    place.mount();
    write_synced(&directory.join("file"), &[7; 100_000]);
    let (hold, logs) = match blocks {
        "segments" => ("v/lock", ["v/meta.sqlite-wal", "v/intents"]),
        _ => ("v", ["v-wal", "v-intents"]),
    };
    place.kill(hold);
    Some((place, logs))
}

#[test]
fn a_crashed_database_alone_is_missed_by_its_logs() {
    for blocks in ["segments", "database"] {
        let Some((place, logs)) = crashed(blocks) else { return };
        logs.iter().for_each(|log| fs::remove_file(place.path(log)).unwrap());
        place.weft(&["mount", "v", "m"]).failed(&["is missing", "--accept-loss"]);
        for command in ["check", "scrub"] {
            let said = place.weft(&[command, "v"]);
            assert!(said.code == 1 && said.out.ends_with("follow the advice above\n"), "{said:?}");
            assert!(!said.out.contains("--repair"), "{said:?}");
        }
    }
}

#[test]
fn a_log_of_an_earlier_life_does_not_destroy_what_came_after_it() {
    let Some(place) = Place::to_mount() else { return };
    let directory = place.directory("m");
    place.directory("away");
    place.weft(&["init", "v", "--blocks", "database"]).well();
    place.mount();
    write_synced(&directory.join("old"), b"old");
    place.weft(&["digest", "m"]).well();
    place.kill("v");
    let before = fs::read(place.path("v-wal")).unwrap();
    assert!(!before.is_empty());
    fs::rename(place.path("v"), place.path("away/v")).unwrap();
    assert_eq!(place.weft(&["mount", "--accept-loss", "away/v", "m"]).code, 0);
    write_synced(&directory.join("new"), &[8; 300_000]);
    place.umount();
    fs::rename(place.path("away/v"), place.path("v")).unwrap();
    let whole = fs::read(place.path("v")).unwrap();
    for command in [&["check", "v"][..], &["check", "--repair", "v"]] {
        assert_eq!(place.weft(command).code, 1);
    }
    place.weft(&["mount", "v", "m"]).failed(&["v-wal"]);
    assert!(fs::read(place.path("v")).unwrap() == whole && fs::read(place.path("v-wal")).unwrap() == before);
    ["v-wal", "v-shm", "v-intents"].iter().for_each(|log| drop(fs::remove_file(place.path(log))));
    place.weft(&["check", "--read-data", "v"]).well();
    place.mount();
    assert_eq!(fs::read(directory.join("new")).unwrap(), [8; 300_000]);
    place.umount();
}

#[test]
fn a_missing_segment_is_told_and_its_number_is_not_given_again() {
    let Some(place) = Place::to_mount() else { return };
    let directory = place.mounted();
    write_synced(&directory.join("precious"), &[9; 300_000]);
    place.umount();
    let segment = place.path("v/segments/00000001.seg");
    fs::rename(&segment, place.path("away")).unwrap();
    place.weft(&["mount", "v", "m"]).failed(&["00000001.seg is missing", "--accept-loss"]);
    let said = place.weft(&["mount", "--accept-loss", "v", "m"]);
    assert!(said.code == 0 && said.err.contains("00000001.seg is missing"), "{said:?}");
    write_synced(&directory.join("new"), &[1; 300_000]);
    assert!(fs::read(directory.join("precious")).is_err());
    place.umount();
    assert_eq!(place.weft(&["check", "v"]).code, 1);
    fs::rename(place.path("away"), &segment).unwrap();
    place.weft(&["check", "--read-data", "v"]).well();
    place.mount();
    assert_eq!(fs::read(directory.join("precious")).unwrap(), [9; 300_000]);
    assert_eq!(fs::read(directory.join("new")).unwrap(), [1; 300_000]);
    place.umount();
}

#[test]
fn operations_that_a_volume_does_not_take_are_told_beforehand_and_given_up_by_name() {
    let Some(place) = Place::to_mount() else { return };
    if Command::new("sqlite3").arg("--version").output().is_err() {
        return eprintln!("SKIPPED operations_that_a_volume_does_not_take_...: needs sqlite3");
    }
    let directory = place.directory("m");
    place.weft(&["init", "v"]).well();
    place.mount();
    fs::write(directory.join("gone"), b"").unwrap();
    place.umount();
    place.weft(&["mount", "--commit-interval", "3600", "v", "m"]).well();
    fs::remove_file(directory.join("gone")).unwrap();
    write_synced(&directory.join("later"), b"synced");
    place.kill("v/lock");
    let said = place.weft(&["check", "--repair", "v"]).well();
    assert!(said.contains("v: nothing to repair;") && said.contains("and a mount applies them first"), "{said}");
    // The row of the file is lost, and a repair gives up its name.
    let lost = "DELETE FROM fileatt WHERE ino = (SELECT ino FROM naming WHERE name = CAST('gone' AS BLOB))";
    assert!(Command::new("sqlite3").arg(place.path("v/meta.sqlite")).arg(lost).status().unwrap().success());
    let said = place.weft(&["check", "--repair", "--discard", "v"]);
    assert!(said.out.contains("(repaired)"), "{said:?}");
    for command in [&["check", "v"][..], &["check", "--repair", "v"]] {
        let said = place.weft(command);
        assert_eq!(said.code, 1, "{said:?}");
        for words in ["/gone: operation ", "the removal", "cannot be applied", "--accept-loss", "the advice above"] {
            assert!(said.out.contains(words), "no '{words}' in {}", said.out);
        }
    }
    let refusal = &["the removal of /gone, was synced and cannot be applied", "--accept-loss"];
    place.weft(&["mount", "v", "m"]).failed(refusal);
    place.weft(&["export", "v", "out"]).could_not(refusal);
    // A salvage gives them up as well, so that what it brings can be mounted.
    let said = place.weft(&["check", "--salvage", "v", "new"]);
    for words in ["operation /gone: operation ", "the removal", "cannot be applied", "it is given up"] {
        assert!(said.code == 1 && said.out.contains(words), "no '{words}' in {said:?}");
    }
    place.weft(&["check", "new"]).well();
    place.weft(&["mount", "new", "m"]).well();
    assert_eq!(fs::read(directory.join("later")).unwrap(), b"synced");
    place.umount();
    let said = place.weft(&["mount", "--accept-loss", "v", "m"]);
    assert!(said.code == 0 && said.err.contains("the removal of /gone"), "{said:?}");
    assert!(said.err.contains("kept a copy of what is given up"), "{said:?}");
    assert_eq!(fs::read(directory.join("later")).unwrap(), b"synced");
    place.umount();
    place.weft(&["check", "v"]).well();
}

/// Each log that is gone or of another moment is reported, and no loss is silent.
#[test]
fn a_salvage_tells_of_logs_that_are_gone_or_of_another_moment() {
    for blocks in ["segments", "database"] {
        let Some((place, [wal, log])) = crashed(blocks) else { return };
        let directory = place.path("m");
        let salvaged = |new: &str, words: &[&str]| {
            let said = place.weft(&["check", "--salvage", "v", new]);
            assert!(said.code == 1 && words.iter().all(|word| said.out.contains(word)), "{said:?}");
        };
        fs::rename(place.path(log), place.path("log")).unwrap();
        salvaged("without-log", &[&format!("{log}: the intent log"), "is missing"]);
        fs::rename(place.path("log"), place.path(log)).unwrap();
        let said = place.weft(&["check", "--salvage", "v", "waiting"]).well();
        assert!(said.contains("waits in the intent log") || said.contains("wait in the intent log"), "{said}");
        let old = fs::read(place.path(wal)).unwrap();
        place.mount();
        fs::write(directory.join("file"), b"new").unwrap();
        place.umount();
        fs::write(place.path(wal), &old).unwrap();
        let said = place.weft(&["check", "v"]);
        let told = format!("{}{}", said.out, said.err);
        assert!(
            said.code == 1 && told.contains("would destroy it") && !told.contains("repairs what can be"),
            "{said:?}"
        );
        salvaged("without-wal", &[&format!("{wal}: it ends with commit"), "nothing of it is used"]);
        assert_eq!(place.weft(&["export", "without-wal", "out"]).code, 0);
        assert_eq!(fs::read(place.path("out/file")).unwrap(), b"new");
    }
}
