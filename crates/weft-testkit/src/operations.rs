//! Generated operations. Indices are taken modulo what is there, so that every operation means
//! something and sequences shrink.

use proptest::prelude::*;
use weft_store::ErrorKind as StoreErrorKind;
use weft_vfs::{AllocateMode, Kind, RenameMode};

/// An operation of the file system.
#[derive(Clone, Debug)]
#[allow(missing_docs, reason = "named like the operations")]
pub enum Operation {
    Make { directory: usize, name: usize, kind: Kind, permissions: u32 },
    MakeUnnamed { directory: usize, permissions: u32 },
    Hold { node: usize },
    Release { node: usize },
    Symlink { directory: usize, name: usize, target: u8 },
    Link { node: usize, directory: usize, name: usize },
    Unlink { directory: usize, name: usize },
    RemoveDirectory { directory: usize, name: usize },
    Rename { from: (usize, usize), to: (usize, usize), mode: RenameMode },
    Whiteout { from: (usize, usize), to: (usize, usize), mode: RenameMode },
    Write { file: usize, offset: usize, len: usize, byte: u8, kill_privileges: bool },
    Read { file: usize, offset: usize, len: usize },
    Resize { file: usize, size: usize },
    Allocate { file: usize, offset: usize, len: usize, mode: AllocateMode },
    Copy { from: (usize, usize), to: (usize, usize), len: usize },
    Chmod { node: usize, permissions: u32 },
    Chown { node: usize, uid: Option<u32>, gid: Option<u32> },
    SetTimes { node: usize, atime: Option<i64>, mtime: Option<i64> },
    SetXattr { node: usize, name: usize, value: u8 },
    RemoveXattr { node: usize, name: usize },
}

/// An operation, or something that happens to the volume.
#[derive(Clone, Debug)]
pub enum Step {
    /// An operation.
    Do(Operation),
    /// fsync.
    Sync,
    /// A commit as the background makes it.
    Commit,
    /// Everything is compared with the model.
    Compare,
    /// Closed and opened again.
    Remount,
    /// The machine loses power; of the commits not yet durable this share survives.
    Crash {
        /// Out of 255.
        survives: u8,
        /// An append to the intent log was under way; so much of it, out of 255, was written.
        torn: Option<u8>,
    },
    /// Calls of the store fail, after some that do not.
    Fail {
        /// Number of calls that succeed.
        after: u32,
        /// Number of calls that fail.
        count: u32,
        /// The error that they return.
        kind: StoreErrorKind,
    },
}

/// Offsets near what matters: block boundaries, the inline threshold, small ones.
fn offset() -> impl Strategy<Value = usize> {
    prop_oneof![
        0usize..200,
        (0usize..5, 0usize..40).prop_map(|(block, near)| (block * 4096 + near).saturating_sub(20)),
        (0usize..5).prop_map(|block| block * 4096),
        // Where long blocks are split and cut.
        (5usize..17).prop_map(|block| block * 4096),
        0usize..20_000,
    ]
}

fn rename_mode() -> impl Strategy<Value = RenameMode> {
    prop_oneof![3 => Just(RenameMode::Replace), 1 => Just(RenameMode::NoReplace), 2 => Just(RenameMode::Exchange)]
}

fn allocate_mode() -> impl Strategy<Value = AllocateMode> {
    use AllocateMode::{Extend, KeepSize, PunchHole, ZeroRange, ZeroRangeKeepSize};
    prop_oneof![Just(Extend), Just(KeepSize), Just(PunchHole), Just(ZeroRange), Just(ZeroRangeKeepSize)]
}

fn write(len_max: usize) -> impl Strategy<Value = Operation> {
    // Long ones are kept as they come, shared with the journal.
    let len = prop_oneof![6 => 1..len_max, 1 => (16usize << 10)..(40 << 10)];
    (0usize..8, offset(), len, any::<u8>(), any::<bool>()).prop_map(|(file, offset, len, byte, kill_privileges)| {
        Operation::Write { file, offset, len, byte, kill_privileges }
    })
}

fn operation() -> impl Strategy<Value = Operation> {
    let kind = prop_oneof![6 => Just(Kind::File), 3 => Just(Kind::Directory), 1 => Just(Kind::Fifo)];
    // Name 7 is too long for any file system; it need not be tried often.
    let at = || (0usize..6, prop_oneof![20 => 0usize..7, 1 => Just(7usize)]);
    prop_oneof![
        8 => (at(), kind, 0u32..0o1000).prop_map(|((directory, name), kind, permissions)| {
            Operation::Make { directory, name, kind, permissions }
        }),
        1 => (at(), 1u8..).prop_map(|((directory, name), target)| Operation::Symlink { directory, name, target }),
        2 => (0usize..20, at()).prop_map(|(node, (directory, name))| Operation::Link { node, directory, name }),
        4 => at().prop_map(|(directory, name)| Operation::Unlink { directory, name }),
        2 => at().prop_map(|(directory, name)| Operation::RemoveDirectory { directory, name }),
        5 => (at(), at(), rename_mode(), 0u8..5).prop_map(|(from, to, mode, which)| match which {
            0 => Operation::Whiteout { from, to, mode },
            _ => Operation::Rename { from, to, mode },
        }),
        10 => write(9000),
        4 => write(60),
        2 => (0usize..8, offset(), 1usize..20_000).prop_map(|(file, offset, len)| Operation::Read { file, offset, len }),
        5 => (0usize..8, offset()).prop_map(|(file, size)| Operation::Resize { file, size }),
        4 => (0usize..8, offset(), 1usize..9000, allocate_mode()).prop_map(|(file, offset, len, mode)| {
            Operation::Allocate { file, offset, len, mode }
        }),
        4 => ((0usize..8, offset()), (0usize..8, offset()), 1usize..20_000).prop_map(|(from, to, len)| {
            Operation::Copy { from, to, len }
        }),
        3 => (0usize..20, 0u32..0o10000).prop_map(|(node, permissions)| Operation::Chmod { node, permissions }),
        1 => (0usize..20, proptest::option::of(0u32..3), proptest::option::of(0u32..3)).prop_map(|(node, uid, gid)| {
            Operation::Chown { node, uid, gid }
        }),
        1 => (0usize..20, proptest::option::of(any::<i64>()), proptest::option::of(any::<i64>())).prop_map(
            |(node, atime, mtime)| Operation::SetTimes { node, atime, mtime }
        ),
        1 => (0usize..6, 0u32..0o1000).prop_map(|(directory, permissions)| {
            Operation::MakeUnnamed { directory, permissions }
        }),
        3 => (0usize..20).prop_map(|node| Operation::Hold { node }),
        2 => (0usize..20).prop_map(|node| Operation::Release { node }),
        2 => (0usize..20, 0usize..3, any::<u8>()).prop_map(|(node, name, value)| Operation::SetXattr { node, name, value }),
        1 => (0usize..20, 0usize..3).prop_map(|(node, name)| Operation::RemoveXattr { node, name }),
    ]
}

/// Sequences of up to `len` steps, with crashes and failures if `hostile`.
pub fn operations(len: usize, hostile: bool) -> impl Strategy<Value = Vec<Step>> {
    let kinds =
        prop_oneof![Just(StoreErrorKind::Full), Just(StoreErrorKind::Unavailable), Just(StoreErrorKind::Conflict)];
    let crash = (any::<u8>(), proptest::option::of(any::<u8>()));
    let crash = crash.prop_map(|(survives, torn)| Step::Crash { survives, torn });
    let fail = (0u32..6, 1u32..3, kinds).prop_map(|(after, count, kind)| Step::Fail { after, count, kind });
    let evil = u32::from(hostile);
    let step = prop_oneof![
        40 => operation().prop_map(Step::Do),
        2 => Just(Step::Sync),
        3 => Just(Step::Commit),
        1 => Just(Step::Compare),
        1 => Just(Step::Remount),
        2 * evil => crash,
        evil => fail,
    ];
    proptest::collection::vec(step, 1..len)
}
