//! Daemons that are killed under load: all that was synced is there after the next mount.

use crate::place::{Numbers, on_each_engine};
use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{ErrorKind, Write};
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::thread;

const WRITERS: u64 = 3;

/// Content that a file may have after a kill, none if it may be gone.
#[derive(Default)]
struct Claims {
    files: BTreeMap<PathBuf, Vec<Option<Vec<u8>>>>,
    count: usize,
}

impl Claims {
    /// The file may be so from now on, or as it was.
    fn may_be(&mut self, path: &Path, content: Option<Vec<u8>>) {
        self.files.entry(path.into()).or_insert_with(|| vec![None]).push(content);
        self.count += 1;
    }

    /// The file is so, whatever happens.
    fn is(&mut self, path: &Path, content: Vec<u8>) {
        self.files.insert(path.into(), vec![Some(content)]);
        self.count += 1;
    }
}

/// Writes, syncs, renames and removes files until an error. Says what may be there before it does
/// that, and what is safe after it.
fn write(directory: &Path, seed: u64, claims: &Mutex<Claims>) -> std::io::Result<()> {
    let mut numbers = Numbers(seed);
    for number in 0.. {
        let path = directory.join(format!("{seed}-{}", number % 50));
        let len = [10, 5000, 70_000][numbers.below(3) as usize];
        let content = numbers.bytes(len);
        let new = path.with_extension("new");
        let mut file = File::create(&new)?;
        file.write_all(&content)?;
        let is_synced = numbers.below(10) < 7;
        if is_synced {
            file.sync_all()?;
        }
        drop(file);
        claims.lock().unwrap().may_be(&path, Some(content.clone()));
        fs::rename(&new, &path)?;
        if is_synced {
            File::open(directory)?.sync_all()?;
            claims.lock().unwrap().is(&path, content);
        } else if numbers.below(5) == 0 {
            claims.lock().unwrap().may_be(&path, None);
            fs::remove_file(&path)?;
        }
    }
    Ok(())
}

#[test]
fn all_that_was_synced_before_a_kill_under_load_is_there() {
    let soak = std::env::var("WEFT_SOAK").map_or(1, |factor| factor.parse().unwrap());
    on_each_engine(&[], |place, volume| {
        for round in 0..8 * soak {
            let directory = place.path(format!("m/{round}"));
            fs::create_dir(&directory).unwrap();
            File::open(&directory).unwrap().sync_all().unwrap();
            let claims = Mutex::new(Claims::default());
            thread::scope(|scope| {
                let start = |writer| {
                    scope.spawn({
                        let (directory, claims) = (&directory, &claims);
                        move || write(directory, round * WRITERS + writer + 1, claims)
                    })
                };
                let writers: Vec<_> = (0..WRITERS).map(start).collect();
                // Into the middle of work, whatever the speed.
                while claims.lock().unwrap().count < 47 + 7 * usize::try_from(round).unwrap() {
                    assert!(!writers.iter().any(|writer| writer.is_finished()), "a writer has failed");
                    thread::yield_now();
                }
                place.kill_daemon();
                for writer in writers {
                    writer.join().unwrap().unwrap_err();
                }
            });
            place.mount_again(volume, &[]);
            for (path, may_be) in claims.into_inner().unwrap().files {
                let found = match fs::read(&path) {
                    Ok(content) => Some(content),
                    Err(error) if error.kind() == ErrorKind::NotFound => None,
                    Err(error) => panic!("round {round}: {}: {error}", path.display()),
                };
                assert!(may_be.contains(&found), "round {round}: {} is not what it may be", path.display());
            }
            place.same("\"$0\" digest .", "\"$0\" digest --read .");
            place.umount();
            place.weft(&["check", "--read-data", volume]).well();
            place.mount_with(volume, &[]);
        }
    });
}
