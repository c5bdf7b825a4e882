//! `weft serve`.

use crate::place::Place;
use std::io::{BufRead, BufReader};
use std::process::Stdio;

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
