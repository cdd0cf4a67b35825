"""Read `.vmrag/queries.yaml` into records, or report the line and the reason why not.

The file is untrusted. The helpers raise `YamlRefused` with a line, and `parse_queries` turns it
into `QueriesInvalid`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, TypeVar

import msgspec

from vmrag_link.errors import FilterInvalid, QueriesInvalid, enumerated, nearest
from vmrag_link.golden.queries import UPDATE, GoldenFile, GoldenQuery, RankedChunk, Recording
from vmrag_link.pin_values import quote_untrusted
from vmrag_link.retrieval import filters
from vmrag_link.retrieval.query import Mode
from vmrag_link.yaml_tree import (
    MappingEntry,
    MappingNode,
    Node,
    ScalarNode,
    SequenceNode,
    YamlRefused,
    convert_to_plain,
    decode_text,
    parse_document,
)

MAX_BYTES = 4 * 1024 * 1024
MAX_QUERIES = 5000
_MAX_TEXT_CHARACTERS = 4000
_MAX_ID_CHARACTERS = 100
MAX_K = 1000

T = TypeVar("T")

_EXAMPLE = "write a query such as '- {query: how do keys rotate?, expect: [handbook/keys.md]}'"
_FILE_KEYS = ("queries", "recorded")
_QUERY_KEYS = tuple("query collection mode k where where_document expect first order within ranking id".split())
_CHUNK_KEYS = ("document", "chunk", "score")


def parse_queries(data: bytes, label: str) -> GoldenFile:
    """Return the queries in a file.

    Raises `QueriesInvalid` with the details `file` (= `label`) and `line`, also for invalid
    filters, with their reason.
    """
    try:
        root = parse_document(decode_text(data, MAX_BYTES))
        return _parse_file(root)
    except YamlRefused as flaw:
        message = f"{label}, line {flaw.line}: {flaw.reason}"
        raise QueriesInvalid(message, hint=flaw.hint or _EXAMPLE, file=label, line=flaw.line) from None


def _parse_file(root: Node | None) -> GoldenFile:
    if root is None or (isinstance(root, ScalarNode) and not root.text and not root.quoted):
        raise YamlRefused("the file has no queries", 1)
    entries = _parse_fields(root, _FILE_KEYS, "the file")
    if "queries" not in entries:
        raise YamlRefused("the list `queries:` is missing", root.line)
    items = _parse_list(entries["queries"], "queries")
    if not items:
        raise YamlRefused("the file has no queries", entries["queries"].key.line)
    if len(items) > MAX_QUERIES:
        raise YamlRefused(f"the file has {len(items):,} queries, more than {MAX_QUERIES:,}", items[MAX_QUERIES].line)
    recorded = _parse_recording(entries["recorded"]) if "recorded" in entries else None
    queries = tuple(map(_parse_query, items))
    _require_unique_ids(queries)
    return GoldenFile(queries, recorded)


def _require_unique_ids(queries: Iterable[GoldenQuery]) -> None:
    lines_by_id: dict[str, int] = {}
    for query in queries:
        line = lines_by_id.setdefault(query.id, query.line)
        if query.id and line != query.line:
            raise YamlRefused(f"the query in line {line} already has the id {quote_untrusted(query.id)}", query.line)


def _parse_recording(entry: MappingEntry) -> Recording:
    try:
        return msgspec.convert(convert_to_plain(entry.value), Recording)
    except msgspec.ValidationError as error:
        hint = f"delete the line, then run '{UPDATE}'"
        raise YamlRefused(f"`recorded` does not have vmrag's format: {error}", entry.key.line, hint) from None


def _parse_query(node: Node) -> GoldenQuery:
    entries = _parse_fields(node, _QUERY_KEYS, "a query")
    if "query" not in entries:
        raise YamlRefused("a query needs a text: `query: …`", node.line)
    line = entries["query"].key.line

    def parse_optional(name: str, read: Callable[[MappingEntry], T]) -> T | None:
        return read(entries[name]) if name in entries else None

    query = GoldenQuery(
        text=_parse_text(entries["query"].value, "query", max_characters=_MAX_TEXT_CHARACTERS),
        line=line,
        collections=parse_optional("collection", lambda entry: tuple(_parse_names(entry))),
        mode=parse_optional("mode", _parse_mode),
        k=parse_optional("k", lambda entry: _parse_number(entry, 1)),
        where=parse_optional("where", lambda entry: _parse_filter(entry, filters.normalize_where)),
        where_document=parse_optional("where_document", lambda entry: _parse_filter(entry, _check_text_filter)),
        expect=tuple(_parse_document(item) for item in _parse_items(entries.get("expect"), "expect")),
        first=parse_optional("first", lambda entry: _parse_document(entry.value)),
        order=parse_optional("order", lambda entry: tuple(map(_parse_document, _parse_list(entry, "order")))),
        within=parse_optional("within", lambda entry: _parse_number(entry, 0)) or 0,
        ranking=parse_optional("ranking", lambda entry: tuple(map(_parse_chunk, _parse_list(entry, "ranking")))),
        id=parse_optional("id", lambda entry: _parse_text(entry.value, "id", max_characters=_MAX_ID_CHARACTERS)) or "",
    )
    _require_findable(query)
    return query


def _require_findable(query: GoldenQuery) -> None:
    """Raise `YamlRefused` if a query expects a document of a collection that it does not search."""
    if query.within and query.order is None:
        raise YamlRefused("`within` limits how far documents of `order` may move, but `order` is missing", query.line)
    for document in filter(None, (*query.expect, query.first, *(query.order or ()))):
        if query.collections and not any(document.startswith(f"{name}/") for name in query.collections):
            collection = document.partition("/")[0]
            reason = (
                f"{quote_untrusted(document)} is expected, but the query searches only {enumerated(query.collections)}"
            )
            raise YamlRefused(
                reason, query.line, f"write 'collection: {collection}', or omit it to search all collections"
            )


def _parse_mode(entry: MappingEntry) -> Mode:
    text = _parse_text(entry.value, "mode")
    if text not in set(Mode):
        raise YamlRefused(
            f"mode must be one of {', '.join(Mode)}; found {quote_untrusted(text)}",
            entry.value.line,
            "write 'mode: hybrid'",
        )
    return Mode(text)


def _parse_number(entry: MappingEntry, least: int) -> int:
    value = convert_to_plain(entry.value)
    if not isinstance(value, int) or isinstance(value, bool) or not least <= value <= MAX_K:
        raise YamlRefused(f"{entry.key.text} must be a whole number from {least} to {MAX_K}", entry.value.line)
    return value


def _parse_filter(entry: MappingEntry, check: Callable[[Any], Any]) -> dict[str, Any]:
    """Return a filter of Chroma. `check`: raises `FilterInvalid`."""
    value = convert_to_plain(entry.value)
    if not isinstance(value, dict):
        raise YamlRefused(f"{entry.key.text} must be a filter, such as {{status: open}}", entry.value.line)
    try:
        check(value)
    except FilterInvalid as error:
        raise YamlRefused(f"{entry.key.text}: {error.message}", entry.value.line, error.hint) from None
    return value


def _check_text_filter(value: dict[str, Any]) -> None:
    condition = filters.normalize_where_document(value)
    if condition:
        filters.compile_where_document(condition)  # rejects invalid regular expressions


def _parse_document(node: Node) -> str:
    text = _parse_text(node, "a document")
    collection, _, doc_id = text.partition("/")
    if not collection or not doc_id:
        raise YamlRefused(
            f"a document name must be COLLECTION/DOC; found {quote_untrusted(text)}",
            node.line,
            "run 'vmrag list' to list the names",
        )
    return text


def _parse_chunk(node: Node) -> RankedChunk:
    entries = _parse_fields(node, _CHUNK_KEYS, "a place in a ranking")
    value = {name: convert_to_plain(entry.value) for name, entry in entries.items()}
    if "document" in entries:
        value["document"] = _parse_document(entries["document"].value)
    try:
        return msgspec.convert(value, RankedChunk)
    except msgspec.ValidationError as error:
        raise YamlRefused(f"a place in a ranking: {error}", node.line, f"run '{UPDATE}' to record it again") from None


def _parse_fields(node: Node, allowed: Iterable[str], what: str) -> dict[str, MappingEntry]:
    names = list(allowed)
    if not isinstance(node, MappingNode):
        raise YamlRefused(f"{what} must be `key: value` lines", node.line)
    for name, entry in node.entries.items():
        if name not in names:
            near = nearest(name, names)
            meant = f"; the nearest is {near}" if near else ""
            hint = f"write '{near}', or delete the key" if near else f"use one of these keys: {', '.join(names)}"
            raise YamlRefused(f"unknown key {quote_untrusted(name)} in {what}{meant}", entry.key.line, hint)
    return node.entries


def _parse_list(entry: MappingEntry, what: str) -> list[Node]:
    if not isinstance(entry.value, SequenceNode):
        hint = f"write '{what}: []', then run '{UPDATE}' to record it" if what in ("ranking", "order") else ""
        raise YamlRefused(f"{what} must be a list", entry.value.line, hint)
    return entry.value.items


def _parse_items(entry: MappingEntry | None, what: str) -> list[Node]:
    """Return the items of a list. A single item needs no brackets."""
    if entry is None:
        return []
    items: list[Node] = [entry.value] if isinstance(entry.value, ScalarNode) else _parse_list(entry, what)
    if not items:
        raise YamlRefused(f"{what} is empty", entry.value.line)
    return items


def _parse_names(entry: MappingEntry) -> list[str]:
    return [_parse_text(item, entry.key.text) for item in _parse_items(entry, entry.key.text)]


def _parse_text(node: Node, what: str, *, max_characters: int = 1000) -> str:
    """Return a text as written, because a query may be a number."""
    if not isinstance(node, ScalarNode) or not node.text:
        raise YamlRefused(f"{what} must be text", node.line)
    if len(node.text) > max_characters:
        raise YamlRefused(f"{what} has {len(node.text):,} characters, more than {max_characters:,}", node.line)
    return node.text
