"""URLs: which part of one is the volume, and which the path in it."""

from __future__ import annotations

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
    parts = normal(rest).split("/")
    for count in range(2, len(parts) + 1):
        volume = "/".join(parts[:count])
        if is_volume(volume):
            return volume, normal("/".join(parts[count:]))
    return None, normal(rest)


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


def url(volume: str, path: str) -> str:
    """Returns the URL of a path in a volume."""
    if volume.startswith("/") and split(PROTOCOL + volume)[0] == volume:
        return PROTOCOL + volume + path
    return PROTOCOL + quote(volume, safe="") + path
