"""URLs: which part of one is the volume, and which the path in it."""

from __future__ import annotations

import errno
import os
from urllib.parse import quote, unquote

__all__ = ["absolute", "split", "url"]

PROTOCOL = "weft://"


def split(named: str) -> tuple[str | None, str]:
    """Splits a URL into its volume, if it names one, and the path in that, which begins with `/`.

    - `weft://photos/2026`: the volume `photos`, as weft.toml names it, or a file or directory of
      that name in the current directory.
    - `weft:///srv/photos.weft/2026`: the volume that lies at the first part of the path that is one.
    - `weft://postgres%3A%2F%2Fhost%2Ffiles/2026`: any volume, its name percent-encoded.

    Anything but a URL is a path.
    """
    if not named.startswith(PROTOCOL):
        return None, normal(named)
    rest = named[len(PROTOCOL) :]
    if not rest.startswith("/"):
        volume, _, path = rest.partition("/")
        return unquote(volume) or None, normal(path)
    path = normal(rest)
    above = leading(path)
    if above is None:
        raise FileNotFoundError(errno.ENOENT, "no part of this path is a volume, and none is mounted there", named)
    return above, normal(path[len(above) :])


def leading(path: str) -> str | None:
    """Returns the first part of a path at which a volume lies or is mounted."""
    parts = path.split("/")
    above = ("/".join(parts[:count]) for count in range(2, len(parts) + 1))
    return next((part for part in above if is_volume(part)), None)


def is_volume(path: str) -> bool:
    """True if a volume lies at `path`, or is mounted there."""
    if os.path.isfile(path):
        with open(path, "rb") as file:
            return file.read(16) == b"SQLite format 3\0"
    has_files = os.path.isdir(os.path.join(path, "segments")) and os.path.exists(os.path.join(path, "lock"))
    return has_files or is_mount(path)


def is_mount(path: str) -> bool:
    """True if a volume is mounted at `path` (proc_pid_mountinfo(5))."""
    with open("/proc/self/mountinfo", "rb") as mounts:
        for mount in mounts:
            fields, _, source = mount.partition(b" - ")
            if source.startswith(b"fuse.weft ") and unescaped(fields.split()[4]) == os.fsencode(path):
                return True
    return False


def unescaped(field: bytes) -> bytes:
    """Returns a field of mountinfo as it is: space, tab, line end and backslash are octal there."""
    for escape, byte in ((b"\\040", b" "), (b"\\011", b"\t"), (b"\\012", b"\n"), (b"\\134", b"\\")):
        field = field.replace(escape, byte)
    return field


def normal(path: str) -> str:
    """Returns a path that begins with `/` and neither ends with it nor has it twice in a row."""
    return "/" + "/".join(part for part in path.split("/") if part)


def absolute(volume: str) -> str:
    """Returns the name of a volume as it is understood from any directory."""
    return os.path.abspath(volume) if "://" not in volume and os.path.exists(volume) else volume


def is_same(one: str, other: str) -> bool:
    """True if both name the same volume in the same way, or by two paths of it."""
    one, other = absolute(one), absolute(other)
    return one == other or os.path.exists(one) and os.path.exists(other) and os.path.samefile(one, other)


def url(volume: str, path: str) -> str:
    """Returns the URL of a path in a volume."""
    if volume.startswith("/") and leading(volume) == volume:
        return PROTOCOL + volume + path
    return PROTOCOL + quote(volume, safe="") + path
