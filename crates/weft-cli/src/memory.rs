//! How memory of blocks comes and goes.

/// Blocks of at least this many bytes get memory of their own, which goes back to the system when they do. Among small
/// objects they would leave gaps that nothing fits into, and the program would keep twice what it uses.
#[cfg(target_env = "gnu")]
const OWN_BYTES: libc::c_int = 32 << 10;

/// To be called first.
pub fn set_up() {
    // SAFETY: it takes no pointers, and no other thread runs yet.
    #[cfg(target_env = "gnu")]
    unsafe {
        libc::mallopt(libc::M_MMAP_THRESHOLD, OWN_BYTES);
    }
}
