"""Early answers are byte for byte those of the SDK, in both eras of the protocol."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from typing import Any

import anyio
import mcp_types as types
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from mcp.shared.message import SessionMessage

from tests.support.long import examples
from vmrag_mcp.call import Behaviour
from vmrag_mcp.options import ToolChoice, ToolSelection, select_tools
from vmrag_mcp.server import KnowledgeServer
from vmrag_mcp.session import Session
from vmrag_mcp.transport.early import StaticAnswers
from vmrag_mcp.transport.stdio import MessageRefused, encode_message, parse_message

SELECTIONS = {
    "essential": ToolChoice(toolsets="essential"),
    "default": ToolChoice(),
    "all": ToolChoice(toolsets="all"),
    "none": ToolChoice(toolsets=""),
    "read-only": ToolChoice(toolsets="all", read_only=True),
    "prefixed": ToolChoice(toolsets="dolt,link", prefix="kb_", exclude_tools="dolt_commit"),
    "excluded": ToolChoice(toolsets="all", exclude_tools="get_diff,chroma_get_documents"),
}
META = "io.modelcontextprotocol/"
CLIENT = {"name": "ünïcode", "version": "1", "title": "T", "websiteUrl": "x", "icons": [{"src": "i", "sizes": ["any"]}]}
CAPABILITIES = {
    "roots": {"listChanged": True},
    "sampling": {"tools": {}},
    "elicitation": {"form": {"applyDefaults": True}, "url": {}},
    "experimental": {"x": {"y": [1]}},
    "extensions": {f"{META}ui": {"mimeTypes": ["text/html"]}},
    "tasks": {"list": {}, "requests": {"elicitation": {"create": {}}}},
    "unknown": 1,
}
ENVELOPE = {f"{META}protocolVersion": "2026-07-28", f"{META}clientCapabilities": {}, f"{META}clientInfo": CLIENT}
LISTS = ("tools/list", "prompts/list", "resources/templates/list")
IDS = (0, -1, 1, 2**53, 2**63 - 1, "", "1", "a/b", "ü☃😀", '"\\\b\f\n\r\t\x01\x1f\x7f\u2028', " ")


def request(method: str, params: Any = None, number: Any = 1) -> dict[str, Any]:
    message = {"jsonrpc": "2.0", "id": number, "method": method}
    return message if params is None else message | {"params": params}


def hello(version: Any = "2025-06-18", number: Any = "hello", **params: Any) -> dict[str, Any]:
    return request(
        "initialize", {"protocolVersion": version, "capabilities": {}, "clientInfo": CLIENT} | params, number
    )


def modern(method: str, number: Any = 1, **meta: Any) -> dict[str, Any]:
    return request(method, {"_meta": ENVELOPE | meta}, number)


INITIALIZED = {"jsonrpc": "2.0", "method": "notifications/initialized"}
HANDSHAKE = (hello(), INITIALIZED)
DISCOVERY = (modern("server/discover", "hello"),)


def encoded(messages: Sequence[Any]) -> list[bytes]:
    return [row if isinstance(row, bytes) else json.dumps(row).encode() + b"\n" for row in messages]


async def answer_with_sdk(chosen: ToolSelection, lines: Sequence[bytes], folder: Any) -> list[bytes]:
    """Return the SDK's answer to each line; empty if it gives none."""
    answers: list[bytes] = []
    inward, received = anyio.create_memory_object_stream[SessionMessage | Exception](0)
    outward, sent = anyio.create_memory_object_stream[SessionMessage](0)
    server = KnowledgeServer(Session(folder, Behaviour()), chosen)
    with anyio.fail_after(60):
        async with inward, received, outward, sent, anyio.create_task_group() as group:
            group.start_soon(server.sdk.run, received, outward, server.build_initialization())
            for line in lines:
                try:
                    message = parse_message(line)
                except MessageRefused as refused:
                    answers.append(encode_message(refused.answer))
                    continue
                await inward.send(SessionMessage(message))
                asks = isinstance(message, types.JSONRPCRequest)
                answers.append(encode_message((await sent.receive()).message) if asks else b"")
            group.cancel_scope.cancel()
    return answers


def compare(chosen: ToolSelection, messages: Sequence[Any], folder: Any) -> Iterator[tuple[Any, bytes]]:
    """Yield each message with its early answer, which must be the SDK's or empty."""
    lines = encoded(messages)
    early = StaticAnswers(chosen, settled=True)
    correct = anyio.run(answer_with_sdk, chosen, lines, folder)
    for message, line, answer in zip(messages, lines, correct, strict=True):
        step = early.take_line(line)
        assert step.answer in (b"", answer), message
        assert step.answer or step.for_sdk
        yield message, step.answer


@pytest.mark.parametrize("name", SELECTIONS)
def test_early_answers_are_those_of_the_sdk_for_every_selection(tmp_path, name):
    chosen = select_tools(SELECTIONS[name])
    lists = [request(method) for method in ("ping", *LISTS)]
    messages_of_handshake = [*HANDSHAKE, *lists, request("logging/setLevel", {"level": "info"})]
    for messages in (messages_of_handshake, [*DISCOVERY, *(modern(method) for method in LISTS)]):
        for message, answer in compare(chosen, messages, tmp_path):
            assert answer or message is INITIALIZED, message


@pytest.mark.parametrize("version", ["2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25"])
def test_early_handshake_takes_the_version_of_the_client(tmp_path, version):
    chosen = select_tools(SELECTIONS["essential"])
    messages = [hello(version, capabilities=CAPABILITIES, _meta={"progressToken": 1}), INITIALIZED]
    [(_, answer), _, (_, listed)] = compare(chosen, [*messages, request("tools/list")], tmp_path)
    assert json.loads(answer)["result"]["protocolVersion"] == version
    assert listed


def test_early_answers_return_every_kind_of_id_and_ignore_metadata(tmp_path):
    chosen = select_tools(SELECTIONS["essential"])
    params = (None, {}, {"_meta": {"progressToken": "t", "traceparent": 1}}, {"cursor": "x"}, {"more": [1]})
    old = [request("tools/list", parameters, number) for parameters in params for number in IDS]
    new = [modern("tools/list", number, progressToken=2, **{f"{META}logLevel": "info"}) for number in IDS]
    for messages in ([*HANDSHAKE, *old, b' {"method":"ping" ,"id":7,"params":null,"jsonrpc":"2.0"}\r\n'], new):
        assert all(answer or message is INITIALIZED for message, answer in compare(chosen, messages, tmp_path))


REFUSED = {
    "version that the handshake does not have": [hello("2026-07-28")],
    "unknown version": [hello("1999-01-01"), request("tools/list")],
    "version that is no text": [hello(1)],
    "client without a name": [hello(clientInfo={"version": "1"})],
    "capability that is no object": [hello(capabilities={"roots": True})],
    "request before the handshake": [request("tools/list"), hello()],
    "second handshake": [*HANDSHAKE, hello("2024-11-05", "again"), request("ping")],
    "envelope in a handshake connection": [*HANDSHAKE, modern("tools/list"), request("tools/list")],
    "handshake in a modern connection": [*DISCOVERY, hello(number=3), modern("tools/list")],
    "unknown modern version": [modern("server/discover", **{f"{META}protocolVersion": "2027-01-01"})],
    "modern request without an envelope": [*DISCOVERY, request("tools/list")],
    "modern request without capabilities": [request("tools/list", {"_meta": {f"{META}protocolVersion": "2026-07-28"}})],
    "ping of the other era": [*DISCOVERY, modern("ping")],
    "discovery of the other era": [*HANDSHAKE, request("server/discover")],
    "unknown method": [*HANDSHAKE, request("tools/none")],
    "unknown level": [*HANDSHAKE, request("logging/setLevel", {"level": "loud"})],
    "cursor that is no text": [*HANDSHAKE, request("tools/list", {"cursor": 1})],
    "token that is no token": [*HANDSHAKE, request("ping", {"_meta": {"progressToken": {}}})],
    "parameters in a list": [*HANDSHAKE, request("ping", [])],
    "id that is no id": [*HANDSHAKE, request("ping", {}, 1.5), request("ping", {}, True), request("ping", {}, None)],
    "half of a surrogate pair": [*HANDSHAKE, request("ping", {}, "\ud800")],
    "huge id": [*HANDSHAKE, request("ping", {}, 2**70), request("ping")],
    "additional key": [*HANDSHAKE, request("ping") | {"result": {}}, request("ping") | {"more": 1}],
    "other protocol": [*HANDSHAKE, request("ping") | {"jsonrpc": "1.0"}],
    "deep value": [hello(capabilities={"experimental": {"x": {"y": json.loads("[" * 400 + "]" * 400)}}})],
    "line that is no JSON": [b"nothing\n", *HANDSHAKE, b"{\n", b'{"id": NaN}\n', b"\xff\n", b"[]\n", request("ping")],
}


@pytest.mark.parametrize("name", REFUSED)
def test_unusual_messages_get_the_answers_of_the_sdk(tmp_path, name):
    assert not all(answer for _, answer in compare(select_tools(SELECTIONS["essential"]), REFUSED[name], tmp_path))


NAMES = ("", "x", "2025-06-18", "2026-07-28", "info", "ping", "initialize", "tools/list", "server/discover")
VALUES = st.sampled_from(
    [*NAMES, None, True, 0, 1, -1, 1.0, 2.5, [], {}, {"a": {}}, {"a": 1}, [1], ENVELOPE, CAPABILITIES, CLIENT]
)
MESSAGES = (
    hello(capabilities=CAPABILITIES),
    request("tools/list", {"_meta": {"progressToken": 1}, "cursor": "x"}),
    request("logging/setLevel", {"level": "info"}),
    modern("tools/list", **{f"{META}clientCapabilities": CAPABILITIES}),
    modern("server/discover"),
)


@st.composite
def changed(draw: st.DrawFn, value: Any) -> Any:
    """A message of which one value at any depth is another one, or is left out."""
    if not isinstance(value, dict) or not value or draw(st.integers(0, 4)) == 0:
        return draw(VALUES)
    key = draw(st.sampled_from(sorted(value)))
    rest = {name: part for name, part in value.items() if name != key}
    return rest if draw(st.integers(0, 5)) == 0 else rest | {key: draw(changed(value[key]))}


@given(data=st.data())
@settings(max_examples=examples(150), deadline=None, suppress_health_check=list(HealthCheck))
def test_changed_messages_get_the_answers_of_the_sdk(tmp_path, data):
    start = data.draw(st.sampled_from([(), HANDSHAKE, DISCOVERY]))
    message = data.draw(st.sampled_from(MESSAGES).flatmap(changed))
    list(compare(select_tools(SELECTIONS["essential"]), [*start, message, request("ping", {}, "last")], tmp_path))
