//! Exports as exports(5) writes them: `/path client(option,…) client…`.

use super::{Clients, Export, Exports, Rule, Squash, WriteAck};
use std::net::IpAddr;
use std::str::FromStr;

/// Reason that a line is no export.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ParseError {
    /// It names no directory.
    #[error("'{0}' does not begin with the path of a directory in the volume, such as '/' or '/shared'")]
    Path(String),
    /// It names no client.
    #[error("'{0}' does not say to whom: '{0} *' is everybody, '{0} 192.168.0.0/16' a network")]
    Nobody(String),
    /// A client that cannot be read.
    #[error("'{0}' is neither an address, nor a network such as 10.0.0.0/8, nor '*'; names of hosts are not looked up")]
    Client(String),
    /// An option that is not known.
    #[error(
        "'{0}' is none of the options rw, ro, root_squash, no_root_squash, all_squash, anonuid=, anongid=, sync, async, secure, \
         insecure, xprtsec=none, xprtsec=tls, xprtsec=mtls"
    )]
    Option(String),
    /// Options that do not end.
    #[error("the options in '{0}' have no ')' at their end")]
    Unclosed(String),
    /// An id that is no number.
    #[error("'{0}' names no number of a user or group, from 0 to 4294967295")]
    Id(String),
    /// The same directory twice.
    #[error("{0} is exported twice; put all its clients on one line")]
    Twice(String),
}

impl FromStr for Exports {
    type Err = ParseError;

    /// Parses lines; `#` begins a comment.
    fn from_str(text: &str) -> Result<Exports, ParseError> {
        let lines = text.lines().map(|line| line.split('#').next().unwrap_or_default().trim());
        let exports = lines.filter(|line| !line.is_empty()).map(str::parse).collect::<Result<Vec<Export>, _>>()?;
        for (at, export) in exports.iter().enumerate() {
            if exports[..at].iter().any(|earlier| earlier.path == export.path) {
                return Err(ParseError::Twice(String::from_utf8_lossy(&export.name()).into_owned()));
            }
        }
        Ok(Exports(exports))
    }
}

impl FromStr for Export {
    type Err = ParseError;

    fn from_str(line: &str) -> Result<Export, ParseError> {
        let mut words = line.split_ascii_whitespace();
        let path = words.next().filter(|path| path.starts_with('/'));
        let path = path.ok_or_else(|| ParseError::Path(line.into()))?;
        let rules = words.map(str::parse).collect::<Result<Vec<Rule>, _>>()?;
        // Nobody would be of no use, and everybody is not meant by saying nothing.
        if rules.is_empty() {
            return Err(ParseError::Nobody(path.into()));
        }
        Ok(Export { path: parts(&unescape(path.as_bytes())), rules })
    }
}

/// Returns the names in a path.
pub(crate) fn parts(path: &[u8]) -> Vec<Vec<u8>> {
    path.split(|byte| *byte == b'/').filter(|part| !part.is_empty() && *part != b".").map(<[u8]>::to_vec).collect()
}

/// Decodes a path as exports(5), fstab(5) and mountinfo write it, with `\040` for a space and the
/// like.
pub fn unescape(word: &[u8]) -> Vec<u8> {
    let (mut bytes, mut rest) = (Vec::new(), word);
    while let Some((first, after)) = rest.split_first() {
        let digits = after.get(..3).and_then(|digits| std::str::from_utf8(digits).ok());
        let code = digits.filter(|_| *first == b'\\').and_then(|digits| u8::from_str_radix(digits, 8).ok());
        bytes.push(code.unwrap_or(*first));
        rest = if code.is_some() { &after[3..] } else { after };
    }
    bytes
}

impl FromStr for Rule {
    type Err = ParseError;

    fn from_str(word: &str) -> Result<Rule, ParseError> {
        let (clients, options) = match word.split_once('(') {
            Some((clients, options)) => {
                (clients, options.strip_suffix(')').ok_or_else(|| ParseError::Unclosed(word.into()))?)
            }
            None => (word, ""),
        };
        let mut rule = Rule { clients: clients.parse()?, ..Rule::default() };
        for option in options.split(',').filter(|option| !option.is_empty()) {
            rule.set(option)?;
        }
        Ok(rule)
    }
}

impl Rule {
    fn set(&mut self, option: &str) -> Result<(), ParseError> {
        let unknown = || ParseError::Option(option.into());
        match option.split_once('=') {
            Some(("anonuid", id)) => self.anonymous_uid = id.parse().map_err(|_| ParseError::Id(option.into()))?,
            Some(("anongid", id)) => self.anonymous_gid = id.parse().map_err(|_| ParseError::Id(option.into()))?,
            Some(("xprtsec", security)) => {
                (self.tls, self.mutual) = match security {
                    "none" => (false, false),
                    "tls" => (true, false),
                    "mtls" => (true, true),
                    _ => return Err(unknown()),
                }
            }
            Some(_) => return Err(unknown()),
            None => match option {
                "rw" => self.read_only = false,
                "ro" => self.read_only = true,
                "root_squash" => self.squash = Squash::Root,
                "no_root_squash" => self.squash = Squash::None,
                "all_squash" => self.squash = Squash::All,
                "sync" => self.told = WriteAck::Durable,
                "async" => self.told = WriteAck::Recorded,
                "secure" => self.secure_port = true,
                "insecure" => self.secure_port = false,
                _ => return Err(unknown()),
            },
        }
        Ok(())
    }
}

impl FromStr for Clients {
    type Err = ParseError;

    fn from_str(text: &str) -> Result<Clients, ParseError> {
        let bad = || ParseError::Client(text.into());
        if text == "*" {
            return Ok(Clients::Any);
        }
        let (address, bits) = match text.split_once('/') {
            Some((address, bits)) => (address, Some(bits.parse::<u8>().map_err(|_| bad())?)),
            None => (text, None),
        };
        let address: IpAddr = address.trim_start_matches('[').trim_end_matches(']').parse().map_err(|_| bad())?;
        let width = if address.is_ipv4() { 32 } else { 128 };
        match bits.unwrap_or(width) {
            bits if bits <= width => Ok(Clients::Network { address, bits }),
            _ => Err(bad()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_says_what_and_to_whom() {
        let text =
            "# ours\n/a\\040b 10.0.0.0/8(ro,all_squash,anonuid=5,anongid=6) [::1](rw,no_root_squash)\n/ * # all\n";
        let Exports(exports) = text.parse().unwrap();
        assert_eq!(exports[0].path, [b"a b".to_vec()]);
        let first = &exports[0].rules[0];
        assert_eq!(first.clients, Clients::Network { address: "10.0.0.0".parse().unwrap(), bits: 8 });
        assert!(first.read_only && first.squash == Squash::All && first.anonymous_uid == 5 && first.anonymous_gid == 6);
        assert_eq!(exports[0].rules[1].squash, Squash::None);
        assert_eq!(exports[1], Export { path: vec![], rules: vec![Rule::default()] });
    }

    #[test]
    fn what_cannot_be_read_is_refused_with_a_reason() {
        let error = |text: &str| text.parse::<Exports>().unwrap_err();
        assert_eq!(error("data *"), ParseError::Path("data *".into()));
        assert_eq!(error("/ # all"), ParseError::Nobody("/".into()));
        assert_eq!(error("/ host.example"), ParseError::Client("host.example".into()));
        assert_eq!(error("/ 10.0.0.0/33"), ParseError::Client("10.0.0.0/33".into()));
        assert_eq!(error("/ *(rw,wdelay)"), ParseError::Option("wdelay".into()));
        assert_eq!(error("/ *(rw"), ParseError::Unclosed("*(rw".into()));
        assert_eq!(error("/ *(anonuid=x)"), ParseError::Id("anonuid=x".into()));
        assert_eq!(error("/a *\n/a/ *"), ParseError::Twice("/a".into()));
    }
}
