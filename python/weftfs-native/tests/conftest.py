"""A mounted volume for tests: at WEFT_MOUNT, or made by the program WEFT_PROGRAM; else skipped."""

import json
import os
import select
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest


class Volume:
    """A volume of a test's own."""

    def __init__(self, program: str, place: Path) -> None:
        self.program, self.mount = program, place / "mnt"
        self.mount.mkdir(parents=True)
        self.volume = place / "volume.weft"
        self.run("init", self.volume)
        self.run("mount", self.volume, self.mount)

    def run(self, *arguments: str | Path) -> str:
        return subprocess.run([self.program, *arguments], check=True, capture_output=True, text=True).stdout

    def mount_again(self) -> None:
        self.run("umount", self.mount)
        self.run("mount", self.volume, self.mount)

    def kill(self) -> None:
        """Kill the daemon, and wait until it is gone."""
        daemon = json.loads(self.run("stats", "--json", self.mount))["pid"]
        handle = os.pidfd_open(daemon)
        signal.pidfd_send_signal(handle, signal.SIGKILL)
        select.select([handle], [], [], 60)
        os.close(handle)

    def unmount(self) -> None:
        subprocess.run([self.program, "umount", self.mount], capture_output=True)
        # The mount of a daemon that was killed.
        subprocess.run(["umount", "-l", self.mount], capture_output=True)


def _program() -> str:
    program = os.environ.get("WEFT_PROGRAM")
    if not program:
        pytest.skip("WEFT_PROGRAM names no program")
    return os.path.abspath(program)


@pytest.fixture
def volume(tmp_path: Path) -> Iterator[Volume]:
    volume = Volume(_program(), tmp_path / "private")
    yield volume
    volume.unmount()


@pytest.fixture(scope="session")
def mount(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    if given := os.environ.get("WEFT_MOUNT"):
        yield Path(given)
        return
    volume = Volume(_program(), tmp_path_factory.mktemp("volume"))
    yield volume.mount
    volume.unmount()


@pytest.fixture
def place(mount: Path, request: pytest.FixtureRequest) -> Path:
    """A directory of the test's own in the mounted volume."""
    place = mount / f"{request.node.name}-{os.getpid()}".replace("/", "_")
    place.mkdir()
    return place
