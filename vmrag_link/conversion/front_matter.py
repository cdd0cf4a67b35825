"""The YAML between two lines of dashes at the top of a Markdown file."""

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
"""Characters of a scalar that is no text. PyYAML takes seconds for `1:1:1:…` of 64 kB."""

_BLOCK = re.compile(r"---[ \t]*\r?\n(.*?)^(?:---|\.\.\.)[ \t]*(?:\r?\n|\Z)", re.DOTALL | re.MULTILINE)
_STORABLE = range(-(2**63), 2**63)
_TAG = "tag:yaml.org,2002:"


class FrontMatterRefused(ContentUnreadable):
    """A mapping that no document's metadata can hold; `line` counts from 1 in the file."""

    def __init__(self, what: str, line: int) -> None:
        super().__init__(f"line {line} of its front matter {terminal_text.escape_line(what)}")
        self.line = line


def split_front_matter(text: str) -> tuple[dict[str, Any], str]:
    """Metadata and the rest of the text. Without a mapping or valid YAML the text stays as it is.

    Metadata is what JSON can hold; dates and keys stay text as written. Raises `FrontMatterRefused`
    for a mapping that holds anything else, a key twice, an alias, or more than `MAX_LEVELS` levels,
    because some of it would be lost.
    """
    block = _block(text)
    if block is None:
        return {}, text
    metadata = _mapping(block[1])
    return ({}, text) if metadata is None else (metadata, text[block.end() :])


def locate_block(text: str) -> tuple[int, int] | None:
    """Where the YAML between the two lines stands; None where `split` would find none."""
    block = _block(text)
    return block.span(1) if block else None


def format_block(metadata: Mapping[str, Any]) -> str:
    """Return metadata as lines of YAML, which `split` reads as they were."""
    import yaml

    lines: str = yaml.safe_dump(dict(metadata), allow_unicode=True, sort_keys=False, width=1 << 30)
    return lines


def _block(text: str) -> re.Match[str] | None:
    return _BLOCK.match(text, 0, MAX_CHARACTERS) if text.startswith("---") else None


def _mapping(source: str) -> dict[str, Any] | None:
    import yaml

    try:
        _check_levels(yaml.parse(source, Loader=yaml.SafeLoader))  # composing recurses
        node = yaml.compose(source, Loader=yaml.SafeLoader)
    except (yaml.YAMLError, ValueError):  # a ValueError is `\U00110000` in quotes, or `%YAML 9…9`
        return None
    if not isinstance(node, yaml.MappingNode):
        return None
    value = _plain(node, yaml.SafeLoader(""), set())
    if not isinstance(value, dict):
        raise _refusal(node, f"has the tag {node.tag!r}")
    return value


def _check_levels(events: Any) -> None:
    import yaml

    level = 0
    for event in events:
        level += isinstance(event, yaml.CollectionStartEvent) - isinstance(event, yaml.CollectionEndEvent)
        if level > MAX_LEVELS:
            raise _refusal(event, f"is nested deeper than {MAX_LEVELS} levels")


def _plain(node: Any, loader: Any, seen: set[int]) -> Any:
    """The node's value for JSON.

    An aliased node is refused: a few nested ones grow without bounds.
    """
    import yaml

    if id(node) in seen:
        raise _refusal(node, "has an anchor that is used again; write out what is meant")
    seen.add(id(node))
    match node:
        case yaml.MappingNode(tag=tag) if tag == f"{_TAG}map":
            return _pairs(node, loader, seen)
        case yaml.SequenceNode(tag=tag) if tag == f"{_TAG}seq":
            return [_plain(item, loader, seen) for item in node.value]
        case yaml.ScalarNode(tag=tag, value=str(text)) if tag == f"{_TAG}timestamp":
            return _storable(node, text)
        case yaml.ScalarNode():
            return _storable(node, _construct(node, loader))
    raise _refusal(node, f"has the tag {node.tag!r}, which does not fit what follows it")


def _pairs(node: Any, loader: Any, seen: set[int]) -> dict[str, Any]:
    import yaml

    pairs: dict[str, Any] = {}
    for key, value in node.value:
        if not isinstance(key, yaml.ScalarNode) or not _text(key.value):
            raise _refusal(key, "has a key that is no plain text")
        if key.value in pairs:
            raise _refusal(key, f"has the key {key.value!r} a second time")
        pairs[key.value] = _plain(value, loader, seen)
    return pairs


def _construct(node: Any, loader: Any) -> Any:
    """PyYAML's value of a scalar. It trusts the tag, so the text may not fit it."""
    import yaml

    if node.tag != f"{_TAG}str" and len(node.value) > LONGEST_NUMBER:
        raise _refusal(node, f"{node.value[:40]!r}… cannot be {node.tag.removeprefix(_TAG)!r}")
    try:
        return loader.construct_object(node, deep=True)
    except (yaml.YAMLError, ValueError, LookupError, ArithmeticError):
        raise _refusal(node, f"{node.value[:40]!r} cannot be {node.tag.removeprefix(_TAG)!r}") from None


def _storable(node: Any, value: Any) -> Any:
    if (
        value is None
        or isinstance(value, bool)
        or (isinstance(value, int) and value in _STORABLE)
        or (isinstance(value, float) and math.isfinite(value))
        or (isinstance(value, str) and _text(value))
    ):
        return value
    if isinstance(value, int):
        raise _refusal(node, "is a whole number beyond 64 bits")
    if isinstance(value, float):
        raise _refusal(node, f"{node.value[:40]!r} is a number that is not finite")
    if isinstance(value, str):
        raise _refusal(node, "holds a NUL, or half of a surrogate pair, which is no character")
    raise _refusal(node, f"has the tag {node.tag!r}, which metadata does not have")


def _refusal(where: Any, reason: str) -> FrontMatterRefused:
    """`where`: a node or an event. The first line of the file is the one of dashes."""
    return FrontMatterRefused(reason, where.start_mark.line + 2)


def _text(value: str) -> bool:
    """Whether engines store it exactly: no NUL, no lone surrogates."""
    return "\0" not in value and not any("\ud800" <= character <= "\udfff" for character in value)
