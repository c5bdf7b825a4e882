//! Channels.

use crate::ropes::Handle;
use crate::{borrowed, borrowed_mut, close, descriptor, handle, invalid, owned, status};
use rustix::io::FdFlags;
use std::ffi::{c_int, c_void};
use std::os::fd::IntoRawFd;
use weft_block::Rope;
use weft_block::shared::Place;
use weft_client::channel::{Receiver, Sender, sockets};

/// See weft.h.
///
/// # Safety
/// As at the top of this crate.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn weft_pipe(fds: *mut [c_int; 2]) -> c_int {
    status(|| {
        // SAFETY: as at the top.
        let fds = unsafe { borrowed_mut(fds) }?;
        let (sender, receiver) = sockets()?;
        for end in [&sender, &receiver] {
            rustix::io::fcntl_setfd(end, FdFlags::empty())?;
        }
        *fds = [receiver.into_raw_fd(), sender.into_raw_fd()];
        Ok(0)
    })
}

/// See weft.h.
#[unsafe(no_mangle)]
pub extern "C" fn weft_sender_of(fd: c_int) -> *mut Sender {
    handle(|| {
        let sender = Sender::of(descriptor(fd)?)?;
        close(fd);
        Ok(sender)
    })
}

/// See weft.h.
///
/// # Safety
/// As at the top of this crate.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn weft_sender_place(sender: *mut Sender) -> *mut Place {
    // SAFETY: as at the top.
    handle(|| unsafe { borrowed_mut(sender) }?.place())
}

/// See weft.h.
///
/// # Safety
/// As at the top of this crate.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn weft_place_memory(place: *mut Place, length: *mut usize) -> *mut c_void {
    // SAFETY: as at the top.
    let (place, length) = unsafe { (borrowed_mut(place), length.as_mut()) };
    let Ok(place) = place else { return std::ptr::null_mut() };
    if let Some(length) = length {
        *length = place.len();
    }
    place.as_mut_ptr().cast()
}

/// See weft.h.
///
/// # Safety
/// As at the top of this crate.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn weft_place_freeze(place: *mut Place, length: usize) -> *mut Handle {
    handle(|| {
        // SAFETY: as at the top.
        let place = unsafe { owned(place) }?;
        if length > place.len() {
            return Err(invalid());
        }
        Ok(Handle::from(Rope::from(place.freeze(length).whole())))
    })
}

/// See weft.h.
///
/// # Safety
/// As at the top of this crate.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn weft_place_free(place: *mut Place) {
    // SAFETY: as at the top.
    status(|| unsafe { owned(place) }.map(|_| 0));
}

/// See weft.h.
///
/// # Safety
/// As at the top of this crate.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn weft_send(sender: *mut Sender, rope: *const Handle) -> c_int {
    // SAFETY: as at the top.
    status(|| unsafe { borrowed_mut(sender)?.send(borrowed(rope)?.rope().clone()) }.map(|()| 0))
}

/// See weft.h.
///
/// # Safety
/// As at the top of this crate.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn weft_finish(sender: *mut Sender) -> c_int {
    // SAFETY: as at the top.
    status(|| unsafe { owned(sender) }?.finish().map(|()| 0))
}

/// See weft.h.
///
/// # Safety
/// As at the top of this crate.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn weft_sender_free(sender: *mut Sender) {
    // SAFETY: as at the top.
    status(|| unsafe { owned(sender) }.map(|_| 0));
}

/// See weft.h.
#[unsafe(no_mangle)]
pub extern "C" fn weft_receiver_of(fd: c_int) -> *mut Receiver {
    handle(|| {
        let receiver = Receiver::of(descriptor(fd)?)?;
        close(fd);
        Ok(receiver)
    })
}

/// See weft.h.
///
/// # Safety
/// As at the top of this crate.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn weft_receive(receiver: *mut Receiver, rope: *mut *mut Handle) -> c_int {
    status(|| {
        // SAFETY: as at the top.
        let rope = unsafe { borrowed_mut(rope) }?;
        *rope = std::ptr::null_mut();
        // SAFETY: as at the top.
        let Some(received) = unsafe { borrowed_mut(receiver) }?.receive()? else { return Ok(0) };
        *rope = Box::into_raw(Box::new(Handle::from(received)));
        Ok(1)
    })
}

/// See weft.h.
///
/// # Safety
/// As at the top of this crate.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn weft_receiver_free(receiver: *mut Receiver) {
    // SAFETY: as at the top.
    status(|| unsafe { owned(receiver) }.map(|_| 0));
}
