//! Any bytes as a file of which a view shows the members: all are looked at, read and forgotten.

use crate::memory_volume;
use crate::volume::look_at_all;
use weft_links::{LinkDefinition, ViewKind, WithLinks};
use weft_vfs::{Caller, Ino, Kind, MakeNode};

/// Takes any bytes as an archive; the first says what is made of its members.
pub fn run(bytes: &[u8]) {
    let Some((which, bytes)) = bytes.split_first() else { return };
    let networks = ["identity", "gunzip", "unzstd", "unxz", "wc"];
    let network = networks[usize::from(*which) % networks.len()];
    let vfs = memory_volume();
    let node = MakeNode { kind: Kind::File, permissions: 0o644, umask: 0, rdev: 0 };
    let archive = vfs.make(Caller::ROOT, Ino::ROOT, b"archive", node).expect("made").ino;
    vfs.write(archive, 0, bytes, false).expect("written");
    let definition =
        LinkDefinition { view: ViewKind::Members, ..LinkDefinition::new(vec![b"/archive".to_vec()], network) };
    let links = vfs.links().expect("it was opened with links");
    if links.make_link(Caller::ROOT, Ino::ROOT, b"view", 0o755, &definition).is_ok() {
        look_at_all(&vfs);
    }
    vfs.close().expect("a volume in memory takes every commit");
}
