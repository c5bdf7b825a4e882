//! Differences of contents, as diff(1) finds them.
//!
//! It reads both contents from memory that has no name: nothing is left of that when the processes
//! end, however they do.

use crate::command::digest::Source;
use crate::command::digest::difference::{Change, Difference};
use crate::command::digest::list::escape;
use crate::command::subject::Forgotten;
use anyhow::{Context, Result, bail, ensure};
use rustix::fd::{AsRawFd, OwnedFd};
use rustix::fs::{MemfdFlags, memfd_create};
use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io::Write;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::process::{Command, Stdio};
use weft_digest::Kind;

/// Most bytes of a content that is compared by lines.
const BYTES_MAX: usize = 8 << 20;

/// Two trees whose files are compared.
pub(super) struct Unified<'a> {
    pub(super) sources: [&'a Source; 2],
    pub(super) names: Names<'a>,
    /// True if the sources are no directories, but what is compared.
    pub(super) is_one: bool,
}

/// The parts of the names of files by which the two trees are told apart.
#[derive(Clone, Copy)]
pub(super) enum Names<'a> {
    Before(&'a [OsString; 2]),
    Behind(&'a [String; 2]),
}

/// A content.
enum Content {
    /// There is no file.
    Absent,
    Text(Vec<u8>),
    Binary,
    /// It has more than [`BYTES_MAX`].
    Large,
    /// It was taken out of history.
    Forgotten,
}

impl Unified<'_> {
    /// Returns the differences of contents; none where no files are compared.
    pub(super) fn of(&self, difference: &Difference) -> Result<Option<Vec<u8>>> {
        let are_there = match difference.change {
            Change::Content => [true, true],
            Change::Added => [false, true],
            Change::Deleted => [true, false],
            Change::Kind | Change::Permissions => return Ok(None),
        };
        if difference.kind != Kind::File {
            return Ok(None);
        }
        let path = &difference.path;
        let content = |side: usize| -> Result<Content> {
            if !are_there[side] {
                return Ok(Content::Absent);
            }
            let within = if self.is_one { None } else { Some(&path[..]) };
            let read = Content::read(self.sources[side], within);
            read.with_context(|| format!("cannot read {}", self.label(path, side).display()))
        };
        let contents = [content(0)?, content(1)?];
        let labels = [0, 1].map(|side| if are_there[side] { self.label(path, side) } else { "/dev/null".into() });
        let differ = |what: &str, why: &str| {
            let [first, second] = labels.each_ref().map(|label| label.as_bytes());
            Some([what.as_bytes(), b" ", first, b" and ", second, b" differ", why.as_bytes(), b"\n"].concat())
        };
        match contents {
            [Content::Forgotten, _] | [_, Content::Forgotten] => {
                Ok(differ("Files", ": the content of then was taken out of history"))
            }
            [Content::Large, _] | [_, Content::Large] => Ok(differ("Files", ": too large to be compared by lines")),
            [Content::Binary, _] | [_, Content::Binary] => Ok(differ("Binary files", "")),
            [first, second] => unified([first.bytes(), second.bytes()], &labels).map(Some),
        }
    }

    fn label(&self, path: &[u8], side: usize) -> OsString {
        let path = escape(path);
        OsString::from_vec(match self.names {
            Names::Before(names) => [names[side].as_bytes(), &path].concat(),
            Names::Behind(names) => [&path, names[side].as_bytes()].join(&b'\t'),
        })
    }
}

impl Content {
    fn read(source: &Source, path: Option<&[u8]>) -> Result<Content> {
        let (mut all, mut is_large) = (Vec::new(), false);
        let read = source.read(path, |bytes| {
            is_large = all.len() + bytes.len() > BYTES_MAX;
            ensure!(!is_large, "it is too large");
            all.extend_from_slice(bytes);
            Ok(())
        });
        match read {
            Err(_) if is_large => Ok(Content::Large),
            Err(error) if error.is::<Forgotten>() => Ok(Content::Forgotten),
            Err(error) => Err(error),
            Ok(()) if memchr::memchr(0, &all).is_some() => Ok(Content::Binary),
            Ok(()) => Ok(Content::Text(all)),
        }
    }

    fn bytes(self) -> Vec<u8> {
        match self {
            Content::Text(bytes) => bytes,
            Content::Absent | Content::Binary | Content::Large | Content::Forgotten => Vec::new(),
        }
    }
}

/// Has diff(1) compare two contents.
fn unified(contents: [Vec<u8>; 2], labels: &[OsString; 2]) -> Result<Vec<u8>> {
    let [first, second] = contents.map(|content| in_memory(&content));
    let files = [first?, second?];
    let mut command = Command::new("diff");
    command.arg("-u").stdin(Stdio::null());
    command.args(labels.iter().flat_map(|label| [OsStr::new("-L"), label]));
    command.args(files.each_ref().map(|file| format!("/dev/fd/{}", file.as_raw_fd())));
    let output = command.output().context("cannot run diff, which --content takes")?;
    match output.status.code() {
        Some(0 | 1) => Ok(output.stdout),
        _ => bail!("diff failed: {}", String::from_utf8_lossy(&output.stderr).trim()),
    }
}

/// A file without a name, which the next process inherits.
fn in_memory(content: &[u8]) -> Result<OwnedFd> {
    let mut file = File::from(memfd_create("weft-diff", MemfdFlags::empty())?);
    file.write_all(content).context("there is no memory for a content that is compared")?;
    Ok(file.into())
}
