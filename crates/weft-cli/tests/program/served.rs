//! `weft serve`.

use crate::place::{Place, Said};
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::process::{Child, Command, Stdio};

#[test]
fn a_server_tells_how_each_directory_that_it_exports_is_mounted() {
    let place = Place::new();
    place.weft(&["init", "v"]).well();
    std::fs::create_dir_all(place.path("from/lib")).unwrap();
    std::fs::create_dir(place.path("from/a b")).unwrap();
    place.weft(&["import", "from", "v"]).well();
    let exports = ["--export", "/lib *(insecure)", "--export", r"/a\040b *(ro)"];
    let arguments = [&["serve", "v", "--nfs", "127.0.0.1:0"][..], &exports].concat();
    let mut server = place.command(&arguments).stdout(Stdio::piped()).spawn().unwrap();
    let mut heard = BufReader::new(server.stdout.take().unwrap()).lines().map(Result::unwrap);
    let first = heard.next();
    rustix::process::kill_process(rustix::process::Pid::from_child(&server), rustix::process::Signal::TERM).unwrap();
    assert!(server.wait().unwrap().success());
    // All was said at once.
    let lines: Vec<String> = first.into_iter().chain(heard).collect();
    assert!(lines[0].starts_with("serving "), "{lines:?}");
    assert!(lines[1].ends_with(" 127.0.0.1:/lib DIRECTORY"), "{lines:?}");
    assert!(lines[2].ends_with(" '127.0.0.1:/a b' DIRECTORY"), "{lines:?}");
    assert_eq!(lines.len(), 3);
}

/// Has `volume` served with `arguments`; gives the server and its address.
pub fn serving(place: &Place, volume: &str, arguments: &[&str]) -> (Child, String) {
    let arguments = [&["serve", volume, "--nfs", "127.0.0.1:0"][..], arguments].concat();
    let mut server = place.command(&arguments).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let mut heard = BufReader::new(server.stdout.take().unwrap()).lines().map(Result::unwrap);
    let first = heard.next().unwrap();
    assert!(heard.next().is_some());
    let address = first.split_whitespace().find(|word| word.starts_with("127.0.0.1:")).unwrap().trim_end_matches(';');
    (server, address.to_owned())
}

#[test]
fn a_volume_that_is_served_says_where_and_how_that_ends() {
    let place = Place::new();
    place.weft(&["init", "v"]).well();
    place.directory("m");
    let (server, address) = serving(&place, "v", &[]);
    let words = format!(
        "served at {address} by process {0}; 'weft stop {address}' ends that once all is committed",
        server.id()
    );
    place.weft(&["check", "v"]).could_not(&[&format!("v is {words}")]);
    place.weft(&["umount", "v"]).failed(&[&format!("that volume is {words}")]);
    let Some(mounting) = Place::to_mount() else { return drop(ended(server)) };
    drop(mounting);
    place.weft(&["mount", "v", "m"]).failed(&[&words]);
    assert_eq!(ended(server).code, 0);
    place.weft(&["check", "v"]).well();
}

pub fn ended(server: Child) -> Said {
    rustix::process::kill_process(rustix::process::Pid::from_child(&server), rustix::process::Signal::TERM).unwrap();
    server.wait_with_output().unwrap().into()
}

/// Sends the call of `procedure` of version 3 of `program` with these words after its head (RFC
/// 5531 9), and gives the reply.
fn call(stream: &mut TcpStream, program: u32, procedure: u32, words: &[u32]) -> Vec<u8> {
    let head = [7, 0, 2, program, 3, procedure];
    let message: Vec<u8> = head.iter().chain(words).flat_map(|word| word.to_be_bytes()).collect();
    let mark = (1 << 31) | u32::try_from(message.len()).unwrap();
    stream.write_all(&[&mark.to_be_bytes()[..], &message].concat()).unwrap();
    let mut mark = [0; 4];
    stream.read_exact(&mut mark).unwrap();
    let mut reply = vec![0; (u32::from_be_bytes(mark) & !(1 << 31)) as usize];
    stream.read_exact(&mut reply).unwrap();
    reply
}

const NFS: u32 = 100_003;
const MOUNT: u32 = 100_005;

/// The call is one that any user can make: from a port that is not reserved.
#[test]
fn the_log_tells_of_a_client_that_is_not_let_in_once() {
    let place = Place::new();
    place.weft(&["init", "v"]).well();
    let (server, address) = serving(&place, "v", &[]);
    for _ in 0..3 {
        let mut client = TcpStream::connect(&address).unwrap();
        // Without credentials and verifier, the path "/".
        let reply = call(&mut client, MOUNT, 1, &[0, 0, 0, 0, 1, u32::from_be_bytes(*b"/\0\0\0")]);
        assert_eq!(reply[24..28], [0, 0, 0, 13], "NFS3ERR_ACCES");
    }
    let said = ended(server);
    assert_eq!(said.code, 0, "{said:?}");
    let told: Vec<_> = said.err.lines().filter(|line| line.contains("127.0.0.1 is refused / over NFS")).collect();
    assert!(told.len() == 1 && told[0].contains("a port above 1023"), "{said:?}");
}

#[test]
fn the_log_tells_of_a_client_that_cannot_begin_tls_once() {
    let place = Place::new();
    place.weft(&["init", "v"]).well();
    let (key, certificate) = (place.path("key"), place.path("certificate"));
    let mut openssl = Command::new("openssl");
    openssl.args(["req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", "/CN=server", "-keyout"]);
    openssl.arg(&key).arg("-out").arg(&certificate).stderr(Stdio::null());
    if !openssl.status().is_ok_and(|status| status.success()) {
        return eprintln!("SKIPPED the_log_tells_of_a_client_that_cannot_begin_tls_once: needs openssl");
    }
    let tls = ["--export", "/ *(xprtsec=tls)", "--tls-certificate", "certificate", "--tls-key", "key"];
    let (server, address) = serving(&place, "v", &tls);
    for _ in 0..3 {
        let mut client = TcpStream::connect(&address).unwrap();
        // The empty procedure, with AUTH_TLS (RFC 9289 4.1).
        call(&mut client, NFS, 0, &[7, 0, 0, 0]);
        client.write_all(b"not the beginning of TLS").unwrap();
        let _ = client.read_to_end(&mut Vec::new());
    }
    let said = ended(server);
    assert_eq!(said.code, 0, "{said:?}");
    assert_eq!(said.err.lines().filter(|line| line.contains("127.0.0.1 cannot begin TLS: ")).count(), 1, "{said:?}");
}

/// Kilobytes of memory that `server` has.
fn memory(server: &Child) -> u64 {
    let told = std::fs::read_to_string(format!("/proc/{}/status", server.id())).unwrap();
    let line = told.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap();
    line.trim().trim_end_matches(" kB").parse().unwrap()
}

#[test]
fn thousands_of_clients_are_answered_and_those_that_say_nothing_take_next_to_no_memory() {
    use rustix::process::{Resource, getrlimit, setrlimit};
    let limit = getrlimit(Resource::Nofile);
    if limit.maximum.is_some_and(|most| most < 4000) {
        return eprintln!("SKIPPED thousands_of_clients_are_answered: a process may not open as many files");
    }
    setrlimit(Resource::Nofile, rustix::process::Rlimit { current: limit.maximum, ..limit }).unwrap();
    let place = Place::new();
    place.weft(&["init", "v"]).well();
    let (server, address) = serving(&place, "v", &["--export", "/ *(insecure)"]);
    let before = memory(&server);
    let mut clients: Vec<TcpStream> = (0..3000).map(|_| TcpStream::connect(&address).unwrap()).collect();
    for client in &mut clients {
        let reply = call(client, NFS, 0, &[0, 0, 0, 0]);
        assert_eq!(reply[..4], 7u32.to_be_bytes());
    }
    let grown = memory(&server).saturating_sub(before);
    assert!(grown < 100_000, "{grown} kB more for 3000 connections");
    drop(clients);
    assert_eq!(ended(server).code, 0);
}
