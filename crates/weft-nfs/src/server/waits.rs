//! Calls that wait on threads, and the connections that still want their replies.
//!
//! Networks may compute for ever, and a client that gave up does not say so. A call that only reads
//! is answered `JUKEBOX` after a while (RFC 1813 2.6: ask again later), and goes on meanwhile. The
//! same call that comes again joins it, and takes no other thread. It ends when it has not come
//! again for a while, or when the connections that it came over are closed.
//!
//! A call that may change something is answered when it has ended, and no sooner: if its client
//! asked again, it would be done twice. It stops computing after that while.
//!
//! Lock: that of the table is held for nothing else.

use super::replies::Ready;
use crate::export::{Client, RESERVED_PORTS_END};
use crate::programs::NFS;
use crate::rpc::{Auth, Call, Procedure, Reply};
use crate::status::Status;
use crate::v3;
use parking_lot::Mutex;
use rustc_hash::FxHashMap;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::sync::Notify;
use tokio::sync::mpsc::UnboundedSender;
use weft_vfs::request_number;

/// Interval between looks at waiting calls.
const LOOK: Duration = Duration::from_secs(1);
/// Looks after which a client is told to ask again.
pub(crate) const LATE_AFTER_LOOKS: u32 = 10;
/// Looks after which a call ends that does not come again. Clients ask again after 5 to 15 seconds.
pub(crate) const UNASKED_LOOKS: u32 = 30;
/// Longest arguments of a call that others may join.
const ARGUMENTS_MAX: usize = 8 << 10;

/// An asker: a call of a connection.
#[derive(Clone, Debug)]
pub(super) struct Asker {
    pub(super) sender: UnboundedSender<Ready>,
    pub(super) xid: u32,
    pub(super) procedure: Procedure,
    /// The machine that it came from, and when.
    pub(super) address: IpAddr,
    pub(super) begun: Instant,
    /// Bytes that the call is counted with until it is answered.
    pub(super) bytes: usize,
}

impl Asker {
    pub(super) fn answer(&self, reply: Reply) {
        // If the connection is gone, the client will ask again over another one.
        let _ = self.sender.send(Ready { reply, ran: Some(self.bytes) });
    }

    /// Tells the client to ask again later.
    pub(super) fn put_off(&self) {
        self.answer(v3::failed(self.xid, self.procedure.number, Status::Jukebox));
    }
}

/// Everything that the reply to a call depends on, except the state of the volume.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Alike {
    address: IpAddr,
    is_reserved: bool,
    tls: bool,
    /// The procedure, the user and the arguments.
    said: Vec<u8>,
}

impl Alike {
    /// Returns the key shared by all calls that have the same answer as `call` of `client`; none if
    /// it may change something.
    pub(super) fn of(client: &Client, call: &Call<'_>) -> Option<Alike> {
        let Procedure { program, number, .. } = call.procedure;
        let reads = program == NFS && v3::only_reads(number);
        let arguments = call.arguments.rest();
        if !reads || arguments.len() > ARGUMENTS_MAX {
            return None;
        }
        let mut said = number.to_be_bytes().to_vec();
        let mut say = |word: u32| said.extend_from_slice(&word.to_be_bytes());
        match &call.auth {
            Auth::None => say(0),
            Auth::Tls => return None,
            Auth::Sys(who) => {
                let count = u32::try_from(who.groups.len()).ok()?;
                [1, who.uid, who.gid, count].into_iter().for_each(&mut say);
                who.groups.iter().copied().for_each(say);
            }
        }
        said.extend_from_slice(arguments);
        let is_reserved = client.port < RESERVED_PORTS_END;
        Some(Alike { address: client.address, is_reserved, tls: client.tls, said })
    }
}

/// A call that waits.
#[derive(Debug, Default)]
struct Wait {
    /// Key by which other calls join; none if the call may change something.
    alike: Option<Alike>,
    /// Askers to be answered, each with the number of looks since it asked.
    askers: Vec<(Asker, u32)>,
    /// Connections that were told to ask again.
    put_off: Vec<UnboundedSender<Ready>>,
    /// Looks without an asker to be answered; of a call that changes something, since it began.
    looks: u32,
    /// True if it is to end.
    ends: bool,
}

impl Wait {
    /// True if every connection that the call came over is closed. False if it came over none.
    fn is_left(&mut self) -> bool {
        self.put_off.retain(|connection| !connection.is_closed());
        if self.alike.is_some() {
            self.askers.retain(|(asker, _)| !asker.sender.is_closed());
            return self.askers.is_empty() && self.put_off.is_empty();
        }
        !self.askers.is_empty() && self.askers.iter().all(|(asker, _)| asker.sender.is_closed())
    }

    /// Looks once more; moves askers that are told to ask again to `late`.
    fn look(&mut self, late: &mut Vec<Asker>) {
        self.looks += 1;
        if self.alike.is_none() {
            self.ends |= self.looks >= LATE_AFTER_LOOKS;
            return;
        }
        self.askers.iter_mut().for_each(|(_, looks)| *looks += 1);
        let is_late = |(_, looks): &mut (Asker, u32)| *looks >= LATE_AFTER_LOOKS;
        for (asker, _) in self.askers.extract_if(.., is_late) {
            if !self.put_off.iter().any(|other| other.same_channel(&asker.sender)) {
                self.put_off.push(asker.sender.clone());
            }
            late.push(asker);
        }
        if !self.askers.is_empty() {
            self.looks = 0;
        }
        self.ends |= self.looks >= UNASKED_LOOKS;
    }
}

#[derive(Debug, Default)]
struct Table {
    waits: FxHashMap<u64, Wait>,
    alike: FxHashMap<Alike, u64>,
}

impl Table {
    /// Lets no more askers join call `number`.
    fn close(&mut self, alike: Option<&Alike>, number: u64) {
        if let Some(alike) = alike
            && self.alike.get(alike) == Some(&number)
        {
            self.alike.remove(alike);
        }
    }

    /// Returns the numbers of calls that are to end.
    fn ending(&mut self) -> Vec<u64> {
        let Table { waits, alike } = self;
        let ending = waits.iter().filter(|(_, wait)| wait.ends);
        let numbers = ending.map(|(number, _)| *number).collect();
        alike.retain(|_, number| waits.get(number).is_some_and(|wait| !wait.ends));
        numbers
    }
}

/// Calls that wait.
#[derive(Debug, Default)]
pub(super) struct Waits {
    table: Mutex<Table>,
    /// Signalled when there are some.
    some: Arc<Notify>,
}

/// Action for a call that would wait.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Begun {
    /// Serve it on a thread that may wait, under this number.
    New(u64),
    /// It is being served already.
    Joined,
}

/// Result of a look at waiting calls.
#[derive(Debug, Default)]
pub(super) struct Look {
    /// Askers to be told to ask again.
    pub(super) late: Vec<Asker>,
    /// Calls that are to end.
    pub(super) ending: Vec<u64>,
    /// True if no call waits.
    pub(super) is_last: bool,
}

impl Waits {
    /// Adds a call of `asker`; none if the caller cannot be told anything before it has ended.
    pub(super) fn begin(&self, alike: Option<Alike>, asker: Option<Asker>) -> Begun {
        let mut table = self.table.lock();
        let joined = alike.as_ref().and_then(|alike| table.alike.get(alike)).copied();
        if let Some(wait) = joined.and_then(|number| table.waits.get_mut(&number)) {
            wait.askers.extend(asker.map(|asker| (asker, 0)));
            wait.looks = 0;
            return Begun::Joined;
        }
        let number = request_number();
        if let Some(alike) = &alike {
            table.alike.insert(alike.clone(), number);
        }
        let askers = asker.map(|asker| (asker, 0)).into_iter().collect();
        table.waits.insert(number, Wait { alike, askers, ..Wait::default() });
        drop(table);
        self.some.notify_one();
        Begun::New(number)
    }

    /// True if call `number`, which a thread has come to, is to be served.
    pub(super) fn is_wanted(&self, number: u64) -> bool {
        // A call that may change something is answered in any case: a client may ask for its reply
        // again.
        self.table.lock().waits.get(&number).is_none_or(|wait| wait.alike.is_none() || !wait.ends)
    }

    /// Ends call `number`; returns the askers to be answered.
    pub(super) fn end(&self, number: u64) -> Vec<Asker> {
        let mut table = self.table.lock();
        let Some(wait) = table.waits.remove(&number) else { return Vec::new() };
        table.close(wait.alike.as_ref(), number);
        wait.askers.into_iter().map(|(asker, _)| asker).collect()
    }

    /// Notes that a connection was closed; returns the calls that are to end.
    pub(super) fn left(&self) -> Vec<u64> {
        let mut table = self.table.lock();
        table.waits.values_mut().for_each(|wait| wait.ends |= wait.is_left());
        table.ending()
    }

    /// Looks for calls that have waited long.
    pub(super) fn look(&self) -> Look {
        let mut table = self.table.lock();
        let mut late = Vec::new();
        table.waits.values_mut().for_each(|wait| wait.look(&mut late));
        Look { late, ending: table.ending(), is_last: table.waits.is_empty() }
    }

    /// Waits until it is time to look.
    pub(super) fn until_look(&self) -> impl Future<Output = ()> + use<> {
        let some = self.some.clone();
        async move {
            some.notified().await;
            tokio::time::sleep(LOOK).await;
        }
    }

    /// Schedules another look.
    pub(super) fn again(&self) {
        self.some.notify_one();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rpc;
    use crate::rpc::tests::call;
    use tokio::sync::mpsc::{UnboundedReceiver, unbounded_channel};

    const READ: Procedure = Procedure { program: NFS, version: 3, number: 6 };

    fn alike(port: u16, uid: u32, procedure: Procedure, xid: u32) -> Option<Alike> {
        let here = IpAddr::from([127, 0, 0, 1]);
        let transport = crate::export::Transport::Tcp;
        let client = Client { address: here, port, local: here, transport, tls: false };
        let message = call(xid, procedure, uid, &[]).into_bytes();
        Alike::of(&client, &rpc::parse(&message).unwrap())
    }

    fn asker(xid: u32) -> (Asker, UnboundedReceiver<Ready>) {
        let (sender, receiver) = unbounded_channel();
        let (address, begun) = (IpAddr::from([127, 0, 0, 1]), Instant::now());
        (Asker { sender, xid, procedure: READ, address, begun, bytes: 9 }, receiver)
    }

    fn begin(waits: &Waits, alike: Option<Alike>, asker: &Asker) -> Option<u64> {
        match waits.begin(alike, Some(asker.clone())) {
            Begun::New(number) => Some(number),
            Begun::Joined => None,
        }
    }

    #[test]
    fn the_same_call_of_the_same_user_joins_and_no_other_does() {
        let known = alike(2000, 7, READ, 1);
        assert_eq!(known, alike(3000, 7, READ, 2));
        assert_ne!(known, alike(900, 7, READ, 2), "a rule may be for reserved ports");
        assert_ne!(known, alike(2000, 8, READ, 2));
        for number in [2, 7, 8, 12, 14, 15, 21] {
            assert_eq!(alike(2000, 7, Procedure { number, ..READ }, 1), None);
        }
        let waits = Waits::default();
        let ((first, _one), (second, _two)) = (asker(1), asker(2));
        let number = begin(&waits, known.clone(), &first).unwrap();
        assert_eq!(begin(&waits, known.clone(), &second), None);
        assert!(begin(&waits, alike(2000, 8, READ, 2), &second).is_some());
        let askers: Vec<u32> = waits.end(number).iter().map(|asker| asker.xid).collect();
        assert_eq!(askers, [1, 2]);
        assert!(begin(&waits, known, &first).is_some(), "that one has ended");
    }

    #[test]
    fn a_call_that_reads_is_put_off_and_ends_when_it_does_not_come_again() {
        let waits = Waits::default();
        let ((first, mut receiver), (again, _again)) = (asker(1), asker(2));
        let known = alike(2000, 7, READ, 1);
        let number = begin(&waits, known.clone(), &first).unwrap();
        let look = |times: u32| (0..times).map(|_| waits.look()).last().unwrap();
        assert!(look(LATE_AFTER_LOOKS - 1).late.is_empty());
        let late = look(1).late;
        late.iter().for_each(Asker::put_off);
        let told = receiver.try_recv().unwrap();
        assert_eq!((late.len(), told.ran, &told.reply.head[24..28]), (1, Some(9), &10008u32.to_be_bytes()[..]));
        assert!(look(UNASKED_LOOKS - 2).ending.is_empty());
        assert_eq!(begin(&waits, known.clone(), &again), None, "it goes on meanwhile");
        assert_eq!(look(LATE_AFTER_LOOKS).late.len(), 1);
        assert!(waits.is_wanted(number));
        assert_eq!(look(UNASKED_LOOKS).ending, [number]);
        assert!(!waits.is_wanted(number));
        assert!(begin(&waits, known, &first).is_some(), "nobody joins what ends");
        assert!(waits.end(number).is_empty() && !waits.look().is_last);
    }

    #[test]
    fn a_call_ends_with_the_last_connection_that_it_came_over() {
        let waits = Waits::default();
        let ((first, one), (second, mut two)) = (asker(1), asker(2));
        let known = alike(2000, 7, READ, 1);
        let number = begin(&waits, known.clone(), &first).unwrap();
        begin(&waits, known, &second);
        drop(one);
        assert!(waits.left().is_empty());
        (0..LATE_AFTER_LOOKS).for_each(|_| drop(waits.look()));
        assert!(waits.left().is_empty(), "it was told to ask again");
        two.close();
        assert_eq!(waits.left(), [number]);
    }

    #[test]
    fn a_call_that_changes_something_is_answered_once_and_computes_no_longer_than_a_while() {
        let waits = Waits::default();
        let (first, one) = asker(1);
        let number = begin(&waits, None, &first).unwrap();
        let looks: Vec<Look> = (0..LATE_AFTER_LOOKS).map(|_| waits.look()).collect();
        assert!(looks.iter().all(|look| look.late.is_empty()));
        assert_eq!(looks.last().unwrap().ending, [number]);
        let other = begin(&waits, None, &first).unwrap();
        drop(one);
        assert!(waits.left().contains(&other) && waits.is_wanted(other));
        assert_eq!((waits.end(other).len(), waits.end(number).len()), (1, 1));
        assert!(waits.look().is_last);
    }
}
