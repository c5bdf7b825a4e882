"""Volumes of Weft for Python, without a mount.

`WeftFileSystem` is an fsspec file system, registered as `weft`: pandas, pyarrow, DuckDB, zarr and
others open `weft://VOLUME/PATH`. It also tells digests, compares moments of the past and brings
them back. The program `weft` must be on the PATH, or named by the variable WEFT_PROGRAM.
"""

from .file import WeftFile
from .filesystem import WeftFileSystem
from .program import WeftError

__all__ = ["WeftError", "WeftFile", "WeftFileSystem"]
__version__ = "0.1.0"
