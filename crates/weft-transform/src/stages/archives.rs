//! One member of a tar or zip archive, or a list of all.

use crate::account::Account;
use crate::archive::{self, Found, Headers, Kind, Member};
use crate::arguments::Arguments;
use crate::flow::{Input, Output};
use crate::language::{Call, NetworkError};
use crate::stage::{Progress, Running, Shape, Stage, StageError};
use crate::temporary::TemporaryFile;
use crate::threaded::{Reader, Threaded, Writer};
use flate2::{Crc, Decompress, FlushDecompress, Status};
use std::io::{self, Read, Seek, SeekFrom, Write};

/// Request to an archive.
#[derive(Clone)]
enum Wanted {
    List,
    Member(String),
}

fn wanted(call: &Call) -> Result<Wanted, NetworkError> {
    let mut arguments = Arguments::read(call, "", "")?;
    let what = arguments.operand("'list', or 'member' and a path")?;
    let wanted = match what.text.as_str() {
        "list" => Wanted::List,
        "member" => Wanted::Member(arguments.operand("the path of a member")?.text.clone()),
        _ => return Err(NetworkError::new(format!("{} knows 'list' and 'member PATH'", call.name.text), what.at)),
    };
    arguments.end()?;
    Ok(wanted)
}

fn stage(call: &Call, work: fn(Wanted, Reader, &mut Writer) -> Result<(), StageError>) -> Result<Stage, NetworkError> {
    let wanted = wanted(call)?;
    let gives = if matches!(wanted, Wanted::List) { |_| Shape::Text } else { |_| Shape::Unknown };
    let start = move || {
        let wanted = wanted.clone();
        Threaded::new(move |reader, writer| work(wanted, reader, writer))
    };
    Ok(Stage { gives, ..Stage::new(start) })
}

pub(crate) fn tar(call: &Call) -> Result<Stage, NetworkError> {
    stage(call, from_tar)
}

pub(crate) fn zip(call: &Call) -> Result<Stage, NetworkError> {
    stage(call, from_zip)
}

fn from_tar(wanted: Wanted, mut reader: Reader, writer: &mut Writer) -> Result<(), StageError> {
    let mut headers = Headers::default();
    while let Some(Found { member, size }) = headers.next(&mut reader).map_err(archive::not_tar)? {
        let is_wanted = match (&wanted, &member) {
            (Wanted::List, Some(member)) => {
                writer.write_all(&member.path)?;
                writer.write_all(b"\n")?;
                false
            }
            (Wanted::Member(path), Some(Member { kind: Kind::File { .. }, path: own, .. })) => {
                archive::is_called(own, path)
            }
            _ => false,
        };
        let mut content = reader.by_ref().take(size);
        let copied = if is_wanted { io::copy(&mut content, writer)? } else { io::copy(&mut content, &mut io::sink())? };
        if copied != size {
            return Err(StageError::data("the archive is cut off"));
        }
        if is_wanted {
            return Ok(());
        }
        let filled = size.next_multiple_of(archive::BLOCK as u64) - size;
        io::copy(&mut reader.by_ref().take(filled), &mut io::sink())?;
    }
    match wanted {
        Wanted::List => Ok(()),
        Wanted::Member(member) => Err(StageError::data(format!("there is no file '{member}' in the archive"))),
    }
}

/// Reads a zip archive. Its end says where everything lies, so all of it goes through a temporary
/// file.
fn from_zip(wanted: Wanted, mut reader: Reader, writer: &mut Writer) -> Result<(), StageError> {
    let mut file = TemporaryFile::new(&Account::now())?;
    io::copy(&mut reader, &mut file)?;
    let mut kept = Account::now().memory();
    let members =
        archive::zip_members(&mut file, &mut |bytes| kept.raise(bytes)).map_err(|error| match error.kind() {
            io::ErrorKind::OutOfMemory => StageError::Memory,
            _ => StageError::data(error.to_string()),
        })?;
    let member = match &wanted {
        Wanted::List => {
            for member in members {
                writer.write_all(&member.path)?;
                writer.write_all(b"\n")?;
            }
            return Ok(());
        }
        Wanted::Member(member) => member,
    };
    let is_it = |found: &&Member| matches!(found.kind, Kind::File { .. }) && archive::is_called(&found.path, member);
    let Some(Member { kind: Kind::File { start, stored, network, .. }, .. }) = members.iter().rfind(is_it) else {
        return Err(StageError::data(format!("there is no file '{member}' in the archive")));
    };
    let Some(network) = network else {
        return Err(StageError::data(format!("'{member}' is packed in no way that is known")));
    };
    file.seek(SeekFrom::Start(*start))?;
    let network = crate::Network::parse(network).map_err(|error| StageError::data(error.to_string()))?;
    let mut sources = Once(Some(file.take(*stored)));
    for rope in crate::Run::start(&network, &mut sources).map_err(|error| StageError::data(error.to_string()))? {
        for slice in rope.map_err(|error| StageError::data(error.to_string()))?.slices() {
            writer.write_all(slice)?;
        }
    }
    Ok(())
}

/// Something that is read once.
struct Once(Option<io::Take<TemporaryFile>>);

impl crate::Sources for Once {
    fn input(&mut self) -> io::Result<Box<dyn crate::Source>> {
        Ok(Box::new(crate::Reading(self.0.take().ok_or(io::ErrorKind::NotFound)?)))
    }

    fn file(&mut self, _: usize) -> io::Result<Box<dyn crate::Source>> {
        self.input()
    }
}

/// Deflated data (RFC 1951) without anything around it, as members of zip archives are.
pub(crate) fn inflate(call: &Call) -> Result<Stage, NetworkError> {
    let arguments = Arguments::read(call, "", "c")?;
    arguments.end()?;
    let checksum = arguments.word('c').map(|word| {
        let wrong = |_| NetworkError::new(format!("'{}' is no CRC-32 of 8 hexadecimal digits", word.text), word.at);
        u32::from_str_radix(&word.text, 16).map_err(wrong)
    });
    let checksum = checksum.transpose()?;
    let start = move || Inflating { raw: Decompress::new(false), sum: Crc::new(), checksum, is_done: false };
    Ok(Stage { is_heavy: true, ..Stage::new(start) })
}

struct Inflating {
    raw: Decompress,
    sum: Crc,
    /// Expected checksum.
    checksum: Option<u32>,
    is_done: bool,
}

impl Running for Inflating {
    fn advance(&mut self, input: &mut Input, output: &mut Output) -> Result<Progress, StageError> {
        let mut buffer = [0; 64 << 10];
        while !output.is_full() {
            if self.is_done {
                if input.front().is_some() {
                    return Err(StageError::data("something follows the compressed data"));
                }
                return if input.has_ended() { Ok(Progress::Ended) } else { Ok(Progress::NeedsInput) };
            }
            let Some(front) = input.front().cloned() else {
                return if input.has_ended() {
                    Err(StageError::data("the compressed data is cut off"))
                } else {
                    Ok(Progress::NeedsInput)
                };
            };
            let (before_in, before_out) = (self.raw.total_in(), self.raw.total_out());
            let status = self.raw.decompress(&front, &mut buffer, FlushDecompress::None);
            let status = status.map_err(|error| StageError::data(format!("this is no deflated data: {error}")))?;
            let count = |total: u64, before: u64| usize::try_from(total - before).expect("as there was room for");
            let made = &buffer[..count(self.raw.total_out(), before_out)];
            self.sum.update(made);
            output.write(made);
            drop(front);
            input.skip(count(self.raw.total_in(), before_in));
            if status == Status::StreamEnd {
                self.is_done = true;
                if self.checksum.is_some_and(|checksum| checksum != self.sum.sum()) {
                    return Err(StageError::data("the data is damaged: its checksum is another one"));
                }
            }
        }
        Ok(Progress::HasMore)
    }
}
