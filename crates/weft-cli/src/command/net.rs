//! `weft net`: named networks of a volume, and networks on files in use.
//!
//! Named networks are extended attributes of its root, so that they move with the volume; a link
//! that is made with one has its text.

mod pushed;

use super::networks::{Names, all, expanded, root_above, said, within};
use crate::arguments::Net;
use crate::control;
use crate::failure::usage;
use crate::shown;
use anyhow::{Context, Result, bail};
use rustix::io::Errno;
use serde_json::json;
use std::ffi::OsStr;
use std::process::ExitCode;
use weft_attributes::Attribute;
use weft_links::WithLinks;
use weft_transform::expand;
use weft_vfs::ErrorKind;

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

fn set(place: &OsStr, name: &str, network: Option<&str>) -> Result<()> {
    if let Some(root) = root_above(place)? {
        return match control::order(&root, Attribute::Network(name), network.unwrap_or_default().as_bytes()) {
            Err(Errno::OPNOTSUPP) => {
                bail!("the daemon of {} is of another version of Weft; unmount it, and mount it anew", root.display())
            }
            done => Ok(done?),
        };
    }
    within(place, |vfs| match vfs.links()?.define_network(name, network) {
        Err(error) if error.kind() == ErrorKind::NoAttribute => Ok(()),
        done => Ok(done?),
    })
}
