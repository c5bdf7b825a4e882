//! `weft scrub`: it verifies all of a volume, mounted and busy or not, and names what is damaged.

use crate::place::{Numbers, Place, write_synced};
use std::fs::{self, File};
use std::io::Read;
use std::os::unix::fs::FileExt;
use std::process::Command;
use std::thread;

#[test]
fn a_volume_is_scrubbed_clean_mounted_busy_and_not_mounted() {
    let Some(place) = Place::to_mount() else { return };
    let mounted = place.mounted();
    fs::create_dir(mounted.join("directory")).unwrap();
    for number in 0..300 {
        fs::write(mounted.join("directory").join(number.to_string()), number.to_string()).unwrap();
    }
    write_synced(&mounted.join("zeros"), &[0; 300_000]);
    place.weft(&["scrub", "m"]).well();
    let churning = thread::spawn(move || {
        let content = Numbers(5).bytes(3_000_000);
        for round in 0..60 {
            write_synced(&mounted.join(format!("busy{}", round % 5)), &content);
            let _ = fs::remove_file(mounted.join(format!("busy{}", (round + 2) % 5)));
        }
    });
    let mut scrubs = 0;
    while !churning.is_finished() {
        place.weft(&["scrub", "m"]).well();
        scrubs += 1;
    }
    churning.join().unwrap();
    assert!(scrubs > 0);
    place.umount();
    place.weft(&["scrub", "v"]).well();
}

/// Directories that are removed stay as rows until the kernel has let go of them.
#[test]
fn directories_that_were_just_removed_are_no_damage() {
    let Some(place) = Place::to_mount() else { return };
    place.mounted();
    for round in 0..5 {
        place.sh(&format!("mkdir -p t/d && echo {round} >t/d/file && sync .")).well();
        place.sh("chmod 0 t/d && chmod 700 t/d && rm -rf t").well();
        place.weft(&["scrub", "m"]).well();
    }
    place.umount();
    place.weft(&["check", "v"]).well();
}

/// Flips a bit of the block of `name` that holds byte `offset`.
fn damage(place: &Place, name: &str, offset: u64) {
    let ask = format!(
        "SELECT segment, position FROM extents JOIN blocks ON id = block WHERE start = {} \
         AND ino = (SELECT ino FROM naming WHERE name = CAST('{name}' AS BLOB))",
        offset >> 16 << 16
    );
    let database = place.path("v/meta.sqlite");
    let told = Command::new("sqlite3").arg("-readonly").arg(database).arg(ask).output().unwrap().stdout;
    let told = String::from_utf8(told).unwrap();
    let (segment, position) = told.trim().split_once('|').expect("a block");
    let segment = place.path(format!("v/segments/{segment:0>8}.seg"));
    let file = File::options().read(true).write(true).open(segment).unwrap();
    let (at, mut byte) = (position.parse::<u64>().unwrap() + offset % 65_536, [0]);
    file.read_exact_at(&mut byte, at).unwrap();
    file.write_all_at(&[byte[0] ^ 16], at).unwrap();
}

#[test]
fn damage_is_named_by_path_and_range_mounted_or_not_and_reading_it_is_an_error_in_the_log() {
    let Some(place) = Place::to_mount() else { return };
    if Command::new("sqlite3").arg("--version").output().is_err() {
        return eprintln!("SKIPPED damage_is_named_by_path_and_range: needs sqlite3");
    }
    let mounted = place.mounted();
    fs::create_dir(mounted.join("directory")).unwrap();
    let mut numbers = Numbers(3);
    let long = numbers.bytes(1_000_000);
    write_synced(&mounted.join("directory/long"), &long);
    write_synced(&mounted.join("short"), &numbers.bytes(20_000));
    place.umount();
    damage(&place, "long", 700_000);
    damage(&place, "short", 12_345);
    let found = |volume: &str| {
        let said = place.weft(&["scrub", volume]);
        assert_eq!(said.code, 1, "{said:?}");
        for damaged in ["/directory/long: bytes 655360 to 720895 are damaged", "/short: bytes 0 to 19999 are damaged"] {
            assert!(said.out.contains(damaged), "{said:?}");
        }
        assert_eq!(said.out.matches("are damaged").count(), 2, "{said:?}");
    };
    found("v");
    place.mount();
    found("m");
    let errno = |read: std::io::Result<()>| read.unwrap_err().raw_os_error();
    assert_eq!(errno(fs::read(mounted.join("short")).map(drop)), Some(libc::EIO));
    assert_eq!(errno(fs::read(mounted.join("directory/long")).map(drop)), Some(libc::EIO));
    let mut start = vec![0; 600_000];
    File::open(mounted.join("directory/long")).unwrap().read_exact(&mut start).unwrap();
    assert!(start == long[..600_000]);
    let log = fs::read_to_string(place.path("v/weft.log")).unwrap();
    let is_told = |line: &str| line.contains("Read of bytes ") && line.contains(" of /directory/long failed");
    assert!(log.lines().any(is_told), "{log}");
    place.umount();
}
