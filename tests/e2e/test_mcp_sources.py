"""A real client, a server that goes on running, and files that are edited meanwhile."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import anyio
import pytest
from mcp.client import Client
from mcp.client.stdio import StdioServerParameters

from tests.support.mcp_process import PROGRAM, serve
from tests.support.repos import Repo, isolate, make_repo

ASK = {"query_texts": ["how to roll back a deployment"], "n_results": 1}


@pytest.fixture
def repo(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Repo:
    """Nothing is set up in it."""
    isolate(monkeypatch, tmp_path / "home")
    repo = make_repo(tmp_path / "project")
    repo.write("docs/deploy.md", "# Deploying\n\nTo roll back a deployment, run the script.\n")
    repo.git("add", "-A")
    repo.git("commit", "-qm", "begin")
    return repo


def told(answer: dict[str, Any]) -> tuple[str, str, int]:
    """The best match's last line, how its file differs, and how many files do."""
    [match] = answer["results"][0]["matches"]
    return (
        match["document"].strip().splitlines()[-1],
        match.get("uncommitted", ""),
        answer["kb"]["sources"].get("uncommitted_count", 0),
    )


def test_every_answer_is_of_the_files_as_they_are_then(repo):
    async def run() -> list[tuple[str, str, int]]:
        parameters = StdioServerParameters(
            command=PROGRAM[0], args=[*PROGRAM[1:]], cwd=str(repo.top), env=dict(os.environ)
        )
        async with Client(parameters) as client:

            async def answer() -> tuple[str, str, int]:
                return told((await client.call_tool("chroma_query_documents", ASK)).structured_content)

            result = [await answer()]
            repo.write("docs/deploy.md", "# Deploying\n\nTo roll back a deployment, ask Ada.\n")
            result.append(await answer())
            repo.git("commit", "-qam", "Ada", "--no-verify")
            result.append(await answer())
            repo.git("checkout", "-q", "-b", "other", "HEAD~1")
            result.append(await answer())
            return result

    assert anyio.run(run) == [
        ("To roll back a deployment, run the script.", "", 0),
        ("To roll back a deployment, ask Ada.", "modified", 1),
        ("To roll back a deployment, ask Ada.", "", 0),
        ("To roll back a deployment, run the script.", "", 0),
    ]


def test_server_without_setup_reads_files_on_first_question_and_hints_once(repo):
    with serve(repo.top) as server:
        assert "chroma_query_documents" in server.tools()
        assert server.call("dolt_status")["error"] == "NOT_INITIALIZED"
        assert not (repo.top / ".git/vmrag/sources").exists()
        first, second = (server.call("chroma_query_documents", **ASK) for _ in range(2))
        assert "vmrag init" in next(
            warning["message"] for warning in first["warnings"] if warning["code"] == "NOT_SET_UP"
        )
        assert "warnings" not in second
    assert repo.git("status", "--porcelain", "--ignored") == ""
