//! What the program takes: one definition for parsing, help, man pages and completions.
#![expect(rustdoc::broken_intra_doc_links, reason = "brackets are how help shows what may be left out")]

mod comparing;
mod computing;
mod copies;
mod effects;
mod examples;
mod groups;
mod history;
mod mounting;
mod programs;
mod restoring;
mod serving;
mod setting;
mod signing;
mod storing;
mod watching;

pub use comparing::{Diff, Digest, Scrub, Shown};
pub use computing::{Link, Net, OnOff, OpenFile, Pipe, Run, Stages};
pub use copies::{Compact, Convert, Export, Get, Import, Put, Receive, Send, Upgrade};
pub use groups::grouped;
pub use history::{
    CreateSnapshot, DeleteSnapshot, DiffSnapshots, ExcludeHistory, History, HistoryCommand, HoldSnapshot, Keeping,
    NamedSnapshot, RenameSnapshot, SetHistory, Snapshot, SnapshotCommand,
};
pub use mounting::{Mount, Open, Umount};
pub use programs::{Cat, Grep, Ls, Permute, Sum, Wc};
pub use restoring::{Cp, Du, Gc, Restore, RestoreSnapshot, Told, Undelete};
pub use serving::{Mcp, Serve, Served, served_at, told_at};
pub use setting::{Set, Setting};
pub use signing::{Keygen, Log, Prove, Sign, Verify, VerifyProof};
pub use storing::{Defragment, Info};
pub use watching::{Config, Stats, Status, Stop, Sync};

use crate::size;
use clap::{Args, Parser, Subcommand, ValueEnum};
use std::path::PathBuf;

/// The version, and the kind of build where it is not the usual one.
const VERSION: &str = if cfg!(target_feature = "crt-static") {
    concat!(env!("CARGO_PKG_VERSION"), " (static)")
} else {
    env!("CARGO_PKG_VERSION")
};

/// A file system whose files are rows in a SQL database
#[derive(Parser)]
#[command(name = "weft", version = VERSION, max_term_width = 100)]
pub struct Arguments {
    #[command(subcommand)]
    pub command: Command,
}

#[derive(Subcommand)]
pub enum Command {
    /// Make a volume
    ///
    /// Exit code 0: it is made. 1: it could not be. 2: wrong usage.
    #[command(after_long_help = examples::INIT)]
    Init(Init),
    /// Mount a volume
    ///
    /// Returns when the volume can be used; a daemon goes on in the background. Exit code 0: it is
    /// mounted. 1: it could not be, or a daemon in the foreground (--foreground) ended badly. 2:
    /// wrong usage. 3, in the foreground: all is committed, but waits in the write-ahead log for
    /// room in the database.
    #[command(after_long_help = examples::MOUNT)]
    Mount(Mount),
    /// Serve a volume without mounting it here: to other machines, over NFS, or to programs
    ///
    /// Ends, after all is committed, at SIGTERM or SIGINT. SIGHUP has it open its log again, in the
    /// background; in the foreground of a terminal it ends it, too. Exit code 0: a signal ended it,
    /// or it serves in the background. 1: it could not serve, or not commit all. 2: wrong usage. 3:
    /// as of 'weft mount'.
    #[command(after_long_help = examples::SERVE)]
    Serve(Serve),
    /// Let an assistant read a volume and its past, by the Model Context Protocol
    ///
    /// Speaks the protocol on the standard input and output, as programs that use such servers
    /// start them. Its tools list, read, search, compare and prove, with the rights of this user
    /// and for this volume alone; they change nothing unless --allow-changes is given. Exit code 0:
    /// the other side has closed the standard input. 1: it could not serve. 2: wrong usage.
    #[command(after_long_help = examples::MCP)]
    Mcp(Mcp),
    /// Unmount a volume, and wait until all of it is committed
    ///
    /// Exit code 0: it is unmounted, and all is committed. 1: it stays mounted, or something may be
    /// missing, which is told. 2: wrong usage.
    #[command(after_long_help = examples::UMOUNT)]
    Umount(Umount),
    /// Tell a volume's size, counts and options, as of its last commit
    ///
    /// After a crash it says how many operations wait in the intent log, or that they are lost, and
    /// of a volume with a missing segment file that it is missing.
    /// Exit code 0: it was told. 1: it could not be.
    #[command(after_long_help = examples::INFO)]
    Info(Info),
    /// Change options of a volume, mounted or not: the most that it may store and hold
    ///
    /// All beyond a new limit stays, and nothing more fits until enough of it is gone.
    /// 'weft history set' changes what is kept of the past, and 'weft convert' the home of blocks.
    /// Exit code 0: it is set. 1: it could not be. 2: wrong usage.
    #[command(after_long_help = examples::SET)]
    Set(Set),
    /// Look for damage in a volume that is not mounted, and repair it if asked to
    ///
    /// 'weft scrub' looks at one that is mounted. One in PostgreSQL may be mounted while it is
    /// checked, but not while it is repaired. Exit code 0: the volume is whole. 1: damage was
    /// found, repaired or not. 2: the check could not be made. With --salvage: 0: all was brought.
    /// 1: something is missing, or nothing proves all of it. 2: nothing was brought. 129, 130 or
    /// 143: a signal ended it, and what was made is removed.
    #[command(after_long_help = examples::CHECK)]
    Check(Check),
    /// Read all of a volume, mounted or not, and verify it
    ///
    /// Tells damaged files by path and byte range. A mount commits first, so that what was just
    /// written is read, too. Exit code 0: there are none. 1: there are. 2:
    /// the volume could not be read.
    #[command(after_long_help = examples::SCRUB)]
    Scrub(Scrub),
    /// Write a volume anew with the other home for its blocks
    ///
    /// Every block is verified on the way. The new volume is called NEW.unfinished until it is
    /// whole and on the disk; a signal that ends the conversion removes it. Exit code 0: done. 1:
    /// the volume is damaged, what is damaged was told, and no new one was made. 2: it could not be
    /// done. 129, 130 or 143: a signal ended it.
    #[command(after_long_help = examples::CONVERT)]
    Convert(Convert),
    /// Give back the space that a volume's database keeps of rows that went
    ///
    /// SQLite keeps such space for rows that come; blocks in segment files give theirs back by
    /// themselves. The database is written anew, in a file beside it that takes its place once it
    /// is whole and on the disk: that takes as much free space as the rows do. Exit code 0: it is
    /// done. 1: it could not be done, and the volume is as it was. 2: wrong usage. 129, 130 or 143:
    /// a signal ended it, and the volume is as it was.
    #[command(after_long_help = examples::COMPACT)]
    Compact(Compact),
    /// Store files in one piece again that small writes have fragmented
    ///
    /// A small write into a long block is stored as a small block of its own, so that it costs
    /// little. This merges such blocks, of a file or of all files below a directory, mounted or
    /// not; of a volume that 'weft serve' serves it takes one file. It changes nothing of the
    /// files: neither what they hold nor any time, and history has no version of it. But commits
    /// that history keeps go on having the small blocks: as long as it keeps them, what is merged
    /// takes its space twice. The volume's owner may do so, and whoever mounted it. 'weft info
    /// FILE' tells the fragments. Exit code 0: it is done. 1: it could not be done; what was merged
    /// stays so. 2: wrong usage. 129, 130 or 143: a signal ended it; what was merged stays so.
    #[command(after_long_help = examples::DEFRAGMENT)]
    Defragment(Defragment),
    /// Bring a volume of an older format to the one that this program reads
    ///
    /// In one transaction: interrupted, it leaves the volume as it was. The program that made the
    /// volume no longer opens it then. A volume of that format already stays as it is. Exit code 0:
    /// it has that format. 1: it could not be brought to it.
    #[command(after_long_help = examples::UPGRADE)]
    Upgrade(Upgrade),
    /// Copy a file or a directory with all in it within a volume, mounted or not, at once
    ///
    /// The copy shares the blocks of what is copied, so that no data is read or written, and comes
    /// in one step: all of it, or nothing. The volume has to keep history; in the mount of one that
    /// keeps none, 'cp --reflink' shares blocks of files. Exit code 0: it is copied. 1: it could
    /// not be. 2: wrong usage.
    #[command(after_long_help = examples::CP)]
    Cp(Cp),
    /// Copy a directory into a volume that is not mounted
    ///
    /// Failures are named on standard error and counted, and the rest is copied. Files have their
    /// names in the volume only when they are whole. After an interruption the same command goes
    /// on: files that are there with the same size, time of change and bytes stay. Exit code 0: all
    /// was copied. 1: what was named was not, or not as it was. 2: it could not be done, or ended
    /// early. 129, 130 or 143: a signal ended it; the second one ends it at once.
    #[command(after_long_help = examples::IMPORT)]
    Import(Import),
    /// Copy from a volume that is not mounted into a new directory
    ///
    /// Failures are named on standard error and counted, and the rest is copied. Files have their
    /// names only when they are whole and on the disk; nothing that is there is replaced. Exit code
    /// 0: all was copied. 1: what was named was not, or not as it was. 2: it could not be done, or
    /// ended early, as on a full disk. 129, 130 or 143: a signal ended it; the second one ends it
    /// at once.
    #[command(after_long_help = examples::EXPORT)]
    Export(Export),
    /// Copy files and directories, or the standard input, into a volume that is not mounted
    ///
    /// Each comes into the directory that PATH names, under its own name and with all in it, as
    /// with 'weft import', which copies what is in a directory. Exit codes are those of 'weft
    /// import'. Exit code 0: all was copied. 1: what was named was not, or not as it was. 2: it
    /// could not be done, or ended early. 129, 130 or 143: a signal ended it.
    #[command(after_long_help = examples::PUT)]
    Put(Put),
    /// Copy files and directories from a volume, mounted or not, into a directory that is there
    ///
    /// Each comes there under its own name and with all in it, as with 'weft export', which copies
    /// what is in a directory; nothing that is there is replaced. Exit code 0: all was copied. 1:
    /// what was named was not, or not as it was. 2: it could not be done, or ended early. 129, 130
    /// or 143: a signal ended it.
    #[command(after_long_help = examples::GET)]
    Get(Get),
    /// Write a volume, as of a commit, to the standard output as a stream; or what changed
    ///
    /// A stream has all that the volume holds, as 'weft receive' makes it again on either engine.
    /// A volume that keeps history is sent while it is mounted and busy; one that keeps none must
    /// not be mounted. Exit code 0: all was sent. 1: something is damaged. 2: it could not be sent.
    /// 129, 130 or 143: a signal ended it. A stream that lacks its end is never received.
    #[command(after_long_help = examples::SEND)]
    Send(Send),
    /// Make a volume of a stream that 'weft send' wrote; or bring changes to one
    ///
    /// Reads the standard input. The stream is verified, and what it makes has the digest that was
    /// sent, or nothing is received. A new volume cannot be used before it is whole and on the
    /// disk: in files it is called VOLUME.unfinished until then. When a stream ends early, receive
    /// the same one again, or one that is sent anew of the same commit, and it goes on. Changes are
    /// one commit for each moment that is sent, and fit the volume alone that has the commit which
    /// they begin from as its last one. Of a stream of several moments that ends early, those that
    /// came whole stay, and the same stream brings the others. Exit code 0: received. 1: the stream
    /// is damaged or ends early. 2: it could not be received. 129, 130 or 143: a signal ended it.
    #[command(after_long_help = examples::RECEIVE)]
    Receive(Receive),
    /// Print the digests of files and directories, or verify a list of them
    ///
    /// A file's digest is BLAKE3 of its content, as b3sum prints it. A directory's covers the names
    /// in it with kinds, permissions and digests of what they name; two directories of one digest
    /// are the same in that. Works on any file system, and inside a volume that is not mounted.
    /// Exit code 0: all could be read, and all that was to be verified is right. 1: something is
    /// damaged, or missing, or not what a list says. 2: something could not be read, such as a
    /// damaged file of a mount, and all else is right.
    #[command(after_long_help = examples::DIGEST)]
    Digest(Digest),
    /// Tell where two trees differ: in names, kinds, permissions, contents
    ///
    /// Prints a line for each difference, 'added' and 'deleted' as seen from FIRST. With --at: what
    /// has changed in a tree, or in a file, from one moment of the past to another one or to now.
    /// Trees whose digests are the same are not read. Exit code 0: there is none. 1: there are. 2:
    /// one could not be read.
    #[command(after_long_help = examples::DIFF)]
    Diff(Diff),
    /// Print a proof that a directory holds something with its digest, for whoever knows the
    /// directory's digest alone
    ///
    /// Exit code 0: the proof is printed. 1: something on the way is damaged. 2: it could not be
    /// proved.
    #[command(after_long_help = examples::PROVE)]
    Prove(Prove),
    /// Verify a proof that 'weft prove' printed
    ///
    /// Tells the digest of the directory it is about, and what that holds. Exit code 0: it is a
    /// proof, of what --root and --file say if they are given. 1: it is not. 2: a file could not be
    /// read.
    #[command(after_long_help = examples::PROVE)]
    VerifyProof(VerifyProof),
    /// List a volume's commits, or the changes of a file that its history keeps, the last first
    ///
    /// Commits are listed with the digests of the trees they left. Each commit names the one before
    /// it by its digest. A file or directory is listed with its size, its digest and the kinds of
    /// each change; it is followed by its inode, and its former names are told. A path that is gone
    /// stands for what had it last. Exit code 0: all commits that are listed follow from those
    /// before. 1: one does not, or nothing could be read.
    #[command(after_long_help = examples::LOG)]
    Log(Log),
    /// Tell what a volume keeps of its past and what that costs, or set the rule by which it keeps
    /// it
    ///
    /// The costs are rows of versions, and bytes of content that the past alone has: those that
    /// come back as history is given up, and those that snapshots hold.
    ///
    /// Commits of the past are read with --at, by 'weft cat', 'weft diff', 'weft mount', 'weft
    /// serve', 'weft export', 'weft digest' and 'weft prove', also while the volume is mounted.
    /// Exit code 0: it was told, or set. 1: it could not be. 2: wrong usage.
    #[command(after_long_help = examples::HISTORY)]
    History(History),
    /// Make, list, compare, hold and delete snapshots of a volume: moments of it that stay
    ///
    /// Also while it is mounted and busy. A volume has snapshots while it keeps history ('weft
    /// history'). Exit code 0: it was done. 1: it could not be. 2: wrong usage.
    #[command(after_long_help = examples::SNAPSHOT)]
    Snapshot(Snapshot),
    /// Make a file or a directory with all in it what it was at a moment of the past
    ///
    /// Also while the volume is mounted and busy. All of it happens at once, whatever fails: there
    /// is no moment, and no crash, that leaves a part. The daemon of a mount does it also if this
    /// command is interrupted. What is there now and was not then is removed; history keeps it.
    /// Data is neither read nor written. Exit code 0: it is restored, or told. 1: it could not be,
    /// and nothing has changed. 2: wrong usage.
    #[command(after_long_help = examples::RESTORE)]
    Restore(Restore),
    /// Bring back a file or a directory that was deleted, or list those that can be
    ///
    /// As 'weft restore' does, where nothing is now. With --list: what could be brought back. Exit
    /// code 0: it is there again, or told. 1: it could not be brought back. 2: wrong usage.
    #[command(after_long_help = examples::UNDELETE)]
    Undelete(Undelete),
    /// Tell the bytes that a directory takes, and the names in it; with --history also those that
    /// only the past of them has
    ///
    /// A block counts once, for one of the files that have it. Those who take most come first; with
    /// --history, those whose past does. What was deleted counts where it had a name last. What
    /// programs wrote is committed first. Exit code 0: it was told. 1: it could not be. 2: wrong
    /// usage.
    #[command(after_long_help = examples::DU)]
    Du(Du),
    /// Remove now all of the past that no kept commit has, and give back its space
    ///
    /// A mount does that by and by. This makes it happen at once, in steps between which programs
    /// go on; interrupted, it has done a part. Exit code 0: nothing is left. 1: it failed, or no
    /// history is kept. 2: wrong usage.
    #[command(after_long_help = examples::GC)]
    Gc(Gc),
    /// Make a pair of keys to sign with; they are minisign's
    ///
    /// Exit code 0: they are made. 1: they could not be.
    #[command(after_long_help = examples::SIGN)]
    Keygen(Keygen),
    /// Sign a volume's last commit, and with it all that the volume holds
    ///
    /// Writes what is signed to a file and the signature beside it, with the ending .minisig;
    /// 'minisign -V' verifies them, too. Exit code 0: it is signed. 1: the volume is damaged. 2: it
    /// could not be signed.
    #[command(after_long_help = examples::SIGN)]
    Sign(Sign),
    /// Verify what 'weft sign' wrote, and that a volume holds exactly that
    ///
    /// Without --read the digests that the volume keeps are compared, and content is not read. With
    /// --at: that it held exactly that at a moment of the past, such as the commit signed. Exit
    /// code 0: all is so. 1: it was not signed with this key, or the volume holds something else or
    /// is damaged. 2: it could not be verified.
    #[command(after_long_help = examples::SIGN)]
    Verify(Verify),
    /// Tell the counters and cache hit rates of a volume that is mounted or served
    ///
    /// Any user is told those of a mount, without other users' parts; only its user those of a
    /// server. Exit code 0: they were told. 1: they could not be.
    #[command(after_long_help = examples::STATS)]
    Stats(Stats),
    /// List the volumes that daemons of this user have mounted or serve, a line each
    ///
    /// Given a volume, it prints the line of that one alone. Each daemon is asked over its control
    /// socket, and waited for two seconds at most. Exit code 0: all answered. 1: one did not, or a
    /// mount has lost its daemon, the control sockets cannot be looked at, or there is no such
    /// volume. A user without a place for control sockets is told the mounts alone.
    #[command(after_long_help = examples::STATUS)]
    Status(Status),
    /// Tell what files and variables of configuration say, and where each value is from
    ///
    /// Options of the command line count first, then variables (WEFT_MOUNT_DIRTY_MAX), then the
    /// user's file, then /etc/weft/weft.toml. Exit code 0: it was told. 2: a file or a variable
    /// cannot be used.
    #[command(after_long_help = examples::CONFIG)]
    Config(Config),
    /// End the server of a volume (weft serve), and wait until it has committed all
    ///
    /// A mount ends by 'weft umount'. Exit code 0: it has ended well. 1: it has not.
    #[command(after_long_help = examples::STOP)]
    Stop(Stop),
    /// Have a volume that is mounted or served commit all changes now
    ///
    /// Returns once they are durable. Without the right to ask the daemon for a commit, changes of
    /// a mount become durable as by fsync. Exit code 0: they are durable. 1: they are not, or
    /// nobody can tell.
    #[command(after_long_help = examples::SYNC)]
    Sync(Sync),
    /// Make a transformation link: a file whose content is what a network of stages makes of other
    /// files
    ///
    /// It follows its targets as they change, and is as readable as they are. It can be written
    /// where each stage can be undone: at once if each keeps every byte in its place, else as a
    /// whole when the writer closes it. Works in a mounted volume, and with VOLUME:PATH in one that
    /// is not. Exit code 0: it is made, shown or confirmed. 1: it could not be. 2: the network or
    /// the usage is wrong.
    #[command(after_long_help = examples::LINK)]
    Link(Link),
    /// Transform bytes by a network of stages
    ///
    /// A network is stages with arguments, joined by '|', such as 'zstd -d | grep ERROR | head
    /// -100'; 'weft stages' lists them. They run in this process and share memory from one to the
    /// next. Exit code 0: all was written. 1: otherwise. 2: the network is wrong.
    #[command(after_long_help = examples::RUN)]
    Run(Run),
    /// Join stages of networks and ordinary commands, such as 'permute "mountainsunlight" | wc'
    ///
    /// Stages run in this process and hand bytes on by reference; commands that are no stages can
    /// stand before and after them, and run in a shell. 'cat FILE...' at the beginning names files
    /// to read. Exit code 0: all went well. 1: something failed, which is told.
    #[command(after_long_help = examples::PIPE)]
    Pipe(Pipe),
    /// Print files one after the other, as cat(1) does
    ///
    /// Exit code 0: all was printed. 1: a file could not be read.
    #[command(after_long_help = examples::CAT)]
    Cat(Cat),
    /// List what is in a directory of a volume, mounted or not, now or at a moment of the past
    ///
    /// A volume that is mounted commits first. Exit code 0: all was listed. 1: something could not
    /// be.
    #[command(after_long_help = examples::LS)]
    Ls(Ls),
    /// Print lines in which an expression finds something, as grep(1) does
    ///
    /// Expressions are those of the regex crate, much as grep -E has them, and mean UTF-8. Exit
    /// code 0: something was found. 1: nothing was. 2: a file could not be read, or the expression
    /// makes no sense.
    #[command(disable_help_flag = true, after_long_help = examples::GREP)]
    Grep(Grep),
    /// Count lines, words and bytes, as wc(1) does
    ///
    /// Words are what lies between white space of POSIX's locale, whatever bytes they have. Exit
    /// code 0: all was counted. 1: a file could not be read.
    #[command(after_long_help = examples::WC)]
    Wc(Wc),
    /// Print checksums of 16 bits and numbers of blocks, as sum(1) does
    ///
    /// Exit code 0: all was read. 1: a file could not be read.
    #[command(after_long_help = examples::SUM)]
    Sum(Sum),
    /// Print all orders of the parts of a text, one after the other, without anything between
    ///
    /// Exit code 0: all were printed. 1: they could not be. 2: the text or the width is wrong.
    #[command(after_long_help = examples::PERMUTE)]
    Permute(Permute),
    /// Name networks, in a volume, for use in others as '@name'; or push them onto files that are
    /// in use
    ///
    /// A link is made of what the names stand for then; defining one anew changes no link. Works in
    /// a mounted volume, and in one that is not. What is pushed stands between a file and those who
    /// use it until it is popped, or the volume is unmounted. Exit code 0: done. 1: it could not
    /// be. 2: the network or the usage is wrong.
    #[command(subcommand, after_long_help = examples::NET)]
    Net(Net),
    /// List the stages that networks are made of, or tell exactly what one does
    ///
    /// Exit code 0: they were told. 1: there is no stage of that name.
    #[command(after_long_help = examples::STAGES)]
    Stages(Stages),
    /// Print a completion script
    ///
    /// Exit code 0: it is printed.
    #[command(after_long_help = examples::COMPLETIONS)]
    Completions {
        /// For this shell
        shell: clap_complete::Shell,
    },
    /// Print the manual page as man(1) reads it ('weft man | man -l -'), or write all of them
    ///
    /// Exit code 0: done. 1: they could not be written.
    #[command(after_long_help = examples::MAN)]
    Man {
        /// Write all pages below this directory, in man1, man7 and man8
        #[arg(long, value_name = "DIR")]
        dir: Option<PathBuf>,
    },
}

/// Users to whom something is permitted.
#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Whose {
    /// Nobody's
    Nobody,
    /// Those of the super-user
    Root,
    /// Everybody's
    Everybody,
}

/// Users whose links work.
#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum LinkOwners {
    /// Nobody's
    Nobody,
    /// Those of the super-user and of the user who mounts or serves the volume
    Own,
    /// Everybody's
    Everybody,
}

/// Home of blocks.
#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Blocks {
    /// In append-only files beside the database: the volume is a directory
    Segments,
    /// In the database: the volume is one portable file
    Database,
}

/// Parses how many are to be listed at most.
fn limit(text: &str) -> Result<usize, String> {
    text.parse().map_err(|_| format!("'{text}' is not a number"))
}

/// Parses a number of seconds.
fn seconds(text: &str) -> Result<u64, String> {
    text.parse().map_err(|_| format!("'{text}' is not a number of seconds"))
}

/// From which byte of a file on blocks lie in a table of its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Layout(pub Option<u64>);

/// Bytes of a file that lie in the common table of a hybrid layout, if not said.
const HYBRID_FROM: u64 = 1 << 20;

fn layout(text: &str) -> Result<Layout, String> {
    Ok(Layout(match text.split_once('=') {
        None if text == "single" => None,
        None if text == "per-file" => Some(0),
        None if text == "hybrid" => Some(HYBRID_FROM),
        Some(("hybrid", size)) => Some(size::parse(size)?),
        _ => return Err("say single, per-file, hybrid or hybrid=SIZE".into()),
    }))
}

#[derive(Args)]
pub struct Init {
    /// The volume to make: nothing, or an empty directory, may be there; or
    /// postgres://[USER@][HOST][:PORT]/DATABASE[?schema=NAME]
    pub volume: PathBuf,
    /// Home of blocks [default: segments, or the database for a volume in PostgreSQL]
    #[arg(long, value_enum)]
    pub blocks: Option<Blocks>,
    /// Tables that blocks lie in, in PostgreSQL: single, per-file, or hybrid[=SIZE]
    ///
    /// single: one table for all. per-file: each file's blocks in a table of its own, which goes
    /// with the file. hybrid: the same for what lies past the first SIZE bytes of a file (1M if not
    /// said). One commit uses tables of at most 256 files; what others write in it lies in the
    /// common table.
    #[arg(long, value_parser = layout, default_value = "single", value_name = "LAYOUT")]
    pub layout: Layout,
    /// Bytes in a block: a power of two from 4K to 4M
    #[arg(long, value_parser = size::parse, default_value = "64K", value_name = "SIZE")]
    pub block_size: u64,
    /// Files up to this size lie in their inode's row
    #[arg(long, value_parser = size::parse, default_value = "4K", value_name = "SIZE")]
    pub inline: u64,
    /// Most bytes the volume may store
    #[arg(long, value_parser = size::parse_some, value_name = "SIZE")]
    pub size_max: Option<u64>,
    /// Most files, directories and others the volume may hold
    #[arg(long, value_name = "COUNT", value_parser = clap::value_parser!(u64).range(1..))]
    pub inodes_max: Option<u64>,
    /// Keep no digests of files and directories
    #[arg(long)]
    pub no_digests: bool,
    /// Keep earlier commits by this rule, or none with 'off'. 'weft history set' changes it
    #[arg(long, value_name = "RULE", default_value_t)]
    pub history: Keeping,
    /// Those who may read the past where its rights let them: all, the owner of each file, or root
    #[arg(long, value_name = "WHOM", value_parser = history::readers)]
    pub history_for: Option<weft_store::HistoryFor>,
    /// As JSON
    #[arg(long)]
    pub json: bool,
}

#[derive(Args)]
pub struct Check {
    /// The volume, not mounted; one in PostgreSQL may be, unless it is repaired
    pub volume: PathBuf,
    /// Repair what can be: counts are set right, what no name leads to moves to lost+found,
    /// directories whose rows are gone are made anew with their entries, for root alone
    #[arg(long)]
    pub repair: bool,
    /// Give up what damaged rows and rows that are gone describe, so that the rest can be repaired:
    /// blocks become zeros, files are made of the blocks that are there, or of content that a
    /// digest proves, for root alone, names of nothing go
    #[arg(long, requires = "repair")]
    pub discard: bool,
    /// Read all data too, and compare it with its digests
    #[arg(long)]
    pub read_data: bool,
    /// Of a volume whose database is broken: bring what can be read, verified, to a new volume
    #[arg(long, requires = "new", conflicts_with_all = ["repair", "read_data"])]
    pub salvage: bool,
    /// With --salvage: the new volume
    #[arg(requires = "salvage")]
    pub new: Option<PathBuf>,
    /// As JSON
    #[arg(long)]
    pub json: bool,
}
