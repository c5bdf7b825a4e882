//! Volumes that are held: by whom, at which place, and for how long; and mounts of other users.

use crate::place::{Place, apart, is_root, write_synced};
use rustix::process::Pid;
use std::os::unix::fs::{PermissionsExt, chown};
use std::path::Path;

#[test]
fn a_volume_in_use_names_the_process_and_the_place_of_its_mount() {
    for home in ["segments", "database"] {
        let Some(place) = Place::to_mount() else { return };
        place.directory("m");
        place.directory("m2");
        place.weft(&["init", "v", "--blocks", home]).well();
        std::os::unix::fs::symlink("v", place.path("link")).unwrap();
        place.mount();
        let number = format!("in use by another process (number {})", place.daemon());
        let at = place.path("m").canonicalize().unwrap();
        let at = format!("mounted at {}; unmount it there first ('weft umount {0}')", at.display());
        place.weft(&["mount", "link", "m2"]).failed(&[&number, &at]);
        for command in [&["check", "v"][..], &["check", "--repair", "v"]] {
            place.weft(command).could_not(&[&number, &at]);
        }
        if home == "segments" {
            std::fs::remove_file(place.path("v/lock")).unwrap();
            place.weft(&["mount", "v", "m2"]).failed(&[&number, &at]);
        }
        place.umount();
    }
}

#[test]
fn a_process_that_has_locked_a_volume_without_a_mount_is_named_alone() {
    let place = Place::new();
    place.weft(&["init", "v"]).well();
    let lock = std::fs::File::open(place.path("v/lock")).unwrap();
    rustix::fs::flock(&lock, rustix::fs::FlockOperation::LockExclusive).unwrap();
    let number = format!("in use by another process (number {});", Pid::as_raw(Some(rustix::process::getpid())));
    place.weft(&["check", "v"]).could_not(&[&number, "wait for that process to end"]);
}

/// A volume is mounted by one path, and asked for by another; a mount has two places.
const ALIASES: &str = r#"
    mkdir real alias n m2
    "$0" init real/v >/dev/null
    mount --bind real alias
    "$0" mount real/v m
    if timeout 20 "$0" mount alias/v m2 2>told; then exit 8; fi
    grep -q "mounted at $PWD/m;" told
    mount --bind m n
    head -c 1000000 /dev/zero >m/file
    timeout 20 "$0" umount m >told
    grep -q "$PWD/m is unmounted; the volume stays mounted at $PWD/n" told
    cmp -n 1000000 n/file /dev/zero
    if timeout 20 "$0" mount alias/v m2 2>told; then exit 9; fi
    grep -q "mounted at $PWD/n;" told
    umount n
    timeout 20 "$0" mount alias/v m2
    cmp -n 1000000 m2/file /dev/zero
    umount m2
    timeout 20 "$0" mount real/v m
    "$0" umount m
    "$0" check alias/v >/dev/null
"#;

#[test]
fn a_volume_with_several_paths_or_places_is_one_that_stays_or_leaves() {
    let Some(place) = Place::to_mount() else { return };
    place.directory("m");
    let Some(said) = apart(&place, ALIASES) else { return };
    assert_eq!(said.code, 0, "{said:?} {:?}", std::fs::read_to_string(place.path("told")));
}

#[test]
fn root_unmounts_what_a_user_has_mounted() {
    let Some(place) = Place::to_mount() else { return };
    if !is_root() {
        return eprintln!("SKIPPED root_unmounts_what_a_user_has_mounted: needs root");
    }
    place.directory("v");
    chown(place.directory("m"), Some(65534), Some(65534)).unwrap();
    place.weft_as_nobody(&["init", "v"]).well();
    let said = place.weft_as_nobody(&["mount", "v", "m"]);
    if said.code != 0 {
        return eprintln!("SKIPPED root_unmounts_what_a_user_has_mounted: {}", said.err);
    }
    // Root may not even look into it.
    assert!(std::fs::read_dir(place.path("m")).is_err());
    place.weft_as_nobody(&["import", "v/meta.sqlite", "m"]);
    place.umount();
    assert!(!place.is_mounted("m"));
    // It waited for the daemon.
    place.weft(&["check", "v"]).well();
    place.weft_as_nobody(&["mount", "v", "m"]).well();
    place.weft(&["umount", "--lazy", "m"]).well();
}

/// Names of all files below `path`.
fn names(path: &Path) -> Vec<String> {
    let entries = std::fs::read_dir(path).unwrap().map(|entry| entry.unwrap().path());
    let mut names: Vec<_> = entries.map(|path| path.display().to_string()).collect();
    names.sort();
    names
}

#[test]
fn a_volume_in_a_directory_that_is_closed_is_read_and_says_what_may_not_be_written() {
    if !is_root() {
        return eprintln!(
            "SKIPPED a_volume_in_a_directory_that_is_closed_is_read_and_says_what_may_not_be_written: needs root"
        );
    }
    for home in ["segments", "database"] {
        let place = Place::new();
        place.directory("d");
        place.directory("from");
        std::fs::write(place.path("from/file"), [7; 100_000]).unwrap();
        place.weft(&["init", "d/v", "--blocks", home]).well();
        place.weft(&["import", "from", "d/v"]).well();
        let closed = if home == "segments" { "d/v" } else { "d" };
        for path in names(&place.path(closed)) {
            chown(&path, Some(65534), Some(65534)).unwrap();
            for below in if Path::new(&path).is_dir() { names(Path::new(&path)) } else { Vec::new() } {
                chown(&below, Some(65534), Some(65534)).unwrap();
            }
        }
        for path in ["d", closed] {
            std::fs::set_permissions(place.path(path), PermissionsExt::from_mode(0o755)).unwrap();
        }
        let before = names(&place.path(closed));
        let closed = place.path(closed).canonicalize().unwrap();
        place.weft_as_stranger(&["import", "from", "d/v"]).could_not(&[
            "d/v cannot be changed by this user",
            &format!("no permission to write {}:", closed.display()),
            "weft export",
        ]);
        assert_eq!(place.weft_as_stranger(&["info", "d/v"]).code, 0);
        let said = place.weft_as_stranger(&["export", "d/v", "out"]);
        assert_eq!(said.code, 0, "{said:?}");
        assert_eq!(std::fs::read(place.path("out/file")).unwrap(), [7; 100_000]);
        assert_eq!(place.weft_as_stranger(&["check", "--read-data", "d/v"]).code, 0);
        assert_eq!(names(&closed), before);
        // Root uses it with the rights of its owner.
        let said = place.weft(&["check", "d/v"]);
        assert!(said.code == 0 && said.err.contains("where nothing can be written"), "{said:?}");
        place.weft(&["import", "from", "d/v"]).could_not(&[
            "d/v belongs to user 65534, by whose rights root uses it",
            &format!("no permission to write {}:", closed.display()),
        ]);
    }
}

#[test]
fn the_log_of_a_volume_holds_what_was_given_up_to_mount_it() {
    let Some(place) = Place::to_mount() else { return };
    let directory = place.mounted();
    write_synced(&directory.join("file"), &[9; 300_000]);
    place.umount();
    place.mount();
    write_synced(&directory.join("other"), b"synced");
    place.kill("v/lock");
    std::fs::remove_file(place.path("v/segments/00000001.seg")).unwrap();
    std::fs::remove_file(place.path("v/intents")).unwrap();
    let said = place.weft(&["mount", "--accept-loss", "v", "m"]);
    assert_eq!(said.code, 0, "{said:?}");
    place.umount();
    let log = std::fs::read_to_string(place.path("v/weft.log")).unwrap();
    for lost in ["00000001.seg is missing", "v/intents is missing", "kept a copy of what is given up"] {
        assert!(log.contains(lost) && said.err.contains(lost), "no '{lost}' in: {log}; {}", said.err);
    }
}

#[test]
fn the_list_of_mounts_tells_when_access_times_move() {
    let Some(place) = Place::to_mount() else { return };
    place.directory("m");
    place.weft(&["init", "v"]).well();
    let at = place.path("m");
    let words = |options: &str| {
        place.weft(&["mount", "-o", options, "v", "m"]).well();
        let mounts = String::from_utf8_lossy(&std::fs::read("/proc/self/mounts").unwrap()).into_owned();
        let line = mounts.lines().find(|line| line.split(' ').nth(1) == at.to_str()).unwrap().to_owned();
        place.umount();
        ["noatime", "relatime"].map(|word| line.split(' ').nth(3).unwrap().split(',').any(|option| option == word))
    };
    assert_eq!(words("rw"), [false, true]);
    assert_eq!(words("noatime"), [true, false]);
    if is_root() {
        assert_eq!(words("strictatime"), [false, false]);
    }
}
