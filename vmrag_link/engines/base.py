"""The contract of an engine: versioned tables, branches with a working set each, and nothing that was written is lost.

`tests/integration/test_engine_contract.py` runs against every engine. Methods raise `errors.Engine` families only.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Protocol

from vmrag_link.errors import KnowledgeRefused
from vmrag_link.models import (
    At,
    ChangeCounts,
    Collection,
    Difference,
    Document,
    DocumentHeader,
    KbBranch,
    Link,
    Record,
    RevisionInfo,
)

SCHEMA_VERSION = 1
KEEP_BRANCH = "vmrag_keep"
ROOT_BRANCH = "vmrag_root"
LINKS_BRANCH = "vmrag_links"
UNFINISHED_BRANCH = "vmrag_unfinished"
"""On which an engine makes a revision before anything leads to it. No branch to anybody else: what a kill leaves of it keeps nothing."""

RESERVED_PREFIX = "vmrag"
UNCOMMITTED_NAME = "uncommitted"
"""A file in the knowledge base's folder; while it is not there, no branch has uncommitted rows. Shell scripts look for it."""

ASIDE_PREFIX = "vmrag/wip/"
"""Before the name of a KB branch: its uncommitted documents, set aside in a commit because they conflict with a moved pin."""


def reserved(branch: str) -> bool:
    """Whether a branch is the tool's own, on which nobody works; those with documents that were set aside are among them."""
    return branch.startswith(RESERVED_PREFIX)


def root_of(engine: Engine) -> str:
    """The revision that `vmrag_root` is at: every knowledge base has one, and two that differ in it have nothing in common."""
    found = engine.branch(ROOT_BRANCH)
    assert found is not None  # noqa: S101  made with the knowledge base, and no command removes it
    return found.head


class Write(Record, frozen=True):
    """Rows to store in one transaction. `put_*` inserts or replaces a whole row; removing a collection removes its documents."""

    put_collections: Sequence[Collection] = ()
    remove_collections: Sequence[str] = ()
    put_documents: Iterable[Document] = ()
    remove_documents: Sequence[tuple[str, str]] = ()


class Limits(Record, frozen=True):
    """How much of a stranger's is looked at: bytes of the file, new revisions, collections and documents in one of them, bytes of a text;
    branches of the file.
    """

    file_bytes: int = 1_000_000_000
    revisions: int = 1000
    collections: int = 10_000
    documents: int = 1_000_000
    text_bytes: int = 64 << 20
    branches: int = 10_000


USUAL_LIMITS = Limits()
MEGABYTE = 1_000_000


def too_large(size: int, most: int) -> KnowledgeRefused:
    """What a remote holds has more bytes than are taken."""
    return KnowledgeRefused(
        f"The remote's knowledge base has {size / MEGABYTE:,.1f} MB; at most {most / MEGABYTE:,.0f} MB are taken. Nothing of it was.",
        hint=f"If that is what you expect: git config vmrag.limits.knowledge-mb {-(-size // MEGABYTE)}",
        bytes=size,
    )


class Engine(Protocol):
    """One knowledge base, open. Safe for several processes; one instance belongs to one thread at a time."""

    @property
    def name(self) -> str:
        """`doltlite` or `dolt`."""

    @property
    def folder(self) -> Path:
        """The directory that holds the knowledge base."""

    @property
    def limits(self) -> Limits:
        """How much is taken of what remotes hold."""

    def close(self) -> None: ...

    def damage(self) -> str:
        """A sentence about what the engine's own check of everything that is stored finds; empty for nothing. 2 ms a megabyte."""

    # -- writing is serialised: one write lock per knowledge base, re-entrant within an instance --------------------

    def writing(self, purpose: str, *, timeout: float | None = None) -> AbstractContextManager[None]:
        """Hold the write lock. Raises `Busy` naming the holder when `timeout` seconds (default: the engine's) pass.

        Every mutating method takes it by itself; hold it around several that belong together.
        """

    def stamp(self) -> object:
        """Equal to an earlier one only if nothing was written in between, by anybody."""

    # -- revisions ---------------------------------------------------------------------------------------------------

    def has_revision(self, revision: str) -> bool:
        """Whether this full hash names a revision that is here. Any text may be asked; it is never read as a branch name."""

    def info(self, revision: str) -> RevisionInfo:
        """Raises `RevisionMissing`."""

    def log(self, revision: str, *, limit: int | None = None) -> Iterator[RevisionInfo]:
        """The revision and its ancestors, newest first, children before parents; the engine's own initial commits included."""

    def is_ancestor(self, ancestor: str, descendant: str) -> bool:
        """Whether `descendant` contains `ancestor` (a revision contains itself). Raises `RevisionMissing`."""

    def parents(self, revisions: Iterable[str]) -> dict[str, tuple[str, ...]]:
        """The parents of these revisions and of everything that they contain; what is not here is left out.

        Any text may be asked. One walk through the history, however many are asked.
        """

    def merge_base(self, one: str, other: str) -> str | None:
        """The best common ancestor; None for unrelated histories. Raises `RevisionMissing`."""

    # -- branches ----------------------------------------------------------------------------------------------------

    def branches(self) -> list[KbBranch]:
        """All branches, the reserved ones (`vmrag…`) included, sorted by name."""

    def branch(self, name: str) -> KbBranch | None: ...

    def legal_branch_name(self, name: str) -> bool:
        """Whether this engine can carry a branch of that name (says nothing about whether it is free)."""

    def create_branch(self, name: str, at: str) -> None:
        """Raises `BranchExists` (names that differ only in case collide), `RevisionMissing`, `NameInvalid`."""

    def move_branch(self, name: str, to: str, *, expected: str) -> None:
        """Make `to` the head; the old one is anchored first unless something else reaches it.

        Refuses a dirty branch (`Uncommitted`) and one whose head is not `expected` (`KnowledgeMoved`).
        """

    def delete_branch(self, name: str, *, expected: str) -> None:
        """Anchors and refuses as `move_branch` does."""

    # -- anchors: what no branch reaches is dropped by garbage collection ------------------------------------------

    def anchor(self, revision: str, *, reason: str) -> None:
        """Make `vmrag_keep` reach this revision; nothing happens when some branch reaches it already."""

    def kept(self, head: str | None, revision: str, *, reason: str) -> str:
        """The next head of a remote's `vmrag_keep`, which is at `head` (None: not there), that reaches the revision, too.

        Hold the write lock until it is pushed: nothing here reaches it.
        """

    def unreachable(self, revisions: Iterable[str], *, heads: Iterable[str] | None = None) -> list[str]:
        """Those that are here and that no branch, `vmrag_keep` included, or none of these heads reaches, in the given order.

        Any text may be asked. One walk through the history, however many are asked.
        """

    def collect_garbage(self) -> None:
        """Drop what no branch reaches and give its space back. Working sets survive."""

    # -- remotes: `remote` is a short name, under which what was fetched or pushed last is remembered and kept from gc -----

    def remote_heads(self, remote: str) -> dict[str, str]:
        """The head of each of its branches, as of the last fetch or push; empty for one that is not known."""

    def peek(self, url: str) -> dict[str, str] | None:
        """The head of each branch in the file at a `file://` URL, nothing of which is taken; None for a server, which does not say.

        Raises `RemoteMissing`, `RemoteDamaged`.
        """

    def fetch(self, remote: str, url: str) -> None:
        """Bring everything that the branches at a `file://` or `http://` URL reach; no branch of ours moves.

        Raises `RemoteUnreachable`, `RemoteMissing`, `RemoteDamaged`, `AuthenticationFailed`, and `KnowledgeRefused` where a branch's head
        has other tables than ours or exceeds the limits; then nothing was taken.
        """

    def refusal(self, revision: str) -> KnowledgeRefused | None:
        """Why a revision that is here must not be read: any in a history may have been made by other means than ours."""

    def push(self, remote: str, url: str, heads: Mapping[str, str], *, force: bool = False) -> None:
        """Make revisions the heads of branches there, one after the other; what is not there is made, and goes for an empty revision.

        Raises `RemoteMoved` for what is no fast-forward (with `force`: for what is not where it was when last asked), and as `fetch`.
        """

    def forget_remote(self, remote: str) -> None:
        """Fine for one that is not known."""

    def vet(
        self,
        file: Path,
        revisions: Sequence[str],
        *,
        known: Iterable[str],
        into: Path,
        limits: Limits,
        sound: Callable[[Collection | Document], None],
    ) -> list[str]:
        """Look at what a stranger's remote file holds, and write what is sound into a new one, from which `fetch` takes it.

        That is those of the revisions that are in the file, with their ancestors. What the heads `known` do not reach is returned, and
        was checked: it descends from them, its tables are exactly ours, its rows are records; `sound` has seen every collection and
        document of the newest of these, and those that the others changed, and raises an `Engine` error for one that must not be.
        Nothing of it is executed, and nothing here changes. Raises `KnowledgeRefused`, also above the limits.
        """

    # -- reading -----------------------------------------------------------------------------------------------------

    def collections(self, at: At) -> list[Collection]:
        """Sorted by name."""

    def documents(
        self, at: At, *, collection: str | None = None, ids: Iterable[str] | None = None
    ) -> Iterator[Document]:
        """A stream sorted by (collection, doc_id), as bytes compare; memory does not grow with the number of documents.

        `ids`: only those of these that are there, each looked up.
        """

    def headers(
        self, at: At, *, collection: str | None = None, ids: Iterable[str] | None = None
    ) -> Iterator[DocumentHeader]:
        """As `documents`, without the texts."""

    def document(self, at: At, collection: str, doc_id: str) -> Document | None: ...

    def count(self, at: At, *, collection: str | None = None) -> int:
        """Number of documents."""

    def diff(self, old: At, new: At) -> Difference:
        """What turns `old` into `new`; any two revisions, related or not, and working sets. Costs by what differs.

        Documents that differ only in `updated_at` or `last_modified` are equal.
        """

    def count_changes(self, old: At, new: At) -> ChangeCounts:
        """The numbers of `diff`, without reading the texts."""

    # -- links: which code commit belongs to which revision, on the branch `vmrag_links` -------------------------------

    def links(self, *, git_commit: str | None = None, dolt_commit: str | None = None) -> list[Link]:
        """All links, or those of one commit or revision; sorted by git commit."""

    def write_links(
        self, put: Sequence[Link], *, remove: Sequence[str] = (), message: str, author: str, date: str
    ) -> None:
        """Replace and remove links, by git commit, in one commit of `vmrag_links`; nothing is committed where nothing changes."""

    # -- writing -----------------------------------------------------------------------------------------------------

    def write(self, branch: str, rows: Write, *, expected: str) -> None:
        """Change the branch's working set in one transaction: all or nothing, durable on return.

        Raises `KnowledgeMoved` when the branch's head is not `expected`, `BranchMissing`, `ContentRefused` (NUL, lone
        surrogates), `EngineFailed` (disk full …).
        """

    def commit(self, branch: str, *, message: str, author: str, date: str, expected: str) -> str:
        """Commit the branch's whole working set; returns the new revision. `author` is `Name <email>`, `date` ISO UTC.

        Equal parent, content, message, author and date give equal revisions. Raises `NoChanges`, `KnowledgeMoved`.
        """

    def commit_onto(
        self, revision: str, rows: Sequence[Write], *, joining: str | None = None, message: str, author: str, date: str
    ) -> str:
        """Commit `rows`, one after the other, on top of a revision; no branch moves, and what is returned is anchored.

        `joining` becomes its second parent, unless `revision` contains it; what it holds does not matter: the content is that of
        `revision` with `rows`. Nothing to commit gives `revision` itself. Deterministic as `commit`. Raises `RevisionMissing`,
        `ContentRefused`, and `EngineFailed` where `joining` has no history in common with `revision`.
        """

    def take_back(self, branch: str, *, kept: str, expected: str) -> None:
        """Make a branch clean, whose uncommitted rows the revision `kept` holds, too.

        Raises `Uncommitted` when it does not hold them all, `KnowledgeMoved`, `BranchMissing`.
        """
