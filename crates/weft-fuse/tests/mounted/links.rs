//! Links give what follows from their targets, whatever the kernel keeps of them.

use crate::fixture::{Mounted, can_mount, on_each_transport};
use rustix::fs::{FallocateFlags, RenameFlags};
use rustix::mm::{MapFlags, MsyncFlags, ProtFlags};
use std::fs::{self, File, OpenOptions, Permissions};
use std::io::{Error, Read, Write};
use std::ops::Range;
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt, PermissionsExt, chown, symlink};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};
use weft_fuse::SessionOptions;
use weft_links::{LinkDefinition, Pushed, Scope, ViewKind, WithLinks};
use weft_vfs::{Attributes, Caller, Credentials, FileId, Ino};

/// Longest time until a program that had a link open, and asked for no attributes since the target
/// changed, reads new content.
const MOMENT: Duration = Duration::from_secs(5);

fn definition(targets: &[&str], network: &str) -> LinkDefinition {
    LinkDefinition::new(targets.iter().map(|target| target.as_bytes().to_vec()).collect(), network)
}

fn link(mounted: &Mounted, name: &str, definition: &LinkDefinition) {
    mounted
        .vfs
        .links()
        .expect("links")
        .make_link(Caller::ROOT, Ino::ROOT, name.as_bytes(), 0o666, definition)
        .expect("made");
}

fn rot13(bytes: &[u8]) -> Vec<u8> {
    let turn = |byte: u8, first: u8| (byte - first + 13) % 26 + first;
    let turned = bytes.iter().map(|byte| match byte {
        b'a'..=b'z' => turn(*byte, b'a'),
        b'A'..=b'Z' => turn(*byte, b'A'),
        _ => *byte,
    });
    turned.collect()
}

fn opened(path: &Path) -> File {
    OpenOptions::new().read(true).write(true).open(path).expect("opened")
}

/// Waits until `is`, as long as a moment takes. False if it never was.
fn within_a_moment(is: impl Fn() -> bool) -> bool {
    let start = Instant::now();
    while !is() {
        if start.elapsed() > MOMENT {
            return false;
        }
        thread::yield_now();
    }
    true
}

#[test]
fn a_link_that_a_program_reads_on_without_asking_follows_its_target() {
    on_each_transport(|mounted| {
        let path = mounted.path("file");
        fs::write(&path, vec![b'a'; 200_000]).expect("written");
        link(mounted, "link", &definition(&["/file"], "rot13"));
        link(mounted, "outer", &definition(&["/link"], "upper"));
        let names = [mounted.path("link"), mounted.path("outer")];
        let held = names.each_ref().map(|name| File::open(name).expect("opened"));
        let file = opened(&path);
        for byte in b'b'..=b'k' {
            file.write_all_at(&vec![byte; 200_000], 0).expect("written");
            let expected = [rot13(&[byte]), rot13(&[byte.to_ascii_uppercase()])];
            for (held, expected) in held.iter().zip(&expected) {
                let gives = |file: &File| {
                    let mut bytes = [0; 4096];
                    file.read_exact_at(&mut bytes, 8192).expect("read");
                    bytes == [expected[0]; 4096]
                };
                assert!(within_a_moment(|| gives(held)), "{} is never read", byte as char);
            }
        }
        let last = [rot13(b"k"), rot13(b"K")];
        for (name, expected) in names.iter().zip(last) {
            assert!(fs::read(name).expect("read") == expected.repeat(200_000), "{}", name.display());
        }
    });
}

/// Within a moment, as the answer to a change does not wait for ever for what the kernel keeps.
#[test]
fn programs_that_have_a_link_open_read_and_map_what_it_gives_now() {
    if !can_mount() {
        return;
    }
    const LINKS: usize = 8;
    let mounted = Mounted::with(SessionOptions::default());
    let path = mounted.path("file");
    fs::write(&path, b"").expect("written");
    let held: Vec<_> = (0..LINKS)
        .map(|number| {
            let name = format!("link{number}");
            link(&mounted, &name, &definition(&["/file"], "rot13"));
            File::open(mounted.path(&name)).expect("opened")
        })
        .collect();
    let file = opened(&path);
    for round in 1..=60 {
        let (byte, len, link) = (b"ab"[round % 2], round * 8192, &held[round % LINKS]);
        file.write_all_at(&vec![byte; len], 0).expect("written");
        let expected = rot13(&[byte]).repeat(len + 4096);
        let reads = || {
            let mut bytes = vec![0; 4096];
            let read = link.read_at(&mut bytes, 0).expect("read");
            bytes[..read] == expected[..4096]
        };
        assert!(within_a_moment(reads), "round {round}");
        file.write_all_at(&vec![byte; len + 4096], 0).expect("written");
        let maps = || {
            assert_eq!(link.metadata().expect("attributes").len(), len as u64 + 4096);
            mapped(link, len + 4096, ProtFlags::READ, |all| copied(all)).is_ok_and(|whole| whole == expected)
        };
        assert!(within_a_moment(maps), "round {round}");
        // All of them are read on, and notified next time.
        held.iter().for_each(|link| drop(link.read_at(&mut [0; 4096], 0)));
    }
}

/// Numbers that follow from a seed (SplitMix64).
struct Random(u64);

impl Random {
    fn below(&mut self, end: usize) -> usize {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ self.0 >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        usize::try_from((mixed ^ mixed >> 31) % end as u64).expect("below a usize")
    }

    /// Letters, all of them the same or not.
    fn letters(&mut self, len: usize) -> Vec<u8> {
        let one = self.below(2) == 0;
        let mut byte = b'a';
        let mut letters = Vec::with_capacity(len);
        for place in 0..len {
            if place == 0 || !one && place % 7 == 0 {
                byte = b"abcdefghijklmnopqrstuvwxyzNOPQ\n."[self.below(32)];
            }
            letters.push(byte);
        }
        letters
    }
}

/// Longest content.
const LEN_MAX: usize = 200_000;

/// Names of files that links are made of; the last is another name of the first one's file at
/// first.
const NAMES: [&str; 3] = ["d/a", "d/b", "c"];

/// Source of a link, and the kind of its transformation.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Made {
    /// A file, byte by byte at the same positions.
    Places(usize),
    /// Such a link, again.
    Twice(usize),
    /// A file, computed as a whole.
    Whole(usize),
    /// A file, to another length.
    Count(usize),
    /// Two files.
    Both,
    /// The target of a symbolic link.
    Picked,
    /// An entry of a view of their directory.
    InView(usize),
    /// A member of an archive.
    Member,
    /// A file onto which a network is pushed.
    Pushed,
    /// The file below that network, as links see it.
    BelowPushed,
    /// A compressed file, written as a whole.
    Plain,
    /// Such a link.
    OfPlain,
}

/// A link, and a descriptor of it that stays open.
struct Seen {
    made: Made,
    path: PathBuf,
    held: File,
}

/// A mount with files and links, and what they hold.
struct World<'a> {
    mounted: &'a Mounted,
    random: Random,
    trace: Vec<String>,
    /// Content of each file.
    contents: Vec<Vec<u8>>,
    /// Number of the file that each name means.
    names: [usize; 3],
    picked: usize,
    member: Vec<u8>,
    pushed: Vec<u8>,
    plain: Vec<u8>,
    seen: Vec<Seen>,
    /// True if links can be written as a whole.
    opens: bool,
}

/// Makes a file that everybody may write: who writes to a mapping of a link is not known.
fn make(path: &Path, bytes: &[u8]) {
    fs::write(path, bytes).expect("written");
    fs::set_permissions(path, Permissions::from_mode(0o666)).expect("set");
}

/// An archive that has one member.
fn archive(member: &[u8]) -> Vec<u8> {
    let mut header = [0; 512];
    header[..1].copy_from_slice(b"m");
    header[100..107].copy_from_slice(b"0000644");
    header[124..135].copy_from_slice(format!("{:011o}", member.len()).as_bytes());
    header[148..156].fill(b' ');
    header[156] = b'0';
    header[257..265].copy_from_slice(b"ustar\x0000");
    let sum: u32 = header.iter().map(|byte| u32::from(*byte)).sum();
    header[148..155].copy_from_slice(format!("{sum:06o}\0").as_bytes());
    let padded = member.len().next_multiple_of(512) + 1024;
    let mut archive = [&header[..], member].concat();
    archive.resize(512 + padded, 0);
    archive
}

/// Puts `bytes` into `content` at `offset`.
fn put(content: &mut Vec<u8>, offset: usize, bytes: &[u8]) {
    content.resize(content.len().max(offset + bytes.len()), 0);
    content[offset..offset + bytes.len()].copy_from_slice(bytes);
}

/// Memory as direct I/O wants it.
#[repr(align(4096))]
struct Pages([u8; 65_536]);

/// All that is read of a file around the page cache.
fn read_directly(path: &Path) -> Result<Vec<u8>, Error> {
    let file = OpenOptions::new().read(true).custom_flags(libc::O_DIRECT).open(path)?;
    let (mut pages, mut all) = (Box::new(Pages([0; 65_536])), Vec::new());
    loop {
        let read = file.read_at(&mut pages.0, all.len() as u64)?;
        all.extend_from_slice(&pages.0[..read]);
        if read < pages.0.len() {
            return Ok(all);
        }
    }
}

/// The bytes of a mapping, or why they cannot be read, which would else be a signal.
fn copied(mapping: &[u8]) -> Result<Vec<u8>, Error> {
    let mut copy = tempfile::tempfile()?;
    copy.write_all(mapping)?;
    let mut bytes = vec![0; mapping.len()];
    copy.read_exact_at(&mut bytes, 0)?;
    Ok(bytes)
}

/// Maps the first bytes of a file, which holds as many, and calls `use_it` with them.
fn mapped<T>(file: &File, len: usize, protection: ProtFlags, use_it: impl FnOnce(&mut [u8]) -> T) -> T {
    // SAFETY: a new mapping of a file that nobody cuts meanwhile; it is written to only if it may
    // be, and unmapped below.
    unsafe {
        let memory = rustix::mm::mmap(std::ptr::null_mut(), len, protection, MapFlags::SHARED, file, 0);
        let memory = memory.expect("mapped");
        let used = use_it(std::slice::from_raw_parts_mut(memory.cast(), len));
        if protection.contains(ProtFlags::WRITE) {
            rustix::mm::msync(memory, len, MsyncFlags::SYNC).expect("synced");
        }
        rustix::mm::munmap(memory, len).expect("unmapped");
        used
    }
}

impl<'a> World<'a> {
    fn new(mounted: &'a Mounted, seed: u64, opens: bool) -> World<'a> {
        let path = |name: &str| mounted.path(name);
        fs::create_dir(path("d")).expect("made");
        for name in ["d/a", "d/b", "pushed"] {
            make(&path(name), b"begin");
        }
        fs::hard_link(path("d/a"), path("c")).expect("linked");
        symlink("d/a", path("pick")).expect("made");
        fs::write(path("archive"), archive(b"begin")).expect("written");
        let view = |kind, target| LinkDefinition { view: kind, ..definition(&[target], "rot13") };
        let directory = ViewKind::Directory { rename: None, only: None };
        mounted
            .vfs
            .links()
            .expect("links")
            .make_link(Caller::ROOT, Ino::ROOT, b"view", 0o777, &view(directory, "/d"))
            .expect("made");
        let members = view(ViewKind::Members, "/archive");
        mounted
            .vfs
            .links()
            .expect("links")
            .make_link(Caller::ROOT, Ino::ROOT, b"members", 0o777, &members)
            .expect("made");
        for (number, name) in NAMES.into_iter().enumerate() {
            let target = format!("/{name}");
            link(mounted, &format!("places{number}"), &definition(&[&target], "rot13"));
            link(mounted, &format!("twice{number}"), &definition(&[&format!("/places{number}")], "upper"));
            link(mounted, &format!("whole{number}"), &definition(&[&target], "gzip | gzip -d"));
            link(mounted, &format!("count{number}"), &definition(&[&target], "wc -c"));
        }
        link(mounted, "both", &definition(&["/d/a", "/d/b"], "concat($1, $2)"));
        link(mounted, "picked", &definition(&["/pick"], "rot13"));
        link(mounted, "below", &definition(&["/pushed"], "rot13"));
        let pushed = Pushed { network: "rot13".into(), code: Vec::new(), may_resize: true };
        let file = Ino(fs::metadata(path("pushed")).expect("attributes").ino());
        mounted.vfs.links().expect("links").push(Caller::ROOT, file, Scope::Everybody, &pushed).expect("pushed");
        if opens {
            fs::write(path("packed"), b"").expect("made");
            link(mounted, "plain", &definition(&["/packed"], "gzip -d"));
            link(mounted, "ofplain", &definition(&["/plain"], "rot13"));
            fs::write(path("plain"), b"begin").expect("written");
        }
        let begin = || b"begin".to_vec();
        let mut world = World {
            mounted,
            random: Random(seed),
            trace: Vec::new(),
            contents: vec![begin(), begin()],
            names: [0, 1, 0],
            picked: 0,
            member: begin(),
            pushed: begin(),
            plain: begin(),
            seen: Vec::new(),
            opens,
        };
        world.open_all();
        world
    }

    fn open_all(&mut self) {
        let of_names = |made: fn(usize) -> Made, at: &'static str| {
            (0..NAMES.len()).map(move |name| (made(name), format!("{at}{name}")))
        };
        let mut all: Vec<(Made, String)> = Vec::new();
        all.extend(of_names(Made::Places, "places"));
        all.extend(of_names(Made::Twice, "twice"));
        all.extend(of_names(Made::Whole, "whole"));
        all.extend(of_names(Made::Count, "count"));
        all.extend([(Made::InView(0), "view/a".into()), (Made::InView(1), "view/b".into())]);
        all.extend([(Made::Both, "both".into()), (Made::Picked, "picked".into())]);
        all.extend([(Made::Member, "members/m".into()), (Made::Pushed, "pushed".into())]);
        all.push((Made::BelowPushed, "below".into()));
        if self.opens {
            all.extend([(Made::Plain, "plain".into()), (Made::OfPlain, "ofplain".into())]);
        }
        for (made, name) in all {
            let path = self.mounted.path(&name);
            let held = File::open(&path).expect("opened");
            self.seen.push(Seen { made, path, held });
        }
    }

    fn content(&mut self, name: usize) -> &mut Vec<u8> {
        &mut self.contents[self.names[name]]
    }

    /// Returns the expected content of a link.
    fn expected(&self, made: Made) -> Vec<u8> {
        let of = |name: usize| &self.contents[self.names[name]];
        match made {
            Made::Places(name) | Made::InView(name) => rot13(of(name)),
            Made::Twice(name) => rot13(of(name)).to_ascii_uppercase(),
            Made::Whole(name) => of(name).clone(),
            Made::Count(name) => format!("{}\n", of(name).len()).into_bytes(),
            Made::Both => [&of(0)[..], of(1)].concat(),
            Made::Picked => rot13(of(self.picked)),
            Made::Member => rot13(&self.member),
            Made::Pushed | Made::BelowPushed => rot13(&self.pushed),
            Made::Plain => self.plain.clone(),
            Made::OfPlain => rot13(&self.plain),
        }
    }

    fn path(&self, name: usize) -> PathBuf {
        self.mounted.path(NAMES[name])
    }

    fn range(&mut self) -> (usize, usize) {
        let offset = self.random.below(LEN_MAX);
        let len = if self.random.below(2) == 0 { self.random.below(200) } else { self.random.below(70_000) };
        (offset, len.min(LEN_MAX - offset) + 1)
    }

    fn fails(&self, what: &str) -> ! {
        panic!("{what} after\n{}", self.trace[self.trace.len().saturating_sub(30)..].join("\n"));
    }
}

/// Operations on the files.
impl World<'_> {
    fn operate(&mut self) {
        let name = self.random.below(NAMES.len());
        let (offset, len) = self.range();
        let number = self.random.below(if self.opens { 27 } else { 25 });
        self.trace.push(format!("operation {number} on {name} at {offset}, {len} bytes"));
        match number {
            0..=3 => self.write(name, offset, len, number),
            4..=9 => self.allocate(name, offset, len, number),
            10 | 11 => {
                let end = if number == 10 { offset } else { self.content(name).len() };
                let by = if number == 10 { self.path(name) } else { self.mounted.path(&format!("places{name}")) };
                let end = if number == 11 { (end + offset) / 2 } else { end };
                opened(&by).set_len(end as u64).expect("cut");
                self.content(name).resize(end, 0);
            }
            12 | 13 => self.write_by_link(name, offset, len, number == 13),
            14 => self.copy(name, offset, len),
            15..=18 => self.rename(name, len, number),
            19 => self.pick(),
            20 => self.change_rights(name),
            21 => self.pack(len),
            22 | 23 => self.write_pushed(offset, len, number == 23),
            24 => self.write_by_another_way(name, offset, len),
            _ => self.write_plain(len, number == 26),
        }
    }

    fn write(&mut self, name: usize, offset: usize, len: usize, how: usize) {
        let path = self.path(name);
        let bytes = self.random.letters(len);
        match how {
            0 => opened(&path).write_all_at(&bytes, offset as u64).expect("written"),
            1 => {
                let end = self.content(name).len();
                if end + len <= LEN_MAX {
                    let file = OpenOptions::new().append(true).open(&path).expect("opened");
                    (&file).write_all(&bytes).expect("appended");
                    put(self.content(name), end, &bytes);
                }
                return;
            }
            2 => {
                let (offset, len) = (offset / 4096 * 4096, len.min(65_536).next_multiple_of(4096));
                let bytes = self.random.letters(len);
                let mut pages = Box::new(Pages([0; 65_536]));
                pages.0[..len].copy_from_slice(&bytes);
                let file = OpenOptions::new().write(true).custom_flags(libc::O_DIRECT).open(&path).expect("opened");
                file.write_all_at(&pages.0[..len], offset as u64).expect("written");
                return put(self.content(name), offset, &bytes);
            }
            _ => {
                let size = self.content(name).len();
                if offset + len <= size {
                    let protection = ProtFlags::READ | ProtFlags::WRITE;
                    mapped(&opened(&path), size, protection, |all| all[offset..offset + len].copy_from_slice(&bytes));
                    put(self.content(name), offset, &bytes);
                }
                return;
            }
        }
        put(self.content(name), offset, &bytes);
    }

    fn allocate(&mut self, name: usize, offset: usize, len: usize, mode: usize) {
        let keep = FallocateFlags::KEEP_SIZE;
        let flags = match mode {
            4 => FallocateFlags::empty(),
            5 => keep,
            6 => FallocateFlags::PUNCH_HOLE | keep,
            7 => FallocateFlags::ZERO_RANGE,
            8 => FallocateFlags::ZERO_RANGE | keep,
            _ => FallocateFlags::COLLAPSE_RANGE,
        };
        let file = opened(&self.path(name));
        let done = rustix::fs::fallocate(&file, flags, offset as u64, len as u64);
        if mode == 9 {
            return assert!(done.is_err(), "Weft moves no content");
        }
        done.expect("allocated");
        let content = self.content(name);
        let before = content.len();
        put(content, before.max(offset + len), b"");
        if mode >= 6 {
            content[offset..offset + len].fill(0);
        }
        if !matches!(mode, 4 | 7) {
            content.truncate(before);
        }
    }

    fn write_by_link(&mut self, name: usize, offset: usize, len: usize, maps: bool) {
        let file = opened(&self.mounted.path(&format!("places{name}")));
        let bytes = self.random.letters(len);
        let size = self.content(name).len();
        if maps {
            if offset + len > size {
                return;
            }
            // The kernel goes by the length that it has cached.
            file.metadata().expect("attributes");
            let protection = ProtFlags::READ | ProtFlags::WRITE;
            mapped(&file, size, protection, |all| all[offset..offset + len].copy_from_slice(&bytes));
        } else {
            file.write_all_at(&bytes, offset as u64).expect("written");
        }
        put(self.content(name), offset, &rot13(&bytes));
    }

    fn copy(&mut self, name: usize, offset: usize, len: usize) {
        let other = (name + 1) % 2;
        let (offset, from) = (offset / 65_536 * 65_536, self.random.below(2) * 65_536);
        let mut source = self.contents[self.names[other]].get(from..).unwrap_or_default().to_vec();
        source.truncate(len);
        if self.names[name] == self.names[other] {
            return;
        }
        let (input, output) = (opened(&self.path(other)), opened(&self.path(name)));
        let (mut at, mut to, mut left) = (from as u64, offset as u64, source.len());
        while left > 0 {
            let copied = rustix::fs::copy_file_range(&input, Some(&mut at), &output, Some(&mut to), left);
            left -= copied.expect("copied");
        }
        if !source.is_empty() {
            put(self.content(name), offset, &source);
        }
    }

    /// Makes a name mean another file.
    fn rename(&mut self, name: usize, len: usize, how: usize) {
        let (path, new) = (self.path(name), self.mounted.path("new"));
        if how == 15 {
            // Names of one file are not exchanged, as nothing would happen.
            let at = rustix::fs::CWD;
            let other = self.path((name + 1) % 3);
            rustix::fs::renameat_with(at, &path, at, &other, RenameFlags::EXCHANGE).expect("exchanged");
            self.names.swap(name, (name + 1) % 3);
            return;
        }
        if how == 16 {
            let other = (name + 1) % 3;
            fs::remove_file(&path).expect("removed");
            fs::hard_link(self.path(other), &path).expect("linked");
            self.names[name] = self.names[other];
            return;
        }
        let bytes = self.random.letters(len);
        if how == 17 {
            make(&new, &bytes);
            fs::rename(&new, &path).expect("renamed");
        } else {
            fs::remove_file(&path).expect("removed");
            make(&path, &bytes);
        }
        self.contents.push(bytes);
        self.names[name] = self.contents.len() - 1;
    }

    fn pick(&mut self) {
        self.picked = self.random.below(3);
        let (new, pick) = (self.mounted.path("new"), self.mounted.path("pick"));
        symlink(NAMES[self.picked], &new).expect("made");
        fs::rename(&new, &pick).expect("renamed");
    }

    /// Takes rights, and gives them back.
    fn change_rights(&mut self, name: usize) {
        let path = if self.random.below(2) == 0 { self.path(name) } else { self.mounted.path("d") };
        let bits = if path.is_dir() { 0o755 } else { 0o666 };
        fs::set_permissions(&path, Permissions::from_mode(bits & 0o700)).expect("set");
        chown(&path, Some(1000), Some(1000)).expect("given");
        // A program looks, and learns what follows from that.
        self.seen.iter().for_each(|seen| drop(fs::metadata(&seen.path)));
        chown(&path, Some(0), Some(0)).expect("given back");
        fs::set_permissions(&path, Permissions::from_mode(bits)).expect("set");
        let flags = rustix::fs::XattrFlags::empty();
        rustix::fs::setxattr(&path, "user.any", b"value", flags).expect("set");
    }

    fn pack(&mut self, len: usize) {
        self.member = self.random.letters(len);
        fs::write(self.mounted.path("archive"), archive(&self.member)).expect("written");
        for seen in self.seen.iter_mut().filter(|seen| seen.made == Made::Member) {
            // Of members of an older archive nothing is read any more.
            let is_gone = || seen.held.read_at(&mut [0], 0).is_err();
            assert!(within_a_moment(is_gone), "a member of an older archive is read");
            seen.held = File::open(&seen.path).expect("opened");
        }
    }

    fn write_pushed(&mut self, offset: usize, len: usize, below: bool) {
        let bytes = self.random.letters(len);
        let path = self.mounted.path("pushed");
        if below {
            let ino = Ino(fs::metadata(&path).expect("attributes").ino());
            self.mounted.vfs.write(ino, offset as u64, &bytes, true).expect("written");
            return put(&mut self.pushed, offset, &bytes);
        }
        opened(&path).write_all_at(&bytes, offset as u64).expect("written");
        put(&mut self.pushed, offset, &rot13(&bytes));
    }

    /// Writes as clients of NFS do.
    fn write_by_another_way(&mut self, name: usize, offset: usize, len: usize) {
        let bytes = self.random.letters(len);
        let ino = Ino(fs::metadata(self.path(name)).expect("attributes").ino());
        let attributes = self.mounted.vfs.attributes(ino).expect("attributes");
        let root = Credentials { uid: 0, gid: 0, groups: Vec::new() };
        let user = self.mounted.vfs.user(&root);
        user.write(FileId::from(&attributes), offset as u64, &bytes).expect("written");
        put(self.content(name), offset, &bytes);
    }

    fn write_plain(&mut self, len: usize, appends: bool) {
        let bytes = self.random.letters(len);
        let path = self.mounted.path("plain");
        if !appends || self.plain.len() > LEN_MAX {
            fs::write(path, &bytes).expect("written");
            self.plain = bytes;
            return;
        }
        let file = OpenOptions::new().append(true).open(path).expect("opened");
        (&file).write_all(&bytes).expect("appended");
        self.plain.extend(bytes);
    }
}

/// Reads of the links.
impl World<'_> {
    fn look(&mut self) {
        for number in 0..self.seen.len() {
            let way = self.random.below(10);
            let (offset, len) = self.range();
            let made = self.seen[number].made;
            if way >= 5 {
                continue;
            }
            self.trace.push(format!("way {way} to look at {made:?} from {offset} on, {len} bytes"));
            let expected = self.expected(made);
            if let Err(error) = self.look_at(&self.seen[number], way, &expected, offset..offset + len) {
                self.fails(&format!("{made:?} {error}"));
            }
        }
    }

    fn look_at(&self, seen: &Seen, way: usize, expected: &[u8], range: Range<usize>) -> Result<(), String> {
        let Seen { path, held, made } = seen;
        let told = |error: Error| format!("is not read: {error}");
        let part = &expected[range.start.min(expected.len())..range.end.min(expected.len())];
        let read = |file: &File| {
            let mut bytes = vec![0; range.len()];
            let read = file.read_at(&mut bytes, range.start as u64)?;
            bytes.truncate(read);
            Ok(bytes)
        };
        let has_size = |file: &File| match file.metadata().map_err(told)?.len() {
            size if size == expected.len() as u64 => Ok(()),
            size => Err(format!("has {size} bytes, not {}", expected.len())),
        };
        let bytes = match way {
            0 => {
                if within_a_moment(|| read(held).is_ok_and(|bytes| bytes == part)) {
                    return Ok(());
                }
                read(held).map_err(told)?
            }
            1 => {
                has_size(held)?;
                read(held).map_err(told)?
            }
            2 => {
                has_size(held)?;
                if expected.is_empty() {
                    return Ok(());
                }
                // The end of a mapping may lag behind, too.
                let all = || mapped(held, expected.len(), ProtFlags::READ, |all| copied(all));
                if within_a_moment(|| held.metadata().is_ok() && all().is_ok_and(|all| all == expected)) {
                    return Ok(());
                }
                return compared(&all().map_err(told)?, expected);
            }
            3 => return compared(&read_directly(path).map_err(told)?, expected),
            _ => {
                let mut all = Vec::new();
                File::open(path).and_then(|mut file| file.read_to_end(&mut all)).map_err(told)?;
                compared(&all, expected)?;
                return self.compare_attributes(path, *made);
            }
        };
        compared(&bytes, part)
    }
}

impl World<'_> {
    /// The kernel tells what the daemon does.
    fn compare_attributes(&self, path: &Path, made: Made) -> Result<(), String> {
        let told = fs::metadata(path).map_err(|error| error.to_string())?;
        if made == Made::Pushed {
            return Ok(());
        }
        let Attributes { size, mtime, ctime, .. } = self.mounted.vfs.attributes(Ino(told.ino())).expect("attributes");
        let time = |seconds: i64, nanos: i64| seconds * 1_000_000_000 + nanos;
        let seen = (told.size(), time(told.mtime(), told.mtime_nsec()), time(told.ctime(), told.ctime_nsec()));
        let is = (size, mtime.0, ctime.0);
        if seen == is { Ok(()) } else { Err(format!("shows size and times {seen:?}, not {is:?}")) }
    }
}

fn compared(read: &[u8], expected: &[u8]) -> Result<(), String> {
    if read == expected {
        return Ok(());
    }
    let differs = read.iter().zip(expected).position(|(one, other)| one != other);
    Err(format!("gives {} bytes, not {}; the first that differs is {differs:?}", read.len(), expected.len()))
}

/// After each change of what links lead to, each gives what follows from it: by a descriptor that
/// was open before, a mapping, `O_DIRECT` and a fresh open().
#[test]
fn links_follow_whatever_is_done_to_what_they_lead_to() {
    if !can_mount() {
        return;
    }
    for seed in 0..4 {
        let opens = seed % 2 == 1;
        let mounted = Mounted::with(SessionOptions { opens, ..SessionOptions::default() });
        let mut world = World::new(&mounted, seed, opens);
        world.trace.push(format!("seed {seed}"));
        for _ in 0..120 {
            world.operate();
            world.look();
        }
    }
}

/// A program changes a file again and again while others read a link to it from front to back, so
/// that the kernel reads ahead of them.
#[test]
fn what_the_kernel_reads_ahead_of_a_link_while_its_target_changes_is_not_kept() {
    if !can_mount() {
        return;
    }
    let mounted = Mounted::with(SessionOptions::default());
    let (path, len) = (mounted.path("file"), 1 << 20);
    fs::write(&path, vec![b'a'; len]).expect("written");
    link(&mounted, "link", &definition(&["/file"], "rot13"));
    link(&mounted, "outer", &definition(&["/link"], "gzip | gzip -d"));
    let names = ["link", "outer"].map(|name| mounted.path(name));
    let ends = AtomicBool::new(false);
    let held = names.each_ref().map(|name| File::open(name).expect("opened"));
    thread::scope(|scope| {
        for file in &held {
            scope.spawn(|| {
                let mut part = vec![0; 32 << 10];
                while !ends.load(Ordering::Relaxed) {
                    let mut at = 0;
                    while let Ok(read @ 1..) = file.read_at(&mut part, at) {
                        at += read as u64;
                    }
                }
            });
        }
        let file = opened(&path);
        let is_all = |bytes: &[u8], byte: u8| bytes.len() == len && bytes.iter().all(|one| *one == byte);
        let mut wrong = None;
        for round in 0..20 {
            let byte = b'a' + round % 26;
            file.write_all_at(&vec![byte; len], 0).expect("written");
            let expected = rot13(&[byte])[0];
            for (name, held) in names.iter().zip(&held) {
                let is_new = within_a_moment(|| {
                    let mut bytes = vec![0; len];
                    held.read_exact_at(&mut bytes, 0).is_ok() && is_all(&bytes, expected)
                });
                let fresh = fs::read(name).expect("read");
                if !is_new || !is_all(&fresh, expected) {
                    wrong = Some(format!("round {round}, {}: {is_new}", name.display()));
                }
            }
            if wrong.is_some() {
                break;
            }
        }
        ends.store(true, Ordering::Relaxed);
        assert_eq!(wrong, None);
    });
}
