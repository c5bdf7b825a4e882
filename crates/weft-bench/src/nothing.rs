//! A mount of the file system that stores nothing.
//!
//! Two processes: one serves until its standard input ends, and then unmounts. The other one holds
//! that input, and is the one that a user ends, by whatever signal.

use anyhow::{Context, Result, ensure};
use std::io::Read;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, Stdio};
use weft_fuse::{MountOptions, Nothing, SessionOptions, Transport};

/// Has another process serve it at `directory`, as long as this one lives and it is mounted.
pub(crate) fn start(directory: &Path, over_device: bool) -> Result<()> {
    let mut serves = Command::new(std::env::current_exe().context("cannot tell where this program lies")?);
    serves.arg("--serve-nothing").arg(directory).arg("--until-input-ends");
    if over_device {
        serves.arg("--device");
    }
    // A signal of the terminal is for this process alone.
    let mut serves = serves.stdin(Stdio::piped()).process_group(0).spawn().context("cannot start a server")?;
    // Taken, or the wait would close it.
    let _input = serves.stdin.take();
    ensure!(serves.wait()?.success(), "the server failed");
    Ok(())
}

/// Serves it at `directory` until it is unmounted, or unmounts it when the standard input ends.
pub(crate) fn serve(directory: &Path, over_device: bool) -> Result<()> {
    let transport = if over_device { Transport::Device } else { Transport::Automatic };
    let options = SessionOptions { transport, ..SessionOptions::default() };
    let mount = MountOptions { source: "nothing".into(), ..MountOptions::default() };
    let nothing = Nothing::mount(directory, &mount, options).context("cannot mount")?;
    let unmounter = nothing.unmounter();
    std::thread::spawn(move || {
        // What comes there means nothing.
        let _ = std::io::stdin().lock().read_to_end(&mut Vec::new());
        if let Err(error) = unmounter.unmount() {
            eprintln!("weft-bench: {error}");
        }
    });
    println!("nothing is stored at {}, over {}", directory.display(), nothing.transport());
    nothing.run().context("the mount ended")
}
