//! How clients find out where programs are served: by a portmapper of this server's own, or by the one that the machine has.

use super::ServerError;
use super::calling::call;
use crate::export::Transport;
use crate::portmap::{self, Mapping, universal};
use crate::rpc::Procedure;
use crate::xdr::{Reader, Writer};
use std::io;
use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpListener, UdpSocket};

/// Who tells.
pub(super) enum Portmapper {
    /// This server, here.
    Own(TcpListener, UdpSocket),
    /// Somebody else, who listens here.
    Other(SocketAddr),
}

impl Portmapper {
    /// Listens at port `port` of `address`, unless somebody does already.
    pub(super) fn find(address: IpAddr, port: u16) -> Result<Portmapper, ServerError> {
        let address = SocketAddr::new(address, port);
        match TcpListener::bind(address).and_then(|tcp| Ok((tcp, UdpSocket::bind(address)?))) {
            Ok((tcp, udp)) => Ok(Portmapper::Own(tcp, udp)),
            Err(error) if error.kind() == io::ErrorKind::AddrInUse => {
                Ok(Portmapper::Other(SocketAddr::new(Ipv4Addr::LOCALHOST.into(), port)))
            }
            Err(source) => Err(ServerError::Portmapper { address, source }),
        }
    }
}

/// What the machine's portmapper was told.
pub(super) struct Registered {
    portmapper: SocketAddr,
    address: IpAddr,
    mappings: Vec<Mapping>,
}

impl Registered {
    /// Tells `portmapper` that `mappings` are served at `address`.
    pub(super) async fn new(
        portmapper: SocketAddr,
        address: IpAddr,
        mappings: &[Mapping],
    ) -> Result<Registered, ServerError> {
        let mut registered = Registered { portmapper, address, mappings: Vec::new() };
        for mapping in mappings {
            let error = match registered.ask(Ask::Set, mapping).await {
                Ok(true) => {
                    registered.mappings.push(*mapping);
                    continue;
                }
                Ok(false) => ServerError::Registered { program: mapping.program, version: mapping.version },
                Err(source) => ServerError::Portmapper { address: portmapper, source },
            };
            registered.withdraw().await;
            return Err(error);
        }
        Ok(registered)
    }

    /// Tells it that nothing is served any more.
    pub(super) async fn withdraw(&self) {
        for mapping in &self.mappings {
            // If it cannot be told, whoever asks it will find nobody.
            let _ = self.ask(Ask::Unset, mapping).await;
        }
    }

    async fn ask(&self, ask: Ask, mapping: &Mapping) -> io::Result<bool> {
        let mut arguments = Writer::default();
        arguments.u32(mapping.program);
        arguments.u32(mapping.version);
        arguments.opaque(mapping.transport.name(self.address).as_bytes());
        arguments.opaque(universal(self.address, mapping.port).as_bytes());
        arguments.opaque(b"");
        let procedure = Procedure { program: portmap::PROGRAM, version: 4, number: ask as u32 };
        let from = self.portmapper.ip();
        let results = call(self.portmapper, from, Transport::Tcp, procedure, &arguments.into_bytes()).await?;
        Reader::new(&results).bool().ok_or_else(|| io::Error::other("the reply makes no sense"))
    }
}

/// `RPCBPROC_SET`, `RPCBPROC_UNSET`.
#[derive(Clone, Copy)]
enum Ask {
    Set = 1,
    Unset = 2,
}
