//! `weft receive`.
//!
//! A new volume in files is written under a name of its own, and renamed once it is whole; one in
//! PostgreSQL has no format until then. What is left of one that ended early is the beginning of
//! the next try. A signal is looked for before each read of the stream, so that everything ends as
//! after an error.

use super::send::{in_words, refuse_waiting, stream_as_json};
use super::transfer::{Interrupt, Unfinished, encryption, exit_code, steps};
use crate::arguments::{Keeping, Receive};
use crate::failure::{one_line, usage};
use crate::shown;
use anyhow::{Context, Result, bail};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use serde_json::Value;
use std::fs::File;
use std::io::{self, IsTerminal, Read};
use std::process::ExitCode;
use std::sync::Arc;
use weft_store::sqlite::Layout;
use weft_store::stream::{self, Incoming, ReceiveOptions, Received, ReceivedHistory};
use weft_store::{BlockHome, CommitNo, Engine, Location, OpenOptions, Opened, VolumeOptions};
use weft_vfs::{Clock, SystemClock};

/// Time between two looks for a signal, while nothing comes.
const LOOK_AGAIN: Timespec = Timespec { tv_sec: 0, tv_nsec: 200_000_000 };

/// The commit that makes a volume.
const FIRST: CommitNo = CommitNo(1);

/// Words for what is left: of a stream of a whole volume, of one that goes on, and of one of
/// changes.
const NOTHING_LEFT: &str = "nothing was received, and nothing is left of it";
const STAYS: &str = "what came stays in";
const PARTS_LEFT: &str = "nothing more was received; what came whole stays, and the same stream goes on from there";

/// The stream, decrypted.
type Source = Box<dyn Read>;

/// Receives a volume, or changes of one, from the standard input.
pub fn run(arguments: &Receive) -> ExitCode {
    exit_code(receive(arguments))
}

fn receive(arguments: &Receive) -> Result<ExitCode> {
    if io::stdin().is_terminal() {
        return usage("a stream comes from a file ('< FILE') or a program, not from a terminal".into());
    }
    let interrupt = Interrupt::take(|_| ())?;
    let location = crate::mounted::unmounted(&arguments.volume)?;
    let file = File::from(rustix::io::dup(rustix::stdio::stdin())?);
    let mut left = NOTHING_LEFT.to_owned();
    let input = Input { file, interrupt: interrupt.clone() };
    let received = encryption::receiving(input, &arguments.identity).and_then(|input| {
        let incoming = Incoming::open(input)?;
        match incoming.from() {
            Some(_) => {
                left = PARTS_LEFT.to_owned();
                receive_changes(arguments, &location, incoming)
            }
            None => receive_whole(arguments, &location, incoming, &mut left),
        }
    });
    match received {
        Ok(received) => {
            tell(arguments, &location, &received);
            Ok(ExitCode::SUCCESS)
        }
        Err(error) => match interrupt.signal() {
            Some(signal) => {
                tracing::warn!("interrupted: {left}");
                Ok(ExitCode::from(u8::try_from(128 + signal).unwrap_or(u8::MAX)))
            }
            None => fail(error.context(format!("cannot receive volume {location}")), &left),
        },
    }
}

/// Returns the exit code of a stream that is damaged, or the error. `left` tells what is left.
fn fail(error: anyhow::Error, left: &str) -> Result<ExitCode> {
    let is_damaged = |error: &weft_store::Error| matches!(error, weft_store::Error::Stream(_));
    if encryption::is_damage(&error) || error.chain().any(|cause| cause.downcast_ref().is_some_and(is_damaged)) {
        tracing::error!("{}; {left}", shown::message(&one_line(&error)));
        return Ok(ExitCode::FAILURE);
    }
    if left.starts_with(STAYS) {
        tracing::warn!("{left}");
    }
    Err(error)
}

/// Brings changes to the volume at `location`.
fn receive_changes(arguments: &Receive, location: &Location, incoming: Incoming<Source>) -> Result<Received> {
    if arguments.blocks.is_some() || arguments.layout.is_some() || arguments.history.is_some() {
        return usage(
            "the stream brings changes of a volume that is there: --blocks, --layout and --history are for new ones"
                .into(),
        );
    }
    if location.path().is_some_and(|path| !path.exists()) {
        bail!(
            "there is no such volume, and the stream brings changes of one; first receive the whole volume, which \
             'weft send' without --from sends"
        );
    }
    refuse_waiting(location)?;
    let hold = OpenOptions { purpose: "receiving a stream".into(), ..OpenOptions::default() };
    let opened = location.engine().open(hold)?;
    receive_into(incoming, opened, &ReceiveOptions { now: SystemClock.now(), ..ReceiveOptions::default() }).0
}

/// Makes a new volume at `location`, or goes on with one that was begun. `left` becomes what is
/// left if it fails.
fn receive_whole(
    arguments: &Receive,
    location: &Location,
    incoming: Incoming<Source>,
    left: &mut String,
) -> Result<Received> {
    let options = options(arguments, location, &incoming)?;
    let history = match &arguments.history {
        Some(Keeping::By(rule)) => ReceivedHistory::By(rule.to_string()),
        Some(Keeping::Off) => ReceivedHistory::Off,
        None => ReceivedHistory::AsSent,
    };
    let receiving = ReceiveOptions { history, now: SystemClock.now() };
    let Location::Files(new) = location else {
        return New { location, options, unfinished: None }.make(incoming, &receiving, left);
    };
    Layout::of(new, options.home).refuse_taken()?;
    let unfinished = Unfinished::of(new)?;
    let location = &Location::Files(unfinished.path.clone());
    let received = New { location, options, unfinished: Some(&unfinished) }.make(incoming, &receiving, left)?;
    unfinished.finish(new)?;
    Ok(received)
}

/// A new volume, in files by the name that it has until it is whole.
struct New<'a> {
    location: &'a Location,
    options: VolumeOptions,
    unfinished: Option<&'a Unfinished>,
}

impl New<'_> {
    /// Makes it whole, or so far that the same stream goes on with it, or not at all.
    fn make(&self, incoming: Incoming<Source>, receiving: &ReceiveOptions, left: &mut String) -> Result<Received> {
        let engine = self.location.engine();
        let (opened, had_place) = match self.begun(&*engine)? {
            Some(begun) => (begun, None),
            None => {
                self.unfinished.map_or(Ok(()), Unfinished::refuse_left)?;
                let begun = engine.begin(&self.options, incoming.volume().created)?;
                (begun.opened, Some(begun.had_place))
            }
        };
        let (received, is_begun) = receive_into(incoming, opened, receiving);
        let whole = received.and_then(|received| engine.finish().map(|()| received).map_err(Into::into));
        match (&whole, had_place) {
            (Err(_), Some(had_place)) if !is_begun => {
                if let Err(left) = engine.discard(had_place) {
                    tracing::error!("what was made is not removed: {}", one_line(&left.into()));
                }
            }
            (Err(_), _) => {
                let at = shown::message(&self.location.to_string());
                *left = format!("{STAYS} {at}: receive the same stream again, which goes on there, or remove it");
            }
            (Ok(_), _) => {}
        }
        whole
    }

    /// Opens what is left of a receipt that ended early, if something of a stream is in it.
    fn begun(&self, engine: &dyn Engine) -> Result<Option<Opened>> {
        let Some(opened) = engine.begin_again()? else { return Ok(None) };
        if !stream::is_begun(&*opened.store)? {
            // Files of that name may be those of 'weft convert', which copies commits.
            let is_new = opened.store.header()?.commit == FIRST;
            drop(opened);
            if self.unfinished.is_none() || is_new {
                engine.discard(self.unfinished.is_none())?;
            }
            return Ok(None);
        }
        if opened.store.header()?.options != self.options {
            return usage(
                "what is left of the receipt that ended early has other options (--blocks, --layout): give the same, or \
                 remove it"
                    .into(),
            );
        }
        Ok(Some(opened))
    }
}

/// Receives into a volume and closes it. Also tells whether something of the stream is in it.
fn receive_into(incoming: Incoming<Source>, opened: Opened, options: &ReceiveOptions) -> (Result<Received>, bool) {
    let Opened { store, log, .. } = opened;
    let bar = steps();
    let received = incoming.receive(&*store, options, &mut |progress| bar.show(progress));
    drop(bar);
    let is_begun = stream::is_begun(&*store).unwrap_or(false);
    let closed = store.close();
    drop((log, store));
    let closed = closed.context("all is received, but not all is where it stays");
    (received.map_err(Into::into).and_then(|received| closed.map(|()| received)), is_begun)
}

/// Returns the options of the new volume: those of the one that was sent, but for its place.
fn options(arguments: &Receive, location: &Location, incoming: &Incoming<Source>) -> Result<VolumeOptions> {
    let sent = incoming.volume();
    let in_files = location.path().is_some();
    let home = match arguments.blocks {
        Some(_) if !in_files => {
            return usage("a volume in PostgreSQL has its blocks in the database; leave --blocks out".into());
        }
        Some(blocks) => blocks.into(),
        None if !in_files => BlockHome::Database,
        None if sent.in_files => sent.options.home,
        None => BlockHome::Segments,
    };
    if in_files && arguments.layout.is_some() {
        return usage("only a volume in PostgreSQL has tables of files' own; leave --layout out".into());
    }
    let own_table_from = match arguments.layout {
        Some(layout) => layout.0,
        None if in_files => None,
        None => sent.options.own_table_from,
    };
    Ok(VolumeOptions { home, own_table_from, ..sent.options.clone() })
}

/// The standard input, until a signal comes.
struct Input {
    file: File,
    interrupt: Arc<Interrupt>,
}

impl Read for Input {
    fn read(&mut self, bytes: &mut [u8]) -> io::Result<usize> {
        loop {
            if self.interrupt.signal().is_some() {
                return Err(io::Error::other("a signal came"));
            }
            let mut polled = [PollFd::new(&self.file, PollFlags::IN)];
            if poll(&mut polled, Some(&LOOK_AGAIN))? > 0 {
                return self.file.read(bytes);
            }
        }
    }
}

fn tell(arguments: &Receive, location: &Location, received: &Received) {
    if arguments.json {
        outln!("{}", summary(location, received));
        return;
    }
    let to = received.to.number.0;
    let what = match received.from {
        Some(from) => format!("the changes from commit {} to {to}", from.number.0),
        None => format!("commit {to}"),
    };
    let name = shown::message(&location.to_string());
    outln!("{name}: received {what} of there: {}", in_words(&received.counts, received.bytes));
    if received.from.is_none() {
        match &received.history {
            Some(rule) => outln!("it keeps history: {rule}"),
            None => outln!("it keeps no history; 'weft history set' changes that"),
        }
    }
}

fn summary(location: &Location, received: &Received) -> Value {
    let Received { from, to, parts, snapshots, counts, bytes, history } = received;
    let mut told = stream_as_json(location, (from.as_ref(), to), *parts, (counts, *bytes));
    told["snapshots"] = (*snapshots).into();
    told["history"] = history.clone().into();
    told
}
