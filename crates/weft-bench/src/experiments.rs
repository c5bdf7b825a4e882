//! The experiments. Each gives one sample: a rate, higher is better.

mod blocks;
mod files;
mod stream;
mod trees;

use crate::arguments::Arguments;
use crate::place::Place;
use anyhow::{Result, bail};

/// An experiment.
pub(crate) struct Experiment {
    pub(crate) name: &'static str,
    /// Of its samples.
    pub(crate) unit: &'static str,
    /// What the project wants at least, as a ratio to ext4 on the same disk.
    pub(crate) bar: Option<f64>,
    pub(crate) run: fn(&Place, &Arguments) -> Result<f64>,
}

const ALL: &[Experiment] = &[
    Experiment { name: "create", unit: "files/s", bar: Some(0.40), run: files::create },
    Experiment { name: "stat", unit: "calls/s", bar: Some(0.90), run: files::stat },
    Experiment { name: "open-close", unit: "calls/s", bar: Some(0.15), run: files::open_close },
    Experiment { name: "open-read-4k", unit: "calls/s", bar: Some(0.25), run: files::open_read },
    Experiment { name: "list", unit: "entries/s", bar: None, run: files::list },
    Experiment { name: "unlink", unit: "files/s", bar: Some(0.30), run: files::unlink },
    Experiment { name: "create-write-4k", unit: "files/s", bar: Some(0.30), run: files::create_write },
    Experiment { name: "life-cycle-4k", unit: "files/s", bar: None, run: files::life_cycle },
    Experiment { name: "tar", unit: "trees/s", bar: Some(0.35), run: trees::tar },
    Experiment { name: "grep-warm", unit: "trees/s", bar: Some(0.60), run: trees::grep_warm },
    Experiment { name: "grep-cold", unit: "trees/s", bar: Some(0.60), run: trees::grep_cold },
    Experiment { name: "du-warm", unit: "trees/s", bar: Some(0.60), run: trees::du_warm },
    Experiment { name: "du-cold", unit: "trees/s", bar: Some(0.60), run: trees::du_cold },
    Experiment { name: "rm", unit: "trees/s", bar: Some(0.35), run: trees::rm },
    Experiment { name: "write-sync", unit: "MB/s", bar: Some(0.85), run: stream::write_sync },
    Experiment { name: "read-cold", unit: "MB/s", bar: Some(0.90), run: stream::read_cold },
    Experiment { name: "read-warm", unit: "MB/s", bar: Some(0.70), run: stream::read_warm },
    Experiment { name: "mmap-read", unit: "MB/s", bar: None, run: stream::mmap_read },
    Experiment { name: "random-read-cold", unit: "calls/s", bar: Some(0.50), run: blocks::read_cold },
    Experiment { name: "random-write", unit: "calls/s", bar: Some(0.30), run: blocks::write },
    Experiment { name: "random-write-fsync", unit: "calls/s", bar: Some(0.50), run: blocks::write_fsync },
    Experiment { name: "random-write-fsync-4", unit: "calls/s", bar: Some(0.50), run: blocks::write_fsync_four },
];

/// The experiments named.
pub(crate) fn chosen(names: &[String]) -> Result<Vec<&'static Experiment>> {
    let known = || ALL.iter().map(|experiment| experiment.name).collect::<Vec<_>>().join(", ");
    let mut chosen = Vec::new();
    for name in names {
        match name.as_str() {
            "all" => chosen.extend(ALL),
            "list" => bail!("experiments: {}", known()),
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

    fn arguments(directories: Vec<String>) -> Arguments {
        Arguments {
            directories,
            work: vec!["all".into()],
            count: 50,
            size: 2,
            runs: 1,
            tar: None,
            tree: Some(env!("CARGO_MANIFEST_DIR").into()),
            cold: Vec::new(),
            client_cpu: None,
            daemon_pid: Vec::new(),
            json: None,
            bars: true,
        }
    }

    #[test]
    fn every_experiment_gives_a_rate_and_leaves_nothing_behind() {
        let directory = tempfile::tempdir().expect("a directory");
        let arguments = arguments(vec![format!("here={}", directory.path().display())]);
        let place = Place::prepare(&arguments.directories[0], &arguments).expect("prepared");
        for experiment in ALL.iter().filter(|experiment| !experiment.name.ends_with("cold")) {
            let rate = (experiment.run)(&place, &arguments).expect(experiment.name);
            assert!(rate.is_finite() && rate > 0.0, "{}: {rate}", experiment.name);
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
