//! Attacks on what links lead to, by users of a mount.

use crate::fixture::{Mounted, can_mount};
use rustix::fs::{Mode, OFlags, open};
use std::fs::{self, File};
use std::io::{BufRead, BufReader, Lines, Read, Write};
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown};
use std::process::{Child, ChildStdout, Command, Output, Stdio};
use weft_fuse::SessionOptions;
use weft_links::{LinkDefinition, Pushed, Scope, ViewKind, WithLinks};
use weft_vfs::{Caller, Ino};

const ALICE: u32 = 1000;
const MALLORY: u32 = 1001;
const TEAM: u32 = 2000;

fn definition(target: &str, network: &str) -> LinkDefinition {
    LinkDefinition::new(vec![target.as_bytes().to_vec()], network)
}

impl Mounted {
    /// Returns a mount that reports opens, with a file `secret` that is root's alone.
    fn with_secret(opens: bool) -> Mounted {
        let mounted = Mounted::with(SessionOptions { opens, ..SessionOptions::default() });
        fs::write(mounted.path("secret"), "password=sesame\n").expect("written");
        fs::set_permissions(mounted.path("secret"), fs::Permissions::from_mode(0o600)).expect("set");
        fs::create_dir(mounted.path("hers")).expect("made");
        chown(mounted.path("hers"), Some(ALICE), Some(ALICE)).expect("given");
        mounted
    }

    fn link_by(&self, maker: u32, name: &str, definition: &LinkDefinition) {
        let maker = Caller { uid: maker, gid: maker, ..Caller::ROOT };
        let parent = self.vfs.lookup(Caller::ROOT, Ino::ROOT, b"hers").expect("there").ino;
        self.vfs.links().expect("links").make_link(maker, parent, name.as_bytes(), 0o777, definition).expect("made");
    }

    /// A shell's command in Alice's directory, run by a user of these groups.
    fn command(&self, uid: u32, groups: &str, command: &str) -> Command {
        let mut shell = Command::new("setpriv");
        let (uid, gid) = (format!("--reuid={uid}"), format!("--regid={uid}"));
        let groups = if groups.is_empty() { "--clear-groups".into() } else { format!("--groups={groups}") };
        shell.args([&uid, &gid, &groups, "--", "sh", "-c", command]).current_dir(self.path("hers"));
        shell
    }

    fn run(&self, uid: u32, command: &str) -> Output {
        self.command(uid, "", command).output().expect("setpriv is there")
    }

    /// Runs it, which must succeed, and returns its output.
    fn says(&self, uid: u32, command: &str) -> String {
        let output = self.run(uid, command);
        assert!(output.status.success(), "{command}: {}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).expect("text")
    }
}

#[test]
fn nobody_finds_a_secret_letter_by_letter() {
    if !can_mount() {
        return;
    }
    for opens in [false, true] {
        let mounted = Mounted::with_secret(opens);
        for (name, network) in
            [("right", "grep '^pa'"), ("wrong", "grep '^pb'"), ("plain", "upper"), ("count", "wc -c")]
        {
            mounted.link_by(ALICE, name, &definition("/secret", network));
        }
        let look = "stat -c '%s %b %a %X %Y %Z' right wrong plain count | sort -u | wc -l; cat *; ls -l >/dev/null";
        for asker in [ALICE, 0] {
            let output = mounted.run(asker, look);
            assert_eq!(String::from_utf8_lossy(&output.stdout), "1\n", "all look the same to {asker}");
        }
        assert_eq!(mounted.vfs.stats().results_computed, 0, "no network has begun");
    }
}

#[test]
fn existence_below_a_closed_directory_is_nothing_that_a_link_tells() {
    if !can_mount() {
        return;
    }
    let mounted = Mounted::with_secret(true);
    fs::create_dir(mounted.path("closed")).expect("made");
    fs::rename(mounted.path("secret"), mounted.path("closed/there")).expect("moved");
    fs::create_dir(mounted.path("closed/directory")).expect("made");
    fs::set_permissions(mounted.path("closed"), fs::Permissions::from_mode(0o700)).expect("set");
    for (name, target) in [("there", "/closed/there"), ("not", "/closed/not"), ("deep", "/closed/directory/not")] {
        mounted.link_by(ALICE, name, &definition(target, "upper"));
    }
    let tell =
        "for l in there not deep; do stat -c '%s %a %b %X %Y' $l; cat $l 2>&1 | sed s/$l//; done | sort | uniq -c";
    let told = mounted.says(ALICE, tell);
    assert_eq!(told.lines().map(|line| line.trim_start().starts_with("3 ")).collect::<Vec<_>>(), [true; 2], "{told}");
}

#[test]
fn what_root_was_told_the_kernel_tells_nobody_else() {
    if !can_mount() {
        return;
    }
    for opens in [false, true] {
        let mounted = Mounted::with_secret(opens);
        mounted.link_by(0, "link", &definition("/secret", "upper"));
        let link = mounted.path("hers/link");
        let root_sees = |told| {
            let size = fs::metadata(&link).expect("attributes").len();
            let text = fs::read_to_string(&link).unwrap_or_default();
            // If opens are not reported, nothing keeps the pages that root reads from others.
            assert_eq!((size, text.as_str()), if told { (16, "PASSWORD=SESAME\n") } else { (1, "") });
        };
        root_sees(opens);
        let inode = fs::metadata(&link).expect("attributes").ino().to_string();
        for (uid, groups) in [(ALICE, ""), (ALICE, "2000")] {
            let seen = mounted.command(uid, groups, "stat -c '%s %i %a' link; cat link").output().expect("run");
            assert_eq!(String::from_utf8_lossy(&seen.stdout), format!("1 {inode} 0\n"));
            assert!(String::from_utf8_lossy(&seen.stderr).contains("Permission denied"));
            root_sees(opens);
        }
        // A group counts that only /proc tells of.
        chown(mounted.path("secret"), None, Some(TEAM)).expect("given");
        fs::set_permissions(mounted.path("secret"), fs::Permissions::from_mode(0o640)).expect("set");
        for (groups, size) in [("", "1\n"), ("5,2000", if opens { "16\n" } else { "1\n" })] {
            let seen = mounted.command(ALICE, groups, "stat -c %s link").output().expect("run");
            assert_eq!(String::from_utf8_lossy(&seen.stdout), size, "in {groups}");
        }
        // A link for everybody is so at once.
        fs::set_permissions(mounted.path("secret"), fs::Permissions::from_mode(0o644)).expect("set");
        assert_eq!(mounted.says(ALICE, "stat -c %s link; cat link"), "16\nPASSWORD=SESAME\n");
        fs::set_permissions(mounted.path("secret"), fs::Permissions::from_mode(0o600)).expect("set");
        assert_eq!(mounted.says(ALICE, "stat -c %s link; ! cat link"), "1\n");
    }
}

#[test]
fn a_mount_hears_of_opens_after_the_first_link_that_is_not_for_everybody() {
    if !can_mount() {
        return;
    }
    let mounted = Mounted::with_secret(false);
    mounted.link_by(0, "link", &definition("/secret", "upper"));
    fs::metadata(mounted.path("hers/link")).expect("attributes");
    assert!(mounted.vfs.wants_opens().expect("told"));
}

#[test]
fn a_descriptor_gives_what_its_opener_may_read_and_nothing_that_the_way_leads_to_later() {
    if !can_mount() {
        return;
    }
    for opens in [false, true] {
        let mounted = Mounted::with_secret(opens);
        fs::write(mounted.path("hers/file"), "public\n").expect("written");
        mounted.link_by(0, "link", &definition("/hers/file", "upper"));
        let turn = "exec 3<link; head -c 3 <&3; rm file; ln -s ../secret file; cat <&3; cat link";
        let output = mounted.run(ALICE, turn);
        assert!(!String::from_utf8_lossy(&output.stdout).contains("SESAME"), "{output:?}");
        // Nor what root reads meanwhile, and the kernel might keep.
        let mut child = mounted.command(ALICE, "", "exec 3<other; echo; read line; cat <&3");
        fs::write(mounted.path("hers/public"), "public\n").expect("written");
        mounted.link_by(0, "other", &definition("/hers/way", "upper"));
        std::os::unix::fs::symlink("public", mounted.path("hers/way")).expect("made");
        let mut child = child.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().expect("run");
        let mut stdout = child.stdout.take().expect("piped");
        let mut opened = [0];
        stdout.read_exact(&mut opened).expect("it is open");
        fs::remove_file(mounted.path("hers/way")).expect("removed");
        std::os::unix::fs::symlink("../secret", mounted.path("hers/way")).expect("made");
        let roots = fs::read_to_string(mounted.path("hers/other")).unwrap_or_default();
        assert_eq!(roots.contains("SESAME"), opens);
        drop(child.stdin.take());
        let mut got = String::new();
        stdout.read_to_string(&mut got).expect("read");
        assert!(!got.contains("SESAME"), "{got}");
        child.wait().expect("ended");
    }
    // Nor what root maps, which would lie in the page cache.
    let mounted = Mounted::with_secret(true);
    fs::write(mounted.path("hers/file"), "public\n").expect("written");
    mounted.link_by(0, "link", &definition("/hers/file", "upper"));
    let mut child = mounted.command(ALICE, "", "exec 3<link; echo; read line; cat <&3");
    let mut child = child.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().expect("run");
    let mut stdout = child.stdout.take().expect("piped");
    stdout.read_exact(&mut [0]).expect("it is open");
    fs::remove_file(mounted.path("hers/file")).expect("removed");
    std::os::unix::fs::symlink("../secret", mounted.path("hers/file")).expect("made");
    let maps = "import mmap, os; f = os.open('link', 0); print(mmap.mmap(f, 16, mmap.MAP_PRIVATE, mmap.PROT_READ)[:])";
    let mapped = mounted.run(0, &format!("python3 -c \"{maps}\""));
    assert!(!mapped.status.success(), "it cannot be mapped");
    drop(child.stdin.take());
    let mut got = String::new();
    stdout.read_to_string(&mut got).expect("read");
    assert!(!got.contains("SESAME"), "{got}");
    child.wait().expect("ended");
    // A user who drops rights keeps open files.
    let mounted = Mounted::with_secret(true);
    mounted.link_by(0, "link", &definition("/secret", "upper"));
    let drops = "exec 3<link; setpriv --reuid=1000 --regid=1000 --clear-groups head -n 1 <&3";
    assert_eq!(mounted.says(0, drops), "PASSWORD=SESAME\n");
}

#[test]
fn nobody_gets_at_what_another_writes_to_a_link_by_turning_its_way() {
    if !can_mount() {
        return;
    }
    let mounted = Mounted::with_secret(true);
    mounted.run(0, "mkdir -m 777 ../all");
    mounted.says(ALICE, "umask 077; echo old | gzip >../all/s.gz");
    mounted.says(MALLORY, "umask 0; echo mine | gzip >../all/mine");
    mounted.link_by(ALICE, "link", &definition("/all/s.gz", "gzip -d"));
    let mut child = mounted.command(
        ALICE,
        "",
        "exec 3<>link; printf SECRET >&3; echo; read line; printf S >&3;
         python3 -c 'import os; print(os.pread(3, 99, 0).decode())'; read line",
    );
    let mut child = child.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().expect("run");
    let (mut stdin, stdout) = (child.stdin.take().expect("piped"), child.stdout.take().expect("piped"));
    let mut stdout = std::io::BufReader::new(stdout);
    let mut line = String::new();
    stdout.read_line(&mut line).expect("it is written");
    let attack = |command: &str| {
        let got = mounted.run(MALLORY, command);
        let (told, said) = (String::from_utf8_lossy(&got.stdout), String::from_utf8_lossy(&got.stderr));
        assert!(!told.contains("SECRET") && !said.contains("SECRET"), "{command}: {told} {said}");
        format!("{told}{said}")
    };
    assert!(attack("mv ../all/s.gz ../all/away; dd if=link iflag=direct; cat link").contains("No such file"));
    stdin.write_all(b"\n").expect("told");
    line.clear();
    stdout.read_line(&mut line).expect("she goes on");
    assert_eq!(line, "SECRETS\n", "what she wrote is hers");
    assert!(attack("mv ../all/mine ../all/s.gz; cat link").starts_with("mine\n"));
    let writes = "python3 -c \"import os; os.pwrite(os.open('link', os.O_RDWR), b'EVIL', 0)\"";
    assert!(attack(writes).contains("Device or resource busy"));
    attack("mv ../all/s.gz ../all/mine; mv ../all/away ../all/s.gz");
    assert!(attack(writes).contains("Permission denied"));
    drop(stdin);
    assert!(child.wait().expect("ended").code().is_some());
    assert_eq!(mounted.says(ALICE, "gzip -dc ../all/s.gz"), "SECRETS");
    assert_eq!(mounted.says(MALLORY, "gzip -dc ../all/mine"), "mine\n");
}

#[test]
fn what_is_pushed_onto_a_link_is_for_those_who_may_read_that() {
    if !can_mount() {
        return;
    }
    let mounted = Mounted::with_secret(true);
    chown(mounted.path("secret"), Some(ALICE), Some(ALICE)).expect("given");
    mounted.link_by(ALICE, "link", &definition("/secret", "upper"));
    let hers = mounted.vfs.lookup(Caller::ROOT, Ino::ROOT, b"hers").expect("there").ino;
    let link = mounted.vfs.lookup(Caller::ROOT, hers, b"link").expect("there").ino;
    let alice = Caller { uid: ALICE, gid: ALICE, ..Caller::ROOT };
    let pushed = |network: &str| Pushed { network: network.into(), code: Vec::new(), may_resize: true };
    for (network, shown) in
        [("rot13", "CNFFJBEQ=FRFNZR\n"), ("rev", "EMASES=DROWSSAP\n"), ("gzip | gzip -d", "PASSWORD=SESAME\n")]
    {
        mounted.vfs.links().expect("links").push(alice, link, Scope::Everybody, &pushed(network)).expect("pushed");
        for uid in [ALICE, 0] {
            assert_eq!(mounted.says(uid, "cat link"), shown, "{network} to {uid}");
            assert_eq!(mounted.says(uid, "stat -c %s link"), "16\n");
        }
        let others = mounted.run(MALLORY, "cat link");
        assert!(!others.status.success() && others.stdout.is_empty());
        mounted.vfs.links().expect("links").pop(alice, link, Scope::Everybody).expect("popped");
    }
    assert_eq!(mounted.says(ALICE, "cat link"), "PASSWORD=SESAME\n");
}

#[test]
fn looking_at_a_closed_link_changes_nothing_for_those_who_read_it() {
    if !can_mount() {
        return;
    }
    let mounted = Mounted::with_secret(true);
    mounted.link_by(0, "link", &definition("/secret", "upper"));
    let mut looks = mounted
        .command(ALICE, "", "while :; do stat link; cat link; done")
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .expect("run");
    for _ in 0..300 {
        assert_eq!(fs::read_to_string(mounted.path("hers/link")).expect("read"), "PASSWORD=SESAME\n");
        assert_eq!(fs::metadata(mounted.path("hers/link")).expect("attributes").len(), 16);
    }
    looks.kill().expect("it runs");
    looks.wait().expect("ended");
}

/// Copying of a file of which the kernel has no pages.
#[test]
fn a_link_that_is_not_for_everybody_is_copied_within_the_mount_by_those_who_may_read_it() {
    if !can_mount() {
        return;
    }
    let mounted = Mounted::with_secret(true);
    fs::write(mounted.path("hers/own"), "dear diary\n").expect("written");
    fs::set_permissions(mounted.path("hers/own"), fs::Permissions::from_mode(0o600)).expect("set");
    chown(mounted.path("hers/own"), Some(ALICE), Some(ALICE)).expect("given");
    mounted.link_by(ALICE, "loud", &definition("/hers/own", "upper"));
    assert_eq!(mounted.says(ALICE, "cp loud copy && cat copy"), "DEAR DIARY\n");
    assert!(!mounted.run(MALLORY, "cp loud /dev/stdout").status.success());
    let (from, to) = (fs::File::open(mounted.path("hers/loud")), fs::File::create(mounted.path("hers/part")));
    let copied = rustix::fs::copy_file_range(from.expect("root's"), Some(&mut 5), to.expect("made"), None, 100);
    assert_eq!(copied, Ok(6));
    assert_eq!(fs::read(mounted.path("hers/part")).expect("read"), b"DIARY\n");
}

#[test]
fn closed_links_are_listed_packed_renamed_and_removed() {
    if !can_mount() {
        return;
    }
    for opens in [false, true] {
        let mounted = Mounted::with_secret(opens);
        mounted.link_by(ALICE, "hers", &definition("/secret", "upper"));
        mounted.link_by(0, "roots", &definition("/secret", "upper"));
        assert_eq!(mounted.says(ALICE, "ls -l | grep -c 'ers\\|roots'; find . -type f | wc -l"), "2\n2\n");
        let packed = mounted.run(ALICE, "echo text >file; tar cf packed.tar file roots; tar tf packed.tar");
        assert!(String::from_utf8_lossy(&packed.stdout).contains("file\n"));
        mounted.says(ALICE, "mv roots moved && ln hers again && chmod 600 hers && touch hers && rm again");
        assert_eq!(mounted.says(ALICE, "rm -rf moved hers && ls | sort | tr '\\n' ' '"), "file packed.tar ");
    }
}

#[test]
fn attributes_of_a_closed_link_are_told_to_those_to_whom_it_is_open() {
    if !can_mount() {
        return;
    }
    let mounted = Mounted::with_secret(true);
    mounted.link_by(0, "link", &definition("/secret", "sort"));
    let tells = |uid, file: &str, name: &str| {
        mounted.run(uid, &format!("getfattr --only-values -n user.weft.{name} {file}")).status.success()
    };
    if !tells(0, "link", "link") {
        return eprintln!("SKIPPED: no getfattr");
    }
    for name in ["link", "digest", "memo"] {
        fs::read(mounted.path("hers/link")).expect("read");
        assert_eq!((tells(0, "link", name), tells(ALICE, "link", name)), (true, false), "{name}");
    }
}

#[test]
fn what_is_in_a_view_is_closed_as_links_are() {
    if !can_mount() {
        return;
    }
    for opens in [false, true] {
        let mounted = Mounted::with_secret(opens);
        fs::create_dir(mounted.path("source")).expect("made");
        fs::rename(mounted.path("secret"), mounted.path("source/secret")).expect("moved");
        fs::write(mounted.path("source/public"), "hello\n").expect("written");
        let view = |network| LinkDefinition {
            view: ViewKind::Directory { rename: None, only: None },
            ..definition("/source", network)
        };
        mounted.link_by(ALICE, "right", &view("grep '^pa'"));
        mounted.link_by(ALICE, "wrong", &view("grep '^pb'"));
        let look = "for v in right wrong; do stat -c '%s %a %b' $v/secret; cat $v/secret; done; cat right/public";
        for asker in [0, ALICE] {
            let told = mounted.run(asker, look).stdout;
            assert_eq!(String::from_utf8_lossy(&told), "1 0 0\n1 0 0\n", "to {asker}");
        }
        fs::set_permissions(mounted.path("source"), fs::Permissions::from_mode(0o700)).expect("set");
        for asker in [0, ALICE] {
            let told = mounted.run(asker, "ls right; stat -c %s right/secret; stat -c %s right/nothing").stdout;
            assert_eq!(String::from_utf8_lossy(&told), "", "to {asker}");
        }
    }
}

/// Command that shows the kernel's cached attributes of a file, without asking the file system.
const KEPT: &str = "stat -L --cached=always -c '%s %b %a %u %Y %Z'";

impl Mounted {
    /// Returns a mount that reports opens, with a directory `hers/source` of a file `secret`, both
    /// Alice's alone.
    fn with_hers() -> Mounted {
        let mounted = Mounted::with_secret(true);
        let made = "mkdir -m 700 source; cd source; umask 77; echo secret >secret; mkdir within; touch a b";
        mounted.says(ALICE, made);
        mounted
    }
}

fn view_of(source: &str) -> LinkDefinition {
    LinkDefinition { view: ViewKind::Directory { rename: None, only: None }, ..definition(source, "upper") }
}

#[test]
fn the_kernel_keeps_nothing_of_a_closed_link_that_others_were_told() {
    if !can_mount() {
        return;
    }
    let mounted = Mounted::with_hers();
    mounted.link_by(ALICE, "link", &definition("/hers/source/secret", "upper"));
    mounted.link_by(ALICE, "view", &view_of("/hers/source"));
    for name in ["link", "view"] {
        let kept = format!("{KEPT} {name}");
        let closed = mounted.says(MALLORY, &format!("{KEPT} --cached=never {name}"));
        for look in ["stat", "ls -la", "cat"] {
            mounted.run(ALICE, &format!("{look} {name}"));
            let told = mounted.says(MALLORY, &kept);
            // The permission bits show that another user was let in to a view.
            let told = if name == "view" { told.replace(" 555 ", " 0 ") } else { told };
            assert_eq!(told, closed, "of {name} after {look}");
        }
    }
}

#[test]
fn who_holds_what_was_for_everybody_is_told_nothing_of_what_it_leads_to_later() {
    if !can_mount() {
        return;
    }
    let mounted = Mounted::with_hers();
    mounted.says(ALICE, "chmod -R a+rX source; ln -s source way");
    mounted.link_by(ALICE, "link", &definition("/hers/way/secret", "upper"));
    mounted.link_by(ALICE, "view", &view_of("/hers/way"));
    let held = "exec 3<link 4<view 5<view/within 6<view/secret; echo; read line; while read line; do for fd in 3 4 5 6; \
                do KEPT /proc/self/fd/$fd; done; done; cat <&3";
    let mut child = mounted.command(MALLORY, "", &held.replace("KEPT", KEPT));
    let mut child = child.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().expect("run");
    let (mut stdin, mut stdout) = (child.stdin.take().expect("piped"), child.stdout.take().expect("piped"));
    stdout.read_exact(&mut [0]).expect("they are open");
    // Times and lengths that nothing else has.
    let later = "mkdir -m 700 other; mkdir other/within; touch other/within/1; echo longer than before >other/secret; \
                 touch -d @4444444444 other/secret; touch -d @4444444444 other/within other; \
                 rm way; ln -s other way";
    mounted.says(ALICE, later);
    assert_eq!(mounted.says(ALICE, "cat link view/secret"), "LONGER THAN BEFORE\nLONGER THAN BEFORE\n");
    let looks = "stat -c '%s %Y' link view/secret; ls -la view/ view/within; stat view view/within >/dev/null";
    assert!(mounted.says(ALICE, looks).starts_with("19 4444444444\n19 4444444444\n"));
    stdin.write_all(b"go\nonce\n").expect("asked");
    drop(stdin);
    let mut told = String::new();
    stdout.read_to_string(&mut told).expect("read");
    assert!(told.lines().count() >= 4, "{told}");
    assert!(!told.contains("44444") && !told.contains("19 ") && !told.contains("LONG"), "{told}");
    child.wait().expect("ended");
}

#[test]
fn a_descriptor_that_is_passed_on_tells_attributes_to_those_who_may_know_them() {
    if !can_mount() {
        return;
    }
    let mounted = Mounted::with_hers();
    mounted.link_by(ALICE, "link", &definition("/hers/source/secret", "upper"));
    let link = fs::File::open(mounted.path("hers/link")).expect("opened by root");
    let passed = mounted.command(ALICE, "", "stat -L -c %s -").stdin(link).output().expect("run");
    assert_eq!(String::from_utf8_lossy(&passed.stdout), "7\n");
    let link = fs::File::open(mounted.path("hers/link")).expect("opened by root");
    let passed = mounted.command(MALLORY, "", "stat -L -c %s -").stdin(link).output().expect("run");
    assert!(!passed.status.success(), "{passed:?}");
    // A name leads each user to another node, again and again.
    for _ in 0..3 {
        assert_eq!(mounted.says(ALICE, "stat -c %s link; cat link"), "7\nSECRET\n");
        assert_eq!(mounted.says(MALLORY, "stat -c %s link; ! cat link 2>&1 >/dev/null | grep -q SECRET"), "1\n");
        assert_eq!(mounted.says(0, "stat -c %s link; cat link"), "7\nSECRET\n");
    }
    mounted.says(ALICE, "chmod 600 link; touch -d @77 link; ln link also; stat also; rm also");
    // A link for everybody is one node again.
    mounted.says(ALICE, "chmod 711 source; chmod 644 source/secret; chmod 644 link");
    assert_eq!(mounted.says(MALLORY, "stat -c %s link; cat link"), "7\nSECRET\n");
}

/// Opens directory `view`, lists it, and lists it again after each line of input.
const LISTS_AGAIN: &str = r#"python3 -c "
import os, sys
directory = os.open('view', os.O_RDONLY)
while True:
    try: print(sorted(os.listdir(directory)), flush=True)
    except OSError as error: print(error.strerror, flush=True)
    if not sys.stdin.readline(): break
""#;

/// Runs [`LISTS_AGAIN`] until dropped.
struct Lister {
    child: Child,
    lines: Lines<BufReader<ChildStdout>>,
}

impl Lister {
    fn new(mounted: &Mounted, uid: u32) -> Lister {
        let mut command = mounted.command(uid, "", LISTS_AGAIN);
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().expect("run");
        let lines = BufReader::new(child.stdout.take().expect("piped")).lines();
        Lister { child, lines }
    }

    fn told(&mut self) -> Option<String> {
        self.lines.next().map(|line| line.expect("text"))
    }

    fn again(&mut self) -> String {
        self.child.stdin.as_mut().expect("piped").write_all(b"\n").expect("asked");
        self.told().expect("a line")
    }
}

impl Drop for Lister {
    fn drop(&mut self) {
        drop(self.child.stdin.take());
        let ended = self.child.wait();
        assert!(std::thread::panicking() || ended.is_ok());
    }
}

#[test]
fn a_view_that_has_closed_is_listed_to_those_who_have_it_open_as_to_others() {
    if !can_mount() {
        return;
    }
    for opens in [true, false] {
        let mounted = Mounted::with(SessionOptions { opens, ..SessionOptions::default() });
        fs::create_dir(mounted.path("hers")).expect("made");
        chown(mounted.path("hers"), Some(ALICE), Some(ALICE)).expect("given");
        mounted.says(ALICE, "mkdir one; touch one/public; mkdir -m 700 two; touch two/secret; ln -s one way");
        mounted.link_by(ALICE, "view", &view_of("/hers/way"));
        let (mut mallory, mut alice) = (Lister::new(&mounted, MALLORY), Lister::new(&mounted, ALICE));
        assert_eq!(mallory.told().as_deref(), Some("['public']"));
        assert_eq!(alice.told().as_deref(), Some("['public']"));
        mounted.says(ALICE, "rm way; ln -s two way");
        for _ in 0..2 {
            let listed = mounted.run(ALICE, "ls view").stdout;
            assert_eq!(String::from_utf8_lossy(&listed), if opens { "secret\n" } else { "" });
            let told = [alice.again(), mallory.again()].concat();
            assert!(!told.contains("secret"), "{told}");
        }
        // Whoever has opened it since is asked about each time, too.
        if opens {
            let mut alice = Lister::new(&mounted, ALICE);
            assert_eq!(alice.told().as_deref(), Some("['secret']"));
            mounted.says(0, "chown 0:0 two");
            assert_eq!(alice.again(), "Permission denied");
        }
    }
}

#[test]
fn a_symbolic_link_in_a_view_is_another_one_when_it_says_something_else() {
    if !can_mount() {
        return;
    }
    let mounted = Mounted::with_secret(true);
    mounted.says(ALICE, "mkdir source; ln -s public source/way");
    mounted.link_by(ALICE, "view", &view_of("/hers/source"));
    assert_eq!(mounted.says(MALLORY, "readlink view/way"), "public\n");
    let flags = OFlags::PATH | OFlags::NOFOLLOW;
    let way = File::from(open(mounted.path("hers/view/way"), flags, Mode::empty()).expect("opened"));
    mounted.says(ALICE, "chmod 700 source; ln -sfn somewhere/secret source/way");
    let listed = "readlink view/way; ls -i view | cut -d ' ' -f 1 | grep -qx \"$(stat -c %i view/way)\" && echo same";
    assert_eq!(mounted.says(ALICE, listed), "somewhere/secret\nsame\n");
    assert_eq!(way.metadata().expect("attributes").len(), 6, "it is the one that was opened");
    assert_eq!(rustix::fs::readlinkat(&way, "", Vec::new()).expect("read").as_bytes(), b"public");
}
