//! Keeping the versions of rows that a commit replaces: statements that copy them where they are,
//! sent before those that change the rows. Nothing comes here but what tells if a row changes at
//! all.

use super::connection::{Call, Parameter};
use super::read::{get, int, unsigned};
use super::statements::history as sql;
use super::write::{Home, Outgoing, ROW_BYTES, column, none};
use crate::batch::{Batch, NameChange};
use crate::error::Result;
use crate::history::fork::forks_until;
use crate::overlay::Changes;
use crate::references::ExtentPlan;
use crate::row::{CommitNo, Ino, InodeRow, NameRow, Timestamp};
use crate::sums;
use rustc_hash::FxHashMap;
use tokio_postgres::Row;
use weft_digest::Digest;

/// The part of an inode's row that tells if another one differs in more than the access time.
#[derive(Clone, Copy, Debug)]
pub(super) struct Age {
    atime: Timestamp,
    pub(super) since: CommitNo,
    sum: i64,
}

impl Age {
    /// That of a row of which columns from `first` on have since and sum.
    pub(super) fn of(row: &Row, atime: usize, first: usize) -> Result<Age> {
        let (since, sum) = (CommitNo(unsigned(row, first)?), get(row, first + 1)?);
        Ok(Age { atime: Timestamp(get(row, atime)?), since, sum })
    }

    /// That of a row which commit `since` puts.
    pub(super) fn new(row: &InodeRow, since: CommitNo, digest: Option<&Digest>) -> Age {
        Age { atime: row.atime, since, sum: sums::inode(row, since, digest) }
    }

    /// True if `row` differs in the access time at most: the sum of the rest is as it was. A row
    /// that is damaged differs.
    pub(super) fn is_of(&self, row: &InodeRow, digest: Option<&Digest>) -> bool {
        let before = InodeRow { atime: self.atime, ..row.clone() };
        sums::inode(&before, self.since, digest) == self.sum
    }
}

/// Takes in rows of [`sql::AGES`].
pub(super) fn take_ages(ages: &mut FxHashMap<Ino, Age>, rows: &[Row]) -> Result<()> {
    rows.iter().try_for_each(|row| {
        ages.insert(Ino(unsigned(row, 0)?), Age::of(row, 1, 2)?);
        Ok(())
    })
}

/// A commit that keeps what it replaces.
pub(super) struct Keeping {
    until: CommitNo,
    /// Forks of all that it can replace.
    forks: Vec<i64>,
}

/// The rows that `batch` replaces.
pub(super) struct Replaced<'a> {
    pub(super) batch: &'a Batch,
    pub(super) changes: &'a Changes,
    pub(super) extents: &'a ExtentPlan<Home>,
    /// Inodes whose rows are put and differ in the access time at most.
    pub(super) same: &'a FxHashMap<Ino, CommitNo>,
    /// Inodes from this one on have no rows yet.
    pub(super) fresh: Ino,
}

impl Keeping {
    pub(super) fn new(until: CommitNo) -> Keeping {
        Keeping { until, forks: forks_until(until).into_iter().map(int).collect() }
    }

    fn until(&self) -> Parameter {
        Box::new(int(self.until.0))
    }

    fn forks(&self) -> Parameter {
        Box::new(self.forks.clone())
    }

    /// The part of the commit in the sum of a version.
    fn added(&self) -> Parameter {
        Box::new(sums::references(int(self.until.0)))
    }

    /// The parameters of statements that file versions by their forks.
    fn filed(&self) -> [Parameter; 3] {
        [self.until(), self.forks(), self.added()]
    }

    /// Keeps all that is replaced.
    pub(super) fn all<S: FnMut(&[Call]) -> Result<()>>(
        &self,
        replaced: &Replaced<'_>,
        out: &mut Outgoing<S>,
    ) -> Result<()> {
        self.inodes(replaced, out)?;
        self.content(replaced, out)?;
        self.extents(replaced.extents, out)?;
        self.names(replaced, out)?;
        self.xattrs(replaced, out)
    }

    fn inodes<S: FnMut(&[Call]) -> Result<()>>(
        &self,
        Replaced { batch, same, fresh, .. }: &Replaced<'_>,
        out: &mut Outgoing<S>,
    ) -> Result<()> {
        let put = batch.put_inodes().map(|row| row.ino).filter(|ino| !same.contains_key(ino));
        let gone = put.chain(batch.removed()).filter(|ino| ino < fresh).map(|ino| int(ino.0)).collect::<Vec<_>>();
        out.add_rows(&gone, none, |gone| {
            Call::new(sql::KEEP_INODES, vec![Box::new(gone.to_vec()), self.until(), self.added()])
        })
    }

    fn content<S: FnMut(&[Call]) -> Result<()>>(
        &self,
        Replaced { batch, changes, fresh, .. }: &Replaced<'_>,
        out: &mut Outgoing<S>,
    ) -> Result<()> {
        // The part of it that depends on the commit from which on it held.
        let shifted = || Box::new(sums::references(1 << sums::CONTENT_SHIFT)) as Parameter;
        let put = batch.put_inodes().map(|row| NewContent::of(row, changes.digest(row.ino)));
        let digests = changes.digests.iter().map(|(ino, digest)| NewContent::digest(*ino, *digest));
        let new = put.chain(digests).filter(|new| new.ino < *fresh).collect::<Vec<_>>();
        out.add_rows(
            &new,
            |new| new.inline.map_or(0, <[u8]>::len),
            |new| {
                let columns = vec![
                    column(new, |new| int(new.ino.0)),
                    column(new, |new| new.digest.map(|digest| digest.to_vec())),
                    column(new, |new| new.length),
                    column(new, |new| new.inline.map(<[u8]>::to_vec)),
                    self.until(),
                    self.added(),
                    shifted(),
                ];
                Call::new(sql::KEEP_CONTENT, columns)
            },
        )?;
        let removed = batch.removed().filter(|ino| ino < fresh).map(|ino| int(ino.0)).collect::<Vec<_>>();
        out.add_rows(&removed, none, |removed| {
            let parameters = vec![Box::new(removed.to_vec()), self.until(), self.added(), shifted()];
            Call::new(sql::KEEP_CONTENT_OF, parameters)
        })
    }

    fn extents<S: FnMut(&[Call]) -> Result<()>>(
        &self,
        extents: &ExtentPlan<Home>,
        out: &mut Outgoing<S>,
    ) -> Result<()> {
        for (ino, range) in &extents.replaced {
            let range = [ino.0, range.start, range.end].map(|number| Box::new(int(number)) as Parameter);
            let parameters = range.into_iter().chain(self.filed()).collect();
            out.add(Call::new(sql::KEEP_EXTENTS, parameters), ROW_BYTES)?;
        }
        self.of_files(sql::KEEP_EXTENTS_OF, &extents.removed, out)
    }

    /// Keeps all rows of a kind that files `inos` have.
    fn of_files<S: FnMut(&[Call]) -> Result<()>>(
        &self,
        statement: &'static str,
        inos: &[Ino],
        out: &mut Outgoing<S>,
    ) -> Result<()> {
        out.add_rows(inos, none, |inos| {
            let inos = column(inos, |ino| int(ino.0));
            Call::new(statement, [inos].into_iter().chain(self.filed()).collect())
        })
    }

    fn names<S: FnMut(&[Call]) -> Result<()>>(
        &self,
        Replaced { batch, fresh, .. }: &Replaced<'_>,
        out: &mut Outgoing<S>,
    ) -> Result<()> {
        out.add_rows(&new_entries(batch, *fresh), none, |entries| {
            let columns = place_columns(entries).into_iter().chain(row_columns(entries));
            Call::new(sql::KEEP_NAMES, columns.chain(self.filed()).collect())
        })
    }

    fn xattrs<S: FnMut(&[Call]) -> Result<()>>(
        &self,
        Replaced { batch, extents, fresh, .. }: &Replaced<'_>,
        out: &mut Outgoing<S>,
    ) -> Result<()> {
        let changed = batch.xattrs.iter().filter(|change| change.ino < *fresh).collect::<Vec<_>>();
        out.add_rows(&changed, none, |changed| {
            let key = [
                column(changed, |change| int(change.ino.0)),
                column(changed, |change| change.name.as_bytes().to_vec()),
            ];
            Call::new(sql::KEEP_XATTRS, key.into_iter().chain(self.filed()).collect())
        })?;
        self.of_files(sql::KEEP_XATTRS_OF, &extents.removed, out)
    }
}

/// The content that a commit gives an inode, as far as it tells if that is other content.
struct NewContent<'a> {
    ino: Ino,
    digest: Option<Digest>,
    /// Length of the content in the row; -1 if the row is not put.
    length: Option<i64>,
    /// That content, where no digest tells if it changes.
    inline: Option<&'a [u8]>,
}

impl NewContent<'_> {
    /// Equal digests are of equal content of equal size, so that with the length they tell if the
    /// row has the same bytes.
    fn of(row: &InodeRow, digest: Option<Digest>) -> NewContent<'_> {
        let inline = row.inline.as_deref();
        let length = inline.map(|inline| int(inline.len() as u64));
        NewContent { ino: row.ino, digest, length, inline: inline.filter(|_| digest.is_none()) }
    }

    fn digest(ino: Ino, digest: Option<Digest>) -> NewContent<'static> {
        NewContent { ino, digest, length: Some(-1), inline: None }
    }
}

/// The place of an entry, and the row that is put there.
pub(super) type NewEntry<'a> = (Ino, &'a [u8], Option<&'a NameRow>);

/// Entries of directories below `fresh` that `batch` puts or removes.
pub(super) fn new_entries(batch: &Batch, fresh: Ino) -> Vec<NewEntry<'_>> {
    let entries = batch.names.iter().map(|change| match change {
        NameChange::Put(row) => (row.parent, row.name.as_bytes(), Some(row)),
        NameChange::Remove { parent, name } => (*parent, name.as_bytes(), None),
    });
    entries.filter(|(parent, ..)| *parent < fresh).collect()
}

/// The columns of the places of entries.
pub(super) fn place_columns(entries: &[NewEntry<'_>]) -> Vec<Parameter> {
    vec![column(entries, |(parent, ..)| int(parent.0)), column(entries, |(_, name, _)| name.to_vec())]
}

/// The columns of entries that are compared with those there are.
pub(super) fn row_columns(entries: &[NewEntry<'_>]) -> Vec<Parameter> {
    vec![
        column(entries, |(.., row)| row.map(|row| int(row.ino.0))),
        column(entries, |(.., row)| row.map(|row| i64::from(row.kind.mode_bits()))),
        column(entries, |(.., row)| row.map(|row| int(row.cookie.0))),
    ]
}
