//! The mount that holds a path (proc_pid_mountinfo(5)).

use rustix::fs::{AtFlags, CWD, StatxFlags, statx};
use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt;
use std::path::{Path, PathBuf};

/// A mount.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Mount {
    /// Kind of the file system.
    pub(crate) kind: String,
    /// The source of the mount: a device, the path of a volume, or just a name.
    pub(crate) source: PathBuf,
}

/// Returns the mount that holds `path`.
pub(crate) fn of(path: &Path) -> Option<Mount> {
    let number = statx(CWD, path, AtFlags::empty(), StatxFlags::MNT_ID).ok()?.stx_mnt_id.to_string();
    let mounts = std::fs::read("/proc/self/mountinfo").ok()?;
    mounts.split(|byte| *byte == b'\n').find_map(|line| parse(line, &number))
}

/// The mount that `line` describes, if it has this `number`.
fn parse(line: &[u8], number: &str) -> Option<Mount> {
    let mut fields = line.split(|byte| *byte == b' ');
    if fields.next() != Some(number.as_bytes()) {
        return None;
    }
    // Optional fields end with a dash.
    fields.find(|field| *field == b"-")?;
    let (kind, source) = (fields.next()?, fields.next()?);
    Some(Mount { kind: String::from_utf8_lossy(kind).into(), source: OsString::from_vec(unescaped(source)).into() })
}

/// `field` with the bytes that are written as a backslash and three octal digits.
fn unescaped(field: &[u8]) -> Vec<u8> {
    let (mut bytes, mut rest) = (Vec::new(), field);
    while let [first, after @ ..] = rest {
        let digits = after.get(..3).filter(|_| *first == b'\\').and_then(|digits| std::str::from_utf8(digits).ok());
        let escaped = digits.and_then(|digits| u8::from_str_radix(digits, 8).ok());
        bytes.push(escaped.unwrap_or(*first));
        rest = if escaped.is_some() { &after[3..] } else { after };
    }
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_source_with_a_space_is_read_as_it_is_called() {
        let line = br"42 27 0:39 / /mnt rw shared:1 - fuse.weft /tmp/a\040volume\134 rw";
        let mount = Mount { kind: "fuse.weft".into(), source: r"/tmp/a volume\".into() };
        assert_eq!(parse(line, "42"), Some(mount));
        assert_eq!(parse(line, "4"), None);
    }
}
