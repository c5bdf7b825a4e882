//! Every statement that is sent, in the part of SQL that engines which speak PostgreSQL's protocol
//! share (a test holds them to it). Those that most reads need say `OF_VOLUME AND`, for which
//! [`super::identity`] has a condition.

use super::settings::is_durable;

macro_rules! statements {
    ($($(#[$doc:meta])* $name:ident = $text:expr;)*) => {
        $($(#[$doc])* pub(in crate::postgres) const $name: &str = $text;)*

        #[cfg(test)]
        pub(super) const ALL: &[(&str, &str)] = &[$((stringify!($name), $text)),*];
    };
}

pub(super) mod history;

/// The volume's row, if the volume is $7, has commit $8, and has the record of operations $9 to
/// $10, or a commit that contains them. No record was put before if $9 is null.
macro_rules! stands_on_all {
    () => {
        "SELECT 1 FROM volume v WHERE v.id = 1 AND v.uuid = $7 AND v.number >= $8::bigint \
         AND ($9::bigint IS NULL OR v.op >= $10::bigint OR EXISTS (SELECT 1 FROM intents i \
         WHERE i.epoch = $2::bigint AND i.first = $9::bigint AND i.last = $10::bigint))"
    };
}

/// Selects extents of a file, with the blocks whose owner is $owner.
macro_rules! extents {
    ($owner:literal) => {
        concat!(
            "SELECT e.ino, e.start, e.block, e.owner, b.length, b.base, b.value, b.bytes IS NULL, b.refs, b.sum, e.since, e.sum, e.length \
             FROM extents e LEFT JOIN blocks b ON b.owner = ",
            $owner,
            " AND b.id = e.block WHERE OF_VOLUME AND e.ino = $1 AND e.start >= $2 AND e.start < $3 ORDER BY e.start"
        )
    };
}

/// The same of several files, with the bytes of short blocks in the first 128 KiB of each.
macro_rules! extents_ahead {
    ($owner:literal) => {
        concat!(
            "SELECT e.ino, e.start, e.block, e.owner, b.length, b.base, b.value, b.bytes IS NULL, b.refs, b.sum, e.since, e.sum, e.length, \
             CASE WHEN e.start < 131072 AND b.length <= $3 THEN b.bytes END \
             FROM extents e LEFT JOIN blocks b ON b.owner = ",
            $owner,
            " AND b.id = e.block WHERE OF_VOLUME AND e.ino >= $1 AND e.ino <= $2 ORDER BY e.ino, e.start LIMIT $4"
        )
    };
}

/// Bytes that a file's blocks hold by its row, and those of blocks whose rows lie in it, with the
/// blocks whose owner is $owner; the length of others is not known, and taken to be that of the
/// extent.
macro_rules! missing_blocks {
    ($owner:literal) => {
        concat!(
            "SELECT f.allocated, \
             CAST(coalesce(sum(CASE WHEN e.ino IS NULL THEN 0 ELSE coalesce(b.length, e.length) END), 0) AS bigint) \
             FROM fileatt f LEFT JOIN extents e ON e.ino = f.ino AND e.start >= 0 \
             AND e.start < f.size LEFT JOIN blocks b ON b.owner = ",
            $owner,
            " AND b.id = e.block WHERE OF_VOLUME AND f.ino = $1 AND f.inline IS NULL GROUP BY f.ino, f.allocated"
        )
    };
}

statements! {
    FORMAT = "SELECT format FROM volume WHERE id = 1";
    HEADER = "SELECT format, created, block_size, inline_max, bytes_max, inodes_max, digests, number, op, next_id, next_block, epoch, \
              bytes_used, inodes_used, own_table_from, uuid, sum FROM volume WHERE id = 1";
    NUMBER = "SELECT v.number, l.epoch FROM volume v, lease l WHERE v.id = 1 AND l.id = 1";
    /// Fails unless this is volume $1.
    REFUSE_OTHER = "SELECT 1 / count(*) FROM volume WHERE id = 1 AND uuid = $1";
    /// Fails where a table is distributed and one of the nodes that have it is away.
    REACH = "SELECT ino FROM fileatt LIMIT 1";

    INODES = "SELECT ino, generation, mode, uid, gid, nlink, rdev, size, allocated, atime, mtime, ctime, btime, parent, xattrs, inline, \
              since, sum FROM fileatt WHERE OF_VOLUME AND ino >= $1 ORDER BY ino LIMIT $2";
    NAME = "SELECT cookie, ino, kind, name, since, sum FROM naming WHERE OF_VOLUME AND parent = $1 AND name = $2";
    NAMES = "SELECT cookie, ino, kind, name, since, sum FROM naming WHERE OF_VOLUME AND parent = $1 AND cookie > $2 ORDER BY cookie LIMIT $3";
    NAMES_AHEAD = "SELECT cookie, ino, kind, name, since, sum, parent FROM naming WHERE OF_VOLUME AND parent >= $1 AND parent <= $2 ORDER BY parent, cookie LIMIT $3";
    /// The limit stands inside: an engine that keeps a directory's entries elsewhere than its
    /// files' rows brings few of them together then.
    LISTED = "SELECT n.cookie, n.ino, n.kind, n.name, n.since, n.sum, n.digest, n.digest_sum, f.mode, f.digest, f.digest_sum \
              FROM (SELECT cookie, ino, kind, name, since, sum, digest, digest_sum FROM naming WHERE OF_VOLUME AND parent = $1 AND cookie > $2 \
              ORDER BY cookie LIMIT $3) n LEFT JOIN fileatt f ON f.ino = n.ino ORDER BY n.cookie";
    EXTENTS = extents!("e.owner");
    EXTENTS_AHEAD = extents_ahead!("e.owner");
    /// For files that lie apart: selects only the file's own blocks, which lie where its extents
    /// do; the others are [`OTHERS_BLOCKS`].
    EXTENTS_APART = extents!("e.ino");
    EXTENTS_AHEAD_APART = extents_ahead!("e.ino");
    EXTENT_FROM_START = "SELECT start FROM extents WHERE OF_VOLUME AND ino = $1 AND start >= $2 AND start < $3 ORDER BY start LIMIT 1 OFFSET $4";
    EXTENT_FROM_END = "SELECT start FROM extents WHERE OF_VOLUME AND ino = $1 AND start >= $2 AND start < $3 ORDER BY start DESC LIMIT 1 OFFSET $4";
    /// Selects extents of a file behind byte $2, with the values that their sums
    /// cover.
    EXTENT_SUMS = "SELECT start, owner, block, since, sum, length FROM extents WHERE OF_VOLUME AND ino = $1 AND start > $2 ORDER BY start LIMIT $3";
    MISSING_BLOCKS = missing_blocks!("e.owner");
    MISSING_BLOCKS_APART = missing_blocks!("e.ino");
    MISSING_NAMES = "SELECT f.size, count(n.cookie) FROM fileatt f LEFT JOIN naming n ON n.parent = f.ino AND n.cookie > 0 \
                     WHERE OF_VOLUME AND f.ino = $1 GROUP BY f.ino, f.size";
    /// Blocks of one file that others name, too; with bytes if they have no more than $3.
    OTHERS_BLOCKS = "SELECT id, length, base, value, bytes IS NULL, refs, sum, CASE WHEN length <= $3 THEN bytes END \
                     FROM blocks WHERE OF_VOLUME AND owner = $1 AND id = ANY($2)";
    /// And a row without a name, which has how many there are by the row of their inode, as of the
    /// same commit.
    XATTRS = "SELECT name, value, since, sum FROM xattr WHERE ino = $1 \
              UNION ALL SELECT NULL, NULL, xattrs, NULL FROM fileatt WHERE OF_VOLUME AND ino = $1 ORDER BY name";
    ORPHANS = "SELECT ino, generation, mode, uid, gid, nlink, rdev, size, allocated, atime, mtime, ctime, btime, parent, xattrs, inline, \
               since, sum FROM fileatt WHERE OF_VOLUME AND nlink = 0 ORDER BY ino";
    COMMITS = "SELECT number, time, op, root_digest, previous_digest, sum FROM commits WHERE OF_VOLUME AND number >= $1 ORDER BY number LIMIT $2";
    BLOCK_COUNT = "SELECT count(*) FROM blocks";
    /// Blocks $4 of a file, from $2 to $3. By the bounds, a plan for any file goes by the numbers
    /// of blocks, too: without them it may be one that reads all rows of a file.
    BYTES = "SELECT id, bytes FROM blocks WHERE OF_VOLUME AND owner = $1 AND id >= $2 AND id <= $3 AND id = ANY($4) ORDER BY id";

    /// Selects inodes without content, which may be much: what lies beside it is not compared with
    /// the sum then.
    DIGEST_INODES = "SELECT ino, generation, mode, uid, gid, nlink, rdev, size, allocated, atime, mtime, ctime, btime, parent, xattrs, \
                     NULL::bytea, since, sum, digest, digest_sum, inline IS NULL FROM fileatt WHERE ino = ANY($1)";
    /// Directories, and files of more than $2 bytes.
    LEAVING = "SELECT ino, generation, mode, uid, gid, nlink, rdev, size, allocated, atime, mtime, ctime, btime, parent, xattrs, \
               NULL::bytea, since, sum, digest, digest_sum, inline IS NULL FROM fileatt \
               WHERE ino = ANY($1) AND ((mode & 61440) = 16384 OR size > $2)";
    NAMES_OF = "SELECT ino, parent, name, digest, digest_sum FROM naming WHERE ino = ANY($1)";
    ENTRIES = "SELECT name, digest, digest_sum FROM naming WHERE parent = $1 AND name >= $2 AND name < $3 ORDER BY name LIMIT $4";
    ENTRIES_TO_END = "SELECT name, digest, digest_sum FROM naming WHERE parent = $1 AND name >= $2 ORDER BY name LIMIT $3";
    ENTRY = "SELECT digest, digest_sum FROM naming WHERE parent = $1 AND name = $2";
    BRANCH = "SELECT children, sum FROM branches WHERE parent = $1 AND prefix = $2";
    NODE = "SELECT children, sum FROM nodes WHERE ino = $1 AND level = $2 AND idx = $3";
    NODES = "SELECT idx FROM nodes WHERE ino = $1 AND level = $2 AND idx >= $3 AND idx < $4 ORDER BY idx";

    BEGIN = "BEGIN";
    /// All that follows sees what one commit left.
    BEGIN_READING = "BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY";
    COMMIT = "COMMIT";
    PUT_INODES = "INSERT INTO fileatt (ino, generation, mode, uid, gid, nlink, rdev, size, allocated, atime, mtime, ctime, btime, parent, \
                  xattrs, since, sum, digest, digest_sum, inline) \
                  SELECT * FROM unnest($1::bigint[], $2::bigint[], $3::bigint[], $4::bigint[], $5::bigint[], $6::bigint[], $7::bigint[], \
                  $8::bigint[], $9::bigint[], $10::bigint[], $11::bigint[], $12::bigint[], $13::bigint[], $14::bigint[], $15::bigint[], \
                  $16::bigint[], $17::bigint[], $18::bytea[], $19::bigint[], $20::bytea[]) \
                  ON CONFLICT (ino) DO UPDATE SET generation = excluded.generation, mode = excluded.mode, uid = excluded.uid, \
                  gid = excluded.gid, nlink = excluded.nlink, rdev = excluded.rdev, size = excluded.size, allocated = excluded.allocated, \
                  atime = excluded.atime, mtime = excluded.mtime, ctime = excluded.ctime, btime = excluded.btime, parent = excluded.parent, \
                  xattrs = excluded.xattrs, since = excluded.since, sum = excluded.sum, digest = excluded.digest, \
                  digest_sum = excluded.digest_sum, inline = excluded.inline";
    SET_DIGESTS = "UPDATE fileatt SET digest = d.digest, digest_sum = d.sum \
                   FROM unnest($1::bigint[], $2::bytea[], $3::bigint[]) AS d (ino, digest, sum) WHERE fileatt.ino = d.ino";
    REMOVE_INODES = "DELETE FROM fileatt WHERE ino = ANY($1)";
    REMOVE_NAMES = "DELETE FROM naming USING unnest($1::bigint[], $2::bytea[]) AS d (parent, name) \
                    WHERE naming.parent = d.parent AND naming.name = d.name";
    PUT_NAMES = "INSERT INTO naming (parent, name, ino, kind, cookie, since, sum, digest, digest_sum) \
                 SELECT * FROM unnest($1::bigint[], $2::bytea[], $3::bigint[], $4::bigint[], $5::bigint[], $6::bigint[], $7::bigint[], \
                 $8::bytea[], $9::bigint[])";
    SET_ENTRIES = "UPDATE naming SET digest = d.digest, digest_sum = d.sum \
                   FROM unnest($1::bigint[], $2::bytea[], $3::bytea[], $4::bigint[]) AS d (parent, name, digest, sum) \
                   WHERE naming.parent = d.parent AND naming.name = d.name";
    /// Extents, with the rows of those of their blocks that are the file's own; of others'
    /// [`OTHERS_REFS`].
    PLACED = "SELECT e.ino, e.start, e.owner, e.block, e.since, e.sum, b.refs, b.length, b.base, b.value, b.sum, b.bytes IS NULL, e.length \
              FROM extents e LEFT JOIN blocks b ON b.owner = e.ino AND b.id = e.block \
              WHERE e.ino = $1 AND e.start >= $2 AND e.start < $3";
    PLACED_OF = "SELECT e.ino, e.start, e.owner, e.block, e.since, e.sum, b.refs, b.length, b.base, b.value, b.sum, b.bytes IS NULL, e.length \
                 FROM extents e LEFT JOIN blocks b ON b.owner = e.ino AND b.id = e.block WHERE e.ino = ANY($1)";
    OTHERS_REFS = "SELECT refs, length, base, value, sum, bytes IS NULL, id FROM blocks WHERE owner = $1 AND id = ANY($2)";
    /// Counts the blocks in a file's own table, up to $2.
    COUNT_OWN = "SELECT count(*) FROM (SELECT id FROM blocks WHERE owner = $1 AND bytes IS NULL LIMIT $2) few";
    /// No inode has a number below 1.
    DROPPED = "SELECT owner FROM dropped WHERE owner > 0 ORDER BY owner";
    KEEP_OWN = "DELETE FROM dropped WHERE owner = $1";
    /// Something that is in need of the own table of file $1.
    NEEDS_OWN = "(SELECT id FROM blocks WHERE owner = $1 AND bytes IS NULL LIMIT 1) UNION ALL \
                 (SELECT e.block FROM extents e WHERE e.ino = $1 AND e.owner = $1 AND NOT EXISTS \
                 (SELECT 1 FROM blocks b WHERE b.owner = $1 AND b.id = e.block) LIMIT 1)";
    ADD_DROPPED = "INSERT INTO dropped (owner) SELECT * FROM unnest($1::bigint[]) ON CONFLICT (owner) DO NOTHING";
    REMOVE_EXTENTS = "DELETE FROM extents WHERE ino = $1 AND start >= $2 AND start < $3";
    REMOVE_EXTENTS_OF = "DELETE FROM extents WHERE ino = ANY($1)";
    PUT_EXTENTS = "INSERT INTO extents (ino, start, length, owner, block, since, sum) \
                   SELECT * FROM unnest($1::bigint[], $2::bigint[], $3::bigint[], $4::bigint[], $5::bigint[], $6::bigint[], $7::bigint[])";
    PUT_BLOCKS = "INSERT INTO blocks (owner, id, refs, length, base, value, sum, bytes) \
                  SELECT * FROM unnest($1::bigint[], $2::bigint[], $3::bigint[], $4::bigint[], $5::bigint[], $6::bytea[], $7::bigint[], \
                  $8::bytea[])";
    COPY_BLOCKS = "COPY blocks (owner, id, refs, length, base, value, sum, bytes) FROM STDIN WITH (FORMAT binary)";
    /// Blocks that lose all their references.
    REMOVE_BLOCKS = "DELETE FROM blocks USING unnest($1::bigint[], $2::bigint[], $3::bigint[]) AS d (owner, id, lost) \
                     WHERE blocks.owner = d.owner AND blocks.id = d.id AND blocks.refs + d.lost <= 0";
    /// Adds to the sum the change of the references, so that damage stays what it is.
    CHANGE_REFS = "UPDATE blocks SET refs = refs + d.more, sum = ((sum & 4611686018427387903) + d.added) & 4611686018427387903 \
                   FROM unnest($1::bigint[], $2::bigint[], $3::bigint[], $4::bigint[]) AS d (owner, id, more, added) \
                   WHERE blocks.owner = d.owner AND blocks.id = d.id";
    PUT_BRANCHES = "INSERT INTO branches (parent, prefix, children, sum) \
                    SELECT * FROM unnest($1::bigint[], $2::bytea[], $3::bytea[], $4::bigint[]) \
                    ON CONFLICT (parent, prefix) DO UPDATE SET children = excluded.children, sum = excluded.sum";
    REMOVE_BRANCHES = "DELETE FROM branches USING unnest($1::bigint[], $2::bytea[]) AS d (parent, prefix) \
                       WHERE branches.parent = d.parent AND branches.prefix = d.prefix";
    CLEAR_BRANCHES = "DELETE FROM branches WHERE parent = ANY($1)";
    PUT_NODES = "INSERT INTO nodes (ino, level, idx, children, sum) \
                 SELECT * FROM unnest($1::bigint[], $2::bigint[], $3::bigint[], $4::bytea[], $5::bigint[]) \
                 ON CONFLICT (ino, level, idx) DO UPDATE SET children = excluded.children, sum = excluded.sum";
    REMOVE_NODES = "DELETE FROM nodes USING unnest($1::bigint[], $2::bigint[], $3::bigint[]) AS d (ino, level, idx) \
                    WHERE nodes.ino = d.ino AND nodes.level = d.level AND nodes.idx = d.idx";
    CLEAR_NODES = "DELETE FROM nodes WHERE ino = $1 AND level = $2 AND idx >= $3";
    REMOVE_XATTRS_OF = "DELETE FROM xattr WHERE ino = ANY($1)";
    REMOVE_XATTRS = "DELETE FROM xattr USING unnest($1::bigint[], $2::bytea[]) AS d (ino, name) WHERE xattr.ino = d.ino AND xattr.name = d.name";
    PUT_XATTRS = "INSERT INTO xattr (ino, name, value, since, sum) \
                  SELECT * FROM unnest($1::bigint[], $2::bytea[], $3::bytea[], $4::bigint[], $5::bigint[]) \
                  ON CONFLICT (ino, name) DO UPDATE SET value = excluded.value, since = excluded.since, sum = excluded.sum";
    SET_COUNTERS = "UPDATE volume SET number = $1::bigint, op = $2, next_id = $3, next_block = $4, epoch = $5, bytes_used = $6, inodes_used = $7, \
                    sum = $8 WHERE id = 1 AND number = $1::bigint - 1";
    /// Fails, as `number` may not be null, unless this daemon holds the lease and the commit
    /// follows the last one. The lock keeps the lease from changing hands before the commit ends.
    ADD_COMMIT = "INSERT INTO commits (number, time, op, root_digest, previous_digest, sum) \
                  VALUES ((SELECT v.number FROM volume v WHERE v.id = 1 AND v.number = $1::bigint \
                  AND EXISTS (SELECT 1 FROM lease l WHERE l.id = 1 AND l.epoch = $2::bigint)), $3, $4, $5, $6, $7)";
    HOLD_LEASE = "SELECT epoch FROM lease WHERE id = 1 FOR UPDATE";
    /// Fails unless this is volume $3, the session is the one that its mark $1 names, if it has
    /// one, and, unless $2 says that this does not matter, the server's settings keep what it
    /// acknowledges. It stands among the statements of a commit.
    REFUSE_WEAK = concat!(
        "SELECT 1 / CASE WHEN EXISTS (SELECT 1 FROM volume WHERE id = 1 AND uuid = $3) \
         AND ($1::text IS NULL OR current_setting('weft.session', true) = $1::text) AND ($2::boolean OR (",
        is_durable!(),
        ")) THEN 1 ELSE 0 END"
    );
    FORGET_COMMITS = "DELETE FROM commits WHERE number <= $1";

    SET_LIMITS = "UPDATE volume SET bytes_max = $1::bigint, inodes_max = $2::bigint WHERE id = 1";
    SET_LAYOUT = "UPDATE volume SET own_table_from = $1::bigint, sum = $2 WHERE id = 1";
    LAST_OWNER = "SELECT coalesce(max(owner), 0) FROM blocks";
    OWNERS = "SELECT DISTINCT owner FROM blocks WHERE owner > $1 ORDER BY owner LIMIT $2";
    /// Blocks of a file that belong in its own table from byte $2 on and are not there, those that
    /// are and do not, and all that are.
    MISPLACED = "SELECT coalesce(sum(CASE WHEN base >= $2::bigint AND bytes IS NOT NULL THEN 1 ELSE 0 END), 0)::bigint, \
                 coalesce(sum(CASE WHEN base < $2::bigint AND bytes IS NULL THEN 1 ELSE 0 END), 0)::bigint, \
                 coalesce(sum(CASE WHEN bytes IS NULL THEN 1 ELSE 0 END), 0)::bigint FROM blocks WHERE owner = $1";
    LIES_ELSEWHERE = "UPDATE blocks SET bytes = NULL WHERE owner = $1 AND base >= $2";

    INTENTS = "SELECT first, last, bytes FROM intents WHERE epoch = $1 AND first > $2 AND first <= $3 ORDER BY first";
    INTENTS_SIZES = "SELECT first, octet_length(bytes)::bigint FROM intents WHERE epoch = $1 AND first > $2 ORDER BY first LIMIT $3";
    /// The row that says that the log of an epoch is there, without operations.
    MARKER = "SELECT last, bytes FROM intents WHERE epoch = $1 AND first = 0";
    /// The row of what the last commit could not store.
    CARRIED = "SELECT last, bytes FROM intents WHERE epoch = $1 AND first = -1";
    INTENTS_UP_TO = "SELECT max(last) FROM intents WHERE epoch = $1 AND first <= $2";
    LATER_INTENT = "SELECT first FROM intents WHERE epoch > $1 AND first > 0 ORDER BY epoch, first LIMIT 1";
    /// Puts nothing unless this daemon holds the lease of volume $7, which cannot change hands
    /// before the end, and the server's settings keep what it acknowledges, unless $3 says that
    /// this does not matter. Nor where commit $8 is gone, or the record before, of operations $9 to
    /// $10: a schema that was brought back to an earlier moment.
    ADD_INTENTS = concat!(
        "INSERT INTO intents (epoch, first, last, bytes) SELECT $2::bigint, d.first, d.last, d.bytes \
         FROM (SELECT epoch FROM lease WHERE id = 1 AND epoch = $1 \
         AND EXISTS (",
        stands_on_all!(),
        ") AND ($3::boolean OR (",
        is_durable!(),
        ")) FOR UPDATE) l \
         CROSS JOIN unnest($4::bigint[], $5::bigint[], $6::bytea[]) AS d (first, last, bytes) RETURNING first"
    );
    /// The same of one record, which most syncs have to put.
    ADD_INTENT = concat!(
        "INSERT INTO intents (epoch, first, last, bytes) SELECT $2::bigint, $4::bigint, $5::bigint, $6::bytea \
         FROM lease WHERE id = 1 AND epoch = $1 \
         AND EXISTS (",
        stands_on_all!(),
        ") AND ($3::boolean OR (",
        is_durable!(),
        ")) FOR UPDATE RETURNING first"
    );
    FORGET_INTENTS = "DELETE FROM intents WHERE last <= $1 AND first > 0 AND epoch >= 0";
    FORGET_CARRIED = "DELETE FROM intents WHERE first = -1 AND epoch >= 0";
    CARRY = "INSERT INTO intents (epoch, first, last, bytes) VALUES ($1, -1, $2, $3)";
    FORGET_EPOCHS = "DELETE FROM intents WHERE epoch >= 0";
    MARK = "INSERT INTO intents (epoch, first, last, bytes) VALUES ($1, 0, 0, $2)";
    /// Rows of negative epochs are nobody's: only a person removes them.
    SET_ASIDE = "INSERT INTO intents (epoch, first, last, bytes) SELECT -epoch, first, last, bytes FROM intents \
                 WHERE epoch > 0 AND first <> 0 ON CONFLICT (epoch, first) DO NOTHING";

    LEASE = "SELECT epoch, holder, expires IS NOT NULL AND expires > now(), expires IS NOT NULL FROM lease WHERE id = 1";
    /// Puts the row where there is none, or one with an epoch that no holder had. The new epoch is
    /// above all that rows name, and, by the server's clock, above those of holders that left no
    /// trace: none of them holds the volume any more.
    MAKE_LEASE = "INSERT INTO lease (id, epoch, holder, expires) SELECT 1, greatest(\
                  (SELECT coalesce(max(v.epoch), 0) FROM volume v), (SELECT coalesce(max(i.epoch), 0) FROM intents i), \
                  (SELECT coalesce(max(c.number), 0) FROM commits c), CAST(extract(epoch FROM now()) * 1000000 AS bigint)) + 1, '', NULL \
                  ON CONFLICT (id) DO UPDATE SET epoch = excluded.epoch, holder = '', expires = NULL \
                  WHERE lease.epoch < 0 OR lease.epoch > $1 RETURNING epoch";
    TAKE_LEASE = "UPDATE lease SET epoch = epoch + 1, holder = $2, expires = now() + $3::bigint * interval '1 millisecond' \
                  WHERE id = 1 AND epoch = $1 RETURNING epoch";
    RENEW_LEASE = "UPDATE lease SET expires = now() + $2::bigint * interval '1 millisecond' WHERE id = 1 AND epoch = $1 \
                   RETURNING epoch";
    /// Changes nothing, and is acknowledged like whatever does.
    CONFIRM = "UPDATE lease SET holder = holder WHERE id = 1 AND epoch = $1 RETURNING epoch";
    END_LEASE = "UPDATE lease SET expires = NULL WHERE id = 1 AND epoch = $1";
}

#[cfg(test)]
mod tests {
    use super::{ALL, history};
    use crate::postgres::own;
    use crate::postgres::schema::statements;
    use crate::row::Ino;

    /// Words that one or more of Citus, CockroachDB and YugabyteDB lack (their documentation, "SQL
    /// feature support", "PostgreSQL compatibility", "SQL support and workarounds").
    const LACKING: &[&str] = &[
        "advisory",
        "listen ",
        "notify",
        "trigger",
        "references ",
        "serial",
        "sequence",
        "temp ",
        "temporary",
        "unlogged",
        "lo_",
        "ctid",
        "xmin",
        "merge ",
        "declare ",
        "savepoint",
        "lock table",
        "for share",
        "skip locked",
        "exclude ",
        "inherits",
        "language",
        "array_agg",
        "returning *",
        "lateral",
        "truncate",
        "materialized",
        "deferrable",
        "collate",
        "::regclass",
        "pg_",
    ];

    #[test]
    fn every_statement_is_in_the_portable_subset() {
        let tables = statements();
        let tables = tables.iter().map(|text| ("the schema", text.as_str()));
        let own = [own::make_text, own::copy, own::bytes, own::take_over, own::take_back, own::forget, own::drop_text]
            .map(|of| of(Ino(16)));
        let own = own.iter().map(|text| ("a file's own table", text.as_str()));
        for (name, text) in ALL.iter().chain(history::ALL).copied().chain(tables).chain(own) {
            let text = text.to_lowercase();
            for lacking in LACKING {
                assert!(!text.contains(lacking), "{name} needs '{lacking}', which some engines lack");
            }
        }
    }

    /// Files with statements that have no name.
    const FILES: &[(&str, &str)] = &[
        ("check.rs", include_str!("check.rs")),
        ("convert.rs", include_str!("convert.rs")),
        ("costs.rs", include_str!("costs.rs")),
        ("digests.rs", include_str!("digests.rs")),
        ("intents.rs", include_str!("intents.rs")),
        ("keep.rs", include_str!("keep.rs")),
        ("lease.rs", include_str!("lease.rs")),
        ("open.rs", include_str!("open.rs")),
        ("own.rs", include_str!("own.rs")),
        ("past.rs", include_str!("past.rs")),
        ("prefetch.rs", include_str!("prefetch.rs")),
        ("read.rs", include_str!("read.rs")),
        ("repair.rs", include_str!("repair.rs")),
        ("seal.rs", include_str!("seal.rs")),
        ("settings.rs", include_str!("settings.rs")),
        ("transaction.rs", include_str!("transaction.rs")),
        ("transaction/blocks.rs", include_str!("transaction/blocks.rs")),
        ("transaction/digests.rs", include_str!("transaction/digests.rs")),
        ("transaction/doubt.rs", include_str!("transaction/doubt.rs")),
        ("transaction/forget.rs", include_str!("transaction/forget.rs")),
        ("transaction/history.rs", include_str!("transaction/history.rs")),
        ("transaction/own_tables.rs", include_str!("transaction/own_tables.rs")),
        ("transaction/references.rs", include_str!("transaction/references.rs")),
        ("transaction/rows.rs", include_str!("transaction/rows.rs")),
        ("transaction/writer.rs", include_str!("transaction/writer.rs")),
        ("upgrade.rs", include_str!("upgrade.rs")),
        ("waiting.rs", include_str!("waiting.rs")),
        ("write.rs", include_str!("write.rs")),
    ];

    /// All of these engines have the view, or the text is for one and they do without.
    const KNOWN: &[(&str, &str)] = &[
        ("check.rs", "pg_catalog.pg_tables"),
        ("lease.rs", "pg_stat_activity"),
        ("lease.rs", "pg_terminate_backend"),
        ("open.rs", "pg_catalog.pg_extension"),
        ("open.rs", "pg_class"),
        ("open.rs", "pg_namespace"),
        ("open.rs", "pg_total_relation_size"),
        ("settings.rs", "pg_catalog.pg_settings"),
        ("settings.rs", "pg_class"),
        ("settings.rs", "pg_namespace"),
    ];

    #[test]
    fn so_is_what_has_no_name() {
        let verbs = ["SELECT ", "INSERT ", "UPDATE ", "DELETE ", "CREATE ", "DROP ", "COPY ", "ALTER ", "SET "];
        let mut seen = 0;
        for (file, text) in FILES {
            let code = text.split("#[cfg(test)]").next().unwrap_or_default();
            let code: Vec<_> = code.lines().filter(|line| !line.trim_start().starts_with("//")).collect();
            let code = code.join("\n");
            for literal in
                code.split('"').skip(1).step_by(2).filter(|text| verbs.iter().any(|verb| text.contains(verb)))
            {
                seen += 1;
                let mut text = literal.to_lowercase();
                KNOWN.iter().filter(|(of, _)| of == file).for_each(|(_, known)| text = text.replace(known, ""));
                for lacking in LACKING {
                    assert!(!text.contains(lacking), "{file} needs '{lacking}', which some engines lack: {literal}");
                }
            }
        }
        assert!(seen > 20, "{seen}");
    }

    /// Returns the column by which a table is distributed, of the statement that makes it: the
    /// first one, or that behind the fork, by which versions of rows lie with those rows.
    fn distributing(table: &str) -> &str {
        let columns = table.split_once('(').expect("columns").1;
        columns.split_whitespace().find(|word| !["fork", "bigint", "NOT", "NULL,"].contains(word)).expect("a column")
    }

    /// Citus distributes a table by a column that each of its unique keys must hold; ours is the
    /// first of the primary key, or the second where the first is the fork.
    #[test]
    fn every_unique_key_begins_with_the_column_that_distributes_its_table() {
        for table in statements().iter().filter(|text| text.starts_with("CREATE TABLE")) {
            let key = match table.split_once("PRIMARY KEY (") {
                Some((_, key)) => key.split([',', ')']).map(str::trim).find(|column| *column != "fork"),
                None => Some(distributing(table)),
            };
            assert_eq!(key, Some(distributing(table)), "{table}");
        }
        let unique =
            statements().into_iter().filter(|text| text.starts_with("CREATE UNIQUE INDEX")).collect::<Vec<_>>();
        assert_eq!(unique, ["CREATE UNIQUE INDEX naming_order ON naming (parent, cookie)"]);
    }

    /// Tables of one row or few, and those to which statements join these.
    const UNDISTRIBUTED: &[&str] =
        &["volume", "lease", "intents", "commits", "retention", "pins", "blocks_of", "dropped"];

    #[test]
    fn what_operators_distribute_is_what_grows() {
        let text = include_str!("../../../../docs/guide/citus.md");
        let told = text.lines().filter_map(|line| line.trim().strip_prefix("SELECT create_distributed_table("));
        let told = told.map(|call| call.split('\'').skip(1).step_by(2).take(2).collect::<Vec<_>>());
        let statements = statements();
        let made = statements.iter().filter_map(|text| text.strip_prefix("CREATE TABLE "));
        let made = made.map(|text| vec![text.split(' ').next().expect("a name"), distributing(text)]);
        let made = made.filter(|table| !UNDISTRIBUTED.contains(&table[0])).collect::<std::collections::BTreeSet<_>>();
        assert_eq!(told.collect::<std::collections::BTreeSet<_>>(), made);
    }
}
