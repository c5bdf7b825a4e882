//! Values of `system.posix_acl_*`, which programs set and the database keeps.
/// Takes any bytes as what this is about.
pub fn run(bytes: &[u8]) {
    weft_vfs::fuzzing::acl(bytes);
}
