//! Bounds on locks of clients, which choose their own names.

use super::{DENIED, GRANTED, Locked, nlm, open};
use crate::tests::client::{Client, arguments};
use weft_vfs::locks::{Claim, IfHeld};

const NO_LOCKS: u32 = 2;

const TEST: u32 = 1;
const LOCK: u32 = 2;
const UNLOCK: u32 = 4;
const SHARE: u32 = 20;
const LOCK_UNMONITORED: u32 = 22;

impl Locked {
    /// Calls procedure `number` for a shared lock of a client that calls itself `caller`.
    fn as_caller(&self, client: &mut Client, number: u32, caller: &str, (offset, len): (u64, u64)) -> u32 {
        let to = arguments(|to| {
            to.opaque(b"cook");
            if matches!(number, LOCK | LOCK_UNMONITORED) {
                to.bool(false);
            }
            if number != UNLOCK {
                to.bool(false);
            }
            to.opaque(caller.as_bytes());
            to.opaque(&self.file);
            to.opaque(b"owner");
            to.u32(1);
            to.u64(offset);
            to.u64(len);
            if matches!(number, LOCK | LOCK_UNMONITORED) {
                to.bool(false);
                to.u32(1);
            }
        });
        nlm(client, number, to)
    }

    /// Locks one byte in each of so many names. Returns how many get it.
    fn names(&self, client: &mut Client, prefix: &str, max: u64) -> u64 {
        let lock = |n: &u64| self.as_caller(client, LOCK_UNMONITORED, &format!("{prefix}{n}"), (2 * n, 1)) == GRANTED;
        (0..max).take_while(lock).count() as u64
    }

    fn locks_here(&self) {
        self.vfs.locks().lock(self.ino, self.here(), Claim::New, IfHeld::Fail).expect("a mount has room");
    }
}

/// One user took all places of clients: every other host was refused.
#[test]
fn a_user_who_invents_names_of_clients_leaves_others_theirs() {
    let locked = open();
    let mut root = locked.client();
    let (mut greedy, mut other) = (root.as_user(7, &[]), root.as_user(8, &[7]));
    assert_eq!(locked.names(&mut greedy, "greedy", 5000), 64);
    assert_eq!(locked.as_caller(&mut greedy, LOCK, "another", (1 << 40, 1)), NO_LOCKS);
    assert_eq!(locked.as_caller(&mut greedy, LOCK, "greedy0", (1 << 40, 1)), GRANTED, "names that it has are no more");
    assert_eq!(locked.names(&mut other, "other", 5), 5);
    assert_eq!(locked.names(&mut root, "root", 5), 5);
    let share = arguments(|to| {
        to.opaque(b"cook");
        [b"another".as_slice(), &locked.file, b"owner"].into_iter().for_each(|text| to.opaque(text));
        [0, 0, 0].into_iter().for_each(|word| to.u32(word));
    });
    assert_eq!(nlm(&mut greedy, SHARE, share), NO_LOCKS);
}

#[test]
fn names_that_hold_nothing_make_room_and_are_not_remembered() {
    let locked = open();
    let mut user = locked.client().as_user(7, &[]);
    for n in 0..500 {
        let name = format!("name{n}");
        assert_eq!(locked.as_caller(&mut user, LOCK, &name, (0, 1)), GRANTED, "{n}");
        assert_eq!(locked.as_caller(&mut user, UNLOCK, &name, (0, 1)), GRANTED);
    }
    let remembered = locked.vfs.all_kept("lock-client.").expect("read").len();
    assert!((1..=64).contains(&remembered), "{remembered}");
    assert_eq!(locked.names(&mut user, "holder", 63), 63);
    for n in 0..500 {
        let name = format!("asks{n}");
        assert_eq!(locked.as_caller(&mut user, TEST, &name, (0, 1)), GRANTED);
        assert_eq!(locked.as_caller(&mut user, UNLOCK, &name, (0, 1)), GRANTED);
    }
    assert_eq!(locked.as_caller(&mut user, LOCK, "last", (0, 1)), GRANTED, "whoever only asks takes no place");
    assert_eq!(locked.as_caller(&mut user, LOCK, "more", (0, 1)), NO_LOCKS);
}

/// One user took all locks by asking in many names, those of the machine's own programs, too.
#[test]
fn locks_of_one_user_count_together_whatever_its_clients_are_called() {
    let locked = open();
    let mut root = locked.client();
    let (mut greedy, mut other) = (root.as_user(7, &[]), root.as_user(8, &[7]));
    let mut take = |name: &str| {
        let lock = |at: &u64| locked.as_caller(&mut greedy, LOCK_UNMONITORED, name, (2 * at, 1)) == GRANTED;
        (100..20_000).take_while(lock).count()
    };
    assert_eq!((take("one"), take("another")), (1 << 14, 0));
    assert_eq!(locked.as_caller(&mut other, LOCK, "other", (0, 1)), GRANTED);
    assert_eq!(locked.as_caller(&mut root, LOCK, "third", (0, 1)), GRANTED);
    locked.locks_here();
}

/// Unlocking the middle of a range makes two of it, which had no bound.
#[test]
fn unlocking_is_refused_where_it_would_make_too_many_ranges() {
    let locked = open();
    let mut greedy = locked.client().as_user(7, &[]);
    assert_eq!(locked.as_caller(&mut greedy, LOCK, "here", (0, 0)), GRANTED);
    let unlock = |at: &u64| locked.as_caller(&mut greedy, UNLOCK, "here", (2 * at + 1, 1)) == GRANTED;
    assert_eq!((0..20_000).take_while(unlock).count(), (1 << 14) - 1);
    assert_eq!(locked.as_caller(&mut greedy, UNLOCK, "here", (0, 0)), GRANTED);
    assert_eq!(locked.try_lock(&mut locked.client(), 9, (0, 0)), GRANTED);
    assert_eq!(locked.try_lock(&mut locked.client(), 8, (0, 0)), DENIED);
}
