"""The programs in examples/python, as a user runs them."""

import importlib.util
import subprocess
import sys
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).parents[3] / "examples/python"
PROGRAMS = ["lines.py", "pipe.py"]


def run(program: str, *arguments: str | Path) -> tuple[int, str, str]:
    command = [sys.executable, EXAMPLES / program, *arguments]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    return done.returncode, done.stdout, done.stderr


@pytest.fixture(params=["mounted", "plain"])
def path(request: pytest.FixtureRequest, place: Path, tmp_path: Path) -> Path:
    path = (place if request.param == "mounted" else tmp_path) / "file"
    path.write_bytes(b"a line\n" * 100_000)
    return path


def test_lines_are_counted_wherever_the_file_lies(path: Path) -> None:
    assert run("lines.py", path) == (0, "100000\n", "")


def test_bytes_are_added_up_wherever_the_files_lie(path: Path) -> None:
    total = sum(b"a line\n") * 100_000
    line = f"{path}: 700000 bytes, sum {total}\n"
    assert run("pipe.py", path, path) == (0, line * 2, "")


@pytest.mark.parametrize("program", PROGRAMS)
def test_a_wrong_call_shows_the_usage(program: str) -> None:
    code, out, error = run(program)
    assert (code, out) == (2, "") and error.startswith(f"usage: {program} FILE") and error.count("\n") == 1


@pytest.mark.parametrize("program", PROGRAMS)
def test_a_file_that_cannot_be_read_is_one_line(program: str, tmp_path: Path) -> None:
    missing, directory = tmp_path / "missing", tmp_path
    assert run(program, missing) == (1, "", f"{program}: {missing}: No such file or directory\n")
    assert run(program, directory) == (1, "", f"{program}: {directory}: Is a directory\n")


def test_files_before_one_that_cannot_be_read_are_added_up(path: Path) -> None:
    missing = path.parent / "missing"
    code, out, error = run("pipe.py", path, missing, path)
    assert code == 1 and out.startswith(f"{path}: 700000 bytes") and out.count("\n") == 1
    assert error == f"pipe.py: {missing}: No such file or directory\n"


@pytest.mark.skipif(importlib.util.find_spec("mypy") is None, reason="mypy is not installed")
def test_types_hold_on_the_oldest_python(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "mypy", "--strict", "--python-version", "3.11"]
    command += [str(EXAMPLES / program) for program in PROGRAMS]
    # In a directory without settings: those of the package are for its own tests.
    checked = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path)
    assert checked.returncode == 0, checked.stdout + checked.stderr
