//! Live counters of a mounted volume, and of the daemon that has it.

use crate::latency::Latency;
use crate::work::Work;
use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};
use std::sync::atomic::{AtomicU64, Ordering};

/// All that a daemon counts: what `weft stats` tells of it.
#[derive(Clone, Debug, Default, serde::Serialize)]
pub struct Report {
    /// Its process.
    pub pid: u32,
    /// Transport of its requests.
    pub transport: &'static str,
    /// Placement of its threads; none if it serves no kernel.
    pub placement: Option<String>,
    /// The commit that it shows, if that is not the last one.
    pub as_of_commit: Option<u64>,
    /// Counters of the volume.
    pub volume: Stats,
    /// Bytes of content given to the kernel, which copies them; none if it serves no kernel.
    pub bytes_given: Option<u64>,
    /// Requests by operation.
    #[serde(serialize_with = "in_lower_case")]
    pub requests: BTreeMap<&'static str, u64>,
    /// Time that they took, by operation.
    #[serde(skip)]
    pub operations: Vec<(&'static str, Latency)>,
    /// Requests by the process that made them, and all of those that are not told apart.
    #[serde(skip)]
    pub processes: (Vec<(u32, Work)>, Work),
}

/// Names operations as `weft stats --operations` and the metrics do.
fn in_lower_case<S: serde::Serializer>(counts: &BTreeMap<&'static str, u64>, to: S) -> Result<S::Ok, S::Error> {
    to.collect_map(counts.iter().map(|(name, count)| (name.to_ascii_lowercase(), count)))
}

/// A snapshot of the counters. Counts are since the mount.
#[derive(Clone, Debug, Default, PartialEq, Eq, serde::Serialize)]
pub struct Stats {
    /// Reason why nothing is committed any more, if the volume was removed, moved or taken.
    pub lost: Option<String>,
    /// Seconds since the database server last answered, if that is longer than the lease holds.
    pub unanswered_seconds: Option<u64>,
    /// Mutating operations.
    pub operations: u64,
    /// Lookups of an inode in memory that found it.
    pub inode_hits: u64,
    /// Lookups of an inode that went to the database.
    pub inode_misses: u64,
    /// Lookups of a name in memory that found it, or found it absent.
    pub name_hits: u64,
    /// Lookups of a name that went to the database.
    pub name_misses: u64,
    /// Blocks read from memory.
    pub block_hits: u64,
    /// Blocks read from the store.
    pub block_misses: u64,
    /// Blocks read before they were asked for.
    pub blocks_read_ahead: u64,
    /// Bytes of inodes and names in memory, those of virtual inodes included.
    pub metadata_bytes: u64,
    /// Virtual inodes: entries of views that somebody holds, or held lately.
    pub virtual_inodes: u64,
    /// Bytes of those.
    pub virtual_bytes: u64,
    /// Networks that are pushed onto files.
    pub networks_pushed: u64,
    /// Bytes of memory that they take, beside all else.
    pub pushed_bytes: u64,
    /// The same by the user who pushed them: those with most, at most 64.
    pub pushed_bytes_by_user: BTreeMap<u32, u64>,
    /// Networks that were not pushed, as those of their user, or all, took as much as they may.
    pub pushes_refused: u64,
    /// Bytes of blocks in memory.
    pub block_bytes: u64,
    /// Bytes of memory that programs may map to read blocks in place.
    pub shared_bytes: u64,
    /// Bytes of results, kept of what opaque inodes give.
    pub memo_bytes: u64,
    /// Results of networks that were begun to be computed.
    pub results_computed: u64,
    /// Bytes that links which keep places gave and that were computed before somebody asked for
    /// them.
    pub bytes_computed_ahead: u64,
    /// Results of networks that were kept of something that was the same.
    pub results_found: u64,
    /// Requests that wait for networks now, and users whose they are.
    pub requests_computing: u64,
    /// See there.
    pub users_computing: u64,
    /// Requests that wait for networks now, by user: those with most, at most 64.
    pub requests_computing_by_user: BTreeMap<u32, u64>,
    /// Requests ended while they waited for networks: their programs were killed, or all computing
    /// was stopped.
    pub computing_interrupted: u64,
    /// Requests refused because a user had enough networks at work already.
    pub computing_refused: u64,
    /// Bytes of changes not yet committed.
    pub dirty_bytes: u64,
    /// Commits made.
    pub commits: u64,
    /// Commits that failed and were tried again.
    pub commits_failed: u64,
    /// Bytes of fragmented files that were merged in the background.
    pub merged_bytes: u64,
    /// Error of the newest commit; none if it succeeded.
    pub commit_error: Option<String>,
    /// Changes that are missing as the kernel could not pass them on, in words; none if none are.
    pub failed_writeback: Option<String>,
    /// Reason that there is no room for more, and nothing of history that could yield; none if
    /// there is room.
    pub no_room: Option<String>,
    /// Bytes of history that would yield to the present, where that is counted: at least so many.
    pub yieldable_bytes: Option<u64>,
    /// Time that tries of commits took in the store.
    pub commit_latency: Latency,
    /// Time until changes were durable that somebody waited for.
    pub sync_latency: Latency,
    /// Requests that failed as something stored is damaged.
    pub damaged_requests: u64,
    /// Syncs answered by the intent log alone.
    pub log_appends: u64,
    /// Operations that were synced before a crash and not committed: applied as the volume was
    /// opened.
    pub operations_recovered: u64,
    /// Bytes read by operations.
    pub bytes_read: u64,
    /// Bytes written by operations.
    pub bytes_written: u64,
    /// Bytes copied from one memory of this process into another.
    pub bytes_copied: u64,
    /// Inodes in the volume.
    pub inodes_used: u64,
    /// Bytes stored in the volume.
    pub bytes_used: u64,
    /// Bytes that users can still write, as of the last commit.
    pub bytes_available: u64,
    /// Bytes that the volume may store, if there is a limit.
    pub bytes_max: Option<u64>,
    /// Inodes held by protocols.
    pub held_inodes: u64,
    /// Counters of the NFS server, if there is one.
    pub nfs: Option<NfsStats>,
    /// Counters of the block cache on a local disk, if there is one.
    pub disk_cache: Option<weft_store::DiskCacheStats>,
    /// Round trips to the database's server.
    pub round_trips: weft_store::RoundTrips,
}

/// Most users, or addresses, that are told of: all counters have to go into an attribute.
pub const ROWS_MAX: usize = 64;

/// Counters of a server of NFS. Counts are since it began to serve.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize)]
pub struct NfsStats {
    /// Address to which clients connect.
    pub address: SocketAddr,
    /// Connections now.
    pub connections: u64,
    /// Connections by the address of the client: those with most, at most 64.
    pub connections_by_address: BTreeMap<IpAddr, u64>,
    /// Bytes of calls that have not come in whole, and of replies that were not taken.
    pub bytes_waiting: u64,
    /// Refused calls and connections.
    pub refused: NfsRefused,
    /// Calls by procedure.
    pub requests: BTreeMap<&'static str, u64>,
    /// Time that they took, by procedure.
    #[serde(skip)]
    pub operations: Vec<(&'static str, Latency)>,
    /// Calls by the machine that made them, and all of those that are not told apart.
    #[serde(skip)]
    pub clients: (Vec<(IpAddr, Work)>, Work),
}

/// Calls and connections refused by an NFS server, by reason.
#[derive(Clone, Debug, Default, PartialEq, Eq, serde::Serialize)]
pub struct NfsRefused {
    /// Calls that their user, or their client by the rules of exports, has no right to.
    pub rights: u64,
    /// Calls with credentials that are unknown, or too weak for the export.
    pub credentials: u64,
    /// Calls with handles that this server did not make.
    pub handles: u64,
    /// Calls that cannot be read.
    pub malformed: u64,
    /// Connections, calls and replies beyond a client's share.
    pub bounds: u64,
}

impl Stats {
    /// Leaves out what concerns other users than `user`: what they have computed, and where clients
    /// are.
    pub fn hide_others(&mut self, user: u32) {
        self.requests_computing_by_user.retain(|of, _| *of == user);
        self.pushed_bytes_by_user.retain(|of, _| *of == user);
        // It names a file.
        self.failed_writeback = None;
        // It names snapshots.
        self.no_room = self.no_room.take().map(|_| "there is no room left: snapshots keep history".into());
        if let Some(nfs) = &mut self.nfs {
            nfs.connections_by_address.clear();
        }
    }
}

/// Requests of this process that met damage.
static DAMAGED: AtomicU64 = AtomicU64::new(0);

/// Counts a request that failed as something stored is damaged.
pub fn met_damage() {
    DAMAGED.fetch_add(1, Ordering::Relaxed);
}

pub(crate) fn damaged_requests() -> u64 {
    DAMAGED.load(Ordering::Relaxed)
}

/// The largest counts.
pub fn largest<K: Ord>(counts: impl Iterator<Item = (K, u64)>) -> BTreeMap<K, u64> {
    let mut all: Vec<_> = counts.filter(|(_, count)| *count > 0).collect();
    all.sort_by(|(one, count), (other, than)| than.cmp(count).then(one.cmp(other)));
    all.truncate(ROWS_MAX);
    all.into_iter().collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn those_who_take_most_are_told_of() {
        let told = largest((0..100u64).map(|of| (of, of % 90)));
        assert_eq!(told.len(), ROWS_MAX);
        assert!(told.contains_key(&89) && !told.contains_key(&0) && !told.contains_key(&91));
    }

    #[test]
    fn who_is_told_hears_nothing_of_others() {
        let by_user = BTreeMap::from([(1, 2), (3, 4)]);
        let mut stats = Stats { pushed_bytes_by_user: by_user.clone(), ..Stats::default() };
        stats.requests_computing_by_user = by_user;
        let address = ([127, 0, 0, 1], 2049).into();
        let connections_by_address = [(IpAddr::from([10, 0, 0, 1]), 1)].into();
        let refused = NfsRefused::default();
        let (requests, operations, clients) = Default::default();
        stats.nfs = Some(NfsStats {
            address,
            connections: 1,
            connections_by_address,
            bytes_waiting: 0,
            refused,
            requests,
            operations,
            clients,
        });
        (stats.failed_writeback, stats.no_room) = (Some("/secret".into()), Some("snapshot 'secret'".into()));
        stats.hide_others(3);
        assert_eq!(stats.failed_writeback, None);
        assert!(!stats.no_room.unwrap().contains("secret"));
        assert_eq!(stats.requests_computing_by_user, [(3, 4)].into());
        assert_eq!(stats.pushed_bytes_by_user, [(3, 4)].into());
        let nfs = stats.nfs.unwrap();
        assert_eq!((nfs.connections, nfs.connections_by_address.len()), (1, 0));
    }
}
