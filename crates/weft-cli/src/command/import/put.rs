//! `weft put`: files and directories by name, or the standard input, into a volume that is not
//! mounted. It is an import of single entries of directories.

use super::{IN_THE_WAY, Importer, Made, WORDS};
use crate::arguments::Put;
use crate::command::transfer::{CHUNK_BYTES, Directories, Interrupted, Place, Transfer, What, exit_code};
use crate::failure::usage;
use crate::input::STANDARD_INPUT;
use crate::named::is_volume;
use crate::shown;
use anyhow::{Context, Result, bail, ensure};
use parking_lot::Mutex;
use std::io::{ErrorKind, Read, stdin};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use weft_store::parent_of;
use weft_vfs::{Caller, Ino, Kind, MakeNode, SetAttributes};

/// Name of the standard input in messages.
const STANDARD_INPUT_SHOWN: &str = "the standard input";

/// Permissions of a file that the standard input becomes, before the umask takes some.
const PERMISSIONS: u32 = 0o666;

/// The umask that leaves others nothing.
const CLOSED: u32 = 0o077;

/// Copies files and directories into a volume.
pub fn run(arguments: &Put) -> Result<ExitCode> {
    let is_input = |source: &PathBuf| source.as_os_str() == STANDARD_INPUT;
    if arguments.sources.len() > 1 && arguments.sources.iter().any(is_input) {
        return usage("the standard input, '-', becomes the file that PATH names: put it alone".into());
    }
    Ok(exit_code(put(arguments, is_input(&arguments.sources[0]))))
}

fn put(arguments: &Put, is_input: bool) -> Result<ExitCode> {
    let transfer = Transfer::begin()?;
    // Looked for before the volume is opened: a mistake costs nothing then.
    let sources = if is_input { Vec::new() } else { all_of(&arguments.sources)? };
    let place = Place::open_without_past(&arguments.target)?;
    transfer.stops(&place.opened.vfs);
    if let Some(error) = sources.iter().find_map(|(source, _)| place.refuse_own_source(source).err()) {
        place.close()?;
        return Err(error);
    }
    let importer = |(root, only): (Directories, Vec<u8>)| Importer {
        vfs: &place.opened.vfs,
        transfer: &transfer,
        root,
        only: Some(only),
        overwrite: arguments.overwrite,
        excluded: &arguments.exclude,
        named: Mutex::default(),
    };
    if is_input && place.path.is_empty() {
        place.close()?;
        bail!("say which file the standard input becomes: VOLUME:PATH");
    }
    let copied = match is_input {
        true => {
            Directories::named(Path::new("/")).and_then(|root| importer((root, Vec::new())).standard_input(&place.path))
        }
        false => sources.into_iter().try_for_each(|(_, parts)| importer(parts).all(&place.path)),
    };
    if let Err(error) = &copied {
        transfer.end_with(error);
    }
    if let Err(error) = place.close() {
        transfer.end_with(&error);
    }
    Ok(transfer.finish(&WORDS, arguments.json))
}

/// A file or directory, the directory that it is in, opened, and its name there.
type Source = (PathBuf, (Directories, Vec<u8>));

/// Returns the entries that `sources` name.
fn all_of(sources: &[PathBuf]) -> Result<Vec<Source>> {
    let one = |source: &PathBuf| {
        let cannot = || format!("cannot import {}", shown::path(source));
        let metadata = source.symlink_metadata().with_context(cannot)?;
        ensure!(!is_volume(source), "cannot import {}: it is a volume; 'weft get' copies from it", shown::path(source));
        // '.' and '..' have a name in another directory.
        let named = match source.file_name() {
            Some(_) => source.clone(),
            None => source.canonicalize().with_context(cannot)?,
        };
        let name = named.file_name().with_context(|| {
            let whole = "it has no name to be put by; 'weft import' copies what is in it";
            format!("cannot import {}: {whole}", shown::path(source))
        })?;
        ensure!(
            metadata.is_dir() || !source.as_os_str().as_bytes().ends_with(b"/"),
            "cannot import {}: it is not a directory",
            shown::path(source)
        );
        let root = Directories::named(parent_of(&named))?;
        Ok((source.clone(), (root, name.as_bytes().to_vec())))
    };
    sources.iter().map(one).collect()
}

impl Importer<'_> {
    /// Makes the standard input the file at `path`.
    fn standard_input(&self, path: &[Vec<u8>]) -> Result<()> {
        let (name, above) = path.split_last().context("a file has a name")?;
        let parent = self.target(above)?;
        let shown = Path::new(STANDARD_INPUT_SHOWN);
        if !self.overwrite && self.in_the_way(parent, name)?.is_some() {
            self.transfer.fail(What::File, shown, IN_THE_WAY);
            return Ok(());
        }
        let umask = crate::USERS_UMASK.get().copied().unwrap_or(CLOSED);
        let node = MakeNode { kind: Kind::File, permissions: PERMISSIONS, umask, rdev: 0 };
        let ino = self.vfs.make_unnamed(Caller::ROOT, parent, node)?.ino;
        let placed = self.read_input(ino).and_then(|bytes| Ok((bytes, self.place(ino, parent, name)?)));
        // If it got no name it goes now; and with the next mount after a crash.
        self.vfs.release(ino, 1);
        match placed? {
            (bytes, Made::New(_) | Made::Same(_)) => self.transfer.progress.file(bytes),
            (_, Made::No(why)) => self.transfer.fail(What::File, shown, why),
        }
        Ok(())
    }

    /// Writes the standard input to `ino`, to its end. Returns its length.
    fn read_input(&self, ino: Ino) -> Result<u64> {
        let owner = SetAttributes {
            uid: Some(rustix::process::geteuid().as_raw()),
            gid: Some(rustix::process::getegid().as_raw()),
            ..SetAttributes::default()
        };
        self.vfs.set_attributes(ino, owner)?;
        let (mut input, mut buffer, mut at) = (stdin().lock(), vec![0; CHUNK_BYTES], 0);
        loop {
            ensure!(self.transfer.goes_on(), Interrupted);
            match input.read(&mut buffer) {
                Ok(0) => return Ok(at),
                Ok(read) => {
                    self.vfs.write(ino, at, &buffer[..read], false)?;
                    at += read as u64;
                }
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(error).context("cannot read the standard input"),
            }
        }
    }
}
