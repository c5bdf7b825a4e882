//! All native stages, with what they do in words.

use crate::exported::{command, library, wasm};
use crate::hints::instead_of;
use crate::language::{Call, NetworkError};
use crate::stage::Stage;
use crate::stages::{
    archives, charsets, codecs, encryption, frames, hashes, maps, permuting, records, reversing, selecting, sorting,
    sums, texts,
};

/// A stage that networks can have.
pub struct Entry {
    /// Its name.
    pub name: &'static str,
    /// Its syntax.
    pub usage: &'static str,
    /// Summary in a line.
    pub summary: &'static str,
    /// Exactly what it does.
    pub documentation: &'static str,
    build: fn(&Call) -> Result<Stage, NetworkError>,
}

const fn entry(
    name: &'static str,
    usage: &'static str,
    summary: &'static str,
    documentation: &'static str,
    build: fn(&Call) -> Result<Stage, NetworkError>,
) -> Entry {
    Entry { name, usage, summary, documentation, build }
}

/// All of them, by name.
pub const STAGES: &[Entry] = &[
    entry(
        "base64",
        "base64 [-d]",
        "to base64, or from it",
        "As base64(1): lines of 76 characters (RFC 4648 4). -d passes over white space, and refuses all else that is not base64.",
        texts::base64,
    ),
    entry(
        "blake3",
        "blake3",
        "BLAKE3 of all there is",
        "64 hexadecimal digits and a newline: what b3sum --no-names tells.",
        hashes::blake3,
    ),
    entry(
        "bzip2",
        "bzip2 [-1 … -9 | -d]",
        "compress with bzip2, or decompress",
        "As bzip2(1): level 9 unless another is given. -d reads several streams as one and refuses what is damaged, cut off, or followed by something else.",
        codecs::bzip2,
    ),
    entry(
        "charset",
        "charset [-r] FROM [TO]",
        "from one encoding of text to another",
        "TO is UTF-8 unless given. Encodings have the names and the meaning of the Encoding Standard (latin1 is windows-1252); none is written in UTF-16. A byte order mark goes. What FROM does not know or TO cannot say is an error, or, with -r, becomes U+FFFD or a numeric character reference.",
        charsets::charset,
    ),
    entry(
        "csv-json",
        "csv-json [-d BYTE]",
        "CSV to a JSON object a line",
        "The first record names the fields (RFC 4180); each other becomes an object of strings, and must have as many fields. -d: what stands between fields, a comma unless given; \\t is a tab.",
        records::csv_json,
    ),
    entry(
        "cut",
        "cut -f LIST [-d BYTE] [-s] | cut -b LIST",
        "keep fields or bytes of each line",
        "As cut(1), bytes only: LIST is numbers and ranges such as 1,3-5,7-. Fields are separated by a tab, or by BYTE; lines without it pass whole, or go with -s. A last line without newline gets one.",
        selecting::cut,
    ),
    entry(
        "decrement",
        "decrement [N]",
        "subtract N from each byte",
        "Modulo 256; N is 1 unless given. Keeps length and place.",
        maps::decrement,
    ),
    entry(
        "decrypt",
        "decrypt KEY",
        "decrypt what age or encrypt made",
        "As age(1) -d with the key file called KEY, which lies where the keys of whoever mounts the volume do (--keys) and is for nobody else to read. Refuses what is damaged, cut off, or encrypted for others, by a passphrase or in armour. What it gives is never kept in the volume. Links with it are for whose keys these are to make, and the super-user.",
        encryption::decrypt,
    ),
    entry(
        "encrypt",
        "encrypt KEY",
        "encrypt for a key, as age does",
        "A file of age(1) for the first key in the key file called KEY, as decrypt. The same bytes give the same file: who sees two can tell whether they hold the same. All is read before the first byte comes; more than 16 MiB go through a temporary file, encrypted.",
        encryption::encrypt,
    ),
    entry(
        "exec",
        "exec [-n] [-t SECONDS] COMMAND",
        "any command of the shell",
        "What 'sh -c COMMAND' makes of it: quote it as one word. It runs in namespaces of its own, as a user that is nobody else's where Weft is the super-user's, and is killed with all that it started when it ends or nobody reads it any more. It has no network unless -n asks for the machine's, gains no privileges, has no environment to speak of, and bounds: 2 GiB of memory, an hour of a processor, files of 1 GiB, 512 processes. It may leave input unread. If it ends with another code than 0, or neither takes nor gives anything for 60 seconds, or as many as -t says, that is an error. Links with it are for the super-user to make.",
        command::exec,
    ),
    entry(
        "grep",
        "grep [-i] [-v] [-c | -n | -o] [-m N] REGEX",
        "keep lines that match",
        "REGEX is in the syntax of Rust's regex crate, looked for anywhere in a line; bytes need not be UTF-8, but only characters of UTF-8 are matched by a dot ((?-u:.) matches any byte). -i: whatever the case. -v: lines that do not match. -c: only how many. -n: each with its number. -o: only what matches, a line each. -m: the first N. A last line without newline gets one, as from grep(1).",
        selecting::grep,
    ),
    entry(
        "gzip",
        "gzip [-1 … -9 | -d]",
        "compress with gzip, or decompress",
        "RFC 1952, without name and time, level 6 unless another is given. -d reads several members as one, verifies their checksums, and refuses what is damaged, cut off, or followed by something else.",
        codecs::gzip,
    ),
    entry(
        "head",
        "head [-N | -n N | -c BYTES]",
        "keep the beginning",
        "As head(1): the first 10 lines, N lines or so many bytes, as they are. Nothing after them is read.",
        selecting::head,
    ),
    entry(
        "hex",
        "hex [-d]",
        "to hexadecimal digits, or from them",
        "Two digits for each byte, without newlines. -d takes either case, passes over white space, and refuses all else.",
        texts::hex,
    ),
    entry("identity", "identity", "change nothing", "All bytes as they are, by reference.", maps::identity),
    entry(
        "increment",
        "increment [N]",
        "add N to each byte",
        "Modulo 256; N is 1 unless given. Keeps length and place.",
        maps::increment,
    ),
    entry(
        "inflate",
        "inflate [-c CRC32]",
        "decompress raw deflated data",
        "Deflated data without anything around it (RFC 1951), as zip archives hold it. Refuses what is damaged, cut off, or followed by something else; -c: also what has another checksum, in 8 hexadecimal digits.",
        archives::inflate,
    ),
    entry(
        "json-csv",
        "json-csv [-d BYTE] [FIELD …]",
        "a JSON object a line to CSV",
        "The fields named, or those of the first object, in its order; what an object does not have is empty, what is no string is written as JSON. The first record names the fields. -d: what stands between fields, a comma unless given.",
        records::json_csv,
    ),
    entry(
        "json-format",
        "json-format [-c]",
        "lay JSON out anew",
        "Each line's value, indented as jq(1) does; -c: on one line, without blanks. Numbers stay as they were written, fields in their order.",
        records::json_format,
    ),
    entry(
        "json-select",
        "json-select [-r] PATH …",
        "pick parts of a JSON value a line",
        "Of each line's value what lies at PATH, such as .name, .list[0].name, or . for all of it; null if nothing does; of several paths a list. -r: a string as it is, without quotes. As jq -c.",
        records::json_select,
    ),
    entry(
        "library",
        "library [-l | -p] [-m MIB] [-t SECONDS] [-u NETWORK] $FILE [ARGUMENT …]",
        "a shared library of yours",
        "FILE holds a library that exports what docs/reference/abi.md tells of; it runs in a process of its own that can do nothing but compute, and needs a kernel with Landlock and seccomp. -l: it gives as many bytes as it takes. -p: each byte follows from the one at the same place alone. What gives more or fewer bytes then is an error. -u: what undoes it. It has 64 MiB of memory, or as many as -m says, and 10 seconds for a piece of 256 KiB, or as many as -t says. Links with it are for the super-user to make.",
        library::library,
    ),
    entry(
        "lower",
        "lower",
        "capital letters become small",
        "The letters of ASCII alone. Keeps length and place.",
        maps::lower,
    ),
    entry(
        "lz4",
        "lz4 [-d]",
        "compress with lz4, or decompress",
        "As lz4(1): frames with a checksum of their content. -d reads several frames as one, and refuses what is damaged, cut off, or followed by something else.",
        frames::lz4,
    ),
    entry(
        "newline",
        "newline unix | newline dos",
        "end lines with LF, or with CR LF",
        "unix takes the carriage return away before each newline, dos adds one where there is none. A last line without newline stays as it is.",
        charsets::newline,
    ),
    entry(
        "nl",
        "nl",
        "number lines",
        "As nl(1): six digits and a tab before each line that has any bytes; seven blanks before those that have none.",
        selecting::nl,
    ),
    entry(
        "permute",
        "permute [-w BYTES] TEXT",
        "all orders of the words of a text",
        "TEXT is 1 to 16 words of 8 bytes (-w: of so many). Each order of them comes once, without anything between: 80 bytes give 290304000. They ascend by the places that words have in TEXT. What the stage gets is not looked at.",
        permuting::permute,
    ),
    entry(
        "replace",
        "replace [-i] REGEX TEXT",
        "put TEXT in the place of what matches",
        "In each line, all matches that do not overlap, from the left. In TEXT $1 and ${name} stand for groups, $$ for a dollar. REGEX as for grep.",
        selecting::replace,
    ),
    entry(
        "rev",
        "rev",
        "turn each line round",
        "The characters of each line in the opposite order, as rev(1); its bytes where it is not UTF-8. Keeps length.",
        reversing::rev,
    ),
    entry(
        "rot13",
        "rot13",
        "turn letters by 13 places",
        "The letters of ASCII alone; what undoes it is itself. Keeps length and place.",
        maps::rot13,
    ),
    entry(
        "sha256",
        "sha256",
        "SHA-256 of all there is",
        "64 hexadecimal digits and a newline: what sha256sum tells, without the name.",
        hashes::sha256,
    ),
    entry(
        "sort",
        "sort [-n] [-r] [-u]",
        "sort lines",
        "As sort(1) in the C locale, by bytes; -n: by the number that they begin with, of any length; -r: the other way round; -u: of equal ones the first. More than 64 MiB of lines go through temporary files.",
        sorting::sort,
    ),
    entry(
        "sum",
        "sum [-r | -s]",
        "a checksum of 16 bits, and the number of blocks",
        "As sum(1) of its standard input: BSD's and blocks of 1024 bytes, or with -s System V's and blocks of 512.",
        sums::sum,
    ),
    entry(
        "tac",
        "tac",
        "lines in the opposite order",
        "As tac(1): a last line without newline comes first and stays without. More than 64 MiB go through a temporary file. Keeps length.",
        reversing::tac,
    ),
    entry(
        "tail",
        "tail [-N | -n N | -c BYTES]",
        "keep the end",
        "As tail(1): the last 10 lines, N lines or so many bytes, as they are, held in memory; or with +N all from line (or byte) N on.",
        selecting::tail,
    ),
    entry(
        "tar",
        "tar list | tar member PATH",
        "one file of a tar archive, or the names in it",
        "As tar(1) -xO and -t: the first member that is a file called PATH; the names of all, a line each. Nothing after the member is read.",
        archives::tar,
    ),
    entry(
        "tr",
        "tr FROM TO | tr -d FROM",
        "replace bytes one by one, or delete them",
        "As tr(1) in the C locale: FROM and TO are bytes, ranges such as a-z, classes such as [:lower:], bytes in octal such as \\012, and \\n \\t \\r \\a \\b \\f \\v \\\\; a shorter TO goes on with its last byte. Replacing keeps length and place, and is undone where no two bytes become the same.",
        maps::tr,
    ),
    entry(
        "uniq",
        "uniq [-c] [-d | -u]",
        "keep one of equal neighbours",
        "As uniq(1): -c with how many there were, -d only lines that came several times, -u only those that came once. A last line without newline gets one.",
        selecting::uniq,
    ),
    entry(
        "upper",
        "upper",
        "small letters become capital",
        "The letters of ASCII alone. Keeps length and place.",
        maps::upper,
    ),
    entry(
        "wasm",
        "wasm [-l | -p] [-m MIB] [-t SECONDS] [-u NETWORK] $FILE [ARGUMENT …]",
        "a WebAssembly module of yours",
        "FILE holds a module that exports what docs/reference/abi.md tells of: it reaches nothing but the bytes that it is given. -l: it gives as many bytes as it takes. -p: each byte follows from the one at the same place alone. What gives more or fewer bytes then is an error. -u: what undoes it. It has 64 MiB of memory, or as many as -m says, and 10 seconds for a piece of 64 KiB, or as many as -t says. Links with it are for the super-user to make.",
        wasm::wasm,
    ),
    entry(
        "wc",
        "wc [-l] [-w] [-c]",
        "count lines, words, bytes",
        "As wc(1) of a pipe in the C locale: newlines, runs of bytes that are not white space, bytes. One count is told as it is, several in columns of seven.",
        selecting::wc,
    ),
    entry(
        "xor",
        "xor N",
        "combine each byte with N by exclusive or",
        "N is from 0 to 255; what undoes it is itself. Keeps length and place.",
        maps::xor,
    ),
    entry(
        "xz",
        "xz [-0 … -9 | -d]",
        "compress with xz, or decompress",
        "As xz(1), checked by CRC64, level 6 unless another is given. -d reads several streams as one, takes 100 MiB of memory at most, and refuses what is damaged, cut off, or followed by something else.",
        codecs::xz,
    ),
    entry(
        "zip",
        "zip list | zip member PATH",
        "one file of a zip archive, or the names in it",
        "As unzip(1) -p and zipinfo(1) -1. The archive goes through a temporary file, as where things lie is told at its end. Members that are encrypted, or packed otherwise than by deflate, bzip2, zstd or xz, cannot be had.",
        archives::zip,
    ),
    entry(
        "zstd",
        "zstd [-1 … -19 | -d]",
        "compress with Zstandard, or decompress",
        "As zstd(1), level 3 unless another is given. -d reads several frames as one, takes frames with windows of up to 128 MiB, and refuses what is damaged, cut off, or followed by something else.",
        codecs::zstd,
    ),
];

/// Names that fork and join networks. They are no stages.
pub const JOINS: &[&str] = &["concat", "interleave", "merge", "tee", "zip"];

/// The stage called `name`.
pub fn find(name: &str) -> Option<&'static Entry> {
    STAGES.iter().find(|entry| entry.name == name)
}

pub(crate) fn build(call: &Call) -> Result<Stage, NetworkError> {
    let unknown = || {
        let name = &call.name.text;
        let message = format!("there is no stage '{name}' ({})", instead_of(name));
        NetworkError::new(message, call.name.at)
    };
    (find(&call.name.text).ok_or_else(unknown)?.build)(call)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_in_order_and_usages_begin_with_them() {
        assert!(STAGES.is_sorted_by_key(|entry| entry.name));
        for entry in STAGES {
            assert!(entry.usage.split(' ').next() == Some(entry.name), "{}", entry.name);
            assert!(entry.summary.len() < 60 && entry.documentation.ends_with('.'), "{}", entry.name);
        }
    }
}
