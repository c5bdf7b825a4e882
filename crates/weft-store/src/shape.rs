//! Differences between the tables of a volume and those that Weft makes.
//!
//! A trigger or rule changes what is written behind the back of sums, an index that is gone makes
//! statements fail that name it, a constraint refuses rows that are in order. None of that shows in
//! rows, so the schema itself is compared.

use crate::error::{Error, Result};
use crate::finding::{Finding, Outcome, Repair};

/// The weight of a difference.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Weight {
    /// It touches nothing of Weft's.
    Note,
    /// It is in the way of people alone: the view for them.
    View,
    /// It has an effect on what is written.
    Surplus,
    /// Reading takes what is gone or changed.
    Lacking,
}

/// A difference.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Misfit {
    /// Words for it.
    pub(crate) what: String,
    pub(crate) weight: Weight,
    /// Statements that put it right, where that loses nothing.
    pub(crate) remedy: Option<String>,
}

impl Misfit {
    pub(crate) fn new(weight: Weight, what: String, remedy: Option<String>) -> Misfit {
        Misfit { what, weight, remedy }
    }

    /// Returns the finding that a check reports of it. `repair` is the requested one, which was
    /// made where possible.
    pub(crate) fn finding(&self, repair: Repair) -> Finding {
        let outcome = match (self.weight, &self.remedy, repair) {
            (_, Some(_), Repair::Yes | Repair::Discard) => Outcome::Repaired,
            (Weight::Note, ..) => Outcome::Note,
            _ => Outcome::Damaged,
        };
        Finding::new(None, format!("schema: {}", self.what), outcome)
    }
}

/// Refuses to open a volume for the first of `misfits` that weighs `least` or more. `or` names what
/// else can be done where nothing puts that right.
pub(crate) fn refuse(misfits: &[Misfit], least: Weight, or: &str) -> Result<()> {
    let weighs = |misfit: &&Misfit| match least {
        Weight::Lacking => misfit.weight == Weight::Lacking,
        _ => matches!(misfit.weight, Weight::Surplus | Weight::Lacking),
    };
    let Some(misfit) = misfits.iter().find(weighs) else { return Ok(()) };
    let advice = match misfit.remedy {
        Some(_) => "'weft check --repair' puts that right".into(),
        None => format!("restore the volume from a copy, or {or}"),
    };
    Err(Error::Corrupt(format!("the tables of the volume are not as Weft made them: {}; {advice}", misfit.what)))
}

/// True if Weft's statements cannot be relied on: something is lacking that nothing puts right.
pub(crate) fn is_hopeless(misfits: &[Misfit]) -> bool {
    misfits.iter().any(|misfit| misfit.weight == Weight::Lacking && misfit.remedy.is_none())
}

/// Quotes a name for SQL.
pub(crate) fn quoted(name: &str) -> String {
    format!("\"{}\"", name.replace('"', "\"\""))
}

/// Describes in words how two lists of columns differ.
pub(crate) fn differing(expected: &[String], found: &[String]) -> String {
    let only = |these: &[String], others: &[String]| {
        let only = these.iter().filter(|column| !others.contains(column)).map(|column| format!("({column})"));
        only.collect::<Vec<_>>().join(", ")
    };
    let words = [("lacks", only(expected, found)), ("has", only(found, expected))];
    let words = words.iter().filter(|(_, columns)| !columns.is_empty());
    let words = words.map(|(verb, columns)| format!("{verb} {columns}")).collect::<Vec<_>>().join(" and ");
    if words.is_empty() { "has other constraints".into() } else { words }
}
