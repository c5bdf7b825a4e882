//! Paths into the past, in a mount.

use crate::place::{Place, is_root, on_each_engine};
use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::process::Command;

/// A script that commits all, and names the commit for later as `$1`.
const KEEP: &str = "keep() { \"$WEFT\" sync . | sed 's/.*(commit \\([0-9]*\\)).*/@\\1/' >../commit-$1; }";

#[test]
fn programs_find_in_each_moment_what_was_there_then() {
    on_each_engine(&[], |place, _| {
        place.weft(&["history", "set", "m", "all forever"]).well();
        let script = |body: &str| {
            let weft = env!("CARGO_BIN_EXE_weft");
            place.sh(&format!("set -e; WEFT={weft}; {KEEP}; {body}")).well()
        };
        script(
            "export GIT_CONFIG_GLOBAL=/dev/null; git init -q r && cd r && git config user.email a@b && git config user.name a
             cd ..; mkdir -p tree/sub; ln -s sub tree/link; mkfifo tree/fifo
             for i in $(seq 1 10); do
                echo $i >r/file; echo $i >r/new-$i; (cd r && git add . && git commit -qm $i)
                seq $i 5000 >tree/sub/lines; echo $i >tree/$i; chmod 6$((i % 8))4 tree/$i; rm -f tree/$((i - 3))
                rm -rf ../copy-$i; keep $i; cp -a tree ../copy-$i
             done; mv tree elsewhere; mv elsewhere/sub .; keep 11",
        );
        script(
            "export GIT_CONFIG_GLOBAL=/dev/null GIT_CONFIG_COUNT=1 GIT_CONFIG_KEY_0=safe.directory GIT_CONFIG_VALUE_0=*
             for i in $(seq 1 10); do
                at=.weft/at/$(cat ../commit-$i)
                [ \"$(git -C $at/r log --format=%s | wc -l)\" = $i ]; git -C $at/r fsck --no-progress
                [ -z \"$(git --no-optional-locks -C $at/r status --porcelain)\" ]
                diff -r --no-dereference -x fifo $at/tree ../copy-$i
                rm -rf ../copied; cp -a $at/tree ../copied; diff -r --no-dereference -x fifo ../copied ../copy-$i
                [ \"$($WEFT digest $at/tree | cut -d' ' -f1)\" = \"$($WEFT digest ../copy-$i | cut -d' ' -f1)\" ]
                diff sub/.weft/at/$(cat ../commit-$i)/lines ../copy-$i/sub/lines
                cmp $at/tree/link/lines ../copy-$i/sub/lines
                grep -rq \"^$i\\$\" $at/tree/sub
             done
             ! ls -a | grep weft; [ \"$(ls .weft)\" = at ]; [ -z \"$(ls .weft/at)\" ]",
        );
        place.weft(&["snapshot", "create", "m", "kept"]).well();
        script(
            "[ \"$(ls .weft/at)\" = kept ]; rm -rf r; [ \"$(cat .weft/at/kept/r/file)\" = 10 ]; [ ! -e r ]
             [ \"$(readlink .weft/at/now)\" != \"$(readlink .weft/at/kept)\" ] || { keep 12; }
             ! touch .weft/at/kept/x 2>/dev/null; ! mkdir .weft 2>/dev/null; ! rm -rf .weft/at/kept/r 2>/dev/null
             ! ls .weft/at/nothing 2>/dev/null; ! mv sub .weft/at/kept/ 2>/dev/null; ! ln .weft/at/kept/r/file x 2>/dev/null
             [ -d .weft/at/kept/r/.git ]",
        );
    });
}

#[test]
fn each_kept_change_of_a_file_is_listed_whatever_it_was_called() {
    on_each_engine(&[], |place, volume| {
        place.weft(&["history", "set", "m", "all forever"]).well();
        let step = |script: &str| {
            place.sh(script).well();
            place.weft(&["sync", "m"]).well();
        };
        step("mkdir a b && echo one >a/file");
        step("echo second >a/file");
        step("chmod 600 a/file");
        step("mv a/file b/other");
        step("ln b/other a/again");
        step("cat b/other >/dev/null");
        let told = place.weft(&["log", "--json", "m/b/other"]).json();
        let of = |key: &str| told.as_array().unwrap().iter().map(|change| change[key].to_string()).collect::<Vec<_>>();
        assert_eq!(
            of("changed"),
            ["[\"links\"]", "[\"renamed\"]", "[\"mode\"]", "[\"content\"]", "[\"made\"]"],
            "{told:#}"
        );
        assert_eq!(of("size"), ["7", "7", "7", "7", "4"]);
        let digests = of("digest");
        assert!(digests[0] == digests[3] && digests[3] != digests[4], "{digests:?}");
        let file = place.weft(&["digest", "m/b/other"]).well();
        assert!(digests[0].contains(file.split(' ').next().unwrap()));
        assert_eq!(place.weft(&["log", "-n", "2", "m/a/again"]).well().lines().count(), 2);
        assert_eq!(place.weft(&["log", &format!("{volume}:b/other")]).well().lines().count(), 5);
        let second = told[1]["time"].as_str().unwrap();
        assert_eq!(place.weft(&["log", "--since", second, "m/b/other"]).well().lines().count(), 2);
        // A name that is gone: of what has another one now, and of what was deleted.
        assert_eq!(place.weft(&["log", "m/a/file"]).well().lines().count(), 5);
        step("echo brief >a/brief");
        step("mv a/brief a/short");
        step("mv a/short b/far");
        step("rm b/far");
        let gone = place.weft(&["log", "--json", "m/b/far"]).json();
        let of = |key: &str| gone.as_array().unwrap().iter().map(|change| change[key].to_string()).collect::<Vec<_>>();
        assert_eq!(of("changed"), ["[\"deleted\"]", "[\"renamed\"]", "[\"renamed\"]", "[\"made\"]"], "{gone:#}");
        assert_eq!(of("path")[1..], ["\"b/far\"", "\"a/short\"", "\"a/brief\""], "{gone:#}");
        let deletion = gone[0]["time"].as_str().unwrap();
        assert_eq!(place.weft(&["log", "--since", deletion, "m/b/far"]).well().lines().count(), 1);
        assert_eq!(place.weft(&["log", "--json", "m/a/brief"]).json(), gone, "by its first name");
        assert_eq!(place.weft(&["log", "--json", "m/a/short"]).json(), gone, "by the one after it");
        assert_eq!(place.weft(&["log", "-n", "1", "m/b/far"]).well().lines().count(), 1);
        place.weft(&["log", "m/a/nothing"]).failed(&["no commit that is kept has /a/nothing"]);
        let directory = place.weft(&["log", "--json", "m/a"]).json();
        assert_eq!(directory[0]["changed"][0], "content", "{directory:#}");
        place.sh("touch b/new").well();
        let new = place.weft(&["log", "--json", "m/b/new"]).json();
        assert_eq!(new[0]["changed"][0], "made", "{new:#}");
    });
}

#[test]
fn an_entry_of_the_same_name_wins_and_the_name_can_be_another_or_none() {
    let Some(place) = Place::to_mount() else { return };
    place.weft(&["init", "--history", "off", "v"]).well();
    place.directory("m");
    place.mount();
    place.sh("mkdir -p own/.weft other && touch own/.weft/mine && ! ls other/.weft 2>/dev/null").well();
    place.weft(&["history", "set", "m", "all forever"]).well();
    place.sh("[ $(ls own/.weft) = mine ] && [ $(ls other/.weft) = at ] && touch own/.weft/more").well();
    place.sh("ls own/.weft/more .weft/at/now/own/.weft/mine && rm -r own/.weft && [ $(ls own/.weft) = at ]").well();
    place.umount();
    place.mount_with("v", &["--history-name", ".past"]);
    place.sh("[ $(ls .past) = at ] && ! ls .weft 2>/dev/null && mkdir .weft && ! mkdir .past 2>/dev/null").well();
    place.umount();
    place.mount_with("v", &["-o", "history-name=off"]);
    place.sh("! ls .past 2>/dev/null && mkdir .past").well();
}

#[test]
fn users_see_of_the_past_what_they_could_see_then_and_can_see_now() {
    let test = "users_see_of_the_past_what_they_could_see_then_and_can_see_now";
    if !is_root() {
        return eprintln!("SKIPPED {test}: needs root");
    }
    on_each_engine(&[], |place, _| {
        place.weft(&["history", "set", "m", "all forever"]).well();
        let mounted = place.path("m");
        fs::set_permissions(place.path(""), PermissionsExt::from_mode(0o755)).unwrap();
        fs::set_permissions(&mounted, PermissionsExt::from_mode(0o755)).unwrap();
        let may = |user: u32, script: &str| {
            let user = format!("--reuid={user} --regid={user} --clear-groups -- sh -c");
            let mut command = Command::new("setpriv");
            command.args(user.split(' ')).arg(script).current_dir(&mounted);
            command.output().unwrap().status.success()
        };
        place
            .sh("mkdir open closed && echo leak >open/leak && echo secret >closed/secret && chmod 700 closed
                 echo own >open/own && chmod 600 open/own && chown 1000 open/own && cp /bin/true open/suid
                 chmod 4755 open/suid")
            .well();
        place.weft(&["snapshot", "create", "m", "then"]).well();
        assert!(may(1000, "cat .weft/at/then/open/leak && cat .weft/at/then/open/own"));
        assert!(!may(1001, "cat .weft/at/then/open/own"));
        assert!(!may(1001, "cat .weft/at/then/closed/secret"));
        let mode = fs::metadata(mounted.join(".weft/at/then/open/suid")).unwrap().mode();
        assert_eq!(mode & 0o7777, 0o555, "nobody gets privileges from the past, or writes to it");
        place.sh("chmod 600 open/leak && chmod 755 closed").well();
        assert!(!may(1001, "cat .weft/at/then/open/leak"), "it is closed now, also where the kernel knew it");
        assert!(!may(1001, "cat .weft/at/then/closed/secret"), "it was closed then");
        place.sh("mkdir -m 755 hidden && mv open hidden/ && chmod 700 hidden").well();
        assert!(!may(1001, "ls hidden/open/.weft/at/then"), "the way there is closed");
        place.sh("mkdir -p deep/a && chmod 700 deep && echo x >deep/a/file").well();
        place.weft(&["snapshot", "create", "m", "deep"]).well();
        place.sh("mv deep/a shown && rmdir deep").well();
        assert!(may(1001, "cat shown/file"));
        assert!(!may(1001, "cat shown/.weft/at/deep/file"), "it lay in a closed directory then");
        assert!(may(0, "cat shown/.weft/at/deep/file"));
        assert!(may(1001, "cat .weft/at/then/open/suid"));
        place
            .sh("echo secret >listed && chmod 644 listed && setfacl -m u:1001:- listed
                 echo own >named && chmod 600 named && setfacl -m u:1001:r named")
            .well();
        place.weft(&["snapshot", "create", "m", "lists"]).well();
        assert!(may(1001, "cat .weft/at/lists/named") && !may(1002, "cat .weft/at/lists/named"));
        place.sh("echo public >listed && setfacl -b listed").well();
        assert!(!may(1001, "cat .weft/at/lists/listed"), "the list of then kept that user out");
        place.sh("setfacl -x u:1001 named").well();
        assert!(!may(1001, "cat .weft/at/lists/named"));
        place.sh("mkdir -m 777 all && echo leak >all/removed").well();
        place.weft(&["snapshot", "create", "m", "leak"]).well();
        place.sh("chmod 600 all/removed").well();
        place.weft(&["sync", "m"]).well();
        assert!(may(1001, "rm -f all/removed") && !may(1001, "cat .weft/at/leak/all/removed"), "it was closed");
        place.sh("echo first >restored && chmod 600 restored").well();
        place.weft(&["snapshot", "create", "m", "first"]).well();
        place.sh("echo leak >restored && chmod 644 restored").well();
        place.weft(&["snapshot", "create", "m", "second"]).well();
        place.sh("rm restored").well();
        assert!(may(1001, "cat .weft/at/second/restored"));
        place.weft(&["undelete", "m/restored", "--at", "first"]).well();
        assert!(!may(1001, "cat .weft/at/second/restored"), "it is closed now, also where the kernel knew it");
        assert!(!may(0, "ls .weft/at/9999-12-31"), "nothing is known of the future");
        place.weft(&["history", "set", "m", "all forever", "--for", "owner"]).well();
        assert!(!may(1001, "cat .weft/at/then/open/suid"), "also where the kernel knew it");
        assert!(may(1000, "cat .weft/at/then/open/own") && !may(1001, "cat .weft/at/deep/hidden/open/suid"));
        place.weft(&["history", "set", "m", "all forever", "--for", "root"]).well();
        assert!(!may(1000, "ls .weft") && may(0, "cat .weft/at/then/open/leak"));
    });
}

/// Also if one commit has both. And what was removed keeps nobody from the rest when the rule has
/// dropped the last commit that had it.
#[test]
fn what_was_closed_and_then_removed_stays_closed() {
    let test = "what_was_closed_and_then_removed_stays_closed";
    if !is_root() {
        return eprintln!("SKIPPED {test}: needs root");
    }
    on_each_engine(&[], |place, volume| {
        place.weft(&["history", "set", "m", "all forever"]).well();
        let mounted = place.path("m");
        fs::set_permissions(place.path(""), PermissionsExt::from_mode(0o755)).unwrap();
        fs::set_permissions(&mounted, PermissionsExt::from_mode(0o755)).unwrap();
        let may_read = |path: &str| {
            let mut command = Command::new("setpriv");
            command.args(["--reuid=1001", "--regid=1001", "--clear-groups", "--", "cat"]);
            command.arg(mounted.join(".weft/at/then").join(path)).output().unwrap().status.success()
        };
        let closed = ["once", "directory/file", "later", "listed"];
        place
            .sh("mkdir directory && for name in once directory/file later listed marked; do echo leak >$name; done
                 setfattr -n user.a -v b marked")
            .well();
        place.weft(&["snapshot", "create", "m", "then"]).well();
        assert!(closed.iter().all(|path| may_read(path)) && may_read("marked"));
        place.sh("chmod 600 once && rm once && chmod 700 directory && rm -r directory").well();
        place.weft(&["sync", "m"]).well();
        assert!(!may_read("once") && !may_read("directory/file"));
        for script in ["chmod 600 later && setfacl -m u:1001:- listed", "rm later listed marked"] {
            place.sh(script).well();
            place.weft(&["sync", "m"]).well();
        }
        assert!(closed.iter().all(|path| !may_read(path)) && may_read("marked"));
        let last = place.weft(&["info", "--json", volume]).json()["commit"].as_u64().unwrap();
        place.weft(&["history", "set", "m", "--drop", "all 1s"]).well();
        let is_dropped = || place.weft(&["history", "--json", "m"]).json()["first"]["commit"].as_u64().unwrap() > last;
        while !is_dropped() {
            place.sh("echo x >>now").well();
            place.weft(&["sync", "m"]).well();
            place.weft(&["gc", "m"]).well();
        }
        // What was known of them is forgotten.
        place.umount();
        place.mount_with(volume, &[]);
        assert!(may_read("marked"));
    });
}

#[test]
fn a_commit_in_use_stays_though_the_rule_becomes_shorter() {
    on_each_engine(&[], |place, volume| {
        place.weft(&["history", "set", "m", "all forever"]).well();
        place.sh("echo then >file").well();
        place.weft(&["sync", "m"]).well();
        let used = place.weft(&["info", "--json", volume]).json()["commit"].as_u64().unwrap();
        let read = || place.sh(&format!("cat .weft/at/@{used}/file"));
        assert_eq!(read().well(), "then\n");
        place.sh("rm file").well();
        place.weft(&["sync", "m"]).well();
        place.weft(&["history", "set", "m", "--drop", "all 1s"]).well();
        while place.weft(&["history", "--json", "m"]).json()["first"]["commit"].as_u64() <= Some(used) {
            place.sh("echo x >>now").well();
            place.weft(&["sync", "m"]).well();
            place.weft(&["gc", "m"]).well();
        }
        assert_eq!(read().well(), "then\n");
    });
}

/// The kernel keeps what is stored to a mapping, and shows it to all.
#[test]
fn nobody_writes_over_what_others_read_of_the_past() {
    let Some(place) = Place::to_mount() else { return };
    if !is_root() {
        return eprintln!("SKIPPED nobody_writes_over_what_others_read_of_the_past: needs root");
    }
    place.weft(&["init", "volume", "--history", "all forever"]).well();
    let mounted = place.directory("m");
    fs::set_permissions(place.path(""), PermissionsExt::from_mode(0o755)).unwrap();
    let store =
        "import mmap, os; m = mmap.mmap(os.open('.weft/at/then/file', os.O_RDWR), 0); m[:4] = b'EVIL'; m.flush()";
    let stores = |user: u32| {
        let ids = [format!("--reuid={user}"), format!("--regid={user}"), "--clear-groups".into()];
        let mut command = Command::new("setpriv");
        command.args(ids).args(["/usr/bin/python3", "-c", store]).current_dir(&mounted);
        command.output().unwrap().status.success()
    };
    let is_as_it_was = || {
        // What was stored goes as soon as the kernel is told.
        place
            .sh("for i in $(seq 200); do [ \"$(cat .weft/at/then/file)\" = true-past ] && exit 0; sleep .05; done; exit 1")
            .well();
    };
    place.mount_with("volume", &["-o", "allow_other"]);
    place.sh("chmod 755 . && echo true-past >file && chmod 666 file && setfacl -m u:1001:rw file").well();
    place.weft(&["snapshot", "create", "m", "then"]).well();
    for user in [1000, 1001] {
        assert!(!stores(user), "user {user}");
    }
    assert!(!stores(0), "root may open it, and the store is refused");
    is_as_it_was();
    place.umount();
    place.mount_with("volume", &["-o", "allow_other", "--opens"]);
    for user in [0, 1000, 1001] {
        assert!(!stores(user), "user {user}");
    }
    is_as_it_was();
    place.umount();
}
