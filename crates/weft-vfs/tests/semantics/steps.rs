//! The bound on the work of resolving a link.

use crate::links::definition;
use crate::{FILE, Volume, kind};
use weft_vfs::{Caller, ErrorKind, Ino, LinkDefinition, ViewKind};

#[test]
fn resolving_a_link_takes_a_bounded_number_of_steps_in_all() {
    let volume = Volume::new();
    let file = volume.file("file");
    volume.write(file, 0, b"a");
    let beside = volume.directory("x");
    let within = volume.make(beside, "file", FILE);
    volume.write(within, 0, b"a");
    let mut next = "file".to_owned();
    for depth in 0..39 {
        let name = format!("s{depth}");
        let way = "x/../".repeat(90) + &next;
        volume.vfs.make_symlink(Caller::ROOT, Ino::ROOT, name.as_bytes(), way.as_bytes()).expect("made");
        next = name;
    }
    let times =
        |name: &str, target: &str, count: usize| volume.link_of(name, &definition(&vec![target; count], "upper"));
    // Each target alone is within all bounds.
    assert_eq!(volume.all(times("one", "/s38", 1)).unwrap(), b"A");
    let many = times("many", "/s38", 100);
    assert_eq!(kind(volume.all(many)), ErrorKind::Loop);
    assert_eq!(volume.attributes(many).size, 1);
    // A way through a view counts what the view follows from.
    let view = ViewKind::Directory { rename: None, only: None };
    volume.link_of(
        "view",
        &LinkDefinition { view, ..definition(&[format!("{}x", "/x/../".repeat(900)).as_str()], "upper") },
    );
    assert_eq!(volume.all(times("once by the view", "/view/file", 1)).unwrap(), b"A");
    let by_view = "/view/..".repeat(400) + "/view/file";
    assert_eq!(kind(volume.all(times("by the view again", &by_view, 4))), ErrorKind::Loop);
    // A link to many files is none of those.
    assert_eq!(volume.all(times("plain", "/x/../x/../file", 500)).unwrap(), [b'A'; 500]);
}
