//! Networks in commands: those that a volume names, their errors, their stages and their results.

use super::transfer::Place;
use crate::failure::usage;
use crate::mounted;
use crate::shown;
use anyhow::{Context, Result};
use rustix::io::Errno;
use std::collections::{BTreeMap, VecDeque};
use std::ffi::OsStr;
use std::io::{self, IoSlice};
use std::os::fd::AsFd;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use weft_attributes::Attribute;
use weft_block::Rope;
use weft_links::WithLinks;
use weft_transform::{Described, Network, NetworkError, RunError, expand};
use weft_vfs::Vfs;

/// Networks of a volume, by name.
pub type Names = BTreeMap<String, String>;

/// Returns `text` with the networks that it names. The result must be valid.
pub fn expanded(text: &str, names: &Names) -> Result<String> {
    let expanded = expand::expand(text, &|name| names.get(name).cloned());
    match expanded.and_then(|expanded| Network::parse(&expanded).map(|_| expanded)) {
        Ok(expanded) => Ok(expanded),
        Err(error) => usage(said(text, &error)),
    }
}

/// Returns the networks of the volume that is mounted at or above `place`, or that `place` names.
pub fn all(place: &OsStr) -> Result<Names> {
    match root_above(place)? {
        Some(root) => of_mount(&root),
        None => {
            // Also of one that a daemon serves.
            let Place { opened, .. } = Place::open_beside(place, None)?;
            let names = of_volume(&opened.vfs);
            opened.close()?;
            names
        }
    }
}

/// Returns the networks of a volume that is open.
pub fn of_volume(vfs: &Vfs) -> Result<Names> {
    Ok(vfs.links()?.networks()?)
}

pub fn of_mount(root: &Path) -> Result<Names> {
    let mut list = vec![0; 64 << 10];
    let len = rustix::fs::listxattr(root, &mut list[..])?;
    let mut names = Names::new();
    for attribute in list[..len].split(|byte| *byte == 0) {
        let Some(name) = name(attribute) else { continue };
        let mut value = vec![0; 64 << 10];
        match rustix::fs::getxattr(root, OsStr::from_bytes(attribute), &mut value[..]) {
            // It was removed meanwhile.
            Err(Errno::NODATA) => {}
            len => names.extend(named(name, value[..len?].to_vec())),
        }
    }
    Ok(names)
}

fn name(attribute: &[u8]) -> Option<&str> {
    match Attribute::parse(attribute)? {
        Attribute::Network(name) => Some(name).filter(|name| expand::is_name(name)),
        _ => None,
    }
}

/// Returns the network; none if another program has set it to something that is no text.
fn named(name: &str, value: Vec<u8>) -> Option<(String, String)> {
    Some((name.to_owned(), String::from_utf8(value).ok()?))
}

/// Returns the mount point of the root of the volume that `place` lies in; none if it lies in none.
pub fn root_above(place: &OsStr) -> Result<Option<PathBuf>> {
    let Ok(path) = Path::new(place).canonicalize() else { return Ok(None) };
    let Some((_, device)) = mounted::in_volume(&path) else { return Ok(None) };
    let root = mounted::root_of(device);
    Ok(Some(root.with_context(|| format!("the root of the volume of {} is not mounted", place.display()))?))
}

/// Does `work`, which changes something, in a volume that is not mounted.
pub fn within<T>(volume: &OsStr, work: impl FnOnce(&Vfs) -> Result<T>) -> Result<T> {
    let Place { opened, .. } = Place::open(volume, false)?;
    let done = work(&opened.vfs);
    opened.close()?;
    done
}

/// Returns a message about an error in a network, with the text where it begins.
pub fn said(text: &str, error: &NetworkError) -> String {
    let rest: String = text.get(error.at..).unwrap_or_default().chars().take(20).collect();
    if rest.is_empty() { format!("network: {error}, its end") } else { format!("network: {error}: '{rest}'") }
}

/// Returns `error`; an unreadable file reports its own.
pub fn explained(error: RunError) -> anyhow::Error {
    match error {
        RunError::Source(source) => source.into(),
        other => other.into(),
    }
}

/// Prints the stages of `network`, and what it gives.
pub fn show(network: &Network) {
    for Described { text, depth, keeps, inverse } in network.stages() {
        let keeps = match (keeps.length, keeps.place) {
            (true, true) => "length and places",
            (true, false) => "length",
            (false, _) => "nothing",
        };
        let inverse = inverse.map_or("nothing".into(), |inverse| format!("'{}'", shown::message(&inverse)));
        let (text, indent) = (shown::message(&text), "    ".repeat(depth));
        outln!("{indent}{text}\n{indent}    keeps {keeps}; undone by {inverse}");
    }
    outln!("gives {}", network.gives().name());
}

/// Writes all of `rope` without copying it.
pub fn write_all(rope: &Rope, to: impl AsFd) -> io::Result<()> {
    /// Most parts that writev(2) takes at once.
    const PARTS_MAX: usize = 1024;
    let mut parts: VecDeque<&[u8]> = rope.slices().iter().map(|slice| &slice[..]).collect();
    while !parts.is_empty() {
        let next: Vec<IoSlice<'_>> = parts.iter().take(PARTS_MAX).map(|part| IoSlice::new(part)).collect();
        let mut written = match rustix::io::writev(to.as_fd(), &next) {
            Ok(written) => written,
            Err(Errno::INTR) => continue,
            Err(error) => return Err(error.into()),
        };
        // The kernel copies them.
        weft_block::copied(written);
        while let Some(first) = parts.front_mut() {
            if written < first.len() {
                *first = &first[written..];
                break;
            }
            written -= first.len();
            parts.pop_front();
        }
    }
    Ok(())
}
