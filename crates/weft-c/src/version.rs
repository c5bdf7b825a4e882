//! The version of the library.

use std::ffi::{CStr, c_char};

/// The version of this package, as C has strings.
const VERSION: &CStr = match CStr::from_bytes_with_nul(concat!(env!("CARGO_PKG_VERSION"), "\0").as_bytes()) {
    Ok(version) => version,
    Err(_) => panic!("a version has no NUL in it"),
};

#[unsafe(no_mangle)]
pub extern "C" fn weft_version() -> *const c_char {
    VERSION.as_ptr()
}
