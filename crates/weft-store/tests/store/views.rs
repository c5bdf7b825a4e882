//! Views of the past: they tell by SQL what a volume tells of each commit that is kept.

use crate::check::{database, look};
use crate::contract::{HOMES, config, new_volume, options};
use crate::generate::{Change, batch};
use crate::postgres_rights::Roles;
use proptest::prelude::*;
use std::path::Path;
use weft_store::*;
use weft_store::{postgres, sqlite};
use weft_testkit::{Cluster, CrashStore, Driver, Means, Step, escaped, operations};

/// A line for each file of a commit, as [`Driver::kept_trees`] has them.
const TREE: &str = "SELECT path || ' ' || ino || ' ' || kind || ' ' || permissions || ' ' || uid || ' ' || gid || ' ' || \
    nlink || ' ' || size || ' ' || coalesce(digest, '') FROM files_at WHERE commit_number = ";

/// Views that Weft makes.
const VIEWS: [&str; 5] = ["files_at", "history", "name_versions", "commit_list", "snapshots"];

/// Takes `steps` in a volume that keeps history, and compares the tree that `told` gives of each
/// commit with the volume's.
fn agree(steps: &[Step], store: CrashStore, told: &dyn Fn(CommitNo) -> Vec<String>) -> Result<(), TestCaseError> {
    let mut driver = Driver::over(store, Means::NO_LOG);
    driver.keep_history();
    for step in steps.iter().chain(&[Step::Commit]) {
        driver.step(step).map_err(TestCaseError::fail)?;
    }
    for (commit, tree) in driver.kept_trees().map_err(TestCaseError::fail)? {
        // Some names have line breaks, by which a client of PostgreSQL ends rows.
        let in_order = |lines: Vec<String>| {
            let mut lines = lines.into_iter().map(|line| line.replace('\n', "?")).collect::<Vec<_>>();
            lines.sort();
            lines
        };
        prop_assert_eq!(in_order(told(commit)), in_order(tree), "as of commit {}", commit.0);
    }
    driver.close().map_err(TestCaseError::fail)
}

fn lines(path: &Path, statement: &str) -> Vec<String> {
    let flags = rusqlite::OpenFlags::SQLITE_OPEN_READ_ONLY;
    let connection = rusqlite::Connection::open_with_flags(database(path), flags).expect("opened");
    let mut statement = connection.prepare(statement).expect("understood");
    let rows = statement.query_map((), |row| Ok(escaped(row.get_ref(0)?.as_bytes()?))).expect("asked");
    rows.collect::<rusqlite::Result<_>>().expect("told")
}

fn agree_in_files(steps: &[Step], home: BlockHome) -> Result<(), TestCaseError> {
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().join("volume");
    sqlite::create(&path, &Driver::volume_options(home), (0, 0), Timestamp(0)).expect("made");
    let store = CrashStore::over(sqlite::open(&path).expect("opened").store);
    agree(steps, store, &|commit| lines(&path, &format!("{TREE}{}", commit.0)))
}

fn agree_in_postgres(steps: &[Step]) -> Result<(), TestCaseError> {
    let address = Cluster::shared().address();
    postgres::create(&address, &Driver::volume_options(BlockHome::Database), (0, 0), Timestamp(0)).expect("made");
    let store = CrashStore::over(postgres::open(&address, OpenOptions::default()).expect("opened"));
    agree(steps, store, &|commit| {
        let told = Cluster::shared().run(&format!(
            "SET search_path TO {}; SELECT replace(line, chr(10), '?') FROM ({TREE}{}) t (line)",
            address.schema(),
            commit.0
        ));
        told.lines().map(str::to_owned).collect()
    })?;
    postgres::remove(&address).expect("removed");
    Ok(())
}

proptest! {
    #![proptest_config(config(12))]

    #[test]
    fn a_view_has_the_tree_of_each_commit(steps in operations(80, false), in_segments in any::<bool>()) {
        agree_in_files(&steps, if in_segments { BlockHome::Segments } else { BlockHome::Database })?;
    }
}

proptest! {
    #![proptest_config(config(5))]

    #[test]
    fn a_view_has_the_tree_of_each_commit_in_postgres(steps in operations(80, false)) {
        agree_in_postgres(&steps)?;
    }
}

fn commit(store: &dyn Store, changes: &[Change], history: Vec<HistoryChange>) {
    let batch = Batch { history, ..batch(store, changes) };
    store.apply(&batch, Durability::Durable).expect("applied");
}

fn keep() -> Vec<HistoryChange> {
    vec![HistoryChange::Keep("all forever".into(), HistoryFor::All)]
}

/// Commit 2 makes a file, 3 makes it longer, 4 removes it; 3 has a snapshot.
fn live_and_die(store: &dyn Store) {
    let file = |size| Change::Inode { ino: 2, size, inline: None, nlink: 1 };
    commit(store, &[file(5), Change::Name { parent: 1, name: 0, ino: 2 }], keep());
    commit(store, &[file(7)], Vec::new());
    let pin = Pin {
        commit: CommitNo(3),
        kind: PinKind::Snapshot,
        name: b"longer".to_vec(),
        made: Timestamp(1_500_000_000),
        held_until: None,
    };
    let gone = [Change::RemoveInode { ino: 2 }, Change::RemoveName { parent: 1, name: 0 }];
    commit(store, &gone, vec![HistoryChange::Pin(pin)]);
}

/// Questions about that, which both engines understand, and the answers.
const ANSWERS: [(&str, &[&str]); 5] = [
    (
        "SELECT since || ' ' || coalesce(until, 0) || ' ' || size || ' ' || kind FROM history WHERE ino = 2 ORDER BY since",
        &["2 3 5 file", "3 4 7 file"],
    ),
    ("SELECT ino || ' ' || since || ' ' || until FROM name_versions WHERE parent = 1", &["2 2 4"]),
    (
        "SELECT commit_number || CASE WHEN is_kept THEN ' kept' ELSE '' END FROM commit_list ORDER BY commit_number",
        &["1", "2 kept", "3 kept", "4 kept"],
    ),
    ("SELECT name || ' ' || commit_number FROM snapshots", &["longer 3"]),
    ("SELECT commit_number || ' ' || size FROM files_at WHERE ino = 2 ORDER BY 1", &["2 5", "3 7"]),
];

#[test]
fn views_tell_of_versions_commits_and_snapshots() {
    for home in HOMES {
        let directory = tempfile::tempdir().expect("a directory");
        let path = new_volume(&directory, home);
        live_and_die(&*sqlite::open(&path).expect("opened").store);
        for (question, answer) in ANSWERS {
            assert_eq!(lines(&path, question), answer, "{question}");
        }
        assert_eq!(lines(&path, "SELECT made FROM snapshots"), ["1970-01-01T00:00:01.500Z"]);
    }
}

#[test]
fn views_tell_of_versions_commits_and_snapshots_in_postgres() {
    let address = Cluster::shared().address();
    postgres::create(&address, &options(BlockHome::Database), (0, 0), Timestamp(0)).expect("made");
    live_and_die(&*postgres::open(&address, OpenOptions::default()).expect("opened"));
    let ask = |question: &str| Cluster::shared().run(&format!("SET search_path TO {}; {question}", address.schema()));
    for (question, answer) in ANSWERS {
        assert_eq!(ask(question).lines().collect::<Vec<_>>(), answer, "{question}");
    }
    assert_eq!(ask("SELECT extract(epoch FROM made)::float FROM snapshots"), "1.5");
}

#[test]
fn a_volume_made_before_the_views_is_in_order_and_gets_them_with_its_history() {
    for home in HOMES {
        let directory = tempfile::tempdir().expect("a directory");
        let path = new_volume(&directory, home);
        let edit = |statements: &str| {
            rusqlite::Connection::open(database(&path)).and_then(|c| c.execute_batch(statements)).expect("edited");
        };
        VIEWS.iter().for_each(|view| edit(&format!("DROP VIEW {view}")));
        // A table of the user's has a name that was free.
        edit("CREATE TABLE snapshots (mine)");
        let damage = || look(&path, Repair::No).into_iter().filter(|found| found.outcome != Outcome::Note).count();
        assert_eq!(damage(), 0);
        commit(&*sqlite::open(&path).expect("opened").store, &[], keep());
        commit(&*sqlite::open(&path).expect("opened").store, &[], keep());
        let made =
            lines(&path, "SELECT name FROM sqlite_schema WHERE type = 'view' AND name <> 'files' ORDER BY rowid");
        assert_eq!(made, VIEWS.into_iter().filter(|view| *view != "snapshots").collect::<Vec<_>>());
        assert_eq!(damage(), 0);
        edit("DROP VIEW history; CREATE VIEW history AS SELECT 1");
        let found = look(&path, Repair::Yes);
        assert!(found.iter().any(|found| found.what.contains("view history is not the one")), "{found:?}");
        assert_eq!(damage(), 0);
    }
}

#[test]
fn a_role_that_may_make_no_views_sets_history_and_its_owner_gets_them() {
    let roles = Roles::new();
    roles.create(&options(BlockHome::Database));
    let schema = &roles.schema;
    let drop = || VIEWS.iter().for_each(|view| drop(roles.cluster.run(&format!("DROP VIEW {schema}.{view}"))));
    let made = || {
        let views = format!("SELECT count(*) FROM pg_views WHERE schemaname = '{schema}' AND viewname <> 'files'");
        roles.cluster.run(&views)
    };
    assert_eq!(made(), "5");
    drop();
    let daemon = roles.role("daemon");
    roles.grant("USAGE", "daemon");
    roles.grant("SELECT, INSERT, UPDATE, DELETE", "daemon");
    live_and_die(&*roles.open("daemon").expect("opened"));
    assert_eq!(made(), "0", "{daemon} owns nothing");
    for _ in 0..2 {
        commit(&*roles.open("owner").expect("opened"), &[], keep());
        assert_eq!(made(), "5");
    }
    // Views of the volume's owner are no others'.
    commit(&*roles.open("daemon").expect("opened"), &[], Vec::new());
    let checked =
        postgres::check(&roles.address("owner"), CheckOptions { repair: Repair::No, read_data: false }, &mut |_| {});
    let noted =
        checked.expect("checked").into_iter().filter(|found| found.what.contains("schema:")).collect::<Vec<_>>();
    assert!(noted.is_empty(), "{noted:?}");
}
