//! Other users of the machine, and what they get at of a volume and of its daemon.

use crate::place::{Place, is_root};
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};

fn mode(path: &Path) -> u32 {
    path.symlink_metadata().unwrap().mode() & 0o7777
}

fn chmod(path: &Path, mode: u32) {
    std::fs::set_permissions(path, PermissionsExt::from_mode(mode)).unwrap();
}

/// All that lies below `path`.
fn below(path: &Path) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(path).unwrap().map(|entry| entry.unwrap().path());
    entries
        .flat_map(|path| if path.is_dir() { [vec![path.clone()], below(&path)].concat() } else { vec![path] })
        .collect()
}

#[test]
fn nothing_of_a_mounted_volume_is_open_to_others_whatever_the_umask() {
    let Some(place) = Place::to_mount() else { return };
    for blocks in ["segments", "database"] {
        let volumes = place.directory(blocks);
        let (volume, directory) = (volumes.join("v"), place.directory(&format!("m-{blocks}")));
        let weft = |words: &str| {
            let words = words.replace("VOLUME", volume.to_str().unwrap()).replace("DIR", directory.to_str().unwrap());
            let line = format!("umask 000 && exec {} {words}", env!("CARGO_BIN_EXE_weft"));
            let done = std::process::Command::new("sh").arg("-c").arg(line).output().unwrap();
            assert!(done.status.success(), "{done:?}");
            String::from_utf8(done.stdout).unwrap()
        };
        weft(&format!("init VOLUME --blocks {blocks}"));
        weft("mount VOLUME DIR");
        std::fs::write(directory.join("file"), vec![7; 300_000]).unwrap();
        std::fs::File::open(directory.join("file")).unwrap().sync_all().unwrap();
        let stats: serde_json::Value = serde_json::from_str(&weft("stats DIR --json")).unwrap();
        let status = std::fs::read_to_string(format!("/proc/{}/status", stats["pid"])).unwrap();
        assert!(status.contains("Umask:\t0077\n"), "{status}");
        let open: Vec<_> = below(&volumes).into_iter().filter(|path| mode(path) & 0o077 != 0).collect();
        weft("umount DIR");
        assert_eq!(open, Vec::<PathBuf>::new());
    }
}

#[test]
fn a_volume_that_is_open_to_others_is_told_of_and_closed() {
    let Some(place) = Place::to_mount() else { return };
    let directory = place.mounted();
    std::fs::write(directory.join("file"), vec![7; 300_000]).unwrap();
    place.umount();
    let volume = place.path("v");
    let open_all = || below(&volume).iter().for_each(|path| chmod(path, if path.is_dir() { 0o755 } else { 0o644 }));
    let open = || below(&volume).into_iter().filter(|path| mode(path) & 0o077 != 0).count();
    open_all();
    let all = open();
    assert!(all >= 5, "{all}");
    // A check changes nothing.
    let told = place.weft(&["check", "v"]).well();
    assert!(told.contains("open to other users") && told.contains("(no damage)"), "{told}");
    assert_eq!(open(), all);
    let told = place.weft(&["check", "v", "--repair"]).well();
    assert!(told.contains("closed to other users"), "{told}");
    assert_eq!(open(), 0);
    open_all();
    let said = place.weft(&["mount", "v", "m"]);
    assert_eq!(said.code, 0, "{said:?}");
    assert!(said.err.contains("closed to other users"), "{said:?}");
    assert_eq!(open(), 0);
    place.umount();
    // Other files there are not the volume's.
    let other = place.path("v/notes");
    std::fs::write(&other, "of somebody").unwrap();
    chmod(&other, 0o644);
    assert_eq!(place.weft(&["check", "v", "--repair"]).well().lines().count(), 1);
    assert_eq!(mode(&other), 0o644);
}

#[test]
fn a_password_in_an_address_is_seen_by_nobody() {
    let place = Place::new();
    // It accepts connections, and never answers.
    let server = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let port = server.local_addr().unwrap().port();
    let url = format!("postgres://me:hunter2@127.0.0.1:{port}/d?sslmode=disable");
    let mut command = place.command(&["info", &url]);
    let mut child = command.stderr(std::process::Stdio::null()).spawn().unwrap();
    let connected = server.accept().unwrap();
    let line = std::fs::read(format!("/proc/{}/cmdline", child.id())).unwrap();
    drop((connected, server));
    child.kill().unwrap();
    child.wait().unwrap();
    let line = String::from_utf8(line).unwrap();
    assert!(line.contains(&format!("postgres://me@127.0.0.1:{port}/d?sslmode=disable")), "{line}");
    assert!(!line.contains("hunter2"), "{line}");
}

#[test]
fn a_name_forges_no_line_and_works_on_no_terminal() {
    let place = Place::new();
    let name = OsStr::from_bytes(b"v\x1b[2J\nweft: all is well");
    for command in ["info", "check"] {
        let said = place.weft(&[OsStr::new(command), name]);
        assert!(said.code != 0 && said.err.lines().count() == 1, "{said:?}");
        assert!(!said.err.contains('\x1b') && said.err.contains("\\x1b[2J"), "{said:?}");
    }
}

#[test]
fn a_strangers_link_forges_no_line_of_what_is_told_of_it() {
    let place = Place::new();
    place.directory("from");
    place.directory("from/d");
    let forged = "a\x1b[2J]\ntarget   another";
    std::fs::write(place.path("from").join(forged), "").unwrap();
    place.weft(&["init", "v"]).well();
    place.weft(&["import", "from", "v"]).well();
    let only = format!("x\n{forged}");
    let network = format!("grep '{forged}' | upper");
    let target = format!("v:{forged}");
    place.weft(&["link", &target, "v:link", "-n", &network]).well();
    place.weft(&["link", "--dir", "v:d", "v:view", "--only", &only, "-n", &network]).well();
    for link in ["v:link", "v:view"] {
        for how in [&["--show"][..], &["--show", "--dot"], &["--show", "--svg"]] {
            let told = place.weft(&[&["link"], how, &[link]].concat()).well();
            let targets = told.lines().filter(|line| line.starts_with("target ")).count();
            assert_eq!(targets, usize::from(how.len() == 1), "{told}");
            assert!(!told.contains('\x1b') && told.contains("x1b[2J"), "{told}");
        }
        let json = place.weft(&["link", "--show", "--json", link]).json();
        assert_eq!(json["network"], network);
    }
}

#[test]
fn a_link_is_not_unmounted_for_what_it_leads_to() {
    let Some(place) = Place::to_mount() else { return };
    if !is_root() {
        return eprintln!("SKIPPED a_link_is_not_unmounted_for_what_it_leads_to: needs root");
    }
    let directory = place.mounted();
    let link = place.path("link");
    std::os::unix::fs::symlink(&directory, &link).unwrap();
    // Like a link that another user puts there between finding the mount and unmounting it.
    assert!(weft_fuse::unmount(&link, true).is_err());
    assert!(place.is_mounted("m"));
    // Named by a person it is resolved first.
    place.weft(&["umount", "link"]).well();
    assert!(!place.is_mounted("m"));
}

/// Capabilities that each thread of process `pid` has, and whether it can get more.
fn privileges(pid: u32) -> Vec<(u64, bool)> {
    let threads = std::fs::read_dir(format!("/proc/{pid}/task")).unwrap();
    let status = threads.map(|thread| std::fs::read_to_string(thread.unwrap().path().join("status")).unwrap());
    let privileges = |status: String| {
        let value = |name: &str| status.lines().find_map(|line| line.strip_prefix(name)).unwrap().trim();
        (u64::from_str_radix(value("CapPrm:"), 16).unwrap(), value("NoNewPrivs:") == "0")
    };
    status.map(privileges).collect()
}

#[test]
fn a_daemon_keeps_the_privileges_that_it_needs_and_no_more() {
    let Some(place) = Place::to_mount() else { return };
    let directory = place.mounted();
    let core = || {
        let limits = std::fs::read_to_string(format!("/proc/{}/limits", place.daemon())).unwrap();
        let line = limits.lines().find(|line| line.starts_with("Max core file size")).unwrap().to_owned();
        line.split_whitespace().nth(4).unwrap().to_owned()
    };
    assert_eq!(core(), "0");
    if is_root() {
        // Nothing about modules, the network, other processes, or other users' files.
        let given_up = [16, 12, 19, 1, 2, 3, 0, 27, 21 + 1].map(|capability: u64| 1 << capability).iter().sum::<u64>();
        for (has, can_get_more) in privileges(place.daemon()) {
            assert_eq!((has & given_up, can_get_more), (0, false), "{has:x}");
        }
        // What serving takes still works.
        std::fs::write(directory.join("file"), vec![7; 300_000]).unwrap();
        place.umount();
        place.weft(&["mount", "--no-confinement", "v", "m"]).well();
        let own = privileges(std::process::id())[0].0;
        assert!(privileges(place.daemon()).iter().all(|(has, _)| *has == own));
        assert_eq!(std::fs::read(directory.join("file")).unwrap(), vec![7; 300_000]);
    }
    place.umount();
}

/// Filters of system calls that the first thread of process `pid` has, which others get from it,
/// beyond those that this process has; and whether it can get privileges.
fn filters(pid: u32) -> (u32, bool) {
    let told = |pid: u32, name: &str| -> u32 {
        let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
        status.lines().find_map(|line| line.strip_prefix(name)).unwrap().trim().parse().unwrap()
    };
    let count = |pid| told(pid, "Seccomp_filters:");
    (count(pid) - count(std::process::id()), told(pid, "NoNewPrivs:") == 0)
}

#[test]
fn a_daemon_is_refused_system_calls_that_no_daemon_makes() {
    let Some(place) = Place::to_mount() else { return };
    let directory = place.mounted();
    // Without root the helper that unmounts needs its own privileges.
    assert_eq!(filters(place.daemon()), if is_root() { (2, false) } else { (0, true) });
    if is_root() {
        // Commands of stages still get namespaces and users of their own.
        std::fs::write(directory.join("file"), "abc").unwrap();
        place.weft(&["link", "m/file", "m/link", "-n", "exec 'tr a-z A-Z; id -u'"]).well();
        let shown = std::fs::read_to_string(directory.join("link")).unwrap();
        let user: Option<u32> = shown.strip_prefix("ABC").and_then(|user| user.trim().parse().ok());
        assert!(user.is_some_and(|user| user != 0), "{shown}");
    }
    place.umount();
    place.weft(&["mount", "--no-confinement", "v", "m"]).well();
    assert_eq!(filters(place.daemon()), (0, true));
    place.umount();
}

#[test]
fn a_server_without_a_mount_is_refused_system_calls_whoever_runs_it() {
    use std::io::{BufRead, BufReader};
    let place = Place::new();
    // Whoever this is, it is not root.
    place.directory("own");
    if is_root() {
        std::os::unix::fs::chown(place.path("own"), Some(65534), Some(65534)).unwrap();
    }
    place.weft_as_stranger(&["init", "own/v"]).well();
    for (options, wanted) in [(&[][..], (2, false)), (&["--no-confinement"], (0, true))] {
        let arguments = [&["serve", "own/v", "--nfs", "127.0.0.1:0"], options].concat();
        let mut command = place.command_as_stranger(&arguments);
        let mut child = Running(command.stdout(std::process::Stdio::piped()).spawn().unwrap());
        let mut said = String::new();
        // A reader that ends early makes it fail.
        let mut heard = BufReader::new(child.0.stdout.take().unwrap());
        heard.read_line(&mut said).unwrap();
        assert!(said.starts_with("serving"), "{said}");
        assert_eq!(filters(child.0.id()), wanted);
        let pid = rustix::process::Pid::from_child(&child.0);
        rustix::process::kill_process(pid, rustix::process::Signal::TERM).unwrap();
        assert!(child.0.wait().unwrap().success());
    }
}

/// A process that is killed if a test fails.
struct Running(std::process::Child);

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn a_confined_daemon_serves_a_volume_of_another_user() {
    let Some(place) = Place::to_mount() else { return };
    if !is_root() {
        return eprintln!("SKIPPED a_confined_daemon_serves_a_volume_of_another_user: needs root");
    }
    place.weft(&["init", "v"]).well();
    for path in below(&place.path("")) {
        std::os::unix::fs::chown(path, Some(65534), Some(65534)).unwrap();
    }
    let directory = place.directory("m");
    for round in 0..2 {
        place.mount();
        std::fs::write(directory.join(format!("file {round}")), vec![7; 300_000]).unwrap();
        place.umount();
    }
    place.weft(&["check", "v", "--read-data"]).well();
}

#[test]
fn a_server_can_be_another_user_who_has_low_ports_and_no_more() {
    use std::io::{BufRead, BufReader};
    use std::process::Stdio;
    let place = Place::new();
    place.weft(&["init", "v"]).well();
    place.weft(&["serve", "v", "--nfs", "127.0.0.1:0", "--user", "no such user"]).failed(&["no user 'no such user'"]);
    if !is_root() {
        place.weft(&["serve", "v", "--nfs", "127.0.0.1:0", "--user", "root"]).failed(&["only root"]);
        return eprintln!("SKIPPED a_server_can_be_another_user_who_has_low_ports_and_no_more: needs root");
    }
    place.weft(&["serve", "v", "--nfs", "127.0.0.1:0", "--user", "nobody"]).failed(&["v", "Permission denied"]);
    std::fs::set_permissions(place.path(""), std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
    for path in below(&place.path("v")).into_iter().chain([place.path("v")]) {
        std::os::unix::fs::chown(path, Some(65534), Some(65534)).unwrap();
    }
    // An address of loopback that is this process's own, as a low port cannot be left to the
    // kernel.
    let [high, low] = [std::process::id() >> 8 & 0xff, std::process::id() & 0xff];
    let address = format!("127.77.{high}.{low}:1000");
    let command = ["serve", "v", "--nfs", &address, "--user", "nobody"];
    let mut server = place.command(&command).stdout(Stdio::piped()).spawn().unwrap();
    let mut first = String::new();
    let mut heard = BufReader::new(server.stdout.take().unwrap());
    heard.read_line(&mut first).unwrap();
    let (privileges, status) = match first.starts_with("serving ") {
        true => (privileges(server.id()), std::fs::read_to_string(format!("/proc/{}/status", server.id())).unwrap()),
        false => panic!("it does not serve: {:?}", server.wait()),
    };
    let answers = std::net::TcpStream::connect(&address).is_ok();
    rustix::process::kill_process(rustix::process::Pid::from_child(&server), rustix::process::Signal::TERM).unwrap();
    assert!(server.wait().unwrap().success() && answers);
    let ids = |name: &str| status.lines().find_map(|line| line.strip_prefix(name)).unwrap().trim().to_owned();
    assert_eq!((ids("Uid:"), ids("Groups:")), ("65534\t65534\t65534\t65534".into(), "65534".into()));
    assert!(privileges.iter().all(|all| *all == (1 << 10, false)), "{privileges:?}");
    place.weft(&["check", "v"]).well();
}
