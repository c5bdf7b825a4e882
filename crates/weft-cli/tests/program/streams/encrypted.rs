//! Streams that are encrypted on their way.

use super::{digest, receive, send, volume};
use crate::place::{Place, Said};
use std::fs;
use std::process::Command;

fn sh(place: &Place, script: &str) -> String {
    let mut shell = Command::new("bash");
    Said::from(shell.args(["-c", script]).current_dir(place.path("")).output().unwrap()).well()
}

/// Makes a pair of keys, the secret one in file `name`. Returns the public one.
fn key(place: &Place, name: &str) -> String {
    let script = format!("age-keygen -o {name} 2>/dev/null && age-keygen -y {name}");
    sh(place, &script).trim().to_owned()
}

#[test]
fn each_recipient_opens_a_stream_and_nobody_else() {
    let place = Place::new();
    volume(&place, &[]);
    let recipients = ["one", "two"].map(|name| format!("age:{}", key(&place, name)));
    key(&place, "other");
    send(&place, &["v", "--encrypt", &recipients[0], "--encrypt", &recipients[1]], "encrypted");
    for name in ["one", "two"] {
        receive(&place, &["--identity", "other", "--identity", name, &format!("by-{name}")], "encrypted").well();
        assert_eq!(digest(&place, &format!("by-{name}")), digest(&place, "v"));
    }
    receive(&place, &["w"], "encrypted").could_not(&["the stream is encrypted", "--identity FILE"]);
    receive(&place, &["--identity", "other", "w"], "encrypted").could_not(&["none of the keys opens it"]);
    assert!(!place.path("w").exists() && !place.path("w.unfinished").exists());
}

#[test]
fn age_itself_opens_and_makes_them() {
    let place = Place::new();
    volume(&place, &[]);
    let recipient = key(&place, "key");
    send(&place, &["v"], "plain");
    send(&place, &["v", "--encrypt", &format!("age:{recipient}")], "encrypted");
    sh(&place, "age -d -i key encrypted | cmp - plain");
    sh(&place, &format!("age -r {recipient} -o by-age plain"));
    receive(&place, &["--identity", "key", "w"], "by-age").well();
    assert_eq!(digest(&place, "w"), digest(&place, "v"));
}

#[test]
fn increments_go_encrypted_too() {
    let place = Place::new();
    volume(&place, &["--history", super::ALL]);
    let encrypt = format!("age:{}", key(&place, "key"));
    place.weft(&["snapshot", "create", "v", "then"]).well();
    send(&place, &["v@then", "--encrypt", &encrypt], "whole");
    super::fill(&place, 2);
    place.weft(&["import", "--overwrite", "source", "v"]).well();
    send(&place, &["v", "--from", "then", "--encrypt", &encrypt], "changes");
    for stream in ["whole", "changes"] {
        receive(&place, &["--identity", "key", "w"], stream).well();
    }
    assert_eq!(digest(&place, "w"), digest(&place, "v"));
}

#[test]
fn what_is_damaged_or_cut_off_leaves_nothing() {
    let place = Place::new();
    volume(&place, &[]);
    let encrypt = format!("age:{}", key(&place, "key"));
    send(&place, &["v", "--encrypt", &encrypt], "encrypted");
    let whole = fs::read(place.path("encrypted")).unwrap();
    let header = whole.windows(3).position(|bytes| bytes == b"---").unwrap();
    // In the code of the header, in the first chunk, in the last one; and cut off, at a chunk too.
    let flipped = [header + 5, header + 100, whole.len() - 1].map(|at| {
        let mut bytes = whole.clone();
        bytes[at] ^= 1;
        bytes
    });
    let cut = [whole.len() - 1, whole.len() - (whole.len() - header) % (64 << 10), header + 20]
        .map(|at| whole[..at].to_vec());
    for bytes in flipped.into_iter().chain(cut) {
        fs::write(place.path("bad"), bytes).unwrap();
        let said = receive(&place, &["--identity", "key", "w"], "bad");
        assert_eq!(said.code, 1, "{said:?}");
        assert!(said.err.contains("encrypted data"), "{said:?}");
        assert!(!place.path("w").exists() && !place.path("w.unfinished").exists());
    }
}

#[test]
fn keys_are_checked_before_anything_is_sent_or_received() {
    let place = Place::new();
    volume(&place, &[]);
    let recipient = key(&place, "key");
    send(&place, &["v"], "plain");
    let secret = format!("age:{}", sh(&place, "grep SECRET key").trim());
    for wrong in [recipient.as_str(), "age:age1xyz", "age:", "gpg:me", &secret] {
        let said = place.weft(&["send", "v", "--encrypt", wrong]);
        assert!(said.code == 2 && said.err.contains("invalid value") && said.out.is_empty(), "{said:?}");
        assert!(!said.err.contains(secret.trim_start_matches("age:")), "{said:?}");
    }
    receive(&place, &["--identity", "key", "w"], "plain").could_not(&["not encrypted"]);
    sh(&place, "chmod 644 key");
    receive(&place, &["--identity", "key", "w"], "plain").could_not(&["others may read it", "chmod 600"]);
    receive(&place, &["--identity", "none", "w"], "plain").could_not(&["cannot read the key none"]);
    receive(&place, &["--identity", "plain", "w"], "plain").could_not(&["plain"]);
}
