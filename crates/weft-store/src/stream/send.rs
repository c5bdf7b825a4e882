//! Sending: rows and blocks become records.

use super::ahead::{Ahead, has_blocks};
use super::attributes;
use super::codec::{RecordWriter, row_digest};
use super::extents;
use super::forgotten;
use super::frame::FrameWriter;
use super::record::{Part, Record, Snapshot, StreamCommit, StreamCounts, StreamVolume};
use crate::error::{Error, Result};
use crate::finding::Progress;
use crate::missing;
use crate::past::{At, PinKind};
use crate::row::{BlockId, BlockRef, CommitNo, Cookie, Ino, InodeRow, NameRow, Span};
use crate::store::{Header, Store};
use rustc_hash::FxHashMap;
use std::collections::BTreeMap;
use std::io::Write;
use std::sync::Arc;
use weft_digest::Kind;

/// Inodes that are asked for together.
pub(super) const INODES_TOGETHER: usize = 1024;

/// Entries of a directory that are asked for together.
pub(super) const NAMES_TOGETHER: usize = 1 << 16;

/// Most blocks that are remembered, so that files which share one share it where they are received,
/// too. Those beyond are sent once for each file.
const REMEMBERED_MAX: usize = 1 << 22;

/// The commits of a stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Selection {
    /// The commit whose changes are sent; none: the whole tree.
    pub from: Option<CommitNo>,
    /// The commit that is sent. Where the volume keeps no history, it is the last one, and the
    /// store must hold the volume.
    pub to: CommitNo,
    /// True if the snapshots in between are sent, too.
    pub snapshots: bool,
}

/// A stream that was sent.
#[derive(Clone, Debug)]
pub struct Sent {
    /// The commit whose changes were sent, if not the whole tree was.
    pub from: Option<StreamCommit>,
    /// The commit that was sent.
    pub to: StreamCommit,
    /// Its parts: one, and one for each commit before that has a snapshot.
    pub parts: u64,
    /// Counts of all parts.
    pub counts: StreamCounts,
    /// Bytes of the stream.
    pub bytes: u64,
}

/// Sends what `selection` says of the volume in `store`, which lies in files or does not.
///
/// # Errors
/// `Unusable` if a commit is not kept, or is dropped meanwhile, or has a file whose content was
/// taken out of history ([`super::refuse_forgotten`] tells before); `Corrupt` if something is
/// damaged; those of `out`.
pub fn send(
    (store, in_files): (&Arc<dyn Store>, bool),
    selection: &Selection,
    out: &mut dyn Write,
    progress: &mut dyn FnMut(Progress),
) -> Result<Sent> {
    let header = store.header()?;
    let plan = plan(&**store, &header, selection)?;
    let (first, last) = (plan[0].from, plan[plan.len() - 1].to);
    let history = store.history()?.map(|history| (history.rule, history.readers));
    let options = header.options.clone();
    let volume = StreamVolume { uuid: header.uuid, created: header.created, options, in_files, history };
    let mut out = RecordWriter::new(FrameWriter::new(out)?);
    out.put(&Record::Volume(volume))?;
    let (mut counts, parts) = (StreamCounts::default(), plan.len() as u64);
    for part in plan {
        let sender = Sender::new(store, &header, &part, (&mut out, progress))?;
        counts.add(&sender.part(part)?);
    }
    Ok(Sent { from: first, to: last, parts, counts, bytes: out.finish()? })
}

/// Returns the parts of a stream, one at least.
pub(super) fn plan(store: &dyn Store, header: &Header, selection: &Selection) -> Result<Vec<Part>> {
    let mut snapshots = BTreeMap::<CommitNo, Vec<Snapshot>>::new();
    if selection.snapshots {
        let after = selection.from.unwrap_or_default();
        let is_sent = |commit: CommitNo| commit > after && commit <= selection.to;
        for pin in store.pins()?.into_iter().filter(|pin| pin.kind == PinKind::Snapshot && is_sent(pin.commit)) {
            let snapshot = Snapshot { name: pin.name, made: pin.made, held_until: pin.held_until };
            snapshots.entry(pin.commit).or_default().push(snapshot);
        }
    }
    snapshots.entry(selection.to).or_default();
    let mut from = selection.from.map(|from| commit(store, from)).transpose()?;
    let (next_id, bytes_about) = (header.counters.next_id, header.counters.bytes_used);
    let part = |(to, snapshots)| {
        let to = commit(store, to)?;
        Ok(Part { from: from.replace(to), to, next_id, bytes_about, snapshots })
    };
    let parts = snapshots.into_iter().map(part).collect::<Result<Vec<_>>>()?;
    refuse_no_digest(&parts)?;
    Ok(parts)
}

/// Refuses parts that nobody could receive: changes from a tree without a digest.
fn refuse_no_digest(parts: &[Part]) -> Result<()> {
    let of_changes = parts.iter().filter_map(|part| part.from);
    match of_changes.into_iter().any(|from| from.root.is_none()) {
        true => Err(Error::Unusable(
            "this volume keeps no digests, so that nobody could tell what a stream of changes begins from; send all \
             of it, without --from and --snapshots"
                .into(),
        )),
        false => Ok(()),
    }
}

fn commit(store: &dyn Store, number: CommitNo) -> Result<StreamCommit> {
    let row = store.commit_row(number)?;
    let row = row.ok_or_else(|| Error::Unusable(format!("there is no commit {}", number.0)))?;
    Ok(StreamCommit { number, time: row.time, root: row.root })
}

/// Sends one part.
pub(super) struct Sender<'a, 'o> {
    /// The volume.
    pub(super) store: &'a Arc<dyn Store>,
    /// The volume as of the commit that is sent.
    pub(super) to: Arc<dyn Store>,
    /// The same of the commit that it changes.
    pub(super) from: Option<Arc<dyn Store>>,
    pub(super) out: &'a mut RecordWriter<'o>,
    keeps_digests: bool,
    /// Content that is read before its files are sent.
    ahead: Ahead,
    /// The commit that is sent, where rows are asked for by its number.
    commit: Option<CommitNo>,
    /// Blocks that were sent, each with the first of its places.
    blocks: FxHashMap<BlockId, (Ino, u64)>,
    total: u64,
    progress: &'a mut dyn FnMut(Progress),
}

impl<'a, 'o> Sender<'a, 'o> {
    fn new(
        store: &'a Arc<dyn Store>,
        header: &Header,
        part: &Part,
        (out, progress): (&'a mut RecordWriter<'o>, &'a mut dyn FnMut(Progress)),
    ) -> Result<Sender<'a, 'o>> {
        let as_of = |number| -> Result<Arc<dyn Store>> { Ok(Arc::new(At::new(store.clone(), number)?)) };
        let (to, commit) = match store.history()? {
            // Whoever holds the volume keeps others from changing it.
            None if part.from.is_none() && part.to.number == header.commit => (store.clone(), None),
            _ => (as_of(part.to.number)?, Some(part.to.number)),
        };
        let from = part.from.map(|from| as_of(from.number)).transpose()?;
        let (total, keeps_digests) = (header.counters.bytes_used, part.to.root.is_some());
        let (ahead, blocks) = (Ahead::default(), FxHashMap::default());
        Ok(Sender { store, to, from, out, keeps_digests, ahead, commit, blocks, total, progress })
    }

    fn part(mut self, part: Part) -> Result<StreamCounts> {
        let (from, to) = (part.from.map(|from| from.number), part.to.number);
        self.out.put(&Record::Part(part))?;
        let sent = match from {
            None => self.whole(),
            Some(from) => self.changes(from, to),
        };
        // The reason for any failure may be that it was dropped.
        if self.store.history()?.is_some() {
            from.into_iter().chain([to]).try_for_each(|commit| self.refuse_dropped(commit))?;
        }
        sent?;
        self.out.end_part()
    }

    fn refuse_dropped(&self, commit: CommitNo) -> Result<()> {
        match self.store.is_kept(commit)? {
            true => Ok(()),
            false => Err(Error::Unusable(format!(
                "commit {} was dropped while it was sent: give it a name ('weft snapshot create'), and send that",
                commit.0
            ))),
        }
    }

    fn whole(&mut self) -> Result<()> {
        let (mut from, mut directories) = (Ino(1), Vec::new());
        loop {
            let rows = self.to.inodes(from, INODES_TOGETHER)?;
            let Some(last) = rows.last() else { break };
            from = last.ino.next();
            let mut rest = &rows[..];
            while !rest.is_empty() {
                let (now, later) = rest.split_at(self.read_ahead(rest)?);
                rest = later;
                // What no name leads to is deleted at the next mount.
                for row in now.iter().filter(|row| row.nlink > 0) {
                    self.inode(row, None)?;
                    if row.kind == Kind::Directory {
                        directories.push((row.ino, row.size));
                    }
                }
            }
        }
        directories.into_iter().try_for_each(|(ino, size)| self.names(ino, size))
    }

    /// Reads what some of `rows` need. Returns the number of those.
    fn read_ahead(&mut self, rows: &[InodeRow]) -> Result<usize> {
        let Some(commit) = self.commit else { return Ok(rows.len()) };
        let blocks = &self.blocks;
        self.ahead.read((&**self.store, commit), rows, |block| blocks.contains_key(&block))
    }

    /// Sends an inode with all that it has, but names.
    pub(super) fn inode(&mut self, row: &InodeRow, base: Option<&InodeRow>) -> Result<()> {
        self.refuse_forgotten(&*self.to, row)?;
        let (sent, xattrs) = attributes::sent(&*self.to, row)?;
        self.row(&sent, base)?;
        for (name, value) in xattrs {
            self.out.put(&Record::Xattr { name, value: Some(value) })?;
        }
        if !has_blocks(row) {
            return Ok(());
        }
        let (to, mut held) = (self.to.clone(), 0);
        let mut put = |sender: &mut Self, extents: &[(Span, BlockRef)]| {
            held += extents.iter().map(|(_, block)| u64::from(block.length)).sum::<u64>();
            sender.put_blocks(row.ino, extents)
        };
        match self.ahead.extents(row.ino) {
            Some(extents) => put(self, &extents)?,
            None => extents::visit(&*to, row.ino, 0..row.size, &mut |extents| put(self, extents))?,
        }
        // A block without a row is no hole.
        missing::refuse_block(row.ino, &missing::Blocks { allocated: row.allocated, held })
    }

    /// Refuses a file of which `then` has no content any more.
    pub(super) fn refuse_forgotten(&self, then: &dyn Store, row: &InodeRow) -> Result<()> {
        if self.keeps_digests { forgotten::refuse(then, row) } else { Ok(()) }
    }

    /// Sends the row of an inode, which was `base` before.
    pub(super) fn row(&mut self, row: &InodeRow, base: Option<&InodeRow>) -> Result<()> {
        self.show();
        self.out.put(&Record::Inode { base: base.map(row_digest), row: row.clone() })
    }

    fn show(&mut self) {
        let done = self.out.counts.bytes.min(self.total);
        (self.progress)(Progress { step: "sending", done, total: self.total });
    }

    /// Sends blocks of `ino`, each once.
    pub(super) fn put_blocks(&mut self, ino: Ino, extents: &[(Span, BlockRef)]) -> Result<()> {
        let run_bytes = self.to.run_bytes();
        let (mut run, mut bytes) = (Vec::new(), 0);
        for (span, block) in extents {
            if let Some((other, at)) = self.blocks.get(&block.id).copied() {
                self.read_run(ino, &run)?;
                (run, bytes) = (Vec::new(), 0);
                self.out.put(&Record::Shared { span: *span, ino: other, at })?;
                continue;
            }
            if self.blocks.len() < REMEMBERED_MAX {
                self.blocks.insert(block.id, (ino, span.start));
            }
            run.push((*span, *block));
            bytes += u64::from(block.length);
            if bytes >= run_bytes {
                self.read_run(ino, &run)?;
                (run, bytes) = (Vec::new(), 0);
            }
        }
        self.read_run(ino, &run)
    }

    /// Reads blocks, which lie together as a rule, and sends them.
    fn read_run(&mut self, ino: Ino, run: &[(Span, BlockRef)]) -> Result<()> {
        if run.is_empty() {
            return Ok(());
        }
        let blocks: Vec<BlockRef> = run.iter().map(|(_, block)| *block).collect();
        let mut sent = Ok(());
        let (to, out) = (&self.to, &mut *self.out);
        let mut put = |at: usize, read: Result<weft_block::Block>| {
            if sent.is_ok() {
                let (span, block) = &run[at];
                let bytes = match read {
                    Err(error @ Error::Corrupt(_)) => extents::read_anew(&**to, ino, &run[at], error),
                    read => read.map(|bytes| bytes.to_vec()),
                };
                let record = |bytes| Record::Block { span: *span, base: block.base, bytes };
                sent = bytes.map(record).and_then(|record| out.put(&record));
            }
        };
        match self.ahead.blocks(&blocks) {
            Some(here) => here.into_iter().enumerate().for_each(|(at, block)| put(at, Ok(block))),
            None => to.read_blocks(&blocks, &mut put)?,
        }
        sent?;
        self.show();
        Ok(())
    }

    /// Sends all entries of a directory that has `size` of them.
    pub(super) fn names(&mut self, directory: Ino, size: u64) -> Result<()> {
        if size == 0 {
            return Ok(());
        }
        self.out.put(&Record::Directory { ino: directory })?;
        let (mut after, mut found) = (Cookie(0), 0);
        loop {
            let names = self.to.names(directory, after, NAMES_TOGETHER)?;
            let Some(last) = names.last() else { break };
            (after, found) = (last.cookie, found + names.len() as u64);
            let is_end = names.len() < NAMES_TOGETHER;
            names.into_iter().try_for_each(|name| self.name(name))?;
            if is_end {
                break;
            }
        }
        missing::refuse_names(directory, found, size)
    }

    pub(super) fn name(&mut self, row: NameRow) -> Result<()> {
        let NameRow { name, ino, kind, cookie, .. } = row;
        self.out.put(&Record::Name { name, ino, kind, cookie })
    }
}
