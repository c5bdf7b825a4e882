//! The machine, and where things run on it.

use anyhow::{Context, Result};
use rustix::thread::{CpuSet, sched_setaffinity};
use serde_json::{Value, json};
use std::collections::BTreeMap;

/// Pins this program to a processor.
pub(crate) fn pin(processor: usize) -> Result<()> {
    let mut set = CpuSet::new();
    if processor < CpuSet::MAX_CPU {
        set.set(processor);
    }
    sched_setaffinity(None, &set).with_context(|| format!("cannot run on processor {processor}"))
}

/// The machine's facts.
pub(crate) fn machine() -> Value {
    let read = |path: &str| std::fs::read_to_string(path).unwrap_or_default().trim().to_owned();
    let model = read("/proc/cpuinfo").lines().find(|line| line.starts_with("model name")).unwrap_or("").to_owned();
    json!({
        "kernel": read("/proc/sys/kernel/osrelease"),
        "processors": std::thread::available_parallelism().map_or(1, usize::from),
        "processor": model.split_once(':').map_or("", |(_, name)| name.trim()),
        "fuse_over_io_uring": read("/sys/module/fuse/parameters/enable_uring"),
    })
}

/// Returns the processors that a daemon's threads may run on, and its memory: lines of
/// proc_pid_status(5).
pub(crate) fn daemon(pid: &str) -> Value {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    let threads = std::fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten().flatten();
    let statuses = threads.filter_map(|thread| std::fs::read_to_string(thread.path().join("status")).ok());
    // A thread whose name says what it does may be where others are not.
    let placements: BTreeMap<String, String> =
        statuses.map(|status| (field(&status, "Name"), field(&status, "Cpus_allowed_list"))).collect();
    json!({
        "pid": pid,
        "processors_allowed": placements,
        "resident": field(&status, "VmRSS"),
        "resident_peak": field(&status, "VmHWM"),
    })
}

fn field(status: &str, name: &str) -> String {
    let line = status.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
    line.map(|value| value.trim().to_owned()).unwrap_or_default()
}
