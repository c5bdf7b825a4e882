//! A disk below this program: it keeps what was synced, loses any sectors of the rest when the
//! power goes, and its syncs can fail, which loses what they were about (the pages stay in memory,
//! clean).
//!
//! The functions of the C library that SQLite and the standard library write with are defined here
//! anew. They do what they did, and note it of files in directories that are watched. What goes
//! past the C library (punched holes) is found by comparing. Writing past the page cache is
//! refused, so that segments are written by these functions, too.

use std::borrow::Cow;
use std::cell::Cell;
use std::collections::HashMap;
use std::ffi::{CStr, OsStr, c_char, c_int, c_uint, c_void};
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Bytes that a disk writes at once.
const SECTOR: usize = 512;

/// A change of a file that was not synced.
#[derive(Clone, Debug)]
enum Change {
    Write(usize, Vec<u8>),
    Resize(usize),
}

/// A file: what is on the disk, and what would be if it were synced.
#[derive(Clone, Debug, Default)]
struct Tracked {
    watch: usize,
    durable: Vec<u8>,
    pending: Vec<Change>,
    /// Syncs that failed.
    errors: u32,
}

/// A directory that is watched.
#[derive(Debug, Default)]
struct Watch {
    path: PathBuf,
    /// Syncs so far, and the one that fails.
    syncs: u64,
    failing: Option<u64>,
    /// Events so far, and how many lie between two images that are taken.
    events: u64,
    image_every: Option<u64>,
    images: Vec<Image>,
    acknowledged: u64,
}

#[derive(Default)]
struct Registry {
    watches: Vec<Watch>,
    files: HashMap<(u64, u64), Tracked>,
    /// The file of each descriptor, and the errors that it was told of.
    descriptors: HashMap<c_int, ((u64, u64), u32)>,
}

static WATCHED: AtomicUsize = AtomicUsize::new(0);
static REGISTRY: Mutex<Option<Registry>> = Mutex::new(None);

/// A moment: all files, with what was on its way to the disk.
#[derive(Clone, Debug)]
pub struct Image {
    files: Vec<(PathBuf, Tracked, Vec<u8>)>,
    /// Number of the last operation acknowledged to the program by then.
    pub acknowledged: u64,
}

/// A directory on such a disk.
pub struct Disk(usize);

thread_local! {
    /// True if this thread has the registry: what it opens and writes then is its own.
    static HAS_REGISTRY: Cell<bool> = const { Cell::new(false) };
}

/// The registry, held.
struct Held(MutexGuard<'static, Option<Registry>>);

fn registry() -> Held {
    let guard = REGISTRY.lock().unwrap_or_else(PoisonError::into_inner);
    HAS_REGISTRY.set(true);
    Held(guard)
}

impl Held {
    fn get(&mut self) -> &mut Registry {
        self.0.get_or_insert_default()
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        HAS_REGISTRY.set(false);
    }
}

impl Disk {
    /// Watches files that are opened below `path` from now on.
    pub fn watch(path: &Path) -> Disk {
        let mut held = registry();
        let registry = held.get();
        registry.watches.push(Watch { path: path.into(), ..Watch::default() });
        WATCHED.fetch_add(1, Ordering::Relaxed);
        Disk(registry.watches.len() - 1)
    }

    fn with<T>(&self, work: impl FnOnce(&mut Watch) -> T) -> T {
        work(&mut registry().get().watches[self.0])
    }

    /// The `n`-th sync from now on fails.
    pub fn fail_sync(&self, n: u64) {
        self.with(|watch| watch.failing = Some(watch.syncs + n));
    }

    /// True if no sync is to fail any more.
    pub fn has_failed(&self) -> bool {
        self.with(|watch| watch.failing.is_none())
    }

    /// Takes an image at each `n`-th event from now on.
    pub fn take_images(&self, n: u64) {
        self.with(|watch| watch.image_every = Some(n));
    }

    /// The images taken so far.
    pub fn images(&self) -> Vec<Image> {
        self.with(|watch| std::mem::take(&mut watch.images))
    }

    /// The program was told that `number` is durable.
    pub fn acknowledge(&self, number: u64) {
        self.with(|watch| watch.acknowledged = number);
    }

    /// This moment.
    pub fn image(&self) -> Image {
        registry().get().image(self.0)
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        WATCHED.fetch_sub(1, Ordering::Relaxed);
        let mut held = registry();
        let registry = held.get();
        registry.files.retain(|_, file| file.watch != self.0);
        registry.watches[self.0] = Watch { path: PathBuf::from("/nowhere"), ..Watch::default() };
    }
}

impl Image {
    /// Writes to `to` what is there when the power comes back: all that was synced, and of what was
    /// not the sectors that `keeps` says.
    pub fn restore(&self, to: &Path, keeps: &mut dyn FnMut() -> bool) {
        for (path, file, live) in &self.files {
            let mut bytes = file.durable.clone();
            let mut expected = file.durable.clone();
            for change in &file.pending {
                change.apply(&mut expected, &mut || true);
                change.apply(&mut bytes, keeps);
            }
            // Holes that were punched are there.
            for (at, page) in live.chunks(4096).enumerate() {
                let range = at * 4096..(at * 4096 + page.len());
                let was = expected.get(range.clone());
                if page.iter().all(|byte| *byte == 0) && was.is_some_and(|was| was != page) && range.end <= bytes.len()
                {
                    bytes[range].fill(0);
                }
            }
            let path = to.join(path);
            fs::create_dir_all(path.parent().expect("a directory")).expect("made");
            fs::write(path, bytes).expect("written");
        }
    }
}

impl Change {
    fn apply(&self, bytes: &mut Vec<u8>, keeps: &mut dyn FnMut() -> bool) {
        match self {
            Change::Resize(length) if keeps() => bytes.resize(*length, 0),
            Change::Resize(_) => {}
            Change::Write(at, new) => {
                let mut from = *at;
                while from < at + new.len() {
                    let end = ((from / SECTOR + 1) * SECTOR).min(at + new.len());
                    if keeps() {
                        if bytes.len() < end {
                            bytes.resize(end, 0);
                        }
                        bytes[from..end].copy_from_slice(&new[from - at..end - at]);
                    }
                    from = end;
                }
            }
        }
    }
}

impl Registry {
    fn image(&self, watch: usize) -> Image {
        let root = &self.watches[watch].path;
        let (mut files, mut directories) = (Vec::new(), vec![root.clone()]);
        while let Some(directory) = directories.pop() {
            for entry in fs::read_dir(&directory).into_iter().flatten().flatten() {
                let path = entry.path();
                let Ok(metadata) = entry.metadata() else { continue };
                if metadata.is_dir() {
                    directories.push(path);
                } else if !path.as_os_str().as_bytes().ends_with(b"-shm") {
                    let live = fs::read(&path).unwrap_or_default();
                    let known = self.files.get(&(metadata.dev(), metadata.ino())).cloned();
                    let untouched = || Tracked { durable: live.clone(), ..Tracked::default() };
                    let file = known.unwrap_or_else(untouched);
                    files.push((path.strip_prefix(root).expect("below it").to_path_buf(), file, live));
                }
            }
        }
        files.sort_by(|a, b| a.0.cmp(&b.0));
        Image { files, acknowledged: self.watches[watch].acknowledged }
    }

    fn opened(&mut self, fd: c_int, path: &Path) {
        self.descriptors.remove(&fd);
        let Some(watch) = self.watches.iter().position(|watch| path.starts_with(&watch.path)) else { return };
        let Some((key, size)) = identity(fd) else { return };
        let is_new = self.files.get(&key).is_none_or(|file| file.watch != watch);
        if is_new {
            // What was there before is on the disk.
            let durable = if size > 0 { fs::read(path).unwrap_or_default() } else { Vec::new() };
            self.files.insert(key, Tracked { watch, durable, ..Tracked::default() });
        }
        let errors = self.files[&key].errors;
        self.descriptors.insert(fd, (key, errors));
    }

    fn changed(&mut self, fd: c_int, change: Change) {
        let Some((key, _)) = self.descriptors.get(&fd) else { return };
        let Some(file) = self.files.get_mut(key) else { return };
        file.pending.push(change);
        let watch = file.watch;
        self.event(watch);
    }

    /// True if a sync of `fd` succeeds.
    fn synced(&mut self, fd: c_int) -> bool {
        let Some((key, seen)) = self.descriptors.get_mut(&fd) else { return true };
        let Some(file) = self.files.get_mut(key) else { return true };
        let watch = file.watch;
        let state = &mut self.watches[watch];
        state.syncs += 1;
        let fails = state.failing == Some(state.syncs);
        let pending = std::mem::take(&mut file.pending);
        if fails {
            state.failing = None;
            file.errors += 1;
        } else {
            pending.iter().for_each(|change| change.apply(&mut file.durable, &mut || true));
        }
        let succeeds = *seen == file.errors;
        *seen = file.errors;
        self.event(watch);
        succeeds
    }

    fn event(&mut self, watch: usize) {
        let state = &mut self.watches[watch];
        state.events += 1;
        if state.image_every.is_some_and(|every| state.events.is_multiple_of(every)) {
            let image = self.image(watch);
            self.watches[watch].images.push(image);
        }
    }
}

/// The file of a descriptor and its size, unless it is none.
fn identity(fd: c_int) -> Option<((u64, u64), i64)> {
    // SAFETY: a structure of numbers, which the call fills.
    let (result, stat) = unsafe {
        let mut stat = std::mem::zeroed::<libc::stat>();
        (libc::fstat(fd, &raw mut stat), stat)
    };
    (result == 0).then_some((
        (stat.st_dev, stat.st_ino),
        if stat.st_mode & libc::S_IFMT == libc::S_IFREG { stat.st_size } else { 0 },
    ))
}

fn note(work: impl FnOnce(&mut Registry)) {
    if WATCHED.load(Ordering::Relaxed) > 0 && !HAS_REGISTRY.get() {
        work(registry().get());
    }
}

/// The path of what is named in a directory that is open.
fn real(path: &Path) -> Cow<'_, Path> {
    let is_in_open = path.starts_with("/proc/self/fd") && path.components().count() == 6;
    let directory = path.parent().filter(|_| is_in_open).and_then(|directory| directory.read_link().ok());
    match (directory, path.file_name()) {
        (Some(directory), Some(name)) => directory.join(name).into(),
        _ => path.into(),
    }
}

fn open_file(path: *const c_char, flags: c_int, mode: c_uint) -> c_int {
    // SAFETY: the caller of open(2) gives a string.
    let name = unsafe { CStr::from_ptr(path) };
    let name = real(Path::new(OsStr::from_bytes(name.to_bytes())));
    let mut is_watched = false;
    note(|registry| is_watched = registry.watches.iter().any(|watch| name.starts_with(&watch.path)));
    if is_watched && flags & libc::O_DIRECT != 0 {
        // SAFETY: it is the thread's own.
        unsafe { *libc::__errno_location() = libc::EINVAL };
        return -1;
    }
    // SAFETY: as the caller says.
    let fd = unsafe { libc::syscall(libc::SYS_openat, libc::AT_FDCWD, path, flags | libc::O_LARGEFILE, mode) };
    let fd = c_int::try_from(fd).expect("a descriptor");
    if fd >= 0 {
        note(|registry| registry.opened(fd, &name));
    }
    fd
}

fn written(fd: c_int, bytes: *const c_void, result: isize, at: i64) -> isize {
    if let (Ok(length @ 1..), Ok(at)) = (usize::try_from(result), usize::try_from(at)) {
        note(|registry| {
            // SAFETY: so many bytes were just written from there.
            let bytes = unsafe { std::slice::from_raw_parts(bytes.cast::<u8>(), length) };
            registry.changed(fd, Change::Write(at, bytes.to_vec()));
        });
    }
    result
}

fn sync_file(fd: c_int, call: i64) -> c_int {
    let mut succeeds = true;
    note(|registry| succeeds = registry.synced(fd));
    if WATCHED.load(Ordering::Relaxed) > 0 {
        if !succeeds {
            // SAFETY: it is the thread's own.
            unsafe { *libc::__errno_location() = libc::EIO };
        }
        return if succeeds { 0 } else { -1 };
    }
    // SAFETY: as the caller says.
    c_int::try_from(unsafe { libc::syscall(call, fd) }).expect("0 or -1")
}

fn resize_file(fd: c_int, length: i64) -> c_int {
    // SAFETY: as the caller says.
    let result = c_int::try_from(unsafe { libc::syscall(libc::SYS_ftruncate, fd, length) }).expect("0 or -1");
    if result == 0 {
        note(|registry| registry.changed(fd, Change::Resize(usize::try_from(length).expect("a length"))));
    }
    result
}

/// As the C library has it.
#[unsafe(no_mangle)]
pub extern "C" fn open(path: *const c_char, flags: c_int, mode: c_uint) -> c_int {
    open_file(path, flags, mode)
}

/// As the C library has it.
#[unsafe(no_mangle)]
pub extern "C" fn open64(path: *const c_char, flags: c_int, mode: c_uint) -> c_int {
    open_file(path, flags, mode)
}

/// As the C library has it.
#[unsafe(no_mangle)]
pub extern "C" fn write(fd: c_int, bytes: *const c_void, count: usize) -> isize {
    let mut at = -1;
    // SAFETY: as the caller says.
    note(|_| at = unsafe { libc::syscall(libc::SYS_lseek, fd, 0, libc::SEEK_CUR) });
    // SAFETY: as the caller says.
    let result = unsafe { libc::syscall(libc::SYS_write, fd, bytes, count) };
    written(fd, bytes, isize::try_from(result).expect("a count"), at)
}

/// As the C library has it.
#[unsafe(no_mangle)]
pub extern "C" fn pwrite64(fd: c_int, bytes: *const c_void, count: usize, at: i64) -> isize {
    // SAFETY: as the caller says.
    let result = unsafe { libc::syscall(libc::SYS_pwrite64, fd, bytes, count, at) };
    written(fd, bytes, isize::try_from(result).expect("a count"), at)
}

/// As the C library has it.
#[unsafe(no_mangle)]
pub extern "C" fn pwrite(fd: c_int, bytes: *const c_void, count: usize, at: i64) -> isize {
    pwrite64(fd, bytes, count, at)
}

/// As the C library has it.
#[unsafe(no_mangle)]
pub extern "C" fn fsync(fd: c_int) -> c_int {
    sync_file(fd, libc::SYS_fsync)
}

/// As the C library has it.
#[unsafe(no_mangle)]
pub extern "C" fn fdatasync(fd: c_int) -> c_int {
    sync_file(fd, libc::SYS_fdatasync)
}

/// As the C library has it.
#[unsafe(no_mangle)]
pub extern "C" fn ftruncate(fd: c_int, length: i64) -> c_int {
    resize_file(fd, length)
}

/// As the C library has it.
#[unsafe(no_mangle)]
pub extern "C" fn ftruncate64(fd: c_int, length: i64) -> c_int {
    resize_file(fd, length)
}
