//! Benchmarks: the same work in several directories, interleaved, as ratios to the first.
//!
//! The harness starts no daemon: directories are given mounted. Each experiment checks that its answers are
//! right, since a wrong fast one is worth nothing.

mod arguments;
mod experiments;
mod facts;
mod place;
mod report;
mod timing;

pub use arguments::Arguments;

use anyhow::{Context, Result, bail};
use experiments::Experiment;
use place::Place;
use report::Row;

/// Runs the benchmark.
pub fn run(arguments: &Arguments) -> Result<()> {
    let experiments = experiments::chosen(&arguments.work)?;
    if let Some(processor) = arguments.client_cpu {
        facts::pin(processor)?;
    }
    let mut places = Vec::new();
    for named in &arguments.directories {
        places.push(Place::prepare(named, arguments)?);
    }
    if places.is_empty() {
        bail!("name at least one directory, as NAME=DIRECTORY");
    }
    let mut rows = Vec::new();
    for experiment in experiments {
        let row =
            measure(experiment, &places, arguments).with_context(|| format!("experiment '{}'", experiment.name))?;
        eprintln!("{}", row.line());
        rows.push(row);
    }
    report::print(&places, &rows, arguments);
    if let Some(file) = &arguments.json {
        let json = report::as_json(&places, &rows, arguments);
        std::fs::write(file, format!("{json:#}\n")).with_context(|| format!("cannot write {}", file.display()))?;
    }
    Ok(())
}

/// All runs of one experiment, A B A B.
fn measure(experiment: &'static Experiment, places: &[Place], arguments: &Arguments) -> Result<Row> {
    let mut samples = vec![Vec::new(); places.len()];
    for run in 0..=arguments.runs {
        for (place, samples) in places.iter().zip(&mut samples) {
            let sample = (experiment.run)(place, arguments).with_context(|| format!("in {}", place.name))?;
            // The first run warms memory and caches up.
            if run > 0 || arguments.runs == 0 {
                samples.push(sample);
            }
        }
    }
    Ok(Row { experiment, samples })
}
