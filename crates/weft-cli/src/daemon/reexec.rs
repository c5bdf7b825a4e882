//! Re-exec, once another daemon has taken the volume.
//!
//! Nothing that such a daemon has in memory may be served or kept. So it becomes a new image of its
//! program (execve(2)), with the same arguments: the process stays, and all else goes, threads and
//! descriptors included. Its mounts are dead until it may have the volume again.

use anyhow::anyhow;
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;
use weft_store::ErrorKind;

/// Number of the process after a re-exec. Its children, which inherit the variable, have other
/// numbers.
const VARIABLE: &str = "WEFT_BEGUN_ANEW";

/// Id of the volume that it served before, in hexadecimal.
const VOLUME: &str = "WEFT_VOLUME_BEFORE";

/// Pause before an unreachable server is tried again.
const PAUSE: Duration = Duration::from_secs(1);

/// True if this process served already, and waits for its volume.
pub fn is_reexec() -> bool {
    std::env::var(VARIABLE).is_ok_and(|pid| pid == std::process::id().to_string())
}

/// True if the volume with this id may be served: it is the one that this process served before its
/// re-exec, if there was one. Another one that got the name meanwhile is not open in programs.
pub fn may_serve(uuid: &[u8]) -> bool {
    !is_reexec() || std::env::var(VOLUME).map_or(true, |before| before == hex(uuid))
}

fn hex(uuid: &[u8]) -> String {
    uuid.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// True if an error in starting may pass: a server is away, or another daemon took the volume
/// again.
pub fn may_pass(error: &anyhow::Error) -> bool {
    let kinds =
        error.chain().filter_map(|cause| cause.downcast_ref::<weft_store::Error>()).map(weft_store::Error::kind);
    let passing = [ErrorKind::Unavailable, ErrorKind::Locked, ErrorKind::Conflict];
    kinds.into_iter().any(|kind| passing.contains(&kind))
}

/// Directory in which the program was called: relative arguments start there.
#[derive(Clone)]
pub struct StartDirectory(Option<PathBuf>);

impl StartDirectory {
    /// Returns the present directory.
    pub fn here() -> StartDirectory {
        StartDirectory(std::env::current_dir().ok())
    }

    /// Executes the program again, for the volume of this id. Returns only on failure, with the
    /// reason.
    pub fn reexec(&self, uuid: &[u8]) -> anyhow::Error {
        self.execute(&[(VOLUME, hex(uuid))])
    }

    /// Becomes a new image of the program, with these variables added.
    fn execute(&self, variables: &[(&str, String)]) -> anyhow::Error {
        let Some(place) = &self.0 else { return anyhow!("the directory that it was called in was removed") };
        // The path, if it is still there: a program under another name is found by it.
        let program = std::env::current_exe().ok().filter(|path| path.exists());
        // SAFETY: no descriptor is closed by this before there is nobody left in this process who
        // owns it.
        unsafe { libc::syscall(libc::SYS_close_range, 3, u32::MAX, libc::CLOSE_RANGE_CLOEXEC) };
        let mut words = crate::secrets::words().iter();
        let mut command = Command::new(program.unwrap_or_else(|| "/proc/self/exe".into()));
        if let Some(name) = words.next() {
            command.arg0(name);
        }
        command.args(words).env(VARIABLE, std::process::id().to_string()).current_dir(place);
        command.envs(variables.iter().map(|(name, value)| (name, value)));
        anyhow::Error::from(command.exec()).context("cannot begin anew")
    }

    /// Executes the program again after a while.
    pub fn reexec_later(&self) -> anyhow::Error {
        #[expect(clippy::disallowed_methods, reason = "no server tells when it can be reached again")]
        std::thread::sleep(PAUSE);
        // The id of the volume is still in the environment.
        self.execute(&[])
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use weft_store::Error;

    #[test]
    fn waiting_helps_only_against_what_passes() {
        let passes = |error: Error| may_pass(&anyhow::Error::from(error).context("cannot open"));
        assert!(passes(Error::Held("by another".into())));
        assert!(passes(Error::Injected(ErrorKind::Unavailable)));
        assert!(!passes(Error::Unusable("it is gone".into())));
        assert!(!may_pass(&anyhow!("the mount point is in use")));
    }

    #[test]
    fn a_process_that_was_started_has_not_begun_anew() {
        assert!(!is_reexec());
    }
}
