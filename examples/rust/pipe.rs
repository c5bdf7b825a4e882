//! One process makes numbers, another adds them up, and no number is copied on the way:
//! `cargo run --example pipe`.
//!
//! The first process starts this program once more, with the sending end as its standard output.

use std::io;
use std::os::fd::AsFd;
use std::process::{Command, Stdio};
use weft_client::channel::{Receiver, Sender, sockets};

const ROPES: u64 = 1000;

fn main() -> io::Result<()> {
    match std::env::args().nth(1).as_deref() {
        Some("produce") => produce(),
        _ => consume(),
    }
}

/// Fills memory that the receiver maps, and sends it.
fn produce() -> io::Result<()> {
    let mut sender = Sender::of(io::stdout().as_fd().try_clone_to_owned()?)?;
    let mut next = 0_u64;
    for _ in 0..ROPES {
        let mut place = sender.place()?;
        let mut filled = 0;
        for number in place.chunks_exact_mut(size_of::<u64>()) {
            number.copy_from_slice(&next.to_ne_bytes());
            next += 1;
            filled += number.len();
        }
        sender.send(place.freeze(filled).whole().into())?;
    }
    sender.finish()
}

/// Adds up what comes.
fn consume() -> io::Result<()> {
    let (sender, receiver) = sockets()?;
    let program = std::env::current_exe()?;
    let mut child = Command::new(program).arg("produce").stdout(Stdio::from(sender)).spawn()?;
    let mut receiver = Receiver::of(receiver)?;
    let (mut sum, mut count) = (0_u64, 0_u64);
    while let Some(rope) = receiver.receive()? {
        // One rope was one place, so its numbers lie one after the other.
        for number in rope.contiguous().chunks_exact(size_of::<u64>()) {
            sum += u64::from_ne_bytes(number.try_into().expect("eight bytes"));
            count += 1;
        }
    }
    if !child.wait()?.success() {
        return Err(io::Error::other("the producer failed"));
    }
    let is_right = sum == count * (count - 1) / 2;
    println!("{count} numbers, sum {}", if is_right { "right" } else { "wrong" });
    Ok(())
}
