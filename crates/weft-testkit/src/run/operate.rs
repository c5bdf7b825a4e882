//! Does one operation to the volume and to the model.

use super::{BLOCK_BYTES, Driver};
use crate::model::{Model, Node, NodeId};
use crate::operations::Operation;
use weft_vfs::{
    Caller, Clock, ErrorKind, Holds, Ino, Kind, MakeNode, OpNo, SetAttributes, SetTime, SetXattr, SharedPart,
    Timestamp, Vfs,
};

/// The caller that makes things: neither the root's owner nor group, so that inheriting shows.
const CALLER: Caller = Caller { uid: 7, gid: 8, holds: Holds::None };

/// A umask of every day.
const UMASK: u32 = 0o022;

/// Names that operations choose from: ordinary ones, so that they meet, and hostile ones.
fn name(index: usize) -> Vec<u8> {
    match index {
        7 => vec![b'x'; 256],
        4 => vec![b'x'; 255],
        5 => vec![0xff, b'\n', 0x80],
        6 => b" -rf".to_vec(),
        index => vec![b'a' + u8::try_from(index).expect("below 7")],
    }
}

fn xattr(index: usize) -> Vec<u8> {
    format!("user.{}", ["one", "two", "a/b"][index % 3]).into_bytes()
}

type Outcome = Result<u64, ErrorKind>;

fn outcome<T>(result: weft_vfs::Result<T>) -> Outcome {
    result.map(|_| 0).map_err(|error| error.kind())
}

impl Driver {
    fn pick(&self, index: usize, wanted: impl Fn(&Node) -> bool) -> Option<(NodeId, Ino)> {
        let live = self.model.live(wanted);
        let id = *live.get(index % live.len().max(1))?;
        Some((id, self.inos[&id]))
    }

    fn directory(&self, index: usize) -> (NodeId, Ino) {
        self.pick(index, |node| node.kind == Kind::Directory).expect("the root is one")
    }

    fn file(&self, index: usize) -> Option<(NodeId, Ino)> {
        self.pick(index, |node| node.kind == Kind::File)
    }

    /// Does `operation` to both. One that fails because the store did must change nothing.
    pub(super) fn operate(&mut self, operation: &Operation) -> Result<(), String> {
        self.clock.advance(1000);
        let before = self.vfs.progress().0;
        let (met, kept) = (self.store.faults_met(), self.model.clone());
        self.model.now = self.clock.now();
        let parts = self.parts(operation);
        let agreed = self.on_both(operation);
        let now = self.vfs.progress().0;
        if let Some((Err(ErrorKind::Io | ErrorKind::NoSpace), _)) = agreed
            && self.store.faults_met() > met
        {
            self.model = kept;
            return if now == before { Ok(()) } else { Err(format!("{operation:?} failed but counts as done")) };
        }
        if now > before {
            if !parts.is_empty() {
                self.past.extend((before.0 + 1..now.0).map(|between| (OpNo(between), parts.clone())));
            }
            self.past.push((now, vec![self.model.clone()]));
        }
        match agreed {
            Some((ours, theirs)) if ours != theirs => {
                Err(format!("{operation:?} gave {ours:?}, should give {theirs:?}"))
            }
            _ => Ok(()),
        }
    }

    /// Returns the states in which only a part of `operation` is done: a copy is made in steps,
    /// which end where a block of either file does.
    fn parts(&self, operation: &Operation) -> Vec<Model> {
        let Operation::Copy { from, to, len } = operation else { return Vec::new() };
        let (Some((a, _)), Some((b, _))) = (self.file(from.0), self.file(to.0)) else { return Vec::new() };
        let block = BLOCK_BYTES as usize;
        let ends = |start: usize| (block - start % block..*len).step_by(block);
        let copied = |count: usize| {
            let mut model = self.model.clone();
            model.copy((a, from.1), (b, to.1), count).ok().map(|_| model)
        };
        ends(from.1).chain(ends(to.1)).filter_map(copied).collect()
    }

    /// Performs the operation on the volume and the model and returns both outcomes; none if there
    /// is nothing to do it to.
    fn on_both(&mut self, operation: &Operation) -> Option<(Outcome, Outcome)> {
        match operation {
            Operation::Make { .. } | Operation::MakeUnnamed { .. } | Operation::Symlink { .. } => {
                Some(self.make(operation))
            }
            Operation::Link { .. }
            | Operation::Unlink { .. }
            | Operation::RemoveDirectory { .. }
            | Operation::Whiteout { .. }
            | Operation::Rename { .. } => self.on_entries(operation),
            Operation::Hold { node } => {
                let (id, ino) = self.pick(*node, |_| true)?;
                self.vfs.hold(ino);
                self.model.nodes[id].holds += 1;
                None
            }
            Operation::Release { node } => {
                let (id, ino) = self.pick(*node, |node| node.holds > 0)?;
                self.vfs.release(ino, 1);
                self.model.nodes[id].holds -= 1;
                None
            }
            Operation::Chmod { .. } | Operation::Chown { .. } | Operation::SetTimes { .. } => {
                self.on_attributes(operation)
            }
            Operation::Resize { file, size } => {
                let changes = SetAttributes { size: Some(*size as u64), ..SetAttributes::default() };
                Some(self.set_attributes(self.file(*file)?, changes))
            }
            Operation::SetXattr { node, name, value } => {
                let (id, ino) = self.pick(*node, |_| true)?;
                let ours = self.vfs.set_xattr(ino, &xattr(*name), &[*value; 5], SetXattr::Any, false);
                self.model.set_xattr(id, &xattr(*name), &[*value; 5]);
                Some((outcome(ours), Ok(0)))
            }
            Operation::RemoveXattr { node, name } => {
                let (id, ino) = self.pick(*node, |_| true)?;
                let ours = outcome(self.vfs.remove_xattr(ino, &xattr(*name)));
                Some((ours, self.model.remove_xattr(id, &xattr(*name)).map(|()| 0)))
            }
            Operation::Write { .. } | Operation::Read { .. } | Operation::Allocate { .. } | Operation::Copy { .. } => {
                self.on_content(operation)
            }
        }
    }

    fn on_entries(&mut self, operation: &Operation) -> Option<(Outcome, Outcome)> {
        let both =
            |ours: weft_vfs::Result<()>, theirs: Result<(), ErrorKind>| Some((outcome(ours), theirs.map(|()| 0)));
        match operation {
            Operation::Link { node, directory, name: index } => {
                let (id, ino) = self.pick(*node, |_| true)?;
                let (at, parent) = self.directory(*directory);
                let ours = self.vfs.link(CALLER, ino, parent, &name(*index)).map(|_| ());
                both(ours, self.model.link(id, at, &name(*index)))
            }
            Operation::Unlink { directory, name: index } => {
                let (at, parent) = self.directory(*directory);
                both(self.vfs.unlink(parent, &name(*index)), self.model.unlink(at, &name(*index)))
            }
            Operation::RemoveDirectory { directory, name: index } => {
                let (at, parent) = self.directory(*directory);
                let ours = self.vfs.remove_directory(parent, &name(*index));
                both(ours, self.model.remove_directory(at, &name(*index)))
            }
            Operation::Rename { from, to, mode } => {
                let ((a, a_ino), (b, b_ino)) = (self.directory(from.0), self.directory(to.0));
                let (old, new) = (name(from.1), name(to.1));
                let ours = self.vfs.rename((a_ino, &old), (b_ino, &new), *mode);
                both(ours, self.model.rename((a, &old), (b, &new), *mode))
            }
            Operation::Whiteout { from, to, mode } => {
                let ((a, a_ino), (b, b_ino)) = (self.directory(from.0), self.directory(to.0));
                let (old, new) = (name(from.1), name(to.1));
                let ours = self.vfs.rename_leaving_whiteout(CALLER, (a_ino, &old), (b_ino, &new), *mode);
                let theirs = self.model.rename_leaving_whiteout(CALLER, (a, &old), (b, &new), *mode);
                if let (Ok(()), Ok(Some(id))) = (&ours, &theirs) {
                    self.inos.insert(*id, self.vfs.named(a_ino, &old).expect("it was just made"));
                }
                both(ours, theirs.map(|_| ()))
            }
            _ => None,
        }
    }

    fn make(&mut self, operation: &Operation) -> (Outcome, Outcome) {
        let (directory, index, kind, permissions, target) = match operation {
            Operation::Make { directory, name, kind, permissions } => {
                (*directory, Some(*name), *kind, *permissions, Vec::new())
            }
            Operation::Symlink { directory, name, target } => {
                (*directory, Some(*name), Kind::Symlink, 0o777, vec![*target; 9])
            }
            Operation::MakeUnnamed { directory, permissions } => {
                (*directory, None, Kind::File, *permissions, Vec::new())
            }
            _ => unreachable!("only called for these"),
        };
        let (at, parent) = self.directory(directory);
        let name = index.map(name);
        let umask = if kind == Kind::Symlink { 0 } else { UMASK };
        let node = MakeNode { kind, permissions, umask, rdev: 0 };
        let ours = match &name {
            None => self.vfs.make_unnamed(CALLER, parent, node),
            Some(name) if kind == Kind::Symlink => self.vfs.make_symlink(CALLER, parent, name, &target),
            Some(name) => self.vfs.make(CALLER, parent, name, node),
        };
        let theirs = self.model.make(CALLER, at, name.as_deref(), node, &target);
        if let (Ok(made), Ok(id)) = (&ours, &theirs) {
            self.inos.insert(*id, made.ino);
        }
        (outcome(ours), theirs.map(|_| 0))
    }

    fn on_attributes(&mut self, operation: &Operation) -> Option<(Outcome, Outcome)> {
        let at = |time: i64| SetTime::To(Timestamp(time));
        let (node, changes) = match operation {
            Operation::Chmod { node, permissions } => {
                (node, SetAttributes { permissions: Some(*permissions), ..SetAttributes::default() })
            }
            Operation::Chown { node, uid, gid } => {
                (node, SetAttributes { uid: *uid, gid: *gid, ..SetAttributes::default() })
            }
            Operation::SetTimes { node, atime, mtime } => {
                (node, SetAttributes { atime: atime.map(at), mtime: mtime.map(at), ..SetAttributes::default() })
            }
            _ => return None,
        };
        Some(self.set_attributes(self.pick(*node, |_| true)?, changes))
    }

    fn set_attributes(&mut self, (id, ino): (NodeId, Ino), changes: SetAttributes) -> (Outcome, Outcome) {
        let ours = outcome(self.vfs.set_attributes(ino, changes));
        (ours, self.model.set_attributes(id, changes).map(|()| 0))
    }

    fn on_content(&mut self, operation: &Operation) -> Option<(Outcome, Outcome)> {
        match operation {
            Operation::Write { file, offset, len, byte, kill_privileges } => {
                let (id, ino) = self.file(*file)?;
                let data = vec![*byte; *len];
                let ours = outcome(self.vfs.write(ino, *offset as u64, &data, *kill_privileges));
                self.model.write(id, *offset, &data, *kill_privileges);
                Some((ours, Ok(0)))
            }
            Operation::Read { file, offset, len } => {
                let (id, ino) = self.file(*file)?;
                let met = self.store.faults_met();
                let (ours, theirs) = read(&self.vfs, &self.model, (id, ino), *offset, *len);
                let shared = shared(&self.vfs, ino, *offset, *len);
                let expected = expected(&self.model, id, *offset, *len);
                // In place it fails where the store does.
                let is_same = shared.map_or(self.store.faults_met() > met, |shared| shared == expected);
                assert!(is_same, "what is read in place is something else");
                Some((ours, theirs))
            }
            Operation::Allocate { file, offset, len, mode } => {
                let (id, ino) = self.file(*file)?;
                let ours = outcome(self.vfs.allocate(ino, *offset as u64, *len as u64, *mode));
                self.model.allocate(id, *offset, *len, *mode);
                Some((ours, Ok(0)))
            }
            Operation::Copy { from, to, len } => {
                let ((a, a_ino), (b, b_ino)) = (self.file(from.0)?, self.file(to.0)?);
                let met = self.store.faults_met();
                let ours = self.vfs.copy_range((a_ino, from.1 as u64), (b_ino, to.1 as u64), *len as u64);
                // What was copied before the store failed counts.
                let limit = match &ours {
                    Ok(copied) if self.store.faults_met() > met => usize::try_from(*copied).expect("small"),
                    _ => *len,
                };
                let theirs = self.model.copy((a, from.1), (b, to.1), limit).map(|copied| copied as u64);
                Some((ours.map_err(|error| error.kind()), theirs))
            }
            _ => None,
        }
    }
}

/// Returns the bytes that the model reads.
fn expected(model: &Model, id: NodeId, offset: usize, len: usize) -> &[u8] {
    let content = &model.nodes[id].content;
    &content[offset.min(content.len())..(offset + len).min(content.len())]
}

/// Returns the numbers of bytes that both read, if the bytes are the same.
fn read(vfs: &Vfs, model: &Model, (id, ino): (NodeId, Ino), offset: usize, len: usize) -> (Outcome, Outcome) {
    let expected = expected(model, id, offset, len);
    let ours = vfs.read(ino, offset as u64, len).map(|rope| rope.to_vec()).map_err(|error| error.kind());
    let differs = ours.as_ref().is_ok_and(|bytes| bytes != expected);
    // A length that cannot be says that the bytes differ.
    let theirs = if differs { u64::MAX } else { expected.len() as u64 };
    (ours.map(|bytes| bytes.len() as u64), Ok(theirs))
}

/// The same bytes as programs find them that read in place; none where that fails, as reading may
/// where the store does.
fn shared(vfs: &Vfs, ino: Ino, offset: usize, len: usize) -> Option<Vec<u8>> {
    let pool = vfs.shared_pool(ino)?;
    let parts = vfs.read_shared(ino, &pool, offset as u64, len).ok()??;
    let mut bytes = Vec::new();
    for part in parts {
        match part {
            SharedPart::Bytes(slice) => {
                assert!(pool.find(&slice).is_some(), "it lies where its readers look");
                bytes.extend_from_slice(&slice);
            }
            SharedPart::Zeros(len) => bytes.resize(bytes.len() + len, 0),
        }
    }
    Some(bytes)
}
