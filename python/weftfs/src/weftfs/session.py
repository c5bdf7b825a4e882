"""Sessions with daemons: connections by which each side knows that the other one is still there."""

from __future__ import annotations

import contextlib
import errno
import json
import select
import socket
import time

from .connection import Gone, connected, received_head, refusal

__all__ = ["Ending", "Session"]

#: Most bytes of the last words of a daemon.
WORDS_BYTES_MAX = 64 << 10

#: Seconds that a daemon may take for its first answer.
BEGIN_MAX = 10.0

HEAD = b"POST /session HTTP/1.1\r\nHost: weft\r\nTransfer-Encoding: chunked\r\n\r\n"

#: The last chunk of a request (RFC 9112, 7.1).
END = b"0\r\n\r\n"


class Ending(OSError):
    """The daemon ends, and takes no more sessions."""


class Session:
    """A session with the daemon that listens at a socket, from now until it is left."""

    def __init__(self, path: str) -> None:
        self._link = connected(path, BEGIN_MAX)
        try:
            self._link.sendall(HEAD)
            head = received_head(self._link)
            code = int(head.split(maxsplit=2)[1])
            if code != 200:
                text = self._link.recv(1000)
                kind = Ending if code == 503 and b"about to end" in text else None
                raise kind(errno.EAGAIN, text.decode(errors="replace").strip()) if kind else refusal(code, text)
        except (BrokenPipeError, ConnectionResetError, EOFError) as error:
            self._link.close()
            raise Gone(errno.ECONNRESET, "the daemon of the volume has ended") from error
        except BaseException:
            self._link.close()
            raise
        self._words = b""
        self._has_ended = False

    def has_ended(self) -> bool:
        """True once the daemon has said its last word, or is gone without one."""
        self._wait(0)
        return self._has_ended

    def is_committed(self, seconds: float) -> bool:
        """True if the daemon ends within this time and tells that it has committed all. False if
        it was killed."""
        self._wait(seconds)
        told = self._told()
        return bool(told.get("ended") and told.get("committed"))

    def leave(self, seconds: float) -> str | None:
        """Leaves the daemon, which ends if it was there for nobody else, and waits for that.
        Returns the reason that it has not committed all, if that is so."""
        with contextlib.suppress(OSError):
            self._link.sendall(END)
        self._wait(seconds)
        is_answered, told = self._has_ended, self._told()
        self._link.close()
        if not is_answered:
            why = f"the daemon has not committed all within {seconds:.0f} seconds, and still tries"
            return f"{why}; 'weft status' tells more"
        if not told:
            return "the daemon was killed"
        return None if not told["ended"] or told["committed"] else str(told["error"])

    def is_daemon_there(self) -> bool:
        """True if the daemon goes on for others after this one was left."""
        return self._told().get("ended") is False

    def forget(self) -> None:
        """Lets go of it in a process that was forked: it is the parent's."""
        self._link.close()
        self._has_ended = True

    def _wait(self, seconds: float) -> None:
        """Takes what the daemon says until that ends, for so long at most."""
        until = time.monotonic() + seconds
        while not self._has_ended:
            poll = select.poll()
            poll.register(self._link, select.POLLIN)
            if not poll.poll(max(0.0, until - time.monotonic()) * 1000):
                return
            try:
                more = self._link.recv(WORDS_BYTES_MAX)
            except OSError:
                more = b""
            self._words += more
            self._has_ended = not more or b"\r\n0\r\n" in self._words or len(self._words) > WORDS_BYTES_MAX

    def _told(self) -> dict[str, object]:
        """Returns its last line; nothing if it never came."""
        for line in self._words.splitlines():
            if line.startswith(b"{"):
                with contextlib.suppress(ValueError):
                    told: dict[str, object] = json.loads(line)
                    return told
        return {}
