"""Why a text is no value of a setting."""

from __future__ import annotations

import re

_LONGEST_PREFIX = 20
"""Clients take names of 64 characters, and put the server's name before them."""


def prefix_flaw(text: str) -> str | None:
    if len(text) <= _LONGEST_PREFIX and all(sign.isascii() and (sign.isalnum() or sign in "_-") for sign in text):
        return None
    return f"may have {_LONGEST_PREFIX} letters, digits, _ and - at most, because clients take no other names"


SERVICE_MODEL = r"[A-Za-z0-9](?:[A-Za-z0-9_-]|[.:/@+](?![./])){0,199}"
"""What a service may call a model: part of an address, too, which it must not leave."""


def model_flaw(text: str) -> str | None:
    named = re.fullmatch(SERVICE_MODEL, text)
    return None if named else "must be the name of a model: letters and digits, with . : / @ + _ - between them"


def url_flaw(text: str) -> str | None:
    """Keys are in the environment: in an address every message would show them. And `vmrag trust`
    shows it to a person, who would take letters that look like others for those.
    """
    from urllib.parse import urlsplit  # a checkout should not wait for it

    try:
        parts = urlsplit(text)
        plain = parts.scheme in ("http", "https") and parts.hostname and (parts.port or True)
    except ValueError:
        plain = False
    if not text.isascii() or "\\" in text:
        return "must be written in ASCII without backslashes: other letters of a host as xn--…, of a path as %…"
    if plain and "@" not in parts.netloc and not parts.query and not parts.fragment and " " not in text:
        return None
    return "must be the http:// or https:// address of a service, without a user, ? and #"


def optional_model_flaw(text: str) -> str | None:
    return model_flaw(text) if text else None


def optional_url_flaw(text: str) -> str | None:
    return url_flaw(text) if text else None


def variable_flaw(text: str) -> str | None:
    named = not text or re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]{0,99}", text)
    return None if named else "must be the name of an environment variable, not a key itself, or empty"


def absolute_flaw(text: str) -> str | None:
    return None if not text or text.startswith("/") else "must be an absolute path, or empty"


def roots_flaw(text: str) -> str | None:
    roots = [each.strip() for each in text.split(",")] if text.strip() else []
    if all(root.startswith("/") for root in roots):
        return None
    return "must be absolute paths with commas between them, or empty"


def hosts_flaw(text: str) -> str | None:
    """`true` and `false` are what the setting was before it named hosts."""
    from vmrag_link import hosts  # a checkout should not wait for it

    names = [each.strip() for each in text.split(",")] if text.strip() else []
    if len(names) == 1 and names[0].lower() in ("true", "false", "yes", "no", "on", "off", "1", "0"):
        return "must list the hosts that are meant: it is neither true nor false any more"
    found = [hosts.canonical(name) for name in names]
    if all(hosts.address(each) or (hosts.is_name(each) and re.fullmatch(_HOST_NAME, each)) for each in found):
        return None
    return "must be hosts with commas between them, without scheme, port and path"


_HOST_NAME = r"(?=.{1,253}$)[a-z0-9_](?:[a-z0-9_-]*[a-z0-9_])?(?:\.[a-z0-9_](?:[a-z0-9_-]*[a-z0-9_])?)*"


def server_flaw(text: str) -> str | None:
    found = re.fullmatch(r"(?:[A-Za-z0-9](?:[A-Za-z0-9.-]{0,251}[A-Za-z0-9])?|\[[0-9a-fA-F:]+\]):([0-9]{1,5})", text)
    if not text or (found and 0 < int(found[1]) < _PORTS):
        return None
    return "must be the host and the port of a server, such as db.example.org:3306, or empty"


_PORTS = 65536


def database_flaw(text: str) -> str | None:
    named = re.fullmatch(r"[A-Za-z0-9_][A-Za-z0-9_-]{0,63}", text)
    return None if not text or named else "must be the name of a database: letters, digits, _ and -, 64 at most"


def tenant_flaw(text: str) -> str | None:
    """It becomes part of an address, which it must not leave."""
    named = re.fullmatch(r"[A-Za-z0-9](?:[A-Za-z0-9_-]|[.](?!\.)){1,126}[A-Za-z0-9]", text)
    return None if named else "must be a name of the Chroma server: 3 to 128 letters, digits, _ - and single dots"


def user_flaw(text: str) -> str | None:
    return None if re.fullmatch(r"[A-Za-z0-9_][A-Za-z0-9_.@-]{0,31}", text) else "must be the name of a server's user"
