"""The address to listen on, and whether it is safe. Checked before the imports of a web server."""

from __future__ import annotations

import re

from vmrag_link.errors import UsageInvalid
from vmrag_link.models import Record


class ListenAddress(Record, frozen=True):
    """An address to listen on. Port 0 selects a free port."""

    host: str
    port: int

    @property
    def url_host(self) -> str:
        """The host in the form for URLs."""
        return f"[{self.host}]" if ":" in self.host else self.host

    @property
    def is_loopback(self) -> bool:
        from vmrag_link import hosts  # most servers use standard streams, and have no address

        return hosts.is_loopback(self.host)

    @property
    def is_wildcard(self) -> bool:
        """True if it means all addresses of this computer. Clients can then use any host name."""
        from vmrag_link import hosts

        ip = hosts.parse_address(self.host)
        return ip is not None and ip.is_unspecified


def parse_address(text: str) -> ListenAddress:
    """Parse `PORT`, `HOST:PORT` or `[IPV6]:PORT`. Raises `UsageInvalid`."""
    host, _, port = text.rpartition(":")
    host = host.removeprefix("[").removesuffix("]") if host.startswith("[") else host
    bare = ":" in host and not text.startswith("[")
    if bare or not (port.isascii() and port.isdecimal() and int(port) <= 65535):  # noqa: PLR2004  the last port
        raise UsageInvalid(f"invalid listen address: {text!r}.", hint="use '--http 8765' or '--http 127.0.0.1:8765'")
    return ListenAddress(host or "127.0.0.1", int(port))


_ORIGIN = re.compile(r"https?://(?:[a-z0-9](?:[a-z0-9.-]*[a-z0-9])?|\[[0-9a-f:]+\])(?::[0-9]{1,5})?")


def parse_origin(text: str) -> str:
    """Parse the origin of a page in a browser's form, `SCHEME://HOST[:PORT]`.

    Raises `UsageInvalid`.
    """
    if not _ORIGIN.fullmatch(text.lower()):
        raise UsageInvalid(f"invalid origin of a page: {text!r}.", hint="use '--allow-origin http://localhost:6274'")
    return text.lower()


def require_safe(address: ListenAddress, *, allow_remote: bool, token: str | None) -> None:
    """Raise `UsageInvalid` if other computers could reach the server and the options do not allow
    that.
    """
    if address.is_loopback:
        return
    if not allow_remote:
        raise UsageInvalid(
            f"--http {address.host} lets other computers connect, which needs --allow-remote.",
            hint=f"use '--http {address.port}' for this computer only, or add --allow-remote and a token",
        )
    if not token:
        raise UsageInvalid(
            "a server for other computers needs a token.",
            hint="run 'export VMRAG_MCP_TOKEN=$(openssl rand -hex 32)', or use another variable with '--token-env "
            "NAME'",
        )
