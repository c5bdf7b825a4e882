//! Requests about the content of files.

use super::opens::Opened;
use super::{Failure, Outcome, Server};
use crate::protocol::arguments::{CopyFileRange, Fallocate, Lseek, Read, Write};
use crate::protocol::flags::{READ_LOCKOWNER, WRITE_CACHE, WRITE_KILL_SUIDGID, WRITE_LOCKOWNER};
use crate::protocol::{Body, DATA_BYTES_MAX, Header, Opcode, Reply};
use std::ops::Range;
use weft_links::WithLinks;
use weft_vfs::{AllocateMode, Error, ErrorKind, Ino, Privileges, Whence};

/// Does `work` with `seen`, the file that a program sees as `ino`; if that was popped meanwhile,
/// with the file it sees now.
fn unless_popped<T>(
    (ino, seen): (Ino, Ino),
    now: impl FnOnce() -> Ino,
    work: impl Fn(Ino) -> weft_vfs::Result<T>,
) -> weft_vfs::Result<T> {
    match work(seen) {
        Err(error) if error.kind() == ErrorKind::Stale && seen != ino => work(now()),
        done => done,
    }
}

impl Server {
    pub(super) fn read(&self, header: &Header, ino: Ino, body: Body<'_>, reply: &mut Reply) -> Outcome {
        let Read { handle, offset, size, flags } = Read::parse(body)?;
        let (opened, size) = (Opened(handle), (size as usize).min(DATA_BYTES_MAX));
        let _asking = self.reader(header, opened, flags).asks();
        // The page cache takes bytes that are missing in a reply as missing in the file.
        let seen = self.seen(ino, opened, flags & READ_LOCKOWNER != 0);
        if opened.is_draft()
            && opened.is_direct()
            && let Some(data) = self.vfs.links()?.read_draft(seen, offset, size)?
        {
            reply.set_data(data);
            return Ok(());
        }
        let again = || self.seen(ino, opened, flags & READ_LOCKOWNER != 0);
        let read = unless_popped((ino, seen), again, |seen| match opened.is_open() {
            true => self.vfs.links()?.read_some(seen, offset, size),
            false => self.vfs.read(seen, offset, size),
        });
        reply.set_data(read?);
        Ok(())
    }

    pub(super) fn write(&self, header: &Header, ino: Ino, body: Body<'_>, reply: &mut Reply) -> Outcome {
        let Write { handle, offset, flags, open_flags, data } = Write::parse(body)?;
        let (opened, appends) = (Opened(handle), open_flags.cast_signed() & libc::O_APPEND != 0);
        let _asking = self.write_asker(header, opened, flags).asks();
        let seen = self.seen(ino, opened, flags & WRITE_LOCKOWNER != 0);
        let offset = self.place(seen, opened, offset, appends)?;
        let writer = self.writer(header, seen, flags & WRITE_KILL_SUIDGID != 0);
        let again = || self.seen(ino, opened, flags & WRITE_LOCKOWNER != 0);
        let asks_for_end = appends && !opened.is_draft() && self.is_sent_in_order(flags, open_flags);
        let written = unless_popped((ino, seen), again, |seen| match asks_for_end {
            true => self.vfs.write_at_end(seen, offset, data, writer),
            false => self.vfs.write(seen, offset, data, writer).map(|privileges| (privileges, offset)),
        });
        if let Some((_, began)) = written.as_ref().ok().filter(|(_, began)| *began != offset) {
            // The kernel has cached it elsewhere.
            self.links.forget_content(ino, (*began).min(offset)..u64::MAX);
        }
        if flags & WRITE_CACHE != 0 {
            self.passed_on(ino, offset..offset.saturating_add(data.len() as u64), written.as_ref().err());
        }
        if written?.0 == Privileges::Dropped {
            self.attributes_changed(ino);
        }
        reply.u32(u32::try_from(data.len()).expect("its length is one of 32 bits"));
        reply.u32(0);
        Ok(())
    }

    /// True if the kernel sends parts of one write one after the other, as it got them from a
    /// program: so the first byte of one that appends belongs at the end of the file. The kernel
    /// takes the end to be where it saw it last, and asks nobody, though an NFS client or a
    /// restoration may have moved it.
    fn is_sent_in_order(&self, flags: u32, open_flags: u32) -> bool {
        let is_direct = open_flags.cast_signed() & libc::O_DIRECT != 0;
        !is_direct && flags & WRITE_CACHE == 0 && !self.options.writeback
    }

    /// Notes that the kernel has written back its cached `range` of `ino`, or that this failed.
    /// After a failure the kernel drops its pages: until then, reads would return data that is not
    /// stored.
    fn passed_on(&self, ino: Ino, range: Range<u64>, error: Option<&Error>) {
        match error {
            None => self.vfs.writeback_done(ino, range),
            Some(error) if error.kind() == ErrorKind::WouldBlock => {}
            Some(error) => {
                self.vfs.writeback_failed(ino, range.clone(), error);
                self.links.forget_content(ino, range);
            }
        }
    }

    pub(super) fn fallocate(&self, header: &Header, ino: Ino, body: Body<'_>) -> Outcome {
        let Fallocate { handle, offset, length, mode } = Fallocate::parse(body)?;
        let keep = libc::FALLOC_FL_KEEP_SIZE;
        let mode = match mode.cast_signed() {
            0 => AllocateMode::Extend,
            f if f == keep => AllocateMode::KeepSize,
            f if f == libc::FALLOC_FL_PUNCH_HOLE | keep => AllocateMode::PunchHole,
            f if f == libc::FALLOC_FL_ZERO_RANGE => AllocateMode::ZeroRange,
            f if f == libc::FALLOC_FL_ZERO_RANGE | keep => AllocateMode::ZeroRangeKeepSize,
            _ => return Err(Failure::Errno(libc::EOPNOTSUPP)),
        };
        if self.seen(ino, Opened(handle), true) != ino {
            return Err(Failure::Errno(libc::EOPNOTSUPP));
        }
        // It may have taken set-user-id away; such calls are rare enough to always say so.
        let writer = self.writer(header, ino, header.uid != 0);
        self.vfs.allocate_as(writer, ino, (offset, length), mode)?;
        self.attributes_changed(ino);
        Ok(())
    }

    pub(super) fn lseek(&self, ino: Ino, body: Body<'_>, reply: &mut Reply) -> Outcome {
        if self.options.writeback {
            // The kernel may cache data for a hole, and does not write it back before it asks. With
            // this error it answers itself: no holes.
            return Err(Failure::Errno(libc::ENOSYS));
        }
        let Lseek { offset, whence } = Lseek::parse(body)?;
        let whence = match whence.cast_signed() {
            libc::SEEK_DATA => Whence::Data,
            libc::SEEK_HOLE => Whence::Hole,
            _ => return Err(Failure::Errno(libc::EINVAL)),
        };
        let seen = self.vfs.seen(ino, None);
        reply.u64(self.vfs.seek(seen, offset, whence)?);
        Ok(())
    }

    pub(super) fn copy_file_range(
        &self,
        opcode: Opcode,
        header: &Header,
        body: Body<'_>,
        reply: &mut Reply,
    ) -> Outcome {
        let ino = Ino(header.nodeid);
        let asked = CopyFileRange::parse(body)?;
        let (opened, opened_to) = (Opened(asked.handle), Opened(asked.handle_out));
        let from = (ino, asked.offset);
        let to = (self.node(asked.node_out).map_or(Ino(0), |node| node.ino), asked.offset_out);
        let len = asked.len;
        // The older reply holds 32 bits.
        let len = if opcode == Opcode::CopyFileRange { len.min(1 << 30) } else { len };
        let is_as_stored = self.seen(ino, opened, true) == ino && self.seen(to.0, opened_to, true) == to.0;
        let copied = if is_as_stored {
            let writer = self.writer(header, to.0, header.uid != 0);
            self.vfs.copy_range_as(writer, from, to, len)
        } else {
            Err(ErrorKind::NotSupported.into())
        };
        let copied = match copied {
            // The kernel would copy from its page cache, which has no pages of files that are not
            // for all.
            Err(error) if error.kind() == ErrorKind::NotSupported && opened.has_opener() => {
                self.copy_by_hand(header, (from, opened), (to, opened_to), len)
            }
            // It copies what is seen, by reading and writing.
            copied => copied,
        };
        let copied = copied?;
        self.attributes_changed(to.0);
        reply.u64(copied);
        Ok(())
    }

    /// Copies up to `len` bytes, as the program sees them, from `from` to `to`; at most what one
    /// read returns.
    fn copy_by_hand(
        &self,
        header: &Header,
        ((from, at), opened): ((Ino, u64), Opened),
        ((to, start), opened_to): ((Ino, u64), Opened),
        len: u64,
    ) -> weft_vfs::Result<u64> {
        let len = usize::try_from(len).unwrap_or(usize::MAX).min(DATA_BYTES_MAX);
        let data = {
            let _asking = self.reader(header, opened, READ_LOCKOWNER).asks();
            self.vfs.links()?.read_some(self.seen(from, opened, true), at, len)?
        };
        let _asking = self.write_asker(header, opened_to, 0).asks();
        let seen = self.seen(to, opened_to, true);
        self.vfs.write(seen, start, &data.contiguous(), self.writer(header, seen, header.uid != 0))?;
        Ok(data.len() as u64)
    }
}
