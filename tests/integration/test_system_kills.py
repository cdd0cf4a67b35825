"""SIGKILL at each step of what the tools of thoughts, learnings and a project's documents write:
what belongs together is stored or not, and the same call made once more ends where an unharmed one
does.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from tests.support import compounding, notes
from tests.support.cli import call_patched_tool
from tests.support.compare import assert_whole
from tests.support.compounding import DOCS
from tests.support.contract_states import DATA_FOLDER
from tests.support.mcp import Tools
from tests.support.repos import ENGINE_CLASS, ON
from tests.support.terminal import Project, opened
from vmrag_link.models import WorkingSet, parse_metadata

pytestmark = pytest.mark.hooks("off")

template, project = notes.template, notes.project

KILLED = -signal.SIGKILL

BEFORE = f"from {ENGINE_CLASS} as m; m.write = die"
AMONG = """\
from vmrag_link.engines import records as m
def row(document, real=m.document_row, left=[{}]):
    left[0] -= 1
    return real(document) if left[0] >= 0 else die()
m.document_row = row"""
"""Dies in the transaction, after so many rows of documents."""

AFTER = {
    "before the index is whole": "from vmrag_link.index import draft as m; m.seal_view = die",
    "before the index follows": "from vmrag_link.workspace.reader import Reader as m; m.update_copy = die",
}
STEPS = ("among its rows", "before its rows", *AFTER)

Documents = dict[tuple[str, str], dict[str, Any]]
"""Metadata by collection and id, with the text under `text`."""


def documents(project: Project) -> Documents:
    with opened(project) as ws:
        result = [*ws.engine.read_documents(ws.locate_documents())]
    return {document.key: parse_metadata(document) | {"text": document.content} for document in result}


@dataclass
class Call:
    """A tool and its arguments.

    `rows`: the number of documents that it stores; `is_complete`: returns whether all of them
    exist, from the documents by collection and id.
    """

    tool: str
    arguments: dict[str, Any]
    rows: int
    is_complete: Callable[[Documents], bool]
    change: Callable[[Project], object] = field(default=lambda _: None)
    """Change to the working tree before the call."""


def of(documents: Documents, collection: str) -> dict[str, dict[str, Any]]:
    return {doc_id: value for (name, doc_id), value in documents.items() if name == collection}


PARSER = {"file_path": "src/parser.py", "before_content": "a\n", "after_content": "b\n"}


def linked(documents: Documents) -> bool:
    """Return whether the chat exists, and it and both code chunks name each other."""
    chats, code = of(documents, "chat_history_v1"), of(documents, "codebase_v1")
    [new] = [name for name, chat in chats.items() if chat["text"].startswith("Rename")]
    return chats[new]["related_code_chunks"] == ["one", "two"] and all(
        value["related_chat_ids"] == [new] for value in code.values()
    )


def promoted(documents: Documents) -> bool:
    """Return whether the learning exists and its chat is marked."""
    [(learning, _)] = of(documents, "derived_learnings_v1").items()
    [chat] = [value for value in of(documents, "chat_history_v1").values() if value["text"].startswith("Fix")]
    return (chat["status"], chat["derived_learning_id"]) == ("promoted", learning)


def rewritten(project: Project) -> None:
    """Three files of the project are changed, new and gone."""
    project.write(f"{DOCS}/codebase/box.md", "# The box\n\nIt is made of steel.\n")
    project.write(f"{DOCS}/problems/mud.md", "# Mud\n\nMud filled the harbour.\n")
    (project.top / DOCS / "insights" / "ferry.md").unlink()


def mirrored(documents: Documents) -> bool:
    rows = of(documents, "compounding_rivers")
    steel = "steel" in rows["codebase/box.md"]["text"]
    return steel and "problems/mud.md" in rows and "insights/ferry.md" not in rows


THOUGHT = {"thought": "Look at the rivers.", "thought_number": 1, "total_thoughts": 1, "session_id": "plan"}
RUN = {"xml_path": "out/pytest-after.xml", "before_xml": "out/pytest-before.xml"}


def calls(chat: str) -> list[Call]:
    rename = {"prompt_summary": "Rename it", "response_summary": "Done", "file_changes": [PARSER]}
    learning = {"description": "Empty files are legal.", "source_chat_id": chat}
    return [
        Call(
            "chroma_sequential_thinking",
            THOUGHT,
            1,
            lambda documents: "thought_plan_1" in of(documents, "thinking_sessions_v1"),
        ),
        Call("chroma_log_chat", rename, 3, linked),
        Call("learning_promote", learning, 2, promoted),
        Call("learning_log_test_results", RUN, 3, lambda documents: len(of(documents, "test_results_v1")) == 3),
        Call("semantic_search", {"query": "mud"}, 2, mirrored, rewritten),
        Call(
            "delete_documents", {"project_name": "rivers"}, 0, lambda documents: not of(documents, "compounding_rivers")
        ),
    ]


@pytest.fixture
def config(project: Project) -> Path:
    """Configure the project `rivers`, whose rows are committed."""
    path = compounding.write(project.top)
    Tools(project.top)("activate_project", config_path=str(path), branch_name="main")
    project.vmrag("commit", "-m", "rivers")
    project.git("add", "-A")
    project.git("commit", "-q", "-m", "rivers")
    return path


@pytest.mark.parametrize("step", STEPS)
@pytest.mark.sample(1)
def test_killed_call_is_atomic_and_can_be_repeated(project, config, tmp_path, step):
    for path in DATA_FOLDER.glob("pytest-*.xml"):
        project.write(f"out/{path.name}", path.read_text())
    tools = Tools(project.top)
    code = [{"file_path": "src/parser.py"}] * 2
    tools("learning_setup_collections")
    tools(
        "chroma_add_documents", collection_name="codebase_v1", ids=["one", "two"], documents=["1", "2"], metadatas=code
    )
    chat = tools("chroma_log_chat", prompt_summary="Fix it", response_summary="Done")["chat_id"]
    tools("activate_project", config_path=str(config), branch_name="main")
    for call in calls(chat):
        call.change(project)
        before = documents(project)
        among = AMONG.format(call.rows - 1) if call.rows else BEFORE
        body = {"among its rows": among, "before its rows": BEFORE}.get(step) or AFTER[step]
        result = call_patched_tool(project, body, call.tool, call.arguments, config=config)
        assert result.code == KILLED, result
        if step in AFTER:
            assert call.is_complete(documents(project)), call.tool
        else:
            assert documents(project) == before, call.tool
            tools(call.tool, **call.arguments)
            assert call.is_complete(documents(project)), call.tool
    assert_whole(project, tmp_path / "fresh")


PROMOTING = {
    "before the file is exchanged": "from pathlib import Path as m; m.replace = die",
    "before the row follows": BEFORE,
    "before the index follows": AFTER["before the index follows"],
}


@pytest.mark.parametrize("step", PROMOTING)
def test_killed_promotion_leaves_complete_file_that_next_call_reads(project, config, tmp_path, step):
    written = step != "before the file is exchanged"
    path = project.top / DOCS / "problems" / "flood.md"
    before = path.read_text()
    after = before.replace("winter]\n", "winter]\npromotion_level: critical\n")
    arguments = {"document_path": "problems/flood.md", "promotion_level": "critical"}
    assert (
        call_patched_tool(project, PROMOTING[step], "update_promotion_level", arguments, config=config).code == KILLED
    )
    assert path.read_text() == (after if written else before)
    tools = Tools(project.top)
    tools("activate_project", config_path=str(config), branch_name="main")
    level = of(documents(project), "compounding_rivers")["problems/flood.md"]["promotion_level"]
    assert level == ("critical" if written else "standard")
    leftover = [file for file in path.parent.iterdir() if file != path]
    assert len(leftover) == (not written)
    for path_left in leftover:
        os.utime(path_left, (0, 0))
    again = tools("update_promotion_level", **arguments)
    assert again["previous_level"] == level
    assert [*path.parent.iterdir()] == [path], "a promotion removes what a killed one left"
    assert path.read_text() == after
    assert_whole(project, tmp_path / "fresh")


DELETING = {
    "before the second branch": "from vmrag_link.sync.context import SyncContext as m; m.without_copy = die",
    "before the first branch": BEFORE,
    "before the branch without code moves": f"from {ENGINE_CLASS} as m; m.move_branch = die",
}


@pytest.mark.parametrize("step", DELETING)
@pytest.mark.sample(1)
def test_killed_deletion_of_a_project_is_complete_or_absent_per_branch(project, config, tmp_path, step):
    for branch in ("shelf", "topic"):
        project.git("switch", "-q", "-c", branch, env=ON)
        project.record(branch, **{branch: "a question"})
    project.git("switch", "-q", "main", env=ON)
    project.git("branch", "-q", "-D", "shelf")  # its branch of the knowledge base stays

    def held() -> dict[str, int]:
        with opened(project) as ws:
            places = {"main": ws.locate_documents()} | {name: WorkingSet(name) for name in ("shelf", "topic")}
            count = {
                name: sum(document.collection == "compounding_rivers" for document in ws.engine.read_documents(at))
                for name, at in places.items()
            }
            dirty = {branch.name for branch in ws.engine.list_branches() if branch.dirty}
        assert "shelf" not in dirty, "nobody would ever commit it"
        return count

    project.git("rm", "-q", "-r", DOCS)
    arguments = {"project_name": "rivers"}
    assert call_patched_tool(project, DELETING[step], "delete_documents", arguments, config=config).code == KILLED
    assert set(held().values()) <= {0, 5}
    assert sum(held().values()) == (15 if step == "before the first branch" else 10)
    result = call_patched_tool(project, "", "delete_documents", arguments, config=config)
    assert result.code == 0, result
    assert held() == {"main": 0, "shelf": 0, "topic": 0}
    assert_whole(project, tmp_path / "fresh")
