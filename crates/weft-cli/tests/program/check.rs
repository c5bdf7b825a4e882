//! `weft check`, `weft convert` and `weft info` on volumes whole and damaged.

use crate::place::Place;
use std::os::unix::fs::FileExt;
use std::path::PathBuf;

/// A volume `v` with a file `big` of random-looking bytes, and more.
fn filled(place: &Place, blocks: &str) {
    let from = place.directory("from");
    let bytes: Vec<u8> = (0..300_000u32).flat_map(|i| i.wrapping_mul(2_654_435_761).to_le_bytes()).collect();
    std::fs::write(from.join("big"), bytes).unwrap();
    std::fs::write(from.join("small"), "small").unwrap();
    place.weft(&["init", "--history", "off", "v", "--blocks", blocks]).well();
    place.weft(&["import", "from", "v"]).well();
}

fn first_segment(place: &Place) -> PathBuf {
    std::fs::read_dir(place.path("v/segments")).unwrap().next().unwrap().unwrap().path()
}

#[test]
fn a_whole_volume_is_clean() {
    for blocks in ["segments", "database"] {
        let place = Place::new();
        filled(&place, blocks);
        assert_eq!(place.weft(&["check", "v", "--read-data"]).well(), "v: clean\n");
        let found = place.weft(&["check", "v", "--json"]).json();
        assert_eq!((&found["clean"], &found["damaged"]), (&true.into(), &0.into()));
    }
}

#[test]
fn damaged_bytes_are_found_and_named_by_path() {
    let place = Place::new();
    filled(&place, "segments");
    let segment = std::fs::OpenOptions::new().write(true).open(first_segment(&place)).unwrap();
    segment.write_all_at(b"damage", 70_000).unwrap();
    let said = place.weft(&["check", "v", "--read-data"]);
    assert_eq!((said.code, said.err.as_str()), (1, ""));
    assert!(said.out.contains("/big") && said.out.contains("v: 1 damaged place found;"), "{}", said.out);
    for repairing in [&["check", "v", "--read-data"][..], &["check", "v", "--read-data", "--repair"]] {
        let said = place.weft(repairing);
        assert!(said.out.contains("\n    weft import --overwrite COPY v\n"), "{}", said.out);
        assert!(!said.out.contains("'weft check --repair"), "{}", said.out);
    }
    let said = place.weft(&["check", "v", "--read-data", "--json"]);
    assert_eq!(said.code, 1);
    let found: serde_json::Value = serde_json::from_str(&said.out).unwrap();
    assert_eq!(found["clean"], false);
    assert!(found["findings"].as_array().unwrap().iter().any(|f| f["path"] == "/big" && f["outcome"] == "damaged"));
    place.weft(&["export", "v", "e"]).failed(&["big: not exported: damaged"]);
    place.weft(&["digest", "--read", "v:"]).failed(&["cannot read /big"]);
    let said = place.weft(&["convert", "v", "w", "--blocks", "database"]);
    assert!(said.out.contains("/big: bytes"), "{}", said.out);
    said.failed(&["cannot convert volume v", "damaged"]);
    let summary = place.weft(&["convert", "v", "w", "--blocks", "database", "--json"]).partly();
    assert_eq!((&summary["complete"], &summary["findings"][0]["path"]), (&false.into(), &"/big".into()));
    assert!(!place.path("w").exists() && !place.path("w.unfinished").exists());
}

/// Blocks that only the past has are told together, and how to be rid of them.
#[test]
fn a_missing_segment_file_that_the_past_alone_needs_is_given_up_by_forgetting_it() {
    let Some(place) = Place::to_mount() else { return };
    filled(&place, "segments");
    place.weft(&["history", "set", "v", "all 1d"]).well();
    let mounted = place.directory("m");
    std::fs::write(place.path("from/big"), vec![3; 1_200_000]).unwrap();
    place.weft(&["import", "--overwrite", "from", "v"]).well();
    std::fs::remove_file(first_segment(&place)).unwrap();
    assert_eq!(place.weft(&["mount", "--accept-loss", "v", "m"]).code, 0);
    std::fs::write(mounted.join("big"), vec![4; 1_200_000]).unwrap();
    place.umount();
    let said = place.weft(&["check", "v"]);
    let lines: Vec<_> = said.out.lines().collect();
    assert!(said.code == 1 && lines[0].contains("'weft history forget' gives up the past"), "{said:?}");
    let told = lines.iter().filter(|line| line.contains(": as of commits ")).count();
    assert!((1..=3).contains(&told) && lines.len() == told + 2, "{said:?}");
    assert_eq!(place.weft(&["mount", "--accept-loss", "v", "m"]).code, 0);
    place.weft(&["history", "forget", "m/big"]).well();
    place.umount();
    place.weft(&["check", "--read-data", "v"]).well();
}

/// The advice is followed: intact files are copied over, and the volume is whole.
#[test]
fn a_missing_segment_file_is_named_first_with_the_way_out_and_then_the_files_in_it() {
    let Some(place) = Place::to_mount() else { return };
    filled(&place, "segments");
    std::fs::copy(place.path("from/big"), place.path("from/other")).unwrap();
    place.weft(&["import", "from", "v"]).well();
    let file = first_segment(&place);
    std::fs::remove_file(&file).unwrap();
    let file = format!("segment file {} is missing: put it back from a copy", file.display());
    for command in [&["check", "v"][..], &["scrub", "v"], &["check", "--repair", "v"]] {
        let said = place.weft(command);
        let lines: Vec<_> = said.out.lines().collect();
        assert!(said.code == 1 && lines.len() == 4, "{said:?}");
        assert!(lines[0].starts_with(&file) && lines[0].contains("'weft mount --accept-loss v DIRECTORY'"), "{said:?}");
        for (line, name) in [(lines[1], "big"), (lines[2], "other")] {
            assert!(line.starts_with(&format!("/{name}: bytes 0 to 1199999 are damaged: block ")), "{said:?}");
            assert!(line.ends_with("lies in a segment file that is missing (and 18 more after it)"), "{said:?}");
        }
        assert!(lines[3].ends_with("follow the advice above") && !said.out.contains("import"), "{said:?}");
    }
    for command in [&["check", "v", "--json"][..], &["scrub", "v", "--json"]] {
        let summary = place.weft(command).partly();
        let findings = summary["findings"].as_array().unwrap();
        let paths: Vec<_> = findings.iter().map(|finding| finding["path"].as_str()).collect();
        assert_eq!((summary["damaged"].as_u64(), paths), (Some(3), vec![None, Some("/big"), Some("/other")]));
    }
    let said = place.weft(&["info", "v"]);
    assert!(said.code == 0 && said.err.contains("00000001.seg is missing; 'weft check v' names its files"), "{said:?}");
    place.directory("m");
    let said = place.weft(&["mount", "--accept-loss", "v", "m"]);
    assert!(said.code == 0 && said.err.contains("00000001.seg is missing"), "{said:?}");
    let said = place.weft(&["scrub", "m"]);
    assert!(said.code == 1 && !said.out.contains("--accept-loss") && !said.out.contains("import"), "{said:?}");
    assert!(said.out.contains("\n    cp -a BACKUP/big m/big    # and so on\n"), "{said:?}");
    for name in ["big", "other"] {
        std::fs::copy(place.path("from").join(name), place.path("m").join(name)).unwrap();
    }
    assert!(place.weft(&["scrub", "m"]).well().ends_with(": no damage\n"), "what was just written is read");
    place.umount();
    place.weft(&["check", "--read-data", "v"]).well();
    place.mount();
    place.umount();
}

#[test]
fn a_volume_converts_there_and_back_with_all_that_is_in_it() {
    let place = Place::new();
    filled(&place, "segments");
    place.weft(&["convert", "v", "one", "--blocks", "database"]).well();
    assert!(place.path("one").is_file());
    place.weft(&["convert", "one", "two", "--blocks", "segments"]).well();
    for (volume, home) in [("v", "segments"), ("one", "database"), ("two", "segments")] {
        place.weft(&["check", volume, "--read-data"]).well();
        let info = place.weft(&["info", volume, "--json"]).json();
        assert_eq!(info["inodes"], 3);
        assert!(info["options"].to_string().to_lowercase().contains(home), "{info}");
        let out = format!("out of {volume}");
        place.weft(&["export", volume, &out]).well();
        for name in ["big", "small"] {
            let (was, is) = (place.path("from").join(name), place.path(&out).join(name));
            assert!(std::fs::read(was).unwrap() == std::fs::read(is).unwrap(), "{volume} {name}");
        }
    }
}

#[test]
fn info_tells_what_init_was_told() {
    let place = Place::new();
    let options = ["--block-size", "16K", "--inline", "1K", "--size-max", "10G", "--inodes-max", "1000"];
    place.weft(&[&["init", "v", "--blocks", "database"][..], &options].concat()).well();
    let text = place.weft(&["info", "v"]).well();
    for word in ["16.00 KiB each, in the database", "files up to 1.00 KiB", "1 (limit 1000)", "limit 10.00 GiB"] {
        assert!(text.contains(word), "no '{word}' in:\n{text}");
    }
    let info = place.weft(&["info", "v", "--json"]).json();
    assert_eq!(info["options"]["block_size"], 16384);
    assert_eq!(info["options"]["bytes_max"], 10u64 << 30);
}

#[test]
fn a_conversion_that_is_not_whole_never_has_the_name_that_was_asked_for() {
    let place = Place::new();
    let from = place.directory("from");
    let bytes: Vec<u8> = (0..4_000_000u32).flat_map(|i| i.wrapping_mul(2_654_435_761).to_le_bytes()).collect();
    std::fs::write(from.join("file"), bytes).unwrap();
    place.weft(&["init", "v"]).well();
    place.weft(&["import", "from", "v"]).well();
    for (blocks, new) in [("database", "one"), ("segments", "two")] {
        let unfinished = place.path(format!("{new}.unfinished"));
        let said = place.interrupted(&["convert", "v", new, "--blocks", blocks], || unfinished.exists());
        assert_eq!(place.path(new).exists(), said.code == 0, "{said:?}");
        assert!(said.code == 0 || said.err.contains("interrupted: v is as it was"), "{said:?}");
        let left: Vec<_> = std::fs::read_dir(place.path("")).unwrap().map(|entry| entry.unwrap().file_name()).collect();
        assert!(!left.iter().any(|name| name.to_string_lossy().contains("unfinished")), "{left:?}");
    }
    std::fs::write(place.path("w.unfinished"), "mine").unwrap();
    place.weft(&["convert", "v", "w", "--blocks", "database"]).could_not(&["w.unfinished exists", "remove it"]);
    assert_eq!(std::fs::read(place.path("w.unfinished")).unwrap(), b"mine");
    // A killed conversion leaves several files, all of which are named at once.
    std::fs::write(place.path("w.unfinished-wal"), "").unwrap();
    place
        .weft(&["convert", "v", "w", "--blocks", "database"])
        .could_not(&["w.unfinished and w.unfinished-wal exist", "remove them"]);
    std::fs::remove_file(place.path("w.unfinished")).unwrap();
    std::fs::remove_file(place.path("w.unfinished-wal")).unwrap();
    let summary = place.weft(&["convert", "v", "w", "--blocks", "database", "--json"]).json();
    assert_eq!((&summary["complete"], &summary["new"]), (&true.into(), &"w".into()));
    place.weft(&["check", "w", "--read-data"]).well();
}

/// Volumes `a` and `b`, and a file in them.
fn two_volumes(place: &Place) {
    let bytes: Vec<u8> = (0..1_000_000u32).flat_map(|i| i.wrapping_mul(2_654_435_761).to_le_bytes()).collect();
    std::fs::write(place.directory("from").join("file"), bytes).unwrap();
    for volume in ["a", "b"] {
        place.weft(&["init", volume]).well();
        place.weft(&["import", "from", volume]).well();
    }
}

#[test]
fn of_two_that_make_a_volume_of_one_name_exactly_one_does() {
    let place = Place::new();
    two_volumes(&place);
    let convert = |volume, blocks| ["convert", volume, "new", "--blocks", blocks];
    for turn in 0..9 {
        let blocks = ["segments", "database"][turn % 2];
        let other = if turn % 3 == 2 { vec!["check", "b", "--salvage", "new"] } else { convert("b", blocks).to_vec() };
        let ends = std::thread::scope(|scope| {
            let first = scope.spawn(|| place.weft(&convert("a", blocks)));
            [place.weft(&other), first.join().unwrap()]
        });
        assert_eq!(ends.iter().filter(|said| said.code == 0).count(), 1, "{other:?}: {ends:?}");
        place.weft(&["check", "new", "--read-data"]).well();
        let left: Vec<_> = std::fs::read_dir(place.path("")).unwrap().map(|entry| entry.unwrap().file_name()).collect();
        assert!(!left.iter().any(|name| name.to_string_lossy().contains("unfinished")), "{left:?}");
        std::fs::remove_dir_all(place.path("new")).or_else(|_| std::fs::remove_file(place.path("new"))).unwrap();
    }
}

#[test]
fn a_salvage_that_a_signal_ends_removes_what_it_made() {
    let place = Place::new();
    two_volumes(&place);
    place.weft(&["convert", "a", "c", "--blocks", "database"]).well();
    for volume in ["b", "c"] {
        let unfinished = place.path("new.unfinished");
        let said = place.interrupted(&["check", volume, "--salvage", "new"], || unfinished.exists());
        assert_eq!(place.path("new").exists(), said.code == 0, "{said:?}");
        let words = format!("interrupted: {volume} is as it was, and new was not made");
        assert!(said.code == 0 || said.err.contains(&words), "{said:?}");
        let left: Vec<_> = std::fs::read_dir(place.path("")).unwrap().map(|entry| entry.unwrap().file_name()).collect();
        assert!(!left.iter().any(|name| name.to_string_lossy().contains("unfinished")), "{left:?}");
    }
}
