"""Channels, within a process and between processes."""

import errno
import multiprocessing
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from multiprocessing.context import BaseContext
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING

import numpy
import pytest
import weftfs_native
from typing_extensions import Buffer
from weftfs_native import Receiver, Rope, Sender, channel

if TYPE_CHECKING:
    from typing_extensions import Buffer

MIB = 1 << 20


def test_ropes_arrive_as_they_were_sent_and_then_the_end() -> None:
    sender, receiver = channel()
    sent: list["Rope | Buffer"] = [b"", b"one", bytes(100_000), Rope.join([b"a", b"b"]), bytearray(b"c"), Rope(b"d").blocks()[0]]
    for data in sent:
        sender.send(data)
    sender.finish()
    assert [bytes(rope) for rope in receiver] == [bytes(Rope(data)) for data in sent]
    assert receiver.recv() is None and receiver.recv() is None


def _produce(sender: Sender, receiver: Receiver | None = None) -> None:
    if receiver is not None:
        receiver.close()
    with sender:
        for number in range(100):
            sender.send(numpy.full(MIB // 8, number, "u8"))


@pytest.mark.parametrize("method", ["fork", "spawn", "forkserver"])
def test_a_child_of_multiprocessing_sends(method: str) -> None:
    context: BaseContext = multiprocessing.get_context(method)
    sender, receiver = channel()
    arguments = (sender, receiver) if method == "fork" else (sender,)
    child = context.Process(target=_produce, args=arguments)  # type: ignore[attr-defined]
    child.start()
    sender.close()
    sums = [int(numpy.frombuffer(memoryview(rope.contiguous()), "u8").sum()) for rope in receiver]
    child.join()
    assert child.exitcode == 0 and sums == [number * MIB // 8 for number in range(100)]


def test_any_program_may_be_at_the_other_end() -> None:
    sender, receiver = channel()
    program = "import sys, weftfs_native as w\nwith w.Sender(int(sys.argv[1])) as s: s.send(b'hello')"
    with receiver:
        child = subprocess.Popen([sys.executable, "-c", program, str(sender.fileno())], pass_fds=[sender.fileno()])
        sender.close()
        assert [bytes(rope) for rope in receiver] == [b"hello"]
        assert child.wait() == 0


def test_memory_of_a_daemon_goes_on_to_another_process(place: Path) -> None:
    content = os.urandom(MIB)
    (place / "file").write_bytes(content)
    sender, receiver = channel()
    child = os.fork()
    if child == 0:
        receiver.close()
        with weftfs_native.open(place / "file") as file, sender:
            sender.send(file.read())
        os._exit(0)
    sender.close()
    rope = receiver.recv()
    assert rope is not None and receiver.recv() is None
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    (place / "file").unlink()
    assert bytes(rope) == content


def test_an_end_that_dies_is_told_to_the_other() -> None:
    sender, receiver = channel()
    sender.send(b"before")
    del sender
    assert bytes(receiver.recv() or b"") == b"before"
    for _ in range(2):
        with pytest.raises(ConnectionResetError) as reset:
            receiver.recv()
        assert reset.value.errno == errno.ECONNRESET and reset.value.strerror
    sender, receiver = channel()
    sender.send(b"x")
    receiver.recv()
    receiver.close()
    for _ in range(2):
        with pytest.raises(BrokenPipeError) as broken:
            sender.send(b"x")
        assert broken.value.errno == errno.EPIPE
    sender, receiver = channel()
    sender.send(b"x")
    receiver.close()
    with pytest.raises(BrokenPipeError):
        sender.finish()


def test_a_killed_child_is_a_reset() -> None:
    sender, receiver = channel()
    child = os.fork()
    if child == 0:
        sender.send(b"last words")
        os.kill(os.getpid(), signal.SIGKILL)
    sender.close()
    assert bytes(receiver.recv() or b"") == b"last words"
    with pytest.raises(ConnectionResetError):
        receiver.recv()
    os.waitpid(child, 0)


def test_work_that_fails_sends_no_end() -> None:
    sender, receiver = channel()
    with pytest.raises(ZeroDivisionError), sender:
        sender.send(b"half")
        1 / 0
    assert bytes(receiver.recv() or b"") == b"half"
    with pytest.raises(ConnectionResetError):
        receiver.recv()


def test_a_closed_end_says_so() -> None:
    sender, receiver = channel()
    with receiver, sender:
        pass
    assert sender.closed and receiver.closed
    sender.close()
    sender.finish()
    receiver.close()
    uses: list[Callable[[], object]] = [receiver.recv, sender.fileno, receiver.fileno]
    uses += [lambda: sender.send(b"x"), lambda: next(receiver)]
    for use in uses:
        with pytest.raises(ValueError, match="I/O operation on closed channel"):
            use()


def test_what_is_no_end_is_refused() -> None:
    one, other = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    other.send(b"garbage that makes no sense")
    reader, writer = os.pipe()
    with open(os.devnull) as plain:
        for number in [one.fileno(), reader, plain.fileno()]:
            for kind in [Sender, Receiver]:
                with pytest.raises(OSError) as refused:
                    kind(number)
                assert refused.value.errno in (errno.EINVAL, errno.EBADMSG, errno.ENOTSOCK)
                os.fstat(number)
    for number in [-1, 1000, 1 << 40, -(1 << 80)]:
        with pytest.raises(OSError) as bad:
            Sender(number)
        assert bad.value.errno == errno.EBADF
    sender, receiver = channel()
    with pytest.raises(OSError, match="receiving end"):
        Sender(receiver.fileno())
    for descriptor in [reader, writer]:
        os.close(descriptor)
    one.close()
    other.close()


def test_what_is_no_bytes_is_not_sent_and_the_channel_goes_on() -> None:
    sender, receiver = channel()
    for wrong in [None, "text", 1, [b"a"]]:
        with pytest.raises(TypeError):
            sender.send(wrong)  # type: ignore[arg-type]
    sender.send(b"right")
    assert bytes(receiver.recv() or b"") == b"right"


def test_an_end_belongs_to_the_process_that_uses_it_and_a_child_harms_nothing() -> None:
    sender, receiver = channel()
    sender.send(os.urandom(MIB))
    rope = receiver.recv()
    assert rope is not None
    before = bytes(rope)
    child = os.fork()
    if child == 0:
        right = bytes(rope) == before
        for use in [receiver.recv, lambda: sender.send(b"x"), sender.finish]:
            try:
                use()
                right = False
            except OSError as error:
                right &= error.errno == errno.EINVAL and "belongs to process" in str(error)
        sender.close()
        receiver.close()
        # A child that ends as any program ends: all objects are dropped.
        rope = None
        os._exit(0 if right else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    for _ in range(40):
        sender.send(os.urandom(MIB))
        assert receiver.recv() is not None
    assert rope is not None and bytes(rope) == before
    sender.finish()
    assert receiver.recv() is None


def test_a_child_forked_while_a_thread_waits_does_not_wait_for_it() -> None:
    sender, receiver = channel()
    sender.send(b"first")
    assert receiver.recv() is not None
    got: list[Rope | None] = []
    waiting = threading.Thread(target=lambda: got.append(receiver.recv()))
    waiting.start()
    # By then the thread most likely waits in the lock; the child must not mind either way.
    while waiting.native_id is None:
        pass
    child = os.fork()
    if child == 0:
        signal.alarm(30)
        receiver.close()
        try:
            receiver.recv()
        except (OSError, ValueError):
            os._exit(0)
        os._exit(1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    sender.send(b"second")
    waiting.join(60)
    assert [bytes(rope or b"") for rope in got] == [b"second"]


class Waiting:
    """A thread in a call that waits for the other end of a channel."""

    def __init__(self, call: Callable[[], object]) -> None:
        self.error: Exception | None = None
        self.result: object = None
        self.thread = threading.Thread(target=self._run, args=(call,), daemon=True)
        self.thread.start()
        # Enough for it to wait, if not: the tests hold either way.
        time.sleep(0.2)

    def _run(self, call: Callable[[], object]) -> None:
        try:
            self.result = call()
        except Exception as error:
            self.error = error

    def join(self) -> None:
        self.thread.join(60)
        assert not self.thread.is_alive()


def _waits_for(child: int) -> int:
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


@pytest.mark.parametrize("kind", ["receiver", "sender"])
def test_a_child_forked_while_the_first_use_waits_is_refused(kind: str) -> None:
    sender, receiver = channel()
    end = sender if kind == "sender" else receiver
    # More than may be under way.
    use = (lambda: sender.send(bytes(8 * MIB))) if kind == "sender" else receiver.recv
    waiting = Waiting(use)
    child = os.fork()
    if child == 0:
        # The default action, which ends a child that waits for a lock.
        signal.alarm(20)
        right = True
        for refused in [use, end.__reduce__]:
            try:
                refused()
                right = False
            except OSError as error:
                right &= error.errno == errno.EINVAL and f"belongs to process {os.getppid()}," in str(error)
        end.close()
        os._exit(0 if right and end.closed else 1)
    assert _waits_for(child) == 0
    # The channel goes on in the parent.
    if kind == "sender":
        assert len(receiver.recv() or b"") == 8 * MIB
    else:
        sender.send(b"late")
    waiting.join()
    assert waiting.error is None


def _fails_at_once(receiver: Receiver) -> None:
    signal.alarm(20)
    with pytest.raises(OSError, match="belongs to process"):
        receiver.recv()


def test_a_process_of_multiprocessing_is_refused_an_end_that_a_thread_waits_at() -> None:
    sender, receiver = channel()
    waiting = Waiting(receiver.recv)
    child = multiprocessing.get_context("fork").Process(target=_fails_at_once, args=(receiver,))
    child.start()
    child.join()
    assert child.exitcode == 0
    sender.send(b"late")
    waiting.join()
    assert waiting.error is None


def test_an_end_that_a_child_used_first_is_refused_to_the_parent_and_closed() -> None:
    sender, receiver = channel()
    child = os.fork()
    if child == 0:
        sender.send(b"from the child")
        os._exit(0)
    assert _waits_for(child) == 0
    with pytest.raises(OSError, match="used as one already") as refused:
        sender.send(b"x")
    assert refused.value.errno == errno.EINVAL and sender.closed
    assert bytes(receiver.recv() or b"") == b"from the child"


def test_a_child_with_a_channel_of_its_own_takes_nothing_from_that_of_its_parent() -> None:
    sender, receiver = channel()
    for _ in range(300):
        sender.send(bytes(MIB))
        rope = receiver.recv()
        # Given back, but not taken back yet.
        del rope
        child = os.fork()
        if child == 0:
            signal.alarm(20)
            ours, theirs = channel()
            ours.send(b"x")
            os._exit(0 if bytes(theirs.recv() or b"") == b"x" else 1)
        assert _waits_for(child) == 0
    sender.finish()
    assert receiver.recv() is None


def test_a_rope_of_its_parent_that_a_child_sends_on_stays_as_it_was() -> None:
    (sender, receiver), (forward, forwarded) = channel(), channel()
    content = os.urandom(MIB)
    sender.send(content)
    rope = receiver.recv()
    child = os.fork()
    if child == 0:
        assert rope is not None
        with forward:
            forward.send(rope)
        os._exit(0)
    forward.close()
    assert _waits_for(child) == 0
    got = forwarded.recv()
    # The first sender may use the memory again.
    del rope
    for _ in range(60):
        sender.send(bytes(MIB))
        receiver.recv()
    assert got is not None and bytes(got) == content


CLOSED_MEANWHILE = "closed channel: it was closed while the call waited"


def test_closing_a_receiver_ends_the_wait_of_another_thread() -> None:
    for used in [False, True]:
        sender, receiver = channel()
        if used:
            sender.send(b"first")
            assert receiver.recv() is not None
        waiting, next_in_line = Waiting(receiver.recv), Waiting(receiver.recv)
        began = time.monotonic()
        receiver.close()
        assert time.monotonic() - began < 5 and receiver.closed
        waiting.join()
        next_in_line.join()
        errors = [waiting.error, next_in_line.error]
        assert all(isinstance(error, ValueError) for error in errors)
        assert any(CLOSED_MEANWHILE in str(error) for error in errors)
        with pytest.raises(BrokenPipeError):
            for _ in range(100):
                sender.send(bytes(MIB))


def test_closing_a_sender_ends_the_wait_of_another_thread() -> None:
    sender, receiver = channel()
    sender.send(b"before")
    waiting = Waiting(lambda: sender.send(bytes(8 * MIB)))
    sender.close()
    waiting.join()
    assert isinstance(waiting.error, ValueError) and CLOSED_MEANWHILE in str(waiting.error)
    assert bytes(receiver.recv() or b"") == b"before"
    with pytest.raises(ConnectionResetError):
        while receiver.recv() is not None:
            pass


def test_many_threads_close_an_end_that_others_use() -> None:
    for _ in range(50):
        sender, receiver = channel()
        sending = threading.Thread(target=_send_until_refused, args=(sender,))
        receiving = threading.Thread(target=_receive_until_refused, args=(receiver,))
        ends: list[Sender | Receiver] = [sender, receiver, sender, receiver]
        closing = [threading.Thread(target=end.close) for end in ends]
        for thread in [sending, receiving, *closing]:
            thread.start()
        for thread in [sending, receiving, *closing]:
            thread.join(60)
            assert not thread.is_alive()


def _send_until_refused(sender: Sender) -> None:
    try:
        while True:
            sender.send(bytes(MIB))
    except (ValueError, BrokenPipeError):
        pass


def _receive_until_refused(receiver: Receiver) -> None:
    try:
        while True:
            receiver.recv()
    except (ValueError, ConnectionResetError):
        pass


def test_a_sender_that_is_closed_is_gone_even_if_a_child_has_a_copy() -> None:
    sender, receiver = channel()
    sender.send(b"before")
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(writer)
        os.read(reader, 1)
        os._exit(0)
    sender.close()
    assert bytes(receiver.recv() or b"") == b"before"
    waiting = Waiting(receiver.recv)
    waiting.thread.join(20)
    error = waiting.error
    os.close(writer)
    os.close(reader)
    assert _waits_for(child) == 0
    assert isinstance(error, ConnectionResetError)


@contextmanager
def _alarms(handler: Callable[[int, FrameType | None], object]) -> Iterator[None]:
    """Has `handler` called again and again, should the first signal come before the wait."""
    before = signal.signal(signal.SIGALRM, handler)
    signal.setitimer(signal.ITIMER_REAL, 0.05, 0.05)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def test_the_handler_of_a_signal_may_close_the_end_that_is_waited_at() -> None:
    sender, receiver = channel()
    with _alarms(lambda number, frame: receiver.close()), pytest.raises(ValueError, match="closed channel"):
        receiver.recv()
    assert not sender.closed


def test_a_use_by_the_handler_of_a_signal_is_refused_while_its_thread_waits() -> None:
    sender, receiver = channel()
    with _alarms(lambda number, frame: receiver.recv()), pytest.raises(RuntimeError, match="reentrant"):
        receiver.recv()
    sender.send(b"after")
    assert bytes(receiver.recv() or b"") == b"after"


def test_a_signal_ends_the_wait_for_another_thread() -> None:
    sender, receiver = channel()
    waiting = Waiting(receiver.recv)
    with _alarms(_stop), pytest.raises(Stop):
        receiver.recv()
    sender.send(b"after")
    waiting.join()
    assert waiting.error is None


def test_a_sender_whose_receiver_keeps_everything_is_told() -> None:
    sender, receiver = channel()
    kept: list[Rope | None] = []
    receiving = threading.Thread(target=lambda: kept.extend(iter(receiver.recv, None)))
    receiving.start()
    with pytest.raises(OSError) as full:
        while True:
            sender.send(bytes(MIB))
    assert full.value.errno == errno.ENOBUFS
    assert sum(len(rope) for rope in kept if rope is not None) >= 200 * MIB
    kept.clear()
    sender.send(b"room again")
    sender.finish()
    receiving.join()
    assert [bytes(rope) for rope in kept if rope is not None][-1] == b"room again"


def test_other_threads_run_while_one_waits() -> None:
    sender, receiver = channel()
    got: list[Rope | None] = []
    waiting = threading.Thread(target=lambda: got.append(receiver.recv()))
    waiting.start()
    sender.send(b"at last")
    waiting.join(60)
    assert [bytes(rope or b"") for rope in got] == [b"at last"]


class Stop(Exception):
    """Raised by the handler of a signal."""


def _stop(number: int, frame: FrameType | None) -> None:
    raise Stop


def test_a_signal_ends_a_wait_and_nothing_is_lost() -> None:
    sender, receiver = channel()
    before = signal.signal(signal.SIGALRM, _stop)
    try:
        # Again and again, should the first come before the wait.
        signal.setitimer(signal.ITIMER_REAL, 0.05, 0.05)
        with pytest.raises(Stop):
            receiver.recv()
        signal.setitimer(signal.ITIMER_REAL, 0)
        sender.send(b"after")
        assert bytes(receiver.recv() or b"") == b"after"
        signal.setitimer(signal.ITIMER_REAL, 0.05, 0.05)
        with pytest.raises(Stop):
            while True:
                sender.send(bytes(MIB))
        signal.setitimer(signal.ITIMER_REAL, 0)
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def test_a_signal_whose_handler_returns_ends_no_wait() -> None:
    sender, receiver = channel()
    handled = threading.Event()
    before = signal.signal(signal.SIGALRM, lambda number, frame: handled.set())
    try:
        signal.setitimer(signal.ITIMER_REAL, 0.05)

        def send_later() -> None:
            handled.wait(60)
            sender.send(b"later")

        later = threading.Thread(target=send_later)
        later.start()
        assert bytes(receiver.recv() or b"") == b"later" and handled.is_set()
        later.join()
    finally:
        signal.signal(signal.SIGALRM, before)


def test_used_ends_are_not_passed_on() -> None:
    sender, receiver = channel()
    with pytest.raises(RuntimeError, match="inheritance"):
        sender.__reduce__()
    sender.send(b"x")
    with pytest.raises(ValueError, match="in use"):
        sender.__reduce__()
    receiver.close()
