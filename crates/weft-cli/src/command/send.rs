//! `weft send`.

use super::sync;
use super::transfer::encryption::{Sending, recipients};
use super::transfer::{Interrupt, exit_code, steps};
use crate::arguments::Send;
use crate::failure::{is_found, one_line, usage};
use crate::mounted::{unmounted, volume_named};
use crate::named::at_moment;
use crate::shown;
use crate::size;
use anyhow::{Context, Result, bail};
use serde_json::{Value, json};
use std::fs::File;
use std::io::{self, IsTerminal, Write};
use std::path::Path;
use std::process::ExitCode;
use std::sync::Arc;
use weft_digest::hex;
use weft_store::stream::{self, Selection, Sent, StreamCommit, StreamCounts};
use weft_store::{CommitNo, Location, Moment, OpenOptions, Opened, Store};
use weft_vfs::{Clock, SystemClock};

/// Writes a volume to the standard output.
pub fn run(arguments: &Send) -> ExitCode {
    exit_code(send(arguments).or_else(|error| {
        if !is_found(&error) {
            return Err(error);
        }
        tracing::error!("{}", shown::message(&one_line(&error)));
        Ok(ExitCode::FAILURE)
    }))
}

fn send(arguments: &Send) -> Result<ExitCode> {
    if io::stdout().is_terminal() {
        return usage("a stream is nothing for a terminal: send it to a file ('> FILE') or a program ('| …')".into());
    }
    let recipients = recipients(&arguments.encrypt)?;
    let interrupt = Interrupt::take(|_| ())?;
    let (volume, moment) = at_moment(&arguments.volume);
    let to = moment.map(|moment| parsed(&moment.to_string_lossy())).transpose()?;
    let location = volume_named(volume)?;
    if matches!(to, None | Some(Moment::Now)) {
        refuse_waiting(&location)?;
        sync::commit_first(volume, &location, "the last commit is sent");
    }
    let failed = || format!("cannot send volume {location}");
    let opened = open(volume, &location)?;
    let selection = selection(&*opened.store, to.as_ref(), arguments).with_context(failed)?;
    let out = Output { file: File::from(rustix::io::dup(rustix::stdio::stdout())?), interrupt: interrupt.clone() };
    let bar = steps();
    let store: Arc<dyn Store> = opened.store.clone();
    let written = |source| weft_store::Error::Io { what: "cannot write", path: "the stream".into(), source };
    let begun =
        stream::refuse_forgotten(&store, &selection).and_then(|()| Sending::new(out, &recipients).map_err(written));
    let sent = begun.and_then(|mut out| {
        let from = (&store, opened.layout.is_some());
        let sent = stream::send(from, &selection, &mut out, &mut |progress| bar.show(progress))?;
        out.finish().map_err(written)?;
        Ok(sent)
    });
    drop(bar);
    let closed = store.close();
    drop((store, opened));
    if let (Err(_), Some(signal)) = (&sent, interrupt.signal()) {
        tracing::warn!("interrupted: the stream lacks its end, and cannot be received");
        return Ok(ExitCode::from(u8::try_from(128 + signal).unwrap_or(u8::MAX)));
    }
    let sent = sent.with_context(failed)?;
    closed.with_context(failed)?;
    match arguments.json {
        true => errln!("{}", summary(&location, &sent)),
        false => errln!("sent {location} as of commit {}: {}", sent.to.number.0, in_words(&sent.counts, sent.bytes)),
    }
    Ok(ExitCode::SUCCESS)
}

/// The moment that `text` names. Behind a volume, a number alone is that of a commit.
fn parsed(text: &str) -> Result<Moment> {
    match text.parse::<u64>() {
        Ok(number) => Ok(Moment::Commit(CommitNo(number))),
        Err(_) => text.parse().or_else(|error: weft_store::InvalidMoment| usage(error.to_string())),
    }
}

/// Opens the volume: beside its daemon if it keeps history, and else only where it has none.
fn open(named: &Path, location: &Location) -> Result<Opened> {
    let failed = || format!("cannot open volume {location}");
    let engine = location.engine();
    crate::notes::tell(engine.note(false));
    let beside = engine.open_beside(OpenOptions::default()).with_context(failed)?;
    if beside.store.history().with_context(failed)?.is_some() {
        return Ok(beside);
    }
    drop(beside);
    unmounted(named)?;
    refuse_waiting(location)?;
    let alone = || format!("cannot open volume {location}, which keeps no history and so is sent while nobody uses it");
    engine.open_to_read(OpenOptions::default()).with_context(alone)
}

/// Refuses a volume with operations that were synced but not committed: no stream would have them.
pub(super) fn refuse_waiting(location: &Location) -> Result<()> {
    match location.engine().waiting().ok().and_then(|waiting| waiting.lost.clone().or(waiting.note())) {
        Some(why) => bail!("{location} was not unmounted cleanly: {why}; mount and unmount it first"),
        None => Ok(()),
    }
}

fn selection(store: &dyn Store, to: Option<&Moment>, arguments: &Send) -> Result<Selection> {
    let last = store.header()?.commit;
    let is_now = matches!(to, None | Some(Moment::Now));
    let commit = |moment: &Moment| moment.past_commit(store, SystemClock.now());
    let to = if is_now { last } else { commit(to.unwrap_or(&Moment::Now))? };
    let from = arguments.from.as_ref().map(commit).transpose()?;
    if let Some(from) = from.filter(|from| *from >= to) {
        return usage(format!("commit {} is not earlier than commit {}, which is to be sent", from.0, to.0));
    }
    Ok(Selection { from, to, snapshots: arguments.snapshots })
}

/// The standard output, until a signal comes.
struct Output {
    file: File,
    interrupt: Arc<Interrupt>,
}

impl Write for Output {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match self.interrupt.signal() {
            Some(_) => Err(io::Error::other("a signal came")),
            None => self.file.write(bytes),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        self.file.flush()
    }
}

/// Returns counts as a line tells them.
pub(super) fn in_words(counts: &StreamCounts, bytes: u64) -> String {
    let gone = if counts.gone > 0 { format!(", {} gone", counts.gone) } else { String::new() };
    let inodes = shown::counted(counts.inodes, "inode", "inodes");
    format!("{inodes}{gone}, {} in blocks, a stream of {}", size::show(counts.bytes), size::show(bytes))
}

/// Returns a commit of the sender in JSON.
fn commit_as_json(commit: &StreamCommit) -> Value {
    json!({
        "commit": commit.number.0,
        "time": shown::time(commit.time),
        "digest": commit.root.as_ref().map(hex),
    })
}

fn summary(location: &Location, sent: &Sent) -> Value {
    let Sent { from, to, parts, counts, bytes } = sent;
    stream_as_json(location, (from.as_ref(), to), *parts, (counts, *bytes))
}

/// Returns in JSON what a stream of so many parts and bytes brings from one commit to another.
pub(super) fn stream_as_json(
    location: &Location,
    (from, to): (Option<&StreamCommit>, &StreamCommit),
    parts: u64,
    (counts, bytes): (&StreamCounts, u64),
) -> Value {
    json!({
        "volume": location.to_string(),
        "from": from.map(commit_as_json),
        "to": commit_as_json(to),
        "parts": parts,
        "inodes": counts.inodes,
        "gone": counts.gone,
        "names": counts.names,
        "blocks": counts.blocks,
        "block_bytes": counts.bytes,
        "stream_bytes": bytes,
    })
}
