//! What a restoration leaves as it is: history could not bring it back.

use super::*;
use weft_store::RowStore;

#[test]
fn a_file_in_place_of_one_whose_content_is_forgotten_stays() {
    // Digests tell what is forgotten.
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().join("volume");
    sqlite::create(&path, &volume_options(), (0, 0), Timestamp(0)).expect("created");
    let volume = Volume::over(CrashStore::over(sqlite::open(&path).expect("opened").store), options());
    volume.make("/d", DIRECTORY);
    volume.put("/d/f", b"forgotten");
    volume.put("/d/kept", b"kept");
    let then = volume.commit();
    volume.put("/d/new", b"in its place");
    volume.rename("/d/new", "/d/f");
    volume.put("/d/kept", b"changed");
    volume.put("/d/later", b"later");
    volume.commit();
    assert_eq!(volume.vfs.forget_history(b"/d/f", 0).expect("forgotten"), 2);
    let report = volume.try_restore("/d", then, Target::Place).expect("restored");
    // The directory, too.
    assert_eq!((report.forgotten, report.changed, report.removed), (1, 2, 1));
    assert_eq!(volume.read("/d/f"), b"in its place");
    assert_eq!(volume.read("/d/kept"), b"kept");
    assert!(find(&volume.vfs, "/d/later").is_none());
    check_links(&volume.vfs);
    // There is nothing more to be done.
    let again = volume.try_restore("/d", then, Target::Place).expect("restored");
    assert_eq!((again.back, again.changed, again.removed, again.moved), (0, 0, 0, 0));
}

#[test]
fn what_is_excluded_from_history_is_not_removed_unless_it_is_asked_for() {
    let volume = Volume::new();
    volume.make("/d", DIRECTORY);
    volume.make("/d/target", DIRECTORY);
    volume.put("/d/target/old", b"old");
    volume.put("/d/kept", b"kept");
    volume.vfs.exclude_from_history(b"target").expect("excluded");
    let then = volume.commit();
    volume.put("/d/target/new", b"new");
    volume.make("/d/later", DIRECTORY);
    volume.put("/d/later/source", b"source");
    volume.make("/d/later/sub", DIRECTORY);
    volume.make("/d/later/sub/target", DIRECTORY);
    volume.put("/d/later/sub/target/built", b"built");
    volume.link("/d/later/sub/target/built", "/d/later/sub/target/linked");
    volume.commit();
    let report = volume.try_restore("/", then, Target::Place).expect("restored");
    assert_eq!((report.back, report.removed), (0, 1));
    assert!(find(&volume.vfs, "/d/later/source").is_none());
    for (path, content) in
        [("/d/target/new", &b"new"[..]), ("/d/target/old", b"old"), ("/d/later/sub/target/linked", b"built")]
    {
        assert_eq!(volume.read(path), content, "{path}");
    }
    check_links(&volume.vfs);
    // By its own path it becomes what it was.
    volume.try_restore("/d/target", then, Target::Place).expect("restored");
    assert!(find(&volume.vfs, "/d/target/new").is_none());
    assert_eq!(volume.read("/d/target/old"), b"old");
}

/// They would be a directory's that nobody can make, and the secrets among them would be sent.
#[test]
fn what_controls_the_volume_stays_with_its_root() {
    let volume = Volume::new();
    volume.put("/file", b"content");
    volume.vfs.exclude_from_history(b"target").expect("excluded");
    volume.vfs.set_xattr(Ino::ROOT, b"user.own", b"1", SetXattr::Any, false).expect("set");
    let then = volume.commit();
    volume.try_restore("/", then, Target::Elsewhere(b"/copy".to_vec())).expect("restored");
    volume.commit();
    let names = |ino| {
        let all = volume.store.xattrs(ino).expect("readable").into_iter();
        all.map(|(name, _)| String::from_utf8_lossy(name.as_bytes()).into_owned()).collect::<Vec<_>>()
    };
    assert!(names(Ino::ROOT).iter().any(|name| name.contains("exclude")));
    assert_eq!(names(volume.at("/copy")), ["user.own"]);
    let row = volume.store.inodes(volume.at("/copy"), 1).expect("readable").remove(0);
    assert_eq!((row.xattrs, volume.read("/copy/file")), (1, b"content".to_vec()));
    check_links(&volume.vfs);
}
