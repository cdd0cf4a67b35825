"""Other people's programs on our server: MCP's inspector and its conformance suite, from npm, on a
Node from PyPI.
"""

from __future__ import annotations

import contextlib
import itertools
import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.contract.reading import TOOLS, broken, examples
from tests.support import contract_world, npm
from tests.support.compounding import CONFIG
from tests.support.contract_states import State
from tests.support.contract_world import World
from tests.support.templates import build_once
from vmrag_mcp.registry import load_catalogue

templates, world = contract_world.templates, contract_world.world

pytestmark = pytest.mark.long

PACKAGES = ("@modelcontextprotocol/inspector@2.12.0", "@modelcontextprotocol/conformance@0.2.0-alpha.12")
EXPECTED = Path(__file__).with_name("conformance.yaml")
SERVER = (sys.executable, "-P", "-m", "vmrag_link.cli.main", "mcp", "--toolsets", "all", "--http", "0")


class Peers:
    """The npm programs."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def run(self, program: str, *arguments: str) -> subprocess.CompletedProcess[str]:
        argv = [npm.node(), self._folder / "node_modules" / ".bin" / program, *arguments]
        return subprocess.run(argv, cwd=self._folder, capture_output=True, text=True, check=False, timeout=120)

    def inspect(self, url: str, method: str, *arguments: str, code: int = 0) -> Any:
        result = self.run("mcp-inspector", "--cli", url, "--transport", "http", "--method", method, *arguments)
        assert result.returncode == code, result
        return json.loads(result.stdout)

    def call(self, url: str, tool: str, arguments: dict[str, Any], code: int = 0) -> dict[str, Any]:
        given = [
            f"{name}={argument if isinstance(argument, str) else json.dumps(argument)}"
            for name, argument in arguments.items()
        ]
        pairs = ["--tool-arg", *given] if given else []
        result = self.inspect(url, "tools/call", "--tool-name", tool, *pairs, code=code)["structuredContent"]
        assert result["success"] == (code == 0)
        return result


@contextlib.contextmanager
def serving(top: Path) -> Iterator[str]:
    """The URL of a server with every tool."""
    process = subprocess.Popen(SERVER, cwd=top, env=dict(os.environ), stderr=subprocess.PIPE, text=True)
    try:
        said = process.stderr.readline()
        url = re.search(r"http://\S+", said)
        assert url, said
        yield url[0]
    finally:
        process.terminate()
        process.communicate()


def installed(folder: Path) -> None:
    (folder / "package.json").write_text("{}")
    npm.install(folder, "--ignore-scripts", *PACKAGES)


@pytest.fixture(scope="session")
def peers(tmp_path_factory: pytest.TempPathFactory) -> Peers:
    return Peers(build_once(tmp_path_factory, "peers", installed))


@pytest.fixture
def url(world: World) -> Iterator[str]:
    with serving(world.state("notes").top) as server_url:
        yield server_url


def test_conformance_suite_finds_nothing_but_its_own_fixtures_missing(peers, url):
    result = peers.run("conformance", "server", "--url", url, "--suite", "all", "--expected-failures", str(EXPECTED))
    assert result.returncode == 0, result.stdout
    assert "Baseline check passed" in result.stdout


def test_inspector_lists_every_tool_and_accepts_all_schemas(peers, url):
    listed = peers.inspect(url, "tools/list", "--strict")["tools"]
    assert [tool["name"] for tool in listed] == list(load_catalogue())


def test_inspector_reads_resources_and_prompts(peers, url):
    uris = [resource["uri"] for resource in peers.inspect(url, "resources/list")["resources"]]
    assert "vmrag://collections/notes" in uris
    result = peers.inspect(url, "resources/read", "--uri", "vmrag://documents/notes/a")
    assert result["contents"][0]["text"] == "alpha rivers"
    assert peers.inspect(url, "prompts/get", "--prompt-name", "prepare_knowledge_commit")["messages"]


def test_inspector_gets_an_error_as_a_failed_call(peers, url):
    refused = peers.call(url, "chroma_get_collection_info", {"collection_name": "none"}, code=5)
    assert refused["code"] == "COLLECTION_NOT_FOUND"


@pytest.mark.timeout(900)
def test_inspector_calls_every_tool(peers, world):
    """Tools that only read have one server for each state."""
    reading, changing = [], []
    for name, listed in load_catalogue().items():
        (reading if listed.reads else changing).append(examples(name)[0])
    for given, group in itertools.groupby(
        sorted(reading, key=lambda example: example.given), lambda example: example.given
    ):
        state = world.state(given)
        with serving(state.top) as url:
            for tool in group:
                assert called(peers, url, state, tool.tool, tool.call) == []
    for tool in changing:
        state = world.state(tool.given)
        call = world.call(tool.call, state)
        if "remote_url" in call:  # the inspector cannot ask its person
            state.git("config", "--add", "vmrag.trustedRemote", call["remote_url"])
        with serving(state.top) as url:
            assert called(peers, url, state, tool.tool, call) == []


def called(peers: Peers, url: str, state: State, tool: str, arguments: dict[str, Any]) -> list[str]:
    """Return the problems of a tool's answer; activate a project if the tool needs one."""
    if "compounding" in TOOLS[tool]["toolsets"] and tool != "activate_project":
        peers.call(url, "activate_project", {"config_path": str(state.top / CONFIG), "branch_name": "main"})
    return broken(tool, peers.call(url, tool, arguments))
