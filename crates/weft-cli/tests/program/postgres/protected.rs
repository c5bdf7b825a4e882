//! A server over the network: verified as the address says, with a password from the usual file,
//! for a role that may do no more than it must.

use super::until;
use crate::place::{Place, Said};
use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown};
use std::process::Command;
use weft_testkit::Cluster;

/// Makes keys and certificates in directory `keys`; false if there is no openssl.
fn make_keys(place: &Place) -> bool {
    let script = "exec >log 2>&1; set -e
        new='-newkey rsa:2048 -nodes -days 2'
        openssl req -x509 $new -subj /CN=authority -keyout ca.key -out ca.crt
        openssl req -newkey rsa:2048 -nodes -subj /CN=localhost -keyout server.key -out server.csr
        printf 'subjectAltName=DNS:localhost\\nbasicConstraints=CA:FALSE\\n' >extensions
        openssl x509 -req -in server.csr -CA ca.crt -CAkey ca.key -CAcreateserial -days 2 -extfile extensions -out server.crt
        openssl req -x509 $new -subj /CN=stranger -keyout other.key -out other.crt
        openssl req -x509 $new -subj /CN=localhost -addext subjectAltName=DNS:localhost -keyout self.key -out self.crt";
    let keys = place.directory("keys");
    let made = Command::new("sh").args(["-c", script]).current_dir(&keys).status().unwrap().success();
    if !made && Command::new("openssl").arg("version").output().is_ok() {
        panic!("{}", fs::read_to_string(keys.join("log")).unwrap());
    }
    made
}

/// An address of the loopback that this process alone uses.
fn own_address() -> String {
    let [_, third, high, low] = std::process::id().to_be_bytes();
    format!("127.{}.{high}.{low}", 128 + third)
}

/// Gives the server the key and certificate `name`.
fn install(place: &Place, cluster: &Cluster, name: &str) {
    let owner = cluster.socket().metadata().unwrap();
    for (end, mode) in [("key", 0o600), ("crt", 0o644)] {
        let to = cluster.socket().join("data").join(format!("server.{end}"));
        fs::copy(place.path("keys").join(format!("{name}.{end}")), &to).unwrap();
        fs::set_permissions(&to, PermissionsExt::from_mode(mode)).unwrap();
        chown(to, Some(owner.uid()), None).unwrap();
    }
}

/// Starts a server with roles `files`, who must come over TLS, and `plain`, who must not.
fn protected_server(place: &Place) -> Cluster {
    let cluster = Cluster::start(&format!("-c fsync=off -c listen_addresses={}", own_address()));
    install(place, &cluster, "server");
    cluster.run("ALTER SYSTEM SET ssl = on");
    for role in ["files", "plain"] {
        cluster.run(&format!("CREATE ROLE {role} LOGIN PASSWORD 'se:cret'"));
    }
    cluster.run("CREATE DATABASE files");
    cluster.run_in("files", "CREATE SCHEMA photos AUTHORIZATION files; CREATE SCHEMA plain AUTHORIZATION plain");
    let rules = "local all all trust\nhostssl all files all scram-sha-256\nhostnossl all plain all scram-sha-256\n";
    fs::write(cluster.socket().join("data/pg_hba.conf"), rules).unwrap();
    cluster.tell("restart");
    cluster
}

#[test]
fn a_server_is_verified_and_a_role_with_no_other_rights_keeps_a_volume_in_its_schema() {
    let Some(place) = Place::to_mount() else { return };
    if !make_keys(&place) {
        return eprintln!("SKIPPED a_server_is_verified: needs openssl");
    }
    let cluster = protected_server(&place);
    let passwords = place.path("passwords");
    fs::write(&passwords, "localhost:5432:files:*:se\\:cret\n").unwrap();
    fs::set_permissions(&passwords, PermissionsExt::from_mode(0o600)).unwrap();
    let key = |name: &str| place.path("keys").join(name).display().to_string();
    let verified = |host: &str, role: &str, more: &str| {
        format!("postgres://{role}@{host}/files?hostaddr={}&durability=server&{more}", own_address())
    };
    let url = |more: &str| verified("localhost", "files", &format!("schema=photos{more}"));
    let full = |certificate: &str| format!("&sslmode=verify-full&sslrootcert={}", key(certificate));
    let run = |arguments: &[&str], variables: &[(&str, &str)]| -> Said {
        let mut command = place.command(arguments);
        command.env("PGPASSFILE", &passwords).envs(variables.iter().copied()).output().unwrap().into()
    };
    let elsewhere = |certificate: &str| verified("elsewhere", "files", &format!("schema=photos{}", full(certificate)));
    let refused = |url: &str, variables: &[(&str, &str)], words: &str| {
        let said = run(&["init", url], variables);
        assert!(said.code != 0 && said.err.lines().count() == 1 && said.err.contains(words), "{words}: {said:?}");
    };
    let password = [("PGPASSWORD", "se:cret")];
    refused(&url(""), &[("PGPASSFILE", "/nowhere")], "cannot connect");
    refused(&url(&full("other.crt")), &[], "cannot connect");
    refused(&elsewhere("ca.crt"), &password, "not valid for name");
    refused(&url("&sslmode=disable"), &[], "cannot connect");
    refused(&url("&sslmode=require&sslrootcert=system"), &[], "verify-full");
    run(&["init", &url(&full("ca.crt"))], &[]).well();

    let mounted = place.directory("m");
    let authority = key("ca.crt");
    let by_environment = [("PGSSLMODE", "verify-ca"), ("PGSSLROOTCERT", authority.as_str())];
    run(&["mount", "--log", "log", &url(""), "m"], &by_environment).well();
    fs::write(mounted.join("file"), [7; 300_000]).unwrap();
    place.weft(&["sync", "m"]).well();
    let protected = "SELECT count(*) > 0 AND bool_and(s.ssl) FROM pg_stat_activity a \
        JOIN pg_stat_ssl s USING (pid) WHERE a.usename = 'files'";
    assert_eq!(cluster.run(protected), "t");
    place.umount();
    run(&["mount", "--log", "log", &url(""), "m"], &by_environment).well();
    assert_eq!(fs::read(mounted.join("file")).unwrap(), [7; 300_000]);
    place.umount();
    run(&["init", &verified("localhost", "plain", "schema=plain")], &[]).well();

    // A server that vouches for itself is trusted by its own certificate alone.
    install(&place, &cluster, "self");
    cluster.run("SELECT pg_reload_conf()");
    until("it is not trusted", || run(&["info", &url(&full("self.crt"))], &[]).code == 0);
    refused(&elsewhere("self.crt"), &password, "not valid for name");
    refused(&url(&full("other.crt")), &[], "invalid peer certificate");
}
