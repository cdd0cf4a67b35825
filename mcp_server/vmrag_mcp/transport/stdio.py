"""The protocol over the standard streams: one message a line, and nothing else ever.

The SDK's own transport drops malformed lines, gives up the calls under way at the end of input, and
waits for threads then. This one answers a malformed line with JSON-RPC's error, grants a moment,
and leaves.
"""

from __future__ import annotations

import json
from typing import Any, TypeGuard

import anyio
import anyio.to_thread
import mcp_types as types
from anyio.streams.memory import MemoryObjectReceiveStream, MemoryObjectSendStream
from mcp.shared.message import SessionMessage
from pydantic import ValidationError
from pydantic_core import PydanticSerializationError

from vmrag_mcp.process import exit_now
from vmrag_mcp.server import KnowledgeServer
from vmrag_mcp.transport.early import EarlyStream, read_json

Message = types.JSONRPCRequest | types.JSONRPCNotification | types.JSONRPCResponse | types.JSONRPCError


class MessageRefused(ValueError):
    """What came is no message; `answer` says so to the client."""

    def __init__(self, code: int, why: str, about: types.RequestId | None = None) -> None:
        super().__init__(why)
        self.answer = types.JSONRPCError(jsonrpc="2.0", id=about, error=types.ErrorData(code=code, message=why))


def parse_message(line: bytes) -> Message:
    """Raises `MessageRefused`. Half of a surrogate pair is JSON, so the tool refuses that."""
    try:
        found = read_json(line)
    except UnicodeDecodeError:
        raise MessageRefused(types.PARSE_ERROR, "Parse error: this is not UTF-8.") from None
    except RecursionError:
        raise MessageRefused(types.PARSE_ERROR, "Parse error: this is nested too deeply.") from None
    except ValueError as error:
        raise MessageRefused(types.PARSE_ERROR, f"Parse error: {error}.") from None
    if not isinstance(found, dict):
        what = "Batches are not part of this protocol" if isinstance(found, list) else "A message is a JSON object"
        raise MessageRefused(types.INVALID_REQUEST, f"Invalid request: {what}.")
    about = _id(found)
    try:
        message: Message = types.jsonrpc_message_adapter.validate_python(found, by_name=False)
    except (ValidationError, RecursionError):
        raise MessageRefused(
            types.INVALID_REQUEST, "Invalid request: this is no JSON-RPC 2.0 message.", about
        ) from None
    if isinstance(message, types.JSONRPCNotification) and "id" in found:
        raise MessageRefused(types.INVALID_REQUEST, "Invalid request: an id is a text or a whole number.")
    return message


def encode_message(message: Message) -> bytes:
    """One line, with its end."""
    try:
        return message.model_dump_json(by_alias=True, exclude_unset=True).encode() + b"\n"
    except (
        PydanticSerializationError
    ):  # half of a surrogate pair that the client sent comes back as the escape that it was
        return json.dumps(message.model_dump(by_alias=True, exclude_unset=True)).encode() + b"\n"


def _id(found: dict[str, Any]) -> types.RequestId | None:
    """The id to answer to; None for a broken answer: its id is one of ours, not of the client's."""
    about = found.get("id")
    if "method" not in found and ("result" in found or "error" in found):
        return None
    return about if isinstance(about, str | int) and not isinstance(about, bool) else None


GRACE_SECONDS = 0.5
"""How long calls may take after the end of input: a caller that pipes requests in wants answers."""


def serve_stdio(server: KnowledgeServer, stream: EarlyStream) -> None:
    """Serve until the client closes its end, or is gone. Then the process ends."""
    stream.take_over()
    anyio.run(_Connection(server, stream).run)


class _Connection:
    def __init__(self, server: KnowledgeServer, stream: EarlyStream) -> None:
        self._server = server
        self._stream = stream
        self._opening = stream.answers.opening
        self._reading = anyio.CapacityLimiter(1)
        self._writing = anyio.CapacityLimiter(1)
        self._unanswered: set[types.RequestId] = set()
        self._ended = False

    async def run(self) -> None:
        inward, received = anyio.create_memory_object_stream[SessionMessage | Exception](0)
        outward, sent = anyio.create_memory_object_stream[SessionMessage](0)
        async with anyio.create_task_group() as group:
            group.start_soon(self._read, inward)
            group.start_soon(self._write, sent)
            await self._server.sdk.run(received, outward, self._server.build_initialization())
        exit_now()

    async def _read(self, inward: MemoryObjectSendStream[SessionMessage | Exception]) -> None:
        while line := await anyio.to_thread.run_sync(
            self._stream.next_line, limiter=self._reading, abandon_on_cancel=True
        ):
            try:
                message = parse_message(line)
            except MessageRefused as refused:
                await self._send(refused.answer)
                continue
            if isinstance(message, types.JSONRPCRequest):
                self._unanswered.add(message.id)
            await inward.send(SessionMessage(message))
        self._ended = True
        if self._unanswered:
            await anyio.sleep(GRACE_SECONDS)
        exit_now()

    async def _write(self, sent: MemoryObjectReceiveStream[SessionMessage]) -> None:
        async for each in sent:
            message = each.message
            if self._opening is not None and _is_answer(message) and message.id == self._opening:
                self._opening = None  # the client has this answer
                self._mark_answered(message.id)
            else:
                await self._send(message)

    async def _send(self, message: Message) -> None:
        await anyio.to_thread.run_sync(self._stream.write, encode_message(message), limiter=self._writing)
        if _is_answer(message) and message.id is not None:
            self._mark_answered(message.id)

    def _mark_answered(self, request: types.RequestId) -> None:
        self._unanswered.discard(request)
        if self._ended and not self._unanswered:
            exit_now()


def _is_answer(message: Message) -> TypeGuard[types.JSONRPCResponse | types.JSONRPCError]:
    return isinstance(message, types.JSONRPCResponse | types.JSONRPCError)
