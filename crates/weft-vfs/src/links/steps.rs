//! A bound on the work of resolving one link: it is done under the lock of all requests.

use crate::error::ErrorKind;

/// Steps of resolving one link with all links on the way. A name on the way to a target is one. The
/// longest definition has fewer, where no other links and no symbolic ones are on the way and names
/// are as long as usual. The documents give this number.
const STEPS_MAX: usize = 8192;

/// The steps that were taken for the link that is being resolved.
#[derive(Default)]
pub(super) struct Steps(usize);

impl Steps {
    /// Begins with another link.
    pub(super) fn restart(&mut self) {
        self.0 = 0;
    }

    /// Takes `more` steps. `Loop` if that is too many.
    pub(super) fn take(&mut self, more: usize) -> Result<(), ErrorKind> {
        self.0 = self.0.saturating_add(more);
        if self.0 > STEPS_MAX { Err(ErrorKind::Loop) } else { Ok(()) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn steps_add_up_until_another_link_begins() {
        let mut steps = Steps::default();
        assert_eq!(steps.take(STEPS_MAX), Ok(()));
        assert_eq!(steps.take(1), Err(ErrorKind::Loop));
        assert_eq!(steps.take(usize::MAX), Err(ErrorKind::Loop));
        steps.restart();
        assert_eq!(steps.take(1), Ok(()));
    }
}
