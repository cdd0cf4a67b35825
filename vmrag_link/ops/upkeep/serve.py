"""`vmrag serve`: let others clone, fetch and push over HTTP what a folder holds."""

from __future__ import annotations

import contextlib
import ipaddress
import re
from collections.abc import Iterator
from pathlib import Path

from vmrag_link.engines.base import engine_of
from vmrag_link.engines.doltlite import keys, server
from vmrag_link.engines.doltlite.server import Protection
from vmrag_link.errors import UsageInvalid, quoted
from vmrag_link.models import Record

PORT = 7878
LOOPBACK = "127.0.0.1"
LOCALHOST = "localhost"
"""A name reserved by the standard: no web page can make it resolve elsewhere."""

TIMEOUT = 30
"""Seconds; the same as the client's, which `DOLTLITE_HTTP_TIMEOUT_MS` changes."""

HOST = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9.-]{0,251}[A-Za-z0-9])?")


class Serving(Record, frozen=True):
    """What is served: `url` and `/NAME`, for the `names` that are there and any new one.

    `protected`: only clients with a key get in.
    """

    url: str
    folder: str
    names: tuple[str, ...]
    protected: bool


@contextlib.contextmanager
def serve(
    folder: Path,
    *,
    port: int = PORT,
    bind: str = LOOPBACK,
    host: str | None = None,
    protection: Protection | None = None,
    timeout: int = TIMEOUT,
) -> Iterator[Serving]:
    """Serve a folder, which is made if it is missing, until the block ends.

    Any address but loopback takes `protection`; without it `host` is a name by which clients may
    call the server besides `bind`. Raises `UsageInvalid`, `Busy` for a port in use.
    """
    _check(folder, bind, protection.host if protection else host, protected=protection is not None)
    _refuse_dolt(folder)
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    except (FileExistsError, NotADirectoryError) as error:
        raise UsageInvalid(f"{folder} is not a folder.", hint="vmrag serve knowledge-bases") from error
    found = server.names(folder)
    hosts = [name for name in (host, LOCALHOST if bind == LOOPBACK else None) if name]
    with server.serving(folder, port=port, bind=bind, hosts=hosts, protection=protection, timeout=timeout) as url:
        yield Serving(url, str(folder), found, protection is not None)


def protection(
    *, bind: str, host: str | None, certificate: Path | None, key: Path | None, clients: Path | None
) -> Protection | None:
    """The protection of a server, None without any of it; `host` is `bind` unless it is given.

    Raises `UsageInvalid`.
    """
    if certificate and key and clients:
        return Protection(host or bind, certificate, key, clients)
    if certificate or key or clients:
        raise UsageInvalid(
            "--cert, --key and --clients belong together: over plain http clients show no key.",
            hint="Give all of them: --cert FILE --key FILE --clients FOLDER",
        )
    return None


class ExportedKey(Record, frozen=True):
    """Where the public half of this user's key was written."""

    path: str


def export_key(folder: Path) -> ExportedKey:
    """Write the public key that lets this user into a server; the private key stays here."""
    return ExportedKey(str(keys.export(folder)))


def _refuse_dolt(folder: Path) -> None:
    for each in (folder, *(folder.iterdir() if folder.is_dir() else ())):
        if engine_of(each) == "dolt":
            raise UsageInvalid(
                f"{each} is a database of Dolt, and only embedded knowledge bases are served here.",
                hint="dolt sql-server --remotesapi-port 50051",
            )


def _check(folder: Path, bind: str, host: str | None, *, protected: bool) -> None:
    try:
        address = ipaddress.IPv4Address(bind)
    except ValueError as error:
        raise UsageInvalid(f"{bind!r} is not an IPv4 address.", hint=f"For example: --bind {LOOPBACK}") from error
    if not protected and not address.is_loopback:
        raise UsageInvalid(
            f"Whoever reaches {bind} could read and change everything: an address other than {LOOPBACK} takes TLS and the "
            "clients' keys.",
            hint=f"vmrag serve {quoted(folder)} --bind {bind} --host kb.example.org --cert cert.pem --key key.pem --clients clients",
        )
    if host is not None and (not HOST.fullmatch(host) or (address.is_unspecified and host == bind)):
        raise UsageInvalid(
            f"{host!r} is not a host that clients could write into a URL.", hint="For example: --host kb.example.org"
        )
