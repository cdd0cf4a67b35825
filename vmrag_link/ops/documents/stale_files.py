"""Which documents say what their files said before: files are converted for it, and git's history
is asked.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from vmrag_link.conversion.converter import Converter
from vmrag_link.conversion.limits import limits_of
from vmrag_link.documents.seen_files import FileRecord
from vmrag_link.git import versions
from vmrag_link.models import Collection, Document
from vmrag_link.ops.documents.earlier_texts import HISTORY_SECONDS, Differing, imported_before, says_content
from vmrag_link.ops.documents.file_changes import FileComparison
from vmrag_link.ops.documents.source_files import SourcedDocument, base_of
from vmrag_link.workspace import Workspace

TREE_SECONDS = 60.0
"""As `HISTORY_SECONDS`, where a commit, a push or a CI job waits."""


def in_work_tree(ws: Workspace, documents: Iterable[tuple[Collection, Document]]) -> list[SourcedDocument]:
    """Which of these documents say what their files in the work tree said before."""
    by_collection: dict[str, tuple[Collection, list[Document]]] = {}
    for collection, document in documents:
        by_collection.setdefault(collection.name, (collection, []))[1].append(document)
    seen = FileRecord(ws.places.seen_files)
    found: list[SourcedDocument] = []
    with Converter(limits_of(ws.config.ingest), seconds=HISTORY_SECONDS) as converter:
        comparison = FileComparison(ws.places, seen, converter)
        for collection, some in by_collection.values():
            base = base_of(ws.places, collection)
            if base is None:
                continue
            headers = {each.doc_id: each.header for each in some}
            sources = base.stored_sources([(each.doc_id, each.source) for each in some])
            modified = [
                (source, headers[doc_id])
                for doc_id, source in sources
                if comparison.kind(base, source, headers[doc_id]) == "modified"
            ]
            stale = comparison.stale(base, modified)
            found += [SourcedDocument(base, *each) for each in modified if each[1].key in stale]
    seen.save()
    return found


def in_tree(
    ws: Workspace, documents: Sequence[SourcedDocument], files: Mapping[str, str], *, commit: str | None
) -> list[SourcedDocument]:
    """Which of these documents say what their `files`, blobs by path, said before.

    `commit`: in whose history files are looked up.
    """
    seen = FileRecord(ws.places.seen_files)
    with Converter(limits_of(ws.config.ingest), seconds=TREE_SECONDS) as converter:
        held = dict(versions.contents(ws.places, {files[each.source] for each in documents}))
        differing = [
            Differing(each.source, each.header)
            for each in documents
            if (content := held.get(files[each.source])) is not None
            and says_content(each.header, each.source, content, converter) is False
        ]
        if differing:
            other = versions.converted_on_checkout(ws.places, [each.path for each in differing])
            differing = [each for each in differing if each.path not in other]
        stale = imported_before(ws.places, seen, differing, commit=commit, converter=converter)
    seen.save()
    return [each for each in documents if each.header.key in stale]
