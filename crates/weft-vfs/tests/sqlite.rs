//! The random operations of `model.rs` on volumes in files, as users have them: with blocks in the database
//! and in segments, an intent log, failing calls, and remounts.

use proptest::prelude::*;
use weft_store::sqlite::{self, CheckOptions, Outcome, Repair, check};
use weft_store::{BlockHome, Timestamp};
use weft_testkit::{CrashStore, Driver, Means, Step, operations};

fn agree(steps: &[Step], home: BlockHome) -> Result<(), TestCaseError> {
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().join("volume");
    sqlite::create(&path, &Driver::volume_options(home), (0, 0), Timestamp(0)).expect("created");
    let store = sqlite::open(&path).expect("opened").store;
    let mut driver = Driver::over(CrashStore::over(store), Means::AMPLE);
    let calm = steps.iter().filter(|step| !matches!(step, Step::Crash { .. }));
    for (i, step) in calm.chain(&[Step::Compare, Step::Remount]).enumerate() {
        driver.step(step).map_err(|error| TestCaseError::fail(format!("step {i}, {step:?}: {error}")))?;
    }
    drop(driver);
    let options = CheckOptions { repair: Repair::No, read_data: true };
    let findings = check(&path, options, &mut |_| {}).expect("checked");
    let damage: Vec<_> = findings.into_iter().filter(|finding| finding.outcome != Outcome::Note).collect();
    prop_assert!(damage.is_empty(), "{damage:?}");
    Ok(())
}

fn config() -> ProptestConfig {
    let cases = std::env::var("PROPTEST_CASES").ok().and_then(|cases| cases.parse::<u32>().ok()).unwrap_or(1500);
    ProptestConfig { cases: cases.div_ceil(15), failure_persistence: None, ..ProptestConfig::default() }
}

proptest! {
    #![proptest_config(config())]

    #[test]
    fn a_volume_with_blocks_in_the_database_does_what_the_reference_does(steps in operations(80, true)) {
        agree(&steps, BlockHome::Database)?;
    }

    #[test]
    fn a_volume_with_blocks_in_segments_does_what_the_reference_does(steps in operations(80, true)) {
        agree(&steps, BlockHome::Segments)?;
    }
}
