"""How this machine reaches Dolt: the settings of the program and of the server."""

from __future__ import annotations

import re

from vmrag_link.errors import ConfigInvalid, quoted, shortened
from vmrag_link.models import Record

_ADDRESS = r"(?:(?P<name>[A-Za-z0-9_.-]+)|\[(?P<number>[0-9a-fA-F:.]+)\]):(?P<port>[0-9]{1,5})"
_PORTS = 65536


class DoltAccess(Record, frozen=True):
    """The Dolt program, and the running sql-server if the knowledge base is a database of one."""

    binary: str = ""
    """The absolute path of the program; empty for the `dolt` on PATH."""
    server: str = ""
    """The address of the server as `host:port`; empty for none."""
    database: str = ""
    """The name of the database on the server."""
    user: str = "root"
    password: str = ""
    """The password of `user`. No message contains it."""
    named_by_user: bool = True
    """True if the server's address is from the environment or git config.

    The password is not sent to any other server.
    """
    tls: bool = False
    """True to encrypt the connection and require a valid certificate of the server."""
    authorities: str = ""
    """A file with the certificates that may sign the server's; empty for the system's."""
    answer_seconds: float = 0.0
    """Time limit for each answer of the server; 0 for the default limit.

    All answers together may take a few times as long.
    """

    def __repr__(self) -> str:
        """Leave out the password, because logs of bugs show values."""
        return f"DoltAccess(binary={self.binary!r}, server={self.server!r}, database={self.database!r})"


def parse_address(server: str) -> tuple[str, int]:
    """Return the host and port of `HOST:PORT` or `[HOST]:PORT`. Raises `ConfigInvalid`."""
    match = re.fullmatch(_ADDRESS, server)
    if not match or not 0 < int(match["port"]) < _PORTS:
        raise ConfigInvalid(
            f"invalid server {shortened(server)!r}: use HOST:PORT.",
            hint="run 'git config vmrag.dolt.server HOST:PORT' to set the server",
            setting="dolt.server",
        )
    return match["name"] or match["number"], int(match["port"])


def is_local(access: DoltAccess) -> bool:
    """Return whether the server is on this machine, or a tunnel to it begins here."""
    from vmrag_link import hosts

    return hosts.is_loopback(parse_address(access.server)[0])


def require_private(access: DoltAccess) -> None:
    """Raise `ConfigInvalid` if documents or the password could be disclosed.

    This is the case for a server on another machine without encryption, and for a password to a
    server that only a file of the repository names.
    """
    if access.password and not access.named_by_user:
        raise ConfigInvalid(
            f"VMRAG_DOLT_PASSWORD was not sent, because only .vmrag.yaml contains the Dolt server {access.server}.",
            hint=f"run 'git config vmrag.dolt.server {quoted(access.server)}' if it is the password of that server",
            setting="dolt.server",
        )
    if not access.tls and not is_local(access):
        raise ConfigInvalid(
            f"the connection to the Dolt server {access.server} would not be encrypted.",
            hint="run 'git config vmrag.dolt.tls true' to encrypt it",
            setting="dolt.tls",
        )


def require_server(access: DoltAccess, what: str) -> None:
    """Raise `ConfigInvalid` if no trusted setting gives the address of a server.

    `what` needs one.
    """
    if not access.server:
        raise ConfigInvalid(
            f"{what}, but no trusted setting has its address.",
            hint="run 'vmrag trust' if .vmrag.yaml contains dolt.server, or 'git config vmrag.dolt.server HOST:PORT' "
            "otherwise",
            setting="dolt.server",
        )
