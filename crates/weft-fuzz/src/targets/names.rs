//! Names as they come from the kernel, the intent log and the database.
use weft_store::{NAME_BYTES_MAX, Name};

/// Takes any bytes as what this is about.
pub fn run(bytes: &[u8]) {
    let length_fits = (1..=NAME_BYTES_MAX).contains(&bytes.len());
    let is_attribute = length_fits && !bytes.contains(&0);
    let is_entry = is_attribute && !bytes.contains(&b'/') && bytes != b"." && bytes != b"..";
    let entry = Name::new(bytes);
    assert_eq!(entry.is_ok(), is_entry);
    let attribute = Name::of_xattr(bytes);
    assert_eq!(attribute.is_ok(), is_attribute);
    for name in entry.into_iter().chain(attribute) {
        assert_eq!(name.as_bytes(), bytes);
    }
}
