//! `weft undelete --list`: what was deleted below a directory, and can still be had.

use super::named;
use crate::command::digest::list::escape;
use crate::command::subject::Subject;
use crate::command::transfer::path_as_json;
use crate::{output, shown, size};
use anyhow::{Context, Result};
use serde_json::Value;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use weft_store::{CommitNo, OpenOptions, Store, Timestamp};
use weft_vfs::{DeletedName, DeletedNames, deleted_names};

/// Lists the names, those that were deleted last first.
pub(super) fn list(directory: &OsStr, limit: usize, as_json: bool) -> Result<()> {
    let what = || format!("cannot list what was deleted below {}", named(directory));
    let subject = Subject::demand(directory)?;
    subject.commit_first("what was deleted since the last commit is not listed");
    crate::notes::tell_of_waiting(&subject.location);
    let opened = subject.location.engine().open_beside(OpenOptions::default()).with_context(what)?;
    let store = &*opened.store;
    let DeletedNames { names, count, is_complete } = deleted_names(store, &subject.path, limit).with_context(what)?;
    let names = names.into_iter().map(|name| Ok((time(store, name.gone)?, name)));
    let names = names.collect::<weft_store::Result<Vec<_>>>().with_context(what)?;
    if as_json {
        let values = names.iter().map(|(time, name)| as_value(directory, *time, name));
        outln!("{:#}", Value::from(values.collect::<Vec<_>>()));
    } else {
        names.iter().for_each(|(time, name)| print(directory, *time, name));
    }
    let left = count - names.len() as u64;
    let more = (left > 0).then(|| format!("{left} more were deleted before; -n lists more"));
    crate::notes::tell(more);
    let rest = "there is so much below it that some may be missing; name a directory in it".to_owned();
    crate::notes::tell((!is_complete).then_some(rest));
    Ok(())
}

/// The time of a commit, if that is remembered.
fn time(store: &dyn Store, commit: CommitNo) -> weft_store::Result<Option<Timestamp>> {
    Ok(store.commits(commit, 1)?.into_iter().find(|row| row.number == commit).map(|row| row.time))
}

/// The path as `weft undelete` takes it.
fn path_of(directory: &OsStr, name: &DeletedName) -> Vec<u8> {
    let above = directory.as_bytes();
    let between = if above.ends_with(b":") || above.ends_with(b"/") { &b""[..] } else { b"/" };
    [above, between, &name.path].concat()
}

fn print(directory: &OsStr, time: Option<Timestamp>, name: &DeletedName) {
    let time = time.map_or_else(|| "an unknown time".into(), shown::time);
    let size = if name.is_directory { "directory".into() } else { size::show(name.size) };
    let mut line = format!("{time}  {size:>10}  @{:<8} ", name.last.0).into_bytes();
    line.extend(escape(&path_of(directory, name)));
    line.push(b'\n');
    output::write(&line);
}

fn as_value(directory: &OsStr, time: Option<Timestamp>, name: &DeletedName) -> Value {
    let mut value = path_as_json(&path_of(directory, name));
    value.insert("deleted".into(), time.map(shown::exact_time).into());
    value.insert("deleted_by".into(), name.gone.0.into());
    value.insert("last".into(), name.last.0.into());
    value.insert("directory".into(), name.is_directory.into());
    value.insert("size".into(), if name.is_directory { Value::Null } else { name.size.into() });
    value.into()
}
