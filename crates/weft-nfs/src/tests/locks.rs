//! Tests of locks over NLM, restarts over NSM, and of finding both: a server, and a host that is
//! called back.

mod bounds;

use super::client::{Client, Handle, arguments};
use crate::locking::nlm;
use crate::portmap;
use crate::programs::{MOUNT, NFS, NLM, NSM, PORTMAP};
use crate::rpc::tests::call;
use crate::rpc::{self, Procedure};
use crate::server::{LockOptions, Options, Server, ServerError};
use crate::xdr::{Reader, Writer};
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::sync::Arc;
use std::time::Duration;
use weft_store::VolumeOptions;
use weft_store::memory::MemoryStore;
use weft_vfs::locks::{Claim, IfHeld, LockKind, LockMode, LockOwner, LockRange, LockRequest};
use weft_vfs::{Caller, Ino, Kind, MakeNode, ManualClock, Vfs};

const GRANTED: u32 = 0;
const DENIED: u32 = 1;
const BLOCKED: u32 = 3;
const GRACE: u32 = 4;
const DEADLOCK: u32 = 5;
const READ_ONLY: u32 = 6;
const STALE: u32 = 7;
const TOO_BIG: u32 = 8;
const FAILED: u32 = 9;

/// Services of a client: its portmapper, its lock manager and its status monitor. It is at another
/// address than the server.
struct Host {
    portmapper: UdpSocket,
    manager: TcpListener,
    monitor: UdpSocket,
}

impl Host {
    fn new() -> Host {
        let datagrams = || {
            let socket = UdpSocket::bind("127.0.0.1:0").expect("a port");
            socket.set_read_timeout(Some(Duration::from_secs(20))).expect("a timeout");
            socket
        };
        let manager = TcpListener::bind("127.0.0.1:0").expect("a port");
        Host { portmapper: datagrams(), manager, monitor: datagrams() }
    }

    fn portmapper(&self) -> u16 {
        self.portmapper.local_addr().expect("bound").port()
    }

    /// Takes a call that comes as a datagram, and answers it. Returns the procedure and the
    /// arguments.
    fn answer(socket: &UdpSocket, result: &[u8]) -> (Procedure, Vec<u8>) {
        let mut call = [0; 2048];
        let (len, from) = socket.recv_from(&mut call).expect("a call");
        let call = rpc::parse(&call[..len]).expect("a call");
        let mut reply = rpc::success(call.xid);
        reply.fixed(result);
        socket.send_to(&reply.into_bytes(), from).expect("sent");
        (call.procedure, call.arguments.rest().to_vec())
    }

    /// Answers a question for the port of a program.
    fn tell_port(&self, program: u32, version: u32, port: u16) {
        let (procedure, arguments) = Host::answer(&self.portmapper, &u32::from(port).to_be_bytes());
        assert_eq!(procedure, Procedure { program: PORTMAP, version: 2, number: 3 });
        let mut asked = Reader::new(&arguments);
        assert_eq!((asked.u32(), asked.u32()), (Some(program), Some(version)));
    }

    /// Takes a call to the lock manager, and answers it with a status. Returns its arguments.
    fn be_called(&self, number: u32, status: u32) -> Vec<u8> {
        self.tell_port(NLM, 4, self.manager.local_addr().expect("bound").port());
        let (mut stream, _) = self.manager.accept().expect("a connection");
        let mut mark = [0; 4];
        stream.read_exact(&mut mark).expect("a call");
        let mut message = vec![0; (u32::from_be_bytes(mark) & !(1 << 31)) as usize];
        stream.read_exact(&mut message).expect("a call");
        let call = rpc::parse(&message).expect("a call");
        assert_eq!(call.procedure, Procedure { program: NLM, version: 4, number });
        let mut reply = rpc::success(call.xid);
        reply.opaque(b"cook");
        reply.u32(status);
        let reply = reply.into_bytes();
        let mark = u32::try_from(reply.len()).expect("short") | 1 << 31;
        stream.write_all(&[&mark.to_be_bytes(), &*reply].concat()).expect("sent");
        call.arguments.rest().to_vec()
    }

    /// Takes a notice of a restart. Returns the host's name and the state.
    fn be_notified(&self) -> (Vec<u8>, u32) {
        let (procedure, arguments) = Host::answer(&self.monitor, &[]);
        assert_eq!(procedure, Procedure { program: NSM, version: 1, number: 6 });
        let mut notice = Reader::new(&arguments);
        (notice.opaque(1024).expect("a name").to_vec(), notice.u32().expect("a state"))
    }
}

/// A server with locks, its client's host, and a file.
struct Locked {
    vfs: Arc<Vfs>,
    server: Server,
    host: Host,
    file: Handle,
    ino: Ino,
}

fn volume() -> Arc<MemoryStore> {
    Arc::new(MemoryStore::new(VolumeOptions { block_size: 4096, ..VolumeOptions::default() }))
}

fn locked(store: &Arc<MemoryStore>, exports: &str, grace: Duration) -> Locked {
    let options = weft_vfs::Options { background: false, ..weft_vfs::Options::default() };
    let vfs = Vfs::open(store.clone(), None, options, Arc::new(ManualClock::default())).expect("opens");
    let node = MakeNode { kind: Kind::File, permissions: 0o640, umask: 0, rdev: 0 };
    let _ = vfs.make(Caller { uid: 7, gid: 7, ..Caller::ROOT }, Ino::ROOT, b"file", node);
    let ino = vfs.lookup(Caller::ROOT, Ino::ROOT, b"file").expect("there").ino;
    let (host, server) = serve(&vfs, exports, grace);
    let mut client = Client::connect(server.address()).mounted("/");
    let root = client.root.clone();
    let file = client.lookup(&root, "file").expect("there");
    Locked { vfs, server, host, file, ino }
}

/// Serves `vfs` beside a host whose portmapper's port is free at the server's address, too: a
/// connection of another test may have it there.
fn serve(vfs: &Arc<Vfs>, exports: &str, grace: Duration) -> (Host, Server) {
    for _ in 0..10 {
        let host = Host::new();
        let locking = Some(LockOptions { portmapper: host.portmapper(), grace });
        let (address, exports) = ("127.0.0.2:0".parse().expect("an address"), exports.parse().expect("exports"));
        match Server::start(vfs.clone(), Options { address, exports, tls: None, locking }) {
            Err(ServerError::Portmapper { .. }) => {}
            served => return (host, served.expect("serves")),
        }
    }
    panic!("no port of ten is free at both addresses");
}

fn open() -> Locked {
    locked(&volume(), "/ *(no_root_squash)", Duration::from_secs(3600))
}

impl Locked {
    fn client(&self) -> Client {
        Client::connect(self.server.address())
    }

    fn portmapper(&self) -> SocketAddr {
        SocketAddr::new(self.server.address().ip(), self.host.portmapper())
    }

    /// Writes `nlm4_lock` of process `process`.
    fn lock(&self, to: &mut Writer, process: u32, (offset, len): (u64, u64)) {
        to.opaque(b"here");
        to.opaque(&self.file);
        to.opaque(&[b"owner of ", &process.to_be_bytes()[..]].concat());
        to.u32(process);
        to.u64(offset);
        to.u64(len);
    }

    fn lock_arguments(&self, how: (bool, bool), process: u32, range: (u64, u64), reclaim: bool) -> Writer {
        arguments(|to| {
            to.opaque(b"cook");
            to.bool(how.0);
            to.bool(how.1);
            self.lock(to, process, range);
            to.bool(reclaim);
            to.u32(1);
        })
    }

    /// Tries to lock exclusively.
    fn try_lock(&self, client: &mut Client, process: u32, range: (u64, u64)) -> u32 {
        nlm(client, 2, self.lock_arguments((false, true), process, range, false))
    }

    /// Waits for an exclusive lock.
    fn wait(&self, client: &mut Client, process: u32, range: (u64, u64)) -> u32 {
        nlm(client, 2, self.lock_arguments((true, true), process, range, false))
    }

    fn unlock(&self, client: &mut Client, process: u32, range: (u64, u64)) -> u32 {
        nlm(client, 4, self.plain(process, range))
    }

    fn plain(&self, process: u32, range: (u64, u64)) -> Writer {
        arguments(|to| {
            to.opaque(b"cook");
            self.lock(to, process, range);
        })
    }

    fn cancel(&self, client: &mut Client, process: u32, range: (u64, u64)) -> u32 {
        let to = arguments(|to| {
            to.opaque(b"cook");
            to.bool(true);
            to.bool(true);
            self.lock(to, process, range);
        });
        nlm(client, 3, to)
    }

    /// Returns a request of a program on this machine.
    fn here(&self) -> LockRequest {
        let owner = LockOwner { client: self.vfs.locks().client(), name: Arc::new([1; 8]) };
        let (kind, mode) = (LockKind::Range, LockMode::Exclusive);
        let range = LockRange::of_length(5, 2).expect("a range");
        LockRequest { owner, user: 0, kind, range, mode, pid: 77, tag: 0 }
    }
}

fn nlm_procedure(number: u32) -> Procedure {
    Procedure { program: NLM, version: 4, number }
}

/// Calls a procedure of NLM. Returns the status.
fn nlm(client: &mut Client, number: u32, arguments: Writer) -> u32 {
    let mut answer = client.call(nlm_procedure(number), arguments);
    assert_eq!((answer.status, answer.u32()), (4, u32::from_be_bytes(*b"cook")), "the cookie");
    answer.u32()
}

#[test]
fn ranges_exclude_other_owners_and_programs_on_this_machine() {
    let locked = open();
    let mut client = locked.client();
    assert_eq!(locked.try_lock(&mut client, 1, (0, 10)), GRANTED);
    assert_eq!(locked.try_lock(&mut client, 1, (5, 10)), GRANTED, "its own is not in its way");
    assert_eq!(locked.try_lock(&mut client, 2, (14, 0)), DENIED);
    assert_eq!(locked.try_lock(&mut client, 2, (15, 0)), GRANTED);
    let here = locked.here();
    assert!(locked.vfs.locks().lock(locked.ino, here.clone(), Claim::New, IfHeld::Fail).is_err());
    assert_eq!(locked.unlock(&mut client, 1, (0, 0)), GRANTED);
    locked.vfs.locks().lock(locked.ino, here, Claim::New, IfHeld::Fail).expect("locked");
    let test = |client: &mut Client, range| {
        let to = arguments(|to| {
            to.opaque(b"cook");
            to.bool(false);
            locked.lock(to, 3, range);
        });
        let mut answer = client.call(nlm_procedure(1), to);
        let _cookie = answer.u32();
        if answer.u32() == GRANTED {
            return None;
        }
        let found = (answer.bool(), answer.u32(), answer.bytes(), answer.u64(), answer.u64());
        answer.end();
        Some(found)
    };
    assert_eq!(test(&mut client, (0, 5)), None);
    assert_eq!(test(&mut client, (0, 6)), Some((true, 0, vec![], 5, 2)));
    let owner = [b"owner of ".as_slice(), &[0, 0, 0, 2]].concat();
    assert_eq!(test(&mut client, (100, 1)), Some((true, 2, owner, 15, 0)));
    assert_eq!(locked.try_lock(&mut client, 3, (u64::MAX, 1)), TOO_BIG);
    assert_eq!(locked.try_lock(&mut client, 3, (1, i64::MAX as u64)), DENIED);
}

#[test]
fn who_waits_is_called_back_and_who_has_given_up_says_so() {
    let locked = open();
    let mut client = locked.client();
    assert_eq!(locked.try_lock(&mut client, 1, (0, 10)), GRANTED);
    assert_eq!(locked.wait(&mut client, 2, (0, 1)), BLOCKED);
    assert_eq!(locked.wait(&mut client, 2, (0, 1)), BLOCKED, "asked again");
    assert_eq!(locked.wait(&mut client, 3, (0, 1)), BLOCKED);
    assert_eq!(locked.wait(&mut client, 4, (0, 1)), BLOCKED);
    assert_eq!(locked.cancel(&mut client, 4, (0, 1)), GRANTED);
    assert_eq!(locked.cancel(&mut client, 4, (0, 1)), DENIED);
    assert_eq!(locked.unlock(&mut client, 1, (0, 10)), GRANTED);
    let expected = |process| {
        let expected = arguments(|to| {
            to.opaque(b"cook");
            to.bool(true);
            locked.lock(to, process, (0, 1));
        });
        expected.into_bytes()
    };
    // The second is not interested any more, so the third gets it.
    assert_eq!(locked.host.be_called(5, DENIED), expected(2));
    assert_eq!(locked.host.be_called(5, GRANTED), expected(3));
    assert_eq!(locked.try_lock(&mut client, 4, (0, 1)), DENIED);
    assert_eq!(locked.wait(&mut client, 3, (0, 1)), GRANTED, "asked again, since the call may get lost");
}

#[test]
fn owners_that_would_wait_for_each_other_are_told() {
    let locked = open();
    let mut client = locked.client();
    assert_eq!(locked.try_lock(&mut client, 1, (0, 1)), GRANTED);
    assert_eq!(locked.try_lock(&mut client, 2, (1, 1)), GRANTED);
    assert_eq!(locked.wait(&mut client, 1, (1, 1)), BLOCKED);
    assert_eq!(locked.wait(&mut client, 2, (0, 1)), DEADLOCK);
}

#[test]
fn calls_whose_replies_say_nothing_are_answered_by_calls() {
    let locked = open();
    let mut client = locked.client();
    let mut message = |number, arguments| {
        let answer = client.call(nlm_procedure(number), arguments);
        answer.end();
        locked.host.be_called(number + 5, GRANTED)
    };
    let result = |status| {
        arguments(|to| {
            to.opaque(b"cook");
            to.u32(status)
        })
        .into_bytes()
    };
    assert_eq!(message(7, locked.lock_arguments((false, true), 1, (0, 1), false)), result(GRANTED));
    assert_eq!(message(7, locked.lock_arguments((false, true), 2, (0, 1), false)), result(DENIED));
    assert_eq!(message(9, locked.plain(1, (0, 1))), result(GRANTED));
    assert_eq!(message(7, locked.lock_arguments((false, true), 2, (0, 1), false)), result(GRANTED));
}

#[test]
fn only_who_may_use_a_file_can_lock_it_and_only_files_can_be_locked() {
    let locked = locked(&volume(), "/ *(no_root_squash) 127.0.0.9(ro)", Duration::ZERO);
    let mut root = locked.client();
    let mut owner = root.as_user(7, &[]);
    let mut member = root.as_user(8, &[7]);
    let mut other = root.as_user(9, &[]);
    assert_eq!(locked.try_lock(&mut other, 1, (0, 1)), FAILED);
    for client in [&mut root, &mut owner, &mut member] {
        assert_eq!(locked.try_lock(client, 1, (0, 1)), GRANTED);
    }
    let root_handle = root.mounted("/").root;
    let directory = Locked { file: root_handle, ..locked };
    let mut client = directory.client();
    assert_eq!(directory.try_lock(&mut client, 1, (0, 1)), FAILED);
    let forged = Locked { file: vec![7; 40], ..directory };
    assert_eq!(forged.try_lock(&mut client, 1, (0, 1)), STALE);
}

#[test]
fn what_is_exported_to_be_read_cannot_be_locked_exclusively() {
    let locked = locked(&volume(), "/ *(ro,no_root_squash)", Duration::ZERO);
    let mut client = locked.client();
    assert_eq!(locked.try_lock(&mut client, 1, (0, 1)), READ_ONLY);
    assert_eq!(nlm(&mut client, 2, locked.lock_arguments((false, false), 1, (0, 1), false)), GRANTED);
}

#[test]
fn reservations_deny_others_and_go_with_the_client() {
    let locked = open();
    let mut client = locked.client();
    let share = |owner: &[u8], deny, access| {
        arguments(|to| {
            to.opaque(b"cook");
            to.opaque(b"here");
            to.opaque(&locked.file);
            to.opaque(owner);
            to.u32(deny);
            to.u32(access);
            to.bool(false);
        })
    };
    assert_eq!(nlm(&mut client, 20, share(b"a", 2, 3)), GRANTED);
    assert_eq!(nlm(&mut client, 20, share(b"b", 0, 2)), DENIED);
    assert_eq!(nlm(&mut client, 21, share(b"a", 2, 3)), GRANTED);
    assert_eq!(nlm(&mut client, 20, share(b"b", 0, 2)), GRANTED);
    assert_eq!(nlm(&mut client, 22, locked.lock_arguments((true, true), 1, (0, 1), false)), GRANTED);
    assert_eq!(locked.try_lock(&mut client, 2, (0, 1)), DENIED);
    let free_all = arguments(|to| {
        to.opaque(b"here.example.org");
        to.u32(3);
    });
    let Some(socket) = reserved_port() else { return };
    let manager = SocketAddr::new(locked.server.address().ip(), port_of(&locked, NLM, 4, 17));
    ask_from(&socket, manager, nlm_procedure(23), free_all).expect("taken");
    assert_eq!(locked.try_lock(&mut client, 2, (0, 1)), GRANTED);
    assert_eq!(nlm(&mut client, 20, share(b"c", 3, 3)), GRANTED);
}

/// Makes a call over datagrams. Returns its results.
fn ask(to: SocketAddr, procedure: Procedure, arguments: Writer) -> Option<Vec<u8>> {
    ask_from(&UdpSocket::bind("127.0.0.1:0").expect("a port"), to, procedure, arguments)
}

/// Returns a port that only the super-user can call from; none for other users.
fn reserved_port() -> Option<UdpSocket> {
    let socket = (600..1023).rev().find_map(|port| UdpSocket::bind(("127.0.0.1", port)).ok());
    if socket.is_none() {
        eprintln!("skipped in part: only the super-user calls from reserved ports");
    }
    socket
}

fn ask_from(socket: &UdpSocket, to: SocketAddr, procedure: Procedure, arguments: Writer) -> Option<Vec<u8>> {
    socket.set_read_timeout(Some(Duration::from_secs(20))).expect("a timeout");
    let mut message = call(9, procedure, 0, &[]).into_bytes();
    message.extend(arguments.into_bytes());
    socket.send_to(&message, to).expect("sent");
    let mut reply = [0; 1024];
    let len = socket.recv(&mut reply).expect("a reply");
    rpc::results(9, &reply[..len]).map(<[u8]>::to_vec)
}

/// Returns the port that the portmapper reports for a program.
fn port_of(locked: &Locked, program: u32, version: u32, transport: u32) -> u16 {
    let asked = Procedure { program: PORTMAP, version: 2, number: 3 };
    let to = arguments(|to| [program, version, transport, 0].into_iter().for_each(|word| to.u32(word)));
    let results = ask(locked.portmapper(), asked, to).expect("an answer");
    u16::try_from(Reader::new(&results).u32().expect("a port")).expect("a port")
}

#[test]
fn a_client_that_has_restarted_holds_nothing_any_more() {
    let locked = open();
    let mut client = locked.client();
    assert_eq!(locked.try_lock(&mut client, 1, (0, 10)), GRANTED);
    let monitor = SocketAddr::new(locked.server.address().ip(), port_of(&locked, NSM, 1, 17));
    let notice = |name: &[u8]| {
        arguments(|to| {
            to.opaque(name);
            to.u32(5);
        })
    };
    let procedure = Procedure { program: NSM, version: 1, number: 6 };
    // Any user of that host can say so from such a port.
    ask(monitor, procedure, notice(b"HERE.example.org")).expect("taken");
    assert_eq!(locked.try_lock(&mut client, 2, (0, 10)), DENIED);
    let free_all = arguments(|to| {
        to.opaque(b"here");
        to.u32(5);
    });
    client.call(nlm_procedure(23), free_all).end();
    assert_eq!(locked.try_lock(&mut client, 2, (0, 10)), DENIED);
    let Some(socket) = reserved_port() else { return };
    let notify = |name: &[u8]| drop(ask_from(&socket, monitor, procedure, notice(name)).expect("taken"));
    notify(b"elsewhere");
    assert_eq!(locked.try_lock(&mut client, 2, (0, 10)), DENIED);
    notify(b"HERE.example.org");
    assert_eq!(locked.try_lock(&mut client, 2, (0, 10)), GRANTED);
    notify(b"127.0.0.1");
    assert_eq!(locked.try_lock(&mut client, 3, (0, 10)), GRANTED);
}

#[test]
fn after_a_restart_clients_are_told_and_claim_what_they_held_before_others_can() {
    let store = volume();
    let first = locked(&store, "/ *(no_root_squash)", Duration::ZERO);
    let mut client = first.client();
    assert_eq!(nlm(&mut client, 2, first.lock_arguments((false, true), 1, (0, 1), true)), GRACE, "nothing to claim");
    assert_eq!(first.try_lock(&mut client, 1, (0, 10)), GRANTED);
    // Ends it without notice, like a kill.
    drop((first, client));
    let second = locked(&store, "/ *(no_root_squash)", Duration::from_secs(3600));
    second.host.tell_port(NSM, 1, second.host.monitor.local_addr().expect("bound").port());
    let (name, state) = second.host.be_notified();
    assert_eq!((name.as_slice(), state), (b"127.0.0.2".as_slice(), 3));
    assert_eq!(second.host.be_notified().1, 3, "by its other name");
    let mut client = second.client();
    assert_eq!(second.try_lock(&mut client, 2, (0, 10)), GRACE);
    assert_eq!(second.wait(&mut client, 2, (0, 10)), GRACE);
    assert_eq!(nlm(&mut client, 2, second.lock_arguments((true, true), 1, (0, 10), true)), GRANTED);
    drop((second, client));
    let third = locked(&store, "/ *(no_root_squash)", Duration::ZERO);
    third.host.tell_port(NSM, 1, third.host.monitor.local_addr().expect("bound").port());
    assert_eq!(third.host.be_notified().1, 5);
    let mut client = third.client();
    while third.try_lock(&mut client, 2, (0, 10)) == GRACE {
        std::thread::yield_now();
    }
    assert_eq!(third.unlock(&mut client, 2, (0, 10)), GRANTED);
    while !third.vfs.all_kept("lock-client.3.").expect("read").is_empty() {
        std::thread::yield_now();
    }
    third.server.stop();
    assert!(third.vfs.all_kept("lock-client.").expect("read").is_empty(), "who has no locks is forgotten");
    third.vfs.close().expect("closed");
    drop((third, client));
    let fourth = locked(&store, "/ *(no_root_squash)", Duration::from_secs(3600));
    assert_eq!(fourth.try_lock(&mut fourth.client(), 1, (0, 1)), GRANTED, "there is no period of grace");
}

#[test]
fn the_portmapper_tells_where_all_is_and_is_told_nothing() {
    let locked = open();
    let port = locked.server.address().port();
    for (program, version) in [(NFS, 3), (MOUNT, 3), (NLM, 4), (NSM, 1)] {
        assert_eq!(port_of(&locked, program, version, 6), port, "{program}");
    }
    assert_eq!(port_of(&locked, NFS, 4, 6), port, "there it is told which versions there are");
    assert_eq!(port_of(&locked, NFS, 3, 17), 0);
    assert_eq!(port_of(&locked, 7, 1, 6), 0);
    let ask = |version, number, to| ask(locked.portmapper(), Procedure { program: PORTMAP, version, number }, to);
    let address = |version| {
        arguments(|to| {
            to.u32(NFS);
            to.u32(version);
            [b"tcp".as_slice(), b"", b""].into_iter().for_each(|text| to.opaque(text));
        })
    };
    let text = |results: Option<Vec<u8>>| Reader::new(&results.expect("told")).opaque(99).expect("text").to_vec();
    let expected = portmap::universal([127, 0, 0, 2].into(), port).into_bytes();
    assert_eq!(text(ask(4, 3, address(3))), expected);
    assert_eq!(text(ask(3, 3, address(4))), expected);
    assert_eq!(text(ask(4, 9, address(4))), b"");
    assert_eq!(ask(2, 1, address(3)), None, "it takes no registrations");
    assert_eq!(ask(5, 0, Writer::default()), None);
    // All of them, over a connection.
    let mut client = Client { stream: TcpStream::connect(locked.portmapper()).expect("connects"), ..locked.client() };
    let mut answer = client.call(Procedure { program: PORTMAP, version: 2, number: 4 }, Writer::default());
    let mut listed = Vec::new();
    let mut more = answer.status == 1;
    while more {
        listed.push([answer.u32(), answer.u32(), answer.u32(), answer.u32()]);
        more = answer.bool();
    }
    answer.end();
    assert!(listed.contains(&[NFS, 3, 6, u32::from(port)]) && listed.len() == 13, "{listed:?}");
}

#[test]
fn datagrams_reach_all_but_nfs_and_garbage_is_not_answered() {
    let locked = open();
    let manager = SocketAddr::new(locked.server.address().ip(), port_of(&locked, NLM, 4, 17));
    let results = ask(manager, nlm_procedure(2), locked.lock_arguments((false, true), 1, (0, 1), false));
    let expected = arguments(|to| {
        to.opaque(b"cook");
        to.u32(GRANTED)
    })
    .into_bytes();
    assert_eq!(results, Some(expected));
    assert_eq!(ask(manager, Procedure { program: NFS, version: 3, number: 0 }, Writer::default()), None);
    let socket = UdpSocket::bind("127.0.0.1:0").expect("a port");
    for garbage in [&b""[..], b"garbage", &[0; 8000], &[0xff; 40]] {
        socket.send_to(garbage, manager).expect("sent");
    }
    let null = ask(manager, nlm_procedure(0), Writer::default());
    assert_eq!(null, Some(vec![]), "it still answers");
}

#[test]
fn datagrams_are_let_in_by_the_port_that_they_come_from() {
    // The handle is found through a server that lets in all.
    let open = open();
    let (host, server) = serve(&open.vfs, "/ 127.0.0.1(secure,no_root_squash)", Duration::from_secs(3600));
    let address = server.address();
    let file = open.file.clone();
    let locked = Locked { vfs: open.vfs.clone(), server, host, file, ino: open.ino };
    let at = |program, version| SocketAddr::new(address.ip(), port_of(&locked, program, version, 17));
    let (mounts, manager) = (at(MOUNT, 3), at(NLM, 4));
    let mnt = Procedure { program: MOUNT, version: 3, number: 1 };
    let status = |results: Option<Vec<u8>>, skipped| {
        let results = results.expect("answered");
        let mut results = Reader::new(&results);
        (0..=skipped).filter_map(|_| results.u32()).last().expect("a status")
    };
    let mount_from = |socket: &UdpSocket| status(ask_from(socket, mounts, mnt, arguments(|to| to.opaque(b"/"))), 0);
    let lock_from = |socket: &UdpSocket| {
        let lock = locked.lock_arguments((false, true), 1, (0, 1), false);
        // After the cookie.
        status(ask_from(socket, manager, nlm_procedure(2), lock), 2)
    };
    let ordinary = UdpSocket::bind("127.0.0.1:0").expect("a port");
    assert_eq!((mount_from(&ordinary), lock_from(&ordinary)), (13, FAILED));
    let null = ask_from(&ordinary, mounts, Procedure { number: 0, ..mnt }, Writer::default());
    assert_eq!(null, Some(vec![]), "it learns that the server is there");
    let Some(reserved) = reserved_port() else { return };
    assert_eq!((mount_from(&reserved), lock_from(&reserved)), (0, GRANTED));
}

#[test]
fn without_a_portmapper_there_are_no_locks() {
    let served = super::open_to_all();
    let mut client = served.client("/");
    let mut message = call(1, nlm_procedure(0), 0, &[]).into_bytes();
    message[..4].copy_from_slice(&[0, 0, 0, 1]);
    client.send(&message);
    let reply = client.receive().expect("an answer");
    assert_eq!(reply, [1u32, 1, 0, 0, 0, 1].map(u32::to_be_bytes).concat(), "no such program");
}
