//! A large file written and deleted again and again, as in the DBFS paper: what deleting leaves
//! behind must not make the next copy slower.

use crate::place::Place;
use crate::scale::Scale;
use crate::timing::time;
use anyhow::Result;
use std::fs::File;
use std::io::{Read, Write};
use std::time::Duration;

/// Copies made, one after the other.
const ROUNDS: usize = 20;

/// Rounds at either end that are compared.
const COMPARED: usize = 5;

const CHUNK: usize = 1 << 20;

/// Names and units of what [`run`] gives.
pub(super) const PARTS: &[(&str, &str)] =
    &[("copy-delete-first", "MB/s"), ("copy-delete-last", "MB/s"), ("copy-delete-last-of-first", "of the first")];

/// The median rates of the first and of the last rounds, and their ratio.
pub(super) fn run(place: &Place, scale: &Scale) -> Result<Vec<f64>> {
    let directory = place.fresh("copies")?;
    let mut source = File::open("/dev/urandom")?;
    let mut chunk = vec![0; CHUNK];
    source.read_exact(&mut chunk)?;
    let mut rounds = Vec::new();
    for round in 0..ROUNDS {
        rounds.push(time(|| {
            let path = directory.join(format!("copy{round}"));
            let mut file = File::create(&path)?;
            for number in 0..scale.size {
                // No two blocks are alike.
                chunk[..8].copy_from_slice(&((round * scale.size + number) as u64).to_le_bytes());
                file.write_all(&chunk)?;
            }
            file.sync_all()?;
            drop(file);
            std::fs::remove_file(&path)?;
            Ok(File::open(&directory)?.sync_all()?)
        })?);
    }
    let rate = |rounds: &[Duration]| {
        let mut rounds = rounds.to_vec();
        rounds.sort_unstable();
        (scale.size * CHUNK) as f64 / 1e6 / rounds[rounds.len() / 2].as_secs_f64()
    };
    let (first, last) = (rate(&rounds[..COMPARED]), rate(&rounds[ROUNDS - COMPARED..]));
    Ok(vec![first, last, last / first])
}
