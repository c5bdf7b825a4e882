"""One process reads files, another adds up their bytes, and no byte of them is copied on the way
if they lie in a mounted volume: python examples/python/pipe.py FILE...
"""

import multiprocessing
import sys

import numpy
import weftfs_native


def produce(sender: weftfs_native.Sender, paths: list[str]) -> None:
    """Send each file as a rope: the memory that the daemon shares with this process goes on to the other one."""
    with sender:
        for path in paths:
            try:
                with weftfs_native.open(path) as file:
                    sender.send(file.read())
            except BrokenPipeError:
                sys.exit(1)  # the consumer is gone, so nobody waits for the rest
            except OSError as error:
                sys.exit(f"pipe.py: {path}: {error.strerror}")


def consume(receiver: weftfs_native.Receiver, paths: list[str]) -> None:
    """Receive each file, and print the sum of its bytes."""
    for path, rope in zip(paths, receiver, strict=True):
        # Without memoryview, type checkers know only from Python 3.12 on that a block is a buffer.
        blocks = (numpy.frombuffer(memoryview(block), "u1") for block in rope.blocks())
        print(f"{path}: {len(rope)} bytes, sum {sum(int(block.sum()) for block in blocks)}")


def main(paths: list[str]) -> int:
    if not paths:
        print("usage: pipe.py FILE...", file=sys.stderr)
        return 2
    sender, receiver = weftfs_native.channel()
    # A process made anew, not forked: it gets its end of the channel, and nothing else.
    producer = multiprocessing.get_context("spawn").Process(target=produce, args=(sender, paths))
    producer.start()
    sender.close()  # it is the producer's now
    try:
        with receiver:
            consume(receiver, paths)
    except ConnectionResetError:
        pass  # the producer failed: its message and its exit code say so
    producer.join()
    if producer.exitcode is not None and producer.exitcode < 0:
        print(f"pipe.py: signal {-producer.exitcode} ended the producer", file=sys.stderr)
    return 1 if producer.exitcode else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
