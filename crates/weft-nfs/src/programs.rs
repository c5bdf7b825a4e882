//! The programs that are served, by their numbers, and their ports.

use crate::export::Transport;

/// The portmapper (RFC 1833).
pub(crate) const PORTMAP: u32 = 100_000;
/// NFS (RFC 1813).
pub(crate) const NFS: u32 = 100_003;
/// MOUNT (RFC 1813 5).
pub(crate) const MOUNT: u32 = 100_005;
/// NLM, the lock manager (RFC 1813 6.4).
pub(crate) const NLM: u32 = 100_021;
/// NSM, the status monitor (The Open Group, "Protocols for Interworking: XNFS", 11).
pub(crate) const NSM: u32 = 100_024;

/// A program and its port.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Mapping {
    pub(crate) program: u32,
    pub(crate) version: u32,
    pub(crate) transport: Transport,
    pub(crate) port: u16,
}

/// Returns all programs served on ports `tcp` and `udp`.
pub(crate) fn mappings(tcp: u16, udp: u16) -> Vec<Mapping> {
    let both = [(MOUNT, 3), (NLM, 4), (NSM, 1)];
    let tcp = [(NFS, 3)].into_iter().chain(both).map(|it| (it, Transport::Tcp, tcp));
    let all = tcp.chain(both.into_iter().map(|it| (it, Transport::Udp, udp)));
    all.map(|((program, version), transport, port)| Mapping { program, version, transport, port }).collect()
}

/// Returns the mappings of a portmapper at port `port` itself.
pub(crate) fn own_mappings(port: u16) -> impl Iterator<Item = Mapping> {
    let versions = [4, 3, 2].into_iter();
    let all = versions.flat_map(|version| [Transport::Tcp, Transport::Udp].map(|transport| (version, transport)));
    all.map(move |(version, transport)| Mapping { program: PORTMAP, version, transport, port })
}
