//! Losses that are accepted, in words.

/// Beginnings of the advice at the end of a description of a loss.
const ADVICE: [&str; 3] = ["put the file", "put back a copy", "restore the table"];

/// Returns the description of a loss that was accepted: without the advice, and with the cost that
/// the advice names.
pub fn given_up(lost: &str) -> String {
    let starts = ADVICE.iter().filter_map(|advice| lost.find(&format!("; {advice}")));
    let Some((what, advice)) = starts.min().and_then(|at| lost.split_at_checked(at)) else { return lost.into() };
    match advice.split_once("gives up ") {
        Some((_, cost)) => format!("{what}; given up: {cost}"),
        None => what.into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_loss_that_is_accepted_has_its_cost_and_no_advice() {
        for (lost, told) in [
            ("segment file x is missing", "segment file x is missing"),
            ("x is missing; put the file back, or mount with --accept-loss, which gives that up", "x is missing"),
            (
                "x is older; put the files of one moment together; a mount with --accept-loss gives up what came after \
                 commit 4",
                "x is older; given up: what came after commit 4",
            ),
        ] {
            assert_eq!(given_up(lost), told);
        }
    }
}
