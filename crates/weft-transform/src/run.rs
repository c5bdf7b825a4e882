//! Running a network: whoever reads asks the last stage, which asks the one before it, up to the source.
//!
//! Nothing is asked for that nobody needs: a stage that has ended lets those before it go. What waits between two
//! stages is bounded by what one of them gives at once.

use crate::flow::{Input, Output};
use crate::network::Network;
use crate::stage::{Progress, Running, Stage, StageError};
use std::io::{self, Read};
use std::sync::Arc;
use weft_block::{Buffer, Rope, Slice};

/// Bytes read at once.
const READ_BYTES: usize = 64 << 10;

/// Where a network gets its bytes.
pub trait Source {
    /// The next bytes; none at the end.
    fn next(&mut self) -> io::Result<Option<Slice>>;
}

/// Reads from anything.
pub struct Reading<R>(pub R);

impl<R: Read> Source for Reading<R> {
    fn next(&mut self) -> io::Result<Option<Slice>> {
        let mut buffer = Buffer::any(READ_BYTES);
        loop {
            match self.0.read(&mut buffer) {
                Ok(0) => return Ok(None),
                Ok(len) => {
                    buffer.resize(len);
                    return Ok(Some(buffer.freeze().whole()));
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
    }
}

/// Why a network does not run to its end.
#[derive(Debug, thiserror::Error)]
pub enum RunError {
    /// The source cannot be read.
    #[error("cannot read: {0}")]
    Source(#[source] io::Error),
    /// A stage cannot go on.
    #[error("{stage}: {source}")]
    Stage {
        /// The stage, as it was written.
        stage: String,
        /// Why.
        source: StageError,
    },
}

/// A network that runs: what comes of it, some bytes at a time. After an error there is no more to be had.
pub struct Run<S> {
    source: S,
    nodes: Vec<Node>,
}

struct Node {
    name: String,
    running: Box<dyn Running>,
    input: Input,
    has_ended: bool,
}

impl<S: Source> Run<S> {
    /// Begins to run `network` on what `source` gives.
    pub fn start(network: &Network, source: S) -> Result<Run<S>, RunError> {
        let start = |(name, stage): (String, Arc<Stage>)| {
            let running = (stage.start)();
            let running = running.map_err(|source| RunError::Stage { stage: name.clone(), source })?;
            Ok(Node { name, running, input: Input::default(), has_ended: false })
        };
        Ok(Run { source, nodes: network.plan().into_iter().map(start).collect::<Result<_, _>>()? })
    }

    /// What comes of the last of `nodes`.
    fn pull(source: &mut S, nodes: &mut [Node]) -> Result<Option<Rope>, RunError> {
        let Some((node, before)) = nodes.split_last_mut() else {
            return Ok(source.next().map_err(RunError::Source)?.map(Rope::from));
        };
        let mut output = Output::default();
        while !node.has_ended {
            let progress = node.running.advance(&mut node.input, &mut output);
            let progress = progress.map_err(|source| RunError::Stage { stage: node.name.clone(), source })?;
            node.has_ended = progress == Progress::Ended;
            let made = output.take();
            if !made.is_empty() {
                return Ok(Some(made));
            }
            if progress == Progress::NeedsInput {
                match Run::pull(source, before)? {
                    Some(rope) => node.input.append(&rope),
                    None => node.input.end(),
                }
            }
        }
        Ok(None)
    }
}

impl<S: Source> Iterator for Run<S> {
    type Item = Result<Rope, RunError>;

    fn next(&mut self) -> Option<Result<Rope, RunError>> {
        Run::pull(&mut self.source, &mut self.nodes).transpose()
    }
}
