//! What a link follows from: what it says itself, and what the links on the way follow from. Those
//! are shared, not copied: ways through views of views come to the same ones again and again.

use crate::resolving::watch::Cause;
use rustc_hash::FxHashSet;
use std::sync::Arc;

/// The causes that a link depends on.
#[derive(Clone, Debug, Default)]
pub(crate) struct Causes {
    own: Vec<Cause>,
    of_others: Vec<Arc<Causes>>,
}

impl Causes {
    /// Those that are found on the way.
    pub(crate) fn own(&mut self) -> &mut Vec<Cause> {
        &mut self.own
    }

    /// Adds those of another link.
    pub(crate) fn add(&mut self, others: &Arc<Causes>) {
        if self.of_others.last().is_none_or(|last| !Arc::ptr_eq(last, others)) {
            self.of_others.push(others.clone());
        }
    }

    /// All of them, each once.
    pub(crate) fn all(&self) -> Vec<Cause> {
        let (mut all, mut seen, mut left) = (self.own.clone(), FxHashSet::default(), vec![&self.of_others]);
        while let Some(causes) = left.pop() {
            for causes in causes.iter().filter(|causes| seen.insert(Arc::as_ptr(causes))) {
                all.extend(causes.own.iter().cloned());
                left.push(&causes.of_others);
            }
        }
        all.sort_unstable();
        all.dedup();
        all
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::resolving::watch::Of;
    use weft_store::Ino;

    #[test]
    fn causes_of_others_come_once_however_often_they_are_shared() {
        let mut shared = Arc::new(Causes::default());
        // Twice as many ways to the first one with each.
        for number in 1..100 {
            let mut next = Causes::default();
            next.own().push((Ino(number), Of::Itself));
            let other = Arc::new(Causes { own: Vec::new(), of_others: vec![shared.clone()] });
            for others in [&shared, &other, &shared] {
                next.add(others);
            }
            shared = Arc::new(next);
        }
        let expected: Vec<Cause> = (1..100).map(|number| (Ino(number), Of::Itself)).collect();
        assert_eq!(shared.all(), expected);
    }
}
