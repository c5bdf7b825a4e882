//! bonnie++, a judge from outside: its own phases, read from the line it prints for programs.

use crate::place::Place;
use crate::scale::Scale;
use anyhow::{Context, Result, ensure};
use std::process::Command;

/// Fields read of bonnie++'s line: name, unit, and number of the field, from 0 (bon_csv2txt(1)).
const FIELDS: [(&str, &str, usize); 10] = [
    ("bonnie-write", "KiB/s", 11),
    ("bonnie-rewrite", "KiB/s", 13),
    ("bonnie-read", "KiB/s", 17),
    ("bonnie-seek", "seeks/s", 19),
    ("bonnie-create-sequential", "files/s", 26),
    ("bonnie-stat-sequential", "files/s", 28),
    ("bonnie-delete-sequential", "files/s", 30),
    ("bonnie-create-random", "files/s", 32),
    ("bonnie-stat-random", "files/s", 34),
    ("bonnie-delete-random", "files/s", 36),
];

/// Names and units of what [`run`] gives.
pub(super) const PARTS: &[(&str, &str)] = &{
    let mut parts = [("", ""); FIELDS.len()];
    let mut i = 0;
    while i < FIELDS.len() {
        parts[i] = (FIELDS[i].0, FIELDS[i].1);
        i += 1;
    }
    parts
};

/// MiB from which on a file is written and read by a MiB. Each of the 8192 seeks reads as much; by
/// 8 KiB, as small files are, they end before bonnie++ can time them.
const LARGE: usize = 4096;

/// Files of a page each, in thousands and in twenty directories; one file of the size given.
pub(super) fn run(place: &Place, scale: &Scale) -> Result<Vec<f64>> {
    let directory = place.fresh("bonnie")?;
    // More memory is told than used: it would refuse a file that the page cache can hold.
    let ram = (scale.size / 4).max(1);
    let thousands = scale.count.div_ceil(1024).max(1);
    let chunk = if scale.size < LARGE { "8k" } else { "1024k" };
    let output = Command::new("bonnie++")
        .args(["-q", "-f", "-u", "root", "-D"])
        .args(["-s", &format!("{}:{chunk}", scale.size), "-r", &ram.to_string()])
        .args(["-n", &format!("{thousands}:4096:4096:20")])
        .arg("-d")
        .arg(&directory)
        .output()
        .context("cannot run bonnie++: install the package of that name")?;
    ensure!(output.status.success(), "bonnie++ failed: {}", String::from_utf8_lossy(&output.stderr));
    place.retire("bonnie")?;
    parse(&String::from_utf8_lossy(&output.stdout))
}

fn parse(output: &str) -> Result<Vec<f64>> {
    let line = output.lines().find(|line| line.matches(',').count() > 30).context("bonnie++ printed no figures")?;
    let fields: Vec<&str> = line.split(',').collect();
    let figure = |(name, _, at): &(&str, &str, usize)| match fields.get(*at).copied().unwrap_or_default() {
        // Less than half a second.
        "+++++" => Ok(f64::NAN),
        text => text.parse().with_context(|| format!("bonnie++ gave '{text}' for {name}")),
    };
    FIELDS.iter().map(figure).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_are_found_in_the_line_and_what_was_too_fast_is_no_number() {
        let line = "1.98,2.00a,vm,1,1795245532,512M,,8192,5,,,297156,84,+++++,+++,,,31,1,41,1,8,4096,4096,,20,\
            51,1,61,1,14256,32,2237,95,71,1,13493,31,,554us,49us,,51us,1101us,4067us,84us,2284us,4482us,88us,2659us";
        let figures = parse(&format!("a greeting\n{line}\n")).expect("parsed");
        assert!(figures[1].is_nan());
        let known: Vec<f64> = figures.into_iter().filter(|figure| !figure.is_nan()).collect();
        assert_eq!(known, [297_156.0, 31.0, 41.0, 51.0, 61.0, 14256.0, 2237.0, 71.0, 13493.0]);
    }

    #[test]
    fn output_without_figures_is_refused() {
        assert!(parse("Using uid:0\n").is_err());
    }
}
