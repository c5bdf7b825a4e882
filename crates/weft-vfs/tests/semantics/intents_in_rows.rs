//! A volume in PostgreSQL after a crash, with an intent log that is gone, of another moment, or of
//! another volume: it has all that was synced, or it is refused and stays as it was.

use crate::crashed::{Crashed, Named};
use std::sync::Arc;
use std::time::Duration;
use weft_store::log::Loss;
use weft_store::postgres::{self, Address, PostgresStore};
use weft_store::{BlockHome, CheckOptions, Finding, OpenOptions, Outcome, Repair, Timestamp, VolumeOptions};
use weft_testkit::Cluster;
use weft_vfs::{ErrorKind, Ino, ManualClock, Options, UnappliedList, Vfs};

/// A volume in a schema of its own.
struct Rows {
    cluster: &'static Cluster,
    address: Address,
    schema: String,
}

struct Mounted {
    vfs: Arc<Vfs>,
    store: Arc<PostgresStore>,
}

impl Rows {
    fn new() -> Rows {
        let cluster = Cluster::shared();
        let address = cluster.address();
        let options =
            VolumeOptions { block_size: 4096, inline_max: 100, home: BlockHome::Database, ..VolumeOptions::default() };
        postgres::create(&address, &options, (0, 0), Timestamp(0)).expect("created");
        let schema = address.schema().to_owned();
        Rows { cluster, address, schema }
    }

    /// Copies the rows as a crash would leave them now, to a schema of their own.
    fn crashed(&self) -> Rows {
        let copy = Rows::new();
        copy.take("tablename", self);
        copy.run("UPDATE lease SET expires = NULL");
        copy
    }

    /// Takes the rows of `tables`, a condition on their names, from `other`.
    fn take(&self, tables: &str, other: &Rows) {
        let (ours, theirs) = (&self.schema, &other.schema);
        self.run(&format!(
            "DO $$ DECLARE t text; BEGIN \
             FOR t IN SELECT tablename FROM pg_tables WHERE schemaname = '{theirs}' AND tablename = {tables} LOOP \
             EXECUTE format('DELETE FROM {ours}.%I', t); \
             EXECUTE format('INSERT INTO {ours}.%I SELECT * FROM {theirs}.%I', t, t); END LOOP; END $$"
        ));
    }

    fn run(&self, statements: &str) -> String {
        self.cluster.run(&format!("SET search_path TO {}; {statements}", self.schema))
    }

    /// The rows of the intent log that `condition` says.
    fn intents(&self, condition: &str) -> String {
        self.run(&format!("SELECT (abs(epoch), first, last, bytes)::text FROM intents WHERE {condition} ORDER BY 1"))
    }

    fn check(&self) -> Vec<Finding> {
        let options = CheckOptions { repair: Repair::No, read_data: true };
        let mut found = postgres::check(&self.address, options, &mut |_| {}).expect("checked");
        found.retain(|finding| finding.outcome != Outcome::Note);
        found
    }

    fn rehearsed(&self) -> UnappliedList {
        let store = postgres::open(&self.address, OpenOptions::default()).expect("opens");
        let log = store.intents().into();
        Vfs::rehearse(store, Some(log)).expect("tried")
    }
}

impl Crashed for Rows {
    type Mounted = Mounted;
    type Content = String;

    fn try_mount(&self, loss: Loss) -> Result<Mounted, String> {
        // Nobody renews its lease meanwhile.
        let lease = Duration::from_secs(3600);
        let options = OpenOptions { lease, loss, ..OpenOptions::default() };
        let store = postgres::open(&self.address, options).map_err(|error| error.to_string())?;
        let log = Some(store.intents().into());
        let options = Options { background: false, ..Options::default() };
        let clock = Arc::new(ManualClock::default());
        let vfs = Vfs::open(store.clone(), log, options, clock).map_err(|error| error.to_string())?;
        Ok(Mounted { vfs, store })
    }

    /// All rows, but for who holds the volume.
    fn content(&self) -> String {
        let tables = format!("SELECT tablename FROM pg_tables WHERE schemaname = '{}' ORDER BY 1", self.schema);
        let tables = self.run(&tables);
        let rows = |table| self.run(&format!("SELECT t::text FROM {table} t ORDER BY 1"));
        tables.lines().filter(|table| *table != "lease").map(rows).collect::<Vec<_>>().join("\n")
    }
}

impl Named for Mounted {
    fn vfs(&self) -> &Vfs {
        &self.vfs
    }
}

impl Mounted {
    fn close(self) {
        self.vfs.close().expect("closed");
        drop(self.store);
    }
}

/// A volume that crashed, and one that had begun as the same and took another turn, in which
/// `theirs` was committed and not `ours`, and then `logged` was synced.
fn two_turns(ours: &str, theirs: &str, logged: impl Fn(&Mounted)) -> (Rows, Rows) {
    let base = Rows::new();
    base.mount().close();
    let turn = |committed: &str, synced: &dyn Fn(&Mounted)| {
        let rows = base.crashed();
        let mounted = rows.mount();
        mounted.put("kept", b"old");
        mounted.put(committed, b"");
        mounted.vfs.commit().expect("committed");
        synced(&mounted);
        rows.crashed()
    };
    (turn(ours, &|_| ()), turn(theirs, &logged))
}

/// The same in PostgreSQL as in files: an operation that was synced and that the volume does not
/// take any more is told by its number, kind and path; accepted, it alone is given up, and the rows
/// of the log are kept beside the new ones.
#[test]
fn an_operation_in_rows_that_cannot_be_applied_is_named_and_given_up_alone() {
    let (rows, other) = two_turns("other", "gone", |mounted| {
        mounted.vfs.unlink(Ino::ROOT, b"gone").expect("removed");
        mounted.put("kept", b"new");
        mounted.put_and_sync("later", b"small");
    });
    rows.take("'intents'", &other);
    rows.assert_refused("the removal of /gone, was synced and cannot be applied: No such file or directory");
    let before = rows.content();
    let found = rows.rehearsed();
    assert!(rows.content() == before, "a rehearsal changes nothing");
    let [unapplied] = &found.named[..] else { panic!("{found:?}") };
    assert_eq!((&unapplied.path[..], unapplied.kind), (&b"/gone"[..], "the removal"));
    let log = rows.intents("first > 0");
    let mounted = rows.try_mount(Loss::Accept).expect("accepted");
    assert_eq!(mounted.get("kept").as_deref(), Ok(&b"new"[..]));
    assert_eq!(mounted.get("later").as_deref(), Ok(&b"small"[..]));
    assert_eq!(rows.intents("epoch < 0"), log, "they are kept aside");
    mounted.put_and_sync("after", b"works");
    let again = rows.crashed();
    mounted.close();
    for rows in [again, rows] {
        let mounted = rows.mount();
        assert_eq!(mounted.get("after").as_deref(), Ok(&b"works"[..]));
        assert_eq!(mounted.get("later").as_deref(), Ok(&b"small"[..]));
        mounted.close();
        assert_eq!(rows.intents("epoch < 0"), log, "only a person removes them");
        assert_eq!(rows.check(), []);
    }
}

/// The same in PostgreSQL as in files: the commit that cannot store what was synced over a damaged
/// block keeps it in the log, and so do those after it, until it can be stored.
#[test]
fn what_was_synced_over_a_damaged_block_in_rows_is_kept_until_it_can_be_stored() {
    const FLIP: &str = "UPDATE blocks SET bytes = set_byte(bytes, 2000, get_byte(bytes, 2000) # 1)";
    let rows = Rows::new();
    let mounted = rows.mount();
    mounted.put("file", &[1; 4096]);
    mounted.vfs.commit().expect("committed");
    rows.run(FLIP);
    mounted.put_and_sync("file", b"synced");
    let at_once = rows.crashed();
    mounted.vfs.commit().expect_err("a part cannot be stored");
    let by_the_commit = rows.crashed();
    mounted.put_and_sync("other", b"small");
    mounted.vfs.commit().expect_err("a part cannot be stored");
    let expected = [&b"synced"[..], &[1; 4090]].concat();
    for crashed in [at_once, by_the_commit, rows.crashed()] {
        // Mounts of the damaged volume keep it, too.
        for _ in 0..2 {
            let damaged = crashed.mount();
            assert_eq!(damaged.get("file"), Err(ErrorKind::Corrupt), "its rest is damaged");
            damaged.put_and_sync("second", b"small");
            drop(damaged);
            crashed.run("UPDATE lease SET expires = NULL");
        }
        assert!(postgres::waiting(&crashed.address).expect("told").is_carried);
        let altered = crashed.crashed();
        altered.run("UPDATE intents SET bytes = set_byte(bytes, 0, get_byte(bytes, 0) # 1) WHERE first < 0");
        altered.assert_refused("what was synced over damaged blocks is damaged");
        crashed.run(FLIP);
        let mended = crashed.mount();
        assert_eq!(mended.get("file").as_ref(), Ok(&expected));
        mended.close();
        assert_eq!(crashed.mount().get("file").as_ref(), Ok(&expected));
        assert_eq!(crashed.intents("first < 0"), "", "nothing is left to be kept");
    }
}

/// All rows of the log that are gone are missed after a crash, and not after a clean unmount.
#[test]
fn a_log_in_rows_that_is_gone_after_a_crash_is_refused_until_the_loss_is_accepted() {
    let base = Rows::new();
    let mounted = base.mount();
    mounted.put_and_sync("synced", b"in the log alone");
    let crashed = base.crashed();
    let mine = crashed.mount();
    assert_eq!(mine.get("synced").as_deref(), Ok(&b"in the log alone"[..]));
    mine.close();
    let lost = base.crashed();
    lost.run("TRUNCATE intents");
    lost.assert_refused("the table intents is not the one that its last mount wrote");
    let told = |found: &[Finding]| found.iter().any(|finding| finding.what.contains("the table intents"));
    assert!(told(&lost.check()));
    assert!(!told(&base.check()), "its daemon has it");
    // Nothing was synced, but who can tell.
    let without = Rows::new();
    drop(without.mount());
    let without = without.crashed();
    assert_eq!(without.check(), []);
    without.run("DELETE FROM intents");
    without.assert_refused("the table intents is not the one that its last mount wrote");
    let mounted = lost.try_mount(Loss::Accept).expect("accepted");
    assert_eq!(mounted.get("synced"), Err(ErrorKind::NotFound));
    mounted.put_and_sync("after", b"works");
    let again = lost.crashed();
    mounted.close();
    lost.run("TRUNCATE intents");
    for rows in [again, lost] {
        assert_eq!(rows.mount().get("after").as_deref(), Ok(&b"works"[..]));
    }
}

/// The log of another volume, or of another moment of this one, is neither applied nor removed.
#[test]
fn a_log_in_rows_of_another_volume_or_moment_is_refused() {
    let volume = |name: &str| {
        let rows = Rows::new();
        let mounted = rows.mount();
        mounted.put_and_sync(name, b"synced");
        (rows.crashed(), mounted)
    };
    let ((one, _one), (other, _other)) = (volume("one"), volume("other"));
    let kept = one.crashed();
    one.take("'intents'", &other);
    one.assert_refused("the table intents is not the one");
    other.take("'intents'", &kept);
    other.assert_refused("the table intents is not the one");
    // A volume restored from a backup, beside the rows of a later mount.
    let older = Rows::new();
    older.mount().close();
    let backup = older.crashed();
    let mounted = older.mount();
    mounted.put_and_sync("later", b"synced");
    let log = older.crashed();
    mounted.close();
    backup.take("'intents'", &log);
    backup.assert_refused("has an epoch that has not begun");
    let mounted = backup.try_mount(Loss::Accept).expect("accepted");
    assert_eq!(backup.intents("epoch < 0"), log.intents("first > 0"));
    // Its mount is of the same epoch as those rows: they are none of its own.
    mounted.put_and_sync("mine", b"synced");
    let crashed = backup.crashed();
    mounted.close();
    for rows in [crashed, backup] {
        let mounted = rows.mount();
        assert_eq!(mounted.get("mine").as_deref(), Ok(&b"synced"[..]));
        assert_eq!(mounted.get("later"), Err(ErrorKind::NotFound));
    }
}

/// Rows that are damaged end the log where loss is accepted, which is told; all are kept aside.
#[test]
fn rows_that_are_given_up_are_kept_aside() {
    let base = Rows::new();
    let mounted = base.mount();
    for name in ["first", "second", "third"] {
        mounted.put_and_sync(name, b"synced");
    }
    let rows = base.crashed();
    rows.run("UPDATE intents SET bytes = set_byte(bytes, 1, 33) WHERE first = (SELECT max(first) FROM intents)");
    rows.assert_refused("is damaged");
    let log = rows.intents("first > 0");
    let mounted = rows.try_mount(Loss::Accept).expect("accepted");
    assert_eq!(mounted.get("second").as_deref(), Ok(&b"synced"[..]));
    assert_eq!(mounted.get("third"), Err(ErrorKind::NotFound));
    assert_eq!(rows.intents("epoch < 0"), log);
    assert_eq!(rows.intents("epoch > 0 AND first > 0"), "", "what was applied is committed");
}
