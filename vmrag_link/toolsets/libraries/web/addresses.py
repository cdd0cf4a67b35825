"""Which addresses a host has, whether they may be asked, and what a request may cost.

What was checked is connected to: nobody resolves the name a second time, so a DNS server that
changes its answer leads nowhere else.
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
    """Begins when it is made."""

    def __init__(self, seconds: float) -> None:
        self._end = time.monotonic() + seconds

    def require_left(self) -> float:
        """The seconds that are left. Raises `TimeoutError` if none are."""
        seconds = self._end - time.monotonic()
        if seconds <= 0:
            raise TimeoutError
        return seconds


Address = IPv4Address | IPv6Address

# The registries of IANA, written out: `is_global` of Python says other things before 3.11.10.
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
_A_PRIVATE_ONE = IPv4Address("10.0.0.1")


def is_public(address: Address) -> bool:
    """Whether an address is one of the public internet, reached by nothing that hides another."""
    if isinstance(address, IPv4Address):
        return not any(address in network for network in _SPECIAL_IPV4)
    if address in _NAT64:  # how networks without IPv4 reach public IPv4 addresses
        return is_public(IPv4Address(address.packed[-4:]))
    return address in _PUBLIC_IPV6 and not any(address in network for network in _SPECIAL_IPV6)


def is_anything(address: Address) -> bool:  # noqa: ARG001
    """For a proxy, which the person has chosen."""
    return True


def ask_system(host: str) -> list[str]:
    """The addresses that this machine's resolver gives. Raises `OSError`."""
    found = socket.getaddrinfo(host, None, type=socket.SOCK_STREAM)
    return list(dict.fromkeys(str(sockaddr[0]) for *_, sockaddr in found))


class Resolver(Record, frozen=True):
    """Names to addresses. `permits` decides about each address, but for those of `private_hosts`;
    `lookup` may raise `OSError`.
    """

    permits: Callable[[Address], bool] = is_public
    lookup: Callable[[str], list[str]] = ask_system
    private_hosts: frozenset[str] = frozenset()

    def resolve_host(self, host: str, deadline: Deadline) -> list[str]:
        """The addresses of a host, all of them permitted.

        Raises `AccessDenied` if one is not, `FetchFailed` if there is none, `TimeoutError`.
        """
        try:
            found = ThreadTask(lambda: self.lookup(host)).result(deadline.require_left())
        except TimeoutError:
            raise
        except (OSError, UnicodeError) as error:
            raise _nowhere(host) from error
        if not found:
            raise _nowhere(host)
        for text in found:
            self._require_permitted(host, ipaddress.ip_address(text))
        return found

    def check_address(self, host: str) -> None:
        """The check of a host that is an address: nobody has to be asked. Raises `AccessDenied`."""
        if found := hosts.parse_address(host):
            self._require_permitted(host, found)

    def _require_permitted(self, host: str, address: Address) -> None:
        if host not in self.private_hosts and not self.permits(address):
            raise self._denied(host, "is one" if str(address) == host else f"leads to {address}")

    def check_behind_proxy(self, host: str, deadline: Deadline) -> None:
        """The check of a host that a proxy resolves: by its name, and by what it means here.

        A name that means nothing here is left to the proxy. Raises `AccessDenied`, `TimeoutError`.
        """
        local = "." not in host and ":" not in host
        local = local or host.endswith(_LOCAL_NAMES)
        if local and host not in self.private_hosts and not self.permits(_A_PRIVATE_ONE):
            raise self._denied(host, "is a name of one")
        try:
            self.resolve_host(host, deadline)
        except FetchFailed:
            return

    def _denied(self, host: str, how: str) -> AccessDenied:
        allowed = ",".join((*sorted(self.private_hosts), host))
        return AccessDenied(
            f"Pages of this machine and of private networks are not fetched: {host} {how}.",
            hint=f"If that is meant: git config vmrag.ingest.allow-private-urls {quoted(allowed)}",
            host=host,
            setting="ingest.allow_private_urls",
        )


def _nowhere(host: str) -> FetchFailed:
    return FetchFailed(
        f"There is no host {host}: its name leads to no address.",
        hint="Check the spelling of the host, and that this machine is online.",
        host=host,
    )


def _admit_any(_: PageUrl) -> None:
    """For those that have asked already."""


class FetchLimits(Record, frozen=True):
    """`max_bytes` counts as it comes and unpacked; `timeout_s` is for everything together. `admit`
    raises for a page that may not be asked for, before even its host's name is looked up.
    """

    max_bytes: int = 50_000_000
    timeout_s: float = 10
    resolver: Resolver = Resolver()
    admit: Callable[[PageUrl], None] = _admit_any


def limits_of(settings: IngestSettings, admit: Callable[[PageUrl], None]) -> FetchLimits:
    resolver = Resolver(private_hosts=private_hosts(settings.allow_private_urls))
    return FetchLimits(settings.max_bytes, settings.timeout_s, resolver, admit)


def private_hosts(text: str) -> frozenset[str]:
    """The hosts of `ingest.allow_private_urls`, as they are compared."""
    return frozenset(hosts.normalize_host(each.strip()) for each in text.split(",") if each.strip())
