#!/usr/bin/env python3
"""Digests of files and directories after docs/reference/digest.md: a second implementation, to compare Weft's with.

digest.py PATH...: prints them as `weft digest` does."""
import os, stat, struct, sys
import numpy as np
from blake3 import CHUNK, blake3, derive_key, leaves, merged, as_bytes

PIECE = 4 << 20
LETTERS = {
    stat.S_IFREG: b"f", stat.S_IFDIR: b"d", stat.S_IFLNK: b"l", stat.S_IFIFO: b"p",
    stat.S_IFSOCK: b"s", stat.S_IFCHR: b"c", stat.S_IFBLK: b"b",
}


def pieces(path):
    """The bytes of each piece of a file of more than one; None for one that is a hole as a whole."""
    with open(path, "rb", buffering=0) as file:
        size = os.fstat(file.fileno()).st_size
        for start in range(0, size, PIECE):
            try:
                is_hole = os.lseek(file.fileno(), start, os.SEEK_DATA) >= start + PIECE
            except OSError:
                is_hole = size - start >= PIECE
            if is_hole:
                yield None
            else:
                yield os.pread(file.fileno(), min(PIECE, size - start), start)


def sparse(values):
    """The value of a tree in which subtrees of zeros count as zero."""
    if len(values) == 1:
        return values[0]
    if not any(value.any() for value in values):
        return values[0]
    left = 1 << (len(values) - 1).bit_length() - 1
    return merged(np.stack([sparse(values[:left]), sparse(values[left:])]))[0]


def file(path, listed):
    """The digest of a file's content, or the one by which a directory lists it."""
    size = os.stat(path).st_size
    if size <= PIECE:
        with open(path, "rb") as opened:
            return blake3(opened.read())
    zero = np.zeros(8, np.uint32)
    is_zero = [piece is None or (len(piece) == PIECE and not any(piece)) for piece in pieces(path)]
    if listed and any(is_zero):
        values = [
            zero if nothing else merged(leaves(piece, index * PIECE // CHUNK))[0]
            for index, (piece, nothing) in enumerate(zip(pieces(path), is_zero))
        ]
        return derive_key("weft 2026-11 sparse file", struct.pack("<Q", size) + as_bytes(sparse(values)[None]))
    values = [
        merged(leaves(bytes(PIECE) if piece is None else piece, index * PIECE // CHUNK))
        for index, piece in enumerate(pieces(path))
    ]
    return as_bytes(merged(np.concatenate(values), root=True))


def listed(path, status):
    if stat.S_ISREG(status.st_mode):
        return file(path, True)
    if stat.S_ISDIR(status.st_mode):
        return directory(path)
    if stat.S_ISLNK(status.st_mode):
        return blake3(os.readlink(path))
    if stat.S_ISCHR(status.st_mode) or stat.S_ISBLK(status.st_mode):
        return blake3(struct.pack("<II", os.major(status.st_rdev), os.minor(status.st_rdev)))
    return blake3(b"")


def directory(path):
    entries = []
    for name in os.listdir(path):
        below = os.path.join(path, name)
        status = os.lstat(below)
        letter, permissions = LETTERS[stat.S_IFMT(status.st_mode)], stat.S_IMODE(status.st_mode)
        entry = letter + struct.pack("<H", permissions) + listed(below, status) + name
        entries.append((name + b"\0", derive_key("weft 2026-11 directory entry", entry)))
    return derive_key("weft 2026-11 directory", struct.pack("<Q", len(entries)) + tree(entries))


def bit(key, number):
    return key[number // 8] >> (7 - number % 8) & 1


def tree(entries):
    if not entries:
        return bytes(32)
    if len(entries) == 1:
        return entries[0][1]
    # No key is the beginning of another: the first bit in which two differ comes before the end of the shortest.
    shortest = 8 * min(len(key) for key, _ in entries)
    number = next(n for n in range(shortest) if len({bit(key, n) for key, _ in entries}) == 2)
    sides = [[entry for entry in entries if bit(entry[0], number) == side] for side in (0, 1)]
    return derive_key("weft 2026-11 directory node", tree(sides[0]) + tree(sides[1]))


def main():
    for path in map(os.fsencode, sys.argv[1:]):
        is_directory = os.path.isdir(path)
        found = directory(path) if is_directory else file(path, False)
        mark = b"/" if is_directory and not path.endswith(b"/") else b""
        sys.stdout.buffer.write(found.hex().encode() + b"  " + path + mark + b"\n")


main()
