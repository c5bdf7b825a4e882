//! Options of `-o`, from the command line, fstab(5) or mount(8).

use crate::arguments::Mount;
use crate::command::usage;
use anyhow::Result;
use clap::ValueEnum;
use std::path::PathBuf;
use std::str::FromStr;
use weft_fuse::MountOptions;

/// Generic options that mount(8) keeps for itself, or that state a default.
const PASSED_OVER: &[&str] = &[
    "",
    "_netdev",
    "async",
    "auto",
    "comment",
    "default_permissions",
    "diratime",
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
    "silent",
    "subtype",
    "uhelper",
    "user",
    "users",
];

/// Options that the kernel reports of a mount, and that mount(8) repeats when it remounts.
const SAID_OF_MOUNTS: &[&str] = &["user_id", "group_id", "rootmode", "max_read", "blksize", "seclabel", "nosymfollow"];

/// Action that the options ask for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Asked {
    /// Mount the volume.
    Mount,
    /// Change options of the mount that is there.
    Remount,
}

/// Returns the action that `-o` asks for.
pub fn asked(arguments: &Mount) -> Asked {
    if arguments.options.iter().any(|option| option == "remount") { Asked::Remount } else { Asked::Mount }
}

/// Applies the options of `-o`, from left to right, to the other arguments and to `mount`. Errors:
/// unknown options and wrong values, as wrong usage.
pub fn take(arguments: &mut Mount, mount: &mut MountOptions) -> Result<()> {
    let asked = asked(arguments);
    mount.read_only |= arguments.open.read_only;
    for option in std::mem::take(&mut arguments.options) {
        let (name, value) = option.split_once('=').map_or((&*option, None), |(name, value)| (name, Some(value)));
        if is_passed_over(name, asked) {
            continue;
        }
        match (take_flag(name, arguments, mount), value) {
            (true, None) => {}
            (true, Some(value)) => {
                return usage(format!(
                    "option {name} takes no value, and '{value}' is one: say {name}, or leave it out"
                ));
            }
            (false, value) if take_value(name, value.unwrap_or_default(), arguments)? => {}
            (false, _) => return usage(format!("unknown mount option '{name}'; 'weft mount --help' lists them")),
        }
    }
    arguments.open.read_only = mount.read_only;
    Ok(())
}

/// True if `name` is an option of mount(8) or fstab(5) that means nothing to a mount of Weft.
fn is_passed_over(name: &str, asked: Asked) -> bool {
    PASSED_OVER.contains(&name)
        || name.starts_with("x-")
        || name.starts_with("X-")
        || asked == Asked::Remount && SAID_OF_MOUNTS.contains(&name)
}

/// Applies an option without a value. False if `name` is none.
fn take_flag(name: &str, arguments: &mut Mount, mount: &mut MountOptions) -> bool {
    match name {
        "ro" => mount.read_only = true,
        "rw" => mount.read_only = false,
        "defaults" => {
            (mount.read_only, mount.suid, mount.devices, mount.no_exec) = (false, true, true, false);
        }
        "noatime" => (arguments.open.noatime, arguments.open.strictatime) = (true, false),
        "strictatime" => (arguments.open.noatime, arguments.open.strictatime) = (false, true),
        "atime" | "relatime" | "nostrictatime" => (arguments.open.noatime, arguments.open.strictatime) = (false, false),
        "allow_other" => mount.allow_other = true,
        "suid" => mount.suid = true,
        "nosuid" => mount.suid = false,
        "dev" => mount.devices = true,
        "nodev" => mount.devices = false,
        "exec" => mount.no_exec = false,
        "noexec" => mount.no_exec = true,
        "writeback" => arguments.writeback = true,
        "keep-awake" => arguments.keep_awake = true,
        "opens" => arguments.opens = true,
        "no-idle-policy" => arguments.no_idle_policy = true,
        // `asked` looks for it.
        "remount" => {}
        _ => return false,
    }
    true
}

/// Applies an option with a value. False if `name` is none.
fn take_value(name: &str, value: &str, arguments: &mut Mount) -> Result<bool> {
    match name {
        "commit-interval" => arguments.open.commit_interval = parse(name, value)?,
        "dirty-max" => arguments.open.dirty_max = size(name, value)?,
        "metadata-cache" => arguments.open.metadata_cache = size(name, value)?,
        "read-ahead" => arguments.open.read_ahead = Some(size(name, value)?),
        "block-cache" => arguments.open.block_cache = Some(size(name, value)?),
        "shared-memory" => arguments.shared_memory = Some(size(name, value)?),
        "disk-cache" => arguments.open.disk_cache = Some(path(name, value)?),
        "disk-cache-size" => arguments.open.disk_cache_size = Some(size(name, value)?),
        "memo" => arguments.open.memo = size(name, value)?,
        "temporary" => arguments.open.temporary = size(name, value)?,
        "keys" => arguments.open.keys = Some(path(name, value)?),
        "links" => arguments.open.links = Some(word(name, value)?),
        "exported-stages" => arguments.open.exported_stages = word(name, value)?,
        "transport" => arguments.transport = value.into(),
        "placement" => arguments.placement = value.into(),
        "log" => arguments.log = Some(path(name, value)?),
        _ => return Ok(false),
    }
    Ok(true)
}

fn parse<T: FromStr>(name: &str, value: &str) -> Result<T> {
    value.parse().or_else(|_| usage(format!("option {name}: '{value}' is not a number")))
}

fn size(name: &str, value: &str) -> Result<u64> {
    crate::size::parse(value).or_else(|error| usage(format!("option {name}: {error}")))
}

fn path(name: &str, value: &str) -> Result<PathBuf> {
    if value.is_empty() {
        return usage(format!("option {name} takes a path: write {name}=PATH"));
    }
    Ok(value.into())
}

/// Parses a word that is a value of `T`.
fn word<T: ValueEnum>(name: &str, value: &str) -> Result<T> {
    let words = || {
        let words = T::value_variants().iter().filter_map(ValueEnum::to_possible_value);
        words.map(|word| word.get_name().to_owned()).collect::<Vec<_>>().join(", ")
    };
    T::from_str(value, false).or_else(|_| usage(format!("option {name}: '{value}' is none of {}", words())))
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;

    #[derive(Parser)]
    struct Line {
        #[command(flatten)]
        mount: Mount,
    }

    fn taken(options: &str) -> Result<(MountOptions, Mount)> {
        let mut arguments = Line::parse_from(["weft", "v", "m", "-o", options]).mount;
        let mut mount = MountOptions::default();
        take(&mut arguments, &mut mount)?;
        Ok((mount, arguments))
    }

    /// Returns whether it is read only, and whether set-user-id, devices and programs work.
    fn flags(options: &str) -> [bool; 4] {
        let (mount, arguments) = taken(options).unwrap();
        assert_eq!(mount.read_only, arguments.open.read_only);
        [mount.read_only, mount.suid, mount.devices, !mount.no_exec]
    }

    #[test]
    fn options_count_from_left_to_right_each_for_itself() {
        assert_eq!(flags(""), [false, false, false, true]);
        assert_eq!(flags("suid"), [false, true, false, true]);
        assert_eq!(flags("dev"), [false, false, true, true]);
        assert_eq!(flags("nosuid,dev"), [false, false, true, true]);
        assert_eq!(flags("suid,dev,nodev"), [false, true, false, true]);
        assert_eq!(flags("nosuid,suid,noexec,exec"), [false, true, false, true]);
        assert_eq!(flags("ro,noexec,defaults"), [false, true, true, true]);
        assert_eq!(flags("defaults,nosuid,ro"), [true, false, true, true]);
        assert_eq!(flags("rw,ro"), [true, false, false, true]);
        assert_eq!(flags("ro,rw"), [false, false, false, true]);
    }

    #[test]
    fn words_of_fstab_are_passed_over_and_others_refused_by_name() {
        let passed =
            "user,user=me,noauto,_netdev,nofail,x-systemd.automount,X-mount.mkdir=755,comment=mine,owner,async";
        assert_eq!(flags(passed), [false, false, false, true]);
        for (options, named) in [("noatime,nonsense", "'nonsense'"), ("sync", "'sync'"), ("user_id=0", "'user_id'")] {
            let error = taken(options).map(drop).unwrap_err().to_string();
            assert!(error.contains(named), "{error}");
        }
        assert_eq!(
            flags("rw,nosuid,user_id=0,group_id=0,allow_other,max_read=1048576,remount,ro"),
            [true, false, false, true]
        );
    }

    #[test]
    fn flags_take_no_value() {
        let flags = "ro=0 ro=no rw=1 defaults=x noatime=x strictatime= relatime=1 allow_other=0 suid=1 nosuid=0 \
                     dev=1 nodev=0 exec=1 noexec=0 writeback=no keep-awake=1 opens=no no-idle-policy=0 remount=1";
        for option in flags.split(' ') {
            let error = taken(option).map(drop).unwrap_err();
            let name = option.split('=').next().unwrap();
            assert!(error.is::<crate::command::Usage>(), "{error}");
            assert!(error.to_string().contains(&format!("option {name} takes no value")), "{error}");
        }
    }

    #[test]
    fn values_that_are_missing_or_none_of_the_words_are_refused_with_those_that_there_are() {
        for (option, words) in [
            ("exported-stages=foo", "'foo' is none of nobody, root, everybody"),
            ("exported-stages", "'' is none of nobody, root, everybody"),
            ("keys", "keys=PATH"),
            ("log=", "log=PATH"),
            ("disk-cache", "disk-cache=PATH"),
            ("dirty-max", "option dirty-max: '' is not a size"),
        ] {
            let error = taken(option).map(drop).unwrap_err().to_string();
            assert!(error.contains(words), "{error}");
        }
    }

    #[test]
    fn a_remount_is_asked_for_by_that_word_alone() {
        let asked_by = |options| asked(&Line::parse_from(["weft", "v", "m", "-o", options]).mount);
        assert_eq!(asked_by("ro,remount"), Asked::Remount);
        assert_eq!(asked_by("ro,x-remount"), Asked::Mount);
    }
}
