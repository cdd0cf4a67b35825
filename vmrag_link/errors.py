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

Codes are those of the tool specification. `hints` describes the form of a hint.
"""

from __future__ import annotations

import contextlib
import errno
import os
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, ClassVar

OK, FAILED_CHECK, USAGE, FAILED, BUG, INTERRUPTED = 0, 1, 2, 3, 4, 130
"""Exit codes. `FAILED_CHECK`: the command did its work, and found drift or something left to do."""


def quoted(word: str | Path) -> str:
    """Quote a word of a command in a hint.

    Users paste hints, and a branch can have the name `x;rm -rf .`. Double quotes are preferred,
    because a hint has the command in single quotes.
    """
    import shlex  # a checkout should not wait for it

    text = str(word)
    if shlex.quote(text) == text or "!" in text or "\n" in text:  # a shell can replace ! in double quotes
        return shlex.quote(text)
    escaped = "".join(f"\\{letter}" if letter in '"$`\\' else letter for letter in text)
    return f'"{escaped}"'


def shortened(text: str) -> str:
    """Shorten a text that a user gave to 80 characters, for a message."""
    return text if len(text) <= _MOST_SHOWN else f"{text[: _MOST_SHOWN - 3]}..."


_MOST_SHOWN = 80


def plural(number: int, noun: str) -> str:
    """Format a number with its noun: `1 document`, `3 documents`, `2 matches`, `2 copies`."""
    if number == 1:
        return f"1 {noun}"
    if noun.endswith("y") and noun[-2] not in "aeo":
        return f"{number} {noun[:-1]}ies"
    return f"{number} {noun}{'es' if noun.endswith('ch') else 's'}"


def enumerated(names: Sequence[str]) -> str:
    """Join names: `a`, `a and b`, `a, b and c`."""
    return " and ".join([", ".join(names[:-1]), names[-1]] if len(names) > 1 else names)


def first_of(names: Sequence[str], limit: int) -> str:
    """Join at most `limit` names, and the number of the others: `a, b and 3 more`."""
    more = f" and {len(names) - limit} more" if len(names) > limit else ""
    return ", ".join(names[:limit]) + more


def nearest(name: str, names: Iterable[str], *, cutoff: float = 0.6) -> str | None:
    """Return the most similar name, or None if no name is similar enough.

    `cutoff` is the ratio of `difflib`, from 0 to 1.
    """
    import difflib  # only where something is wrong already

    matches = difflib.get_close_matches(name, list(names), n=1, cutoff=cutoff)
    return matches[0] if matches else None


_COMPARED = 20_000
"""Number of names that `closest` compares letter by letter."""


def closest(name: str, names: Sequence[str], *, limit: int = 3) -> list[str]:
    """Return the most similar names, first those of files or documents with the same last part."""
    import difflib  # only where something is wrong already

    last = name.rpartition("/")[2].lower()
    same = [other for other in names if other.rpartition("/")[2].lower() == last]
    similar = difflib.get_close_matches(name, names[:_COMPARED], n=limit)
    return [*dict.fromkeys([*sorted(same, key=len)[:limit], *similar])][:limit]


class VmragError(Exception):
    """A known failure.

    It has a `code` for programs, one sentence for users, a `hint` (`hints` describes its form), and
    `details` that can be encoded as JSON.
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
        """The hint, which Python and pytest print below the message of a traceback."""
        return [f"hint: {self.hint}"] if self.hint else []

    @property
    def collection(self) -> str | None:
        """The collection of the error, if it concerns one."""
        return self.details.get("collection_name")

    @property
    def cause(self) -> str:
        """The code of the underlying failure if the details have one, else the error's own code."""
        return str(self.details.get("cause", self.code))

    @property
    def sentence(self) -> str:
        """Message and hint on one line."""
        from vmrag_link import hints  # most commands print no warning

        return hints.append_to(self.message, self.hint)

    def to_dict(self) -> dict[str, Any]:
        return {"code": self.code, "message": self.message, "hint": self.hint, "details": self.details}


class UsageError(VmragError):
    code = "INVALID_PARAMETER"
    exit_code = USAGE


class UsageInvalid(UsageError):
    """An argument is invalid."""


class ConfigInvalid(UsageError):
    """`.vmrag.yaml` or a setting is invalid. The message names the file and the line."""

    code = "CONFIG_INVALID"


class ProgramTooOld(ConfigInvalid):
    """The settings require a newer version of vmrag."""

    code = "SCHEMA_TOO_NEW"


class QueriesInvalid(UsageError):
    """`.vmrag/queries.yaml` is invalid. The message names the file and the line."""

    code = "QUERIES_INVALID"


class QueriesMissing(QueriesInvalid):
    """The repository has no golden queries."""

    code = "NO_QUERIES"


class AddressWithCredentials(UsageError):
    """An agent's argument is an address with a user name or a password."""

    code = "ADDRESS_WITH_CREDENTIALS"


class NotInitialized(UsageError):
    code = "NOT_INITIALIZED"


class KnowledgeElsewhere(NotInitialized):
    """The git commit pins a knowledge base that is not on this machine."""


class KnowledgeLost(NotInitialized):
    """The file or the repository of the knowledge base is missing, although other files show that
    it existed.

    Only the user can decide to continue without the documents that only it contained.
    """

    code = "DATABASE_ERROR"
    exit_code = FAILED


class AlreadyInitialized(UsageError):
    code = "ALREADY_INITIALIZED"


class InitializedElsewhere(AlreadyInitialized):
    """The git commit pins a knowledge base that is not on this machine, so vmrag creates no new
    one.
    """


class NameInvalid(UsageError):
    code = "INVALID_NAME"


class SourceReadOnly(UsageError):
    """A document or a collection consists of files of the work tree, and cannot be written."""

    code = "SOURCE_READ_ONLY"


class MessageMissing(UsageError):
    """A commit without a message."""

    code = "MESSAGE_REQUIRED"


class JsonInvalid(UsageError):
    """An argument is not JSON, or has another JSON type."""

    code = "INVALID_JSON"


class LengthMismatch(UsageError):
    """Lists that belong together have different lengths."""

    code = "LENGTH_MISMATCH"


class NothingSelected(UsageError):
    """No ids and no filter select documents, or there are no documents to select."""

    code = "NO_SELECTION"


class ConfirmationMissing(UsageError):
    """The operation discards something, and was not confirmed."""

    code = "CONFIRMATION_REQUIRED"


class TableMissing(UsageError):
    """The table has no documents, or does not exist."""

    code = "TABLE_NOT_FOUND"


class McpExtraMissing(UsageError):
    """The MCP server is not installed."""

    code = "MCP_EXTRA_MISSING"


class ToolError(VmragError):
    """An MCP tool cannot be called."""

    code = "TOOL_NOT_FOUND"
    exit_code = USAGE


class ToolMissing(ToolError):
    """No tool has that name."""


class ToolDisabled(ToolError):
    """The tool exists, but this server was started without it. The details tell how to enable
    it.
    """

    code = "TOOL_DISABLED"


class AccessDenied(ToolError):
    """The server is read-only, a folder is outside the roots, or a page is at a private address."""

    code = "ACCESS_DENIED"


class PinError(VmragError):
    code = "PIN_MALFORMED"
    exit_code = FAILED_CHECK


class PinMalformed(PinError):
    """`.dolt-version` cannot be read. The message names the line and the fix."""


class PinMissing(PinError):
    """The git commit has no pin."""

    code = "NO_PIN"


class PinRevisionMissing(PinError):
    """The pinned revision is not in the local knowledge base."""

    code = "PIN_MISSING_REVISION"


NO_DOCUMENTS = (NotInitialized, PinMissing, PinRevisionMissing)
"""The errors if no stored documents can be read. Files of sources still answer."""


class RevisionUnpinned(PinError):
    """A revision was committed, but HEAD moved before it could be pinned."""

    code = "UNPINNED_REVISION"


class DriftError(VmragError):
    code = "KB_MOVED"
    exit_code = FAILED_CHECK


class KnowledgeMoved(DriftError):
    """Another process moved the knowledge base before a write. Nothing was written."""


class NoChanges(DriftError):
    code = "NO_CHANGES"


class NothingToPush(DriftError):
    """The remote already has everything."""

    code = "NO_COMMITS_TO_PUSH"


class Uncommitted(DriftError):
    code = "UNCOMMITTED_CHANGES"


class BranchUnmerged(DriftError):
    """No other branch contains the revisions of the KB branch."""

    code = "BRANCH_NOT_MERGED"


class KnowledgeNotPushed(DriftError):
    """The operation would delete something that no remote has. Nothing was removed."""

    code = "KNOWLEDGE_NOT_PUSHED"


class MergeConflict(DriftError):
    """An open merge has conflicts that a user must resolve."""

    code = "MERGE_CONFLICT"


class MergeRefused(MergeConflict):
    """A merge would have conflicts, so it was not started."""


class PinConflict(MergeConflict):
    """Two pins conflict, and a user must resolve them."""


class MassDeletion(DriftError):
    code = "UNEXPECTED_MASS_DELETE"


class GitError(VmragError):
    code = "GIT_FAILED"


class GitFailed(GitError):
    """A git command failed. The details have its arguments and its output."""


class GitConfigInvalid(GitFailed):
    """git cannot read one of its configuration files, so all git commands fail."""

    @property
    def repairable(self) -> bool:
        """True for a file that vmrag wrote, and can write again."""
        return bool(self.details.get("repairable"))


class GitRepositoryMissing(GitError):
    code = "GIT_REPO_NOT_FOUND"
    exit_code = USAGE


class GitReferenceMissing(GitError):
    code = "GIT_COMMIT_NOT_FOUND"


class GitBusy(GitError):
    """git is in an operation during which vmrag cannot write."""

    code = "GIT_BUSY"


class HistoryMissing(GitError):
    """A shallow clone lacks the history that a command needs, and it could not be fetched."""


class LinkMissing(GitError):
    """A git commit has no link to a revision."""

    code = "LINK_NOT_FOUND"
    exit_code = FAILED_CHECK


class HooksRefused(GitError):
    """vmrag does not write to this hooks directory."""

    code = "HOOKS_REFUSED"


class EngineError(VmragError):
    code = "DATABASE_ERROR"


class EngineFailed(EngineError):
    """The engine failed for a reason without a code of its own."""

    @property
    def result_code(self) -> int:
        """SQLite's extended result code; 0 if SQLite did not fail."""
        return int(self.details.get("sqlite_code", 0))

    @property
    def result_message(self) -> str:
        """The message of SQLite, which can contain untrusted text; an empty text if SQLite did not
        fail.
        """
        return str(self.details.get("sqlite_message", ""))


class RowsInvalid(EngineFailed):
    """A revision contains rows that vmrag never writes: bytes or numbers in place of texts, or
    texts that are not UTF-8.
    """


class LimitExceeded(EngineFailed):
    """A document is too large, or has too many pieces."""


class StatementGivenUp(LimitExceeded):
    """A statement took too long."""


class EngineUnwritable(EngineFailed):
    """The knowledge base is readable but not writable: its disk is full or read-only."""


class ServerUnreachable(EngineFailed):
    """The Dolt server with the knowledge base does not answer, or ended the session."""


class KnowledgeMissing(EngineFailed):
    """The Dolt server has no knowledge base of that name."""

    code = "NOT_INITIALIZED"


class LoginRefused(EngineFailed):
    """The Dolt server with the knowledge base refuses the login."""

    code = "AUTHENTICATION_FAILED"


class SchemaTooNew(EngineError):
    code = "SCHEMA_TOO_NEW"


class RevisionMissing(EngineError):
    code = "COMMIT_NOT_FOUND"


class RevisionAmbiguous(RevisionMissing):
    """Several revisions begin with this text. The details list some of them as `candidates`."""


class BranchMissing(EngineError):
    code = "BRANCH_NOT_FOUND"


class BranchExists(EngineError):
    code = "BRANCH_EXISTS"


class CollectionMissing(EngineError):
    code = "COLLECTION_NOT_FOUND"


class CollectionExists(EngineError):
    code = "COLLECTION_EXISTS"


class ValidationMissing(UsageError):
    """Evidence is required."""

    code = "VALIDATION_REQUIRED"


class ValidationTooLow(UsageError):
    """The evidence is not sufficient."""

    code = "VALIDATION_BELOW_THRESHOLD"


class LibraryRefused(CollectionExists):
    """A collection of another kind has the name of the library."""


class DocumentMissing(EngineError):
    code = "DOCUMENT_NOT_FOUND"


class DocumentAmbiguous(DocumentMissing):
    """A name fits several documents. The details list them as `candidates`."""


class DocumentExists(EngineError):
    code = "DUPLICATE_ID"


class NoteExists(DocumentExists):
    """A note with that id exists, and the call does not replace or extend it."""

    code = "DOCUMENT_EXISTS"


class ContentRefused(EngineError):
    """No engine can store the text or the metadata exactly."""

    code = "INVALID_METADATA"


class DoltMissing(EngineError):
    """The program `dolt` is missing or too old, or another program has its name."""

    code = "DOLT_EXECUTABLE_NOT_FOUND"
    exit_code = USAGE


class VectorIndexError(VmragError):
    code = "CHROMADB_ERROR"


class IndexFailed(VectorIndexError):
    """The vector store failed, or its content is invalid."""


class ChromaServerFailed(VectorIndexError):
    """A Chroma server did not answer, refused a request, or sent an invalid answer.

    The details have the `url`, and the HTTP `status` if one arrived.
    """


class IndexExtraMissing(VectorIndexError):
    """An `extra` is not installed (`extras.missing_extra_error`)."""

    code = "INDEX_EXTRA_MISSING"
    exit_code = USAGE


class SourcesIncomplete(VectorIndexError):
    """Some files of the sources cannot be read, so nothing can be compared with them."""

    code = "NOT_COMPARABLE"
    exit_code = FAILED_CHECK


class LimitTooLow(VectorIndexError):
    """The vector store needs more open files or more memory than the process may have.

    The details name the limit.
    """


class FilterInvalid(VectorIndexError):
    code = "INVALID_FILTER"
    exit_code = USAGE


class EmbeddingError(VmragError):
    code = "EMBEDDING_SERVICE_ERROR"


class EmbeddingFailed(EmbeddingError):
    """A model could not be loaded, or did not answer."""


class ServiceNotTrusted(EmbeddingFailed):
    """A collection uses a service that this user has not trusted, so vmrag did not contact it.

    The service would receive texts and money.
    """

    code = "SERVICE_NOT_TRUSTED"
    exit_code = FAILED_CHECK


class EmbeddingMismatch(EmbeddingError):
    """Vectors of different models would be mixed."""

    code = "EMBEDDING_MISMATCH"


class RemoteError(VmragError):
    code = "REMOTE_UNREACHABLE"


class RemoteUnreachable(RemoteError):
    """The remote does not answer as expected. The details have its answer."""


class RemoteInvalid(RemoteError):
    """A text is not the address of a remote that this engine supports."""

    code = "INVALID_REMOTE_URL"
    exit_code = USAGE


class RemoteMissing(RemoteError):
    """The remote does not exist.

    Hosts also report this to users without access.
    """

    code = "REMOTE_NOT_FOUND"


class RemoteEmpty(RemoteMissing):
    """The repository has no git remote, or the remote has no knowledge base."""


class RemoteMoved(RemoteError):
    """Another push was faster. Nothing was pushed."""

    code = "REMOTE_REJECTED"
    exit_code = FAILED_CHECK


class RemoteDiverged(RemoteError):
    """The KB branch of the remote has revisions that the local one lacks."""

    code = "REMOTE_REJECTED"
    exit_code = FAILED_CHECK


class RemoteRejected(RemoteError):
    """The remote refuses the push."""

    code = "REMOTE_REJECTED"


class RemoteDamaged(RemoteError):
    """The content of the remote is not what was pushed there. Nothing of it was imported."""

    code = "REMOTE_DAMAGED"


class RemoteTooNew(RemoteError):
    """A newer version of vmrag wrote to the remote. Nothing of it was imported."""

    code = "SCHEMA_TOO_NEW"


class RemoteNotTrusted(RemoteError):
    """A pin or a settings file names a remote that this user has not trusted. It was not
    contacted.
    """

    code = "REMOTE_NOT_TRUSTED"
    exit_code = FAILED_CHECK


class KnowledgeRefused(RemoteError):
    """An untrusted knowledge base contains invalid or dangerous data. Nothing of it was
    imported.
    """

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
    """A newer version of vmrag wrote a file that cannot be rebuilt. Nothing of it was read."""

    code = "SCHEMA_TOO_NEW"


class PageError(VmragError):
    code = "FETCH_FAILED"


class FetchFailed(PageError):
    """A page could not be fetched.

    `http_status` in the details is the status of the answer, or None without an answer.
    """

    def __init__(self, message: str, *, hint: str = "", http_status: int | None = None, **details: Any) -> None:
        super().__init__(message, hint=hint, http_status=http_status, **details)


class FormatUnsupported(FileSystemError):
    """The converter for a file does not exist or is not installed. `reason` follows the name of the
    file.
    """

    code = "UNSUPPORTED_FORMAT"


class ConversionFailed(FileSystemError):
    """The content of a file could not be converted to text. `reason` follows the name of the
    file.
    """

    code = "INGESTION_FAILED"


INDEXING_FAILURES = (VectorIndexError, EmbeddingError, FileSystemError, LimitExceeded)
"""Reasons why an index cannot follow the stored documents.

A command that stored documents reports them as pending, and does not fail.
"""


def system_failure(error: BaseException) -> FileFailed | None:
    """Convert an error of the system (permission, space, a broken disk) to `FileFailed`.

    Such an error is not a bug, wherever it occurs. Returns None for other errors.
    """
    if isinstance(error, NotADirectoryError):
        return _no_folder([Path(os.fsdecode(name)) for name in (error.filename, error.filename2) if name])
    if isinstance(error, FileNotFoundError) and "temporary directory" in str(error.strerror):  # by `tempfile`
        return FileFailed("cannot write to a temporary folder.", hint=WRITABLE_TMPDIR)
    hint = _SYSTEM_HINTS.get(error.errno or 0) if isinstance(error, OSError) else None
    if hint is None or not isinstance(error, OSError):
        return None
    path = str(error.filename or "")
    shown = next((place for place in (Path(path), *Path(path).parents) if os.path.lexists(place)), Path())
    return FileFailed(f"{path or 'A file'}: {error.strerror}.", hint=hint.format(path=quoted(shown)), path=path)


def refuses_writing(error: BaseException | None) -> bool:
    """Return True if an error, or its cause, prevents the write to a file.

    The disk is full or read-only, or a limit or a permission prevents it.
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
    """Return the error for a path that leads through a file, or should be a folder itself."""
    existing = [next((parent for parent in (path, *path.parents) if os.path.lexists(parent)), path) for path in paths]
    blocking = [folder for folder in existing if not folder.is_dir()]
    return in_the_way(blocking[0], "not a folder, but must be one") if blocking else None


SQLITE_PATH_BYTES, DOLTLITE_PATH_BYTES = 503, 511
"""Bytes of the longest path that each of them opens. SQLite adds 8 for a journal."""


def is_too_long(path: Path, *, max_bytes: int = SQLITE_PATH_BYTES) -> bool:
    """Return True if a database cannot be opened at this path."""
    return len(os.fsencode(path)) > max_bytes


def path_too_long(path: Path, *, max_bytes: int = SQLITE_PATH_BYTES) -> FileFailed:
    """Return the error for a database at this path, which is too long."""
    top, inside, _ = str(path).partition("/.git/")
    where = quoted(top) if inside else "REPOSITORY"
    return FileFailed(
        f"the path {path} has {len(os.fsencode(path))} bytes, and a database cannot have a path of more than {max_bytes}",
        hint=f"run 'mv {where} ~/' to move the repository to a shorter path",
        path=str(path),
    )


def set_aside(path: Path | str) -> str:
    """Return the command that moves an unreadable file of vmrag aside, and keeps it."""
    return f"mv {quoted(path)} {quoted(f'{path}.damaged')}"


def in_the_way(path: Path, what: str) -> FileFailed:
    """Return the error for something that vmrag neither created nor can remove."""
    return FileFailed(
        f"{path} is {what}; nothing was changed.",
        hint=f"run 'mv {quoted(path)} {quoted(path.with_name(path.name + '.before'))}' to move it aside",
        path=str(path),
    )


@contextlib.contextmanager
def file_failures() -> Iterator[None]:
    """Raise errors of the system in the block as `FileFailed` (`system_failure`)."""
    try:
        yield
    except OSError as error:
        failure = system_failure(error)
        if failure is None:
            raise
        raise failure from error


_MOST_LISTED = 10


def no_collection(name: str, names: Sequence[str]) -> CollectionMissing:
    similar = nearest(name, names)
    return CollectionMissing(
        f"no such collection: {name!r}." + (f" Did you mean {similar!r}?" if similar else ""),
        hint=f"use one of these collections: {first_of(names, _MOST_LISTED)}"
        if names
        else "run 'vmrag import DIR --collection NAME' to create the first one",
        collection_name=name,
        collections=list(names),
    )


def no_space(folder: Path) -> FileFailed:
    return FileFailed(f"the disk is full: cannot write {folder}.", hint=_SPACE, path=str(folder))


def unusable(index: Path, problem: str) -> IndexFailed:
    """Return the error for an index. `index` is the folder of a view or of a segment."""
    return IndexFailed(
        f"the index {index.name} is invalid: {problem}.",
        hint="run 'vmrag sync --rebuild' to rebuild it",
        folder=str(index),
    )


def too_little_space(folder: Path, what: str, needed: int, free: int) -> FileFailed:
    return FileFailed(
        f"the disk is too full for {what}: {folder} needs {needed / 1e6:,.0f} MB, {free / 1e6:,.0f} MB are free.",
        hint=_SPACE,
        path=str(folder),
        needed=needed,
        free=free,
    )


WRITABLE_TMPDIR = "run 'export TMPDIR=FOLDER' with a folder that you can write, then run the command again"
_SPACE = "run 'vmrag gc --apply' to remove data that can be rebuilt, or make room on that disk"
_ACCESS = "run 'ls -ld {path}' to check who can write there"
_SYSTEM_HINTS = {
    errno.ENOSPC: _SPACE,
    errno.EDQUOT: _SPACE,
    errno.EFBIG: "run 'ulimit -f unlimited' to raise the limit of a file's size",
    errno.EACCES: _ACCESS,
    errno.EPERM: _ACCESS,
    errno.EROFS: _ACCESS,
    errno.EIO: "check the health of that disk, then run the command again",
    errno.ENAMETOOLONG: "use a shorter name, because most file systems accept 255 bytes for each part of a path",
    errno.EMFILE: "run 'ulimit -n 4096' to raise the limit of open files",
}


class ProjectError(VmragError):
    """An error about a project whose documents are files of the work tree."""

    exit_code = USAGE


class ProjectInactive(ProjectError):
    """This server has activated no project."""

    code = "PROJECT_NOT_ACTIVATED"


class DocTypeInvalid(ProjectError):
    """The project does not have this type of documents."""

    code = "INVALID_DOC_TYPE"


class FrontMatterInvalid(ProjectError):
    """A document lacks fields that its type requires. The details list them as `errors`."""

    code = "SCHEMA_VALIDATION_FAILED"


class ExternalDocsMissing(ProjectError):
    """The project has no folder of other documentation."""

    code = "EXTERNAL_DOCS_NOT_CONFIGURED"


class ExternalDocsNotPromotable(ProjectError):
    """Only documents of the project itself have a level of promotion."""

    code = "EXTERNAL_DOCS_NOT_PROMOTABLE"


class DemoError(VmragError):
    code = "OPERATION_FAILED"


class DemoFailed(DemoError):
    """A command of the demo failed."""


class LockError(VmragError):
    code = "BUSY"


class Busy(LockError):
    """A lock was not released in time. The details have the process that holds it."""


class BranchInUse(LockError):
    """Another work tree writes the documents of this git branch."""

    code = "BRANCH_IN_USE"
