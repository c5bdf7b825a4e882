#!/usr/bin/env python3
"""Verifies a proof of `weft prove` on standard input after docs/reference/digest.md: a second implementation.

Prints the digest of the first directory, that of the last entry, and its path."""
import re, struct, sys
from blake3 import derive_key


def unescape(name):
    def meaning(escape):
        rest = escape[1]
        return {b"\\": b"\\", b"n": b"\n", b"r": b"\r"}.get(rest) or bytes([int(rest[1:], 16)])

    return re.sub(rb"\\(\\|n|r|x[0-9a-f]{2})", meaning, name)


def main():
    title, root, *lines, digest, end = sys.stdin.buffer.read().split(b"\n")
    assert title == b"weft proof 1" and root.startswith(b"root ") and digest.startswith(b"digest ") and not end
    steps = []
    for line in lines:
        if line.startswith(b"entry "):
            _, letter, permissions, entries, name = line.split(b" ", 4)
            steps.append((letter, int(permissions, 8), int(entries), unescape(name), []))
        else:
            side, sibling = line.decode().split(" ")
            steps[-1][-1].append((["left", "right"].index(side), bytes.fromhex(sibling)))
    digest = value = bytes.fromhex(digest.split()[1].decode())
    for letter, permissions, entries, name, siblings in reversed(steps):
        value = derive_key("weft 2026-11 directory entry", letter + struct.pack("<H", permissions) + value + name)
        for side, sibling in reversed(siblings):
            pair = [value, sibling] if side else [sibling, value]
            value = derive_key("weft 2026-11 directory node", b"".join(pair))
        value = derive_key("weft 2026-11 directory", struct.pack("<Q", entries) + value)
    assert all(letter == b"d" for letter, *_ in steps[:-1]) and value.hex().encode() == root.split()[1], "no proof"
    path = b"/".join(name for *_, name, _ in steps)
    sys.stdout.buffer.write(b" ".join([value.hex().encode(), digest.hex().encode(), path]) + b"\n")


main()
