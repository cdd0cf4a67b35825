"""Store the questions and answers of a chat, and link them with the code that it changed.

Values that the caller omits are derived from the texts (`chat_facts`). The raw texts are in
`source_key`, a column that is not indexed: they are pushed with the knowledge base, but no search
finds them.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Mapping, Sequence
from typing import Annotated, Any, TypeVar

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
from vmrag_link.toolsets.learning import chat_facts
from vmrag_link.toolsets.learning.chat_facts import FileChange
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


FILE = "file_path"
"""Key in the metadata of a chunk of code: the file that it is from."""

CHATS_OF_CODE = "related_chat_ids"
"""Key in the metadata of a chunk of code: the chats about it."""


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
    chat_id = str(uuid.uuid4())
    session = request.session_id or str(uuid.uuid4())
    changes = [
        msgspec.structs.replace(file_change, file_path=format_path(file_change.file_path, ws.places.top))
        for file_change in request.file_changes
    ]
    changed = list(dict.fromkeys(change.file_path for change in changes))

    store = stores.find_tools_store(ws, request.collection_name)
    is_shared = store is ws
    other_at = None if is_shared else stores.find_knowledge(ws)

    def plan_rows(at: At) -> Planned[ChatReport]:
        collection, new = stores.find_or_define(store, at, request.collection_name)
        code = _read_chunks(ws, at if is_shared else other_at, changed)
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
        puts = [CollectionPut(collection, new, [chat])]
        if is_shared:
            puts += _link_chunks(ws, at, code, chat_id)
        return Planned(stores.prepare_write(store, puts), ChatReport(chat_id, links, session))

    return writing.write_rows(store, plan_rows, "write down a chat")


def _build_metadata(request: ChatRequest, changes: Sequence[FileChange]) -> dict[str, Any]:
    """Return the metadata. Given values have priority over derived values."""
    tools = [use.name for use in request.tool_usage]
    summary = request.diff_summary or chat_facts.diff_summary(changes)
    derived = chat_facts.modification_type(request.prompt_summary, request.response_summary, summary)
    estimated = chat_facts.estimate_confidence(
        changed=bool(changes), tools=len(tools), response=request.response_summary, kind=derived
    )
    context = chat_facts.code_context(changes) if request.code_context is None else request.code_context
    return {
        "status": "captured",
        "timestamp": clock.now(),
        "prompt_summary": request.prompt_summary,
        "response_summary": request.response_summary,
        "involved_entities": split_names([request.involved_entities]),
        "files": [*dict.fromkeys(change.file_path for change in changes)],
        "modification_type": request.modification_type or derived,
        "confidence_score": estimated if request.confidence_score is None else request.confidence_score,
        "code_context": msgspec.to_builtins(context),
        "diff_summary": summary,
        "tool_sequence": request.tool_sequence or chat_facts.tool_sequence(tools),
    }


def _format_raw(request: ChatRequest) -> str:
    """Return the raw texts as JSON; empty if there are none."""
    texts = {
        "raw_prompt": request.raw_prompt,
        "raw_response": request.raw_response,
        "tool_usage": msgspec.to_builtins(tuple(request.tool_usage)),
    }
    stored = {name: value for name, value in texts.items() if value}
    return encode_canonical_json(stored) if stored else ""


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
