//! The portmapper by which clients find programs: this server's own, or the one of the machine.

use super::ServerError;
use super::calling::call;
use crate::export::Transport;
use crate::portmap::{parse_universal, universal};
use crate::programs::{Mapping, PORTMAP};
use crate::rpc::Procedure;
use crate::xdr::{Reader, Writer};
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpListener, UdpSocket};

/// The portmapper that clients ask.
pub(super) enum Portmapper {
    /// This server's own.
    Own(TcpListener, UdpSocket),
    /// Another program's, at this address.
    Other(SocketAddr),
}

impl Portmapper {
    /// Listens at port `port` of `address`, unless another program does already.
    pub(super) fn find(address: IpAddr, port: u16) -> Result<Portmapper, ServerError> {
        let address = SocketAddr::new(address, port);
        match TcpListener::bind(address).and_then(|tcp| Ok((tcp, UdpSocket::bind(address)?))) {
            Ok((tcp, udp)) => Ok(Portmapper::Own(tcp, udp)),
            Err(error) if error.kind() == io::ErrorKind::AddrInUse => {
                let here =
                    if address.is_ipv4() { IpAddr::from(Ipv4Addr::LOCALHOST) } else { Ipv6Addr::LOCALHOST.into() };
                Ok(Portmapper::Other(SocketAddr::new(here, port)))
            }
            Err(source) => Err(ServerError::Portmapper { address, source }),
        }
    }
}

/// Mappings registered with the machine's portmapper.
pub(super) struct Registered {
    portmapper: SocketAddr,
    address: IpAddr,
    mappings: Vec<Mapping>,
}

impl Registered {
    /// Registers `mappings`, which are served at `address`, with `portmapper`.
    pub(super) async fn new(
        portmapper: SocketAddr,
        address: IpAddr,
        mappings: &[Mapping],
    ) -> Result<Registered, ServerError> {
        let mut registered = Registered { portmapper, address, mappings: Vec::new() };
        for mapping in mappings {
            let error = match registered.register(mapping).await {
                Ok(true) => {
                    registered.mappings.push(*mapping);
                    continue;
                }
                Ok(false) => ServerError::Registered { program: mapping.program },
                Err(source) => ServerError::Portmapper { address: portmapper, source },
            };
            registered.withdraw().await;
            return Err(error);
        }
        Ok(registered)
    }

    /// Registers `mapping`. False if the portmapper reports another server, which is there.
    async fn register(&self, mapping: &Mapping) -> io::Result<bool> {
        if as_bool(&self.ask(Ask::Set, mapping).await?)? {
            return Ok(true);
        }
        let told = self.ask(Ask::Address, mapping).await?;
        let Some(other) = Reader::new(&told).opaque(told.len()).and_then(parse_universal) else { return Ok(false) };
        let null = Procedure { program: mapping.program, version: mapping.version, number: 0 };
        match call(other, self.portmapper.ip(), mapping.transport, null, &[]).await {
            // A server that was killed.
            Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => {
                self.ask(Ask::Unset, mapping).await?;
                as_bool(&self.ask(Ask::Set, mapping).await?)
            }
            _ => Ok(false),
        }
    }

    /// Withdraws all mappings.
    pub(super) async fn withdraw(&self) {
        for mapping in &self.mappings {
            // If that fails, clients that ask it find nobody.
            let _ = self.ask(Ask::Unset, mapping).await;
        }
    }

    async fn ask(&self, ask: Ask, mapping: &Mapping) -> io::Result<Vec<u8>> {
        let mut arguments = Writer::default();
        arguments.u32(mapping.program);
        arguments.u32(mapping.version);
        arguments.opaque(mapping.transport.name(self.address).as_bytes());
        arguments.opaque(universal(self.address, mapping.port).as_bytes());
        arguments.opaque(b"");
        let procedure = Procedure { program: PORTMAP, version: 4, number: ask as u32 };
        let from = self.portmapper.ip();
        // An address is reported for the transport of the question.
        let over = if matches!(ask, Ask::Address) { mapping.transport } else { Transport::Tcp };
        call(self.portmapper, from, over, procedure, &arguments.into_bytes()).await
    }
}

fn as_bool(results: &[u8]) -> io::Result<bool> {
    Reader::new(results).bool().ok_or_else(|| io::Error::other("the portmapper's reply makes no sense"))
}

/// `RPCBPROC_SET`, `RPCBPROC_UNSET`, `RPCBPROC_GETADDR`.
#[derive(Clone, Copy)]
enum Ask {
    Set = 1,
    Unset = 2,
    Address = 3,
}
