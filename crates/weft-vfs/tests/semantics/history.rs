//! The history of a volume, as its operations and commits make it.

use super::*;
use std::time::Duration;
use weft_store::{At, HistoryChange, HistoryFor, PastStore, RowStore, Timestamp};
use weft_vfs::ClockJump;

fn keep(volume: &Volume) {
    let rule = || vec![HistoryChange::Keep("all 1d".into(), HistoryFor::All)];
    volume.vfs.change_history(|_, _| Ok(rule())).expect("changed");
}

fn snapshot(volume: &Volume, name: &str) -> weft_store::CommitNo {
    volume.vfs.create_snapshot(name, None).expect("made")
}

/// The volume as of `commit`.
fn as_of(volume: &Volume, commit: weft_store::CommitNo) -> Arc<Vfs> {
    let at = At::new(volume.store.clone(), commit).expect("kept");
    let options = Options { read_only: true, ..options() };
    Vfs::open(Arc::new(at), None, options, volume.clock.clone()).expect("opens")
}

#[test]
fn a_snapshot_has_all_that_was_changed_before_it_and_nothing_later() {
    let volume = Volume::new();
    keep(&volume);
    let file = volume.vfs.make(Caller::ROOT, Ino::ROOT, b"file", FILE).expect("made").ino;
    volume.vfs.write(file, 0, b"before", weft_vfs::Writer::Privileged).expect("written");
    let commit = snapshot(&volume, "first");
    volume.vfs.write(file, 0, b"behind", weft_vfs::Writer::Privileged).expect("written");
    volume.vfs.sync().expect("synced");
    let then = as_of(&volume, commit);
    assert_eq!(then.read(file, 0, 100).expect("read").to_vec(), b"before");
    assert_eq!(volume.vfs.read(file, 0, 100).expect("read").to_vec(), b"behind");
    assert!(then.write(file, 0, b"x", weft_vfs::Writer::Privileged).is_err());
}

#[test]
fn what_is_refused_changes_nothing_and_keeps_nothing_from_being_committed() {
    let volume = Volume::new();
    let file = volume.vfs.make(Caller::ROOT, Ino::ROOT, b"file", FILE).expect("made").ino;
    let refused = volume.vfs.create_snapshot("x", None).expect_err("no history is kept");
    assert!(refused.to_string().contains("keeps no history"), "{refused}");
    volume.vfs.write(file, 0, b"content", weft_vfs::Writer::Privileged).expect("written");
    volume.vfs.sync().expect("synced");
    keep(&volume);
    assert_eq!(volume.store.history().expect("readable").expect("on").rule, "all 1d");
}

#[test]
fn times_of_commits_do_not_go_back_with_the_clock() {
    let volume = Volume::new();
    keep(&volume);
    for (number, time) in [1000, 2000, 500, 2001, -7].into_iter().enumerate() {
        volume.clock.set(Timestamp(time));
        volume.vfs.make(Caller::ROOT, Ino::ROOT, format!("{number}").as_bytes(), FILE).expect("made");
        volume.vfs.commit().expect("committed");
    }
    let commits = volume.store.commits(weft_store::CommitNo(0), 100).expect("readable");
    assert!(commits.len() >= 6 && commits.is_sorted_by(|one, next| one.time < next.time), "{commits:?}");
}

/// Neither in the background nor by `weft gc`, which do the same.
#[test]
fn a_clock_that_jumps_ahead_drops_no_history_until_its_time_has_held_for_an_hour() {
    const SECOND: i64 = 1_000_000_000;
    const YEAR: i64 = 365 * 24 * 3600 * SECOND;
    let volume = Volume::new();
    keep(&volume);
    for number in 0..5 {
        volume.clock.advance(SECOND);
        volume.vfs.make(Caller::ROOT, Ino::ROOT, format!("{number}").as_bytes(), FILE).expect("made");
        volume.vfs.commit().expect("committed");
    }
    let first = || volume.store.history().expect("readable").expect("on").first;
    let collect = || {
        let collected = volume.vfs.collect_history(None).expect("collected");
        assert!(collected.is_done);
        collected.clock_jump
    };
    let (before, jump) = (first(), Some(ClockJump(Duration::from_secs(365 * 24 * 3600))));
    assert_eq!((collect(), first()), (None, before));
    volume.clock.jump(YEAR);
    assert_eq!((collect(), first()), (jump, before));
    volume.clock.jump(-YEAR);
    assert_eq!((collect(), first()), (None, before), "the clock is back");
    volume.clock.jump(YEAR);
    assert_eq!((collect(), first()), (jump, before));
    volume.vfs.keep_history("all 1h", None).expect("changed");
    volume.clock.advance(3599 * SECOND);
    assert_eq!((collect(), first()), (jump, before), "nor by a new rule");
    volume.clock.advance(SECOND);
    assert_eq!(collect(), None);
    assert!(first() > before);
}

#[test]
fn a_renamed_snapshot_is_the_same_moment_and_stays_held() {
    let volume = Volume::new();
    keep(&volume);
    let why = |result: Result<weft_store::CommitNo>| result.expect_err("refused").to_string();
    let (first, _) =
        (volume.vfs.create_snapshot("a", Some(Timestamp(i64::MAX))).expect("made"), snapshot(&volume, "b"));
    let refused = why(volume.vfs.rename_snapshot("a", "b"));
    assert!(refused.contains("there is a snapshot 'b' already"), "{refused}");
    assert!(why(volume.vfs.rename_snapshot("c", "d")).contains("there is no snapshot 'c'"));
    assert!(why(volume.vfs.rename_snapshot("a", "@5")).contains("cannot be the name"));
    volume.vfs.rename_snapshot("a", "c").expect("renamed");
    let pins = volume.store.pins().expect("readable");
    let names = pins.iter().map(|pin| (pin.commit, &*pin.name)).collect::<Vec<_>>();
    assert!(names.contains(&(first, b"c")) && names.len() == 2, "{names:?}");
    assert!(why(volume.vfs.delete_snapshot("c")).contains("held"));
}

#[test]
fn snapshots_have_names_of_their_own_and_are_held() {
    let volume = Volume::new();
    keep(&volume);
    let why = |result: Result<weft_store::CommitNo>| result.expect_err("refused").to_string();
    for name in [
        "",
        "now",
        "yesterday",
        "@5",
        "-5m",
        "2026-11-28",
        "1h",
        "2h30m",
        "12:30",
        "2026-11",
        "today",
        "a/b",
        "..",
        "a\nb",
        &"x".repeat(256),
    ] {
        assert!(why(volume.vfs.create_snapshot(name, None)).contains("cannot be the name"), "{name}");
    }
    for name in ["release-1.2", "1.2", "2026-11-28-release", "hourly"] {
        volume.vfs.create_snapshot(name, None).expect(name);
        volume.vfs.delete_snapshot(name).expect(name);
    }
    volume.clock.set(Timestamp(1000));
    let first = volume.vfs.create_snapshot("kept", Some(Timestamp(5000))).expect("made");
    assert!(why(volume.vfs.create_snapshot("late", Some(Timestamp(1000)))).contains("has passed"));
    assert!(why(volume.vfs.hold_snapshot("kept", Timestamp(-1))).contains("has passed"));
    assert!(why(volume.vfs.create_snapshot("kept", None)).contains("already"));
    assert!(why(volume.vfs.delete_snapshot("other")).contains("there is no snapshot"));
    assert!(why(volume.vfs.delete_snapshot("kept")).contains("held"));
    assert!(why(volume.vfs.hold_snapshot("kept", Timestamp(4000))).contains("held for longer"));
    volume.vfs.hold_snapshot("kept", Timestamp(6000)).expect("held");
    assert!(why(volume.vfs.end_history()).contains("snapshots"));
    volume.clock.set(Timestamp(5500));
    assert!(why(volume.vfs.delete_snapshot("kept")).contains("held"));
    volume.clock.set(Timestamp(6001));
    assert!(volume.store.is_kept(first).expect("readable"));
    volume.vfs.delete_snapshot("kept").expect("deleted");
    volume.vfs.end_history().expect("ended");
    assert_eq!(volume.store.history().expect("readable"), None);
}
