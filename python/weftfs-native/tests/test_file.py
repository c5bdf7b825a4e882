"""Files, in a mounted volume and elsewhere."""

import ctypes
import errno
import gc
import os
import random
import signal
import socket
import threading
from collections.abc import Callable
from pathlib import Path

import numpy
import pytest
import weftfs_native
from conftest import Volume

CONTENT = random.Random(1).randbytes(3_000_001)


@pytest.fixture
def path(place: Path) -> Path:
    path = place / "file"
    path.write_bytes(CONTENT)
    return path


@pytest.fixture(params=["mounted", "plain"])
def either(request: pytest.FixtureRequest, place: Path, tmp_path: Path) -> Path:
    path = (place if request.param == "mounted" else tmp_path) / "file"
    path.write_bytes(CONTENT)
    return path


def address(block: weftfs_native.Block) -> int:
    return int(numpy.frombuffer(memoryview(block), "u1").ctypes.data)


def test_a_file_of_a_volume_is_read_in_place_and_others_are_not(path: Path, tmp_path: Path) -> None:
    (tmp_path / "plain").write_bytes(CONTENT)
    with weftfs_native.open(path) as file, weftfs_native.open(tmp_path / "plain") as plain:
        assert file.in_place and not plain.in_place
        assert bytes(file.read()) == bytes(plain.read()) == CONTENT


def test_bytes_that_two_read_are_in_memory_once(volume: Volume) -> None:
    path = volume.mount / "file"
    path.write_bytes(CONTENT)
    # What was just written is copied for each reader.
    volume.mount_again()
    with weftfs_native.open(path) as one, weftfs_native.open(path) as other:
        assert [address(block) for block in one.read().blocks()] == [address(block) for block in other.read().blocks()]


def test_any_part_is_what_python_reads_there(either: Path) -> None:
    places = random.Random(2)
    with weftfs_native.open(either) as file:
        for _ in range(100):
            offset = places.randrange(len(CONTENT) + 10)
            length = places.choice([0, 1, 4096, places.randrange(len(CONTENT))])
            expected = CONTENT[offset : offset + length]
            assert bytes(file.read(offset, length)) == expected
            assert b"".join(file.blocks(offset, length)) == expected
        for everything in [None, -1]:
            assert bytes(file.read(17, everything)) == CONTENT[17:]
            assert b"".join(file.blocks(17, everything)) == CONTENT[17:]


def test_offsets_and_lengths_have_no_bounds_but_those_of_the_file(either: Path) -> None:
    with weftfs_native.open(either) as file:
        for length in [len(CONTENT), (1 << 63) - 1, 1 << 63, 1 << 100]:
            assert bytes(file.read(17, length)) == CONTENT[17:]
            assert b"".join(file.blocks(17, length)) == CONTENT[17:]
        for offset in [len(CONTENT), 1 << 62, (1 << 63) - 1, 1 << 63, 1 << 64, 1 << 100]:
            for rest in [None, -1, 0, 1, 1 << 62, 1 << 100]:
                assert len(file.read(offset, rest)) == 0
                assert list(file.blocks(offset, rest)) == []
        reads: list[Callable[[int, int], object]] = [file.read, file.blocks]
        for read in reads:
            for negative in [-1, -(1 << 100)]:
                with pytest.raises(ValueError, match="offset must not be negative"):
                    read(negative, 1)
            for negative in [-2, -(1 << 63), -(1 << 100)]:
                with pytest.raises(ValueError, match="length must not be negative; None or -1 reads to the end"):
                    read(0, negative)
            with pytest.raises(TypeError, match="offset"):
                read(0.5, 1)  # type: ignore[arg-type]
            with pytest.raises(TypeError, match="length"):
                read(0, "1")  # type: ignore[arg-type]
        assert bytes(file.read(*numpy.array([17, 3]))) == CONTENT[17:20]


def test_blocks_hold_whole_items(place: Path) -> None:
    path = place / "file"
    # Pieces that begin and end anywhere, and a hole.
    with open(path, "wb", buffering=0) as file:
        for at in range(0, 2_000_000, 99_991):
            file.write(CONTENT[at : at + 99_991])
        file.seek(100_003, os.SEEK_CUR)
        file.write(b"end")
    content = path.read_bytes()
    with weftfs_native.open(path) as native:
        for itemsize in [1, 3, 8, 4096, 100_000, 1 << 20]:
            blocks = list(native.blocks(5, itemsize=itemsize))
            assert b"".join(blocks) == content[5:]
            assert all(len(block) % itemsize == 0 for block in blocks[:-1])
        for itemsize in [0, -1, 1 << 30, 1 << 100]:
            with pytest.raises(ValueError, match="itemsize"):
                native.blocks(itemsize=itemsize)


def test_views_are_read_only_and_outlive_file_block_and_name(either: Path) -> None:
    with weftfs_native.open(either) as file:
        block = file.read().contiguous() if not file.in_place else file.read().blocks()[0]
    either.unlink()
    view, array = memoryview(block), numpy.frombuffer(memoryview(block), "u1")
    assert view.readonly and view.contiguous and view.format == "B" and view.nbytes == len(block)
    assert not array.flags.writeable and array.ctypes.data == address(block)
    with pytest.raises(TypeError):
        view[0] = 1
    with pytest.raises(ValueError):
        array.flags.writeable = True
    with pytest.raises(TypeError, match="not writable"):
        (ctypes.c_char * len(block)).from_buffer(block)
    length = len(block)
    del block
    gc.collect()
    assert bytes(view) == array.tobytes() == CONTENT[:length]


def test_views_outlive_the_daemon(volume: Volume) -> None:
    (volume.mount / "file").write_bytes(CONTENT)
    file = weftfs_native.open(volume.mount / "file")
    assert file.in_place
    block, rest = file.read().blocks()[0], file.blocks(1 << 20)
    view = memoryview(block)
    volume.kill()
    assert bytes(view) == CONTENT[: len(view)]
    with pytest.raises(OSError) as raised:
        file.read()
    assert raised.value.errno in (errno.ENOTCONN, errno.ECONNABORTED, errno.EIO)
    with pytest.raises(OSError):
        list(rest)
    file.close()
    assert bytes(view) == CONTENT[: len(view)]


def test_views_outlive_the_mount(volume: Volume) -> None:
    (volume.mount / "file").write_bytes(CONTENT)
    with weftfs_native.open(volume.mount / "file") as file:
        rope = file.read()
    volume.run("umount", volume.mount)
    assert bytes(rope) == CONTENT


def test_what_was_read_does_not_change_when_the_file_does(path: Path) -> None:
    with weftfs_native.open(path) as file:
        rope = file.read()
        with open(path, "r+b") as writer:
            writer.write(bytes(len(CONTENT)))
        os.truncate(path, 100)
        assert bytes(rope) == CONTENT
        assert file.size == 100 and bytes(file.read()) == bytes(100)


def test_a_program_goes_on_when_the_shared_memory_is_used_up(volume: Volume, tmp_path: Path) -> None:
    mount = tmp_path / "small"
    mount.mkdir()
    volume.run("init", tmp_path / "small.weft")
    volume.run("mount", tmp_path / "small.weft", mount, "--shared-memory", "4M")
    try:
        content = CONTENT * 8
        (mount / "file").write_bytes(content)
        with weftfs_native.open(mount / "file") as file:
            assert bytes(file.read()) == content
            assert b"".join(file.blocks()) == content
    finally:
        volume.run("umount", mount)


def test_empty_and_short_files_and_files_without_a_size(place: Path) -> None:
    (place / "empty").touch()
    with weftfs_native.open(place / "empty") as file:
        assert file.size == 0 and len(file.read()) == 0 and list(file.blocks()) == []
        assert len(file.read().contiguous()) == 0
    with weftfs_native.open("/proc/self/status") as file:
        assert b"VmRSS" in bytes(file.read())


def test_paths_are_text_bytes_or_paths(path: Path) -> None:
    names: list[str | bytes | Path] = [str(path), bytes(path), path]
    for name in names:
        with weftfs_native.open(name) as file:
            assert file.name == str(path)
    with pytest.raises(TypeError):
        weftfs_native.open(3)  # type: ignore[arg-type]
    odd = os.fsdecode(bytes(path.parent) + b"/\xff")
    Path(odd).write_bytes(b"odd")
    with weftfs_native.open(odd) as file:
        assert bytes(file.read()) == b"odd" and file.name == odd


def test_errors_have_a_number_and_a_name(place: Path) -> None:
    with pytest.raises(FileNotFoundError) as raised:
        weftfs_native.open(place / "nothing")
    assert raised.value.errno == errno.ENOENT
    assert raised.value.filename == str(place / "nothing")
    assert str(raised.value) == f"[Errno 2] No such file or directory: '{place}/nothing'"
    with pytest.raises(NotADirectoryError):
        (place / "file").write_bytes(b"x")
        weftfs_native.open(place / "file" / "below")
    with pytest.raises(ValueError, match="embedded null byte"):
        weftfs_native.open("a\0b")


def test_only_regular_files_are_opened_and_others_are_refused_at_once(place: Path, tmp_path: Path) -> None:
    for directory in [place, tmp_path]:
        with pytest.raises(IsADirectoryError) as refused:
            weftfs_native.open(directory)
        assert refused.value.errno == errno.EISDIR and refused.value.filename == str(directory)
        assert str(refused.value) == f"[Errno 21] Is a directory: '{directory}'"
        # No process writes to it: Python's open() would wait.
        os.mkfifo(directory / "fifo")
        (directory / "link").symlink_to("fifo")
    with socket.socket(socket.AF_UNIX) as listener:
        address = os.path.relpath(tmp_path / "socket")
        listener.bind(address if len(address) < 100 else f"/proc/self/fd/{os.open(tmp_path, os.O_PATH)}/socket")
        others = [(directory / name, "FIFO") for directory in [place, tmp_path] for name in ["fifo", "link"]]
        others += [(tmp_path / "socket", "socket"), (Path("/dev/zero"), "device")]
        for path, kind in others:
            with pytest.raises(OSError) as odd:
                weftfs_native.open(path)
            assert odd.value.errno == errno.EINVAL and odd.value.filename == str(path)
            assert odd.value.strerror == f"not a regular file but a {kind}"


def test_a_closed_file_says_so(path: Path) -> None:
    file = weftfs_native.open(path)
    blocks = file.blocks()
    file.close()
    file.close()
    assert file.closed and "closed" in repr(file)
    uses: list[Callable[[], object]] = [file.read, file.blocks, file.fileno, file.__enter__]
    uses += [lambda: file.size, lambda: file.in_place]
    for use in uses:
        with pytest.raises(ValueError, match="I/O operation on closed file"):
            use()
    # What began before goes on, as a view would.
    assert b"".join(blocks) == CONTENT


def test_many_threads_read_one_file(path: Path) -> None:
    wrong: list[int] = []
    with weftfs_native.open(path) as file:

        def read(offset: int) -> None:
            for _ in range(20):
                if bytes(file.read(offset, 100_000)) != CONTENT[offset : offset + 100_000]:
                    wrong.append(offset)

        threads = [threading.Thread(target=read, args=(at * 100_000,)) for at in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert wrong == []


def test_a_forked_child_reads_on(path: Path) -> None:
    with weftfs_native.open(path) as file:
        rope = file.read(0, 1 << 20)
        child = os.fork()
        if child == 0:
            right = bytes(rope) == CONTENT[: 1 << 20] and bytes(file.read()) == CONTENT
            del rope
            os._exit(0 if right else 1)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
        assert bytes(rope) == CONTENT[: 1 << 20] and bytes(file.read()) == CONTENT


def test_a_child_forked_while_a_thread_reads_does_not_wait_for_it(path: Path) -> None:
    (path.parent / "other").write_bytes(CONTENT)
    with weftfs_native.open(path) as file:
        done = threading.Event()

        def read() -> None:
            while not done.is_set():
                file.read(0, 4096)
                weftfs_native.open(path.parent / "other").read(0, 4096)

        threads = [threading.Thread(target=read) for _ in range(2)]
        for thread in threads:
            thread.start()
        try:
            for _ in range(50):
                child = os.fork()
                if child == 0:
                    # The default action, which ends a child that waits for a lock.
                    signal.alarm(20)
                    right = bytes(file.read(0, 4096)) == CONTENT[:4096]
                    with weftfs_native.open(path.parent / "other") as other:
                        right &= bytes(other.read(0, 4096)) == CONTENT[:4096]
                    os._exit(0 if right else 1)
                assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
        finally:
            done.set()
            for thread in threads:
                thread.join()
