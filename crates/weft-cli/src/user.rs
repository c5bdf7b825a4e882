//! A process that becomes another user, before it has a second thread.

use anyhow::{Context, Result, bail};
use rustix::process::{DumpableBehavior, geteuid, set_dumpable_behavior};
use rustix::thread::{
    CapabilitySet, CapabilitySets, configure_capability_in_ambient_set, set_capabilities, set_keep_capabilities,
    set_no_new_privs,
};
use weft_store::user::User;

/// The user whom this machine knows by `name`.
///
/// Fails if there is none, or where users come from cannot be asked.
pub fn named(name: &str) -> Result<User> {
    let found = User::named(name).with_context(|| format!("cannot look for user '{name}'"))?;
    found.with_context(|| format!("there is no user '{name}' on this machine"))
}

/// Makes this process, whose only thread this is, that of `user`, but that it may still use ports
/// below 1024. Done already if it is.
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
    // A daemon that begins anew executes itself, and has it still.
    configure_capability_in_ambient_set(port, true).context("cannot keep the right to use low ports")?;
    set_no_new_privs(true).context("cannot refuse new privileges")?;
    // Else what /proc has of this process is root's, and no namespace can be made for commands.
    // Other processes of the user have not its capability, and do not get at its memory.
    set_dumpable_behavior(DumpableBehavior::Dumpable).context("cannot give up privileges")
}
