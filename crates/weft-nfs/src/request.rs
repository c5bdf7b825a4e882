//! A call while its arguments are read: which files it is about, which user it acts as.

use crate::export::{Client, Rule, WriteAck};
use crate::handle::{HANDLE_BYTES_MAX, Named};
use crate::outcome::{Failure, GARBAGE};
use crate::rpc::{Auth, Call};
use crate::service::{Exported, Service};
use crate::status::Status;
use crate::xdr::Reader;
use smallvec::SmallVec;
use weft_vfs::{Credentials, FileId, Ino, User};

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
        let handle = self.service.open(bytes)?;
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
        let file = match handle.file {
            Named::Present(file) => file,
            Named::Past(node, generation) => FileId { ino: self.service.vfs.number_of_past(node)?, generation },
        };
        self.subjects.push(file);
        Ok((file, bytes))
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

/// Returns the user that `call` of NFS acts as; none if it is not let in: its first handle was
/// not made here, or names an export that has no rule for `client`.
pub(crate) fn acts_as(service: &Service, client: &Client, call: &Call<'_>) -> Option<Credentials> {
    let mut request = Request::new(service, client, call);
    request.file().ok()?;
    Some(request.who)
}
