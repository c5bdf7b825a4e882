//! Volumes of a user that root uses, too.

use crate::place::{Place, is_root, write_synced};
use rustix::fs::{CWD, RenameFlags, renameat_with};
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown, symlink};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

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
        // As homes are.
        std::fs::set_permissions(place.path("own"), PermissionsExt::from_mode(0o700)).unwrap();
        let directory = place.directory("m");
        place.weft(&["mount", "own/v", "m"]).well();
        write_synced(&directory.join("file"), &[7; 300_000]);
        all_are_the_owners(&place, &files);
        // The owner sees it beside the daemon.
        place.weft_as_stranger(&["info", "own/v"]).well();
        let of_files = 0x1f;
        assert_eq!(capabilities(place.daemon(), "CapPrm:") & of_files, 0, "CAP_CHOWN to CAP_FSETID");
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
            // Root uses the volume as its owner does.
            let said = place.weft(command);
            assert!(said.code != 0 && said.err.contains("belongs to root") && said.err.contains(&advice), "{said:?}");
            assert_eq!(path(name).metadata().unwrap().uid(), 0);
        }
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
    let said = place.weft(&["check", "--repair", "own/v"]);
    assert!(said.code != 0 && said.err.contains("00000008.seg") && said.err.contains("belongs to root"), "{said:?}");
    // A file named like a log, in a directory for everybody, is no log for that.
    place.weft_as_stranger(&["init", "backup", "--blocks", "database"]).well();
    let log = place.path("backup.log");
    std::fs::write(&log, "of root").unwrap();
    std::fs::set_permissions(&log, PermissionsExt::from_mode(0o600)).unwrap();
    let said = place.weft(&["check", "--repair", "backup"]).well();
    assert!(said.contains("backup.log") && said.contains("belongs to root"), "{said}");
    let owner = |path: &Path| path.metadata().unwrap().uid();
    assert_eq!(owner(&log), 0);
    let left = [secret, planted("00000008.seg"), place.path("own/v/notes")];
    assert_eq!(left.map(|path| owner(&path)), [0, 0, 0]);
}

/// A directory of root's that others can look into, with nothing in it.
fn roots_directory(place: &Place) -> PathBuf {
    let directory = place.directory("roots");
    std::fs::set_permissions(&directory, PermissionsExt::from_mode(0o755)).unwrap();
    directory
}

#[test]
fn root_writes_no_log_where_the_owner_leads_it_by_a_link() {
    let Some(place) = volume_of_a_user("segments") else { return };
    let roots = roots_directory(&place);
    place.directory("m");
    place.weft(&["mount", "own/v", "m"]).well();
    let daemon = place.daemon();
    std::fs::rename(place.path("own/v"), place.path("own/moved")).unwrap();
    symlink(&roots, place.path("own/v")).unwrap();
    let pid = rustix::process::Pid::from_raw(daemon.cast_signed()).unwrap();
    rustix::process::kill_process(pid, rustix::process::Signal::HUP).unwrap();
    // Its message about that goes to the file from before.
    let log = place.path("own/moved/weft.log");
    let begun = Instant::now();
    while !std::fs::read_to_string(&log).unwrap().contains("cannot open the log") {
        assert!(begun.elapsed() < Duration::from_secs(20), "it is not told");
        std::thread::yield_now();
    }
    assert_eq!(std::fs::read_dir(&roots).unwrap().count(), 0);
    std::fs::remove_file(place.path("own/v")).unwrap();
    std::fs::rename(place.path("own/moved"), place.path("own/v")).unwrap();
    place.weft(&["umount", "m"]).well();
}

/// Tells a thread to end when it is dropped.
struct Ending<'a>(&'a AtomicBool);

impl Drop for Ending<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

#[test]
fn root_reaches_nothing_by_directories_that_the_owner_exchanges() {
    let Some(place) = volume_of_a_user("segments") else { return };
    // A volume of another user, closed, and a directory of root's.
    let other = place.directory("other");
    chown(&other, Some(65533), Some(65533)).unwrap();
    std::fs::set_permissions(&other, PermissionsExt::from_mode(0o700)).unwrap();
    let (roots, segment) = (roots_directory(&place), other.join("00000001.seg"));
    std::fs::write(&segment, [9; 100_000]).unwrap();
    chown(&segment, Some(65533), Some(65533)).unwrap();
    // A volume of root's, closed, and a directory where the user has none.
    let private = place.directory("private");
    std::fs::set_permissions(&private, PermissionsExt::from_mode(0o700)).unwrap();
    place.weft(&["init", "private/v"]).well();
    let private = private.join("v");
    chown(place.directory("own/none"), Some(OWNER.0), Some(OWNER.1)).unwrap();
    place.directory("m");
    for (target, path, volume) in [
        (&other, "own/v/segments", "own/v"),
        (&roots, "own/v/segments", "own/v"),
        (&roots, "own/v", "own/v"),
        (&private, "own/none", "own/none"),
    ] {
        let _ = std::fs::remove_file(place.path("own/link"));
        symlink(target, place.path("own/link")).unwrap();
        let (path, link, ends) = (place.path(path), place.path("own/link"), AtomicBool::new(false));
        std::thread::scope(|scope| {
            // It ends whatever becomes of the test.
            let _ending = Ending(&ends);
            scope.spawn(|| {
                while !ends.load(Ordering::Relaxed) {
                    renameat_with(CWD, &path, CWD, &link, RenameFlags::EXCHANGE).unwrap();
                }
            });
            for round in 0..30 {
                // Most fail, as what they meet is no volume.
                if place.weft(&["mount", volume, "m"]).code == 0 {
                    assert_ne!(volume, "own/none", "that is root's");
                    let file = place.path("m").join(format!("file-{round}"));
                    let written = std::fs::write(&file, [7; 300_000]);
                    let _ = written.and_then(|()| std::fs::File::open(&file)?.sync_all());
                    place.weft(&["umount", "m"]);
                }
                let _ = std::fs::remove_file(place.path("own/v/lock"));
            }
        });
        if path.is_symlink() {
            renameat_with(CWD, &path, CWD, &link, RenameFlags::EXCHANGE).unwrap();
        }
    }
    assert_eq!(std::fs::read(&segment).unwrap(), [9; 100_000]);
    assert_eq!(std::fs::read_dir(&other).unwrap().count(), 1);
    let made: Vec<_> = std::fs::read_dir(&roots).unwrap().map(|entry| entry.unwrap().path()).collect();
    assert_eq!(made, Vec::<PathBuf>::new());
}

fn user(number: u32) -> Option<rustix::fs::Uid> {
    Some(rustix::fs::Uid::from_raw(number))
}

#[test]
fn root_follows_no_link_of_one_user_to_the_volume_of_another() {
    let Some(place) = volume_of_a_user("segments") else { return };
    let directory = place.directory("other");
    chown(&directory, Some(65533), Some(65533)).unwrap();
    let link = place.path("other/v");
    symlink(place.path("own/v"), &link).unwrap();
    rustix::fs::chownat(
        CWD,
        &link,
        Some(rustix::fs::Uid::from_raw(65533)),
        None,
        rustix::fs::AtFlags::SYMLINK_NOFOLLOW,
    )
    .unwrap();
    place.directory("m");
    for command in [&["mount", "other/v", "m"][..], &["info", "other/v"], &["check", "--repair", "other/v"]] {
        let said = place.weft(command);
        let told = ["symbolic link of user 65533", "belongs to user 65534", place.path("own/v").to_str().unwrap()]
            .map(|word| said.err.contains(word));
        assert!(said.code != 0 && told == [true; 3], "{said:?}");
    }
    // Nor to a mount.
    place.weft(&["mount", "own/v", "m"]).well();
    let way = place.path("other/way");
    symlink(place.path(""), &way).unwrap();
    rustix::fs::chownat(CWD, &way, user(65533), None, rustix::fs::AtFlags::SYMLINK_NOFOLLOW).unwrap();
    let said = place.weft(&["umount", "other/way/m"]);
    assert!(said.code != 0 && said.err.contains("symbolic link of user 65533 (way)"), "{said:?}");
    place.umount();
    // Nor where it copies to, or from.
    let roots = roots_directory(&place);
    let rest = place.path("own/rest");
    symlink(&roots, &rest).unwrap();
    rustix::fs::chownat(CWD, &rest, user(OWNER.0), None, rustix::fs::AtFlags::SYMLINK_NOFOLLOW).unwrap();
    std::fs::write(roots.join("secret"), "of root").unwrap();
    for command in [
        &["export", "own/v", "own/rest"][..],
        &["export", "--continue", "own/v", "own/rest"],
        &["export", "own/v", "own/rest/new"],
        &["import", "own/rest", "own/v:/there"],
    ] {
        let said = place.weft(command);
        assert!(said.code != 0 && said.err.contains("symbolic link of user 65534 (rest)"), "{said:?}");
    }
    let found = roots.metadata().unwrap();
    assert_eq!((found.uid(), std::fs::read_dir(&roots).unwrap().count()), (0, 1));
    // Nor to a place to mount at.
    place.weft(&["mount", "own/v", "own/rest"]).failed(&["symbolic link of user 65534 (rest)"]);
    // Links of the owner's are as good as the volume, and so are root's, in directories of theirs.
    for (name, user) in [("own/link", OWNER.0), ("own/link", 0), ("link", 0), ("link", OWNER.0)] {
        let link = place.path(name);
        let _ = std::fs::remove_file(&link);
        symlink(place.path("own/v"), &link).unwrap();
        rustix::fs::chownat(CWD, &link, self::user(user), None, rustix::fs::AtFlags::SYMLINK_NOFOLLOW).unwrap();
        place.weft(&["info", name]).well();
    }
    // A link of root's may have been moved there.
    rustix::fs::chownat(CWD, &link, self::user(0), None, rustix::fs::AtFlags::SYMLINK_NOFOLLOW).unwrap();
    place.weft(&["info", "other/v"]).failed(&["symbolic link of user 65533"]);
}

#[test]
fn a_database_of_roots_in_a_directory_of_a_user_is_not_taken_for_roots_volume() {
    let Some(place) = volume_of_a_user("segments") else { return };
    for name in ["meta.sqlite", "lock", "segments"] {
        chown(place.path("own/v").join(name), Some(0), Some(0)).unwrap();
    }
    for command in [&["export", "own/v", "out"][..], &["info", "own/v"], &["check", "own/v"]] {
        let said = place.weft(command);
        assert!(said.code != 0 && said.err.contains("ermission"), "{said:?}");
    }
}

#[test]
fn a_volume_of_roots_that_a_user_can_put_another_in_place_of_is_told_of() {
    let Some(place) = Place::to_mount() else { return };
    if !is_root() {
        return eprintln!("SKIPPED a_volume_of_roots_that_a_user_can_put_another_in_place_of_is_told_of: needs root");
    }
    let own = place.directory("own");
    place.weft(&["init", "own/v"]).well();
    place.directory("from");
    let said = place.weft(&["import", "from", "own/v:/one"]);
    assert!(said.code == 0 && !said.err.contains("put another volume"), "{said:?}");
    chown(&own, Some(OWNER.0), Some(OWNER.1)).unwrap();
    let said = place.weft(&["import", "from", "own/v:/two"]);
    let told = ["own/v is root's and lies in", "user 65534", "put another volume of root's in its place"];
    assert!(said.code == 0 && told.iter().all(|word| said.err.contains(word)), "{said:?}");
}
