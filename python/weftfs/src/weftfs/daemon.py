"""Daemons of volumes: the one that has a volume mounted or serves it, or else a helper.

A helper is `weft serve --socket VOLUME`. It ends once its standard input does: with this process, whatever
ends that. All file systems of a process share one helper for each volume. A process that was forked
asks the helper of its parent as any other daemon.
"""

from __future__ import annotations

import atexit
import json
import os
import subprocess
import tempfile
import threading
import time
from typing import IO, Any

from .connection import Connection
from .program import WeftError, message, program, value

__all__ = ["Daemon", "release", "renewed", "use"]

#: Seconds to wait for a volume that another process is about to leave.
BUSY_MAX = 10.0

#: Seconds between two looks at one.
BUSY_AGAIN = 0.1

#: Seconds that a helper may take to commit all.
ENDING_MAX = 90.0


class Helper:
    """A server of a volume that this process has started."""

    def __init__(self, volume: str) -> None:
        self.volume = volume
        self._log: IO[bytes] = tempfile.TemporaryFile()
        # Ctrl-C at a terminal is for this process alone, which ends the helper when it likes.
        self._process = subprocess.Popen(
            [program(), "serve", "--socket", "--until-input-ends", "--json", "--", volume],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._log,
            start_new_session=True,
        )
        assert self._process.stdin is not None and self._process.stdout is not None
        self._input, self._output = self._process.stdin, self._process.stdout
        line = self._output.readline()
        if not line:
            self._process.wait()
            raise WeftError(self._message())
        self.socket = str(json.loads(line)["socket"])

    def end(self) -> None:
        """Has it commit all, and waits for that. Raises `WeftError` if it could not."""
        self._input.close()
        try:
            code = self._process.wait(ENDING_MAX)
        except subprocess.TimeoutExpired as error:
            pid = self._process.pid
            why = f"process {pid} has not committed all of {self.volume} within {ENDING_MAX:.0f} seconds"
            raise WeftError(f"{why}, and still tries; 'weft status' tells what holds it up") from error
        self._output.close()
        if code != 0:
            raise WeftError(f"not all changes of {self.volume} could be committed: {self._message()}")

    def forget(self) -> None:
        """Lets go of it in a process that was forked: it is the parent's."""
        for pipe in (self._input, self._output):
            os.close(pipe.fileno())
        # Nothing is left for its destructor to do.
        self._process.returncode = 0

    def _message(self) -> str:
        self._log.seek(0)
        lines = self._log.read().strip().rsplit(b"\n", 1)
        return message(lines[-1])


class Daemon:
    """The daemon of a volume."""

    def __init__(self, socket: str, helper: Helper | None = None) -> None:
        self.connection = Connection(socket)
        self.helper = helper

    def status(self) -> dict[str, Any]:
        """Returns what it tells of itself, as `weft status --json` has it."""
        status: dict[str, Any] = self.connection.get("/status")
        return status


_lock = threading.Lock()
_daemons: dict[str, Daemon] = {}


def use(volume: str) -> Daemon:
    """Returns the daemon of a volume, and starts a helper if it has none."""
    with _lock:
        if volume not in _daemons:
            _daemons[volume] = _found(volume)
        return _daemons[volume]


def renewed(volume: str, ended: Daemon) -> Daemon:
    """Returns the daemon of a volume whose daemon before has ended."""
    with _lock:
        if _daemons.get(volume) is ended:
            del _daemons[volume]
    return use(volume)


def release(volume: str) -> None:
    """Ends the helper of a volume, if it is of this process, once all is committed."""
    with _lock:
        daemon = _daemons.pop(volume, None)
        if daemon is not None and daemon.helper is not None:
            daemon.helper.end()


def _found(volume: str) -> Daemon:
    until = time.monotonic() + BUSY_MAX
    while True:
        for status in value(["status", "--json", "--", volume], codes=(0, 1)):
            if status.get("error") and "socket" not in status:
                raise WeftError(f"the daemon of {volume} does not answer: {status['error']}")
            if status.get("as_of") is None and "socket" in status:
                return Daemon(str(status["socket"]))
        try:
            helper = Helper(volume)
            return Daemon(helper.socket, helper)
        except WeftError as error:
            # Another process may have been quicker, or is about to leave it.
            if "in use" not in str(error) or time.monotonic() > until:
                raise
        time.sleep(BUSY_AGAIN)


def _end_all() -> None:
    for volume in list(_daemons):
        release(volume)


def _after_fork() -> None:
    global _lock
    _lock = threading.Lock()
    for daemon in _daemons.values():
        if daemon.helper is not None:
            daemon.helper.forget()
    _daemons.clear()


atexit.register(_end_all)
os.register_at_fork(after_in_child=_after_fork)
