//! External data representation (RFC 4506): the encoding of RPC and NFS.
//!
//! Reading never copies and never believes a length: it takes from the bytes at hand or fails.
//! Everything is padded to four bytes.

/// Bytes being read. Methods return none where the bytes end too early or have invalid values.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Reader<'a>(&'a [u8]);

impl<'a> Reader<'a> {
    /// Reads `bytes` from the start.
    pub(crate) fn new(bytes: &'a [u8]) -> Reader<'a> {
        Reader(bytes)
    }

    /// Returns the bytes that have not been read.
    pub(crate) fn rest(&self) -> &'a [u8] {
        self.0
    }

    pub(crate) fn u32(&mut self) -> Option<u32> {
        let (value, rest) = self.0.split_first_chunk::<4>()?;
        self.0 = rest;
        Some(u32::from_be_bytes(*value))
    }

    pub(crate) fn u64(&mut self) -> Option<u64> {
        let (value, rest) = self.0.split_first_chunk::<8>()?;
        self.0 = rest;
        Some(u64::from_be_bytes(*value))
    }

    /// Reads a boolean: 0 or 1 and nothing else (RFC 4506 4.4).
    pub(crate) fn bool(&mut self) -> Option<bool> {
        match self.u32()? {
            0 => Some(false),
            1 => Some(true),
            _ => None,
        }
    }

    /// Reads `N` bytes; `N` is a multiple of four.
    pub(crate) fn fixed<const N: usize>(&mut self) -> Option<[u8; N]> {
        const { assert!(N.is_multiple_of(4), "padding is not read") };
        let (value, rest) = self.0.split_first_chunk::<N>()?;
        self.0 = rest;
        Some(*value)
    }

    /// Reads bytes with their number before them, `max` at most.
    pub(crate) fn opaque(&mut self, max: usize) -> Option<&'a [u8]> {
        let len = usize::try_from(self.u32()?).ok().filter(|len| *len <= max)?;
        let (value, rest) = self.0.split_at_checked(len)?;
        let (_padding, rest) = rest.split_at_checked(padding(len))?;
        self.0 = rest;
        Some(value)
    }

    /// Reads a value by `read`, if a boolean before it says that it is there.
    #[expect(clippy::option_option, reason = "the outer one says whether it could be read")]
    pub(crate) fn optional<T>(&mut self, read: impl FnOnce(&mut Self) -> Option<T>) -> Option<Option<T>> {
        if self.bool()? { Some(Some(read(self)?)) } else { Some(None) }
    }
}

/// Returns the number of bytes after `len` bytes that make them a multiple of four.
pub(crate) fn padding(len: usize) -> usize {
    len.wrapping_neg() & 3
}

/// Bytes being written.
#[derive(Clone, Debug, Default)]
pub(crate) struct Writer(Vec<u8>);

impl Writer {
    /// Returns the written bytes.
    pub(crate) fn into_bytes(self) -> Vec<u8> {
        self.0
    }

    /// Returns a writer that appends to `bytes`.
    pub(crate) fn after(bytes: Vec<u8>) -> Writer {
        Writer(bytes)
    }

    pub(crate) fn len(&self) -> usize {
        self.0.len()
    }

    /// Drops all bytes after the first `len`.
    pub(crate) fn truncate(&mut self, len: usize) {
        self.0.truncate(len);
    }

    pub(crate) fn u32(&mut self, value: u32) {
        self.0.extend_from_slice(&value.to_be_bytes());
    }

    pub(crate) fn u64(&mut self, value: u64) {
        self.0.extend_from_slice(&value.to_be_bytes());
    }

    pub(crate) fn bool(&mut self, value: bool) {
        self.u32(u32::from(value));
    }

    /// Writes bytes whose number both sides know, a multiple of four.
    pub(crate) fn fixed(&mut self, bytes: &[u8]) {
        debug_assert!(bytes.len().is_multiple_of(4));
        self.0.extend_from_slice(bytes);
    }

    /// Writes bytes with their length before them.
    pub(crate) fn opaque(&mut self, bytes: &[u8]) {
        self.u32(u32::try_from(bytes.len()).expect("replies are shorter than 4 GiB"));
        self.0.extend_from_slice(bytes);
        self.0.extend_from_slice(&[0; 3][..padding(bytes.len())]);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn what_is_written_reads_back(number: u32, wide: u64, truth: bool, bytes in proptest::collection::vec(any::<u8>(), 0..40)) {
            let mut writer = Writer::default();
            writer.u32(number);
            writer.u64(wide);
            writer.bool(truth);
            writer.opaque(&bytes);
            writer.fixed(b"last");
            let written = writer.into_bytes();
            prop_assert!(written.len().is_multiple_of(4));
            let mut reader = Reader::new(&written);
            prop_assert_eq!(reader.u32(), Some(number));
            prop_assert_eq!(reader.u64(), Some(wide));
            prop_assert_eq!(reader.bool(), Some(truth));
            prop_assert_eq!(reader.opaque(40), Some(bytes.as_slice()));
            prop_assert_eq!(reader.fixed(), Some(*b"last"));
            prop_assert!(reader.rest().is_empty());
        }

        #[test]
        fn a_length_is_not_believed(len: u32, bytes in proptest::collection::vec(any::<u8>(), 0..12), max in 0usize..16) {
            let mut message = len.to_be_bytes().to_vec();
            message.extend_from_slice(&bytes);
            if let Some(read) = Reader::new(&message).opaque(max) {
                prop_assert!(read.len() <= max && bytes.starts_with(read));
            }
        }
    }
}
