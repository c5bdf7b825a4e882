//! Locks as programs use them. Helper processes take the locks, by orders on their standard input
//! (`client FILE help`).

use crate::Work;
use rustix::io::Errno;
use std::fs::File;
use std::io::{self, BufRead, BufReader, Write};
use std::os::fd::AsRawFd;
use std::path::Path;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

/// The kinds of locking, each on a file of its own.
pub(crate) const ALL: [(&str, Work); 7] = [
    ("ranges exclude others and are told of", ranges),
    ("ranges are split, joined and changed", pieces),
    ("ranges past 4 GiB and to the end are locked", far),
    ("who waits goes on when there is room", waiting),
    ("who would wait for ever is told", deadlock),
    ("closing a file gives its ranges up", closing),
    ("ending gives all up", ending),
];

/// A process that follows orders.
struct Helper {
    process: Child,
    orders: Option<ChildStdin>,
    answers: BufReader<ChildStdout>,
}

impl Helper {
    fn new(file: &Path) -> io::Result<Helper> {
        let mut command = Command::new(std::env::current_exe()?);
        let lent = std::env::var_os("CLIENT_RUN_BY");
        if let Some(loader) = &lent {
            // In the virtual machine of tests/guest programs are run by a program.
            command = Command::new(loader);
            command.arg("/payload/client");
        }
        let mut process = command.arg(file).arg("help").stdin(Stdio::piped()).stdout(Stdio::piped()).spawn()?;
        let orders = process.stdin.take();
        let answers = BufReader::new(process.stdout.take().expect("piped"));
        Ok(Helper { process, orders, answers })
    }

    fn order(&mut self, order: &str) -> io::Result<()> {
        writeln!(self.orders.as_mut().expect("not ended"), "{order}")
    }

    fn answer(&mut self) -> io::Result<String> {
        let mut answer = String::new();
        self.answers.read_line(&mut answer)?;
        Ok(answer.trim().into())
    }

    fn ask(&mut self, order: &str) -> io::Result<String> {
        self.order(order)?;
        self.answer()
    }

    /// Gives `order`, which must have this answer.
    fn must(&mut self, order: &str, answer: &str) -> io::Result<()> {
        let said = self.ask(order)?;
        if said == answer { Ok(()) } else { Err(io::Error::other(format!("{order}: {said}, not {answer}"))) }
    }
}

impl Drop for Helper {
    fn drop(&mut self) {
        self.orders = None;
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// Locks `file` by orders: `try`, `wait`, `test` with `r` or `w`, first byte and length; `unlock`
/// likewise; `close`.
pub(crate) fn help(file: &Path) -> io::Result<()> {
    let open = || File::options().read(true).write(true).create(true).truncate(false).open(file);
    let held = open()?;
    for line in io::stdin().lines() {
        let line = line?;
        let words: Vec<&str> = line.split(' ').collect();
        let number = |at: usize| words.get(at).and_then(|word| word.parse::<i64>().ok()).unwrap_or(0);
        let range = (number(2), number(3));
        let mode = if words.get(1) == Some(&"w") { libc::F_WRLCK } else { libc::F_RDLCK };
        let said = match words[0] {
            "try" => told(fcntl(&held, libc::F_SETLK, mode, range)),
            "wait" => told(fcntl(&held, libc::F_SETLKW, mode, range)),
            "unlock" => told(fcntl(&held, libc::F_SETLK, libc::F_UNLCK, range)),
            "test" => match fcntl(&held, libc::F_GETLK, mode, range)? {
                found if i32::from(found.l_type) == libc::F_UNLCK => "free".into(),
                found => {
                    let mode = if i32::from(found.l_type) == libc::F_WRLCK { "w" } else { "r" };
                    format!("{mode} {} {}", found.l_start, found.l_len)
                }
            },
            "close" => {
                drop(open()?);
                "ok".into()
            }
            other => format!("{other}?"),
        };
        println!("{said}");
    }
    Ok(())
}

fn told(result: io::Result<libc::flock>) -> String {
    match result.map_err(|error| Errno::from_io_error(&error)) {
        Ok(_) => "ok".into(),
        Err(Some(Errno::AGAIN | Errno::ACCESS)) => "held".into(),
        Err(Some(Errno::DEADLK)) => "deadlock".into(),
        Err(error) => format!("{error:?}"),
    }
}

fn fcntl(file: &File, command: i32, mode: i32, (start, len): (i64, i64)) -> io::Result<libc::flock> {
    let mode = i16::try_from(mode).expect("a small number");
    let mut lock = libc::flock { l_type: mode, l_whence: 0, l_start: start, l_len: len, l_pid: 0 };
    // SAFETY: the descriptor is open, and the kernel reads and writes one `struct flock` that
    // outlives the call.
    let result = unsafe { libc::fcntl(file.as_raw_fd(), command, &raw mut lock) };
    if result == 0 { Ok(lock) } else { Err(io::Error::last_os_error()) }
}

fn ranges(file: &Path) -> io::Result<()> {
    let (mut one, mut other) = (Helper::new(file)?, Helper::new(file)?);
    one.must("try w 10 10", "ok")?;
    other.must("try w 0 10", "ok")?;
    other.must("try r 19 1", "held")?;
    other.must("try r 20 0", "ok")?;
    one.must("try w 15 10", "held")?;
    one.must("try r 15 10", "ok")?;
    other.must("test w 5 100", "w 10 5")?;
    other.must("test r 15 100", "free")?;
    one.must("test r 0 5", "w 0 10")?;
    one.must("test w 30 5", "r 20 0")
}

fn pieces(file: &Path) -> io::Result<()> {
    let (mut one, mut other) = (Helper::new(file)?, Helper::new(file)?);
    one.must("try w 0 30", "ok")?;
    one.must("unlock x 10 10", "ok")?;
    other.must("test w 0 100", "w 0 10")?;
    other.must("test w 10 100", "w 20 10")?;
    other.must("try w 10 10", "ok")?;
    one.must("try w 0 30", "held")?;
    other.must("unlock x 0 0", "ok")?;
    one.must("try w 10 10", "ok")?;
    other.must("test w 0 100", "w 0 30")?;
    one.must("try r 5 5", "ok")?;
    other.must("test r 5 5", "free")?;
    other.must("test w 5 5", "r 5 5")
}

fn far(file: &Path) -> io::Result<()> {
    let (mut one, mut other) = (Helper::new(file)?, Helper::new(file)?);
    let last = i64::MAX;
    one.must("try w 4294967296 1", "ok")?;
    other.must("try w 4294967295 1", "ok")?;
    other.must("try w 4294967296 1", "held")?;
    one.must(&format!("try w {last} 1"), "ok")?;
    other.must(&format!("try w {} 0", last - 1), "held")?;
    other.must(&format!("try w {} 1", last - 1), "ok")
}

fn waiting(file: &Path) -> io::Result<()> {
    let mut all = [Helper::new(file)?, Helper::new(file)?, Helper::new(file)?];
    all[0].must("try w 0 10", "ok")?;
    all[1].order("wait r 5 1")?;
    all[2].order("wait r 6 1")?;
    all[0].must("unlock x 5 1", "ok")?;
    expect(&all[1].answer()?, "ok")?;
    all[0].must("try r 0 10", "ok")?;
    expect(&all[2].answer()?, "ok")
}

fn expect(said: &str, expected: &str) -> io::Result<()> {
    if said == expected { Ok(()) } else { Err(io::Error::other(format!("{said}, not {expected}"))) }
}

fn deadlock(file: &Path) -> io::Result<()> {
    let (mut one, mut other) = (Helper::new(file)?, Helper::new(file)?);
    one.must("try w 0 1", "ok")?;
    other.must("try w 1 1", "ok")?;
    one.order("wait w 1 1")?;
    other.order("wait w 0 1")?;
    // The last to wait is told; when that one gives up, the other goes on.
    let (mut last, mut first) = if is_first_to_answer(&one, &other)? { (one, other) } else { (other, one) };
    expect(&last.answer()?, "deadlock")?;
    last.must("unlock x 0 0", "ok")?;
    expect(&first.answer()?, "ok")
}

/// True if `one` has an answer, once one of them has.
fn is_first_to_answer(one: &Helper, other: &Helper) -> io::Result<bool> {
    let ready =
        |helper: &Helper| libc::pollfd { fd: helper.answers.get_ref().as_raw_fd(), events: libc::POLLIN, revents: 0 };
    let mut ready = [ready(one), ready(other)];
    // SAFETY: two descriptors that are open, in an array that outlives the call.
    let count = unsafe { libc::poll(ready.as_mut_ptr(), 2, -1) };
    if count < 0 { Err(io::Error::last_os_error()) } else { Ok(ready[0].revents != 0) }
}

fn closing(file: &Path) -> io::Result<()> {
    let (mut one, mut other) = (Helper::new(file)?, Helper::new(file)?);
    one.must("try w 0 0", "ok")?;
    other.order("wait w 0 0")?;
    one.must("close", "ok")?;
    expect(&other.answer()?, "ok")
}

fn ending(file: &Path) -> io::Result<()> {
    let (mut one, mut other) = (Helper::new(file)?, Helper::new(file)?);
    one.must("try w 0 0", "ok")?;
    other.order("wait w 0 0")?;
    drop(one);
    expect(&other.answer()?, "ok")
}
