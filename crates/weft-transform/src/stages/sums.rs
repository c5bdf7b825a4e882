//! sum: the checksums of sum(1).

use crate::arguments::Arguments;
use crate::flow::{Input, Output};
use crate::language::{Call, NetworkError};
use crate::stage::{Progress, Running, Shape, Stage, StageError};

/// A checksum of 16 bits, and how many blocks it is of.
#[derive(Clone, Copy, Debug)]
pub enum Sum {
    /// BSD's: the sum is rotated before each byte is added; blocks of 1024 bytes.
    Rotated {
        /// The sum so far.
        sum: u16,
        /// The bytes so far.
        bytes: u64,
    },
    /// System V's: the sum of all bytes, its overflow added; blocks of 512 bytes.
    Plain {
        /// The sum so far.
        sum: u32,
        /// The bytes so far.
        bytes: u64,
    },
}

impl Sum {
    /// BSD's, of nothing.
    pub fn rotated() -> Sum {
        Sum::Rotated { sum: 0, bytes: 0 }
    }

    /// System V's, of nothing.
    pub fn plain() -> Sum {
        Sum::Plain { sum: 0, bytes: 0 }
    }

    /// Adds the next `more` bytes.
    pub fn add(&mut self, more: &[u8]) {
        match self {
            Sum::Rotated { sum, bytes } => {
                *bytes += more.len() as u64;
                *sum = more.iter().fold(*sum, |sum, byte| sum.rotate_right(1).wrapping_add(u16::from(*byte)));
            }
            Sum::Plain { sum, bytes } => {
                *bytes += more.len() as u64;
                *sum = more.iter().fold(*sum, |sum, byte| sum.wrapping_add(u32::from(*byte)));
            }
        }
    }

    /// As sum(1) writes it, without a name.
    pub fn tell(&self) -> String {
        match *self {
            Sum::Rotated { sum, bytes } => format!("{sum:05} {:5}", bytes.div_ceil(1024)),
            Sum::Plain { sum, bytes } => {
                let once = (sum & 0xffff) + (sum >> 16);
                format!("{} {}", (once & 0xffff) + (once >> 16), bytes.div_ceil(512))
            }
        }
    }
}

impl Running for Sum {
    fn advance(&mut self, input: &mut Input, output: &mut Output) -> Result<Progress, StageError> {
        while let Some(slice) = input.take() {
            self.add(&slice);
        }
        if !input.has_ended() {
            return Ok(Progress::NeedsInput);
        }
        output.write(format!("{}\n", self.tell()).as_bytes());
        Ok(Progress::Ended)
    }
}

pub(crate) fn sum(call: &Call) -> Result<Stage, NetworkError> {
    let arguments = Arguments::read(call, "rs", "")?;
    arguments.end()?;
    let sum = if arguments.has('s') { Sum::plain() } else { Sum::rotated() };
    Ok(Stage { gives: |_| Shape::Text, ..Stage::new(move || sum) })
}
