//! Loans of memory to programs, and answers to programs that break the rules. Here they speak to
//! the daemon packet by packet.

use memmap2::{MmapOptions, MmapRaw};
use proptest::prelude::*;
use rustix::net::{AddressFamily, RecvFlags, SendFlags, SocketAddrUnix, SocketFlags, SocketType, connect, socket_with};
use std::collections::HashMap;
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::time::Duration;
use weft_client::protocol::{Invitation, PACKET_BYTES_MAX, Part, Reference, Reply, Request, Token, VERSION, ZEROS};
use weft_client::socket::{receive, send};
use weft_share::{Limits, Listener, Server};
use weft_store::VolumeOptions;
use weft_testkit::CrashStore;
use weft_vfs::{Caller, Ino, Kind, MakeNode, ManualClock, Options, SetAttributes, Vfs};

const BLOCK: usize = 4096;

struct Daemon {
    vfs: Arc<Vfs>,
    name: Vec<u8>,
    server: Option<Server>,
    invite: Box<dyn Fn(Ino) -> Token + Sync>,
}

impl Daemon {
    fn new(blocks: usize, limits: Limits) -> Daemon {
        let store = Arc::new(CrashStore::new(VolumeOptions { block_size: BLOCK as u32, ..VolumeOptions::default() }));
        let options = Options { shared_bytes_max: (blocks * BLOCK) as u64, background: false, ..Options::default() };
        let vfs = Vfs::open(store, None, options, Arc::new(ManualClock::default())).expect("opens");
        let listener = Listener::new().expect("a socket");
        let name = listener.name().to_vec();
        let server = Server::start(listener, vfs.clone(), limits).expect("serves");
        let inviter = server.inviter();
        let socket = name.clone();
        let invite = move |ino| {
            let invitation = Invitation::decode(&inviter(rustix::process::geteuid().as_raw(), ino).expect("invited"))
                .expect("an invitation");
            assert_eq!(invitation.socket, socket);
            invitation.token
        };
        Daemon { vfs, name, server: Some(server), invite: Box::new(invite) }
    }

    /// A file of the volume that holds `bytes`.
    fn file(&self, name: &str, bytes: &[u8]) -> Ino {
        let node = MakeNode { kind: Kind::File, permissions: 0o644, umask: 0, rdev: 0 };
        let ino = self.vfs.make(Caller::ROOT, Ino::ROOT, name.as_bytes(), node).expect("made").ino;
        self.vfs.write(ino, 0, bytes, false).expect("written");
        self.vfs.sync().expect("committed");
        ino
    }

    fn connect(&self) -> Program {
        let socket = socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None).unwrap();
        connect(&socket, &SocketAddrUnix::new_abstract_name(&self.name).unwrap()).expect("connected");
        Program { socket, arenas: HashMap::new() }
    }

    /// A program that was greeted.
    fn program(&self) -> Program {
        let mut program = self.connect();
        assert_eq!(program.ask(&Request::Hello { version: VERSION }), Ok(Reply::Hello));
        program
    }

    /// One that reads a file.
    fn reader(&self, ino: Ino) -> Program {
        let mut program = self.program();
        assert_eq!(program.open((self.invite)(ino)), Ok(0));
        program
    }
}

/// Reason why nothing was answered.
#[derive(Debug, PartialEq, Eq)]
enum No {
    Errno(i32),
    Closed,
}

struct Program {
    socket: OwnedFd,
    arenas: HashMap<u64, MmapRaw>,
}

impl Program {
    fn tell(&self, packet: &[u8]) -> io::Result<()> {
        send(self.socket.as_fd(), packet, &[], SendFlags::empty())
    }

    fn ask(&mut self, request: &Request) -> Result<Reply, No> {
        self.tell(&request.encode()).map_err(|_| No::Closed)?;
        let mut buffer = [0; PACKET_BYTES_MAX];
        let (len, descriptors) = match receive(self.socket.as_fd(), &mut buffer, RecvFlags::empty()) {
            Ok((0, _)) | Err(_) => return Err(No::Closed),
            Ok(received) => received,
        };
        match Reply::decode(request, &buffer[..len]).expect("an answer") {
            Reply::Failed { errno } => Err(No::Errno(errno.cast_signed())),
            Reply::Read { parts, lent } => {
                assert_eq!(lent.len(), descriptors.len());
                for (number, file) in lent.iter().zip(descriptors) {
                    let mapped = MmapOptions::new().map_raw_read_only(&File::from(file)).expect("mapped");
                    assert!(self.arenas.insert(*number, mapped).is_none(), "each is given once");
                }
                Ok(Reply::Read { parts, lent })
            }
            reply => Ok(reply),
        }
    }

    fn open(&mut self, token: Token) -> Result<u32, No> {
        match self.ask(&Request::Open { token })? {
            Reply::Opened { file } => Ok(file),
            other => panic!("{other:?}"),
        }
    }

    fn read(&mut self, file: u32, offset: u64, len: usize) -> Result<Vec<Part>, No> {
        match self.ask(&Request::Read { file, offset, len: len as u32 })? {
            Reply::Read { parts, .. } => Ok(parts),
            other => panic!("{other:?}"),
        }
    }

    fn bytes(&self, parts: &[Part]) -> Vec<u8> {
        let mut bytes = Vec::new();
        for part in parts {
            if part.arena == ZEROS {
                bytes.resize(bytes.len() + part.len as usize, 0);
                continue;
            }
            let arena = &self.arenas[&part.arena];
            assert!(part.offset + part.len <= arena.len() as u64);
            // SAFETY: it is mapped, and nobody writes to it while it is held.
            bytes.extend_from_slice(unsafe {
                std::slice::from_raw_parts(arena.as_ptr().add(part.offset as usize), part.len as usize)
            });
        }
        bytes
    }

    fn release(&self, parts: &[Part]) {
        let lent = parts.iter().filter(|part| part.arena != ZEROS);
        let released = lent.map(|part| Reference { arena: part.arena, offset: part.offset }).collect();
        self.tell(&Request::Release(released).encode()).expect("told");
    }

    /// True if the daemon closes the connection, whatever is asked.
    fn is_closed(&mut self) -> bool {
        let mut buffer = [0; PACKET_BYTES_MAX];
        loop {
            match receive(self.socket.as_fd(), &mut buffer, RecvFlags::empty()) {
                Ok((0, _)) | Err(_) => return true,
                Ok(_) => {}
            }
        }
    }
}

fn numbered(blocks: usize) -> Vec<u8> {
    (0..blocks).flat_map(|number| [number as u8 + 1; BLOCK]).collect()
}

#[test]
fn a_program_reads_in_place_what_it_may_read() {
    let daemon = Daemon::new(64, Limits::default());
    let bytes = numbered(6);
    let ino = daemon.file("file", &bytes);
    daemon.vfs.write(ino, 10 * BLOCK as u64, b"after a hole", false).expect("written");
    let mut program = daemon.reader(ino);
    let first = program.read(0, 0, 2 * BLOCK).unwrap();
    assert_eq!(program.bytes(&first), bytes[..2 * BLOCK]);
    let rest = program.read(0, 5 * BLOCK as u64 + 7, 1 << 20).unwrap();
    assert_eq!(program.bytes(&rest), daemon.vfs.read(ino, 5 * BLOCK as u64 + 7, 1 << 20).unwrap().to_vec());
    assert!(program.read(0, 1 << 40, 5).unwrap().is_empty());
    // What was lent stays, whatever becomes of the file and of the daemon.
    daemon.vfs.write(ino, 0, &[255; BLOCK], false).expect("written");
    assert_eq!(program.bytes(&first), bytes[..2 * BLOCK]);
    program.release(&rest);
    program.tell(&Request::Close { file: 0 }.encode()).unwrap();
    drop(daemon);
    assert_eq!(program.bytes(&first), bytes[..2 * BLOCK]);
    assert!(program.is_closed());
}

#[test]
fn only_who_was_invited_is_lent_anything_and_once() {
    let daemon = Daemon::new(64, Limits::default());
    let ino = daemon.file("file", &numbered(2));
    let token = (daemon.invite)(ino);
    let mut program = daemon.program();
    assert_eq!(program.open([0; 16]), Err(No::Errno(libc::EACCES)));
    assert_eq!((program.open(token), program.open(token)), (Ok(0), Err(No::Errno(libc::EACCES))));
    let old = (daemon.invite)(ino);
    for _ in 0..4096 {
        (daemon.invite)(ino);
    }
    assert_eq!(program.open(old), Err(No::Errno(libc::EACCES)), "there are newer ones");
    let mut other = daemon.connect();
    assert_eq!(other.ask(&Request::Hello { version: VERSION + 1 }), Err(No::Errno(libc::EPROTONOSUPPORT)));
}

#[test]
fn who_may_read_a_file_only_now_maps_nothing_that_it_held_before() {
    let daemon = Daemon::new(64, Limits::default());
    let ino = daemon.file("file", &[1; 2 * BLOCK]);
    let mut early = daemon.reader(ino);
    let held = early.read(0, 0, 2 * BLOCK).unwrap();
    daemon.vfs.write(ino, 0, &[2; 2 * BLOCK], false).expect("written");
    daemon.vfs.sync().expect("committed");
    let changes = SetAttributes { permissions: Some(0o666), ..SetAttributes::default() };
    daemon.vfs.set_attributes(ino, changes).expect("set");
    let mut late = daemon.reader(ino);
    let lent = late.read(0, 0, BLOCK).unwrap();
    assert_eq!(late.bytes(&lent), [2; BLOCK]);
    let arena = &late.arenas[&lent[0].arena];
    // SAFETY: it is mapped, and nobody writes to it now.
    let all = unsafe { std::slice::from_raw_parts(arena.as_ptr(), arena.len()) };
    assert!(!all.contains(&1), "nor in any other place");
    assert_eq!(early.bytes(&held), [1; 2 * BLOCK]);
}

#[test]
fn whoever_breaks_the_rules_is_heard_no_more_and_others_are() {
    let daemon = Daemon::new(64, Limits::default());
    let ino = daemon.file("file", &numbered(4));
    let mut honest = daemon.reader(daemon.file("another", &numbered(1)));
    let held = honest.read(0, 0, BLOCK).unwrap();
    let reference = Reference { arena: held[0].arena, offset: held[0].offset };
    let broken: [(&str, Vec<u8>); 10] = [
        ("nothing that is a request", vec![99, 0, 0, 0]),
        ("a request cut short", Request::Read { file: 0, offset: 0, len: 9 }.encode()[..9].to_vec()),
        ("too long a packet", vec![0; 2 * PACKET_BYTES_MAX]),
        ("greeting again", Request::Hello { version: VERSION }.encode()),
        ("a file that is not open", Request::Read { file: 7, offset: 0, len: 9 }.encode()),
        ("letting go of what another holds", Request::Release(vec![reference]).encode()),
        ("an arena that nobody has", Request::Release(vec![Reference { arena: u64::MAX, offset: u64::MAX }]).encode()),
        ("forgetting what it never had", Request::Forget { arena: reference.arena }.encode()),
        ("closing what is not open", Request::Close { file: 5 }.encode()),
        ("opening without a token", Request::Open { token: [0; 16] }.encode()[..4].to_vec()),
    ];
    for (what, packet) in broken {
        let mut program = daemon.reader(ino);
        let kept = program.read(0, 0, BLOCK).unwrap();
        program.tell(&packet).unwrap();
        assert!(program.is_closed(), "{what}");
        // What it was lent is as it was, whatever others read now.
        let mut other = daemon.reader(ino);
        other.read(0, 0, 4 * BLOCK).unwrap();
        assert_eq!(program.bytes(&kept), numbered(1), "{what}");
    }
    let mut early = daemon.connect();
    early.tell(&Request::Open { token: (daemon.invite)(ino) }.encode()).unwrap();
    assert!(early.is_closed());
    let mut twice = daemon.reader(ino);
    let parts = twice.read(0, 0, BLOCK).unwrap();
    twice.tell(&Request::Forget { arena: parts[0].arena }.encode()).unwrap();
    assert!(twice.is_closed(), "it forgot what it holds");
    let mut twice = daemon.reader(ino);
    let parts = twice.read(0, 0, BLOCK).unwrap();
    twice.release(&parts);
    twice.release(&parts);
    assert!(twice.is_closed(), "it let go twice");
    assert_eq!(honest.bytes(&held), numbered(1));
    let again = honest.read(0, 0, BLOCK).unwrap();
    assert_eq!(honest.bytes(&again), numbered(1));
}

#[test]
fn no_program_holds_more_than_its_part() {
    let daemon = Daemon::new(64, Limits { one_user_in: 2, one_connection_in: 4, ..Limits::default() });
    let ino = daemon.file("file", &numbered(60));
    let mut programs: Vec<Program> = (0..3).map(|_| daemon.reader(ino)).collect();
    let hold_all = |program: &mut Program| {
        let mut held = Vec::new();
        loop {
            let at: u64 = held.iter().map(|part: &Part| part.len).sum();
            match program.read(0, at, 1 << 20) {
                Ok(parts) => held.extend(parts),
                Err(no) => break (held, no),
            }
        }
    };
    let (first, no) = hold_all(&mut programs[0]);
    assert_eq!((first.len(), no), (16, No::Errno(libc::ENOBUFS)));
    assert_eq!(hold_all(&mut programs[1]).0.len(), 16);
    assert_eq!(hold_all(&mut programs[2]).0.len(), 0, "its user's other programs hold all that one user may");
    assert_eq!(programs[0].bytes(&first), numbered(16));
    programs[0].release(&first[..8]);
    assert_eq!(programs[0].read(0, 0, BLOCK).unwrap().len(), 1);
}

#[test]
fn who_keeps_mapped_what_was_taken_back_gets_no_more() {
    let daemon = Daemon::new(16, Limits { patience: Duration::ZERO, ..Limits::default() });
    let ino = daemon.file("file", &numbered(200));
    let mut program = daemon.reader(ino);
    let read = |program: &mut Program, block: u64| -> Result<(), No> {
        let parts = program.read(0, block * BLOCK as u64, BLOCK)?;
        assert_eq!(program.bytes(&parts), [block as u8 + 1; BLOCK]);
        program.release(&parts);
        Ok(())
    };
    let refused = (0..100).find_map(|block| read(&mut program, block).err().map(|no| (block, no)));
    let (block, no) = refused.expect("it is not given memory without end");
    assert_eq!(no, No::Errno(libc::ENOBUFS));
    assert!((16..40).contains(&block), "after {block} blocks");
    program.arenas.clear();
    assert_eq!(read(&mut program, 150), Ok(()), "it has let go");
}

#[test]
fn what_a_program_held_comes_back_wherever_it_is_killed() {
    let everything = Limits { one_user_in: 1, one_connection_in: 1, ..Limits::default() };
    let daemon = Daemon::new(8, everything);
    let ino = daemon.file("file", &numbered(8));
    let other = daemon.file("other", &numbered(8));
    let steps: [&dyn Fn(&mut Program); 8] = [
        &|program| drop(program.ask(&Request::Hello { version: VERSION })),
        &|program| drop(program.tell(&Request::Open { token: (daemon.invite)(ino) }.encode())),
        &|program| drop(receive(program.socket.as_fd(), &mut [0; 100], RecvFlags::empty())),
        &|program| drop(program.tell(&Request::Read { file: 0, offset: 0, len: 9 }.encode())),
        &|program| drop(receive(program.socket.as_fd(), &mut [0; 4096], RecvFlags::empty())),
        &|program| drop(program.tell(&Request::Read { file: 0, offset: 0, len: 1 << 20 }.encode())),
        &|program| drop(receive(program.socket.as_fd(), &mut [0; 4096], RecvFlags::empty())),
        &|program| drop(program.tell(&Request::Close { file: 0 }.encode())),
    ];
    for killed_after in 0..=steps.len() {
        let mut program = daemon.connect();
        steps[..killed_after].iter().for_each(|step| step(&mut program));
        drop(program);
        // All of the memory is there for somebody else, at the latest when he has waited for it.
        let mut next = daemon.reader(other);
        let mut held = Vec::new();
        while held.len() < 6 {
            let at: u64 = held.iter().map(|part: &Part| part.len).sum();
            held.extend(next.read(0, at, 1 << 20).unwrap_or_default());
        }
        assert_eq!(next.bytes(&held)[..6 * BLOCK], numbered(6), "killed after {killed_after}");
    }
}

#[test]
fn what_was_lent_is_held_as_long_as_anybody_has_the_socket() {
    let everything = Limits { one_user_in: 0, one_connection_in: 0, patience: Duration::ZERO, ..Limits::default() };
    let daemon = Daemon::new(8, everything);
    let ino = daemon.file("file", &numbered(8));
    let other = daemon.file("other", &numbered(8));
    let mut program = daemon.reader(ino);
    let held = program.read(0, 0, 8 * BLOCK).unwrap();
    let bytes = program.bytes(&held).len();
    // As whoever sends on what it was lent passes along.
    let guard = program.socket.try_clone().unwrap();
    let arenas = std::mem::take(&mut program.arenas);
    drop(program);
    let mut next = daemon.reader(other);
    let mut got = Vec::new();
    while let Ok(parts) = next.read(0, got.iter().map(|part: &Part| part.len).sum(), 1 << 20)
        && !parts.is_empty()
    {
        got.extend(parts);
    }
    assert!(next.bytes(&got).len() + bytes <= 8 * BLOCK, "all others are held");
    let receiver = Program { socket: guard, arenas };
    assert_eq!(receiver.bytes(&held), numbered(8)[..bytes]);
    drop(receiver);
    while next.read(0, 0, BLOCK) == Err(No::Errno(libc::ENOBUFS)) {}
}

#[test]
fn whoever_holds_for_too_long_what_others_wait_for_loses_it_and_still_reads_right() {
    let patience = Duration::from_secs(60);
    let limits = Limits { one_user_in: 0, one_connection_in: 0, lease: Duration::ZERO, patience, ..Limits::default() };
    let daemon = Daemon::new(8, limits);
    let ino = daemon.file("file", &numbered(8));
    let other = daemon.file("other", &numbered(8));
    let mut idle = daemon.reader(ino);
    let mut held = Vec::new();
    while held.len() < 8 {
        let at: u64 = held.iter().map(|part: &Part| part.len).sum();
        match idle.read(0, at, 1 << 20) {
            Ok(parts) => held.extend(parts),
            Err(_) => break,
        }
    }
    let mut waiting = daemon.reader(other);
    let got = waiting.read(0, 0, BLOCK).expect("it was taken from the idle one");
    assert_eq!(waiting.bytes(&got), numbered(1));
    assert!(idle.is_closed());
    assert_eq!(idle.bytes(&held), numbered(held.len()), "what was lent is not written over");
}

#[test]
fn whoever_reads_no_answers_is_not_waited_for() {
    let daemon = Daemon::new(64, Limits { unread: Duration::from_millis(20), ..Limits::default() });
    let ino = daemon.file("file", &numbered(4));
    let flooding = daemon.reader(ino);
    let request = Request::Read { file: 0, offset: 0, len: 4 * BLOCK as u32 }.encode();
    while flooding.tell(&request).is_ok() {}
    let mut honest = daemon.reader(ino);
    let parts = honest.read(0, 0, BLOCK).expect("others are served");
    assert_eq!(honest.bytes(&parts), numbered(1));
}

#[test]
fn there_are_no_more_connections_and_files_than_allowed() {
    let limits = Limits { connections_of_user_max: 3, files_max: 2, ..Limits::default() };
    let daemon = Daemon::new(64, limits);
    let ino = daemon.file("file", &numbered(1));
    let mut programs: Vec<Program> = (0..3).map(|_| daemon.program()).collect();
    assert_eq!(daemon.connect().ask(&Request::Hello { version: VERSION }), Err(No::Closed));
    assert_eq!([(); 3].map(|()| programs[0].open((daemon.invite)(ino))), [Ok(0), Ok(1), Err(No::Errno(libc::EMFILE))]);
    let mut gone = programs.pop().unwrap();
    // Closing is noticed when the daemon has read that.
    rustix::net::shutdown(&gone.socket, rustix::net::Shutdown::Write).unwrap();
    assert!(gone.is_closed());
    let mut connected = daemon.connect();
    while connected.ask(&Request::Hello { version: VERSION }) == Err(No::Closed) {
        connected = daemon.connect();
    }
}

/// Four users could fill all places for good with connections that say nothing.
#[test]
fn who_says_nothing_is_not_waited_for_and_who_has_no_place_gets_one() {
    use rustix::process::Uid;
    let limits = Limits { connections_max: 4, hello: Duration::from_millis(50), ..Limits::default() };
    let daemon = Daemon::new(64, limits);
    let mut greeted = daemon.reader(daemon.file("file", &numbered(1)));
    assert!(daemon.connect().is_closed());
    assert_eq!(greeted.read(0, 0, BLOCK).map(|parts| parts.len()), Ok(1), "it was greeted, and may be silent");
    if !rustix::process::geteuid().is_root() {
        eprintln!("skipped: only root can be others");
        return;
    }
    let hello = |program: &mut Program| program.ask(&Request::Hello { version: VERSION });
    let _more: Vec<Program> = (0..2).map(|_| daemon.program()).collect();
    assert_eq!(hello(&mut daemon.connect()), Err(No::Closed), "the last place is for others");
    std::thread::scope(|scope| {
        let other = scope.spawn(|| {
            let uid = Uid::from_raw(4_000_300);
            // It changes this thread alone, which ends with the scope.
            rustix::thread::set_thread_res_uid(uid, uid, uid).expect("root can");
            assert_eq!(hello(&mut daemon.connect()), Ok(Reply::Hello));
        });
        other.join().expect("it has a place");
    });
}

/// Step of a malicious program.
#[derive(Clone, Debug)]
enum Step {
    Packet(Vec<u8>, u32),
    Read { file: u32, offset: u64, len: u32 },
    Release(prop::sample::Index),
    Forget(prop::sample::Index),
    Open,
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        1 => (prop::collection::vec(any::<u8>(), 0..40), 0u32..10).prop_map(|(bytes, first)| Step::Packet(bytes, first)),
        6 => (0u32..3, prop_oneof![9 => 0..70_000u64, 1 => any::<u64>()], prop_oneof![0..70_000u32, any::<u32>()])
            .prop_map(|(file, offset, len)| Step::Read { file, offset, len }),
        4 => any::<prop::sample::Index>().prop_map(Step::Release),
        1 => any::<prop::sample::Index>().prop_map(Step::Forget),
        2 => Just(Step::Open),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn whatever_programs_do_others_read_what_is_there(steps in prop::collection::vec((0usize..3, step()), 0..60)) {
        let daemon = Daemon::new(12, Limits { patience: Duration::ZERO, ..Limits::default() });
        let bytes = numbered(10);
        let ino = daemon.file("file", &bytes);
        let mut programs: Vec<(Program, Vec<(u64, Part)>)> = (0..3).map(|_| (daemon.reader(ino), Vec::new())).collect();
        for (which, step) in steps {
            let (program, held) = &mut programs[which];
            let alive = match step {
                Step::Packet(bytes, first) => {
                    let _ = program.tell(&[&first.to_le_bytes()[..], &bytes].concat());
                    false
                }
                Step::Read { file, offset, len } => {
                    let read = program.ask(&Request::Read { file, offset, len });
                    if let Ok(Reply::Read { parts, .. }) = &read {
                        let mut at = offset;
                        for part in parts {
                            held.push((at, *part));
                            at += part.len;
                        }
                    }
                    read != Err(No::Closed)
                }
                Step::Release(which) if !held.is_empty() => {
                    let (_, part) = held.swap_remove(which.index(held.len()));
                    program.release(&[part]);
                    true
                }
                Step::Forget(which) if !held.is_empty() => {
                    let arena = held[which.index(held.len())].1.arena;
                    let _ = program.tell(&Request::Forget { arena }.encode());
                    false
                }
                Step::Open => program.open((daemon.invite)(ino)) != Err(No::Closed),
                Step::Release(_) | Step::Forget(_) => true,
            };
            if !alive {
                programs[which] = (daemon.reader(ino), Vec::new());
            }
            for (program, held) in &programs {
                for (at, part) in held {
                    let at = *at as usize;
                    prop_assert_eq!(&program.bytes(&[*part])[..], &bytes[at..at + part.len as usize]);
                }
            }
        }
        drop(programs);
        let mut last = daemon.reader(ino);
        let parts = loop {
            match last.read(0, 0, BLOCK) {
                // Those before have gone, but that may not have been noticed yet.
                Err(No::Errno(libc::ENOBUFS)) => {}
                parts => break parts,
            }
        };
        prop_assert_eq!(&last.bytes(&parts.expect("it is served"))[..], &bytes[..BLOCK]);
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        if let Some(server) = self.server.take() {
            server.stop();
        }
    }
}
