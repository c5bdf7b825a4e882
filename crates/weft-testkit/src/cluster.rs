//! A PostgreSQL server of this test program's own, and a schema of its own for each test.

use parking_lot::Mutex;
use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, Ordering};
use tokio::runtime::{Builder, Runtime};
use tokio::task::JoinHandle;
use tokio_postgres::SimpleQueryMessage;
use weft_store::postgres::Address;

/// The script that runs a server.
const SERVER: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../tests/postgres-server");

/// A server, which ends with this program, however that ends.
pub struct Cluster {
    /// Directory of its socket.
    directory: tempfile::TempDir,
    /// True if its settings let a crash lose what it acknowledges, which addresses must say then.
    is_weak: bool,
    talk: Mutex<Talk>,
}

/// The process that runs the server: it does what it reads, and says so.
struct Talk {
    input: Option<ChildStdin>,
    output: BufReader<ChildStdout>,
    child: Child,
}

impl Cluster {
    /// Starts a server with more settings, such as `-c fsync=off`.
    ///
    /// # Panics
    /// If PostgreSQL is not installed or does not start: tests that need it must not pass without
    /// it.
    pub fn start(settings: &str) -> Cluster {
        Cluster::run_by(Command::new(SERVER), settings)
    }

    /// Starts a server in the network namespace `namespace`.
    ///
    /// # Panics
    /// As [`Cluster::start`].
    pub fn start_in(namespace: &str, settings: &str) -> Cluster {
        let mut command = Command::new("nsenter");
        command.arg(format!("--net=/run/netns/{namespace}")).arg(SERVER);
        Cluster::run_by(command, settings)
    }

    /// Starts a coordinator of Citus, and two workers whose sockets lie beside its own, in `-1` and
    /// `-2`. The orders that begin with `worker ` go to the first of them alone.
    ///
    /// # Panics
    /// As [`Cluster::start`], and if that has no Citus.
    pub fn start_citus(settings: &str) -> Cluster {
        let program = concat!(env!("CARGO_MANIFEST_DIR"), "/../../tests/citus-server");
        Cluster::run_by(Command::new(program), settings)
    }

    fn run_by(mut command: Command, settings: &str) -> Cluster {
        let directory = tempfile::tempdir().expect("a directory");
        command.arg(directory.path()).args(settings.split_whitespace());
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().expect("the server's script runs");
        let output = BufReader::new(child.stdout.take().expect("piped"));
        let mut talk = Talk { input: child.stdin.take(), output, child };
        assert_eq!(talk.line(), "serving", "the server does not start; it says why above");
        Cluster { directory, is_weak: settings.contains("fsync=off"), talk: Mutex::new(talk) }
    }

    /// One for all tests of this program that do nothing to it.
    pub fn shared() -> &'static Cluster {
        static SHARED: OnceLock<Cluster> = OnceLock::new();
        SHARED.get_or_init(|| Cluster::start("-c fsync=off"))
    }

    /// Returns the directory of its socket.
    pub fn socket(&self) -> &Path {
        self.directory.path()
    }

    /// The URL of a volume that nobody else has, which is not there yet.
    pub fn url(&self) -> String {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let host = self.directory.path().display().to_string().replace('/', "%2F");
        let durability = if self.is_weak { "durability=server&" } else { "" };
        format!("postgres://postgres@{host}/postgres?{durability}schema=volume_{number}")
    }

    /// The address of [`Cluster::url`].
    pub fn address(&self) -> Address {
        Address::parse(&self.url()).expect("an address")
    }

    /// Runs SQL as somebody else; tells the first column of the rows, a line each.
    pub fn run(&self, statements: &str) -> String {
        self.client().run(statements)
    }

    /// Runs SQL in another database than that of the volumes.
    pub fn run_in(&self, database: &str, statements: &str) -> String {
        Client::new(self, database).run(statements)
    }

    /// Somebody else who is connected, until what is returned is dropped.
    pub fn client(&self) -> Client {
        Client::new(self, "postgres")
    }

    /// Has somebody read `table` in a transaction that lasts until what is returned is dropped.
    pub fn reading(&self, table: &str) -> Client {
        let client = self.client();
        client.run(&format!("BEGIN; LOCK TABLE {table} IN ACCESS SHARE MODE"));
        client
    }

    /// Does to the server what `order` says: `stop`, `crash` (all its processes end at once),
    /// `start`, `restart`.
    pub fn tell(&self, order: &str) {
        let mut talk = self.talk.lock();
        let input = talk.input.as_mut().expect("open until dropped");
        writeln!(input, "{order}").and_then(|()| input.flush()).expect("it reads");
        assert_eq!(talk.line(), order);
    }
}

/// Somebody else who is connected. No program of its own: while one is started it has all files of
/// this one open, and what they lock.
pub struct Client {
    runtime: Runtime,
    client: tokio_postgres::Client,
    _connection: JoinHandle<Result<(), tokio_postgres::Error>>,
}

impl Client {
    fn new(cluster: &Cluster, database: &str) -> Client {
        let runtime = Builder::new_current_thread().enable_all().build().expect("a runtime");
        let mut config = tokio_postgres::Config::new();
        config.user("postgres").dbname(database).host_path(cluster.directory.path());
        let connected = runtime.block_on(async {
            let (client, connection) = config.connect(tokio_postgres::NoTls).await?;
            Ok::<_, tokio_postgres::Error>((client, tokio::spawn(connection)))
        });
        let (client, connection) = connected.expect("connected");
        Client { runtime, client, _connection: connection }
    }

    /// Runs SQL; tells the first column of the rows, a line each.
    ///
    /// # Panics
    /// If the server refuses it.
    pub fn run(&self, statements: &str) -> String {
        let messages = self.runtime.block_on(self.client.simple_query(statements));
        let messages = messages.unwrap_or_else(|error| panic!("{statements}: {error:?}"));
        let row = |message| if let SimpleQueryMessage::Row(row) = message { Some(row) } else { None };
        let rows = messages.into_iter().filter_map(row);
        rows.map(|row| row.get(0).unwrap_or_default().to_owned()).collect::<Vec<_>>().join("\n")
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
