//! Encodings of text: charset, newline.

use super::lines::{ByLine, Fate, Line, Lines};
use crate::arguments::Arguments;
use crate::flow::{Input, Output};
use crate::language::{Call, NetworkError, Word};
use crate::stage::{Progress, Running, Shape, Stage, StageError};
use encoding_rs::{Decoder, DecoderResult, Encoder, EncoderResult, Encoding, UTF_8};

/// Bytes of text made at once.
const TEXT_BYTES: usize = 16 << 10;

/// The encoding that a word names.
fn encoding(word: &Word) -> Result<&'static Encoding, NetworkError> {
    let unknown = || NetworkError::new(format!("there is no encoding '{}'", word.text), word.at);
    Encoding::for_label(word.text.as_bytes()).ok_or_else(unknown)
}

/// charset: from one encoding to text, and on to another.
struct Charset {
    from: &'static Encoding,
    to: &'static Encoding,
    decoder: Decoder,
    encoder: Encoder,
    /// True if characters that cannot be encoded are replaced by a substitute.
    replaces: bool,
    /// Bytes taken.
    at: u64,
}

impl Charset {
    /// Decodes some of `bytes`: how many, and whether all is over.
    fn decode(&mut self, bytes: &[u8], is_last: bool, text: &mut String) -> Result<(usize, bool), StageError> {
        if self.replaces {
            let (result, taken, _) = self.decoder.decode_to_string(bytes, text, is_last);
            return Ok((taken, result == encoding_rs::CoderResult::InputEmpty && is_last));
        }
        let (result, taken) = self.decoder.decode_to_string_without_replacement(bytes, text, is_last);
        match result {
            DecoderResult::InputEmpty => Ok((taken, is_last)),
            DecoderResult::OutputFull => Ok((taken, false)),
            DecoderResult::Malformed(..) => {
                let at = self.at + taken as u64;
                Err(StageError::data(format!("what ends at byte {at} is not {}", self.from.name())))
            }
        }
    }

    /// Encodes all of `text`.
    fn encode(&mut self, mut text: &str, is_last: bool, output: &mut Output) -> Result<(), StageError> {
        if self.to == UTF_8 {
            output.write(text.as_bytes());
            return Ok(());
        }
        let mut bytes = [0; 4096];
        loop {
            let (is_over, taken, made) = if self.replaces {
                let (result, taken, made, _) = self.encoder.encode_from_utf8(text, &mut bytes, is_last);
                (result == encoding_rs::CoderResult::InputEmpty, taken, made)
            } else {
                let (result, taken, made) =
                    self.encoder.encode_from_utf8_without_replacement(text, &mut bytes, is_last);
                if let EncoderResult::Unmappable(unknown) = result {
                    return Err(StageError::data(format!("{} has no '{unknown}'", self.to.name())));
                }
                (result == EncoderResult::InputEmpty, taken, made)
            };
            output.write(&bytes[..made]);
            text = &text[taken..];
            if is_over {
                return Ok(());
            }
        }
    }
}

impl Running for Charset {
    fn advance(&mut self, input: &mut Input, output: &mut Output) -> Result<Progress, StageError> {
        let mut text = String::with_capacity(TEXT_BYTES);
        loop {
            if output.is_full() {
                return Ok(Progress::HasMore);
            }
            let front = input.front().cloned();
            let bytes = front.as_deref().unwrap_or_default();
            let is_last = input.ends_with(bytes.len());
            if bytes.is_empty() && !is_last {
                return Ok(Progress::NeedsInput);
            }
            let (taken, is_over) = self.decode(bytes, is_last, &mut text)?;
            self.at += taken as u64;
            drop(front);
            input.skip(taken);
            self.encode(&text, is_over, output)?;
            text.clear();
            if is_over {
                return Ok(Progress::Ended);
            }
        }
    }
}

pub(crate) fn charset(call: &Call) -> Result<Stage, NetworkError> {
    let mut arguments = Arguments::read(call, "r", "")?;
    let from = encoding(arguments.operand("the encoding that there is")?)?;
    let target = arguments.optional();
    arguments.end()?;
    let to = target.map(encoding).transpose()?.unwrap_or(UTF_8);
    if let Some(word) = target.filter(|_| to.output_encoding() != to) {
        return Err(NetworkError::new(format!("nothing is written in {}", to.name()), word.at));
    }
    let replaces = arguments.has('r');
    let start = move || {
        let (decoder, encoder) = (from.new_decoder_with_bom_removal(), to.new_encoder());
        Charset { from, to, decoder, encoder, replaces, at: 0 }
    };
    Ok(Stage { gives: |_| Shape::Text, ..Stage::new(start) })
}

/// newline: how lines end.
#[derive(Clone, Copy)]
enum Newline {
    Unix,
    Dos,
}

impl Lines for Newline {
    fn passes_over(&self, _: &[u8]) -> usize {
        0
    }

    fn line(&mut self, line: Line<'_>, instead: &mut Vec<u8>) -> Fate {
        let text = line.text.strip_suffix(b"\r");
        match (self, text) {
            (Newline::Unix, Some(text)) if line.has_newline => {
                instead.extend_from_slice(text);
                instead.push(b'\n');
                Fate::Drop
            }
            (Newline::Dos, None) if line.has_newline => {
                instead.extend_from_slice(line.text);
                instead.extend_from_slice(b"\r\n");
                Fate::Drop
            }
            _ => Fate::PassAsIs,
        }
    }

    fn end(&mut self, _: &mut Vec<u8>) {}
}

pub(crate) fn newline(call: &Call) -> Result<Stage, NetworkError> {
    let mut arguments = Arguments::read(call, "", "")?;
    let word = arguments.operand("unix or dos")?;
    arguments.end()?;
    let newline = match word.text.as_str() {
        "unix" => Newline::Unix,
        "dos" => Newline::Dos,
        other => return Err(NetworkError::new(format!("'{other}' is neither unix nor dos"), word.at)),
    };
    Ok(Stage::of_text(move || ByLine::new(newline)))
}
