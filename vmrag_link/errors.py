"""The whole tree of errors that a user can meet.

    VmragError             what every surface catches; anything else is a bug
    ├── Usage (exit 2)     UsageInvalid · ConfigInvalid (ProgramTooOld) · AddressWithCredentials
    │                      QueriesInvalid (QueriesMissing)
    │                      NotInitialized (KnowledgeElsewhere, KnowledgeLost: exit 3)
    │                      AlreadyInitialized (InitializedElsewhere) · NameInvalid · MessageMissing
    │                      JsonInvalid · LengthMismatch · NothingSelected · ConfirmationMissing
    │                      TableMissing · McpExtraMissing · SourceReadOnly
    ├── Tool (exit 2)      ToolMissing · ToolDisabled · AccessDenied
    ├── Pin (exit 1)       PinMalformed · PinMissing · PinRevisionMissing · RevisionUnpinned
    ├── Drift (exit 1)     KnowledgeMoved · NoChanges · NothingToPush · Uncommitted · MassDeletion
    │                      MergeConflict (MergeRefused, PinConflict)
    ├── Git (exit 3)       GitFailed (GitConfigInvalid) · GitRepositoryMissing
    │                      GitReferenceMissing · GitBusy
    │                      HooksRefused · LinkMissing · HistoryMissing
    ├── Engine (exit 3)    EngineFailed (RowsInvalid, LimitExceeded, EngineUnwritable,
    │                      ServerUnreachable, LoginRefused, KnowledgeMissing)
    │                      LimitExceeded (StatementGivenUp) · SchemaTooNew
    │                      RevisionMissing (RevisionAmbiguous) · BranchMissing · BranchExists
    │                      CollectionMissing · CollectionExists (LibraryRefused)
    │                      DocumentMissing (DocumentAmbiguous) · DocumentExists
    │                      ContentRefused · DoltMissing
    ├── Index (exit 3)     IndexFailed · ChromaServerFailed · IndexExtraMissing · LimitTooLow
    │                      SourcesIncomplete
    │                      FilterInvalid
    ├── Embedding (exit 3) EmbeddingFailed (ServiceNotTrusted) · EmbeddingMismatch
    ├── Remote (exit 3)    RemoteInvalid · RemoteMissing (RemoteEmpty) · RemoteUnreachable
    │                      RemoteMoved · RemoteDiverged · RemoteRejected · RemoteDamaged
    │                      RemoteNotTrusted · KnowledgeRefused · AuthenticationFailed
    │                      RemoteTooNew · UpstreamMissing
    ├── Files (exit 3)     FileFailed · FormatTooNew · FormatUnsupported · ConversionFailed
    ├── Pages (exit 3)     FetchFailed
    ├── Project (exit 2)   ProjectInactive · DocTypeInvalid · FrontMatterInvalid
    │                      ExternalDocsMissing · ExternalDocsNotPromotable
    ├── Demo (exit 3)      DemoFailed
    └── Lock (exit 3)      Busy · BranchInUse

Codes are those of the tool specification; a hint is a command that can be run, or a sentence that
names one.
"""

from __future__ import annotations

import contextlib
import errno
import os
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, ClassVar

OK, FAILED_CHECK, USAGE, FAILED, BUG, INTERRUPTED = 0, 1, 2, 3, 4, 130
"""Exit codes. `FAILED_CHECK`: the command did its work and found drift, or something left to do."""


def quoted(word: str | Path) -> str:
    """One word of a command in a hint, which people paste: a branch may be called `x;rm -rf .`."""
    import shlex  # a checkout should not wait for it

    return shlex.quote(str(word))


def shortened(text: str) -> str:
    """What somebody gave, for a message: 80 characters at the most."""
    return text if len(text) <= _MOST_SHOWN else f"{text[: _MOST_SHOWN - 3]}..."


_MOST_SHOWN = 80


def plural(number: int, noun: str) -> str:
    """`1 document`, `3 documents`, `2 matches`, `2 copies`."""
    if number == 1:
        return f"1 {noun}"
    if noun.endswith("y") and noun[-2] not in "aeo":
        return f"{number} {noun[:-1]}ies"
    return f"{number} {noun}{'es' if noun.endswith('ch') else 's'}"


def enumerated(names: Sequence[str]) -> str:
    """`a`, `a and b`, `a, b and c`."""
    return " and ".join([", ".join(names[:-1]), names[-1]] if len(names) > 1 else names)


def first_of(names: Sequence[str], most: int) -> str:
    """At most so many of the names, and how many there are beside: `a, b and 3 more`."""
    more = f" and {len(names) - most} more" if len(names) > most else ""
    return ", ".join(names[:most]) + more


def nearest(name: str, there: Iterable[str], *, cutoff: float = 0.6) -> str | None:
    """The most similar of the names, None if none is similar enough (`difflib`'s ratio, 0 to 1)."""
    import difflib  # only where something is wrong already

    found = difflib.get_close_matches(name, list(there), n=1, cutoff=cutoff)
    return found[0] if found else None


_COMPARED = 20_000
"""Names that `closest` compares letter by letter."""


def closest(name: str, names: Sequence[str], *, most: int = 3) -> list[str]:
    """Return the most similar names, first those of files or documents with the same last part."""
    import difflib  # only where something is wrong already

    last = name.rpartition("/")[2].lower()
    same = [other for other in names if other.rpartition("/")[2].lower() == last]
    similar = difflib.get_close_matches(name, names[:_COMPARED], n=most)
    return [*dict.fromkeys([*sorted(same, key=len)[:most], *similar])][:most]


class VmragError(Exception):
    """A known failure: `code` for programs, one sentence for a person, a runnable `hint`,
    JSON-ready `details`.
    """

    code: ClassVar[str] = "INTERNAL_ERROR"
    exit_code: ClassVar[int] = FAILED

    def __init__(self, message: str, *, hint: str = "", **details: Any) -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint
        self.details = details

    @property
    def __notes__(self) -> list[str]:  # type: ignore[override]  # the hint may change
        """The hint, below the message in a traceback of Python and pytest."""
        return [f"hint: {self.hint}"] if self.hint else []

    @property
    def collection(self) -> str | None:
        """The collection that this is about, where it is about one."""
        return self.details.get("collection_name")

    @property
    def cause(self) -> str:
        """The code of the failure behind this one, where its details name one; else its own."""
        return str(self.details.get("cause", self.code))

    @property
    def sentence(self) -> str:
        """Message and hint on one line."""
        return f"{self.message} ({self.hint})" if self.hint else self.message

    def to_dict(self) -> dict[str, Any]:
        return {"code": self.code, "message": self.message, "hint": self.hint, "details": self.details}


class UsageError(VmragError):
    code = "INVALID_PARAMETER"
    exit_code = USAGE


class UsageInvalid(UsageError):
    """An argument that cannot be used."""


class ConfigInvalid(UsageError):
    """`.vmrag.yaml` or a setting that cannot be used; the message names file and line."""

    code = "CONFIG_INVALID"


class ProgramTooOld(ConfigInvalid):
    """The settings require a newer program than this one."""

    code = "SCHEMA_TOO_NEW"


class QueriesInvalid(UsageError):
    """`.vmrag/queries.yaml` cannot be used; the message names file and line."""

    code = "QUERIES_INVALID"


class QueriesMissing(QueriesInvalid):
    """There are no golden queries."""

    code = "NO_QUERIES"


class AddressWithCredentials(UsageError):
    """An agent's argument is an address that names a user or a password."""

    code = "ADDRESS_WITH_CREDENTIALS"


class NotInitialized(UsageError):
    code = "NOT_INITIALIZED"


class KnowledgeElsewhere(NotInitialized):
    """The code pins a knowledge base that is not on this machine."""


class KnowledgeLost(NotInitialized):
    """The file or the repository of the knowledge base is missing; other files show that it was
    here. Only the user decides to go on without what was in it alone.
    """

    code = "DATABASE_ERROR"
    exit_code = FAILED


class AlreadyInitialized(UsageError):
    code = "ALREADY_INITIALIZED"


class InitializedElsewhere(AlreadyInitialized):
    """The code pins a knowledge base that is not on this machine, so no new one is begun."""


class NameInvalid(UsageError):
    code = "INVALID_NAME"


class SourceReadOnly(UsageError):
    """A document or a collection that is made of files of the code's tree, and is not written."""

    code = "SOURCE_READ_ONLY"


class MessageMissing(UsageError):
    """A commit without a message."""

    code = "MESSAGE_REQUIRED"


class JsonInvalid(UsageError):
    """An argument that is no JSON, or JSON of another kind."""

    code = "INVALID_JSON"


class LengthMismatch(UsageError):
    """Lists that belong together are not equally long."""

    code = "LENGTH_MISMATCH"


class NothingSelected(UsageError):
    """Neither ids nor a filter say which documents are meant, or nothing is there that could be."""

    code = "NO_SELECTION"


class ConfirmationMissing(UsageError):
    """What is asked for discards something, and nobody has confirmed that."""

    code = "CONFIRMATION_REQUIRED"


class TableMissing(UsageError):
    """A table without documents, or none at all."""

    code = "TABLE_NOT_FOUND"


class McpExtraMissing(UsageError):
    """The base install has no MCP server."""

    code = "MCP_EXTRA_MISSING"


class ToolError(VmragError):
    """An MCP tool that cannot be called here."""

    code = "TOOL_NOT_FOUND"
    exit_code = USAGE


class ToolMissing(ToolError):
    """No tool has that name."""


class ToolDisabled(ToolError):
    """The tool exists, and this server was started without it; details say how to get it."""

    code = "TOOL_DISABLED"


class AccessDenied(ToolError):
    """A read-only server is asked to write, an agent names a folder outside of its roots, or a page
    is at a private address.
    """

    code = "ACCESS_DENIED"


class PinError(VmragError):
    code = "PIN_MALFORMED"
    exit_code = FAILED_CHECK


class PinMalformed(PinError):
    """`.dolt-version` cannot be read; the message names the line and the fix."""


class PinMissing(PinError):
    """The code commit pins nothing."""

    code = "NO_PIN"


class PinRevisionMissing(PinError):
    """The pinned revision is not in the local knowledge base."""

    code = "PIN_MISSING_REVISION"


NO_DOCUMENTS = (NotInitialized, PinMissing, PinRevisionMissing)
"""Why no stored documents can be read. Files of sources still answer."""


class RevisionUnpinned(PinError):
    """A revision was committed, but HEAD moved before it could be pinned."""

    code = "UNPINNED_REVISION"


class DriftError(VmragError):
    code = "KB_MOVED"
    exit_code = FAILED_CHECK


class KnowledgeMoved(DriftError):
    """The knowledge base moved while a write waited; nothing was written."""


class NoChanges(DriftError):
    code = "NO_CHANGES"


class NothingToPush(DriftError):
    """The remote holds everything already."""

    code = "NO_COMMITS_TO_PUSH"


class Uncommitted(DriftError):
    code = "UNCOMMITTED_CHANGES"


class BranchUnmerged(DriftError):
    """No other branch holds what the KB branch does."""

    code = "BRANCH_NOT_MERGED"


class KnowledgeNotPushed(DriftError):
    """Something would be lost that no remote holds; nothing was removed."""

    code = "KNOWLEDGE_NOT_PUSHED"


class MergeConflict(DriftError):
    """A merge is open and something in it needs a person."""

    code = "MERGE_CONFLICT"


class MergeRefused(MergeConflict):
    """There would be conflicts, so nothing was merged: no merge is open."""


class PinConflict(MergeConflict):
    """Two pins cannot be merged without a person."""


class MassDeletion(DriftError):
    code = "UNEXPECTED_MASS_DELETE"


class GitError(VmragError):
    code = "GIT_FAILED"


class GitFailed(GitError):
    """A git command failed; details hold its arguments and what it said."""


class GitConfigInvalid(GitFailed):
    """git cannot read a file of its configuration, so no git command works."""

    @property
    def repairable(self) -> bool:
        """True for a file of vmrag, which it can write again."""
        return bool(self.details.get("repairable"))


class GitRepositoryMissing(GitError):
    code = "GIT_REPO_NOT_FOUND"
    exit_code = USAGE


class GitReferenceMissing(GitError):
    code = "GIT_COMMIT_NOT_FOUND"


class GitBusy(GitError):
    """git is in the middle of something in which nothing may be written."""

    code = "GIT_BUSY"


class HistoryMissing(GitError):
    """A shallow clone lacks the history that a question is about, and it could not be fetched."""


class LinkMissing(GitError):
    """A code commit is linked to no revision."""

    code = "LINK_NOT_FOUND"
    exit_code = FAILED_CHECK


class HooksRefused(GitError):
    """The hooks directory is not ours to write."""

    code = "HOOKS_REFUSED"


class EngineError(VmragError):
    code = "DATABASE_ERROR"


class EngineFailed(EngineError):
    """The engine failed for a reason without a code of its own."""

    @property
    def result_code(self) -> int:
        """SQLite's extended result code; 0 where SQLite did not fail."""
        return int(self.details.get("sqlite_code", 0))

    @property
    def result_message(self) -> str:
        """What SQLite said, which may be a stranger's words; empty where SQLite did not fail."""
        return str(self.details.get("sqlite_message", ""))


class RowsInvalid(EngineFailed):
    """A revision holds rows that no command of ours writes: bytes or numbers for texts, texts that
    are not UTF-8.
    """


class LimitExceeded(EngineFailed):
    """A document is larger, or is cut into more pieces, than is allowed."""


class StatementGivenUp(LimitExceeded):
    """A statement took longer than is allowed."""


class EngineUnwritable(EngineFailed):
    """The knowledge base can be read and not written: its disk is full, or read-only."""


class ServerUnreachable(EngineFailed):
    """The Dolt server with the knowledge base does not answer, or has ended the session."""


class KnowledgeMissing(EngineFailed):
    """The Dolt server has no knowledge base of that name."""

    code = "NOT_INITIALIZED"


class LoginRefused(EngineFailed):
    """The Dolt server with the knowledge base does not let its user in."""

    code = "AUTHENTICATION_FAILED"


class SchemaTooNew(EngineError):
    code = "SCHEMA_TOO_NEW"


class RevisionMissing(EngineError):
    code = "COMMIT_NOT_FOUND"


class RevisionAmbiguous(RevisionMissing):
    """Several revisions begin so; details list some as `candidates`."""


class BranchMissing(EngineError):
    code = "BRANCH_NOT_FOUND"


class BranchExists(EngineError):
    code = "BRANCH_EXISTS"


class CollectionMissing(EngineError):
    code = "COLLECTION_NOT_FOUND"


class CollectionExists(EngineError):
    code = "COLLECTION_EXISTS"


class ValidationMissing(UsageError):
    """Evidence is required, and there is none."""

    code = "VALIDATION_REQUIRED"


class ValidationTooLow(UsageError):
    """The evidence is not enough."""

    code = "VALIDATION_BELOW_THRESHOLD"


class LibraryRefused(CollectionExists):
    """The name of a library is that of a collection of another kind."""


class DocumentMissing(EngineError):
    code = "DOCUMENT_NOT_FOUND"


class DocumentAmbiguous(DocumentMissing):
    """A name may mean several documents; details list them as `candidates`."""


class DocumentExists(EngineError):
    code = "DUPLICATE_ID"


class NoteExists(DocumentExists):
    """A note with that id exists, and the call neither replaces nor extends it."""

    code = "DOCUMENT_EXISTS"


class ContentRefused(EngineError):
    """Text or metadata that no engine stores exactly."""

    code = "INVALID_METADATA"


class DoltMissing(EngineError):
    """There is no `dolt` to run: none on PATH, one that is too old, or another program of that
    name.
    """

    code = "DOLT_EXECUTABLE_NOT_FOUND"
    exit_code = USAGE


class VectorIndexError(VmragError):
    code = "CHROMADB_ERROR"


class IndexFailed(VectorIndexError):
    """The vector store failed or did not verify."""


class ChromaServerFailed(VectorIndexError):
    """A Chroma server did not answer, refused, or served what it must not; details name the `url`,
    and HTTP's `status` if one came.
    """


class IndexExtraMissing(VectorIndexError):
    """What is asked needs an `extra` that is not installed (`extras.missing`)."""

    code = "INDEX_EXTRA_MISSING"
    exit_code = USAGE


class SourcesIncomplete(VectorIndexError):
    """Not all files of sources can be read here, so that nothing can be compared with them."""

    code = "NOT_COMPARABLE"
    exit_code = FAILED_CHECK


class LimitTooLow(VectorIndexError):
    """The process may open fewer files, or have less memory, than the vector store needs; details
    name the `limit`.
    """


class FilterInvalid(VectorIndexError):
    code = "INVALID_FILTER"
    exit_code = USAGE


class EmbeddingError(VmragError):
    code = "EMBEDDING_SERVICE_ERROR"


class EmbeddingFailed(EmbeddingError):
    """A model could not be loaded or did not answer."""


class ServiceNotTrusted(EmbeddingFailed):
    """A collection names a service that would get texts and be paid; nobody here has agreed to
    that, so it was not asked.
    """

    code = "SERVICE_NOT_TRUSTED"
    exit_code = FAILED_CHECK


class EmbeddingMismatch(EmbeddingError):
    """Vectors of one model would be mixed with another's."""

    code = "EMBEDDING_MISMATCH"


class RemoteError(VmragError):
    code = "REMOTE_UNREACHABLE"


class RemoteUnreachable(RemoteError):
    """Nobody answers there, or not what was expected; details hold what was said."""


class RemoteInvalid(RemoteError):
    """A text that names no place a knowledge base can travel to with this engine."""

    code = "INVALID_REMOTE_URL"
    exit_code = USAGE


class RemoteMissing(RemoteError):
    """No such remote, as far as can be seen: hosts also say so to those whom they do not let in."""

    code = "REMOTE_NOT_FOUND"


class RemoteEmpty(RemoteMissing):
    """There is no knowledge base to be had: no git remote at all, or it answered that it holds
    none.
    """


class RemoteMoved(RemoteError):
    """Somebody else was faster; nothing was pushed."""

    code = "REMOTE_REJECTED"
    exit_code = FAILED_CHECK


class RemoteDiverged(RemoteError):
    """The remote's KB branch holds revisions that ours does not."""

    code = "REMOTE_REJECTED"
    exit_code = FAILED_CHECK


class RemoteRejected(RemoteError):
    """The other side does not take what is pushed."""

    code = "REMOTE_REJECTED"


class RemoteDamaged(RemoteError):
    """What the remote holds is not what was pushed there; nothing of it was taken."""

    code = "REMOTE_DAMAGED"


class RemoteTooNew(RemoteError):
    """A newer program wrote what the remote holds; nothing of it was taken."""

    code = "SCHEMA_TOO_NEW"


class RemoteNotTrusted(RemoteError):
    """A pin or a settings file names a remote that nobody here agreed to; it was not contacted."""

    code = "REMOTE_NOT_TRUSTED"
    exit_code = FAILED_CHECK


class KnowledgeRefused(RemoteError):
    """A stranger's knowledge base holds what must not get into ours; nothing of it was taken."""

    code = "KNOWLEDGE_REFUSED"


class AuthenticationFailed(RemoteError):
    code = "AUTHENTICATION_FAILED"


class UpstreamMissing(RemoteError):
    """The remote has no KB branch of that name."""

    code = "NO_UPSTREAM"


class FileSystemError(VmragError):
    code = "FILE_SYSTEM_ERROR"


class FileFailed(FileSystemError):
    """A file could not be read or written."""


class FormatTooNew(FileSystemError):
    """A newer program wrote a file that cannot be made again; nothing of it was read."""

    code = "SCHEMA_TOO_NEW"


class PageError(VmragError):
    code = "FETCH_FAILED"


class FetchFailed(PageError):
    """A page could not be fetched.

    `http_status` in the details is what its server answered, None where it answered nothing.
    """

    def __init__(self, message: str, *, hint: str = "", http_status: int | None = None, **details: Any) -> None:
        super().__init__(message, hint=hint, http_status=http_status, **details)


class FormatUnsupported(FileSystemError):
    """There is no converter for such a file, or it is not installed; `reason` follows its name."""

    code = "UNSUPPORTED_FORMAT"


class ConversionFailed(FileSystemError):
    """A file's contents could not be converted to text; `reason` follows its name."""

    code = "INGESTION_FAILED"


INDEXING_FAILURES = (VectorIndexError, EmbeddingError, FileSystemError, LimitExceeded)
"""Why an index cannot follow what is stored.

A command that has stored it reports that as pending, and has not failed.
"""


def system_failure(error: BaseException) -> FileFailed | None:
    """What the machine refuses (permission, space, a broken disk) is no bug, wherever it comes up;
    None for everything else.
    """
    if isinstance(error, NotADirectoryError):
        return _no_folder([Path(os.fsdecode(each)) for each in (error.filename, error.filename2) if each])
    if isinstance(error, FileNotFoundError) and "temporary directory" in str(error.strerror):  # by `tempfile`
        return FileFailed("no temporary folder can be written.", hint=WRITABLE_TMPDIR)
    hint = _SYSTEM_HINTS.get(error.errno or 0) if isinstance(error, OSError) else None
    if hint is None or not isinstance(error, OSError):
        return None
    path = str(error.filename or "")
    shown = next((place for place in (Path(path), *Path(path).parents) if os.path.lexists(place)), Path())
    return FileFailed(f"{path or 'A file'}: {error.strerror}.", hint=hint.format(path=shown), path=path)


def refuses_writing(error: BaseException | None) -> bool:
    """Return True if an error, or its cause, keeps a file from being written: the disk is full or
    read-only, or a limit or a right is missing.
    """
    while error is not None:
        if isinstance(error, OSError) and error.errno in _UNWRITABLE:
            return True
        # SQLite's codes; its module is not imported for this.
        if getattr(error, "sqlite_errorcode", 0) & 0xFF in _SQLITE_UNWRITABLE:
            return True
        error = error.__cause__
    return False


_UNWRITABLE = {
    *(errno.EROFS, errno.EACCES, errno.EPERM),
    *(errno.ENOSPC, errno.EDQUOT, errno.EFBIG),
}
_READONLY, _IO_ERROR, _FULL, _CANNOT_OPEN = 8, 10, 13, 14
_SQLITE_UNWRITABLE = {_READONLY, _IO_ERROR, _FULL, _CANNOT_OPEN}


def _no_folder(paths: Sequence[Path]) -> FileFailed | None:
    """Of paths one of which leads through something that is no folder, or should be one itself."""
    there = [next((parent for parent in (path, *path.parents) if os.path.lexists(parent)), path) for path in paths]
    blocking = [each for each in there if not each.is_dir()]
    return in_the_way(blocking[0], "no folder, and has to be one") if blocking else None


SQLITE_PATH_BYTES, DOLTLITE_PATH_BYTES = 503, 511
"""Bytes of the longest path that each opens. SQLite adds 8 for a journal."""


def is_too_long(path: Path, *, most: int = SQLITE_PATH_BYTES) -> bool:
    """Return True if a database cannot be opened at this path."""
    return len(os.fsencode(path)) > most


def path_too_long(path: Path, *, most: int = SQLITE_PATH_BYTES) -> FileFailed:
    """`path`: that of a database."""
    top, inside, _ = str(path).partition("/.git/")
    where = quoted(top) if inside else "REPOSITORY"
    return FileFailed(
        f"the path {path} has {len(os.fsencode(path))} bytes, and a database cannot have a path of more than {most}",
        hint=f"Move the repository to a shorter path, such as: mv {where} ~/",
        path=str(path),
    )


def set_aside(path: Path | str) -> str:
    """The command that moves something of ours that cannot be read out of the way, and keeps it."""
    return f"mv {quoted(path)} {quoted(f'{path}.damaged')}"


def in_the_way(path: Path, what: str) -> FileFailed:
    """Something that is neither made by us nor ours to remove."""
    return FileFailed(
        f"{path} is {what}; nothing was changed.",
        hint=f"Move it aside: mv {quoted(path)} {quoted(path.with_name(path.name + '.before'))}",
        path=str(path),
    )


@contextlib.contextmanager
def file_failures() -> Iterator[None]:
    """What the machine refuses in the block is raised as `FileFailed` (`system_failure`)."""
    try:
        yield
    except OSError as error:
        known = system_failure(error)
        if known is None:
            raise
        raise known from error


_MOST_LISTED = 10


def no_collection(name: str, there: Sequence[str]) -> CollectionMissing:
    near = nearest(name, there)
    return CollectionMissing(
        f"There is no collection {name!r}." + (f" Is it {near!r}?" if near else ""),
        hint=f"There are: {first_of(there, _MOST_LISTED)}."
        if there
        else "vmrag import DIR --collection NAME (makes the first one)",
        collection_name=name,
        collections=list(there),
    )


def no_space(folder: Path) -> FileFailed:
    return FileFailed(f"The disk is full: {folder} cannot be written.", hint=_SPACE, path=str(folder))


def unusable(index: Path, problem: str) -> IndexFailed:
    """`index`: the folder of a view or of a segment."""
    return IndexFailed(
        f"The index {index.name} does not verify: {problem}.",
        hint="It is derived; 'vmrag sync --rebuild' builds it again.",
        folder=str(index),
    )


def too_little_space(folder: Path, what: str, needed: int, free: int) -> FileFailed:
    return FileFailed(
        f"The disk is too full for {what}: {needed / 1e6:,.0f} MB are needed below {folder}, {free / 1e6:,.0f} MB are free.",
        hint=_SPACE,
        path=str(folder),
        needed=needed,
        free=free,
    )


WRITABLE_TMPDIR = "export TMPDIR=FOLDER, a folder that you can write"
_SPACE = "Make room on that disk ('vmrag gc --apply' removes what can be built again), then run the command again."
_ACCESS = "See who may write there: ls -ld '{path}'"
_SYSTEM_HINTS = {
    errno.ENOSPC: _SPACE,
    errno.EDQUOT: _SPACE,
    errno.EFBIG: "Raise the limit of a file's size: ulimit -f unlimited",
    errno.EACCES: _ACCESS,
    errno.EPERM: _ACCESS,
    errno.EROFS: _ACCESS,
    errno.EIO: "Check the health of that disk, then run the command again.",
    errno.ENAMETOOLONG: "Use a shorter name: most file systems accept 255 bytes for each part of a path.",
    errno.EMFILE: "Raise the limit of open files: ulimit -n 4096",
}


class ProjectError(VmragError):
    """About a project whose documents are files of the work tree."""

    exit_code = USAGE


class ProjectInactive(ProjectError):
    """No project was activated in this server."""

    code = "PROJECT_NOT_ACTIVATED"


class DocTypeInvalid(ProjectError):
    """The project has no such type of documents."""

    code = "INVALID_DOC_TYPE"


class FrontMatterInvalid(ProjectError):
    """A document lacks what its type requires; `errors` in the details say what."""

    code = "SCHEMA_VALIDATION_FAILED"


class ExternalDocsMissing(ProjectError):
    """The project names no folder of other documentation."""

    code = "EXTERNAL_DOCS_NOT_CONFIGURED"


class ExternalDocsNotPromotable(ProjectError):
    """Only the project's own documents have a level of promotion."""

    code = "EXTERNAL_DOCS_NOT_PROMOTABLE"


class DemoError(VmragError):
    code = "OPERATION_FAILED"


class DemoFailed(DemoError):
    """A command of the demo failed."""


class LockError(VmragError):
    code = "BUSY"


class Busy(LockError):
    """A lock was not obtained in time; details name the process that holds it."""


class BranchInUse(LockError):
    """Another work tree writes the documents of this code branch."""

    code = "BRANCH_IN_USE"
