//! A file that is taken out of the past.

use super::newest::{files_at, last_with};
use super::path::{VolumePath, shown};
use super::rows::Rows;
use super::{RestoreError, Restoring, refused};
use crate::volume::Vfs;
use weft_store::{HistoryChange, Ino, Kind, Store, Timestamp};

impl Vfs {
    /// Takes the content of all files that had the name `path` out of the past, as far as later
    /// commits replaced it, and gives its space back: as of earlier commits they are empty. Returns
    /// how many files that were. A record is left that `user` asked for it. Refused if a snapshot
    /// that is held has one of them.
    pub fn forget_history(&self, path: &[u8], user: u32) -> Restoring<u64> {
        let path = VolumePath::parse(path)?;
        // What is there now is the present's.
        self.commit_durably()?;
        let files = files_at(&*self.store, &path)?;
        if files.is_empty() {
            if is_directory(&*self.store, &path)? {
                let path = shown(path.names());
                return refused(format!("{path} is a directory; only files can be taken out, each by its path"));
            }
            return refused(format!("no commit that is kept has a file {}", shown(path.names())));
        }
        if let Some(name) = self.held_with(&files, self.now())? {
            return refused(held_by(&name));
        }
        // It is committed before what it tells of.
        let record = self.record_forgotten(&path, &files, user)?;
        let forgotten = self.empty(&files);
        if forgotten.is_err() {
            self.keep(&record, None)?;
        }
        forgotten?;
        Ok(files.len() as u64)
    }

    /// Takes the content of `files` out of the past. Refused as of [`Vfs::forget_history`].
    fn empty(&self, files: &[Ino]) -> Restoring<()> {
        let mut held = None;
        let done = self.change_history(|_, now| {
            held = self.held_with(files, now)?;
            let all = files.iter().map(|ino| HistoryChange::Empty(*ino));
            Ok(if held.is_none() { all.collect() } else { Vec::new() })
        });
        if let Some(name) = held {
            return refused(held_by(&name));
        }
        done?;
        files.iter().for_each(|ino| self.past_content_gone(*ino));
        self.store.reclaim()?;
        Ok(())
    }

    /// The same as [`Vfs::forget_history`], and logs it: for a daemon, whose log tells what became
    /// of its volume.
    pub fn forget_history_by_order(&self, path: &[u8], user: u32) -> Restoring<u64> {
        let count = self.forget_history(path, user)?;
        let path = String::from_utf8_lossy(path);
        tracing::info!("the content of {path} was taken out of history ({count} files), as user {user} asked for");
        Ok(count)
    }

    /// The name of a snapshot that is held at `now` and has one of `files` as of a version of the
    /// past.
    fn held_with(&self, files: &[Ino], now: Timestamp) -> weft_tree::Result<Option<String>> {
        let present = Rows::new(&*self.store, self.store.header()?.commit);
        for pin in self.store.pins()?.into_iter().filter(|pin| pin.held_until.is_some_and(|until| until > now)) {
            let then = Rows::new(&*self.store, pin.commit);
            for ino in files {
                let held = then.inode(*ino)?.map(|(_, since)| since);
                if held.is_some() && held != present.inode(*ino)?.map(|(_, since)| since) {
                    return Ok(Some(String::from_utf8_lossy(&pin.name).into_owned()));
                }
            }
        }
        Ok(None)
    }
}

/// True if the last kept commit that has `path` has a directory there.
fn is_directory(store: &dyn Store, path: &VolumePath) -> Restoring<bool> {
    match last_with(store, path) {
        Ok(last) => Ok(Rows::new(store, last).entry(path.names())?.is_none_or(|entry| entry.kind == Kind::Directory)),
        Err(RestoreError::Refused(_)) => Ok(false),
        Err(failed) => Err(failed),
    }
}

/// The reason that a file stays.
fn held_by(snapshot: &str) -> String {
    format!("snapshot '{snapshot}' is held and has it")
}
