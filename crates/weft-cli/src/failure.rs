//! The ways in which a command fails: its exit code, and its error in words.

use crate::{advice, daemons};
use anyhow::Result;
use std::fmt;

/// Invalid arguments: the exit code is 2.
#[derive(Debug)]
pub struct Usage(String);

impl fmt::Display for Usage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for Usage {}

/// A difference or damage that a command looked for, as an error: the exit code is 1. Failures have
/// exit code 2.
#[derive(Debug)]
pub struct Differs(pub String);

impl fmt::Display for Differs {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for Differs {}

/// Fails with [`Differs`] unless `is`.
pub fn agrees(is: bool, differs: impl FnOnce() -> String) -> Result<()> {
    if is { Ok(()) } else { Err(Differs(differs()).into()) }
}

/// Returns an error, its causes and advice on one line.
pub fn one_line(error: &anyhow::Error) -> String {
    let told = daemons::explain(error, causes(error));
    let advice = advice::on(error, &told);
    advice::filled(&(told + &advice))
}

/// True if `error` reports damage or a difference that the command looked for.
pub fn is_found(error: &anyhow::Error) -> bool {
    error.chain().any(|error| error.is::<Differs>()) || advice::is_damage(error) && !advice::is_malformed(error)
}

/// Returns an error and its causes on one line; many errors name their causes themselves.
pub fn causes(error: &anyhow::Error) -> String {
    let mut line = String::new();
    for error in error.chain() {
        let mut cause = error.to_string();
        // Damage is mentioned once.
        if let Some(damage) = cause.strip_prefix("damaged: ")
            && (damage.contains("damaged") || line.contains(damage))
        {
            cause = damage.into();
        }
        if line.is_empty() {
            line = cause;
        } else if !line.contains(&cause) {
            line = format!("{line}: {cause}");
        }
        // It names all of its causes in its own words.
        if error.is::<weft_store::Error>() {
            break;
        }
    }
    line.replace('\n', " ")
}

/// Refuses an argument; `error` names it and the reason.
pub fn usage<T>(error: String) -> Result<T> {
    Err(Usage(error).into())
}

/// Returns a 32-bit option, or refuses `value`.
pub fn narrow(what: &str, value: u64) -> Result<u32> {
    u32::try_from(value).or_else(|_| usage(format!("{what} {value} is too large")))
}

#[cfg(test)]
mod tests {
    use super::*;
    use anyhow::Context;

    #[test]
    fn a_cause_that_an_error_names_itself_is_said_once() {
        let error = std::io::Error::other("no paper");
        let error = Err::<(), _>(error).context("cannot print: no paper\nat all").context("cannot report").unwrap_err();
        assert_eq!(one_line(&error), "cannot report: cannot print: no paper at all");
        let error = weft_store::Error::Corrupt("block 2 has other bytes".into());
        let at_inode = "damaged at inode 16: block 2 has other bytes";
        let error = Err::<(), _>(error).context(at_inode).unwrap_err();
        let line = one_line(&error);
        assert!(line.starts_with(&format!("{at_inode}; 'weft scrub")), "{line}");
        let error = weft_store::Error::Corrupt("the row of inode 16 is damaged; 'weft check' tells".into());
        let line = one_line(&Err::<(), _>(error).context("cannot read x").unwrap_err());
        assert_eq!(line, "cannot read x: the row of inode 16 is damaged; 'weft check VOLUME' tells");
    }
}
