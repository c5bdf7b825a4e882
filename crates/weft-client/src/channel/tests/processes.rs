//! Ends in processes of their own, which are killed at every step that they take.

use super::*;
use rustix::process::{Signal, getpid, kill_process};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::process::{Child, Command, Stdio};

const ROLE: &str = "WEFT_TEST_CHANNEL_ROLE";
const STEPS: &str = "WEFT_TEST_CHANNEL_STEPS";

/// Descriptor number of a child's second socket.
const SECOND: i32 = 200;

/// Runs this program again as `role`, to kill itself at the step `steps` that it takes.
fn spawn(role: &str, steps: u64, sockets: [Option<OwnedFd>; 2]) -> Child {
    let [first, second] = sockets;
    let mut command = Command::new(std::env::current_exe().unwrap());
    command
        .args(["--exact", "channel::tests::processes::child", "--test-threads", "1"])
        .env(ROLE, role)
        .env(STEPS, steps.to_string())
        .stdin(first.map_or(Stdio::null(), Stdio::from))
        .stdout(Stdio::null())
        .stderr(Stdio::inherit());
    let duplicate = move || match &second {
        Some(second) => {
            let mut place = std::mem::ManuallyDrop::new(unused(SECOND));
            rustix::io::dup2(second, &mut place).map_err(io::Error::from)
        }
        None => Ok(()),
    };
    // SAFETY: between fork(2) and exec(2) it makes one system call.
    unsafe { command.pre_exec(duplicate) }.spawn().unwrap()
}

/// The descriptor `number`, which is this caller's alone.
fn unused(number: i32) -> OwnedFd {
    use std::os::fd::FromRawFd;
    // SAFETY: nothing else in a process of this test uses this number.
    unsafe { OwnedFd::from_raw_fd(number) }
}

/// Content of rope `number`. All of them together are more than may be under way.
fn contents(number: usize) -> Vec<u8> {
    match number % 4 {
        0 => bytes(number as u64, 3000),
        1 => Vec::new(),
        2 => bytes(2, PLACE_BYTES),
        _ => bytes(number as u64, 10),
    }
}

const ROPES: usize = 80;

/// All of them; those of a place are sent again and again.
fn send_all(sender: &mut Sender) -> io::Result<()> {
    let mut place = sender.place()?;
    place.copy_from_slice(&contents(2));
    let place = place.freeze(PLACE_BYTES);
    (0..ROPES).try_for_each(|number| {
        sender.send(if number % 4 == 2 { Rope::from(place.whole()) } else { Rope::from(contents(number)) })
    })
}

/// Returns the number of ropes that come as they should before the end, and the end.
fn receive_all(receiver: &mut Receiver) -> (usize, io::Result<()>) {
    let (mut count, mut kept) = (0, Rope::new());
    loop {
        match receiver.receive() {
            Ok(Some(rope)) => {
                assert!(rope.to_vec() == contents(count), "rope {count} is wrong");
                count += 1;
                if count % 7 == 0 {
                    kept = rope;
                }
            }
            Ok(None) => return (count, Ok(())),
            Err(error) => return (count, Err(error)),
        }
        assert!(kept.len() <= PLACE_BYTES);
    }
}

/// Runs a child's role. It does nothing where this is one test among others.
#[test]
fn child() {
    let Ok(role) = std::env::var(ROLE) else { return };
    let steps: u64 = std::env::var(STEPS).unwrap().parse().unwrap();
    let first = || io::stdin().as_fd().try_clone_to_owned().unwrap();
    LEFT.with(|left| left.set(steps));
    match role.as_str() {
        "sender" => {
            let socket = first();
            close_stdin();
            let mut sender = Sender::of(socket).unwrap();
            if send_all(&mut sender).is_ok() {
                let _ = sender.finish();
            }
        }
        "receiver" => {
            let socket = first();
            close_stdin();
            let _ = receive_all(&mut Receiver::of(socket).unwrap());
        }
        "middle" | "dying middle" => {
            let socket = first();
            close_stdin();
            let (mut receiver, mut sender) = (Receiver::of(socket).unwrap(), Sender::of(unused(SECOND)).unwrap());
            let mut result = Ok(());
            while result.is_ok() {
                match receiver.receive() {
                    Ok(Some(rope)) => result = sender.send(rope),
                    Ok(None) => return drop(sender.finish()),
                    Err(error) => result = Err(error),
                }
                if role == "dying middle" {
                    kill_process(getpid(), Signal::KILL).unwrap();
                }
            }
        }
        _ => panic!("there is no such role"),
    }
}

fn close_stdin() {
    rustix::stdio::dup2_stdin(std::fs::File::open("/dev/null").unwrap()).unwrap();
}

/// True if a child that was to kill itself ended before it came to that.
fn has_ended(mut child: Child) -> bool {
    let status = child.wait().unwrap();
    assert!(status.success() || status.signal() == Some(Signal::KILL.as_raw()), "{status}");
    status.success()
}

/// Kills at the first step, at the second, and so on until it ends before that.
fn every_step(mut ends_at: impl FnMut(u64) -> bool) {
    let mut steps = 1;
    while !ends_at(steps) {
        steps += 1;
        assert!(steps < 100_000, "it never ends");
    }
    println!("it took about {steps} steps");
    assert!(steps > 100, "every rope takes some");
}

#[test]
fn a_sender_killed_at_any_step_is_an_error_after_right_ropes() {
    every_step(|steps| {
        let (sender, receiver) = sockets().unwrap();
        let child = spawn("sender", steps, [Some(sender), None]);
        let (count, end) = receive_all(&mut Receiver::of(receiver).unwrap());
        match end {
            Ok(()) => assert_eq!(count, ROPES),
            Err(error) => assert_eq!(error.kind(), io::ErrorKind::ConnectionReset, "{error}"),
        }
        has_ended(child)
    });
}

#[test]
fn a_receiver_killed_at_any_step_is_an_error_for_the_sender() {
    every_step(|steps| {
        let (sender, receiver) = sockets().unwrap();
        let child = spawn("receiver", steps, [Some(receiver), None]);
        let mut sender = Sender::of(sender).unwrap();
        let sent = send_all(&mut sender).and_then(|()| sender.finish());
        assert!(sent.is_ok() || sent.is_err_and(|error| error.kind() == io::ErrorKind::BrokenPipe));
        has_ended(child)
    });
}

#[test]
fn a_process_in_the_middle_killed_at_any_step_is_an_error_at_both_ends() {
    every_step(|steps| {
        let (sender, first) = sockets().unwrap();
        let (second, receiver) = sockets().unwrap();
        let child = spawn("middle", steps, [Some(first), Some(second)]);
        let thread = std::thread::spawn(move || {
            let mut sender = Sender::of(sender).unwrap();
            send_all(&mut sender).and_then(|()| sender.finish())
        });
        let (count, end) = receive_all(&mut Receiver::of(receiver).unwrap());
        let sent = thread.join().unwrap();
        assert!(sent.as_ref().is_ok() || sent.as_ref().is_err_and(|error| error.kind() == io::ErrorKind::BrokenPipe));
        match end {
            Ok(()) => assert_eq!(count, ROPES),
            Err(error) => assert_eq!(error.kind(), io::ErrorKind::ConnectionReset, "{error}"),
        }
        has_ended(child)
    });
}

/// The lender, a sender, a process in the middle that dies, and who reads at last.
#[test]
fn memory_is_not_given_back_while_the_last_receiver_reads_though_the_middle_is_dead() {
    let (sender, first) = sockets().unwrap();
    let (second, receiver) = sockets().unwrap();
    let child = spawn("dying middle", u64::MAX, [Some(first), Some(second)]);
    let (guard, lender) = std::io::pipe().unwrap();
    let kept = Arc::new(());
    let block = lent(&bytes(3, 5000), guard.into(), kept.clone());
    let (mut sender, mut receiver) = (Sender::of(sender).unwrap(), Receiver::of(receiver).unwrap());
    sender.send(Rope::from(block.whole())).unwrap();
    drop(block);
    let rope = receiver.receive().unwrap().expect("it was sent on");
    assert!(!has_ended(child));
    assert_eq!(receiver.receive().unwrap_err().kind(), io::ErrorKind::ConnectionReset);
    let until_gone = (0..=WINDOW_BYTES).find_map(|_| sender.send(Rope::new()).err());
    assert_eq!(until_gone.expect("nobody receives").kind(), io::ErrorKind::BrokenPipe, "the guard does not hide that");
    drop(sender);
    held::sweep();
    assert_eq!(Arc::strong_count(&kept), 2, "the sender must not give it back");
    assert!(!socket::is_gone(lender.as_fd()).unwrap(), "nor must the lender take it");
    assert_eq!(rope.to_vec(), bytes(3, 5000));
    drop((rope, receiver));
    eventually("the sender gives it back", || Arc::strong_count(&kept) == 1);
    eventually("the lender may take it", || socket::is_gone(lender.as_fd()).unwrap());
}
