//! Results of networks that are kept: known by what they are made of, beyond the mount, and never
//! in the way.

use std::fmt;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use weft_links::{Exported, LinkDefinition, LinkOptions, Memo, WithLinks};
use weft_store::sqlite::{self, check};
use weft_store::{BlockHome, CheckOptions, Repair, Timestamp, VolumeOptions};
use weft_vfs::{Caller, Ino, Kind, MakeNode, ManualClock, Options, SetAttributes, Vfs};

const FILE: MakeNode = MakeNode { kind: Kind::File, permissions: 0o644, umask: 0, rdev: 0 };

struct Volume {
    directory: tempfile::TempDir,
    vfs: Option<Arc<Vfs>>,
}

fn options() -> LinkOptions {
    LinkOptions { exported: Exported::Everybody, ..LinkOptions::default() }
}

fn open(path: &Path, links: LinkOptions) -> Arc<Vfs> {
    let options = Options { background: false, ..Options::default() };
    let store = sqlite::open(path).expect("opened").store;
    weft_links::open(store, None, options, links, Arc::new(ManualClock::default())).expect("opens")
}

impl Volume {
    fn new() -> Volume {
        let directory = tempfile::tempdir().expect("a directory");
        let options_of_volume = VolumeOptions { home: BlockHome::Segments, ..VolumeOptions::default() };
        sqlite::create(&directory.path().join("volume"), &options_of_volume, (0, 0), Timestamp(0)).expect("created");
        let vfs = Some(open(&directory.path().join("volume"), options()));
        Volume { directory, vfs }
    }

    fn path(&self) -> PathBuf {
        self.directory.path().join("volume")
    }

    fn vfs(&self) -> &Vfs {
        self.vfs.as_ref().expect("it is open")
    }

    fn close(&mut self) {
        self.vfs().close().expect("closed");
        self.vfs = None;
    }

    fn reopen(&mut self, options: LinkOptions) {
        self.vfs = None;
        self.vfs = Some(open(&self.path(), options));
    }

    fn remount(&mut self, options: LinkOptions) {
        self.close();
        self.reopen(options);
    }

    fn file(&self, name: &str, content: &[u8]) -> Ino {
        let ino = self.vfs().make(Caller::ROOT, Ino::ROOT, name.as_bytes(), FILE).expect("made").ino;
        self.write(ino, content);
        ino
    }

    fn write(&self, ino: Ino, content: &[u8]) {
        let empty = SetAttributes { size: Some(0), ..SetAttributes::default() };
        self.vfs().set_attributes(ino, empty).expect("emptied");
        self.vfs().write(ino, 0, content, false).expect("written");
    }

    fn link(&self, name: &str, target: &str, network: &str) -> Ino {
        let definition = LinkDefinition::new(vec![target.into()], network);
        self.vfs()
            .links()
            .expect("links")
            .make_link(Caller::ROOT, Ino::ROOT, name.as_bytes(), 0o666, &definition)
            .expect("made")
            .ino
    }

    /// All that `name` gives, as text: short enough to be read where it is not what it should be.
    fn all(&self, name: &str) -> Text {
        let ino = self.vfs().lookup(Caller::ROOT, Ino::ROOT, name.as_bytes()).expect("there").ino;
        Text(self.vfs().read(ino, 0, 1 << 24).expect("read").to_vec())
    }

    /// Results computed, and found, since the volume was opened.
    fn results(&self) -> (u64, u64) {
        let stats = self.vfs().stats();
        (stats.results_computed, stats.results_found)
    }
}

#[derive(Clone, PartialEq)]
struct Text(Vec<u8>);

impl fmt::Debug for Text {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Text(bytes) = self;
        write!(
            formatter,
            "{} bytes that begin with {}",
            bytes.len(),
            String::from_utf8_lossy(&bytes[..bytes.len().min(100)])
        )
    }
}

fn lines(count: usize) -> (Vec<u8>, Text) {
    let line = |number: usize| format!("line {number} of a text that is long enough for blocks\n");
    let text: String = (0..count).map(line).collect();
    let reversed: String =
        (0..count).map(|number| line(number).trim_end().chars().rev().collect::<String>() + "\n").collect();
    (text.into_bytes(), Text(reversed.into_bytes()))
}

#[test]
fn results_are_found_again_by_what_they_are_made_of() {
    let mut volume = Volume::new();
    let (text, reversed) = lines(10_000);
    let file = volume.file("file", &text);
    volume.link("link", "/file", "rev");
    volume.link("over it", "/link", "head -1");
    let first = Text(reversed.0.split_inclusive(|byte| *byte == b'\n').next().expect("a line").to_vec());
    assert_eq!((volume.all("link"), volume.all("over it")), (reversed.clone(), first.clone()));
    assert_eq!(volume.results(), (2, 0));
    let kept = |volume: &Volume, name: &[u8]| {
        let ino = volume.vfs().lookup(Caller::ROOT, Ino::ROOT, name).expect("there").ino;
        volume.vfs().links().expect("links").memo(ino).expect("told")
    };
    let all = Some(Memo { bytes: reversed.0.len() as u64, is_complete: true });
    assert_eq!((kept(&volume, b"link"), kept(&volume, b"file")), (all, None));
    assert_eq!(all.map(|memo| Memo::decode(&memo.encode())), Some(all));
    volume.remount(options());
    assert_eq!(kept(&volume, b"link"), all, "before anybody has read it");
    assert_eq!(volume.vfs().stats().memo_bytes, (reversed.0.len() + first.0.len()) as u64);
    let link = volume.vfs().lookup(Caller::ROOT, Ino::ROOT, b"link").expect("there");
    assert_eq!(link.size, reversed.0.len() as u64, "its length is known, too");
    assert_eq!((volume.all("link"), volume.all("over it")), (reversed.clone(), first.clone()));
    assert_eq!(volume.results(), (0, 2));
    // What was changed is computed anew; what is as it was before, in the same file or in another,
    // is not.
    volume.write(file, b"other\n");
    assert_eq!(volume.all("link"), Text(b"rehto\n".to_vec()));
    volume.write(file, &text);
    volume.vfs().commit().expect("committed");
    assert_eq!(volume.all("link"), reversed);
    assert_eq!(volume.results(), (1, 3));
    volume.file("copy", &text);
    volume.link("of the copy", "/copy", "rev");
    volume.vfs().commit().expect("committed");
    assert_eq!(volume.all("of the copy"), reversed);
    assert_eq!(volume.results(), (1, 4));
    // Those that are the same have it together, and neither looks for it each time.
    for _ in 0..3 {
        assert_eq!((volume.all("link"), volume.all("of the copy")), (reversed.clone(), reversed.clone()));
    }
    assert_eq!(
        (volume.results(), volume.vfs().stats().memo_bytes),
        ((1, 4), (reversed.0.len() + first.0.len() + 6) as u64)
    );
    // Another network is another result.
    volume.link("other", "/file", "rev | rev");
    assert_eq!(volume.all("other"), Text(text));
    assert_eq!(volume.results(), (2, 4));
    volume.close();
    let undamaged = CheckOptions { repair: Repair::No, read_data: true };
    assert_eq!(check(&volume.path(), undamaged, &mut |_| {}).expect("checked"), []);
}

#[test]
fn results_survive_a_daemon_that_is_killed_if_what_they_are_made_of_was_committed() {
    let mut volume = Volume::new();
    let (text, reversed) = lines(1000);
    volume.file("file", &text);
    volume.link("link", "/file", "rev");
    volume.vfs().sync().expect("synced");
    assert_eq!(volume.all("link"), reversed);
    volume.vfs().sync().expect("synced");
    // What is not computed to its end is no result.
    let (long, _) = lines(100_000);
    volume.file("other", &long);
    let half = volume.link("half", "/other", "rev | rev");
    volume.vfs().sync().expect("synced");
    assert_eq!(volume.vfs().links().expect("links").memo(half).expect("told"), None);
    assert_eq!(volume.vfs().read(half, 0, 1000).expect("read").to_vec(), long[..1000]);
    assert!(
        volume
            .vfs()
            .links()
            .expect("links")
            .memo(half)
            .expect("told")
            .is_some_and(|memo| memo.bytes >= 1000 && !memo.is_complete)
    );
    assert!(volume.vfs().stats().memo_bytes > reversed.0.len() as u64);
    volume.vfs().sync().expect("synced");
    volume.reopen(options());
    assert_eq!(volume.vfs().stats().memo_bytes, reversed.0.len() as u64);
    assert_eq!(volume.all("link"), reversed);
    assert_eq!(volume.results(), (0, 1));
}

#[test]
fn results_that_are_no_more_than_the_machines_go_with_the_mount() {
    let mut volume = Volume::new();
    volume.file("file", b"text\n");
    volume.link("link", "/file", "exec cat");
    assert_eq!(volume.all("link"), Text(b"text\n".to_vec()));
    assert_eq!(volume.vfs().stats().memo_bytes, 5);
    let inodes = volume.vfs().stats().inodes_used;
    volume.remount(options());
    assert_eq!((volume.vfs().stats().memo_bytes, volume.vfs().stats().inodes_used), (0, inodes - 1));
    assert_eq!(volume.all("link"), Text(b"text\n".to_vec()));
    assert_eq!(volume.results(), (1, 0));
}

#[test]
fn what_is_kept_beyond_the_mount_has_a_bound_and_makes_way() {
    let mut volume = Volume::new();
    let (text, reversed) = lines(1000);
    volume.file("file", &text);
    for number in 0..4 {
        let name = format!("link {number}");
        volume.link(&name, "/file", &format!("rev | increment {number} | decrement {number}"));
        assert_eq!(volume.all(&name), reversed);
    }
    let bytes = reversed.0.len() as u64;
    let inodes = volume.vfs().stats().inodes_used - 4;
    volume.remount(options());
    assert_eq!(volume.vfs().stats().memo_bytes, 4 * bytes);
    volume.remount(LinkOptions { memo_bytes_max: 2 * bytes + 1, ..options() });
    assert_eq!((volume.vfs().stats().memo_bytes, volume.vfs().stats().inodes_used), (2 * bytes, inodes + 2));
    // A third one takes the place of one that nobody has asked for.
    volume.link("more", "/file", "rev | rev");
    assert_eq!(volume.all("more"), Text(text));
    assert_eq!(volume.vfs().stats().memo_bytes, 2 * bytes);
    volume.remount(LinkOptions { memo_bytes_max: 0, ..options() });
    assert_eq!((volume.vfs().stats().memo_bytes, volume.vfs().stats().inodes_used), (0, inodes + 1));
}

#[test]
fn a_result_that_is_damaged_is_computed_again() {
    let mut volume = Volume::new();
    let (text, reversed) = lines(10_000);
    volume.file("file", &text);
    volume.link("link", "/file", "rev");
    assert_eq!(volume.all("link"), reversed);
    volume.close();
    let mut damaged = 0;
    for segment in fs::read_dir(volume.path().join("segments")).expect("listed") {
        let segment = segment.expect("listed").path();
        let mut content = fs::read(&segment).expect("read");
        if let Some(at) = content.windows(1000).position(|window| window == &reversed.0[..1000]) {
            content[at + 500] ^= 1;
            fs::write(&segment, content).expect("written");
            damaged += 1;
        }
    }
    assert_eq!(damaged, 1);
    volume.reopen(options());
    assert_eq!(volume.all("link"), reversed);
    assert_eq!(volume.results(), (1, 1));
}

#[test]
fn a_result_that_not_everybody_may_have_confirms_no_guess() {
    let volume = Volume::new();
    let secret = volume.file("secret", b"password\n");
    let rights = |permissions| SetAttributes { permissions: Some(permissions), ..SetAttributes::default() };
    volume.vfs().set_attributes(secret, rights(0o600)).expect("set");
    volume.link("sorted", "/secret", "sort");
    volume.file("guess", b"password\n");
    volume.vfs().sync().expect("synced");
    assert_eq!(volume.all("sorted").0, b"password\n");
    let guess = volume.link("of guess", "/guess", "sort");
    assert_eq!(volume.vfs().links().expect("links").memo(guess).expect("told"), None, "nobody has computed that");
    assert_eq!((volume.all("of guess").0, volume.results()), (b"password\n".to_vec(), (2, 0)));
    // The same file's is found, as before.
    volume.link("again", "/secret", "sort");
    assert_eq!(volume.all("again").0, b"password\n");
    assert_eq!(volume.results().0, 2);
}
