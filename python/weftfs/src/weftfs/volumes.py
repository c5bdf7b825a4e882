"""URLs: which part of one is the volume, which the moment, and which the path.

fsspec takes protocols off URLs and hands the rest around, also to file systems that cache files
under it. So the rest of a URL of Weft still names the volume and the moment: `weft:VOLUME/PATH` or
`weft:VOLUME@MOMENT/PATH`, the volume percent-encoded. A path of a volume begins with `/`.
"""

from __future__ import annotations

import errno
import os
from typing import NamedTuple
from urllib.parse import quote, unquote

__all__ = ["Place", "absolute", "is_same", "marked", "normal", "parent", "split", "url"]

PROTOCOL = "weft://"

#: The beginning of the rest of a URL.
MARK = "weft:"


class Place(NamedTuple):
    """A path, with the volume and the moment if they are named."""

    volume: str | None
    moment: str | None
    path: str


def split(named: str) -> Place:
    """Splits a URL, or the rest of one, into its parts. Anything else is a path.

    - `weft://photos/2026`: the volume `photos`, as weft.toml names it, or a file or directory of
      that name in the current directory.
    - `weft://photos@yesterday/2026`: the same as it was at a moment.
    - `weft:///srv/photos.weft/2026`: the volume that lies at the first part of the path that is one.
    - `weft://postgres%3A%2F%2Fhost%2Ffiles/2026`: any volume, its name percent-encoded.
    """
    rest = named.removeprefix(PROTOCOL)
    if rest == named:
        rest = named.removeprefix(MARK)
        if rest == named:
            return Place(None, None, normal(named))
    elif rest.startswith("/"):
        path = normal(rest)
        above = leading(path)
        if above is None:
            raise FileNotFoundError(errno.ENOENT, "no part of this path is a volume, and none is mounted there", named)
        return Place(above, None, normal(path[len(above) :]))
    authority, _, path = rest.partition("/")
    volume, has_moment, moment = authority.partition("@")
    if volume.endswith(":") and path.startswith("/"):
        raise ValueError(f"{named}: write '%3A%2F%2F' for '://' in the name of the volume, and '%2F' for '/'")
    return Place(unquote(volume) or None, unquote(moment) if has_moment else None, normal(path))


def marked(place: Place) -> str:
    """Returns a place as the rest of its URL."""
    if place.volume is None:
        return place.path
    moment = "" if place.moment is None else "@" + quote(place.moment, safe="@:")
    return MARK + quote(place.volume, safe="") + moment + place.path.rstrip("/")


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
    """Returns a path that begins with `/`, and neither ends with it nor has an empty part or `.`."""
    return "/" + "/".join(part for part in path.split("/") if part not in ("", "."))


def parent(path: str) -> str:
    """Returns the directory above a path; above the root is the root."""
    place = split(path)
    return marked(place._replace(path=place.path.rpartition("/")[0] or "/"))


def absolute(volume: str | os.PathLike[str]) -> str:
    """Returns the name of a volume as it is understood from any directory."""
    volume = os.fspath(volume)
    if volume.startswith(MARK):
        raise ValueError(f"{volume} is a URL: name the volume, such as {volume.removeprefix(PROTOCOL)!r}")
    if not volume:
        raise ValueError("the name of the volume is empty")
    expanded = os.path.expanduser(volume)
    return os.path.abspath(expanded) if "://" not in volume and os.path.exists(expanded) else expanded


def is_same(one: str, other: str) -> bool:
    """True if both name the same volume in the same way, or by two paths of it."""
    one, other = absolute(one), absolute(other)
    return one == other or os.path.exists(one) and os.path.exists(other) and os.path.samefile(one, other)


def url(place: Place) -> str:
    """Returns the URL of a place in a volume."""
    volume = place.volume or ""
    if place.moment is None and volume.startswith("/") and leading(volume) == volume:
        return PROTOCOL + volume + place.path
    return PROTOCOL + marked(place).removeprefix(MARK)
