//! `weft send` and `weft receive`.

mod encrypted;
mod interrupted;

use crate::place::{Place, Said};
use crate::served::{ended, serving};
use std::fs::{self, File};
use std::io::{Read, Write};
use std::os::unix::fs::FileExt;
use std::process::{Child, Command, Stdio};
use std::thread;
use weft_testkit::Cluster;

const ALL: &str = "all forever";

/// Sends by `arguments` to `file`. Returns the summary.
#[track_caller]
fn send(place: &Place, arguments: &[&str], file: &str) -> serde_json::Value {
    let arguments = [&["send", "--json"], arguments].concat();
    let sent = place.command(&arguments).stdout(File::create(place.path(file)).unwrap()).output().unwrap();
    let said = Said::from(sent);
    assert_eq!(said.code, 0, "{said:?}");
    serde_json::from_str(&said.err).unwrap()
}

fn receive(place: &Place, arguments: &[&str], file: &str) -> Said {
    let arguments = [&["receive"], arguments].concat();
    let input = File::open(place.path(file)).unwrap();
    place.command(&arguments).stdin(input).output().unwrap().into()
}

fn digest(place: &Place, volume: &str) -> String {
    let said = place.weft(&["digest", &format!("{volume}:")]).well();
    said.split(' ').next().unwrap().to_owned()
}

/// Begins to receive `bytes` into `volume`, and waits until a volume is made that is not whole.
fn begun(place: &Place, bytes: &[u8], volume: &str) -> Child {
    let mut child = Command::new(env!("CARGO_BIN_EXE_weft"));
    child.args(["receive", volume]).current_dir(place.path("")).stdin(Stdio::piped()).stderr(Stdio::piped());
    let mut child = child.spawn().unwrap();
    child.stdin.as_mut().unwrap().write_all(bytes).unwrap();
    let database = place.path(format!("{volume}.unfinished/meta.sqlite"));
    // Where SQLite has the version of the format, and which program a database is of.
    let is_marked = |file: &[u8]| file.len() > 100 && file[60..64] != [0; 4] && file[68..72] == [0; 4];
    while !fs::read(&database).is_ok_and(|file| is_marked(&file)) {
        thread::yield_now();
    }
    child
}

/// A volume with some of everything, which is not mounted.
fn volume(place: &Place, options: &[&str]) {
    place.weft(&[&["init", "v"], options].concat()).well();
    place.directory("source");
    fill(place, 1);
    place.weft(&["import", "source", "v"]).well();
}

fn fill(place: &Place, round: usize) {
    let script = format!(
        "set -e; mkdir -p a/b; head -c 3000000 /dev/urandom >a/b/random; echo {round} >round-{round}
         ln -f a/b/random hard; ln -sf a/b/random link; truncate -s 50M sparse; mkfifo -m 600 fifo-{round}; rm -f round-0"
    );
    let done = Command::new("bash").args(["-c", &script]).current_dir(place.path("source")).status().unwrap();
    assert!(done.success());
}

#[test]
fn a_volume_goes_from_engine_to_engine_and_back_with_its_links_and_numbers() {
    let place = Place::new();
    volume(&place, &[]);
    place.weft(&["link", "v:hard", "v:upper", "--network", "upper"]).well();
    place.weft(&["net", "define", "loud", "upper", "v"]).well();
    let sent = send(&place, &["v"], "whole");
    assert_eq!(sent["to"]["digest"], digest(&place, "v"));
    let url = Cluster::shared().url();
    receive(&place, &[&url], "whole").well();
    send(&place, &[&url], "back");
    let said = receive(&place, &["--json", "--blocks", "database", "w"], "back").json();
    assert_eq!(said["to"]["digest"], sent["to"]["digest"]);
    assert_eq!(said["inodes"], sent["inodes"]);
    for other in [&url, "w"] {
        assert_eq!(digest(&place, other), digest(&place, "v"));
        place.weft(&["check", "--read-data", other]).well();
        assert_eq!(
            place.weft(&["link", "--show", &format!("{other}:upper")]).well(),
            place.weft(&["link", "--show", "v:upper"]).well()
        );
        assert!(place.weft(&["net", "list", other]).well().contains("loud"));
    }
    receive(&place, &["w"], "whole").could_not(&["w already exists"]);
    receive(&place, &[&url], "whole").could_not(&["a volume is there already"]);
}

#[test]
fn a_busy_mount_is_sent_and_what_changed_follows() {
    let Some(place) = Place::to_mount() else { return };
    place.weft(&["init", "--history", ALL, "v"]).well();
    let directory = place.directory("m");
    place.mount();
    for round in 0..200 {
        fs::write(directory.join(round.to_string()), vec![1; 10_000]).unwrap();
    }
    place.weft(&["snapshot", "create", "v", "sunday"]).well();
    let writer = {
        let directory = directory.clone();
        thread::spawn(move || {
            for round in 200..600 {
                fs::write(directory.join(round.to_string()), vec![2; 10_000]).unwrap();
                fs::remove_file(directory.join((round - 200).to_string())).unwrap();
            }
        })
    };
    send(&place, &["v@sunday"], "whole");
    writer.join().unwrap();
    fs::write(directory.join("last"), "not committed yet").unwrap();
    let sent = send(&place, &["m", "--from", "sunday"], "changes");
    assert_eq!((&sent["inodes"], &sent["gone"]), (&202.into(), &200.into()));
    place.umount();
    receive(&place, &["w"], "changes").could_not(&["w"]);
    receive(&place, &["--history", ALL, "w"], "whole").well();
    receive(&place, &["w"], "changes").well();
    assert_eq!(digest(&place, "w"), digest(&place, "v"));
    place.weft(&["check", "--read-data", "w"]).well();
    receive(&place, &["w"], "changes").could_not(&["received before"]);
    place.weft(&["init", "x"]).well();
    receive(&place, &["x"], "changes").could_not(&["the stream begins from commit", "the last commit here"]);
    // Each receipt is a commit of the history there.
    let at = |volume: &str, at: &str| place.weft(&["digest", "--at", at, &format!("{volume}:")]).well();
    let first = place.weft(&["history", "--json", "w"]).json()["first"]["commit"].as_u64().unwrap();
    assert_eq!(at("w", &format!("@{first}"))[..64], at("v", "sunday")[..64]);
}

#[test]
fn a_file_as_long_as_one_may_be_is_sent_with_the_others() {
    let Some(place) = Place::to_mount() else { return };
    place.weft(&["init", "v"]).well();
    place.directory("m");
    place.mount();
    let last = (1 << 63) - (64 << 10);
    File::create(place.path("m/long")).unwrap().write_all_at(b"x", last).unwrap();
    fs::write(place.path("m/other"), "other").unwrap();
    place.umount();
    send(&place, &["v"], "stream");
    receive(&place, &["copy"], "stream").well();
    assert_eq!(digest(&place, "copy"), digest(&place, "v"));
}

#[test]
fn snapshots_come_along() {
    let place = Place::new();
    volume(&place, &["--history", ALL]);
    let mut digests = Vec::new();
    for round in 2..=4 {
        place.weft(&["snapshot", "create", "v", &format!("round{round}")]).well();
        digests.push(digest(&place, "v"));
        fill(&place, round);
        place.weft(&["import", "--overwrite", "source", "v"]).well();
    }
    let sent = send(&place, &["--snapshots", "v"], "all");
    assert_eq!(sent["parts"], 4);
    receive(&place, &["w"], "all").well();
    for (round, expected) in (2..).zip(&digests) {
        let said = place.weft(&["digest", "--at", &format!("round{round}"), "w:"]).well();
        assert_eq!(&said[..64], expected);
    }
    assert_eq!(digest(&place, "w"), digest(&place, "v"));
    place.weft(&["check", "--read-data", "w"]).well();
    let sent = send(&place, &["--snapshots", "v@round4", "--from", "round2"], "some");
    assert_eq!(sent["parts"], 2);
    send(&place, &["v@round2"], "base");
    receive(&place, &["--history", ALL, "x"], "base").well();
    let some = fs::read(place.path("some")).unwrap();
    fs::write(place.path("cut"), &some[..some.len() - 100]).unwrap();
    receive(&place, &["x"], "cut").failed(&["ends early"]);
    assert_eq!(digest(&place, "x"), digests[1], "its first part was whole");
    assert_eq!(receive(&place, &["--json", "x"], "some").json()["parts"], 1, "the other one follows");
    assert_eq!(digest(&place, "x"), digests[2]);
    receive(&place, &["x"], "some").could_not(&["it was received before"]);
}

#[test]
fn a_volume_without_history_is_sent_while_nobody_uses_it() {
    let Some(place) = Place::to_mount() else { return };
    place.weft(&["init", "--history", "off", "v"]).well();
    let directory = place.directory("m");
    place.mount();
    fs::write(directory.join("file"), "text").unwrap();
    let refused = |arguments: &[&str]| -> Said {
        place.command(&[&["send"], arguments].concat()).stdout(Stdio::piped()).output().unwrap().into()
    };
    for named in ["v", "m"] {
        let said = refused(&[named]);
        assert!(said.err.contains("unmount it") && said.err.contains("first"), "{said:?}");
    }
    place.umount();
    refused(&["v", "--from", "@1"]).could_not(&["keeps no history"]);
    send(&place, &["v"], "whole");
    receive(&place, &["w"], "whole").well();
    assert_eq!(digest(&place, "w"), digest(&place, "v"));
}

#[test]
fn what_was_brought_back_is_a_change_and_what_was_forgotten_is_not_sent() {
    let Some(place) = Place::to_mount() else { return };
    place.weft(&["init", "--history", ALL, "v"]).well();
    let directory = place.directory("m");
    place.mount();
    fs::create_dir(directory.join("d")).unwrap();
    fs::write(directory.join("d/file"), "text").unwrap();
    fs::write(directory.join("secret"), "secret").unwrap();
    let snapshot = |name: &str| drop(place.weft(&["snapshot", "create", "m", name]).well());
    snapshot("first");
    fs::remove_dir_all(directory.join("d")).unwrap();
    place.weft(&["undelete", "--parents", "m/d"]).well();
    fs::write(directory.join("d/file"), "other text").unwrap();
    fs::remove_file(directory.join("secret")).unwrap();
    snapshot("second");
    send(&place, &["v@first"], "whole");
    receive(&place, &["w"], "whole").well();
    send(&place, &["v@second", "--from", "first"], "changes");
    receive(&place, &["w"], "changes").well();
    assert_eq!(place.weft(&["digest", "m"]).well().split(' ').next(), Some(&*digest(&place, "w")));
    place.weft(&["history", "forget", "m/secret"]).well();
    for sent in [&["send", "v@first"][..], &["send", "v@second", "--from", "first"], &["send", "--snapshots", "v"]] {
        let said = place.weft(sent);
        assert_eq!(said.out, "", "nothing is sent before");
        let tells_snapshot = said.err.contains("snapshot 'first': delete it");
        assert_eq!(tells_snapshot, sent.contains(&"--snapshots"), "{}", said.err);
        said.could_not(&["secret", "as of commit", "was taken out of history"]);
    }
    send(&place, &["v@second"], "later");
    // The record comes along. What else the volume keeps for itself does not.
    place.weft(&["history", "exclude", "m", "target"]).well();
    snapshot("third");
    send(&place, &["v@third"], "third");
    receive(&place, &["x"], "third").well();
    send(&place, &["v@third", "--from", "second"], "more");
    receive(&place, &["w"], "more").well();
    let history = |volume: &str| place.weft(&["history", "--json", volume]).json();
    assert_eq!(history("m")["excluded"], serde_json::json!(["target"]));
    for received in ["w", "x"] {
        let forgotten = &history(received)["forgotten"];
        assert_eq!((&forgotten[0]["path"], &forgotten[1]), (&"/secret".into(), &serde_json::Value::Null));
        assert_eq!(place.weft(&["history", "exclude", received, "--list"]).well(), "");
    }
    place.umount();
}

#[test]
fn nothing_is_left_of_what_is_damaged_cut_off_or_interrupted() {
    let place = Place::new();
    volume(&place, &[]);
    send(&place, &["v"], "whole");
    let whole = fs::read(place.path("whole")).unwrap();
    let half = &whole[..whole.len() / 2];
    fs::write(place.path("half"), half).unwrap();
    receive(&place, &["w"], "half").failed(&["ends early"]);
    let mut changed = whole.clone();
    changed[whole.len() / 2] ^= 1;
    fs::write(place.path("changed"), &changed).unwrap();
    receive(&place, &["w"], "changed").failed(&["not those that were sent"]);
    receive(&place, &["w"], "source/sparse").could_not(&["no stream of 'weft send'"]);
    let url = Cluster::shared().url();
    receive(&place, &[&url], "half").failed(&["ends early"]);
    place.weft(&["info", &url]).fails_with("no volume");
    let mut child = begun(&place, half, "w");
    let pid = rustix::process::Pid::from_child(&child);
    rustix::process::kill_process(pid, rustix::process::Signal::INT).unwrap();
    assert_eq!(child.wait().unwrap().code(), Some(130));
    for name in ["w", "w.unfinished"] {
        assert!(!place.path(name).exists(), "{name}");
    }
    receive(&place, &["w"], "whole").well();
    receive(&place, &[&url], "whole").well();
}

#[test]
fn what_a_killed_receipt_leaves_is_no_volume() {
    let place = Place::new();
    volume(&place, &[]);
    send(&place, &["v"], "whole");
    let whole = fs::read(place.path("whole")).unwrap();
    let mut child = begun(&place, &whole[..whole.len() / 2], "w");
    child.kill().unwrap();
    child.wait().unwrap();
    let mut said = String::new();
    child.stderr.take().unwrap().read_to_string(&mut said).unwrap();
    assert!(!place.path("w").exists(), "{said}");
    place.weft(&["info", "w.unfinished"]).failed(&["is not a Weft volume"]);
    // Nothing was committed: the same stream begins again.
    receive(&place, &["w"], "whole").well();
    assert_eq!(digest(&place, "w"), digest(&place, "v"));
    assert!(!place.path("w.unfinished").exists());
    // Killed before there were tables.
    for (home, name) in [("segments", "x"), ("database", "y")] {
        let unfinished = place.path(format!("{name}.unfinished"));
        match home {
            "segments" => fs::create_dir_all(unfinished.join("segments")).unwrap(),
            _ => fs::write(unfinished, "").unwrap(),
        }
        receive(&place, &["--blocks", home, name], "whole").well();
    }
    // What was not begun by a receipt is not removed.
    fs::write(place.path("z.unfinished"), "a user's own").unwrap();
    receive(&place, &["--blocks", "database", "z"], "whole").could_not(&["z.unfinished exists", "remove it"]);
    assert_eq!(fs::read(place.path("z.unfinished")).unwrap(), b"a user's own");
}

/// Blocks are put before it is known that the changes are whole; those of a volume that was
/// unmounted lie behind its end then.
#[test]
fn a_copy_that_was_mounted_takes_changes_again_that_were_cut_off_or_killed() {
    let Some(place) = Place::to_mount() else { return };
    volume(&place, &["--history", ALL]);
    place.weft(&["snapshot", "create", "v", "one"]).well();
    send(&place, &["v@one"], "whole");
    receive(&place, &["w"], "whole").well();
    place.directory("m");
    place.weft(&["mount", "w", "m"]).well();
    place.weft(&["umount", "m"]).well();
    place.directory("more");
    let script = "head -c 20000000 /dev/urandom >more/large";
    assert!(Command::new("sh").args(["-c", script]).current_dir(place.path("")).status().unwrap().success());
    place.weft(&["import", "more", "v"]).well();
    send(&place, &["--from", "one", "v"], "changes");
    let whole = fs::read(place.path("changes")).unwrap();
    fs::write(place.path("cut"), &whole[..whole.len() - 1_000_000]).unwrap();
    let before = digest(&place, "w");
    receive(&place, &["w"], "cut").failed(&["nothing more was received"]);
    let mut child = place.command(&["receive", "w"]).stdin(Stdio::piped()).spawn().unwrap();
    child.stdin.as_mut().unwrap().write_all(&whole[..whole.len() - 1_000_000]).unwrap();
    child.kill().unwrap();
    child.wait().unwrap();
    assert_eq!(digest(&place, "w"), before);
    place.weft(&["check", "w"]).well();
    receive(&place, &["w"], "changes").well();
    assert_eq!(digest(&place, "w"), digest(&place, "v"));
    place.weft(&["mount", "w", "m"]).well();
    place.weft(&["umount", "m"]).well();
    place.weft(&["check", "--read-data", "w"]).well();
}

#[test]
fn a_copy_keeps_history_as_the_volume_does_that_was_sent() {
    let place = Place::new();
    place.weft(&["init", "v", "--history", "all 2d, daily 9d"]).well();
    send(&place, &["v"], "whole");
    for (copy, options, rule) in [
        ("as-sent", &[][..], Some("all 2d, daily 9d")),
        ("by-rule", &["--history", "all 1y"], Some("all 1y")),
        ("off", &["--history", "off"], None),
    ] {
        let said = receive(&place, &[options, &[copy]].concat(), "whole").well();
        assert!(
            said.contains(&rule.map_or("keeps no history".into(), |rule| format!("keeps history: {rule}"))),
            "{said}"
        );
        assert_eq!(place.weft(&["history", "--json", copy]).json()["rule"].as_str(), rule);
    }
}

/// What was synced before a crash waits in the intent log, which no stream has.
#[test]
fn a_volume_that_was_killed_is_not_sent_without_what_was_synced() {
    let Some(place) = Place::to_mount() else { return };
    let directory = place.mounted();
    crate::place::write_synced(&directory.join("synced"), b"synced");
    place.kill("v/lock");
    let said: Said = place.command(&["send", "v"]).stdout(Stdio::piped()).output().unwrap().into();
    said.could_not(&["was not unmounted cleanly", "mount and unmount it first"]);
    place.mount();
    place.umount();
    send(&place, &["v"], "whole");
    receive(&place, &["w"], "whole").well();
    assert_eq!(place.weft(&["cat", "--at", "now", "w:synced"]).well(), "synced");
}

/// Digests of trees do not tell owners, times and attributes.
#[test]
fn changes_of_attributes_alone_are_not_skipped() {
    let Some(place) = Place::to_mount() else { return };
    let directory = place.mounted();
    fs::write(directory.join("file"), "text").unwrap();
    let step = |name: &str, script: &str| {
        place.sh(script).well();
        place.weft(&["snapshot", "create", "m", name]).well();
    };
    step("one", "true");
    step("two", "touch -d 2001-01-01 file && setfattr -n user.a -v b file");
    step("three", "echo new >new");
    place.umount();
    send(&place, &["v@one"], "first");
    send(&place, &["v@two", "--from", "one"], "second");
    send(&place, &["v@three", "--from", "two"], "third");
    for copy in ["w", &Cluster::shared().url()] {
        receive(&place, &[copy], "first").well();
        receive(&place, &[copy], "third").could_not(&["the stream begins from commit", "what is here is commit"]);
        receive(&place, &[copy], "second").well();
        receive(&place, &[copy], "second").could_not(&["was received before"]);
        receive(&place, &[copy], "third").well();
        assert_eq!(digest(&place, copy), digest(&place, "v"));
        place.weft(&["check", "--read-data", copy]).well();
    }
    place.weft(&["export", "w", "out"]).well();
    let exported = place.path("out/file");
    let time = exported.metadata().unwrap().modified().unwrap().duration_since(std::time::UNIX_EPOCH).unwrap();
    // The first day of 2001, in some time zone.
    assert!((978_200_000..978_400_000).contains(&time.as_secs()), "{time:?}");
    assert!(Command::new("getfattr").args(["-n", "user.a"]).arg(exported).status().unwrap().success());
}

/// What a volume keeps for itself on its root stays where it is.
#[test]
fn a_volume_that_was_served_is_sent_and_so_is_a_copy_that_is() {
    let Some(place) = Place::to_mount() else { return };
    let directory = place.mounted();
    fs::write(directory.join("file"), "text").unwrap();
    let serve = |volume: &str| assert_eq!(ended(serving(&place, volume, &[]).0).code, 0);
    place.umount();
    serve("v");
    place.mount();
    place.weft(&["snapshot", "create", "m", "one"]).well();
    fs::write(directory.join("more"), "text").unwrap();
    place.weft(&["snapshot", "create", "m", "two"]).well();
    place.umount();
    send(&place, &["v@one"], "whole");
    send(&place, &["v@two", "--from", "one"], "changes");
    receive(&place, &["w"], "whole").well();
    serve("w");
    receive(&place, &["w"], "changes").well();
    place.weft(&["check", "--read-data", "w"]).well();
    assert_eq!(digest(&place, "w"), digest(&place, "v"));
}

/// The number of an inode that an increment brings is below the one that the stream before said is
/// next.
#[test]
fn a_copy_that_keeps_history_is_whole_after_each_increment() {
    let Some(place) = Place::to_mount() else { return };
    place.weft(&["init", "v", "--history", "all 1d"]).well();
    place.directory("m");
    place.mount_with("v", &[]);
    let step = |name: &str| {
        place.sh(&format!("mkdir {name} && echo {name} >{name}/file && echo {name} >>all")).well();
        place.weft(&["snapshot", "create", "m", name]).well();
    };
    ["one", "two", "three"].into_iter().for_each(step);
    place.umount();
    send(&place, &["v@one"], "first");
    send(&place, &["v@two", "--from", "one"], "second");
    send(&place, &["v@three", "--from", "two"], "third");
    let url = Cluster::shared().url();
    for copy in ["w", &url] {
        receive(&place, &["--history", "all 1d", copy], "first").well();
        for increment in ["second", "third"] {
            receive(&place, &[copy], increment).well();
            place.weft(&["check", "--read-data", copy]).well();
        }
        assert_eq!(digest(&place, copy), digest(&place, "v"));
    }
}
