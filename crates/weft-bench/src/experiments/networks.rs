//! Networks of stages against pipelines of processes: a large file through one to sixteen
//! increments, by links of a volume there, by compiled programs and pipes anywhere else. Links are
//! read past what the kernel keeps of files, if it tells the volume of opens
//! (`weft mount --opens`), else with none of it there; all of the file is in its cache elsewhere.

use crate::place::Place;
use crate::scale::Scale;
use crate::timing::time;
use crate::weft;
use anyhow::{Context, Result, ensure};
use rustix::fs::{Advice, fadvise};
use std::fs::File;
use std::io::{Read, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

const CHUNK: usize = 1 << 20;

/// Stages, or processes.
const COUNTS: [usize; 5] = [1, 2, 4, 8, 16];

/// Bytes of the pipes: those that the kernel gives, and the most that it gives to everybody who
/// asks.
const PIPES: [usize; 2] = [64 << 10, 1 << 20];

macro_rules! parts {
    ($($count:literal),*) => {
        &[$(
            (concat!("increment-", $count, "-64k-unfused"), "MB/s"),
            (concat!("increment-", $count, "-64k-fused"), "MB/s"),
            (concat!("increment-", $count, "-1m-unfused"), "MB/s"),
            (concat!("increment-", $count, "-1m-fused"), "MB/s"),
        )*]
    };
}

/// Names and units of what [`run`] gives: each by the pipes that a pipeline has, and by whether the
/// stages of a network are made one.
pub(super) const PARTS: &[(&str, &str)] = parts!("01", "02", "04", "08", "16");

/// The rates, in that order. A pipeline knows no stages, and a network no pipes.
pub(super) fn run(place: &Place, scale: &Scale) -> Result<Vec<f64>> {
    let file = place.work.join("network");
    keep(&file, scale)?;
    let rate = |taken: Duration| (scale.size * CHUNK) as f64 / 1e6 / taken.as_secs_f64();
    let mut rates = Vec::new();
    for count in COUNTS {
        if place.is_volume() {
            let (unfused, fused) = (read_link(&file, count, false)?, read_link(&file, count, true)?);
            rates.extend([unfused, fused, unfused, fused].map(rate));
        } else {
            let increment = compiled(place)?;
            for pipe in PIPES {
                rates.extend([rate(pipeline(&file, &increment, count, pipe)?); 2]);
            }
        }
    }
    Ok(rates)
}

/// Writes the file, unless it is there, of bytes that tell nothing; and reads it once.
fn keep(file: &Path, scale: &Scale) -> Result<()> {
    let len = (scale.size * CHUNK) as u64;
    if file.metadata().is_ok_and(|metadata| metadata.len() == len) {
        return Ok(());
    }
    let (mut random, mut to, mut chunk) = (File::open("/dev/urandom")?, File::create(file)?, vec![0; CHUNK]);
    for _ in 0..scale.size {
        random.read_exact(&mut chunk)?;
        to.write_all(&chunk)?;
    }
    to.sync_all()?;
    cat(file)?.wait().map(|_| ()).context("cannot read the file")
}

/// Reads a file to its end, for nobody.
fn cat(file: &Path) -> Result<Child> {
    Command::new("cat").arg(file).stdout(Stdio::null()).spawn().context("cannot run cat")
}

/// Times reading a link of `count` increments of `file`, which is made before the clock starts.
fn read_link(file: &Path, count: usize, is_fused: bool) -> Result<Duration> {
    let link = file.with_file_name(format!("network-{count}-{}", if is_fused { "fused" } else { "unfused" }));
    if !link.try_exists()? {
        let weft = weft()?;
        let network = vec!["increment"; count].join(" | ");
        let mut make = Command::new(weft);
        make.args(["link", "--memo", "off", "--direct", "--network", &network])
            .args((!is_fused).then_some("--no-fuse"));
        ensure!(make.arg(file).arg(&link).status()?.success(), "cannot make {}", link.display());
    }
    let (mut before, mut after) = ([0; 4096], [0; 4096]);
    File::open(file)?.read_exact(&mut before)?;
    let opened = File::open(&link)?;
    (&opened).read_exact(&mut after)?;
    let by = u8::try_from(count)?;
    ensure!(before.map(|byte| byte.wrapping_add(by)) == after, "{} gives wrong bytes", link.display());
    fadvise(&opened, 0, None, Advice::DontNeed)?;
    drop(opened);
    time(|| {
        ensure!(cat(&link)?.wait()?.success(), "cannot read {}", link.display());
        Ok(())
    })
}

/// The program that increments, made by the machine's compiler.
fn compiled(place: &Place) -> Result<PathBuf> {
    let program = place.work.join("increment");
    if !program.try_exists()? {
        let source = place.work.join("increment.c");
        std::fs::write(&source, include_str!("increment.c"))?;
        let made = Command::new("cc").args(["-O3", "-o"]).args([&program, &source]).status();
        ensure!(made.context("pipelines need a compiler for C, cc")?.success(), "cc does not make the program");
    }
    Ok(program)
}

/// Times `cat FILE | increment | …` with `count` increments and pipes of `pipe` bytes.
fn pipeline(file: &Path, increment: &Path, count: usize, pipe: usize) -> Result<Duration> {
    time(|| {
        let mut running = vec![Command::new("cat").arg(file).stdout(Stdio::piped()).spawn()?];
        for number in 1..=count {
            let before = running.last_mut().and_then(|before| before.stdout.take()).context("it has a pipe")?;
            let after = if number == count { Stdio::null() } else { Stdio::piped() };
            let mut next = Command::new(increment);
            next.args((pipe != PIPES[0]).then(|| pipe.to_string())).stdin(before).stdout(after);
            running.push(next.spawn()?);
        }
        for process in &mut running {
            ensure!(process.wait()?.success(), "a process of the pipeline failed");
        }
        Ok(())
    })
}
