//! Bytes as text, both ways: base64, hex.

use crate::arguments::Arguments;
use crate::flow::{Input, Output};
use crate::language::{Call, NetworkError};
use crate::stage::{Progress, Running, Shape, Stage, StageError, Wants};
use data_encoding::{BASE64, Encoding, HEXLOWER, HEXLOWER_PERMISSIVE};

/// Bytes in a line of base64: 57 give 76 characters, as base64(1) has it.
const LINE_BYTES: usize = 57;

/// Makes text of bytes, so many of them at a time.
struct Encode {
    encoding: Encoding,
    group: usize,
    /// Bytes that follow each group.
    after: &'static [u8],
    begun: Vec<u8>,
}

impl Encode {
    fn write(&self, bytes: &[u8], output: &mut Output) {
        output.write(self.encoding.encode(bytes).as_bytes());
        output.write(self.after);
    }
}

impl Running for Encode {
    fn advance(&mut self, input: &mut Input, output: &mut Output) -> Result<Progress, StageError> {
        while let Some(slice) = input.front().cloned() {
            if output.is_full() {
                return Ok(Progress::HasMore);
            }
            let wanted = self.group - self.begun.len();
            if !self.begun.is_empty() || slice.len() < wanted {
                let taken = wanted.min(slice.len());
                self.begun.extend_from_slice(&slice[..taken]);
                drop(slice);
                input.skip(taken);
                if self.begun.len() == self.group {
                    let group = std::mem::take(&mut self.begun);
                    self.write(&group, output);
                }
                continue;
            }
            let mut taken = 0;
            for group in slice.chunks_exact(self.group) {
                self.write(group, output);
                taken += group.len();
                if output.is_full() {
                    break;
                }
            }
            drop(slice);
            input.skip(taken);
        }
        if !input.has_ended() {
            return Ok(Progress::NeedsInput);
        }
        if !self.begun.is_empty() {
            let rest = std::mem::take(&mut self.begun);
            self.write(&rest, output);
        }
        Ok(Progress::Ended)
    }
}

/// Makes bytes of text, so many characters at a time; white space between them is passed over.
struct Decode {
    encoding: Encoding,
    name: &'static str,
    group: usize,
    begun: Vec<u8>,
}

impl Decode {
    fn decode(&mut self, output: &mut Output) -> Result<(), StageError> {
        let text = std::mem::take(&mut self.begun);
        if text.is_empty() {
            return Ok(());
        }
        let bytes = self.encoding.decode(&text);
        output.write(&bytes.map_err(|_| StageError::data(format!("this is no {}", self.name)))?);
        Ok(())
    }
}

impl Running for Decode {
    fn advance(&mut self, input: &mut Input, output: &mut Output) -> Result<Progress, StageError> {
        while let Some(slice) = input.take() {
            for byte in slice.iter().filter(|byte| !byte.is_ascii_whitespace()) {
                self.begun.push(*byte);
                if self.begun.len() == self.group {
                    self.decode(output)?;
                }
            }
        }
        if !input.has_ended() {
            return Ok(Progress::NeedsInput);
        }
        self.decode(output)?;
        Ok(Progress::Ended)
    }
}

fn stage(
    call: &Call,
    encode: impl Fn() -> Encode + Send + Sync + 'static,
    decode: impl Fn() -> Decode + Send + Sync + 'static,
) -> Result<Stage, NetworkError> {
    let arguments = Arguments::read(call, "d", "")?;
    arguments.end()?;
    let name = &call.name.text;
    if arguments.has('d') {
        return Ok(Stage { wants: Wants::Lines, inverse: Some(name.clone()), ..Stage::new(decode) });
    }
    Ok(Stage { gives: |_| Shape::Encoded, inverse: Some(format!("{name} -d")), ..Stage::new(encode) })
}

pub(crate) fn base64(call: &Call) -> Result<Stage, NetworkError> {
    let encode = || Encode { encoding: BASE64, group: LINE_BYTES, after: b"\n", begun: Vec::new() };
    let decode = || Decode { encoding: BASE64, name: "base64", group: 4096, begun: Vec::new() };
    stage(call, encode, decode)
}

pub(crate) fn hex(call: &Call) -> Result<Stage, NetworkError> {
    let encode = || Encode { encoding: HEXLOWER, group: 4096, after: b"", begun: Vec::new() };
    let decode = || Decode { encoding: HEXLOWER_PERMISSIVE, name: "hexadecimal", group: 4096, begun: Vec::new() };
    stage(call, encode, decode)
}
