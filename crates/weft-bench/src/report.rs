//! Tables and JSON.

use crate::arguments::Arguments;
use crate::experiments::COST;
use crate::facts;
use crate::place::Place;
use crate::timing::{median, ratio};
use serde_json::{Value, json};

/// Samples of one rate, for each place.
pub(crate) struct Row {
    pub(crate) name: String,
    pub(crate) unit: &'static str,
    pub(crate) bar: Option<f64>,
    pub(crate) samples: Vec<Vec<f64>>,
}

impl Row {
    /// Ratio of a place's median to the first's, of costs that of the first's to it: above 1 is
    /// better.
    fn ratio(&self, place: usize) -> f64 {
        let (own, first) = (median(&self.samples[place]), median(&self.samples[0]));
        if self.is_cost() { first / own } else { own / first }
    }

    /// True if less is better.
    fn is_cost(&self) -> bool {
        self.unit.starts_with(COST)
    }

    /// `value` as text.
    fn rate(&self, value: f64) -> String {
        match value {
            value if value.is_nan() && self.is_cost() => "no device found".into(),
            value if value.is_nan() => "too fast to time".into(),
            value if value >= 100.0 => format!("{value:.0}"),
            value => format!("{value:.2}"),
        }
    }

    /// One line for people who wait.
    pub(crate) fn line(&self) -> String {
        let rates: Vec<String> = self.samples.iter().map(|samples| self.rate(median(samples))).collect();
        format!("{:<36} {}", self.name, rates.join("  "))
    }
}

/// Prints a table: rates with their spread, ratios to the first place, and what the bars say.
pub(crate) fn print(places: &[Place], rows: &[Row], arguments: &Arguments) {
    let names: Vec<&str> = places.iter().map(|place| place.name.as_str()).collect();
    let client = arguments.client_cpu.map_or("any processor".into(), |cpu| format!("processor {cpu}"));
    println!("client on {client}; median of {} runs, least to most in brackets", arguments.runs.max(1));
    for place in places {
        let daemon = place.daemon_pid().map(|pid| facts::daemon(&pid)).unwrap_or(Value::Null);
        println!(
            "{}: {} {}",
            place.name,
            place.file_system(),
            if daemon.is_null() { String::new() } else { daemon.to_string() }
        );
    }
    println!("\n| work | unit | {} |", names.join(" | "));
    println!("|---|---|{}", "---|".repeat(places.len()));
    for row in rows {
        let cells = (0..places.len()).map(|place| cell(row, place, arguments.bars));
        println!("| {} | {} | {} |", row.name, row.unit, cells.collect::<Vec<_>>().join(" | "));
    }
}

fn cell(row: &Row, place: usize, bars: bool) -> String {
    let samples = &row.samples[place];
    if samples.iter().any(|sample| sample.is_nan()) {
        return row.rate(f64::NAN);
    }
    let least = samples.iter().copied().fold(f64::INFINITY, f64::min);
    let most = samples.iter().copied().fold(0.0, f64::max);
    let mut text = format!("{} ({}-{})", row.rate(median(samples)), row.rate(least), row.rate(most));
    let own = row.ratio(place);
    if place > 0 && !own.is_nan() {
        text.push_str(&format!(" **{}**", ratio(own)));
        if let Some(bar) = row.bar.filter(|_| bars) {
            let verdict = if own >= bar { "meets" } else { "short of" };
            text.push_str(&format!(" {verdict} {bar:.2}"));
        }
    }
    text
}

/// Everything, for machines.
pub(crate) fn as_json(places: &[Place], rows: &[Row], arguments: &Arguments) -> Value {
    let place = |place: &Place| {
        json!({
            "name": place.name,
            "file_system": place.file_system(),
            "daemon": place.daemon_pid().map(|pid| facts::daemon(&pid)),
        })
    };
    let row = |row: &Row| {
        json!({
            "work": row.name,
            "unit": row.unit,
            "bar": row.bar,
            "samples": row.samples,
            "ratios": (0..places.len()).map(|place| row.ratio(place)).collect::<Vec<_>>(),
        })
    };
    json!({
        "machine": facts::machine(),
        "client_processor": arguments.client_cpu,
        "runs": arguments.runs,
        "counts": arguments.count,
        "size_mib": arguments.size,
        "places": places.iter().map(place).collect::<Vec<_>>(),
        "rows": rows.iter().map(row).collect::<Vec<_>>(),
    })
}
