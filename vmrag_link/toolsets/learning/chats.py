"""Write down what was asked and done in a chat, linked with the code that it changed, both ways.

The raw texts are kept in a column of which no index is made, `source_key`: they are pushed with the
knowledge base, but no search finds them.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Mapping, Sequence
from typing import Annotated, Any, TypeVar

import msgspec
from msgspec import Meta

from vmrag_link import clock
from vmrag_link.errors import JsonInvalid
from vmrag_link.models import At, Document, DocumentHeader, Record, canonical_json, json_from_user, metadata_of
from vmrag_link.ops.documents import named_files as files
from vmrag_link.ops.documents import writing
from vmrag_link.ops.documents.collections import exact
from vmrag_link.ops.documents.named_files import NamedFile
from vmrag_link.ops.documents.writing import Landed, Planned
from vmrag_link.ops.system import collections, stores
from vmrag_link.ops.system.collections import Put, entry, with_metadata
from vmrag_link.settings import agreed_setting, first_of
from vmrag_link.toolsets.learning import chat_context
from vmrag_link.toolsets.learning.chat_context import FileChange
from vmrag_link.toolsets.learning.names import file_name, split
from vmrag_link.workspace import Workspace


class LearningSettings(Record, frozen=True):
    store_raw: Annotated[
        bool,
        Meta(
            description="Whether the raw prompts and answers that `chroma_log_chat` is given are stored, and so pushed with the "
            "knowledge base; they may hold secrets.",
            extra=agreed_setting(first_of(False, True)),
        ),
    ] = True


FILE, CHATS_OF_CODE = "file_path", "related_chat_ids"
"""Keys of the metadata of a chunk of code: the file that it is from, and the chats about it."""


R = TypeVar("R", bound=Record)


class ToolUse(Record, frozen=True):
    name: str
    args: Mapping[str, Any] = {}


class ChatRequest(Record, frozen=True):
    """What is empty or None is derived (`chat_context`). `involved_entities`: with commas."""

    prompt_summary: str
    response_summary: str
    raw_prompt: str = ""
    raw_response: str = ""
    tool_usage: Sequence[ToolUse] = ()
    file_changes: Sequence[FileChange] = ()
    involved_entities: str = ""
    session_id: str = ""
    collection_name: str = collections.CHATS
    modification_type: str = ""
    confidence_score: float | None = None
    code_context: Mapping[str, Any] | None = None
    diff_summary: str = ""
    tool_sequence: str = ""
    related_code_chunks: Sequence[str] = ()


class ChatLinks(Record, frozen=True):
    """`files` have chunks of code, which `chunk_ids` names; `unmatched_files` have none."""

    chunk_ids: list[str]
    files: list[str]
    unmatched_files: list[str]


class ChatReport(Record, frozen=True):
    chat_id: str
    session_id: str
    bidirectional_links: ChatLinks


def read_list(ws: Workspace, file: NamedFile, kind: type[R]) -> list[R]:
    """A list of records that a file holds as JSON. Raises `JsonInvalid`, as `files.read`."""
    source = files.read(ws, file)
    try:
        return msgspec.convert(json_from_user(source.data.decode()), type=list[kind])  # type: ignore[valid-type]
    except (ValueError, msgspec.ValidationError) as error:
        raise JsonInvalid(
            f"{source.name} is no list as it is wanted here: {error}.",
            hint="docs/toolsets/learning.md shows one.",
            value=source.key,
        ) from None


def log_chat(ws: Workspace, request: ChatRequest) -> Landed[ChatReport]:
    """Store a chat, and its id with the chunks of the files that it changed; all or nothing.

    What stays on this machine names the chunks, and they do not name it: they are pushed.

    Raises `JsonInvalid` for what cannot be stored, as `collections.find_or_new`,
    `collections.prepared`, `writing.write`.
    """
    chat_id, session = str(uuid.uuid4()), request.session_id or str(uuid.uuid4())
    changes = [
        msgspec.structs.replace(each, file_path=file_name(each.file_path, ws.places.top))
        for each in request.file_changes
    ]
    changed = list(dict.fromkeys(each.file_path for each in changes))

    store = stores.for_tools(ws, request.collection_name)
    apart = None if store is ws else stores.knowledge_at(ws)

    def plan(at: At) -> Planned[ChatReport]:
        collection, new = collections.find_or_new(store, at, request.collection_name)
        code = _code(ws, at if store is ws else apart, changed)
        ids = [each.doc_id for each in code]
        with_code = {file_of(each) for each in code}
        links = ChatLinks(
            chunk_ids=ids,
            files=[each for each in changed if each in with_code],
            unmatched_files=[each for each in changed if each not in with_code],
        )
        metadata = _metadata(request, changes) | {
            "session_id": session,
            "related_code_chunks": [*dict.fromkeys([*request.related_code_chunks, *ids])],
        }
        text = "\n\n".join(filter(None, (request.prompt_summary, request.response_summary, metadata["diff_summary"])))
        chat = msgspec.structs.replace(
            entry(collection.name, chat_id, text, metadata),
            source_key=_raw(request) if _stores_raw(ws) else "",
        )
        puts = [Put(collection, new, [chat]), *(_linked(ws, at, code, chat_id) if store is ws else ())]
        return Planned(collections.prepared(store, puts), ChatReport(chat_id, session, links))

    return writing.write(store, plan, "write down a chat")


def _metadata(request: ChatRequest, changes: Sequence[FileChange]) -> dict[str, Any]:
    """Given values precede derived ones."""
    tools = [each.name for each in request.tool_usage]
    summary = request.diff_summary or chat_context.diff_summary(changes)
    derived = chat_context.modification_type(request.prompt_summary, request.response_summary, summary)
    rated = chat_context.confidence(
        changed=bool(changes), tools=len(tools), response=request.response_summary, kind=derived
    )
    context = chat_context.code_context(changes) if request.code_context is None else request.code_context
    return {
        "status": "captured",
        "timestamp": clock.now(),
        "prompt_summary": request.prompt_summary,
        "response_summary": request.response_summary,
        "involved_entities": split([request.involved_entities]),
        "files": [*dict.fromkeys(each.file_path for each in changes)],
        "modification_type": request.modification_type or derived,
        "confidence_score": rated if request.confidence_score is None else request.confidence_score,
        "code_context": msgspec.to_builtins(context),
        "diff_summary": summary,
        "tool_sequence": request.tool_sequence or chat_context.tool_sequence(tools),
    }


def _raw(request: ChatRequest) -> str:
    """As JSON; empty if there is nothing of it."""
    given = {
        "raw_prompt": request.raw_prompt,
        "raw_response": request.raw_response,
        "tool_usage": msgspec.to_builtins(tuple(request.tool_usage)),
    }
    said = {name: value for name, value in given.items() if value}
    return canonical_json(said) if said else ""


def _code(ws: Workspace, at: At | None, files: Iterable[str]) -> list[Document]:
    """The chunks of code of these files, by id."""
    wanted = set(files)
    if not wanted or at is None or exact(ws, at, collections.CODEBASE) is None:
        return []
    headers = ws.engine.headers(at, collection=collections.CODEBASE)
    ids = [each.doc_id for each in headers if file_of(each) in wanted]
    found = ws.engine.documents(at, collection=collections.CODEBASE, ids=ids) if ids else ()
    return sorted(found, key=lambda each: each.doc_id)


def file_of(chunk: Document | DocumentHeader) -> str | None:
    """The file that a chunk of code is from; None where its metadata, which any tool may write, say
    something else.
    """
    found = metadata_of(chunk).get(FILE)
    return found if isinstance(found, str) else None


def _linked(ws: Workspace, at: At, code: Sequence[Document], chat_id: str) -> list[Put]:
    """The chunks with the chat's id among those of their chats."""
    if not code:
        return []
    rows = []
    for each in code:
        before = metadata_of(each).get(CHATS_OF_CODE)
        known = [name for name in before if isinstance(name, str)] if isinstance(before, list) else []
        rows.append(with_metadata(each, **{CHATS_OF_CODE: sorted({*known, chat_id})}))
    collection, new = collections.find_or_new(ws, at, collections.CODEBASE)
    return [Put(collection, new, rows)]


def _stores_raw(ws: Workspace) -> bool:
    settings: LearningSettings = ws.section("learning", LearningSettings).config.learning
    return settings.store_raw
