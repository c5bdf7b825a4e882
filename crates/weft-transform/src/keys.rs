//! Files of keys, among them those that stages name in a directory: for nobody but their owner to
//! read.

use std::fs::File;
use std::io::{self, Read};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

/// Most bytes of a key file.
const BYTES_MAX: u64 = 64 << 10;

/// Reads the key file called `name` in `directory`. `NotFound`, `PermissionDenied` (others could
/// read it, too), `InvalidData` (it is too long).
pub fn read_key(directory: &Path, name: &str) -> io::Result<Vec<u8>> {
    let said = |error: io::Error| io::Error::new(error.kind(), format!("the key '{name}': {error}"));
    read_key_file(&directory.join(name)).map_err(said)
}

/// The same of the file at `path`; its errors do not name it.
pub fn read_key_file(path: &Path) -> io::Result<Vec<u8>> {
    let file = File::open(path)?;
    if file.metadata()?.permissions().mode() & 0o077 != 0 {
        let message = "others may read it, or change it; 'chmod 600' makes it yours alone";
        return Err(io::Error::new(io::ErrorKind::PermissionDenied, message));
    }
    let mut bytes = Vec::new();
    file.take(BYTES_MAX + 1).read_to_end(&mut bytes)?;
    if bytes.len() as u64 > BYTES_MAX {
        return Err(io::Error::new(io::ErrorKind::InvalidData, "it is too long for a key"));
    }
    Ok(bytes)
}
