//! One large file from end to end.

use crate::place::Place;
use crate::scale::Scale;
use crate::timing::time;
use anyhow::{Result, ensure};
use rustix::mm::{MapFlags, MsyncFlags, ProtFlags, mmap, msync, munmap};
use std::ffi::c_void;
use std::fs::File;
use std::io::{Read, Write};
use std::os::unix::fs::FileExt;
use std::path::PathBuf;

const CHUNK: usize = 1 << 20;

/// A chunk whose bytes tell which one it is.
fn chunk(number: usize) -> Vec<u8> {
    let mut state = number as u64 + 1;
    let mut bytes = Vec::with_capacity(CHUNK);
    while bytes.len() < CHUNK {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        bytes.extend_from_slice(&state.to_le_bytes());
    }
    bytes
}

fn megabytes(scale: &Scale) -> f64 {
    (scale.size * CHUNK) as f64 / 1e6
}

fn path(place: &Place) -> PathBuf {
    place.work.join("stream")
}

/// Has memory for the file and its copies at hand. A virtual machine may have given its free memory
/// to its host and get it back ten times slower than a disk writes: whoever came first would be
/// charged for that.
fn touch_memory(scale: &Scale) {
    let wanted = 3 * scale.size as u64 * CHUNK as u64;
    let free = rustix::system::sysinfo();
    let free = free.freeram * u64::from(free.mem_unit);
    let mut memory = vec![0u8; usize::try_from(wanted.min(free / 2)).unwrap_or(0)];
    memory.iter_mut().step_by(4096).for_each(|byte| *byte = 1);
    std::hint::black_box(&memory);
}

fn write(place: &Place, scale: &Scale) -> Result<f64> {
    let chunk = chunk(0);
    touch_memory(scale);
    let taken = time(|| {
        let mut file = File::create(path(place))?;
        for _ in 0..scale.size {
            file.write_all(&chunk)?;
        }
        Ok(file.sync_all()?)
    })?;
    Ok(megabytes(scale) / taken.as_secs_f64())
}

/// The file, written unless it is there.
fn kept(place: &Place, scale: &Scale) -> Result<()> {
    let there = path(place).metadata().is_ok_and(|metadata| metadata.len() == (scale.size * CHUNK) as u64);
    if there { Ok(()) } else { write(place, scale).map(|_| ()) }
}

fn read(place: &Place, scale: &Scale) -> Result<f64> {
    let mut buffer = vec![0; CHUNK];
    let mut total = 0;
    let taken = time(|| {
        let mut file = File::open(path(place))?;
        loop {
            match file.read(&mut buffer)? {
                0 => return Ok(()),
                read => total += read,
            }
        }
    })?;
    ensure!(total == scale.size * CHUNK, "read {total} bytes");
    let mut last = vec![0; CHUNK];
    File::open(path(place))?.read_exact_at(&mut last, ((scale.size - 1) * CHUNK) as u64)?;
    ensure!(last == chunk(0) || !place.keeps_content(), "content is wrong");
    Ok(megabytes(scale) / taken.as_secs_f64())
}

pub(super) fn write_sync(place: &Place, scale: &Scale) -> Result<f64> {
    if path(place).exists() {
        std::fs::remove_file(path(place))?;
    }
    rustix::fs::sync();
    write(place, scale)
}

/// Half of `--size` in calls of 1 MiB, without a sync.
pub(super) fn write_large(place: &Place, scale: &Scale) -> Result<f64> {
    let scale = Scale { size: scale.size.div_ceil(2), ..scale.clone() };
    let (path, chunk) = (place.work.join("large"), chunk(2));
    rustix::fs::sync();
    touch_memory(&scale);
    let taken = time(|| {
        let mut file = File::create(&path)?;
        (0..scale.size).try_for_each(|_| Ok(file.write_all(&chunk)?))
    })?;
    let mut last = vec![0; CHUNK];
    File::open(&path)?.read_exact_at(&mut last, ((scale.size - 1) * CHUNK) as u64)?;
    ensure!(last == chunk || !place.keeps_content(), "content is wrong");
    std::fs::remove_file(path)?;
    Ok(megabytes(&scale) / taken.as_secs_f64())
}

pub(super) fn read_cold(place: &Place, scale: &Scale) -> Result<f64> {
    kept(place, scale)?;
    place.make_cold()?;
    touch_memory(scale);
    read(place, scale)
}

pub(super) fn read_warm(place: &Place, scale: &Scale) -> Result<f64> {
    kept(place, scale)?;
    read(place, scale)?;
    read(place, scale)
}

pub(super) fn mmap_read(place: &Place, scale: &Scale) -> Result<f64> {
    kept(place, scale)?;
    let file = File::open(path(place))?;
    let mut mapping = Mapping::new(&file, scale.size * CHUNK, ProtFlags::READ)?;
    let mut sum = 0u64;
    let taken = time(|| {
        sum = mapping.bytes().iter().step_by(512).map(|byte| u64::from(*byte)).sum();
        Ok(())
    })?;
    let expected: u64 = chunk(0).iter().step_by(512).map(|byte| u64::from(*byte)).sum();
    ensure!(sum == expected * scale.size as u64 || !place.keeps_content(), "content is wrong");
    Ok(megabytes(scale) / taken.as_secs_f64())
}

/// Every byte of a file through a shared mapping, then msync().
pub(super) fn mmap_write(place: &Place, scale: &Scale) -> Result<f64> {
    let path = place.work.join("mapped");
    let file = File::options().read(true).write(true).create(true).truncate(true).open(&path)?;
    file.set_len((scale.size * CHUNK) as u64)?;
    let mut mapping = Mapping::new(&file, scale.size * CHUNK, ProtFlags::READ | ProtFlags::WRITE)?;
    let chunk = chunk(1);
    let taken = time(|| {
        mapping.bytes().chunks_exact_mut(CHUNK).for_each(|target| target.copy_from_slice(&chunk));
        mapping.sync()
    })?;
    drop(mapping);
    let mut last = vec![0; CHUNK];
    File::open(&path)?.read_exact_at(&mut last, ((scale.size - 1) * CHUNK) as u64)?;
    ensure!(last == chunk || !place.keeps_content(), "content is wrong");
    std::fs::remove_file(path)?;
    Ok(megabytes(scale) / taken.as_secs_f64())
}

/// A shared mapping of the start of a file.
struct Mapping {
    address: *mut c_void,
    len: usize,
}

impl Mapping {
    fn new(file: &File, len: usize, protection: ProtFlags) -> Result<Mapping> {
        // SAFETY: a fresh mapping at no particular address disturbs nothing.
        let address = unsafe { mmap(std::ptr::null_mut(), len, protection, MapFlags::SHARED, file, 0) }?;
        Ok(Mapping { address, len })
    }

    /// Its bytes; to be written only if it was mapped so.
    fn bytes(&mut self) -> &mut [u8] {
        // SAFETY: `len` bytes are mapped there, the file is that long, nobody else changes it, and
        // the slice borrows this alone.
        unsafe { std::slice::from_raw_parts_mut(self.address.cast(), self.len) }
    }

    fn sync(&self) -> Result<()> {
        // SAFETY: exactly what is mapped.
        Ok(unsafe { msync(self.address, self.len, MsyncFlags::SYNC) }?)
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: mapped by `new`, and nothing borrows from it any more.
        let unmapped = unsafe { munmap(self.address, self.len) };
        unmapped.expect("it was mapped");
    }
}
