"""`vmrag import` without a path: files of which there are documents are read again, where they were
changed and the documents were not.
"""

from __future__ import annotations

from collections.abc import Collection as Several
from collections.abc import Mapping
from typing import Literal

import msgspec

from vmrag_link.conversion.converter import Converter
from vmrag_link.documents import importing
from vmrag_link.documents.import_base import OUTSIDE, ImportBase
from vmrag_link.documents.importing import ImportedDocument, Skipped, SourceFile
from vmrag_link.documents.seen_files import FileRecord
from vmrag_link.git import listing, refs, versions
from vmrag_link.models import WITHOUT_FILES, At, ChangeCounts, Collection, DocumentHeader, Working
from vmrag_link.ops.documents import collections, import_reports, leaving_out, placing, writing
from vmrag_link.ops.documents.earlier_texts import imported_before
from vmrag_link.ops.documents.file_changes import FileComparison, difference, files_beside
from vmrag_link.ops.documents.import_files import converter_of
from vmrag_link.ops.documents.import_reports import FileDifference, ImportReport, Kind, KnownFilesReport
from vmrag_link.ops.documents.leaving_out import DerivedFiles
from vmrag_link.ops.documents.put import Arranged, PutRequest, put
from vmrag_link.ops.documents.source_files import base_of, shown_path
from vmrag_link.workspace import Workspace

COMPARING_SECONDS = 600.0
"""For converting what the files hold: a person waits for just that."""

HISTORY_SECONDS = 60.0
"""For converting what they said before, of which a stranger's history may hold any number."""

Prune = Literal["nothing", "gone", "git"]
"""Whose documents are removed: nobody's; of each file that is gone; of those that git deleted,
unless somebody edited the document.
"""


def read_again(ws: Workspace, *, collection: str | None = None, prune: Prune = "nothing") -> KnownFilesReport:
    """Make documents as their files are: in all collections, or in one.

    A collection is stored at once, one after the other; what is stored already stays so if a later
    one fails. A renamed file's document follows it. Raises `CollectionMissing`, `UsageInvalid` for
    one whose documents come from no files, and as `writing.write`, `FileFailed`, `GitFailed`.
    """
    at = writing.place(writing.writable(ws))
    if collection is None:
        rows = ws.engine.collections(at)
    else:
        rows = [collections.find(ws, at, collection)]
        collections.require_open(rows[0])
    seen, derived = FileRecord(ws.places.seen_files), DerivedFiles(ws).paths
    report = KnownFilesReport()
    with converter_of(ws) as converter:
        comparison = FileComparison(ws.places, seen, converter, seconds=COMPARING_SECONDS)
        for row in rows:
            sources = [] if row.kind in WITHOUT_FILES else ws.engine.sources(at, row.name)
            base = base_of(ws.places, row)
            if not any(source for _, source in sources):
                continue
            if base is None or not base.origin.is_dir():
                report = msgspec.structs.replace(report, elsewhere=(*report.elsewhere, row.name))
                continue
            report = _joined(
                report, _KnownFiles(ws, at, row.name, base, comparison, derived=derived).take(converter, prune)
            )
    if report.branch:
        ws.remember_imported(Working(report.branch))
    seen.save()
    return report


def _joined(one: KnownFilesReport, other: KnownFilesReport) -> KnownFilesReport:
    """Each field is a list."""
    names = KnownFilesReport.__struct_fields__
    return KnownFilesReport(**{name: (*getattr(one, name), *getattr(other, name)) for name in names})


class _KnownFiles:
    """The files of a collection's documents, compared with these at a place.

    `lost` are not there, and nothing hides them; `changed` hold another text, which `unedited`
    documents do not contradict: they say what their files said before. All by source. What is
    `derived` answers as it is, and is not taken.
    """

    def __init__(
        self, ws: Workspace, at: At, name: str, base: ImportBase, comparison: FileComparison, *, derived: Several[str]
    ) -> None:
        self._ws, self._at, self._name, self._base, self._seen = ws, at, name, base, comparison.seen
        self._inside = base.recorded != OUTSIDE
        self._folders = self._seen.folders(name) if self._inside else {}
        self._documents = base.stored_sources(ws.engine.sources(at, name))
        self._ids = base.ids_by_source(self._documents)
        self._headers = {each.doc_id: each for each in ws.engine.headers(at, collection=name)}
        known = {source: self._headers[doc_id] for source, doc_id in self._ids.items() if doc_id in self._headers}
        kinds = {source: comparison.kind(base, source, header) for source, header in known.items()}
        missing = {each for each, kind in kinds.items() if kind in (None, "removed") and placing.is_lost(base, each)}
        modified = [(each, known[each]) for each, kind in kinds.items() if kind == "modified"]
        differing = {each.header.doc_id for each in comparison.differing(base, modified)}
        self._hidden = listing.not_checked_out(ws.places, missing) if self._inside else set()
        self._unreadable = {each for each, kind in kinds.items() if kind == "unknown"}
        self._lost = missing - self._hidden
        changed = {source for source, header in modified if header.doc_id in differing}
        self._changed = changed.difference(derived) if self._inside else changed
        self._unedited = self._of_unedited_documents({each: known[each] for each in self._changed | self._lost})

    def take(self, converter: Converter, prune: Prune) -> KnownFilesReport:
        """Store what changed files hold, and remove documents as `prune` says."""
        dropped = self._dropped() if prune == "git" else set()
        changed, beside = self._changed - dropped, self._beside()
        elsewhere = (self._moved() | beside) if self._lost else set()
        private = leaving_out.private(self._ws.places, self._base, changed | elsewhere, self._folders)
        documents, skipped = self._read((changed & self._unedited) - private, converter)
        candidates, _ = self._read(elsewhere - private, converter)
        followed = placing.followed(self._ws, self._at, self._name, self._base, candidates)
        following = [one for each in candidates if (one := self._following(followed.get(each.source), each))]
        gone = self._gone(self._lost - set(followed.values()), tracked=False)
        removed = {"nothing": set(), "gone": gone, "git": self._gone(gone & self._unedited, tracked=True)}[prune]
        skipped += self._read(self._unreadable - dropped, converter)[1]
        stored = self._store([*documents, *following], followed, removed | dropped)
        stored = msgspec.structs.replace(stored, skipped=tuple(skipped), gone=tuple(self._ids_of(gone - removed)))
        edited = {each: self._ids[each] for each in changed - self._unedited}
        refused = followed.keys() - {each.source for each in following}
        edited |= {each: self._ids[followed[each]] for each in refused}
        kept = {each: self._ids[each] for each in private & changed & self._unedited}
        return self._report(stored, edited, kept, beside - followed.keys())

    def _of_unedited_documents(self, headers: Mapping[str, DocumentHeader]) -> set[str]:
        if not headers:
            return set()
        differing = [difference(self._base, source, header) for source, header in headers.items()]
        commit = refs.head(self._ws.places).commit
        with converter_of(self._ws, seconds=HISTORY_SECONDS) as converter:
            keys = imported_before(self._ws.places, self._seen, differing, commit=commit, converter=converter)
        return {source for source, header in headers.items() if header.key in keys}

    def _dropped(self) -> set[str]:
        """Files that are there, and that the next git commit will not have (`git rm --cached`)."""
        removed = listing.removed_from_index(self._ws.places) if self._inside else set()
        there = self._ids.keys() - self._lost - self._hidden - self._unreadable
        return (there & removed) - (self._changed - self._unedited)

    def _beside(self) -> set[str]:
        """New files of folders that were imported here."""
        found = files_beside(self._ws, self._base, self._folders, self._documents, self._headers)
        return {source for doc_id, source in found if not doc_id and (self._base.origin / source).is_file()}

    def _moved(self) -> set[str]:
        """Where files went that are gone, as git knows."""
        found = versions.renamed(self._ws.places, self._lost) if self._inside else {}
        return {now for now in found.values() if now not in self._ids and (self._base.origin / now).is_file()}

    def _gone(self, sources: set[str], *, tracked: bool) -> set[str]:
        """Those of lost files that were here: git has or had them, or, unless they have to be
        `tracked`, they were read here. Others are perhaps a colleague's alone.
        """
        found = set() if tracked else {each for each in sources if self._seen.known(f"{self._base.origin}/{each}")}
        left = sources - found
        if not left or not self._inside:
            return found
        found |= left & listing.index(self._ws.places).tracked
        commit = refs.head(self._ws.places).commit
        return found | (versions.versions(self._ws.places, commit, left - found).keys() if commit else set())

    def _read(self, sources: Several[str], converter: Converter) -> tuple[list[ImportedDocument], list[Skipped]]:
        """Of a file that is no document the source stands for the id."""
        documents: list[ImportedDocument] = []
        skipped: list[Skipped] = []
        with self._ws.progress.task("reading", len(sources)) as task:
            for source in sorted(sources):
                file = importing.known_file(self._ids.get(source, source), source, self._base)
                one = importing.read(file, converter, self._seen) if isinstance(file, SourceFile) else file
                skipped.append(one) if isinstance(one, Skipped) else documents.append(one)
                task.advance()
        return documents, skipped

    def _following(self, before: str | None, now: ImportedDocument) -> ImportedDocument | None:
        """What a renamed file makes of its document; None if that was changed to another text."""
        if before is None or before in self._unedited:
            return now if before else None
        header = self._headers[self._ids[before]]
        same = header.content_hash == now.content_hash
        return msgspec.structs.replace(now, title=header.title, metadata=header.metadata) if same else None

    def _ids_of(self, sources: Several[str]) -> list[str]:
        return [doc_id for doc_id, source in self._documents if source in sources]

    def _store(
        self, documents: list[ImportedDocument], followed: Mapping[str, str], removed: Several[str]
    ) -> ImportReport:
        """What was written to a document meanwhile stays."""
        report = ImportReport(
            self._name, False, ChangeCounts(), len(self._documents), (), None, base=self._base.recorded
        )
        outcomes: list[placing.Placing] = []

        def arrange(at: At, now: Collection) -> Arranged:
            there = placing.stored(self._ws, at, self._name, self._base)
            ids = self._base.ids_by_source(there)
            same = {
                each.doc_id
                for each in self._ws.engine.headers(at, collection=self._name)
                if each == self._headers.get(each.doc_id)
            }
            wanted = [each for each in documents if ids.get(followed.get(each.source, each.source)) in same]
            outcomes.append(placing.place(self._name, wanted, self._base, there, followed))
            gone = [doc_id for doc_id, source in there if source in removed and doc_id in same]
            # From where new ids count is not for this import to say.
            base = msgspec.structs.replace(self._base, recorded=now.import_base)
            return Arranged(base, outcomes[-1], gone, insist=False)

        if not documents and not removed:
            return report
        done = put(self._ws, PutRequest(self._name, (), "replace", arrange=arrange))
        changes = done.report.changes
        return msgspec.structs.replace(
            report,
            changes=changes,
            unchanged=len(self._documents) - changes.modified - changes.removed,
            branch=done.branch,
            pending=done.pending,
            renamed=outcomes[-1].renamed,
        )

    def _report(
        self, stored: ImportReport, edited: Mapping[str, str], private: Mapping[str, str], new: Several[str]
    ) -> KnownFilesReport:
        """`edited`, `private`: ids by source."""

        def listed(found: Mapping[str, str], kind: Kind, *, stale: bool = False) -> tuple[FileDifference, ...]:
            return tuple(
                FileDifference(self._name, shown_path(self._base, source), found[source], kind, stale)
                for source in sorted(found)
            )

        here = {each: what for each, what in self._folders.items() if (self._base.top / each).is_dir()}
        known, added = listed(edited, "modified"), listed(dict.fromkeys(new, ""), "added")
        known_private = listed(private, "modified", stale=True)
        # A command that names a folder would take what is edited in it, too.
        paths = [each.path for each in (*known, *known_private, *added)]
        commands = (
            import_reports.of_files(self._ws, self._name, paths)
            if edited or private
            else import_reports.of_changes(self._ws, self._name, added, here)
        )
        hidden = tuple(shown_path(self._base, each) for each in sorted(self._hidden))
        return KnownFilesReport((stored,), known, known_private, added, tuple(commands), (), hidden)
