"""The past of a volume, digests, networks; through a helper and through a mount."""

from __future__ import annotations

import pickle
import subprocess
from collections.abc import Iterator
from pathlib import Path

import fsspec
import pytest

from weftfs import WeftError, WeftFileSystem

from .conftest import weft


@pytest.fixture(params=["helper", "mount"])
def any_fs(request: pytest.FixtureRequest, volume: Path, tmp_path: Path) -> Iterator[WeftFileSystem]:
    mount = tmp_path / "m"
    if request.param == "mount":
        mount.mkdir()
        done = subprocess.run([*_program(), "mount", volume, mount], capture_output=True, text=True, check=False)
        if done.returncode != 0:
            pytest.skip(f"no mounts here: {done.stderr}")
    fs = WeftFileSystem(volume if request.param == "helper" else mount, skip_instance_cache=True)
    yield fs
    fs.close()
    if request.param == "mount":
        weft("umount", mount)
    weft("check", volume)


def _program() -> list[str]:
    from weftfs.program import program

    return [program()]


def test_the_past_stays_as_it_was_and_leads_nowhere_else(any_fs: WeftFileSystem) -> None:
    fs = any_fs
    fs.pipe({"/f": b"then", "/d/g": b"x"})
    fs.commit()
    then = fs.at("now")
    assert repr(then).endswith(f", at='@{then.commit_number}')")
    fs.pipe("/f", b"now")
    fs.commit()
    for path in ("/f", "/../f", "/../../../f", "/d/../../../f"):
        assert then.cat(path) == b"then", path
        for work in (then.touch, then.rm, lambda path: then.pipe(path, b"y"), lambda path: then.chmod(path, 0o777)):
            with pytest.raises(OSError):
                work(path)
    assert fs.cat("/f") == b"now"


def test_a_moment_is_that_for_ever_and_another_one_next_time(any_fs: WeftFileSystem, tmp_path: Path) -> None:
    fs = any_fs
    fs.pipe("/f", b"1")
    first = fs.at("now")
    assert first.cat("/f") == b"1"
    fs.pipe("/f", b"2")
    second = fs.at("now")
    assert (first.cat("/f"), second.cat("/f")) == (b"1", b"2")
    assert pickle.loads(pickle.dumps(first)).cat("/f") == b"1"
    url = first.unstrip_protocol("/f")
    assert fsspec.open(url).open().read() == b"1"
    for number, content in ((first, b"1"), (fs, b"2")):
        cached = f"simplecache::{number.unstrip_protocol('/f')}"
        with fsspec.open(cached, simplecache={"cache_storage": str(tmp_path / "c")}) as file:
            assert file.read() == content
    assert [change["commit"] for change in first.log("/f")] == [first.log("/f")[0]["commit"]]
    assert len(second.log("/f")) > len(first.log("/f"))
    assert first.diff("/", since=f"@{first.commit_number}") == []
    assert [change["path"] for change in second.diff("/", since=f"@{first.commit_number}")] == ["/f"]


def test_views_are_listed_as_what_they_look_like(any_fs: WeftFileSystem, tmp_path: Path) -> None:
    fs = any_fs
    fs.pipe({"/packed/sub/a": b"abc", "/packed/b": b"x"})
    fs.link("/packed/b", "/upper", "upper")
    fs.link("/packed", "/view", "upper", directory=True)
    listed = {entry["name"]: entry for entry in fs.ls("/")}
    assert (listed["/upper"]["type"], listed["/upper"]["size"]) == ("file", 1)
    assert listed["/view"]["type"] == "directory"
    assert fs.find("/view") == ["/view/b", "/view/sub/a"] and fs.cat("/view/sub/a") == b"ABC"
    fs.get("/view/", str(tmp_path / "got") + "/", recursive=True)
    assert (tmp_path / "got/sub/a").read_bytes() == b"ABC"
    fs.mkdir("/above")
    fs.mv("/view", "/above/view")
    fs.rm("/above", recursive=True)
    assert not fs.exists("/above") and fs.cat("/packed/sub/a") == b"abc"


def test_the_past_is_read_compared_and_brought_back(any_fs: WeftFileSystem) -> None:
    fs = any_fs
    fs.pipe({"/d/f": b"first", "/d/gone": b"x"})
    fs.snapshot("monday")
    fs.pipe("/d/f", b"second one")
    fs.rm("/d/gone")
    then = fs.at("monday")
    assert then.cat("/d/f") == b"first" and then.ls("/d", detail=False) == ["/d/f", "/d/gone"]
    assert then.commit_number <= fs.commit()
    with then.open("/d/f") as file:
        assert file.read() == b"first"
    for work in (lambda: then.pipe("/d/f", b""), lambda: then.rm("/d/f"), lambda: then.restore("/d", "monday")):
        with pytest.raises(OSError):
            work()
    assert {entry["path"] for entry in fs.diff("/d", since="monday")} == {"/d/f", "/d/gone"}
    assert then.digest("/d") != fs.digest("/d")
    changes = fs.log("/d/f")
    assert len(changes) >= 2
    assert fs.restore("/d", "monday", dry_run=True)["back"] == 1
    fs.restore("/d", "monday")
    assert fs.cat("/d/f") == b"first" and fs.digest("/d") == then.digest("/d")
    fs.rm("/d/gone")
    fs.undelete("/d/gone")
    assert fs.cat("/d/gone") == b"x"
    assert fs.history()


def test_digests_are_those_of_b3sum(any_fs: WeftFileSystem) -> None:
    any_fs.pipe("/f", b"")
    assert any_fs.digest("/f") == "af1349b9f5f9a1a6a0404dea36dcc9499bcb25c9adc112b7cc9a93cae41f3262"
    proof = any_fs.prove("/f")
    assert any_fs.digest("/") in proof
    with pytest.raises(FileNotFoundError):
        any_fs.digest("/none")


def test_what_was_signed_is_verified(any_fs: WeftFileSystem, tmp_path: Path) -> None:
    any_fs.pipe("/f", b"signed")
    any_fs.commit()
    weft("keygen", "--no-password", tmp_path / "key", tmp_path / "pub")
    any_fs.close()
    weft("sign", "--key", tmp_path / "key", "--output", tmp_path / "signed", any_fs.volume)
    assert any_fs.verify(tmp_path / "signed", tmp_path / "pub")
    any_fs.pipe("/f", b"other")
    assert not any_fs.verify(tmp_path / "signed", tmp_path / "pub")
    with pytest.raises(WeftError):
        any_fs.verify(tmp_path / "none", tmp_path / "pub")


def test_files_go_through_networks(any_fs: WeftFileSystem) -> None:
    any_fs.pipe("/words", b"b\na\nb\n" * 100_000)
    assert any_fs.run("/words", "sort | uniq") == b"a\nb\n"
    assert any_fs.run("/words", "head -n 1") == b"b\n"
    with pytest.raises(WeftError, match="no-such-stage"):
        any_fs.run("/words", "no-such-stage")
    any_fs.link("/words", "/sorted", "sort | uniq")
    assert any_fs.cat("/sorted") == b"a\nb\n"
    any_fs.pipe("/words", b"z\ny\n")
    assert any_fs.cat("/sorted") == b"y\nz\n"


def test_counters_are_told(any_fs: WeftFileSystem) -> None:
    any_fs.pipe("/f", b"x")
    assert any_fs.stats()["volume"] and any_fs.status()["commit"] <= any_fs.commit()
