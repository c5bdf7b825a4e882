//! Files at the control socket: `weft serve --socket`, and mounts.

use crate::place::{Place, Said, on_each_engine};
use serde_json::Value;
use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::fs::symlink;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Stdio};

/// A server of volume `v`, started by a program that gives it its input.
struct Server {
    child: Child,
    socket: PathBuf,
}

impl Server {
    fn of(place: &Place, volume: &str) -> Server {
        let mut command = place.command(&["serve", "--socket", "--json", "--until-input-ends", volume]);
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
        let told: Value = serde_json::from_str(&line).unwrap();
        assert_eq!((&told["nfs"], told["pid"].as_u64()), (&Value::Null, Some(child.id().into())));
        Server { child, socket: told["socket"].as_str().unwrap().into() }
    }

    /// Closes its input.
    fn end(mut self) -> Said {
        drop(self.child.stdin.take());
        crate::served::ended(self.child)
    }
}

/// Returns the code and the body of the answer at `socket` to `request`, which has this `body`.
fn asked(socket: &Path, request: &str, body: &[u8]) -> (u16, Vec<u8>) {
    let mut stream = UnixStream::connect(socket).unwrap();
    write!(stream, "{request} HTTP/1.1\r\nHost: weft\r\nContent-Length: {}\r\n\r\n", body.len()).unwrap();
    // One that is refused is not read to its end.
    let _ = stream.write_all(body);
    let mut said = Vec::new();
    stream.read_to_end(&mut said).unwrap();
    let head = said.windows(4).position(|bytes| bytes == b"\r\n\r\n").unwrap();
    let code = std::str::from_utf8(&said[9..12]).unwrap().parse().unwrap();
    (code, said.split_off(head + 4))
}

/// Returns the JSON that answers `request`, which is granted.
#[track_caller]
fn told(socket: &Path, request: &str, body: &[u8]) -> Value {
    let (code, answer) = asked(socket, request, body);
    assert_eq!(code, 200, "{request}: {}", String::from_utf8_lossy(&answer));
    serde_json::from_slice(&answer).unwrap()
}

/// Returns the errno for which `request` is refused.
#[track_caller]
fn refused(socket: &Path, request: &str, body: &[u8]) -> i64 {
    let (code, answer) = asked(socket, request, body);
    assert!(code >= 400, "{request}: {code}");
    serde_json::from_slice::<Value>(&answer).unwrap()["errno"].as_i64().unwrap()
}

fn hex(text: &str) -> String {
    text.bytes().map(|byte| format!("{byte:02x}")).collect()
}

/// Makes a file of these bytes; returns its id.
fn made(socket: &Path, path: &str, bytes: &[u8]) -> String {
    let file = told(socket, &format!("POST /files/create?path={}", hex(path)), b"");
    let id = file["id"].as_str().unwrap().to_owned();
    let written = told(socket, &format!("POST /files/write?id={id}&offset=0"), bytes);
    assert_eq!(written["written"].as_u64(), Some(bytes.len() as u64));
    id
}

#[test]
fn programs_use_files_without_a_mount_until_their_input_ends() {
    let place = Place::new();
    place.weft(&["init", "v"]).well();
    let server = Server::of(&place, "v");
    let socket = &server.socket;
    let ask = |request: &str| told(socket, request, b"");
    ask(&format!("POST /files/make-directory?path={}&mode=750", hex("/d")));
    let large: Vec<u8> = (0..3_000_000_u32).map(|number| number.to_le_bytes()[1]).collect();
    let id = made(socket, "/d/large", &large);
    let read = |query: String| asked(socket, &format!("GET /files/content?{query}"), b"");
    assert_eq!(read(format!("id={id}")), (200, large.clone()));
    assert_eq!(read(format!("path={}&offset=2999990&length=100", hex("d//large"))), (200, large[2_999_990..].into()));
    assert_eq!(read(format!("id={id}&offset=9999999")), (200, Vec::new()));
    ask(&format!("POST /files/set?id={id}&size=10&mode=600&mtime=1500000000"));
    let attributes = ask(&format!("GET /files/attributes?path={}", hex("/d/large")));
    assert_eq!((attributes["size"].as_u64(), attributes["mode"].as_u64()), (Some(10), Some(0o600)));
    assert_eq!(attributes["mtime"].as_i64(), Some(1_500_000_000));
    // What is there already is truncated, taken or refused.
    assert_eq!(refused(socket, &format!("POST /files/create?path={}&exists=fail", hex("/d/large")), b""), 17);
    assert_eq!(ask(&format!("POST /files/create?path={}&exists=take", hex("/d/large")))["size"].as_u64(), Some(10));
    let copy = made(socket, "/copy", b"");
    assert_eq!(ask(&format!("POST /files/copy?from={id}&to={copy}"))["copied"].as_u64(), Some(10));
    assert_eq!(read(format!("id={copy}")), (200, large[..10].into()));
    ask(&format!("POST /files/rename?path={}&to={}", hex("/copy"), hex("/d/moved")));
    let entries = ask(&format!("GET /files/entries?path={}", hex("/d")));
    let names = |entries: &Value| {
        let names = entries["entries"].as_array().unwrap().iter();
        let mut names = names.map(|entry| entry[0].as_str().unwrap().to_owned()).collect::<Vec<_>>();
        names.sort_unstable();
        names
    };
    assert_eq!(names(&entries), ["large", "moved"]);
    assert_eq!((&entries["fields"][3], entries["entries"][0][3].as_u64()), (&"size".into(), Some(10)));
    let after = entries["after"].as_u64().unwrap();
    let rest = ask(&format!("GET /files/entries?path={}&after={after}", hex("/d")));
    assert_eq!((names(&rest), &rest["after"]), (Vec::new(), &Value::Null));
    ask(&format!("POST /files/remove?path={}", hex("/d/moved")));
    assert_eq!(refused(socket, &format!("GET /files/content?id={copy}"), b""), 116);
    place.weft(&["check", "v"]).could_not(&["served to programs by its control socket", "weft stop"]);
    assert!(place.weft(&["status", "v"]).well().contains("served by its control socket"));
    assert_eq!(server.end().code, 0);
    assert!(place.weft(&["status", "v"]).well().starts_with("no daemon of this user uses"));
    place.weft(&["check", "v"]).well();
    assert_eq!(place.weft(&["cat", "v:d/large"]).well().len(), 10);
}

#[test]
fn requests_that_make_no_sense_change_nothing_and_say_why() {
    let place = Place::new();
    place.weft(&["init", "v"]).well();
    let server = Server::of(&place, "v");
    let socket = &server.socket;
    let id = made(socket, "/f", b"all");
    let target = |text: &str| text.replace("F", &hex("/f")).replace("ID", &id);
    for (request, errno) in [
        ("GET /files/content", 22),
        ("GET /files/content?path=2", 22),
        ("GET /files/content?path=F&other=1", 22),
        ("GET /files/content?path=F&offset=-1", 22),
        ("GET /files/content?id=1.999", 116),
        ("GET /files/content?id=ID.1", 22),
        ("GET /files/attributes?path=2f6e6f6e65", 2),
        ("GET /files/attributes?path=F2f67", 20),
        ("GET /files/entries?path=F", 20),
        ("POST /files/create?path=2f", 22),
        ("POST /files/create?path=F&mode=99", 22),
        ("POST /files/remove?path=F&directory=", 20),
        ("POST /files/rename?path=F&to=2f6e6f6e652f66", 2),
        ("POST /files/copy?from=ID&to=ID", 22),
        ("POST /files/set?id=ID&size=99999999999999999999", 22),
        ("POST /files/set?id=ID&size=9223372036854775808", 27),
        ("POST /files/write?id=ID&offset=18446744073709551615", 27),
        ("POST /files/write?offset=0", 22),
    ] {
        let body = if request.contains("write") { &b"x"[..] } else { b"" };
        assert_eq!(refused(socket, &target(request), body), errno, "{request}");
    }
    // Only what is written has a body, and not a large one.
    assert_eq!(asked(socket, &target("POST /files/remove?path=F"), b"x").0, 413);
    assert_eq!(refused(socket, &target("POST /files/write?id=ID"), &vec![0; (64 << 20) + 1]), 27);
    assert_eq!(asked(socket, "GET /files/write?id=ID", b"").0, 405);
    let long = format!("GET /files/attributes?path={}", hex(&"/..".repeat(2000)));
    assert_eq!(told(socket, &long, b"")["kind"], "directory");
    assert_eq!(server.end().code, 0);
    place.weft(&["check", "v"]).well();
}

#[test]
fn the_mount_and_the_socket_show_the_same_files() {
    on_each_engine(&[], |place, volume| {
        let status = place.weft(&["status", "--json", volume]).json();
        let socket = PathBuf::from(status[0]["socket"].as_str().unwrap());
        let mounted = place.path("m");
        assert!(!mounted.join("f").exists());
        let id = made(&socket, "/f", b"first");
        assert_eq!(fs::read(mounted.join("f")).unwrap(), b"first");
        told(&socket, &format!("POST /files/write?id={id}&offset=5"), b" and more");
        assert_eq!(fs::read(mounted.join("f")).unwrap(), b"first and more");
        fs::write(mounted.join("f"), "other").unwrap();
        assert_eq!(asked(&socket, &format!("GET /files/content?id={id}"), b""), (200, b"other".into()));
        fs::create_dir(mounted.join("d")).unwrap();
        for (target, name) in [("f", "link"), ("link", "second"), ("/f", "out"), ("loop", "loop"), ("../f", "d/up")] {
            symlink(target, mounted.join(name)).unwrap();
        }
        let attributes = |path: &str| format!("GET /files/attributes?path={}", hex(path));
        for path in ["/second", "/d/up", "/d/../../link"] {
            assert_eq!(told(&socket, &attributes(path), b"")["id"], id, "{path}");
        }
        assert_eq!(told(&socket, &(attributes("/link") + "&link="), b"")["target"], "f");
        assert_eq!((refused(&socket, &attributes("/out"), b""), refused(&socket, &attributes("/loop"), b"")), (2, 40));
        // The past is a path, and stays as it is.
        place.weft(&["snapshot", "create", volume, "then"]).well();
        fs::write(mounted.join("f"), "new").unwrap();
        let past = format!("path={}", hex("/.weft/at/then/f"));
        assert_eq!(asked(&socket, &format!("GET /files/content?{past}"), b""), (200, b"other".into()));
        assert_eq!(refused(&socket, &format!("POST /files/set?{past}&size=0"), b""), 30);
    });
}
