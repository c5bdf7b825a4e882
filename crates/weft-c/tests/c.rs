//! C compilers accept the header and the examples, and the programs do what they are for. Without
//! compilers this fails: what C programs get would be unknown.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Runs `command`, which must succeed; its output.
fn run(command: &mut Command) -> String {
    let output = command.output().unwrap_or_else(|error| panic!("{command:?} cannot be run: {error}"));
    let (out, err) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "{command:?} failed: {}\n{out}{err}", output.status);
    out.into_owned()
}

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").canonicalize().expect("the sources are there")
}

/// Builds the library and lays it out below `prefix` as it is installed.
fn install(prefix: &Path) {
    let target = Path::new(env!("CARGO_TARGET_TMPDIR")).parent().expect("it lies in the target directory");
    // A library of this kind is no dependency of a test that cargo would build.
    run(Command::new(env!("CARGO"))
        .current_dir(root())
        .args(["build", "--quiet", "--locked", "--offline", "--package", "weft-c", "--target-dir"])
        .arg(target));
    let (lib, include) = (prefix.join("lib"), prefix.join("include"));
    fs::create_dir_all(lib.join("pkgconfig")).unwrap();
    fs::create_dir_all(&include).unwrap();
    fs::copy(target.join("debug/libweft.so"), lib.join("libweft.so.0")).unwrap();
    std::os::unix::fs::symlink("libweft.so.0", lib.join("libweft.so")).unwrap();
    fs::copy(target.join("debug/libweft.a"), lib.join("libweft.a")).unwrap();
    fs::copy(root().join("include/weft.h"), include.join("weft.h")).unwrap();
    let text = fs::read_to_string(root().join("crates/weft-c/weft.pc.in")).unwrap();
    let text = text.replace("@PREFIX@", prefix.to_str().unwrap()).replace("@VERSION@", env!("CARGO_PKG_VERSION"));
    fs::write(lib.join("pkgconfig/weft.pc"), text).unwrap();
}

#[test]
fn c_programs_compile_without_warnings_and_run() {
    let directory = tempfile::tempdir().unwrap();
    let prefix = directory.path();
    install(prefix);
    run(Command::new("make")
        .args(["-C", "examples/c", "CFLAGS=-O2 -Werror"])
        .arg(format!("BUILD={}", prefix.display()))
        .current_dir(root())
        .env("PKG_CONFIG_PATH", prefix.join("lib/pkgconfig")));
    let text = prefix.join("text");
    fs::write(&text, "a line\n".repeat(300_000)).unwrap();
    let program = |name: &str| {
        let mut command = Command::new(prefix.join(name));
        command.env("LD_LIBRARY_PATH", prefix.join("lib"));
        command
    };
    assert_eq!(run(program("lines").arg(&text)), "300000\n");
    assert_eq!(run(&mut program("pipe")), "32768000 numbers, sum right\n");
    let missing = program("lines").arg(prefix.join("missing")).output().unwrap();
    assert_eq!(String::from_utf8_lossy(&missing.stderr), "lines: No such file or directory\n");
}

/// Every function is called as the header declares it, with what is right and what is wrong.
#[test]
fn every_call_keeps_its_word() {
    let directory = tempfile::tempdir().unwrap();
    let prefix = directory.path();
    install(prefix);
    let (source, program) = (root().join("crates/weft-c/tests/calls.c"), prefix.join("calls"));
    let compile = |linking: &[&str]| {
        let mut command = Command::new("cc");
        command.args([
            "-std=c99",
            "-D_POSIX_C_SOURCE=200809L",
            "-Wall",
            "-Wextra",
            "-Wpedantic",
            "-Werror",
            "-g",
            concat!("-DEXPECTED_VERSION=\"", env!("CARGO_PKG_VERSION"), "\""),
            "-I",
        ]);
        command.arg(prefix.join("include")).arg("-o").arg(&program).arg(&source).arg("-L").arg(prefix.join("lib"));
        run(command.args(linking));
        run(Command::new(&program).arg(prefix.join("file")).env("LD_LIBRARY_PATH", prefix.join("lib")))
    };
    assert_eq!(compile(&["-lweft"]), "all calls keep their word\n");
    let kept = compile(&["-Wl,-Bstatic", "-lweft", "-Wl,-Bdynamic", "-lpthread", "-ldl", "-lm", "-lgcc_s"]);
    assert_eq!(kept, "all calls keep their word\n", "linked statically");
}

#[test]
fn the_header_is_cpp_too() {
    let directory = tempfile::tempdir().unwrap();
    let source = directory.path().join("header.cpp");
    fs::write(&source, "#include <weft.h>\nint main() { weft_rope_release(nullptr); }\n").unwrap();
    run(Command::new("c++")
        .args(["-Wall", "-Wextra", "-Wpedantic", "-Werror", "-fsyntax-only", "-I"])
        .arg(root().join("include"))
        .arg(source));
}
