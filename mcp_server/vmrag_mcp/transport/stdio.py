"""The protocol over the standard streams: one message per line, and no other output.

The SDK's own transport drops malformed lines, cancels the running calls at the end of input, and
then waits for threads. This transport answers a malformed line with a JSON-RPC error, waits a
moment for running calls, and ends the process.
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
    """A line is not a message. `answer` is the error for the client."""

    def __init__(self, code: int, problem: str, request_id: types.RequestId | None = None) -> None:
        super().__init__(problem)
        self.answer = types.JSONRPCError(
            jsonrpc="2.0", id=request_id, error=types.ErrorData(code=code, message=problem)
        )


def parse_message(line: bytes) -> Message:
    """Parse a line.

    Raises `MessageRefused`. Half a surrogate pair is valid here; the tool refuses it.
    """
    try:
        value = read_json(line)
    except UnicodeDecodeError:
        raise MessageRefused(types.PARSE_ERROR, "Parse error: the line is not UTF-8.") from None
    except RecursionError:
        raise MessageRefused(types.PARSE_ERROR, "Parse error: the value is nested too deeply.") from None
    except ValueError as error:
        raise MessageRefused(types.PARSE_ERROR, f"Parse error: {error}.") from None
    if not isinstance(value, dict):
        problem = "batches are not supported" if isinstance(value, list) else "a message must be a JSON object"
        raise MessageRefused(types.INVALID_REQUEST, f"Invalid request: {problem}.")
    request_id = _find_id(value)
    try:
        message: Message = types.jsonrpc_message_adapter.validate_python(value, by_name=False)
    except (ValidationError, RecursionError):
        raise MessageRefused(
            types.INVALID_REQUEST, "Invalid request: not a JSON-RPC 2.0 message.", request_id
        ) from None
    if isinstance(message, types.JSONRPCNotification) and "id" in value:
        raise MessageRefused(types.INVALID_REQUEST, "Invalid request: the id must be a string or an integer.")
    return message


def encode_message(message: Message) -> bytes:
    """Return a message as one line."""
    try:
        return message.model_dump_json(by_alias=True, exclude_unset=True).encode() + b"\n"
    except PydanticSerializationError:  # the answer quotes half a surrogate pair, which stays an escape sequence
        return json.dumps(message.model_dump(by_alias=True, exclude_unset=True)).encode() + b"\n"


def _find_id(message: dict[str, Any]) -> types.RequestId | None:
    """Return the id to answer to; None for a broken answer, whose id belongs to the server."""
    request_id = message.get("id")
    if "method" not in message and ("result" in message or "error" in message):
        return None
    return request_id if isinstance(request_id, str | int) and not isinstance(request_id, bool) else None


GRACE_SECONDS = 0.5
"""Time for calls after the end of input: a program that pipes requests in waits for answers."""


def serve_stdio(server: KnowledgeServer, stream: EarlyStream) -> None:
    """Serve until the client closes its streams or ends. Then the process ends."""
    stream.take_over()
    anyio.run(_Connection(server, stream).run)


class _Connection:
    """Passes lines of the client to the SDK, and messages of the SDK to the client."""

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
            group.start_soon(self._read_messages, inward)
            group.start_soon(self._write_messages, sent)
            await self._server.sdk.run(received, outward, self._server.build_initialization())
        exit_now()

    async def _read_messages(self, inward: MemoryObjectSendStream[SessionMessage | Exception]) -> None:
        while line := await anyio.to_thread.run_sync(
            self._stream.next_line, limiter=self._reading, abandon_on_cancel=True
        ):
            try:
                message = parse_message(line)
            except MessageRefused as refused:
                await self._send_message(refused.answer)
                continue
            if isinstance(message, types.JSONRPCRequest):
                self._unanswered.add(message.id)
            await inward.send(SessionMessage(message))
        self._ended = True
        if self._unanswered:
            await anyio.sleep(GRACE_SECONDS)
        exit_now()

    async def _write_messages(self, sent: MemoryObjectReceiveStream[SessionMessage]) -> None:
        async for session_message in sent:
            message = session_message.message
            if self._opening is not None and _is_answer(message) and message.id == self._opening:
                self._opening = None  # the client already has this answer, from `StaticAnswers`
                self._mark_answered(message.id)
            else:
                await self._send_message(message)

    async def _send_message(self, message: Message) -> None:
        await anyio.to_thread.run_sync(self._stream.write, encode_message(message), limiter=self._writing)
        if _is_answer(message) and message.id is not None:
            self._mark_answered(message.id)

    def _mark_answered(self, request: types.RequestId) -> None:
        self._unanswered.discard(request)
        if self._ended and not self._unanswered:
            exit_now()


def _is_answer(message: Message) -> TypeGuard[types.JSONRPCResponse | types.JSONRPCError]:
    return isinstance(message, types.JSONRPCResponse | types.JSONRPCError)
