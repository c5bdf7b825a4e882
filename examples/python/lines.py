"""Counts the lines of a file, block by block where they lie: python examples/python/lines.py FILE."""

import sys

import numpy
import weftfs_native

NEWLINE = ord("\n")


def lines(path: str) -> int:
    with weftfs_native.open(path) as file:
        return sum(numpy.count_nonzero(numpy.frombuffer(block, "u1") == NEWLINE) for block in file.blocks())


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit("name one file")
    print(lines(sys.argv[1]))
