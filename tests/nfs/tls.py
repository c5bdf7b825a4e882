#!/usr/bin/env python3
"""RPC over TLS as RFC 9289 says it, with Python's TLS: tls.py PORT AUTHORITY [CERTIFICATE KEY]. Mounts / and asks for its attributes."""

import socket
import ssl
import struct
import sys

AUTH_NONE, AUTH_SYS, AUTH_TLS = 0, 1, 7
MOUNT, NFS = 100005, 100003


def opaque(data):
    return struct.pack(">I", len(data)) + data + bytes(-len(data) % 4)


def receive(stream, count):
    data = b""
    while len(data) < count:
        more = stream.recv(count - len(data))
        if not more:
            raise EOFError("the server ended the connection")
        data += more
    return data


def call(stream, program, procedure, arguments=b"", flavor=AUTH_SYS):
    """The words of the reply, and its bytes."""
    body = struct.pack(">I", 0) + opaque(b"here") + struct.pack(">III", 0, 0, 0) if flavor == AUTH_SYS else b""
    message = struct.pack(">IIIIII", 1, 0, 2, program, 3, procedure)
    message += struct.pack(">I", flavor) + opaque(body) + struct.pack(">I", AUTH_NONE) + opaque(b"") + arguments
    stream.sendall(struct.pack(">I", len(message) | 1 << 31) + message)
    (mark,) = struct.unpack(">I", receive(stream, 4))
    reply = receive(stream, mark & 0x7FFFFFFF)
    return struct.unpack(f">{len(reply) // 4}I", reply), reply


def main():
    port, authority, *own = sys.argv[1:]
    plain = socket.create_connection(("127.0.0.1", int(port)))
    words, _ = call(plain, MOUNT, 1, opaque(b"/"))
    assert words[2:5] == (1, 1, 5), f"without TLS the credential is too weak: {words}"
    words, reply = call(plain, NFS, 0, flavor=AUTH_TLS)
    assert words[2:5] == (0, 0, 8) and reply[20:28] == b"STARTTLS", f"TLS is offered: {reply}"
    context = ssl.create_default_context(cafile=authority)
    context.set_alpn_protocols(["sunrpc"])
    if own:
        context.load_cert_chain(*own)
    protected = context.wrap_socket(plain, server_hostname="localhost")
    assert protected.selected_alpn_protocol() == "sunrpc"
    words, reply = call(protected, MOUNT, 1, opaque(b"/"))
    assert words[2] == 0 and words[6] == 0, f"it can be mounted: {words}"
    handle = reply[32:32 + words[7]]
    words, _ = call(protected, NFS, 1, opaque(handle))
    assert words[6:8] == (0, 2), f"it is a directory: {words}"
    data = bytes(range(256)) * 2000
    # Long replies and calls go through as well as short ones.
    arguments = opaque(handle) + opaque(b"file") + struct.pack(">IIIIIIII", 0, 1, 0o644, 0, 0, 0, 0, 0)
    words, reply = call(protected, NFS, 8, arguments)
    assert words[6] == 0, f"a file is made: {words}"
    file = reply[36:36 + words[8]]
    words, _ = call(protected, NFS, 7, opaque(file) + struct.pack(">QII", 0, len(data), 2) + opaque(data))
    assert words[6] == 0, f"it is written: {words}"
    _, reply = call(protected, NFS, 6, opaque(file) + struct.pack(">QI", 0, len(data)))
    assert reply[-len(data):] == data, "and reads back"
    words, _ = call(protected, NFS, 0, flavor=AUTH_TLS)
    assert words[2] == 1, "there is no TLS within TLS"


main()
