//! A process that becomes another user, before it has a second thread.

use anyhow::{Context, Result, bail};
use rustix::process::{DumpableBehavior, geteuid, set_dumpable_behavior};
use rustix::thread::{
    CapabilitySet, CapabilitySets, configure_capability_in_ambient_set, set_capabilities, set_keep_capabilities,
    set_no_new_privs,
};
use weft_store::user::User;

/// Finds the user whom this machine knows by `name`.
///
/// Fails if there is none, or if the directory of users cannot be asked.
pub fn named(name: &str) -> Result<User> {
    let found = User::named(name).with_context(|| format!("cannot look for user '{name}'"))?;
    found.with_context(|| format!("there is no user '{name}' on this machine"))
}

/// Makes this process, whose only thread this is, run as `user`, but lets it still use ports below
/// 1024. Does nothing if it does already.
pub fn take_process(user: &User) -> Result<()> {
    if geteuid().as_raw() == user.number() {
        return Ok(());
    }
    if !geteuid().is_root() {
        bail!("only root can serve as another user; leave --user out, or start it as root");
    }
    let port = CapabilitySet::NET_BIND_SERVICE;
    set_keep_capabilities(true).context("cannot keep the right to use low ports")?;
    user.take_thread().context("cannot become another user")?;
    set_keep_capabilities(false).context("cannot give up privileges")?;
    set_capabilities(None, CapabilitySets { effective: port, permitted: port, inheritable: port })
        .context("cannot give up privileges")?;
    // A daemon that re-executes itself has it still.
    configure_capability_in_ambient_set(port, true).context("cannot keep the right to use low ports")?;
    set_no_new_privs(true).context("cannot refuse new privileges")?;
    // Otherwise /proc shows this process as root's, and no namespace can be made for commands.
    // Other processes of the user lack its capability, and cannot read its memory.
    set_dumpable_behavior(DumpableBehavior::Dumpable).context("cannot give up privileges")
}
