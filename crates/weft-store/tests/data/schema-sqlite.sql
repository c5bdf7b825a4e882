CREATE TABLE volume (
    id INTEGER PRIMARY KEY CHECK (id = 1),
    created INTEGER NOT NULL,
    uuid BLOB NOT NULL,
    block_size INTEGER NOT NULL,
    inline_max INTEGER NOT NULL,
    home TEXT NOT NULL,
    bytes_max INTEGER,
    inodes_max INTEGER,
    digests INTEGER NOT NULL,
    number INTEGER NOT NULL,
    op INTEGER NOT NULL,
    next_id INTEGER NOT NULL,
    next_block INTEGER NOT NULL,
    epoch INTEGER NOT NULL,
    bytes_used INTEGER NOT NULL,
    inodes_used INTEGER NOT NULL,
    sum INTEGER NOT NULL DEFAULT -1
);
CREATE TABLE commits (
    number INTEGER PRIMARY KEY,
    time INTEGER NOT NULL,
    op INTEGER NOT NULL,
    root_digest BLOB,
    previous_digest BLOB,
    sum INTEGER NOT NULL DEFAULT -1
);
CREATE INDEX commits_time ON commits (time);
CREATE TABLE retention (
    id INTEGER PRIMARY KEY CHECK (id = 1),
    rule TEXT NOT NULL,
    readers TEXT NOT NULL,
    first INTEGER NOT NULL,
    swept INTEGER NOT NULL,
    sum INTEGER NOT NULL DEFAULT -1
);
CREATE TABLE pins (
    commit_number INTEGER NOT NULL,
    kind INTEGER NOT NULL,
    name BLOB NOT NULL,
    made INTEGER NOT NULL,
    held_until INTEGER,
    sum INTEGER NOT NULL DEFAULT -1,
    PRIMARY KEY (commit_number, kind, name)
) WITHOUT ROWID;
CREATE TABLE fileatt (
    ino INTEGER PRIMARY KEY,
    generation INTEGER NOT NULL,
    mode INTEGER NOT NULL,
    uid INTEGER NOT NULL,
    gid INTEGER NOT NULL,
    nlink INTEGER NOT NULL,
    rdev INTEGER NOT NULL,
    size INTEGER NOT NULL,
    allocated INTEGER NOT NULL,
    atime INTEGER NOT NULL,
    mtime INTEGER NOT NULL,
    ctime INTEGER NOT NULL,
    btime INTEGER NOT NULL,
    parent INTEGER NOT NULL,
    xattrs INTEGER NOT NULL,
    since INTEGER NOT NULL,
    sum INTEGER NOT NULL DEFAULT -1,
    digest BLOB,
    digest_sum INTEGER NOT NULL DEFAULT -1,
    inline BLOB
);
CREATE INDEX fileatt_orphans ON fileatt (ino) WHERE nlink = 0;
CREATE TABLE content_history (
    ino INTEGER NOT NULL,
    since INTEGER NOT NULL,
    until INTEGER NOT NULL,
    digest BLOB,
    sum INTEGER NOT NULL DEFAULT -1,
    inline BLOB,
    PRIMARY KEY (ino, until)
);
CREATE INDEX content_history_until ON content_history (until);
CREATE TABLE naming (
    parent INTEGER NOT NULL,
    name BLOB NOT NULL,
    ino INTEGER NOT NULL,
    kind INTEGER NOT NULL,
    cookie INTEGER NOT NULL,
    since INTEGER NOT NULL,
    sum INTEGER NOT NULL DEFAULT -1,
    digest BLOB,
    digest_sum INTEGER NOT NULL DEFAULT -1,
    PRIMARY KEY (parent, name)
) WITHOUT ROWID;
CREATE INDEX naming_inode ON naming (ino);
CREATE UNIQUE INDEX naming_order ON naming (parent, cookie, ino, kind, since, sum);
CREATE TABLE extents (
    ino INTEGER NOT NULL,
    start INTEGER NOT NULL,
    length INTEGER NOT NULL,
    block INTEGER NOT NULL,
    since INTEGER NOT NULL,
    sum INTEGER NOT NULL DEFAULT -1,
    PRIMARY KEY (ino, start)
) WITHOUT ROWID;
CREATE TABLE blocks (
    id INTEGER PRIMARY KEY,
    refs INTEGER NOT NULL,
    length INTEGER NOT NULL,
    base INTEGER NOT NULL,
    value BLOB NOT NULL,
    segment INTEGER,
    position INTEGER,
    parts BLOB,
    sum INTEGER NOT NULL DEFAULT -1
);
CREATE TABLE block_bytes (
    id INTEGER PRIMARY KEY,
    bytes BLOB NOT NULL
);
CREATE TABLE branches (
    parent INTEGER NOT NULL,
    prefix BLOB NOT NULL,
    children BLOB NOT NULL,
    sum INTEGER NOT NULL DEFAULT -1,
    PRIMARY KEY (parent, prefix)
) WITHOUT ROWID;
CREATE TABLE nodes (
    ino INTEGER NOT NULL,
    level INTEGER NOT NULL,
    idx INTEGER NOT NULL,
    children BLOB NOT NULL,
    sum INTEGER NOT NULL DEFAULT -1,
    PRIMARY KEY (ino, level, idx)
) WITHOUT ROWID;
CREATE TABLE xattr (
    ino INTEGER NOT NULL,
    name BLOB NOT NULL,
    value BLOB NOT NULL,
    since INTEGER NOT NULL,
    sum INTEGER NOT NULL DEFAULT -1,
    PRIMARY KEY (ino, name)
) WITHOUT ROWID;
CREATE TABLE segments (
    id INTEGER PRIMARY KEY,
    length INTEGER NOT NULL,
    live INTEGER NOT NULL,
    sum INTEGER NOT NULL DEFAULT -1
);
CREATE TABLE freed (
    id INTEGER PRIMARY KEY,
    segment INTEGER NOT NULL,
    position INTEGER NOT NULL,
    length INTEGER NOT NULL,
    sum INTEGER NOT NULL DEFAULT -1
);
CREATE TABLE fileatt_history (
    ino INTEGER NOT NULL,
    since INTEGER NOT NULL,
    until INTEGER NOT NULL,
    generation INTEGER NOT NULL,
    mode INTEGER NOT NULL,
    uid INTEGER NOT NULL,
    gid INTEGER NOT NULL,
    nlink INTEGER NOT NULL,
    rdev INTEGER NOT NULL,
    size INTEGER NOT NULL,
    allocated INTEGER NOT NULL,
    atime INTEGER NOT NULL,
    mtime INTEGER NOT NULL,
    ctime INTEGER NOT NULL,
    btime INTEGER NOT NULL,
    parent INTEGER NOT NULL,
    xattrs INTEGER NOT NULL,
    sum INTEGER NOT NULL DEFAULT -1,
    PRIMARY KEY (ino, until)
) WITHOUT ROWID;
CREATE INDEX fileatt_history_until ON fileatt_history (until);
CREATE TABLE naming_history (
    fork INTEGER NOT NULL,
    parent INTEGER NOT NULL,
    name BLOB NOT NULL,
    since INTEGER NOT NULL,
    until INTEGER NOT NULL,
    ino INTEGER NOT NULL,
    kind INTEGER NOT NULL,
    cookie INTEGER NOT NULL,
    sum INTEGER NOT NULL DEFAULT -1,
    PRIMARY KEY (fork, parent, name, until)
) WITHOUT ROWID;
CREATE TABLE extents_history (
    fork INTEGER NOT NULL,
    ino INTEGER NOT NULL,
    start INTEGER NOT NULL,
    since INTEGER NOT NULL,
    until INTEGER NOT NULL,
    length INTEGER NOT NULL,
    block INTEGER NOT NULL,
    sum INTEGER NOT NULL DEFAULT -1,
    PRIMARY KEY (fork, ino, start, until)
) WITHOUT ROWID;
CREATE TABLE xattr_history (
    fork INTEGER NOT NULL,
    ino INTEGER NOT NULL,
    name BLOB NOT NULL,
    since INTEGER NOT NULL,
    until INTEGER NOT NULL,
    value BLOB NOT NULL,
    sum INTEGER NOT NULL DEFAULT -1,
    PRIMARY KEY (fork, ino, name, until)
) WITHOUT ROWID;
CREATE VIEW files AS
WITH RECURSIVE tree (path, ino) AS (
    SELECT '/', 1
    UNION ALL
    SELECT CASE tree.path WHEN '/' THEN '/' ELSE tree.path || '/' END || CAST(naming.name AS TEXT), naming.ino
    FROM tree JOIN naming ON naming.parent = tree.ino
)
SELECT tree.path,
    fileatt.ino,
    CASE fileatt.mode & 61440
        WHEN 32768 THEN 'file' WHEN 16384 THEN 'directory' WHEN 40960 THEN 'symlink' WHEN 45056 THEN 'transformation'
        WHEN 4096 THEN 'fifo' WHEN 49152 THEN 'socket' WHEN 8192 THEN 'char device' ELSE 'block device'
    END AS kind,
    printf('%04o', fileatt.mode & 4095) AS permissions,
    fileatt.uid, fileatt.gid, fileatt.nlink, fileatt.size, fileatt.allocated,
    fileatt.mtime / 1e9 AS mtime, fileatt.ctime / 1e9 AS ctime, fileatt.btime / 1e9 AS btime,
    fileatt.digest
FROM tree JOIN fileatt ON fileatt.ino = tree.ino;
