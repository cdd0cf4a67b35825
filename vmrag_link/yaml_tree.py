"""Untrusted YAML files that users write: as events, and as a tree whose nodes know their positions
in the text.

The positions allow edits that keep all other text. No object is constructed and no alias is
expanded. Tags, anchors and merge keys are refused.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any, NamedTuple, TypeAlias

from vmrag_link.pin_values import quote_untrusted

# Characters that YAML does not allow, and three that end a line in YAML 1.1, but in no editor.
_STRANGE = "[^\t\n\r\x20-\x7e\xa0-\u2027\u202a-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]"

MERGE_KEY = "<<"

MAX_DEPTH = 100
_TOO_DEEP = f"is nested deeper than {MAX_DEPTH} levels"


class YamlRefused(Exception):
    """The file is not accepted.

    `reason` completes `FILE, line N: …`, with lines from 1. `hint` is empty if the reader of the
    file knows a better one.
    """

    def __init__(self, reason: str, line: int, hint: str = "") -> None:
        super().__init__(reason)
        self.reason = reason
        self.line = line
        self.hint = hint


def decode_text(data: bytes, max_bytes: int) -> str:
    """Decode a file of at most `max_bytes`, and remove its byte order mark.

    Raises `YamlRefused`.
    """
    if len(data) > max_bytes:
        raise YamlRefused(f"the file has {len(data)} bytes; at most {max_bytes} are read", 1)
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        raise YamlRefused("is not UTF-8", line, "save the file as UTF-8") from None
    plain = text.translate({ord(character): None for character in "\t\n\r"}).isprintable()
    if not plain and (strange := re.search(_STRANGE, text)):  # compiling it takes longer than anything else here
        line = text.count("\n", 0, strange.start()) + 1
        raise YamlRefused(f"holds a control character: {quote_untrusted(strange[0])}", line)
    return text


def is_blank(text: str) -> bool:
    """Return whether a text has only comments.

    Loading YAML would take as long as all other work of a checkout.
    """
    return all(line.lstrip(" ").startswith("#") or not line.strip() for line in text.splitlines())


def parse_events(text: str) -> Iterator[Any]:
    """Yield the events of the document, without those that enclose it.

    Raises `YamlRefused` during the iteration.
    """
    import yaml

    frame = (yaml.StreamStartEvent, yaml.StreamEndEvent, yaml.DocumentStartEvent, yaml.DocumentEndEvent)
    documents = levels = 0
    try:
        events_iterator: Iterator[Any] = yaml.parse(text, Loader=getattr(yaml, "CSafeLoader", yaml.SafeLoader))
        for event in events_iterator:
            line = event.start_mark.line + 1
            levels -= isinstance(event, yaml.CollectionEndEvent)
            if levels > MAX_DEPTH:
                raise YamlRefused(_TOO_DEEP, line)
            levels += isinstance(event, yaml.CollectionStartEvent)
            if getattr(event, "anchor", None) is not None:
                raise YamlRefused("anchors and aliases (&, *) are not allowed", line)
            if getattr(event, "tag", None) is not None:
                raise YamlRefused(f"tags are not allowed: {quote_untrusted(event.tag)}", line)
            documents += isinstance(event, yaml.DocumentStartEvent)
            if isinstance(event, frame):
                continue
            if documents > 1:
                raise YamlRefused("a second YAML document begins here", line)
            yield event
    except yaml.MarkedYAMLError as error:
        lines = text.splitlines()
        # The parser reports a missing end on a line after the last one.
        line = min(error.problem_mark.line + 1 if error.problem_mark else 1, len(lines))
        problem = error.problem or "cannot be parsed"
        if "nesting depth" in problem:  # libyaml 0.2.6 reads ahead, and meets its own limit of 1,000 levels first
            raise YamlRefused(_TOO_DEEP, line) from None
        raise YamlRefused(f"is not YAML: {problem}", line, _syntax_hint(lines[line - 1], problem)) from None
    except yaml.reader.ReaderError as error:
        line = text.count("\n", 0, error.position) + 1
        raise YamlRefused(f"is not YAML: {error.reason}", line) from None


def _syntax_hint(content: str, problem: str) -> str:
    if "\t" in content:
        return "indent with spaces instead of the tab"
    if "mapping values" in problem:
        return "put a value with a colon into quotes, such as 'remote: \"git:\"'"
    return ""


MAX_NODES = 250_000

_WHOLE = re.compile(r"-?(?:0|[1-9][0-9]{0,18})")
_FRACTION = re.compile(r"-?(?:0|[1-9][0-9]{0,18})(?:\.[0-9]{1,40})?(?:[eE][-+]?[0-9]{1,3})?")
_WORDS = {"true": True, "false": False, "null": None, "~": None, "": None}


class ScalarNode(NamedTuple):
    """A single value.

    `start` and `end` are offsets in characters; `line` counts from 1.
    """

    text: str
    quoted: bool
    line: int
    start: int
    end: int


class SequenceNode(NamedTuple):
    items: list[Node]
    line: int
    start: int
    end: int


class MappingNode(NamedTuple):
    """A mapping.

    `flow` is True if it is written in braces. `column` is that of its first key, from 0. `end` is
    after its last value, or after the closing brace.
    """

    entries: dict[str, MappingEntry]
    flow: bool
    line: int
    column: int
    start: int
    end: int


class MappingEntry(NamedTuple):
    key: ScalarNode
    value: Node


Node: TypeAlias = ScalarNode | SequenceNode | MappingNode


def parse_document(text: str) -> Node | None:
    """Return the document of a file, or None if it is empty.

    Raises `YamlRefused`.
    """
    events_iterator = parse_events(text)
    first = next(events_iterator, None)
    if first is None:
        return None
    root = _Builder(events_iterator).build_node(first)
    next(events_iterator, None)  # raises for a second document
    return root


def convert_to_plain(node: Node) -> Any:
    """Convert a node to the values of JSON.

    Unquoted numbers and `true`, `false` and `null` have the meaning of YAML 1.2. Everything else is
    text, also `yes` and `2024-01-01`.
    """
    match node:
        case ScalarNode():
            return _convert_scalar(node)
        case SequenceNode():
            return [convert_to_plain(item) for item in node.items]
        case MappingNode():
            return {name: convert_to_plain(entry.value) for name, entry in node.entries.items()}


def _convert_scalar(node: ScalarNode) -> Any:
    if node.quoted:
        return node.text
    if node.text in _WORDS:
        return _WORDS[node.text]
    if _WHOLE.fullmatch(node.text):
        return int(node.text)
    return float(node.text) if _FRACTION.fullmatch(node.text) else node.text


class _Builder:
    def __init__(self, events_iterator: Iterator[Any]) -> None:
        self._events = events_iterator
        self._nodes = 0

    def build_node(self, event: Any) -> Node:
        line = event.start_mark.line + 1
        self._nodes += 1
        if self._nodes > MAX_NODES:
            raise YamlRefused(f"the file has more than {MAX_NODES:,} values", line)
        match type(event).__name__:
            case "ScalarEvent":
                return ScalarNode(
                    event.value, not event.implicit[0], line, event.start_mark.index, event.end_mark.index
                )
            case "SequenceStartEvent":
                return self._build_sequence(event)
            case _:
                return self._build_mapping(event)

    def _build_sequence(self, event: Any) -> SequenceNode:
        items: list[Node] = []
        end: int = event.end_mark.index
        while not _is_closed(last := next(self._events)):
            items.append(self.build_node(last))
            end = items[-1].end
        mark = event.start_mark
        return SequenceNode(items, mark.line + 1, mark.index, last.end_mark.index if event.flow_style else end)

    def _build_mapping(self, event: Any) -> MappingNode:
        entries: dict[str, MappingEntry] = {}
        end, column = event.end_mark.index, event.start_mark.column
        while not _is_closed(last := next(self._events)):
            key = self._read_key(last, entries)
            column = column if entries else last.start_mark.column
            entries[key.text] = MappingEntry(key, self.build_node(next(self._events)))
            end = entries[key.text].value.end
        mark, flow = event.start_mark, bool(event.flow_style)
        return MappingNode(
            entries=entries,
            flow=flow,
            line=mark.line + 1,
            column=column,
            start=mark.index,
            end=last.end_mark.index if flow else end,
        )

    def _read_key(self, event: Any, entries: dict[str, MappingEntry]) -> ScalarNode:
        key = self.build_node(event)
        if not isinstance(key, ScalarNode):
            raise YamlRefused("a key must be a word", key.line)
        if key.text == MERGE_KEY and not key.quoted:
            raise YamlRefused("merge keys (<<) are not allowed", key.line)
        if key.text in entries:
            raise YamlRefused(f"{quote_untrusted(key.text)} occurs twice", key.line, "delete one of the two")
        return key


def _is_closed(event: Any) -> bool:
    return type(event).__name__ in ("SequenceEndEvent", "MappingEndEvent")
