//! Commands that read the past.

use crate::history::committed;
use crate::place::{Place, Said, on_each_engine};

/// Runs `script` in the mount, and commits. Returns the moment, for `--at`.
fn step(place: &Place, script: &str) -> String {
    place.sh(script).well();
    format!("@{}", committed(place))
}

/// Commits are made by [`step`] alone: what a script does is not one change of several commits.
const STEPS: &[&str] = &["--commit-interval", "1000"];

/// Keeps history in the mount.
fn keep(place: &Place) {
    place.weft(&["history", "set", "m", "all forever"]).well();
}

#[test]
fn cat_prints_files_as_they_were_there_now_or_not() {
    on_each_engine(STEPS, |place, volume| {
        keep(place);
        let first = step(
            place,
            "mkdir d && echo one >d/file && seq 100000 >d/lines && ln -s file d/link && mkfifo d/fifo
             \"$0\" link d/file d/sorted --network sort >/dev/null; truncate -s 1M d/hole && echo end >>d/hole && cp d/lines ../lines && cp d/hole ../hole",
        );
        let second = step(place, "echo two >d/file && rm d/lines d/hole && mv d e");
        let cat = |at: &str, path: &str| place.weft(&["cat", "--at", at, path]);
        assert_eq!(cat(&first, "m/d/file").well(), "one\n");
        assert_eq!(cat(&second, "m/e/file").well(), "two\n");
        assert_eq!(cat(&first, "m/d/sorted").well(), "one\n", "a link gives what it gave then");
        place.sh("echo pending >e/file").well();
        assert_eq!(cat("now", "m/e/file").well(), "pending\n", "it is committed first");
        let of_volume = |path: &str| format!("{volume}:{path}");
        for name in ["lines", "hole"] {
            let was = std::fs::read_to_string(place.path(name)).unwrap();
            assert!(cat(&first, &of_volume(&format!("d/{name}"))).well() == was, "{name}");
        }
        let both = place.weft(&["cat", "--at", &first, "m/d/file", "m/e/file", "m/d/file"]);
        assert_eq!((both.code, &both.out[..]), (1, "one\none\n"), "{both:?}");
        assert!(both.err.starts_with("weft: cannot read m/e/file as it was: there is no e"), "{both:?}");
        cat(&first, "m/d/link").failed(&["symbolic link to file; name that"]);
        cat(&first, "m/d").failed(&["it is a directory"]);
        cat(&first, "m").failed(&["it is a directory"]);
        cat(&first, "m/d/fifo").failed(&["it is a named pipe"]);
        cat("@99999", "m/d/file").failed(&["there is no commit 99999 yet"]);
        cat(&first, "lines").failed(&["in no mounted volume", "VOLUME:PATH"]);
        place.weft(&["cat", "--at", &first]).misused(&["name some"]);
        place.umount();
        assert_eq!(cat(&first, &of_volume("d/file")).well(), "one\n");
    });
}

/// Checks that it found these differences.
#[track_caller]
fn differ(said: &Said, lines: &[&str]) {
    assert_eq!((said.code, &said.err[..]), (1, ""), "{said:?}");
    let words = |line: &str| line.split_whitespace().collect::<Vec<_>>().join(" ");
    assert_eq!(said.out.lines().map(words).collect::<Vec<_>>(), lines);
}

#[test]
fn diff_compares_two_moments_or_one_with_now() {
    on_each_engine(STEPS, |place, volume| {
        keep(place);
        let first = step(place, "mkdir -p d/sub d/same && seq 3 >d/sub/file && echo same >d/same/x && touch d/gone");
        let second = step(place, "echo 4 >>d/sub/file && rm d/gone && mkdir d/new && touch d/new/below");
        place.sh("chmod 600 d/same/x && rm d/sub/file && mkdir d/sub/file").well();
        let diff = |words: &[&str]| place.weft(&[&["diff"], words].concat());
        let between = ["deleted gone", "added new/", "content sub/file"];
        differ(&diff(&["--at", &first, "--at", &second, "m/d"]), &between);
        differ(&diff(&["--at", &first, "--at", &second, &format!("{volume}:d")]), &between);
        differ(&diff(&["--at", &first, "--at", &second, "--read", "m/d"]), &between);
        let now = ["permissions same/x", "kind sub/file/"];
        differ(&diff(&["--at", &second, "m/d"]), &now);
        differ(&diff(&["--at", &second, "m"]), &now.map(|line| line.replace(' ', " d/")).each_ref().map(|s| &s[..]));
        differ(&diff(&["--at", &first, "--at", &second, "m/d/gone"]), &["deleted gone"]);
        differ(&diff(&["--at", &first, "m/d/sub/file"]), &["kind file/"]);
        assert_eq!(diff(&["--at", &second, "m/d/new"]).well(), "");
        let told = diff(&["--json", "--at", &second, "--at", &first, "m/d"]);
        let told: serde_json::Value = serde_json::from_str(&told.out).unwrap();
        assert_eq!((&told[0]["change"], &told[0]["path"]), (&"added".into(), &"gone".into()), "{told:#}");
        diff(&["--at", &first, "m/nothing"]).could_not(&["at neither moment", "m/nothing"]);
        diff(&["--at", &first, "m/d", "m/d"]).misused(&["moments of one path"]);
        diff(&["m/d"]).misused(&["two trees"]);
        diff(&["--at", "@99999", "m/d"]).could_not(&["no commit 99999"]);
    });
}

#[test]
fn diff_shows_contents_by_lines() {
    on_each_engine(STEPS, |place, _| {
        keep(place);
        let first = step(
            place,
            "printf 'a\\nb\\n' >text; printf 'x\\0y' >binary; head -c 9000000 /dev/zero | tr '\\0' a >large; echo x >gone
             ln -s a link; touch 'two
lines'",
        );
        let second = step(
            place,
            "printf 'a\\nc\\n' >text; echo >>binary; echo >>large; rm gone; echo y >new; ln -sfn b link; echo z >'two
lines'",
        );
        let said = place.weft(&["diff", "--content", "--at", &first, "--at", &second, "m"]);
        let of = |name: &str| format!("{name}\t{first} and {name}\t{second} differ");
        let lines = [
            "content     binary",
            &format!("Binary files {}", of("binary")),
            "deleted     gone",
            &format!("--- gone\t{first}"),
            "+++ /dev/null",
            "@@ -1 +0,0 @@",
            "-x",
            "content     large",
            &format!("Files {}: too large to be compared by lines", of("large")),
            "content     link",
            "added       new",
            "--- /dev/null",
            &format!("+++ new\t{second}"),
            "@@ -0,0 +1 @@",
            "+y",
            "content     text",
            &format!("--- text\t{first}"),
            &format!("+++ text\t{second}"),
            "@@ -1,2 +1,2 @@",
            " a",
            "-b",
            "+c",
            "content     two\\nlines",
            &format!("--- two\\nlines\t{first}"),
            &format!("+++ two\\nlines\t{second}"),
            "@@ -0,0 +1 @@",
            "+z",
        ];
        assert_eq!((said.code, &said.err[..]), (1, ""));
        assert_eq!(said.out.lines().collect::<Vec<_>>(), lines);
        let one = place.weft(&["diff", "--content", "--at", &first, "--json", "m/text"]);
        let told: serde_json::Value = serde_json::from_str(&one.out).unwrap();
        assert!(told[0]["diff"].as_str().unwrap().ends_with("-b\n+c\n"), "{told:#}");
        let trees = place.weft(&["diff", "--content", &format!("m/.weft/at/{first}"), "m"]);
        assert!(trees.out.contains("\n--- m/.weft/at/") && trees.out.contains("\n+++ m/text\n"), "{}", trees.out);
        let without = place.command(&["diff", "--content", "--at", &first, "m"]).env("PATH", "/").output().unwrap();
        assert_eq!(without.status.code(), Some(2));
        assert!(String::from_utf8_lossy(&without.stderr).contains("cannot run diff"));
    });
}

#[test]
fn snapshots_are_compared_by_their_names() {
    on_each_engine(STEPS, |place, volume| {
        keep(place);
        place.sh("echo 1 >file").well();
        place.weft(&["snapshot", "create", "m", "one"]).well();
        place.sh("echo 2 >file; touch new").well();
        place.weft(&["snapshot", "create", "m", "two"]).well();
        place.sh("rm new").well();
        let diff = |words: &[&str]| place.weft(&[&["snapshot", "diff"], words].concat());
        differ(&diff(&["m", "one", "two"]), &["content file", "added new"]);
        differ(&diff(&[volume, "one"]), &["content file"]);
        assert_eq!(diff(&["m", "one", "one"]).well(), "");
        diff(&["m", "three"]).could_not(&["there is no snapshot 'three'"]);
        let commit = place.weft(&["snapshot", "list", "--json", "m"]).json()[0]["commit"].to_string();
        differ(&diff(&["m", &format!("@{commit}"), "two"]), &["content file", "added new"]);
        assert_eq!(diff(&["m", "one", &format!("@{commit}")]).well(), "");
        place.umount();
        differ(&diff(&["--content", volume, "two"]), &["deleted new"]);
    });
}

/// The paths and sizes that `weft undelete --list` tells, in the order of the paths. Each file can
/// be read as of the last commit that has it.
fn deleted(place: &Place, directory: &str) -> Vec<(String, Option<u64>)> {
    let told = place.weft(&["undelete", "--list", directory, "--json"]).json();
    let name = |name: &serde_json::Value| {
        let (path, size) = (name["path"].as_str().unwrap(), name["size"].as_u64());
        if let Some(size) = size {
            let then = name["path_then"].as_str().map_or(path.to_owned(), |then| format!("m/{then}"));
            let content = place.weft(&["cat", "--at", &format!("@{}", name["last"]), &then]).well();
            assert_eq!(content.len() as u64, size, "{name:#}");
        }
        (path.to_owned(), size)
    };
    let mut names = told.as_array().unwrap().iter().map(name).collect::<Vec<_>>();
    names.sort();
    names
}

/// The last content, which lay elsewhere, and what was never there.
#[test]
fn what_the_list_tells_is_brought_back_though_its_directory_was_moved() {
    on_each_engine(STEPS, |place, _| {
        keep(place);
        step(place, "mkdir docs && echo draft >docs/text && echo only >docs/only");
        step(place, "mv docs papers && echo final >papers/text");
        step(place, "mv papers docs && rm docs/text");
        place.weft(&["undelete", "m/docs/text"]).well();
        assert_eq!(place.sh("cat docs/text").well(), "final\n");
        step(place, "mv docs texts && rm texts/only");
        place.weft(&["undelete", "m/texts/only"]).well();
        assert_eq!(place.sh("cat texts/only; rm -r texts").well(), "only\n");
    });
}

#[test]
fn what_was_deleted_is_listed_as_long_as_it_can_be_had() {
    on_each_engine(STEPS, |place, volume| {
        keep(place);
        step(place, "mkdir -p d/sub/deep d/kept && seq 3 >d/sub/deep/file && echo x >d/gone && echo y >d/again");
        step(place, "echo xy >d/gone; echo moved >d/moved; echo linked >d/linked; ln d/linked d/kept/linked");
        step(place, "rm d/gone d/again d/linked; mv d/moved d/kept/; echo more >>d/sub/deep/file");
        step(place, "rm -r d/sub; echo again >d/again; mkdir d/brief; echo z >d/brief/z");
        step(place, "touch d/early");
        step(place, "mv d/early d/late");
        step(place, "rm -r d/brief d/late");
        let entry = |path: &str, size: Option<u64>| (path.to_owned(), size);
        let all = [
            entry("m/d/brief", None),
            entry("m/d/brief/z", Some(2)),
            entry("m/d/gone", Some(3)),
            entry("m/d/late", Some(0)),
            entry("m/d/sub", None),
            entry("m/d/sub/deep", None),
            entry("m/d/sub/deep/file", Some(11)),
        ];
        assert_eq!(deleted(place, "m/d"), all);
        assert_eq!(deleted(place, "m"), all);
        assert_eq!(deleted(place, "m/d/sub"), all[5..]);
        let of_volume = deleted(place, &format!("{volume}:d"));
        assert_eq!(of_volume.len(), all.len());
        assert_eq!(of_volume[2], entry(&format!("{volume}:d/gone"), Some(3)));
        let told = place.weft(&["undelete", "--list", "m/d", "-n", "1"]);
        assert_eq!((told.code, told.out.lines().count()), (0, 1), "{told:?}");
        assert!(told.err.contains("at most 6 more were deleted before"), "{told:?}");
        assert!(told.out.ends_with(" m/d/late\n") || told.out.ends_with(" m/d/brief\n"), "{told:?}");
        for (path, _) in all.iter().filter(|(path, _)| !path.contains("deep")) {
            place.weft(&["undelete", "--parents", path]);
        }
        assert_eq!(place.sh("cat d/gone d/sub/deep/file d/brief/z").well(), "xy\n1\n2\n3\nmore\nz\n");
        assert_eq!(deleted(place, "m"), []);
        // Another directory has the name now, and the one that had it lay elsewhere before.
        step(place, "mkdir -p old/way && echo a >old/way/a && echo b >old/way/b");
        step(place, "rm old/way/a && mv old new && touch new/way/c");
        step(place, "rm -r new/way && mkdir new/way");
        let found = ["m/new/way/a", "m/new/way/b", "m/new/way/c"].into_iter().zip([2, 2, 0]);
        let found = found.map(|(path, size)| entry(path, Some(size))).collect::<Vec<_>>();
        assert_eq!(deleted(place, "m/new"), found);
        let told = place.weft(&["undelete", "--list", "m/new"]).well();
        assert!(told.contains("m/new/way/a, as old/way/a\n") && told.contains("m/new/way/b\n"), "{told}");
        place.weft(&["undelete", "m/new/way/b"]).well();
        step(place, "echo secret >new/secret && : >new/empty");
        step(place, "rm new/secret new/empty");
        assert!(place.weft(&["log", "m/new/secret"]).well().contains("deleted"));
        place.weft(&["history", "forget", "m/new/secret"]).well();
        place.weft(&["undelete", "m/new/secret"]).failed(&["taken out of history"]);
        let had = &place.weft(&["log", "--json", "m/new/secret"]).json()[1]["commit"];
        let at = format!("@{had}");
        place.weft(&["cat", "--at", &at, "m/new/secret"]).failed(&["taken out of history"]);
        place.weft(&["cat", "--at", &at, "m/new/empty"]).well();
        let exported = place.weft(&["export", "--at", &at, &format!("{volume}:new"), "out"]);
        assert!(exported.code == 1 && exported.err.contains("secret: exported, but empty"), "{exported:?}");
        assert!(exported.err.lines().count() == 1 && exported.out.contains("failed: 1 file"), "{exported:?}");
        let left = deleted(place, "m/new").into_iter().map(|(path, _)| path).collect::<Vec<_>>();
        assert!(!left.contains(&"m/new/secret".to_owned()) && left.contains(&"m/new/empty".to_owned()), "{left:?}");
        place.sh("mv d/kept elsewhere").well();
        place.weft(&["undelete", "--list", "m/d/kept"]).failed(&["/d/kept was moved"]);
        place.weft(&["undelete", "--list", "m/d/again"]).failed(&["is not a directory"]);
        place.weft(&["undelete", "--list", "m/nothing"]).failed(&["no commit that is kept has /nothing"]);
        place.weft(&["undelete", "--list", "m", "m/d/gone"]).fails_with("cannot be used with");
    });
}

#[test]
fn the_log_of_a_file_tells_what_it_was_called_and_where_it_lay() {
    on_each_engine(STEPS, |place, volume| {
        keep(place);
        for script in [
            "mkdir -p a/b && echo 1 >a/b/file",
            "mv a/b/file a/b/named",
            "mv a/b/named other",
            "echo 2 >>other",
            "mkdir c && mv other c/other && rm -r a",
            "mv c d",
            "chmod 600 d/other",
            "mv d e",
        ] {
            // A directory that somebody has open is there for a while after its name is gone.
            let held = std::fs::File::open(place.path("m/a/b")).ok();
            step(place, script);
            if held.is_some() {
                step(place, "touch later");
            }
        }
        let log = |path: &str| place.weft(&["log", path]).well();
        let what = |log: &str| log.lines().map(|line| line.rsplit("  ").next().unwrap().to_owned()).collect::<Vec<_>>();
        let changes = [
            "mode, as d/other",
            "renamed from other, as c/other",
            "content",
            "renamed from a/b/named",
            "renamed from a/b/file",
            "made",
        ];
        assert_eq!(what(&log("m/e/other")), changes);
        assert_eq!(what(&log(&format!("{volume}:e/other"))), changes);
        assert_eq!(what(&log("m/e")), ["content, renamed from d", "renamed from c", "made"]);
        let told = place.weft(&["log", "--json", "-n", "2", "m/e/other"]).json();
        assert_eq!((&told[0]["path"], &told[0]["renamed_from"]), (&"d/other".into(), &serde_json::Value::Null));
        assert_eq!((&told[1]["path"], &told[1]["renamed_from"]), (&"c/other".into(), &"other".into()));
        assert_eq!(told[1]["changed"], serde_json::json!(["renamed"]), "{told:#}");
        step(place, "echo x >first");
        step(place, "ln first second");
        step(place, "rm first");
        assert_eq!(what(&log("m/second")), ["links", "links", "made, as first"]);
        step(place, "mkdir p q && echo x >p/x && echo y >q/x");
        step(place, "mv p swap && mv q p && mv swap q");
        assert_eq!(what(&log("m/p/x")), ["made, as q/x"]);
        // There and back within a commit is no change of a name.
        step(place, "mv p/x p/y && mv p/y p/x");
        assert_eq!(what(&log("m/p/x")), ["attributes", "made, as q/x"]);
    });
}

/// Editors and others save a file under another name, and rename that.
#[test]
fn the_log_of_a_file_goes_on_with_those_that_had_its_name_before() {
    on_each_engine(STEPS, |place, volume| {
        keep(place);
        let commits = [
            "echo 1 >file",
            "echo 22 >file",
            "echo 333 >new && mv new file",
            "echo 4444 >file",
            "echo 55555 >new",
            "echo 4 >file",
            "mv new file",
        ]
        .map(|script| step(place, script));
        let log = |path: &str| {
            let told = place.weft(&["log", "--json", path]).json();
            let line = |change: &serde_json::Value| {
                let what = change["changed"].as_array().unwrap().iter().map(|what| what.as_str().unwrap());
                assert!(change["kept"].is_null() || change["kept"] == change["commit"], "{change:#}");
                (
                    format!("@{}", change["commit"]),
                    change["size"].as_u64().unwrap(),
                    what.collect::<Vec<_>>().join(", "),
                )
            };
            told.as_array().unwrap().iter().map(line).collect::<Vec<_>>()
        };
        let expected = [
            (6, 6, "renamed, in place of another"),
            (5, 2, "content"),
            (4, 6, "made"),
            (3, 5, "content"),
            (2, 4, "made, in place of another"),
            (1, 3, "content"),
            (0, 2, "made"),
        ];
        let expected = expected.map(|(at, size, what)| (commits[at].clone(), size, what.to_owned()));
        assert_eq!(log("m/file"), expected);
        assert_eq!(log(&format!("{volume}:file")), expected);
        let gone = step(place, "rm file");
        assert_eq!(log("m/file")[0], (gone.clone(), 6, "deleted".into()));
        assert_eq!(log("m/file")[1..], expected);
        place.weft(&["undelete", "m/file"]).well();
        let back = log("m/file");
        assert_eq!((back[0].2.as_str(), &back[1]), ("brought back", &(gone, 6, "deleted".to_owned())));
        assert_eq!(back[2..], expected);
        step(place, "echo a >one");
        step(place, "mv one two && echo bb >one");
        step(place, "mv two one");
        let twice = log("m/one").into_iter().map(|(_, size, what)| (size, what)).collect::<Vec<_>>();
        let is_made = |change: &&(u64, String)| change.1.starts_with("made");
        assert_eq!(twice.iter().filter(is_made).count(), 2, "{twice:?}");
        // Also with those that had a name which it had then itself.
        step(place, "echo 1 >early");
        step(place, "echo 22 >save && mv save early");
        step(place, "echo 333 >save");
        step(place, "mv save early");
        step(place, "mv early late");
        let late = log("m/late").into_iter().map(|(_, size, what)| (size, what)).collect::<Vec<_>>();
        let expected = [
            (4, "renamed"),
            (4, "renamed, in place of another"),
            (4, "made"),
            (3, "made, in place of another"),
            (2, "made"),
        ];
        assert_eq!(late, expected.map(|(size, what)| (size, what.to_owned())));
    });
}

#[test]
fn what_was_signed_or_proved_is_verified_with_what_the_volume_held_then() {
    on_each_engine(STEPS, |place, volume| {
        keep(place);
        place.weft(&["keygen", "--no-password", "secret", "public"]).well();
        let then = step(place, "mkdir d && seq 100000 >d/lines && echo then >file");
        place.weft(&["sign", "m", "--key", "secret", "--output", "signed"]).well();
        let proof = place.weft(&["prove", "m", "file"]).well();
        let root = place.weft(&["digest", "m"]).well();
        let root = root.split(' ').next().unwrap();
        step(place, "echo now >file && rm d/lines && mv d e");
        let verify =
            |words: &[&str]| place.weft(&[&["verify", "signed", "--key", "public", "--volume"], words].concat());
        verify(&["m"]).failed(&["has changed since commit", &format!("--at {then}")]);
        for words in [["m"], [volume]] {
            let told = verify(&[&words[..], &["--at", &then]].concat()).well();
            assert!(told.contains("held then exactly that by the digests"), "{told}");
            let told = verify(&[&words[..], &["--at", &then, "--read"]].concat()).well();
            assert!(told.contains("held then exactly that; all of its content was read"), "{told}");
            verify(&[&words[..], &["--at", "now"]].concat()).failed(&["held another tree then"]);
        }
        place.weft(&["verify", "signed", "--key", "public", "--at", &then]).fails_with("--volume");
        // A proof of then is what can be proved of then, by the content of then.
        std::fs::write(place.path("proof"), &proof).unwrap();
        assert_eq!(place.weft(&["prove", "--at", &then, "m", "file"]).well(), proof);
        assert_ne!(place.weft(&["prove", "m", "file"]).well(), proof);
        assert!(place.weft(&["digest", "--at", &then, "m"]).well().starts_with(root));
        std::fs::write(place.path("then"), place.weft(&["cat", "--at", &then, "m/file"]).well()).unwrap();
        place.weft(&["verify-proof", "proof", "--root", root, "--file", "then"]).well();
        place.weft(&["verify-proof", "proof", "--file", "m/file"]).failed(&["something else"]);
    });
}

#[test]
fn no_command_takes_the_past_for_the_present() {
    on_each_engine(STEPS, |place, volume| {
        keep(place);
        place.weft(&["keygen", "--no-password", "secret", "public"]).well();
        let then = step(place, "echo then >file");
        place.weft(&["sign", "m", "--key", "secret", "--output", "signed"]).well();
        step(place, "echo now >file");
        place.directory("p");
        place.weft(&["mount", "--at", &then, volume, "p"]).well();
        let commit = format!("as of commit {}, in the past; name the volume itself", &then[1..]);
        let refused = |words: &[&str], code: i32, why: &str| {
            let said = place.weft(words);
            assert!(said.code == code && said.out.is_empty() && said.err.contains(why), "{words:?}: {said:?}");
            assert!(!said.err.contains("Input/output"), "{words:?}: {said:?}");
        };
        for (words, code) in [
            (&["info", "p"][..], 1),
            (&["log", "p"], 1),
            (&["log", "p/file"], 1),
            (&["history", "p"], 1),
            (&["history", "set", "p", "off"], 1),
            (&["snapshot", "create", "p", "x"], 1),
            (&["snapshot", "list", "p"], 1),
            (&["snapshot", "delete", "p", "x"], 1),
            (&["snapshot", "diff", "p", "x"], 2),
            (&["snapshot", "restore", "p", "x"], 1),
            (&["gc", "p"], 1),
            (&["scrub", "p"], 2),
            (&["sign", "p", "--key", "secret", "--output", "other"], 2),
            (&["cat", "--at", &then, "p/file"], 1),
            (&["diff", "--at", &then, "p"], 2),
            (&["undelete", "--list", "p"], 1),
        ] {
            refused(words, code, &commit);
        }
        refused(&["restore", "p/file", "--at", &then], 1, "shows the past");
        place.weft(&["verify", "signed", "--key", "public", "--volume", "p"]).well();
        let path = |name: &str| format!("m/.weft/at/{then}{name}");
        for (words, code) in [
            (&["log", &path("/file")][..], 1),
            (&["log", "m/.weft"], 1),
            (&["cat", "--at", &then, &path("/file")], 1),
            (&["diff", "--at", &then, &path("/none/file")], 2),
            (&["undelete", &path("/file")], 1),
            (&["history", "forget", &path("/file")], 1),
        ] {
            refused(words, code, "leads into the past; name the path in the present");
        }
        for (words, code) in [
            (&["info", &path("")][..], 1),
            (&["history", &path("")], 1),
            (&["snapshot", "list", &path("")], 1),
            (&["sign", &path(""), "--key", "secret", "--output", "other"], 2),
            (&["verify", "signed", "--key", "public", "--volume", &path("")], 2),
        ] {
            let said = place.weft(words);
            assert!(said.code == code && said.err.contains("is a part of the volume"), "{words:?}: {said:?}");
        }
        place.weft(&["umount", "p"]).well();
    });
}

#[test]
fn a_moment_in_the_future_is_refused() {
    on_each_engine(STEPS, |place, volume| {
        keep(place);
        place.sh("echo now >file").well();
        place.directory("p");
        place.weft(&["snapshot", "create", "m", "one"]).well();
        let refused = |words: &[&str], code: i32, why: &str| {
            let said = place.weft(words);
            assert!(said.code == code && said.err.contains(why), "{words:?}: {said:?}");
            assert!(!said.err.contains("Input/output"), "{words:?}: {said:?}");
        };
        let future = "2199-01-01T12:00:00+01:00";
        for (words, code) in [
            (&["cat", "--at", future, "m/file"][..], 1),
            (&["diff", "--at", future, "m"], 2),
            (&["diff", "--at", "@1", "--at", future, "m"], 2),
            (&["digest", "--at", future, "m"], 2),
            (&["restore", "m/file", "--at", future], 1),
            (&["log", "--since", future, "m"], 1),
            (&["log", "--since", future, "m/file"], 1),
            (&["mount", "--at", future, volume, "p"], 1),
            (&["send", &format!("{volume}@{future}")], 2),
        ] {
            let why =
                if words.contains(&"@1") { "commit 1 is not kept" } else { "2199-01-01T11:00:00Z is in the future" };
            refused(words, code, why);
        }
        refused(&["log", "--since", "@99999", "m"], 1, "there is no commit 99999 yet");
        refused(&["snapshot", "create", "m", "one"], 1, "one");
        refused(&["snapshot", "hold", "m", "two", "1d"], 1, "two");
        refused(&["history", "set", "m", "off"], 1, "snapshot");
        place.umount();
        refused(&["snapshot", "create", volume, "one"], 1, "one");
        refused(&["history", "set", volume, "off"], 1, "snapshot");
        refused(&["restore", &format!("{volume}:file"), "--at", future], 1, "is in the future");
    });
}

#[test]
fn a_path_is_found_where_a_file_stands_now_for_a_directory_above_it() {
    let Some(place) = Place::to_mount() else { return };
    place.weft(&["init", "v"]).well();
    place.directory("m");
    place.mount();
    place.sh("mkdir -p a/b && echo then >a/b/c");
    place.weft(&["snapshot", "create", "m", "kept"]).well();
    place.sh("rm -r a && echo now >a");
    assert_eq!(place.weft(&["cat", "--at", "kept", "m/a/b/c"]).well(), "then\n");
    place.weft(&["log", "m/a/b/c"]).well();
    place.weft(&["restore", "m/a/b/c", "--at", "kept", "--to", "m/back"]).well();
    assert_eq!(std::fs::read_to_string(place.path("m/back")).unwrap(), "then\n");
    place.umount();
}
