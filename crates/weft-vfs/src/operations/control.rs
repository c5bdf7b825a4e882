//! Attributes by which programs control a volume, and the proof that they mean to.
//!
//! Programs that restore files set whatever attributes an archive or another file system has, and
//! the super-user runs them for others: an attribute that arrives so must do nothing. So no name
//! that [`weft_attributes::is_reserved`] can be set as others are (`NotSupported`). Those that
//! control something come through the ways of this module, and the ways in ask for a [`Nonce`]
//! first, which nothing that is restored can have. (An ioctl would ask the kernel for neither the
//! right to write to the directory nor whether the mount can be written.)

use crate::state::State;
use crate::volume::Vfs;
use weft_attributes::Attribute;
use weft_store::{Ino, Name};
use weft_tree::{ErrorKind, ROW_BYTES, Result, Stop};

/// Nonce that precedes the value of a control attribute. Only a program that asked this mount for
/// it, as the same user, knows it.
pub type Nonce = [u8; 32];

/// The nonces of a mount.
pub struct Nonces {
    secret: [u8; 32],
}

impl Nonces {
    /// Those of a mount that begins. `Io` if the system gives no random numbers.
    pub fn new() -> Result<Nonces> {
        let mut secret = [0; 32];
        let filled = rustix::rand::getrandom(&mut secret, rustix::rand::GetRandomFlags::empty());
        match filled {
            Ok(len) if len == secret.len() => Ok(Nonces { secret }),
            _ => Err(ErrorKind::Io.into()),
        }
    }

    /// The one of user `uid` for `directory`.
    pub fn of(&self, uid: u32, directory: Ino) -> Nonce {
        let asked = [&self.secret[..], &uid.to_be_bytes(), &directory.0.to_be_bytes()].concat();
        weft_digest::digest(&asked)
    }

    /// Returns the part of `value` behind the nonce of user `uid` for `directory`. `NotSupported`
    /// if `value` does not begin with that nonce.
    pub fn verified<'a>(&self, uid: u32, directory: Ino, value: &'a [u8]) -> Result<&'a [u8]> {
        let nonce = self.of(uid, directory);
        let (given, text) = value.split_at_checked(nonce.len()).ok_or(ErrorKind::NotSupported)?;
        // All of it is compared, however early it differs.
        let differs = given.iter().zip(&nonce).fold(0, |all, (one, other)| all | (one ^ other));
        if differs == 0 { Ok(text) } else { Err(ErrorKind::NotSupported.into()) }
    }
}

impl Vfs {
    /// True if the volume has opaque inodes that need to know of opens and closes.
    pub fn wants_opens(&self) -> Result<bool> {
        match self.xattr(Ino::ROOT, Attribute::Opens.name().as_bytes()) {
            Ok(_) => Ok(true),
            Err(error) if error.kind() == ErrorKind::NoAttribute => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// Notes that the volume has some.
    pub fn want_opens(&self) -> Result<()> {
        if self.wants_opens()? { Ok(()) } else { self.want_opens_from_now(true) }
    }

    /// Notes that a client goes by the lengths of files that it knows, whatever it is told: nothing
    /// but its own writes may change them, and restorations do not.
    pub fn client_keeps_lengths(&self) {
        self.keeps_lengths.store(true, std::sync::atomic::Ordering::Relaxed);
    }

    /// True if a client keeps lengths of files for itself ([`Vfs::client_keeps_lengths`]).
    pub fn keeps_lengths(&self) -> bool {
        self.keeps_lengths.load(std::sync::atomic::Ordering::Relaxed)
    }

    /// From now on the layer is told when files are opened and closed.
    pub fn tells_of_opens(&self) {
        let mut state = self.state.lock();
        state.is_told_of_opens = true;
        state.opaque.layer().told_of_opens();
    }

    /// Has mounts that begin hear of files being opened, as opaque inodes of the volume want them
    /// to, or no more.
    pub fn want_opens_from_now(&self, wanted: bool) -> Result<()> {
        match self.control(Attribute::Opens, wanted.then_some(b"1")) {
            Err(error) if error.kind() == ErrorKind::NoAttribute => Ok(()),
            done => done,
        }
    }

    /// Sets or removes an attribute of the root that controls something. `NoAttribute`, `NoSpace`.
    pub fn control(&self, attribute: Attribute<'_>, value: Option<&[u8]>) -> Result<()> {
        let name = Name::of_xattr(attribute.name().as_bytes()).map_err(|_| ErrorKind::Range)?;
        self.change(|state| {
            state.may_control(&name, value)?;
            self.put(state, Ino::ROOT, &name, value)
        })
    }

    /// Notes that the volume has opaque inodes that want to know of opens, as part of an operation
    /// that asked [`State::may_want_opens`] before it changed anything.
    pub fn put_opens(&self, state: &mut State) -> std::result::Result<(), Stop> {
        self.put(state, Ino::ROOT, &Name::of_xattr(Attribute::Opens.name().as_bytes())?, Some(b"1"))
    }
}

impl State {
    /// Makes sure that attribute `name` of the root can be set or removed.
    fn may_control(&mut self, name: &Name, value: Option<&[u8]>) -> std::result::Result<(), Stop> {
        self.tree.room(ROW_BYTES + value.map_or(0, |value| value.len() as u64))?;
        self.may_grow(0, 0)?;
        let map = &self.tree.xattrs(Ino::ROOT)?.map;
        if value.is_none() && !map.contains_key(name) {
            return Err(ErrorKind::NoAttribute.into());
        }
        Ok(super::xattrs::fits_list(map, name)?)
    }

    /// True if the volume has yet to record that it has inodes that need opens. Then the record can
    /// be made.
    pub fn may_want_opens(&mut self) -> std::result::Result<bool, Stop> {
        let name = Name::of_xattr(Attribute::Opens.name().as_bytes())?;
        if self.tree.xattrs(Ino::ROOT)?.map.contains_key(&name) {
            return Ok(false);
        }
        self.may_control(&name, Some(b"1"))?;
        Ok(true)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_nonce_is_good_for_its_user_directory_and_mount_alone() {
        let (nonces, others) = (Nonces::new().unwrap(), Nonces::new().unwrap());
        let value = [&nonces.of(1, Ino(2))[..], b"text"].concat();
        assert_eq!(nonces.verified(1, Ino(2), &value).unwrap(), b"text");
        let refused = |nonces: &Nonces, uid, ino, value: &[u8]| {
            nonces.verified(uid, Ino(ino), value).unwrap_err().kind() == ErrorKind::NotSupported
        };
        assert!(refused(&nonces, 0, 2, &value));
        assert!(refused(&nonces, 1, 3, &value));
        assert!(refused(&others, 1, 2, &value));
        assert!(refused(&nonces, 1, 2, b"text"));
        assert!(refused(&nonces, 1, 2, &value[1..]));
    }
}
