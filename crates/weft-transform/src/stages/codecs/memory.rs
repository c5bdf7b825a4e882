//! Memory that codecs take: it counts for the network before it is taken.

use super::Codec;
use crate::account::{Account, InMemory};
use crate::stage::StageError;

const MIB: usize = 1 << 20;

/// MiB that a compressor of xz takes at each level (xz(1), `CompMem`).
const XZ_MIB: [usize; 10] = [3, 9, 17, 32, 48, 94, 94, 186, 370, 674];

/// MiB that a compressor of zstd takes at each level from 1 on: its window and its tables.
const ZSTD_MIB: [usize; 19] = [2, 3, 4, 6, 7, 7, 10, 10, 19, 34, 34, 62, 38, 54, 70, 40, 60, 60, 94];

/// The same of bzip2, for blocks of 100 kB (bzip2(1), "MEMORY MANAGEMENT").
const BZIP2_BYTES: (usize, usize) = (400_000, 800_000);

/// Bytes that a compressor `name` of a level takes; 0 of those that take little.
pub(super) fn encoder(name: &str, level: u32) -> usize {
    let level = level as usize;
    match name {
        "xz" => XZ_MIB.get(level).copied().unwrap_or_default() * MIB,
        "zstd" => ZSTD_MIB.get(level.wrapping_sub(1)).copied().unwrap_or_default() * MIB,
        "bzip2" => BZIP2_BYTES.0 + level * BZIP2_BYTES.1,
        _ => 0,
    }
}

/// Bytes that a decompressor of bzip2 takes whatever it reads; what depends on that those of other
/// formats count themselves.
pub(super) const BZIP2_DECODER_BYTES: usize = BZIP2_BYTES.0 + 9 * BZIP2_BYTES.1 / 2;

/// Asked for the bytes of memory that a decoder takes in all, before it takes them; false: those
/// are too many.
pub(crate) type Room = Box<dyn FnMut(usize) -> bool + Send>;

/// Room that counts for the network that this thread runs.
pub(super) fn counted() -> Room {
    let mut memory = Account::now().memory();
    Box::new(move |bytes| memory.raise(bytes))
}

/// A codec that is made when there is memory for it.
pub(super) struct Charged<C> {
    make: Box<dyn FnMut() -> C + Send>,
    codec: Option<C>,
    bytes: usize,
    account: Account,
    /// Dropped after the codec.
    memory: InMemory,
}

impl<C: Codec> Charged<C> {
    /// Creates one whose codec takes so many `bytes`.
    pub(super) fn new(bytes: usize, make: impl FnMut() -> C + Send + 'static) -> Charged<C> {
        let account = Account::now();
        let memory = account.memory();
        Charged { make: Box::new(make), codec: None, bytes, account, memory }
    }

    /// The codec. `Memory`.
    pub(super) fn get(&mut self) -> Result<&mut C, StageError> {
        if self.codec.is_none() {
            if !self.memory.raise(self.bytes) {
                return Err(StageError::Memory);
            }
            // What it takes later counts for the same network.
            self.codec = Some(self.account.clone().during(&mut self.make));
        }
        Ok(self.codec.as_mut().expect("it was just made"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use zstd::zstd_safe::{CCtx, CParameter, InBuffer, OutBuffer};

    #[test]
    fn compressors_of_zstd_take_no_more_than_is_counted() {
        for level in 1..=19 {
            let mut context = CCtx::create();
            context.set_parameter(CParameter::CompressionLevel(level)).expect("a level");
            let (text, mut room) = ([b'x'; 4096], [0; 1024]);
            let mut output = OutBuffer::around(&mut room[..]);
            context.compress_stream(&mut output, &mut InBuffer::around(&text)).expect("compressed");
            let counted = encoder("zstd", level.unsigned_abs());
            assert!(context.sizeof() <= counted, "level {level}: {} of {counted}", context.sizeof());
        }
    }
}
