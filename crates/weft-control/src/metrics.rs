//! Metrics of a daemon in Prometheus' text format: what its counters say, as families with names
//! and units. No label names a path, a user or an address: a family has few rows, always the same.

use crate::operations::FILES;
use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, MetricEncoder, NoLabelSet, prometheus_text};
use prometheus_client::metrics::MetricType;
use prometheus_client::registry::Registry;
use std::fmt;
use weft_vfs::{Latency, NfsStats, Report, Stats, Timestamp};

/// The media type of the format.
pub(crate) const MEDIA_TYPE: &str = "text/plain; version=0.0.4; charset=utf-8";

/// All that is told of a daemon at one time.
#[derive(Debug)]
pub(crate) struct Scraped {
    /// The use that it makes of the volume.
    pub(crate) kind: &'static str,
    /// The id of the volume.
    pub(crate) volume: String,
    /// The storage engine of the volume.
    pub(crate) engine: &'static str,
    /// Time since which it serves.
    pub(crate) since: Timestamp,
    /// Time of the last commit; none if it is not known.
    pub(crate) committed: Option<Timestamp>,
    /// True if the volume is served and changes become durable.
    pub(crate) is_ready: bool,
    /// Its counters.
    pub(crate) report: Report,
    /// Requests about files at the control socket.
    pub(crate) files: Vec<(&'static str, Latency)>,
}

/// Returns `scraped` in the text format.
pub(crate) fn text(scraped: Scraped) -> Result<String, fmt::Error> {
    let mut registry = Registry::with_prefix("weft");
    registry.register_collector(Box::new(scraped));
    let mut text = String::new();
    prometheus_text::encode(&mut text, &registry)?;
    Ok(text)
}

impl Collector for Scraped {
    fn encode(&self, encoder: DescriptorEncoder<'_>) -> fmt::Result {
        let mut families = Families(encoder);
        self.daemon(&mut families)?;
        self.requests(&mut families)?;
        commits(&mut families, &self.report.volume)?;
        content(&mut families, &self.report)?;
        caches(&mut families, &self.report.volume)?;
        networks(&mut families, &self.report.volume)?;
        database(&mut families, &self.report.volume)?;
        self.volume(&mut families)?;
        match &self.report.volume.nfs {
            Some(nfs) => served(&mut families, nfs),
            None => Ok(()),
        }
    }
}

/// Families of metrics as they are written.
struct Families<'e>(DescriptorEncoder<'e>);

impl Families<'_> {
    fn family<'s>(&'s mut self, name: &'s str, help: &str, kind: MetricType) -> Result<MetricEncoder<'s>, fmt::Error> {
        self.0.encode_descriptor(name, help, None, kind)
    }

    fn counter(&mut self, name: &str, help: &str, count: u64) -> fmt::Result {
        self.family(name, help, MetricType::Counter)?.encode_counter::<NoLabelSet, _, f64>(&count, None)
    }

    fn gauge(&mut self, name: &str, help: &str, value: u64) -> fmt::Result {
        self.family(name, help, MetricType::Gauge)?.encode_gauge(&value)
    }

    /// Writes a gauge of a time or a ratio.
    fn real(&mut self, name: &str, help: &str, value: f64) -> fmt::Result {
        self.family(name, help, MetricType::Gauge)?.encode_gauge(&value)
    }

    /// Writes counters that `label` tells apart.
    fn counters(&mut self, name: &str, help: &str, label: &str, counts: &[(&str, u64)]) -> fmt::Result {
        let mut family = self.family(name, help, MetricType::Counter)?;
        counts.iter().try_for_each(|(value, count)| {
            family.encode_family(&[(label, *value)])?.encode_counter::<NoLabelSet, _, f64>(count, None)
        })
    }

    /// Writes gauges that `label` tells apart.
    fn gauges(&mut self, name: &str, help: &str, label: &str, values: &[(&str, u64)]) -> fmt::Result {
        let mut family = self.family(name, help, MetricType::Gauge)?;
        values.iter().try_for_each(|(of, value)| family.encode_family(&[(label, *of)])?.encode_gauge(value))
    }

    fn latency(&mut self, name: &str, help: &str, latency: &Latency) -> fmt::Result {
        histogram(&mut self.family(name, help, MetricType::Histogram)?, latency)
    }
}

fn histogram(metric: &mut MetricEncoder<'_>, latency: &Latency) -> fmt::Result {
    let mut buckets: Vec<(f64, u64)> =
        latency.by_powers_of_two().map(|(end, count)| (end.as_secs_f64(), count)).collect();
    let longer = latency.count() - buckets.iter().map(|(_, count)| count).sum::<u64>();
    buckets.push((f64::INFINITY, longer));
    metric.encode_histogram::<NoLabelSet>(latency.total().as_secs_f64(), latency.count(), &buckets, None)
}

fn latencies<'l>(
    family: &mut MetricEncoder<'_>,
    transport: &str,
    all: impl IntoIterator<Item = &'l (&'static str, Latency)>,
) -> fmt::Result {
    all.into_iter().try_for_each(|(operation, latency)| {
        let operation = operation.to_ascii_lowercase();
        let labels = [("operation", operation.as_str()), ("transport", transport)];
        histogram(&mut family.encode_family(&labels)?, latency)
    })
}

fn seconds(time: Timestamp) -> f64 {
    time.0 as f64 / 1e9
}

impl Scraped {
    fn daemon(&self, families: &mut Families<'_>) -> fmt::Result {
        let labels = [
            ("version", env!("CARGO_PKG_VERSION")),
            ("volume", self.volume.as_str()),
            ("engine", self.engine),
            ("kind", self.kind),
            ("transport", self.report.transport),
        ];
        let mut family =
            families.family("daemon_info", "The program and how it serves the volume.", MetricType::Gauge)?;
        family.encode_family(&labels)?.encode_gauge(&1u64)?;
        families.real("start_time_seconds", "Time since which the daemon serves, as of Unix.", seconds(self.since))?;
        let help = "1 if the volume is served and its changes become durable, as /readyz tells.";
        families.gauge("ready", help, u64::from(self.is_ready))?;
        match resident_bytes() {
            Some(bytes) => families.gauge("resident_memory_bytes", "Memory of the daemon.", bytes),
            None => Ok(()),
        }
    }

    fn requests(&self, families: &mut Families<'_>) -> fmt::Result {
        let help = "Time that requests of the kernel, of clients and of programs took, by operation and transport.";
        let mut family = families.family("request_duration_seconds", help, MetricType::Histogram)?;
        latencies(&mut family, self.report.transport, &self.report.operations)?;
        let nfs = self.report.volume.nfs.iter().flat_map(|nfs| &nfs.operations);
        latencies(&mut family, "nfs", nfs)?;
        latencies(&mut family, FILES, &self.files)
    }

    fn volume(&self, families: &mut Families<'_>) -> fmt::Result {
        let volume = &self.report.volume;
        families.gauge("volume_used_bytes", "Bytes of content in the volume.", volume.bytes_used)?;
        families.gauge("volume_inodes", "Inodes in the volume.", volume.inodes_used)?;
        let help = "Bytes that users can still write, as of the last commit.";
        families.gauge("volume_available_bytes", help, volume.bytes_available)?;
        if let Some(bytes) = volume.bytes_max {
            families.gauge("volume_max_bytes", "Bytes that the volume may store.", bytes)?;
        }
        if let Some(bytes) = volume.yieldable_bytes {
            let help = "Bytes of history that would yield to new content.";
            families.gauge("history_yieldable_bytes", help, bytes)?;
        }
        let help = "1 if there is no room for more content.";
        families.gauge("no_room", help, u64::from(volume.no_room.is_some()))?;
        let help = "1 if changes are missing that the kernel could not pass on.";
        families.gauge("failed_writeback", help, u64::from(volume.failed_writeback.is_some()))?;
        let help = "1 if the volume was removed, moved or taken, so that nothing is committed any more.";
        families.gauge("lost", help, u64::from(volume.lost.is_some()))?;
        match self.committed {
            Some(time) => {
                let help = "Time of the last commit, as of Unix.";
                families.real("last_commit_timestamp_seconds", help, seconds(time))
            }
            None => Ok(()),
        }
    }
}

/// Returns the memory that this process has, by proc(5); none if that cannot be read.
fn resident_bytes() -> Option<u64> {
    let statm = std::fs::read_to_string("/proc/self/statm").ok()?;
    let pages: u64 = statm.split_whitespace().nth(1)?.parse().ok()?;
    Some(pages * rustix::param::page_size() as u64)
}

fn commits(families: &mut Families<'_>, volume: &Stats) -> fmt::Result {
    let help = "Time that commits took in the store, those that failed included.";
    families.latency("commit_duration_seconds", help, &volume.commit_latency)?;
    families.counter("commits", "Commits made.", volume.commits)?;
    let help = "Bytes of fragmented files that were merged in the background.";
    families.counter("merged_bytes", help, volume.merged_bytes)?;
    families.counter("commits_failed", "Commits that failed and were tried again.", volume.commits_failed)?;
    let help = "1 if the newest commit failed.";
    families.gauge("commit_failing", help, u64::from(volume.commit_error.is_some()))?;
    let help = "Time until changes were durable that somebody waited for: fsync, sync, stable writes of NFS.";
    families.latency("sync_duration_seconds", help, &volume.sync_latency)?;
    families.counter("log_appends", "Syncs answered by the intent log alone.", volume.log_appends)?;
    families.gauge("dirty_bytes", "Bytes of changes that are not committed.", volume.dirty_bytes)?;
    families.counter("changes", "Operations that changed the volume.", volume.operations)
}

fn content(families: &mut Families<'_>, report: &Report) -> fmt::Result {
    let volume = &report.volume;
    families.counter("read_bytes", "Bytes of content read.", volume.bytes_read)?;
    families.counter("written_bytes", "Bytes of content written.", volume.bytes_written)?;
    families.counter(
        "copied_bytes",
        "Bytes copied from one memory of the daemon into another.",
        volume.bytes_copied,
    )?;
    let help = "Requests that failed as something stored is damaged.";
    families.counter("damaged_requests", help, volume.damaged_requests)?;
    match report.bytes_given {
        Some(bytes) => {
            families.counter("given_bytes", "Bytes of content given to the kernel, which copies them.", bytes)
        }
        None => Ok(()),
    }
}

fn caches(families: &mut Families<'_>, volume: &Stats) -> fmt::Result {
    let mut found = vec![
        ("inodes", volume.inode_hits, volume.inode_misses),
        ("names", volume.name_hits, volume.name_misses),
        ("blocks", volume.block_hits, volume.block_misses),
    ];
    found.extend(volume.disk_cache.iter().map(|cache| ("disk", cache.hits, cache.misses)));
    let hits: Vec<_> = found.iter().map(|(cache, hits, _)| (*cache, *hits)).collect();
    let misses: Vec<_> = found.iter().map(|(cache, _, misses)| (*cache, *misses)).collect();
    families.counters("cache_hits", "What was looked for in a cache and found there.", "cache", &hits)?;
    families.counters("cache_misses", "What was looked for in a cache and not found there.", "cache", &misses)?;
    let bytes = [
        ("metadata", volume.metadata_bytes),
        ("views", volume.virtual_bytes),
        ("blocks", volume.block_bytes),
        ("shared", volume.shared_bytes),
        ("results", volume.memo_bytes),
        ("pushed", volume.pushed_bytes),
    ];
    families.gauges("memory_bytes", "Memory by what lies in it.", "of", &bytes)?;
    families.counter("blocks_read_ahead", "Blocks read before they were asked for.", volume.blocks_read_ahead)?;
    families.gauge("held_inodes", "Inodes that the kernel and clients hold.", volume.held_inodes)
}

fn networks(families: &mut Families<'_>, volume: &Stats) -> fmt::Result {
    families.gauge("requests_computing", "Requests that wait for networks.", volume.requests_computing)?;
    families.counter(
        "results_computed",
        "Results of networks that were begun to be computed.",
        volume.results_computed,
    )?;
    families.counter("results_found", "Results of networks that were kept and used again.", volume.results_found)?;
    let help = "Requests refused because their user had enough networks at work.";
    families.counter("computing_refused", help, volume.computing_refused)
}

fn database(families: &mut Families<'_>, volume: &Stats) -> fmt::Result {
    let trips = volume.round_trips;
    let trips = [
        ("inodes", trips.inodes),
        ("names", trips.names),
        ("extents", trips.extents),
        ("xattrs", trips.xattrs),
        ("blocks", trips.blocks),
        ("digests", trips.digests),
        ("commits", trips.commits),
        ("lease", trips.lease),
    ];
    families.counters("round_trips", "Round trips to the database's server.", "purpose", &trips)?;
    let help = "Seconds since the database's server last answered, once that is longer than the lease; else 0.";
    families.gauge("database_unanswered_seconds", help, volume.unanswered_seconds.unwrap_or(0))
}

fn served(families: &mut Families<'_>, nfs: &NfsStats) -> fmt::Result {
    families.gauge("nfs_connections", "Connections of clients.", nfs.connections)?;
    let help = "Bytes of calls that have not come in whole, and of replies that were not taken.";
    families.gauge("nfs_waiting_bytes", help, nfs.bytes_waiting)?;
    let refused = [
        ("rights", nfs.refused.rights),
        ("credentials", nfs.refused.credentials),
        ("handles", nfs.refused.handles),
        ("malformed", nfs.refused.malformed),
        ("bounds", nfs.refused.bounds),
    ];
    families.counters("nfs_refused", "Calls and connections that were refused.", "reason", &refused)
}
