"""A real `dolt sql-server`, which tests start and end."""

from __future__ import annotations

import ctypes
import hashlib
import os
import secrets
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from tests.support import dolt
from vmrag_link.engines.dolt.access import DoltAccess

HOST = "127.0.0.1"
USER = "root"
WHERE = "VMRAG_TEST_DOLT_SERVER"
"""The port, the password and the folder of the session's server, for processes that tests start."""

_PATIENCE = 30.0
_LONGEST_SOCKET = 100
_DIES_WITH_PARENT = 1
"""Linux: PR_SET_PDEATHSIG."""


@dataclass
class DoltServer:
    """`folder` holds a database in each of its folders. The user is Dolt's root, with a password of
    its own, so no other user of this machine gets in.
    """

    folder: Path
    port: int = 0
    password: str = field(default_factory=lambda: secrets.token_hex(8))
    settings: str = ""
    """Further lines of its configuration."""

    variables: Mapping[str, str] = field(default_factory=dict)
    """Variables of its environment."""

    process: subprocess.Popen[bytes] | None = None
    _private: str = ""

    def start(self) -> None:
        """Returns when it answers."""
        program = dolt.require()
        self.folder.mkdir(parents=True, exist_ok=True)
        self._private = tempfile.mkdtemp(prefix="vmrag-", dir="/tmp")  # readable for this user only
        unix = f"{self._private}/s"
        assert len(unix) < _LONGEST_SOCKET, "a longer one is cut off silently"
        for _ in range(3):
            self.port = self.port or _free_port()
            configuration = self.folder.with_name(f"{self.folder.name}.yaml")
            configuration.write_text(
                f"log_level: warning\ndata_dir: {self.folder}\n"
                f"listener:\n  host: {HOST}\n  port: {self.port}\n  socket: {unix}\n{self.settings}"
            )
            with self.log.open("ab") as log:
                self.process = subprocess.Popen(
                    [program, "sql-server", "--config", configuration],
                    cwd=self.folder,
                    env=self._environment(),
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=log,
                    preexec_fn=_end_with_us,  # noqa: PLW1509  it only asks the system
                )
            if self._answers():
                assert Path(unix).is_socket(), "that the socket is taken is only a warning"
                return
            self.stop()
            self.port = 0  # another process took the port
        raise AssertionError(self.log.read_text())

    def stop(self, how: int = signal.SIGTERM) -> None:
        if self.process is not None:
            self.process.send_signal(how)
            try:
                self.process.wait(_PATIENCE)
            except subprocess.TimeoutExpired:
                self.process.kill()
                self.process.wait()
            self.process = None
            shutil.rmtree(self._private, ignore_errors=True)

    @property
    def log(self) -> Path:
        return self.folder.with_name(f"{self.folder.name}.log")

    @property
    def address(self) -> str:
        return f"{HOST}:{self.port}"

    def access(self, database: str = "", **fields: Any) -> DoltAccess:
        given = {"server": self.address, "user": USER, "password": self.password}
        return DoltAccess(database=database, **(given | fields))

    def restart(self) -> None:
        self.stop()
        self.start()

    def sql(self, *statements: str) -> list[tuple[Any, ...]]:
        """The rows of the last one, told by another client than ours."""
        import pymysql

        with (
            pymysql.connect(
                host=HOST, port=self.port, user=USER, password=self.password, autocommit=True, ssl_disabled=True
            ) as connection,
            connection.cursor() as cursor,
        ):
            for statement in statements:
                cursor.execute(statement)
            return list(cursor.fetchall())

    def note(self) -> str:
        """For `session_server`."""
        return f"{self.port} {self.password} {self.folder}"

    def _environment(self) -> Mapping[str, str]:
        return os.environ | {"DOLT_ROOT_PASSWORD": self.password, "DOLT_DISABLE_EVENT_FLUSH": "1", **self.variables}

    def _answers(self) -> bool:
        deadline = time.monotonic() + _PATIENCE
        while time.monotonic() < deadline and self.process is not None and self.process.poll() is None:
            try:
                socket.create_connection((HOST, self.port), timeout=1).close()
            except OSError:
                time.sleep(0.02)
            else:
                return True
        return False


_STARTED: list[DoltServer] = []


def session_server() -> DoltServer:
    """The server that the session's fixture has started, as any of its processes sees it."""
    if _STARTED:
        return _STARTED[0]
    port, password, folder = os.environ[WHERE].split(" ", 2)
    return DoltServer(Path(folder), int(port), password)


def database_for(folder: Path) -> str:
    """The database of the knowledge base in a folder: tests run at the same time."""
    return f"kb_{hashlib.sha256(str(folder).encode()).hexdigest()[:16]}"


@pytest.fixture(scope="session")
def dolt_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[DoltServer]:
    """One for all tests of a worker."""
    server = DoltServer(tmp_path_factory.mktemp("dolt-server") / "databases")
    server.start()
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv(WHERE, server.note())
        _STARTED.append(server)
        yield server
        _STARTED.clear()
    server.stop()


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind((HOST, 0))
        return int(probe.getsockname()[1])


def _end_with_us() -> None:
    """A test that is killed leaves no server."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_DIES_WITH_PARENT, signal.SIGKILL)
