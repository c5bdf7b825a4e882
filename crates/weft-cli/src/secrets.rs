//! Passwords among the arguments: all users of the machine see the arguments of every process
//! (`ps`).
//!
//! The program overwrites them first. Until then they can be seen, so the password file is the
//! better place for them.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::sync::OnceLock;
use weft_store::postgres::{is_address, shown};

static WORDS: OnceLock<Vec<OsString>> = OnceLock::new();

/// Returns the arguments of this process as it was called. [`std::env::args_os`] may have those
/// that [`hide`] changed.
pub fn words() -> &'static [OsString] {
    WORDS.get_or_init(|| std::env::args_os().collect())
}

/// Overwrites the passwords of addresses among the arguments where other users see them. Must be
/// called before other threads are started.
pub fn hide() {
    let hidden: Vec<OsString> = words().iter().map(|word| hidden(word)).collect();
    if hidden == words() {
        return;
    }
    let Some(memory) = memory() else { return };
    if memory != bytes(words()) {
        return;
    }
    memory.copy_from_slice(&bytes(&hidden));
}

/// Returns `word` without its password, as long as before.
fn hidden(word: &OsStr) -> OsString {
    let Some(text) = word.to_str().filter(|text| is_address(text)) else { return word.into() };
    let mut shown = shown(text).into_bytes();
    shown.resize(word.len(), b' ');
    OsString::from_vec(shown)
}

/// Returns arguments as they lie in memory (execve(2)).
fn bytes(words: &[OsString]) -> Vec<u8> {
    words.iter().flat_map(|word| word.as_bytes().iter().copied().chain([0])).collect()
}

/// Returns the memory of the arguments, which the kernel shows to others (proc_pid_stat(5),
/// `arg_start` and `arg_end`).
fn memory() -> Option<&'static mut [u8]> {
    let stat = std::fs::read_to_string("/proc/self/stat").ok()?;
    let mut fields = stat.rsplit_once(')')?.1.split_whitespace().skip(45);
    let mut next = || fields.next()?.parse::<usize>().ok().filter(|address| *address != 0);
    let (start, end) = (next()?, next()?);
    let len = end.checked_sub(start)?;
    // SAFETY: the kernel has put the arguments there, in memory that stays and can be written to.
    // The standard library has pointers to them and reads them only when it is asked; no other
    // thread runs.
    Some(unsafe { std::slice::from_raw_parts_mut(std::ptr::with_exposed_provenance_mut(start), len) })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_keeps_its_length_and_loses_its_password() {
        let hidden = |word: &str| hidden(OsStr::new(word)).into_string().unwrap();
        assert_eq!(hidden("postgres://me:word@host/d?schema=s"), "postgres://me@host/d?schema=s     ");
        assert_eq!(hidden("postgres:///d?password=word"), format!("{:27}", "postgres:///d"));
        assert_eq!(hidden("/srv/me:word@host"), "/srv/me:word@host");
    }
}
