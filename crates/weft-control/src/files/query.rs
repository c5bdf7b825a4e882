//! The query of a request: names and values, each once.

use crate::hexadecimal::unhex;
use weft_vfs::{Error, ErrorKind, FileId, Generation, Ino, Result};

/// A query.
pub(crate) struct Query(Vec<(String, String)>);

impl Query {
    /// Parses `text`, if it has no other names than these.
    pub(crate) fn parse(text: Option<&str>, names: &[&str]) -> Option<Query> {
        let mut pairs: Vec<(String, String)> = Vec::new();
        for pair in text.unwrap_or_default().split('&').filter(|pair| !pair.is_empty()) {
            let (name, value) = pair.split_once('=')?;
            if !names.contains(&name) || pairs.iter().any(|(there, _)| there == name) {
                return None;
            }
            pairs.push((name.into(), value.into()));
        }
        Some(Query(pairs))
    }

    /// True if it has a value of this name.
    pub(crate) fn has(&self, name: &str) -> bool {
        self.value(name).is_some()
    }

    /// The value of this name.
    pub(crate) fn value(&self, name: &str) -> Option<&str> {
        self.0.iter().find(|(there, _)| there == name).map(|(_, value)| &**value)
    }

    /// The bytes of this name; `Invalid` if it has none.
    pub(crate) fn bytes(&self, name: &str) -> Result<Vec<u8>> {
        self.value(name).and_then(unhex).ok_or_else(invalid)
    }

    /// The number of this name, if it has one. `Invalid` if that is none.
    pub(crate) fn number<N: std::str::FromStr>(&self, name: &str) -> Result<Option<N>> {
        self.value(name).map(|text| text.parse().map_err(|_| invalid())).transpose()
    }

    /// The permission bits of this name, octal, if it has some.
    pub(crate) fn permissions(&self, name: &str) -> Result<Option<u32>> {
        let bits = |text: &str| u32::from_str_radix(text, 8).ok().filter(|bits| *bits <= 0o7777);
        self.value(name).map(|text| bits(text).ok_or_else(invalid)).transpose()
    }

    /// The inode that it is of, if it says so by its id.
    pub(crate) fn id(&self) -> Result<Option<FileId>> {
        self.value("id").map(|text| file_id(text).ok_or_else(invalid)).transpose()
    }
}

/// The id of an inode, as text.
pub(crate) fn id_as_text(FileId { ino: Ino(ino), generation }: FileId) -> String {
    format!("{ino}.{generation}")
}

/// The inode of this id.
pub(crate) fn file_id(text: &str) -> Option<FileId> {
    let (ino, generation) = text.split_once('.')?;
    Some(FileId { ino: Ino(ino.parse().ok()?), generation: generation.parse::<Generation>().ok()? })
}

fn invalid() -> Error {
    ErrorKind::Invalid.into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_query_has_known_names_each_once() {
        let parsed = |text| Query::parse(Some(text), &["path", "id", "mode"]);
        let query = parsed("path=2f61&id=12.3&mode=0640").unwrap();
        assert_eq!(query.bytes("path").unwrap(), b"/a");
        assert_eq!(query.id().unwrap(), Some(FileId { ino: Ino(12), generation: 3 }));
        assert_eq!(query.permissions("mode").unwrap(), Some(0o640));
        assert!(parsed("path=&path=").is_none() && parsed("other=1").is_none() && parsed("path").is_none());
        for text in ["path=2", "path=+1", "path=zz", "path=é0"] {
            assert!(parsed(text).unwrap().bytes("path").is_err(), "{text}");
        }
        for text in ["id=1", "id=1.", "id=-1.0", "id=99999999999999999999.1"] {
            assert!(parsed(text).unwrap().id().is_err(), "{text}");
        }
        for text in ["mode=9", "mode=17777", "mode="] {
            assert!(parsed(text).unwrap().permissions("mode").is_err(), "{text}");
        }
        assert!(Query::parse(None, &[]).is_some_and(|query| !query.has("path") && query.bytes("path").is_err()));
    }
}
