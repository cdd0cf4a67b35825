"""What a person may want to keep, discard, take in or push: the lists of `vmrag status`, and the
files that are documents, with how the work tree differs from HEAD in them. Uses no network.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Literal

from vmrag_link import terminal_text
from vmrag_link.engines.base import read_root
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
    """A collection's settings."""

    name: str
    kind: ChangeKind


class Unpushed(Record, frozen=True):
    """`revisions` that the remote is not known to have, as of the last fetch or push; None where
    nothing is known of it, because it is not to be asked: `problem` says why.
    """

    remote: str
    revisions: int | None
    problem: str = ""


class PendingChanges(Record, frozen=True):
    """`documents` and `collections` that are not committed, and stored `copies` of tracked files.

    `unpushed` is None where there is no remote.
    """

    documents: tuple[PendingDocument, ...] = ()
    collections: tuple[PendingCollection, ...] = ()
    copies: tuple[StoredCopy, ...] = ()
    unpushed: Unpushed | None = None


def collect_changes(ws: Workspace, target: Target) -> PendingChanges:
    """Everything; documents and files only where HEAD's branch can be written on."""
    if ws.read_trigger().branch is None or target.state != "pinned" or target.attachment in ("held", "behind"):
        return PendingChanges(unpushed=_unpushed(ws, target))
    branch = target.kb_branch
    found = _difference(ws, branch)
    return PendingChanges(
        _list_documents(found),
        tuple(PendingCollection(collection.key, collection.kind) for collection in found.collections),
        list_copies(ws, WorkingSet(branch.name) if branch and branch.dirty else target.revision),
        _unpushed(ws, target),
    )


def list_uncommitted(ws: Workspace, branch: KbBranch | None) -> tuple[PendingDocument, ...]:
    """Return the documents of a KB branch that no revision of it holds as they are."""
    return _list_documents(_difference(ws, branch))


def _difference(ws: Workspace, branch: KbBranch | None) -> HeaderDifference:
    if branch is None or not branch.dirty:
        return HeaderDifference((), ())
    return ws.engine.diff_headers(branch.head, WorkingSet(branch.name))


def _list_documents(found: HeaderDifference) -> tuple[PendingDocument, ...]:
    return tuple(PendingDocument(*change.key, change.header.title, change.kind) for change in found.documents)


def _unpushed(ws: Workspace, target: Target) -> Unpushed | None:
    """Of what is read here. A revision that only the remote's anchors hold is there, too."""
    pinned = target.revision if target.state == "pinned" else None
    revision = target.kb_branch.head if target.kb_branch else pinned
    if revision is None or ws.engine.shared:  # on a server, everybody has all of it
        return None
    remote = find_upstream(ws)
    if remote is None:
        return None
    if remote.address is None:
        return Unpushed(remote.name, None, remote.problem)
    # The root, which is made with the knowledge base, is no revision of anybody's.
    there = {read_root(ws.engine), *ws.engine.remote_heads(remote.address.key).values()}
    if revision in there:
        return Unpushed(remote.name, 0)
    return Unpushed(remote.name, Distances(ws.engine, [revision, *there]).count_apart([revision], there).ahead)


class SourceCollection(Record, frozen=True):
    """`files`: how many there are; a few of them may say nothing, and be no documents."""

    collection: str
    kind: Literal["document", "code"]
    files: int


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
    """`uncommitted`: `COLLECTION/PATH`, as they are; `changed`: each file once, also removed ones;
    `removed`: paths that the work tree has no more; `untracked`: how many more files git does not
    track. `missing`: paths of which this clone has no contents. `unavailable`: why collections
    cannot be searched, by name. `problem`: why nothing is known of the files; empty otherwise.
    """

    collections: tuple[SourceCollection, ...] = ()
    uncommitted: tuple[str, ...] = ()
    removed: tuple[str, ...] = ()
    untracked: int = 0
    missing: tuple[str, ...] = ()
    unavailable: Mapping[str, str] = {}
    problem: str = ""
    changed: tuple[SourceChange, ...] = ()
    files: int = 0
    """Files of all collections. A file that is in two of them counts once."""

    @property
    def sentence(self) -> str:
        """How many files are searched, and how they differ from HEAD."""
        numbers = (
            (len(self.changed) - len(self.removed), "edited"),
            (len(self.removed), "removed"),
            (self.untracked, "untracked and not searched"),
            (len(self.missing), "missing in this clone and not searched"),
        )
        total = f"{plural(self.files, 'file')} in {plural(len(self.collections), 'source')}"
        return ", ".join([total, *(f"{number} {what}" for number, what in numbers if number)])


def read_sources_status(ws: Workspace) -> SourcesStatus | None:
    """None where no sources are configured. Reads no file that did not change, and needs no index.

    Raises `ConfigInvalid`.
    """
    if not ws.sources.configured:
        return None
    from vmrag_link.sources import rules, work_tree
    from vmrag_link.workspace import source_tree

    try:
        tree = source_tree.read_work_tree(ws)
        assert tree is not None  # noqa: S101  there are sources
        everything = ws.config.searches_untracked
        unsearched = [source for source in tree.sources if not rules.searches_untracked(source, untracked=everything)]
        untracked = work_tree.count_untracked_files(ws.places, unsearched) if unsearched else 0
        changed = tuple(sorted(_list_changes(ws, tree), key=lambda change: change.path))
    except (GitError, LimitExceeded) as why:  # a status has to answer
        return SourcesStatus(problem=why.message)
    counts = {name: len(files) for name, files in tree.listing.files.items()}
    edited = sorted(key for key, file in tree.files.items() if file.uncommitted)
    return SourcesStatus(
        collections=tuple(
            SourceCollection(each.collection, each.kind, counts.get(each.collection, 0)) for each in tree.sources
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
    for path, key in {file.path: key for key, file in tree.files.items()}.items():
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
