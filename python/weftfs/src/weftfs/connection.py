"""Requests to the daemon of a volume, at its control socket: one connection each, HTTP/1.1."""

from __future__ import annotations

import errno
import json
import os
import socket
from typing import Any, Literal

__all__ = ["Connection", "Gone"]

#: Seconds that a daemon may be silent. It answers itself once it has waited for its volume.
SILENCE_MAX = 120.0

#: Bytes that are read from the socket at once.
READ_BYTES = 1 << 20

#: Most bytes of the head of an answer.
HEAD_BYTES_MAX = 16 << 10


class Gone(ConnectionError):
    """Nobody listens at the socket: the daemon has ended."""


class Connection:
    """The way to one daemon. It has no state, so threads and forked processes may share it."""

    def __init__(self, path: str) -> None:
        self.path = path

    def get(self, target: str, query: dict[str, str | int | bytes] | None = None) -> Any:
        """Returns the JSON that answers a question."""
        return json.loads(self._answer("GET", target, query))

    def post(self, target: str, query: dict[str, str | int | bytes] | None = None, body: Any = b"") -> Any:
        """Has something done; returns the JSON that tells of it."""
        return json.loads(self._answer("POST", target, query, body))

    def content(self, query: dict[str, str | int | bytes]) -> bytes:
        """Returns bytes of a file: as many as asked for, unless it ends before."""
        return self._answer("GET", "/files/content", query)

    def _answer(
        self,
        method: Literal["GET", "POST"],
        target: str,
        query: dict[str, str | int | bytes] | None,
        body: Any = b"",
    ) -> bytes:
        if query:
            target += "?" + "&".join(f"{name}={as_text(value)}" for name, value in query.items())
        head = f"{method} {target} HTTP/1.1\r\nHost: weft\r\nContent-Length: {len(body)}\r\nConnection: close\r\n\r\n"
        with self._connected() as link:
            unsent: OSError | None = None
            try:
                link.sendall(head.encode("ascii"))
                if len(body):
                    link.sendall(body)
            except (BrokenPipeError, ConnectionResetError) as error:
                # A request that is refused is not read to its end; the answer may be there.
                unsent = error
            try:
                with link.makefile("rb", buffering=READ_BYTES) as stream:
                    code, answer = read_answer(stream)
            except (ConnectionResetError, EOFError) as error:
                why = "the daemon closed the connection before it answered; what was asked for may have been done"
                raise ConnectionResetError(errno.ECONNRESET, why) from (unsent or error)
        if 200 <= code < 300:
            return answer
        raise refusal(code, answer)

    def _connected(self) -> socket.socket:
        link = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        link.settimeout(SILENCE_MAX)
        try:
            link.connect(self.path)
        except (FileNotFoundError, ConnectionRefusedError) as error:
            link.close()
            raise Gone(error.errno, "the daemon of the volume has ended") from error
        except BaseException:
            link.close()
            raise
        return link


def as_text(value: str | int | bytes) -> str:
    """Returns a value of a query; bytes are hexadecimal."""
    return value.hex() if isinstance(value, bytes) else str(value)


def read_answer(stream: Any) -> tuple[int, bytes]:
    """Reads an answer: its status code and its body, whole."""
    code, length, taken = 0, None, 0
    while True:
        line = stream.readline(HEAD_BYTES_MAX)
        taken += len(line)
        if not line.endswith(b"\n") or taken > HEAD_BYTES_MAX:
            raise EOFError("the answer ends early")
        line = line.strip()
        if not code:
            words = line.split(maxsplit=2)
            if len(words) < 2 or not words[0].startswith(b"HTTP/1.") or not words[1].isdigit():
                raise OSError(errno.EPROTO, "that is no answer of a daemon of Weft")
            code = int(words[1])
        elif not line:
            break
        elif line.lower().startswith(b"content-length:"):
            length = int(line.split(b":", 1)[1])
    if length is None:
        raise OSError(errno.EPROTO, "that is no answer of a daemon of Weft")
    body = stream.read(length)
    if len(body) < length:
        raise EOFError("the answer ends early")
    return code, body


def refusal(code: int, answer: bytes) -> OSError:
    """Returns the exception that an answer tells of."""
    text = answer.decode(errors="replace").strip()
    try:
        told = json.loads(text)
        number, why = int(told["errno"]), str(told["error"])
    except (ValueError, TypeError, KeyError):
        number = {404: errno.ENOSYS, 503: errno.EAGAIN, 504: errno.ETIMEDOUT}.get(code, errno.EIO)
        why = text or f"the daemon answered {code}"
        if code == 404:
            why = "the daemon of this volume is of an earlier version, which serves no files: start it again"
    # The system's own words read better than ours, but for what only the daemon knows.
    return OSError(number, why if number in (errno.EIO, errno.ENOSYS, errno.EAGAIN, errno.ETIMEDOUT) else os.strerror(number))
