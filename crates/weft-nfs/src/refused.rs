//! Logs machines whose calls are refused, once in a while for each.

use crate::machine::machine;
use parking_lot::Mutex;
use rustc_hash::FxHashMap;
use std::fmt;
use std::net::IpAddr;
use std::time::{Duration, Instant};

/// Pause before a machine is logged again.
const PAUSE: Duration = Duration::from_secs(3600);
/// Machines that are remembered. While there are more, no others are logged.
const MACHINES_MAX: usize = 1024;

/// Machines that were logged, and when.
#[derive(Debug, Default)]
pub(crate) struct Refused(Mutex<FxHashMap<IpAddr, Instant>>);

impl Refused {
    /// Logs that `address` is refused this, and why, unless that machine was logged lately.
    pub(crate) fn log(&self, address: IpAddr, what: fmt::Arguments<'_>) {
        if self.is_news(address, Instant::now()) {
            tracing::warn!("{address} {what}");
        }
    }

    fn is_news(&self, address: IpAddr, now: Instant) -> bool {
        let machine = machine(address);
        let mut told = self.0.lock();
        if told.len() >= MACHINES_MAX {
            told.retain(|_, at| now.duration_since(*at) < PAUSE);
        }
        match told.get(&machine) {
            Some(at) if now.duration_since(*at) < PAUSE => false,
            None if told.len() >= MACHINES_MAX => false,
            _ => {
                told.insert(machine, now);
                true
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_machine_is_told_of_once_in_a_while_and_hides_no_other() {
        let (refused, now) = (Refused::default(), Instant::now());
        let is_news = |address: &str, now| refused.is_news(address.parse().unwrap(), now);
        assert!(is_news("127.0.0.1", now) && is_news("10.0.0.1", now));
        assert!(!is_news("127.0.0.9", now) && !is_news("10.0.0.1", now + PAUSE / 2));
        assert!(is_news("10.0.0.1", now + PAUSE) && !is_news("10.0.0.1", now + PAUSE));
        for n in 0..10_000u32 {
            refused.is_news(IpAddr::from((n + (11 << 24)).to_be_bytes()), now);
        }
        assert_eq!(refused.0.lock().len(), MACHINES_MAX);
        assert!(is_news("10.0.0.2", now + PAUSE), "those of long ago are forgotten");
    }
}
