"""Hosts of URLs as they are compared: however an address is spelled, it is one and the same."""

from __future__ import annotations

import re
from ipaddress import IPv4Address, IPv6Address

_NUMBER = r"(?:0x[0-9a-f]*|[0-9]+)"
_IPV4_BITS = 32
_BYTE = 256


_USER = re.compile(r"\s*(?:(?:(?P<scheme>[^/?#:@]*):)?//(?P<user>[^/]*)@|(?P<login>[^/]*)@[^/]*:)", re.DOTALL)
"""git's URLs for SSH can have a `?` or a `#` in the user, so neither ends it."""

_SSH = ("ssh", "git+ssh")
_SERVICE = "git"
"""The user of every git host over SSH, which identifies no person."""


def has_user(address: str) -> bool:
    """Return True if an address holds a user name or a password, except `git` for SSH."""
    found = _USER.match(address)
    if found is None:
        return False
    over_ssh = found["scheme"] is None or found["scheme"].lower() in _SSH
    return not (over_ssh and _SERVICE in (found["user"], found["login"]))


def normalize_host(host: str) -> str:
    """In lower case, without the dot of a full name, an address in its usual form and without
    brackets: `2130706433`, `0x7f.1`, `0177.0.0.1` and `127.1` are `127.0.0.1`, as for resolvers.
    """
    name = host.lower().removesuffix(".")
    found = parse_address(name)
    return name if found is None else str(found)


def parse_address(host: str) -> IPv4Address | IPv6Address | None:
    """The address that a host is; None for a name."""
    name = host.lower().removesuffix(".").removeprefix("[").removesuffix("]")
    try:
        return IPv6Address(name) if ":" in name else _ipv4(name)
    except ValueError:
        return None


def is_host_name(host: str) -> bool:
    """Whether a canonical host can be a name: what ends in a number is an address or nothing."""
    return ":" not in host and not re.fullmatch(_NUMBER, host.rpartition(".")[2])


def is_loopback(host: str) -> bool:
    """Whether it is this machine by its very name or address; no name is resolved."""
    found = parse_address(host)
    return normalize_host(host) == "localhost" if found is None else found.is_loopback


def _ipv4(name: str) -> IPv4Address | None:
    """As `inet_aton` of the C library reads it. Raises `ValueError` for numbers that are none."""
    if not re.fullmatch(rf"{_NUMBER}(?:\.{_NUMBER}){{0,3}}", name):
        return None
    *first, last = (_number(part) for part in name.split("."))
    if any(part >= _BYTE for part in first) or last >= 1 << (_IPV4_BITS - 8 * len(first)):
        raise ValueError(name)
    return IPv4Address(last + sum(part << (24 - 8 * place) for place, part in enumerate(first)))


def _number(text: str) -> int:
    if text.startswith("0x"):
        return int(text[2:] or "0", 16)
    return int(text, 8) if text.startswith("0") else int(text)
