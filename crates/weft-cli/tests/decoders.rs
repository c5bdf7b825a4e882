//! Decompressing in confined processes: the same bytes and the same errors as in this one, and
//! nothing else within reach of what hostile bytes make of a decoder.

#[path = "../../weft-transform/tests/given/mod.rs"]
mod given;

use std::fs;
use std::io::{self, BufRead, BufReader, Cursor, Write};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, Stdio};
use weft_transform::{Network, Reading, Run, RunError, Source, Sources, StageError};

const FORMATS: [&str; 2] = ["xz", "zstd"];

/// What `network` makes of `input` where decoders have processes of their own.
fn run(network: &str, input: &[u8], piece: usize) -> Result<Vec<u8>, RunError> {
    weft_transform::worker::set_program(env!("CARGO_BIN_EXE_weft").into());
    given::run_bytes(network, &[], input, piece)
}

/// Bytes as they are read from a file.
struct Given(Vec<u8>);

impl Sources for Given {
    fn input(&mut self) -> io::Result<Box<dyn Source>> {
        Ok(Box::new(Reading(Cursor::new(self.0.clone()))))
    }

    fn file(&mut self, _: usize) -> io::Result<Box<dyn Source>> {
        self.input()
    }
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

/// A field of what the kernel tells of process `pid`.
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
    for format in FORMATS {
        let back = format!("{format} -d");
        for input in [Vec::new(), b"x".to_vec(), bytes(200_000), vec![b'a'; 3_000_001]] {
            let packed = run(format, &input, 1 << 20).unwrap();
            for piece in [1 << 10, 300_000, 4 << 20] {
                assert!(run(&back, &packed, piece).unwrap() == input, "{format} of {}", input.len());
            }
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
    let input = bytes(1_000_000);
    let mut packed = run("zstd", &input, 1 << 20).unwrap();
    let middle = packed.len() / 2;
    packed.truncate(middle);
    let network = Network::parse("zstd -d").unwrap();
    let mut made = Vec::new();
    let ended = Run::start(&network, &mut Given(packed)).unwrap().find_map(|rope| match rope {
        Ok(rope) => {
            made.extend(rope.to_vec());
            None
        }
        Err(error) => Some(error.to_string()),
    });
    assert!(ended.unwrap().contains("cut off"));
    assert!(made.len() > 500_000 && input.starts_with(&made), "{}", made.len());
}

#[test]
fn a_decoder_reaches_nothing_and_works_once() {
    let packed = run("zstd", &bytes(1000), 1000).unwrap();
    run("zstd -d", &packed, 1000).unwrap();
    let nursery = nursery();
    // It does not dump memory and has no privileges, whoever started it; its files are none of ours.
    let is_root = rustix::process::geteuid().is_root();
    assert_eq!(status(&nursery, "NoNewPrivs").unwrap(), "1");
    assert_eq!((status(&nursery, "Seccomp").unwrap(), status(&nursery, "Seccomp_filters").unwrap()), both("2", "1"));
    if is_root {
        assert_eq!(status(&nursery, "Uid").unwrap().split_whitespace().next(), Some("65534"));
        assert_eq!(status(&nursery, "CapEff").unwrap(), "0000000000000000");
        let files = fs::read_dir(format!("/proc/{nursery}/fd")).unwrap();
        let files = files.filter_map(|file| file.unwrap().path().read_link().ok());
        let known = ["/dev/null", "socket:", "pipe:", "/memfd:weft-area", "anon_inode:[pidfd]", "pidfd:"];
        for file in files.map(|file| file.display().to_string()) {
            assert!(known.iter().any(|known| file.starts_with(known)), "{file}");
        }
        assert!(Path::new(&format!("/proc/{nursery}/cwd")).read_link().unwrap() == Path::new("/"));
    }
    // A stream that has begun: its decoder has lost what the nursery has, too.
    let network = Network::parse("zstd -d").unwrap();
    let large = run("zstd", &bytes(1_000_000), 1 << 20).unwrap();
    let mut stream = Run::start(&network, &mut Given(large)).unwrap();
    stream.next().unwrap().unwrap();
    let decoders = children(&nursery);
    let computes = |pid: &String| status(pid, "Seccomp_filters").as_deref() == Some("2");
    assert!(decoders.iter().any(computes), "{decoders:?}");
}

/// Has `command` run as on a kernel without Landlock, and its children, too.
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

fn both(one: &str, other: &str) -> (String, String) {
    (one.into(), other.into())
}
