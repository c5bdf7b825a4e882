//! Losses of a log, and the ways out.

use std::fmt;

/// A loss of operations that were synced. Shown with its advice.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DataLoss {
    /// The reason, and what is lost.
    pub cause: String,
    /// Ways to have it back, or to go on without.
    pub advice: String,
    /// Words for what an accepted loss gives up, where the cause does not say it.
    pub cost: Option<String>,
}

impl DataLoss {
    /// A loss whose cause says all that is given up.
    pub(crate) fn new(cause: impl Into<String>, advice: impl Into<String>) -> DataLoss {
        DataLoss { cause: cause.into(), advice: advice.into(), cost: None }
    }

    /// The same that costs more than the cause says.
    pub(crate) fn costing(self, cost: impl Into<String>) -> DataLoss {
        DataLoss { cost: Some(cost.into()), ..self }
    }

    /// Describes the loss once it was accepted: with its cost, and without advice.
    pub fn given_up(&self) -> String {
        match &self.cost {
            Some(cost) => format!("{}; given up: {cost}", self.cause),
            None => self.cause.clone(),
        }
    }
}

impl fmt::Display for DataLoss {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}; {}", self.cause, self.advice)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_loss_that_is_accepted_has_its_cost_and_no_advice() {
        let lost = DataLoss::new("x is missing", "put the file back, or mount with --accept-loss, which gives that up");
        assert_eq!(
            (lost.to_string(), lost.given_up()),
            (
                "x is missing; put the file back, or mount with --accept-loss, which gives that up".into(),
                "x is missing".into()
            )
        );
        let lost = DataLoss::new("x is older", "put the files of one moment together").costing("all after commit 4");
        assert_eq!(lost.given_up(), "x is older; given up: all after commit 4");
    }
}
