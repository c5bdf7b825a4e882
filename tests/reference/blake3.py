"""BLAKE3 (hash and derive_key) after its paper, with numpy: all chunks of a piece at once. Slow, and independent of
the implementation that Weft uses."""
import numpy as np

IV = [0x6A09E667, 0xBB67AE85, 0x3C6EF372, 0xA54FF53A, 0x510E527F, 0x9B05688C, 0x1F83D9AB, 0x5BE0CD19]
PERMUTATION = [2, 6, 3, 10, 7, 0, 4, 13, 1, 11, 12, 5, 9, 14, 15, 8]
CHUNK_START, CHUNK_END, PARENT, ROOT, DERIVE_CONTEXT, DERIVE_MATERIAL = 1, 2, 4, 8, 32, 64
CHUNK = 1024


def compress(values, blocks, counters, length, flags):
    """The first eight words of the compression function's output, for each row. Values: n × 8, blocks: n × 16."""
    count = len(values)
    word = lambda number: np.full(count, number, np.uint32)
    v = [values[:, i].copy() for i in range(8)] + [word(IV[i]) for i in range(4)]
    v += [(counters & 0xFFFFFFFF).astype(np.uint32), (counters >> np.uint64(32)).astype(np.uint32)]
    v += [word(length), word(flags)]
    m = [blocks[:, i] for i in range(16)]

    def rotate(x, n):
        return (x >> np.uint32(n)) | (x << np.uint32(32 - n))

    def mix(a, b, c, d, x, y):
        v[a] = v[a] + v[b] + x
        v[d] = rotate(v[d] ^ v[a], 16)
        v[c] = v[c] + v[d]
        v[b] = rotate(v[b] ^ v[c], 12)
        v[a] = v[a] + v[b] + y
        v[d] = rotate(v[d] ^ v[a], 8)
        v[c] = v[c] + v[d]
        v[b] = rotate(v[b] ^ v[c], 7)

    for _ in range(7):
        for i in range(4):
            mix(i, 4 + i, 8 + i, 12 + i, m[2 * i], m[2 * i + 1])
        for i in range(4):
            mix(i, 4 + (i + 1) % 4, 8 + (i + 2) % 4, 12 + (i + 3) % 4, m[8 + 2 * i], m[9 + 2 * i])
        m = [m[i] for i in PERMUTATION]
    return np.stack([v[i] ^ v[i + 8] for i in range(8)], axis=1)


def chunks(data, key, first, flags, root=False):
    """Chaining values of chunks of one length, of which the first is the `first`-th of its file. n × 8."""
    length = min(len(data), CHUNK)
    count = max(1, len(data) // CHUNK)
    blocks = max(1, -(-length // 64))
    words = np.frombuffer(data.ljust(count * blocks * 64, b"\0"), "<u4").reshape(count, blocks, 16)
    values = np.tile(np.array(key, np.uint32), (count, 1))
    counters = np.arange(first, first + count, dtype=np.uint64)
    for block in range(blocks):
        now = flags | (CHUNK_START if block == 0 else 0)
        size = 64
        if block == blocks - 1:
            now |= CHUNK_END | (ROOT if root else 0)
            size = length - 64 * block
        values = compress(values, words[:, block], counters, size, now)
    return values


def parents(values, key, flags):
    """Of pairs of rows."""
    pairs = values.reshape(-1, 16)
    keys = np.tile(np.array(key, np.uint32), (len(pairs), 1))
    return compress(keys, pairs, np.zeros(len(pairs), np.uint64), 64, flags | PARENT)


def merged(values, key=IV, flags=0, root=False):
    """The one value of a tree over these subtrees, all but the last full and of one height."""
    while len(values) > 1:
        last = root and len(values) == 2
        even = len(values) // 2 * 2
        above = parents(values[:even], key, flags | (ROOT if last else 0))
        values = np.concatenate([above, values[even:]])
    return values


def leaves(data, first=0, key=IV, flags=0):
    """Chaining values of all chunks of `data`, which begins with the `first`-th of its file."""
    whole = len(data) // CHUNK * CHUNK
    parts = [chunks(data[:whole], key, first, flags)] if whole else []
    if whole < len(data) or not data:
        parts.append(chunks(data[whole:], key, first + whole // CHUNK, flags))
    return np.concatenate(parts)


def digest_with(data, key, flags):
    if len(data) <= CHUNK:
        return as_bytes(chunks(data, key, 0, flags, root=True))
    return as_bytes(merged(leaves(data, 0, key, flags), key, flags, root=True))


def as_bytes(values):
    return values[0].astype("<u4").tobytes()


def blake3(data):
    return digest_with(data, IV, 0)


def derive_key(context, material):
    key = np.frombuffer(digest_with(context.encode(), IV, DERIVE_CONTEXT), "<u4")
    return digest_with(material, key, DERIVE_MATERIAL)
