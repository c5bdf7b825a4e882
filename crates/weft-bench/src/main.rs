//! Benchmarks: the same work in several directories, interleaved, as ratios to the first.
//!
//! Directories are given mounted: none is mounted here but, if asked for, one of a file system that
//! stores nothing, which shows what FUSE itself costs. Each experiment checks that its
//! answers are right, since a wrong fast one is worth nothing. The program `weft` that some of them
//! run is the one beside this program.

mod arguments;
mod device;
mod experiments;
mod facts;
mod mounts;
mod nothing;
mod place;
mod report;
mod scale;
mod timing;

use arguments::Arguments;

use anyhow::{Context, Result, bail};
use clap::Parser;
use experiments::{Experiment, Kind};
use place::Place;
use report::Row;
use scale::Scale;
use std::path::PathBuf;
use std::process::ExitCode;

fn main() -> ExitCode {
    match run(&Arguments::parse()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("weft-bench: {error:#}");
            ExitCode::FAILURE
        }
    }
}

/// The program `weft` beside this one.
fn weft() -> Result<PathBuf> {
    let weft = std::env::current_exe().context("cannot tell where this program lies")?.with_file_name("weft");
    anyhow::ensure!(weft.exists(), "{} is missing: build it, too", weft.display());
    Ok(weft)
}

/// Runs the benchmark.
fn run(arguments: &Arguments) -> Result<()> {
    if let Some(file) = &arguments.hold {
        return experiments::hold(file);
    }
    if let Some(directory) = &arguments.serve_nothing {
        return match arguments.until_input_ends {
            false => nothing::start(directory, arguments.device),
            true => nothing::serve(directory, arguments.device),
        };
    }
    if let Some(processor) = arguments.client_cpu {
        facts::pin(processor)?;
    }
    if let Some(what) = &arguments.fill {
        return experiments::fill(what);
    }
    if arguments.work.iter().any(|name| name == "list") {
        print!("{}", experiments::list());
        return Ok(());
    }
    let experiments = experiments::chosen(&arguments.work)?;
    let mut places = Vec::new();
    for named in &arguments.directories {
        places.push(Place::prepare(named, &arguments.cold, &arguments.daemon_pid)?);
    }
    if places.is_empty() {
        bail!("name at least one directory, as NAME=DIRECTORY");
    }
    let _packed = experiments::Packed;
    let mut rows = Vec::new();
    for experiment in experiments {
        let counts = if experiment.counts { &arguments.count[..] } else { &arguments.count[..1] };
        for count in counts {
            let scale = Scale::new(arguments, *count);
            let measured = measure(experiment, &places, &scale, arguments)
                .with_context(|| format!("experiment '{}'", experiment.name))?;
            measured.iter().for_each(|row| eprintln!("{}", row.line()));
            rows.extend(measured);
        }
    }
    report::print(&places, &rows, arguments);
    if let Some(file) = &arguments.json {
        let json = report::as_json(&places, &rows, arguments);
        std::fs::write(file, format!("{json:#}\n")).with_context(|| format!("cannot write {}", file.display()))?;
    }
    Ok(())
}

/// All runs of one experiment, A B A B.
fn measure(
    experiment: &'static Experiment,
    places: &[Place],
    scale: &Scale,
    arguments: &Arguments,
) -> Result<Vec<Row>> {
    let mut rows = rows_of(experiment, places.len(), scale, arguments);
    for run in 0..=arguments.runs {
        for (number, place) in places.iter().enumerate() {
            let rates = experiment.kind.run(place, scale).with_context(|| format!("in {}", place.name))?;
            // The first run warms memory and caches up.
            if run > 0 || arguments.runs == 0 {
                rows.iter_mut().zip(rates).for_each(|(row, rate)| row.samples[number].push(rate));
            }
        }
    }
    Ok(rows)
}

/// The rows of one experiment, still empty.
fn rows_of(experiment: &Experiment, places: usize, scale: &Scale, arguments: &Arguments) -> Vec<Row> {
    let samples = vec![Vec::new(); places];
    match experiment.kind {
        Kind::Rate { unit, bar, .. } => {
            let several = experiment.counts && arguments.count.len() > 1;
            let name = if several { format!("{} of {}", experiment.name, scale.count) } else { experiment.name.into() };
            vec![Row { name, unit, bar, samples }]
        }
        Kind::Rates { parts, .. } => {
            let row = |(name, unit): &(&str, &'static str)| Row {
                name: (*name).into(),
                unit,
                bar: None,
                samples: samples.clone(),
            };
            parts.iter().map(row).collect()
        }
    }
}
