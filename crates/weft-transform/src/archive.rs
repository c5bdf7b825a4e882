//! Index of the members of an archive and of their positions in it: members are read in place,
//! without unpacking anything.

use crate::stage::StageError;
use std::cell::{Cell, RefCell};
use std::io::{self, Read, Seek, SeekFrom};
use tar::{Header, PaxExtensions};
use zip::{CompressionMethod, ZipArchive};

/// Members of an archive that are listed, and bytes that they take; one with more is refused.
const MEMBERS_MAX: usize = 1 << 20;
const BYTES_MAX: usize = 256 << 20;

/// Bytes of memory that each byte of the end of a zip archive takes while that is read: a member
/// with a name of usual length takes several times what the archive says of it.
const ZIP_FACTOR: usize = 6;

/// Longest target of a symbolic link (`PATH_MAX` without its NUL): no file system has a longer one.
const TARGET_BYTES_MAX: usize = 4095;

/// A member of an archive.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Member {
    /// Its path, as the archive has it.
    pub path: Vec<u8>,
    /// Its kind.
    pub kind: Kind,
    /// Permission bits, where the archive tells them.
    pub permissions: Option<u32>,
    /// Time of the last change of its content, in seconds since 1970, where the archive tells it in
    /// a way that needs no time zone.
    pub changed: Option<i64>,
}

/// Kind of a member.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A directory.
    Directory,
    /// A symbolic link with this target.
    Symlink(Vec<u8>),
    /// A file.
    File {
        /// Offset of its bytes in the archive.
        start: u64,
        /// Number of its bytes in the archive.
        stored: u64,
        /// The network that makes its content of them; none if nothing known does.
        network: Option<String>,
        /// Length of its content in bytes.
        size: u64,
    },
}

/// Asked for the bytes of memory that are taken so far, before more is; false: that is too much.
pub type Room<'a> = &'a mut dyn FnMut(usize) -> bool;

/// The members of a tar archive (POSIX pax, ustar; GNU; v7). Where two are called alike the later
/// one is what there is. `OutOfMemory` if there is no `room`.
pub fn tar_members(archive: &mut (impl Read + Seek), room: Room<'_>) -> io::Result<Vec<Member>> {
    let mut members = Members::new(room);
    let mut headers = Headers::default();
    archive.rewind()?;
    while let Some(found) = headers.next(archive)? {
        let Found { member, size } = found;
        let start = archive.stream_position()?;
        if let Some(member) = member {
            let kind = match member.kind {
                Kind::File { network, .. } => Kind::File { start, stored: size, network, size },
                other => other,
            };
            members.add(Member { kind, ..member })?;
        }
        // What was begun is there whole.
        let end = start.checked_add(size).ok_or_else(cut_off)?;
        if size > 0 {
            archive.seek(SeekFrom::Start(end - 1))?;
            archive.read_exact(&mut [0])?;
        }
        archive.seek(SeekFrom::Start(end.checked_next_multiple_of(BLOCK as u64).ok_or_else(cut_off)?))?;
    }
    Ok(members.list)
}

/// Bytes of a header; all else is filled up to a multiple of them.
pub(crate) const BLOCK: usize = 512;

/// Most bytes that say more of a member than its header has room for.
const EXTENSION_BYTES_MAX: u64 = 1 << 20;

/// Reads the headers of a tar archive.
#[derive(Default)]
pub(crate) struct Headers {
    has_ended: bool,
}

/// A header that was read; the reader stands at the beginning of its content.
pub(crate) struct Found {
    /// The member, but for the position and length of a file's content: only `size` tells its
    /// length. `None` if it is no member that can be read.
    pub(crate) member: Option<Member>,
    /// Bytes of content.
    pub(crate) size: u64,
}

/// Extended header: values that the header after it has no room for.
#[derive(Default)]
struct Extension {
    path: Option<Vec<u8>>,
    link: Option<Vec<u8>>,
    size: Option<u64>,
    changed: Option<i64>,
}

impl Headers {
    /// The next header; none at the end. What it is about must have been passed over.
    pub(crate) fn next(&mut self, archive: &mut impl Read) -> io::Result<Option<Found>> {
        let mut extension = Extension::default();
        while !self.has_ended {
            let mut block = [0; BLOCK];
            if !read_block(archive, &mut block)? || block == [0; BLOCK] {
                self.has_ended = true;
                break;
            }
            let header = Header::from_byte_slice(&block);
            if !is_sound(header, &block)? {
                return Err(io::Error::new(io::ErrorKind::InvalidData, "a header's checksum is wrong"));
            }
            let size = header.entry_size()?;
            let kind = header.entry_type();
            if kind.is_gnu_longname() || kind.is_gnu_longlink() {
                let bytes = extension_bytes(archive, size)?;
                // What follows the NUL is not kept, not even as room.
                let bytes = bytes.split(|byte| *byte == 0).next().unwrap_or_default().to_vec();
                *(if kind.is_gnu_longname() { &mut extension.path } else { &mut extension.link }) = Some(bytes);
            } else if kind.is_pax_local_extensions() {
                extension.take(&extension_bytes(archive, size)?)?;
            } else if kind.is_pax_global_extensions() {
                extension_bytes(archive, size)?;
            } else {
                return Ok(Some(found(header, extension)?));
            }
        }
        Ok(None)
    }
}

impl Extension {
    /// Takes what a pax extended header says (POSIX pax, "pax Extended Header").
    fn take(&mut self, bytes: &[u8]) -> io::Result<()> {
        for said in PaxExtensions::new(bytes) {
            let said = said?;
            let value = said.value_bytes();
            let text = || said.value().ok();
            match said.key_bytes() {
                b"path" => self.path = Some(value.to_vec()),
                b"linkpath" => self.link = Some(value.to_vec()),
                b"size" => self.size = Some(text().and_then(|text| text.parse().ok()).ok_or_else(cut_off)?),
                b"mtime" => self.changed = text().and_then(|text| text.split('.').next()?.parse().ok()),
                _ => {}
            }
        }
        Ok(())
    }
}

fn found(header: &Header, extension: Extension) -> io::Result<Found> {
    let kind = match header.entry_type() {
        kind if kind.is_dir() => Some(Kind::Directory),
        kind if kind.is_symlink() => {
            let target = extension.link.or_else(|| header.link_name_bytes().map(|name| name.into_owned()));
            Some(Kind::Symlink(target.unwrap_or_default()))
        }
        kind if kind.is_file() || kind.is_contiguous() => {
            Some(Kind::File { start: 0, stored: 0, network: Some("identity".into()), size: 0 })
        }
        // Sparse files and hard links have no bytes of their own in one place.
        _ => None,
    };
    let has_content = !header.entry_type().is_hard_link() && !header.entry_type().is_symlink();
    let size = if has_content { extension.size.map_or_else(|| header.entry_size(), Ok)? } else { 0 };
    let path = extension.path.unwrap_or_else(|| header.path_bytes().into_owned());
    let permissions = header.mode().ok().map(|mode| mode & 0o777);
    let changed = extension.changed.or_else(|| header.mtime().ok().and_then(|at| i64::try_from(at).ok()));
    // A v7 archive has no other way to say that it is one.
    let kind = kind.map(|kind| if path.ends_with(b"/") && size == 0 { Kind::Directory } else { kind });
    Ok(Found { member: kind.map(|kind| Member { path, kind, permissions, changed }), size })
}

/// True if the header's checksum is right: the sum of its bytes, with the checksum's own field
/// counted as blanks.
fn is_sound(header: &Header, block: &[u8; BLOCK]) -> io::Result<bool> {
    let sum = |bytes: &[u8]| bytes.iter().map(|byte| u32::from(*byte)).sum::<u32>();
    Ok(sum(&block[..148]) + 8 * u32::from(b' ') + sum(&block[156..]) == header.cksum()?)
}

/// Reads a block; false if nothing more comes.
fn read_block(archive: &mut impl Read, block: &mut [u8; BLOCK]) -> io::Result<bool> {
    let mut have = 0;
    while have < BLOCK {
        match archive.read(&mut block[have..]) {
            Ok(0) if have == 0 => return Ok(false),
            Ok(0) => return Err(cut_off()),
            Ok(count) => have += count,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(true)
}

fn extension_bytes(archive: &mut impl Read, size: u64) -> io::Result<Vec<u8>> {
    if size > EXTENSION_BYTES_MAX {
        return Err(io::Error::new(io::ErrorKind::InvalidData, "a member's name is too long"));
    }
    let len = usize::try_from(size).map_err(|_| cut_off())?;
    let mut bytes = vec![0; len.next_multiple_of(BLOCK)];
    archive.read_exact(&mut bytes)?;
    bytes.truncate(len);
    Ok(bytes)
}

fn cut_off() -> io::Error {
    io::Error::new(io::ErrorKind::UnexpectedEof, "it is cut off")
}

/// The members of a zip archive (PKWARE APPNOTE), as its central directory tells them.
/// `OutOfMemory` if there is no `room`.
pub fn zip_members(archive: &mut (impl Read + Seek), room: Room<'_>) -> io::Result<Vec<Member>> {
    let opening = Opening { bytes: Cell::new(0), is_open: Cell::new(false), room: RefCell::new(room) };
    let opened = ZipArchive::new(Counted { reader: archive, opening: &opening });
    if opening.is_refused() {
        return Err(io::ErrorKind::OutOfMemory.into());
    }
    opening.is_open.set(true);
    let mut archive = opened?;
    let mut more = |bytes| opening.has_room(bytes);
    let mut members = Members::new(&mut more);
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
            // The two lengths need not agree, and as many bytes come as it says that it stores.
            if is_link && member.size().max(member.compressed_size()) <= TARGET_BYTES_MAX as u64 {
                let mut target = Vec::new();
                member.read_to_end(&mut target)?;
                Kind::Symlink(target)
            } else {
                let start = member.data_start();
                Kind::File { start, stored: member.compressed_size(), network, size: member.size() }
            }
        };
        members.add(Member { path, kind, permissions: mode.map(|mode| mode & 0o777), changed: None })?;
    }
    Ok(members.list)
}

/// Bytes that were read to open a zip archive, which keeps what it makes of them.
struct Opening<'a> {
    bytes: Cell<usize>,
    is_open: Cell<bool>,
    room: RefCell<Room<'a>>,
}

impl Opening<'_> {
    /// True if there is room for `more` bytes beside those.
    fn has_room(&self, more: usize) -> bool {
        (self.room.borrow_mut())(self.bytes.get().saturating_mul(ZIP_FACTOR).saturating_add(more))
    }

    /// True if there was no room. The code that opens the archive may have ignored the error.
    fn is_refused(&self) -> bool {
        self.bytes.get() == usize::MAX
    }
}

/// Counts what is read until the archive is open.
struct Counted<'a, 'b, R> {
    reader: &'a mut R,
    opening: &'a Opening<'b>,
}

impl<R: Read> Read for Counted<'_, '_, R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let count = self.reader.read(buffer)?;
        if self.opening.is_open.get() {
            return Ok(count);
        }
        self.opening.bytes.set(self.opening.bytes.get().saturating_add(count));
        if self.opening.has_room(0) {
            return Ok(count);
        }
        self.opening.bytes.set(usize::MAX);
        Err(io::ErrorKind::OutOfMemory.into())
    }
}

impl<R: Seek> Seek for Counted<'_, '_, R> {
    fn seek(&mut self, to: SeekFrom) -> io::Result<u64> {
        self.reader.seek(to)
    }
}

/// Members, no more than there is room for.
struct Members<'a> {
    list: Vec<Member>,
    bytes: usize,
    room: Room<'a>,
}

impl Members<'_> {
    fn new(room: Room<'_>) -> Members<'_> {
        Members { list: Vec::new(), bytes: 0, room }
    }

    fn add(&mut self, member: Member) -> io::Result<()> {
        let target = if let Kind::Symlink(target) = &member.kind { target.len() } else { 0 };
        if target > TARGET_BYTES_MAX {
            return Err(io::Error::new(io::ErrorKind::InvalidData, "a symbolic link's target is too long"));
        }
        self.bytes += size_of::<Member>() + member.path.len() + target;
        if self.list.len() >= MEMBERS_MAX || self.bytes > BYTES_MAX {
            return Err(io::Error::new(io::ErrorKind::InvalidData, "it has too many members"));
        }
        if !(self.room)(self.bytes) {
            return Err(io::ErrorKind::OutOfMemory.into());
        }
        self.list.push(member);
        Ok(())
    }
}

/// True if `path` in an archive is the path that `wanted` means.
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

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Cursor;

    fn tar_of_link(target: usize) -> io::Result<Vec<Member>> {
        let mut tar = tar::Builder::new(Vec::new());
        let mut header = Header::new_gnu();
        header.set_entry_type(tar::EntryType::Symlink);
        header.set_size(0);
        tar.append_link(&mut header, "link", "t".repeat(target))?;
        tar_members(&mut Cursor::new(tar.into_inner()?), &mut |_| true)
    }

    /// They were kept whatever they took.
    #[test]
    fn targets_of_symbolic_links_have_a_bound_and_count() {
        let found = tar_of_link(4095).expect("it is one");
        assert!(matches!(&found[..], [Member { kind: Kind::Symlink(target), .. }] if target.len() == 4095));
        // No more room is kept than counts.
        assert!(matches!(&found[..], [Member { kind: Kind::Symlink(target), .. }] if target.capacity() < 4200));
        assert!(tar_of_link(4096).expect_err("it is too long").to_string().contains("target"));
        let mut everything = |_| true;
        let mut members = Members::new(&mut everything);
        found.into_iter().try_for_each(|member| members.add(member)).expect("there is room");
        assert!(members.bytes > 4095);
    }

    /// As many bytes were read as the archive said that it stores, whatever the link's length:
    /// gigabytes, from a sparse file.
    #[test]
    fn a_symbolic_link_that_stores_more_than_its_target_is_none() {
        let mut zip = zip::ZipWriter::new(Cursor::new(Vec::new()));
        let options = zip::write::SimpleFileOptions::default().compression_method(CompressionMethod::Stored);
        zip.add_symlink("link", "target", options).expect("added");
        let mut zip = zip.finish().expect("whole").into_inner();
        let list = |zip: &[u8]| zip_members(&mut Cursor::new(zip), &mut |_| true).expect("it is one").remove(0).kind;
        assert_eq!(list(&zip), Kind::Symlink(b"target".into()));
        let central = zip.windows(4).position(|bytes| bytes == b"PK\x01\x02").expect("a directory");
        zip[central + 20..central + 24].copy_from_slice(&(TARGET_BYTES_MAX as u32 + 1).to_le_bytes());
        assert!(matches!(list(&zip), Kind::File { .. }));
    }

    /// All that were looked into at the same time had no bound in common.
    #[test]
    fn members_are_listed_as_far_as_there_is_room() {
        let mut tar = tar::Builder::new(Vec::new());
        let mut zip = zip::ZipWriter::new(Cursor::new(Vec::new()));
        let long = "n".repeat(90);
        for number in 0..100 {
            let mut header = Header::new_gnu();
            header.set_size(0);
            tar.append_data(&mut header, format!("{number}{long}"), &b""[..]).expect("added");
            let options = zip::write::SimpleFileOptions::default();
            zip.start_file(format!("{number}{long}"), options).expect("added");
        }
        let (tar, zip) = (tar.into_inner().expect("whole"), zip.finish().expect("whole").into_inner());
        let list = |is_zip: bool, most: usize| {
            let mut taken = 0;
            let mut room = |bytes| {
                taken = bytes;
                bytes <= most
            };
            let found = if is_zip {
                zip_members(&mut Cursor::new(&zip[..]), &mut room)
            } else {
                tar_members(&mut Cursor::new(&tar[..]), &mut room)
            };
            found.map(|found| (found.len(), taken)).map_err(|error| error.kind())
        };
        for is_zip in [false, true] {
            let (count, taken) = list(is_zip, usize::MAX).expect("they fit");
            assert!(count == 100 && taken > 100 * 90, "{taken}");
            assert_eq!(list(is_zip, taken), Ok((100, taken)));
            assert_eq!(list(is_zip, taken - 1), Err(io::ErrorKind::OutOfMemory));
        }
        assert_eq!(list(true, 1000), Err(io::ErrorKind::OutOfMemory), "while it is opened");
    }
}
