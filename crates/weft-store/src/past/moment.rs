//! Moments as users write them, and the commits that they stand for.

use super::at::{not_kept, not_there_yet};
use super::no_history;
use crate::error::{Error, Result};
use crate::name::NAME_BYTES_MAX;
use crate::past::{History, PinKind};
use crate::row::{CommitNo, Timestamp};
use crate::store::Store;
use std::fmt;
use std::str::FromStr;

const SECOND: i64 = 1_000_000_000;
const DAY_SECONDS: i64 = 86_400;

/// Advice on what can be written, for messages.
const FORMS: &str = "say a commit (@1234), a time (2026-11-28 or 2026-11-28T12:30:00Z), a time ago (-5m, -2h30m, -3d, \
                     -1w), 'yesterday', 'now' or the name of a snapshot";

/// A moment in the past of a volume, as a user names it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Moment {
    /// The last commit: `now`.
    Now,
    /// A commit by its number: `@1234`.
    Commit(CommitNo),
    /// A time as RFC 3339 writes it, in UTC unless an offset stands there; a date is its beginning.
    Time(Timestamp),
    /// So many nanoseconds before now: `-5m`, `-2h30m`, `-3d`, `-1w`; `yesterday` is a day ago.
    Ago(i64),
    /// A snapshot by its name: any other text.
    Snapshot(String),
}

/// True of a name that people take for a moment, though it is read as none: a length of time
/// ('1h'), a clock ('12:30'), or a date that is cut short ('2026-11').
fn is_like_a_moment(name: &str) -> bool {
    let is_span = format!("-{name}").parse::<Moment>().is_ok();
    let of_clocks = |byte: u8| byte.is_ascii_digit() || b"-:/.+TtZz ".contains(&byte);
    let is_clock = name.contains(':') || name.as_bytes().get(4) == Some(&b'-');
    is_span || name.bytes().all(of_clocks) && is_clock || matches!(name, "today" | "tomorrow")
}

/// Text that names no moment.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct InvalidMoment(String);

impl FromStr for Moment {
    type Err = InvalidMoment;

    fn from_str(text: &str) -> Result<Moment, InvalidMoment> {
        let invalid = |why: &str| InvalidMoment(format!("'{text}' {why}; {FORMS}"));
        match text {
            "" => return Err(InvalidMoment(format!("a moment is missing; {FORMS}"))),
            "now" => return Ok(Moment::Now),
            "yesterday" => return Ok(Moment::Ago(DAY_SECONDS * SECOND)),
            _ => {}
        }
        if let Some(number) = text.strip_prefix('@') {
            let number = digits(number).ok_or_else(|| invalid("is not the number of a commit"))?;
            return Ok(Moment::Commit(CommitNo(number)));
        }
        if let Some(span) = text.strip_prefix('-') {
            let span = span_of(span).ok_or_else(|| invalid("is not a time ago"))?;
            return Ok(Moment::Ago(span));
        }
        if is_like_a_date(text) {
            return Ok(Moment::Time(time_of(text).ok_or_else(|| invalid("is not a time"))?));
        }
        Ok(Moment::Snapshot(text.to_owned()))
    }
}

impl Moment {
    /// True if a snapshot can have that name: it is no path, and nobody takes it for another
    /// moment.
    pub fn can_name_snapshot(name: &str) -> bool {
        Moment::refuse_snapshot_name(name).is_ok()
    }

    /// Refuses a name that a snapshot cannot have.
    ///
    /// # Errors
    /// The reason, in words that follow on 'it'.
    pub fn refuse_snapshot_name(name: &str) -> Result<(), &'static str> {
        let is_found = name.parse::<Moment>().is_ok_and(|moment| moment == Moment::Snapshot(name.to_owned()));
        match name {
            "" => Err("is empty"),
            _ if name.len() > NAME_BYTES_MAX => Err("is longer than 255 bytes"),
            _ if name.contains(char::is_control) => Err("has a control character"),
            "." | ".." => Err("is a path"),
            _ if name.contains('/') => Err("is a path"),
            _ if name.starts_with('@') => Err("begins with '@', as the number of a commit does"),
            _ if name.starts_with('-') => Err("begins with '-', as a time ago does"),
            _ if !is_found || is_like_a_moment(name) => Err("reads as a time"),
            _ => Ok(()),
        }
    }

    /// Returns the commit that it stands for, as [`Moment::commit`] does, where a user names it.
    /// `Unusable` also if it is in the future.
    pub fn past_commit(&self, store: &dyn Store, now: Timestamp) -> Result<CommitNo> {
        self.refuse_future(store, now)?;
        self.commit(store, now)
    }

    /// `Unusable` if it is later than `now` and the last commit, whose clock may have been ahead.
    pub fn refuse_future(&self, store: &dyn Store, now: Timestamp) -> Result<()> {
        let last = store.header()?.commit;
        match self {
            Moment::Commit(number) if *number > last => Err(not_there_yet(*number, last)),
            Moment::Time(time) if *time > now => {
                let row = store.commit_row(last)?;
                match row.is_some_and(|row| row.time >= *time) {
                    true => Ok(()),
                    false => Err(Error::Unusable(format!("{} is in the future", Rfc3339(*time)))),
                }
            }
            Moment::Now | Moment::Commit(_) | Moment::Time(_) | Moment::Ago(_) | Moment::Snapshot(_) => Ok(()),
        }
    }

    /// Returns the commit of `store` that it stands for: of a time the last one at or before it
    /// that is kept. `Unusable`, with the reason, if there is none.
    pub fn commit(&self, store: &dyn Store, now: Timestamp) -> Result<CommitNo> {
        let history = store.history()?.ok_or_else(no_history)?;
        match self {
            Moment::Now => Ok(store.header()?.commit),
            Moment::Commit(number) if store.is_kept(*number)? => Ok(*number),
            Moment::Commit(number) => Err(not_kept(store, *number)?),
            Moment::Time(time) => last_kept(store, &history, *time),
            Moment::Ago(span) => last_kept(store, &history, Timestamp(now.0.saturating_sub(*span))),
            Moment::Snapshot(name) => snapshot(store, name),
        }
    }
}

/// The last kept commit at or before `time`.
fn last_kept(store: &dyn Store, history: &History, time: Timestamp) -> Result<CommitNo> {
    let mut pins = Vec::new();
    if let Some(commit) = store.commit_at(time)? {
        if store.is_kept(commit.number)? {
            return Ok(commit.number);
        }
        pins = store.pins()?;
        pins.retain(|pin| pin.commit <= commit.number);
    }
    match pins.into_iter().map(|pin| pin.commit).max() {
        Some(pinned) => Ok(pinned),
        None => Err(nothing_before(store, history, time)?),
    }
}

/// Says from when on history is kept.
fn nothing_before(store: &dyn Store, history: &History, time: Timestamp) -> Result<Error> {
    let oldest = store.pins()?.into_iter().map(|pin| pin.commit).fold(history.first, CommitNo::min);
    let row = store.commit_row(oldest)?;
    let since = row.map(|row| format!(", made at {}", Rfc3339(row.time))).unwrap_or_default();
    let what = format!(
        "nothing is kept of {}: the history of this volume begins with commit {}{since}",
        Rfc3339(time),
        oldest.0
    );
    Ok(Error::Unusable(what))
}

fn snapshot(store: &dyn Store, name: &str) -> Result<CommitNo> {
    let is_it = |pin: &super::Pin| pin.kind == PinKind::Snapshot && pin.name == name.as_bytes();
    let found = store.pins()?.into_iter().filter(is_it).map(|pin| pin.commit).max();
    found.ok_or_else(|| Error::Unusable(format!("there is no snapshot '{name}', and it is no time either; {FORMS}")))
}

/// A number without a sign.
fn digits(text: &str) -> Option<u64> {
    let is_number = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    text.parse().ok().filter(|_| is_number)
}

/// The nanoseconds of numbers with units, such as `2h30m`.
fn span_of(mut text: &str) -> Option<i64> {
    let mut total = 0i64;
    if text.is_empty() {
        return None;
    }
    while !text.is_empty() {
        let end = text.find(|c: char| !c.is_ascii_digit())?;
        let number = i64::try_from(digits(&text[..end])?).ok()?;
        let unit = text[end..].chars().next()?;
        let seconds = match unit {
            's' => 1,
            'm' => 60,
            'h' => 3600,
            'd' => DAY_SECONDS,
            'w' => 7 * DAY_SECONDS,
            'y' => 365 * DAY_SECONDS,
            _ => return None,
        };
        total = total.checked_add(number.checked_mul(seconds)?.checked_mul(SECOND)?)?;
        text = &text[end + unit.len_utf8()..];
    }
    Some(total)
}

/// True if `text` begins with a date, and nothing but a time follows. Names of snapshots may begin
/// with dates, too.
fn is_like_a_date(text: &str) -> bool {
    let bytes = text.as_bytes();
    let has_shape = |(at, byte): (usize, &u8)| if matches!(at, 4 | 7) { *byte == b'-' } else { byte.is_ascii_digit() };
    let is_date = bytes.len() >= 10 && bytes.iter().take(10).enumerate().all(has_shape);
    is_date && bytes.get(10).is_none_or(|byte| b"Tt ".contains(byte))
}

/// A time as of RFC 3339, whose seconds may be left out, and whose offset is UTC's if it is left
/// out.
fn time_of(text: &str) -> Option<Timestamp> {
    let (date, rest) = text.split_at_checked(10)?;
    let [year, month, day] = numbers(date, '-', [4, 2, 2])?;
    if !(1..=12).contains(&month) || !(1..=days_of(year, month)).contains(&day) {
        return None;
    }
    let midnight = days_before(year, month, day) * DAY_SECONDS;
    let Some(time) = rest.get(1..) else { return Some(Timestamp::from_parts(midnight, 0)) };
    let zone = time.find(['Z', 'z', '+', '-']).unwrap_or(time.len());
    let (time, zone) = time.split_at_checked(zone)?;
    let (clock, fraction) = time.split_once('.').map_or((time, None), |(clock, fraction)| (clock, Some(fraction)));
    let [hour, minute, second] = match fraction {
        None if clock.len() == 5 => numbers(clock, ':', [2, 2]).map(|[hour, minute]| [hour, minute, 0])?,
        _ => numbers(clock, ':', [2, 2, 2])?,
    };
    // A leap second counts as the one after it, as it does for clocks of Unix.
    if hour > 23 || minute > 59 || second > 60 {
        return None;
    }
    let seconds = midnight + hour * 3600 + minute * 60 + second - offset_of(zone)?;
    Some(Timestamp::from_parts(seconds, fraction.map_or(Some(0), nanoseconds)?))
}

/// The numbers in `text`, which have these many digits and `between` between them.
fn numbers<const N: usize>(text: &str, between: char, lengths: [usize; N]) -> Option<[i64; N]> {
    let mut parts = text.split(between);
    let mut found = [0; N];
    for (number, length) in found.iter_mut().zip(lengths) {
        let part = parts.next().filter(|part| part.len() == length)?;
        *number = i64::try_from(digits(part)?).ok()?;
    }
    parts.next().is_none().then_some(found)
}

/// The nanoseconds of the digits behind a point.
fn nanoseconds(digits_behind: &str) -> Option<u32> {
    digits(digits_behind.get(..digits_behind.len().min(9))?)?;
    let is_number = digits_behind.bytes().all(|byte| byte.is_ascii_digit());
    let padded = format!("{digits_behind:0<9}");
    padded.get(..9)?.parse().ok().filter(|_| is_number)
}

/// The seconds that local time is ahead of UTC by `zone`.
fn offset_of(zone: &str) -> Option<i64> {
    if matches!(zone, "" | "Z" | "z") {
        return Some(0);
    }
    let [hours, minutes] = numbers(zone.get(1..)?, ':', [2, 2])?;
    if hours > 23 || minutes > 59 {
        return None;
    }
    let seconds = hours * 3600 + minutes * 60;
    Some(if zone.starts_with('-') { -seconds } else { seconds })
}

fn days_of(year: i64, month: i64) -> i64 {
    let is_leap = year % 4 == 0 && (year % 100 != 0 || year % 400 == 0);
    match month {
        2 => 28 + i64::from(is_leap),
        4 | 6 | 9 | 11 => 30,
        _ => 31,
    }
}

/// The days from 1970-01-01 to a date of the Gregorian calendar. Years begin in March here, so that
/// a leap day is the last of its year.
fn days_before(year: i64, month: i64, day: i64) -> i64 {
    let year = if month <= 2 { year - 1 } else { year };
    let (era, of_era) = (year.div_euclid(400), year.rem_euclid(400));
    let of_year = (153 * ((month + 9) % 12) + 2) / 5 + day - 1;
    era * 146_097 + of_era * 365 + of_era / 4 - of_era / 100 + of_year - 719_468
}

/// The date so many days after 1970-01-01: the other way round.
fn date_after(days: i64) -> (i64, i64, i64) {
    let days = days + 719_468;
    let (era, of_era) = (days.div_euclid(146_097), days.rem_euclid(146_097));
    let year = (of_era - of_era / 1460 + of_era / 36_524 - of_era / 146_096) / 365;
    let of_year = of_era - (365 * year + year / 4 - year / 100);
    let from_march = (5 * of_year + 2) / 153;
    let day = of_year - (153 * from_march + 2) / 5 + 1;
    let month = if from_march < 10 { from_march + 3 } else { from_march - 9 };
    (era * 400 + year + i64::from(month <= 2), month, day)
}

/// A time as RFC 3339 writes it, in UTC, in whole seconds.
pub(crate) struct Rfc3339(pub(crate) Timestamp);

impl fmt::Display for Rfc3339 {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (seconds, _) = self.0.parts();
        let (year, month, day) = date_after(seconds.div_euclid(DAY_SECONDS));
        let second = seconds.rem_euclid(DAY_SECONDS);
        let (hour, minute, second) = (second / 3600, second / 60 % 60, second % 60);
        write!(f, "{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}Z")
    }
}

#[cfg(test)]
mod tests;
