//! A ring that does nothing but what the transport takes. System call filters (seccomp) do not see
//! the commands of a ring. Without the restriction, code of an attacker in the daemon could open
//! and connect through it what system calls may not.

use io_uring::register::Restriction;
use io_uring::squeue::{Entry128, Flags};
use io_uring::{IoUring, cqueue, opcode};
use rustix::fd::{AsRawFd, BorrowedFd};
use std::io;
use std::sync::Once;

/// The ring of a queue.
pub(super) type Ring = IoUring<Entry128, cqueue::Entry>;

/// Makes a ring of the calling thread with room for `size` commands, and `device` as its file 0.
/// Where the kernel cannot restrict it, it takes any command, and the daemon logs that once.
pub(super) fn ring(device: BorrowedFd<'_>, size: u32) -> io::Result<Ring> {
    static SAID: Once = Once::new();
    let said = |error: &io::Error| {
        SAID.call_once(|| {
            tracing::warn!("the kernel's queues (io_uring) cannot be restricted, and take any command: {error}");
        });
    };
    preferred(|| restricted(device, size), said, || unrestricted(device, size))
}

/// Returns the result of `first`, or else, after `tell` got its error, that of `other`.
fn preferred<T>(
    first: impl FnOnce() -> io::Result<T>,
    tell: impl FnOnce(&io::Error),
    other: impl FnOnce() -> io::Result<T>,
) -> io::Result<T> {
    first().or_else(|error| {
        let made = other()?;
        tell(&error);
        Ok(made)
    })
}

fn unrestricted(device: BorrowedFd<'_>, size: u32) -> io::Result<Ring> {
    let ring: Ring = IoUring::builder().setup_single_issuer().setup_defer_taskrun().build(size)?;
    ring.submitter().register_files(&[device.as_raw_fd()])?;
    Ok(ring)
}

/// Makes a ring that, for good, takes only commands about `device`, and polls; nothing can be
/// registered with it any more (io_uring_register(2), `IORING_REGISTER_RESTRICTIONS`, Linux 5.10).
fn restricted(device: BorrowedFd<'_>, size: u32) -> io::Result<Ring> {
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

    /// Runs `command` and returns its result.
    fn result(ring: &mut Ring, command: impl Into<Entry128>) -> i32 {
        // SAFETY: the commands of the test name no memory.
        unsafe { ring.submission().push(&command.into()) }.unwrap();
        ring.submit_and_wait(1).unwrap();
        ring.completion().next().unwrap().result()
    }

    #[test]
    fn a_ring_takes_the_commands_of_the_transport_alone() {
        let file = File::open("/dev/null").unwrap();
        let mut ring = match restricted(file.as_fd(), 4) {
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

    #[test]
    fn a_kernel_that_cannot_restrict_a_ring_gives_one_that_takes_any_command() {
        let refused = |number| Err(io::Error::from_raw_os_error(number));
        for number in [libc::EINVAL, libc::EPERM, libc::EOPNOTSUPP, libc::EBADFD] {
            let mut told = None;
            let made = preferred(|| refused(number), |error| told = error.raw_os_error(), || Ok("any"));
            assert_eq!((made.unwrap(), told), ("any", Some(number)));
        }
        let neither = preferred(|| refused(libc::EINVAL), |_| panic!("the other says why"), || refused(libc::ENOMEM));
        assert_eq!(neither.unwrap_err().raw_os_error(), Some(libc::ENOMEM));
        let first = preferred(|| Ok("restricted"), |_| panic!("all is well"), || panic!("there is no need"));
        assert_eq!(first.unwrap(), "restricted");
        let file = File::open("/dev/null").unwrap();
        match unrestricted(file.as_fd(), 4) {
            Ok(mut ring) => assert_eq!(result(&mut ring, opcode::Nop::new().build()), 0),
            Err(error) => eprintln!("SKIPPED the rings of a_kernel_that_cannot_restrict_a_ring: no io_uring: {error}"),
        }
    }
}
