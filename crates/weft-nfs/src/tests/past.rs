//! Tests of paths into the past.

use super::client::{Client, Set};
use super::{Served, open_to_all, server};

const NOENT: u32 = 2;
const ACCES: u32 = 13;
const EXIST: u32 = 17;
const ROFS: u32 = 30;
const STALE: u32 = 70;

/// A volume that keeps history, in which `file` was changed after the commit that is returned.
fn with_history() -> (Served, Client, u64) {
    let served = open_to_all();
    let mut client = served.client("/");
    let top = client.root.clone();
    served.vfs.keep_history("all forever", None).expect("kept");
    let directory = client.mkdir(&top, "directory", 0o755).unwrap();
    let file = client.create(&directory, "file", 0o644).unwrap();
    client.write(&file, 0, b"before", 2);
    let commit = served.vfs.create_snapshot("then", None).expect("made").0;
    client.write(&file, 0, b"behind", 2);
    (served, client, commit)
}

fn walk(client: &mut Client, path: &[&str]) -> Result<Vec<u8>, u32> {
    path.iter().try_fold(client.root.clone(), |at, name| client.lookup(&at, name))
}

#[test]
fn the_past_is_read_by_moments_and_handles_outlive_a_restart() {
    let (served, mut client, commit) = with_history();
    let at = format!("@{commit}");
    for moment in [at.as_str(), "then", "now"] {
        let file = walk(&mut client, &[".weft", "at", moment, "directory", "file"]).unwrap();
        let expected: &[u8] = if moment == "now" { b"behind" } else { b"before" };
        assert_eq!(client.read(&file, 0, 100).unwrap().0, expected, "{moment}");
        let below = walk(&mut client, &["directory", ".weft", "at", moment, "file"]).unwrap();
        let number = |client: &mut Client, file: &[u8]| client.getattr(file).unwrap().fileid;
        assert_eq!(number(&mut client, &below), number(&mut client, &file), "one version is one file");
    }
    let then = walk(&mut client, &[".weft", "at", "then"]).unwrap();
    assert_eq!(client.lookup(&then, "..").unwrap(), walk(&mut client, &[".weft", "at"]).unwrap());
    let file = walk(&mut client, &[".weft", "at", "then", "directory", "file"]).unwrap();
    for absent in ["@999", "@1x", "tomorrow", "1969-01-01"] {
        assert_eq!(walk(&mut client, &[".weft", "at", absent]), Err(NOENT), "{absent}");
    }
    assert_eq!(walk(&mut client, &["directory", "file", ".weft"]), Err(20));
    let Served { vfs, server: first, clock } = served;
    drop((first, client));
    let again = server(&vfs, "/ *(no_root_squash,insecure)");
    let served = Served { vfs, server: again, clock };
    let mut client = served.client("/");
    assert_eq!(client.read(&file, 0, 100).unwrap().0, b"before");
    served.vfs.delete_snapshot("then").expect("deleted");
    served.vfs.end_history().expect("ended");
    assert_eq!(client.read(&file, 0, 100), Err(STALE));
    assert_eq!(walk(&mut client, &[".weft"]), Err(NOENT));
}

#[test]
fn nothing_of_the_past_can_be_changed_and_its_name_is_not_for_others() {
    let (_served, mut client, _) = with_history();
    let top = client.root.clone();
    let directory = walk(&mut client, &[".weft", "at", "then", "directory"]).unwrap();
    let file = client.lookup(&directory, "file").unwrap();
    assert_eq!(client.write(&file, 0, b"x", 2).status, ROFS);
    assert_eq!(client.setattr(&file, Set { mode: Some(0o777), ..Set::default() }).status, ROFS);
    assert_eq!(client.create(&directory, "new", 0o644), Err(ROFS));
    assert_eq!(client.remove(&directory, "file"), ROFS);
    assert_eq!(client.rename((&top, "directory"), (&directory, "moved")).status, ROFS);
    assert_eq!(client.mkdir(&top, ".weft", 0o755), Err(EXIST));
    assert_eq!(client.rename((&top, "directory"), (&top, ".weft")).status, EXIST);
    assert_eq!(client.link(&file, &top, "link").status, 18, "it is another file system");
}

#[test]
fn rights_are_those_of_then_as_far_as_they_hold_now() {
    let (served, mut client, _) = with_history();
    let mut other = client.as_user(1000, &[]);
    let path = [".weft", "at", "then", "directory", "file"];
    let past = walk(&mut other, &path).unwrap();
    assert_eq!(other.read(&past, 0, 100).unwrap().0, b"before");
    let file = walk(&mut client, &["directory", "file"]).unwrap();
    let mode = |mode| Set { mode: Some(mode), ..Set::default() };
    client.setattr(&file, mode(0o600));
    assert_eq!(other.read(&past, 0, 100), Err(ACCES), "it is closed now");
    client.setattr(&file, mode(0o644));
    assert_eq!(other.read(&past, 0, 100).unwrap().0, b"before");
    let directory = walk(&mut client, &["directory"]).unwrap();
    client.setattr(&directory, mode(0o700));
    assert_eq!(walk(&mut other, &path), Err(ACCES));
    client.setattr(&directory, mode(0o755));
    client.remove(&directory, "file");
    assert_eq!(other.read(&past, 0, 100).unwrap().0, b"before", "it is gone, and has the rights that it had");
    served.vfs.keep_history("all forever", Some(weft_vfs::HistoryFor::Owner)).expect("kept");
    assert_eq!(walk(&mut other, &path).and_then(|file| other.read(&file, 0, 100)), Err(ACCES));
    served.vfs.keep_history("all forever", Some(weft_vfs::HistoryFor::Root)).expect("kept");
    assert_eq!(walk(&mut other, &path), Err(NOENT));
    assert_eq!(walk(&mut client, &path).and_then(|file| client.read(&file, 0, 100)).unwrap().0, b"before");
}

#[test]
fn the_past_of_a_directory_is_not_found_where_it_was_not_exported() {
    let served = open_to_all();
    served.vfs.keep_history("all forever", None).expect("kept");
    let mut all = served.client("/");
    let top = all.root.clone();
    let [public, private] = ["public", "private"].map(|name| all.mkdir(&top, name, 0o755).unwrap());
    let moved = all.mkdir(&private, "moved", 0o755).unwrap();
    let file = all.create(&moved, "file", 0o644).unwrap();
    all.write(&file, 0, b"secret", 2);
    served.vfs.create_snapshot("then", None).expect("made");
    all.remove(&moved, "file");
    assert_eq!(all.rename((&private, "moved"), (&public, "moved")).status, 0);
    served.vfs.create_snapshot("moved", None).expect("made");
    assert_eq!(walk(&mut all, &["public", "moved", ".weft", "at", "then", "file"]).map(drop), Ok(()));
    let public = server(&served.vfs, "/public *(no_root_squash,insecure)");
    let mut client = Client::connect(public.address()).mounted("/public");
    assert_eq!(walk(&mut client, &["moved", ".weft", "at", "moved"]).map(drop), Ok(()));
    assert_eq!(walk(&mut client, &["moved", ".weft", "at", "then"]), Err(NOENT), "it lay elsewhere");
    assert_eq!(walk(&mut client, &[".weft", "at", "then"]).map(drop), Ok(()));
}
