//! The lock service beside connections: a portmapper, datagrams, and the task that notifies waiting
//! clients.

use super::portmapper::{Portmapper, Registered};
use super::turns::Turns;
use super::{LockOptions, ServerError, Shared, accept, datagrams, notices};
use crate::locking::{Earlier, Locking, Message};
use crate::programs::{mappings, own_mappings};
use crate::service::Service;
use std::io;
use std::net::{SocketAddr, TcpListener, UdpSocket};
use std::sync::Arc;
use tokio::sync::Semaphore;
use tokio::sync::mpsc::{UnboundedReceiver, unbounded_channel};
use weft_vfs::Vfs;

/// A lock service that is ready to serve.
pub(super) struct LockService {
    options: LockOptions,
    address: SocketAddr,
    datagrams: UdpSocket,
    portmapper: Portmapper,
    messages: UnboundedReceiver<Message>,
    earlier: Vec<Earlier>,
}

impl LockService {
    /// Makes `service`, whose connections come to `address`, keep locks for clients.
    pub(super) fn new(
        vfs: Arc<Vfs>,
        address: SocketAddr,
        options: LockOptions,
        service: &mut Service,
    ) -> Result<LockService, ServerError> {
        // The same port if it is free; clients ask which one it is.
        let datagrams = UdpSocket::bind(address).or_else(|_| UdpSocket::bind(SocketAddr::new(address.ip(), 0)));
        let datagrams = datagrams.map_err(|source| ServerError::Address { address, source })?;
        let port = datagrams.local_addr().map_err(ServerError::System)?.port();
        let portmapper = Portmapper::find(address.ip(), options.portmapper)?;
        service.portmap = mappings(address.port(), port);
        if matches!(portmapper, Portmapper::Own(..)) {
            service.portmap.extend(own_mappings(options.portmapper));
        }
        let (outbox, messages) = unbounded_channel();
        let started = Locking::start(vfs, outbox);
        let (locking, earlier) = started.map_err(|error| ServerError::Clients(Box::new(error)))?;
        service.locking = Some(locking);
        Ok(LockService { options, address, datagrams, portmapper, messages, earlier })
    }

    /// Begins to serve. Returns the registrations to withdraw from the machine's portmapper.
    pub(super) async fn start(
        self,
        shared: &Arc<Shared>,
        connections: &Arc<Semaphore>,
    ) -> Result<Option<Registered>, ServerError> {
        tokio::spawn(datagrams::serve(datagram_socket(self.datagrams).map_err(ServerError::System)?, shared.clone()));
        let registered = match self.portmapper {
            Portmapper::Own(tcp, udp) => {
                tokio::spawn(datagrams::serve(datagram_socket(udp).map_err(ServerError::System)?, shared.clone()));
                tokio::spawn(accept(listening(tcp).map_err(ServerError::System)?, shared.clone(), connections.clone()));
                None
            }
            Portmapper::Other(portmapper) => {
                Some(Registered::new(portmapper, self.address.ip(), &shared.service.portmap).await?)
            }
        };
        let vfs = shared.service.vfs.clone();
        let turns = Arc::new(Turns::default());
        tokio::spawn(notices::send(self.messages, self.options.portmapper, vfs, turns.clone()));
        if !self.earlier.is_empty() {
            notices::restarted(self.earlier, &self.options, shared, &turns);
        }
        Ok(registered)
    }
}

/// Returns the listener, for tasks.
pub(super) fn listening(listener: TcpListener) -> io::Result<tokio::net::TcpListener> {
    listener.set_nonblocking(true)?;
    tokio::net::TcpListener::from_std(listener)
}

fn datagram_socket(socket: UdpSocket) -> io::Result<tokio::net::UdpSocket> {
    socket.set_nonblocking(true)?;
    tokio::net::UdpSocket::from_std(socket)
}
