"""Counts the lines of a file, block by block where they lie: python examples/python/lines.py FILE."""

import sys

import numpy
import weftfs_native

NEWLINE = ord("\n")


def lines(path: str) -> int:
    """Return the number of newlines in the file at `path`."""
    with weftfs_native.open(path) as file:
        # Without memoryview, type checkers know only from Python 3.12 on that a block is a buffer.
        blocks = (numpy.frombuffer(memoryview(block), "u1") for block in file.blocks())
        return sum(int(numpy.count_nonzero(block == NEWLINE)) for block in blocks)


def main(arguments: list[str]) -> int:
    if len(arguments) != 1:
        print("usage: lines.py FILE", file=sys.stderr)
        return 2
    try:
        count = lines(arguments[0])
    except OSError as error:
        print(f"lines.py: {arguments[0]}: {error.strerror}", file=sys.stderr)
        return 1
    print(count)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
