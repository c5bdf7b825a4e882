//! `weft history set`.

use super::ordered;
use crate::arguments::{Keeping, SetHistory};
use crate::mounted::volume_named;
use crate::shown;
use anyhow::{Context, Result, anyhow};
use serde_json::{Value, json};
use std::path::Path;
use weft_store::history::{Dropped, dropped};
use weft_store::{HistoryFor, OpenOptions};
use weft_vfs::{Clock, SystemClock, Vfs};

/// Sets the rule of a volume, or tells what that would drop.
pub(super) fn run(arguments: &SetHistory) -> Result<()> {
    let what = || format!("cannot set the history of volume {}", shown::path(&arguments.volume));
    let price = Price::read(&arguments.volume, &arguments.rule).with_context(what)?;
    let mut commit = None;
    if !arguments.dry_run {
        if let Some(price) = price.as_ref().filter(|price| price.dropped.commits > 0 && !arguments.drop) {
            return Err(price.refused(&arguments.rule)).with_context(what);
        }
        commit = Some(set(&arguments.volume, &arguments.rule, arguments.readers).with_context(what)?);
    }
    if arguments.json {
        outln!("{:#}", as_json(&arguments.rule, commit, price.as_ref()));
        return Ok(());
    }
    let (volume, is_set) = (shown::path(&arguments.volume), commit.is_some());
    match &arguments.rule {
        Keeping::Off => outln!("{volume} {} no history", if is_set { "keeps" } else { "would keep" }),
        Keeping::By(rule) => {
            let readers = arguments.readers.map(|readers| format!(", for {}", readers.name())).unwrap_or_default();
            outln!("{volume} {} history: {rule}{readers}", if is_set { "keeps" } else { "would keep" });
        }
    }
    match &price {
        Some(price) if price.dropped.commits > 0 => {
            let rest = price.rest(&arguments.rule);
            let (done, more) = match &arguments.rule {
                _ if !is_set => ("would be dropped", String::new()),
                Keeping::Off => ("are dropped", String::new()),
                Keeping::By(_) => (
                    "go in the background while the volume is mounted",
                    format!(" ('weft gc {}' drops them now)", shown::word(arguments.volume.as_os_str())),
                ),
            };
            outln!("{} {done}{more}{rest}", price.commits());
        }
        _ if !is_set => outln!("no commits would be dropped"),
        _ => {}
    }
    Ok(())
}

/// The commits that a change of the rule drops.
struct Price {
    dropped: Dropped,
    /// Time at which the oldest commit that stays was made.
    oldest_made: String,
}

impl Price {
    /// None if the volume keeps no history.
    fn read(volume: &Path, keeping: &Keeping) -> Result<Option<Price>> {
        let opened = volume_named(volume)?.engine().open_beside(OpenOptions::default())?;
        let rule = match keeping {
            Keeping::Off => None,
            Keeping::By(rule) => Some(rule),
        };
        let Some(dropped) = dropped(&*opened.store, rule, SystemClock.now())? else { return Ok(None) };
        Ok(Some(Price { oldest_made: super::made(&*opened.store, dropped.oldest)?, dropped }))
    }

    fn refused(&self, keeping: &Keeping) -> anyhow::Error {
        anyhow!(
            "it would drop {} that the present rule keeps{}. They could not be had back; --drop has them dropped",
            self.commits(),
            self.rest(keeping)
        )
    }

    /// Words for the oldest that stays, where the past does not end.
    fn rest(&self, keeping: &Keeping) -> String {
        match keeping {
            Keeping::Off => String::new(),
            Keeping::By(_) => format!("; the oldest that stays is {}", self.oldest()),
        }
    }

    fn commits(&self) -> String {
        shown::counted(self.dropped.commits, "commit", "commits")
    }

    fn oldest(&self) -> String {
        format!("commit {}, made at {}", self.dropped.oldest.0, self.oldest_made)
    }
}

fn as_json(keeping: &Keeping, commit: Option<u64>, price: Option<&Price>) -> Value {
    let rule = match keeping {
        Keeping::Off => None,
        Keeping::By(rule) => Some(rule.to_string()),
    };
    let oldest = price.map(|price| json!({ "commit": price.dropped.oldest.0, "time": price.oldest_made }));
    json!({
        "rule": rule,
        "commit": commit,
        "dropped": price.map_or(0, |price| price.dropped.commits),
        "oldest": oldest,
    })
}

/// Sets the rule of a volume, mounted or not. Returns the commit.
fn set(volume: &Path, keeping: &Keeping, readers: Option<HistoryFor>) -> Result<u64> {
    let order = match keeping {
        Keeping::Off => "/history/off".to_owned(),
        Keeping::By(rule) => {
            let readers = readers.map_or("same", HistoryFor::name);
            format!("/history/set/{}/{readers}", super::in_target(&rule.to_string()))
        }
    };
    let set = |vfs: &Vfs| match keeping {
        Keeping::Off => vfs.end_history(),
        Keeping::By(rule) => vfs.keep_history(&rule.to_string(), readers),
    };
    ordered(volume, &order, set)
}
