//! `weft defragment`, and the fragments that `weft info FILE` tells.

use super::restore::place::{Place, Way};
use super::transfer::{path_as_json, steps};
use crate::arguments::Defragment;
use crate::daemons::Running;
use crate::opened::{Opened, Settings};
use crate::shown;
use crate::size::show;
use anyhow::{Context, Result, bail};
use serde_json::{Value, json};
use std::ffi::OsStr;
use std::io::ErrorKind::{NotADirectory, NotFound, StaleNetworkFileHandle};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use weft_control::{defragment_at, defragment_target, file_at, fragments_at, fragments_target, fragments_value};
use weft_store::{Cookie, OpenOptions, Progress};
use weft_vfs::{Ino, Kind, Vfs};

/// Entries of a directory that are asked for together.
const PAGE: usize = 1000;

/// A file, as its blocks are stored.
struct Stored {
    stored: u64,
    blocks: u64,
    runs: u64,
    bytes: u64,
}

impl Stored {
    /// None if `value` is of no file that is stored.
    fn read(value: &Value) -> Result<Option<Stored>> {
        if value.is_null() {
            return Ok(None);
        }
        let number = |name: &str| value[name].as_u64().context("the daemon's answer cannot be read");
        let (stored, blocks) = (number("stored_blocks")?, number("blocks")?);
        Ok(Some(Stored { stored, blocks, runs: number("runs")?, bytes: number("bytes")? }))
    }
}

/// The volume of a command, by the daemon that uses it or opened here.
enum Volume {
    Served(Box<Running>, Option<PathBuf>),
    Opened(Opened),
}

impl Volume {
    fn of(way: Way) -> Result<Volume> {
        match way {
            Way::Daemon(daemon, root) => {
                if let Some(root) = &root {
                    super::asking::pass_on(root).context("changes that the kernel has cached cannot be written")?;
                }
                Ok(Volume::Served(daemon, root))
            }
            Way::Alone(volume) => {
                Ok(Volume::Opened(Opened::open(&volume, Settings::default(), OpenOptions::default())?))
            }
        }
    }

    fn close(self) -> Result<()> {
        match self {
            Volume::Served(..) => Ok(()),
            Volume::Opened(opened) => opened.close(),
        }
    }

    /// None if there is no file at `path`, or none that is stored, as a transformation link is.
    fn stored(&self, path: &[u8]) -> Result<Option<Stored>> {
        match self {
            Volume::Served(daemon, _) => Stored::read(&daemon.answered(&fragments_target(path))?),
            Volume::Opened(Opened { vfs, .. }) => Stored::read(&fragments_value(fragments_at(vfs, path)?.as_ref())),
        }
    }

    /// Merges blocks of the file at `path` from byte `from` on. Returns how many, and where to go
    /// on.
    fn step(&self, path: &[u8], from: u64) -> Result<(u64, Option<u64>)> {
        match self {
            Volume::Served(daemon, _) => {
                let answer = daemon.answered(&defragment_target(path, from))?;
                let merged = answer["merged"].as_u64().context("the daemon's answer cannot be read")?;
                Ok((merged, answer["next"].as_u64()))
            }
            Volume::Opened(Opened { vfs, .. }) => {
                let done = defragment_at(vfs, path, from)?;
                Ok((done.merged, done.next))
            }
        }
    }

    /// Has `visit` take the path of each regular file at or below `path`. What goes meanwhile is
    /// left out.
    fn files(&self, path: &[u8], visit: &mut dyn FnMut(&[u8]) -> Result<()>) -> Result<()> {
        match self {
            Volume::Served(_, None) => match self.stored(path)? {
                Some(_) => visit(path),
                None => bail!("there is no file {} in the volume", shown::bytes(path)),
            },
            Volume::Served(_, Some(root)) => files_of_mount(root, path, visit),
            Volume::Opened(Opened { vfs, .. }) => files_of_volume(vfs, path, visit),
        }
    }
}

fn files_of_mount(root: &Path, path: &[u8], visit: &mut dyn FnMut(&[u8]) -> Result<()>) -> Result<()> {
    let strip = |path: &Path| path.strip_prefix(root).unwrap_or(path).to_path_buf().into_os_string().into_vec();
    let own = path.strip_prefix(b"/").unwrap_or(path);
    let mut left = vec![root.join(OsStr::from_bytes(own))];
    let mut is_named = true;
    while let Some(at) = left.pop() {
        let found = at.symlink_metadata();
        match found {
            Ok(found) if found.is_file() => visit(&strip(&at))?,
            Ok(found) if found.is_dir() => {
                let entries = match at.read_dir() {
                    Err(error) if is_gone(&error) => continue,
                    entries => entries.with_context(|| format!("cannot list {}", shown::path(&at)))?,
                };
                for entry in entries {
                    left.push(entry.with_context(|| format!("cannot list {}", shown::path(&at)))?.path());
                }
            }
            Ok(_) if is_named => bail!("{} is neither a file nor a directory", shown::path(&at)),
            Ok(_) => {}
            // It went meanwhile.
            Err(error) if !is_named && is_gone(&error) => {}
            Err(error) => return Err(error).with_context(|| format!("cannot look at {}", shown::path(&at))),
        }
        is_named = false;
    }
    Ok(())
}

/// True if what was just listed is there no more.
fn is_gone(error: &std::io::Error) -> bool {
    matches!(error.kind(), NotFound | NotADirectory | StaleNetworkFileHandle)
}

fn files_of_volume(vfs: &Vfs, path: &[u8], visit: &mut dyn FnMut(&[u8]) -> Result<()>) -> Result<()> {
    let ino = file_at(vfs, path).with_context(|| format!("there is no {} in the volume", shown::bytes(path)))?;
    let mut left = vec![(path.to_vec(), ino, vfs.attributes(ino)?.kind)];
    while let Some((path, ino, kind)) = left.pop() {
        match kind {
            Kind::File => visit(&path)?,
            Kind::Directory => list(vfs, (&path, ino), &mut left)?,
            _ => {}
        }
    }
    Ok(())
}

/// Adds the entries of a directory to those that are `left` to be looked at.
fn list(vfs: &Vfs, (path, ino): (&[u8], Ino), left: &mut Vec<(Vec<u8>, Ino, Kind)>) -> Result<()> {
    let mut after = Cookie(0);
    loop {
        let page = vfs.read_directory(ino, after, PAGE)?;
        let Some(last) = page.last() else { return Ok(()) };
        after = last.cookie;
        for entry in page.iter().filter(|entry| !matches!(entry.name.as_bytes(), b"." | b"..")) {
            left.push(([path, b"/", entry.name.as_bytes()].concat(), entry.ino, entry.kind));
        }
    }
}

/// Sums over files.
#[derive(Default)]
struct Sums {
    files: u64,
    fragmented: u64,
    merged: u64,
}

/// Merges the blocks of a file, or of all files below a directory.
pub fn run(arguments: &Defragment) -> Result<ExitCode> {
    let what = || format!("cannot defragment {}", shown::path(Path::new(&arguments.path)));
    let place = Place::find(&arguments.path)?;
    let path = place.path.clone();
    let volume = Volume::of(place.way).with_context(what)?;
    let bar = steps();
    let mut sums = Sums::default();
    let done = volume.files(&path, &mut |path| {
        let Some(before) = volume.stored(path)? else { return Ok(()) };
        sums.files += 1;
        if before.stored == before.blocks {
            return Ok(());
        }
        sums.fragmented += 1;
        if arguments.dry_run {
            sums.merged += before.stored - before.blocks;
            return Ok(());
        }
        let mut from = Some(0);
        while let Some(at) = from {
            bar.show(Progress { step: "merging", done: at.min(before.bytes), total: before.bytes });
            let (merged, next) = volume.step(path, at)?;
            sums.merged += merged;
            from = next;
        }
        Ok(())
    });
    drop(bar);
    let closed = volume.close();
    done.and(closed).with_context(what)?;
    tell(arguments, &sums);
    Ok(ExitCode::SUCCESS)
}

fn tell(arguments: &Defragment, sums: &Sums) {
    let Sums { files, fragmented, merged } = *sums;
    if arguments.json {
        let mut value = path_as_json(arguments.path.as_bytes());
        value.insert("files".into(), files.into());
        value.insert("fragmented".into(), fragmented.into());
        let name = if arguments.dry_run { "stored_blocks_needless" } else { "merged" };
        value.insert(name.into(), merged.into());
        return outln!("{:#}", Value::from(value));
    }
    let path = shown::path(Path::new(&arguments.path));
    let (of, fragmented) = (shown::counted(files, "file", "files"), shown::counted(fragmented, "file", "files"));
    match arguments.dry_run {
        true => outln!("{path}: {fragmented} of {of} with fragments, {merged} stored blocks more than need be"),
        false => {
            let blocks = shown::counted(merged, "block", "blocks");
            outln!("{path}: {fragmented} of {of} had fragments; {blocks} stored in one piece again");
        }
    }
}

/// Refuses what is none.
fn stands(stored: Option<Stored>) -> Result<Stored> {
    stored.context("there is no file, or none that is stored: it went, or is a transformation link")
}

/// Tells how the file of `place` is stored.
pub fn info(named: &OsStr, place: Place, as_json: bool) -> Result<ExitCode> {
    let what = || format!("cannot look at {}", shown::path(Path::new(named)));
    let path = place.path.clone();
    let volume = Volume::of(place.way).with_context(what)?;
    let stored = volume.stored(&path);
    let closed = volume.close();
    let Stored { stored, blocks, runs, bytes } =
        stored.and_then(|stored| closed.map(|()| stored)).and_then(stands).with_context(what)?;
    if as_json {
        let mut value = path_as_json(named.as_bytes());
        value.insert("stored_blocks".into(), stored.into());
        value.insert("blocks".into(), blocks.into());
        value.insert("runs".into(), runs.into());
        value.insert("bytes".into(), bytes.into());
        outln!("{:#}", json!(value));
        return Ok(ExitCode::SUCCESS);
    }
    outln!("stored      {} in {}", show(bytes), shown::counted(stored, "block", "blocks"));
    outln!("fragments   {} more than need be ('weft defragment' merges them)", stored - blocks);
    outln!("runs        {runs} on the disk");
    Ok(ExitCode::SUCCESS)
}
