"""Change `.vmrag/queries.yaml`: record rankings and orders, or rename documents.

Everything else, which a user wrote, is kept byte for byte. The parser (`yaml_tree`) gives the
position of each value in the text, and the result is parsed again before it is used.
"""

from __future__ import annotations

import json
import re
from codecs import BOM_UTF8
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

import msgspec

from vmrag_link.errors import QueriesInvalid
from vmrag_link.golden.file import MAX_BYTES, parse_queries
from vmrag_link.golden.queries import UPDATE, GoldenFile, RankedChunk, Recording
from vmrag_link.yaml_tree import MappingEntry, MappingNode, Node, ScalarNode, SequenceNode, decode_text, parse_document

RankedChunks = tuple[RankedChunk, ...]

_NAME_KEYS = ("expect", "first", "order", "ranking", "collection")
"""Keys of a query whose values are names of documents or collections."""

_PLAIN = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.+@/-]*/[A-Za-z0-9_.+@/-]*")


class _Change(NamedTuple):
    """Replacement of the characters from `start` to `end` with `written`."""

    start: int
    end: int
    written: str


class RecordedAnswers(NamedTuple):
    """Answers to record, by the number of the query, counted from 0."""

    rankings: Mapping[int, RankedChunks]
    orders: Mapping[int, tuple[str, ...]] = {}


def record_answers(data: bytes, answers: RecordedAnswers, now: Recording, label: str) -> bytes:
    """Return the file with these answers, and the conditions under which its rankings were
    recorded.

    Raises `QueriesInvalid` if a query is written so that nothing can be added.
    """
    before = parse_queries(data, label)
    text = decode_text(data, MAX_BYTES)
    newline = "\r\n" if "\r\n" in text else "\n"
    recorded = now if answers.rankings or before.recorded else None
    changes = [
        change._replace(written=change.written.replace("\n", newline))
        for change in _list_changes(text, answers, recorded)
    ]
    written = _apply_changes(data, text, changes)
    _require_recorded(written, before, answers, recorded, label)
    return written


def rename_documents(data: bytes, names: Mapping[str, str], label: str) -> bytes:
    """Return the file with documents and collections under their new names.

    Raises `QueriesInvalid` for a file that cannot be read.
    """
    parse_queries(data, label)
    text = decode_text(data, MAX_BYTES)
    changes = [
        _Change(node.start, node.end, _quote_yaml(names[node.text]))
        for query in _list_query_nodes(text)
        for key in _NAME_KEYS
        if key in query.entries
        for node in _list_scalars(query.entries[key].value)
        if node.text in names
    ]
    written = _apply_changes(data, text, changes)
    parse_queries(written, label)
    return written


def _apply_changes(data: bytes, text: str, changes: Iterable[_Change]) -> bytes:
    """Return the changed file. `text`: that of the file `data`, which may begin with a byte order
    mark.
    """
    for change in sorted(changes, reverse=True):  # from the end, so that the other positions stay
        text = text[: change.start] + change.written + text[change.end :]
    return (BOM_UTF8 if data.startswith(BOM_UTF8) else b"") + text.encode()


def _list_query_nodes(text: str) -> Iterator[MappingNode]:
    root = parse_document(text)
    entry = root.entries.get("queries") if isinstance(root, MappingNode) else None
    items = entry.value.items if entry and isinstance(entry.value, SequenceNode) else ()
    yield from (item for item in items if isinstance(item, MappingNode))


def _list_scalars(node: Node) -> Iterator[ScalarNode]:
    match node:
        case ScalarNode():
            yield node
        case SequenceNode():
            for item in node.items:
                yield from _list_scalars(item)
        case MappingNode():
            if "document" in node.entries:
                yield from _list_scalars(node.entries["document"].value)


def _require_recorded(
    written: bytes, before: GoldenFile, answers: RecordedAnswers, recorded: Recording | None, label: str
) -> None:
    expected = [
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
        raise _build_format_error(label) from error
    if after.recorded != recorded or [msgspec.structs.replace(query, line=0) for query in after.queries] != expected:
        raise _build_format_error(label)


def _build_format_error(label: str) -> QueriesInvalid:
    return QueriesInvalid(
        f"cannot add rankings to {label}: its format is not supported.",
        hint=f"write each query as a list item with one 'key: value' per line, then run '{UPDATE}'",
        file=label,
    )


def _list_changes(text: str, answers: RecordedAnswers, recorded: Recording | None) -> Iterator[_Change]:
    root = parse_document(text)
    assert isinstance(root, MappingNode)  # noqa: S101  `parse_queries` has read it
    queries = root.entries["queries"]
    assert isinstance(queries.value, SequenceNode)  # noqa: S101  `parse_queries` has read it
    if recorded:
        yield _build_recording_change(root, queries, recorded)
    rankings = {number: list(map(_format_chunk, ranking)) for number, ranking in answers.rankings.items()}
    orders = {number: list(map(_quote_yaml, order)) for number, order in answers.orders.items()}
    for key, lists in (("ranking", rankings), ("order", orders)):
        for number, rows in lists.items():
            query = queries.value.items[number]
            assert isinstance(query, MappingNode)  # noqa: S101  `parse_queries` has read it
            yield _build_list_change(text, query, key, rows)


def _format_chunk(chunk: RankedChunk) -> str:
    return f"{{document: {_quote_yaml(chunk.document)}, chunk: {chunk.chunk}, score: {_format_number(chunk.score)}}}"


def _build_recording_change(root: MappingNode, queries: MappingEntry, recorded: Recording) -> _Change:
    pairs = ", ".join(f"{name}: {_format_number(value)}" for name, value in msgspec.structs.asdict(recorded).items())
    written = f"recorded: {{{pairs}}}"
    existing = root.entries.get("recorded")
    if existing:
        return _Change(existing.key.start, existing.value.end, written)
    between = ", " if root.flow else "\n" + " " * root.column
    return _Change(queries.key.start, queries.key.start, written + between)


def _build_list_change(text: str, query: MappingNode, key: str, rows: Sequence[str]) -> _Change:
    existing = query.entries.get(key)
    if query.flow:
        written = f"{key}: [{', '.join(rows)}]"
        if existing:
            return _Change(existing.key.start, existing.value.end, written)
        last = [*query.entries.values()][-1].value.end
        return _Change(last, last, f", {written}")
    indent = " " * query.column
    written = "\n".join([f"{key}:", *(f"{indent}  - {row}" for row in rows)]) if rows else f"{key}: []"
    if existing:
        return _Change(existing.key.start, existing.value.end, written)
    end = text.find("\n", query.end)
    if text[query.end - 1] == "\n":  # after a multi-line text
        return _Change(query.end, query.end, f"{indent}{written}\n")
    if end < 0:
        return _Change(len(text), len(text), f"\n{indent}{written}\n")
    return _Change(end + 1, end + 1, f"{indent}{written}\n")


def _format_number(value: float | str) -> str:
    return value if isinstance(value, str) else json.dumps(value)


def _quote_yaml(document: str) -> str:
    """Return a text as YAML, in quotes if it could be read as something else."""
    if _PLAIN.fullmatch(document):
        return document
    escaped = document.replace("\\", "\\\\").replace('"', '\\"')
    shown = "".join(character if character.isprintable() else "\\" + f"U{ord(character):08x}" for character in escaped)
    return f'"{shown}"'
