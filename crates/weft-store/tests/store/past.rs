//! The past of a store: what it says of earlier commits is what it said then.
//!
//! Each commit's rows are recorded when they are the present. Later the store is asked for them as
//! of that commit. The store in memory, which takes the same batches, tells what should be kept.

use crate::compare::{State, state};
use crate::contract::{HOMES, config, new_volume, options};
use crate::generate::{Change, batch, changes};
use proptest::prelude::*;
use std::collections::BTreeSet;
use std::ops::Range;
use std::sync::Arc;
use weft_digest::Digest;
use weft_store::memory::MemoryStore;
use weft_store::*;
use weft_testkit::Cluster;

/// Inodes that batches name.
const INODES: Range<u64> = 1..9;

/// One commit.
#[derive(Clone, Debug)]
struct Step {
    changes: Vec<Change>,
    /// Inodes whose rows are put again, with another access time or not.
    touched: Vec<(u8, bool)>,
    asks: Vec<Ask>,
    /// True if the volume is opened anew after it.
    reopened: bool,
    /// True if all of the past is read after it.
    checked: bool,
}

/// A change of what is kept, to be made to fit what is there.
#[derive(Clone, Debug)]
enum Ask {
    Keep(u8),
    End,
    /// Pins a commit that is kept.
    Pin {
        which: prop::sample::Index,
        name: Option<u8>,
        until: Option<u8>,
    },
    /// Pins any commit, which may be refused.
    PinAny(u8),
    Unpin(prop::sample::Index),
    First(prop::sample::Index),
    Forget(u8),
}

fn ask() -> impl Strategy<Value = Ask> {
    let index = any::<prop::sample::Index>;
    prop_oneof![
        4 => (0..3u8).prop_map(Ask::Keep),
        1 => Just(Ask::End),
        6 => (index(), prop::option::of(0..3u8), prop::option::of(0..6u8))
            .prop_map(|(which, name, until)| Ask::Pin { which, name, until }),
        1 => (0..30u8).prop_map(Ask::PinAny),
        3 => index().prop_map(Ask::Unpin),
        4 => index().prop_map(Ask::First),
        4 => (1..40u8).prop_map(Ask::Forget),
    ]
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let touched = prop::collection::vec((1..8u8, any::<bool>()), 0..3);
    let asks = prop_oneof![1 => Just(Vec::new()), 1 => prop::collection::vec(ask(), 1..3)];
    let step = (changes(), touched, asks, prop::bool::weighted(0.1), prop::bool::weighted(0.25))
        .prop_map(|(changes, touched, asks, reopened, checked)| Step { changes, touched, asks, reopened, checked });
    (prop::collection::vec(step, 1..20), prop::bool::weighted(0.8)).prop_map(|(mut steps, is_kept)| {
        if is_kept {
            steps[0].asks.insert(0, Ask::Keep(1));
        }
        steps
    })
}

/// A commit as it was when it was the present.
struct Moment {
    commit: CommitNo,
    state: State,
    digests: Vec<Option<Digest>>,
    /// Inodes whose rows were put together with other rows of theirs, so that they are of this
    /// commit whatever they say.
    anew: BTreeSet<Ino>,
}

/// The inodes that `batch` puts and of which it changes more than that.
fn anew(batch: &Batch) -> BTreeSet<Ino> {
    let is_changed = |ino: Ino| {
        let extents = batch.extents.iter().any(|change| match change {
            ExtentChange::Put { ino: of, .. } | ExtentChange::Clear { ino: of, .. } => *of == ino,
        });
        let names = batch.names.iter().any(|change| match change {
            NameChange::Put(row) => row.parent == ino || row.ino == ino,
            NameChange::Remove { parent, .. } => *parent == ino,
        });
        extents || names || batch.xattrs.iter().any(|change| change.ino == ino)
    };
    let put = batch.inodes.iter().filter_map(|change| match change {
        InodeChange::Put(row) => Some(row.ino),
        InodeChange::Remove(_) => None,
    });
    put.filter(|ino| is_changed(*ino)).collect()
}

fn moment(store: &dyn Store, anew: BTreeSet<Ino>) -> Moment {
    let digests = INODES.map(|ino| store.digest(Ino(ino)).expect("readable"));
    Moment {
        commit: store.header().expect("readable").commit,
        state: state(store).expect("readable"),
        digests: digests.collect(),
        anew,
    }
}

/// The store under test, the model, and all that was recorded.
struct Trial<'a, S> {
    open: &'a dyn Fn() -> Arc<S>,
    blocks: &'a dyn Fn(&S) -> usize,
    store: Option<Arc<S>>,
    model: MemoryStore,
    moments: Vec<Moment>,
    /// The commit that history began with. Before it, whatever writes a row may write it anew.
    begun: CommitNo,
}

impl<'a, S: Store + 'static> Trial<'a, S> {
    /// A new volume that `open` opens, and whose stored blocks `blocks` counts.
    fn new(options: VolumeOptions, open: &'a dyn Fn() -> Arc<S>, blocks: &'a dyn Fn(&S) -> usize) -> Trial<'a, S> {
        let store = open();
        let moments = vec![moment(&*store, BTreeSet::new())];
        Trial { open, blocks, store: Some(store), model: MemoryStore::new(options), moments, begun: CommitNo(0) }
    }

    fn store(&self) -> Arc<S> {
        self.store.clone().expect("open")
    }

    fn last(&self) -> CommitNo {
        self.model.header().expect("readable").commit
    }

    fn kept(&self) -> Vec<CommitNo> {
        (1..=self.last().0).map(CommitNo).filter(|commit| self.model.is_kept(*commit).expect("readable")).collect()
    }

    /// The batch of a step.
    fn batch(&self, step: &Step) -> Batch {
        // The store alone knows where its blocks lie.
        let mut batch = batch(&*self.store(), &step.changes);
        for (ino, is_read) in &step.touched {
            let ino = Ino(u64::from(*ino));
            let named = batch.inodes.iter().any(|change| match change {
                InodeChange::Put(row) => row.ino == ino,
                InodeChange::Remove(removed) => *removed == ino,
            });
            let row = self.model.inodes(ino, 1).expect("readable").pop().filter(|row| row.ino == ino && !named);
            if let Some(row) = row {
                let atime = if *is_read { batch.time } else { row.atime };
                batch.inodes.push(InodeChange::Put(InodeRow { atime, ..row }));
            }
        }
        batch.history = step.asks.iter().filter_map(|ask| self.change(ask, &batch)).collect();
        batch
    }

    fn change(&self, ask: &Ask, batch: &Batch) -> Option<HistoryChange> {
        let kept = self.kept();
        let made = batch.time;
        let point = |commit| Pin { commit, kind: PinKind::Point, name: Vec::new(), made, held_until: None };
        Some(match ask {
            Ask::Keep(days) => HistoryChange::Keep(format!("all {days}d"), HistoryFor::All),
            Ask::End => HistoryChange::End,
            Ask::Pin { .. } | Ask::First(_) if kept.is_empty() => return None,
            Ask::Pin { which, name: None, .. } => HistoryChange::Pin(point(*which.get(&kept))),
            Ask::Pin { which, name: Some(name), until } => HistoryChange::Pin(Pin {
                kind: PinKind::Snapshot,
                name: vec![b'a' + name],
                held_until: until.map(|commits| Timestamp(made.0 + 1000 * i64::from(commits))),
                ..point(*which.get(&kept))
            }),
            Ask::PinAny(number) => HistoryChange::Pin(point(CommitNo(u64::from(*number)))),
            Ask::Unpin(which) => {
                let pins = self.model.pins().expect("readable");
                let pin = if pins.is_empty() { point(CommitNo(1)) } else { which.get(&pins).clone() };
                HistoryChange::Unpin(pin.commit, pin.kind, pin.name)
            }
            Ask::First(which) => HistoryChange::First(*which.get(&kept)),
            Ask::Forget(rows) => HistoryChange::Forget(usize::from(*rows)),
        })
    }

    /// Commits `batch` on both sides; without its changes of history if these are refused.
    fn commit(&mut self, batch: &Batch) -> Result<(), TestCaseError> {
        let store = self.store();
        let was_kept = self.model.history().expect("readable").is_some();
        if let Err(refused) = self.model.apply(batch, Durability::Durable) {
            let error = store.apply(batch, Durability::Durable).expect_err("the model refuses it");
            prop_assert_eq!(error.kind(), refused.kind(), "{}, but the model: {}", error, refused);
            let unchanged = state(&*store).expect("readable") == self.moments.last().expect("one").state;
            prop_assert!(unchanged, "what was refused changed something");
            let batch = Batch { history: Vec::new(), ..batch.clone() };
            self.model.apply(&batch, Durability::Durable).expect("the model takes it");
            store.apply(&batch, Durability::Durable).expect("applied");
        } else {
            store.apply(batch, Durability::Durable).expect("applied");
        }
        self.moments.push(moment(&*store, anew(batch)));
        let ended = batch.history.contains(&HistoryChange::End);
        if (!was_kept || ended)
            && self.model.history().expect("readable").is_some_and(|history| history.first == batch.commit)
        {
            self.begun = batch.commit;
        }
        Ok(())
    }

    fn follow(&mut self, steps: &[Step]) -> Result<(), TestCaseError> {
        for step in steps {
            let batch = self.batch(step);
            self.commit(&batch)?;
            self.same_is_kept()?;
            if step.reopened {
                self.store = None;
                self.store = Some((self.open)());
            }
            if step.checked {
                self.check()?;
            }
        }
        self.check()?;
        self.forget_all()?;
        self.check()?;
        self.check_costs()
    }

    /// Has all be forgotten that no kept commit needs; compares what is left then.
    fn forget_all(&mut self) -> Result<(), TestCaseError> {
        let history = |store: &dyn Store| store.history().expect("readable");
        for round in 0.. {
            let left = [history(&*self.store()), history(&self.model)].into_iter().flatten();
            if !left.into_iter().any(|history| history.swept < history.first) {
                break;
            }
            prop_assert!(round < 1000, "it never ends");
            let batch = batch(&self.model, &[]);
            self.commit(&Batch { history: vec![HistoryChange::Forget(7)], ..batch })?;
        }
        let kept = self.kept();
        let named = self.moments.iter().filter(|moment| moment.commit == self.last() || kept.contains(&moment.commit));
        let named = named.flat_map(|moment| moment.state.blocks()).collect::<BTreeSet<_>>();
        prop_assert_eq!((self.blocks)(&self.store()), named.len());
        for ino in INODES.map(Ino) {
            if history(&self.model).is_some() {
                let versions = self.store().versions(ino, self.last(), usize::MAX).expect("readable");
                prop_assert_eq!(self.as_runs(versions), self.seen_versions(ino), "versions of {}", ino.0);
            }
        }
        Ok(())
    }

    /// Blocks that the count says the past alone has are those that a kept commit has and the last
    /// one has not; snapshots hold those that one of their commits has.
    fn check_costs(&self) -> Result<(), TestCaseError> {
        let store = self.store();
        // The model counts nothing.
        let Some(mut count) = PastCount::begin(&*store, Counted::All).expect("readable") else { return Ok(()) };
        if store.version_counts().is_err() {
            return Ok(());
        }
        while count.step(&*store, 3).expect("counted") {}
        let versions = count.versions();
        let costs = count.end(&*store).expect("counted");
        let counts = store.version_counts().expect("counted");
        prop_assert_eq!((versions, costs.is_complete), (counts.extents + counts.contents, true));
        let blocks = |commits: &mut dyn Iterator<Item = CommitNo>| {
            let pairs = commits.flat_map(|commit| INODES.map(move |ino| (commit, Ino(ino))));
            let extents = pairs.flat_map(|(at, ino)| store.extents_at(at, ino, 0..u64::MAX >> 1).expect("readable"));
            extents.map(|(_, block)| (block.id, u64::from(block.length))).collect::<BTreeSet<_>>()
        };
        let now = blocks(&mut [self.last()].into_iter());
        let bytes = |blocks: BTreeSet<(BlockId, u64)>| blocks.difference(&now).map(|(_, length)| length).sum::<u64>();
        let pins = self.model.pins().expect("readable").into_iter().filter(|pin| pin.kind == PinKind::Snapshot);
        let pinned = bytes(blocks(&mut pins.map(|pin| pin.commit)));
        prop_assert_eq!(costs.blocks.pinned, pinned);
        prop_assert_eq!(costs.blocks.all(), bytes(blocks(&mut self.kept().into_iter())));
        let (mut next, mut by_inode) = (Some(Ino(0)), 0);
        while let Some(from) = next {
            let mut count = PastCount::begin(&*store, Counted::ByInode(from, 2)).expect("readable").expect("kept");
            while count.step(&*store, 3).expect("counted") {}
            let some = count.end(&*store).expect("counted");
            prop_assert!(some.by_inode.len() <= 2 && some.by_inode.keys().all(|ino| *ino >= from));
            prop_assert!(some.next_inode.is_none_or(|next| some.by_inode.len() == 2 && next > from));
            by_inode += some.by_inode.values().sum::<u64>();
            next = some.next_inode;
        }
        prop_assert_eq!(by_inode, costs.all().all());
        Ok(())
    }

    /// Compares with the model what is kept.
    fn same_is_kept(&self) -> Result<(), TestCaseError> {
        let store = self.store();
        let what = |store: &dyn Store| {
            let history = store.history().expect("readable").map(|history| (history.rule, history.first));
            let kept = (1..self.last().0 + 2).map(|number| store.is_kept(CommitNo(number)).expect("readable"));
            (history, store.pins().expect("readable"), kept.collect::<Vec<_>>())
        };
        prop_assert_eq!(what(&*store), what(&self.model));
        Ok(())
    }

    /// Reads all kept commits.
    fn check(&self) -> Result<(), TestCaseError> {
        let store: Arc<dyn Store> = self.store();
        for commit in self.kept() {
            let moment = self.moments.iter().find(|moment| moment.commit == commit).expect("recorded");
            let at = At::new(store.clone(), commit).expect("kept");
            let found = state(&at).expect("readable").as_past();
            prop_assert_eq!(found, moment.state.as_past(), "as of commit {}", commit.0);
            self.check_inodes(&*store, moment)?;
        }
        if !self.kept().is_empty() {
            self.check_versions(&*store)?;
        }
        for time in (0..self.last().0 + 2).flat_map(|number| [number * 1000, number * 1000 + 999]) {
            let time = Timestamp(i64::try_from(time).expect("few commits"));
            let number = |store: &dyn Store| store.commit_at(time).expect("readable").map(|row| (row.number, row.time));
            prop_assert_eq!(number(&*store), number(&self.model));
        }
        Ok(())
    }

    /// Compares what is told of single inodes.
    fn check_inodes(&self, store: &dyn Store, moment: &Moment) -> Result<(), TestCaseError> {
        for (row, since) in store.inodes_at(moment.commit, Ino(0)..Ino::MAX, usize::MAX).expect("readable") {
            let number = row.ino.0;
            let run = self.runs(row.ino).into_iter().find(|(_, held)| held.contains(&moment.commit)).expect("it held");
            prop_assert_eq!(since.max(self.begun), run.1.start, "inode {} as of commit {}", number, moment.commit.0);
            if !INODES.contains(&number) {
                continue;
            }
            // Of files and others the digest may be a matter of the present alone.
            let then = moment.digests[usize::try_from(number - INODES.start).expect("few")];
            let found = store.digest_at(moment.commit, row.ino).expect("readable");
            let may_miss = found.is_none() && row.kind != Kind::Directory;
            prop_assert!(found == then || may_miss, "digest of {} as of commit {}", number, moment.commit.0);
        }
        Ok(())
    }

    /// Versions are what the inode was, and none that a kept commit sees is missing.
    fn check_versions(&self, store: &dyn Store) -> Result<(), TestCaseError> {
        for ino in INODES.map(Ino) {
            let all = store.versions(ino, self.last(), usize::MAX).expect("readable");
            for (at, (_, held)) in all.iter().enumerate() {
                let rest = store.versions(ino, held.end, 2).expect("readable");
                prop_assert_eq!(&rest[..], &all[at..all.len().min(at + 2)]);
            }
            let all = self.as_runs(all);
            let runs = self.runs(ino);
            prop_assert!(all.iter().all(|version| runs.contains(version)), "{all:?} of {runs:?}");
            for seen in self.seen_versions(ino) {
                prop_assert!(all.contains(&seen), "{seen:?} is not among {all:?}");
            }
        }
        Ok(())
    }

    /// Those of [`Trial::runs`] that ended, and that a kept commit sees; newest first.
    fn seen_versions(&self, ino: Ino) -> Vec<(InodeRow, Range<CommitNo>)> {
        let kept = self.kept();
        let mut runs = self.runs(ino);
        runs.retain(|(_, held)| held.end <= self.last() && kept.iter().any(|commit| held.contains(commit)));
        runs.reverse();
        runs
    }

    /// `versions` as [`Trial::runs`] tells of them.
    fn as_runs(&self, versions: Vec<(InodeRow, Range<CommitNo>)>) -> Vec<(InodeRow, Range<CommitNo>)> {
        let run = |(row, held): (_, Range<CommitNo>)| {
            (InodeRow { atime: Timestamp(0), ..row }, held.start.max(self.begun)..held.end)
        };
        versions.into_iter().map(run).collect()
    }

    /// The rows that inode `ino` had since history began, each with the commits in which it was
    /// that.
    fn runs(&self, ino: Ino) -> Vec<(InodeRow, Range<CommitNo>)> {
        let mut runs: Vec<(InodeRow, Range<CommitNo>)> = Vec::new();
        for Moment { commit, state, anew, .. } in self.moments.iter().filter(|moment| moment.commit >= self.begun) {
            let Some(row) = state.inodes().iter().find(|row| row.ino == ino) else { continue };
            let row = InodeRow { atime: Timestamp(0), ..row.clone() };
            match runs.last_mut() {
                Some((same, held)) if *same == row && held.end == *commit && !anew.contains(&ino) => {
                    held.end = commit.next();
                }
                _ => runs.push((row, *commit..commit.next())),
            }
        }
        runs
    }
}

fn follow_in_memory(steps: &[Step]) -> Result<(), TestCaseError> {
    let store = Arc::new(MemoryStore::new(VolumeOptions::default()));
    Trial::new(VolumeOptions::default(), &|| store.clone(), &|store| store.block_count()).follow(steps)
}

fn follow_in_files(steps: &[Step], home: BlockHome) -> Result<(), TestCaseError> {
    let directory = tempfile::tempdir().expect("a directory");
    let path = new_volume(&directory, home);
    let database = if home == BlockHome::Segments { path.join("meta.sqlite") } else { path.clone() };
    let count = |_: &sqlite::SqliteStore| {
        let rows = rusqlite::Connection::open(&database)
            .and_then(|connection| connection.query_row("SELECT count(*) FROM blocks", (), |row| row.get::<_, i64>(0)));
        usize::try_from(rows.expect("counted")).expect("few")
    };
    Trial::new(options(home), &|| sqlite::open(&path).expect("opened").store, &count).follow(steps)
}

fn follow_in_postgresql(steps: &[Step]) -> Result<(), TestCaseError> {
    let address = Cluster::shared().address();
    let options = options(BlockHome::Database);
    postgres::create(&address, &options, (0, 0), Timestamp(0)).expect("made");
    let open = || postgres::open(&address, OpenOptions::default()).expect("opened");
    let count = |store: &postgres::PostgresStore| usize::try_from(store.block_count().expect("counted")).expect("few");
    Trial::new(options, &open, &count).follow(steps)?;
    postgres::remove(&address).expect("removed");
    Ok(())
}

proptest! {
    #![proptest_config(config(24))]
    #[test]
    fn a_store_in_memory_shows_each_kept_commit_as_it_was(steps in steps()) {
        follow_in_memory(&steps)?;
    }

    #[test]
    fn a_volume_of_segments_shows_each_kept_commit_as_it_was(steps in steps()) {
        follow_in_files(&steps, HOMES[0])?;
    }

    #[test]
    fn a_volume_of_one_file_shows_each_kept_commit_as_it_was(steps in steps()) {
        follow_in_files(&steps, HOMES[1])?;
    }
}

proptest! {
    // Each answer is a round trip.
    #![proptest_config(config(4))]
    #[test]
    fn a_volume_in_postgresql_shows_each_kept_commit_as_it_was(steps in steps()) {
        follow_in_postgresql(&steps)?;
    }
}
