//! Definition of a stage: its properties, known before anything runs, and its work when it runs.

use crate::flow::{Input, Output};
use crate::source::Sources;
use crate::stages::expressions::Expression;
use crate::stages::maps::ByteMap;
use std::fmt;
use std::io;
use std::time::Duration;

/// Shape of bytes, as far as that is known before any are read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Shape {
    /// Nobody knows: what a file holds, or what was compressed.
    Unknown,
    /// Lines of text.
    Text,
    /// Lines of text that are a JSON value each.
    Records,
    /// Lines of text that are surely none: digests, base64.
    Encoded,
    /// Surely no text: compressed.
    Binary,
}

impl Shape {
    /// Returns the shape of whole lines of it, some of them or in another order.
    pub(crate) fn lines(self) -> Shape {
        match self {
            Shape::Records | Shape::Encoded => self,
            Shape::Unknown | Shape::Text | Shape::Binary => Shape::Text,
        }
    }

    /// In words.
    pub fn name(self) -> &'static str {
        match self {
            Shape::Unknown => "bytes",
            Shape::Text | Shape::Encoded => "lines",
            Shape::Records => "records",
            Shape::Binary => "compressed bytes",
        }
    }
}

/// Kind of input that a stage can work on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Wants {
    /// Any bytes.
    Bytes,
    /// Lines of text.
    Lines,
    /// Lines of JSON.
    Records,
}

impl Wants {
    /// Returns the reason why bytes of `shape` are surely not that.
    pub(crate) fn refuses(self, shape: Shape) -> Option<&'static str> {
        match (self, shape) {
            (Wants::Lines, Shape::Binary) => Some("works on text, and what it gets is compressed"),
            (Wants::Records, Shape::Binary) => Some("works on lines of JSON, and what it gets is compressed"),
            (Wants::Records, Shape::Encoded) => Some("works on lines of JSON, and what it gets is a digest or encoded"),
            _ => None,
        }
    }
}

/// Properties of its input that a stage preserves, so that more can be done with its results than
/// to read them from front to back.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Keeps {
    /// There are as many bytes as before.
    pub length: bool,
    /// Each byte follows from the one at the same place alone, so that any part can be had without
    /// the rest.
    pub place: bool,
}

/// A stage of a network, with its arguments: what it does is known and checked, nothing runs yet.
pub(crate) struct Stage {
    /// Input that it works on: anything that is surely something else is refused before it is read.
    pub(crate) wants: Wants,
    /// Shape of its output for input of a shape.
    pub(crate) gives: fn(Shape) -> Shape,
    /// Properties that it preserves.
    pub(crate) keeps: Keeps,
    /// Text of the network that turns its results back into its input.
    pub(crate) inverse: Option<String>,
    /// Change to each byte, if that is all it does.
    pub(crate) byte_map: Option<ByteMap>,
    /// True if it works so hard that handing its results over from a thread of its own pays.
    pub(crate) is_heavy: bool,
    /// True if it runs untrusted code outside of this process. Permissions say who may use such
    /// stages.
    pub(crate) is_exported: bool,
    /// True if equal input gives equal output on every machine.
    pub(crate) is_repeatable: bool,
    /// The files, counted from 0, that hold code which it runs.
    pub(crate) modules: Vec<usize>,
    /// The keys that it needs, by name.
    pub(crate) keys: Vec<String>,
    /// The regular expressions that it compiles when it begins.
    pub(crate) expressions: Vec<Expression>,
    /// Begins to run.
    pub(crate) start: Box<Start>,
}

/// Function that begins to run a stage; it may read files.
pub(crate) type Start = dyn Fn(&mut dyn Sources) -> Result<Box<dyn Running>, StageError> + Send + Sync;

impl Stage {
    /// One that begins so, and of which nothing more is known.
    pub(crate) fn new<R: Running + 'static>(start: impl Fn() -> R + Send + Sync + 'static) -> Stage {
        Stage::reading(move |_| Ok(start()))
    }

    /// The same of one that reads files before it begins, or may fail to.
    pub(crate) fn reading<R: Running + 'static>(
        start: impl Fn(&mut dyn Sources) -> Result<R, StageError> + Send + Sync + 'static,
    ) -> Stage {
        Stage {
            wants: Wants::Bytes,
            gives: |_| Shape::Unknown,
            keeps: Keeps::default(),
            inverse: None,
            byte_map: None,
            is_heavy: false,
            is_exported: false,
            is_repeatable: true,
            modules: Vec::new(),
            keys: Vec::new(),
            expressions: Vec::new(),
            start: Box::new(move |sources| Ok(Box::new(start(sources)?))),
        }
    }

    /// One that makes text of text.
    pub(crate) fn of_text<R: Running + 'static>(start: impl Fn() -> R + Send + Sync + 'static) -> Stage {
        Stage { wants: Wants::Lines, gives: |_| Shape::Text, ..Stage::new(start) }
    }

    /// One that gives lines of those that it gets, as they are.
    pub(crate) fn of_lines<R: Running + 'static>(start: impl Fn() -> R + Send + Sync + 'static) -> Stage {
        Stage { gives: Shape::lines, ..Stage::of_text(start) }
    }

    /// One that makes text of lines of JSON.
    pub(crate) fn of_records<R: Running + 'static>(start: impl Fn() -> R + Send + Sync + 'static) -> Stage {
        Stage { wants: Wants::Records, ..Stage::of_text(start) }
    }
}

impl fmt::Debug for Stage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Stage").field("keeps", &self.keeps).field("inverse", &self.inverse).finish_non_exhaustive()
    }
}

/// Next need of a stage that runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Progress {
    /// More input; all there was has been taken.
    NeedsInput,
    /// Room: its output is to be taken away.
    HasMore,
    /// Nothing: it has given all it ever will, whatever else may come.
    Ended,
}

/// A stage that runs.
pub(crate) trait Running: Send {
    /// Takes from `input` and gives to `output`, until one is empty, the other full, or all is
    /// done.
    fn advance(&mut self, input: &mut Input, output: &mut Output) -> Result<Progress, StageError>;
}

/// Reason why a stage cannot go on.
#[derive(Debug, thiserror::Error)]
pub enum StageError {
    /// Its input is nothing that it can work on.
    #[error("{0}")]
    Data(String),
    /// It has neither taken nor given anything for so long.
    #[error("it has done nothing for {} seconds", .0.as_secs())]
    Idle(Duration),
    /// So much is running that it cannot begin now.
    #[error("{0}")]
    Busy(String),
    /// The process that did its work is gone, or cannot be used; another may do it.
    #[error("{0}")]
    Lost(String),
    /// Data that has to lie in memory does not fit there.
    #[error("what lies in memory, such as long lines, takes more of it than networks may have now")]
    Memory,
    /// Nobody waits for it any more; it can go on when somebody does again.
    #[error("nobody waits for it any more")]
    Paused,
    /// The same, and it cannot go on.
    #[error("nobody waits for it any more")]
    Stopped,
    /// A file that it takes cannot be read.
    #[error("cannot read: {0}")]
    Source(#[source] io::Error),
    /// It could not keep what it must.
    #[error("cannot use a temporary file: {0}")]
    Temporary(#[from] io::Error),
}

impl StageError {
    pub(crate) fn data(what: impl Into<String>) -> StageError {
        StageError::Data(what.into())
    }
}
