//! The person a user number belongs to: whoever has a range of subordinate numbers by `/etc/subuid`
//! (subuid(5)) can be any of them in a user namespace, and has one share with all of them. Whatever
//! counts what users of this machine take asks here first.
//!
//! The file is read again when it has changed, which is looked at every few seconds at most.
//! Numbers below all ranges, which nearly all requests come from, take no lock.

use parking_lot::Mutex;
use rustix::time::{ClockId, clock_gettime};
use std::cmp::Reverse;
use std::fs;
use std::ops::Range;
use std::sync::atomic::{AtomicI64, AtomicU32, Ordering};
use std::time::SystemTime;

/// Seconds between looks at whether the files have changed.
const LOOK_AGAIN: i64 = 5;

/// Ranges that are remembered at most.
const RANGES_MAX: usize = 65_536;

/// Bytes of a file that are looked at.
const FILE_BYTES_MAX: u64 = 16 << 20;

const SUBORDINATES: &str = "/etc/subuid";
const USERS: &str = "/etc/passwd";

/// Ranges as the files gave them when they had these times.
struct Known {
    changed: [Option<SystemTime>; 2],
    /// In the order of their beginnings.
    ranges: Vec<(Range<u32>, u32)>,
}

static KNOWN: Mutex<Option<Known>> = Mutex::new(None);

/// The lowest number in a range, and the second in which the files are looked at again. Whoever
/// sees one of them outdated counts for a moment as what the files said before.
static LOWEST: AtomicU32 = AtomicU32::new(0);
static NEXT_LOOK: AtomicI64 = AtomicI64::new(0);

/// Returns the user to whom `user` is subordinate, or `user`.
pub fn whose(user: u32) -> u32 {
    // Root's is no range's, and asks most often.
    if user == 0 {
        return 0;
    }
    let now = clock_gettime(ClockId::MonotonicCoarse).tv_sec;
    let is_time = now >= NEXT_LOOK.load(Ordering::Relaxed);
    if !is_time && user < LOWEST.load(Ordering::Relaxed) {
        return user;
    }
    let mut known = KNOWN.lock();
    if is_time || known.is_none() {
        let changed = [SUBORDINATES, USERS].map(|file| fs::metadata(file).and_then(|it| it.modified()).ok());
        let before = known.take().filter(|known| known.changed == changed);
        let ranges = before.map_or_else(|| ranges(&read(SUBORDINATES), &read(USERS)), |known| known.ranges);
        LOWEST.store(ranges.first().map_or(u32::MAX, |(range, _)| range.start), Ordering::Relaxed);
        NEXT_LOOK.store(now + LOOK_AGAIN, Ordering::Relaxed);
        *known = Some(Known { changed, ranges });
    }
    known.as_ref().map_or(user, |known| find(&known.ranges, user))
}

fn read(file: &str) -> String {
    let is_short = fs::metadata(file).is_ok_and(|it| it.len() <= FILE_BYTES_MAX);
    let text = if is_short { fs::read(file).unwrap_or_default() } else { Vec::new() };
    String::from_utf8_lossy(&text).into_owned()
}

fn find(ranges: &[(Range<u32>, u32)], user: u32) -> u32 {
    let after = ranges.partition_point(|(range, _)| range.start <= user);
    let last = after.checked_sub(1).map(|at| &ranges[at]);
    last.filter(|(range, _)| range.contains(&user)).map_or(user, |(_, owner)| *owner)
}

/// Ranges that `subordinates` gives to whom, with the numbers of names in `users`. Lines that make
/// no sense, and ranges of root, which needs none, are passed over.
fn ranges(subordinates: &str, users: &str) -> Vec<(Range<u32>, u32)> {
    let number = |name: &str| {
        let of = |line: &str| {
            let mut parts = line.split(':');
            (parts.next() == Some(name)).then(|| parts.nth(1)?.parse().ok()).flatten()
        };
        name.parse().ok().or_else(|| users.lines().find_map(of))
    };
    let range = |line: &str| {
        let mut parts = line.trim().split(':');
        let (name, first, count) = (parts.next()?, parts.next()?, parts.next()?);
        let (first, count): (u32, u32) = (first.parse().ok()?, count.parse().ok()?);
        let owner = number(name).filter(|owner| *owner != 0 && first != 0)?;
        Some((first..first.checked_add(count)?, owner))
    };
    apart(subordinates.lines().filter_map(range).take(RANGES_MAX).collect())
}

/// The same ranges in their order, none of which has a number of another one: what several have is
/// of the one that begins last.
fn apart(mut ranges: Vec<(Range<u32>, u32)>) -> Vec<(Range<u32>, u32)> {
    ranges.sort_by_key(|(range, _)| (range.start, Reverse(range.end)));
    let (mut apart, mut open, mut at) = (Vec::new(), Vec::<(u32, u32)>::new(), 0);
    // The last one, which is empty, ends those that are open.
    for (range, owner) in ranges.into_iter().chain([(u32::MAX..u32::MAX, 0)]) {
        while let Some((end, owner)) = open.pop_if(|(end, _)| *end <= range.start) {
            apart.extend((at < end).then_some((at..end, owner)));
            at = at.max(end);
        }
        let around = open.last().filter(|_| at < range.start);
        apart.extend(around.map(|(_, owner)| (at..range.start, *owner)));
        at = range.start;
        open.push((range.end, owner));
    }
    apart
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_subordinate_number_is_of_whom_the_file_says() {
        let users = "root:x:0:0::/root:/bin/sh\nalice:x:1000:1000::/:/bin/sh\nbob:x:1001:1001::/:/bin/sh\n";
        let text = "bob:165536:65536\n# alice:1:9\nalice:100000:65536\n1002:300000:10\n\nnobody-known:400000:9\n\
                    root:500000:9\nbob:x:9\nbob:4294967290:65536\nbob:600000\n";
        let ranges = ranges(text, users);
        assert_eq!(ranges, [(100_000..165_536, 1000), (165_536..231_072, 1001), (300_000..300_010, 1002)]);
        let whose = |user| find(&ranges, user);
        let asked = [0, 1000, 99_999, 100_000, 165_535, 165_536, 231_072, 300_009, 300_010, 400_001, u32::MAX];
        let expected = [0, 1000, 99_999, 1000, 1000, 1001, 231_072, 1002, 300_010, 400_001, u32::MAX];
        assert_eq!(asked.map(whose), expected);
        assert_eq!(find(&[], 5), 5);
    }

    #[test]
    fn a_range_within_another_hides_nothing_of_the_rest() {
        let text =
            "1000:100000:65536\n1001:110000:100\n1002:110050:10\n1003:160000:10000\n1004:100000:5\n1005:4294967290:5\n";
        let ranges = ranges(text, "");
        assert!(ranges.windows(2).all(|two| two[0].0.end <= two[1].0.start && !two[0].0.is_empty()), "{ranges:?}");
        let asked =
            [99_999, 100_000, 100_005, 110_000, 110_055, 110_060, 110_100, 160_000, 169_999, 170_000, u32::MAX - 1];
        let expected = [99_999, 1004, 1000, 1001, 1002, 1001, 1000, 1003, 1003, 170_000, 1005];
        assert_eq!(asked.map(|user| find(&ranges, user)), expected);
    }
}
