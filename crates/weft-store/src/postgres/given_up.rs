//! Waits for the server that nobody wants any more: whoever waited was killed.
//!
//! A commit gives up only while there is no connection: what was sent may have been done, and
//! serves others, too. Whoever commits next goes on with it.

use std::time::Duration;

/// Returns true if nobody waits any more for what this thread asks for.
pub(super) type IsGivenUp = fn() -> bool;

/// Time between two looks.
const LOOK_AGAIN: Duration = Duration::from_millis(500);

/// False: waits for a connection that others use, too, go on.
pub(super) fn never() -> bool {
    false
}

/// Ends once `is_given_up`.
pub(super) async fn given_up(is_given_up: IsGivenUp) {
    loop {
        tokio::time::sleep(LOOK_AGAIN).await;
        if is_given_up() {
            return;
        }
    }
}
