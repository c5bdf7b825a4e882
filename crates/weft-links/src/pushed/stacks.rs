//! Networks that stand between a file and those who use it, for as long as somebody wants: pushed
//! onto what is there, and popped, as modules of a stream are.
//!
//! Each is a link that is in memory alone, made of the file or of the one pushed before it. A way
//! in asks what a file is seen as ([`weft_vfs::Vfs::seen`]), and works on that; whoever names the
//! file within the volume (links, digests, other ways in) means the file itself.

use crate::attachment::Attachment;
use crate::definition::LinkDefinition;
use crate::definition::compiled::Link;
use crate::directories::virtual_inodes::virtual_number;
use crate::layer::Links;
use crate::pushed::ledger::{Charge, Ledger};
use parking_lot::Mutex;
use rustc_hash::FxHashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use weft_store::{Ino, InodeRow, Kind};
use weft_tree::{Caller, ErrorKind, Inode, Result};
use weft_vfs::Change;
use weft_vfs::blocking::{self, Wait};

/// Networks on one file, for one scope.
const PUSHED_MAX: usize = 8;

/// The users who see a file through a pushed network.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Scope {
    /// All who use it, but those for whom something is pushed alone.
    Everybody,
    /// Those who share what was opened as this number, which the way in gives once.
    Opened(u64),
}

/// A network to push.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pushed {
    /// The network. It reads the file alone, and the code that it runs.
    pub network: String,
    /// Paths in the volume of that code, which are $2 and so on.
    pub code: Vec<Vec<u8>>,
    /// True if the network may change the apparent length of the file.
    pub may_resize: bool,
}

/// The networks pushed onto the files of a volume.
#[derive(Default)]
pub(crate) struct Stacks {
    table: Mutex<Table>,
    /// Networks pushed so far.
    pushed: AtomicU64,
    /// Bytes that they take, by user.
    pub(crate) ledger: Arc<Ledger>,
}

#[derive(Default)]
struct Table {
    stacks: FxHashMap<(Ino, Scope), Vec<Layer>>,
    /// The files onto which links are pushed for everybody.
    onto: FxHashMap<Ino, Ino>,
}

/// A network that is pushed.
struct Layer {
    link: Ino,
    charge: Charge,
    /// The user who pushed it.
    by: u32,
}

impl Layer {
    /// True if it counts on a file of `owner`: that user pushed it, or root.
    fn is_of(&self, owner: u32) -> bool {
        self.by == owner || self.by == 0
    }
}

impl Table {
    /// The link that was pushed last.
    fn top(&self, ino: Ino, scope: Scope) -> Option<Ino> {
        Some(self.stacks.get(&(ino, scope))?.last()?.link)
    }
}

impl Stacks {
    /// Returns the link that users see in place of file `ino`: those who have it open as `number`,
    /// or everybody; `ino` if there is none.
    pub(crate) fn seen(&self, ino: Ino, number: Option<u64>) -> Ino {
        let table = self.table.lock();
        let own = number.and_then(|number| table.top(ino, Scope::Opened(number)));
        own.or_else(|| table.top(ino, Scope::Everybody)).unwrap_or(ino)
    }

    /// The file onto which `link` is pushed for everybody, if that is what it is.
    pub(crate) fn pushed_onto(&self, link: Ino) -> Option<Ino> {
        self.table.lock().onto.get(&link).copied()
    }
}

impl Links<'_> {
    /// Pushes a network onto file `ino`. `Invalid` if it is no file or the network makes no sense
    /// there, `NotPermitted` if it is not `caller`'s file, or if that user may have no such
    /// network, `NotSupported` if it changes the length and may not, `Loop` if there are too many,
    /// `NotSynchronized` if somebody is writing all of it anew, `QuotaExceeded` and `NoMemory` if
    /// what the user pushed, or what all did, takes as much memory as it may; and as reading the
    /// code.
    pub fn push(&self, caller: Caller, ino: Ino, scope: Scope, pushed: &Pushed) -> Result<()> {
        let owner = self.owner(ino)?;
        let definition = self.pushable(caller, ino, pushed)?;
        self.may_wait(Wait::Commit)?;
        let below = self.below(ino, scope)?;
        let charge = self.layer.stacks.ledger.charge(caller.uid, definition)?;
        let number = self.layer.stacks.pushed.fetch_add(1, Ordering::Relaxed);
        let link = virtual_number(ino, format!("pushed/{number}").as_bytes());
        self.run(|state| {
            let row = state.tree.inode(ino)?.row.clone();
            let (kind, permissions) = (Kind::Transformation, 0o7777);
            let row = InodeRow { ino: link, kind, permissions, inline: None, xattrs: 0, ..row };
            let made = Link::onto(charge.compiled().clone(), below);
            let mut inode = Inode::loaded(row);
            Attachment::Pushed(Arc::new(made)).put(&mut inode);
            state.put_virtual(inode);
            Ok(())
        })?;
        self.hold(link);
        if let Err(error) = self.may_run(caller, link).and_then(|()| {
            // What programs have written, and the kernel not passed on yet, was written to what
            // they saw.
            self.looks_different(ino, scope);
            self.put_on(ino, scope, below, Layer { link, charge, by: caller.uid })
        }) {
            self.release(link, 1);
            return Err(error);
        }
        self.looks_different(ino, scope);
        let now = self.owner(ino)?;
        if now != owner {
            // It was given away meanwhile.
            self.pop_of_former_owner(ino, now);
        }
        let stays = now == owner || caller.uid == now || caller.uid == 0;
        if stays { Ok(()) } else { Err(ErrorKind::NotPermitted.into()) }
    }

    /// Checks that the code that `link` runs exists, and that `caller` may read it. A caller who
    /// may not gets the same error in either case.
    fn may_run(&self, caller: Caller, link: Ino) -> Result<()> {
        match self.run(|state| state.resolve(link)) {
            resolved if caller.uid == 0 => resolved.map(|_| ()),
            Ok(resolved) if resolved.owner_may_read() => Ok(()),
            _ => Err(ErrorKind::AccessDenied.into()),
        }
    }

    /// Puts `layer` on a stack, if that is still the one it was made for.
    fn put_on(&self, ino: Ino, scope: Scope, below: Ino, layer: Layer) -> Result<()> {
        let mut table = self.layer.stacks.table.lock();
        let top = table.top(ino, scope).unwrap_or(ino);
        if top != below || scope == Scope::Everybody && self.draft(top).is_some() {
            return Err(ErrorKind::NotSynchronized.into());
        }
        if scope == Scope::Everybody {
            table.onto.insert(layer.link, ino);
        }
        let stack = table.stacks.entry((ino, scope)).or_insert_with(|| {
            self.more_substitutes();
            Vec::new()
        });
        stack.push(layer);
        Ok(())
    }

    /// Returns the definition of a link that does the same as `pushed`, if that may be pushed.
    fn pushable(&self, caller: Caller, ino: Ino, pushed: &Pushed) -> Result<LinkDefinition> {
        let attributes = self.attributes(ino)?;
        if attributes.kind != Kind::File {
            return Err(ErrorKind::Invalid.into());
        }
        let mut targets = vec![b"/".to_vec()];
        targets.extend(pushed.code.iter().cloned());
        let definition = LinkDefinition::new(targets, pushed.network.clone());
        definition.check().map_err(|_| ErrorKind::Invalid)?;
        let network = definition.parse().ok_or(ErrorKind::Invalid)?;
        // Whatever else it named would be read as data.
        if network.reads_files() || !network.modules().iter().copied().eq(1..=pushed.code.len()) {
            return Err(ErrorKind::Invalid.into());
        }
        // Whoever is given what is open would take it for the owner's.
        let is_own = caller.uid == 0 || caller.uid == attributes.uid;
        let may_export = !definition.is_exported() || self.layer.options.exported.allows(caller.uid);
        let may_use_keys = !definition.has_keys() || self.layer.options.gives_keys(caller.uid);
        if !is_own || !self.layer.options.owners.allows(caller.uid) || !may_export || !may_use_keys {
            return Err(ErrorKind::NotPermitted.into());
        }
        if !pushed.may_resize && !network.keeps().length {
            return Err(ErrorKind::NotSupported.into());
        }
        Ok(definition)
    }

    /// Returns the inode that the next network is pushed onto.
    fn below(&self, ino: Ino, scope: Scope) -> Result<Ino> {
        let table = self.layer.stacks.table.lock();
        if table.stacks.get(&(ino, scope)).is_some_and(|stack| stack.len() >= PUSHED_MAX) {
            return Err(ErrorKind::Loop.into());
        }
        let below = table.top(ino, scope).unwrap_or(ino);
        if scope == Scope::Everybody && self.draft(below).is_some() {
            return Err(ErrorKind::NotSynchronized.into());
        }
        Ok(below)
    }

    /// Pops the network that was pushed last. `Invalid` if there is none, `NotPermitted` and
    /// `NotSynchronized` as [`Links::push`].
    pub fn pop(&self, caller: Caller, ino: Ino, scope: Scope) -> Result<()> {
        let owner = self.attributes(ino)?.uid;
        if scope == Scope::Everybody && caller.uid != 0 && caller.uid != owner {
            return Err(ErrorKind::NotPermitted.into());
        }
        self.may_wait(Wait::Commit)?;
        self.looks_different(ino, scope);
        let mut table = self.layer.stacks.table.lock();
        let top = table.top(ino, scope).ok_or(ErrorKind::Invalid)?;
        if self.draft(top).is_some() {
            return Err(ErrorKind::NotSynchronized.into());
        }
        table.onto.remove(&top);
        let stack = table.stacks.get_mut(&(ino, scope)).ok_or(ErrorKind::Invalid)?;
        let popped = stack.pop();
        if stack.is_empty() {
            table.stacks.remove(&(ino, scope));
            self.fewer_substitutes();
        }
        drop(table);
        drop(popped);
        self.release(top, 1);
        self.looks_different(ino, scope);
        Ok(())
    }

    /// The networks that were pushed onto file `ino`, the last first.
    pub fn pushed(&self, ino: Ino, scope: Scope) -> Result<Vec<String>> {
        let table = self.layer.stacks.table.lock();
        let stack = table.stacks.get(&(ino, scope)).into_iter().flatten();
        Ok(stack.rev().map(|layer| layer.charge.compiled().definition.network.clone()).collect())
    }

    /// Removes all networks pushed for the file that was opened as `number`, now that it is closed
    /// for good.
    pub fn pop_all(&self, ino: Ino, number: u64) {
        if self.has_substitutes() {
            self.forget_stack(ino, Scope::Opened(number));
        }
    }

    /// If file `ino` is gone, so is what was pushed onto it.
    pub(crate) fn pop_of_gone(&self, ino: Ino) {
        let is_pushed_onto = || self.layer.stacks.table.lock().stacks.contains_key(&(ino, Scope::Everybody));
        if is_pushed_onto() && self.attributes(ino).is_err_and(|error| error.kind() == ErrorKind::Stale) {
            self.forget_stack(ino, Scope::Everybody);
        }
    }

    /// Makes sure that `ino` can get `owner`: this thread may wait if something is to be
    /// taken off then, and nobody is writing all of it anew (`NotSynchronized`).
    pub(crate) fn ready_for_owner(&self, ino: Ino, owner: u32) -> Result<()> {
        let scopes = self.scopes_of_others(ino, owner);
        if scopes.is_empty() {
            return Ok(());
        }
        self.may_wait(Wait::Commit)?;
        let table = self.layer.stacks.table.lock();
        let is_written = |scope: &Scope| table.top(ino, *scope).is_some_and(|top| self.draft(top).is_some());
        if scopes.iter().any(is_written) { Err(ErrorKind::NotSynchronized.into()) } else { Ok(()) }
    }

    /// Takes off what was pushed onto file `ino` by neither root nor `owner`, whose it is now, and
    /// what lies on and below that: whoever gives a file away leaves no code on it, as the kernel
    /// leaves no set-user-id bit (POSIX chown()).
    pub(crate) fn pop_of_former_owner(&self, ino: Ino, owner: u32) {
        for scope in self.scopes_of_others(ino, owner) {
            self.looks_different(ino, scope);
            self.forget_stack(ino, scope);
            self.looks_different(ino, scope);
        }
    }

    /// The scopes for which somebody else than root and `owner` has pushed something onto `ino`.
    fn scopes_of_others(&self, ino: Ino, owner: u32) -> Vec<Scope> {
        let table = self.layer.stacks.table.lock();
        let is_own = |stack: &[Layer]| stack.iter().all(|layer| layer.is_of(owner));
        let others = table.stacks.iter().filter(|((of, _), stack)| *of == ino && !is_own(stack));
        others.map(|((_, scope), _)| *scope).collect()
    }

    fn forget_stack(&self, ino: Ino, scope: Scope) {
        let gone = {
            let mut table = self.layer.stacks.table.lock();
            let Some(gone) = table.stacks.remove(&(ino, scope)) else { return };
            table.onto.retain(|link, _| gone.iter().all(|layer| layer.link != *link));
            gone
        };
        self.fewer_substitutes();
        gone.into_iter().for_each(|layer| self.release(layer.link, 1));
    }

    /// Has those forget what they keep of file `ino` who see something else now, and pass on what
    /// they were to write.
    fn looks_different(&self, ino: Ino, scope: Scope) {
        if scope == Scope::Everybody {
            blocking::waiting(|| self.announce([Change::Target { ino, range: 0..u64::MAX }]));
        }
    }
}
