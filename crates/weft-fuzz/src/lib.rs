//! Helpers that the fuzz targets share.

mod damage;
pub mod targets;
mod volume;

use std::path::Path;
use std::sync::Arc;
use weft_store::memory::MemoryStore;
use weft_store::{BlockHome, Store, VolumeOptions};
use weft_transform::{Network, Run, Sources};
use weft_vfs::{ManualClock, Options, Vfs};

/// Bytes that a network may make of its input before that is enough.
const OUTPUT_BYTES_MAX: usize = 1 << 20;

/// Counts the bytes that `network` makes of `sources`. `None` if it fails, or if its output exceeds
/// [`OUTPUT_BYTES_MAX`], as a few bytes can stand for very many.
pub(crate) fn bytes_given(network: &Network, sources: &mut dyn Sources) -> Option<usize> {
    let mut made = 0;
    for rope in Run::start(network, sources).ok()? {
        made += rope.ok()?.len();
        if made > OUTPUT_BYTES_MAX {
            return None;
        }
    }
    Some(made)
}

/// Small blocks, so that small inputs reach several.
pub(crate) const BLOCK_BYTES: u32 = 4096;

/// Options of every volume made here.
pub(crate) fn volume_options(home: BlockHome) -> VolumeOptions {
    VolumeOptions {
        block_size: BLOCK_BYTES,
        inline_max: 512,
        home,
        bytes_max: Some(1 << 40),
        inodes_max: Some(1000),
        digests: true,
        own_table_from: None,
    }
}

/// Options of every mount made here: no threads, little memory.
pub(crate) fn mount_options() -> Options {
    Options {
        background: false,
        dirty_bytes_max: 4 << 20,
        metadata_cache_bytes: 1 << 20,
        block_cache_bytes: 1 << 20,
        ..Options::default()
    }
}

/// Mounts `store` with the intent log at `log`, if any.
pub(crate) fn mount(store: Arc<dyn Store>, log: Option<weft_store::log::IntentLog>) -> weft_vfs::Result<Arc<Vfs>> {
    let links = weft_links::LinkOptions::default();
    weft_links::open(store, log.map(Into::into), mount_options(), links, Arc::new(ManualClock::default()))
}

/// An empty volume in memory, mounted.
pub(crate) fn memory_volume() -> Arc<Vfs> {
    mount(Arc::new(MemoryStore::new(volume_options(BlockHome::Database))), None).expect("an empty volume mounts")
}

/// A directory for files that need no disk under them.
pub(crate) fn scratch() -> tempfile::TempDir {
    let shared = Path::new("/dev/shm");
    let made = if shared.is_dir() { tempfile::tempdir_in(shared) } else { tempfile::tempdir() };
    made.expect("a directory")
}

/// Pieces of the input, each after its length in two bytes.
pub(crate) fn pieces(mut bytes: &[u8]) -> Vec<&[u8]> {
    let mut pieces = Vec::new();
    while let Some((len, rest)) = bytes.split_first_chunk::<2>() {
        let (piece, rest) = rest.split_at(rest.len().min(usize::from(u16::from_le_bytes(*len))));
        pieces.push(piece);
        bytes = rest;
    }
    pieces
}

/// Inode numbers that occur.
pub(crate) const INODES: u64 = 32;

/// Requests as the input lists them, each after its length in two bytes. Its own length and inode
/// are made to fit unless the highest bit says to leave them, since else nearly all would be
/// refused at once.
pub(crate) fn requests(mut bytes: &[u8]) -> Vec<Vec<u8>> {
    let mut requests = Vec::new();
    while let Some((len, rest)) = bytes.split_first_chunk::<2>() {
        let len = u16::from_le_bytes(*len);
        let (taken, rest) = rest.split_at(rest.len().min(usize::from(len & 0x7fff)));
        bytes = rest;
        let mut request = taken.to_vec();
        if len & 0x8000 == 0 && request.len() >= 40 {
            let len = u32::try_from(request.len()).expect("short");
            request[..4].copy_from_slice(&len.to_ne_bytes());
            let ino = u64::from_ne_bytes(request[16..24].try_into().expect("eight bytes")) % INODES;
            request[16..24].copy_from_slice(&ino.to_ne_bytes());
            request[36..38].fill(0);
        }
        requests.push(request);
    }
    requests
}
