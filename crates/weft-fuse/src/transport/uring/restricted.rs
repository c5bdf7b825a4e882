//! A ring that does nothing but what the transport takes. Filters of system calls (seccomp) do not
//! see what a ring is told to do, so code that an attacker has run in the daemon could open and
//! connect by it what it may not by system calls.

use io_uring::register::Restriction;
use io_uring::squeue::{Entry128, Flags};
use io_uring::{IoUring, cqueue, opcode};
use rustix::fd::{AsRawFd, BorrowedFd};
use std::io;

/// The ring of a queue.
pub(super) type Ring = IoUring<Entry128, cqueue::Entry>;

/// A ring of the calling thread with room for `size` commands, and `device` as its file 0. For good
/// it takes commands about `device`, and polls; nothing can be registered with it any more
/// (io_uring_register(2), `IORING_REGISTER_RESTRICTIONS`, Linux 5.10).
pub(super) fn ring(device: BorrowedFd<'_>, size: u32) -> io::Result<Ring> {
    let mut builder = IoUring::builder();
    builder.setup_single_issuer().setup_defer_taskrun().setup_r_disabled();
    let ring: Ring = builder.build(size)?;
    let submitter = ring.submitter();
    submitter.register_files(&[device.as_raw_fd()])?;
    let mut allowed = [
        Restriction::sqe_op(opcode::UringCmd80::CODE),
        Restriction::sqe_op(opcode::PollAdd::CODE),
        Restriction::sqe_flags_allowed(Flags::FIXED_FILE.bits()),
    ];
    submitter.register_restrictions(&mut allowed)?;
    submitter.register_enable_rings()?;
    Ok(ring)
}

#[cfg(test)]
mod tests {
    use super::*;
    use io_uring::{squeue, types};
    use rustix::fd::AsFd;
    use std::fs::File;

    /// What comes of `command`.
    fn result(ring: &mut Ring, command: impl Into<Entry128>) -> i32 {
        // SAFETY: the commands of the test name no memory.
        unsafe { ring.submission().push(&command.into()) }.unwrap();
        ring.submit_and_wait(1).unwrap();
        ring.completion().next().unwrap().result()
    }

    #[test]
    fn a_ring_takes_the_commands_of_the_transport_alone() {
        let file = File::open("/dev/null").unwrap();
        let mut ring = match ring(file.as_fd(), 4) {
            Ok(ring) => ring,
            Err(error) => {
                return eprintln!("SKIPPED a_ring_takes_the_commands_of_the_transport_alone: no io_uring: {error}");
            }
        };
        let poll = || opcode::PollAdd::new(types::Fixed(0), libc::POLLIN as u32).build();
        assert!(result(&mut ring, poll()) >= 0);
        for refused in [
            opcode::Nop::new().build(),
            opcode::Close::new(types::Fd(file.as_raw_fd())).build(),
            poll().flags(squeue::Flags::ASYNC),
        ] {
            assert_eq!(result(&mut ring, refused), -libc::EACCES);
        }
        // That may be an error of the file's, which knows no commands, but none of the ring's.
        assert_ne!(result(&mut ring, opcode::UringCmd80::new(types::Fixed(0), 1).build()), -libc::EACCES);
        let more = ring.submitter().register_files(&[file.as_raw_fd()]).unwrap_err();
        assert_eq!(more.raw_os_error(), Some(libc::EACCES));
    }
}
