//! `weft digest`, `weft prove`, `weft verify-proof`.

use crate::place::{Place, Said, on_each_engine};
use crate::tree;
use rustix::fs::{Mode, OFlags};
use std::fs::File;
use std::io::Write;
use std::os::fd::OwnedFd;
use std::os::unix::fs::PermissionsExt;
use std::process::{Command, Stdio};

/// The digest alone.
#[track_caller]
fn digest(place: &Place, path: &str) -> String {
    let line = place.weft(&["digest", path]).well();
    line.split_once("  ").unwrap().0.to_owned()
}

#[test]
fn a_volume_has_the_digest_of_the_tree_that_was_imported() {
    for blocks in ["segments", "database"] {
        let place = Place::new();
        tree::make(&place.directory("from"));
        place.weft(&["init", "v", "--blocks", blocks, "--block-size", "4K"]).well();
        place.weft(&["import", "from", "v"]).well();
        assert_eq!(digest(&place, "v:"), digest(&place, "from"));
        assert_eq!(digest(&place, "v:/"), digest(&place, "from/"));
    }
}

#[test]
fn files_are_digested_wherever_they_come_from() {
    let place = Place::new();
    std::fs::write(place.path("hello"), "hello\n").unwrap();
    std::os::unix::fs::symlink("hello", place.path("link")).unwrap();
    let told = "8e4c7c1b99dbfd50e7a95185fead5ee1448fa904a2fdd778eaf5f2dbfd629a99";
    assert_eq!(place.weft(&["digest", "hello", "link"]).well(), format!("{told}  hello\n{told}  link\n"));
    let json = place.weft(&["digest", "--json", "hello", "."]).json();
    assert_eq!((json[0]["digest"].as_str(), json[1]["kind"].as_str()), (Some(told), Some("directory")));
    let mut child = Command::new(env!("CARGO_BIN_EXE_weft"))
        .args(["digest", "-"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    child.stdin.take().unwrap().write_all(b"hello\n").unwrap();
    assert_eq!(child.wait_with_output().unwrap().stdout, format!("{told}  -\n").into_bytes());
}

#[test]
fn what_cannot_be_digested_is_said_and_the_rest_is_printed() {
    let place = Place::new();
    std::fs::write(place.path("there"), "").unwrap();
    let said = place.weft(&["digest", "not-there", "there"]);
    assert_eq!((said.code, said.err.lines().count(), said.out.lines().count()), (2, 1, 1), "{said:?}");
    assert!(said.err.contains("not-there: No such file"), "{said:?}");
    place.weft(&["init", "v"]).well();
    place.weft(&["digest", "v:/nothing"]).could_not(&["there is no nothing in the volume"]);
    place.weft(&["digest", "w:/nothing"]).could_not(&["there is no volume at w"]);
}

#[test]
fn a_named_pipe_is_not_waited_for() {
    let place = Place::new();
    let run = |script: &str| -> Said {
        let mut command = Command::new("bash");
        command.args(["-c", script, env!("CARGO_BIN_EXE_weft")]).current_dir(place.path(""));
        command.output().unwrap().into()
    };
    assert!(Command::new("mkfifo").arg(place.path("pipe")).status().unwrap().success());
    place.weft(&["digest", "pipe"]).could_not(&["pipe is a named pipe", "weft digest - < pipe"]);
    std::fs::rename(place.path("pipe"), place.path("a pipe")).unwrap();
    place.weft(&["digest", "a pipe"]).could_not(&["a pipe is a named pipe", "weft digest - < 'a pipe'"]);
    std::fs::rename(place.path("a pipe"), place.path("pipe")).unwrap();
    let piped = run(r#""$0" digest <(echo hello) | cut -c1-64"#).well();
    assert_eq!(piped, run(r#"echo hello | "$0" digest - | cut -c1-64"#).well());
}

#[test]
fn lists_are_verified_line_by_line() {
    let place = Place::new();
    for name in ["one", "two", "line\nfeed"] {
        std::fs::write(place.path(name), name).unwrap();
    }
    std::fs::write(place.path("list"), place.weft(&["digest", "one", "two", "line\nfeed"]).well()).unwrap();
    let said = place.weft(&["digest", "--check", "list"]).well();
    assert_eq!(said, "one: OK\ntwo: OK\n\\line\\nfeed: OK\n");
    assert_eq!(place.weft(&["digest", "--check", "--quiet", "list"]).well(), "");
    std::fs::write(place.path("two"), "tvo").unwrap();
    std::fs::remove_file(place.path("one")).unwrap();
    let said = place.weft(&["digest", "--check", "--quiet", "list"]);
    assert_eq!(said.code, 1);
    assert!(said.out.contains("two: FAILED\n") && said.out.contains("one: FAILED (cannot tell"), "{said:?}");
    assert_eq!(said.err.lines().count(), 2, "{said:?}");
    std::fs::write(place.path("list"), "\nno line\n").unwrap();
    place.weft(&["digest", "--check", "list"]).could_not(&["line 2 of list is not a digest"]);
}

#[test]
fn names_that_a_terminal_would_obey_are_escaped_and_verified() {
    let place = Place::new();
    let name = "a\x1b[2J\u{202e}b";
    for directory in ["one", "two"] {
        std::fs::write(place.directory(directory).join(name), directory).unwrap();
    }
    std::fs::write(place.path(name), "mine").unwrap();
    let list = place.weft(&["digest", name]).well();
    assert!(list.ends_with(&format!("  {name}\n")), "{list:?}: a program obeys nothing, and b3sum is to read it");
    std::fs::write(place.path("list"), &list).unwrap();
    let said = place.weft(&["digest", "--check", "list"]).well();
    assert_eq!(said, "\\a\\x1b[2J\\xe2\\x80\\xaeb: OK\n");
    std::fs::remove_file(place.path(name)).unwrap();
    let said = place.weft(&["digest", "--check", "list"]);
    assert!(said.code == 1 && !format!("{}{}", said.out, said.err).contains('\x1b'), "{said:?}");
    assert_eq!(place.weft(&["digest", "--check", "--json", "list"]).partly()[0]["path"], name);
    let said = place.weft(&["diff", "one", "two"]);
    assert_eq!((said.code, said.out.as_str()), (1, "content     a\\x1b[2J\\xe2\\x80\\xaeb\n"), "{said:?}");
}

#[test]
fn trees_deeper_than_a_path_can_be_long_are_digested_and_compared() {
    let place = Place::new();
    let name = "d".repeat(200);
    for top in ["one", "two"] {
        let mut at = OwnedFd::from(File::open(place.directory(top)).unwrap());
        for _ in 0..30 {
            rustix::fs::mkdirat(&at, &name, Mode::RWXU).unwrap();
            at = rustix::fs::openat(&at, &name, OFlags::RDONLY | OFlags::DIRECTORY, Mode::empty()).unwrap();
        }
        let flags = OFlags::WRONLY | OFlags::CREATE;
        let file = rustix::fs::openat(&at, "file", flags, Mode::RUSR | Mode::WUSR).unwrap();
        File::from(file).write_all(top.as_bytes()).unwrap();
        rustix::fs::symlinkat("target", &at, "link").unwrap();
    }
    place.weft(&["init", "v"]).well();
    place.weft(&["import", "one", "v"]).well();
    assert_eq!(digest(&place, "v:"), digest(&place, "one"));
    let said = place.weft(&["diff", "one", "two"]);
    assert!(said.code == 1 && said.out.lines().count() == 1 && said.out.ends_with("/file\n"), "{said:?}");
}

#[test]
fn what_a_directory_holds_can_be_proved_without_it() {
    let place = Place::new();
    tree::make(&place.directory("from"));
    place.directory("from/sub");
    place.directory("from/sub/directory");
    std::fs::write(place.path("from/sub/directory/a\nb"), "content").unwrap();
    let readable = std::fs::Permissions::from_mode(0o644);
    std::fs::set_permissions(place.path("from/sub/directory/a\nb"), readable).unwrap();
    std::fs::write(place.path("same"), "content").unwrap();
    std::fs::write(place.path("other"), "another").unwrap();
    place.weft(&["init", "v"]).well();
    place.weft(&["import", "from", "v"]).well();
    let root = digest(&place, "from");
    for directory in ["from", "v:"] {
        let proof = place.weft(&["prove", directory, "sub/directory/a\nb"]).well();
        std::fs::write(place.path("proof"), &proof).unwrap();
        let told = place.weft(&["verify-proof", "proof", "--root", &root, "--file", "same", "--json"]).json();
        assert_eq!((told["root"].as_str(), told["kind"].as_str()), (Some(&root[..]), Some("file")));
        let said = place.weft(&["verify-proof", "proof"]).well();
        assert!(said.contains(&root) && said.contains("sub/directory/a\\nb (file, mode 0644)"), "{said}");
        place.weft(&["verify-proof", "proof", "--file", "other"]).failed(&["about something else than other"]);
        place.weft(&["verify-proof", "proof", "--root", &digest(&place, "same")]).failed(&["another directory", &root]);
        std::fs::write(place.path("proof"), proof.replace("0644", "0645")).unwrap();
        place.weft(&["verify-proof", "proof"]).failed(&["proof proves nothing"]);
        std::fs::write(place.path("proof"), &proof[..proof.len() / 2]).unwrap();
        place.weft(&["verify-proof", "proof"]).failed(&["proof is not a proof"]);
        place.weft(&["prove", directory, "sub/nothing"]).could_not(&["there is no nothing"]);
        place.weft(&["prove", directory, "sub/../sub"]).could_not(&["cannot hold '..'"]);
    }
    place.weft(&["prove", "v:sub/directory", "a\nb"]).well();
    place.weft(&["prove", "same", "x"]).could_not(&["same"]);
}

/// Makes a volume `v` of a file whose bytes lie in a segment, a pair of keys, and a signed
/// attestation.
fn signed() -> Place {
    let place = Place::new();
    std::fs::write(place.directory("from").join("file"), vec![7; 300_000]).unwrap();
    place.weft(&["init", "v"]).well();
    place.weft(&["import", "from", "v"]).well();
    place.weft(&["keygen", "--no-password", "secret", "public"]).well();
    place.weft(&["sign", "--key", "secret", "--output", "signed", "v"]).well();
    place
}

#[test]
fn a_verified_volume_is_said_to_hold_what_was_compared() {
    let place = signed();
    let verify = ["verify", "signed", "--key", "public", "--volume", "v"];
    let read = [&verify[..], &["--read"]].concat();
    assert!(place.weft(&read).well().ends_with("v holds exactly that; all of its content was read\n"));
    let segment = std::fs::OpenOptions::new().write(true).open(place.path("v/segments/00000001.seg")).unwrap();
    std::os::unix::fs::FileExt::write_all_at(&segment, b"x", 70_000).unwrap();
    let said = place.weft(&verify).well();
    let words = "v holds exactly that by the digests that it keeps; content was not read, which --read does\n";
    assert!(said.ends_with(words), "{said}");
    let said = place.weft(&read);
    assert_eq!(said.err.matches("has other bytes than were written").count(), 1, "{said:?}");
    said.failed(&["cannot read /file", "'weft scrub v' tells what is damaged"]);
}

#[test]
fn what_differs_and_what_cannot_be_looked_at_have_exit_codes_of_their_own() {
    let place = signed();
    place.weft(&["init", "w"]).well();
    place.weft(&["keygen", "--no-password", "other secret", "other"]).well();
    let verify = |key, volume| place.weft(&["verify", "signed", "--key", key, "--volume", volume]);
    verify("other", "v").failed(&["signed is not signed with this key"]);
    verify("public", "w").failed(&["w holds another tree"]);
    verify("nothing", "v").could_not(&["cannot read nothing"]);
    verify("public", "nothing").could_not(&["nothing"]);
    place.weft(&["verify-proof", "nothing"]).could_not(&["cannot read nothing"]);
    std::fs::write(place.path("list"), place.weft(&["digest", "v:file"]).well()).unwrap();
    let lock = File::open(place.path("v/lock")).unwrap();
    rustix::fs::flock(&lock, rustix::fs::FlockOperation::LockExclusive).unwrap();
    verify("public", "v").could_not(&["in use by another process"]);
    place.weft(&["digest", "v:"]).could_not(&["in use by another process"]);
    let said = place.weft(&["digest", "--check", "list"]);
    assert!(said.code == 2 && said.out.contains("v:file: FAILED"), "{said:?}");
    drop(lock);
    let text = std::fs::read_to_string(place.path("signed")).unwrap();
    std::fs::write(place.path("signed"), text + " ").unwrap();
    verify("public", "v").failed(&["signed is not signed with this key, or was changed since"]);
}

#[test]
fn the_attribute_tells_the_digest_of_what_was_just_written_and_nobody_changes_it() {
    use rustix::fs::{XattrFlags, getxattr, listxattr, removexattr, setxattr};
    use std::os::unix::fs::FileExt;
    const NAME: &str = "user.weft.digest";
    on_each_engine(&[], |place, _| {
        let (mounted, copy) = (place.path("m"), place.path("copy"));
        let kept = |name: &str| {
            let mut value = [0; 64];
            let len = getxattr(mounted.join(name), NAME, &mut value[..]).unwrap();
            String::from_utf8(value[..len].to_vec()).unwrap()
        };
        let mut content: Vec<u8> =
            (0..9_000_000u32).map(|number| (number.wrapping_mul(2_654_435_761) >> 24) as u8).collect();
        for len in [0, 16_385, 9_000_000] {
            std::fs::write(mounted.join("file"), &content[..len]).unwrap();
            std::fs::write(&copy, &content[..len]).unwrap();
            assert_eq!(kept("file"), digest(place, "copy"), "{len}");
        }
        let file = File::options().write(true).open(mounted.join("file")).unwrap();
        for (at, len) in [(5_000_000, 1), (0, 5000), (8_900_000, 70_000)] {
            content[at..at + len].fill(b'x');
            file.write_all_at(&content[at..at + len], at as u64).unwrap();
            std::fs::write(&copy, &content).unwrap();
            assert_eq!(kept("file"), digest(place, "copy"), "{len} bytes at {at}");
        }
        file.set_len(4_194_305).unwrap();
        std::fs::write(&copy, &content[..4_194_305]).unwrap();
        assert_eq!(kept("file"), digest(place, "copy"), "cut");
        drop(file);

        let before = kept("");
        std::fs::set_permissions(mounted.join("file"), PermissionsExt::from_mode(0o600)).unwrap();
        assert_ne!(kept(""), before, "permissions");
        assert_eq!(listxattr(mounted.join("file"), &mut [0u8; 100][..]), Ok(0));
        let refused = Err(rustix::io::Errno::OPNOTSUPP);
        assert_eq!(setxattr(mounted.join("file"), NAME, &[b'0'; 64], XattrFlags::empty()), refused);
        assert_eq!(removexattr(mounted.join("file"), NAME), refused);
    });
}
