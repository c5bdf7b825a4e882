//! `weft set` and `weft compact`: options of volumes that are there, and their space.

use crate::place::{Place, on_each_engine};
use std::fs;
use std::io::ErrorKind;

/// The limits of `volume` as `weft info` tells them.
fn limits(place: &Place, volume: &str) -> (Option<u64>, Option<u64>) {
    let told = place.weft(&["info", "--json", volume]).json();
    (told["options"]["bytes_max"].as_u64(), told["options"]["inodes_max"].as_u64())
}

#[test]
fn limits_change_while_a_volume_is_mounted_and_while_it_is_not() {
    on_each_engine(&[], |place, volume| {
        let full = |name: &str| fs::write(place.path(name), vec![1; 300_000]).unwrap_err().kind();
        fs::write(place.path("m/one"), vec![1; 300_000]).unwrap();
        let said = place.weft(&["set", "m", "size-max=500K", "inodes-max=3"]).well();
        assert!(said.contains("500.00 KiB") && said.contains("at most 3"), "{said}");
        assert_eq!(limits(place, volume), (Some(500 << 10), Some(3)));
        assert_eq!(full("m/two"), ErrorKind::QuotaExceeded);
        assert!(fs::create_dir(place.path("m/directory")).is_err(), "three are there");
        // One is left as it was, and what is there may be more than fits.
        let told = place.weft(&["set", volume, "size-max=100K", "--json"]).json();
        assert_eq!((told["bytes_max"].as_u64(), told["inodes_max"].as_u64()), (Some(100 << 10), Some(3)));
        let same = place.weft(&["set", "m", "size-max=100K", "--json"]).json();
        assert_eq!(same["commit"], told["commit"], "nothing changes");
        assert_eq!(fs::read(place.path("m/one")).unwrap(), vec![1; 300_000]);
        place.umount();
        place.weft(&["set", volume, "size-max=none"]).well();
        assert_eq!(limits(place, volume), (None, Some(3)));
        place.mount_with(volume, &[]);
        fs::write(place.path("m/two"), vec![1; 300_000]).unwrap();
        place.weft(&["set", "m", "inodes-max=none"]).well();
        fs::create_dir(place.path("m/directory")).unwrap();
        place.umount();
        place.mount_with(volume, &[]);
        assert_eq!(limits(place, volume), (None, None));
    });
}

#[test]
fn what_cannot_be_set_is_refused_with_the_command_that_can() {
    let place = Place::new();
    place.weft(&["init", "v"]).well();
    for (setting, why) in [
        ("history=off", "weft history set"),
        ("blocks=database", "weft convert"),
        ("size-max=0", "nothing could be stored"),
        ("size-max", "OPTION=VALUE"),
    ] {
        let said = place.weft(&["set", "v", setting]);
        assert!(said.code == 2 && said.err.contains(why), "{said:?}");
    }
    place.weft(&["set", "nowhere", "size-max=1G"]).failed(&["nowhere"]);
}

#[test]
fn a_compacted_volume_gives_its_space_back() {
    let Some(place) = Place::to_mount() else { return };
    place.weft(&["init", "--blocks", "database", "--history", "off", "v"]).well();
    place.directory("m");
    place.mount();
    fs::write(place.path("m/kept"), "kept").unwrap();
    fs::write(place.path("m/large"), vec![7; 8 << 20]).unwrap();
    place.weft(&["sync", "m"]).well();
    fs::remove_file(place.path("m/large")).unwrap();
    place.weft(&["compact", "v"]).failed(&["mounted at", "unmount it there first"]);
    place.umount();
    let size = || place.path("v").metadata().unwrap().len();
    assert!(size() > 8 << 20);
    let told = place.weft(&["compact", "v", "--json"]).json();
    assert!(told["bytes_before"].as_u64().unwrap() > 8 << 20 && told["bytes_after"].as_u64() == Some(size()));
    assert!(size() < 1 << 20);
    let said = place.weft(&["compact", "v"]).well();
    assert!(said.contains("the database takes"), "{said}");
    place.weft(&["check", "--read-data", "v"]).well();
    place.mount();
    assert_eq!(fs::read_to_string(place.path("m/kept")).unwrap(), "kept");
    place.umount();
    place.weft(&["compact", "postgres://localhost/x?schema=s"]).misused(&["PostgreSQL cannot be compacted", "VACUUM"]);
}
