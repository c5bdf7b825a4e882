//! One large file from end to end.

use crate::arguments::Arguments;
use crate::place::Place;
use crate::timing::time;
use anyhow::{Result, ensure};
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

fn megabytes(arguments: &Arguments) -> f64 {
    (arguments.size * CHUNK) as f64 / 1e6
}

fn path(place: &Place) -> PathBuf {
    place.work.join("stream")
}

fn write(place: &Place, arguments: &Arguments) -> Result<f64> {
    let chunk = chunk(0);
    let taken = time(|| {
        let mut file = File::create(path(place))?;
        for _ in 0..arguments.size {
            file.write_all(&chunk)?;
        }
        Ok(file.sync_all()?)
    })?;
    Ok(megabytes(arguments) / taken.as_secs_f64())
}

/// The file, written unless it is there.
fn kept(place: &Place, arguments: &Arguments) -> Result<()> {
    let there = path(place).metadata().is_ok_and(|metadata| metadata.len() == (arguments.size * CHUNK) as u64);
    if there { Ok(()) } else { write(place, arguments).map(|_| ()) }
}

fn read(place: &Place, arguments: &Arguments) -> Result<f64> {
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
    ensure!(total == arguments.size * CHUNK, "read {total} bytes");
    let mut last = vec![0; CHUNK];
    File::open(path(place))?.read_exact_at(&mut last, ((arguments.size - 1) * CHUNK) as u64)?;
    ensure!(last == chunk(0), "content is wrong");
    Ok(megabytes(arguments) / taken.as_secs_f64())
}

pub(super) fn write_sync(place: &Place, arguments: &Arguments) -> Result<f64> {
    if path(place).exists() {
        std::fs::remove_file(path(place))?;
    }
    rustix::fs::sync();
    write(place, arguments)
}

pub(super) fn read_cold(place: &Place, arguments: &Arguments) -> Result<f64> {
    kept(place, arguments)?;
    place.make_cold()?;
    read(place, arguments)
}

pub(super) fn read_warm(place: &Place, arguments: &Arguments) -> Result<f64> {
    kept(place, arguments)?;
    read(place, arguments)?;
    read(place, arguments)
}

pub(super) fn mmap_read(place: &Place, arguments: &Arguments) -> Result<f64> {
    kept(place, arguments)?;
    let file = File::open(path(place))?;
    let len = arguments.size * CHUNK;
    let mut sum = 0u64;
    let taken = time(|| {
        // SAFETY: a fresh mapping of `len` bytes, only read, and unmapped below before anything else.
        let address = unsafe {
            rustix::mm::mmap(
                std::ptr::null_mut(),
                len,
                rustix::mm::ProtFlags::READ,
                rustix::mm::MapFlags::SHARED,
                &file,
                0,
            )
        }?;
        // SAFETY: the file has `len` bytes and nobody changes it meanwhile.
        let bytes = unsafe { std::slice::from_raw_parts(address.cast::<u8>(), len) };
        sum = bytes.iter().step_by(512).map(|byte| u64::from(*byte)).sum();
        // SAFETY: mapped above, and `bytes` is used no more.
        Ok(unsafe { rustix::mm::munmap(address, len) }?)
    })?;
    let expected: u64 = chunk(0).iter().step_by(512).map(|byte| u64::from(*byte)).sum();
    ensure!(sum == expected * arguments.size as u64, "content is wrong");
    Ok(megabytes(arguments) / taken.as_secs_f64())
}
