"""Daemons of volumes: the one that has a volume mounted or serves it, or else a helper.

A helper is `weft serve --socket VOLUME`. It serves all processes that have a session with it, and
ends with the last one, whatever ends that, once all is committed. All file systems of a process
share one session for each volume; a process that was forked has one of its own.
"""

from __future__ import annotations

import atexit
import contextlib
import errno
import json
import os
import select
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from typing import Any

from .connection import Connection, Gone
from .program import WeftError, message, program, value
from .session import Ending, Session

__all__ = ["Daemon", "release", "use"]

#: Seconds to wait for a volume that another process is about to open or to leave.
BUSY_MAX = 30.0

#: Words by which commands say that a volume is in use.
BUSY = ("in use", " is served ", " is mounted ")

#: Seconds between two looks at one.
BUSY_AGAIN = 0.1

#: The message about changes that may be lost.
LOST = "the daemon of the volume was killed: what was changed and not committed since may be lost; look, and do it again"

#: Seconds that a helper may take to open its volume.
START_MAX = 60.0

#: Seconds that a daemon may take to commit all.
ENDING_MAX = 90.0


class Daemon:
    """A daemon of a volume, and the session of this process with it."""

    def __init__(self, volume: str, path: str, helper: subprocess.Popen[bytes] | None = None) -> None:
        self.volume = volume
        self.connection = Connection(path)
        self.session = Session(path)
        # Changes of this process, and how many of them are committed for sure.
        self._changes = self._committed = 0
        #: True if it has ended, and not all that was changed is known to be committed.
        self.is_lost = False
        #: True if this process has left it.
        self.is_left = False
        self._lock = threading.Lock()
        self._helper = helper

    @property
    def is_changed(self) -> bool:
        """True if this process has changed something since it had all committed."""
        return self._changes > self._committed

    def changes(self) -> None:
        """Notes that this process is about to change something."""
        with self._lock:
            self._changes += 1

    def status(self) -> dict[str, Any]:
        """Returns what it tells of itself, as `weft status --json` has it."""
        status: dict[str, Any] = self.connection.get("/status")
        return status

    def has_ended(self, seconds: float = 0) -> bool:
        """True if it has ended. Waits for that so long, if there is a time; `TimeoutError` then."""
        if self.is_left:
            return True
        is_committed = self.session.is_committed(seconds)
        if self.session.has_ended():
            self.is_lost = not is_committed
            self._reap(1)
            return True
        if seconds:
            raise TimeoutError(errno.ETIMEDOUT, f"the daemon of {self.volume} ends, and still commits; try it again later")
        return False

    def commit(self) -> int:
        """Has it commit all; returns the number of the last commit."""
        # What others change meanwhile may be left out.
        changes = self._changes
        told = self.connection.post("/commit")
        with self._lock:
            self._committed = max(self._committed, changes)
        return int(told["commit"])

    def leave(self) -> None:
        """Leaves it once all is committed. Raises `WeftError` if that fails."""
        was_changed = self.is_changed
        if was_changed and not self.session.has_ended():
            try:
                self.commit()
            except Gone:
                pass
            except OSError as error:
                # It stays, and so does what is not committed: the reason may be mended.
                raise WeftError(f"not all changes of {self.volume} could be committed: {error.strerror}") from error
        failed = self.session.leave(ENDING_MAX)
        self._reap(0 if self.session.is_daemon_there() else 1)
        self.is_left = True
        if failed is not None and was_changed:
            self.is_lost = True
            raise WeftError(f"not all changes of {self.volume} could be committed: {failed}")

    def forget(self) -> None:
        """Lets go of it in a process that was forked: it is the parent's."""
        self.is_left = True
        self.session.forget()
        if self._helper is not None:
            # Nothing is left for its destructor to do.
            self._helper.returncode = 0

    def _reap(self, seconds: float) -> None:
        """Has the system forget the process of a helper that has ended."""
        if self._helper is not None:
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._helper.wait(seconds)


class Volume:
    """The daemon of one volume, as far as there is one."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.daemon: Daemon | None = None


_lock = threading.Lock()
_volumes: dict[str, Volume] = {}
#: Ends of pipes by which helpers know that the process which starts them is there.
_inputs: set[int] = set()


def use(volume: str, not_this: Daemon | None = None) -> Daemon:
    """Returns the daemon of a volume, and starts a helper if it has none.

    Args:
        volume: the volume.
        not_this: a daemon that does not listen any more; its end is waited for.

    Raises `WeftError` once if a daemon has ended and changes of this process may be lost with it.
    """
    with _lock:
        known = _volumes.setdefault(volume, Volume())
    with known.lock:
        last = known.daemon
        if last is not None and last.has_ended(ENDING_MAX if last is not_this else 0):
            known.daemon = None
            if last.is_lost and last.is_changed:
                raise WeftError(f"{volume}: {LOST}")
        if known.daemon is None:
            known.daemon = _found(volume)
        return known.daemon


#: Called before the daemon of a volume is left: it may write what is buffered.
before_release: list[Callable[[str], None]] = []


def release(volume: str) -> None:
    """Leaves the daemon of a volume once all is committed. Raises `WeftError` if that fails."""
    for call in before_release:
        call(volume)
    with _lock:
        known = _volumes.get(volume)
    if known is None:
        return
    with known.lock:
        if known.daemon is not None:
            try:
                known.daemon.leave()
            finally:
                if known.daemon.is_left:
                    known.daemon = None


def _found(volume: str) -> Daemon:
    """Returns a daemon that has the volume, or else a new helper."""
    until = time.monotonic() + BUSY_MAX
    while True:
        try:
            path = _path_of_running(volume)
            return Daemon(volume, path) if path is not None else _started(volume)
        except (Gone, Ending, WeftError) as error:
            # Another process may have been quicker, or is about to leave it.
            is_busy = isinstance(error, (Gone, Ending)) or any(words in str(error) for words in BUSY)
            if not is_busy or time.monotonic() > until:
                raise
        time.sleep(BUSY_AGAIN)


def _path_of_running(volume: str) -> str | None:
    for status in value(["status", "--json", "--", volume], codes=(0, 1)):
        if status.get("error") and "socket" not in status:
            raise WeftError(f"the daemon of {volume} does not answer: {status['error']}")
        if status.get("as_of") is None and "socket" in status:
            return str(status["socket"])
    return None


def _started(volume: str) -> Daemon:
    """Starts a helper."""
    if "://" not in volume and os.path.sep in volume and not os.path.exists(volume):
        raise WeftError(f"there is no volume at {volume}; make one with 'weft init'")
    with tempfile.TemporaryFile() as log:
        stays, ends = os.pipe()
        _inputs.add(ends)
        try:
            # Ctrl-C at a terminal is for this process alone, which leaves the helper when it likes.
            helper = subprocess.Popen(
                [program(), "serve", "--socket", "--until-unused", "--json", "--", volume],
                stdin=stays,
                stdout=subprocess.PIPE,
                stderr=log,
                start_new_session=True,
            )
            os.close(stays)
            stays = -1
            assert helper.stdout is not None
            with helper.stdout as output:
                line = output.readline() if select.select([output], [], [], START_MAX)[0] else None
            if line is None:
                helper.kill()
                helper.wait()
                why = f"it has not answered within {START_MAX:.0f} seconds"
                raise WeftError(f"'weft serve' cannot open {volume}: {why}")
            if not line:
                helper.wait()
                log.seek(0)
                raise WeftError(message(log.read().strip().rsplit(b"\n", 1)[-1]))
            # From here on it is the session that keeps it.
            return Daemon(volume, str(json.loads(line)["socket"]), helper)
        finally:
            _inputs.discard(ends)
            os.close(ends)
            if stays >= 0:
                os.close(stays)


def _end_all() -> None:
    for volume in list(_volumes):
        try:
            release(volume)
        except (OSError, WeftError) as error:
            print(f"weftfs: {error}", file=sys.stderr)


def _after_fork() -> None:
    global _lock
    _lock = threading.Lock()
    for known in _volumes.values():
        if known.daemon is not None:
            known.daemon.forget()
    _volumes.clear()
    for end in _inputs:
        os.close(end)
    _inputs.clear()


atexit.register(_end_all)
os.register_at_fork(after_in_child=_after_fork)
