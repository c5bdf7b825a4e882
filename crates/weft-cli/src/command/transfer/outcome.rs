//! The outcome of a copy: counts, each failure with its path and kind, the reason if it ended
//! early, the exit code.

use super::{Interrupt, Progress, path_as_json};
use crate::shown;
use anyhow::{Error, Result, ensure};
use parking_lot::Mutex;
use rustix::io::Errno;
use serde_json::{Value, json};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Weak};
use weft_links::WithLinks;
use weft_vfs::{ErrorKind, Vfs};

/// Most failures that the JSON summary lists; standard error has all of them.
const LISTED_MAX: usize = 10_000;

/// Kinds of failures: files that were not copied, or not exactly.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum What {
    File,
    Directory,
    Symlink,
    /// A fifo, socket or device.
    Special,
    /// One more name of a file.
    HardLink,
    /// A transformation link, or an entry of a view.
    Link,
    /// Extended attributes, ACLs, modes and times.
    Attribute,
    Owner,
    /// A file that changed while it was read: the bytes that were read are there.
    Changed,
}

impl What {
    const ALL: [What; 9] = [
        What::File,
        What::Directory,
        What::Symlink,
        What::Special,
        What::HardLink,
        What::Link,
        What::Attribute,
        What::Owner,
        What::Changed,
    ];

    /// Returns the name in the summary.
    fn name(self) -> &'static str {
        match self {
            What::File => "files",
            What::Directory => "directories",
            What::Symlink => "symlinks",
            What::Special => "special_files",
            What::HardLink => "hard_links",
            What::Link => "links",
            What::Attribute => "attributes",
            What::Owner => "owners",
            What::Changed => "changed",
        }
    }
}

/// Reasons to end a copy early.
enum Ended {
    /// There is no room for more.
    Full,
    /// The quota of the volume is used up.
    Quota,
    /// Nothing more can be read or written.
    Failed,
}

struct Failure {
    what: What,
    path: PathBuf,
    why: String,
}

#[derive(Default)]
struct Failures {
    counts: [u64; What::ALL.len()],
    damaged: u64,
    /// True if SQLite could not read the volume's database.
    is_malformed: bool,
    listed: Vec<Failure>,
}

/// A copy in progress.
pub struct Transfer {
    pub progress: Progress,
    interrupt: Arc<Interrupt>,
    /// The volume whose links stop computing after a signal.
    volume: Arc<Mutex<Weak<Vfs>>>,
    kept: AtomicU64,
    excluded: AtomicU64,
    owners_not_kept: AtomicU64,
    times_not_kept: AtomicU64,
    failures: Mutex<Failures>,
    has_ended: AtomicBool,
    ended: Mutex<Option<Ended>>,
}

/// Words about a finished copy.
pub struct Words {
    /// Such as "exported".
    pub done: &'static str,
    /// The same before the counts of what was.
    pub told: &'static str,
    /// Advice for going on.
    pub again: &'static str,
}

impl Words {
    /// Returns the line about a copy that ended early, for a reason of the JSON summary.
    fn early_end(&self, why: &str) -> String {
        let Words { done, again, .. } = self;
        match why {
            "full" => format!("there is no room for more: not all was {done}; make room, then {again}"),
            "quota" => format!(
                "the volume's quota is used up ('weft info VOLUME' tells it): not all was {done}; remove something, then \
                 {again}"
            ),
            "interrupted" => format!("interrupted: not all was {done}; {again}"),
            why => format!("{why}: not all was {done}"),
        }
    }
}

/// Ends all computing of links of `vfs`.
fn stop_computing(vfs: &Arc<Vfs>) {
    if let Ok(links) = vfs.links() {
        links.stop_computing(true);
    }
}

impl Transfer {
    /// Begins a copy, which signals end from now on, with as many open files as this process may
    /// have. Must be called before other threads are started. Fails if `/proc`, by which open files
    /// get their attributes, is not mounted.
    pub fn begin() -> Result<Transfer> {
        ensure!(Path::new("/proc/self/fd").exists(), "/proc is not mounted, and a copy needs it");
        crate::serving::allow_connections();
        let volume = Arc::new(Mutex::new(Weak::<Vfs>::new()));
        let own = volume.clone();
        let stop = move |_| {
            let vfs = own.lock().upgrade();
            vfs.iter().for_each(stop_computing);
        };
        Ok(Transfer {
            interrupt: Interrupt::take(stop)?,
            volume,
            progress: Progress::new(),
            kept: AtomicU64::new(0),
            excluded: AtomicU64::new(0),
            owners_not_kept: AtomicU64::new(0),
            times_not_kept: AtomicU64::new(0),
            failures: Mutex::default(),
            has_ended: AtomicBool::new(false),
            ended: Mutex::default(),
        })
    }

    /// Makes a signal also end the computing of links of `vfs`, which may take for ever.
    pub fn stops(&self, vfs: &Arc<Vfs>) {
        *self.volume.lock() = Arc::downgrade(vfs);
        if self.interrupt.signal().is_some() {
            stop_computing(vfs);
        }
    }

    /// True if more is to be copied.
    pub fn goes_on(&self) -> bool {
        self.interrupt.signal().is_none() && !self.has_ended.load(Ordering::Relaxed)
    }

    /// Counts an entry that was there already.
    pub fn keep(&self) {
        self.kept.fetch_add(1, Ordering::Relaxed);
    }

    /// Counts an entry that the user had left out.
    pub fn exclude(&self) {
        self.excluded.fetch_add(1, Ordering::Relaxed);
    }

    /// Counts an owner that an ordinary user cannot set.
    pub fn owner_not_kept(&self) {
        self.owners_not_kept.fetch_add(1, Ordering::Relaxed);
    }

    /// Names and counts a file whose times a volume cannot hold; that is no failure.
    pub fn times_not_kept(&self, path: &Path) {
        self.times_not_kept.fetch_add(1, Ordering::Relaxed);
        let what = "its times lie outside of the years 1677 to 2262; the nearest in these are kept";
        self.progress.say(&format!("weft: {}: {what}", shown::path(path)));
    }

    /// Names a failure and counts it.
    pub fn fail(&self, what: What, path: &Path, why: &str) {
        let why = shown::message(why);
        self.progress.say(&format!("weft: {}: {why}", shown::path(path)));
        let mut failures = self.failures.lock();
        failures.counts[what as usize] += 1;
        if failures.listed.len() < LISTED_MAX {
            failures.listed.push(Failure { what, path: path.into(), why });
        }
    }

    /// Names and counts an error, with the words `before` in front. An error that would recur for
    /// all that follows ends the copy.
    pub fn fail_with(&self, what: What, path: &Path, before: &str, error: &Error) {
        if error.is::<Interrupted>() || self.interrupt.signal().is_some() && was_stopped(error) {
            return;
        }
        let told = crate::failure::causes(error);
        // Said once, at the end.
        let (told, advice) = told.split_once("; the database is broken").unwrap_or((&told, ""));
        self.fail(what, path, &format!("{before}: {told}"));
        self.failures.lock().is_malformed |= !advice.is_empty();
        if is_damage(error) {
            self.failures.lock().damaged += 1;
        }
        if let Some(full) = full(error) {
            self.end(full);
        } else if is_lost(error) {
            self.end(Ended::Failed);
        }
    }

    /// Reports an error that ends all.
    pub fn end_with(&self, error: &Error) {
        self.progress.say(&format!("weft: {}", shown::message(&crate::failure::one_line(error))));
        self.end(full(error).unwrap_or(Ended::Failed));
    }

    fn end(&self, ended: Ended) {
        self.has_ended.store(true, Ordering::Relaxed);
        self.ended.lock().get_or_insert(ended);
    }

    /// Prints the summary, and returns the exit code: 0 if all was copied, 1 if the named files are
    /// missing, 2 if the copy ended early, 128 and its number if a signal ended it.
    pub fn finish(&self, words: &Words, json: bool) -> ExitCode {
        self.progress.end();
        let failures = self.failures.lock();
        let ended = self.ended.lock();
        let signal = self.interrupt.signal();
        let failed: u64 = failures.counts.iter().sum();
        let why = match (&*ended, signal) {
            (Some(Ended::Full), _) => Some("full"),
            (Some(Ended::Quota), _) => Some("quota"),
            (Some(Ended::Failed), _) => Some("failed"),
            (None, Some(_)) => Some("interrupted"),
            (None, None) => None,
        };
        let summary = if json {
            self.as_json(&failures, why).to_string()
        } else {
            format!("{} {}", words.told, self.as_text(&failures))
        };
        outln!("{summary}");
        if failures.is_malformed {
            let advice = format!("weft: the database of the volume is broken: {}", weft_store::Error::MALFORMED_ADVICE);
            self.progress.say(&crate::advice::filled(&advice));
        }
        if let Some(why) = why {
            self.progress.say(&format!("weft: {}", crate::advice::filled(&words.early_end(why))));
        }
        match (&*ended, signal) {
            (Some(_), _) => ExitCode::from(2),
            (None, Some(signal)) => ExitCode::from(u8::try_from(128 + signal).unwrap_or(2)),
            (None, None) if failed > 0 => ExitCode::FAILURE,
            (None, None) => ExitCode::SUCCESS,
        }
    }

    fn as_text(&self, failures: &Failures) -> String {
        let counts = self.progress.counts();
        let size = crate::size::show(counts.bytes);
        let mut text = format!(
            "{} ({size}), {}, {}",
            shown::counted(counts.files, "file", "files"),
            shown::counted(counts.directories, "directory", "directories"),
            shown::counted(counts.others, "other", "others")
        );
        let mut add = |count: u64, what: &str| {
            if count > 0 {
                text.push_str(&format!("; {count} {what}"));
            }
        };
        add(self.kept.load(Ordering::Relaxed), "were there already");
        add(self.excluded.load(Ordering::Relaxed), "left out by --exclude");
        let were = if failures.damaged == 1 { "damaged file was left out" } else { "damaged files were left out" };
        add(failures.damaged, were);
        add(self.owners_not_kept.load(Ordering::Relaxed), "owners were not kept, which only root can set");
        add(self.times_not_kept.load(Ordering::Relaxed), "had times that a volume cannot hold");
        let failed: Vec<String> = failed(failures).map(|(what, count)| words(what, count)).collect();
        if !failed.is_empty() {
            text.push_str(&format!("; failed: {}", failed.join(", ")));
        }
        text
    }

    fn as_json(&self, failures: &Failures, why: Option<&str>) -> Value {
        let counts = self.progress.counts();
        let failed: serde_json::Map<String, Value> =
            What::ALL.iter().map(|what| (what.name().into(), failures.counts[*what as usize].into())).collect();
        let total: u64 = failures.counts.iter().sum();
        let listed: Vec<Value> = failures.listed.iter().map(Failure::as_json).collect();
        json!({
            "complete": total == 0 && why.is_none(),
            "ended": why,
            "files": counts.files,
            "directories": counts.directories,
            "others": counts.others,
            "bytes": counts.bytes,
            "kept": self.kept.load(Ordering::Relaxed),
            "excluded": self.excluded.load(Ordering::Relaxed),
            "owners_not_kept": self.owners_not_kept.load(Ordering::Relaxed),
            "times_not_kept": self.times_not_kept.load(Ordering::Relaxed),
            "damaged": failures.damaged,
            "failed": failed,
            "failures_not_listed": total - listed.len() as u64,
            "failures": listed,
        })
    }
}

impl Failure {
    fn as_json(&self) -> Value {
        let mut value = path_as_json(self.path.as_os_str().as_bytes());
        value.insert("kind".into(), self.what.name().into());
        value.insert("why".into(), self.why.clone().into());
        value.into()
    }
}

/// Returns the kinds with failures.
fn failed(failures: &Failures) -> impl Iterator<Item = (What, u64)> {
    What::ALL.into_iter().map(|what| (what, failures.counts[what as usize])).filter(|(_, count)| *count > 0)
}

fn words(what: What, count: u64) -> String {
    let names = what.name().replace('_', " ");
    let name = names.strip_suffix("ies").map(|stem| format!("{stem}y"));
    let name = name.or_else(|| names.strip_suffix('s').map(str::to_owned));
    match (what, count) {
        (What::Changed, 1) => "1 changed while it was read".into(),
        (What::Changed, _) => format!("{count} changed while they were read"),
        (_, 1) => format!("1 {}", name.unwrap_or(names)),
        _ => format!("{count} {names}"),
    }
}

/// True if a network was ended.
fn was_stopped(error: &Error) -> bool {
    let mut causes = error.chain().filter_map(|cause| cause.downcast_ref::<weft_vfs::Error>());
    causes.any(|cause| cause.kind() == ErrorKind::Interrupted)
}

/// The error that ends the copy of one file when the whole copy has ended.
#[derive(Debug)]
pub struct Interrupted;

impl std::fmt::Display for Interrupted {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("the copy ended")
    }
}

impl std::error::Error for Interrupted {}

fn is_damage(error: &Error) -> bool {
    error.downcast_ref::<weft_vfs::Error>().is_some_and(|error| error.kind() == ErrorKind::Corrupt)
}

/// Returns the end of a copy for which there is no room.
fn full(error: &Error) -> Option<Ended> {
    if error.downcast_ref::<Errno>().is_some_and(|errno| matches!(*errno, Errno::NOSPC | Errno::DQUOT)) {
        return Some(Ended::Full);
    }
    match error.downcast_ref::<weft_vfs::Error>()?.kind() {
        ErrorKind::NoSpace => Some(Ended::Full),
        ErrorKind::QuotaExceeded => Some(Ended::Quota),
        _ => None,
    }
}

/// True if another daemon has taken the volume.
fn is_lost(error: &Error) -> bool {
    let source = |error: &weft_vfs::Error| -> Option<weft_store::ErrorKind> {
        Some(std::error::Error::source(error)?.downcast_ref::<weft_store::Error>()?.kind())
    };
    error.downcast_ref::<weft_vfs::Error>().and_then(source) == Some(weft_store::ErrorKind::Locked)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_is_counted_in_the_singular() {
        let told = [What::File, What::Directory, What::Changed].map(|what| [1, 2].map(|count| words(what, count)));
        assert_eq!(told[0], ["1 file", "2 files"]);
        assert_eq!(told[1], ["1 directory", "2 directories"]);
        assert_eq!(told[2], ["1 changed while it was read", "2 changed while they were read"]);
    }

    #[test]
    fn a_copy_goes_on_by_itself_only_after_an_interruption() {
        let words = Words { done: "imported", told: "imported", again: "the same command goes on from there" };
        let line = |why| words.early_end(why);
        assert_eq!(line("interrupted"), "interrupted: not all was imported; the same command goes on from there");
        assert!(line("full").contains("make room, then the same command"), "{}", line("full"));
        assert_eq!(line("failed"), "failed: not all was imported");
    }
}
