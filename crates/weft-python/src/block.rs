//! Blocks: bytes that lie together, for the buffer protocol.

use crate::process::Own;
use crate::raw;
use pyo3::ffi;
use pyo3::prelude::*;
use std::ffi::c_int;
use weft_block::Slice;

/// Bytes that lie together in memory, read-only, as ropes have them (`Rope.blocks`).
///
/// A block supports the buffer protocol: `memoryview(block)`, `numpy.frombuffer(block, dtype)`,
/// `file.write(block)` and the like copy nothing. Views keep the memory alive.
#[pyclass(frozen, module = "weftfs_native")]
pub(crate) struct Block(Own<Slice>);

impl Block {
    /// The bytes.
    pub(crate) fn slice(&self) -> Slice {
        self.0.get().cloned().unwrap_or_default()
    }
}

impl From<Slice> for Block {
    fn from(slice: Slice) -> Block {
        Block(Own::new(slice))
    }
}

#[pymethods]
impl Block {
    fn __len__(&self) -> usize {
        self.0.get().map_or(0, |slice| slice.len())
    }

    fn __repr__(&self) -> String {
        format!("<weftfs_native.Block of {} bytes>", self.__len__())
    }

    /// # Safety
    /// Only the interpreter calls it.
    unsafe fn __getbuffer__(slf: Bound<'_, Self>, view: *mut ffi::Py_buffer, flags: c_int) -> PyResult<()> {
        let bytes: *const [u8] = slf.get().0.get().map_or(&[][..], |slice| &slice[..]);
        // SAFETY: a block is frozen, so its slice lives as long as it does, and the bytes of a
        // slice neither move nor change.
        unsafe { raw::lend(slf.into_any(), bytes, view, flags) }
    }
}
