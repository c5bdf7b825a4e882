//! Roles of a server that would have another run their code, by what lies in a volume's schema.

use crate::contract::options;
use crate::postgres_rights::Roles;
use crate::sample;
use weft_store::OpenOptions;
use weft_store::postgres::{self, Address};
use weft_store::*;

/// A volume's schema, an administrator, who is a superuser, and one who would become that.
struct Attack {
    roles: Roles,
    evil: String,
    admin: Address,
}

impl Attack {
    fn new() -> Attack {
        let roles = Roles::new();
        let evil = roles.role("evil");
        roles.let_make_schemas(&evil);
        let admin = Address::parse(&roles.url).expect("an address");
        Attack { roles, evil, admin }
    }

    fn sql(&self, statements: &str) {
        self.roles.cluster.run(&statements.replace("EVIL", &self.evil).replace("WEFT", &self.roles.schema));
    }

    /// The same as the attacker.
    fn strike(&self, statements: &str) {
        self.sql(&format!("SET ROLE EVIL; {statements}"));
    }

    /// Makes a function of the attacker's and an operator that wins over the server's own, in
    /// schema `place`.
    fn plant(&self, place: &str) {
        self.strike(&format!(
            "CREATE FUNCTION {place}.pwn(a oid, b regnamespace) RETURNS boolean LANGUAGE plpgsql AS $$ BEGIN \
             BEGIN IF current_user <> 'EVIL' THEN EXECUTE 'ALTER ROLE EVIL SUPERUSER'; END IF; \
             EXCEPTION WHEN OTHERS THEN NULL; END; RETURN pg_catalog.oideq(a, b::oid); END $$; \
             CREATE OPERATOR {place}.= (leftarg = oid, rightarg = regnamespace, function = {place}.pwn)"
        ));
    }

    /// Makes a function of the attacker's for triggers, in a schema of the attacker's own.
    fn arm(&self) {
        self.strike(
            "CREATE SCHEMA EVIL; GRANT USAGE ON SCHEMA EVIL TO PUBLIC; \
             CREATE FUNCTION EVIL.pwn(id bigint) RETURNS boolean IMMUTABLE LANGUAGE plpgsql AS $$ BEGIN \
             BEGIN IF current_user <> 'EVIL' THEN EXECUTE 'ALTER ROLE EVIL SUPERUSER'; END IF; \
             EXCEPTION WHEN OTHERS THEN NULL; END; RETURN true; END $$; \
             CREATE FUNCTION EVIL.fire() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN \
             PERFORM EVIL.pwn(1); RETURN NULL; END $$",
        );
    }

    fn init(&self, address: &Address) -> Result<()> {
        postgres::create(address, &options(BlockHome::Database), (0, 0), Timestamp(0))
    }

    /// Sees that each way to open the volume refuses it, for what `told` says.
    fn is_refused(&self, address: &Address, told: &str) {
        let check = |repair| postgres::check(address, CheckOptions { repair, read_data: true }, &mut |_| {});
        let results = [
            ("init", self.init(address)),
            ("mount", postgres::open(address, OpenOptions::default()).map(drop)),
            ("info", postgres::header(address).map(drop)),
            ("log", postgres::commits(address).map(drop)),
            ("size", postgres::size(address).map(drop)),
            ("check", check(Repair::No).map(drop)),
            ("repair", check(Repair::Yes).map(drop)),
            ("convert", postgres::convert(address, Some(0), &mut |_| {}).map(drop)),
            ("upgrade", postgres::upgrade(address, Upgrade::Now, &mut |_| {}).map(drop)),
        ];
        for (what, result) in results {
            let error = result.expect_err(what).to_string();
            assert!(error.contains(told), "{what}: {error}");
        }
        self.is_harmless();
    }

    /// Sees that the attacker has not become a superuser.
    fn is_harmless(&self) {
        let asked = format!("SELECT rolsuper FROM pg_roles WHERE rolname = '{}'", self.evil);
        assert_eq!(self.roles.cluster.run(&asked), "f", "the attacker is a superuser now");
    }
}

#[test]
fn nobody_becomes_the_daemons_role_by_a_schema_that_was_there_first() {
    let attack = Attack::new();
    attack.strike("CREATE SCHEMA WEFT; GRANT USAGE, CREATE ON SCHEMA WEFT TO PUBLIC");
    attack.is_refused(&attack.admin, &format!("belongs to role '{}'", attack.evil));
    // Nor by a table that makes the attacker look like the owner of a volume.
    attack.strike("CREATE TABLE WEFT.volume (id bigint)");
    let refused = attack.init(&attack.admin).expect_err("refused").to_string();
    assert!(refused.contains("everybody may make objects"), "{refused}");
    attack.strike("REVOKE CREATE ON SCHEMA WEFT FROM PUBLIC");
    let refused = attack.init(&attack.admin).expect_err("refused").to_string();
    assert!(refused.contains("belongs to role"), "{refused}");
    attack.strike("DROP TABLE WEFT.volume");
    attack.plant("WEFT");
    attack.is_refused(&attack.admin, &format!("belongs to role '{}'", attack.evil));
    // Who makes a volume in the own schema, and a role of less rights, are at nobody's mercy.
    attack.sql("DROP SCHEMA WEFT CASCADE; CREATE SCHEMA WEFT AUTHORIZATION EVIL");
    attack.init(&attack.roles.address("evil")).expect("made");
}

#[test]
fn nobody_becomes_the_daemons_role_by_a_right_to_make_objects_in_the_schema() {
    let attack = Attack::new();
    attack.sql("CREATE SCHEMA WEFT; GRANT USAGE, CREATE ON SCHEMA WEFT TO EVIL");
    attack.is_refused(&attack.admin, &format!("role '{}' may make objects", attack.evil));
    attack.sql("REVOKE ALL ON SCHEMA WEFT FROM EVIL; GRANT ALL ON SCHEMA WEFT TO PUBLIC");
    attack.is_refused(&attack.admin, &format!("REVOKE CREATE ON SCHEMA {} FROM PUBLIC", attack.roles.schema));
    // What was made while that was so stays refused.
    attack.plant("WEFT");
    attack.sql("REVOKE ALL ON SCHEMA WEFT FROM PUBLIC");
    attack.is_refused(&attack.admin, "holds the function");
    attack.sql("DROP SCHEMA WEFT CASCADE");
    // After the volume is made, too.
    attack.init(&attack.admin).expect("made");
    attack.sql("GRANT USAGE, CREATE ON SCHEMA WEFT TO EVIL");
    attack.plant("WEFT");
    attack.is_refused(&attack.admin, "may make objects");
    attack.sql("REVOKE CREATE ON SCHEMA WEFT FROM EVIL");
    attack.is_refused(&attack.admin, "holds the function");
    attack.sql("DROP FUNCTION WEFT.pwn CASCADE");
    postgres::open(&attack.admin, OpenOptions::default()).expect("opened");
    attack.is_harmless();
}

#[test]
fn each_object_that_a_statement_could_find_in_a_schema_is_refused() {
    let attack = Attack::new();
    attack.init(&attack.admin).expect("made");
    for (made, dropped, told) in [
        ("FUNCTION WEFT.f(int) RETURNS int LANGUAGE sql AS 'SELECT 1'", "FUNCTION WEFT.f(int)", "the function"),
        ("PROCEDURE WEFT.f(int) LANGUAGE sql AS 'SELECT 1'", "PROCEDURE WEFT.f(int)", "the function"),
        (
            "OPERATOR WEFT.+ (leftarg = bigint, rightarg = int, function = int84eq)",
            "OPERATOR WEFT.+ (bigint, int)",
            "operator",
        ),
        ("OPERATOR FAMILY WEFT.o USING btree", "OPERATOR FAMILY WEFT.o USING btree", "the operator family o"),
        ("DOMAIN WEFT.text AS pg_catalog.text", "DOMAIN WEFT.text", "the type"),
        ("TYPE WEFT.t AS (a int)", "TYPE WEFT.t", "the type"),
        ("TYPE WEFT.e AS ENUM ('a')", "TYPE WEFT.e", "the type"),
        ("COLLATION WEFT.c FROM \"C\"", "COLLATION WEFT.c", "the collation c"),
        ("CONVERSION WEFT.c FOR 'LATIN1' TO 'UTF8' FROM iso8859_1_to_utf8", "CONVERSION WEFT.c", "the conversion c"),
    ] {
        attack.sql(&format!("CREATE {made}"));
        let refused = postgres::header(&attack.admin).expect_err(made).to_string();
        assert!(refused.contains(told), "{made}: {refused}");
        attack.sql(&format!("DROP {dropped}"));
    }
    postgres::header(&attack.admin).expect("as it was");
}

/// The administrator trusts the owner of a volume with what lies in it, and not with a role.
#[test]
fn an_administrator_runs_no_code_of_a_volumes_owner() {
    let attack = Attack::new();
    attack.init(&attack.roles.address("evil")).expect("made");
    drop(postgres::open(&attack.admin, OpenOptions::default()).expect("a plain volume is opened"));
    sample::fill(&*attack.roles.open("evil").expect("opened"));
    attack.arm();
    for (made, undone, told) in [
        (
            "CREATE TRIGGER fire AFTER UPDATE ON WEFT.lease FOR EACH STATEMENT EXECUTE FUNCTION EVIL.fire()",
            "DROP TRIGGER fire ON WEFT.lease",
            "the trigger fire on lease",
        ),
        (
            "ALTER TABLE WEFT.lease DROP CONSTRAINT lease_id_check, \
             ADD CONSTRAINT lease_id_check CHECK (EVIL.pwn(id))",
            "ALTER TABLE WEFT.lease DROP CONSTRAINT lease_id_check, ADD CHECK (id = 1)",
            "the constraint lease_id_check on lease",
        ),
        ("CREATE INDEX odd ON WEFT.lease (EVIL.pwn(epoch))", "DROP INDEX WEFT.odd", "the index odd on lease"),
        (
            "CREATE RULE odd AS ON UPDATE TO WEFT.lease DO ALSO SELECT EVIL.pwn(1)",
            "DROP RULE odd ON WEFT.lease",
            "the rule odd on lease",
        ),
        (
            "ALTER TABLE WEFT.lease ALTER COLUMN holder SET DEFAULT EVIL.pwn(1)::text",
            "ALTER TABLE WEFT.lease ALTER COLUMN holder DROP DEFAULT",
            "the default holder on lease",
        ),
        (
            "CREATE POLICY odd ON WEFT.lease USING (EVIL.pwn(1))",
            "DROP POLICY odd ON WEFT.lease",
            "the policy odd on lease",
        ),
        (
            "CREATE DOMAIN EVIL.odd AS bigint CHECK (EVIL.pwn(VALUE)); \
             ALTER TABLE WEFT.lease ALTER COLUMN epoch TYPE EVIL.odd",
            "ALTER TABLE WEFT.lease ALTER COLUMN epoch TYPE bigint; DROP DOMAIN EVIL.odd",
            "the column epoch on lease",
        ),
        (
            "ALTER TABLE WEFT.lease RENAME TO whole; CREATE VIEW WEFT.lease AS SELECT * FROM WEFT.whole WHERE EVIL.pwn(1)",
            "DROP VIEW WEFT.lease; ALTER TABLE WEFT.whole RENAME TO lease",
            "the view or foreign table lease",
        ),
        ("CREATE TABLE EVIL.part () INHERITS (WEFT.lease)", "DROP TABLE EVIL.part", "part on lease"),
    ] {
        attack.strike(made);
        let refused = postgres::open(&attack.admin, OpenOptions::default()).map(drop).expect_err(made).to_string();
        assert!(refused.contains(told), "{made}: {refused}");
        postgres::header(&attack.admin).expect_err(made);
        attack.strike(undone);
    }
    attack.strike("GRANT USAGE ON SCHEMA WEFT TO PUBLIC; GRANT SELECT ON ALL TABLES IN SCHEMA WEFT TO PUBLIC");
    drop(postgres::open(&attack.admin, OpenOptions::default()).expect("opened again"));
    attack.is_harmless();
}

/// A role could do so by the right TRIGGER on a table, which needs no right on the schema.
#[test]
fn no_other_role_puts_a_trigger_on_a_volume() {
    let attack = Attack::new();
    attack.init(&attack.admin).expect("made");
    attack.arm();
    attack.sql("GRANT USAGE ON SCHEMA WEFT TO EVIL; GRANT TRIGGER ON WEFT.lease TO EVIL");
    attack.strike("CREATE TRIGGER fire AFTER UPDATE ON WEFT.lease FOR EACH STATEMENT EXECUTE FUNCTION EVIL.fire()");
    let refused = attack.init(&attack.admin).expect_err("refused").to_string();
    assert!(refused.contains("the trigger fire on lease"), "{refused}");
    postgres::open(&attack.admin, OpenOptions::default()).map(drop).expect_err("refused");
    attack.sql("DROP TRIGGER fire ON WEFT.lease");
    postgres::open(&attack.admin, OpenOptions::default()).expect("opened");
    attack.is_harmless();
}

/// Roles that serve a volume of another role, as docs/guide/postgresql.md has them.
#[test]
fn schemas_of_an_administrator_and_of_the_owners_group_are_trusted() {
    let attack = Attack::new();
    let (owner, daemon) = (attack.evil.replace("evil", "owner"), attack.roles.role("daemon"));
    // The schema is the administrator's, who lets the owner make tables.
    attack.sql(&format!("CREATE SCHEMA WEFT; GRANT USAGE, CREATE ON SCHEMA WEFT TO {owner}"));
    attack.roles.create(&options(BlockHome::Database));
    attack.roles.grant("USAGE", "daemon");
    attack.roles.grant("SELECT, INSERT, UPDATE, DELETE", "daemon");
    sample::fill(&*attack.roles.open("daemon").expect("opened"));
    drop(attack.roles.open("owner").expect("opened"));
    // A member of the owner's may make tables, by a right of its own, too.
    attack.sql(&format!("GRANT {owner} TO {daemon}; GRANT CREATE ON SCHEMA WEFT TO {daemon}"));
    drop(attack.roles.open("daemon").expect("opened"));
    drop(attack.roles.open("owner").expect("opened"));
    drop(postgres::open(&attack.admin, OpenOptions::default()).expect("opened"));
}
