//! Changes that a clock gives one time: versions are told apart all the same.

use super::*;
use weft_store::{BlockHome, OpenOptions, PastStore, postgres};
use weft_testkit::Cluster;

/// Commits, while the clock stands.
fn commit(volume: &Volume) -> CommitNo {
    volume.vfs.commit_durably().expect("committed")
}

fn versions_differ(store: CrashStore) {
    let volume = Volume::over(store, options());
    let contents = [1, 2, 3].map(|byte| vec![byte; 2 * BLOCK]);
    let file = volume.make("/file", FILE);
    let commits = contents.clone().map(|content| {
        volume.vfs.write(file, 0, &content, Writer::Privileged).expect("written");
        commit(&volume)
    });
    let since = |commit| volume.store.row_at(commit, file).expect("readable").expect("there").1;
    assert_eq!(commits.map(since), commits, "each is a version of its own");
    for (commit, content) in commits.into_iter().zip(&contents).take(2) {
        volume.try_restore("/file", commit, Target::Place).expect("restored");
        assert_eq!(volume.read("/file"), *content);
    }
    // Attributes, and entries of a directory.
    let directory = volume.make("/d", DIRECTORY);
    let before = commit(&volume);
    volume.vfs.set_xattr(file, b"user.a", b"1", SetXattr::Any, false).expect("set");
    volume.make("/d/new", FILE);
    let after = commit(&volume);
    let since = |ino| volume.store.row_at(after, ino).expect("readable").expect("there").1;
    assert_eq!([file, directory].map(since), [after; 2]);
    let report = volume.try_restore("/", before, Target::Place).expect("restored");
    assert_eq!((report.changed, report.removed), (2, 1), "the file and the directory");
}

#[test]
fn two_changes_of_one_time_are_two_versions() {
    versions_differ(CrashStore::new(volume_options()));
    for home in [BlockHome::Segments, BlockHome::Database] {
        for digests in [true, false] {
            let directory = tempfile::tempdir().expect("a directory");
            let path = directory.path().join("volume");
            let options = VolumeOptions { home, digests, ..volume_options() };
            sqlite::create(&path, &options, (0, 0), Timestamp(0)).expect("made");
            versions_differ(CrashStore::over(sqlite::open(&path).expect("opens").store));
        }
    }
    for digests in [true, false] {
        let address = Cluster::shared().address();
        let options = VolumeOptions { home: BlockHome::Database, digests, ..volume_options() };
        postgres::create(&address, &options, (0, 0), Timestamp(0)).expect("made");
        versions_differ(CrashStore::over(postgres::open(&address, OpenOptions::default()).expect("opens")));
    }
}
