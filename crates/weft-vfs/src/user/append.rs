//! Writes of a user at the end of a file, wherever that is by then.

use super::{Changed, User};
use crate::observe::Change;
use crate::refusal::Refusal;
use weft_store::Kind;
use weft_tree::{Access, Data, FileId, Result, Rights, Writer};

impl User<'_> {
    /// Writes all of `data` at the end of a file in one step (POSIX write() with `O_APPEND`);
    /// returns the offset at which it lies. As [`User::write`].
    pub fn append(&self, file: FileId, data: &[u8]) -> Result<Changed<u64>> {
        let _asking = self.asks();
        let time = self.vfs.now();
        let mut writer = Writer::Stranger;
        let mut end = self.attributes(file)?.size;
        let changed = loop {
            self.have_written_back(file, &(end..end.saturating_add(data.len() as u64)));
            let shared = Data::shared_copy(end, data, self.vfs.block_size);
            let changed = self.change(file, |state, ino| {
                let is_link = state.tree.inode(ino)?.row.kind == Kind::Transformation;
                let size = if is_link { end } else { state.tree.file(ino)?.row.size };
                state.permit_opened(self.who, ino, Access::WRITE)?;
                if size != end {
                    return Ok(Err(size));
                }
                writer = state.writer(self.who, ino)?;
                state.write(ino, end, Data::of(shared.as_ref(), data), writer, time).map(|_| Ok(end))
            });
            match changed {
                Ok(Changed { value: Ok(offset), before, after }) => break Changed { value: offset, before, after },
                // Somebody else has moved it.
                Ok(Changed { value: Err(size), .. }) => end = size,
                Err(Refusal::Opaque) => {
                    self.vfs.opaque.permit_unopened(self.vfs, file.ino)?;
                    let write = || self.vfs.write_at_end(file.ino, end, data, writer).map(|_| ());
                    let Changed { before, after, .. } = self.through(file, write)?;
                    break Changed { value: end, before, after };
                }
                Err(refusal) => return Err(refusal.into()),
            }
        };
        self.vfs.announce([Change::Content { ino: file.ino, range: end..end.saturating_add(data.len() as u64) }]);
        Ok(changed)
    }
}
