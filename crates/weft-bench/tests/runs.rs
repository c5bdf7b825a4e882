//! The program compares directories: each experiment that was asked for has a row with a rate for
//! each of them, and what is no directory or no experiment is refused.

use std::process::{Command, Output};

/// Runs the program with `arguments`.
fn bench(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_weft-bench")).args(arguments).output().expect("weft-bench starts")
}

#[test]
fn directories_are_compared_by_all_that_was_asked_for() {
    let place = tempfile::tempdir().expect("a directory");
    let directory = |name: &str| {
        std::fs::create_dir(place.path().join(name)).expect("it is made");
        format!("{name}={}", place.path().join(name).display())
    };
    let (one, other) = (directory("one"), directory("other"));
    let json = place.path().join("json");
    let ran = bench(&[
        "--work=create,stat,unlink",
        "--count=20",
        "--size=1",
        "--runs=2",
        "--json",
        json.to_str().expect("a name in UTF-8"),
        &one,
        &other,
    ]);
    assert!(ran.status.success(), "{}", String::from_utf8_lossy(&ran.stderr));
    let told: serde_json::Value =
        serde_json::from_slice(&std::fs::read(&json).expect("it is written")).expect("it is JSON");
    let rows = told["rows"].as_array().expect("rows");
    let names: Vec<_> = rows.iter().map(|row| row["work"].as_str().expect("a name")).collect();
    assert_eq!(names, ["create", "stat", "unlink"], "{told:#}");
    for row in rows {
        let samples: Vec<Vec<f64>> = serde_json::from_value(row["samples"].clone()).expect("rates by place and run");
        assert!(samples.len() == 2 && samples.iter().all(|runs| runs.len() == 2), "{row:#}");
        assert!(samples.iter().flatten().all(|rate| *rate > 0.0), "{row:#}");
    }
}

#[test]
fn what_is_no_experiment_or_no_directory_is_refused() {
    for wrong in [&["--work=nonsense", "here=/tmp"][..], &["--work=create", "here=/nowhere/at/all"], &["--work=create"]]
    {
        let ran = bench(wrong);
        assert!(!ran.status.success() && !ran.stderr.is_empty(), "{wrong:?}");
    }
}
