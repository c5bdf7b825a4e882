//! Databases that are older than their segments.

use super::*;

/// A mount, a check and a look say that the database is older than the segments.
#[track_caller]
fn assert_older(files: &Files) {
    files.assert_refused("older than the segments");
    let told = |what: &str| what.contains("older than the segments") && what.contains("--accept-loss");
    let options = CheckOptions { repair: Repair::Discard, read_data: false };
    let findings = check(&files.path(), options, &mut |_| {}).expect("checked");
    assert!(findings.iter().any(|f| f.outcome == Outcome::Damaged && told(&f.what)), "{findings:?}");
    assert!(sqlite::waiting(&files.path()).expect("looked at").lost.is_some_and(|lost| told(&lost)));
    files.assert_refused("older than the segments");
}

#[test]
fn a_database_from_before_what_its_segments_hold_is_refused_and_nothing_is_cut() {
    for has_log in [true, false] {
        let files = Files::new(BlockHome::Segments);
        let mounted = files.mount();
        mounted.put_and_sync("old", &[1; 3000]);
        mounted.close();
        let backup = files.crashed();
        let mounted = files.mount();
        mounted.put_and_sync("new", &[2; 3 * BLOCK]);
        mounted.close();
        let restore = |name: &str| fs::copy(backup.path().join(name), files.path().join(name)).expect("restored");
        restore("meta.sqlite");
        if has_log {
            restore("intents");
        } else {
            fs::remove_file(files.log()).expect("removed");
        }
        let segment = files.path().join("segments/00000001.seg");
        let content = fs::read(&segment).expect("readable");
        if has_log {
            assert_older(&files);
        }
        // What is not known stays for good, whatever is written.
        for round in 0..2 {
            let mounted =
                files.try_mount(if has_log && round == 0 { Loss::Accept } else { Loss::Refuse }).expect("mounts");
            assert_eq!(mounted.get("old"), Ok(vec![1; 3000]));
            if round == 1 {
                mounted.put_and_sync("later", &[3; 3 * BLOCK]);
            }
            mounted.close();
            assert!(fs::read(&segment).expect("readable") == content, "round {round}");
        }
        assert_eq!(files.mount().get("later"), Ok(vec![3; 3 * BLOCK]));
    }
}

/// An older database after a crash, beside newer segments: of the mount that crashed, or of one
/// that came after it.
#[test]
fn a_crashed_database_from_before_what_its_segments_hold_leaves_it_there() {
    for is_later_mount in [false, true] {
        let mut files = Files::new(BlockHome::Segments);
        let mut mounted = files.mount();
        mounted.put_and_sync("old", &[1; 3 * BLOCK]);
        mounted.vfs.commit().expect("committed");
        let backup = files.crashed();
        if is_later_mount {
            files = files.crashed();
            mounted = files.mount();
        }
        mounted.put_and_sync("new", &[2; 30 * BLOCK]);
        mounted.close();
        let newest = files.crashed();
        let restore = |from: &Files| {
            for name in ["meta.sqlite", "meta.sqlite-wal", "intents"] {
                let _ = fs::remove_file(files.path().join(name));
                if from.path().join(name).exists() {
                    fs::copy(from.path().join(name), files.path().join(name)).expect("restored");
                }
            }
        };
        let segment = files.path().join("segments/00000001.seg");
        let content = fs::read(&segment).expect("readable");
        restore(&backup);
        let options = CheckOptions { repair: Repair::No, read_data: true };
        let findings = check(&files.path(), options, &mut |_| {}).expect("checked");
        let is_told = |f: &weft_store::Finding| f.outcome == Outcome::Note && f.what.contains("behind the last commit");
        assert!(findings.iter().any(is_told), "{findings:?}");
        let mounted = files.mount();
        assert_eq!(mounted.get("old"), Ok(vec![1; 3 * BLOCK]));
        mounted.put_and_sync("other", &[3; 3 * BLOCK]);
        mounted.close();
        assert!(fs::read(&segment).expect("readable") == content, "a segment was changed");
        restore(&newest);
        let mounted = files.try_mount(Loss::Accept).expect("mounts");
        assert_eq!(mounted.get("old"), Ok(vec![1; 3 * BLOCK]));
        assert_eq!(mounted.get("new"), Ok(vec![2; 30 * BLOCK]));
        mounted.close();
    }
}

#[test]
fn what_a_failed_commit_left_in_a_segment_is_cut_off_by_unmounting() {
    let files = Files::new(BlockHome::Segments);
    let mounted = files.mount();
    mounted.put_and_sync("file", &[1; 3 * BLOCK]);
    mounted.vfs.commit().expect("committed");
    let segment = files.path().join("segments/00000001.seg");
    let length = || fs::metadata(&segment).expect("there").len();
    let before = length();
    let mut transaction = mounted.store.begin(Durability::Durable).expect("begun");
    let block = NewBlock::new(BlockId(1 << 40), Ino(16), Rope::from(vec![1; 100_000]), 0);
    transaction.put_blocks(vec![block]).expect("written");
    drop(transaction);
    assert!(length() > before);
    mounted.close();
    assert!(length() <= before);
    assert_eq!(files.mount().get("file"), Ok(vec![1; 3 * BLOCK]));
}
