"""The results of the API, which are frozen and public.

`to_dict` returns JSON values, and `str` returns text for people and language models.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Literal

import msgspec

from vmrag_link.models import ChangeKind, Record

_HASH_DIGITS = 7
"""Number of digits of a hash in a text."""
_INDENT = "  "


class Result(Record, frozen=True):
    """The base of all results."""

    def to_dict(self) -> dict[str, Any]:
        """Return the fields as JSON values, with lists instead of tuples."""
        fields: dict[str, Any] = msgspec.to_builtins(self)
        return fields


class AnswerPosition(Result, frozen=True):
    """The commit and revision that an answer comes from."""

    commit: str = ""
    """The git commit; empty before the first one."""
    revision: str = ""
    """The revision of the knowledge base; empty if files alone answer."""
    branch: str = ""
    """The KB branch, if the work tree is on one."""
    dirty: bool = False
    """True if uncommitted documents of the knowledge base are included."""
    in_sync: bool = True
    """False if the answer comes from a revision other than the pinned one."""

    def __str__(self) -> str:
        names = [("commit", self.commit), ("revision", self.revision)]
        shown = ", ".join(f"{name} {value[:_HASH_DIGITS]}" for name, value in names if value)
        return f"{shown}{', uncommitted documents included' if self.dirty else ''}" or "no commit"


class FoundPassage(Result, frozen=True, kw_only=True):
    """Lines of a document that answer a query."""

    rank: int
    """The rank of its best chunk, from 1."""
    name: str
    """The path of a file, or `COLLECTION/ID`, for `KnowledgeBase.get`."""
    text: str
    score: float
    """The score of its best chunk; higher is better. The scale depends on the mode."""
    collection: str
    doc_id: str
    path: str | None = None
    """The path of the file in the repository; None if the document has no file."""
    lines: tuple[int, int] | None = None
    """The first and the last line in the file or in the document, from 1."""
    symbol: str = ""
    """The class or function of code, with its parents."""
    heading: str = ""
    """The headings above the passage, separated by ` > `."""
    signature: str = ""
    """The first line of a long symbol, if the passage does not include it."""
    commit: str = ""
    """The git commit of a file; empty for a stored document."""
    revision: str = ""
    """The revision of a stored document; empty for a file."""
    uncommitted: str = ""
    """`added` or `modified` if the file differs from the commit."""
    outdated: str = ""
    """The cited places that changed after this note was written; empty for other documents."""
    cut: str = ""
    """`to fit` or `within a line` if the passage does not end at a line."""
    tokens: int = 0
    """The estimated number of tokens, including the head line."""
    metadata: Mapping[str, Any]
    """The metadata of the document."""

    @property
    def place(self) -> str:
        """`src/session.py:10-42`"""
        if self.lines is None:
            return self.name
        first, last = self.lines
        return f"{self.name}:{first}" if first == last else f"{self.name}:{first}-{last}"

    def __str__(self) -> str:
        from vmrag_link.terminal_text import escape_line, mark_lines

        version = (self.commit or self.revision)[:_HASH_DIGITS]
        state = ", ".join(filter(None, (version, "uncommitted" if self.uncommitted else "", self.outdated)))
        head = "  ".join(filter(None, (self.place, self.symbol or self.heading, f"({state})" if state else "")))
        above = [f"{_INDENT}… {escape_line(self.signature)}"] if self.signature else []
        return "\n".join([escape_line(head), *above, *mark_lines(self.text, _INDENT)])


class SearchResults(Result, frozen=True, kw_only=True):
    """The passages of a search, the best first. `str` returns text for a language model."""

    query: str
    passages: tuple[FoundPassage, ...]
    position: AnswerPosition
    notes: tuple[str, ...] = ()
    """Warnings, for example that the answer is not from the pinned revision or lacks files."""
    weak: bool = False
    """True if no passage is likely to help."""
    left_out: int = 0
    """The number of chunks that exceeded the limit of tokens."""

    def __len__(self) -> int:
        return len(self.passages)

    def __iter__(self) -> Iterator[FoundPassage]:
        return iter(self.passages)

    def __getitem__(self, index: int) -> FoundPassage:
        return self.passages[index]

    def __str__(self) -> str:
        return "\n\n".join(map(str, self.passages)) or "No passage found."


class DocumentText(Result, frozen=True, kw_only=True):
    """A whole document. `str` returns its text."""

    collection: str
    """The collection; empty for a file that is in no source."""
    doc_id: str
    title: str
    text: str
    content_hash: str
    metadata: Mapping[str, Any]
    version: str
    """The git commit of a file, or the revision of a stored document."""

    def __str__(self) -> str:
        return self.text


class DocumentEntry(Result, frozen=True, kw_only=True):
    """A document in a list."""

    name: str
    collection: str
    doc_id: str
    title: str
    content_hash: str
    metadata: Mapping[str, Any]
    chunks: int | None = None
    """The number of chunks; None if the index does not have this version of the document."""
    uncommitted: Literal["added", "modified", "removed"] | None = None

    def __str__(self) -> str:
        return self.name


class MatchingLine(Result, frozen=True, kw_only=True):
    """A line, as `git grep` prints it."""

    name: str
    line: int
    """The number of the line, from 1."""
    text: str
    matched: bool = True
    """False for a line of context."""

    def __str__(self) -> str:
        mark = ":" if self.matched else "-"
        return f"{self.name}{mark}{self.line}{mark}{self.text}"


class LineMatches(Result, frozen=True, kw_only=True):
    """The lines that a pattern matches."""

    lines: tuple[MatchingLine, ...]
    count: int
    """The number of matching lines, including those beyond the limit."""
    position: AnswerPosition
    notes: tuple[str, ...] = ()

    def __len__(self) -> int:
        return len(self.lines)

    def __iter__(self) -> Iterator[MatchingLine]:
        return iter(self.lines)

    def __str__(self) -> str:
        return "\n".join(map(str, self.lines))


class ChangedDocument(Result, frozen=True, kw_only=True):
    """A document that differs between two places."""

    kind: ChangeKind
    name: str
    collection: str
    doc_id: str
    title: str
    old_name: str = ""
    """The name before, if the document was renamed."""
    inserted: int = 0
    """The number of inserted words."""
    deleted: int = 0
    text: str = ""
    """For a modified document, the changed parts word by word: `[-removed-]{+added+}`."""

    def __str__(self) -> str:
        shown = f"{self.old_name} -> {self.name}" if self.old_name else self.name
        return f"{self.kind}: {shown} (+{self.inserted} -{self.deleted} words)"


class FileCount(Result, frozen=True, kw_only=True):
    """The numbers of changed files in a collection of code."""

    collection: str
    added: int = 0
    modified: int = 0
    removed: int = 0


class DiffResults(Result, frozen=True, kw_only=True):
    """The documents that differ between two git refs, revisions or KB branches."""

    old: str
    """The revision of the knowledge base. Empty: none. `WORKING`: uncommitted documents."""
    new: str
    old_commit: str
    """The git commit. Empty: no files are compared. `WORKING`: the work tree."""
    new_commit: str
    changes: tuple[ChangedDocument, ...]
    files: tuple[FileCount, ...] = ()
    """The changed files of code; empty with `code=True`, which lists them in `changes`."""

    def __len__(self) -> int:
        return len(self.changes)

    def __iter__(self) -> Iterator[ChangedDocument]:
        return iter(self.changes)

    def __str__(self) -> str:
        return "\n".join(map(str, self.changes)) or "No document differs."


class DocumentVersion(Result, frozen=True, kw_only=True):
    """A git commit that changed the file, or a revision that changed the stored document."""

    version: str
    kind: ChangeKind
    name: str
    """The name of the document at that version."""
    author: str
    date: str
    """The date in ISO 8601."""
    message: str
    commits: tuple[str, ...] = ()
    """The git commits that pin the revision, newest first; the commit itself for a file."""

    def __str__(self) -> str:
        first = next(iter(self.message.splitlines()), "")
        return f"{self.version[:_HASH_DIGITS]} {self.date[:10]} {first}"


class WrittenDocument(Result, frozen=True, kw_only=True):
    """A document that was written."""

    collection: str
    doc_id: str
    path: str = ""
    """The file of a note. Empty for a stored document, and if the note already had this text."""
    kind: Literal["added", "modified", "unchanged"]
    commit: str = ""
    """The git commit of the note; empty if none was created."""
    pending: str = ""
    """The reason why the index does not have the document yet; else empty."""

    @property
    def name(self) -> str:
        """The name for `KnowledgeBase.get` and `KnowledgeBase.remove`."""
        return f"{self.collection}/{self.doc_id}"

    def __str__(self) -> str:
        return f"{self.name}: {self.kind}"


class RemovedDocuments(Result, frozen=True, kw_only=True):
    """The documents that were removed, by name."""

    names: tuple[str, ...]
    collections: tuple[str, ...] = ()
    """The collections that were removed as a whole."""

    def __str__(self) -> str:
        return "\n".join(self.names)


class CommittedRevision(Result, frozen=True, kw_only=True):
    """A new revision of the knowledge base, and its pin."""

    revision: str
    parent: str
    branch: str
    added: int
    modified: int
    removed: int
    pinned: bool
    """False if the setting `auto_pin` is off."""
    commit: str = ""
    """The git commit of the pin; empty if none was created."""
    pending: str = ""
    """The reason why the index is not at the revision yet; else empty."""

    def __str__(self) -> str:
        return f"{self.revision[:_HASH_DIGITS]}: {self.added} added, {self.modified} modified, {self.removed} removed"
