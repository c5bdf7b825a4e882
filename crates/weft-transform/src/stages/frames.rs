//! lz4, both ways: frames as lz4(1) writes them (LZ4 Frame Format 1.6).

use crate::arguments::Arguments;
use crate::language::{Call, NetworkError};
use crate::stage::{Shape, Stage, StageError};
use crate::threaded::{Reader, Threaded, Writer};
use lz4_flex::frame::{BlockSize, FrameDecoder, FrameEncoder, FrameInfo};
use std::io::{self, BufRead, Write};

pub(crate) fn lz4(call: &Call) -> Result<Stage, NetworkError> {
    let arguments = Arguments::read(call, "d", "")?;
    arguments.end()?;
    Ok(if arguments.has('d') {
        Stage { inverse: Some("lz4".into()), ..Stage::new(|| Threaded::new(decompress)) }
    } else {
        let inverse = Some("lz4 -d".into());
        Stage { inverse, gives: |_| Shape::Binary, ..Stage::new(|| Threaded::new(compress)) }
    })
}

fn compress(mut reader: Reader, writer: &mut Writer) -> Result<(), StageError> {
    let info = FrameInfo::new().block_size(BlockSize::Max4MB).content_checksum(true);
    let mut encoder = FrameEncoder::with_frame_info(info, writer);
    io::copy(&mut reader, &mut encoder)?;
    encoder.finish().map_err(|error| StageError::data(format!("cannot compress: {error}")))?;
    Ok(())
}

fn decompress(mut reader: Reader, writer: &mut Writer) -> Result<(), StageError> {
    let wrong = |error: io::Error| match error.kind() {
        io::ErrorKind::UnexpectedEof => StageError::data("the compressed data is cut off"),
        _ => StageError::data(format!("this is no lz4 data: {error}")),
    };
    if reader.fill_buf()?.is_empty() {
        return Err(StageError::data("the compressed data is cut off"));
    }
    while !reader.fill_buf()?.is_empty() {
        let mut decoder = FrameDecoder::new(reader);
        loop {
            let bytes = decoder.fill_buf().map_err(wrong)?;
            if bytes.is_empty() {
                break;
            }
            let count = bytes.len();
            writer.write_all(bytes)?;
            decoder.consume(count);
        }
        reader = decoder.into_inner();
    }
    Ok(())
}
