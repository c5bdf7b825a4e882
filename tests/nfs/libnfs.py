#!/usr/bin/env python3
"""Each operation of libnfs, an NFS client of its own, on a server: libnfs.py PORT PATH. Prints ok or not ok for each."""

import ctypes
import errno
import os
import stat
import sys

PORT, PATH = sys.argv[1], sys.argv[2]
LIBRARY = ctypes.CDLL("libnfs.so.13", use_errno=True)
LIBRARY.nfs_init_context.restype = ctypes.c_void_p
LIBRARY.nfs_get_error.restype = ctypes.c_char_p
U64, POINTER = ctypes.c_uint64, ctypes.c_void_p


class Stat(ctypes.Structure):
    _fields_ = [(name, U64) for name in (
        "dev ino mode nlink uid gid rdev size blksize blocks atime mtime ctime atime_nsec mtime_nsec ctime_nsec used"
    ).split()]


class Entry(ctypes.Structure):
    pass


Entry._fields_ = [("next", ctypes.POINTER(Entry)), ("name", ctypes.c_char_p), ("inode", U64)]
LIBRARY.nfs_readdir.restype = ctypes.POINTER(Entry)


class Timeval(ctypes.Structure):
    _fields_ = [("seconds", ctypes.c_long), ("microseconds", ctypes.c_long)]


class Client:
    """A mount, as a user. Methods are libnfs's functions without their prefix; they raise OSError."""

    def __init__(self, uid=0):
        self.context = POINTER(LIBRARY.nfs_init_context())
        LIBRARY.nfs_set_uid(self.context, uid)
        LIBRARY.nfs_set_gid(self.context, uid)
        # Else it answers from its own memory.
        LIBRARY.nfs_set_dircache(self.context, 0)
        url = f"nfs://127.0.0.1/?nfsport={PORT}&mountport={PORT}".encode()
        assert LIBRARY.nfs_parse_url_incomplete(self.context, url)
        self.mount(b"127.0.0.1", PATH.encode())

    def __getattr__(self, name):
        function = getattr(LIBRARY, "nfs_" + name)

        def call(*arguments):
            result = function(self.context, *[a if not isinstance(a, int) else U64(a) for a in arguments])
            if result < 0:
                raise OSError(-result, f"{name}: {LIBRARY.nfs_get_error(self.context)}")
            return result
        return call

    def stat(self, path):
        found = Stat()
        self.stat64(path, ctypes.byref(found))
        return found

    def lstat(self, path):
        found = Stat()
        self.lstat64(path, ctypes.byref(found))
        return found

    def opened(self, path, flags):
        handle = POINTER()
        self.open(path, flags, ctypes.byref(handle))
        return handle

    def made(self, path, mode):
        handle = POINTER()
        self.creat(path, mode, ctypes.byref(handle))
        return handle

    def wrote(self, path, data):
        handle = self.made(path, 0o644)
        assert self.pwrite(handle, 0, len(data), data) == len(data)
        self.fsync(handle)
        self.close(handle)

    def content(self, path, offset=0, count=1 << 20):
        handle, buffer = self.opened(path, os.O_RDONLY), ctypes.create_string_buffer(count)
        read = self.pread(handle, offset, count, buffer)
        self.close(handle)
        return buffer.raw[:read]

    def listed(self, path):
        directory = POINTER()
        self.opendir(path, ctypes.byref(directory))
        names = []
        while entry := LIBRARY.nfs_readdir(self.context, directory):
            names.append(entry.contents.name)
        LIBRARY.nfs_closedir(self.context, directory)
        return sorted(name for name in names if name not in (b".", b".."))


def fails(code, function, *arguments):
    try:
        function(*arguments)
    except OSError as error:
        assert error.errno == code, error
    else:
        raise AssertionError(f"it should have failed with {errno.errorcode[code]}")


def files(client):
    client.wrote(b"/file", b"some text")
    assert client.content(b"/file") == b"some text"
    assert client.content(b"/file", 5) == b"text"
    found = client.stat(b"/file")
    assert (stat.S_IFMT(found.mode), found.mode & 0o7777, found.size, found.nlink) == (stat.S_IFREG, 0o644, 9, 1)
    client.truncate(b"/file", 4)
    assert client.content(b"/file") == b"some"
    handle = client.opened(b"/file", os.O_RDWR)
    client.ftruncate(handle, 6)
    client.close(handle)
    assert client.content(b"/file") == b"some\0\0"


def large(client):
    data = os.urandom(5_000_001)
    client.wrote(b"/large", data)
    assert b"".join(client.content(b"/large", at) for at in range(0, len(data), 1 << 20)) == data


def exclusive(client):
    handle = client.opened(b"/exclusive", os.O_CREAT | os.O_EXCL | os.O_WRONLY)
    client.close(handle)
    fails(errno.EEXIST, client.opened, b"/exclusive", os.O_CREAT | os.O_EXCL | os.O_WRONLY)


def attributes(client):
    client.wrote(b"/attributes", b"")
    client.chmod(b"/attributes", 0o600)
    client.chown(b"/attributes", 5, 6)
    times = (Timeval * 2)(Timeval(1000, 1), Timeval(2000, 2))
    client.utimes(b"/attributes", times)
    found = client.stat(b"/attributes")
    assert (found.mode & 0o7777, found.uid, found.gid) == (0o600, 5, 6)
    assert (found.atime, found.mtime, found.mtime_nsec) == (1000, 2000, 2000)
    client.access(b"/attributes", os.R_OK | os.W_OK)
    fails(errno.EACCES, Client(uid=1000).access, b"/attributes", os.R_OK)


def directories(client):
    client.mkdir(b"/directory")
    fails(errno.EEXIST, client.mkdir, b"/directory")
    for at in range(300):
        client.close(client.made(b"/directory/file%d" % at, 0o644))
    assert client.listed(b"/directory") == sorted(b"file%d" % at for at in range(300))
    fails(errno.ENOTEMPTY, client.rmdir, b"/directory")
    for at in range(300):
        client.unlink(b"/directory/file%d" % at)
    client.rmdir(b"/directory")
    fails(errno.ENOENT, client.stat, b"/directory")


def names(client):
    client.wrote(b"/a", b"a")
    client.rename(b"/a", b"/b")
    client.link(b"/b", b"/c")
    assert client.stat(b"/c").nlink == 2 and client.stat(b"/c").ino == client.stat(b"/b").ino
    client.symlink(b"c", b"/d")
    target = ctypes.create_string_buffer(100)
    client.readlink(b"/d", target, 100)
    assert target.value == b"c" and stat.S_ISLNK(client.lstat(b"/d").mode)
    assert client.content(b"/d") == b"a"
    client.unlink(b"/b")
    fails(errno.ENOENT, client.unlink, b"/b")


def nodes(client):
    client.mknod(b"/pipe", stat.S_IFIFO | 0o600, 0)
    client.mknod(b"/device", stat.S_IFCHR | 0o600, os.makedev(1, 3))
    assert stat.S_ISFIFO(client.lstat(b"/pipe").mode) and stat.S_ISCHR(client.lstat(b"/device").mode)


def rights(client):
    client.mkdir(b"/private")
    client.chmod(b"/private", 0o700)
    client.wrote(b"/private/file", b"secret")
    other = Client(uid=1000)
    fails(errno.EACCES, other.content, b"/private/file")
    fails(errno.EACCES, other.made, b"/private/new", 0o600)
    fails(errno.EPERM, other.chmod, b"/private", 0o777)
    client.chmod(b"/private", 0o755)
    assert other.content(b"/private/file") == b"secret"


def whole(client):
    space = ctypes.create_string_buffer(256)
    client.statvfs(b"/", space)
    block, unit, total, free = (int.from_bytes(space.raw[at:at + 8], "little") for at in (0, 8, 16, 24))
    assert block and unit and 0 < free <= total


def main():
    client, failed = Client(), 0
    for work in (files, large, exclusive, attributes, directories, names, nodes, rights, whole):
        try:
            work(client)
            print(f"ok libnfs: {work.__name__}")
        except (OSError, AssertionError) as error:
            failed = 1
            print(f"not ok libnfs: {work.__name__}\n    {error!r}")
    return failed


sys.exit(main())
