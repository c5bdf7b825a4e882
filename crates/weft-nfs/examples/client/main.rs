//! Works on files of a mount as programs do, and checks the results. `client DIRECTORY` prints
//! `ok NAME` or `not ok NAME` for each kind of work, `client DIRECTORY locks` for each kind of
//! locking.
//! `client DIRECTORY churn ROUNDS` works and verifies, and prints `round N` after each round. For
//! the virtual machine of tests/guest; it runs on any file system.

mod locks;

use std::collections::BTreeSet;
use std::fs::{self, File, OpenOptions};
use std::io::{self, ErrorKind, Read, Seek, SeekFrom, Write};
use std::os::unix::fs::{FileExt, MetadataExt, PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

type Work = fn(&Path) -> io::Result<()>;

const ALL: [(&str, Work); 14] = [
    ("trees are made and removed", trees),
    ("modes and sizes are told as they were set", modes),
    ("what is written in pieces of any size reads back", pieces),
    ("a directory of many is listed whole", many),
    ("entries are removed while they are listed", removed_while_listed),
    ("names are moved and linked", names),
    ("links lead where they say", links),
    ("a file that is open outlives its name", unlinked),
    ("a file that is open keeps its content when another takes its name", replaced),
    ("a file is made by one", exclusive),
    ("holes are zeros", holes),
    ("offsets past 2 and 4 GiB work", far),
    ("appending and cutting meet in the middle", appended),
    ("threads work beside each other", threads),
];

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let failed = match arguments.iter().map(String::as_str).collect::<Vec<_>>().as_slice() {
        [directory] => all(Path::new(directory)),
        [directory, "locks"] => {
            let file = Path::new(directory).join("locked");
            locks::ALL.iter().map(|(name, work)| say(name, work(&file))).sum()
        }
        [file, "help"] => say("helping", locks::help(Path::new(file))),
        [directory, "churn", rounds] => {
            let rounds = rounds.parse().expect("a number of rounds");
            say("what is written survives whatever happens to the server", churn(Path::new(directory), rounds))
        }
        _ => {
            eprintln!("client DIRECTORY [locks | churn ROUNDS]");
            return ExitCode::from(2);
        }
    };
    if failed == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

fn all(directory: &Path) -> u32 {
    let one = |(at, (name, work)): (usize, &(&str, Work))| {
        let place = directory.join(format!("work-{at}"));
        say(name, fs::create_dir(&place).and_then(|()| work(&place)).and_then(|()| fs::remove_dir_all(&place)))
    };
    ALL.iter().enumerate().map(one).sum()
}

fn say(name: &str, result: io::Result<()>) -> u32 {
    match result {
        Ok(()) => {
            println!("ok {name}");
            0
        }
        Err(error) => {
            println!("not ok {name}");
            println!("    {error}");
            1
        }
    }
}

fn check(holds: bool, what: &str) -> io::Result<()> {
    if holds { Ok(()) } else { Err(io::Error::other(format!("not so: {what}"))) }
}

fn fails<T>(result: io::Result<T>, kind: ErrorKind) -> io::Result<()> {
    match result {
        Err(error) if error.kind() == kind => Ok(()),
        Err(error) => Err(error),
        Ok(_) => Err(io::Error::other(format!("it should have failed: {kind}"))),
    }
}

/// Numbers that look random, the same in every run.
struct Numbers(u64);

impl Numbers {
    fn below(&mut self, bound: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % bound
    }

    fn bytes(&mut self, len: usize) -> Vec<u8> {
        (0..len).map(|_| u8::try_from(self.below(256)).expect("below 256")).collect()
    }
}

fn trees(place: &Path) -> io::Result<()> {
    fn grow(place: &Path, levels: u32) -> io::Result<u32> {
        let mut made = 0;
        for at in 0..4 {
            fs::write(place.join(format!("file{at}")), format!("{levels}"))?;
            made += 1;
        }
        for at in (0..2).filter(|_| levels > 0) {
            let inner = place.join(format!("directory{at}"));
            fs::create_dir(&inner)?;
            made += 1 + grow(&inner, levels - 1)?;
        }
        Ok(made)
    }
    fn count(place: &Path) -> io::Result<u32> {
        let mut found = 0;
        for entry in fs::read_dir(place)? {
            let entry = entry?;
            found += 1;
            if entry.file_type()?.is_dir() {
                found += count(&entry.path())?;
            }
        }
        Ok(found)
    }
    let made = grow(place, 4)?;
    check(count(place)? == made, "all that was made is listed")?;
    fails(fs::remove_dir(place), ErrorKind::DirectoryNotEmpty)?;
    check(fs::metadata(place)?.nlink() == 4, "a directory has a link for each directory in it")
}

fn modes(place: &Path) -> io::Result<()> {
    let path = place.join("file");
    fs::write(&path, b"12345")?;
    for mode in [0o600, 0o644, 0o400, 0o777] {
        fs::set_permissions(&path, fs::Permissions::from_mode(mode))?;
        check(fs::metadata(&path)?.mode() & 0o7777 == mode, "the mode is what was set")?;
    }
    let file = OpenOptions::new().write(true).open(&path)?;
    let time = std::time::UNIX_EPOCH + std::time::Duration::new(1_000_000_000, 123_456_789);
    file.set_times(fs::FileTimes::new().set_modified(time).set_accessed(time))?;
    check(fs::metadata(&path)?.modified()? == time, "times are kept to the nanosecond")?;
    fails(fs::read(place.join("nothing")), ErrorKind::NotFound)?;
    fails(fs::read_dir(&path), ErrorKind::NotADirectory)?;
    let long = place.join("x".repeat(256));
    check(fs::write(long, b"").is_err(), "names have 255 bytes at most")?;
    fs::write(place.join("ü€𝄞\n\\ name"), b"odd")
}

fn pieces(place: &Path) -> io::Result<()> {
    let mut numbers = Numbers(7);
    let path = place.join("file");
    let mut file = OpenOptions::new().read(true).write(true).create(true).truncate(true).open(&path)?;
    let mut expected = vec![0; 3 << 20];
    for _ in 0..300 {
        let len = usize::try_from(1 + numbers.below(100_000)).expect("small");
        let at = usize::try_from(numbers.below((expected.len() - len) as u64)).expect("small");
        let bytes = numbers.bytes(len);
        file.write_all_at(&bytes, at as u64)?;
        expected[at..at + len].copy_from_slice(&bytes);
        if numbers.below(10) == 0 {
            file.sync_all()?;
        }
    }
    let size = usize::try_from(file.metadata()?.len()).expect("small");
    expected.truncate(size);
    file.seek(SeekFrom::Start(0))?;
    let mut found = Vec::new();
    file.read_to_end(&mut found)?;
    check(found == expected, "the open file reads back")?;
    drop(file);
    check(fs::read(&path)? == expected, "and once it is opened again")
}

fn listed(place: &Path) -> io::Result<Vec<String>> {
    fs::read_dir(place)?.map(|entry| Ok(entry?.file_name().to_string_lossy().into_owned())).collect()
}

fn many(place: &Path) -> io::Result<()> {
    let names: BTreeSet<String> = (0..1500).map(|at| format!("a-name-of-some-length-{at}")).collect();
    for name in &names {
        File::create(place.join(name))?;
    }
    let found = listed(place)?;
    check(found.len() == names.len() && found.into_iter().collect::<BTreeSet<_>>() == names, "each name is listed once")
}

fn removed_while_listed(place: &Path) -> io::Result<()> {
    for at in 0..800 {
        File::create(place.join(format!("file{at}")))?;
    }
    let mut removed = 0;
    for entry in fs::read_dir(place)? {
        fs::remove_file(entry?.path())?;
        removed += 1;
    }
    check(removed == 800 && listed(place)?.is_empty(), "none was passed over, none listed twice")
}

fn names(place: &Path) -> io::Result<()> {
    let path = |name: &str| place.join(name);
    fs::write(path("a"), b"a")?;
    for at in 0..50 {
        fs::rename(path("a"), path("b"))?;
        fs::hard_link(path("b"), path("a"))?;
        check(fs::metadata(path("a"))?.nlink() == 2, "two names")?;
        check(fs::metadata(path("a"))?.ino() == fs::metadata(path("b"))?.ino(), "of one file")?;
        fs::remove_file(path("b"))?;
        check(fs::metadata(path("a"))?.nlink() == 1, &format!("one name in round {at}"))?;
    }
    fs::create_dir(path("directory"))?;
    fails(fs::rename(path("directory"), path("directory/below")), ErrorKind::InvalidInput)?;
    fs::rename(path("a"), path("directory/a"))?;
    fs::write(path("b"), b"b")?;
    fs::rename(path("b"), path("directory/a"))?;
    check(fs::read(path("directory/a"))? == b"b", "the newer one is there")?;
    fs::create_dir(path("other"))?;
    fails(fs::rename(path("other"), path("directory")), ErrorKind::DirectoryNotEmpty)
}

fn links(place: &Path) -> io::Result<()> {
    for at in 0..30 {
        let target = "x/".repeat(at + 1) + "end";
        let link = place.join(format!("link{at}"));
        symlink(&target, &link)?;
        check(fs::read_link(&link)? == Path::new(&target), "the target is what was given")?;
        check(fs::symlink_metadata(&link)?.len() == target.len() as u64, "and its length is told")?;
    }
    fs::write(place.join("file"), b"found")?;
    symlink("file", place.join("to"))?;
    check(fs::read(place.join("to"))? == b"found", "a link is followed")
}

fn unlinked(place: &Path) -> io::Result<()> {
    let path = place.join("file");
    let mut file = OpenOptions::new().read(true).write(true).create(true).truncate(true).open(&path)?;
    file.write_all(b"before")?;
    fs::remove_file(&path)?;
    fails(fs::metadata(&path), ErrorKind::NotFound)?;
    file.write_all(b" and after")?;
    file.seek(SeekFrom::Start(0))?;
    let mut text = String::new();
    file.read_to_string(&mut text)?;
    check(text == "before and after", "it can be read and written")?;
    drop(file);
    // Linux's client gave it another name, and has that removed without waiting for it.
    let is_gone = (0..10_000).any(|_| {
        std::thread::yield_now();
        listed(place).is_ok_and(|left| left.is_empty())
    });
    check(is_gone, "nothing is left once it is closed")
}

fn replaced(place: &Path) -> io::Result<()> {
    let (old, new) = (place.join("old"), place.join("new"));
    fs::write(&old, b"old")?;
    fs::write(&new, b"new")?;
    let mut file = File::open(&old)?;
    fs::rename(&new, &old)?;
    let mut text = String::new();
    file.read_to_string(&mut text)?;
    check(text == "old", "the open file is the old one")?;
    check(fs::read(&old)? == b"new", "the name is the new one's")
}

fn exclusive(place: &Path) -> io::Result<()> {
    let make = || OpenOptions::new().write(true).create_new(true).open(place.join("lock"));
    let made: usize = std::thread::scope(|scope| {
        let makers: Vec<_> = (0..8).map(|_| scope.spawn(|| usize::from(make().is_ok()))).collect();
        makers.into_iter().map(|maker| maker.join().expect("a maker does not panic")).sum()
    });
    check(made == 1, "one of eight made it")?;
    fails(make(), ErrorKind::AlreadyExists)
}

fn holes(place: &Path) -> io::Result<()> {
    let path = place.join("file");
    let file = OpenOptions::new().read(true).write(true).create(true).truncate(true).open(&path)?;
    for at in [10_000_000, 0, 5_000_001] {
        file.write_all_at(b"data", at)?;
    }
    file.sync_all()?;
    let bytes = fs::read(&path)?;
    check(bytes.len() == 10_000_004, "it reaches to the last byte")?;
    let zeros = bytes.iter().filter(|byte| **byte == 0).count();
    check(zeros == bytes.len() - 12, "what was not written is zero")?;
    check(file.metadata()?.blocks() * 512 < 1 << 20, "and takes no room")
}

fn far(place: &Path) -> io::Result<()> {
    let path = place.join("file");
    let file = OpenOptions::new().read(true).write(true).create(true).truncate(true).open(&path)?;
    for edge in [1u64 << 31, 1 << 32, 1 << 40] {
        file.write_all_at(b"across the edge", edge - 7)?;
        let mut found = [0; 15];
        file.read_exact_at(&mut found, edge - 7)?;
        check(&found == b"across the edge", "it reads back")?;
        check(fs::metadata(&path)?.len() == edge + 8, "its size is told")?;
    }
    Ok(())
}

fn appended(place: &Path) -> io::Result<()> {
    let path = place.join("file");
    let mut file = OpenOptions::new().append(true).create(true).open(&path)?;
    let mut expected = Vec::new();
    let mut numbers = Numbers(3);
    for round in 0..200 {
        let bytes = numbers.bytes(1 + round);
        file.write_all(&bytes)?;
        expected.extend(bytes);
        if round % 17 == 0 {
            expected.truncate(expected.len() / 2);
            file.set_len(expected.len() as u64)?;
        }
    }
    drop(file);
    check(fs::read(&path)? == expected, "what is left is what was appended since")
}

fn threads(place: &Path) -> io::Result<()> {
    let work = |thread: u64| {
        let mut numbers = Numbers(thread + 1);
        let own = place.join(format!("thread{thread}"));
        fs::create_dir(&own)?;
        for at in 0..60 {
            let bytes = numbers.bytes(5000);
            let path = own.join(format!("file{at}"));
            fs::write(&path, &bytes)?;
            check(fs::read(&path)? == bytes, "each reads what it wrote")?;
            if at % 3 == 0 {
                fs::remove_file(&path)?;
            }
        }
        check(listed(&own)?.len() == 40, "and nobody took anything away")
    };
    std::thread::scope(|scope| {
        let workers: Vec<_> = (0..6).map(|thread| scope.spawn(move || work(thread))).collect();
        workers.into_iter().try_for_each(|worker| worker.join().expect("a worker does not panic"))
    })
}

/// Works on one file at random places, and on names, for some rounds.
fn churn(place: &Path, rounds: u32) -> io::Result<()> {
    let mut numbers = Numbers(11);
    let path = place.join("churned");
    let mut expected: Vec<u8> = Vec::new();
    for round in 0..rounds {
        let mut file = OpenOptions::new().read(true).write(true).create(true).truncate(false).open(&path)?;
        for _ in 0..40 {
            step(&mut file, &mut expected, &mut numbers)?;
        }
        drop(file);
        check(fs::read(&path)? == expected, &format!("round {round} reads back"))?;
        let name = |kind: &str| -> PathBuf { place.join(format!("{kind}{round}")) };
        fs::create_dir(name("directory"))?;
        fs::write(name("file"), b"x")?;
        fs::rename(name("file"), name("directory").join("moved"))?;
        fs::hard_link(name("directory").join("moved"), name("link"))?;
        fs::remove_file(name("directory").join("moved"))?;
        fs::remove_dir(name("directory"))?;
        fs::remove_file(name("link"))?;
        println!("round {round}");
    }
    check(fs::read(&path)? == expected, "all reads back in the end")
}

fn step(file: &mut File, expected: &mut Vec<u8>, numbers: &mut Numbers) -> io::Result<()> {
    let at = usize::try_from(numbers.below(1 << 20)).expect("small");
    let len = usize::try_from(1 + numbers.below(1 << 16)).expect("small");
    match numbers.below(8) {
        0 => {
            file.set_len(at as u64)?;
            expected.resize(at, 0);
        }
        1 => file.sync_all()?,
        2 => {
            let mut found = vec![0; len];
            let read = file.read_at(&mut found, at as u64)?;
            let end = (at + len).min(expected.len());
            let known = expected.get(at..end).unwrap_or_default();
            check(
                read <= known.len() && found[..read] == known[..read] && (read > 0 || known.is_empty()),
                "a read is right",
            )?;
        }
        _ => {
            let bytes = numbers.bytes(len);
            file.write_all_at(&bytes, at as u64)?;
            expected.resize(expected.len().max(at + len), 0);
            expected[at..at + len].copy_from_slice(&bytes);
        }
    }
    Ok(())
}
