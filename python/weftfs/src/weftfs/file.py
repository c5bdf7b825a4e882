"""Files of a volume, open."""

from __future__ import annotations

import contextlib
import errno
import gc
import io
import os
import weakref
from typing import TYPE_CHECKING, Any

from fsspec.spec import AbstractBufferedFile  # type: ignore[import-untyped]

from . import daemon

if TYPE_CHECKING:
    from .filesystem import WeftFileSystem

__all__ = ["MODES", "WeftFile"]

#: Modes in which a file is opened, without `t` or `+`.
MODES = ("rb", "wb", "ab", "xb")

#: Bytes that are read at once for lines.
LINE_BYTES = 256 << 10

#: Most bytes that are appended in one step.
APPENDED_BYTES_MAX = 256 << 10


class WeftFile(AbstractBufferedFile):  # type: ignore[misc]
    """A file that is read, or written from its beginning (`wb`, `xb`) or at its end (`ab`).

    Bytes that are written are in the volume when a block is full, at `flush()` and at `close()`. They
    survive a crash once they are committed: within a second, or with `WeftFileSystem.commit()`.
    Bytes that are appended go wherever the file ends by then, in pieces of whole lines of 256 KiB
    together at most: those of several processes do not mix. In a transaction of fsspec, or with
    `autocommit=False`, the file gets its name in one step, when that is committed.

    If the daemon is killed meanwhile, all further writes and `close()` fail: what was written before
    may be lost.
    """

    fs: WeftFileSystem
    size: int

    def __init__(self, fs: WeftFileSystem, path: str, mode: str = "rb", autocommit: bool = True, **kwargs: Any) -> None:
        self._id = ""
        # The place of what is buffered.
        self._start = 0
        self._done = 0
        # Bytes that were read for lines, and their place.
        self._block, self._block_start = b"", 0
        self._replaces: dict[str, Any] | None = None
        # What is there of this name, if its content goes on here.
        self._before: dict[str, Any] | None = None
        self._process = os.getpid()
        if mode == "rb":
            told = fs._attributes(path)
            if told["kind"] == "directory":
                raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), path)
            self._id, self._is_past = told["id"], told["past"]
            kwargs.setdefault("size", told["size"])
            super().__init__(fs, path, mode=mode, autocommit=autocommit, **kwargs)
            # Asked for already.
            self.details = fs._details(path, told)
            return
        # Before it is made: from here on nothing may get lost.
        self._daemon = fs._daemon()
        self.fs, self.path, self.mode = fs, path, mode
        if autocommit:
            told = fs._create(path, {"ab": "take", "xb": "fail"}.get(mode))
            self._id = told["id"]
            self._start = told["size"] if mode == "ab" else 0
        else:
            self._replaces = fs._replacement(path, "fail" if mode == "xb" else None)
            self._id = self._replaces["file"]["id"]
            if mode == "ab":
                self._start = self._copied_before()
        super().__init__(fs, path, mode=mode, autocommit=autocommit, **kwargs)
        self.loc = self._start
        _written[id(self)] = self

    @property
    def name(self) -> str:
        """The path of the file in its volume."""
        return str(self.path)

    def seekable(self) -> bool:
        """True: files that are written can be written anywhere, unless they are appended to."""
        return True

    def seek(self, loc: int, whence: int = io.SEEK_SET) -> int:
        """Goes to a place; of a file that is appended to, where it is said to be alone."""
        if self.mode == "rb":
            return int(super().seek(loc, whence))
        self.flush()
        base = {io.SEEK_SET: 0, io.SEEK_CUR: self.loc, io.SEEK_END: self._size()}.get(whence)
        if base is None:
            raise ValueError(f"whence is {whence}: it must be 0, 1 or 2")
        if base + loc < 0:
            raise ValueError(f"{base + loc} is before the start of the file")
        self.loc = base + loc
        if self.mode != "ab":
            self._start = self.loc
        return int(self.loc)

    def truncate(self, size: int | None = None) -> int:
        """Cuts the file off at `size` or where it is, or extends it by zeros."""
        if self.mode == "rb":
            raise io.UnsupportedOperation("the file is open for reading")
        self.flush()
        size = int(self.loc) if size is None else size
        self.fs._set(self.path, {"id": self._id, "size": size}, self._daemon)
        if self.mode == "ab":
            self._start = self.loc = size
        return size

    def read(self, length: int | None = -1) -> bytes:
        """Returns so many bytes, or all that are left. At the end it looks if the file has grown."""
        if self.mode == "rb" and not self.closed and not self._is_past and self.loc >= self.size and length != 0:
            self.size = self.cache.size = self._size()
        content: bytes = super().read(length)
        return content

    def readline(self, size: int | None = -1) -> bytes:
        """Returns the next line, or as many bytes of it."""
        most = -1 if size is None else size
        parts: list[bytes] = []
        taken = 0
        while most < 0 or taken < most:
            at = self.loc - self._block_start
            if not 0 <= at < len(self._block):
                start = self.loc
                self._block, self._block_start, at = self.read(LINE_BYTES), start, 0
                self.loc = start
                if not self._block:
                    break
            end = self._block.find(b"\n", at) + 1
            stop = end or len(self._block)
            if most >= 0:
                stop = min(stop, at + most - taken)
            parts.append(self._block[at:stop])
            taken += stop - at
            self.loc += stop - at
            if end and stop == end:
                break
        return parts[0] if len(parts) == 1 else b"".join(parts)

    def __next__(self) -> bytes:
        """Returns the next line."""
        line = self.readline()
        if not line:
            raise StopIteration
        return line

    def readlines(self, hint: int | None = -1) -> list[bytes]:
        """Returns the lines that are left; of more than `hint` bytes, if that is positive, no more."""
        return io.IOBase.readlines(self, -1 if hint is None else hint)

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
        if self.mode == "rb":
            return
        if self.buffer.tell() == 0:
            self.fs._none_lost(self._daemon, self.path)
            return
        with self.buffer.getbuffer() as gathered:
            try:
                self._put(gathered)
            finally:
                rest = bytes(gathered[self._done :])
                gathered.release()
                self.buffer.seek(0)
                self.buffer.truncate()
                self.buffer.write(rest)

    def write(self, data: Any) -> int:
        """Writes bytes: into the buffer, or at once if they are many."""
        content = memoryview(data).cast("B")
        if self.mode == "rb" or self.closed or len(content) < self.blocksize:
            return int(super().write(content))
        self.flush()
        try:
            self._put(content)
        finally:
            self.loc = self._start
        return len(content)

    def _put(self, content: memoryview) -> None:
        """Writes bytes to the volume. `_done` is then how many of them must not be written again."""
        self._done = 0
        pieces = self._pieces(content)
        try:
            for piece in pieces:
                place: dict[str, str | int | bytes] = {"append": ""} if self._appends() else {"offset": self._start}
                try:
                    self.fs._write(self._id, place, piece, self.path, self._daemon)
                except BaseException as error:
                    is_refused = isinstance(error, OSError) and not isinstance(error, (ConnectionError, TimeoutError))
                    if self._appends() and not is_refused:
                        # It may have been made.
                        self._done += len(piece)
                    raise
                self._done += len(piece)
                self._start += len(piece)
        finally:
            for piece in pieces:
                piece.release()

    def _appends(self) -> bool:
        # Nobody else knows one that has no name yet.
        return self.mode == "ab" and self._replaces is None

    def _pieces(self, gathered: memoryview) -> list[memoryview]:
        """Cuts what is buffered into what is written in one request each."""
        bytes_max = APPENDED_BYTES_MAX if self._appends() else self.fs.request_bytes
        pieces, at = [], 0
        while len(gathered) - at > bytes_max:
            lines = bytes(gathered[at : at + bytes_max]).rfind(b"\n") + 1 if self._appends() else 0
            end = at + (lines or bytes_max)
            pieces.append(gathered[at:end])
            at = end
        return [*pieces, gathered[at:]]

    def _size(self) -> int:
        return int(self.fs._attributes_by_id(self._id, self.path)["size"])

    def _copied_before(self) -> int:
        """Copies what the file is that this one replaces; returns how many bytes."""
        before = self.fs._pending.get(self.path)
        assert self._replaces is not None
        if before is not None:
            if not before.closed:
                before.flush()
            there = self.fs._attributes_by_id(before._id, self.path)
            return self.fs._copy_content(there, self._id, self.path, self._daemon)
        try:
            self._before = self.fs._attributes(self.path)
        except FileNotFoundError:
            return 0
        return self.fs._copy_content(self._before, self._id, self.path, self._daemon)

    def _is_as_before(self) -> bool:
        """True unless somebody has changed the file of this name since its content was copied."""
        if self._before is None:
            return True
        try:
            there = self.fs._attributes(self.path)
        except FileNotFoundError:
            return False
        return all(there[of] == self._before[of] for of in ("id", "size", "mtime"))

    def commit(self) -> None:
        """Gives a file its name that was opened with `autocommit=False`."""
        if self._replaces is not None and self._process == os.getpid():
            if not self.closed:
                self.flush()
            self.fs._none_lost(self._daemon, self.path)
            if not self._is_as_before():
                why = "somebody has changed it since the transaction opened it to append: it stays as it is"
                raise OSError(errno.EBUSY, why, self.path)
            self.fs._take_place(self._replaces, self.path, self.mode == "xb", self._daemon)
            self._replaces = None
            self._is_decided()

    def discard(self) -> None:
        """Removes a file that was opened with `autocommit=False`."""
        # A process that was forked leaves it to its parent.
        if self._replaces is not None and self._process == os.getpid():
            with contextlib.suppress(FileNotFoundError):
                self.fs._remove_in(self._replaces["in"], bytes.fromhex(self._replaces["name"]), self.path)
            self._replaces = None
            self._is_decided()

    def _is_decided(self) -> None:
        if self.fs._pending.get(self.path) is self:
            del self.fs._pending[self.path]


#: Files that are open to be written, by id().
_written: weakref.WeakValueDictionary[int, WeftFile] = weakref.WeakValueDictionary()


def write_buffered(volume: str) -> None:
    """Writes what is buffered for files of a volume that are still open."""
    for file in list(_written.values()):
        if file.closed or file.fs.volume != volume:
            continue
        # Text waits in objects of their own, which fsspec makes around a file.
        for holder in gc.get_referrers(file):
            if isinstance(holder, (io.TextIOWrapper, io.BufferedWriter)):
                holder.flush()
        file.flush()


daemon.before_release.append(write_buffered)
