//! Results that outlive those who read them, and the mount: files without a name that say, in an
//! attribute, what they are the result of.
//!
//! That is a digest of the network, and of what its targets hold: a target that is written again
//! with the same bytes, copied, or renamed, gives what was computed before. (Of a target that not
//! everybody may read this holds for the target itself alone: a link to a guess of its content
//! would confirm the guess.) Nothing else tells them from files that programs have open without a
//! name. What does not say it, or says it to other versions of the stages, is deleted as those are
//! when the volume is opened.

use crate::Version;
use crate::layer::Links;
use std::collections::HashMap;
use std::sync::Weak;
use weft_store::{Ino, Kind};
use weft_tree::{Changed, Result, Stop};
use weft_vfs::Vfs;
use weft_vfs::blocking::Wait;

/// Key of a result: a digest of its network and of the content of its targets.
pub(crate) type Key = weft_digest::Digest;

/// Attribute in which the file of a result keeps its key.
const ATTRIBUTE: &str = "memo";

/// Suffix of the key there: stages of another version may give another result.
const STAGES: &[u8] = weft_transform::VERSION.as_bytes();

/// Memoised part of a link's content.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Memo {
    /// So many bytes, the first.
    pub bytes: u64,
    /// True if that is all of the content.
    pub is_complete: bool,
}

impl Memo {
    /// As text: the bytes in decimal, and whether they are `all` or the `first`.
    pub fn encode(&self) -> Vec<u8> {
        format!("{} {}", self.bytes, if self.is_complete { "all" } else { "first" }).into_bytes()
    }

    /// Decodes the output of [`Memo::encode`]. None if `bytes` are anything else.
    pub fn decode(bytes: &[u8]) -> Option<Memo> {
        let (bytes, which) = std::str::from_utf8(bytes).ok()?.split_once(' ')?;
        let is_complete = which == "all";
        (is_complete || which == "first").then_some(Memo { bytes: bytes.parse().ok()?, is_complete })
    }
}

/// A file without a name that is there as long as this.
pub(crate) struct Nameless {
    vfs: Weak<Vfs>,
    pub(crate) ino: Ino,
}

impl Nameless {
    /// `ino`, which the caller holds, and holds no longer.
    pub(crate) fn held(vfs: &Links<'_>, ino: Ino) -> Nameless {
        Nameless { vfs: vfs.weak(), ino }
    }
}

impl Drop for Nameless {
    fn drop(&mut self) {
        if let Some(vfs) = self.vfs.upgrade() {
            vfs.release(self.ino, 1);
        }
    }
}

/// A target, as keys tell of it.
enum Target {
    File(Ino),
    Link(Ino, Version),
}

impl Links<'_> {
    /// Returns the memoised part of link `ino`'s content; none if there is none, or `ino` is no
    /// link or leads nowhere. Computes nothing. `WouldBlock`, and as reading the store.
    pub fn memo(&self, ino: Ino) -> Result<Option<Memo>> {
        let version = self.run(|state| {
            if state.tree.inode(ino)?.row.kind != Kind::Transformation {
                return Ok(None);
            }
            match state.resolve(ino) {
                Ok(resolved) => Ok(Some(resolved.version)),
                Err(Stop::Fail(_)) => Ok(None),
                Err(miss) => Err(miss),
            }
        })?;
        version.map_or(Ok(None), |version| self.layer.views.memo(self, ino, &version))
    }

    /// Returns the key of the result of `version`, to which link `ino` leads. None if there is no
    /// key for now, such as while a changed target is not committed, or ever: commands of the
    /// machine are not the same everywhere. `WouldBlock`, and as reading the store.
    pub(crate) fn memo_key(&self, ino: Ino, version: Version) -> Result<Option<Key>> {
        self.key_of(ino, version, &mut HashMap::new())
    }

    /// The same, with those that were found on the way: links may lead to the same one in many
    /// ways.
    fn key_of(&self, ino: Ino, version: Version, found: &mut HashMap<Version, Key>) -> Result<Option<Key>> {
        if let Some(key) = found.get(&version) {
            return Ok(Some(*key));
        }
        let Some((mut content, targets)) = self.made_of(ino, version)? else { return Ok(None) };
        self.may_wait(Wait::Read)?;
        for target in targets {
            let (kind, digest) = match target {
                Target::File(file) => (b'f', self.committed_digest(file)?),
                Target::Link(link, version) => (b'l', self.key_of(link, version, found)?),
            };
            let Some(digest) = digest else { return Ok(None) };
            content.push(kind);
            content.extend(digest);
        }
        // The digests are those of what the link led to all the time.
        if self.made_of(ino, version)?.is_none() {
            return Ok(None);
        }
        let key = weft_digest::digest(&content);
        found.insert(version, key);
        Ok(Some(key))
    }

    /// Returns the network of link `ino`, encoded for a digest, and its targets. None unless the
    /// link leads to `version` and everything is committed.
    fn made_of(&self, ino: Ino, version: Version) -> Result<Option<(Vec<u8>, Vec<Target>)>> {
        self.run(|state| {
            let resolved = state.resolve(ino)?;
            let link = &resolved.link;
            // What is written to it is not in its target.
            let is_drafted = state.links.drafts.get(ino).is_some();
            if resolved.version != version || is_drafted || resolved.is_secret || !link.network.is_repeatable() {
                return Ok(None);
            }
            let mut targets = Vec::new();
            for target in &resolved.targets {
                let inode = state.tree.inode(*target)?;
                match inode.row.kind {
                    Kind::Transformation => {
                        let inner = state.resolve(*target)?.version;
                        targets.push(Target::Link(*target, inner));
                    }
                    _ if inode.changed != Changed::CLEAN => return Ok(None),
                    _ => targets.push(Target::File(*target)),
                }
            }
            let network = link.definition.network.as_bytes();
            let part = link.part.map_or([0, u64::MAX], |part| [part.start, part.len]);
            let mut content = (network.len() as u64).to_le_bytes().to_vec();
            content.extend(network);
            content.extend(part.into_iter().flat_map(u64::to_le_bytes));
            if !resolved.is_for_all {
                // Else a link to a guess of what is in there would find its result, if it is right.
                content.extend(resolved.targets.iter().flat_map(|target| target.0.to_le_bytes()));
            }
            Ok(Some((content, targets)))
        })
    }

    /// Has `file` say that it is the result that `key` tells.
    pub(crate) fn mark_memo(&self, file: &Nameless, key: &Key) -> Result<()> {
        self.keep_of(file.ino, ATTRIBUTE, &[&key[..], STAGES].concat())
    }

    /// Returns the key of the result in nameless file `ino`, and the file's length. None if it
    /// holds none of this version of the stages.
    pub(crate) fn marked_memo(&self, ino: Ino) -> Result<Option<(Key, u64)>> {
        let Some(value) = self.kept_of(ino, ATTRIBUTE)? else { return Ok(None) };
        let Some((key, stages)) = value.split_first_chunk() else { return Ok(None) };
        let size = self.run(|state| Ok(state.tree.inode(ino)?.row.size))?;
        Ok((stages == STAGES).then_some((*key, size)))
    }
}
