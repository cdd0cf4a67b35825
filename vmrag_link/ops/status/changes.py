"""The lists of `vmrag status`: uncommitted, copied and unpushed contents, and files of sources that
differ from HEAD.

It does not use the network.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Literal

from vmrag_link import terminal_text
from vmrag_link.engines.own_branches import read_root
from vmrag_link.errors import GitError, LimitExceeded, plural
from vmrag_link.git import plumbing
from vmrag_link.models import ChangeKind, HeaderDifference, KbBranch, Record, WorkingSet
from vmrag_link.sync.target import Target
from vmrag_link.workspace import Workspace
from vmrag_link.workspace.commits.revisions import Distances
from vmrag_link.workspace.documents.copies import StoredCopy, list_copies
from vmrag_link.workspace.remotes.destinations import find_upstream

if TYPE_CHECKING:
    from vmrag_link.workspace.source_tree import Key, SourceTree


class PendingDocument(Record, frozen=True):
    collection: str
    doc_id: str
    title: str
    kind: ChangeKind

    @property
    def shown_name(self) -> str:
        return terminal_text.escape_line(f"{self.collection}/{self.doc_id}")


class PendingCollection(Record, frozen=True):
    """A collection with uncommitted settings."""

    name: str
    kind: ChangeKind


class Unpushed(Record, frozen=True):
    """The revisions that the remote lacks, as of the last fetch or push."""

    remote: str
    revisions: int | None
    """None if it is unknown, because the remote must not be contacted."""
    problem: str = ""
    """Why the remote must not be contacted."""


class PendingChanges(Record, frozen=True):
    """Uncommitted documents and collections, and what else needs attention."""

    documents: tuple[PendingDocument, ...] = ()
    collections: tuple[PendingCollection, ...] = ()
    copies: tuple[StoredCopy, ...] = ()
    """Stored copies of tracked files."""
    unpushed: Unpushed | None = None
    """None without a remote."""


def collect_changes(ws: Workspace, target: Target) -> PendingChanges:
    """Return all changes, but documents and copies only if HEAD is a branch whose KB branch is at
    the pin.
    """
    if ws.read_trigger().branch is None or target.state != "pinned" or target.attachment in ("held", "behind"):
        return PendingChanges(unpushed=_find_unpushed(ws, target))
    branch = target.kb_branch
    difference = _read_difference(ws, branch)
    return PendingChanges(
        documents=_list_documents(difference),
        collections=tuple(PendingCollection(collection.key, collection.kind) for collection in difference.collections),
        copies=list_copies(ws, WorkingSet(branch.name) if branch and branch.dirty else target.revision),
        unpushed=_find_unpushed(ws, target),
    )


def list_uncommitted(ws: Workspace, branch: KbBranch | None) -> tuple[PendingDocument, ...]:
    """Return the documents of a KB branch that differ from its head."""
    return _list_documents(_read_difference(ws, branch))


def _read_difference(ws: Workspace, branch: KbBranch | None) -> HeaderDifference:
    if branch is None or not branch.dirty:
        return HeaderDifference((), ())
    return ws.engine.diff_headers(branch.head, WorkingSet(branch.name))


def _list_documents(difference: HeaderDifference) -> tuple[PendingDocument, ...]:
    return tuple(PendingDocument(*change.key, change.header.title, change.kind) for change in difference.documents)


def _find_unpushed(ws: Workspace, target: Target) -> Unpushed | None:
    """Return what the remote lacks of the revision that is read here; None without a remote."""
    pinned = target.revision if target.state == "pinned" else None
    revision = target.kb_branch.head if target.kb_branch else pinned
    if revision is None or ws.engine.shared:  # on a server, everyone has all revisions
        return None
    remote = find_upstream(ws)
    if remote is None:
        return None
    if remote.address is None:
        return Unpushed(remote.name, None, remote.problem)
    # The root is created with the knowledge base, so it is not counted.
    remote_heads = {read_root(ws.engine), *ws.engine.remote_heads(remote.address.key).values()}
    if revision in remote_heads:
        return Unpushed(remote.name, 0)
    distances = Distances(ws.engine, [revision, *remote_heads])
    return Unpushed(remote.name, distances.count_apart([revision], remote_heads).ahead)


class SourceCollection(Record, frozen=True):
    """A collection of files."""

    collection: str
    kind: Literal["document", "code"]
    files: int
    """Number of files. Files without text are counted, but are not documents."""


class SourceChange(Record, frozen=True):
    """A file of a source that differs from HEAD."""

    name: str
    """Its path, or `COLLECTION/ID` of a note."""
    kind: Literal["added", "modified", "removed", "unmerged"]
    path: str

    @property
    def shown_name(self) -> str:
        """The name, and the path of a note, in one line."""
        return terminal_text.escape_line(self.name if self.name == self.path else f"{self.name} ({self.path})")


class SourcesStatus(Record, frozen=True):
    """The state of the sources."""

    collections: tuple[SourceCollection, ...] = ()
    uncommitted: tuple[str, ...] = ()
    """Names `COLLECTION/PATH` of documents that differ from HEAD."""
    removed: tuple[str, ...] = ()
    """Paths that the work tree no longer has."""
    untracked: int = 0
    """Number of further files that git does not track."""
    missing: tuple[str, ...] = ()
    """Paths whose contents this clone lacks."""
    unavailable: Mapping[str, str] = {}
    """Why collections cannot be searched, by name."""
    problem: str = ""
    """Why nothing is known about the files; empty if they are known."""
    changed: tuple[SourceChange, ...] = ()
    """The changed files, each once, including removed ones."""
    files: int = 0
    """Number of files of all collections. A file in two collections counts once."""

    @property
    def sentence(self) -> str:
        """The number of searched files, and how they differ from HEAD."""
        numbers = (
            (len(self.changed) - len(self.removed), "edited"),
            (len(self.removed), "removed"),
            (self.untracked, "untracked and not searched"),
            (len(self.missing), "missing in this clone and not searched"),
        )
        total = f"{plural(self.files, 'file')} in {plural(len(self.collections), 'source')}"
        return ", ".join([total, *(f"{number} {label}" for number, label in numbers if number)])


def read_sources_status(ws: Workspace) -> SourcesStatus | None:
    """Return the state of the sources; None if none are configured.

    It reads only files that changed, and needs no index. Raises `ConfigInvalid`.
    """
    if not ws.sources.configured:
        return None
    from vmrag_link.sources import rules, work_tree
    from vmrag_link.workspace import source_tree

    try:
        tree = source_tree.read_work_tree(ws)
        assert tree is not None  # noqa: S101  sources are configured
        all_untracked = ws.config.searches_untracked
        unsearched = [
            source for source in tree.sources if not rules.searches_untracked(source, untracked=all_untracked)
        ]
        untracked = work_tree.count_untracked_files(ws.places, unsearched) if unsearched else 0
        changed = tuple(sorted(_list_changes(ws, tree), key=lambda change: change.path))
    except (GitError, LimitExceeded) as error:  # the status must succeed
        return SourcesStatus(problem=error.message)
    counts = {name: len(files) for name, files in tree.listing.files.items()}
    edited = sorted(key for key, file in tree.files.items() if file.uncommitted)
    return SourcesStatus(
        collections=tuple(
            SourceCollection(source.collection, source.kind, counts.get(source.collection, 0))
            for source in tree.sources
        ),
        uncommitted=tuple(map("/".join, edited)),
        changed=changed,
        files=len({file.path for file in tree.files.values()}),
        removed=tree.listing.removed,
        untracked=untracked,
        missing=tree.listing.missing,
        unavailable=tree.unavailable,
    )


def _list_changes(ws: Workspace, tree: SourceTree) -> Iterator[SourceChange]:
    """Yield each file once, although two sources may have it."""
    keys_by_path = {file.path: key for key, file in tree.files.items()}
    for path, key in keys_by_path.items():
        file = tree.files[key]
        if file.uncommitted:
            yield SourceChange("/".join(key) if file.note_id else path, file.uncommitted, path)
    former = _list_former_notes(ws, tree)
    for path in tree.listing.removed:
        yield SourceChange("/".join(former.get(path, (path,))), "removed", path)


def _list_former_notes(ws: Workspace, tree: SourceTree) -> Mapping[str, Key]:
    """Return the notes of HEAD by their paths, if the work tree has removed one."""
    folders = tuple(f"{source.folder}/" for source in tree.sources if source.write)
    commit = plumbing.read_head(ws.places).commit
    if not commit or not any(path.startswith(folders) for path in tree.listing.removed):
        return {}
    from vmrag_link.workspace import source_tree

    before = source_tree.read_commit(ws, commit, ws.sources.config, stored=ws.list_stored_collections())
    return {file.path: key for key, file in before.files.items() if file.note_id} if before else {}
