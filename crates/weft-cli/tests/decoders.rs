//! Decompressing in confined processes: the same bytes and the same errors as in this one, and
//! nothing else within reach of what hostile bytes make of a decoder.

#[path = "../../weft-transform/tests/given/mod.rs"]
mod given;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, PidfdFlags, Signal, kill_process, pidfd_open, pidfd_send_signal};
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io::{self, BufRead, BufReader, Cursor, Write};
use std::os::fd::OwnedFd;
use std::os::unix::fs::MetadataExt;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::{PoisonError, RwLock, RwLockReadGuard};
use std::thread::yield_now;
use std::time::{Duration, Instant};
use weft_block::Slice;
use weft_transform::{Bounds, Network, Reading, Run, RunError, Source, Sources, StageError};

const FORMATS: [&str; 2] = ["xz", "zstd"];

/// Runs `network` on `input` where decoders have processes of their own.
fn run(network: &str, input: &[u8], piece: usize) -> Result<Vec<u8>, RunError> {
    weft_transform::worker::set_program(env!("CARGO_BIN_EXE_weft").into());
    given::run_bytes(network, &[], input, piece)
}

/// Held by tests that have decoders work; for writing by those that look at which of them do.
static WORKING: RwLock<()> = RwLock::new(());

fn working() -> RwLockReadGuard<'static, ()> {
    WORKING.read().unwrap_or_else(PoisonError::into_inner)
}

/// Bytes as they are read from a file, and whose link it is that reads them.
struct Given(Vec<u8>, Option<u32>);

/// A source that gives data as files do.
struct AtHand(Reading<Cursor<Vec<u8>>>);

impl Source for AtHand {
    fn next(&mut self) -> io::Result<Option<Slice>> {
        self.0.next()
    }

    fn is_at_hand(&self) -> bool {
        true
    }
}

impl Sources for Given {
    fn input(&mut self) -> io::Result<Box<dyn Source>> {
        Ok(Box::new(AtHand(Reading(Cursor::new(self.0.clone())))))
    }

    fn file(&mut self, _: usize) -> io::Result<Box<dyn Source>> {
        self.input()
    }

    fn owner(&self) -> Option<u32> {
        self.1
    }
}

/// Sources of a daemon, with bounds on all memory of networks: a quarter for one network, half for
/// an owner.
struct Bounded(Given, u64);

impl Sources for Bounded {
    fn input(&mut self) -> io::Result<Box<dyn Source>> {
        self.0.input()
    }

    fn file(&mut self, number: usize) -> io::Result<Box<dyn Source>> {
        self.0.file(number)
    }

    fn owner(&self) -> Option<u32> {
        self.0.owner()
    }

    fn bounds(&self) -> Option<Bounds> {
        Some(Bounds { memory_bytes: self.1, ..Bounds::default() })
    }
}

/// Begins to run `network` on `input`, for a link of `owner`.
fn begin(network: &str, input: &[u8], owner: u32) -> Result<Run, RunError> {
    weft_transform::worker::set_program(env!("CARGO_BIN_EXE_weft").into());
    Run::start(&Network::parse(network).unwrap(), &mut Given(input.to_vec(), Some(owner)))
}

/// All of it.
fn run_of(network: &str, input: &[u8], owner: u32) -> Result<Vec<u8>, RunError> {
    let mut made = Vec::new();
    for rope in begin(network, input, owner)? {
        made.extend(rope?.to_vec());
    }
    Ok(made)
}

fn bytes(count: u32) -> Vec<u8> {
    (0..count).flat_map(|number| (number.wrapping_mul(2_654_435_761) >> 13).to_le_bytes()).collect()
}

fn failure(network: &str, input: &[u8]) -> String {
    match run(network, input, 1000) {
        Err(RunError::Stage { source: StageError::Data(why), .. }) => why,
        other => panic!("{network}: {:?}", other.map(|made| made.len())),
    }
}

/// Returns a field of the kernel's status of process `pid`.
fn status(pid: &str, field: &str) -> Option<String> {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    status.lines().find_map(|line| Some(line.strip_prefix(field)?.strip_prefix(':')?.trim().to_owned()))
}

/// Processes that began at `pid`.
fn children(pid: &str) -> Vec<String> {
    let all = fs::read_dir("/proc").unwrap().filter_map(|entry| entry.ok()?.file_name().into_string().ok());
    all.filter(|child| child != pid && status(child, "PPid").as_deref() == Some(pid)).collect()
}

/// The process of this one's that decoders come from.
fn nursery() -> String {
    let is_it = |pid: &String| {
        let words = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
        words.windows(14).any(|part| part == b"decode-streams")
    };
    children(&std::process::id().to_string()).into_iter().find(is_it).expect("it is there")
}

#[test]
fn what_is_decompressed_elsewhere_is_the_same() {
    let _working = working();
    for format in FORMATS {
        let back = format!("{format} -d");
        for input in [Vec::new(), b"x".to_vec(), bytes(200_000), vec![b'a'; 3_000_001]] {
            let packed = run(format, &input, 1 << 20).unwrap();
            for piece in [1 << 10, 300_000, 4 << 20] {
                assert!(run(&back, &packed, piece).unwrap() == input, "{format} of {}", input.len());
            }
            assert!(run_of(&back, &packed, 1001).unwrap() == input, "{format} of {}", input.len());
            // Streams one after the other, and a pipeline in which another thread decompresses.
            let twice = [&packed[..], &packed].concat();
            assert!(run(&format!("{back} | identity"), &twice, 70_000).unwrap() == [&input[..], &input].concat());
        }
        assert_eq!(run(&format!("{format} | {back} | head -c 5"), &bytes(100_000), 9999).unwrap().len(), 5);
    }
    assert_eq!(weft_transform::worker::why_unconfined(), None);
}

#[test]
fn damaged_data_is_the_same_error() {
    let _working = working();
    let input = b"something to compress ".repeat(3000);
    for format in FORMATS {
        let back = format!("{format} -d");
        let packed = run(format, &input, 1000).unwrap();
        for cut in [1, 5, packed.len() / 2, packed.len() - 1] {
            assert_eq!(failure(&back, &packed[..cut]), "the compressed data is cut off");
        }
        let no_data = format!("this is no {format} data: ");
        assert!(failure(&back, b"this is not compressed").starts_with(&no_data));
        let followed = failure(&back, &[&packed[..], b"garbage"].concat());
        let is_said = if format == "xz" { followed.contains("cut off") } else { followed.starts_with(&no_data) };
        assert!(is_said, "{followed}");
    }
    // A window of 1 GiB (RFC 8878, 3.1.1.1.2).
    let window = [0x28, 0xb5, 0x2f, 0xfd, 0, 0xa0, 1, 0, 0];
    assert!(failure("zstd -d", &window).starts_with("this is no zstd data: "));
}

#[test]
fn what_came_before_the_damage_is_given() {
    let _working = working();
    let input = bytes(1_000_000);
    let mut packed = run("zstd", &input, 1 << 20).unwrap();
    let middle = packed.len() / 2;
    packed.truncate(middle);
    let network = Network::parse("zstd -d").unwrap();
    let mut made = Vec::new();
    let ended = Run::start(&network, &mut Given(packed, None)).unwrap().find_map(|rope| match rope {
        Ok(rope) => {
            made.extend(rope.to_vec());
            None
        }
        Err(error) => Some(error.to_string()),
    });
    assert!(ended.unwrap().contains("cut off"));
    assert!(made.len() > 500_000 && input.starts_with(&made), "{}", made.len());
}

/// Returns the number of waits of each process that began at `pid`: it shows which of them have
/// worked.
fn waits(pid: &str) -> BTreeMap<String, String> {
    let count = |pid: String| Some((pid.clone(), status(&pid, "voluntary_ctxt_switches")?));
    children(pid).into_iter().filter_map(count).collect()
}

/// Waits until `is_so`, which it soon is.
fn until(mut is_so: impl FnMut() -> bool) {
    let begun = Instant::now();
    while !is_so() {
        assert!(begun.elapsed() < Duration::from_secs(20), "it never is");
        yield_now();
    }
}

/// Returns the same once all of them sleep, each confined: a process that has not slept yet has not
/// worked.
fn waits_of_sleepers(pid: &str) -> BTreeMap<String, String> {
    let sleeps = |pid: &String| {
        status(pid, "State").is_none_or(|state| {
            state.starts_with(['Z', 'X'])
                || state.starts_with('S') && status(pid, "Seccomp_filters").is_none_or(|filters| filters == "2")
        })
    };
    let mut waiting = BTreeMap::new();
    until(|| {
        let before = std::mem::replace(&mut waiting, waits(pid));
        before == waiting && children(pid).iter().all(sleeps)
    });
    waiting
}

/// The decoders that have worked for `work`, once all of them wait again and as many as ever do
/// have no owner.
fn worked(nursery: &str, work: impl FnOnce()) -> BTreeSet<String> {
    let before = waits_of_sleepers(nursery);
    work();
    let after = waits_of_sleepers(nursery)
        .into_iter()
        .filter(|(pid, waits)| before.get(pid).is_some_and(|before| before != waits));
    after.map(|(pid, _)| pid).collect()
}

fn pidfd(pid: &str) -> OwnedFd {
    pidfd_open(Pid::from_raw(pid.parse().unwrap()).unwrap(), PidfdFlags::empty()).unwrap()
}

/// Waits for the process to end.
fn ends(process: &OwnedFd) -> bool {
    let time = Timespec { tv_sec: 20, tv_nsec: 0 };
    poll(&mut [PollFd::new(process, PollFlags::IN)], Some(&time)) == Ok(1)
}

#[test]
fn a_decoder_reaches_nothing() {
    let _working = working();
    let packed = run("zstd", &bytes(1000), 1000).unwrap();
    run("zstd -d", &packed, 1000).unwrap();
    let nursery = nursery();
    // A stream that has begun, and decoders that wait for others.
    let large = run("zstd", &bytes(1_000_000), 1 << 20).unwrap();
    let mut stream = begin("zstd -d", &large, 2001).unwrap();
    stream.next().unwrap().unwrap();
    let decoders = children(&nursery);
    assert!(!decoders.is_empty());
    let is_root = rustix::process::geteuid().is_root();
    let has = |pid: &String| {
        // Others may end meanwhile, as decoders of other tests do.
        let [privileges, mode, filters] = ["NoNewPrivs", "Seccomp", "Seccomp_filters"].map(|field| status(pid, field));
        let told = (privileges?, mode?, filters?);
        assert_eq!((&*told.0, &*told.1), ("1", "2"), "{pid}");
        // It does not dump memory: its files in /proc are the super-user's, whatever user runs it.
        assert_eq!(fs::metadata(format!("/proc/{pid}/mem")).ok()?.uid(), 0, "{pid}");
        if is_root {
            assert_eq!(status(pid, "Uid")?.split_whitespace().next(), Some("65534"));
            assert_eq!(status(pid, "CapEff")?, "0000000000000000");
            assert_eq!(Path::new(&format!("/proc/{pid}/cwd")).read_link().ok()?, Path::new("/"));
        }
        Some(told.2)
    };
    let files = |pid: &String| -> Vec<String> {
        let files = fs::read_dir(format!("/proc/{pid}/fd")).into_iter().flatten();
        let files = files.filter_map(|file| file.ok()?.path().read_link().ok());
        files.map(|file| file.display().to_string()).collect()
    };
    assert_eq!(has(&nursery).unwrap(), "1");
    for decoder in &decoders {
        // The nursery's, and its own, which it has before it sees a byte.
        until(|| has(decoder).is_none_or(|filters| filters == "2"));
        // It keeps memory for its memory; no file is open.
        let files = files(decoder);
        assert!(files.iter().all(|file| file == "/dev/null"), "{files:?}");
        let maps = fs::read_to_string(format!("/proc/{decoder}/maps")).unwrap_or_default();
        let shared = maps.lines().filter(|map| map.split_whitespace().nth(1).is_some_and(|may| may.ends_with('s')));
        for map in shared {
            assert!(map.contains("/memfd:weft-area"), "{map}");
        }
    }
    if is_root {
        for file in files(&nursery) {
            let known = ["/dev/null", "socket:", "/memfd:weft-area", "anon_inode:[pidfd]", "pidfd:"];
            assert!(known.iter().any(|known| file.starts_with(known)), "{file}");
        }
    }
}

#[test]
fn a_decoder_works_on_for_its_owner_and_for_nobody_else() {
    let _alone = WORKING.write().unwrap_or_else(PoisonError::into_inner);
    let input = bytes(1000);
    let packed: Vec<Vec<u8>> = FORMATS.map(|format| run(format, &input, 1000).unwrap()).to_vec();
    let once = |owner, format: usize| {
        let made = run_of(&format!("{} -d", FORMATS[format]), &packed[format], owner);
        assert!(made.unwrap() == input);
    };
    // Both get a decoder, and those that others get are there.
    once(3001, 0);
    once(3002, 0);
    let nursery = nursery();
    until(|| children(&nursery).len() >= 5);
    let first = worked(&nursery, || once(3001, 0));
    assert_eq!(first.len(), 1, "it had one");
    assert_eq!(worked(&nursery, || once(3001, 1)), first, "of either format");
    let other = worked(&nursery, || once(3002, 1));
    assert!(other.len() == 1 && other != first, "{other:?}");
    assert_eq!(worked(&nursery, || once(3001, 0)), first);
    // A stream that nobody reads to its end.
    let large = run("zstd", &bytes(2_000_000), 1 << 20).unwrap();
    let part = worked(&nursery, || {
        begin("zstd -d", &large, 3001).unwrap().next().unwrap().unwrap();
    });
    assert_eq!((part, worked(&nursery, || once(3001, 0))), (first.clone(), first.clone()));
    // A stream that fails, and one whose decoder is killed.
    let [first, other] = [first, other].map(|one| pidfd(one.first().unwrap()));
    let other_pid = worked(&nursery, || once(3002, 1)).first().unwrap().parse().unwrap();
    assert!(run_of("xz -d", b"this is not compressed", 3001).is_err());
    assert!(ends(&first));
    once(3001, 0);
    kill_process(Pid::from_raw(other_pid).unwrap(), Signal::KILL).unwrap();
    assert!(ends(&other));
    once(3002, 0);
}

#[test]
fn nobody_has_all_decoders() {
    let _working = working();
    let packed = run("zstd", &bytes(1000), 1000).unwrap();
    let mut streams = Vec::new();
    let refused = loop {
        match begin("zstd -d", &packed, 4001) {
            Ok(stream) => streams.push(stream),
            Err(error) => break error,
        }
    };
    assert!(matches!(refused, RunError::Stage { source: StageError::Busy(_), .. }), "{refused}");
    assert_eq!(streams.len(), 64);
    assert!(run_of("zstd -d", &packed, 4002).is_ok());
    drop(streams);
    assert!(run_of("zstd -d", &packed, 4001).is_ok());
}

/// Runs `unpack` on `input` for a link of `owner`, where networks have `mib` in all.
fn run_within(unpack: &str, input: &[u8], owner: u32, mib: u64) -> Result<Vec<u8>, RunError> {
    weft_transform::worker::set_program(env!("CARGO_BIN_EXE_weft").into());
    let mut given = Bounded(Given(input.to_vec(), Some(owner)), mib << 20);
    let mut made = Vec::new();
    for rope in Run::start(&Network::parse(unpack).unwrap(), &mut given)? {
        made.extend(rope?.to_vec());
    }
    Ok(made)
}

/// Bytes of address space that decoders may have, of each.
fn address_spaces(nursery: &str) -> BTreeMap<String, u64> {
    let bytes = |pid: String| {
        let limits = fs::read_to_string(format!("/proc/{pid}/limits")).ok()?;
        let line = limits.lines().find_map(|line| line.strip_prefix("Max address space"))?;
        Some((pid, line.split_whitespace().next()?.parse().ok()?))
    };
    children(nursery).into_iter().filter_map(bytes).collect()
}

#[test]
fn what_a_decoder_takes_counts_and_it_gets_no_more() {
    let _alone = WORKING.write().unwrap_or_else(PoisonError::into_inner);
    let large_only = [("xz -n 0", "xz -n 6", "xz -d", 5001), ("zstd -n 1", "zstd -n 19", "zstd -d", 5002)];
    for (small, large, unpack, owner) in large_only {
        let [small, large] = [small, large].map(|network| run(network, b"text", 1000).unwrap());
        let both = [&small[..], &large].concat();
        assert_eq!(run_within(unpack, &small, owner, 40).unwrap(), b"text", "it is small");
        assert_eq!(run_within(unpack, &both, owner, 1 << 10).unwrap(), b"texttext", "there is room");
        for input in [&large, &both] {
            let refused = run_within(unpack, input, owner, 40).unwrap_err();
            assert!(matches!(refused, RunError::Stage { source: StageError::Memory, .. }), "{refused}");
            assert!(refused.lacks_room());
        }
        // One that waits with more memory than its owner may have is given up.
        assert_eq!(run_within(unpack, &large, owner, 1 << 10).unwrap(), b"text");
        assert_eq!(run_within(unpack, &small, owner, 32).unwrap(), b"text");
    }
    // All begin with the same. Of a dictionary of 8 MiB and what is beside it, whole 4 MiB are
    // given.
    let large = run("xz -n 6", &bytes(1000), 1000).unwrap();
    let mut stream = begin("xz -d", &large, 5003).unwrap();
    stream.next().unwrap().unwrap();
    let nursery = nursery();
    // A decoder that is just being made has no bound of its own yet.
    until(|| {
        let spaces: BTreeSet<u64> = address_spaces(&nursery).into_values().collect();
        spaces.last().is_some_and(|most| most - spaces.first().unwrap() == 11 << 20)
    });
}

#[test]
fn a_decoder_that_is_killed_is_an_error_and_the_next_stream_has_another() {
    let _alone = WORKING.write().unwrap_or_else(PoisonError::into_inner);
    let input = bytes(1_000_000);
    let packed = run("zstd", &input, 1 << 20).unwrap();
    let mut stream = begin("zstd -d", &packed, 6001).unwrap();
    let mut made = stream.next().unwrap().unwrap().to_vec();
    let decoders: Vec<OwnedFd> = children(&nursery()).iter().map(|pid| pidfd(pid)).collect();
    for decoder in &decoders {
        // It may have ended.
        let _ = pidfd_send_signal(decoder, Signal::KILL);
        assert!(ends(decoder));
    }
    let error = stream.find_map(|rope| rope.map(|rope| made.extend(rope.to_vec())).err()).expect("it is gone");
    assert!(matches!(error, RunError::Stage { source: StageError::Lost(_), .. }), "{error}");
    assert!(made.len() < input.len() && input.starts_with(&made), "{}", made.len());
    assert!(run_of("zstd -d", &packed, 6001).unwrap() == input);
}

#[test]
fn decoders_end_with_the_process_that_began_them() {
    let _working = working();
    // Bytes of two bits: several blocks of them fit into a pipe.
    let input: Vec<u8> = bytes(250_000).iter().map(|byte| byte & 3).collect();
    let packed = run("zstd", &input, 1 << 20).unwrap();
    let mut weft = Command::new(env!("CARGO_BIN_EXE_weft"));
    let mut weft =
        weft.args(["run", "--network", "zstd -d"]).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    let mut stdin = weft.stdin.take().unwrap();
    assert!(packed.len() < 64 << 10);
    stdin.write_all(&packed[..packed.len() - 10]).unwrap();
    // It gives what can be decoded of that although nothing else comes.
    io::Read::read_exact(weft.stdout.as_mut().unwrap(), &mut [0; 1]).unwrap();
    let nursery = children(&weft.id().to_string());
    assert_eq!(nursery.len(), 1);
    let decoders = children(&nursery[0]);
    assert!(!decoders.is_empty());
    let all: Vec<OwnedFd> = nursery.iter().chain(&decoders).map(|pid| pidfd(pid)).collect();
    weft.kill().unwrap();
    assert!(all.iter().all(ends));
    weft.wait().unwrap();
}

/// Makes `command` and its children run as on a kernel without Landlock.
fn without_landlock(command: &mut Command) {
    let instruction = |code: u32, jf, k| libc::sock_filter { code: code as u16, jt: 0, jf, k };
    let load = libc::BPF_LD | libc::BPF_W | libc::BPF_ABS;
    let call = libc::SYS_landlock_create_ruleset as u32;
    let refused = libc::SECCOMP_RET_ERRNO | libc::ENOSYS as u32;
    let mut filter = [
        instruction(load, 0, 0),
        instruction(libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K, 1, call),
        instruction(libc::BPF_RET | libc::BPF_K, 0, refused),
        instruction(libc::BPF_RET | libc::BPF_K, 0, libc::SECCOMP_RET_ALLOW),
    ];
    let apply = move || {
        let program = libc::sock_fprog { len: 4, filter: filter.as_mut_ptr() };
        // SAFETY: both are system calls; the kernel reads `program` during the second.
        let done = unsafe {
            libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0
                && libc::syscall(libc::SYS_seccomp, libc::SECCOMP_SET_MODE_FILTER, 0, &raw const program) == 0
        };
        if done { Ok(()) } else { Err(io::Error::last_os_error()) }
    };
    // SAFETY: it makes system calls and nothing else.
    unsafe { command.pre_exec(apply) };
}

#[test]
fn where_the_kernel_cannot_confine_this_process_decompresses_and_mounts_say_so() {
    let _working = working();
    let input = bytes(50_000);
    for format in FORMATS {
        let packed = run(format, &input, 1 << 20).unwrap();
        let mut weft = Command::new(env!("CARGO_BIN_EXE_weft"));
        weft.args(["run", "--network", &format!("{format} -d")]).stdin(Stdio::piped()).stdout(Stdio::piped());
        without_landlock(&mut weft);
        let mut weft = weft.spawn().unwrap();
        let mut stdin = weft.stdin.take().unwrap();
        let writing = std::thread::spawn(move || stdin.write_all(&packed));
        let made = weft.wait_with_output().unwrap();
        writing.join().unwrap().unwrap();
        assert!(made.status.success() && made.stdout == input, "{format}");
    }
    let directory = tempfile::tempdir().unwrap();
    let volume = directory.path().join("volume");
    let made = Command::new(env!("CARGO_BIN_EXE_weft")).arg("init").arg(&volume).output().unwrap();
    assert!(made.status.success(), "{made:?}");
    let mut weft = Command::new(env!("CARGO_BIN_EXE_weft"));
    weft.arg("serve").arg(&volume).args(["--nfs", "127.0.0.1:0"]).stdout(Stdio::null()).stderr(Stdio::piped());
    without_landlock(&mut weft);
    let mut weft = weft.spawn().unwrap();
    let said = BufReader::new(weft.stderr.take().unwrap()).lines().map_while(Result::ok);
    let is_said = said.take(20).any(|line| line.contains("decompressed in this process"));
    weft.kill().and_then(|()| weft.wait()).unwrap();
    assert!(is_said);
}
