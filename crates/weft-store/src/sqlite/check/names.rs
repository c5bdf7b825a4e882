//! Rules about directory entries: what they name, that they form a tree, and what directories say
//! of them.

use super::rules::{Rule, rule};
use super::{Checker, failed};
use crate::error::Result;
use rusqlite::OptionalExtension;
use rusqlite::types::Value;

/// Entries of nothing, in nothing, or of the wrong kind.
pub(super) const ENTRIES: &[Rule] = &[
    rule(
        "SELECT parent, name, 'the entry lies in an inode that is not there or no directory' FROM naming \
         WHERE NOT EXISTS (SELECT 1 FROM fileatt f WHERE f.ino = naming.parent AND f.mode & 61440 = 16384)",
        &["DELETE FROM naming WHERE NOT EXISTS \
           (SELECT 1 FROM fileatt f WHERE f.ino = naming.parent AND f.mode & 61440 = 16384)"],
    ),
    rule(
        // `gone` reports other kinds, and rebuilds directories whose number is one.
        "SELECT parent, name, printf('the entry names inode %d, which is not there', ino) FROM naming \
         WHERE kind = 16384 AND NOT EXISTS (SELECT 1 FROM fileatt f WHERE f.ino = naming.ino)",
        &["DELETE FROM naming WHERE kind = 16384 \
           AND NOT EXISTS (SELECT 1 FROM fileatt f WHERE f.ino = naming.ino)"],
    ),
    rule(
        "SELECT parent, name, 'the entry names the root directory' FROM naming WHERE ino = 1",
        &["DELETE FROM naming WHERE ino = 1"],
    ),
    rule(
        "SELECT n.parent, n.name, printf('the entry says kind %o, the inode %o', n.kind, f.mode & 61440) \
         FROM naming n JOIN fileatt f ON f.ino = n.ino WHERE n.kind <> f.mode & 61440",
        &["UPDATE naming SET kind = (SELECT mode & 61440 FROM fileatt f WHERE f.ino = naming.ino), \
           since = (SELECT number + 1 FROM volume) \
           WHERE kind <> (SELECT mode & 61440 FROM fileatt f WHERE f.ino = naming.ino)"],
    ),
    rule(
        "SELECT parent, CAST('#name-' || cookie AS BLOB), 'its name was no name a file can have' FROM naming \
         WHERE typeof(name) <> 'blob' OR length(name) NOT BETWEEN 1 AND 255 OR name IN (x'2e', x'2e2e') \
         OR instr(name, x'2f') > 0 OR instr(name, x'00') > 0",
        &["UPDATE OR REPLACE naming SET name = CAST('#name-' || cookie AS BLOB) \
           WHERE typeof(name) <> 'blob' OR length(name) NOT BETWEEN 1 AND 255 OR name IN (x'2e', x'2e2e') \
           OR instr(name, x'2f') > 0 OR instr(name, x'00') > 0"],
    ),
    rule(
        "SELECT parent, name, printf('position %d in the directory is taken twice or reserved', cookie) \
         FROM naming n WHERE cookie < 3 OR EXISTS \
         (SELECT 1 FROM naming m INDEXED BY naming_order WHERE m.parent = n.parent AND m.cookie = n.cookie AND m.ino < n.ino) OR EXISTS \
         (SELECT 1 FROM naming m INDEXED BY naming_order WHERE m.parent = n.parent AND m.cookie = n.cookie AND m.ino = n.ino AND m.name < n.name)",
        &[
            "CREATE TEMP TABLE moved AS SELECT parent, name, row_number() OVER (ORDER BY parent, name) - 1 \
             + (SELECT next_id FROM volume) AS cookie FROM naming n WHERE cookie < 3 OR EXISTS \
             (SELECT 1 FROM naming m INDEXED BY naming_order WHERE m.parent = n.parent AND m.cookie = n.cookie AND m.ino < n.ino) OR EXISTS \
             (SELECT 1 FROM naming m INDEXED BY naming_order WHERE m.parent = n.parent AND m.cookie = n.cookie AND m.ino = n.ino AND m.name < n.name)",
            "UPDATE naming SET cookie = moved.cookie FROM moved \
             WHERE naming.parent = moved.parent AND naming.name = moved.name",
            "UPDATE volume SET next_id = next_id + (SELECT count(*) FROM moved); DROP TABLE moved",
        ],
    ),
    rule(
        "SELECT parent, name, 'the directory has another name already' FROM naming n \
         WHERE kind = 16384 AND EXISTS (SELECT 1 FROM reached r WHERE r.ino = n.ino \
         AND (r.parent, r.name) <> (n.parent, n.name))",
        &["DELETE FROM naming WHERE kind = 16384 AND EXISTS (SELECT 1 FROM reached r WHERE r.ino = naming.ino \
           AND (r.parent, r.name) <> (naming.parent, naming.name))"],
    ),
];

/// Rules for the names that inodes record.
pub(super) const LINKS: &[Rule] = &[
    rule(
        "SELECT f.ino, NULL, printf('it says its directory is inode %d, which is %d', f.parent, r.parent) \
         FROM fileatt f JOIN reached r ON r.ino = f.ino WHERE f.mode & 61440 = 16384 AND f.parent <> r.parent",
        &["UPDATE fileatt SET parent = (SELECT parent FROM reached r WHERE r.ino = fileatt.ino), \
           since = (SELECT number + 1 FROM volume) WHERE mode & 61440 = 16384 \
           AND EXISTS (SELECT 1 FROM reached r WHERE r.ino = fileatt.ino AND r.parent <> fileatt.parent)"],
    ),
    rule(
        "SELECT ino, NULL, 'it says what directory it is in, which only directories do' \
         FROM fileatt WHERE mode & 61440 <> 16384 AND parent <> 0",
        &["UPDATE fileatt SET parent = 0 WHERE mode & 61440 <> 16384 AND parent <> 0"],
    ),
    rule(
        "SELECT f.ino, NULL, printf('it has %d names, its link count is %d', n.names, f.nlink) \
         FROM fileatt f JOIN names_of n ON n.ino = f.ino WHERE f.mode & 61440 <> 16384 AND f.nlink <> n.names",
        &["UPDATE fileatt SET nlink = (SELECT names FROM names_of n WHERE n.ino = fileatt.ino) \
           WHERE mode & 61440 <> 16384 AND ino IN (SELECT ino FROM names_of)"],
    ),
    rule(
        "SELECT f.ino, NULL, printf('its link count is %d and should be %d', f.nlink, 2 + coalesce(d.directories, 0)) \
         FROM fileatt f JOIN reached r ON r.ino = f.ino LEFT JOIN in_directory d ON d.ino = f.ino \
         WHERE f.mode & 61440 = 16384 AND f.nlink <> 2 + coalesce(d.directories, 0)",
        &[
            "UPDATE fileatt SET nlink = 2 + coalesce((SELECT directories FROM in_directory d WHERE d.ino = fileatt.ino), 0) \
           WHERE mode & 61440 = 16384 AND ino IN (SELECT ino FROM reached)",
        ],
    ),
    rule(
        "SELECT f.ino, NULL, printf('it has %d entries and says %d', coalesce(d.entries, 0), f.size) \
         FROM fileatt f LEFT JOIN in_directory d ON d.ino = f.ino \
         WHERE f.mode & 61440 = 16384 AND f.size <> coalesce(d.entries, 0)",
        &["UPDATE fileatt SET size = coalesce((SELECT entries FROM in_directory d WHERE d.ino = fileatt.ino), 0) \
           WHERE mode & 61440 = 16384"],
    ),
];

/// All that the root leads to, each by its shortest path. UNION ends at entries met before, so that
/// a cycle ends too; an inode comes after the directory it is entered with, so that `reached`
/// itself has no cycle.
pub(super) const REACH: &str = "
DELETE FROM reached;
INSERT OR IGNORE INTO reached
    WITH RECURSIVE tree (ino, parent, name) AS (
        SELECT 1, 1, x''
        UNION
        SELECT n.ino, n.parent, n.name FROM tree JOIN naming n ON n.parent = tree.ino
    )
    SELECT ino, parent, name FROM tree;
";

/// Names of directories that agree with the directory's own row, where `reached` has another.
const OWN_NAMES: &str = "SELECT n.ino, n.parent, n.name FROM naming n JOIN fileatt f ON f.ino = n.ino \
    JOIN reached r ON r.ino = n.ino WHERE n.kind = 16384 AND n.parent = f.parent AND r.parent <> n.parent";

pub(super) const COUNT: &str = "
DELETE FROM names_of;
INSERT INTO names_of SELECT ino, count(*) FROM naming GROUP BY ino;
DELETE FROM in_directory;
INSERT INTO in_directory SELECT parent, count(*), sum(kind = 16384) FROM naming GROUP BY parent;
";

impl Checker<'_> {
    /// The entries. Ends with `reached` as they are.
    pub(super) fn names(&mut self) -> Result<()> {
        self.reach()?;
        self.own_names()?;
        if self.apply_rules(ENTRIES)? > 0 {
            self.reach()?;
        }
        self.count_names()
    }

    /// Applies [`LINKS`], once no name changes any more.
    pub(super) fn links(&mut self) -> Result<()> {
        self.apply_rules(LINKS).map(|_| ())
    }

    pub(super) fn count_names(&self) -> Result<()> {
        self.connection.execute_batch(COUNT).map_err(failed)
    }

    pub(super) fn reach(&self) -> Result<()> {
        self.connection.execute_batch(REACH).map_err(failed)
    }

    /// Gives a directory with several names the one that its row tells of, unless it then lay in
    /// itself.
    fn own_names(&self) -> Result<()> {
        let mut statement = self.connection.prepare(OWN_NAMES).map_err(failed)?;
        let read =
            |row: &rusqlite::Row<'_>| Ok((row.get::<_, i64>(0)?, row.get::<_, i64>(1)?, row.get::<_, Value>(2)?));
        let found = statement.query_map((), read).map_err(failed)?;
        for (ino, parent, name) in found.collect::<rusqlite::Result<Vec<_>>>().map_err(failed)? {
            if !self.lies_in(parent, ino)? {
                let own = "UPDATE reached SET parent = ?2, name = ?3 WHERE ino = ?1";
                self.connection.execute(own, (ino, parent, name)).map_err(failed)?;
            }
        }
        Ok(())
    }

    /// True if `reached` leads to `ino` by way of `directory`, or not at all.
    fn lies_in(&self, ino: i64, directory: i64) -> Result<bool> {
        let mut statement =
            self.connection.prepare_cached("SELECT parent FROM reached WHERE ino = ?1").map_err(failed)?;
        let mut at = ino;
        while at != 1 {
            if at == directory {
                return Ok(true);
            }
            let Some(parent) = statement.query_row((at,), |row| row.get(0)).optional().map_err(failed)? else {
                return Ok(true);
            };
            at = parent;
        }
        Ok(directory == 1)
    }
}
