//! The user on whose behalf a thread works.
//!
//! It decides about what only some users may be told: what links lead to, and digests of
//! directories. A way in names the asker of each request ([`Asker::asks`]). Without one the asker
//! is the holder of the volume, such as a command that opened its file and can read all rows
//! anyway.
//!
//! FUSE tells a user, a group and a thread, but no supplementary groups. They are read from /proc
//! the first time they matter, while the kernel holds the thread in its request, and forgotten
//! with the request. A thread of another PID namespace has none that count, nor does one whose
//! /proc entry names another user or group.

mod rights;

use crate::requester::requesting_user;
pub use rights::{MAY_READ, MAY_SEARCH, MAY_WRITE, Subject};
use std::cell::{OnceCell, RefCell};
use std::mem::ManuallyDrop;
use weft_tree::Credentials;
use weft_users::whose;

/// The one on whose behalf something is looked at.
#[derive(Clone, Debug, Default)]
pub enum Asker {
    /// The holder of the volume, or the daemon itself.
    #[default]
    Holder,
    /// Nobody in particular: it may be told what everybody may.
    Anybody,
    /// This user.
    User(Person),
}

/// A user who asks.
#[derive(Clone, Debug)]
pub struct Person {
    uid: u32,
    gid: u32,
    /// Its thread, as long as its groups are not known.
    thread: u32,
    groups: OnceCell<Option<Vec<u32>>>,
}

thread_local! {
    /// Not dropped with its thread: it is the holder by then, unless the thread dies amid a
    /// request.
    static ASKER: RefCell<ManuallyDrop<Asker>> = const { RefCell::new(ManuallyDrop::new(Asker::Holder)) };
}

/// Guard: while it lives, its thread works on behalf of an asker.
#[must_use]
pub struct Asking(Asker);

impl Drop for Asking {
    fn drop(&mut self) {
        let before = ManuallyDrop::new(std::mem::take(&mut self.0));
        drop(ManuallyDrop::into_inner(ASKER.with(|asker| asker.replace(before))));
    }
}

/// The number of the person who asks now ([`whose`]); where the holder does, of the one whose
/// request this is.
pub fn asking_user() -> u32 {
    Asker::now(Asker::uid).map_or_else(requesting_user, whose)
}

impl Asker {
    /// The user and group of thread `thread`, which waits for the answer; 0 if there is none.
    pub fn thread(uid: u32, gid: u32, thread: u32) -> Asker {
        Asker::User(Person { uid, gid, thread, groups: OnceCell::new() })
    }

    /// A user all of whose groups are known.
    pub fn user(who: &Credentials) -> Asker {
        let groups = OnceCell::from(Some(who.groups.clone()));
        Asker::User(Person { uid: who.uid, gid: who.gid, thread: 0, groups })
    }

    /// Has this thread work on its behalf.
    pub fn asks(self) -> Asking {
        Asking(ManuallyDrop::into_inner(ASKER.with(|asker| asker.replace(ManuallyDrop::new(self)))))
    }

    /// Gives `look` the one on whose behalf this thread works.
    pub fn now<T>(look: impl FnOnce(&Asker) -> T) -> T {
        ASKER.with(|asker| look(&asker.borrow()))
    }

    /// True if nothing is kept from it.
    pub fn is_mighty(&self) -> bool {
        match self {
            Asker::Holder => true,
            Asker::Anybody => false,
            Asker::User(person) => person.uid == 0,
        }
    }

    /// The user's number; none of the holder. Nobody in particular has one that is no user's.
    pub fn uid(&self) -> Option<u32> {
        match self {
            Asker::Holder => None,
            // chown(2) takes it for none.
            Asker::Anybody => Some(u32::MAX),
            Asker::User(person) => Some(person.uid),
        }
    }

    /// Returns a copy that knows its groups, for use after its thread's request has ended.
    pub fn lasting(&self) -> Asker {
        if let Asker::User(person) = self {
            // They are kept from now on.
            let _ = person.groups();
        }
        self.clone()
    }
}

impl Person {
    /// The user's number.
    pub fn uid(&self) -> u32 {
        self.uid
    }

    /// Tells if the user is in group `gid`; none if that is unknown.
    pub fn is_member(&self, gid: u32) -> Option<bool> {
        if gid == self.gid {
            return Some(true);
        }
        self.groups().map(|groups| groups.contains(&gid))
    }

    fn groups(&self) -> Option<&Vec<u32>> {
        self.groups.get_or_init(|| groups_of(self.thread, self.uid, self.gid)).as_ref()
    }
}

/// Supplementary groups of thread `thread`, if it is there and acts as this user and group
/// (proc_pid_status(5)).
fn groups_of(thread: u32, uid: u32, gid: u32) -> Option<Vec<u32>> {
    // Another namespace's /proc has other threads under these numbers.
    let own = std::fs::read_link("/proc/self").ok()?;
    if thread == 0 || own.to_str()?.parse() != Ok(std::process::id()) {
        return None;
    }
    let status = std::fs::read(format!("/proc/{thread}/status")).ok()?;
    let numbers = |name: &[u8]| -> Option<Vec<u32>> {
        let line = status.split(|byte| *byte == b'\n').find_map(|line| line.strip_prefix(name))?;
        std::str::from_utf8(line).ok()?.split_whitespace().map(|word| word.parse().ok()).collect()
    };
    // Real, effective, saved, and that of file systems.
    let is_that = |name, id| numbers(name).is_some_and(|ids| ids.get(3) == Some(&id));
    if is_that(b"Uid:", uid) && is_that(b"Gid:", gid) { numbers(b"Groups:") } else { None }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn groups_are_those_of_a_thread_that_is_who_it_says() {
        let (uid, gid) = (rustix::process::geteuid().as_raw(), rustix::process::getegid().as_raw());
        let thread = rustix::thread::gettid().as_raw_nonzero().get().cast_unsigned();
        let ours: Vec<u32> = rustix::process::getgroups().expect("groups").iter().map(|gid| gid.as_raw()).collect();
        assert_eq!(groups_of(thread, uid, gid), Some(ours));
        assert_eq!(groups_of(thread, uid + 1, gid), None, "somebody else has the number now");
        assert_eq!(groups_of(0, uid, gid), None, "it is in another namespace");
    }

    #[test]
    fn a_thread_works_for_one_at_a_time_and_then_for_the_one_before() {
        assert!(Asker::now(Asker::is_mighty));
        let outer = Asker::thread(1000, 1000, 0).asks();
        {
            let _inner = Asker::Holder.asks();
            assert!(Asker::now(Asker::is_mighty));
        }
        assert!(!Asker::now(Asker::is_mighty));
        drop(outer);
        assert!(Asker::now(Asker::is_mighty));
    }
}
