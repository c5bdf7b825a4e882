//! Ropes.

use crate::block::Block;
use crate::number::saturated;
use crate::process::Own;
use crate::raw;
use pyo3::basic::CompareOp;
use pyo3::exceptions::{PyIndexError, PyTypeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PySlice, PyTuple};
use weft_block::{Rope as Bytes, Slice};

/// Bytes made of blocks, in order, that read as one run: `Rope(data)` copies bytes into one.
///
/// Ropes are cut (`rope[a:b]`), joined (`rope + other`, `Rope.join`) and compared (`==`). None of
/// it copies bytes but those of operands that are neither ropes nor blocks. `bytes(rope)` is a
/// copy.
#[pyclass(frozen, module = "weftfs_native")]
pub(crate) struct Rope(Own<Bytes>);

impl From<Bytes> for Rope {
    fn from(rope: Bytes) -> Rope {
        Rope(Own::new(rope))
    }
}

impl Rope {
    fn bytes(&self) -> Bytes {
        self.0.get().cloned().unwrap_or_default()
    }

    fn len(&self) -> usize {
        self.0.get().map_or(0, Bytes::len)
    }
}

/// The bytes of `object`: of a rope or a block without a copy, of anything else that has bytes by a
/// copy.
pub(crate) fn bytes_of(object: &Bound<'_, PyAny>) -> PyResult<Bytes> {
    if let Ok(rope) = object.cast::<Rope>() {
        return Ok(rope.get().bytes());
    }
    if let Ok(block) = object.cast::<Block>() {
        return Ok(block.get().slice().into());
    }
    Ok(Bytes::from(raw::copy_of(object)?))
}

#[pymethods]
impl Rope {
    #[new]
    #[pyo3(signature = (data = None, /))]
    fn new(data: Option<&Bound<'_, PyAny>>) -> PyResult<Rope> {
        data.map_or(Ok(Bytes::new()), bytes_of).map(Rope::from)
    }

    /// Return one rope of all of `parts`, in order.
    #[staticmethod]
    #[pyo3(signature = (parts, /))]
    fn join(parts: &Bound<'_, PyAny>) -> PyResult<Rope> {
        let mut all = Bytes::new();
        for part in parts.try_iter()? {
            all.append(bytes_of(&part?)?);
        }
        Ok(all.into())
    }

    /// Return the blocks, in order; none is empty.
    fn blocks<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyTuple>> {
        let bytes = self.bytes();
        PyTuple::new(py, bytes.slices().iter().cloned().map(Block::from).collect::<Vec<_>>())
    }

    /// Return all bytes as one block: without a copy if they are one already.
    fn contiguous(&self, py: Python<'_>) -> Block {
        let bytes = self.bytes();
        py.detach(|| bytes.contiguous()).into()
    }

    /// Write all bytes to `file`, an object with a method `write`, and return their number.
    ///
    /// The file must be open for bytes. The blocks are written as they are, one by one.
    #[pyo3(signature = (file, /))]
    fn write_to(&self, py: Python<'_>, file: &Bound<'_, PyAny>) -> PyResult<usize> {
        for slice in self.bytes().slices() {
            let mut rest = slice.clone();
            while !rest.is_empty() {
                let written = write(py, file, &rest)?;
                rest = rest.slice(written..rest.len());
            }
        }
        Ok(self.len())
    }

    fn __len__(&self) -> usize {
        self.len()
    }

    fn __bool__(&self) -> bool {
        self.len() > 0
    }

    fn __bytes__<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyBytes>> {
        let bytes = self.bytes();
        PyBytes::new_with(py, bytes.len(), |mut target| {
            for slice in bytes.slices() {
                let (now, rest) = target.split_at_mut(slice.len());
                now.copy_from_slice(slice);
                target = rest;
            }
            weft_block::copied(bytes.len());
            Ok(())
        })
    }

    fn __getitem__<'py>(&self, py: Python<'py>, index: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
        if let Ok(slice) = index.cast::<PySlice>() {
            return Ok(Bound::new(py, self.cut(slice)?)?.into_any());
        }
        let Ok(index) = saturated(index) else {
            return Err(PyTypeError::new_err("ropes are indexed by integers and slices"));
        };
        let index = isize::try_from(index).unwrap_or(isize::MAX);
        let at = if index < 0 { self.len().checked_add_signed(index) } else { usize::try_from(index).ok() };
        let byte = at.and_then(|at| byte_at(self.0.get()?, at));
        let byte = byte.ok_or_else(|| PyIndexError::new_err("rope index out of range"))?;
        Ok(byte.into_pyobject(py)?.into_any())
    }

    fn __add__(&self, other: &Bound<'_, PyAny>) -> PyResult<Rope> {
        let mut both = self.bytes();
        both.append(bytes_of(other)?);
        Ok(both.into())
    }

    fn __radd__(&self, other: &Bound<'_, PyAny>) -> PyResult<Rope> {
        let mut both = bytes_of(other)?;
        both.append(self.bytes());
        Ok(both.into())
    }

    fn __richcmp__<'py>(
        &self,
        py: Python<'py>,
        other: &Bound<'py, PyAny>,
        compare: CompareOp,
    ) -> PyResult<Bound<'py, PyAny>> {
        let (Ok(other), CompareOp::Eq | CompareOp::Ne) = (other.cast::<Rope>(), compare) else {
            return Ok(py.NotImplemented().into_bound(py));
        };
        let (one, other) = (self.bytes(), other.get().bytes());
        let are_equal = py.detach(|| one == other);
        Ok((are_equal == matches!(compare, CompareOp::Eq)).into_pyobject(py)?.to_owned().into_any())
    }

    fn __repr__(&self) -> String {
        let blocks = self.0.get().map_or(0, |rope| rope.slices().len());
        let s = if blocks == 1 { "" } else { "s" };
        format!("<weftfs_native.Rope of {} bytes in {blocks} block{s}>", self.len())
    }
}

impl Rope {
    fn cut(&self, slice: &Bound<'_, PySlice>) -> PyResult<Rope> {
        let len = isize::try_from(self.len()).unwrap_or(isize::MAX);
        let range = slice.indices(len)?;
        if range.step != 1 {
            return Err(PyValueError::new_err("ropes are sliced with step 1 only"));
        }
        let (start, stop) = (range.start.unsigned_abs(), range.stop.max(range.start).unsigned_abs());
        Ok(self.bytes().cut(start..stop).into())
    }
}

fn byte_at(rope: &Bytes, at: usize) -> Option<u8> {
    let mut left = at;
    for slice in rope.slices() {
        match slice.get(left) {
            Some(byte) => return Some(*byte),
            None => left -= slice.len(),
        }
    }
    None
}

/// The number of bytes of `slice`, at least one, that `file` took.
fn write(py: Python<'_>, file: &Bound<'_, PyAny>, slice: &Slice) -> PyResult<usize> {
    let block = Bound::new(py, Block::from(slice.clone()))?;
    let written = file.call_method1("write", (block,))?;
    if written.is_none() {
        return Err(crate::error::exception(std::io::Error::from_raw_os_error(libc::EAGAIN)));
    }
    match written.extract::<usize>()? {
        written if (1..=slice.len()).contains(&written) => Ok(written),
        written => Err(PyValueError::new_err(format!("write() took {written} of {} bytes", slice.len()))),
    }
}
