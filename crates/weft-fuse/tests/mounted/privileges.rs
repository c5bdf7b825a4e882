//! Set-user-id and set-group-id, which those lose whose content others change: as on the file
//! system of this machine.

use crate::fixture::on_each_transport;
use std::collections::BTreeMap;
use std::ffi::CString;
use std::fs::{self, File, OpenOptions, Permissions};
use std::io::{Error, Result};
use std::os::fd::AsRawFd;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt, PermissionsExt, chown};
use std::path::Path;
use std::time::{Duration, SystemTime};

const OWNER: u32 = 1000;
const BYTES: usize = 20_000;
/// Type of file system that `statfs()` gives for ext2, ext3 and ext4.
const EXT4: i64 = 0xEF53;

/// Actors: user, group, supplementary groups. Files belong to `OWNER` and its group.
const ACTORS: [(&str, u32, u32, &[u32]); 4] = [
    ("root", 0, 0, &[]),
    ("owner", OWNER, OWNER, &[50]),
    ("member", 1001, 1001, &[50, OWNER]),
    ("stranger", 1002, 1002, &[50]),
];

const MODES: [u32; 11] = [0o6777, 0o6666, 0o2666, 0o4666, 0o6676, 0o6767, 0o4777, 0o2777, 0o4755, 0o2755, 0o2745];

/// An action on a file, and on another one to copy from.
type Action = fn(&Path, &Path) -> Result<()>;

const ACTIONS: [(&str, Action); 24] = [
    ("write", |file, _| write(file, 0, b"x")),
    ("write nothing", |file, _| write(file, 0, b"")),
    ("append", |file, _| write(file, libc::O_APPEND, b"x")),
    ("write around the cache", |file, _| direct(file)),
    ("write to a mapping", |file, _| map(file)),
    ("truncate", |file, _| truncate(file, 100)),
    ("truncate to the same", |file, _| truncate(file, BYTES as i64)),
    ("ftruncate", |file, _| writing(file, 0)?.set_len(100)),
    ("ftruncate to more", |file, _| writing(file, 0)?.set_len(30_000)),
    ("open to truncate", |file, _| writing(file, libc::O_TRUNC).map(drop)),
    ("allocate within", |file, _| allocate(file, 0, 0..5000)),
    ("allocate beyond", |file, _| allocate(file, 0, 0..30_000)),
    ("allocate and keep", |file, _| allocate(file, libc::FALLOC_FL_KEEP_SIZE, 0..5000)),
    ("allocate beyond and keep", |file, _| allocate(file, libc::FALLOC_FL_KEEP_SIZE, 0..30_000)),
    ("punch", |file, _| allocate(file, libc::FALLOC_FL_PUNCH_HOLE | libc::FALLOC_FL_KEEP_SIZE, 0..8192)),
    ("zero", |file, _| allocate(file, libc::FALLOC_FL_ZERO_RANGE, 0..30_000)),
    ("zero and keep", |file, _| allocate(file, libc::FALLOC_FL_ZERO_RANGE | libc::FALLOC_FL_KEEP_SIZE, 0..8192)),
    ("copy blocks", |file, other| copy(other, file, 8192)),
    ("copy bytes", |file, other| copy(other, file, 100)),
    ("chown to the same", |file, _| chown(file, Some(OWNER), None)),
    ("chown to nobody else", |file, _| chown(file, None, None)),
    ("chgrp", |file, _| chown(file, None, Some(50))),
    ("chmod", |file, _| fs::set_permissions(file, Permissions::from_mode(0o6755))),
    ("set times", |file, _| writing(file, 0)?.set_modified(SystemTime::UNIX_EPOCH)),
];

fn writing(file: &Path, flags: i32) -> Result<File> {
    OpenOptions::new().read(true).write(true).custom_flags(flags).open(file)
}

fn done(result: i64) -> Result<()> {
    if result < 0 { Err(Error::last_os_error()) } else { Ok(()) }
}

fn write(file: &Path, flags: i32, bytes: &[u8]) -> Result<()> {
    std::io::Write::write(&mut writing(file, flags)?, bytes).map(drop)
}

/// Memory as direct I/O wants it.
#[repr(align(4096))]
struct Page([u8; 4096]);

fn direct(file: &Path) -> Result<()> {
    std::io::Write::write(&mut writing(file, libc::O_DIRECT)?, &Page([1; 4096]).0).map(drop)
}

fn map(file: &Path) -> Result<()> {
    let file = writing(file, 0)?;
    // SAFETY: a new mapping of a file that is as long, which is written to within its bounds and
    // goes.
    unsafe {
        let at = libc::mmap(std::ptr::null_mut(), 4096, libc::PROT_WRITE, libc::MAP_SHARED, file.as_raw_fd(), 0);
        if at == libc::MAP_FAILED {
            return Err(Error::last_os_error());
        }
        at.cast::<u8>().write(9);
        let synced = libc::msync(at, 4096, libc::MS_SYNC);
        libc::munmap(at, 4096);
        done(synced.into())
    }
}

fn truncate(file: &Path, size: i64) -> Result<()> {
    let path = CString::new(file.as_os_str().as_bytes()).expect("no NUL");
    // SAFETY: the path ends with a NUL.
    done(unsafe { libc::truncate(path.as_ptr(), size) }.into())
}

fn allocate(file: &Path, mode: i32, range: std::ops::Range<i64>) -> Result<()> {
    let file = writing(file, 0)?;
    // SAFETY: no pointers.
    done(unsafe { libc::fallocate(file.as_raw_fd(), mode, range.start, range.end - range.start) }.into())
}

fn copy(from: &Path, to: &Path, len: usize) -> Result<()> {
    rustix::fs::copy_file_range(File::open(from)?, None, writing(to, 0)?, None, len)?;
    Ok(())
}

/// Makes this thread alone act for another user, for good: the C library would have all threads do
/// so.
fn become_user(uid: u32, gid: u32, groups: &[u32]) {
    // SAFETY: the pointer is to as many groups as are said.
    unsafe {
        assert_eq!(libc::syscall(libc::SYS_setgroups, groups.len(), groups.as_ptr()), 0);
        assert_eq!(libc::syscall(libc::SYS_setresgid, gid, gid, gid), 0);
        assert_eq!(libc::syscall(libc::SYS_setresuid, uid, uid, uid), 0);
    }
}

/// Outcome of an action: an error, or the permission bits, the owner and whether the time of
/// modification moved.
type Found = std::result::Result<(String, u32, u32, bool), i32>;

/// Does everything to files in `directory`.
fn outcomes(directory: &Path) -> BTreeMap<String, Found> {
    let past = SystemTime::UNIX_EPOCH + Duration::from_secs(1_000_000_000);
    let other = directory.join("other");
    fs::write(&other, vec![7; BYTES]).expect("written");
    let mut found = BTreeMap::new();
    for (actor, uid, gid, groups) in ACTORS {
        let mut files = Vec::new();
        for mode in MODES {
            for (what, action) in ACTIONS {
                let file = directory.join(format!("{actor} {mode:o} {what}"));
                fs::write(&file, vec![8; BYTES]).expect("written");
                chown(&file, Some(OWNER), Some(OWNER)).expect("given away");
                fs::set_permissions(&file, Permissions::from_mode(mode)).expect("set");
                File::open(&file).expect("opens").set_modified(past).expect("set");
                files.push((file, action));
            }
        }
        let other = &other;
        let results: Vec<_> = std::thread::scope(|scope| {
            let act = move || {
                become_user(uid, gid, groups);
                files.into_iter().map(|(file, action)| (action(&file, other), file)).collect()
            };
            scope.spawn(act).join().expect("no panic")
        });
        for (result, file) in results {
            let is = fs::metadata(&file).expect("there");
            let name = file.file_name().expect("named").to_string_lossy().into_owned();
            let moved = is.modified().expect("a time") != past;
            let result = result.map_err(|error| error.raw_os_error().expect("an errno"));
            found.insert(name, result.map(|()| (format!("{:o}", is.mode() & 0o7777), is.uid(), is.gid(), moved)));
        }
    }
    found
}

/// True if a difference is known: the kernel does not distinguish a chown() of neither owner nor
/// group from its notice before a write, so it succeeds, and changes nothing, where it is not
/// permitted.
fn is_known(case: &str) -> bool {
    case.ends_with("chown to nobody else") && (case.starts_with("member") || case.starts_with("stranger"))
}

#[test]
fn whoever_changes_content_takes_as_much_away_as_on_ext4() {
    on_each_transport(|mounted| {
        let place = tempfile::tempdir_in("/var/tmp").expect("a directory");
        if rustix::fs::statfs(place.path()).expect("statfs").f_type != EXT4 {
            return eprintln!("SKIPPED: /var/tmp is not on ext4: NOTHING was compared with it here");
        }
        fs::set_permissions(place.path(), Permissions::from_mode(0o755)).expect("set");
        let (theirs, ours) = (outcomes(place.path()), outcomes(mounted.root()));
        let differ = |(case, found): &(&String, &Found)| ours[*case] != **found && !is_known(case);
        let differ: Vec<_> = theirs.iter().filter(differ).collect();
        for (case, found) in &differ {
            eprintln!("{case}: {found:?} on ext4, {:?} here", ours[*case]);
        }
        assert!(differ.is_empty(), "{} of {} cases differ", differ.len(), theirs.len());
    });
}
