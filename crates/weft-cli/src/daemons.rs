//! Daemons of this user, found by their control sockets and asked over them.

use crate::command::stats::dead_among;
use crate::control_socket::CONTROL_SOCKET;
use crate::{mounted, named, shown};
use anyhow::{Context, Result, anyhow, bail};
use rustix::io::Errno;
use rustix::process::geteuid;
use serde_json::Value;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::time::Duration;
use weft_control::{Answer, Kind, Method, Socket, Unanswered, ask, remove_stale, sockets};
use weft_store::Location;

/// Longest wait for a daemon's answer.
const TELLING_MAX: Duration = Duration::from_secs(2);

/// Time after which the user is told of a wait.
const TELL_AFTER: Duration = Duration::from_secs(10);

/// Daemons that are asked at once.
const AT_ONCE: usize = 64;

/// A daemon, and its status.
pub struct Running {
    pub socket: Socket,
    /// Status, or the reason that there is none.
    pub status: Result<Value, String>,
}

/// Reason that a daemon did not answer.
enum Untold {
    /// It has ended.
    Gone,
    /// Another reason, in words.
    Because(String),
}

/// Returns all daemons of this user. Removes the sockets of those that have ended.
pub fn all() -> Result<Vec<Running>> {
    let sockets = sockets().context("cannot look for control sockets")?;
    let mut all = Vec::new();
    for some in sockets.chunks(AT_ONCE) {
        std::thread::scope(|scope| {
            let asking: Vec<_> = some.iter().map(|socket| scope.spawn(|| told(socket, "/status"))).collect();
            for (socket, asked) in some.iter().zip(asking) {
                let status = match asked.join() {
                    Ok(Ok(status)) => Ok(status),
                    Ok(Err(Untold::Gone)) => {
                        remove_stale(socket);
                        continue;
                    }
                    Ok(Err(Untold::Because(why))) => Err(why),
                    Err(panic) => std::panic::resume_unwind(panic),
                };
                all.push(Running { socket: socket.clone(), status });
            }
        });
    }
    Ok(all)
}

/// Finds the daemon of `named`: a volume, or the address where one is served. None if this user may
/// ask no such daemon.
pub fn of(named: &Path) -> Result<Option<Running>> {
    match named.to_str().and_then(|text| text.parse::<SocketAddr>().ok()) {
        Some(address) => find(|status| serves_at(status, address)),
        None => {
            let location = Location::parse(named)?;
            let (volume, server) = (named::volume(&location), named::server(&location));
            // Those that show the past are named by their places alone.
            let is_present = |status: &Value| status["as_of"].is_null();
            find(|status| {
                status["volume"] == *volume && status["server"].as_str() == server.as_deref() && is_present(status)
            })
        }
    }
}

/// Finds the daemon that uses the volume `named`, itself or its mount point. Fails if it is mounted
/// and this user cannot ask its daemon, and where the past is mounted.
pub fn using(named: &Path) -> Result<Option<Running>> {
    let volume = mounted::present_volume(named)?;
    let found = of(&volume)?;
    if found.is_some() {
        return Ok(found);
    }
    if volume == named {
        // Whoever opens it would hear only that it is in use.
        return match own_mount_without_socket(named) {
            Some(root) => Err(unasked(&root)),
            None => Ok(None),
        };
    }
    match mounting(&named.canonicalize()?)? {
        // It has just ended.
        Some(_) => Ok(None),
        None => Err(unasked(named)),
    }
}

/// Returns the directory where this user, whose daemons have no control sockets, has mounted
/// `volume`, if it lies in files.
fn own_mount_without_socket(volume: &Path) -> Option<PathBuf> {
    weft_control::missing()?;
    let root = mounted::directory_of(&Location::parse(volume).ok().filter(|at| at.path().is_some())?)?;
    (mounted::mount_at(&root)?.1.0 == geteuid().as_raw()).then_some(root)
}

/// Says why this user cannot ask the daemon of the mount at `root`.
pub fn unasked(root: &Path) -> anyhow::Error {
    if !dead_among(vec![root.into()]).is_empty() {
        return anyhow!("{}", mounted::dead_at(root));
    }
    let owner = root.canonicalize().ok().and_then(|root| mounted::mount_at(&root)).map(|(_, (user, _))| user);
    let is_own = owner == Some(geteuid().as_raw());
    let root = shown::path(root);
    match weft_control::missing().filter(|_| is_own) {
        Some(why) => anyhow!("the daemon of {root} has no control socket: {why}, and mount the volume again"),
        None if is_own => anyhow!(
            "the daemon of {root} has no control socket that is found here: it was mounted with another XDG_RUNTIME_DIR, \
             or with none; set that as it was, or mount the volume again"
        ),
        None => {
            let who = owner.map_or_else(String::new, |user| format!(" (user {user})"));
            anyhow!("the daemon of {root} cannot be asked by this user; do it as the user who mounted it{who}")
        }
    }
}

/// Says where a daemon of this user serves the volume `named`, and how that ends.
pub fn serving(named: &Path) -> Option<String> {
    of(named).ok().flatten().as_ref().and_then(served)
}

/// Adds the address to a message `told` about an `error`, if a volume cannot be had as a daemon of
/// this user serves it; and the mount whose daemon has ended, if the kernel says no more of it.
pub fn explain(error: &anyhow::Error, told: String) -> String {
    if error.chain().any(is_of_dead_mount) {
        let places = mounted::of_this_user().into_iter().map(|(_, place)| place).collect();
        let dead = dead_among(places).into_iter().next();
        return told + &dead.map_or_else(String::new, |place| format!("; {}", mounted::dead_at(&place)));
    }
    let in_use = error.chain().find_map(|error| match error.downcast_ref::<weft_store::Error>() {
        Some(weft_store::Error::Locked(in_use)) => Some(in_use),
        _ => None,
    });
    let Some((in_use, pid)) = in_use.and_then(|in_use| Some((in_use, in_use.pid()?))) else { return told };
    let Ok(Some(served)) = find_by(|daemon| daemon.socket.pid == pid).map(|daemon| daemon.as_ref().and_then(served))
    else {
        return told;
    };
    told.replace(&in_use.to_string(), &format!("{} is {served}", in_use.volume().display()))
}

/// True if `error` is the kernel's answer for a mount whose daemon has ended.
fn is_of_dead_mount(error: &(dyn std::error::Error + 'static)) -> bool {
    let of_kernel = error.downcast_ref::<std::io::Error>().and_then(std::io::Error::raw_os_error);
    let of_call = error.downcast_ref::<Errno>().map(|errno| errno.raw_os_error());
    of_kernel.or(of_call) == Some(Errno::NOTCONN.raw_os_error())
}

fn served(daemon: &Running) -> Option<String> {
    let status = daemon.status.as_ref().ok().filter(|_| daemon.socket.kind == Kind::Server)?;
    let (place, pid) = (status["place"].as_str()?, daemon.socket.pid);
    if place == CONTROL_SOCKET {
        let volume = shown::word(status["volume"].as_str()?.as_ref());
        return Some(format!(
            "served to programs by its control socket, by process {pid}; 'weft stop {volume}' ends that once all is \
             committed"
        ));
    }
    Some(format!("served at {place} by process {pid}; 'weft stop {place}' ends that once all is committed"))
}

/// Finds the daemon that has a volume mounted at `directory`.
pub fn mounting(directory: &Path) -> Result<Option<Running>> {
    let directory = shown::path(directory);
    find(|status| status["kind"] == "mount" && status["place"] == *directory)
}

fn find(is_it: impl Fn(&Value) -> bool) -> Result<Option<Running>> {
    find_by(|daemon| daemon.status.as_ref().is_ok_and(&is_it))
}

fn find_by(is_it: impl Fn(&Running) -> bool) -> Result<Option<Running>> {
    Ok(all()?.into_iter().find(is_it))
}

/// True if the daemon of this `status` serves clients that connect to `address`.
fn serves_at(status: &Value, address: SocketAddr) -> bool {
    let served = [&status["nfs"], &status["place"]].into_iter().find_map(|at| at.as_str()?.parse::<SocketAddr>().ok());
    served.is_some_and(|at| at == address || (at.ip().is_unspecified() && at.port() == address.port()))
}

fn told(socket: &Socket, target: &str) -> Result<Value, Untold> {
    let answer = ask(&socket.path, Method::Get, target, TELLING_MAX).map_err(|unanswered| match unanswered {
        Unanswered::Gone => Untold::Gone,
        Unanswered::Silent => Untold::Because(format!("it has not answered for {} seconds", TELLING_MAX.as_secs())),
        failed => Untold::Because(failed.to_string()),
    })?;
    if !answer.is_good() {
        return Err(Untold::Because(answer.body.trim().to_owned()));
    }
    serde_json::from_str(&answer.body).map_err(|error| Untold::Because(format!("its answer cannot be read: {error}")))
}

/// Does `work`, and tells that process `pid` is waited for if that takes long.
fn telling_of_wait<T>(pid: u32, work: impl FnOnce() -> T) -> T {
    let (done, waiting) = channel::<()>();
    std::thread::scope(|scope| {
        scope.spawn(move || {
            if waiting.recv_timeout(TELL_AFTER) == Err(RecvTimeoutError::Timeout) {
                errln!("weft: waiting for process {pid} to commit; 'weft status' tells what holds it up");
            }
        });
        let result = work();
        drop(done);
        result
    })
}

impl Running {
    /// Returns its answer to the question `target`.
    pub fn told(&self, target: &str) -> Result<Value> {
        let pid = self.socket.pid;
        told(&self.socket, target).map_err(|untold| match untold {
            Untold::Gone => anyhow!("process {pid} has just ended"),
            Untold::Because(why) => anyhow!("process {pid} does not tell its counters: {why}"),
        })
    }

    /// Makes it commit; returns the number of the last commit then.
    pub fn commit(&self) -> Result<u64> {
        self.order("/commit")
    }

    /// Orders it to do what `target` says, which is a commit; returns the number of that.
    pub fn order(&self, target: &str) -> Result<u64> {
        self.answered(target)?["commit"].as_u64().context("the daemon's answer cannot be read")
    }

    /// Orders the same; returns what it answers.
    pub fn answered(&self, target: &str) -> Result<Value> {
        let limit = weft_control::COMMIT_MAX + Duration::from_secs(5);
        let answer = telling_of_wait(self.socket.pid, || ask(&self.socket.path, Method::Post, target, limit));
        let Answer { body, .. } = match answer {
            Ok(answer) if answer.is_good() => answer,
            Ok(answer) => bail!("{}", answer.body.trim()),
            Err(Unanswered::Gone) => bail!(
                "process {}, which served it, ended before it answered; what it was asked for may have been done",
                self.socket.pid
            ),
            Err(error) => bail!("process {}, which serves it, cannot be asked: {error}", self.socket.pid),
        };
        serde_json::from_str(&body).context("the daemon's answer cannot be read")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn an_address_is_served_by_who_listens_there_or_everywhere() {
        let serves = |status: Value| serves_at(&status, "192.0.2.7:2049".parse().unwrap());
        assert!(serves(json!({"place": "192.0.2.7:2049"})));
        assert!(serves(json!({"place": "/mnt", "nfs": "0.0.0.0:2049"})));
        assert!(!serves(json!({"place": "192.0.2.7:2050", "nfs": null})));
        assert!(!serves(json!({"place": "/mnt"})));
    }
}
