//! What a volume keeps for protocols, so that it is known after a restart and to another daemon:
//! secrets that they sign with, clients that must hear of a restart.
//!
//! They are extended attributes, most of them of the root, under names that no caller can ask for.
//! Whoever can read the database can read them.

use crate::state::State;
use crate::volume::Vfs;
use std::borrow::Cow;
use weft_store::{Ino, Name};
use weft_tree::{ErrorKind, Mutation, ROW_BYTES, Result, Stop};

/// Begins the names of what is kept.
pub(crate) const KEPT: &[u8] = weft_store::OWN_XATTRS;

/// A secret: so many bytes that nobody guesses them.
pub type Secret = [u8; 32];

impl Vfs {
    /// Returns the value kept by `name`.
    pub fn kept(&self, name: &str) -> Result<Option<Vec<u8>>> {
        self.kept_of(Ino::ROOT, name)
    }

    /// The same, with `ino` instead of the root.
    pub fn kept_of(&self, ino: Ino, name: &str) -> Result<Option<Vec<u8>>> {
        let name = attribute(name)?;
        self.run(|state| state.kept(ino, &name))
    }

    /// Keeps `value` by `name`, with `ino` instead of the root.
    pub fn keep_of(&self, ino: Ino, name: &str, value: &[u8]) -> Result<()> {
        let name = attribute(name)?;
        self.change(|state| {
            state.tree.room(2 * ROW_BYTES)?;
            state.tree.xattrs(ino)?;
            self.put(state, ino, &name, Some(value))
        })
    }

    /// All that is kept by names that begin with `prefix`, with the rest of their names.
    pub fn all_kept(&self, prefix: &str) -> Result<Vec<(String, Vec<u8>)>> {
        let prefix = [KEPT, prefix.as_bytes()].concat();
        self.run(|state| {
            let kept = state.tree.xattrs(Ino::ROOT)?.map.iter();
            let named = kept.filter_map(|(name, value)| Some((name.as_bytes().strip_prefix(&*prefix)?, value)));
            Ok(named.map(|(name, value)| (String::from_utf8_lossy(name).into_owned(), value.clone())).collect())
        })
    }

    /// Keeps `value` by `name`, or nothing any more. Durable after [`Vfs::sync`].
    pub fn keep(&self, name: &str, value: Option<&[u8]>) -> Result<()> {
        let name = attribute(name)?;
        self.change(|state| {
            state.tree.room(2 * ROW_BYTES)?;
            if state.kept(Ino::ROOT, &name)?.as_deref() == value {
                Ok(())
            } else {
                self.put(state, Ino::ROOT, &name, value)
            }
        })
    }

    /// The volume's secret called `name`, if it has one already.
    pub fn secret(&self, name: &str) -> Result<Option<Secret>> {
        Ok(self.kept(&secret(name))?.and_then(|value| value.try_into().ok()))
    }

    /// The volume's secret called `name`; if it has none, it gets `fresh`, which is durable then.
    /// As [`Vfs::sync`].
    pub fn secret_or(&self, name: &str, fresh: Secret) -> Result<Secret> {
        if let Some(kept) = self.secret(name)? {
            return Ok(kept);
        }
        let name = attribute(&secret(name))?;
        let kept = self.change(|state| {
            state.tree.room(2 * ROW_BYTES)?;
            if let Some(kept) = state.kept(Ino::ROOT, &name)?.and_then(|value| value.try_into().ok()) {
                return Ok(kept);
            }
            self.put(state, Ino::ROOT, &name, Some(&fresh))?;
            Ok(fresh)
        })?;
        self.sync()?;
        Ok(kept)
    }

    /// Sets or removes attribute `name` of `ino`, whoever asks. One that no user sees changes no
    /// time of the inode: a copy that keeps something for itself stays a copy.
    pub(crate) fn put(&self, state: &mut State, ino: Ino, name: &Name, value: Option<&[u8]>) -> Result<(), Stop> {
        let value = value.map(Cow::Borrowed);
        let is_own = name.as_bytes().starts_with(KEPT);
        let time = if is_own { state.tree.inode(ino)?.row.ctime } else { self.now() };
        state.perform(&Mutation::Xattr { ino, name: name.clone(), value, permissions: None, time })
    }
}

impl State {
    fn kept(&mut self, ino: Ino, name: &Name) -> Result<Option<Vec<u8>>, Stop> {
        Ok(self.tree.xattrs(ino)?.map.get(name).cloned())
    }
}

fn secret(name: &str) -> String {
    format!("secret.{name}")
}

fn attribute(name: &str) -> Result<Name> {
    Name::of_xattr(&[KEPT, name.as_bytes()].concat()).map_err(|_| ErrorKind::Range.into())
}
