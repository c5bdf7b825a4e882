//! `weft wc`: as wc(1), of bytes as in POSIX's locale.

use super::each_file;
use crate::arguments::Wc;
use crate::input::{Input, STANDARD_INPUT};
use crate::shown;
use rustix::fs::{FileType, fstat, stat};
use std::ffi::{OsStr, OsString};
use std::io;
use std::os::fd::AsFd;
use std::process::ExitCode;
use weft_attributes::Attribute;
use weft_block::counting::{self, Words};
use weft_vfs::COUNTS_BYTES;

/// Width of columns if an input has no length.
const WIDTH_UNKNOWN: usize = 7;

/// Counts of a file, or of all.
#[derive(Clone, Copy, Default)]
struct Counts {
    lines: u64,
    words: u64,
    bytes: u64,
}

/// Prints the counts of each file, and of all if they are several.
pub fn wc(arguments: &Wc) -> ExitCode {
    let all = !(arguments.lines || arguments.words || arguments.bytes);
    let told = [all || arguments.lines, all || arguments.words, all || arguments.bytes];
    let is_alone = arguments.files.len() < 2 && told.iter().filter(|told| **told).count() == 1;
    let width = if is_alone { 1 } else { width(&arguments.files) };
    let print = |counts: &Counts, name: Option<&OsStr>| {
        let counts = [counts.lines, counts.words, counts.bytes].into_iter().zip(told).filter(|(_, told)| *told);
        let columns: Vec<String> = counts.map(|(count, _)| format!("{count:width$}")).collect();
        let name = name.map_or(String::new(), |name| format!(" {}", shown::path(name.as_ref())));
        outln!("{}{name}", columns.join(" "));
    };
    let mut total = Counts::default();
    let code = each_file("wc", &arguments.files, |file| {
        let opened = Input::open(file)?;
        let kept = opened.lent().filter(|_| !arguments.recount).and_then(kept);
        let (counts, counted) = match kept {
            Some(counts) => (counts, Ok(())),
            None => count(opened, told),
        };
        // The part that could be read is printed in any case.
        print(&counts, (!arguments.files.is_empty()).then_some(file));
        total = Counts {
            lines: total.lines + counts.lines,
            words: total.words + counts.words,
            bytes: total.bytes + counts.bytes,
        };
        counted
    });
    if arguments.files.len() > 1 {
        print(&total, Some(OsStr::new("total")));
    }
    code
}

/// Returns the volume's stored or computed counts of a file; none if it gives none. The volume
/// stores them with the blocks that it counted.
fn kept(file: impl AsFd) -> Option<Counts> {
    let mut all = counting::Counts::default();
    loop {
        let mut value = [0; 128];
        let name = Attribute::Counts { offset: all.bytes }.name();
        let len = rustix::fs::fgetxattr(&file, name, &mut value).ok()?;
        let next: counting::Counts = std::str::from_utf8(&value[..len]).ok()?.parse().ok()?;
        all = all.then(next);
        if next.bytes < COUNTS_BYTES {
            return Some(Counts { lines: all.lines, words: all.words, bytes: all.bytes });
        }
    }
}

/// Counts lines, words and bytes of a file, as far as they are wanted.
fn count(file: Input, told: [bool; 3]) -> (Counts, io::Result<()>) {
    let (mut counts, mut words) = (Counts::default(), Words::default());
    let counted = file.each(|piece| {
        counts.bytes += piece.len() as u64;
        counts.lines += match told {
            [_, true, _] => words.add(piece),
            [true, ..] => counting::lines(piece),
            _ => 0,
        };
    });
    counts.words = words.begun;
    (counts, counted)
}

/// Returns the width of columns: that of the length of all files, and no less than seven if an
/// input has none.
fn width(files: &[OsString]) -> usize {
    let standard_input = [OsString::from(STANDARD_INPUT)];
    let files = if files.is_empty() { &standard_input } else { files };
    let looks = files.iter().map(|file| if file == STANDARD_INPUT { fstat(std::io::stdin()) } else { stat(file) });
    let (mut bytes, mut least) = (0, 1);
    for look in looks.flatten() {
        if FileType::from_raw_mode(look.st_mode) == FileType::RegularFile {
            bytes += look.st_size;
        } else {
            least = WIDTH_UNKNOWN;
        }
    }
    bytes.to_string().len().max(least)
}
