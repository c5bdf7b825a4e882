//! Programs that read in place, joined by reference, against the machine's own and against
//! themselves joined by pipes: by files of a volume there, by any others elsewhere. Everything is
//! in memory before.

use crate::place::Place;
use crate::scale::Scale;
use crate::timing::time;
use crate::weft;
use anyhow::{Context, Result, ensure};
use std::fmt::Write as _;
use std::io::{BufRead, BufReader, Read, Write};
use std::path::Path;
use std::process::{Child, ChildStdin, Command, Stdio};
use weft_block::Rope;

/// Bytes of the small file, which is the paper's.
const SMALL_BYTES: usize = 1_750_000;

/// Text to permute: ten words of eight bytes, which makes 10! · 80 bytes.
const WORDS: &str = "abcdefghijklmnopqrstuvwxyzabcdefghijklmnopqrstuvwxyzabcdefghijklmnopqrstuvwxyz01";
const PERMUTED_BYTES: usize = 290_304_000;

/// A string that few lines contain.
const RARE: &str = "needle";

/// Processes that have a file in memory at once.
const READERS: usize = 10;

/// Names and units of what [`run`] gives: each by what is compared elsewhere.
pub(super) const PARTS: &[(&str, &str)] = &[
    ("wc-small", "MB/s"),
    ("wc-large", "MB/s"),
    ("wc-large-kept", "MB/s"),
    ("wc-large-same-counter", "MB/s"),
    ("permute-wc", "MB/s"),
    ("permute-wc-gnu", "MB/s"),
    ("cat-grep", "MB/s"),
    ("cat-grep-gnu", "MB/s"),
    ("ten-readers", "file/memory"),
];

/// The rates, in that order. Elsewhere these are of wc(1) thrice, of weft's wc, of pipelines of
/// weft's programs and with wc(1), with and without grep(1), and of programs that read a file by
/// read(2).
pub(super) fn run(place: &Place, scale: &Scale) -> Result<Vec<f64>> {
    let (small, large) = (place.work.join("text-small"), place.work.join("text-large"));
    let bytes = scale.size << 20;
    keep(&small, SMALL_BYTES)?;
    keep(&large, bytes)?;
    let weft = weft()?.display().to_string();
    let [small, large] = [small, large].map(|path| path.display().to_string());
    let ours = place.is_volume();
    let pick = |here: String, elsewhere: String| if ours { here } else { elsewhere };
    let recount = |file: &str| pick(format!("'{weft}' wc --recount '{file}'"), format!("wc '{file}'"));
    let permute = format!("'{weft}' pipe 'permute {WORDS} | wc'");
    let find = format!("'{weft}' pipe \"cat '{large}' | grep {RARE}\"");
    let commands = [
        (recount(&small), SMALL_BYTES),
        (recount(&large), bytes),
        (pick(format!("'{weft}' wc '{large}'"), format!("wc '{large}'")), bytes),
        (pick(format!("'{weft}' wc --recount '{large}'"), format!("'{weft}' wc '{large}'")), bytes),
        (pick(permute.clone(), format!("'{weft}' permute {WORDS} | '{weft}' wc")), PERMUTED_BYTES),
        (pick(permute, format!("'{weft}' permute {WORDS} | wc")), PERMUTED_BYTES),
        (pick(find.clone(), format!("'{weft}' cat '{large}' | '{weft}' grep {RARE}")), bytes),
        (pick(find, format!("cat '{large}' | grep {RARE}")), bytes),
    ];
    let mut rates = Vec::new();
    for (command, bytes) in commands {
        let taken = time(|| shell(&command).map(|_| ()))?;
        rates.push(bytes as f64 / 1e6 / taken.as_secs_f64());
    }
    rates.push(bytes as f64 / memory_of_readers(place, Path::new(&large))?);
    Ok(rates)
}

/// Returns the output of a shell command.
fn shell(command: &str) -> Result<Vec<u8>> {
    let mut shell = Command::new("sh");
    let output = shell.args(["-c", command]).env("LC_ALL", "C").stderr(Stdio::inherit()).output()?;
    ensure!(output.status.success(), "'{command}' failed");
    Ok(output.stdout)
}

/// Writes a text, unless it is there, and sees that all who are measured find the same in it.
fn keep(file: &Path, len: usize) -> Result<()> {
    if file.metadata().is_ok_and(|metadata| metadata.len() == len as u64) {
        return Ok(());
    }
    let mut text = String::with_capacity(len + 100);
    let mut number = 1u64;
    while text.len() < len {
        // Numerical Recipes' generator: any text will do, as long as it is the same everywhere.
        number = number.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        let [words, word] = [number >> 60, number >> 33];
        if number.is_multiple_of(50_021) {
            text.push_str(RARE);
        }
        for at in 0..=words {
            write!(text, "{:x} ", word.rotate_left(u32::try_from(at * 7)?) & 0xfff_ffff)?;
        }
        text.push('\n');
    }
    text.truncate(len);
    std::fs::write(file, &text)?;
    std::fs::File::open(file)?.sync_all()?;
    let (weft, file) = (weft()?.display().to_string(), file.display());
    let same = |ours: &str, theirs: &str| -> Result<()> {
        let (ours, theirs) = (shell(ours)?, shell(theirs)?);
        ensure!(ours == theirs, "weft finds something else than the machine's own programs");
        Ok(())
    };
    same(&format!("'{weft}' wc --recount '{file}'"), &format!("wc '{file}'"))?;
    same(&format!("'{weft}' wc '{file}'"), &format!("wc '{file}'"))?;
    same(&format!("'{weft}' pipe \"cat '{file}' | grep {RARE}\""), &format!("grep {RARE} '{file}'"))
}

/// Bytes of memory that ten processes take together which have all of `file` in memory, and the
/// daemon that lends it to them. Each page counts once, whoever has it (proc_pid_smaps(5)).
fn memory_of_readers(place: &Place, file: &Path) -> Result<f64> {
    let mut readers = Vec::new();
    for _ in 0..READERS {
        readers.push(Reader::start(file)?);
    }
    let mut bytes = 0.0;
    for reader in &readers {
        bytes += proportional(&reader.process.id().to_string(), place)?;
    }
    if let Some(daemon) = place.daemon_pid().filter(|_| place.is_volume()) {
        bytes += proportional(&daemon, place)?;
    }
    Ok(bytes)
}

/// Bytes of process `pid`'s proportional share of shared memory, and of the rest of its memory
/// elsewhere.
fn proportional(pid: &str, place: &Place) -> Result<f64> {
    let told = std::fs::read_to_string(format!("/proc/{pid}/smaps_rollup")).context("cannot see a process's memory")?;
    // Of the daemon, and of whoever borrows, what is shared is what counts; its caches of other
    // things are no copies of the file.
    let field = if place.is_volume() { "Pss_Shmem:" } else { "Pss:" };
    let line = told.lines().find(|line| line.starts_with(field)).context("the kernel tells no shares")?;
    let kilobytes: f64 = line.split_whitespace().nth(1).context("a number")?.parse()?;
    Ok(kilobytes * 1024.0)
}

/// A process that has a file in memory until its input ends.
struct Reader {
    process: Child,
    orders: Option<ChildStdin>,
}

impl Reader {
    fn start(file: &Path) -> Result<Reader> {
        let mut command = Command::new(std::env::current_exe()?);
        command.arg("--hold").arg(file).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut process = command.spawn().context("cannot run this program again")?;
        let (orders, said) = (process.stdin.take(), process.stdout.take().context("it has a pipe")?);
        let mut line = String::new();
        BufReader::new(said).read_line(&mut line)?;
        let reader = Reader { process, orders };
        ensure!(line == HELD, "a process cannot read {}", file.display());
        Ok(reader)
    }
}

impl Drop for Reader {
    fn drop(&mut self) {
        drop(self.orders.take());
        let _ = self.process.wait();
    }
}

const HELD: &str = "held\n";

/// Has all of `file` in memory, by reference if it is lent, until the standard input ends, and sees
/// that it stays as it was.
pub(crate) fn hold(file: &Path) -> Result<()> {
    let opened = weft_client::File::open(file)?;
    let (mut all, mut at) = (Vec::new(), 0u64);
    loop {
        let rope = opened.read(at, 8 << 20)?;
        if rope.is_empty() {
            break;
        }
        at += rope.len() as u64;
        all.push(rope);
    }
    let sum = |all: &[Rope]| {
        let slices = all.iter().flat_map(|rope| rope.slices());
        slices.flat_map(|slice| slice.iter()).fold(0u64, |sum, byte| sum.rotate_left(1) ^ u64::from(*byte))
    };
    let before = sum(&all);
    std::io::stdout().write_all(HELD.as_bytes())?;
    std::io::stdin().read_to_end(&mut Vec::new())?;
    ensure!(sum(&all) == before, "what {} held has changed in memory", file.display());
    Ok(())
}
