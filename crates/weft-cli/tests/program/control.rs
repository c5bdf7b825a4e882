//! The control sockets of daemons: `weft status`, `weft sync`, `weft stats` of servers, health.

use crate::place::{Place, Said, is_root};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use std::fs::File;
use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::fs::{FileTypeExt, MetadataExt, PermissionsExt, chown, symlink};
use std::os::unix::net::UnixStream;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};
use weft_testkit::Cluster;

/// Longest wait for an action that a daemon takes by itself.
const SOON: Duration = Duration::from_secs(60);

/// A place with a volume `v` and a directory `m`.
fn place() -> Option<Place> {
    let place = Place::to_mount()?;
    place.weft(&["init", "v"]).well();
    place.directory("m");
    Some(place)
}

fn signal(pid: u32, signal: Signal) {
    kill_process(Pid::from_raw(pid.cast_signed()).unwrap(), signal).unwrap();
}

/// Returns the status that `weft status --json` prints of the volume at `path`.
fn status(place: &Place, path: &Path) -> Option<Value> {
    let said = place.weft(&["status", "--json"]);
    let all: Vec<Value> = serde_json::from_str(&said.out).unwrap();
    all.into_iter().find(|daemon| daemon["volume"].as_str() == path.to_str())
}

/// Returns the path of the control socket of process `pid`.
fn socket(pid: u64) -> PathBuf {
    let directory = match is_root() {
        true => PathBuf::from("/run/weft"),
        false => PathBuf::from(std::env::var_os("XDG_RUNTIME_DIR").unwrap()).join("weft"),
    };
    let ending = format!("-{pid}.socket");
    let entries = std::fs::read_dir(directory).unwrap().map(|entry| entry.unwrap().path());
    entries.into_iter().find(|path| path.to_str().unwrap().ends_with(&ending)).expect("a socket of the daemon")
}

/// Returns the answer of the daemon that listens at `socket` to `request`.
fn asked(socket: &Path, request: &str) -> String {
    let mut stream = UnixStream::connect(socket).unwrap();
    write!(stream, "{request} HTTP/1.1\r\nHost: weft\r\n\r\n").unwrap();
    let mut said = String::new();
    stream.read_to_string(&mut said).unwrap();
    said
}

/// Asks again and again until the answer begins as `wanted`.
#[track_caller]
fn await_answer(socket: &Path, request: &str, wanted: &str) -> String {
    let begun = Instant::now();
    loop {
        let said = asked(socket, request);
        if said.starts_with(wanted) {
            return said;
        }
        assert!(begun.elapsed() < SOON, "{request}: {said}");
    }
}

/// A server of `v`, and where it serves.
fn serving(mut command: Command) -> (Child, String) {
    let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines().map(Result::unwrap);
    // And how clients mount it: it has said all then.
    let (line, _) = (lines.next().unwrap(), lines.next().unwrap());
    let address = line.split_once(" over NFS at ").and_then(|(_, rest)| rest.split_once(';')).expect("an address");
    (child, address.0.to_owned())
}

fn ended(child: Child) -> Said {
    kill_process(Pid::from_child(&child), Signal::TERM).unwrap();
    child.wait_with_output().unwrap().into()
}

#[test]
fn a_mount_tells_of_itself_over_its_socket_until_it_is_unmounted() {
    let Some(place) = place() else { return };
    place.mount();
    std::fs::write(place.path("m/file"), vec![7; 300_000]).unwrap();
    let told = status(&place, &place.path("v")).expect("listed");
    assert_eq!((&told["kind"], &told["engine"], &told["error"]), (&"mount".into(), &"sqlite".into(), &Value::Null));
    assert_eq!(told["place"].as_str(), place.path("m").to_str());
    assert_eq!(told["pid"], place.daemon());
    assert!(told["inodes_used"] == 2 && told["bytes_used"].as_u64() >= Some(300_000), "{told}");
    assert!(told["commit"].as_u64() >= Some(1) && told["committed"].as_str().unwrap().ends_with('Z'), "{told}");
    let socket = socket(told["pid"].as_u64().unwrap());
    let metadata = socket.symlink_metadata().unwrap();
    assert!(metadata.file_type().is_socket() && metadata.mode() & 0o7777 == 0o600);
    assert_eq!(socket.parent().unwrap().metadata().unwrap().mode() & 0o7777, 0o700);
    for path in ["/healthz", "/readyz"] {
        assert!(asked(&socket, &format!("GET {path}")).starts_with("HTTP/1.1 200 "), "{path}");
    }
    let by_socket = asked(&socket, "GET /stats");
    let by_socket: Value = serde_json::from_str(by_socket.split_once("\r\n\r\n").unwrap().1).unwrap();
    let names = |stats: &Value| stats.as_object().unwrap().keys().cloned().collect::<Vec<_>>();
    let stats = place.weft(&["stats", "--json", "m"]).json();
    assert_eq!((names(&by_socket), names(&by_socket["volume"])), (names(&stats), names(&stats["volume"])));
    assert_eq!(place.weft(&["stats", "--json", "v"]).json()["pid"], told["pid"]);
    let lines = place.weft(&["status"]).out;
    let (volume, mounted) = (place.path("v"), place.path("m"));
    let line = format!("{} mounted at {}: process {}", volume.display(), mounted.display(), told["pid"]);
    assert!(lines.lines().any(|told| told.starts_with(&line)), "{lines}");
    place.umount();
    assert!(!socket.exists());
    assert_eq!(status(&place, &volume), None);
    place.weft(&["stats", "v"]).failed(&["v is a volume that is not mounted"]);
}

#[test]
fn a_server_tells_of_itself_by_its_volume_and_its_address() {
    let place = Place::new();
    place.weft(&["init", "v"]).well();
    let (server, address) = serving(place.command(&["serve", "v", "--nfs", "127.0.0.1:0"]));
    if !is_root() && std::env::var_os("XDG_RUNTIME_DIR").is_none() {
        drop(ended(server));
        return eprintln!("SKIPPED: no XDG_RUNTIME_DIR");
    }
    let told = status(&place, &place.path("v")).expect("listed");
    assert_eq!((&told["kind"], told["place"].as_str()), (&"server".into(), Some(&*address)));
    assert_eq!((&told["transport"], told["nfs"].as_str()), (&"nfs".into(), Some(&*address)));
    for named in ["v", &*address] {
        let stats = place.weft(&["stats", "--json", named]).json();
        assert_eq!((&stats["pid"], stats["volume"]["nfs"]["address"].as_str()), (&told["pid"], Some(&*address)));
        assert!(place.weft(&["stats", named]).well().contains(&format!("nfs         at {address}, ")));
        assert!(place.weft(&["sync", named]).well().contains("are committed (commit "));
    }
    let socket = socket(told["pid"].as_u64().unwrap());
    assert!(asked(&socket, "GET /readyz").starts_with("HTTP/1.1 200 "));
    ended(server).served_well();
    assert!(!socket.exists());
    for command in ["stats", "sync"] {
        place.weft(&[command, &address]).failed(&["no daemon of this user serves", "'weft status'"]);
    }
}

#[test]
fn what_sync_was_told_of_is_committed_and_survives_a_kill() {
    let Some(place) = place() else { return };
    for named in ["m", "v", "m/directory"] {
        place.weft(&["mount", "v", "m", "--commit-interval", "1000"]).well();
        std::fs::create_dir_all(place.path("m/directory")).unwrap();
        std::fs::write(place.path("m/file"), named).unwrap();
        let said = place.weft(&["sync", named]).well();
        assert!(said.contains("are committed (commit "), "{said}");
        place.kill("v/lock");
        assert!(!place.weft(&["info", "v"]).err.contains("in the intent log"), "{named}");
        place.mount();
        assert_eq!(std::fs::read_to_string(place.path("m/file")).unwrap(), named);
        place.umount();
    }
    place.weft(&["sync", "v"]).failed(&["v is no directory of a mounted volume", "'weft status'"]);
    place.weft(&["sync", "nothing"]).failed(&["nothing is no directory of a mounted volume"]);
}

#[test]
fn another_user_sees_no_daemon_and_syncs_a_mount_by_its_directory() {
    let Some(place) = place() else { return };
    if !is_root() {
        return eprintln!("SKIPPED another_user_sees_no_daemon_and_syncs_a_mount_by_its_directory: needs root");
    }
    place.weft(&["mount", "v", "m", "--commit-interval", "1000", "-o", "allow_other"]).well();
    let own = place.path("m");
    std::fs::set_permissions(&own, PermissionsExt::from_mode(0o755)).unwrap();
    std::fs::write(place.path("m/file"), "kept").unwrap();
    let told = place.weft_as_stranger(&["status"]).well();
    let words =
        ["no volume is mounted by this user\n", "no place for control sockets: XDG_RUNTIME_DIR names no directory"];
    assert!(words.iter().all(|word| told.contains(word)), "{told}");
    let said = place.weft_as_stranger(&["sync", "m"]).well();
    assert!(said.contains("are durable"), "{said}");
    place.weft_as_stranger(&["sync", "v"]).failed(&["no daemon of this user"]);
    for words in [&["log", "m"][..], &["log", "m/file"], &["history", "m"], &["du", "m"], &["undelete", "--list", "m"]]
    {
        let advice = format!("root mounted it at {0} and may read it; the past is also in {0}/.weft/at", own.display());
        place.weft_as_stranger(words).failed(&["Permission denied", &advice]);
    }
    let stats = place.weft_as_stranger(&["stats", "--json", "m"]).json();
    let socket = socket(stats["pid"].as_u64().unwrap());
    let mut command = Command::new("cat");
    let refused = std::os::unix::process::CommandExt::uid(command.arg(&socket), 65534).output().unwrap();
    assert!(String::from_utf8_lossy(&refused.stderr).contains("Permission denied"), "{refused:?}");
    place.kill("v/lock");
    place.mount();
    assert_eq!(std::fs::read_to_string(place.path("m/file")).unwrap(), "kept");
    place.umount();
}

/// A crash shows what is durable.
#[test]
fn what_another_user_syncs_is_durable() {
    let Some(place) = place() else { return };
    if !is_root() {
        return eprintln!("SKIPPED what_another_user_syncs_is_durable: needs root");
    }
    place.mount_with("v", &["--commit-interval", "3600"]);
    let file = place.path("m/f");
    std::fs::write(&file, "old").unwrap();
    std::fs::set_permissions(&file, PermissionsExt::from_mode(0o666)).unwrap();
    place.weft(&["sync", "m"]).well();
    let stranger = |arguments: &[&str]| -> Said { place.command_as_stranger(arguments).output().unwrap().into() };
    let script = "printf new > m/f";
    let write = Command::new("sh").args(["-c", script]).current_dir(place.path("")).uid(65534).gid(65534).status();
    assert!(write.unwrap().success());
    assert!(stranger(&["sync", "m"]).well().contains("are durable"));
    signal(place.daemon(), Signal::KILL);
    let dead = format!("mounted at {}: its daemon has ended; unmount it ('weft umount ", place.path("m").display());
    while !place.weft(&["status"]).out.contains(&dead) {
        std::thread::yield_now();
    }
    place.weft(&["snapshot", "create", "m", "s"]).failed(&["the daemon of", "has ended; unmount it"]);
    place.weft(&["umount", "--lazy", "m"]).well();
    place.mount_with("v", &[]);
    assert_eq!(std::fs::read_to_string(&file).unwrap(), "new");
    place.umount();
}

/// The list of mounts tells what no control socket does.
#[test]
fn a_user_without_a_runtime_directory_sees_own_mounts_and_syncs_them_by_the_volume() {
    let Some(place) = place() else { return };
    let test = "a_user_without_a_runtime_directory_sees_own_mounts_and_syncs_them_by_the_volume";
    let is_for_all = std::fs::metadata("/dev/fuse").is_ok_and(|device| device.permissions().mode() & 0o006 == 0o006);
    if !is_root() || !is_for_all || Command::new("fusermount3").arg("--version").output().is_err() {
        return eprintln!("SKIPPED {test}: needs root, fusermount3, and /dev/fuse open to all users");
    }
    let own = place.directory("own");
    chown(&own, Some(65534), Some(65534)).unwrap();
    let weft = |arguments: &[&str]| -> Said {
        place.command_as_stranger(arguments).env_remove("XDG_RUNTIME_DIR").output().unwrap().into()
    };
    weft(&["init", "own/v"]).well();
    let made = Command::new("install").args(["-d", "-o", "65534"]).arg(own.join("m")).status().unwrap();
    assert!(made.success());
    let said = weft(&["mount", "own/v", "own/m"]);
    let (lines, words) = (said.err.lines().count(), ["without a control socket: XDG_RUNTIME_DIR", "no snapshot"]);
    assert_eq!((said.code, lines), (0, 1), "{said:?}");
    assert!(words.iter().all(|word| said.err.contains(word)), "{said:?}");
    let ordered = ["own/m", "own/v"].map(|named| weft(&["snapshot", "create", named, "base"]));
    let (told, json) = (weft(&["status"]), weft(&["status", "--json"]));
    let synced = weft(&["sync", "own/v"]);
    let before = weft(&["info", "--json", "own/v"]).json()["commit"].to_string();
    let write = Command::new("tee").arg(own.join("m/new")).uid(65534).gid(65534).stdin(Stdio::null()).output().unwrap();
    let compared = weft(&["diff", "--at", &format!("@{before}"), "own/m"]);
    let elsewhere = place.directory("elsewhere");
    chown(&elsewhere, Some(65534), Some(65534)).unwrap();
    let mut command = place.command_as_stranger(&["undelete", "own/m/file"]);
    let other: Said = command.env("XDG_RUNTIME_DIR", &elsewhere).output().unwrap().into();
    weft(&["umount", "own/m"]);
    for said in ordered {
        said.failed(&["own/m has no control socket: XDG_RUNTIME_DIR names no directory", "and mount the volume again"]);
    }
    other.failed(&["own/m has no control socket that is found here", "another XDG_RUNTIME_DIR"]);
    let line = format!("{} mounted at {}\n", own.join("v").display(), own.join("m").display());
    assert!(told.code == 0 && told.out.starts_with(&line) && told.out.contains("served are not listed"), "{told:?}");
    let list: Vec<Value> = serde_json::from_str(&json.out).unwrap();
    assert_eq!(list[0]["place"].as_str(), own.join("m").to_str(), "{json:?}");
    assert!(synced.code == 0 && synced.out.contains(" are committed (commit "), "{synced:?}");
    assert!(write.status.success() && compared.out.split_whitespace().eq(["added", "new"]), "{write:?} {compared:?}");
}

#[test]
fn the_socket_of_a_killed_daemon_is_not_counted_and_whoever_finds_it_removes_it() {
    let Some(place) = place() else { return };
    place.mount();
    let killed = socket(place.daemon().into());
    place.kill("v/lock");
    assert_eq!(status(&place, &place.path("v")), None);
    assert!(!killed.exists());
    place.mount();
    let killed = socket(place.daemon().into());
    place.kill("v/lock");
    place.mount();
    assert!(!killed.exists());
    assert!(status(&place, &place.path("v")).is_some());
    place.umount();
}

#[test]
fn a_daemon_that_does_not_answer_is_named_in_time() {
    let Some(place) = place() else { return };
    place.mount();
    let pid = place.daemon();
    signal(pid, Signal::STOP);
    let begun = Instant::now();
    let said = place.weft(&["status"]);
    assert!(begun.elapsed() < Duration::from_secs(10), "{:?}", begun.elapsed());
    assert_eq!(said.code, 1, "{said:?}");
    let (volume, mounted) = (place.path("v"), place.path("m"));
    let line = format!("process {pid}: it has not answered for 2 seconds");
    let line = format!("{} mounted at {}, {line}", volume.display(), mounted.display());
    assert!(said.out.lines().any(|told| told == line), "{said:?}");
    signal(pid, Signal::CONT);
    assert!(status(&place, &place.path("v")).is_some());
    place.umount();
}

#[test]
fn whatever_comes_to_the_socket_the_volume_is_served() {
    let Some(place) = place() else { return };
    place.mount();
    let socket = socket(place.daemon().into());
    let mut clients: Vec<UnixStream> = (0..60).map(|_| UnixStream::connect(&socket).unwrap()).collect();
    for (number, client) in clients.iter_mut().enumerate() {
        // A client may be closed already.
        let _ = match number % 3 {
            0 => client.write_all(&[0xff; 20_000]),
            1 => client.write_all(b"GET /stats HTTP/1.1\r\nX"),
            _ => Ok(()),
        };
    }
    std::fs::write(place.path("m/file"), "served").unwrap();
    assert_eq!(std::fs::read_to_string(place.path("m/file")).unwrap(), "served");
    drop(clients);
    await_answer(&socket, "GET /healthz", "HTTP/1.1 200 ");
    place.umount();
    assert!(!socket.exists());
}

#[test]
fn an_address_without_a_server_means_the_one_that_the_environment_names() {
    let Some(place) = Place::to_mount() else { return };
    let clusters = [Cluster::start("-c fsync=off"), Cluster::start("-c fsync=off")];
    let url = "postgres:///postgres?durability=server&schema=same";
    let run = |cluster: &Cluster, arguments: &[&str]| -> Said {
        let mut command = place.command(arguments);
        command.env("PGHOST", cluster.socket()).env("PGUSER", "postgres").output().unwrap().into()
    };
    for (cluster, mount) in clusters.iter().zip(["m", "n"]) {
        place.directory(mount);
        run(cluster, &["init", url]).well();
        run(cluster, &["mount", "--commit-interval", "1000", "--log", &format!("{mount}.log"), url, mount]).well();
        std::fs::write(place.path(format!("{mount}/file")), "not committed").unwrap();
    }
    let dirty = |mount: &str| place.weft(&["stats", "--json", mount]).json()["volume"]["dirty_bytes"].as_u64().unwrap();
    assert!(dirty("m") > 0 && dirty("n") > 0);
    run(&clusters[1], &["sync", url]).well();
    assert!(dirty("m") > 0 && dirty("n") == 0);
    run(&clusters[0], &["sync", url]).well();
    assert!(dirty("m") == 0);
    for mount in ["m", "n"] {
        place.weft(&["umount", mount]).well();
    }
}

#[test]
fn health_tells_that_the_database_is_away_and_that_it_is_back() {
    let Some(place) = Place::to_mount() else { return };
    let cluster = Cluster::start("-c fsync=off");
    let url = cluster.url();
    place.weft(&["init", &url]).well();
    place.directory("m");
    let patience = ["--patience", "1", "--commit-interval", "0.1", "--log", "log"];
    place.weft(&[&["mount", &url, "m"], &patience[..]].concat()).well();
    let pid = place.daemon();
    let socket = socket(pid.into());
    assert!(asked(&socket, "GET /readyz").starts_with("HTTP/1.1 200 "));
    assert_eq!(place.weft(&["stats", "--json", &url]).json()["pid"], pid);
    let mut file = File::create(place.path("m/file")).unwrap();
    cluster.tell("stop");
    file.write_all(b"kept").unwrap();
    let said = await_answer(&socket, "GET /readyz", "HTTP/1.1 503 ");
    assert!(said.contains("the last commit failed: "), "{said}");
    assert!(asked(&socket, "GET /healthz").starts_with("HTTP/1.1 200 "));
    let told = place.weft(&["status"]).out;
    let line = told.lines().find(|line| line.contains(&format!("process {pid} "))).expect("listed");
    assert!(line.contains(", postgres, ") && line.contains("; the last commit failed: "), "{line}");
    place.weft(&["sync", "m"]).failed(&["not all changes of", "can be made durable", "log tells why"]);
    cluster.tell("start");
    await_answer(&socket, "GET /readyz", "HTTP/1.1 200 ");
    drop(file);
    assert!(place.weft(&["sync", &url]).well().contains("are committed (commit "));
    place.umount();
    assert!(!socket.exists());
}

#[test]
fn a_program_that_waits_for_a_database_that_is_away_can_be_killed() {
    let Some(place) = Place::to_mount() else { return };
    let cluster = Cluster::start("-c fsync=off");
    let url = cluster.url();
    place.weft(&["init", &url]).well();
    place.directory("m");
    let mount = || place.weft(&["mount", &url, "m", "--patience", "36000", "--log", "log"]).well();
    mount();
    std::fs::write(place.path("m/file"), "served").unwrap();
    place.umount();
    mount();
    cluster.tell("stop");
    let mut reader = Command::new("cat").arg(place.path("m/file")).stdout(Stdio::null()).spawn().unwrap();
    await_request(reader.id());
    reader.kill().unwrap();
    assert_eq!(reader.wait().unwrap().signal(), Some(9));
    cluster.tell("start");
    assert_eq!(std::fs::read_to_string(place.path("m/file")).unwrap(), "served");
    cluster.tell("stop");
    std::fs::write(place.path("m/file"), "changed").unwrap();
    let mut syncing = Command::new("sync").arg(place.path("m/file")).stderr(Stdio::null()).spawn().unwrap();
    await_request(syncing.id());
    syncing.kill().unwrap();
    assert_eq!(syncing.wait().unwrap().signal(), Some(9));
    cluster.tell("start");
    // All that it was to make durable is there, and becomes durable now.
    place.weft(&["sync", "m"]).well();
    place.umount();
    mount();
    assert_eq!(std::fs::read_to_string(place.path("m/file")).unwrap(), "changed");
    place.umount();
}

/// Waits until process `pid` waits for the daemon of a mount.
fn await_request(pid: u32) {
    let waits_for = PathBuf::from(format!("/proc/{pid}/wchan"));
    while !std::fs::read_to_string(&waits_for).unwrap().contains("request_wait") {
        std::thread::yield_now();
    }
}

/// The renewal of the lease notices it: nothing else asks the server.
#[test]
fn health_of_an_idle_mount_tells_that_the_database_is_away() {
    let Some(place) = Place::to_mount() else { return };
    let cluster = Cluster::start("-c fsync=off");
    let url = cluster.url();
    place.weft(&["init", &url]).well();
    place.directory("m");
    place.weft(&["mount", &url, "m", "--lease", "1", "--log", "log"]).well();
    let pid = place.daemon();
    let socket = socket(pid.into());
    await_answer(&socket, "GET /readyz", "HTTP/1.1 200 ");
    cluster.tell("stop");
    let said = await_answer(&socket, "GET /readyz", "HTTP/1.1 503 ");
    assert!(said.contains("the database server has not answered for "), "{said}");
    let told = place.weft(&["status"]).out;
    let line = told.lines().find(|line| line.contains(&format!("process {pid} "))).expect("listed");
    assert!(line.contains("; the database server has not answered for "), "{line}");
    cluster.tell("start");
    await_answer(&socket, "GET /readyz", "HTTP/1.1 200 ");
    std::fs::write(place.path("m/file"), "served").unwrap();
    place.umount();
}

#[test]
fn a_daemon_whose_volume_was_taken_is_not_listed_until_it_has_it_again() {
    let Some(place) = Place::to_mount() else { return };
    let cluster = Cluster::start("-c fsync=off");
    let url = cluster.url();
    place.weft(&["init", &url]).well();
    let mounted = |name: &str| {
        place.directory(name);
        place.weft(&["mount", &url, name, "--lease", "1", "--wait", "60", "--log", &format!("{name}.log")]).well();
        place.weft(&["stats", "--json", name]).json()["pid"].as_u64().unwrap()
    };
    let listed = || {
        let all: Vec<Value> = serde_json::from_str(&place.weft(&["status", "--json"]).out).unwrap();
        let of_volume = all.into_iter().filter(|daemon| daemon["volume"] == *url || daemon["volume"].is_null());
        // Its mount is told of without a process.
        of_volume.filter_map(|daemon| daemon["pid"].as_u64()).collect::<Vec<_>>()
    };
    let await_listed = |wanted: u64| {
        let begun = Instant::now();
        while listed() != [wanted] {
            assert!(begun.elapsed() < SOON, "{:?}", listed());
        }
    };
    let first = mounted("m");
    let socket = socket(first);
    signal(first.try_into().unwrap(), Signal::STOP);
    let second = mounted("m2");
    signal(first.try_into().unwrap(), Signal::CONT);
    await_listed(second);
    place.weft(&["umount", "m2"]).well();
    await_listed(first);
    await_answer(&socket, "GET /readyz", "HTTP/1.1 200 ");
    place.umount();
    assert!(!socket.exists());
}

#[test]
fn a_directory_that_another_user_made_is_not_trusted_and_the_volume_is_served_without_a_socket() {
    if !is_root() {
        return eprintln!("SKIPPED: needs root, to be two users");
    }
    let place = Place::new();
    place.weft(&["init", "v"]).well();
    let run = place.directory("run");
    // The owner of `v`.
    place.weft_as_nobody(&["info", "v"]);
    for path in std::fs::read_dir(place.path("v")).unwrap() {
        chown(path.unwrap().path(), Some(65534), Some(65534)).unwrap();
    }
    let command = |arguments: &[&str]| {
        let mut command = place.command_as_stranger(arguments);
        command.env("XDG_RUNTIME_DIR", &run);
        command
    };
    let served = || {
        let (server, _) = serving(command(&["serve", "v", "--nfs", "127.0.0.1:0"]));
        let told: Said = command(&["status"]).output().unwrap().into();
        (ended(server), told)
    };
    let (said, _) = served();
    assert!(said.code == 0 && said.err.contains("serving without a control socket: XDG_RUNTIME_DIR"), "{said:?}");
    chown(&run, Some(65534), Some(65534)).unwrap();
    symlink("/run", run.join("weft")).unwrap();
    let (said, told) = served();
    assert!(said.code == 0 && said.err.contains("run/weft is no directory; remove it"), "{said:?}");
    told.failed(&["cannot look for control sockets", "is no directory"]);
    std::fs::remove_file(run.join("weft")).unwrap();
    let (said, told) = served();
    said.served_well();
    // Mounts of other tests may be dead.
    assert!(told.out.contains(" served at 127.0.0.1:"), "{told:?}");
}
