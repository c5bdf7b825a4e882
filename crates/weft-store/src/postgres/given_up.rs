//! Waits for the server that nobody wants any more: whoever waited was killed.
//!
//! Only readers give up. A commit serves others, too, and goes on for as long as patience lasts.

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
