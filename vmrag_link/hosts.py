"""Hosts of URLs: their normal form for comparisons, whether they are this machine, and users."""

from __future__ import annotations

import re
from ipaddress import IPv4Address, IPv6Address

_NUMBER = r"(?:0x[0-9a-f]*|[0-9]+)"
_IPV4_BITS = 32
_BYTE = 256

_USER = re.compile(r"\s*(?:(?:(?P<scheme>[^/?#:@]*):)?//(?P<user>[^/]*)@|(?P<login>[^/]*)@[^/]*:)", re.DOTALL)
"""In git's URLs for SSH, the user can contain `?` and `#`, so neither of them ends it."""

_SSH = ("ssh", "git+ssh")
_SERVICE = "git"
"""The user of every git host over SSH, which does not identify a person."""


def has_user(address: str) -> bool:
    """Return True if an address contains a user name or a password, except `git` for SSH."""
    match = _USER.match(address)
    if match is None:
        return False
    over_ssh = match["scheme"] is None or match["scheme"].lower() in _SSH
    return not (over_ssh and _SERVICE in (match["user"], match["login"]))


def normalize_host(host: str) -> str:
    """Return a host in lower case, without the dot of a full name, and an address without brackets.

    Like for resolvers, `2130706433`, `0x7f.1`, `0177.0.0.1` and `127.1` are `127.0.0.1`.
    """
    name = host.lower().removesuffix(".")
    ip = parse_address(name)
    return name if ip is None else str(ip)


def parse_address(host: str) -> IPv4Address | IPv6Address | None:
    """Return the IP address that a host is, or None for a name."""
    name = host.lower().removesuffix(".").removeprefix("[").removesuffix("]")
    try:
        return IPv6Address(name) if ":" in name else _parse_ipv4(name)
    except ValueError:
        return None


def is_host_name(host: str) -> bool:
    """Return whether a normalized host can be a name.

    A host that ends in a number is an address or invalid.
    """
    return ":" not in host and not re.fullmatch(_NUMBER, host.rpartition(".")[2])


def is_loopback(host: str) -> bool:
    """Return whether a host is this machine, by its name or address. No name is resolved."""
    ip = parse_address(host)
    return normalize_host(host) == "localhost" if ip is None else ip.is_loopback


def _parse_ipv4(name: str) -> IPv4Address | None:
    """Parse an address like `inet_aton` of the C library; None for a name.

    Raises `ValueError` for invalid numbers.
    """
    if not re.fullmatch(rf"{_NUMBER}(?:\.{_NUMBER}){{0,3}}", name):
        return None
    *first, last = (_parse_number(part) for part in name.split("."))
    if any(part >= _BYTE for part in first) or last >= 1 << (_IPV4_BITS - 8 * len(first)):
        raise ValueError(name)
    return IPv4Address(last + sum(part << (24 - 8 * number) for number, part in enumerate(first)))


def _parse_number(text: str) -> int:
    if text.startswith("0x"):
        return int(text[2:] or "0", 16)
    return int(text, 8) if text.startswith("0") else int(text)
