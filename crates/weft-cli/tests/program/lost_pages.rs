//! Pages of a database that nothing leads to, as a disk lost the write that did.

use crate::place::Place;
use std::fs;
use std::os::unix::fs::FileExt;
use std::process::Command;

/// Pages of 4 KiB, which volumes have.
const PAGE: u64 = 4096;

/// A disk that lost a write of a table's root leaves an older one, which does not lead to later
/// rows. They still lie there; a salvage recovers them, and no repair may destroy them.
#[test]
fn no_repair_destroys_rows_that_nothing_leads_to() {
    let place = Place::new();
    if Command::new("sqlite3").arg("--version").output().is_err() {
        return eprintln!("SKIPPED no_repair_destroys_rows_that_nothing_leads_to: needs sqlite3");
    }
    place.weft(&["init", "whole"]).well();
    let files = |name: &str, count: usize| {
        let directory = place.directory(name);
        for number in 0..count {
            let path = directory.join(format!("a file of the name {name} and the number {number}"));
            fs::write(&path, vec![number as u8; 66_000]).unwrap();
            let value = vec![number as u8; 200];
            rustix::fs::setxattr(&path, "user.x", &value, rustix::fs::XattrFlags::empty()).unwrap();
        }
        place.weft(&["import", name, &format!("whole:{name}")]).well();
    };
    files("a", 4);
    let older = fs::read(place.path("whole/meta.sqlite")).unwrap();
    files("b", 240);
    let newer = fs::read(place.path("whole/meta.sqlite")).unwrap();
    let ask = "SELECT name, rootpage FROM sqlite_schema WHERE type = 'table' AND rootpage > 1";
    let roots =
        Command::new("sqlite3").arg("-readonly").arg(place.path("whole/meta.sqlite")).arg(ask).output().unwrap();
    let roots = String::from_utf8(roots.stdout).unwrap();
    let mut tried = Vec::new();
    for (table, root) in roots.lines().map(|line| line.split_once('|').unwrap()) {
        let at = (root.parse::<u64>().unwrap() - 1) * PAGE;
        let page = at as usize..(at + PAGE) as usize;
        // The types of a leaf and of an interior page, with row ids and without.
        let types = older.get(page.clone()).map(|older| (older[0], newer[page.start]));
        if !types.is_some_and(|types| [(13, 5), (10, 2)].contains(&types)) {
            continue;
        }
        tried.push(table.to_owned());
        let volume = format!("v-{table}");
        assert!(
            Command::new("cp").arg("-a").arg(place.path("whole")).arg(place.path(&volume)).status().unwrap().success()
        );
        let database = fs::OpenOptions::new().write(true).open(place.path(&volume).join("meta.sqlite")).unwrap();
        database.write_all_at(&older[page], at).unwrap();
        let new = |name: &str| format!("{volume}-{name}");
        let brought = place.weft(&["check", "--salvage", &volume, &new("first")]).out;
        for repair in [&["check", "--repair", &volume][..], &["check", "--repair", "--discard", &volume]] {
            let said = place.weft(repair);
            assert!(said.code == 1 && said.out.contains("--salvage"), "{table}: {said:?}");
            assert!(!said.out.contains("(repaired)"), "{table}: {said:?}");
        }
        let again = place.weft(&["check", "--salvage", &volume, &new("second")]).out;
        assert_eq!(brought.replace("first", ""), again.replace("second", ""), "{table}");
    }
    for table in ["blocks", "extents", "naming", "fileatt"] {
        assert!(tried.iter().any(|tried| tried == table), "{table} is none of {tried:?}");
    }
}
