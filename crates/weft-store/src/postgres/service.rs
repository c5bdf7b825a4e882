//! Services: parameters of connections that a file gives a name to (PostgreSQL documentation, "The
//! Connection Service File").

use super::address::{Environment, unusable};
use super::parameters;
use crate::error::Result;
use std::collections::HashMap;
use std::path::{Path, PathBuf};

/// Directory in which Debian keeps the system's services.
const SYSTEM: &str = "/etc/postgresql-common";

/// Names of parameters in a file of services, and the variables of the same meaning.
const VARIABLES: &[(&str, &str)] = &[
    ("host", "PGHOST"),
    ("port", "PGPORT"),
    ("user", "PGUSER"),
    ("dbname", "PGDATABASE"),
    ("password", "PGPASSWORD"),
    ("passfile", "PGPASSFILE"),
    ("sslmode", "PGSSLMODE"),
    ("sslrootcert", "PGSSLROOTCERT"),
    ("sslcert", "PGSSLCERT"),
    ("sslkey", "PGSSLKEY"),
    ("hostaddr", "PGHOSTADDR"),
    ("options", "PGOPTIONS"),
    ("target_session_attrs", "PGTARGETSESSIONATTRS"),
    ("connect_timeout", "PGCONNECT_TIMEOUT"),
    ("application_name", "PGAPPNAME"),
];

/// The parameters of service `name`, by the variables that they come before.
pub(super) fn parameters(name: &str, environment: Environment<'_>) -> Result<HashMap<&'static str, String>> {
    let own = environment("PGSERVICEFILE").map(PathBuf::from);
    let own = own.or_else(|| environment("HOME").map(|home| Path::new(&home).join(".pg_service.conf")));
    let system = environment("PGSYSCONFDIR").unwrap_or_else(|| SYSTEM.into());
    for file in own.into_iter().chain([Path::new(&system).join("pg_service.conf")]) {
        if let Some(lines) = std::fs::read_to_string(&file).ok().as_deref().and_then(|text| section(text, name)) {
            return lines.iter().map(|line| parameter(line, &file)).collect();
        }
    }
    Err(unusable(format!("service '{name}' is in no file of services (PGSERVICEFILE, ~/.pg_service.conf)")))
}

/// The lines that say something in the section `name`.
fn section(text: &str, name: &str) -> Option<Vec<String>> {
    let mut found = None;
    for line in text.lines().map(str::trim).filter(|line| !line.is_empty() && !line.starts_with('#')) {
        match line.strip_prefix('[').and_then(|line| line.strip_suffix(']')) {
            Some(_) if found.is_some() => break,
            Some(section) if section == name => found = Some(Vec::new()),
            Some(_) => {}
            None => found.iter_mut().for_each(|lines| lines.push(line.to_owned())),
        }
    }
    found
}

fn parameter(line: &str, file: &Path) -> Result<(&'static str, String)> {
    let (name, value) = line.split_once('=').unwrap_or((line, ""));
    let variable = VARIABLES.iter().find(|(known, _)| *known == name.trim()).map(|(_, variable)| *variable);
    let variable = variable.or_else(|| parameters::variable(name.trim()));
    let unknown = || unusable(format!("{}: '{}' is no parameter that Weft knows", file.display(), name.trim()));
    Ok((variable.ok_or_else(unknown)?, value.trim().to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_service_says_what_its_section_says() {
        let directory = tempfile::tempdir().expect("a directory");
        let file = directory.path().join("services");
        let text =
            "# ours\n[other]\nhost=no\n\n[files]\nhost=db.example\n# none\nport = 6000\npassword=a=b\n[last]\nfoo=1\n";
        std::fs::write(&file, text).expect("written");
        let environment = |name: &str| match name {
            "PGSERVICEFILE" => Some(file.display().to_string()),
            "PGSYSCONFDIR" => Some("/nowhere".into()),
            _ => None,
        };
        let of = |name| parameters(name, &environment);
        let expected = [("PGHOST", "db.example"), ("PGPORT", "6000"), ("PGPASSWORD", "a=b")];
        assert_eq!(of("files").expect("there"), expected.map(|(name, value)| (name, value.to_owned())).into());
        assert!(of("none").expect_err("not there").to_string().contains("service 'none'"));
        assert!(of("last").expect_err("unknown").to_string().contains("'foo'"));
    }
}
