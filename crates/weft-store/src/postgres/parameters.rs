//! Parameters of libpq that protect a connection: each is honoured, or refused by its name.
//!
//! A setting that somebody made for safety and that is passed over in silence is worse than an
//! error. So each parameter that libpq 18 has for this is in the table below, with the variable
//! that says the same (PostgreSQL documentation, "Parameter Key Words", "Environment Variables").
//! Those that the client library or [`super::address`] take themselves are not. An address with any
//! other option is refused, too.

use super::address::{Environment, unusable};
use crate::error::Result;
use rustls::SupportedProtocolVersion;
use rustls::version::{TLS12, TLS13};
use std::collections::HashMap;
use std::path::Path;
use tokio_postgres::config::{ChannelBinding, LoadBalanceHosts};

/// The treatment of a parameter.
enum Rule {
    /// It is done as it says; by [`Protection`].
    Honoured,
    /// These values ask for what is done anyway, in any case of letters. Others are refused, for a
    /// reason, with advice.
    Only(&'static [&'static str], &'static str),
}

use Rule::{Honoured, Only};

const NO_GSS: &str = "Weft speaks no GSSAPI; protect the connection by sslmode=verify-full";
const NO_CRL: &str = "Weft reads no lists of revoked certificates; take an authority of your own for sslrootcert";
const NO_KEY_PASSWORD: &str = "Weft reads no encrypted keys; decrypt it into a file that only you can read";
const NO_METHODS: &str =
    "Weft cannot restrict methods of authentication so; channel_binding=require allows SCRAM over TLS alone";
const NO_CERTIFICATE_DEMAND: &str =
    "Weft cannot tell that the server asked for the certificate; have pg_hba.conf demand it (clientcert=verify-full)";
const NO_PEER: &str = "Weft cannot tell whose socket it is; use a directory that only the server's user can write to";
const NO_KEY_LOG: &str = "Weft writes keys of connections nowhere";
const ONLY_NEGOTIATED: &str = "Weft negotiates TLS as servers of all versions do ('postgres')";
const NO_REQUIRE: &str = "it was replaced; say sslmode=require";
const NO_SCRAM_KEYS: &str = "Weft takes passwords alone";
const NO_COMPRESSION: &str = "nobody compresses protected connections any more";

/// The parameters, with their variables.
const PARAMETERS: &[(&str, Option<&str>, Rule)] = &[
    ("channel_binding", Some("PGCHANNELBINDING"), Honoured),
    ("load_balance_hosts", Some("PGLOADBALANCEHOSTS"), Honoured),
    ("ssl_min_protocol_version", Some("PGSSLMINPROTOCOLVERSION"), Honoured),
    ("ssl_max_protocol_version", Some("PGSSLMAXPROTOCOLVERSION"), Honoured),
    ("sslsni", Some("PGSSLSNI"), Honoured),
    ("sslcertmode", Some("PGSSLCERTMODE"), Only(&["disable", "allow"], NO_CERTIFICATE_DEMAND)),
    ("require_auth", Some("PGREQUIREAUTH"), Only(&[], NO_METHODS)),
    ("gssencmode", Some("PGGSSENCMODE"), Only(&["disable", "prefer"], NO_GSS)),
    ("gssdelegation", Some("PGGSSDELEGATION"), Only(&["0"], NO_GSS)),
    ("krbsrvname", Some("PGKRBSRVNAME"), Only(&["postgres"], NO_GSS)),
    ("gsslib", Some("PGGSSLIB"), Only(&[], NO_GSS)),
    ("sslcrl", Some("PGSSLCRL"), Only(&[], NO_CRL)),
    ("sslcrldir", Some("PGSSLCRLDIR"), Only(&[], NO_CRL)),
    ("sslpassword", None, Only(&[], NO_KEY_PASSWORD)),
    ("requirepeer", Some("PGREQUIREPEER"), Only(&[], NO_PEER)),
    ("sslkeylogfile", None, Only(&[], NO_KEY_LOG)),
    ("sslnegotiation", Some("PGSSLNEGOTIATION"), Only(&["postgres"], ONLY_NEGOTIATED)),
    ("requiressl", Some("PGREQUIRESSL"), Only(&["0"], NO_REQUIRE)),
    ("scram_client_key", None, Only(&[], NO_SCRAM_KEYS)),
    ("scram_server_key", None, Only(&[], NO_SCRAM_KEYS)),
    ("sslcompression", Some("PGSSLCOMPRESSION"), Only(&["0"], NO_COMPRESSION)),
    ("min_protocol_version", Some("PGMINPROTOCOLVERSION"), Only(&["3.0"], "Weft speaks version 3.0")),
    ("max_protocol_version", Some("PGMAXPROTOCOLVERSION"), Only(&["3.0", "3.2", "latest"], "Weft speaks version 3.0")),
];

/// True if the table has an option of this name.
pub(super) fn has(name: &str) -> bool {
    PARAMETERS.iter().any(|(known, ..)| *known == name)
}

/// The variable that says what option `name` says.
pub(super) fn variable(name: &str) -> Option<&'static str> {
    PARAMETERS.iter().find(|(known, ..)| *known == name).and_then(|(_, variable, _)| *variable)
}

/// Protection of a connection beyond `sslmode`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Protection {
    pub(super) channel_binding: ChannelBinding,
    pub(super) load_balance_hosts: LoadBalanceHosts,
    /// True if the server gets the name that is asked for (RFC 6066, 3).
    pub(super) tells_name: bool,
    /// True if a certificate of our own may be shown.
    pub(super) shows_certificate: bool,
    is_tls12_allowed: bool,
    is_tls13_allowed: bool,
}

impl Protection {
    /// Reads `options` of an address, and the environment for what they leave out. Errors:
    /// `Unusable`, with the name of a parameter that says what is not done.
    pub(super) fn read(options: &HashMap<String, String>, environment: Environment<'_>) -> Result<Protection> {
        let value = |name: &'static str| {
            let own = options.get(name).map(|value| (name, value.clone()));
            let said = own.or_else(|| variable(name).and_then(|variable| Some((variable, environment(variable)?))));
            said.filter(|(_, value)| !value.is_empty())
        };
        for (name, _, rule) in PARAMETERS {
            if let (Some((said_by, value)), Only(known, why)) = (value(name), rule)
                && !known.iter().any(|known| known.eq_ignore_ascii_case(&value))
            {
                // What it says may be a secret.
                return Err(unusable(format!("{said_by} is not honoured, and refused for that: {why}")));
            }
        }
        let of = |name: &'static str, default: &str| {
            value(name).map_or((name.to_owned(), default.to_owned()), |(by, value)| (by.to_owned(), value))
        };
        let (min, max) = (of("ssl_min_protocol_version", "TLSv1.2"), of("ssl_max_protocol_version", "TLSv1.3"));
        let (min, max) = (tls_version(&min)?, tls_version(&max)?);
        if max < 2 || max < min {
            return Err(unusable(
                "no version of TLS that Weft speaks (1.2, 1.3) is allowed by ssl_max_protocol_version",
            ));
        }
        Ok(Protection {
            channel_binding: one_of(
                &of("channel_binding", "prefer"),
                &[
                    ("disable", ChannelBinding::Disable),
                    ("prefer", ChannelBinding::Prefer),
                    ("require", ChannelBinding::Require),
                ],
            )?,
            load_balance_hosts: one_of(
                &of("load_balance_hosts", "disable"),
                &[("disable", LoadBalanceHosts::Disable), ("random", LoadBalanceHosts::Random)],
            )?,
            tells_name: one_of(&of("sslsni", "1"), &[("1", true), ("0", false)])?,
            shows_certificate: of("sslcertmode", "allow").1 != "disable",
            is_tls12_allowed: min <= 2,
            is_tls13_allowed: max >= 3,
        })
    }

    /// The versions of TLS that may be spoken.
    pub(super) fn versions(&self) -> Vec<&'static SupportedProtocolVersion> {
        let known = [(self.is_tls13_allowed, &TLS13), (self.is_tls12_allowed, &TLS12)];
        known.into_iter().filter(|(is_allowed, _)| *is_allowed).map(|(_, version)| version).collect()
    }
}

/// The minor number of a version of TLS.
fn tls_version(said: &(String, String)) -> Result<u32> {
    one_of(said, &[("tlsv1", 0), ("tlsv1.1", 1), ("tlsv1.2", 2), ("tlsv1.3", 3)])
}

/// Returns the meaning of one of the `known` words, in any case of letters.
fn one_of<T: Copy>((by, value): &(String, String), known: &[(&str, T)]) -> Result<T> {
    let found = known.iter().find(|(word, _)| word.eq_ignore_ascii_case(value));
    found.map(|(_, meaning)| *meaning).ok_or_else(|| {
        let words = known.iter().map(|(word, _)| format!("'{word}'")).collect::<Vec<_>>().join(", ");
        unusable(format!("{by} '{value}' is none of {words}"))
    })
}

/// Refuses a list of revoked certificates that libpq would find by itself.
pub(super) fn refuse_usual_list(directory: &Path) -> Result<()> {
    let list = directory.join("root.crl");
    if !list.exists() {
        return Ok(());
    }
    Err(unusable(format!("{} is not honoured, and refused for that: {NO_CRL}", list.display())))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(options: &[(&str, &str)], variables: &[(&str, &str)]) -> Result<Protection> {
        let options = options.iter().map(|(name, value)| ((*name).into(), (*value).into())).collect();
        Protection::read(&options, &|name| {
            variables.iter().find(|(known, _)| *known == name).map(|(_, value)| (*value).to_owned())
        })
    }

    #[test]
    fn each_parameter_is_honoured_or_refused_by_its_name_wherever_it_is_said() {
        for (name, variable, rule) in PARAMETERS {
            let refused = |read: Result<Protection>, by: &str| {
                let error = read.expect_err(by).to_string();
                assert!(error.contains(by) && !error.contains("Hunter2") || matches!(rule, Honoured), "{error}");
            };
            refused(read(&[(name, "Hunter2")], &[]), name);
            if let Some(variable) = variable {
                refused(read(&[], &[(variable, "Hunter2")]), variable);
                assert!(read(&[], &[(variable, "")]).is_ok(), "{variable}");
            }
            if let Only(known, _) = rule {
                known.iter().for_each(|value| assert!(read(&[(name, value)], &[]).is_ok(), "{name}={value}"));
            }
        }
        // The address comes before the environment.
        assert!(read(&[("gssencmode", "disable")], &[("PGGSSENCMODE", "require")]).is_ok());
    }

    #[test]
    fn versions_of_tls_are_those_that_are_allowed() {
        let versions = |options: &[(&str, &str)]| read(options, &[]).map(|read| read.versions());
        let (min, max) = ("ssl_min_protocol_version", "ssl_max_protocol_version");
        assert_eq!(versions(&[]).expect("both"), [&TLS13, &TLS12]);
        assert_eq!(versions(&[(min, "TLSv1")]).expect("both"), [&TLS13, &TLS12]);
        assert_eq!(versions(&[(min, "TLSv1.3")]).expect("one"), [&TLS13]);
        assert_eq!(versions(&[(max, "tlsv1.2")]).expect("one"), [&TLS12]);
        assert!(versions(&[(max, "TLSv1.1")]).is_err());
        assert!(versions(&[(max, "TLSv1.2"), (min, "TLSv1.3")]).is_err());
    }
}
