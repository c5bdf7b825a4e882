//! Patterns of paths whose earlier content is not to be kept for long, such as those of build
//! trees.
//!
//! They are an extended attribute of the root that no caller can ask for (`secrets`): the patterns,
//! each behind a NUL byte but the first. `commit/excluding` acts on them.

use crate::secrets::KEPT;
use crate::volume::Vfs;
use weft_store::{CommitNo, Ino, Store};
use weft_tree::{Error, Result};

/// The name of the attribute, behind [`KEPT`].
const NAME: &str = "exclude";

/// Patterns that a volume has.
const PATTERNS_MAX: usize = 100;

/// Bytes of a pattern.
const PATTERN_BYTES_MAX: usize = 512;

/// A pattern of paths.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Exclusion {
    /// Patterns of names: of those on the way from the root, or of one name anywhere.
    names: Vec<Vec<u8>>,
    is_from_root: bool,
}

impl Exclusion {
    /// Reads a pattern.
    ///
    /// # Errors
    /// The reason that it is none.
    pub fn parse(pattern: &[u8]) -> std::result::Result<Exclusion, &'static str> {
        let names = pattern.split(|byte| *byte == b'/').filter(|name| !name.is_empty());
        let names = names.map(<[u8]>::to_vec).collect::<Vec<_>>();
        let is_any = |name: &Vec<u8>| name.iter().all(|byte| *byte == b'*');
        if names.is_empty() || names.len() == 1 && is_any(&names[0]) {
            return Err("it would be of everything");
        }
        if pattern.windows(2).any(|two| two == b"//") {
            return Err("it has two slashes together; leave one out");
        }
        if pattern.len() > PATTERN_BYTES_MAX {
            return Err("it is too long");
        }
        if pattern.contains(&0) || names.iter().any(|name| matches!(&name[..], b"." | b"..")) {
            return Err("no path has the name '.' or '..', or a zero byte in it: leave those out");
        }
        let is_other = |name: &Vec<u8>| name.starts_with(b"!") || name.contains(&b'[') || &name[..] == b"**";
        if names.iter().any(is_other) {
            return Err("of wildcards there are '*' and '?', within a name");
        }
        let is_from_root = pattern.starts_with(b"/") || names.len() > 1;
        Ok(Exclusion { names, is_from_root })
    }

    /// True if it is of the path that has these names from the root, or of a directory on the way.
    pub fn is_of(&self, path: &[&[u8]]) -> bool {
        if !self.is_from_root {
            return path.iter().any(|name| is_like(name, &self.names[0]));
        }
        path.len() >= self.names.len() && path.iter().zip(&self.names).all(|(name, like)| is_like(name, like))
    }
}

/// True if `name` is like `pattern`, in which `*` stands for any bytes and `?` for one.
fn is_like(name: &[u8], pattern: &[u8]) -> bool {
    let (mut at, mut like) = (0, 0);
    // The last star, and the bytes from which on what is behind it was tried.
    let mut star = None;
    while at < name.len() {
        match pattern.get(like) {
            Some(b'*') => {
                star = Some((like, at));
                like += 1;
            }
            Some(byte) if *byte == b'?' || *byte == name[at] => (at, like) = (at + 1, like + 1),
            Some(_) | None => {
                let Some((of, from)) = star else { return false };
                star = Some((of, from + 1));
                (at, like) = (from + 1, of + 1);
            }
        }
    }
    pattern[like..].iter().all(|byte| *byte == b'*')
}

fn split(value: &[u8]) -> Vec<Vec<u8>> {
    value.split(|byte| *byte == 0).filter(|pattern| !pattern.is_empty()).map(<[u8]>::to_vec).collect()
}

/// Returns the patterns of `store`, as of its last commit.
pub fn excluded_patterns(store: &dyn Store) -> weft_store::Result<Vec<Vec<u8>>> {
    let own = [KEPT, NAME.as_bytes()].concat();
    let value = store.xattrs(Ino::ROOT)?.into_iter().find(|(name, _)| name.as_bytes() == own);
    Ok(value.map(|(_, value)| split(&value)).unwrap_or_default())
}

impl Vfs {
    /// Has the earlier content of files whose paths are like `pattern` go soon. Returns the commit
    /// that says so. Refused if it is no pattern, or one too many.
    pub fn exclude_from_history(&self, pattern: &[u8]) -> Result<CommitNo> {
        Exclusion::parse(pattern).map_err(|why| refused(pattern, why))?;
        let mut patterns = self.exclusions()?;
        if !patterns.iter().any(|before| before == pattern) {
            if patterns.len() >= PATTERNS_MAX {
                return Err(refused(pattern, "there are 100 others"));
            }
            patterns.push(pattern.to_vec());
        }
        self.set_exclusions(&patterns)
    }

    /// Has history keep such content by its rule again. Refused if there is no such pattern.
    pub fn include_in_history(&self, pattern: &[u8]) -> Result<CommitNo> {
        let mut patterns = self.exclusions()?;
        let before = patterns.len();
        patterns.retain(|other| other != pattern);
        if patterns.len() == before {
            return Err(refused(pattern, "it was not excluded"));
        }
        self.set_exclusions(&patterns)
    }

    /// The patterns.
    pub(crate) fn exclusions(&self) -> Result<Vec<Vec<u8>>> {
        Ok(self.kept(NAME)?.map(|value| split(&value)).unwrap_or_default())
    }

    fn set_exclusions(&self, patterns: &[Vec<u8>]) -> Result<CommitNo> {
        let value = patterns.join(&0);
        self.keep(NAME, Some(&value[..]).filter(|value| !value.is_empty()))?;
        self.exclude_soon();
        self.commit_durably()
    }
}

fn refused(pattern: &[u8], why: &str) -> Error {
    weft_store::Error::Unusable(format!("'{}': {why}", String::from_utf8_lossy(pattern))).into()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn is_of(pattern: &str, path: &str) -> bool {
        let names = path.split('/').map(str::as_bytes).collect::<Vec<_>>();
        Exclusion::parse(pattern.as_bytes()).expect("a pattern").is_of(&names)
    }

    #[test]
    fn a_name_is_excluded_anywhere_and_a_path_from_the_root() {
        for (pattern, path, is) in [
            ("target", "a/target/x", true),
            ("target/", "target", true),
            ("target", "a/targets/x", false),
            ("*.o", "a/b.o", true),
            ("*.o", "a/b.c", false),
            ("/target", "target/x", true),
            ("/target", "a/target/x", false),
            ("a/*/c", "a/b/c/d", true),
            ("a/*/c", "a/b", false),
            ("a/*/c", "x/a/b/c", false),
            ("?x*z", "axyyz", true),
            ("?x*z", "xz", false),
            ("*a*b", "xaxbxb", true),
        ] {
            assert_eq!(is_of(pattern, path), is, "{pattern} and {path}");
        }
    }

    #[test]
    fn what_would_be_misunderstood_is_no_pattern() {
        for pattern in ["", "/", "*", "**", "/*/", "!a", "a/../b", "a/**/b", "[ab]", "."] {
            assert!(Exclusion::parse(pattern.as_bytes()).is_err(), "{pattern}");
        }
    }
}
