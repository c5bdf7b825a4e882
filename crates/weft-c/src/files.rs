//! Files.

use crate::ropes::Handle;
use crate::{borrowed, close, descriptor, handle, invalid, owned, status};
use std::ffi::{CStr, OsStr, c_char, c_int};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use weft_client::File;

/// See weft.h.
///
/// # Safety
/// As at the top of this crate.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn weft_open(path: *const c_char) -> *mut File {
    handle(|| {
        if path.is_null() {
            return Err(invalid());
        }
        // SAFETY: it is a text of C's.
        let path = unsafe { CStr::from_ptr(path) };
        File::open(Path::new(OsStr::from_bytes(path.to_bytes())))
    })
}

/// See weft.h.
#[unsafe(no_mangle)]
pub extern "C" fn weft_of_fd(fd: c_int) -> *mut File {
    handle(|| {
        let file = File::of(std::fs::File::from(descriptor(fd)?));
        close(fd);
        Ok(file)
    })
}

/// See weft.h.
///
/// # Safety
/// As at the top of this crate.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn weft_close(file: *mut File) {
    // SAFETY: as at the top.
    status(|| unsafe { owned(file) }.map(|_| 0));
}

/// See weft.h.
///
/// # Safety
/// As at the top of this crate.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn weft_read(file: *mut File, offset: u64, length: usize) -> *mut Handle {
    // SAFETY: as at the top.
    handle(|| unsafe { borrowed(file) }?.read(offset, length).map(Handle::from))
}

/// See weft.h.
///
/// # Safety
/// As at the top of this crate.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn weft_write(file: *mut File, offset: u64, rope: *const Handle) -> c_int {
    // SAFETY: as at the top.
    status(|| unsafe { borrowed(file)?.write(offset, borrowed(rope)?.rope()) }.map(|()| 0))
}
