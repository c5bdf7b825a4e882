//! Hashes of all there is: blake3, sha256. As hexadecimal digits, with a newline.

use crate::arguments::Arguments;
use crate::flow::{Input, Output};
use crate::language::{Call, NetworkError};
use crate::stage::{Progress, Running, Shape, Stage, StageError};
use data_encoding::HEXLOWER;
use sha2::{Digest, Sha256};

/// Something that is given all bytes and then tells.
trait Hash: Send {
    fn update(&mut self, bytes: &[u8]);
    fn tell(&self) -> [u8; 32];
}

impl Hash for blake3::Hasher {
    fn update(&mut self, bytes: &[u8]) {
        self.update(bytes);
    }

    fn tell(&self) -> [u8; 32] {
        *self.finalize().as_bytes()
    }
}

impl Hash for Sha256 {
    fn update(&mut self, bytes: &[u8]) {
        Digest::update(self, bytes);
    }

    fn tell(&self) -> [u8; 32] {
        self.clone().finalize().into()
    }
}

struct Hashing<H>(H);

impl<H: Hash> Running for Hashing<H> {
    fn advance(&mut self, input: &mut Input, output: &mut Output) -> Result<Progress, StageError> {
        while let Some(slice) = input.take() {
            self.0.update(&slice);
        }
        if !input.has_ended() {
            return Ok(Progress::NeedsInput);
        }
        output.write(HEXLOWER.encode(&self.0.tell()).as_bytes());
        output.write(b"\n");
        Ok(Progress::Ended)
    }
}

fn stage<H: Hash + 'static>(call: &Call, hash: fn() -> H) -> Result<Stage, NetworkError> {
    Arguments::read(call, "", "")?.end()?;
    Ok(Stage { gives: |_| Shape::Encoded, ..Stage::new(move || Hashing(hash())) })
}

pub(crate) fn blake3(call: &Call) -> Result<Stage, NetworkError> {
    stage(call, blake3::Hasher::new)
}

pub(crate) fn sha256(call: &Call) -> Result<Stage, NetworkError> {
    stage(call, Sha256::new)
}
