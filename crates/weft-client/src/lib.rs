//! Library for programs that read and write files of volumes by reference: libweft.
//!
//! A [`File`] of a mounted volume is read as ropes whose bytes lie in memory that the daemon
//! shares. Any other file is read as usual, so a program need not care. Ropes go from one process
//! to another over [`channel`]s. This crate knows the blocks' crate, and the protocol of daemons
//! ([`protocol`], which daemons use, too). It knows nothing of volumes.
//!
//! A file is read as ropes, wherever it lies:
//!
//! ```
//! # let directory = tempfile::tempdir()?;
//! # let path = directory.path().join("list");
//! std::fs::write(&path, "one\ntwo\n")?;
//! let file = weft_client::File::open(&path)?;
//! let rope = file.read(4, 1 << 20)?;
//! assert_eq!(rope.to_vec(), b"two\n");
//! # Ok::<(), std::io::Error>(())
//! ```
//!
//! A channel passes them on; what it carries is filled where the receiver finds it:
//!
//! ```
//! let (mut sender, mut receiver) = weft_client::channel::channel()?;
//! let sending = std::thread::spawn(move || {
//!     let mut place = sender.place()?;
//!     place[..5].copy_from_slice(b"bytes");
//!     sender.send(place.freeze(5).whole().into())?;
//!     sender.finish()
//! });
//! assert_eq!(receiver.receive()?.expect("one rope").to_vec(), b"bytes");
//! assert!(receiver.receive()?.is_none());
//! sending.join().expect("no panic")?;
//! # Ok::<(), std::io::Error>(())
//! ```

#[cfg(not(loom))]
pub mod channel;
#[cfg(not(loom))]
mod daemon;
#[cfg(not(loom))]
mod errno;
#[cfg(not(loom))]
mod file;
#[cfg(not(loom))]
pub mod lent;
#[cfg(not(loom))]
mod process;
#[cfg(not(loom))]
pub mod protocol;
#[cfg(not(loom))]
pub mod socket;

#[cfg(not(loom))]
pub use errno::errno;
#[cfg(not(loom))]
pub use file::File;

// What is checked by trying every interleaving needs atomic words of another kind, and nothing
// else.
#[cfg(loom)]
#[path = "channel/ring.rs"]
mod ring;
#[cfg(loom)]
fn step() {}
