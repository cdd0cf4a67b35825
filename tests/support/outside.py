"""Targets of an attacker, watched: ports, programs and a folder.

`Outside.contacts` lists the contacts.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import socket
import struct
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

PROGRAMS = (
    "bash curl dolt editor emacs git-remote-evil nano nc ncat open plink python python3 rsync scp sh ssh telnet vi vim wget xdg-open"
).split()
"""Programs that a hostile value might start by name; git and what its hooks need are not among
them.
"""

PORTS = 3


class Outside:
    """Listening sockets at `ports` (of 127.0.0.1 and ::1) and at `folder/socket`, `programs` that
    go first on PATH, and a `folder`
    of which every file that is opened, made or removed is seen (on Linux).
    """

    def __init__(self, home: Path) -> None:
        self.folder = home / "outside"
        self.programs = home / "programs"
        self._log = home / "started"
        self._seen: list[str] = []
        self._sockets: dict[socket.socket, str] = {}
        for directory in (self.folder, self.programs):
            directory.mkdir(parents=True)
        for name in PROGRAMS:
            path = self.programs / name
            path.write_text(f'#!/bin/sh\nprintf "%s\\n" "{name} $*" >>"{self._log}"\nexit 1\n')
            path.chmod(0o755)
        self.ports = [self._listen() for _ in range(PORTS)]
        self._accept(_bound(socket.AF_UNIX, os.fspath(self.folder / "socket")), "socket")
        self._watch = _Watch()

    def watch(self) -> None:
        """From here on `folder` is watched, with all folders that are in it now."""
        for path in [self.folder, *self.folder.rglob("*")]:
            if path.is_dir() and not path.is_symlink():
                self._watch.add(path)

    def contacts(self) -> list[str]:
        """Connections, programs with their arguments, and files; of all that happened since the
        last call.
        """
        for server, name in self._sockets.items():  # in turn: once ours is closed, all before it are noted
            with socket.socket(server.family) as client:
                client.connect(server.getsockname())
                client.recv(1)
            self._seen.remove(name)
        contacts, self._seen = self._seen, []
        if self._log.exists():
            contacts += self._log.read_text().splitlines()
            self._log.unlink()
        return contacts + self._watch.read()

    def close(self) -> None:
        for server in self._sockets:
            # Otherwise its thread stays in accept(), and can take what comes to a later socket.
            with contextlib.suppress(OSError):  # macOS refuses this for a socket that only listens
                server.shutdown(socket.SHUT_RDWR)
            server.close()
        self._watch.close()

    def _listen(self) -> int:
        first = _bound(socket.AF_INET, ("127.0.0.1", 0))
        port: int = first.getsockname()[1]
        self._accept(first, f"port {port}")
        with contextlib.suppress(OSError):  # a machine without IPv6
            self._accept(_bound(socket.AF_INET6, ("::1", port)), f"port {port}")
        return port

    def _accept(self, listening: socket.socket, name: str) -> None:
        def serve() -> None:
            with contextlib.suppress(OSError):
                while True:
                    connection, _ = listening.accept()
                    self._seen.append(name)
                    connection.close()

        self._sockets[listening] = name
        threading.Thread(target=serve, daemon=True).start()


def _bound(family: int, address: object) -> socket.socket:
    made = socket.socket(family, socket.SOCK_STREAM)
    try:
        made.bind(address)
        made.listen(50)
    except OSError:
        made.close()
        raise
    return made


class _Watch:
    """inotify; elsewhere than on Linux it sees nothing."""

    _EVENTS = (
        0x20 | 0x2 | 0x100 | 0x200 | 0x40 | 0x80
    )  # IN_OPEN, IN_MODIFY, IN_CREATE, IN_DELETE, IN_MOVED_FROM, IN_MOVED_TO

    def __init__(self) -> None:
        self._folders: dict[int, Path] = {}
        self._libc = ctypes.CDLL(None, use_errno=True)
        self._handle = self._libc.inotify_init1(os.O_NONBLOCK | os.O_CLOEXEC) if sys.platform == "linux" else -1

    def add(self, folder: Path) -> None:
        if self._handle >= 0:
            number = self._libc.inotify_add_watch(self._handle, os.fsencode(folder), self._EVENTS)
            assert number >= 0, os.strerror(ctypes.get_errno())
            self._folders[number] = folder

    def read(self) -> list[str]:
        return list(dict.fromkeys(self._read()))

    def _read(self) -> Iterator[str]:
        while self._handle >= 0:
            try:
                events = os.read(self._handle, 64 * 1024)
            except BlockingIOError:
                return
            at = 0
            while at < len(events):
                number, _, _, length = struct.unpack_from("iIII", events, at)
                name = os.fsdecode(events[at + 16 : at + 16 + length].rstrip(b"\0"))
                yield f"file {self._folders[number] / name}"
                at += 16 + length

    def close(self) -> None:
        if self._handle >= 0:
            os.close(self._handle)
