"""Invalid messages get the error that JSON-RPC defines, and the server continues."""

from __future__ import annotations

import json
import random
from typing import Any

import mcp_types as types
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support import terminal
from tests.support.long import examples
from tests.support.mcp_process import serve
from vmrag_mcp.transport.stdio import MessageRefused, encode_message, parse_message

template, project = terminal.template, terminal.project

MESSAGES = examples(999)
PARSE, INVALID, UNKNOWN, PARAMETERS = -32700, -32600, -32601, -32602
DEEP = b'{"jsonrpc":"2.0","id":1,"method":"ping","params":' + b'{"a":' * 100_000 + b"1" + b"}" * 100_000 + b"}"


def refused(line: bytes) -> tuple[int, Any]:
    with pytest.raises(MessageRefused) as caught:
        parse_message(line)
    answer = caught.value.answer
    assert json.loads(encode_message(answer))["id"] == answer.id
    return answer.error.code, answer.id


# -- one line


@pytest.mark.parametrize(
    "line",
    [
        b"x",
        b"{",
        b'{"jsonrpc":"2.0","id":1,"method":"ping"',
        b'{"jsonrpc":"2.0","id":1,"method":"ping"}}',
        b'{"jsonrpc":"2.0","id":1,"method":"pi\x00ng"}',
        b"\x00",
        b'{"jsonrpc":"2.0","id":1,"method":"p\xffing"}',
        b'{"jsonrpc":"2.0","id":NaN,"method":"ping"}',
        b'{"jsonrpc":"2.0","id":1,"method":"ping","params":{"x":Infinity}}',
        b"1" * 5000,
        b"[" * 100_000,
        DEEP,
        b"'ping'",
        '{"jsonrpc":"2.0","id":1,"method":"ping"}'.encode("utf-16"),
    ],
)
def test_invalid_json_is_a_parse_error_without_id(line):
    assert refused(line) == (PARSE, None)


@pytest.mark.parametrize(
    ("line", "about"),
    [
        ("1", None),
        ("null", None),
        ('"ping"', None),
        ("[]", None),
        ('[{"jsonrpc":"2.0","id":1,"method":"ping"}]', None),
        ("{}", None),
        ('{"id":1,"method":"ping"}', 1),
        ('{"jsonrpc":"1.0","id":"a","method":"ping"}', "a"),
        ('{"jsonrpc":"2.0","id":7}', 7),
        ('{"jsonrpc":"2.0","id":7,"method":null}', 7),
        ('{"jsonrpc":"2.0","id":7,"method":"ping","params":[]}', 7),
        ('{"jsonrpc":"2.0","id":null,"method":"ping"}', None),
        ('{"jsonrpc":"2.0","id":1.5,"method":"ping"}', None),
        ('{"jsonrpc":"2.0","id":true,"method":"ping"}', None),
        ('{"jsonrpc":"2.0","id":{},"method":"ping"}', None),
        ('{"jsonrpc":"2.0","id":"\\ud800","method":1}', "\ud800"),
        ('{"jsonrpc":"2.0","id":"ü\\u200b","method":1}', "ü\u200b"),
        ('{"jsonrpc":"2.0","id":%s,"method":1}' % ("9" * 400), int("9" * 400)),
        ('{"jsonrpc":"2.0","id":5,"result":"text"}', None),
        ('{"jsonrpc":"2.0","id":5,"error":"text"}', None),
    ],
)
def test_json_without_a_message_is_an_invalid_request(line, about):
    assert refused(line.encode()) == (INVALID, about)


def test_unpaired_surrogate_in_an_argument_is_rejected_by_the_tool():
    message = parse_message(
        b'{"jsonrpc":"2.0","id":"\\udfff","method":"tools/call","params":{"arguments":{"a":"\\ud800"}}}'
    )
    assert isinstance(message, types.JSONRPCRequest)
    assert message.params["arguments"]["a"] == "\ud800"
    assert json.loads(encode_message(message))["params"] == message.params


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=10,
)
NEARLY = st.fixed_dictionaries(
    {},
    optional={
        "jsonrpc": st.just("2.0") | JSON,
        "id": JSON,
        "method": st.sampled_from(["ping", "tools/list"]) | JSON,
        "params": JSON,
        "result": JSON,
        "error": JSON,
    },
)


@given(st.binary() | (JSON | NEARLY).map(lambda value: json.dumps(value).encode()))
def test_every_line_is_a_message_or_is_refused_in_a_line(line):
    try:
        message = parse_message(line)
    except MessageRefused as error:
        message = error.answer
    text = encode_message(message)
    assert text.endswith(b"\n")
    assert b"\n" not in text[:-1]
    json.loads(text)


# -- a thousand of them


def mangled(chance: random.Random) -> bytes:
    """A line that is nearly a message; never one that cancels, or that answers us."""
    ids = [1, "a", 10**300, -1, 2**63, "x" * 1000, "\ud800", None, 1.5, True, [], {}]
    values = [None, True, 0, -1, 1e308, 10**40, "", "\udfff", "\x00", "x" * 2000, [], [[]], {}, {"a": {"b": [1]}}]
    methods = ["ping", "tools/list", "tools/call", "initialize", "resources/read", "prompts/get", "completion/complete"]
    methods += ["nothing", "", "tools/", "notifications/nothing", "../..", "ping\n", "\ud800", "resources/subscribe"]
    message: dict[str, Any] = {
        "jsonrpc": "2.0",
        "id": chance.choice(ids),
        "method": chance.choice(methods),
        "params": {
            "name": chance.choice(["chroma_list_collections", "nothing", *values]),
            "arguments": chance.choice([*values, {"limit": chance.choice(values), "nothing": 1}]),
            "uri": chance.choice(["vmrag://status", "vmrag://documents/%ff/x", *values]),
            "_meta": chance.choice([{}, {"progressToken": chance.choice(values)}, *values]),
        },
    }
    match chance.randrange(8):
        case 0:
            message[chance.choice([*message])] = chance.choice(values)
        case 1:
            del message[chance.choice(["jsonrpc", "id", "method", "params"])]
        case 2:
            return json.dumps([message] * chance.randrange(4)).encode()
        case 3:
            return json.dumps(message).encode()[: chance.randrange(1, 40)]
        case 4:
            line = bytearray(json.dumps(message).encode())
            line[chance.randrange(len(line))] = chance.choice([0, 0xFF, 0xC3, 0x22, 0x7B])
            return bytes(line)
        case 5:
            return chance.randbytes(chance.randrange(1, 200)).replace(b"\n", b"")
        case 6:
            message["params"] = chance.choice(values)
    return json.dumps(message).encode()


def expected(line: bytes) -> tuple[bool, Any]:
    """Return whether the message must be answered, and with which id."""
    if not line.strip():
        return False, None
    try:
        message = parse_message(line)
    except MessageRefused as error:
        return True, error.answer.id
    return (True, message.id) if isinstance(message, types.JSONRPCRequest) else (False, None)


def test_thousand_malformed_messages_are_all_answered_and_none_ends_the_server(project):
    chance = random.Random(7)
    with serve(project.top) as server:
        expected_count = 0
        answers = []
        for number in range(MESSAGES):
            line = mangled(chance)
            must, about = expected(line)
            server.raw(line + b"\n")
            if must:
                expected_count += 1
                answer = server.next()
                while "method" in answer:  # progress that it asked for
                    answer = server.next()
                assert answer["id"] == about, (line, answer)
                answers.append(answer)
            if number % 100 == 0:
                assert server.ask("ping") == {}
        assert server.ask("ping") == {}
        assert server.call("chroma_list_collections")["total_count"] == 1
    codes = {answer["error"]["code"] for answer in answers if "error" in answer}
    assert {PARSE, INVALID, UNKNOWN, PARAMETERS} <= codes
    assert codes <= {PARSE, INVALID, UNKNOWN, PARAMETERS}
    assert expected_count > MESSAGES // 2
    assert "Traceback" not in server.said


def test_malformed_messages_before_the_handshake_are_answered(project):
    with serve(project.top, begun=False) as server:
        for line, code in ((b"{", PARSE), (b"[]", INVALID), (b"\n\n{}", INVALID)):
            server.raw(line + b"\n")
            assert server.next()["error"]["code"] == code
        assert server.ask("ping") == {}
        server.begin()
        assert "chroma_list_collections" in server.tools()
