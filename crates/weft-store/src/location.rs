//! The location of a volume, in files or in PostgreSQL, and the engine that it calls for.

use crate::engine::Engine;
use crate::error::{Error, Result};
use crate::finding::Progress;
use crate::postgres::{self, Address, is_address};
use crate::sqlite;
use std::fmt;
use std::path::{Path, PathBuf};

/// The location of a volume.
#[derive(Clone, Debug)]
pub enum Location {
    /// In files.
    Files(PathBuf),
    /// In a PostgreSQL database.
    Postgres(Box<Address>),
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

    /// Returns the engine of the volume: chosen here, and nowhere else.
    pub fn engine(&self) -> Box<dyn Engine + '_> {
        match self {
            Location::Files(path) => Box::new(sqlite::VolumeFiles(path)),
            Location::Postgres(address) => Box::new(postgres::VolumeSchema(address)),
        }
    }

    /// The path, if the volume lies in files.
    pub fn path(&self) -> Option<&Path> {
        match self {
            Location::Files(path) => Some(path),
            Location::Postgres(_) => None,
        }
    }

    /// The address, if the volume lies in PostgreSQL.
    pub fn address(&self) -> Option<&Address> {
        match self {
            Location::Files(_) => None,
            Location::Postgres(address) => Some(address),
        }
    }

    /// Copies the readable parts of a broken volume in files into a new one, as
    /// [`sqlite::salvage`] does.
    pub fn salvage(
        &self,
        new: &Location,
        making: &sqlite::Making,
        progress: &mut dyn FnMut(Progress),
    ) -> Result<sqlite::Salvaged> {
        match (self.path(), new.path()) {
            (Some(path), Some(new)) => making.salvage(path, new, progress),
            _ => Err(Error::Unusable(
                "only a volume in files can be salvaged, into files; for one in PostgreSQL see what its server has: \
                 backups, replicas, pg_dump"
                    .into(),
            )),
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
