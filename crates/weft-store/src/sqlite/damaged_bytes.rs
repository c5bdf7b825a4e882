//! Damaged bytes of files, as findings: blocks that follow one another are one range, and each file
//! is named, however many ranges others have.

use super::read::sql;
use crate::Name;
use crate::error::{Error, Result};
use crate::finding::{Finding, Outcome, Subject};
use crate::row::Ino;
use crate::store::path_to;
use rusqlite::{Connection, OptionalExtension, Row};
use std::ops::Range;

/// Most ranges of one file that are reported; the rest are only counted.
const RANGES_MAX: usize = 100;

/// Versions that earlier commits alone have, of which the paths are told: all names that are gone
/// are looked at for each.
const PATHS_MAX: usize = 16;

fn failed(source: rusqlite::Error) -> Error {
    Error::Sqlite { what: "cannot tell which files are damaged", source }
}

/// Reasons for blocks whose segment file is missing, or ends before them.
pub(super) const LOST: &str = "lies in a segment file that is missing";
pub(super) const PAST_END: &str = "lies past the end of its segment file";

/// Damaged ranges of files, as they are found: file by file, each from its beginning to its end.
#[derive(Default)]
pub(super) struct DamagedBytes {
    files: Vec<File>,
}

struct File {
    ino: i64,
    ranges: Vec<DamagedRange>,
    /// Ranges after those.
    more: usize,
    /// The end of the last of all.
    end: i64,
}

struct DamagedRange {
    bytes: Range<i64>,
    /// Its first block.
    block: i64,
    /// Blocks after that.
    others: usize,
    why: String,
}

impl DamagedBytes {
    /// Adds `bytes` of file `ino`, which are `block`, and the reason.
    pub(super) fn add(&mut self, ino: i64, bytes: Range<i64>, block: i64, why: String) {
        if self.files.last().is_none_or(|file| file.ino != ino) {
            self.files.push(File { ino, ranges: Vec::new(), more: 0, end: 0 });
        }
        let file = self.files.last_mut().expect("there is one");
        let follows = bytes.start == file.end && file.ranges.last().is_some_and(|last| last.why == why);
        file.end = bytes.end;
        let is_told = file.ranges.len() < RANGES_MAX;
        match file.ranges.last_mut() {
            Some(last) if follows && file.more == 0 => {
                last.bytes.end = bytes.end;
                last.others += 1;
            }
            // It belongs to the last of those that are counted.
            Some(_) if follows => {}
            _ if is_told => file.ranges.push(DamagedRange { bytes, block, others: 0, why }),
            _ => file.more += 1,
        }
    }

    /// The findings; `path` tells that of an inode.
    pub(super) fn findings(self, path: impl Fn(i64) -> Result<Vec<u8>>) -> Result<Vec<Finding>> {
        let mut findings = Vec::new();
        for file in self.files {
            let path = path(file.ino)?;
            let finding = |what| Finding::new(Some(path.clone()), what, Outcome::Damaged).about(Subject::Bytes);
            findings.extend(file.ranges.iter().map(|range| finding(range.told())));
            if file.more > 0 {
                findings.push(Finding::more_bytes(path, file.more, file.end));
            }
        }
        Ok(findings)
    }
}

impl DamagedRange {
    fn told(&self) -> String {
        let DamagedRange { bytes, block, others, why } = self;
        let (first, last) = (bytes.start, bytes.end - 1);
        format!("bytes {first} to {last} are damaged: {}", of_blocks(*block, *others, why))
    }
}

/// Words for `block`, which is damaged, and `others` after it, for the same reason.
fn of_blocks(block: i64, others: usize, why: &str) -> String {
    let others = if others == 0 { String::new() } else { format!(" (and {others} more after it)") };
    format!("block {block} {why}{others}")
}

/// Damaged blocks that earlier commits alone have, as they are found: inode by inode, each from its
/// first version to its last.
#[derive(Default)]
pub(super) struct DamagedPast {
    versions: Vec<DamagedVersions>,
}

/// Blocks of a file that came and went with the same commits.
struct DamagedVersions {
    ino: i64,
    /// Commits that have them.
    commits: Range<i64>,
    /// The first block.
    block: i64,
    /// Blocks after that.
    others: usize,
    why: String,
}

impl DamagedPast {
    /// Adds `block`, which file `ino` has as of `commits`, and the reason.
    pub(super) fn add(&mut self, ino: i64, commits: Range<i64>, block: i64, why: &str) {
        match self.versions.last_mut() {
            Some(last) if last.ino == ino && last.commits == commits && last.why == why => last.others += 1,
            _ => self.versions.push(DamagedVersions { ino, commits, block, others: 0, why: why.into() }),
        }
    }

    /// The findings, with the paths that the files had.
    pub(super) fn findings(self, connection: &Connection) -> Result<Vec<Finding>> {
        let finding = |(number, version): (usize, DamagedVersions)| {
            let (first, last) = (version.commits.start, version.commits.end - 1);
            let blocks = of_blocks(version.block, version.others, &version.why);
            let what = format!("as of commits {first} to {last}, and only then: {blocks}");
            let path = match number < PATHS_MAX {
                true => path_at(connection, version.ino, last)?,
                false => format!("#{}", version.ino).into_bytes(),
            };
            Ok(Finding::new(Some(path), what, Outcome::Damaged).about(Subject::Past))
        };
        self.versions.into_iter().enumerate().map(finding).collect()
    }
}

/// Returns the path of `ino` as of `commit`; `#` and the number of the first on the way that has no
/// name. Looks at all names that are gone, as none is found by inode.
fn path_at(connection: &Connection, ino: i64, commit: i64) -> Result<Vec<u8>> {
    let names = "SELECT parent, name FROM naming WHERE ino = ?1 AND since <= ?2 UNION ALL \
                 SELECT parent, name FROM naming_history WHERE ino = ?1 AND since <= ?2 AND until > ?2 LIMIT 1";
    path_to(Ino(ino.unsigned_abs()), |ino| {
        let name = |row: &Row<'_>| Ok((row.get::<_, i64>(0)?, row.get::<_, Vec<u8>>(1)?));
        let mut statement = connection.prepare_cached(names).map_err(failed)?;
        let found = statement.query_row((sql(ino.0), commit), name).optional().map_err(failed)?;
        // A name that is none is damage of its own.
        let named = found.and_then(|(parent, name)| Some((Ino(parent.unsigned_abs()), Name::new(&name).ok()?)));
        Ok(named.into_iter().collect())
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn told(damaged: DamagedBytes) -> Vec<(String, usize)> {
        let path = |ino: i64| Ok(format!("/{ino}").into_bytes());
        let findings = damaged.findings(path).expect("paths are known");
        assert!(findings.iter().all(|finding| finding.subject == Subject::Bytes));
        findings.iter().map(|finding| (finding.to_string(), finding.places)).collect()
    }

    #[test]
    fn ranges_that_follow_one_another_are_one_of_each_file_and_reason() {
        let mut damaged = DamagedBytes::default();
        for (ino, start, why) in [(1, 0, "a"), (1, 10, "a"), (1, 20, "b"), (1, 40, "b"), (2, 50, "b")] {
            damaged.add(ino, start..start + 10, start + 1, why.into());
        }
        let expected = [
            "/1: bytes 0 to 19 are damaged: block 1 a (and 1 more after it)",
            "/1: bytes 20 to 29 are damaged: block 21 b",
            "/1: bytes 40 to 49 are damaged: block 41 b",
            "/2: bytes 50 to 59 are damaged: block 51 b",
        ];
        assert_eq!(told(damaged), expected.map(|line| (line.to_owned(), 1)));
    }

    #[test]
    fn each_file_is_named_and_each_range_counted() {
        let mut damaged = DamagedBytes::default();
        let count = RANGES_MAX + 7;
        for ino in [1, 2] {
            for at in 0..i64::try_from(count).expect("few") {
                damaged.add(ino, at * 20..at * 20 + 5, at, "a".into());
                damaged.add(ino, at * 20 + 5..at * 20 + 10, at, "a".into());
            }
        }
        let told = told(damaged);
        assert_eq!(told.len(), 2 * (RANGES_MAX + 1));
        assert_eq!(told.iter().map(|(_, places)| places).sum::<usize>(), 2 * count);
        assert_eq!(told[RANGES_MAX].0, "/1: bytes in 7 more places are damaged, the last of them byte 2129");
    }
}
