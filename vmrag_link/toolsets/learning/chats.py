"""Store the questions and answers of a chat, and link them with the code that it changed.

Values that the caller omits are derived from the texts. The raw texts are in `source_key`, a column
that is not indexed: they are pushed with the knowledge base, but no search finds them.
"""

from __future__ import annotations

import re
import uuid
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from itertools import groupby, islice, takewhile
from typing import Annotated, Any, Literal, TypeVar

import msgspec
from msgspec import Meta

from vmrag_link import clock
from vmrag_link.errors import JsonInvalid
from vmrag_link.models import (
    CODEBASE,
    LONGEST_QUERY,
    LONGEST_TEXT,
    At,
    Document,
    DocumentHeader,
    Record,
    encode_canonical_json,
    parse_metadata,
    parse_user_json,
)
from vmrag_link.ops.stores import stores
from vmrag_link.ops.stores.stores import CollectionPut, build_document, update_metadata
from vmrag_link.settings import keep_narrowest, needs_trust
from vmrag_link.toolsets.learning.evidence_records import StoredIn, format_path, split_names
from vmrag_link.workspace import Workspace
from vmrag_link.workspace.documents import named_files as files
from vmrag_link.workspace.documents import writing
from vmrag_link.workspace.documents.collections import find_exact
from vmrag_link.workspace.documents.named_files import NamedFile
from vmrag_link.workspace.documents.writing import Planned, WriteResult


class LearningSettings(Record, frozen=True):
    store_raw: Annotated[
        bool,
        needs_trust(
            "Store the raw prompts and answers of `chroma_log_chat`. They are pushed with the "
            "knowledge base, and may contain secrets.",
            keep_narrowest(False, True),
        ),
    ] = True


FILE, CHATS_OF_CODE = "file_path", "related_chat_ids"
"""Keys of the metadata of a chunk of code: the file that it is from, and the chats about it."""


R = TypeVar("R", bound=Record)


class ToolUse(Record, frozen=True):
    name: str
    args: Mapping[str, Any] = {}


class ChatRequest(Record, frozen=True):
    """A chat. Empty values and None are derived from the texts."""

    prompt_summary: Annotated[str, Meta(description="summary of the request", max_length=LONGEST_QUERY)]
    response_summary: Annotated[str, Meta(description="summary of the answer", max_length=LONGEST_QUERY)]
    raw_prompt: Annotated[str, Meta(description="whole request", max_length=LONGEST_TEXT)] = ""
    raw_response: Annotated[str, Meta(description="whole answer", max_length=LONGEST_TEXT)] = ""
    tool_usage: Annotated[Sequence[ToolUse], Meta(description="used tools, as {name, args}")] = ()
    file_changes: Annotated[
        Sequence[FileChange],
        Meta(description="files, as {file_path, before_content, after_content}", extra={"longest": 2 * LONGEST_TEXT}),
    ] = ()
    involved_entities: Annotated[str, Meta(description="names, separated by commas", max_length=LONGEST_QUERY)] = ""
    session_id: Annotated[str, Meta(description="id of the session")] = ""
    collection_name: StoredIn = stores.CHATS
    modification_type: Annotated[str, Meta(description="kind of change such as bugfix")] = ""
    confidence_score: Annotated[float | None, Meta(description="confidence", ge=0, le=1)] = None
    code_context: Annotated[Mapping[str, Any] | None, Meta(description="code around the changes")] = None
    diff_summary: Annotated[str, Meta(description="summary of the changes", max_length=LONGEST_TEXT)] = ""
    tool_sequence: Annotated[str, Meta(description="order of tools such as read→edit", max_length=LONGEST_QUERY)] = ""
    related_code_chunks: Annotated[Sequence[str], Meta(description="ids of chunks of code")] = ()


class ChatLinks(Record, frozen=True):
    """Links to code. `files` have the chunks `chunk_ids`; `unmatched_files` have none."""

    chunk_ids: list[str]
    files: list[str]
    unmatched_files: list[str]


class ChatReport(Record, frozen=True):
    chat_id: str
    bidirectional_links: ChatLinks
    session_id: str


def read_list(ws: Workspace, file: NamedFile, kind: type[R]) -> list[R]:
    """Return a list of records from a file with JSON.

    Raises `JsonInvalid` and the errors of `read_file`.
    """
    source = files.read_file(ws, file)
    try:
        return msgspec.convert(parse_user_json(source.data.decode()), type=list[kind])  # type: ignore[valid-type]
    except (ValueError, msgspec.ValidationError) as error:
        raise JsonInvalid(
            f"{source.name} is not a valid list: {error}.",
            hint="see the example in docs/toolsets.md",
            value=source.key,
        ) from None


def log_chat(ws: Workspace, request: ChatRequest) -> WriteResult[ChatReport]:
    """Store a chat, and add its id to the chunks of the files that it changed; all or nothing.

    If chats stay on this machine, the chunks do not name them, because the chunks are pushed.
    Raises `JsonInvalid` for values that cannot be stored, and the errors of
    `stores.find_or_define`, `stores.prepare_write` and `write_rows`.
    """
    chat_id, session = str(uuid.uuid4()), request.session_id or str(uuid.uuid4())
    changes = [
        msgspec.structs.replace(file_change, file_path=format_path(file_change.file_path, ws.places.top))
        for file_change in request.file_changes
    ]
    changed = list(dict.fromkeys(change.file_path for change in changes))

    store = stores.find_tools_store(ws, request.collection_name)
    apart = None if store is ws else stores.find_knowledge(ws)

    def plan_rows(at: At) -> Planned[ChatReport]:
        collection, new = stores.find_or_define(store, at, request.collection_name)
        code = _read_chunks(ws, at if store is ws else apart, changed)
        ids = [chunk.doc_id for chunk in code]
        with_code = {file_of(chunk) for chunk in code}
        links = ChatLinks(
            chunk_ids=ids,
            files=[path for path in changed if path in with_code],
            unmatched_files=[path for path in changed if path not in with_code],
        )
        metadata = _build_metadata(request, changes) | {
            "session_id": session,
            "related_code_chunks": [*dict.fromkeys([*request.related_code_chunks, *ids])],
        }
        text = "\n\n".join(filter(None, (request.prompt_summary, request.response_summary, metadata["diff_summary"])))
        chat = msgspec.structs.replace(
            build_document(collection.name, chat_id, text, metadata),
            source_key=_format_raw(request) if _stores_raw(ws) else "",
        )
        puts = [CollectionPut(collection, new, [chat]), *(_link_chunks(ws, at, code, chat_id) if store is ws else ())]
        return Planned(stores.prepare_write(store, puts), ChatReport(chat_id, links, session))

    return writing.write_rows(store, plan_rows, "write down a chat")


def _build_metadata(request: ChatRequest, changes: Sequence[FileChange]) -> dict[str, Any]:
    """Return the metadata. Given values have priority over derived values."""
    tools = [use.name for use in request.tool_usage]
    summary = request.diff_summary or diff_summary(changes)
    derived = modification_type(request.prompt_summary, request.response_summary, summary)
    rated = estimate_confidence(
        changed=bool(changes), tools=len(tools), response=request.response_summary, kind=derived
    )
    context = code_context(changes) if request.code_context is None else request.code_context
    return {
        "status": "captured",
        "timestamp": clock.now(),
        "prompt_summary": request.prompt_summary,
        "response_summary": request.response_summary,
        "involved_entities": split_names([request.involved_entities]),
        "files": [*dict.fromkeys(change.file_path for change in changes)],
        "modification_type": request.modification_type or derived,
        "confidence_score": rated if request.confidence_score is None else request.confidence_score,
        "code_context": msgspec.to_builtins(context),
        "diff_summary": summary,
        "tool_sequence": request.tool_sequence or tool_sequence(tools),
    }


def _format_raw(request: ChatRequest) -> str:
    """Return the raw texts as JSON; empty if there are none."""
    given = {
        "raw_prompt": request.raw_prompt,
        "raw_response": request.raw_response,
        "tool_usage": msgspec.to_builtins(tuple(request.tool_usage)),
    }
    said = {name: value for name, value in given.items() if value}
    return encode_canonical_json(said) if said else ""


def _read_chunks(ws: Workspace, at: At | None, files: Iterable[str]) -> list[Document]:
    """Return the chunks of these files, sorted by id."""
    paths = set(files)
    if not paths or at is None or find_exact(ws, at, CODEBASE) is None:
        return []
    headers = ws.engine.read_headers(at, collection=CODEBASE)
    ids = [header.doc_id for header in headers if file_of(header) in paths]
    chunks = ws.engine.read_documents(at, collection=CODEBASE, ids=ids) if ids else ()
    return sorted(chunks, key=lambda chunk: chunk.doc_id)


def file_of(chunk: Document | DocumentHeader) -> str | None:
    """Return the file of a chunk; None if its metadata, which any tool can write, have none."""
    value = parse_metadata(chunk).get(FILE)
    return value if isinstance(value, str) else None


def _link_chunks(ws: Workspace, at: At, code: Sequence[Document], chat_id: str) -> list[CollectionPut]:
    """Return the chunks with the id of the chat in their list of chats."""
    if not code:
        return []
    rows = []
    for chunk in code:
        before = parse_metadata(chunk).get(CHATS_OF_CODE)
        chats = [name for name in before if isinstance(name, str)] if isinstance(before, list) else []
        rows.append(update_metadata(chunk, **{CHATS_OF_CODE: sorted({*chats, chat_id})}))
    collection, new = stores.find_or_define(ws, at, CODEBASE)
    return [CollectionPut(collection, new, rows)]


def _stores_raw(ws: Workspace) -> bool:
    settings: LearningSettings = ws.section("learning", LearningSettings).config.learning
    return settings.store_raw


ModificationType = Literal[
    "refactor", "bugfix", "feature", "documentation", "optimization", "test", "config", "style", "unknown"
]

AROUND = 3
"""Number of unchanged lines on each side of a change."""

MOST = 2000
"""Maximum number of stored characters of a change, before and after each."""

MOST_FILES = 20
"""Maximum number of files whose changes are stored. The repository has the others."""

ARROW = "→"


class FileChange(Record, frozen=True):
    """The whole text of a file, before and after."""

    file_path: str
    before_content: str = ""
    after_content: str = ""


class ChangedPart(Record, frozen=True):
    """The text before and after a change. `line` counts from 1."""

    line: int
    before: str
    after: str


def tool_sequence(names: Iterable[str]) -> str:
    """Return `a→b→a` for tools in the order of their use, without immediate repeats."""
    return ARROW.join(name for name, _ in groupby(names))


def diff_summary(changes: Sequence[FileChange]) -> str:
    """Return a line for each file, with its numbers of new and removed lines."""
    return "\n".join(_count_lines(change) for change in changes)


def _count_lines(change: FileChange) -> str:
    before, after = (Counter(text.splitlines()) for text in (change.before_content, change.after_content))
    what = "added" if not change.before_content else "deleted" if not change.after_content else "changed"
    return f"{change.file_path}: {what}, +{(after - before).total()} -{(before - after).total()} lines"


def code_context(changes: Sequence[FileChange]) -> dict[str, ChangedPart]:
    """Return the changed part of each file, with a few lines around it; only for the
    first files.
    """
    differing = (change for change in changes if change.before_content != change.after_content)
    return {change.file_path: _find_part(change) for change in islice(differing, MOST_FILES)}


def _find_part(change: FileChange) -> ChangedPart:
    """Return the part from the first to the last changed line, in one pass."""
    before, after = change.before_content.splitlines(), change.after_content.splitlines()
    head = _count_equal(before, after)
    tail = min(_count_equal(before[::-1], after[::-1]), len(before) - head, len(after) - head)
    first = max(0, head - AROUND)
    old, new = ("\n".join(lines[first : len(lines) - tail + AROUND])[:MOST] for lines in (before, after))
    return ChangedPart(first + 1, old, new)


def _count_equal(one: Sequence[str], other: Sequence[str]) -> int:
    return sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], zip(one, other, strict=False)))


_KEYWORDS: dict[ModificationType, str] = {
    "bugfix": r"\b(?:fix|bug|error|crash|regress|broken|wrong|fail)",
    "refactor": r"\b(?:refactor|renam|restructur|clean ?up|simplif|extract|split|mov(?:e|ing)\b)",
    "documentation": r"\b(?:documentation|docs?\b|readme|changelog|docstring|comment)|\.(?:md|rst)\b",
    "test": r"\b(?:tests?\b|testing|coverage|pytest|test_)",
    "optimization": r"\b(?:optimi|perform|speed|faster|slow|memory|cach(?:e|ing)\b)",
    "config": r"\b(?:config|setting|environment variable)|\.(?:ya?ml|toml|ini)\b",
    "style": r"\b(?:style|format|lint|whitespace|indent)",
    "feature": r"\b(?:feature|add(?:s|ed|ing)?\b|implement|new\b|support|introduc)",
}


def modification_type(*texts: str) -> ModificationType:
    """Return the kind of change with the most words in the text.

    Of equal kinds, the first is used.
    """
    text = "\n".join(texts).lower()
    counts = {kind: len(re.findall(words, text)) for kind, words in _KEYWORDS.items()}
    best = max(counts, key=lambda kind: counts[kind])
    return best if counts[best] else "unknown"


def estimate_confidence(*, changed: bool, tools: int, response: str, kind: ModificationType) -> float:
    """Return how much a chat can teach, by a fixed rule.

    The base is 0.4. Each of these adds to it: changed files, several tools, a long answer, a known
    kind of change.
    """
    few, short = 2, 80
    points = 0.4 + 0.2 * changed + 0.1 * (tools >= few) + 0.1 * (len(response) >= short) + 0.1 * (kind != "unknown")
    return round(points, 2)
