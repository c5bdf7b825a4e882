//! A network that was read and found to be right, and how it is run.

use crate::catalog;
use crate::joins::Join;
use crate::language::{self, Element, NetworkError};
use crate::stage::{Keeps, Shape, Stage, Wants};
use crate::stages::expressions::Expression;
use crate::stages::maps;
use std::collections::BTreeSet;
use std::sync::Arc;

/// Stages one after the other and side by side.
#[derive(Clone, Debug)]
pub struct Network {
    parts: Vec<Part>,
    files: usize,
    modules: BTreeSet<usize>,
    gives: Shape,
    /// True if neighbours that only change bytes one by one are fused into one.
    fuses: bool,
}

/// Part of a chain.
#[derive(Clone, Debug)]
pub(crate) enum Part {
    /// A stage, and how it was written.
    Stage { text: String, stage: Arc<Stage> },
    /// Networks side by side, whose results become one.
    Join { join: Join, branches: Vec<Vec<Part>> },
    /// One of the files, counted from 0.
    File { number: usize },
}

/// A stage of a network, as [`Network::stages`] tells of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Described {
    /// Its text, as it was written.
    pub text: String,
    /// In how many parentheses it stands.
    pub depth: usize,
    /// Properties that it preserves.
    pub keeps: Keeps,
    /// Network that undoes it.
    pub inverse: Option<String>,
}

impl Network {
    /// Reads and checks the text of a network.
    pub fn parse(text: &str) -> Result<Network, NetworkError> {
        let network = Network::known(text)?;
        each(&network.parts, &mut |stage| stage.expressions.iter().try_for_each(Expression::check))?;
        Ok(network)
    }

    /// Reads the text of a network that was checked before, in little time and memory: what is
    /// wrong with its regular expressions, if anything is, is told when it runs.
    pub fn known(text: &str) -> Result<Network, NetworkError> {
        let mut network =
            Network { parts: Vec::new(), files: 0, modules: BTreeSet::new(), gives: Shape::Unknown, fuses: true };
        (network.parts, network.gives) = network.check(text, language::parse(text)?, Shape::Unknown)?;
        Ok(network)
    }

    /// The same, run with each stage by itself, for whoever measures.
    #[must_use]
    pub fn unfused(mut self) -> Network {
        self.fuses = false;
        self
    }

    /// Returns the shape of its output, as far as that is known before it runs.
    pub fn gives(&self) -> Shape {
        self.gives
    }

    /// Returns the least number of files that it needs, by the numbers it names.
    pub fn files(&self) -> usize {
        self.files
    }

    /// The files, counted from 0, that hold code which stages run. They are no part of what it
    /// reads if it names no file.
    pub fn modules(&self) -> &BTreeSet<usize> {
        &self.modules
    }

    /// True if it reads files by their numbers.
    pub fn reads_files(&self) -> bool {
        fn reads(parts: &[Part]) -> bool {
            parts.iter().any(|part| match part {
                Part::File { .. } => true,
                Part::Join { branches, .. } => branches.iter().any(|branch| reads(branch)),
                Part::Stage { .. } => false,
            })
        }
        reads(&self.parts)
    }

    /// Its stages in the order in which they were written.
    pub fn stages(&self) -> Vec<Described> {
        let mut described = Vec::new();
        describe(&self.parts, 0, &mut described);
        described
    }

    /// Returns the network that undoes it, if every stage can be undone.
    pub fn inverse(&self) -> Option<Network> {
        let undone = |part: &Part| match part {
            Part::Stage { stage, .. } => stage.inverse.clone(),
            Part::Join { .. } | Part::File { .. } => None,
        };
        let stages: Vec<String> = self.parts.iter().rev().map(undone).collect::<Option<_>>()?;
        Network::known(&stages.join(" | ")).ok()
    }

    /// Returns the properties that it preserves as a whole, if it reads one file beside
    /// [`Network::modules`].
    pub fn keeps(&self) -> Keeps {
        let mut all = Keeps { length: true, place: true };
        for part in &self.parts {
            let keeps = match part {
                Part::Stage { stage, .. } => stage.keeps,
                Part::Join { .. } | Part::File { .. } => Keeps::default(),
            };
            all = Keeps { length: all.length && keeps.length, place: all.place && keeps.place };
        }
        all
    }

    /// True if a stage of it runs code of its author, outside of this process.
    pub fn is_exported(&self) -> bool {
        any(&self.parts, &|stage| stage.is_exported)
    }

    /// True if equal input gives equal output on every machine. The output of commands and
    /// libraries depends on the machine, too.
    pub fn is_repeatable(&self) -> bool {
        !any(&self.parts, &|stage| !stage.is_repeatable)
    }

    /// True if a stage of it needs a key: its output is only for users who may use that key.
    pub fn has_keys(&self) -> bool {
        any(&self.parts, &|stage| !stage.keys.is_empty())
    }

    /// Checks that `chain` makes sense for bytes of `shape`. Returns its parts, and the shape of
    /// its results.
    fn check(&mut self, text: &str, chain: Vec<Element>, mut shape: Shape) -> Result<(Vec<Part>, Shape), NetworkError> {
        let mut parts = Vec::new();
        for element in chain {
            match element {
                Element::File { number } => {
                    self.files = (number + 1).max(self.files);
                    shape = Shape::Unknown;
                    parts.push(Part::File { number });
                }
                Element::Named(word) => {
                    let message = format!("there is no network '{}' here", word.text);
                    return Err(NetworkError::new(message, word.at));
                }
                Element::Stage(call) => {
                    let stage = catalog::build(&call)?;
                    refuse(stage.wants, shape, &call.name.text, call.name.at)?;
                    shape = (stage.gives)(shape);
                    for number in &stage.modules {
                        self.files = (number + 1).max(self.files);
                        self.modules.insert(*number);
                    }
                    parts.push(Part::Stage { text: text[call.name.at..call.end()].into(), stage: Arc::new(stage) });
                }
                Element::Join { how, branches } => {
                    let join = Join::named(&how)?;
                    let (mut checked, mut given) = (Vec::new(), Vec::new());
                    for branch in branches {
                        let (parts, gives) = self.check(text, branch, shape)?;
                        refuse(join.wants(), gives, &how.text, how.at)?;
                        checked.push(parts);
                        given.push(gives);
                    }
                    shape = join.gives(&given);
                    parts.push(Part::Join { join, branches: checked });
                }
            }
        }
        Ok((parts, shape))
    }

    /// Returns its parts, one after the other.
    pub(crate) fn parts(&self) -> &[Part] {
        &self.parts
    }

    /// The same, as it is held.
    pub(crate) fn held(&self) -> &Vec<Part> {
        &self.parts
    }

    /// Returns the parts to run, in order.
    pub(crate) fn plan(&self) -> Vec<Part> {
        if self.fuses { fused(&self.parts) } else { self.parts.clone() }
    }
}

/// Calls `check` with each stage.
fn each(parts: &[Part], check: &mut impl FnMut(&Stage) -> Result<(), NetworkError>) -> Result<(), NetworkError> {
    parts.iter().try_for_each(|part| match part {
        Part::Stage { stage, .. } => check(stage),
        Part::Join { branches, .. } => branches.iter().try_for_each(|branch| each(branch, check)),
        Part::File { .. } => Ok(()),
    })
}

fn any(parts: &[Part], is: &impl Fn(&Stage) -> bool) -> bool {
    parts.iter().any(|part| match part {
        Part::Stage { stage, .. } => is(stage),
        Part::Join { branches, .. } => branches.iter().any(|branch| any(branch, is)),
        Part::File { .. } => false,
    })
}

/// Says so if bytes of `shape` are surely not what `name` works on.
fn refuse(wants: Wants, shape: Shape, name: &str, at: usize) -> Result<(), NetworkError> {
    wants.refuses(shape).map_or(Ok(()), |why| Err(NetworkError::new(format!("{name} {why}"), at)))
}

fn describe(parts: &[Part], depth: usize, described: &mut Vec<Described>) {
    for part in parts {
        let (text, keeps, inverse) = match part {
            Part::Stage { text, stage } => (text.clone(), stage.keeps, stage.inverse.clone()),
            Part::File { number } => (format!("${}", number + 1), Keeps { length: true, place: true }, None),
            Part::Join { join, .. } => (join.to_string(), Keeps::default(), None),
        };
        described.push(Described { text, depth, keeps, inverse });
        if let Part::Join { branches, .. } = part {
            branches.iter().for_each(|branch| describe(branch, depth + 1, described));
        }
    }
}

/// The same with neighbours made one that change bytes one by one.
fn fused(parts: &[Part]) -> Vec<Part> {
    let mut plan: Vec<Part> = Vec::new();
    for part in parts {
        let next = match part {
            Part::Join { join, branches } => {
                Part::Join { join: *join, branches: branches.iter().map(|branch| fused(branch)).collect() }
            }
            other => other.clone(),
        };
        if let (Some(Part::Stage { text, stage }), Part::Stage { text: after, stage: follows }) =
            (plan.last_mut(), &next)
            && let (Some(first), Some(second)) = (&stage.byte_map, &follows.byte_map)
        {
            *text = format!("{text} | {after}");
            *stage = Arc::new(maps::stage(first.then(second), None));
            continue;
        }
        plan.push(next);
    }
    plan
}
