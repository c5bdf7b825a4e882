//! Arguments of requests: a struct for each kind, named after the one in `linux/fuse.h`, with the
//! members that are used. None is believed here: numbers and names are as the request has them.

use super::request::{Body, CutShort};

/// LOOKUP, UNLINK, RMDIR: a name in the request's directory. REMOVEXATTR: that of an attribute.
pub(crate) struct Named<'a> {
    pub(crate) name: &'a [u8],
}

impl<'a> Named<'a> {
    pub(crate) fn parse(mut body: Body<'a>) -> Result<Named<'a>, CutShort> {
        Ok(Named { name: body.string()? })
    }
}

/// FORGET.
pub(crate) struct Forget {
    /// Look-ups that the kernel forgets.
    pub(crate) count: u64,
}

impl Forget {
    pub(crate) fn parse(mut body: Body<'_>) -> Result<Forget, CutShort> {
        Ok(Forget { count: body.u64()? })
    }

    /// The inodes of a BATCH_FORGET, each with the look-ups that the kernel forgets. Ends at what
    /// is cut short.
    pub(crate) fn parse_batch(mut body: Body<'_>) -> Result<impl Iterator<Item = (u64, Forget)>, CutShort> {
        let count = body.u32()?;
        body.skip(4)?;
        let next = move || Ok::<_, CutShort>((body.u64()?, Forget { count: body.u64()? }));
        Ok(std::iter::repeat_with(next).take(count as usize).map_while(Result::ok))
    }
}

/// GETATTR.
pub(crate) struct Getattr {
    pub(crate) flags: u32,
}

impl Getattr {
    pub(crate) fn parse(mut body: Body<'_>) -> Result<Getattr, CutShort> {
        Ok(Getattr { flags: body.u32()? })
    }
}

/// SETATTR.
pub(crate) struct Setattr {
    /// The members that are set.
    pub(crate) valid: u32,
    pub(crate) size: u64,
    /// Seconds and nanoseconds.
    pub(crate) atime: (u64, u32),
    pub(crate) mtime: (u64, u32),
    pub(crate) mode: u32,
    pub(crate) uid: u32,
    pub(crate) gid: u32,
}

impl Setattr {
    pub(crate) fn parse(mut body: Body<'_>) -> Result<Setattr, CutShort> {
        let valid = body.u32()?;
        body.skip(12)?;
        let size = body.u64()?;
        body.skip(8)?;
        let (atime, mtime, _ctime) = (body.u64()?, body.u64()?, body.u64()?);
        let (atime_nanos, mtime_nanos, _) = (body.u32()?, body.u32()?, body.u32()?);
        let mode = body.u32()?;
        body.skip(4)?;
        let (uid, gid) = (body.u32()?, body.u32()?);
        Ok(Setattr { valid, size, atime: (atime, atime_nanos), mtime: (mtime, mtime_nanos), mode, uid, gid })
    }
}

/// MKNOD.
pub(crate) struct Mknod<'a> {
    pub(crate) mode: u32,
    pub(crate) rdev: u32,
    pub(crate) umask: u32,
    pub(crate) name: &'a [u8],
}

impl<'a> Mknod<'a> {
    pub(crate) fn parse(mut body: Body<'a>) -> Result<Mknod<'a>, CutShort> {
        let (mode, rdev, umask) = (body.u32()?, body.u32()?, body.u32()?);
        body.skip(4)?;
        Ok(Mknod { mode, rdev, umask, name: body.string()? })
    }
}

/// MKDIR.
pub(crate) struct Mkdir<'a> {
    pub(crate) mode: u32,
    pub(crate) umask: u32,
    pub(crate) name: &'a [u8],
}

impl<'a> Mkdir<'a> {
    pub(crate) fn parse(mut body: Body<'a>) -> Result<Mkdir<'a>, CutShort> {
        Ok(Mkdir { mode: body.u32()?, umask: body.u32()?, name: body.string()? })
    }
}

/// TMPFILE: the arguments of CREATE, without the name.
pub(crate) struct Tmpfile {
    pub(crate) mode: u32,
    pub(crate) umask: u32,
}

impl Tmpfile {
    pub(crate) fn parse(mut body: Body<'_>) -> Result<Tmpfile, CutShort> {
        let (_flags, mode, umask) = (body.u32()?, body.u32()?, body.u32()?);
        Ok(Tmpfile { mode, umask })
    }
}

/// SYMLINK.
pub(crate) struct Symlink<'a> {
    pub(crate) name: &'a [u8],
    pub(crate) target: &'a [u8],
}

impl<'a> Symlink<'a> {
    pub(crate) fn parse(mut body: Body<'a>) -> Result<Symlink<'a>, CutShort> {
        Ok(Symlink { name: body.string()?, target: body.string()? })
    }
}

/// LINK.
pub(crate) struct Link<'a> {
    /// The inode that gets one more name.
    pub(crate) node: u64,
    pub(crate) name: &'a [u8],
}

impl<'a> Link<'a> {
    pub(crate) fn parse(mut body: Body<'a>) -> Result<Link<'a>, CutShort> {
        Ok(Link { node: body.u64()?, name: body.string()? })
    }
}

/// RENAME and RENAME2.
pub(crate) struct Rename<'a> {
    /// The directory of the new name.
    pub(crate) to: u64,
    pub(crate) flags: u32,
    pub(crate) old: &'a [u8],
    pub(crate) new: &'a [u8],
}

impl<'a> Rename<'a> {
    /// The arguments of RENAME.
    pub(crate) fn parse(mut body: Body<'a>) -> Result<Rename<'a>, CutShort> {
        Ok(Rename { to: body.u64()?, flags: 0, old: body.string()?, new: body.string()? })
    }

    /// The arguments of RENAME2.
    pub(crate) fn parse_with_flags(mut body: Body<'a>) -> Result<Rename<'a>, CutShort> {
        let (to, flags) = (body.u64()?, body.u32()?);
        body.skip(4)?;
        Ok(Rename { to, flags, old: body.string()?, new: body.string()? })
    }
}

/// READ, READDIR and READDIRPLUS.
pub(crate) struct Read {
    pub(crate) handle: u64,
    pub(crate) offset: u64,
    pub(crate) size: u32,
    pub(crate) flags: u32,
}

impl Read {
    pub(crate) fn parse(mut body: Body<'_>) -> Result<Read, CutShort> {
        Ok(Read { handle: body.u64()?, offset: body.u64()?, size: body.u32()?, flags: body.u32()? })
    }
}

/// WRITE.
pub(crate) struct Write<'a> {
    pub(crate) handle: u64,
    pub(crate) offset: u64,
    pub(crate) flags: u32,
    /// The flags of open(2) by which the file is open.
    pub(crate) open_flags: u32,
    pub(crate) data: &'a [u8],
}

impl<'a> Write<'a> {
    pub(crate) fn parse(mut body: Body<'a>) -> Result<Write<'a>, CutShort> {
        let (handle, offset, size, flags) = (body.u64()?, body.u64()?, body.u32()?, body.u32()?);
        body.skip(8)?;
        let open_flags = body.u32()?;
        body.skip(4)?;
        Ok(Write { handle, offset, flags, open_flags, data: body.bytes(size as usize)? })
    }
}

/// FALLOCATE.
pub(crate) struct Fallocate {
    pub(crate) handle: u64,
    pub(crate) offset: u64,
    pub(crate) length: u64,
    pub(crate) mode: u32,
}

impl Fallocate {
    pub(crate) fn parse(mut body: Body<'_>) -> Result<Fallocate, CutShort> {
        Ok(Fallocate { handle: body.u64()?, offset: body.u64()?, length: body.u64()?, mode: body.u32()? })
    }
}

/// LSEEK.
pub(crate) struct Lseek {
    pub(crate) offset: u64,
    pub(crate) whence: u32,
}

impl Lseek {
    pub(crate) fn parse(mut body: Body<'_>) -> Result<Lseek, CutShort> {
        body.skip(8)?;
        Ok(Lseek { offset: body.u64()?, whence: body.u32()? })
    }
}

/// COPY_FILE_RANGE.
pub(crate) struct CopyFileRange {
    pub(crate) handle: u64,
    pub(crate) offset: u64,
    /// The inode that is written to, its handle, and the place there.
    pub(crate) node_out: u64,
    pub(crate) handle_out: u64,
    pub(crate) offset_out: u64,
    pub(crate) len: u64,
}

impl CopyFileRange {
    pub(crate) fn parse(mut body: Body<'_>) -> Result<CopyFileRange, CutShort> {
        Ok(CopyFileRange {
            handle: body.u64()?,
            offset: body.u64()?,
            node_out: body.u64()?,
            handle_out: body.u64()?,
            offset_out: body.u64()?,
            len: body.u64()?,
        })
    }
}

/// SETXATTR.
pub(crate) struct Setxattr<'a> {
    /// The flags of setxattr(2).
    pub(crate) flags: u32,
    pub(crate) setxattr_flags: u32,
    pub(crate) name: &'a [u8],
    pub(crate) value: &'a [u8],
}

impl<'a> Setxattr<'a> {
    pub(crate) fn parse(mut body: Body<'a>) -> Result<Setxattr<'a>, CutShort> {
        let (size, flags, setxattr_flags) = (body.u32()?, body.u32()?, body.u32()?);
        body.skip(4)?;
        Ok(Setxattr { flags, setxattr_flags, name: body.string()?, value: body.bytes(size as usize)? })
    }
}

/// GETXATTR.
pub(crate) struct Getxattr<'a> {
    /// Bytes that the program takes; 0 asks for the length.
    pub(crate) size: u32,
    pub(crate) name: &'a [u8],
}

impl<'a> Getxattr<'a> {
    pub(crate) fn parse(mut body: Body<'a>) -> Result<Getxattr<'a>, CutShort> {
        let size = body.u32()?;
        body.skip(4)?;
        Ok(Getxattr { size, name: body.string()? })
    }
}

/// LISTXATTR.
pub(crate) struct Listxattr {
    /// Bytes that the program takes; 0 asks for the length.
    pub(crate) size: u32,
}

impl Listxattr {
    pub(crate) fn parse(mut body: Body<'_>) -> Result<Listxattr, CutShort> {
        Ok(Listxattr { size: body.u32()? })
    }
}

/// OPEN.
pub(crate) struct Open {
    /// The flags of open(2).
    pub(crate) flags: u32,
}

impl Open {
    pub(crate) fn parse(mut body: Body<'_>) -> Result<Open, CutShort> {
        Ok(Open { flags: body.u32()? })
    }
}

/// FLUSH.
pub(crate) struct Flush {
    pub(crate) handle: u64,
    pub(crate) lock_owner: u64,
}

impl Flush {
    pub(crate) fn parse(mut body: Body<'_>) -> Result<Flush, CutShort> {
        let handle = body.u64()?;
        body.skip(8)?;
        Ok(Flush { handle, lock_owner: body.u64()? })
    }
}

/// RELEASE.
pub(crate) struct Release {
    pub(crate) handle: u64,
    pub(crate) release_flags: u32,
    pub(crate) lock_owner: u64,
}

impl Release {
    pub(crate) fn parse(mut body: Body<'_>) -> Result<Release, CutShort> {
        let handle = body.u64()?;
        body.skip(4)?;
        Ok(Release { handle, release_flags: body.u32()?, lock_owner: body.u64()? })
    }
}

/// FSYNC.
pub(crate) struct Fsync {
    pub(crate) handle: u64,
}

impl Fsync {
    pub(crate) fn parse(mut body: Body<'_>) -> Result<Fsync, CutShort> {
        Ok(Fsync { handle: body.u64()? })
    }
}

/// GETLK, SETLK and SETLKW.
pub(crate) struct Lock {
    pub(crate) owner: u64,
    /// The first and the last byte.
    pub(crate) start: u64,
    pub(crate) end: u64,
    /// The kind, as fcntl(2) has it.
    pub(crate) kind: u32,
    pub(crate) pid: u32,
    pub(crate) flags: u32,
}

impl Lock {
    pub(crate) fn parse(mut body: Body<'_>) -> Result<Lock, CutShort> {
        body.skip(8)?;
        let (owner, start, end) = (body.u64()?, body.u64()?, body.u64()?);
        Ok(Lock { owner, start, end, kind: body.u32()?, pid: body.u32()?, flags: body.u32()? })
    }
}

/// INTERRUPT.
pub(crate) struct Interrupt {
    /// The request whose program was sent a signal.
    pub(crate) unique: u64,
}

impl Interrupt {
    pub(crate) fn parse(mut body: Body<'_>) -> Result<Interrupt, CutShort> {
        Ok(Interrupt { unique: body.u64()? })
    }
}

/// IOCTL.
pub(crate) struct Ioctl<'a> {
    pub(crate) handle: u64,
    pub(crate) command: u32,
    body: Body<'a>,
    len: u32,
}

impl<'a> Ioctl<'a> {
    pub(crate) fn parse(mut body: Body<'a>) -> Result<Ioctl<'a>, CutShort> {
        let handle = body.u64()?;
        body.skip(4)?;
        let command = body.u32()?;
        body.skip(8)?;
        let len = body.u32()?;
        body.skip(4)?;
        Ok(Ioctl { handle, command, body, len })
    }

    /// Returns the bytes that the program gives.
    pub(crate) fn argument(mut self) -> Result<Body<'a>, CutShort> {
        Ok(Body::new(self.body.bytes(self.len as usize)?))
    }
}
