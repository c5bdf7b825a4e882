//! Content of links in memory that programs map.

use crate::{Volume, kind};
use weft_links::LinkDefinition;
use weft_vfs::{Caller, ErrorKind, Ino, SharedPart};

#[test]
fn what_links_give_is_read_in_place_and_not_counted() {
    let volume = Volume::new();
    let ino = volume.file("file");
    volume.write(ino, 0, &b"text\n".repeat(2000));
    let definition = LinkDefinition::new(vec![b"/file".to_vec()], "upper");
    volume.links().make_link(Caller::ROOT, Ino::ROOT, b"link", 0o644, &definition).expect("made");
    let link = volume.find(Ino::ROOT, "link").expect("there").ino;
    let pool = volume.vfs.shared_pool(link).expect("memory is shared");
    let parts = volume.vfs.read_shared(link, &pool, 0, 1 << 20).expect("read").expect("there is room");
    let bytes = parts.iter().flat_map(|part| match part {
        SharedPart::Bytes(bytes) => bytes.to_vec(),
        SharedPart::Zeros(len) => vec![0; *len],
    });
    assert_eq!(bytes.collect::<Vec<_>>(), b"TEXT\n".repeat(2000));
    assert_eq!(kind(volume.vfs.counts(link, 0)), ErrorKind::NotSupported);
}
