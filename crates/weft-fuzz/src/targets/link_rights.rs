//! Links that a user made of anything: what they tell that user does not depend on what that user
//! may not read. Two volumes that differ in nothing else must look the same.

use crate::memory_volume;
use arbitrary::{Arbitrary, Unstructured};
use weft_links::{LinkDefinition, ViewKind, WithLinks};
use weft_vfs::{
    Asker, Attributes, Caller, Cookie, Credentials, Ino, Kind, MakeNode, SetAttributes, SetTime, Timestamp, Vfs,
};

const USER: u32 = 1000;
const TARGETS: [&str; 14] = [
    "/closed/secret",
    "/closed",
    "/closed/archive",
    "/closed/open",
    "/secret",
    "/open",
    "/open/file",
    "/open/archive",
    "/open/up",
    "/links/0",
    "/links/1",
    "/links/0/secret",
    "/links/1/file",
    "/open/../closed/secret",
];
const NETWORKS: [&str; 12] = [
    "identity",
    "upper",
    "wc",
    "wc -c",
    "sha256",
    "grep '^pa'",
    "head -c 3",
    "tail -c 2",
    "cat $1",
    "gunzip",
    "sort | uniq",
    "fold 1",
];

#[derive(Arbitrary, Debug)]
struct Link {
    targets: Vec<u8>,
    network: Text,
    write: Option<Text>,
    flags: u8,
    view: u8,
    only: Option<u8>,
}

#[derive(Arbitrary, Debug)]
enum Text {
    Known(u8),
    Given(String),
}

/// Takes any bytes as links.
pub fn run(bytes: &[u8]) {
    let Ok(links) = <[Link; 3]>::arbitrary_take_rest(Unstructured::new(bytes)) else { return };
    let [one, other] =
        [b"password\n".to_vec(), b"sesame, of another length".to_vec()].map(|secret| seen(&links, &secret));
    assert_eq!(one, other, "{links:?}");
}

/// All that the user sees of `links` in a volume with this secret.
fn seen(links: &[Link], secret: &[u8]) -> Vec<String> {
    let vfs = memory_volume();
    fill(&vfs, secret);
    let directory = make(&vfs, Ino::ROOT, b"links", Kind::Directory, 0o777);
    let who = Credentials { uid: USER, gid: USER, groups: Vec::new() };
    let _asking = Asker::user(&who).asks();
    let mut seen = Vec::new();
    for (name, link) in ["0", "1", "2"].iter().zip(links) {
        let caller = Caller { uid: USER, gid: USER, ..Caller::ROOT };
        let made = vfs.links().expect("opened with links").make_link(
            caller,
            directory,
            name.as_bytes(),
            0o777,
            &link.definition(),
        );
        seen.push(format!("{:?}", made.map(told).map_err(|error| error.kind())));
    }
    // Twice: what was computed or looked up before is told as what was not.
    for _ in 0..2 {
        look(&vfs, directory, 0, &mut seen);
    }
    seen
}

fn make(vfs: &Vfs, parent: Ino, name: &[u8], kind: Kind, permissions: u32) -> Ino {
    let node = MakeNode { kind, permissions, umask: 0, rdev: 0 };
    vfs.make(Caller::ROOT, parent, name, node).expect("made").ino
}

/// Fills the volume. Files that others may read are the same whatever `secret` is. Everything else
/// differs in content, length, times and names.
fn fill(vfs: &Vfs, secret: &[u8]) {
    let file = |parent, name: &[u8], permissions, content: &[u8]| {
        let ino = make(vfs, parent, name, Kind::File, permissions);
        vfs.write(ino, 0, content, false).expect("written");
        ino
    };
    let closed = make(vfs, Ino::ROOT, b"closed", Kind::Directory, 0o700);
    let open = make(vfs, Ino::ROOT, b"open", Kind::Directory, 0o755);
    let time = Some(SetTime::To(Timestamp(secret.len() as i64)));
    let changed = SetAttributes { mtime: time, atime: time, ..SetAttributes::default() };
    let files = [
        file(closed, b"secret", 0o600, secret),
        file(closed, b"open", 0o644, secret),
        file(Ino::ROOT, b"secret", 0o600, secret),
    ];
    file(closed, b"archive", 0o644, &tar(secret, secret));
    file(closed, &secret[..3], 0o644, b"");
    for ino in files.iter().chain([&closed]) {
        vfs.set_attributes(*ino, changed).expect("set");
    }
    file(open, b"file", 0o644, b"pa\nb\n");
    file(open, b"archive", 0o644, &tar(b"member", b"content"));
    vfs.make_symlink(Caller::ROOT, open, b"up", b"../closed/secret").expect("made");
}

fn tar(name: &[u8], content: &[u8]) -> Vec<u8> {
    let mut header = [0; 512];
    header[..6].copy_from_slice(&name[..6]);
    header[100..107].copy_from_slice(b"0000644");
    header[124..135].copy_from_slice(format!("{:011o}", content.len()).as_bytes());
    header[156] = b'0';
    header[148..156].fill(b' ');
    let sum: u32 = header.iter().map(|byte| u32::from(*byte)).sum();
    header[148..155].copy_from_slice(format!("{sum:06o}\0").as_bytes());
    let mut tar = [&header[..], content].concat();
    tar.resize(512 + content.len().next_multiple_of(512) + 1024, 0);
    tar
}

impl Link {
    fn definition(&self) -> LinkDefinition {
        let path = |which: &u8| TARGETS[usize::from(*which) % TARGETS.len()].as_bytes().to_vec();
        let rule = self.only.map(|which| ["s", "e", "^m", "zzz"][usize::from(which) % 4].to_owned());
        let view = match self.view % 3 {
            0 => ViewKind::File,
            1 => ViewKind::Directory { rename: None, only: rule },
            _ => ViewKind::Members,
        };
        let bit = |number: u8| self.flags & (1 << number) != 0;
        LinkDefinition {
            write: self.write.as_ref().map(Text::network),
            memo: bit(0),
            lazy: bit(1),
            direct: bit(2),
            fuse: bit(3),
            view,
            ..LinkDefinition::new(self.targets.iter().take(4).map(path).collect(), self.network.network())
        }
    }
}

impl Text {
    fn network(&self) -> String {
        match self {
            Text::Known(which) => NETWORKS[usize::from(*which) % NETWORKS.len()].to_owned(),
            Text::Given(text) => text.chars().take(200).collect(),
        }
    }
}

/// True if the kernel lets the user do to something with these attributes as `bits` say.
fn may(attributes: &Attributes, bits: u32) -> bool {
    let shift = if attributes.uid == USER { 6 } else { 0 };
    (attributes.permissions >> shift) & bits == bits
}

/// Attributes without the numbers in which what was made before shows.
fn told(attributes: Attributes) -> String {
    format!("{:?}", Attributes { ino: Ino::ROOT, ..attributes })
}

/// Looks at all in `directory` as far as the user may.
fn look(vfs: &Vfs, directory: Ino, depth: u32, seen: &mut Vec<String>) {
    let entries = match vfs.read_directory(directory, Cookie(0), 100) {
        Ok(entries) => entries,
        Err(error) => return seen.push(format!("{:?}", error.kind())),
    };
    for entry in entries {
        let name = String::from_utf8_lossy(entry.name.as_bytes()).into_owned();
        let attributes = match vfs.attributes(entry.ino) {
            Ok(attributes) => attributes,
            Err(error) => {
                seen.push(format!("{name}: {:?}", error.kind()));
                continue;
            }
        };
        seen.push(format!("{name}: {}", told(attributes)));
        for attribute in [&b"user.weft.digest"[..], b"user.weft.memo"] {
            seen.push(format!("{:?}", vfs.xattr(entry.ino, attribute).map_err(|error| error.kind())));
        }
        seen.push(format!(
            "{:?}",
            vfs.links().and_then(|links| links.link_order(entry.ino)).map_err(|error| error.kind())
        ));
        if attributes.kind == Kind::Directory {
            if depth < 3 && may(&attributes, 5) {
                look(vfs, entry.ino, depth + 1, seen);
            }
        } else if may(&attributes, 4) {
            let read = vfs.read(entry.ino, 0, 4096);
            seen.push(format!("{:?}", read.map(|read| read.to_vec()).map_err(|error| error.kind())));
        }
    }
}
