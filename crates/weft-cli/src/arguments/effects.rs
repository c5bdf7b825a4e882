//! Effects of commands on files, and on being ended early.

use super::{Blocks, Command, HistoryCommand, Net, SnapshotCommand};
use weft_store::BlockHome;

impl From<Blocks> for BlockHome {
    fn from(blocks: Blocks) -> BlockHome {
        match blocks {
            Blocks::Segments => BlockHome::Segments,
            Blocks::Database => BlockHome::Database,
        }
    }
}

impl Command {
    /// True if the files that it makes belong to a volume.
    pub fn writes_volumes(&self) -> bool {
        match self {
            Command::Init(_)
            | Command::Mount(_)
            | Command::Serve(_)
            | Command::Info(_)
            | Command::Check(_)
            | Command::Convert(_)
            | Command::Upgrade(_)
            | Command::Import(_)
            | Command::Put(_)
            | Command::Set(_)
            | Command::Compact(_)
            | Command::Defragment(_)
            | Command::Ls(_)
            | Command::Cat(_)
            | Command::Diff(_)
            | Command::Log(_)
            | Command::History(_)
            | Command::Snapshot(_)
            | Command::Restore(_)
            | Command::Undelete(_)
            | Command::Cp(_)
            | Command::Du(_)
            | Command::Gc(_)
            | Command::Send(_)
            | Command::Receive(_)
            | Command::Scrub(_) => true,
            // Files of `export` are the user's, and get the permissions that they have in the
            // volume.
            _ => false,
        }
    }

    /// True if nothing is left half done when it ends before all is printed.
    pub fn only_prints(&self) -> bool {
        match self {
            Command::Info(_)
            | Command::Du(_)
            | Command::Digest(_)
            | Command::Diff(_)
            | Command::Prove(_)
            | Command::VerifyProof(_)
            | Command::Log(_)
            | Command::Scrub(_)
            | Command::Verify(_)
            | Command::Stats(_)
            | Command::Status(_)
            | Command::Config(_)
            | Command::Run(_)
            | Command::Cat(_)
            | Command::Ls(_)
            | Command::Grep(_)
            | Command::Wc(_)
            | Command::Sum(_)
            | Command::Permute(_)
            | Command::Net(Net::List { .. })
            | Command::Stages(_)
            | Command::Completions { .. }
            | Command::Man { dir: None } => true,
            Command::Check(arguments) => !arguments.repair && !arguments.salvage,
            Command::Link(arguments) => arguments.show,
            Command::Snapshot(arguments) => match &arguments.command {
                SnapshotCommand::Diff(_) | SnapshotCommand::List(_) => true,
                SnapshotCommand::Restore(restore) => restore.told.dry_run,
                _ => false,
            },
            Command::Restore(arguments) => arguments.told.dry_run,
            Command::Cp(arguments) => arguments.dry_run,
            Command::Undelete(arguments) => arguments.list.is_some() || arguments.told.dry_run,
            Command::History(arguments) => match &arguments.command {
                None => true,
                Some(HistoryCommand::Exclude(exclude)) => exclude.list,
                Some(HistoryCommand::Set(set)) => set.dry_run,
                Some(_) => false,
            },
            _ => false,
        }
    }
}
