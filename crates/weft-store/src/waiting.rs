//! Operations that were synced and that no commit has yet.

/// The operations in the intent log of a volume that the volume's last commit lacks.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Waiting {
    /// Operations that the next mount applies.
    pub operations: u64,
    /// True if bytes wait that were written over damaged blocks, which no commit could store.
    pub is_carried: bool,
    /// True if somebody holds the volume, who knows about the rest.
    pub is_held: bool,
    /// The loss of synced operations, if any, and what to do about it.
    pub lost: Option<String>,
}

impl Waiting {
    /// Reports, in a line for the user, the operations that wait.
    pub fn note(&self) -> Option<String> {
        Some(format!("{} in the intent log; a mount applies {}", self.wait()?, self.them()))
    }

    /// Reports, as the end of a line about a volume that was repaired, the operations that wait.
    pub fn clause(&self) -> Option<String> {
        Some(format!("{} in the intent log, and a mount applies {} first", self.wait()?, self.them()))
    }

    fn wait(&self) -> Option<String> {
        match self.operations {
            0 => self.is_carried.then(|| "bytes that were written over a damaged block wait".to_owned()),
            1 => Some("1 operation waits".to_owned()),
            count => Some(format!("{count} operations wait")),
        }
    }

    fn them(&self) -> &'static str {
        if self.operations == 1 { "it" } else { "them" }
    }
}

#[cfg(test)]
mod tests {
    use super::Waiting;

    #[test]
    fn operations_that_wait_are_counted_in_words() {
        let note = |operations| Waiting { operations, ..Waiting::default() }.note();
        assert_eq!(note(0), None);
        assert_eq!(note(1).as_deref(), Some("1 operation waits in the intent log; a mount applies it"));
        assert_eq!(note(7).as_deref(), Some("7 operations wait in the intent log; a mount applies them"));
        let clause = |operations| Waiting { operations, ..Waiting::default() }.clause();
        assert_eq!(clause(0), None);
        let carried = Waiting { is_carried: true, ..Waiting::default() }.note();
        assert_eq!(
            carried.as_deref(),
            Some("bytes that were written over a damaged block wait in the intent log; a mount applies them")
        );
        assert_eq!(clause(2).as_deref(), Some("2 operations wait in the intent log, and a mount applies them first"));
    }
}
