//! The messages that a log has, by level and target: `warn`, or `info,weft_nfs=error`.

use tracing::Level;
use tracing::level_filters::LevelFilter;

/// A filter of messages.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Filter {
    /// Levels of targets that begin so, the longest first; the last one is for all.
    levels: Vec<(String, LevelFilter)>,
}

impl Default for Filter {
    fn default() -> Filter {
        Filter { levels: vec![(String::new(), LevelFilter::INFO)] }
    }
}

impl Filter {
    /// Reads a filter: levels (`off`, `error`, `warn`, `info`, `debug`, `trace`), each for all or
    /// after a target and `=`, separated by commas.
    ///
    /// Errors: the part that is none.
    pub(super) fn parse(text: &str) -> Result<Filter, String> {
        let mut filter = Filter::default();
        for part in text.split(',').map(str::trim).filter(|part| !part.is_empty()) {
            let (target, level) = part.rsplit_once('=').unwrap_or(("", part));
            let level = Some(level).filter(|level| !level.is_empty()).and_then(|level| level.parse().ok());
            let level = level.ok_or_else(|| part.to_owned())?;
            filter.levels.retain(|(of, _)| of != target);
            filter.levels.push((target.to_owned(), level));
        }
        filter.levels.sort_by_key(|(target, _)| std::cmp::Reverse(target.len()));
        Ok(filter)
    }

    /// True if messages of `level` from `target` are written.
    pub(super) fn admits(&self, level: Level, target: &str) -> bool {
        let is_of = |prefix: &str| {
            target
                .strip_prefix(prefix)
                .is_some_and(|rest| prefix.is_empty() || rest.is_empty() || rest.starts_with("::"))
        };
        self.levels.iter().find(|(prefix, _)| is_of(prefix)).is_some_and(|(_, least)| level <= *least)
    }

    /// Returns the highest level that any target has.
    pub(super) fn most(&self) -> LevelFilter {
        self.levels.iter().map(|(_, level)| *level).max().unwrap_or(LevelFilter::OFF)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_longest_target_decides() {
        let filter = Filter::parse("warn, weft_nfs=off,weft_nfs::server=debug").unwrap();
        let admits = |level, target| filter.admits(level, target);
        assert!(admits(Level::WARN, "weft_vfs::commit") && !admits(Level::INFO, "weft_vfs::commit"));
        assert!(!admits(Level::ERROR, "weft_nfs::v3") && admits(Level::DEBUG, "weft_nfs::server::tls"));
        assert!(admits(Level::ERROR, "weft_nfsd"), "another target");
        assert_eq!(filter.most(), LevelFilter::DEBUG);
        assert!(Filter::parse("").unwrap() == Filter::default() && Filter::default().admits(Level::INFO, "weft"));
        for wrong in ["loud", "weft_nfs=", "warn,weft=loud"] {
            assert!(Filter::parse(wrong).is_err(), "{wrong}");
        }
    }
}
