"""How this machine gets at Dolt."""

from __future__ import annotations

import re

from vmrag_link.errors import ConfigInvalid, shortened
from vmrag_link.models import Record

_ADDRESS = r"(?:(?P<name>[A-Za-z0-9_.-]+)|\[(?P<number>[0-9a-fA-F:.]+)\]):(?P<port>[0-9]{1,5})"
_PORTS = 65536


class DoltAccess(Record, frozen=True):
    """The program, and the running sql-server where the knowledge base is a database of one.

    `binary`: the program's absolute path; empty: the `dolt` on PATH. `server`: `host:port`; empty:
    no server. `database`: its name there. `password`: of `user`; it is in no message.
    `named`: whether the environment or git config names the server: no password goes to another
    one. `tls`:
    whether the server must prove by a certificate who it is; what is sent is encrypted then.
    `authorities`: a file with the certificates of those who may sign it; empty: the system's.
    """

    binary: str = ""
    server: str = ""
    database: str = ""
    user: str = "root"
    password: str = ""
    named_by_user: bool = True
    tls: bool = False
    authorities: str = ""
    answer_seconds: float = 0.0
    """How many seconds each answer of the server may take; 0: as many as usual.

    All answers together may take a few times as many.
    """

    def __repr__(self) -> str:
        """Without the password: logs of bugs show values."""
        return f"DoltAccess(binary={self.binary!r}, server={self.server!r}, database={self.database!r})"


def parse_address(server: str) -> tuple[str, int]:
    """Host and port of `HOST:PORT` or `[HOST]:PORT`. Raises `ConfigInvalid`."""
    found = re.fullmatch(_ADDRESS, server)
    if not found or not 0 < int(found["port"]) < _PORTS:
        raise ConfigInvalid(
            f"{shortened(server)!r} is not the host and the port of a server.",
            hint="git config vmrag.dolt.server HOST:PORT",
            setting="dolt.server",
        )
    return found["name"] or found["number"], int(found["port"])


def is_local(access: DoltAccess) -> bool:
    """Whether the server is on this machine, or a tunnel to it begins here."""
    from vmrag_link import hosts

    return hosts.is_loopback(parse_address(access.server)[0])


def require_private(access: DoltAccess) -> None:
    """Raise `ConfigInvalid` for a server on another machine to which documents and password would
    go in the clear, and for a password to a server that only a file of the repository names.
    """
    if access.password and not access.named_by_user:
        raise ConfigInvalid(
            f"VMRAG_DOLT_PASSWORD was not sent: only .vmrag.yaml names the Dolt server {access.server}.",
            hint=f"git config vmrag.dolt.server {access.server}   (if it is the password of that server)",
            setting="dolt.server",
        )
    if not access.tls and not is_local(access):
        raise ConfigInvalid(
            f"What is said to the Dolt server {access.server} would go over the network in the clear.",
            hint="Encrypt it: git config vmrag.dolt.tls true",
            setting="dolt.tls",
        )


def require_server(access: DoltAccess, what: str) -> None:
    """Raise `ConfigInvalid` where no settings that count name a server; `what` needs one."""
    if not access.server:
        raise ConfigInvalid(
            f"{what}, and no settings that count name it.",
            hint="vmrag trust, if .vmrag.yaml names dolt.server; otherwise: git config vmrag.dolt.server HOST:PORT",
            setting="dolt.server",
        )
