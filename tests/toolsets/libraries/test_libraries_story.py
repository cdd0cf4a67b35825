"""An agent keeps files and pages in a library over stdio; its person works on two branches."""

from __future__ import annotations

from typing import Any

import pytest

from tests.support import notes
from tests.support.agent import Call, run_story
from tests.support.terminal import Project
from tests.support.websites import website

pytestmark = pytest.mark.hooks("off")

template, project = notes.template, notes.project

GUIDE = "# Guide\n\nOwls sleep in hollow trees.\n\nThey hunt at night.\n"


async def found(call: Call, query: str) -> list[str]:
    return [result["content"] for result in (await call("search", query=query, library="handbook"))["results"]]


def test_library_belongs_to_its_branch_and_is_merged_resolved_and_found(project: Project):
    guide = project.write("docs/guide.md", GUIDE)
    project.git("add", "-A")
    project.git("commit", "-q", "-m", "guide")
    project.git("branch", "plain")

    async def keep(call: Call, message: str) -> None:
        assert (await call("dolt_commit", message=message))["success"]
        project.git("commit", "-q", "-a", "-m", message)

    async def taken(call: Call, text: str) -> dict[str, Any]:
        guide.write_text(text)
        return await call("ingest_file", path="docs/guide.md", library="handbook")

    async def story(call: Call) -> None:
        with website() as site:
            site.pages["/bats"] = (200, {"Content-Type": "text/html"}, b"<title>Bats</title><p>Bats hang in caves.")
            page = await call("ingest_url", url=site.url("/bats"), library="handbook")
        first = await taken(call, GUIDE)
        assert [page["status"], first["status"]] == ["indexed", "indexed"]
        assert await found(call, "owls hollow trees") != []
        await keep(call, "guide taken in")

        project.git("switch", "-q", "plain")
        assert await found(call, "owls hollow trees") == []
        assert (await call("list_libraries"))["libraries"] == []
        assert (await call("get_document", doc_id=first["doc_id"]))["error"] == "DOCUMENT_NOT_FOUND"
        same = await call("ingest_file", path="docs/guide.md", library="handbook")
        assert (same["status"], same["doc_id"]) == ("indexed", first["doc_id"]), "both branches have the same document"
        await keep(call, "guide taken in here, too")
        merged = await call("merge_branch", source="main")
        assert (merged["success"], merged["conflicts"]) == (True, [])
        assert (await found(call, "bats caves"))[0] == "Bats hang in caves."
        project.git("commit", "-q", "-a", "-m", "merged")

        changed = await taken(call, GUIDE.replace("at night", "at dusk"))
        assert (changed["status"], changed["doc_id"]) == ("replaced", first["doc_id"])
        await keep(call, "dusk")
        project.git("switch", "-q", "main")
        assert (await taken(call, GUIDE.replace("at night", "at dawn")))["status"] == "replaced"
        await keep(call, "dawn")
        conflict = await call("merge_branch", source="plain")
        assert conflict["error"] == "MERGE_CONFLICT"
        assert [document["doc_id"] for document in conflict["details"]["conflicts"]] == [first["doc_id"]]
        assert [document["fields"] for document in conflict["details"]["conflicts"]] == [["content"]], (
            "what it was made of is none"
        )
        decided = await call("resolve_conflicts", table="documents", strategy="theirs", commit=True)
        assert (decided["resolved"], decided["remaining"]) == (1, 0)
        assert (await call("dolt_status"))["link"]["state"] == "in_sync"
        [hit, *_] = await found(call, "when do owls hunt")
        assert "They hunt at dusk." in hit
        whole = await call("get_document", doc_id=first["doc_id"])
        assert whole["content"] == GUIDE.replace("at night", "at dusk")
        assert (await call("delete_document", doc_id=page["doc_id"]))["status"] == "deleted"
        assert "Bats hang in caves." not in await found(call, "bats caves")

    project.git("config", "vmrag.ingest.allow-private-urls", "127.0.0.1")
    run_story(project, story, toolsets="default,ingest")
