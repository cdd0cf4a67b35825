"""`.vmrag/queries.yaml`: read into records, or the line and the reason why not. The file is a
stranger's.
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
MAX_TEXT = 4000
"""Characters of a query."""
MAX_K = 1000
MAX_ID = 100

T = TypeVar("T")

_EXAMPLE = "A query looks so: - {query: how do keys rotate?, expect: [handbook/keys.md]}"
_TOP = ("queries", "recorded")
_FIELDS = (
    "query",
    "collection",
    "mode",
    "k",
    "where",
    "where_document",
    "expect",
    "first",
    "order",
    "within",
    "ranking",
    "id",
)
_CHUNK = ("document", "chunk", "score")


def parse_queries(data: bytes, label: str) -> GoldenFile:
    """Raises `QueriesInvalid` with the details `file` (= `label`) and `line`; filters included,
    whose reason it gives.
    """
    try:
        root = parse_document(decode_text(data, MAX_BYTES))
        return _file(root)
    except YamlRefused as flaw:
        message = f"{label}, line {flaw.line}: {flaw.reason}"
        raise QueriesInvalid(message, hint=flaw.hint or _EXAMPLE, file=label, line=flaw.line) from None


def _file(root: Node | None) -> GoldenFile:
    if root is None or (isinstance(root, ScalarNode) and not root.text and not root.quoted):
        raise YamlRefused("there are no queries", 1)
    entries = _fields(root, _TOP, "the file")
    if "queries" not in entries:
        raise YamlRefused("there is no list `queries:`", root.line)
    items = _list(entries["queries"], "queries")
    if not items:
        raise YamlRefused("there are no queries", entries["queries"].key.line)
    if len(items) > MAX_QUERIES:
        raise YamlRefused(
            f"there are {len(items):,} queries; at most {MAX_QUERIES:,} are read", items[MAX_QUERIES].line
        )
    recorded = _recording(entries["recorded"]) if "recorded" in entries else None
    queries = tuple(map(_query, items))
    _require_unique_ids(queries)
    return GoldenFile(queries, recorded)


def _require_unique_ids(queries: Iterable[GoldenQuery]) -> None:
    seen: dict[str, int] = {}
    for query in queries:
        if query.id and (line := seen.setdefault(query.id, query.line)) != query.line:
            raise YamlRefused(f"the query of line {line} has the id {quote_untrusted(query.id)} already", query.line)


def _recording(entry: MappingEntry) -> Recording:
    try:
        return msgspec.convert(convert_to_plain(entry.value), Recording)
    except msgspec.ValidationError as error:
        hint = f"Delete the line; to write it again: {UPDATE}"
        raise YamlRefused(f"`recorded` is not what vmrag writes there: {error}", entry.key.line, hint) from None


def _query(node: Node) -> GoldenQuery:
    entries = _fields(node, _FIELDS, "a query")
    if "query" not in entries:
        raise YamlRefused("a query needs a text: `query: …`", node.line)
    line = entries["query"].key.line

    def optional(name: str, read: Callable[[MappingEntry], T]) -> T | None:
        return read(entries[name]) if name in entries else None

    found = GoldenQuery(
        text=_text(entries["query"].value, "query", most=MAX_TEXT),
        line=line,
        collections=optional("collection", lambda entry: tuple(_names(entry))),
        mode=optional("mode", _mode),
        k=optional("k", _k),
        where=optional("where", lambda entry: _filter(entry, filters.normalize_where)),
        where_document=optional("where_document", lambda entry: _filter(entry, _text_filter)),
        expect=tuple(_document(item) for item in _items(entries.get("expect"), "expect")),
        first=optional("first", lambda entry: _document(entry.value)),
        order=optional("order", lambda entry: tuple(map(_document, _list(entry, "order")))),
        within=optional("within", _within) or 0,
        ranking=optional("ranking", lambda entry: tuple(map(_chunk, _list(entry, "ranking")))),
        id=optional("id", lambda entry: _text(entry.value, "id", most=MAX_ID)) or "",
    )
    _require_askable(found)
    return found


def _require_askable(query: GoldenQuery) -> None:
    """A document of a collection that the query does not ask is never found."""
    if query.within and query.order is None:
        raise YamlRefused("`within` says how far documents of `order` may move, and there is none", query.line)
    for document in filter(None, (*query.expect, query.first, *(query.order or ()))):
        if query.collections and not any(document.startswith(f"{each}/") for each in query.collections):
            collection = document.partition("/")[0]
            reason = f"{quote_untrusted(document)} is expected, and only {enumerated(query.collections)} is asked"
            raise YamlRefused(
                reason, query.line, f"Write `collection: {collection}`, or leave it out: then all are asked."
            )


# -- the fields


def _mode(entry: MappingEntry) -> Mode:
    text = _text(entry.value, "mode")
    if text not in set(Mode):
        raise YamlRefused(
            f"mode must be one of {', '.join(Mode)}; found {quote_untrusted(text)}",
            entry.value.line,
            "Write `mode: hybrid`.",
        )
    return Mode(text)


def _k(entry: MappingEntry) -> int:
    return _number(entry, 1)


def _within(entry: MappingEntry) -> int:
    return _number(entry, 0)


def _number(entry: MappingEntry, least: int) -> int:
    value = convert_to_plain(entry.value)
    if not isinstance(value, int) or isinstance(value, bool) or not least <= value <= MAX_K:
        raise YamlRefused(f"{entry.key.text} must be a whole number from {least} to {MAX_K}", entry.value.line)
    return value


def _filter(entry: MappingEntry, normal: Callable[[Any], Any]) -> dict[str, Any]:
    value = convert_to_plain(entry.value)
    if not isinstance(value, dict):
        raise YamlRefused(f"{entry.key.text} must be a filter, such as {{status: open}}", entry.value.line)
    try:
        normal(value)
    except FilterInvalid as error:
        raise YamlRefused(f"{entry.key.text}: {error.message}", entry.value.line, error.hint) from None
    return value


def _text_filter(value: dict[str, Any]) -> None:
    if found := filters.normalize_where_document(value):
        filters.compile_where_document(found)  # what is no regular expression


def _document(node: Node) -> str:
    text = _text(node, "a document")
    collection, _, doc_id = text.partition("/")
    if not collection or not doc_id:
        raise YamlRefused(
            f"a document is named COLLECTION/DOC; found {quote_untrusted(text)}",
            node.line,
            "To see their names: vmrag list",
        )
    return text


def _chunk(node: Node) -> RankedChunk:
    entries = _fields(node, _CHUNK, "a place in a ranking")
    value = {name: convert_to_plain(entry.value) for name, entry in entries.items()}
    if "document" in entries:
        value["document"] = _document(entries["document"].value)
    try:
        return msgspec.convert(value, RankedChunk)
    except msgspec.ValidationError as error:
        raise YamlRefused(f"a place in a ranking: {error}", node.line, f"To record it again: {UPDATE}") from None


# -- kinds of nodes


def _fields(node: Node, known: Iterable[str], what: str) -> dict[str, MappingEntry]:
    names = list(known)
    if not isinstance(node, MappingNode):
        raise YamlRefused(f"{what} is written as `key: value` lines", node.line)
    for name, entry in node.entries.items():
        if name not in names:
            near = nearest(name, names)
            meant = f"; the nearest is {near}" if near else ""
            hint = f"Write `{near}`, or delete it." if near else f"There are: {', '.join(names)}."
            raise YamlRefused(f"there is no key {quote_untrusted(name)} in {what}{meant}", entry.key.line, hint)
    return node.entries


def _list(entry: MappingEntry, what: str) -> list[Node]:
    if not isinstance(entry.value, SequenceNode):
        hint = f"Write `{what}: []`; to record it: {UPDATE}" if what in ("ranking", "order") else ""
        raise YamlRefused(f"{what} must be a list", entry.value.line, hint)
    return entry.value.items


def _items(entry: MappingEntry | None, what: str) -> list[Node]:
    """The items of a list; a single one needs no brackets."""
    if entry is None:
        return []
    found: list[Node] = [entry.value] if isinstance(entry.value, ScalarNode) else _list(entry, what)
    if not found:
        raise YamlRefused(f"{what} names nothing", entry.value.line)
    return found


def _names(entry: MappingEntry) -> list[str]:
    return [_text(item, entry.key.text) for item in _items(entry, entry.key.text)]


def _text(node: Node, what: str, *, most: int = 1000) -> str:
    """As it is written: a query may be a number."""
    if not isinstance(node, ScalarNode) or not node.text:
        raise YamlRefused(f"{what} must be a text", node.line)
    if len(node.text) > most:
        raise YamlRefused(f"{what} has {len(node.text):,} characters; at most {most:,} are read", node.line)
    return node.text
