//! `weft serve`.

use crate::arguments::Serve;
use crate::confinement::Serves;
use crate::daemon::{self, Daemon};
use crate::opened::Opened;
use crate::serving::{memory_bytes, say_if_unconfined, start_nfs};
use crate::user::User;
use anyhow::{Context, Result};
use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::mpsc::sync_channel;
use weft_nfs::Server;
use weft_store::Location;
use weft_vfs::Options;

/// Serves a volume until it is told to stop.
pub fn run(mut arguments: Serve) -> Result<ExitCode> {
    let location = Location::parse(&arguments.volume)?;
    if let Some(name) = &arguments.user {
        User::named(name)?.take_process()?;
    }
    let options = arguments.served.options(&arguments.nfs)?;
    let vfs = Options { keep_written: true, ..arguments.open.options(memory_bytes() / 4)? };
    if location.path().is_some() {
        arguments.volume = std::path::absolute(&arguments.volume).context("cannot tell where the volume is")?;
    }
    arguments.log = daemon::find_log(arguments.log.as_deref())?;
    let [certificate, key, clients] = arguments.served.files();
    let files = [arguments.log.as_deref(), certificate, key, clients];
    arguments.open.confine(Serves::Network, location.path(), &files)?;
    daemon::run(
        !arguments.background,
        |daemon| start(&arguments, vfs, options, daemon),
        |serving| &serving.log,
        Serving::until_told,
    )
}

struct Serving {
    opened: Opened,
    server: Server,
    log: PathBuf,
}

fn start(arguments: &Serve, vfs: Options, options: weft_nfs::Options, daemon: &Daemon) -> Result<Serving> {
    let opened = Opened::open(&arguments.volume, vfs, arguments.open.hold())?;
    daemon.hold_signals();
    let what = PathBuf::from(format!("nfs-{}", options.address));
    let started = start_nfs(opened.vfs.clone(), options);
    let started =
        started.and_then(|server| Ok((server, opened.log(&arguments.volume, arguments.log.as_deref(), &what)?)));
    match started {
        Ok((server, log)) => {
            let volume = arguments.volume.display();
            let (address, portmap) = (server.address(), arguments.served.portmap);
            let command = if portmap { mount_command(address) } else { mount_command_without_portmapper(address) };
            outln!("serving {volume} over NFS at {address}; mount it with\n    {command}");
            say_if_unconfined();
            Ok(Serving { opened, server, log })
        }
        Err(error) => {
            opened.close()?;
            Err(error)
        }
    }
}

impl Serving {
    /// Serves until a signal comes.
    fn until_told(self, daemon: &Daemon) -> Result<ExitCode> {
        // What clients keep is theirs; connections break.
        self.opened.leave_when_lost(daemon, || {})?;
        let (tell, told) = sync_channel(1);
        // One that is told already needs no second word.
        daemon.on_signal(move || {
            let _ = tell.try_send(());
        });
        told.recv().context("nobody awaits signals")?;
        self.server.stop();
        drop(self.server);
        self.opened.close()?;
        Ok(ExitCode::SUCCESS)
    }
}

/// What mounts what is served at `address` on Linux.
fn mount_command(address: SocketAddr) -> String {
    format!("mount -t nfs -o vers=3 {}:/ DIRECTORY", host(address))
}

/// The same where clients must be told where all is, and cannot lock.
fn mount_command_without_portmapper(address: SocketAddr) -> String {
    let (port, host) = (address.port(), host(address));
    format!("mount -t nfs -o vers=3,proto=tcp,port={port},mountport={port},mountproto=tcp,nolock {host}:/ DIRECTORY")
}

fn host(address: SocketAddr) -> String {
    match address.ip() {
        ip if ip.is_unspecified() => "HOST".into(),
        std::net::IpAddr::V6(ip) => format!("[{ip}]"),
        std::net::IpAddr::V4(ip) => ip.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_command_names_the_host_where_it_is_known() {
        let command = |address: &str| mount_command_without_portmapper(address.parse().unwrap());
        assert!(
            command("10.0.0.1:99").contains("port=99,") && command("10.0.0.1:99").ends_with(" 10.0.0.1:/ DIRECTORY")
        );
        assert!(command("[::1]:99").contains(" [::1]:/ "));
        assert!(command("0.0.0.0:99").contains(" HOST:/ "));
    }
}
