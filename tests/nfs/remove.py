#!/usr/bin/env python3
"""Removes a file over NFS: remove.py PORT MOUNT_PORT PATH NAME."""

import ctypes
import sys

port, mount_port, path, name = sys.argv[1:]
library = ctypes.CDLL("libnfs.so.13")
library.nfs_init_context.restype = ctypes.c_void_p
context = ctypes.c_void_p(library.nfs_init_context())
library.nfs_parse_url_incomplete(context, f"nfs://127.0.0.1/?nfsport={port}&mountport={mount_port}".encode())
failed = library.nfs_mount(context, b"127.0.0.1", path.encode()) or library.nfs_unlink(context, f"/{name}".encode())
sys.exit(1 if failed else 0)
