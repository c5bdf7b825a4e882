//! What runs for links: for whom, until when.

use crate::links::definition;
use crate::{Volume, kind, options, volume_options};
use weft_links::{LinkOptions, looking};
use weft_transform::Bounds;
use weft_vfs::{Caller, ErrorKind, Ino, SetAttributes};

/// Networks put data that does not fit in memory into temporary files, outside of every quota.
#[test]
fn temporary_files_of_a_users_networks_have_bounds() {
    let networks = Bounds { temporary_bytes: 64 << 20, ..Bounds::default() };
    let volume = Volume::with(volume_options(), LinkOptions { networks, ..options() });
    let make = |uid: u32, network: &str, bytes: u64| {
        let file = volume.file(&format!("file for {uid}: {network}, {bytes}"));
        let longer = SetAttributes { size: Some(bytes), ..SetAttributes::default() };
        volume.vfs.set_attributes(file, longer).expect("longer");
        let link = definition(&[&format!("/file for {uid}: {network}, {bytes}")], network);
        let owner = Caller { uid, gid: uid, ..Caller::ROOT };
        let name = format!("link of {uid}: {network}, {bytes}");
        volume.links().make_link(owner, Ino::ROOT, name.as_bytes(), 0o644, &link).expect("made").ino
    };
    let pair = "tee(wc -c, identity) | concat | head -c 9";
    for network in [pair, "tac | head -c 9"] {
        assert_eq!(kind(volume.all(make(1000, network, 90 << 20))), ErrorKind::NoSpace, "{network}");
    }
    // What was taken goes with the network: another one has room.
    assert_eq!(volume.all(make(1000, pair, 24 << 20)).expect("read"), b"25165824\n");
    // So does what was read a little, before another one is refused.
    let links: Vec<_> = (1..5).map(|more| make(1000, "tee(wc -c, identity) | concat", (24 << 20) + more)).collect();
    for link in links.iter().chain(&links) {
        assert_eq!(volume.vfs.read(*link, 0, 4).expect("read").to_vec(), b"2516");
    }
    // Who mounts the volume has what is free.
    let own = rustix::process::geteuid().as_raw();
    assert_eq!(volume.all(make(own, pair, 90 << 20)).expect("read"), b"94371840\n");
}

/// Commands of one owner reach no processes of another's.
#[test]
fn commands_run_as_a_user_for_each_owner_of_links() {
    use weft_links::Exported;
    if !rustix::process::geteuid().is_root() {
        eprintln!("skipped: only root can become other users");
        return;
    }
    let volume = Volume::with(volume_options(), LinkOptions { exported: Exported::Everybody, ..options() });
    volume.file("file");
    let mut seen = std::collections::BTreeSet::new();
    for uid in [0, 1000, 1001] {
        let owner = Caller { uid, gid: uid, ..Caller::ROOT };
        let link = definition(&["/file"], &format!("exec 'id -u; id -G; : {uid}'"));
        let made = volume.links().make_link(owner, Ino::ROOT, format!("of {uid}").as_bytes(), 0o644, &link);
        let said = volume.all(made.expect("made").ino).expect("read");
        let ids = String::from_utf8(said).expect("text");
        assert!(ids.lines().all(|id| id.parse::<u32>().is_ok_and(|id| id > 60_000)), "{ids}");
        assert_eq!(ids.lines().collect::<std::collections::BTreeSet<_>>().len(), 1, "one group: {ids}");
        seen.insert(ids);
    }
    assert_eq!(seen.len(), 3, "{seen:?}");
}

/// A request that is interrupted ends, and what it waited for goes on for whoever else waits.
#[test]
fn an_interrupted_request_takes_nothing_from_others() {
    use std::os::unix::fs::PermissionsExt;
    use weft_vfs::{Requester, set_requester};
    let volume = Volume::new();
    let file = volume.file("file");
    volume.write(file, 0, b"abc\n");
    let outside = crate::seen_by_commands();
    std::fs::set_permissions(outside.path(), std::fs::Permissions::from_mode(0o755)).expect("set");
    let go = outside.path().join("go");
    let command = format!("exec 'until test -e {}; do sleep 0.02; done; cat' | upper", go.display());
    let link = volume.link("link", "/file", &command);
    let read = |number| {
        set_requester(Requester { user: 7, number: Some(number), ..Requester::default() });
        volume.all(link)
    };
    let computing = |requests| {
        while volume.vfs.stats().requests_computing != requests {
            std::thread::yield_now();
        }
    };
    std::thread::scope(|scope| {
        let first = scope.spawn(|| read(1));
        computing(1);
        let second = scope.spawn(|| read(2));
        computing(2);
        volume.links().interrupt(1);
        assert_eq!(kind(first.join().unwrap()), ErrorKind::Interrupted);
        std::fs::write(&go, "").expect("written");
        assert_eq!(second.join().unwrap().unwrap(), b"ABC\n");
    });
    // The word may come before the request that it is about.
    let sum = volume.link("sum", "/file", "sha256");
    volume.links().interrupt(3);
    set_requester(Requester { user: 7, number: Some(3), ..Requester::default() });
    assert_eq!(kind(volume.all(sum)), ErrorKind::Interrupted);
    set_requester(Requester { user: 7, number: Some(4), ..Requester::default() });
    assert_eq!(volume.all(sum).unwrap().len(), 65);
    let stopped = volume.link("stopped", "/file", "wc -c");
    volume.links().stop_computing(true);
    assert_eq!(kind(volume.all(stopped)), ErrorKind::Interrupted);
}

/// A command that hangs is not run again for the next one who reads.
#[test]
fn what_hangs_is_not_tried_again_at_once() {
    use rustix::fs::{CWD, FileType, Mode, OFlags};
    use std::os::unix::fs::PermissionsExt;
    let volume = Volume::new();
    volume.file("file");
    let outside = crate::seen_by_commands();
    std::fs::set_permissions(outside.path(), std::fs::Permissions::from_mode(0o755)).expect("set");
    // A command can write to no file of the machine, but take what is in one: a line each time.
    let runs = outside.path().join("runs");
    rustix::fs::mknodat(CWD, &runs, FileType::Fifo, Mode::from_raw_mode(0o666), 0).expect("made");
    std::fs::set_permissions(&runs, std::fs::Permissions::from_mode(0o666)).expect("set");
    let told = rustix::fs::open(&runs, OFlags::RDWR | OFlags::NONBLOCK, Mode::empty()).expect("open");
    rustix::io::write(&told, b"1\n2\n3\n").expect("there is room");
    let link = volume.link("link", "/file", &format!("exec -t 1 'read run <{}; sleep 100'", runs.display()));
    assert_eq!(volume.attributes(link).size, 1);
    for _ in 0..3 {
        assert_eq!(kind(volume.all(link)), ErrorKind::TimedOut);
    }
    let mut said = [0; 64];
    let count = rustix::io::read(&told, &mut said).expect("some are left");
    assert_eq!(&said[..count], b"2\n3\n", "it ran once");
}

/// stat(2) of a link asks for its length, which may take for ever.
#[test]
fn whoever_looks_at_links_of_others_does_not_wait_for_long() {
    use weft_vfs::{Requester, set_requester};
    let volume = Volume::new();
    let file = volume.file("file");
    let long = SetAttributes { size: Some(1000 << 40), ..SetAttributes::default() };
    volume.vfs.set_attributes(file, long).expect("longer");
    let make = |uid: u32, name: &str| {
        let owner = Caller { uid, gid: uid, ..Caller::ROOT };
        volume
            .links()
            .make_link(owner, Ino::ROOT, name.as_bytes(), 0o644, &definition(&["/file"], "gzip"))
            .expect("made")
            .ino
    };
    let look = |user: u32, ino: Ino| looking(&volume.vfs, user, ino, || volume.vfs.attributes(ino)).map(|_| ());
    let links: Vec<Ino> = (0..20).map(|number| make(1000, &format!("of a user {number}"))).collect();
    // Together they keep others waiting no longer than one may.
    for link in &links {
        assert_eq!(kind(look(1001, *link)), ErrorKind::TimedOut);
        assert_eq!(kind(look(0, *link)), ErrorKind::TimedOut);
    }
    // Whoever made one, and who looks at one of root's, waits as long as it takes.
    for (user, link) in [(1000, links[0]), (1001, make(0, "of root"))] {
        set_requester(Requester { user, number: Some(user.into()), ..Requester::default() });
        volume.links().interrupt(user.into());
        assert_eq!(kind(look(user, link)), ErrorKind::Interrupted);
    }
}

/// A write far behind the end of what a link undoes fills what lies between.
#[test]
fn filling_up_to_a_write_far_behind_the_end_can_be_interrupted() {
    use weft_vfs::{Requester, set_requester};
    let volume = Volume::new();
    let file = volume.file("file");
    volume.write(file, 0, b"a");
    let link = volume.link("link", "/file", "xor 5");
    set_requester(Requester { user: 7, number: Some(1), ..Requester::default() });
    volume.links().interrupt(1);
    let written = volume.vfs.write(link, 8 << 40, b"b", true);
    assert_eq!(written.unwrap_err().kind(), ErrorKind::Interrupted);
    assert!(volume.attributes(file).size < 1 << 30);
}

#[test]
fn links_work_for_those_who_may_have_them() {
    use weft_links::{LinkOwners, Pushed, Scope};
    let user = Caller { uid: 1000, gid: 1000, ..Caller::ROOT };
    let served_by = rustix::process::geteuid().as_raw();
    for (links, by_root, by_user) in [
        (LinkOwners::Nobody, Some(ErrorKind::NotPermitted), Some(ErrorKind::NotPermitted)),
        (LinkOwners::Own, None, Some(ErrorKind::NotPermitted)),
        (LinkOwners::Everybody, None, None),
    ] {
        let volume = Volume::with(volume_options(), LinkOptions { owners: links, ..options() });
        let file = volume.file("file");
        volume.write(file, 0, b"abc\n");
        for (caller, name, refused) in [(Caller::ROOT, "by root", by_root), (user, "by a user", by_user)] {
            let refused = refused.filter(|_| links == LinkOwners::Nobody || caller.uid != served_by);
            volume.change(file, SetAttributes { uid: Some(caller.uid), ..SetAttributes::default() });
            let pushed = Pushed { network: "upper".into(), code: Vec::new(), may_resize: true };
            let pushed = volume.links().push(caller, file, Scope::Everybody, &pushed);
            assert_eq!(pushed.err().map(|error| error.kind()), refused, "{links:?}, pushed {name}");
            let made =
                volume.links().make_link(caller, Ino::ROOT, name.as_bytes(), 0o644, &definition(&["/file"], "upper"));
            assert_eq!(made.as_ref().err().map(weft_vfs::Error::kind), refused, "{links:?}, {name}");
            // A link that was given away is its new owner's.
            if let Ok(made) = made {
                volume.change(made.ino, SetAttributes { uid: Some(1001), ..SetAttributes::default() });
                let read = volume.all(made.ino).map_err(|error| error.kind());
                let works = links == LinkOwners::Everybody || links == LinkOwners::Own && served_by == 1001;
                assert_eq!(read, if works { Ok(b"ABC\n".to_vec()) } else { Err(ErrorKind::NotPermitted) });
            }
        }
    }
}
