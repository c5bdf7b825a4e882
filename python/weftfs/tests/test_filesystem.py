"""Files of a volume, as a programmer uses them."""

from __future__ import annotations

import errno
import io
import multiprocessing
import os
import pickle
import signal
import subprocess
import sys
import threading
import zipfile
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


def _killed(fs: WeftFileSystem) -> None:
    """Kills the helper, and returns once it is gone."""
    used = daemon.use(fs.volume)
    os.kill(used.status()["pid"], signal.SIGKILL)
    used._helper.wait()  # type: ignore[union-attr]


def test_a_daemon_that_was_killed_is_replaced(fs: WeftFileSystem) -> None:
    fs.pipe("/f", b"kept")
    fs.commit()
    _killed(fs)
    # Nothing is lost.
    assert fs.cat("/f") == b"kept"
    _killed(fs)
    fs.close()
    assert fs.cat("/f") == b"kept"


def test_whoever_changed_something_hears_that_it_may_be_lost(fs: WeftFileSystem) -> None:
    fs.pipe("/committed", b"kept")
    fs.commit()
    fs.pipe("/f", b"may be lost")
    _killed(fs)
    # Nobody takes it for a file or directory that is not there.
    with pytest.raises(WeftError, match="may be lost"):
        fs.find("/")
    # It is told once.
    assert fs.cat("/committed") == b"kept"
    fs.pipe("/f", b"again")
    _killed(fs)
    with pytest.raises(WeftError, match="killed"):
        fs.close()


def test_a_file_that_is_written_while_its_daemon_is_killed_is_no_success(fs: WeftFileSystem) -> None:
    for mode in ("wb", "ab"):
        file = fs.open("/f", mode)
        file.write(b"first")
        file.flush()
        _killed(fs)
        # Somebody else hears of it first.
        with pytest.raises(WeftError, match="may be lost"):
            fs.isfile("/f")
        assert isinstance(fs.ls("/"), list)
        file.write(b"second")
        with pytest.raises(OSError, match="may be lost"):
            file.close()
        assert not fs.exists("/f") or b"second" not in fs.cat("/f")
        file = fs.open("/f", mode)
        file.write(b"all")
        _killed(fs)
        with pytest.raises((OSError, WeftError), match="may be lost"):
            file.close()
        fs.touch("/f")
    with pytest.raises((OSError, WeftError), match="may be lost"):
        with fs.transaction:
            with fs.open("/t", "wb") as file:
                file.write(b"x")
            _killed(fs)
    assert not fs.exists("/t")
    fs.close()


def test_a_helper_serves_others_after_the_process_that_started_it(volume: Path) -> None:
    script = (
        "import fsspec, sys; fs = fsspec.filesystem('weft', volume=sys.argv[1]); fs.touch('/started');"
        "sys.stdout.write('here\\n'); sys.stdout.flush(); sys.stdin.read()"
    )
    first = subprocess.Popen(
        [sys.executable, "-c", script, str(volume)], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    assert first.stdin is not None and first.stdout is not None and first.stdout.readline() == b"here\n"
    fs = WeftFileSystem(volume, skip_instance_cache=True)
    pid = fs.status()["pid"]
    file = fs.open("/f", "wb")
    file.write(b"x" * 3_000_000)
    first.stdin.close()
    assert first.wait() == 0
    first.stdout.close()
    file.close()
    assert fs.status()["pid"] == pid and fs.size("/f") == 3_000_000
    fs.close()
    weft("check", volume)


def test_a_daemon_that_is_stopped_loses_nothing_and_is_replaced(fs: WeftFileSystem, volume: Path) -> None:
    with fs.open("/f", "wb") as file:
        file.write(b"before ")
        file.flush()
        weft("stop", volume)
        file.write(b"and after")
    assert fs.cat("/f") == b"before and after"


def _append(volume: Path, number: int) -> None:
    fs = WeftFileSystem(volume)
    for line in range(20):
        with fs.open("/log", "ab") as file:
            file.write(b"%d %d %s\n" % (number, line, b"x" * 100 * line))
    with fs.open("/log", "a") as text:
        for line in range(10_000):
            text.write(f"{number} at once {line}\n")
    fs.close()


def test_processes_append_to_one_file(fs: WeftFileSystem, volume: Path) -> None:
    fs.touch("/log")
    workers = [multiprocessing.get_context("fork").Process(target=_append, args=(volume, number)) for number in range(3)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    lines = fs.cat("/log").decode().splitlines()
    assert len(lines) == len(set(lines)) == 3 * 10_020


def test_writes_larger_than_a_request_are_made_of_several(fs: WeftFileSystem, monkeypatch: pytest.MonkeyPatch) -> None:
    lines = b"".join(b"%d %s\n" % (number, b"x" * 100) for number in range(8000))
    with fs.open("/log", "ab") as file:
        file.write(lines)
        file.write(lines)
    with fs.open("/log", "a") as text:
        text.write(lines.decode())
        text.write("y" * 1_000_000)
    assert fs.cat("/log") == lines * 3 + b"y" * 1_000_000
    monkeypatch.setattr(fs, "request_bytes", 1 << 20)
    with fs.open("/f", "wb") as file:
        file.write(lines * 5)
    assert fs.cat("/f") == lines * 5


def test_an_append_whose_fate_is_unknown_is_not_made_twice(fs: WeftFileSystem, monkeypatch: pytest.MonkeyPatch) -> None:
    written = fs._write

    def interrupted(*words: object) -> None:
        written(*words)  # type: ignore[arg-type]
        raise KeyboardInterrupt

    file = fs.open("/log", "ab")
    file.write(b"once\n")
    with monkeypatch.context() as patched:
        patched.setattr(fs, "_write", interrupted)
        with pytest.raises(KeyboardInterrupt):
            file.flush()
    file.close()
    assert fs.cat("/log") == b"once\n"

    def refused(*_: object) -> None:
        raise OSError(errno.ENOSPC, "no room")

    file = fs.open("/log", "ab")
    file.write(b"twice\n")
    with monkeypatch.context() as patched:
        patched.setattr(fs, "_write", refused)
        with pytest.raises(OSError, match="no room"):
            file.flush()
    file.close()
    assert fs.cat("/log") == b"once\ntwice\n"


def test_a_change_during_a_commit_is_not_taken_as_committed(fs: WeftFileSystem, monkeypatch: pytest.MonkeyPatch) -> None:
    fs.pipe("/f", b"x")
    used = daemon.use(fs.volume)
    post = used.connection.post

    def slow(target: str, *words: object) -> object:
        told = post(target, *words)  # type: ignore[arg-type]
        if target == "/commit":
            used.changes()
        return told

    with monkeypatch.context() as patched:
        patched.setattr(used.connection, "post", slow)
        fs.commit()
    assert used.is_changed
    fs.commit()
    assert not used.is_changed


def test_a_transaction_throws_nothing_away_that_others_have_written(fs: WeftFileSystem) -> None:
    fs.pipe("/log", b"first\n")
    with pytest.raises(OSError, match="changed"):
        with fs.transaction:
            with fs.open("/log", "ab") as file:
                file.write(b"mine\n")
            with fsspec.open(fs.unstrip_protocol("/log"), "ab") as other:
                other.write(b"theirs\n")
    assert fs.cat("/log") == b"first\ntheirs\n" and fs.ls("/", detail=False) == ["/log"]
    with pytest.raises(OSError, match="changed"):
        with fs.transaction:
            with fs.open("/log", "ab") as file:
                file.write(b"mine\n")
            fs.rm("/log")
    assert fs.ls("/", detail=False) == []
    fs.pipe("/f", b"x")
    with fs.transaction:
        with fs.open("/f", "wb") as file:
            file.write(b"new")
        fs.chmod("/f", 0o600)
    assert fs.cat("/f") == b"new" and fs.info("/f")["mode"] & 0o777 == 0o600
    with fs.transaction:
        file = fs.open("/g", "wb")
        file.write(b"not closed")
    assert fs.cat("/g") == b"not closed"
    with fs.transaction:
        with fs.open("/f", "ab") as file:
            file.truncate(1)
            file.write(b"end")
    assert fs.cat("/f") == b"nend"


def test_nothing_is_removed_above_what_is_named(fs: WeftFileSystem) -> None:
    fs.pipe({"/a/b/c": b"x", "/d": b"y"})
    for path in ("/a/b/..", "/..", "/a/../d"):
        with pytest.raises(OSError):
            fs.rm(path, recursive=True)
    assert fs.find("/") == ["/a/b/c", "/d"]
    with pytest.raises(FileNotFoundError):
        fs.mv("/none", "/x/y/z")
    assert not fs.exists("/x")
    deep = "/deep" + "/d" * 1200
    fs.makedirs(deep)
    fs.rm("/deep", recursive=True)
    assert fs.find("/") == ["/a/b/c", "/d"]


def test_trees_are_copied_with_their_links_and_rights(fs: WeftFileSystem) -> None:
    fs.pipe({"/secret/key": b"k", "/home/private/f": b"x"})
    fs.chmod("/secret", 0o700)
    fs.chmod("/home/private", 0o700)
    fs.symlink("../secret", "/home/notes")
    fs.symlink("none", "/home/dangling")
    fs.cp("/home", "/copy", recursive=True)
    assert fs.islink("/copy/notes") and fs.islink("/copy/dangling")
    assert fs.info("/copy/private")["mode"] & 0o777 == 0o700 and fs.cat("/copy/private/f") == b"x"
    assert [name for name in fs.find("/copy")] == ["/copy/dangling", "/copy/notes", "/copy/private/f"]


def test_a_file_that_is_replaced_while_it_is_read_is_stale(fs: WeftFileSystem) -> None:
    fs.pipe("/f", os.urandom(8 << 20))
    with fs.open("/f", block_size=1 << 20) as file:
        file.read(1 << 20)
        with fs.transaction:
            fs.pipe("/f", b"new")
        with pytest.raises(OSError) as raised:
            file.read()
    assert raised.value.errno == errno.ESTALE
    with fs.open("/f") as file:
        assert file.read() == b"new"


def test_names_are_taken_as_they_are(fs: WeftFileSystem) -> None:
    fs.pipe({"/a[1].txt": b"right", "/a1.txt": b"wrong", "/b*": b"star", "/bc": b"other"})
    fs.mv("/a[1].txt", "/moved")
    fs.rm("/b*")
    assert fs.find("/") == ["/a1.txt", "/bc", "/moved"]
    for name in ("/a[1].txt", "/b?"):
        with pytest.raises(FileNotFoundError):
            fs.rm(name)
    assert fs.find("/") == ["/a1.txt", "/bc", "/moved"]


def test_a_value_without_bytes_destroys_nothing(fs: WeftFileSystem) -> None:
    fs.pipe("/f", b"kept")
    with pytest.raises(TypeError):
        fs.pipe_file("/f", "text")
    assert fs.cat("/f") == b"kept"


def test_permissions_are_kept(fs: WeftFileSystem) -> None:
    fs.pipe("/secret", b"x")
    fs.chmod("/secret", 0o600)
    with fs.transaction:
        with fs.open("/secret", "wb") as file:
            file.write(b"y")
    assert fs.info("/secret")["mode"] & 0o777 == 0o600 and fs.cat("/secret") == b"y"
    fs.cp("/secret", "/copy")
    assert fs.info("/copy")["mode"] & 0o777 == 0o600
    fs.chmod("/copy", 0o640)
    fs.cp("/secret", "/copy")
    assert fs.info("/copy")["mode"] & 0o777 == 0o640


def test_a_transaction_writes_through_symbolic_links_and_long_names(fs: WeftFileSystem) -> None:
    name = "/d/" + "€" * 85
    fs.pipe(name, b"old")
    fs.symlink("d/" + "€" * 85, "/link")
    with fs.transaction:
        fs.pipe("/link", b"new")
        assert fs.cat(name) == b"old"
    assert fs.cat(name) == b"new" and fs.islink("/link") and fs.ls("/d", detail=False) == [name]


def test_one_path_in_a_transaction_twice_is_what_was_written_last(fs: WeftFileSystem) -> None:
    with fs.transaction:
        with fs.open("/log", "ab") as file:
            file.write(b"one ")
        with fs.open("/log", "ab") as file:
            file.write(b"two")
    assert fs.cat("/log") == b"one two" and fs.ls("/", detail=False) == ["/log"]
    with pytest.raises(FileExistsError):
        with fs.transaction:
            with fs.open("/log2", "xb") as file:
                file.write(b"x")
            with fs.open("/log2", "xb") as file:
                file.write(b"y")
    assert fs.ls("/", detail=False) in (["/log"], ["/log", "/log2"])


def test_removing_follows_no_symbolic_link_that_takes_a_directorys_place(
    fs: WeftFileSystem, monkeypatch: pytest.MonkeyPatch
) -> None:
    fs.pipe({"/d/sub/x": b"1", "/kept/x": b"2"})
    listed = fs._listed

    def swapped(query: object, path: str) -> object:
        entries = list(listed(query, path))  # type: ignore[arg-type]
        if path == "/d":
            fs.mv("/d/sub", "/moved")
            fs.symlink("../kept", "/d/sub")
        return entries

    monkeypatch.setattr(fs, "_listed", swapped)
    with pytest.raises(OSError):
        fs.rm("/d", recursive=True)
    assert fs.cat("/kept/x") == b"2"


def test_files_that_are_written_can_be_written_anywhere(fs: WeftFileSystem, tmp_path: Path) -> None:
    with fs.open("/f", "wb") as file:
        file.write(b"0123456789")
        assert file.seek(4) == 4
        file.write(b"XY")
        file.seek(-1, io.SEEK_END)
        file.write(b"end")
        assert file.truncate(11) == 11
    assert fs.cat("/f") == b"0123XY678en"
    with zipfile.ZipFile(fs.open("/z.zip", "wb"), "w") as archive:
        archive.writestr("a", "content")
    with zipfile.ZipFile(fs.open("/z.zip")) as archive:
        assert archive.read("a") == b"content"
    with fs.open("/utf16", "w", encoding="utf-16") as text:
        text.write("naïve")
    assert fs.cat("/utf16").decode("utf-16") == "naïve"
    with fs.open("/lines", "wb") as file:
        file.write(b"one\ntwo\nthree")
    with fs.open("/lines") as file:
        assert (file.name, file.readline(2), file.readline(), file.readlines()) == ("/lines", b"on", b"e\n", [b"two\n", b"three"])


def test_wrong_uses_are_told(fs: WeftFileSystem, volume: Path, tmp_path: Path) -> None:
    with pytest.raises(TypeError, match="'att'"):
        WeftFileSystem(volume, att="yesterday")
    with pytest.raises(ValueError, match="'r.b'"):
        fs.open("/f", "r+b")
    with pytest.raises(ValueError, match="other.weft"):
        weft("init", tmp_path / "other.weft")
        fs.ls(f"weft://{tmp_path / 'other.weft'}/")
    assert fs.ls(f"weft://{volume}/") == []
    with pytest.raises(FileNotFoundError, match="no part of this path is a volume"):
        fsspec.open(f"weft://{tmp_path}/x")
    fs.pipe("/f", b"x")
    (tmp_path / "f").write_text("y")
    with pytest.raises(FileExistsError) as raised:
        fs.put_file(tmp_path / "f", "/f", mode="create")
    assert raised.value.filename == "/f"
    with pytest.raises(FileNotFoundError) as missing:
        fs.digest("/none")
    assert missing.value.filename == "/none"
    with pytest.raises(ValueError, match="is not a time ago"):
        fs.at("-1")
    with pytest.raises(FileNotFoundError, match="history"):
        fs.at("yesterday")
    assert repr(fs) == f"WeftFileSystem({str(volume)!r})"
    fs.mkdir("/d")
    fs.touch("/d")
    fs.mv(Path("/f"), Path("/d"))
    assert fs.cat("/d/f") == b"x"


def test_what_is_not_there_or_no_volume_is_told(tmp_path: Path) -> None:
    with pytest.raises(WeftError, match="there is no volume"):
        WeftFileSystem(tmp_path / "none.weft", skip_instance_cache=True).find("/")
    with pytest.raises(ValueError, match="name a volume"):
        fsspec.filesystem("weft")


def test_a_url_names_the_volume_and_the_path(volume: Path) -> None:
    named = str(volume)
    for url, split in [
        (f"weft://{named}/a/b", (named, None, "/a/b")),
        (f"weft://{named}", (named, None, "/")),
        ("weft://photos/2026/x", ("photos", None, "/2026/x")),
        ("weft://photos@yesterday/x", ("photos", "yesterday", "/x")),
        ("weft:photos@@12/x", ("photos", "@12", "/x")),
        ("weft://postgres%3A%2F%2Fme%40host%2Ffiles/x", ("postgres://me@host/files", None, "/x")),
        ("/a//b/./", (None, None, "/a/b")),
        ("a", (None, None, "/a")),
    ]:
        assert volumes.split(url) == split, url
        place = volumes.split(url)
        assert volumes.split(volumes.marked(place)) == place
    for wrong in ("weft://postgres://host/files", "weft:///none/x"):
        with pytest.raises((ValueError, FileNotFoundError)):
            volumes.split(wrong)
    fs = WeftFileSystem(volume)
    assert fs.unstrip_protocol("/a/b") == f"weft://{named}/a/b"
    place = volumes.Place("postgres://host/files", None, "/x")
    assert volumes.url(place) == "weft://postgres%3A%2F%2Fhost%2Ffiles/x"


def test_urls_of_two_volumes_are_never_mixed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    one, two = [tmp_path / name / "v.weft" for name in ("one", "two")]
    for path in (one, two):
        path.parent.mkdir()
        weft("init", path)
        fsspec.filesystem("weft", volume=path).pipe("/d/f", str(path).encode())
    with pytest.raises(ValueError, match="two"):
        with fsspec.open_files([f"weft://{one}/d/f", f"weft://{two}/d/f"], "wb")[1] as file:
            file.write(b"x")
    for path in (one, two):
        with fsspec.open(f"simplecache::weft://{path}/d/f", simplecache={"cache_storage": str(tmp_path / "c")}) as file:
            assert file.read() == str(path).encode()
        assert [file.full_name for file in fsspec.open_files(f"weft://{path}/d/*")] == [f"weft://{path}/d/f"]
        assert dict(fsspec.get_mapper(f"weft://{path}/d")) == {"f": str(path).encode()}
    # A relative name stays what it was.
    monkeypatch.chdir(one.parent)
    fs = fsspec.filesystem("weft", volume="v.weft")
    pickled = pickle.dumps(fs)
    monkeypatch.chdir(two.parent)
    assert fsspec.filesystem("weft", volume="v.weft").cat("/d/f") == str(two).encode()
    assert fs.cat("/d/f") == pickle.loads(pickled).cat("/d/f") == str(one).encode()
    for path in (one, two):
        fsspec.filesystem("weft", volume=path).close()


def test_files_that_are_open_are_written_at_the_end(volume: Path) -> None:
    fs = WeftFileSystem(volume, skip_instance_cache=True)
    fs.touch("/started")
    script = (
        "import fsspec, sys; fs = fsspec.filesystem('weft', volume=sys.argv[1]);"
        "text = fs.open('/text', 'w'); text.write('text');"
        "data = fs.open('/data', 'wb'); data.write(b'data');"
        "other = fsspec.open('weft://' + sys.argv[1] + '/other', 'w').open(); other.write('other')"
    )
    done = subprocess.run([sys.executable, "-c", script, str(volume)], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    assert fs.cat(["/text", "/data", "/other"]) == {"/text": b"text", "/data": b"data", "/other": b"other"}
    file = fs.open("/f", "w")
    file.write("one ")
    fs.close()
    file.write("two")
    file.close()
    assert fs.cat("/f") == b"one two"
    fs.close()


def _started(volume: Path, number: int) -> None:
    fs = WeftFileSystem(volume)
    fs.touch(f"/{number}")
    fs.close()


def test_processes_that_start_at_once_share_a_helper(volume: Path) -> None:
    workers = [multiprocessing.get_context("spawn").Process(target=_started, args=(volume, number)) for number in range(6)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    assert [worker.exitcode for worker in workers] == [0] * 6
    fs = WeftFileSystem(volume)
    assert fs.ls("/", detail=False) == [f"/{number}" for number in range(6)]
    fs.close()


def test_a_reader_sees_what_is_appended(fs: WeftFileSystem) -> None:
    fs.pipe("/log", b"one\n")
    with fs.open("/log") as file:
        assert list(file) == [b"one\n"] and file.read() == b""
        with fs.open("/log", "ab") as more:
            more.write(b"two\nthree")
        assert list(file) == [b"two\n", b"three"]


def test_lines_are_those_of_the_content(fs: WeftFileSystem) -> None:
    content = b"".join(b"x" * (number * 7919 % 300_000) + b"\n" for number in range(20)) + b"end"
    fs.pipe("/f", content)
    with fs.open("/f") as file:
        assert b"".join(file) == content
    with fs.open("/f", block_size=1000) as file:
        assert file.readlines() == content.splitlines(keepends=True)
        assert file.seek(1) == 1
        assert (file.readline(10), file.tell()) == (content[1:11], 11)


def test_walks_go_into_no_directory_twice(fs: WeftFileSystem) -> None:
    fs.pipe({"/d/f": b"x", "/d/e/g": b"y"})
    fs.symlink("..", "/d/e/up")
    assert fs.find("/") == ["/d/e/g", "/d/e/up", "/d/f"]
    assert fs.isdir("/d/e/up") and fs.cat("/d/e/up/f") == b"x"
