//! Rows of inodes that are gone or damaged, rebuilt around what is known of them: the blocks of a
//! file, content in a damaged row that a digest proves, the names in a directory.

use super::{Extents, Missing, Salvage, rows};
use crate::digests::{Digester, ZeroValues};
use crate::error::Result;
use crate::row::{BlockId, Ino, InodeRow, Span};
use crate::sqlite::inlined::{Hashed, MADE_ANEW};
use crate::sqlite::put::put_inode;
use crate::sqlite::scan::{Proof, Scan};
use rusqlite::Connection;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use weft_digest::Kind;

/// Words for the unknown parts of a file.
const ROW_GONE: &str = "its row is gone or damaged, with owner, permissions, times and length";

impl Salvage<'_> {
    /// Brings content inline in damaged rows if a digest proves it; adds the inodes to `brought`.
    pub(super) fn bring_inlined(
        &mut self,
        connection: &Connection,
        extents: &BTreeMap<Ino, Extents>,
        kinds: &BTreeMap<Ino, Kind>,
        brought: &mut BTreeMap<Ino, Kind>,
    ) -> Result<()> {
        let (found, digester) = (self.found, Digester::new(Arc::new(ZeroValues::default())));
        // What has blocks is made of them.
        let is_alone = |ino: &Ino| !found.inodes.contains_key(ino) && !extents.contains_key(ino);
        let suspects = found.damaged_inodes.iter().filter(|(ino, _)| is_alone(ino)).collect::<BTreeMap<_, _>>();
        if suspects.is_empty() {
            return Ok(());
        }
        let hashes = self.hashes(|ino| suspects.contains_key(ino));
        for (ino, suspect) in suspects {
            let kind = kinds.get(ino).copied().or(suspect.kind).unwrap_or(Kind::File);
            let entries = hashes.get(ino).map_or(&[][..], |entries| entries);
            let why = match suspect.prove(kind, entries, &digester, self.volume.created) {
                Some((row, digest)) => {
                    put_inode(connection, self.commit(), &row, Some(&digest))?;
                    brought.insert(*ino, kind);
                    MADE_ANEW
                }
                None if kind == Kind::Directory => {
                    "its row is damaged, with owner, permissions and times; if entries are left, it is made anew, for \
                     root alone"
                }
                None => "its row is damaged, and no digest proves what the row says its content is",
            };
            self.miss_of(kind, *ino, why);
        }
        Ok(())
    }

    /// The names of some inodes, with the hashes of their entries.
    fn hashes(&self, is_asked: impl Fn(&Ino) -> bool) -> BTreeMap<Ino, Vec<Hashed>> {
        let mut hashes = BTreeMap::<Ino, Vec<Hashed>>::new();
        let names = self.found.names.values().filter_map(|(_, cell)| self.pages.record(*cell));
        for (row, _, hash, _) in names.filter_map(|record| rows::name(&record.columns)) {
            if let Some(hash) = hash.filter(|_| is_asked(&row.ino)) {
                hashes.entry(row.ino).or_default().push((row.name, hash));
            }
        }
        hashes
    }

    /// Rebuilds files whose rows are gone or damaged from their blocks, for root alone, if all
    /// blocks that are known are whole; returns the files.
    pub(super) fn make_files(
        &mut self,
        connection: &Connection,
        extents: &BTreeMap<Ino, Extents>,
        blocks: &BTreeMap<BlockId, u32>,
        kinds: &BTreeMap<Ino, Kind>,
    ) -> Result<BTreeSet<Ino>> {
        let mut made = BTreeSet::new();
        for (ino, own) in extents.iter().filter(|(ino, _)| !self.found.inodes.contains_key(ino)) {
            let suspect = self.found.damaged_inodes.get(ino);
            let kind = kinds.get(ino).copied().or_else(|| suspect.and_then(|suspect| suspect.kind));
            let is_file = kind.is_none_or(|kind| kind == Kind::File);
            let length = |block| blocks.get(block).filter(|_| !self.damaged_blocks.contains(block));
            let lengths = own.iter().map(|(span, block)| Some((*span, u64::from(*length(block)?))));
            let lengths = lengths.collect::<Option<Vec<_>>>().filter(|_| is_file);
            let Some(lengths) = lengths else {
                let why = format!("{ROW_GONE}; its content is not brought");
                self.told.missing.push(Missing { kind: "file", what: self.path(*ino), why });
                continue;
            };
            let ends = lengths.iter().map(|(span, length)| span.start + length);
            let row = InodeRow {
                ino: *ino,
                kind: Kind::File,
                permissions: 0o600,
                nlink: 1,
                parent: Ino(0),
                size: ends.max().unwrap_or(0),
                allocated: lengths.iter().map(|(_, length)| length).sum(),
                ..InodeRow::new_root(0, 0, self.volume.created)
            };
            put_inode(connection, self.commit(), &row, None)?;
            made.insert(*ino);
        }
        Ok(made)
    }

    /// Reports files that were made of their blocks: an entry, of which `scan` knows, may prove
    /// that these are all of their content. Else nobody knows if more lay behind the last one, and
    /// where there is none.
    pub(super) fn judge_made(&mut self, scan: Option<&Scan<'_>>) -> Result<()> {
        for ino in self.remade.clone() {
            let proof = scan.map_or(Ok(Proof::Rows), |scan| scan.proof_of_blocks(ino))?;
            self.told.unproved += u64::from(!matches!(proof, Proof::Entry));
            let blocks = self.found.extents.range(rows::extents_of(ino)).map(|((_, span), _)| *span);
            let mut end = 0;
            let mut has_gap = |span: Span| span.start != std::mem::replace(&mut end, span.end());
            let has_gaps = { blocks }.any(&mut has_gap);
            let zeros = if has_gaps { ", or zeros stand for lost blocks" } else { "" };
            let why = match proof {
                Proof::Entry => "the hash of its entry proves that they are all of its content".into(),
                Proof::Contradiction => {
                    let less = "the hash of its entry says that they are not all of its content";
                    format!("{less}: its end is missing{zeros}")
                }
                Proof::Rows if has_gaps => {
                    "it may lack its end, and where no block is known there are zeros, which may have been a hole or \
                     may be lost"
                        .into()
                }
                Proof::Rows => "it may lack its end".into(),
            };
            let anew = "the blocks that are known are whole, and the file is made anew of them, for root alone";
            let why = format!("{ROW_GONE}; {anew}: {why}");
            self.told.missing.push(Missing { kind: "file", what: self.path(ino), why });
        }
        Ok(())
    }

    /// The kinds of inodes by what names say of them.
    pub(super) fn kinds(&self) -> BTreeMap<Ino, Kind> {
        let names = self.found.names.values().filter_map(|(_, cell)| self.pages.record(*cell));
        names.filter_map(|record| rows::name(&record.columns)).map(|(row, ..)| (row.ino, row.kind)).collect()
    }

    /// Rebuilds directories whose rows are gone or damaged, for root alone, so that names in them
    /// stay. The check puts their counts right.
    pub(super) fn bring_directories(
        &mut self,
        connection: &Connection,
        brought: &mut BTreeMap<Ino, Kind>,
    ) -> Result<()> {
        let mut directories = BTreeSet::from([Ino::ROOT]);
        for ((parent, _), (_, cell)) in &self.found.names {
            let record = self.pages.record(*cell);
            let Some((row, ..)) = record.and_then(|record| rows::name(&record.columns)) else { continue };
            directories.insert(*parent);
            directories.extend(Some(row.ino).filter(|_| row.kind == Kind::Directory));
        }
        // With a row it was brought, or is something else and was told of.
        for ino in directories.into_iter().filter(|ino| !self.found.inodes.contains_key(ino)).collect::<Vec<_>>() {
            let new = InodeRow::new_root(0, 0, self.volume.created);
            put_inode(connection, self.commit(), &InodeRow { ino, permissions: 0o700, ..new }, None)?;
            brought.insert(ino, Kind::Directory);
            if !self.found.damaged_inodes.contains_key(&ino) {
                let why = "its row is gone, with owner, permissions and times; it is made anew for root alone".into();
                self.told.missing.push(Missing { kind: "directory", what: self.path(ino), why });
            }
        }
        Ok(())
    }
}
