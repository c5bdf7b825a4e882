"""A volume for each test that asks for one."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import fsspec
import pytest

from weftfs import WeftFileSystem
from weftfs.program import program


def weft(*words: str | os.PathLike[str]) -> str:
    """Runs the program, which must succeed."""
    done = subprocess.run([program(), *words], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.fixture(scope="session", autouse=True)
def runtime(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Daemons of these tests have a place of their own for their sockets."""
    if os.geteuid() != 0:
        os.environ["XDG_RUNTIME_DIR"] = str(tmp_path_factory.mktemp("runtime"))
        os.chmod(os.environ["XDG_RUNTIME_DIR"], 0o700)
    yield


@pytest.fixture
def volume(tmp_path: Path) -> Path:
    path = tmp_path / "v.weft"
    weft("init", path)
    return path


@pytest.fixture
def fs(volume: Path) -> Iterator[WeftFileSystem]:
    made = WeftFileSystem(volume, skip_instance_cache=True)
    yield made
    made.close()
    weft("check", volume)


@pytest.fixture
def url(volume: Path) -> Iterator[str]:
    yield f"weft://{volume}"
    fsspec.filesystem("weft", volume=volume).close()
    weft("check", volume)
