//! History: what is kept of the past, and volumes as of earlier commits.

use crate::place::{Place, on_each_engine};
use crate::tree;
use std::path::Path;
use weft_testkit::Cluster;

pub const ALL: &str = "all forever";

/// Replaces all that lies in `directory` by a tree that tells of `round`.
fn fill(directory: &Path, round: usize) {
    let script = format!(
        "set -e; rm -rf a gone kept-{round}; mkdir -p a/b; seq {round}000 {round}999 >a/b/lines; echo {round} >'kept-{round}'
         ln a/b/lines a/hard; chmod {round}40 a/b/lines; head -c {round}00000 /dev/zero >a/zeros
         rm -f link; ln -s kept-{round} link; echo round {round} >>log"
    );
    let done = std::process::Command::new("bash").args(["-c", &script]).current_dir(directory).status().unwrap();
    assert!(done.success());
}

/// The last commit of the mount at `m`, after all is committed.
pub fn committed(place: &Place) -> u64 {
    let said = place.weft(&["sync", "m"]).well();
    let number = said.split_once("(commit ").and_then(|(_, number)| number.split_once(')'));
    number.and_then(|(number, _)| number.parse().ok()).expect("the daemon tells")
}

fn names(directory: &Path) -> Vec<String> {
    let entries = std::fs::read_dir(directory).unwrap();
    entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect()
}

/// The trees at `one` and `other` are the same, but for times of access.
#[track_caller]
fn assert_same(one: &Path, other: &Path) {
    let said = std::process::Command::new("diff").arg("-r").args([one, other]).output().unwrap();
    assert!(said.status.success() && said.stdout.is_empty(), "{said:?}");
    assert_described(one, other);
}

/// The same, of trees with what diff(1) does not compare.
#[track_caller]
pub fn assert_described(one: &Path, other: &Path) {
    let (mut one, other) = (tree::describe(one), tree::describe(other));
    for (path, told) in &mut one {
        told.accessed_as(&other[path]);
    }
    assert_eq!(one.keys().collect::<Vec<_>>(), other.keys().collect::<Vec<_>>());
    for (path, told) in &one {
        assert_eq!(told, &other[path], "{}", path.display());
    }
}

fn a_past_is_what_a_copy_was(blocks: &str) {
    let Some(place) = Place::to_mount() else { return };
    place.weft(&["init", "--history", ALL, "--blocks", blocks, "v"]).well();
    let directory = place.directory("m");
    place.mount();
    let mut commits = Vec::new();
    for round in 1..=3 {
        fill(&directory, round);
        commits.push(committed(&place));
        let mut copy = std::process::Command::new("cp");
        copy.arg("-a").arg(&directory).arg(place.path(format!("copy{round}")));
        assert!(copy.status().unwrap().success());
    }
    place.umount();
    for (round, commit) in (1..=3).zip(&commits) {
        let (at, copy) = (format!("@{commit}"), place.path(format!("copy{round}")));
        place.mount_with("v", &["--at", &at]);
        assert_same(&directory, &copy);
        assert!(std::fs::write(directory.join("new"), "").is_err(), "the past is read only");
        let log = std::fs::read_to_string(place.path("log")).unwrap();
        assert!(log.contains(&format!("is shown as of commit {commit}, made at 20")), "{log}");
        // Daemons of other tests may be about to end.
        let status = place.weft(&["status"]).out;
        let line = status.lines().find(|line| line.contains(place.path("m").to_str().unwrap())).unwrap();
        assert!(line.contains("read only, as of 20") && line.contains(&format!("commit {commit}")), "{line}");
        let digest = place.weft(&["digest", "m"]).well();
        place.umount();
        place.weft(&["export", "--at", &at, "v", &format!("export{round}")]).well();
        assert_same(&place.path(format!("export{round}")), &copy);
        let of = |text: &str| text.split(' ').next().unwrap().to_owned();
        assert_eq!(of(&place.weft(&["digest", "--at", &at, "v:"]).well()), of(&digest));
        assert_eq!(of(&place.weft(&["digest", "--read", "--at", &at, "v:"]).well()), of(&digest));
        assert_eq!(of(&place.weft(&["digest", copy.to_str().unwrap()]).well()), of(&digest));
        place.weft(&["prove", "--at", &at, "v:", "log"]).well();
    }
    place.weft(&["check", "--read-data", "v"]).well();
}

#[test]
fn a_mount_of_the_past_of_segments_shows_what_a_copy_made_then_does() {
    a_past_is_what_a_copy_was("segments");
}

#[test]
fn a_mount_of_the_past_of_one_file_shows_what_a_copy_made_then_does() {
    a_past_is_what_a_copy_was("database");
}

fn a_past_is_read_beside_a_mount(volume: &str) {
    let Some(place) = Place::to_mount() else { return };
    place.weft(&["init", "--history", ALL, volume]).well();
    let (directory, past) = (place.directory("m"), place.directory("p"));
    place.mount_with(volume, &[]);
    std::fs::write(directory.join("file"), vec![1; 100_000]).unwrap();
    let at = format!("@{}", committed(&place));
    std::fs::write(directory.join("file"), vec![2; 100_000]).unwrap();
    place.weft(&["mount", "--at", &at, volume, "p"]).well();
    let told = place.weft(&["history", "--json", "m"]).json();
    assert_eq!(told["rule"], ALL);
    for round in 3..10 {
        std::fs::write(directory.join("file"), vec![round; 100_000]).unwrap();
        std::fs::write(directory.join(format!("new {round}")), "").unwrap();
        place.weft(&["sync", volume]).well();
        assert_eq!(names(&past), ["file"]);
        assert!(std::fs::read(past.join("file")).unwrap() == vec![1; 100_000]);
    }
    place.weft(&["export", "--at", &at, volume, "export"]).well();
    assert_same(&place.path("export"), &past);
    place.weft(&["export", volume, "now"]).could_not(&["mounted at", "unmount it"]);
    assert_eq!(place.weft(&["snapshot", "list", volume]).well(), "");
    let lines = place.weft(&["status"]).out;
    let mounted = ["m", "p"].map(|directory| lines.contains(place.path(directory).to_str().unwrap()));
    assert_eq!(mounted, [true, true], "{lines}");
    // Either may be unmounted first.
    place.weft(&["umount", "p"]).well();
    place.weft(&["mount", "--at", &at, "m", "p"]).well();
    place.umount();
    assert_eq!(names(&past), ["file"]);
    place.weft(&["umount", "p"]).well();
    place.weft(&["check", "--read-data", volume]).well();
}

#[test]
fn the_past_is_read_beside_a_mount_that_goes_on_writing() {
    a_past_is_read_beside_a_mount("v");
}

#[test]
fn the_past_in_postgresql_is_read_beside_a_mount_that_goes_on_writing() {
    a_past_is_read_beside_a_mount(&Cluster::shared().url());
}

#[test]
fn the_log_is_limited_to_a_moment_and_its_times_name_the_commits_again() {
    let place = Place::new();
    place.weft(&["init", "--history", ALL, "v"]).well();
    place.weft(&["snapshot", "create", "v", "one"]).well();
    place.weft(&["snapshot", "create", "v", "two"]).well();
    let list = |since: &str| place.weft(&["log", "--json", "--since", since, "v"]).json();
    let numbers = |listed: &serde_json::Value| {
        let all = listed.as_array().unwrap().iter();
        all.map(|commit| commit["number"].as_u64().unwrap()).collect::<Vec<_>>()
    };
    let all = list("-1h");
    let first = numbers(&all).into_iter().min().unwrap();
    let last = numbers(&all)[0];
    assert_eq!(numbers(&all), (first..=last).rev().collect::<Vec<_>>());
    assert_eq!(numbers(&list(&format!("@{last}"))), [last]);
    let one = place.weft(&["snapshot", "list", "--json", "v"]).json()[0]["commit"].as_u64().unwrap();
    assert_eq!(numbers(&list("one")), (one..=last).rev().collect::<Vec<_>>());
    place.weft(&["log", "--since", "three", "v"]).failed(&["there is no snapshot 'three'"]);
    for commit in all.as_array().unwrap() {
        let (number, time) = (commit["number"].as_u64().unwrap(), commit["time"].as_str().unwrap());
        assert_eq!(numbers(&list(time)), (number..=last).rev().collect::<Vec<_>>(), "{time}");
    }
    assert!(place.weft(&["log", "v"]).well().contains(all[0]["time"].as_str().unwrap()));
}

#[test]
fn history_is_told_set_and_ended_of_a_volume_that_is_not_mounted() {
    let place = Place::new();
    place.weft(&["init", "--history", "off", "v"]).well();
    assert_eq!(place.weft(&["history", "v"]).well(), "rule        off\n");
    assert!(place.weft(&["history", "--json", "v"]).json()["rule"].is_null());
    place.weft(&["export", "--at", "now", "v", "x"]).could_not(&["keeps no history", "'weft history set'"]);
    let said = place.weft(&["history", "set", "v", "daily 30d, all 1d"]).well();
    assert_eq!(said, "v keeps history: all 1d, daily 30d\n");
    let told = place.weft(&["history", "v"]).well();
    assert!(told.starts_with("rule        all 1d, daily 30d\nfor         all\nall from    commit "), "{told}");
    place.weft(&["history", "set", "v", "all 1h"]).well();
    let told = place.weft(&["history", "--json", "v"]).json();
    assert_eq!(told["rule"], "all 1h");
    assert!(told["first"]["commit"].as_u64() < told["last"]["commit"].as_u64(), "{told}");
    place.weft(&["history", "set", "v", "sometimes"]).fails_with("'sometimes' is not a word and a time");
    assert_eq!(place.weft(&["history", "set", "v", "off"]).well(), "v keeps no history\n");
    assert_eq!(place.weft(&["history", "v"]).well(), "rule        off\n");
    place.weft(&["check", "--read-data", "v"]).well();
}

#[test]
fn commits_that_a_shorter_rule_drops_are_counted_first_and_go_only_if_that_is_asked_for() {
    on_each_engine(&[], |place, volume| {
        place.weft(&["history", "set", "m", ALL]).well();
        for round in 0..5 {
            std::fs::write(place.path("m/file"), round.to_string()).unwrap();
            place.weft(&["sync", "m"]).well();
        }
        let first = || place.weft(&["history", "--json", volume]).json()["first"]["commit"].as_u64().unwrap();
        let rule = || place.weft(&["history", "--json", volume]).json()["rule"].as_str().unwrap().to_owned();
        let (before, kept_by) = (first(), rule());
        for named in ["m", volume] {
            let refused = place.weft(&["history", "set", named, "off"]);
            refused.failed(&["cannot set the history", " commits that the present rule keeps", "--drop"]);
            let said = place.weft(&["history", "set", "--dry-run", named, "off"]).well();
            assert!(said.contains(" would keep no history\n") && said.contains(" would be dropped\n"), "{said}");
            let told = place.weft(&["history", "set", "--dry-run", "--json", named, "off"]).json();
            assert!(told["commit"].is_null() && told["dropped"].as_u64() >= Some(5), "{told}");
            let said = place.weft(&["history", "set", "--dry-run", named, "all 1y"]).well();
            assert!(said.ends_with("no commits would be dropped\n"), "{said}");
        }
        assert_eq!((first(), rule()), (before, kept_by), "nothing is changed");
        let drops = || place.weft(&["history", "set", "--dry-run", "--json", "m", "all 1s"]).json()["dropped"] != 0;
        while !drops() {}
        let said = place.weft(&["history", "set", "--drop", "m", "all 1s"]).well();
        assert!(
            said.contains(" go in the background while the volume is mounted ('weft gc m' drops them now)"),
            "{said}"
        );
        let log = std::fs::read_to_string(place.path("log")).unwrap();
        assert!(log.contains("history is kept by the rule 'all 1s' from now on, as user "), "{log}");
        let told = place.weft(&["history", "set", "--json", "--drop", "m", "off"]).json();
        assert!(told["commit"].as_u64() == told["oldest"]["commit"].as_u64().map(|last| last + 1), "{told}");
        assert!(place.weft(&["history", "--json", volume]).json()["rule"].is_null());
    });
}

/// Figures that `weft history` tells of costs: rows, bytes to yield, and bytes pinned.
fn costs(place: &Place, volume: &str) -> (u64, u64, u64) {
    let told = place.weft(&["history", "--json", volume]).json();
    let number = |name: &str| told["costs"][name].as_u64().unwrap();
    assert_eq!(number("bytes"), number("bytes_unpinned") + number("bytes_pinned"), "{told}");
    assert_eq!(told["costs"]["complete"], true);
    (number("rows"), number("bytes_unpinned"), number("bytes_pinned"))
}

#[test]
fn the_costs_of_history_are_told_while_the_volume_is_mounted_and_after() {
    on_each_engine(&[], |place, volume| {
        let directory = place.path("m");
        place.weft(&["history", "set", "m", ALL]).well();
        let write = |name: &str, byte: u8, bytes: usize| {
            std::fs::write(directory.join(name), vec![byte; bytes]).unwrap();
            place.weft(&["sync", "m"]).well();
        };
        write("file", 1, 100_000);
        write("small", 1, 100);
        assert_eq!(costs(place, "m").1, 0, "the present has all of it");
        place.weft(&["snapshot", "create", "m", "one"]).well();
        write("file", 2, 100_000);
        write("small", 2, 100);
        assert_eq!(costs(place, "m").1, 0);
        assert_eq!(costs(place, "m").2, 100_100, "the snapshot holds what was replaced");
        // Not committed yet.
        std::fs::write(directory.join("file"), vec![3; 50_000]).unwrap();
        let (rows, unpinned, pinned) = costs(place, "m");
        assert_eq!((unpinned, pinned), (100_000, 100_100));
        assert!(rows > 4, "{rows}");
        // What is brought back is shared with the present.
        place.weft(&["snapshot", "restore", "m", "one"]).well();
        assert_eq!(costs(place, "m").1, 150_100);
        assert_eq!(costs(place, "m").2, 100, "content in rows is copied");
        place.umount();
        let told = place.weft(&["history", volume]).well();
        assert!(told.contains("146.67 KiB that only the past has\n  to yield  146.58 KiB, "), "{told}");
        assert!(told.contains("  pinned    100 bytes, "), "{told}");
    });
}

/// The bytes that `weft du` tells, of all and by name.
fn usage(place: &Place, arguments: &[&str]) -> (u64, u64, Vec<(String, u64, u64)>) {
    let told = place.weft(&[&["du", "--json"], arguments].concat()).json();
    let number = |value: &serde_json::Value, name: &str| value[name].as_u64().unwrap_or(0);
    let names = told["names"].as_array().into_iter().flatten();
    let names =
        names.map(|name| (name["path"].as_str().unwrap().to_owned(), number(name, "present"), number(name, "past")));
    (number(&told, "present"), number(&told, "past"), names.collect())
}

fn named(name: &str, present: u64, past: u64) -> (String, u64, u64) {
    (name.to_owned(), present, past)
}

#[test]
fn bytes_below_a_directory_count_once_and_its_past_where_it_was_last() {
    on_each_engine(&[], |place, volume| {
        place.weft(&["history", "set", "m", ALL]).well();
        let write = "head -c 100000 /dev/urandom";
        place
            .sh(&format!(
                "mkdir -p d/sub e; {write} >d/one; {write} >d/sub/two; {write} >e/three; ln d/one d/sub/hard; \"$0\" sync ."
            ))
            .well();
        // It asks the file system to copy.
        std::fs::copy(place.path("m/d/one"), place.path("m/d/clone")).unwrap();
        assert_eq!(usage(place, &["m/d"]).0, 200_000, "links and clones share their blocks");
        assert_eq!(usage(place, &["--history", "m"]).1, 0);
        place
            .sh(&format!("{write} >d/sub/two; \"$0\" sync .; rm -r d/sub; {write} >new; mv new e/three; rm d/clone; \"$0\" sync ."))
            .well();
        let (present, past, names) = usage(place, &["--history", "m/d"]);
        assert_eq!((present, past), (100_000, 200_000));
        assert_eq!(names, [named("sub", 0, 200_000), named("one", 100_000, 0)]);
        assert_eq!(usage(place, &["--history", "m/d/sub"]), (0, 200_000, vec![named("two", 0, 200_000)]));
        assert_eq!(usage(place, &["--history", "m/e/three"]), (100_000, 100_000, Vec::new()), "it was replaced");
        place.weft(&["du", "m/d/sub"]).fails_with("there is no /d/sub; --history tells");
        place.umount();
        let (present, past, names) = usage(place, &["--history", volume]);
        assert_eq!((present, past), (200_000, 300_000));
        assert_eq!(names, [named("d", 100_000, 200_000), named("e", 100_000, 100_000)]);
        let told = place.weft(&["du", "--history", "-n", "1", &format!("{volume}:d")]).well();
        let lines = told.lines().map(str::trim).collect::<Vec<_>>();
        assert_eq!(lines[1], "0 bytes  195.31 KiB  sub", "{told}");
        assert_eq!(lines[2], "and 1 more name; -n lists more", "{told}");
        assert!(lines[3].starts_with("97.65 KiB  195.31 KiB  "), "{told}");
        let told = place.weft(&["info", volume]).well();
        assert!(told.contains("history     292.96 KiB that only the past has, 292.96 KiB of that to yield"), "{told}");
    });
}

#[test]
fn what_is_taken_out_of_history_leaves_a_record() {
    on_each_engine(&[], |place, volume| {
        place.weft(&["history", "set", "m", ALL]).well();
        let user = u64::from(rustix::process::geteuid().as_raw());
        place.sh("mkdir d; seq 10000 >'d/a b'; \"$0\" sync .; seq 20000 >'d/a b'; \"$0\" sync .; echo >other; \"$0\" sync .").well();
        assert_eq!(place.weft(&["history", "--json", "m"]).json()["forgotten"], serde_json::json!([]));
        place.weft(&["snapshot", "create", "m", "one"]).well();
        place.weft(&["history", "forget", "m/d/a b"]).well();
        place.weft(&["history", "forget", "m/none"]).fails_with("no commit that is kept has a file /none");
        let records = |volume: &str| place.weft(&["history", "--json", volume]).json()["forgotten"].clone();
        let told = records("m");
        let record = &told[0];
        assert_eq!((record["path"].as_str(), record["user"].as_u64()), (Some("/d/a b"), Some(user)), "{told}");
        assert_eq!((&record["files"], &record["inodes"]), (&1.into(), &serde_json::json!([record["inodes"][0]])));
        assert!(record["versions"].as_u64() >= Some(1) && record["bytes"].as_u64() >= Some(48_894), "{told}");
        assert!(place.weft(&["history", "m"]).well().contains(": /d/a b, "));
        assert_eq!(place.sh("python3 -c 'import os; print(os.listxattr(\".\"))'").well(), "[]\n");
        // It is there after a restoration, and is brought to other volumes.
        place.weft(&["snapshot", "restore", "m", "one"]).well();
        place.umount();
        place.weft(&["history", "forget", &format!("{volume}:other")]).well();
        let told = records(volume);
        assert_eq!((told.as_array().map(Vec::len), &told[0]), (Some(2), record));
        place.weft(&["history", "forget", &format!("{volume}:none")]).fails_with("no commit");
        assert_eq!(records(volume), told);
        place.weft(&["check", volume]).well();
        place.sh(&format!("cd ..; \"$0\" send '{volume}' 2>/dev/null | \"$0\" receive w 2>/dev/null")).well();
        assert_eq!(records("w"), told);
    });
}

/// Waits until so many bytes are left that only the past has, and that no snapshot has.
fn await_unpinned(place: &Place, volume: &str, bytes: u64) {
    let begun = std::time::Instant::now();
    while costs(place, volume).1 != bytes {
        assert!(begun.elapsed().as_secs() < 60, "{:?}", costs(place, volume));
    }
}

#[test]
fn earlier_content_of_excluded_paths_goes_and_all_above_it_verifies() {
    on_each_engine(&[], |place, volume| {
        place.weft(&["history", "set", "m", ALL]).well();
        let write = "head -c 100000 /dev/urandom";
        place.sh("mkdir -p target/deep src kept").well();
        place
            .sh(&format!(
                "for f in target/deep/a target/b target/c src/d src/e.o kept/f; do {write} >$f; done; \"$0\" sync ."
            ))
            .well();
        let then = format!("@{}", committed(place));
        let digest = |path: &str| place.weft(&["digest", "--at", &then, path]).well();
        let before = digest("m/src");
        place.sh("rm -r target/deep; echo >target/b; rm src/d src/e.o; \"$0\" sync .").well();
        assert_eq!(costs(place, "m").1, 400_000);
        // A snapshot has the content that is there now, and not what was there before.
        place.sh(&format!("{write} >target/s; \"$0\" sync .; {write} >target/s")).well();
        place.weft(&["snapshot", "create", "m", "zero"]).well();
        place.sh("chmod 700 target/s; \"$0\" sync .").well();
        assert_eq!(costs(place, "m").1, 500_000);
        place.weft(&["history", "exclude", "m", "[x]"]).fails_with("within a name");
        place.weft(&["history", "exclude", "m", "*"]).fails_with("it would be of everything");
        place.weft(&["history", "exclude", "m", "target/"]).well();
        place.weft(&["history", "exclude", "m", "/src/*.o"]).well();
        assert_eq!(place.weft(&["history", "exclude", "m", "--list"]).well(), "target/\n/src/*.o\n");
        let told = place.weft(&["history", "exclude", "m", "--list", "--json"]).json();
        assert_eq!(told["excluded"], serde_json::json!(["target/", "/src/*.o"]));
        await_unpinned(place, "m", 200_000);
        place.same("cat .weft/at/zero/target/s", "cat target/s");
        place.weft(&["cat", "--at", &then, "m/target/b"]).failed(&["m/target/b", "was taken out of history"]);
        assert!(!place.sh(&format!("head -c 9 ../m/.weft/at/{then}/src/d | base64")).well().is_empty());
        assert_eq!(digest("m/src"), before, "names and digests are those of then");
        // What a snapshot has stays.
        place.weft(&["snapshot", "create", "m", "one"]).well();
        place.sh(&format!("echo >target/c; {write} >target/new; \"$0\" sync .; rm target/new; \"$0\" sync .")).well();
        place.weft(&["history", "exclude", "m", "--remove", "/src/*.o"]).well();
        place.weft(&["history", "exclude", "m", "--remove", "/src/*.o"]).fails_with("it was not excluded");
        await_unpinned(place, "m", 200_000);
        assert_eq!(costs(place, "m").2, 100_000);
        assert_eq!(place.weft(&["history", "--json", "m"]).json()["excluded"], serde_json::json!(["target/"]));
        place.umount();
        let told = place.weft(&["history", "exclude", "--json", volume, "*.tmp"]).json();
        assert!(told["excluded"][0] == "*.tmp" && told["commit"].is_u64(), "{told}");
        assert_eq!(place.weft(&["history", "exclude", volume, "--list"]).well(), "target/\n*.tmp\n");
    });
}

/// Whoever may rename a file cannot have what it held under another name go.
#[test]
fn what_had_another_name_is_not_excluded_by_a_rename() {
    on_each_engine(&[], |place, volume| {
        place.weft(&["history", "set", "m", ALL]).well();
        let write = "head -c 100000 /dev/urandom";
        let script = format!(
            "mkdir -p src/deep target; for f in src/moved src/gone src/deep/a target/b target/c; do {write} >$f; done; \"$0\" sync ."
        );
        place.sh(&script).well();
        // A file and a directory take an excluded name, one of an excluded directory another in it.
        place
            .sh("mv src/moved src/gone target; mv src/deep src/target; mv target/c target/d; \"$0\" sync .;
                 for f in target/moved src/target/a target/b target/d; do echo >$f; done; rm target/gone; \"$0\" sync .")
            .well();
        assert_eq!(costs(place, "m").1, 500_000);
        place.weft(&["history", "exclude", "m", "target"]).well();
        await_unpinned(place, "m", 300_000);
        place.umount();
        place.weft(&["check", "--read-data", volume]).well();
    });
}

#[test]
fn a_volume_whose_history_was_set_after_a_crash_has_lost_nothing() {
    let Some(place) = Place::to_mount() else { return };
    place.weft(&["init", "--history", "off", "v"]).well();
    let directory = place.directory("m");
    place.mount();
    std::fs::write(directory.join("file"), "first").unwrap();
    crate::place::write_synced(&directory.join("synced"), b"synced");
    place.kill("v/lock");
    place.weft(&["history", "set", "v", ALL]).well();
    place.mount();
    assert_eq!(std::fs::read(directory.join("synced")).unwrap(), b"synced");
    std::fs::write(directory.join("synced"), "later").unwrap();
    place.umount();
    let first = place.weft(&["history", "--json", "v"]).json()["first"]["commit"].as_u64().unwrap();
    place.weft(&["export", "--at", &format!("@{first}"), "v", "before"]).well();
    assert_eq!(std::fs::read(place.path("before/synced")).unwrap(), b"synced");
    place.weft(&["export", "--at", "now", "v", "now"]).well();
    assert_eq!(std::fs::read(place.path("now/synced")).unwrap(), b"later");
    place.weft(&["check", "--read-data", "v"]).well();
}

#[test]
fn moments_that_make_no_sense_are_refused_with_the_reason() {
    let place = Place::new();
    place.directory("m");
    place.directory("from");
    place.weft(&["init", "--history", ALL, "v"]).well();
    let export = |at: &str| place.weft(&["export", "--at", at, "v", "x"]);
    let kept = place.weft(&["history", "--json", "v"]).json();
    let [first, last] = ["first", "last"].map(|which| kept[which]["commit"].as_u64().unwrap());
    export("@99").could_not(&[&format!("there is no commit 99 yet: the last one is {last}")]);
    export("@1").could_not(&[&format!("commit 1 is not kept: history begins with commit {first}")]);
    export("-5y").could_not(&["nothing is kept of ", &format!("begins with commit {first}, made at ")]);
    export("before-lunch").could_not(&["there is no snapshot 'before-lunch'"]);
    export("2026-13-01").fails_with("'2026-13-01' is not a time");
    export("-5").fails_with("'-5' is not a time ago");
    place.weft(&["digest", "--at", "now", "from"]).could_not(&["VOLUME:PATH"]);
    place.weft(&["mount", "--at", "now", "--writeback", "v", "m"]).misused(&["--writeback", "leave it out"]);
    place.weft(&["mount", "--at", "now", "--accept-loss", "v", "m"]).misused(&["leave --accept-loss out"]);
    place.weft(&["mount", "-o", "at=-5", "v", "m"]).misused(&["option at: '-5' is not a time ago"]);
    place.weft(&["init", "--history", "all 1x", "w"]).fails_with("'1x' is no time");
    assert!(!place.path("x").exists() && !place.path("w").exists());
}

#[test]
fn snapshots_are_made_of_a_busy_mount_and_stay_until_they_are_deleted() {
    let Some(place) = Place::to_mount() else { return };
    place.weft(&["init", "--history", "off", "v"]).well();
    let directory = place.directory("m");
    place.mount();
    place.weft(&["snapshot", "create", "m", "early"]).fails_with("keeps no history");
    assert_eq!(place.weft(&["history", "set", "m", "hourly 1d"]).well(), "m keeps history: hourly 1d\n");
    let told = place.weft(&["history", "set", "--json", "m", "hourly 1d"]).json();
    assert!(told["rule"] == "hourly 1d" && told["commit"].is_u64(), "{told}");
    std::fs::write(directory.join("file"), "before").unwrap();
    let said = place.weft(&["snapshot", "create", "m", "first one"]).well();
    assert!(said.starts_with("snapshot first one: commit "), "{said}");
    std::fs::write(directory.join("file"), "after").unwrap();
    place.weft(&["snapshot", "create", "v", "first one"]).fails_with("there is a snapshot 'first one' already");
    place.weft(&["snapshot", "create", "v", "-5m"]).fails_with("");
    for (name, why) in [
        ("2026-11-28", "it reads as a time"),
        ("today", "it reads as a time"),
        ("5m", "it reads as a time"),
        ("@6", "it begins with '@'"),
        ("a/b", "it is a path"),
        (&*"x".repeat(256), "it is longer than 255 bytes"),
    ] {
        place.weft(&["snapshot", "create", "v", name]).fails_with(&format!("cannot be the name of a snapshot: {why}"));
    }
    place.weft(&["snapshot", "create", "--hold", "1000y", "v", "held"]).fails_with("'1000y' is too long: times end in");
    place.weft(&["snapshot", "create", "--hold", "1000", "v", "held"]).fails_with("'1000' is no length of time");
    let told = place.weft(&["snapshot", "create", "--json", "--hold", "1h", "v", "held"]).json();
    let listed = place.weft(&["snapshot", "list", "--json", "m"]).json();
    for key in ["name", "commit", "held_until"] {
        assert!(told[key] == listed[1][key] && !told[key].is_null(), "{told} {listed}");
    }
    place.weft(&["snapshot", "delete", "m", "held"]).fails_with("held");
    let listed = place.weft(&["snapshot", "list", "m"]).well();
    assert!(
        listed.lines().count() == 2 && listed.contains("  first one\n") && listed.contains("held until"),
        "{listed}"
    );
    place.weft(&["export", "--at", "first one", "v", "then"]).well();
    assert_eq!(std::fs::read(place.path("then/file")).unwrap(), b"before");
    place.weft(&["snapshot", "rename", "m", "held", "first one"]).fails_with("there is a snapshot 'first one' already");
    let said = place.weft(&["snapshot", "rename", "m", "held", "still held"]).well();
    assert_eq!(said, "snapshot still held: renamed from held\n");
    place.weft(&["snapshot", "delete", "m", "still held"]).fails_with("held");
    place.umount();
    let told = place.weft(&["snapshot", "rename", "--json", "v", "still held", "held"]).json();
    assert_eq!(told, serde_json::json!({ "name": "held", "renamed_from": "still held" }));
    place.weft(&["snapshot", "delete", "v", "still held"]).fails_with("there is no snapshot 'still held'");
    place.weft(&["history", "set", "v", "off"]).fails_with("snapshots");
    let listed = place.weft(&["snapshot", "list", "--json", "v"]).json();
    assert_eq!(listed[0]["name"], "first one");
    assert_eq!(listed[0]["root_digest"].as_str().map(str::len), Some(64));
    let told = place.weft(&["snapshot", "delete", "--json", "v", "first one"]).json();
    assert!(told["name"] == "first one" && told["deleted_by"].is_u64(), "{told}");
    place.weft(&["snapshot", "delete", "v", "first one"]).fails_with("there is no snapshot 'first one'");
    place.weft(&["export", "--at", "first one", "v", "gone"]).fails_with("there is no snapshot 'first one'");
    place.weft(&["check", "--read-data", "v"]).well();
}

#[test]
fn damage_of_what_a_snapshot_alone_has_is_told_with_the_commits() {
    let Some(place) = Place::to_mount() else { return };
    place.weft(&["init", "--history", ALL, "v"]).well();
    let directory = place.directory("m");
    place.mount();
    std::fs::write(directory.join("old"), (0..200_000u32).map(|at| (at % 251) as u8).collect::<Vec<_>>()).unwrap();
    place.weft(&["snapshot", "create", "m", "kept"]).well();
    std::fs::remove_file(directory.join("old")).unwrap();
    place.umount();
    let segment = place.path("v/segments/00000001.seg");
    let mut bytes = std::fs::read(&segment).unwrap();
    bytes[1000] ^= 1;
    std::fs::write(&segment, bytes).unwrap();
    for command in [&["check", "--read-data", "v"][..], &["scrub", "v"]] {
        let said = place.weft(command);
        assert!(said.code == 1 && said.out.contains("as of commits"), "{command:?}: {said:?}");
        assert!(said.out.contains("by 'weft history forget'") && !said.out.contains("cp -a"), "{said:?}");
    }
    place.weft(&["export", "--at", "kept", "v", "then"]).fails_with("old");
}
