//! The block device that a directory's bytes end up on, and the bytes written to it.

use crate::mounts;
use rustix::fs::{major, minor};
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};

/// Mounts below each other that are looked through: a volume on a file system on a device.
const DEPTH_MAX: u32 = 4;

/// Bytes of a sector, whatever the device says of its own (Documentation/block/stat.rst).
const SECTOR: u64 = 512;

/// A block device.
#[derive(Clone, Debug)]
pub(crate) struct Device {
    /// Its counters.
    stat: PathBuf,
}

impl Device {
    /// Returns the device below `path`, which may lie in a volume of Weft that lies on it. None if
    /// it cannot be told, such as where files lie in memory, or elsewhere.
    pub(crate) fn below(path: &Path) -> Option<Device> {
        Device::search(path, DEPTH_MAX)
    }

    fn search(path: &Path, depth: u32) -> Option<Device> {
        let metadata = path.metadata().ok()?;
        let number = if metadata.file_type().is_block_device() { metadata.rdev() } else { metadata.dev() };
        let stat = PathBuf::from(format!("/sys/dev/block/{}:{}/stat", major(number), minor(number)));
        let device = Device { stat };
        if device.bytes_written().is_some() {
            return Some(device);
        }
        // A file system with a number of its own says what was mounted.
        let source = mounts::of(path)?.source;
        if source.is_absolute() && depth > 0 { Device::search(&source, depth - 1) } else { None }
    }

    /// Returns the bytes written to it since the machine started, by whoever.
    pub(crate) fn bytes_written(&self) -> Option<u64> {
        let counters = std::fs::read_to_string(&self.stat).ok()?;
        let sectors: u64 = counters.split_whitespace().nth(6)?.parse().ok()?;
        Some(sectors * SECTOR)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::File;
    use std::io::Write;

    #[test]
    fn what_is_synced_is_counted_where_there_is_a_device() {
        let directory = tempfile::tempdir().expect("a directory");
        let Some(device) = Device::below(directory.path()) else {
            return eprintln!("SKIPPED what_is_synced_is_counted_...: no device below {}", directory.path().display());
        };
        let before = device.bytes_written().expect("counted");
        let mut file = File::create(directory.path().join("file")).expect("made");
        file.write_all(&[7; 1 << 20]).expect("written");
        file.sync_all().expect("synced");
        assert!(device.bytes_written().expect("counted") >= before + (1 << 20));
    }

    #[test]
    fn there_is_no_device_below_what_the_kernel_makes_up() {
        assert!(Device::below(Path::new("/proc/self")).is_none());
        assert!(Device::below(Path::new("/nowhere/at/all")).is_none());
    }
}
