CREATE TABLE volume (
    id bigint PRIMARY KEY CHECK (id = 1),
    format bigint NOT NULL,
    created bigint NOT NULL,
    uuid bytea NOT NULL,
    block_size bigint NOT NULL,
    inline_max bigint NOT NULL,
    bytes_max bigint,
    inodes_max bigint,
    digests boolean NOT NULL,
    own_table_from bigint,
    number bigint NOT NULL,
    op bigint NOT NULL,
    next_id bigint NOT NULL,
    next_block bigint NOT NULL,
    epoch bigint NOT NULL,
    bytes_used bigint NOT NULL,
    inodes_used bigint NOT NULL,
    sum bigint NOT NULL DEFAULT -1
);
CREATE TABLE lease (
    id bigint PRIMARY KEY CHECK (id = 1),
    epoch bigint NOT NULL,
    holder text NOT NULL,
    expires timestamp with time zone
);
CREATE TABLE intents (
    epoch bigint NOT NULL,
    first bigint NOT NULL,
    last bigint NOT NULL,
    bytes bytea NOT NULL,
    PRIMARY KEY (epoch, first)
);
CREATE TABLE commits (
    number bigint PRIMARY KEY,
    time bigint NOT NULL,
    op bigint NOT NULL,
    root_digest bytea,
    previous_digest bytea,
    sum bigint NOT NULL DEFAULT -1
);
CREATE INDEX commits_time ON commits (time);
CREATE TABLE retention (
    id bigint PRIMARY KEY CHECK (id = 1),
    rule text NOT NULL,
    readers text NOT NULL,
    first bigint NOT NULL,
    swept bigint NOT NULL,
    sum bigint NOT NULL DEFAULT -1
);
CREATE TABLE pins (
    commit_number bigint NOT NULL,
    kind bigint NOT NULL,
    name bytea NOT NULL,
    made bigint NOT NULL,
    held_until bigint,
    sum bigint NOT NULL DEFAULT -1,
    PRIMARY KEY (commit_number, kind, name)
);
CREATE TABLE fileatt (
    ino bigint PRIMARY KEY,
    generation bigint NOT NULL,
    mode bigint NOT NULL,
    uid bigint NOT NULL,
    gid bigint NOT NULL,
    nlink bigint NOT NULL,
    rdev bigint NOT NULL,
    size bigint NOT NULL,
    allocated bigint NOT NULL,
    atime bigint NOT NULL,
    mtime bigint NOT NULL,
    ctime bigint NOT NULL,
    btime bigint NOT NULL,
    parent bigint NOT NULL,
    xattrs bigint NOT NULL,
    since bigint NOT NULL,
    sum bigint NOT NULL DEFAULT -1,
    digest bytea,
    digest_sum bigint NOT NULL DEFAULT -1,
    inline bytea
);
CREATE INDEX fileatt_orphans ON fileatt (ino) WHERE nlink = 0;
CREATE TABLE content_history (
    ino bigint NOT NULL,
    since bigint NOT NULL,
    until bigint NOT NULL,
    digest bytea,
    sum bigint NOT NULL DEFAULT -1,
    inline bytea,
    PRIMARY KEY (ino, until)
);
CREATE INDEX content_history_until ON content_history (until);
CREATE TABLE naming (
    parent bigint NOT NULL,
    name bytea NOT NULL,
    ino bigint NOT NULL,
    kind bigint NOT NULL,
    cookie bigint NOT NULL,
    since bigint NOT NULL,
    sum bigint NOT NULL DEFAULT -1,
    digest bytea,
    digest_sum bigint NOT NULL DEFAULT -1,
    PRIMARY KEY (parent, name)
);
CREATE INDEX naming_inode ON naming (ino);
CREATE UNIQUE INDEX naming_order ON naming (parent, cookie);
CREATE TABLE extents (
    ino bigint NOT NULL,
    start bigint NOT NULL,
    length bigint NOT NULL,
    owner bigint NOT NULL,
    block bigint NOT NULL,
    since bigint NOT NULL,
    sum bigint NOT NULL DEFAULT -1,
    PRIMARY KEY (ino, start)
);
CREATE TABLE blocks (
    owner bigint NOT NULL,
    id bigint NOT NULL,
    refs bigint NOT NULL,
    length bigint NOT NULL,
    base bigint NOT NULL,
    value bytea NOT NULL,
    sum bigint NOT NULL DEFAULT -1,
    bytes bytea,
    PRIMARY KEY (owner, id)
);
CREATE TABLE blocks_of (
    id bigint PRIMARY KEY,
    bytes bytea NOT NULL
);
CREATE TABLE dropped (owner bigint PRIMARY KEY);
CREATE TABLE branches (
    parent bigint NOT NULL,
    prefix bytea NOT NULL,
    children bytea NOT NULL,
    sum bigint NOT NULL DEFAULT -1,
    PRIMARY KEY (parent, prefix)
);
CREATE TABLE nodes (
    ino bigint NOT NULL,
    level bigint NOT NULL,
    idx bigint NOT NULL,
    children bytea NOT NULL,
    sum bigint NOT NULL DEFAULT -1,
    PRIMARY KEY (ino, level, idx)
);
CREATE TABLE xattr (
    ino bigint NOT NULL,
    name bytea NOT NULL,
    value bytea NOT NULL,
    since bigint NOT NULL,
    sum bigint NOT NULL DEFAULT -1,
    PRIMARY KEY (ino, name)
);
CREATE TABLE fileatt_history (
    ino bigint NOT NULL,
    since bigint NOT NULL,
    until bigint NOT NULL,
    generation bigint NOT NULL,
    mode bigint NOT NULL,
    uid bigint NOT NULL,
    gid bigint NOT NULL,
    nlink bigint NOT NULL,
    rdev bigint NOT NULL,
    size bigint NOT NULL,
    allocated bigint NOT NULL,
    atime bigint NOT NULL,
    mtime bigint NOT NULL,
    ctime bigint NOT NULL,
    btime bigint NOT NULL,
    parent bigint NOT NULL,
    xattrs bigint NOT NULL,
    sum bigint NOT NULL DEFAULT -1,
    PRIMARY KEY (ino, until)
);
CREATE INDEX fileatt_history_until ON fileatt_history (until);
CREATE TABLE naming_history (
    fork bigint NOT NULL,
    parent bigint NOT NULL,
    name bytea NOT NULL,
    since bigint NOT NULL,
    until bigint NOT NULL,
    ino bigint NOT NULL,
    kind bigint NOT NULL,
    cookie bigint NOT NULL,
    sum bigint NOT NULL DEFAULT -1,
    PRIMARY KEY (fork, parent, name, until)
);
CREATE TABLE extents_history (
    fork bigint NOT NULL,
    ino bigint NOT NULL,
    start bigint NOT NULL,
    since bigint NOT NULL,
    until bigint NOT NULL,
    length bigint NOT NULL,
    owner bigint NOT NULL,
    block bigint NOT NULL,
    sum bigint NOT NULL DEFAULT -1,
    PRIMARY KEY (fork, ino, start, until)
);
CREATE TABLE xattr_history (
    fork bigint NOT NULL,
    ino bigint NOT NULL,
    name bytea NOT NULL,
    since bigint NOT NULL,
    until bigint NOT NULL,
    value bytea NOT NULL,
    sum bigint NOT NULL DEFAULT -1,
    PRIMARY KEY (fork, ino, name, until)
);
CREATE VIEW files AS
WITH RECURSIVE tree (path, ino) AS (
    SELECT '/'::text, 1::bigint
    UNION ALL
    SELECT CASE tree.path WHEN '/' THEN '/' ELSE tree.path || '/' END || encode(naming.name, 'escape'), naming.ino
    FROM tree JOIN naming ON naming.parent = tree.ino
)
SELECT tree.path,
    fileatt.ino,
    CASE fileatt.mode & 61440
        WHEN 32768 THEN 'file' WHEN 16384 THEN 'directory' WHEN 40960 THEN 'symlink' WHEN 45056 THEN 'transformation'
        WHEN 4096 THEN 'fifo' WHEN 49152 THEN 'socket' WHEN 8192 THEN 'char device' ELSE 'block device'
    END AS kind,
    fileatt.mode & 4095 AS permissions,
    fileatt.uid, fileatt.gid, fileatt.nlink, fileatt.size, fileatt.allocated,
    to_timestamp(fileatt.mtime / 1e9) AS mtime,
    to_timestamp(fileatt.ctime / 1e9) AS ctime,
    to_timestamp(fileatt.btime / 1e9) AS btime,
    encode(fileatt.digest, 'hex') AS digest
FROM tree JOIN fileatt ON fileatt.ino = tree.ino;
