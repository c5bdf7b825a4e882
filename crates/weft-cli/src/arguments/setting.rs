//! Arguments of what changes options of a volume.

use crate::size;
use clap::Args;
use std::path::PathBuf;
use std::str::FromStr;

#[derive(Args)]
pub struct Set {
    /// The volume, or the directory where it is mounted
    pub volume: PathBuf,
    /// size-max=SIZE or inodes-max=COUNT, as of 'weft init'; 'none' takes the limit away
    #[arg(required = true, value_name = "OPTION=VALUE")]
    pub settings: Vec<Setting>,
    /// As JSON
    #[arg(long)]
    pub json: bool,
}

/// An option of a volume and its value from now on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Setting {
    /// The most bytes that it may store, if that is limited.
    SizeMax(Option<u64>),
    /// The most inodes that it may hold, if that is limited.
    InodesMax(Option<u64>),
}

impl FromStr for Setting {
    type Err = String;

    fn from_str(text: &str) -> Result<Setting, String> {
        let (name, value) = text.split_once('=').ok_or("write OPTION=VALUE, as in size-max=10G")?;
        let limit = |parse: fn(&str) -> Result<u64, String>| match value {
            "none" => Ok(None),
            value => parse(value).map(Some),
        };
        match name {
            "size-max" => limit(size::parse_some).map(Setting::SizeMax),
            "inodes-max" => limit(count).map(Setting::InodesMax),
            "history" => Err("'weft history set' changes it".into()),
            "blocks" | "layout" => Err("'weft convert' changes it".into()),
            "block-size" | "inline" | "digests" => Err("it stays what it was when the volume was made; \
                 make another volume and copy to that"
                .into()),
            _ => Err("there is no such option; size-max and inodes-max can be set".into()),
        }
    }
}

fn count(text: &str) -> Result<u64, String> {
    let counted = text.parse().ok().filter(|count| (1..=i64::MAX as u64).contains(count));
    counted.ok_or_else(|| format!("'{text}' is no number of files, from 1 on, and not 'none'"))
}

#[cfg(test)]
mod tests {
    use super::{Setting, Setting::*};

    #[test]
    fn limits_are_set_and_taken_away_and_other_options_told_where_to_go() {
        let set = |text: &str| text.parse::<Setting>();
        assert_eq!(set("size-max=10G"), Ok(SizeMax(Some(10 << 30))));
        assert_eq!(set("size-max=none"), Ok(SizeMax(None)));
        assert_eq!(set("inodes-max=7"), Ok(InodesMax(Some(7))));
        for (text, why) in [
            ("size-max", "OPTION=VALUE"),
            ("size-max=0", "nothing could be stored"),
            ("inodes-max=0", "from 1 on"),
            ("inodes-max=9223372036854775808", "from 1 on"),
            ("inodes-max=4K", "from 1 on"),
            ("history=off", "weft history set"),
            ("blocks=database", "weft convert"),
            ("block-size=4K", "stays what it was"),
            ("colour=red", "no such option"),
        ] {
            assert!(set(text).expect_err("refused").contains(why), "{text}");
        }
    }
}
