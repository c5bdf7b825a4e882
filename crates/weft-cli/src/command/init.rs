//! `weft init`.

use super::narrow;
use crate::arguments::Init;
use anyhow::Result;
use std::process::ExitCode;
use weft_store::{VolumeOptions, sqlite};
use weft_vfs::{Clock, SystemClock};

/// Makes a volume.
pub fn run(arguments: &Init) -> Result<ExitCode> {
    let options = VolumeOptions {
        block_size: narrow("block size", arguments.block_size)?,
        inline_max: narrow("inline threshold", arguments.inline)?,
        home: arguments.blocks.into(),
        bytes_max: arguments.size_max,
        inodes_max: arguments.inodes_max,
        digests: !arguments.no_digests,
    };
    let owner = (rustix::process::getuid().as_raw(), rustix::process::getgid().as_raw());
    sqlite::create(&arguments.volume, &options, owner, SystemClock.now())?;
    let volume = arguments.volume.display();
    println!("made {volume}; mount it with: weft mount {volume} DIRECTORY");
    Ok(ExitCode::SUCCESS)
}
