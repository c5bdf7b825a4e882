"""Files of mounted Weft volumes as memory that the daemon shares.

The daemon of a volume has blocks of its files in memory. This module reads them where they lie::

    import numpy
    import weftfs_native

    with weftfs_native.open("/mnt/volume/numbers") as file:
        total = sum(numpy.frombuffer(block, "<u8").sum() for block in file.blocks(itemsize=8))

Any other regular file, and any part that cannot be read in place, is read as usual, with the same
results. Directories, FIFOs, sockets and devices cannot be opened.

A `Rope` is a list of `Block` objects that reads as one run of bytes. Ropes are cut and joined, and
sent to other processes over a `channel`, without copying a byte. A block supports the buffer
protocol: `memoryview(block)` and `numpy.frombuffer(block, dtype)` copy nothing, are read-only, and
keep the block's memory as long as they live.

Errors are `OSError`, or its subclass for the number in `errno`. A closed file or channel raises
`ValueError`, as files of Python do. So does a call that waits at an end of a channel while another
thread closes that end.
"""

from os import PathLike

from ._native import Block, Blocks, File, Receiver, Rope, Sender, __version__, channel

__all__ = ["Block", "Blocks", "File", "Receiver", "Rope", "Sender", "channel", "open"]


def open(path: str | bytes | PathLike[str] | PathLike[bytes]) -> File:
    """Open the regular file at `path` for reading.

    Raise IsADirectoryError for a directory, and OSError (EINVAL) for a FIFO, a socket or a device.
    """
    return File(path)
