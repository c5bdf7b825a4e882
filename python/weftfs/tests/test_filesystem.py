"""Files of a volume, as a programmer uses them."""

from __future__ import annotations

import errno
import io
import multiprocessing
import os
import signal
import subprocess
import sys
import threading
from pathlib import Path

import fsspec
import pytest

from weftfs import WeftError, WeftFileSystem, daemon, volumes

from .conftest import weft


def test_bytes_come_back_as_they_were_written(fs: WeftFileSystem) -> None:
    data = os.urandom(5_000_001)
    with fs.open("/deep/in/there", "wb") as file:
        for at in range(0, len(data), 777_777):
            file.write(data[at : at + 777_777])
    assert fs.cat("/deep/in/there") == data
    assert fs.cat_file("/deep/in/there", 10, -10) == data[10:-10]
    assert fs.cat_file("/deep/in/there", -5) == data[-5:]
    with fs.open("/deep/in/there") as file:
        file.seek(4_000_000)
        assert file.read(100) == data[4_000_000:4_000_100]
        file.seek(-7, io.SEEK_END)
        assert file.read() == data[-7:]
    with fs.open("/deep/in/there", "ab") as file:
        assert file.tell() == len(data)
        file.write(b"end")
    assert fs.size("/deep/in/there") == len(data) + 3
    assert fs.tail("/deep/in/there", 3) == b"end"


def test_what_is_flushed_is_seen_by_others(fs: WeftFileSystem) -> None:
    with fs.open("/log", "wb") as file:
        for count in range(1, 4):
            file.write(b"line\n")
            file.flush()
            assert fs.cat("/log") == b"line\n" * count
    with fs.open("/log", "w") as text:
        text.write("naïve\n")
    assert fs.read_text("/log") == "naïve\n"


def test_errors_are_those_of_the_system(fs: WeftFileSystem) -> None:
    fs.pipe("/d/f", b"x")
    for work, kind in [
        (lambda: fs.cat_file("/none"), FileNotFoundError),
        (lambda: fs.open("/none"), FileNotFoundError),
        (lambda: fs.ls("/none"), FileNotFoundError),
        (lambda: fs.info("/d/f/g"), NotADirectoryError),
        (lambda: fs.open("/d"), IsADirectoryError),
        (lambda: fs.open("/d", "wb"), IsADirectoryError),
        (lambda: fs.cat_file("/d"), IsADirectoryError),
        (lambda: fs.mkdir("/d"), FileExistsError),
        (lambda: fs.makedirs("/d"), FileExistsError),
        (lambda: fs.rm("/d"), IsADirectoryError),
        (lambda: fs.cp_file("/d/f", "/d/f"), OSError),
    ]:
        with pytest.raises(kind) as raised:
            work()
        assert raised.value.filename, raised.value
    with pytest.raises(OSError) as raised:
        fs.rmdir("/d")
    assert raised.value.errno == errno.ENOTEMPTY
    assert not fs.exists("/d/f/g") and fs.cat("/d/f") == b"x"


def test_names_may_be_any_bytes(fs: WeftFileSystem) -> None:
    names = ["/ü % ? # & = +", "/a\nb", os.fsdecode(b"/\xff\xfe"), "/[x]", "/:"]
    for name in names:
        fs.pipe_file(name, name.encode(errors="surrogateescape"))
    assert sorted(fs.ls("/", detail=False)) == sorted(names)
    for name in names:
        assert fs.cat_file(name) == name.encode(errors="surrogateescape")
        fs.rm_file(name)
    assert fs.ls("/") == []


def test_directories_are_moved_copied_and_removed(fs: WeftFileSystem) -> None:
    fs.pipe({"/a/x": b"1", "/a/b/y": b"22"})
    fs.mv("/a", "/moved", recursive=True)
    assert fs.find("/") == ["/moved/b/y", "/moved/x"]
    fs.mkdir("/into")
    fs.mv("/moved", "/into")
    assert fs.exists("/into/moved/b/y") and not fs.exists("/moved")
    fs.cp("/into/moved", "/copy", recursive=True)
    assert fs.du("/copy") == 3 and fs.cat("/copy/b/y") == b"22"
    fs.pipe("/copy/x", b"changed")
    assert fs.cat("/into/moved/x") == b"1"
    fs.rm(["/into", "/copy"], recursive=True)
    assert fs.ls("/") == []


def test_symbolic_links_are_told_and_followed(fs: WeftFileSystem, volume: Path, tmp_path: Path) -> None:
    (tmp_path / "from").mkdir()
    (tmp_path / "from/f").write_text("content")
    (tmp_path / "from/link").symlink_to("f")
    (tmp_path / "from/dangling").symlink_to("none")
    weft("import", tmp_path / "from", volume)
    told = fs.info("/link")
    assert (told["type"], told["islink"], told["destination"], told["size"]) == ("file", True, "f", 7)
    assert fs.cat("/link") == b"content"
    assert fs.info("/dangling")["type"] == "link" and fs.lexists("/dangling")
    fs.rm("/link")
    assert fs.cat("/f") == b"content"


def test_a_transaction_is_seen_at_its_end_or_never(fs: WeftFileSystem) -> None:
    fs.pipe("/f", b"before")
    with fs.transaction:
        with fs.open("/f", "wb") as file:
            file.write(b"after")
        assert fs.cat("/f") == b"before"
    assert fs.cat("/f") == b"after"
    with pytest.raises(ZeroDivisionError):
        with fs.transaction:
            with fs.open("/f", "wb") as file:
                file.write(b"never")
            1 / 0
    assert fs.cat("/f") == b"after" and fs.ls("/", detail=False) == ["/f"]


def test_listings_are_whole_however_long(fs: WeftFileSystem) -> None:
    names = [f"/d/{number:05}" for number in range(9000)]
    fs.mkdir("/d")
    for name in names:
        fs.touch(name)
    assert fs.ls("/d", detail=False) == names
    assert fs.glob("/d/0899?") == names[8990:]


def test_a_volume_is_free_once_it_is_closed_or_its_process_has_ended(volume: Path) -> None:
    script = (
        "import fsspec, sys; f = fsspec.open(sys.argv[1], 'w').open(); f.write('x' * 10); f.close();"
        "import os; os.kill(os.getpid(), int(sys.argv[2])) if sys.argv[2] != '0' else None"
    )
    for number in (0, signal.SIGKILL):
        url = f"weft://{volume}/{int(number)}"
        done = subprocess.run([sys.executable, "-c", script, url, str(int(number))], check=False)
        assert done.returncode == -number
    # The helper of a process that was killed may be about to end.
    fs = WeftFileSystem(volume, skip_instance_cache=True)
    assert {entry["name"]: entry["size"] for entry in fs.ls("/")} == {"/0": 10, "/9": 10}
    fs.close()
    weft("check", volume)
    assert fs.cat("/0") == b"x" * 10  # It is opened again.
    fs.close()


def test_another_process_uses_the_daemon_that_is_there(fs: WeftFileSystem, volume: Path) -> None:
    fs.pipe("/f", b"here")
    script = "import fsspec, sys; sys.stdout.write(fsspec.open(sys.argv[1], 'r').open().read())"
    read = [sys.executable, "-c", script, f"weft://{volume}/f"]
    assert subprocess.run(read, capture_output=True, check=True).stdout == b"here"
    # As a mount does, which is there already.
    assert fs.cat("/f") == b"here"


def _read(volume: Path, name: str) -> bytes:
    content: bytes = WeftFileSystem(volume).cat(name)
    return content


def test_threads_and_forked_processes_share_it(fs: WeftFileSystem, volume: Path) -> None:
    fs.pipe({f"/{number}": os.urandom(300_000) for number in range(8)})
    whole = fs.cat(fs.find("/"))
    wrong: list[str] = []

    def read() -> None:
        for name, content in whole.items():
            if WeftFileSystem(volume).cat(name) != content:
                wrong.append(name)

    threads = [threading.Thread(target=read) for _ in range(12)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong
    for method in ("fork", "spawn"):
        with multiprocessing.get_context(method).Pool(2) as pool:
            read_there = pool.starmap(_read, [(volume, name) for name in whole])
        assert read_there == list(whole.values()), method


def test_a_daemon_that_was_killed_is_replaced(fs: WeftFileSystem, volume: Path) -> None:
    fs.pipe("/f", b"kept")
    fs.commit()
    os.kill(fs.status()["pid"], signal.SIGKILL)
    with pytest.raises(WeftError):
        daemon.release(str(volume))
    assert fs.cat("/f") == b"kept"
    file = fs.open("/f", "ab")
    file.write(b" on")
    os.kill(fs.status()["pid"], signal.SIGKILL)
    daemon._daemons[str(volume)].helper._process.wait()  # type: ignore[union-attr]
    file.close()
    assert fs.cat("/f") == b"kept on"


def test_what_is_not_there_or_no_volume_is_told(tmp_path: Path) -> None:
    with pytest.raises(WeftError, match="none.weft"):
        WeftFileSystem(tmp_path / "none.weft", skip_instance_cache=True).ls("/")
    with pytest.raises(ValueError, match="name a volume"):
        fsspec.filesystem("weft")


def test_a_url_names_the_volume_and_the_path(volume: Path) -> None:
    named = str(volume)
    for url, split in [
        (f"weft://{named}/a/b", (named, "/a/b")),
        (f"weft://{named}", (named, "/")),
        ("weft://photos/2026/x", ("photos", "/2026/x")),
        ("weft://postgres%3A%2F%2Fhost%2Ffiles/x", ("postgres://host/files", "/x")),
        ("/a//b/", (None, "/a/b")),
        ("a", (None, "/a")),
    ]:
        assert volumes.split(url) == split, url
    fs = WeftFileSystem(volume)
    assert fs.unstrip_protocol("/a/b") == f"weft://{named}/a/b"
    assert volumes.url("postgres://host/files", "/x") == "weft://postgres%3A%2F%2Fhost%2Ffiles/x"
