#!/usr/bin/env python3
"""Draws overview.svg, what Weft does: one tree of files, six ways to look at it.

    docs/pictures/overview.py
"""
from pathlib import Path

from drawing import BLUE, EDGE, GREEN, ORANGE, SOFT, Page

CARD, GAP, LEFT, TOP = 286, 15, 16, 16
CARDS = [
    ("A directory", "any program, over FUSE", BLUE,
     ["$ ls /mnt/photos", "2025  2026  index.txt",
      "$ grep -r sea /mnt/photos", "2026/index.txt: sea.jpg"]),
    ("A database", "any SQL tool", GREEN,
     ["=> SELECT path, size", "   FROM photos.files;",
      " /2026/sea.jpg   2481034", " /index.txt         1917"]),
    ("A proof", "BLAKE3 of the whole tree, kept", ORANGE,
     ["$ weft digest photos.weft:", "3e4b175c…  photos.weft:/",
      "$ weft verify … --key public.key", "photos.weft holds exactly that"]),
]
LOWER = [
    ("A view", "files computed from files", BLUE,
     ["$ weft link log.zst errors \\", "    -n 'zstd -d | grep ERROR'",
      "$ tail -1 errors", "14:02 ERROR disk is hot"]),
    ("A server", "NFS for other machines", GREEN,
     ["$ weft serve photos.weft \\", "    --nfs 192.0.2.7:2049 \\",
      "    --export '/ 192.0.2.0/24'"]),
    ("A buffer", "libweft: read without copies", ORANGE,
     ["$ weft pipe 'cat list.txt", "    | grep sea | wc -l'", "212"]),
]


def card(page, x, y, title, note, colour, lines):
    """Draws a way to look at the tree."""
    page.box(x, y, CARD, 122, fill="#f7f9fb", stroke=colour)
    page.text(x + 12, y + 23, title, size=15, bold=True, fill=colour)
    page.text(x + CARD - 12, y + 23, note, size=11, fill=SOFT, anchor="end")
    for number, line in enumerate(lines):
        page.text(x + 12, y + 48 + 20 * number, line, size=13, mono=True)


def main():
    page = Page(920, 408, "One tree: a directory, rows, a digest, views, NFS, shared memory")
    middle = 203
    for column in range(3):
        x = LEFT + column * (CARD + GAP) + CARD / 2
        page.line(x, TOP + 122, x, middle - 33, stroke=CARDS[column][2])
        page.line(x, middle + 33, x, middle + 67, stroke=LOWER[column][2])
    page.box(LEFT, middle - 33, 3 * CARD + 2 * GAP, 66, fill="#e9eff5", stroke=EDGE)
    page.text(460, middle - 8, "Weft: every file is rows and immutable blocks, each with its hash",
              size=16, bold=True, anchor="middle")
    page.text(460, middle + 17, "SQLite and local files   ·   one portable file   ·   "
              "PostgreSQL, with the backups and replicas that you have", size=13, anchor="middle")
    for column in range(3):
        x = LEFT + column * (CARD + GAP)
        card(page, x, TOP, *CARDS[column])
        card(page, x, middle + 67, *LOWER[column])
    page.save(Path(__file__).with_name("overview.svg"))


if __name__ == "__main__":
    main()
