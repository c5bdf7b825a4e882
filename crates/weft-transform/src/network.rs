//! A network that was read and found to be right, and how it is run.

use crate::catalog;
use crate::language::{self, NetworkError};
use crate::stage::{Keeps, Shape, Stage};
use crate::stages::maps;
use std::fmt::Write;
use std::sync::Arc;

/// Stages one after the other.
#[derive(Clone, Debug)]
pub struct Network {
    stages: Vec<Placed>,
    /// Whether neighbours that only change bytes one by one are made one.
    fuses: bool,
}

/// A stage, and how it was written.
#[derive(Clone, Debug)]
struct Placed {
    text: String,
    stage: Arc<Stage>,
}

impl Network {
    /// Reads and checks the text of a network.
    pub fn parse(text: &str) -> Result<Network, NetworkError> {
        let mut shape = Shape::Unknown;
        let mut stages = Vec::new();
        for call in language::parse(text)? {
            let stage = Arc::new(catalog::build(&call)?);
            if stage.wants_text && shape == Shape::Binary {
                let message = format!("{} works on text, and what it gets is compressed", call.name.text);
                return Err(NetworkError::new(message, call.name.at));
            }
            shape = (stage.gives)(shape);
            stages.push(Placed { text: text[call.name.at..call.end()].into(), stage });
        }
        Ok(Network { stages, fuses: true })
    }

    /// The same, run with each stage by itself, for whoever measures.
    #[must_use]
    pub fn unfused(mut self) -> Network {
        self.fuses = false;
        self
    }

    /// Its stages, as they were written, with what each leaves as it was and what undoes it.
    pub fn stages(&self) -> impl Iterator<Item = (&str, Keeps, Option<String>)> {
        self.stages.iter().map(|placed| (placed.text.as_str(), placed.stage.keeps, placed.stage.inverse.clone()))
    }

    /// What undoes it, if every stage can be undone.
    pub fn inverse(&self) -> Option<Network> {
        let mut text = String::new();
        for placed in self.stages.iter().rev() {
            let separator = if text.is_empty() { "" } else { " | " };
            write!(text, "{separator}{}", placed.stage.inverse.as_ref()?).expect("a string takes all");
        }
        Network::parse(&text).ok()
    }

    /// What is run, in order.
    pub(crate) fn plan(&self) -> Vec<(String, Arc<Stage>)> {
        let mut plan: Vec<(String, Arc<Stage>)> = Vec::new();
        for placed in &self.stages {
            if let Some((name, last)) = plan.last_mut().filter(|_| self.fuses)
                && let (Some(first), Some(second)) = (&last.byte_map, &placed.stage.byte_map)
            {
                *name = format!("{name} | {}", placed.text);
                *last = Arc::new(maps::stage(first.then(second), None));
                continue;
            }
            plan.push((placed.text.clone(), placed.stage.clone()));
        }
        plan
    }
}
