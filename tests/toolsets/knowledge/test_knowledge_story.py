"""An agent logs issues over stdio; its person works on two branches."""

from __future__ import annotations

import pytest

from tests.support import notes
from tests.support.agent import Call, run_story
from tests.support.terminal import Project

pytestmark = pytest.mark.hooks("off")

template, project = notes.template, notes.project

CAUSE = "# Lost rows\n\nTwo writers filled the cache.\n\nNobody held the lock.\n\nThe log is empty.\n\nSeen since release 4.\n"


async def found(call: Call, query: str) -> list[str]:
    return [result["log_id"] for result in (await call("search_issues", query=query))["results"]]


def test_logs_belong_to_their_branch_and_merge_by_line(project: Project):
    project.git("branch", "side")

    async def keep(call: Call, message: str) -> None:
        assert (await call("dolt_commit", message=message))["success"]
        project.git("commit", "-q", "-a", "-m", message)

    async def logged(call: Call, text: str) -> str:
        answer = await call("add_issue_log", project_id="birds", issue_number=7, content=text)
        assert answer["success"], answer
        return str(answer["log_id"])

    async def story(call: Call) -> None:
        log_id = await logged(call, CAUSE)
        doc = await call("add_knowledge_doc", tool_name="git", title="t", content="One branch each.", category="api")
        assert await found(call, "cache writers") == [log_id]
        await keep(call, "logged")

        project.git("switch", "-q", "side")
        assert await found(call, "cache writers") == []
        assert (await call("get_issue_log", log_id=log_id))["error"] == "DOCUMENT_NOT_FOUND"
        assert (await call("get_document", doc_id=doc["doc_id"]))["error"] == "DOCUMENT_NOT_FOUND"
        assert (
            await logged(call, CAUSE.replace("Two writers", "Three writers").replace("release 4", "release 3"))
            == log_id
        )
        await keep(call, "logged here, too")

        conflict = await call("merge_branch", source="main")
        assert conflict["error"] == "MERGE_CONFLICT"
        [document] = conflict["details"]["conflicts"]
        assert (document["doc_id"], document["fields"], document["title"]) == (log_id, ["content"], "Lost rows")
        [hunk, *_] = document["hunks"]
        assert hunk["ours"].startswith("Three writers"), "the heading, which is the same, is no conflict"
        assert hunk["theirs"].startswith("Two writers")
        listed = await call("resolve_conflicts", table="knowledge_docs", strategy="ours")
        assert listed["error"] == "NO_SELECTION"
        decided = await call("resolve_conflicts", table="issue_logs", strategy="theirs", commit=True)
        assert (decided["resolved"], decided["remaining"]) == (1, 0)
        assert (await call("get_issue_log", log_id=log_id))["content"] == CAUSE
        assert await found(call, "cache writers") == [log_id]
        assert (await call("search_knowledge", query="branch"))["results"][0]["doc_id"] == doc["doc_id"]
        project.git("commit", "-q", "-a", "-m", "merged")

        # A line that one side alone has changed since is that side's.
        await call("update_issue_log", log_id=log_id, content=CAUSE.replace("release 4", "release 2"))
        await keep(call, "since release 2")
        project.git("switch", "-q", "main")
        await call("update_issue_log", log_id=log_id, content=CAUSE.replace("filled", "emptied"), type="resolution")
        await keep(call, "emptied")
        assert (await call("merge_branch", source="side"))["success"]
        merged = await call("get_issue_log", log_id=log_id)
        assert merged["content"] == CAUSE.replace("release 4", "release 2").replace("filled", "emptied")
        assert merged["log_type"] == "resolution"
        diff = await call("get_diff", from_ref="side", to_ref="HEAD", table="issue_logs")
        assert [row["title"] for row in diff["documents"]] == ["Lost rows"]
        gone = await call("delete_document", doc_id=log_id)
        assert (gone["status"], gone["table"]) == ("deleted", "issue_logs")
        assert await found(call, "cache writers") == []
        assert (await call("dolt_status"))["link"]["state"] == "in_sync"

    run_story(project, story, toolsets="default,knowledge")
