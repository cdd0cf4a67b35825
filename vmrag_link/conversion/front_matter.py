"""The front matter of a Markdown file: YAML between two lines of dashes at the top."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from typing import Any

from vmrag_link import terminal_text
from vmrag_link.conversion.limits import ContentUnreadable

MAX_CHARACTERS = 1 << 16
MAX_LEVELS = 100
LONGEST_NUMBER = 400
"""Maximum number of characters of a scalar that is not a text. PyYAML takes seconds for `1:1:1:…`
of 64 kB.
"""

_BLOCK = re.compile(r"---[ \t]*\r?\n(.*?)^(?:---|\.\.\.)[ \t]*(?:\r?\n|\Z)", re.DOTALL | re.MULTILINE)
_STORABLE = range(-(2**63), 2**63)
_TAG = "tag:yaml.org,2002:"


class FrontMatterRefused(ContentUnreadable):
    """A mapping that metadata cannot represent. `line` counts from 1 in the file."""

    def __init__(self, reason: str, line: int) -> None:
        super().__init__(f"line {line} of its front matter {terminal_text.escape_line(reason)}")
        self.line = line


def split_front_matter(text: str) -> tuple[dict[str, Any], str]:
    """Return the metadata and the rest of the text. Without a valid YAML mapping, the text stays
    unchanged.

    Metadata is what JSON can represent. Dates and keys stay texts as written. Raises
    `FrontMatterRefused` for a mapping with other values, duplicate keys, aliases, or more than
    `MAX_LEVELS` levels, because some of it would be lost.
    """
    block = _match_block(text)
    if block is None:
        return {}, text
    metadata = _parse_mapping(block[1])
    return ({}, text) if metadata is None else (metadata, text[block.end() :])


def locate_block(text: str) -> tuple[int, int] | None:
    """Return the start and the end of the YAML between the two lines; None if `split_front_matter`
    finds none.
    """
    block = _match_block(text)
    return block.span(1) if block else None


def format_block(metadata: Mapping[str, Any]) -> str:
    """Return metadata as lines of YAML that `split_front_matter` reads back unchanged."""
    import yaml

    lines: str = yaml.safe_dump(dict(metadata), allow_unicode=True, sort_keys=False, width=1 << 30)
    return lines


def _match_block(text: str) -> re.Match[str] | None:
    return _BLOCK.match(text, 0, MAX_CHARACTERS) if text.startswith("---") else None


def _parse_mapping(source: str) -> dict[str, Any] | None:
    import yaml

    try:
        _check_levels(yaml.parse(source, Loader=yaml.SafeLoader))  # before composing, which is recursive
        node = yaml.compose(source, Loader=yaml.SafeLoader)
    except (yaml.YAMLError, ValueError):  # a ValueError is `\U00110000` in quotes, or `%YAML 9…9`
        return None
    if not isinstance(node, yaml.MappingNode):
        return None
    value = _convert_node(node, yaml.SafeLoader(""), set())
    if not isinstance(value, dict):
        raise _make_error(node, f"has the tag {node.tag!r}")
    return value


def _check_levels(events: Any) -> None:
    import yaml

    level = 0
    for event in events:
        level += isinstance(event, yaml.CollectionStartEvent) - isinstance(event, yaml.CollectionEndEvent)
        if level > MAX_LEVELS:
            raise _make_error(event, f"is nested deeper than {MAX_LEVELS} levels")


def _convert_node(node: Any, loader: Any, seen: set[int]) -> Any:
    """Return the value of a node for JSON.

    An aliased node is rejected, because a few nested ones grow without bounds.
    """
    import yaml

    if id(node) in seen:
        raise _make_error(node, "has an anchor that is used again; write out what is meant")
    seen.add(id(node))
    match node:
        case yaml.MappingNode(tag=tag) if tag == f"{_TAG}map":
            return _convert_pairs(node, loader, seen)
        case yaml.SequenceNode(tag=tag) if tag == f"{_TAG}seq":
            return [_convert_node(item, loader, seen) for item in node.value]
        case yaml.ScalarNode(tag=tag, value=str(text)) if tag == f"{_TAG}timestamp":
            return _require_storable(node, text)
        case yaml.ScalarNode():
            return _require_storable(node, _construct_scalar(node, loader))
    raise _make_error(node, f"has the tag {node.tag!r}, which does not fit what follows it")


def _convert_pairs(node: Any, loader: Any, seen: set[int]) -> dict[str, Any]:
    import yaml

    pairs: dict[str, Any] = {}
    for key, value in node.value:
        if not isinstance(key, yaml.ScalarNode) or not _is_storable_text(key.value):
            raise _make_error(key, "has a key that is not plain text")
        if key.value in pairs:
            raise _make_error(key, f"has the key {key.value!r} a second time")
        pairs[key.value] = _convert_node(value, loader, seen)
    return pairs


def _construct_scalar(node: Any, loader: Any) -> Any:
    """Return PyYAML's value of a scalar. PyYAML trusts the tag, so the text may not match it."""
    import yaml

    if node.tag != f"{_TAG}str" and len(node.value) > LONGEST_NUMBER:
        raise _make_error(node, f"{node.value[:40]!r}… cannot be {node.tag.removeprefix(_TAG)!r}")
    try:
        return loader.construct_object(node, deep=True)
    except (yaml.YAMLError, ValueError, LookupError, ArithmeticError):
        raise _make_error(node, f"{node.value[:40]!r} cannot be {node.tag.removeprefix(_TAG)!r}") from None


def _require_storable(node: Any, value: Any) -> Any:
    if (
        value is None
        or isinstance(value, bool)
        or (isinstance(value, int) and value in _STORABLE)
        or (isinstance(value, float) and math.isfinite(value))
        or (isinstance(value, str) and _is_storable_text(value))
    ):
        return value
    if isinstance(value, int):
        raise _make_error(node, "is an integer of more than 64 bits")
    if isinstance(value, float):
        raise _make_error(node, f"{node.value[:40]!r} is a number that is not finite")
    if isinstance(value, str):
        raise _make_error(node, "has a NUL or half of a surrogate pair")
    raise _make_error(node, f"has the tag {node.tag!r}, which metadata does not support")


def _make_error(node: Any, reason: str) -> FrontMatterRefused:
    """Return an error for a node or an event. The first line of the file is the line of dashes."""
    return FrontMatterRefused(reason, node.start_mark.line + 2)


def _is_storable_text(value: str) -> bool:
    """Return whether engines store a text exactly: it has no NUL and no lone surrogates."""
    return "\0" not in value and not any("\ud800" <= character <= "\udfff" for character in value)
