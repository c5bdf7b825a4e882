"""fsspec's own tests of a file system."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import fsspec.tests.abstract as abstract
import pytest

from weftfs import WeftFileSystem

from .conftest import weft


class Fixtures(abstract.AbstractFixtures):
    @pytest.fixture(scope="class")
    def fs(self, tmp_path_factory: pytest.TempPathFactory) -> Iterator[WeftFileSystem]:
        volume: Path = tmp_path_factory.mktemp("abstract") / "v.weft"
        weft("init", volume)
        made = WeftFileSystem(volume)
        yield made
        made.close()
        weft("check", volume)

    @pytest.fixture
    def fs_path(self) -> str:
        return "/"


class TestCopy(abstract.AbstractCopyTests, Fixtures):
    pass


class TestGet(abstract.AbstractGetTests, Fixtures):
    pass


class TestPut(abstract.AbstractPutTests, Fixtures):
    pass


class TestOpen(abstract.AbstractOpenTests, Fixtures):
    pass


class TestPipe(abstract.AbstractPipeTests, Fixtures):
    pass
