"""`vmrag-mcp` over its standard streams, as clients start it: its output, and when it exits."""

from __future__ import annotations

import contextlib
import json
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import anyio
import pytest
from mcp.client import Client
from mcp.client.stdio import StdioServerParameters

from tests.support import terminal
from tests.support.long import LONG
from tests.support.mcp_process import PATIENCE, PROGRAM, run_to_end, serve
from tests.support.repos import isolate

template, project = terminal.template, terminal.project

LIST = "chroma_list_collections"


@pytest.fixture
def silent():
    """A server that takes connections and never answers."""
    with socket.create_server(("127.0.0.1", 0)) as listening:
        listening.settimeout(PATIENCE)
        yield listening


@pytest.fixture
def waiting(project, silent):
    """Clone a repository whose knowledge is on that server: each call waits for it."""
    project.git("remote", "add", "origin", f"http://127.0.0.1:{silent.getsockname()[1]}/kb.git")
    shutil.rmtree(project.shared)
    return project


@contextlib.contextmanager
def fetching(silent):
    """Run a call while a program talks to that server; at the end no process may hold the
    connection.
    """
    connection, _ = silent.accept()
    with connection:
        connection.settimeout(PATIENCE)
        yield
        with contextlib.suppress(ConnectionResetError):
            while connection.recv(4096):
                pass


def patient(condition, seconds: float = 10) -> bool:
    until = time.monotonic() + seconds
    while not condition() and time.monotonic() < until:
        time.sleep(0.02)
    return bool(condition())


# -- clients of both eras


@pytest.mark.parametrize("mode", [pytest.param("legacy", marks=pytest.mark.long), "auto"])  # HTTP has both
def test_official_client_lists_and_calls_tools_in_both_eras(project, mode):
    async def run():
        parameters = StdioServerParameters(
            command=PROGRAM[0], args=[*PROGRAM[1:]], cwd=str(project.top), env=dict(os.environ)
        )
        async with Client(parameters, mode=mode) as client:
            tools = await client.list_tools()
            return {tool.name for tool in tools.tools}, await client.call_tool(LIST, {})

    names, result = anyio.run(run)
    assert LIST in names
    assert [collection["name"] for collection in result.structured_content["collections"]] == ["handbook"]
    assert json.loads(result.content[0].text) == result.structured_content


def text_of(server, tool, **arguments):
    result = server.answer(server.start(tool, **arguments))["result"]
    assert "structuredContent" not in result
    return result["content"][0]["text"]


@pytest.mark.long
def test_client_that_cannot_ask_gets_a_start_option_that_works(project):
    with serve(project.top, "--default-toolsets", "essential") as server:
        before = server.tools()
        answer = text_of(server, "enable_toolset", toolset="ingest")
        assert {"libraries_search", "ingest_file"} <= server.tools() - before
        assert "off: ingest_url, delete_document: " in answer
        assert server.call("libraries_search", query="rest")["success"]
        assert "libraries_search" not in text_of(server, "search", query="rest")
        option = re.search(r"'(--toolsets=[\w,-]+)'", answer, re.MULTILINE)[1]
    with serve(project.top, "--default-toolsets", "essential", option) as server:
        assert {"ingest_url", "delete_document", "search", "search_documents"} <= server.tools()


def test_requests_that_are_piped_in_are_answered_although_the_input_ends(project):
    hello = {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "t", "version": "1"}}
    requests = [
        {"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": hello},
        {"jsonrpc": "2.0", "id": 2, "method": "tools/list"},
    ]
    result = run_to_end(project.top, stdin=b"".join(json.dumps(request).encode() + b"\n" for request in requests))
    assert result.returncode == 0
    answers = [json.loads(line) for line in result.stdout.splitlines()]
    assert [answer["id"] for answer in answers] == [1, 2]
    assert all("result" in answer for answer in answers)


HELLO = {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "t", "version": "1"}}
PIPED = [
    {"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": HELLO},
    {"jsonrpc": "2.0", "method": "notifications/initialized"},
    {"jsonrpc": "2.0", "id": 2, "method": "tools/list"},
    {"jsonrpc": "2.0", "id": 3, "method": "tools/call", "params": {"name": LIST}},
    {"jsonrpc": "2.0", "id": 4, "method": "ping"},
    {"jsonrpc": "2.0", "id": 5, "method": "resources/list"},
]


@pytest.mark.parametrize("count", range(1, len(PIPED) + 1))
@pytest.mark.sample(2)
def test_input_that_ends_after_any_message_gets_each_answer_once(project, count):
    """Calls of tools may take too long for that."""
    messages = PIPED[:count]
    result = run_to_end(
        project.top, stdin=b"".join(json.dumps(message).encode() + b"\n" for message in messages) + b'{"'
    )
    assert result.returncode == 0
    answers = [json.loads(line) for line in result.stdout.splitlines()]
    numbers = {message["id"] for message in messages if "id" in message} | {None}
    answered = [answer["id"] for answer in answers]
    assert len(answered) == len({*answered})
    assert numbers - {3, 5} <= {*answered} <= numbers
    assert all("result" in answer for answer in answers if answer["id"])


@pytest.mark.long
def test_each_request_during_sdk_import_gets_one_answer(project):
    with serve(project.top) as server:
        methods = ["tools/list", "resources/list", "ping", "prompts/list", "resources/templates/list", "tools/list"]
        numbers = [server.start(LIST), *map(server.request, methods)]
        assert {server.answer(number)["id"] for number in numbers} == {*numbers}
        time.sleep(1)
        assert server.ask("ping") == {}
        assert server.lines.empty()


def test_early_client_is_asked_for_roots_and_notified_of_new_tools(project):
    with serve(project.top, "--toolsets", "toolsets", begun=False) as server:
        server.begin(elicitation={})
        assert "dolt_push" not in server.tools()
        number = server.start("enable_toolset", toolset="dolt")
        question = server.next()
        assert question["method"] == "elicitation/create"
        [field] = question["params"]["requestedSchema"]["properties"]
        server.send({"jsonrpc": "2.0", "id": question["id"], "result": {"action": "accept", "content": {field: True}}})
        assert server.next()["method"] == "notifications/tools/list_changed"
        assert not server.answer(number)["result"]["isError"]
        assert "dolt_push" in server.tools()


HEAVY = (
    "mcp",
    "mcp_types",
    "pydantic",
    "vmrag_mcp.session",
    "vmrag_link.workspace",
    "vmrag_link.ops",
    "vmrag_mcp.tools",
    "chromadb",
    "numpy",
    "git",
)


def imported(server) -> set[str]:
    return {line.rpartition("|")[2].strip() for line in server.said.splitlines() if line.startswith("import time:")}


def test_modules_for_calls_are_imported_after_the_list_of_tools(project):
    with serve(project.top, env={"PYTHONPROFILEIMPORTTIME": "1"}) as server:
        assert imported(server).isdisjoint(HEAVY)
        server.tools()
        assert patient(lambda: {"numpy", "vmrag_link.embedding.static"} <= imported(server), 30)
        assert "git" not in imported(server)


# -- standard output


def test_output_of_children_does_not_reach_standard_output(project, tmp_path):
    (tmp_path / "site").mkdir()
    (tmp_path / "site" / "sitecustomize.py").write_text(
        "import atexit, os, subprocess, sys, threading, time\n"
        "def loud():\n"
        "    while True:\n"
        "        if 'input' in [thread.name for thread in threading.enumerate()]:\n"
        "            print('printed', flush=True)\n"
        "            os.write(1, b'written\\n')\n"
        "            subprocess.run(['echo', 'by a child'], check=False)\n"
        "            subprocess.run('cat; echo read-to-the-end', shell=True, check=False)\n"
        "            return\n"
        "        time.sleep(0.005)\n"
        "if 'vmrag_link.cli.mcp' in sys.orig_argv:\n"
        "    threading.Thread(target=loud, daemon=True).start()\n"
    )
    with serve(project.top, env={"PYTHONPATH": str(tmp_path / "site")}) as server:
        assert patient(lambda: "read-to-the-end" in server.said)
        assert server.call(LIST)["success"]
        assert {"printed", "written", "by a child"} <= set(server.said.splitlines())
        server.popen.stdin.close()
        assert server.gone(within=1.5) == 0
        assert server.lines.get(timeout=5) is None


# -- leaving


def test_server_exits_within_a_second_of_end_of_input(waiting, silent):
    with serve(waiting.top) as server:
        server.start(LIST)
        with fetching(silent):
            server.popen.stdin.close()
            assert server.gone(within=1.0) == 0


def test_client_that_reads_nothing_does_not_keep_it(project):
    """A pipe takes 64 kB; the answers are longer."""
    text = "unknown/" + "x" * 100_000
    with serve(project.top) as server:
        server.answer(server.request("unknown"))
        server.paused.set()
        for _ in range(4):
            server.request(text)
        server.popen.stdin.close()
        assert server.gone(within=1.5) == 0


def test_client_that_reads_no_early_answer_does_not_keep_it(project):
    with serve(project.top, "--toolsets", "all") as server:
        server.paused.set()
        for _ in range(4):
            server.request("tools/list")
        server.popen.stdin.close()
        assert server.gone(within=1.5) == 0


def test_signal_ends_it_while_the_sdk_is_loaded(project):
    with serve(project.top, env={"PYTHONPROFILEIMPORTTIME": "1"}) as server:
        server.start(LIST)
        assert patient(lambda: "anyio" in imported(server))
        server.popen.send_signal(signal.SIGTERM)
        assert server.gone(within=1.0) == 0


@pytest.mark.parametrize(("number", "code"), [(signal.SIGTERM, 0), (signal.SIGINT, 130), (signal.SIGHUP, 0)])
@pytest.mark.sample(1)
def test_signals_end_it_cleanly_with_a_call_running(waiting, silent, number, code):
    with serve(waiting.top) as server:
        server.start(LIST)
        with fetching(silent):
            server.popen.send_signal(number)
            assert server.gone(within=1.0) == code


def test_when_its_parent_dies_and_others_hold_the_pipe_it_leaves(project):
    reading, writing = os.pipe()
    program = f"import subprocess, time\nsubprocess.Popen({[*PROGRAM]!r}, stdin={reading})\ntime.sleep(60)"
    with subprocess.Popen(
        [sys.executable, "-c", program], cwd=project.top, stdout=subprocess.PIPE, pass_fds=[reading]
    ) as parent:
        try:
            os.write(writing, b'{"jsonrpc": "2.0", "id": 1, "method": "ping"}\n')
            assert json.loads(parent.stdout.readline())["id"] == 1
            parent.kill()
            assert parent.stdout.read() == b"", "which ends when nobody holds it any more"
        finally:
            parent.kill()
            os.close(reading)
            os.close(writing)


# -- many calls


def test_concurrent_calls_are_answered_and_the_idle_server_exits_at_once(project):
    with serve(project.top) as server:
        numbers = [server.start(LIST) for _ in range(16)]
        for number in reversed(numbers):
            assert server.answer(number)["result"]["structuredContent"]["total_count"] == 1
        server.popen.stdin.close()
        assert server.gone(within=2) == 0


def test_cancelled_call_is_not_answered_and_the_server_continues(waiting, silent):
    with serve(waiting.top) as server:
        number = server.start(LIST)
        connection, _ = silent.accept()
        server.notify("notifications/cancelled", {"requestId": number, "reason": "enough"})
        assert server.ask("ping") == {}
        assert LIST in server.tools()
        connection.close()
        assert number not in server._answers


@pytest.mark.long  # over HTTP as much comes in with every run
def test_document_of_five_megabytes_comes_in_and_goes_out(project):
    project.write(".vmrag.yaml", "embedding.model: hash\nchunking.size: 100000\n")
    text = "Ünïcode and plain.\n" * (5_000_000 // 21)
    with serve(project.top) as server:
        assert server.call("chroma_create_collection", collection_name="long")["success"]
        added = server.call("chroma_add_documents", collection_name="long", documents=[text], ids=["long.md"])
        assert added["success"], added
        answer = server.call("chroma_get_documents", collection_name="long", ids=["long.md"])
        assert text in json.dumps(answer, ensure_ascii=False).replace("\\n", "\n")


# -- the repository


def test_server_in_the_home_directory_reports_the_reason_in_each_call(project, tmp_path, monkeypatch):
    isolate(monkeypatch, tmp_path / "someone")
    home = tmp_path / "someone"
    subprocess.run(["git", "init", "-q", str(home)], check=True)
    before = sorted(home.rglob("*"))
    for directory in (home, Path("/")) if LONG else (home,):  # `/` is tried over HTTP
        with served_from(directory, tmp_path) as server:
            assert LIST in server.tools()
            envelope = server.call(LIST)
            assert envelope["error"] == "GIT_REPO_NOT_FOUND"
            assert any("--repo" in suggestion for suggestion in envelope["suggestions"])
            assert "--repo" in server.said
    assert sorted(home.rglob("*")) == before


@contextlib.contextmanager
def served_from(directory, tmp_path):
    """`/` cannot hold files of vmrag."""
    with serve(tmp_path, env={"CLAUDE_PROJECT_DIR": str(directory)}) as server:
        yield server


def test_server_ignores_repository_in_home_unless_repo_option_selects_it(tmp_path, monkeypatch):
    isolate(monkeypatch, tmp_path / "someone")
    subprocess.run(["git", "init", "-q", str(tmp_path / "someone")], check=True)
    (tmp_path / "someone" / "notes").mkdir()
    with serve(tmp_path / "someone" / "notes") as server:
        assert server.call(LIST)["error"] == "GIT_REPO_NOT_FOUND"
    with serve(tmp_path / "someone", "--repo", ".") as server:  # an explicit option selects it
        assert server.call(LIST)["error"] == "NOT_INITIALIZED"


def test_server_finds_repository_that_was_created_after_its_start(tmp_path, monkeypatch):
    isolate(monkeypatch, tmp_path / "home")
    (tmp_path / "later").mkdir()
    with serve(tmp_path / "later") as server:
        assert server.call(LIST)["error"] == "GIT_REPO_NOT_FOUND"
        subprocess.run(["git", "init", "-q", str(tmp_path / "later")], check=True)
        assert server.call(LIST)["error"] == "NOT_INITIALIZED"


def test_roots_of_the_client_select_repository_and_its_tools(project, tmp_path):
    (tmp_path / "nowhere").mkdir()
    project.write(".vmrag.yaml", "embedding.model: hash\nmcp.read_only: true\n")
    with serve(tmp_path / "nowhere", begun=False) as server:
        server.begin(roots={})
        number = server.start("chroma_create_collection", collection_name="new")
        roots_request = server.next()
        assert roots_request["method"] == "roots/list"
        roots = [{"uri": (tmp_path / "nowhere").as_uri()}, {"uri": (project.top / "docs").as_uri()}]
        server.send({"jsonrpc": "2.0", "id": roots_request["id"], "result": {"roots": roots}})
        assert server.next()["method"] == "notifications/tools/list_changed"
        assert server.answer(number)["result"]["structuredContent"]["error"] == "ACCESS_DENIED"
        assert "chroma_create_collection" not in server.tools()
        assert server.call("dolt_status")["kb"]["worktree"] == str(project.top)  # asked once
        assert server.said == ""  # clients show what is printed to standard error as an error


# -- settings


def test_server_with_unreadable_settings_starts_and_calls_name_the_line(project):
    project.write(".vmrag.yaml", "embedding.model: hash\nmcp:\n  read_onyl: true\n")
    with serve(project.top) as server:
        assert LIST in server.tools()
        assert "line 3" in server.said
        assert server.call(LIST)["error"] == "CONFIG_INVALID"
        assert server.call("chroma_create_collection", collection_name="new")["error"] == "CONFIG_INVALID"
        project.write(".vmrag.yaml", "embedding.model: hash\nmcp:\n  read_only: true\n")
        assert server.call("chroma_create_collection", collection_name="new")["error"] == "ACCESS_DENIED"
        assert server.call(LIST)["success"]


# -- others at work


def test_two_servers_on_two_worktrees_answer_from_their_own_knowledge(project, tmp_path):
    project.git("worktree", "add", "-q", str(tmp_path / "other"), "feature")
    elsewhere = {"GIT_DIR": str(tmp_path / "nowhere"), "GIT_INDEX_FILE": "x", "GIT_WORK_TREE": str(tmp_path)}
    with serve(project.top, env=elsewhere) as server, serve(tmp_path / "other") as other_server:
        for _ in range(3):
            numbers = server.start("dolt_status"), other_server.start("dolt_status")
            result = [one.answer(number) for one, number in zip((server, other_server), numbers, strict=True)]
            kbs = [answer["result"]["structuredContent"]["kb"] for answer in result]
            assert [kb["worktree"] for kb in kbs] == [str(project.top), str(tmp_path / "other")]
            assert len({kb["commit"] for kb in kbs}) == 2
            assert all(kb["in_sync"] for kb in kbs)


def test_server_and_the_command_line_write_at_once(project):
    names = [f"made-{number}" for number in range(5)]
    with serve(project.top) as server:
        numbers = [server.start("chroma_create_collection", collection_name=name) for name in names]
        for number in range(3):
            project.start("add", "-", "--collection", "handbook", "--id", f"{number}.md", stdin="text")
        for number in numbers:
            assert server.answer(number)["result"]["structuredContent"]["success"]
        result = {collection["name"] for collection in server.call(LIST, limit=0)["collections"]}
    assert result == {"handbook", *names}
    assert {f"{number}.md" for number in range(3)} <= project.marks().keys()
