//! The program as mount(8) and umount(8) call their helpers:
//! `mount.weft SOURCE DIR [-sfnv] [-N SPACE] [-t TYPE] [-o OPTIONS]` and
//! `umount.weft DIR [-flnrv] [-N SPACE] [-t TYPE]`.

use rustix::process::Uid;
use std::ffi::OsString;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

/// Meaning of a call as a helper.
#[derive(Debug, PartialEq, Eq)]
pub enum Helper {
    /// It was not called as a helper.
    No,
    /// These are the arguments of `weft`.
    Arguments(Vec<OsString>),
    /// Only pretend (`-f`): there is nothing to do.
    Fake,
}

/// Interprets a call of the program with `words` by `caller`.
///
/// mount(8) passes `nosuid` and `nodev` to a helper, but not `suid` and `dev`, as it takes those
/// for defaults. So they hold for root here, as for other file systems.
pub fn helper(words: &[OsString], caller: Uid) -> Helper {
    let called = words.first().and_then(|word| Path::new(word).file_name()).unwrap_or_default();
    if called.as_bytes().starts_with(b"umount.") {
        return Helper::Arguments(unmounting(&words[1..]));
    }
    if !called.as_bytes().starts_with(b"mount.") {
        return Helper::No;
    }
    let (mut options, mut places) = (Vec::new(), Vec::new());
    let mut words = words[1..].iter();
    while let Some(word) = words.next() {
        match word.as_bytes() {
            b"-o" => {
                options.push(OsString::from("-o"));
                options.extend(words.next().cloned());
            }
            b"-t" | b"-N" => drop(words.next()),
            b"-h" | b"--help" => return Helper::Arguments(["weft", "mount", "--help"].map(OsString::from).into()),
            letters if is_flags(letters, b"sfnvrw") => {
                if letters.contains(&b'f') {
                    return Helper::Fake;
                }
                if letters.contains(&b'r') {
                    options.push("--read-only".into());
                }
            }
            _ => places.push(word.clone()),
        }
    }
    let mut arguments: Vec<OsString> = vec!["weft".into(), "mount".into()];
    if caller.is_root() && !places.is_empty() {
        arguments.extend(["-o".into(), "suid,dev".into()]);
    }
    arguments.append(&mut options);
    // A call without arguments asks for help; a volume's name may start with a dash.
    if places.is_empty() {
        arguments.push("--help".into());
    } else {
        arguments.push("--".into());
    }
    arguments.append(&mut places);
    Helper::Arguments(arguments)
}

/// Returns the arguments of `weft` for the `words` of an umount helper. Force is the default here:
/// no wait for a daemon that does not answer lasts beyond a time.
fn unmounting(words: &[OsString]) -> Vec<OsString> {
    let mut arguments: Vec<OsString> = vec!["weft".into(), "umount".into()];
    let mut places = Vec::new();
    let mut words = words.iter();
    while let Some(word) = words.next() {
        match word.as_bytes() {
            b"-t" | b"-N" => drop(words.next()),
            letters if is_flags(letters, b"flnrv") => {
                if letters.contains(&b'l') {
                    arguments.push("--lazy".into());
                }
            }
            _ => places.push(word.clone()),
        }
    }
    arguments.push(if places.is_empty() { "--help" } else { "--" }.into());
    arguments.append(&mut places);
    arguments
}

/// True if a word is made of flags of these letters: sloppy, fake or force, lazy, no mtab, verbose,
/// read-only, read-write.
fn is_flags(word: &[u8], known: &[u8]) -> bool {
    word.split_first().is_some_and(|(dash, letters)| {
        *dash == b'-' && !letters.is_empty() && letters.iter().all(|letter| known.contains(letter))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(line: &str) -> Vec<OsString> {
        line.split(' ').map(OsString::from).collect()
    }

    #[test]
    fn the_program_under_its_own_name_is_no_helper() {
        assert_eq!(helper(&words("/usr/bin/weft mount a b"), Uid::ROOT), Helper::No);
        assert_eq!(helper(&[], Uid::ROOT), Helper::No);
    }

    #[test]
    fn a_line_of_mount_8_becomes_a_mount_command() {
        let line = words("/sbin/mount.fuse.weft /vol.weft /mnt -sn -v -t weft -N 7 -o rw,noatime");
        let by_user = Helper::Arguments(words("weft mount -o rw,noatime -- /vol.weft /mnt"));
        assert_eq!(helper(&line, Uid::from_raw(1000)), by_user);
        let by_root = Helper::Arguments(words("weft mount -o suid,dev -o rw,noatime -- /vol.weft /mnt"));
        assert_eq!(helper(&line, Uid::ROOT), by_root);
    }

    #[test]
    fn a_line_of_umount_8_becomes_an_umount_command() {
        let made = |line| helper(&words(line), Uid::ROOT);
        let plain = Helper::Arguments(words("weft umount -- /mnt"));
        assert_eq!(made("/sbin/umount.fuse.weft /mnt -nv -t fuse.weft"), plain);
        assert_eq!(made("umount.weft /mnt -f -r -N 7"), plain);
        let lazy = Helper::Arguments(words("weft umount --lazy -- -mnt"));
        assert_eq!(made("umount.weft -mnt -l"), lazy);
        assert_eq!(made("umount.weft"), Helper::Arguments(words("weft umount --help")));
    }

    #[test]
    fn a_fake_mount_does_nothing() {
        assert_eq!(helper(&words("mount.weft /vol.weft /mnt -nf"), Uid::ROOT), Helper::Fake);
    }

    #[test]
    fn a_helper_called_without_arguments_explains_itself() {
        for line in ["mount.weft", "mount.weft -h", "mount.fuse.weft --help"] {
            assert_eq!(helper(&words(line), Uid::ROOT), Helper::Arguments(words("weft mount --help")));
        }
    }
}
