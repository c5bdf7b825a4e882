//! `weft import` where something goes wrong: missing files are named, and no file in the volume is
//! cut short.

use crate::place::Place;
use crate::tree;
use std::fs;
use std::io::Write;
use std::os::unix::fs::PermissionsExt;
use std::sync::atomic::{AtomicBool, Ordering};

#[test]
fn what_cannot_be_read_is_named_and_counted_and_the_rest_is_imported() {
    let place = Place::new();
    let from = place.directory("from");
    std::fs::write(from.join("before"), "there").unwrap();
    std::fs::create_dir(from.join("closed")).unwrap();
    std::fs::write(from.join("secret"), "secret").unwrap();
    std::fs::write(from.join("zebra"), "there").unwrap();
    for name in ["closed", "secret"] {
        std::fs::set_permissions(from.join(name), PermissionsExt::from_mode(0o000)).unwrap();
    }
    place.weft(&["init", "v", "--blocks", "database"]).well();
    let said = place.weft_as_nobody(&["import", "--json", "from", "v"]);
    for name in ["from/closed", "from/secret"] {
        assert!(said.err.contains(&format!("weft: {name}: cannot import it: Permission denied")), "{}", said.err);
    }
    let summary = said.partly();
    assert_eq!((&summary["failed"]["files"], &summary["failed"]["directories"]), (&1.into(), &1.into()));
    assert_eq!((&summary["files"], &summary["ended"]), (&2.into(), &serde_json::Value::Null));
    assert_eq!(summary["failed"]["attributes"], 0, "what cannot be read is named once: {summary}");
    std::fs::set_permissions(from.join("closed"), PermissionsExt::from_mode(0o700)).unwrap();
    place.weft_as_nobody(&["check", "v", "--read-data"]).well();
    place.weft_as_nobody(&["export", "v", "out"]).well();
    for name in ["before", "zebra"] {
        assert_eq!(std::fs::read(place.path("out").join(name)).unwrap(), b"there");
    }
    assert!(!place.path("out/secret").exists());
}

#[test]
fn a_volume_without_room_for_the_target_directory_is_told_as_full() {
    let place = Place::new();
    place.directory("from");
    place.weft(&["init", "v", "--inodes-max", "1"]).well();
    let said = place.weft(&["import", "--json", "from", "v:target"]);
    assert_eq!(said.code, 2, "{said:?}");
    assert!(
        said.err
            .contains("the volume's quota is used up ('weft info v' tells it): not all was imported; remove something"),
        "{said:?}"
    );
    let summary: serde_json::Value = serde_json::from_str(&said.out).unwrap();
    assert_eq!(summary["ended"], "quota");
}

#[test]
fn a_file_that_changes_while_it_is_read_is_told() {
    let place = Place::new();
    let from = place.directory("from");
    std::fs::write(from.join("log"), vec![b'a'; 64 << 20]).unwrap();
    std::fs::write(from.join("other"), "other").unwrap();
    place.weft(&["init", "v"]).well();
    let is_over = AtomicBool::new(false);
    let said = std::thread::scope(|scope| {
        scope.spawn(|| {
            let mut log = std::fs::OpenOptions::new().append(true).open(from.join("log")).unwrap();
            while !is_over.load(Ordering::Relaxed) {
                log.write_all(b"a").unwrap();
            }
        });
        let said = place.weft(&["import", "--json", "from", "v"]);
        is_over.store(true, Ordering::Relaxed);
        said
    });
    assert!(said.err.contains("from/log: it changed while it was read"), "{}", said.err);
    let summary = said.partly();
    assert_eq!((&summary["failed"]["changed"], &summary["files"]), (&1.into(), &2.into()));
    place.weft(&["export", "v", "out"]).well();
    assert!(std::fs::metadata(place.path("out/log")).unwrap().len() >= 64 << 20);
}

#[test]
fn times_that_a_volume_cannot_hold_are_named_and_counted() {
    let place = Place::new();
    let from = place.directory("from");
    for name in ["late", "now"] {
        std::fs::write(from.join(name), name).unwrap();
    }
    // In the year 2286.
    let late = std::time::UNIX_EPOCH + std::time::Duration::from_secs(10_000_000_000);
    std::fs::File::open(from.join("late")).unwrap().set_modified(late).unwrap();
    if from.join("late").metadata().unwrap().modified().unwrap() != late {
        return eprintln!("SKIPPED times_that_a_volume_cannot_hold_are_named_and_counted: nor can this file system");
    }
    place.weft(&["init", "v"]).well();
    for kept in [0, 2] {
        let said = place.weft(&["import", "--json", "from", "v"]);
        assert_eq!((said.code, said.err.lines().count()), (0, 1), "{said:?}");
        assert!(said.err.contains("from/late: its times lie outside of the years 1677 to 2262"), "{said:?}");
        let summary: serde_json::Value = serde_json::from_str(&said.out).unwrap();
        assert_eq!((&summary["times_not_kept"], &summary["kept"]), (&1.into(), &kept.into()), "{summary}");
    }
    let said = place.weft(&["import", "from", "v"]);
    assert!(said.out.contains("1 had times that a volume cannot hold"), "{said:?}");
}

#[test]
fn an_overwritten_name_stays_if_there_is_no_room_for_the_new_entry() {
    let place = Place::new();
    let from = place.directory("from");
    std::fs::write(from.join("name"), "precious").unwrap();
    std::fs::hard_link(from.join("name"), from.join("other")).unwrap();
    place.weft(&["init", "v", "--inodes-max", "2"]).well();
    place.weft(&["import", "from", "v"]).well();
    let links = place.directory("links");
    std::os::unix::fs::symlink("target", links.join("name")).unwrap();
    let said = place.weft(&["import", "--overwrite", "links", "v"]);
    assert!(said.code == 2 && said.err.contains("the volume's quota is used up ('weft info v'"), "{said:?}");
    place.weft(&["export", "v", "out"]).well();
    assert_eq!(std::fs::read(place.path("out/name")).unwrap(), b"precious");
    assert_eq!(std::fs::read_dir(place.path("out")).unwrap().count(), 2);
    // With room the link takes the place of the file.
    place.weft(&["init", "w"]).well();
    for (directory, arguments) in [("from", &["import"][..]), ("links", &["import", "--overwrite"])] {
        place.weft(&[arguments, &[directory, "w"]].concat()).well();
    }
    place.weft(&["export", "w", "replaced"]).well();
    assert_eq!(std::fs::read_link(place.path("replaced/name")).unwrap(), std::path::Path::new("target"));
    assert_eq!(std::fs::read_dir(place.path("replaced")).unwrap().count(), 2);
}

#[test]
fn a_full_volume_ends_an_import_with_a_summary_and_leaves_only_whole_files() {
    let place = Place::new();
    let from = place.directory("from");
    for number in 0..8 {
        std::fs::write(from.join(number.to_string()), vec![7; 200_000]).unwrap();
    }
    place.weft(&["init", "v", "--size-max", "1M"]).well();
    let said = place.weft(&["import", "--json", "from", "v"]);
    assert!(said.code == 2 && said.err.contains("the volume's quota is used up ('weft info v'"), "{said:?}");
    let summary: serde_json::Value = serde_json::from_str(&said.out).unwrap();
    assert_eq!((&summary["ended"], &summary["complete"]), (&"quota".into(), &false.into()));
    assert_eq!(place.weft(&["check", "v", "--read-data"]).well(), "v: clean\n");
    let exported = place.weft(&["export", "--json", "v", "out"]).json();
    assert_eq!(exported["files"], summary["files"]);
    for entry in std::fs::read_dir(place.path("out")).unwrap() {
        assert_eq!(entry.unwrap().metadata().unwrap().len(), 200_000);
    }
}

#[test]
fn an_interrupted_import_leaves_no_file_short_and_goes_on() {
    const COUNT: usize = 500;
    let place = Place::new();
    let from = place.directory("from");
    for number in 0..COUNT {
        std::fs::write(from.join(format!("file {number}")), vec![7; 20_000]).unwrap();
    }
    place.weft(&["init", "v"]).well();
    // Its blocks begin to lie in the volume: it is in the middle of it.
    let has_begun = || std::fs::read_dir(place.path("v/segments")).unwrap().next().is_some();
    let said = place.interrupted(&["import", "from", "v"], has_begun);
    assert!(said.code == 0 || said.err.contains("interrupted: not all was imported"), "{said:?}");
    assert_eq!(place.weft(&["check", "v", "--read-data"]).well(), "v: clean\n");
    place.weft(&["export", "v", "out"]).well();
    for entry in std::fs::read_dir(place.path("out")).unwrap() {
        assert_eq!(entry.unwrap().metadata().unwrap().len(), 20_000);
    }
    let rest = place.weft(&["import", "--json", "from", "v"]).json();
    assert_eq!(rest["files"].as_u64().unwrap() + rest["kept"].as_u64().unwrap(), COUNT as u64);
}

#[test]
fn what_was_there_already_is_counted_alike_by_import_and_export() {
    let place = Place::new();
    let from = place.directory("from");
    std::fs::create_dir_all(from.join("a/b")).unwrap();
    std::fs::write(from.join("a/file"), "file").unwrap();
    std::fs::hard_link(from.join("a/file"), from.join("a/b/again")).unwrap();
    std::os::unix::fs::symlink("file", from.join("a/link")).unwrap();
    place.weft(&["init", "v"]).well();
    for kept in [0, 5] {
        let summary = place.weft(&["import", "--json", "from", "v:to"]).json();
        assert_eq!(summary["kept"], kept, "{summary}");
    }
    place.weft(&["export", "v:to", "out"]).well();
    let summary = place.weft(&["export", "--continue", "--json", "v:to", "out"]).json();
    assert_eq!(summary["kept"], 5, "{summary}");
}

#[test]
fn an_import_that_is_repeated_keeps_what_is_there() {
    let place = Place::new();
    let from = place.directory("from");
    let was = tree::make(&from);
    place.weft(&["init", "v"]).well();
    place.weft(&["import", "from", "v:tree"]).well();
    let again = place.weft(&["import", "--json", "from", "v:tree"]).json();
    for name in ["files", "directories", "others", "bytes"] {
        assert_eq!(again[name], 0, "{name} of {again}");
    }
    place.weft(&["check", "v", "--read-data"]).well();
    place.weft(&["export", "v:tree", "out"]).well();
    // Comparing files has moved their access times.
    let mut is = tree::describe(&place.path("out"));
    is.iter_mut().for_each(|(path, told)| told.accessed_as(&was[path]));
    assert!(is == was);
}

#[test]
fn a_damaged_file_is_replaced_by_its_original() {
    let place = Place::new();
    std::fs::write(place.directory("from").join("file"), [7; 100_000]).unwrap();
    place.weft(&["init", "--history", "off", "v"]).well();
    place.weft(&["import", "from", "v"]).well();
    crate::export::damage(&place);
    let said = place.weft(&["import", "--json", "from", "v"]);
    assert!(said.err.contains("from/file: cannot import it: damaged"), "{}", said.err);
    assert_eq!(said.partly()["damaged"], 1);
    let summary = place.weft(&["import", "--overwrite", "--json", "from", "v"]).json();
    assert_eq!(summary["files"], 1);
    assert_eq!(place.weft(&["check", "v", "--read-data"]).well(), "v: clean\n");
}

#[test]
fn what_is_in_the_way_is_named_and_only_files_are_replaced() {
    let place = Place::new();
    let (one, two) = (place.directory("one"), place.directory("two"));
    for (from, reversed) in [(&one, false), (&two, true)] {
        let (file, directory) = if reversed { ("b", "a") } else { ("a", "b") };
        std::fs::write(from.join(file), "file").unwrap();
        std::fs::create_dir(from.join(directory)).unwrap();
        std::os::unix::fs::symlink(file, from.join("link")).unwrap();
        std::fs::write(from.join("same"), file).unwrap();
    }
    place.weft(&["init", "v"]).well();
    place.weft(&["import", "one", "v"]).well();
    let summary = place.weft(&["import", "--json", "two", "v"]).partly();
    let failed = |what: &str| summary["failed"][what].as_u64().unwrap();
    assert_eq!((failed("files"), failed("directories"), failed("symlinks")), (2, 1, 1), "{summary}");
    let said = place.weft(&["import", "--overwrite", "--json", "two", "v"]);
    assert!(said.err.contains("two/b: cannot import it: in the volume a directory has that name"), "{}", said.err);
    let summary = said.partly();
    assert_eq!((&summary["failed"]["files"], &summary["failed"]["directories"]), (&1.into(), &1.into()));
    place.weft(&["check", "v", "--read-data"]).well();
    place.weft(&["export", "v", "out"]).well();
    assert_eq!(std::fs::read(place.path("out/same")).unwrap(), b"b");
    assert_eq!(std::fs::read_link(place.path("out/link")).unwrap().to_str(), Some("b"));
    assert!(place.path("out/a").is_file() && place.path("out/b").is_dir());
}

#[test]
fn a_volume_whose_name_holds_a_colon_is_the_same_for_all_commands() {
    let place = Place::new();
    let from = place.directory("from");
    std::fs::create_dir(from.join("in:side")).unwrap();
    std::fs::write(from.join("in:side/file"), "there").unwrap();
    for volume in ["a:b", "./c:d"] {
        place.weft(&["init", volume]).well();
        place.weft(&["import", "from", volume]).well();
        place.weft(&["import", "from", &format!("{volume}:be:low")]).well();
        place.weft(&["digest", &format!("{volume}:"), &format!("{volume}:be:low/in:side")]).well();
        place.weft(&["diff", &format!("{volume}:be:low"), "from"]).well();
        let out = format!("out of {}", volume.replace('/', "-"));
        place.weft(&["export", &format!("{volume}:in:side"), &out]).well();
        assert_eq!(std::fs::read(place.path(out).join("file")).unwrap(), b"there");
    }
    // An existing file wins, and a missing one is reported by its whole name.
    std::fs::write(place.path("a:b:c"), "a file").unwrap();
    assert!(place.weft(&["digest", "a:b:c"]).well().ends_with("  a:b:c\n"));
    place.weft(&["export", "./no:thing", "nowhere"]).could_not(&["there is no volume at ./no:thing"]);
    place.weft(&["import", "from", "no:thing"]).could_not(&["there is no volume at no;"]);
}

/// In a mount that name leads to the past, and nobody can make it.
#[test]
fn an_entry_with_the_name_of_the_past_is_imported_and_keeps_it() {
    let Some(place) = Place::to_mount() else { return };
    let own = place.directory("from").join("deep/.weft");
    std::fs::create_dir_all(&own).unwrap();
    std::fs::write(own.join("file"), "own").unwrap();
    place.weft(&["init", "v"]).well();
    let said = place.weft(&["import", "from", "v"]);
    assert!(said.code == 0 && said.err.contains("from/deep/.weft has the name of the past"), "{said:?}");
    assert_eq!(place.weft(&["import", "from", "v:deep/.weft"]).code, 0);
    let said = place.weft(&["import", "from", "v:.weft/at"]);
    assert!(said.code == 2 && said.err.contains(".weft is the past of its directory"), "{said:?}");
    place.directory("m");
    place.mount();
    assert_eq!(
        place.sh("cat deep/.weft/file deep/.weft/deep/.weft/file; ls .weft/at/now/deep/.weft").well(),
        "ownowndeep\nfile\n"
    );
    place.umount();
    place.weft(&["check", "--read-data", "v"]).well();
}

#[test]
fn what_is_excluded_stays_out_with_all_that_is_in_it() {
    let place = Place::new();
    let from = place.directory("from");
    for name in ["keep", "a.o", "deep/a.o", "deep/b", "target/x", "deep/target/y", "gen/z", "deep/gen/w"] {
        std::fs::create_dir_all(from.join(name).parent().unwrap()).unwrap();
        std::fs::write(from.join(name), name).unwrap();
    }
    place.weft(&["init", "v"]).well();
    let words = ["import", "--json", "--exclude", "*.o", "--exclude=target", "--exclude", "/gen", "from", "v"];
    let summary = place.weft(&words).json();
    assert_eq!((&summary["files"], &summary["excluded"]), (&3.into(), &5.into()), "{summary}");
    place.weft(&["export", "v", "out"]).well();
    for name in ["keep", "deep/b", "deep/gen/w"] {
        assert!(place.path("out").join(name).exists(), "{name}");
    }
    for name in ["a.o", "deep/a.o", "target", "deep/target", "gen"] {
        assert!(!place.path("out").join(name).exists(), "{name}");
    }
    let said = place.weft(&["import", "--exclude", "/", "from", "v"]);
    assert!(said.code == 2 && said.err.contains("it would be of everything"), "{said:?}");
}

#[test]
fn a_rehearsal_tells_what_an_import_would_do_and_does_nothing() {
    let place = Place::new();
    place.weft(&["init", "v"]).well();
    let directory = place.directory("from");
    place.directory("from/sub");
    place.directory("from/target");
    fs::write(directory.join("new"), "12345").unwrap();
    fs::write(directory.join("sub/same"), "same").unwrap();
    fs::write(directory.join("sub/other"), "first").unwrap();
    fs::write(directory.join("target/left"), "out").unwrap();
    std::os::unix::fs::symlink("new", directory.join("link")).unwrap();
    let rehearsed = |more: &[&str]| place.weft(&[&["import", "--dry-run", "--json", "from", "v:d"], more].concat());
    let told = rehearsed(&["--exclude", "target"]).json();
    assert_eq!((&told["files"], &told["bytes"], &told["directories"]), (&3.into(), &14.into(), &1.into()), "{told}");
    assert_eq!((&told["others"], &told["excluded"], &told["kept"]), (&1.into(), &1.into(), &0.into()), "{told}");
    assert_eq!(place.weft(&["ls", "v:"]).well(), "");
    place.weft(&["import", "--exclude", "target", "from", "v:d"]).well();
    fs::write(directory.join("sub/other"), "other than before").unwrap();
    fs::remove_file(directory.join("new")).unwrap();
    fs::create_dir(directory.join("new")).unwrap();
    let told = rehearsed(&["--exclude", "target"]).partly();
    assert_eq!(
        (&told["files"], &told["kept"], &told["failures"][0]["path"].is_string()),
        (&0.into(), &3.into(), &true)
    );
    assert_eq!(told["failures"].as_array().unwrap().len(), 2, "{told}");
    let told = rehearsed(&["--exclude", "target", "--overwrite"]).partly();
    assert_eq!((&told["files"], &told["bytes"]), (&1.into(), &17.into()), "{told}");
    let said = place.weft(&["import", "--dry-run", "from/sub", "v:e"]).well();
    assert!(said.starts_with("would import 2 files"), "{said}");
    place.weft(&["check", "--read-data", "v"]).well();
}
