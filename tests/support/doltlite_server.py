"""The engine's own HTTP server, bare: the remote files of a folder, each at /NAME.

It runs in a process of its own: file locks do not keep two connections of one process apart.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from tests.support.cli import ROOT
from vmrag_link.engines.doltlite.library import locate_library

LOOPBACK = "127.0.0.1"


class ServeOptions(ctypes.Structure):
    """`DoltliteServeOpts` of version 0.51.3, as its debugging information has it."""

    _fields_ = (
        ("folder", ctypes.c_char_p),
        ("port", ctypes.c_int),
        ("bind", ctypes.c_char_p),
        ("certificate", ctypes.c_char_p),
        ("key", ctypes.c_char_p),
        ("clients", ctypes.c_char_p),
        ("audience", ctypes.c_char_p),
        ("timeout_ms", ctypes.c_int),
    )


@dataclass(frozen=True)
class Protection:
    """TLS for a host, and a folder with the public keys of those who get in."""

    host: str
    certificate: Path
    key: Path
    clients: Path


@contextlib.contextmanager
def doltlite_server(folder: Path, protection: Protection | None = None) -> Iterator[str]:
    """Yield the URL before /NAME; any client may read and write, or only those with a key."""
    given = [protection.certificate, protection.key, protection.clients, protection.host] if protection else []
    command = [sys.executable, "-m", "tests.support.doltlite_server", str(folder), *map(str, given)]
    with subprocess.Popen(command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdin
        assert process.stdout
        port = process.stdout.readline().strip()
        assert port, "it did not start"
        try:
            yield f"https://{protection.host}:{port}" if protection else f"http://{LOOPBACK}:{port}"
        finally:
            process.stdin.close()


def main(folder: str, *protection: str) -> None:
    """Serve until the end of standard input; the port is printed."""
    library = ctypes.CDLL(str(locate_library()), mode=os.RTLD_NOW | os.RTLD_LOCAL | getattr(os, "RTLD_DEEPBIND", 0))
    library.doltliteServeAsyncOpts.restype = ctypes.c_void_p
    library.doltliteServerPort.argtypes = library.doltliteServerStop.argtypes = (ctypes.c_void_p,)
    options = ServeOptions(os.fsencode(folder), 0, LOOPBACK.encode(), *map(os.fsencode, protection))
    options.timeout_ms = 30_000
    server = library.doltliteServeAsyncOpts(ctypes.byref(options))
    if server:
        print(library.doltliteServerPort(server), flush=True)
        sys.stdin.read()
        library.doltliteServerStop(server)


if __name__ == "__main__":
    main(*sys.argv[1:])
