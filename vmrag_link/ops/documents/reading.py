"""Reading documents here or at another place, and in which collections."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Protocol, TypeVar

from vmrag_link.documents import chunking
from vmrag_link.errors import IndexFailed, ServerUnreachable
from vmrag_link.git import plumbing
from vmrag_link.index import contents
from vmrag_link.models import SYSTEM, At, Collection, Document, content_hash
from vmrag_link.ops.follow.follow_pin import read_consistently
from vmrag_link.ops.follow.provenance import KbBlock, Standing, standing, viewed
from vmrag_link.ops.history import revparse
from vmrag_link.suggest import no_collection
from vmrag_link.workspace import Workspace

T = TypeVar("T")


def read(ws: Workspace, ref: str | None, look: Callable[[Standing], T]) -> T:
    """What `look` returns, of the work tree at its pin, or of `ref` (as `revparse.resolve_at`).

    It may be called again, where the pin moves meanwhile.
    """
    if ref is None or ref == revparse.WORKING:
        return read_consistently(ws, lambda: look(standing(ws)), index=False)
    return look(_at(ws, revparse.resolve_rev(ws, ref)))


def _at(ws: Workspace, revision: str) -> Standing:
    head = plumbing.head(ws.places).commit
    block = KbBlock(str(ws.places.top), head, None, revision, dirty=False, in_sync=True)
    return Standing(revision, revision, block, ())


class TextSource(Protocol):
    """Where whole documents are read: a knowledge base, or an index of it."""

    def collections(self, at: At) -> list[Collection]: ...

    def count(self, at: At, *, collection: str | None = None) -> int: ...

    def documents(self, at: At, *, collection: str | None = None) -> Iterator[Document]: ...


class IndexedTexts:
    """The documents of an index that nobody changes meanwhile, made of their chunks."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        held = contents.held_collections(folder)
        self._held = {name: each.collection for name, each in held.items()}
        self._counts = {name: each.documents for name, each in held.items()}

    def collections(self, at: At) -> list[Collection]:  # noqa: ARG002  an index is of one place
        return [self._held[name] for name in sorted(self._held)]

    def count(self, at: At, *, collection: str | None = None) -> int:  # noqa: ARG002  as above
        return sum(self._counts.values()) if collection is None else self._counts.get(collection, 0)

    def documents(self, at: At, *, collection: str | None = None) -> Iterator[Document]:  # noqa: ARG002  as above
        """Sorted by (collection, doc_id). Raises `IndexFailed` for a text that is not the
        document's.
        """
        for name in sorted(self._held) if collection is None else [collection]:
            found = contents.documents_of(self._folder, name)
            for header, texts in sorted(found, key=lambda each: each[0].doc_id):
                text = chunking.joined(texts, self._held[name].chunking)
                if content_hash(text) != header.content_hash:
                    raise IndexFailed(f"The index does not hold the text of {name}/{header.doc_id}.")
                yield Document(name, header.doc_id, header.title, text, header.content_hash, header.metadata)


def read_texts(ws: Workspace, ref: str | None, look: Callable[[TextSource, Standing], T]) -> T:
    """As `read`. While a Dolt server does not answer, the index is read, if it is here."""
    try:
        return read(ws, ref, lambda here: look(ws.engine, here))
    except ServerUnreachable:
        if ref is None or ref == revparse.WORKING:
            return read_consistently(
                ws, lambda: ws.reader.read(lambda view: look(IndexedTexts(view.folder), viewed(ws, view)))
            )
        here = _at(ws, revparse.resolve_rev(ws, ref))
        with ws.reader.index_of(here.revision) as folder:
            return look(IndexedTexts(folder), here)


def collection_names(source: TextSource, at: At, wanted: Sequence[str], *, searched: bool = False) -> list[str]:
    """These collections; if none are named, all but those in which tools write for themselves, or
    all that are `searched`.

    Raises `CollectionMissing`.
    """
    there = {each.name: each for each in source.collections(at)}
    for name in wanted:
        if name not in there:
            raise no_collection(name, sorted(there))
    return sorted(
        set(wanted) or {name for name, each in there.items() if each.kind != SYSTEM or (searched and each.searched)}
    )
