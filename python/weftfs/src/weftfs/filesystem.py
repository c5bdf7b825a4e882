"""The fsspec file system."""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Callable, Iterator
from datetime import datetime, timezone
from typing import Any, TypeVar

from fsspec.spec import AbstractFileSystem  # type: ignore[import-untyped]

from . import daemon, program, volumes
from .connection import Connection, Gone
from .file import WeftFile

__all__ = ["WeftFileSystem"]

T = TypeVar("T")

#: Bytes of one request, each way.
REQUEST_BYTES = 64 << 20

#: Kinds of inodes as fsspec calls them; others are `other`.
TYPES = {"file": "file", "directory": "directory", "symbolic link": "link"}

#: Kinds of inodes as the mode of stat(2) has them.
FORMATS = {
    "file": stat.S_IFREG,
    "directory": stat.S_IFDIR,
    "symbolic link": stat.S_IFLNK,
    "named pipe": stat.S_IFIFO,
    "socket": stat.S_IFSOCK,
    "character device": stat.S_IFCHR,
    "block device": stat.S_IFBLK,
}


class WeftFileSystem(AbstractFileSystem):  # type: ignore[misc]
    """The files of one volume of Weft.

    >>> fs = fsspec.filesystem("weft", volume="photos.weft")
    >>> fs.ls("/2026")
    >>> pandas.read_parquet("weft:///srv/photos.weft/2026/index.parquet")

    Args:
        volume: the volume: a path, a name of weft.toml, a `postgres://` URL, or the directory where
            it is mounted. A URL `weft://VOLUME/PATH` names it itself.
        at: the moment as of which it is read, and cannot be changed: a commit (`@1234`), a time in
            UTC (`2026-11-28T12:30:00`), a time ago (`-5m`, `yesterday`), or a snapshot's name. All
            is as of one commit, which `commit_number` tells.
        auto_mkdir: make directories that are missing above a file that is made, as object stores do.

    A daemon that has the volume mounted or serves it is asked; else this starts one, which ends with
    this process. All is done with the rights of the user of this process.
    """

    protocol = "weft"
    root_marker = "/"
    cachable = True
    blocksize = 1 << 20

    def __init__(
        self,
        volume: str | os.PathLike[str] | None = None,
        at: str | None = None,
        auto_mkdir: bool = True,
        **options: Any,
    ) -> None:
        super().__init__(volume=volume, at=at, auto_mkdir=auto_mkdir, **options)
        if volume is None:
            raise ValueError("name a volume: weft://VOLUME/PATH, or volume=VOLUME")
        #: The volume, as commands of `weft` take it.
        self.volume = volumes.absolute(os.fspath(volume))
        self.moment = at
        self.auto_mkdir = auto_mkdir
        self._root = b""
        if at is not None:
            self._root = self._root_at(at)

    # What fsspec asks of each file system.

    @classmethod
    def _strip_protocol(cls, path: Any) -> Any:
        if isinstance(path, list):
            return [cls._strip_protocol(one) for one in path]
        return volumes.split(os.fspath(path))[1]

    @classmethod
    def _parent(cls, path: str) -> str:
        return cls._strip_protocol(path).rpartition("/")[0] or "/"

    @staticmethod
    def _get_kwargs_from_urls(path: str) -> dict[str, Any]:
        volume = volumes.split(os.fspath(path))[0]
        return {} if volume is None else {"volume": volume}

    def unstrip_protocol(self, name: str) -> str:
        """Returns the URL of a path."""
        return volumes.url(self.volume, self._strip_protocol(name))

    @property
    def fsid(self) -> str:
        """The volume, and the moment."""
        return self.volume if self.moment is None else f"{self.volume}@{self.moment}"

    def info(self, path: str, **kwargs: Any) -> dict[str, Any]:
        """Returns name, size, type, mode, owner and times of a file; of a symbolic link those of
        what it leads to, with `islink` and `destination`."""
        path = self._strip_protocol(path)
        return self._details(path, self._attributes(path, link=True))

    def exists(self, path: str, **kwargs: Any) -> bool:
        """True if there is something, or a symbolic link, at `path`."""
        try:
            self._attributes(self._strip_protocol(path), link=True)
        except (FileNotFoundError, NotADirectoryError):
            return False
        return True

    def lexists(self, path: str, **kwargs: Any) -> bool:
        """The same as `exists`."""
        return self.exists(path)

    def ls(self, path: str, detail: bool = True, **kwargs: Any) -> list[Any]:
        """Lists a directory; of anything else, itself."""
        path = self._strip_protocol(path)
        try:
            listed = list(self._entries(path))
        except NotADirectoryError:
            found = self.info(path)
            return [found] if detail else [path]
        base = path.rstrip("/") + "/"
        if not detail:
            return sorted(base + name for name, _ in listed)
        return sorted((self._details(base + name, entry) for name, entry in listed), key=lambda entry: entry["name"])

    def mkdir(self, path: str, create_parents: bool = True, **kwargs: Any) -> None:
        """Makes a directory; those above it, too, unless `create_parents` is false."""
        path = self._strip_protocol(path)
        if create_parents:
            parent = self._parent(path)
            if not self.exists(parent):
                self.makedirs(parent, exist_ok=True)
        self._make_directory(path)

    def makedirs(self, path: str, exist_ok: bool = False) -> None:
        """Makes a directory and those above it."""
        path = self._strip_protocol(path)
        missing = []
        at = path
        while at != "/" and not self.exists(at):
            missing.append(at)
            at = self._parent(at)
        if not missing and (not exist_ok or not self.isdir(path)):
            raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), path)
        for directory in reversed(missing):
            try:
                self._make_directory(directory)
            except FileExistsError:
                # Another one made it meanwhile.
                if directory == path and not exist_ok:
                    raise

    def rmdir(self, path: str) -> None:
        """Removes an empty directory."""
        self._remove(self._strip_protocol(path), directory=True)

    def rm_file(self, path: str) -> None:
        """Removes a name of a file, or a symbolic link."""
        self._remove(self._strip_protocol(path))

    _rm = rm_file

    def rm(self, path: str | list[str], recursive: bool = False, maxdepth: int | None = None) -> None:
        """Removes files, and with `recursive` directories with all in them. Of symbolic links it
        removes the link alone."""
        if maxdepth is not None:
            super().rm(path, recursive=recursive, maxdepth=maxdepth)
            return
        named = [path] if isinstance(path, (str, os.PathLike)) else path
        for one in named:
            for found in self.expand_path(one) if is_pattern(str(one)) else [self._strip_protocol(one)]:
                self._remove_all(found, recursive)

    def _remove_all(self, path: str, recursive: bool) -> None:
        if self._attributes(path, link=True)["kind"] != "directory":
            self._remove(path)
            return
        if not recursive:
            raise IsADirectoryError(errno.EISDIR, "it is a directory: remove it with recursive=True", path)
        for name, entry in list(self._entries(path)):
            below = path.rstrip("/") + "/" + name
            if entry.get("kind") == "directory":
                self._remove_all(below, recursive)
            else:
                self._remove(below)
        if path != "/":
            self._remove(path, directory=True)

    def cp_file(self, path1: str, path2: str, **kwargs: Any) -> None:
        """Copies a file by sharing its blocks; of a directory, makes one of that name."""
        path1, path2 = self._strip_protocol(path1), self._strip_protocol(path2)
        source = self._attributes(path1)
        if source["kind"] == "directory":
            self.makedirs(path2, exist_ok=True)
            return
        if self.exists(path2) and self._attributes(path2)["id"] == source["id"]:
            raise OSError(errno.EINVAL, "both are the same file", path1, None, path2)
        self._copy_content(source, self._create(path2, None))

    def mv(self, path1: str, path2: str, recursive: bool = False, maxdepth: int | None = None, **kwargs: Any) -> None:
        """Moves a file, or a directory with all in it, in one step: over a file that is there, and
        into a directory that is there."""
        if is_pattern(path1) or maxdepth is not None:
            super().mv(path1, path2, recursive=recursive, maxdepth=maxdepth, **kwargs)
            return
        into = path2.endswith("/")
        path1, path2 = self._strip_protocol(path1), self._strip_protocol(path2)
        if into or self.isdir(path2):
            path2 = path2.rstrip("/") + "/" + path1.rpartition("/")[2]
        self._with_parents(path2, lambda: self._rename(path1, path2))

    move = mv

    def touch(self, path: str, truncate: bool = True, **kwargs: Any) -> None:
        """Makes an empty file; of one that is there, sets the time of change, and truncates it
        unless `truncate` is false."""
        path = self._strip_protocol(path)
        told = self._create(path, None if truncate else "take")
        self._ask(lambda link: link.post("/files/set", {"id": told["id"], "mtime": "now"}), path)

    def created(self, path: str) -> datetime:
        """Returns the time at which a file was made, in UTC."""
        return as_time(self._attributes(self._strip_protocol(path))["btime"])

    def modified(self, path: str) -> datetime:
        """Returns the time at which the content of a file was last changed, in UTC."""
        return as_time(self._attributes(self._strip_protocol(path))["mtime"])

    def ukey(self, path: str) -> str:
        """Returns a text that differs once the file has changed."""
        told = self._attributes(self._strip_protocol(path))
        return f"{told['id']}.{told['ctime']}.{told['size']}"

    def checksum(self, path: str) -> int:
        """Returns the digest of a file as a number."""
        return int(self.digest(path), 16)

    def cat_file(self, path: str, start: int | None = None, end: int | None = None, **kwargs: Any) -> bytes:
        """Returns bytes of a file, from `start` to before `end`; negative ones count from its end."""
        path = self._strip_protocol(path)
        told = self._attributes(path)
        if told["kind"] == "directory":
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), path)
        size = told["size"]
        first, behind, _ = slice(start, end).indices(size)
        return self._read(told["id"], first, behind - first, path)

    def pipe_file(self, path: str, value: bytes, mode: str = "overwrite", **kwargs: Any) -> None:
        """Makes a file of these bytes; with the mode `create`, only if there is none."""
        path = self._strip_protocol(path)
        told = self._create(path, "fail" if mode == "create" else None)
        self._write(told["id"], 0, memoryview(value).cast("B"), path)

    def _open(
        self,
        path: str,
        mode: str = "rb",
        block_size: int | None = None,
        autocommit: bool = True,
        cache_options: dict[str, Any] | None = None,
        **kwargs: Any,
    ) -> WeftFile:
        return WeftFile(
            self,
            self._strip_protocol(path),
            mode=mode,
            block_size=block_size or self.blocksize,
            autocommit=autocommit,
            cache_options=cache_options,
            **kwargs,
        )

    def chmod(self, path: str, mode: int) -> None:
        """Sets the permissions of a file."""
        path = self._strip_protocol(path)
        query: dict[str, str | int | bytes] = {"path": self._path(path), "mode": format(mode, "o")}
        self._ask(lambda link: link.post("/files/set", query), path)

    def sign(self, path: str, expiration: int = 100, **kwargs: Any) -> str:
        """Is nothing that a volume has: raises `NotImplementedError`."""
        raise NotImplementedError("files of a volume have no URLs that others could open")

    # What a volume gives beyond.

    def commit(self) -> int:
        """Commits all changes so far; returns the number of the last commit. What was changed
        before survives a crash, and is a moment of its own where history is kept."""
        return int(self._ask(lambda link: link.post("/commit"))["commit"])

    def close(self) -> None:
        """Commits all and leaves the volume, for others to use, if this process alone has it. The
        next use opens it again."""
        daemon.release(self.volume)

    @property
    def commit_number(self) -> int:
        """The number of the commit that is shown: of the moment, or else the last one."""
        if self._root:
            return int(os.fsdecode(self._root).rpartition("@")[2])
        return int(self.status()["commit"])

    def at(self, moment: str) -> WeftFileSystem:
        """Returns the volume as it was at a moment: a file system that cannot be changed."""
        return WeftFileSystem(volume=self.volume, at=moment)

    def status(self) -> dict[str, Any]:
        """Returns what the daemon tells of itself: last commit, space used, errors."""
        told: dict[str, Any] = self._ask(lambda link: link.get("/status"))
        return told

    def stats(self) -> dict[str, Any]:
        """Returns all counters, as `weft stats --json`."""
        told: dict[str, Any] = self._ask(lambda link: link.get("/stats"))
        return told

    def digest(self, path: str = "/") -> str:
        """Returns the digest of a file or directory, in hexadecimal: of a file BLAKE3 of its bytes,
        as b3sum prints it."""
        self._commit_before()
        told = program.value(["digest", "--json", f"--at={self._at()}", "--", self._subject(path)])
        return str(told[0]["digest"])

    def prove(self, path: str, directory: str = "/") -> str:
        """Returns a proof that a directory of its digest holds the file or directory `path`, which
        anybody can verify who has `weft`."""
        self._commit_before()
        top = self._strip_protocol(directory).rstrip("/")
        path = self._strip_protocol(path)
        if not path.startswith(top + "/"):
            raise ValueError(f"{path} is not in {top or '/'}")
        words = ["prove", f"--at={self._at()}", "--", self._subject(top), path[len(top) + 1 :]]
        return program.output(words).decode()

    def verify(self, attestation: str | os.PathLike[str], key: str | os.PathLike[str]) -> bool:
        """True if the volume holds exactly what an attestation of `weft sign` says, and that was
        signed with this key."""
        self._commit_before()
        named = [os.path.abspath(os.fspath(file)) for file in (attestation, key)]
        words = ["verify", f"--at={self._at()}", f"--volume={self.volume}", f"--key={named[1]}", "--", named[0]]
        return program.succeeds(words)

    def diff(self, path: str = "/", since: str = "-1h", until: str | None = None) -> list[dict[str, Any]]:
        """Tells what has changed in a file or directory from one moment to another one, or to now."""
        self._commit_before()
        moments = [f"--at={since}", *([f"--at={until}"] if until is not None else [])]
        told: list[dict[str, Any]] = program.value(["diff", "--json", *moments, "--", self._subject(path)], codes=(0, 1))
        return told

    def log(self, path: str = "/", limit: int | None = None, since: str | None = None) -> list[dict[str, Any]]:
        """Lists the changes of a file or directory that history keeps, the last first; of the root
        all commits."""
        self._commit_before()
        options = [f"--limit={limit}"] if limit is not None else []
        options += [f"--since={since}"] if since is not None else []
        path = self._strip_protocol(path)
        subject = self.volume if path == "/" else self._subject(path)
        told: list[dict[str, Any]] = program.value(["log", "--json", *options, "--", subject])
        return told

    def history(self) -> dict[str, Any]:
        """Tells what the volume keeps of its past."""
        told: dict[str, Any] = program.value(["history", "--json", "--", self.volume])
        return told

    def snapshot(self, name: str) -> None:
        """Keeps the volume as it is now, under a name."""
        self._writable()
        self._commit_before()
        program.output(["snapshot", "create", "--", self.volume, name])

    def restore(self, path: str, at: str, to: str | None = None, dry_run: bool = False) -> dict[str, Any]:
        """Makes a file, or a directory with all in it, what it was at a moment, in one step; or
        brings it to another path. Returns what has changed, or would with `dry_run`."""
        self._writable()
        self._commit_before()
        options = [f"--to={self._strip_protocol(to).lstrip('/')}"] if to is not None else []
        options += ["--dry-run"] if dry_run else []
        told: dict[str, Any] = program.value(["restore", "--json", f"--at={at}", *options, "--", self._subject(path)])
        return told

    def undelete(self, path: str, dry_run: bool = False) -> dict[str, Any]:
        """Brings back a file or directory that was removed."""
        self._writable()
        self._commit_before()
        options = ["--dry-run"] if dry_run else []
        told: dict[str, Any] = program.value(["undelete", "--json", *options, "--", self._subject(path)])
        return told

    def link(self, path: str | list[str], link: str, network: str = "identity", directory: bool = False) -> None:
        """Makes a transformation link: a file whose content is what a network of stages makes of
        others; with `directory`, a view of a directory.

        A volume that this process alone has is left for the moment that this takes.
        """
        self._writable()
        targets = [path] if isinstance(path, str) else path
        options = [f"--network={network}", *(["--dir"] if directory else [])]
        named = [self._strip_protocol(one) for one in [*targets, link]]
        used = daemon.use(self.volume)
        status = used.status()
        if status["kind"] == "mount":
            subjects = [status["place"].rstrip("/") + one for one in named]
        else:
            daemon.release(self.volume)
            subjects = [f"{self.volume}:{one.lstrip('/')}" for one in named]
        program.output(["link", *options, "--", *subjects])

    def run(self, path: str, network: str) -> bytes:
        """Gives a file through a network of stages, such as `'zstd -d | grep error'`, and returns
        what comes out."""
        self._commit_before()
        return program.run(["run", f"--network={network}", f"--of={self.volume}"], self._pieces(path))

    # Requests.

    def _pieces(self, path: str) -> Iterator[bytes]:
        path = self._strip_protocol(path)
        told = self._attributes(path)
        for offset in range(0, told["size"], self.blocksize):
            yield self._read(told["id"], offset, min(self.blocksize, told["size"] - offset), path)

    def _ask(self, question: Callable[[Connection], T], *paths: str) -> T:
        """Asks the daemon, and once again another one if it has ended. Errors name the paths."""
        used = daemon.use(self.volume)
        try:
            try:
                return question(used.connection)
            except Gone:
                return question(daemon.renewed(self.volume, used).connection)
        except OSError as error:
            if error.filename is not None or error.errno is None or not paths:
                raise
            names = (paths[0], None, paths[1]) if len(paths) > 1 else (paths[0],)
            raise OSError(error.errno, error.strerror, *names) from None

    def _path(self, path: str) -> bytes:
        """Returns a path as the daemon takes it."""
        return self._root + os.fsencode(path)

    def _attributes(self, path: str, link: bool = False) -> dict[str, Any]:
        query: dict[str, str | int | bytes] = {"path": self._path(path)}
        if link:
            query["link"] = ""
        told: dict[str, Any] = self._ask(lambda link: link.get("/files/attributes", query), path)
        return told

    def _entries(self, path: str) -> Iterator[tuple[str, dict[str, Any]]]:
        query: dict[str, str | int | bytes] = {"path": self._path(path)}
        while True:
            page = self._ask(lambda link: link.get("/files/entries", query), path)
            fields = page["fields"]
            for values in page["entries"]:
                # One that its user may not look up has a name alone.
                yield as_name(values[0]), dict(zip(fields, values))
            if page["after"] is None:
                return
            query["after"] = page["after"]

    def _details(self, path: str, told: dict[str, Any]) -> dict[str, Any]:
        """Returns what fsspec calls info, of what the daemon told."""
        if "kind" not in told:
            # Its user may list the directory, and not look into it.
            return {"name": path, "size": None, "type": "other"}
        details = {"name": path, "islink": told["kind"] == "symbolic link"}
        if details["islink"]:
            details["destination"] = as_name(told["target"])
            try:
                told = self._attributes(path)
            except OSError:
                told = {**told, "size": 0}
        details |= {
            "size": 0 if told["kind"] == "directory" else told["size"],
            "type": TYPES.get(told["kind"], "other"),
            "created": told["btime"] / 1e9,
            "mtime": told["mtime"] / 1e9,
            "mode": FORMATS[told["kind"]] | told["mode"],
            "uid": told["uid"],
            "gid": told["gid"],
            "ino": int(told["id"].partition(".")[0]),
            "nlink": told["links"],
        }
        return details

    def _read(self, id: str, offset: int, length: int, path: str) -> bytes:
        """Returns bytes of a file: fewer than `length` only where it ends."""

        def piece(at: int, count: int) -> bytes:
            query: dict[str, str | int | bytes] = {"id": id, "offset": at, "length": count}
            return self._ask(lambda link: link.content(query), path)

        if length <= REQUEST_BYTES:
            return piece(offset, length) if length > 0 else b""
        pieces: list[bytes] = []
        while length > 0:
            pieces.append(piece(offset, min(length, REQUEST_BYTES)))
            if not pieces[-1]:
                break
            offset += len(pieces[-1])
            length -= len(pieces[-1])
        return b"".join(pieces)

    def _write(self, id: str, offset: int, data: memoryview, path: str) -> None:
        for at in range(0, len(data), REQUEST_BYTES):
            piece = data[at : at + REQUEST_BYTES]
            query: dict[str, str | int | bytes] = {"id": id, "offset": offset + at}
            self._ask(lambda link: link.post("/files/write", query, piece), path)

    def _create(self, path: str, exists: str | None) -> dict[str, Any]:
        query: dict[str, str | int | bytes] = {"path": self._path(path), "umask": format(umask(), "o")}
        if exists is not None:
            query["exists"] = exists
        told: dict[str, Any] = self._with_parents(
            path, lambda: self._ask(lambda link: link.post("/files/create", query), path)
        )
        return told

    def _with_parents(self, path: str, make: Callable[[], T]) -> T:
        """Has something made at `path`, and directories above it first, if they are missing and
        that is wanted."""
        try:
            return make()
        except FileNotFoundError:
            parent = self._parent(path)
            if not self.auto_mkdir:
                raise
            # Another thread may have made them meanwhile.
            self.makedirs(parent, exist_ok=True)
            return make()

    def _make_directory(self, path: str) -> None:
        query: dict[str, str | int | bytes] = {"path": self._path(path), "umask": format(umask(), "o")}
        self._ask(lambda link: link.post("/files/make-directory", query), path)

    def _remove(self, path: str, directory: bool = False) -> None:
        query: dict[str, str | int | bytes] = {"path": self._path(path)}
        if directory:
            query["directory"] = ""
        self._ask(lambda link: link.post("/files/remove", query), path)

    def _rename(self, path: str, to: str) -> None:
        query: dict[str, str | int | bytes] = {"path": self._path(path), "to": self._path(to)}
        self._ask(lambda link: link.post("/files/rename", query), path, to)

    def _copy_content(self, source: dict[str, Any], target: dict[str, Any]) -> int:
        """Copies all of a file over an empty one; returns how many bytes."""
        offset = 0
        while True:
            query: dict[str, str | int | bytes] = {"from": source["id"], "to": target["id"], "offset": offset}
            copied = self._ask(lambda link: link.post("/files/copy", query))["copied"]
            if copied == 0:
                return offset
            offset += copied

    # The past.

    def _root_at(self, moment: str) -> bytes:
        """Returns the path of the volume as of a moment, which stays that commit."""
        name = os.fsencode(moment)
        if b"/" in name or name in (b"", b".", b".."):
            raise ValueError(f"{moment!r} is no moment: give a commit (@1234), a time, or a snapshot's name")
        path = b"/.weft/at/" + name
        query: dict[str, str | int | bytes] = {"path": path, "link": ""}
        told = self._ask(lambda link: link.get("/files/attributes", query), f"{self.volume} at {moment}")
        if "target" in told:
            name = os.fsencode(as_name(told["target"]))
        elif not name.startswith(b"@"):
            # A snapshot, which may be renamed.
            snapshots = program.value(["snapshot", "list", "--json", "--", self.volume])
            commits = [snapshot["commit"] for snapshot in snapshots if snapshot["name"] == moment]
            name = b"@%d" % commits[0] if commits else name
        return b"/.weft/at/" + name

    def _at(self) -> str:
        """Returns the moment, as commands take it."""
        return f"@{self.commit_number}" if self._root else "now"

    def _subject(self, path: str) -> str:
        """Returns a path in the volume as commands take it."""
        return f"{self.volume}:{self._strip_protocol(path).lstrip('/')}"

    def _writable(self) -> None:
        if self._root:
            raise OSError(errno.EROFS, "the past cannot be changed", self.fsid)

    def _commit_before(self) -> None:
        """Has what was changed so far be seen by a command, which reads what is committed."""
        self.commit()


def as_name(told: str | dict[str, str]) -> str:
    """Returns a name that may be any bytes, as Python has those of files."""
    return told if isinstance(told, str) else os.fsdecode(bytes.fromhex(told["hex"]))


def as_time(nanoseconds: int) -> datetime:
    """Returns a time in UTC."""
    return datetime.fromtimestamp(nanoseconds / 1e9, tz=timezone.utc)


def is_pattern(path: str) -> bool:
    """True if a path is a pattern of paths."""
    return any(sign in path for sign in "*?[")


def umask() -> int:
    """Returns the umask of this process, which os.umask() can tell only by changing it."""
    with open("/proc/self/status", encoding="ascii", errors="replace") as status:
        for line in status:
            if line.startswith("Umask:"):
                return int(line.split()[1], 8)
    return 0o077
