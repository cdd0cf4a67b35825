"""Why a text is not a valid value of a setting.

Each function returns the end of a sentence about the setting, or None for a valid value.
"""

from __future__ import annotations

import re
from typing import Any

from vmrag_link.models import is_reserved_name
from vmrag_link.pin_values import MAX_SHOWN, quote_untrusted

_MAX_PORT = 65535

_MAX_PREFIX_LENGTH = 20
"""Clients accept names of 64 characters, and add the name of the server."""


def prefix_flaw(text: str) -> str | None:
    if len(text) <= _MAX_PREFIX_LENGTH and all(sign.isascii() and (sign.isalnum() or sign in "_-") for sign in text):
        return None
    return f"may have {_MAX_PREFIX_LENGTH} letters, digits, _ and - at most, because clients take no other names"


SERVICE_MODEL = r"[A-Za-z0-9](?:[A-Za-z0-9_-]|[.:/@+](?![./])){0,199}"
"""Pattern of a model's name at a service. The name is part of a URL path, and must not leave it."""


def model_flaw(text: str) -> str | None:
    is_valid = re.fullmatch(SERVICE_MODEL, text)
    return None if is_valid else "must be the name of a model: letters and digits, with . : / @ + _ - between them"


def url_flaw(text: str) -> str | None:
    """Return why a text is not the address of a service.

    An address must not contain a key, because messages show it. `vmrag trust` shows the address to
    the user, so letters that look like others are refused.
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
    is_valid = not text or re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]{0,99}", text)
    return None if is_valid else "must be the name of an environment variable, not a key itself, or empty"


def absolute_flaw(text: str) -> str | None:
    return None if not text or text.startswith("/") else "must be an absolute path, or empty"


def roots_flaw(text: str) -> str | None:
    roots = [part.strip() for part in text.split(",")] if text.strip() else []
    if all(root.startswith("/") for root in roots):
        return None
    return "must be absolute paths with commas between them, or empty"


def hosts_flaw(text: str) -> str | None:
    """Return why a text is not a list of hosts.

    `true` and `false` were values of this setting in earlier versions.
    """
    from vmrag_link import hosts  # a checkout should not wait for it

    names = [part.strip() for part in text.split(",")] if text.strip() else []
    if len(names) == 1 and names[0].lower() in ("true", "false", "yes", "no", "on", "off", "1", "0"):
        return "must list hosts; true and false are no longer allowed"
    normalized = [hosts.normalize_host(name) for name in names]
    if all(
        hosts.parse_address(part) or (hosts.is_host_name(part) and re.fullmatch(_HOST_NAME, part))
        for part in normalized
    ):
        return None
    return "must be hosts with commas between them, without scheme, port and path"


_HOST_NAME = r"(?=.{1,253}$)[a-z0-9_](?:[a-z0-9_-]*[a-z0-9_])?(?:\.[a-z0-9_](?:[a-z0-9_-]*[a-z0-9_])?)*"


def server_flaw(text: str) -> str | None:
    match = re.fullmatch(r"(?:[A-Za-z0-9](?:[A-Za-z0-9.-]{0,251}[A-Za-z0-9])?|\[[0-9a-fA-F:]+\]):([0-9]{1,5})", text)
    if not text or (match and 0 < int(match[1]) <= _MAX_PORT):
        return None
    return "must be the host and the port of a server, such as db.example.org:3306, or empty"


def database_flaw(text: str) -> str | None:
    is_valid = re.fullmatch(r"[A-Za-z0-9_][A-Za-z0-9_-]{0,63}", text)
    return None if not text or is_valid else "must be the name of a database: letters, digits, _ and -, 64 at most"


def tenant_flaw(text: str) -> str | None:
    """Return why a text is not a tenant.

    The name is part of a URL path, and must not leave it.
    """
    is_valid = re.fullmatch(r"[A-Za-z0-9](?:[A-Za-z0-9_-]|[.](?!\.)){1,126}[A-Za-z0-9]", text)
    return None if is_valid else "must be a name of the Chroma server: 3 to 128 letters, digits, _ - and single dots"


def user_flaw(text: str) -> str | None:
    return None if re.fullmatch(r"[A-Za-z0-9_][A-Za-z0-9_.@-]{0,31}", text) else "must be the name of a server's user"


MAX_SOURCES = 50
MAX_PATHSPECS = 100
"""Number of paths of one source, including the excluded ones."""
_MAX_PATHSPEC_LENGTH = 500

_MAX_STARS = 6
"""Number of `*` in one pathspec. git tries the rest of a pattern again at each possible end of a
`*`. Six of them in one part take seconds for one name of sixty letters (git 2.39).
"""
_MAX_STARS_OF_A_PART = 2
_MAX_ANY_FOLDERS = 3
"""Number of parts `**` in one pathspec."""

NOTES, NOTES_FOLDER = "notes", ".vmrag/notes/"
"""The collection and the folder of the notes that `vmrag init` sets up."""

EXAMPLE_OF_SOURCES = 'sources: [{collection: docs, paths: ["**/*.md"]}]'
EXAMPLE_OF_SOURCES_IN_JSON = '[{"collection": "docs", "paths": ["**/*.md"]}]'
_SOURCE_KEYS = {"collection": str, "paths": list, "exclude": list, "kind": str, "write": bool}


def sources_flaw(entries: Any) -> str | None:
    """Return why a value is not a list of `settings.SourceSettings` in the form of JSON."""
    if not isinstance(entries, list) or len(entries) > MAX_SOURCES:
        return f"must be a list of up to {MAX_SOURCES} sources, each with collection and paths"
    for number, entry in enumerate(entries, start=1):
        if flaw := _source_flaw(entry):
            return f"{flaw} (source {number})"
    names = [entry["collection"] for entry in entries]
    if duplicate := next((name for name in names if names.count(name) > 1), None):
        return f"names the collection {duplicate!r} twice: one source may have many paths"
    return None


def _source_flaw(entry: Any) -> str | None:
    if not isinstance(entry, dict):
        return "must be a list of sources, each with collection and paths"
    if flaw := next(filter(None, (_key_flaw(key, value) for key, value in entry.items())), None):
        return flaw
    if not {"collection", "paths"} <= entry.keys():
        return "must be a list of sources, each with collection and paths"
    if flaw := _name_flaw(entry["collection"]):
        return flaw
    if entry.get("kind", "document") not in ("document", "code"):
        return "must have document or code for kind"
    return _paths_flaw(entry["paths"], entry.get("exclude", [])) or _write_flaw(entry)


def _write_flaw(entry: dict[str, Any]) -> str | None:
    """Return why vmrag cannot write files to a source with `write: true`, or None."""
    if entry.get("write") not in (True, "true"):
        return None
    if entry.get("kind", "document") != "document":
        return "cannot have write: true for kind: code"
    if len(entry["paths"]) != 1 or set(entry["paths"][0]) & set("*?["):
        return f"must have exactly one folder in paths if write is true, such as {NOTES_FOLDER}"
    return None


def _name_flaw(collection: str) -> str | None:
    if not is_collection_name(collection):
        return f"cannot name a collection {collection!r}: 2 to 255 letters, digits, '.', '_' or '-'"
    if is_reserved_name(collection):
        return f"cannot name a collection {collection!r}: tools of vmrag write to collections of that name"
    return None


def _key_flaw(key: Any, value: Any) -> str | None:
    if key not in _SOURCE_KEYS:
        return _no_such_key(key)
    if _SOURCE_KEYS[key] is bool and value in ("true", "false"):
        return None  # the settings file has only words
    return None if isinstance(value, _SOURCE_KEYS[key]) else _of_another_kind(key, value)


def _no_such_key(key: Any) -> str:
    from vmrag_link.errors import nearest  # a checkout should not wait for it

    similar = nearest(str(key), _SOURCE_KEYS)
    return f"has no key {quote_untrusted(str(key))}" + (
        f"; the nearest is {similar}" if similar else f", only {', '.join(_SOURCE_KEYS)}"
    )


def _of_another_kind(key: str, value: Any) -> str:
    if _SOURCE_KEYS[key] is bool:
        return f"has an entry whose {key} must be true or false"
    if _SOURCE_KEYS[key] is not list:
        return f"has an entry whose {key} must be a word"
    plain = isinstance(value, str) and value.isprintable() and len(value) < MAX_SHOWN and not set(value) & set('"\\')
    return f'has an entry whose {key} must be a list: {key}: ["{value if plain else "**/*.md"}"]'


def _paths_flaw(paths: list[Any], exclude: list[Any]) -> str | None:
    pathspecs = [*paths, *exclude]
    if not paths or len(pathspecs) > MAX_PATHSPECS:
        return f"must have up to {MAX_PATHSPECS} paths, and one at least"
    flaws = ((pathspec, pathspec_flaw(pathspec)) for pathspec in pathspecs)
    return next(
        (f"has the path {quote_untrusted(str(invalid))}, which {flaw}" for invalid, flaw in flaws if flaw), None
    )


def pathspec_flaw(text: Any) -> str | None:
    """Return why a text is not a path below the top of a repository, in which git expands `*`, `?`,
    `[` and `**`.
    """
    if not isinstance(text, str) or not 0 < len(text) <= _MAX_PATHSPEC_LENGTH or not text.isprintable():
        return f"is not one to {_MAX_PATHSPEC_LENGTH} printable characters"
    if text.startswith(":"):
        return "begins with a colon, because magic words of git are not allowed"
    parts = text.removesuffix("/").split("/")
    if text.startswith("/") or ".." in parts or "\\" in text:
        return "is not below the top of the repository"
    if "" in parts or "." in parts:
        return "has an empty part, or one that is only a dot: write docs/x, and ** for all files"
    return _wildcards_flaw(parts)


def _wildcards_flaw(parts: list[str]) -> str | None:
    runs = [len(re.findall(r"\*+", part)) for part in parts]
    if max(runs) > _MAX_STARS_OF_A_PART:
        return f"has more than {_MAX_STARS_OF_A_PART} wildcards * between two slashes"
    if sum(runs) > _MAX_STARS or parts.count("**") > _MAX_ANY_FOLDERS:
        return f"has more than {_MAX_STARS} wildcards *, or more than {_MAX_ANY_FOLDERS} parts **"
    return None


_COLLECTION = r"[A-Za-z0-9](?:[A-Za-z0-9._-]*[A-Za-z0-9])"
_COLLECTION_LENGTH = range(2, 256)
_ADDRESS = r"\d{1,3}(?:\.\d{1,3}){3}"


def is_collection_name(text: str) -> bool:
    """Return whether a text can be the name of a collection.

    The rule is that of Chroma, limited to the length of a key in the knowledge base. Names of two
    characters are also valid; Chroma has other names for them (`index.metadata.make_chroma_name`).
    """
    is_well_formed = re.fullmatch(_COLLECTION, text) and ".." not in text and not re.fullmatch(_ADDRESS, text)
    return bool(is_well_formed) and len(text) in _COLLECTION_LENGTH
