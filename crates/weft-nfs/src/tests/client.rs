//! A client that writes calls in bytes, and reads replies.

use crate::programs::{MOUNT, NFS};
use crate::rpc::Procedure;
use crate::rpc::tests::call;
use crate::xdr::{Reader, Writer};
use std::io::{Read, Write};
use std::net::{IpAddr, SocketAddr, TcpStream};

/// A connection, and the user that calls over it act as.
pub(super) struct Client {
    pub(super) stream: TcpStream,
    pub(super) xid: u32,
    pub(super) uid: u32,
    pub(super) groups: Vec<u32>,
    /// The directory that was mounted.
    pub(super) root: Handle,
}

pub(super) type Handle = Vec<u8>;

/// Seconds and nanoseconds.
type Time = (u32, u32);

/// Results after the status.
pub(super) struct Answer {
    pub(super) status: u32,
    body: Vec<u8>,
    read: usize,
}

/// `fattr3`, as far as tests look at it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Attributes {
    pub(super) kind: u32,
    pub(super) mode: u32,
    pub(super) nlink: u32,
    pub(super) uid: u32,
    pub(super) gid: u32,
    pub(super) size: u64,
    pub(super) device: (u32, u32),
    pub(super) fsid: u64,
    pub(super) fileid: u64,
    pub(super) atime: Time,
    pub(super) mtime: Time,
    pub(super) ctime: Time,
}

/// `wcc_data`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Change {
    /// Size, mtime, ctime.
    pub(super) before: Option<(u64, Time, Time)>,
    pub(super) after: Option<Attributes>,
}

/// Attributes to set, as in `sattr3`.
#[derive(Clone, Copy, Default)]
pub(super) struct Set {
    pub(super) mode: Option<u32>,
    pub(super) uid: Option<u32>,
    pub(super) gid: Option<u32>,
    pub(super) size: Option<u64>,
    pub(super) mtime: Option<(u32, u32)>,
    pub(super) touch: bool,
}

impl Answer {
    fn take<T>(&mut self, read: impl FnOnce(&mut Reader<'_>) -> Option<T>) -> T {
        let mut reader = Reader::new(&self.body[self.read..]);
        let value = read(&mut reader).expect("the reply says it");
        self.read = self.body.len() - reader.rest().len();
        value
    }

    pub(super) fn u32(&mut self) -> u32 {
        self.take(|reader| reader.u32())
    }

    pub(super) fn u64(&mut self) -> u64 {
        self.take(|reader| reader.u64())
    }

    pub(super) fn bool(&mut self) -> bool {
        self.take(|reader| reader.bool())
    }

    pub(super) fn bytes(&mut self) -> Vec<u8> {
        self.take(|reader| reader.opaque(usize::MAX).map(<[u8]>::to_vec))
    }

    pub(super) fn attributes(&mut self) -> Attributes {
        let time = |reader: &mut Reader<'_>| Some((reader.u32()?, reader.u32()?));
        self.take(|reader| {
            let (kind, mode, nlink) = (reader.u32()?, reader.u32()?, reader.u32()?);
            let (uid, gid) = (reader.u32()?, reader.u32()?);
            let (size, _used) = (reader.u64()?, reader.u64()?);
            let device = (reader.u32()?, reader.u32()?);
            let (fsid, fileid) = (reader.u64()?, reader.u64()?);
            let (atime, mtime, ctime) = (time(reader)?, time(reader)?, time(reader)?);
            Some(Attributes { kind, mode, nlink, uid, gid, size, device, fsid, fileid, atime, mtime, ctime })
        })
    }

    pub(super) fn optional_attributes(&mut self) -> Option<Attributes> {
        self.bool().then(|| self.attributes())
    }

    pub(super) fn change(&mut self) -> Change {
        let time = |answer: &mut Answer| (answer.u32(), answer.u32());
        let before = self.bool().then(|| (self.u64(), time(self), time(self)));
        Change { before, after: self.optional_attributes() }
    }

    /// Reads a handle, which must be there.
    pub(super) fn handle(&mut self) -> Handle {
        assert!(self.bool(), "a handle is told");
        self.bytes()
    }

    /// Checks that all was read.
    pub(super) fn end(&self) {
        assert_eq!(self.read, self.body.len(), "nothing follows");
    }
}

impl Client {
    /// Connects from an address of this machine.
    pub(super) fn connect_from(from: IpAddr, address: SocketAddr) -> Client {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_io().build().expect("a runtime");
        let stream = runtime.block_on(async {
            let socket = tokio::net::TcpSocket::new_v4()?;
            socket.bind(SocketAddr::new(from, 0))?;
            socket.connect(address).await?.into_std()
        });
        let stream = stream.expect("connects");
        stream.set_nonblocking(false).expect("a socket");
        Client { stream, xid: 0, uid: 0, groups: Vec::new(), root: Vec::new() }
    }

    pub(super) fn connect(address: SocketAddr) -> Client {
        let stream = TcpStream::connect(address).expect("connects");
        stream.set_nodelay(true).expect("a socket");
        Client { stream, xid: 0, uid: 0, groups: Vec::new(), root: Vec::new() }
    }

    pub(super) fn mounted(mut self, path: &str) -> Client {
        let mut answer = self.mount(path);
        assert_eq!(answer.status, 0, "{path} can be mounted");
        self.root = answer.bytes();
        self
    }

    pub(super) fn mount(&mut self, path: &str) -> Answer {
        let mut arguments = Writer::default();
        arguments.opaque(path.as_bytes());
        self.call(Procedure { program: MOUNT, version: 3, number: 1 }, arguments)
    }

    /// Returns a client of the same volume over another connection, as user `uid`.
    pub(super) fn as_user(&self, uid: u32, groups: &[u32]) -> Client {
        let mut client = Client::connect(self.stream.peer_addr().expect("connected"));
        (client.uid, client.groups, client.root) = (uid, groups.to_vec(), self.root.clone());
        client
    }

    /// Calls a procedure of NFS.
    pub(super) fn nfs(&mut self, number: u32, arguments: Writer) -> Answer {
        self.call(Procedure { program: NFS, version: 3, number }, arguments)
    }

    pub(super) fn call(&mut self, procedure: Procedure, arguments: Writer) -> Answer {
        self.ask(procedure, arguments);
        self.answered()
    }

    /// Calls a procedure and waits for nothing.
    pub(super) fn ask(&mut self, procedure: Procedure, arguments: Writer) {
        self.xid += 1;
        let mut message = call(self.xid, procedure, self.uid, &self.groups).into_bytes();
        message.extend(arguments.into_bytes());
        self.send(&message);
    }

    /// Returns the answer to the last call.
    pub(super) fn answered(&mut self) -> Answer {
        let (xid, answer) = self.next_answer();
        assert_eq!(xid, self.xid, "one question at a time");
        answer
    }

    /// Returns the answer to any call.
    pub(super) fn answered_any(&mut self) -> Answer {
        self.next_answer().1
    }

    fn next_answer(&mut self) -> (u32, Answer) {
        let reply = self.receive().expect("an answer");
        let mut reader = Reader::new(&reply);
        let xid = reader.u32().expect("a number");
        let head = [reader.u32(), reader.u32(), reader.u32(), reader.u32(), reader.u32()];
        assert_eq!(head, [Some(1), Some(0), Some(0), Some(0), Some(0)], "accepted");
        let status = reader.u32().unwrap_or(0);
        (xid, Answer { status, body: reader.rest().to_vec(), read: 0 })
    }

    /// Sends a message in one fragment.
    pub(super) fn send(&mut self, message: &[u8]) {
        let mark = u32::try_from(message.len()).expect("short") | 1 << 31;
        self.stream.write_all(&[&mark.to_be_bytes(), message].concat()).expect("sent");
    }

    /// Receives the next message; none if the connection was ended.
    pub(super) fn receive(&mut self) -> Option<Vec<u8>> {
        let mut mark = [0; 4];
        self.stream.read_exact(&mut mark).ok()?;
        let mut message = vec![0; (u32::from_be_bytes(mark) & !(1 << 31)) as usize];
        self.stream.read_exact(&mut message).ok()?;
        Some(message)
    }

    pub(super) fn getattr(&mut self, file: &[u8]) -> Result<Attributes, u32> {
        let mut answer = self.nfs(1, arguments(|to| to.opaque(file)));
        if answer.status == 0 { Ok(answer.attributes()) } else { Err(answer.status) }
    }

    pub(super) fn setattr(&mut self, file: &[u8], set: Set) -> Answer {
        self.nfs(
            2,
            arguments(|to| {
                to.opaque(file);
                write_set(to, set);
                to.bool(false);
            }),
        )
    }

    pub(super) fn lookup(&mut self, directory: &[u8], name: &str) -> Result<Handle, u32> {
        let mut answer = self.nfs(3, place(directory, name));
        if answer.status == 0 { Ok(answer.bytes()) } else { Err(answer.status) }
    }

    pub(super) fn access(&mut self, file: &[u8]) -> u32 {
        let mut answer = self.nfs(
            4,
            arguments(|to| {
                to.opaque(file);
                to.u32(0x3f);
            }),
        );
        assert_eq!(answer.status, 0);
        answer.optional_attributes();
        answer.u32()
    }

    pub(super) fn read(&mut self, file: &[u8], offset: u64, count: u32) -> Result<(Vec<u8>, bool), u32> {
        let mut answer = self.nfs(
            6,
            arguments(|to| {
                to.opaque(file);
                to.u64(offset);
                to.u32(count);
            }),
        );
        if answer.status != 0 {
            return Err(answer.status);
        }
        answer.optional_attributes().expect("told");
        let (count, at_end, data) = (answer.u32(), answer.bool(), answer.bytes());
        assert_eq!(count as usize, data.len());
        answer.end();
        Ok((data, at_end))
    }

    pub(super) fn write(&mut self, file: &[u8], offset: u64, data: &[u8], stable: u32) -> Answer {
        self.nfs(
            7,
            arguments(|to| {
                to.opaque(file);
                to.u64(offset);
                to.u32(u32::try_from(data.len()).expect("short"));
                to.u32(stable);
                to.opaque(data);
            }),
        )
    }

    /// Makes a file; fails if it is there.
    pub(super) fn create(&mut self, directory: &[u8], name: &str, mode: u32) -> Result<Handle, u32> {
        let mut to = place(directory, name);
        to.u32(1);
        write_set(&mut to, Set { mode: Some(mode), ..Set::default() });
        let mut answer = self.nfs(8, to);
        if answer.status == 0 { Ok(answer.handle()) } else { Err(answer.status) }
    }

    pub(super) fn mkdir(&mut self, directory: &[u8], name: &str, mode: u32) -> Result<Handle, u32> {
        let mut to = place(directory, name);
        write_set(&mut to, Set { mode: Some(mode), ..Set::default() });
        let mut answer = self.nfs(9, to);
        if answer.status == 0 { Ok(answer.handle()) } else { Err(answer.status) }
    }

    pub(super) fn remove(&mut self, directory: &[u8], name: &str) -> u32 {
        self.nfs(12, place(directory, name)).status
    }

    pub(super) fn rmdir(&mut self, directory: &[u8], name: &str) -> u32 {
        self.nfs(13, place(directory, name)).status
    }

    pub(super) fn rename(&mut self, from: (&[u8], &str), to: (&[u8], &str)) -> Answer {
        let mut arguments = place(from.0, from.1);
        arguments.opaque(to.0);
        arguments.opaque(to.1.as_bytes());
        self.nfs(14, arguments)
    }

    pub(super) fn link(&mut self, file: &[u8], directory: &[u8], name: &str) -> Answer {
        self.nfs(
            15,
            arguments(|to| {
                to.opaque(file);
                to.opaque(directory);
                to.opaque(name.as_bytes());
            }),
        )
    }

    /// Returns names in a directory after a position, with positions; also whether those were all.
    pub(super) fn readdir(
        &mut self,
        directory: &[u8],
        after: u64,
        count: u32,
    ) -> Result<(Vec<(String, u64)>, bool), u32> {
        let mut answer = self.nfs(
            16,
            arguments(|to| {
                to.opaque(directory);
                to.u64(after);
                to.u64(0);
                to.u32(count);
            }),
        );
        if answer.status != 0 {
            return Err(answer.status);
        }
        // Its length without the status is at most the requested one.
        assert!(answer.body.len() <= count as usize);
        answer.optional_attributes().expect("told");
        answer.u64();
        let mut entries = Vec::new();
        while answer.bool() {
            answer.u64();
            let name = String::from_utf8(answer.bytes()).expect("tests name files so");
            entries.push((name, answer.u64()));
        }
        let at_end = answer.bool();
        answer.end();
        Ok((entries, at_end))
    }
}

/// Returns arguments that `write` writes.
pub(super) fn arguments(write: impl FnOnce(&mut Writer)) -> Writer {
    let mut to = Writer::default();
    write(&mut to);
    to
}

/// Returns the arguments for a name in a directory.
pub(super) fn place(directory: &[u8], name: &str) -> Writer {
    arguments(|to| {
        to.opaque(directory);
        to.opaque(name.as_bytes());
    })
}

pub(super) fn write_set(to: &mut Writer, set: Set) {
    for value in [set.mode, set.uid, set.gid] {
        to.bool(value.is_some());
        value.into_iter().for_each(|value| to.u32(value));
    }
    to.bool(set.size.is_some());
    set.size.into_iter().for_each(|value| to.u64(value));
    to.u32(if set.touch { 1 } else { 0 });
    match set.mtime {
        Some((seconds, nanoseconds)) => [2, seconds, nanoseconds].into_iter().for_each(|value| to.u32(value)),
        None => to.u32(if set.touch { 1 } else { 0 }),
    }
}
