//! Damage that was found, counted and in words.

use weft_store::Finding;

/// True if `finding` contains its own advice; a repair would not help.
pub fn is_advised(finding: &Finding) -> bool {
    let words = ["--accept-loss", "--salvage", "--discard", "move the log away", "then unmount it"];
    words.iter().any(|word| finding.what.contains(word))
}

/// Counts the damaged places in `findings`.
pub fn places<'a>(findings: impl IntoIterator<Item = &'a Finding>) -> usize {
    findings.into_iter().map(|finding| finding.places).sum()
}

/// Returns the number of damaged places in words.
pub fn damages(count: usize) -> String {
    if count == 1 { "1 damaged place".into() } else { format!("{count} damaged places") }
}
