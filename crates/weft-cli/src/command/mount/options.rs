//! What `-o` says, from the command line, fstab(5) or mount(8).

use crate::arguments::{Mount, Whose};
use crate::command::usage;
use anyhow::Result;
use clap::ValueEnum;
use std::str::FromStr;
use weft_fuse::MountOptions;

/// Generic options that mount(8) keeps for itself, or that say what holds anyway.
const PASSED_OVER: &[&str] = &[
    "",
    "_netdev",
    "async",
    "auto",
    "comment",
    "default_permissions",
    "defaults",
    "diratime",
    "exec",
    "fsname",
    "group",
    "helper",
    "lazytime",
    "loud",
    "noauto",
    "nodiratime",
    "nofail",
    "nogroup",
    "nolazytime",
    "noowner",
    "nouser",
    "nousers",
    "owner",
    "rw",
    "silent",
    "subtype",
    "uhelper",
    "user",
    "users",
];

/// Takes what `-o` says into the other arguments. Errors: unknown options and wrong values, as wrong usage.
pub fn take(arguments: &mut Mount, mount: &mut MountOptions) -> Result<()> {
    for option in std::mem::take(&mut arguments.options) {
        let (name, value) = option.split_once('=').unwrap_or((&option, ""));
        match name {
            "ro" => arguments.open.read_only = true,
            "noatime" => (arguments.open.noatime, arguments.open.strictatime) = (true, false),
            "strictatime" => (arguments.open.noatime, arguments.open.strictatime) = (false, true),
            "atime" | "relatime" | "nostrictatime" => {
                (arguments.open.noatime, arguments.open.strictatime) = (false, false)
            }
            "allow_other" => mount.allow_other = true,
            "suid" | "dev" => mount.suid_and_devices = true,
            "nosuid" | "nodev" => mount.suid_and_devices = false,
            "noexec" => mount.no_exec = true,
            "commit-interval" => arguments.open.commit_interval = parse(name, value)?,
            "dirty-max" => arguments.open.dirty_max = size(name, value)?,
            "metadata-cache" => arguments.open.metadata_cache = size(name, value)?,
            "read-ahead" => arguments.open.read_ahead = Some(size(name, value)?),
            "block-cache" => arguments.open.block_cache = Some(size(name, value)?),
            "shared-memory" => arguments.shared_memory = Some(size(name, value)?),
            "disk-cache" => arguments.open.disk_cache = Some(value.into()),
            "disk-cache-size" => arguments.open.disk_cache_size = size(name, value)?,
            "memo" => arguments.open.memo = size(name, value)?,
            "keys" => arguments.open.keys = Some(value.into()),
            "exported-stages" => {
                let whose = Whose::from_str(value, false);
                arguments.open.exported_stages = whose.or_else(|error| usage(format!("option {name}: {error}")))?;
            }
            "transport" => arguments.transport = value.into(),
            "placement" => arguments.placement = value.into(),
            "writeback" => arguments.writeback = true,
            "keep-awake" => arguments.keep_awake = true,
            "opens" => arguments.opens = true,
            "no-idle-policy" => arguments.no_idle_policy = true,
            "log" => arguments.log = Some(value.into()),
            "remount" => return usage("a mounted volume keeps its options; unmount it and mount it again".into()),
            name if name.starts_with("x-") || name.starts_with("X-") || PASSED_OVER.contains(&name) => {}
            name => return usage(format!("unknown mount option '{name}'; 'weft mount --help' lists them")),
        }
    }
    Ok(())
}

fn parse<T: FromStr>(name: &str, value: &str) -> Result<T> {
    value.parse().or_else(|_| usage(format!("option {name}: '{value}' is not a number")))
}

fn size(name: &str, value: &str) -> Result<u64> {
    crate::size::parse(value).or_else(|error| usage(format!("option {name}: {error}")))
}
