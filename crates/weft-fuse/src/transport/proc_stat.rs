//! The kernel's status line of a thread (proc_pid_stat(5)).

use rustix::thread::Pid;

/// A status line.
pub(super) struct Stat(String);

/// Reads the line of any thread in the system; none if no thread has this number.
pub(super) fn of(thread: u32) -> Option<Stat> {
    std::fs::read_to_string(format!("/proc/{thread}/stat")).ok().map(Stat)
}

/// Reads the line of a thread of this process.
pub(super) fn of_thread(thread: Pid) -> Option<Stat> {
    let path = format!("/proc/self/task/{}/stat", thread.as_raw_nonzero());
    std::fs::read_to_string(path).ok().map(Stat)
}

impl Stat {
    /// Returns field `number`, from the third on, counted from one as in the manual.
    pub(super) fn field(&self, number: usize) -> Option<&str> {
        // The second field, the command, may hold blanks and parentheses; the third follows the
        // last one.
        let (_, after_command) = self.0.rsplit_once(')')?;
        after_command.split_ascii_whitespace().nth(number.checked_sub(3)?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_command_with_blanks_and_parentheses_shifts_no_field() {
        let stat = Stat("7 (a) R (b c) S 1 2 3".into());
        assert_eq!((stat.field(3), stat.field(4), stat.field(6)), (Some("S"), Some("1"), Some("3")));
        assert_eq!((stat.field(7), stat.field(0)), (None, None));
    }
}
