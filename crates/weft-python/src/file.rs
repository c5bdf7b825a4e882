//! Files.

use crate::block::Block;
use crate::error::{about, closed, exception};
use crate::number::{optional, saturated};
use crate::rope::Rope;
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use std::collections::VecDeque;
use std::ffi::OsStr;
use std::fs::Metadata;
use std::io;
use std::os::fd::{AsFd, AsRawFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::FileTypeExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use weft_block::{Rope as Bytes, Slice};
use weft_client::File as Client;

/// Bytes that are asked for at once where they are not copied.
const SHARED_BYTES: u64 = 8 << 20;

/// Most and fewest bytes that are copied at once.
const COPIED_BYTES_MAX: u64 = 1 << 30;
const COPIED_BYTES_MIN: u64 = 64 << 10;

/// Longest item that blocks are multiples of.
const ITEM_BYTES_MAX: usize = 1 << 20;

/// Largest offset of a byte in a file, as off_t has it.
const OFFSET_MAX: u64 = i64::MAX.cast_unsigned();

/// A file, open for reading: `File(path)`, or `open(path)`.
///
/// A file of a mounted volume is read in place: `read` and `blocks` give memory that the daemon
/// shares. Any other regular file is read as usual. Opening a directory raises IsADirectoryError; a
/// FIFO, a socket or a device raises OSError (EINVAL).
///
/// Any thread may use a file, several at a time, and other threads of the interpreter run
/// meanwhile. What was read stays when the file is closed.
#[pyclass(frozen, module = "weftfs_native")]
pub(crate) struct File {
    name: PathBuf,
    file: Mutex<Option<Arc<Client>>>,
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // Nothing that can panic is done halfway under these locks.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl File {
    fn client(&self) -> PyResult<Arc<Client>> {
        locked(&self.file).clone().ok_or_else(|| closed("file"))
    }
}

#[pymethods]
impl File {
    #[new]
    #[pyo3(signature = (path, /))]
    fn new(py: Python<'_>, path: &Bound<'_, PyAny>) -> PyResult<File> {
        let name = path_of(path)?;
        let file = py.detach(|| open(&name)).map_err(about(name.clone().into_os_string()))?;
        Ok(File { name, file: Mutex::new(Some(Arc::new(file))) })
    }

    /// The path that the file was opened by.
    #[getter]
    fn name(&self) -> &OsStr {
        self.name.as_os_str()
    }

    /// The length of the file in bytes, now.
    #[getter]
    fn size(&self, py: Python<'_>) -> PyResult<u64> {
        let file = self.client()?;
        py.detach(|| size_of(&file)).map_err(exception)
    }

    /// True if the file is read without a copy.
    ///
    /// If the daemon has no memory left to share, parts of such a file are copied after all.
    #[getter]
    fn in_place(&self) -> PyResult<bool> {
        Ok(self.client()?.is_shared())
    }

    /// True if the file was closed.
    #[getter]
    fn closed(&self) -> bool {
        locked(&self.file).is_none()
    }

    /// Return the bytes from `offset` on, at most `length`: to the end if that is None or -1.
    ///
    /// There are none beyond the end of the file. Raise ValueError if `offset` is negative, or
    /// `length` less than -1.
    ///
    /// A program may hold a quarter of the memory that a daemon shares; more is copied. Use
    /// `blocks` to go through a file that is longer.
    #[pyo3(signature = (offset = 0, length = None))]
    fn read(
        &self,
        py: Python<'_>,
        #[pyo3(from_py_with = saturated)] offset: i64,
        #[pyo3(from_py_with = optional)] length: Option<i64>,
    ) -> PyResult<Rope> {
        let mut part = Part::new(self.client()?, offset, length)?;
        let mut all = Bytes::new();
        while let Some(some) = part.next(py)? {
            all.append(some);
        }
        Ok(all.into())
    }

    /// Return an iterator over the same bytes as blocks, which are read as they are needed.
    ///
    /// Memory of blocks that nobody refers to any more is given back on the way. The length of a
    /// block is up to the volume, but a multiple of `itemsize`, such as that of numbers in an
    /// array: an item that begins in one block of the volume and ends in another one is copied.
    /// Only the last block is shorter, if the file ends within an item.
    #[pyo3(signature = (offset = 0, length = None, itemsize = 1))]
    fn blocks(
        &self,
        #[pyo3(from_py_with = saturated)] offset: i64,
        #[pyo3(from_py_with = optional)] length: Option<i64>,
        #[pyo3(from_py_with = saturated)] itemsize: i64,
    ) -> PyResult<Blocks> {
        let item_bytes = usize::try_from(itemsize).ok().filter(|bytes| (1..=ITEM_BYTES_MAX).contains(bytes));
        let Some(item_bytes) = item_bytes else {
            return Err(PyValueError::new_err(format!("itemsize must be from 1 to {ITEM_BYTES_MAX}")));
        };
        let part = Part::new(self.client()?, offset, length)?;
        Ok(Blocks(Mutex::new(Items { part, item_bytes, ready: VecDeque::new() })))
    }

    /// The descriptor of the file, which stays open as long as the file is.
    fn fileno(&self) -> PyResult<i32> {
        Ok(self.client()?.as_fd().as_raw_fd())
    }

    /// Close the file. What was read of it stays.
    fn close(&self, py: Python<'_>) {
        let file = locked(&self.file).take();
        py.detach(|| drop(file));
    }

    fn __enter__(slf: Py<Self>, py: Python<'_>) -> PyResult<Py<Self>> {
        slf.get().client()?;
        Ok(slf.clone_ref(py))
    }

    #[pyo3(signature = (*_error))]
    fn __exit__(&self, py: Python<'_>, _error: &Bound<'_, pyo3::types::PyTuple>) {
        self.close(py);
    }

    fn __repr__(&self) -> String {
        let closed = if self.closed() { " (closed)" } else { "" };
        format!("<weftfs_native.File {:?}{closed}>", self.name)
    }
}

/// Iterator over the blocks of a file, which reads them as they are needed. One thread uses it at a
/// time.
#[pyclass(frozen, module = "weftfs_native")]
pub(crate) struct Blocks(Mutex<Items>);

#[pymethods]
impl Blocks {
    fn __iter__(slf: Py<Self>) -> Py<Self> {
        slf
    }

    fn __next__(&self, py: Python<'_>) -> PyResult<Option<Block>> {
        let Ok(mut items) = self.0.try_lock() else {
            return Err(PyValueError::new_err("another thread reads from this iterator"));
        };
        Ok(items.next(py)?.map(Block::from))
    }
}

/// Slices of a part of a file that hold whole items each.
struct Items {
    part: Part,
    item_bytes: usize,
    /// Read, and not given yet.
    ready: VecDeque<Slice>,
}

impl Items {
    fn next(&mut self, py: Python<'_>) -> PyResult<Option<Slice>> {
        if self.ready.is_empty() && !self.read(py)? {
            return Ok(None);
        }
        let Some(first) = self.ready.pop_front() else { return Ok(None) };
        let whole = first.len() - first.len() % self.item_bytes;
        if whole == first.len() {
            return Ok(Some(first));
        }
        self.ready.push_front(first.slice(whole..first.len()));
        if whole > 0 { Ok(Some(first.slice(0..whole))) } else { self.gather(py).map(Some) }
    }

    /// Copies one item, which lies in several slices, into one. What the end of the file cuts off
    /// is shorter.
    fn gather(&mut self, py: Python<'_>) -> PyResult<Slice> {
        let mut item = Vec::with_capacity(self.item_bytes);
        while item.len() < self.item_bytes && (!self.ready.is_empty() || self.read(py)?) {
            let Some(slice) = self.ready.pop_front() else { break };
            let taken = slice.len().min(self.item_bytes - item.len());
            item.extend_from_slice(&slice[..taken]);
            if taken < slice.len() {
                self.ready.push_front(slice.slice(taken..slice.len()));
            }
        }
        weft_block::copied(item.len());
        Ok(Slice::from(item))
    }

    /// Reads on; whether there was more.
    fn read(&mut self, py: Python<'_>) -> PyResult<bool> {
        let Some(more) = self.part.next(py)? else { return Ok(false) };
        self.ready.extend(more.slices().iter().cloned());
        Ok(true)
    }
}

/// The rest of a range of a file.
struct Part {
    file: Arc<Client>,
    offset: u64,
    /// None if it is to be read to the end.
    left: Option<u64>,
}

impl Part {
    /// Returns the range of `file` from `offset` on. As in `read` of Python's files, the length -1
    /// means the same as none: to the end.
    fn new(file: Arc<Client>, offset: i64, length: Option<i64>) -> PyResult<Part> {
        let Ok(offset) = u64::try_from(offset) else {
            return Err(PyValueError::new_err("offset must not be negative"));
        };
        let left = match length {
            None | Some(-1) => None,
            Some(length) => Some(u64::try_from(length).map_err(|_| {
                PyValueError::new_err("length must not be negative; None or -1 reads to the end of the file")
            })?),
        };
        Ok(Part { file, offset, left })
    }

    /// The bytes that come next; none at the end.
    fn next(&mut self, py: Python<'_>) -> PyResult<Option<Bytes>> {
        py.check_signals()?;
        let rope = py.detach(|| self.read()).map_err(exception)?;
        self.offset += rope.len() as u64;
        self.left = self.left.map(|left| left - rope.len() as u64);
        Ok(if rope.is_empty() { None } else { Some(rope) })
    }

    fn read(&self) -> io::Result<Bytes> {
        // The system has no offsets beyond OFFSET_MAX.
        let left = self.left.unwrap_or(u64::MAX).min(OFFSET_MAX.saturating_sub(self.offset));
        let most = if self.file.is_shared() {
            SHARED_BYTES
        } else {
            // One byte more shows that it was all.
            let rest = size_of(&self.file)?.saturating_sub(self.offset).saturating_add(1);
            rest.clamp(COPIED_BYTES_MIN, COPIED_BYTES_MAX)
        };
        let len = usize::try_from(left.min(most)).unwrap_or(usize::MAX);
        if len == 0 { Ok(Bytes::new()) } else { self.file.read(self.offset, len) }
    }
}

/// Opens the regular file at `path`.
fn open(path: &Path) -> io::Result<Client> {
    // Opening a FIFO waits for a writer, and opening a device may do something.
    check_regular(&std::fs::metadata(path)?)?;
    let file = std::fs::File::open(path)?;
    // Another process may have replaced the file meanwhile.
    check_regular(&file.metadata()?)?;
    Ok(Client::of(file))
}

/// An error unless `metadata` is that of a regular file: only these have an end, and bytes at
/// offsets.
fn check_regular(metadata: &Metadata) -> io::Result<()> {
    let kind = metadata.file_type();
    let name = match kind {
        _ if kind.is_file() => return Ok(()),
        _ if kind.is_dir() => return Err(io::Error::from_raw_os_error(libc::EISDIR)),
        _ if kind.is_fifo() => "FIFO",
        _ if kind.is_socket() => "socket",
        _ => "device",
    };
    Err(io::Error::new(io::ErrorKind::InvalidInput, format!("not a regular file but a {name}")))
}

fn size_of(file: &Client) -> io::Result<u64> {
    // A size is never negative.
    Ok(rustix::fs::fstat(file)?.st_size.cast_unsigned())
}

/// The path that `path` is: a text, bytes, or an object that stands for a path.
fn path_of(path: &Bound<'_, PyAny>) -> PyResult<PathBuf> {
    let path = path.py().import("os")?.call_method1("fsdecode", (path,))?;
    let path: PathBuf = path.extract()?;
    // As Python's own open() says it.
    if path.as_os_str().as_bytes().contains(&0) { Err(PyValueError::new_err("embedded null byte")) } else { Ok(path) }
}
