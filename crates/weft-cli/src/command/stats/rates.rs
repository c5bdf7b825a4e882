//! `weft stats --watch`: a line each second with what happened since the one before.

use crate::shown;
use crate::size::show;
use serde_json::Value;
use std::time::Instant;

/// Lines after which the heads of the columns come again.
const LINES: u64 = 20;

/// The last counters, and how many lines were printed.
#[derive(Default)]
pub struct Rates {
    before: Option<(Instant, Value)>,
    lines: u64,
}

/// Counters of `stats` that rates are told of.
struct Sums {
    requests: u64,
    read: u64,
    written: u64,
    commits: u64,
    syncs: u64,
    found: u64,
    looked: u64,
}

impl Sums {
    fn of(stats: &Value) -> Sums {
        let volume = &stats["volume"];
        let number = |name: &str| volume[name].as_u64().unwrap_or(0);
        let all = |counts: &Value| {
            counts.as_object().into_iter().flatten().filter_map(|(_, count)| count.as_u64()).sum::<u64>()
        };
        let caches = ["inode", "name", "block"];
        let found = caches.iter().map(|cache| number(&format!("{cache}_hits"))).sum();
        let missed: u64 = caches.iter().map(|cache| number(&format!("{cache}_misses"))).sum();
        Sums {
            requests: all(&stats["requests"]) + all(&volume["nfs"]["requests"]),
            read: number("bytes_read"),
            written: number("bytes_written"),
            commits: number("commits"),
            syncs: volume["sync_latency"]["count"].as_u64().unwrap_or(0),
            found,
            looked: found + missed,
        }
    }
}

impl Rates {
    /// Prints what happened since the last call; nothing at the first one.
    pub fn print(&mut self, stats: Value) {
        let now = Instant::now();
        if let Some((then, before)) = self.before.replace((now, stats.clone())) {
            if self.lines.is_multiple_of(LINES) {
                outln!(
                    "{:>10} {:>12} {:>12} {:>9} {:>9} {:>8} {:>10} {:>10}",
                    "requests/s",
                    "read/s",
                    "written/s",
                    "commits/s",
                    "syncs/s",
                    "found",
                    "changed",
                    "blocks"
                );
            }
            self.lines += 1;
            outln!("{}", shown::message(&line(&before, &stats, now.duration_since(then).as_secs_f64())));
        }
    }
}

fn line(before: &Value, stats: &Value, seconds: f64) -> String {
    let (then, now) = (Sums::of(before), Sums::of(stats));
    let per = |then: u64, now: u64| (now.saturating_sub(then) as f64 / seconds.max(1e-3)).round() as u64;
    let found = match now.looked.saturating_sub(then.looked) {
        0 => "-".to_owned(),
        looked => format!("{} %", now.found.saturating_sub(then.found).saturating_mul(100) / looked),
    };
    let bytes = |name: &str| show(stats["volume"][name].as_u64().unwrap_or(0));
    format!(
        "{:>10} {:>12} {:>12} {:>9} {:>9} {found:>8} {:>10} {:>10}",
        per(then.requests, now.requests),
        show(per(then.read, now.read)),
        show(per(then.written, now.written)),
        per(then.commits, now.commits),
        per(then.syncs, now.syncs),
        bytes("dirty_bytes"),
        bytes("block_bytes")
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn rates_are_those_of_the_time_between() {
        let of = |requests: u64, hits: u64| {
            json!({
                "requests": {"Read": requests},
                "volume": {"nfs": {"requests": {"Read": 10}}, "bytes_read": requests * 1024, "inode_hits": hits, "inode_misses": 5},
            })
        };
        let line = line(&of(100, 0), &of(300, 10), 2.0);
        let words: Vec<_> = line.split_whitespace().collect();
        assert_eq!((words[0], &words[1..3]), ("100", &["100.00", "KiB"][..]), "{line}");
        assert!(line.contains("100 %"), "{line}");
        assert!(!super::line(&json!([]), &json!(null), 0.0).is_empty());
    }
}
