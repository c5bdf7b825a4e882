//! Rules as text, and what is wrong with other text.

use super::*;
use proptest::prelude::*;

fn displayed(text: &str) -> String {
    text.parse::<Rule>().unwrap_or_else(|error| panic!("'{text}': {error}")).to_string()
}

fn refused(text: &str) -> RuleError {
    text.parse::<Rule>().expect_err(text)
}

#[test]
fn rule_displays_as_it_was_written() {
    for text in ["all 1d, hourly 7d, daily 90d", "all forever", "daily 30d", "minutely 90s, yearly forever"] {
        assert_eq!(displayed(text), text);
    }
    assert_eq!(Rule::default().to_string(), "all 1d, hourly 7d, daily 30d");
    let all = "all 59s, minutely 1m, hourly 1h, daily 1d, weekly 14d, monthly 1y, yearly forever";
    assert_eq!(displayed(all), all);
}

#[test]
fn rules_that_mean_the_same_display_alike() {
    assert_eq!(displayed(" daily  4w,all 60m ,\thourly 0120m"), "all 1h, hourly 2h, daily 28d");
    assert_eq!(displayed("all 60s, hourly 1w, weekly 52w, yearly 730d"), "all 1m, hourly 7d, weekly 364d, yearly 2y");
}

#[test]
fn rule_without_all_keeps_the_newest_alone_densely() {
    let rule: Rule = "hourly 7d".parse().unwrap();
    assert_eq!(rule.dense(), Reach::Seconds(0));
    assert_eq!(rule.periods().collect::<Vec<_>>(), [(3600 * NANOS, Reach::Seconds(7 * DAY))]);
    assert_eq!("all forever".parse::<Rule>().unwrap().dense(), Reach::Forever);
}

#[test]
fn each_mistake_is_named() {
    assert_eq!(refused(" "), RuleError::Empty);
    for text in ["all", "all 1d hourly 7d", "all 1d,", ",", "all 1 d"] {
        assert!(matches!(refused(text), RuleError::Clause(_)), "{text}");
    }
    assert_eq!(refused("All 1d"), RuleError::Word("All".into()));
    assert_eq!(refused("all 1d, quarterly 1y"), RuleError::Word("quarterly".into()));
    for reach in ["d", "7", "0d", "00s", "-1d", "+1d", "1.5d", "1dd", "1µ", "Forever", "7D", "٣d"] {
        assert_eq!(refused(&format!("all {reach}")), RuleError::Reach(reach.into()));
    }
    for reach in ["18446744073709551616s", "584942417356y"] {
        assert_eq!(refused(&format!("all {reach}")), RuleError::TooLong(reach.into()));
    }
    assert_eq!(refused("all 1d, daily 3d, all 2d"), RuleError::Twice("all"));
    assert_eq!(
        refused("all 1d, monthly 1m").to_string(),
        "'monthly 1m' would keep nothing: it must reach back by 30d or more (m is minutes, d days)"
    );
    assert!(matches!(refused("hourly 59m"), RuleError::Short { .. }));
}

#[test]
fn coarse_words_reach_further_than_fine_ones() {
    let order = |finer: &str, coarser: &str| RuleError::Order { finer: finer.into(), coarser: coarser.into() };
    assert_eq!(refused("all 1d, hourly 12h"), order("all 1d", "hourly 12h"));
    assert_eq!(refused("hourly 7d, daily 1w"), order("hourly 7d", "daily 7d"));
    assert_eq!(refused("yearly forever, all forever"), order("all forever", "yearly forever"));
    assert_eq!(
        refused("all 1d, hourly 12h").to_string(),
        "'hourly 12h' must reach further back than 'all 1d', as in 'hourly 7d, daily 30d'"
    );
}

#[test]
fn horizon_lies_a_reach_before_now() {
    assert_eq!(Reach::Seconds(2).horizon(Timestamp(5)), 5 - 2 * NANOS);
    assert!(Reach::Seconds(u64::MAX).horizon(Timestamp(i64::MIN)) > Reach::Forever.horizon(Timestamp(0)));
}

/// Returns rules of any words, with reaches of any length.
pub(crate) fn rules() -> impl Strategy<Value = Rule> {
    let seconds = (1..365 * DAY, 0..26u32).prop_map(|(seconds, bits)| (seconds >> bits).max(1));
    let steps = proptest::collection::vec(seconds, GRANULARITIES.len());
    (1..1u8 << GRANULARITIES.len(), steps, any::<bool>()).prop_map(|(words, steps, forever)| {
        let granularities = GRANULARITIES.into_iter().enumerate().filter(|(at, _)| words >> at & 1 == 1);
        let clauses = granularities.zip(steps).scan(0, |reach, ((_, granularity), step)| {
            *reach = granularity.seconds().max(*reach + step);
            Some((granularity, Reach::Seconds(*reach)))
        });
        let mut clauses: Vec<_> = clauses.collect();
        clauses.last_mut().into_iter().filter(|_| forever).for_each(|(_, reach)| *reach = Reach::Forever);
        Rule { clauses }
    })
}

proptest! {
    #[test]
    fn displayed_rule_parses_to_itself(rule in rules()) {
        prop_assert_eq!(rule.to_string().parse::<Rule>(), Ok(rule));
    }

    #[test]
    fn no_text_makes_parsing_panic(text in "([a-z]{1,8} [0-9]{0,21}[smhdwyx]?,? ?){0,4}|.*") {
        if let Ok(rule) = text.parse::<Rule>() {
            prop_assert_eq!(rule.to_string().parse::<Rule>(), Ok(rule));
        }
    }
}
