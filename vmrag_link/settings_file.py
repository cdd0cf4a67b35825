"""`.vmrag.yaml` as a flat list of texts with their lines: YAML's tricks are refused before anything
is built of them.

The file comes from strangers. Only the parser's events are looked at, one after the other: no
object is constructed, no alias is expanded, and nothing recurses.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from vmrag_link.errors import ConfigInvalid
from vmrag_link.models import Record
from vmrag_link.pin_values import shown

MAX_BYTES = 64 * 1024

# What YAML does not allow, and the three characters that end a line for YAML 1.1 but for no editor.
_STRANGE = "[^\t\n\r\x20-\x7e\xa0-\u2027\u202a-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]"


class SettingEntry(Record, frozen=True):
    """What the file says about one key: `index: {keep: 4}` and `index.keep: 4` both give the key
    `index.keep`.

    `text` is the value as written, None where a section begins; `line` counts from 1.
    """

    key: str
    text: str | None
    quoted: bool
    line: int


def read(data: bytes, label: str) -> list[SettingEntry]:
    """The entries in the order of the file.

    Raises `ConfigInvalid` with the details `file` (= `label`) and `line`.
    """
    try:
        return list(_entries(_decode(data)))
    except _Flaw as flaw:
        raise invalid(flaw.reason, label=label, line=flaw.line, hint=flaw.hint) from None


def invalid(reason: str, *, label: str, line: int, hint: str, **details: Any) -> ConfigInvalid:
    return ConfigInvalid(f"{label}, line {line}: {reason}", hint=hint, file=label, line=line, **details)


class _Flaw(Exception):
    def __init__(self, reason: str, line: int, hint: str = "Write the settings as plain `key: value` lines.") -> None:
        super().__init__(reason)
        self.reason = reason
        self.line = line
        self.hint = hint


def _decode(data: bytes) -> str:
    if len(data) > MAX_BYTES:
        raise _Flaw(f"the file has {len(data)} bytes; at most {MAX_BYTES} are read", 1)
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        raise _Flaw("is not UTF-8", line, "Save the file as UTF-8.") from None
    plain = text.translate({ord(each): None for each in "\t\n\r"}).isprintable()
    if not plain and (strange := re.search(_STRANGE, text)):  # compiling it takes longer than anything else here
        line = text.count("\n", 0, strange.start()) + 1
        raise _Flaw(f"holds a control character: {shown(strange[0])}", line)
    return text


def _entries(text: str) -> Iterator[SettingEntry]:
    if all(line.lstrip(" ").startswith("#") or not line.strip() for line in text.splitlines()):
        return  # as `vmrag init` writes it; YAML would take as long to load as all else that a checkout needs

    import yaml

    events = _events(text)
    root = next(events, None)
    if root is None or (isinstance(root, yaml.ScalarEvent) and not root.value and root.implicit[0]):
        return
    if not isinstance(root, yaml.MappingStartEvent):
        raise _Flaw("the file must hold `key: value` lines", root.start_mark.line + 1)
    yield from _mapping(events, "", set())
    if beyond := next(events, None):
        raise _Flaw("a second YAML document begins here", beyond.start_mark.line + 1)


def _events(text: str) -> Iterator[Any]:
    """The events between the brackets of stream and documents."""
    import yaml

    frame = (yaml.StreamStartEvent, yaml.StreamEndEvent, yaml.DocumentStartEvent, yaml.DocumentEndEvent)
    try:
        events: Iterator[Any] = yaml.parse(text, Loader=getattr(yaml, "CSafeLoader", yaml.SafeLoader))
        for event in events:
            line = event.start_mark.line + 1
            if getattr(event, "anchor", None) is not None:
                raise _Flaw("anchors and aliases (&, *) are not read", line)
            if getattr(event, "tag", None) is not None:
                raise _Flaw(f"tags are not read: {shown(event.tag)}", line)
            if not isinstance(event, frame):
                yield event
    except yaml.MarkedYAMLError as error:
        lines = text.splitlines()
        # What is missing at the end is reported on a line that is not there.
        line = min(error.problem_mark.line + 1 if error.problem_mark else 1, len(lines))
        problem = error.problem or "cannot be parsed"
        raise _Flaw(f"is not YAML: {problem}", line, _syntax_hint(lines[line - 1], problem)) from None


def _syntax_hint(content: str, problem: str) -> str:
    if "\t" in content:
        return "Indent with spaces instead of the tab."
    if "mapping values" in problem:
        return 'Put a value that holds a colon into quotes, such as remote: "git:"'
    return "Write the settings as plain `key: value` lines; sections are indented by two spaces."


def _mapping(events: Iterator[Any], prefix: str, seen: set[str]) -> Iterator[SettingEntry]:
    import yaml

    for event in events:
        if isinstance(event, yaml.MappingEndEvent):
            return
        line = event.start_mark.line + 1
        if not isinstance(event, yaml.ScalarEvent):
            raise _Flaw("a key must be a word", line)
        key = prefix + event.value
        if event.value == "<<":
            raise _Flaw("merge keys (<<) are not read", line)
        if key in seen:
            raise _Flaw(f"{shown(key)} stands there twice", line, "Delete one of the two.")
        seen.add(key)
        value = next(events)
        if isinstance(value, yaml.ScalarEvent):
            yield SettingEntry(key, value.value, not value.implicit[0], line)
        elif isinstance(value, yaml.MappingStartEvent) and not prefix:
            yield SettingEntry(key, None, False, line)
            yield from _mapping(events, key + ".", seen)
        else:
            kind = "a section" if isinstance(value, yaml.MappingStartEvent) else "a list"
            raise _Flaw(f"{shown(key)} holds {kind}; no setting does", line)
