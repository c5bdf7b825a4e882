//! The messages of a client, one by one (PostgreSQL documentation, "Message Formats").

use std::collections::HashSet;

/// Statement sent to the server instead of a commit that is refused.
const REFUSAL: &[u8] = b"DO $$BEGIN RAISE EXCEPTION 'injected' USING ERRCODE = 'serialization_failure'; END$$";

/// The messages of one connection.
#[derive(Default)]
pub(super) struct Messages {
    /// Bytes of a message that has not come whole.
    begun: Vec<u8>,
    /// The first one has no kind.
    has_started: bool,
    /// Names of prepared statements that commit.
    commits: HashSet<Vec<u8>>,
    /// The rest of what was refused, up to its end, is left out.
    refusing: bool,
}

impl Messages {
    /// Returns the bytes to pass on now that `bytes` have come; a commit is left out, and one that
    /// fails put in its place, if it `refuses`.
    pub(super) fn take(&mut self, bytes: &[u8], mut refuses: impl FnMut() -> bool) -> Vec<u8> {
        self.begun.extend_from_slice(bytes);
        let mut out = Vec::new();
        while let Some(length) = self.length() {
            let message = self.begun.drain(..length).collect::<Vec<_>>();
            if std::mem::replace(&mut self.has_started, true) {
                self.pass(message, &mut out, &mut refuses);
            } else {
                out.extend(message);
            }
        }
        out
    }

    /// Bytes of the first message, if all of it is here.
    fn length(&self) -> Option<usize> {
        let kind = usize::from(self.has_started);
        let length = self.begun.get(kind..kind + 4)?.try_into().expect("four bytes");
        let length = kind + u32::from_be_bytes(length) as usize;
        (length <= self.begun.len()).then_some(length)
    }

    fn pass(&mut self, message: Vec<u8>, out: &mut Vec<u8>, refuses: &mut impl FnMut() -> bool) {
        let mut texts = message[5..].split(|byte| *byte == 0);
        let (first, second) = (texts.next().unwrap_or_default(), texts.next().unwrap_or_default());
        match message[0] {
            // Parse: the name of a statement, and its text.
            b'P' if second == b"COMMIT" => {
                self.commits.insert(first.to_vec());
            }
            // Bind: the name of a portal, and of a statement.
            b'B' if self.commits.contains(second) && refuses() => self.refusing = true,
            _ => {}
        }
        if !self.refusing {
            out.extend(message);
        } else if message[0] == b'S' {
            self.refusing = false;
            out.push(b'Q');
            out.extend((REFUSAL.len() as u32 + 5).to_be_bytes());
            out.extend(REFUSAL);
            out.push(0);
        }
    }
}
