//! Turns for calls to clients: few of one machine at a time, so that a machine whose clients do not
//! answer holds up no calls to others.

use crate::machine::machine;
use parking_lot::Mutex;
use rustc_hash::FxHashMap;
use std::net::IpAddr;
use std::sync::Arc;
use tokio::sync::Semaphore;

/// Calls that are under way: of all, and of one machine.
const ALL_MAX: usize = 64;
const OF_MACHINE_MAX: usize = 4;

/// The turns.
pub(super) struct Turns {
    all: Semaphore,
    /// Turns of machines that are called, or wait for it.
    machines: Mutex<FxHashMap<IpAddr, Arc<Semaphore>>>,
}

impl Default for Turns {
    fn default() -> Turns {
        Turns { all: Semaphore::new(ALL_MAX), machines: Mutex::default() }
    }
}

impl Turns {
    /// Makes `call` to the program at `address` once it is its turn.
    pub(super) async fn call<T>(&self, address: IpAddr, call: impl Future<Output = T>) -> T {
        let machine = machine(address);
        let new = || Arc::new(Semaphore::new(OF_MACHINE_MAX));
        let own = self.machines.lock().entry(machine).or_insert_with(new).clone();
        let result = {
            let _own = own.acquire().await;
            let _all = self.all.acquire().await;
            call.await
        };
        drop(own);
        let mut machines = self.machines.lock();
        if machines.get(&machine).is_some_and(|own| Arc::strong_count(own) == 1) {
            machines.remove(&machine);
        }
        result
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::future::{pending, ready};
    use std::task::{Context, Waker};

    #[test]
    fn a_machine_that_does_not_answer_holds_up_no_calls_to_others() {
        let turns = Turns::default();
        let mut context = Context::from_waker(Waker::noop());
        let mut silent: Vec<_> =
            (0..200).map(|n| Box::pin(turns.call([127, 0, 0, n].into(), pending::<()>()))).collect();
        assert!(silent.iter_mut().all(|call| call.as_mut().poll(&mut context).is_pending()));
        assert_eq!(turns.all.available_permits(), ALL_MAX - OF_MACHINE_MAX);
        let mut other = Box::pin(turns.call([10, 0, 0, 1].into(), ready(())));
        assert!(other.as_mut().poll(&mut context).is_ready());
        assert_eq!(turns.machines.lock().len(), 1, "whoever was called is forgotten");
    }
}
