//! `weft put`, `weft get`, `weft ls` and `weft cat` of paths in volumes that need not be mounted.

use crate::history::assert_described;
use crate::place::{Place, on_each_engine};
use std::fs;
use std::io::Write;
use std::process::Stdio;

/// A directory `tree` with what a copy can lose.
fn make_tree(place: &Place) {
    place.directory("m");
    let script = "set -e; cd ..; mkdir -p tree/sub/empty; seq 1 50000 >tree/sub/lines; ln tree/sub/lines tree/hard
                  ln -s sub/lines tree/link; printf '\\0' >tree/null; truncate -s 3M tree/holes; chmod 640 tree/null
                  mkdir tree/target; echo object >tree/target/o; echo alone >alone";
    let said = place.sh(script);
    assert_eq!(said.code, 0, "{said:?}");
}

/// Gives `input` to `weft` with `arguments` as the standard input.
fn fed(place: &Place, arguments: &[&str], input: &[u8]) -> crate::place::Said {
    let mut command = place.command(arguments);
    let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    child.stdin.take().unwrap().write_all(input).unwrap();
    child.wait_with_output().unwrap().into()
}

#[test]
fn what_is_put_is_there_and_what_is_got_is_the_same() {
    let place = Place::new();
    place.weft(&["init", "v"]).well();
    make_tree(&place);
    place.weft(&["put", "--exclude", "target", "tree", "alone", "v:some/where"]).well();
    assert_eq!(place.weft(&["ls", "v:"]).well(), "some\n");
    assert_eq!(place.weft(&["ls", "v:some/where"]).well(), "tree\nalone\n");
    assert_eq!(place.weft(&["cat", "v:some/where/alone"]).well(), "alone\n");
    place.directory("got");
    place.weft(&["get", "v:some/where/tree", "v:some/where/alone", "got"]).well();
    // The copy lacks what was left out, and has all times.
    let said = place.sh("cd ../tree && touch -r . ../stamp && rm -r target && touch -r ../stamp .");
    assert_eq!(said.code, 0, "{said:?}");
    assert_described(&place.path("tree"), &place.path("got/tree"));
    assert_eq!(fs::read_to_string(place.path("got/alone")).unwrap(), "alone\n");
    // Nothing that is there is replaced, unless that is asked for.
    fs::write(place.path("alone"), "other").unwrap();
    place.weft(&["put", "--json", "alone", "v:some/where"]).partly();
    place.weft(&["get", "--json", "v:some/where/alone", "got"]).partly();
    place.weft(&["put", "--overwrite", "alone", "v:some/where"]).well();
    assert_eq!(place.weft(&["cat", "v:some/where/alone"]).well(), "other");
    place.weft(&["check", "--read-data", "v"]).well();
}

#[test]
fn the_standard_input_becomes_a_file_whole_or_not_at_all() {
    let place = Place::new();
    place.weft(&["init", "v"]).well();
    let content = vec![b'x'; 3 << 20];
    fed(&place, &["put", "-", "v:dumps/one"], &content).well();
    let said = place.command(&["cat", "v:dumps/one"]).output().unwrap();
    assert!(said.stdout == content);
    fed(&place, &["put", "--json", "-", "v:dumps/one"], b"other").partly();
    fed(&place, &["put", "--overwrite", "-", "v:dumps/one"], b"other").well();
    assert_eq!(place.weft(&["cat", "v:dumps/one"]).well(), "other");
    let listed = place.weft(&["ls", "--json", "v:dumps"]).json();
    assert_eq!(listed[0]["permissions"], "0644", "by the umask of the user");
    assert_eq!(
        (&listed[0]["name"], &listed[0]["size"], &listed[0]["kind"]),
        (&"one".into(), &5.into(), &"file".into())
    );
    assert_eq!(fed(&place, &["put", "-", "alone", "v:dumps"], b"").code, 2, "which one becomes the file?");
    fed(&place, &["put", "-", "v:"], b"").could_not(&["which file the standard input becomes"]);
}

#[test]
fn volumes_are_listed_and_read_while_they_are_mounted_and_as_they_were() {
    on_each_engine(&[], |place, volume| {
        let at = |path: &str| format!("{volume}:{path}");
        fs::create_dir(place.path("m/sub")).unwrap();
        fs::write(place.path("m/sub/file"), "then").unwrap();
        std::os::unix::fs::symlink("file", place.path("m/sub/link")).unwrap();
        place.weft(&["snapshot", "create", volume, "then"]).well();
        fs::write(place.path("m/sub/file"), "now, and longer").unwrap();
        fs::remove_file(place.path("m/sub/link")).unwrap();
        // Not synced: a commit comes first.
        assert_eq!(place.weft(&["cat", &at("sub/file")]).well(), "now, and longer");
        assert_eq!(place.weft(&["ls", &at("sub")]).well(), "file\n");
        let said = place.weft(&["ls", "-l", "--at", "then", &at("sub")]).well();
        assert!(said.contains("-rw-r--r--") && said.contains("link -> file"), "{said}");
        let said = place.weft(&["ls", "-ld", &at("sub")]).well();
        assert!(said.starts_with("drwx") && said.lines().count() == 1, "{said}");
        place.directory("got");
        place.weft(&["get", "--at", "then", &at("sub/file"), "got"]).well();
        place.weft(&["get", &at("sub"), "got"]).well();
        assert_eq!(fs::read_to_string(place.path("got/file")).unwrap(), "then");
        assert_eq!(fs::read_to_string(place.path("got/sub/file")).unwrap(), "now, and longer");
        place.weft(&["put", "got/file", volume]).could_not(&["mounted"]);
        let said = place.weft(&["ls", &at("nothing"), &at("sub")]);
        assert!(said.code == 1 && said.err.contains("there is no nothing in the volume"), "{said:?}");
        assert!(said.out.ends_with("file\n"), "{said:?}");
    });
}

#[test]
fn a_volume_is_not_put_into_itself_and_a_mistake_is_told_before_it_is_opened() {
    let place = Place::new();
    place.weft(&["init", "v"]).well();
    place.weft(&["init", "--blocks", "database", "one"]).well();
    place.weft(&["put", "v", "v:"]).could_not(&["cannot import v: it is a volume"]);
    place.weft(&["put", "v/segments", "v:"]).could_not(&["among the volume's own files"]);
    place.weft(&["put", "one", "one:"]).could_not(&["cannot import one: it is a volume"]);
    place.weft(&["put", "missing", "v:"]).could_not(&["cannot import missing"]);
    place.weft(&["put", "/", "v:"]).could_not(&["no name to be put by"]);
    place.directory("got");
    place.weft(&["get", "v:", "got"]).could_not(&["weft export"]);
    place.weft(&["get", "v:nothing", "got"]).could_not(&["there is no nothing in the volume"]);
    place.weft(&["get", "v:nothing", "nowhere"]).could_not(&["nowhere"]);
    place.weft(&["init", "other"]).well();
    std::os::unix::fs::symlink("other/segments", place.path("led")).unwrap();
    for target in ["v/segments", "other/segments", "led"] {
        place.weft(&["get", "v:nothing", target]).could_not(&[target, "among the files of the volume"]);
        place.weft(&["export", "v", target]).could_not(&[target, "among the files of the volume"]);
    }
}

#[test]
fn a_copy_within_a_volume_shares_its_blocks_and_comes_at_once() {
    on_each_engine(&[], |place, volume| {
        let said =
            place.sh("mkdir -p d/sub && seq 1 200000 >d/sub/lines && ln d/sub/lines d/hard && ln -s hard d/link");
        assert_eq!(said.code, 0, "{said:?}");
        place.weft(&["sync", "m"]).well();
        let stored = || place.weft(&["info", "--json", volume]).json()["bytes"].as_u64().unwrap();
        let listed = place.weft(&["cp", "--dry-run", "m/d", "m/copy"]).well();
        assert!(listed.contains("m/copy/sub/lines") && !place.path("m/copy").exists(), "{listed}");
        let said = place.weft(&["cp", "m/d", "m/copy"]).well();
        assert!(said.contains("m/copy is a copy of m/d: 5 names"), "{said}");
        assert_described(&place.path("m/d"), &place.path("m/copy"));
        place.weft(&["cp", "m/d", "m/copy"]).failed(&["cannot copy m/d to m/copy", "is there"]);
        place.umount();
        let before = stored();
        let [from, to] = ["d", "other/copy"].map(|path| format!("{volume}:{path}"));
        place.weft(&["cp", &from, &to]).failed(&["other"]);
        place.weft(&["cp", &from, &format!("{volume}:again")]).well();
        assert_eq!(place.weft(&["cat", &format!("{volume}:again/hard")]).well().lines().count(), 200_000);
        assert!(stored() > before, "files count, as they do by their own");
    });
    let place = Place::new();
    place.weft(&["init", "--history", "off", "v"]).well();
    place.weft(&["cp", "v:a", "v:b"]).failed(&["cannot copy v:a to v:b", "keeps no history"]);
}
