//! Users of the machine, and taking their rights.
//!
//! Rights are each thread's own on Linux (credentials(7)): what is taken here, other threads have
//! not, but for those that this thread starts. Root uses the volume of another user with that
//! user's rights on files: whatever path the user puts in the place of another one meanwhile, root
//! reaches nothing by it that the user does not, and what root makes is that user's.

use rustix::fs::{Gid, Uid};
use rustix::process::{geteuid, getgroups};
use rustix::thread::{set_thread_groups, set_thread_res_gid, set_thread_res_uid};
use std::ffi::{CStr, CString};
use std::io::{Error, ErrorKind, Result};
use std::marker::PhantomData;
use std::mem::MaybeUninit;
use std::sync::MutexGuard;

/// Bytes that an entry of the user database has room for, its strings included.
const ENTRY_BYTES_MAX: usize = 1 << 16;
/// Most groups of a user (NGROUPS_MAX).
const GROUPS_MAX: libc::c_int = 65_536;
/// The group of nobody, for users that the machine does not know.
const NO_GROUP: u32 = 65534;

/// A user with a group, and other groups.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct User {
    uid: Uid,
    gid: Gid,
    groups: Vec<Gid>,
}

impl User {
    /// The user with these numbers, in no other group.
    #[must_use]
    pub fn new(uid: u32, gid: u32) -> User {
        User { uid: Uid::from_raw(uid), gid: Gid::from_raw(gid), groups: Vec::new() }
    }

    /// The user whom this machine knows by `name`, with the groups that it is in; none if it knows
    /// no such user.
    ///
    /// # Errors
    /// Where users come from cannot be asked, or the user is in too many groups.
    pub fn named(name: &str) -> Result<Option<User>> {
        let name = CString::new(name)?;
        look_up(|entry, strings, found| {
            // SAFETY: all pointers are to what lives until the call returns, and the length is that
            // of `strings`.
            unsafe { libc::getpwnam_r(name.as_ptr(), entry, strings.as_mut_ptr(), strings.len(), found) }
        })
    }

    /// The user with this number and the groups that this machine knows it to be in; if it knows no
    /// such user, or cannot tell, in none that anybody is in.
    #[must_use]
    pub fn numbered(uid: u32) -> User {
        let found = look_up(|entry, strings, found| {
            // SAFETY: as in `named`.
            unsafe { libc::getpwuid_r(uid, entry, strings.as_mut_ptr(), strings.len(), found) }
        });
        found.ok().flatten().unwrap_or_else(|| User::new(uid, NO_GROUP))
    }

    /// The user with number `owner`, who owns a file, if this is root and that is another user.
    #[must_use]
    pub fn other(owner: u32) -> Option<User> {
        (geteuid().is_root() && owner != 0).then(|| User::numbered(owner))
    }

    /// The user's number.
    #[must_use]
    pub fn number(&self) -> u32 {
        self.uid.as_raw()
    }

    /// Gives this thread, and no other, the rights of the user. It cannot have its own again.
    ///
    /// # Errors
    /// It may not (`EPERM`).
    pub fn take_thread(&self) -> Result<()> {
        set_thread_groups(&self.groups)?;
        set_thread_res_gid(self.gid, self.gid, self.gid)?;
        Ok(set_thread_res_uid(self.uid, self.uid, self.uid)?)
    }

    /// Gives this thread, which is root's, the rights of the user on files until what is returned
    /// is dropped (setfsuid(2)). Its groups are the user's from now on: root needs none.
    ///
    /// # Errors
    /// It may not (`EPERM`).
    pub fn take_files(&self) -> Result<Rights> {
        let before = self.switch()?;
        Ok(Rights { before: Some(before), _of_this_thread: PhantomData })
    }

    fn switch(&self) -> Result<Before> {
        if getgroups()? != self.groups {
            set_thread_groups(&self.groups)?;
        }
        let before = Before { gid: set_gid(self.gid.as_raw()), uid: set_uid(self.uid.as_raw()) };
        if (gid(), user_of_files()) == (self.gid.as_raw(), self.uid.as_raw()) {
            return Ok(before);
        }
        before.restore();
        Err(ErrorKind::PermissionDenied.into())
    }
}

/// Asks the user database by `ask`, which is given room for an entry, for its strings and for what
/// tells if one was found.
fn look_up(
    ask: impl FnOnce(*mut libc::passwd, &mut [libc::c_char], *mut *mut libc::passwd) -> libc::c_int,
) -> Result<Option<User>> {
    let mut entry = MaybeUninit::<libc::passwd>::uninit();
    let mut strings = vec![0; ENTRY_BYTES_MAX];
    let mut found = std::ptr::null_mut();
    let error = ask(entry.as_mut_ptr(), &mut strings, &raw mut found);
    // getpwnam(3): some libraries tell so that there is no such user, or no file of users.
    if !matches!(error, 0 | libc::ENOENT | libc::ENOTDIR | libc::ESRCH) {
        return Err(Error::from_raw_os_error(error));
    }
    if found.is_null() {
        return Ok(None);
    }
    // SAFETY: the call made an entry there, as `found` is not null; its strings are in `strings`.
    let (name, uid, gid) = unsafe { (CStr::from_ptr((*found).pw_name), (*found).pw_uid, (*found).pw_gid) };
    let mut groups = vec![0; GROUPS_MAX as usize];
    let mut count = GROUPS_MAX;
    // SAFETY: `count` is the length of `groups`.
    let told = unsafe { libc::getgrouplist(name.as_ptr(), gid, groups.as_mut_ptr(), &raw mut count) };
    let count = usize::try_from(count).ok().filter(|_| told >= 0);
    groups.truncate(count.ok_or_else(|| Error::other(format!("the user is in more than {GROUPS_MAX} groups")))?);
    let groups = groups.into_iter().map(Gid::from_raw).collect();
    Ok(Some(User { uid: Uid::from_raw(uid), gid: Gid::from_raw(gid), groups }))
}

/// Rights on files that this thread has until this is dropped; then it has those from before.
#[must_use]
#[derive(Debug)]
pub struct Rights {
    before: Option<Before>,
    /// They cannot be given back by another thread.
    _of_this_thread: PhantomData<MutexGuard<'static, ()>>,
}

impl Rights {
    /// Returns the rights that the thread has.
    fn own() -> Rights {
        Rights { before: None, _of_this_thread: PhantomData }
    }

    /// Takes the rights of `owner`, or the thread's own if there is none.
    ///
    /// # Errors
    /// As of [`User::take_files`].
    pub fn of(owner: Option<&User>) -> Result<Rights> {
        owner.map_or(Ok(Rights::own()), User::take_files)
    }

    /// Does `work` with the rights that root's thread has of its own.
    pub(crate) fn roots<T>(work: impl FnOnce() -> T) -> T {
        let before = geteuid().is_root().then(|| Before { gid: set_gid(0), uid: set_uid(0) });
        let rights = Rights { before, _of_this_thread: PhantomData };
        let done = work();
        drop(rights);
        done
    }
}

impl Drop for Rights {
    fn drop(&mut self) {
        if let Some(before) = self.before.take() {
            before.restore();
        }
    }
}

/// Rights for the end of a value: taken as its drop begins, and given back when this, its last
/// field, is dropped.
#[derive(Debug, Default)]
pub(crate) struct AtEnd(Option<Before>);

impl AtEnd {
    /// Takes those of `user`, if any. Must be called by the `drop` of the value that this is the
    /// last field of, so that one thread takes them and gives them back.
    pub(crate) fn take(&mut self, user: Option<&User>) {
        // A thread that cannot take them did not get here.
        self.0 = user.and_then(|user| user.switch().ok());
    }
}

impl Drop for AtEnd {
    fn drop(&mut self) {
        if let Some(before) = self.0.take() {
            before.restore();
        }
    }
}

/// The user and the group by which this thread had rights on files.
#[derive(Debug)]
struct Before {
    uid: u32,
    gid: u32,
}

impl Before {
    fn restore(&self) {
        set_uid(self.uid);
        set_gid(self.gid);
    }
}

/// Sets the user by whom this thread has rights on files, as far as it may; tells who that was.
fn set_uid(uid: u32) -> u32 {
    // SAFETY: nothing but the rights of this thread changes.
    unsafe { libc::setfsuid(uid) }.cast_unsigned()
}

fn set_gid(gid: u32) -> u32 {
    // SAFETY: as in `set_uid`.
    unsafe { libc::setfsgid(gid) }.cast_unsigned()
}

/// The user by whom this thread has rights on files.
pub(crate) fn user_of_files() -> u32 {
    // No user has the number that is asked for.
    set_uid(u32::MAX)
}

fn gid() -> u32 {
    set_gid(u32::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::{File, read};
    use std::os::unix::fs::{MetadataExt, PermissionsExt};

    #[test]
    fn users_are_known_by_name_and_number() {
        let root = User::named("root").expect("asked").expect("known");
        assert_eq!((root.number(), &root), (0, &User::numbered(0)));
        assert!(User::named("no-such-user-here").expect("asked").is_none());
        assert_eq!(User::numbered(1_999_999_999), User::new(1_999_999_999, NO_GROUP));
    }

    #[test]
    fn rights_are_taken_and_given_back_and_nest() {
        if !geteuid().is_root() {
            return eprintln!("SKIPPED rights_are_taken_and_given_back_and_nest: needs root");
        }
        let work = || {
            let place = tempfile::tempdir().expect("a directory");
            let secret = place.path().join("secret");
            std::fs::write(&secret, "of root").expect("written");
            std::fs::set_permissions(&secret, PermissionsExt::from_mode(0o600)).expect("closed");
            {
                let _one = User::new(65534, 65533).take_files().expect("taken");
                let _other = User::new(65532, 65531).take_files().expect("taken");
                assert_eq!((user_of_files(), gid()), (65532, 65531));
                assert!(read(&secret).is_err());
                Rights::roots(|| assert!(read(&secret).is_ok()));
                // What this thread starts has them, too.
                std::thread::scope(|scope| scope.spawn(|| assert_eq!(user_of_files(), 65532)).join())
                    .expect("asserted");
                let made = tempfile::tempfile().expect("made in a directory for all");
                assert_eq!(made.metadata().expect("there").uid(), 65532);
            }
            assert_eq!((user_of_files(), gid()), (0, 0));
            let mut end = AtEnd::default();
            end.take(Some(&User::new(65534, 65533)));
            assert!(File::open(&secret).is_err());
            drop(end);
            assert!(File::open(&secret).is_ok());
        };
        std::thread::scope(|scope| scope.spawn(work).join()).expect("it went well");
    }
}
