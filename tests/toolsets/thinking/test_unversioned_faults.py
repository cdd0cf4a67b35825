"""Unversioned documents survive kills, full disks, several writers and a damaged index."""

from __future__ import annotations

import signal
import subprocess
import sys
import time

import pytest

from tests.support import unversioned
from tests.support.cli import ROOT, Running, error_of, run_patched, small_disk, start
from tests.support.long import examples
from tests.support.mcp import Tools
from tests.support.terminal import Project, opened
from tests.support.unversioned import SETTING, read_texts, think
from vmrag_link import hints
from vmrag_link.models import At
from vmrag_link.ops.stores import stores
from vmrag_link.ops.stores.stores import build_document
from vmrag_link.workspace.documents import writing
from vmrag_link.workspace.documents.writing import Planned

pytestmark = pytest.mark.hooks("off")

template, project, tools = unversioned.template, unversioned.project, unversioned.tools

THINKER = """
import sys
from pathlib import Path
from vmrag_link.toolsets.thinking import tools as similar
from vmrag_link.toolsets.thinking.think import NewThought, store_thought
from vmrag_link.progress import QUIET
from vmrag_link.workspace import Workspace

session = sys.argv[1]
for number in range(1, 1 + int(sys.argv[2])):
    ws = Workspace.open(Path.cwd(), QUIET)
    new = NewThought(f"thought {number} of {session}", number, 9, session_id=session)
    print(store_thought(ws, new).report.thought_id, flush=True)
    if number % 3 == 0:
        similar.similar_thoughts(ws, f"thought of {session}", k=3)
    ws.close()
"""
"""Writes thoughts, each acknowledged by a line, and searches now and then."""


def thinker(project: Project, session: str, number: int) -> Running:
    program = (sys.executable, "-c", THINKER)
    return start(project, session, str(number), program=program, PYTHONPATH=str(ROOT))


def found(tools: Tools, text: str, **more: str) -> list[str]:
    rows = tools("chroma_find_similar_thoughts", query=text, threshold=0, n_results=100, **more)["similar_thoughts"]
    return [row["id"] for row in rows]


def test_kill_at_any_moment_loses_nothing_that_was_acknowledged(tools, project):
    expected: set[str] = set()
    for number in range(examples(18)):
        running = thinker(project, f"s{number}", 1000)
        assert running.process.stdout
        lines = [running.process.stdout.readline() for _ in range(1 + number % 4)]
        time.sleep(0.003 * (number % 7))
        running.signal(signal.SIGKILL)
        acknowledged = {*"".join(lines).split(), *running.done().out.split()}
        assert acknowledged, "it was at work"
        kept_before = {*read_texts(project)}
        assert expected | acknowledged <= kept_before
        assert len(kept_before - expected - acknowledged) <= 1, "at most one was stored and not acknowledged yet"
        expected = kept_before
        assert {*found(tools, "thought", session_id=f"s{number}")} >= acknowledged
    with opened(project) as ws:
        assert ws.local.engine.find_damage() == ""


@pytest.mark.parametrize(
    ("step", "stored"),
    [
        ("from vmrag_link.engines.doltlite.engine import DoltliteEngine as m; m.create_branch = die", 0),
        ("from vmrag_link.engines.doltlite.engine import DoltliteEngine as m; m.write = die", 0),
        ("from vmrag_link.workspace.documents.writing import WriteResult as m; m.__new__ = die", 1),
    ],
    ids=["before the branch is made", "before anything is stored", "before it is acknowledged"],
)
def test_killed_command_has_stored_its_record_or_nothing(project, step, stored):
    command = ("learning", "log-error", "--error-type", "E", "--error-message", "m")
    assert run_patched(project, step, *command).code == -signal.SIGKILL
    assert len(read_texts(project)) == stored
    project.vmrag(*command)
    assert len(project.ask("query", "m", "--collection", "validation_evidence_v1")["results"]) == stored + 1


def test_kill_while_the_index_follows_leaves_one_that_is_made_again(tools, project):
    think(tools, "owls sleep by day", 1)
    assert found(tools, "owls") == ["thought_plan_1"]
    think(tools, "bats sleep as well", 2)
    step = "from vmrag_link.index import draft as m; m.seal_view = die"
    command = ("query", "bats", "--collection", "thinking_sessions_v1")
    assert run_patched(project, step, *command).code == -signal.SIGKILL
    assert found(tools, "bats") == ["thought_plan_2", "thought_plan_1"]


def test_move_that_is_killed_has_all_documents_and_is_made_again(tools, project):
    project.git("config", SETTING, "true")
    for number in (1, 2):
        think(tools, f"thought {number}", number)
    project.git("config", SETTING, "false")
    step = "from vmrag_link.ops.stores import relocation as m; m._plan_removing = die"
    assert run_patched(project, step, "learning", "move").code == -signal.SIGKILL
    texts = {f"thought_plan_{number}": f"thought {number}" for number in (1, 2)}
    assert read_texts(project) == texts
    assert project.ask("learning", "move")["moved"] == {"thinking_sessions_v1": 2}
    assert (read_texts(project), project.status()["reasons"]) == (texts, [])


def test_several_processes_of_several_work_trees_write_and_search_at_once(project, tmp_path):
    project.git("worktree", "add", "-q", str(tmp_path / "aside"), "-b", "aside")
    trees = (project, Project(tmp_path / "aside"))
    running = [thinker(trees[number % 2], f"s{number}", 9) for number in range(4)]
    result = [process.done() for process in running]
    assert [result.err for result in result] == [""] * 4
    assert {*"".join(result.out for result in result).split()} == {*read_texts(project)}
    assert len(read_texts(project)) == 36


def test_full_disk_rejects_new_thoughts_and_loses_nothing(tools, project):
    think(tools, "owls sleep by day", 1)
    expected = read_texts(project)
    with small_disk(project.shared / "local", kilobytes=4_000) as fill:
        fill(0)
        for number in range(2, 30):
            result, failed = tools.run(
                "chroma_sequential_thinking",
                {
                    "thought": "x" * 9000 + str(number),
                    "thought_number": number,
                    "total_thoughts": 9,
                    "session_id": "plan",
                },
            )
            if failed:
                break
            expected[result["thought_id"]] = "x" * 9000 + str(number)
        assert (failed, result["error"]) == (True, "DATABASE_ERROR"), result
        assert read_texts(project) == expected
        command = ("query", "owls", "--collection", "thinking_sessions_v1", "--json")
        assert error_of(project.run_quietly(*command))["code"] == "FILE_SYSTEM_ERROR"
        (project.shared / "local" / "filler").unlink()
        assert "thought_plan_1" in found(tools, "owls sleep")
        assert think(tools, "bats", 40)["previous_thoughts_count"] == len(expected)


def test_damaged_or_mostly_deleted_index_is_rebuilt(tools, project):
    def plan(at: At) -> Planned[None]:
        collection, new = stores.find_or_define(ws.local, at, stores.EVIDENCE)
        rows = [build_document(collection.name, f"e{number}", f"evidence {number}", {}) for number in range(230)]
        return Planned(stores.prepare_write(ws.local, [stores.CollectionPut(collection, new, rows)]), None)

    with opened(project) as ws:
        writing.write_rows(ws.local, plan, "test")
    query = {"collection_name": stores.EVIDENCE, "query_texts": ["evidence 7"], "n_results": 100}
    assert tools("chroma_query_documents", **query)["ids"][0][0] == "e7"
    damaged = [*(project.shared / "local" / "segments").glob("*/words-1.idx")]
    assert damaged
    for path in damaged:
        path.write_bytes(path.read_bytes()[:200])
    assert tools("chroma_query_documents", **query)["ids"][0][0] == "e7"
    gone = [f"e{number}" for number in range(10, 230)]
    tools("chroma_delete_documents", collection_name=stores.EVIDENCE, ids=gone)
    assert sorted(tools("chroma_query_documents", **query)["ids"][0]) == [f"e{number}" for number in range(10)]


def test_unrepairable_damage_is_found_and_has_a_way_out(project):
    record = ("learning", "log-error", "--error-type", "E", "--error-message", "m")
    project.vmrag(*record)
    file = project.shared / "local" / "kb" / "kb.doltlite"
    with file.open("r+b") as opened_file:
        opened_file.truncate(5000)
    findings = [finding for topic in project.ask("doctor", code=1)["topics"] for finding in topic["findings"]]
    [result] = [finding for finding in findings if finding["level"] == "error"]
    assert "local/kb" in result["message"]
    [_, start_over] = hints.list_alternatives(result["fix"])
    [remedy] = hints.list_commands(start_over)
    assert remedy.startswith("mv ")
    assert project.vmrag(*record, "--json", code=None).error["hint"] == result["fix"]
    subprocess.run(["sh", "-c", remedy], check=True)
    project.vmrag(*record)
    assert len(read_texts(project)) == 1
