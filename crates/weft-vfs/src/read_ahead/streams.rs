//! Which reads go through a file from front to back, and what they will need next.

use std::ops::Range;
use weft_store::Ino;

/// Readers kept in mind.
const STREAMS_MAX: usize = 32;

/// Lengths of a read that it may lie off from where the last one ended: the kernel reads ahead too,
/// and its requests come over several queues.
const SLACK: u64 = 8;

/// Bytes read in order before more is believed to follow.
const BELIEVED: u64 = 192 << 10;

/// Bytes asked for when a stream is first seen to be one.
const WINDOW_MIN: u64 = 2 << 20;

/// A program that reads a file.
struct Stream {
    ino: Ino,
    /// Offset at which it would go on.
    next: u64,
    /// Bytes read in order.
    read: u64,
    /// Up to where was asked for.
    asked: u64,
    /// Bytes to be asked for ahead; 0 at first.
    window: u64,
}

/// Those who read.
pub(super) struct Streams {
    /// The one that read last is the last.
    list: Vec<Stream>,
    window_max: u64,
}

impl Streams {
    /// Streams that are kept `window_max` bytes ahead of.
    pub(super) fn new(window_max: u64) -> Streams {
        Streams { list: Vec::new(), window_max }
    }

    /// Bytes `read` of file `ino` are read; tells what to ask for, if anything.
    pub(super) fn observe(&mut self, ino: Ino, read: Range<u64>) -> Option<Range<u64>> {
        let len = read.end - read.start;
        let near = |stream: &Stream| stream.ino == ino && read.start.abs_diff(stream.next) <= SLACK * len;
        let Some(at) = self.list.iter().rposition(near) else {
            if self.list.len() >= STREAMS_MAX {
                self.list.remove(0);
            }
            self.list.push(Stream { ino, next: read.end, read: len, asked: 0, window: 0 });
            return None;
        };
        let mut stream = self.list.remove(at);
        stream.read += read.end.saturating_sub(stream.next).min(len);
        stream.next = stream.next.max(read.end);
        let asked = if stream.read >= BELIEVED { stream.ask(self.window_max) } else { None };
        self.list.push(stream);
        asked
    }
}

impl Stream {
    /// Returns the range to ask for so that the window is filled, once half of it was read.
    fn ask(&mut self, window_max: u64) -> Option<Range<u64>> {
        if self.asked > self.next + self.window / 2 {
            return None;
        }
        self.window = (2 * self.window).clamp(WINDOW_MIN.min(window_max), window_max);
        let from = self.asked.max(self.next);
        self.asked = self.next.saturating_add(self.window);
        (from < self.asked).then_some(from..self.asked)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FILE: Ino = Ino(16);
    const STEP: u64 = 128 << 10;

    #[test]
    fn a_reader_from_front_to_back_is_kept_ahead_of_without_a_gap() {
        let mut streams = Streams::new(8 << 20);
        let mut asked = STEP..STEP;
        for i in 0..1000 {
            let read = i * STEP..(i + 1) * STEP;
            if let Some(next) = streams.observe(FILE, read.clone()) {
                assert!(next.start == asked.end || next.start == read.end, "{next:?} after {asked:?}");
                assert!(next.end - read.end <= 8 << 20);
                asked = next;
            }
            assert!(read.end < BELIEVED || asked.end >= read.end + STEP, "nothing is ahead of {read:?}");
        }
    }

    #[test]
    fn one_read_is_no_stream_and_nor_is_one_again() {
        let mut streams = Streams::new(8 << 20);
        assert_eq!(streams.observe(FILE, 0..STEP), None);
        assert_eq!(streams.observe(FILE, 0..STEP), None);
        assert_eq!(streams.observe(Ino(17), STEP..2 * STEP), None);
    }

    #[test]
    fn reads_here_and_there_ask_for_nothing() {
        let mut streams = Streams::new(8 << 20);
        for i in 0..10_000u64 {
            let start = i.wrapping_mul(0x9e37_79b9_7f4a_7c15) % (1 << 30) / 4096 * 4096;
            assert_eq!(streams.observe(FILE, start..start + 4096), None);
        }
        assert!(streams.list.len() <= STREAMS_MAX);
    }

    #[test]
    fn requests_that_overtake_each_other_are_one_stream() {
        let mut streams = Streams::new(8 << 20);
        let mut asked = 0;
        for pair in 0..50 {
            for i in [2 * pair + 1, 2 * pair] {
                if let Some(range) = streams.observe(FILE, i * STEP..(i + 1) * STEP) {
                    assert!(range.start >= asked);
                    asked = range.end;
                }
            }
        }
        assert!(asked > 100 * STEP);
    }
}
