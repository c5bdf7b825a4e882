//! libweft for Python: the native part of the wheel `weftfs-native`, which is documented in
//! `python/weftfs-native`. Classes translate calls to `weft_client` and `weft_block`, and nothing
//! more. They know Python, and nothing of volumes.
//!
//! Invariants: no call that may wait, read or copy much keeps other threads of the interpreter from
//! running; a signal's handler runs while a call waits; every error has a number; no panic is meant
//! to get out. Only `raw` is unsafe.

mod block;
mod channel;
mod error;
mod file;
mod number;
mod process;
mod raw;
mod rope;

use pyo3::prelude::*;

/// The module `weftfs_native._native`.
#[pymodule]
mod _native {
    #[pymodule_export]
    use crate::block::Block;
    #[pymodule_export]
    use crate::channel::{Receiver, Sender, channel};
    #[pymodule_export]
    use crate::file::{Blocks, File};
    #[pymodule_export]
    use crate::rope::Rope;
    use pyo3::prelude::*;

    #[pymodule_init]
    fn init(module: &Bound<'_, PyModule>) -> PyResult<()> {
        module.add("__version__", env!("CARGO_PKG_VERSION"))
    }
}
