//! Errors as statuses of NFS (RFC 1813 2.6).

#![deny(clippy::wildcard_enum_match_arm)]

use weft_vfs::ErrorKind;

/// `nfsstat3`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub(crate) enum Status {
    Ok = 0,
    Perm = 1,
    NoEnt = 2,
    Io = 5,
    NxIo = 6,
    Acces = 13,
    Exist = 17,
    XDev = 18,
    NotDir = 20,
    IsDir = 21,
    Inval = 22,
    FBig = 27,
    NoSpc = 28,
    RoFs = 30,
    MLink = 31,
    NameTooLong = 63,
    NotEmpty = 66,
    DQuot = 69,
    Stale = 70,
    BadHandle = 10001,
    NotSync = 10002,
    NotSupp = 10004,
    TooSmall = 10005,
    BadType = 10007,
    Jukebox = 10008,
}

impl From<ErrorKind> for Status {
    fn from(kind: ErrorKind) -> Status {
        match kind {
            ErrorKind::NotFound => Status::NoEnt,
            ErrorKind::Exists => Status::Exist,
            ErrorKind::NotDirectory => Status::NotDir,
            ErrorKind::IsDirectory => Status::IsDir,
            ErrorKind::NotEmpty => Status::NotEmpty,
            ErrorKind::Invalid => Status::Inval,
            ErrorKind::NotPermitted => Status::Perm,
            ErrorKind::AccessDenied => Status::Acces,
            ErrorKind::NameTooLong => Status::NameTooLong,
            ErrorKind::TooBig => Status::FBig,
            ErrorKind::TooManyLinks => Status::MLink,
            ErrorKind::NoAttribute | ErrorKind::Range | ErrorKind::AttributeTooBig => Status::Inval,
            ErrorKind::NoData => Status::NxIo,
            ErrorKind::NotSupported => Status::NotSupp,
            ErrorKind::NoSpace => Status::NoSpc,
            ErrorKind::QuotaExceeded => Status::DQuot,
            ErrorKind::ReadOnly => Status::RoFs,
            ErrorKind::Io | ErrorKind::Corrupt | ErrorKind::Loop | ErrorKind::TimedOut => Status::Io,
            ErrorKind::CrossDevice => Status::XDev,
            ErrorKind::NotSynchronized => Status::NotSync,
            ErrorKind::Stale => Status::Stale,
            // A later call will not have to wait.
            ErrorKind::WouldBlock | ErrorKind::Interrupted | ErrorKind::Busy | ErrorKind::NoMemory => Status::Jukebox,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_kind_of_error_has_one_errno_and_one_status() {
        let table = [
            (ErrorKind::NotFound, libc::ENOENT, 2),
            (ErrorKind::Exists, libc::EEXIST, 17),
            (ErrorKind::NotDirectory, libc::ENOTDIR, 20),
            (ErrorKind::IsDirectory, libc::EISDIR, 21),
            (ErrorKind::NotEmpty, libc::ENOTEMPTY, 66),
            (ErrorKind::Invalid, libc::EINVAL, 22),
            (ErrorKind::NotPermitted, libc::EPERM, 1),
            (ErrorKind::AccessDenied, libc::EACCES, 13),
            (ErrorKind::NameTooLong, libc::ENAMETOOLONG, 63),
            (ErrorKind::TooBig, libc::EFBIG, 27),
            (ErrorKind::TooManyLinks, libc::EMLINK, 31),
            (ErrorKind::NoAttribute, libc::ENODATA, 22),
            (ErrorKind::Range, libc::ERANGE, 22),
            (ErrorKind::AttributeTooBig, libc::E2BIG, 22),
            (ErrorKind::NoData, libc::ENXIO, 6),
            (ErrorKind::NotSupported, libc::EOPNOTSUPP, 10004),
            (ErrorKind::NoSpace, libc::ENOSPC, 28),
            (ErrorKind::QuotaExceeded, libc::EDQUOT, 69),
            (ErrorKind::NoMemory, libc::ENOMEM, 10008),
            (ErrorKind::ReadOnly, libc::EROFS, 30),
            (ErrorKind::Io, libc::EIO, 5),
            (ErrorKind::Corrupt, libc::EIO, 5),
            (ErrorKind::CrossDevice, libc::EXDEV, 18),
            (ErrorKind::NotSynchronized, libc::EBUSY, 10002),
            (ErrorKind::Stale, libc::ESTALE, 70),
            (ErrorKind::WouldBlock, libc::EAGAIN, 10008),
            (ErrorKind::Interrupted, libc::EINTR, 10008),
            (ErrorKind::Busy, libc::EAGAIN, 10008),
        ];
        for (kind, errno, status) in table {
            assert_eq!((kind.errno(), Status::from(kind) as u32), (errno, status), "{kind:?}");
        }
    }
}
