//! Checking a volume that nobody has mounted: every invariant of `docs/reference/format.md`, and
//! repair.
//!
//! Nearly all is asked in SQL: a [`rules::Rule`] is a query for what breaks an invariant, with the
//! statements that put it right. Repair is one transaction and one commit of the volume. It deletes
//! no content: inodes that no name leads to get one in `/lost+found`, and a file with damaged
//! blocks is reported and left alone.

mod blocks;
mod content;
mod damaged;
mod digests;
mod free_pages;
mod gone;
mod history;
mod inlined;
mod integrity;
mod lost;
mod moments;
mod names;
mod overlaps;
mod parts;
mod rules;
mod survey;

pub(super) use damaged::{Offender, give_up_attributes};
pub(super) use moments::newest;
pub(super) use survey::{path_of, refuse_damage, refuse_damaged_rows, survey};

use super::aside::leave_wal;
use super::behind;
use super::connection::{AtClose, at_close, connect_somehow};
use super::digests::ReadElsewhere;
use super::foreign::Alone;
use super::layout::Layout;
use super::lost_wal;
use super::medium::{Medium, Need, Reading, look, refuse_read_only};
use super::network::refuse_shared;
use super::open::{connect, hold, read_header};
use super::segments::Segments;
use super::{shape, sums};
use crate::error::{Error, ErrorKind, Result};
use crate::finding::{CheckOptions, Finding, Outcome, Progress, Repair};
use crate::log::{IntentLog, Loss};
use crate::row::{BlockId, OpNo};
use crate::store::Header;
use crate::waiting::Waiting;
use free_pages::FreePages;
use rules::Rule;
use rusqlite::Connection;
use rusqlite::types::ValueRef;
use std::path::Path;

/// Most findings reported of one rule; the rest are only counted.
const FINDINGS_MAX: usize = 1000;

/// Ids left free for the operations that still wait in the intent log.
const LOG_IDS: u64 = 1 << 32;

/// Begins a check. It goes through each table many times, so up to 256 MiB of pages are cached; a
/// table that is larger than the cache is read again each time. Working tables lie in a file.
const BEGIN: &str = "PRAGMA main.cache_size = -262144; PRAGMA temp_store = FILE; PRAGMA temp.cache_size = -32768; \
                     PRAGMA synchronous = FULL; BEGIN IMMEDIATE";

fn failed(source: rusqlite::Error) -> Error {
    use rusqlite::ErrorCode;
    match source.sqlite_error_code() {
        // The statements are always the same ones: what they stumble over is a value that no Weft
        // writes.
        Some(ErrorCode::TypeMismatch | ErrorCode::Unknown | ErrorCode::ConstraintViolation | ErrorCode::TooBig) => {
            Error::Corrupt(format!("a row holds what no Weft writes, and the check cannot go on: {source}"))
        }
        _ => Error::Sqlite { what: "cannot check the database", source },
    }
}

/// Checks the volume at `path`, which it holds meanwhile. Errors: those of [`super::open`], and
/// what keeps the check from going on; damage is a finding, not an error.
pub fn check(path: &Path, options: CheckOptions, progress: &mut dyn FnMut(Progress)) -> Result<Vec<Finding>> {
    let (layout, _rights) = Layout::enter(path)?;
    if look(&layout)? != Medium::Writable {
        return check_read_only(&layout, options, progress);
    }
    refuse_shared(&layout)?;
    let _hold = hold(&layout)?;
    if let Some(refusal) = lost_wal::refusal(&layout, &layout)? {
        // SQLite would pass over damage, and delete it when it closes.
        return Ok(vec![damage(refusal.to_string())]);
    }
    // Before anything else opens the database, as below.
    let list = free_pages::look(&layout)?;
    let alone = Alone::look(&layout);
    let connected = match connect_somehow(&layout, 64) {
        Err(Error::Corrupt(what)) => return Ok(vec![damage(what)]),
        connected => connected,
    };
    let (connection, _) = connected.map_err(|error| alone.explain(error, &layout))?;
    leave_wal(&layout, &connection)?;
    if let Err(Error::Lost(what)) = alone.refuse_foreign(&connection, &layout) {
        return Ok(vec![damage(what)]);
    }
    check_rows(connection, layout, options, (None, list), progress)
}

/// The finding about a volume of which nothing else can be asked.
fn damage(what: String) -> Finding {
    Finding::damage(what)
}

/// Checks a volume where nothing can be written, by a copy of its database.
fn check_read_only(layout: &Layout, options: CheckOptions, progress: &mut dyn FnMut(Progress)) -> Result<Vec<Finding>> {
    if options.repair != Repair::No {
        if matches!(look(layout)?, Medium::Linked(_)) {
            refuse_read_only(layout)?;
        }
        let what = "lies where nothing can be written, and cannot be repaired there; copy it and repair the copy";
        return Err(Error::Unusable(format!("{} {what}", layout.volume.display())));
    }
    let reading = Reading::open(layout, Need::Changes)?;
    if let Some(refusal) = lost_wal::refusal(layout, &reading.layout)? {
        return Ok(vec![damage(refusal.to_string())]);
    }
    let free_pages = free_pages::look(&reading.layout)?;
    let connection = match reading.connect(64) {
        Err(Error::Corrupt(what)) => return Ok(vec![damage(what)]),
        connected => connected?,
    };
    check_rows(connection, reading.layout.clone(), options, (None, free_pages), progress)
}

/// The parts of a volume that a copy of its rows lacks.
pub(crate) struct Elsewhere<'a> {
    /// Blocks that are damaged, and how.
    pub(crate) bad: Vec<(BlockId, &'static str)>,
    /// The last operation that waits in the intent log.
    pub(crate) logged: Option<OpNo>,
    /// Reads a block.
    pub(crate) read: &'a ReadElsewhere<'a>,
}

/// Checks a copy of a volume's rows at `path`, and repairs the copy if asked for.
pub(crate) fn check_copy(
    path: &Path,
    repair: Repair,
    elsewhere: Elsewhere<'_>,
    progress: &mut dyn FnMut(Progress),
) -> Result<Vec<Finding>> {
    let layout = Layout::find(path)?;
    let connection = connect(&layout.database, 64)?;
    let options = CheckOptions { repair, read_data: false };
    check_rows(connection, layout, options, (Some(elsewhere), FreePages::AsFound(None)), progress)
}

fn check_rows(
    connection: Connection,
    layout: Layout,
    options: CheckOptions,
    (elsewhere, free_pages): (Option<Elsewhere<'_>>, FreePages),
    progress: &mut dyn FnMut(Progress),
) -> Result<Vec<Finding>> {
    connection.execute_batch(BEGIN).map_err(failed)?;
    // Before anything changes.
    let untold = match &free_pages {
        FreePages::AsFound(Some(free)) => match free_pages::untold(&connection, free) {
            Err(error) if error.kind() == ErrorKind::Corrupt => Vec::new(),
            untold => untold?,
        },
        _ => Vec::new(),
    };
    let (mut options, mut shaped, mut is_of_one_moment, mut is_mended) = (options, Vec::new(), true, false);
    // A copy has tables of its own, and no log.
    if elsewhere.is_none() {
        (options, shaped) = moments::compare(&layout, &connection, options)?;
        is_of_one_moment = shaped.is_empty();
        let (mut findings, is_hopeless) = shape::mend(&connection, options.repair)?;
        shaped.append(&mut findings);
        if is_hopeless {
            return Ok(shaped);
        }
        is_mended = shaped.iter().any(|finding| finding.outcome == Outcome::Repaired);
        if is_mended {
            at_close(&connection, AtClose::Copy)?;
        }
    }
    let mut checker = Checker {
        connection,
        layout,
        options,
        elsewhere,
        free_pages,
        untold,
        is_of_one_moment,
        is_mended,
        is_damaged: false,
        findings: Vec::new(),
        progress,
    };
    match checker.run() {
        Ok(()) => {}
        // What cannot even be read is damage like any other.
        Err(error) if error.kind() == ErrorKind::Corrupt => {
            checker.connection.execute_batch("ROLLBACK").map_err(failed)?;
            checker.nothing_is_repaired();
            checker.volume_finding(format!("{error}; the check could not go on: {}", integrity::ADVICE));
        }
        Err(error) => return Err(error),
    }
    if let FreePages::Suspect(complaints) = checker.free_pages {
        let Checker { connection, layout, progress, .. } = checker;
        return free_pages::settle(connection, layout, options, &complaints, progress);
    }
    shaped.append(&mut checker.findings);
    Ok(shaped)
}

/// One check under way, in a transaction. It puts right what it can even if that was not asked for,
/// so that one damage is not reported again by every rule it upsets, and then rolls back.
struct Checker<'a> {
    connection: Connection,
    layout: Layout,
    options: CheckOptions,
    /// The parts that are not here, if these rows are a copy.
    elsewhere: Option<Elsewhere<'a>>,
    free_pages: FreePages,
    /// Complaints of pages that SQLite may leave out.
    untold: Vec<String>,
    /// True if the database and the intent log belong together.
    is_of_one_moment: bool,
    /// True if the schema was put right. A commit of its own follows, so that no write-ahead log
    /// from before fits the database any more.
    is_mended: bool,
    /// True if there are damaged rows, so that nothing is put right.
    is_damaged: bool,
    findings: Vec<Finding>,
    progress: &'a mut dyn FnMut(Progress),
}

impl Checker<'_> {
    fn run(&mut self) -> Result<()> {
        let step = |this: &mut Self, step, done| (this.progress)(Progress { step, done, total: 7 });
        step(self, "database", 0);
        if !self.database()? {
            return Ok(());
        }
        self.renew_row()?;
        let header = read_header(&self.connection)?;
        self.connection.execute_batch(rules::SCRATCH).map_err(failed)?;
        self.damaged(&header)?;
        self.apply_rules(rules::VALUES)?;
        self.history()?;
        let unlike = self.contradictions(&header)?;
        self.remake(&header)?;
        self.find_log(&header)?;
        step(self, "names", 1);
        self.names()?;
        // What is given up here is lost then.
        self.overlaps()?;
        step(self, "lost inodes", 2);
        self.lost(&header)?;
        step(self, "content", 3);
        self.links()?;
        self.content()?;
        step(self, "blocks", 4);
        self.blocks(&header)?;
        step(self, "counters", 5);
        self.apply_rules(rules::COUNTERS)?;
        self.lost_commits()?;
        step(self, "digests", 6);
        if self.is_repaired() {
            // What this check has changed, for there are no damaged rows.
            sums::seal(&self.connection)?;
        }
        self.digests(&header, &unlike)?;
        step(self, "digests", 7);
        if self.is_repaired() {
            self.connection.execute_batch(rules::NEW_COMMIT).map_err(failed)?;
            sums::seal(&self.connection)?;
            self.chain_commit()?;
            sums::COMMIT.seal(&self.connection)?;
            self.connection.execute_batch("COMMIT").map_err(failed)?;
            // What was repaired is the volume from now on.
            at_close(&self.connection, AtClose::Copy)
        } else {
            self.nothing_is_repaired();
            self.connection.execute_batch("ROLLBACK").map_err(failed)
        }
    }

    fn nothing_is_repaired(&mut self) {
        let repaired = self.findings.iter_mut().filter(|finding| finding.outcome == Outcome::Repaired);
        repaired.for_each(|finding| finding.outcome = Outcome::Damaged);
    }

    /// True if this check has put something right that is to stay so. Rebuilt indices do not stay
    /// where rows are damaged.
    fn is_repaired(&self) -> bool {
        !self.is_damaged && (self.is_mended || self.findings.iter().any(|finding| finding.outcome == Outcome::Repaired))
    }

    /// Has the last commit say what tree it leaves, and which commit came before.
    fn chain_commit(&self) -> Result<()> {
        // The row may not have its sum yet.
        let last = "SELECT number FROM volume";
        let last = self.connection.query_row(last, (), |row| super::read::unsigned(row, 0)).map_err(failed)?;
        let last = crate::CommitNo(last);
        let root = super::read::digest_of(&self.connection, crate::Ino::ROOT)?;
        let before = super::read::commits(&self.connection, crate::CommitNo(last.0 - 1), 1)?;
        let previous = before.first().filter(|before| before.number < last).and_then(crate::CommitRow::digest);
        let bytes = |digest: Option<weft_digest::Digest>| digest.map(|digest| digest.to_vec());
        let statement = "UPDATE commits SET root_digest = ?2, previous_digest = ?3 WHERE number = ?1";
        let row = (super::read::sql(last.0), bytes(root), bytes(previous));
        self.connection.execute(statement, row).map(|_| ()).map_err(failed)
    }

    /// SQLite's own invariants. False if they do not hold: nothing said of the rows would be worth
    /// much.
    fn database(&mut self) -> Result<bool> {
        let mut damaged = integrity::complaints(&self.connection)?;
        let untold = std::mem::take(&mut self.untold);
        damaged.extend(untold.into_iter().filter(|line| !damaged.contains(line)).collect::<Vec<_>>());
        if self.are_free_pages_damaged(&damaged)? {
            return Ok(false);
        }
        if damaged.is_empty() {
            return Ok(true);
        }
        // An index can be rebuilt from its table.
        let whole = self.options.repair != Repair::No
            && self.connection.execute_batch("REINDEX").is_ok()
            && integrity::complaints(&self.connection)?.is_empty();
        self.findings.extend(integrity::findings(damaged, self.options.repair, whole));
        if !whole {
            self.connection.execute_batch("ROLLBACK").map_err(failed)?;
        }
        Ok(whole)
    }

    /// Operations that wait in the intent log are no damage; ids they may use must stay free.
    fn find_log(&mut self, header: &Header) -> Result<()> {
        let last = match &self.elsewhere {
            Some(elsewhere) => elsewhere.logged,
            None => self.logged(header)?,
        };
        let Some(last) = last.filter(|last| *last > header.counters.op) else { return Ok(()) };
        let waiting = Waiting { operations: last.0 - header.counters.op.0, ..Waiting::default() };
        waiting.note().into_iter().for_each(|note| self.note(note));
        let statement = "UPDATE volume SET next_id = next_id + ?1";
        self.connection.execute(statement, (super::read::sql(LOG_IDS),)).map_err(failed)?;
        Ok(())
    }

    /// The last operation that waits in the log in a file. Says so if segments are of a later
    /// moment than the database.
    fn logged(&mut self, header: &Header) -> Result<Option<OpNo>> {
        if !self.is_of_one_moment {
            leave_wal(&self.layout, &self.connection)?;
        } else if let Some(later) = behind::misfit(&self.layout, header, &self.connection, self.segments().as_ref())? {
            self.volume_finding(later);
            // A commit of a repair would be taken for one that came after the segments.
            self.is_damaged = true;
        } else {
            let held = behind::held(&self.layout, header, &self.connection, self.segments().as_ref())?;
            held.into_iter().for_each(|held| self.note(held));
        }
        let Some(log) = IntentLog::read(&self.layout.log)? else { return Ok(None) };
        // A mount that accepts the loss applies what is left.
        let mut log = log.with(Loss::Accept);
        log.check(header)?;
        if !log.carried().is_empty() {
            self.note("bytes written over a damaged block wait in the intent log".into());
        }
        Ok(log.records().last().map(|record| record.last))
    }

    fn note(&mut self, what: String) {
        self.findings.push(Finding::new(None, what, Outcome::Note));
    }

    fn volume_finding(&mut self, what: String) {
        self.findings.push(Finding::damage(what));
    }

    /// Returns the outcome of damage that this check can put right.
    fn repaired(&self) -> Outcome {
        match self.options.repair {
            Repair::Yes | Repair::Discard if !self.is_damaged => Outcome::Repaired,
            Repair::Yes | Repair::Discard | Repair::No => Outcome::Damaged,
        }
    }

    fn find(&mut self, ino: i64, what: String, outcome: Outcome) -> Result<()> {
        let path = Some(self.path(ino, None)?);
        self.findings.push(Finding::new(path, what, outcome));
        Ok(())
    }

    /// Applies them in turn, and tells how much broke them.
    fn apply_rules(&mut self, rules: &[Rule]) -> Result<usize> {
        rules.iter().try_fold(0, |count, rule| Ok(count + self.apply_rule(rule)?))
    }

    /// Reports the rows that break `rule`, repairs them, and returns their number.
    fn apply_rule(&mut self, rule: &Rule) -> Result<usize> {
        let outcome = match (rule.is_note, rule.repair) {
            (true, _) => Outcome::Note,
            (false, []) => Outcome::Damaged,
            (false, _) => self.repaired(),
        };
        let mut found = Vec::new();
        let mut count = 0;
        {
            let mut statement = self.connection.prepare(rule.offenders).map_err(failed)?;
            let mut rows = statement.query(()).map_err(failed)?;
            while let Some(row) = rows.next().map_err(failed)? {
                count += 1;
                if count <= FINDINGS_MAX {
                    found.push(Offender::read(row, rule));
                }
            }
        }
        for Offender { ino, name, what, subject } in found {
            let path = ino.map(|ino| self.path(ino, name.as_deref())).transpose()?;
            self.findings.push(Finding::new(path, what, outcome).about(subject));
        }
        if count > FINDINGS_MAX {
            self.findings.push(Finding::more(count - FINDINGS_MAX, outcome));
        }
        if count > 0 {
            for statement in rule.repair {
                self.connection.execute_batch(statement).map_err(failed)?;
            }
        }
        Ok(count)
    }

    /// The path of inode `ino`, and of `name` in it.
    fn path(&self, ino: i64, name: Option<&[u8]>) -> Result<Vec<u8>> {
        let mut parts: Vec<Vec<u8>> = name.map(<[u8]>::to_vec).into_iter().collect();
        let statement = "SELECT parent, name FROM reached WHERE ino = ?1";
        let mut statement = self.connection.prepare_cached(statement).map_err(failed)?;
        let mut at = ino;
        while at != 1 {
            let step = statement.query_row((at,), |row| Ok((row.get::<_, i64>(0)?, bytes(row, 1))));
            match step {
                Ok((parent, name)) => {
                    parts.push(name.unwrap_or_default());
                    at = parent;
                }
                Err(rusqlite::Error::QueryReturnedNoRows) => {
                    parts.push(format!("#{at}").into_bytes());
                    parts.reverse();
                    return Ok(parts.join(&b'/'));
                }
                Err(error) => return Err(failed(error)),
            }
        }
        parts.push(Vec::new());
        parts.reverse();
        let path = parts.join(&b'/');
        Ok(if path.is_empty() { b"/".to_vec() } else { path })
    }

    fn segments(&self) -> Option<Segments> {
        // Checking writes to no segment, and they may lie where that cannot be.
        self.layout.segments.clone().map(Segments::new_to_read)
    }
}

/// The bytes of a column, whatever its type; none for NULL.
fn bytes(row: &rusqlite::Row<'_>, column: usize) -> Option<Vec<u8>> {
    match row.get_ref(column).ok()? {
        ValueRef::Null => None,
        ValueRef::Integer(number) => Some(number.to_string().into_bytes()),
        ValueRef::Real(number) => Some(number.to_string().into_bytes()),
        ValueRef::Text(bytes) | ValueRef::Blob(bytes) => Some(bytes.to_vec()),
    }
}

fn text(row: &rusqlite::Row<'_>, column: usize) -> String {
    String::from_utf8_lossy(&bytes(row, column).unwrap_or_default()).into_owned()
}
