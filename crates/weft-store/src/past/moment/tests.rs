//! Tests of moments.

use super::*;
use crate::batch::Batch;
use crate::memory::MemoryStore;
use crate::past::{HistoryChange, HistoryFor, PastStore, Pin};
use crate::store::{CommitStore, Durability, RowStore, VolumeOptions};
use proptest::prelude::*;

fn parsed(text: &str) -> Option<Moment> {
    text.parse().ok()
}

fn time(text: &str) -> Option<i64> {
    match parsed(text) {
        Some(Moment::Time(time)) => Some(time.0),
        _ => None,
    }
}

#[test]
fn moments_are_read_as_users_write_them() {
    let ago = |seconds: i64| Some(Moment::Ago(seconds * SECOND));
    for (text, moment) in [
        ("now", Some(Moment::Now)),
        ("@1234", Some(Moment::Commit(CommitNo(1234)))),
        ("-5m", ago(300)),
        ("-2h30m", ago(9000)),
        ("-3d", ago(3 * DAY_SECONDS)),
        ("-1w", ago(7 * DAY_SECONDS)),
        ("-90s", ago(90)),
        ("-1y", ago(365 * DAY_SECONDS)),
        ("yesterday", ago(DAY_SECONDS)),
        ("before-upgrade", Some(Moment::Snapshot("before-upgrade".into()))),
        ("2026-11-28-release", Some(Moment::Snapshot("2026-11-28-release".into()))),
        ("2026", Some(Moment::Snapshot("2026".into()))),
        ("", None),
        ("@", None),
        ("@-1", None),
        ("@+1", None),
        ("@99999999999999999999", None),
        ("-", None),
        ("-5", None),
        ("-m", None),
        ("-5x", None),
        ("-5ä", None),
        ("-5m-5m", None),
        ("-99999999999999999s", None),
    ] {
        assert_eq!(parsed(text), moment, "'{text}'");
    }
}

#[test]
fn times_are_those_of_rfc_3339_in_utc_unless_an_offset_stands_there() {
    let day = DAY_SECONDS * SECOND;
    for (text, nanoseconds) in [
        ("1970-01-01", Some(0)),
        ("1970-01-02", Some(day)),
        ("1969-12-31T23:59:59Z", Some(-SECOND)),
        ("1970-01-01T00:00", Some(0)),
        ("1970-01-01 01:02:03", Some(3723 * SECOND)),
        ("1970-01-01t01:00:00z", Some(3600 * SECOND)),
        ("1970-01-01T01:00:00+01:00", Some(0)),
        ("1970-01-01T00:00:00-00:30", Some(1800 * SECOND)),
        ("1970-01-01T00:00:00.5Z", Some(SECOND / 2)),
        ("1970-01-01T00:00:00.1234567891", Some(123_456_789)),
        ("1970-01-01T23:59:60Z", Some(day)),
        ("2000-02-29", Some(11_016 * day)),
        ("2026-11-28T12:30:00Z", Some(1_795_869_000 * SECOND)),
        ("9999-12-31", Some(i64::MAX)),
        ("0000-01-01", Some(i64::MIN)),
        ("2026-02-29", None),
        ("2026-13-01", None),
        ("2026-00-01", None),
        ("2026-01-00", None),
        ("1900-02-29", None),
        ("2026-11-28T", None),
        ("2026-11-28T24:00", None),
        ("2026-11-28T12:60", None),
        ("2026-11-28T12:00:61", None),
        ("2026-11-28T12", None),
        ("2026-11-28T12:00.5", None),
        ("2026-11-28T12:00:00.", None),
        ("2026-11-28T12:00:00.+1", None),
        ("2026-11-28T12:00:00+1", None),
        ("2026-11-28T12:00:00+24:00", None),
        ("2026-11-28T12:00:00Zjunk", None),
        ("2026-11-28T12:00:00 Z", None),
    ] {
        assert_eq!(time(text), nanoseconds, "'{text}'");
        assert!(nanoseconds.is_some() || parsed(text).is_none(), "'{text}' is refused");
    }
}

proptest! {
    #[test]
    fn any_text_is_read_or_refused_with_words(text: String) {
        if let Err(error) = text.parse::<Moment>() {
            prop_assert!(error.to_string().contains("say a commit"));
        }
    }

    #[test]
    fn text_like_a_moment_is_read_or_refused(
        text in r"(@[0-9]{0,25})|(-([0-9]{0,22}[smhdwyé]){0,4})|([0-9]{4}-[0-9]{2}-[0-9]{2}[T ]?[0-9:.Z+\-]{0,30})"
    ) {
        let _ = text.parse::<Moment>();
    }

    #[test]
    fn a_time_that_is_written_reads_as_itself(seconds in -9_000_000_000i64..9_000_000_000) {
        let written = Rfc3339(Timestamp::from_parts(seconds, 0)).to_string();
        prop_assert_eq!(time(&written), Some(seconds * SECOND), "{}", written);
    }

    #[test]
    fn the_calendar_goes_from_day_to_day(days in -1_000_000i64..1_000_000) {
        let (year, month, day) = date_after(days);
        prop_assert_eq!(days_before(year, month, day), days);
        let next = if day < days_of(year, month) { (year, month, day + 1) }
            else if month < 12 { (year, month + 1, 1) } else { (year + 1, 1, 1) };
        prop_assert_eq!(date_after(days + 1), next);
    }
}

/// A volume whose commits 2 to 9 were made at so many hours after 1970, with history from 3 on; of
/// those before 7 only 4 is kept, as snapshot 's'.
fn volume() -> MemoryStore {
    let store = MemoryStore::new(VolumeOptions::default());
    for number in 2..=9 {
        let counters = store.header().expect("readable").counters;
        let time = Timestamp(number * 3600 * SECOND);
        let commit = CommitNo(number.unsigned_abs());
        let pin =
            Pin { commit: CommitNo(4), kind: PinKind::Snapshot, name: b"s".to_vec(), made: time, held_until: None };
        let history = match number {
            3 => vec![HistoryChange::Keep("all forever".into(), HistoryFor::All)],
            9 => vec![HistoryChange::Pin(pin), HistoryChange::First(CommitNo(7))],
            _ => Vec::new(),
        };
        let batch = Batch { commit, time, counters, history, ..Batch::default() };
        store.apply(&batch, Durability::Durable).expect("applied");
    }
    store
}

fn found(store: &MemoryStore, text: &str) -> std::result::Result<u64, String> {
    let now = Timestamp(10 * 3600 * SECOND);
    let moment: Moment = text.parse().expect("a moment");
    moment.commit(store, now).map(|commit| commit.0).map_err(|error| error.to_string())
}

#[test]
fn a_moment_is_the_last_kept_commit_at_or_before_it() {
    let store = volume();
    for (text, commit) in [
        ("now", 9),
        ("@7", 7),
        ("@4", 4),
        ("s", 4),
        ("-1h", 9),
        ("-61m", 8),
        ("-3h", 7),
        ("-3h1s", 4),
        ("1970-01-01T05:30", 4),
        ("1970-01-01T04:00:00", 4),
        ("2200-01-01", 9),
    ] {
        assert_eq!(found(&store, text), Ok(commit), "'{text}'");
        assert!(store.is_kept(CommitNo(commit)).expect("readable"));
    }
}

#[test]
fn a_moment_of_which_nothing_is_kept_is_refused_with_the_reason() {
    let store = volume();
    for (text, why) in [
        ("@5", "commit 5 is not kept: all commits are kept from 7 on"),
        ("@10", "there is no commit 10 yet: the last one is 9"),
        ("@0", "commit 0 is not kept"),
        ("other", "there is no snapshot 'other', and it is no time either; say a commit (@1234)"),
        (
            "1970-01-01T03:59:59",
            "nothing is kept of 1970-01-01T03:59:59Z: the history of this volume begins with commit 4, made at \
             1970-01-01T04:00:00Z",
        ),
        ("1960-01-01", "nothing is kept of 1960-01-01T00:00:00Z: the history of this volume begins with commit 4"),
    ] {
        let error = found(&store, text).expect_err("refused");
        assert!(error.starts_with(why), "'{text}': {error}");
    }
    let none = MemoryStore::new(VolumeOptions::default());
    assert!(found(&none, "now").expect_err("refused").contains("keeps no history"));
}

#[test]
fn a_moment_in_the_future_is_refused_where_a_user_names_it() {
    let store = volume();
    let asked = |text: &str, hours: i64| {
        let moment: Moment = text.parse().expect("a moment");
        moment.past_commit(&store, Timestamp(hours * 3600 * SECOND)).map_err(|error| error.to_string())
    };
    assert_eq!(asked("2200-01-01", 10), Err("2200-01-01T00:00:00Z is in the future".into()));
    assert_eq!(asked("1970-01-01T10:00:01", 10), Err("1970-01-01T10:00:01Z is in the future".into()));
    assert_eq!(asked("1970-01-01T10:00:00", 10), Ok(CommitNo(9)));
    assert_eq!(asked("now", 10), Ok(CommitNo(9)));
    assert_eq!(asked("@10", 10), Err("there is no commit 10 yet: the last one is 9".into()));
    // The clock was put back after the last commits.
    assert_eq!(asked("1970-01-01T08:30:00", 7), Ok(CommitNo(8)));
    assert_eq!(asked("1970-01-01T09:00:01", 7), Err("1970-01-01T09:00:01Z is in the future".into()));
}
