//! The memory that kernel and daemon share for one request of a ring
//! (`struct fuse_uring_req_header`), and the commands about it.
//!
//! The owner of an [`Entry`] may touch its memory. While the kernel has it, it lies untouched in
//! its queue; the kernel copies into it and out of it only while the queue's thread is inside
//! `io_uring_enter`.

use crate::protocol::{Reply, Request};
use io_uring::squeue::Entry128;
use io_uring::{opcode, types};
use rustix::mm::{MapFlags, ProtFlags, mmap_anonymous, munmap};
use std::ptr::NonNull;

/// Bytes for `struct fuse_in_header` or `struct fuse_out_header`.
const IN_OUT_BYTES: usize = 128;

/// Bytes for the fixed arguments of a request.
const FIXED_BYTES: usize = 128;

/// Bytes of `struct fuse_out_header`.
const OUT_HEADER_BYTES: usize = 16;

/// Offset of the payload: behind the header, on a page of its own.
const PAYLOAD_OFFSET: usize = 4096;

const CMD_REGISTER: u32 = 1;
const CMD_COMMIT_AND_FETCH: u32 = 2;

/// Start of an entry's memory.
#[repr(C)]
struct Head {
    in_out: [u8; IN_OUT_BYTES],
    fixed: [u8; FIXED_BYTES],
    flags: u64,
    commit_id: u64,
    payload_bytes: u32,
    padding: u32,
    reserved: u64,
}

const _: () = assert!(size_of::<Head>() == 288 && size_of::<Head>() <= PAYLOAD_OFFSET);
const _: () = assert!(size_of::<Entry128>() == 128);

/// The memory of one request. It takes room only once it is used.
pub(super) struct Entry {
    memory: NonNull<u8>,
    payload_bytes: usize,
}

// SAFETY: it owns its memory, as a box would.
unsafe impl Send for Entry {}

impl Entry {
    /// Makes an entry with room for `payload_bytes` of names and data.
    pub(super) fn new(payload_bytes: usize) -> rustix::io::Result<Entry> {
        let len = PAYLOAD_OFFSET + payload_bytes;
        // SAFETY: a new mapping at no particular address disturbs nothing.
        let memory = unsafe {
            mmap_anonymous(std::ptr::null_mut(), len, ProtFlags::READ | ProtFlags::WRITE, MapFlags::PRIVATE)
        }?;
        Ok(Entry { memory: NonNull::new(memory.cast()).expect("no mapping is at 0"), payload_bytes })
    }

    fn head(&self) -> &Head {
        // SAFETY: the mapping begins with a `Head`, page-aligned, of plain numbers; `self` is
        // borrowed.
        unsafe { self.memory.cast().as_ref() }
    }

    fn head_mut(&mut self) -> &mut Head {
        // SAFETY: as in `head`, and `self` is borrowed alone.
        unsafe { self.memory.cast().as_mut() }
    }

    fn payload(&self) -> &[u8] {
        // SAFETY: the mapping has this many bytes there, zeroed at first; `self` is borrowed.
        unsafe { std::slice::from_raw_parts(self.memory.as_ptr().add(PAYLOAD_OFFSET), self.payload_bytes) }
    }

    fn payload_mut(&mut self) -> &mut [u8] {
        // SAFETY: as in `payload`, and `self` is borrowed alone.
        unsafe { std::slice::from_raw_parts_mut(self.memory.as_ptr().add(PAYLOAD_OFFSET), self.payload_bytes) }
    }

    /// Returns the bytes of names and data that the kernel put here, as it says.
    pub(super) fn payload_len(&self) -> usize {
        self.head().payload_bytes as usize
    }

    /// Returns the request the kernel put here; none if it makes no sense.
    pub(super) fn request(&self) -> Option<Request<'_>> {
        let head = self.head();
        let rest = self.payload().get(..head.payload_bytes as usize)?;
        Request::of_parts(&head.in_out, &head.fixed, rest)
    }

    /// Puts a reply here.
    pub(super) fn put(&mut self, reply: &Reply) {
        let (header, small) = reply.head().split_at(OUT_HEADER_BYTES);
        let data = reply.data();
        let len = small.len() + data.len();
        if len > self.payload_bytes {
            return self.put_error(libc::EIO);
        }
        let mut at = small.len();
        let payload = self.payload_mut();
        payload[..at].copy_from_slice(small);
        weft_block::copied(data.len());
        for slice in data.slices() {
            payload[at..at + slice.len()].copy_from_slice(slice);
            at += slice.len();
        }
        let head = self.head_mut();
        head.in_out[..OUT_HEADER_BYTES].copy_from_slice(header);
        head.payload_bytes = u32::try_from(len).expect("no more than the payload holds");
    }

    /// Puts an error here as the reply to the request that is still here.
    pub(super) fn put_error(&mut self, errno: i32) {
        let head = self.head_mut();
        let header_bytes = u32::try_from(OUT_HEADER_BYTES).expect("16");
        // The number of the request is at the same place in both headers.
        head.in_out[..4].copy_from_slice(&header_bytes.to_ne_bytes());
        head.in_out[4..8].copy_from_slice(&(-errno).to_ne_bytes());
        head.payload_bytes = 0;
    }

    /// Returns the command that makes the entry known to the kernel, to be filled with a request.
    /// `buffers` must stay in place until the command is submitted.
    pub(super) fn register(&self, buffers: &mut [libc::iovec; 2], queue: u16) -> Entry128 {
        buffers[0] = libc::iovec { iov_base: self.memory.as_ptr().cast(), iov_len: size_of::<Head>() };
        // SAFETY: inside the mapping.
        let payload = unsafe { self.memory.as_ptr().add(PAYLOAD_OFFSET) };
        buffers[1] = libc::iovec { iov_base: payload.cast(), iov_len: self.payload_bytes };
        let command = opcode::UringCmd80::new(types::Fixed(0), CMD_REGISTER)
            .cmd(arguments(0, queue))
            .addr(Some(buffers.as_ptr() as u64))
            .build();
        with_len(command, 2)
    }

    /// Returns the command that gives the reply to the kernel and asks for the next request.
    pub(super) fn commit(&self, queue: u16) -> Entry128 {
        opcode::UringCmd80::new(types::Fixed(0), CMD_COMMIT_AND_FETCH)
            .cmd(arguments(self.head().commit_id, queue))
            .build()
    }
}

impl Drop for Entry {
    fn drop(&mut self) {
        // SAFETY: the mapping is this entry's own and nothing borrows from it any more. If the
        // kernel still knew it, it would find no memory there and fail the request.
        let unmapped = unsafe { munmap(self.memory.as_ptr().cast(), PAYLOAD_OFFSET + self.payload_bytes) };
        unmapped.expect("the mapping was made by this entry");
    }
}

/// `struct fuse_uring_cmd_req`.
fn arguments(commit_id: u64, queue: u16) -> [u8; 80] {
    let mut bytes = [0; 80];
    bytes[8..16].copy_from_slice(&commit_id.to_ne_bytes());
    bytes[16..18].copy_from_slice(&queue.to_ne_bytes());
    bytes
}

/// Sets the length of a command's buffer, for which the crate has no setter.
fn with_len(mut command: Entry128, len: u32) -> Entry128 {
    /// Offset of `len` in `struct io_uring_sqe`.
    const LEN_OFFSET: usize = 24;
    // SAFETY: the type is the kernel's `struct io_uring_sqe` of 128 bytes, whose bytes 24 to 27 are
    // `len`.
    unsafe { (&raw mut command).cast::<u8>().add(LEN_OFFSET).cast::<u32>().write_unaligned(len) };
    command
}

#[cfg(test)]
mod tests {
    use super::*;
    use weft_block::Rope;

    fn filled(opcode: u32, fixed: &[u8], rest: &[u8]) -> Entry {
        let mut entry = Entry::new(1 << 16).expect("memory");
        let mut header = Vec::new();
        for value in [u32::try_from(40 + fixed.len() + rest.len()).expect("small"), opcode] {
            header.extend_from_slice(&value.to_ne_bytes());
        }
        header.extend_from_slice(&7u64.to_ne_bytes());
        header.resize(40, 0);
        let head = entry.head_mut();
        head.in_out[..40].copy_from_slice(&header);
        head.fixed[..fixed.len()].copy_from_slice(fixed);
        head.payload_bytes = u32::try_from(rest.len()).expect("small");
        entry.payload_mut()[..rest.len()].copy_from_slice(rest);
        entry
    }

    #[test]
    fn names_are_read_from_the_payload_whatever_the_length_of_the_fixed_arguments() {
        let entry = filled(1, &[], b"name\0");
        let mut request = entry.request().expect("a request");
        assert_eq!(request.body.string(), Ok(&b"name"[..]));
        let entry = filled(13, &5u64.to_ne_bytes(), b"other\0");
        let mut request = entry.request().expect("a request");
        assert_eq!((request.body.u64(), request.body.string()), (Ok(5), Ok(&b"other"[..])));
    }

    #[test]
    fn a_payload_longer_than_the_memory_is_no_request() {
        let mut entry = filled(1, &[], b"name\0");
        entry.head_mut().payload_bytes = u32::MAX;
        assert!(entry.request().is_none());
    }

    #[test]
    fn small_results_and_data_follow_each_other_in_the_payload() {
        let mut entry = filled(15, &[], b"");
        let mut reply = Reply::default();
        reply.begin();
        reply.u32(1);
        reply.set_data(Rope::from(vec![2, 3]));
        reply.finish(7, 0);
        entry.put(&reply);
        assert_eq!(entry.payload()[..6], [1, 0, 0, 0, 2, 3]);
        assert_eq!(entry.head().payload_bytes, 6);
        assert_eq!(entry.head().in_out[8], 7);
    }

    #[test]
    fn a_reply_that_does_not_fit_becomes_an_error() {
        let mut entry = filled(15, &[], b"");
        let mut reply = Reply::default();
        reply.begin();
        reply.set_data(Rope::from(vec![0; (1 << 16) + 1]));
        reply.finish(7, 0);
        entry.put(&reply);
        assert_eq!(entry.head().payload_bytes, 0);
        assert_eq!(entry.head().in_out[4..8], (-libc::EIO).to_ne_bytes());
        assert_eq!(entry.head().in_out[8], 7);
    }
}
