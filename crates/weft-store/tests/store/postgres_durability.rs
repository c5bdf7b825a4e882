//! Settings of a server, its standbys and poolers: nothing is acknowledged that they might lose.

use crate::contract::options;
use crate::generate::{Change, batch};
use std::sync::Arc;
use std::sync::OnceLock;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Duration;
use weft_store::OpenOptions;
use weft_store::postgres::{self, Address, PostgresStore};
use weft_store::*;
use weft_testkit::{Cluster, Pooler};

/// A server whose settings keep what it acknowledges, for one test at a time; what that changes is
/// undone at the end.
struct Server(MutexGuard<'static, Cluster>);

impl Server {
    fn alone() -> Server {
        static SERVER: OnceLock<Mutex<Cluster>> = OnceLock::new();
        Server(
            SERVER
                .get_or_init(|| Mutex::new(Cluster::start("-c max_prepared_transactions=0")))
                .lock()
                .unwrap_or_else(PoisonError::into_inner),
        )
    }

    /// One with a volume in a schema, which is open.
    fn with_volume() -> (Server, String, Arc<PostgresStore>) {
        let server = Server::alone();
        let address = server.0.address();
        create(&address);
        let schema = address.schema().to_owned();
        (server, schema, open(&address))
    }

    /// Changes a setting of the whole server, for all sessions from their next statements on.
    fn set(&self, name: &str, value: &str) {
        self.0.run(&format!("ALTER SYSTEM SET {name} = '{value}'"));
        self.0.run("SELECT pg_reload_conf()");
        self.await_setting(name, value);
    }

    fn await_setting(&self, name: &str, value: &str) {
        let client = self.0.client();
        while client.run(&format!("SHOW {name}")) != value {
            thread::yield_now();
        }
        // Who is let in after that was let in after all sessions were told.
        self.0.run("SELECT 1");
    }

    /// Waits until a session that runs `statement` waits for a standby; tells which.
    fn waiting(&self, statement: &str) -> String {
        let asked = format!(
            "SELECT pid FROM pg_stat_activity WHERE wait_event = 'SyncRep' AND query LIKE '{statement}%' LIMIT 1"
        );
        let client = self.0.client();
        loop {
            let found = client.run(&asked);
            if !found.is_empty() {
                return found;
            }
            thread::yield_now();
        }
    }

    /// Has a session that waits for a standby give up.
    fn cancel(&self, pid: &str) {
        self.0.run(&format!("SELECT pg_cancel_backend({pid})"));
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.0.run("ALTER SYSTEM RESET ALL");
        self.0.run("SELECT pg_reload_conf()");
        for (name, value) in [("synchronous_standby_names", ""), ("full_page_writes", "on")] {
            self.await_setting(name, value);
        }
    }
}

fn create(address: &Address) {
    postgres::create(address, &options(BlockHome::Database), (0, 0), Timestamp(0)).expect("made");
}

/// Nobody renews its lease meanwhile.
fn open(address: &Address) -> Arc<PostgresStore> {
    let lease = Duration::from_secs(3600);
    postgres::open(address, OpenOptions { lease, ..OpenOptions::default() }).expect("opened")
}

fn made(store: &dyn Store, ino: u8) -> Batch {
    batch(store, &[Change::Inode { ino, size: 0, inline: None, nlink: 1 }])
}

fn apply(store: &dyn Store, batch: &Batch) -> Result<()> {
    store.apply(batch, Durability::Durable).map(|_| ())
}

/// An administrator of a server may have given the role or the database any settings.
#[test]
fn settings_of_the_role_neither_break_a_volume_nor_weaken_it() {
    let server = Server::alone();
    let hostile = [
        ("synchronous_commit", "off", "on"),
        ("default_transaction_isolation", "serializable", "read committed"),
        ("default_transaction_read_only", "on", "off"),
        ("default_transaction_deferrable", "on", "off"),
        ("statement_timeout", "7777", "0"),
        ("lock_timeout", "7777", "0"),
        ("idle_in_transaction_session_timeout", "77777", "60000"),
        ("search_path", "pg_catalog", ""),
        ("standard_conforming_strings", "off", "on"),
        ("bytea_output", "escape", "hex"),
        ("datestyle", "German", "ISO, MDY"),
        ("intervalstyle", "sql_standard", "postgres"),
        ("row_security", "on", "off"),
        ("client_min_messages", "error", "warning"),
    ];
    server.0.run("CREATE ROLE odd LOGIN; GRANT CREATE ON DATABASE postgres TO odd");
    for (name, value, _) in hostile {
        server.0.run(&format!("ALTER ROLE odd SET {name} = '{value}'"));
    }
    let url = server.0.url().replace("postgres://postgres@", "postgres://odd@");
    let address = Address::parse(&url).expect("an address");
    let schema = address.schema();
    create(&address);
    // The sessions of commits and of the intent log tell what they have.
    server.0.run(&format!(
        "CREATE TABLE {schema}.told (name text, value text);
         GRANT ALL ON {schema}.told TO odd;
         CREATE SCHEMA tellers; GRANT USAGE ON SCHEMA tellers TO odd;
         CREATE FUNCTION tellers.tell() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
             INSERT INTO {schema}.told SELECT lower(name), setting FROM pg_settings; RETURN NULL;
         END $$"
    ));
    // No volume is opened that has triggers.
    let open = |address: &Address| {
        for table in ["commits", "intents"] {
            server.0.run(&format!("DROP TRIGGER IF EXISTS tell ON {schema}.{table}"));
        }
        let store = open(address);
        for table in ["commits", "intents"] {
            let tell = format!("CREATE TRIGGER tell AFTER INSERT ON {schema}.{table} EXECUTE FUNCTION tellers.tell()");
            server.0.run(&tell);
        }
        store
    };
    let store = open(&address);
    apply(&*store, &made(&*store, 2)).expect("applied");
    let mut log = store.intents();
    log.start(1);
    log.append(OpNo(1), OpNo(1), &b"a record".to_vec().into());
    log.syncer().sync().expect("written");
    for (name, _, expected) in hostile {
        let told = server.0.run(&format!("SELECT value FROM {schema}.told WHERE name = '{name}'"));
        let expected = if name == "search_path" { schema } else { expected };
        assert_eq!(told, format!("{expected}\n{expected}"), "{name}");
    }
    drop((log, store));
    let said = format!("{url}&options=-c%20lock_timeout%3D5555");
    let store = open(&Address::parse(&said).expect("an address"));
    apply(&*store, &made(&*store, 3)).expect("applied");
    let told = server.0.run(&format!("SELECT value FROM {schema}.told WHERE name = 'lock_timeout' AND value <> '0'"));
    assert_eq!(told, "5555", "what the address says counts");
    drop(store);
    server.0.run("ALTER ROLE odd SET synchronous_commit = 'remote_apply'");
    let store = open(&address);
    apply(&*store, &made(&*store, 4)).expect("applied");
    let strong = format!("SELECT count(*) FROM {schema}.told WHERE value = 'remote_apply'");
    assert_eq!(server.0.run(&strong), "1", "what is stronger stays");
    drop(store);
    server.0.run("DROP OWNED BY odd CASCADE; DROP ROLE odd");
}

#[test]
fn a_server_whose_settings_may_lose_commits_is_refused_unless_the_address_trusts_it() {
    let trusted = Cluster::shared().url();
    let address = Address::parse(&trusted.replace("durability=server&", "")).expect("an address");
    let refused = |error: Error| {
        assert_eq!(error.kind(), ErrorKind::Unavailable);
        let said = error.to_string();
        assert!(said.contains("fsync is off") && said.contains("set fsync = on"), "{said}");
        assert!(said.contains("durability=server"), "{said}");
    };
    refused(postgres::create(&address, &options(BlockHome::Database), (0, 0), Timestamp(0)).expect_err("refused"));
    create(&Address::parse(&trusted).expect("an address"));
    refused(postgres::open(&address, OpenOptions::default()).err().expect("refused"));
    let store = open(&Address::parse(&trusted).expect("an address"));
    apply(&*store, &made(&*store, 2)).expect("applied");
}

#[test]
fn a_volume_of_which_a_crash_empties_a_table_is_refused() {
    let server = Server::alone();
    let address = server.0.address();
    let schema = address.schema().to_owned();
    create(&address);
    server.0.run(&format!("ALTER TABLE {schema}.xattr SET UNLOGGED"));
    let error = postgres::open(&address, OpenOptions::default()).err().expect("refused");
    assert!(error.to_string().contains(&format!("ALTER TABLE {schema}.xattr SET LOGGED")), "{error}");
    server.0.run(&format!("ALTER TABLE {schema}.xattr SET LOGGED"));
    drop(open(&address));
}

#[test]
fn a_table_that_is_made_one_which_a_crash_empties_is_noticed_by_the_next_commit() {
    let (server, schema, store) = Server::with_volume();
    for (ino, table) in (2..).zip(["volume", "xattr", "intents"]) {
        let batch = made(&*store, ino);
        server.0.run(&format!("ALTER TABLE {schema}.{table} SET UNLOGGED"));
        let error = apply(&*store, &batch).expect_err("noticed");
        assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");
        assert!(error.to_string().contains(&format!("ALTER TABLE {schema}.{table} SET LOGGED")), "{error}");
        server.0.run(&format!("ALTER TABLE {schema}.{table} SET LOGGED"));
        apply(&*store, &batch).expect("applied");
    }
}

#[test]
fn settings_that_get_weak_below_a_mount_are_noticed_by_commits_and_by_the_log() {
    let (server, _, store) = Server::with_volume();
    let mut log = store.intents();
    log.start(1);
    let mut append = |op| {
        log.append(OpNo(op), OpNo(op), &b"a record".to_vec().into());
        log.syncer()
    };
    append(1).sync().expect("written");
    server.set("full_page_writes", "off");
    let batch = made(&*store, 2);
    for error in [apply(&*store, &batch).expect_err("noticed"), append(2).sync().expect_err("noticed")] {
        assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");
        assert!(error.to_string().contains("full_page_writes is off"), "{error}");
    }
    assert!(store.lost().is_none());
    assert_eq!(store.inodes(Ino(2), 1).expect("readable"), []);
    server.set("full_page_writes", "on");
    apply(&*store, &batch).expect("applied");
}

/// A commit whose wait for a standby was cancelled, each time somebody waits for it, is in doubt
/// until one waited to the end.
#[test]
fn a_commit_that_did_not_wait_for_its_standby_counts_only_behind_one_that_did() {
    let (server, _, store) = Server::with_volume();
    let batch = made(&*store, 2);
    server.set("synchronous_standby_names", "absent");
    thread::scope(|scope| {
        let applied = scope.spawn(|| apply(&*store, &batch));
        server.cancel(&server.waiting("COMMIT"));
        server.cancel(&server.waiting("UPDATE lease SET holder"));
        let error = applied.join().expect("no panic").expect_err("no standby has it");
        assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");
        assert!(error.leaves_doubt() && error.to_string().contains("standby"), "{error}");
        // It is in the database, and not believed.
        let before = store.header().expect("readable").commit;
        assert_eq!(before.next(), batch.commit);
        let looking = scope.spawn(|| store.begin(Durability::Durable).map(drop));
        server.waiting("UPDATE lease SET holder");
        assert_eq!(store.header().expect("readable").commit, before);
        // A standby that has it would end the wait like this.
        server.set("synchronous_standby_names", "");
        looking.join().expect("no panic").expect("begun");
        assert_eq!(store.header().expect("readable").commit, batch.commit);
    });
}

/// A server that restarts keeps commits that waited for a standby, and nobody tells.
#[test]
fn a_commit_that_is_found_after_a_restart_waits_for_its_standby() {
    let (server, _, store) = Server::with_volume();
    let batch = made(&*store, 2);
    server.set("synchronous_standby_names", "absent");
    thread::scope(|scope| {
        let applied = scope.spawn(|| apply(&*store, &batch));
        server.waiting("COMMIT");
        server.0.tell("crash");
        server.0.tell("start");
        server.waiting("UPDATE lease SET holder");
        assert!(!applied.is_finished(), "no standby has it");
        server.set("synchronous_standby_names", "");
        applied.join().expect("no panic").expect("applied");
    });
    assert_eq!(store.header().expect("readable").commit, batch.commit);
}

#[test]
fn a_record_of_the_log_that_did_not_wait_for_its_standby_is_not_acknowledged() {
    let (server, _, store) = Server::with_volume();
    let mut log = store.intents();
    log.start(1);
    log.append(OpNo(1), OpNo(1), &b"a record".to_vec().into());
    let syncer = log.syncer();
    server.set("synchronous_standby_names", "absent");
    thread::scope(|scope| {
        let synced = scope.spawn(|| syncer.sync());
        server.cancel(&server.waiting("INSERT INTO intents"));
        server.cancel(&server.waiting("UPDATE lease SET holder"));
        let error = synced.join().expect("no panic").expect_err("no standby has it");
        assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");
    });
    server.set("synchronous_standby_names", "");
    // A commit has what the log could not tell to be durable.
    syncer.sync().expect_err("still");
    log.switch();
    log.release();
    syncer.sync().expect("a commit has it");
}

/// A lease that no standby has may be another daemon's where that is promoted.
#[test]
fn a_lease_that_did_not_wait_for_its_standby_is_not_held() {
    let server = Server::alone();
    let address = server.0.address();
    create(&address);
    server.set("synchronous_standby_names", "absent");
    thread::scope(|scope| {
        let opened = scope.spawn(|| postgres::open(&address, OpenOptions::default()).map(drop));
        server.cancel(&server.waiting("UPDATE lease SET epoch"));
        let error = opened.join().expect("no panic").expect_err("no standby has it");
        assert!(error.to_string().contains("standby"), "{error}");
    });
}

#[test]
fn a_pooler_that_changes_sessions_between_transactions_is_refused() {
    let cluster = Cluster::shared();
    let url = cluster.url();
    create(&Address::parse(&url).expect("an address"));
    let begins: [fn(&Cluster, usize) -> Pooler; 2] = [Pooler::new, Pooler::failing_first];
    for (begin, sessions) in begins.into_iter().flat_map(|begin| (1..=3).map(move |sessions| (begin, sessions))) {
        let pooler = begin(cluster, sessions);
        let error = postgres::open(&pooler.address(&url), OpenOptions::default()).err().expect("refused");
        assert_eq!(error.kind(), ErrorKind::Unusable, "{error}");
        assert!(error.to_string().contains("pool_mode"), "{error}");
        assert!(postgres::header(&pooler.address(&url)).is_err());
    }
}

/// A schema of the same name may be another volume's at any time.
#[test]
fn another_volume_that_gets_the_name_is_never_written_to() {
    let cluster = Cluster::shared();
    let address = cluster.address();
    let schema = address.schema().to_owned();
    create(&address);
    let store = open(&address);
    let mut log = store.intents();
    log.start(1);
    log.append(OpNo(1), OpNo(1), &b"a record".to_vec().into());
    log.syncer().sync().expect("written");
    cluster.run(&format!("ALTER SCHEMA {schema} RENAME TO {schema}_before"));
    create(&address);
    // Its lease and its last commit have the same numbers.
    drop(open(&address));
    log.append(OpNo(2), OpNo(2), &b"a record".to_vec().into());
    log.syncer().sync().expect_err("noticed");
    let error = apply(&*store, &made(&*store, 2)).expect_err("noticed");
    assert!(error.to_string().contains("another volume"), "{error}");
    assert_eq!(store.lost().expect("lost").kind(), ErrorKind::Unusable);
    assert_eq!(cluster.run(&format!("SELECT count(*) FROM {schema}.intents")), "0");
    assert_eq!(cluster.run(&format!("SELECT max(number) FROM {schema}.commits")), "1");
    cluster.run(&format!("DROP SCHEMA {schema}_before CASCADE"));
}
