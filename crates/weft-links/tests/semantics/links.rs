//! Transformation links: what they give, to whom, and what becomes of them.

use crate::{DIRECTORY, FILE, Volume, kind, options, volume_options};
use proptest::prelude::*;
use weft_links::{LinkDefinition, LinkOptions, ViewKind};
use weft_store::VolumeOptions;
use weft_transform::{Network, NoFiles};
use weft_vfs::{Caller, Credentials, ErrorKind, FileId, Ino, Kind, RenameMode, Result, SetAttributes, SetXattr};

pub(crate) fn definition(targets: &[&str], network: &str) -> LinkDefinition {
    let targets = targets.iter().map(|path| path.as_bytes().to_vec()).collect();
    LinkDefinition::new(targets, network)
}

impl Volume {
    pub(crate) fn link_of(&self, name: &str, definition: &LinkDefinition) -> Ino {
        self.links().make_link(Caller::ROOT, Ino::ROOT, name.as_bytes(), 0o666, definition).expect("made").ino
    }

    pub(crate) fn link(&self, name: &str, target: &str, network: &str) -> Ino {
        self.link_of(name, &definition(&[target], network))
    }

    /// All that `ino` gives, in one read past its end.
    pub(crate) fn all(&self, ino: Ino) -> Result<Vec<u8>> {
        Ok(self.vfs.read(ino, 0, 1 << 20)?.to_vec())
    }

    pub(crate) fn change(&self, ino: Ino, changes: SetAttributes) {
        self.vfs.set_attributes(ino, changes).expect("set");
    }
}

#[test]
fn a_link_is_a_file_that_follows_its_target_and_outlives_the_daemon() {
    let mut volume = Volume::new();
    let file = volume.file("file");
    volume.write(file, 0, b"one\ntwo\n");
    let upper = volume.link("upper", "/file", "upper");
    let count = volume.link("count", "/file", "wc -l");
    assert_eq!((volume.all(upper).unwrap(), volume.all(count).unwrap()), (b"ONE\nTWO\n".to_vec(), b"2\n".to_vec()));
    let seen = volume.attributes(count);
    assert_eq!((seen.kind, seen.size, seen.mtime), (Kind::File, 2, volume.attributes(file).mtime));
    volume.clock.advance(1);
    volume.write(file, 8, b"three\n");
    let now = volume.attributes(upper);
    assert_eq!((now.size, now.mtime), (14, volume.attributes(file).mtime));
    assert_ne!(volume.attributes(count).computed, seen.computed);
    assert_eq!(volume.all(count).unwrap(), b"3\n");
    // Not even a change that no time tells of, and that leaves the length, goes unseen.
    volume.write(file, 0, b"1\n3\n");
    assert_eq!(volume.all(count).unwrap(), b"4\n");
    let listed = volume.vfs.read_directory(Ino::ROOT, weft_vfs::Cookie(0), 10).expect("listed");
    assert!(listed.iter().all(|entry| entry.kind == Kind::File) && listed.len() == 3);
    volume.vfs.sync().expect("synced");
    volume.crash();
    assert_eq!(volume.vfs.stats().inodes_used, 4, "what was kept of views is gone");
    assert_eq!(volume.all(volume.find(Ino::ROOT, "count").unwrap().ino).unwrap(), b"4\n");
}

#[test]
fn what_leads_nowhere_or_in_circles_says_so_when_it_is_read() {
    let volume = Volume::new();
    let dangling = volume.link("dangling", "/nothing", "upper");
    assert_eq!(kind(volume.all(dangling)), ErrorKind::NotFound);
    assert_eq!(volume.attributes(dangling).size, 1, "whoever reads it must come to hear of it");
    let file = volume.file("nothing");
    volume.write(file, 0, b"a");
    assert_eq!(volume.all(dangling).unwrap(), b"A");
    let (one, _) = (volume.link("one", "/other", "upper"), volume.link("other", "/one", "lower"));
    assert_eq!(kind(volume.all(one)), ErrorKind::Loop);
    let directory = volume.link("of a directory", "/", "upper");
    assert_eq!(kind(volume.all(directory)), ErrorKind::IsDirectory);
    volume.link("deep 0", "/nothing", "increment");
    for depth in 1..20 {
        volume.link(&format!("deep {depth}"), &format!("/deep {}", depth - 1), "increment");
    }
    let deep = |depth: usize| volume.all(volume.find(Ino::ROOT, &format!("deep {depth}")).unwrap().ino);
    assert_eq!(deep(15).unwrap(), [b'a' + 16]);
    assert_eq!(kind(deep(16)), ErrorKind::Loop);
}

#[test]
fn targets_are_found_through_symbolic_links_within_the_volume() {
    let volume = Volume::new();
    let directory = volume.directory("d");
    let file = volume.make(directory, "file", FILE);
    volume.write(file, 0, b"x");
    let symlink = |name: &str, target: &str| {
        volume.vfs.make_symlink(Caller::ROOT, Ino::ROOT, name.as_bytes(), target.as_bytes()).expect("made");
    };
    symlink("to", "d/../d/file");
    symlink("out", "/d/file");
    symlink("round", "round");
    assert_eq!(volume.all(volume.link("a", "/to", "upper")).unwrap(), b"X");
    assert_eq!(kind(volume.all(volume.link("b", "/out", "upper"))), ErrorKind::NotFound);
    assert_eq!(kind(volume.all(volume.link("c", "/round", "upper"))), ErrorKind::Loop);
}

#[test]
fn damage_is_an_error_where_it_is_and_never_an_end() {
    let volume = Volume::new();
    let file = volume.file("file.gz");
    let text: Vec<u8> = (0..200_000u32).flat_map(u32::to_le_bytes).collect();
    let packed = Network::parse("gzip").unwrap().apply(text.clone().into(), &mut NoFiles).unwrap().to_vec();
    volume.write(file, 0, &packed[..packed.len() / 2]);
    for memo in [true, false] {
        let link = LinkDefinition { memo, ..definition(&["/file.gz"], "gzip -d") };
        let link = volume.link_of(&format!("link {memo}"), &link);
        let size = volume.attributes(link).size;
        assert_eq!(volume.vfs.read(link, 0, 1000).unwrap().to_vec(), text[..1000]);
        assert_eq!(kind(volume.vfs.read(link, size - 10, 100)), ErrorKind::Io);
        assert_eq!(kind(volume.vfs.read(link, size + 10, 100)), ErrorKind::Io);
    }
}

#[test]
fn nobody_reads_through_a_link_what_could_not_be_read_without() {
    let volume = Volume::new();
    let directory = volume.directory("d");
    let file = volume.make(directory, "file", FILE);
    volume.write(file, 0, b"secret");
    let link = volume.link("link", "/d/file", "increment");
    let stranger = Credentials { uid: 1000, gid: 1000, groups: vec![] };
    let id = FileId::from(&volume.attributes(link));
    let read = || volume.vfs.user(&stranger).read(id, 0, 10).map(|(rope, _)| rope.to_vec());
    assert_eq!(read().unwrap(), b"tfdsfu");
    let permissions = |bits| SetAttributes { permissions: Some(bits), ..SetAttributes::default() };
    volume.change(file, permissions(0o640));
    assert_eq!(kind(read()), ErrorKind::AccessDenied);
    assert_eq!(volume.attributes(link).permissions, 0o640);
    volume.change(file, permissions(0o644));
    volume.change(directory, permissions(0o700));
    assert_eq!(kind(read()), ErrorKind::AccessDenied);
    volume.change(directory, permissions(0o755));
    volume.change(link, permissions(0o600));
    assert_eq!(kind(read()), ErrorKind::AccessDenied);
    // Not even if the link is the stranger's own, or a list of the link names it.
    volume.change(file, permissions(0o600));
    volume.change(link, SetAttributes { uid: Some(1000), gid: Some(1000), ..permissions(0o666) });
    assert_eq!(kind(read()), ErrorKind::AccessDenied);
    let acl = [&2u32.to_le_bytes()[..], &[1, 0, 6, 0, 255, 255, 255, 255]].concat();
    let listed = volume.vfs.set_xattr(link, b"system.posix_acl_access", &acl, SetXattr::Any, false);
    assert_eq!(kind(listed), ErrorKind::NotSupported);
}

#[test]
fn bytes_in_their_places_are_written_through_and_others_are_not() {
    let volume = Volume::new();
    let file = volume.file("file");
    volume.write(file, 0, b"abc");
    let link = volume.link("link", "/file", "increment | xor 255");
    let outer = volume.link("outer", "/link", "xor 255");
    volume.vfs.write(outer, 1, b"XY", true).expect("written");
    assert_eq!(volume.all(file).unwrap(), b"aWX");
    // What is skipped reads as zeros, through the link that skipped it.
    volume.vfs.write(link, 10, b"z", true).expect("written");
    assert_eq!(volume.vfs.read(link, 3, 100).unwrap().to_vec(), b"\0\0\0\0\0\0\0z");
    volume.change(link, SetAttributes { size: Some(20), ..SetAttributes::default() });
    assert_eq!(volume.vfs.read(link, 11, 100).unwrap().to_vec(), [0; 9]);
    volume.change(link, SetAttributes { size: Some(2), ..SetAttributes::default() });
    assert_eq!(volume.all(file).unwrap(), b"aW");
    let one_way = volume.link("one way", "/file", "upper");
    assert_eq!(volume.attributes(one_way).permissions & 0o222, 0);
    assert_eq!(kind(volume.vfs.write(one_way, 0, b"X", true)), ErrorKind::AccessDenied);
    let cut = volume.vfs.set_attributes(one_way, SetAttributes { size: Some(0), ..SetAttributes::default() });
    assert_eq!(kind(cut), ErrorKind::AccessDenied);
    assert_eq!(kind(volume.vfs.allocate(link, 0, 10, weft_vfs::AllocateMode::Extend)), ErrorKind::AccessDenied);
    assert_eq!(ErrorKind::AccessDenied.errno(), libc::EACCES);
}

#[test]
fn what_is_kept_makes_way_for_what_is_written() {
    let quota = VolumeOptions { bytes_max: Some(300_000), ..volume_options() };
    let volume = Volume::with(quota, options());
    let file = volume.file("file");
    volume.write(file, 0, &[b'a'; 100_000]);
    let link = volume.link("link", "/file", "rev");
    assert_eq!(volume.all(link).unwrap().len(), 100_000);
    assert_eq!(volume.vfs.stats().memo_bytes, 100_000);
    volume.write(file, 100_000, &[b'a'; 150_000]);
    assert_eq!(volume.vfs.stats().memo_bytes, 0);
    // There is no room to keep it: it is computed all the same, in order or not.
    assert_eq!(volume.all(link).unwrap(), [b'a'; 250_000]);
    assert_eq!(volume.vfs.read(link, 7, 5).unwrap().to_vec(), b"aaaaa");
    assert_eq!(volume.vfs.stats().memo_bytes, 0);
}

#[test]
fn what_is_kept_has_a_bound() {
    let volume = Volume::with(volume_options(), LinkOptions { memo_bytes_max: 250_000, ..options() });
    let file = volume.file("file");
    volume.write(file, 0, &[b'a'; 100_000]);
    for number in 0..5 {
        let link = volume.link(&format!("link {number}"), "/file", &format!("rev | increment {number} | rev"));
        assert_eq!(volume.all(link).unwrap(), [b'a' + number; 100_000]);
        assert!(volume.vfs.stats().memo_bytes <= 250_000);
    }
    assert_eq!(volume.vfs.stats().memo_bytes, 200_000);
    volume.vfs.commit().expect("committed");
    assert_eq!(volume.vfs.stats().inodes_used, 1 + 6 + 2);
}

/// Something that happens to a file under links.
#[derive(Clone, Debug)]
enum Step {
    Write { at: usize, data: Vec<u8> },
    Cut { to: usize },
    Replace,
    Commit,
    Read { link: usize, at: usize, len: usize },
    Size { link: usize },
}

const NETWORKS: [&str; 8] = [
    "increment 7",
    "rev",
    "wc",
    "gzip | gzip -d",
    "grep a | head -5",
    "tac | increment",
    "concat($1, $1)",
    "sort | uniq -c",
];

fn step() -> impl Strategy<Value = Step> {
    let text = prop::collection::vec(prop::sample::select(b"ab\n \xff".to_vec()), 0..3000);
    prop_oneof![
        (0usize..20_000, text).prop_map(|(at, data)| Step::Write { at, data }),
        (0usize..20_000).prop_map(|to| Step::Cut { to }),
        Just(Step::Replace),
        Just(Step::Commit),
        (0..2 * NETWORKS.len(), 0usize..30_000, 0usize..9000).prop_map(|(link, at, len)| Step::Read { link, at, len }),
        (0..2 * NETWORKS.len()).prop_map(|link| Step::Size { link }),
    ]
}

proptest! {
    #[test]
    fn links_give_what_their_networks_make_of_what_is_there(steps in prop::collection::vec(step(), 1..40)) {
        let volume = Volume::new();
        let mut file = volume.file("file");
        let mut content: Vec<u8> = Vec::new();
        let link = |number: usize| {
            let network = NETWORKS[number / 2];
            let link = LinkDefinition { memo: number.is_multiple_of(2), ..definition(&["/file"], network) };
            volume.link_of(&format!("link {number}"), &link)
        };
        let links: Vec<Ino> = (0..2 * NETWORKS.len()).map(link).collect();
        let whole = |content: &[u8], link: usize| {
            let network = NETWORKS[link / 2].replace("concat($1, $1)", "concat(identity, identity)");
            Network::parse(&network).unwrap().apply(content.to_vec().into(), &mut NoFiles).unwrap().to_vec()
        };
        for step in steps {
            match step {
                Step::Write { at, data } => {
                    volume.write(file, at as u64, &data);
                    if !data.is_empty() {
                        content.resize(content.len().max(at + data.len()), 0);
                        content[at..at + data.len()].copy_from_slice(&data);
                    }
                }
                Step::Cut { to } => {
                    volume.change(file, SetAttributes { size: Some(to as u64), ..SetAttributes::default() });
                    content.resize(to, 0);
                }
                Step::Replace => {
                    let other = volume.make(Ino::ROOT, "other", FILE);
                    volume.write(other, 0, b"new\n");
                    let replaced = volume.vfs.rename((Ino::ROOT, b"other"), (Ino::ROOT, b"file"), RenameMode::Replace);
                    replaced.expect("renamed");
                    (file, content) = (other, b"new\n".to_vec());
                }
                Step::Commit => volume.vfs.commit().expect("committed"),
                Step::Read { link, at, len } => {
                    let expected = whole(&content, link);
                    let expected = &expected[at.min(expected.len())..(at + len).min(expected.len())];
                    let read = volume.vfs.read(links[link], at as u64, len).expect("read").to_vec();
                    prop_assert_eq!(read, expected, "{}", NETWORKS[link / 2]);
                }
                Step::Size { link } => {
                    let expected = whole(&content, link).len() as u64;
                    prop_assert_eq!(volume.attributes(links[link]).size, expected, "{}", NETWORKS[link / 2]);
                }
            }
        }
    }
}

#[test]
fn a_directory_with_a_default_list_gives_links_none() {
    let volume = Volume::new();
    let directory = volume.make(Ino::ROOT, "d", DIRECTORY);
    let acl: Vec<u8> = [(1u16, 7u16, u32::MAX), (2, 7, 1000), (4, 7, u32::MAX), (16, 7, u32::MAX), (32, 7, u32::MAX)]
        .into_iter()
        .flat_map(|(tag, bits, id)| [&tag.to_le_bytes()[..], &bits.to_le_bytes(), &id.to_le_bytes()].concat())
        .collect();
    let acl = [&2u32.to_le_bytes()[..], &acl].concat();
    volume.vfs.set_xattr(directory, b"system.posix_acl_default", &acl, SetXattr::Any, false).expect("set");
    let file = volume.file("file");
    volume.change(file, SetAttributes { permissions: Some(0o600), ..SetAttributes::default() });
    let link = volume.links().make_link(Caller::ROOT, directory, b"link", 0o666, &definition(&["/file"], "increment"));
    let link = link.expect("made").ino;
    assert_eq!(volume.vfs.xattr_names(link).unwrap(), []);
    assert_eq!(volume.attributes(link).permissions, 0o600);
}

#[test]
fn a_view_shows_what_is_in_its_source_as_it_is_now() {
    let volume = Volume::new();
    let source = volume.directory("source");
    let inner = volume.make(source, "inner", DIRECTORY);
    for (parent, name, content) in
        [(source, "b.txt", "bb"), (source, "a.txt", "aa"), (source, "a", "a"), (inner, "c.txt", "c")]
    {
        let file = volume.make(parent, name, FILE);
        volume.write(file, 0, content.as_bytes());
    }
    let view = ViewKind::Directory { rename: Some(r"s/\.txt$//".into()), only: Some("txt".into()) };
    let definition = LinkDefinition { view, ..definition(&["/source"], "upper") };
    let view = volume.links().make_link(Caller::ROOT, Ino::ROOT, b"view", 0o777, &definition).expect("made");
    assert_eq!((view.kind, view.size), (Kind::Directory, 4));
    let list = |ino| {
        let listed = volume.vfs.read_directory(ino, weft_vfs::Cookie(0), 100).expect("listed");
        listed
            .into_iter()
            .map(|entry| (String::from_utf8_lossy(entry.name.as_bytes()).into_owned(), entry.kind))
            .collect::<Vec<_>>()
    };
    let file = |name: &str| (name.to_owned(), Kind::File);
    // Two are called a: the first is seen.
    assert_eq!(list(view.ino), [("inner".into(), Kind::Directory), file("b"), file("a")]);
    let read =
        |parent, name: &str| volume.all(volume.find(parent, name)?.ino).map(|bytes| String::from_utf8(bytes).unwrap());
    assert_eq!((read(view.ino, "a").unwrap(), read(view.ino, "b").unwrap()), ("AA".into(), "BB".into()));
    let inner = volume.find(view.ino, "inner").expect("there").ino;
    assert_eq!((list(inner), read(inner, "c").unwrap()), (vec![file("c")], "C".into()));
    let gone = volume.find(view.ino, "a").expect("there").ino;
    volume.vfs.unlink(source, b"a.txt").expect("unlinked");
    assert_eq!((read(view.ino, "a").unwrap(), volume.find(view.ino, "a").unwrap().ino == gone), ("a".into(), false));
    assert_eq!(kind(volume.all(gone)), ErrorKind::NotFound);
    assert_eq!(kind(volume.find(view.ino, "a.txt")), ErrorKind::NotFound);
    assert_eq!(list(view.ino).len(), 3);
    // Nothing in it can be changed but what is written through.
    let (a, root) = (volume.find(view.ino, "a").unwrap(), Caller::ROOT);
    volume.vfs.write(a.ino, 1, b"bc", true).expect("written");
    volume.change(a.ino, SetAttributes { size: Some(2), ..SetAttributes::default() });
    assert_eq!(volume.all(volume.find(source, "a").unwrap().ino).unwrap(), b"ab");
    assert_eq!(kind(volume.vfs.make(root, view.ino, b"x", FILE)), ErrorKind::AccessDenied);
    assert_eq!(kind(volume.vfs.unlink(view.ino, b"a")), ErrorKind::AccessDenied);
    assert_eq!(kind(volume.vfs.link(root, a.ino, Ino::ROOT, b"x")), ErrorKind::ReadOnly);
    let bits = SetAttributes { permissions: Some(0o600), ..SetAttributes::default() };
    assert_eq!(kind(volume.vfs.set_attributes(a.ino, bits)), ErrorKind::ReadOnly);
    volume.vfs.commit().expect("committed");
    assert_eq!(volume.vfs.stats().inodes_used, 1 + 2 + 3 + 1, "what is seen is not stored");
    assert_eq!(kind(volume.vfs.unlink(Ino::ROOT, b"view")), ErrorKind::IsDirectory);
    volume.vfs.remove_directory(Ino::ROOT, b"view").expect("removed");
    assert_eq!(kind(volume.find(Ino::ROOT, "view")), ErrorKind::NotFound);
}

#[test]
fn inodes_of_views_that_nobody_holds_have_a_bound() {
    let volume = Volume::new();
    let source = volume.directory("source");
    let view = ViewKind::Directory { rename: None, only: None };
    let link = LinkDefinition { view, ..definition(&["/source"], "upper") };
    let view = volume.links().make_link(Caller::ROOT, Ino::ROOT, b"view", 0o777, &link).expect("made").ino;
    let name = |number: usize| format!("file {number}");
    for number in 0..20_000 {
        volume.make(source, &name(number), FILE);
        volume.find(view, &name(number)).expect("there");
    }
    let before = volume.vfs.stats().metadata_bytes;
    for number in 0..20_000 {
        volume.find(view, &name(number)).expect("there");
    }
    assert!(volume.vfs.stats().metadata_bytes <= before);
}

/// A tar archive of these files, whatever they are called.
pub(crate) fn tar_of(files: &[(&[u8], &[u8])]) -> Vec<u8> {
    let mut archive = tar::Builder::new(Vec::new());
    for (path, content) in files {
        let mut header = tar::Header::new_ustar();
        header.as_ustar_mut().expect("it is one").name[..path.len()].copy_from_slice(path);
        header.set_mode(0o755);
        header.set_size(content.len() as u64);
        header.set_cksum();
        archive.append(&header, *content).expect("added");
    }
    archive.into_inner().expect("whole")
}

#[test]
fn members_of_an_archive_are_read_where_they_lie_and_never_where_they_lay() {
    let volume = Volume::new();
    let archive = volume.file("archive");
    let long: Vec<u8> = (0..100_000u32).flat_map(u32::to_le_bytes).collect();
    let hostile: [(&[u8], &[u8]); 9] = [
        (b"./dir/long", &long),
        (b"../out", b"outside"),
        (b"/etc/passwd", b"within"),
        (b"dir/../up", b"up"),
        (b"twice", b"first"),
        (b"twice", b"second"),
        (b"dir", b"a file in the place of a directory"),
        (b"twice/not", b"a directory in the place of a file"),
        (b"nul\xff\n", b"bytes"),
    ];
    volume.write(archive, 0, &tar_of(&hostile));
    let view = LinkDefinition { view: ViewKind::Members, ..definition(&["/archive"], "identity") };
    let view = volume.links().make_link(Caller::ROOT, Ino::ROOT, b"view", 0o777, &view).expect("made").ino;
    let list = |ino| {
        let mut names = Vec::new();
        let mut after = weft_vfs::Cookie(0);
        loop {
            let page = volume.vfs.read_directory(ino, after, 2).expect("listed");
            let Some(last) = page.last() else { return names };
            after = last.cookie;
            names.extend(page.into_iter().map(|entry| (entry.name.as_bytes().to_vec(), entry.kind)));
        }
    };
    let seen = |name: &str, kind| (name.as_bytes().to_vec(), kind);
    assert_eq!(
        list(view),
        [
            seen("dir", Kind::Directory),
            seen("etc", Kind::Directory),
            (b"nul\xff\n".to_vec(), Kind::File),
            seen("twice", Kind::Directory)
        ]
    );
    let find = |parent, name: &str| volume.find(parent, name).map(|found| found.ino);
    let dir = find(view, "dir").expect("there");
    let member = find(dir, "long").expect("there");
    assert_eq!(volume.attributes(member).size, 400_000);
    assert!(volume.all(member).unwrap() == long);
    assert_eq!(volume.vfs.read(member, 399_998, 100).unwrap().to_vec(), long[399_998..]);
    assert_eq!(volume.vfs.stats().memo_bytes, 0, "nothing is unpacked");
    assert_eq!(volume.all(find(find(view, "etc").unwrap(), "passwd").unwrap()).unwrap(), b"within");
    for name in ["..", "out", "up"] {
        assert!(find(view, name).is_err(), "{name}");
    }
    assert_eq!(kind(volume.vfs.write(member, 0, b"x", true)), ErrorKind::AccessDenied);
    // Once the archive is another one, what is still held of the old one is gone.
    volume.write(archive, 0, &tar_of(&[(b"new", b"new content")]));
    assert_eq!(kind(volume.all(member)), ErrorKind::Stale);
    assert_eq!(volume.all(find(view, "new").unwrap()).unwrap(), b"new content");
    volume.change(archive, SetAttributes { size: Some(700), ..SetAttributes::default() });
    volume.write(archive, 0, &[7; 700]);
    assert_eq!(kind(volume.vfs.read_directory(view, weft_vfs::Cookie(0), 9)), ErrorKind::Io);
}

#[test]
fn members_are_transformed_if_a_view_says_so() {
    let volume = Volume::new();
    let archive = volume.file("archive");
    volume.write(archive, 0, &tar_of(&[(b"a", b"one\ntwo\n"), (b"b", b"three\n")]));
    let view = LinkDefinition { view: ViewKind::Members, ..definition(&["/archive"], "wc -l") };
    let view = volume.links().make_link(Caller::ROOT, Ino::ROOT, b"view", 0o777, &view).expect("made").ino;
    let read = |name: &str| volume.all(volume.find(view, name).unwrap().ino).unwrap();
    assert_eq!((read("a"), read("b")), (b"2\n".to_vec(), b"1\n".to_vec()));
    assert_eq!(volume.find(view, "a").unwrap().size, 2);
}

/// Hears of links that are outdated.
#[derive(Default)]
pub(crate) struct Hears(pub(crate) std::sync::Mutex<Vec<Ino>>);

impl weft_vfs::Observer for Hears {
    fn changed(&self, change: &weft_vfs::Change) {
        if let weft_vfs::Change::Outdated { ino } = change {
            self.0.lock().unwrap().push(*ino);
        }
    }
}

#[test]
fn who_keeps_what_was_told_of_a_link_hears_when_it_is_no_longer_so() {
    let volume = Volume::new();
    let hears = std::sync::Arc::new(Hears::default());
    let observer: std::sync::Arc<dyn weft_vfs::Observer> = hears.clone();
    volume.vfs.observe(&observer);
    let directory = volume.directory("d");
    let file = volume.make(directory, "file", FILE);
    let link = volume.link("link", "/d/file", "upper");
    let outer = volume.link("outer", "/link", "wc");
    let heard = |what: &str, links: &[Ino], work: &dyn Fn()| {
        for link in [link, outer] {
            volume.attributes(link);
            assert!(volume.links().is_watched(link));
        }
        work();
        let mut now = std::mem::take(&mut *hears.0.lock().unwrap());
        now.sort();
        assert_eq!(now, links, "{what}");
        links.iter().for_each(|link| assert!(!volume.links().is_watched(*link)));
    };
    let both = [link, outer];
    let bits = |bits| SetAttributes { permissions: Some(bits), ..SetAttributes::default() };
    heard("a write, and another that nobody has looked after", &both, &|| {
        volume.write(file, 0, b"a");
        volume.write(file, 0, b"b");
    });
    heard("a change of length", &both, &|| volume.change(file, SetAttributes { size: Some(9), ..bits(0o644) }));
    heard("rights of the target", &both, &|| volume.change(file, bits(0o600)));
    heard("rights of a directory on the way", &both, &|| volume.change(directory, bits(0o700)));
    heard("other names", &[], &|| {
        volume.make(directory, "other", FILE);
        volume.file("another");
        volume.vfs.unlink(directory, b"other").expect("unlinked");
    });
    heard("the target moves", &both, &|| {
        volume.vfs.rename((directory, b"file"), (directory, b"moved"), RenameMode::Replace).expect("renamed");
    });
    volume.vfs.rename((directory, b"moved"), (directory, b"file"), RenameMode::Replace).expect("renamed");
    heard("a directory on the way moves", &both, &|| {
        volume.vfs.rename((Ino::ROOT, b"d"), (Ino::ROOT, b"e"), RenameMode::Replace).expect("renamed");
    });
    volume.vfs.rename((Ino::ROOT, b"e"), (Ino::ROOT, b"d"), RenameMode::Replace).expect("renamed");
    heard("the inner link goes", &[outer], &|| volume.vfs.unlink(Ino::ROOT, b"link").expect("unlinked"));
}

#[test]
fn code_that_its_maker_brings_runs_only_for_those_who_may_have_that() {
    use weft_links::Exported;
    let user = Caller { uid: 1000, gid: 1000, ..Caller::ROOT };
    let link = definition(&["/file"], "upper | exec 'rev'");
    for (exported, by_root, by_user) in [
        (Exported::Nobody, Some(ErrorKind::NotPermitted), Some(ErrorKind::NotPermitted)),
        (Exported::Root, None, Some(ErrorKind::NotPermitted)),
        (Exported::Everybody, None, None),
    ] {
        let volume = Volume::with(volume_options(), LinkOptions { exported, ..options() });
        let file = volume.file("file");
        volume.write(file, 0, b"abc\n");
        for (caller, name, refused) in [(Caller::ROOT, "by root", by_root), (user, "by a user", by_user)] {
            let made = volume.links().make_link(caller, Ino::ROOT, name.as_bytes(), 0o644, &link);
            assert_eq!(made.as_ref().err().map(weft_vfs::Error::kind), refused, "{exported:?}, {name}");
            if let Ok(made) = made {
                assert_eq!(volume.all(made.ino).unwrap(), b"CBA\n");
                // A link that was given away is its new owner's.
                volume.change(made.ino, SetAttributes { uid: Some(1001), ..SetAttributes::default() });
                let read = volume.all(made.ino).map_err(|error| error.kind());
                let expected =
                    if exported == Exported::Everybody { Ok(b"CBA\n".to_vec()) } else { Err(ErrorKind::NotPermitted) };
                assert_eq!(read, expected);
            }
        }
    }
}

#[test]
fn a_command_that_hangs_ends_in_time_and_disturbs_nothing_else() {
    let volume = Volume::new();
    let file = volume.file("file");
    volume.write(file, 0, b"abc\n");
    let hangs = volume.link("hangs", "/file", "exec -t 1 'sleep 1000'");
    let fails = volume.link("fails", "/file", "exec 'exit 7'");
    std::thread::scope(|scope| {
        let waits = scope.spawn(|| kind(volume.all(hangs)));
        assert_eq!(kind(volume.all(fails)), ErrorKind::Io);
        assert_eq!(volume.all(file).unwrap(), b"abc\n");
        assert_eq!(waits.join().unwrap(), ErrorKind::TimedOut);
    });
}

/// A module that adds `by` to each byte, once it has done `first`.
fn adding(by: u8, first: &str) -> Vec<u8> {
    let text = format!(
        r#"(module (memory (export "memory") 2)
            (func (export "weft_input") (param i32) (result i32) (i32.const 1024))
            (func (export "weft_advance") (param $input i32) (param $len i32) (param $last i32) (result i64) (local $at i32)
                {first}
                (block $done (loop $next
                    (br_if $done (i32.ge_u (local.get $at) (local.get $len)))
                    (i32.store8 offset=1024 (local.get $at)
                        (i32.add (i32.const {by}) (i32.load8_u offset=1024 (local.get $at))))
                    (local.set $at (i32.add (local.get $at) (i32.const 1)))
                    (br $next)))
                (i64.or (i64.extend_i32_u (local.get $len)) (i64.const 4398046511104))))"#
    );
    wat::parse_str(text).expect("a module")
}

#[test]
fn a_module_is_a_target_of_its_link() {
    let volume = Volume::new();
    let (file, module, back) = (volume.file("file"), volume.file("module"), volume.file("back"));
    volume.write(file, 0, b"abc\n");
    volume.write(module, 0, &adding(1, ""));
    volume.write(back, 0, &adding(255, ""));
    let targets = ["/file", "/module", "/back"];
    let place = volume.link_of("place", &definition(&targets, "wasm -p -u 'wasm -p $3' $2"));
    let stream = volume.link_of("stream", &definition(&targets, "wasm -u 'wasm $3' $2 | wasm -l $2"));
    assert_eq!(volume.all(place).unwrap(), b"bcd\x0b");
    assert_eq!(volume.all(stream).unwrap(), b"cde\x0c");
    assert_eq!(volume.vfs.read(place, 1, 2).unwrap().to_vec(), b"cd");
    // What is written through is undone by the other module.
    volume.write(place, 4, b"EF");
    assert_eq!(volume.all(file).unwrap(), b"abc\nDE");
    // Past the end, too, where zeros are to be read.
    volume.write(place, 8, b"E");
    assert_eq!(volume.all(file).unwrap(), b"abc\nDE\xff\xffD");
    volume.change(file, SetAttributes { size: Some(6), ..SetAttributes::default() });
    // Another module is other content.
    volume.write(module, 0, &adding(2, ""));
    assert_eq!(volume.all(place).unwrap(), b"cde\x0cFG");
    assert_eq!(volume.all(stream).unwrap(), b"efg\x0eHI");
    // Who may not read the module may not read what it gives.
    volume.change(module, SetAttributes { permissions: Some(0o600), ..SetAttributes::default() });
    assert_eq!(volume.attributes(place).permissions, 0o600);
    // A view of a directory has modules, too; a link of nothing but modules reads nothing.
    let directory = volume.directory("d");
    let inner = volume.make(directory, "inner", FILE);
    volume.write(inner, 0, b"xyz");
    let view = ViewKind::Directory { rename: None, only: Some("inner".into()) };
    let view = LinkDefinition { view, ..definition(&["/module", "/d"], "wasm -p $1") };
    let view = volume.links().make_link(Caller::ROOT, Ino::ROOT, b"view", 0o777, &view).expect("made").ino;
    assert_eq!(volume.all(volume.find(view, "inner").unwrap().ino).unwrap(), b"z{|");
    assert!(definition(&["/module"], "wasm $1").check().is_err());
}

#[test]
fn a_module_that_does_harm_does_it_to_its_link_alone() {
    let volume = Volume::new();
    let file = volume.file("file");
    volume.write(file, 0, b"abc\n");
    let link = |name: &str, network: &str, module: &[u8]| {
        let path = format!("{name}.wasm");
        volume.write(volume.file(&path), 0, module);
        volume.link_of(name, &definition(&["/file", &format!("/{path}")], network))
    };
    let hangs = link("hangs", "wasm -p -t 1 $2", &adding(1, "(loop $again (br $again))"));
    let traps = link("traps", "wasm -p $2", &adding(1, "(unreachable)"));
    let lies = link("lies", "wasm -l $2", &adding(1, "(if (local.get $len) (then (return (i64.const 2))))"));
    let is_none = link("is none", "wasm $2", b"no module");
    std::thread::scope(|scope| {
        let waits = scope.spawn(|| kind(volume.all(hangs)));
        for bad in [traps, lies, is_none] {
            assert_eq!(kind(volume.all(bad)), ErrorKind::Io);
        }
        assert_eq!(volume.attributes(lies).size, 4, "as long as it was said to be");
        assert_eq!(volume.all(file).unwrap(), b"abc\n");
        assert_eq!(waits.join().unwrap(), ErrorKind::TimedOut);
    });
}

#[test]
fn what_undoes_a_network_runs_only_for_those_who_may_have_it() {
    use weft_links::{Exported, Keys};
    let keys = Some(Keys { directory: "/nonexistent".into(), uid: 1000 });
    let volume = Volume::with(volume_options(), LinkOptions { exported: Exported::Everybody, keys, ..options() });
    volume.write(volume.file("file"), 0, b"abc");
    volume.write(volume.file("module"), 0, &adding(1, ""));
    let stranger = Caller { uid: 1001, gid: 1001, ..Caller::ROOT };
    for (network, write) in [("wasm -p -u 'decrypt mine' $2", None), ("upper", Some("decrypt mine"))] {
        let write = write.map(str::to_owned);
        let link = LinkDefinition { write, ..definition(&["/file", "/module"], network) };
        assert!(volume.links().make_link(stranger, Ino::ROOT, b"theirs", 0o666, &link).is_err(), "{network}");
    }
    // What keeps no places is not written by, whoever says so.
    let link = volume.link_of("link", &definition(&["/file", "/module"], "wasm -p -u 'exec cat' $2"));
    assert_eq!(volume.attributes(link).permissions, 0o444);
    assert_eq!(kind(volume.vfs.write(link, 0, b"x", false)), ErrorKind::AccessDenied);
}

#[test]
fn what_is_written_through_goes_by_its_own_network() {
    let volume = Volume::new();
    let file = volume.file("file");
    volume.write(file, 0, b"abc");
    let link = LinkDefinition { write: Some("lower".into()), ..definition(&["/file"], "upper") };
    let link = volume.link_of("link", &link);
    volume.write(link, 2, b"XyZ");
    assert_eq!((volume.all(file).unwrap(), volume.all(link).unwrap()), (b"abxyz".to_vec(), b"ABXYZ".to_vec()));
}

#[test]
fn keys_are_used_by_links_of_whoever_has_them_and_leave_nothing_in_the_volume() {
    use std::os::unix::fs::PermissionsExt;
    use weft_links::Keys;
    let keys = tempfile::tempdir().expect("a directory");
    let key = keys.path().join("mine");
    // As age-keygen made it.
    std::fs::write(&key, "AGE-SECRET-KEY-1RHD3LRLTW223Z0JPJ0T02WPZ8GG87QN8XH80RM74AEDYXV3HSSLQFY6XK0\n")
        .expect("written");
    let mode = |bits| std::fs::set_permissions(&key, std::fs::Permissions::from_mode(bits)).expect("set");
    mode(0o600);
    let keys = Some(Keys { directory: keys.path().to_owned(), uid: 1000 });
    let volume = Volume::with(volume_options(), LinkOptions { keys, ..options() });
    let file = volume.file("file");
    volume.write(file, 0, b"for my eyes only");
    let encrypted = volume.link("encrypted", "/file", "encrypt mine");
    volume.link("again", "/encrypted", "decrypt mine");
    let again = volume.find(Ino::ROOT, "again").unwrap().ino;
    assert_eq!(volume.all(again).unwrap(), b"for my eyes only");
    assert_eq!(volume.attributes(encrypted).size, volume.all(encrypted).unwrap().len() as u64);
    // Any part of it, of however many runs, is part of the same.
    let whole = volume.all(encrypted).unwrap();
    assert_eq!(volume.vfs.read(encrypted, 100, 9).unwrap().to_vec(), whole[100..109]);
    let sorted = volume.link("sorted", "/again", "sort");
    assert_eq!(volume.all(sorted).unwrap(), b"for my eyes only\n");
    assert_eq!(volume.vfs.stats().memo_bytes, 0, "nothing that was encrypted lies in the volume otherwise");
    let link = definition(&["/file"], "encrypt mine");
    let make = |uid, name: &[u8]| {
        let caller = Caller { uid, gid: uid, ..Caller::ROOT };
        volume.links().make_link(caller, Ino::ROOT, name, 0o644, &link)
    };
    assert!(make(1000, b"theirs").is_ok());
    assert_eq!(make(1001, b"of a stranger").unwrap_err().kind(), ErrorKind::NotPermitted);
    // Who is given a link is given no key.
    volume.change(encrypted, SetAttributes { uid: Some(1001), ..SetAttributes::default() });
    assert_eq!(kind(volume.all(encrypted)), ErrorKind::NotPermitted);
    volume.change(encrypted, SetAttributes { uid: Some(1000), ..SetAttributes::default() });
    // A key that others could read is none.
    mode(0o640);
    volume.write(file, 0, b"F");
    assert_eq!(kind(volume.all(encrypted)), ErrorKind::Io);
    mode(0o600);
    assert_eq!(volume.all(again).unwrap(), b"For my eyes only");
    let without = Volume::new();
    without.file("file");
    assert_eq!(kind(without.all(without.link("link", "/file", "encrypt mine"))), ErrorKind::Io);
}

#[test]
fn what_fails_for_a_while_is_tried_again() {
    use std::os::unix::fs::PermissionsExt;
    let volume = Volume::new();
    volume.file("file");
    let outside = crate::seen_by_commands();
    std::fs::set_permissions(outside.path(), std::fs::Permissions::from_mode(0o755)).expect("set");
    let link = |name| volume.link(name, "/file", &format!("exec 'cat {}/{name}'", outside.path().display()));
    let come = |name| std::fs::write(outside.path().join(name), "now\n").expect("written");
    let read = link("read");
    assert_eq!(kind(volume.all(read)), ErrorKind::Io);
    come("read");
    assert_eq!(volume.all(read).unwrap(), b"now\n");
    assert_eq!((volume.attributes(read).size, volume.attributes(read).computed != Some(0)), (4, true));
    // Who was told a length would take the first byte for all there is.
    let measured = link("measured");
    let told = volume.attributes(measured);
    assert_eq!((told.size, told.computed), (1, Some(0)), "nobody is to keep that");
    come("measured");
    assert_eq!(kind(volume.all(measured)), ErrorKind::Io);
    assert_eq!(std::iter::repeat_with(|| volume.all(measured)).find_map(Result::ok).unwrap(), b"now\n");
    assert_eq!(volume.attributes(measured).size, 4);
}

#[test]
fn archives_that_would_take_too_much_memory_are_refused() {
    let volume = Volume::new();
    let archive = volume.file("archive");
    let view = LinkDefinition { view: ViewKind::Members, ..definition(&["/archive"], "identity") };
    let view = volume.links().make_link(Caller::ROOT, Ino::ROOT, b"view", 0o777, &view).expect("made").ino;
    let refused = || kind(volume.vfs.read_directory(view, weft_vfs::Cookie(0), 9));
    // A name of a tebibyte, most of it a hole.
    let mut header = tar::Header::new_gnu();
    header.set_entry_type(tar::EntryType::GNULongName);
    header.set_size(1 << 40);
    header.set_cksum();
    volume.write(archive, 0, header.as_bytes());
    volume.change(archive, SetAttributes { size: Some(1 << 41), ..SetAttributes::default() });
    assert_eq!(refused(), ErrorKind::Io);
    // Names that share nothing, each of two thousand directories.
    volume.change(archive, SetAttributes { size: Some(0), ..SetAttributes::default() });
    let mut deep = tar::Builder::new(Vec::new());
    for number in 0..200 {
        let path = format!("{number}/{}", "d/".repeat(2000));
        let mut header = tar::Header::new_gnu();
        header.set_size(0);
        header.set_mode(0o644);
        deep.append_data(&mut header, format!("{path}file"), &b""[..]).expect("added");
    }
    volume.write(archive, 0, &deep.into_inner().expect("whole"));
    assert_eq!(refused(), ErrorKind::Io);
    // A path longer than any program can name is not shown; a member whose content is not there is
    // an archive cut off.
    volume.change(archive, SetAttributes { size: Some(0), ..SetAttributes::default() });
    volume.write(archive, 0, &tar_of(&[(b"a", b"content")])[..515]);
    assert_eq!(refused(), ErrorKind::Io);
}
