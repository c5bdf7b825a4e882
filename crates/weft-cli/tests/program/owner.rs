//! Volumes of a user that root uses, too.

use crate::place::{Place, is_root, write_synced};
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown};
use std::path::{Path, PathBuf};

/// A user who is not root, and a group.
const OWNER: (u32, u32) = (65534, 65534);

/// A place whose directory `own` is a user's, with the volume `v` of that user in it.
fn volume_of_a_user(blocks: &str) -> Option<Place> {
    let place = Place::to_mount()?;
    if !is_root() {
        let test = std::thread::current().name().unwrap_or("test").to_owned();
        eprintln!("SKIPPED {test}: needs root");
        return None;
    }
    let own = place.directory("own");
    chown(&own, Some(OWNER.0), Some(OWNER.1)).unwrap();
    place.weft_as_stranger(&["init", "own/v", "--blocks", blocks]).well();
    Some(place)
}

/// The files and directories below `path`, and their owners and groups.
fn owners(path: &Path) -> Vec<(PathBuf, (u32, u32))> {
    let mut all = Vec::new();
    for entry in std::fs::read_dir(path).unwrap() {
        let path = entry.unwrap().path();
        let metadata = path.symlink_metadata().unwrap();
        if metadata.is_dir() {
            all.extend(owners(&path));
        }
        all.push((path, (metadata.uid(), metadata.gid())));
    }
    all
}

#[track_caller]
fn all_are_the_owners(place: &Place, wanted: &[&str]) {
    let all = owners(&place.path("own"));
    assert!(all.iter().all(|(_, owner)| *owner == OWNER), "{all:?}");
    for name in wanted {
        assert!(all.iter().any(|(path, _)| path == &place.path(name)), "no {name} in {all:?}");
    }
}

/// Capabilities in the set `name` of process `pid`.
fn capabilities(pid: u32, name: &str) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    let value = status.lines().find_map(|line| line.strip_prefix(name)).unwrap();
    u64::from_str_radix(value.trim(), 16).unwrap()
}

#[test]
fn what_root_makes_in_the_volume_of_a_user_is_that_users() {
    let in_directory = ["lock", "weft.log", "meta.sqlite-wal", "meta.sqlite-shm", "intents"];
    let in_directory = in_directory.map(|name| format!("own/v/{name}"));
    let beside = ["own/v-wal", "own/v-shm", "own/v-intents", "own/v.log"].map(String::from);
    for (blocks, hold, files) in [("segments", "own/v/lock", &in_directory[..]), ("database", "own/v", &beside)] {
        let Some(place) = volume_of_a_user(blocks) else { return };
        let files: Vec<&str> = files.iter().map(String::as_str).collect();
        if blocks == "segments" {
            // A copy may lack both.
            std::fs::remove_dir(place.path("own/v/segments")).unwrap();
            std::fs::remove_file(place.path("own/v/lock")).unwrap();
        }
        let directory = place.directory("m");
        place.weft(&["mount", "own/v", "m"]).well();
        write_synced(&directory.join("file"), &[7; 300_000]);
        all_are_the_owners(&place, &files);
        // The owner sees it beside the daemon.
        place.weft_as_stranger(&["info", "own/v"]).well();
        let chown = 1;
        assert_eq!(capabilities(place.daemon(), "CapPrm:") & chown, chown);
        assert_eq!(capabilities(place.daemon(), "CapEff:") & chown, 0);
        place.kill(hold);
        all_are_the_owners(&place, &files);
        place.directory("from");
        std::fs::write(place.path("from/other"), [8; 300_000]).unwrap();
        place.weft_as_stranger(&["check", "own/v"]).well();
        place.weft(&["import", "from", "own/v:/there"]).well();
        place.weft_as_stranger(&["import", "from", "own/v:/again"]).well();
        place.weft_as_stranger(&["check", "own/v", "--read-data"]).well();
        all_are_the_owners(&place, if blocks == "segments" { &["own/v/segments/00000001.seg"] } else { &[] });
    }
}

#[test]
fn files_of_roots_in_the_volume_of_a_user_are_told_of_and_given_by_roots_repair() {
    let Some(place) = volume_of_a_user("segments") else { return };
    let path = |name: &str| place.path("own/v").join(name);
    place.directory("from");
    std::fs::write(place.path("from/other"), [8; 300_000]).unwrap();
    place.weft_as_stranger(&["import", "from", "own/v:/there"]).well();
    for name in ["intents", "segments/00000001.seg", "lock", "segments"] {
        chown(path(name), Some(0), Some(0)).unwrap();
        let advice = format!("'chown 65534 {}'", path(name).display());
        for command in [&["import", "from", "own/v:/more"][..], &["check", "own/v"], &["export", "own/v:", "own/to"]] {
            let said = place.weft_as_stranger(command);
            assert_eq!((said.code != 0, said.err.lines().count()), (true, 1), "{said:?}");
            assert!(said.err.contains("belongs to root") && said.err.contains(&advice), "{said:?}");
        }
        // Root's own use changes no owner of what was there.
        let said = place.weft(&["digest", "own/v:"]);
        assert_eq!((said.code, path(name).metadata().unwrap().uid()), (0, 0), "{said:?}");
        let told = place.weft(&["check", "own/v"]).well();
        assert!(told.contains("belongs to root") && told.contains(name), "{told}");
        let told = place.weft(&["check", "--repair", "own/v"]).well();
        assert!(told.contains("given to the owner") && told.contains(name), "{told}");
        all_are_the_owners(&place, &[]);
        place.weft_as_stranger(&["check", "own/v"]).well();
    }
}

#[test]
fn a_repair_gives_nobody_what_no_weft_of_roots_has_made() {
    let Some(place) = volume_of_a_user("segments") else { return };
    let planted = |name: &str| place.path("own/v/segments").join(name);
    let secret = place.path("secret");
    std::fs::write(&secret, "of root").unwrap();
    std::fs::set_permissions(&secret, PermissionsExt::from_mode(0o600)).unwrap();
    std::fs::hard_link(&secret, planted("00000007.seg")).unwrap();
    std::fs::write(planted("00000008.seg"), "for all to read").unwrap();
    std::fs::set_permissions(planted("00000008.seg"), PermissionsExt::from_mode(0o4600)).unwrap();
    std::fs::write(place.path("own/v/notes"), "not the volume's").unwrap();
    place.weft(&["check", "--repair", "own/v"]);
    std::fs::remove_file(planted("00000007.seg")).unwrap();
    let said = place.weft(&["check", "--repair", "own/v"]).well();
    assert!(said.contains("00000008.seg") && said.contains("belongs to root"), "{said}");
    let owner = |path: &Path| path.metadata().unwrap().uid();
    let left = [secret, planted("00000008.seg"), place.path("own/v/notes")];
    assert_eq!(left.map(|path| owner(&path)), [0, 0, 0]);
}
