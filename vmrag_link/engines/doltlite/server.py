"""doltlite's own HTTP server: a folder of remote files, each of them at `/NAME`.

These are the files that `file://` remotes write. The server follows symbolic links, creates a file
for every new name that is pushed, and lets every pusher overwrite (`--force`): `names` refuses what
must not be in its folder.
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import os
import re
import socket
import stat
import tempfile
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from pathlib import Path

from vmrag_link.engines.base import LOCK_NAME
from vmrag_link.engines.doltlite import engine, front, keys
from vmrag_link.engines.doltlite.connection import Connection
from vmrag_link.engines.doltlite.library import ServeOptions, library
from vmrag_link.errors import Busy, EngineFailed, UsageInvalid, VmragError, quoted

MAGIC = b"CTLD"
"""How a doltlite file begins."""

LOOPBACK = "127.0.0.1"

NAME = re.compile(r"[A-Za-z0-9_-][A-Za-z0-9_.-]*")
"""The names that the server answers. All others, dot files and folders included, are `not found`.
"""


@dataclass(frozen=True, slots=True)
class Protection:
    """TLS, and the clients whose keys are accepted. Clients do not sign without TLS.

    `host` is the host in the URL that clients use, letter by letter, because their signatures cover
    it. `certificate` and `key` are PEM files. `clients` is a folder of public keys
    (`keys.authorized_ids`), which is read with every request.
    """

    host: str
    certificate: Path
    key: Path
    clients: Path


@contextlib.contextmanager
def serving(
    folder: Path,
    *,
    port: int = 0,
    bind: str = LOOPBACK,
    hosts: Collection[str] = (),
    protection: Protection | None = None,
    timeout: int = 30,
) -> Iterator[str]:
    """Serve the remote files of a folder in threads until the block ends; yields the URL before
    `/NAME`.

    `port` 0 takes a free one. `bind` is an IPv4 address. A request is cut off after `timeout`
    seconds. Without `protection` every program that can connect reads and writes, by that address
    or a name in `hosts`; web pages cannot. Raises `Busy` for a port in use, `UsageInvalid`,
    `EngineFailed`.
    """
    options = ServeOptions(folder=os.fsencode(folder), port=port, bind=bind.encode(), timeout_ms=timeout * 1000)
    if protection:
        keys.check_private(protection.key)
        keys.check_certificate(protection.certificate, protection.key)
        keys.authorized_ids(protection.clients)
        _listening(bind, port, folder).close()  # the library only says that it failed
        options.certificate = os.fsencode(protection.certificate)
        options.key = os.fsencode(protection.key)
        options.clients = os.fsencode(protection.clients)
        options.audience = protection.host.encode()
        with _started(options) as taken:
            yield f"https://{protection.host}:{taken}"
        return
    options.port, options.bind = 0, LOOPBACK.encode()
    with (
        contextlib.closing(_listening(bind, port, folder)) as listening,
        tempfile.TemporaryDirectory(prefix="vmrag-serve-") as private,  # only this user gets into it
        _started(options) as inner,
    ):
        path = Path(private, "socket")
        _move(inner, path)
        with front.answering(listening, path, hosts=(bind, *hosts), timeout=timeout):
            yield f"http://{bind}:{listening.getsockname()[1]}"


@contextlib.contextmanager
def _started(options: ServeOptions) -> Iterator[int]:
    """The library's server, and the port that it has."""
    with Connection(Path(":memory:"), access="create"):  # the layout of the options is that of one version
        lib = library()
    server = lib.serve(ctypes.byref(options))
    if not server:
        raise EngineFailed(
            f"The server did not start on {options.bind.decode()}, port {options.port}, and does not say why.",
            hint="Try another port, and a certificate that openssl made as docs/serving.md shows.",
        )
    try:
        yield lib.server_port(server)
    finally:
        lib.server_stop(server)


def _move(port: int, path: Path) -> None:
    """Move the library's server, which can only listen on a TCP port, to a unix socket.

    A web page can try all ports of this computer and find the one behind the checks. The library
    polls its listening descriptor by number, a tenth of a second at a time, so another socket takes
    its place under that number. Until then it listens for a moment on a port that the system has
    just chosen and nobody knows.
    """
    descriptor = _descriptor(port)
    with (
        socket.socket(fileno=os.dup(descriptor)) as tcp,
        contextlib.closing(socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)) as private,
    ):
        try:
            private.bind(str(path))
        except OSError as error:  # a path of more than about a hundred bytes
            raise UsageInvalid(
                f"{path.parent} is no place for a socket: {error}.", hint="Use a shorter one: export TMPDIR=/tmp"
            ) from error
        private.listen(socket.SOMAXCONN)
        os.dup2(private.fileno(), descriptor, inheritable=False)
        with contextlib.suppress(OSError):  # not every system has to be told: closing it ends it, too
            tcp.shutdown(socket.SHUT_RDWR)


def _descriptor(port: int) -> int:
    """The file descriptor of this process that listens on a port of the loopback address."""
    for number in [int(each.name) for each in Path("/dev/fd").iterdir()]:
        with contextlib.suppress(OSError):  # it is closed by now
            if stat.S_ISSOCK(os.fstat(number).st_mode):
                with socket.socket(fileno=os.dup(number)) as found:
                    if found.family == socket.AF_INET and found.getsockname() == (LOOPBACK, port):
                        return number
    raise EngineFailed("The engine's server listens where it was not expected.", hint="vmrag doctor")


def names(folder: Path) -> tuple[str, ...]:
    """The knowledge bases in a folder to serve, sorted. Raises `UsageInvalid` if it holds anything
    else.

    Dot files are the engine's own and not served.
    """
    if (folder / engine.FILE_NAME).exists() and (folder / LOCK_NAME).exists():
        raise UsageInvalid(
            f"{folder} holds the knowledge base that a repository works on; a push would move branches under it.",
            hint="Serve a folder of its own, and push to it: vmrag serve knowledge-bases",
        )
    found = sorted(entry.name for entry in os.scandir(folder) if not entry.name.startswith("."))
    for name in found:
        if not NAME.fullmatch(name) or not _is_remote(folder / name):
            raise UsageInvalid(
                f"{folder} holds something that is no knowledge base: {name}. A served folder holds nothing else.",
                hint="Serve a folder of its own, which is made if it is missing: vmrag serve knowledge-bases",
                entry=name,
            )
    return tuple(found)


def _is_remote(path: Path) -> bool:
    """A file, not a link to one; an empty one is what a first push may leave that was killed."""
    if not stat.S_ISREG(path.lstat().st_mode):
        return False
    with path.open("rb") as file:
        return file.read(len(MAGIC)) in (MAGIC, b"")


def _listening(bind: str, port: int, folder: Path) -> socket.socket:
    found = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    found.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # not for a port that somebody listens on
    try:
        found.bind((bind, port))
        found.listen(socket.SOMAXCONN)
    except OSError as error:
        found.close()
        raise _address_error(error, bind, port, folder) from error
    return found


def _address_error(error: OSError, bind: str, port: int, folder: Path) -> VmragError:
    again = f"vmrag serve {quoted(folder)}"
    match error.errno:
        case errno.EADDRINUSE:
            return Busy(f"Port {port} of {bind} is in use.", hint=f"Take a free one: {again} --port 0", port=port)
        case errno.EACCES:
            return UsageInvalid(f"You may not open port {port}.", hint=f"Take one above 1023: {again} --port 7878")
        case errno.EADDRNOTAVAIL:
            return UsageInvalid(
                f"This computer has no address {bind}.", hint="See which it has: hostname -I (macOS: ifconfig)"
            )
    return EngineFailed(f"Port {port} of {bind} cannot be opened: {error.strerror}.", hint=f"{again} --port 0")
