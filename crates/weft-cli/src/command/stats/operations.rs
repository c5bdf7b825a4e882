//! `weft stats --operations`: who does what, and how long it takes.

use crate::daemons::Running;
use crate::shown;
use anyhow::{Context, Result};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::time::{Duration, Instant};
use weft_vfs::Latency;

/// Most processes or clients that are shown.
const ROWS_MAX: usize = 20;

/// Operations, processes and clients as a daemon counts them.
pub struct Counted {
    at: Instant,
    value: Value,
}

/// An operation and its transport.
type Kind = (String, String);

impl Counted {
    /// Asks `daemon`.
    pub fn of(daemon: &Running) -> Result<Counted> {
        Ok(Counted { at: Instant::now(), value: daemon.operations()? })
    }

    /// Prints all that was counted, or what was since `earlier`.
    pub fn print(&self, earlier: Option<&Counted>, json: bool) {
        if json {
            return outln!("{}", self.json(earlier));
        }
        let seconds = earlier.map(|earlier| self.at.saturating_duration_since(earlier.at).as_secs_f64());
        let per = |count: u64| match seconds {
            Some(seconds) => format!("{:.0}/s", count as f64 / seconds),
            None => count.to_string(),
        };
        outln!(
            "{:<18}{:<10}{:>12}{:>10}{:>10}{:>10}{:>10}",
            "operation",
            "over",
            "requests",
            "mean",
            "50 %",
            "90 %",
            "99 %"
        );
        for ((operation, transport), latency) in self.latencies(earlier) {
            let [half, most, nearly_all] = [0.5, 0.9, 0.99].map(|share| time(latency.quantile(share)));
            let line = format!(
                "{operation:<18}{transport:<10}{:>12}{:>10}{half:>10}{most:>10}{nearly_all:>10}",
                per(latency.count()),
                time(latency.mean())
            );
            outln!("{}", shown::message(&line));
        }
        self.print_work(earlier, ("processes", "pid", "process"), &per);
        self.print_work(earlier, ("clients", "address", "client"), &per);
    }

    fn print_work(
        &self,
        earlier: Option<&Counted>,
        (list, name, title): (&str, &str, &str),
        per: &dyn Fn(u64) -> String,
    ) {
        let mut rows = self.work(earlier, (list, name));
        let others = self.others(earlier, list);
        if rows.is_empty() && others.0 == 0 {
            return;
        }
        rows.sort_by(|one, other| other.2.total_cmp(&one.2));
        outln!("\n{title:<28}{:>12}{:>10}", "requests", "time");
        let row = |of: &str, requests: u64, micros: f64| {
            let line = format!("{of:<28}{:>12}{:>10}", per(requests), time(micros_of(micros)));
            outln!("{}", shown::message(&line));
        };
        for (of, requests, micros) in rows.iter().take(ROWS_MAX) {
            let of = match (name, of.as_u64()) {
                ("pid", Some(pid)) => process(pid),
                _ => of.as_str().map_or_else(|| of.to_string(), str::to_owned),
            };
            row(&of, *requests, *micros);
        }
        let beyond = rows.iter().skip(ROWS_MAX).map(|(_, requests, micros)| (*requests, *micros));
        let (requests, micros) = beyond.fold(others, |all, of| (all.0 + of.0, all.1 + of.1));
        if requests > 0 {
            row("all others", requests, micros);
        }
    }

    fn rows(&self, list: &str) -> impl Iterator<Item = &Value> {
        self.value[list].as_array().into_iter().flatten()
    }

    /// Returns each operation that was done since `earlier`, those that took most time first.
    fn latencies(&self, earlier: Option<&Counted>) -> Vec<(Kind, Latency)> {
        let before: BTreeMap<Kind, Latency> = earlier.into_iter().flat_map(|earlier| earlier.counted()).collect();
        let since = |(kind, latency): (Kind, Latency)| match before.get(&kind) {
            Some(before) => (kind, latency.since(before)),
            None => (kind, latency),
        };
        let mut all: Vec<_> = self.counted().map(since).filter(|(_, latency)| latency.count() > 0).collect();
        all.sort_by_key(|(_, latency)| std::cmp::Reverse(latency.total()));
        all
    }

    fn counted(&self) -> impl Iterator<Item = (Kind, Latency)> + '_ {
        self.rows("operations").map(|row| {
            let word = |name: &str| row[name].as_str().unwrap_or("?").to_owned();
            let buckets = row["buckets"].as_array().into_iter().flatten();
            let buckets =
                buckets.filter_map(|pair| Some((usize::try_from(pair[0].as_u64()?).ok()?, pair[1].as_u64()?)));
            let nanos = row["total_us"].as_f64().unwrap_or(0.0) * 1000.0;
            ((word("operation"), word("transport")), Latency::of_buckets(buckets, nanos as u64))
        })
    }

    /// Returns the requests since `earlier` of those that are not told apart, and the microseconds.
    fn others(&self, earlier: Option<&Counted>, list: &str) -> (u64, f64) {
        let of = |counted: &Counted| {
            let others = &counted.value[format!("other_{list}")];
            (others["requests"].as_u64().unwrap_or(0), others["time_us"].as_f64().unwrap_or(0.0))
        };
        let (now, before) = (of(self), earlier.map(of).unwrap_or_default());
        (now.0.saturating_sub(before.0), (now.1 - before.1).max(0.0))
    }

    /// Returns who made requests since `earlier`, how many, and the microseconds that they took.
    fn work(&self, earlier: Option<&Counted>, (list, name): (&str, &str)) -> Vec<(Value, u64, f64)> {
        let of = |row: &Value| (row["requests"].as_u64().unwrap_or(0), row["time_us"].as_f64().unwrap_or(0.0));
        let before = |row: &Value| {
            let same = earlier.and_then(|earlier| earlier.rows(list).find(|other| other[name] == row[name]));
            // One that was forgotten meanwhile counts from 0 again.
            same.map(of).filter(|before| before.0 <= of(row).0).unwrap_or_default()
        };
        let since = self.rows(list).map(|row| {
            let ((requests, micros), (requests_before, micros_before)) = (of(row), before(row));
            (row[name].clone(), requests - requests_before, (micros - micros_before).max(0.0))
        });
        since.filter(|(_, requests, _)| *requests > 0).collect()
    }

    fn json(&self, earlier: Option<&Counted>) -> Value {
        let operations = self.latencies(earlier).into_iter().map(|((operation, transport), latency)| {
            let mut value = json!(latency);
            value["operation"] = json!(operation);
            value["transport"] = json!(transport);
            value
        });
        let work = |list, name: &str| -> Vec<Value> {
            let row = |(of, requests, micros)| json!({ name: of, "requests": requests, "time_us": micros });
            self.work(earlier, (list, name)).into_iter().map(row).collect()
        };
        let others = |list| {
            let (requests, micros) = self.others(earlier, list);
            json!({ "requests": requests, "time_us": micros })
        };
        json!({
            "seconds": earlier.map(|earlier| self.at.saturating_duration_since(earlier.at).as_secs_f64()),
            "operations": operations.collect::<Vec<_>>(),
            "processes": work("processes", "pid"),
            "clients": work("clients", "address"),
            "other_processes": others("processes"),
            "other_clients": others("clients"),
        })
    }
}

fn micros_of(micros: f64) -> Duration {
    Duration::from_nanos((micros * 1000.0).max(0.0) as u64)
}

/// Returns a process and its name, if it is still there.
fn process(pid: u64) -> String {
    match std::fs::read(format!("/proc/{pid}/comm")) {
        _ if pid == 0 => "the kernel, or out of sight".into(),
        Ok(name) => format!("{pid} ({})", String::from_utf8_lossy(&name).trim_end()),
        Err(_) => format!("{pid} (ended)"),
    }
}

/// Returns `time` with three digits and its unit.
pub fn time(time: Duration) -> String {
    let micros = time.as_nanos() as f64 / 1000.0;
    let (value, unit) = match micros {
        micros if micros < 1000.0 => (micros, "us"),
        micros if micros < 1e6 => (micros / 1e3, "ms"),
        _ => (micros / 1e6, "s"),
    };
    let digits = if value < 10.0 { 2 } else { usize::from(value < 100.0) };
    format!("{value:.digits$} {unit}")
}

impl Running {
    fn operations(&self) -> Result<Value> {
        self.told("/operations").context("it does not tell its operations")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn counted(seconds: u64, reads: u64, requests: u64) -> Counted {
        let value = json!({
            "operations": [{ "operation": "read", "transport": "device", "total_us": reads * 10, "buckets": [[20, reads]] }],
            "processes": [{ "pid": 0, "requests": requests, "time_us": 5.0 }],
            "clients": [],
        });
        Counted { at: Instant::now() + Duration::from_secs(seconds), value }
    }

    #[test]
    fn what_was_between_two_answers_is_told() {
        let (first, second) = (counted(0, 5, 7), counted(1, 9, 8));
        let told = second.json(Some(&first));
        assert_eq!((&told["operations"][0]["count"], &told["processes"][0]["requests"]), (&json!(4), &json!(1)));
        assert_eq!(first.json(None)["operations"][0]["count"], 5);
        // A process that was forgotten and came again.
        assert_eq!(counted(1, 9, 2).json(Some(&first))["processes"][0]["requests"], 2);
        // An answer that lacks anything.
        Counted { at: Instant::now(), value: json!({"operations": [{}], "processes": 3}) }.print(Some(&first), false);
    }

    #[test]
    fn times_have_three_digits() {
        let micros = |micros| time(micros_of(micros));
        assert_eq!([0.0, 3.456, 42.0, 512.4].map(micros), ["0.00 us", "3.46 us", "42.0 us", "512 us"]);
        assert_eq!([1500.0, 2e6].map(micros), ["1.50 ms", "2.00 s"]);
    }
}
