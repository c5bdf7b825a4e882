//! Conversion between homes.

use crate::check::{database, look, sample_volume};
use crate::compare::state;
use crate::contract::HOMES;
use std::collections::BTreeMap;
use std::path::Path;
use weft_store::sqlite::{self, convert, open};
use weft_store::{BlockHome, ErrorKind, RowStore};
use weft_store::{Outcome, Repair};

pub fn other(home: BlockHome) -> BlockHome {
    match home {
        BlockHome::Segments => BlockHome::Database,
        BlockHome::Database => BlockHome::Segments,
    }
}

fn read(path: &Path) -> crate::compare::State {
    state(&*open(path).expect("opened").store).expect("readable")
}

#[test]
fn a_converted_volume_holds_the_same_and_the_old_one_stays() {
    for home in HOMES {
        let directory = tempfile::tempdir().expect("a directory");
        let path = sample_volume(&directory, home);
        let before = read(&path);
        let new = directory.path().join("new");
        convert(&path, &new, other(home), &mut |_| {}).expect("converted");
        assert_eq!(open(&new).expect("opened").store.header().expect("readable").options.home, other(home));
        let uuid = |path: &Path| sqlite::header(path).expect("readable").uuid;
        assert_ne!(uuid(&new), uuid(&path), "two volumes of one id");
        assert_eq!(read(&new).without_options(), before.clone().without_options());
        assert_eq!(read(&path), before);
        let findings = look(&new, Repair::No);
        assert!(findings.iter().all(|finding| finding.outcome == Outcome::Note), "{findings:?}");
    }
}

#[test]
fn a_damaged_block_stops_a_conversion_and_nothing_is_left_of_it() {
    let directory = tempfile::tempdir().expect("a directory");
    let path = sample_volume(&directory, BlockHome::Database);
    rusqlite::Connection::open(database(&path))
        .and_then(|c| c.execute_batch("UPDATE block_bytes SET bytes = zeroblob(100) WHERE id = 3"))
        .expect("edited");
    let files = || std::fs::read_dir(directory.path()).expect("listed").flatten().map(|entry| entry.file_name());
    let before: BTreeMap<_, _> = files().map(|name| (name, ())).collect();
    let new = directory.path().join("new");
    let error = convert(&path, &new, BlockHome::Segments, &mut |_| {}).expect_err("refused");
    assert_eq!(error.kind(), ErrorKind::Corrupt);
    assert!(!new.exists());
    assert_eq!(files().map(|name| (name, ())).collect::<BTreeMap<_, _>>(), before);
}
