//! Findings of checks about an intent log in PostgreSQL: operations that wait in it, and rows that
//! are damaged or missing.

use crate::contract::options;
use crate::generate::batch;
use weft_store::OpenOptions;
use weft_store::postgres::{self, Address};
use weft_store::*;
use weft_testkit::Cluster;

/// A volume whose last commit ends with operation 1; operations 2 to 5 wait in its log. Nobody
/// holds it, as after a crash.
fn logged() -> (Address, String) {
    let address = Cluster::shared().address();
    postgres::create(&address, &options(BlockHome::Database), (0, 0), Timestamp(0)).expect("made");
    let store = postgres::open(&address, OpenOptions::default()).expect("opened");
    let mut first = batch(&*store, &[]);
    first.counters.epoch = 2;
    store.apply(&first, Durability::Durable).expect("applied");
    let mut log = store.intents();
    log.start(2);
    for op in 2..=5 {
        log.append(OpNo(op), OpNo(op), &b"a record".to_vec().into());
        log.syncer().sync().expect("written");
    }
    assert_eq!(
        postgres::waiting(&address).expect("told"),
        Waiting { is_held: true, ..Waiting::default() },
        "its daemon knows"
    );
    drop((log, store));
    let schema = address.schema().to_owned();
    (address, schema)
}

fn check(address: &Address, repair: Repair) -> Vec<(Outcome, String)> {
    let findings = postgres::check(address, CheckOptions { repair, read_data: false }, &mut |_| {});
    findings.expect("checked").into_iter().map(|finding| (finding.outcome, finding.what)).collect()
}

#[test]
fn operations_that_wait_are_told_and_are_no_damage() {
    let (address, _) = logged();
    let waiting = postgres::waiting(&address).expect("told");
    assert_eq!(waiting, Waiting { operations: 4, ..Waiting::default() });
    let note = "4 operations wait in the intent log; a mount applies them".to_owned();
    assert_eq!(check(&address, Repair::No), [(Outcome::Note, note)]);
    let location = Location::Postgres(Box::new(address));
    assert_eq!(location.engine().scrub(&mut |_| {}).expect("scrubbed"), []);
}

#[test]
fn damaged_and_missing_rows_of_the_log_are_found_as_a_mount_finds_them() {
    let edits = [
        ("UPDATE {}.intents SET bytes = set_byte(bytes, 1, 33) WHERE first = 3", 3, "is damaged", 1),
        ("DELETE FROM {}.intents WHERE first = 4", 4, "is missing", 2),
        ("DELETE FROM {}.intents WHERE first = 2", 2, "is missing", 0),
        ("UPDATE {}.intents SET epoch = 99 WHERE first = 5", 5, "has an epoch that has not begun", 3),
    ];
    for (edit, op, how, left) in edits {
        let (address, schema) = logged();
        Cluster::shared().run(&edit.replace("{}", &schema));
        let words = format!("the row of operation {op} in the table intents {how}");
        let location = Location::Postgres(Box::new(address.clone()));
        let waiting = location.engine().waiting().expect("told");
        assert_eq!(waiting.operations, left, "{edit}");
        assert!(waiting.lost.is_some_and(|lost| lost.starts_with(&words)), "{edit}");
        // No repair brings them back.
        for repair in [Repair::No, Repair::Yes] {
            let found = check(&address, repair);
            let damage = found.iter().filter(|(outcome, _)| *outcome == Outcome::Damaged).collect::<Vec<_>>();
            assert_eq!(damage.len(), 1, "{edit}: {found:?}");
            assert!(damage[0].1.starts_with(&words) && damage[0].1.contains("--accept-loss"), "{edit}: {found:?}");
        }
        let scrubbed = location.engine().scrub(&mut |_| {}).expect("scrubbed");
        assert!(scrubbed.len() == 1 && scrubbed[0].what.starts_with(&words), "{edit}: {scrubbed:?}");
    }
}
