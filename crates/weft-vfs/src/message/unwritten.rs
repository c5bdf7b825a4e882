//! Messages that could not be written, as the disk of the log was full: kept until there is room.

use std::collections::VecDeque;
use std::io::Write;

/// Most bytes kept.
const BYTES_MAX: usize = 64 << 10;

/// Bytes that wait to be written, oldest first.
pub(super) struct Unwritten {
    bytes: VecDeque<u8>,
    /// Lines given up for want of room here.
    left_out: u64,
}

impl Unwritten {
    pub(super) const fn new() -> Unwritten {
        Unwritten { bytes: VecDeque::new(), left_out: 0 }
    }

    /// True if something waits for room.
    pub(super) fn waits(&self) -> bool {
        !self.bytes.is_empty() || self.left_out > 0
    }

    /// Writes `line` to `log` after what waits, as far as there is room. What `no_room` gives tells
    /// how many were given up, once there is room again.
    pub(super) fn write(&mut self, line: &str, log: &mut impl Write, no_room: impl FnOnce(u64) -> String) {
        if self.bytes.len() + line.len() > BYTES_MAX {
            self.left_out += 1;
        } else {
            self.bytes.extend(line.as_bytes());
        }
        self.write_out(log);
        if self.bytes.is_empty() && self.left_out > 0 {
            let said = no_room(self.left_out);
            self.left_out = 0;
            self.bytes.extend(said.as_bytes());
            self.write_out(log);
        }
    }

    fn write_out(&mut self, log: &mut impl Write) {
        while !self.bytes.is_empty() {
            match log.write(self.bytes.as_slices().0) {
                Ok(0) => return,
                Ok(written) => drop(self.bytes.drain(..written)),
                Err(error) if error.kind() == std::io::ErrorKind::Interrupted => {}
                Err(_) => return,
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io;

    /// A log with room for some bytes.
    struct Log {
        written: Vec<u8>,
        room: usize,
    }

    impl Write for Log {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            let len = bytes.len().min(self.room);
            if len == 0 {
                return Err(io::ErrorKind::StorageFull.into());
            }
            self.room -= len;
            self.written.extend(&bytes[..len]);
            Ok(len)
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    fn no_room(count: u64) -> String {
        format!("{count} left out\n")
    }

    #[test]
    fn what_found_no_room_is_written_when_there_is_some() {
        let (mut unwritten, mut log) = (Unwritten::new(), Log { written: Vec::new(), room: 10 });
        unwritten.write("the first\n", &mut log, no_room);
        unwritten.write("the second\n", &mut log, no_room);
        log.room = 4;
        unwritten.write("the third\n", &mut log, no_room);
        assert_eq!(log.written, b"the first\nthe ");
        log.room = 1000;
        unwritten.write("the fourth\n", &mut log, no_room);
        assert_eq!(log.written, b"the first\nthe second\nthe third\nthe fourth\n");
    }

    #[test]
    fn what_waits_has_a_bound_and_is_counted_beyond_it() {
        let (mut unwritten, mut log) = (Unwritten::new(), Log { written: Vec::new(), room: 0 });
        let line = format!("{}\n", "x".repeat(1023));
        (0..66).for_each(|_| unwritten.write(&line, &mut log, no_room));
        assert_eq!(unwritten.bytes.len(), BYTES_MAX);
        log.room = usize::MAX;
        unwritten.write("", &mut log, no_room);
        let end = no_room(2);
        assert_eq!(log.written.len(), BYTES_MAX + end.len());
        assert!(log.written.ends_with(end.as_bytes()));
    }
}
