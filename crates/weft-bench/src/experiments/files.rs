//! Many small files in one directory, by plain system calls.

use crate::place::Place;
use crate::scale::Scale;
use crate::timing::time;
use anyhow::{Result, ensure};
use rustix::fd::OwnedFd;
use rustix::fs::{AtFlags, CWD, Mode, OFlags};
use std::ffi::CString;
use std::path::Path;
use std::process::Command;

const DATA: [u8; 4096] = [0x5a; 4096];

/// Names of files.
pub(super) fn names(count: usize) -> Result<Vec<CString>> {
    Ok((0..count).map(|i| CString::new(format!("file{i:07}"))).collect::<Result<_, _>>()?)
}

pub(super) fn open_directory(path: &Path) -> Result<OwnedFd> {
    Ok(rustix::fs::openat(CWD, path, OFlags::RDONLY | OFlags::DIRECTORY, Mode::empty())?)
}

pub(super) fn make(directory: &OwnedFd, name: &CString, data: &[u8]) -> Result<()> {
    let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL;
    let file = rustix::fs::openat(directory, name, flags, Mode::from_raw_mode(0o644))?;
    if !data.is_empty() {
        ensure!(rustix::io::write(&file, data)? == data.len(), "a short write");
    }
    Ok(())
}

/// Looks at an empty file.
pub(super) fn look(directory: &OwnedFd, name: &CString) -> Result<()> {
    ensure!(rustix::fs::statat(directory, name, AtFlags::empty())?.st_size == 0, "size is wrong");
    Ok(())
}

pub(super) fn remove(directory: &OwnedFd, name: &CString) -> Result<()> {
    Ok(rustix::fs::unlinkat(directory, name, AtFlags::empty())?)
}

/// A directory of `count` names, opened.
struct Directory {
    fd: OwnedFd,
    names: Vec<CString>,
}

impl Directory {
    fn fresh(place: &Place, count: usize) -> Result<Directory> {
        let path = place.fresh("files")?;
        Ok(Directory { fd: open_directory(&path)?, names: names(count)? })
    }

    fn filled(place: &Place, count: usize, data: &[u8]) -> Result<Directory> {
        let directory = Directory::fresh(place, count)?;
        directory.names.iter().try_for_each(|name| make(&directory.fd, name, data))?;
        Ok(directory)
    }

    /// Calls a second of `call` on each name.
    fn rate(&self, mut call: impl FnMut(&CString) -> Result<()>) -> Result<f64> {
        let taken = time(|| self.names.iter().try_for_each(&mut call))?;
        Ok(self.names.len() as f64 / taken.as_secs_f64())
    }
}

pub(super) fn create(place: &Place, scale: &Scale) -> Result<f64> {
    let directory = Directory::fresh(place, scale.count)?;
    let rate = directory.rate(|name| make(&directory.fd, name, &[]))?;
    ensure!(std::fs::read_dir(place.work.join("files"))?.count() == scale.count, "files are missing");
    place.retire("files")?;
    Ok(rate)
}

pub(super) fn create_write(place: &Place, scale: &Scale) -> Result<f64> {
    let directory = Directory::fresh(place, scale.count)?;
    let rate = directory.rate(|name| make(&directory.fd, name, &DATA))?;
    let last = place.work.join("files").join(format!("file{:07}", scale.count - 1));
    ensure!(std::fs::read(last)? == DATA || !place.keeps_content(), "content is wrong");
    place.retire("files")?;
    Ok(rate)
}

pub(super) fn life_cycle(place: &Place, scale: &Scale) -> Result<f64> {
    let directory = Directory::fresh(place, scale.count)?;
    let rate = directory.rate(|name| {
        make(&directory.fd, name, &DATA)?;
        remove(&directory.fd, name)
    })?;
    place.retire("files")?;
    Ok(rate)
}

pub(super) fn stat(place: &Place, scale: &Scale) -> Result<f64> {
    let directory = Directory::filled(place, scale.count, &[])?;
    let rate = directory.rate(|name| look(&directory.fd, name))?;
    place.retire("files")?;
    Ok(rate)
}

pub(super) fn open_close(place: &Place, scale: &Scale) -> Result<f64> {
    let directory = Directory::filled(place, scale.count, &[])?;
    let rate = directory.rate(|name| {
        rustix::fs::openat(&directory.fd, name, OFlags::RDONLY, Mode::empty())?;
        Ok(())
    })?;
    place.retire("files")?;
    Ok(rate)
}

pub(super) fn open_read(place: &Place, scale: &Scale) -> Result<f64> {
    let directory = Directory::filled(place, scale.count, &DATA)?;
    let mut buffer = [0; 4096];
    let mut read = |name: &CString| {
        let file = rustix::fs::openat(&directory.fd, name, OFlags::RDONLY, Mode::empty())?;
        ensure!(rustix::io::read(&file, &mut buffer)? == DATA.len(), "a short read");
        Ok(())
    };
    // Once before, so that it is warm.
    directory.rate(&mut read)?;
    let rate = directory.rate(&mut read)?;
    ensure!(buffer == DATA || !place.keeps_content(), "content is wrong");
    place.retire("files")?;
    Ok(rate)
}

pub(super) fn list(place: &Place, scale: &Scale) -> Result<f64> {
    Directory::filled(place, scale.count, &[])?;
    let mut listed = 0;
    let taken = time(|| {
        listed = std::fs::read_dir(place.work.join("files"))?.count();
        Ok(())
    })?;
    ensure!(listed == scale.count, "listed {listed} of {}", scale.count);
    place.retire("files")?;
    Ok(listed as f64 / taken.as_secs_f64())
}

/// The first `ls` of a directory, as a program.
pub(super) fn list_cold(place: &Place, scale: &Scale) -> Result<f64> {
    Directory::filled(place, scale.count, &[])?;
    place.make_cold()?;
    let directory = place.work.join("files");
    // The program itself is not what is measured.
    ensure!(Command::new("ls").arg("/").output()?.status.success(), "cannot run ls");
    let mut output = Vec::new();
    let taken = time(|| {
        output = Command::new("ls").arg(&directory).output()?.stdout;
        Ok(())
    })?;
    let listed = output.iter().filter(|byte| **byte == b'\n').count();
    ensure!(listed == scale.count, "listed {listed} of {}", scale.count);
    place.retire("files")?;
    Ok(1.0 / taken.as_secs_f64())
}

pub(super) fn unlink(place: &Place, scale: &Scale) -> Result<f64> {
    let directory = Directory::filled(place, scale.count, &[])?;
    let rate = directory.rate(|name| remove(&directory.fd, name))?;
    ensure!(std::fs::read_dir(place.work.join("files"))?.next().is_none(), "files are left");
    place.retire("files")?;
    Ok(rate)
}
