//! A PostgreSQL server of this test program's own, and a schema of its own for each test.

use parking_lot::Mutex;
use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, Ordering};
use weft_store::postgres::Address;

/// A server, which ends with this program, however that ends.
pub struct Cluster {
    /// Where its socket is.
    directory: tempfile::TempDir,
    talk: Mutex<Talk>,
}

/// Whoever runs the server: it does what it reads, and says so.
struct Talk {
    input: Option<ChildStdin>,
    output: BufReader<ChildStdout>,
    child: Child,
}

impl Cluster {
    /// Starts a server with more settings, such as `-c fsync=off`.
    ///
    /// # Panics
    /// If PostgreSQL is not installed or does not start: tests that need it must not pass without it.
    pub fn start(settings: &str) -> Cluster {
        let program = concat!(env!("CARGO_MANIFEST_DIR"), "/../../tests/postgres-server");
        let directory = tempfile::tempdir().expect("a directory");
        let mut command = Command::new(program);
        command.arg(directory.path()).args(settings.split_whitespace());
        let mut child =
            command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().expect("tests/postgres-server runs");
        let output = BufReader::new(child.stdout.take().expect("piped"));
        let mut talk = Talk { input: child.stdin.take(), output, child };
        assert_eq!(talk.line(), "serving", "the server does not start; it says why above");
        Cluster { directory, talk: Mutex::new(talk) }
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

    /// Runs SQL as somebody else; tells the rows of its last statement, a line each.
    pub fn run(&self, statement: &str) -> String {
        let output = self.psql().args(["-v", "ON_ERROR_STOP=1", "-c", statement]).stdin(Stdio::null()).output();
        let output = output.expect("psql runs");
        assert!(output.status.success(), "{statement}: {}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).expect("UTF-8").trim_end().to_owned()
    }

    /// Has somebody read `table` in a transaction that lasts until what is returned is dropped.
    pub fn reading(&self, table: &str) -> Reading {
        let psql = self.psql().stdin(Stdio::piped()).stdout(Stdio::piped()).spawn();
        let mut reading = Reading { psql: psql.expect("psql runs") };
        let input = reading.psql.stdin.as_mut().expect("it is piped");
        writeln!(input, "BEGIN; LOCK TABLE {table} IN ACCESS SHARE MODE;\n\\echo reading").expect("it reads");
        let mut line = String::new();
        let output = reading.psql.stdout.as_mut().expect("it is piped");
        BufReader::new(output).read_line(&mut line).expect("readable");
        assert_eq!(line, "reading\n");
        reading
    }

    fn psql(&self) -> Command {
        let mut command = Command::new("psql");
        command.args(["-qXAt", "-U", "postgres", "-h"]).arg(self.directory.path());
        command
    }

    /// Does to the server what `order` says: `stop`, `crash` (all its processes end at once), `start`, `restart`.
    pub fn tell(&self, order: &str) {
        let mut talk = self.talk.lock();
        let input = talk.input.as_mut().expect("open until dropped");
        writeln!(input, "{order}").and_then(|()| input.flush()).expect("it reads");
        assert_eq!(talk.line(), order);
    }
}

/// Somebody who reads a table.
pub struct Reading {
    psql: Child,
}

impl Drop for Reading {
    fn drop(&mut self) {
        drop(self.psql.stdin.take());
        let _ = self.psql.wait();
    }
}

impl Talk {
    fn line(&mut self) -> String {
        let mut line = String::new();
        self.output.read_line(&mut line).expect("readable");
        line.trim_end().to_owned()
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        let talk = self.talk.get_mut();
        drop(talk.input.take());
        // What it left is removed with the directory.
        let _ = talk.child.wait();
    }
}
