//! The statements that read the past, keep versions of rows, and forget them.
//!
//! A row as of a commit is the present one, if an earlier commit wrote it, or a version that held
//! then: one statement asks for both, as a commit may move the one to the other at any moment.

/// The columns of an inode's row or its version but its content, each behind `$row`.
macro_rules! attributes {
    ($row:literal) => {
        concat!(
            $row,
            ".ino, ",
            $row,
            ".generation, ",
            $row,
            ".mode, ",
            $row,
            ".uid, ",
            $row,
            ".gid, ",
            $row,
            ".nlink, ",
            $row,
            ".rdev, ",
            $row,
            ".size, ",
            $row,
            ".allocated, ",
            $row,
            ".atime, ",
            $row,
            ".mtime, ",
            $row,
            ".ctime, ",
            $row,
            ".btime, ",
            $row,
            ".parent, ",
            $row,
            ".xattrs"
        )
    };
}

/// The content of version `h` of an inode: that which was replaced first behind `$at`, a commit in
/// which the version held; the present one if none was. Each look at the index finds one row.
macro_rules! content {
    ($at:literal) => {
        concat!(
            "CASE WHEN (SELECT min(m.until) FROM content_history m WHERE m.ino = h.ino AND m.until > ",
            $at,
            ") IS NULL THEN (SELECT f.inline FROM fileatt f WHERE f.ino = h.ino) \
             ELSE (SELECT c.inline FROM content_history c WHERE c.ino = h.ino AND c.until = \
             (SELECT min(m.until) FROM content_history m WHERE m.ino = h.ino AND m.until > ",
            $at,
            ")) END"
        )
    };
}

/// Inodes as of commit $2 whose rows of the present, which `$which` selects, are of then.
macro_rules! present_at {
    ($which:literal) => {
        concat!(
            "(SELECT ",
            attributes!("f"),
            ", f.inline, f.since, f.sum, CAST(NULL AS bigint) AS until FROM fileatt f WHERE OF_VOLUME AND f.since <= $2 AND ",
            $which,
            ")"
        )
    };
}

/// Inodes as of commit $2, of those rows that `$present` selects, and those versions that `$past`
/// does.
macro_rules! inodes_at {
    ($present:literal, $past:literal) => {
        concat!(
            present_at!($present),
            " UNION ALL (SELECT ",
            attributes!("h"),
            ", ",
            content!("$2"),
            ", h.since, h.sum, h.until FROM fileatt_history h WHERE h.since <= $2 AND h.until > $2 AND ",
            $past,
            ")"
        )
    };
}

/// Extents of a file as of commit $4, with the blocks whose owner is $owner.
macro_rules! extents_at {
    ($owner:literal) => {
        concat!(
            "SELECT e.ino, e.start, e.block, e.owner, b.length, b.base, b.value, b.bytes IS NULL, b.refs, b.sum, e.since, e.sum, e.length, e.until \
             FROM (SELECT ino, start, length, block, owner, since, sum, CAST(NULL AS bigint) AS until FROM extents \
             WHERE OF_VOLUME AND ino = $1 AND start >= $2 AND start < $3 AND since <= $4 \
             UNION ALL SELECT ino, start, length, block, owner, since, sum, until FROM extents_history \
             WHERE fork = ANY($5) AND ino = $1 AND start >= $2 AND start < $3 AND since <= $4 AND until > $4) e \
             LEFT JOIN blocks b ON b.owner = ",
            $owner,
            " AND b.id = e.block ORDER BY e.start"
        )
    };
}

/// The sum of version `$row`: that of the row, with the commit added that replaces it, as `$added`.
macro_rules! version_sum {
    ($row:literal, $added:literal) => {
        concat!("((", $row, ".sum & 4611686018427387903) + ", $added, "::bigint) & 4611686018427387903")
    };
}

/// The fork of version `$row`, which commit `$until` replaces, by all forks that it can have: one
/// whose first commit is damaged gets one, too.
macro_rules! fork {
    ($row:literal, $forks:literal, $until:literal) => {
        concat!(
            "coalesce((",
            $forks,
            "::bigint[])[width_bucket(",
            $row,
            ".since - 1, ",
            $forks,
            "::bigint[]) + 1], ",
            $until,
            "::bigint - 1)"
        )
    };
}

/// Keeps the content of inodes that `$which` selects: it held since the one before it was replaced,
/// or as long as there are versions of the inode.
macro_rules! keep_content {
    ($until:literal, $added:literal, $shifted:literal, $which:literal) => {
        concat!(
            "INSERT INTO content_history (ino, since, until, digest, sum, inline) \
             SELECT r.ino, r.since, ",
            $until,
            "::bigint, r.digest, \
             CAST(mod(CAST(r.digest_sum & 4611686018427387903 AS numeric) + ",
            $added,
            "::bigint + CAST(r.since AS numeric) * ",
            $shifted,
            "::bigint, 4611686018427387904) AS bigint), r.inline \
             FROM (SELECT f.ino, f.digest, f.digest_sum, f.inline, coalesce(\
             (SELECT max(c.until) FROM content_history c WHERE c.ino = f.ino), \
             (SELECT min(h.since) FROM fileatt_history h WHERE h.ino = f.ino), f.since) AS since FROM fileatt f ",
            $which,
            ") r ON CONFLICT DO NOTHING"
        )
    };
}

macro_rules! keep_extents {
    ($until:literal, $forks:literal, $added:literal, $which:literal) => {
        concat!(
            "INSERT INTO extents_history (fork, ino, start, since, until, length, owner, block, sum) SELECT ",
            fork!("e", $forks, $until),
            ", e.ino, e.start, e.since, ",
            $until,
            "::bigint, e.length, e.owner, e.block, ",
            version_sum!("e", $added),
            " FROM extents e WHERE ",
            $which,
            " ON CONFLICT DO NOTHING"
        )
    };
}

macro_rules! keep_xattrs {
    ($until:literal, $forks:literal, $added:literal, $which:literal) => {
        concat!(
            "INSERT INTO xattr_history (fork, ino, name, since, until, value, sum) SELECT ",
            fork!("x", $forks, $until),
            ", x.ino, x.name, x.since, ",
            $until,
            "::bigint, x.value, ",
            version_sum!("x", $added),
            " FROM xattr x ",
            $which,
            " ON CONFLICT DO NOTHING"
        )
    };
}

/// True if entry `n` is not what `d` is to put there, or `d` puts nothing.
macro_rules! is_other_entry {
    ($entry:literal) => {
        concat!(
            "(d.ino IS NULL OR ",
            $entry,
            ".ino <> d.ino OR ",
            $entry,
            ".kind <> d.kind OR ",
            $entry,
            ".cookie <> d.cookie)"
        )
    };
}

/// Versions under forks between commits $1 and $2, or of others that can have held at $1, which
/// were replaced behind $1, up to $2, and began behind $3: no commit that is kept lies between $3
/// and $2.
macro_rules! dead {
    ($row:literal) => {
        concat!(
            "((",
            $row,
            ".fork > $1 AND ",
            $row,
            ".fork < $2) OR ",
            $row,
            ".fork = ANY($5)) AND ",
            $row,
            ".until > $1 AND ",
            $row,
            ".until <= $2 AND ",
            $row,
            ".since > $3 LIMIT $4"
        )
    };
}

statements! {
    RETENTION = "SELECT rule, readers, first, swept, sum FROM retention WHERE OF_VOLUME AND id = 1";
    PINS = "SELECT commit_number, kind, name, made, held_until, sum FROM pins WHERE OF_VOLUME AND commit_number >= $1 \
            AND commit_number <= $2 ORDER BY commit_number, kind, name";
    /// A row if commit $1 is kept.
    IS_KEPT = "SELECT id FROM retention WHERE OF_VOLUME AND id = 1 AND (first <= $1 \
               OR EXISTS (SELECT 1 FROM pins WHERE commit_number = $1))";
    COMMIT_AT = "SELECT number, time, op, root_digest, previous_digest, sum FROM commits WHERE OF_VOLUME AND time <= $1 \
                 ORDER BY time DESC, number DESC LIMIT 1";

    INODE_AT = inodes_at!(
        "f.ino = $1",
        "h.ino = $1 AND h.until = (SELECT min(n.until) FROM fileatt_history n WHERE n.ino = $1 AND n.until > $2)"
    );
    /// Inodes $1 to $4, a bounded range: each that has versions is found by the one before it, and
    /// its version then by the index, so that the others are not read.
    INODES_AT = concat!(
        present_at!("f.ino >= $1 AND f.ino < $4 ORDER BY f.ino LIMIT $3"),
        " UNION ALL (WITH RECURSIVE kept (ino) AS (\
         SELECT min(v.ino) FROM fileatt_history v WHERE v.ino >= $1 AND v.ino < $4 \
         UNION ALL SELECT (SELECT min(v.ino) FROM fileatt_history v WHERE v.ino > k.ino AND v.ino < $4) \
         FROM kept k WHERE k.ino IS NOT NULL) SELECT ",
        attributes!("h"),
        ", ",
        content!("$2"),
        ", h.since, h.sum, h.until FROM (SELECT k.ino, (SELECT min(n.until) FROM fileatt_history n WHERE n.ino = k.ino \
         AND n.until > $2) AS until FROM kept k) w JOIN fileatt_history h ON h.ino = w.ino AND h.until = w.until \
         WHERE h.since <= $2 ORDER BY h.ino LIMIT $3) ORDER BY ino LIMIT $3"
    );
    /// The first inode from $1 on that there is, or was.
    NEXT_INODE = "SELECT min(n.ino) FROM (SELECT min(f.ino) AS ino FROM fileatt f WHERE OF_VOLUME AND f.ino >= $1 \
                  UNION ALL SELECT min(h.ino) FROM fileatt_history h WHERE h.ino >= $1) n";
    /// As [`INODES_AT`], where inodes lie apart: no engine steps from one to the next there.
    INODES_AT_APART = concat!(
        inodes_at!(
            "f.ino >= $1 AND f.ino < $4 ORDER BY f.ino LIMIT $3",
            "h.ino >= $1 AND h.ino < $4 ORDER BY h.ino LIMIT $3"
        ),
        " ORDER BY ino LIMIT $3"
    );
    NAME_AT = "SELECT cookie, ino, kind, name, since, sum, CAST(NULL AS bigint) AS until FROM naming \
               WHERE OF_VOLUME AND parent = $1 AND name = $2 AND since <= $3 \
               UNION ALL SELECT cookie, ino, kind, name, since, sum, until FROM naming_history \
               WHERE fork = ANY($4) AND parent = $1 AND name = $2 AND since <= $3 AND until > $3";
    NAMES_AT = "(SELECT cookie, ino, kind, name, since, sum, CAST(NULL AS bigint) AS until FROM naming \
                WHERE OF_VOLUME AND parent = $1 AND cookie > $2 AND since <= $3 ORDER BY cookie LIMIT $5) \
                UNION ALL (SELECT cookie, ino, kind, name, since, sum, until FROM naming_history \
                WHERE fork = ANY($4) AND parent = $1 AND cookie > $2 AND since <= $3 AND until > $3 ORDER BY cookie LIMIT $5) \
                ORDER BY cookie LIMIT $5";
    EXTENTS_AT = extents_at!("e.owner");
    /// The same for files that lie apart, with the file's own blocks.
    EXTENTS_AT_APART = extents_at!("e.ino");
    /// And a row without a name, which has how many there were by the row of their inode.
    XATTRS_AT = "SELECT name, value, since, sum, CAST(NULL AS bigint) AS until FROM xattr WHERE OF_VOLUME AND ino = $1 AND since <= $2 \
                 UNION ALL SELECT name, value, since, sum, until FROM xattr_history \
                 WHERE fork = ANY($3) AND ino = $1 AND since <= $2 AND until > $2 \
                 UNION ALL SELECT NULL, NULL, xattrs, NULL, NULL FROM fileatt WHERE ino = $1 AND since <= $2 \
                 UNION ALL SELECT NULL, NULL, xattrs, NULL, NULL FROM fileatt_history WHERE ino = $1 AND since <= $2 AND until > $2 \
                 ORDER BY name";
    /// The content that a commit after $2 replaced first; behind it the present one, if the inode
    /// was there.
    DIGEST_AT = "SELECT c.digest, c.sum, c.since, c.until FROM content_history c WHERE OF_VOLUME AND c.ino = $1 \
                 AND c.until = (SELECT min(m.until) FROM content_history m WHERE m.ino = $1 AND m.until > $2) \
                 UNION ALL SELECT f.digest, f.digest_sum, NULL, NULL FROM fileatt f WHERE f.ino = $1 AND (f.since <= $2 \
                 OR EXISTS (SELECT 1 FROM fileatt_history h WHERE h.ino = $1 AND h.since <= $2 AND h.until > $2)) ORDER BY until";
    VERSIONS = concat!(
        "SELECT ",
        attributes!("h"),
        ", ",
        content!("h.since"),
        ", h.since, h.sum, h.until FROM fileatt_history h WHERE OF_VOLUME AND h.ino = $1 AND h.until <= $2 \
         ORDER BY h.until DESC LIMIT $3"
    );
    /// Inodes that there were as of a commit, and whose rows were replaced up to another one.
    CHANGED_INODES = "SELECT h.ino FROM fileatt_history h WHERE OF_VOLUME AND h.until > $1 AND h.until <= $2 \
                      AND h.since <= $1 ORDER BY h.ino";

    /// Versions of extents behind a key, with those of their blocks that are the file's own: the
    /// others are [`super::OTHERS_BLOCKS`].
    PAST_EXTENTS = "SELECT e.ino, e.start, e.block, e.owner, b.length, b.refs, e.since, e.until, e.fork \
                    FROM extents_history e LEFT JOIN blocks b ON b.owner = e.ino AND b.id = e.block \
                    WHERE OF_VOLUME AND (e.fork, e.ino, e.start, e.until) > ($1, $2, $3, $4) \
                    ORDER BY e.fork, e.ino, e.start, e.until LIMIT $5";
    PAST_CONTENTS = "SELECT ino, since, until, CAST(coalesce(octet_length(inline), 0) AS bigint) FROM content_history \
                     WHERE OF_VOLUME AND (ino, until) > ($1, $2) ORDER BY ino, until LIMIT $3";
    PAST_VERSIONS = "SELECT ino, until, CAST(mode AS bigint), allocated FROM fileatt_history \
                     WHERE OF_VOLUME AND (ino, until) > ($1, $2) ORDER BY ino, until LIMIT $3";
    PAST_NAMES = "SELECT fork, parent, name, until, ino, kind FROM naming_history \
                  WHERE OF_VOLUME AND (fork, parent, name, until) > ($1, $2, $3, $4) ORDER BY fork, parent, name, until LIMIT $5";
    COUNT_VERSIONS = "SELECT (SELECT count(*) FROM fileatt_history), (SELECT count(*) FROM content_history), \
                      (SELECT count(*) FROM naming_history), (SELECT count(*) FROM extents_history), \
                      (SELECT count(*) FROM xattr_history)";

    /// Enough of inodes' rows to tell if what is put differs in more than the access time.
    AGES = "SELECT ino, atime, since, sum FROM fileatt WHERE ino = ANY($1)";
    KEEP_INODES = concat!(
        "INSERT INTO fileatt_history (ino, since, until, generation, mode, uid, gid, nlink, rdev, size, allocated, atime, mtime, ctime, \
         btime, parent, xattrs, sum) SELECT f.ino, f.since, $2::bigint, f.generation, f.mode, f.uid, f.gid, f.nlink, f.rdev, f.size, \
         f.allocated, f.atime, f.mtime, f.ctime, f.btime, f.parent, f.xattrs, ",
        version_sum!("f", "$3"),
        " FROM fileatt f WHERE f.ino = ANY($1) ON CONFLICT DO NOTHING"
    );
    /// Keeps the content of inodes $1 where the new digests $2 differ, or the lengths $3 of content
    /// in rows (-1: the row is not put), or, where no digest tells, that content ($4) itself.
    KEEP_CONTENT = keep_content!(
        "$5",
        "$6",
        "$7",
        "JOIN unnest($1::bigint[], $2::bytea[], $3::bigint[], $4::bytea[]) AS d (ino, digest, length, inline) ON f.ino = d.ino \
         WHERE f.digest IS DISTINCT FROM d.digest OR (d.length IS DISTINCT FROM -1 \
         AND (octet_length(f.inline) IS DISTINCT FROM d.length OR (d.inline IS NOT NULL AND f.inline IS DISTINCT FROM d.inline)))"
    );
    KEEP_CONTENT_OF = keep_content!("$2", "$3", "$4", "WHERE f.ino = ANY($1)");
    KEEP_NAMES = concat!(
        "INSERT INTO naming_history (fork, parent, name, since, until, ino, kind, cookie, sum) SELECT ",
        fork!("n", "$7", "$6"),
        ", n.parent, n.name, n.since, $6::bigint, n.ino, n.kind, n.cookie, ",
        version_sum!("n", "$8"),
        " FROM naming n JOIN unnest($1::bigint[], $2::bytea[], $3::bigint[], $4::bigint[], $5::bigint[]) \
         AS d (parent, name, ino, kind, cookie) ON n.parent = d.parent AND n.name = d.name WHERE ",
        is_other_entry!("n"),
        " ON CONFLICT DO NOTHING"
    );
    /// Removes entries, but those that are to be put again as they are.
    REMOVE_OTHER_NAMES = concat!(
        "DELETE FROM naming USING unnest($1::bigint[], $2::bytea[], $3::bigint[], $4::bigint[], $5::bigint[]) \
         AS d (parent, name, ino, kind, cookie) WHERE naming.parent = d.parent AND naming.name = d.name AND ",
        is_other_entry!("naming")
    );
    /// Puts entries; those that are there have another hash at most.
    PUT_OTHER_NAMES = "INSERT INTO naming (parent, name, ino, kind, cookie, since, sum, digest, digest_sum) \
                       SELECT * FROM unnest($1::bigint[], $2::bytea[], $3::bigint[], $4::bigint[], $5::bigint[], $6::bigint[], $7::bigint[], \
                       $8::bytea[], $9::bigint[]) \
                       ON CONFLICT (parent, name) DO UPDATE SET digest = excluded.digest, digest_sum = excluded.digest_sum";
    KEEP_EXTENTS = keep_extents!("$4", "$5", "$6", "e.ino = $1 AND e.start >= $2 AND e.start < $3");
    KEEP_EXTENTS_OF = keep_extents!("$2", "$3", "$4", "e.ino = ANY($1)");
    KEEP_XATTRS = keep_xattrs!(
        "$3",
        "$4",
        "$5",
        "JOIN unnest($1::bigint[], $2::bytea[]) AS d (ino, name) ON x.ino = d.ino AND x.name = d.name"
    );
    KEEP_XATTRS_OF = keep_xattrs!("$2", "$3", "$4", "WHERE x.ino = ANY($1)");

    SET_RETENTION = "INSERT INTO retention (id, rule, readers, first, swept, sum) VALUES (1, $1, $2, $3, $4, $5) \
                     ON CONFLICT (id) DO UPDATE SET rule = excluded.rule, readers = excluded.readers, first = excluded.first, \
                     swept = excluded.swept, sum = excluded.sum";
    REMOVE_RETENTION = "DELETE FROM retention WHERE id = 1";
    PUT_PIN = "INSERT INTO pins (commit_number, kind, name, made, held_until, sum) VALUES ($1, $2, $3, $4, $5, $6) \
               ON CONFLICT (commit_number, kind, name) DO UPDATE SET made = excluded.made, held_until = excluded.held_until, \
               sum = excluded.sum";
    REMOVE_PIN = "DELETE FROM pins WHERE commit_number = $1 AND kind = $2 AND name = $3";
    /// Commits before $1 that no pin names.
    FORGET_OLD_COMMITS = "DELETE FROM commits WHERE number < $1 AND number NOT IN (SELECT commit_number FROM pins)";

    DEAD_INODES = "SELECT ino, until FROM fileatt_history WHERE until > $1 AND until <= $2 AND since > $3 LIMIT $4";
    DEAD_CONTENT = "SELECT ino, until FROM content_history WHERE until > $1 AND until <= $2 AND since > $3 LIMIT $4";
    DEAD_NAMES = concat!("SELECT n.fork, n.parent, n.name, n.until FROM naming_history n WHERE ", dead!("n"));
    DEAD_XATTRS = concat!("SELECT x.fork, x.ino, x.name, x.until FROM xattr_history x WHERE ", dead!("x"));
    /// With the rows of those of their blocks that are the file's own, as [`super::PLACED`].
    DEAD_EXTENTS = concat!(
        "SELECT e.ino, e.start, e.owner, e.block, e.since, e.sum, b.refs, b.length, b.base, b.value, b.sum, b.bytes IS NULL, e.length, e.until, e.fork \
         FROM extents_history e LEFT JOIN blocks b ON b.owner = e.ino AND b.id = e.block WHERE ",
        dead!("e")
    );
    /// All versions of extents behind the one of fork $1, inode $2, byte $3 and commit $4.
    ALL_EXTENTS = "SELECT e.ino, e.start, e.owner, e.block, e.since, e.sum, b.refs, b.length, b.base, b.value, b.sum, b.bytes IS NULL, \
                   e.length, e.until, e.fork FROM extents_history e LEFT JOIN blocks b ON b.owner = e.ino AND b.id = e.block \
                   WHERE (e.fork, e.ino, e.start, e.until) > ($1, $2, $3, $4) ORDER BY e.fork, e.ino, e.start, e.until LIMIT $5";
    /// All versions of extents of files $1.
    EXTENTS_OF = "SELECT e.ino, e.start, e.owner, e.block, e.since, e.sum, b.refs, b.length, b.base, b.value, b.sum, b.bytes IS NULL, \
                  e.length, e.until, e.fork FROM extents_history e LEFT JOIN blocks b ON b.owner = e.ino AND b.id = e.block WHERE e.ino = ANY($1)";
    CONTENT_OF = "SELECT since, until FROM content_history WHERE ino = $1";
    EMPTY_CONTENT = "INSERT INTO content_history (ino, since, until, sum) \
                     SELECT * FROM unnest($1::bigint[], $2::bigint[], $3::bigint[], $4::bigint[]) \
                     ON CONFLICT (ino, until) DO UPDATE SET digest = NULL, inline = NULL, sum = excluded.sum";
    EMPTY_INODES = "UPDATE fileatt_history SET size = 0, allocated = 0, sum = d.sum \
                    FROM unnest($1::bigint[], $2::bigint[], $3::bigint[]) AS d (ino, until, sum) \
                    WHERE fileatt_history.ino = d.ino AND fileatt_history.until = d.until";
    FORGET_INODES = "DELETE FROM fileatt_history USING unnest($1::bigint[], $2::bigint[]) AS d (ino, until) \
                     WHERE fileatt_history.ino = d.ino AND fileatt_history.until = d.until";
    FORGET_CONTENT = "DELETE FROM content_history USING unnest($1::bigint[], $2::bigint[]) AS d (ino, until) \
                      WHERE content_history.ino = d.ino AND content_history.until = d.until";
    FORGET_NAMES = "DELETE FROM naming_history USING unnest($1::bigint[], $2::bigint[], $3::bytea[], $4::bigint[]) \
                    AS d (fork, parent, name, until) WHERE naming_history.fork = d.fork AND naming_history.parent = d.parent \
                    AND naming_history.name = d.name AND naming_history.until = d.until";
    FORGET_XATTRS = "DELETE FROM xattr_history USING unnest($1::bigint[], $2::bigint[], $3::bytea[], $4::bigint[]) \
                     AS d (fork, ino, name, until) WHERE xattr_history.fork = d.fork AND xattr_history.ino = d.ino \
                     AND xattr_history.name = d.name AND xattr_history.until = d.until";
    FORGET_EXTENTS = "DELETE FROM extents_history USING unnest($1::bigint[], $2::bigint[], $3::bigint[], $4::bigint[]) \
                      AS d (fork, ino, start, until) WHERE extents_history.fork = d.fork AND extents_history.ino = d.ino \
                      AND extents_history.start = d.start AND extents_history.until = d.until";
    END_INODES = "DELETE FROM fileatt_history";
    END_CONTENT = "DELETE FROM content_history";
    END_NAMES = "DELETE FROM naming_history";
    END_EXTENTS = "DELETE FROM extents_history";
    END_XATTRS = "DELETE FROM xattr_history";
    END_PINS = "DELETE FROM pins";
}
