//! libweft for C: what include/weft.h declares and documents. Each function checks what it can of
//! what it is given, does the work of one call of `weft_client` or `weft_block`, and tells errors
//! as C does. No panic gets out.
//!
//! Safety, of all functions: a pointer to a handle is NULL or came from the function that makes
//! such ones and was not given up since; other pointers are NULL or point to as much as the header
//! says; handles are used by the threads that the header allows.

mod channels;
mod files;
mod ropes;
mod version;

use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use weft_client::errno;

/// Returns the result of `call`, with errors as errno.
fn guarded<T>(call: impl FnOnce() -> io::Result<T>) -> Result<T, i32> {
    // What a panic leaves behind is in a handle that the caller may still give up: nothing there
    // needs more to be dropped.
    match catch_unwind(AssertUnwindSafe(call)) {
        Ok(result) => result.map_err(|error| errno(&error)),
        Err(_) => Err(libc::EIO),
    }
}

/// For functions that return a handle.
fn handle<T>(call: impl FnOnce() -> io::Result<T>) -> *mut T {
    pointer(|| call().map(|value| Box::into_raw(Box::new(value)))).unwrap_or(std::ptr::null_mut())
}

/// For functions that return NULL and set errno.
fn pointer<T>(call: impl FnOnce() -> io::Result<T>) -> Option<T> {
    guarded(call)
        .inspect_err(|errno| {
            // SAFETY: it is this thread's.
            unsafe { *libc::__errno_location() = *errno };
        })
        .ok()
}

/// For functions that return a negative errno.
fn status(call: impl FnOnce() -> io::Result<i32>) -> i32 {
    guarded(call).unwrap_or_else(|errno| -errno)
}

fn invalid() -> io::Error {
    io::Error::from_raw_os_error(libc::EINVAL)
}

/// Borrows the handle at `pointer`.
///
/// # Safety
/// As at the top; the caller does not use it longer than the call that it was given to.
unsafe fn borrowed<'a, T>(pointer: *const T) -> io::Result<&'a T> {
    // SAFETY: it is NULL or a live handle (see the top).
    unsafe { pointer.as_ref() }.ok_or_else(invalid)
}

/// As [`borrowed`], for handles that belong to one thread at a time.
///
/// # Safety
/// As [`borrowed`].
unsafe fn borrowed_mut<'a, T>(pointer: *mut T) -> io::Result<&'a mut T> {
    // SAFETY: as above; and nobody else uses it meanwhile.
    unsafe { pointer.as_mut() }.ok_or_else(invalid)
}

/// Takes ownership of the handle at `pointer`.
///
/// # Safety
/// As at the top, and nobody uses it from then on.
unsafe fn owned<T>(pointer: *mut T) -> io::Result<T> {
    if pointer.is_null() {
        return Err(invalid());
    }
    // SAFETY: it is a live handle (see the top), all of which come from boxes.
    Ok(*unsafe { Box::from_raw(pointer) })
}

/// The descriptor `number` of the caller's.
fn descriptor(number: i32) -> io::Result<std::os::fd::OwnedFd> {
    if number < 0 {
        return Err(io::Error::from_raw_os_error(libc::EBADF));
    }
    // SAFETY: it is only asked for a copy; if it is not open, that fails.
    let borrowed = unsafe { std::os::fd::BorrowedFd::borrow_raw(number) };
    borrowed.try_clone_to_owned()
}

/// Closes the descriptor `number` of the caller's, of which there is a copy.
fn close(number: i32) {
    use std::os::fd::FromRawFd;
    // SAFETY: it is open, as a copy could be made of it, and the caller gave it up.
    drop(unsafe { std::os::fd::OwnedFd::from_raw_fd(number) });
}
