"""Ends of channels as arguments of processes that multiprocessing spawns."""

from multiprocessing import context, reduction
from typing import Any

from ._native import Receiver, Sender


def reduce(end: Sender | Receiver) -> tuple[Any, ...]:
    """Return what pickle needs. Raise RuntimeError unless a process is being spawned."""
    context.assert_spawning(end)
    return _make, (type(end), reduction.DupFd(end.fileno()))


def _make(kind: type[Sender] | type[Receiver], descriptor: Any) -> Sender | Receiver:
    return kind(descriptor.detach())
