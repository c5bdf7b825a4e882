//! Requests: a header and arguments, checked against their length.

/// Bytes of `struct fuse_in_header`.
pub(crate) const HEADER_BYTES: usize = 40;

/// What every request starts with (`struct fuse_in_header`).
#[derive(Clone, Copy, Debug)]
pub(crate) struct Header {
    pub(crate) opcode: u32,
    pub(crate) unique: u64,
    pub(crate) nodeid: u64,
    pub(crate) uid: u32,
    pub(crate) gid: u32,
    pub(crate) pid: u32,
}

/// One request.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Request<'a> {
    pub(crate) header: Header,
    pub(crate) body: Body<'a>,
}

impl<'a> Request<'a> {
    /// The request that `bytes` hold, as the kernel wrote them; none if they are too short.
    pub(crate) fn parse(bytes: &'a [u8]) -> Option<Request<'a>> {
        let mut body = Body(bytes);
        let len = body.u32()? as usize;
        let opcode = body.u32()?;
        let (unique, nodeid) = (body.u64()?, body.u64()?);
        let (uid, gid, pid) = (body.u32()?, body.u32()?, body.u32()?);
        let extensions = usize::from(body.u16()?) * 8;
        body.u16()?;
        // Extensions, if any, lie behind the arguments; none is asked for.
        let body = Body(bytes.get(HEADER_BYTES..len.checked_sub(extensions)?)?);
        Some(Request { header: Header { opcode, unique, nodeid, uid, gid, pid }, body })
    }
}

/// Arguments not yet taken.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Body<'a>(pub(crate) &'a [u8]);

impl<'a> Body<'a> {
    fn array<const N: usize>(&mut self) -> Option<[u8; N]> {
        let (taken, rest) = self.0.split_first_chunk::<N>()?;
        self.0 = rest;
        Some(*taken)
    }

    pub(crate) fn u16(&mut self) -> Option<u16> {
        self.array().map(u16::from_ne_bytes)
    }

    pub(crate) fn u32(&mut self) -> Option<u32> {
        self.array().map(u32::from_ne_bytes)
    }

    pub(crate) fn u64(&mut self) -> Option<u64> {
        self.array().map(u64::from_ne_bytes)
    }

    /// Passes over `bytes` bytes.
    pub(crate) fn skip(&mut self, bytes: usize) -> Option<()> {
        self.0 = self.0.get(bytes..)?;
        Some(())
    }

    /// The next bytes up to a NUL.
    pub(crate) fn string(&mut self) -> Option<&'a [u8]> {
        let end = self.0.iter().position(|byte| *byte == 0)?;
        let string = &self.0[..end];
        self.0 = &self.0[end + 1..];
        Some(string)
    }

    /// The next `len` bytes.
    pub(crate) fn bytes(&mut self, len: usize) -> Option<&'a [u8]> {
        let (taken, rest) = self.0.split_at_checked(len)?;
        self.0 = rest;
        Some(taken)
    }
}
