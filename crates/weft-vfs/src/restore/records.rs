//! Records of what was taken out of the past: when, by which path, how much, and who asked.
//!
//! They are extended attributes of the root that no caller can ask for (`secrets`), so that they
//! go wherever the volume goes. A value is text: parts between NUL bytes. The newest ones stay: who
//! forgets a million times must not make the root's attributes grow without bound.

use super::Restoring;
use super::path::VolumePath;
use crate::volume::Vfs;
use weft_store::{CommitNo, FORGOTTEN, FORGOTTEN_MAX, FORGOTTEN_TOTAL_MAX, Ino, Store, Timestamp};

/// Begins the names of records, behind [`crate::secrets::KEPT`]: together they are [`FORGOTTEN`].
const PREFIX: &str = "forgotten.";

/// Bytes of a path in a record: of a longer one it has the end.
const PATH_BYTES_MAX: usize = 2 << 10;

/// Files that a record names.
const FILES_MAX: usize = 64;

/// Versions that are read at once.
const VERSIONS_READ: usize = 1 << 10;

/// A record of what was taken out of the past.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ForgottenRecord {
    /// When.
    pub time: Timestamp,
    /// The user who asked for it.
    pub user: u32,
    /// The path, from the root of the volume; of a long one the end, behind `…`.
    pub path: Vec<u8>,
    /// The number of files that had that path.
    pub files: u64,
    /// Versions of them that were emptied.
    pub versions: u64,
    /// Length of these versions together, in bytes.
    pub bytes: u64,
    /// The inodes, at most 64.
    pub inodes: Vec<Ino>,
}

impl ForgottenRecord {
    fn encode(&self) -> Vec<u8> {
        let inodes = self.inodes.iter().map(|ino| ino.0.to_string()).collect::<Vec<_>>().join(" ");
        let numbers = [self.time.0.to_string(), self.user.to_string()].map(String::into_bytes);
        let sums = [self.files, self.versions, self.bytes].map(|number| number.to_string().into_bytes());
        let parts = numbers.into_iter().chain([self.path.clone()]).chain(sums).chain([inodes.into_bytes()]);
        parts.collect::<Vec<_>>().join(&0)
    }

    fn decode(value: &[u8]) -> Option<ForgottenRecord> {
        let parts = value.split(|byte| *byte == 0).collect::<Vec<_>>();
        let [time, user, path, files, versions, bytes, inodes] = parts[..] else { return None };
        let text = |part| std::str::from_utf8(part).ok();
        let number = |part| text(part)?.parse::<u64>().ok();
        Some(ForgottenRecord {
            time: Timestamp(text(time)?.parse().ok()?),
            user: text(user)?.parse().ok()?,
            path: path.to_vec(),
            files: number(files)?,
            versions: number(versions)?,
            bytes: number(bytes)?,
            inodes: text(inodes)?.split_whitespace().map(|ino| ino.parse().map(Ino)).collect::<Result<_, _>>().ok()?,
        })
    }
}

/// Returns the records of `store` of what was taken out of its past, the oldest first.
pub fn forgotten_records(store: &dyn Store) -> weft_store::Result<Vec<ForgottenRecord>> {
    let records = store.xattrs(Ino::ROOT)?.into_iter().filter(|(name, _)| name.as_bytes().starts_with(FORGOTTEN));
    let mut records = records.filter_map(|(_, value)| ForgottenRecord::decode(&value)).collect::<Vec<_>>();
    records.sort_by_key(|record| record.time);
    Ok(records)
}

/// `path`, or the end of it.
fn shortened(path: Vec<u8>) -> Vec<u8> {
    match path.len().checked_sub(PATH_BYTES_MAX) {
        None | Some(0) => path,
        Some(over) => ["…".as_bytes(), &path[over..]].concat(),
    }
}

/// Returns the number of records to remove before another one of length `new` is added, of those of
/// `lengths`, the oldest first.
fn surplus(lengths: &[usize], new: usize) -> usize {
    let mut total = lengths.iter().sum::<usize>() + new;
    let mut gone = 0;
    while gone < lengths.len() && (lengths.len() - gone >= FORGOTTEN_MAX || total > FORGOTTEN_TOTAL_MAX) {
        total -= lengths[gone];
        gone += 1;
    }
    gone
}

impl Vfs {
    /// Leaves a record that `user` has the content of `files`, which had the name `path`, taken out
    /// of the past. Returns the name of the record.
    pub(super) fn record_forgotten(&self, path: &VolumePath, files: &[Ino], user: u32) -> Restoring<String> {
        let (mut versions, mut bytes) = (0, 0);
        for ino in files {
            let (count, length) = self.versions_of(*ino)?;
            (versions, bytes) = (versions + count, bytes + length);
        }
        let mut before = self.all_kept(PREFIX)?;
        before.sort();
        let named = |time: i64| format!("{time:020}");
        let mut time = self.now().0.max(0);
        while before.iter().any(|(name, _)| *name == named(time)) {
            time += 1;
        }
        let (time, inodes) = (Timestamp(time), files.iter().take(FILES_MAX).copied().collect());
        let files = files.len() as u64;
        let path = shortened(path.names().iter().flat_map(|name| [b"/", name.as_bytes()].concat()).collect());
        let record = ForgottenRecord { time, user, path, files, versions, bytes, inodes }.encode();
        let lengths = before.iter().map(|(_, value)| value.len()).collect::<Vec<_>>();
        for (old, _) in &before[..surplus(&lengths, record.len())] {
            self.keep(&format!("{PREFIX}{old}"), None)?;
        }
        let name = format!("{PREFIX}{}", named(time.0));
        self.keep(&name, Some(&record))?;
        Ok(name)
    }

    /// The number of versions of `ino` that later commits replaced, and their length together.
    fn versions_of(&self, ino: Ino) -> Restoring<(u64, u64)> {
        let (mut count, mut bytes, mut until) = (0, 0, CommitNo(u64::MAX >> 1));
        loop {
            let versions = self.store.versions(ino, until, VERSIONS_READ)?;
            let Some((_, oldest)) = versions.last() else { return Ok((count, bytes)) };
            until = oldest.start;
            count += versions.len() as u64;
            bytes += versions.iter().map(|(row, _)| row.size).sum::<u64>();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::secrets::KEPT;
    use weft_store::FORGOTTEN_BYTES_MAX;

    #[test]
    fn the_newest_records_stay() {
        assert_eq!(FORGOTTEN, [KEPT, PREFIX.as_bytes()].concat());
        assert_eq!(surplus(&[], 100), 0);
        assert_eq!(surplus(&[100; FORGOTTEN_MAX - 1], 100), 0);
        assert_eq!(surplus(&[100; FORGOTTEN_MAX], 100), 1);
        assert_eq!(surplus(&[100; 1000], 100), 1001 - FORGOTTEN_MAX);
        assert_eq!(surplus(&[4096; 64], 1), 1, "and not more bytes than there may be");
        assert_eq!(surplus(&[4096; 63], 4096), 0);
    }

    #[test]
    fn a_record_is_read_as_it_was_written() {
        let record = ForgottenRecord {
            time: Timestamp(1_700_000_000_000_000_000),
            user: 1000,
            path: b"a dir/caf\xe9\nx".to_vec(),
            files: 2,
            versions: 7,
            bytes: 1 << 40,
            inodes: vec![Ino(17), Ino(99)],
        };
        assert_eq!(ForgottenRecord::decode(&record.encode()), Some(record.clone()));
        let none = ForgottenRecord { inodes: Vec::new(), ..record };
        assert_eq!(ForgottenRecord::decode(&none.encode()), Some(none));
        let long = ForgottenRecord {
            path: shortened(vec![b'x'; 1 << 16]),
            inodes: vec![Ino(u64::MAX); FILES_MAX],
            bytes: u64::MAX,
            versions: u64::MAX,
            files: u64::MAX,
            time: Timestamp(i64::MAX),
            user: u32::MAX,
        };
        assert!(long.encode().len() <= FORGOTTEN_BYTES_MAX && long.path.starts_with("…".as_bytes()));
        for other in [&b""[..], b"1\x002", b"x\x001\x00p\x001\x001\x001\x00", b"1\x001\x00p\x001\x001\x001\x00x"] {
            assert_eq!(ForgottenRecord::decode(other), None);
        }
    }
}
