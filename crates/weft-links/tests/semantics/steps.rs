//! The bound on the work of resolving a link.

use crate::links::definition;
use crate::{FILE, Volume, kind};
use weft_links::{LinkDefinition, ViewKind};
use weft_vfs::{Caller, ErrorKind, Ino};

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

/// A few expressions that take much to compile, or many that do not, are on the way to a link's
/// targets.
#[test]
fn compiling_names_of_views_and_matching_them_are_steps() {
    let volume = Volume::new();
    let source = volume.directory("source");
    let long = "n".repeat(250);
    for number in 0..10 {
        let file = volume.make(source, &format!("{number}{long}"), FILE);
        volume.write(file, 0, b"a");
    }
    let file = volume.make(source, "f", FILE);
    volume.write(file, 0, b"a");
    let (small, large) = ("QQ", "QQ[^x]{0,1200}");
    let views = |name: &str, rename: Option<&str>, only: Option<&str>, count| {
        for number in 0..count {
            let rename = rename.map(|expression| format!("s/{expression}/z/"));
            let view = ViewKind::Directory { rename, only: only.map(str::to_owned) };
            volume.link_of(&format!("{name}{number}"), &LinkDefinition { view, ..definition(&["/source"], "upper") });
        }
    };
    views("small", Some(small), Some(small), 100);
    views("large", Some(large), None, 10);
    views("only small", None, Some(small), 1);
    views("only large", None, Some(large), 1);
    let link = |name: &str, targets: Vec<String>| {
        let targets: Vec<&str> = targets.iter().map(String::as_str).collect();
        volume.all(volume.link_of(name, &definition(&targets, "upper"))).map(|bytes| bytes.len())
    };
    let of = |name: &str, count| (0..count).map(|number| format!("/{name}{number}/f")).collect();
    assert_eq!(link("hundred small", of("small", 100)).unwrap(), 100);
    assert_eq!(link("three large", of("large", 3)).unwrap(), 3);
    assert_eq!(kind(link("ten large", of("large", 10))), ErrorKind::Loop);
    let of = |name: &str, count| (0..count).map(|number| format!("/{name}0/{number}{long}")).collect();
    assert_eq!(link("names", of("only small", 10)).unwrap(), 10);
    assert_eq!(link("one name", of("only large", 1)).unwrap(), 1);
    assert_eq!(kind(link("names at length", of("only large", 10))), ErrorKind::Loop);
}
