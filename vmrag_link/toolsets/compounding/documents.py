"""A Markdown file of a project as a document, or the reason why it is not one."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

from vmrag_link import clock
from vmrag_link.conversion import formats, front_matter, reading
from vmrag_link.conversion.limits import ContentUnreadable
from vmrag_link.errors import ContentRefused, DocTypeInvalid, FileFailed, FrontMatterInvalid, ProjectError
from vmrag_link.models import Document, DocumentHeader, content_hash, encode_canonical_json
from vmrag_link.toolsets.compounding import doc_types
from vmrag_link.toolsets.compounding.folder import Files, SkippedDoc, Stamp
from vmrag_link.toolsets.compounding.project import DocsProject, unknown_type
from vmrag_link.workspace import Workspace
from vmrag_link.workspace.documents import named_files as files
from vmrag_link.workspace.documents.drafts import refuse_reserved
from vmrag_link.workspace.documents.named_files import NamedFile, SourceContent

MAX_SUMMARY_CHARS = 200
"""Maximum number of characters of a first paragraph as summary."""

_NO_PROSE = ("#", "```", "~~~", "|", "<", ">", "- ", "* ", "+ ", "---", "===")

REFUSALS = (ProjectError, ContentRefused)
"""Errors of a file that is not a document. Other errors stop a scan."""


class _FileVersion(NamedTuple):
    """A version of a file. `header` is None if it is not a document, for the `reason`."""

    stamp: Stamp
    header: DocumentHeader | None
    reason: str


class SeenFiles:
    """The known versions of the files in a folder. A version is read once."""

    def __init__(self) -> None:
        self._seen: dict[str, _FileVersion] = {}
        self._project: DocsProject | None = None

    def find_header(self, doc_id: str) -> DocumentHeader | None:
        seen = self._seen.get(doc_id)
        return seen.header if seen else None

    def forget_file(self, doc_id: str) -> None:
        """Read the file again at the next scan."""
        self._seen.pop(doc_id, None)

    def read_headers(
        self, project: DocsProject, files: Files, read: Callable[[str], Document]
    ) -> tuple[dict[str, DocumentHeader], list[SkippedDoc]]:
        """Return the documents of the files, and the files that are not documents.

        `read` raises one of `REFUSALS` for such a file.
        """
        before = self._seen if self._project == project else {}
        self._project = project
        self._seen = {}
        for doc_id, stamp in files.stamps.items():
            version = before.get(doc_id)
            if version is None or version.stamp != stamp:
                version = _read_version(doc_id, stamp, read)
            self._seen[doc_id] = version
        headers = {doc_id: version.header for doc_id, version in self._seen.items() if version.header}
        skipped = [SkippedDoc(doc_id, version.reason) for doc_id, version in self._seen.items() if not version.header]
        return headers, [*files.skipped, *skipped]


def _read_version(doc_id: str, stamp: Stamp, read: Callable[[str], Document]) -> _FileVersion:
    try:
        return _FileVersion(stamp, read(doc_id).header, "")
    except REFUSALS as refusal:
        return _FileVersion(stamp, None, refusal.message)


def read_source(ws: Workspace, folder: Path, doc_id: str) -> SourceContent:
    """Return the bytes of a file below a folder.

    Raises `FileFailed`, also for a file behind a link.
    """
    path = folder / doc_id
    if os.path.realpath(path) != str(path):
        raise FileFailed(f"{path} is behind a symbolic link.", hint="put the file itself there", path=str(path))
    return files.read_file(ws, NamedFile(path, path))


def project_document(project: DocsProject, doc_id: str, source: SourceContent) -> Document:
    """Return a file of the project as a document, with its front matter as metadata.

    Raises one of `REFUSALS`: `DocTypeInvalid`, `FrontMatterInvalid` or `ContentRefused`.
    """
    metadata, text = _split_front_matter(doc_id, source)
    kind = metadata.get("doc_type")
    if kind is not None and not isinstance(kind, str):
        raise _build_invalid(doc_id, ["doc_type is not a text"])
    type_ = project.type_named(kind) if kind else project.type_of_folder(doc_id)
    if type_ is None and kind:
        raise unknown_type(project.types, kind)
    if type_ is None:
        raise DocTypeInvalid(
            f"{doc_id} has no type: its front matter has no doc_type, and its folder belongs to no type.",
            hint=f"move it to one of the folders {', '.join(doc_type.folder for doc_type in project.types)}, or "
            "state doc_type",
            doc_types=[doc_type.name for doc_type in project.types],
        )
    strict = project.config.strict_front_matter
    flaws = doc_types.find_flaws(metadata, type_, strict=strict)
    if flaws:
        raise _build_invalid(doc_id, flaws)
    level = metadata.get("promotion_level") or doc_types.LEVELS[0]
    return _build_document(
        project.collection, doc_id, source, text, {**metadata, "doc_type": type_.name, "promotion_level": level}
    )


def external_document(collection: str, doc_id: str, source: SourceContent) -> Document:
    """Return a file of external documentation as a document. Raises `ContentRefused`."""
    metadata, text = _split_front_matter(doc_id, source)
    return _build_document(collection, doc_id, source, text, metadata)


def find_summary(document: Document, metadata: dict[str, Any]) -> str:
    """Return the summary of the front matter, or else the first paragraph."""
    summary = metadata.get("summary")
    if isinstance(summary, str) and summary.strip():
        return " ".join(summary.split())
    text = " ".join(" ".join(_find_paragraph(document.content[: reading.TITLE_WITHIN])).split())
    return text if len(text) <= MAX_SUMMARY_CHARS else f"{text[: MAX_SUMMARY_CHARS - 1].rstrip()}…"


def _find_paragraph(text: str) -> list[str]:
    """Return the lines of the first paragraph with prose."""
    lines: list[str] = []
    for line in text.splitlines():
        if line.strip() and not line.lstrip().startswith(_NO_PROSE):
            lines.append(line)
        elif lines:
            break
    return lines


def _split_front_matter(doc_id: str, source: SourceContent) -> tuple[dict[str, Any], str]:
    try:
        metadata, text = front_matter.split_front_matter(formats.decode_text(source.data))
    except ContentUnreadable as error:
        raise ContentRefused(f"{doc_id} {error.reason}.", hint="save it as UTF-8 text", path=doc_id) from None
    refuse_reserved(metadata, doc_id)
    return metadata, text


def _build_document(
    collection: str, doc_id: str, source: SourceContent, text: str, metadata: dict[str, Any]
) -> Document:
    title = metadata.get("title")
    stated_title = " ".join(title.split()) if isinstance(title, str) else ""
    return Document(
        collection=collection,
        doc_id=doc_id,
        title=stated_title or reading.find_markdown_title(text) or Path(doc_id).stem,
        content=text,
        content_hash=content_hash(text),
        metadata=encode_canonical_json(metadata),
        source=source.key,
        source_key=source.key,
        file_type="markdown",
        last_modified=source.last_modified,
        created_at=clock.now(),
        updated_at=clock.now(),
    )


def _build_invalid(doc_id: str, wrong: list[str]) -> FrontMatterInvalid:
    more = f" (and {len(wrong) - 1} more)" if wrong[1:] else ""
    return FrontMatterInvalid(
        f"the front matter of {doc_id} does not match its type: {wrong[0]}{more}.",
        hint="correct it between the two lines of --- at the top of the file",
        path=doc_id,
        errors=wrong,
    )
