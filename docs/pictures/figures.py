#!/usr/bin/env python3
"""Draws figures.svg from tables in docs/benchmarks.md: Weft beside ext4, and two peers beside Weft.

    docs/pictures/figures.py
"""
import math
import re
from pathlib import Path

from drawing import BLUE, EDGE, GREEN, GREY, INK, ORANGE, PAPER, SOFT, Page

HERE = Path(__file__).resolve().parent
AGAINST_EXT4 = [
    ("grep-cold", "search a source tree, cold"),
    ("grep-warm", "search it, warm"),
    ("du-cold", "du of it, cold"),
    ("rm", "remove it"),
    ("tar", "unpack it"),
    ("write-sync", "write 1 GiB and sync"),
    ("read-cold", "read it back, cold"),
    ("random-write-fsync", "4 KiB writes with fsync"),
]
AGAINST_PEERS = [
    ("tar", "unpack a source tree"),
    ("create-write-4k", "write 4 KiB files"),
    ("open-read-4k", "open and read them"),
    ("unlink", "remove files"),
    ("write-sync", "write 64 MiB and sync"),
    ("read-cold", "read it back, cold"),
]


def table(heading):
    """Returns the first table below a heading: a dictionary for each kind of work, by column."""
    text = (HERE.parent / "benchmarks.md").read_text(encoding="utf-8")
    section = text.split(f"\n{heading}\n", 1)[1]
    rows = [[cell.strip() for cell in line.strip("|").split("|")]
            for line in re.search(r"(?:^\|.*\n)+", section, re.M).group(0).splitlines()]
    return {row[0]: dict(zip(rows[0], row)) for row in rows[2:]}


def rate(cell):
    """Returns the median of a cell such as `483 (475-491)`."""
    return float(cell.split()[0])


def position(ratio):
    """Returns where a ratio from 1/50 to 5 stands on the scale, from 0 to 1."""
    return math.log(max(ratio, 0.02) / 0.02) / math.log(5 / 0.02)


def scale(page, left, width, top, bottom, one):
    """Draws the scale of a panel; `one` says what has the ratio 1."""
    for ratio, label in [(0.02, "1/50"), (0.1, "1/10"), (0.5, "1/2"), (1, "1"), (2, "2"), (5, "5")]:
        x = left + width * position(ratio)
        page.line(x, top, x, bottom, stroke=INK if ratio == 1 else EDGE)
        page.text(x, bottom + 16, label, size=11, fill=SOFT, anchor="middle")
    page.text(left + width * position(1), top - 6, one, size=12, anchor="middle", bold=True)


def bar(page, left, width, y, height, ratio, colour):
    """Draws a bar up to a ratio, which it names, cut off as in the tables."""
    end = width * position(ratio)
    page.box(left, y, end, height, fill=colour, stroke=colour, radius=2)
    page.box(left + end + 3, y + height / 2 - 7, 28, 14, fill=PAPER, stroke=PAPER, radius=2)
    page.text(left + end + 5, y + height / 2 + 4, f"{math.floor(ratio * 100) / 100:.2f}", size=11)


def main():
    here, there = table("## Defaults, client on any processor"), table("## Other file systems")
    page = Page(920, 366, "Rates of Weft as multiples of ext4's, of peers as multiples of Weft's")
    page.text(20, 28, "Weft beside ext4", size=16, bold=True)
    page.text(20, 46, "rate as a multiple of ext4's", size=12, fill=SOFT)
    scale(page, 190, 220, 66, 316, "ext4")
    for number, (work, label) in enumerate(AGAINST_EXT4):
        y = 74 + 30 * number
        page.text(182, y + 15, label, size=12, anchor="end")
        bar(page, 190, 220, y + 2, 18, rate(here[work]["weft"]) / rate(here[work]["plain"]), BLUE)
    page.text(480, 28, "Peers beside Weft", size=16, bold=True)
    page.text(480, 46, "rate as a multiple of Weft's", size=12, fill=SOFT)
    page.box(660, 17, 12, 12, fill=ORANGE, stroke=ORANGE, radius=2)
    page.text(677, 28, "JuiceFS", size=12)
    page.box(740, 17, 12, 12, fill=GREEN, stroke=GREEN, radius=2)
    page.text(757, 28, "S3QL", size=12)
    scale(page, 640, 220, 66, 316, "Weft")
    for number, (work, label) in enumerate(AGAINST_PEERS):
        y = 74 + 40 * number
        page.text(632, y + 19, label, size=12, anchor="end")
        weft = rate(there[work]["weft"])
        bar(page, 640, 220, y + 1, 14, rate(there[work]["juicefs"]) / weft, ORANGE)
        bar(page, 640, 220, y + 17, 14, rate(there[work]["s3ql"]) / weft, GREEN)
    page.text(20, 356, "Right is faster; both scales are logarithmic. Two processors, one run "
              "each; docs/benchmarks.md has all rows, other runs and the commands.",
              size=11, fill=GREY)
    page.save(HERE / "figures.svg")


if __name__ == "__main__":
    main()
