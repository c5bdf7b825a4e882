//! Users of the machine, and becoming one of them.
//!
//! What a thread may do is its own on Linux (credentials(7)): what is given up here, other threads
//! keep. A process becomes another user before it has a second thread.

use anyhow::{Context, Result, bail};
use rustix::fs::{Gid, Uid};
use rustix::process::{DumpableBehavior, geteuid, set_dumpable_behavior};
use rustix::thread::{
    CapabilitySet, CapabilitySets, configure_capability_in_ambient_set, set_capabilities, set_keep_capabilities,
    set_no_new_privs, set_thread_groups, set_thread_res_gid, set_thread_res_uid,
};
use std::ffi::CString;
use std::io::Error;
use std::mem::MaybeUninit;

/// Bytes that an entry of the user database has room for, its strings included.
const ENTRY_BYTES_MAX: usize = 1 << 16;
/// Most groups of a user (NGROUPS_MAX).
const GROUPS_MAX: libc::c_int = 65_536;

/// A user with a group, and other groups.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct User {
    uid: Uid,
    gid: Gid,
    groups: Vec<Gid>,
}

impl User {
    /// The user with these numbers, in no other group.
    pub fn new(uid: u32, gid: u32) -> User {
        User { uid: Uid::from_raw(uid), gid: Gid::from_raw(gid), groups: Vec::new() }
    }

    /// The user whom this machine knows by `name`, with the groups that it is in.
    ///
    /// Fails if there is none, or where users come from cannot be asked.
    pub fn named(name: &str) -> Result<User> {
        let Ok(c_name) = CString::new(name) else { bail!("a user's name has no byte 0 in it") };
        let mut entry = MaybeUninit::<libc::passwd>::uninit();
        let mut strings = vec![0; ENTRY_BYTES_MAX];
        let mut found = std::ptr::null_mut();
        // SAFETY: all pointers are to what lives until the call returns, and the length is that of
        // `strings`.
        let error = unsafe {
            libc::getpwnam_r(c_name.as_ptr(), entry.as_mut_ptr(), strings.as_mut_ptr(), strings.len(), &raw mut found)
        };
        if error != 0 {
            return Err(Error::from_raw_os_error(error)).with_context(|| format!("cannot look for user '{name}'"));
        }
        if found.is_null() {
            bail!("there is no user '{name}' on this machine");
        }
        // SAFETY: the call made an entry there, as `found` is not null.
        let (uid, gid) = unsafe { ((*found).pw_uid, (*found).pw_gid) };
        let mut groups = vec![0; GROUPS_MAX as usize];
        let mut count = GROUPS_MAX;
        // SAFETY: `count` is the length of `groups`.
        let told = unsafe { libc::getgrouplist(c_name.as_ptr(), gid, groups.as_mut_ptr(), &raw mut count) };
        if told < 0 {
            bail!("user '{name}' is in more than {GROUPS_MAX} groups");
        }
        groups.truncate(usize::try_from(count).context("a negative number of groups")?);
        let groups = groups.into_iter().map(Gid::from_raw).collect();
        Ok(User { uid: Uid::from_raw(uid), gid: Gid::from_raw(gid), groups })
    }

    /// Gives this thread, and no other, the rights of the user. It cannot have its own again.
    pub fn take_thread(&self) -> Result<(), Error> {
        set_thread_groups(&self.groups)?;
        set_thread_res_gid(self.gid, self.gid, self.gid)?;
        Ok(set_thread_res_uid(self.uid, self.uid, self.uid)?)
    }

    /// Makes this process, whose only thread this is, the user's, but that it may still use ports
    /// below 1024. Done already if it is the user's.
    pub fn take_process(&self) -> Result<()> {
        if geteuid() == self.uid {
            return Ok(());
        }
        if !geteuid().is_root() {
            bail!("only root can serve as another user; leave --user out, or start it as root");
        }
        let port = CapabilitySet::NET_BIND_SERVICE;
        set_keep_capabilities(true).context("cannot keep the right to use low ports")?;
        self.take_thread().context("cannot become another user")?;
        set_keep_capabilities(false).context("cannot give up privileges")?;
        set_capabilities(None, CapabilitySets { effective: port, permitted: port, inheritable: port })
            .context("cannot give up privileges")?;
        // A daemon that begins anew executes itself, and has it still.
        configure_capability_in_ambient_set(port, true).context("cannot keep the right to use low ports")?;
        set_no_new_privs(true).context("cannot refuse new privileges")?;
        // Else what /proc has of this process is root's, and no namespace can be made for commands.
        // Other processes of the user have not its capability, and do not get at its memory.
        set_dumpable_behavior(DumpableBehavior::Dumpable).context("cannot give up privileges")
    }
}
