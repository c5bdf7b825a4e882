//! Views of views, and targets in views: what they show, to whom it is told, and where they end.

use crate::links::{Hears, definition, tar_of};
use crate::{DIRECTORY, FILE, Volume, kind};
use weft_links::{LinkDefinition, ViewKind};
use weft_vfs::{Caller, ErrorKind, Ino, Kind, RenameMode};

#[test]
fn views_of_views_show_what_those_show() {
    let volume = Volume::new();
    let inner = volume.directory("inner");
    let deep = volume.make(inner, "deep", DIRECTORY);
    for (parent, name, content) in [(inner, "a.txt", &b"a"[..]), (deep, "b.txt", b"b"), (inner, "Archive", b"")] {
        let ino = volume.make(parent, name, FILE);
        volume.write(ino, 0, content);
    }
    let archive = volume.find(inner, "Archive").unwrap().ino;
    volume.write(archive, 0, &tar_of(&[(b"dir/member", b"c"), (b"top", b"d")]));
    let outer = volume.directory("outer");
    let make = |parent, name: &str, target: &str, network: &str, view: ViewKind| {
        let definition = LinkDefinition { view, ..definition(&[target], network) };
        volume.links().make_link(Caller::ROOT, parent, name.as_bytes(), 0o777, &definition).expect("made").ino
    };
    let renamed = || ViewKind::Directory { rename: Some(r"s/\.txt$/.up/".into()), only: Some("txt$|up$".into()) };
    let texts = || ViewKind::Directory { rename: None, only: Some("txt$".into()) };
    make(outer, "files", "/inner", "upper", ViewKind::Directory { rename: Some(r"s/\.txt$/.up/".into()), only: None });
    make(outer, "members", "/inner/Archive", "upper", ViewKind::Members);
    make(outer, "same", "/inner", "increment", texts());
    let view = make(Ino::ROOT, "view", "/outer", "increment", renamed());
    let find = |path: &str| path.split('/').try_fold(view, |at, name| volume.find(at, name).map(|found| found.ino));
    let read = |path: &str| volume.all(find(path)?).map(|bytes| String::from_utf8(bytes).unwrap());
    assert_eq!(read("files/a.up").unwrap(), "B");
    assert_eq!(read("files/deep/b.up").unwrap(), "C");
    assert_eq!(read("same/a.up").unwrap(), "c", "called otherwise by the outer one");
    assert_eq!(read("same/deep/b.up").unwrap(), "d");
    assert_eq!(read("members/dir/member").unwrap(), "C", "what is not called so is not transformed again");
    assert_eq!(read("members/top").unwrap(), "D");
    assert_eq!(kind(read("files/a.txt")), ErrorKind::NotFound);
    assert_eq!(kind(read("members/none")), ErrorKind::NotFound);
    let listed = |path: &str| {
        let listed = volume.vfs.read_directory(find(path).unwrap(), weft_vfs::Cookie(0), 100).expect("listed");
        let names = listed.iter().map(|entry| String::from_utf8_lossy(entry.name.as_bytes()).into_owned());
        let mut names: Vec<_> = names.collect();
        names.sort();
        names
    };
    assert_eq!(listed("files"), ["Archive", "a.up", "deep"]);
    // Walkers of trees go by these kinds, and do not ask for others.
    for directory in [Ino::ROOT, view, find("files").unwrap(), find("members").unwrap()] {
        for entry in volume.vfs.read_directory(directory, weft_vfs::Cookie(0), 100).expect("listed") {
            let name = String::from_utf8(entry.name.as_bytes().to_vec()).unwrap();
            assert_eq!(entry.kind, volume.find(directory, &name).unwrap().kind, "{name}");
        }
    }
    assert_eq!((listed("members"), listed("members/dir")), (vec!["dir".into(), "top".into()], vec!["member".into()]));
    let said = String::from_utf8(volume.vfs.path(find("files/a.up").unwrap())).unwrap();
    assert!(said.starts_with('/') && said.ends_with(" in a view"), "{said}");
    // Files in views are targets as others are, and archives in them show their members.
    let link = volume.link("link", "/view/files/a.up", "increment");
    assert_eq!(volume.all(link).unwrap(), b"C");
    volume.vfs.make_symlink(Caller::ROOT, deep, b"up", b"../a.up").expect("made");
    assert_eq!(volume.all(volume.link("by a way up", "/view/same/deep/up", "identity")).unwrap(), b"c");
    make(Ino::ROOT, "in it", "/view/same/Archive", "identity", ViewKind::Members);
    let member = volume.find(volume.find(Ino::ROOT, "in it").unwrap().ino, "top").unwrap().ino;
    assert_eq!(volume.all(member).unwrap(), b"d");
    // They follow what changes at the bottom.
    let a = volume.find(inner, "a.txt").unwrap().ino;
    volume.write(a, 0, b"x");
    assert_eq!((read("files/a.up").unwrap(), volume.all(link).unwrap()), ("Y".into(), b"Z".to_vec()));
    volume.vfs.rename((inner, b"a.txt"), (inner, b"z.txt"), RenameMode::Replace).expect("renamed");
    assert_eq!((read("files/z.up").unwrap(), kind(read("files/a.up"))), ("Y".into(), ErrorKind::NotFound));
    assert_eq!(kind(volume.all(link)), ErrorKind::NotFound);
    // What was written through both lies at the bottom.
    let through = find("same/z.up").unwrap();
    volume.vfs.write(through, 0, b"q", true).expect("written");
    assert_eq!(volume.all(a).unwrap(), b"o");
}

#[test]
fn an_entry_of_a_view_is_named_by_the_path_that_it_shows() {
    let volume = Volume::new();
    let source = volume.directory("source");
    volume.make(source, "log", FILE);
    let elsewhere = volume.directory("elsewhere");
    let view = ViewKind::Directory { rename: None, only: None };
    let definition = LinkDefinition { view, ..definition(&["/source"], "upper") };
    let view = volume.links().make_link(Caller::ROOT, elsewhere, b"view", 0o777, &definition).expect("made").ino;
    let entry = volume.find(view, "log").expect("shown").ino;
    assert_eq!(String::from_utf8_lossy(&volume.vfs.path(entry)), "/source/log in a view");
}

#[test]
fn views_that_would_show_themselves_end() {
    let volume = Volume::new();
    let source = volume.directory("source");
    volume.make(source, "deep", DIRECTORY);
    let make = |parent, name: &str, target: &str| {
        let view = ViewKind::Directory { rename: None, only: None };
        let definition = LinkDefinition { view, ..definition(&[target], "upper") };
        // There it would not be made.
        let made = volume.links().make_link(Caller::ROOT, Ino::ROOT, b"made", 0o777, &definition).expect("made").ino;
        volume.vfs.rename((Ino::ROOT, b"made"), (parent, name.as_bytes()), RenameMode::Replace).expect("moved");
        made
    };
    let (one, two) = (make(source, "one", "/source"), make(source, "two", "/source"));
    let find =
        |view, path: &str| path.split('/').try_fold(view, |at, name| volume.find(at, name).map(|found| found.ino));
    assert_eq!(kind(find(one, "one")), ErrorKind::Loop);
    assert!(find(one, "deep").is_ok() && find(one, "two/deep").is_ok());
    assert_eq!(kind(find(one, "two/one")), ErrorKind::Loop);
    assert_eq!(kind(find(two, "one/two")), ErrorKind::Loop);
    assert_eq!(kind(find(two, "one/one")), ErrorKind::Loop);
    // By way of each other.
    let (left, right) = (volume.directory("left"), volume.directory("right"));
    let (to_right, to_left) = (make(left, "to right", "/right"), make(right, "to left", "/left"));
    assert_eq!(kind(find(to_right, "to left/to right")), ErrorKind::Loop);
    assert_eq!(kind(find(to_left, "to right/to left")), ErrorKind::Loop);
}

#[test]
fn a_view_is_not_made_in_the_directory_that_it_shows() {
    let volume = Volume::new();
    let source = volume.directory("source");
    let deep = volume.make(source, "deep", DIRECTORY);
    volume.directory("other");
    volume.vfs.make_symlink(Caller::ROOT, Ino::ROOT, b"way", b"other/../source").expect("made");
    let view = |target: &str| LinkDefinition {
        view: ViewKind::Directory { rename: None, only: None },
        ..definition(&[target], "upper")
    };
    let make = |parent, target: &str| {
        let made = volume.links().make_link(Caller::ROOT, parent, b"view", 0o777, &view(target));
        made.map(|_| volume.vfs.remove_directory(parent, b"view").expect("removed"))
    };
    for target in ["/source", "/source/.", "/source/deep/..", "/way", "/other/../way/", "/"] {
        for parent in [source, deep] {
            assert_eq!(kind(make(parent, target)), ErrorKind::Loop, "{target}");
        }
    }
    for (parent, target) in [(Ino::ROOT, "/source"), (source, "/source/deep"), (deep, "/other"), (deep, "/none")] {
        make(parent, target).expect("it shows other things");
    }
    // Who may not look where the source lies is not told that.
    volume.chmod(volume.find(Ino::ROOT, "other").expect("there").ino, 0o700);
    volume.chmod(deep, 0o777);
    let _asking = weft_vfs::Asker::thread(1000, 1000, 0).asks();
    assert!(volume.links().make_link(Caller::ROOT, deep, b"view", 0o777, &view("/other/../source")).is_ok());
}

#[test]
fn views_that_lead_by_themselves_end_for_whoever_looks_at_them() {
    for renames in [false, true] {
        let volume = Volume::new();
        let source = volume.directory("source");
        let make = |parent, name: &str, target: &str, rename: Option<String>| {
            let view = ViewKind::Directory { rename, only: None };
            let definition = LinkDefinition { view, ..definition(&[target], "upper") };
            volume.links().make_link(Caller::ROOT, parent, name.as_bytes(), 0o777, &definition).expect("made").ino
        };
        let view = make(Ino::ROOT, "view", "/source", renames.then(|| "s/x/y/".into()));
        let by_itself = make(source, "a", "/view/a", None);
        let (there, back) = (make(source, "there", "/view/back", None), make(source, "back", "/view/there/z", None));
        for link in [by_itself, there, back] {
            assert_eq!(volume.attributes(link).kind, Kind::Directory);
            let listed = volume.vfs.read_directory(link, weft_vfs::Cookie(0), 10);
            assert!(matches!(kind(listed), ErrorKind::Loop | ErrorKind::NotFound));
        }
        for name in ["a", "there", "back"] {
            assert_eq!(volume.find(view, name).map(|found| found.kind).unwrap_or(Kind::Directory), Kind::Directory);
        }
    }
}

#[test]
fn many_views_of_views_take_no_time_that_grows_with_their_ways() {
    let volume = Volume::new();
    let mut deep = volume.directory("0");
    for _ in 0..12 {
        deep = volume.make(deep, "d", DIRECTORY);
    }
    let file = volume.make(deep, "file", FILE);
    volume.write(file, 0, b"a");
    for number in 1..8 {
        let parent = volume.directory(&number.to_string());
        let definition = LinkDefinition {
            view: ViewKind::Directory { rename: None, only: None },
            ..definition(&[&format!("/{}", number - 1)], "increment")
        };
        volume.links().make_link(Caller::ROOT, parent, b"v", 0o777, &definition).expect("made");
    }
    // Each step would be thousands of others if what is found were not remembered for the length of
    // it.
    let path = format!("/7{}{}/file", "/v".repeat(7), "/d".repeat(12));
    let link = volume.link("link", &path, "increment");
    assert_eq!(volume.all(link).unwrap(), b"i");
}

#[test]
fn what_a_view_shows_otherwise_is_told_to_those_who_keep_links_to_it() {
    let volume = Volume::new();
    let directory = volume.directory("directory");
    for (name, content) in [("one", b"1"), ("two", b"2")] {
        let file = volume.make(directory, name, FILE);
        volume.write(file, 0, content);
    }
    volume.vfs.make_symlink(Caller::ROOT, directory, b"current", b"one").expect("made");
    for (name, rename) in [("plain", None), ("renamed", Some("s/x/y/".to_owned()))] {
        let view = ViewKind::Directory { rename, only: None };
        let definition = LinkDefinition { view, ..definition(&["/directory"], "identity") };
        volume.links().make_link(Caller::ROOT, Ino::ROOT, name.as_bytes(), 0o777, &definition).expect("made");
    }
    let told = std::sync::Arc::new(Hears::default());
    let observer: std::sync::Arc<dyn weft_vfs::Observer> = told.clone();
    volume.vfs.observe(&observer);
    let links =
        ["plain", "renamed"].map(|view| volume.link(&format!("by {view}"), &format!("/{view}/current"), "identity"));
    for link in links {
        assert_eq!((volume.attributes(link).size, volume.all(link).unwrap()), (1, b"1".to_vec()));
    }
    volume.vfs.make_symlink(Caller::ROOT, directory, b"next", b"two").expect("made");
    volume.vfs.rename((directory, b"next"), (directory, b"current"), RenameMode::Replace).expect("renamed");
    for link in links {
        assert!(told.0.lock().unwrap().contains(&link), "{link:?}");
        assert_eq!(volume.all(link).unwrap(), b"2");
    }
}
