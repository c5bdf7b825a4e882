//! Volumes in PostgreSQL: what a server, its disk, its network and other daemons can do to a mount.

mod away;
mod citus;
mod partitioned;
mod protected;
mod recovered;
mod taken;

use crate::place::Place;
use std::fs::{self, File};
use std::io::Write;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::mpsc::{Receiver, channel};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};
use weft_store::postgres::Address;
use weft_testkit::Cluster;

/// Longest time that anything takes which is waited for.
const SOON: Duration = Duration::from_secs(60);

/// Waits until `is`.
#[track_caller]
fn until(what: &str, is: impl Fn() -> bool) {
    let begun = Instant::now();
    while !is() {
        assert!(begun.elapsed() < SOON, "{what}");
        thread::yield_now();
    }
}

/// The bytes of file `number` of a [`Writer`].
fn numbered(number: usize) -> Vec<u8> {
    format!("{number} ").repeat(5000).into_bytes()
}

/// Checks that the first `count` files of a [`Writer`] are in `directory`.
#[track_caller]
fn assert_numbered(directory: &Path, count: usize) {
    for number in 0..count {
        assert!(fs::read(directory.join(number.to_string())).unwrap() == numbered(number), "{number}");
    }
}

/// A thread that writes files to a new directory, and syncs each tenth, until an error.
struct Writer {
    thread: JoinHandle<std::io::Result<()>>,
    synced: Receiver<usize>,
}

impl Writer {
    fn start(directory: PathBuf, count: usize) -> Writer {
        let (tell, synced) = channel();
        let thread = thread::spawn(move || {
            fs::create_dir(&directory)?;
            for number in 0..count {
                let mut file = File::create(directory.join(number.to_string()))?;
                file.write_all(&numbered(number))?;
                if number % 10 == 0 {
                    file.sync_all()?;
                    let _ = tell.send(number);
                }
            }
            Ok(())
        });
        Writer { thread, synced }
    }

    /// Waits until `count` more files are synced. Returns how many files are then.
    #[track_caller]
    fn await_synced(&self, count: usize) -> usize {
        (0..count).map(|_| self.synced.recv_timeout(SOON).expect("it is synced")).max().map_or(0, |last| last + 1)
    }

    /// Returns how many files are synced by now, of which `before` were when it was asked last.
    fn synced(&self, before: usize) -> usize {
        self.synced.try_iter().map(|number| number + 1).max().unwrap_or(before)
    }

    fn end(self) -> std::io::Result<()> {
        self.thread.join().expect("no panic")
    }
}

/// The name of the schema of the volume at `url`.
fn schema(url: &str) -> String {
    Address::parse(url).unwrap().schema().to_owned()
}

/// The directory of a program of the server.
fn server_program(name: &str) -> PathBuf {
    let named = std::env::var_os("WEFT_POSTGRES").map(PathBuf::from);
    let versions = || fs::read_dir("/usr/lib/postgresql").unwrap().map(|entry| entry.unwrap().path());
    let number = |path: &PathBuf| path.file_name().unwrap().to_str().unwrap().parse::<u32>().unwrap_or(0);
    named.unwrap_or_else(|| versions().max_by_key(number).unwrap().join("bin")).join(name)
}

#[test]
fn a_volume_of_postgresql_that_cannot_be_is_refused_in_one_line() {
    let cluster = Cluster::shared();
    let Some(place) = Place::to_mount() else { return };
    let url = cluster.url();
    place.weft(&["init", &url]).well();
    place.directory("m");
    place.directory("m2");
    place.mount_with(&url, &[]);
    let elsewhere = url.strip_suffix(&*schema(&url)).unwrap();
    let weak = format!("{}weak", elsewhere.replace("durability=server&", ""));
    cluster.run("CREATE ROLE stranger LOGIN");
    let used = format!("in use by process {} on", place.daemon());
    for (arguments, words) in [
        (&["mount", &url, "m2"][..], used.as_str()),
        (&["mount", &format!("{elsewhere}none"), "m2"], "make one with 'weft init'"),
        (&["info", &url.replace("postgres@", "stranger@")], "the role has no rights in schema"),
        (&["init", &url], "a volume is there already"),
        (&["mount", "postgres://nobody@%2Fnowhere/none", "m2"], "cannot connect"),
        (&["init", &format!("{elsewhere}Bad-name")], "a name has"),
        (&["init", &weak], "set fsync = on"),
        (&["mount", &url.replace("durability=server&", ""), "m2"], "durability=server"),
        (&["info", &url.replace("durability=server", "durability=none")], "neither 'full'"),
        (&["init", "--blocks", "segments", &format!("{elsewhere}segments")], "not in segments"),
        (&["init", "--block-size", "8M", &format!("{elsewhere}large")], "power of two"),
        (&["convert", "--layout", "single", &url], used.as_str()),
    ] {
        let said = place.weft(arguments);
        let is_refused = said.code != 0 && said.err.lines().count() == 1 && said.err.contains(words);
        assert!(is_refused, "no '{words}' of {arguments:?}: {said:?}");
    }
    place.umount();
}

#[test]
fn a_role_that_may_only_read_is_told_that_it_does_not_see_what_was_just_written() {
    let cluster = Cluster::shared();
    let Some(place) = Place::to_mount() else { return };
    let url = cluster.url();
    place.weft(&["init", &url]).well();
    place.directory("m");
    place.mount_with(&url, &[]);
    let (schema, role) = (schema(&url), format!("reader_{}", schema(&url)));
    cluster.run(&format!(
        "CREATE ROLE {role} LOGIN; GRANT USAGE ON SCHEMA {schema} TO {role}; \
         GRANT SELECT ON ALL TABLES IN SCHEMA {schema} TO {role}"
    ));
    let first = place.weft(&["info", "--json", &url]).json()["commit"].to_string();
    let reader = format!("{}:", url.replace("postgres@", &format!("{role}@")));
    let said = place.weft(&["diff", "--at", &format!("@{first}"), &reader]);
    let is_told = said.err.contains("the last commit is read: the volume is in use, and this user cannot");
    assert!(said.code == 0 && is_told, "{said:?}");
    place.umount();
    let said = place.weft(&["diff", "--at", &format!("@{first}"), &reader]);
    assert!(said.err.is_empty(), "{said:?}");
}

#[test]
fn what_is_mounted_is_in_the_view_of_files() {
    let cluster = Cluster::shared();
    let Some(place) = Place::to_mount() else { return };
    let url = cluster.url();
    place.weft(&["init", &url]).well();
    place.directory("m");
    place.mount_with(&url, &[]);
    fs::create_dir(place.path("m/tree")).unwrap();
    for name in ["a", "b"] {
        fs::write(place.path("m/tree").join(name), name.repeat(100_000)).unwrap();
    }
    let digest = place.weft(&["digest", "m/tree"]).well();
    place.weft(&["sync", "m"]).well();
    let row = cluster.run(&format!("SELECT digest FROM {}.files WHERE path = '/tree'", schema(&url)));
    assert_eq!(digest.split(' ').next(), Some(&*row));
    place.umount();
}

#[test]
fn a_volume_of_postgresql_gets_another_layout() {
    let cluster = Cluster::shared();
    let Some(place) = Place::to_mount() else { return };
    let url = cluster.url();
    place.weft(&["init", "--history", "off", "--layout", "hybrid=64K", &url]).well();
    let mounted = place.directory("m");
    let own_tables = || {
        let tables = "information_schema.tables WHERE table_name LIKE 'blocks#_of#_%' ESCAPE '#'";
        cluster.run(&format!("SELECT count(*) FROM {tables} AND table_schema = '{}'", schema(&url)))
    };
    let large: Vec<u8> = (0..2_000_000u32).flat_map(u32::to_le_bytes).collect();
    place.mount_with(&url, &[]);
    fs::write(mounted.join("large"), &large).unwrap();
    fs::write(mounted.join("small"), [7; 20_000]).unwrap();
    place.umount();
    assert_eq!(own_tables(), "1");
    for layout in ["per-file", "single", "hybrid=1M"] {
        place.weft(&["convert", "--layout", layout, &url]).well();
        place.weft(&["check", "--read-data", &url]).well();
        let told = place.weft(&["info", &url]).well();
        assert_eq!(told.lines().any(|line| line.starts_with("layout")), layout != "single", "{told}");
        place.mount_with(&url, &[]);
        assert!(fs::read(mounted.join("large")).unwrap() == large, "{layout}");
        place.umount();
    }
    place.mount_with(&url, &[]);
    fs::remove_file(mounted.join("large")).unwrap();
    place.umount();
    assert_eq!(own_tables(), "0");
}

#[test]
fn a_mount_reads_from_its_disk_cache_and_nothing_wrong() {
    let cluster = Cluster::shared();
    let Some(place) = Place::to_mount() else { return };
    let url = cluster.url();
    place.weft(&["init", &url]).well();
    let file = place.directory("m").join("large");
    let large: Vec<u8> = (0..2_000_000u32).flat_map(u32::to_le_bytes).collect();
    place.directory("cache");
    let cached = ["--disk-cache", "cache", "--disk-cache-size", "64M"];
    // Round trips for blocks, and blocks that the cache has and has not given.
    let read = || {
        assert!(fs::read(&file).unwrap() == large);
        let stats = place.weft(&["stats", "--json", "m"]).json()["volume"].take();
        let cache = &stats["disk_cache"];
        assert_eq!(cache["failure"], serde_json::Value::Null);
        [&stats["round_trips"]["blocks"], &cache["hits"], &cache["misses"]].map(|number| number.as_u64().unwrap())
    };
    place.mount_with(&url, &cached);
    fs::write(&file, &large).unwrap();
    place.umount();
    place.mount_with(&url, &cached);
    let [asked, hits, misses] = read();
    assert!(asked == 0 && hits > 0 && misses == 0, "{asked} {hits} {misses}");
    place.umount();

    let kept = fs::read_dir(place.path("cache")).unwrap().map(|entry| entry.unwrap().path());
    let kept = kept.into_iter().find(|path| path.extension().is_some_and(|end| end == "blocks")).unwrap();
    let blocks = File::options().write(true).open(&kept).unwrap();
    for at in (0..blocks.metadata().unwrap().len()).step_by(40_000) {
        blocks.write_all_at(b"no block has this", at).unwrap();
    }
    place.mount_with(&url, &cached);
    let [asked, _, misses] = read();
    assert!(asked > 0 && misses > 0, "{asked} {misses}");
    place.mount_killed(&url, &cached);
    read();
    place.umount();

    // A link in its place is not followed.
    place.directory("others");
    fs::write(place.path("victim"), &large).unwrap();
    std::os::unix::fs::symlink("../victim", place.path("others").join(kept.file_name().unwrap())).unwrap();
    let said = place.weft(&["mount", "--log", "log", "--disk-cache", "others", &url, "m"]);
    assert!(said.code == 0 && said.err.contains("going on without a disk cache"), "{said:?}");
    assert!(fs::read(&file).unwrap() == large);
    let told = place.weft(&["stats", "m"]).well();
    assert!(told.contains("nothing more is written to it"), "{told}");
    assert!(fs::read(place.path("victim")).unwrap() == large);
    place.umount();
    place.weft(&["mount", "--disk-cache", "m/cache", &url, "m"]).failed(&["the disk cache"]);
}

/// Runs a program of the server as the user that the server runs as.
fn as_server(program: &Path) -> Command {
    if !crate::place::is_root() {
        return Command::new(program);
    }
    let mut command = Command::new("runuser");
    command.args(["-u", "postgres", "--"]).arg(program).current_dir("/");
    command
}
