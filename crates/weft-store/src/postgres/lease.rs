//! The row that says which daemon holds the volume, until when; and who renews it.
//!
//! Each holder has an epoch of its own, which every commit checks in its own transaction: a daemon
//! that slept past the end of its lease, while another took it, can change nothing any more. Times
//! are the server's alone.

use super::connection::{Call, Connection};
use super::open::Connector;
use super::read::{get, unsigned};
use super::statements as sql;
use crate::engine::OpenOptions;
use crate::error::{Error, Result};
use parking_lot::{Condvar, Mutex};
use rustix::io::Errno;
use rustix::process::{Pid, test_kill_process};
use std::fmt;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};
use tokio_postgres::Row;

const WHAT: &str = "cannot hold the volume";

/// Bytes that a server keeps of what its clients call themselves.
const APPLICATION_BYTES_MAX: usize = 63;

/// Ends the connections of a daemon that did not end itself: stopped in a transaction it would be
/// waited for until the server gives up on it. An engine that cannot do this does without, and so
/// does a role other than that daemon's.
const END_CONNECTIONS: &str = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity \
                               WHERE application_name = $1 AND datname = current_database() AND usename = current_user";

/// After how long one who waits looks again at first, and in the end.
const LOOK_AGAIN: Duration = Duration::from_millis(200);
const LOOK_AGAIN_LATER: Duration = Duration::from_secs(1);

/// Time after which the user is told of the wait.
const TELL_AFTER: Duration = Duration::from_secs(2);

/// A process, of one boot of one machine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Holder {
    host: String,
    boot: String,
    pid: u32,
    started: String,
    /// Words for what it does with the volume, such as where it has it mounted; may be empty.
    purpose: String,
}

/// Characters of a purpose that are kept.
const PURPOSE_MAX: usize = 512;

impl fmt::Display for Holder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "process {} on {}", self.pid, self.host)?;
        if self.purpose.is_empty() { Ok(()) } else { write!(f, " ({})", self.purpose) }
    }
}

impl Holder {
    /// This process, which holds a volume for `purpose`.
    pub(super) fn this(purpose: &str) -> Holder {
        let printable = |c: char| if c.is_control() { char::REPLACEMENT_CHARACTER } else { c };
        let purpose = purpose.chars().take(PURPOSE_MAX).map(printable).collect();
        let pid = std::process::id();
        let started = match Seen::at(Path::new(PROC), pid) {
            Seen::Began(started) => started,
            Seen::Ended | Seen::Hidden => String::new(),
        };
        Holder { host: host(), boot: boot(), pid, started, purpose }
    }

    pub(super) fn to_row(&self) -> String {
        let Holder { host, boot, pid, started, purpose } = self;
        let process = format!("{host} {pid} {boot} {started}");
        if purpose.is_empty() { process } else { format!("{process} {purpose}") }
    }

    /// Returns the name of its connections for the volume in `schema`, cut to the length that the
    /// server keeps.
    pub(super) fn application(&self, schema: &str) -> String {
        let mut name = format!("weft {} {} {schema}", self.pid, self.started);
        name.truncate(APPLICATION_BYTES_MAX);
        name
    }

    fn from_row(text: &str) -> Option<Holder> {
        let mut parts = text.splitn(5, ' ').map(str::to_owned);
        let (host, pid) = (parts.next()?, parts.next()?.parse().ok()?);
        let (boot, started) = (parts.next()?, parts.next()?);
        // Older programs say nothing of it.
        Some(Holder { host, pid, boot, started, purpose: parts.next().unwrap_or_default() })
    }

    /// True if it ran on this machine and has ended: nobody needs to wait for its lease. One that
    /// cannot be seen has not.
    fn has_ended_here(&self) -> bool {
        self.has_ended(&boot(), Path::new(PROC))
    }

    /// The same on a machine whose start is `boot`, as far as `proc` shows processes.
    fn has_ended(&self, boot: &str, proc: &Path) -> bool {
        if boot.is_empty() || self.boot != boot {
            return false;
        }
        match Seen::at(proc, self.pid) {
            // Another process has the number now, unless the holder could not see itself.
            Seen::Began(started) => started != self.started && !self.started.is_empty(),
            Seen::Ended => true,
            Seen::Hidden => false,
        }
    }
}

fn host() -> String {
    rustix::system::uname().nodename().to_string_lossy().replace(' ', "_")
}

fn boot() -> String {
    let id = std::fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default();
    // Processes of another namespace have numbers of their own.
    match std::fs::read_link("/proc/self/ns/pid") {
        Ok(namespace) if !id.is_empty() => format!("{}/{}", id.trim(), namespace.display()),
        _ => String::new(),
    }
}

/// Directory of processes.
const PROC: &str = "/proc";

/// The visible state of a process.
#[derive(Debug, PartialEq, Eq)]
enum Seen {
    /// Its start, in ticks since the machine's (proc(5), field 22 of /proc/PID/stat).
    Began(String),
    /// There is none.
    Ended,
    /// There is one, but not to be looked at (proc(5), `hidepid`).
    Hidden,
}

impl Seen {
    fn at(proc: &Path, pid: u32) -> Seen {
        let stat = std::fs::read_to_string(proc.join(pid.to_string()).join("stat"));
        let began = stat.ok().and_then(|stat| {
            let after_name = stat.rsplit_once(") ")?.1;
            // A process that has ended but whose parent has not looked yet holds nothing.
            let began = after_name.split(' ').nth(19).map(|ticks| Seen::Began(ticks.to_owned()))?;
            Some(if after_name.starts_with('Z') { Seen::Ended } else { began })
        });
        began.unwrap_or_else(|| {
            let pid = i32::try_from(pid).ok().and_then(Pid::from_raw);
            // The kernel tells any user that a process exists.
            let is_there = pid.is_none_or(|pid| test_kill_process(pid) != Err(Errno::SRCH));
            if is_there { Seen::Hidden } else { Seen::Ended }
        })
    }
}

/// No holder has an epoch above this: there is room to count on, and to recreate the row.
const EPOCH_MAX: i64 = 1 << 61;

/// Returns the fault in the row of the lease that keeps everybody from holding the volume.
pub(super) fn fault(connection: &mut Connection) -> Result<Option<&'static str>> {
    let rows = connection.query(WHAT, sql::LEASE, Vec::new())?;
    let epoch = rows.first().map(|row| get::<i64>(row, 0)).transpose()?;
    Ok(match epoch {
        None => Some("the row of the lease is gone, without which nothing holds the volume"),
        Some(0..=EPOCH_MAX) => None,
        Some(_) => Some("the row of the lease has an epoch that no holder had, so that nothing holds the volume"),
    })
}

/// Recreates the row of the lease if it is damaged; returns the fault.
pub(super) fn mend(connection: &mut Connection) -> Result<Option<&'static str>> {
    let fault = fault(connection)?;
    if fault.is_some() {
        connection.query(WHAT, sql::MAKE_LEASE, vec![Box::new(EPOCH_MAX)])?;
    }
    Ok(fault)
}

/// Returns the error for `fault`, with advice.
pub(super) fn damaged(fault: &str) -> Error {
    Error::Corrupt(format!("{fault}; 'weft check --repair' makes it anew"))
}

/// The refusal of a volume that `holder` has, after a wait.
fn in_use(holder: Option<&Holder>, waited: Duration) -> String {
    let who = holder.map_or_else(|| "another process".into(), Holder::to_string);
    let end = match holder {
        Some(Holder { pid, purpose, .. }) if purpose.starts_with("served at ") => {
            format!("end that there first ('kill {pid}', which commits all)")
        }
        _ => "unmount it there first".to_owned(),
    };
    match waited.as_secs() {
        0 => format!(
            "it is in use by {who}; {end}, or wait until it is let go of, or until the lease of a process that is gone \
             ends (weft mount --wait SECONDS)"
        ),
        1 => format!("it is still in use by {who} after 1 second; {end}"),
        seconds => format!("it is still in use by {who} after {seconds} seconds; {end}"),
    }
}

/// The lease of a volume, renewed until dropped.
pub(super) struct Lease {
    shared: Arc<Shared>,
    renewer: Option<JoinHandle<()>>,
}

struct Shared {
    epoch: i64,
    lost: AtomicBool,
    /// Words for who took it.
    taker: Mutex<Option<String>>,
    /// Time for which the lease holds if it is not renewed.
    term: Duration,
    /// When the server last answered.
    answered: Mutex<Instant>,
    ending: Mutex<bool>,
    wake: Condvar,
}

impl Lease {
    /// Takes the lease, as soon as nobody else holds it.
    pub(super) fn take(
        mut connection: Connection,
        connector: &Connector,
        holder: &Holder,
        options: &OpenOptions,
    ) -> Result<Lease> {
        let term = i64::try_from(options.lease.as_millis()).unwrap_or(i64::MAX);
        let (mut waited, mut pause, mut is_told) = (Duration::ZERO, LOOK_AGAIN, false);
        if let Some(fault) = fault(&mut connection)? {
            return Err(damaged(fault));
        }
        let epoch = loop {
            let rows = connection.query(WHAT, sql::LEASE, Vec::new())?;
            let row = rows.first().ok_or_else(|| damaged("the row of the lease is gone"))?;
            let (epoch, text, is_held) = (get::<i64>(row, 0)?, get::<String>(row, 1)?, get::<bool>(row, 2)?);
            let was_left = get::<bool>(row, 3)?;
            let other = Holder::from_row(&text);
            if !is_held || other.as_ref().is_some_and(Holder::has_ended_here) {
                if let Some(other) = other.filter(|_| was_left) {
                    let _ = connection.query(
                        WHAT,
                        END_CONNECTIONS,
                        vec![Box::new(other.application(&connector.address.schema))],
                    );
                }
                let parameters: Vec<_> =
                    vec![Box::new(epoch) as _, Box::new(holder.to_row()) as _, Box::new(term) as _];
                connection.take_warning();
                // None if somebody else was faster.
                if let Some(row) = connection.query(WHAT, sql::TAKE_LEASE, parameters)?.first() {
                    if connection.take_warning() {
                        // What the last holder committed may not be on a standby that this one was
                        // to wait for.
                        return Err(Error::Unconfirmed);
                    }
                    break unsigned(row, 0)?;
                }
            } else {
                let who = other.as_ref().map_or_else(|| "another process".into(), Holder::to_string);
                if waited >= options.wait {
                    return Err(Error::Held(in_use(other.as_ref(), options.wait)));
                }
                if waited >= TELL_AFTER && !std::mem::replace(&mut is_told, true) {
                    (options.tell)(&format!("waiting for {who} to let go of the volume"));
                }
            }
            // Nobody waits for less than this, and a server is not to be asked without end.
            #[expect(clippy::disallowed_methods, reason = "the other daemon tells nobody when it ends")]
            thread::sleep(pause);
            waited += pause;
            pause = (pause + pause / 8).min(LOOK_AGAIN_LATER);
        };
        let epoch = i64::try_from(epoch).map_err(|_| Error::Corrupt("the epoch of the lease".into()))?;
        let shared = Arc::new(Shared {
            epoch,
            lost: AtomicBool::new(false),
            taker: Mutex::default(),
            term: options.lease,
            answered: Mutex::new(Instant::now()),
            ending: Mutex::new(false),
            wake: Condvar::new(),
        });
        let (own, connector) = (shared.clone(), connector.clone());
        let started = thread::Builder::new().name("weft-lease".into()).spawn(move || own.renew(connection, &connector));
        let source = |source| Error::Io { what: "cannot start a thread for", path: "the lease".into(), source };
        Ok(Lease { shared, renewer: Some(started.map_err(source)?) })
    }

    /// Returns the number of this holder of the volume, counted from 1.
    pub(super) fn epoch(&self) -> i64 {
        self.shared.epoch
    }

    /// True if another daemon has taken it.
    pub(super) fn is_lost(&self) -> bool {
        self.shared.lost.load(Ordering::Acquire)
    }

    /// Words for the process that took it, if that was seen.
    pub(super) fn taker(&self) -> Option<String> {
        self.shared.taker.lock().clone()
    }

    /// Returns the time since the server last answered, if that is longer than the lease holds.
    pub(super) fn unanswered(&self) -> Option<Duration> {
        let since = self.shared.answered.lock().elapsed();
        (since > self.shared.term).then_some(since)
    }
}

/// Words for the process that the row of the lease names.
pub(super) fn holder_named(connection: &mut Connection) -> Option<String> {
    connection.query(WHAT, sql::LEASE, Vec::new()).ok()?.first().and_then(holder_of)
}

fn holder_of(row: &Row) -> Option<String> {
    Some(Holder::from_row(&get::<String>(row, 1).ok()?)?.to_string())
}

impl Shared {
    fn renew(&self, connection: Connection, connector: &Connector) {
        let term = i64::try_from(self.term.as_millis()).unwrap_or(i64::MAX);
        let mut connection = Some(connection);
        loop {
            {
                let mut ending = self.ending.lock();
                if !*ending {
                    self.wake.wait_for(&mut ending, self.term / 3);
                }
                if *ending {
                    break;
                }
            }
            if connection.as_ref().is_none_or(Connection::is_closed) {
                connection = connector.connect().ok();
            }
            let Some(open) = &mut connection else { continue };
            // The row is read as well, so that another volume's is noticed.
            let renew = Call::new(sql::RENEW_LEASE, vec![Box::new(self.epoch), Box::new(term)]);
            let renewed = open.query_all(WHAT, &[renew, Call::new(sql::LEASE, Vec::new())]);
            if renewed.is_ok() {
                *self.answered.lock() = Instant::now();
            }
            match renewed {
                Ok(rows) if rows[0].is_empty() => {
                    if !self.lost.load(Ordering::Acquire) {
                        *self.taker.lock() = rows[1].first().and_then(holder_of);
                    }
                    self.lost.store(true, Ordering::Release);
                }
                Ok(_) => {}
                Err(_) => connection = None,
            }
        }
        // Best effort: if it cannot be ended it expires. Another volume's holder keeps its own.
        if let Some(mut open) = connection.filter(|open| !open.is_closed()).or_else(|| connector.connect().ok())
            && open.query(WHAT, sql::LEASE, Vec::new()).is_ok()
        {
            let _ = open.query(WHAT, sql::END_LEASE, vec![Box::new(self.epoch)]);
        }
    }
}

/// True if the lease is still that of this `epoch`; it cannot change hands before the transaction
/// ends.
pub(super) fn holds(connection: &mut Connection, epoch: i64) -> Result<bool> {
    let held = connection.query(WHAT, sql::HOLD_LEASE, Vec::new())?;
    Ok(held.first().map(|row| get::<i64>(row, 0)).transpose()? == Some(epoch))
}

/// Makes a `change` in a transaction of the daemon that holds the volume by the lease of this
/// `epoch`. After an error the connection serves no more.
pub(super) fn in_transaction(
    connection: &mut Connection,
    epoch: i64,
    change: impl FnOnce(&mut Connection) -> Result<()>,
) -> Result<()> {
    connection.say_first(sql::BEGIN);
    if !holds(connection, epoch)? {
        let who = holder_named(connection).unwrap_or_else(|| "another process".into());
        return Err(Error::Held(format!("{who} has taken the volume over meanwhile; nothing was changed")));
    }
    change(connection)?;
    connection.run(WHAT, sql::COMMIT)
}

impl Drop for Lease {
    fn drop(&mut self) {
        *self.shared.ending.lock() = true;
        self.shared.wake.notify_all();
        if let Some(renewer) = self.renewer.take() {
            // One that panicked has said so; the lease expires.
            let _ = renewer.join();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::{Command, Stdio};

    #[test]
    fn the_refusal_says_how_a_volume_is_let_go_of_and_advises_no_wait_after_one() {
        let (server, mount) = (Holder::this("served at 127.0.0.1:2049"), Holder::this("mounted at /m"));
        let told = in_use(Some(&server), Duration::ZERO);
        let end =
            format!("(served at 127.0.0.1:2049); end that there first ('kill {}', which commits all)", server.pid);
        assert!(told.contains(&end) && told.contains("--wait"), "{told}");
        let told = in_use(Some(&mount), Duration::from_secs(14));
        assert!(told.ends_with("(mounted at /m) after 14 seconds; unmount it there first"), "{told}");
    }

    #[test]
    fn who_cannot_be_seen_has_not_ended() {
        let nothing = tempfile::tempdir().expect("a directory");
        let (proc, hidden) = (Path::new(PROC), nothing.path());
        let this = Holder::this("mounted at /a b");
        assert_eq!(Holder::from_row(&this.to_row()).as_ref(), Some(&this));
        assert!(this.to_string().ends_with(" (mounted at /a b)"), "{this}");
        let boot = this.boot.clone();
        assert!(!this.has_ended(&boot, proc));
        assert!(!this.has_ended(&boot, hidden), "it is there, though it is not shown");
        let other = Holder { started: "1".into(), ..this.clone() };
        assert!(other.has_ended(&boot, proc), "the number is another process's now");
        assert!(!other.has_ended(&boot, hidden), "that cannot be told");
        let blind = Holder { started: String::new(), ..this.clone() };
        assert!(!blind.has_ended(&boot, proc), "it could not see itself");
        assert!(!Holder { boot: "another".into(), ..other }.has_ended(&boot, proc));
        assert!(!Holder { boot: String::new(), ..blind }.has_ended("", proc), "any machine is like that");
        let mut child = Command::new("true").stdin(Stdio::null()).spawn().expect("it runs");
        let ended = Holder { pid: child.id(), started: "1".into(), ..this };
        child.wait().expect("it ends");
        assert!(ended.has_ended(&boot, proc) && ended.has_ended(&boot, hidden));
    }
}
