//! Arguments of what serves a volume over a network.

use super::Open;
use clap::Args;
use std::net::SocketAddr;
use std::path::PathBuf;

/// The address and port in `text`.
pub fn served_at(text: &str) -> Result<SocketAddr, String> {
    text.parse().map_err(|_| {
        format!(
            "'{text}' is not an address and a port, such as 127.0.0.1:2049 or [::]:2049; without one, write --nfs last"
        )
    })
}

/// The address in `text` at which metrics are told: of this machine alone if it is just a port.
pub fn told_at(text: &str) -> Result<SocketAddr, String> {
    let port = || text.parse().map(|port: u16| SocketAddr::from(([127, 0, 0, 1], port)));
    text.parse().or_else(|_| port()).map_err(|_| {
        format!("'{text}' is neither a port nor an address and a port, such as 9469, 127.0.0.1:9469 or [::]:9469")
    })
}

/// The part of a volume that is served over a network, and the clients that it is served to.
#[derive(Args)]
pub struct Served {
    /// Export a directory, as a line of exports(5): its path in the volume, then clients with
    /// options, such as '/shared 10.0.0.0/8(rw) *(ro,all_squash)'. Clients are addresses, networks
    /// or '*'; options are rw, ro, root_squash, no_root_squash, all_squash, anonuid=, anongid=,
    /// sync, async, secure, insecure, xprtsec=none, xprtsec=tls, xprtsec=mtls. Without this, all of
    /// the volume to this machine, with the super-user squashed, from ports below 1024 alone
    /// (secure), as any user could call from others in anybody's name
    #[arg(long, value_name = "LINE", requires = "nfs")]
    pub export: Vec<String>,
    /// Export what the lines of this file say, too
    #[arg(long, value_name = "FILE", requires = "nfs")]
    pub exports: Option<PathBuf>,
    /// Tell clients where all is, by a portmapper: one of its own at port 111, or the one that this
    /// machine has; and keep locks for them (NLM). Then programs on a mount of the same daemon and
    /// clients see each other's locks, too
    #[arg(long, requires = "nfs")]
    pub portmap: bool,
    /// Seconds in which clients may claim again what they had locked when the server ended; others
    /// cannot lock anything until then
    #[arg(long, value_name = "SECONDS", requires = "portmap", default_value_t = 45)]
    pub grace: u64,
    /// Offer TLS (RFC 9289) with this certificate, and those that lead to one that clients trust,
    /// in PEM. Exports with xprtsec=tls demand it
    #[arg(long, value_name = "FILE", requires = "nfs", requires = "tls_key")]
    pub tls_certificate: Option<PathBuf>,
    /// Its private key
    #[arg(long, value_name = "FILE", requires = "tls_certificate")]
    pub tls_key: Option<PathBuf>,
    /// Let in only clients with a certificate that one of these authorities has signed; each export
    /// must demand TLS (xprtsec=mtls, or tls)
    #[arg(long, value_name = "FILE", requires = "tls_certificate")]
    pub tls_clients: Option<PathBuf>,
}

#[derive(Args)]
pub struct Mcp {
    /// The volume, or the directory where it is mounted
    pub volume: PathBuf,
    /// Have tools that make snapshots, restore and undelete, too
    #[arg(long)]
    pub allow_changes: bool,
}

#[derive(Args)]
pub struct Serve {
    /// The volume: a path, or a postgres:// URL
    pub volume: PathBuf,
    /// Serve the volume over NFS version 3, at this address; NFS and MOUNT share the port
    #[arg(long, value_name = "ADDRESS:PORT", num_args = 0..=1, default_missing_value = "127.0.0.1:2049", value_parser = served_at, required_unless_present = "socket")]
    pub nfs: Option<SocketAddr>,
    /// Serve the volume to programs of this user alone, by the control socket: those in Python that
    /// use weftfs, and all that make its requests
    #[arg(long, conflicts_with = "nfs")]
    pub socket: bool,
    #[command(flatten)]
    pub served: Served,
    /// Go to the background once clients can connect
    #[arg(short, long)]
    pub background: bool,
    /// End once the standard input has ended and no program has a session at the control socket
    #[arg(long, conflicts_with = "background")]
    pub until_unused: bool,
    /// Say where it is served as one line of JSON: volume, address, control socket, process
    #[arg(long)]
    pub json: bool,
    /// Serve as this user, who must have the rights to all files that are named, instead of root.
    /// Of root's privileges the use of ports below 1024 is kept
    #[arg(long, value_name = "NAME")]
    pub user: Option<String>,
    #[command(flatten)]
    pub open: Open,
    /// In the background: write messages to this file (default: as of 'weft mount')
    #[arg(long, value_name = "FILE", requires = "background")]
    pub log: Option<PathBuf>,
}
