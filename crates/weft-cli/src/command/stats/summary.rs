//! `weft stats`: all counters, for a person.

use super::operations::time;
use crate::shown;
use crate::size::show;
use serde_json::Value;
use std::time::Duration;

/// Prints a line for a terminal, with any control characters of the daemon's text escaped.
macro_rules! told {
    ($($argument:tt)*) => {
        outln!("{}", shown::message(&format!($($argument)*)))
    };
}

/// Prints what is known of room for new content.
fn print_room(volume: &Value) {
    if let Some(bytes) = volume["yieldable_bytes"].as_u64() {
        told!("history     {} would yield to new content", show(bytes));
    }
    if let Some(why) = volume["no_room"].as_str() {
        told!("room        {why}");
    }
}

/// Prints all counters.
pub fn print(stats: &Value) {
    let volume = &stats["volume"];
    let number = |name: &str| volume[name].as_u64().unwrap_or(0);
    let rate = |name: &str| {
        let (hits, misses) = (number(&format!("{name}_hits")), number(&format!("{name}_misses")));
        match hits.saturating_add(misses) {
            0 => format!("{name:<12}not used"),
            all => format!("{name:<12}{} of {all} found in memory ({} %)", hits, hits.saturating_mul(100) / all),
        }
    };
    told!("daemon      process {}, transport {}", stats["pid"], stats["transport"].as_str().unwrap_or("?"));
    told!("content     {} inodes, {}", number("inodes_used"), show(number("bytes_used")));
    told!(
        "operations  {} changes, {} read, {} written",
        number("operations"),
        show(number("bytes_read")),
        show(number("bytes_written"))
    );
    let given = stats["bytes_given"].as_u64();
    let given = given.map_or_else(String::new, |bytes| format!(", {} given to the kernel", show(bytes)));
    told!("copies      {} from memory to memory{given}", show(number("bytes_copied")));
    print_commits(volume, number);
    told!(
        "memory      {} changed, {} metadata, {} blocks, {} shared with programs",
        show(number("dirty_bytes")),
        show(number("metadata_bytes")),
        show(number("block_bytes")),
        show(number("shared_bytes"))
    );
    told!(
        "links       {} kept of what they give, {} results computed, {} found again, {} computed ahead",
        show(number("memo_bytes")),
        number("results_computed"),
        number("results_found"),
        show(number("bytes_computed_ahead"))
    );
    print_held(volume, number);
    print_computing(number);
    print_by_user(volume);
    print_nfs(&volume["nfs"]);
    for name in ["inode", "name", "block"] {
        told!("{}", rate(name));
    }
    told!("read ahead  {} blocks", number("blocks_read_ahead"));
    print_disk_cache(&volume["disk_cache"]);
    let trips = volume["round_trips"].as_object().into_iter().flatten();
    let trips = trips.filter(|(_, count)| **count != 0).map(|(name, count)| format!("{name} {count}"));
    let trips = trips.collect::<Vec<_>>();
    if !trips.is_empty() {
        told!("round trips {}", trips.join(", "));
    }
    if let Some(requests) = stats["requests"].as_object().filter(|requests| !requests.is_empty()) {
        let list: Vec<String> = requests.iter().map(|(name, count)| format!("{name} {count}")).collect();
        told!("requests    {}", list.join(", "));
    }
}

/// Prints counts of commits, and all that is wrong.
fn print_commits(volume: &Value, number: impl Fn(&str) -> u64) {
    told!(
        "commits     {} made, {} failed, {} syncs by the log alone",
        number("commits"),
        number("commits_failed"),
        number("log_appends")
    );
    if number("merged_bytes") > 0 {
        told!("            {} of fragmented files merged in the background", show(number("merged_bytes")));
    }
    for (name, title) in [("commit_latency", "a commit"), ("sync_latency", "a sync")] {
        let micros = |name: &str, share: &str| volume[name][share].as_f64().unwrap_or(0.0);
        let time = |share: &str| time(Duration::from_nanos((micros(name, share) * 1000.0) as u64));
        if volume[name]["count"].as_u64().is_some_and(|count| count > 0) {
            told!("            {title} took {} (half of them), {} (99 %)", time("p50_us"), time("p99_us"));
        }
    }
    if volume["damaged_requests"].as_u64().is_some_and(|count| count > 0) {
        told!("            {} requests failed as something stored is damaged", number("damaged_requests"));
    }
    if let Some(error) = volume["commit_error"].as_str() {
        told!("            the newest failed: {error}");
    }
    print_room(volume);
    if let Some(seconds) = volume["unanswered_seconds"].as_u64() {
        told!("            the database server has not answered for {seconds} seconds");
    }
    if let Some(missing) = volume["failed_writeback"].as_str() {
        told!("            {missing}");
    }
}

/// Prints the hits of a disk cache.
fn print_disk_cache(cache: &Value) {
    let Some(cache) = cache.as_object() else { return };
    let count = |name: &str| cache.get(name).and_then(Value::as_u64).unwrap_or_default();
    let rate = format!("{} of {} blocks found", count("hits"), count("hits").saturating_add(count("misses")));
    told!("disk cache  {rate}, {} of {} in it", count("blocks"), count("blocks_max"));
    if let Some(failure) = cache.get("failure").and_then(Value::as_str) {
        told!("            nothing more is written to it: {failure}");
    }
}

/// Prints counts of held entries of views, and of networks that are pushed onto files.
fn print_held(volume: &Value, number: impl Fn(&str) -> u64) {
    told!("views       {} entries in memory, {} of metadata", number("virtual_inodes"), show(number("virtual_bytes")));
    told!(
        "pushed      {} networks in {}, {} refused",
        number("networks_pushed"),
        show(number("pushed_bytes")),
        number("pushes_refused")
    );
    let users = counts(&volume["pushed_bytes_by_user"]);
    if !users.is_empty() {
        told!("            bytes by user: {users}");
    }
}

/// Prints counts of requests that wait for networks.
fn print_computing(number: impl Fn(&str) -> u64) {
    told!(
        "computing   {} requests of {} users wait for networks, {} were ended, {} refused",
        number("requests_computing"),
        number("users_computing"),
        number("computing_interrupted"),
        number("computing_refused")
    );
}

/// Prints the users whose requests wait for networks.
fn print_by_user(volume: &Value) {
    let users = counts(&volume["requests_computing_by_user"]);
    if !users.is_empty() {
        told!("            by user: {users}");
    }
}

/// Prints counters of an NFS server.
fn print_nfs(nfs: &Value) {
    if nfs.is_null() {
        return;
    }
    let (connections, waiting) = (&nfs["connections"], show(nfs["bytes_waiting"].as_u64().unwrap_or(0)));
    told!("nfs         at {}, {connections} connections, {waiting} waiting", nfs["address"].as_str().unwrap_or("?"));
    let calls = counts(&nfs["requests"]);
    if !calls.is_empty() {
        told!("            calls: {calls}");
    }
    let addresses = counts(&nfs["connections_by_address"]);
    if !addresses.is_empty() {
        told!("            by address: {addresses}");
    }
    told!("            refused: {}", counts(&nfs["refused"]));
}

fn counts(counts: &Value) -> String {
    let counts = counts.as_object().into_iter().flatten();
    counts.map(|(of, count)| format!("{of} {count}")).collect::<Vec<_>>().join(", ")
}

#[cfg(test)]
mod tests {
    use super::print;
    use serde_json::json;

    #[test]
    fn an_answer_that_lacks_anything_is_printed() {
        for volume in [json!({"disk_cache": {}}), json!({"inode_hits": u64::MAX, "inode_misses": 1}), json!(null)] {
            print(&json!({"pid": 1, "volume": volume}));
        }
        print(&json!([]));
    }
}
