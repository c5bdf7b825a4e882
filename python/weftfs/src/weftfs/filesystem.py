"""The fsspec file system."""

from __future__ import annotations

import contextlib
import errno
import os
import re
import stat
from collections.abc import Callable, Iterator
from datetime import datetime, timezone
from typing import Any, TypeVar

from fsspec.callbacks import DEFAULT_CALLBACK  # type: ignore[import-untyped]
from fsspec.spec import AbstractFileSystem  # type: ignore[import-untyped]

from . import daemon, program, volumes
from .connection import Connection, Gone, Query
from .file import MODES, WeftFile
from .program import WeftError

__all__ = ["WeftFileSystem"]

T = TypeVar("T")

#: Options that fsspec gives to all file systems.
OPTIONS = frozenset(
    ("asynchronous", "loop", "skip_instance_cache", "use_listings_cache", "listings_expiry_time", "max_paths")
)

#: Bytes that are read at once of a file that is gone through.
PIECE_BYTES = 8 << 20

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


class _Pinned(type(AbstractFileSystem)):  # type: ignore[misc]
    """Makes file systems of what names the same volume everywhere, and the same moment for ever:
    fsspec keeps one for each set of arguments, and pickles those."""

    def __call__(
        cls, volume: str | os.PathLike[str] | None = None, at: str | None = None, **options: Any
    ) -> WeftFileSystem:
        if volume is None:
            raise ValueError("name a volume: weft://VOLUME/PATH, or volume=VOLUME")
        named = volumes.absolute(volume)
        if at is not None:
            at = f"@{_commit_at(named, at)}"
        made: WeftFileSystem = super().__call__(volume=named, at=at, **options)
        return made


class WeftFileSystem(AbstractFileSystem, metaclass=_Pinned):  # type: ignore[misc]
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
    #: Bytes of one request, each way.
    request_bytes = 64 << 20

    def __init__(
        self,
        volume: str | os.PathLike[str] | None = None,
        at: str | None = None,
        auto_mkdir: bool = True,
        **options: Any,
    ) -> None:
        super().__init__(volume=volume, at=at, auto_mkdir=auto_mkdir, **options)
        if unknown := sorted(set(options) - OPTIONS):
            raise TypeError(f"WeftFileSystem has no option {unknown[0]!r}: it has 'volume', 'at' and 'auto_mkdir'")
        #: The volume, as commands of `weft` take it.
        self.volume = os.fspath(volume or "")
        #: The moment as of which it is read: a commit, such as `@1234`.
        self.moment = at
        self.auto_mkdir = auto_mkdir
        # Files of the transaction that goes on, by the path that each is to have; of more than one the last.
        self._pending: dict[str, WeftFile] = {}
        self._strip_protocol = self._path_here  # type: ignore[method-assign]
        self._commit = None if at is None else int(at.removeprefix("@"))
        # Where paths begin.
        self._top: Query = {} if at is None else {"at": os.fsencode(at)}

    # What fsspec asks of each file system.

    @classmethod
    def _strip_protocol(cls, path: Any) -> Any:
        if isinstance(path, list):
            return [cls._strip_protocol(one) for one in path]
        place = volumes.split(os.fspath(path))
        if place.volume is not None:
            place = place._replace(volume=volumes.absolute(place.volume))
        return volumes.marked(place)

    def _path_here(self, path: Any) -> Any:
        """Returns a path in this volume. Raises `ValueError` for a URL of another one, or of another
        moment."""
        if isinstance(path, list):
            return [self._path_here(one) for one in path]
        volume, moment, inner = volumes.split(os.fspath(path))
        if volume is None:
            return inner
        if not volumes.is_same(volume, self.volume):
            raise ValueError(f"{inner} is asked of the volume {volume}, and this is {self.volume}")
        if moment is not None and (self.moment is None or moment.startswith("@") and moment != self.moment):
            raise ValueError(f"{inner} is asked as of {moment}, and this is {self!r}")
        return volumes.marked(volumes.Place(self.volume, self.moment, inner))

    def __repr__(self) -> str:
        at = "" if self.moment is None else f", at={self.moment!r}"
        # Without a password.
        volume = re.sub(r"(://[^/@]*?):[^/@]*@", r"\1@", self.volume)
        return f"WeftFileSystem({volume!r}{at})"

    @classmethod
    def _parent(cls, path: str) -> str:
        return volumes.parent(path)

    @staticmethod
    def _get_kwargs_from_urls(path: str) -> dict[str, Any]:
        volume, moment, _ = volumes.split(os.fspath(path))
        named = {} if volume is None else {"volume": volumes.absolute(volume)}
        return named if moment is None else {**named, "at": moment}

    def unstrip_protocol(self, name: str) -> str:
        """Returns the URL of a path, with the moment if this is of the past."""
        return volumes.url(volumes.Place(self.volume, self.moment, self._inner(name)))

    def _inner(self, path: str) -> str:
        """Returns a path as the volume has it."""
        return volumes.split(self._strip_protocol(path)).path

    @property
    def fsid(self) -> str:
        """The volume, and the moment."""
        return self.volume + (self.moment or "")

    def info(self, path: str, **kwargs: Any) -> dict[str, Any]:
        """Returns name, size, type, mode, owner and times of a file; of a symbolic link those of
        what it leads to, with `islink` and `destination`."""
        path = self._strip_protocol(path)
        return self._details(path, self._attributes(path, link=True))

    def exists(self, path: str, **kwargs: Any) -> bool:
        """True if there is something at `path`, or where a symbolic link there leads."""
        return self._is_there(path, link=False)

    def lexists(self, path: str, **kwargs: Any) -> bool:
        """True if there is something, or a symbolic link, at `path`."""
        return self._is_there(path, link=True)

    def _is_there(self, path: str, link: bool) -> bool:
        try:
            self._attributes(self._strip_protocol(path), link=link)
        except (FileNotFoundError, NotADirectoryError):
            return False
        return True

    def isdir(self, path: str) -> bool:
        """True if there is a directory at `path`."""
        return self._kind(path) == "directory"

    def isfile(self, path: str) -> bool:
        """True if there is a regular file at `path`."""
        return self._kind(path) == "file"

    def _kind(self, path: str) -> str | None:
        """Returns the kind of what is at `path`, if its user may know."""
        try:
            return str(self._attributes(self._strip_protocol(path))["kind"])
        except (FileNotFoundError, NotADirectoryError, PermissionError):
            return None

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
        details = [self._details(base + name, entry) for name, entry in listed]
        for entry in details:
            # Whoever walks through a tree goes into no directory twice.
            if entry.get("islink") and entry["type"] == "directory":
                entry["type"] = "link"
        return sorted(details, key=lambda entry: entry["name"])

    def walk(
        self, path: str, maxdepth: int | None = None, topdown: bool = True, on_error: Any = "omit", **kwargs: Any
    ) -> Iterator[Any]:
        """Goes through a tree. Leaves out what is not there or closed to the user; anything else is
        an error, also if those are to be omitted."""

        def omit(error: OSError) -> None:
            if not isinstance(error, (FileNotFoundError, NotADirectoryError, PermissionError)):
                raise error

        how = omit if on_error == "omit" else on_error
        yield from super().walk(path, maxdepth=maxdepth, topdown=topdown, on_error=how, **kwargs)

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
        removes the link alone. Names are taken as they are: `*`, `?` and `[` stand for nothing else."""
        if maxdepth is not None:
            raise NotImplementedError("rm() removes a directory with all in it, and knows no maxdepth")
        named = [path] if isinstance(path, (str, os.PathLike)) else path
        for one in named:
            self._remove_all(self._strip_protocol(one), recursive)

    def _remove_all(self, path: str, recursive: bool) -> None:
        if ".." in self._inner(path).split("/"):
            raise OSError(errno.EINVAL, "a path with '..' is not removed: name it without", path)
        # By the ids of directories: nobody who moves one meanwhile leads this elsewhere.
        above, name = self._entry(path)
        told = self._attributes_in(above, name, path) if name else self._attributes(path)
        if told["kind"] != "directory":
            self._remove_in(above, name, path)
            return
        if not recursive:
            raise IsADirectoryError(errno.EISDIR, "it is a directory: remove it with recursive=True", path)
        if name and self._is_removed(above, name, path):
            return
        self._remove_below(told["id"], path)
        if name:
            self._remove_in(above, name, path, directory=True)

    def _is_removed(self, above: str, name: bytes, path: str) -> bool:
        """Removes a directory if it is empty, or a view, in which nothing is removed; true if so."""
        try:
            self._remove_in(above, name, path, directory=True)
        except OSError as error:
            if error.errno not in (errno.ENOTEMPTY, errno.EEXIST):
                raise
            return False
        return True

    def _remove_below(self, directory: str, path: str) -> None:
        """Removes all in a directory, however deep."""
        # What is left to be done, the next thing last: a directory to be emptied, or an entry to be removed.
        left: list[tuple[str, bytes | None, str]] = [(directory, None, path)]
        while left:
            above, name, at = left.pop()
            if name is not None:
                self._remove_in(above, name, at, directory=True)
                continue
            for found, entry in list(self._listed({"id": above}, at)):
                below = at.rstrip("/") + "/" + found
                if entry.get("kind") != "directory":
                    self._remove_in(above, os.fsencode(found), below)
                elif not self._is_removed(above, os.fsencode(found), below):
                    left += [(above, os.fsencode(found), below), (entry["id"], None, below)]

    def copy(self, path1: Any, path2: Any, recursive: bool = False, **kwargs: Any) -> None:
        """Copies files; with `recursive` directories with all in them, and symbolic links as such."""
        super().copy(path1, path2, recursive=recursive, follow=not recursive, **kwargs)

    cp = copy

    def cp_file(self, path1: str, path2: str, follow: bool = True, **kwargs: Any) -> None:
        """Copies a file by sharing its blocks; of a directory, makes one of that name and its
        permissions; of a symbolic link what it leads to, or the link unless `follow`."""
        path1, path2 = self._strip_protocol(path1), self._strip_protocol(path2)
        source = self._attributes(path1, link=not follow)
        if source["kind"] == "symbolic link":
            self.symlink(as_name(source["target"]), path2)
            return
        if source["kind"] == "directory":
            if not self.isdir(path2):
                self._with_parents(path2, lambda: self._make_directory(path2, source["mode"] & 0o777))
            return
        if source["kind"] != "file":
            raise OSError(errno.EINVAL, f"a {source['kind']} is not copied", path1)
        used = self._daemon()
        target = self._create(path2, "take", source["mode"] & 0o777)
        if target["id"] == source["id"]:
            raise OSError(errno.EINVAL, "both are the same file", path1, None, path2)
        if target["size"]:
            self._set(path2, {"id": target["id"], "size": 0}, used)
        self._copy_content(source, target["id"], path2, used)

    def mv(self, path1: str, path2: str, recursive: bool = False, maxdepth: int | None = None, **kwargs: Any) -> None:
        """Moves a file, or a directory with all in it, in one step: over a file that is there, and
        into a directory that is there. Names are taken as they are."""
        if maxdepth is not None:
            raise NotImplementedError("mv() moves a directory with all in it, and knows no maxdepth")
        path1, path2 = os.fspath(path1), os.fspath(path2)
        into = path2.endswith("/")
        path1, path2 = self._strip_protocol(path1), self._strip_protocol(path2)
        if into or self.isdir(path2):
            path2 = path2.rstrip("/") + "/" + self._inner(path1).rpartition("/")[2]
        # Before directories are made for nothing.
        self._attributes(path1, link=True)
        self._with_parents(path2, lambda: self._rename(path1, path2))

    move = mv

    def touch(self, path: str, truncate: bool = True, **kwargs: Any) -> None:
        """Makes an empty file; of one that is there, sets the time of change, and truncates it
        unless `truncate` is false."""
        path = self._strip_protocol(path)
        used = self._daemon()
        try:
            told = self._create(path, None if truncate else "take")
        except IsADirectoryError:
            told = self._attributes(path)
        self._set(path, {"id": told["id"], "mtime": "now"}, used)

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
        if told["kind"] != "file":
            raise OSError(errno.EINVAL, f"a {told['kind']} has no content here", path)
        size = told["size"]
        first, behind, _ = slice(start, end).indices(size)
        return self._read(told["id"], first, behind - first, path)

    def pipe_file(self, path: str, value: bytes, mode: str = "overwrite", **kwargs: Any) -> None:
        """Makes a file of these bytes; with the mode `create`, only if there is none."""
        # Before anything is made: it may have none.
        data = memoryview(value).cast("B")
        with self.open(path, "xb" if mode == "create" else "wb") as file:
            file.write(data)

    def put_file(
        self, lpath: Any, rpath: Any, callback: Any = DEFAULT_CALLBACK, mode: str = "overwrite", **kwargs: Any
    ) -> None:
        """Copies a file from outside; with the mode `create`, only if there is none of this path."""
        if os.path.isdir(lpath):
            self.makedirs(rpath, exist_ok=True)
            return
        with open(lpath, "rb") as source, self.open(rpath, "xb" if mode == "create" else "wb") as target:
            callback.set_size(os.fstat(source.fileno()).st_size)
            while piece := source.read(self.blocksize):
                target.write(piece)
                callback.relative_update(len(piece))

    def get_file(
        self, rpath: Any, lpath: Any, callback: Any = DEFAULT_CALLBACK, outfile: Any = None, **kwargs: Any
    ) -> None:
        """Copies a file to outside: to a path, or to a file that is open; of a directory, makes one."""
        path = self._strip_protocol(rpath)
        told = self._attributes(path)
        if told["kind"] == "directory":
            os.makedirs(lpath, exist_ok=True)
            return
        target = outfile or (lpath if hasattr(lpath, "write") else None)
        if target is None:
            os.makedirs(os.path.dirname(os.fspath(lpath)) or ".", exist_ok=True)
        with contextlib.nullcontext(target) if target is not None else open(lpath, "wb") as into:
            callback.set_size(told["size"])
            for piece in self._pieces(path):
                into.write(piece)
                callback.relative_update(len(piece))

    def _open(
        self,
        path: str,
        mode: str = "rb",
        block_size: int | None = None,
        autocommit: bool = True,
        cache_options: dict[str, Any] | None = None,
        **kwargs: Any,
    ) -> WeftFile:
        if mode not in MODES:
            raise ValueError(f"a file cannot be opened in mode {mode!r}: it can in {', '.join(MODES)}, and without 'b' as text")
        if block_size is not None and block_size <= 0:
            raise ValueError(f"block_size is {block_size}: it must be positive")
        file = WeftFile(
            self,
            self._strip_protocol(path),
            mode=mode,
            block_size=block_size or self.blocksize,
            autocommit=autocommit,
            cache_options=cache_options,
            **kwargs,
        )
        if mode != "rb" and not autocommit:
            self._pending[file.path] = file
        return file

    def chmod(self, path: str, mode: int) -> None:
        """Sets the permissions of a file."""
        path = self._strip_protocol(path)
        self._set(path, {**self._of(path), "mode": format(mode, "o")}, self._daemon())

    def chown(self, path: str, uid: int | None = None, gid: int | None = None) -> None:
        """Sets owner and group of a file, by their numbers."""
        path = self._strip_protocol(path)
        owner: Query = {name: number for name, number in (("uid", uid), ("gid", gid)) if number is not None}
        self._set(path, {**self._of(path), **owner}, self._daemon())

    def symlink(self, target: str, path: str) -> None:
        """Makes a symbolic link, which leads to `target` from where it lies."""
        path = self._strip_protocol(path)
        query: Query = {**self._of(path), "target": os.fsencode(target)}
        self._with_parents(path, lambda: self._change("/files/symlink", query, path))

    def islink(self, path: str) -> bool:
        """True if there is a symbolic link at `path`."""
        try:
            return bool(self._attributes(self._strip_protocol(path), link=True)["kind"] == "symbolic link")
        except (FileNotFoundError, NotADirectoryError):
            return False

    def sign(self, path: str, expiration: int = 100, **kwargs: Any) -> str:
        """Is nothing that a volume has: raises `NotImplementedError`."""
        raise NotImplementedError("files of a volume have no URLs that others could open")

    # What a volume gives beyond.

    def commit(self) -> int:
        """Commits all changes so far; returns the number of the last commit. What was changed
        before survives a crash, and is a moment of its own where history is kept."""
        return self._asked(daemon.Daemon.commit)

    def close(self) -> None:
        """Commits all and leaves the volume, for others to use, if this process alone has it. The
        next use opens it again."""
        daemon.release(self.volume)

    @property
    def commit_number(self) -> int:
        """The number of the commit that is shown: of the moment, or else the last one."""
        if self._commit is not None:
            return self._commit
        return int(self.status()["commit"])

    def at(self, moment: str) -> WeftFileSystem:
        """Returns the volume as it was at a moment: a file system that cannot be changed, and stays
        the commit that the moment stands for now."""
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
        self._commit_before(path)
        told = program.value(["digest", "--json", f"--at={self._at()}", "--", self._subject(path)])
        return str(told[0]["digest"])

    def prove(self, path: str, directory: str = "/") -> str:
        """Returns a proof that a directory of its digest holds the file or directory `path`, which
        anybody can verify who has `weft`."""
        self._commit_before(path)
        top = self._inner(directory).rstrip("/")
        path = self._inner(path)
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
        """Tells what has changed in a file or directory from one moment to another one, or to this
        file system's own. Each change has the `path` in this volume, and says `what` has changed."""
        self._commit_before()
        until = until if until is not None else self.moment
        moments = [f"--at={since}", *([f"--at={until}"] if until is not None else [])]
        told: list[dict[str, Any]] = program.value(["diff", "--json", *moments, "--", self._subject(path)], codes=(0, 1))
        top = self._inner(path)
        return [{**change, "path": volumes.normal(f"{top}/{as_name(change['path'])}")} for change in told]

    def log(self, path: str = "/", limit: int | None = None, since: str | None = None) -> list[dict[str, Any]]:
        """Lists the changes of a file or directory that history keeps, up to this file system's own
        moment, the last first; of the root all commits."""
        self._commit_before()
        options = [f"--since={since}"] if since is not None else []
        # The newest ones may be later than the moment.
        options += [f"--limit={limit}"] if limit is not None and self._commit is None else []
        subject = self.volume if self._inner(path) == "/" else self._subject(path)
        told: list[dict[str, Any]] = program.value(["log", "--json", *options, "--", subject])
        if self._commit is not None:
            told = [change for change in told if int(change["commit"]) <= self._commit][:limit]
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
        if to is not None and self.auto_mkdir and not dry_run:
            self.makedirs(self._parent(self._strip_protocol(to)), exist_ok=True)
        options = [f"--to={self._inner(to).lstrip('/')}"] if to is not None else []
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
        named = [self._inner(one) for one in [*targets, link]]
        used = self._daemon()
        if used.status()["kind"] == "mount":
            subjects = [used.status()["place"].rstrip("/") + one for one in named]
        else:
            daemon.release(self.volume)
            if used.session.is_daemon_there():
                raise WeftError("other processes use this volume: links can be made on a mount, or once those have ended")
            subjects = [f"{self.volume}:{one.lstrip('/')}" for one in named]
        program.output(["link", *options, "--", *subjects])
        # A command has made it, of which no daemon's end tells.
        self.commit()

    def run(self, path: str, network: str) -> bytes:
        """Gives a file through a network of stages, such as `'zstd -d | grep error'`, and returns
        what comes out."""
        self._commit_before()
        return program.run(["run", f"--network={network}", f"--of={self.volume}"], self._pieces(path))

    # Requests.

    def _pieces(self, path: str) -> Iterator[bytes]:
        path = self._strip_protocol(path)
        told = self._attributes(path)
        offset = 0
        while offset < told["size"]:
            piece = self._read(told["id"], offset, min(PIECE_BYTES, told["size"] - offset), path)
            if not piece:
                # It was cut off meanwhile.
                return
            yield piece
            offset += len(piece)

    def _daemon(self) -> daemon.Daemon:
        return daemon.use(self.volume)

    def _ask(self, question: Callable[[Connection], T], *paths: str) -> T:
        """Asks the daemon, and another one if that has ended. Errors name the paths."""
        return self._asked(lambda used: question(used.connection), *paths)

    def _asked(self, question: Callable[[daemon.Daemon], T], *paths: str) -> T:
        used = self._daemon()
        try:
            try:
                return question(used)
            except Gone:
                return question(daemon.use(self.volume, not_this=used))
        except OSError as error:
            if error.filename is not None or error.errno is None or not paths:
                raise
            names = (paths[0], None, paths[1]) if len(paths) > 1 else (paths[0],)
            raise OSError(error.errno, error.strerror, *names) from None

    def _change(
        self, target: str, query: Query, *paths: str, body: Any = b"", since: daemon.Daemon | None = None
    ) -> dict[str, Any]:
        """Has the daemon change something; not if what was changed since another one is lost."""

        def asked(used: daemon.Daemon) -> dict[str, Any]:
            if since is not None:
                self._none_lost(since, paths[0])
            used.changes()
            told: dict[str, Any] = used.connection.post(target, query, body)
            return told

        return self._asked(asked, *paths)

    def _none_lost(self, since: daemon.Daemon, path: str) -> None:
        """Raises `OSError` if what was changed at a daemon may be lost."""
        if since.is_lost or since.has_ended() and since.is_lost:
            raise OSError(errno.EIO, daemon.LOST, path)

    def _of(self, path: str) -> Query:
        """Returns the query of a path."""
        return {**self._top, "path": os.fsencode(self._inner(path))}

    def _entry(self, path: str) -> tuple[str, bytes]:
        """Returns the id of the directory that a name is in, and the name; that of the root has none."""
        return self._attributes(self._parent(path))["id"], os.fsencode(self._inner(path).rpartition("/")[2])

    def _attributes(self, path: str, link: bool = False) -> dict[str, Any]:
        return self._attributes_of({**self._of(path), **({"link": ""} if link else {})}, path)

    def _attributes_by_id(self, id: str, path: str) -> dict[str, Any]:
        return self._attributes_of({"id": id}, path)

    def _attributes_in(self, directory: str, name: bytes, path: str) -> dict[str, Any]:
        return self._attributes_of({"in": directory, "path": name, "link": ""}, path)

    def _attributes_of(self, query: Query, path: str) -> dict[str, Any]:
        """Returns the attributes of what `query` names; `path` is for messages."""
        told: dict[str, Any] = self._ask(lambda link: link.get("/files/attributes", query), path)
        return told

    def _entries(self, path: str) -> Iterator[tuple[str, dict[str, Any]]]:
        return self._listed(self._of(path), path)

    def _listed(self, query: Query, path: str) -> Iterator[tuple[str, dict[str, Any]]]:
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
            query: Query = {"id": id, "offset": at, "length": count}
            return self._ask(lambda link: link.content(query), path)

        if length <= self.request_bytes:
            return piece(offset, length) if length > 0 else b""
        pieces: list[bytes] = []
        while length > 0:
            pieces.append(piece(offset, min(length, self.request_bytes)))
            if not pieces[-1]:
                break
            offset += len(pieces[-1])
            length -= len(pieces[-1])
        return b"".join(pieces)

    def _write(self, id: str, place: Query, data: memoryview, path: str, since: daemon.Daemon) -> None:
        self._change("/files/write", {"id": id, **place}, path, body=data, since=since)

    def _create(self, path: str, exists: str | None, mode: int | None = None) -> dict[str, Any]:
        query: Query = {**self._of(path), "umask": format(umask(), "o")}
        if exists is not None:
            query["exists"] = exists
        if mode is not None:
            query["mode"] = format(mode, "o")
        return self._with_parents(path, lambda: self._change("/files/create", query, path))

    def _replacement(self, path: str, exists: str | None) -> dict[str, Any]:
        """Makes an empty file that is to take the place of one that is there or not."""
        query: Query = {**self._of(path), "umask": format(umask(), "o")}
        if exists is not None:
            query["exists"] = exists
        return self._with_parents(path, lambda: self._change("/files/replace", query, path))

    def _take_place(self, replacement: dict[str, Any], path: str, is_new: bool, since: daemon.Daemon) -> None:
        """Gives such a file its name; if it `is_new`, only if none has that."""
        names = {name: bytes.fromhex(replacement[name]) for name in ("name", "over")}
        query: Query = {"in": replacement["in"], "path": names["name"], "to": names["over"]}
        if is_new:
            query["exists"] = "fail"
        else:
            query["rights"] = ""
        self._change("/files/rename", query, path, since=since)

    def _set(self, path: str, query: Query, since: daemon.Daemon) -> None:
        self._change("/files/set", query, path, since=since)

    def _with_parents(self, path: str, make: Callable[[], T]) -> T:
        """Has something made at `path`, and directories above it first, if they are missing and
        that is wanted."""
        try:
            return make()
        except FileNotFoundError:
            if not self.auto_mkdir or self._top:
                raise
            # Another thread may have made them meanwhile.
            self.makedirs(self._parent(path), exist_ok=True)
            return make()

    def _make_directory(self, path: str, mode: int = 0o777) -> None:
        query: Query = {**self._of(path), "umask": format(umask(), "o"), "mode": format(mode, "o")}
        self._change("/files/make-directory", query, path)

    def _remove(self, path: str, directory: bool = False) -> None:
        self._remove_named(self._of(path), path, directory)

    def _remove_in(self, above: str, name: bytes, path: str, directory: bool = False) -> None:
        """Removes an entry of the directory of this id; `path` is for messages."""
        self._remove_named({"in": above, "path": name}, path, directory)

    def _remove_named(self, query: Query, path: str, directory: bool) -> None:
        self._change("/files/remove", {**query, **({"directory": ""} if directory else {})}, path)

    def _rename(self, path: str, to: str) -> None:
        self._change("/files/rename", {**self._of(path), "to": os.fsencode(self._inner(to))}, path, to)

    def _copy_content(self, source: dict[str, Any], target: str, path: str, since: daemon.Daemon) -> int:
        """Copies all of a file over an empty one; returns how many bytes."""
        offset = 0
        # What has come meanwhile is no part of the copy.
        while offset < source["size"]:
            query: Query = {"from": source["id"], "to": target, "offset": offset}
            copied = int(self._change("/files/copy", query, path, since=since)["copied"])
            if copied == 0:
                break
            offset += copied
        return offset

    # The past.

    def _at(self) -> str:
        """Returns the moment, as commands take it."""
        return self.moment or "now"

    def _subject(self, path: str) -> str:
        """Returns a path in the volume as commands take it."""
        return f"{self.volume}:{self._inner(path).lstrip('/')}"

    def _writable(self) -> None:
        if self._commit is not None:
            raise OSError(errno.EROFS, "the past cannot be changed", self.fsid)

    def _commit_before(self, path: str | None = None) -> None:
        """Has what was changed so far be seen by a command, which reads what is committed. Raises
        `FileNotFoundError` if it is to read a path that is not there."""
        if path is not None:
            self._attributes(self._strip_protocol(path), link=True)
        self.commit()


def _commit_at(volume: str, moment: str) -> int:
    """Returns the commit that a moment stands for."""
    used = daemon.use(volume)
    try:
        if used.is_changed:
            used.commit()
        told = used.connection.get("/files/moment", {"at": os.fsencode(moment)})
    except OSError as error:
        if error.errno == errno.EINVAL:
            raise ValueError(error.strerror) from None
        raise OSError(error.errno, error.strerror, f"{volume} at {moment}") from None
    return int(told["commit"])


def as_name(told: str | dict[str, str]) -> str:
    """Returns a name that may be any bytes, as Python has those of files."""
    return told if isinstance(told, str) else os.fsdecode(bytes.fromhex(told["hex"]))


def as_time(nanoseconds: int) -> datetime:
    """Returns a time in UTC."""
    return datetime.fromtimestamp(nanoseconds / 1e9, tz=timezone.utc)


def umask() -> int:
    """Returns the umask of this process, which os.umask() can tell only by changing it."""
    with open("/proc/self/status", encoding="ascii", errors="replace") as status:
        for line in status:
            if line.startswith("Umask:"):
                return int(line.split()[1], 8)
    return 0o077
