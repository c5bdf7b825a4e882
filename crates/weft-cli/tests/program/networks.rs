//! `weft run` and `weft stages`.

use crate::place::Place;
use std::fs;
use std::io::Write;
use std::process::{Command, Stdio};

#[test]
fn networks_run_on_files_and_on_the_standard_input() {
    let place = Place::new();
    fs::write(place.path("a"), "b\na\n").unwrap();
    fs::write(place.path("b"), "c\nb").unwrap();
    assert_eq!(
        place.weft(&["run", "--network", "sort | uniq -c", "a", "b"]).well(),
        "      1 a\n      2 b\n      1 c\n"
    );
    assert_eq!(place.weft(&["run", "-n", "zip($2, $1 | upper)", "a", "b"]).well(), "c\tB\nb\tA\n");
    let mut run = Command::new(env!("CARGO_BIN_EXE_weft"));
    run.args(["run", "-n", "gzip | gzip -d | head -2"]).stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut run = run.spawn().unwrap();
    run.stdin.take().unwrap().write_all(b"1\n2\n3\n").unwrap();
    assert_eq!(run.wait_with_output().unwrap().stdout, b"1\n2\n");
}

#[test]
fn what_a_network_does_is_undone_by_its_inverse() {
    let place = Place::new();
    let content: Vec<u8> = (0..=255u8).cycle().take(200_000).collect();
    fs::write(place.path("a"), &content).unwrap();
    let network = "increment 3 | zstd | base64";
    let made = place.weft(&["run", "-n", network, "a"]).well();
    fs::write(place.path("made"), made).unwrap();
    let run = Command::new(env!("CARGO_BIN_EXE_weft"))
        .args(["run", "-n", network, "--inverse"])
        .arg(place.path("made"))
        .output()
        .unwrap();
    assert!(run.status.success() && run.stdout == content);
    place.weft(&["run", "-n", "gzip -d | sort", "--inverse"]).failed(&["cannot be undone", "'sort'"]);
}

#[test]
fn a_reader_that_has_seen_enough_ends_it_quietly() {
    let place = Place::new();
    fs::write(place.path("a"), "line\n".repeat(1_000_000)).unwrap();
    let mut run = Command::new(env!("CARGO_BIN_EXE_weft"));
    run.args(["run", "-n", "upper"]).arg(place.path("a")).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut run = run.spawn().unwrap();
    drop(run.stdout.take());
    let said = run.wait_with_output().unwrap();
    assert!(said.stderr.is_empty() && !said.status.success());
}

#[test]
fn what_is_wrong_with_a_network_is_told_with_its_place() {
    let place = Place::new();
    fs::write(place.path("a"), "no gzip").unwrap();
    place.weft(&["run", "-n", "sort | cat", "a"]).misused(&["there is no stage 'cat'", "at byte 7: 'cat'"]);
    place.weft(&["run", "-n", "sort |", "a"]).misused(&["a stage is missing", "at byte 6, its end"]);
    place.weft(&["run", "-n", "concat($1, $2)", "a"]).misused(&["file $2", "1 were given"]);
    place.weft(&["run", "-n", "wc", "a", "nothing"]).failed(&["cannot read nothing"]);
    place.weft(&["run", "-n", "upper | gzip -d", "a"]).failed(&["gzip -d: this is no gzip data"]);
}

#[test]
fn stages_are_listed_and_told_of() {
    let place = Place::new();
    let listed = place.weft(&["stages"]).well();
    assert!(listed.lines().any(|line| line.starts_with("grep ")) && listed.lines().count() > 20);
    assert!(place.weft(&["stages", "grep"]).well().starts_with("grep [-i]"));
    assert_eq!(place.weft(&["stages", "grep", "--json"]).json()[0]["name"], "grep");
    place.weft(&["stages", "cat"]).failed(&["there is no stage 'cat'"]);
    let shown = place.weft(&["run", "--show", "-n", "merge(upper, $1) | gzip", "x"]).well();
    let expected =
        "merge\n    keeps nothing; undone by nothing\n    upper\n        keeps length and places; undone by nothing\n";
    assert!(
        shown.starts_with(expected)
            && shown.ends_with("gzip\n    keeps nothing; undone by 'gzip -d'\ngives compressed bytes\n"),
        "{shown}"
    );
}
