//! The rule that says which commits stay: `all 1d, hourly 7d, daily 30d`.

use crate::row::Timestamp;
use std::fmt;
use std::str::FromStr;

const NANOS: i128 = 1_000_000_000;

/// The rule by which commits stay: for each granularity, the time that it reaches back.
///
/// It is written `all 1d, hourly 7d, daily 30d`: all commits of the last day, the last one of each
/// hour for a week, the last one of each day for 30 days. The words are `all`, `minutely`,
/// `hourly`, `daily`, `weekly`, `monthly` (30 days) and `yearly` (365 days), each at most once. A
/// reach is a number and `s`, `m`, `h`, `d`, `w` or `y`, or `forever`, and grows from fine words to
/// coarse ones. Without `all`, only the newest commit stays beside those of the other words.
///
/// Parsing takes the words in any order. Displaying gives the canonical text: from fine to coarse,
/// reaches in the longest unit that divides them (but never in weeks).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rule {
    /// From fine to coarse; reaches grow.
    clauses: Vec<(Granularity, Reach)>,
}

/// The reason that a text is no [`Rule`].
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RuleError {
    /// A text that says nothing.
    #[error("the rule is empty: say which commits to keep, as in 'all 1d, hourly 7d, daily 30d'")]
    Empty,
    /// A part between commas that is not a word and a reach.
    #[error("'{0}' is not a word and a time, as in 'hourly 7d'; separate several by commas")]
    Clause(String),
    /// A word that is not known.
    #[error("'{0}' is none of all, minutely, hourly, daily, weekly, monthly, yearly, as in 'all 1d, daily 30d'")]
    Word(String),
    /// A reach that makes no sense.
    #[error("'{0}' is no time: write a number from 1 and s, m, h, d, w or y, as in '7d', or 'forever'")]
    Reach(String),
    /// A reach of too many seconds to count.
    #[error("'{0}' is too long a time: write 'forever'")]
    TooLong(String),
    /// A reach that is shorter than the period of its word, and so would keep nothing.
    #[error("'{word} {reach}' would keep nothing: it must reach back by {period} or more (m is minutes, d days)")]
    Short {
        /// The word.
        word: &'static str,
        /// Its reach.
        reach: String,
        /// The least reach that makes sense.
        period: String,
    },
    /// A word that is there twice.
    #[error("'{0}' is there twice: write each word once, as in 'hourly 7d, daily 30d'")]
    Twice(&'static str),
    /// A coarse word that reaches no further than a finer one, and so would keep nothing.
    #[error("'{coarser}' must reach further back than '{finer}', as in 'hourly 7d, daily 30d'")]
    Order {
        /// The clause of the finer word.
        finer: String,
        /// The clause of the coarser word.
        coarser: String,
    },
}

/// The density in which commits stay: all of them, or the last one of each period.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Granularity {
    All,
    Minutely,
    Hourly,
    Daily,
    Weekly,
    Monthly,
    Yearly,
}

/// The time that a granularity reaches back from now.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Reach {
    Seconds(u64),
    Forever,
}

const GRANULARITIES: [Granularity; 7] = [
    Granularity::All,
    Granularity::Minutely,
    Granularity::Hourly,
    Granularity::Daily,
    Granularity::Weekly,
    Granularity::Monthly,
    Granularity::Yearly,
];

const DAY: u64 = 24 * 60 * 60;

/// Units with their seconds, from the longest to the second, in which all else is displayed. Weeks
/// come after it: they are parsed, but a week is displayed as `7d`.
const UNITS: [(char, u64); 6] = [('y', 365 * DAY), ('d', DAY), ('h', 60 * 60), ('m', 60), ('s', 1), ('w', 7 * DAY)];

impl Rule {
    /// Returns the reach of `all`; without that word it is 0.
    pub(crate) fn dense(&self) -> Reach {
        let all = self.clauses.iter().find(|(granularity, _)| *granularity == Granularity::All);
        all.map_or(Reach::Seconds(0), |(_, reach)| *reach)
    }

    /// Returns the period of each other word, in nanoseconds, with the word's reach.
    pub(crate) fn periods(&self) -> impl Iterator<Item = (i128, Reach)> + '_ {
        let coarse = self.clauses.iter().filter(|(granularity, _)| *granularity != Granularity::All);
        coarse.map(|(granularity, reach)| (i128::from(granularity.seconds()) * NANOS, *reach))
    }
}

impl Default for Rule {
    /// Returns `all 1d, hourly 7d, daily 30d`.
    fn default() -> Rule {
        let days = |days| Reach::Seconds(days * DAY);
        let clauses = vec![(Granularity::All, days(1)), (Granularity::Hourly, days(7)), (Granularity::Daily, days(30))];
        Rule { clauses }
    }
}

impl Granularity {
    fn word(self) -> &'static str {
        match self {
            Granularity::All => "all",
            Granularity::Minutely => "minutely",
            Granularity::Hourly => "hourly",
            Granularity::Daily => "daily",
            Granularity::Weekly => "weekly",
            Granularity::Monthly => "monthly",
            Granularity::Yearly => "yearly",
        }
    }

    /// Returns the length of its periods.
    fn seconds(self) -> u64 {
        match self {
            Granularity::All => 0,
            Granularity::Minutely => 60,
            Granularity::Hourly => 60 * 60,
            Granularity::Daily => DAY,
            Granularity::Weekly => 7 * DAY,
            Granularity::Monthly => 30 * DAY,
            Granularity::Yearly => 365 * DAY,
        }
    }
}

impl Reach {
    /// Returns the moment to which it reaches back, in nanoseconds since 1970: younger commits lie
    /// within it.
    pub(crate) fn horizon(self, now: Timestamp) -> i128 {
        match self {
            Reach::Seconds(seconds) => i128::from(now.0) - i128::from(seconds) * NANOS,
            Reach::Forever => i128::MIN,
        }
    }
}

impl FromStr for Rule {
    type Err = RuleError;

    fn from_str(text: &str) -> Result<Rule, RuleError> {
        if text.trim().is_empty() {
            return Err(RuleError::Empty);
        }
        let mut clauses = text.split(',').map(parse_clause).collect::<Result<Vec<_>, _>>()?;
        clauses.sort_unstable();
        clauses.windows(2).try_for_each(|pair| check_order(pair[0], pair[1]))?;
        Ok(Rule { clauses })
    }
}

fn parse_clause(text: &str) -> Result<(Granularity, Reach), RuleError> {
    let mut words = text.split_whitespace();
    let (Some(word), Some(reach), None) = (words.next(), words.next(), words.next()) else {
        return Err(RuleError::Clause(text.trim().into()));
    };
    let granularity = GRANULARITIES.into_iter().find(|granularity| granularity.word() == word);
    let granularity = granularity.ok_or_else(|| RuleError::Word(word.into()))?;
    let (reach, period) = (parse_reach(reach)?, Reach::Seconds(granularity.seconds()));
    match reach < period {
        true => {
            Err(RuleError::Short { word: granularity.word(), reach: reach.to_string(), period: period.to_string() })
        }
        false => Ok((granularity, reach)),
    }
}

fn parse_reach(text: &str) -> Result<Reach, RuleError> {
    if text == "forever" {
        return Ok(Reach::Forever);
    }
    let unit = UNITS.iter().find_map(|(unit, seconds)| Some((text.strip_suffix(*unit)?, seconds)));
    let (count, seconds) = unit.ok_or_else(|| RuleError::Reach(text.into()))?;
    if count.bytes().all(|byte| byte == b'0') || !count.bytes().all(|byte| byte.is_ascii_digit()) {
        return Err(RuleError::Reach(text.into()));
    }
    let seconds = count.parse::<u64>().ok().and_then(|count| count.checked_mul(*seconds));
    seconds.map(Reach::Seconds).ok_or_else(|| RuleError::TooLong(text.into()))
}

/// Checks two clauses that follow each other in order.
fn check_order(finer: (Granularity, Reach), coarser: (Granularity, Reach)) -> Result<(), RuleError> {
    let displayed = |(granularity, reach): (Granularity, Reach)| format!("{granularity} {reach}");
    if finer.0 == coarser.0 {
        return Err(RuleError::Twice(finer.0.word()));
    }
    if finer.1 >= coarser.1 {
        return Err(RuleError::Order { finer: displayed(finer), coarser: displayed(coarser) });
    }
    Ok(())
}

impl fmt::Display for Rule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (at, (granularity, reach)) in self.clauses.iter().enumerate() {
            let comma = if at == 0 { "" } else { ", " };
            write!(f, "{comma}{granularity} {reach}")?;
        }
        Ok(())
    }
}

impl fmt::Display for Granularity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.word())
    }
}

impl fmt::Display for Reach {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Reach::Seconds(seconds) = self else { return f.write_str("forever") };
        let (unit, length) = UNITS.iter().find(|(_, length)| seconds % length == 0).expect("a second divides all");
        write!(f, "{}{unit}", seconds / length)
    }
}

#[cfg(test)]
pub(crate) mod tests;
