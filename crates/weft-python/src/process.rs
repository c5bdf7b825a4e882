//! Values that belong to the process that made them.
//!
//! fork(2) copies them, but what they give back when they are dropped is there once: memory that
//! the other end of a channel may use again, or the channel itself. So a copy in a child process is
//! forgotten where the original would be dropped.

/// A value of the process that made it.
#[derive(Debug)]
pub(crate) struct Own<T> {
    /// Some, until it is dropped or taken.
    value: Option<T>,
    process: u32,
}

impl<T> Own<T> {
    /// Wraps `value`, which belongs to this process.
    pub(crate) fn new(value: T) -> Own<T> {
        Own { value: Some(value), process: std::process::id() }
    }

    /// The value, to be read only. None after [`Own::take`]. A child process that was forked reads
    /// the same memory, as long as its parent keeps the original.
    pub(crate) fn get(&self) -> Option<&T> {
        self.value.as_ref()
    }

    /// The value, to be used. The error is the number of the process that it belongs to.
    pub(crate) fn get_mut(&mut self) -> Result<Option<&mut T>, u32> {
        if self.is_own() { Ok(self.value.as_mut()) } else { Err(self.process) }
    }

    /// Takes the value out, for good. The error is as for [`Own::get_mut`].
    pub(crate) fn take(&mut self) -> Result<Option<T>, u32> {
        if self.is_own() { Ok(self.value.take()) } else { Err(self.process) }
    }

    fn is_own(&self) -> bool {
        self.process == std::process::id()
    }
}

impl<T> Drop for Own<T> {
    fn drop(&mut self) {
        if !self.is_own() {
            std::mem::forget(self.value.take());
        }
    }
}
