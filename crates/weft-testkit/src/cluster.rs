//! A PostgreSQL server of this test program's own, and a schema of its own for each test.

use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, Ordering};
use weft_store::postgres::Address;

/// Makes and runs a server in `$directory` until standard input ends, however this program does; then nothing of it is left. The first
/// line on standard output says that it serves.
const SCRIPT: &str = r#"
set -eu
PATH="$bin:$PATH"
initdb --pgdata="$directory/data" --username=postgres --auth=trust --no-sync --encoding=UTF8 --locale=C >"$directory/log" 2>&1
postgres -D "$directory/data" -c listen_addresses= -c unix_socket_directories="$directory" -c shared_buffers=64MB \
    -c max_connections=200 -c autovacuum_naptime=5 $settings >>"$directory/log" 2>&1 &
server=$!
trap 'kill -QUIT $server 2>/dev/null || :; wait $server || :; rm -rf "$directory"/*' EXIT
until psql -h "$directory" -U postgres -qAtc 'SELECT 1' >/dev/null 2>&1; do
    kill -0 $server
    sleep 0.05
done
echo serving
read -r _ || :
"#;

/// A server.
pub struct Cluster {
    /// Where its socket is.
    directory: tempfile::TempDir,
    /// Whose end ends it.
    input: Option<ChildStdin>,
    shell: Child,
}

fn programs() -> Option<PathBuf> {
    let versions = std::fs::read_dir("/usr/lib/postgresql").ok()?;
    let bin = versions.flatten().map(|version| version.path().join("bin")).filter(|bin| bin.join("initdb").exists());
    bin.max()
}

impl Cluster {
    /// Starts a server with more settings, such as `-c fsync=off`.
    ///
    /// # Panics
    /// If PostgreSQL is not installed or does not start: tests that need it must not pass without it.
    pub fn start(settings: &str) -> Cluster {
        let bin = programs().expect("PostgreSQL's server is not installed; 'make packages' installs it");
        let directory = tempfile::tempdir().expect("a directory");
        let mut shell = if rustix::process::getuid().is_root() {
            // The server refuses to run as root.
            let owner = Command::new("chown").arg("postgres").arg(directory.path()).status();
            assert!(owner.is_ok_and(|status| status.success()), "the directory of the server goes to its user");
            let mut command = Command::new("runuser");
            command.args(["-u", "postgres", "--", "sh", "-c", SCRIPT]);
            command
        } else {
            let mut command = Command::new("sh");
            command.args(["-c", SCRIPT]);
            command
        };
        shell.env("bin", bin).env("directory", directory.path()).env("settings", settings);
        shell.stdin(Stdio::piped()).stdout(Stdio::piped()).current_dir("/");
        let mut shell = shell.spawn().expect("a shell");
        let mut said = [0; 8];
        let serves = shell.stdout.as_mut().expect("piped").read_exact(&mut said).is_ok();
        let log = || std::fs::read_to_string(directory.path().join("log")).unwrap_or_default();
        assert!(serves, "the server does not start: {}", log());
        Cluster { input: shell.stdin.take(), shell, directory }
    }

    /// One for all tests of this program that do nothing to it.
    pub fn shared() -> &'static Cluster {
        static SHARED: OnceLock<Cluster> = OnceLock::new();
        SHARED.get_or_init(|| Cluster::start("-c fsync=off"))
    }

    /// Where its socket is.
    pub fn socket(&self) -> &Path {
        self.directory.path()
    }

    /// The URL of a volume that nobody else has, which is not there yet.
    pub fn url(&self) -> String {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let host = self.directory.path().display().to_string().replace('/', "%2F");
        format!("postgres://postgres@{host}/postgres?schema=volume_{number}")
    }

    /// The address of [`Cluster::url`].
    pub fn address(&self) -> Address {
        Address::parse(&self.url()).expect("an address")
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        drop(self.input.take());
        // What it left is removed with the directory.
        let _ = self.shell.wait();
    }
}
