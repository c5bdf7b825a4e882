//! Dispatches calls to programs: which program a call is for, which files it is about, which user
//! it acts as.

use crate::export::{Client, Closed, Export, Exports, RESERVED_PORTS_END, Rule, Transport, WriteAck};
use crate::handle::{HANDLE_BYTES, HANDLE_BYTES_MAX, Handle, HandleKey};
use crate::locking::{Locking, nlm, nsm};
use crate::mount::{self, Mounts};
use crate::portmap::{self, Mapping};
use crate::refusals::Refusals;
use crate::refused::Refused;
use crate::rpc::{self, Auth, Call, Procedure, Refusal, Reply};
use crate::status::Status;
use crate::v3;
use crate::xdr::Reader;
use smallvec::SmallVec;
use std::sync::Arc;
use weft_vfs::{Caller, Credentials, Error, ErrorKind, FileId, Ino, Kind, Secret, User, Vfs};

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
}

/// A directory that is served.
pub(crate) struct Exported {
    pub(crate) export: Export,
    pub(crate) root: FileId,
    pub(crate) fsid: u64,
}

/// Outcome of a call.
#[derive(Debug)]
pub(crate) enum Outcome {
    /// The reply to send.
    Reply(Reply),
    /// The reply to send once all changes are as safe as the policy demands.
    Once(WriteAck, Reply),
    /// The reply to send before TLS begins.
    StartTls(Vec<u8>),
    /// The call would have to wait, and has changed nothing.
    WouldWait,
}

/// Reason that a procedure fails.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Failure {
    /// It fails with this status.
    Status(Status),
    /// The call is refused.
    Refused(Refusal),
    /// The call would have to wait.
    WouldWait,
}

impl From<Status> for Failure {
    fn from(status: Status) -> Failure {
        Failure::Status(status)
    }
}

impl From<Closed> for Failure {
    fn from(closed: Closed) -> Failure {
        match closed {
            Closed::Denied | Closed::UnreservedPort => Failure::Status(Status::Acces),
            Closed::NeedsTls => Failure::Refused(Refusal::TooWeak),
        }
    }
}

impl From<Error> for Failure {
    fn from(error: Error) -> Failure {
        match error.kind() {
            ErrorKind::WouldBlock => return Failure::WouldWait,
            ErrorKind::Io | ErrorKind::Corrupt => {
                tracing::error!(user = weft_vfs::asking_user(), "a request over NFS failed: {error}")
            }
            _ => {}
        }
        Failure::Status(error.kind().into())
    }
}

/// Failure of a call whose arguments cannot be read.
pub(crate) const GARBAGE: Failure = Failure::Refused(Refusal::GarbageArguments);

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
        Ok(Service { vfs, exports, mounts, verifier, key, locking, portmap, refused, refusals })
    }

    /// Serves `call` from `client`.
    pub(crate) fn serve(&self, client: &Client, call: &Call<'_>) -> Outcome {
        let outcome = self.outcome(client, call);
        if let Outcome::Reply(reply) = &outcome {
            self.refusals.answered(call.procedure, &reply.head);
        }
        outcome
    }

    fn outcome(&self, client: &Client, call: &Call<'_>) -> Outcome {
        if call.auth == Auth::Tls {
            // Asked before anything else, and only of a connection that has none (RFC 9289 4.1).
            return match call.procedure.number {
                0 if !client.tls => Outcome::StartTls(rpc::start_tls(call.xid)),
                _ => Outcome::Reply(rpc::refused(call.xid, Refusal::TooWeak).into()),
            };
        }
        let refused = |refusal| Outcome::Reply(rpc::refused(call.xid, refusal).into());
        let Procedure { program, version, .. } = call.procedure;
        match (program, version) {
            (mount::PROGRAM, 3) => mount::serve(self, client, call),
            (nlm::PROGRAM, 4) => nlm::serve(self, client, call),
            (nsm::PROGRAM, 1) => nsm::serve(self, client, call),
            (portmap::PROGRAM, _) => portmap::serve(self, client, call),
            (nlm::PROGRAM, _) => refused(Refusal::VersionMismatch { low: 4, high: 4 }),
            (nsm::PROGRAM, _) => refused(Refusal::VersionMismatch { low: 1, high: 1 }),
            (mount::PROGRAM, _) => refused(Refusal::VersionMismatch { low: 3, high: 3 }),
            // NFS data is too long for datagrams.
            (v3::PROGRAM, _) if client.transport == Transport::Udp => refused(Refusal::ProgramUnavailable),
            (v3::PROGRAM, 3) => v3::serve(self, client, call),
            (v3::PROGRAM, _) => refused(Refusal::VersionMismatch { low: 3, high: 3 }),
            _ => refused(Refusal::ProgramUnavailable),
        }
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

    /// Returns the user that `call` of NFS acts as; none if it is not let in: its first handle was
    /// not made here, or names an export that has no rule for `client`.
    pub(crate) fn acts_as(&self, client: &Client, call: &Call<'_>) -> Option<Credentials> {
        let mut request = Request::new(self, client, call);
        request.file().ok()?;
        Some(request.who)
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

    /// Returns the bytes of the handle of `file`, found through `exported`.
    pub(crate) fn handle(&self, exported: &Exported, file: FileId) -> [u8; HANDLE_BYTES] {
        self.key.seal(&Handle { export: exported.root.ino, file })
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

/// A call while its arguments are read: its files and the user it acts as.
pub(crate) struct Request<'a> {
    pub(crate) service: &'a Service,
    client: &'a Client,
    auth: &'a Auth,
    pub(crate) arguments: Reader<'a>,
    /// The export that the first handle was found through.
    exported: Option<(&'a Exported, &'a Rule)>,
    who: Credentials,
    /// Files that the handles name, in their order.
    pub(crate) subjects: SmallVec<[FileId; 2]>,
}

impl<'a> Request<'a> {
    pub(crate) fn new(service: &'a Service, client: &'a Client, call: &'a Call<'a>) -> Request<'a> {
        Request {
            service,
            client,
            auth: &call.auth,
            arguments: call.arguments,
            exported: None,
            who: Credentials::default(),
            subjects: SmallVec::new(),
        }
    }

    /// Reads a handle of a file that the call is about. The first one decides which user the call
    /// acts as.
    pub(crate) fn file(&mut self) -> Result<FileId, Failure> {
        self.file_and_handle().map(|(file, _)| file)
    }

    /// Reads a handle, as [`Request::file`] does, and also returns its bytes.
    pub(crate) fn file_and_handle(&mut self) -> Result<(FileId, &'a [u8]), Failure> {
        let bytes = self.arguments.opaque(HANDLE_BYTES_MAX).ok_or(GARBAGE)?;
        let handle = self.service.key.open(bytes)?;
        let exported = self.service.exports.iter().find(|exported| exported.root.ino == handle.export);
        // It was exported once.
        let exported = exported.ok_or(Status::Stale)?;
        match self.exported {
            Some((first, _)) if first.root == exported.root => {}
            Some(_) => return Err(Status::XDev.into()),
            None => {
                let rule = self.service.rule(exported, self.client)?;
                self.who = rule.credentials(self.auth);
                self.exported = Some((exported, rule));
            }
        }
        self.subjects.push(handle.file);
        Ok((handle.file, bytes))
    }

    /// Reads a handle of a directory that entries are looked up or changed in. Fails with `Stale`
    /// if it was moved out of the export.
    pub(crate) fn directory(&mut self) -> Result<FileId, Failure> {
        let directory = self.file()?;
        let root = self.exported().root;
        if root.ino != Ino::ROOT && directory != root && !self.user().is_within(directory, root.ino)? {
            return Err(Status::Stale.into());
        }
        Ok(directory)
    }

    /// Returns the export through which the first handle was found.
    pub(crate) fn exported(&self) -> &'a Exported {
        self.exported.expect("asked after the first handle was read").0
    }

    /// Fails with `RoFs` if the export is read-only.
    pub(crate) fn may_change(&self) -> Result<(), Failure> {
        match self.exported {
            Some((_, rule)) if rule.read_only => Err(Status::RoFs.into()),
            _ => Ok(()),
        }
    }

    /// Returns the write acknowledgement policy of the export.
    pub(crate) fn told(&self) -> WriteAck {
        self.exported.map_or(WriteAck::Durable, |(_, rule)| rule.told)
    }

    /// True if the export is read-only.
    pub(crate) fn is_read_only(&self) -> bool {
        self.may_change().is_err()
    }

    /// Returns the number of the calling user.
    pub(crate) fn uid(&self) -> u32 {
        self.who.uid
    }

    /// Returns the volume as the calling user may use it.
    pub(crate) fn user(&self) -> User<'_> {
        self.service.vfs.user(&self.who)
    }
}
