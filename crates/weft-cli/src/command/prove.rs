//! `weft prove` and `weft verify-proof`.

mod text;

use super::digest::list::unhex;
use super::digest::{self, Source, listed};
use super::transfer::{Progress, names};
use crate::arguments::{Prove, VerifyProof};
use crate::failure::{Differs, agrees, usage};
use crate::output;
use anyhow::{Context, Result};
use serde_json::json;
use std::io::Read;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::process::ExitCode;
use weft_digest::{Digest, Kind, Proof, hex};

/// Longest text that is read as a proof.
const BYTES_MAX: u64 = 64 << 20;

/// Prints a proof.
pub fn prove(arguments: &Prove) -> Result<ExitCode> {
    let Prove { directory, path, read, at } = arguments;
    digest::refuse_volume(directory)?;
    let progress = Progress::new();
    let names = names(path.as_bytes())?;
    let prove = || -> Result<Proof> {
        let source = Source::open_at(directory, at.as_ref())?;
        let proof = digest::directory::prove(source.directory(*read, &progress)?, &names)?;
        source.close()?;
        Ok(proof)
    };
    let proof = prove();
    progress.end();
    let proof = proof.with_context(|| {
        format!("cannot prove {} in {}", path.display(), digest::without_colon(directory).display())
    })?;
    output::write(&text::encode(&proof).context("this is no proof")?);
    Ok(ExitCode::SUCCESS)
}

/// Verifies a proof.
pub fn verify(arguments: &VerifyProof) -> Result<ExitCode> {
    let shown = arguments.proof.display();
    let text = read(&arguments.proof).with_context(|| format!("cannot read {shown}"))?;
    let decoded = text::decode(&text);
    let (root, proof) = decoded.ok_or_else(|| Differs(format!("{shown} is not a proof of 'weft prove'")))?;
    let is_proof = proof.root() == Some(root);
    agrees(is_proof, || format!("{shown} proves nothing: it does not lead to the directory that it names"))?;
    if let Some(wanted) = &arguments.root {
        let Some(wanted) = unhex(wanted.as_bytes()) else { return usage(format!("'{wanted}' is not a digest")) };
        agrees(wanted == root, || format!("{shown} is about another directory, {}", hex(&root)))?;
    }
    let last = proof.steps.last().expect("a proof has a step");
    if let Some(file) = &arguments.file {
        let is_same = last.kind == Kind::File && listed(file)? == proof.digest;
        agrees(is_same, || format!("{shown} is about something else than {}", file.display()))?;
    }
    report(&root, &proof, arguments.json)?;
    Ok(ExitCode::SUCCESS)
}

fn read(path: &Path) -> Result<Vec<u8>> {
    let mut bytes = Vec::new();
    let from: Box<dyn Read> =
        if path == Path::new("-") { Box::new(std::io::stdin()) } else { Box::new(std::fs::File::open(path)?) };
    from.take(BYTES_MAX).read_to_end(&mut bytes)?;
    Ok(bytes)
}

fn report(root: &Digest, proof: &Proof, json: bool) -> Result<()> {
    let last = proof.steps.last().expect("a proof has a step");
    let path = proof.steps.iter().map(|step| &step.name[..]).collect::<Vec<_>>().join(&b'/');
    let kind = last.kind.in_words();
    let (root, digest, mode) = (hex(root), hex(&proof.digest), format!("{:04o}", last.permissions));
    if json {
        let path = String::from_utf8_lossy(&path);
        outln!("{:#}", json!({ "root": root, "path": path, "kind": kind, "mode": mode, "digest": digest }));
        return Ok(());
    }
    outln!("{root}  is a directory that holds");
    let mut line = format!("{digest}  ").into_bytes();
    line.extend(super::digest::list::escape(&path));
    line.extend(format!(" ({kind}, mode {mode})\n").into_bytes());
    output::write(&line);
    Ok(())
}
