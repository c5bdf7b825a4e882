//! Counts the lines of a file, slice by slice where they lie: `cargo run --example lines -- FILE`.

use std::io::{Error, ErrorKind};
use std::path::Path;
use weft_client::File;

/// Bytes that are read at once.
const READ_BYTES: usize = 1 << 20;

fn main() -> std::io::Result<()> {
    let Some(path) = std::env::args_os().nth(1) else {
        return Err(Error::new(ErrorKind::InvalidInput, "name one file"));
    };
    let file = File::open(Path::new(&path))?;
    let (mut lines, mut offset) = (0, 0);
    loop {
        let rope = file.read(offset, READ_BYTES)?;
        if rope.is_empty() {
            break;
        }
        let newlines = |bytes: &[u8]| bytes.iter().filter(|byte| **byte == b'\n').count();
        lines += rope.slices().iter().map(|slice| newlines(slice)).sum::<usize>();
        offset += rope.len() as u64;
    }
    println!("{lines}");
    Ok(())
}
