use super::*;

#[test]
fn tables_are_described_as_the_catalog_of_a_server_says_them() {
    let made = made(Dialect::Postgres);
    let table = |name: &str| made.iter().find(|made| made.name == name).expect("made");
    let said = |name: &str, at: usize| {
        let (column, said) = &table(name).columns[at];
        format!("{column} {said}")
    };
    assert_eq!(said("dropped", 0), "owner bigint NOT NULL");
    assert_eq!(said("lease", 3), "expires timestamp with time zone");
    assert_eq!([5, 6, 7].map(|at| said("blocks", at)), ["value bytea NOT NULL", "sum bigint NOT NULL", "bytes bytea"]);
    assert_eq!((table("lease").key.join(", "), table("nodes").key.join(", ")), ("id".into(), "ino, level, idx".into()));
    let indices_of = |table: &str| {
        indices(Dialect::Postgres).into_iter().filter(|(of, _)| of == table).map(|(_, index)| index).collect::<Vec<_>>()
    };
    let index = |table: &str, at: usize| indices_of(table)[at].definition(Dialect::Postgres);
    assert_eq!((index("naming", 1), index("fileatt", 0)), ("UNIQUE (parent, cookie)".into(), "(ino) WHERE".into()));
}

#[test]
fn an_engine_has_the_tables_of_versions_that_the_other_one_has() {
    let versions = |dialect| names(dialect).filter(|name| is_of_versions(name)).collect::<Vec<_>>();
    assert_eq!(
        versions(Dialect::Sqlite),
        ["content_history", "fileatt_history", "naming_history", "extents_history", "xattr_history"]
    );
    assert_eq!(versions(Dialect::Sqlite), versions(Dialect::Postgres));
}
