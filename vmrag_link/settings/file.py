"""`.vmrag.yaml` as a flat list of texts with their lines.

The file comes from strangers. Only the parser's events are looked at, one after the other
(`yaml_tree.events`), and nothing recurses.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from vmrag_link import yaml_tree
from vmrag_link.errors import ConfigInvalid
from vmrag_link.paths import CONFIG_NAME
from vmrag_link.pin_values import quote_untrusted
from vmrag_link.settings.entries import MAX_BYTES, SettingEntry
from vmrag_link.yaml_tree import MERGE_KEY, YamlRefused, decode_text, is_blank

_CONFLICT_MARKER = rb"(?m)^(?:<{7} |={7}\r?$|>{7} )"
_HINT = "Write the settings as plain `key: value` lines; sections are indented by two spaces."


def read_entries(data: bytes, label: str) -> list[SettingEntry]:
    """The entries in the order of the file.

    Raises `ConfigInvalid` with the details `file` (= `label`) and `line`.
    """
    try:
        return list(_entries(decode_text(data, MAX_BYTES)))
    except YamlRefused as flaw:
        if marker := re.search(_CONFLICT_MARKER, data):  # none of them can stand in a file that is read
            raise invalid_setting(
                "git left a conflict marker here when it merged",
                label=label,
                line=data.count(b"\n", 0, marker.start()) + 1,
                hint=f"Edit the file as it is meant, without the markers, then: git add {CONFIG_NAME}",
            ) from None
        raise invalid_setting(flaw.reason, label=label, line=flaw.line, hint=flaw.hint or _HINT) from None


def invalid_setting(reason: str, *, label: str, line: int, hint: str, **details: Any) -> ConfigInvalid:
    return ConfigInvalid(f"{label}, line {line}: {reason}", hint=hint, file=label, line=line, **details)


def _entries(text: str) -> Iterator[SettingEntry]:
    if is_blank(text):
        return  # as `vmrag init` writes it

    import yaml

    events = iter(
        [*yaml_tree.parse_events(text)]
    )  # all at once: a parser that reads ahead must not change which flaw is reported
    root = next(events, None)
    if root is None or (isinstance(root, yaml.ScalarEvent) and not root.value and root.implicit[0]):
        return
    if not isinstance(root, yaml.MappingStartEvent):
        raise YamlRefused("the file must hold `key: value` lines", root.start_mark.line + 1)
    yield from _mapping(events, "", set())
    next(events, None)  # raises for a second document


def _mapping(events: Iterator[Any], prefix: str, seen: set[str]) -> Iterator[SettingEntry]:
    import yaml

    for event in events:
        if isinstance(event, yaml.MappingEndEvent):
            return
        line = event.start_mark.line + 1
        if not isinstance(event, yaml.ScalarEvent):
            raise YamlRefused("a key must be a word", line)
        key = prefix + event.value
        if event.value == MERGE_KEY:
            raise YamlRefused("merge keys (<<) are not read", line)
        if key in seen:
            raise YamlRefused(f"{quote_untrusted(key)} stands there twice", line, "Delete one of the two.")
        seen.add(key)
        value = next(events)
        if isinstance(value, yaml.ScalarEvent):
            yield SettingEntry(key, value.value, not value.implicit[0], line, section=prefix.removesuffix("."))
        elif isinstance(value, yaml.MappingStartEvent) and not prefix:
            yield SettingEntry(key, None, False, line)
            yield from _mapping(events, key + ".", seen)
        elif isinstance(value, yaml.SequenceStartEvent):
            items = list(_list(events, key, line))
            text = ",".join(map(str, items)) if all(isinstance(item, str) for item in items) else _json(items)
            yield SettingEntry(key, text, True, line, listed=True)
        else:
            raise YamlRefused(f"{quote_untrusted(key)} holds a section; no setting does", line)


def _list(events: Iterator[Any], key: str, line: int) -> Iterator[str | dict[str, str | list[str]]]:
    import yaml

    for event in events:
        if isinstance(event, yaml.SequenceEndEvent):
            return
        if isinstance(event, yaml.ScalarEvent):
            yield event.value
        elif isinstance(event, yaml.MappingStartEvent):
            yield _item(events, key)
        else:
            raise YamlRefused(f"{quote_untrusted(key)} holds a list of lists", line)


def _item(events: Iterator[Any], key: str) -> dict[str, str | list[str]]:
    """A section of a list: words, and lists of words."""
    import yaml

    found: dict[str, str | list[str]] = {}
    for event in events:
        if isinstance(event, yaml.MappingEndEvent):
            break
        line = event.start_mark.line + 1
        if not isinstance(event, yaml.ScalarEvent) or event.value in found:
            raise YamlRefused(f"{quote_untrusted(key)} holds something twice, or what is no word, as a key", line)
        value = next(events)
        if isinstance(value, yaml.ScalarEvent):
            found[event.value] = value.value
        elif isinstance(value, yaml.SequenceStartEvent):
            items = list(_list(events, key, line))
            if not all(isinstance(item, str) for item in items):
                raise YamlRefused(f"{quote_untrusted(event.value)} holds a list of what are no words", line)
            found[event.value] = [str(item) for item in items]
        else:
            raise YamlRefused(f"{quote_untrusted(event.value)} holds a section; it takes words", line)
    return found


def _json(items: list[Any]) -> str:
    import msgspec

    return msgspec.json.encode(items).decode()
