//! Work that nobody waits for any more: whoever runs a network on a thread says how that is to be
//! asked, and stages ask where they may take long.
//!
//! A network that is interrupted has lost nothing: it goes on when it is asked for more. Code of
//! others that is interrupted ends.

use std::cell::RefCell;
use std::time::Duration;

/// Interval at which a waiting thread checks for an interrupt.
pub const PERIOD: Duration = Duration::from_millis(50);

type Asked = Box<dyn Fn() -> bool>;

thread_local! {
    static ASKED: RefCell<Option<Asked>> = const { RefCell::new(None) };
}

/// Does `work`, meanwhile `is_interrupted` tells whether nobody waits for it any more.
pub fn during<T>(is_interrupted: impl Fn() -> bool + 'static, work: impl FnOnce() -> T) -> T {
    struct Restored(Option<Asked>);
    impl Drop for Restored {
        fn drop(&mut self) {
            let before = self.0.take();
            ASKED.with(|slot| *slot.borrow_mut() = before);
        }
    }
    let before = ASKED.with(|slot| slot.borrow_mut().replace(Box::new(is_interrupted)));
    let _restored = Restored(before);
    work()
}

/// True if nobody waits for the work of this thread.
pub fn is_interrupted() -> bool {
    ASKED.with(|slot| slot.borrow().as_ref().is_some_and(|asked| asked()))
}
