//! `weft undelete --list`: what was deleted below a directory, and can still be had.

use super::named;
use crate::command::digest::list::escape;
use crate::command::log::{Names, Place};
use crate::command::subject::Subject;
use crate::command::transfer::path_as_json;
use crate::mounted::is_mount_point;
use crate::named::is_volume;
use crate::{output, shown, size};
use anyhow::{Context, Result};
use serde_json::Value;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use weft_store::{KeptCommits, OpenOptions, Store, Timestamp};
use weft_vfs::{DeletedName, DeletedNames, deleted_names};

/// Lists the names, those that were deleted last first.
pub(super) fn list(directory: &OsStr, limit: usize, as_json: bool) -> Result<()> {
    let what = || format!("cannot list what was deleted below {}", named(directory));
    let subject = Subject::demand(directory)?;
    subject.commit_first("what was deleted since the last commit is not listed");
    let opened = subject.location.engine().open_beside(OpenOptions::default()).with_context(what)?;
    let store = &*opened.store;
    let DeletedNames { names, count, is_complete } = deleted_names(store, &subject.path, limit).with_context(what)?;
    let names = names.into_iter().map(|name| Listed::read(store, name));
    let names = names.collect::<weft_store::Result<Vec<_>>>().with_context(what)?;
    if as_json {
        let values = names.iter().map(|listed| listed.as_value(directory));
        outln!("{:#}", Value::from(values.collect::<Vec<_>>()));
    } else {
        names.iter().for_each(|listed| listed.print(directory));
    }
    let left = count - names.len() as u64;
    let were = shown::counted(left, "more was", "more were");
    // One that was brought back and deleted again is counted twice, and listed once.
    let more = (left > 0).then(|| format!("at most {were} deleted before; -n lists more"));
    crate::notes::tell(more);
    let rest = "there is so much below it that some may be missing; name a directory in it".to_owned();
    crate::notes::tell((!is_complete).then_some(rest));
    Ok(())
}

/// A name with what is told of it.
struct Listed {
    name: DeletedName,
    /// The time of the commit that deleted it, if that is remembered.
    time: Option<Timestamp>,
    /// The path from the root of the volume that it had then, if that is another one.
    then: Option<Vec<u8>>,
}

impl Listed {
    fn read(store: &dyn Store, name: DeletedName) -> weft_store::Result<Listed> {
        let made = store.commit_row(name.gone)?;
        let then = if name.is_at_path { None } else { path_then(store, &name)? };
        Ok(Listed { time: made.map(|row| row.time), then, name })
    }

    /// The path below `directory`, as a user names it.
    fn path(&self, directory: &OsStr) -> Vec<u8> {
        let above = directory.as_bytes();
        let is_volume = || is_volume(directory.as_ref()) && !is_mount_point(directory.as_ref());
        let between = match above {
            [.., b':' | b'/'] => &b""[..],
            _ if is_volume() => b":",
            _ => b"/",
        };
        [above, between, &self.name.path].concat()
    }

    fn print(&self, directory: &OsStr) {
        let time = self.time.map_or_else(|| "an unknown time".into(), shown::time);
        let size = if self.name.is_directory { "directory".into() } else { size::show(self.name.size) };
        let mut line = format!("{time}  {size:>10}  @{:<8} ", self.name.last.0).into_bytes();
        line.extend(escape(&self.path(directory)));
        if let Some(then) = &self.then {
            line.extend([b", as ", &escape(then)[..]].concat());
        }
        line.push(b'\n');
        output::write(&line);
    }

    fn as_value(&self, directory: &OsStr) -> Value {
        let name = &self.name;
        let mut value = path_as_json(&self.path(directory));
        value.insert("path_then".into(), self.then.as_ref().map(|then| String::from_utf8_lossy(then)).into());
        value.insert("deleted".into(), self.time.map(shown::exact_time).into());
        value.insert("deleted_by".into(), name.gone.0.into());
        value.insert("last".into(), name.last.0.into());
        value.insert("directory".into(), name.is_directory.into());
        value.insert("size".into(), if name.is_directory { Value::Null } else { name.size.into() });
        value.into()
    }
}

/// The path that `name` had as of the last commit that has it.
fn path_then(store: &dyn Store, name: &DeletedName) -> weft_store::Result<Option<Vec<u8>>> {
    let Some(kept) = KeptCommits::of(store)? else { return Ok(None) };
    let place = Place { directory: name.directory, name: name.name.clone() };
    Names::new(store, &kept).path(&place, name.last)
}
