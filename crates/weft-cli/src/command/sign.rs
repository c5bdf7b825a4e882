//! `weft keygen`, `weft sign` and `weft verify`: attests a volume's tree with a key. Keys and
//! signatures are minisign's.

mod attestation;

use super::digest::Source;
use super::transfer::Progress;
use crate::arguments::{Keygen, Sign, Verify};
use crate::failure::{Differs, agrees};
use crate::mounted::{is_mount_point, present_volume, volume_at};
use crate::shown;
use anyhow::{Context, Result, anyhow, bail, ensure};
use attestation::Attestation;
use minisign::{KeyPair, PublicKeyBox, SecretKey, SecretKeyBox, SignatureBox};
use serde_json::{Value, json};
use std::ffi::OsString;
use std::io::{Cursor, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use weft_digest::{Digest, hex};
use weft_store::{Location, Moment};

/// Makes a pair of keys.
pub fn keygen(arguments: &Keygen) -> Result<ExitCode> {
    let Keygen { secret, public, no_password, json } = arguments;
    [secret, public].into_iter().try_for_each(|path| refuse_existing(path))?;
    if !no_password {
        ensure!(has_terminal(), "there is no terminal to ask for a password at; --no-password makes keys without one");
    }
    let pair =
        if *no_password { KeyPair::generate_unencrypted_keypair() } else { KeyPair::generate_encrypted_keypair(None) };
    let pair = pair.context("cannot make keys")?;
    let public_box = pair.pk.to_box().context("cannot make keys")?.into_string();
    let secret_box = pair.sk.to_box(Some("weft secret key")).context("cannot make keys")?.into_string();
    write_new(secret, 0o600, secret_box.as_bytes())?;
    write_new(public, 0o644, public_box.as_bytes())?;
    match json {
        true => outln!("{:#}", json!({ "secret": shown::path(secret), "public": shown::path(public) })),
        false => outln!("made {} (keep it to yourself) and {}", secret.display(), public.display()),
    }
    Ok(ExitCode::SUCCESS)
}

fn write_new(path: &Path, mode: u32, bytes: &[u8]) -> Result<()> {
    let write = || {
        let mut file = std::fs::OpenOptions::new().write(true).create_new(true).mode(mode).open(path)?;
        file.write_all(bytes)?;
        file.sync_all()
    };
    write().with_context(|| format!("cannot write {}", path.display()))
}

fn signature_of(attestation: &Path) -> PathBuf {
    let mut path = OsString::from(attestation);
    path.push(".minisig");
    path.into()
}

/// Reads the secret key in the file `key`; asks for a password if it needs one.
fn secret_key(key: &Path) -> Result<SecretKey> {
    let text = std::fs::read_to_string(key).with_context(|| format!("cannot read {}", key.display()))?;
    ensure!(
        PublicKeyBox::from_string(&text).and_then(PublicKeyBox::into_public_key).is_err(),
        "{} is a public key; sign with the secret one",
        key.display()
    );
    // Anything can be put into a box.
    ensure!(text.starts_with("untrusted comment:"), "{} is not a secret key", key.display());
    let secret = SecretKeyBox::from_string(&text).with_context(|| format!("{} is not a secret key", key.display()))?;
    let cannot = || format!("cannot use the secret key {}", key.display());
    if let Ok(secret) = secret.clone().into_unencrypted_secret_key() {
        return Ok(secret);
    }
    ensure!(has_terminal(), "{}: there is no terminal to ask for its password at", cannot());
    secret.into_secret_key(None).with_context(cannot)
}

/// True if a password can be asked for.
fn has_terminal() -> bool {
    std::fs::File::open("/dev/tty").is_ok()
}

fn refuse_existing(path: &Path) -> Result<()> {
    ensure!(
        path.symlink_metadata().is_err(),
        "{} already exists; give another name, or remove it first",
        path.display()
    );
    Ok(())
}

/// Signs the last commit.
pub fn sign(arguments: &Sign) -> Result<ExitCode> {
    let Sign { volume, key, output, json } = arguments;
    let signature_path = signature_of(output);
    [output, &signature_path].into_iter().try_for_each(|path| refuse_existing(path))?;
    let secret = secret_key(key)?;
    let named = volume;
    let volume = present_volume(named)?;
    if is_mount_point(named) {
        // A mount that is asked for its digest commits pending changes.
        tree_digest(named, false, None)?;
    }
    let commits = Location::parse(&volume)?
        .engine()
        .commits()
        .with_context(|| format!("cannot read volume {}", volume.display()))?;
    let attestation = commits.last().and_then(Attestation::of);
    let attestation = attestation.with_context(|| {
        format!("volume {} keeps no digests, or has none as a part of it is damaged", volume.display())
    })?;
    let text = attestation.encode();
    let trusted = format!("weft commit {} root {}", attestation.number, hex(&attestation.root));
    let signature =
        minisign::sign(None, &secret, Cursor::new(&text), Some(&trusted), Some("signature of a weft commit"))
            .context("cannot sign")?;
    write_new(&signature_path, 0o644, signature.into_string().as_bytes())?;
    write_new(output, 0o644, text.as_bytes()).inspect_err(|_| {
        // A signature of nothing helps nobody; the error is what the user must see.
        let _ = std::fs::remove_file(&signature_path);
    })?;
    if *json {
        let mut told = as_json(&attestation);
        told["files"] = json!([shown::path(output), shown::path(&signature_path)]);
        outln!("{told:#}");
        return Ok(ExitCode::SUCCESS);
    }
    outln!(
        "signed commit {} of {}: {} and {}",
        attestation.number,
        volume.display(),
        output.display(),
        signature_path.display()
    );
    Ok(ExitCode::SUCCESS)
}

/// Verifies a signature, and that a volume's tree is the signed one.
pub fn verify(arguments: &Verify) -> Result<ExitCode> {
    let Verify { attestation: path, key, volume, read, at, json } = arguments;
    let text = read_text(path)?;
    let signature = signature_of(path);
    let verify = || -> Result<()> {
        let text_of_key = read_text(key)?;
        let public = PublicKeyBox::from_string(&text_of_key).and_then(PublicKeyBox::into_public_key);
        let Ok(public) = public else {
            match text_of_key.contains("secret key") {
                true => bail!("{} is a secret key; verify with the public one", key.display()),
                false => bail!("{} is not a public key", key.display()),
            }
        };
        let signed = SignatureBox::from_string(&read_text(&signature)?);
        let signed = signed.with_context(|| format!("{} is not a signature", signature.display()))?;
        let is_signed = minisign::verify(&public, &signed, Cursor::new(&text), true, false, false).is_ok();
        agrees(is_signed, || format!("{} is not signed with this key, or was changed since", path.display()))
    };
    verify()?;
    let attestation = Attestation::decode(&text);
    let attestation = attestation.with_context(|| format!("{} is not what 'weft sign' writes", path.display()))?;
    if !json {
        outln!("signed: commit {} of {}", attestation.number, shown::time(attestation.time));
    }
    if let Some(volume) = volume {
        compare(volume, *read, at.as_ref(), &attestation)?;
        let (volume, held) = (volume.display(), if at.is_some() { "held then" } else { "holds" });
        match read {
            _ if *json => {}
            true => outln!("{volume} {held} exactly that; all of its content was read"),
            false => outln!(
                "{volume} {held} exactly that by the digests that it keeps; content was not read, which --read does"
            ),
        }
    }
    if *json {
        let mut told = as_json(&attestation);
        // What is not so is an error.
        told["volume_holds_it"] = volume.as_ref().map(|_| true).into();
        told["content_was_read"] = (volume.is_some() && *read).into();
        outln!("{told:#}");
    }
    Ok(ExitCode::SUCCESS)
}

fn as_json(attestation: &Attestation) -> Value {
    json!({
        "commit": attestation.number,
        "time": shown::exact_time(attestation.time),
        "root": hex(&attestation.root),
    })
}

fn read_text(path: &Path) -> Result<String> {
    let bytes = std::fs::read(path).with_context(|| format!("cannot read {}", path.display()))?;
    String::from_utf8(bytes).map_err(|_| anyhow!("{} is not what 'weft sign' writes", path.display()))
}

/// Returns the digest of the root of a volume, mounted or not, as of the moment `at` or of now.
/// With `read` it comes from all bytes.
fn tree_digest(volume: &Path, read: bool, at: Option<&Moment>) -> Result<Digest> {
    let mut path = volume.as_os_str().to_owned();
    if !is_mount_point(volume) {
        path.push(":");
    }
    let progress = Progress::new();
    let tell = || -> Result<Digest> {
        let source = Source::open_at(&path, at)?;
        let root = source.tree_digest(read, &progress)?;
        source.close()?;
        Ok(root)
    };
    let root = tell();
    progress.end();
    root.with_context(|| format!("cannot read {}", volume.display()))
}

fn compare(volume: &Path, read: bool, at: Option<&Moment>, attestation: &Attestation) -> Result<()> {
    if tree_digest(volume, read, at)? == attestation.root {
        return Ok(());
    }
    if at.is_some() {
        return Err(Differs(format!("{} held another tree then than the one that was signed", volume.display())).into());
    }
    let commits = Location::parse(&volume_at(volume))?.engine().commits()?;
    let known = commits.iter().find(|commit| commit.number.0 == attestation.number);
    let volume = volume.display();
    Err(Differs(match known {
        Some(_) => {
            let number = attestation.number;
            format!("{volume} has changed since commit {number}; --at @{number} verifies that, if history keeps it")
        }
        None => format!("{volume} holds another tree than the one that was signed"),
    })
    .into())
}
