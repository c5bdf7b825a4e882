//! Asynchronous writes around the page cache, beside readers that use it (xfstests generic/451).

use crate::fixture::on_each_transport;
use std::fs::{File, OpenOptions};
use std::io::Error;
use std::os::fd::AsRawFd;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::sync::atomic::{AtomicBool, Ordering};

const BYTES: usize = 256 << 10;
const ROUNDS: u8 = 60;

/// `IOCB_CMD_PWRITE` of linux/aio_abi.h.
const PWRITE: u16 = 1;

/// `struct iocb` of linux/aio_abi.h, little endian.
#[repr(C)]
#[derive(Default)]
struct Iocb {
    data: u64,
    key: u32,
    flags: u32,
    opcode: u16,
    priority: i16,
    fd: u32,
    buffer: u64,
    len: u64,
    offset: i64,
    reserved: u64,
    more_flags: u32,
    eventfd: u32,
}

/// A context of io_setup(2).
struct Context(libc::c_ulong);

impl Context {
    fn new() -> Context {
        let mut context = Context(0);
        // SAFETY: the kernel writes the context's number to where it is kept.
        let made = unsafe { libc::syscall(libc::SYS_io_setup, 8, &raw mut context.0) };
        assert_eq!(made, 0, "{}", Error::last_os_error());
        context
    }

    /// Writes `bytes` to the beginning of `file`, and waits until that is done.
    fn write(&self, file: &File, bytes: &[u8]) {
        let mut iocb = Iocb {
            opcode: PWRITE,
            fd: file.as_raw_fd().cast_unsigned(),
            buffer: bytes.as_ptr() as u64,
            len: bytes.len() as u64,
            ..Iocb::default()
        };
        let mut list = [&raw mut iocb];
        let mut event = [0u64; 4];
        // SAFETY: what the pointers lead to lives until the write is done, for which io_getevents
        // waits; an event has 32 bytes.
        unsafe {
            assert_eq!(libc::syscall(libc::SYS_io_submit, self.0, 1, list.as_mut_ptr()), 1);
            let none = std::ptr::null_mut::<libc::timespec>();
            assert_eq!(libc::syscall(libc::SYS_io_getevents, self.0, 1, 1, event.as_mut_ptr(), none), 1);
        }
        assert_eq!(event[2], bytes.len() as u64, "all is written");
    }
}

impl Drop for Context {
    fn drop(&mut self) {
        // SAFETY: nothing is under way in it any more.
        unsafe { libc::syscall(libc::SYS_io_destroy, self.0) };
    }
}

/// Memory as direct I/O wants it.
#[repr(align(4096))]
struct Aligned([u8; BYTES]);

#[test]
fn readers_of_the_page_cache_see_what_was_written_around_it_asynchronously() {
    on_each_transport(|mounted| {
        let path = mounted.path("file");
        std::fs::write(&path, vec![0; BYTES]).expect("written");
        let around = OpenOptions::new().write(true).custom_flags(libc::O_DIRECT).open(&path).expect("opens");
        let (context, cached, ended) = (Context::new(), File::open(&path).expect("opens"), AtomicBool::new(false));
        std::thread::scope(|scope| {
            for _ in 0..2 {
                scope.spawn(|| {
                    let mut bytes = vec![0; BYTES];
                    while !ended.load(Ordering::Relaxed) {
                        cached.read_exact_at(&mut bytes, 0).expect("read");
                    }
                });
            }
            let mut bytes = Box::new(Aligned([0; BYTES]));
            let mut found = vec![0; BYTES];
            for round in 1..=ROUNDS {
                bytes.0.fill(round);
                context.write(&around, &bytes.0);
                cached.read_exact_at(&mut found, 0).expect("read");
                let stale = found.iter().filter(|byte| **byte != round).count();
                if stale > 0 {
                    ended.store(true, Ordering::Relaxed);
                    panic!("{stale} bytes are older than write {round}");
                }
            }
            ended.store(true, Ordering::Relaxed);
        });
    });
}
