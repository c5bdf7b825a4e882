//! Requests: a header and arguments, checked against their length.

/// Bytes of `struct fuse_in_header`.
pub(crate) const HEADER_BYTES: usize = 40;

/// Start of every request (`struct fuse_in_header`).
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
    /// Parses the request in `bytes`, as the device gives it; none if they are too short.
    pub(crate) fn parse(bytes: &'a [u8]) -> Option<Request<'a>> {
        let (header, len) = Header::parse(bytes)?;
        Some(Request { header, body: Body { bytes: bytes.get(HEADER_BYTES..len)?, then: None } })
    }

    /// Returns the number of the request at the start of `bytes`, whatever follows.
    pub(crate) fn unique_of(bytes: &[u8]) -> Option<u64> {
        bytes.get(8..16)?.try_into().ok().map(u64::from_ne_bytes)
    }

    /// Parses a request whose header, fixed arguments and the rest lie apart, as in a ring.
    pub(crate) fn of_parts(header: &[u8], fixed: &'a [u8], rest: &'a [u8]) -> Option<Request<'a>> {
        let (header, _) = Header::parse(header)?;
        Some(Request { header, body: Body { bytes: fixed, then: Some(rest) } })
    }
}

impl Header {
    /// Returns the header, the length of the request, and that of its extensions.
    fn fields(body: &mut Body<'_>) -> Result<(Header, usize, usize), CutShort> {
        let len = body.u32()? as usize;
        let opcode = body.u32()?;
        let (unique, nodeid) = (body.u64()?, body.u64()?);
        let (uid, gid, pid) = (body.u32()?, body.u32()?, body.u32()?);
        let extensions = usize::from(body.u16()?) * 8;
        body.u16()?;
        Ok((Header { opcode, unique, nodeid, uid, gid, pid }, len, extensions))
    }

    /// Parses the header. Also returns the length of the request without extensions (which lie at
    /// its end; none is asked for).
    fn parse(bytes: &[u8]) -> Option<(Header, usize)> {
        let (header, len, extensions) = Header::fields(&mut Body { bytes, then: None }).ok()?;
        Some((header, len.checked_sub(extensions)?))
    }
}

/// Error: the arguments end before all that a request needs. The kernel sends no such request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct CutShort;

/// Arguments not yet taken: first those of fixed length, then names and data.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Body<'a> {
    bytes: &'a [u8],
    /// Names and data, if they do not follow the fixed arguments.
    then: Option<&'a [u8]>,
}

impl<'a> Body<'a> {
    /// Bytes that are arguments of their own.
    pub(crate) fn new(bytes: &'a [u8]) -> Body<'a> {
        Body { bytes, then: None }
    }

    /// Number of bytes that are left, of arguments and of data.
    pub(crate) fn len(&self) -> usize {
        self.bytes.len() + self.then.map_or(0, <[u8]>::len)
    }

    fn array<const N: usize>(&mut self) -> Result<[u8; N], CutShort> {
        let (taken, rest) = self.bytes.split_first_chunk::<N>().ok_or(CutShort)?;
        self.bytes = rest;
        Ok(*taken)
    }

    pub(crate) fn u16(&mut self) -> Result<u16, CutShort> {
        self.array().map(u16::from_ne_bytes)
    }

    pub(crate) fn u32(&mut self) -> Result<u32, CutShort> {
        self.array().map(u32::from_ne_bytes)
    }

    pub(crate) fn u64(&mut self) -> Result<u64, CutShort> {
        self.array().map(u64::from_ne_bytes)
    }

    /// Passes over `bytes` bytes of fixed arguments.
    pub(crate) fn skip(&mut self, bytes: usize) -> Result<(), CutShort> {
        self.bytes = self.bytes.get(bytes..).ok_or(CutShort)?;
        Ok(())
    }

    /// The next bytes up to a NUL.
    pub(crate) fn string(&mut self) -> Result<&'a [u8], CutShort> {
        self.go_on();
        let end = self.bytes.iter().position(|byte| *byte == 0).ok_or(CutShort)?;
        let string = &self.bytes[..end];
        self.bytes = &self.bytes[end + 1..];
        Ok(string)
    }

    /// The next `len` bytes.
    pub(crate) fn bytes(&mut self, len: usize) -> Result<&'a [u8], CutShort> {
        self.go_on();
        let (taken, rest) = self.bytes.split_at_checked(len).ok_or(CutShort)?;
        self.bytes = rest;
        Ok(taken)
    }

    fn go_on(&mut self) {
        if let Some(rest) = self.then.take() {
            self.bytes = rest;
        }
    }
}
