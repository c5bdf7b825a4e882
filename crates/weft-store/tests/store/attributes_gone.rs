//! Extended attributes whose rows are gone: their inode counts them.

use crate::check::{database, look, sample_volume};
use crate::contract::{HOMES, options};
use crate::convert::other;
use crate::sample::{self, LARGE};
use weft_store::sqlite::{self, convert, open, salvage};
use weft_store::*;
use weft_store::{OpenOptions, postgres};
use weft_testkit::Cluster;

/// Makes a second attribute the file's ACL, if it has one, and gives it rights to be lost.
fn give(store: &dyn Store, has_acl: bool) {
    let header = store.header().expect("readable");
    let mut batch = Batch { commit: header.commit.next(), counters: header.counters, ..Batch::default() };
    let row = store.inodes(Ino(LARGE), 1).expect("readable").remove(0);
    let name = if has_acl { &b"system.posix_acl_access"[..] } else { b"user.second" };
    let name = Name::of_xattr(name).expect("valid");
    batch.xattrs.push(XattrChange { ino: Ino(LARGE), name, value: Some(vec![2, 0, 0, 0]) });
    batch.inodes.push(InodeChange::Put(InodeRow { permissions: 0o2664, xattrs: 2, ..row }));
    store.apply(&batch, Durability::Durable).expect("applied");
}

/// The number of attributes and the permissions of the file.
fn now(store: &dyn Store) -> (std::result::Result<usize, ErrorKind>, u32) {
    let xattrs = store.xattrs(Ino(LARGE)).map(|xattrs| xattrs.len()).map_err(|error| error.kind());
    (xattrs, store.inodes(Ino(LARGE), 1).expect("readable")[0].permissions)
}

const TOLD: &str = "rows of its extended attributes are gone: 1 are there of the 2 that its row says";

/// Sees that what is gone stays damage until it is given up.
fn stays_damage(look: &dyn Fn(Repair) -> Vec<Finding>, now: &dyn Fn() -> (std::result::Result<usize, ErrorKind>, u32)) {
    for (repair, outcome) in [
        (Repair::No, Outcome::Damaged),
        (Repair::Yes, Outcome::Damaged),
        (Repair::No, Outcome::Damaged),
        (Repair::Discard, Outcome::Repaired),
    ] {
        assert_eq!(now(), (Err(ErrorKind::Corrupt), 0o2664), "before {repair:?}");
        let found = look(repair);
        let told = found.iter().find(|finding| finding.what == TOLD);
        let told = told.map(|told| (told.outcome, told.path.as_deref()));
        assert_eq!(told, Some((outcome, Some(&b"/dir/large"[..]))), "{repair:?}: {found:?}");
    }
    let left = look(Repair::No);
    assert!(left.iter().all(|finding| finding.outcome == Outcome::Note), "{left:?}");
}

const ACL: &str = "DELETE FROM xattr WHERE name = CAST('system.posix_acl_access' AS BLOB)";
const OTHER: &str = "DELETE FROM xattr WHERE name = CAST('user.a/b' AS BLOB)";

#[test]
fn attributes_that_are_gone_stay_damage_until_they_are_given_up() {
    for home in HOMES {
        for (gone, permissions) in [(ACL, 0o2600), (OTHER, 0o2664)] {
            let directory = tempfile::tempdir().expect("a directory");
            let path = sample_volume(&directory, home);
            give(&*open(&path).expect("opened").store, true);
            assert_eq!(now(&*open(&path).expect("opened").store), (Ok(2), 0o2664));
            rusqlite::Connection::open(database(&path)).expect("opened").execute(gone, ()).expect("edited");
            let scrubbed = sqlite::scrub(&path, &mut |_| {}).expect("scrubbed");
            assert!(scrubbed.iter().any(|finding| finding.what == TOLD), "{scrubbed:?}");
            let to = directory.path().join("converted");
            let error = convert(&path, &to, other(home), &mut |_| {}).expect_err("refused");
            assert!(error.to_string().contains(TOLD), "{error}");
            let to = directory.path().join("salvaged");
            let missing = salvage(&path, &to, &mut |_| {}).expect("salvaged").missing;
            let told = missing.iter().find(|missing| missing.kind == "attributes").map(|missing| &missing.what[..]);
            assert_eq!(told, Some(&b"/dir/large"[..]), "{missing:?}");
            assert_eq!(now(&*open(&to).expect("opened").store), (Ok(1), permissions), "salvaged");
            assert!(look(&to, Repair::No).iter().all(|finding| finding.outcome == Outcome::Note));
            stays_damage(&|repair| look(&path, repair), &|| now(&*open(&path).expect("opened").store));
            assert_eq!(now(&*open(&path).expect("opened").store), (Ok(1), permissions));
        }
    }
}

#[test]
fn so_do_they_in_postgresql() {
    let cluster = Cluster::shared();
    for (gone, permissions) in [(ACL, 0o2600), (OTHER, 0o2664)] {
        let address = cluster.address();
        postgres::create(&address, &options(BlockHome::Database), (0, 0), Timestamp(0)).expect("made");
        let open = || postgres::open(&address, OpenOptions::default()).expect("opens");
        sample::fill(&*open());
        give(&*open(), true);
        let schema = address.schema().to_owned();
        cluster.run(&format!("SET search_path TO {schema}; {}", gone.replace("AS BLOB", "AS bytea")));
        let look =
            |repair| postgres::check(&address, CheckOptions { repair, read_data: true }, &mut |_| {}).expect("checked");
        stays_damage(&look, &|| now(&*open()));
        assert_eq!(now(&*open()), (Ok(1), permissions));
    }
}

/// The attribute of a damaged row is as unknown as that of a row that is gone.
#[test]
fn a_damaged_attribute_that_is_given_up_leaves_nobody_more_rights() {
    let directory = tempfile::tempdir().expect("a directory");
    let path = sample_volume(&directory, BlockHome::Database);
    give(&*open(&path).expect("opened").store, true);
    let damage = "UPDATE xattr SET value = x'00' WHERE name = CAST('system.posix_acl_access' AS BLOB)";
    rusqlite::Connection::open(&path).expect("opened").execute(damage, ()).expect("edited");
    look(&path, Repair::Discard);
    assert_eq!(now(&*open(&path).expect("opened").store), (Ok(1), 0o2600));
    assert!(look(&path, Repair::No).iter().all(|finding| finding.outcome == Outcome::Note));
}
