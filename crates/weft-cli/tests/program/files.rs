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
        let mut command = place.command(&["serve", "--socket", "--json", "--until-unused", volume]);
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
    assert_eq!(entries["after"], Value::Null);
    ask(&format!("POST /files/remove?path={}", hex("/d/moved")));
    assert_eq!(refused(socket, &format!("GET /files/content?id={copy}"), b""), 116);
    place.weft(&["check", "v"]).could_not(&["served to programs by its control socket", "weft stop"]);
    assert!(place.weft(&["status", "v"]).well().contains("served by its control socket"));
    assert_eq!(server.end().code, 0);
    assert!(place.weft(&["status", "v"]).well().starts_with("no daemon of this user uses"));
    place.weft(&["status", "nothing"]).failed(&["there is no volume at nothing"]);
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
        ("GET /files/content?path=F&in=ID&at=2d3168", 22),
        ("GET /files/attributes?path=2f&in=1.999", 116),
        ("GET /files/moment?at=2d3168", 2),
        ("GET /files/moment?at=2d31", 22),
        ("POST /files/rename?path=F&to=F&exists=no", 22),
        ("POST /files/replace?path=2f", 21),
        ("POST /files/set?path=F&uid=x", 22),
        ("POST /files/write?id=ID&append=&offset=0", 22),
        ("GET /files/content?path=2", 22),
        ("GET /files/content?path=F&other=1", 22),
        ("GET /files/content?path=F&offset=-1", 22),
        ("GET /files/content?id=1.999", 116),
        ("GET /files/content?id=ID.1", 22),
        ("GET /files/attributes?path=2f6e6f6e65", 2),
        ("GET /files/attributes?path=F2f67", 20),
        ("GET /files/entries?path=F", 20),
        ("POST /files/create?path=2f", 21),
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
    assert_eq!(refused(socket, &target("POST /files/write?id=ID&append="), &vec![0; (256 << 10) + 1]), 27);
    for (request, code, word) in [
        ("GET /files/write?id=ID", 405, "the other of GET and POST"),
        ("GET /files/nothing", 404, "no such request"),
        ("GET /files/content?path=F&other=1", 400, "no parameter 'other'"),
        ("GET /files/content?path=F&offset=-1", 400, "'offset' is no number"),
        ("GET /files/moment?at=2d31", 400, "is not a time ago"),
    ] {
        let (got, answer) = asked(socket, &target(request), b"");
        let answer = String::from_utf8(answer).unwrap();
        assert!(got == code && answer.contains(word), "{request}: {got} {answer}");
    }
    assert_eq!(asked(socket, &target("GET /files/content?path=F"), b""), (200, b"all".into()));
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

/// Begins a session with the daemon at `socket`.
fn session(socket: &Path) -> UnixStream {
    let mut stream = UnixStream::connect(socket).unwrap();
    stream.write_all(b"POST /session HTTP/1.1\r\nHost: weft\r\nTransfer-Encoding: chunked\r\n\r\n").unwrap();
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        let mut byte = [0];
        stream.read_exact(&mut byte).unwrap();
        head.push(byte[0]);
    }
    assert!(head.starts_with(b"HTTP/1.1 200"), "{}", String::from_utf8_lossy(&head));
    stream
}

/// Returns the last words of a session.
fn last_words(mut session: UnixStream) -> Value {
    let mut said = String::new();
    let _ = session.read_to_string(&mut said);
    said.lines().find(|line| line.starts_with('{')).map_or(Value::Null, |line| serde_json::from_str(line).unwrap())
}

/// Says the end of the request of a session.
fn leave(mut session: &UnixStream) {
    session.write_all(b"0\r\n\r\n").unwrap();
}

#[test]
fn a_server_lasts_as_long_as_somebody_has_a_session_and_tells_that_all_is_committed() {
    let place = Place::new();
    place.weft(&["init", "v"]).well();
    let mut server = Server::of(&place, "v");
    let socket = server.socket.clone();
    let [first, second, third] = [(); 3].map(|()| session(&socket));
    // Its input has ended, and it goes on.
    drop(server.child.stdin.take());
    assert_eq!(told(&socket, "GET /status", b"")["sessions"], 3);
    // One ends with its program, without a word.
    drop(third);
    leave(&first);
    assert_eq!(last_words(first)["ended"], false);
    made(&socket, "/f", b"kept");
    leave(&second);
    let words = last_words(second);
    assert_eq!((&words["ended"], &words["committed"]), (&true.into(), &true.into()), "{words}");
    assert_eq!(server.end().code, 0);
    assert_eq!(place.weft(&["cat", "v:f"]).well(), "kept");
    // One that is stopped or killed.
    let server = Server::of(&place, "v");
    let open = session(&server.socket);
    place.weft(&["stop", "v"]).well();
    assert_eq!(last_words(open)["committed"], true);
    assert_eq!(server.end().code, 0);
    let mut server = Server::of(&place, "v");
    let open = session(&server.socket);
    server.child.kill().unwrap();
    assert_eq!(last_words(open), Value::Null);
    server.child.wait().unwrap();
    place.weft(&["check", "v"]).well();
}

#[test]
fn a_request_that_is_there_is_answered_before_the_server_ends() {
    let place = Place::new();
    place.weft(&["init", "v"]).well();
    let server = Server::of(&place, "v");
    let id = made(&server.socket, "/f", b"");
    let mut writing = UnixStream::connect(&server.socket).unwrap();
    write!(writing, "POST /files/write?id={id} HTTP/1.1\r\nHost: weft\r\nContent-Length: 4\r\n\r\nha").unwrap();
    // It is answered, so that one is there, too.
    told(&server.socket, "GET /status", b"");
    let socket = server.socket.clone();
    let ending = std::thread::spawn(move || server.end());
    while socket.exists() {
        std::thread::yield_now();
    }
    writing.write_all(b"lf").unwrap();
    let mut answer = String::new();
    writing.read_to_string(&mut answer).unwrap();
    assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
    assert_eq!(ending.join().unwrap().code, 0);
    assert_eq!(place.weft(&["cat", "v:f"]).well(), "half");
}

#[test]
fn all_that_is_appended_at_once_is_kept_whole() {
    let place = Place::new();
    place.weft(&["init", "v"]).well();
    let server = Server::of(&place, "v");
    let id = made(&server.socket, "/log", b"");
    let request = format!("POST /files/write?id={id}&append=");
    std::thread::scope(|scope| {
        for writer in 0..4 {
            let (socket, request) = (&server.socket, &request);
            scope.spawn(move || {
                for line in 0..50 {
                    told(socket, request, format!("{writer} {line} {}\n", "x".repeat(line * 20)).as_bytes());
                }
            });
        }
    });
    let (_, log) = asked(&server.socket, &format!("GET /files/content?id={id}"), b"");
    let log = String::from_utf8(log).unwrap();
    let lines: std::collections::BTreeSet<&str> = log.lines().collect();
    assert_eq!(lines.len(), 200);
    for writer in 0..4 {
        let own = log.lines().filter_map(|line| line.strip_prefix(&format!("{writer} ")));
        let own: Vec<usize> = own.map(|line| line.split(' ').next().unwrap().parse().unwrap()).collect();
        assert_eq!(own, (0..50).collect::<Vec<_>>());
    }
    assert_eq!(server.end().code, 0);
}

#[test]
fn a_file_takes_the_place_of_another_one_with_its_rights() {
    on_each_engine(&[], |place, volume| {
        let status = place.weft(&["status", "--json", volume]).json();
        let socket = PathBuf::from(status[0]["socket"].as_str().unwrap());
        let mounted = place.path("m");
        let long = "€".repeat(84);
        fs::create_dir(mounted.join("d")).unwrap();
        fs::write(mounted.join("d").join(&long), "old").unwrap();
        told(&socket, &format!("POST /files/set?path={}&mode=600", hex(&format!("/d/{long}"))), b"");
        symlink(format!("d/{long}"), mounted.join("link")).unwrap();
        let path = format!("path={}", hex("/link"));
        assert_eq!(refused(&socket, &format!("POST /files/replace?{path}&exists=fail"), b""), 17);
        let made = told(&socket, &format!("POST /files/replace?{path}&umask=022"), b"");
        assert_eq!(made["file"]["mode"], 0o600);
        let id = made["file"]["id"].as_str().unwrap();
        told(&socket, &format!("POST /files/write?id={id}"), b"new");
        assert_eq!(fs::read(mounted.join("link")).unwrap(), b"old");
        let [within, name, over] = ["in", "name", "over"].map(|name| made[name].as_str().unwrap());
        told(&socket, &format!("POST /files/rename?in={within}&path={name}&to={over}"), b"");
        assert_eq!(fs::read(mounted.join("link")).unwrap(), b"new");
        assert!(mounted.join("link").is_symlink());
        assert_eq!(fs::read_dir(mounted.join("d")).unwrap().count(), 1);
        let made = told(&socket, &format!("POST /files/replace?path={}&umask=022", hex("/fresh")), b"");
        assert_eq!(made["file"]["mode"], 0o644);
        fs::write(mounted.join("fresh"), "quicker").unwrap();
        let [within, name, over] = ["in", "name", "over"].map(|name| made[name].as_str().unwrap());
        let rename = format!("POST /files/rename?in={within}&path={name}&to={over}&exists=fail");
        assert_eq!(refused(&socket, &rename, b""), 17);
        assert_eq!(fs::read(mounted.join("fresh")).unwrap(), b"quicker");
    });
}

#[test]
fn no_path_leads_out_of_the_directory_where_it_begins() {
    on_each_engine(&[], |place, volume| {
        let status = place.weft(&["status", "--json", volume]).json();
        let socket = PathBuf::from(status[0]["socket"].as_str().unwrap());
        let mounted = place.path("m");
        fs::create_dir_all(mounted.join("d/e")).unwrap();
        fs::write(mounted.join("f"), "outside").unwrap();
        fs::write(mounted.join("d/f"), "inside").unwrap();
        symlink("../../../f", mounted.join("d/e/up")).unwrap();
        place.weft(&["snapshot", "create", volume, "then"]).well();
        let id = |path: &str| {
            let told = told(&socket, &format!("GET /files/attributes?path={}", hex(path)), b"");
            told["id"].as_str().unwrap().to_owned()
        };
        for path in ["/f", "/../f", "/e/../../../f", "/e/up", "e/./../f"] {
            let request = format!("GET /files/content?in={}&path={}", id("/d"), hex(path));
            assert_eq!(asked(&socket, &request, b""), (200, b"inside".into()), "{path}");
        }
        // The past has no way to the present.
        fs::write(mounted.join("f"), "changed").unwrap();
        for path in ["/f", "/../../../f", "/d/../../f", "/../../../d/../f"] {
            let at = format!("at={}&path={}", hex("then"), hex(path));
            assert_eq!(asked(&socket, &format!("GET /files/content?{at}"), b""), (200, b"outside".into()), "{path}");
            assert_eq!(refused(&socket, &format!("POST /files/set?{at}&size=0"), b""), 30, "{path}");
            assert_eq!(refused(&socket, &format!("POST /files/remove?{at}"), b""), 30, "{path}");
        }
        let moment = told(&socket, &format!("GET /files/moment?at={}", hex("then")), b"");
        let commit = format!("at={}", hex(&format!("@{}", moment["commit"])));
        assert_eq!(
            asked(&socket, &format!("GET /files/content?{commit}&path={}", hex("/f")), b""),
            (200, b"outside".into())
        );
        let (code, why) = asked(&socket, &format!("GET /files/moment?at={}", hex("-5y")), b"");
        assert!(code == 400 || code == 404, "{code} {}", String::from_utf8_lossy(&why));
    });
}

#[test]
fn long_listings_come_in_parts_and_below_writeback_nothing_is_changed() {
    let Some(place) = Place::to_mount() else { return };
    place.weft(&["init", "v"]).well();
    let server = Server::of(&place, "v");
    let long = hex(&"t".repeat(1500));
    for number in 0..1000 {
        told(&server.socket, &format!("POST /files/symlink?path={}&target={long}", hex(&format!("/{number}"))), b"");
    }
    let (mut listed, mut parts, mut after) = (0, 0, Some(0));
    while let Some(place) = after {
        let part = told(&server.socket, &format!("GET /files/entries?path=2f&after={place}"), b"");
        listed += part["entries"].as_array().unwrap().len();
        parts += 1;
        after = part["after"].as_u64();
    }
    assert!(listed == 1000 && parts > 2, "{listed} in {parts}");
    for wrong in ["uid=4294967295", "gid=4294967295"] {
        assert_eq!(refused(&server.socket, &format!("POST /files/set?path=2f&{wrong}"), b""), 22);
    }
    assert_eq!(refused(&server.socket, "POST /files/symlink?path=2f7a&target=610062", b""), 22);
    assert_eq!(server.end().code, 0);
    fs::create_dir(place.path("m")).unwrap();
    place.weft(&["mount", "--writeback", "v", "m"]).well();
    let status = place.weft(&["status", "--json", "v"]).json();
    let socket = PathBuf::from(status[0]["socket"].as_str().unwrap());
    let (code, answer) = asked(&socket, &format!("POST /files/create?path={}", hex("/f")), b"");
    assert!(code == 409 && String::from_utf8(answer).unwrap().contains("--writeback"), "{code}");
    told(&socket, "GET /files/attributes?path=2f", b"");
    place.weft(&["umount", "m"]).well();
}
