//! A private directory with volumes and mount points in it, gone when the test ends, however it
//! ends.

use std::ffi::OsStr;
use std::fs::File;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use tempfile::TempDir;
use weft_testkit::Cluster;

/// A private directory.
pub struct Place {
    directory: TempDir,
}

/// Output of a command, and its end.
#[derive(Debug)]
pub struct Said {
    pub code: i32,
    pub out: String,
    pub err: String,
}

impl From<Output> for Said {
    fn from(output: Output) -> Said {
        let text = |bytes| String::from_utf8(bytes).unwrap();
        Said { code: output.status.code().unwrap_or(-1), out: text(output.stdout), err: text(output.stderr) }
    }
}

impl Said {
    /// Checks that it went well. Returns its output.
    #[track_caller]
    pub fn well(self) -> String {
        assert!(self.code == 0 && self.err.is_empty(), "{self:?}");
        self.out
    }

    /// Checks that a server in the foreground served and ended well, and logged nothing else.
    #[track_caller]
    pub fn served_well(&self) {
        let lines: Vec<_> = self.err.lines().collect();
        let is_event = |line: &str, what: &str| line.contains(" INFO weft") && line.contains(what);
        let is_so = matches!(*lines, [began, ended] if is_event(began, " is served at ") && is_event(ended, "all is committed"));
        assert!(self.code == 0 && is_so, "{self:?}");
    }

    /// Checks that it failed with exit code 1 and one line of error that holds each of `words`.
    #[track_caller]
    pub fn failed(self, words: &[&str]) {
        self.refused(1, words);
    }

    /// Checks that it could not do it at all, reported in one line that holds each of `words`.
    #[track_caller]
    pub fn could_not(self, words: &[&str]) {
        self.refused(2, words);
    }

    /// It refused its arguments, in one line that holds each of `words`.
    #[track_caller]
    pub fn misused(self, words: &[&str]) {
        self.refused(2, words);
    }

    #[track_caller]
    fn refused(self, code: i32, words: &[&str]) {
        assert_eq!(self.code, code, "{self:?}");
        assert_eq!(self.err.lines().count(), 1, "{}", self.err);
        assert!(self.err.starts_with("weft: "), "{}", self.err);
        for word in words {
            assert!(self.err.contains(word), "no '{word}' in: {}", self.err);
        }
    }

    /// Checks that it did what it could, and something is missing. Returns its summary in JSON.
    #[track_caller]
    pub fn partly(self) -> serde_json::Value {
        assert_eq!(self.code, 1, "{self:?}");
        serde_json::from_str(&self.out).unwrap()
    }

    /// Checks that a program failed with an error that holds `words`.
    #[track_caller]
    pub fn fails_with(self, words: &str) {
        assert!(self.code != 0 && self.err.contains(words), "no '{words}' in: {self:?}");
    }

    pub fn json(self) -> serde_json::Value {
        serde_json::from_str(&self.well()).unwrap()
    }
}

impl Place {
    pub fn new() -> Place {
        Place { directory: TempDir::with_prefix("weft-test-").unwrap() }
    }

    /// A place to mount in; none, said loudly, where this machine or user cannot mount.
    pub fn to_mount() -> Option<Place> {
        let device = std::fs::OpenOptions::new().read(true).write(true).open("/dev/fuse");
        let helper = Command::new("fusermount3").arg("--version").output();
        let test = std::thread::current().name().unwrap_or("test").to_owned();
        match (device, helper) {
            (Err(error), _) => eprintln!("SKIPPED {test}: /dev/fuse: {error}"),
            (_, Err(error)) if !is_root() => eprintln!("SKIPPED {test}: not root, and fusermount3: {error}"),
            _ => return Some(Place::new()),
        }
        None
    }

    pub fn path(&self, name: impl AsRef<Path>) -> PathBuf {
        self.directory.path().join(name)
    }

    /// Makes a directory.
    pub fn directory(&self, name: &str) -> PathBuf {
        let path = self.path(name);
        std::fs::create_dir(&path).unwrap();
        path
    }

    /// Runs `weft` in the place.
    pub fn weft<S: AsRef<OsStr>>(&self, arguments: &[S]) -> Said {
        self.command(arguments).output().unwrap().into()
    }

    pub fn command<S: AsRef<OsStr>>(&self, arguments: &[S]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_weft"));
        command.args(arguments).current_dir(self.directory.path());
        command
    }

    /// Runs `weft`, and asks it to end as soon as `has_begun`.
    #[track_caller]
    pub fn interrupted(&self, arguments: &[&str], has_begun: impl Fn() -> bool) -> Said {
        use std::process::Stdio;
        let mut child = self.command(arguments).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        while !has_begun() && child.try_wait().unwrap().is_none() {
            std::thread::yield_now();
        }
        // If it has ended by itself it is not taken note of yet, and its number is its own.
        rustix::process::kill_process(rustix::process::Pid::from_child(&child), rustix::process::Signal::TERM).ok();
        let said = Said::from(child.wait_with_output().unwrap());
        assert!(said.code == 143 || said.code == 0, "{said:?}");
        said
    }

    /// Runs `weft` as a user who owns nothing but volume `v`, if this is root; else as this user.
    pub fn weft_as_nobody(&self, arguments: &[&str]) -> Said {
        use std::os::unix::fs::chown;
        if is_root() {
            chown(self.path("v"), Some(65534), Some(65534)).unwrap();
        }
        self.weft_as_stranger(arguments)
    }

    /// Runs `weft` as a user who owns nothing, if this is root; else as this user.
    pub fn weft_as_stranger(&self, arguments: &[&str]) -> Said {
        self.command_as_stranger(arguments).output().unwrap().into()
    }

    /// The command of [`Place::weft_as_stranger`].
    pub fn command_as_stranger(&self, arguments: &[&str]) -> Command {
        use std::os::unix::fs::PermissionsExt;
        use std::os::unix::process::CommandExt;
        if !is_root() {
            return self.command(arguments);
        }
        if !self.path("weft").exists() {
            copy_program(&self.path("weft"));
            std::fs::set_permissions(self.path(""), PermissionsExt::from_mode(0o1777)).unwrap();
        }
        let mut command = Command::new(self.path("weft"));
        command.args(arguments).current_dir(self.path("")).uid(65534).gid(65534);
        command
    }

    /// Makes volume `v` and mounts it at `m`.
    pub fn mounted(&self) -> PathBuf {
        self.weft(&["init", "v"]).well();
        let directory = self.directory("m");
        self.mount();
        directory
    }

    /// Mounts volume `v` at `m`.
    #[track_caller]
    pub fn mount(&self) {
        self.weft(&["mount", "v", "m"]).well();
    }

    /// Mounts `volume`, which need not lie in files, at `m`. Messages go to the file `log`.
    #[track_caller]
    pub fn mount_with(&self, volume: &str, options: &[&str]) {
        self.weft(&[&["mount", volume, "m", "--log", "log"], options].concat()).well();
    }

    /// Kills the daemon of `m`, and mounts `volume` there again.
    #[track_caller]
    pub fn mount_killed(&self, volume: &str, options: &[&str]) {
        self.kill_daemon();
        self.mount_again(volume, options);
    }

    /// Mounts `volume` at `m` again, whose daemon was killed.
    #[track_caller]
    pub fn mount_again(&self, volume: &str, options: &[&str]) {
        if volume.starts_with("postgres:") {
            self.weft(&["umount", "m"]);
            self.mount_with(volume, &[&["--wait", "60"], options].concat());
        } else {
            self.remove_dead(&format!("{volume}/lock"));
            self.mount_with(volume, options);
        }
    }

    /// Runs `script` by a shell in `m`, with `weft` as `$0`.
    pub fn sh(&self, script: &str) -> Said {
        self.shell(script).into()
    }

    fn shell(&self, script: &str) -> Output {
        let mut shell = Command::new("bash");
        shell.args(["-c", script, env!("CARGO_BIN_EXE_weft")]).env("LC_ALL", "C").current_dir(self.path("m"));
        shell.output().unwrap()
    }

    /// Checks that two scripts print the same, in `m`, and that it is something.
    #[track_caller]
    pub fn same(&self, script: &str, other: &str) {
        let [one, two] = [script, other].map(|script| self.shell(script));
        let said = String::from_utf8_lossy(&one.stderr);
        assert!(one.stdout == two.stdout, "{script}: {} bytes, not {}; {said}", one.stdout.len(), two.stdout.len());
        assert!(!one.stdout.is_empty(), "{script}: {said}");
    }

    /// Unmounts `m`.
    #[track_caller]
    pub fn umount(&self) {
        self.weft(&["umount", "m"]).well();
    }

    /// The process that serves `m`.
    pub fn daemon(&self) -> u32 {
        let stats = self.weft(&["stats", "m", "--json"]).json();
        stats["pid"].as_u64().unwrap().try_into().unwrap()
    }

    /// Kills the daemon of `m`, and removes the dead mount once the volume of `hold` is closed.
    #[track_caller]
    pub fn kill(&self, hold: &str) {
        self.kill_daemon();
        self.remove_dead(hold);
    }

    #[track_caller]
    fn remove_dead(&self, hold: &str) {
        let lock = File::open(self.path(hold)).unwrap();
        rustix::fs::flock(&lock, rustix::fs::FlockOperation::LockExclusive).unwrap();
        let said = self.weft(&["umount", "m"]).well();
        assert!(said.contains("the daemon of") && said.contains("had ended"), "{said}");
    }

    /// Kills the daemon of `m`.
    pub fn kill_daemon(&self) {
        use rustix::process::{Pid, Signal, kill_process};
        kill_process(Pid::from_raw(self.daemon().cast_signed()).unwrap(), Signal::KILL).unwrap();
    }

    /// True if a file system is mounted at `name`.
    pub fn is_mounted(&self, name: &str) -> bool {
        let mounts = String::from_utf8_lossy(&std::fs::read("/proc/self/mounts").unwrap()).into_owned();
        let wanted = self.path(name);
        mounts.lines().any(|line| line.split(' ').nth(1) == wanted.to_str())
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        for entry in std::fs::read_dir(self.directory.path()).unwrap().flatten() {
            let name = entry.file_name();
            if name.to_str().is_some_and(|name| self.is_mounted(name)) {
                self.weft(&[OsStr::new("umount"), OsStr::new("--lazy"), &name]);
            }
        }
    }
}

/// Numbers that look random and are the same in each run.
pub struct Numbers(pub u64);

impl Numbers {
    pub fn below(&mut self, bound: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % bound
    }

    pub fn bytes(&mut self, len: usize) -> Vec<u8> {
        (0..len).map(|_| self.below(256) as u8).collect()
    }
}

/// Runs `test` on a volume in files that is mounted with `options`, then on one in PostgreSQL; both
/// must check clean in the end.
pub fn on_each_engine(options: &[&str], test: impl Fn(&Place, &str)) {
    for volume in ["v", &Cluster::shared().url()] {
        let Some(place) = Place::to_mount() else { return };
        place.weft(&["init", volume]).well();
        place.directory("m");
        place.mount_with(volume, options);
        test(&place, volume);
        if place.is_mounted("m") {
            place.umount();
        }
        place.weft(&["check", "--read-data", volume]).well();
    }
}

/// Writes `content` to a file and syncs it.
pub fn write_synced(path: &Path, content: &[u8]) {
    let mut file = File::create(path).unwrap();
    file.write_all(content).unwrap();
    file.sync_all().unwrap();
}

/// Copies the program: where it was built may be closed to others. Another process does it: a child
/// that another thread starts meanwhile would hold a file of this one open for writing, and nothing
/// runs such a file.
pub fn copy_program(to: &Path) {
    let copied = Command::new("cp").arg(env!("CARGO_BIN_EXE_weft")).arg(to).status().unwrap();
    assert!(copied.success());
}

pub fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}

/// Runs `script` by a shell that has mounts of its own and `weft` as `$0`; none, with a loud
/// message, where that cannot be.
pub fn apart(place: &Place, script: &str) -> Option<Said> {
    let test = std::thread::current().name().unwrap_or("test").to_owned();
    let may = is_root() && Command::new("unshare").args(["-m", "true"]).status().is_ok_and(|status| status.success());
    if !may {
        eprintln!("SKIPPED {test}: needs root and unshare(1) for mounts of its own");
        return None;
    }
    let script = format!("trap '\"$0\" umount --lazy m 2>/dev/null || true' EXIT; {script}");
    let mut command = Command::new("unshare");
    command.args(["-m", "sh", "-euc", &script, env!("CARGO_BIN_EXE_weft")]).current_dir(place.path(""));
    Some(command.output().unwrap().into())
}
