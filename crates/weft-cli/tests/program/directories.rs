//! A directory of very many entries: each is found and listed once, whatever changes beside it.

use crate::place::{Numbers, on_each_engine};
use std::collections::HashSet;
use std::fs::{self, OpenOptions};
use std::io::ErrorKind;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::Path;

fn make(directory: &Path, name: &str) {
    OpenOptions::new().write(true).create_new(true).mode(0o600).open(directory.join(name)).unwrap();
}

/// Lists while entries come and go, and others get other names; entries that stay keep their order.
fn list(directory: &Path, count: usize) {
    for number in 0..count / 1000 + 10 {
        make(directory, &format!("old{number}"));
        make(directory, &format!("moved{number}"));
    }
    let mut seen = Vec::new();
    for (number, entry) in fs::read_dir(directory).unwrap().enumerate() {
        seen.push(entry.unwrap().file_name().into_string().unwrap());
        if number % 1000 == 0 {
            let path = |name: &str| directory.join(format!("{name}{}", number / 1000));
            make(directory, &format!("new{number}"));
            fs::remove_file(path("old")).unwrap();
            fs::rename(path("moved"), path("far")).unwrap();
        }
    }
    assert_eq!(seen.iter().collect::<HashSet<_>>().len(), seen.len(), "a name is listed twice");
    let stays = |name: &str| name.bytes().all(|byte| byte.is_ascii_digit());
    assert_eq!(seen.iter().filter(|name| stays(name)).count(), count);
    let names = || fs::read_dir(directory).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap());
    let others: Vec<String> = names().filter(|name| !stays(name)).collect();
    others.iter().for_each(|name| fs::remove_file(directory.join(name)).unwrap());
    assert_eq!(names().count(), count);
}

fn find(directory: &Path, count: usize) {
    let mut numbers = Numbers(7);
    for _ in 0..1000 {
        let name = numbers.below(count as u64).to_string();
        assert_eq!(fs::metadata(directory.join(&name)).unwrap().mode() & 0o7777, 0o600, "{name}");
    }
    let missing = fs::metadata(directory.join(count.to_string())).unwrap_err();
    assert_eq!(missing.kind(), ErrorKind::NotFound);
    assert_eq!(fs::metadata(directory).unwrap().nlink(), 2);
}

#[test]
fn very_many_entries_are_found_and_listed_once_whatever_changes_also_after_a_kill() {
    let is_soak = std::env::var_os("WEFT_SOAK").is_some();
    on_each_engine(&[], |place, volume| {
        let count = if is_soak {
            1_000_000
        } else if volume == "v" {
            100_000
        } else {
            30_000
        };
        let directory = place.path("m/many");
        fs::create_dir(&directory).unwrap();
        (0..count).for_each(|number| make(&directory, &number.to_string()));
        list(&directory, count);
        find(&directory, count);
        place.weft(&["sync", "m"]).well();
        place.mount_killed(volume, &[]);
        find(&directory, count);
        list(&directory, count);
        fs::remove_dir_all(&directory).unwrap();
    });
}
