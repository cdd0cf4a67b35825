"""The contract of an engine: versioned tables, branches with one working set each, no lost data.

`Engine` is the contract, `RowSource` is the part that an index reads, and `Write` is a change of
rows. A *place* (`models.At`) is where an engine reads rows: a revision, or the working set of a
branch, which is the branch's head with its uncommitted rows. To *anchor* a revision is to make the
branch `vmrag_keep` reach it, because garbage collection deletes what no branch reaches.

The methods of `Engine` are grouped: write lock, revisions, branches, anchors, remotes, reading,
links, writing. They raise only errors of the families of `errors.EngineError`.
`tests/integration/test_engine_contract.py` runs against every engine.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Protocol

from vmrag_link.engines.folder import EngineName
from vmrag_link.engines.limits import Limits
from vmrag_link.errors import KnowledgeRefused, RevisionMissing, SchemaTooNew
from vmrag_link.models import (
    At,
    ChangeCounts,
    Collection,
    Difference,
    Document,
    DocumentHeader,
    DocumentTable,
    HeaderDifference,
    KbBranch,
    Link,
    Project,
    Record,
    RevisionInfo,
    Row,
)

SCHEMA_VERSION = 2
"""The newest version of the schema that this program reads and writes."""


class Write(Record, frozen=True):
    """Rows to store in one transaction.

    `put_*` inserts or replaces whole rows. Removing a collection removes its documents. A document
    of another table than `documents` is stored there, in the collection that its metadata implies.
    If the schema is too old for the rows, the same transaction upgrades it.
    """

    put_collections: Sequence[Collection] = ()
    remove_collections: Sequence[str] = ()
    put_documents: Iterable[Document] = ()
    remove_documents: Sequence[tuple[str, str]] = ()
    put_projects: Sequence[Project] = ()
    remove_projects: Sequence[str] = ()

    @property
    def schema_version(self) -> int:
        """The oldest version of the schema that can hold the rows.

        A column that a version lacks reads as empty, so rows with an empty value in it do not need
        a newer version. Documents passed as a stream are rows of `documents`.
        """
        listed = self.put_documents if isinstance(self.put_documents, list | tuple) else ()
        has_new_columns = any(
            collection.import_base or collection.chunking.strategy != "characters"
            for collection in self.put_collections
        )
        has_other_tables = self.put_projects or any(document.table != "documents" for document in listed)
        return 2 if has_new_columns or has_other_tables else 1

    @property
    def is_empty(self) -> bool:
        return not any(getattr(self, name) for name in self.__struct_fields__)


class RowSource(Protocol):
    """The source of an index: a knowledge base, or another object that is read like one."""

    def list_collections(self, at: At) -> list[Collection]: ...

    def read_documents(
        self, at: At, *, collection: str | None = None, ids: Iterable[str] | None = None
    ) -> Iterator[Document]: ...

    def read_headers(
        self, at: At, *, collection: str | None = None, ids: Iterable[str] | None = None
    ) -> Generator[DocumentHeader, None, None]: ...

    def find_document(self, at: At, collection: str, doc_id: str) -> Document | None: ...

    def count_documents(self, at: At, *, collection: str | None = None) -> int: ...

    def diff(self, old: At, new: At) -> Difference: ...


class Engine(Protocol):
    """An open knowledge base.

    Several processes may use it at the same time. One instance belongs to one thread at a time.
    """

    @property
    def name(self) -> EngineName: ...

    @property
    def folder(self) -> Path:
        """The directory that holds the knowledge base."""

    @property
    def limits(self) -> Limits:
        """The limits for data that remotes hold."""

    @property
    def shared(self) -> bool:
        """True if the knowledge base is on a server.

        Then it may also hold branches of other repositories.
        """

    def close(self) -> None: ...

    def find_damage(self) -> str:
        """Check all data with the engine. Return a sentence, or an empty text if it is sound.

        Takes 2 ms per megabyte.
        """

    # -- writing is serialised: one write lock per knowledge base, re-entrant within an instance ---

    def write_lock(self, purpose: str, *, timeout: float | None = None) -> AbstractContextManager[None]:
        """Hold the write lock. `purpose` completes "Cannot …" in the message for other writers.

        Raises `Busy`, with the holder, after `timeout` seconds (default: the engine's timeout).
        Each mutating method takes the lock itself. Hold it around several calls that belong
        together.
        """

    def read_stamp(self) -> object:
        """Return a value that differs from earlier ones if any program wrote in between."""

    # -- revisions ---------------------------------------------------------------------------------

    def has_revision(self, revision: str) -> bool:
        """Return whether this full hash is a revision that exists here.

        Accepts any text, and never resolves it as a branch name.
        """

    def read_revision(self, revision: str) -> RevisionInfo:
        """Return the message, author, date and parents of a revision. Raises `RevisionMissing`."""

    def log(self, revision: str, *, limit: int | None = None) -> Iterator[RevisionInfo]:
        """Yield the revision and its ancestors, newest first, children before parents.

        The engine's own initial commits are included.
        """

    def is_ancestor(self, ancestor: str, descendant: str) -> bool:
        """Return whether `descendant` contains `ancestor`. A revision contains itself.

        Raises `RevisionMissing`.
        """

    def map_parents(self, revisions: Iterable[str]) -> dict[str, tuple[str, ...]]:
        """Return the parents of these revisions and of all their ancestors, by revision.

        Accepts any texts and leaves out unknown revisions. Walks the history once for all of them.
        """

    def is_bare(self, revision: str) -> bool:
        """Return whether a revision has no tables: an anchor, or the engine's own initial commit.

        Raises `RevisionMissing`.
        """

    def merge_base(self, one: str, other: str) -> str | None:
        """Return the best common ancestor, or None for unrelated histories.

        Raises `RevisionMissing`.
        """

    # -- branches ----------------------------------------------------------------------------------

    def list_branches(self) -> list[KbBranch]:
        """Return all branches, sorted by name. The reserved ones (`vmrag…`) are included."""

    def find_branch(self, name: str) -> KbBranch | None: ...

    def is_legal_branch_name(self, name: str) -> bool:
        """Return whether this engine can store a branch of that name, existing or not."""

    def create_branch(self, name: str, at: str) -> None:
        """Create a branch at a revision.

        Raises `BranchExists` (also for names that differ only in case), `RevisionMissing` and
        `NameInvalid`.
        """

    def move_branch(self, name: str, to: str, *, expected: str) -> None:
        """Move the branch to the revision `to`.

        Anchor the old head first if nothing else reaches it. Raises `Uncommitted` for a dirty
        branch, and `KnowledgeMoved` if its head is not `expected`.
        """

    def delete_branch(self, name: str, *, expected: str) -> None:
        """Delete a branch. Anchor its head first if nothing else reaches it.

        Raises `Uncommitted` for a dirty branch, and `KnowledgeMoved` if its head is not `expected`.
        """

    # -- anchors: garbage collection deletes revisions that no branch reaches ----------------------

    def anchor_revision(self, revision: str, *, reason: str) -> None:
        """Make `vmrag_keep` reach this revision, unless a branch reaches it already."""

    def protect_revision(self, revision: str) -> None:
        """Make an internal branch reach a revision that is about to be pinned.

        This is necessary because other programs may move every KB branch and collect garbage.
        Raises `RevisionMissing`.
        """

    def build_keep_head(self, head: str | None, revision: str, *, reason: str) -> str:
        """Create and return the next head of a remote's `vmrag_keep`.

        It also reaches `revision`. `head` is the current head, or None if the remote has none. Hold
        the write lock until the result is pushed, because nothing here reaches it.
        """

    def find_unreachable(self, revisions: Iterable[str], *, heads: Iterable[str] | None = None) -> list[str]:
        """Return the existing revisions that none of the heads reaches, in the given order.

        `heads` are by default those of all branches, including `vmrag_keep`. Accepts any texts.
        Walks the history once for all of them.
        """

    def collect_garbage(self) -> None:
        """Delete what no branch reaches and free its space. Working sets survive."""

    # -- remotes: `remote` is a short name ---------------------------------------------------------

    def remote_heads(self, remote: str) -> dict[str, str]:
        """Return the head of each branch of a remote, as of the last fetch or push.

        The result is empty for an unknown remote.
        """

    def foreign_heads(self, remote: str) -> dict[str, str]:
        """Return the heads of a remote's branches with tables of another program.

        This is the state of the last fetch. They exist here, are never read, and are not among
        `remote_heads`.
        """

    def all_remote_heads(self, branch: str | None = None) -> set[str]:
        """Return the heads of the branches of all remotes, as of the last fetch or push.

        With `branch`, return only those of the branches with this name.
        """

    def peek_heads(self, url: str) -> dict[str, str] | None:
        """Return the head of each branch of the file at a `file://` URL, or None for a server.

        This fetches nothing. Raises `RemoteMissing` and `RemoteDamaged`.
        """

    def fetch(self, remote: str, url: str) -> None:
        """Fetch everything that the branches at a `file://` or `http://` URL reach.

        No branch here moves. Raises `RemoteUnreachable`, `RemoteMissing`, `RemoteDamaged`,
        `AuthenticationFailed`, and `KnowledgeRefused` if the head of a branch has other tables than
        ours or exceeds the limits. If it raises, nothing was fetched.
        """

    def find_refusal(self, revision: str) -> KnowledgeRefused | None:
        """Return the reason why a revision that exists here must not be read, or None.

        Any program may have written it.
        """

    def require_valid_rows(self, at: At, *, since: str) -> None:
        """Check the rows in which a place differs from a sound revision.

        Any program may have written them. The cost grows with their number. Raises `RowsInvalid`
        for the first row that no vmrag command could have written, and the errors of
        `require_readable` for `at`.
        """

    def push(self, remote: str, url: str, heads: Mapping[str, str], *, force: bool = False) -> None:
        """Make revisions the heads of branches at a URL, one after the other.

        Missing branches are created, and an empty revision deletes a branch. If other programs also
        write here, the heads are checked first like fetched ones. If one of them is refused,
        nothing is pushed, because no clone could fetch it.

        Raises `RemoteMoved` if a push is not a fast-forward (with `force`: if a branch moved since
        it was last fetched), `RemoteInvalid` for a server that only supports fetching, and the
        errors of `fetch`.
        """

    def forget_remote(self, remote: str) -> None:
        """Forget a remote and its heads. An unknown remote is not an error."""

    def vet_revisions(
        self,
        url: str,
        revisions: Sequence[str],
        *,
        known_heads: Iterable[str],
        into: Path,
        limits: Limits,
        check_row: Callable[[Row], None],
    ) -> list[str]:
        """Check the knowledge base at an untrusted `url` and write its valid revisions to `into`.

        `into` is the path of a new remote for `fetch`. It receives those of `revisions` that exist
        at `url`, with their ancestors. Return the ones that the heads `known_heads` do not reach.

        Each of these was checked: it descends from `known_heads`, its tables are exactly ours, and
        its rows are records. `check_row` is called with every row of the newest revisions, and with
        the rows that the others changed. It raises an `Engine` error for a row that must be
        refused.

        This executes nothing from `url` and changes nothing here. Raises `KnowledgeRefused`, also
        if the limits are exceeded.
        """

    def list_docs_and_tags(self, revisions: Iterable[str]) -> list[str]:
        """Return the names of Dolt's docs and tags at these revisions.

        No other engine stores them.
        """

    def find_undefined_collections(self, branch: str, *, since: str) -> list[str]:
        """Return collections without a row, with documents that changed since a revision.

        Other programs may insert documents without their collection.
        """

    # -- reading -----------------------------------------------------------------------------------

    def list_collections(self, at: At) -> list[Collection]:
        """Return the collections at a place, sorted by name."""

    def read_documents(
        self,
        at: At,
        *,
        collection: str | None = None,
        ids: Iterable[str] | None = None,
        table: DocumentTable | None = None,
    ) -> Iterator[Document]:
        """Yield documents, sorted by (collection, doc_id) as bytes.

        Issue logs and knowledge docs are included. Memory does not grow with the number of
        documents. With `ids`, yield only existing documents with these ids; each is looked up. With
        `table`, yield only documents of this table.
        """

    def read_headers(
        self, at: At, *, collection: str | None = None, ids: Iterable[str] | None = None
    ) -> Generator[DocumentHeader, None, None]:
        """Yield the headers of documents: the same as `read_documents`, without reading the texts.

        Close the generator if you leave it before its end: until then it holds a connection.
        """

    def read_projects(self, at: At, *, ids: Iterable[str] | None = None) -> Iterator[Project]:
        """Yield the projects sorted by id; none if the schema is older than their table.

        With `ids`, yield only existing projects with these ids.
        """

    def list_sources(self, at: At, collection: str) -> list[tuple[str, str]]:
        """Return (id, source) of a collection's documents with a source, sorted by id as bytes."""

    def list_ids(self, at: At, collection: str, *, prefix: str) -> list[str]:
        """Return the ids in a collection that begin with a non-empty prefix, sorted as bytes.

        Only documents of the table `documents` are searched. Other ids are not read.
        """

    def find_document(self, at: At, collection: str, doc_id: str) -> Document | None: ...

    def require_readable(self, at: At) -> None:
        """Raise the error that reading documents at a place would raise, if any.

        These are `RevisionMissing`, `BranchMissing`, `KnowledgeRefused` and `SchemaTooNew`.
        """

    def count_documents(self, at: At, *, collection: str | None = None) -> int:
        """Return the number of documents at a place, or in one of its collections."""

    def diff(self, old: At, new: At) -> Difference:
        """Return the changes between any two revisions or working sets, related or not.

        The cost grows with the number of changes. Documents that differ only in `updated_at` or
        `last_modified` are equal.
        """

    def diff_headers(self, old: At, new: At, *, times: bool = False) -> HeaderDifference:
        """Return the changes from `old` to `new` without reading the texts.

        With `times`, documents of two revisions that differ only in their times are included.
        """

    def read_document_history(self, revision: str, collection: str, doc_id: str) -> dict[str, DocumentHeader]:
        """Return the document's header in `revision` and each of its ancestors, by revision.

        Revisions without the document are left out. Its texts are not read. Raises
        `RevisionMissing`.
        """

    def count_changes(self, old: At, new: At) -> ChangeCounts:
        """Return the numbers of changes from `old` to `new` without reading the texts."""

    # -- links between code commits and revisions, on the branch `vmrag_links` ---------------------

    def list_links(
        self, *, git_commit: str | None = None, dolt_commit: str | None = None, at: str | None = None
    ) -> list[Link]:
        """Return all links, or those of one commit or revision, sorted by git commit.

        With `at`, read that revision of another knowledge base's `vmrag_links` instead of the
        branch here. Raises `RevisionMissing`, `KnowledgeRefused` and `SchemaTooNew`.
        """

    def write_links(
        self, put: Sequence[Link], *, remove: Sequence[str] = (), message: str, author: str, date: str
    ) -> None:
        """Replace and remove links, by git commit, in one commit of `vmrag_links`.

        Commits nothing if nothing changes.
        """

    def build_links_head(self, head: str | None, put: Sequence[Link], *, message: str, author: str, date: str) -> str:
        """Create the next head of a remote's `vmrag_links` with these links, and return it.

        The branch here does not move. `head` is the remote's current head, or None if it has none.
        Hold the write lock until the result is pushed, because nothing here reaches it. Raises
        `RevisionMissing`, `KnowledgeRefused` and `SchemaTooNew`.
        """

    # -- writing -----------------------------------------------------------------------------------

    def write(self, branch: str, rows: Write, *, expected: str) -> None:
        """Change the branch's working set in one transaction: all or nothing, durable on return.

        Raises `KnowledgeMoved` if the branch's head is not `expected`, `BranchMissing`,
        `ContentRefused` (NUL, lone surrogates) and `EngineFailed` (for example a full disk).
        """

    def commit(self, branch: str, *, message: str, author: str, date: str, expected: str) -> str:
        """Commit the branch's whole working set and return the new revision.

        `author` is `Name <email>`, `date` is ISO UTC. Equal parent, content, message, author and
        date give equal revisions. Raises `NoChanges` and `KnowledgeMoved`.
        """

    def commit_onto(
        self, revision: str, rows: Sequence[Write], *, joining: str | None = None, message: str, author: str, date: str
    ) -> str:
        """Commit `rows`, one after the other, on top of a revision, and return the anchored result.

        No branch moves. `joining` becomes the second parent, unless `revision` contains it. Its
        content does not matter: the result is `revision` with `rows`. If there is nothing to
        commit, the result is `revision` itself. Equal arguments give equal revisions.

        Raises `RevisionMissing`, `ContentRefused`, and `EngineFailed` if `joining` and `revision`
        have no common history.
        """

    def recreate_revision(
        self, parents: Sequence[str], rows: Iterable[Write], *, message: str, author: str, date: str
    ) -> str:
        """Commit `rows` on top of the first of one or two parents, and return the revision.

        The rows are stored one after the other. The commit is created even if nothing changes.
        Equal arguments give equal revisions. No branch moves and nothing anchors the result: hold
        the write lock until something reaches it.

        Raises `RevisionMissing`, `ContentRefused`, and `EngineFailed` if the parents have no common
        history or the engine cannot create a revision with these parents.
        """

    def discard_saved_rows(self, branch: str, *, kept: str, expected: str) -> None:
        """Discard the uncommitted rows of a branch, all of which the revision `kept` also holds.

        Raises `Uncommitted` if the revision does not hold them all, `KnowledgeMoved` and
        `BranchMissing`.
        """


def list_revisions_ahead(engine: Engine, revision: str, other: str) -> list[RevisionInfo]:
    """Return the revisions that `revision` contains and `other` does not, parents before children.

    The history alone decides the order.
    """
    visited: dict[str, RevisionInfo] = {}
    infos = {revision: engine.read_revision(revision)}
    if infos[revision].parents == (other,):
        return [*infos.values()]
    common, stack = engine.map_parents([other]), [revision]
    while stack:
        info = infos[stack[-1]]
        next_parent = next((parent for parent in info.parents if parent not in common and parent not in visited), None)
        if next_parent is None:
            visited[stack.pop()] = info
        else:
            infos[next_parent] = infos.get(next_parent) or engine.read_revision(next_parent)
            stack.append(next_parent)
    return [info for info in visited.values() if info.revision not in common]


def is_readable(engine: Engine, revision: str) -> bool:
    """Return whether a revision exists here, with a supported version of the schema."""
    if not engine.has_revision(revision):
        return False
    try:
        engine.require_readable(revision)
    except SchemaTooNew:
        return False
    return True


def missing_revision_error(revision: str) -> RevisionMissing:
    return RevisionMissing(
        f"the knowledge base has no revision {revision[:60]!r}.",
        hint="run 'vmrag log' to list the revisions",
        revision=revision,
    )


def schema_too_new_error(version: int, newest: int) -> SchemaTooNew:
    return SchemaTooNew(
        f"the knowledge base has schema version {version}; this program supports versions up to {newest}.",
        hint="run 'python -m pip install --upgrade vmrag-link' to install a newer vmrag-link",
        found=version,
        known=newest,
    )
