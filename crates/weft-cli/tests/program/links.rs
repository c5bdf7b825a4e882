//! `weft link`.

use crate::place::{Place, is_root};
use std::io::Read;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::process::{Command, Stdio};

#[test]
fn a_link_to_what_has_no_bytes_is_refused() {
    let Some(place) = Place::to_mount() else { return };
    let directory = place.mounted();
    std::fs::create_dir(directory.join("d")).unwrap();
    std::fs::write(directory.join("file"), "abc").unwrap();
    std::os::unix::fs::symlink("file", directory.join("to-file")).unwrap();
    std::os::unix::fs::symlink("d", directory.join("to-d")).unwrap();
    rustix::fs::mknodat(rustix::fs::CWD, directory.join("pipe"), rustix::fs::FileType::Fifo, rustix::fs::Mode::RUSR, 0)
        .unwrap();
    place.weft(&["link", "m/d", "m/new", "-n", "upper"]).failed(&["m/d is a directory", "--dir"]);
    place.weft(&["link", "m/to-d", "m/new", "-n", "upper"]).failed(&["m/to-d is a directory", "--dir"]);
    place.weft(&["link", "m/file", "m/d", "m/new", "-n", "zip($1, $2)"]).failed(&["m/d is a directory"]);
    place.weft(&["link", "m/pipe", "m/new", "-n", "upper"]).failed(&["m/pipe", "nothing can be read of it"]);
    place.weft(&["link", "--members", "m/d", "m/new", "-n", "identity"]).failed(&["m/d is a directory"]);
    place.weft(&["link", "--dir", "m/file", "m/new", "-n", "identity"]).failed(&["m/file is no directory"]);
    place.weft(&["link", "m/to-file", "m/one", "-n", "upper"]).well();
    place.weft(&["link", "m/one", "m/two", "-n", "increment"]).well();
    place.weft(&["link", "--dir", "m/to-d", "m/view", "-n", "upper"]).well();
    assert_eq!(std::fs::read_to_string(directory.join("two")).unwrap(), "BCD");
    place.weft(&["link", "m/view", "m/new", "-n", "upper"]).failed(&["m/view is a directory", "--dir"]);
    assert!(!directory.join("new").exists());
    place.umount();
    place.weft(&["link", "v:/d", "v:/new", "-n", "upper"]).failed(&["/d is a directory", "--dir"]);
    place.weft(&["link", "v:/pipe", "v:/new", "-n", "upper"]).failed(&["/pipe", "nothing can be read of it"]);
    place.weft(&["link", "--dir", "v:/one", "v:/new", "-n", "identity"]).failed(&["/one is no directory"]);
    place.weft(&["link", "v:/one", "v:/new", "-n", "upper"]).well();
}

#[test]
fn a_link_in_a_sticky_directory_of_another_user_is_refused_in_words() {
    let Some(place) = Place::to_mount() else { return };
    if !is_root() {
        return eprintln!("SKIPPED: needs root to become another user");
    }
    place.weft(&["init", "v"]).well();
    let directory = place.directory("m");
    place.weft(&["mount", "v", "m", "-o", "allow_other", "--links", "everybody"]).well();
    std::fs::write(directory.join("file"), "abc").unwrap();
    std::fs::set_permissions(&directory, PermissionsExt::from_mode(0o1777)).unwrap();
    let said = place.weft_as_stranger(&["link", "m/file", "m/new", "-n", "upper"]);
    said.failed(&["m has the sticky bit and is not yours", "move it there"]);
    // The advice works.
    std::fs::create_dir(directory.join("own")).unwrap();
    std::os::unix::fs::chown(directory.join("own"), Some(65534), Some(65534)).unwrap();
    place.weft_as_stranger(&["link", "m/file", "m/own/new", "-n", "upper"]).well();
    let (from, to) = (directory.join("own/new"), directory.join("new"));
    assert!(Command::new("mv").arg(from).arg(&to).uid(65534).gid(65534).status().unwrap().success());
    assert_eq!(std::fs::read_to_string(to).unwrap(), "ABC");
    place.umount();
}

#[test]
fn a_link_that_makes_no_sense_is_refused_and_nothing_is_left_of_it() {
    let Some(place) = Place::to_mount() else { return };
    let directory = place.mounted();
    std::fs::write(directory.join("file"), "abc").unwrap();
    let make = |target: &str, name: &str, network: &str| place.weft(&["link", target, name, "-n", network]);
    make("m/file", "m/counted", "wc -l").well();
    make("m/file", "m/counted", "upper").failed(&["File exists"]);
    make("m/file", "m/new", "wc -l| uppper").misused(&["no stage 'uppper'", "byte 7"]);
    make("m/nothing", "m/new", "upper").failed(&["cannot look at m/nothing"]);
    make("/etc/passwd", "m/new", "upper").failed(&["not in the same volume"]);
    make("m/file", "m/new", "upper | @none").misused(&["there is no network '@none', at byte 8"]);
    std::fs::write(directory.join("counted"), "x").unwrap_err();
    let mut names: Vec<_> = std::fs::read_dir(&directory).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    names.sort();
    assert_eq!(names, ["counted", "file"]);
    place.umount();

    place.weft(&["mount", "--writeback", "v", "m"]).well();
    let read = std::fs::read(directory.join("counted")).unwrap_err();
    assert_eq!(read.raw_os_error(), Some(libc::EOPNOTSUPP));
    make("m/file", "m/new", "upper").failed(&["mounts with --writeback have no links"]);
    place.weft(&["net", "push", "m/file", "-n", "upper"]).failed(&["(os error 95)"]);
    assert_eq!(std::fs::read(directory.join("file")).unwrap(), b"abc");
    place.umount();
}

/// Programs of the GNU coreutils ask again after EINTR.
#[test]
fn a_program_that_reads_an_endless_link_keeps_no_mount() {
    let Some(place) = Place::to_mount() else { return };
    place.weft(&["init", "v"]).well();
    let directory = place.directory("m");
    place.weft(&["mount", "--opens", "v", "m"]).well();
    std::fs::File::create(directory.join("holes")).unwrap().set_len(100 << 30).unwrap();
    place.weft(&["link", "m/holes", "m/endless", "--lazy", "-n", "upper | base64"]).well();
    let mut reading = Command::new("cat").arg(directory.join("endless")).stdout(Stdio::piped()).spawn().unwrap();
    let mut first = [0; 4096];
    let mut read = reading.stdout.take().unwrap();
    read.read_exact(&mut first).unwrap();
    let rest = std::thread::spawn(move || std::io::copy(&mut read, &mut std::io::sink()));
    place.weft(&["umount", "m"]).well();
    assert!(!reading.wait().unwrap().success());
    rest.join().unwrap().unwrap();
}

#[test]
fn links_by_the_name_of_a_network_have_what_it_stood_for() {
    let Some(place) = Place::to_mount() else { return };
    let directory = place.mounted();
    std::fs::create_dir(directory.join("d")).unwrap();
    std::fs::write(directory.join("file"), "a 1\nb 2\na 3\n").unwrap();
    let net = |arguments: &[&str]| place.weft(&[&["net"], arguments].concat());
    net(&["define", "some", "grep a", "m/d"]).well();
    net(&["define", "last", "@some | tail -1", "m"]).well();
    let listed = "last\t@some | tail -1\nsome\tgrep a\n";
    assert_eq!(net(&["list", "m"]).well(), listed);
    place.weft(&["link", "m/file", "m/link", "-n", "@last | upper"]).well();
    let shown = place.weft(&["link", "--show", "m/link"]).well();
    assert_eq!(shown.lines().nth(1), Some("network  grep a | tail -1 | upper"), "{shown}");
    assert_eq!(place.weft(&["run", "--of", "m", "-n", "@last", "m/file"]).well(), "a 3\n");
    net(&["define", "own", "upper | @own", "m"]).misused(&["there is no network '@own'"]);
    net(&["remove", "last", "m"]).well();
    net(&["remove", "last", "m"]).failed(&["there is no network 'last'"]);
    assert_eq!(std::fs::read(directory.join("link")).unwrap(), b"A 3\n");
    place.umount();

    assert_eq!(net(&["list", "v"]).well(), "some\tgrep a\n");
    net(&["define", "head", "head -1", "v"]).well();
    assert_eq!(net(&["list", "--json", "v"]).json(), serde_json::json!({"head": "head -1", "some": "grep a"}));
    place.weft(&["link", "v:file", "v:first", "-n", "@head"]).well();
    place.mount();
    assert_eq!(std::fs::read(directory.join("first")).unwrap(), b"a 1\n");
    place.umount();
}
