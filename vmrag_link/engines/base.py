"""The contract of an engine: versioned tables, branches with a working set each, no data lost.

`tests/integration/test_engine_contract.py` runs against every engine. Methods raise `errors.Engine`
families only.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Literal, Protocol

from vmrag_link.engines.limits import Limits
from vmrag_link.errors import BranchMissing, KnowledgeRefused, SchemaTooNew
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

EngineName = Literal["doltlite", "dolt"]

KEEP_BRANCH = "vmrag_keep"
ROOT_BRANCH = "vmrag_root"
LINKS_BRANCH = "vmrag_links"
MIGRATED_BRANCH = "vmrag_migrated"
"""Which revisions of another engine became which ones here (`engines.migrated`)."""
VECTORS_BRANCH = "vmrag_vectors"
"""What a Chroma server has to serve (`sync.shared_vectors`). It is pushed, and never pinned."""

PINNED_BRANCH = "vmrag_pinned"
"""The branch that reaches what was pinned here last (`Engine.protect`). It is never pushed."""

UNFINISHED_BRANCH = "vmrag_unfinished"
"""The branch on which an engine makes a revision. It counts as none: a kill leaves nothing that it
keeps.
"""

RESERVED_PREFIX = "vmrag"
_ROOT_DEPTH = 2
"""How many revisions the root's history has: itself, and the engine's own initial commit."""

DOLTLITE_FILE = "kb.doltlite"
DOLT_FOLDER = ".dolt"
SERVER_FILE = "server.json"
"""What makes a folder a knowledge base: the embedded engine's file, Dolt's own folder, or a note
that it is a database of a running Dolt server.
"""

LOCK_NAME = "write.lock"
"""The lock file in the knowledge base's folder that whoever writes holds."""

UNCOMMITTED_NAME = "uncommitted"
"""A file in the knowledge base's folder. Without it no branch has uncommitted rows; shell scripts
test for it.
"""

ASIDE_PREFIX = "vmrag/wip/"
"""The prefix of branches with uncommitted documents of a KB branch that conflict with a moved pin.
"""

CARRIED_SUFFIX = ".carried"
"""The end of the names of those that remember changes which a revision already contains (see
`merging.replay`).
"""


def has_remembered_changes(engine: Engine) -> bool:
    """Whether uncommitted changes of any KB branch are remembered (see `merging.replay`)."""
    return any(is_memory_branch(branch.name) for branch in engine.list_branches())


def is_memory_branch(branch: str) -> bool:
    """Return True if a branch of this name remembers uncommitted changes."""
    return branch.startswith(ASIDE_PREFIX) and branch.endswith(CARRIED_SUFFIX)


def is_reserved(branch: str) -> bool:
    """Whether a branch is reserved for the tool; branches with documents set aside are."""
    return branch.startswith(RESERVED_PREFIX)


def read_root(engine: Engine) -> str:
    """Return the revision of `vmrag_root`. Knowledge bases with different roots share no history.

    Raises `BranchMissing`.
    """
    root = engine.find_branch(ROOT_BRANCH)
    if root is None:
        raise missing_branch_error(ROOT_BRANCH)
    return root.head


def missing_branch_error(name: str) -> BranchMissing:
    """Return the error for a branch that does not exist."""
    hint = "vmrag doctor --fix" if name == ROOT_BRANCH else "vmrag branch"
    return BranchMissing(f"The knowledge base has no branch {name!r}.", hint=hint, branch=name)


def find_correct_root(engine: Engine) -> str:
    """Return the revision that `vmrag_root` should name; empty if it names it.

    It is the first revision with tables, the child of the engine's own initial commit.
    """
    root = engine.find_branch(ROOT_BRANCH)
    if root and len([*engine.log(root.head, limit=3)]) == _ROOT_DEPTH:
        return ""
    heads = [branch.head for branch in engine.list_branches() if not is_reserved(branch.name)]
    for head in (*heads, *([root.head] if root else ()), *engine.all_remote_heads()):
        if engine.has_revision(head):
            history = [info.revision for info in engine.log(head)]
            if len(history) >= _ROOT_DEPTH:
                return history[-_ROOT_DEPTH]
    return ""


def list_revisions_ahead(engine: Engine, revision: str, other: str) -> list[RevisionInfo]:
    """What a revision contains and the other does not, parents before children, in an order that
    the history alone decides.
    """
    found: dict[str, RevisionInfo] = {}
    infos = {revision: engine.read_revision(revision)}
    if infos[revision].parents == (other,):
        return [*infos.values()]
    common, left = engine.map_parents([other]), [revision]
    while left:
        info = infos[left[-1]]
        ahead = next((parent for parent in info.parents if parent not in common and parent not in found), None)
        if ahead is None:
            found[left.pop()] = info
        else:
            infos[ahead] = infos.get(ahead) or engine.read_revision(ahead)
            left.append(ahead)
    return [info for each, info in found.items() if each not in common]


def is_readable(engine: Engine, revision: str) -> bool:
    """Whether a revision is here, in a version of the schema that this program knows."""
    if not engine.has_revision(revision):
        return False
    try:
        engine.require_readable(revision)
    except SchemaTooNew:
        return False
    return True


class Write(Record, frozen=True):
    """Rows to store in one transaction.

    `put_*` inserts or replaces whole rows. Removing a collection removes its documents. A document
    of another table than `documents` is stored there, in the collection that its metadata implies.
    Where the schema is too old for them, it is upgraded in the same transaction.
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

        What a version lacks is empty there, so rows that are empty in it need no newer one.
        Documents that come as a stream are rows of `documents`.
        """
        listed = self.put_documents if isinstance(self.put_documents, list | tuple) else ()
        later = (
            self.put_projects
            or any(
                put_collection.import_base or put_collection.chunking.strategy != "characters"
                for put_collection in self.put_collections
            )
            or any(each.table != "documents" for each in listed)
        )
        return 2 if later else 1

    @property
    def is_empty(self) -> bool:
        return not any(getattr(self, name) for name in self.__struct_fields__)


def detect_engine(folder: Path) -> EngineName | None:
    """The engine of the knowledge base in a folder; None where there is none.

    A creation that was killed leaves none. Where two lie there, a migration is about to replace
    Dolt's, or has just done so.
    """
    if (folder / DOLTLITE_FILE).exists():
        return "doltlite"
    return "dolt" if (folder / DOLT_FOLDER).exists() or (folder / SERVER_FILE).exists() else None


class RowSource(Protocol):
    """What an index is made of: a knowledge base, or what can be read like one."""

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
    """One knowledge base, open. Safe for several processes; one instance belongs to one thread at a
    time.
    """

    @property
    def name(self) -> EngineName: ...

    @property
    def folder(self) -> Path:
        """The directory that holds the knowledge base."""

    @property
    def limits(self) -> Limits:
        """How much is taken of what remotes hold."""

    @property
    def shared(self) -> bool:
        """Whether other repositories' branches are in it: it is on a server."""

    def close(self) -> None: ...

    def find_damage(self) -> str:
        """The result of the engine's own check of everything, as a sentence; empty if it is sound.

        Takes 2 ms per megabyte.
        """

    # -- writing is serialised: one write lock per knowledge base, re-entrant within an instance ---

    def write_lock(self, purpose: str, *, timeout: float | None = None) -> AbstractContextManager[None]:
        """Hold the write lock. Raises `Busy` naming the holder when `timeout` seconds (default: the
        engine's) pass.

        Every mutating method takes it by itself; hold it around several that belong together.
        """

    def read_stamp(self) -> object:
        """Equal to an earlier one only if nothing was written in between, by anybody."""

    # -- revisions ---------------------------------------------------------------------------------

    def has_revision(self, revision: str) -> bool:
        """Whether this full hash names a revision that is here. Takes any text; it is never read as
        a branch name.
        """

    def read_revision(self, revision: str) -> RevisionInfo:
        """Raises `RevisionMissing`."""

    def log(self, revision: str, *, limit: int | None = None) -> Iterator[RevisionInfo]:
        """The revision and its ancestors, newest first, children before parents.

        The engine's own initial commits are included.
        """

    def is_ancestor(self, ancestor: str, descendant: str) -> bool:
        """Whether `descendant` contains `ancestor` (a revision contains itself).

        Raises `RevisionMissing`.
        """

    def map_parents(self, revisions: Iterable[str]) -> dict[str, tuple[str, ...]]:
        """The parents of these revisions and of all their ancestors; unknown revisions are left
        out.

        Takes any texts. One walk through the history, however many they are.
        """

    def is_bare(self, revision: str) -> bool:
        """Whether a revision has no tables: an anchor, or the engine's own initial commit.

        Raises `RevisionMissing`.
        """

    def merge_base(self, one: str, other: str) -> str | None:
        """The best common ancestor; None for unrelated histories. Raises `RevisionMissing`."""

    # -- branches ----------------------------------------------------------------------------------

    def list_branches(self) -> list[KbBranch]:
        """All branches, the reserved ones (`vmrag…`) included, sorted by name."""

    def find_branch(self, name: str) -> KbBranch | None: ...

    def is_legal_branch_name(self, name: str) -> bool:
        """Whether this engine can carry a branch of that name, whether or not it exists already."""

    def create_branch(self, name: str, at: str) -> None:
        """Raises `BranchExists` (names that differ only in case collide), `RevisionMissing`,
        `NameInvalid`.
        """

    def move_branch(self, name: str, to: str, *, expected: str) -> None:
        """Make `to` the head. The old head is anchored first unless something else reaches it.

        Refuses a dirty branch (`Uncommitted`) and one whose head is not `expected`
        (`KnowledgeMoved`).
        """

    def delete_branch(self, name: str, *, expected: str) -> None:
        """Anchors and refuses as `move_branch` does."""

    # -- anchors: what no branch reaches is dropped by garbage collection --------------------------

    def anchor_revision(self, revision: str, *, reason: str) -> None:
        """Make `vmrag_keep` reach this revision, unless a branch reaches it already."""

    def protect_revision(self, revision: str) -> None:
        """Make an internal branch reach a revision that is about to be pinned.

        Other programs may move every KB branch, and collect garbage. Raises `RevisionMissing`.
        """

    def build_keep_head(self, head: str | None, revision: str, *, reason: str) -> str:
        """The next head of a remote's `vmrag_keep`, made to reach the revision too.

        `head` is its present one; None if there is none. Hold the write lock until the result is
        pushed, because nothing here reaches it.
        """

    def find_unreachable(self, revisions: Iterable[str], *, heads: Iterable[str] | None = None) -> list[str]:
        """Those revisions that are here and that none of the heads reaches, in the given order.

        `heads`: by default those of all branches, `vmrag_keep` included. Takes any texts. One walk
        through the history, however many they are.
        """

    def collect_garbage(self) -> None:
        """Drop what no branch reaches and give its space back. Working sets survive."""

    # -- remotes: `remote` is a short name for what was fetched or pushed last ---------------------

    def remote_heads(self, remote: str) -> dict[str, str]:
        """The head of each of its branches, as of the last fetch or push; empty for an unknown
        remote.
        """

    def foreign_heads(self, remote: str) -> dict[str, str]:
        """The heads of its branches that have tables of another program, as of the last fetch.

        They are here, are never read, and are not among `remote_heads`.
        """

    def all_remote_heads(self, branch: str | None = None) -> set[str]:
        """The heads of the branches of all remotes, or of those with one name, as of the last fetch
        or push.
        """

    def peek_heads(self, url: str) -> dict[str, str] | None:
        """The head of each branch of the file at a `file://` URL; None for a server.

        Nothing is fetched. Raises `RemoteMissing`, `RemoteDamaged`.
        """

    def fetch(self, remote: str, url: str) -> None:
        """Fetch everything that the branches at a `file://` or `http://` URL reach; no branch of
        ours moves.

        Raises `RemoteUnreachable`, `RemoteMissing`, `RemoteDamaged`, `AuthenticationFailed`, and
        `KnowledgeRefused` where a branch's head has other tables than ours or exceeds the limits.
        Then nothing was taken.
        """

    def find_refusal(self, revision: str) -> KnowledgeRefused | None:
        """The reason why a revision that is here must not be read.

        Any program may have written it.
        """

    def require_valid_rows(self, at: At, *, since: str) -> None:
        """Look at the rows in which a place differs from a revision that is sound: any program may
        have written them. Costs by their number.

        Raises `RowsInvalid` for the first that none of our commands could have written; and as
        reading `at`.
        """

    def push(self, remote: str, url: str, heads: Mapping[str, str], *, force: bool = False) -> None:
        """Make revisions the heads of branches there, one after the other.

        Where other programs write, too, they are looked at as `fetch` does: nobody could fetch what
        that refuses, and nothing is pushed.

        Missing branches are created; an empty revision deletes. Raises `RemoteMoved` for what is no
        fast-forward (with `force`: for a branch that moved since it was last fetched),
        `RemoteInvalid` for a server that is only fetched from, and as `fetch`.
        """

    def forget_remote(self, remote: str) -> None:
        """Fine for one that is not known."""

    def vet_revisions(
        self,
        url: str,
        revisions: Sequence[str],
        *,
        known: Iterable[str],
        into: Path,
        limits: Limits,
        sound: Callable[[Row], None],
    ) -> list[str]:
        """Check what a stranger's `url` holds and write its sound revisions to `into`, a place for
        `fetch` that is not there yet.

        Those are the given revisions that are there, with their ancestors. Returns the ones
        that the heads `known` do not reach. These were checked: they descend from `known`, their
        tables are exactly ours, and their rows are records. `sound` was called with every
        row of the newest, and with those that the others changed; it raises an
        `Engine` error for one that must not be taken.

        Nothing of it is executed, and nothing here changes. Raises `KnowledgeRefused`, also
        above the limits.
        """

    def list_docs_and_tags(self, revisions: Iterable[str]) -> list[str]:
        """Return the names of Dolt's docs and tags, which no other engine stores."""

    def find_undefined_collections(self, branch: str, *, since: str) -> list[str]:
        """Return the collections without a row whose documents changed on a branch since a
        revision: other programs insert documents alone.
        """

    # -- reading -----------------------------------------------------------------------------------

    def list_collections(self, at: At) -> list[Collection]:
        """Sorted by name."""

    def read_documents(
        self,
        at: At,
        *,
        collection: str | None = None,
        ids: Iterable[str] | None = None,
        table: DocumentTable | None = None,
    ) -> Iterator[Document]:
        """A stream sorted by (collection, doc_id) as bytes; issue logs and knowledge docs are among
        them. Its memory does not grow with the number of documents.

        `ids`: only these, if they are there; each is looked up. `table`: only documents of this
        one.
        """

    def read_headers(
        self, at: At, *, collection: str | None = None, ids: Iterable[str] | None = None
    ) -> Generator[DocumentHeader, None, None]:
        """As `documents`, without the texts.

        Close it where it is left before its end: until then it holds what it reads from.
        """

    def read_projects(self, at: At, *, ids: Iterable[str] | None = None) -> Iterator[Project]:
        """Sorted by id; none where the schema is older than their table.

        `ids`: only these, if they are there.
        """

    def list_sources(self, at: At, collection: str) -> list[tuple[str, str]]:
        """(id, source) of each document of a collection that has one; sorted by id as bytes."""

    def list_ids(self, at: At, collection: str, *, prefix: str) -> list[str]:
        """Which ids of a collection's documents of the table `documents` begin with a text, which
        is not empty. Sorted as bytes; the others are not looked at.
        """

    def find_document(self, at: At, collection: str, doc_id: str) -> Document | None: ...

    def require_readable(self, at: At) -> None:
        """Raise the error that reading documents there raises, if any: `RevisionMissing`,
        `BranchMissing`, `KnowledgeRefused`, `SchemaTooNew`.
        """

    def count_documents(self, at: At, *, collection: str | None = None) -> int:
        """Number of documents."""

    def diff(self, old: At, new: At) -> Difference:
        """The changes from `old` to `new`: any two revisions or working sets, related or not.

        Costs by the number of changes. Documents that differ only in `updated_at` or
        `last_modified` are equal.
        """

    def diff_headers(self, old: At, new: At, *, times: bool = False) -> HeaderDifference:
        """As `diff`, without reading the texts.

        `times`: between two revisions, documents that differ in their times alone are among them.
        """

    def read_document_history(self, revision: str, collection: str, doc_id: str) -> dict[str, DocumentHeader]:
        """What the document was in each of these revisions that has it: `revision` and its
        ancestors. Its texts are not read. Raises `RevisionMissing`.
        """

    def count_changes(self, old: At, new: At) -> ChangeCounts:
        """The numbers of `diff`, without reading the texts."""

    # -- links: which code commit belongs to which revision, on the branch `vmrag_links` -----------

    def list_links(
        self, *, git_commit: str | None = None, dolt_commit: str | None = None, at: str | None = None
    ) -> list[Link]:
        """All links, or those of one commit or revision; sorted by git commit.

        `at`: a revision of another knowledge base's `vmrag_links`, in place of ours. Raises
        `RevisionMissing`, `KnowledgeRefused`, `SchemaTooNew`.
        """

    def write_links(
        self, put: Sequence[Link], *, remove: Sequence[str] = (), message: str, author: str, date: str
    ) -> None:
        """Replace and remove links, by git commit, in one commit of `vmrag_links`.

        Commits nothing if nothing changes.
        """

    def build_links_head(self, head: str | None, put: Sequence[Link], *, message: str, author: str, date: str) -> str:
        """The next head of a remote's `vmrag_links`, with these links put; ours stays as it is.

        `head` is its present one; None if there is none. Hold the write lock until the result is
        pushed, because nothing here reaches it. Raises as `links`.
        """

    # -- writing -----------------------------------------------------------------------------------

    def write(self, branch: str, rows: Write, *, expected: str) -> None:
        """Change the branch's working set in one transaction: all or nothing, durable on return.

        Raises `KnowledgeMoved` when the branch's head is not `expected`, `BranchMissing`,
        `ContentRefused` (NUL, lone surrogates), `EngineFailed` (disk full …).
        """

    def commit(self, branch: str, *, message: str, author: str, date: str, expected: str) -> str:
        """Commit the branch's whole working set; returns the new revision. `author` is
        `Name <email>`, `date` ISO UTC.

        Equal parent, content, message, author and date give equal revisions. Raises `NoChanges`,
        `KnowledgeMoved`.
        """

    def commit_onto(
        self, revision: str, rows: Sequence[Write], *, joining: str | None = None, message: str, author: str, date: str
    ) -> str:
        """Commit `rows`, one after the other, on top of a revision. No branch moves; the result is
        anchored.

        `joining` becomes the second parent, unless `revision` contains it. Its content does not
        matter: the result is `revision` with `rows`. Nothing to commit gives `revision` itself.
        Deterministic as `commit`.

        Raises `RevisionMissing`, `ContentRefused`, and `EngineFailed` where `joining` has no
        history in common with `revision`.
        """

    def recreate_revision(
        self, parents: Sequence[str], rows: Iterable[Write], *, message: str, author: str, date: str
    ) -> str:
        """Commit the first parent with `rows`, stored one after the other, whether or not anything
        changes. Deterministic as `commit`.

        One or two parents. No branch moves, and nothing anchors the result: hold the write lock
        until something reaches it. Raises as `commit_onto`, and `EngineFailed` where the engine
        cannot make a revision of these parents.
        """

    def discard_saved_rows(self, branch: str, *, kept: str, expected: str) -> None:
        """Make a branch clean, whose uncommitted rows the revision `kept` holds, too.

        Raises `Uncommitted` when it does not hold them all, `KnowledgeMoved`, `BranchMissing`.
        """
