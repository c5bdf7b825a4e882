//! Orders to the daemon of a mounted volume: attributes that it accepts only with a nonce
//! ([`weft_vfs::Nonces`]).

use rustix::fs::XattrFlags;
use rustix::io::Errno;
use std::path::Path;
use weft_attributes::Attribute;
use weft_vfs::Nonce;

/// Orders the daemon to set what `attribute` of `directory` controls to `value`. `OPNOTSUPP` if the
/// mount takes no such order, or its daemon is of another version of Weft.
pub fn order(directory: &Path, attribute: Attribute<'_>, value: &[u8]) -> rustix::io::Result<()> {
    let mut nonce = Nonce::default();
    let len = rustix::fs::getxattr(directory, Attribute::Nonce.name(), &mut nonce[..]);
    if len.map_err(|error| if error == Errno::NODATA { Errno::OPNOTSUPP } else { error })? != nonce.len() {
        return Err(Errno::OPNOTSUPP);
    }
    rustix::fs::setxattr(directory, attribute.name(), &[&nonce[..], value].concat(), XattrFlags::empty())
}
