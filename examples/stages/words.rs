//! Gives each word of the input, its letters small, on a line of its own. Words go on from piece to
//! piece.
//!
//! rustc --edition 2024 --target wasm32-unknown-unknown --crate-type cdylib -O -C panic=abort
//! words.rs rustc --edition 2024 --crate-type cdylib -O words.rs

use std::cell::RefCell;

#[derive(Default)]
struct Stage {
    #[cfg(target_arch = "wasm32")]
    input: Vec<u8>,
    output: Vec<u8>,
    is_in_word: bool,
}

thread_local! {
    static STAGE: RefCell<Stage> = RefCell::default();
}

/// A module has input put where it says; a library is told where it lies.
#[cfg(target_arch = "wasm32")]
#[unsafe(no_mangle)]
extern "C" fn weft_input(wanted: u32) -> *mut u8 {
    STAGE.with_borrow_mut(|stage| {
        stage.input.resize(wanted as usize, 0);
        stage.input.as_mut_ptr()
    })
}

#[cfg(target_arch = "wasm32")]
type Given = u64;

#[cfg(not(target_arch = "wasm32"))]
#[repr(C)]
pub struct Given {
    at: *const u8,
    told: u64,
}

#[cfg(target_arch = "wasm32")]
fn give(bytes: &[u8]) -> Given {
    (bytes.as_ptr() as u64) << 32 | bytes.len() as u64
}

#[cfg(not(target_arch = "wasm32"))]
fn give(bytes: &[u8]) -> Given {
    Given { at: bytes.as_ptr(), told: bytes.len() as u64 }
}

/// # Safety
///
/// `len` bytes lie at `input`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn weft_advance(input: *const u8, len: u32, is_last: u32) -> Given {
    let input = if len == 0 { &[] } else { unsafe { std::slice::from_raw_parts(input, len as usize) } };
    STAGE.with_borrow_mut(|stage| {
        let Stage { output, is_in_word, .. } = stage;
        output.clear();
        for byte in input {
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
        give(output)
    })
}
