//! `weft convert`.
//!
//! A volume in files is written under a name of its own and gets the one that was asked for when it
//! is whole.

use super::check::verdict_unchanged;
use super::transfer::{Interrupt, exit_code, steps, sync_parent, way_to};
use super::{damages, places, usage};
use crate::advice::{filled, is_malformed};
use crate::arguments::Convert;
use crate::shown;
use anyhow::{Context, Result, bail};
use parking_lot::Mutex;
use rustix::fd::BorrowedFd;
use rustix::fs::{AtFlags, Mode, OFlags, fsync, openat, statat};
use rustix::io::Errno;
use serde_json::{Value, json};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use weft_store::{
    BlockHome, ErrorKind, Finding, Location, Way, parent_of, postgres, remove_below, rename_to_new, sqlite,
};

/// Tries to remove files that another thread may just be adding to.
const TRIES: usize = 1000;

/// Writes a volume in files anew with the other home for its blocks; changes the tables of one in PostgreSQL.
pub fn run(arguments: &Convert) -> ExitCode {
    exit_code(convert(arguments))
}

fn convert(arguments: &Convert) -> Result<ExitCode> {
    let location = super::mounted::unmounted(&arguments.volume)?;
    match (&location, &arguments.new, arguments.blocks, arguments.layout) {
        (Location::Postgres(address), None, None, Some(layout)) => {
            let bar = steps();
            let failed = || format!("cannot convert volume {location}");
            postgres::convert(address, layout.0, &mut |progress| bar.show(progress)).with_context(failed)?;
            drop(bar);
            match arguments.json {
                true => outln!("{}", summary(&location, None, 0, &[])),
                false => outln!("converted {address}"),
            }
            Ok(ExitCode::SUCCESS)
        }
        (Location::Files(_), Some(new), ..) if matches!(Location::parse(new)?, Location::Postgres(_)) => {
            usage("from files to PostgreSQL a volume goes by 'weft export' and 'weft import'; links come as what they give".into())
        }
        (Location::Files(volume), Some(new), Some(blocks), None) => {
            write_anew(&location, volume, new, blocks.into(), arguments.json)
        }
        (Location::Postgres(_), ..) => usage(
            "a volume in PostgreSQL is converted in place with --layout; to files it goes by 'weft export' and 'weft import'; links come as what they give".into(),
        ),
        (Location::Files(_), Some(_), None, None) => {
            usage("say where the blocks of the new volume are to lie: --blocks segments, or --blocks database".into())
        }
        (Location::Files(_), ..) => {
            usage("only a volume in PostgreSQL has a --layout; say which volume to make, and its --blocks".into())
        }
    }
}

fn write_anew(location: &Location, volume: &Path, new: &Path, home: BlockHome, json: bool) -> Result<ExitCode> {
    sqlite::Layout::find(volume).with_context(|| format!("cannot convert volume {location}"))?;
    sqlite::Layout::of(new, home).refuse_taken()?;
    let unfinished = Arc::new(Unfinished::of(new)?);
    let (own, about) = (unfinished.clone(), format!("{location} is as it was, and {} was not made", new.display()));
    Interrupt::take(move |signal| own.end(signal, &about))?;
    let bar = steps();
    let mut blocks = 0;
    let converted = sqlite::convert(volume, &unfinished.path, home, &mut |progress| {
        blocks = progress.total;
        bar.show(progress);
    });
    drop(bar);
    let named = match converted {
        // It has removed what it made; what is there now is somebody else's.
        Err(error) => {
            unfinished.leave();
            Err(error.into())
        }
        Ok(()) => unfinished.finish(new).inspect_err(|_| unfinished.remove()),
    };
    let Err(error) = named else {
        match json {
            true => outln!("{}", summary(location, Some(new), blocks, &[])),
            false => outln!("made {}; {location} is as it was", new.display()),
        }
        return Ok(ExitCode::SUCCESS);
    };
    let is_damage = error.downcast_ref::<weft_store::Error>().is_some_and(|error| error.kind() == ErrorKind::Corrupt);
    let error = error.context(format!("cannot convert volume {location}"));
    if !is_damage {
        return Err(error);
    }
    tell_damage(location, &error, json)
}

/// Names what is damaged by path, which a conversion alone cannot tell.
fn tell_damage(location: &Location, error: &anyhow::Error, json: bool) -> Result<ExitCode> {
    let bar = steps();
    let findings = location.scrub(&mut |progress| bar.show(progress));
    drop(bar);
    tracing::error!("{}", super::one_line(error));
    let findings = findings.unwrap_or_default();
    if json {
        let mut summary = summary(location, None, 0, &findings);
        summary["complete"] = false.into();
        outln!("{summary}");
    } else {
        findings.iter().for_each(|finding| outln!("{}", shown::message(&filled(&finding.to_string()))));
        // What ends the conversion of a database that SQLite cannot read gives the advice.
        if is_malformed(error) {
            outln!("{location}: {} found; follow the advice above", damages(places(&findings).max(1)));
        } else {
            outln!("{location}: {}", filled(&verdict_unchanged(&findings)));
        }
    }
    Ok(ExitCode::FAILURE)
}

fn summary(location: &Location, new: Option<&Path>, blocks: u64, findings: &[Finding]) -> Value {
    let one = |finding: &Finding| {
        let path = finding.path.as_ref().map(|path| String::from_utf8_lossy(path));
        json!({ "path": path, "what": finding.what })
    };
    json!({
        "complete": true,
        "volume": location.to_string(),
        "new": new.map(|new| new.to_string_lossy()),
        "blocks": blocks,
        "damaged": places(findings),
        "findings": findings.iter().map(one).collect::<Vec<_>>(),
    })
}

/// A volume that is not whole yet.
struct Unfinished {
    path: PathBuf,
    /// The way to the directory that it lies in: whoever owns one on it leads nobody elsewhere.
    way: Way,
    /// Set once it is removed or has its name. Held while either is done.
    is_over: Mutex<bool>,
}

impl Unfinished {
    fn of(new: &Path) -> Result<Unfinished> {
        let path = new.with_added_extension("unfinished");
        let left: Vec<String> = with_beside(&path)
            .iter()
            .filter(|path| path.symlink_metadata().is_ok())
            .map(|path| path.display().to_string())
            .collect();
        match &left[..] {
            [] => {}
            [one] => bail!(
                "{one} exists: it is left from a conversion that was killed, or one is at work; remove it, then try again"
            ),
            several => bail!(
                "{} exist: they are left from a conversion that was killed, or one is at work; remove them, then try again",
                several.join(" and ")
            ),
        }
        Ok(Unfinished { path, way: way_to(parent_of(new))?, is_over: Mutex::new(false) })
    }

    /// Gives it its name.
    fn finish(&self, new: &Path) -> Result<()> {
        let mut is_over = self.is_over.lock();
        let failed = || format!("cannot finish {}", self.path.display());
        let [from, to] = [&*self.path, new].map(|path| Path::new(path.file_name().unwrap_or_default()));
        sync(self.way.directory(), from).with_context(failed)?;
        match rename_to_new(self.way.directory(), from, to) {
            Err(Errno::EXIST) => bail!("{} exists by now; name a volume that does not", new.display()),
            renamed => renamed.with_context(failed)?,
        }
        *is_over = true;
        sync_parent(new).with_context(failed)
    }

    /// It is no more this conversion's.
    fn leave(&self) {
        *self.is_over.lock() = true;
    }

    /// Removes it, if it has not got its name.
    fn remove(&self) {
        let mut is_over = self.is_over.lock();
        if !*is_over {
            self.clear();
            *is_over = true;
        }
    }

    /// The same for a signal, which then ends the process; unless it is over anyway.
    fn end(&self, signal: i32, about: &str) {
        let is_over = self.is_over.lock();
        if !*is_over {
            self.clear();
            tracing::warn!("interrupted: {about}");
            std::process::exit(128 + signal);
        }
    }

    fn clear(&self) {
        let beside = with_beside(&self.path);
        // The thread that converts may make a file in between.
        for _ in 0..TRIES {
            let names = || beside.iter().filter_map(|path| path.file_name());
            names().for_each(|name| remove_below(self.way.directory(), name));
            if names().all(|name| statat(self.way.directory(), name, AtFlags::SYMLINK_NOFOLLOW).is_err()) {
                return;
            }
        }
        tracing::error!("cannot remove {}; remove it", self.path.display());
    }
}

/// The volume at `path`, and what lies beside it if it is one file.
fn with_beside(path: &Path) -> Vec<PathBuf> {
    let beside = sqlite::Layout::of(path, BlockHome::Database).beside();
    // Under the name by which the user knows the volume.
    let beside = beside.iter().filter_map(|file| Some(path.with_file_name(file.file_name()?)));
    std::iter::once(path.to_path_buf()).chain(beside).collect()
}

/// Has the names in a volume on the disk; its bytes are.
fn sync(directory: BorrowedFd<'_>, volume: &Path) -> Result<(), Errno> {
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let volume = openat(directory, volume, flags, Mode::empty())?;
    fsync(&volume)?;
    match openat(&volume, "segments", flags, Mode::empty()) {
        Err(Errno::NOENT | Errno::NOTDIR) => Ok(()),
        segments => fsync(segments?),
    }
}
