//! Links tell nobody what that user could not read without them.

use crate::links::definition;
use crate::{DIRECTORY, FILE, Volume, kind};
use weft_links::{LinkDefinition, Opening, ViewKind};
use weft_vfs::{
    Access, Asker, Attributes, Caller, Cookie, Credentials, ErrorKind, FileId, IfExists, Ino, MakeNode, Reach,
    RenameMode, SetAttributes, Timestamp,
};

const ALICE: u32 = 1000;
const BOB: u32 = 1001;
const TEAM: u32 = 2000;

fn caller(uid: u32) -> Caller {
    Caller { uid, gid: uid, ..Caller::ROOT }
}

/// A user whose further groups nobody knows.
fn user(uid: u32) -> Asker {
    Asker::thread(uid, uid, 0)
}

fn member(uid: u32, groups: &[u32]) -> Asker {
    Asker::user(&Credentials { uid, gid: uid, groups: groups.to_vec() })
}

impl Volume {
    /// A link in the root that `maker` makes.
    fn link_by(&self, maker: u32, name: &str, definition: &LinkDefinition) -> Ino {
        self.links().make_link(caller(maker), Ino::ROOT, name.as_bytes(), 0o777, definition).expect("made").ino
    }

    fn filled(&self, parent: Ino, name: &str, permissions: u32, bytes: &[u8]) -> Ino {
        let file = self.make(parent, name, FILE);
        self.write(file, 0, bytes);
        self.chmod(file, permissions);
        file
    }

    fn own(&self, ino: Ino, uid: u32, gid: u32) {
        let changes = SetAttributes { uid: Some(uid), gid: Some(gid), ..SetAttributes::default() };
        self.vfs.set_attributes(ino, changes).expect("set");
    }

    /// Attributes of `ino`, but for its number.
    fn look(&self, ino: Ino) -> Attributes {
        Attributes { ino: Ino::ROOT, ..self.attributes(ino) }
    }

    fn computed(&self) -> u64 {
        self.vfs.stats().results_computed
    }

    /// Nobody in particular sees anything of link `ino`.
    fn assert_closed(&self, ino: Ino) {
        let seen = self.attributes(ino);
        assert_eq!((seen.size, seen.permissions, seen.mtime, seen.reach), (1, 0, Timestamp(0), Reach::Nobody));
        assert_eq!(kind(self.vfs.read(ino, 0, 100)), ErrorKind::AccessDenied);
        assert_eq!(kind(self.links().read_some(ino, 0, 100)), ErrorKind::AccessDenied);
        assert_eq!(kind(self.vfs.write(ino, 0, b"x", false)), ErrorKind::AccessDenied);
        assert_eq!(kind(self.links().opened(ino, false)), ErrorKind::AccessDenied);
        assert_eq!(kind(self.vfs.xattr(ino, b"user.weft.digest")), ErrorKind::AccessDenied);
        assert_eq!(kind(self.vfs.xattr(ino, b"user.weft.memo")), ErrorKind::NoAttribute);
    }
}

#[test]
fn the_length_of_a_link_is_no_oracle() {
    let volume = Volume::new();
    let closed = volume.directory("closed");
    volume.filled(closed, "secret", 0o600, b"password=sesame\n");
    volume.chmod(closed, 0o700);
    let secret = |network: &str| definition(&["/closed/secret"], network);
    let right = volume.link_by(ALICE, "right", &secret("grep '^pa'"));
    let wrong = volume.link_by(ALICE, "wrong", &secret("grep '^pb'"));
    let plain = volume.link_by(ALICE, "plain", &secret("increment"));
    let missing = volume.link_by(ALICE, "missing", &definition(&["/closed/nothing"], "grep '^pa'"));
    let below = volume.link_by(ALICE, "below", &definition(&["/closed/secret/further"], "grep '^pa'"));
    // What is not there in a directory that everybody may search is for everybody not to be there.
    let dead = volume.link_by(ALICE, "dead", &definition(&["/nothing"], "grep '^pa'"));
    assert_eq!((volume.attributes(dead).reach, volume.attributes(dead).permissions), (Reach::Everybody, 0o777));
    volume.clock.advance(5);
    // The one who asks makes no difference: the maker may not read it.
    for asker in [user(ALICE), user(BOB), user(0), Asker::Anybody, Asker::Holder] {
        let _asking = asker.asks();
        for link in [right, wrong, plain, missing, below] {
            volume.assert_closed(link);
            assert_eq!(volume.look(link), volume.look(wrong), "existence is nothing to be told either");
        }
    }
    assert_eq!(volume.computed(), 0, "no network has begun");
}

#[test]
fn who_asks_counts_as_much_as_who_made_it() {
    let volume = Volume::new();
    let secret = volume.filled(Ino::ROOT, "secret", 0o640, b"password\n");
    volume.own(secret, BOB, TEAM);
    let link = volume.link("link", "/secret", "grep '^pa'");
    let outer = volume.link("outer", "/link", "upper");
    {
        let _asking = user(0).asks();
        assert_eq!((volume.attributes(outer).size, volume.attributes(outer).reach), (9, Reach::Some));
        assert_eq!(volume.all(outer).unwrap(), b"PASSWORD\n");
    }
    for (asker, may) in [
        (user(ALICE), false),
        (user(BOB), true),
        (member(ALICE, &[5, TEAM]), true),
        (member(ALICE, &[5]), false),
        // It is known to others now, and kept.
        (Asker::Anybody, false),
    ] {
        let _asking = asker.asks();
        for (ino, text) in [(link, b"password\n"), (outer, b"PASSWORD\n")] {
            if may {
                assert_eq!((volume.attributes(ino).size, volume.all(ino).unwrap()), (9, text.to_vec()));
                assert!(volume.vfs.xattr(link, b"user.weft.memo").is_ok());
                assert_eq!(volume.links().opened(ino, false).unwrap(), Opening::Direct { is_open: false });
            } else {
                volume.assert_closed(ino);
            }
        }
    }
    // A group may have less than all others, of whom a user is that may be in it.
    volume.chmod(secret, 0o604);
    for (asker, may) in [(user(ALICE), false), (member(ALICE, &[TEAM]), false), (member(ALICE, &[]), true)] {
        let _asking = asker.asks();
        assert_eq!(volume.all(link).is_ok(), may);
    }
    // What is for everybody asks nobody.
    volume.chmod(secret, 0o644);
    let _asking = Asker::Anybody.asks();
    assert_eq!((volume.attributes(outer).size, volume.attributes(outer).reach), (9, Reach::Everybody));
    assert_eq!(volume.links().opened(outer, false).unwrap(), Opening::Plain);
}

/// Programs trust files by their owner, as git does.
#[test]
fn nobody_makes_what_looks_like_a_file_of_somebody_else() {
    let volume = Volume::new();
    let source = volume.directory("source");
    let inner = volume.make(source, "inner", DIRECTORY);
    volume.filled(inner, "roots", 0o644, b"root");
    let bobs = volume.filled(inner, "bobs", 0o666, b"bob");
    let alices = volume.filled(inner, "alices", 0o640, b"alice");
    volume.vfs.make_symlink(Caller::ROOT, inner, b"symlink", b"roots").expect("made");
    volume.own(bobs, BOB, BOB);
    volume.own(alices, ALICE, TEAM);
    let view = |maker, name| {
        let view = ViewKind::Directory { rename: None, only: Some("s$".into()) };
        let outer = volume.link_by(maker, name, &LinkDefinition { view, ..definition(&["/source"], "upper") });
        volume.find(outer, "inner").expect("shown").ino
    };
    let (by_alice, by_root) = (view(ALICE, "by alice"), view(0, "by root"));
    let seen = |view, name: &str| {
        let Attributes { uid, gid, permissions, .. } = volume.find(view, name).expect("shown");
        (uid, gid, permissions)
    };
    assert_eq!(seen(by_root, "roots"), (0, 0, 0o444));
    assert_eq!(seen(by_root, "bobs"), (BOB, BOB, 0o444));
    assert_eq!(seen(by_alice, "alices"), (ALICE, TEAM, 0o440));
    for name in ["roots", "bobs", "symlink"] {
        let (uid, gid, permissions) = seen(by_alice, name);
        assert_eq!((uid, gid), (ALICE, ALICE), "{name}");
        assert!(name == "symlink" || permissions == 0o444, "{permissions:o}");
    }
    assert_eq!(volume.attributes(by_alice).uid, ALICE);
    let entry = volume.find(by_alice, "roots").expect("shown").ino;
    let times = SetAttributes { mtime: Some(weft_vfs::SetTime::Now), ..SetAttributes::default() };
    let bits = SetAttributes { permissions: Some(0o777), ..SetAttributes::default() };
    for changes in [times, bits] {
        assert!(volume.vfs.set_attributes(entry, changes).is_err(), "the kernel takes it for Alice's");
    }
}

#[test]
fn an_access_control_list_is_asked_too() {
    let volume = Volume::new();
    let secret = volume.filled(Ino::ROOT, "secret", 0o640, b"password\n");
    let entry =
        |tag: u16, bits: u16, id: u32| [&tag.to_le_bytes()[..], &bits.to_le_bytes(), &id.to_le_bytes()].concat();
    let none = u32::MAX;
    let entries = [
        entry(1, 6, none),
        entry(2, 4, ALICE),
        entry(2, 0, BOB),
        entry(4, 0, none),
        entry(16, 4, none),
        entry(32, 4, none),
    ];
    let acl = [&2u32.to_le_bytes()[..], &entries.concat()].concat();
    volume.vfs.set_xattr(secret, b"system.posix_acl_access", &acl, weft_vfs::SetXattr::Any, false).expect("set");
    let link = volume.link("link", "/secret", "wc -c");
    for (asker, may) in [
        (user(ALICE), true),
        (member(BOB, &[]), false),
        (member(7, &[0]), false),
        (member(7, &[]), true),
        (user(7), false),
    ] {
        let _asking = asker.asks();
        assert_eq!(volume.attributes(link).reach, if may { Reach::Some } else { Reach::Nobody });
    }
}

#[test]
fn makers_lend_nobody_their_rights_nor_borrow_those_of_others() {
    let volume = Volume::new();
    let alices = volume.filled(Ino::ROOT, "alices", 0o600, b"hers\n");
    volume.own(alices, ALICE, ALICE);
    let inner = volume.link_by(ALICE, "inner", &definition(&["/alices"], "identity"));
    let outer = volume.link_by(BOB, "outer", &definition(&["/inner"], "wc -c"));
    let roots = volume.link("roots", "/inner", "wc -c");
    for (asker, reads) in [(ALICE, [true, false, true]), (BOB, [false; 3]), (0, [true, false, true])] {
        let _asking = user(asker).asks();
        let read = [inner, outer, roots].map(|link| volume.all(link).is_ok());
        assert_eq!(read, reads, "as {asker}");
    }
    // A link is one's own to let others read, as far as they could.
    volume.chmod(alices, 0o644);
    volume.chmod(inner, 0o600);
    let _asking = user(BOB).asks();
    volume.assert_closed(outer);
}

#[test]
fn a_directory_gives_its_group_to_no_links_of_strangers() {
    let volume = Volume::new();
    let secret = volume.filled(Ino::ROOT, "secret", 0o640, b"secret\n");
    volume.own(secret, 0, TEAM);
    let drop_box = volume.make(Ino::ROOT, "box", MakeNode { permissions: 0o777, ..DIRECTORY });
    volume.own(drop_box, 0, TEAM);
    volume.chmod(drop_box, 0o2777);
    let make = |asker: Asker, name: &[u8]| {
        let _asking = asker.asks();
        volume
            .links()
            .make_link(caller(ALICE), drop_box, name, 0o666, &definition(&["/secret"], "identity"))
            .expect("made")
    };
    let (theirs, ours) = (make(member(ALICE, &[]), b"theirs"), make(member(ALICE, &[TEAM]), b"ours"));
    assert_eq!((theirs.gid, ours.gid), (ALICE, TEAM));
    let _asking = user(0).asks();
    volume.assert_closed(theirs.ino);
    assert_eq!(volume.all(ours.ino).unwrap(), b"secret\n");
}

#[test]
fn entries_of_a_view_are_as_much_its_owners_doing_as_the_view() {
    let volume = Volume::new();
    let open = volume.directory("open");
    let closed = volume.directory("closed");
    for directory in [open, closed] {
        volume.filled(directory, "secret", 0o600, b"password\n");
        volume.filled(directory, "public", 0o644, b"hello\n");
    }
    volume.chmod(closed, 0o711);
    let view = |source: &str| LinkDefinition {
        view: ViewKind::Directory { rename: None, only: None },
        ..definition(&[source], "grep '^pa' | wc -c")
    };
    let hers = volume.link_by(ALICE, "hers", &view("/open"));
    let again = volume.link_by(0, "again", &view("/hers"));
    let roots = volume.link_by(0, "roots", &view("/open"));
    let hidden = volume.link_by(ALICE, "hidden", &view("/closed"));
    let renamed = ViewKind::Directory { rename: Some("s/$/.x/".into()), only: None };
    let renamed = volume.link_by(ALICE, "renamed", &LinkDefinition { view: renamed, ..view("/open") });
    for asker in [0, ALICE] {
        let _asking = user(asker).asks();
        for (view, name, may) in [
            (hers, "secret", false),
            (hers, "public", true),
            (again, "secret", false),
            (again, "public", true),
            (renamed, "secret.x", false),
            (renamed, "public.x", true),
            (roots, "secret", asker == 0),
        ] {
            let entry = volume.find(view, name).expect("a name that both may list");
            if may {
                assert!(volume.all(entry.ino).is_ok() && entry.reach != Reach::Nobody, "{name}");
            } else {
                volume.assert_closed(entry.ino);
            }
        }
        assert_eq!(volume.attributes(hidden).permissions, 0);
        for name in ["secret", "nothing"] {
            assert_eq!(kind(volume.find(hidden, name)), ErrorKind::AccessDenied);
        }
        assert_eq!(kind(volume.vfs.read_directory(hidden, Cookie(0), 9)), ErrorKind::AccessDenied);
    }
}

#[test]
fn members_of_an_archive_are_for_those_who_may_read_it() {
    let volume = Volume::new();
    let mut tar = tar::Builder::new(Vec::new());
    let mut header = tar::Header::new_gnu();
    header.set_size(9);
    header.set_mode(0o644);
    tar.append_data(&mut header, "d/member", &b"password\n"[..]).expect("added");
    let archive = volume.filled(Ino::ROOT, "archive", 0o600, &tar.into_inner().expect("ended"));
    volume.own(archive, BOB, BOB);
    let members = LinkDefinition { view: ViewKind::Members, ..definition(&["/archive"], "identity") };
    let hers = volume.link_by(ALICE, "hers", &members);
    let his = volume.link_by(BOB, "his", &members);
    for asker in [0, BOB] {
        let _asking = user(asker).asks();
        assert_eq!(kind(volume.vfs.read_directory(hers, Cookie(0), 9)), ErrorKind::AccessDenied);
        assert_eq!(kind(volume.find(hers, "d")), ErrorKind::AccessDenied);
        let directory = volume.find(his, "d").expect("there").ino;
        assert_eq!(volume.all(volume.find(directory, "member").unwrap().ino).unwrap(), b"password\n");
    }
    let _asking = user(ALICE).asks();
    assert_eq!(kind(volume.find(his, "d")), ErrorKind::AccessDenied);
}

#[test]
fn who_turns_the_way_of_anothers_link_gets_nothing_and_writes_nothing() {
    let volume = Volume::new();
    let secret = volume.filled(Ino::ROOT, "secret", 0o600, b"secret");
    let hers = volume.make(Ino::ROOT, "hers", MakeNode { permissions: 0o755, ..DIRECTORY });
    volume.own(hers, ALICE, ALICE);
    let file = volume.filled(hers, "file", 0o666, b"public");
    let link = volume.link("link", "/hers/file", "rot13");
    let _asking = user(ALICE).asks();
    assert_eq!(volume.links().opened(link, true).unwrap(), Opening::Plain);
    volume.vfs.write(link, 0, b"choyvp", false).expect("written");
    assert_eq!(volume.read(file, 0, 9), b"public");
    // She has it open.
    volume.vfs.unlink(hers, b"file").expect("removed");
    volume.vfs.make_symlink(caller(ALICE), hers, b"file", b"../secret").expect("made");
    volume.assert_closed(link);
    let cut = SetAttributes { size: Some(0), ..SetAttributes::default() };
    assert_eq!(kind(volume.vfs.set_attributes(link, cut)), ErrorKind::AccessDenied);
    // What she may read, and not write, she does not write as root.
    volume.chmod(secret, 0o644);
    assert_eq!(volume.all(link).unwrap(), b"frperg");
    assert_eq!(kind(volume.vfs.write(link, 0, b"x", false)), ErrorKind::AccessDenied);
    assert_eq!(kind(volume.links().opened(link, true)), ErrorKind::AccessDenied);
    assert_eq!(kind(volume.vfs.set_attributes(link, cut)), ErrorKind::AccessDenied);
    assert_eq!(volume.read(secret, 0, 9), b"secret");
}

#[test]
fn definitions_are_told_to_their_makers_and_to_those_who_may_read_the_targets() {
    let volume = Volume::new();
    let secret = volume.filled(Ino::ROOT, "secret", 0o600, b"secret");
    volume.own(secret, BOB, BOB);
    let closed = volume.link_by(ALICE, "closed", &definition(&["/secret"], "wc"));
    let roots = volume.link_by(0, "roots", &definition(&["/secret"], "wc"));
    let dead = volume.link_by(ALICE, "dead", &definition(&["/nothing"], "wc"));
    for (asker, told) in [(ALICE, [true, false, true]), (BOB, [false, true, true]), (0, [true; 3])] {
        let _asking = user(asker).asks();
        let is_told = [closed, roots, dead].map(|link| volume.vfs.xattr(link, b"user.weft.link").is_ok());
        assert_eq!(is_told, told, "to {asker}");
    }
}

#[test]
fn the_first_link_that_is_not_for_everybody_has_the_next_mount_told_of_opens() {
    let volume = Volume::new();
    let file = volume.filled(Ino::ROOT, "file", 0o644, b"text");
    volume.link("open", "/file", "upper");
    assert!(volume.vfs.xattr(Ino::ROOT, b"user.weft.opens").is_err());
    volume.chmod(file, 0o600);
    volume.link("closed", "/file", "upper");
    assert_eq!(volume.vfs.xattr(Ino::ROOT, b"user.weft.opens").unwrap(), b"1");
}

#[test]
fn so_has_one_that_takes_many_steps_to_resolve() {
    let volume = Volume::new();
    volume.filled(Ino::ROOT, "file", 0o600, b"text");
    volume.directory("x");
    volume.link("closed", &("/x/../".repeat(200) + "file"), "upper");
    assert_eq!(volume.vfs.xattr(Ino::ROOT, b"user.weft.opens").unwrap(), b"1");
}

#[test]
fn a_user_of_a_protocol_has_another_handle_for_what_is_closed() {
    let volume = Volume::new();
    volume.filled(Ino::ROOT, "secret", 0o600, b"password\n");
    let link = volume.link("link", "/secret", "grep '^pa'");
    let root_of = FileId::from(&volume.attributes(Ino::ROOT));
    let (root, alice) = (Credentials::default(), Credentials { uid: ALICE, gid: ALICE, groups: vec![] });
    let (root, alice) = (volume.vfs.user(&root), volume.vfs.user(&alice));
    let (seen, _) = root.lookup(root_of, b"link").expect("found");
    let open = FileId::from(&seen);
    assert_eq!((seen.ino, seen.size, root.read(open, 0, 99).unwrap().0.to_vec()), (link, 9, b"password\n".to_vec()));
    // A client keeps attributes by the handle, so by this one there are none for her.
    assert_eq!(kind(alice.attributes(open)), ErrorKind::AccessDenied);
    assert_eq!(kind(alice.access(open, [Access::READ])), ErrorKind::AccessDenied);
    assert_eq!(kind(alice.read(open, 0, 99)), ErrorKind::AccessDenied);
    let (seen, _) = alice.lookup(root_of, b"link").expect("found");
    let closed = FileId::from(&seen);
    assert_ne!(closed, open);
    for user in [alice, root] {
        let looks = user.attributes(closed).unwrap();
        assert_eq!((looks.size, looks.permissions, looks.mtime), (1, 0, Timestamp(0)));
        assert_eq!(user.access(closed, [Access::READ, Access::WRITE]).unwrap().0, [false; 2]);
        assert_eq!(kind(user.read(closed, 0, 99)), ErrorKind::AccessDenied);
    }
    let taken = alice.create(root_of, b"link", FILE, SetAttributes::default(), IfExists::Take);
    assert_eq!(taken.map(|taken| FileId::from(&taken.value)).unwrap(), closed);
    let listed = alice.read_directory_attributes(root_of, Cookie(0), 9).unwrap();
    assert!(listed.iter().all(|(entry, attributes)| entry.ino != link || attributes.is_none()));
    // It is renamed and removed as any.
    root.rename((root_of, b"link"), (root_of, b"other")).expect("renamed");
    volume.vfs.rename((Ino::ROOT, b"other"), (Ino::ROOT, b"link"), RenameMode::Replace).expect("renamed");
    root.unlink(root_of, b"link").expect("removed");
}
