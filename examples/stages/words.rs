//! Gives each word of the input, its letters small, on a line of its own. Words go on from piece to piece.
//!
//! rustc --edition 2024 --target wasm32-unknown-unknown --crate-type cdylib -O -C panic=abort words.rs

use std::cell::RefCell;

#[derive(Default)]
struct Stage {
    input: Vec<u8>,
    output: Vec<u8>,
    is_in_word: bool,
}

thread_local! {
    static STAGE: RefCell<Stage> = RefCell::default();
}

#[unsafe(no_mangle)]
extern "C" fn weft_input(wanted: u32) -> *mut u8 {
    STAGE.with_borrow_mut(|stage| {
        stage.input.resize(wanted as usize, 0);
        stage.input.as_mut_ptr()
    })
}

#[unsafe(no_mangle)]
extern "C" fn weft_advance(_: *mut u8, len: u32, is_last: u32) -> u64 {
    STAGE.with_borrow_mut(|stage| {
        let Stage { input, output, is_in_word } = stage;
        output.clear();
        for byte in &input[..len as usize] {
            if byte.is_ascii_alphanumeric() {
                output.push(byte.to_ascii_lowercase());
                *is_in_word = true;
            } else if std::mem::take(is_in_word) {
                output.push(b'\n');
            }
        }
        if is_last != 0 && std::mem::take(is_in_word) {
            output.push(b'\n');
        }
        (output.as_ptr() as u64) << 32 | output.len() as u64
    })
}
