"""Files of sources as documents, and the collections that these make."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from pathlib import PurePosixPath

import msgspec

from vmrag_link.code import languages
from vmrag_link.code.pieces import CodePiece, CodeTask, CodeUnparsed
from vmrag_link.conversion import formats, reading
from vmrag_link.conversion.limits import ContentUnreadable
from vmrag_link.conversion.reading import FileText
from vmrag_link.embedding.base import Model
from vmrag_link.models import (
    PIECES,
    SOURCE,
    Chunking,
    Collection,
    Document,
    IndexedPiece,
    canonical_json,
    content_hash,
    metadata_of,
)
from vmrag_link.settings import SourceSettings
from vmrag_link.sources.files import NoDocument, TreeFile
from vmrag_link.sources.readable import SourceText

RULES = "1"
"""Rises with every change of what a text becomes as a document."""

CHUNKING = {"document": Chunking("headings", 1000, 0), "code": Chunking("code", 1500, 0)}


def collection_of(source: SourceSettings, model: Model) -> Collection:
    return Collection(
        name=source.collection,
        kind=SOURCE,
        embedding_function=model.name,
        embedding_model=model.fingerprint,
        embedding_dimensions=model.dimensions,
        chunking=CHUNKING[source.kind],
    )


def tag(source: SourceSettings, file: TreeFile) -> str:
    """What decides the document that a file is, and how it is cut."""
    cutter = languages.cutter_of(languages.language_of(file.path)) if source.kind == "code" else ""
    seen = "handwritten" if file.handwritten else ""  # what looks generated counts then
    return " ".join(filter(None, (file.blob, RULES, seen, cutter)))


def documents(
    source: SourceSettings, texts: Iterable[tuple[TreeFile, SourceText]]
) -> Iterator[tuple[str, Document | NoDocument]]:
    """The files, by path, as documents of an index. Code is cut."""
    if source.kind == "document":
        yield from ((file.path, as_written(source, file.path, found)) for file, found in texts)
        return
    from vmrag_link.code.cutter import CodeCutter  # whoever lists files cuts nothing

    waiting, left_out = deque[Document](), list[tuple[str, Document | NoDocument]]()

    def tasks() -> Iterator[CodeTask]:
        for file, found in texts:
            document = as_written(source, file.path, found)
            if isinstance(document, NoDocument):
                left_out.append((file.path, document))
            else:
                waiting.append(document)
                yield CodeTask(document.content, document.file_type, CHUNKING["code"].size)

    with CodeCutter() as cutter:
        for answer in cutter.cut_all(tasks()):
            document = waiting.popleft()
            yield document.doc_id, _cut(document, answer)
    yield from left_out


def as_written(source: SourceSettings, path: str, found: SourceText) -> Document | NoDocument:
    """A file as a document; code without its pieces."""
    if found.text is None:
        return NoDocument(found.reason)
    page = FileText(PurePosixPath(path).name, found.text, {})
    if source.kind == "code":
        file_type = languages.language_of(path)
        page.metadata.update({"language": file_type} if file_type else {})
    else:
        known = formats.by_suffix(path)
        file_type = known.file_type if known and known.where == "here" else "text"
        try:
            page = reading.page(found.text, file_type)
        except ContentUnreadable as why:
            return NoDocument(why.reason)
    return Document(
        collection=source.collection,
        doc_id=path,
        title=page.title or PurePosixPath(path).stem,
        content=page.content,
        content_hash=content_hash(page.content),
        metadata=canonical_json(page.metadata),
        source=path,
        file_type=file_type,
    )


def _cut(document: Document, answer: Sequence[CodePiece] | CodeUnparsed) -> Document | NoDocument:
    if isinstance(answer, CodeUnparsed):
        return NoDocument(str(answer), here=True)
    text = document.content
    cut, line, last = [], 1, 0
    for each in answer:
        line, last = line + text.count("\n", last, each.start), each.start
        cut.append(IndexedPiece(each.start, line, each.symbol, each.kind, each.signature, each.declared))
    metadata = metadata_of(document) | {PIECES: cut}
    return msgspec.structs.replace(document, metadata=canonical_json(metadata))
