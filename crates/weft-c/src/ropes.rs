//! Ropes.

use crate::{borrowed, handle, invalid, owned, pointer, status};
use std::ffi::c_void;
use std::ptr::NonNull;
use std::sync::OnceLock;
use weft_block::{Block, Rope, Slice};

/// A rope, and its bytes in one piece if somebody asked for that.
pub struct Handle {
    rope: Rope,
    whole: OnceLock<Slice>,
}

impl Handle {
    pub(crate) fn rope(&self) -> &Rope {
        &self.rope
    }
}

impl From<Rope> for Handle {
    fn from(rope: Rope) -> Handle {
        Handle { rope, whole: OnceLock::new() }
    }
}

/// See weft.h.
///
/// # Safety
/// As at the top of this crate.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn weft_rope_of(bytes: *const c_void, length: usize) -> *mut Handle {
    handle(|| {
        let bytes = match (bytes.is_null(), length) {
            (_, 0) => &[],
            (true, _) => return Err(invalid()),
            // SAFETY: so many bytes are there.
            (false, _) => unsafe { std::slice::from_raw_parts(bytes.cast::<u8>(), length) },
        };
        Ok(Handle::from(Rope::from(Block::copy_of(bytes).whole())))
    })
}

/// See weft.h.
///
/// # Safety
/// As at the top of this crate.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn weft_rope_dup(rope: *const Handle) -> *mut Handle {
    // SAFETY: as at the top.
    handle(|| Ok(Handle::from(unsafe { borrowed(rope) }?.rope.clone())))
}

/// See weft.h.
///
/// # Safety
/// As at the top of this crate.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn weft_rope_release(rope: *mut Handle) {
    // SAFETY: as at the top.
    status(|| unsafe { owned(rope) }.map(|_| 0));
}

/// See weft.h.
///
/// # Safety
/// As at the top of this crate.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn weft_rope_length(rope: *const Handle) -> usize {
    // SAFETY: as at the top.
    unsafe { borrowed(rope) }.map_or(0, |handle| handle.rope.len())
}

/// See weft.h.
///
/// # Safety
/// As at the top of this crate.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn weft_rope_slice(rope: *const Handle, offset: usize, length: usize) -> *mut Handle {
    handle(|| {
        // SAFETY: as at the top.
        let rope = &unsafe { borrowed(rope) }?.rope;
        let end = offset.checked_add(length).filter(|end| *end <= rope.len()).ok_or_else(invalid)?;
        Ok(Handle::from(rope.cut(offset..end)))
    })
}

/// See weft.h.
///
/// # Safety
/// As at the top of this crate.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn weft_rope_concat(first: *const Handle, second: *const Handle) -> *mut Handle {
    handle(|| {
        // SAFETY: as at the top.
        let (first, second) = unsafe { (borrowed(first)?, borrowed(second)?) };
        let mut both = first.rope.clone();
        both.append(second.rope.clone());
        Ok(Handle::from(both))
    })
}

/// See weft.h.
///
/// # Safety
/// As at the top of this crate.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn weft_rope_map(rope: *const Handle) -> *const c_void {
    let mapped = pointer(|| {
        // SAFETY: as at the top.
        let handle = unsafe { borrowed(rope) }?;
        if handle.rope.is_empty() {
            return Ok(NonNull::<u8>::dangling().as_ptr().cast_const());
        }
        Ok(handle.whole.get_or_init(|| handle.rope.contiguous()).as_ptr())
    });
    mapped.map_or(std::ptr::null(), <*const u8>::cast)
}

/// See weft.h.
///
/// # Safety
/// As at the top of this crate.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn weft_rope_pieces(rope: *const Handle) -> usize {
    // SAFETY: as at the top.
    unsafe { borrowed(rope) }.map_or(0, |handle| handle.rope.slices().len())
}

/// See weft.h.
///
/// # Safety
/// As at the top of this crate.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn weft_rope_piece(rope: *const Handle, index: usize, length: *mut usize) -> *const c_void {
    // SAFETY: as at the top.
    let piece = pointer(|| unsafe { borrowed(rope) }?.rope.slices().get(index).ok_or_else(invalid));
    // SAFETY: as at the top.
    if let Some(length) = unsafe { length.as_mut() } {
        *length = piece.map_or(0, |piece| piece.len());
    }
    piece.map_or(std::ptr::null(), |piece| piece.as_ptr().cast())
}
