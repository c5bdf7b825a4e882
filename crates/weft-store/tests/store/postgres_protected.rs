//! Connections over TLS to a server of the test's own.

use weft_store::postgres::{self, Address};
use weft_store::{Timestamp, VolumeOptions};
use weft_testkit::Cluster;

/// Starts a server that offers TLS at an address of this process alone, and has `user` with
/// password `word` authenticated by SCRAM, protected or not.
fn protected_server() -> (Cluster, String) {
    let [.., high, low] = std::process::id().to_be_bytes();
    // The number of a process has 22 bits at most.
    let third = std::process::id() >> 16;
    let address = format!("127.{}.{high}.{low}", 64 + third);
    let cluster = Cluster::start(&format!("-c fsync=off -c listen_addresses={address}"));
    let hba = cluster.run("SHOW hba_file");
    // In the server's directory, as the server's user, who must own the key.
    cluster.run(
        "COPY (SELECT 1) TO PROGRAM 'exec >openssl.log 2>&1; openssl req -x509 -newkey rsa:2048 -nodes -days 2 \
         -subj /CN=localhost -keyout server.key -out server.crt && chmod 600 server.key'",
    );
    cluster.run("ALTER SYSTEM SET ssl = on");
    cluster.run("CREATE ROLE files LOGIN SUPERUSER PASSWORD 'word'");
    cluster.run(&format!(
        "COPY (SELECT unnest(ARRAY['local all all trust', 'host all all all scram-sha-256'])) TO '{hba}'"
    ));
    cluster.tell("restart");
    (cluster, format!("postgres://files:word@{address}/postgres?durability=server"))
}

#[test]
fn a_password_is_bound_to_the_protected_connection_or_not_used() {
    let (_cluster, url) = protected_server();
    let create = |schema: &str, options: &str| {
        let address = Address::parse(&format!("{url}&schema={schema}&{options}")).expect("an address");
        let options = VolumeOptions::default();
        postgres::create(&address, &options, (0, 0), Timestamp(1)).map_err(|error| error.to_string())
    };
    create("bound", "sslmode=require&channel_binding=require").expect("bound");
    create("newest", "sslmode=require&channel_binding=require&ssl_min_protocol_version=TLSv1.3").expect("bound");
    create("older", "sslmode=require&sslsni=0&ssl_max_protocol_version=TLSv1.2").expect("made");
    let refused = create("plain", "sslmode=disable&channel_binding=require").expect_err("refused");
    assert!(refused.contains("channel binding"), "{refused}");
}
