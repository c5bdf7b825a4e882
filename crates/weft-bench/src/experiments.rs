//! The experiments. Each gives one sample: a rate, higher is better; or several, of which some are
//! costs.

mod blocks;
mod bonnie;
mod channels;
mod copies;
mod eager;
mod files;
mod flat;
mod networks;
mod small_writes;
mod stream;
mod trees;
mod zerocopy;

pub(crate) use channels::fill;
pub(crate) use small_writes::COST;
pub(crate) use trees::Packed;
pub(crate) use zerocopy::hold;

use crate::place::Place;
use crate::scale::Scale;
use anyhow::{Result, bail};

/// An experiment.
pub(crate) struct Experiment {
    pub(crate) name: &'static str,
    pub(crate) kind: Kind,
    /// True if it is run for each count of files asked for.
    pub(crate) counts: bool,
}

/// Kind of measurement.
#[derive(Clone, Copy)]
pub(crate) enum Kind {
    /// One rate.
    Rate {
        /// Unit of its samples.
        unit: &'static str,
        /// Lowest ratio to ext4 on the same disk that the project wants.
        bar: Option<f64>,
        run: fn(&Place, &Scale) -> Result<f64>,
    },
    /// Several at once, with their names and units.
    Rates { parts: &'static [(&'static str, &'static str)], run: Runs },
}

impl Kind {
    /// One sample of each rate.
    pub(crate) fn run(self, place: &Place, scale: &Scale) -> Result<Vec<f64>> {
        match self {
            Kind::Rate { run, .. } => Ok(vec![run(place, scale)?]),
            Kind::Rates { run, .. } => run(place, scale),
        }
    }
}

type Run = fn(&Place, &Scale) -> Result<f64>;

const fn files(name: &'static str, unit: &'static str, bar: Option<f64>, run: Run) -> Experiment {
    Experiment { name, kind: Kind::Rate { unit, bar, run }, counts: true }
}

const fn tree(name: &'static str, bar: f64, run: Run) -> Experiment {
    Experiment { name, kind: Kind::Rate { unit: "trees/s", bar: Some(bar), run }, counts: false }
}

const fn data(name: &'static str, unit: &'static str, bar: Option<f64>, run: Run) -> Experiment {
    Experiment { name, kind: Kind::Rate { unit, bar, run }, counts: false }
}

type Runs = fn(&Place, &Scale) -> Result<Vec<f64>>;

const fn rates(name: &'static str, parts: &'static [(&'static str, &'static str)], run: Runs) -> Experiment {
    Experiment { name, kind: Kind::Rates { parts, run }, counts: false }
}

/// Those that remove files come last: see [`Place::retire`].
const ALL: &[Experiment] = &[
    files("create", "files/s", Some(0.40), files::create),
    files("stat", "calls/s", Some(0.90), files::stat),
    files("open-close", "calls/s", Some(0.15), files::open_close),
    files("open-read-4k", "calls/s", Some(0.25), files::open_read),
    files("list-warm", "entries/s", None, files::list),
    files("list-cold", "lists/s", None, files::list_cold),
    files("create-write-4k", "files/s", Some(0.30), files::create_write),
    tree("tar", 0.35, trees::tar),
    tree("grep-warm", 0.60, trees::grep_warm),
    tree("grep-cold", 0.60, trees::grep_cold),
    tree("du-warm", 0.60, trees::du_warm),
    tree("du-cold", 0.60, trees::du_cold),
    data("write-sync", "MB/s", Some(0.85), stream::write_sync),
    data("write-large", "MB/s", None, stream::write_large),
    data("read-cold", "MB/s", Some(0.90), stream::read_cold),
    data("read-warm", "MB/s", Some(0.70), stream::read_warm),
    data("mmap-read", "MB/s", None, stream::mmap_read),
    data("mmap-write", "MB/s", None, stream::mmap_write),
    data("random-read-cold", "calls/s", Some(0.50), blocks::read_cold),
    data("random-write", "calls/s", Some(0.30), blocks::write),
    data("random-write-fsync", "calls/s", Some(0.50), blocks::write_fsync),
    data("random-write-fsync-4", "calls/s", Some(0.50), blocks::write_fsync_four),
    data("random-write-fsync-4-files", "calls/s", Some(0.50), blocks::write_fsync_four_files),
    rates("random-write-fdatasync", small_writes::FDATASYNC, small_writes::fdatasync),
    rates("random-write-fdatasync-4-files", small_writes::FDATASYNC_FOUR, small_writes::fdatasync_four),
    rates("append-100-fsync", small_writes::APPEND, small_writes::append),
    rates("random-write-one-fsync", small_writes::ONE_FSYNC, small_writes::one_fsync),
    files("unlink", "files/s", Some(0.30), files::unlink),
    tree("rm", 0.35, trees::rm),
    files("life-cycle-4k", "files/s", None, files::life_cycle),
    data("create-eager", "files/s", None, eager::create),
    data("rewrite-eager", "closes/s", None, eager::rewrite),
    data("rewrite-kept", "closes/s", None, eager::rewrite_kept),
    Experiment { name: "flat-create", kind: Kind::Rates { parts: flat::CREATE, run: flat::create }, counts: true },
    Experiment { name: "flat-stat", kind: Kind::Rates { parts: flat::STAT, run: flat::stat }, counts: true },
    Experiment { name: "flat-unlink", kind: Kind::Rates { parts: flat::UNLINK, run: flat::unlink }, counts: true },
    rates("copy-delete", copies::PARTS, copies::run),
    rates("networks", networks::PARTS, networks::run),
    rates("zerocopy", zerocopy::PARTS, zerocopy::run),
    rates("channels", channels::PARTS, channels::run),
    rates("bonnie", bonnie::PARTS, bonnie::run),
];

/// Those that are run only by their names.
const APART: [&str; 15] = [
    "append-100-fsync",
    "bonnie",
    "channels",
    "copy-delete",
    "create-eager",
    "flat-create",
    "flat-stat",
    "flat-unlink",
    "networks",
    "random-write-fdatasync",
    "random-write-fdatasync-4-files",
    "random-write-one-fsync",
    "rewrite-eager",
    "rewrite-kept",
    "zerocopy",
];

/// The names of all experiments, a line each.
pub(crate) fn list() -> String {
    ALL.iter().map(|experiment| format!("{}\n", experiment.name)).collect()
}

/// The experiments named.
pub(crate) fn chosen(names: &[String]) -> Result<Vec<&'static Experiment>> {
    let known = || ALL.iter().map(|experiment| experiment.name).collect::<Vec<_>>().join(", ");
    let mut chosen = Vec::new();
    for name in names {
        match name.as_str() {
            "all" => chosen.extend(ALL.iter().filter(|experiment| !APART.contains(&experiment.name))),
            name => match ALL.iter().find(|experiment| experiment.name == name) {
                Some(experiment) => chosen.push(experiment),
                None => bail!("unknown experiment '{name}'; there are: {}", known()),
            },
        }
    }
    Ok(chosen)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_experiment_gives_a_rate_and_leaves_nothing_behind() {
        let directory = tempfile::tempdir().expect("a directory");
        let named = format!("here={}", directory.path().display());
        let place = Place::prepare(&named, &[], &[]).expect("prepared");
        let scale = Scale { count: 50, size: 2, tar: None, tree: Some(env!("CARGO_MANIFEST_DIR").into()) };
        // Where no volume is mounted nothing keeps digests.
        // "channels" and "zerocopy" run this program again, which is another one here.
        let apart = ["bonnie", "rewrite-kept", "zerocopy", "channels"];
        let runnable = |name: &str| !name.contains("cold") && !apart.contains(&name);
        for experiment in ALL.iter().filter(|experiment| runnable(experiment.name)) {
            let rates = experiment.kind.run(&place, &scale).expect(experiment.name);
            // A cost is not a number where no device is found.
            let costs = matches!(experiment.kind, Kind::Rates { parts, .. } if parts[1].1.starts_with(COST));
            let is_right = |(at, rate): (usize, &f64)| (rate.is_finite() && *rate > 0.0) || (costs && at == 1);
            assert!(rates.iter().enumerate().all(is_right), "{}: {rates:?}", experiment.name);
        }
        drop(place);
        assert_eq!(std::fs::read_dir(directory.path()).expect("listed").count(), 0);
    }

    #[test]
    fn an_unknown_experiment_is_refused_with_the_names_of_the_known() {
        let error = chosen(&["nonsense".into()]).err().expect("refused").to_string();
        assert!(error.contains("create-write-4k"), "{error}");
    }
}
