//! The trees of commits that are kept, as a volume tells them: to compare other readers with.

use crate::run::Driver;
use std::sync::Arc;
use weft_digest::hex;
use weft_store::{At, CommitNo, RowStore};
use weft_vfs::{Caller, Cookie, Ino, Kind, Options, Vfs};

impl Driver {
    /// The tree of each commit that was noted, as a volume of that moment tells it: for each entry
    /// a line with path, inode, kind, permissions, owner, group, links, size and digest, in their
    /// order. Bytes of names are [`escaped`].
    pub fn kept_trees(&self) -> Result<Vec<(CommitNo, Vec<String>)>, String> {
        let commits = self.kept_commits();
        commits.into_iter().map(|commit| Ok((commit, self.kept_tree(commit)?))).collect()
    }

    fn kept_tree(&self, commit: CommitNo) -> Result<Vec<String>, String> {
        let at = Arc::new(At::new(self.store(), commit).map_err(|error| error.to_string())?);
        let options = Options { read_only: true, background: false, ..Options::default() };
        let then = Vfs::open(at.clone(), None, options, self.clock()).map_err(|error| error.to_string())?;
        let mut reader = Reader { at: &at, then: &then, lines: Vec::new() };
        reader.add("/".into(), Ino::ROOT).map_err(|error| error.to_string())?;
        reader.lines.sort();
        Ok(reader.lines)
    }
}

/// A volume of then, and what it has told.
struct Reader<'a> {
    at: &'a At,
    then: &'a Vfs,
    lines: Vec<String>,
}

impl Reader<'_> {
    fn add(&mut self, path: String, ino: Ino) -> weft_vfs::Result<()> {
        let found = self.then.attributes(ino)?;
        let digest = self.at.digest(ino)?.map(|digest| hex(&digest)).unwrap_or_default();
        self.lines.push(format!(
            "{path} {} {} {:04o} {} {} {} {} {digest}",
            ino.0,
            name(found.kind),
            found.permissions,
            found.uid,
            found.gid,
            found.nlink,
            found.size
        ));
        if found.kind != Kind::Directory {
            return Ok(());
        }
        for entry in self.then.read_directory(ino, Cookie(0), usize::MAX)? {
            let below = format!("{}/{}", path.trim_end_matches('/'), escaped(entry.name.as_bytes()));
            let found = self.then.lookup(Caller::ROOT, ino, entry.name.as_bytes())?;
            self.add(below, found.ino)?;
        }
        Ok(())
    }
}

/// Bytes as PostgreSQL's `encode(…, 'escape')` writes them.
pub fn escaped(bytes: &[u8]) -> String {
    let letter = |byte: &u8| match byte {
        0 | 128.. => format!("\\{byte:03o}"),
        b'\\' => "\\\\".into(),
        plain => char::from(*plain).to_string(),
    };
    bytes.iter().map(letter).collect()
}

/// The word for a kind in SQL.
fn name(kind: Kind) -> &'static str {
    match kind {
        Kind::File => "file",
        Kind::Directory => "directory",
        Kind::Symlink => "symlink",
        Kind::Fifo => "fifo",
        Kind::Socket => "socket",
        Kind::CharDevice => "char device",
        Kind::BlockDevice => "block device",
        _ => "transformation",
    }
}
