//! The digest of a file that has blocks: from their values, by the tree above them.
//!
//! A *group* is 64 blocks, or 4 MiB if that is less; its value follows from those of its blocks,
//! wherever these are stored. A file of more than one group keeps *nodes*: one of level 1 has the
//! values of up to 64 groups, one of each further level those of up to 64 nodes below. A change
//! rewrites one node at each level, so it costs a group and the logarithm of the size. A subtree of
//! zeros alone has the value [`ZERO`], and a node of nothing else is not stored: holes cost
//! nothing.

use super::DigestRows;
use super::zeros::ZeroValues;
use crate::error::{Error, ErrorKind, Result};
use crate::row::{BlockRef, Ino, Span};
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use weft_digest::{Digest, FileHasher, PIECE_BYTES, Value, ZERO, listed, merged, root, value};

/// Children of a node, and most blocks of a group.
const FAN_OUT: u64 = 64;

/// Pieces of zeros that are hashed when a digest is asked for: less than half a second for the
/// first time.
const ZERO_PIECES_MAX: u64 = 256;

const VALUE_BYTES: usize = 32;

const PIECE: u64 = PIECE_BYTES as u64;

/// Most blocks of a file whose tree a commit rebuilds. A longer one has no digest until a check
/// makes it.
const RENEWED_BLOCKS_MAX: u64 = 1 << 16;

/// An extent and its block.
type Extent = (Span, BlockRef);

/// A file with a change of content.
pub(crate) struct FileChange<'a> {
    pub(crate) ino: Ino,
    /// Bytes in a block of the volume.
    pub(crate) block_size: u64,
    /// Size as of the last commit; 0 for a file that it did not have.
    pub(crate) old_size: u64,
    /// Its digest then, if it had one.
    pub(crate) old_digest: Option<Digest>,
    /// True if nothing is kept of its tree, and all blocks were put.
    pub(crate) is_anew: bool,
    pub(crate) size: u64,
    /// Bytes of all its blocks.
    pub(crate) allocated: u64,
    /// Bytes whose blocks were put.
    pub(crate) put: &'a [Range<u64>],
    /// Bytes from which all others were cleared.
    pub(crate) cleared: &'a [Range<u64>],
    /// The digest of the file if its first block is all of it, where that is known: of a block, by
    /// its number.
    pub(crate) alone: &'a dyn Fn(&BlockRef) -> Option<Digest>,
}

/// Updates the stored tree of a file, and returns the digest by which the directory lists the file.
pub(super) fn update(rows: &dyn DigestRows, zeros: &ZeroValues, change: &FileChange<'_>) -> Result<Digest> {
    let shape = Shape { block_size: change.block_size };
    let tree = Tree { rows, zeros, ino: change.ino, shape, size: change.size };
    let group_bytes = shape.group_bytes();
    let is_kept = change.is_anew || tree.is_kept(change)?;
    if change.old_size > group_bytes {
        tree.cut(change.old_size)?;
    }
    if change.size <= change.block_size {
        tree.only_block(change.alone)
    } else if change.size <= group_bytes {
        Ok(root(&tree.with_zeros(&tree.blocks(0)?, 0, change.block_size)))
    } else if is_kept {
        match tree.update_nodes(tree.changed_groups(change)?, change.old_size) {
            Err(error) if error.kind() == ErrorKind::Corrupt => tree.renew(change),
            updated => updated,
        }
    } else {
        tree.renew(change)
    }
}

/// True if the stored tree of a file of `size` bytes gives `digest`, and each node below the top
/// gives the value that the one above has for it. Reads no blocks: the top proves all others.
pub(super) fn is_whole(
    rows: &dyn DigestRows,
    zeros: &ZeroValues,
    (ino, block_size): (Ino, u64),
    (size, digest): (u64, Digest),
) -> Result<bool> {
    let shape = Shape { block_size };
    let top = shape.top(size);
    if top == 0 {
        return Ok(true);
    }
    let tree = Tree { rows, zeros, ino, shape, size };
    let is_whole = || -> Result<bool> {
        let node = tree.node(top, 0)?;
        if !tree.gives_what_is_below(top, 0, &node)? {
            return Ok(false);
        }
        let (values, has_zeros) = tree.counted(top, 0, node);
        Ok(listed(size, &values, has_zeros) == digest)
    };
    match is_whole() {
        Err(error) if error.kind() == ErrorKind::Corrupt => Ok(false),
        found => found,
    }
}

/// Forgets all that is kept of a file of `size` bytes.
pub(super) fn forget(rows: &dyn DigestRows, ino: Ino, block_size: u64, size: u64) -> Result<()> {
    (1..=Shape { block_size }.top(size)).try_for_each(|level| rows.clear_nodes(ino, level, 0))
}

/// BLAKE3 of the content of a file that is listed by `listed`; none if more than
/// [`ZERO_PIECES_MAX`] pieces of it are zeros.
pub(super) fn content(
    rows: &dyn DigestRows,
    zeros: &ZeroValues,
    ino: Ino,
    block_size: u64,
    size: u64,
    listed: Digest,
) -> Result<Option<Digest>> {
    let shape = Shape { block_size };
    let tree = Tree { rows, zeros, ino, shape, size };
    let top = shape.top(size);
    if top == 0 {
        return Ok(Some(listed));
    }
    let node = tree.node(top, 0)?;
    if !tree.counted(top, 0, node).1 {
        return Ok(Some(listed));
    }
    let mut left = ZERO_PIECES_MAX;
    Ok(tree.content(top, 0, &mut left)?.map(|values| root(&values)))
}

/// Values of the children of a node; which of them hold zeros as docs/reference/digest.md counts
/// them, a bit for each from the lowest on.
struct Node {
    with_zeros: u64,
    values: Vec<Value>,
}

/// The new state of a child.
#[derive(Clone, Copy)]
struct Child {
    value: Value,
    has_zeros: bool,
}

/// Bytes that lie under a node of each level.
#[derive(Clone, Copy)]
struct Shape {
    block_size: u64,
}

impl Shape {
    fn group_bytes(self) -> u64 {
        (self.block_size * FAN_OUT).min(PIECE).max(self.block_size)
    }

    /// Bytes under a child of a node of `level`.
    fn child_bytes(self, level: u32) -> u64 {
        (1..level).fold(self.group_bytes(), |bytes, _| bytes.saturating_mul(FAN_OUT))
    }

    /// The level whose only node is the top of a file of `size` bytes; 0 if the file has none.
    fn top(self, size: u64) -> u32 {
        if size <= self.group_bytes() {
            return 0;
        }
        (1..).find(|level| size.div_ceil(self.child_bytes(*level)) <= FAN_OUT).expect("sizes have an end")
    }
}

#[derive(Clone, Copy)]
struct Tree<'a> {
    rows: &'a dyn DigestRows,
    zeros: &'a ZeroValues,
    ino: Ino,
    shape: Shape,
    size: u64,
}

impl Tree<'_> {
    /// True if the stored tree is the one that the digest before the change was made of. It is not
    /// where a part of the file was damaged when it changed the last time, or where nodes are gone.
    fn is_kept(&self, change: &FileChange<'_>) -> Result<bool> {
        let top = self.shape.top(change.old_size);
        if top == 0 {
            return Ok(true);
        }
        let Some(digest) = change.old_digest else { return Ok(false) };
        let before = Tree { size: change.old_size, ..*self };
        match before.node(top, 0) {
            Ok(node) => {
                let (values, has_zeros) = before.counted(top, 0, node);
                Ok(listed(before.size, &values, has_zeros) == digest)
            }
            Err(error) if error.kind() == ErrorKind::Corrupt => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// Rebuilds all nodes from the rows of all blocks. `Corrupt` if one is damaged, or there are
    /// too many.
    fn renew(&self, change: &FileChange<'_>) -> Result<Digest> {
        let block_size = self.shape.block_size;
        forget(self.rows, self.ino, block_size, change.old_size.max(self.size))?;
        if change.allocated / block_size > RENEWED_BLOCKS_MAX {
            return Err(Error::Corrupt(format!("the tree of inode {} is not whole", self.ino.0)));
        }
        let last = (self.size - 1) / self.shape.group_bytes();
        let mut groups = BTreeSet::from([last]);
        for (span, _) in self.rows.extents(self.ino, 0..self.size)? {
            groups.extend(self.groups_of(&span.range(), last));
        }
        self.update_nodes(groups, 0)
    }

    /// The value of a node that was not kept in a file of `old_size` bytes: of zeros. None if that
    /// file had no such node.
    fn absent(&self, level: u32, index: u64, old_size: u64) -> Result<Option<Value>> {
        let before = Tree { size: old_size, ..*self };
        let start = index.saturating_mul(self.shape.child_bytes(level)).saturating_mul(FAN_OUT);
        if start >= old_size || level >= self.shape.top(old_size) {
            return Ok(None);
        }
        Ok(Some(merged(&before.counted(level, index, before.node(level, index)?).0)))
    }

    /// Forgets the nodes of a file of `old_size` bytes that this one does not have.
    fn cut(&self, old_size: u64) -> Result<()> {
        let top = self.shape.top(self.size);
        for level in 1..=self.shape.top(old_size) {
            let node_bytes = self.shape.child_bytes(level).saturating_mul(FAN_OUT);
            let first = if level > top { 0 } else { self.size.div_ceil(node_bytes) };
            if old_size > first.saturating_mul(node_bytes) {
                self.rows.clear_nodes(self.ino, level, first)?;
            }
        }
        Ok(())
    }

    /// The digest of a file of one block at most.
    fn only_block(&self, alone: &dyn Fn(&BlockRef) -> Option<Digest>) -> Result<Digest> {
        let extents = self.rows.extents(self.ino, 0..self.size)?;
        let block = match &extents[..] {
            [] => None,
            [(span, block)] if span.start == 0 => Some(block),
            several => return self.only_span(several),
        };
        if let Some(block) = block
            && u64::from(block.length) == self.size
            && let Some(known) = alone(block)
        {
            return Ok(known);
        }
        let mut hasher = FileHasher::new(weft_digest::Content::IfListed);
        let mut left = self.size;
        if let Some(block) = block {
            let bytes = self.rows.bytes(block)?;
            let bytes = &bytes[..bytes.len().min(usize::try_from(left).unwrap_or(usize::MAX))];
            hasher.update(bytes);
            left -= bytes.len() as u64;
        }
        hasher.zeros(left);
        Ok(hasher.finish().listed)
    }

    /// The values of the blocks of a group; zeros count as [`ZERO`].
    fn blocks(&self, group: u64) -> Result<Vec<Value>> {
        let start = group * self.shape.group_bytes();
        let end = self.size.min(start + self.shape.group_bytes());
        let count = usize::try_from((end - start).div_ceil(self.shape.block_size)).expect("at most 1024");
        let mut values = vec![ZERO; count];
        let extents = self.rows.extents(self.ino, start..end)?;
        for of_block in extents.chunk_by(|(one, _), (next, _)| self.index(one) == self.index(next)) {
            let index = self.index(&of_block[0].0);
            let slot = index.checked_sub(start / self.shape.block_size);
            let slot =
                slot.and_then(|at| values.get_mut(usize::try_from(at).ok()?)).ok_or_else(|| self.disordered())?;
            *slot = self.span(index * self.shape.block_size, self.shape.block_size, of_block)?;
        }
        Ok(values)
    }

    /// The index of the block that `span` lies in.
    fn index(&self, span: &Span) -> u64 {
        span.start / self.shape.block_size
    }

    fn disordered(&self) -> Error {
        Error::Corrupt(format!("blocks of inode {} are not in order", self.ino.0))
    }

    /// The value of `length` bytes at `position`, a power of two or as far as the file reaches, of
    /// which `extents` are all that is no hole. [`ZERO`] if they are zeros.
    fn span(&self, position: u64, length: u64, extents: &[Extent]) -> Result<Value> {
        match extents {
            [] => return Ok(ZERO),
            [(span, block)] if span.start == position && u64::from(span.length) == length => {
                return self.block(position, length, block);
            }
            _ if length <= Span::LENGTH_MIN.into() => return Err(self.disordered()),
            _ => {}
        }
        let values = self.halves(position, length, extents)?;
        if values.iter().all(|value| *value == ZERO) {
            return Ok(ZERO);
        }
        Ok(merged(&self.with_zeros(&values, position, length / 2)))
    }

    /// The values of the halves of `length` bytes at `position`, as of [`Tree::span`]; the second
    /// one is left out behind the end of the file.
    fn halves(&self, position: u64, length: u64, extents: &[Extent]) -> Result<Vec<Value>> {
        let (half, middle) = (length / 2, position + length / 2);
        let (left, right) = extents.split_at(extents.partition_point(|(span, _)| span.start < middle));
        let mut values = vec![self.span(position, half, left)?];
        if middle < self.size {
            values.push(self.span(middle, half, right)?);
        }
        Ok(values)
    }

    /// The digest of a file of one block at most that has `extents`, not one that covers all of it.
    fn only_span(&self, extents: &[Extent]) -> Result<Digest> {
        let length = self.size.next_power_of_two();
        let values = self.halves(0, length, extents)?;
        Ok(root(&self.with_zeros(&values, 0, length / 2)))
    }

    /// The value of the block of an extent of `length` bytes at `position`: zeros follow a short
    /// one.
    fn block(&self, position: u64, length: u64, block: &BlockRef) -> Result<Value> {
        let len = length.min(self.size - position);
        if block.value == ZERO || (block.base == position && u64::from(block.length) == len) {
            return Ok(block.value);
        }
        let len = usize::try_from(len).expect("at most a block");
        let stored = self.rows.bytes(block)?;
        let mut bytes = stored[..stored.len().min(len)].to_vec();
        bytes.resize(len, 0);
        if weft_digest::is_zero(&bytes) {
            return Ok(ZERO);
        }
        Ok(value(position, &bytes).expect("a block is a subtree"))
    }

    /// `values` of subtrees of `bytes` from byte `start` of the file on, with what zeros hash to
    /// there instead of [`ZERO`].
    fn with_zeros(&self, values: &[Value], start: u64, bytes: u64) -> Vec<Value> {
        let real = |(index, value): (usize, &Value)| match *value {
            ZERO => {
                let position = start + index as u64 * bytes;
                self.zeros.value(position, bytes.min(self.size - position), self.shape.block_size)
            }
            value => value,
        };
        values.iter().enumerate().map(real).collect()
    }

    /// The value of a group. [`ZERO`] if it is whole and zeros.
    fn group(&self, group: u64) -> Result<Value> {
        let values = self.blocks(group)?;
        let start = group * self.shape.group_bytes();
        let is_whole = self.size - start >= self.shape.group_bytes();
        if is_whole && values.iter().all(|value| *value == ZERO) {
            return Ok(ZERO);
        }
        Ok(merged(&self.with_zeros(&values, start, self.shape.block_size)))
    }

    /// The groups that may have other values than before.
    fn changed_groups(&self, change: &FileChange<'_>) -> Result<BTreeSet<u64>> {
        let last = (self.size - 1) / self.shape.group_bytes();
        let old_last = change.old_size.saturating_sub(1) / self.shape.group_bytes();
        let mut groups = BTreeSet::from([last, old_last.min(last)]);
        for range in change.put {
            groups.extend(self.groups_of(range, last));
        }
        for range in change.cleared {
            let range = self.groups_of(range, last);
            if range.end - range.start <= FAN_OUT {
                groups.extend(range);
                continue;
            }
            // However long a hole is, only what lay there changes.
            for node in self.rows.nodes(self.ino, 1, range.start / FAN_OUT..(range.end - 1) / FAN_OUT + 1)? {
                let below = node * FAN_OUT..(node + 1) * FAN_OUT;
                groups.extend(below.start.max(range.start)..below.end.min(range.end));
            }
        }
        Ok(groups)
    }

    /// Groups that bytes in `range` are of, as far as the file reaches.
    fn groups_of(&self, range: &Range<u64>, last: u64) -> Range<u64> {
        let group_bytes = self.shape.group_bytes();
        let end = range.end.div_ceil(group_bytes).min(last + 1);
        (range.start / group_bytes).min(end)..end
    }

    /// Rebuilds the nodes above `groups`, level by level; returns the digest. `Corrupt` if one is
    /// gone that the file had when it was `old_size` long.
    fn update_nodes(&self, groups: BTreeSet<u64>, old_size: u64) -> Result<Digest> {
        let top = self.shape.top(self.size);
        let mut changed = BTreeMap::new();
        for group in groups {
            let value = self.group(group)?;
            changed.insert(group, Child { value, has_zeros: value == ZERO });
        }
        // Those that are not kept, and what their values must have been.
        let mut absent = BTreeMap::new();
        for level in 1..=top {
            let mut above = BTreeMap::new();
            let below = std::mem::take(&mut absent);
            let mut changes = changed.into_iter().peekable();
            while let Some((first, _)) = changes.peek() {
                let index = first / FAN_OUT;
                let mut node = self.node(level, index)?;
                if node.values.iter().all(|value| *value == ZERO) {
                    absent.extend(self.absent(level, index, old_size)?.map(|value| (index, value)));
                }
                while let Some((child, change)) = changes.next_if(|(child, _)| child / FAN_OUT == index) {
                    let slot = usize::try_from(child % FAN_OUT).expect("below the fan-out");
                    if below.get(&child).is_some_and(|value| *value != node.values[slot]) {
                        return Err(Error::Corrupt(format!("a node of inode {}'s tree is gone", self.ino.0)));
                    }
                    node.values[slot] = change.value;
                    node.with_zeros &= !(1 << slot);
                    node.with_zeros |= u64::from(change.has_zeros) << slot;
                }
                self.keep(level, index, &node)?;
                let (values, has_zeros) = self.counted(level, index, node);
                if level == top {
                    return Ok(listed(self.size, &values, has_zeros));
                }
                above.insert(index, Child { value: merged(&values), has_zeros });
            }
            changed = above;
        }
        unreachable!("the top has a node")
    }

    /// True if nodes below `node` are what it says of them. One that is not kept is of zeros.
    fn gives_what_is_below(&self, level: u32, index: u64, node: &Node) -> Result<bool> {
        if level == 1 {
            return Ok(true);
        }
        let first = index.saturating_mul(FAN_OUT);
        let kept = self.rows.nodes(self.ino, level - 1, first..first.saturating_add(FAN_OUT))?;
        for (child, value) in (first..).zip(&node.values) {
            let below = self.node(level - 1, child)?;
            if kept.binary_search(&child).is_ok() && !self.gives_what_is_below(level - 1, child, &below)? {
                return Ok(false);
            }
            if merged(&self.counted(level - 1, child, below).0) != *value {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// A node as it is kept, with as many children as the file has now.
    fn node(&self, level: u32, index: u64) -> Result<Node> {
        let child_bytes = self.shape.child_bytes(level);
        let start = index.saturating_mul(child_bytes).saturating_mul(FAN_OUT);
        let children = usize::try_from((self.size - start).div_ceil(child_bytes).min(FAN_OUT)).expect("at most 64");
        let damaged = || Error::Corrupt(format!("a node of inode {}'s tree has another length than any", self.ino.0));
        let mut node = Node { with_zeros: u64::MAX, values: Vec::new() };
        if let Some(bytes) = self.rows.node(self.ino, level, index)? {
            let (with_zeros, values) = bytes.split_first_chunk::<8>().ok_or_else(damaged)?;
            let (values, rest) = values.as_chunks::<VALUE_BYTES>();
            if !rest.is_empty() || values.len() > FAN_OUT as usize {
                return Err(damaged());
            }
            node = Node { with_zeros: u64::from_le_bytes(*with_zeros), values: values.to_vec() };
        }
        // What the file has grown by is zeros until something else is written there.
        for slot in node.values.len()..children {
            node.with_zeros |= 1 << slot;
        }
        node.values.resize(children, ZERO);
        if children < FAN_OUT as usize {
            node.with_zeros &= (1 << children) - 1;
        }
        Ok(node)
    }

    fn keep(&self, level: u32, index: u64, node: &Node) -> Result<()> {
        if node.values.iter().all(|value| *value == ZERO) {
            return self.rows.set_node(self.ino, level, index, None);
        }
        let mut bytes = node.with_zeros.to_le_bytes().to_vec();
        bytes.extend_from_slice(node.values.as_flattened());
        self.rows.set_node(self.ino, level, index, Some(&bytes))
    }

    /// The values of a node's children as they count: [`ZERO`] only for zeros that are whole pieces
    /// of a file of several; and whether there are any such zeros.
    fn counted(&self, level: u32, index: u64, node: Node) -> (Vec<Value>, bool) {
        let child_bytes = self.shape.child_bytes(level);
        if level > 1 {
            return (node.values, node.with_zeros != 0);
        }
        let start = index * child_bytes * FAN_OUT;
        let in_piece = usize::try_from(PIECE / child_bytes).expect("at most 1024").max(1);
        let mut has_zeros = false;
        let mut values = Vec::with_capacity(node.values.len());
        for (piece, children) in node.values.chunks(in_piece).enumerate() {
            let position = start + (piece * in_piece) as u64 * child_bytes;
            let is_whole = self.size > PIECE && self.size - position >= PIECE;
            if is_whole && children.iter().all(|value| *value == ZERO) {
                has_zeros = true;
                values.extend_from_slice(children);
            } else {
                values.extend(self.with_zeros(children, position, child_bytes));
            }
        }
        (values, has_zeros)
    }

    /// Returns the values of a node's children, those of zeros as BLAKE3 has them, and takes the
    /// pieces of zeros off `left`. None if there are more of them than that.
    fn content(&self, level: u32, index: u64, left: &mut u64) -> Result<Option<Vec<Value>>> {
        let Node { with_zeros, mut values } = self.node(level, index)?;
        let child_bytes = self.shape.child_bytes(level);
        for (slot, value) in values.iter_mut().enumerate() {
            let child = index * FAN_OUT + slot as u64;
            if with_zeros >> slot & 1 == 0 {
                continue;
            }
            if level > 1 {
                let Some(below) = self.content(level - 1, child, left)? else { return Ok(None) };
                *value = merged(&below);
                continue;
            }
            let position = child * child_bytes;
            let taken = u64::from(position.is_multiple_of(PIECE));
            let Some(rest) = left.checked_sub(taken) else { return Ok(None) };
            *left = rest;
            *value = self.zeros.value(position, child_bytes.min(self.size - position), self.shape.block_size);
        }
        Ok(Some(values))
    }
}
