"""`vmrag-mcp --http`: who may talk to it, in both eras, and how it stops."""

from __future__ import annotations

import contextlib
import http.client
import json
import re
import shutil
import signal
import socket
import time
from concurrent.futures import ThreadPoolExecutor
from urllib.parse import urlsplit

import anyio
import httpx2
import pytest
from mcp.client import Client
from mcp.client.streamable_http import streamable_http_client

from tests.support import terminal
from tests.support.mcp import read_text_answer
from tests.support.mcp_process import HANDSHAKE, PATIENCE, run_to_end, serve

template, project = terminal.template, terminal.project

LIST = "chroma_list_collections"
TOKEN = {"SECRET_OF_OURS": "correct horse"}


class Reached:
    """A server over HTTP: requests as any program makes them."""

    def __init__(self, process, url: str) -> None:
        self.process, self.url = process, url
        self.host, self.port, self.path = urlsplit(url).hostname, urlsplit(url).port, urlsplit(url).path

    def post(self, body: bytes | dict, **headers: str) -> tuple[int, dict[str, str], bytes]:
        return self.request("POST", body if isinstance(body, bytes) else json.dumps(body).encode(), **headers)

    def request(self, method: str, body: bytes | None = None, **headers: str) -> tuple[int, dict[str, str], bytes]:
        connection = http.client.HTTPConnection(self.host, self.port, timeout=PATIENCE)
        given = {"Content-Type": "application/json", "Accept": "application/json, text/event-stream"}
        with contextlib.closing(connection):
            connection.request(
                method, self.path, body, given | {name.replace("_", "-"): value for name, value in headers.items()}
            )
            answer = connection.getresponse()
            return answer.status, {name.lower(): value for name, value in answer.getheaders()}, answer.read()


HELLO = {
    "jsonrpc": "2.0",
    "id": 1,
    "method": "initialize",
    "params": {"protocolVersion": HANDSHAKE, "capabilities": {}, "clientInfo": {"name": "t", "version": "1"}},
}


@contextlib.contextmanager
def reached(project, *arguments, at="0", env=None):
    with serve(project.top, "--http", at, *arguments, env=env, begun=False) as process:
        until = time.monotonic() + PATIENCE
        while not (match := re.search(r"http://\S+/mcp", process.said)) and time.monotonic() < until:
            assert process.popen.poll() is None, process.said
            time.sleep(0.02)
        yield Reached(process, match[0])


@pytest.fixture(scope="module")
def running(template, tmp_path_factory):
    """One server for the tests that do not change it."""
    with pytest.MonkeyPatch.context() as patch:
        folder = tmp_path_factory.mktemp("http")
        with reached(terminal.copied(template, folder, patch)) as server:
            yield server


def talk(url, work, mode="auto", **headers):
    async def run():
        async with (
            httpx2.AsyncClient(headers=headers, timeout=PATIENCE, follow_redirects=True) as http_client,
            Client(streamable_http_client(url, http_client=http_client), mode=mode) as client,
        ):
            return await work(client)

    return anyio.run(run)


async def collections(client):
    names = {tool.name for tool in (await client.list_tools()).tools}
    return names, (await client.call_tool(LIST, {})).structured_content


# -- clients


@pytest.mark.parametrize("mode", ["legacy", "auto"])
def test_official_client_lists_and_calls_tools_in_both_eras(running, mode):
    names, result = talk(running.url, collections, mode)
    assert LIST in names
    assert [collection["name"] for collection in result["collections"]] == ["handbook"]


def test_several_clients_of_both_eras_call_at_the_same_time(running):
    async def many(client):
        result = []

        async def one():
            result.append((await client.call_tool(LIST, {})).structured_content["total_count"])

        async with anyio.create_task_group() as group:
            for _ in range(8):
                group.start_soon(one)
        return result

    with ThreadPoolExecutor() as pool:
        modes = ["legacy", "auto"]
        assert list(pool.map(lambda mode: talk(running.url, many, mode), modes)) == [[1] * 8] * 2


@pytest.mark.parametrize("mode", ["legacy", "auto"])
def test_message_of_five_megabytes_comes_in(running, mode):
    async def long(client):
        return (await client.call_tool(LIST, {"name_contains": "x" * 5_000_000})).structured_content

    assert talk(running.url, long, mode)["details"]["value"] == 5_000_000


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"{",
        b"[]",
        b"null",
        b"\xff\xfe",
        b'{"jsonrpc":"2.0","id":1}',
        b'{"jsonrpc":"2.0","id":null,"method":"ping"}',
        b'[{"jsonrpc":"2.0","id":1,"method":"ping"}]',
        b'{"jsonrpc":"2.0","id":1,"method":"nothing"}',
        b'{"jsonrpc":"2.0","id":"\\ud800","method":"ping"}',
        b"[" * 100_000,
    ],
)
def test_server_rejects_invalid_messages_and_continues(running, body):
    for headers in ({}, {"MCP_Protocol_Version": "2026-07-28"}, {"MCP_Protocol_Version": "x"}):
        status, _, _ = running.post(body, **headers)
        assert 400 <= status < 500
    assert talk(running.url, collections)[1]["total_count"] == 1
    assert "Traceback" not in running.process.said


def test_server_rejects_unknown_paths_methods_and_large_bodies(running):
    running.path, path = "/", running.path
    try:
        assert running.post(HELLO)[0] == 404
    finally:
        running.path = path
    assert running.request("PUT", b"{}")[0] == 405
    assert running.post(b"{}", Content_Length=str(10**9))[0] == 413


# -- toolsets, which are a client's own

ESSENTIAL = {"search", "read", "grep", "history", "status", "remember", "forget", "enable_toolset"}
THOUGHTS = "chroma_find_similar_thoughts"


async def tools_of(client):
    return {tool.name for tool in (await client.list_tools()).tools}


@pytest.mark.parametrize("mode", ["legacy", "auto"])
@pytest.mark.parametrize("by", ["header", "address"])
def test_client_gets_instructions_of_its_chosen_toolsets(running, mode, by):
    async def look(client):
        return await tools_of(client), client.instructions

    url, headers = (
        (running.url, {"X-MCP-Toolsets": "essential"}) if by == "header" else (f"{running.url}?toolsets=essential", {})
    )
    outcome, instructions = talk(url, look, mode, **headers)
    assert outcome == ESSENTIAL
    assert "remember stores what the user wants to know" in instructions
    others, instructions = talk(running.url, look, mode)
    assert LIST in others
    assert not ESSENTIAL - {"enable_toolset"} & others
    assert "remember stores" not in instructions


def test_enabled_toolset_is_limited_to_its_session(running):
    async def run():
        heard = {"one": anyio.Event(), "other": anyio.Event()}

        def listening(name):
            async def hear(_):
                heard[name].set()

            return hear

        async with contextlib.AsyncExitStack() as stack:
            clients = {
                name: await stack.enter_async_context(
                    Client(streamable_http_client(running.url), mode="legacy", message_handler=listening(name))
                )
                for name in heard
            }
            before = await tools_of(clients["other"])
            result = await clients["one"].call_tool("enable_toolset", {"toolset": "thinking"})
            assert THOUGHTS in read_text_answer(result).switched_on
            with anyio.fail_after(PATIENCE):
                await heard["one"].wait()
            assert THOUGHTS in await tools_of(clients["one"])
            assert not (await clients["one"].call_tool(THOUGHTS, {"query": "x"})).is_error
            assert await tools_of(clients["other"]) == before
            refused = await clients["other"].call_tool(THOUGHTS, {"query": "x"})
            assert refused.structured_content["code"] == "TOOL_DISABLED"
            await anyio.sleep(0.2)
            assert not heard["other"].is_set()

    anyio.run(run)
    assert THOUGHTS not in talk(running.url, tools_of, "legacy")


def test_search_keeps_its_meaning_in_a_session_that_adds_libraries(running):
    async def enable(client):
        enabled = read_text_answer(await client.call_tool("enable_toolset", {"toolset": "ingest"}))
        listed = {tool.name: tool for tool in (await client.list_tools()).tools}
        report = (await client.call_tool("libraries_search", {"query": "setup"})).structured_content
        return enabled, listed, report, await client.call_tool("search", {"query": "setup"})

    enabled, listed, report, answer = talk(running.url, enable, "legacy", **{"X-MCP-Toolsets": "essential"})
    assert {"libraries_search", "search"} <= {*enabled.switched_on, "search"} & listed.keys()
    assert ("library" in listed["libraries_search"].input_schema["properties"], "results" in report) == (True, True)
    assert ("symbol" in listed["search"].input_schema["properties"], answer.structured_content) == (True, None)


def test_toolset_call_without_session_explains_the_start_options(running):
    async def enable(client):
        enabled = await client.call_tool("enable_toolset", {"toolset": "thinking"})
        return enabled.content[0].text, await tools_of(client)

    refused, outcome = talk(running.url, enable)
    assert (refused.startswith("error ACCESS_DENIED: "), THOUGHTS in outcome) == (True, False)
    header = re.search(r"X-MCP-Toolsets: ([\w,-]+)' in", refused)[1]
    assert THOUGHTS in talk(running.url, tools_of, **{"X-MCP-Toolsets": header})


@pytest.mark.parametrize("session", ["made-up", "0" * 32, "x" * 4000])
def test_session_id_that_the_server_did_not_issue_begins_no_session(running, session):
    headers = {"Mcp-Session-Id": session}

    async def enable(client):
        answer = await client.call_tool("enable_toolset", {"toolset": "thinking"})
        return answer.content[0].text, await tools_of(client)

    refused, listed = talk(running.url, enable, **headers)
    assert (refused.startswith("error ACCESS_DENIED: "), THOUGHTS in listed) == (True, False)
    assert THOUGHTS not in talk(running.url, tools_of, **headers)
    named = {**headers, "X-MCP-Toolsets": "essential"}
    assert talk(running.url, tools_of, **named) == ESSENTIAL
    assert LIST in talk(running.url, tools_of, **headers)  # another client's choice is not this one's
    session_header = {"Mcp_Session_Id": session, "MCP_Protocol_Version": HANDSHAKE}
    assert running.post({"jsonrpc": "2.0", "id": 2, "method": "tools/list"}, **session_header)[0] == 404


@pytest.mark.parametrize("era", ["legacy", "modern"])
@pytest.mark.parametrize("by", ["header", "address"])
def test_unknown_toolset_is_rejected_with_the_available_ones(running, era, by):
    headers = {"X_MCP_Toolsets": "essential,nonsense"} if by == "header" else {}
    if era == "modern":
        headers |= {"MCP_Protocol_Version": "2026-07-28", "MCP_Method": "server/discover"}
    path = running.path
    running.path = path if by == "header" else f"{path}?toolsets=essential,nonsense"
    try:
        status, said, body = running.post(DISCOVER if era == "modern" else HELLO, **headers)
    finally:
        running.path = path
    assert (status, said["content-type"], "mcp-session-id" in said) == (400, "application/json", False)
    message = json.loads(body)["error"]["message"]
    assert all(name in message for name in ("'nonsense'", "essential", "default", "all", "X-MCP-Toolsets"))


def test_toolsets_of_first_request_apply_to_the_session(running):
    begun = running.post(HELLO, X_MCP_Toolsets=" essential , ")
    session = {"Mcp_Session_Id": begun[1]["mcp-session-id"], "MCP_Protocol_Version": HANDSHAKE}
    running.post({"jsonrpc": "2.0", "method": "notifications/initialized"}, **session)
    list_request = {"jsonrpc": "2.0", "id": 2, "method": "tools/list"}
    assert _listed(running.post(list_request, **session)) == ESSENTIAL
    assert _listed(running.post(list_request, **session, X_MCP_Toolsets="dolt")) == ESSENTIAL
    assert running.request("DELETE", **session)[0] == 200
    assert running.post(list_request, **session)[0] == 404
    begun = running.post(HELLO, X_MCP_Toolsets=" ")
    session = {"Mcp_Session_Id": begun[1]["mcp-session-id"], "MCP_Protocol_Version": HANDSHAKE}
    assert LIST in _listed(running.post(list_request, **session))


def _listed(answer):
    _, _, body = answer
    (line,) = (line for line in body.decode().splitlines() if line.startswith("data: {"))
    return {tool["name"] for tool in json.loads(line.removeprefix("data: "))["result"]["tools"]}


def test_toolset_choice_of_client_is_limited_by_the_start_options(template, tmp_path, monkeypatch):
    project = terminal.copied(template, tmp_path, monkeypatch)
    with reached(project, "--read-only", "--exclude-tools", "dolt_status") as server:
        outcome = talk(server.url, tools_of, "legacy", **{"X-MCP-Toolsets": "all"})
    assert {"search", "read", "grep", "enable_toolset"} <= outcome
    assert not {"remember", "forget", "dolt_commit", "dolt_status", "status", "get_branch_status"} & outcome


# -- who may


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({}, 200),
        ({"Host": "localhost:{port}"}, 200),
        ({"Host": "localhost"}, 421),
        ({"Host": "localhost:1"}, 421),
        ({"Host": "localhost.:{port}"}, 421),
        ({"Host": "127.0.0.1.:{port}"}, 421),
        ({"Host": "127.0.0.1:{port}.evil.example"}, 421),
        ({"Host": "localhost:{port}@evil.example"}, 421),
        ({"Host": "2130706433:{port}"}, 421),
        ({"Host": "[::1]:{port}"}, 421),
        ({"Host": "[::ffff:127.0.0.1]:{port}"}, 421),
        ({"Host": "0.0.0.0:{port}"}, 421),
        ({"Host": "evil.example:{port}"}, 421),
        ({"Host": "localhost.evil.example"}, 421),
        ({"Host": ""}, 421),
        ({"Origin": "http://localhost:6274"}, 403),
        ({"Origin": "http://127.0.0.1"}, 403),
        ({"Origin": "http://127.0.0.1:{port}"}, 200),
        ({"Origin": "http://127.0.0.1.:{port}"}, 403),
        ({"Origin": ""}, 403),
        ({"Sec-Fetch-Site": "cross-site"}, 403),
        ({"Sec-Fetch-Site": "same-site"}, 403),
        ({"Sec-Fetch-Site": "none"}, 200),
        ({"Origin": "https://evil.example"}, 403),
        ({"Origin": "http://localhost.evil.example"}, 403),
        ({"Origin": "null"}, 403),
    ],
)
@pytest.mark.parametrize("era", ["legacy", "modern"])
@pytest.mark.sample(18)
def test_server_rejects_foreign_origins_and_rebound_host_names(running, headers, status, era):
    given = {name: value.format(port=running.port) for name, value in headers.items()}
    if era == "modern":
        given["MCP_Protocol_Version"] = "2026-07-28"
        assert running.post(DISCOVER, MCP_Method="server/discover", **given)[0] == status
    else:
        assert running.post(HELLO, **given)[0] == status


@pytest.mark.parametrize("space", ["", "  ", " \t"])
def test_header_values_ignore_surrounding_spaces(running, space):
    given = {"MCP_Method": "server/discover", "MCP_Protocol_Version": "2026-07-28", "Host": f"localhost:{running.port}"}
    assert running.post(DISCOVER, **{name: f"{space}{value}{space}" for name, value in given.items()})[0] == 200


DISCOVER = {
    "jsonrpc": "2.0",
    "id": 1,
    "method": "server/discover",
    "params": {
        "_meta": {
            "io.modelcontextprotocol/protocolVersion": "2026-07-28",
            "io.modelcontextprotocol/clientInfo": {"name": "t", "version": "1"},
            "io.modelcontextprotocol/clientCapabilities": {},
        }
    },
}


@pytest.fixture(scope="module")
def guarded(template, tmp_path_factory):
    with pytest.MonkeyPatch.context() as patch:
        folder = tmp_path_factory.mktemp("guarded")
        project = terminal.copied(template, folder, patch)
        with reached(project, "--token-env", "SECRET_OF_OURS", env=TOKEN) as server:
            yield server


@pytest.mark.parametrize(
    "said", [None, "", "Bearer", "Bearer ", "Bearer correct", "Bearer correct horse!", "Basic correct horse", "ünïcode"]
)
@pytest.mark.parametrize("method", ["POST", "GET", "DELETE"])
@pytest.mark.sample(8)
def test_request_without_valid_token_is_unauthorized(guarded, said, method):
    headers = {} if said is None else {"Authorization": said.encode().decode("latin-1")}
    status, response, body = guarded.request(method, json.dumps(HELLO).encode(), **headers)
    assert (status, response["www-authenticate"][:6]) == (401, "Bearer")
    assert b"vmrag" not in body


@pytest.mark.parametrize("mode", ["legacy", "auto"])
def test_request_with_token_is_answered(guarded, mode):
    assert talk(guarded.url, collections, mode, Authorization="bearer correct horse")[1]["total_count"] == 1


def test_token_does_not_replace_the_check_of_the_origin(guarded):
    assert guarded.post(HELLO, Authorization="Bearer correct horse", Origin="https://evil.example")[0] == 403


def test_allowed_origin_can_post_and_other_origins_are_rejected(project):
    named = {"Origin": "http://localhost:6274", "Sec-Fetch-Site": "cross-site"}
    asks = {"Access-Control-Request-Method": "POST", "Access-Control-Request-Headers": "content-type,authorization"}
    with reached(project, "--allow-origin", "http://localhost:6274", env={"VMRAG_MCP_TOKEN": "abc"}) as server:
        status, response, _ = server.request("OPTIONS", **named, **asks)
        assert (status, response["access-control-allow-origin"]) == (200, "http://localhost:6274")
        assert server.post(HELLO, **named)[0] == 401  # the variable of the token needs no option
        status, response, _ = server.post(HELLO, **named, Authorization="Bearer abc")
        assert (status, response["access-control-allow-origin"]) == (200, "http://localhost:6274")
        for other in ("http://localhost:6275", "https://localhost:6274", "http://localhost:6274.evil.example", "null"):
            given = {"Origin": other, "Authorization": "Bearer abc"}
            assert server.post(HELLO, **given)[0] == 403
            assert server.request("OPTIONS", **given, **asks)[0] == 403
        assert server.post(HELLO)[0] == 401
        assert server.post(HELLO, Authorization="Bearer abc")[0] == 200
        assert "abc" not in server.process.said


@pytest.mark.parametrize(
    "origin", ["*", "null", "localhost:6274", "http://localhost:6274/", "https://*.example.org", "http://a@b"]
)
@pytest.mark.sample(1)
def test_allow_origin_rejects_invalid_origins(project, origin):
    result = run_to_end(project.top, "--http", "0", "--allow-origin", origin, "--json")
    assert result.returncode == 2
    assert b"--allow-origin http://localhost:6274" in result.stderr


def test_server_on_all_addresses_accepts_any_host_name_with_the_token(project):
    with reached(project, "--allow-remote", at="0.0.0.0:0", env={"VMRAG_MCP_TOKEN": "abc"}) as server:
        assert server.post(HELLO, Host="kb.example")[0] == 401
        assert server.post(HELLO, Host="kb.example", Authorization="Bearer abc")[0] == 200
        given = {"Authorization": "Bearer abc", "Origin": "http://kb.example"}
        assert server.post(HELLO, Host="kb.example", **given)[0] == 403


# -- starting and stopping


def test_port_in_use_ends_the_start_with_a_hint(project):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        result = run_to_end(project.top, "--http", str(taken.getsockname()[1]), "--json")
    assert result.returncode == 3
    error = json.loads(result.stderr[result.stderr.index(b"{") :])["error"]
    assert (error["code"], "--http 0" in error["hint"]) == ("BUSY", True)


@pytest.mark.parametrize(("number", "code"), [(signal.SIGTERM, 0), (signal.SIGINT, 130)])
def test_server_ignores_end_of_input_and_stops_on_signals(project, number, code):
    with reached(project) as server, socket.create_connection((server.host, server.port)) as idle:
        server.process.popen.stdin.close()
        time.sleep(0.3)
        status, headers, _ = server.post(HELLO)
        assert status == 200
        idle.sendall(
            f"GET /mcp HTTP/1.1\r\nHost: localhost:{server.port}\r\nAccept: text/event-stream\r\n"
            f"Mcp-Session-Id: {headers['mcp-session-id']}\r\n\r\n".encode()
        )
        assert idle.recv(12) == b"HTTP/1.1 200"
        server.process.popen.send_signal(number)
        assert server.process.gone(within=3) == code


def test_server_stops_during_a_call(project):
    """Clone a repository whose knowledge is on a server that never answers."""
    with socket.create_server(("127.0.0.1", 0)) as silent:
        project.git("remote", "add", "origin", f"http://127.0.0.1:{silent.getsockname()[1]}/kb.git")
        shutil.rmtree(project.shared)
        with reached(project) as server, ThreadPoolExecutor() as pool:
            call = pool.submit(talk, server.url, collections)
            with silent.accept()[0]:
                server.process.popen.send_signal(signal.SIGTERM)
                assert server.process.gone(within=3) == 0
            assert call.exception(PATIENCE) is not None


@pytest.mark.parametrize("address", ["nobody.invalid:0", f"{'x' * 70}.example:0"])
@pytest.mark.sample(1)
def test_http_on_unusable_address_is_a_usage_error(project, address):
    assert run_to_end(project.top, "--http", address, "--allow-remote", env={"VMRAG_MCP_TOKEN": "a"}).returncode == 2


def test_server_in_the_home_directory_starts_and_reports_the_reason(tmp_path, project):
    with reached(project, env={"CLAUDE_PROJECT_DIR": "/"}) as server:
        assert talk(server.url, collections)[1]["error"] == "GIT_REPO_NOT_FOUND"
