"""Issue logs and knowledge docs as documents, and back.

Their tables have columns of their own, for SQL; to everything above the engines a row is a document
of the collection that it implies: `issues_<project>`, `knowledge_<tool>`. What the other tables'
documents have no field for are keys of its metadata. So what compares, merges, indexes or shows
documents knows nothing of these tables.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import msgspec

from vmrag_link.engines.tables import DOCUMENTS, ISSUE_LOGS, KNOWLEDGE_DOCS, LOGICAL, Table
from vmrag_link.models import ISSUES, KNOWLEDGE, Document, DocumentTable, canonical_json, metadata_of

NO_NUMBER = -1
"""The number of an issue log whose metadata holds none: of one that merges left without."""

_KEPT = re.compile(r"(?!.*\.\.)(?!(?:.*-)?[0-9a-f]{8}\Z)[A-Za-z0-9](?:[A-Za-z0-9._-]*[A-Za-z0-9])?")
"""Names that a collection's name can hold as they are, and that none with a hash looks like."""

_LONGEST = 200


class _Form(NamedTuple):
    """`keys`: the columns that are keys of the metadata. `implied_by`: the one that names the
    collection, which is of this `kind`, with which its name begins.
    """

    table: DocumentTable
    kind: str
    keys: tuple[str, ...]
    implied_by: str


_FORMS = {
    ISSUE_LOGS.name: _Form("issue_logs", ISSUES, ("project_id", "issue_number", "log_type"), "project_id"),
    KNOWLEDGE_DOCS.name: _Form("knowledge_docs", KNOWLEDGE, ("category", "tool_name", "tool_version"), "tool_name"),
}

IMPLIED_BY = {form.kind: form.implied_by for form in _FORMS.values()}
"""By kind, the metadata key of its documents that names their collection."""

METADATA_KEYS: Mapping[str, tuple[str, ...]] = {form.table: form.keys for form in _FORMS.values()}
"""By table, the keys of metadata that are columns there."""


@functools.lru_cache(1024)
def collection_name(kind: str, name: str) -> str:
    """The collection that a project or a tool implies.

    What a collection's name cannot hold is replaced, and 32 bits of a hash of the name are added:
    who looks for two names that share a collection finds them, and their rows stay apart by id.
    """
    if _KEPT.fullmatch(name) and len(name) <= _LONGEST:
        return f"{kind}_{name}"
    plain = re.sub(r"[^A-Za-z0-9_-]+", "-", name)[:_LONGEST].strip("-_")
    import hashlib  # OpenSSL, which a way back to a view that is there does not need

    digest = hashlib.sha256(name.encode()).hexdigest()[:8]
    return "_".join(filter(None, (kind, f"{plain}-{digest}" if plain else digest)))


def collection_of(table: Table, name: str) -> str:
    """The collection of a row of this table whose `implied_by` column holds `name`."""
    return collection_name(_FORMS[table.name].kind, name)


def collections_prefix(table: Table) -> str:
    """What the name of each collection of this table's documents begins with."""
    return f"{_FORMS[table.name].kind}_"


def implying_column(table: Table) -> str:
    """The column that implies the collection of a row."""
    return _FORMS[table.name].implied_by


@functools.lru_cache(1024)
def table_implied(collection: str) -> Table | None:
    """The table of which documents may lie in a collection of this name, beside `documents`."""
    return next((each for each in LOGICAL if collection.startswith(collections_prefix(each))), None)


def document(table: Table, row: Sequence[Any]) -> Document:
    """A row in the order of `Table.columns`, of whose values the types were looked at.

    Raises `msgspec.DecodeError` where its metadata is no JSON object.
    """
    form, values = _FORMS[table.name], dict(zip(table.columns, row, strict=True))
    stated = {key: values[key] for key in form.keys}
    given = msgspec.json.decode(values["metadata"], type=dict[str, Any])
    return Document(
        collection=collection_name(form.kind, stated[form.implied_by]),
        doc_id=row[0],
        title=values["title"],
        content=values["content"],
        content_hash=values["content_hash"],
        metadata=canonical_json(given | stated),
        created_at=values["created_at"],
        updated_at=values["updated_at"],
        table=form.table,
    )


def row(document: Document) -> tuple[str | int, ...]:
    """What the document's table stores of it, in the order of `Table.columns`.

    Any metadata will do: a text stands for a value that is none, NO_NUMBER for no number.
    """
    table = table_of(document)
    metadata = metadata_of(document)
    stated = {key: _column(table, key, metadata.pop(key, "")) for key in _FORMS[table.name].keys}
    values = stated | {"metadata": canonical_json(metadata)}
    return (
        document.doc_id,
        *(values[name] if name in values else getattr(document, name) for name in table.columns[1:]),
    )


def tables_named(table: DocumentTable | None) -> tuple[Table, ...]:
    """Those of `LOGICAL` that a name means; all of them for None."""
    return tuple(each for each in LOGICAL if table in (None, each.name))


def table_of(document: Document) -> Table:
    return next((each for each in LOGICAL if each.name == document.table), DOCUMENTS)


def by_table(documents: Iterable[Document]) -> Iterator[tuple[Table, Iterable[Document]]]:
    """Documents for each table in turn; listed ones in the order of its key.

    In that order they are stored three times faster, in half the file. A stream is one of rows of
    `documents`: see `Write.schema_version`.
    """
    if not isinstance(documents, list | tuple):
        yield DOCUMENTS, documents
        return
    for table in (DOCUMENTS, *LOGICAL):
        some = [each for each in documents if table_of(each) is table]
        if some:
            yield table, sorted(some, key=lambda each: each.key if table is DOCUMENTS else each.doc_id)


def twins(documents: Iterable[Document]) -> tuple[list[tuple[str, str]], list[tuple[str, str]]]:
    """The keys of what these take the place of in the other table: in `documents`, in `LOGICAL`.

    A document has one place: no two rows may be called by the same name. A stream has no rows of
    that kind, as in `by_table`.
    """
    found = documents if isinstance(documents, list | tuple) else ()
    named = [each for each in found if table_implied(each.collection)]
    return (
        [each.key for each in named if each.table != DOCUMENTS.name],
        [each.key for each in named if each.table == DOCUMENTS.name],
    )


def normal(given: Document) -> Document:
    """The document as it comes back from its table: in the collection that its metadata implies."""
    return given if given.table == DOCUMENTS.name else document(table_of(given), row(given))


def _column(table: Table, name: str, value: Any) -> str | int:
    if name in table.numbers:
        return value if type(value) is int and 0 <= value < 2**63 else NO_NUMBER
    return value if isinstance(value, str) else canonical_json(value)
