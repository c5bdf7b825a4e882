//! Channels.
//!
//! An end is a socket until it is first used, so that a child process may inherit it; from then on
//! it belongs to the process that used it.

use crate::error::{closed, exception, handle_signals};
use crate::process::Own;
use crate::raw;
use crate::rope::{Rope, bytes_of};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::PyTuple;
use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::sync::atomic::{AtomicI32, AtomicU32, Ordering};
use std::sync::{Mutex, PoisonError};
use weft_client::channel::{Receiver as Receiving, Sender as Sending, sockets};

/// Return the ends of a new channel: a `Sender` and a `Receiver`.
///
/// Ropes arrive as they were sent, one by one. Memory that a daemon shares, and memory that came
/// over a channel, is sent on without a copy; other bytes are copied once, into memory that the
/// receiver maps. At most 4 MiB are under way; beyond that, sending waits.
///
/// An end belongs to the process that uses it first. Until then a child process may have it
/// instead, as it may have an end of a pipe: by fork, as an argument of `multiprocessing.Process`,
/// or by number (`pass_fds=[sender.fileno()]`, and `Sender(number)` in the child). Each process
/// closes the ends that it does not use, or nobody learns that the other end is gone.
#[pyfunction]
pub(crate) fn channel() -> PyResult<(Sender, Receiver)> {
    let (sender, receiver) = sockets().map_err(exception)?;
    Ok((Sender(End::unused(sender)), Receiver(End::unused(receiver))))
}

/// An end of a channel.
struct End<T> {
    state: Mutex<State<T>>,
    /// Number of the socket, which can be asked for while another thread waits; -1 once closed.
    number: AtomicI32,
    /// The process that uses it; 0 before that.
    owner: AtomicU32,
}

enum State<T> {
    /// Any process may use it.
    Unused(OwnedFd),
    /// This process uses it, or it is a copy of one that another one uses.
    Used(Own<T>),
    Closed,
}

/// Makes an end of its socket.
type Attach<T> = fn(OwnedFd) -> io::Result<T>;

impl<T: AsFd + Send> End<T> {
    fn unused(socket: OwnedFd) -> End<T> {
        let number = AtomicI32::new(socket.as_raw_fd());
        End { number, state: Mutex::new(State::Unused(socket)), owner: AtomicU32::new(0) }
    }

    /// The end that the caller's descriptor `number` is. The caller gives it up, unless this fails.
    fn of_descriptor(number: i32, attach: Attach<T>) -> PyResult<End<T>> {
        let end = raw::copy_descriptor(number).and_then(attach).map_err(exception)?;
        raw::close_descriptor(number);
        let number = AtomicI32::new(end.as_fd().as_raw_fd());
        let owner = AtomicU32::new(std::process::id());
        Ok(End { number, state: Mutex::new(State::Used(Own::new(end))), owner })
    }

    /// Does `work` with the state while other threads of the interpreter run.
    fn with<R: Send>(&self, py: Python<'_>, work: impl FnOnce(&mut State<T>) -> PyResult<R> + Send) -> PyResult<R> {
        // The lock of a copy may be held for ever, by a thread that the parent alone has.
        self.check_owner()?;
        py.detach(|| {
            let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
            let done = work(&mut state);
            if let State::Used(_) = &*state {
                self.owner.store(std::process::id(), Ordering::Relaxed);
            }
            done
        })
    }

    /// An error if another process used this end before it forked this one.
    fn check_owner(&self) -> PyResult<()> {
        match self.owner.load(Ordering::Relaxed) {
            0 => Ok(()),
            owner if owner == std::process::id() => Ok(()),
            owner => Err(not_here(owner)),
        }
    }

    /// Does `work` with the end.
    fn using<R: Send>(
        &self,
        py: Python<'_>,
        attach: Attach<T>,
        work: impl FnOnce(&mut T) -> io::Result<R> + Send,
    ) -> PyResult<R> {
        self.with(py, |state| work(state.end(attach)?).map_err(exception))
    }

    /// Closes the end, and does `work` with it. Nothing if it is closed.
    fn ending(&self, py: Python<'_>, attach: Attach<T>, work: fn(T) -> io::Result<()>) -> PyResult<()> {
        self.with(py, |state| {
            if matches!(state, State::Closed) {
                return Ok(());
            }
            state.end(attach)?;
            self.number.store(-1, Ordering::Relaxed);
            match std::mem::replace(state, State::Closed) {
                State::Used(mut end) => end.take().map_err(not_here)?.map_or(Ok(()), work).map_err(exception),
                State::Unused(_) | State::Closed => Ok(()),
            }
        })
    }

    /// Closes the end. A copy of one that another process uses is only marked as closed.
    fn close(&self, py: Python<'_>) -> PyResult<()> {
        if self.check_owner().is_err() {
            self.number.store(-1, Ordering::Relaxed);
            return Ok(());
        }
        self.with(py, |state| {
            self.number.store(-1, Ordering::Relaxed);
            drop(std::mem::replace(state, State::Closed));
            Ok(())
        })
    }

    fn fileno(&self) -> PyResult<i32> {
        match self.number.load(Ordering::Relaxed) {
            -1 => Err(closed("channel")),
            number => Ok(number),
        }
    }

    fn is_closed(&self) -> bool {
        self.number.load(Ordering::Relaxed) == -1
    }

    /// What pickle needs to make it again in a process that multiprocessing spawns.
    fn reduce<'py>(&self, py: Python<'py>, object: Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
        self.fileno()?;
        let is_unused = self.with(py, |state| Ok(matches!(state, State::Unused(_))))?;
        if !is_unused {
            return Err(PyValueError::new_err(
                "this end of the channel is in use here: pass it on before its first use",
            ));
        }
        py.import("weftfs_native._spawn")?.call_method1("reduce", (object,))
    }
}

impl<T> State<T> {
    /// The end, ready to be used.
    fn end(&mut self, attach: Attach<T>) -> PyResult<&mut T> {
        if let State::Unused(_) = self
            && let State::Unused(socket) = std::mem::replace(self, State::Closed)
        {
            *self = State::Used(Own::new(attach(socket).map_err(exception)?));
        }
        match self {
            State::Used(end) => end.get_mut().map_err(not_here)?.ok_or_else(|| closed("channel")),
            State::Unused(_) | State::Closed => Err(closed("channel")),
        }
    }
}

/// The exception for a use of an end that the process `owner` used before it forked this one.
fn not_here(owner: u32) -> PyErr {
    let text = format!("this end of the channel belongs to process {owner}, which used it before it forked this one");
    pyo3::exceptions::PyOSError::new_err((libc::EINVAL, text))
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
/// work. One thread at a time uses it, others wait.
#[pyclass(frozen, module = "weftfs_native")]
pub(crate) struct Sender(End<Sending>);

#[pymethods]
impl Sender {
    #[new]
    #[pyo3(signature = (fd, /))]
    fn new(fd: i32) -> PyResult<Sender> {
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
    fn close(&self, py: Python<'_>) -> PyResult<()> {
        self.0.close(py)
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
        if failed { self.close(py) } else { self.finish(py) }
    }

    fn __reduce__<'py>(slf: Bound<'py, Self>) -> PyResult<Bound<'py, PyAny>> {
        slf.get().0.reduce(slf.py(), slf.clone().into_any())
    }
}

/// The end of a channel that ropes are received from: `channel()[1]`, or `Receiver(fd)` for the
/// descriptor of one, which is taken over.
///
/// It is an iterator over the ropes. One thread at a time uses it, others wait.
#[pyclass(frozen, module = "weftfs_native")]
pub(crate) struct Receiver(End<Receiving>);

#[pymethods]
impl Receiver {
    #[new]
    #[pyo3(signature = (fd, /))]
    fn new(fd: i32) -> PyResult<Receiver> {
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

    /// Close. The sender gets an error when it sends more. What was received stays.
    fn close(&self, py: Python<'_>) -> PyResult<()> {
        self.0.close(py)
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
    fn __exit__(&self, py: Python<'_>, _error: &Bound<'_, PyTuple>) -> PyResult<()> {
        self.close(py)
    }

    fn __reduce__<'py>(slf: Bound<'py, Self>) -> PyResult<Bound<'py, PyAny>> {
        slf.get().0.reduce(slf.py(), slf.clone().into_any())
    }
}
