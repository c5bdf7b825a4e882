#!/usr/bin/env python3
"""How long a digest takes after a change: digest_after_write.py FILE [GIB]

Makes FILE, on a mount of a volume, of so many GiB (10), then writes 4 KiB at random places, each time followed by fsync(2) and by
asking for the digest. Prints medians in milliseconds."""
import os, random, statistics, sys, time

path, gib = sys.argv[1], int(sys.argv[2]) if len(sys.argv) > 2 else 10
file = os.open(path, os.O_RDWR | os.O_CREAT)
piece = os.urandom(1 << 20)
for at in range(gib << 10):
    os.pwrite(file, at.to_bytes(8, "little") + piece[8:], at << 20)
os.fsync(file)
os.getxattr(path, "user.weft.digest")
written, told = [], []
places = random.Random(1)
for _ in range(50):
    begin = time.perf_counter()
    os.pwrite(file, os.urandom(4096), places.randrange(gib << 18) << 12)
    os.fsync(file)
    middle = time.perf_counter()
    os.getxattr(path, "user.weft.digest")
    written.append(middle - begin)
    told.append(time.perf_counter() - middle)
print(*(f"{name} {statistics.median(times) * 1000:.2f} ms, at most {max(times) * 1000:.2f}"
        for name, times in [("write and fsync", written), ("digest", told)]), sep="\n")
