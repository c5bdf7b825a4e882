//! Names, attributes and listings through the kernel.

use crate::fixture::on_each_transport;
use rustix::fs::{CWD, FileType, Mode, RenameFlags, XattrFlags};
use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::{FileTypeExt, MetadataExt, PermissionsExt, symlink};
use std::path::Path;

fn listed(directory: &Path) -> BTreeSet<String> {
    let names = fs::read_dir(directory).expect("listed").map(|entry| entry.expect("an entry").file_name());
    names.map(|name| name.to_string_lossy().into_owned()).collect()
}

fn numbers(range: impl Iterator<Item = usize>) -> BTreeSet<String> {
    range.map(|i| format!("file{i}")).collect()
}

#[test]
fn a_listing_that_the_kernel_keeps_follows_every_change() {
    on_each_transport(|mounted| {
        for i in 0..100 {
            fs::write(mounted.path(&format!("file{i}")), b"").expect("made");
            if i % 10 == 0 {
                assert_eq!(listed(mounted.root()), numbers(0..=i));
            }
        }
        assert_eq!(listed(mounted.root()), numbers(0..100));
        let requests = mounted.requests("Readdir") + mounted.requests("Readdirplus");
        assert_eq!(listed(mounted.root()), numbers(0..100));
        assert_eq!(mounted.requests("Readdir") + mounted.requests("Readdirplus"), requests, "the kernel keeps it");
        fs::remove_file(mounted.path("file50")).expect("removed");
        assert_eq!(listed(mounted.root()), numbers((0..100).filter(|i| *i != 50)));
        fs::rename(mounted.path("file51"), mounted.path("file50")).expect("renamed");
        assert_eq!(listed(mounted.root()), numbers((0..100).filter(|i| *i != 51)));
        fs::create_dir(mounted.path("file51")).expect("made");
        assert_eq!(listed(mounted.root()), numbers(0..100));
    });
}

#[test]
fn entries_removed_while_a_large_directory_is_listed_do_not_hide_others() {
    on_each_transport(|mounted| {
        for i in 0..3000 {
            fs::write(mounted.path(&format!("file{i}")), b"").expect("made");
        }
        let mut seen = BTreeSet::new();
        for entry in fs::read_dir(mounted.root()).expect("listed") {
            let name = entry.expect("an entry").file_name().to_string_lossy().into_owned();
            fs::remove_file(mounted.path(&name)).expect("removed");
            assert!(seen.insert(name), "each is listed once");
        }
        assert_eq!(seen, numbers(0..3000));
        assert!(listed(mounted.root()).is_empty());
    });
}

#[test]
fn the_dots_are_listed_with_their_numbers() {
    on_each_transport(|mounted| {
        fs::create_dir_all(mounted.path("a/b")).expect("made");
        let directory = fs::File::open(mounted.path("a/b")).expect("opened");
        let found: Vec<(String, u64)> = rustix::fs::Dir::read_from(&directory)
            .expect("opened")
            .map(|entry| entry.map(|entry| (entry.file_name().to_string_lossy().into_owned(), entry.ino())))
            .collect::<Result<_, _>>()
            .expect("listed");
        let ino = |name: &str| fs::metadata(mounted.path(name)).expect("attributes").ino();
        assert_eq!(found, [(".".to_owned(), ino("a/b")), ("..".to_owned(), ino("a"))]);
    });
}

#[test]
fn a_name_once_missing_is_found_when_it_is_made() {
    on_each_transport(|mounted| {
        for i in 0..3 {
            assert!(!fs::exists(mounted.path("new")).expect("looked up"), "{i}");
        }
        let lookups = mounted.requests("lookup");
        assert!(!fs::exists(mounted.path("new")).expect("looked up"));
        assert_eq!(mounted.requests("lookup"), lookups, "the kernel remembers");
        fs::write(mounted.path("new"), b"").expect("made");
        assert!(fs::exists(mounted.path("new")).expect("looked up"));
    });
}

#[test]
fn inodes_of_every_kind_are_made() {
    on_each_transport(|mounted| {
        symlink("target", mounted.path("link")).expect("made");
        assert_eq!(fs::read_link(mounted.path("link")).expect("read").to_string_lossy(), "target");
        for (name, kind, device) in [
            ("fifo", FileType::Fifo, 0),
            ("socket", FileType::Socket, 0),
            ("char", FileType::CharacterDevice, rustix::fs::makedev(1, 3)),
            ("block", FileType::BlockDevice, rustix::fs::makedev(259, 70_000)),
        ] {
            rustix::fs::mknodat(CWD, mounted.path(name), kind, Mode::RUSR, device).expect("made");
            let metadata = fs::symlink_metadata(mounted.path(name)).expect("attributes");
            assert_eq!(FileType::from_raw_mode(metadata.mode()), kind, "{name}");
            assert_eq!(metadata.rdev(), device, "{name}");
        }
        assert!(fs::symlink_metadata(mounted.path("fifo")).expect("attributes").file_type().is_fifo());
    });
}

#[test]
fn renames_replace_refuse_and_exchange() {
    on_each_transport(|mounted| {
        let (a, b) = (mounted.path("a"), mounted.path("b"));
        fs::write(&a, b"a").expect("made");
        fs::write(&b, b"b").expect("made");
        let refused = rustix::fs::renameat_with(CWD, &a, CWD, &b, RenameFlags::NOREPLACE);
        assert_eq!(refused, Err(rustix::io::Errno::EXIST));
        rustix::fs::renameat_with(CWD, &a, CWD, &b, RenameFlags::EXCHANGE).expect("exchanged");
        assert_eq!((fs::read(&a).expect("read"), fs::read(&b).expect("read")), (b"b".to_vec(), b"a".to_vec()));
        fs::rename(&a, &b).expect("renamed");
        assert_eq!(fs::read(&b).expect("read"), b"b");
        assert!(!fs::exists(&a).expect("looked up"));
    });
}

#[test]
fn hard_links_share_all_attributes() {
    on_each_transport(|mounted| {
        let (a, b) = (mounted.path("a"), mounted.path("b"));
        fs::write(&a, b"text").expect("made");
        fs::hard_link(&a, &b).expect("linked");
        fs::set_permissions(&b, fs::Permissions::from_mode(0o640)).expect("set");
        let (of_a, of_b) = (fs::metadata(&a).expect("attributes"), fs::metadata(&b).expect("attributes"));
        assert_eq!((of_a.ino(), of_a.nlink(), of_a.mode() & 0o777), (of_b.ino(), 2, 0o640));
        fs::remove_file(&a).expect("removed");
        assert_eq!(fs::metadata(&b).expect("attributes").nlink(), 1);
    });
}

#[test]
fn extended_attributes_are_set_listed_and_removed() {
    on_each_transport(|mounted| {
        let path = mounted.path("file");
        fs::write(&path, b"").expect("made");
        rustix::fs::setxattr(&path, "user.a", b"1", XattrFlags::CREATE).expect("set");
        let again = rustix::fs::setxattr(&path, "user.a", b"2", XattrFlags::CREATE);
        assert_eq!(again, Err(rustix::io::Errno::EXIST));
        rustix::fs::setxattr(&path, "security.b", &[7; 60_000], XattrFlags::empty()).expect("set");
        let mut list = vec![0; 1000];
        let len = rustix::fs::listxattr(&path, &mut list).expect("listed");
        assert_eq!(&list[..len], b"security.b\0user.a\0");
        let mut value = vec![0; 65_536];
        assert_eq!(rustix::fs::getxattr(&path, "security.b", &mut value), Ok(60_000));
        rustix::fs::removexattr(&path, "user.a").expect("removed");
        assert_eq!(rustix::fs::getxattr(&path, "user.a", &mut value), Err(rustix::io::Errno::NODATA));
    });
}

#[test]
fn a_default_acl_decides_over_the_umask() {
    on_each_transport(|mounted| {
        let directory = mounted.path("directory");
        fs::create_dir(&directory).expect("made");
        let entry = |tag: u16, bits: u16| [tag.to_le_bytes(), bits.to_le_bytes(), [0xff; 2], [0xff; 2]].concat();
        let acl = [2u32.to_le_bytes().to_vec(), entry(1, 7), entry(4, 7), entry(0x20, 0)].concat();
        rustix::fs::setxattr(&directory, "system.posix_acl_default", &acl, XattrFlags::empty()).expect("set");
        fs::write(directory.join("file"), b"").expect("made");
        let mode = fs::metadata(directory.join("file")).expect("attributes").mode() & 0o777;
        assert_eq!(mode, 0o660, "asked for 666, and the ACL gives others nothing");
    });
}

#[test]
fn times_are_kept_to_the_nanosecond() {
    on_each_transport(|mounted| {
        let path = mounted.path("file");
        fs::write(&path, b"").expect("made");
        let file = fs::File::options().write(true).open(&path).expect("opened");
        let time = std::time::UNIX_EPOCH + std::time::Duration::new(1_234_567_890, 123_456_789);
        file.set_times(fs::FileTimes::new().set_accessed(time).set_modified(time)).expect("set");
        let metadata = fs::metadata(&path).expect("attributes");
        assert_eq!((metadata.mtime(), metadata.mtime_nsec()), (1_234_567_890, 123_456_789));
        assert_eq!((metadata.atime(), metadata.atime_nsec()), (1_234_567_890, 123_456_789));
    });
}

#[test]
fn a_name_of_255_bytes_is_a_name_and_one_more_is_too_long() {
    on_each_transport(|mounted| {
        fs::write(mounted.path(&"n".repeat(255)), b"").expect("made");
        let error = fs::write(mounted.path(&"n".repeat(256)), b"").expect_err("too long");
        assert_eq!(error.raw_os_error(), Some(libc::ENAMETOOLONG));
        assert!(listed(mounted.root()).contains(&"n".repeat(255)));
    });
}

#[test]
fn the_time_of_creation_is_told_beside_what_stat_tells() {
    use rustix::fs::{AtFlags, StatxFlags, statx};
    on_each_transport(|mounted| {
        let now = || i64::try_from(std::time::UNIX_EPOCH.elapsed().expect("after 1970").as_secs()).expect("small");
        let begun = now();
        fs::write(mounted.path("file"), b"x").expect("written");
        fs::create_dir(mounted.path("directory")).expect("made");
        symlink("file", mounted.path("link")).expect("made");
        let device = rustix::fs::makedev(300, 70_000);
        rustix::fs::mknodat(CWD, mounted.path("device"), FileType::CharacterDevice, Mode::RUSR, device).expect("made");
        let before = statx(CWD, mounted.path("file"), AtFlags::empty(), StatxFlags::BTIME).expect("told").stx_btime;
        fs::write(mounted.path("file"), vec![1; 10_000]).expect("written");
        for name in ["", "file", "directory", "link", "device"] {
            let path = mounted.path(name);
            let plain = rustix::fs::lstat(&path).expect("told");
            let wanted = StatxFlags::BASIC_STATS | StatxFlags::BTIME;
            let told = statx(CWD, &path, AtFlags::SYMLINK_NOFOLLOW, wanted).expect("told");
            assert!(told.stx_mask & StatxFlags::BTIME.bits() != 0, "{name}");
            let created = told.stx_btime.tv_sec;
            assert!(name.is_empty() || (begun - 1..=now()).contains(&created), "{name}: {created}");
            let (major, minor) = (rustix::fs::major(plain.st_rdev), rustix::fs::minor(plain.st_rdev));
            assert_eq!((told.stx_rdev_major, told.stx_rdev_minor), (major, minor), "{name}");
            assert_eq!(
                (told.stx_ino, told.stx_size, told.stx_blocks),
                (plain.st_ino, plain.st_size as u64, plain.st_blocks as u64)
            );
            assert_eq!(
                (u32::from(told.stx_mode), told.stx_nlink),
                (plain.st_mode, u32::try_from(plain.st_nlink).expect("few"))
            );
            assert_eq!((told.stx_uid, told.stx_gid), (plain.st_uid, plain.st_gid));
            let times =
                [told.stx_atime, told.stx_mtime, told.stx_ctime].map(|time| (time.tv_sec, u64::from(time.tv_nsec)));
            let plain = [
                (plain.st_atime, plain.st_atime_nsec),
                (plain.st_mtime, plain.st_mtime_nsec),
                (plain.st_ctime, plain.st_ctime_nsec),
            ];
            assert_eq!(times, plain, "{name}");
        }
        let after = statx(CWD, mounted.path("file"), AtFlags::empty(), StatxFlags::BTIME).expect("told").stx_btime;
        assert_eq!((before.tv_sec, before.tv_nsec), (after.tv_sec, after.tv_nsec), "it stays");
    });
}
