//! Rows of a volume that are gone as a whole: every command reports that, or gives all there is,
//! bit for bit; a repair keeps existing data.

use crate::place::Place;
use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;
use std::process::Command;

/// Content found at each path: bytes, or the number of an error.
type Found = BTreeMap<String, Result<Vec<u8>, i32>>;

/// All that can be reached below `root`.
fn walk(root: &Path) -> Found {
    let mut found = Found::new();
    let mut waiting = vec![String::new()];
    while let Some(directory) = waiting.pop() {
        let errno = |error: std::io::Error| error.raw_os_error().unwrap_or(-1);
        let entries = match fs::read_dir(root.join(&directory)) {
            Ok(entries) => entries,
            Err(error) => {
                found.insert(format!("{directory}/"), Err(errno(error)));
                continue;
            }
        };
        let mut whole = Ok(Vec::new());
        for entry in entries {
            let Ok(name) =
                entry.map(|entry| entry.file_name().into_string().unwrap()).map_err(|error| whole = Err(errno(error)))
            else {
                continue;
            };
            let path = if directory.is_empty() { name } else { format!("{directory}/{name}") };
            let full = root.join(&path);
            match full.symlink_metadata().map(|metadata| metadata.file_type()) {
                Err(error) => drop(found.insert(path, Err(errno(error)))),
                Ok(kind) if kind.is_dir() => waiting.push(path),
                Ok(kind) if kind.is_symlink() => {
                    let target = fs::read_link(&full).map(|target| target.to_str().unwrap().into());
                    found.insert(path, target.map_err(errno));
                }
                Ok(_) => drop(found.insert(path, fs::read(&full).map_err(errno))),
            }
        }
        found.insert(format!("{directory}/"), whole);
    }
    found
}

/// Makes a volume `v` with some of everything. Returns its content.
fn filled(place: &Place, blocks: &str) -> Found {
    let from = place.directory("from");
    for directory in ["few", "few/deep", "empty"] {
        fs::create_dir(from.join(directory)).unwrap();
    }
    for (name, content) in [("few/one", "first"), ("few/two", "second"), ("few/deep/three", "third"), ("top", "fourth")]
    {
        fs::write(from.join(name), content).unwrap();
    }
    fs::write(from.join("few/large"), (0..200_000u32).flat_map(u32::to_le_bytes).collect::<Vec<_>>()).unwrap();
    fs::hard_link(from.join("few/large"), from.join("again")).unwrap();
    symlink("few/one", from.join("link")).unwrap();
    place.weft(&["init", "v", "--blocks", blocks]).well();
    place.weft(&["import", "from", "v"]).well();
    walk(&from)
}

fn database(place: &Place) -> std::path::PathBuf {
    if place.path("v").is_dir() { place.path("v/meta.sqlite") } else { place.path("v") }
}

/// Copies a file or directory.
fn copy(place: &Place, from: &str, to: &str) {
    let copied = Command::new("cp").arg("-a").arg(place.path(from)).arg(place.path(to)).status();
    assert!(copied.unwrap().success());
}

/// Removes a file or directory, if it is there.
fn remove(path: &Path) {
    let _ = if path.is_dir() { fs::remove_dir_all(path) } else { fs::remove_file(path) };
}

/// Deletes rows of the volume. `{few}` is the inode of that name.
fn delete(place: &Place, which: &str) {
    let of = |name: &str| format!("(SELECT ino FROM naming WHERE name = CAST('{name}' AS BLOB))");
    let names = ["few", "deep", "large", "link", "two"];
    let which = names.iter().fold(which.to_owned(), |which, name| which.replace(&format!("{{{name}}}"), &of(name)));
    let run = Command::new("sqlite3").arg(database(place)).arg(format!("DELETE FROM {which}")).status();
    assert!(run.unwrap().success(), "{which}");
}

/// Rows that are deleted, and what names them then; nothing if no content hangs on them.
const CASES: &[(&str, &str)] = &[
    ("fileatt WHERE ino = {few}", "/few"),
    ("fileatt WHERE ino = {large}", "/few/large"),
    ("fileatt WHERE ino IN ({link}, {two})", "/few/two"),
    ("naming WHERE parent = {few}", "/few"),
    ("naming WHERE ino = {deep}", "/few"),
    ("extents WHERE ino = {large} AND start = 65536", "/again"),
    ("blocks WHERE id = (SELECT block FROM extents WHERE start = 65536)", "/again"),
    ("segments", "segment 1"),
    ("commits WHERE number = (SELECT max(number) FROM commits)", "commit"),
];

fn is_told_by_every_command(place: &Place, before: &Found, (which, told): (&str, &str)) {
    for command in [&["check", "v"][..], &["scrub", "v"]] {
        let said = place.weft(command);
        assert!(said.code == 1 && said.out.contains(told), "{which}: {command:?}: {said:?}");
    }
    let other = if place.path("v").is_dir() { "database" } else { "segments" };
    let said = place.weft(&["convert", "v", "w", "--blocks", other]);
    assert!(said.code == 1 && said.out.contains(told) && !place.path("w").exists(), "{which}: {said:?}");
    for (command, new) in [(&["export", "v", "out"][..], "out"), (&["check", "--salvage", "v", "saved"], "saved")] {
        let said = place.weft(command);
        assert!(!said.out.contains("//"), "{which}: {said:?}");
        let is_whole = new == "out" && said.code == 0 && walk(&place.path("out")) == *before;
        let is_hidden = new == "saved" && ["segments", "commits"].iter().any(|table| which.starts_with(table));
        assert!(said.code != 0 || is_whole || is_hidden, "{which}: {command:?}: {said:?}");
        remove(&place.path(new));
    }
}

#[test]
fn whatever_row_is_gone_every_command_tells_and_a_repair_keeps_the_rest() {
    for blocks in ["segments", "database"] {
        let Some(place) = Place::to_mount() else { return };
        let before = filled(&place, blocks);
        copy(&place, "v", "pristine");
        let mounted = place.directory("m");
        let seen = || {
            place.mount();
            let found = walk(&mounted);
            place.umount();
            found
        };
        for (at, case) in CASES.iter().enumerate() {
            // A block in the database has its bytes beside it.
            if blocks == "database" && at % 6 != 0 {
                continue;
            }
            for file in ["v", "v-wal", "v-shm", "v-intents", "v.log"] {
                remove(&place.path(file));
            }
            copy(&place, "pristine", "v");
            delete(&place, case.0);
            is_told_by_every_command(&place, &before, *case);
            let read = |found: &Found| {
                let whole = found.iter().filter_map(|(path, found)| Some((path.clone(), found.clone().ok()?)));
                whole.collect::<BTreeMap<_, _>>()
            };
            let is_refused = case.0 == "segments";
            let damaged = if is_refused { before.clone() } else { seen() };
            assert!(!is_refused || place.weft(&["mount", "v", "m"]).code != 0, "{case:?}");
            assert!(read(&damaged).iter().all(|(path, bytes)| before[path].as_ref() == Ok(bytes)), "{case:?}");
            let is_content = ["fileatt", "naming", "extents", "blocks"].iter().any(|table| case.0.starts_with(table));
            assert_eq!(damaged.values().any(Result::is_err), is_content, "{case:?}: {:?}", damaged.keys());
            assert_eq!(place.weft(&["check", "--repair", "v"]).code, 1);
            let repaired = seen();
            for (path, bytes) in read(&damaged) {
                let is_list = path.ends_with('/');
                assert!(is_list || repaired.get(&path) == Some(&Ok(bytes)), "{case:?}: {path} is no more");
            }
        }
    }
}

#[test]
fn a_volume_without_a_row_of_its_root_is_refused_until_a_repair_made_it_anew() {
    let Some(place) = Place::to_mount() else { return };
    let before = filled(&place, "segments");
    let mounted = place.directory("m");
    delete(&place, "fileatt WHERE ino = 1");
    for command in [&["check", "v"][..], &["scrub", "v"], &["check", "--salvage", "v", "saved"]] {
        let said = place.weft(command);
        assert!(said.code == 1 && said.out.contains("/: "), "{said:?}");
    }
    for command in [&["mount", "v", "m"][..], &["export", "v", "out"]] {
        let said = place.weft(command);
        assert!(said.code != 0 && said.err.contains("the row of the root directory is gone"), "{said:?}");
        assert!(said.err.contains("'weft check --repair v' makes it anew"), "{said:?}");
    }
    assert!(!place.is_mounted("m"));
    assert!(place.weft(&["check", "--repair", "v"]).out.contains("all repaired"));
    place.mount();
    assert_eq!(walk(&mounted), before);
    place.umount();
    place.weft(&["check", "saved", "--read-data"]).well();
    place.weft(&["mount", "saved", "m"]).well();
    assert_eq!(walk(&mounted), before, "names are salvaged");
    place.umount();
}

#[test]
fn a_name_whose_inode_has_no_row_is_an_error_that_says_what_to_do() {
    let Some(place) = Place::to_mount() else { return };
    filled(&place, "segments");
    let mounted = place.directory("m");
    delete(&place, "fileatt WHERE ino IN ({deep}, {two})");
    place.mount();
    let errno = |result: std::io::Result<()>| result.unwrap_err().raw_os_error();
    assert_eq!(errno(fs::remove_file(mounted.join("few/two"))), Some(5));
    assert_eq!(errno(fs::remove_dir(mounted.join("few/deep"))), Some(5));
    assert_eq!(fs::read(mounted.join("again")).unwrap().len(), 800_000);
    let mut names =
        fs::read_dir(mounted.join("few")).unwrap().map(|entry| entry.unwrap().file_name()).collect::<Vec<_>>();
    names.sort();
    assert_eq!(names, ["deep", "large", "one", "two"]);
    place.umount();
    let log = fs::read_to_string(place.path("v/weft.log")).unwrap();
    assert!(log.contains("the row of /few/two is gone; unmount") && log.contains("'weft check --repair v'"), "{log}");
}
