"""The protocol over the standard streams: one message a line, and nothing else ever.

The SDK's own transport drops malformed lines, gives up the calls under way at the end of input, and
waits for threads then. This one answers malformed lines, grants a moment, and leaves.
"""

from __future__ import annotations

import anyio
import anyio.to_thread
import mcp_types as types
from anyio.streams.memory import MemoryObjectReceiveStream, MemoryObjectSendStream
from mcp.shared.message import SessionMessage

from vmrag_mcp.server import KnowledgeServer
from vmrag_mcp.transport.messages import Message, MessageRefused, encode_message, parse_message
from vmrag_mcp.transport.shutdown import leave
from vmrag_mcp.transport.wire import Wire

GRACE_SECONDS = 0.5
"""How long calls may take after the end of input: a caller that pipes requests in wants answers."""


def serve(server: KnowledgeServer, wire: Wire) -> None:
    """Until the client closes its end, or is gone; then the process ends."""
    anyio.run(_Connection(server, wire).run)


class _Connection:
    def __init__(self, server: KnowledgeServer, wire: Wire) -> None:
        self._server = server
        self._wire = wire
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
            await self._server.sdk.run(received, outward, self._server.initialization())
        leave()

    async def _read(self, inward: MemoryObjectSendStream[SessionMessage | Exception]) -> None:
        while line := await anyio.to_thread.run_sync(self._wire.line, limiter=self._reading, abandon_on_cancel=True):
            if line.isspace():
                continue
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
        leave()

    async def _write(self, sent: MemoryObjectReceiveStream[SessionMessage]) -> None:
        async for each in sent:
            await self._send(each.message)

    async def _send(self, message: Message) -> None:
        await anyio.to_thread.run_sync(self._wire.write, encode_message(message), limiter=self._writing)
        if isinstance(message, types.JSONRPCResponse | types.JSONRPCError) and message.id is not None:
            self._unanswered.discard(message.id)
            if self._ended and not self._unanswered:
                leave()
