//! `weft info`.

use super::history::costs::briefly;
use super::restore::place::Place;
use crate::advice::filled;
use crate::arguments::Info;
use crate::mounted::{InMount, volume_named};
use crate::named::volume_and_path;
use crate::shown;
use crate::size::show;
use anyhow::{Context, Result};
use serde_json::Value;
use std::ffi::OsStr;
use std::path::Path;
use std::process::ExitCode;
use weft_store::{BlockHome, Header, OpenOptions, Waiting, sqlite};

/// Prints facts about a volume.
pub fn run(arguments: &Info) -> Result<ExitCode> {
    if let Some(place) = file_named(arguments.volume.as_os_str())? {
        return super::defragment::info(arguments.volume.as_os_str(), place, arguments.json);
    }
    let location = volume_named(&arguments.volume)?;
    let engine = location.engine();
    crate::notes::tell(engine.note(false));
    let header = engine.header().with_context(|| format!("cannot open volume {location}"))?;
    let waiting = crate::notes::tell_of_waiting(&location);
    let lost = location.path().and_then(|path| sqlite::lost_segment_files(path).ok()).unwrap_or_default();
    crate::notes::tell(lost.first().map(|first| {
        let more = if lost.len() > 1 { format!(", and {} more", lost.len() - 1) } else { String::new() };
        filled(&format!("{first}{more}; 'weft check VOLUME' names its files, and the way out"))
    }));
    let on_disk = engine.size()?;
    // A volume that cannot be read so has more to tell than that; its commands do.
    let opened = engine.open_beside(OpenOptions::default()).ok();
    let history = opened.and_then(|opened| briefly(&*opened.store).ok().flatten());
    if arguments.json {
        let mut told = as_json(&header, &waiting, on_disk, &lost);
        told["history"] = history.map_or(Value::Null, |(_, value)| value);
        outln!("{told:#}");
    } else {
        print(&header, on_disk);
        if let Some((told, _)) = history {
            outln!("history     {}", shown::message(&told));
        }
    }
    Ok(ExitCode::SUCCESS)
}

/// The place of a file in a volume, if `named` names one and not a volume.
fn file_named(named: &OsStr) -> Result<Option<Place>> {
    let is_in_volume = volume_and_path(named).is_some_and(|(_, path)| !path.is_empty());
    let is_file = || Path::new(named).symlink_metadata().is_ok_and(|found| found.is_file());
    if is_in_volume || is_file() && InMount::find(Path::new(named))?.is_some() {
        return Place::find(named).map(Some);
    }
    Ok(None)
}

fn as_json(header: &Header, waiting: &Waiting, on_disk: Option<u64>, lost: &[String]) -> serde_json::Value {
    serde_json::json!({
        "format": header.format,
        "options": header.options,
        "created_nanoseconds": header.created.0,
        "commit": header.commit.0,
        "operation": header.counters.op.0,
        "inodes": header.counters.inodes_used,
        "bytes": header.counters.bytes_used,
        "bytes_on_disk": on_disk,
        "operations_waiting": waiting.operations,
        "lost": waiting.lost,
        "lost_segments": lost,
    })
}

fn print(header: &Header, on_disk: Option<u64>) {
    let limit = |limit: Option<u64>, show: &dyn Fn(u64) -> String| limit.map_or("none".into(), show);
    let home = match header.options.home {
        BlockHome::Segments => "segment files",
        BlockHome::Database => "the database",
    };
    outln!("format      {}", header.format);
    outln!("blocks      {} each, in {home}", show(u64::from(header.options.block_size)));
    match header.options.own_table_from {
        None => {}
        Some(0) => outln!("layout      each file's blocks in a table of its own"),
        Some(from) => outln!("layout      blocks past the first {} of a file in a table of its own", show(from)),
    }
    outln!("inline      files up to {}", show(u64::from(header.options.inline_max)));
    outln!(
        "inodes      {} (limit {})",
        header.counters.inodes_used,
        limit(header.options.inodes_max, &|n| n.to_string())
    );
    outln!("content     {} (limit {})", show(header.counters.bytes_used), limit(header.options.bytes_max, &show));
    outln!("on disk     {}", on_disk.map_or("not told".into(), show));
    outln!("commit      {}", header.commit.0);
}
