//! `weft ls`: what is in directories of volumes, mounted or not, now or then.

use crate::arguments::Ls;
use crate::command::transfer::{Place, bytes_as_json, find};
use crate::failure::one_line;
use crate::{shown, size};
use anyhow::Result;
use serde_json::{Value, json};
use std::ffi::OsStr;
use std::process::ExitCode;
use weft_vfs::{Attributes, Caller, Cookie, Kind, Vfs};

/// Entries listed at once.
const PAGE: usize = 1024;

/// Lists directories and files. Reports failures, and goes on with the others.
pub fn ls(arguments: &Ls) -> ExitCode {
    let mut code = ExitCode::SUCCESS;
    let mut listed = Vec::new();
    for named in &arguments.paths {
        if arguments.paths.len() > 1 && !arguments.json {
            outln!("{}:", shown::path(named.as_ref()));
        }
        let told = list(arguments, named, |name, attributes, target| match arguments.json {
            true => listed.push(as_json(name, attributes, target)),
            false => print(arguments, name, attributes, target),
        });
        if let Err(error) = told {
            errln!("weft: cannot list {}: {}", shown::path(named.as_ref()), shown::message(&one_line(&error)));
            code = ExitCode::FAILURE;
        }
    }
    if arguments.json {
        outln!("{:#}", Value::Array(listed));
    }
    code
}

/// Tells `told` of what is in the directory `named`, or of itself if that is something else.
fn list(arguments: &Ls, named: &OsStr, mut told: impl FnMut(&[u8], &Attributes, Option<&[u8]>)) -> Result<()> {
    let place = Place::open_beside(named, arguments.at.as_ref())?;
    let vfs: &Vfs = &place.opened.vfs;
    let mut tell = |name: &[u8], attributes: &Attributes| -> Result<()> {
        let is_link = attributes.kind == Kind::Symlink;
        let target = if is_link { Some(vfs.read_symlink(attributes.ino)?) } else { None };
        told(name, attributes, target.as_deref());
        Ok(())
    };
    let found = find(vfs, &place.path)?;
    if found.kind != Kind::Directory || arguments.directory {
        tell(place.path.last().map_or(&b"."[..], |name| name), &found)?;
        return place.close();
    }
    let mut after = Cookie(0);
    loop {
        let page = vfs.read_directory(found.ino, after, PAGE)?;
        let Some(last) = page.last() else { break };
        after = last.cookie;
        for entry in page {
            let name = entry.name.as_bytes();
            tell(name, &vfs.lookup(Caller::ROOT, found.ino, name)?)?;
        }
    }
    place.close()
}

fn print(arguments: &Ls, name: &[u8], attributes: &Attributes, target: Option<&[u8]>) {
    let name = shown::bytes(name);
    if !arguments.long {
        return outln!("{name}");
    }
    let target = target.map(|target| format!(" -> {}", shown::bytes(target))).unwrap_or_default();
    let bytes = if arguments.human { size::show(attributes.size) } else { attributes.size.to_string() };
    outln!(
        "{}{} {:>3} {:>5} {:>5} {bytes:>12} {} {name}{target}",
        letter(attributes.kind),
        permissions(attributes.permissions),
        attributes.nlink,
        attributes.uid,
        attributes.gid,
        shown::time(attributes.mtime),
    );
}

fn as_json(name: &[u8], attributes: &Attributes, target: Option<&[u8]>) -> Value {
    let mut value = bytes_as_json("name", name);
    let facts = json!({
        "kind": attributes.kind.in_words(),
        "ino": attributes.ino.0,
        "permissions": format!("{:04o}", attributes.permissions),
        "links": attributes.nlink,
        "uid": attributes.uid,
        "gid": attributes.gid,
        "size": attributes.size,
        "modified": shown::exact_time(attributes.mtime),
        "target": target.map(String::from_utf8_lossy),
    });
    value.extend(facts.as_object().cloned().unwrap_or_default());
    value.into()
}

/// The letter of a kind, as ls(1) has it; a transformation link looks like the file that it shows.
fn letter(kind: Kind) -> char {
    match kind {
        Kind::File | Kind::Transformation => '-',
        Kind::Directory => 'd',
        Kind::Symlink => 'l',
        Kind::Fifo => 'p',
        Kind::Socket => 's',
        Kind::CharDevice => 'c',
        Kind::BlockDevice => 'b',
    }
}

/// The nine letters of permissions, as ls(1) has them.
fn permissions(bits: u32) -> String {
    let special = [(0o4000, 's', 'S'), (0o2000, 's', 'S'), (0o1000, 't', 'T')];
    let mut letters = String::new();
    for (class, (flag, set, unset)) in special.into_iter().enumerate() {
        let of_class = bits >> (6 - 3 * class) & 7;
        letters.push(if of_class & 4 != 0 { 'r' } else { '-' });
        letters.push(if of_class & 2 != 0 { 'w' } else { '-' });
        letters.push(match (of_class & 1 != 0, bits & flag != 0) {
            (true, true) => set,
            (false, true) => unset,
            (true, false) => 'x',
            (false, false) => '-',
        });
    }
    letters
}

#[cfg(test)]
mod tests {
    #[test]
    fn permissions_are_written_as_ls_writes_them() {
        for (bits, letters) in [
            (0o755, "rwxr-xr-x"),
            (0o4711, "rws--x--x"),
            (0o2640, "rw-r-S---"),
            (0o1777, "rwxrwxrwt"),
            (0, "---------"),
        ] {
            assert_eq!(super::permissions(bits), letters);
        }
    }
}
