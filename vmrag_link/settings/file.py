"""`.vmrag.yaml` as a flat list of texts with their lines.

The file is untrusted. The code only reads the events of the parser, one after the other
(`yaml_tree.parse_events`), and does not recurse.
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
_HINT = "write the settings as plain 'key: value' lines, with sections indented by two spaces"


def read_entries(data: bytes, label: str) -> list[SettingEntry]:
    """Return the entries in the order of the file.

    Raises `ConfigInvalid` with the details `file` (= `label`) and `line`.
    """
    try:
        return list(_list_entries(decode_text(data, MAX_BYTES)))
    except YamlRefused as flaw:
        if marker := re.search(_CONFLICT_MARKER, data):  # a valid file cannot contain a marker
            raise invalid_setting(
                "has a conflict marker of a git merge",
                label=label,
                line=data.count(b"\n", 0, marker.start()) + 1,
                hint=f"edit the file, remove the markers, then run 'git add {CONFIG_NAME}' to stage the resolved file",
            ) from None
        raise invalid_setting(flaw.reason, label=label, line=flaw.line, hint=flaw.hint or _HINT) from None


def invalid_setting(reason: str, *, label: str, line: int, hint: str, **details: Any) -> ConfigInvalid:
    return ConfigInvalid(f"{label}, line {line}: {reason}", hint=hint, file=label, line=line, **details)


def _list_entries(text: str) -> Iterator[SettingEntry]:
    if is_blank(text):
        return  # as `vmrag init` writes it

    import yaml

    # All events are parsed at once, because a parser that reads ahead could change which flaw is
    # reported.
    events = iter([*yaml_tree.parse_events(text)])
    root = next(events, None)
    if root is None or (isinstance(root, yaml.ScalarEvent) and not root.value and root.implicit[0]):
        return
    if not isinstance(root, yaml.MappingStartEvent):
        raise YamlRefused("the file must consist of `key: value` lines", root.start_mark.line + 1)
    yield from _read_mapping(events, "", set())
    next(events, None)  # raises for a second document


def _read_mapping(events: Iterator[Any], prefix: str, seen: set[str]) -> Iterator[SettingEntry]:
    import yaml

    for event in events:
        if isinstance(event, yaml.MappingEndEvent):
            return
        line = event.start_mark.line + 1
        if not isinstance(event, yaml.ScalarEvent):
            raise YamlRefused("a key must be a word", line)
        key = prefix + event.value
        if event.value == MERGE_KEY:
            raise YamlRefused("merge keys (<<) are not allowed", line)
        if key in seen:
            raise YamlRefused(f"{quote_untrusted(key)} occurs twice", line, "delete one of the two")
        seen.add(key)
        value = next(events)
        if isinstance(value, yaml.ScalarEvent):
            yield SettingEntry(key, value.value, not value.implicit[0], line, section=prefix.removesuffix("."))
        elif isinstance(value, yaml.MappingStartEvent) and not prefix:
            yield SettingEntry(key, None, False, line)
            yield from _read_mapping(events, key + ".", seen)
        elif isinstance(value, yaml.SequenceStartEvent):
            items = list(_read_list(events, key, line))
            text = ",".join(map(str, items)) if all(isinstance(item, str) for item in items) else _encode_json(items)
            yield SettingEntry(key, text, True, line, listed=True)
        else:
            raise YamlRefused(f"{quote_untrusted(key)} is a section, which is not allowed for a setting", line)


def _read_list(events: Iterator[Any], key: str, line: int) -> Iterator[str | dict[str, str | list[str]]]:
    import yaml

    for event in events:
        if isinstance(event, yaml.SequenceEndEvent):
            return
        if isinstance(event, yaml.ScalarEvent):
            yield event.value
        elif isinstance(event, yaml.MappingStartEvent):
            yield _read_item(events, key)
        else:
            raise YamlRefused(f"{quote_untrusted(key)} is a list of lists, which is not allowed", line)


def _read_item(events: Iterator[Any], key: str) -> dict[str, str | list[str]]:
    """Read a section of a list: words, and lists of words."""
    import yaml

    section: dict[str, str | list[str]] = {}
    for event in events:
        if isinstance(event, yaml.MappingEndEvent):
            break
        line = event.start_mark.line + 1
        if not isinstance(event, yaml.ScalarEvent) or event.value in section:
            raise YamlRefused(f"{quote_untrusted(key)} has a duplicate key, or a key that is not a word", line)
        value = next(events)
        if isinstance(value, yaml.ScalarEvent):
            section[event.value] = value.value
        elif isinstance(value, yaml.SequenceStartEvent):
            items = list(_read_list(events, key, line))
            if not all(isinstance(item, str) for item in items):
                raise YamlRefused(f"{quote_untrusted(event.value)} is a list with values that are not words", line)
            section[event.value] = [str(item) for item in items]
        else:
            raise YamlRefused(f"{quote_untrusted(event.value)} is a section, but must be words", line)
    return section


def _encode_json(items: list[Any]) -> str:
    import msgspec

    return msgspec.json.encode(items).decode()
