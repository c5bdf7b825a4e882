//! All that is unsafe here: bytes lent to the interpreter, bytes borrowed from it, and descriptors
//! that are plain numbers to it.

use pyo3::buffer::PyUntypedBuffer;
use pyo3::exceptions::PyBufferError;
use pyo3::ffi;
use pyo3::prelude::*;
use rustix::net::Shutdown;
use std::ffi::c_int;
use std::io;
use std::os::fd::{BorrowedFd, FromRawFd, OwnedFd};

/// Fills `view` with `bytes`, which can be read and not written, and has it keep `owner` alive.
///
/// # Safety
/// `view` is the interpreter's, to be filled as `flags` say. `bytes` stay where they are and as
/// they are as long as `owner` lives.
pub(crate) unsafe fn lend(
    owner: Bound<'_, PyAny>,
    bytes: *const [u8],
    view: *mut ffi::Py_buffer,
    flags: c_int,
) -> PyResult<()> {
    if view.is_null() {
        return Err(PyBufferError::new_err("there is no view to fill"));
    }
    let py = owner.py();
    let Ok(len) = ffi::Py_ssize_t::try_from(bytes.len()) else {
        return Err(PyBufferError::new_err("too many bytes for one view"));
    };
    let start = bytes.cast::<u8>().cast_mut().cast();
    // SAFETY: the view is there to be filled. It gets a reference to the owner, which the
    // interpreter drops when the view is released, and until then the bytes stay (see above). It is
    // told that they are read-only, so nobody writes through the pointer.
    let filled = unsafe { ffi::PyBuffer_FillInfo(view, owner.as_ptr(), start, len, 1, flags) };
    if filled == 0 { Ok(()) } else { Err(PyErr::fetch(py)) }
}

/// Copies the bytes of `object`, which supports the buffer protocol and has them in one piece.
pub(crate) fn copy_of(object: &Bound<'_, PyAny>) -> PyResult<Vec<u8>> {
    let buffer = PyUntypedBuffer::get(object)?;
    if !buffer.is_c_contiguous() {
        return Err(PyBufferError::new_err("the bytes do not lie in one piece: make a contiguous copy"));
    }
    let (start, len) = (buffer.buf_ptr().cast_const().cast::<u8>(), buffer.len_bytes());
    let mut bytes = Vec::with_capacity(len);
    if len > 0 {
        // SAFETY: the exporter promises that so many bytes are there until the buffer is released,
        // which is after this, and the vector has room for them. They are copied as plain memory,
        // with no reference made: should another thread write to them meanwhile, the copy has some
        // of both, as the interpreter's own copies have.
        unsafe {
            std::ptr::copy_nonoverlapping(start, bytes.as_mut_ptr(), len);
            bytes.set_len(len);
        }
    }
    Ok(bytes)
}

/// Returns a copy of the descriptor `number` of the caller's.
pub(crate) fn copy_descriptor(number: c_int) -> io::Result<OwnedFd> {
    if number < 0 {
        return Err(io::Error::from_raw_os_error(libc::EBADF));
    }
    // SAFETY: it is only asked for a copy; if it is not open, that fails.
    unsafe { BorrowedFd::borrow_raw(number) }.try_clone_to_owned()
}

/// Closes the descriptor `number` of the caller's, of which there is a copy.
pub(crate) fn close_descriptor(number: c_int) {
    // SAFETY: it is open, as a copy could be made of it, and the caller gave it up.
    drop(unsafe { OwnedFd::from_raw_fd(number) });
}

/// Shuts down the socket `number` of a channel's end. Threads that wait for it wake up.
pub(crate) fn shut_down(number: c_int) {
    // SAFETY: its owner keeps it open meanwhile.
    let socket = unsafe { BorrowedFd::borrow_raw(number) };
    // It fails only if the other end is gone, and then no thread waits.
    let _ = rustix::net::shutdown(socket, Shutdown::Both);
}
