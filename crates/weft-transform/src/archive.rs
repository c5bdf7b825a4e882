//! What is in an archive, and where it lies there: so that members are read in place, without unpacking anything.

use crate::stage::StageError;
use std::io::{self, Read, Seek};
use zip::{CompressionMethod, ZipArchive};

/// Members of an archive that are listed; one with more is refused.
const MEMBERS_MAX: usize = 4 << 20;

/// A member of an archive.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Member {
    /// Its path, as the archive has it.
    pub path: Vec<u8>,
    /// What it is.
    pub kind: Kind,
    /// Permission bits, where the archive tells them.
    pub permissions: Option<u32>,
    /// When its content changed, in seconds since 1970, where the archive tells that in a way that needs no time zone.
    pub changed: Option<i64>,
}

/// What a member is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A directory.
    Directory,
    /// A symbolic link with this target.
    Symlink(Vec<u8>),
    /// A file.
    File {
        /// Where its bytes begin in the archive.
        start: u64,
        /// How many there are.
        stored: u64,
        /// The network that makes its content of them; none if nothing known does.
        network: Option<String>,
        /// How long its content is.
        size: u64,
    },
}

/// The members of a tar archive (POSIX pax, ustar; GNU; v7), as it is read from its beginning. Its later member wins where two are called alike.
pub fn tar_members(archive: &mut (impl Read + Seek)) -> io::Result<Vec<Member>> {
    let mut archive = tar::Archive::new(archive);
    let mut members = Vec::new();
    for entry in archive.entries_with_seek()? {
        let entry = entry?;
        let header = entry.header();
        let kind = match header.entry_type() {
            kind if kind.is_dir() => Kind::Directory,
            kind if kind.is_symlink() => Kind::Symlink(entry.link_name_bytes().unwrap_or_default().into_owned()),
            kind if kind.is_file() || kind.is_contiguous() => {
                let (start, size) = (entry.raw_file_position(), entry.size());
                Kind::File { start, stored: size, network: Some("identity".into()), size }
            }
            // Sparse files and hard links have no bytes of their own in one place.
            _ => continue,
        };
        let path = entry.path_bytes().into_owned();
        let permissions = header.mode().ok().map(|mode| mode & 0o777);
        let changed = header.mtime().ok().and_then(|at| i64::try_from(at).ok());
        add(&mut members, Member { path, kind, permissions, changed })?;
    }
    Ok(members)
}

/// The members of a zip archive (PKWARE APPNOTE), as its central directory tells them.
pub fn zip_members(archive: &mut (impl Read + Seek)) -> io::Result<Vec<Member>> {
    let mut archive = ZipArchive::new(archive)?;
    let mut members = Vec::new();
    for index in 0..archive.len() {
        let mut member = archive.by_index_raw(index)?;
        let mode = member.unix_mode();
        let path = member.name_raw().to_vec();
        let kind = if member.is_dir() {
            Kind::Directory
        } else {
            let crc = member.crc32();
            let network = match member.compression() {
                _ if member.encrypted() => None,
                CompressionMethod::Stored => Some("identity".into()),
                CompressionMethod::DEFLATE => Some(format!("inflate -c {crc:08x}")),
                CompressionMethod::BZIP2 => Some("bzip2 -d".into()),
                CompressionMethod::ZSTD => Some("zstd -d".into()),
                CompressionMethod::XZ => Some("xz -d".into()),
                _ => None,
            };
            let is_link = member.is_symlink() && member.compression() == CompressionMethod::Stored;
            if is_link && member.size() < 4096 {
                let mut target = Vec::new();
                member.read_to_end(&mut target)?;
                Kind::Symlink(target)
            } else {
                let start = member.data_start();
                Kind::File { start, stored: member.compressed_size(), network, size: member.size() }
            }
        };
        add(&mut members, Member { path, kind, permissions: mode.map(|mode| mode & 0o777), changed: None })?;
    }
    Ok(members)
}

fn add(members: &mut Vec<Member>, member: Member) -> io::Result<()> {
    if members.len() >= MEMBERS_MAX {
        return Err(io::Error::new(io::ErrorKind::InvalidData, "it has too many members"));
    }
    members.push(member);
    Ok(())
}

/// Whether `path` in an archive is what somebody means by `wanted`.
pub(crate) fn is_called(path: &[u8], wanted: &str) -> bool {
    let plain = |path: &[u8]| {
        let names = path.split(|byte| *byte == b'/').filter(|name| !name.is_empty() && *name != b".");
        names.map(<[u8]>::to_vec).collect::<Vec<_>>()
    };
    plain(path) == plain(wanted.as_bytes())
}

pub(crate) fn not_tar(error: io::Error) -> StageError {
    StageError::data(format!("this is no tar archive, or a damaged one: {error}"))
}
