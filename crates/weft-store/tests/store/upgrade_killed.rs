//! Upgrades that were killed: each copy of the files that a process leaves behind at some moment.

use crate::check::{database, look, sample_volume};
use crate::compare::state;
use crate::contract::HOMES;
use crate::crash::{copy, copy_rewriting, wal};
use crate::upgrade::{has_what_the_old_program_wrote, run};
use rusqlite::Connection;
use std::fs;
use std::path::{Path, PathBuf};
use weft_store::sqlite::{create, downgrade, open, upgrade};
use weft_store::*;

/// Returns the path at which the new database grows.
fn unfinished(volume: &Path) -> PathBuf {
    PathBuf::from(format!("{}-upgrade", database(volume).display()))
}

/// The format that a program sees which looks at the database file before SQLite does.
fn format_alone(volume: &Path) -> u32 {
    let start = fs::read(database(volume)).expect("read");
    u32::from_be_bytes(start[60..64].try_into().expect("four bytes"))
}

fn length(path: &Path) -> u64 {
    path.metadata().map_or(0, |metadata| metadata.len())
}

/// A volume of one file made of SQL, in a directory of its own.
fn load(directory: &tempfile::TempDir, sql: &str) -> PathBuf {
    let path = directory.path().join("volume");
    let connection = Connection::open(&path).expect("opened");
    connection.execute_batch("PRAGMA journal_mode = WAL").expect("set");
    connection.execute_batch(sql).expect("loaded");
    connection.close().expect("closed");
    path
}

#[test]
fn an_upgrade_that_is_killed_anywhere_leaves_the_old_volume_or_the_new_one() {
    for home in HOMES {
        let directory = tempfile::tempdir().expect("a directory");
        let path = sample_volume(&directory, home);
        let before = state(&*open(&path).expect("opened").store).expect("readable");
        downgrade(&path).expect("an old one");
        let mut killed = Vec::new();
        let mut kill = |_: Progress| {
            let to = directory.path().join(format!("killed{}", killed.len()));
            copy_rewriting(&path, &to, unfinished);
            killed.push(to);
        };
        upgrade(&path, Upgrade::Now, &mut kill).expect("upgraded");
        killed.push(path.clone());
        let mut formats = Vec::new();
        for path in killed {
            let format = format_alone(&path);
            formats.push(format);
            assert_eq!(length(&wal(&path)), 0, "what the header says is all that there is");
            if format != FORMAT {
                assert!(open(&path).err().expect("refused").to_string().contains("weft upgrade"));
                run(&path, Upgrade::Now).expect("begun again");
            }
            assert!(!unfinished(&path).exists());
            assert_eq!(state(&*open(&path).expect("opens").store).expect("readable"), before);
        }
        formats.dedup();
        assert_eq!(formats, [3, FORMAT]);
    }
}

#[test]
fn an_upgrade_removes_no_volume_that_has_the_name_of_its_new_database_or_of_an_old_log() {
    let directory = tempfile::tempdir().expect("a directory");
    let path = load(&directory, include_str!("../data/format-3.sql"));
    let log = PathBuf::from(format!("{}-intent", path.display()));
    let options = VolumeOptions { home: BlockHome::Database, ..VolumeOptions::default() };
    create(&unfinished(&path), &options, (0, 0), Timestamp(0)).expect("made");
    fs::copy(unfinished(&path), &log).expect("copied");
    let (before, old) = (fs::read(&log).expect("read"), fs::read(&path).expect("read"));
    let refused = run(&path, Upgrade::Now).expect_err("there is another volume").to_string();
    assert!(refused.contains("-upgrade exists") && refused.contains("move the file away"), "{refused}");
    assert!(fs::read(unfinished(&path)).expect("there") == before && fs::read(&path).expect("there") == old);
    let wal = PathBuf::from(format!("{}-wal", unfinished(&path).display()));
    fs::rename(unfinished(&path), &wal).expect("renamed");
    let refused = run(&path, Upgrade::Now).expect_err("there is a log of another volume").to_string();
    assert!(refused.contains("-upgrade-wal exists"), "{refused}");
    fs::remove_file(&wal).expect("removed");
    Connection::open(unfinished(&path)).and_then(|other| other.execute_batch("CREATE TABLE t (a)")).expect("made");
    run(&path, Upgrade::Now).expect_err("there is another program's database");
    fs::remove_file(unfinished(&path)).expect("removed");
    run(&path, Upgrade::Now).expect("upgraded");
    assert!(fs::read(&log).expect("there") == before);
}

#[test]
fn an_upgrade_keeps_the_owner_and_permissions_of_a_database() {
    use std::os::unix::fs::{MetadataExt, PermissionsExt};
    let directory = tempfile::tempdir().expect("a directory");
    let path = load(&directory, include_str!("../data/format-3.sql"));
    fs::set_permissions(&path, fs::Permissions::from_mode(0o640)).expect("set");
    let before = path.metadata().expect("there");
    run(&path, Upgrade::Now).expect("upgraded");
    let after = path.metadata().expect("there");
    assert_eq!((after.mode(), after.uid(), after.gid()), (before.mode(), before.uid(), before.gid()));
    assert_ne!(after.ino(), before.ino(), "it is a new file");
}

/// Makes the remains of an upgrade by a program of format 5: `steps` of the log and of the
/// database, in which all tables are replaced by those of format 5.
fn killed_before(steps: impl FnOnce(&Connection, &Path)) -> (tempfile::TempDir, PathBuf) {
    let directory = tempfile::tempdir().expect("a directory");
    let path = load(&directory, include_str!("../data/format-3.sql"));
    let killed = directory.path().join("killed");
    let connection = Connection::open(&path).expect("opened");
    // Pages are written before the commit.
    connection.execute_batch("PRAGMA wal_autocheckpoint = 0; PRAGMA cache_size = 1; BEGIN").expect("begun");
    let objects = "SELECT type || ' ' || name FROM sqlite_schema WHERE type IN ('table', 'view')";
    let mut statement = connection.prepare(objects).expect("prepared");
    let objects =
        statement.query_map((), |row| row.get(0)).and_then(Iterator::collect::<rusqlite::Result<Vec<String>>>);
    drop(statement);
    let drop = |object| connection.execute_batch(&format!("DROP {object}")).expect("dropped");
    objects.expect("listed").into_iter().for_each(drop);
    let new = include_str!("../data/format-5.sql").replace("BEGIN TRANSACTION;", "").replace("COMMIT;", "");
    connection.execute_batch(&new).expect("loaded");
    steps(&connection, &path);
    copy(&path, &killed);
    connection.close().expect("closed");
    (directory, killed)
}

fn is_upgraded(path: &Path) {
    // Any program sees that it has this format already.
    if format_alone(path) != FORMAT {
        assert_eq!(run(path, Upgrade::Now).expect("upgraded").to, FORMAT);
        assert_eq!((format_alone(path), length(&wal(path))), (FORMAT, 0));
    }
    has_what_the_old_program_wrote(&*open(path).expect("opens").store);
    let found = look(path, Repair::No);
    assert!(found.iter().all(|finding| finding.outcome == Outcome::Note), "{found:?}");
}

#[test]
fn an_upgrade_that_an_older_program_committed_into_the_log_is_ended() {
    let (_directory, path) = killed_before(|connection, _| connection.execute_batch("COMMIT").expect("committed"));
    assert_eq!(format_alone(&path), 3);
    let files = || [fs::read(&path).expect("read"), fs::read(wal(&path)).expect("read")];
    let before = files();
    assert!(open(&path).err().expect("refused").to_string().contains("weft upgrade"));
    assert_eq!(run(&path, Upgrade::DryRun).expect("told").to, FORMAT);
    assert!(files() == before, "nothing was to be changed");
    is_upgraded(&path);
}

#[test]
fn an_upgrade_that_an_older_program_copied_in_part_is_ended() {
    let (_directory, path) = killed_before(|connection, path| {
        connection.execute_batch("COMMIT").expect("committed");
        let mut log = fs::read(wal(path)).expect("read");
        connection.query_row("PRAGMA wal_checkpoint(PASSIVE)", (), |_| Ok(())).expect("copied");
        assert_eq!(fs::read(wal(path)).expect("read"), log);
        // A tail that was not whole when the process ended is no damage.
        log.extend([0; 5000]);
        fs::write(wal(path), log).expect("written");
    });
    is_upgraded(&path);
}

#[test]
fn an_upgrade_that_an_older_program_had_not_committed_is_begun_again() {
    let (_directory, path) = killed_before(|_, path| assert!(length(&wal(path)) > 10_000, "some of it is there"));
    assert_eq!(format_alone(&path), 3);
    is_upgraded(&path);
}

#[test]
fn commits_of_the_old_format_in_the_log_are_left_to_the_program_that_made_them() {
    let directory = tempfile::tempdir().expect("a directory");
    let path = load(&directory, include_str!("../data/format-3.sql"));
    let killed = directory.path().join("killed");
    let connection = Connection::open(&path).expect("opened");
    connection.execute_batch("PRAGMA wal_autocheckpoint = 0; UPDATE volume SET op = op + 1").expect("committed");
    copy(&path, &killed);
    let files = || [fs::read(&killed).expect("read"), fs::read(wal(&killed)).expect("read")];
    let before = files();
    for mode in [Upgrade::DryRun, Upgrade::Now] {
        assert!(run(&killed, mode).expect_err("refused").to_string().contains("not unmounted cleanly"));
        assert!(files() == before);
    }
}

#[test]
fn a_table_that_no_weft_made_is_not_lost() {
    let directory = tempfile::tempdir().expect("a directory");
    let path = load(&directory, include_str!("../data/format-3.sql"));
    let edit = |statement| Connection::open(&path).expect("opened").execute_batch(statement).expect("edited");
    edit("CREATE TABLE mine (words TEXT)");
    assert!(run(&path, Upgrade::Now).expect_err("refused").to_string().contains("mine"));
    assert!(!unfinished(&path).exists());
    edit("DROP TABLE mine");
    is_upgraded(&path);
}
