"""The embedded engine: a knowledge base in one file, in this process."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path

from vmrag_link import locks, paths, permissions
from vmrag_link.engines.base import (
    KEEP_BRANCH,
    LINKS_BRANCH,
    ROOT_BRANCH,
    UNCOMMITTED_NAME,
    USUAL_LIMITS,
    Limits,
    Write,
)
from vmrag_link.engines.doltlite import (
    anchors,
    history,
    inspection,
    links,
    reading,
    remotes,
    schema,
    unfinished,
    validation,
)
from vmrag_link.engines.doltlite import joining as joins
from vmrag_link.engines.doltlite.connection import Connection
from vmrag_link.engines.doltlite.library import FETCH_AGAIN
from vmrag_link.errors import (
    AlreadyInitialized,
    BranchExists,
    BranchMissing,
    Busy,
    EngineFailed,
    FileSystemError,
    KnowledgeMoved,
    KnowledgeRefused,
    NameInvalid,
    NoChanges,
    NotInitialized,
    SchemaTooNew,
    Uncommitted,
)
from vmrag_link.models import (
    At,
    ChangeCounts,
    Collection,
    Difference,
    Document,
    DocumentHeader,
    KbBranch,
    Link,
    RevisionInfo,
    Working,
)

FILE_NAME = "kb.doltlite"
LOCK_NAME = "write.lock"
COMPACTED_NAME = "compacted"
"""Holds the size in bytes that the file had after it was last compacted."""

COMPACT_BYTES = 4_000_000
_UNFINISHED = ".creating"

_COMMIT = "SELECT dolt_commit('-A', '-m', ?, '--author', ?, '--date', ?)"


class DoltliteEngine:
    """See `engines.base.Engine` for the contract.

    One connection stays open for revisions and branches. Documents are read and written through a connection of their own
    (0.5 ms), opened at their revision or branch: a connection that was open while its branch was moved goes on showing the
    old rows. Each of these looks first whether it stands on our tables and nothing else (0.1 ms): what was fetched may hold anything.
    """

    def __init__(self, folder: Path, *, lock_timeout: float, limits: Limits) -> None:
        """Use `create` or `open`."""
        self._folder = folder
        self._lock_timeout = lock_timeout
        self._limits = limits
        self._ours: set[str] = set()
        self._lock_depth = 0
        self._latest_diff: tuple[tuple[str, str], Difference] | None = None
        self._main = Connection(folder / FILE_NAME, timeout=lock_timeout, longest=limits.text_bytes)

    @classmethod
    def create(cls, folder: Path, *, author: str, date: str) -> DoltliteEngine:
        """Make a knowledge base whose first revision, the head of `vmrag_root`, holds the empty tables.

        `author` is `Name <email>`, `date` ISO UTC. Raises `AlreadyInitialized`. A kill leaves no knowledge base.
        """

        def fill(connection: Connection) -> None:
            # The name `main` belongs to the code branch main. Renaming the default branch keeps it the default.
            connection.execute("SELECT dolt_branch('-m', dolt_default_branch(), ?)", (ROOT_BRANCH,))
            with connection.transaction():
                schema.create(connection)
                connection.execute(_COMMIT, ("Create the knowledge base", author, date))

        cls._make(folder, fill)
        return cls.open(folder)

    @classmethod
    def clone(cls, folder: Path, remote: str, url: str, *, limits: Limits = USUAL_LIMITS) -> DoltliteEngine:
        """Make a knowledge base of what `url` holds, whose branches are those of a remote. Raises as `create` and `fetch`.

        One without `vmrag_root` is somebody else's: `RemoteDamaged`.
        """

        def fill(connection: Connection) -> None:
            inspection.require_room(url, connection.path, limits)
            remotes.clone(connection, remote, url, ROOT_BRANCH, most=limits.file_bytes)
            inspection.require_sound(connection.path, remotes.heads(connection, remote), known={}, limits=limits)

        cls._make(folder, fill)
        return cls.open(folder, limits=limits)

    @staticmethod
    def _make(folder: Path, fill: Callable[[Connection], None]) -> None:
        """All or nothing: a kill leaves no knowledge base, a failure no trace."""
        path, unfinished = folder / FILE_NAME, folder / _UNFINISHED
        with _writable(folder), locks.exclusive(folder / LOCK_NAME, purpose="create the knowledge base", timeout=30.0):
            if path.exists():
                raise AlreadyInitialized(
                    f"There is a knowledge base in {folder} already.", hint="See what it holds: vmrag status"
                )
            import shutil  # not for every opening

            shutil.rmtree(unfinished, ignore_errors=True)
            permissions.make_folder(unfinished)
            try:
                with Connection(unfinished / FILE_NAME, access="create") as connection:
                    fill(connection)
                permissions.settle(unfinished)
                (unfinished / FILE_NAME).rename(path)
            finally:
                shutil.rmtree(unfinished)
            paths.fsync(folder)

    @classmethod
    def open(cls, folder: Path, *, lock_timeout: float = 30.0, limits: Limits = USUAL_LIMITS) -> DoltliteEngine:
        """Open what is there; nothing is ever created. `lock_timeout`: seconds to wait for another writer. `limits`: what is taken.

        Raises `NotInitialized`, `SchemaTooNew`, and `EngineFailed` for a file that is no knowledge base.
        """
        path = folder / FILE_NAME
        if not cls.there(folder):
            raise NotInitialized(f"There is no knowledge base in {folder}.", hint="Create one: vmrag init")
        # Opened for writing, an empty or zeroed file would become a new database.
        with Connection(path, access="read", timeout=lock_timeout) as connection:
            if not schema.version(connection):
                raise EngineFailed(f"{path} is not a knowledge base: its tables are missing.", hint=FETCH_AGAIN)
            schema.require_ours(connection, f"The beginning of {path}")
        return cls(folder, lock_timeout=lock_timeout, limits=limits)

    @staticmethod
    def there(folder: Path) -> bool:
        """Whether `open` would find something; a creation that was killed leaves nothing."""
        return (folder / FILE_NAME).exists()

    @property
    def name(self) -> str:
        return "doltlite"

    @property
    def folder(self) -> Path:
        return self._folder

    @property
    def limits(self) -> Limits:
        return self._limits

    def close(self) -> None:
        self._main.close()

    def damage(self) -> str:
        try:
            rows = self._main.execute_long("PRAGMA integrity_check")
        except EngineFailed as error:
            return error.message
        found = " ".join(str(each) for (each,) in rows).replace("*** in database main ***", "").split()
        return "" if found == ["ok"] else f"The knowledge base {self._main.path} is damaged ({' '.join(found)})."

    @contextlib.contextmanager
    def writing(self, purpose: str, *, timeout: float | None = None) -> Iterator[None]:
        with contextlib.ExitStack() as held:
            if self._lock_depth == 0:
                seconds = self._lock_timeout if timeout is None else timeout
                lock = locks.exclusive(self._folder / LOCK_NAME, purpose=purpose, timeout=seconds)
                held.enter_context(lock)
            self._lock_depth += 1
            try:
                yield
            finally:
                self._lock_depth -= 1

    def stamp(self) -> object:
        found = (self._folder / FILE_NAME).stat()  # which grows with everything that is written
        return (found.st_ino, found.st_size, found.st_mtime_ns)

    # -- revisions

    def has_revision(self, revision: str) -> bool:
        return history.exists(self._main, revision)

    def info(self, revision: str) -> RevisionInfo:
        return next(self.log(revision, limit=1))

    def log(self, revision: str, *, limit: int | None = None) -> Iterator[RevisionInfo]:
        return history.log(self._main, revision, limit)

    def is_ancestor(self, ancestor: str, descendant: str) -> bool:
        return history.is_ancestor(self._main, ancestor, descendant)

    def parents(self, revisions: Iterable[str]) -> dict[str, tuple[str, ...]]:
        return history.parents(self._main, revisions)

    def merge_base(self, one: str, other: str) -> str | None:
        return history.merge_base(self._main, one, other)

    # -- branches

    def branches(self) -> list[KbBranch]:
        return history.branches(self._main)

    def branch(self, name: str) -> KbBranch | None:
        return history.branch(self._main, name)

    def legal_branch_name(self, name: str) -> bool:
        return history.legal_branch_name(name)

    def create_branch(self, name: str, at: str) -> None:
        if not self.legal_branch_name(name):
            raise NameInvalid(f"The embedded engine cannot carry a branch named {name[:80]!r}.", name=name)
        with self.writing(f"create the branch {name}"):
            history.require(self._main, at)
            for taken in self.branches():
                if taken.name.lower() == name.lower():
                    raise BranchExists(f"The knowledge base has a branch {taken.name!r} already.", branch=taken.name)
            self._main.execute("SELECT dolt_branch(?, ?)", (name, at))

    def move_branch(self, name: str, to: str, *, expected: str) -> None:
        with self.writing(f"move the branch {name}"):
            history.require(self._main, to)
            self._require_movable(name, expected)
            if not history.is_ancestor(self._main, expected, to):
                self._keep(expected, f"the head of {name}", without=name)
            self._main.execute("SELECT dolt_branch('-f', ?, ?)", (name, to))

    def delete_branch(self, name: str, *, expected: str) -> None:
        with self.writing(f"delete the branch {name}"):
            self._require_movable(name, expected)
            self._keep(expected, f"the head of {name}", without=name)
            self._main.execute("SELECT dolt_branch('-D', ?)", (name,))

    def _require_movable(self, name: str, expected: str) -> None:
        # The raw commands discard uncommitted rows silently.
        if self._require_head(name, expected).dirty:
            raise Uncommitted(
                f"The branch {name!r} carries uncommitted documents.", hint="Commit them: vmrag commit", branch=name
            )

    def _require_head(self, name: str, expected: str) -> KbBranch:
        found = self._require_branch(name)
        if found.head != expected:
            raise KnowledgeMoved(
                f"The branch {name!r} is at {found.head[:12]}, not at {expected[:12]} any more; nothing was written.",
                hint="Look at what changed and try again: vmrag status",
                branch=name,
                head=found.head,
                expected=expected,
            )
        return found

    def _require_branch(self, name: str) -> KbBranch:
        found = self.branch(name)
        if found is None:
            raise BranchMissing(f"The knowledge base has no branch {name!r}.", branch=name)
        return found

    # -- anchors

    def anchor(self, revision: str, *, reason: str) -> None:
        schema.exact(reason, "The reason")
        with self.writing("keep a revision"):
            history.require(self._main, revision)
            self._keep(revision, reason)

    def _keep(self, revision: str, reason: str, *, without: str = "") -> None:
        """Anchor a revision, unless a branch other than `without` reaches it. The caller holds the write lock."""
        if not history.unreachable(self._main, [revision], without=without):
            return
        before = history.branch(self._main, KEEP_BRANCH)
        head = self.kept(before.head if before else None, revision, reason=reason)
        self._main.execute(
            "SELECT dolt_branch('-f', ?, ?)" if before else "SELECT dolt_branch(?, ?)", (KEEP_BRANCH, head)
        )

    def kept(self, head: str | None, revision: str, *, reason: str) -> str:
        for each in (revision, *([head] if head else [])):
            self._reading(each).close()
        return anchors.kept(self._main, head, revision, f"Keep {revision}: {reason}", self._connection)

    def unreachable(self, revisions: Iterable[str], *, heads: Iterable[str] | None = None) -> list[str]:
        found = (
            history.unreachable(self._main, revisions)
            if heads is None
            else history.unreachable_from(self._main, heads, revisions)
        )
        return [each for each in found if self.has_revision(each)]

    def collect_garbage(self) -> None:
        with self.writing("collect garbage"):
            unfinished.drop(self._main)
            self._main.execute_long("SELECT dolt_gc()")
        permissions.settle(self._folder)  # it is a new file

    # -- remotes

    def remote_heads(self, remote: str) -> dict[str, str]:
        return remotes.heads(self._main, remote)

    def peek(self, url: str) -> dict[str, str] | None:
        return remotes.peek(url)

    def fetch(self, remote: str, url: str) -> None:
        with self.writing(f"fetch from {remote}"), self._connection(None) as connection:
            self._fetch(connection, remote, url)

    def _fetch(self, connection: Connection, remote: str, url: str) -> None:
        known, there = remotes.heads(connection, remote), remotes.peek(url)
        inspection.require_room(url, connection.path, self._limits)
        if there is not None and (file := remotes.file_of(url)):
            inspection.require_sound(file, there, known=known, limits=self._limits)
        try:
            remotes.fetch(connection, remote, url, most=self._limits.file_bytes)
            if there is None:  # a server is looked at in what it has sent
                heads = remotes.heads(connection, remote)
                inspection.require_sound(connection.path, heads, known=known, limits=self._limits)
        except (KnowledgeRefused, FileSystemError):
            for head in dict.fromkeys(known.values()):  # nothing else may reach what came from there before
                if not self.refusal(head):
                    self._keep(head, "what a remote held")
            remotes.forget(connection, remote)
            self.collect_garbage()
            raise

    def refusal(self, revision: str) -> KnowledgeRefused | None:
        try:
            self._reading(revision).close()
        except KnowledgeRefused as why:
            return why
        except SchemaTooNew:
            pass  # which whoever reads it is told
        return None

    def push(self, remote: str, url: str, heads: Mapping[str, str], *, force: bool = False) -> None:
        with self.writing(f"push to {remote}"), self._connection(None) as connection:
            refresh = functools.partial(self._fetch, connection, remote, url) if force else None
            remotes.push(connection, remote, url, heads, refresh=refresh)

    def forget_remote(self, remote: str) -> None:
        with self.writing(f"forget {remote}"), self._connection(None) as connection:
            remotes.forget(connection, remote)

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
        root = self._require_branch(ROOT_BRANCH).head
        before = self.parents([root]).keys() - {root}
        here = self.parents([root, *known]).keys() - before
        return validation.take(file, revisions, root=root, known=here, into=into, limits=limits, sound=sound)

    # -- reading

    def collections(self, at: At) -> list[Collection]:
        with self._reading(at) as connection:
            return list(reading.collections(connection)) if schema.version(connection) else []

    def documents(
        self, at: At, *, collection: str | None = None, ids: Iterable[str] | None = None
    ) -> Iterator[Document]:
        with self._reading(at) as connection:
            if schema.version(connection):
                yield from reading.documents(connection, collection, ids)

    def headers(
        self, at: At, *, collection: str | None = None, ids: Iterable[str] | None = None
    ) -> Iterator[DocumentHeader]:
        with self._reading(at) as connection:
            if schema.version(connection):
                yield from reading.headers(connection, collection, ids)

    def document(self, at: At, collection: str, doc_id: str) -> Document | None:
        with self._reading(at) as connection:
            return reading.document(connection, collection, doc_id) if schema.version(connection) else None

    def count(self, at: At, *, collection: str | None = None) -> int:
        with self._reading(at) as connection:
            return reading.count(connection, collection) if schema.version(connection) else 0

    def diff(self, old: At, new: At) -> Difference:
        old, new = self._settled(old), self._settled(new)
        if isinstance(old, Working) or isinstance(new, Working):
            return self._diff(old, new)
        if self._latest_diff is None or self._latest_diff[0] != (old, new):  # a sync asks several times for the same
            self._latest_diff = (old, new), self._diff(old, new)
        return self._latest_diff[1]

    def count_changes(self, old: At, new: At) -> ChangeCounts:
        old, new = self._settled(old), self._settled(new)
        if isinstance(old, Working) or isinstance(new, Working):
            return self._diff(old, new).counts()
        if self._latest_diff is not None and self._latest_diff[0] == (old, new):
            return self._latest_diff[1].counts()
        for each in (old, new):
            self._reading(each).close()
        return reading.count_changes(self._main, old, new)

    def _diff(self, old: At, new: At) -> Difference:
        with self._reading(old) as before, self._reading(new) as after:
            schema.version(before)
            schema.version(after)
            # A connection sees one working set only: that of its own branch.
            if isinstance(new, str):
                return reading.difference(before, old if isinstance(old, str) else reading.WORKING, new)
            if isinstance(old, str):
                return reading.difference(after, old, reading.WORKING)
            if old == new:
                return reading.difference(after, reading.WORKING, reading.WORKING)
            # Any revision will do to meet at; the nearest is the old one's head.
            middle = self._require_branch(old.branch).head
            first = reading.difference(before, reading.WORKING, middle)
            second = reading.difference(after, middle, reading.WORKING)
            return reading.compose(first, second, lambda key: reading.document(before, *key))

    def _settled(self, at: At) -> At:
        """A clean branch's head stands for its working set, which has no name before something was written to it."""
        if isinstance(at, str):
            return at
        found = self._require_branch(at.branch)
        return at if found.dirty else found.head

    def _reading(self, at: At) -> Connection:
        if isinstance(at, Working):
            return self._connection(self._require_branch(at.branch).name)
        history.require(self._main, at)
        return self._connection(at)

    def _connection(self, at: str | None) -> Connection:
        """On the default branch, which is the root's; or at a revision or a branch, which has our tables and nothing else.

        Raises `KnowledgeRefused` where it has not: whatever is read or written goes through here. A revision is asked once.
        """
        longest = self._limits.text_bytes
        connection = Connection(self._folder / FILE_NAME, at=at, timeout=self._lock_timeout, longest=longest)
        if at is not None and at not in self._ours:
            fixed = history.is_hash(at)
            try:
                also = links.OBJECTS if at == LINKS_BRANCH else frozenset()
                schema.require_ours(connection, f"Revision {at[:12]}" if fixed else f"Branch {at!r}", also=also)
            except BaseException:
                connection.close()
                raise
            if fixed:
                self._ours.add(at)
        return connection

    # -- links

    def links(self, *, git_commit: str | None = None, dolt_commit: str | None = None) -> list[Link]:
        if self.branch(LINKS_BRANCH) is None:
            return []
        given = {"git_commit": git_commit, "dolt_commit": dolt_commit}
        asked = {column: value for column, value in given.items() if value is not None}
        where = "WHERE " + " AND ".join(f"{column} = ?" for column in asked) if asked else ""
        with self._connection(LINKS_BRANCH) as connection:
            return links.rows(connection, where, list(asked.values()))

    def write_links(
        self, put: Sequence[Link], *, remove: Sequence[str] = (), message: str, author: str, date: str
    ) -> None:
        with self.writing("link"):
            if self.branch(LINKS_BRANCH) is None:
                self._main.execute("SELECT dolt_branch(?, ?)", (LINKS_BRANCH, self._require_branch(ROOT_BRANCH).head))
            with self._connection(LINKS_BRANCH) as connection, connection.transaction():
                links.prepare(connection)
                links.store(connection, put, remove)
                if connection.execute("SELECT 1 FROM dolt_status LIMIT 1"):
                    _commit(connection, message, author, date)

    # -- writing

    def write(self, branch: str, rows: Write, *, expected: str) -> None:
        with self._writing_on(branch, f"write to the branch {branch}", expected) as connection:
            permissions.make_file(self._folder / UNCOMMITTED_NAME)
            schema.store(connection, rows)

    def commit(self, branch: str, *, message: str, author: str, date: str, expected: str) -> str:
        with self._writing_on(branch, f"commit on the branch {branch}", expected) as connection:
            if not connection.execute("SELECT 1 FROM dolt_status LIMIT 1"):
                raise NoChanges(f"The branch {branch!r} has nothing to commit.", branch=branch)
            revision = _commit(connection, message, author, date)
        self._note_uncommitted()
        self._compact()
        return revision

    def _note_uncommitted(self) -> None:
        """Take the note away when no branch has uncommitted rows any more; a kill before that costs a look, no more."""
        with self.writing("note what is committed"):
            if not any(each.dirty for each in self.branches()):
                (self._folder / UNCOMMITTED_NAME).unlink(missing_ok=True)

    def commit_onto(
        self, revision: str, rows: Sequence[Write], *, joining: str | None = None, message: str, author: str, date: str
    ) -> str:
        with self.writing("merge"):
            history.require(self._main, revision)
            if joining and history.is_ancestor(self._main, joining, revision):
                joining = None
            if joining:
                self._reading(joining).close()  # the engine merges its tables, too
            made = revision
            with unfinished.branch(self._main, revision, self._connection) as connection, connection.transaction():
                schema.version(connection)
                if joining:
                    undo = self._taking_back(revision, joining)
                    joins.begin(connection, joining)
                    schema.store(connection, undo)
                for each in rows:
                    schema.store(connection, each)
                if joining or connection.execute("SELECT 1 FROM dolt_status LIMIT 1"):
                    made = _commit(connection, message, author, date)
            self._keep(made, "a merge")
        self._compact()
        return made

    def _taking_back(self, revision: str, joining: str) -> Write:
        """What turns the engine's own merge of the two into `revision` again.

        It merges from its own merge base and cannot be told what to make of it: so whatever `joining` changed since then is undone.
        """
        brought = self._diff(joins.base(self._main, revision, joining), joining)
        names = [change.key for change in brought.collections]
        with self._reading(revision) as connection:
            held = {each.name: each for each in reading.collections(connection)} if schema.version(connection) else {}
            before = {change.key: reading.document(connection, *change.key) for change in brought.documents}
        return Write(
            put_collections=[held[name] for name in names if name in held],
            remove_collections=[name for name in names if name not in held],
            put_documents=[document for document in before.values() if document],
            remove_documents=[key for key, document in before.items() if not document],
        )

    def take_back(self, branch: str, *, kept: str, expected: str) -> None:
        with self.writing(f"clean the branch {branch}"):
            if not self._require_head(branch, expected).dirty:
                return
            if not self.diff(kept, Working(branch)).empty:
                raise Uncommitted(
                    f"The revision {kept[:12]} does not hold all uncommitted documents of {branch!r}.",
                    hint="Commit them: vmrag commit",
                    branch=branch,
                )
            with self._connection(branch) as connection:
                connection.execute("SELECT dolt_reset('--hard')")
            self._note_uncommitted()

    def _compact(self) -> None:
        """Collect garbage when much was appended since the last time: every opening reads it, a millisecond a megabyte.

        What our own branches ever stood at is anchored, so nothing that somebody may ask for goes. A size that cannot be
        noted is no reason to fail: the revision is committed.
        """
        path, note = self._folder / FILE_NAME, self._folder / COMPACTED_NAME
        with contextlib.suppress(OSError, ValueError, EngineFailed, Busy), self.writing("compact the knowledge base"):
            before = int(note.read_text()) if note.exists() else 0
            if path.stat().st_size - before > max(COMPACT_BYTES, before // 2):
                self.collect_garbage()
                permissions.make_file(note)
                note.write_text(str(path.stat().st_size))

    @contextlib.contextmanager
    def _writing_on(self, branch: str, purpose: str, expected: str) -> Iterator[Connection]:
        """A transaction on the branch, whose head is the expected one from its first statement to its end."""
        with self.writing(purpose):
            self._require_head(branch, expected)
            with self._connection(branch) as connection, connection.transaction():
                schema.version(connection)
                yield connection


def _commit(connection: Connection, message: str, author: str, date: str) -> str:
    values = (schema.exact(message, "The message"), schema.exact(author, "The author"), schema.exact(date, "The date"))
    revision: str = connection.execute(_COMMIT, values)[0][0]
    return revision


@contextlib.contextmanager
def _writable(folder: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise EngineFailed(
            f"The folder {folder} cannot be written: {error.strerror}.",
            hint="Check that you may write there and that the disk has space.",
            path=str(folder),
        ) from error
