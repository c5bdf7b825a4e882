//! The state that calls are answered from: the volume, its exports, and what is remembered of
//! clients.

use crate::calls::Calls;
use crate::export::{Client, Closed, Export, Exports, RESERVED_PORTS_END, Rule};
use crate::handle::{Handle, HandleBytes, HandleKey, Named};
use crate::locking::Locking;
use crate::mounts::Mounts;
use crate::outcome::Failure;
use crate::programs::Mapping;
use crate::refusals::Refusals;
use crate::refused::Refused;
use crate::status::Status;
use std::sync::Arc;
use weft_vfs::{Attributes, Caller, Error, ErrorKind, FileId, Ino, Kind, Secret, User, Vfs, is_past};

/// State that calls are answered from.
pub(crate) struct Service {
    pub(crate) vfs: Arc<Vfs>,
    pub(crate) exports: Vec<Exported>,
    pub(crate) mounts: Mounts,
    /// Verifier of writes; changes whenever unsynced writes may have been lost (RFC 1813 3.3.7).
    pub(crate) verifier: [u8; 8],
    key: HandleKey,
    /// Locks, if they are kept for clients.
    pub(crate) locking: Option<Locking>,
    /// Programs that a portmapper reports.
    pub(crate) portmap: Vec<Mapping>,
    /// Machines that no rule let in and that were logged.
    refused: Refused,
    /// Counts of calls that were refused.
    pub(crate) refusals: Refusals,
    /// Counts of all calls.
    pub(crate) calls: Calls,
}

/// A directory that is served.
pub(crate) struct Exported {
    pub(crate) export: Export,
    pub(crate) root: FileId,
    pub(crate) fsid: u64,
}

/// An exported directory that is not there.
#[derive(Debug, thiserror::Error)]
pub enum ExportError {
    /// It does not exist, or is no directory.
    #[error("cannot export {path}: the volume has no such directory")]
    NoDirectory {
        /// Its path in the volume.
        path: String,
    },
    /// The volume cannot be read.
    #[error("cannot export {path}")]
    Volume {
        /// Its path in the volume.
        path: String,
        /// Cause.
        source: Box<Error>,
    },
}

impl Service {
    /// Serves `exports` of `vfs`; handles are made with `secret`.
    pub(crate) fn new(
        vfs: Arc<Vfs>,
        exports: Exports,
        secret: Secret,
        verifier: [u8; 8],
    ) -> Result<Service, ExportError> {
        let key = HandleKey::new(secret);
        let find = |export: Export| {
            let path = || String::from_utf8_lossy(&export.name()).into_owned();
            match walk(&vfs, &export.path) {
                Ok(Some(root)) => Ok(Exported { fsid: key.fsid(root.ino), root, export }),
                Ok(None) => Err(ExportError::NoDirectory { path: path() }),
                Err(source) => Err(ExportError::Volume { path: path(), source: Box::new(source) }),
            }
        };
        let exports = exports.0.into_iter().map(find).collect::<Result<_, _>>()?;
        let (locking, portmap) = (None, Vec::new());
        let (mounts, refusals, refused) = (Mounts::default(), Refusals::default(), Refused::default());
        let calls = Calls::default();
        Ok(Service { vfs, exports, mounts, verifier, key, locking, portmap, refused, refusals, calls })
    }

    /// True if some export is open to `client`, over TLS at least.
    pub(crate) fn lets_in(&self, client: &Client) -> bool {
        let is_open = |exported: &Exported| matches!(exported.export.rule(client), Ok(_) | Err(Closed::NeedsTls));
        self.exports.iter().any(is_open)
    }

    /// Returns the rule of `exported` for `client`. Logs a client that is not let in.
    pub(crate) fn rule<'s>(&self, exported: &'s Exported, client: &Client) -> Result<&'s Rule, Closed> {
        let rule = exported.export.rule(client);
        if let Err(closed) = rule {
            let why = match closed {
                Closed::Denied => "no rule of the export is for that address",
                Closed::UnreservedPort => {
                    "it calls from a port above 1023, as any user can; mount as root, or export it as insecure"
                }
                Closed::NeedsTls => "it calls without TLS, which the export demands",
            };
            let (path, port) = (String::from_utf8_lossy(&exported.export.name()).into_owned(), client.port);
            self.refused.log(client.address, format_args!("is refused {path} over NFS, at port {port}: {why}"));
        }
        rule
    }

    /// Notes that a client, which calls itself `name`, has restarted: it holds no locks any more.
    /// Ignored if no export lets the client in, or if it calls from a port that any user of a
    /// machine can use: hosts send this as the super-user.
    pub(crate) fn restarted(&self, client: &Client, name: &[u8]) {
        if let Some(locking) = &self.locking
            && client.port < RESERVED_PORTS_END
            && self.lets_in(client)
        {
            locking.restarted(client.address, name);
        }
    }

    /// Looks up `name` in `directory`, which `exported` led to, for `user`. A directory's past is
    /// not found by which it lay elsewhere: what lay there may never have been exported.
    pub(crate) fn lookup(
        &self,
        exported: &Exported,
        user: &User<'_>,
        directory: FileId,
        name: &[u8],
    ) -> Result<(Attributes, Attributes), Failure> {
        let (found, parent) = user.lookup(directory, name)?;
        if is_past(found.ino) && !self.vfs.past_lies_within(found.ino, exported.root.ino)? {
            return Err(Status::NoEnt.into());
        }
        Ok((found, parent))
    }

    /// Returns the handle of `bytes`. Fails if it was not made here.
    pub(crate) fn open(&self, bytes: &[u8]) -> Result<Handle, Status> {
        self.key.open(bytes)
    }

    /// Returns the bytes of the handle of `file`, found through `exported`.
    pub(crate) fn handle(&self, exported: &Exported, file: FileId) -> HandleBytes {
        let node = if is_past(file.ino) { self.vfs.node_of_past(file.ino) } else { None };
        let named = node.map_or(Named::Present(file), |node| Named::Past(node, file.generation));
        self.key.seal(&Handle { export: exported.root.ino, file: named })
    }
}

/// Finds the directory at `path`; none if there is none.
pub(crate) fn walk(vfs: &Vfs, path: &[Vec<u8>]) -> weft_vfs::Result<Option<FileId>> {
    let mut at = vfs.attributes(Ino::ROOT)?;
    for name in path {
        at = match vfs.lookup(Caller::ROOT, at.ino, name) {
            Ok(found) => found,
            Err(error) if matches!(error.kind(), ErrorKind::NotFound | ErrorKind::NotDirectory) => return Ok(None),
            Err(error) => return Err(error),
        };
    }
    Ok((at.kind == Kind::Directory).then(|| FileId::from(&at)))
}
