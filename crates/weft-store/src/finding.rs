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

/// The subject of a finding, as far as the way out depends on it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Subject {
    /// Bytes of a file: only a copy of them can make that good.
    Bytes,
    /// Bytes that earlier commits alone have.
    Past,
    /// A segment file that is lost, and with it bytes of the files that other findings name.
    SegmentFile,
    /// Other findings: it advises on them, and is no damage of its own.
    Findings,
    /// Anything else.
    Other,
}

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
    /// The subject.
    pub subject: Subject,
    /// Number of places that it tells of: more than one if it stands for others, none if it only
    /// advises on them.
    pub places: usize,
}

impl Finding {
    /// A finding of one place, at `path` or of the volume as a whole.
    pub fn new(path: Option<Vec<u8>>, what: impl Into<String>, outcome: Outcome) -> Finding {
        Finding { path, what: what.into(), outcome, subject: Subject::Other, places: 1 }
    }

    /// Damage to the volume as a whole.
    pub fn damage(what: impl Into<String>) -> Finding {
        Finding::new(None, what, Outcome::Damaged)
    }

    /// The same about `subject`.
    #[must_use]
    pub fn about(self, subject: Subject) -> Finding {
        Finding { subject, ..self }
    }

    /// The same of so many places.
    #[must_use]
    pub fn of_places(self, places: usize) -> Finding {
        Finding { places, ..self }
    }

    /// Stands for `count` findings beyond those of the same kind that are reported.
    pub(crate) fn more(count: usize, outcome: Outcome) -> Finding {
        Finding::new(None, format!("and {count} more of the same kind"), outcome).of_places(count)
    }

    /// Stands for `count` damaged ranges of the file at `path`, up to byte `end`, beyond those that
    /// are reported.
    pub(crate) fn more_bytes(path: Vec<u8>, count: usize, end: i64) -> Finding {
        let last = end - 1;
        let what = format!("bytes in {count} more places are damaged, the last of them byte {last}");
        Finding::new(Some(path), what, Outcome::Damaged).about(Subject::Bytes).of_places(count)
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
