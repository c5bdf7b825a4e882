//! Bounds of the records of what was taken out of history: attributes of a volume's root, of which
//! the newest stay. `weft-vfs` makes them, and a stream may bring them.

/// Begins the name of a record; the time follows, in nanoseconds, in 20 digits.
pub const FORGOTTEN: &[u8] = b"weft.forgotten.";

/// Records that a volume has, at most.
pub const FORGOTTEN_MAX: usize = 256;

/// Bytes of a record, at most.
pub const FORGOTTEN_BYTES_MAX: usize = 4 << 10;

/// Bytes of all records, at most.
pub const FORGOTTEN_TOTAL_MAX: usize = 256 << 10;
