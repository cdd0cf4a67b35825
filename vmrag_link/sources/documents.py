"""Files of sources as documents: their texts, as git's blobs have them or as edited files were
seen, what these become, and the collections that they make.
"""

from __future__ import annotations

import os
from collections import Counter, deque
from collections.abc import Iterable, Iterator, Sequence
from pathlib import PurePosixPath

import msgspec

from vmrag_link.code import languages
from vmrag_link.code.languages import CodePiece, CodeTask, CodeUnparsed, CutBudget
from vmrag_link.conversion import formats, reading
from vmrag_link.conversion.limits import ContentUnreadable
from vmrag_link.conversion.reading import FileText
from vmrag_link.embedding.base import Model
from vmrag_link.errors import FileFailed
from vmrag_link.git import beside
from vmrag_link.git.objects import hash_blob
from vmrag_link.models import (
    PIECES,
    SOURCE,
    Chunking,
    Collection,
    Document,
    IndexedPiece,
    content_hash,
    encode_canonical_json,
    format_notes_metadata,
    parse_metadata,
)
from vmrag_link.paths import Places
from vmrag_link.settings import SourceSettings
from vmrag_link.sources import notes
from vmrag_link.sources.disk import Disk, list_stored_forms
from vmrag_link.sources.listings import NoDocument, TreeFile
from vmrag_link.sources.readable import SourceText, convert_blob

__all__ = ["SourceText", "read_texts_at_commit", "read_texts_in_work_tree"]

_BATCH_FILES = 2_000
_BATCH_BYTES = 32_000_000

_BYTES_A_PROCESS = 4_000_000
"""Bytes of files that are worth a process: they take it a second, and its start a twentieth."""

_MISSING = SourceText(None, "is not in this clone")

_SPARE_BYTES = 4
"""What an encoding takes more on the disk than as UTF-8, at most so many times."""


def read_texts_at_commit(places: Places, files: Sequence[TreeFile]) -> Iterator[tuple[TreeFile, SourceText]]:
    """The texts of files at a commit, in the order of the files; so many bytes are in memory at a
    time as one batch has.

    Raises as `git.beside.look`.
    """
    for batch in _batches(files):
        contents = beside.read_blobs(places, (each.blob for each in batch))
        for file in batch:
            data = contents.get(file.blob)
            yield file, _MISSING if data is None else convert_blob(file, data)


def read_texts_in_work_tree(places: Places, files: Sequence[TreeFile]) -> Iterator[tuple[TreeFile, SourceText]]:
    """As `texts_at_commit`. What git does not have comes from the file.

    Raises `FileFailed` for a file that is not any more what was listed: list again.
    """
    known = {each.blob for each in files if not each.uncommitted}
    known |= beside.read_blob_sizes(places, (each.blob for each in files if each.uncommitted)).keys()
    with Disk(places.top) as disk:
        for batch in _batches(files):
            contents = beside.read_blobs(places, (each.blob for each in batch if each.blob in known))
            for file in batch:
                data = contents.get(file.blob)
                if data is None and not (file.blob in known and file.uncommitted):
                    data = _from_disk(disk, file)
                yield file, _MISSING if data is None else convert_blob(file, data)


def _from_disk(disk: Disk, file: TreeFile) -> bytes:
    try:
        data, _ = disk.read_file(file.path, 2 * file.size + _SPARE_BYTES * file.size * bool(file.encoding) + 1)
        for form in list_stored_forms(data, file.encoding):
            if hash_blob(form, like=file.blob) == file.blob:
                return form
    except (OSError, ValueError, ContentUnreadable) as error:
        raise _moved(file) from error
    raise _moved(file)


def _moved(file: TreeFile) -> FileFailed:
    return FileFailed(f"{file.path} changed while it was read.", hint="Call again.", path=file.path)


def _batches(files: Sequence[TreeFile]) -> Iterator[Sequence[TreeFile]]:
    start = size = 0
    for number, file in enumerate(files):
        if number - start >= _BATCH_FILES or (size and size + file.size > _BATCH_BYTES):
            yield files[start:number]
            start, size = number, 0
        size += file.size
    if start < len(files):
        yield files[start:]


RULES = "2"
"""Rises with every change of what a text becomes as a document."""

CHUNKING = {"document": Chunking("headings", 1000, 0), "code": Chunking("code", 1500, 0)}


def build_collection(source: SourceSettings, model: Model) -> Collection:
    return Collection(
        name=source.collection,
        kind=SOURCE,
        metadata=format_notes_metadata(source.folder) if source.write else "{}",
        embedding_function=model.name,
        embedding_model=model.fingerprint,
        embedding_dimensions=model.dimensions,
        chunking=CHUNKING[source.kind],
    )


def compute_tag(source: SourceSettings, file: TreeFile) -> str:
    """What decides the document that a file is, and how it is cut."""
    cutter = languages.describe_cutter(languages.detect_language(file.path)) if source.kind == "code" else ""
    seen = "handwritten" if file.handwritten else ""  # what looks generated counts then
    moved = file.path if file.note_id else ""  # the path of a note is not its id
    limit = f"limit:{file.text_limit}" if file.text_limit else ""
    return " ".join(filter(None, (file.blob, RULES, seen, cutter, moved, limit)))


def build_documents(
    source: SourceSettings,
    files: Sequence[TreeFile],
    texts: Iterable[tuple[TreeFile, SourceText]],
    budget: CutBudget | None = None,
) -> Iterator[tuple[str, Document | NoDocument]]:
    """The files, by path, as documents of an index. Code is cut, equal blobs once; once the budget
    is spent, the other files are missing.
    """
    if source.kind == "document":
        yield from ((file.doc_id, build_document(source, file, text)) for file, text in texts)
        return
    from vmrag_link.code.cutter import CodeCutter  # whoever lists files cuts nothing

    waiting, left_out = deque[Document](), list[tuple[str, Document | NoDocument]]()
    repeated = {blob for blob, number in Counter(file.blob for file in files).items() if number > 1}

    def tasks() -> Iterator[CodeTask]:
        for file, found in texts:
            document = build_document(source, file, found)
            if isinstance(document, NoDocument):
                left_out.append((file.path, document))
            else:
                waiting.append(document)
                blob = file.blob if file.blob in repeated else ""
                yield CodeTask(document.content, document.file_type, CHUNKING["code"].size, blob)

    with CodeCutter(budget=budget, processes=_processes(files)) as cutter:
        for answer in cutter.cut_all(tasks()):
            document = waiting.popleft()
            yield document.doc_id, _cut(document, answer)
    yield from left_out


def _processes(files: Sequence[TreeFile]) -> int:
    """Return how many processes cut these files: all cores, except ours, if they have enough."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return max(1, min(cores - 1, sum(file.size for file in files) // _BYTES_A_PROCESS))


def build_document(source: SourceSettings, file: TreeFile, read: SourceText) -> Document | NoDocument:
    """A file as a document; code without its pieces."""
    path = file.path
    if read.text is None:
        return NoDocument(read.reason)
    page = FileText(PurePosixPath(path).name, read.text, {})
    if source.kind == "code":
        file_type = languages.detect_language(path)
        page.metadata.update({"language": file_type} if file_type else {})
    else:
        known = formats.find_built_in(path)
        file_type = known.file_type if known and known.where == "here" else "text"
        try:
            page = reading.convert_text(read.text, file_type)
        except ContentUnreadable as why:
            return NoDocument(why.reason)
        if file.note_id and page.metadata.get("id") is not None and notes.read_id(page.metadata) == file.note_id:
            del page.metadata["id"]  # the document has it as its id
    title = page.title or (notes.first_line(page.content)[: reading.TITLE] if source.write else "")
    return Document(
        collection=source.collection,
        doc_id=file.doc_id,
        title=title or PurePosixPath(path).stem,
        content=page.content,
        content_hash=content_hash(page.content),
        metadata=encode_canonical_json(page.metadata),
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
    metadata = parse_metadata(document) | {PIECES: cut}
    return msgspec.structs.replace(document, metadata=encode_canonical_json(metadata))
