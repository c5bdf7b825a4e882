//! Volumes with links that are opened without the layer that computes them.

use crate::{FILE, Volume, kind, mount_options};
use weft_links::{LinkDefinition, WithLinks};
use weft_vfs::{Access, Caller, Cookie, Credentials, ErrorKind, FileId, Ino, RenameMode, SetAttributes, Vfs};

/// A volume with a link that was opened without links, and the link.
fn without_links() -> (Volume, Ino) {
    let mut volume = Volume::new();
    let file = volume.file("file");
    volume.write(file, 0, b"text");
    let definition = LinkDefinition::new(vec![b"/file".to_vec()], "upper");
    let link = volume.links().make_link(Caller::ROOT, Ino::ROOT, b"link", 0o666, &definition).expect("made").ino;
    assert_eq!(volume.read(link, 0, 100), b"TEXT");
    volume.vfs.close().expect("closed");
    let opened = Vfs::open(volume.store.clone(), None, mount_options(), volume.clock.clone());
    volume.vfs = opened.expect("opens");
    (volume, link)
}

#[test]
fn without_links_nobody_reads_or_writes_one() {
    let (volume, link) = without_links();
    assert_eq!(kind(volume.vfs.links().map(drop)), ErrorKind::NotSupported);
    assert_eq!(kind(volume.vfs.read(link, 0, 100)), ErrorKind::AccessDenied);
    assert_eq!(kind(volume.vfs.write(link, 0, b"x", false)), ErrorKind::AccessDenied);
    let cut = SetAttributes { size: Some(0), ..SetAttributes::default() };
    assert_eq!(kind(volume.vfs.set_attributes(link, cut)), ErrorKind::AccessDenied);
    assert_eq!(kind(volume.vfs.counts(link, 0)), ErrorKind::NotSupported);
    assert_eq!(kind(volume.vfs.xattr(link, b"user.weft.link")), ErrorKind::NotSupported);
    assert_eq!(kind(volume.vfs.lookup(Caller::ROOT, link, b"x")), ErrorKind::NotDirectory);
    assert_eq!(kind(volume.vfs.read_directory(link, Cookie(0), 10)), ErrorKind::NotDirectory);
    let found = volume.attributes(link);
    assert_eq!((found.kind, found.permissions, found.size), (weft_vfs::Kind::File, 0, 0));
    let root = Credentials { uid: 0, gid: 0, groups: vec![] };
    let file = FileId { ino: link, generation: found.generation };
    let (rights, _) = volume.vfs.user(&root).access(file, [Access::EXECUTE]).expect("told");
    assert_eq!(rights, [false]);
    assert_eq!(kind(volume.vfs.user(&root).read(file, 0, 100)), ErrorKind::AccessDenied);
}

#[test]
fn without_links_one_is_listed_moved_and_removed_and_other_files_are_as_ever() {
    let (mut volume, link) = without_links();
    let listed = volume.vfs.read_directory(Ino::ROOT, Cookie(0), 10).expect("listed");
    assert_eq!(listed.iter().map(|entry| entry.name.as_bytes()).collect::<Vec<_>>(), [&b"file"[..], b"link"]);
    volume.vfs.rename((Ino::ROOT, b"link"), (Ino::ROOT, b"moved"), RenameMode::Replace).expect("moved");
    volume.chmod(link, 0o640);
    let file = volume.find(Ino::ROOT, "file").expect("there").ino;
    volume.write(file, 4, b" more");
    assert_eq!(volume.read(file, 0, 100), b"text more");
    volume.make(Ino::ROOT, "other", FILE);
    // It is what it was where links are there again.
    volume.remount();
    // Nobody writes through that network.
    assert_eq!(volume.find(Ino::ROOT, "moved").expect("there").permissions, 0o440);
    assert_eq!(volume.read(link, 0, 100), b"TEXT MORE");
    volume.vfs.unlink(Ino::ROOT, b"moved").expect("removed");
}
