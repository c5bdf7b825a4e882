//! Calls that this server makes itself: to portmappers, and to clients' lock services.

use super::record::mark;
use crate::export::Transport;
use crate::locking::Peer;
use crate::portmap::parse_universal;
use crate::programs::PORTMAP;
use crate::rpc::{self, Procedure};
use crate::xdr::{Reader, Writer};
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpSocket, UdpSocket};
use tokio::time::timeout;

/// Longest wait for a connection and a reply over it.
const CALL_TIMEOUT: Duration = Duration::from_secs(5);
/// Wait for a datagram before the call is sent again, and the number of times it is sent.
const DATAGRAM_TIMEOUT: Duration = Duration::from_secs(1);
const DATAGRAM_TRIES: u32 = 3;
/// Longest reply that is read.
const REPLY_BYTES_MAX: usize = 8 << 10;
/// Ports that only the super-user can call from, which some hosts ask for.
const RESERVED: std::ops::Range<u16> = 665..1023;

static NEXT: AtomicU32 = AtomicU32::new(1);

/// Calls `procedure` of the program at `to`, from address `from`; returns the results.
pub(super) async fn call(
    to: SocketAddr,
    from: IpAddr,
    transport: Transport,
    procedure: Procedure,
    arguments: &[u8],
) -> io::Result<Vec<u8>> {
    let xid = NEXT.fetch_add(1, Ordering::Relaxed);
    let message = rpc::call(xid, procedure, arguments);
    let reply = match transport {
        Transport::Tcp => timeout(CALL_TIMEOUT, over_tcp(to, from, &message)).await??,
        Transport::Udp => over_udp(to, from, xid, &message).await?,
    };
    rpc::results(xid, &reply).map(<[u8]>::to_vec).ok_or_else(|| io::Error::other("the call was refused"))
}

/// Calls `procedure` of `peer`, at the port that its portmapper, at port `portmapper`, reports.
pub(super) async fn call_program(
    peer: &Peer,
    portmapper: u16,
    procedure: Procedure,
    arguments: &[u8],
) -> io::Result<Vec<u8>> {
    let port = port_of(peer, portmapper, procedure).await?;
    call(SocketAddr::new(peer.address, port), peer.local, peer.transport, procedure, arguments).await
}

/// Returns the port of the program of `procedure`.
pub(super) async fn port_of(peer: &Peer, portmapper: u16, procedure: Procedure) -> io::Result<u16> {
    let mut arguments = Writer::default();
    arguments.u32(procedure.program);
    arguments.u32(procedure.version);
    let version = if peer.address.is_ipv4() { 2 } else { 4 };
    if version == 2 {
        arguments.u32(peer.transport.number());
        arguments.u32(0);
    } else {
        arguments.opaque(peer.transport.name(peer.address).as_bytes());
        arguments.opaque(b"");
        arguments.opaque(b"");
    }
    let asked = Procedure { program: PORTMAP, version, number: 3 };
    let to = SocketAddr::new(peer.address, portmapper);
    // Versions 3 and 4 report an address for the transport of the question (RFC 1833 2.2.1).
    let over = if version == 2 { Transport::Udp } else { peer.transport };
    let results = call(to, peer.local, over, asked, &arguments.into_bytes()).await?;
    let mut results = Reader::new(&results);
    let port = if version == 2 {
        results.u32().and_then(|port| u16::try_from(port).ok())
    } else {
        results.opaque(REPLY_BYTES_MAX).and_then(parse_universal).map(|address| address.port())
    };
    port.filter(|port| *port != 0).ok_or_else(|| io::Error::other("its portmapper does not know the program"))
}

/// Returns an address of this machine that fits `to`.
fn source(from: IpAddr, to: SocketAddr) -> IpAddr {
    match to.ip() {
        ip if from.is_ipv4() == ip.is_ipv4() => from,
        IpAddr::V4(_) => IpAddr::from([0u8; 4]),
        IpAddr::V6(_) => IpAddr::from([0u8; 16]),
    }
}

/// Binds a socket at `from`, to a reserved port if that may be.
fn bind<T>(from: IpAddr, mut bind: impl FnMut(SocketAddr) -> io::Result<T>) -> io::Result<T> {
    for port in RESERVED.rev() {
        match bind(SocketAddr::new(from, port)) {
            Err(error) if error.kind() == io::ErrorKind::AddrInUse => {}
            Err(error) if error.kind() == io::ErrorKind::PermissionDenied => break,
            result => return result,
        }
    }
    bind(SocketAddr::new(from, 0))
}

async fn over_tcp(to: SocketAddr, from: IpAddr, message: &[u8]) -> io::Result<Vec<u8>> {
    let socket = bind(source(from, to), |from| {
        let socket = if from.is_ipv4() { TcpSocket::new_v4()? } else { TcpSocket::new_v6()? };
        socket.bind(from).map(|()| socket)
    })?;
    let mut stream = socket.connect(to).await?;
    stream.write_all(&[&mark(message.len()), message].concat()).await?;
    let mut reply = Vec::new();
    loop {
        let mark = stream.read_u32().await?;
        let len = (mark & 0x7fff_ffff) as usize;
        if reply.len() + len > REPLY_BYTES_MAX {
            return Err(io::Error::other("the reply is too long"));
        }
        let before = reply.len();
        reply.resize(before + len, 0);
        stream.read_exact(&mut reply[before..]).await?;
        if mark & 0x8000_0000 != 0 {
            return Ok(reply);
        }
    }
}

async fn over_udp(to: SocketAddr, from: IpAddr, xid: u32, message: &[u8]) -> io::Result<Vec<u8>> {
    let socket = bind(source(from, to), |from| {
        let socket = std::net::UdpSocket::bind(from)?;
        socket.set_nonblocking(true)?;
        Ok(socket)
    })?;
    let socket = UdpSocket::from_std(socket)?;
    socket.connect(to).await?;
    let mut reply = vec![0; REPLY_BYTES_MAX];
    for _ in 0..DATAGRAM_TRIES {
        socket.send(message).await?;
        let received = timeout(DATAGRAM_TIMEOUT, async {
            loop {
                let len = socket.recv(&mut reply).await?;
                // Replies to earlier calls are skipped.
                if reply[..len].starts_with(&xid.to_be_bytes()) {
                    return io::Result::Ok(len);
                }
            }
        });
        if let Ok(len) = received.await {
            reply.truncate(len?);
            return Ok(reply);
        }
    }
    Err(io::ErrorKind::TimedOut.into())
}
