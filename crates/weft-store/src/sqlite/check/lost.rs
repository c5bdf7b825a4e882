//! Inodes that no name leads to any more: each gets a name in `/lost+found`.

use super::{Checker, failed};
use crate::error::Result;
use crate::row::{CommitNo, Cookie, Ino, InodeRow, NameRow, Span, Timestamp};
use crate::sqlite::put::{put_inode, put_name};
use crate::sqlite::read::{self, sql};
use crate::store::Header;
use crate::{Error, Name};
use rusqlite::OptionalExtension;
use weft_digest::Kind;

/// Inodes of no name that are no orphans, or orphans that hold entries.
const NAMELESS: &str = "SELECT ino FROM fileatt f WHERE ino <> 1 \
    AND ino NOT IN (SELECT ino FROM reached) AND ino NOT IN (SELECT ino FROM names_of) \
    AND (nlink > 0 OR ino IN (SELECT ino FROM in_directory)) ORDER BY ino";

/// Selects an inode that still is not reached: it lies in a cycle of directories.
const IN_CYCLE: &str = "SELECT f.ino FROM fileatt f JOIN names_of n ON n.ino = f.ino \
    WHERE f.ino NOT IN (SELECT ino FROM reached) ORDER BY f.mode & 61440 <> 16384, f.ino LIMIT 1";

impl Checker<'_> {
    /// Finds inodes that nothing leads to, and moves them to lost+found. Ends with `reached` as it
    /// then is.
    pub(super) fn lost(&mut self, header: &Header) -> Result<()> {
        self.lost_rows(header)?;
        self.lost_blocks(header)?;
        loop {
            let nameless = self.numbers(NAMELESS)?;
            for ino in &nameless {
                let place = self.rescue(*ino, header)?;
                self.find(*ino, format!("no name leads to inode {ino}; its place is {place}"), self.repaired())?;
            }
            if nameless.is_empty() {
                let Some(ino) = self.numbers(IN_CYCLE)?.first().copied() else { return Ok(()) };
                self.connection.execute("DELETE FROM naming WHERE ino = ?1", (ino,)).map_err(failed)?;
                let place = self.rescue(ino, header)?;
                self.find(ino, format!("directory {ino} lies in itself; its place is {place}"), self.repaired())?;
            }
            self.reach()?;
            self.count_names()?;
        }
    }

    pub(super) fn numbers(&self, statement: &str) -> Result<Vec<i64>> {
        let mut statement = self.connection.prepare_cached(statement).map_err(failed)?;
        let rows = statement.query_map((), |row| row.get(0)).map_err(failed)?;
        rows.collect::<rusqlite::Result<_>>().map_err(failed)
    }

    /// Makes rows for files whose row is gone but whose blocks are there.
    fn lost_rows(&mut self, header: &Header) -> Result<()> {
        let lost = self.numbers("SELECT DISTINCT ino FROM extents WHERE ino NOT IN (SELECT ino FROM fileatt)")?;
        for ino in lost {
            let what = format!(
                "the row of inode {ino} is gone, its content is not, as far as blocks of it are known: where none is there \
                 are zeros, which may have been a hole or may be lost"
            );
            self.find(ino, what, self.repaired())?;
            self.make_file(ino, header)?;
        }
        Ok(())
    }

    /// Makes a file of blocks that no file names, in the order they were written.
    fn lost_blocks(&mut self, header: &Header) -> Result<()> {
        let lost = self.numbers(
            "SELECT id FROM blocks WHERE id NOT IN (SELECT block FROM extents) \
             AND id NOT IN (SELECT block FROM extents_history) ORDER BY id",
        )?;
        if lost.is_empty() {
            return Ok(());
        }
        let ino = self.next_id()?;
        let what = format!("{} blocks belong to no file; together they are inode {ino}", lost.len());
        self.findings.push(super::Finding::new(None, what, self.repaired()));
        let statement = "INSERT INTO extents (ino, start, length, block, since) VALUES (?1, ?2, ?3, ?4, ?5)";
        for (index, block) in lost.into_iter().enumerate() {
            let Span { start, length } = Span::of_block(index as u64, header.options.block_size);
            let values = (ino, sql(start), length, block, sql(header.commit.next().0));
            self.connection.prepare_cached(statement).map_err(failed)?.execute(values).map_err(failed)?;
            self.connection.execute("UPDATE blocks SET refs = 1 WHERE id = ?1", (block,)).map_err(failed)?;
        }
        self.make_file(ino, header)
    }

    /// Makes a row for a file whose extents alone are known, and names perhaps.
    pub(super) fn make_file(&self, ino: i64, header: &Header) -> Result<()> {
        let statement = "SELECT max(e.start + coalesce(b.length, 1)), sum(coalesce(b.length, 0)), \
                         max((SELECT count(*) FROM naming n WHERE n.ino = ?1), 1), \
                         (SELECT count(*) FROM xattr x WHERE x.ino = ?1) \
                         FROM extents e LEFT JOIN blocks b ON b.id = e.block WHERE e.ino = ?1";
        let read =
            |row: &rusqlite::Row<'_>| Ok((read::unsigned(row, 0)?, read::unsigned(row, 1)?, row.get(2)?, row.get(3)?));
        let (size, allocated, nlink, xattrs) = self.connection.query_row(statement, (ino,), read).map_err(failed)?;
        let row = InodeRow {
            kind: Kind::File,
            permissions: 0o600,
            nlink,
            parent: Ino(0),
            size,
            allocated,
            xattrs,
            ..self.new_row(ino)?
        };
        put_inode(&self.connection, header.commit.next(), &row, None)
    }

    pub(super) fn new_row(&self, ino: i64) -> Result<InodeRow> {
        let time = "SELECT coalesce((SELECT max(time) FROM commits), created) FROM volume";
        let time = self.connection.query_row(time, (), |row| row.get(0)).map_err(failed)?;
        Ok(InodeRow { ino: number(ino)?, permissions: 0o700, ..InodeRow::new_root(0, 0, Timestamp(time)) })
    }

    fn next_id(&self) -> Result<i64> {
        let statement = "UPDATE volume SET next_id = next_id + 1 RETURNING next_id - 1";
        self.connection.query_row(statement, (), |row| row.get(0)).map_err(failed)
    }

    /// Names inode `ino` in lost+found. Returns its path.
    fn rescue(&mut self, ino: i64, header: &Header) -> Result<String> {
        let commit = header.commit.next();
        let (home, directory) = self.lost_and_found(commit)?;
        let mode = "SELECT mode FROM fileatt WHERE ino = ?1";
        let mode = self.connection.query_row(mode, (ino,), |row| row.get(0)).map_err(failed)?;
        let kind = Kind::from_mode(mode).ok_or_else(|| Error::Corrupt(format!("inode {ino} is of no kind")))?;
        let name = Name::new(format!("#{ino}").as_bytes()).expect("short, and without a slash");
        let name = self.free_name(home, &name)?;
        let [directory, last] = [&directory, &name].map(|name| String::from_utf8_lossy(name.as_bytes()).into_owned());
        self.link(commit, &NameRow { parent: number(home)?, name, ino: number(ino)?, kind, cookie: Cookie(0) })?;
        Ok(format!("/{directory}/{last}"))
    }

    /// Adds the entry `row`, with a new cookie, and counts it in its directory and its inode.
    fn link(&self, commit: CommitNo, row: &NameRow) -> Result<()> {
        let cookie = Cookie(number(self.next_id()?)?.0);
        put_name(&self.connection, commit, &NameRow { cookie, ..row.clone() }, None)?;
        let (parent, ino, is_directory) = (sql(row.parent.0), sql(row.ino.0), row.kind == Kind::Directory);
        let directory = "UPDATE fileatt SET size = size + 1, nlink = nlink + ?2, since = ?3 WHERE ino = ?1";
        self.connection.execute(directory, (parent, is_directory, sql(commit.0))).map_err(failed)?;
        let inode = match row.kind {
            Kind::Directory => "UPDATE fileatt SET parent = ?2, since = ?3, nlink = max(nlink, 2) WHERE ino = ?1",
            _ => "UPDATE fileatt SET nlink = 1, parent = 0 * ?2, since = ?3 WHERE ino = ?1",
        };
        self.connection.execute(inode, (ino, parent, sql(commit.0))).map_err(failed)?;
        Ok(())
    }

    /// `name`, or with a number after it if the directory `parent` has it already.
    fn free_name(&self, parent: i64, name: &Name) -> Result<Name> {
        let mut names = (0..).map(|number| numbered(name, number));
        loop {
            let candidate = names.next().expect("numbers enough");
            if self.entry(parent, &candidate)?.is_none() {
                return Ok(candidate);
            }
        }
    }

    /// The inode that `name` in `parent` leads to, and true if that is a directory.
    fn entry(&self, parent: i64, name: &Name) -> Result<Option<(i64, bool)>> {
        let entry = "SELECT n.ino, coalesce(f.mode & 61440 = 16384, 0) FROM naming n \
                     LEFT JOIN fileatt f ON f.ino = n.ino WHERE n.parent = ?1 AND n.name = ?2";
        let read = |row: &rusqlite::Row<'_>| Ok((row.get(0)?, row.get(1)?));
        self.connection.query_row(entry, (parent, name.as_bytes()), read).optional().map_err(failed)
    }

    /// The directory /lost+found, or the next name that is no file's, and that name. Made if there
    /// is none.
    fn lost_and_found(&mut self, commit: CommitNo) -> Result<(i64, Name)> {
        let usual = Name::new(b"lost+found").expect("a valid name");
        let mut names = (0..).map(|number| numbered(&usual, number));
        let name = loop {
            let name = names.next().expect("numbers enough");
            match self.entry(1, &name)? {
                Some((ino, true)) => return Ok((ino, name)),
                Some((_, false)) => {}
                None => break name,
            }
        };
        let ino = self.next_id()?;
        let row = InodeRow { permissions: 0o700, ..self.new_row(ino)? };
        put_inode(&self.connection, commit, &row, None)?;
        let counted = "UPDATE volume SET inodes_used = inodes_used + 1";
        self.connection.execute(counted, ()).map_err(failed)?;
        let kind = Kind::Directory;
        let entry = NameRow { parent: Ino::ROOT, name: name.clone(), ino: row.ino, kind, cookie: Cookie(0) };
        self.link(commit, &entry)?;
        Ok((ino, name))
    }
}

/// `name` with `number` after it, unless that is 0.
fn numbered(name: &Name, number: u32) -> Name {
    let mut bytes = name.as_bytes().to_vec();
    if number > 0 {
        bytes.extend_from_slice(format!(".{number}").as_bytes());
    }
    Name::new(&bytes).expect("short, and without a slash")
}

fn number(ino: i64) -> Result<Ino> {
    u64::try_from(ino).map(Ino).map_err(|_| Error::Corrupt(format!("inode number {ino}")))
}
