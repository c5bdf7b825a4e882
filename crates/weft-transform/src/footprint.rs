//! The memory that a network takes which was read and does not run.

use crate::network::{Network, Part};
use crate::stage::Stage;
use crate::stages::expressions::Expression;
use crate::stages::maps::ByteMap;

/// Bytes that the allocator takes beside an allocation.
const ALLOCATION: usize = 16;

/// Size of a stage's parsed arguments, at most, as a multiple of its text.
const COPIES: usize = 4;

impl Network {
    /// Bytes of memory that it takes while it does not run, not less than it does.
    pub fn bytes(&self) -> usize {
        let modules = self.modules().len() * (size_of::<usize>() + ALLOCATION) * 12;
        size_of::<Network>() + modules + bytes_of(self.held())
    }
}

fn bytes_of(parts: &Vec<Part>) -> usize {
    let held = parts.iter().map(|part| match part {
        Part::Stage { text, stage } => text.capacity() + ALLOCATION + bytes_of_stage(stage, text.len()),
        Part::Join { branches, .. } => {
            let own = branches.capacity() * size_of::<Vec<Part>>() + ALLOCATION;
            own + branches.iter().map(bytes_of).sum::<usize>()
        }
        Part::File { .. } => 0,
    });
    parts.capacity() * size_of::<Part>() + ALLOCATION + held.sum::<usize>()
}

/// Bytes of a stage that is written in `text_len`.
fn bytes_of_stage(stage: &Stage, text_len: usize) -> usize {
    let own = size_of::<Stage>() + size_of_val(&*stage.start) + 4 * ALLOCATION;
    let inverse = stage.inverse.as_ref().map_or(0, |text| text.capacity() + ALLOCATION);
    let table = if matches!(stage.byte_map, Some(ByteMap::Table(_))) { 256 + ALLOCATION } else { 0 };
    let modules = stage.modules.capacity() * size_of::<usize>();
    let keys = stage.keys.capacity() * (size_of::<String>() + ALLOCATION);
    let expressions = stage.expressions.capacity() * (size_of::<Expression>() + ALLOCATION);
    // What starts it holds the same, and what it was told in words.
    own + inverse + 2 * table + modules + keys + expressions + COPIES * text_len
}
