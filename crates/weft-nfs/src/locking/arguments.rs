//! Arguments of NLM's calls (X/Open XNFS 14; RFC 1813 Appendix II).

use crate::outcome::{Failure, GARBAGE};
use crate::request::Request;
use crate::xdr::Writer;
use weft_vfs::FileId;
use weft_vfs::locks::LockRange;

/// Longest name of a host (`LM_MAXSTRLEN`), and cookie or owner (`MAXNETOBJ_SZ`).
pub(super) const NAME_BYTES_MAX: usize = 1024;
pub(super) const OBJECT_BYTES_MAX: usize = 1024;

/// `nlm4_lock`.
pub(super) struct Lock<'a> {
    /// Name that the client gives itself.
    pub(super) caller: &'a [u8],
    handle: &'a [u8],
    pub(super) file: FileId,
    owner: &'a [u8],
    process: u32,
    offset: u64,
    len: u64,
}

/// Reads the cookie that matches a reply to its call.
pub(super) fn cookie<'a>(request: &mut Request<'a>) -> Result<&'a [u8], Failure> {
    request.arguments.opaque(OBJECT_BYTES_MAX).ok_or(GARBAGE)
}

/// Reads a name of a host.
pub(super) fn name<'a>(request: &mut Request<'a>) -> Result<&'a [u8], Failure> {
    request.arguments.opaque(NAME_BYTES_MAX).ok_or(GARBAGE)
}

/// Reads the identity of an owner on its host.
pub(super) fn owner<'a>(request: &mut Request<'a>) -> Result<&'a [u8], Failure> {
    request.arguments.opaque(OBJECT_BYTES_MAX).ok_or(GARBAGE)
}

pub(super) fn bool(request: &mut Request<'_>) -> Result<bool, Failure> {
    request.arguments.bool().ok_or(GARBAGE)
}

pub(super) fn u32(request: &mut Request<'_>) -> Result<u32, Failure> {
    request.arguments.u32().ok_or(GARBAGE)
}

impl<'a> Lock<'a> {
    pub(super) fn read(request: &mut Request<'a>) -> Result<Lock<'a>, Failure> {
        let caller = name(request)?;
        let (file, handle) = request.file_and_handle()?;
        let owner = owner(request)?;
        let arguments = &mut request.arguments;
        let (process, offset) = (arguments.u32().ok_or(GARBAGE)?, arguments.u64().ok_or(GARBAGE)?);
        let len = arguments.u64().ok_or(GARBAGE)?;
        Ok(Lock { caller, handle, file, owner, process, offset, len })
    }

    /// Writes the lock as it was read.
    pub(super) fn write(&self, writer: &mut Writer) {
        writer.opaque(self.caller);
        writer.opaque(self.handle);
        writer.opaque(self.owner);
        writer.u32(self.process);
        writer.u64(self.offset);
        writer.u64(self.len);
    }

    /// Returns the identity of its owner on its host.
    pub(super) fn owner(&self) -> Vec<u8> {
        [&self.process.to_be_bytes()[..], self.owner].concat()
    }

    /// Returns the range of bytes; none if they lie past 2^63-1.
    pub(super) fn range(&self) -> Option<LockRange> {
        LockRange::of_length(self.offset, self.len)
    }
}
