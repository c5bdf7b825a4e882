//! The location of a volume, in files or in PostgreSQL.

use crate::error::{Error, Result};
use crate::finding::{CheckOptions, Finding, Outcome, Progress, Repair};
use crate::log::Loss;
use crate::postgres::{self, Address, Intents, OpenOptions, is_address};
use crate::row::{CommitRow, Timestamp};
use crate::sqlite::{self, Layout};
use crate::store::{Header, Store, VolumeOptions};
use crate::upgrade::{Upgrade, Upgraded};
use crate::waiting::Waiting;
use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// The location of a volume.
#[derive(Clone, Debug)]
pub enum Location {
    /// In files.
    Files(PathBuf),
    /// In a PostgreSQL database.
    Postgres(Box<Address>),
}

/// An open volume: exclusively held until dropped.
pub struct Opened {
    /// Its rows and blocks.
    pub store: Arc<dyn Store>,
    /// Its files, if it lies in files.
    pub layout: Option<Layout>,
    /// Its intent log, if that is no file.
    pub intents: Option<Intents>,
    /// Copies of what was given up to open it.
    pub set_aside: Vec<PathBuf>,
    /// Losses that were found and accepted, as the caller asked for.
    pub given_up: Vec<String>,
}

impl Location {
    /// Parses a location as the user writes it: a URL of PostgreSQL, or else a path. `Unusable` for
    /// a URL that makes no sense.
    pub fn parse(named: &Path) -> Result<Location> {
        match named.to_str() {
            Some(text) if is_address(text) => Ok(Location::Postgres(Box::new(Address::parse(text)?))),
            _ => Ok(Location::Files(named.into())),
        }
    }

    /// The path, if the volume lies in files.
    pub fn path(&self) -> Option<&Path> {
        match self {
            Location::Files(path) => Some(path),
            Location::Postgres(_) => None,
        }
    }

    /// Makes a volume, as [`sqlite::create`] and [`postgres::create`] do.
    pub fn create(&self, options: &VolumeOptions, owner: (u32, u32), time: Timestamp) -> Result<()> {
        match self {
            Location::Files(path) => sqlite::create(path, options, owner, time),
            Location::Postgres(address) => postgres::create(address, options, owner, time),
        }
    }

    /// Takes hold of a volume; `options` are for those that are held by a lease.
    pub fn open(&self, options: OpenOptions) -> Result<Opened> {
        self.open_by(options, sqlite::open_with)
    }

    /// Opens the volume as [`Location::open`] does, for nothing but reading: also where nothing can
    /// be written.
    pub fn open_to_read(&self, options: OpenOptions) -> Result<Opened> {
        self.open_by(options, sqlite::open_to_read)
    }

    /// Says, in a line for the user, how a volume is read (or checked) that lies where nothing can
    /// be written.
    pub fn note(&self, is_checked: bool) -> Option<String> {
        sqlite::note(self.path()?, is_checked)
    }

    fn open_by(
        &self,
        options: OpenOptions,
        open: impl FnOnce(&Path, Loss) -> Result<sqlite::Volume>,
    ) -> Result<Opened> {
        Ok(match self {
            Location::Files(path) => {
                if options.disk_cache.is_some() {
                    let what = "lies on a disk of this machine already; a disk cache is for volumes in PostgreSQL";
                    return Err(Error::Unusable(format!("{} {what}", path.display())));
                }
                let volume = open(path, options.loss)?;
                let sqlite::Volume { store, layout, set_aside, given_up } = volume;
                Opened { store, layout: Some(layout), intents: None, set_aside, given_up }
            }
            Location::Postgres(address) => {
                let store = postgres::open(address, options)?;
                let intents = Some(store.intents());
                Opened { store, layout: None, intents, set_aside: Vec::new(), given_up: Vec::new() }
            }
        })
    }

    /// Reads the header of a volume, held or not, as of its last commit.
    pub fn header(&self) -> Result<Header> {
        match self {
            Location::Files(path) => sqlite::header(path),
            Location::Postgres(address) => postgres::header(address),
        }
    }

    /// Reports the operations in the intent log of a volume that nobody holds, as
    /// [`sqlite::waiting`] and [`postgres::waiting`] do.
    pub fn waiting(&self) -> Result<Waiting> {
        match self {
            Location::Files(path) => sqlite::waiting(path),
            Location::Postgres(address) => postgres::waiting(address),
        }
    }

    /// Looks for damage, as [`sqlite::check`] and [`postgres::check`] do.
    pub fn check(&self, options: CheckOptions, progress: &mut dyn FnMut(Progress)) -> Result<Vec<Finding>> {
        match self {
            Location::Files(path) => sqlite::check(path, options, progress),
            Location::Postgres(address) => postgres::check(address, options, progress),
        }
    }

    /// Copies the readable parts of a broken volume into a new one, as [`sqlite::salvage`] does.
    pub fn salvage(
        &self,
        new: &Location,
        making: &sqlite::Making,
        progress: &mut dyn FnMut(Progress),
    ) -> Result<sqlite::Salvaged> {
        match (self, new) {
            (Location::Files(path), Location::Files(new)) => making.salvage(path, new, progress),
            _ => Err(Error::Unusable(
                "only a volume in files can be salvaged, into files; for one in PostgreSQL see what its server has: \
                 backups, replicas, pg_dump"
                    .into(),
            )),
        }
    }

    /// Reads all of a volume, held or not, and verifies it.
    pub fn scrub(&self, progress: &mut dyn FnMut(Progress)) -> Result<Vec<Finding>> {
        match self {
            Location::Files(path) => sqlite::scrub(path, progress),
            Location::Postgres(address) => {
                let options = CheckOptions { repair: Repair::No, read_data: true };
                let damaged = |finding: &Finding| finding.outcome == Outcome::Damaged;
                Ok(postgres::check(address, options, progress)?.into_iter().filter(damaged).collect())
            }
        }
    }

    /// Brings a volume of an older format to this one, as [`sqlite::upgrade`] and
    /// [`postgres::upgrade`] do.
    pub fn upgrade(&self, mode: Upgrade, progress: &mut dyn FnMut(Progress)) -> Result<Upgraded> {
        match self {
            Location::Files(path) => sqlite::upgrade(path, mode, progress),
            Location::Postgres(address) => postgres::upgrade(address, mode, progress),
        }
    }

    /// All commits that the volume remembers, in their order; also while it is held.
    pub fn commits(&self) -> Result<Vec<CommitRow>> {
        match self {
            Location::Files(path) => sqlite::commits(path),
            Location::Postgres(address) => postgres::commits(address),
        }
    }
}

impl fmt::Display for Location {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Location::Files(path) => path.display().fmt(f),
            Location::Postgres(address) => address.fmt(f),
        }
    }
}
