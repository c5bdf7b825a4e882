"""One process reads files, another adds up their bytes, and no byte of them is copied on the way
if they lie in a mounted volume: python examples/python/pipe.py FILE...
"""

import multiprocessing
import sys

import numpy
import weftfs_native


def produce(sender: weftfs_native.Sender, paths: list[str]) -> None:
    """Sends each file as a rope: what the daemon shares with this process goes on to the other one."""
    with sender:
        for path in paths:
            with weftfs_native.open(path) as file:
                sender.send(file.read())


def main(paths: list[str]) -> None:
    sender, receiver = weftfs_native.channel()
    # A process made anew, not forked: it gets its end of the channel, and nothing else.
    producer = multiprocessing.get_context("spawn").Process(target=produce, args=(sender, paths))
    producer.start()
    sender.close()  # it is the producer's now
    for path, rope in zip(paths, receiver, strict=True):
        total = sum(int(numpy.frombuffer(block, "u1").sum()) for block in rope.blocks())
        print(f"{path}: {len(rope)} bytes, sum {total}")
    producer.join()


if __name__ == "__main__":
    main(sys.argv[1:])
