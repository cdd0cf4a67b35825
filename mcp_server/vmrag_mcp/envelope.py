"""Answers of tools: success, and one shape for failures that clients of several servers can read.

An answer holds the text of errors of `vmrag_link.errors`, which are written for people; of other
exceptions it holds nothing. No answer is longer than a client can take: lists are cut, and what is
left out is counted. Tools that read page by page end their pages by themselves; the cut is for all
others, and for what they could not foresee. A text is never cut: one document that was asked for
comes whole.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec

from vmrag_link import terminal_text
from vmrag_link.errors import (
    InitializedElsewhere,
    KnowledgeElsewhere,
    LibraryRefused,
    MergeRefused,
    PinRevisionMissing,
    VmragError,
    plural,
)
from vmrag_mcp.options import make_runnable
from vmrag_mcp.results import KbAnswer, TextResult, ToolAnswer, ToolResult, ToolWarning

if TYPE_CHECKING:
    from pathlib import Path

    from vmrag_link.workspace.follow.provenance import KbBlock
    from vmrag_mcp.options import ToolSelection


SUGGESTIONS = {
    "NOT_INITIALIZED": ("dolt_init starts a knowledge base", "dolt_clone fetches one"),
    "ALREADY_INITIALIZED": ("dolt_fetch and dolt_pull bring what is new",),
    "COLLECTION_NOT_FOUND": ("chroma_list_collections shows what exists", "chroma_create_collection creates one"),
    "COLLECTION_EXISTS": ("chroma_get_collection_info shows it", "get_or_create=true takes the one that exists"),
    "DOCUMENT_NOT_FOUND": ("chroma_get_documents lists the documents of a collection",),
    "DUPLICATE_ID": ("chroma_update_documents changes documents that exist",),
    "INVALID_METADATA": ("Use texts, numbers, booleans and null as values of metadata.",),
    "LENGTH_MISMATCH": ("Send lists of the same length.",),
    "NO_SELECTION": ("Name ids, or give a filter that is not empty.",),
    "UNCOMMITTED_CHANGES": ("dolt_commit keeps them", "if_uncommitted says what becomes of them"),
    "NO_CHANGES": ("dolt_status shows what would be committed",),
    "NO_COMMITS_TO_PUSH": ("dolt_commit makes a commit", "dolt_status shows how far ahead the branch is"),
    "CONFIRMATION_REQUIRED": ("Ask the user, then call again with the confirmation.",),
    "BRANCH_NOT_FOUND": ("dolt_branches lists the branches",),
    "BRANCH_NOT_MERGED": ("merge_branch takes in what it holds",),
    "BRANCH_EXISTS": ("dolt_checkout goes to a branch that exists",),
    "COMMIT_NOT_FOUND": ("dolt_commits and dolt_find list commits", "dolt_fetch brings a remote's"),
    "NO_PIN": ("dolt_init starts this git branch without documents, and names what it could have instead",),
    "PIN_MISSING_REVISION": ("dolt_fetch brings a remote's commits",),
    "MERGE_CONFLICT": ("resolve_conflicts decides",),
    "NO_UPSTREAM": ("dolt_push puts the branch on the remote", "branch names the one to pull"),
    "SERVICE_NOT_TRUSTED": (
        "Only the user can agree to a service, which may cost them money, in a terminal; until then take collections without it.",
    ),
    "PROJECT_NOT_ACTIVATED": ("activate_project names the project's configuration",),
    "INVALID_DOC_TYPE": ("list_doc_types shows the types of the project",),
    "REMOTE_NOT_TRUSTED": ("Only the user can agree to an address or a host, in a terminal; no argument does.",),
    "REMOTE_REJECTED": ("dolt_pull with branch takes in what that branch of the remote has",),
    "INDEX_PENDING": ("sync_all brings the index up to date",),
    "CHROMADB_ERROR": ("force_full_resync builds the index again",),
    "EMBEDDING_MISMATCH": ("get_sync_status shows each collection's model",),
    "BUSY": ("Call again in a moment.",),
    "KB_MOVED": ("Call again: nothing was written.",),
}
"""By code: what an agent can do with its tools. The error's own hint, a command, follows."""

LAST_RESORT = "In a terminal, `vmrag doctor` looks for what is wrong here."
"""Where nothing else can be suggested, or what can takes a tool that is not there."""

LONGEST = 400
"""Characters of a message, or of a text in the details: what a client sent comes back cut."""

LONGEST_SUGGESTION = 2000

OF_TABLE = {
    ("DUPLICATE_ID", "issue_logs"): ("update_issue_log changes the one that exists",),
    ("DOCUMENT_NOT_FOUND", "issue_logs"): ("list_issue_logs and search_issues find issue logs",),
    ("DOCUMENT_NOT_FOUND", "knowledge_docs"): ("search_knowledge finds documents about tools",),
}
"""By code and table, instead of these: what is done with documents of tables of their own."""

ERROR_TYPES = {
    "INVALID_PARAMETER": "ValidationError",
    "INVALID_JSON": "ValidationError",
    "INVALID_METADATA": "ValidationError",
    "INVALID_NAME": "ValidationError",
    "COLLECTION_NOT_FOUND": "CollectionNotFoundError",
    "DOCUMENT_NOT_FOUND": "DocumentNotFoundError",
    "CHROMADB_ERROR": "ChromaDBError",
    "INTERNAL_ERROR": "McpError",
}
"""The class names that some clients look for in `details.error_type`."""


def build_failure(error: VmragError, tools: ToolSelection | None = None, *, most: int | None = None) -> dict[str, Any]:
    """The envelope of a known error. `tools`: those that may be suggested; None for all. `most`:
    characters, about; `left_out` in the details counts what would have been more.
    """
    given = {key: value for key, value in error.details.items() if value is not None or key in ("minimum", "maximum")}
    asks = error.code == "CONFIRMATION_REQUIRED" or "ask" in given  # the person must see all of what they agree to
    details = given if asks else {key: _without_middle(value) for key, value in given.items()}
    code = PinRevisionMissing.code if isinstance(error, KnowledgeElsewhere) else error.code
    if code in ERROR_TYPES:
        details["error_type"] = ERROR_TYPES[code]
    if error.code == "DATABASE_ERROR":
        details.setdefault("backend", "dolt")
    envelope = {
        "success": False,
        "error": code,
        "message": make_runnable(
            terminal_text.escape_controls(error.message if asks else _without_middle(error.message))
        ),
        "details": details,
        "suggestions": _suggestions(error, tools),
        "code": code,
        "status": "error",
    }
    if error.code == "UNCOMMITTED_CHANGES":  # where some clients look for it
        envelope["local_changes"] = details.setdefault("local_changes", {})
    if most is not None and (left := cut_lists(envelope, most)):
        details["left_out"] = left
    return envelope


def _without_middle(value: Any, most: int = LONGEST) -> Any:
    """Texts without their middle, where they are too long, and lists of such texts. Objects come
    from operations, such as the sides of a conflict, and are as long as they have to be.
    """
    match value:
        case str() if len(value) > most:
            return f"{value[: most * 2 // 3]} … {value[-most // 3 :]}"
        case list() | tuple():
            return [_without_middle(each, most) for each in value]
    return value


def _suggestions(error: VmragError, tools: ToolSelection | None) -> list[str]:
    """What helps, at least one: tools first, then the error's own hint, a command."""
    hint = drop_destructive(error.hint)
    if isinstance(error, KnowledgeElsewhere | InitializedElsewhere) and "vmrag clone" not in hint:
        hint = f"{hint}; then: vmrag clone"
    wanted = [*_by_code(error), hint]
    fitting = filter(None, (tools.adapt_text(text) if tools else text for text in wanted))
    shown = (
        terminal_text.escape_controls(_without_middle(text, LONGEST_SUGGESTION)) for text in dict.fromkeys(fitting)
    )
    return [make_runnable(text) for text in shown] or [make_runnable(LAST_RESORT)]


_DISCARDS = re.compile(
    r"\brm -|\bgit rm\b|\binit --new\b|--accept-loss|--delete\b|\b(?:push\b[^;]*|with )--force\b|reset --hard|branch -D"
)
"""In a command that may delete a pin, a knowledge base or a ref. Only a person decides that."""

_ASIDE = re.compile(r"\s*\([^()]*\)")


def drop_destructive(hint: str) -> str:
    """Return a hint without the ways that discard something; empty if there are no others."""
    if not _DISCARDS.search(hint):
        return hint
    bare = _ASIDE.sub(lambda aside: "" if _DISCARDS.search(aside[0]) else aside[0], hint)
    return "; ".join(way for way in re.split(r"; |, (?=or )", bare) if not _DISCARDS.search(way))


def _by_code(error: VmragError) -> tuple[str, ...]:
    ours = OF_TABLE.get((error.code, error.details.get("table", "")), SUGGESTIONS.get(error.code, ()))
    if isinstance(error, KnowledgeElsewhere | InitializedElsewhere):
        ours = (
            "dolt_clone fetches the knowledge base that is pinned",
        )  # one that is not here, and no new one is begun
    elif isinstance(error, LibraryRefused):
        ours = ("list_libraries shows those that there are",)
    elif isinstance(error, MergeRefused):
        ours = ("Nothing was changed: another on_conflict or if_uncommitted goes on.",)
    return ours


def build_success(
    result: ToolResult,
    kb: KbBlock | None,
    warnings: list[ToolWarning],
    *,
    most: int | None = None,
    offset: int | None = None,
    copies: Sequence[str] = (),
) -> dict[str, Any]:
    """A tool's result, the knowledge that it comes from, if any, and the warnings, if there are
    any; about `most` characters long. `offset`: of the page, where the tool has pages. `copies`:
    as `KbAnswer`.
    """
    fields = _with_lists(msgspec.to_builtins(result))
    answer = {"success": True, **(fields.pop("report") if isinstance(result, ToolAnswer) else {}), **fields}
    answer = runnable_advice(answer)
    warnings = _runnable_warnings(warnings)
    if kb:
        answer["kb"] = msgspec.to_builtins(KbAnswer.from_block(kb, whole=result.whole_kb, copies=copies))
    if most is not None and (left := cut_lists(answer, most)):
        answer["left_out"] = left
        if "has_more" in answer:
            answer["has_more"] = True
        warnings = [*warnings, _left_out(answer, left, most, offset)]
    return answer | {"warnings": msgspec.to_builtins(warnings)} if warnings else answer


_ADVICE = {"hint", "message", "next", "problem", "reasons", "undo"}
"""Keys of answers whose texts name commands."""


def runnable_advice(fields: Mapping[str, Any]) -> dict[str, Any]:
    """Return an object with commands that a shell finds; metadata of documents stays as it is."""
    return {
        key: _runnable_value(value, advice=key in _ADVICE) if key != "metadata" else value
        for key, value in fields.items()
    }


def _runnable_value(value: Any, *, advice: bool) -> Any:
    match value:
        case dict():
            return runnable_advice(value)
        case str() if advice:
            return make_runnable(value)
        case list() if advice:
            return [_runnable_value(item, advice=True) for item in value]
    return value


def _runnable_warnings(warnings: Iterable[ToolWarning]) -> list[ToolWarning]:
    return [ToolWarning(warning.code, make_runnable(warning.message)) for warning in warnings]


def _with_lists(value: Any) -> Any:
    """What `cut` takes: the records of operations hold tuples."""
    match value:
        case dict():
            return {key: _with_lists(each) for key, each in value.items()}
        case list() | tuple() if any(isinstance(each, dict | list | tuple) for each in value):
            return [_with_lists(each) for each in value]
        case tuple():
            return [*value]
    return value


def _left_out(answer: Mapping[str, Any], left: Mapping[str, int], most: int, offset: int | None) -> ToolWarning:
    named = ", ".join(f"{count} of {path}" for path, count in left.items())
    page = next((path for path in left if path in answer), None)
    then = "fewer or narrower arguments show them"
    if offset is not None and page:
        then = f"offset={offset + len(answer[page])} goes on"
    return ToolWarning(
        "LEFT_OUT", f"The answer would be longer than {most:,} characters (mcp.page_chars); left out: {named}; {then}."
    )


def build_success_text(result: TextResult, kb: KbBlock | None, warnings: Sequence[ToolWarning]) -> str:
    """Return the answer of an essential tool: its text, the warnings, and the message.

    The last line names the commit or revision that the answer comes from, unless the lines of the
    text state that.
    """
    origin = _origin(kb) if kb and not result.whole_kb else ""
    lines = [
        *([_runnable_lines(result.text.rstrip("\n")), ""] if result.text else []),
        *(
            f"{_kind(warning)}: {terminal_text.escape_line(warning.message)}"
            for warning in _runnable_warnings(warnings)
        ),
        make_runnable(f"{origin}: {result.message}" if origin else result.message),
    ]
    return "\n".join(lines)


_QUOTED = re.compile(r"[\s+|>-]|.*?[:-]\d+(?:[-: ]|$)")
"""The beginning of a line outside of a fence that may be text of a document, after a place."""


def _runnable_lines(text: str) -> str:
    """Return the text of an essential tool with commands that a shell finds, outside of fences."""
    lines, fence = [], ""
    for line in text.split("\n"):
        if line.startswith("```") and fence in ("", line):
            fence = "" if fence else line
        lines.append(line if fence or _QUOTED.match(line) else make_runnable(line))
    return "\n".join(lines)


def build_failure_text(envelope: Mapping[str, Any]) -> str:
    """Return the answer of an essential tool that failed, from the envelope of its error."""
    hints = [f"hint: {suggestion}" for suggestion in envelope["suggestions"]]
    return "\n".join([f"error {envelope['code']}: {envelope['message']}", *hints])


def _kind(warning: ToolWarning) -> str:
    return "note" if warning.code in ("COMMITTED", "PUSHED") else "warning"


_SHORT = 7
"""Characters of an abbreviated commit."""


def _origin(kb: KbBlock) -> str:
    """Return the phrase that names the commit, the revision, and what is uncommitted."""
    files = kb.sources
    commit = files.commit if files else kb.git_head
    edited = len(files.uncommitted) + len(files.removed) if files else 0
    names = [f"commit {commit[:_SHORT]}"] if commit else []
    names += [f"revision {kb.commit[:_SHORT]}"] if kb.commit and not kb.empty else []
    changes = [f"{plural(edited, 'file')} edited"] if edited else []
    changes += ["uncommitted documents"] if kb.dirty else []
    return " and ".join(names) + (f" with {' and '.join(changes)}" if names and changes else "")


def build_internal_error(log: Path | None) -> VmragError:
    """Return the error for a bug, whose traceback is in the log; None: no log could be written."""
    from vmrag_link.ops import buglog

    return VmragError(
        "Something happened that nobody foresaw; nothing that was stored is lost.",
        hint=buglog.report_hint(log),
        incident=log.stem if log else "",
        log=str(log or ""),
    )


SLACK = 4_000
"""Characters of JSON beyond the bound, for what every answer says besides."""

_NOTE_CHARACTERS = 1_000
"""Of these, what an answer needs to say that something is left out."""

_NEVER_CUT = ("warnings", "suggestions", "kb")
"""Never cut."""


class _Column(NamedTuple):
    """A list of an answer, and the lists beside it that are as long: columns of one table."""

    path: str
    beside: dict[str, list[Any]]

    @property
    def weights(self) -> list[int]:
        return [sum(map(_weight, row)) for row in zip(*self.beside.values(), strict=True)]


def cut_lists(answer: dict[str, Any], most: int) -> dict[str, int]:
    """Cut the ends of an answer's lists until its JSON has no more than `most` characters and
    `SLACK`; returns how many items of which list are left out.
    """
    left: dict[str, int] = {}
    if _weight(answer) <= most + SLACK:
        return left
    room = most + SLACK - _NOTE_CHARACTERS
    while (over := _weight(answer) - room) > 0:
        heaviest = max(_columns(answer, ""), key=lambda column: sum(column.weights), default=None)
        if heaviest is None:
            break
        weights = heaviest.weights
        kept, saved = len(weights), 0
        while kept > 1 and saved < over:
            kept -= 1
            saved += weights[kept] + 1
        for name, items in heaviest.beside.items():
            path = f"{heaviest.path}.{name}" if heaviest.path else name
            left[path] = left.get(path, 0) + len(items) - kept
            del items[kept:]
    return left


def _columns(value: Any, path: str) -> Iterator[_Column]:
    """The tables in a value that have several rows, those within their rows, too."""
    if isinstance(value, list):
        for each in value:
            yield from _columns(each, path)
    if not isinstance(value, dict):
        return
    by_length: dict[int, dict[str, list[Any]]] = {}
    for name, below in value.items():
        if name in _NEVER_CUT:
            continue
        yield from _columns(below, f"{path}.{name}" if path else name)
        if isinstance(below, list) and len(below) > 1:
            by_length.setdefault(len(below), {})[name] = below
    for beside in by_length.values():
        if any(isinstance(item, dict | str) for items in beside.values() for item in items[:1]):
            yield _Column(path, beside)


def _weight(value: Any) -> int:
    """Characters of its JSON. A path that is not UTF-8 is escaped later, which makes it longer."""
    try:
        return len(msgspec.json.encode(value).decode())
    except UnicodeEncodeError:
        return len(json.dumps(value, ensure_ascii=False))
