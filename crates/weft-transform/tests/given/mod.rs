//! Input of a network that takes code as its file $1, and its output for that.

use std::io;
use weft_block::Slice;
use weft_transform::{Network, Run, RunError, Source, Sources};

/// Bytes in pieces, and then code as file $1.
struct Given {
    pieces: Vec<Vec<u8>>,
    code: Vec<u8>,
}

struct Pieces(std::vec::IntoIter<Vec<u8>>);

impl Source for Pieces {
    fn next(&mut self) -> io::Result<Option<Slice>> {
        Ok(self.0.next().map(Slice::from))
    }
}

impl Sources for Given {
    fn input(&mut self) -> io::Result<Box<dyn Source>> {
        Ok(Box::new(Pieces(self.pieces.clone().into_iter())))
    }

    fn file(&mut self, number: usize) -> io::Result<Box<dyn Source>> {
        assert_eq!(number, 0);
        Ok(Box::new(Pieces(vec![self.code.clone()].into_iter())))
    }
}

/// Returns the output of `network` for `input`, given in pieces of `piece` bytes.
pub fn run_bytes(network: &str, code: &[u8], input: &[u8], piece: usize) -> Result<Vec<u8>, RunError> {
    let network = Network::parse(network).expect("a network");
    let pieces = input.chunks(piece).map(<[u8]>::to_vec).collect();
    let mut made = Vec::new();
    for rope in Run::start(&network, &mut Given { pieces, code: code.to_vec() })? {
        made.extend(rope?.to_vec());
    }
    Ok(made)
}
