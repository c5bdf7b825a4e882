//! Everything a store says, to compare stores with.

use std::collections::{BTreeMap, BTreeSet};
use weft_digest::Value;
use weft_store::{
    BlockRef, Cookie, Header, Ino, InodeRow, Name, NameRow, Nth, ReadMode, Result, Span, Store, Timestamp,
};

/// Everything that can be read of a store. The place of blocks is no part of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct State {
    header: Header,
    inodes: Vec<InodeRow>,
    names: Vec<NameRow>,
    found: Vec<Option<NameRow>>,
    extents: BTreeMap<(Ino, Span), (u64, Value, Vec<u8>)>,
    xattrs: Vec<(Ino, Name, Vec<u8>)>,
    orphans: Vec<Ino>,
}

impl State {
    /// True if `other` differs in the number of the last commit at most.
    pub fn is_but_for_the_commit(&self, other: &State) -> bool {
        let header = Header { commit: other.header.commit, ..self.header.clone() };
        State { header, ..self.clone() } == *other
    }
}

/// Inode numbers that may occur in these tests, bounded so that reading all is quick.
const INODES: std::ops::Range<u64> = 1..64;

/// Reads all of `store`, in small portions where it can, and compares what is told in several ways.
pub fn state(store: &dyn Store) -> Result<State> {
    read(store, true)
}

/// The same of a damaged store, whose tables and indices may tell different extents.
pub fn damaged_state(store: &dyn Store) -> Result<State> {
    read(store, false)
}

fn read(store: &dyn Store, is_whole: bool) -> Result<State> {
    let mut inodes: Vec<InodeRow> = Vec::new();
    loop {
        let from = inodes.last().map_or(Ino(0), |row| row.ino.next());
        let rows = store.inodes(from, 3)?;
        if rows.is_empty() {
            break;
        }
        inodes.extend(rows);
    }
    let (mut names, mut found, mut extents, mut xattrs) = (Vec::new(), Vec::new(), BTreeMap::new(), Vec::new());
    for ino in INODES.map(Ino) {
        let mut after = Cookie(0);
        loop {
            let rows = store.names(ino, after, 2)?;
            let Some(last) = rows.last() else { break };
            after = last.cookie;
            for row in rows {
                found.push(store.name(ino, &row.name)?);
                names.push(row);
            }
        }
        let own = store.extents(ino, 0..u64::MAX)?;
        if is_whole {
            count_extents(store, ino, &own)?;
        }
        let mut together = Vec::new();
        store.read_blocks(&own.iter().map(|(_, block)| *block).collect::<Vec<_>>(), &mut |at, read| {
            assert_eq!(at, together.len(), "visited in their order");
            together.push(read);
        })?;
        for ((span, block), again) in own.into_iter().zip(together) {
            let bytes = store.read_block(&block, ReadMode::Blocking)?.expect("waited for");
            assert!(block.verify(&bytes), "bytes that are not what was written");
            assert!(again.expect("it could be read alone") == bytes, "read together it has other bytes");
            read_parts(store, &block, &bytes)?;
            extents.insert((ino, span), (block.id.0, block.value, bytes.to_vec()));
        }
        xattrs.extend(store.xattrs(ino)?.into_iter().map(|(name, value)| (ino, name, value)));
    }
    // No two volumes have the same id.
    let header = Header { uuid: [0; 16], ..store.header()? };
    Ok(State { header, inodes, names, found, extents, xattrs, orphans: store.orphans()? })
}

/// Counts the blocks of a file from both ends, all of them and those behind the first.
fn count_extents(store: &dyn Store, ino: Ino, own: &[(Span, BlockRef)]) -> Result<()> {
    let after_first = own.first().map_or(0, |(span, _)| span.start + 1);
    for (start, own) in [(0, own), (after_first, own.get(1..).unwrap_or_default())] {
        let start_of = |at: usize| own.get(at).map(|(span, _)| span.start);
        for (at, skipped) in (0..=own.len()).zip(0..) {
            let from_end = own.len().checked_sub(at + 1).and_then(start_of);
            assert_eq!(store.nth_extent(ino, start..1 << 40, Nth::FromStart(skipped))?, start_of(at));
            assert_eq!(store.nth_extent(ino, start..1 << 40, Nth::FromEnd(skipped))?, from_end);
        }
    }
    Ok(())
}

/// Reads ranges of a block of these bytes, which may give more than was asked for and no other
/// bytes.
fn read_parts(store: &dyn Store, block: &BlockRef, bytes: &[u8]) -> Result<()> {
    let len = bytes.len();
    for range in [0..1, len / 2..len / 2 + 1, len / 3..len / 3 + 5000, len - 1..len + 9] {
        let (start, part) = store.read_part(block, range.clone(), ReadMode::Blocking)?.expect("waited for");
        let end = start + part.len();
        assert!(start <= range.start && range.end.min(len) <= end, "{range:?} is not in {start}..{end}");
        assert!(part[..] == bytes[start..end], "{start}..{end} has other bytes");
    }
    Ok(())
}

impl State {
    /// The state but for the volume's own row.
    pub fn rows(&self) -> impl PartialEq + std::fmt::Debug {
        (&self.inodes, &self.names, &self.found, &self.extents, &self.xattrs, &self.orphans)
    }

    /// The state but for what differs between volumes of different options.
    pub fn without_options(mut self) -> State {
        self.header.options = weft_store::VolumeOptions::default();
        self.header.created = Timestamp(0);
        self
    }

    /// The part of the state that the past keeps: neither the volume's own row, nor orphans, nor
    /// access times.
    pub fn as_past(&self) -> impl PartialEq + std::fmt::Debug + use<> {
        let inodes = self.inodes.iter().map(|row| InodeRow { atime: Timestamp(0), ..row.clone() });
        let inodes = inodes.collect::<Vec<_>>();
        (inodes, self.names.clone(), self.found.clone(), self.extents.clone(), self.xattrs.clone())
    }

    /// Its inodes.
    pub fn inodes(&self) -> &[InodeRow] {
        &self.inodes
    }

    /// The numbers of the blocks that files have.
    pub fn blocks(&self) -> BTreeSet<u64> {
        self.extents.values().map(|(id, ..)| *id).collect()
    }
}
