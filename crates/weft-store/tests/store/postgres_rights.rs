//! Roles of a server with fewer rights than the one that made the volume.

use crate::compare::state;
use crate::contract::options;
use crate::generate::{Change, batch};
use crate::sample;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use weft_store::OpenOptions;
use weft_store::postgres::{self, Address, PostgresStore};
use weft_store::*;
use weft_testkit::Cluster;

/// A schema whose tables role `owner` makes, and roles of this test alone.
pub(crate) struct Roles {
    pub(crate) cluster: &'static Cluster,
    pub(crate) url: String,
    pub(crate) schema: String,
    number: u32,
}

impl Roles {
    pub(crate) fn new() -> Roles {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let cluster = Cluster::shared();
        let url = cluster.url();
        let schema = Address::parse(&url).expect("an address").schema().to_owned();
        let roles = Roles { cluster, url, schema, number };
        let owner = roles.role("owner");
        roles.let_make_schemas(&owner);
        roles
    }

    pub(crate) fn let_make_schemas(&self, role: &str) {
        // The tests share a database, and the server refuses two grants on one at the same moment.
        self.cluster.run(&format!("SELECT pg_advisory_xact_lock(0); GRANT CREATE ON DATABASE postgres TO {role}"));
    }

    /// Makes the role `name`, which may connect and no more.
    pub(crate) fn role(&self, name: &str) -> String {
        let role = format!("{name}_{}", self.number);
        self.cluster.run(&format!("CREATE ROLE {role} LOGIN"));
        role
    }

    /// The volume's address for role `name`.
    pub(crate) fn address(&self, name: &str) -> Address {
        let role = format!("postgres://{name}_{}@", self.number);
        Address::parse(&self.url.replace("postgres://postgres@", &role)).expect("an address")
    }

    pub(crate) fn create(&self, options: &VolumeOptions) {
        postgres::create(&self.address("owner"), options, (0, 0), Timestamp(0)).expect("made");
    }

    pub(crate) fn open(&self, name: &str) -> Result<Arc<PostgresStore>> {
        postgres::open(&self.address(name), OpenOptions::default())
    }

    pub(crate) fn grant(&self, what: &str, name: &str) {
        let schema = &self.schema;
        let on = if what == "USAGE" { "" } else { "ALL TABLES IN " };
        self.cluster.run(&format!("GRANT {what} ON {on}SCHEMA {schema} TO {name}_{}", self.number));
    }

    /// True if the server lets role `name` run `statement` in the schema.
    fn may(&self, name: &str, statement: &str) -> bool {
        let (schema, number) = (&self.schema, self.number);
        // What is tried is undone either way.
        self.cluster.run(&format!(
            "SET search_path TO {schema}; SET weft_test.may = 'yes'; \
             DO $$ BEGIN SET LOCAL ROLE {name}_{number}; EXECUTE '{statement}'; RAISE EXCEPTION 'done'; \
             EXCEPTION WHEN raise_exception THEN NULL; \
             WHEN insufficient_privilege OR undefined_table THEN PERFORM set_config('weft_test.may', 'no', false); END $$; \
             SELECT current_setting('weft_test.may')"
        )) == "yes"
    }
}

fn check(address: &Address, repair: Repair) -> Result<Vec<Finding>> {
    postgres::check(address, CheckOptions { repair, read_data: true }, &mut |_| {})
}

/// Another change of what [`sample::fill`] made: rows of each kind go and come.
fn change(store: &dyn Store) {
    use sample::{CLONE, DIRECTORY, LARGE};
    let number = |ino: u64| u8::try_from(ino).expect("small");
    let changes = [
        Change::Inode { ino: number(DIRECTORY), size: 0, inline: None, nlink: 3 },
        Change::Clear { ino: number(LARGE), start: 0, end: Some(1) },
        Change::Block { ino: number(LARGE), index: 2, length: 9000 },
        Change::Share { ino: number(CLONE), index: 3, which: 1 },
        Change::RemoveInode { ino: number(CLONE) },
        Change::Name { parent: number(DIRECTORY), name: 1, ino: number(LARGE) },
        Change::Xattr { ino: number(LARGE), name: 1, value: Some(b"v".to_vec()) },
    ];
    store.apply(&batch(store, &changes), Durability::Durable).expect("applied");
    let gone = [
        Change::RemoveName { parent: number(DIRECTORY), name: 1 },
        Change::Xattr { ino: number(LARGE), name: 1, value: None },
        Change::Clear { ino: number(LARGE), start: 0, end: None },
    ];
    store.apply(&batch(store, &gone), Durability::Durable).expect("applied");
}

#[test]
fn a_role_that_may_make_no_schema_is_told_the_statement_that_makes_one() {
    let roles = Roles::new();
    roles.role("other");
    let made = || postgres::create(&roles.address("other"), &options(BlockHome::Database), (0, 0), Timestamp(0));
    let (schema, error) = (&roles.schema, made().expect_err("it may not").to_string());
    assert!(error.contains("this role may make no schema"), "{error}");
    assert!(error.contains(&format!("'CREATE SCHEMA {schema} AUTHORIZATION ROLE'")), "{error}");
    roles.cluster.run(&format!("CREATE SCHEMA {schema} AUTHORIZATION other_{}", roles.number));
    made().expect("made");
}

#[test]
fn a_role_that_may_change_rows_and_no_tables_serves_a_volume() {
    let roles = Roles::new();
    roles.create(&options(BlockHome::Database));
    roles.role("daemon");
    roles.grant("USAGE", "daemon");
    assert!(roles.open("daemon").is_err(), "it may not even look");
    roles.grant("SELECT, INSERT, UPDATE, DELETE", "daemon");
    let store = roles.open("daemon").expect("opened");
    sample::fill(&*store);
    change(&*store);
    let mut log = store.intents();
    log.start(1);
    for op in 10..12 {
        log.append(OpNo(op), OpNo(op), &b"a record".to_vec().into());
        log.syncer().sync().expect("written");
    }
    let left = state(&*store).expect("readable");
    drop((log, store));
    assert_eq!(state(&*roles.open("owner").expect("opened")).expect("readable"), left);
    let found = check(&roles.address("daemon"), Repair::No).expect("checked");
    assert!(!found.iter().any(|finding| finding.what.starts_with("schema")), "{found:?}");
    // It makes no table, and drops and changes none.
    for refused in ["CREATE TABLE mine (n int)", "DROP TABLE branches", "ALTER TABLE xattr ADD COLUMN n int"] {
        assert!(!roles.may("daemon", refused) && roles.may("owner", refused), "{refused}");
    }
    roles.cluster.run(&format!("DROP INDEX {}.naming_inode", roles.schema));
    let refused = check(&roles.address("daemon"), Repair::Yes).expect_err("who made the volume mends its schema");
    assert!(refused.to_string().contains("may not change the table"), "{refused}");
    check(&roles.address("owner"), Repair::Yes).expect("mended");
}

/// Operations that an fsync acknowledged could never be committed.
#[test]
fn a_role_that_lacks_a_right_on_any_table_is_refused_before_it_commits() {
    let roles = Roles::new();
    roles.create(&options(BlockHome::Database));
    let role = roles.role("daemon");
    roles.grant("USAGE", "daemon");
    roles.grant("SELECT, INSERT, UPDATE, DELETE", "daemon");
    roles.cluster.run(&format!("REVOKE DELETE ON {}.branches FROM {role}", roles.schema));
    let store = roles.open("daemon").expect("it may read");
    let refused = store.apply(&batch(&*store, &[]), Durability::Durable).expect_err("refused").to_string();
    assert!(refused.contains("may not DELETE rows of the table branches"), "{refused}");
    roles.grant("DELETE", "daemon");
    store.apply(&batch(&*store, &[]), Durability::Durable).expect("applied");
    drop(store);
    // One that may make no tables serves no volume whose large files have tables of their own.
    postgres::convert(&roles.address("owner"), Some(0), &mut |_| {}).expect("converted");
    let store = roles.open("daemon").expect("it may read");
    let refused = store.apply(&batch(&*store, &[]), Durability::Durable).expect_err("refused").to_string();
    assert!(refused.contains("may not make tables like the table blocks_of"), "{refused}");
}

/// The statement that `error` says to run, by whom it may.
fn grant_told(error: &Error) -> String {
    let text = error.to_string();
    let grant = text.split_once("administrator run ").and_then(|(_, rest)| rest.split_once(" (docs"));
    grant.unwrap_or_else(|| panic!("no grant is told: {text}")).0.to_owned()
}

#[test]
fn a_role_that_lacks_a_right_is_told_what_to_grant() {
    let roles = Roles::new();
    roles.create(&options(BlockHome::Database));
    let role = roles.role("daemon");
    let refused = roles.open("daemon").map(drop).expect_err("it may not even look").to_string();
    assert!(
        refused.contains(&format!("role '{role}' needs USAGE on the schema and SELECT on its tables")),
        "{refused}"
    );
    roles.grant("USAGE", "daemon");
    let refused = roles.open("daemon").map(drop).expect_err("it may look at no table").to_string();
    assert!(
        refused.contains(&format!("role '{role}' needs USAGE on the schema and SELECT on its tables")),
        "{refused}"
    );
    roles.grant("SELECT", "daemon");
    postgres::header(&roles.address("daemon")).expect("it may read");
    let refused = roles.open("daemon").map(drop).expect_err("it may change nothing");
    assert!(refused.to_string().contains("may not UPDATE rows of the table lease"), "{refused}");
    assert_eq!(refused.kind(), ErrorKind::Unusable);
    roles.cluster.run(&grant_told(&refused));
    let store = roles.open("daemon").expect("it may serve");
    store.apply(&batch(&*store, &[]), Durability::Durable).expect("applied");
    drop(store);
    // Nothing is begun that could not be ended.
    let convert = || postgres::convert(&roles.address("daemon"), Some(0), &mut |_| {});
    let refused = convert().expect_err("it may make no tables");
    assert!(refused.to_string().contains("may not make tables like the table blocks_of"), "{refused}");
    let header = postgres::header(&roles.address("daemon")).expect("readable");
    assert_eq!(header.options.own_table_from, None);
    roles.cluster.run(&grant_told(&refused));
    convert().expect("converted");
}

#[test]
fn an_upgrade_by_a_role_that_may_not_make_it_changes_nothing_and_says_who_may() {
    let roles = Roles::new();
    roles.create(&options(BlockHome::Database));
    postgres::downgrade(&roles.address("owner"), 4).expect("an old one");
    let (role, owner) = (roles.role("daemon"), format!("owner_{}", roles.number));
    let upgrade = |mode| postgres::upgrade(&roles.address("daemon"), mode, &mut |_| {}).map(drop);
    let refused = upgrade(Upgrade::Now).expect_err("it may not even look").to_string();
    assert!(refused.contains(&format!("role '{role}' needs USAGE on the schema")), "{refused}");
    roles.grant("USAGE", "daemon");
    roles.grant("SELECT, INSERT, UPDATE, DELETE", "daemon");
    let epoch = || roles.cluster.run(&format!("SELECT epoch, expires FROM {}.lease", roles.schema));
    let before = epoch();
    for mode in [Upgrade::DryRun, Upgrade::Now] {
        let refused = upgrade(mode).expect_err("it may change no tables");
        assert_eq!(refused.kind(), ErrorKind::Unusable);
        let text = refused.to_string();
        assert!(text.contains(&format!("role {role} may not change the table ")), "{text}");
        assert!(text.contains(&format!("connect as role {owner}")), "{text}");
        assert_eq!(grant_told(&refused), format!("GRANT {owner} TO {role}"));
        assert_eq!(epoch(), before);
    }
    roles.cluster.run(&format!("GRANT {owner} TO {role}"));
    upgrade(Upgrade::Now).expect("upgraded");
}

/// Returns the tables of the volume that role `name` owns.
fn owned(roles: &Roles, name: &str) -> Vec<String> {
    let (schema, number) = (&roles.schema, roles.number);
    let owned = "SELECT tablename FROM pg_tables WHERE schemaname";
    let listed = roles.cluster.run(&format!("{owned} = '{schema}' AND tableowner = '{name}_{number}' ORDER BY 1"));
    listed.lines().map(str::to_owned).collect()
}

/// Checks the schema as role `name`.
fn check_schema(roles: &Roles, name: &str, repair: Repair) -> Vec<String> {
    let found = check(&roles.address(name), repair).expect("checked").into_iter();
    found.map(|finding| finding.what).filter(|what| what.starts_with("schema: ")).collect()
}

/// Otherwise the owner could not use the volume any more.
#[test]
fn tables_that_a_member_of_the_owners_role_makes_belong_to_the_owner() {
    let roles = Roles::new();
    roles.create(&VolumeOptions { own_table_from: Some(0), ..options(BlockHome::Database) });
    let (daemon, looker) = (roles.role("daemon"), roles.role("looker"));
    let (owner, schema) = (format!("owner_{}", roles.number), &roles.schema);
    roles.cluster.run(&format!(
        "GRANT {owner} TO {daemon}; GRANT USAGE ON SCHEMA {schema} TO {looker}; \
         GRANT SELECT ON ALL TABLES IN SCHEMA {schema} TO {looker}; \
         ALTER DEFAULT PRIVILEGES FOR ROLE {owner} IN SCHEMA {schema} GRANT SELECT ON TABLES TO {looker}"
    ));
    let is_of_owner = || {
        assert_eq!(owned(&roles, "daemon"), [""; 0]);
        let own = owned(&roles, "owner").into_iter().filter(|table| table.starts_with("blocks_of_"));
        let own = own.collect::<Vec<_>>();
        assert!(own.iter().all(|table| roles.may("looker", &format!("SELECT FROM {table}"))), "{own:?}");
        assert_eq!(check_schema(&roles, "owner", Repair::No), [""; 0]);
        assert_eq!(check_schema(&roles, "looker", Repair::No), [""; 0]);
        own
    };
    let store = roles.open("daemon").expect("opened");
    sample::fill(&*store);
    drop(store);
    assert!(!is_of_owner().is_empty());
    let convert = |name, from| postgres::convert(&roles.address(name), from, &mut |_| {}).expect("converted");
    convert("owner", None);
    assert!(is_of_owner().is_empty());
    convert("daemon", Some(0));
    assert!(!is_of_owner().is_empty());
    // So are those that an administrator makes.
    convert("owner", None);
    let admin = Address::parse(&roles.url).expect("an address");
    postgres::convert(&admin, Some(0), &mut |_| {}).expect("converted");
    assert!(!is_of_owner().is_empty());
    roles.cluster.run(&format!("DROP TABLE {schema}.xattr_history"));
    assert_eq!(check_schema(&roles, "daemon", Repair::Yes), ["schema: the table xattr_history is missing"]);
    is_of_owner();
    let store = roles.open("owner").expect("opened");
    change(&*store);
}

#[test]
fn a_table_of_another_role_than_the_volumes_is_told_and_repaired() {
    let roles = Roles::new();
    roles.create(&VolumeOptions { own_table_from: Some(0), ..options(BlockHome::Database) });
    let (daemon, owner) = (roles.role("daemon"), format!("owner_{}", roles.number));
    roles.cluster.run(&format!("GRANT {owner} TO {daemon}"));
    let store = roles.open("owner").expect("opened");
    sample::fill(&*store);
    drop(store);
    let own = owned(&roles, "owner").into_iter().find(|table| table.starts_with("blocks_of_"));
    let table = format!("{}.{}", roles.schema, own.expect("a file's own table"));
    let alter = format!("ALTER TABLE {table} OWNER TO");
    roles.cluster.run(&format!("{alter} {daemon}"));
    let store = roles.open("owner").expect("it may read the rest");
    let refused = store.apply(&batch(&*store, &[]), Durability::Durable).map(drop).expect_err("refused");
    drop(store);
    for repair in [Repair::No, Repair::Yes] {
        let refused = check(&roles.address("owner"), repair).expect_err("it may not read the table").to_string();
        assert!(refused.contains(&format!("run 'weft check --repair' as role {daemon}")), "{refused}");
    }
    for repair in [Repair::No, Repair::Yes] {
        let found = check_schema(&roles, "daemon", repair);
        assert!(found.len() == 1 && found[0].contains(&format!("belongs to role {daemon}")), "{found:?}");
    }
    assert_eq!(check_schema(&roles, "owner", Repair::No), [""; 0]);
    // What an administrator is told to run does the same.
    roles.cluster.run(&format!("{alter} {daemon}"));
    assert_eq!(grant_told(&refused), format!("{alter} {owner}"));
    roles.cluster.run(&grant_told(&refused));
    assert_eq!(check_schema(&roles, "owner", Repair::No), [""; 0]);
}

/// Holds whatever rights the role that makes it gives to everybody by default.
#[test]
fn a_stranger_on_the_server_reads_nothing_of_a_volume() {
    let roles = Roles::new();
    let (owner, stranger) = (roles.role("stranger").replace("stranger", "owner"), "stranger");
    roles.cluster.run(&format!(
        "ALTER DEFAULT PRIVILEGES FOR ROLE {owner} GRANT ALL ON TABLES TO PUBLIC; \
         ALTER DEFAULT PRIVILEGES FOR ROLE {owner} GRANT ALL ON SCHEMAS TO PUBLIC"
    ));
    roles.create(&VolumeOptions { own_table_from: Some(0), ..options(BlockHome::Database) });
    let store = roles.open("owner").expect("opened");
    sample::fill(&*store);
    drop(store);
    let listed = "SELECT relname FROM pg_class WHERE relkind IN ('r', 'v') AND relnamespace";
    let tables = roles.cluster.run(&format!("{listed} = '{}'::regnamespace", roles.schema));
    assert!(tables.lines().any(|table| table.starts_with("blocks_of_")), "{tables}");
    let refuses_all = || {
        for table in tables.lines() {
            assert!(!roles.may(stranger, &format!("SELECT FROM {table}")), "{table}");
            let is_view = roles
                .cluster
                .run(&format!("SELECT relkind = 'v' FROM pg_class WHERE oid = '{}.{table}'::regclass", roles.schema))
                == "t";
            assert!(is_view || !roles.may(stranger, &format!("DELETE FROM {table}")), "{table}");
            assert!(roles.may("owner", &format!("SELECT FROM {table}")), "{table}");
        }
    };
    refuses_all();
    let refused = postgres::header(&roles.address(stranger)).expect_err("refused").to_string();
    assert!(refused.contains("the role has no rights in schema"), "{refused}");
    // Nor where it may use the schema, as it may `public` in many databases.
    roles.grant("USAGE", stranger);
    refuses_all();
    // Volumes that older programs made are told of, and mended.
    let open = format!("GRANT SELECT ON {0}.xattr, {0}.files TO PUBLIC", roles.schema);
    roles.cluster.run(&open);
    assert!(roles.may(stranger, "SELECT FROM xattr"));
    let told = |repair| {
        let found = check(&roles.address("owner"), repair).expect("checked");
        found.into_iter().filter(|finding| finding.what.contains("every role")).collect::<Vec<_>>()
    };
    let found = told(Repair::No);
    assert_eq!(found.len(), 2, "{found:?}");
    assert!(found.iter().all(|finding| finding.outcome == Outcome::Note), "{found:?}");
    assert!(found[1].what.contains("may SELECT rows of xattr"), "{found:?}");
    assert!(told(Repair::Yes).iter().all(|finding| finding.outcome == Outcome::Repaired));
    assert!(told(Repair::No).is_empty());
    refuses_all();
}
