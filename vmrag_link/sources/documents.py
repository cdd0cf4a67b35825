"""Convert the files of sources to documents: first to texts, then to documents of a collection.

`read_texts_at_commit` and `read_texts_in_work_tree` read texts from git's blobs and from edited
files. `build_documents` gets these texts, and also cuts code. The document of a file depends only
on what `compute_tag` returns.
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
from vmrag_link.git import readonly
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

RULES = "2"
"""Version of the conversion of texts to documents. It increases with every change."""

CHUNKING = {"document": Chunking("headings", 1000, 0), "code": Chunking("code", 1500, 0)}
"""How documents are cut, by the kind of the source."""

_BATCH_FILES = 2_000
_BATCH_BYTES = 32_000_000

_BYTES_PER_PROCESS = 4_000_000
"""Bytes of files for one process: cutting them takes a second, starting a process a twentieth."""

_MISSING = SourceText(None, "is not in this clone")

_MAX_ENCODING_FACTOR = 4
"""Maximum factor by which an encoding is larger on disk than UTF-8."""


def read_texts_at_commit(places: Places, files: Sequence[TreeFile]) -> Iterator[tuple[TreeFile, SourceText]]:
    """Yield the texts of files at a commit, in the order of the files. One batch is in memory at a
    time.

    Raises `GitFailed` and `LimitExceeded`.
    """
    for batch in _split_batches(files):
        contents = readonly.read_blobs(places, (tree_file.blob for tree_file in batch))
        for file in batch:
            data = contents.get(file.blob)
            yield file, _MISSING if data is None else convert_blob(file, data)


def read_texts_in_work_tree(places: Places, files: Sequence[TreeFile]) -> Iterator[tuple[TreeFile, SourceText]]:
    """Yield the texts of files in the work tree like `read_texts_at_commit`. Uncommitted texts are
    read from the files. If a file differs from its staged text, git has the text.

    Raises `FileFailed` for a file that has changed since it was listed. Then list the files again.
    """
    with Disk(places.top) as disk:
        for batch in _split_batches(files):
            contents = readonly.read_blobs(places, (file.blob for file in batch if not file.uncommitted))
            errors: dict[str, FileFailed] = {}
            for file in batch:
                if file.blob not in contents:
                    try:
                        contents[file.blob] = _read_from_disk(disk, file)
                    except FileFailed as error:
                        errors[file.blob] = error
            contents |= readonly.read_blobs(places, errors)
            for file in batch:
                if file.blob not in contents:
                    raise errors[file.blob]
                yield file, convert_blob(file, contents[file.blob])


def _read_from_disk(disk: Disk, file: TreeFile) -> bytes:
    try:
        # Line ends on disk may take twice the bytes, and another encoding four times.
        factor = 2 + (_MAX_ENCODING_FACTOR if file.encoding else 0)
        data, _ = disk.read_file(file.path, factor * file.size + 1)
        for form in list_stored_forms(data, file.encoding):
            if hash_blob(form, like=file.blob) == file.blob:
                return form
    except (OSError, ValueError, ContentUnreadable) as error:
        raise _build_changed_error(file) from error
    raise _build_changed_error(file)


def _build_changed_error(file: TreeFile) -> FileFailed:
    return FileFailed(f"{file.path} changed while it was read.", hint="run the command again", path=file.path)


def _split_batches(files: Sequence[TreeFile]) -> Iterator[Sequence[TreeFile]]:
    start = size = 0
    for number, file in enumerate(files):
        if number - start >= _BATCH_FILES or (size and size + file.size > _BATCH_BYTES):
            yield files[start:number]
            start = number
            size = 0
        size += file.size
    if start < len(files):
        yield files[start:]


def build_collection(source: SourceSettings, model: Model) -> Collection:
    """Return the collection of a source in an index."""
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
    """Return a text that determines the document of a file, and how it is cut."""
    cutter = languages.describe_cutter(languages.detect_language(file.path)) if source.kind == "code" else ""
    handwritten = "handwritten" if file.handwritten else ""  # then a file that looks generated is a document
    path = file.path if file.note_id else ""  # the path of a note is not its id
    limit = f"limit:{file.text_limit}" if file.text_limit else ""
    return " ".join(filter(None, (file.blob, RULES, handwritten, cutter, path, limit)))


def build_documents(
    source: SourceSettings,
    files: Sequence[TreeFile],
    texts: Iterable[tuple[TreeFile, SourceText]],
    budget: CutBudget | None = None,
) -> Iterator[tuple[str, Document | NoDocument]]:
    """Yield the documents of an index, each with its id. Code is cut, equal blobs only once. After
    the budget is spent, the other files are missing.
    """
    if source.kind == "document":
        yield from ((file.doc_id, build_document(source, file, text)) for file, text in texts)
        return
    from vmrag_link.code.cutter import CodeCutter  # not needed to list files

    waiting: deque[Document] = deque()  # documents whose code is not cut yet
    left_out: list[tuple[str, NoDocument]] = []
    repeated_blobs = {blob for blob, number in Counter(file.blob for file in files).items() if number > 1}

    def list_tasks() -> Iterator[CodeTask]:
        for file, text in texts:
            document = build_document(source, file, text)
            if isinstance(document, NoDocument):
                left_out.append((file.path, document))
            else:
                waiting.append(document)
                blob = file.blob if file.blob in repeated_blobs else ""
                yield CodeTask(document.content, document.file_type, CHUNKING["code"].size, blob)

    with CodeCutter(budget=budget, processes=_count_processes(files)) as cutter:
        for answer in cutter.cut_all(list_tasks()):
            document = waiting.popleft()
            yield document.doc_id, _add_pieces(document, answer)
    yield from left_out


def _count_processes(files: Sequence[TreeFile]) -> int:
    """Return how many processes cut these files: up to all cores except one, if the files are large
    enough.
    """
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return max(1, min(cores - 1, sum(file.size for file in files) // _BYTES_PER_PROCESS))


def build_document(source: SourceSettings, file: TreeFile, text: SourceText) -> Document | NoDocument:
    """Return a file as a document, code without its pieces."""
    path = file.path
    if text.text is None:
        return NoDocument(text.reason)
    if source.kind == "code":
        file_type = languages.detect_language(path)
        page = FileText(PurePosixPath(path).name, text.text, {"language": file_type} if file_type else {})
    else:
        file_format = formats.find_built_in(path)
        file_type = file_format.file_type if file_format and file_format.where == "here" else "text"
        try:
            page = reading.convert_text(text.text, file_type)
        except ContentUnreadable as why:
            return NoDocument(why.reason)
        if file.note_id and page.metadata.get("id") is not None and notes.read_id(page.metadata) == file.note_id:
            del page.metadata["id"]  # it is already the id of the document
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


def _add_pieces(document: Document, answer: Sequence[CodePiece] | CodeUnparsed) -> Document | NoDocument:
    if isinstance(answer, CodeUnparsed):
        return NoDocument(str(answer), is_local=True)
    pieces = []
    line = 1
    last = 0
    for piece in answer:
        line += document.content.count("\n", last, piece.start)
        last = piece.start
        pieces.append(
            IndexedPiece(
                start=piece.start,
                line=line,
                symbol=piece.symbol,
                kind=piece.kind,
                signature=piece.signature,
                declared=piece.declared,
            )
        )
    metadata = parse_metadata(document) | {PIECES: pieces}
    return msgspec.structs.replace(document, metadata=encode_canonical_json(metadata))
