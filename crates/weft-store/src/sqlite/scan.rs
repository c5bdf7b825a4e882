//! Comparison of stored digests with the rows that they follow from, and their rebuilding from
//! them.

use super::digests::Rows;
use super::read::{self, sql};
use crate::Name;
use crate::digests::{CommitDigests, DigestRows, Digester, Inode};
use crate::error::{Error, ErrorKind, Result};
use crate::overlay::Snapshot;
use crate::row::{BlockRef, Ino, InodeRow, Span};
use rusqlite::Connection;
use std::cell::Cell;
use std::collections::BTreeMap;
use std::ops::{Range, RangeInclusive};
use weft_block::Block;
use weft_digest::{Digest, Kind};

/// Inodes read at once.
const PAGE: usize = 1000;

/// Called after each page with the number of its rows. The rows that follow may be of a later
/// commit.
pub(super) type Between<'a> = &'a mut dyn FnMut(u64) -> Result<()>;

/// The directory and the name of an entry.
type Key = (Ino, Vec<u8>);

/// A directory, a name in it, the inode it names, and the hash that is kept.
type Entry = (Ino, Name, Ino, Option<Digest>);

/// Goes on: for a scan in one transaction.
pub(super) fn go_on(_rows: u64) -> Result<()> {
    Ok(())
}

fn failed(source: rusqlite::Error) -> Error {
    Error::Sqlite { what: "cannot look through the database", source }
}

/// Content of files that is not what a kept digest says, by their inodes: the digest that it has.
pub(super) type Unlike = BTreeMap<Ino, Digest>;

/// The words for content that is whole and not what the kept digest says.
pub(super) const OTHER_CONTENT: &str = "its digest is not that of its content, whose rows are whole: content or \
    digest are of another moment, or damaged; restore the file from a copy, or have 'weft check --repair --discard' \
    take the content as it is";

/// The words for nodes that are damaged, gone, or not those that the digest was made of.
pub(super) const OTHER_TREE: &str = "its digest is kept, but what is kept of the tree below it is damaged or gone";

/// The evidence for content that has no digest of its own.
pub(super) enum Proof {
    /// The hash of an entry says the same.
    Entry,
    /// No entry has a hash: there are its rows alone.
    Rows,
    /// An entry says another, or the content cannot be read.
    Contradiction,
}

/// Goes through all rows.
pub(super) struct Scan<'a> {
    pub(super) digester: &'a Digester,
    pub(super) rows: &'a Rows<'a>,
    pub(super) block_size: u64,
}

impl Scan<'_> {
    fn connection(&self) -> &Connection {
        self.rows.connection
    }

    fn each_inode(&self, between: Between<'_>, mut visit: impl FnMut(&InodeRow) -> Result<()>) -> Result<()> {
        let mut next = Ino(1);
        loop {
            let page = read::inodes(self.connection(), next, PAGE)?;
            let Some(last) = page.last() else { return Ok(()) };
            next = last.ino.next();
            page.iter().try_for_each(&mut visit)?;
            between(page.len() as u64)?;
        }
    }

    fn each_name(
        &self,
        between: Between<'_>,
        mut visit: impl FnMut(Ino, Name, Ino, Option<Digest>) -> Result<()>,
    ) -> Result<()> {
        let mut last = (Ino(0), Vec::new());
        loop {
            let (count, page, end) = self.names(&last)?;
            let Some(end) = end else { return Ok(()) };
            last = end;
            page.into_iter().try_for_each(|(parent, name, ino, hash)| visit(parent, name, ino, hash))?;
            between(count)?;
        }
    }

    /// The number of rows of names that follow `last`, at most a page; those of them that are
    /// names, and the key of the last row.
    fn names(&self, last: &Key) -> Result<(u64, Vec<Entry>, Option<Key>)> {
        let next = "SELECT parent, name, ino, digest, digest_sum FROM naming WHERE (parent, name) > (?1, ?2) \
                    ORDER BY parent, name LIMIT ?3";
        let mut statement = self.connection().prepare_cached(next).map_err(failed)?;
        let mut rows = statement.query((sql(last.0.0), &last.1, sql(PAGE as u64))).map_err(failed)?;
        let (mut count, mut page, mut end) = (0, Vec::new(), None);
        while let Some(row) = rows.next().map_err(failed)? {
            let number = |column| read::unsigned(row, column).map(Ino).map_err(failed);
            let bytes = row.get_ref(1).map_err(failed)?.as_blob().unwrap_or_default();
            count += 1;
            end = Some((number(0)?, bytes.to_vec()));
            let Ok(name) = Name::new(bytes) else { continue };
            let hash = super::digests::hash(row, 3, number(0)?, name.as_bytes()).map_err(failed)?;
            page.push((number(0)?, name, number(2)?, hash));
        }
        Ok((count, page, end))
    }

    /// The digests of a commit in which all content of `row` is put.
    fn content_of<'b>(&'b self, rows: &'b dyn DigestRows, row: &InodeRow) -> Result<CommitDigests<'b>> {
        let mut digests = self.digester.rebuild(rows, self.block_size);
        let all = "SELECT start, length FROM extents WHERE ino = ?1 ORDER BY start";
        let mut statement = self.connection().prepare_cached(all).map_err(failed)?;
        let spans = statement.query_map((sql(row.ino.0),), read::span).map_err(failed)?;
        for span in spans {
            digests.put(row.ino, span.map_err(failed)?);
        }
        Ok(digests)
    }

    /// Returns the inodes with wrong stored digests, and words for what is wrong. Each comparison
    /// is of rows of one commit if a page's are: of a file with its blocks, an entry with what it
    /// names, a directory with its entries.
    pub(super) fn wrong(&self, read_data: bool, between: Between<'_>) -> Result<Vec<(Ino, &'static str)>> {
        let mut wrong = Vec::new();
        self.each_inode(between, |row| {
            if row.kind == Kind::Directory {
                return Ok(());
            }
            let kept = Compared { reads: read_data, ..Compared::new(self.rows) };
            let digest = self.content_of(&kept, row)?.inode(row)?;
            if kept.unread.get() {
                wrong.extend((!self.is_tree_whole(row)?).then_some((row.ino, OTHER_TREE)));
                return Ok(());
            }
            let is_like = digest == self.rows.inode(row.ino)?.and_then(|inode| inode.digest);
            if !is_like && self.contradicted(row.ino, digest)?.is_some() {
                wrong.push((row.ino, OTHER_CONTENT));
            } else if !is_like {
                wrong.push((row.ino, "its digest is not that of its content"));
            } else if kept.wrong.get() {
                wrong.push((row.ino, OTHER_TREE));
            }
            Ok(())
        })?;
        self.each_name(between, |parent, name, ino, kept| {
            if self.digester.entry(self.rows, ino, &name)? != kept {
                wrong.push((parent, "the hash of an entry is not that of what it names"));
            }
            Ok(())
        })?;
        self.each_inode(between, |row| {
            // One that was removed while it was in use is no part of a digest, and its own is that
            // of the entries which it had.
            if row.kind != Kind::Directory || row.nlink == 0 {
                return Ok(());
            }
            let kept = Compared::new(self.rows);
            let digest = self.digester.directory(&kept, row.ino, &[])?;
            if digest != self.rows.inode(row.ino)?.and_then(|inode| inode.digest) || kept.wrong.get() {
                wrong.push((row.ino, "its digest is not that of its entries"));
            }
            Ok(())
        })?;
        wrong.dedup();
        Ok(wrong)
    }

    /// True if the stored tree of a file gives its digest, if it has one.
    fn is_tree_whole(&self, row: &InodeRow) -> Result<bool> {
        let Some(digest) = self.rows.inode(row.ino)?.and_then(|inode| inode.digest) else { return Ok(true) };
        self.digester.is_tree_whole(self.rows, self.block_size, row, digest)
    }

    /// The digest `found` of the content of `ino`, if it contradicts one that is kept whole. An
    /// entry that is in its directory's digest as it is, and says what is found, outweighs the row.
    fn contradicted(&self, ino: Ino, found: Option<Digest>) -> Result<Option<Digest>> {
        let Some((digest, inode)) = found.zip(self.rows.inode(ino)?) else { return Ok(None) };
        if inode.digest.is_none_or(|kept| kept == digest) {
            return Ok(None);
        }
        for (parent, name) in self.rows.names_of(ino)? {
            let hash = self.digester.entry_of(Inode { digest: Some(digest), ..inode }, &name);
            if hash.is_some() && self.rows.entry(parent, &name)? == hash && self.is_listed(parent)? {
                return Ok(None);
            }
        }
        Ok(Some(digest))
    }

    /// True if the digest of directory `ino` is that of its entries.
    fn is_listed(&self, ino: Ino) -> Result<bool> {
        let digest = self.digester.directory(&Compared::new(self.rows), ino, &[])?;
        Ok(self.rows.inode(ino)?.and_then(|inode| inode.digest) == digest)
    }

    /// Files whose content contradicts a digest that is kept whole, as far as that can be told
    /// without blocks unless `read_data`.
    pub(super) fn contradictions(&self, read_data: bool) -> Result<Unlike> {
        let mut unlike = Unlike::new();
        self.each_inode(&mut go_on, |row| {
            if row.kind != Kind::Directory {
                let kept = Compared { reads: read_data, ..Compared::new(self.rows) };
                let digest = self.content_of(&kept, row)?.inode(row)?.filter(|_| !kept.unread.get());
                unlike.extend(self.contradicted(row.ino, digest)?.map(|digest| (row.ino, digest)));
            }
            Ok(())
        })?;
        Ok(unlike)
    }

    /// Inodes, other than directories, whose content gives another digest than their row has; with
    /// true where it gives none, as a block cannot be read.
    pub(super) fn unlike(&self) -> Result<Vec<(InodeRow, bool)>> {
        let mut unlike = Vec::new();
        self.each_inode(&mut go_on, |row| {
            if row.kind != Kind::Directory {
                let kept = Compared::new(self.rows);
                let digest = self.content_of(&kept, row)?.inode(row)?;
                if digest != self.rows.inode(row.ino)?.and_then(|inode| inode.digest) {
                    unlike.push((row.clone(), kept.unread.get()));
                }
            }
            Ok(())
        })?;
        Ok(unlike)
    }

    /// True if the content of inode `ino` gives the digest that its row has.
    pub(super) fn is_like(&self, ino: Ino) -> Result<bool> {
        let row = read::inodes(self.connection(), ino, 1)?.pop().filter(|row| row.ino == ino);
        let Some(row) = row else { return Ok(false) };
        let digest = self.content_of(&Compared::new(self.rows), &row)?.inode(&row)?;
        Ok(digest.is_some() && digest == self.rows.inode(ino)?.and_then(|inode| inode.digest))
    }

    /// Has inode `ino`, which has no digest, have that of its content, unless an entry's hash says
    /// another.
    pub(super) fn adopt(&self, ino: Ino) -> Result<Proof> {
        let (proof, digest) = self.proof(ino, None)?;
        if !matches!(proof, Proof::Contradiction) {
            self.rows.set_digest(ino, digest.as_ref())?;
        }
        Ok(proof)
    }

    /// Returns the evidence that entries give for the content of file `ino`, whose row was rebuilt
    /// around its blocks: the permissions that their hashes cover are gone, so all that a file can
    /// have are tried.
    pub(super) fn proof_of_blocks(&self, ino: Ino) -> Result<Proof> {
        Ok(self.proof(ino, Some(0..=0o7777))?.0)
    }

    /// Returns the evidence that entries give for the content of inode `ino`, if it has any of
    /// these `permissions`, else its own; and the digest of that content.
    fn proof(&self, ino: Ino, permissions: Option<RangeInclusive<u32>>) -> Result<(Proof, Option<Digest>)> {
        let row = read::inodes(self.connection(), ino, 1)?.pop().filter(|row| row.ino == ino);
        let Some(row) = row else { return Ok((Proof::Contradiction, None)) };
        let digest = self.content_of(&Compared::new(self.rows), &row)?.inode(&row)?;
        let Some(inode) = self.rows.inode(ino)?.filter(|_| digest.is_some()) else {
            return Ok((Proof::Contradiction, None));
        };
        let permissions = permissions.unwrap_or(inode.permissions..=inode.permissions);
        let mut proof = Proof::Rows;
        for (parent, name) in self.rows.names_of(ino)? {
            let Some(kept) = self.rows.entry(parent, &name)? else { continue };
            let hash = |permissions| self.digester.entry_of(Inode { permissions, digest, ..inode }, &name);
            if !permissions.clone().any(|permissions| hash(permissions) == Some(kept)) {
                return Ok((Proof::Contradiction, digest));
            }
            proof = Proof::Entry;
        }
        Ok((proof, digest))
    }

    /// Rebuilds all stored digests, but for those of the files in `stay`, whose content gives
    /// another.
    pub(super) fn renew(&self, stay: &Unlike) -> Result<()> {
        let inodes = stay.keys().map(|ino| Ok((*ino, self.rows.inode(*ino)?.and_then(|inode| inode.digest))));
        let stay = inodes.collect::<Result<BTreeMap<_, _>>>()?;
        let forget = "DELETE FROM branches; DELETE FROM nodes; UPDATE fileatt SET digest = NULL; UPDATE naming SET digest = NULL";
        self.connection().execute_batch(forget).map_err(failed)?;
        let mut directories = self.digester.begin(self.rows, self.block_size);
        self.each_inode(&mut go_on, |row| {
            if row.kind == Kind::Directory {
                return directories.inode(row).map(|_| ());
            }
            // Subtrees follow from blocks all the same.
            let digest = self.content_of(self.rows, row)?.inode(row)?;
            let digest = stay.get(&row.ino).copied().unwrap_or(digest);
            self.rows.set_digest(row.ino, digest.as_ref())
        })?;
        self.each_name(&mut go_on, |parent, name, ino, _| {
            let hash = self.digester.entry(self.rows, ino, &name)?;
            self.rows.set_entry(parent, &name, hash.as_ref())
        })?;
        directories.finish()
    }
}

/// Has digests made from nothing that is kept for them, and compares what would be kept with what
/// is.
struct Compared<'a> {
    rows: &'a Rows<'a>,
    /// True if blocks may be read, where their rows do not say enough.
    reads: bool,
    /// True if a block would have had to be read.
    unread: Cell<bool>,
    wrong: Cell<bool>,
}

impl<'a> Compared<'a> {
    fn new(rows: &'a Rows<'a>) -> Compared<'a> {
        Compared { rows, reads: true, unread: Cell::default(), wrong: Cell::default() }
    }

    fn compare(&self, is_right: bool) -> Result<()> {
        self.wrong.set(self.wrong.get() || !is_right);
        Ok(())
    }
}

/// Returns the stored data, if any; none at all if it is damaged.
#[expect(clippy::option_option, reason = "nothing that is kept is not the same as something that cannot be told")]
fn kept(read: Result<Option<Vec<u8>>>) -> Result<Option<Option<Vec<u8>>>> {
    match read {
        Err(error) if error.kind() == ErrorKind::Corrupt => Ok(None),
        read => read.map(Some),
    }
}

impl Snapshot for Compared<'_> {
    fn inode(&self, ino: Ino) -> Result<Option<Inode>> {
        // Without a digest, so that it is made.
        Ok(self.rows.inode(ino)?.map(|inode| Inode { digest: None, size: 0, ..inode }))
    }
    fn leaving(&self, _ino: Ino) -> Result<Option<Inode>> {
        Err(Error::Bug("a comparison removes nothing".into()))
    }
    fn names_of(&self, ino: Ino) -> Result<Vec<(Ino, Name)>> {
        self.rows.names_of(ino)
    }
    fn entry(&self, parent: Ino, name: &Name) -> Result<Option<Digest>> {
        self.rows.entry(parent, name)
    }
    fn entries(&self, parent: Ino, prefix: &[u8], limit: usize) -> Result<Vec<(Name, Option<Digest>)>> {
        self.rows.entries(parent, prefix, limit)
    }
    fn branch(&self, _parent: Ino, _prefix: &[u8]) -> Result<Option<Vec<u8>>> {
        Ok(None)
    }
    fn extents(&self, ino: Ino, range: Range<u64>) -> Result<Vec<(Span, BlockRef)>> {
        self.rows.extents(ino, range)
    }
    fn bytes(&self, block: &BlockRef) -> Result<Block> {
        if !self.reads {
            self.unread.set(true);
            return Err(Error::Corrupt("blocks are not read".into()));
        }
        // What is damaged, or deleted meanwhile, is for others to tell.
        self.rows.bytes(block).inspect_err(|_| self.unread.set(true))
    }
    fn node(&self, _ino: Ino, _level: u32, _index: u64) -> Result<Option<Vec<u8>>> {
        Ok(None)
    }
    fn nodes(&self, _ino: Ino, _level: u32, _range: Range<u64>) -> Result<Vec<u64>> {
        Ok(Vec::new())
    }
}

impl DigestRows for Compared<'_> {
    fn set_digest(&self, _ino: Ino, _digest: Option<&Digest>) -> Result<()> {
        Err(Error::Bug("a comparison keeps nothing".into()))
    }
    fn set_entry(&self, _parent: Ino, _name: &Name, _hash: Option<&Digest>) -> Result<()> {
        Err(Error::Bug("a comparison keeps nothing".into()))
    }
    fn set_branch(&self, parent: Ino, prefix: &[u8], branch: Option<&[u8]>) -> Result<()> {
        self.compare(kept(self.rows.branch(parent, prefix))?.is_some_and(|kept| kept.as_deref() == branch))
    }
    fn clear_branches(&self, _parent: Ino) -> Result<()> {
        Ok(())
    }
    fn set_node(&self, ino: Ino, level: u32, index: u64, node: Option<&[u8]>) -> Result<()> {
        self.compare(kept(self.rows.node(ino, level, index))?.is_some_and(|kept| kept.as_deref() == node))
    }
    fn clear_nodes(&self, _ino: Ino, _level: u32, _index: u64) -> Result<()> {
        Ok(())
    }
}
