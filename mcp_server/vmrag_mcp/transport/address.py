"""Where to listen, and whether that is safe; checked before anything is imported that listens."""

from __future__ import annotations

import re

from vmrag_link import hosts
from vmrag_link.errors import UsageInvalid
from vmrag_link.models import Record


class ListenAddress(Record, frozen=True):
    """Where to listen; `port` 0 takes a free one."""

    host: str
    port: int

    @property
    def url_host(self) -> str:
        """As it stands in a URL."""
        return f"[{self.host}]" if ":" in self.host else self.host

    @property
    def is_loopback(self) -> bool:
        return hosts.is_loopback(self.host)

    @property
    def is_wildcard(self) -> bool:
        """All addresses of this computer: under which name it is addressed cannot be known."""
        found = hosts.parse_address(self.host)
        return found is not None and found.is_unspecified


def parse_address(text: str) -> ListenAddress:
    """`PORT`, `HOST:PORT` or `[IPV6]:PORT`. Raises `UsageInvalid`."""
    host, _, port = text.rpartition(":")
    host = host.removeprefix("[").removesuffix("]") if host.startswith("[") else host
    bare = ":" in host and not text.startswith("[")
    if bare or not (port.isascii() and port.isdecimal() and int(port) <= 65535):  # noqa: PLR2004  the last port
        raise UsageInvalid(f"{text!r} is no address to listen on.", hint="--http 8765, or --http 127.0.0.1:8765")
    return ListenAddress(host or "127.0.0.1", int(port))


_ORIGIN = re.compile(r"https?://(?:[a-z0-9](?:[a-z0-9.-]*[a-z0-9])?|\[[0-9a-f:]+\])(?::[0-9]{1,5})?")


def parse_origin(text: str) -> str:
    """The origin of a page as a browser says it: `SCHEME://HOST[:PORT]`. Raises `UsageInvalid`."""
    if not _ORIGIN.fullmatch(text.lower()):
        raise UsageInvalid(f"{text!r} is no origin of a page.", hint="--allow-origin http://localhost:6274")
    return text.lower()


def require_safe(asked: ListenAddress, *, allow_remote: bool, token: str | None) -> None:
    """Raises `UsageInvalid` where others could reach the knowledge and nobody has allowed that."""
    if asked.is_loopback:
        return
    if not allow_remote:
        raise UsageInvalid(
            f"Other computers could reach {asked.host}.",
            hint=f"--http {asked.port} listens on this computer only; --allow-remote means it, and takes a token",
        )
    if not token:
        raise UsageInvalid(
            "What other computers can reach takes a token.",
            hint="export VMRAG_MCP_TOKEN=$(openssl rand -hex 32), or name the variable that holds one: --token-env NAME",
        )
