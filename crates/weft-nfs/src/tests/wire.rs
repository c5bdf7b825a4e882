//! Tests of connections, byte by byte.

use super::client::{Client, arguments, place};
use super::open_to_all;
use crate::programs::{MOUNT, NFS};
use crate::rpc::Procedure;
use crate::rpc::tests::call;
use std::io::{Read, Write};
use std::time::Duration;

const GETATTR: Procedure = Procedure { program: NFS, version: 3, number: 1 };

fn words(bytes: &[u8]) -> Vec<u32> {
    bytes.chunks(4).map(|word| u32::from_be_bytes(word.try_into().expect("replies have whole words"))).collect()
}

fn answer_to(client: &mut Client, message: &[u8]) -> Vec<u32> {
    client.send(message);
    words(&client.receive().expect("an answer"))
}

#[test]
fn programs_versions_and_procedures_that_are_not_there_are_refused_by_name() {
    let served = open_to_all();
    let mut client = served.client("/");
    let ask = |client: &mut Client, procedure| answer_to(client, &call(5, procedure, 0, &[]).into_bytes());
    assert_eq!(ask(&mut client, Procedure { program: 99, ..GETATTR }), [5, 1, 0, 0, 0, 1]);
    assert_eq!(ask(&mut client, Procedure { version: 2, ..GETATTR }), [5, 1, 0, 0, 0, 2, 3, 3]);
    assert_eq!(ask(&mut client, Procedure { program: MOUNT, version: 1, number: 1 }), [5, 1, 0, 0, 0, 2, 3, 3]);
    assert_eq!(ask(&mut client, Procedure { number: 22, ..GETATTR }), [5, 1, 0, 0, 0, 3]);
    assert_eq!(ask(&mut client, Procedure { program: MOUNT, version: 3, number: 6 }), [5, 1, 0, 0, 0, 3]);
}

#[test]
fn arguments_cut_short_are_garbage_whatever_the_procedure() {
    let served = open_to_all();
    let mut client = served.client("/");
    for number in 1..=21 {
        let message = call(5, Procedure { number, ..GETATTR }, 0, &[]).into_bytes();
        assert_eq!(answer_to(&mut client, &message), [5, 1, 0, 0, 0, 4], "procedure {number}");
    }
}

#[test]
fn garbage_ends_its_connection_and_no_other() {
    let served = open_to_all();
    let mut client = served.client("/");
    let root = client.root.clone();
    for garbage in [&b"GET / HTTP/1.1\r\n\r\n"[..], &[0xff; 64], &[0x80, 0, 0, 4, 1, 2, 3, 4]] {
        let mut bad = Client::connect(served.server.address());
        bad.stream.write_all(garbage).unwrap();
        assert_eq!(bad.stream.read(&mut [0; 16]).unwrap_or(0), 0);
    }
    assert!(client.getattr(&root).is_ok());
}

#[test]
fn a_call_may_come_in_fragments_and_many_at_once() {
    let served = open_to_all();
    let mut client = served.client("/");
    let root = client.root.clone();
    let mut message = call(9, GETATTR, 0, &[]).into_bytes();
    message.extend(arguments(|to| to.opaque(&root)).into_bytes());
    for (at, part) in message.chunks(7).enumerate() {
        let last = if (at + 1) * 7 >= message.len() { 1 << 31 } else { 0 };
        let mark = u32::try_from(part.len()).unwrap() | last;
        client.stream.write_all(&[&mark.to_be_bytes(), part].concat()).unwrap();
    }
    assert_eq!(words(&client.receive().unwrap())[..7], [9, 1, 0, 0, 0, 0, 0]);
    (0..200).for_each(|_| client.send(&message));
    (0..200).for_each(|_| assert_eq!(words(&client.receive().unwrap())[0], 9));
}

#[test]
fn a_call_that_comes_again_over_another_connection_is_not_done_again() {
    let served = open_to_all();
    let mut client = served.client("/");
    let root = client.root.clone();
    client.create(&root, "file", 0o600).unwrap();
    let mut remove = call(77, Procedure { number: 12, ..GETATTR }, 0, &[]).into_bytes();
    remove.extend(place(&root, "file").into_bytes());
    let first = answer_to(&mut client, &remove);
    assert_eq!(first[6], 0);
    let mut again = Client::connect(served.server.address());
    assert_eq!(answer_to(&mut again, &remove), first);
    remove[3] = 78;
    assert_eq!(answer_to(&mut again, &remove)[6], 2, "another call finds no such file");
}

#[test]
fn a_client_that_takes_no_replies_holds_up_no_other_and_takes_bounded_memory() {
    let served = open_to_all();
    let mut client = served.client("/");
    let root = client.root.clone();
    let file = client.create(&root, "file", 0o600).unwrap();
    client.write(&file, 0, &vec![1; 1 << 20], 0);
    let mut slow = client.as_user(0, &[]);
    slow.stream.set_write_timeout(Some(Duration::from_millis(300))).unwrap();
    let mut read = call(1, Procedure { number: 6, ..GETATTR }, 0, &[]).into_bytes();
    read.extend(
        arguments(|to| {
            to.opaque(&file);
            to.u64(0);
            to.u32(1 << 20);
        })
        .into_bytes(),
    );
    let mark = (u32::try_from(read.len()).unwrap() | 1 << 31).to_be_bytes();
    let message = [&mark[..], &read].concat();
    // Many more than any buffer holds: the server stops to read them.
    let sent = (0..100_000).take_while(|_| slow.stream.write_all(&message).is_ok()).count();
    assert!(sent < 100_000);
    assert!(client.getattr(&root).is_ok());
    assert_eq!(client.read(&file, 0, 4).unwrap().0, [1; 4]);
}

#[test]
fn many_connections_are_served() {
    let served = open_to_all();
    let first = served.client("/");
    let mut clients: Vec<Client> = (0..400).map(|_| first.as_user(0, &[])).collect();
    let root = first.root.clone();
    for client in &mut clients {
        assert!(client.getattr(&root).is_ok());
    }
}

#[test]
fn stopping_answers_what_was_asked_and_ends_every_connection() {
    // Another test may listen at the address next.
    let is_free = || {
        let served = open_to_all();
        let mut client = served.client("/");
        let root = client.root.clone();
        client.create(&root, "file", 0o600).unwrap();
        served.server.stop();
        assert_eq!(client.stream.read(&mut [0; 16]).unwrap_or(0), 0);
        std::net::TcpStream::connect(served.server.address()).is_err()
    };
    assert!((0..5).any(|_| is_free()), "it still listens");
}
