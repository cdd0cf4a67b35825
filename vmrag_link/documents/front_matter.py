"""The YAML between two lines of dashes at the top of a Markdown file."""

from __future__ import annotations

import math
import re
from typing import Any

MAX_CHARACTERS = 1 << 16
_BLOCK = re.compile(r"---[ \t]*\r?\n(.*?)^(?:---|\.\.\.)[ \t]*(?:\r?\n|\Z)", re.DOTALL | re.MULTILINE)
_STORABLE = range(-(2**63), 2**63)


class _Refused(Exception):
    """Not something that metadata can hold."""


def split(text: str) -> tuple[dict[str, Any], str]:
    """Metadata and the rest of the text. What is no front matter in good order is left in the text, untouched.

    Good order: a mapping, at most 64 KiB, of what JSON has; dates stay text as written, keys too; no aliases.
    """
    block = _BLOCK.match(text, 0, MAX_CHARACTERS) if text.startswith("---") else None
    if block is None:
        return {}, text
    metadata = _mapping(block[1])
    return ({}, text) if metadata is None else (metadata, text[block.end() :])


def _mapping(source: str) -> dict[str, Any] | None:
    import yaml

    try:
        node = yaml.compose(source, Loader=yaml.SafeLoader)
        return _plain(node, yaml.SafeLoader("")) if isinstance(node, yaml.MappingNode) else None
    except (yaml.YAMLError, _Refused, RecursionError, ValueError):
        return None


def _plain(node: Any, loader: Any, seen: set[int] | None = None) -> Any:
    """The node's value for JSON. An aliased node is refused: a few of them within each other grow without bounds."""
    seen = set() if seen is None else seen
    if id(node) in seen:
        raise _Refused
    seen.add(id(node))
    match node.tag:
        case "tag:yaml.org,2002:map":
            pairs = [(key.value, _plain(value, loader, seen)) for key, value in node.value]
            if any(not isinstance(key, str) or not _text(key) for key, _ in pairs) or len(dict(pairs)) < len(pairs):
                raise _Refused
            return dict(pairs)
        case "tag:yaml.org,2002:seq":
            return [_plain(item, loader, seen) for item in node.value]
        case "tag:yaml.org,2002:timestamp":
            return node.value
    return _storable(loader.construct_object(node, deep=True))


def _storable(value: Any) -> Any:
    if (
        value is None
        or isinstance(value, bool)
        or (isinstance(value, int) and value in _STORABLE)
        or (isinstance(value, float) and math.isfinite(value))
        or (isinstance(value, str) and _text(value))
    ):
        return value
    raise _Refused


def _text(value: str) -> bool:
    """Whether engines store it exactly: no NUL, no lone surrogates."""
    return "\0" not in value and not any("\ud800" <= character <= "\udfff" for character in value)
