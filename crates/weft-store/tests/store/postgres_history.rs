//! The past of a volume in PostgreSQL: what `past` does not ask of every store.

use crate::compare::{State, state};
use crate::contract::options;
use crate::generate::{Change, batch};
use crate::postgres_rights::Roles;
use std::sync::Arc;
use weft_store::postgres::{self, Address, PostgresStore};
use weft_store::*;
use weft_testkit::{Break, Cluster, Proxy};

const FILE: Ino = Ino(2);

fn create(address: &Address, options: &VolumeOptions) {
    postgres::create(address, options, (0, 0), Timestamp(0)).expect("made");
}

fn open(address: &Address) -> Arc<PostgresStore> {
    postgres::open(address, OpenOptions::default()).expect("opened")
}

fn commit(store: &dyn Store, changes: &[Change], history: Vec<HistoryChange>) -> CommitNo {
    let batch = Batch { history, ..batch(store, changes) };
    store.apply(&batch, Durability::Durable).expect("applied");
    batch.commit
}

fn keep() -> HistoryChange {
    HistoryChange::Keep("all forever".into(), HistoryFor::All)
}

/// A row of each kind; others of another `size`.
fn rows(size: u16) -> Vec<Change> {
    let number = u8::try_from(size).expect("small");
    vec![
        Change::Inode { ino: 2, size, inline: Some(vec![number; 9]), nlink: 1 },
        Change::Inode { ino: 3, size, inline: None, nlink: 1 },
        Change::Name { parent: 1, name: 0, ino: 2 },
        Change::Block { ino: 3, index: 0, length: 5000 },
        Change::Xattr { ino: 2, name: 0, value: Some(vec![number]) },
    ]
}

fn gone() -> Vec<Change> {
    vec![Change::RemoveInode { ino: 2 }, Change::RemoveInode { ino: 3 }, Change::RemoveName { parent: 1, name: 0 }]
}

fn past(store: &Arc<PostgresStore>, commit: CommitNo) -> Result<State> {
    let store: Arc<dyn Store> = store.clone();
    state(&At::new(store, commit)?)
}

/// True if `store` shows as of `commit` what it showed `then`.
fn shows(store: &Arc<PostgresStore>, commit: CommitNo, then: &State) -> bool {
    past(store, commit).expect("readable").as_past() == then.as_past()
}

fn found(address: &Address) -> Vec<String> {
    let options = CheckOptions { repair: Repair::No, read_data: true };
    let found = postgres::check(address, options, &mut |_| {}).expect("checked");
    found.into_iter().map(|finding| finding.what).collect()
}

fn beside(address: &Address) -> Arc<PostgresStore> {
    postgres::open_beside(address, &OpenOptions::default()).expect("opened")
}

#[test]
fn the_past_is_read_beside_the_holder_who_goes_on() {
    let address = Cluster::shared().address();
    create(&address, &options(BlockHome::Database));
    let store = open(&address);
    let first = commit(&*store, &rows(1), vec![keep()]);
    let before = past(&store, first).expect("readable");
    let reader = beside(&address);
    assert!(shows(&reader, first, &before));
    let second = commit(&*store, &rows(2), Vec::new());
    let between = past(&store, second).expect("readable");
    assert!(shows(&reader, first, &before), "its versions were made after it was opened");
    let last = commit(&*store, &gone(), Vec::new());
    assert!(shows(&reader, first, &before) && shows(&beside(&address), second, &between));
    let batch = Batch { commit: last.next(), ..batch(&*reader, &[]) };
    assert!(reader.apply(&batch, Durability::Durable).is_err(), "it has no lease");
    // A moment that is dropped meanwhile is no hole.
    let view = At::new(reader.clone(), first).expect("kept");
    commit(&*store, &[], vec![HistoryChange::First(last), HistoryChange::Forget(usize::MAX)]);
    let error = state(&view).expect_err("dropped");
    assert!(error.to_string().contains("is not kept any more"), "{error}");
    // The lease is the holder's all the time, and the reader outlives it.
    commit(&*store, &rows(3), Vec::new());
    drop(store);
    assert!(reader.pins().expect("readable").is_empty());
    drop(open(&address));
    assert!(reader.is_kept(last).is_ok());
}

#[test]
fn a_role_that_may_only_read_reads_the_past() {
    let roles = Roles::new();
    roles.create(&options(BlockHome::Database));
    let store = roles.open("owner").expect("opened");
    let first = commit(&*store, &rows(1), vec![keep()]);
    let before = past(&store, first).expect("readable");
    commit(&*store, &gone(), Vec::new());
    let role = roles.role("reader");
    let schema = &roles.schema;
    let open = || postgres::open_beside(&roles.address("reader"), &OpenOptions::default());
    roles.cluster.run(&format!("GRANT USAGE ON SCHEMA {schema} TO {role}; GRANT SELECT ON {schema}.volume TO {role}"));
    assert!(open().is_err_and(|error| error.to_string().contains("may not SELECT rows")));
    roles.cluster.run(&format!("GRANT SELECT ON ALL TABLES IN SCHEMA {schema} TO {role}"));
    assert!(shows(&open().expect("opened"), first, &before));
}

/// Changes of rows of the past, and the words of the finding that tells of each.
const DAMAGES: [(&str, &str); 7] = [
    ("fileatt_history SET uid = 7 WHERE ino = 2", "a version of its row, of commits 2 to 2, is damaged"),
    ("content_history SET digest = 'other' WHERE ino = 2", "a version of its digest, of commits 2 to 2, is damaged"),
    ("naming_history SET cookie = cookie + 1", "a version of the entry, of commits 2 to 2, is damaged"),
    ("extents_history SET owner = 5", "a version of its block at byte 0, of commits 2 to 2, is damaged"),
    ("xattr_history SET value = 'other'", "a version of an attribute, of commits 2 to 2, is damaged"),
    ("pins SET made = 3", "the row of a pin, of commit 2, is damaged"),
    ("retention SET swept = 1", "the row that says what is kept of the past is damaged"),
];

/// No version can be put right, so that only `--discard` removes what is damaged.
#[test]
fn a_check_tells_of_damage_in_the_past_and_removes_what_is_to_be_discarded() {
    for (damage, told) in DAMAGES {
        let address = Cluster::shared().address();
        create(&address, &options(BlockHome::Database));
        let store = open(&address);
        let first = commit(&*store, &rows(1), vec![keep()]);
        let pin = Pin { commit: first, kind: PinKind::Point, name: Vec::new(), made: Timestamp(7), held_until: None };
        commit(&*store, &rows(2), vec![HistoryChange::Pin(pin)]);
        drop(store);
        let repair = |repair| {
            postgres::check(&address, CheckOptions { repair, read_data: true }, &mut |_| {}).expect("checked");
        };
        // These batches keep no rule of a file system.
        repair(Repair::Yes);
        let before = state(&*open(&address)).expect("readable");
        let of_history = |found: Vec<String>| {
            found
                .into_iter()
                .filter(|what| what.contains("version") || what.contains("pin") || what.contains("the past"))
        };
        assert_eq!(of_history(found(&address)).collect::<Vec<_>>(), [""; 0]);
        Cluster::shared().run(&format!("UPDATE {}.{damage}", address.schema()));
        for mode in [Repair::Yes, Repair::Discard] {
            let found = of_history(found(&address)).collect::<Vec<_>>();
            assert!(found.len() == 1 && found[0].contains(told), "{damage}: {found:?}");
            repair(mode);
        }
        // The version of an inode whose content went is damaged then.
        repair(Repair::Discard);
        assert_eq!(of_history(found(&address)).collect::<Vec<_>>(), [""; 0], "{damage}");
        // A block that only a damaged version named comes to lost+found.
        let left = state(&*open(&address)).expect("readable");
        let kept = |row: &&InodeRow| [FILE, FILE.next()].contains(&row.ino);
        assert!(left.inodes().iter().filter(kept).eq(before.inodes().iter().filter(kept)), "{damage}");
    }
}

/// Each version has the sum of its row, with the commit added, so that it is verified alone.
#[test]
fn damaged_versions_are_told_and_those_beside_them_are_read() {
    let damages = [
        "fileatt_history SET uid = 7 WHERE ino = 2",
        "content_history SET inline = 'other' WHERE ino = 2",
        "naming_history SET cookie = cookie + 1",
        "extents_history SET block = block + 100, sum = 5",
        "xattr_history SET value = 'other'",
        "naming SET kind = 32768",
    ];
    for damage in damages {
        let address = Cluster::shared().address();
        create(&address, &options(BlockHome::Database));
        let store = open(&address);
        let first = commit(&*store, &rows(1), vec![keep()]);
        let before = past(&store, first).expect("readable");
        if damage.starts_with("naming SET") {
            // A row that is damaged before it is replaced stays so.
            Cluster::shared().run(&format!("UPDATE {}.{damage}", address.schema()));
        }
        let last = commit(&*store, &rows(2), Vec::new());
        assert_eq!(
            damage.starts_with("naming SET"),
            past(&store, first).is_err_and(|error| error.kind() == ErrorKind::Corrupt)
        );
        if !damage.starts_with("naming SET") {
            assert!(shows(&store, first, &before));
            Cluster::shared().run(&format!("UPDATE {}.{damage}", address.schema()));
            let error = past(&store, first).expect_err("damaged");
            assert_eq!(error.kind(), ErrorKind::Corrupt, "{damage}: {error}");
        }
        past(&store, last).expect("the present is whole");
        state(&*store).expect("the present is whole");
    }
}

#[test]
fn a_check_of_a_volume_with_history_finds_nothing_and_a_repair_changes_nothing() {
    for own_table_from in [None, Some(0)] {
        let address = Cluster::shared().address();
        create(&address, &VolumeOptions { own_table_from, digests: false, ..options(BlockHome::Database) });
        let store = open(&address);
        let first = commit(&*store, &rows(1), vec![keep()]);
        let pin = |commit| Pin {
            commit,
            kind: PinKind::Snapshot,
            name: b"one".to_vec(),
            made: Timestamp(7),
            held_until: None,
        };
        let second = commit(&*store, &rows(2), vec![HistoryChange::Pin(pin(first))]);
        let last = commit(&*store, &gone(), vec![HistoryChange::First(second)]);
        let told = found(&address);
        assert_eq!(store.pins().expect("readable"), [pin(first)]);
        let versions = "SELECT (SELECT count(*) FROM S.fileatt_history) + (SELECT count(*) FROM S.content_history) \
                        + (SELECT count(*) FROM S.naming_history) + (SELECT count(*) FROM S.extents_history) \
                        + (SELECT count(*) FROM S.xattr_history) + (SELECT count(*) FROM S.retention)";
        let versions = || Cluster::shared().run(&versions.replace("S.", &format!("{}.", address.schema())));
        let count = versions();
        // These batches keep no rule of a file system.
        let of_history = ["version", "kept of the past", "pin"];
        assert!(told.iter().all(|what| !of_history.iter().any(|word| what.contains(word))), "{told:?}");
        assert!(told.iter().all(|what| !what.contains("block")), "{told:?}");
        for commit in [first, second, last] {
            past(&store, commit).expect("readable");
        }
        drop(store);
        assert!(count.trim().parse::<u32>().expect("a number") > 10);
        let options = CheckOptions { repair: Repair::Yes, read_data: true };
        postgres::check(&address, options, &mut |_| {}).expect("repaired");
        assert_eq!(versions(), count);
    }
}

#[test]
fn a_commit_whose_acknowledgement_was_lost_keeps_what_it_replaced_once() {
    let cluster = Cluster::shared();
    let proxy = Proxy::new(cluster);
    let address = proxy.address(&cluster.url());
    create(&address, &options(BlockHome::Database));
    let store = open(&address);
    let mut moments = Vec::new();
    for (size, history) in [(1, vec![keep()]), (2, vec![]), (3, vec![]), (4, vec![HistoryChange::Forget(1)])] {
        proxy.set(Break::AfterCommit(0));
        let before = proxy.broken();
        let number = commit(&*store, &rows(size), history);
        assert_eq!(proxy.broken() - before, 1);
        proxy.set(Break::Never);
        moments.push((number, state(&*store).expect("readable")));
        for (number, then) in &moments {
            assert!(shows(&store, *number, then), "as of commit {}", number.0);
        }
    }
    let versions = store.versions(FILE, CommitNo(u64::MAX >> 1), 9).expect("readable");
    assert_eq!(versions.iter().map(|(row, _)| row.size).collect::<Vec<_>>(), [3, 2, 1]);
}

#[test]
fn a_commit_that_was_cut_off_begins_no_history() {
    let cluster = Cluster::shared();
    let proxy = Proxy::new(cluster);
    let address = proxy.address(&cluster.url());
    create(&address, &options(BlockHome::Database));
    let store = open(&address);
    proxy.set(Break::BeforePiece(0));
    let begun = Batch { history: vec![keep()], ..batch(&*store, &rows(1)) };
    assert_eq!(store.apply(&begun, Durability::Durable).expect_err("cut off").kind(), ErrorKind::Conflict);
    proxy.set(Break::Never);
    assert_eq!(store.history().expect("readable"), None);
    commit(&*store, &rows(1), Vec::new());
    commit(&*store, &rows(2), Vec::new());
    assert_eq!(cluster.run(&format!("SELECT count(*) FROM {}.fileatt_history", address.schema())).trim(), "0");
    assert_eq!(store.versions(FILE, CommitNo(9), 9).expect("readable"), []);
}

/// Versions are kept by statements that go out with the rows.
#[test]
fn keeping_history_costs_a_commit_no_round_trip() {
    let steps = [
        rows(1),
        rows(2),
        vec![Change::Inode { ino: 2, size: 5, inline: Some(vec![1]), nlink: 1 }],
        vec![Change::Name { parent: 1, name: 3, ino: 3 }, Change::Inode { ino: 1, size: 1, inline: None, nlink: 2 }],
        vec![Change::Clear { ino: 3, start: 0, end: None }],
        gone(),
    ];
    for digests in [true, false] {
        let counts = [Vec::new(), vec![keep()]].map(|history| {
            let address = Cluster::shared().address();
            create(&address, &VolumeOptions { digests, ..options(BlockHome::Database) });
            let store = open(&address);
            commit(&*store, &[], history);
            let mut counts = Vec::new();
            // Statements are prepared at their first use.
            for _ in 0..2 {
                counts.clear();
                for step in &steps {
                    let before = store.round_trips().commits;
                    commit(&*store, step, Vec::new());
                    counts.push(store.round_trips().commits - before);
                }
            }
            counts
        });
        let [without, with] = counts;
        let at_most = |(with, without): (&u64, &u64)| with <= without;
        assert!(with.iter().zip(&without).all(at_most), "digests {digests}: {with:?} with, {without:?} without");
    }
}

#[test]
fn many_inodes_that_are_gone_are_passed_over_in_few_round_trips() {
    let address = Cluster::shared().address();
    create(&address, &options(BlockHome::Database));
    let store = open(&address);
    let inos = 10..250_u8;
    let made = |ino| Change::Inode { ino, size: 1, inline: Some(vec![1]), nlink: 1 };
    let made = batch(&*store, &inos.clone().map(made).collect::<Vec<_>>());
    let counters = Counters { next_id: u64::from(inos.end), ..made.counters };
    let there = made.commit;
    store.apply(&Batch { counters, history: vec![keep()], ..made }, Durability::Durable).expect("applied");
    let removed = |ino| Change::RemoveInode { ino };
    let gone = commit(&*store, &inos.clone().map(removed).collect::<Vec<_>>(), Vec::new());
    let (range, before) = (Ino(inos.start.into())..Ino(inos.end.into()), store.round_trips().inodes);
    assert_eq!(store.inodes_at(gone, range.clone(), 1).expect("kept"), []);
    let took = store.round_trips().inodes - before;
    assert!(took < 20, "{took}");
    assert_eq!(store.inodes_at(there, range, 5000).expect("kept").len(), inos.len());
}

#[test]
fn a_role_that_may_not_keep_versions_serves_no_volume() {
    let roles = Roles::new();
    roles.create(&options(BlockHome::Database));
    let role = roles.role("daemon");
    roles.grant("USAGE", "daemon");
    roles.grant("SELECT, INSERT, UPDATE, DELETE", "daemon");
    let schema = &roles.schema;
    let tables = [
        "retention",
        "pins",
        "fileatt_history",
        "content_history",
        "naming_history",
        "extents_history",
        "xattr_history",
    ];
    for table in tables {
        roles.cluster.run(&format!("REVOKE INSERT ON {schema}.{table} FROM {role}"));
        let store = roles.open("daemon").expect("it may hold the volume");
        let error = store.apply(&batch(&*store, &rows(1)), Durability::Durable).expect_err("it may not commit");
        assert!(error.to_string().contains(&format!("INSERT rows of the table {table}")), "{error}");
        roles.cluster.run(&format!("GRANT INSERT ON {schema}.{table} TO {role}"));
    }
    let store = roles.open("daemon").expect("opened");
    let first = commit(&*store, &rows(1), vec![keep()]);
    commit(&*store, &rows(2), vec![HistoryChange::First(first.next())]);
    commit(&*store, &gone(), vec![HistoryChange::Forget(100)]);
    assert!(!store.is_kept(first).expect("readable"));
    commit(&*store, &[], vec![HistoryChange::End]);
}

/// The bytes of a file that was removed lie in its own table as long as versions name them.
#[test]
fn the_own_table_of_a_removed_file_lives_as_long_as_its_versions() {
    let address = Cluster::shared().address();
    create(&address, &VolumeOptions { own_table_from: Some(0), ..options(BlockHome::Database) });
    let store = open(&address);
    let first = commit(&*store, &rows(1), vec![keep()]);
    let then = past(&store, first).expect("readable");
    commit(&*store, &gone(), Vec::new());
    let schema = address.schema();
    let is_there = || !Cluster::shared().run(&format!("SELECT to_regclass('{schema}.blocks_of_3')")).is_empty();
    assert!(is_there());
    assert!(shows(&store, first, &then));
    let last = commit(&*store, &[], Vec::new());
    commit(&*store, &[], vec![HistoryChange::First(last)]);
    commit(&*store, &[], vec![HistoryChange::Forget(1000)]);
    let refused = store.inodes_at(first, FILE..FILE.next(), 1).expect_err("it is not kept");
    assert_eq!(refused.kind(), ErrorKind::Unusable, "{refused}");
    assert!(!is_there());
    assert_eq!(store.block_count().expect("counted"), 0);
    assert_eq!(found(&address), [""; 0]);
}

/// Commits are remembered as long as something can be read as of them, and the last 1024.
#[test]
fn commits_are_forgotten_with_what_they_wrote() {
    let address = Cluster::shared().address();
    create(&address, &options(BlockHome::Database));
    let store = open(&address);
    let first = commit(&*store, &rows(1), vec![keep()]);
    let (run, schema) = (|what: &str| Cluster::shared().run(what), address.schema());
    let pin = Pin { commit: first, kind: PinKind::Point, name: Vec::new(), made: Timestamp(7), held_until: None };
    let second = commit(&*store, &rows(2), vec![HistoryChange::Pin(pin)]);
    let third = commit(&*store, &rows(3), Vec::new());
    // As if there had been many since.
    drop(store);
    let far = 5000;
    run(&format!("UPDATE {schema}.volume SET number = {far} WHERE id = 1"));
    postgres::seal(&address).expect("sealed");
    let store = open(&address);
    commit(&*store, &rows(4), vec![HistoryChange::First(third)]);
    let numbers = || run(&format!("SELECT string_agg(number::text, ' ' ORDER BY number) FROM {schema}.commits"));
    let all = format!("1 {} {} {} {}", first.0, second.0, third.0, far + 1);
    assert_eq!(numbers(), all);
    commit(&*store, &[], vec![HistoryChange::Forget(1000)]);
    assert_eq!(numbers(), format!("{} {} {} {}", first.0, third.0, far + 1, far + 2));
}

/// A server that knows how many rows there are plans otherwise than one that does not.
#[test]
fn the_past_is_the_same_whatever_the_server_knows_of_its_tables() {
    let address = Cluster::shared().address();
    create(&address, &options(BlockHome::Database));
    let store = open(&address);
    commit(&*store, &[], vec![keep()]);
    let files = |first: u8, size: u16| {
        let file = move |ino| Change::Inode { ino, size, inline: Some(vec![1]), nlink: 1 };
        (first..first + 7).map(file).collect::<Vec<_>>()
    };
    let first = commit(&*store, &files(2, 1), Vec::new());
    let then = state(&*store).expect("readable");
    // Few versions are so old, and they lie in no order.
    for ino in [5, 3, 8, 2, 7, 4, 6] {
        commit(&*store, &[Change::Inode { ino, size: 2, inline: Some(vec![1]), nlink: 1 }], Vec::new());
    }
    for size in 1..250 {
        commit(&*store, &files(9, size), Vec::new());
    }
    assert!(shows(&store, first, &then), "before");
    let schema = &address.to_string();
    let schema = schema.split("schema=").nth(1).expect("a schema").split('&').next().expect("a name");
    Cluster::shared().run(&format!("ANALYZE {schema}.fileatt_history; ANALYZE {schema}.fileatt"));
    assert!(shows(&store, first, &then), "after");
    let at = At::new(store.clone(), first).expect("kept");
    let numbers = |limit| {
        let mut all = Vec::new();
        while let Some(last) = {
            let from = all.last().map_or(Ino(0), |ino: &Ino| ino.next());
            let rows = at.inodes(from, limit).expect("readable");
            all.extend(rows.iter().map(|row| row.ino));
            rows.last().map(|row| row.ino)
        } {
            assert!(last < Ino(9), "{last:?}");
        }
        all
    };
    for limit in [1, 2, 3, 7, 1000] {
        assert_eq!(numbers(limit), (1..9).map(Ino).collect::<Vec<_>>(), "{limit} at a time");
    }
}
