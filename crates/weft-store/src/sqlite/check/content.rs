//! Rules about what inodes hold: content in their row or in blocks, and extended attributes.

use super::rules::{Rule, rule};
use super::{Checker, failed};
use crate::error::Result;

pub(super) const RULES: &[Rule] = &[
    rule(
        "SELECT f.ino, NULL, 'it has blocks, which only files have' FROM content_of c JOIN fileatt f ON f.ino = c.ino \
         WHERE f.mode & 61440 <> 32768",
        &[],
    ),
    rule(
        "SELECT f.ino, NULL, 'it has blocks beside content in its row' FROM content_of c \
         JOIN fileatt f ON f.ino = c.ino WHERE f.inline IS NOT NULL",
        &[],
    ),
    rule(
        "SELECT ino, NULL, 'its row has content, which only files and links have' FROM fileatt \
         WHERE inline IS NOT NULL AND mode & 61440 NOT IN (32768, 40960, 45056)",
        &[],
    ),
    rule(
        "SELECT ino, NULL, 'the link has no target' FROM fileatt \
         WHERE mode & 61440 IN (40960, 45056) AND coalesce(length(inline), 0) = 0",
        &[],
    ),
    rule(
        "SELECT ino, NULL, printf('its target has %d bytes, its size is %d', length(inline), size) FROM fileatt \
         WHERE mode & 61440 IN (40960, 45056) AND size <> length(inline)",
        &["UPDATE fileatt SET size = length(inline), since = (SELECT number + 1 FROM volume) \
           WHERE mode & 61440 IN (40960, 45056) AND size <> length(inline)"],
    ),
    rule(
        "SELECT ino, NULL, printf('its row holds %d bytes of content, more than the threshold', length(inline)) \
         FROM fileatt WHERE mode & 61440 = 32768 AND length(inline) > (SELECT inline_max FROM volume)",
        &[],
    ),
    rule(
        "SELECT ino, NULL, printf('its row holds %d bytes of content, its size is %d', length(inline), size) \
         FROM fileatt WHERE mode & 61440 = 32768 AND length(inline) > size",
        &["UPDATE fileatt SET size = length(inline), since = (SELECT number + 1 FROM volume) \
           WHERE mode & 61440 = 32768 AND length(inline) > size"],
    ),
    rule(
        "SELECT ino, NULL, printf('an extent of %s bytes at byte %s is none that a file can have', e.length, e.start) \
         FROM volume v CROSS JOIN extents e WHERE typeof(e.start) <> 'integer' OR typeof(e.length) <> 'integer' \
         OR e.length NOT BETWEEN 4096 AND v.block_size OR e.length & (e.length - 1) <> 0 \
         OR e.start < 0 OR e.start % e.length <> 0",
        &[],
    ),
    rule(
        "SELECT ino, NULL, printf('its extent at byte %d covers that at byte %d', start, next) FROM \
         (SELECT ino, start, length, lead(start) OVER (PARTITION BY ino ORDER BY start) AS next FROM extents) \
         WHERE next < start + length",
        &[],
    ),
    rule(
        "SELECT ino, NULL, printf('%d of its blocks are longer than the extents that name them', longer) \
         FROM content_of WHERE longer > 0",
        &[],
    ),
    rule(
        "SELECT f.ino, NULL, printf('its blocks reach byte %d, its size is %d', c.end, f.size) \
         FROM content_of c JOIN fileatt f ON f.ino = c.ino WHERE f.mode & 61440 = 32768 AND c.end > f.size",
        &["UPDATE fileatt SET size = (SELECT end FROM content_of c WHERE c.ino = fileatt.ino), \
           since = (SELECT number + 1 FROM volume) WHERE mode & 61440 = 32768 \
           AND size < (SELECT end FROM content_of c WHERE c.ino = fileatt.ino)"],
    ),
    rule(
        "SELECT f.ino, NULL, printf('it stores %d bytes and says %d', \
         coalesce(length(f.inline), 0) + coalesce(c.bytes, 0), f.allocated) \
         FROM fileatt f LEFT JOIN content_of c ON c.ino = f.ino \
         WHERE f.allocated <> coalesce(length(f.inline), 0) + coalesce(c.bytes, 0)",
        &["UPDATE fileatt SET allocated = coalesce(length(inline), 0) \
           + coalesce((SELECT bytes FROM content_of c WHERE c.ino = fileatt.ino), 0)"],
    ),
    rule(
        "SELECT ino, NULL, printf('attribute %s has no inode', CAST(name AS TEXT)) FROM xattr \
         WHERE NOT EXISTS (SELECT 1 FROM fileatt f WHERE f.ino = xattr.ino)",
        &["DELETE FROM xattr WHERE NOT EXISTS (SELECT 1 FROM fileatt f WHERE f.ino = xattr.ino)"],
    ),
    rule(
        "SELECT ino, NULL, 'it has an attribute of a name or value that no Weft writes' FROM xattr \
         WHERE typeof(name) <> 'blob' OR length(name) NOT BETWEEN 1 AND 255 OR instr(name, x'00') > 0 \
         OR typeof(value) <> 'blob'",
        &[],
    ),
    rule(
        // Fewer are damage, and told before.
        "SELECT f.ino, NULL, printf('it has %d extended attributes, and its row says %d', x.n, f.xattrs) \
         FROM (SELECT ino, count(*) AS n FROM xattr GROUP BY ino) x JOIN fileatt f ON f.ino = x.ino WHERE f.xattrs < x.n",
        &["UPDATE fileatt SET xattrs = (SELECT count(*) FROM xattr x WHERE x.ino = fileatt.ino) \
           WHERE xattrs < (SELECT count(*) FROM xattr x WHERE x.ino = fileatt.ino)"],
    ),
];

pub(super) const SUM: &str = "
INSERT INTO content_of
    SELECT e.ino, sum(coalesce(b.length, 0)), max(e.start + coalesce(b.length, 1)), 
        coalesce(sum(b.length > e.length), 0)
    FROM extents e LEFT JOIN blocks b ON b.id = e.block
    WHERE typeof(e.start) = 'integer' AND e.start BETWEEN 0 AND 9223372036854775807 - coalesce(b.length, 1)
    GROUP BY e.ino;
";

impl Checker<'_> {
    pub(super) fn content(&mut self) -> Result<()> {
        self.connection.execute_batch(SUM).map_err(failed)?;
        self.apply_rules(RULES).map(|_| ())
    }
}
