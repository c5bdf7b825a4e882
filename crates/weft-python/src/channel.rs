//! Channels.

mod end;

use crate::error::{exception, handle_signals};
use crate::number::descriptor;
use crate::rope::{Rope, bytes_of};
use end::End;
use pyo3::prelude::*;
use pyo3::types::PyTuple;
use std::io;
use std::os::fd::OwnedFd;
use weft_client::channel::{Receiver as Receiving, Sender as Sending, sockets};

/// Return the ends of a new channel: a `Sender` and a `Receiver`.
///
/// Ropes arrive as they were sent, one by one. Memory that a daemon shares, and memory that came
/// over a channel, is sent on without a copy; other bytes are copied once, into memory that the
/// receiver maps. At most 4 MiB are under way; beyond that, sending waits.
///
/// An end belongs to the process that uses it first. Until then you can hand it to a child process,
/// as you hand over an end of a pipe: by fork, as an argument of `multiprocessing.Process`, or by
/// number (`pass_fds=[sender.fileno()]`, and `Sender(number)` in the child). Each process closes
/// the ends that it does not use. Otherwise the process at the other end cannot notice that its
/// peer is gone.
///
/// The first use begins with the call, also if the call waits. In a child that is forked after
/// that, every use raises OSError (EINVAL) at once; only `close` is allowed, and does nothing to
/// the channel.
#[pyfunction]
pub(crate) fn channel() -> PyResult<(Sender, Receiver)> {
    let (sender, receiver) = sockets().map_err(exception)?;
    Ok((Sender(End::unused(sender)), Receiver(End::unused(receiver))))
}

fn sending(socket: OwnedFd) -> io::Result<Sending> {
    let mut sender = Sending::of(socket)?;
    sender.on_signal(handle_signals);
    Ok(sender)
}

fn receiving(socket: OwnedFd) -> io::Result<Receiving> {
    let mut receiver = Receiving::of(socket)?;
    receiver.on_signal(handle_signals);
    Ok(receiver)
}

/// The end of a channel that ropes are sent from: `channel()[0]`, or `Sender(fd)` for the
/// descriptor of one, which is taken over.
///
/// As a context manager it says at the end that this was all, or closes if an exception ended the
/// work. One thread at a time sends, others wait for it; `close` waits for nobody.
#[pyclass(frozen, module = "weftfs_native")]
pub(crate) struct Sender(End<Sending>);

#[pymethods]
impl Sender {
    #[new]
    #[pyo3(signature = (fd, /))]
    fn new(#[pyo3(from_py_with = descriptor)] fd: i32) -> PyResult<Sender> {
        End::of_descriptor(fd, sending).map(Sender)
    }

    /// Send a rope, a block or bytes, which arrive as one rope. Wait while too much is under way.
    ///
    /// Raise BrokenPipeError if the receiver is gone, and OSError (ENOBUFS) if it keeps all memory
    /// that there is for this channel (256 MiB) and waits for more.
    #[pyo3(signature = (data, /))]
    fn send(&self, py: Python<'_>, data: &Bound<'_, PyAny>) -> PyResult<()> {
        let bytes = bytes_of(data)?;
        self.0.using(py, sending, |sender| sender.send(bytes))
    }

    /// Say that this was all, and close: the receiver gets the end after what was sent.
    ///
    /// Raise BrokenPipeError if the receiver went before it had received all.
    fn finish(&self, py: Python<'_>) -> PyResult<()> {
        self.0.ending(py, sending, Sending::finish)
    }

    /// Close without saying that this was all: the receiver gets an error where the end would be.
    ///
    /// Return at once. If another thread waits in `send`, its call raises ValueError.
    fn close(&self, py: Python<'_>) {
        self.0.close(py);
    }

    /// True if this end was closed.
    #[getter]
    fn closed(&self) -> bool {
        self.0.is_closed()
    }

    /// The descriptor of this end, to hand it to another process before its first use.
    fn fileno(&self) -> PyResult<i32> {
        self.0.fileno()
    }

    fn __enter__(slf: Py<Self>) -> Py<Self> {
        slf
    }

    #[pyo3(signature = (*error))]
    fn __exit__(&self, py: Python<'_>, error: &Bound<'_, PyTuple>) -> PyResult<()> {
        let failed = error.get_item(0).is_ok_and(|kind| !kind.is_none());
        if failed {
            self.close(py);
            return Ok(());
        }
        self.finish(py)
    }

    fn __reduce__<'py>(slf: Bound<'py, Self>) -> PyResult<Bound<'py, PyAny>> {
        slf.get().0.reduce(slf.py(), slf.clone().into_any())
    }
}

/// The end of a channel that ropes are received from: `channel()[1]`, or `Receiver(fd)` for the
/// descriptor of one, which is taken over.
///
/// It is an iterator over the ropes. One thread at a time receives, others wait for it; `close`
/// waits for nobody.
#[pyclass(frozen, module = "weftfs_native")]
pub(crate) struct Receiver(End<Receiving>);

#[pymethods]
impl Receiver {
    #[new]
    #[pyo3(signature = (fd, /))]
    fn new(#[pyo3(from_py_with = descriptor)] fd: i32) -> PyResult<Receiver> {
        End::of_descriptor(fd, receiving).map(Receiver)
    }

    /// Return the next rope, or None after the last one. Wait for it.
    ///
    /// The rope lies in memory of the sender, who cannot use it again before the rope and all views
    /// of it are gone. Raise ConnectionResetError if the sender went without saying that it was
    /// finished.
    fn recv(&self, py: Python<'_>) -> PyResult<Option<Rope>> {
        Ok(self.0.using(py, receiving, Receiving::receive)?.map(Rope::from))
    }

    /// Close. The sender gets an error when it sends more. Ropes that were received stay readable.
    ///
    /// Return at once. If another thread waits in `recv`, its call raises ValueError, unless a rope
    /// arrived before.
    fn close(&self, py: Python<'_>) {
        self.0.close(py);
    }

    /// True if this end was closed.
    #[getter]
    fn closed(&self) -> bool {
        self.0.is_closed()
    }

    /// The descriptor of this end, to hand it to another process before its first use.
    fn fileno(&self) -> PyResult<i32> {
        self.0.fileno()
    }

    fn __iter__(slf: Py<Self>) -> Py<Self> {
        slf
    }

    fn __next__(&self, py: Python<'_>) -> PyResult<Option<Rope>> {
        self.recv(py)
    }

    fn __enter__(slf: Py<Self>) -> Py<Self> {
        slf
    }

    #[pyo3(signature = (*_error))]
    fn __exit__(&self, py: Python<'_>, _error: &Bound<'_, PyTuple>) {
        self.close(py);
    }

    fn __reduce__<'py>(slf: Bound<'py, Self>) -> PyResult<Bound<'py, PyAny>> {
        slf.get().0.reduce(slf.py(), slf.clone().into_any())
    }
}
