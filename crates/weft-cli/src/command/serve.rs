//! `weft serve`.

use crate::arguments::Serve;
use crate::confinement::Serves;
use crate::control_socket::{self, CONTROL_SOCKET, ControlSocket};
use crate::daemon::{self, Daemon};
use crate::opened::{Opened, Settings};
use crate::serving::{memory_bytes, say_if_unconfined, start_nfs};
use crate::shown;
use crate::user;
use anyhow::{Context, Result};
use serde_json::json;
use std::ffi::OsStr;
use std::net::SocketAddr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::mpsc::sync_channel;
use weft_control::Kind;
use weft_nfs::export::Rule;
use weft_nfs::{Export, Server};
use weft_store::Location;
use weft_vfs::{Report, Stats};

/// Serves a volume until a signal stops it.
pub fn run(mut arguments: Serve) -> Result<ExitCode> {
    let location = Location::parse(&arguments.volume)?;
    arguments.open.refuse_of_postgres(&location)?;
    if let Some(name) = &arguments.user {
        user::take_process(&user::named(name)?)?;
    }
    weft_vfs::set_log_format(arguments.open.log_format.into());
    let options = arguments.nfs.map(|address| arguments.served.options(address)).transpose()?;
    let mut settings = arguments.open.settings(memory_bytes() / 4, true)?;
    settings.vfs.keep_written = true;
    if location.path().is_some() {
        arguments.volume = std::path::absolute(&arguments.volume).context("cannot tell where the volume is")?;
    }
    arguments.log = daemon::find_log(arguments.log.as_deref())?;
    let [certificate, key, clients] = arguments.served.files();
    let files = [arguments.log.as_deref(), certificate, key, clients];
    arguments.open.confine(Serves::Network, location.path(), &files)?;
    daemon::run(
        !arguments.background,
        |daemon| start(&arguments, settings, options, daemon),
        |serving| serving.log.clone(),
        Serving::until_told,
    )
}

struct Serving {
    opened: Opened,
    server: Option<Server>,
    control: ControlSocket,
    log: daemon::Log,
    until_unused: bool,
}

fn start(
    arguments: &Serve,
    settings: Settings,
    options: Option<weft_nfs::Options>,
    daemon: &Daemon,
) -> Result<Serving> {
    arguments.open.say_if_cache_is_new(&arguments.volume);
    let metrics = control_socket::listen(arguments.open.metrics)?;
    let address = options.as_ref().map(|options| options.address);
    let opened = Opened::open(&arguments.volume, settings, arguments.open.hold(served(address)))?;
    daemon.hold_signals();
    let what = address.map_or_else(|| "socket".into(), |address| format!("nfs-{address}"));
    let exports = options.iter().flat_map(|options| &options.exports.0);
    let exports: Vec<_> = exports.map(|export| (export.name(), security(export))).collect();
    let started = options.map(|options| start_nfs(opened.vfs.clone(), options)).transpose();
    let started = started.and_then(|server| Ok((server, opened.log(arguments.log.as_deref(), &PathBuf::from(what))?)));
    match started {
        Ok((server, log)) => {
            let address = server.as_ref().map(Server::address);
            let vfs = Arc::downgrade(&opened.vfs);
            let transport = if address.is_some() { "nfs" } else { "socket" };
            let counters = move || Some(counters(transport, vfs.upgrade()?.stats()));
            // Before it is announced that it serves.
            let place = address.map_or_else(|| CONTROL_SOCKET.into(), |address| address.to_string());
            let control = ControlSocket::start(&opened, (Kind::Server, place), metrics, counters);
            if address.is_none()
                && let Some(why) = control.why_missing()
            {
                let why = anyhow::anyhow!("there is no control socket to serve it by: {why}");
                opened.close()?;
                return Err(why);
            }
            if arguments.until_unused {
                control.will_end_when_unused();
            }
            match (arguments.json, address) {
                (true, _) => announce_as_json(&opened, address, &control),
                (false, None) => announce(&arguments.volume),
                (false, Some(address)) => announce_exports(arguments, address, &exports),
            }
            say_if_unconfined();
            Ok(Serving { opened, server, control, log, until_unused: arguments.until_unused })
        }
        Err(error) => {
            opened.close()?;
            Err(error)
        }
    }
}

/// Returns the use of the volume, for others who want it.
fn served(address: Option<SocketAddr>) -> String {
    address.map_or_else(|| format!("served by its {CONTROL_SOCKET}"), |address| format!("served at {address}"))
}

fn announce(volume: &Path) {
    let shown = volume.display();
    outln!("serving {shown} to programs of this user by its control socket; 'weft stop {shown}' ends that");
}

fn announce_exports(arguments: &Serve, address: SocketAddr, exports: &[(Vec<u8>, &'static str)]) {
    let (volume, portmap) = (arguments.volume.display(), arguments.served.portmap);
    let command = if portmap { mount_command } else { mount_command_without_portmapper };
    let commands = exports.iter().map(|(name, security)| format!("\n    {}", command(address, name, security)));
    let commands: Vec<String> = commands.collect();
    outln!("serving {volume} over NFS at {address}; mount it with{}", commands.concat());
}

fn announce_as_json(opened: &Opened, address: Option<SocketAddr>, control: &ControlSocket) {
    let told = json!({
        "volume": crate::named::volume(&opened.location),
        "nfs": address.map(|address| address.to_string()),
        "socket": control.path().map(shown::path),
        "pid": std::process::id(),
    });
    outln!("{told}");
}

impl Serving {
    /// Serves until a signal comes, or nobody uses it any more, if that counts.
    fn until_told(self, daemon: &Daemon) -> Result<ExitCode> {
        let supervisor = self.opened.begin(&served(self.server.as_ref().map(Server::address)));
        self.control.say_if_missing();
        self.opened.say_as_of();
        let control = self.control.clone();
        // Clients keep their caches; connections break.
        self.opened.leave_when_lost(daemon, move || control.stop())?;
        let (tell, told) = sync_channel(1);
        if self.until_unused {
            let (tell, control) = (tell.clone(), self.control.clone());
            let ends = move || {
                // What comes there means nothing.
                let _ = std::io::copy(&mut std::io::stdin().lock(), &mut std::io::sink());
                control.end_when_unused(move || {
                    let _ = tell.try_send(());
                });
            };
            std::thread::Builder::new().name("weft-input".into()).spawn(ends)?;
        }
        // A second signal has no effect.
        daemon.on_signal(move || {
            let _ = tell.try_send(());
        });
        told.recv().context("nobody awaits signals")?;
        supervisor.ends();
        self.control.stop();
        if let Some(server) = self.server {
            server.stop();
        }
        let left = self.opened.end("served no more");
        self.control.end(&left);
        left.map(|()| ExitCode::SUCCESS)
    }
}

/// Returns the counters of a server of `volume`, in the shape of a mount's, without those of a
/// kernel.
fn counters(transport: &'static str, volume: Stats) -> Report {
    Report { pid: std::process::id(), transport, volume, ..Report::default() }
}

/// Returns the option by which a client mounts an export that requires TLS of all of its clients
/// (nfs(5)).
fn security(export: &Export) -> &'static str {
    let all = |is_asked: fn(&Rule) -> bool| !export.rules.is_empty() && export.rules.iter().all(is_asked);
    match (all(|rule| rule.tls), all(|rule| rule.mutual)) {
        (_, true) => ",xprtsec=mtls",
        (true, false) => ",xprtsec=tls",
        (false, false) => "",
    }
}

/// Returns a command that mounts directory `name` of the server at `address`, on Linux.
fn mount_command(address: SocketAddr, name: &[u8], security: &str) -> String {
    format!("mount -t nfs -o vers=3{security} {} DIRECTORY", source(address, name))
}

/// Returns such a command with all ports, for clients that cannot ask a portmapper, and cannot
/// lock.
fn mount_command_without_portmapper(address: SocketAddr, name: &[u8], security: &str) -> String {
    let (port, source) = (address.port(), source(address, name));
    let ports = format!("proto=tcp,port={port},mountport={port},mountproto=tcp,nolock");
    format!("mount -t nfs -o vers=3,{ports}{security} {source} DIRECTORY")
}

/// Returns directory `name` at `address`, as a word of a command.
fn source(address: SocketAddr, name: &[u8]) -> String {
    let source = [host(address).as_bytes(), b":", name].concat();
    // A bracket is no pattern there, as no file has such a name.
    match shown::word(OsStr::from_bytes(name)) == String::from_utf8_lossy(name) {
        true => String::from_utf8_lossy(&source).into_owned(),
        false => shown::word(OsStr::from_bytes(&source)),
    }
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
        let command = |address: &str| mount_command_without_portmapper(address.parse().unwrap(), b"/", "");
        assert!(
            command("10.0.0.1:99").contains("port=99,") && command("10.0.0.1:99").ends_with(" 10.0.0.1:/ DIRECTORY")
        );
        assert!(command("[::1]:99").contains(" [::1]:/ "));
        assert!(command("0.0.0.0:99").contains(" HOST:/ "));
    }

    #[test]
    fn the_command_asks_for_the_security_that_every_rule_demands() {
        for (line, option) in [
            ("/ *(xprtsec=tls)", ",xprtsec=tls"),
            ("/ 10.0.0.0/8(xprtsec=mtls) fd00::/8(xprtsec=tls)", ",xprtsec=tls"),
            ("/ *(xprtsec=mtls)", ",xprtsec=mtls"),
            ("/ 10.0.0.0/8(xprtsec=tls) fd00::/8", ""),
        ] {
            let exports: weft_nfs::export::Exports = line.parse().unwrap();
            assert_eq!(security(&exports.0[0]), option, "{line}");
        }
        let address = "127.0.0.1:99".parse().unwrap();
        assert!(mount_command(address, b"/", ",xprtsec=tls").contains(" -o vers=3,xprtsec=tls 127.0.0.1:/ "));
    }

    #[test]
    fn the_command_names_the_directory_as_a_word_of_a_shell() {
        let command = |name: &[u8]| mount_command("127.0.0.1:99".parse().unwrap(), name, "");
        assert!(command(b"/lib/a").ends_with(" 127.0.0.1:/lib/a DIRECTORY"));
        assert!(command(b"/it's a").ends_with(r" '127.0.0.1:/it'\''s a' DIRECTORY"), "{}", command(b"/it's a"));
        assert!(command(b"/\xff").ends_with(r" $'127.0.0.1:/\xff' DIRECTORY"), "{}", command(b"/\xff"));
    }
}
