//! Ends of channels, as objects that threads share and that fork(2) copies.
//!
//! An end is a socket until it is first used, so that a child process may inherit it. The process
//! that uses it first owns it from then on.
//!
//! Locks: `state` is locked for a moment only, never over I/O. A thread that uses the end takes it
//! out of the state meanwhile ([`State::Busy`]), so [`End::close`] need not wait for that thread.
//! The holder of the lock never waits for the interpreter's lock.
//!
//! fork(2) copies the lock, but not the thread that holds it, so a lock that was held stays locked
//! in the child. Two rules keep a child from waiting for it:
//! - A use writes `owner` before it locks, and a process that is not the owner does not lock.
//! - As long as there is no owner, threads hold the lock only while they also hold the
//!   interpreter's lock. `os.fork` holds that one, so it finds `state` unlocked.

use crate::error::{closed, closed_meanwhile, exception};
use crate::process::Own;
use crate::raw;
use pyo3::exceptions::{PyOSError, PyRuntimeError, PyValueError};
use pyo3::prelude::*;
use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd, RawFd};
use std::sync::atomic::{AtomicI32, AtomicU32, Ordering};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::{self, ThreadId};
use std::time::Duration;

/// Longest time that a signal waits for its handler while a thread waits for another one.
const SIGNALS_EVERY: Duration = Duration::from_millis(100);

/// Number of an end that is closed.
const CLOSED: RawFd = -1;

/// Owner of an end that was not used yet.
const NOBODY: u32 = 0;

/// An end of a channel.
pub(super) struct End<T> {
    state: Mutex<State<T>>,
    /// Signalled when a thread has done with the end, and when the end is closed.
    released: Condvar,
    /// Number of the socket. It can be read while a thread uses the end.
    number: AtomicI32,
    /// The process that the end belongs to. Written before the first use locks `state`.
    owner: AtomicU32,
}

enum State<T> {
    /// Any process may use it.
    Unused(OwnedFd),
    /// The owner's, and no thread uses it. In a process that the owner forked it is a copy.
    Idle(Own<T>),
    /// The thread has it. The socket is there once the thread may wait for it, and stays open until
    /// the thread has left this state.
    Busy(ThreadId, Option<RawFd>),
    Closed,
}

/// Makes an end of its socket.
pub(super) type Attach<T> = fn(OwnedFd) -> io::Result<T>;

impl<T: AsFd + Send> End<T> {
    /// Returns the end that `socket` is, for any process to use.
    pub(super) fn unused(socket: OwnedFd) -> End<T> {
        End::new(socket.as_raw_fd(), State::Unused(socket), NOBODY)
    }

    /// Returns the end that the caller's descriptor `number` is. The caller gives it up, unless
    /// this fails.
    pub(super) fn of_descriptor(number: RawFd, attach: Attach<T>) -> PyResult<End<T>> {
        let end = raw::copy_descriptor(number).and_then(attach).map_err(exception)?;
        raw::close_descriptor(number);
        Ok(End::new(end.as_fd().as_raw_fd(), State::Idle(Own::new(end)), std::process::id()))
    }

    fn new(number: RawFd, state: State<T>, owner: u32) -> End<T> {
        End {
            state: Mutex::new(state),
            released: Condvar::new(),
            number: AtomicI32::new(number),
            owner: AtomicU32::new(owner),
        }
    }

    /// Does `work` with the end while other threads of the interpreter run. Waits while another
    /// thread uses the end.
    pub(super) fn using<R: Send>(
        &self,
        py: Python<'_>,
        attach: Attach<T>,
        work: impl FnOnce(&mut T) -> io::Result<R> + Send,
    ) -> PyResult<R> {
        let mut taken = self.take(py, attach)?;
        py.detach(move || {
            let end = taken.value.as_mut().map_or(Ok(None), Own::get_mut).map_err(not_here)?;
            let done = work(end.ok_or_else(|| closed("channel"))?);
            drop(taken);
            done.map_err(|error| match error.kind() {
                // The handler of a signal raised an exception, which goes on.
                io::ErrorKind::Interrupted => exception(error),
                _ if self.is_closed() => closed_meanwhile("channel"),
                _ => exception(error),
            })
        })
    }

    /// Closes the end, and does `work` with it. Nothing if it is closed.
    pub(super) fn ending(&self, py: Python<'_>, attach: Attach<T>, work: fn(T) -> io::Result<()>) -> PyResult<()> {
        if self.is_closed() {
            return Ok(());
        }
        let mut taken = self.take(py, attach)?;
        let mut end = taken.value.take();
        drop(taken);
        py.detach(|| match end.as_mut().map_or(Ok(None), Own::take).map_err(not_here)? {
            Some(end) => work(end).map_err(exception),
            None => Ok(()),
        })
    }

    /// Closes the end. A call that waits in another thread fails.
    ///
    /// As Go's `Conn.Close` and shutdown(2) do. close(2) would leave the other thread waiting. A
    /// copy of an end that another process owns is only marked as closed, and so is the copy of an
    /// end that nobody has used: other processes may use theirs.
    pub(super) fn close(&self, py: Python<'_>) {
        if self.check_owner().is_err() {
            self.number.store(CLOSED, Ordering::Relaxed);
            return;
        }
        let before = {
            let mut state = self.lock();
            if let State::Busy(_, Some(socket)) = *state {
                // It is open: its thread has to lock the state before it may close it.
                raw::shut_down(socket);
            }
            self.close_locked(&mut state)
        };
        py.detach(|| {
            if let State::Idle(end) = &before
                && let Some(end) = end.get()
            {
                raw::shut_down(end.as_fd().as_raw_fd());
            }
            drop(before);
        });
    }

    pub(super) fn fileno(&self) -> PyResult<RawFd> {
        match self.number.load(Ordering::Relaxed) {
            CLOSED => Err(closed("channel")),
            number => Ok(number),
        }
    }

    pub(super) fn is_closed(&self) -> bool {
        self.number.load(Ordering::Relaxed) == CLOSED
    }

    /// Returns what pickle needs to make the end again in a process that multiprocessing spawns.
    pub(super) fn reduce<'py>(&self, py: Python<'py>, object: Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
        self.fileno()?;
        self.check_owner()?;
        let is_unused = matches!(*self.lock(), State::Unused(_));
        if !is_unused {
            return Err(PyValueError::new_err(
                "this end of the channel is in use here: pass it on before its first use",
            ));
        }
        py.import("weftfs_native._spawn")?.call_method1("reduce", (object,))
    }

    /// Takes the end out of the state, for one use by this thread. Waits while another thread uses
    /// it.
    fn take(&self, py: Python<'_>, attach: Attach<T>) -> PyResult<Taken<'_, T>> {
        self.claim()?;
        let thread = thread::current().id();
        loop {
            let mut state = self.lock();
            match std::mem::replace(&mut *state, State::Closed) {
                State::Idle(end) => {
                    *state = State::Busy(thread, Some(self.number.load(Ordering::Relaxed)));
                    return Ok(Taken { end: self, value: Some(end) });
                }
                State::Unused(socket) => {
                    *state = State::Busy(thread, None);
                    drop(state);
                    self.attach(py, socket, attach)?;
                }
                State::Busy(user, socket) => {
                    *state = State::Busy(user, socket);
                    drop(state);
                    self.wait(py, user)?;
                }
                State::Closed => return Err(closed("channel")),
            }
        }
    }

    /// Makes this process the owner, unless another one is.
    fn claim(&self) -> PyResult<()> {
        // First, so that a closed copy says that it is closed.
        self.fileno()?;
        // If another process is the owner already, it stays.
        let _ = self.owner.compare_exchange(NOBODY, std::process::id(), Ordering::Relaxed, Ordering::Relaxed);
        self.check_owner()
    }

    /// An error if another process used this end before it forked this one.
    fn check_owner(&self) -> PyResult<()> {
        match self.owner.load(Ordering::Relaxed) {
            NOBODY => Ok(()),
            owner if owner == std::process::id() => Ok(()),
            owner => Err(not_here(owner)),
        }
    }

    /// Makes the end of `socket`, which this thread took out of the state. If that fails, the end
    /// is closed.
    fn attach(&self, py: Python<'_>, socket: OwnedFd, attach: Attach<T>) -> PyResult<()> {
        let mut taken = Taken { end: self, value: None };
        taken.value = Some(Own::new(py.detach(|| attach(socket)).map_err(exception)?));
        Ok(())
    }

    /// Waits while `user`, another thread, has the end.
    fn wait(&self, py: Python<'_>, user: ThreadId) -> PyResult<()> {
        if user == thread::current().id() {
            return Err(PyRuntimeError::new_err(
                "reentrant call: the handler of a signal uses an end of a channel that the interrupted call uses",
            ));
        }
        py.detach(|| {
            let is_busy = |state: &mut State<T>| matches!(state, State::Busy(..));
            drop(self.released.wait_timeout_while(self.lock(), SIGNALS_EVERY, is_busy));
        });
        py.check_signals()
    }

    /// Closes the end, and returns its state before.
    fn close_locked(&self, state: &mut State<T>) -> State<T> {
        self.number.store(CLOSED, Ordering::Relaxed);
        self.released.notify_all();
        std::mem::replace(state, State::Closed)
    }

    fn lock(&self) -> MutexGuard<'_, State<T>> {
        // Nothing that can panic is done halfway under this lock.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The end while a thread uses it. Dropped, it goes back into the state. If the value is gone, or
/// the end was closed meanwhile, the end is closed.
struct Taken<'a, T: AsFd + Send> {
    end: &'a End<T>,
    value: Option<Own<T>>,
}

impl<T: AsFd + Send> Drop for Taken<'_, T> {
    fn drop(&mut self) {
        let mut state = self.end.lock();
        match (&*state, self.value.take()) {
            (State::Busy(..), Some(value)) => {
                *state = State::Idle(value);
                self.end.released.notify_all();
            }
            (_, value) => {
                self.end.close_locked(&mut state);
                drop(state);
                drop(value);
            }
        }
    }
}

/// Returns the exception for a use of an end that the process `owner` used before it forked this
/// one.
fn not_here(owner: u32) -> PyErr {
    let text = format!("this end of the channel belongs to process {owner}, which used it before it forked this one");
    PyOSError::new_err((libc::EINVAL, text))
}
