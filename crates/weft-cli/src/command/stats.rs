//! `weft stats`.

use crate::arguments::Stats;
use crate::output;
use crate::size::show;
use anyhow::{Context, Result, bail};
use rustix::io::Errno;
use serde_json::Value;
use std::path::Path;
use std::process::ExitCode;
use std::time::Duration;

/// Tells a mount's counters.
pub fn run(arguments: &Stats) -> Result<ExitCode> {
    loop {
        let stats = read(&arguments.directory)?;
        if arguments.json {
            outln!("{stats}");
        } else {
            print(&stats);
        }
        if !arguments.watch || output::has_failed() {
            return Ok(ExitCode::SUCCESS);
        }
        #[expect(clippy::disallowed_methods, reason = "the user asked for one look each second")]
        std::thread::sleep(Duration::from_secs(1));
    }
}

/// The attribute of a mount point that holds what its daemon says of itself.
pub(super) const ATTRIBUTE: &str = "user.weft.stats";

/// What the kernel answers once the daemon has ended; "canceled" while it is ending.
const ENDED: [Errno; 3] = [Errno::NOTCONN, Errno::CONNABORTED, Errno::CANCELED];

/// Whether what is mounted at `directory` has lost its daemon. The kernel may still know its attributes, so it is
/// asked for what only the daemon knows.
pub fn is_dead(directory: &Path) -> bool {
    let mut nothing: [u8; 0] = [];
    rustix::fs::getxattr(directory, ATTRIBUTE, &mut nothing[..]).is_err_and(|error| ENDED.contains(&error))
}

/// What the daemon of the mount at `directory` says of itself.
pub fn read(directory: &Path) -> Result<Value> {
    let mut buffer = vec![0; 64 << 10];
    let len = match rustix::fs::getxattr(directory, ATTRIBUTE, &mut buffer) {
        Ok(len) => len,
        Err(error) if ENDED.contains(&error) => bail!(
            "the daemon of {} has ended, or waits for a volume that another one took; unmount it ('weft umount {}'), then mount it again",
            directory.display(),
            directory.display()
        ),
        Err(Errno::NOENT) => bail!("there is no directory {}", directory.display()),
        Err(Errno::ACCESS) => bail!("no permission to look at {}", directory.display()),
        Err(Errno::NODATA | Errno::OPNOTSUPP | Errno::NOTDIR) => {
            bail!("{} is not the mount point of a Weft volume", directory.display())
        }
        Err(error) => bail!("cannot ask the daemon of {}: {error}", directory.display()),
    };
    serde_json::from_slice(&buffer[..len]).context("the daemon's answer cannot be read")
}

fn print(stats: &Value) {
    let volume = &stats["volume"];
    let number = |name: &str| volume[name].as_u64().unwrap_or(0);
    let rate = |name: &str| {
        let (hits, misses) = (number(&format!("{name}_hits")), number(&format!("{name}_misses")));
        match hits + misses {
            0 => format!("{name:<12}not used"),
            all => format!("{name:<12}{} of {all} found in memory ({} %)", hits, hits * 100 / all),
        }
    };
    outln!("daemon      process {}, transport {}", stats["pid"], stats["transport"].as_str().unwrap_or("?"));
    outln!("content     {} inodes, {}", number("inodes_used"), show(number("bytes_used")));
    outln!(
        "operations  {} changes, {} read, {} written",
        number("operations"),
        show(number("bytes_read")),
        show(number("bytes_written"))
    );
    outln!(
        "copies      {} from memory to memory, {} given to the kernel",
        show(number("bytes_copied")),
        show(stats["bytes_given"].as_u64().unwrap_or(0))
    );
    outln!(
        "commits     {} made, {} failed, {} syncs by the log alone",
        number("commits"),
        number("commits_failed"),
        number("log_appends")
    );
    outln!(
        "memory      {} changed, {} metadata, {} blocks, {} shared with programs",
        show(number("dirty_bytes")),
        show(number("metadata_bytes")),
        show(number("block_bytes")),
        show(number("shared_bytes"))
    );
    outln!(
        "links       {} kept of what they give, {} results computed, {} found again, {} computed ahead",
        show(number("memo_bytes")),
        number("results_computed"),
        number("results_found"),
        show(number("bytes_computed_ahead"))
    );
    print_computing(number);
    print_by_user(volume);
    print_nfs(&volume["nfs"]);
    for name in ["inode", "name", "block"] {
        outln!("{}", rate(name));
    }
    outln!("read ahead  {} blocks", number("blocks_read_ahead"));
    if let Some(cache) = volume["disk_cache"].as_object() {
        let count = |name: &str| cache[name].as_u64().unwrap_or_default();
        let rate = format!("{} of {} blocks found", count("hits"), count("hits") + count("misses"));
        outln!("disk cache  {rate}, {} of {} in it", count("blocks"), count("blocks_max"));
        if let Some(failure) = cache["failure"].as_str() {
            outln!("            nothing more is written to it: {failure}");
        }
    }
    let trips = volume["round_trips"].as_object().into_iter().flatten();
    let trips = trips.filter(|(_, count)| **count != 0).map(|(name, count)| format!("{name} {count}"));
    let trips = trips.collect::<Vec<_>>();
    if !trips.is_empty() {
        outln!("round trips {}", trips.join(", "));
    }
    if let Some(requests) = stats["requests"].as_object() {
        let list: Vec<String> = requests.iter().map(|(name, count)| format!("{name} {count}")).collect();
        outln!("requests    {}", list.join(", "));
    }
}

/// Tells of requests that wait for networks.
fn print_computing(number: impl Fn(&str) -> u64) {
    outln!(
        "computing   {} requests of {} users wait for networks, {} were ended, {} refused",
        number("requests_computing"),
        number("users_computing"),
        number("computing_interrupted"),
        number("computing_refused")
    );
}

/// Tells whose requests wait for networks.
fn print_by_user(volume: &Value) {
    let users = counts(&volume["requests_computing_by_user"]);
    if !users.is_empty() {
        outln!("            by user: {users}");
    }
}

/// Tells of a server of NFS.
fn print_nfs(nfs: &Value) {
    if nfs.is_null() {
        return;
    }
    let (connections, waiting) = (&nfs["connections"], show(nfs["bytes_waiting"].as_u64().unwrap_or(0)));
    outln!("nfs         at {}, {connections} connections, {waiting} waiting", nfs["address"].as_str().unwrap_or("?"));
    let addresses = counts(&nfs["connections_by_address"]);
    if !addresses.is_empty() {
        outln!("            by address: {addresses}");
    }
    outln!("            refused: {}", counts(&nfs["refused"]));
}

fn counts(counts: &Value) -> String {
    let counts = counts.as_object().into_iter().flatten();
    counts.map(|(of, count)| format!("{of} {count}")).collect::<Vec<_>>().join(", ")
}
