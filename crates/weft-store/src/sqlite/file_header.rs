//! The first bytes of SQLite's database file, by which a volume is told from other files before it
//! is opened (<https://www.sqlite.org/fileformat2.html#the_database_header>).

use std::io::Read;

/// Bytes of the header.
pub(super) const BYTES: usize = 100;

/// The bytes with which a database begins.
pub(super) const MAGIC: &[u8] = b"SQLite format 3\0";

/// Offsets of numbers in it, each of four bytes, the highest first.
const USER_VERSION_AT: usize = 60;
pub(super) const APPLICATION_ID_AT: usize = 68;

/// The numbers in the header of a database that tell of a volume.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct FileHeader {
    /// The number that tells which program it belongs to (`application_id`); 0 before that is told.
    pub(super) application_id: u32,
    /// The version of the volume's format (`user_version`).
    pub(super) format: u32,
}

impl FileHeader {
    /// Reads the header from `file`, at whose start it lies. None if it is no database's.
    pub(super) fn read(mut file: impl Read) -> Option<FileHeader> {
        let mut start = [0; BYTES];
        file.read_exact(&mut start).ok().filter(|()| start.starts_with(MAGIC))?;
        let number = |at: usize| u32::from_be_bytes(start[at..at + 4].try_into().expect("four bytes"));
        Some(FileHeader { application_id: number(APPLICATION_ID_AT), format: number(USER_VERSION_AT) })
    }
}
