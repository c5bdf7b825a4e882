//! The standard output of commands where it cannot be written: no panic, and no work left undone.

use crate::place::{Place, Said};
use std::fs::File;
use std::process::Stdio;

/// Runs `weft` with a standard output that has no room for anything.
fn to_a_full_disk(place: &Place, arguments: &[&str]) -> Said {
    let full = File::options().write(true).open("/dev/full").unwrap();
    place.command(arguments).stdout(full).output().unwrap().into()
}

/// Runs `weft` with a standard output that nobody reads any more; tells the signal that ended it.
fn to_nobody(place: &Place, arguments: &[&str]) -> (Said, Option<i32>) {
    use std::os::unix::process::ExitStatusExt;
    let (reader, writer) = std::io::pipe().unwrap();
    drop(reader);
    let output = place.command(arguments).stdout(writer).stderr(Stdio::piped()).output().unwrap();
    let signal = output.status.signal();
    (output.into(), signal)
}

fn filled() -> Place {
    let place = Place::new();
    let from = place.directory("from");
    place.directory("empty");
    std::fs::write(from.join("file"), "content").unwrap();
    place.weft(&["init", "v"]).well();
    place.weft(&["import", "from", "v"]).well();
    place.weft(&["history", "set", "v", "all forever"]).well();
    place.weft(&["history", "exclude", "v", "target"]).well();
    place.weft(&["snapshot", "create", "v", "one"]).well();
    place.weft(&["import", "from", "v:gone"]).well();
    place.weft(&["snapshot", "restore", "v", "one"]).well();
    place
}

const LOST: &str = "the report could not be written to the standard output";

#[test]
fn commands_that_only_print_say_that_they_could_not() {
    let place = filled();
    for arguments in [
        &["check", "v"][..],
        &["check", "--json", "v"],
        &["info", "v"],
        &["log", "v"],
        &["snapshot", "list", "v"],
        &["snapshot", "restore", "v", "one", "--dry-run"],
        &["restore", "v:", "--at", "one", "--dry-run"],
        &["undelete", "v:gone", "--dry-run"],
        &["undelete", "--list", "v:"],
        &["history", "exclude", "v", "--list"],
        &["scrub", "v"],
        &["stages"],
        &["digest", "v:"],
        &["diff", "v:", "empty"],
        &["--help"],
        &["check", "--help"],
        &["--version"],
        &["man"],
        &["completions", "bash"],
    ] {
        let said = to_a_full_disk(&place, arguments);
        let code = if arguments[0] == "diff" { 1 } else { 2 };
        assert_eq!(said.code, code, "{arguments:?}: {said:?}");
        assert!(said.err.contains(LOST) && said.err.lines().count() == 1, "{arguments:?}: {said:?}");
        let (said, signal) = to_nobody(&place, arguments);
        assert_eq!((said.err.as_str(), signal), ("", Some(13)), "{arguments:?}: {said:?}");
    }
}

#[test]
fn commands_that_write_a_volume_finish_it_whatever_becomes_of_their_report() {
    let place = filled();
    let ways: [fn(&Place, &[&str]) -> Said; 2] = [to_a_full_disk, |place, arguments| to_nobody(place, arguments).0];
    for (number, way) in ways.into_iter().enumerate() {
        let name = |name: &str| format!("{name}{number}");
        let (converted, salvaged, exported, made) =
            (name("converted"), name("salvaged"), name("exported"), name("made"));
        for arguments in [
            &["init", &made][..],
            &["import", "from", &made],
            &["convert", "v", &converted, "--blocks", "database"],
            &["check", "--salvage", "v", &salvaged],
            &["export", "v", &exported],
            &["check", "--repair", "v"],
        ] {
            let said = way(&place, arguments);
            assert_eq!(said.code, 1, "{arguments:?}: {said:?}");
            assert!(said.err.contains(LOST) && said.err.lines().count() == 1, "{arguments:?}: {said:?}");
        }
        for volume in [&made, &converted, &salvaged] {
            place.weft(&["diff", "from", &format!("{volume}:")]).well();
        }
        place.weft(&["diff", "from", &exported]).well();
    }
}

#[test]
fn commands_that_do_something_tell_it_as_json_too() {
    let Some(place) = Place::to_mount() else { return };
    let told = place.weft(&["init", "--json", "--size-max", "1G", "v"]).json();
    assert_eq!((&told["volume"], &told["options"]["bytes_max"]), (&"v".into(), &(1_u64 << 30).into()));
    assert_eq!(place.weft(&["upgrade", "--json", "v"]).json()["changed"], false);
    place.directory("m");
    place.mount();
    std::fs::write(place.path("m/file"), "content").unwrap();
    let commit = place.weft(&["sync", "--json", "m"]).json()["commit"].as_u64().unwrap();
    place.weft(&["keygen", "--no-password", "--json", "secret", "public"]).json();
    let signed = place.weft(&["sign", "--json", "--key", "secret", "--output", "signed", "m"]).json();
    assert!(signed["commit"].as_u64().unwrap() >= commit, "{signed}");
    let verified = place.weft(&["verify", "--json", "--key", "public", "signed", "--volume", "m"]).json();
    assert_eq!((&verified["root"], &verified["volume_holds_it"]), (&signed["root"], &true.into()));
    place.umount();
}
