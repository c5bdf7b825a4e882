//! Random operations on a volume and on the reference file system, side by side: every result and
//! the whole tree must agree; after a crash the tree must be the model's at some operation not
//! before the last sync.

use proptest::prelude::*;
use weft_testkit::{Driver, Means, Operation, Step, operations};
use weft_vfs::Kind;

fn agree(steps: &[Step], means: Means) -> Result<(), TestCaseError> {
    let mut driver = Driver::new(means);
    for (i, step) in steps.iter().enumerate() {
        driver.step(step).map_err(|error| TestCaseError::fail(format!("step {i}, {step:?}: {error}")))?;
    }
    for step in [Step::Compare, Step::Remount] {
        driver.step(&step).map_err(|error| TestCaseError::fail(format!("at the end, {step:?}: {error}")))?;
    }
    Ok(())
}

/// The same in a volume that keeps history: every commit stays what it was.
fn agree_and_remember(steps: &[Step], means: Means) -> Result<(), TestCaseError> {
    let mut driver = Driver::new(means);
    driver.keep_history();
    for (i, step) in steps.iter().chain(&[Step::Compare, Step::Commit]).enumerate() {
        driver.step(step).map_err(|error| TestCaseError::fail(format!("step {i}, {step:?}: {error}")))?;
    }
    driver.compare_past().map_err(TestCaseError::fail)?;
    driver.step(&Step::Remount).map_err(TestCaseError::fail)?;
    driver.compare_past().map_err(TestCaseError::fail)
}

fn config(cases: u32) -> ProptestConfig {
    let cases = std::env::var("PROPTEST_CASES").ok().and_then(|cases| cases.parse().ok()).unwrap_or(cases);
    ProptestConfig { cases, failure_persistence: None, ..ProptestConfig::default() }
}

proptest! {
    #![proptest_config(config(1500))]

    #[test]
    fn a_volume_does_what_the_reference_does(steps in operations(80, false)) {
        agree(&steps, Means::AMPLE)?;
    }

    #[test]
    fn after_any_crash_the_tree_is_a_prefix_that_holds_all_that_was_synced(steps in operations(80, true)) {
        agree(&steps, Means::AMPLE)?;
    }

    #[test]
    fn the_same_without_an_intent_log(steps in operations(60, true)) {
        agree(&steps, Means::NO_LOG)?;
    }

    #[test]
    fn the_same_with_so_little_memory_and_log_that_operations_commit(steps in operations(80, true)) {
        agree(&steps, Means::SCARCE)?;
    }
}

proptest! {
    // Each case compares all that it has committed.
    #![proptest_config(config(400))]

    #[test]
    fn each_commit_that_is_kept_shows_what_the_reference_was_then(steps in operations(80, true)) {
        agree_and_remember(&steps, Means::AMPLE)?;
    }
}

/// A copy to where a block has begun already is made in two steps, and here what the first changes
/// is committed by the second.
#[test]
fn a_copy_of_which_a_crash_leaves_the_first_step() {
    let file = |name| Operation::Make { directory: 0, name, kind: Kind::File, permissions: 0 };
    let content = Operation::Write { file: 0, offset: 4076, len: 21, byte: 0, kill_privileges: false };
    let copy = Operation::Copy { from: (0, 4092), to: (1, 4092), len: 5 };
    let crash = Step::Crash { survives: 0, torn: None };
    let steps = [Step::Do(file(0)), Step::Do(content), Step::Sync, Step::Do(file(1)), Step::Do(copy), crash];
    agree(&steps, Means::SCARCE).expect("agrees");
}

/// A hole ends where a block of the source does, so that is where a step ends.
#[test]
fn a_copy_of_which_a_crash_leaves_a_hole() {
    let file = |name| Operation::Make { directory: 0, name, kind: Kind::File, permissions: 0 };
    let content = Operation::Write { file: 0, offset: 12268, len: 1, byte: 0, kill_privileges: false };
    let copy = Operation::Copy { from: (0, 4096), to: (1, 1), len: 16369 };
    let crash = Step::Crash { survives: 0, torn: None };
    let steps = [Step::Do(file(0)), Step::Do(content), Step::Sync, Step::Do(file(1)), Step::Do(copy), crash];
    agree(&steps, Means::SCARCE).expect("agrees");
}
