"""An agent works with a project's documents over stdio; its person edits them on two branches."""

from __future__ import annotations

import os
import sys
from collections.abc import Awaitable, Callable
from typing import Any

import anyio
import pytest
from mcp.client import Client
from mcp.client.stdio import StdioServerParameters

from tests.support import compounding, notes
from tests.support.compounding import DOCS
from tests.support.repos import ON
from tests.support.terminal import Project

pytestmark = pytest.mark.hooks("off")

template, project = notes.template, notes.project

SERVER = (sys.executable, "-P", "-m", "vmrag_link.cli.main", "mcp", "--toolsets", "default,compounding")

Call = Callable[..., Awaitable[dict[str, Any]]]


def told(project: Project, body: Callable[[Call], Awaitable[None]]) -> None:
    async def story() -> None:
        server = StdioServerParameters(command=SERVER[0], args=list(SERVER[1:]), cwd=project.top, env=dict(os.environ))
        async with Client(server) as client:

            async def call(name: str, **arguments: Any) -> dict[str, Any]:
                structured_content: dict[str, Any] = (await client.call_tool(name, arguments)).structured_content
                return structured_content

            await body(call)

    anyio.run(story)


def test_files_and_rows_are_merged_alike_and_answers_follow_the_branch(project: Project) -> None:
    config = compounding.write(project.top)
    tower = project.top / DOCS / "problems" / "tower.md"

    async def kept(call: Call, message: str) -> None:
        assert (await call("dolt_commit", message=message))["success"]
        project.git("add", "-A")
        project.git("commit", "-q", "-m", message, env=ON)

    async def found(call: Call, query: str) -> dict[str, Any]:
        await anyio.sleep(0.5)  # the folder is checked twice a second
        answer = await call("semantic_search", query=query, min_relevance_score=0)
        return {result["path"].rpartition("/")[2]: result for result in answer["results"]} | {"kb": answer["kb"]}

    async def story(call: Call) -> None:
        assert (await call("rag_query", query="x"))["error"] == "PROJECT_NOT_ACTIVATED"
        active = await call("activate_project", config_path=str(config), branch_name="main")
        assert (active["total_docs"], active["indexed"]) == (5, 5)
        lines = "".join(f"\nThe tower has a window of number {number}.\n" for number in range(1, 9))
        tower.write_text(f"---\ntitle: The tower\n---\n# The tower\n{lines}")
        assert "tower.md" in await found(call, "windows of the tower")
        await kept(call, "the tower")

        project.git("switch", "-q", "-c", "storm", env=ON)
        tower.write_text(tower.read_text().replace("window of number 8", "shutter against the storm"))
        (project.top / DOCS / "insights" / "wind.md").write_text("Wind turns the ferries around.\n")
        assert "wind.md" in await found(call, "wind")
        await call("update_promotion_level", document_path="problems/tower.md", promotion_level="critical")
        await kept(call, "storm")
        answer = await call("rag_query", query="what is against the storm", include_critical=True)
        assert "shutter against the storm. [" in answer["answer"]

        project.git("switch", "-q", "main", env=ON)
        tower.write_text(tower.read_text().replace("window of number 1.", "door of oak."))
        assert "wind.md" not in await found(call, "wind")
        await kept(call, "door")
        project.git("merge", "-q", "-m", "both", "storm", env=ON)
        both = await found(call, "the door and the shutter of the tower")
        assert {"wind.md", "tower.md"} <= both.keys()
        assert both["tower.md"]["promotion_level"] == "critical"
        assert (both["kb"]["dirty"], both["kb"]["in_sync"]) == (False, True), (
            "merged rows are what the merged files are"
        )
        assert "door of oak" in tower.read_text()
        assert "shutter" in tower.read_text()
        types = {doc_type["name"]: doc_type["doc_count"] for doc_type in (await call("list_doc_types"))["doc_types"]}
        assert (types["problem"], types["insight"]) == (2, 2)

    told(project, story)
