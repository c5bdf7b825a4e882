//! Damage below a mount: data that a disk or a stray write changed gives errors where it is used,
//! and stays an error.

use crate::place::{Place, write_synced};
use std::fs;
use std::os::unix::fs::{FileExt, PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::Command;

/// Bytes of a page of a database.
const PAGE: usize = 4096;

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

/// A person saves a damaged file page by page: whatever order that takes.
#[test]
fn damage_to_a_part_of_a_block_costs_no_page_of_another_part() {
    let Some(place) = Place::to_mount() else { return };
    let mounted = place.directory("m");
    place.weft(&["init", "--history", "off", "v"]).well();
    place.mount();
    let content: Vec<u8> =
        (0..65_536_u32).flat_map(|number| number.wrapping_mul(2_654_435_761).to_le_bytes()).collect();
    write_synced(&mounted.join("file"), &content);
    place.umount();
    damage(&place.path("v/segments/00000001.seg"), &content[100_000..100_032]);
    for is_backward in [false, true] {
        place.mount();
        let file = fs::File::open(mounted.join("file")).unwrap();
        // No page is read because of another.
        rustix::fs::fadvise(&file, 0, None, rustix::fs::Advice::Random).unwrap();
        let mut pages: Vec<usize> = (0..content.len() / PAGE).collect();
        if is_backward {
            pages.reverse();
        }
        let mut page = vec![0; PAGE];
        let mut lost = Vec::new();
        for number in pages {
            match file.read_exact_at(&mut page, (number * PAGE) as u64) {
                Ok(()) => assert!(page == content[number * PAGE..][..PAGE], "{number}"),
                Err(_) => lost.push(number),
            }
        }
        lost.sort_unstable();
        // Those of the 16 KiB that have one digest.
        assert_eq!(lost, [24, 25, 26, 27]);
        drop(file);
        place.umount();
    }
}

/// Rows of blocks from an older moment, each of them whole, are told apart by the digest alone.
#[test]
fn older_content_put_back_stays_damage_until_it_is_given_up() {
    let Some(place) = Place::to_mount() else { return };
    if Command::new("sqlite3").arg("--version").output().is_err() {
        return eprintln!("SKIPPED older_content_put_back_stays_damage_until_it_is_given_up: needs sqlite3");
    }
    let mounted = place.directory("m");
    place.weft(&["init", "--history", "off", "v", "--blocks", "database"]).well();
    let put = |byte: u8| {
        place.mount();
        fs::write(mounted.join("big"), vec![byte; 200_000]).unwrap();
        fs::write(mounted.join("small"), "whole").unwrap();
        place.umount();
    };
    put(1);
    fs::copy(place.path("v"), place.path("older")).unwrap();
    put(2);
    let back = |table: &str| format!("DELETE FROM {table}; INSERT INTO {table} SELECT * FROM older.{table};");
    let back = ["extents", "blocks", "block_bytes"].map(back).concat();
    let back = format!("ATTACH '{}' AS older; {back}", place.path("older").display());
    assert!(Command::new("sqlite3").arg(place.path("v")).arg(back).status().unwrap().success());
    for command in [&["check", "v"][..], &["check", "--repair", "v"], &["check", "v"]] {
        let said = place.weft(command);
        assert!(said.code == 1 && said.out.contains("/big: its digest is not that of its content"), "{said:?}");
        assert!(said.out.contains("--discard") && !said.out.contains("(repaired)"), "{said:?}");
    }
    place.weft(&["convert", "v", "w", "--blocks", "segments"]).failed(&["/big: its digest is not that of its content"]);
    assert!(!place.path("w").exists());
    place.weft(&["export", "v", "out"]).failed(&["big: exported, but its content is not what its digest says"]);
    assert_eq!(fs::read(place.path("out/small")).unwrap(), b"whole");
    let said = place.weft(&["check", "--repair", "--discard", "v"]);
    assert!(said.out.contains("(repaired)") && said.out.contains("it is clean now"), "{said:?}");
    place.weft(&["export", "v", "again"]).well();
    assert_eq!(fs::read(place.path("again/big")).unwrap(), [1; 200_000]);
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

/// Each file of volume `v` that a mount must leave as it was when it is refused.
fn kept_files(place: &Place) -> Vec<(PathBuf, Vec<u8>)> {
    let (mut waiting, mut kept) = (vec![place.path("v")], Vec::new());
    while let Some(path) = waiting.pop() {
        let name = path.file_name().unwrap().to_str().unwrap();
        if path.is_dir() {
            waiting.extend(fs::read_dir(path).unwrap().map(|entry| entry.unwrap().path()));
        } else if name != "lock" && !name.ends_with(".log") && !name.ends_with("-shm") {
            let content = fs::read(&path).unwrap();
            kept.push((path, content));
        }
    }
    kept.sort();
    kept
}

#[test]
fn mounts_that_are_refused_for_their_logs_leave_all_as_it_was_and_go_on_with_the_logs() {
    let Some(place) = Place::to_mount() else { return };
    place.weft(&["init", "v"]).well();
    let mounted = place.directory("m");
    // What is synced stays in the intent log alone.
    let mount = || place.weft(&["mount", "--commit-interval", "1000", "v", "m"]).well();
    mount();
    let refused = |words: &[&str]| {
        let before = kept_files(&place);
        for _ in 0..2 {
            place.weft(&["mount", "v", "m"]).failed(words);
        }
        assert!(kept_files(&place) == before);
    };
    write_synced(&mounted.join("first"), b"synced");
    place.kill("v/lock");
    fs::rename(place.path("v/intents"), place.path("aside")).unwrap();
    refused(&["v/intents is missing"]);
    fs::rename(place.path("aside"), place.path("v/intents")).unwrap();
    mount();
    assert_eq!(fs::read(mounted.join("first")).unwrap(), b"synced");

    // Rot in a record below what was synced later.
    for name in ["one", "two", "three", "four"] {
        write_synced(&mounted.join(name), name.as_bytes());
    }
    place.kill("v/lock");
    let change = |file: &str, at: usize, by: u8| {
        let mut content = fs::read(place.path(file)).unwrap();
        content[at] ^= by;
        fs::write(place.path(file), content).unwrap();
    };
    let log = fs::read(place.path("v/intents")).unwrap();
    let record = log.windows(3).position(|window| window == b"two").expect("the record that makes it");
    change("v/intents", record + 1, b'w' ^ b'v');
    refused(&["--accept-loss"]);
    assert_eq!(place.weft(&["mount", "--accept-loss", "v", "m"]).code, 0);
    assert_eq!(fs::read(mounted.join("first")).unwrap(), b"synced");
    place.umount();
    place.weft(&["check", "--read-data", "v"]).well();

    // Rot in the database's write-ahead log, in the content of its second frame.
    place.mount();
    for round in 0..6 {
        fs::write(mounted.join(round.to_string()), "x").unwrap();
        place.weft(&["sync", "m"]).well();
    }
    place.kill("v/lock");
    change("v/meta.sqlite-wal", 32 + 24 + PAGE + 24 + 100, 1);
    refused(&["--accept-loss"]);
}

/// Rows that are gone as a whole: their sums went with them, but what counts them is still there.
#[test]
fn names_and_blocks_whose_rows_are_gone_are_missed() {
    let Some(place) = Place::to_mount() else { return };
    place.weft(&["init", "v"]).well();
    let mounted = place.directory("m");
    place.mount();
    for directory in ["few", "many", "whole"] {
        fs::create_dir(mounted.join(directory)).unwrap();
        let count = if directory == "many" { 3000 } else { 5 };
        (0..count).for_each(|n| fs::write(mounted.join(directory).join(n.to_string()), "x").unwrap());
    }
    let sparse = fs::File::create(mounted.join("sparse")).unwrap();
    let block = vec![7; 256 << 10];
    for index in [0, 8, 16] {
        sparse.write_all_at(&block, index * (1 << 20)).unwrap();
    }
    fs::copy(mounted.join("sparse"), mounted.join("other")).unwrap();
    drop(sparse);
    place.umount();
    let gone = "DELETE FROM naming WHERE name = x'33' AND parent IN \
                (SELECT ino FROM naming WHERE name IN (CAST('few' AS BLOB), CAST('many' AS BLOB))); \
                DELETE FROM extents WHERE ino = (SELECT ino FROM naming WHERE name = CAST('sparse' AS BLOB)) \
                AND start = (SELECT max(start) FROM extents) / 131072 * 65536;";
    assert!(Command::new("sqlite3").arg(place.path("v/meta.sqlite")).arg(gone).status().unwrap().success());

    place.mount();
    let list = |name: &str| fs::read_dir(mounted.join(name)).unwrap().map(|entry| entry.map(drop)).collect::<Vec<_>>();
    for name in ["few", "many"] {
        let told = list(name);
        assert!(told.iter().any(Result::is_err), "{name}: {} names and no error", told.len());
    }
    assert!(list("many").len() > 1000, "what is there is listed before the error");
    assert_eq!(list("whole").len(), 5);
    let errno = |result: std::io::Result<Vec<u8>>| result.map_err(|error| error.raw_os_error());
    assert_eq!(errno(fs::read(mounted.join("few/3"))), Err(Some(5)), "it may be the one that is gone");
    assert_eq!(errno(fs::read(mounted.join("few/4"))), Ok(b"x".to_vec()));
    assert_eq!(errno(fs::read(mounted.join("whole/9"))), Err(Some(2)));
    assert_eq!(errno(fs::read(mounted.join("sparse"))), Err(Some(5)));
    assert_eq!(fs::read(mounted.join("other")).unwrap().len(), (16 << 20) + block.len());
    place.umount();
    let said = place.weft(&["export", "v", "out"]);
    assert_ne!(said.code, 0, "{said:?}");
    for name in ["few", "many", "sparse"] {
        assert!(said.err.contains(name), "{said:?}");
    }
    assert_eq!(fs::read_dir(place.path("out/whole")).unwrap().count(), 5);
}

/// An attribute that is gone may be the list of rights: nobody gets more by the bits that it
/// leaves.
#[test]
fn attributes_whose_rows_are_gone_are_missed() {
    let Some(place) = Place::to_mount() else { return };
    place.weft(&["init", "v"]).well();
    let mounted = place.directory("m");
    place.mount();
    for name in ["closed", "whole"] {
        fs::write(mounted.join(name), SMALL).unwrap();
        std::os::unix::fs::chown(mounted.join(name), None, Some(4321)).unwrap();
        // Its group may nothing; the mask shows as the bits of the group.
        let acl = "0x0200000001000600ffffffff02000400d204000004000000ffffffff10000400ffffffff20000000ffffffff";
        let set = ["-n", "system.posix_acl_access", "-v", acl];
        assert!(Command::new("setfattr").args(set).arg(mounted.join(name)).status().unwrap().success());
        assert_eq!(fs::metadata(mounted.join(name)).unwrap().permissions().mode() & 0o777, 0o640);
    }
    place.umount();
    let gone = "DELETE FROM xattr WHERE ino = (SELECT ino FROM naming WHERE name = CAST('closed' AS BLOB))";
    assert!(Command::new("sqlite3").arg(place.path("v/meta.sqlite")).arg(gone).status().unwrap().success());

    place.mount();
    let read = |name: &str, group: &str| {
        let mut reader = Command::new("setpriv");
        reader.args(["--reuid=1233", &format!("--regid={group}"), "--clear-groups", "cat"]).arg(mounted.join(name));
        let said = reader.output().unwrap();
        (said.status.success(), String::from_utf8_lossy(&said.stderr).into_owned())
    };
    assert_eq!(
        read("closed", "4321"),
        (false, format!("cat: {}: Input/output error\n", mounted.join("closed").display()))
    );
    let denied = format!("cat: {}: Permission denied\n", mounted.join("whole").display());
    assert_eq!(read("whole", "4321"), (false, denied));
    place.umount();

    for arguments in [&["check", "v"][..], &["check", "--repair", "v"], &["scrub", "v"]] {
        let said = place.weft(arguments);
        assert_eq!(said.code, 1, "{said:?}");
        assert!(said.out.contains("/closed: rows of its extended attributes are gone"), "{said:?}");
    }
    let said = place.weft(&["convert", "v", "w", "--blocks", "database"]);
    assert!(said.code == 1 && format!("{said:?}").contains("/closed"), "{said:?}");
    let said = place.weft(&["export", "v", "out"]);
    assert!(said.code == 1 && said.err.contains("closed"), "{said:?}");
    let mode = |path: &str| fs::metadata(place.path(path)).unwrap().permissions().mode() & 0o777;
    assert_eq!((mode("out/closed"), mode("out/whole")), (0o600, 0o640));
    place.weft(&["check", "--repair", "--discard", "v"]);
    place.weft(&["check", "v", "--read-data"]).well();
    place.mount();
    assert_eq!(mode("m/closed"), 0o600);
    assert_eq!(fs::read(mounted.join("closed")).unwrap(), SMALL);
    place.umount();
}

/// Rows that are whole may contradict each other all the same.
#[test]
fn versions_of_blocks_that_contradict_each_other_are_told() {
    let Some(place) = Place::to_mount() else { return };
    place.weft(&["init", "v"]).well();
    place.directory("m");
    place.mount_with("v", &["--commit-interval", "1000"]);
    place.weft(&["history", "set", "m", "all forever"]).well();
    for byte in ["a", "b", "c"] {
        let written = format!("head -c 100000 /dev/zero | tr '\\0' {byte} | dd of=file conv=notrunc status=none");
        place.sh(&written).well();
        place.weft(&["sync", "m"]).well();
    }
    place.umount();
    place.weft(&["check", "v"]).well();
    let earlier = "UPDATE extents SET since = since - 1 WHERE start = 0";
    assert!(Command::new("sqlite3").arg(place.path("v/meta.sqlite")).arg(earlier).status().unwrap().success());
    weft_store::sqlite::seal(&place.path("v")).unwrap();
    let said = place.weft(&["check", "v"]);
    assert!(said.code == 1 && said.out.contains("/file: versions of its blocks at byte 0, of commits "), "{said:?}");
    assert_eq!(said.out.matches("contradict each other").count(), 1, "{said:?}");
    place.weft(&["check", "--repair", "--discard", "v"]);
    place.weft(&["check", "--read-data", "v"]).well();
}

/// Returns the second leaf of the table `fileatt`, which has no row of the root.
fn second_leaf_of_inodes(database: &Path) -> u64 {
    let ask = "SELECT rootpage FROM sqlite_schema WHERE name = 'fileatt'";
    let root = Command::new("sqlite3").arg("-readonly").arg(database).arg(ask).output().unwrap().stdout;
    let root: usize = String::from_utf8(root).unwrap().trim().parse().unwrap();
    let content = fs::read(database).unwrap();
    let page = &content[(root - 1) * PAGE..root * PAGE];
    assert_eq!(page[0], 5, "an interior page of a table");
    // Its cells begin with the page that they lead to.
    let cell = usize::from(u16::from_be_bytes([page[14], page[15]]));
    u32::from_be_bytes(page[cell..cell + 4].try_into().unwrap()).into()
}

/// The root is read with rows behind it.
#[test]
fn a_broken_page_of_other_inodes_does_not_hide_the_root_and_the_log_names_the_volume() {
    let Some(place) = Place::to_mount() else { return };
    if Command::new("sqlite3").arg("--version").output().is_err() {
        return eprintln!("SKIPPED a_broken_page_of_other_inodes_does_not_hide_the_root: needs sqlite3");
    }
    let (from, mounted) = (place.directory("from"), place.directory("m"));
    for number in 0..200 {
        fs::write(from.join(number.to_string()), number.to_string()).unwrap();
    }
    place.weft(&["init", "v"]).well();
    place.weft(&["import", "from", "v:"]).well();
    let database = place.path("v/meta.sqlite");
    let leaf = second_leaf_of_inodes(&database);
    let file = fs::OpenOptions::new().write(true).open(&database).unwrap();
    file.write_all_at(&[0xff; PAGE], (leaf - 1) * PAGE as u64).unwrap();
    let said = place.weft(&["mount", "v", "m"]);
    assert!(said.code == 0 && !said.err.contains("VOLUME"), "{said:?}");
    let names: Vec<_> = fs::read_dir(&mounted).unwrap().map(|entry| entry.unwrap().path()).collect();
    assert_eq!(names.len(), 200);
    let (read, broken): (Vec<_>, Vec<_>) = names.iter().partition(|path| fs::read(path).is_ok());
    assert!(!read.is_empty() && !broken.is_empty(), "{} can be read", read.len());
    let log = fs::read_to_string(place.path("v/weft.log")).unwrap();
    assert!(log.contains("'weft check --salvage v NEW'") && !log.contains("VOLUME"), "{log}");
    place.umount();
}
