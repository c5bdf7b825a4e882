//! Secrets that a volume keeps for protocols, so that what they sign is known after a restart and by another daemon.
//!
//! They are extended attributes of the root under names that no caller can ask for. Whoever can read the database can read them.

use crate::error::{ErrorKind, Result};
use crate::mutation::Mutation;
use crate::state::{ROW_BYTES, State};
use crate::stop::Stop;
use crate::volume::Vfs;
use std::borrow::Cow;
use weft_store::{Ino, Name};

/// Begins the names of secrets; no namespace of attributes does.
pub(crate) const SECRET: &[u8] = b"weft.secret.";

/// A secret: so many bytes that nobody guesses them.
pub type Secret = [u8; 32];

impl Vfs {
    /// The volume's secret called `name`, if it has one already.
    pub fn secret(&self, name: &str) -> Result<Option<Secret>> {
        let name = attribute(name)?;
        self.run(|state| state.secret(&name))
    }

    /// The volume's secret called `name`; if it has none, it gets `fresh`, which is durable then. As [`Vfs::sync`].
    pub fn secret_or(&self, name: &str, fresh: Secret) -> Result<Secret> {
        if let Some(kept) = self.secret(name)? {
            return Ok(kept);
        }
        let name = attribute(name)?;
        let time = self.now();
        let kept = self.change(|state| {
            state.room(2 * ROW_BYTES)?;
            if let Some(kept) = state.secret(&name)? {
                return Ok(kept);
            }
            let value = Some(Cow::Borrowed(fresh.as_slice()));
            let mutation = Mutation::Xattr { ino: Ino::ROOT, name: name.clone(), value, permissions: None, time };
            state.perform(&mutation)?;
            Ok(fresh)
        })?;
        self.sync()?;
        Ok(kept)
    }
}

impl State {
    fn secret(&mut self, name: &Name) -> Result<Option<Secret>, Stop> {
        let value = self.xattrs(Ino::ROOT)?.map.get(name);
        Ok(value.and_then(|value| value.as_slice().try_into().ok()))
    }
}

fn attribute(name: &str) -> Result<Name> {
    Name::of_xattr(&[SECRET, name.as_bytes()].concat()).map_err(|_| ErrorKind::Range.into())
}
