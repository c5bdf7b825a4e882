//! Measures a store alone: commits of many rows and of many blocks, look-ups, listing, reading
//! blocks.
//!
//! `cargo run --release -p weft-store --example rates -- DIRECTORY`; the directory is used for
//! volumes that are deleted at the end.

use std::time::Instant;
use weft_block::Rope;
use weft_store::*;

const FILES: u64 = 100_000;
const BLOCKS: u64 = 4096;
const BLOCK_BYTES: usize = 64 << 10;

fn main() -> Result<()> {
    let place = std::env::args().nth(1).unwrap_or_else(|| ".".into());
    for home in [BlockHome::Segments, BlockHome::Database] {
        let directory = tempfile::tempdir_in(&place).expect("a directory");
        let path = directory.path().join("volume");
        sqlite::create(&path, &VolumeOptions { home, ..VolumeOptions::default() }, (0, 0), Timestamp(0))?;
        let volume = sqlite::open(&path)?;
        println!("{home:?}");
        rows(&*volume.store)?;
        blocks(&*volume.store)?;
    }
    Ok(())
}

fn timed<T>(what: &str, count: u64, unit: &str, work: impl FnOnce() -> Result<T>) -> Result<T> {
    let start = Instant::now();
    let result = work()?;
    let seconds = start.elapsed().as_secs_f64();
    println!("  {what:<34} {seconds:7.3} s {:12.0} {unit}/s", count as f64 / seconds);
    Ok(result)
}

fn next(store: &dyn Store) -> Result<Batch> {
    let header = store.header()?;
    Ok(Batch { commit: header.commit.next(), counters: header.counters, ..Batch::default() })
}

fn name(number: u64) -> Name {
    Name::new(format!("file{number:07}").as_bytes()).expect("a valid name")
}

fn file(number: u64) -> InodeRow {
    let ino = Ino(1000 + number);
    InodeRow { ino, kind: Kind::File, nlink: 1, parent: Ino(0), ..InodeRow::new_root(0, 0, Timestamp(1)) }
}

fn rows(store: &dyn Store) -> Result<()> {
    let mut batch = next(store)?;
    for number in 0..FILES {
        let (ino, cookie) = (Ino(1000 + number), Cookie(1_000_000 + number));
        let row = NameRow { parent: Ino::ROOT, name: name(number), ino, kind: Kind::File, cookie };
        batch.names.push(NameChange::Put(row));
        batch.inodes.push(InodeChange::Put(file(number)));
    }
    timed("new inode and name, eventual", FILES, "files", || store.apply(&batch, Durability::Eventual))?;
    let mut update = next(store)?;
    update.inodes = (0..FILES).map(|number| InodeChange::Put(file(number))).collect();
    timed("inodes written again", FILES, "files", || store.apply(&update, Durability::Eventual))?;
    timed("names looked up", FILES, "names", || {
        (0..FILES).try_for_each(|number| store.name(Ino::ROOT, &name(number * 7919 % FILES)).map(|_| ()))
    })?;
    timed("entries listed", FILES, "entries", || {
        let mut after = Cookie(0);
        while let Some(last) = store.names(Ino::ROOT, after, 1000)?.last() {
            after = last.cookie;
        }
        Ok(())
    })?;
    timed("inodes read, 32 at a time", FILES, "inodes", || {
        (0..FILES / 32).try_for_each(|number| store.inodes(Ino(1000 + number * 32), 32).map(|_| ()))
    })?;
    let mut remove = next(store)?;
    for number in 0..FILES {
        remove.names.push(NameChange::Remove { parent: Ino::ROOT, name: name(number) });
        remove.inodes.push(InodeChange::Remove(Ino(1000 + number)));
    }
    timed("removed, durable", FILES, "files", || store.apply(&remove, Durability::Durable))?;
    Ok(())
}

fn blocks(store: &dyn Store) -> Result<()> {
    let bytes: Vec<u8> = (0..BLOCK_BYTES).map(|i| (i * 31) as u8).collect();
    let rope = Rope::from(bytes);
    let mut batch = next(store)?;
    for index in 0..BLOCKS {
        let id = BlockId(1 + index);
        let new = NewBlock::new(id, Ino(2), rope.clone(), 0);
        batch.extents.push(ExtentChange::Put {
            ino: Ino(2),
            span: Span::of_block(index, BLOCK_BYTES as u32),
            block: new.at(Place::Database),
        });
        batch.blocks.push(new);
    }
    let megabytes = BLOCKS * BLOCK_BYTES as u64 / 1_000_000;
    timed("64 KiB blocks written, durable", megabytes, "MB", || store.apply(&batch, Durability::Durable))?;
    timed("blocks read and verified, warm", megabytes, "MB", || {
        let extents = store.extents(Ino(2), 0..u64::MAX)?;
        extents.iter().try_for_each(|(_, block)| store.read_block(block, ReadMode::Blocking).map(|_| ()))
    })?;
    let mut remove = next(store)?;
    remove.extents.push(ExtentChange::Clear { ino: Ino(2), range: 0..u64::MAX });
    timed("blocks dropped, durable", megabytes, "MB", || store.apply(&remove, Durability::Durable))?;
    Ok(())
}
