//! A network that drops packets without a word to either side: a server and a daemon in network
//! namespaces of their own.

use super::{Writer, assert_numbered, until};
use crate::place::{Place, Said, is_root, write_synced};
use std::fs;
use std::process::Command;
use weft_testkit::Cluster;

/// Two network namespaces with a cable between them, until dropped.
struct Network {
    server: String,
    client: String,
}

fn ip(arguments: &str) -> bool {
    Command::new("ip").args(arguments.split(' ')).output().is_ok_and(|output| output.status.success())
}

impl Network {
    /// None, with a loud message, where this machine makes none.
    fn new() -> Option<Network> {
        let name = |side: &str| format!("weft-{side}-{}", std::process::id());
        let network = Network { server: name("server"), client: name("client") };
        if !is_root() || ![&network.server, &network.client].iter().all(|name| ip(&format!("netns add {name}"))) {
            eprintln!("SKIPPED partitions: they need root, for network namespaces, and a machine that has them");
            return None;
        }
        let (server, client) = (&network.server, &network.client);
        for arguments in [
            format!("-n {server} link add cable type veth peer name cable netns {client}"),
            format!("-n {server} addr add 10.203.77.1/30 dev cable"),
            format!("-n {client} addr add 10.203.77.2/30 dev cable"),
            format!("-n {server} link set lo up"),
            format!("-n {server} link set cable up"),
            format!("-n {client} link set cable up"),
        ] {
            assert!(ip(&arguments), "{arguments}");
        }
        Some(network)
    }

    fn on_both(&self, order: &str) {
        for name in [&self.server, &self.client] {
            assert!(ip(&format!("netns exec {name} tc qdisc {order}")), "{order}");
        }
    }

    /// Drops all packets from now on.
    fn cut(&self) {
        self.on_both("add dev cable root tbf rate 8bit burst 1 limit 1");
    }

    fn heal(&self) {
        self.on_both("del dev cable root");
    }

    /// Runs `weft` on the side of the server or of the client.
    fn weft(&self, place: &Place, side: &str, arguments: &[&str]) -> Said {
        let mut command = Command::new("nsenter");
        command.arg(format!("--net=/run/netns/{side}")).arg(env!("CARGO_BIN_EXE_weft")).args(arguments);
        command.current_dir(place.path("")).output().unwrap().into()
    }
}

impl Drop for Network {
    fn drop(&mut self) {
        for name in [&self.server, &self.client] {
            ip(&format!("netns del {name}"));
        }
    }
}

#[test]
fn a_daemon_that_no_packet_reaches_goes_on_in_time_or_gives_its_volume_to_another() {
    let Some(network) = Network::new() else { return };
    let cluster = Cluster::start_in(&network.server, "-c fsync=off -c listen_addresses=10.203.77.1");
    let Some(place) = Place::to_mount() else { return };
    let mut rules = fs::read_to_string(cluster.socket().join("data/pg_hba.conf")).unwrap();
    rules.push_str("host all all 10.203.77.0/30 trust\n");
    fs::write(cluster.socket().join("data/pg_hba.conf"), rules).unwrap();
    cluster.run("SELECT pg_reload_conf()");
    let url = "postgres://postgres@10.203.77.1/postgres?durability=server&schema=volume";
    let (mounted, second) = (place.directory("m"), place.directory("m2"));
    let client = |arguments: &[&str]| network.weft(&place, &network.client, arguments);
    client(&["init", url]).well();
    client(&["mount", "--log", "log", "--lease", "3", "--patience", "60", url, "m"]).well();

    // For a moment.
    let writer = Writer::start(mounted.join("short"), 400);
    writer.await_synced(3);
    network.cut();
    writer.synced(0);
    // More than one that was on its way could be is never synced.
    let waited = writer.synced.recv_timeout(std::time::Duration::from_secs(1)).into_iter().count();
    let waited = waited + writer.synced.recv_timeout(std::time::Duration::from_secs(1)).into_iter().count();
    assert!(waited <= 1, "{waited} are synced while packets are dropped");
    network.heal();
    writer.end().unwrap();
    assert_numbered(&mounted.join("short"), 400);

    // For longer than the lease.
    let writer = Writer::start(mounted.join("long"), 100_000);
    let synced = writer.await_synced(5);
    let alone = place.daemon();
    network.cut();
    let server = |arguments: &[&str]| network.weft(&place, &network.server, arguments);
    let said = server(&["mount", "--wait", "100", "--log", "log2", url, "m2"]);
    // Where much else is done the lease has run out before this looks.
    let is_told = said.err.contains("waiting for process") || said.err.is_empty();
    assert!(said.code == 0 && is_told, "{said:?}");
    assert_numbered(&second.join("long"), writer.synced(synced));
    write_synced(&second.join("new"), b"new");
    network.heal();
    until("it still answers", || place.weft(&["stats", "m"]).code != 0);
    writer.end().unwrap_err();
    let log = fs::read_to_string(place.path("log")).unwrap();
    assert!(log.contains("was taken over"), "{log}");
    place.weft(&["umount", "m2"]).well();
    until("it has not got it again", || mounted.join("new").exists());
    assert_eq!(place.daemon(), alone);
    place.umount();
    client(&["check", "--read-data", url]).well();
}
