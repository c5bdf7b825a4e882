//! The service manager that started this process, if one did (sd_notify(3)): it hears when the
//! volume is served, that this process is alive, and that ending takes longer while it commits.

use parking_lot::{Condvar, Mutex};
use sd_notify::{NotifyState, notify, watchdog_enabled};
use std::sync::{Arc, Weak};
use std::thread::JoinHandle;
use std::time::Duration;
use weft_vfs::Vfs;

/// Time between two looks where nobody asks for one.
const LOOK_AGAIN: Duration = Duration::from_secs(10);

/// Time that is asked for at each look while this process ends and commits go on.
const MORE_TIME: u32 = 60_000_000;

/// The service manager, until this is dropped.
pub struct Supervisor {
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
}

#[derive(Default)]
struct Shared {
    stage: Mutex<Stage>,
    changed: Condvar,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Stage {
    #[default]
    Serves,
    Ends,
    HasEnded,
}

/// Tells the service manager `states`. One that cannot be told is as one that is not there.
fn tell(states: &[NotifyState<'_>]) {
    if let Err(error) = notify(states) {
        tracing::warn!("the service manager cannot be told how this service does: {error}");
    }
}

impl Supervisor {
    /// Says that `vfs` is served as `status` tells. Nothing is said where no service manager
    /// listens.
    pub fn start(vfs: Weak<Vfs>, status: &str) -> Supervisor {
        let shared = Arc::<Shared>::default();
        if std::env::var_os("NOTIFY_SOCKET").is_none() {
            return Supervisor { shared, thread: None };
        }
        tell(&[NotifyState::MainPid(std::process::id()), NotifyState::Status(status), NotifyState::Ready]);
        // Half of the time within which it must hear of this process.
        let interval = watchdog_enabled().map(|within| within / 2);
        let own = shared.clone();
        let watches = move || own.watch(&vfs, interval);
        let thread = std::thread::Builder::new().name("weft-notify".into()).spawn(watches);
        let thread = thread.inspect_err(|error| tracing::warn!("the service manager hears no more: {error}")).ok();
        Supervisor { shared, thread }
    }

    /// Says that this process ends, and goes on to ask for time as long as commits go on.
    pub fn ends(&self) {
        if self.thread.is_some() {
            tell(&[NotifyState::Stopping, NotifyState::Status("committing all changes")]);
            self.shared.enter(Stage::Ends);
        }
    }
}

impl Drop for Supervisor {
    fn drop(&mut self) {
        self.shared.enter(Stage::HasEnded);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

impl Shared {
    fn enter(&self, stage: Stage) {
        *self.stage.lock() = stage;
        self.changed.notify_all();
    }

    fn watch(&self, vfs: &Weak<Vfs>, interval: Option<Duration>) {
        // Commits, and bytes yet to be committed, at the last look.
        let mut seen = None;
        let mut stage = self.stage.lock();
        while *stage != Stage::HasEnded {
            let ends = *stage == Stage::Ends;
            parking_lot::MutexGuard::unlocked(&mut stage, || {
                // Asking the volume shows that it is not stuck: nobody hears of one that is.
                let now = vfs.upgrade().map(|vfs| vfs.stats()).map(|stats| (stats.commits, stats.dirty_bytes));
                if interval.is_some() {
                    tell(&[NotifyState::Watchdog]);
                }
                if ends && now.is_some() && now != seen {
                    tell(&[NotifyState::ExtendTimeoutUsec(MORE_TIME)]);
                }
                seen = now;
            });
            // It may have been entered meanwhile.
            if *stage == (if ends { Stage::Ends } else { Stage::Serves }) {
                let wait = if ends {
                    LOOK_AGAIN.min(interval.unwrap_or(LOOK_AGAIN))
                } else {
                    interval.unwrap_or(Duration::MAX)
                };
                match wait {
                    Duration::MAX => self.changed.wait(&mut stage),
                    wait => _ = self.changed.wait_for(&mut stage, wait),
                }
            }
        }
    }
}
