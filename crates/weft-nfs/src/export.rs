//! Exports and their rules, as exports(5) writes them: which clients may use which parts of a
//! volume.
//!
//! An export is a directory and rules; a rule says which clients it is for and what they may do. Of
//! several rules that fit a client the one for the fewest addresses counts.

mod parse;

pub(crate) use parse::parts;

pub use parse::{ParseError, unescape};

use crate::rpc::Auth;
use std::net::IpAddr;
use weft_vfs::Credentials;

/// User and group that stand for users without rights of their own: "nobody".
pub(crate) const NOBODY: u32 = 65534;

/// Ports below this are the super-user's on most systems.
pub(crate) const RESERVED_PORTS_END: u16 = 1024;

/// All exports of a volume.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Exports(pub Vec<Export>);

/// A directory that is served.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Export {
    /// Names on the way to it from the volume's root; none: the root itself.
    pub path: Vec<Vec<u8>>,
    /// Rules; clients that none of them is for are refused.
    pub rules: Vec<Rule>,
}

/// Clients of an export and their rights.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rule {
    /// Clients that the rule is for.
    pub clients: Clients,
    /// Refuse every change.
    pub read_only: bool,
    /// Users that count as the anonymous one.
    pub squash: Squash,
    /// User that squashed users count as.
    pub anonymous_uid: u32,
    /// Group that squashed groups count as.
    pub anonymous_gid: u32,
    /// Only from ports below 1024, which on many systems the super-user alone can use.
    pub secure_port: bool,
    /// Only over TLS.
    pub tls: bool,
    /// Only with a certificate of the client's. It comes over TLS, and the server must ask for it:
    /// the caller that parses exports sees to that.
    pub mutual: bool,
    /// Write acknowledgement policy.
    pub told: WriteAck,
}

/// Write acknowledgement policy: the point at which a change is acknowledged to the client. Changes
/// that a client asks to be durable (COMMIT, stable writes) always are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WriteAck {
    /// After it survives anything (`sync`), as RFC 1813 4.8 demands.
    Durable,
    /// After it survives the end of the daemon (`async`): a power cut may undo acknowledged
    /// changes.
    Recorded,
}

/// Addresses of clients.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Clients {
    /// All.
    Any,
    /// Addresses whose first `bits` bits are those of `address`.
    Network {
        /// An address among them.
        address: IpAddr,
        /// Number of bits they share.
        bits: u8,
    },
}

/// Users that count as the anonymous one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Squash {
    /// None.
    None,
    /// The super-user, and the group 0.
    Root,
    /// All.
    All,
}

/// A client as rules see it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Client {
    pub(crate) address: IpAddr,
    pub(crate) port: u16,
    /// The address of this machine that it knows.
    pub(crate) local: IpAddr,
    pub(crate) transport: Transport,
    pub(crate) tls: bool,
}

/// Transport of calls.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Transport {
    Tcp,
    Udp,
}

/// Reason that a rule does not let a client in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Closed {
    /// No rule is for it.
    Denied,
    /// Any user can call from its port, and the rule is for reserved ones.
    UnreservedPort,
    /// The rule asks for TLS.
    NeedsTls,
}

impl Default for Rule {
    fn default() -> Rule {
        Rule {
            clients: Clients::Any,
            read_only: false,
            squash: Squash::Root,
            anonymous_uid: NOBODY,
            anonymous_gid: NOBODY,
            secure_port: false,
            tls: false,
            mutual: false,
            told: WriteAck::Durable,
        }
    }
}

impl Default for Exports {
    /// Exports the whole volume to clients on reserved ports: any other user of this machine could
    /// claim to be another one (AUTH_SYS).
    fn default() -> Exports {
        let rule = Rule { secure_port: true, ..Rule::default() };
        Exports(vec![Export { path: Vec::new(), rules: vec![rule] }])
    }
}

impl Clients {
    /// Returns the number of bits of an address that fit; none if the address does not.
    fn fit(&self, client: IpAddr) -> Option<u8> {
        match self {
            Clients::Any => Some(0),
            Clients::Network { address, bits } => {
                let (ours, theirs, width) = match (address.to_canonical(), client.to_canonical()) {
                    (IpAddr::V4(a), IpAddr::V4(b)) => (u128::from(u32::from(a)), u128::from(u32::from(b)), 32),
                    (IpAddr::V6(a), IpAddr::V6(b)) => (u128::from(a), u128::from(b), 128),
                    _ => return None,
                };
                let differ = ours ^ theirs;
                let shift = width - u32::from(*bits).min(width);
                (differ.checked_shr(shift).unwrap_or(0) == 0).then_some(*bits + 1)
            }
        }
    }
}

impl Export {
    /// Returns the rule for `client`. It is chosen by the address alone: its further conditions
    /// refuse the client, and open no other rule to it.
    pub(crate) fn rule(&self, client: &Client) -> Result<&Rule, Closed> {
        let fitting = self.rules.iter().filter_map(|rule| Some((rule.clients.fit(client.address)?, rule)));
        // The first of several that fit equally well.
        let best = fitting.reduce(|best, next| if next.0 > best.0 { next } else { best });
        let (_, best) = best.ok_or(Closed::Denied)?;
        if best.secure_port && client.port >= RESERVED_PORTS_END {
            return Err(Closed::UnreservedPort);
        }
        if best.tls && !client.tls { Err(Closed::NeedsTls) } else { Ok(best) }
    }

    /// Returns the path, as clients name it.
    pub fn name(&self) -> Vec<u8> {
        let mut name = Vec::new();
        for part in &self.path {
            name.push(b'/');
            name.extend_from_slice(part);
        }
        if name.is_empty() { b"/".to_vec() } else { name }
    }
}

impl Rule {
    /// Returns the credentials that a calling user acts with.
    pub(crate) fn credentials(&self, auth: &Auth) -> Credentials {
        let anonymous = || Credentials { uid: self.anonymous_uid, gid: self.anonymous_gid, groups: Vec::new() };
        let Auth::Sys(said) = auth else { return anonymous() };
        match self.squash {
            Squash::None => said.clone(),
            Squash::All => anonymous(),
            Squash::Root if said.uid == 0 => anonymous(),
            Squash::Root => {
                let group = |gid: u32| if gid == 0 { self.anonymous_gid } else { gid };
                let groups = said.groups.iter().map(|gid| group(*gid)).collect();
                Credentials { uid: said.uid, gid: group(said.gid), groups }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn client(address: &str, port: u16) -> Client {
        let local = [127, 0, 0, 1].into();
        Client { address: address.parse().unwrap(), port, local, transport: Transport::Tcp, tls: false }
    }

    #[test]
    fn the_rule_for_the_fewest_addresses_counts() {
        let exports: Exports = "/a *(ro) 10.0.0.0/8(rw) 10.1.2.3(ro,all_squash)".parse().unwrap();
        let rule = |address| exports.0[0].rule(&client(address, 700)).unwrap();
        assert!(rule("192.168.0.1").read_only);
        assert!(!rule("10.1.2.4").read_only);
        assert_eq!(rule("10.1.2.3").squash, Squash::All);
        assert!(!rule("::ffff:10.9.9.9").read_only);
        assert!(rule("fe80::1").read_only);
    }

    #[test]
    fn who_no_rule_is_for_is_denied_and_who_comes_without_tls_is_told() {
        let exports: Exports = "/ 10.0.0.0/8(secure) fd00::/8(xprtsec=tls)".parse().unwrap();
        let rule = |client: Client| exports.0[0].rule(&client).map(|_| ());
        assert_eq!(rule(client("10.0.0.1", 700)), Ok(()));
        assert_eq!(rule(client("10.0.0.1", 1024)), Err(Closed::UnreservedPort));
        let exports: Exports = "/ *(rw,no_root_squash) 10.0.0.0/8(secure,ro)".parse().unwrap();
        assert_eq!(
            exports.0[0].rule(&client("10.0.0.1", 1024)).err(),
            Some(Closed::UnreservedPort),
            "not by the wider rule"
        );
        assert!(exports.0[0].rule(&client("10.0.0.1", 1023)).unwrap().read_only);
        let exports: Exports = "/ 10.0.0.0/8(secure) fd00::/8(xprtsec=tls)".parse().unwrap();
        let rule = |client: Client| exports.0[0].rule(&client).map(|_| ());
        assert_eq!(rule(client("11.0.0.1", 700)), Err(Closed::Denied));
        assert_eq!(rule(client("fd12::1", 700)), Err(Closed::NeedsTls));
        assert_eq!(rule(Client { tls: true, ..client("fd12::1", 700) }), Ok(()));
    }

    #[test]
    fn without_a_rule_only_reserved_ports_may_call() {
        let exports = Exports::default();
        let rule = |port| exports.0[0].rule(&client("127.0.0.1", port)).map(|rule| rule.squash);
        assert_eq!(rule(1023), Ok(Squash::Root));
        assert_eq!(rule(1024), Err(Closed::UnreservedPort));
        assert_eq!(rule(60000), Err(Closed::UnreservedPort));
    }

    #[test]
    fn squashing_makes_root_or_all_nobody() {
        let of = |uid, gid, groups: &[u32]| Auth::Sys(Credentials { uid, gid, groups: groups.to_vec() });
        let nobody = Credentials { uid: NOBODY, gid: NOBODY, groups: vec![] };
        let root = Rule::default();
        assert_eq!(root.credentials(&of(0, 0, &[5])), nobody);
        assert_eq!(root.credentials(&Auth::None), nobody);
        let user = Credentials { uid: 1, gid: NOBODY, groups: vec![NOBODY, 5] };
        assert_eq!(root.credentials(&of(1, 0, &[0, 5])), user);
        let none = Rule { squash: Squash::None, ..Rule::default() };
        assert_eq!(none.credentials(&of(0, 0, &[])), Credentials::default());
        let all = Rule { squash: Squash::All, anonymous_uid: 9, ..Rule::default() };
        assert_eq!(all.credentials(&of(1, 2, &[3])), Credentials { uid: 9, ..nobody });
    }
}
