//! Receipts of whole volumes that end early, and go on.

use super::{receive, send, volume};
use crate::place::{Place, is_root};
use std::fs::{self, File};
use std::io::Write;
use std::process::{Command, Stdio};
use weft_testkit::Cluster;

/// Bytes of a file that takes more than one commit to receive.
const LARGE: u64 = 160 << 20;

/// Makes a volume with a large file, and a stream of it without its end, `cut`. Returns the volume
/// as of the commit that was sent.
fn large(place: &Place) -> String {
    volume(place, &[]);
    place.directory("more");
    let mut random = File::open("/dev/urandom").unwrap();
    let mut file = File::create(place.path("more/large")).unwrap();
    std::io::copy(&mut std::io::Read::take(&mut random, LARGE), &mut file).unwrap();
    place.weft(&["import", "more", "v"]).well();
    let sent = send(place, &["v"], "whole");
    let whole = fs::read(place.path("whole")).unwrap();
    fs::write(place.path("cut"), &whole[..whole.len() - (1 << 20)]).unwrap();
    format!("v@{}", sent["to"]["commit"])
}

#[track_caller]
fn arrived(place: &Place, volume: &str) {
    let said = place.weft(&["digest", &format!("{volume}:large")]).well();
    assert_eq!(said.split(' ').next(), place.weft(&["digest", "v:large"]).well().split(' ').next());
    place.weft(&["check", "--read-data", volume]).well();
}

#[test]
fn what_breaks_off_goes_on_in_files_and_in_postgresql() {
    let place = Place::new();
    let then = large(&place);
    // The volume is another one when that commit is sent again.
    place.weft(&["history", "set", "v", "all 2d"]).well();
    place.directory("later");
    fs::write(place.path("later/later"), "later").unwrap();
    place.weft(&["import", "later", "v"]).well();
    send(&place, &[&then], "anew");
    place.weft(&["init", "other"]).well();
    send(&place, &["other"], "other-whole");
    let url = Cluster::shared().url();
    for (volume, there) in [("w", "w.unfinished"), (&*url, &*url)] {
        let options = if volume == "w" { &["--blocks", "database"][..] } else { &[] };
        let receive = |file: &str| receive(&place, &[options, &[volume]].concat(), file);
        receive("cut").failed(&["ends early", "what came stays in", "receive the same stream again"]);
        place.weft(&["info", there]).failed(&["receive the same stream again"]);
        receive("cut").failed(&["ends early", "what came stays in"]);
        let said = receive("other-whole");
        assert!(said.err.contains("the beginning of another stream"), "{said:?}");
        receive("anew").well();
        arrived(&place, volume);
    }
    assert!(!place.path("w.unfinished").exists());
    receive(&place, &["--blocks", "segments", "x"], "cut").failed(&["what came stays in"]);
    receive(&place, &["--blocks", "database", "x"], "whole").could_not(&["other options"]);
}

#[test]
fn what_was_killed_goes_on() {
    let place = Place::new();
    large(&place);
    let mut child = Command::new(env!("CARGO_BIN_EXE_weft"));
    child.args(["receive", "w"]).current_dir(place.path("")).stdin(Stdio::piped()).stderr(Stdio::null());
    let mut child = child.spawn().unwrap();
    // The commit that comes first is made before the rest is read.
    child.stdin.as_mut().unwrap().write_all(&fs::read(place.path("cut")).unwrap()).unwrap();
    child.kill().unwrap();
    child.wait().unwrap();
    place.weft(&["info", "w.unfinished"]).failed(&["is not a Weft volume yet"]);
    if is_root() {
        // It may hold anything.
        let give = |user| std::os::unix::fs::chown(place.path("w.unfinished"), Some(user), None).unwrap();
        give(1000);
        receive(&place, &["w"], "whole").could_not(&["w.unfinished exists"]);
        give(0);
    }
    receive(&place, &["w"], "whole").well();
    arrived(&place, "w");
}
