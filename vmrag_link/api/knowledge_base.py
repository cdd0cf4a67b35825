"""The class that `vmrag.open` returns."""

from __future__ import annotations

import functools
import os
import threading
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Literal, Self, TypeVar, cast

from vmrag_link.errors import UsageInvalid
from vmrag_link.git import plumbing
from vmrag_link.git.refs import Head
from vmrag_link.paths import Places

if TYPE_CHECKING:
    from vmrag_link.api.results import (
        AnswerPosition,
        CommittedRevision,
        DiffResults,
        DocumentEntry,
        DocumentText,
        DocumentVersion,
        LineMatches,
        RemovedDocuments,
        SearchResults,
        WrittenDocument,
    )
    from vmrag_link.api.session import ApiSession
    from vmrag_link.workspace import Workspace

T = TypeVar("T")
Names = str | Sequence[str]
"""One name, or several."""

Mode = Literal["hybrid", "vector", "keyword"]


def open_knowledge_base(
    path: str | os.PathLike[str] = ".", *, at: str | None = None, follow: bool = False, write: bool = False
) -> KnowledgeBase:
    """Open the knowledge base of the git work tree around a folder.

    `at`: the git ref that every method reads by default, for example a release; None for the work
    tree. `follow`: look where the work tree is at each call, as a command does. By default only
    `refresh` looks. `write`: allow `add`, `remove` and `commit`.

    Raises `GitRepositoryMissing` outside of a git work tree.
    """
    return KnowledgeBase(plumbing.locate_work_tree(Path(path)), at=at, follow=follow, write=write)


Method = TypeVar("Method", bound=Callable[..., Any])


def _in_turn(method: Method) -> Method:
    """Let the threads of a program take turns: an index is read by one thread at a time."""

    @functools.wraps(method)
    def call(self: KnowledgeBase, *arguments: Any, **keywords: Any) -> Any:
        with self._turn:
            return method(self, *arguments, **keywords)

    return cast("Method", call)


class KnowledgeBase:
    """The documents, code and notes of one git work tree, at one position.

    Create it with `vmrag.open`. It is a context manager, and several threads can use it. In a
    repository without a knowledge base, it reads the files of the sources.

    `vmrag.open` reads the position. After a checkout, the object still answers from the commit
    where it was opened, until `refresh`. `search` reads files as they are at the first search. The
    other methods read the work tree as it is now, while the work tree is at the same commit.

    All methods raise errors of `vmrag_link.errors`, whose `hint` names the command that helps.
    """

    def __init__(self, places: Places, *, at: str | None, follow: bool, write: bool) -> None:
        self._places = places
        self._at = at
        self._follow = follow
        self._write = write
        self._turn = threading.RLock()
        self._session: ApiSession | None = None
        self._head, self._pin = self._read_position()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def __repr__(self) -> str:
        at = f" at {self._at}" if self._at else ""
        return f"<KnowledgeBase {self._places.top}{at}>"

    @property
    def path(self) -> Path:
        """The top folder of the work tree."""
        return self._places.top

    @_in_turn
    def close(self) -> None:
        """Close the index and the knowledge base. A later call opens them again."""
        if self._session:
            self._session.close()
            self._session = None

    @_in_turn
    def refresh(self) -> None:
        """Read the position again, to follow a checkout, a commit or edited files."""
        self.close()
        self._head, self._pin = self._read_position()

    @property
    @_in_turn
    def position(self) -> AnswerPosition:
        """Open the index, and return the commit and revision that `search` answers from."""
        return self._here().position(self._ref(None))

    @_in_turn
    def search(
        self,
        text: str,
        *,
        k: int | None = None,
        mode: Mode | None = None,
        collection: Names = (),
        path: Names = (),
        lang: Names = (),
        symbol: Names = (),
        kind: Names = (),
        where: Mapping[str, Any] | None = None,
        where_document: Mapping[str, Any] | None = None,
        at: str | None = None,
        max_tokens: int | None = None,
    ) -> SearchResults:
        """Search by meaning and words, like `vmrag query`.

        `k`: the number of chunks (default: the setting `retrieval.k`). `mode`: hybrid, vector or
        keyword (default: the setting). `collection`, `path`, `lang`, `symbol`, `kind`: filters,
        each with one value or several alternatives. `where`, `where_document`: Chroma's filters.
        `at`: a git ref; its own settings apply. `max_tokens`: return the best passages within about
        this many tokens, and join the passages of one document.

        Raises `UsageInvalid` for an empty query or an unknown mode, language or kind,
        `CollectionMissing`, `FilterInvalid`, `GitReferenceMissing`, and `NotInitialized` or
        `PinMissing` if there is nothing to search.
        """
        from vmrag_link.api.session import SearchArguments

        narrowed = {"path": _names(path), "lang": _names(lang), "symbol": _names(symbol), "kind": _names(kind)}
        question = SearchArguments(
            text=text,
            k=k,
            mode=mode,
            collections=_names(collection),
            narrowed=narrowed,
            where=where,
            where_document=where_document,
            max_tokens=max_tokens,
        )
        return self._here().search(question, self._ref(at))

    @_in_turn
    def get(self, name: str, *, at: str | None = None) -> DocumentText:
        """Return a document by the path of its file, or by `COLLECTION/ID`.

        `at`: a git ref. Raises `DocumentMissing`, `DocumentAmbiguous`, `GitReferenceMissing`.
        """
        from vmrag_link.api import reading

        session = self._here()  # first, because it follows what has moved
        ref = self._ref(at, held=False)
        return reading.get(session.ws, f"{ref}:{name}" if ref is not None else name, name)

    @_in_turn
    def grep(
        self,
        pattern: str,
        *,
        fixed: bool = False,
        ignore_case: bool = False,
        path: str = "",
        collection: Names = (),
        context: int = 0,
        limit: int | None = 1000,
        at: str | None = None,
    ) -> LineMatches:
        """Find the lines of tracked text files and stored documents that match a pattern.

        `pattern`: a regular expression without back-references (it takes linear time), or a plain
        text with `fixed`. `path`: part of a path, or a glob. `context`: number of lines to include
        above and below. `limit`: maximum number of lines to return; the rest are only counted. None
        returns all.

        Raises `UsageInvalid` for an invalid pattern, `CollectionMissing`, `GitReferenceMissing`.
        """
        from vmrag_link.api import reading

        return reading.grep(
            self._here().ws,
            pattern,
            fixed=fixed,
            ignore_case=ignore_case,
            path=path,
            collections=_names(collection),
            context=context,
            limit=limit,
            ref=self._ref(at, held=False),
        )

    @_in_turn
    def list(self, *, collection: str | None = None) -> tuple[DocumentEntry, ...]:
        """Return the documents of the work tree, with marks for uncommitted ones.

        Raises `CollectionMissing`.
        """
        from vmrag_link.api import reading

        return reading.list_documents(self._here().ws, collection)

    @_in_turn
    def diff(
        self, old: str | None = None, new: str | None = None, *, only: Names = (), code: bool = False
    ) -> DiffResults:
        """Return the documents that differ between two git refs, revisions or KB branches.

        Without `new`, compare `old` with the work tree. Without both, compare HEAD with the work
        tree. `only`: documents, folders, collections or patterns. `code`: list files of code; by
        default they are only counted. Raises `GitReferenceMissing`, `DocumentMissing`.
        """
        from vmrag_link.api import reading

        return reading.diff(self._here().ws, old, new, _names(only), code=code)

    @_in_turn
    def history(self, name: str, *, limit: int = 20, at: str | None = None) -> tuple[DocumentVersion, ...]:
        """Return the versions that changed a document, the newest first.

        They are git commits of a file, or revisions of a stored document. Raises `DocumentMissing`,
        `CollectionMissing`, `GitReferenceMissing`.
        """
        from vmrag_link.api import reading

        return reading.history(self._here().ws, name, limit, self._ref(at, held=False))

    @_in_turn
    def fingerprint(self, *, at: str | None = None) -> str:
        """Return a hash. If two hashes are equal, equal queries get equal answers.

        Raises `SourcesIncomplete` if this clone lacks files of sources.
        """
        from vmrag_link.ops.fingerprint.fingerprint import compute_fingerprint

        return compute_fingerprint(self._here().ws, ref=self._ref(at, held=False)).fingerprint

    @_in_turn
    def add(
        self,
        text: str,
        *,
        id: str = "",  # noqa: A002  as the command and the tool call it
        title: str = "",
        collection: str | None = None,
        metadata: Mapping[str, Any] | None = None,
        existing: Literal["refuse", "replace", "append"] | None = None,
        commit: bool = False,
    ) -> WrittenDocument:
        """Write a note, or store a document in a `collection` of the knowledge base.

        A note is a Markdown file that git tracks. Its default id is made from its title or first
        line. `existing` decides if the id is taken (default: refuse). `commit` creates a git commit
        with only this note. A stored document needs an `id`, and replaces an existing document with
        this id.

        Raises `UsageInvalid` without `write=True`, `NoteExists`, `NameInvalid`, `ContentRefused`,
        `NotInitialized`.
        """
        from vmrag_link.api import writing

        new = writing.NewText(
            text=text,
            doc_id=id,
            title=title,
            collection=collection,
            metadata=dict(metadata or {}),
            existing=existing,
            commit=commit,
        )
        return self._written(lambda ws: writing.add(ws, new))

    @_in_turn
    def remove(self, *names: str, collection: str | None = None) -> RemovedDocuments:
        """Remove documents, folders, collections or the matches of a pattern, like
        `vmrag rm --yes`.

        `collection`: the collection of the documents; the names are ids then. Files of code and
        documentation are not removed. Raises `UsageInvalid` without `write=True`,
        `DocumentMissing`, `CollectionMissing`.
        """
        from vmrag_link.api import writing

        return self._written(lambda ws: writing.remove(ws, names, collection))

    @_in_turn
    def commit(self, message: str, *, git: bool = False, author: str | None = None) -> CommittedRevision:
        """Commit the stored documents, pin the revision, and stage the pin.

        `git`: also create a git commit of all staged files. Raises `UsageInvalid` without
        `write=True`, `NoChanges`, `MessageMissing`, `GitFailed`.
        """
        from vmrag_link.api import writing

        return self._written(lambda ws: writing.commit(ws, message, git=git, author=author))

    def _read_position(self) -> tuple[Head, bytes | None]:
        return plumbing.read_head(self._places), plumbing.read_pin_bytes(self._places)

    def _here(self) -> ApiSession:
        """Return the session that all calls at this position share."""
        if self._follow and (self._session is None or self._has_moved()):
            self.refresh()
        if self._session is None:
            from vmrag_link.api.session import ApiSession

            self._session = ApiSession(self._places, keep=not self._follow)
        return self._session

    def _has_moved(self) -> bool:
        return self._read_position() != (self._head, self._pin)

    def _ref(self, at: str | None, *, held: bool = True) -> str | None:
        """Return the ref to read; None for the work tree.

        After a checkout, this is the commit where the knowledge base was opened. `held`: the open
        index of the work tree can answer instead, because it does not change.
        """
        ref = at if at is not None else self._at
        if ref is not None or not self._has_moved():
            return ref
        return None if held and self._session and self._session.holds_work_tree else self._head.commit

    def _written(self, write: Callable[[Workspace], T]) -> T:
        """Write, and read the position again, so that later searches find the new text.

        Raises `UsageInvalid` without `write=True`.
        """
        if not self._write:
            raise UsageInvalid(
                "the knowledge base is open for reading.", hint="open it with 'vmrag.open(\".\", write=True)'"
            )
        self.refresh()
        try:
            return write(self._here().ws)
        finally:
            self.refresh()


def _names(names: Names) -> tuple[str, ...]:
    if isinstance(names, str):
        return (names,) if names else ()
    return tuple(names)
