//! `weft net`: named networks of a volume, and networks on files in use.
//!
//! Named networks are extended attributes of its root, so that they move with the volume; a link
//! that is made with one has its text.

mod pushed;

use super::run::said;
use super::transfer::Place;
use super::{mounted, usage};
use crate::arguments::Net;
use crate::control;
use crate::shown;
use anyhow::{Context, Result, bail};
use rustix::io::Errno;
use serde_json::json;
use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::process::ExitCode;
use weft_attributes::Attribute;
use weft_transform::{Network, expand};
use weft_vfs::{ErrorKind, Vfs};

/// Networks of a volume, by name.
pub type Names = BTreeMap<String, String>;

/// Defines, lists or removes named networks; pushes networks onto files, and pops them.
pub fn run(arguments: &Net) -> Result<ExitCode> {
    match arguments {
        Net::Define { name, network, volume } => {
            if !expand::is_name(name) {
                return usage(format!("'{name}' is no name of a network: letters, digits, '-' and '_', 64 at most"));
            }
            let known = all(volume)?;
            if let Err(error) = expand::check(network) {
                return usage(said(network, &error));
            }
            expanded(network, &Names::from_iter(known.into_iter().filter(|(other, _)| other != name)))?;
            set(volume, name, Some(network)).with_context(|| format!("cannot define '{name}'"))?;
        }
        Net::Remove { name, volume } => {
            if !all(volume)?.contains_key(name) {
                bail!("there is no network '{name}' in {}", volume.display());
            }
            set(volume, name, None).with_context(|| format!("cannot remove '{name}'"))?;
        }
        Net::Push { file, network, code } => {
            pushed::push(file, network, code).with_context(|| format!("cannot push '{network}'"))?;
        }
        Net::Pop { file } => pushed::pop(file).context("cannot pop")?,
        Net::Show { file, json } => pushed::show(file, *json).context("cannot tell what is pushed")?,
        Net::List { volume, json } => {
            let names = all(volume)?;
            if *json {
                outln!("{:#}", json!(names));
            } else {
                names.iter().for_each(|(name, text)| outln!("{}\t{}", shown::message(name), shown::message(text)));
            }
        }
    }
    Ok(ExitCode::SUCCESS)
}

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
        None => within(place, true, of_volume),
    }
}

/// Returns the networks of a volume that is open.
pub fn of_volume(vfs: &Vfs) -> Result<Names> {
    Ok(vfs.networks()?)
}

fn of_mount(root: &Path) -> Result<Names> {
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
fn root_above(place: &OsStr) -> Result<Option<std::path::PathBuf>> {
    let Ok(path) = Path::new(place).canonicalize() else { return Ok(None) };
    let Some((_, device)) = mounted::in_volume(&path) else { return Ok(None) };
    let root = mounted::root_of(device);
    Ok(Some(root.with_context(|| format!("the root of the volume of {} is not mounted", place.display()))?))
}

fn set(place: &OsStr, name: &str, network: Option<&str>) -> Result<()> {
    if let Some(root) = root_above(place)? {
        return match control::order(&root, Attribute::Network(name), network.unwrap_or_default().as_bytes()) {
            Err(Errno::OPNOTSUPP) => {
                bail!("the daemon of {} is of another version of Weft; unmount it, and mount it anew", root.display())
            }
            done => Ok(done?),
        };
    }
    within(place, false, |vfs| match vfs.define_network(name, network) {
        Err(error) if error.kind() == ErrorKind::NoAttribute => Ok(()),
        done => Ok(done?),
    })
}

/// Does `work` in a volume that is not mounted.
fn within<T>(volume: &OsStr, read_only: bool, work: impl FnOnce(&Vfs) -> Result<T>) -> Result<T> {
    let Place { opened, .. } = Place::open(volume, read_only)?;
    let done = work(&opened.vfs);
    opened.close()?;
    done
}
