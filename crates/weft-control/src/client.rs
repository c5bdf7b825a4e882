//! A question to a daemon over its control socket: one request of HTTP/1.1, one answer, within a
//! time limit.

use rustix::io::Errno;
use rustix::net::sockopt::{Timeout, set_socket_timeout};
use rustix::net::{AddressFamily, SendFlags, SocketAddrUnix, SocketFlags, SocketType, connect, send, socket_with};
use std::fmt;
use std::io::{self, ErrorKind, Read};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::{Duration, Instant};

/// Most bytes of an answer.
const ANSWER_BYTES_MAX: u64 = 1 << 20;

/// The answer of a daemon.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Answer {
    /// The status code of HTTP.
    pub code: u16,
    /// Its text.
    pub body: String,
}

impl Answer {
    /// True if what was asked for is there, or done.
    pub fn is_good(&self) -> bool {
        (200..300).contains(&self.code)
    }
}

/// The reason that there is no answer.
#[derive(Debug)]
pub enum Unanswered {
    /// Nobody listens: the daemon has ended.
    Gone,
    /// Nobody answered within the time.
    Silent,
    /// This.
    Failed(io::Error),
}

impl fmt::Display for Unanswered {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Unanswered::Gone => f.write_str("it has ended"),
            Unanswered::Silent => f.write_str("it does not answer"),
            Unanswered::Failed(error) => write!(f, "its answer cannot be read: {error}"),
        }
    }
}

impl std::error::Error for Unanswered {}

impl From<io::Error> for Unanswered {
    fn from(error: io::Error) -> Unanswered {
        match error.kind() {
            // One that ends takes what was not answered with it.
            ErrorKind::ConnectionRefused | ErrorKind::NotFound | ErrorKind::BrokenPipe | ErrorKind::ConnectionReset => {
                Unanswered::Gone
            }
            ErrorKind::WouldBlock | ErrorKind::TimedOut => Unanswered::Silent,
            _ => Unanswered::Failed(error),
        }
    }
}

/// The method of a request to a daemon.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Method {
    /// Asks for data.
    Get,
    /// Asks for an action.
    Post,
}

/// Asks the daemon that listens at `socket` for `target`, and waits no longer than `limit` for the
/// answer.
pub fn ask(socket: &Path, method: Method, target: &str, limit: Duration) -> Result<Answer, Unanswered> {
    let until = Instant::now() + limit;
    let mut stream = connected(socket, limit)?;
    let word = match method {
        Method::Get => "GET",
        Method::Post => "POST",
    };
    stream.set_write_timeout(Some(left(until)?))?;
    let request = format!("{word} {target} HTTP/1.1\r\nHost: weft\r\nContent-Length: 0\r\nConnection: close\r\n\r\n");
    send_all(&stream, request.as_bytes())?;
    let (mut bytes, mut part) = (Vec::new(), [0; 8192]);
    loop {
        stream.set_read_timeout(Some(left(until)?))?;
        match stream.read(&mut part) {
            Ok(0) => break,
            Ok(count) => bytes.extend_from_slice(&part[..count]),
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            // A daemon that refuses a connection does not read the request.
            Err(error) if error.kind() == ErrorKind::ConnectionReset && !bytes.is_empty() => break,
            Err(error) => return Err(error.into()),
        }
        if bytes.len() as u64 > ANSWER_BYTES_MAX {
            return Err(wrong("it is too long"));
        }
    }
    answer(&bytes)
}

/// Sends all of `bytes`. A daemon that closes its end early is an error, and no signal, which would
/// end a command that prints for `head`.
fn send_all(stream: &UnixStream, mut bytes: &[u8]) -> Result<(), Unanswered> {
    while !bytes.is_empty() {
        match send(stream, bytes, SendFlags::NOSIGNAL) {
            Ok(count) => bytes = &bytes[count..],
            Err(Errno::INTR) => {}
            Err(error) => return Err(io::Error::from(error).into()),
        }
    }
    Ok(())
}

/// Connects. The queue of a daemon that takes no connections may be full.
pub(crate) fn connected(socket: &Path, limit: Duration) -> Result<UnixStream, Unanswered> {
    let address = SocketAddrUnix::new(socket).map_err(io::Error::from)?;
    let descriptor = socket_with(AddressFamily::UNIX, SocketType::STREAM, SocketFlags::CLOEXEC, None);
    let descriptor = descriptor.map_err(io::Error::from)?;
    // It bounds the wait in the queue, too (unix(7) has connect() wait as sending does).
    set_socket_timeout(&descriptor, Timeout::Send, Some(limit)).map_err(io::Error::from)?;
    connect(&descriptor, &address).map_err(io::Error::from)?;
    Ok(UnixStream::from(descriptor))
}

fn left(until: Instant) -> Result<Duration, Unanswered> {
    let left = until.saturating_duration_since(Instant::now());
    if left.is_zero() { Err(Unanswered::Silent) } else { Ok(left) }
}

fn wrong(why: &'static str) -> Unanswered {
    Unanswered::Failed(io::Error::new(ErrorKind::InvalidData, why))
}

/// Reads an answer that ends with its connection.
fn answer(bytes: &[u8]) -> Result<Answer, Unanswered> {
    let text = std::str::from_utf8(bytes).map_err(|_| wrong("it is no text"))?;
    if text.is_empty() {
        return Err(Unanswered::Gone);
    }
    let (head, body) = text.split_once("\r\n\r\n").ok_or(wrong("it ends early"))?;
    let mut lines = head.split("\r\n");
    let code = lines.next().and_then(|line| line.strip_prefix("HTTP/1.1 ")?.get(..3)?.parse().ok());
    let code = code.ok_or(wrong("it is none of HTTP"))?;
    let length = lines.find_map(|line| {
        let (name, value) = line.split_once(':')?;
        name.eq_ignore_ascii_case("content-length").then(|| value.trim().parse::<usize>().ok())?
    });
    match length {
        Some(length) if length == body.len() => Ok(Answer { code, body: body.to_owned() }),
        _ => Err(wrong("it ends early")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::net::UnixListener;
    use std::path::PathBuf;

    fn place() -> (tempfile::TempDir, PathBuf) {
        let directory = tempfile::tempdir().expect("a directory");
        let path = directory.path().join("socket");
        (directory, path)
    }

    const LIMIT: Duration = Duration::from_millis(200);

    #[test]
    fn an_answer_is_whole_or_none() {
        let whole = answer(b"HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\nok\n").expect("whole");
        assert_eq!((whole.code, whole.body.as_str(), whole.is_good()), (200, "ok\n", true));
        assert!(matches!(answer(b""), Err(Unanswered::Gone)));
        for bytes in [
            &b"HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nok\n"[..],
            b"HTTP/1.1 200 OK\r\n\r\nok\n",
            b"HTTP/1.1 2\r\nContent-Length: 0\r\n\r\n",
            b"\xff\r\n\r\n",
            b"SSH-2.0\r\n\r\n",
        ] {
            assert!(matches!(answer(bytes), Err(Unanswered::Failed(_))), "{bytes:?}");
        }
    }

    #[test]
    fn a_daemon_that_has_ended_is_told_from_one_that_does_not_answer() {
        let (_directory, path) = place();
        assert!(matches!(ask(&path, Method::Get, "/", LIMIT), Err(Unanswered::Gone)));
        let listener = UnixListener::bind(&path).expect("bound");
        assert!(matches!(ask(&path, Method::Get, "/", LIMIT), Err(Unanswered::Silent)));
        // Nor is its queue waited for, once it is full.
        let waiting: Vec<_> = std::iter::from_fn(|| connected(&path, LIMIT).ok()).take(5000).collect();
        assert!(waiting.len() < 5000);
        assert!(matches!(ask(&path, Method::Get, "/", LIMIT), Err(Unanswered::Silent)));
        drop(listener);
        assert!(matches!(ask(&path, Method::Get, "/", LIMIT), Err(Unanswered::Gone)));
    }
}
