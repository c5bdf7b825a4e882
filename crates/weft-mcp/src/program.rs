//! Runs of the program, in bounds.

use std::io;
use std::path::Path;
use std::process::Stdio;
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWriteExt};
use tokio::process::Command;
use tokio::time::timeout;

/// Time within which a run must end.
const TIME_MAX: Duration = Duration::from_secs(60);

/// Most bytes of an answer.
pub(crate) const ANSWER_MAX: usize = 4 << 20;

/// Most bytes of messages that are passed on.
const MESSAGES_MAX: usize = 4 << 10;

/// What a run said.
#[derive(Debug)]
pub(crate) struct Said {
    /// Its standard output, up to the bound that was asked for.
    pub(crate) out: Vec<u8>,
    /// True if there was more.
    pub(crate) has_more: bool,
    /// Its exit code; none if it was ended as it had said enough.
    pub(crate) code: Option<i32>,
    /// Its messages.
    pub(crate) messages: String,
}

/// Runs `program` with `arguments`, gives it `input`, and takes at most `most` bytes of what it
/// prints, without the first `skipped`.
///
/// # Errors
/// It cannot be run, or has not ended in time.
pub(crate) async fn run(
    program: &Path,
    arguments: &[String],
    input: &[u8],
    (skipped, most): (u64, usize),
) -> io::Result<Said> {
    let mut command = Command::new(program);
    // A file of this directory must not be taken for a path in the volume.
    command.args(arguments).current_dir("/").kill_on_drop(true);
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let work = async {
        let mut child = command.spawn()?;
        let (mut stdin, stdout, stderr) = (child.stdin.take(), child.stdout.take(), child.stderr.take());
        let feed = async {
            if let Some(stdin) = &mut stdin {
                // It may have seen enough.
                let _ = stdin.write_all(input).await;
            }
            drop(stdin);
        };
        let (_, out, messages) = tokio::join!(feed, taken(stdout, skipped, most), taken(stderr, 0, MESSAGES_MAX));
        let ((out, has_more), (messages, _)) = (out?, messages?);
        if has_more {
            child.kill().await?;
        }
        let status = child.wait().await?;
        let messages = String::from_utf8_lossy(&messages).trim().to_owned();
        Ok(Said { out, has_more, code: if has_more { None } else { status.code() }, messages })
    };
    let late = |_| io::Error::new(io::ErrorKind::TimedOut, format!("it took more than {} seconds", TIME_MAX.as_secs()));
    timeout(TIME_MAX, work).await.map_err(late)?
}

/// Reads at most `most` bytes behind the first `skipped`; tells also whether there are more.
async fn taken(from: Option<impl AsyncRead + Unpin>, skipped: u64, most: usize) -> io::Result<(Vec<u8>, bool)> {
    let Some(from) = from else { return Ok((Vec::new(), false)) };
    let mut from = from;
    tokio::io::copy(&mut (&mut from).take(skipped), &mut tokio::io::sink()).await?;
    let mut taken = Vec::new();
    (&mut from).take(most as u64 + 1).read_to_end(&mut taken).await?;
    let has_more = taken.len() > most;
    taken.truncate(most);
    Ok((taken, has_more))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ran(script: &str, input: &[u8], bounds: (u64, usize)) -> Said {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let arguments = ["-c".to_owned(), script.to_owned()];
        runtime.block_on(run(Path::new("/bin/sh"), &arguments, input, bounds)).unwrap()
    }

    #[test]
    fn output_is_taken_from_a_place_and_up_to_a_bound() {
        let said = ran("cat; echo why >&2; exit 3", b"0123456789", (2, 100));
        assert_eq!((&said.out[..], said.code, &*said.messages), (&b"23456789"[..], Some(3), "why"));
        let said = ran("yes", b"", (1, 4));
        assert_eq!((&said.out[..], said.has_more, said.code), (&b"\ny\ny"[..], true, None));
        assert_eq!(ran("printf abc", b"", (10, 4)).out, b"");
    }
}
