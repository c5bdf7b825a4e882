"""Requests to the daemon of a volume, at its control socket: one connection each, HTTP/1.1."""

from __future__ import annotations

import errno
import json
import os
import socket
import struct
import time
from typing import Any, Literal

__all__ = ["Connection", "Gone", "Query"]

#: Seconds that a daemon may be silent. It answers itself once it has waited for its volume.
SILENCE_MAX = 120

#: Seconds for which a request waits for a connection while others have all of them, and between two tries.
CROWDED_MAX = 30.0
CROWDED_AGAIN = 0.05

#: Most bytes of the head of an answer.
HEAD_BYTES_MAX = 16 << 10


#: Parameters of a request, by name.
Query = dict[str, str | int | bytes]


class Gone(ConnectionError):
    """Nobody listens at the socket: the daemon has ended."""


class Cut(ConnectionResetError):
    """An answer ends early."""

    #: The part of its body that has come.
    received = b""


class Early(EOFError):
    """A body ends early."""

    def __init__(self, received: bytes) -> None:
        super().__init__("the answer ends early")
        self.received = received


class Crowded(BlockingIOError):
    """Others have all connections that the daemon takes."""


class Connection:
    """The way to one daemon. It has no state, so threads and forked processes may share it."""

    def __init__(self, path: str) -> None:
        self.path = path

    def get(self, target: str, query: Query | None = None) -> Any:
        """Returns the JSON that answers a question."""
        return json.loads(self._asked_again(target, query))

    def post(self, target: str, query: Query | None = None, body: Any = b"") -> Any:
        """Has something done; returns the JSON that tells of it."""
        return json.loads(self._answer("POST", target, query, body))

    def content(self, query: Query) -> bytes:
        """Returns bytes of a file: as many as asked for, unless it ends before."""
        offset, length = int(query["offset"]), int(query["length"])
        parts: list[bytes] = []
        while True:
            try:
                parts.append(self._asked_again("/files/content", {**query, "offset": offset, "length": length}))
                return parts[0] if len(parts) == 1 else b"".join(parts)
            except Cut as cut:
                # The daemon could not read on. Asked for the rest, it tells why.
                if not cut.received:
                    raise
                parts.append(cut.received)
                offset, length = offset + len(cut.received), length - len(cut.received)

    def _asked_again(self, target: str, query: Query | None) -> bytes:
        """Returns the answer to a question, which changes nothing: it is asked twice, if need be."""
        try:
            return self._answer("GET", target, query)
        except Cut as cut:
            if cut.received:
                raise
            return self._answer("GET", target, query)

    def _answer(
        self,
        method: Literal["GET", "POST"],
        target: str,
        query: Query | None,
        body: Any = b"",
    ) -> bytes:
        """Returns the answer to a request. Asks again, for a time, while too many others do."""
        until = time.monotonic() + CROWDED_MAX
        while True:
            try:
                return self._answer_at_once(method, target, query, body)
            except Crowded:
                if time.monotonic() > until:
                    raise
            time.sleep(CROWDED_AGAIN)

    def _answer_at_once(
        self,
        method: Literal["GET", "POST"],
        target: str,
        query: Query | None,
        body: Any = b"",
    ) -> bytes:
        if query:
            target += "?" + "&".join(f"{name}={as_text(value)}" for name, value in query.items())
        head = f"{method} {target} HTTP/1.1\r\nHost: weft\r\nContent-Length: {len(body)}\r\nConnection: close\r\n\r\n"
        with connected(self.path) as link:
            unsent: OSError | None = None
            try:
                link.sendall(head.encode("ascii"))
                if len(body):
                    link.sendall(body)
            except (BrokenPipeError, ConnectionResetError) as error:
                # A request that is refused is not read to its end; the answer may be there.
                unsent = error
            try:
                code, answer = read_answer(link)
            except (ConnectionResetError, EOFError) as error:
                why = "the daemon closed the connection before it answered; what was asked for may have been done"
                cut = Cut(errno.ECONNRESET, why)
                cut.received = error.received if isinstance(error, Early) else b""
                raise cut from (unsent or error)
            except BlockingIOError as error:
                raise TimeoutError(errno.ETIMEDOUT, f"the daemon has said nothing for {SILENCE_MAX} seconds") from error
        if 200 <= code < 300:
            return answer
        raise refusal(code, answer)


def connected(path: str, silence_max: float = SILENCE_MAX) -> socket.socket:
    """Returns a connection to a socket, at which no call waits longer than this, in seconds."""
    link = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    # Not settimeout(), with which no call waits for all bytes that it is to read.
    for option in (socket.SO_RCVTIMEO, socket.SO_SNDTIMEO):
        link.setsockopt(socket.SOL_SOCKET, option, struct.pack("@ll", int(silence_max), 0))
    try:
        link.connect(path)
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


def read_answer(link: socket.socket) -> tuple[int, bytes]:
    """Reads an answer: its status code and its body, whole."""
    head = received_head(link)
    lines = head.rstrip().split(b"\r\n")
    words = lines[0].split(maxsplit=2)
    fields = dict(line.lower().split(b":", 1) for line in lines[1:] if b":" in line)
    length = fields.get(b"content-length", b"").strip()
    if len(words) < 2 or not words[0].startswith(b"HTTP/1.") or not (words[1] + length).isdigit() or not length:
        raise OSError(errno.EPROTO, "that is no answer of a daemon of Weft")
    return int(words[1]), received(link, int(length))


def received_head(link: socket.socket) -> bytes:
    """Returns the head of an answer, and leaves what is behind it to be read."""
    head = b""
    while not head.endswith(b"\r\n\r\n"):
        more = link.recv(HEAD_BYTES_MAX, socket.MSG_PEEK)
        end = (head + more).find(b"\r\n\r\n")
        count = len(more) if end < 0 else end + 4 - len(head)
        if not more or len(head) > HEAD_BYTES_MAX:
            raise EOFError("the answer ends early")
        head += link.recv(count)
    return head


def received(link: socket.socket, length: int) -> bytes:
    """Returns so many bytes, read at once into their place unless a signal comes between."""
    parts: list[bytes] = []
    while length > 0:
        try:
            part = link.recv(length, socket.MSG_WAITALL)
        except ConnectionResetError:
            part = b""
        if not part:
            raise Early(b"".join(parts))
        parts.append(part)
        length -= len(part)
    return parts[0] if len(parts) == 1 else b"".join(parts)


def refusal(code: int, answer: bytes) -> OSError:
    """Returns the exception that an answer tells of."""
    text = answer.decode(errors="replace").strip()
    try:
        told = json.loads(text)
        return OSError(int(told["errno"]), str(told["error"]))
    except (ValueError, TypeError, KeyError):
        if code == 503 and text.startswith("too many connections"):
            return Crowded(errno.EAGAIN, text)
        if code in (414, 431):
            return OSError(errno.ENAMETOOLONG, os.strerror(errno.ENAMETOOLONG))
        if code in (404, 405):
            text = "the daemon of this volume is of an earlier version, which serves no files: start it again"
        number = {404: errno.ENOSYS, 405: errno.ENOSYS, 503: errno.EAGAIN, 504: errno.ETIMEDOUT}.get(code, errno.EIO)
        return OSError(number, text or f"the daemon answered {code}")
