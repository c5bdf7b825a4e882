//! Place and name of a volume: no change of them loses synced data, and other users' files stay
//! untouched.

use crate::place::{Place, apart, write_synced};
use std::fs::File;
use std::io::Write;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::process::Command;

const HOMES: [&str; 2] = ["segments", "database"];

#[test]
fn a_volume_called_by_a_link_is_the_same_after_a_crash() {
    for home in HOMES {
        let Some(place) = Place::to_mount() else { return };
        let directory = place.directory("m");
        place.directory("real");
        place.weft(&["init", "real/v", "--blocks", home]).well();
        symlink("real/v", place.path("link")).unwrap();
        let hold = if home == "segments" { "real/v/lock" } else { "real/v" };
        for (round, (first, second)) in [("link", "real/v"), ("real/v", "link")].into_iter().enumerate() {
            place.weft(&["mount", "--commit-interval", "1000", first, "m"]).well();
            write_synced(&directory.join("file"), &[round as u8; 100]);
            place.kill(hold);
            place.weft(&["mount", second, "m"]).well();
            assert_eq!(std::fs::read(directory.join("file")).unwrap(), [round as u8; 100]);
            place.umount();
        }
        place.weft(&["check", "link"]).well();
        let beside = std::fs::read_dir(place.path("")).unwrap().map(|entry| entry.unwrap().file_name());
        assert_eq!(beside.filter(|name| name.to_string_lossy().starts_with("link-")).count(), 0);
    }
}

#[test]
fn a_volume_that_was_moved_after_a_crash_has_what_was_synced() {
    for home in HOMES {
        let Some(place) = Place::to_mount() else { return };
        let directory = place.directory("m");
        place.directory("elsewhere");
        place.weft(&["init", "v", "--blocks", home]).well();
        place.weft(&["mount", "--commit-interval", "1000", "v", "m"]).well();
        write_synced(&directory.join("file"), b"synced");
        place.kill(if home == "segments" { "v/lock" } else { "v" });
        for end in ["", "-wal", "-intents"] {
            let moved = std::fs::rename(place.path(format!("v{end}")), place.path(format!("elsewhere/w{end}")));
            assert!(moved.is_ok() || (home == "segments" && !end.is_empty()), "{home} {end}");
        }
        place.weft(&["mount", "elsewhere/w", "m"]).well();
        assert_eq!(std::fs::read(directory.join("file")).unwrap(), b"synced");
        place.umount();
        place.weft(&["check", "--read-data", "elsewhere/w"]).well();
    }
}

#[test]
fn a_volume_that_was_moved_under_its_mount_is_not_waited_for() {
    let Some(place) = Place::to_mount() else { return };
    let directory = place.mounted();
    place.directory("m2");
    write_synced(&directory.join("file"), b"synced");
    std::fs::rename(place.path("v"), place.path("w")).unwrap();
    let said = place.weft(&["mount", "w", "m2"]);
    let told = ["w was moved while it was mounted at", "move it back", "weft umount", "in use by another process"];
    assert!(said.code == 1 && told.iter().all(|word| said.err.contains(word)), "{said:?}");
    std::fs::rename(place.path("w"), place.path("v")).unwrap();
    place.umount();
    place.weft(&["mount", "v", "m2"]).well();
    assert_eq!(std::fs::read(place.path("m2/file")).unwrap(), b"synced");
    place.weft(&["umount", "m2"]).well();
}

#[test]
fn a_file_that_is_mounted_by_itself_is_refused() {
    let place = Place::new();
    place.weft(&["init", "v", "--blocks", "database"]).well();
    std::fs::write(place.path("b"), "").unwrap();
    let Some(said) = apart(&place, "mount --bind v b; \"$0\" check b") else { return };
    said.could_not(&["a file mounted by itself", "mount the directory that holds it"]);
    place.weft(&["check", "v"]).well();
}

#[test]
fn a_new_volume_is_closed_to_others() {
    let Some(place) = Place::to_mount() else { return };
    place.directory("m");
    for home in HOMES {
        place.weft(&["init", home, "--blocks", home]).well();
        place.weft(&["mount", home, "m"]).well();
        write_synced(&place.path("m/file"), &[7; 100_000]);
        place.weft(&["mount", home, "m"]).failed(&[]);
        let mut waiting = vec![place.path(home), place.path(format!("{home}.log"))];
        waiting.extend(["-wal", "-shm", "-intent"].map(|end| place.path(format!("{home}{end}"))));
        while let Some(path) = waiting.pop() {
            let Ok(metadata) = path.metadata() else { continue };
            let wanted = if metadata.is_dir() { 0o700 } else { 0o600 };
            assert_eq!(metadata.permissions().mode() & 0o7777, wanted, "{}", path.display());
            if metadata.is_dir() {
                waiting.extend(std::fs::read_dir(&path).unwrap().map(|entry| entry.unwrap().path()));
            }
        }
        place.umount();
    }
}

#[test]
fn a_volume_that_was_taken_away_is_told_of_by_name() {
    for home in HOMES {
        let Some(place) = Place::to_mount() else { return };
        let directory = place.directory("m");
        place.weft(&["init", "v", "--blocks", home]).well();
        place.weft(&["mount", "--commit-interval", "1000", "v", "m"]).well();
        write_synced(&directory.join("file"), b"synced");
        std::fs::rename(place.path("v"), place.path("w")).unwrap();
        assert!(File::open(directory.join("file")).unwrap().sync_all().is_err(), "what is synced is nowhere");
        let file = File::create(directory.join("late")).unwrap();
        assert!(file.sync_all().is_err());
        drop(file);
        place.weft(&["umount", "m"]).failed(&["m stays mounted", "it was removed or moved", "--lazy"]);
        std::fs::rename(place.path("w"), place.path("v")).unwrap();
        File::open(directory.join("file")).unwrap().sync_all().unwrap();
        place.umount();
        place.mount();
        assert_eq!(std::fs::read(directory.join("file")).unwrap(), b"synced");
        assert!(directory.join("late").exists());
        // Removed for good.
        for end in ["", "-wal", "-shm", "-intent"] {
            let path = place.path(format!("v{end}"));
            let _ = std::fs::remove_file(&path).or_else(|_| std::fs::remove_dir_all(&path));
        }
        place.weft(&["umount", "m"]).failed(&["m stays mounted", "it was removed or moved"]);
        place
            .weft(&["umount", "--lazy", "m"])
            .failed(&["m is unmounted", "of changes are given up that cannot be committed"]);
    }
}

#[test]
fn a_segment_that_was_taken_away_is_told_of_by_name() {
    let Some(place) = Place::to_mount() else { return };
    place.directory("in");
    std::fs::write(place.path("in/file"), vec![5; 300_000]).unwrap();
    place.weft(&["init", "v"]).well();
    place.weft(&["import", "in", "v"]).well();
    let directory = place.directory("m");
    place.weft(&["mount", "--commit-interval", "1000", "v", "m"]).well();
    write_synced(&directory.join("before"), b"synced");
    let segment = place.path("v/segments/00000001.seg");
    std::fs::rename(&segment, place.path("aside")).unwrap();
    let synced = File::create(directory.join("late")).unwrap().sync_all();
    assert_eq!(synced.unwrap_err().raw_os_error(), Some(libc::EIO));
    place.weft(&["umount", "m"]).failed(&[
        "m stays mounted",
        "00000001.seg",
        "it was removed or moved",
        "move it back",
    ]);
    std::fs::rename(place.path("aside"), &segment).unwrap();
    File::open(directory.join("late")).unwrap().sync_all().unwrap();
    place.umount();
    place.weft(&["check", "--read-data", "v"]).well();
}

#[test]
fn a_segment_that_was_replaced_while_it_was_written_is_told_of_by_name() {
    let Some(place) = Place::to_mount() else { return };
    let directory = place.mounted();
    std::fs::write(directory.join("file"), vec![5; 40_000_000]).unwrap();
    rustix::fs::syncfs(File::open(&directory).unwrap()).unwrap();
    let segment = place.path("v/segments/00000001.seg");
    std::fs::copy(&segment, place.path("copy")).unwrap();
    std::fs::rename(&segment, place.path("aside")).unwrap();
    std::fs::rename(place.path("copy"), &segment).unwrap();
    assert!(File::create(directory.join("late")).unwrap().sync_all().is_err());
    place.weft(&["umount", "m"]).failed(&["m stays mounted", "00000001.seg", "another file has its name"]);
    std::fs::rename(place.path("aside"), &segment).unwrap();
    place.umount();
    place.weft(&["check", "--read-data", "v"]).well();
}

#[test]
fn a_segment_that_was_replaced_before_it_was_written_or_punched_is_told_of_by_name() {
    let Some(place) = Place::to_mount() else { return };
    let directory = place.mounted();
    std::fs::write(directory.join("file"), vec![5; 4_000_000]).unwrap();
    place.umount();
    place.mount();
    let segment = place.path("v/segments/00000001.seg");
    std::fs::rename(&segment, place.path("aside")).unwrap();
    std::fs::copy(place.path("aside"), &segment).unwrap();
    let copy = std::fs::read(&segment).unwrap();
    std::fs::remove_file(directory.join("file")).unwrap();
    std::fs::write(directory.join("late"), vec![6; 100_000]).unwrap();
    assert!(File::open(directory.join("late")).unwrap().sync_all().is_err());
    place.weft(&["umount", "m"]).failed(&["m stays mounted", "00000001.seg", "another file has its name"]);
    assert!(std::fs::read(&segment).unwrap() == copy, "nothing of it is given back");
    std::fs::rename(place.path("aside"), &segment).unwrap();
    place.umount();
    place.weft(&["check", "--read-data", "v"]).well();
    place.mount();
    assert_eq!(std::fs::read(directory.join("late")).unwrap(), vec![6; 100_000]);
    place.umount();
}

#[test]
fn a_copy_of_a_mounted_volume_that_rests_is_a_volume() {
    let Some(place) = Place::to_mount() else { return };
    let directory = place.directory("m");
    place.weft(&["init", "v"]).well();
    place.weft(&["mount", "--commit-interval", "1000", "v", "m"]).well();
    write_synced(&directory.join("file"), &[5; 200_000]);
    let copied = Command::new("cp").args(["-a", "v", "w"]).current_dir(place.path("")).status().unwrap();
    assert!(copied.success());
    place.umount();
    place.weft(&["mount", "w", "m"]).well();
    assert_eq!(std::fs::read(directory.join("file")).unwrap(), [5; 200_000]);
    place.umount();
}

/// Commands that only read, of volume `v`, whose file `file` holds `synced`.
const READS: &str = r#"
    mount --bind ro ro
    mount -o remount,ro,bind ro
    for command in "info ro/v" "check --read-data ro/v" "scrub ro/v" "log ro/v" "digest ro/v:/file" "diff ro/v:/ ro/v:/"
    do "$0" $command >said 2>told; grep -q "ro/v lies where nothing can be written" told; done
    "$0" prove ro/v:/ file >proof 2>told
    "$0" export ro/v out 2>told
    grep -q synced out/file
    "$0" mount --read-only ro/v m 2>told
    grep -q synced m/file
    "$0" umount m
    if "$0" mount ro/v m 2>told; then exit 9; fi
    grep -q "weft mount --read-only" told
    grep -q "lies on a read-only file system" told
    if "$0" import out ro/v 2>told; then exit 7; fi
    grep -q "lies on a read-only file system" told
    if "$0" check --repair ro/v 2>told; then exit 8; fi
    grep -q "cannot be repaired there" told
"#;

#[test]
fn a_volume_that_cannot_be_written_is_read_and_stays_as_it_was() {
    for home in HOMES {
        for crashed in [false, true] {
            let Some(place) = Place::to_mount() else { return };
            let directory = place.directory("m");
            place.directory("ro");
            place.weft(&["init", "ro/v", "--blocks", home]).well();
            place.weft(&["mount", "--commit-interval", "1000", "ro/v", "m"]).well();
            write_synced(&directory.join("large"), &vec![3; 4_000_000]);
            write_synced(&directory.join("file"), b"synced");
            if crashed {
                place.kill(if home == "segments" { "ro/v/lock" } else { "ro/v" });
            } else {
                place.umount();
            }
            let sum = || {
                let sums = "find ro -type f | sort | xargs sha256sum; find ro -printf '%p %T@\\n' | sort";
                let output = Command::new("sh").args(["-c", sums]).current_dir(place.path("")).output().unwrap();
                String::from_utf8(output.stdout).unwrap()
            };
            let before = sum();
            let Some(said) = apart(&place, READS) else { return };
            assert_eq!(
                said.code,
                0,
                "{home}, crashed: {crashed}: {said:?} {:?}",
                std::fs::read_to_string(place.path("told"))
            );
            assert_eq!(sum(), before);
        }
    }
}

/// On a small disk; `$1` says where blocks lie.
const FULL: &str = r#"
    mount -t tmpfs -o size=20m tmpfs disk
    "$0" init disk/v --blocks "$HOME_OF_BLOCKS" >/dev/null
    "$0" mount --commit-interval 1000 disk/v m
    head -c 1000000 /dev/urandom >small
    cp small m/small; sync m/small
    "$0" umount m
    cat /dev/zero >disk/intruder 2>/dev/null || true
    "$0" mount disk/v m
    cmp small m/small
    "$0" info disk/v >/dev/null 2>told || grep -q "locked" told
    if { echo more >m/more && sync m/more; } 2>told; then exit 9; fi
    grep -q "No space left" told
    rm m/small
    rm disk/intruder
    echo more >m/more
    sync m
    "$0" umount m
    "$0" check disk/v
    cat /dev/zero >disk/intruder 2>/dev/null || true
    "$0" mount --read-only disk/v m
    grep -q more m/more
    "$0" umount m
"#;

#[test]
fn a_volume_on_a_full_disk_opens_and_goes_on_when_there_is_room() {
    for home in HOMES {
        let Some(place) = Place::to_mount() else { return };
        place.directory("m");
        place.directory("disk");
        let Some(said) = apart(&place, &FULL.replace("$HOME_OF_BLOCKS", home)) else { return };
        assert_eq!(said.code, 0, "{home}: {said:?}");
    }
}

/// On a small disk, where the write-ahead log cannot be copied into the database.
const UNSETTLED: &str = r#"
    mount -t tmpfs -o size=60m tmpfs disk
    "$0" init disk/v --blocks database >/dev/null
    "$0" mount --commit-interval 1000 disk/v m
    head -c 3000000 /dev/urandom >large
    # More than the intent log leaves when it goes.
    for name in 1 2 3 large; do cp large m/$name; sync m/$name; done
    cat /dev/zero >disk/intruder 2>/dev/null || true
    if "$0" umount m 2>told; then exit 9; fi
    grep -q "all changes are committed and safe" told
    grep -q "free some space, then mount and unmount" told
    rm disk/intruder
    "$0" mount disk/v m
    cmp large m/large
    "$0" umount m
    test ! -e disk/v-wal
    "$0" check --read-data disk/v
"#;

#[test]
fn an_unmount_that_leaves_changes_in_the_write_ahead_log_says_so() {
    let Some(place) = Place::to_mount() else { return };
    place.directory("m");
    place.directory("disk");
    let Some(said) = apart(&place, UNSETTLED) else { return };
    assert_eq!(said.code, 0, "{said:?} {:?}", std::fs::read_to_string(place.path("told")));
}

#[test]
fn an_unmount_that_cannot_close_the_database_leaves_the_intent_log() {
    let Some(place) = Place::to_mount() else { return };
    let directory = place.directory("m");
    place.weft(&["init", "v", "--blocks", "database"]).well();
    place.mount();
    for name in ["a", "b"] {
        write_synced(&directory.join(name), b"synced");
        place.weft(&["sync", "m"]).well();
    }
    File::options().write(true).open(place.path("v-wal")).unwrap().set_len(0).unwrap();
    let said = place.weft(&["umount", "m"]);
    assert_ne!(said.code, 0, "{said:?}");
    assert!(!place.is_mounted("m"));
    assert!(place.path("v-intents").exists());
    place.weft(&["mount", "v", "m"]).failed(&["write-ahead log", "--salvage"]);
}

#[test]
fn a_limit_of_file_sizes_is_an_error_and_not_the_end() {
    for home in HOMES {
        let Some(place) = Place::to_mount() else { return };
        let directory = place.directory("m");
        place.weft(&["init", "v", "--blocks", home]).well();
        let mut shell = Command::new("sh");
        // Units are 512 bytes, and the intent log is within it. One commit has all: several could
        // have a segment each.
        let mount = "ulimit -f 80000; exec \"$0\" mount --dirty-max 2G --commit-interval 3600 v m";
        shell.args(["-c", mount, env!("CARGO_BIN_EXE_weft")]);
        assert!(shell.current_dir(place.path("")).status().unwrap().success());
        let mut file = File::create(directory.join("file")).unwrap();
        let written = (0..60).try_for_each(|_| file.write_all(&[7; 1 << 20])).and_then(|()| file.sync_all());
        drop(file);
        assert!(matches!(written.unwrap_err().raw_os_error(), Some(libc::ENOSPC | libc::EIO | libc::EFBIG)));
        place.weft(&["umount", "m"]).failed(&["m stays mounted"]);
        std::fs::remove_file(directory.join("file")).unwrap();
        write_synced(&directory.join("small"), b"synced");
        place.umount();
        place.weft(&["check", "v"]).well();
        place.mount();
        assert_eq!(std::fs::read(directory.join("small")).unwrap(), b"synced");
        place.umount();
    }
}

#[test]
fn a_log_that_cannot_be_written_is_told_of_at_once() {
    let Some(place) = Place::to_mount() else { return };
    place.directory("m");
    place.weft(&["init", "v"]).well();
    place.weft(&["mount", "v", "m", "--log", "no/such/log"]).failed(&["cannot write messages to", "no/such/log"]);
    assert!(!place.is_mounted("m"));
}

#[test]
fn messages_that_go_nowhere_are_told_of() {
    let Some(place) = Place::to_mount() else { return };
    place.directory("m");
    place.weft(&["init", "v"]).well();
    assert!(Command::new("mkfifo").args(["-m", "600"]).arg(place.path("v/weft.log")).status().unwrap().success());
    let said = place.weft(&["mount", "v", "m"]);
    assert!(said.code == 0 && said.err.contains("cannot write messages to"), "{said:?}");
    place.umount();
}

#[test]
fn a_broken_database_is_salvaged_into_a_new_volume() {
    use std::os::unix::fs::FileExt;
    let place = Place::new();
    place.directory("in");
    for number in 0..300 {
        std::fs::write(place.path(format!("in/file {number}")), format!("content {number}")).unwrap();
    }
    std::fs::write(place.path("in/large"), vec![9; 1_000_000]).unwrap();
    place.weft(&["init", "v"]).well();
    place.weft(&["import", "in", "v"]).well();
    let database = std::fs::OpenOptions::new().write(true).open(place.path("v/meta.sqlite")).unwrap();
    // The root of the table of commits or of another: SQLite reads nothing any more.
    database.write_all_at(&[0; 4096], 0).unwrap();
    place.weft(&["check", "v"]).could_not(&["not a Weft volume's database any more", "'weft check --salvage v NEW'"]);
    let said = place.weft(&["check", "v", "--salvage", "new", "--json"]);
    assert_eq!((said.code, said.err.as_str()), (1, ""), "a page is missing");
    let told: serde_json::Value = serde_json::from_str(&said.out).unwrap();
    assert_eq!((&told["files"], &told["missing_by_kind"]["page"]), (&301.into(), &1.into()), "{told}");
    place.weft(&["check", "--read-data", "new"]).well();
    place.weft(&["export", "new", "out"]).well();
    for number in 0..300 {
        let read = std::fs::read(place.path(format!("out/file {number}"))).unwrap();
        assert_eq!(read, format!("content {number}").into_bytes());
    }
    assert_eq!(std::fs::read(place.path("out/large")).unwrap(), vec![9; 1_000_000]);
    place.weft(&["check", "v", "--salvage", "new"]).could_not(&["new already exists"]);
    place.directory("other.unfinished");
    place
        .weft(&["check", "v", "--salvage", "other"])
        .could_not(&["other.unfinished exists", "remove it, then try again"]);
    assert_eq!(place.weft(&["check", "v", "new"]).code, 2);
}

#[test]
fn a_salvage_brings_what_only_the_intent_log_has() {
    for home in HOMES {
        let Some(place) = Place::to_mount() else { return };
        let directory = place.directory("m");
        place.weft(&["init", "v", "--blocks", home]).well();
        place.weft(&["mount", "--commit-interval", "1000", "v", "m"]).well();
        place.weft(&["check", "v", "--salvage", "new"]).could_not(&["in use by another process"]);
        std::fs::create_dir(directory.join("below")).unwrap();
        let large = vec![7; 300_000];
        write_synced(&directory.join("below/large"), &large);
        write_synced(&directory.join("file"), b"synced");
        place.kill(if home == "segments" { "v/lock" } else { "v" });
        let log = place.path(if home == "segments" { "v/intents" } else { "v-intents" });
        let before = std::fs::read(&log).unwrap();
        let said = place.weft(&["check", "v", "--salvage", "new"]).well();
        assert!(said.contains("operations that were synced wait in the intent log"), "{said:?}");
        assert!(said.contains("nothing is missing"), "{said:?}");
        assert_eq!(std::fs::read(&log).unwrap(), before);
        place.weft(&["check", "--read-data", "new"]).well();
        place.weft(&["mount", "new", "m"]).well();
        assert_eq!(std::fs::read(directory.join("file")).unwrap(), b"synced");
        assert_eq!(std::fs::read(directory.join("below/large")).unwrap(), large);
        place.umount();
        place.weft(&["check", "--read-data", "new"]).well();
    }
}
