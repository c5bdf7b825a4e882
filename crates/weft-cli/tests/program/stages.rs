//! The examples of stages, built as modules and as libraries, in links of a mount.

use crate::place::{Place, is_root};
use std::fs;
use std::io::Write;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").canonicalize().unwrap()
}

/// Builds an example into `m/MADE`; false, with a loud message, where there is no such compiler.
fn build(place: &Place, compiler: &str, arguments: &[&str], example: &str, made: &str) -> bool {
    let mut command = Command::new(compiler);
    command.args(arguments).arg("-o").arg(place.path("m").join(made));
    command.arg(root().join("examples/stages").join(example)).current_dir(root());
    let Ok(output) = command.output() else {
        eprintln!("SKIPPED {example} as {made}: there is no {compiler}");
        return false;
    };
    assert!(output.status.success(), "{example}: {}", String::from_utf8_lossy(&output.stderr));
    true
}

const C: [&str; 5] = ["-O3", "-Wall", "-Werror", "-I", "include"];
const MODULE: [&str; 5] = ["--target=wasm32", "-msimd128", "-nostdlib", "-fno-builtin", "-Wl,--no-entry"];
const LIBRARY: [&str; 2] = ["-shared", "-fPIC"];

/// A mounted volume with the files that the stages read; root alone may have links run code.
fn mounted() -> Option<Place> {
    let place = Place::to_mount()?;
    if !is_root() {
        eprintln!("SKIPPED stages in links: needs root");
        return None;
    }
    place.mounted();
    place.sh("seq 200000 >numbers; gzip -k numbers; mkdir logs; echo says | gzip >logs/b.gz").well();
    Some(place)
}

#[track_caller]
fn link(place: &Place, paths: &[&str], network: &str) {
    let paths: Vec<String> = paths.iter().map(|path| format!("m/{path}")).collect();
    let paths: Vec<&str> = paths.iter().map(String::as_str).collect();
    place.weft(&[&["link", "-n", network], &paths[..]].concat()).well();
}

/// Bytes of `file` as the stage `increment` gives them.
fn incremented(file: &str) -> String {
    format!("tr '\\000-\\377' '\\001-\\377\\000' <{file}")
}

/// Checks that what is written to a link, made by `network` from `m/numbers` and `code`, reaches
/// its target through what undoes the network.
fn writes_through(place: &Place, code: &str, network: &str) {
    place.sh("cp numbers to.write").well();
    link(place, &["to.write", code, "written"], network);
    let file = fs::File::options().write(true).open(place.path("m/written")).unwrap();
    file.write_all_at(b"2345", 8).unwrap();
    drop(file);
    place.same("dd if=to.write bs=1 skip=8 count=4 2>/dev/null", "printf 1234");
}

/// True if `m/weft.log` has a line with `words`.
fn is_logged(place: &Place, words: &str) -> bool {
    fs::read_to_string(place.path("v/weft.log")).unwrap().contains(words)
}

#[test]
fn examples_in_c_work_as_modules() {
    let Some(place) = mounted() else { return };
    for name in ["identity", "increment", "xor", "upper"] {
        let (example, made) = (format!("{name}.c"), format!("{name}.wasm"));
        if !build(&place, "clang", &[&C[..], &MODULE].concat(), &example, &made) {
            return;
        }
    }
    let network = r#"wasm -p -u "wasm -p \$2 255" $2 1"#;
    let said = place.weft(&["link", "m/numbers", "m/increment.wasm", "m/added", "-n", network]);
    said.misused(&["'$2' is not a file that holds a module"]);
    link(&place, &["numbers", "increment.wasm", "added"], "wasm -p -u 'wasm -p $2 255' $2 1");
    place.same("cat added", &incremented("numbers"));
    place.same("\"$0\" run -n 'wasm $1 255 | increment' increment.wasm <numbers", "cat numbers");
    writes_through(&place, "increment.wasm", "wasm -p -u 'wasm -p $2 255' $2");
    link(&place, &["numbers", "increment.wasm", "refuses"], "wasm $2 word");
    place.sh("cat refuses").fails_with("Input/output error");
    assert!(is_logged(&place, "failed: wasm $2 word: the amount is no number"));

    link(&place, &["numbers", "xor.wasm", "secret"], "wasm -l $2 key");
    link(&place, &["secret", "xor.wasm", "clear"], "wasm -l $2 key");
    place.same("cat clear", "cat numbers");
    let view = ["link", "--dir", "m/logs", "m/xor.wasm", "m/view", "--only", r"\.gz$"];
    place.weft(&[&view[..], &["-n", "gzip -d | wasm $2 key | wasm $2 key"]].concat()).well();
    place.same("cat view/b.gz", "echo says");
    place.umount();
}

#[test]
fn examples_in_other_languages_work_as_modules() {
    let Some(place) = mounted() else { return };
    let target = "wasm32-unknown-unknown";
    let sysroot = Command::new("rustc").args(["--print", "sysroot"]).output();
    let sysroot = sysroot.map(|output| String::from_utf8(output.stdout).unwrap()).unwrap_or_default();
    if Path::new(sysroot.trim()).join("lib/rustlib").join(target).is_dir() {
        let rust = ["--edition", "2024", "--target", target, "--crate-type", "cdylib", "-O", "-C", "panic=abort"];
        assert!(build(&place, "rustc", &rust, "words.rs", "words.wasm"));
        link(&place, &["numbers.gz", "words.wasm", "words"], "gzip -d | wasm $2 | tail -1");
        place.same("cat words", "echo 200000");
    } else {
        eprintln!("SKIPPED words.rs as a module: rustup target add {target}");
    }
    let compiler = root().join("target/tools/node_modules/.bin/asc");
    let script = ["--runtime", "stub", "--use", "abort=", "--optimize"];
    if build(&place, compiler.to_str().unwrap(), &script, "upper.ts", "upper.wasm") {
        place.same("echo Text | \"$0\" run -n 'wasm -p $1' upper.wasm", "echo TEXT");
    }
    place.umount();
}

/// A library that crashes, and hangs if it has an argument.
const CRASHES: &str = r#"#include "weft_stage.h"
    static int hangs;
    uint32_t weft_begin(unsigned char *words, uint32_t len) { hangs = len > 0; return 0; }
    weft_given weft_advance(unsigned char *input, uint32_t len, uint32_t is_last) {
        while (hangs); *(volatile char *)0 = 1; return weft_give(input, len, 0);
    }"#;

/// Numbers of the processes that run libraries for the daemon of `m`.
fn runners(place: &Place) -> Vec<String> {
    let daemon = place.daemon().to_string();
    let found = Command::new("pgrep").args(["-P", &daemon, "-f", "run-library"]).output().unwrap();
    String::from_utf8(found.stdout).unwrap().lines().map(str::to_owned).collect()
}

/// Builds the libraries; false, with a loud message, where none can be built or run.
fn build_libraries(place: &Place) -> bool {
    for name in ["identity", "increment", "xor", "upper"] {
        let (example, made) = (format!("{name}.c"), format!("{name}.so"));
        if !build(place, "cc", &[&C[..], &LIBRARY].concat(), &example, &made) {
            return false;
        }
    }
    let rust = ["--edition", "2024", "--crate-type", "cdylib", "-O"];
    assert!(build(place, "rustc", &rust, "words.rs", "words.so"));
    let mut compiler = Command::new("cc");
    compiler.args(LIBRARY).args(["-I", "include", "-x", "c", "-", "-o"]).arg(place.path("m/crashes.so"));
    let mut compiler = compiler.current_dir(root()).stdin(Stdio::piped()).spawn().unwrap();
    compiler.stdin.take().unwrap().write_all(CRASHES.as_bytes()).unwrap();
    assert!(compiler.wait().unwrap().success());
    let said = place.sh("\"$0\" run -n 'library $1' identity.so </dev/null");
    for why in ["what is confined cannot be run here", "this build of weft is static"] {
        if said.err.contains(why) {
            eprintln!("SKIPPED libraries in links: {why}");
        }
    }
    said.code == 0
}

#[test]
fn examples_work_as_libraries_and_a_bad_one_harms_its_link_alone() {
    let Some(place) = mounted() else { return };
    if !build_libraries(&place) {
        return;
    }
    link(&place, &["numbers", "increment.so", "more"], "library -p -u 'library -p $2 255' $2");
    place.same("cat more", &incremented("numbers"));
    // One that is killed while it waits is not missed.
    let killed = Command::new("kill").arg("-9").args(runners(&place)).status().unwrap();
    assert!(killed.success());
    place.same("dd if=more iflag=direct bs=1M 2>/dev/null", &incremented("numbers"));
    writes_through(&place, "increment.so", "library -p -u 'library -p $2 255' $2");
    let view = ["link", "--dir", "m/logs", "m/xor.so", "m/view", "--only", r"\.gz$"];
    place.weft(&[&view[..], &["-n", "gzip -d | library $2 key | library -l $2 key"]].concat()).well();
    place.same("cat view/b.gz", "echo says");
    link(&place, &["numbers.gz", "words.so", "words"], "gzip -d | library $2 | tail -1");
    place.same("cat words", "echo 200000");
    place.same("echo text | \"$0\" run -n 'library -p $1 | library $2 k | xor 107' upper.so xor.so", "echo TEXT");

    link(&place, &["numbers", "crashes.so", "crash"], "library $2");
    link(&place, &["numbers", "crashes.so", "hang"], "library -t 1 $2 hang");
    place.sh("cat crash").fails_with("Input/output error");
    assert!(is_logged(&place, "failed: library $2: the library's process has ended with signal: 11"));
    place.sh("cat hang").fails_with("timed out");
    place.same("cat more", &incremented("numbers"));
    let pid = runners(&place).remove(0);
    let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    assert!(status.contains("\nUid:\t65534\t65534\t65534\t") && status.contains("\nSeccomp:\t2\n"), "{status}");
    place.umount();
}

#[test]
fn more_libraries_are_read_in_part_than_processes_can_run() {
    let Some(place) = mounted() else { return };
    if !build_libraries(&place) {
        return;
    }
    place.sh("mkdir many; for name in {1..150}; do cp numbers many/$name; done").well();
    place.weft(&["link", "--dir", "m/many", "m/xor.so", "m/hidden", "-n", "library -l $2 key"]).well();
    place.sh("for file in hidden/*; do head -c 1 $file >/dev/null || exit 1; done").well();
    place.same("cat hidden/1", "\"$0\" run -n 'library $1 key' xor.so <numbers");
    place.umount();
}
