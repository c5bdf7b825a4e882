//! Many small files in one directory, by plain system calls.

use crate::place::Place;
use crate::scale::Scale;
use crate::timing::time;
use anyhow::{Result, ensure};
use rustix::fd::OwnedFd;
use rustix::fs::{AtFlags, CWD, Mode, OFlags};
use std::ffi::CString;
use std::process::Command;

const DATA: [u8; 4096] = [0x5a; 4096];

/// A directory of `count` names, opened.
struct Directory {
    fd: OwnedFd,
    names: Vec<CString>,
}

impl Directory {
    fn fresh(place: &Place, count: usize) -> Result<Directory> {
        let path = place.fresh("files")?;
        let fd = rustix::fs::openat(CWD, &path, OFlags::RDONLY | OFlags::DIRECTORY, Mode::empty())?;
        let names = (0..count).map(|i| CString::new(format!("file{i:07}"))).collect::<Result<_, _>>()?;
        Ok(Directory { fd, names })
    }

    fn filled(place: &Place, count: usize, data: &[u8]) -> Result<Directory> {
        let directory = Directory::fresh(place, count)?;
        directory.names.iter().try_for_each(|name| directory.make(name, data))?;
        Ok(directory)
    }

    fn make(&self, name: &CString, data: &[u8]) -> Result<()> {
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL;
        let file = rustix::fs::openat(&self.fd, name, flags, Mode::from_raw_mode(0o644))?;
        if !data.is_empty() {
            ensure!(rustix::io::write(&file, data)? == data.len(), "a short write");
        }
        Ok(())
    }

    /// Calls a second of `call` on each name.
    fn rate(&self, mut call: impl FnMut(&CString) -> Result<()>) -> Result<f64> {
        let taken = time(|| self.names.iter().try_for_each(&mut call))?;
        Ok(self.names.len() as f64 / taken.as_secs_f64())
    }
}

pub(super) fn create(place: &Place, scale: &Scale) -> Result<f64> {
    let directory = Directory::fresh(place, scale.count)?;
    let rate = directory.rate(|name| directory.make(name, &[]))?;
    ensure!(std::fs::read_dir(place.work.join("files"))?.count() == scale.count, "files are missing");
    place.retire("files")?;
    Ok(rate)
}

pub(super) fn create_write(place: &Place, scale: &Scale) -> Result<f64> {
    let directory = Directory::fresh(place, scale.count)?;
    let rate = directory.rate(|name| directory.make(name, &DATA))?;
    let last = place.work.join("files").join(format!("file{:07}", scale.count - 1));
    ensure!(std::fs::read(last)? == DATA, "content is wrong");
    place.retire("files")?;
    Ok(rate)
}

pub(super) fn life_cycle(place: &Place, scale: &Scale) -> Result<f64> {
    let directory = Directory::fresh(place, scale.count)?;
    let rate = directory.rate(|name| {
        directory.make(name, &DATA)?;
        Ok(rustix::fs::unlinkat(&directory.fd, name, AtFlags::empty())?)
    })?;
    place.retire("files")?;
    Ok(rate)
}

pub(super) fn stat(place: &Place, scale: &Scale) -> Result<f64> {
    let directory = Directory::filled(place, scale.count, &[])?;
    let rate = directory.rate(|name| {
        ensure!(rustix::fs::statat(&directory.fd, name, AtFlags::empty())?.st_size == 0, "size is wrong");
        Ok(())
    })?;
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
    ensure!(buffer == DATA, "content is wrong");
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
    let rate = directory.rate(|name| Ok(rustix::fs::unlinkat(&directory.fd, name, AtFlags::empty())?))?;
    ensure!(std::fs::read_dir(place.work.join("files"))?.next().is_none(), "files are left");
    place.retire("files")?;
    Ok(rate)
}
