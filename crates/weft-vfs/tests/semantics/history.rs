//! The history of a volume, as its operations and commits make it.

use super::*;
use weft_store::{At, HistoryChange, HistoryFor, PastStore, Pin, PinKind, RowStore, Timestamp};

fn keep(volume: &Volume) {
    let rule = || vec![HistoryChange::Keep("all 1d".into(), HistoryFor::All)];
    volume.vfs.change_history(|_, _| rule()).expect("changed");
}

fn snapshot(volume: &Volume, name: &str) -> weft_store::CommitNo {
    let pin = |commit, made| Pin { commit, kind: PinKind::Snapshot, name: name.into(), made, held_until: None };
    volume.vfs.change_history(|header, now| vec![HistoryChange::Pin(pin(header.commit, now))]).expect("made")
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
    let pin = |commit, made| Pin { commit, kind: PinKind::Snapshot, name: b"x".into(), made, held_until: None };
    let refused = volume.vfs.change_history(|header, now| vec![HistoryChange::Pin(pin(header.commit, now))]);
    assert!(refused.is_err(), "no history is kept");
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
