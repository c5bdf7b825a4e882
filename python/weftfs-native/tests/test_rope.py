"""Ropes and blocks."""

import io
import random
from pathlib import Path

import numpy
import pytest
import weftfs_native
from weftfs_native import Rope


def test_a_rope_is_cut_and_indexed_like_bytes() -> None:
    values = random.Random(3)
    parts = [values.randbytes(values.randrange(20)) for _ in range(10)]
    rope, content = Rope.join(parts), b"".join(parts)
    assert len(rope) == len(content) and bytes(rope) == content
    for _ in range(200):
        start, stop = (values.choice([None, values.randrange(-210, 210)]) for _ in range(2))
        assert bytes(rope[start:stop]) == content[start:stop]
    for at in range(-len(content), len(content)):
        assert rope[at] == content[at]
    for at in [len(content), -len(content) - 1, 1 << 80, -(1 << 80)]:
        with pytest.raises(IndexError, match="out of range"):
            rope[at]
    with pytest.raises(ValueError, match="step 1"):
        rope[::2]
    with pytest.raises(TypeError):
        rope["a"]  # type: ignore[call-overload]


def test_ropes_are_joined_without_a_copy() -> None:
    first, second = Rope(b"first"), Rope(bytearray(b"second"))
    both = first + second
    assert bytes(both) == b"firstsecond" and len(both.blocks()) == 2
    ours = numpy.frombuffer(memoryview(both.blocks()[0]), "u1").ctypes.data
    assert ours == numpy.frombuffer(memoryview(first.blocks()[0]), "u1").ctypes.data
    assert bytes(both + b"!") == b"firstsecond!" and bytes(b"!" + both) == b"!firstsecond"
    assert bytes(Rope.join([first, b"-", second.blocks()[0]])) == b"first-second"
    assert bytes(sum([first, second], Rope())) == b"firstsecond"
    with pytest.raises(TypeError):
        first + 1  # type: ignore[operator]
    with pytest.raises(TypeError):
        Rope("text")  # type: ignore[arg-type]


def test_ropes_compare_by_their_bytes() -> None:
    assert Rope(b"ab") + b"c" == Rope(b"abc") and Rope(b"ab") != Rope(b"abc")
    assert Rope(b"abc") != b"abc"
    assert not Rope() and Rope(b"a")
    with pytest.raises(TypeError):
        hash(Rope(b"a"))


def test_arrays_become_ropes_and_come_back() -> None:
    numbers = numpy.arange(1000, dtype="f8")
    assert (numpy.frombuffer(memoryview(Rope(numbers).contiguous()), "f8") == numbers).all()
    with pytest.raises(BufferError, match="contiguous"):
        Rope(numbers[::2])


def test_a_copy_of_bytes_stays_when_they_change() -> None:
    content = bytearray(b"before")
    rope = Rope(content)
    content[:] = b"after!"
    assert bytes(rope) == b"before"


def test_a_rope_is_written_to_any_file(tmp_path: Path) -> None:
    rope = Rope.join([b"one", b"two" * 100_000, b"three"])
    with open(tmp_path / "buffered", "wb") as buffered, open(tmp_path / "raw", "wb", buffering=0) as raw:
        assert rope.write_to(buffered) == rope.write_to(raw) == len(rope)
    assert (tmp_path / "buffered").read_bytes() == (tmp_path / "raw").read_bytes() == bytes(rope)
    memory = io.BytesIO()
    memory.writelines(rope.blocks())
    assert memory.getvalue() == bytes(rope)


def test_a_file_that_takes_less_is_given_the_rest_and_nonsense_is_refused() -> None:
    class Odd:
        def __init__(self, taken: int | None) -> None:
            self.taken, self.got = taken, b""

        def write(self, data: weftfs_native.Block, /) -> int | None:
            self.got += bytes(data)[: self.taken]
            return self.taken

    slow = Odd(1)
    assert Rope(b"slowly").write_to(slow) == 6 and slow.got == b"slowly"
    for taken in [0, 7]:
        with pytest.raises(ValueError, match="write"):
            Rope(b"slowly").write_to(Odd(taken))
    with pytest.raises(BlockingIOError):
        Rope(b"slowly").write_to(Odd(None))
    with pytest.raises(AttributeError):
        Rope(b"x").write_to(object())  # type: ignore[arg-type]


def test_classes_are_made_by_their_makers_alone() -> None:
    for kind in [weftfs_native.Block, weftfs_native.Blocks]:
        with pytest.raises(TypeError):
            kind()
    assert repr(Rope(b"abc")) == "<weftfs_native.Rope of 3 bytes in 1 block>"
