//! The portmapper, versions 2 to 4 (RFC 1833), which reports the ports of programs. It knows the
//! programs of this daemon, and takes nothing from others.

use crate::export::{Client, Transport};
use crate::outcome::Outcome;
use crate::programs::Mapping;
use crate::rpc::{self, Call, Refusal};
use crate::service::Service;
use crate::xdr::{Reader, Writer};
use std::net::{IpAddr, SocketAddr};

/// The portmapper's port.
pub(crate) const PORT: u16 = 111;
/// Longest string in an argument that is looked at.
const TEXT_BYTES_MAX: usize = 256;

impl Transport {
    /// Returns its number in version 2 (the number of the protocol).
    pub(crate) fn number(self) -> u32 {
        match self {
            Transport::Tcp => 6,
            Transport::Udp => 17,
        }
    }

    /// Returns its name in versions 3 and 4, where addresses are of the family of `address`.
    pub(crate) fn name(self, address: IpAddr) -> &'static str {
        match (self, address) {
            (Transport::Tcp, IpAddr::V4(_)) => "tcp",
            (Transport::Udp, IpAddr::V4(_)) => "udp",
            (Transport::Tcp, IpAddr::V6(_)) => "tcp6",
            (Transport::Udp, IpAddr::V6(_)) => "udp6",
        }
    }

    fn named(name: &[u8]) -> Option<Transport> {
        match name {
            b"tcp" | b"tcp6" => Some(Transport::Tcp),
            b"udp" | b"udp6" => Some(Transport::Udp),
            _ => None,
        }
    }
}

/// Returns an address and port as versions 3 and 4 write them (RFC 5665 5.2.3.3).
pub(crate) fn universal(address: IpAddr, port: u16) -> String {
    format!("{address}.{}.{}", port >> 8, port & 0xff)
}

/// Parses an address and port that are written so.
pub(crate) fn parse_universal(address: &[u8]) -> Option<SocketAddr> {
    let mut parts = std::str::from_utf8(address).ok()?.rsplitn(3, '.');
    let (low, high): (u8, u8) = (parts.next()?.parse().ok()?, parts.next()?.parse().ok()?);
    Some(SocketAddr::new(parts.next()?.parse().ok()?, u16::from_be_bytes([high, low])))
}

/// Answers a call.
pub(crate) fn serve(service: &Service, client: &Client, call: &Call<'_>) -> Outcome {
    let mut reply = rpc::success(call.xid);
    let mut arguments = call.arguments;
    let served = match (call.procedure.version, call.procedure.number) {
        (2..=4, 0) => Some(()),
        (2, 3) => port(service, &mut arguments, &mut reply),
        (3 | 4, 3) => address(service, client, Exactly::IfThere, &mut arguments, &mut reply),
        (4, 9) => address(service, client, Exactly::Always, &mut arguments, &mut reply),
        (2, 4) => dump(service, &mut reply, |reply, it| {
            for value in [it.program, it.version, it.transport.number(), u32::from(it.port)] {
                reply.u32(value);
            }
        }),
        (3 | 4, 4) => dump(service, &mut reply, |reply, it| {
            reply.u32(it.program);
            reply.u32(it.version);
            reply.opaque(it.transport.name(client.local).as_bytes());
            reply.opaque(universal(client.local, it.port).as_bytes());
            reply.opaque(b"");
        }),
        (2..=4, _) => return Outcome::Reply(rpc::refused(call.xid, Refusal::ProcedureUnavailable).into()),
        _ => return Outcome::Reply(rpc::refused(call.xid, Refusal::VersionMismatch { low: 2, high: 4 }).into()),
    };
    Outcome::Reply(match served {
        Some(()) => reply.into_bytes().into(),
        None => rpc::refused(call.xid, Refusal::GarbageArguments).into(),
    })
}

/// Match of versions: only the one asked for, or any where that is missing. From another version's
/// answer a client learns which ones there are.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Exactly {
    Always,
    IfThere,
}

fn find(service: &Service, program: u32, version: u32, transport: Transport, exactly: Exactly) -> Option<u16> {
    let of_program = service.portmap.iter().filter(|it| it.program == program && it.transport == transport);
    let exact = of_program.clone().find(|it| it.version == version);
    let found = exact.or_else(|| of_program.clone().next().filter(|_| exactly == Exactly::IfThere));
    found.map(|found| found.port)
}

/// `PMAPPROC_GETPORT`.
fn port(service: &Service, arguments: &mut Reader<'_>, reply: &mut Writer) -> Option<()> {
    let (program, version, transport, _) = (arguments.u32()?, arguments.u32()?, arguments.u32()?, arguments.u32()?);
    let transport = [Transport::Tcp, Transport::Udp].into_iter().find(|it| it.number() == transport);
    let port = transport.and_then(|transport| find(service, program, version, transport, Exactly::IfThere));
    reply.u32(u32::from(port.unwrap_or(0)));
    Some(())
}

/// `RPCBPROC_GETADDR`, `RPCBPROC_GETVERSADDR`.
fn address(
    service: &Service,
    client: &Client,
    exactly: Exactly,
    arguments: &mut Reader<'_>,
    reply: &mut Writer,
) -> Option<()> {
    let (program, version) = (arguments.u32()?, arguments.u32()?);
    let name = arguments.opaque(TEXT_BYTES_MAX)?;
    let (_address, _owner) = (arguments.opaque(TEXT_BYTES_MAX)?, arguments.opaque(TEXT_BYTES_MAX)?);
    // Version 3 and 4 alike: if no transport is named, that of the call.
    let transport = if name.is_empty() { Some(client.transport) } else { Transport::named(name) };
    let port = transport.and_then(|transport| find(service, program, version, transport, exactly));
    reply.opaque(port.map(|port| universal(client.local, port)).unwrap_or_default().as_bytes());
    Some(())
}

fn dump(service: &Service, reply: &mut Writer, one: impl Fn(&mut Writer, &Mapping)) -> Option<()> {
    for mapping in &service.portmap {
        reply.bool(true);
        one(reply, mapping);
    }
    reply.bool(false);
    Some(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn universal_addresses_carry_a_port() {
        assert_eq!(universal([10, 0, 0, 1].into(), 2049), "10.0.0.1.8.1");
        assert_eq!(parse_universal(b"10.0.0.1.8.1"), Some("10.0.0.1:2049".parse().unwrap()));
        assert_eq!(parse_universal(b"fe80::1.0.111"), Some("[fe80::1]:111".parse().unwrap()));
        for bad in ["", "1", "8.1", "10.0.0.1.8.256", "10.0.0.8.1", "a.b.c"] {
            assert_eq!(parse_universal(bad.as_bytes()), None, "{bad}");
        }
    }
}
