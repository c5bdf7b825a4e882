"""Files of a volume, open."""

from __future__ import annotations

import errno
import os
import secrets
from typing import TYPE_CHECKING, Any

from fsspec.spec import AbstractBufferedFile  # type: ignore[import-untyped]

if TYPE_CHECKING:
    from .filesystem import WeftFileSystem

__all__ = ["WeftFile"]


class WeftFile(AbstractBufferedFile):  # type: ignore[misc]
    """A file that is read, or written from its beginning (`wb`, `xb`) or its end (`ab`).

    Bytes that are written are in the volume when a block is full, at `flush()` and at `close()`. They
    survive a crash once they are committed: within a second, or with `WeftFileSystem.commit()`. In a transaction of fsspec, or with `autocommit=False`, the file
    gets its name in one step, when that is committed.
    """

    fs: WeftFileSystem

    def __init__(self, fs: WeftFileSystem, path: str, mode: str = "rb", autocommit: bool = True, **kwargs: Any) -> None:
        self._id = ""
        self._place = path
        # The place of what is buffered.
        self._start = 0
        if mode == "rb":
            told = fs._attributes(path)
            if told["kind"] == "directory":
                raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), path)
            self._id, self._is_past = told["id"], told["past"]
            kwargs.setdefault("size", told["size"])
        super().__init__(fs, path, mode=mode, autocommit=autocommit, **kwargs)
        if mode == "rb":
            # Asked for already.
            self.details = fs._details(path, told)
            return
        if autocommit:
            exists = {"ab": "take", "xb": "fail"}.get(mode)
        else:
            exists = "fail"
            directory, _, name = path.rpartition("/")
            self._place = f"{directory}/.{name[:200]}.{secrets.token_hex(8)}.part"
            if mode == "xb" and fs.exists(path):
                raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), path)
        told = fs._create(self._place, exists)
        self._id = told["id"]
        if mode == "ab":
            if not autocommit and fs.exists(path):
                self._start = fs._copy_content(fs._attributes(path), told)
            elif autocommit:
                self._start = told["size"]
        self.loc = self._start

    def _fetch_range(self, start: int, end: int) -> bytes:
        try:
            return self.fs._read(self._id, start, end - start, self.path)
        except OSError as error:
            # Ids of the past are not kept for ever, but it never changes.
            if error.errno != errno.ESTALE or not self._is_past:
                raise
            self._id = self.fs._attributes(self.path)["id"]
            return self.fs._read(self._id, start, end - start, self.path)

    def flush(self, force: bool = False) -> None:
        """Writes what is buffered to the volume."""
        if self.closed:
            raise ValueError("Flush on closed file")
        if self.mode == "rb" or self.buffer.tell() == 0:
            return
        with self.buffer.getbuffer() as gathered:
            self.fs._write(self._id, self._start, gathered, self.path)
            self._start += len(gathered)
        self.buffer.seek(0)
        self.buffer.truncate()

    def commit(self) -> None:
        """Gives a file its name that was opened with `autocommit=False`."""
        if not self.autocommit and self._place != self.path:
            self.fs._rename(self._place, self.path)
            self._place = self.path

    def discard(self) -> None:
        """Removes a file that was opened with `autocommit=False`."""
        if not self.autocommit and self._place != self.path:
            self.fs._remove(self._place)
            self._place = self.path
