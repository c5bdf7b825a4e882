//! The query of a request: names and values, each once.

use super::refusal::Refusal;
use crate::hexadecimal::unhex;
use weft_vfs::{FileId, Generation, Ino};

/// A query.
#[derive(Debug)]
pub(crate) struct Query(Vec<(String, String)>);

impl Query {
    /// Parses `text`, which must have no other names than these.
    pub(crate) fn parse(text: Option<&str>, names: &[&[&str]]) -> Result<Query, Refusal> {
        let mut pairs: Vec<(String, String)> = Vec::new();
        for pair in text.unwrap_or_default().split('&').filter(|pair| !pair.is_empty()) {
            let (name, value) =
                pair.split_once('=').ok_or_else(|| Refusal::senseless(format!("'{pair}' has no '='")))?;
            if !names.iter().any(|names| names.contains(&name)) {
                let known = names.concat().join(", ");
                return Err(Refusal::senseless(format!("this request has no parameter '{name}': it has {known}")));
            }
            if pairs.iter().any(|(there, _)| there == name) {
                return Err(Refusal::senseless(format!("it names '{name}' twice")));
            }
            pairs.push((name.into(), value.into()));
        }
        Ok(Query(pairs))
    }

    /// True if it has a value of this name.
    pub(crate) fn has(&self, name: &str) -> bool {
        self.value(name).is_some()
    }

    /// The value of this name.
    pub(crate) fn value(&self, name: &str) -> Option<&str> {
        self.0.iter().find(|(there, _)| there == name).map(|(_, value)| &**value)
    }

    /// The bytes of this name, which it must have.
    pub(crate) fn bytes(&self, name: &str) -> Result<Vec<u8>, Refusal> {
        let value = self.value(name).ok_or_else(|| Refusal::senseless(format!("'{name}' is missing")))?;
        unhex(value).ok_or_else(|| Refusal::senseless(format!("'{name}' is not hexadecimal")))
    }

    /// The text of this name, of which it has the bytes.
    pub(crate) fn text(&self, name: &str) -> Result<Option<String>, Refusal> {
        let text = |bytes| String::from_utf8(bytes).map_err(|_| Refusal::senseless(format!("'{name}' is not UTF-8")));
        self.value(name).map(|_| text(self.bytes(name)?)).transpose()
    }

    /// The number of this name, if it has one.
    pub(crate) fn number<N: std::str::FromStr>(&self, name: &str) -> Result<Option<N>, Refusal> {
        self.parsed(name, "no number that could be one", |text| text.parse().ok())
    }

    /// The permission bits of this name, octal, if it has some.
    pub(crate) fn permissions(&self, name: &str) -> Result<Option<u32>, Refusal> {
        let bits = |text: &str| u32::from_str_radix(text, 8).ok().filter(|bits| *bits <= 0o7777);
        self.parsed(name, "not octal permissions, such as 640", bits)
    }

    /// The inode of this name, by its id, if it has one.
    pub(crate) fn id(&self, name: &str) -> Result<Option<FileId>, Refusal> {
        self.parsed(name, "not the id of a file or directory", file_id)
    }

    fn parsed<T>(&self, name: &str, why: &str, parse: impl Fn(&str) -> Option<T>) -> Result<Option<T>, Refusal> {
        let Some(text) = self.value(name) else { return Ok(None) };
        parse(text).map(Some).ok_or_else(|| Refusal::senseless(format!("'{name}' is {why}")))
    }
}

/// The id of an inode, as text.
pub(crate) fn id_as_text(FileId { ino: Ino(ino), generation }: FileId) -> String {
    format!("{ino}.{generation}")
}

/// The inode of this id.
fn file_id(text: &str) -> Option<FileId> {
    let (ino, generation) = text.split_once('.')?;
    Some(FileId { ino: Ino(ino.parse().ok()?), generation: generation.parse::<Generation>().ok()? })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_query_has_known_names_each_once() {
        let parsed = |text| Query::parse(Some(text), &[&["path", "id"], &["mode"]]);
        let query = parsed("path=2f61&id=12.3&mode=0640").unwrap();
        assert_eq!(query.bytes("path").unwrap(), b"/a");
        assert_eq!(query.id("id").unwrap(), Some(FileId { ino: Ino(12), generation: 3 }));
        assert_eq!(query.permissions("mode").unwrap(), Some(0o640));
        for text in ["path=&path=", "other=1", "path"] {
            assert!(matches!(parsed(text), Err(Refusal::Senseless(_))), "{text}");
        }
        for text in ["path=2", "path=+1", "path=zz", "path=é0"] {
            assert!(parsed(text).unwrap().bytes("path").is_err(), "{text}");
        }
        for text in ["id=1", "id=1.", "id=-1.0", "id=99999999999999999999.1"] {
            assert!(parsed(text).unwrap().id("id").is_err(), "{text}");
        }
        for text in ["mode=9", "mode=17777", "mode="] {
            assert!(parsed(text).unwrap().permissions("mode").is_err(), "{text}");
        }
        assert!(Query::parse(None, &[]).is_ok_and(|query| !query.has("path") && query.bytes("path").is_err()));
    }
}
