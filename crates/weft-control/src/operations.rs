//! Operations by kind and by requester, as `weft stats --operations` shows them: with the buckets
//! of their latencies, so that who asks twice can tell what was between.

use serde_json::{Value, json};
use weft_vfs::{Latency, Report, Work};

/// The transport of requests about files at the control socket.
pub(crate) const FILES: &str = "socket";

/// Returns the operations that `report` counts, and those on `files` at the control socket.
pub(crate) fn operations_value(report: &Report, files: &[(&'static str, Latency)]) -> Value {
    let own = report.operations.iter().map(|(name, latency)| operation(name, report.transport, latency));
    let nfs = report.volume.nfs.as_ref();
    let served = nfs.into_iter().flat_map(|nfs| &nfs.operations).map(|(name, latency)| operation(name, "nfs", latency));
    let asked = files.iter().map(|(name, latency)| operation(name, FILES, latency));
    let (processes, others) = &report.processes;
    let of_process = |(pid, of): &(u32, Work)| work("pid", json!(pid), of);
    let clients = nfs.map(|nfs| &nfs.clients);
    let of_client = |(address, of): &(std::net::IpAddr, Work)| work("address", json!(address), of);
    json!({
        "operations": own.chain(served).chain(asked).collect::<Vec<_>>(),
        "processes": processes.iter().map(of_process).collect::<Vec<_>>(),
        "other_processes": work("pid", Value::Null, others),
        "clients": clients.map_or_else(Vec::new, |(clients, _)| clients.iter().map(of_client).collect()),
        "other_clients": clients.map(|(_, others)| work("address", Value::Null, others)),
    })
}

fn operation(name: &str, transport: &str, latency: &Latency) -> Value {
    let mut value = json!(latency);
    value["operation"] = json!(name.to_ascii_lowercase());
    value["transport"] = json!(transport);
    value["buckets"] = json!(latency.buckets());
    value
}

fn work(name: &str, of: Value, work: &Work) -> Value {
    json!({ name: of, "requests": work.requests, "time_us": work.time.as_nanos() as f64 / 1000.0 })
}
