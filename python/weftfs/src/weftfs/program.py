"""Runs of the program `weft`."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import subprocess
import tempfile
import threading
from collections.abc import Iterable, Sequence
from typing import Any

__all__ = ["WeftError", "output", "program", "run", "succeeds", "value"]


class WeftError(RuntimeError):
    """A volume cannot be used, or `weft` could not do what it was asked for; `str()` of it is the
    message.

    It is no `OSError`: fsspec takes those for files that are not there, and shows a directory as
    empty.
    """


def program() -> str:
    """Returns the path of `weft`: that in the variable WEFT_PROGRAM, or the one on the PATH."""
    named = os.environ.get("WEFT_PROGRAM")
    found = named or shutil.which("weft")
    if found is None:
        raise WeftError("the program 'weft' is not on the PATH: install it, or name it in WEFT_PROGRAM")
    if named and not os.access(named, os.X_OK):
        raise WeftError(f"WEFT_PROGRAM names {named}, which is no program")
    # Runs begin elsewhere.
    return os.path.abspath(found)


def message(stderr: bytes) -> str:
    """Returns the message of a run that failed."""
    text = stderr.decode(errors="replace").strip()
    return text.removeprefix("weft: ") or "weft failed and did not say why"


def _done(words: Sequence[str]) -> subprocess.CompletedProcess[bytes]:
    """Runs `weft` with these words and no input."""
    return subprocess.run([program(), *words], stdin=subprocess.DEVNULL, capture_output=True, check=False, cwd="/")


def output(words: Sequence[str], codes: Iterable[int] = (0,)) -> bytes:
    """Runs `weft` with these words and returns what it prints.

    Raises `WeftError` if its exit code is none of `codes`.
    """
    done = _done(words)
    # A code of 1 without a message tells of a difference, and with one of a failure.
    if done.returncode not in codes or (done.returncode != 0 and done.stderr.strip()):
        raise WeftError(message(done.stderr))
    return done.stdout


def value(words: Sequence[str], codes: Iterable[int] = (0,)) -> Any:
    """The same, of a command that prints JSON."""
    printed = output(words, codes)
    try:
        return json.loads(printed)
    except ValueError:
        raise WeftError(f"{program()} has not answered as 'weft' does: is it that program?") from None


def succeeds(words: Sequence[str]) -> bool:
    """Runs a command that tells by its exit code: true for 0, false for 1. Raises `WeftError`."""
    done = _done(words)
    if done.returncode > 1:
        raise WeftError(message(done.stderr))
    return done.returncode == 0


def run(words: Sequence[str], pieces: Iterable[bytes]) -> bytes:
    """Runs `weft` with these words, gives it the bytes of `pieces`, and returns what it prints."""
    with tempfile.TemporaryFile() as complaint:
        child = subprocess.Popen(
            [program(), *words], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=complaint, cwd="/"
        )
        said: list[bytes] = []
        assert child.stdin is not None and child.stdout is not None
        out, into = child.stdout, child.stdin
        reader = threading.Thread(target=lambda: said.append(out.read()), daemon=True)
        reader.start()
        try:
            for piece in pieces:
                into.write(piece)
            into.close()
        except BrokenPipeError:
            pass  # It has seen enough.
        except BaseException:
            child.kill()
            raise
        finally:
            with contextlib.suppress(BrokenPipeError):
                into.close()
            code = child.wait()
            reader.join()
            out.close()
        if code != 0:
            complaint.seek(0)
            raise WeftError(message(complaint.read()))
    return said[0]
