//! Gives files their names, many at a time, when all their bytes are on the disk.

use super::unfinished::Unfinished;
use super::{First, IN_THE_WAY};
use crate::command::transfer::{Transfer, What};
use parking_lot::Mutex;
use rustix::io::Errno;
use std::collections::HashMap;
use weft_store::Ino;

/// Most files that wait for the disk together: each is open until then.
const FILES_MAX: usize = 256;
/// Most bytes of these files.
const BYTES_MAX: u64 = 256 << 20;
/// Number of files from which on the whole file system is synced instead of each file.
const FILES_MANY: usize = 64;

/// Files whose content is written, and files that have got their names.
pub struct Finish<'a> {
    transfer: &'a Transfer,
    waiting: Mutex<(Vec<Unfinished>, u64)>,
    /// A name of each exported file that has several.
    named: Mutex<HashMap<Ino, First>>,
}

impl Finish<'_> {
    pub fn new(transfer: &Transfer) -> Finish<'_> {
        Finish { transfer, waiting: Mutex::default(), named: Mutex::default() }
    }

    /// Returns a name of an exported file that has several.
    pub fn named(&self, ino: Ino) -> Option<First> {
        self.named.lock().get(&ino).cloned()
    }

    /// Remembers a name of an exported file.
    pub fn name(&self, ino: Ino, first: First) {
        self.named.lock().entry(ino).or_insert(first);
    }

    /// Takes a file whose content and attributes are written.
    pub fn add(&self, file: Unfinished) {
        let full = {
            let (files, bytes) = &mut *self.waiting.lock();
            *bytes += file.attributes.size;
            files.push(file);
            if files.len() < FILES_MAX && *bytes < BYTES_MAX {
                return;
            }
            *bytes = 0;
            std::mem::take(files)
        };
        self.finish(full);
    }

    /// Gives all waiting files their names.
    pub fn finish_all(&self) {
        let (files, _) = std::mem::take(&mut *self.waiting.lock());
        self.finish(files);
    }

    fn finish(&self, files: Vec<Unfinished>) {
        let synced = sync(&files);
        for (file, synced) in files.into_iter().zip(synced) {
            let (directory, name) = (file.directory().way().clone(), file.name.clone());
            let path = || directory.below(&name).path();
            let first = First { directory: directory.clone(), name: name.clone() };
            let finished = synced.and_then(|()| file.finish());
            match finished {
                Ok(attributes) => {
                    if attributes.nlink > 1 {
                        self.name(attributes.ino, first);
                    }
                    self.transfer.progress.file(attributes.size);
                }
                Err(Errno::EXIST) => self.transfer.fail(What::File, &path(), IN_THE_WAY),
                Err(error) => self.transfer.fail_with(What::File, &path(), "not exported", &error.into()),
            }
        }
    }
}

/// Waits until the files are on the disk. Returns for each whether it is.
fn sync(files: &[Unfinished]) -> Vec<Result<(), Errno>> {
    if files.len() >= FILES_MANY && sync_file_systems(files) {
        return vec![Ok(()); files.len()];
    }
    // All are on their way before the first is waited for.
    files.iter().for_each(Unfinished::begin_sync);
    files.iter().map(rustix::fs::fsync).collect()
}

/// Syncs each file system that a file lies in. False if one could not be synced.
fn sync_file_systems(files: &[Unfinished]) -> bool {
    let mut devices = Vec::new();
    files.iter().all(|file| match rustix::fs::fstat(file) {
        Ok(stat) if devices.contains(&stat.st_dev) => true,
        Ok(stat) => {
            devices.push(stat.st_dev);
            rustix::fs::syncfs(file).is_ok()
        }
        Err(_) => false,
    })
}
