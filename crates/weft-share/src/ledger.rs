//! Memory that was given to programs, and whether they still have it when the daemon does not:
//! nobody can be made to unmap what was lent, and until then it takes room, although the daemon has
//! let go of it.

use parking_lot::Mutex;
use rustix::io::fcntl_dupfd_cloexec;
use std::os::fd::{AsRawFd, OwnedFd};
use std::sync::{Arc, Weak};
use weft_block::shared::Arena;

/// An arena that a person's programs were given.
struct Given {
    person: u32,
    arena: Weak<Arena>,
    /// The arena's file, and thereby its memory.
    file: OwnedFd,
    bytes: usize,
}

/// All of them.
#[derive(Default)]
pub(crate) struct Ledger(Mutex<Vec<Given>>);

impl Ledger {
    /// Notes that programs of `person` were given `arena`.
    pub(crate) fn given(&self, person: u32, arena: &Arc<Arena>) -> std::io::Result<()> {
        let mut all = self.0.lock();
        if all.iter().any(|given| given.person == person && std::ptr::eq(given.arena.as_ptr(), Arc::as_ptr(arena))) {
            return Ok(());
        }
        let file = fcntl_dupfd_cloexec(arena.file(), 0)?;
        all.push(Given { person, arena: Arc::downgrade(arena), file, bytes: arena.len() });
        Ok(())
    }

    /// Forgets what nobody has any more.
    pub(crate) fn sweep(&self) {
        let mut all = self.0.lock();
        all.retain(|given| given.arena.strong_count() > 0 || is_open_elsewhere(&given.file));
    }

    /// Bytes that programs of `person` have although the daemon does not.
    pub(crate) fn lingering(&self, person: u32) -> usize {
        self.sweep();
        let all = self.0.lock();
        let lingering = all.iter().filter(|given| given.person == person && given.arena.strong_count() == 0);
        lingering.map(|given| given.bytes).sum()
    }
}

/// True if any other process has `file` open or mapped. The kernel gives a lease for writing only
/// if none has (fcntl(2), `F_SETLEASE`).
fn is_open_elsewhere(file: &OwnedFd) -> bool {
    // SAFETY: it takes numbers and touches no memory.
    let lease = |kind: i32| unsafe { libc::fcntl(file.as_raw_fd(), libc::F_SETLEASE, kind) };
    let is_alone = lease(libc::F_WRLCK) == 0;
    if is_alone {
        lease(libc::F_UNLCK);
    }
    // Where there are no leases nobody can tell.
    !is_alone && std::io::Error::last_os_error().raw_os_error() == Some(libc::EAGAIN)
}

#[cfg(test)]
mod tests {
    use super::*;
    use weft_block::shared::{Budget, Pool};

    #[test]
    fn what_is_mapped_elsewhere_is_known_until_it_is_unmapped() {
        let pool = Pool::new(4096, Budget::new(1 << 20));
        let block = pool.copy_of(b"lent", 0).unwrap().expect("room");
        let (arena, _) = pool.find(&block).expect("there");
        let ledger = Ledger::default();
        let reader = arena.reader().unwrap();
        ledger.given(7, &arena).unwrap();
        ledger.given(7, &arena).unwrap();
        let bytes = arena.len();
        drop((arena, block));
        assert_eq!((ledger.lingering(7), ledger.lingering(8)), (bytes, 0));
        let mapped = memmap2::MmapOptions::new().len(bytes).map_raw_read_only(&reader).unwrap();
        drop(reader);
        assert_eq!(ledger.lingering(7), bytes, "it is mapped");
        drop(mapped);
        assert_eq!(ledger.lingering(7), 0);
        assert!(ledger.0.lock().is_empty());
    }
}
