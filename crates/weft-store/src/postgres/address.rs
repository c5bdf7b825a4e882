//! The address of a volume: the server, the database, the schema.
//!
//! `postgres://[user[:password]@][host][:port][/database][?option=value…]`, where what is left out
//! follows the conventions of libpq: the variables PGHOST, PGHOSTADDR, PGPORT, PGUSER, PGDATABASE,
//! PGPASSWORD, PGPASSFILE, PGSSLMODE, PGSSLROOTCERT, PGSSLCERT, PGSSLKEY, PGCONNECT_TIMEOUT,
//! PGOPTIONS, PGTARGETSESSIONATTRS, PGAPPNAME and those of [`super::parameters`], before them those
//! of the service that `service=NAME` or PGSERVICE names, the password file (PostgreSQL
//! documentation, "Connection URIs", "Environment Variables", "The Password File"). `schema=NAME`
//! and `durability=server` are ours.

use super::parameters::{self, Protection};
use super::service;
use crate::error::{Error, Result};
use percent_encoding::percent_decode_str;
use std::collections::HashMap;
use std::fmt;
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::sync::Arc;
use std::time::Duration;
use tokio_postgres::Config;
use tokio_postgres::config::{Host, TargetSessionAttrs};

/// The schema that holds a volume if none is named.
const SCHEMA: &str = "weft";

/// The address of a volume. Shown without its password.
#[derive(Clone)]
pub struct Address {
    pub(super) config: Config,
    pub(super) schema: String,
    pub(super) tls: Tls,
    /// True if the server's settings count, whatever a crash may lose by them
    /// (`durability=server`).
    pub(super) trusts_server: bool,
    /// Words for the server and its database, for errors.
    pub(super) server: Arc<str>,
    shown: String,
}

/// Protection of a connection (`sslmode`), and the authorities that vouch for the server
/// (`sslrootcert`).
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Tls {
    pub(super) mode: TlsMode,
    /// A file of certificates; none: those that the system trusts.
    pub(super) roots: Option<PathBuf>,
    /// Files of a certificate and its key, with which we say who we are (`sslcert`, `sslkey`).
    pub(super) own: Option<(PathBuf, PathBuf)>,
    pub(super) protection: Protection,
}

/// libpq's `sslmode`, in its order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum TlsMode {
    Disable,
    Allow,
    Prefer,
    Require,
    VerifyCa,
    VerifyFull,
}

pub(super) fn unusable(what: impl Into<String>) -> Error {
    Error::Unusable(what.into())
}

/// True if `text` names a volume in PostgreSQL.
pub fn is_address(text: &str) -> bool {
    text.starts_with("postgres://") || text.starts_with("postgresql://")
}

/// A function that returns the value of an environment variable.
pub(super) type Environment<'a> = &'a dyn Fn(&str) -> Option<String>;

/// Name of connections that the user has not named.
const APPLICATION: &str = "weft";

impl Address {
    /// True if the user names its connections.
    pub(super) fn names_application(&self) -> bool {
        self.config.get_application_name() != Some(APPLICATION)
    }

    /// Reads a URL, and the process's environment for what it leaves out.
    pub fn parse(url: &str) -> Result<Address> {
        Address::parse_in(url, &|name| std::env::var(name).ok().filter(|value| !value.is_empty()))
    }

    fn parse_in(url: &str, environment: Environment<'_>) -> Result<Address> {
        let mut own = Own { schema: SCHEMA.into(), ..Own::default() };
        let base = own.take(url)?;
        let mut config = Config::from_str(&base).map_err(|error| {
            let why = std::error::Error::source(&error).map(|source| format!(": {source}")).unwrap_or_default();
            unusable(format!("'{}' is no address of a PostgreSQL database{why}", shown(url)))
        })?;
        let service = own.service.take().or_else(|| environment("PGSERVICE"));
        let service = service.map(|name| service::parameters(&name, environment)).transpose()?.unwrap_or_default();
        let environment: Environment<'_> = &|name| service.get(name).cloned().or_else(|| environment(name));
        let protection = Protection::read(&own.protection, environment)?;
        config.channel_binding(protection.channel_binding).load_balance_hosts(protection.load_balance_hosts);
        fill(&mut config, base.contains("target_session_attrs="), environment)?;
        let mode = own.mode.or_else(|| environment("PGSSLMODE")).map(|mode| tls_mode(&mode)).transpose()?;
        let home = environment("HOME").map(|home| Path::new(&home).join(".postgresql"));
        let usual = |name: &str| home.as_ref().map(|home| home.join(name)).filter(|file| file.exists());
        let named = |own: Option<String>, variable: &str, name: &str| {
            own.or_else(|| environment(variable)).map(PathBuf::from).or_else(|| usual(name))
        };
        let roots = named(own.roots, "PGSSLROOTCERT", "root.crt");
        let (roots, mode) = match roots {
            Some(system) if system == Path::new("system") => (None, system_mode(mode)?),
            roots => (roots, mode.unwrap_or(TlsMode::Prefer)),
        };
        if let Some(home) = home.as_deref().filter(|_| mode >= TlsMode::VerifyCa || roots.is_some()) {
            parameters::refuse_usual_list(home)?;
        }
        let certificate = named(own.certificate, "PGSSLCERT", "postgresql.crt");
        let key = named(own.key, "PGSSLKEY", "postgresql.key");
        if config.get_password().is_none()
            && let Some(password) = password(&config, own.passfile.as_deref(), environment)?
        {
            config.password(password);
        }
        let certificate = certificate.zip(key).filter(|_| protection.shows_certificate);
        let tls = Tls { mode, roots, own: certificate, protection };
        let (shown, trusts_server) = (shown(url), own.trusts_server);
        // Where the URL can be read in two ways, a part of a password may have become a host.
        let is_plain = url.matches('@').count() <= 1 && options_of(url).is_none_or(|options| !options.contains('@'));
        let server = if is_plain { server(&config) } else { format!("PostgreSQL at {shown}") };
        Ok(Address { config, schema: own.schema, tls, trusts_server, server: server.into(), shown })
    }

    /// The name of the schema that holds the volume.
    pub fn schema(&self) -> &str {
        &self.schema
    }

    /// Words for the server and its database, whether the address names them or the environment
    /// does.
    pub fn server(&self) -> &str {
        &self.server
    }
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.shown)
    }
}

impl fmt::Debug for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Address").field(&self.shown).finish()
    }
}

/// Options that the client library does not know, or knows less of.
#[derive(Default)]
struct Own {
    schema: String,
    mode: Option<String>,
    roots: Option<String>,
    passfile: Option<String>,
    certificate: Option<String>,
    key: Option<String>,
    service: Option<String>,
    trusts_server: bool,
    /// Parameters of [`Protection`].
    protection: HashMap<String, String>,
}

impl Own {
    /// Takes its options out of `url`; tells what is left.
    fn take(&mut self, url: &str) -> Result<String> {
        let Some(options) = options_of(url) else { return Ok(url.into()) };
        let base = &url[..url.len() - options.len() - 1];
        let mut left = Vec::new();
        for option in options.split('&').filter(|option| !option.is_empty()) {
            let (name, value) =
                option.split_once('=').ok_or_else(|| unusable("an option of the address has no value"))?;
            let decoded = || -> Result<String> {
                let value = percent_decode_str(value)
                    .decode_utf8()
                    .map_err(|_| unusable(format!("option '{name}' is no UTF-8")))?;
                Ok(value.into_owned())
            };
            match name {
                "schema" => self.schema = schema(decoded()?)?,
                "sslmode" => self.mode = Some(decoded()?),
                "sslrootcert" => self.roots = Some(decoded()?),
                "sslcert" => self.certificate = Some(decoded()?),
                "sslkey" => self.key = Some(decoded()?),
                "passfile" => self.passfile = Some(decoded()?),
                "durability" => self.trusts_server = trusts_server(&decoded()?)?,
                "service" => self.service = Some(decoded()?),
                name if parameters::has(name) => drop(self.protection.insert(name.into(), decoded()?)),
                _ => left.push(option),
            }
        }
        Ok(if left.is_empty() { base.into() } else { format!("{base}?{}", left.join("&")) })
    }
}

fn schema(name: String) -> Result<String> {
    let is_plain = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'_';
    if name.is_empty() || name.len() > 63 || name.as_bytes()[0].is_ascii_digit() || !name.bytes().all(is_plain) {
        return Err(unusable(format!("schema '{name}': a name has 1 to 63 of a-z, 0-9 and _, and no digit first")));
    }
    if name == "information_schema" || name.starts_with("pg_") {
        return Err(unusable(format!("schema '{name}' is the server's own; name another one for a volume")));
    }
    Ok(name)
}

fn trusts_server(durability: &str) -> Result<bool> {
    match durability {
        "full" => Ok(false),
        "server" => Ok(true),
        other => Err(unusable(format!(
            "durability '{other}' is neither 'full' (the default) nor 'server', which takes the server's settings as they are"
        ))),
    }
}

fn tls_mode(name: &str) -> Result<TlsMode> {
    Ok(match name {
        "disable" => TlsMode::Disable,
        "allow" => TlsMode::Allow,
        "prefer" => TlsMode::Prefer,
        "require" => TlsMode::Require,
        "verify-ca" => TlsMode::VerifyCa,
        "verify-full" => TlsMode::VerifyFull,
        other => {
            let known = "'disable', 'allow', 'prefer', 'require', 'verify-ca' and 'verify-full'";
            return Err(unusable(format!("sslmode '{other}' is none of {known}")));
        }
    })
}

/// The system trusts so many that the name must count, as libpq has it.
fn system_mode(mode: Option<TlsMode>) -> Result<TlsMode> {
    match mode {
        None | Some(TlsMode::VerifyFull) => Ok(TlsMode::VerifyFull),
        Some(_) => {
            Err(unusable("sslrootcert=system needs sslmode=verify-full: anybody gets a certificate for some name"))
        }
    }
}

/// Returns the part of `url` after the `?`. A `?` in a password, as the client library takes it,
/// does not count.
fn options_of(url: &str) -> Option<&str> {
    let rest = url.split_once("://").map_or(url, |(_, rest)| rest);
    let (before, after) = rest.split_once('?')?;
    match after.split_once('@') {
        Some((_, host)) if before.contains(':') && !before.contains(['/', '@']) => {
            host.split_once('?').map(|(_, options)| options)
        }
        _ => Some(after),
    }
}

/// `url` as it may be shown to everybody, also where it is no address: there more is left out,
/// rather than too little.
pub fn shown(url: &str) -> String {
    let Some((scheme, rest)) = url.split_once("://") else { return url.into() };
    let options = options_of(url);
    let place = &rest[..rest.len() - options.map_or(0, |options| options.len() + 1)];
    let before_colon = |text: &str| text.split_once(':').map_or(text, |(before, _)| before).to_owned();
    let place = match place.rsplit_once('@') {
        Some((user, host)) => format!("{}@{host}", before_colon(user)),
        // What follows the colon may be a port, or the beginning of a password.
        None if options.is_some_and(|options| options.contains('@')) => before_colon(place),
        None => place.into(),
    };
    let is_secret = |option: &&str| {
        let Some((name, _)) = option.split_once('=') else { return true };
        percent_decode_str(name).decode_utf8_lossy().to_ascii_lowercase().contains("password")
    };
    let options: Vec<_> =
        options.into_iter().flat_map(|all| all.split('&')).filter(|option| !is_secret(option)).collect();
    let mark = if options.is_empty() { "" } else { "?" };
    format!("{scheme}://{place}{mark}{}", options.join("&"))
}

/// Words for the server that `config` leads to, or for all of them, and its database.
fn server(config: &Config) -> String {
    let ports = config.get_ports();
    let port = |at: usize| ports.get(at).or_else(|| ports.first()).copied().unwrap_or(5432);
    let addresses = config.get_hostaddrs();
    let place = |(at, host): (usize, &Host)| {
        let name = match host {
            Host::Tcp(name) if name.contains(':') => format!("[{name}]"),
            Host::Tcp(name) => name.clone(),
            Host::Unix(directory) => directory.display().to_string(),
        };
        let address = addresses.get(at).map(IpAddr::to_string).filter(|address| !name.contains(address.as_str()));
        let address = address.map(|address| format!(" ({address})")).unwrap_or_default();
        format!("{name}:{}{address}", port(at))
    };
    let places = config.get_hosts().iter().enumerate().map(place).collect::<Vec<_>>().join(" or ");
    format!("PostgreSQL at {places}, database {}", config.get_dbname().unwrap_or_default())
}

/// Fills in the parts that the URL leaves out, and the choice among several servers unless the URL
/// `says_which`.
fn fill(config: &mut Config, says_which: bool, environment: Environment<'_>) -> Result<()> {
    if config.get_hostaddrs().is_empty()
        && let Some(addresses) = environment("PGHOSTADDR")
    {
        for address in addresses.split(',') {
            config.hostaddr(address.parse().map_err(|_| unusable(format!("PGHOSTADDR: '{address}' is no address")))?);
        }
    }
    if config.get_hosts().is_empty() {
        match environment("PGHOST") {
            // The address is the name, too, then.
            None if !config.get_hostaddrs().is_empty() => {
                for address in config.get_hostaddrs().to_vec() {
                    config.host(address.to_string());
                }
            }
            Some(hosts) => hosts.split(',').for_each(|host| {
                config.host(host);
            }),
            None => {
                config.host(default_host());
            }
        }
    }
    if config.get_ports().is_empty()
        && let Some(ports) = environment("PGPORT")
    {
        for port in ports.split(',') {
            config.port(port.parse().map_err(|_| unusable(format!("PGPORT: '{port}' is no port")))?);
        }
    }
    if config.get_user().is_none() {
        let user = environment("PGUSER").or_else(|| environment("USER")).or_else(|| environment("LOGNAME"));
        config.user(user.unwrap_or_else(|| "postgres".into()));
    }
    if config.get_dbname().is_none() {
        let user = config.get_user().expect("set above").to_owned();
        config.dbname(environment("PGDATABASE").unwrap_or(user));
    }
    if config.get_connect_timeout().is_none() {
        let seconds = environment("PGCONNECT_TIMEOUT").and_then(|seconds| seconds.parse().ok()).filter(|s| *s > 0);
        config.connect_timeout(Duration::from_secs(seconds.unwrap_or(10)));
    }
    if config.get_options().is_none()
        && let Some(options) = environment("PGOPTIONS")
    {
        config.options(options);
    }
    if !says_which && let Some(wanted) = environment("PGTARGETSESSIONATTRS") {
        config.target_session_attrs(session_attributes(&wanted)?);
    }
    if config.get_application_name().is_none() {
        config.application_name(environment("PGAPPNAME").unwrap_or_else(|| APPLICATION.into()));
    }
    // A server that is cut off must be noticed.
    config.keepalives_idle(Duration::from_secs(10)).keepalives_interval(Duration::from_secs(5)).keepalives_retries(3);
    if config.get_tcp_user_timeout().is_none() {
        config.tcp_user_timeout(Duration::from_secs(20));
    }
    Ok(())
}

/// Parses the condition that picks one of several servers: the first that meets it.
fn session_attributes(wanted: &str) -> Result<TargetSessionAttrs> {
    Ok(match wanted {
        "any" => TargetSessionAttrs::Any,
        "read-write" | "primary" => TargetSessionAttrs::ReadWrite,
        "read-only" | "standby" => TargetSessionAttrs::ReadOnly,
        other => {
            let known = "'any', 'read-write', 'primary', 'read-only' and 'standby'";
            return Err(unusable(format!("PGTARGETSESSIONATTRS: '{other}' is none of {known}")));
        }
    })
}

/// Returns the directory of sockets, Debian's or that of PostgreSQL's own builds, whichever is
/// there; else `localhost`.
fn default_host() -> &'static str {
    ["/var/run/postgresql", "/tmp"]
        .into_iter()
        .find(|place| Path::new(place).join(".s.PGSQL.5432").exists())
        .unwrap_or("localhost")
}

/// The password from the environment, or from the password file.
fn password(config: &Config, passfile: Option<&str>, environment: Environment<'_>) -> Result<Option<String>> {
    if let Some(password) = environment("PGPASSWORD") {
        return Ok(Some(password));
    }
    let named = passfile.map(str::to_owned).or_else(|| environment("PGPASSFILE")).map(PathBuf::from);
    let file = named.or_else(|| environment("HOME").map(|home| Path::new(&home).join(".pgpass")));
    let Some(text) = file.as_deref().and_then(|file| std::fs::read_to_string(file).ok()) else { return Ok(None) };
    let file = file.expect("it was read");
    refuse_readable(&file)?;
    let host = match (config.get_hosts().first(), config.get_hostaddrs().first()) {
        (Some(Host::Tcp(host)), _) => host.clone(),
        (_, Some(address)) => address.to_string(),
        (Some(Host::Unix(directory)), None) => directory.display().to_string(),
        (None, None) => "localhost".into(),
    };
    // A socket's directory is this machine.
    let is_host = |key: &str| key == host || key == "localhost" && host.starts_with('/');
    let port = config.get_ports().first().copied().unwrap_or(5432).to_string();
    let wanted = [&*port, config.get_dbname().unwrap_or_default(), config.get_user().unwrap_or_default()];
    Ok(text.lines().filter(|line| !line.starts_with('#')).find_map(|line| {
        let fields = fields(line);
        let (password, keys) = fields.split_last()?;
        let (key, keys) = keys.split_first()?;
        let fits = (key == "*" || is_host(key))
            && keys.len() == wanted.len()
            && keys.iter().zip(wanted).all(|(key, wanted)| key == "*" || key == wanted);
        fits.then(|| password.clone())
    }))
}

/// libpq ignores a password file that others may read; saying so is kinder.
fn refuse_readable(file: &Path) -> Result<()> {
    use std::os::unix::fs::PermissionsExt;
    match file.metadata() {
        Ok(metadata) if metadata.permissions().mode() & 0o077 != 0 => {
            Err(unusable(format!("password file {} can be read by others; do: chmod 600 {0}", file.display())))
        }
        _ => Ok(()),
    }
}

/// The five fields of a line; `\:` and `\\` stand for `:` and `\`.
fn fields(line: &str) -> Vec<String> {
    let mut fields = vec![String::new()];
    let mut characters = line.chars();
    while let Some(character) = characters.next() {
        let escaped = if character == '\\' { characters.next() } else { None };
        match escaped.unwrap_or(character) {
            // A colon of the password needs no escape.
            ':' if escaped.is_none() && fields.len() < 5 => fields.push(String::new()),
            other => fields.last_mut().expect("never empty").push(other),
        }
    }
    fields
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    fn parse(url: &str, variables: &[(&str, &str)]) -> Result<Address> {
        Address::parse_in(url, &|name| {
            variables.iter().find(|(own, _)| *own == name).map(|(_, value)| (*value).to_owned())
        })
    }

    #[test]
    fn a_url_says_all_or_the_environment_says_the_rest() {
        let address =
            parse("postgres://me:secret@db.example:6000/files?schema=photos&sslmode=verify-full", &[]).expect("one");
        assert_eq!(address.to_string(), "postgres://me@db.example:6000/files?schema=photos&sslmode=verify-full");
        assert_eq!(address.schema, "photos");
        assert_eq!((address.tls.mode, address.tls.roots, address.tls.own), (TlsMode::VerifyFull, None, None));
        assert_eq!(address.config.get_password(), Some(&b"secret"[..]));
        let variables = [("PGHOST", "/run/pg"), ("PGPORT", "77"), ("PGUSER", "you"), ("PGSSLROOTCERT", "/ca.pem")];
        let address = parse("postgresql://", &variables).expect("one");
        assert_eq!(address.config.get_ports(), &[77]);
        assert_eq!(address.config.get_user(), Some("you"));
        assert_eq!(address.config.get_dbname(), Some("you"));
        assert_eq!(address.schema, "weft");
        assert_eq!((address.tls.mode, address.tls.roots), (TlsMode::Prefer, Some("/ca.pem".into())));
    }

    #[test]
    fn whose_settings_count_is_said_by_the_address() {
        let trusts = |url: &str| parse(url, &[]).map(|address| address.trusts_server);
        assert!(!trusts("postgres://h/d").expect("one"));
        assert!(!trusts("postgres://h/d?durability=full").expect("one"));
        assert!(trusts("postgres://h/d?durability=server&schema=s").expect("one"));
        let refused = trusts("postgres://h/d?durability=none").expect_err("refused").to_string();
        assert!(refused.contains("neither 'full'"), "{refused}");
    }

    #[test]
    fn a_service_comes_between_the_url_and_the_environment() {
        let directory = tempfile::tempdir().expect("a directory");
        let file = directory.path().join("services");
        std::fs::write(&file, "[files]\nhost=db.example\ndbname=archive\nsslmode=require\n").expect("written");
        let file = file.to_str().expect("UTF-8");
        let variables = [("PGSERVICEFILE", file), ("PGHOST", "other"), ("PGUSER", "me")];
        let address = parse("postgres:///mine?service=files", &variables).expect("one");
        assert_eq!(address.config.get_hosts(), [tokio_postgres::config::Host::Tcp("db.example".into())]);
        assert_eq!((address.config.get_dbname(), address.config.get_user()), (Some("mine"), Some("me")));
        assert_eq!(address.tls.mode, TlsMode::Require);
        assert!(parse("postgres://?service=none", &variables).is_err());
    }

    #[test]
    fn passwords_come_from_the_file_of_passwords() {
        let directory = tempfile::tempdir().expect("a directory");
        let file = directory.path().join("passes");
        std::fs::write(&file, "# none\nother:*:*:*:no\n*:5432:a\\:b:me:se:cr\\\\et\n*:*:*:*:last\n").expect("written");
        let file_name = file.to_str().expect("UTF-8");
        let set = |mode| std::fs::set_permissions(&file, std::fs::Permissions::from_mode(mode)).expect("set");
        set(0o600);
        let of = |url: &str| {
            parse(url, &[("PGPASSFILE", file_name)]).map(|address| address.config.get_password().map(<[u8]>::to_vec))
        };
        assert_eq!(of("postgres://me@host/a%3Ab").expect("one"), Some(b"se:cr\\et".to_vec()));
        assert_eq!(of("postgres://you@host/x").expect("one"), Some(b"last".to_vec()));
        assert_eq!(of("postgres://you:own@host/x").expect("one"), Some(b"own".to_vec()));
        std::fs::write(&file, "/run/pg:*:*:*:there\nlocalhost:*:*:*:here\n").expect("written");
        assert_eq!(of("postgres://me@%2Frun%2Fpg/x").expect("one"), Some(b"there".to_vec()));
        assert_eq!(of("postgres://me@%2Frun%2Fother/x").expect("one"), Some(b"here".to_vec()));
        assert_eq!(of("postgres://me@db/x").expect("one"), None);
        set(0o644);
        assert!(of("postgres://me@host/a").expect_err("readable").to_string().contains("chmod 600"));
    }

    #[test]
    fn what_is_wrong_is_told_without_the_password() {
        for url in [
            "postgres://u:hidden@h/d?schema=A",
            "postgres://u:hidden@h/d?schema=pg_x",
            "postgres://u:hidden@h/d?sslmode=no",
            "postgres://u:hidden@h/d?foo=1",
        ] {
            let error = parse(url, &[]).expect_err("wrong").to_string();
            assert!(!error.contains("hidden"), "{error}");
        }
        for (url, expected) in [
            ("postgres:///d?host=/run&user=u&password=hidden&schema=s", "postgres:///d?host=/run&user=u&schema=s"),
            ("postgres:///d?p%61ssword=hidden", "postgres:///d"),
            ("postgres://u:hid/den@127.0.0.1/d", "postgres://u@127.0.0.1/d"),
            ("postgres://u:hid@den@h:5/d?sslmode=allow", "postgres://u@h:5/d?sslmode=allow"),
            ("postgres://u:hid?den=x@h/d?sslmode=allow", "postgres://u@h/d?sslmode=allow"),
            ("postgres://u:hid?den@h/d", "postgres://u@h/d"),
            ("postgres://u:hid/den?x@h/d", "postgres://u"),
            ("postgres://h:5/d?password=hidden&sslrootcert=/a@b", "postgres://h?sslrootcert=/a@b"),
            ("postgres://u:hidden@h/d?user=a@b", "postgres://u@h/d?user=a@b"),
        ] {
            assert_eq!(shown(url), expected);
        }
    }

    #[test]
    fn errors_name_the_server_and_never_the_password() {
        let server = |url, variables| parse(url, variables).expect("one").server.to_string();
        for (url, variables, expected) in [
            ("postgres://u:hidden@h/d?schema=s", &[][..], "PostgreSQL at h:5432, database d"),
            ("postgres://u:hid?den@h/d", &[], "PostgreSQL at h:5432, database d"),
            ("postgres://u@a,b:1,c:2/d", &[], "PostgreSQL at a:5432 or b:1 or c:2, database d"),
            ("postgres://u@[::1]:77/d", &[], "PostgreSQL at [::1]:77, database d"),
            ("postgres://u@%2Frun%2Fpg/d", &[], "PostgreSQL at /run/pg:5432, database d"),
            (
                "postgres:///?schema=s",
                &[("PGHOST", "h"), ("PGPORT", "77"), ("PGDATABASE", "d"), ("PGPASSWORD", "hidden")],
                "PostgreSQL at h:77, database d",
            ),
            ("postgres://u@h/d", &[("PGHOSTADDR", "10.0.0.1")], "PostgreSQL at h:5432 (10.0.0.1), database d"),
            ("postgres:///d", &[("PGHOSTADDR", "10.0.0.1")], "PostgreSQL at 10.0.0.1:5432, database d"),
            ("postgres://u:hid@den/d@h/x", &[], "PostgreSQL at postgres://u@h/x"),
        ] {
            assert_eq!(server(url, variables), expected);
        }
        let ambiguous = parse("postgres://h/d?user=a@b&password=hidden", &[]);
        assert!(ambiguous.is_err() || !ambiguous.expect("one").server.contains("hidden"));
    }

    #[test]
    fn what_protects_a_connection_is_honoured_or_refused() {
        use tokio_postgres::config::ChannelBinding;
        let binding = |url: &str, variables| parse(url, variables).map(|a| a.config.get_channel_binding());
        let required = [("PGCHANNELBINDING", "require")];
        assert_eq!(binding("postgres://h/d", &required).expect("one"), ChannelBinding::Require);
        let url = "postgres://h/d?channel_binding=disable";
        assert_eq!(binding(url, &required).expect("one"), ChannelBinding::Disable);
        for (url, variables, named) in [
            ("postgres://h/d?require_auth=scram-sha-256", &[][..], "require_auth is not honoured"),
            ("postgres://h/d", &[("PGREQUIREAUTH", "!password")], "PGREQUIREAUTH is not honoured"),
            ("postgres://h/d", &[("PGGSSENCMODE", "require")], "PGGSSENCMODE is not honoured"),
            ("postgres://h/d", &[("PGSSLCRL", "/crl.pem")], "PGSSLCRL is not honoured"),
            ("postgres://h/d", &[("PGSSLMINPROTOCOLVERSION", "SSLv3")], "PGSSLMINPROTOCOLVERSION 'SSLv3'"),
        ] {
            let refused = parse(url, variables).expect_err("refused").to_string();
            assert!(refused.contains(named), "{refused}");
        }
        let home = tempfile::tempdir().expect("a directory");
        std::fs::create_dir(home.path().join(".postgresql")).expect("made");
        std::fs::write(home.path().join(".postgresql/root.crl"), "").expect("written");
        let variables = [("HOME", home.path().to_str().expect("UTF-8"))];
        assert!(parse("postgres://h/d", &variables).is_ok());
        let refused = parse("postgres://h/d?sslmode=verify-ca", &variables).expect_err("refused").to_string();
        assert!(refused.contains("root.crl"), "{refused}");
    }

    #[test]
    fn whom_the_system_trusts_must_have_the_name() {
        let mode = |url: &str| parse(url, &[]).map(|address| (address.tls.mode, address.tls.roots));
        assert_eq!(mode("postgres://h/d?sslrootcert=system").expect("one"), (TlsMode::VerifyFull, None));
        assert_eq!(
            mode("postgres://h/d?sslrootcert=system&sslmode=verify-full").expect("one"),
            (TlsMode::VerifyFull, None)
        );
        assert_eq!(mode("postgres://h:5/d?sslrootcert=/a@b").expect("one"), (TlsMode::Prefer, Some("/a@b".into())));
        let refused = mode("postgres://h/d?sslrootcert=system&sslmode=require").expect_err("refused").to_string();
        assert!(refused.contains("verify-full"), "{refused}");
    }

    #[test]
    fn the_environment_has_options_and_which_server_is_wanted() {
        let variables =
            [("PGOPTIONS", "-c geqo=off"), ("PGTARGETSESSIONATTRS", "read-write"), ("PGHOSTADDR", "127.0.0.1")];
        let config = parse("postgres://h/d", &variables).expect("one").config;
        assert_eq!(config.get_options(), Some("-c geqo=off"));
        assert_eq!(config.get_target_session_attrs(), TargetSessionAttrs::ReadWrite);
        assert_eq!(config.get_hostaddrs(), [std::net::IpAddr::from([127, 0, 0, 1])]);
        assert!(parse("postgres://h/d", &[("PGTARGETSESSIONATTRS", "best")]).is_err());
        let config = parse("postgres:///d", &[("PGHOSTADDR", "127.0.0.1,::1")]).expect("one").config;
        assert_eq!(config.get_hosts(), [Host::Tcp("127.0.0.1".into()), Host::Tcp("::1".into())]);
        let password = parse("postgres://u:a?b=c@h/d?schema=s", &[]).expect("one");
        assert_eq!((password.config.get_password(), password.schema.as_str()), (Some(&b"a?b=c"[..]), "s"));
    }
}
