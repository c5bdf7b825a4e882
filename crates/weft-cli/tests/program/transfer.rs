//! `weft import` and `weft export`.

use crate::place::{Place, Said, is_root};
use crate::tree::{self, Tree, describe};
use std::path::Path;

#[track_caller]
fn assert_same(was: &Tree, is: &Path) {
    let is = describe(is);
    assert_eq!(was.keys().collect::<Vec<_>>(), is.keys().collect::<Vec<_>>());
    for (path, told) in was {
        assert!(*told == is[path], "{}:\nwas {}\nis  {}", path.display(), short(told), short(&is[path]));
    }
}

/// Without the bytes, which would fill the screen.
fn short(told: &tree::Told) -> String {
    let text = format!("{told:?}");
    let (start, end) = (text.find("content: [").unwrap_or(0), text.find("], data").unwrap_or(0));
    format!("{}…{}", &text[..start.min(end)], &text[end..])
}

#[test]
fn a_tree_of_everything_survives_import_and_export() {
    for blocks in ["segments", "database"] {
        let place = Place::new();
        let from = place.directory("from");
        // Before it is imported: reading moves access times.
        let was = tree::make(&from);
        place.weft(&["init", "v", "--blocks", blocks]).well();
        place.weft(&["import", "from", "v:some/where"]).well();
        place.weft(&["check", "v", "--read-data"]).well();
        place.weft(&["export", "v:/some/where/", "out"]).well();
        assert_same(&was, &place.path("out"));
    }
}

#[test]
fn an_imported_tree_is_the_same_when_mounted() {
    let Some(place) = Place::to_mount() else { return };
    let from = place.directory("from");
    let was = tree::make(&from);
    place.weft(&["init", "v"]).well();
    place.weft(&["import", "from", "v:tree"]).well();
    let mounted = place.directory("m");
    place.weft(&["mount", "v", "m", "-o", "noatime"]).well();
    assert_same(&was, &mounted.join("tree"));
    place.umount();
}

#[test]
fn a_summary_counts_what_was_copied() {
    let place = Place::new();
    let from = place.directory("from");
    std::fs::create_dir(from.join("a")).unwrap();
    std::fs::write(from.join("a/file"), [1; 1000]).unwrap();
    std::os::unix::fs::symlink("a", from.join("b")).unwrap();
    place.weft(&["init", "v"]).well();
    for said in [place.weft(&["import", "--json", "from", "v"]), place.weft(&["export", "--json", "v", "out"])] {
        let summary = said.json();
        for (name, count) in [("files", 1), ("directories", 1), ("others", 1), ("bytes", 1000)] {
            assert_eq!(summary[name], count, "{name} of {summary}");
        }
    }
}

#[test]
fn an_import_merges_directories_and_replaces_files_only_if_asked_to() {
    let place = Place::new();
    let (one, two) = (place.directory("one"), place.directory("two"));
    for (from, name) in [(&one, "first"), (&two, "second")] {
        std::fs::create_dir(from.join("both")).unwrap();
        std::fs::write(from.join("both").join(name), name).unwrap();
        std::fs::write(from.join("both/file"), name).unwrap();
    }
    place.weft(&["init", "v"]).well();
    place.weft(&["import", "one", "v"]).well();
    place.weft(&["import", "two", "v"]).failed(&["cannot import two/both/file", "--overwrite"]);
    place.weft(&["import", "--overwrite", "two", "v"]).well();
    place.weft(&["check", "v", "--read-data"]).well();
    place.weft(&["export", "v:both", "out"]).well();
    for (name, content) in [("first", "first"), ("second", "second"), ("file", "second")] {
        assert_eq!(std::fs::read_to_string(place.path("out").join(name)).unwrap(), content);
    }
}

#[test]
fn an_export_goes_only_to_an_empty_place() {
    let place = Place::new();
    place.weft(&["init", "v"]).well();
    let full = place.directory("full");
    std::fs::write(full.join("file"), "mine").unwrap();
    place.weft(&["export", "v", "full"]).failed(&["full already exists"]);
    assert_eq!(std::fs::read(full.join("file")).unwrap(), b"mine");
    place.weft(&["export", "v:not/there", "out"]).failed(&["there is no not in the volume"]);
    assert!(!place.path("out").exists());
}

#[test]
fn an_ordinary_user_does_not_get_anothers_set_user_id_program_as_their_own() {
    use std::os::unix::fs::{MetadataExt, PermissionsExt};
    use std::os::unix::process::CommandExt;
    let test = "an_ordinary_user_does_not_get_anothers_set_user_id_program_as_their_own";
    if !is_root() {
        return eprintln!("SKIPPED {test}: needs root to become another user");
    }
    let place = Place::new();
    let from = place.directory("from");
    std::fs::write(from.join("program"), "").unwrap();
    std::fs::set_permissions(from.join("program"), PermissionsExt::from_mode(0o6755)).unwrap();
    std::fs::copy(env!("CARGO_BIN_EXE_weft"), place.path("weft")).unwrap();
    std::fs::set_permissions(place.path(""), PermissionsExt::from_mode(0o777)).unwrap();
    place.weft(&["init", "v", "--blocks", "database"]).well();
    place.weft(&["import", "from", "v"]).well();
    std::os::unix::fs::chown(place.path("v"), Some(65534), Some(65534)).unwrap();
    let mut command = std::process::Command::new(place.path("weft"));
    let export = command.args(["export", "v", "out"]).current_dir(place.path("")).uid(65534).gid(65534);
    Said::from(export.output().unwrap()).well();
    let program = place.path("out/program").metadata().unwrap();
    assert_eq!((program.uid(), program.mode() & 0o7777), (65534, 0o755));
}

#[test]
fn an_interrupted_import_leaves_a_whole_volume() {
    let place = Place::new();
    let from = place.directory("from");
    for number in 0..3000 {
        std::fs::write(from.join(format!("file {number}")), vec![7; 20_000]).unwrap();
    }
    place.weft(&["init", "v"]).well();
    let mut import = place.command(&["import", "from", "v"]).stdout(std::process::Stdio::null()).spawn().unwrap();
    // Its blocks begin to lie in the volume: it is in the middle of it.
    let has_begun = || std::fs::read_dir(place.path("v/segments")).unwrap().next().is_some();
    while !has_begun() && import.try_wait().unwrap().is_none() {
        std::thread::yield_now();
    }
    let pid = rustix::process::Pid::from_child(&import);
    rustix::process::kill_process(pid, rustix::process::Signal::INT).unwrap();
    import.wait().unwrap();
    place.weft(&["check", "v", "--read-data"]).well();
    place.weft(&["export", "v", "out"]).well();
    for entry in std::fs::read_dir(place.path("out")).unwrap() {
        let len = entry.unwrap().metadata().unwrap().len();
        assert!(len == 20_000 || len == 0, "{len}");
    }
}
