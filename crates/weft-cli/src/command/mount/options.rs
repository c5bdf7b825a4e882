//! Options of `-o`, from the command line, fstab(5) or mount(8).

use crate::arguments::{Mount, served_at, told_at};
use crate::failure::usage;
use anyhow::Result;
use clap::ValueEnum;
use std::net::SocketAddr;
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

/// Options by which other file systems write each change to the disk at once.
const SYNCHRONOUS: &[&str] = &["sync", "dirsync"];

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
        if SYNCHRONOUS.contains(&name) {
            return usage(format!(
                "there is no option '{name}', as no write waits for the disk: fsync(2) makes a change durable, and so \
                 does the next commit (commit-interval=SECONDS)"
            ));
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
    mount.read_only |= arguments.open.at.is_some();
    arguments.open.read_only = mount.read_only;
    refuse_unfit(arguments)
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
    let found = FLAGS.iter().find(|(flag, _)| *flag == name);
    found.map(|(_, apply)| apply(arguments, mount)).is_some()
}

/// An option without a value, and its effect.
type Flag = (&'static str, fn(&mut Mount, &mut MountOptions));

const FLAGS: &[Flag] = &[
    ("ro", |_, mount| mount.read_only = true),
    ("rw", |_, mount| mount.read_only = false),
    ("defaults", |_, mount| {
        (mount.read_only, mount.suid, mount.devices, mount.no_exec) = (false, true, true, false);
    }),
    ("noatime", |arguments, _| set_times(arguments, true, false)),
    ("strictatime", |arguments, _| set_times(arguments, false, true)),
    ("atime", |arguments, _| set_times(arguments, false, false)),
    ("relatime", |arguments, _| set_times(arguments, false, false)),
    ("nostrictatime", |arguments, _| set_times(arguments, false, false)),
    ("allow_other", |_, mount| mount.allow_other = true),
    ("suid", |_, mount| mount.suid = true),
    ("nosuid", |_, mount| mount.suid = false),
    ("dev", |_, mount| mount.devices = true),
    ("nodev", |_, mount| mount.devices = false),
    ("exec", |_, mount| mount.no_exec = false),
    ("noexec", |_, mount| mount.no_exec = true),
    // `asked` looks for it.
    ("remount", |_, _| ()),
    ("writeback", |arguments, _| arguments.writeback = true),
    ("keep-awake", |arguments, _| arguments.keep_awake = true),
    ("no-merge", |arguments, _| arguments.open.no_merge = true),
    ("opens", |arguments, _| arguments.opens = true),
    ("no-opens", |arguments, _| arguments.no_opens = true),
    ("no-idle-policy", |arguments, _| arguments.no_idle_policy = true),
    ("no-confinement", |arguments, _| arguments.open.no_confinement = true),
    ("accept-loss", |arguments, _| arguments.open.accept_loss = true),
    ("portmap", |arguments, _| arguments.served.portmap = true),
];

fn set_times(arguments: &mut Mount, never: bool, always: bool) {
    (arguments.open.noatime, arguments.open.strictatime) = (never, always);
}

/// Applies an option with a value. False if `name` is none.
fn take_value(name: &str, value: &str, arguments: &mut Mount) -> Result<bool> {
    match VALUES.iter().find(|(option, _)| *option == name) {
        Some((_, apply)) => apply(arguments, name, value).map(|()| true),
        None => Ok(false),
    }
}

/// An option with a value, and its effect.
type Valued = (&'static str, fn(&mut Mount, &str, &str) -> Result<()>);

const VALUES: &[Valued] = &[
    ("commit-interval", |arguments, name, value| set(&mut arguments.open.commit_interval, parse(name, value)?)),
    ("dirty-max", |arguments, name, value| set(&mut arguments.open.dirty_max, size(name, value)?)),
    ("metadata-cache", |arguments, name, value| set(&mut arguments.open.metadata_cache, size(name, value)?)),
    ("block-cache", |arguments, name, value| set(&mut arguments.open.block_cache, Some(size(name, value)?))),
    ("read-ahead", |arguments, name, value| set(&mut arguments.open.read_ahead, Some(size(name, value)?))),
    ("shared-memory", |arguments, name, value| set(&mut arguments.shared_memory, Some(size(name, value)?))),
    ("memo", |arguments, name, value| set(&mut arguments.open.memo, size(name, value)?)),
    ("temporary", |arguments, name, value| set(&mut arguments.open.temporary, size(name, value)?)),
    ("keys", |arguments, name, value| set(&mut arguments.open.keys, Some(path(name, value)?))),
    ("links", |arguments, name, value| set(&mut arguments.open.links, Some(word(name, value)?))),
    ("at", |arguments, _, value| match value.parse() {
        Ok(moment) => set(&mut arguments.open.at, Some(moment)),
        Err(error) => usage(format!("option at: {error}")),
    }),
    ("history-name", |arguments, _, value| match value.parse() {
        Ok(name) => set(&mut arguments.open.history_name, name),
        Err(error) => usage(format!("option history-name: {error}")),
    }),
    ("exported-stages", |arguments, name, value| set(&mut arguments.open.exported_stages, word(name, value)?)),
    ("transport", |arguments, _, value| set(&mut arguments.transport, value.into())),
    ("placement", |arguments, _, value| set(&mut arguments.placement, value.into())),
    ("log", |arguments, name, value| set(&mut arguments.log, Some(path(name, value)?))),
    ("wait", |arguments, name, value| set(&mut arguments.open.wait, Some(parse(name, value)?))),
    ("lease", |arguments, name, value| match parse(name, value)? {
        0 => usage(format!("option {name}: it must be at least 1 second")),
        seconds => set(&mut arguments.open.lease, Some(seconds)),
    }),
    ("patience", |arguments, name, value| set(&mut arguments.open.patience, Some(parse(name, value)?))),
    ("disk-cache", |arguments, name, value| set(&mut arguments.open.disk_cache, Some(path(name, value)?))),
    ("disk-cache-size", |arguments, name, value| set(&mut arguments.open.disk_cache_size, Some(size(name, value)?))),
    ("log-format", |arguments, name, value| set(&mut arguments.open.log_format, word(name, value)?)),
    ("metrics", |arguments, _, value| set(&mut arguments.open.metrics, Some(told_at(value).or_else(usage)?))),
    ("nfs", |arguments, _, value| match value {
        "" => set(&mut arguments.nfs, Some(SocketAddr::from(([127, 0, 0, 1], 2049)))),
        address => set(&mut arguments.nfs, Some(served_at(address).or_else(usage)?)),
    }),
    ("exports", |arguments, name, value| set(&mut arguments.served.exports, Some(path(name, value)?))),
    ("grace", |arguments, name, value| set(&mut arguments.served.grace, parse(name, value)?)),
    ("tls-certificate", |arguments, name, value| set(&mut arguments.served.tls_certificate, Some(path(name, value)?))),
    ("tls-key", |arguments, name, value| set(&mut arguments.served.tls_key, Some(path(name, value)?))),
    ("tls-clients", |arguments, name, value| set(&mut arguments.served.tls_clients, Some(path(name, value)?))),
];

/// True if `name` is an option of Weft's own.
pub fn is_option(name: &str) -> bool {
    FLAGS.iter().any(|(flag, _)| *flag == name) || VALUES.iter().any(|(option, _)| *option == name)
}

/// Sets an argument. Never fails.
#[expect(clippy::unnecessary_wraps, reason = "the table has functions that may fail")]
fn set<T>(argument: &mut T, value: T) -> Result<()> {
    *argument = value;
    Ok(())
}

/// Refuses options that need or exclude others, as the arguments do on the command line.
fn refuse_unfit(arguments: &Mount) -> Result<()> {
    let served = &arguments.served;
    let of_nfs = [
        ("exports", served.exports.is_some()),
        ("portmap", served.portmap),
        ("tls-certificate", served.tls_certificate.is_some()),
    ];
    let unserved = of_nfs.into_iter().find(|(_, is_given)| *is_given && arguments.nfs.is_none());
    if let Some((name, _)) = unserved {
        return usage(format!("option {name} is for a volume that is served: add nfs=ADDRESS:PORT"));
    }
    if served.tls_certificate.is_some() != served.tls_key.is_some()
        || served.tls_clients.is_some() && served.tls_key.is_none()
    {
        return usage("TLS needs tls-certificate=FILE and tls-key=FILE".into());
    }
    if arguments.opens && arguments.no_opens {
        return usage("option no-opens contradicts opens: say one of them".into());
    }
    Ok(())
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
    use clap::{CommandFactory, Parser};

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
            assert!(error.is::<crate::failure::Usage>(), "{error}");
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

    /// Of mount(8) alone.
    const PLAIN: &[&str] = &["atime", "nostrictatime"];

    #[test]
    fn help_and_configuration_name_every_option() {
        let help = Line::command().get_arguments().find(|argument| argument.get_id() == "options").unwrap().clone();
        let help = help.get_help().unwrap().to_string();
        let help: Vec<&str> = help.split(|c: char| !c.is_ascii_alphanumeric() && c != '-' && c != '_').collect();
        let configuration = include_str!("../../../../../docs/reference/configuration.md");
        let names = FLAGS.iter().map(|(name, _)| name).chain(VALUES.iter().map(|(name, _)| name));
        for name in names.filter(|name| !PLAIN.contains(name)) {
            assert!(help.contains(name), "--help says nothing of -o {name}");
            let is_of_mount = ["rw", "nosuid", "nodev", "noexec", "defaults", "remount"].contains(name);
            assert!(
                is_of_mount || configuration.contains(&format!("`{name}`")),
                "configuration.md says nothing of {name}"
            );
        }
    }

    #[test]
    fn options_for_postgresql_and_nfs_are_options_of_mount_8() {
        let options = "wait=30,lease=20,patience=5,disk-cache=/c,disk-cache-size=1G,nfs=127.0.0.1:99,portmap,grace=7,\
                       exports=/e,accept-loss,no-opens,no-confinement";
        let (_, Mount { open, nfs, served, no_opens, .. }) = taken(options).unwrap();
        assert_eq!((open.wait, open.lease, open.patience), (Some(30), Some(20), Some(5)));
        assert_eq!((open.disk_cache, open.disk_cache_size), (Some("/c".into()), Some(1 << 30)));
        assert_eq!((nfs, served.portmap, served.grace), (Some(([127, 0, 0, 1], 99).into()), true, 7));
        assert!(served.exports.is_some() && open.accept_loss && no_opens && open.no_confinement);
        assert_eq!(taken("nfs").unwrap().1.nfs, Some(([127, 0, 0, 1], 2049).into()));
        for (options, words) in [
            ("portmap", "option portmap is for a volume that is served: add nfs="),
            ("nfs,tls-key=/k", "TLS needs tls-certificate=FILE"),
            ("opens,no-opens", "contradicts opens"),
            ("lease=0", "option lease"),
            ("wait=x", "option wait: 'x' is not a number"),
            ("sync", "no write waits for the disk"),
        ] {
            let error = taken(options).map(drop).unwrap_err();
            assert!(error.is::<crate::failure::Usage>() && error.to_string().contains(words), "{error}");
        }
    }

    #[test]
    fn a_remount_is_asked_for_by_that_word_alone() {
        let asked_by = |options| asked(&Line::parse_from(["weft", "v", "m", "-o", options]).mount);
        assert_eq!(asked_by("ro,remount"), Asked::Remount);
        assert_eq!(asked_by("ro,x-remount"), Asked::Mount);
    }
}
