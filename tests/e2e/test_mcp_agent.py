"""Calls of an agent over stdio while a user switches branches, commits, merges and rebases in the
same repository.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import anyio
import anyio.to_thread
import pytest
from mcp.client import Client
from mcp.client.stdio import StdioServerParameters

from tests.support import terminal
from tests.support.long import LONG
from tests.support.terminal import Project
from vmrag_link.engines.doltlite.engine import DoltliteEngine

pytestmark = pytest.mark.hooks("off")

template, project = terminal.template, terminal.project

ROUNDS = 3 if LONG else 2
SERVER = (sys.executable, "-P", "-m", "vmrag_link.cli.main", "mcp")


@dataclass(frozen=True)
class Answer:
    """`before` and `after` are HEAD's commit, the pinned revision and how often HEAD has moved,
    around the call.
    """

    before: tuple[str, str, int]
    after: tuple[str, str, int]
    kb: dict[str, Any]
    texts: dict[str, str]
    warned: bool


def moment(project: Project) -> tuple[str, str, int]:
    moves = (project.top / ".git" / "logs" / "HEAD").stat().st_size
    try:
        pinned = project.pinned
    except (FileNotFoundError, ValueError):  # git removes a file, and then writes the other one bit by bit
        pinned = ""
    return project.git("rev-parse", "HEAD"), pinned, moves


def busy_person(project: Project, reads_an_answer: Callable[[], None]) -> None:
    """Type commands in another terminal, and sometimes wait for answers of the agent.

    Ends on `main`.
    """
    git = project.git
    for round_ in range(ROUNDS):
        git("switch", "-q", "feature")
        project.record(f"feature {round_}", **{f"feature{round_}": f"written on feature in round {round_}"})
        reads_an_answer()
        git("switch", "-q", "main")
        project.record(f"main {round_}", **{f"main{round_}": f"written on main in round {round_}"})
        git("switch", "-qc", f"topic{round_}", "HEAD~1")
        project.record(f"topic {round_}", **{f"topic{round_}": f"written on a topic in round {round_}"})
        reads_an_answer()
        git("rebase", "-q", "main")
        git("switch", "-q", "main")
        git("merge", "-q", "--no-edit", f"topic{round_}")
        git("merge", "-q", "--no-edit", "feature")
        reads_an_answer()
        git("checkout", "-q", "--detach", "first")
        git("switch", "-q", "main")
        git("reset", "-q", "--hard", "HEAD~1")
        git("reset", "-q", "--hard", "ORIG_HEAD")


async def asked(client: Client, project: Project) -> Answer:
    before = await anyio.to_thread.run_sync(moment, project)
    result = await client.call_tool("chroma_get_documents", {"collection_name": "handbook", "limit": 1000})
    after = await anyio.to_thread.run_sync(moment, project)
    assert not result.is_error, result
    structured_content = result.structured_content
    texts = {document["id"]: document["document"] for document in structured_content["documents"]}
    assert structured_content["total_matching"] == len(texts)
    return Answer(
        before,
        after,
        structured_content["kb"],
        texts,
        any(warning["code"] == "NOT_IN_SYNC" for warning in structured_content.get("warnings", ())),
    )


async def searched(client: Client) -> dict[str, Any]:
    query = {"collection_name": "handbook", "query_texts": ["written on feature"], "n_results": 50}
    result = await client.call_tool("chroma_query_documents", query)
    assert not result.is_error, result
    return result.structured_content


@pytest.mark.parametrize("era", [pytest.param("legacy", marks=pytest.mark.long), "auto"])
def test_every_answer_is_right_for_the_branch_at_that_moment(project: Project, era: str):
    answers: list[Answer] = []
    searches: list[dict[str, Any]] = []

    def read_an_answer() -> None:
        seen, until = len(answers), time.monotonic() + 60
        while len(answers) < seen + 2 and time.monotonic() < until:  # the first call may have started before
            time.sleep(0.01)

    async def person(finished: anyio.Event) -> None:
        await anyio.to_thread.run_sync(busy_person, project, read_an_answer)
        finished.set()

    async def agent() -> None:
        server = StdioServerParameters(command=SERVER[0], args=list(SERVER[1:]), cwd=project.top, env=dict(os.environ))
        async with Client(server, mode=era) as client, anyio.create_task_group() as group:
            result = anyio.Event()
            group.start_soon(person, result)
            while not result.is_set():
                answers.append(await asked(client, project))
                searches.append(await searched(client))
                await anyio.sleep(0.05)  # like an agent that also thinks; the server need not answer all the time
            answers.append(await asked(client, project))

    anyio.run(agent)
    check(project, answers, searches)


def check(project: Project, answers: list[Answer], searches: list[dict[str, Any]]) -> None:
    engine = DoltliteEngine.open(project.shared / "kb")
    documents_by_revision: dict[str, dict[str, str]] = {}

    def documents(revision: str) -> dict[str, str]:
        if revision not in documents_by_revision:
            documents_by_revision[revision] = {
                document.doc_id: document.content for document in engine.read_documents(revision, collection="handbook")
            }
        return documents_by_revision[revision]

    for answer in answers:
        pinned_documents = documents(answer.kb["commit"])
        if answer.kb["dirty"]:
            assert pinned_documents.items() <= answer.texts.items()  # a document that is written and not committed yet
        else:
            assert answer.texts == pinned_documents
        assert answer.kb["in_sync"] != answer.warned
        # Nothing moved in between, and git or another command was not in the middle of
        # an operation that the answer names.
        if answer.before == answer.after and answer.kb["in_sync"] and not answer.kb["dirty"]:
            assert answer.kb["commit"] == answer.before[1], answer
    for search in searches:
        pinned_documents = documents(search["kb"]["commit"])
        for match in search["results"][0]["matches"]:
            assert search["kb"]["dirty"] or match["document"] in pinned_documents[match["metadata"]["source_id"]]
    quiet = [answer for answer in answers if answer.before == answer.after and answer.kb["in_sync"]]
    assert len({answer.kb["commit"] for answer in quiet}) >= 3 * ROUNDS  # an answer that the person waited for, each
    last = answers[-1]
    assert last.kb["in_sync"]
    assert f"written on feature in round {ROUNDS - 1}" in last.texts.values()
    engine.close()
