"""The addresses of a host, whether vmrag may contact them, and the limits of a request.

vmrag connects to the checked addresses. It does not resolve the name again, so a DNS server that
changes its answer has no effect.
"""

from __future__ import annotations

import ipaddress
import socket
import time
from collections.abc import Callable
from ipaddress import IPv4Address, IPv6Address

from vmrag_link import hosts
from vmrag_link.errors import AccessDenied, FetchFailed, quoted
from vmrag_link.models import Record
from vmrag_link.settings import IngestSettings
from vmrag_link.thread_task import ThreadTask
from vmrag_link.toolsets.libraries.web.urls import PageUrl


class Deadline:
    """A time limit that begins when the object is created."""

    def __init__(self, seconds: float) -> None:
        self._end = time.monotonic() + seconds

    def require_left(self) -> float:
        """Return the remaining seconds. Raises `TimeoutError` if there are none."""
        seconds = self._end - time.monotonic()
        if seconds <= 0:
            raise TimeoutError
        return seconds


Address = IPv4Address | IPv6Address

# The registries of IANA. `is_global` of Python differs from them before 3.11.10.
_SPECIAL_IPV4 = tuple(
    ipaddress.IPv4Network(text)
    for text in (
        "0.0.0.0/8",
        "10.0.0.0/8",
        "100.64.0.0/10",  # behind the address translation of a provider
        "127.0.0.0/8",
        "168.63.129.16/32",  # Azure's service for its virtual machines, at an address that looks public
        "169.254.0.0/16",  # link-local: the metadata of clouds
        "172.16.0.0/12",
        "192.0.0.0/24",
        "192.0.2.0/24",
        "192.88.99.0/24",
        "192.168.0.0/16",
        "198.18.0.0/15",
        "198.51.100.0/24",
        "203.0.113.0/24",
        "224.0.0.0/3",  # multicast, and what is reserved
    )
)
_PUBLIC_IPV6 = ipaddress.IPv6Network("2000::/3")
_SPECIAL_IPV6 = tuple(
    ipaddress.IPv6Network(text)
    for text in (
        "2001::/23",  # Teredo and other tunnels
        "2001:db8::/32",
        "2002::/16",  # 6to4: an IPv4 address, whichever
        "3fff::/20",
    )
)
_NAT64 = ipaddress.IPv6Network("64:ff9b::/96")
_LOCAL_NAMES = (".localhost", ".local", ".internal", ".intranet", ".lan", ".home.arpa")
_SAMPLE_PRIVATE_ADDRESS = IPv4Address("10.0.0.1")


def is_public(address: Address) -> bool:
    """Return whether an address is in the public internet, and does not embed another address."""
    if isinstance(address, IPv4Address):
        return not any(address in network for network in _SPECIAL_IPV4)
    if address in _NAT64:  # how networks without IPv4 reach public IPv4 addresses
        return is_public(IPv4Address(address.packed[-4:]))
    return address in _PUBLIC_IPV6 and not any(address in network for network in _SPECIAL_IPV6)


def is_anything(address: Address) -> bool:  # noqa: ARG001
    """Accept every address, for a proxy that the user has configured."""
    return True


def ask_system(host: str) -> list[str]:
    """Return the addresses from this machine's resolver. Raises `OSError`."""
    entries = socket.getaddrinfo(host, None, type=socket.SOCK_STREAM)
    return list(dict.fromkeys(str(sockaddr[0]) for *_, sockaddr in entries))


class Resolver(Record, frozen=True):
    """Resolves names to addresses.

    `permits` decides about each address, except addresses of `private_hosts`. `lookup` can raise
    `OSError`.
    """

    permits: Callable[[Address], bool] = is_public
    lookup: Callable[[str], list[str]] = ask_system
    private_hosts: frozenset[str] = frozenset()

    def resolve_host(self, host: str, deadline: Deadline) -> list[str]:
        """Return the addresses of a host, all of which are permitted.

        Raises `AccessDenied` if one is not, `FetchFailed` if there is none, and `TimeoutError`.
        """
        try:
            addresses = ThreadTask(lambda: self.lookup(host)).result(deadline.require_left())
        except TimeoutError:
            raise
        except (OSError, UnicodeError) as error:
            raise _build_unreachable(host) from error
        if not addresses:
            raise _build_unreachable(host)
        for text in addresses:
            self._require_permitted(host, ipaddress.ip_address(text))
        return addresses

    def check_address(self, host: str) -> None:
        """Check a host that is an address and needs no resolver. Raises `AccessDenied`."""
        address = hosts.parse_address(host)
        if address:
            self._require_permitted(host, address)

    def _require_permitted(self, host: str, address: Address) -> None:
        if host not in self.private_hosts and not self.permits(address):
            raise self._build_denied(host, "is an address in one" if str(address) == host else f"leads to {address}")

    def check_behind_proxy(self, host: str, deadline: Deadline) -> None:
        """Check a host that a proxy resolves, by its name and by its addresses on this machine.

        If this machine cannot resolve the name, the proxy decides. Raises `AccessDenied` and
        `TimeoutError`.
        """
        is_local = ("." not in host and ":" not in host) or host.endswith(_LOCAL_NAMES)
        if is_local and host not in self.private_hosts and not self.permits(_SAMPLE_PRIVATE_ADDRESS):
            raise self._build_denied(host, "is a name in one")
        try:
            self.resolve_host(host, deadline)
        except FetchFailed:
            return

    def _build_denied(self, host: str, how: str) -> AccessDenied:
        allowed = ",".join((*sorted(self.private_hosts), host))
        return AccessDenied(
            f"cannot fetch from this machine or a private network: {host} {how}.",
            hint=f"run 'git config vmrag.ingest.allow-private-urls {quoted(allowed)}' if you want to read that address",
            host=host,
            setting="ingest.allow_private_urls",
        )


def _build_unreachable(host: str) -> FetchFailed:
    return FetchFailed(
        f"no such host: {host}",
        hint="check the spelling of the host, and that this machine is online",
        host=host,
    )


def _admit_any(_: PageUrl) -> None:
    """Accept every page, for callers that have already checked it."""


class FetchLimits(Record, frozen=True):
    """Limits of a fetch.

    `max_bytes` limits the compressed and the unpacked size. `timeout_s` is for the whole fetch.
    `admit` raises for a page that may not be fetched, before its host's name is resolved.
    """

    max_bytes: int = 50_000_000
    timeout_s: float = 10
    resolver: Resolver = Resolver()
    admit: Callable[[PageUrl], None] = _admit_any


def limits_of(settings: IngestSettings, admit: Callable[[PageUrl], None]) -> FetchLimits:
    """Return the limits of the settings."""
    resolver = Resolver(private_hosts=private_hosts(settings.allow_private_urls))
    return FetchLimits(settings.max_bytes, settings.timeout_s, resolver, admit)


def private_hosts(text: str) -> frozenset[str]:
    """Return the hosts of `ingest.allow_private_urls` in the form for comparison."""
    return frozenset(hosts.normalize_host(name.strip()) for name in text.split(",") if name.strip())
