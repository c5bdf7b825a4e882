//! Proofs as text, line by line: `weft proof 1`; `root` and the digest of the first directory; for
//! each step `entry` with kind, permissions (octal), number of the directory's entries and name,
//! followed by the hashes beside the way from the top down, each after `left` or `right`; `digest`
//! and that of the last entry. Names are escaped as in lists of digests.

use super::super::digest::list::{escape, unescape, unhex};
use weft_digest::{Digest, Kind, Proof, SIBLINGS_MAX, Sibling, Side, Step, hex};

const TITLE: &[u8] = b"weft proof 1";

/// Returns the text; none if it is no proof.
pub fn encode(proof: &Proof) -> Option<Vec<u8>> {
    let mut lines = vec![TITLE.to_vec(), format!("root {}", hex(&proof.root()?)).into_bytes()];
    for step in &proof.steps {
        let letter = char::from(step.kind.letter());
        let mut line = format!("entry {letter} {:04o} {} ", step.permissions, step.entries).into_bytes();
        line.extend(escape(&step.name));
        lines.push(line);
        lines.extend(
            step.siblings.iter().map(|sibling| format!("{} {}", side(*sibling), hex(&sibling.digest)).into_bytes()),
        );
    }
    lines.push(format!("digest {}\n", hex(&proof.digest)).into_bytes());
    Some(lines.join(&b'\n'))
}

/// Parses a proof. Also returns the digest that it claims for the first directory. None if the text
/// is not in this form.
pub fn decode(text: &[u8]) -> Option<(Digest, Proof)> {
    let mut lines = text.strip_suffix(b"\n")?.split(|byte| *byte == b'\n');
    if lines.next()? != TITLE {
        return None;
    }
    let root = unhex(lines.next()?.strip_prefix(b"root ")?)?;
    let mut steps: Vec<Step> = Vec::new();
    while let Some(line) = lines.next() {
        if let Some(digest) = line.strip_prefix(b"digest ") {
            return lines.next().is_none().then_some((root, Proof { steps, digest: unhex(digest)? }));
        } else if let Some(entry) = line.strip_prefix(b"entry ") {
            steps.push(step(entry)?);
        } else {
            let siblings = &mut steps.last_mut()?.siblings;
            siblings.push(sibling(line).filter(|_| siblings.len() < SIBLINGS_MAX)?);
        }
    }
    None
}

fn side(sibling: Sibling) -> &'static str {
    match sibling.side {
        Side::Left => "left",
        Side::Right => "right",
    }
}

fn sibling(line: &[u8]) -> Option<Sibling> {
    let of = |side: Side, digest: &[u8]| Some(Sibling { side, digest: unhex(digest)? });
    match line.strip_prefix(b"left ") {
        Some(digest) => of(Side::Left, digest),
        None => of(Side::Right, line.strip_prefix(b"right ")?),
    }
}

fn step(entry: &[u8]) -> Option<Step> {
    let mut words = entry.splitn(4, |byte| *byte == b' ');
    let mut word = || std::str::from_utf8(words.next()?).ok();
    let kind = word()?.bytes().next().and_then(Kind::from_letter)?;
    let permissions = u16::from_str_radix(word()?, 8).ok().filter(|permissions| *permissions <= 0o7777)?;
    let entries = word()?.parse().ok()?;
    let name = unescape(words.next()?)?;
    Some(Step { name, kind, permissions, entries, siblings: Vec::new() })
}

#[cfg(test)]
mod tests {
    use super::*;
    use weft_digest::{Entry, digest};

    fn proof() -> Proof {
        let names: Vec<_> = (0..50u8).map(|number| vec![b'\n', b'\\', 200 + number]).collect();
        let entries = names.iter().map(|name| {
            let kind = if name[2] == 207 { Kind::Socket } else { Kind::File };
            Entry { name, kind, permissions: 0o4751, digest: digest(name) }
        });
        let step = Step::new(entries, &names[7]).expect("there");
        Proof { steps: vec![step], digest: digest(&names[7]) }
    }

    #[test]
    fn a_text_says_what_it_was_made_of() {
        let text = encode(&proof()).expect("a proof");
        assert_eq!(decode(&text), Some((proof().root().expect("a proof"), proof())));
    }

    #[test]
    fn a_text_with_any_byte_changed_or_missing_is_no_proof() {
        let text = encode(&proof()).expect("a proof");
        for at in 0..text.len() {
            let mut changed = text.clone();
            changed[at] ^= 1;
            for bad in [&changed[..], &text[..at]] {
                let holds = decode(bad).is_some_and(|(root, proof)| proof.root() == Some(root));
                assert!(!holds, "{}", String::from_utf8_lossy(bad));
            }
        }
    }
}
