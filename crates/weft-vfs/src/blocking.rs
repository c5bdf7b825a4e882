//! Tells a transport that the current request is about to wait.
//!
//! A transport serves requests on few threads. Before an operation waits (for a disk, a commit,
//! room for dirty data) it asks the thread's hook. The hook may arrange that another thread serves
//! requests meanwhile, or judge that so short a wait is no reason to, and answer [`Answer::Wait`],
//! or answer [`Answer::GiveUp`]: the operation then fails with `ErrorKind::WouldBlock`, having
//! changed nothing, to be tried again on a thread that may wait.

use std::cell::RefCell;

/// Decision of a hook.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Answer {
    /// Wait on this thread.
    Wait,
    /// Fail with `WouldBlock`.
    GiveUp,
}

/// Reason for a wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wait {
    /// Rows of a server.
    Rows,
    /// The reading of one block.
    Read,
    /// One short append to the intent log. It serves all who wait for one.
    Log,
    /// A network that keeps places, in which code of others runs: mostly short, but nobody knows.
    /// It starts no threads that work for it alone.
    Places,
    /// Any other network.
    Network,
    /// A commit, however much it holds.
    Commit,
}

type Hook = Box<dyn Fn(Wait) -> Answer>;

thread_local! {
    static HOOK: RefCell<Option<Hook>> = const { RefCell::new(None) };
}

/// Sets the hook of this thread; without one operations just wait. The hook must not call the vfs.
pub fn set_hook(hook: impl Fn(Wait) -> Answer + 'static) {
    HOOK.with(|slot| *slot.borrow_mut() = Some(Box::new(hook)));
}

/// Calls `work`, which waits as it must: whoever calls has asked the hook already.
pub fn waiting<T>(work: impl FnOnce() -> T) -> T {
    struct Restored(Option<Hook>);
    impl Drop for Restored {
        fn drop(&mut self) {
            let hook = self.0.take();
            HOOK.with(|slot| *slot.borrow_mut() = hook);
        }
    }
    let _restored = Restored(HOOK.with(|slot| slot.borrow_mut().take()));
    work()
}

/// Asks the hook of this thread.
pub(crate) fn about_to_wait(wait: Wait) -> Answer {
    HOOK.with(|slot| slot.borrow().as_ref().map_or(Answer::Wait, |hook| hook(wait)))
}
