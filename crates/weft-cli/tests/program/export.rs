//! `weft export` where something goes wrong: missing files are named, and each file that is there
//! is whole.

use crate::place::{Place, is_root};
use crate::transfer::assert_same;
use crate::tree;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileExt, MetadataExt, PermissionsExt};
use std::path::Path;
use std::process::Command;

/// Makes volume `v` of directory `from`.
fn volume_of(place: &Place) {
    place.weft(&["init", "v"]).well();
    place.weft(&["import", "from", "v"]).well();
}

/// Damages the first bytes of the first segment.
pub fn damage(place: &Place) {
    let segments = place.path("v/segments");
    let first = std::fs::read_dir(segments).unwrap().map(|entry| entry.unwrap().path()).min().unwrap();
    let segment = std::fs::OpenOptions::new().write(true).open(first).unwrap();
    segment.write_all_at(b"damage", 1000).unwrap();
}

fn names(directory: &Path) -> Vec<String> {
    let entries = std::fs::read_dir(directory).unwrap();
    let mut names: Vec<_> = entries.map(|entry| entry.unwrap().file_name().to_string_lossy().into_owned()).collect();
    names.sort();
    names
}

#[test]
fn a_link_that_gives_nothing_is_named_and_counted_and_the_exit_code_says_so() {
    let place = Place::new();
    std::fs::write(place.directory("from").join("file"), "no gzip\n").unwrap();
    volume_of(&place);
    place.weft(&["link", "v:file", "v:good", "--network", "upper"]).well();
    place.weft(&["link", "v:file", "v:bad", "--network", "gzip -d"]).well();
    // Its length is not known before it is read.
    place.weft(&["link", "v:file", "v:lazy", "--lazy", "--network", "grep gzip"]).well();
    let said = place.weft(&["export", "--json", "v", "out"]);
    assert!(said.err.contains("weft: out/bad: not exported: the transformation link gives nothing"), "{}", said.err);
    let summary = said.partly();
    assert_eq!(
        (&summary["files"], &summary["failed"]["links"], &summary["complete"]),
        (&3.into(), &1.into(), &false.into())
    );
    assert_eq!(
        (&summary["failures"][0]["path"], &summary["failures"][0]["kind"]),
        (&"out/bad".into(), &"links".into())
    );
    assert_eq!(names(&place.path("out")), ["file", "good", "lazy"]);
    assert_eq!(std::fs::read(place.path("out/lazy")).unwrap(), b"no gzip\n");
    assert_eq!(std::fs::read(place.path("out/good")).unwrap(), b"NO GZIP\n");
}

#[test]
fn a_damaged_file_is_left_out_by_all_of_its_names_and_the_rest_is_there() {
    let place = Place::new();
    let from = place.directory("from");
    std::fs::write(from.join("one"), [7; 100_000]).unwrap();
    std::fs::hard_link(from.join("one"), from.join("two")).unwrap();
    std::fs::write(from.join("whole"), "whole").unwrap();
    volume_of(&place);
    damage(&place);
    let said = place.weft(&["export", "--json", "v", "out"]);
    assert!(said.err.contains("out/one: not exported: damaged"), "{}", said.err);
    assert!(said.err.contains("out/two: not exported: damaged"), "{}", said.err);
    let summary = said.partly();
    assert_eq!((&summary["damaged"], &summary["failed"]["files"]), (&2.into(), &2.into()));
    assert_eq!(names(&place.path("out")), ["whole"]);
}

#[test]
fn an_export_goes_on_where_it_ended_and_replaces_nothing() {
    let place = Place::new();
    let from = place.directory("from");
    let was = tree::make(&from);
    place.weft(&["init", "v"]).well();
    place.weft(&["import", "from", "v:tree"]).well();
    place.weft(&["export", "v:tree", "out"]).well();
    let out = place.path("out");
    // As kill -9 leaves it, and as a user does.
    std::fs::remove_file(out.join("deep/er/and deeper/large")).unwrap();
    std::fs::write(out.join("deep/.weft-export-0123456789abcdef.part"), "half").unwrap();
    std::fs::remove_file(out.join("nothing")).unwrap();
    std::fs::write(out.join("nothing"), "mine").unwrap();
    std::fs::remove_file(out.join("dangling")).unwrap();
    std::os::unix::fs::symlink("mine", out.join("dangling")).unwrap();
    let said = place.weft(&["export", "--continue", "--json", "v:tree", "out"]);
    for name in ["out/nothing", "out/dangling"] {
        assert!(said.err.contains(&format!("{name}: not exported: something else of that name")), "{}", said.err);
    }
    let summary = said.partly();
    assert_eq!(
        (&summary["files"], &summary["failed"]["files"], &summary["failed"]["symlinks"]),
        (&1.into(), &1.into(), &1.into())
    );
    assert_eq!(std::fs::read(out.join("nothing")).unwrap(), b"mine");
    assert_eq!(names(&out.join("deep")), ["er"]);
    for name in ["nothing", "dangling"] {
        std::fs::remove_file(out.join(name)).unwrap();
    }
    let summary = place.weft(&["export", "--continue", "--json", "v:tree", "out"]).json();
    assert_eq!((&summary["files"], &summary["others"], &summary["complete"]), (&1.into(), &1.into(), &true.into()));
    assert_same(&was, &out);
}

#[test]
fn a_symbolic_link_in_the_way_leads_an_export_nowhere() {
    let place = Place::new();
    let from = place.directory("from");
    std::fs::create_dir(from.join("directory")).unwrap();
    std::fs::write(from.join("directory/file"), "theirs").unwrap();
    std::fs::write(from.join("file"), "theirs").unwrap();
    volume_of(&place);
    let (out, elsewhere) = (place.directory("out"), place.directory("elsewhere"));
    std::fs::write(elsewhere.join("victim"), "mine").unwrap();
    std::os::unix::fs::symlink("../elsewhere", out.join("directory")).unwrap();
    std::os::unix::fs::symlink("../elsewhere/victim", out.join("file")).unwrap();
    let summary = place.weft(&["export", "--continue", "--json", "v", "out"]).partly();
    assert_eq!((&summary["failed"]["directories"], &summary["failed"]["files"]), (&1.into(), &1.into()));
    assert_eq!(names(&elsewhere), ["victim"]);
    assert_eq!(std::fs::read(elsewhere.join("victim")).unwrap(), b"mine");
}

#[test]
fn an_interrupted_export_leaves_only_whole_files_and_goes_on() {
    const COUNT: usize = 400;
    let place = Place::new();
    let from = place.directory("from");
    for number in 0..COUNT {
        std::fs::write(from.join(number.to_string()), vec![7; 10_000]).unwrap();
    }
    volume_of(&place);
    let out = place.path("out");
    let has_begun = || std::fs::read_dir(&out).is_ok_and(|mut entries| entries.next().is_some());
    let said = place.interrupted(&["export", "--json", "v", "out"], has_begun);
    let summary: serde_json::Value = serde_json::from_str(&said.out).unwrap();
    assert_eq!(summary["ended"], if said.code == 0 { serde_json::Value::Null } else { "interrupted".into() });
    for name in names(&out) {
        assert!(!name.starts_with(".weft"), "{name}");
        assert_eq!(std::fs::metadata(out.join(name)).unwrap().len(), 10_000);
    }
    assert_eq!(names(&out).len() as u64, summary["files"].as_u64().unwrap());
    let rest = place.weft(&["export", "--continue", "--json", "v", "out"]).json();
    assert_eq!(rest["files"].as_u64().unwrap() + rest["kept"].as_u64().unwrap(), COUNT as u64);
    assert_eq!(names(&out).len(), COUNT);
}

#[test]
fn the_first_signal_ends_an_export_while_a_link_computes() {
    let place = Place::new();
    let from = place.directory("from");
    std::fs::File::create(from.join("file")).unwrap().set_len(1 << 42).unwrap();
    place.weft(&["init", "v"]).well();
    place.weft(&["import", "from", "v"]).well();
    place.weft(&["link", "v:/file", "v:/sum", "-n", "sha256"]).well();
    std::fs::create_dir(place.path("out")).unwrap();
    // Nobody waits for hours if it does not end.
    let mut command = std::process::Command::new("timeout");
    let export = ["export", "--json", "v", "out"];
    // In the foreground it hands a signal on once; else to the whole group again, and a second one
    // ends an export at once.
    command.args(["--foreground", "--signal=KILL", "30", env!("CARGO_BIN_EXE_weft")]);
    command.args(export).current_dir(place.path(""));
    let child = command.stdout(std::process::Stdio::piped()).stderr(std::process::Stdio::piped()).spawn().unwrap();
    let is_computing = || std::fs::read_dir(place.path("out")).unwrap().count() > 0;
    while !is_computing() {
        std::thread::yield_now();
    }
    // It hands the signal on.
    let pid = rustix::process::Pid::from_child(&child);
    rustix::process::kill_process(pid, rustix::process::Signal::TERM).unwrap();
    let said = crate::place::Said::from(child.wait_with_output().unwrap());
    assert_eq!(said.code, 143, "{said:?}");
    let summary: serde_json::Value = serde_json::from_str(&said.out).unwrap();
    assert_eq!((&summary["ended"], &summary["failed"]["links"]), (&"interrupted".into(), &0.into()), "{summary}");
    assert!(!place.path("out/sum").exists());
}

#[test]
fn a_full_disk_ends_an_export_with_a_summary_and_leaves_only_whole_files() {
    let test = "a_full_disk_ends_an_export_with_a_summary_and_leaves_only_whole_files";
    let place = Place::new();
    let from = place.directory("from");
    for number in 0..8 {
        std::fs::write(from.join(number.to_string()), vec![7; 200_000]).unwrap();
    }
    volume_of(&place);
    place.directory("out");
    // A file system of its own, which nobody else knows and which is gone with the last process.
    let script = "mount -t tmpfs -o size=1m none out || exit 77
        \"$0\" export --json v out; echo \"code $?\"; stat -c '%s %n' $(find out -type f)";
    let mut command = Command::new("unshare");
    command.args(["-m", "sh", "-c", script, env!("CARGO_BIN_EXE_weft")]).current_dir(place.path(""));
    let output = match command.output() {
        Ok(output) if is_root() && output.status.code() != Some(77) => output,
        _ => return eprintln!("SKIPPED {test}: needs root and tmpfs"),
    };
    let (out, err) = (String::from_utf8(output.stdout).unwrap(), String::from_utf8(output.stderr).unwrap());
    let mut lines = out.lines();
    let summary: serde_json::Value = serde_json::from_str(lines.next().unwrap()).unwrap();
    assert_eq!((&summary["ended"], &summary["complete"]), (&"full".into(), &false.into()), "{out}{err}");
    assert_eq!(lines.next(), Some("code 2"));
    assert!(err.contains("No space left on device") && err.contains("there is no room for more"), "{err}");
    let left: Vec<_> = lines.collect();
    assert!(left.iter().all(|line| line.starts_with("200000 out/") && !line.contains(".weft")), "{left:?}");
    assert_eq!(left.len() as u64, summary["files"].as_u64().unwrap());
}

#[test]
fn attributes_that_cannot_be_set_are_named_and_owners_are_counted() {
    let test = "attributes_that_cannot_be_set_are_named_and_owners_are_counted";
    if !is_root() {
        return eprintln!("SKIPPED {test}: needs root to become another user");
    }
    let place = Place::new();
    let from = place.directory("from");
    std::fs::write(from.join("file"), "").unwrap();
    std::fs::set_permissions(from.join("file"), PermissionsExt::from_mode(0o6755)).unwrap();
    let set = |name: &str| rustix::fs::lsetxattr(from.join("file"), name, b"x", rustix::fs::XattrFlags::empty());
    if let Err(error) = set("trusted.weft") {
        return eprintln!("SKIPPED {test}: trusted.weft: {error}");
    }
    place.weft(&["init", "v", "--blocks", "database"]).well();
    place.weft(&["import", "from", "v"]).well();
    let said = place.weft_as_nobody(&["export", "--json", "v", "out"]);
    assert!(said.err.contains("out/file: attribute trusted.weft cannot be set there"), "{}", said.err);
    let summary = said.partly();
    assert_eq!((&summary["failed"]["attributes"], &summary["files"]), (&1.into(), &1.into()));
    assert_eq!((&summary["failed"]["owners"], &summary["owners_not_kept"]), (&0.into(), &2.into()));
    // Nobody gets another's set-user-id program as their own.
    let program = place.path("out/file").metadata().unwrap();
    assert_eq!((program.uid(), program.mode() & 0o7777), (65534, 0o755));
}

#[test]
fn an_ordinary_user_does_not_get_anothers_set_user_id_program_as_their_own() {
    let test = "an_ordinary_user_does_not_get_anothers_set_user_id_program_as_their_own";
    if !is_root() {
        return eprintln!("SKIPPED {test}: needs root to become another user");
    }
    let place = Place::new();
    let from = place.directory("from");
    std::fs::write(from.join("program"), "").unwrap();
    std::fs::set_permissions(from.join("program"), PermissionsExt::from_mode(0o6755)).unwrap();
    place.weft(&["init", "v", "--blocks", "database"]).well();
    place.weft(&["import", "from", "v"]).well();
    let told = place.weft_as_nobody(&["export", "v", "out"]).well();
    assert!(told.contains("2 owners were not kept"), "{told}");
    let program = place.path("out/program").metadata().unwrap();
    assert_eq!((program.uid(), program.mode() & 0o7777), (65534, 0o755));
}

#[test]
fn root_makes_no_rights_true_that_a_volume_of_another_user_claims() {
    let test = "root_makes_no_rights_true_that_a_volume_of_another_user_claims";
    if !is_root() {
        return eprintln!("SKIPPED {test}: needs root");
    }
    use rustix::fs::{CWD, FileType, Mode, XattrFlags, makedev, mknodat, setxattr};
    let place = Place::new();
    let from = place.directory("from");
    for (name, owner, mode) in [("roots", 0, 0o6755), ("own", 65534, 0o4755), ("group", 65534, 0o2755)] {
        std::fs::write(from.join(name), "").unwrap();
        std::os::unix::fs::chown(from.join(name), Some(owner), Some(owner)).unwrap();
        std::fs::set_permissions(from.join(name), PermissionsExt::from_mode(mode)).unwrap();
    }
    let may_raw = b"\x01\0\0\x02\0\x20\0\0\0\0\0\0\0\0\0\0\0\0\0\0";
    setxattr(from.join("own"), "security.capability", may_raw, XattrFlags::empty()).unwrap();
    setxattr(from.join("own"), "trusted.overlay.redirect", b"/etc", XattrFlags::empty()).unwrap();
    mknodat(CWD, from.join("disk"), FileType::BlockDevice, Mode::from_raw_mode(0o666), makedev(7, 77)).unwrap();
    place.weft(&["init", "v", "--blocks", "database"]).well();
    place.weft(&["import", "from", "v"]).well();
    let mode = |name: &str| place.path(name).metadata().unwrap().mode() & 0o7777;
    place.weft(&["export", "v", "of-root"]).well();
    assert_eq!(mode("of-root/roots"), 0o6755);
    assert!(place.path("of-root/disk").exists());
    std::os::unix::fs::chown(place.path("v"), Some(65534), Some(65534)).unwrap();
    std::fs::set_permissions(place.path(""), PermissionsExt::from_mode(0o1777)).unwrap();
    let said = place.weft(&["export", "v", "out", "--json"]);
    let told = [
        "out/roots: set-user-id",
        "out/group: set-group-id",
        "out/own: security.capability",
        "out/own: trusted.overlay.redirect",
        "out/disk: a device",
    ];
    assert!(told.iter().all(|word| said.err.contains(word)), "{said:?}");
    assert_eq!(said.partly()["failures"].as_array().unwrap().len(), 5);
    assert_eq!(["out/roots", "out/own", "out/group"].map(mode), [0o755, 0o4755, 0o755]);
    assert!(!place.path("out/disk").exists());
    for name in ["security.capability", "trusted.overlay.redirect"] {
        let mut value = [0; 64];
        assert!(rustix::fs::getxattr(place.path("out/own"), name, &mut value).is_err(), "{name}");
        assert!(rustix::fs::getxattr(place.path("of-root/own"), name, &mut value).is_ok(), "{name}");
    }
}

#[test]
fn names_that_cannot_be_printed_are_escaped_in_messages_and_told_exactly_in_json() {
    let place = Place::new();
    let from = place.directory("from");
    let name = std::ffi::OsStr::from_bytes(b"a\n\x1b[2J\xff");
    std::fs::write(from.join(name), "theirs").unwrap();
    volume_of(&place);
    let out = place.directory("out");
    std::fs::write(out.join(name), "mine").unwrap();
    let said = place.weft(&["export", "--continue", "--json", "v", "out"]);
    assert_eq!(said.err.lines().count(), 1, "{}", said.err);
    assert!(said.err.starts_with("weft: out/a\\n\\x1b[2J\\xff: not exported"), "{}", said.err);
    assert_eq!(said.partly()["failures"][0]["path_hex"], "6f75742f610a1b5b324aff");
}

/// Rows of a damaged volume, each of them whole, may say so.
#[test]
fn a_directory_that_lies_in_itself_is_named_and_the_rest_is_there() {
    let place = Place::new();
    let from = place.directory("from");
    std::fs::create_dir_all(from.join("a/b/c")).unwrap();
    std::fs::create_dir(from.join("second")).unwrap();
    std::fs::write(from.join("a/b/file"), "in it").unwrap();
    std::fs::write(from.join("z"), "behind it").unwrap();
    volume_of(&place);
    let named = |name: &str| format!("(SELECT ino FROM naming WHERE name = CAST('{name}' AS BLOB))");
    let volume = place.path("v");
    weft_store::sqlite::edit(
        &volume,
        &format!(
            "UPDATE naming SET ino = {} WHERE name = CAST('c' AS BLOB); \
             UPDATE naming SET ino = {} WHERE name = CAST('second' AS BLOB)",
            named("a"),
            named("b")
        ),
    )
    .unwrap();
    weft_store::sqlite::seal(&volume).unwrap();
    let said = place.weft(&["export", "--json", "v", "out"]);
    let (errors, summary) = (said.err.clone(), said.partly());
    for path in ["out/a/b", "out/second/c"] {
        assert!(errors.contains(&format!("{path}: not exported: this directory lies in itself")), "{errors}");
    }
    assert_eq!((&summary["damaged"], &summary["failed"]["directories"]), (&2.into(), &2.into()), "{summary}");
    assert_eq!(std::fs::read(place.path("out/z")).unwrap(), b"behind it");
    assert_eq!(std::fs::read(place.path("out/second/file")).unwrap(), b"in it");
    place.weft(&["digest", "--read", "v:"]).failed(&["lies in itself, or has two names: the volume is damaged"]);
    place.weft(&["digest", "--read", "v:a"]).failed(&["lies in itself, or has two names: the volume is damaged"]);
    place.weft(&["diff", "--read", "v:", "out"]).could_not(&["lies in itself"]);
    place.weft(&["prove", "--read", "v:", "a/b/file"]).failed(&["lies in itself"]);
}
