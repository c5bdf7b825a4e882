//! Notices that the kernel is to forget what links gave, and the threads that tell it.
//!
//! Telling that waits for reads of what it forgets, and a read of a link may take minutes. Each
//! person whose changes are told holds up few threads, and there are more of them as long as none
//! is free: so nobody waits for what others read.

use parking_lot::{Condvar, Mutex, MutexGuard};
use std::collections::{HashMap, HashSet, VecDeque};
use std::io;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::thread;
use std::time::Instant;
use weft_vfs::Ino;

/// Threads that one person's changes may hold up, and all together.
const OF_PERSON_MAX: usize = 4;
const ALL_MAX: usize = 64;

/// Threads that stay when there is nothing to tell.
const KEPT: usize = 2;

/// What a thread is to tell.
#[derive(Debug)]
pub(super) enum Job {
    /// All content of a link.
    Link(Ino),
    /// The same, once more.
    Again(Ino),
    /// Some of the content of a file.
    Target(Ino, Range<u64>, Arc<AtomicBool>),
}

/// Tells the kernel of a job of a person.
type Tell = dyn Fn(&Jobs, u32, Job) + Send + Sync;

/// What is to be told.
pub(super) struct Jobs {
    queue: Mutex<Queue>,
    /// Signalled when there is one more, or nothing more will come.
    more: Condvar,
    tell: Box<Tell>,
}

#[derive(Default)]
struct Queue {
    people: HashMap<u32, Person>,
    /// Those whose next job a thread may take, each once.
    ready: VecDeque<u32>,
    /// Links that wait to be told of, and files with the bytes that do.
    links: HashSet<Ino>,
    targets: HashMap<Ino, Range<u64>>,
    /// What is to be told once more, in the order of when, and of whose.
    later: VecDeque<(Instant, u32, Ino)>,
    threads: usize,
    /// Of these, those that wait for a job, and those that have not looked for one yet.
    idle: usize,
    starting: usize,
    has_ended: bool,
}

#[derive(Default)]
struct Person {
    waiting: VecDeque<Job>,
    /// Threads that tell of theirs.
    held: usize,
    is_ready: bool,
}

impl Queue {
    fn add(&mut self, person: u32, job: Job) {
        self.people.entry(person).or_default().waiting.push_back(job);
        self.look_at(person);
    }

    /// Notes whether a thread may take the next job of `person`.
    fn look_at(&mut self, person: u32) {
        let Some(of) = self.people.get_mut(&person) else { return };
        if of.waiting.is_empty() && of.held == 0 {
            self.people.remove(&person);
        } else if !of.is_ready && !of.waiting.is_empty() && of.held < OF_PERSON_MAX {
            of.is_ready = true;
            self.ready.push_back(person);
        }
    }

    /// True if what `job` tells of waits to be told of already; notes that it does.
    fn has(&mut self, job: &Job) -> bool {
        match job {
            Job::Link(ino) => !self.links.insert(*ino),
            Job::Target(ino, range, _) => {
                let waiting = self.targets.get_mut(ino);
                let is_there = waiting.is_some();
                let wanted = waiting.map_or_else(
                    || range.clone(),
                    |waiting| waiting.start.min(range.start)..waiting.end.max(range.end),
                );
                self.targets.insert(*ino, wanted);
                is_there
            }
            Job::Again(_) => false,
        }
    }

    fn take(&mut self) -> Option<(u32, Job)> {
        let person = self.ready.pop_front()?;
        let of = self.people.get_mut(&person)?;
        of.is_ready = false;
        let mut job = of.waiting.pop_front()?;
        of.held += 1;
        match &mut job {
            Job::Link(ino) => drop(self.links.remove(ino)),
            Job::Target(ino, range, _) => *range = self.targets.remove(ino).unwrap_or(range.clone()),
            Job::Again(_) => {}
        }
        self.look_at(person);
        Some((person, job))
    }
}

impl Jobs {
    /// Starts to tell by `tell`.
    pub(super) fn start(tell: Box<Tell>) -> io::Result<Arc<Jobs>> {
        let jobs = Arc::new(Jobs { queue: Mutex::default(), more: Condvar::new(), tell });
        {
            let mut queue = jobs.queue.lock();
            (queue.threads, queue.starting) = (1, 1);
        }
        jobs.start_thread()?;
        Ok(jobs)
    }

    fn start_thread(self: &Arc<Jobs>) -> io::Result<()> {
        let own = self.clone();
        thread::Builder::new().name("weft-links".into()).spawn(move || own.work()).map(drop)
    }

    /// Has `job` of `person` told. False if the same link, or the same file, waits to be told of
    /// already.
    pub(super) fn put(self: &Arc<Jobs>, person: u32, job: Job) -> bool {
        let mut queue = self.queue.lock();
        if queue.has(&job) {
            return false;
        }
        queue.add(person, job);
        self.call(queue);
        true
    }

    /// Has a thread for each person whose job is ready: one that is free, or else one more.
    fn call(self: &Arc<Jobs>, mut queue: MutexGuard<'_, Queue>) {
        if queue.ready.is_empty() {
            return;
        }
        // One that was woken, or started, and has not looked yet is free for one job.
        let starts = queue.ready.len() > queue.idle + queue.starting && queue.threads < ALL_MAX;
        queue.threads += usize::from(starts);
        queue.starting += usize::from(starts);
        drop(queue);
        // One that cannot be started is missed: those that there are do it later.
        if starts && self.start_thread().is_err() {
            let mut queue = self.queue.lock();
            queue.threads -= 1;
            queue.starting -= 1;
        }
        self.more.notify_one();
    }

    /// Has link `ino` told of once more, `when` it is time, for `person`.
    pub(super) fn put_later(&self, when: Instant, person: u32, ino: Ino) {
        self.queue.lock().later.push_back((when, person, ino));
        self.more.notify_one();
    }

    /// Nothing more will come.
    pub(super) fn end(&self) {
        self.queue.lock().has_ended = true;
        self.more.notify_all();
    }

    fn work(self: &Arc<Jobs>) {
        let mut queue = self.queue.lock();
        queue.starting -= 1;
        while let Some((person, job)) = self.next(queue) {
            (self.tell)(self, person, job);
            queue = self.queue.lock();
            if let Some(of) = queue.people.get_mut(&person) {
                of.held -= 1;
            }
            queue.look_at(person);
        }
    }

    /// Waits for the next one; none if nothing more will come, or this thread is one too many.
    fn next(self: &Arc<Jobs>, mut queue: MutexGuard<'_, Queue>) -> Option<(u32, Job)> {
        loop {
            if queue.has_ended {
                return None;
            }
            let now = Instant::now();
            while let Some((_, person, ino)) = queue.later.pop_front_if(|(when, ..)| *when <= now) {
                queue.add(person, Job::Again(ino));
            }
            if let Some(job) = queue.take() {
                // It may hold this thread up, and whoever put more took this one for free.
                self.call(queue);
                return Some(job);
            }
            if queue.threads > KEPT && queue.idle > 0 {
                queue.threads -= 1;
                return None;
            }
            queue.idle += 1;
            match queue.later.front().map(|(when, ..)| *when) {
                Some(when) => {
                    self.more.wait_until(&mut queue, when);
                }
                None => self.more.wait(&mut queue),
            }
            queue.idle -= 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc::channel;

    #[test]
    fn nobody_waits_for_what_another_person_holds_up() {
        let (told, tells) = channel();
        let gate = Arc::new(Mutex::new(()));
        let closed = gate.lock();
        let own = gate.clone();
        let tell = move |_: &Jobs, person: u32, job: Job| {
            if person == 1 {
                drop(own.lock());
            }
            told.send((person, job)).expect("somebody listens");
        };
        let jobs = Jobs::start(Box::new(tell)).expect("a thread");
        for ino in 1..=200 {
            assert!(jobs.put(1, Job::Link(Ino(ino))));
        }
        for ino in 201..=300 {
            jobs.put(2, Job::Link(Ino(ino)));
            assert!(matches!(tells.recv(), Ok((2, Job::Link(Ino(number)))) if number == ino));
        }
        // What waits already is not told twice.
        assert!(!jobs.put(3, Job::Link(Ino(150))));
        let target = |range| Job::Target(Ino(9), range, Arc::default());
        assert!(jobs.put(1, target(4..5)) && !jobs.put(1, target(7..8)) && !jobs.put(3, target(1..2)));
        {
            let queue = jobs.queue.lock();
            assert_eq!(queue.people[&1].held, OF_PERSON_MAX);
            assert!(queue.threads <= OF_PERSON_MAX + KEPT + 1, "{}", queue.threads);
        }
        drop(closed);
        let told: Vec<_> = tells.iter().take(201).collect();
        assert!(told.iter().all(|(person, _)| *person == 1));
        assert!(told.iter().any(|(_, job)| matches!(job, Job::Target(Ino(9), range, _) if *range == (1..8))));
        jobs.put_later(Instant::now(), 2, Ino(7));
        assert!(matches!(tells.recv(), Ok((2, Job::Again(Ino(7))))));
        jobs.end();
    }
}
