//! Options and findings of a check.

use std::fmt;

/// The repairs that a check makes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Repair {
    /// Only look; nothing is changed.
    No,
    /// Put it right, in one transaction; nothing where rows are damaged.
    Yes,
    /// The same; what damaged rows describe is given up before.
    Discard,
}

/// Options of a check.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CheckOptions {
    /// The repairs to make.
    pub repair: Repair,
    /// Read every block, and compare it with its digest.
    pub read_data: bool,
}

/// Progress of a check or a conversion.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Progress {
    /// The current step.
    pub step: &'static str,
    /// Units of it that are done.
    pub done: u64,
    /// Units of it in all.
    pub total: u64,
}

/// The state of a finding.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// Worth knowing, and no damage.
    Note,
    /// An invariant is broken.
    Damaged,
    /// It was broken, and was put right.
    Repaired,
}

/// Begins the finding that advises on others while nothing is repaired; it is no damage of its own.
pub(crate) const NOTHING_REPAIRED: &str = "nothing is repaired while";

/// Something a check found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    /// The file or directory it is about; none for the volume as a whole. Bytes, as names are; an
    /// inode that no name leads to is `#` and its number.
    pub path: Option<Vec<u8>>,
    /// Words for the problem.
    pub what: String,
    /// Damage or not, and repaired or not.
    pub outcome: Outcome,
}

impl Finding {
    /// True if bytes of a file are damaged: only a copy of them can make that good. As the checks
    /// word it.
    pub fn is_of_bytes(&self) -> bool {
        self.what.starts_with("bytes ") && self.what.contains(" are damaged")
    }

    /// True if a segment file is lost, and with it bytes of the files that other findings name. As
    /// the checks word it.
    pub fn is_of_segment_file(&self) -> bool {
        self.path.is_none() && self.what.starts_with("segment file ")
    }

    /// Stands for `count` findings beyond those of the same kind that are reported.
    pub(crate) fn more(count: usize, outcome: Outcome) -> Finding {
        Finding { path: None, what: format!("and {count} more of the same kind"), outcome }
    }

    /// Stands for `count` damaged ranges of a file, up to byte `end`, beyond those that are
    /// reported.
    pub(crate) fn more_bytes(count: usize, end: i64) -> Finding {
        let last = end - 1;
        let what = format!("bytes in {count} more places are damaged, the last of them byte {last}");
        Finding { path: None, what, outcome: Outcome::Damaged }
    }

    /// Counts the places that it tells of: more than one if it stands for others, none if it only
    /// advises on them.
    pub fn places(&self) -> usize {
        if self.what.starts_with(NOTHING_REPAIRED) {
            return 0;
        }
        let rest = self.what.strip_prefix("and ").or_else(|| self.what.strip_prefix("bytes in "));
        let count = rest.and_then(|rest| rest.split_once(" more ")).and_then(|(count, _)| count.parse().ok());
        count.unwrap_or(1)
    }
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(path) = &self.path {
            write!(f, "{}: ", String::from_utf8_lossy(path))?;
        }
        f.write_str(&self.what)?;
        match self.outcome {
            Outcome::Note => f.write_str(" (no damage)"),
            Outcome::Damaged => Ok(()),
            Outcome::Repaired => f.write_str(" (repaired)"),
        }
    }
}
