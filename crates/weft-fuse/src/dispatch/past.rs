//! Requests about nodes of the past ([`weft_vfs::Lasting`]), of which nothing can be changed.

use super::{Failure, Outcome, Server};
use crate::protocol::{Opcode, Valid};
use std::time::Duration;
use weft_vfs::{Attributes, Ino, Lasting, is_past};

fn refuse_change(ino: Ino, opcode: Opcode) -> Outcome {
    match opcode {
        _ if !is_past(ino) => Ok(()),
        Opcode::Setattr
        | Opcode::Symlink
        | Opcode::Mknod
        | Opcode::Mkdir
        | Opcode::Tmpfile
        | Opcode::Unlink
        | Opcode::Rmdir
        | Opcode::Rename
        | Opcode::Rename2
        | Opcode::Link
        | Opcode::Write
        | Opcode::Fallocate
        | Opcode::Setxattr
        | Opcode::Removexattr => Err(Failure::Errno(libc::EROFS)),
        Opcode::Ioctl => Err(Failure::Errno(libc::ENOTTY)),
        // The kernel copies by reading and writing.
        Opcode::CopyFileRange | Opcode::CopyFileRange64 => Err(Failure::Errno(libc::EOPNOTSUPP)),
        _ => Ok(()),
    }
}

impl Server {
    /// Refuses what would change node `ino` of the past, and what only the present has.
    pub(super) fn refuse_change_of_past(&self, ino: Ino, opcode: Opcode) -> Outcome {
        let refused = refuse_change(ino, opcode);
        if refused.is_err() && opcode == Opcode::Write {
            // The kernel has these bytes in its cache, where all read them.
            self.vfs.past_was_stored_to(ino);
        }
        refused
    }

    /// Returns the time for which the kernel may cache `attributes` of a node of the past, and the
    /// name that led there.
    pub(super) fn valid_of_past(&self, attributes: &Attributes) -> Valid {
        let valid = match self.vfs.lasting(attributes.ino) {
            Lasting::Ever if attributes.computed.is_none() => self.options.valid,
            Lasting::Ever | Lasting::Once => Duration::ZERO,
        };
        Valid { entry: valid, attributes: valid }
    }

    /// Returns the time for which the kernel may remember that `parent` has no `name`.
    pub(super) fn missing_valid_in(&self, parent: Ino, name: &[u8]) -> Duration {
        // Names of moments come to be, and directories of the past when history is kept.
        let is_lasting = match is_past(parent) {
            true => self.vfs.lasting(parent) == Lasting::Ever,
            false => !self.vfs.may_lead_to_past(name),
        };
        // In a view there may be one at any time.
        match is_lasting && !self.vfs.is_opaque(parent).unwrap_or(false) {
            true => self.missing_valid(),
            false => Duration::ZERO,
        }
    }
}
