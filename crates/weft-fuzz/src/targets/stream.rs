//! Streams of volumes: their frames, and the records in whole frames.
use weft_store::stream::{Incoming, fuzzing};

/// Takes any bytes as what this is about.
pub fn run(bytes: &[u8]) {
    drop(Incoming::open(bytes));
    drop(fuzzing::receive(bytes));
}
