"""Answers of tools: successes, and one form of failures that clients of several servers can read.

`session` builds each answer here. The answer about an error of `vmrag_link.errors` contains its
text, which is written for people. The answer about any other exception contains none of its text.
Most answers are objects; the *envelope* of an error is such an object. Essential tools answer with
plain text. An answer is never longer than a client can accept: long lists are cut (`cutting`), and
the answer counts the missing items.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import msgspec

from vmrag_link import hints, terminal_text
from vmrag_link.errors import (
    InitializedElsewhere,
    KnowledgeElsewhere,
    LibraryRefused,
    MergeRefused,
    PinRevisionMissing,
    VmragError,
    plural,
)
from vmrag_mcp.advice import make_runnable
from vmrag_mcp.cutting import cut_lists
from vmrag_mcp.results import KbAnswer, TextResult, ToolAnswer, ToolResult, ToolWarning

if TYPE_CHECKING:
    from vmrag_link.workspace.follow.provenance import KbBlock
    from vmrag_mcp.options import ToolSelection


SUGGESTIONS = {
    "NOT_INITIALIZED": ("dolt_init creates a knowledge base", "dolt_clone fetches one"),
    "ALREADY_INITIALIZED": ("dolt_fetch and dolt_pull fetch new commits",),
    "COLLECTION_NOT_FOUND": ("chroma_list_collections lists collections", "chroma_create_collection creates one"),
    "COLLECTION_EXISTS": ("chroma_get_collection_info shows it", "get_or_create=true accepts the existing one"),
    "DOCUMENT_NOT_FOUND": ("chroma_get_documents lists the documents of a collection",),
    "DUPLICATE_ID": ("chroma_update_documents changes existing documents",),
    "INVALID_METADATA": ("Use texts, numbers, booleans and null as values of metadata.",),
    "LENGTH_MISMATCH": ("Send lists of the same length.",),
    "NO_SELECTION": ("Send ids, or a filter that is not empty.",),
    "UNCOMMITTED_CHANGES": ("dolt_commit commits them", "if_uncommitted commits, discards or keeps them"),
    "NO_CHANGES": ("dolt_status shows uncommitted documents",),
    "NO_COMMITS_TO_PUSH": ("dolt_commit makes a commit", "dolt_status shows how far ahead the branch is"),
    "CONFIRMATION_REQUIRED": ("Ask the user, then call again with the confirmation.",),
    "BRANCH_NOT_FOUND": ("dolt_branches lists the branches",),
    "BRANCH_NOT_MERGED": ("merge_branch merges it",),
    "BRANCH_EXISTS": ("dolt_checkout switches to an existing branch",),
    "COMMIT_NOT_FOUND": ("dolt_commits and dolt_find list commits", "dolt_fetch fetches commits of a remote"),
    "NO_PIN": ("dolt_init starts this git branch without documents, and lists the revisions of other branches",),
    "PIN_MISSING_REVISION": ("dolt_fetch fetches commits of a remote",),
    "MERGE_CONFLICT": ("resolve_conflicts resolves it",),
    "NO_UPSTREAM": ("dolt_push creates the branch on the remote", "branch selects the branch to pull"),
    "SERVICE_NOT_TRUSTED": (
        "Only the user can trust a service, in a terminal, because it can cost money; until then use collections without it.",
    ),
    "PROJECT_NOT_ACTIVATED": ("activate_project reads the configuration of a project",),
    "INVALID_DOC_TYPE": ("list_doc_types shows the types of the project",),
    "REMOTE_NOT_TRUSTED": ("Only the user can trust an address or a host, in a terminal; no argument can.",),
    "REMOTE_REJECTED": ("dolt_pull with branch merges that branch of the remote",),
    "INDEX_PENDING": ("sync_all updates the index",),
    "CHROMADB_ERROR": ("force_full_resync rebuilds the index",),
    "EMBEDDING_MISMATCH": ("get_sync_status shows each collection's model",),
    "BUSY": ("Call again in a moment.",),
    "KB_MOVED": ("Call again: nothing was written.",),
}
"""Advice about the agent's tools, by error code. The error's own hint, a command, follows."""

LAST_RESORT = "In a terminal, `vmrag doctor` finds problems of this repository."
"""Suggestion for an error that has no other, or whose other suggestions name missing tools."""

MAX_MESSAGE_CHARACTERS = 400
"""Maximum length of a message, and of texts in its details. Longer texts are cut."""

MAX_SUGGESTION_CHARACTERS = 2000

TABLE_SUGGESTIONS = {
    ("DUPLICATE_ID", "issue_logs"): ("update_issue_log changes the existing issue log",),
    ("DOCUMENT_NOT_FOUND", "issue_logs"): ("list_issue_logs and search_issues find issue logs",),
    ("DOCUMENT_NOT_FOUND", "knowledge_docs"): ("search_knowledge finds documents about tools",),
}
"""Suggestions by code and table, in place of `SUGGESTIONS`, for tables with their own tools."""

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
"""Class names for `details.error_type`, which some clients read."""


def build_failure(
    error: VmragError, tools: ToolSelection | None = None, *, max_characters: int | None = None
) -> dict[str, Any]:
    """Return the envelope of a known error.

    `tools` are the tools that suggestions can name; None for all. `max_characters` is the
    approximate maximum number of characters. `left_out` in the details counts the items that are
    missing.
    """
    details = {key: value for key, value in error.details.items() if value is not None or key in ("minimum", "maximum")}
    message = error.message
    is_question = error.code == "CONFIRMATION_REQUIRED" or "ask" in details
    if not is_question:  # the user must see a whole question
        details = {key: _cut_middle(value) for key, value in details.items()}
        message = _cut_middle(message)
    code = PinRevisionMissing.code if isinstance(error, KnowledgeElsewhere) else error.code
    if code in ERROR_TYPES:
        details["error_type"] = ERROR_TYPES[code]
    if error.code == "DATABASE_ERROR":
        details.setdefault("backend", "dolt")
    envelope = {
        "success": False,
        "error": code,
        "message": make_runnable(terminal_text.escape_controls(message)),
        "details": details,
        "suggestions": _list_suggestions(error, tools),
        "code": code,
        "status": "error",
    }
    if error.code == "UNCOMMITTED_CHANGES":  # some clients read this key
        envelope["local_changes"] = details.setdefault("local_changes", {})
    if max_characters is not None and (left_out := cut_lists(envelope, max_characters)):
        details["left_out"] = left_out
    return envelope


def _cut_middle(value: Any, max_characters: int = MAX_MESSAGE_CHARACTERS) -> Any:
    """Return a text or a list of texts without the middle of each long text.

    Objects come from operations, such as the sides of a conflict, and are not cut.
    """
    match value:
        case str() if len(value) > max_characters:
            return f"{value[: max_characters * 2 // 3]} … {value[-max_characters // 3 :]}"
        case list() | tuple():
            return [_cut_middle(item, max_characters) for item in value]
    return value


def _list_suggestions(error: VmragError, tools: ToolSelection | None) -> list[str]:
    """Return at least one suggestion: first the tools, then the error's own hint, a command."""
    hint = drop_destructive(error.hint)
    if isinstance(error, KnowledgeElsewhere | InitializedElsewhere) and "vmrag clone" not in hint:
        hint = hints.join_steps(hint, hints.suggest_command("vmrag clone"))
    candidates = [*_suggest_by_code(error), hint]
    if tools:
        candidates = [tools.adapt_text(text) for text in candidates]
    suggestions = [_cut_middle(text, MAX_SUGGESTION_CHARACTERS) for text in dict.fromkeys(candidates) if text]
    return [make_runnable(terminal_text.escape_controls(text)) for text in suggestions or [LAST_RESORT]]


_DESTRUCTIVE_COMMAND = re.compile(
    r"\brm -|\bgit rm\b|\binit --new\b|--accept-loss|--delete\b|\b(?:push\b[^']*|add )--(?:force|discard-knowledge)\b"
    r"|reset --hard|branch -D"
)
"""A command that can delete a pin, a knowledge base or a ref. Only a person decides that."""


def drop_destructive(hint: str) -> str:
    """Return a hint without the alternatives that discard something; empty without others."""
    if not _DESTRUCTIVE_COMMAND.search(hint):
        return hint
    return ", or ".join(way for way in hints.list_alternatives(hint) if not _DESTRUCTIVE_COMMAND.search(way))


def _suggest_by_code(error: VmragError) -> tuple[str, ...]:
    match error:
        case KnowledgeElsewhere() | InitializedElsewhere():  # do not create a second one
            return ("dolt_clone fetches the pinned knowledge base",)
        case LibraryRefused():
            return ("list_libraries lists the libraries",)
        case MergeRefused():
            return ("Nothing was changed: call again with another on_conflict or if_uncommitted.",)
    return TABLE_SUGGESTIONS.get((error.code, error.details.get("table", "")), SUGGESTIONS.get(error.code, ()))


def build_success(
    result: ToolResult,
    kb: KbBlock | None,
    warnings: Sequence[ToolWarning],
    *,
    max_characters: int | None = None,
    offset: int | None = None,
    copies: Sequence[str] = (),
) -> dict[str, Any]:
    """Return the result of a tool, with the block `kb` and the warnings if there are any.

    The answer has about `max_characters`. `offset` is the offset of the page, for tools with
    pages. `copies` names shown documents that are copies of tracked files.
    """
    fields = _convert_tuples(msgspec.to_builtins(result))
    report = fields.pop("report") if isinstance(result, ToolAnswer) else {}
    answer = make_advice_runnable({"success": True, **report, **fields})
    warnings = _make_warnings_runnable(warnings)
    if kb:
        answer["kb"] = msgspec.to_builtins(KbAnswer.from_block(kb, whole=result.whole_kb, copies=copies))
    if max_characters is not None and (left_out := cut_lists(answer, max_characters)):
        answer["left_out"] = left_out
        if "has_more" in answer:
            answer["has_more"] = True
        warnings = [*warnings, _warn_left_out(answer, left_out, max_characters, offset)]
    return answer | {"warnings": msgspec.to_builtins(warnings)} if warnings else answer


_ADVICE_KEYS = {"hint", "message", "next", "problem", "reasons", "undo"}
"""Keys of answers whose texts contain commands."""


def make_advice_runnable(fields: Mapping[str, Any]) -> dict[str, Any]:
    """Return an object with commands that a shell finds. Metadata of documents does not change."""
    return {
        key: _make_value_runnable(value, advice=key in _ADVICE_KEYS) if key != "metadata" else value
        for key, value in fields.items()
    }


def _make_value_runnable(value: Any, *, advice: bool) -> Any:
    match value:
        case dict():
            return make_advice_runnable(value)
        case str() if advice:
            return make_runnable(value)
        case list() if advice:
            return [_make_value_runnable(item, advice=True) for item in value]
    return value


def _make_warnings_runnable(warnings: Iterable[ToolWarning]) -> list[ToolWarning]:
    return [ToolWarning(warning.code, make_runnable(warning.message)) for warning in warnings]


def _convert_tuples(value: Any) -> Any:
    """Return a value with lists in place of tuples, because `cut_lists` cuts only lists."""
    match value:
        case dict():
            return {key: _convert_tuples(item) for key, item in value.items()}
        case list() | tuple() if any(isinstance(item, dict | list | tuple) for item in value):
            return [_convert_tuples(item) for item in value]
        case tuple():
            return [*value]
    return value


def _warn_left_out(
    answer: Mapping[str, Any], left_out: Mapping[str, int], max_characters: int, offset: int | None
) -> ToolWarning:
    """Return the warning that lists are cut."""
    counts = ", ".join(f"{count} of {path}" for path, count in left_out.items())
    page = next((path for path in left_out if path in answer), None)
    advice = "send fewer or narrower arguments to see them"
    if offset is not None and page:
        advice = f"continue with offset={offset + len(answer[page])}"
    return ToolWarning(
        "LEFT_OUT",
        f"The answer would be longer than {max_characters:,} characters (mcp.page_chars); left out: {counts}; {advice}.",
    )


def build_success_text(result: TextResult, kb: KbBlock | None, warnings: Sequence[ToolWarning]) -> str:
    """Return the answer of an essential tool: its text, the warnings, and the message.

    The last line names the commit or revision that the answer comes from, unless the lines of the
    text state that.
    """
    origin = _describe_origin(kb) if kb and not result.whole_kb else ""
    lines = [_make_lines_runnable(result.text.rstrip("\n")), ""] if result.text else []
    for warning in _make_warnings_runnable(warnings):
        label = "note" if warning.code in ("COMMITTED", "PUSHED") else "warning"
        lines.append(f"{label}: {terminal_text.escape_line(warning.message)}")
    lines.append(make_runnable(f"{origin}: {result.message}" if origin else result.message))
    return "\n".join(lines)


_DOCUMENT_LINE = re.compile(r"[\s+|>-]|.*?[:-]\d+(?:[-: ]|$)")
"""The beginning of a line that can be text of a document, such as after `PATH:LINE:`."""


def _make_lines_runnable(text: str) -> str:
    """Return the text of an essential tool with commands that a shell finds, outside of fences."""
    lines, open_fence = [], ""
    for line in text.split("\n"):
        if line.startswith("```") and open_fence in ("", line):
            open_fence = "" if open_fence else line
        lines.append(line if open_fence or _DOCUMENT_LINE.match(line) else make_runnable(line))
    return "\n".join(lines)


def build_failure_text(envelope: Mapping[str, Any]) -> str:
    """Return the answer of an essential tool that failed, from the envelope of its error."""
    hints = [f"hint: {suggestion}" for suggestion in envelope["suggestions"]]
    return "\n".join([f"error {envelope['code']}: {envelope['message']}", *hints])


_COMMIT_CHARACTERS = 7
"""Number of characters of an abbreviated commit."""


def _describe_origin(kb: KbBlock) -> str:
    """Return the phrase that names the commit, the revision, and what is uncommitted."""
    files = kb.sources
    commit = files.commit if files else kb.git_head
    edited = len(files.uncommitted) + len(files.removed) if files else 0
    names = [f"commit {commit[:_COMMIT_CHARACTERS]}"] if commit else []
    names += [f"revision {kb.commit[:_COMMIT_CHARACTERS]}"] if kb.commit and not kb.empty else []
    changes = [f"{plural(edited, 'file')} edited"] if edited else []
    changes += ["uncommitted documents"] if kb.dirty else []
    return " and ".join(names) + (f" with {' and '.join(changes)}" if names and changes else "")
