//! Schemas that are not as Weft makes them.

use crate::check::{database, look, sample_volume};
use crate::compare::{State, state};
use crate::contract::{HOMES, options};
use crate::sample;
use std::path::Path;
use weft_store::sqlite::{self, open};
use weft_store::*;
use weft_store::{OpenOptions, postgres};
use weft_testkit::Cluster;

/// A change of a schema.
struct Case {
    statements: &'static str,
    /// Words of the finding.
    told: &'static str,
    /// True if the volume is not opened to be written.
    is_refused: bool,
    /// Outcome of a repair.
    outcome: Outcome,
}

const fn case(statements: &'static str, told: &'static str) -> Case {
    Case { statements, told, is_refused: true, outcome: Outcome::Repaired }
}

fn told(findings: &[Finding], told: &str) -> Option<Outcome> {
    findings.iter().find(|finding| finding.what.contains(told)).map(|finding| finding.outcome)
}

fn is_clean(findings: &[Finding]) -> bool {
    findings.iter().all(|finding| finding.outcome == Outcome::Note)
}

/// Asserts that `case` is refused and reported, that looking changes nothing, and the outcome of a
/// repair.
fn judge(case: &Case, look: &dyn Fn(Repair) -> Vec<Finding>, open: &dyn Fn() -> Result<State>, before: &State) {
    let Case { statements, told: words, is_refused, outcome } = case;
    let opened = open();
    match opened {
        Ok(found) => assert!(!is_refused && found == *before, "{statements}"),
        Err(error) => assert!(*is_refused && error.to_string().contains(words), "{statements}: {error}"),
    }
    let expected = if *outcome == Outcome::Note { Outcome::Note } else { Outcome::Damaged };
    let found = look(Repair::No);
    assert_eq!(told(&found, words), Some(expected), "{statements}: {found:?}");
    let found = look(Repair::Yes);
    assert_eq!(told(&found, words), Some(*outcome), "{statements}: {found:?}");
    if *outcome == Outcome::Repaired {
        assert_eq!(told(&look(Repair::No), words), None, "{statements}");
        assert!(before.is_but_for_the_commit(&open().expect("opens")), "{statements}");
    }
}

const IN_FILES: &[Case] = &[
    case("DROP INDEX naming_inode", "the index naming_inode is missing"),
    case(
        "DROP INDEX naming_order; CREATE INDEX naming_order ON naming (parent)",
        "the index naming_order is not the one that Weft makes",
    ),
    case(
        "CREATE TRIGGER evil AFTER UPDATE ON fileatt BEGIN UPDATE volume SET op = 0; END",
        "the trigger evil on fileatt is none of Weft's",
    ),
    case("CREATE UNIQUE INDEX \"a b\" ON fileatt (uid, ino)", "the index a b on fileatt is none of Weft's"),
    case("DROP TABLE xattr_history", "the table xattr_history is missing"),
    Case { is_refused: false, ..case("DROP VIEW files", "the view files is missing") },
    Case {
        is_refused: false,
        outcome: Outcome::Note,
        ..case("CREATE TABLE mine (words TEXT)", "the table mine is none of Weft's")
    },
    Case {
        outcome: Outcome::Damaged,
        ..case("ALTER TABLE fileatt ADD COLUMN extra TEXT", "the table fileatt has (extra TEXT)")
    },
    Case {
        outcome: Outcome::Damaged,
        ..case("ALTER TABLE volume DROP COLUMN home", "the table volume lacks (home TEXT NOT NULL)")
    },
    Case { outcome: Outcome::Damaged, ..case("DROP TABLE xattr", "the table xattr is missing") },
];

#[test]
fn a_schema_that_is_not_as_weft_makes_it_is_refused_and_mended() {
    for (home, case) in HOMES.into_iter().cycle().zip(IN_FILES) {
        let directory = tempfile::tempdir().expect("a directory");
        let path = sample_volume(&directory, home);
        let read = || state(&*open(&path)?.store);
        let before = read().expect("readable");
        edit(&path, case.statements);
        let scrubbed = sqlite::scrub(&path, &mut |_| {}).expect("scrubbed");
        let is_damage = case.outcome != Outcome::Note;
        assert_eq!(told(&scrubbed, case.told), is_damage.then_some(Outcome::Damaged), "{}", case.statements);
        judge(case, &|repair| look(&path, repair), &read, &before);
    }
}

fn edit(path: &Path, statements: &str) {
    let connection = rusqlite::Connection::open(database(path)).expect("opened");
    connection.execute_batch(statements).expect("edited");
}

#[test]
fn a_schema_is_mended_beside_rows_that_stay_damaged() {
    let directory = tempfile::tempdir().expect("a directory");
    let path = sample_volume(&directory, BlockHome::Database);
    edit(&path, "DROP INDEX naming_inode; UPDATE fileatt SET uid = 7 WHERE ino = 1");
    let found = look(&path, Repair::Yes);
    assert_eq!(told(&found, "naming_inode"), Some(Outcome::Repaired), "{found:?}");
    assert_eq!(told(&found, "its row is damaged"), Some(Outcome::Damaged), "{found:?}");
    assert_eq!(told(&look(&path, Repair::No), "naming_inode"), None);
    open(&path).expect("opens");
}

const IN_POSTGRES: &[Case] = &[
    case("DROP INDEX naming_inode", "the index naming_inode is missing"),
    case(
        "DROP INDEX naming_inode; CREATE UNIQUE INDEX naming_inode ON naming (ino, cookie)",
        "naming_inode is not the",
    ),
    case("CREATE INDEX mine ON fileatt (uid)", "the index mine on fileatt is none of Weft's"),
    case(
        "CREATE FUNCTION public.evil() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RETURN NULL; END'; \
         CREATE TRIGGER evil BEFORE INSERT ON xattr FOR EACH ROW EXECUTE FUNCTION public.evil()",
        "the trigger evil on xattr is none of Weft's",
    ),
    case("CREATE RULE lost AS ON DELETE TO xattr DO INSTEAD NOTHING", "the rule lost on xattr is none of Weft's"),
    case("ALTER TABLE fileatt FORCE ROW LEVEL SECURITY", "row security hides rows of the table fileatt"),
    case("ALTER TABLE naming ADD CONSTRAINT odd CHECK (ino > 0)", "the constraint odd on naming is none of Weft's"),
    case("ALTER TABLE naming ADD CONSTRAINT twice UNIQUE (parent, cookie)", "the constraint twice on naming"),
    case("ALTER TABLE xattr DROP CONSTRAINT xattr_pkey", "the table xattr has not the primary key (ino, name)"),
    Case {
        is_refused: false,
        outcome: Outcome::Note,
        ..case("CREATE TABLE mine (words text)", "mine is none of Weft's")
    },
    Case {
        outcome: Outcome::Damaged,
        ..case("ALTER TABLE fileatt ADD COLUMN extra text", "the table fileatt has (extra text)")
    },
];

#[test]
fn so_is_one_in_postgresql() {
    let cluster = Cluster::shared();
    let address = cluster.address();
    postgres::create(&address, &options(BlockHome::Database), (0, 0), Timestamp(0)).expect("made");
    let read = || state(&*postgres::open(&address, OpenOptions::default())?);
    sample::fill(&*postgres::open(&address, OpenOptions::default()).expect("opens"));
    let before = read().expect("readable");
    let look =
        |repair| postgres::check(&address, CheckOptions { repair, read_data: true }, &mut |_| {}).expect("checked");
    assert!(is_clean(&look(Repair::No)));
    let schema = address.schema().to_owned();
    for case in IN_POSTGRES {
        cluster.run(&format!("SET search_path TO {schema}; {}", case.statements));
        judge(case, &look, &read, &before);
    }
}

/// A view may have rows without end.
#[test]
fn a_view_in_the_place_of_a_table_is_told_before_anything_is_read_of_it() {
    for (home, table) in HOMES.into_iter().cycle().zip(["commits", "volume", "fileatt", "naming", "segments"]) {
        let directory = tempfile::tempdir().expect("a directory");
        let path = sample_volume(&directory, home);
        let connection = rusqlite::Connection::open(database(&path)).expect("opened");
        let columns = format!("SELECT group_concat('n AS ' || name) FROM pragma_table_info('{table}')");
        let columns: String = connection.query_row(&columns, (), |row| row.get(0)).expect("a table");
        let view = format!(
            "PRAGMA legacy_alter_table = ON; ALTER TABLE {table} RENAME TO hidden; CREATE VIEW {} AS WITH RECURSIVE r (n) AS \
             (SELECT 1 UNION ALL SELECT n + 1 FROM r) SELECT {columns} FROM r",
            table.to_uppercase()
        );
        connection.execute_batch(&view).expect("edited");
        drop(connection);
        let words = format!("{} is a view", table.to_uppercase());
        let told = |what: &str| what.contains(&words) && what.contains("--salvage");
        for findings in [look(&path, Repair::No), look(&path, Repair::Yes)] {
            assert!(findings.len() == 1 && told(&findings[0].what), "{findings:?}");
            assert_eq!(findings[0].outcome, Outcome::Damaged);
        }
        let errors = [
            open(&path).map(drop),
            sqlite::open_to_read(&path, log::Loss::Accept).map(drop),
            sqlite::header(&path).map(drop),
            sqlite::commits(&path).map(drop),
            sqlite::waiting(&path).map(drop),
            sqlite::scrub(&path, &mut |_| {}).map(drop),
        ];
        for error in errors {
            let error = error.expect_err("refused");
            assert!(told(&error.to_string()), "{error}");
        }
        let new = directory.path().join("new");
        sqlite::salvage(&path, &new, &mut |_| {}).expect("brought");
        open(&new).expect("opens");
    }
}
