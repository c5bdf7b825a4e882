//! `weft status`.

use super::stats::dead_among;
use crate::arguments::Status;
use crate::control_socket::CONTROL_SOCKET;
use crate::daemons::{self, Running};
use crate::mounted;
use crate::shown;
use crate::size::show;
use anyhow::Result;
use serde_json::{Value, json};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use weft_store::Location;
use weft_store::sqlite::Layout;

/// Lists the daemons of this user.
pub fn run(arguments: &Status) -> Result<ExitCode> {
    if let Some(volume) = &arguments.volume {
        return of_volume(volume, arguments.json);
    }
    let all = daemons::all()?;
    let dead = dead_mounts(&all);
    // Daemons serve without a control socket, too.
    let unseen = weft_control::missing().map(|why| (mounted::of_this_user(), why));
    let mounts = unseen.iter().flat_map(|(mounts, _)| mounts);
    if arguments.json {
        let mounts = mounts.map(|(volume, place)| {
            let [volume, place] = [volume, place].map(|path| path.to_string_lossy());
            json!({ "volume": volume, "kind": "mount", "place": place, "pid": null })
        });
        let dead = dead.iter().map(|(volume, place)| {
            let why = mounted::dead("its daemon", place);
            let [volume, place] = [volume, place].map(|path| shown::path(path));
            json!({ "volume": volume, "kind": "mount", "place": place, "pid": null, "error": why })
        });
        outln!("{}", Value::from(all.iter().map(told).chain(mounts).chain(dead).collect::<Vec<_>>()));
    } else if let Some((mounts, why)) = &unseen {
        for (volume, place) in mounts {
            outln!("{} mounted at {}", shown::path(volume), shown::path(place));
        }
        if mounts.is_empty() {
            outln!("no volume is mounted by this user");
        }
        outln!("volumes that are served are not listed, as there is no place for control sockets: {why}");
    } else if all.is_empty() && dead.is_empty() {
        outln!("no volume is mounted or served by this user");
    } else {
        all.iter().for_each(print);
    }
    if !arguments.json {
        dead.iter().for_each(|(volume, place)| outln!("{}", shown::message(&dead_line(volume, place))));
    }
    let answered = dead.is_empty() && all.iter().all(|daemon| daemon.status.is_ok());
    Ok(if answered { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// Tells the use of one volume.
fn of_volume(volume: &Path, json: bool) -> Result<ExitCode> {
    let used = daemons::using(volume)?;
    if let (None, Some(path)) = (&used, Location::parse(volume)?.path()) {
        // A wrong name is no volume that nobody uses.
        Layout::find(path)?;
    }
    match (&used, json) {
        (used, true) => outln!("{}", Value::from(used.iter().map(told).collect::<Vec<_>>())),
        (None, false) => outln!("no daemon of this user uses {}", shown::path(volume)),
        (Some(daemon), false) => print(daemon),
    }
    Ok(if used.is_none_or(|daemon| daemon.status.is_ok()) { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

fn print(daemon: &Running) {
    outln!("{}", shown::message(&line(daemon)));
    unwritten(daemon).iter().for_each(|line| outln!("{}", shown::message(line)));
}

/// Returns the volumes and directories of this user's mounts whose daemons have ended: none of
/// those that are `alive`. One of those that does not answer would not let go of who asks for its
/// mount.
fn dead_mounts(alive: &[Running]) -> Vec<(PathBuf, PathBuf)> {
    let place = |daemon: &Running| match &daemon.status {
        Ok(status) => status["place"].as_str().map(str::to_owned),
        Err(_) => mounted::by_process(daemon.socket.pid).map(|(_, place)| shown::path(&place)),
    };
    let places: Vec<_> = alive.iter().filter_map(place).collect();
    let mut mounts = mounted::of_this_user();
    mounts.retain(|(_, place)| !places.contains(&shown::path(place)));
    let dead = dead_among(mounts.iter().map(|(_, place)| place.clone()).collect());
    mounts.retain(|(_, place)| dead.contains(place));
    mounts
}

fn dead_line(volume: &Path, place: &Path) -> String {
    let why = mounted::dead("its daemon", place);
    let [volume, place] = [volume, place].map(shown::path);
    format!("{volume} mounted at {place}: {why}")
}

/// Returns the entry of a daemon; of one that did not answer, the data of its socket and the
/// reason.
fn told(daemon: &Running) -> Value {
    match &daemon.status {
        Ok(status) => {
            let mut status = status.clone();
            status["socket"] = shown::path(&daemon.socket.path).into();
            status
        }
        Err(why) => json!({
            "volume": null,
            "id": daemon.socket.volume,
            "kind": daemon.socket.kind.name(),
            "pid": daemon.socket.pid,
            "error": why,
        }),
    }
}

fn line(daemon: &Running) -> String {
    let status = match &daemon.status {
        Ok(status) => status,
        Err(why) => {
            let (kind, socket) = (daemon.socket.kind.name(), &daemon.socket);
            let what = match mounted::by_process(socket.pid) {
                Some((volume, place)) => format!("{} mounted at {}", shown::path(&volume), shown::path(&place)),
                None => format!("{kind} of volume {}", socket.volume),
            };
            return format!("{what}, process {}: {why}", socket.pid);
        }
    };
    let text = |name: &str| status[name].as_str().unwrap_or("?");
    let number = |name: &str| status[name].as_u64().unwrap_or(0);
    let how = match status["kind"] == "mount" {
        true => "mounted at",
        false if status["place"] == CONTROL_SOCKET => "served by its",
        false => "served at",
    };
    let nfs = status["nfs"].as_str().filter(|_| status["kind"] == "mount");
    let nfs = nfs.map_or_else(String::new, |address| format!(" and served at {address}"));
    let age = status["commit_age_seconds"].as_u64();
    let age = age
        .map_or_else(|| ", made before it began to use it".to_owned(), |seconds| format!(" {} ago", lasted(seconds)));
    let why = |name: &str| status[name].as_str().map_or_else(String::new, |why| format!("; {why}"));
    let error = why("error") + &why("no_room");
    let as_of = status["as_of"].as_str().map_or_else(String::new, |time| format!("as of {time}, "));
    format!(
        "{} {how} {}{nfs}: {}{as_of}process {} since {}, {}, {}, commit {}{age}, {} used in {} inodes, {} not committed{error}",
        text("volume"),
        text("place"),
        if status["read_only"] == true { "read only, " } else { "" },
        number("pid"),
        text("since"),
        text("engine"),
        text("transport"),
        number("commit"),
        show(number("bytes_used")),
        number("inodes_used"),
        show(number("dirty_bytes")),
    )
}

/// Returns the newest messages of a daemon whose log has no room for them.
fn unwritten(daemon: &Running) -> Vec<String> {
    let Ok(status) = &daemon.status else { return Vec::new() };
    let messages = status["messages"].as_array().filter(|_| status["log_is_full"] == true);
    let text = |message: &Value, name: &str| message[name].as_str().unwrap_or("?").to_owned();
    let lines = messages.into_iter().flatten().map(|message| {
        format!("    not in its log: {} {} {}", text(message, "time"), text(message, "level"), text(message, "message"))
    });
    lines.collect()
}

/// Returns a span of time in its largest unit.
fn lasted(seconds: u64) -> String {
    let units = [(86_400, "days"), (3600, "hours"), (60, "minutes")];
    let unit = units.into_iter().find(|(unit, _)| seconds >= 2 * unit);
    unit.map_or_else(
        || shown::counted(seconds, "second", "seconds"),
        |(unit, name)| format!("{} {name}", seconds / unit),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_span_is_told_in_its_largest_unit() {
        let told = [0, 1, 119, 120, 7199, 7200, 172_800].map(lasted);
        assert_eq!(told, ["0 seconds", "1 second", "119 seconds", "2 minutes", "119 minutes", "2 hours", "2 days"]);
    }
}
