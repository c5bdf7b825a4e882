//! Mounts an empty volume that lives in memory only: measures the FUSE side with no disk below it.
//!
//! `serve DIRECTORY [placement=follow|free|CPU] [transport=auto|device] [volume=PATH]`

use std::path::PathBuf;
use std::sync::Arc;
use weft_fuse::{MountOptions, Placement, Session, SessionOptions, Transport};
use weft_store::memory::MemoryStore;
use weft_store::{Store, VolumeOptions, sqlite};
use weft_vfs::{Options, SystemClock};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut arguments = std::env::args_os().skip(1);
    let directory = PathBuf::from(arguments.next().ok_or("usage: serve DIRECTORY [OPTION=VALUE]...")?);
    let mut options = SessionOptions::default();
    let mut store: Option<Arc<dyn Store>> = None;
    for argument in arguments {
        let argument = argument.into_string().map_err(|_| "an option that is not UTF-8")?;
        match argument.split_once('=').ok_or("OPTION=VALUE is wanted")? {
            ("placement", "follow") => options.placement = Placement::Follow,
            ("placement", "free") => options.placement = Placement::Free,
            ("placement", number) => options.placement = Placement::Processor(number.parse()?),
            ("transport", "auto") => options.transport = Transport::Automatic,
            ("transport", "device") => options.transport = Transport::Device,
            ("volume", path) => store = Some(sqlite::open(path.as_ref())?.store),
            (name, _) => return Err(format!("unknown option {name}").into()),
        }
    }
    let store = store.unwrap_or_else(|| Arc::new(MemoryStore::new(VolumeOptions::default())));
    let vfs =
        weft_links::open(store, None, Options::default(), weft_links::LinkOptions::default(), Arc::new(SystemClock))?;
    let mount = MountOptions { source: "memory".into(), ..MountOptions::default() };
    let session = Session::mount(vfs.clone(), &directory, &mount, options)?;
    session.run()?;
    vfs.close()?;
    Ok(())
}
