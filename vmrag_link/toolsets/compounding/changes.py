"""Change the promotion level of a document, and remove the rows of a project.

The level is in the front matter of the file and in the row. Rows are removed on one branch of the
knowledge base or on all branches. No file is removed.

One key of the front matter changes, and every other byte stays, because a person wrote the file.
The parser (`yaml_tree`) finds the places, and the result is read again before it is written.
"""

from __future__ import annotations

import codecs
import stat
from pathlib import Path
from typing import NamedTuple

from vmrag_link import clock
from vmrag_link.conversion import formats, front_matter
from vmrag_link.conversion.limits import ContentUnreadable
from vmrag_link.engines.base import Write
from vmrag_link.engines.own_branches import is_reserved
from vmrag_link.errors import DocumentMissing, FileFailed, quoted
from vmrag_link.file_access import list_stale_temporaries, write_atomically
from vmrag_link.git import identity, own_keys
from vmrag_link.git.refs import BRANCHES
from vmrag_link.models import At, Document, KbBranch, Record, WorkingSet, parse_metadata
from vmrag_link.ops import uncommitted
from vmrag_link.sync import lease
from vmrag_link.toolsets.compounding import documents, mirror
from vmrag_link.toolsets.compounding.doc_types import Level
from vmrag_link.toolsets.compounding.mirror import ActiveProject
from vmrag_link.toolsets.compounding.project import DocsProject, collection_of
from vmrag_link.workspace import Workspace
from vmrag_link.workspace.documents import writing
from vmrag_link.workspace.documents.document_selection import chunks_of
from vmrag_link.workspace.documents.writing import Planned
from vmrag_link.workspace.follow.follow_pin import read_consistently
from vmrag_link.workspace.follow.provenance import find_origin
from vmrag_link.yaml_tree import MappingNode, ScalarNode, YamlRefused, parse_document

KEY = "promotion_level"


class Promoted(Record, frozen=True):
    """A changed level. `pending` is the reason why the index is not up to date."""

    previous: Level
    changed: bool
    pending: str = ""


def promote_document(ws: Workspace, active: ActiveProject, project: DocsProject, doc_id: str, level: Level) -> Promoted:
    """Write the level to the file, and mirror the file.

    If the row cannot be stored, restore the file.

    Raises `FileFailed` and the errors of `mirror.index_file`; then nothing is changed.
    """
    with active.lock:
        source = documents.read_source(ws, project.docs_folder, doc_id)
        previous: Level = _read_level(documents.project_document(project, doc_id, source))
        if previous == level:
            return Promoted(previous, changed=False)
        path = project.docs_folder / doc_id
        try:
            written = with_key(source.data, KEY, level)
        except NotEditable as error:
            raise FileFailed(
                f"{doc_id} {error.reason}.", hint=f"write into it by hand: {KEY}: {level}", path=doc_id
            ) from None
        _replace_content(path, source.data, written)
        try:
            result = mirror.index_file(ws, active, project, doc_id)
        except BaseException:
            _replace_content(path, written, source.data)
            raise
        return Promoted(previous, changed=True, pending=result.pending)


def _read_level(document: Document) -> Level:
    level: Level = parse_metadata(document)[KEY]
    return level


def _replace_content(path: Path, before: bytes, after: bytes) -> None:
    """Replace the content of an unchanged file in one step."""
    try:
        if path.read_bytes() != before:
            raise FileFailed(
                f"{path} changed during the call, so vmrag did not write it.", hint="call again", path=str(path)
            )
        for leftover in list_stale_temporaries(path.parent, name=path.name):
            leftover.unlink(missing_ok=True)  # of a killed call
        write_atomically(path, after, mode=stat.S_IMODE(path.stat().st_mode))
    except OSError as error:
        raise FileFailed(
            f"{path} cannot be written: {error.strerror}.",
            hint=f"run 'ls -la {quoted(path)}' to check its permissions",
            path=str(path),
        ) from error


class NotEditable(Exception):
    """A file cannot be edited. `reason` is the end of a sentence that begins with the file."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason


def with_key(data: bytes, key: str, value: str) -> bytes:
    """Return the file with a plain word for a key of its front matter, which is added if it is
    missing.

    Raises `NotEditable`.
    """
    mark = codecs.BOM_UTF8 if data.startswith(codecs.BOM_UTF8) else b""
    try:
        text = formats.decode_text(data)
        before, content = front_matter.split_front_matter(text)
        written = _edit_header(text, front_matter.locate_block(text), key, value)
        after, same = front_matter.split_front_matter(written)
    except ContentUnreadable as error:
        raise NotEditable(error.reason) from None
    except YamlRefused as error:
        raise NotEditable(f"has front matter that cannot be edited: line {error.line + 1} {error.reason}") from None
    # Before the change, an empty block is part of the text.
    kept = same == content or (not before and content.endswith(same))
    if after != before | {key: value} or not kept:
        raise NotEditable(f"has front matter in which {key} cannot be set automatically")
    return mark + written.encode()


def _edit_header(text: str, block: tuple[int, int] | None, key: str, value: str) -> str:
    newline = "\r\n" if "\r\n" in text else "\n"
    line = f"{key}: {value}{newline}"
    if block is None:
        return f"---{newline}{line}---{newline}{text}"
    start, end = block
    root = parse_document(text[start:end])
    if root is None:
        return text[:end] + line + text[end:]
    if not isinstance(root, MappingNode) or root.flow or root.column:
        raise NotEditable("has front matter that is not a list of keys, one per line")
    entry = root.entries.get(key)
    if entry is None:
        return text[:end] + line + text[end:]
    if not isinstance(entry.value, ScalarNode):
        raise NotEditable(f"has a {key} that is not a word")
    first, last = start + entry.value.start, start + entry.value.end
    space = "" if text[first - 1 : first] in (" ", "\t") else " "
    return text[:first] + space + value + text[last:]


class BranchRemoval(Record, frozen=True):
    """The removal on a branch, with git's name of the branch if git has it.

    `commit` is None for an uncommitted removal, and in a preview.
    """

    branch: str
    documents: int
    chunks: int
    commit: str | None = None


class Removed(Record, frozen=True):
    """A removal. `pending` is the reason why the index is not up to date."""

    branches: tuple[BranchRemoval, ...]
    pending: str = ""

    @property
    def documents(self) -> int:
        return sum(branch.documents for branch in self.branches)

    @property
    def chunks(self) -> int:
        return sum(branch.chunks for branch in self.branches)


class _Place(NamedTuple):
    """A branch. `other` is its KB branch if it is not checked out; `code` is its code branch."""

    shown: str
    at: At
    other: KbBranch | None
    code: str | None


def remove_mirrored(ws: Workspace, name: str, *, branch: str | None, dry_run: bool) -> Removed:
    """Delete the rows of a project on all local branches, or on one.

    Raises `DocumentMissing` for an unknown project, `Uncommitted` if another branch has uncommitted
    documents, `BranchInUse` if another work tree writes to it, and the errors of
    `writing.write_rows`. Then nothing is deleted.
    """
    places = _list_places(ws)
    if not any(mirror.mirror_of(ws, place.at, name) for place in places):
        raise DocumentMissing(
            f"no local branch has documents of a project {name!r}.",
            hint="call activate_project with the name of the project, or chroma_list_collections to list the "
            "collections compounding_…",
            project_name=name,
        )
    rows = [
        (place, ids, removal)
        for place in places
        if branch in (None, place.shown, place.other and place.other.name)
        for ids, removal in [_find_rows(ws, place, name)]
        if ids
    ]
    removals = [removal for _, _, removal in rows]
    if dry_run or not removals:
        return Removed(tuple(removals))
    for place, _, _ in rows:
        _require_free(ws, place)
    pending = ""
    for number, (place, ids, removal) in enumerate(rows):
        if place.other is None:
            pending = _remove_here(ws, name)
        else:
            removals[number] = BranchRemoval(
                removal.branch, removal.documents, removal.chunks, _remove_elsewhere(ws, place, place.other, name, ids)
            )
    return Removed(tuple(removals), pending)


def _list_places(ws: Workspace) -> list[_Place]:
    """Return the checked-out branch, then the other branches."""
    origin = read_consistently(ws, lambda: find_origin(ws), index=False)
    current = ws.find_kb_branch()
    codes = own_keys.read_kb_owners(ws.places)
    own_branch = ws.read_trigger().branch or origin.kb.branch or ""
    others = [
        _Place(
            codes.get(branch.name, branch.name),
            WorkingSet(branch.name) if branch.dirty else branch.head,
            branch,
            codes.get(branch.name),
        )
        for branch in ws.engine.list_branches()
        if not is_reserved(branch.name) and not (current and branch.name == current.name)
    ]
    return [_Place(own_branch, origin.at, None, None), *others]


def _find_rows(ws: Workspace, place: _Place, name: str) -> tuple[list[str], BranchRemoval]:
    collection = mirror.mirror_of(ws, place.at, name)
    rows = [*ws.engine.read_documents(place.at, collection=collection.name)] if collection else []
    chunks = sum(len(chunks_of(ws, collection, row)) for row in rows) if collection else 0
    return [row.doc_id for row in rows], BranchRemoval(place.shown, len(rows), chunks)


def _require_free(ws: Workspace, place: _Place) -> None:
    """Raise `Uncommitted` and `BranchInUse`."""
    if place.other is None:
        return
    if place.other.dirty:
        raise uncommitted.build_uncommitted_error(ws, place.other)
    symbolic = f"{BRANCHES}{place.code}"
    if place.code and (holder := lease.find_holder(ws.places, symbolic)):
        raise lease.build_in_use_error(holder, symbolic)


def _remove_here(ws: Workspace, name: str) -> str:
    def plan_rows(at: At) -> Planned[None]:
        collection = mirror.mirror_of(ws, at, name)
        headers = ws.engine.read_headers(at, collection=collection.name) if collection else ()
        keys = [header.key for header in headers]
        return Planned(Write(remove_documents=keys) if keys else None, None)

    return writing.write_rows(ws, plan_rows, f"delete the documents of {name}").pending


def _remove_elsewhere(ws: Workspace, place: _Place, branch: KbBranch, name: str, ids: list[str]) -> str | None:
    """Delete rows of a branch that is not checked out. Returns its commit, if one was made."""
    purpose = f"Delete the documents of {name}"
    rows = Write(remove_documents=[(collection_of(name), doc_id) for doc_id in ids])
    with ws.sync_context.without_copy(branch.name, branch.head), ws.engine.write_lock(purpose):
        if place.code:
            ws.engine.write(branch.name, rows, expected=branch.head)
            return None
        # Commit first, and then move the branch: a kill must not leave uncommitted rows here.
        author = identity.read_identity(ws.places)
        made = ws.engine.commit_onto(branch.head, [rows], message=purpose, author=author, date=clock.now())
        ws.engine.move_branch(branch.name, made, expected=branch.head)
        return made
