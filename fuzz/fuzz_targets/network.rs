//! Any text as a network, and if it is one, run on some bytes: the text up to the first NUL, then the bytes.
#![no_main]

use libfuzzer_sys::fuzz_target;
use std::io;
use weft_fuzz::OUTPUT_BYTES_MAX;
use weft_transform::{Network, Reading, Run, Source, Sources};

/// The same bytes for whoever asks.
struct Given<'a>(&'a [u8]);

impl Sources for Given<'_> {
    fn input(&mut self) -> io::Result<Box<dyn Source>> {
        Ok(Box::new(Reading(io::Cursor::new(self.0.to_vec()))))
    }

    fn file(&mut self, _: usize) -> io::Result<Box<dyn Source>> {
        self.input()
    }
}

fuzz_target!(|bytes: &[u8]| {
    let end = bytes.iter().position(|byte| *byte == 0).unwrap_or(bytes.len());
    let Ok(text) = std::str::from_utf8(&bytes[..end]) else { return };
    let Ok(network) = Network::parse(text) else { return };
    if network.is_exported() {
        // Commands of anybody's are not to be run.
        return;
    }
    let mut given = Given(bytes.get(end + 1..).unwrap_or_default());
    let Ok(run) = Run::start(&network, &mut given) else { return };
    let mut made = 0;
    for rope in run {
        let Ok(rope) = rope else { return };
        made += rope.len();
        // A few bytes may stand for very many.
        if made > OUTPUT_BYTES_MAX {
            return;
        }
    }
});
