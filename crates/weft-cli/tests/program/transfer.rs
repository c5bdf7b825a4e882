//! `weft import` and `weft export`.

use crate::place::Place;
use crate::tree::{self, Tree, describe};
use std::path::Path;

/// All that was is there, and nothing else.
#[track_caller]
pub fn assert_same(was: &Tree, is: &Path) {
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
    place.weft(&["import", "two", "v"]).failed(&["two/both/file: cannot import it", "--overwrite"]);
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
    place.weft(&["export", "v", "full"]).could_not(&["full already exists", "--continue"]);
    assert_eq!(std::fs::read(full.join("file")).unwrap(), b"mine");
    place.weft(&["export", "v:not/there", "out"]).could_not(&["there is no not in the volume"]);
    assert!(!place.path("out").exists());
}
