//! Damage below a mount: what a disk or a stray write changed is an error on what it concerns, and stays one.

use crate::place::Place;
use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::Path;

const SMALL: &[u8] = b"the precious content of a small file";
const TARGET: &str = "somewhere/that/is/there";

/// Changes a bit of each place where `file` has `bytes`.
fn damage(file: &Path, bytes: &[u8]) {
    let mut content = fs::read(file).unwrap();
    let found = content.windows(bytes.len()).enumerate().filter(|(_, window)| *window == bytes);
    let found: Vec<usize> = found.map(|(at, _)| at).collect();
    assert!(!found.is_empty());
    found.iter().for_each(|at| content[at + 4] ^= 1);
    fs::write(file, content).unwrap();
}

#[test]
fn damaged_content_in_rows_is_an_error_that_no_change_makes_right() {
    let Some(place) = Place::to_mount() else { return };
    let from = place.directory("from");
    fs::write(from.join("small"), SMALL).unwrap();
    fs::write(from.join("other"), "whole").unwrap();
    symlink(TARGET, from.join("link")).unwrap();
    for blocks in ["segments", "database"] {
        place.weft(&["init", "v", "--blocks", blocks]).well();
        place.weft(&["import", "from", "v"]).well();
        let database = if blocks == "segments" { "v/meta.sqlite" } else { "v" };
        damage(&place.path(database), SMALL);
        damage(&place.path(database), TARGET.as_bytes());
        let mounted = place.directory("m");
        place.mount();
        let fails = |result: std::io::Result<()>| assert_eq!(result.unwrap_err().raw_os_error(), Some(5));
        for _ in 0..2 {
            fails(fs::read(mounted.join("small")).map(drop));
            fails(fs::set_permissions(mounted.join("small"), fs::Permissions::from_mode(0o600)));
            fails(fs::read_link(mounted.join("link")).map(drop));
            assert_eq!(fs::read(mounted.join("other")).unwrap(), b"whole");
        }
        fs::write(mounted.join("new"), "beside it").unwrap();
        place.umount();
        for arguments in [&["check", "v"][..], &["check", "--repair", "v"], &["check", "v"]] {
            let said = place.weft(arguments);
            assert_eq!(said.code, 1, "{said:?}");
            for told in ["/small: its row is damaged", "/link: its row is damaged"] {
                assert!(said.out.contains(told), "{said:?}");
            }
        }
        assert_ne!(place.weft(&["export", "v", "out"]).code, 0);
        let exported = fs::read(place.path("out/small")).unwrap_or_default();
        assert!(exported.is_empty(), "{exported:?}");
        let other = if blocks == "segments" { "database" } else { "segments" };
        assert_ne!(place.weft(&["convert", "v", "w", "--blocks", other]).code, 0);
        assert!(!place.path("w").exists());
        let said = place.weft(&["check", "--repair", "--discard", "v"]);
        assert!(said.out.contains("/small: its row is damaged (repaired)"), "{said:?}");
        place.weft(&["check", "v", "--read-data"]).well();
        place.mount();
        assert_eq!(fs::read(mounted.join("new")).unwrap(), b"beside it");
        place.umount();
        fs::remove_dir(&mounted).unwrap();
        let _ = fs::remove_dir_all(place.path("out"));
        let volume = place.path("v");
        if volume.is_dir() { fs::remove_dir_all(volume) } else { fs::remove_file(volume) }.unwrap();
    }
}
