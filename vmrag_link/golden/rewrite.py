"""Recording in `.vmrag/queries.yaml`: rankings and orders change, and everything else stays byte
for byte, because a person wrote it. The places come from the parser (`yaml_tree`), and the result
is read again before it counts.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

import msgspec

from vmrag_link.errors import QueriesInvalid
from vmrag_link.golden.file import MAX_BYTES, parse_queries
from vmrag_link.golden.queries import UPDATE, GoldenFile, RankedChunk, Recording
from vmrag_link.yaml_tree import MappingEntry, MappingNode, Node, ScalarNode, SequenceNode, decode_text, parse_document

RankedChunks = tuple[RankedChunk, ...]

_PLAIN = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.+@/-]*/[A-Za-z0-9_.+@/-]*")


class _Change(NamedTuple):
    """Characters `start` to `end` of the text become `written`."""

    start: int
    end: int
    written: str


class RecordedAnswers(NamedTuple):
    """What is written, by the number of the query, counted from 0."""

    rankings: Mapping[int, RankedChunks]
    orders: Mapping[int, tuple[str, ...]] = {}


def record_answers(data: bytes, answers: RecordedAnswers, now: Recording, label: str) -> bytes:
    """The file with these answers, and under what rankings in it were recorded.

    Raises `QueriesInvalid` where a query is written so that nothing can be added.
    """
    before = parse_queries(data, label)
    text = decode_text(data, MAX_BYTES)
    newline = "\r\n" if "\r\n" in text else "\n"
    recorded = now if answers.rankings or before.recorded else None
    changes = list(_changes(text, answers, recorded))
    for change in sorted(changes, reverse=True):
        text = text[: change.start] + change.written.replace("\n", newline) + text[change.end :]
    mark = data[:3] if data.startswith(b"\xef\xbb\xbf") else b""
    written = mark + text.encode()
    _require_recorded(written, before, answers, recorded, label)
    return written


def rename_documents(data: bytes, names: Mapping[str, str], label: str) -> bytes:
    """Return the file with documents and collections under their new names.

    Raises `QueriesInvalid` for a file that cannot be read.
    """
    parse_queries(data, label)
    text = decode_text(data, MAX_BYTES)
    changes = [
        _Change(node.start, node.end, _yaml_text(names[node.text]))
        for query in _query_nodes(text)
        for key in _NAMING
        if key in query.entries
        for node in _scalars(query.entries[key].value)
        if node.text in names
    ]
    for change in sorted(changes, reverse=True):
        text = text[: change.start] + change.written + text[change.end :]
    mark = data[:3] if data.startswith(b"\xef\xbb\xbf") else b""
    written = mark + text.encode()
    parse_queries(written, label)
    return written


_NAMING = ("expect", "first", "order", "ranking", "collection")
"""Keys of a query that name documents or collections."""


def _query_nodes(text: str) -> Iterator[MappingNode]:
    root = parse_document(text)
    entry = root.entries.get("queries") if isinstance(root, MappingNode) else None
    items = entry.value.items if entry and isinstance(entry.value, SequenceNode) else ()
    yield from (item for item in items if isinstance(item, MappingNode))


def _scalars(node: Node) -> Iterator[ScalarNode]:
    match node:
        case ScalarNode():
            yield node
        case SequenceNode():
            for item in node.items:
                yield from _scalars(item)
        case MappingNode():
            if "document" in node.entries:
                yield from _scalars(node.entries["document"].value)


def _require_recorded(
    written: bytes, before: GoldenFile, answers: RecordedAnswers, recorded: Recording | None, label: str
) -> None:
    wanted = [
        msgspec.structs.replace(
            query,
            line=0,
            ranking=answers.rankings.get(number, query.ranking),
            order=answers.orders.get(number, query.order),
        )
        for number, query in enumerate(before.queries)
    ]
    try:
        after = parse_queries(written, label)
    except QueriesInvalid as error:
        raise _unwritable(label) from error
    if after.recorded != recorded or [msgspec.structs.replace(each, line=0) for each in after.queries] != wanted:
        raise _unwritable(label)


def _unwritable(label: str) -> QueriesInvalid:
    return QueriesInvalid(
        f"{label} is written in a way in which rankings cannot be added; it stays as it was.",
        hint=f"Write each query as a list item with one `key: value` a line, then: {UPDATE}",
        file=label,
    )


def _changes(text: str, answers: RecordedAnswers, recorded: Recording | None) -> Iterator[_Change]:
    root = parse_document(text)
    assert isinstance(root, MappingNode)  # noqa: S101  `read` has read it
    queries = root.entries["queries"]
    assert isinstance(queries.value, SequenceNode)  # noqa: S101  likewise
    if recorded:
        yield _recording_change(root, queries, recorded)
    rankings = {number: list(map(_ranking_row, ranking)) for number, ranking in answers.rankings.items()}
    orders = {number: list(map(_yaml_text, order)) for number, order in answers.orders.items()}
    for key, lists in (("ranking", rankings), ("order", orders)):
        for number, rows in lists.items():
            query = queries.value.items[number]
            assert isinstance(query, MappingNode)  # noqa: S101  likewise
            yield _list_change(text, query, key, rows)


def _ranking_row(chunk: RankedChunk) -> str:
    return f"{{document: {_yaml_text(chunk.document)}, chunk: {chunk.chunk}, score: {_number(chunk.score)}}}"


def _recording_change(root: MappingNode, queries: MappingEntry, recorded: Recording) -> _Change:
    pairs = ", ".join(f"{name}: {_number(value)}" for name, value in msgspec.structs.asdict(recorded).items())
    written = f"recorded: {{{pairs}}}"
    if there := root.entries.get("recorded"):
        return _Change(there.key.start, there.value.end, written)
    between = ", " if root.flow else "\n" + " " * root.column
    return _Change(queries.key.start, queries.key.start, written + between)


def _list_change(text: str, query: MappingNode, key: str, rows: Sequence[str]) -> _Change:
    there = query.entries.get(key)
    if query.flow:
        written = f"{key}: [{', '.join(rows)}]"
        if there:
            return _Change(there.key.start, there.value.end, written)
        last = [*query.entries.values()][-1].value.end
        return _Change(last, last, f", {written}")
    indent = " " * query.column
    written = "\n".join([f"{key}:", *(f"{indent}  - {row}" for row in rows)]) if rows else f"{key}: []"
    if there:
        return _Change(there.key.start, there.value.end, written)
    end = text.find("\n", query.end)
    if text[query.end - 1] == "\n":  # behind a text of several lines
        return _Change(query.end, query.end, f"{indent}{written}\n")
    if end < 0:
        return _Change(len(text), len(text), f"\n{indent}{written}\n")
    return _Change(end + 1, end + 1, f"{indent}{written}\n")


def _number(value: float | str) -> str:
    return value if isinstance(value, str) else json.dumps(value)


def _yaml_text(document: str) -> str:
    """As YAML: in quotes where it could be taken for something else."""
    if _PLAIN.fullmatch(document):
        return document
    escaped = document.replace("\\", "\\\\").replace('"', '\\"')
    shown = "".join(each if each.isprintable() else "\\" + f"U{ord(each):08x}" for each in escaped)
    return f'"{shown}"'
