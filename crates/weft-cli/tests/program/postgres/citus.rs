//! A volume whose tables are distributed over a coordinator and two workers of Citus, as
//! docs/guide/citus.md says.

use super::taken::{Stopped, take, write_and_sync};
use super::{Writer, assert_numbered, schema, server_program};
use crate::place::{Place, write_synced};
use rustix::fs::{XattrFlags, listxattr, removexattr, setxattr};
use std::fs::{self, File};
use std::os::unix::fs::{FileExt, MetadataExt, symlink};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;
use weft_testkit::Cluster;

/// A cluster and a volume that is distributed over it, mounted at `m`.
struct Distributed {
    place: Place,
    url: String,
    cluster: Cluster,
}

/// The root of the repository.
fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

impl Distributed {
    /// None, with a loud message, where the server has no Citus or nothing can be mounted.
    fn new() -> Option<Distributed> {
        let told = Command::new(server_program("pg_config")).arg("--pkglibdir").output().unwrap().stdout;
        if !Path::new(String::from_utf8(told).unwrap().trim()).join("citus.so").exists() {
            let test = std::thread::current().name().unwrap_or("test").to_owned();
            eprintln!("SKIPPED {test}: the server has no Citus; docs/internals/testing.md says how to build it");
            return None;
        }
        let place = Place::to_mount()?;
        let cluster = Cluster::start_citus("-c fsync=off");
        let url = cluster.url();
        place.weft(&["init", &url]).well();
        let client = cluster.client();
        client.run(&format!("SET search_path TO {}; SET client_min_messages TO warning", schema(&url)));
        let orders = include_str!("../../../../../tests/distribute.sql").lines();
        orders.filter(|line| !line.starts_with("--")).for_each(|order| drop(client.run(order)));
        place.directory("m");
        place.mount_with(&url, &[]);
        Some(Distributed { place, url, cluster })
    }

    fn path(&self, name: &str) -> PathBuf {
        self.place.path("m").join(name)
    }

    /// Runs SQL among the tables of the volume.
    fn run(&self, statement: &str) -> String {
        let client = self.cluster.client();
        client.run(&format!("SET search_path TO {}", schema(&self.url)));
        client.run(statement)
    }

    fn remount(&self) {
        self.place.umount();
        self.place.mount_with(&self.url, &[]);
    }

    fn check(&self) {
        self.place.weft(&["check", "--read-data", &self.url]).well();
    }

    /// The directory of the socket of a node: `` of the coordinator, `-1` and `-2` of the workers.
    fn node(&self, end: &str) -> String {
        format!("{}{end}", self.cluster.socket().display())
    }
}

/// Checks that no node refused a statement as one that Citus does not have.
impl Drop for Distributed {
    fn drop(&mut self) {
        let refusals = ["not supported", "only supported", "repartition"];
        for end in ["", "-1", "-2"] {
            let log = fs::read_to_string(Path::new(&self.node(end)).join("log")).unwrap_or_default();
            let is_refusal = |line: &&str| line.contains("ERROR:") && refusals.iter().any(|word| line.contains(word));
            let refused = log.lines().find(is_refusal);
            assert!(std::thread::panicking() || refused.is_none(), "{refused:?}");
        }
    }
}

fn run(program: &str, arguments: &[&Path]) {
    assert!(Command::new(program).arg("-r").args(arguments).status().unwrap().success(), "{program} {arguments:?}");
}

/// Content of as many blocks, each of its own.
fn large() -> Vec<u8> {
    (0..5_000_000u32).flat_map(|number| number.wrapping_mul(2_654_435_761).to_le_bytes()).collect()
}

#[test]
fn a_volume_on_citus_lies_on_both_workers_and_is_what_was_written() {
    let Some(on) = Distributed::new() else { return };
    let partitions = on.run(&format!(
        "SELECT string_agg(relname, ' ' ORDER BY relname) FROM pg_dist_partition JOIN pg_class ON oid = logicalrelid \
         WHERE relnamespace = '{}'::regnamespace",
        schema(&on.url)
    ));
    let grows = "blocks branches content_history extents extents_history fileatt fileatt_history naming naming_history nodes \
                 xattr xattr_history";
    assert_eq!(partitions, grows);
    let (tree, large) = (on.place.path("tree"), large());
    run("cp", &[&root().join("crates/weft-store/src"), &tree]);
    run("cp", &[&tree, &on.path("tree")]);
    fs::write(on.path("large"), &large).unwrap();
    on.remount();
    for end in ["-1", "-2"] {
        let has_blocks = on.run(&format!(
            "SELECT sum(result::bigint) > 0 FROM run_command_on_shards('blocks', 'SELECT count(*) FROM %s') \
             JOIN pg_dist_placement USING (shardid) JOIN pg_dist_node USING (groupid) WHERE nodename = '{}'",
            on.node(end)
        ));
        assert_eq!(has_blocks, "t", "{end}");
    }
    run("diff", &[&tree, &on.path("tree")]);
    assert!(fs::read(on.path("large")).unwrap() == large);
    on.place.weft(&["diff", "tree", "m/tree"]).well();
    write_synced(&on.path("synced"), b"synced");
    on.place.mount_killed(&on.url, &[]);
    assert_eq!(fs::read(on.path("synced")).unwrap(), b"synced");
    run("diff", &[&tree, &on.path("tree")]);
    on.place.weft(&["scrub", "m"]).well();

    fs::rename(on.path("tree"), on.path("another")).unwrap();
    fs::rename(on.path("another"), on.path("tree")).unwrap();
    fs::hard_link(on.path("large"), on.path("second")).unwrap();
    symlink("large", on.path("link")).unwrap();
    for (name, value) in [("user.one", &[b'1'; 1000][..]), ("user.two", b"2")] {
        setxattr(on.path("tree"), name, value, XattrFlags::empty()).unwrap();
    }
    removexattr(on.path("tree"), "user.one").unwrap();
    let file = File::options().write(true).open(on.path("synced")).unwrap();
    file.set_len(100_000).unwrap();
    file.write_all_at(&[b'x'; 70_000], 0).unwrap();
    file.sync_all().unwrap();
    drop(file);
    on.remount();
    let mut names = [0; 100];
    let len = listxattr(on.path("tree"), &mut names[..]).unwrap();
    assert_eq!(&names[..len], b"user.two\0");
    assert_eq!(fs::metadata(on.path("large")).unwrap().nlink(), 2);
    assert!(fs::read(on.path("synced")).unwrap() == [vec![b'x'; 70_000], vec![0; 30_000]].concat());
    on.place.umount();
    on.check();
}

/// Blocks that are another file's lie on another worker, perhaps.
#[test]
fn copies_on_citus_share_blocks_and_outlive_their_sources_and_all_that_is_deleted_is_gone() {
    let Some(on) = Distributed::new() else { return };
    let (tree, large) = (on.place.path("tree"), large());
    run("cp", &[&root().join("crates/weft-store/src"), &tree]);
    run("cp", &[&tree, &on.path("tree")]);
    fs::write(on.path("large"), &large).unwrap();
    on.remount();
    fs::copy(on.path("large"), on.path("copy")).unwrap();
    run("cp", &[&on.path("tree"), &on.path("copied")]);
    on.remount();
    assert_eq!(on.run("SELECT count(*) > 300 FROM extents WHERE ino <> owner"), "t");
    assert!(fs::read(on.path("copy")).unwrap() == large);
    let copy = File::options().write(true).open(on.path("copy")).unwrap();
    copy.write_all_at(&vec![7; 2 << 20], 3 << 20).unwrap();
    copy.sync_all().unwrap();
    drop(copy);
    on.remount();
    assert!(fs::read(on.path("large")).unwrap() == large);
    fs::remove_file(on.path("large")).unwrap();
    fs::remove_dir_all(on.path("tree")).unwrap();
    on.remount();
    run("diff", &[&tree, &on.path("copied")]);
    on.place.umount();
    on.check();

    on.place.mount_with(&on.url, &[]);
    fs::remove_dir_all(on.path("copied")).unwrap();
    fs::remove_file(on.path("copy")).unwrap();
    on.place.umount();
    // The past has them.
    assert_ne!(on.run("SELECT count(*) FROM blocks"), "0");
    on.place.weft(&["history", "set", "--drop", &on.url, "off"]).well();
    for (table, rows) in [("blocks", "0"), ("extents", "0"), ("naming", "0"), ("fileatt", "1")] {
        assert_eq!(on.run(&format!("SELECT count(*) FROM {table}")), rows, "{table}");
    }
    on.check();
}

#[test]
fn the_past_of_a_volume_on_citus_is_read_compared_brought_back_and_sent() {
    let Some(on) = Distributed::new() else { return };
    let weft = |words: &[&str]| on.place.weft(words).well();
    let (tree, large) = (on.place.path("tree"), large());
    run("cp", &[&root().join("crates/weft-store/src/history"), &tree]);
    run("cp", &[&tree, &on.path("tree")]);
    fs::write(on.path("large"), &large).unwrap();
    weft(&["snapshot", "create", "m", "first"]);
    let digest = weft(&["digest", "m"]);
    let copy = File::options().write(true).open(on.path("large")).unwrap();
    copy.write_all_at(&vec![7; 2 << 20], 3 << 20).unwrap();
    drop(copy);
    fs::rename(on.path("tree/rule.rs"), on.path("renamed")).unwrap();
    fs::remove_dir_all(on.path("tree")).unwrap();
    weft(&["sync", "m"]);
    for _ in 0..2 {
        let past = on.path(".weft/at/first/");
        run("diff", &[&tree, &past.join("tree")]);
        assert!(fs::read(past.join("large")).unwrap() == large);
        on.remount();
    }
    let told = on.place.weft(&["diff", "--at", "first", "m"]);
    let lines = told.out.lines().map(|line| line.split_whitespace().collect::<Vec<_>>()).collect::<Vec<_>>();
    assert_eq!(lines, [["content", "large"], ["added", "renamed"], ["deleted", "tree/"]]);
    assert!(weft(&["log", "m/renamed"]).contains("renamed from tree/rule.rs"));
    weft(&["undelete", "m/tree"]);
    weft(&["snapshot", "restore", "m", "first"]);
    assert_eq!(weft(&["digest", "m"]), digest);
    run("diff", &[&tree, &on.path("tree")]);
    let stream = on.place.path("stream");
    let mut send = on.place.command(&["send", "m@first"]);
    assert!(send.stdout(File::create(&stream).unwrap()).status().unwrap().success());
    let mut receive = on.place.command(&["receive", "copy"]);
    assert!(receive.stdin(File::open(&stream).unwrap()).status().unwrap().success());
    assert_eq!(weft(&["digest", "copy:"]).split(' ').next(), digest.split(' ').next());
    weft(&["snapshot", "delete", "m", "first"]);
    weft(&["history", "set", "--drop", "m", "all 1s"]);
    weft(&["sync", "m"]);
    weft(&["gc", "m"]);
    on.place.umount();
    on.check();
}

#[test]
fn a_volume_on_citus_gets_another_layout() {
    let Some(on) = Distributed::new() else { return };
    let large = large();
    fs::write(on.path("first"), &large).unwrap();
    on.place.umount();
    let mut before = "first".to_owned();
    for layout in ["per-file", "hybrid=1M", "single"] {
        on.place.weft(&["convert", "--layout", layout, &on.url]).well();
        on.place.mount_with(&on.url, &[]);
        assert!(fs::read(on.path(&before)).unwrap() == large, "{layout}");
        fs::write(on.path("new"), &large).unwrap();
        fs::copy(on.path("new"), on.path(layout)).unwrap();
        on.place.weft(&["sync", "m"]).well();
        fs::remove_file(on.path("new")).unwrap();
        on.remount();
        assert!(fs::read(on.path(layout)).unwrap() == large, "{layout}");
        on.place.umount();
        on.check();
        before = layout.to_owned();
    }
}

#[test]
fn programs_wait_for_nodes_of_citus_that_end_and_come_back() {
    const COUNT: usize = 300;
    let Some(on) = Distributed::new() else { return };
    for orders in [
        &["restart"][..],
        &["crash", "start"],
        &["worker restart"],
        &["worker crash", "worker start"],
        &["worker stop", "worker start"],
    ] {
        let directory = on.path(orders[0]);
        let writer = Writer::start(directory.clone(), COUNT);
        writer.await_synced(5);
        on.cluster.tell(orders[0]);
        if orders[0].ends_with("stop") {
            // Until all wait for it.
            while writer.synced.recv_timeout(Duration::from_secs(1)).is_ok() {}
        }
        orders[1..].iter().for_each(|order| on.cluster.tell(order));
        writer.end().unwrap();
        assert_numbered(&directory, COUNT);
        on.remount();
        assert_numbered(&directory, COUNT);
        on.place.umount();
        on.check();
        on.place.mount_with(&on.url, &[]);
    }
    on.place.umount();
}

#[test]
fn another_daemon_takes_an_expired_lease_on_citus() {
    let Some(on) = Distributed::new() else { return };
    on.place.directory("m2");
    on.place.umount();
    on.place.mount_with(&on.url, &["--lease", "1"]);
    write_synced(&on.path("fenced"), b"old");
    let stopped = Stopped::new(&on.place);
    take(&on.place, &on.url);
    write_synced(&on.place.path("m2/fenced"), b"new");
    drop(stopped);
    write_and_sync(&on.path("fenced"), "late").unwrap_err();
    assert_eq!(fs::read(on.place.path("m2/fenced")).unwrap(), b"new");
    on.place.weft(&["umount", "m2"]).well();
    on.place.weft(&["umount", "--lazy", "m"]);
    on.place.mount_with(&on.url, &["--wait", "60"]);
    assert_eq!(fs::read(on.path("fenced")).unwrap(), b"new");
    on.place.umount();
    on.check();
}
