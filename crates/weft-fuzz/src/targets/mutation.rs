//! Operations as the intent log keeps them.
/// Takes any bytes as what this is about.
pub fn run(bytes: &[u8]) {
    weft_vfs::fuzzing::mutation(bytes);
}
