//! A real source tree: unpacked, searched, counted, removed, by the programs people use.

use crate::place::Place;
use crate::scale::Scale;
use crate::timing::time;
use anyhow::{Context, Result, bail, ensure};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// The archive: the one given, or one packed from the tree given (or the cargo registry's sources).
fn archive(scale: &Scale) -> Result<PathBuf> {
    if let Some(tar) = &scale.tar {
        return Ok(tar.clone());
    }
    let home = std::env::var_os("CARGO_HOME")
        .map(PathBuf::from)
        .or_else(|| std::env::var_os("HOME").map(|home| Path::new(&home).join(".cargo")));
    let tree = scale.tree.clone().or(home.map(|home| home.join("registry/src")));
    let Some(tree) = tree.filter(|tree| tree.is_dir()) else { bail!("name a source tree with --tree or --tar") };
    let packed = packed();
    if !packed.exists() {
        run(Command::new("tar").arg("cf").arg(&packed).arg("-C").arg(&tree).arg("."))?;
    }
    Ok(packed)
}

/// Returns the path of the archive that a tree is packed into.
fn packed() -> PathBuf {
    std::env::temp_dir().join(format!("weft-bench-{}.tar", std::process::id()))
}

/// Dropped, it removes the archive if one was packed.
pub(crate) struct Packed;

impl Drop for Packed {
    fn drop(&mut self) {
        // Best effort: there may be none, and what is left is named after this program.
        let _ = std::fs::remove_file(packed());
    }
}

/// Runs a program; exit code 1 is an answer too (grep finding nothing).
fn run(command: &mut Command) -> Result<String> {
    let output = command.stderr(Stdio::inherit()).output().with_context(|| format!("cannot run {command:?}"))?;
    ensure!(output.status.code().is_some_and(|code| code <= 1), "{command:?} failed");
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

fn unpack(place: &Place, scale: &Scale) -> Result<PathBuf> {
    let tree = place.fresh("tree")?;
    let archive = archive(scale)?;
    let status = Command::new("tar").arg("xf").arg(&archive).arg("-C").arg(&tree).status().context("cannot run tar")?;
    ensure!(status.success(), "tar failed");
    Ok(tree)
}

fn rate(work: impl FnOnce() -> Result<()>) -> Result<f64> {
    Ok(1.0 / time(work)?.as_secs_f64())
}

pub(super) fn tar(place: &Place, scale: &Scale) -> Result<f64> {
    archive(scale)?;
    place.retire("tree")?;
    let rate = rate(|| unpack(place, scale).map(|_| ()))?;
    let found = run(Command::new("sh").args(["-c", "find . | wc -l"]).current_dir(place.work.join("tree")))?;
    let packed = run(Command::new("sh").arg("-c").arg("tar tf \"$0\" | wc -l").arg(archive(scale)?))?;
    ensure!(found.trim() == packed.trim(), "unpacked {} of {}", found.trim(), packed.trim());
    place.retire("tree")?;
    Ok(rate)
}

/// The tree, unpacked once and kept for the experiments that only read it.
fn kept(place: &Place, scale: &Scale) -> Result<PathBuf> {
    let tree = place.work.join("tree");
    if tree.exists() { Ok(tree) } else { unpack(place, scale) }
}

fn grep(tree: &Path) -> Result<()> {
    run(Command::new("grep").args(["-r", "no such string anywhere, surely"]).arg(tree)).map(|_| ())
}

fn du(tree: &Path) -> Result<()> {
    run(Command::new("du").arg("-s").arg(tree)).map(|_| ())
}

fn warm(place: &Place, scale: &Scale, work: fn(&Path) -> Result<()>) -> Result<f64> {
    let tree = kept(place, scale)?;
    work(&tree)?;
    rate(|| work(&tree))
}

fn cold(place: &Place, scale: &Scale, work: fn(&Path) -> Result<()>) -> Result<f64> {
    let tree = kept(place, scale)?;
    place.make_cold()?;
    rate(|| work(&tree))
}

pub(super) fn grep_warm(place: &Place, scale: &Scale) -> Result<f64> {
    warm(place, scale, grep)
}

pub(super) fn grep_cold(place: &Place, scale: &Scale) -> Result<f64> {
    cold(place, scale, grep)
}

pub(super) fn du_warm(place: &Place, scale: &Scale) -> Result<f64> {
    warm(place, scale, du)
}

pub(super) fn du_cold(place: &Place, scale: &Scale) -> Result<f64> {
    cold(place, scale, du)
}

pub(super) fn rm(place: &Place, scale: &Scale) -> Result<f64> {
    let tree = kept(place, scale)?;
    let rate = rate(|| run(Command::new("rm").arg("-rf").arg(&tree)).map(|_| ()))?;
    ensure!(!tree.exists(), "the tree is still there");
    Ok(rate)
}
