"""`dolt_status`, `dolt_branches`: position of the knowledge base, and comparison of remote, index
and pin.
"""

from __future__ import annotations

import time
from typing import Any

import pytest

from tests.support import people, terminal
from tests.support.engines import AUTHOR, DATE, document
from tests.support.mcp import Tools, warned
from tests.support.pace import slack
from tests.support.people import World
from tests.support.terminal import Project
from tests.support.travel import free_port, git_server, silent_server
from vmrag_link.engines.base import Write
from vmrag_link.engines.doltlite.engine import DoltliteEngine
from vmrag_link.transport import probe
from vmrag_mcp.tools import history

pytestmark = pytest.mark.hooks("off")

template, project = terminal.template, terminal.project
shared, world = people.shared, people.world

NOTHING = {"added": 0, "modified": 0, "deleted": 0, "total": 0}


@pytest.fixture(autouse=True)
def _nobody_was_asked() -> None:
    probe._answers.clear()


@pytest.fixture
def tools(project: Project) -> Tools:
    return Tools(project.top)


@pytest.fixture
def ada(world: World) -> Tools:
    """Return tools of a user who knows the hub's content: in this copy the hub is at another
    path.
    """
    world.ada.vmrag("fetch")
    return Tools(world.ada.top)


def branch(tools: Tools, name: str, **arguments: Any) -> dict[str, Any]:
    return next(branch for branch in tools("dolt_branches", **arguments)["branches"] if branch["name"] == name)


# -- dolt_status -----------------------------------------------------------------------------------


def test_clean_branch_without_a_remote(project: Project, tools: Tools) -> None:
    result = tools("dolt_status")
    head = tools("dolt_commits")["commits"][0]
    shown = {name: head[name] for name in ("hash", "short_hash", "message", "author", "timestamp")}
    assert (result["branch"], result["commit"], head["hash"]) == ("main", shown, project.pinned)
    assert result["remote"] is None
    assert result["local_changes"] == {"has_changes": False, "summary": NOTHING}
    assert result["sync_state"] == {"ahead": 0, "behind": 0, "diverged": False}
    assert (result["merge_in_progress"], result["conflicts"]) == (False, [])
    assert (result["index"]["status"], result["index"]["pending_collections"]) == ("synced", [])
    assert (result["index"]["chroma"]["state"], result["index"]["chroma"]["revision"]) == ("off", project.pinned)
    assert result["link"] == {"link_file": ".dolt-version", "pinned_commit": project.pinned, "state": "in_sync"}
    assert not warned(result)


def test_first_of_many_uncommitted_documents_are_named(project: Project, tools: Tools, monkeypatch) -> None:
    monkeypatch.setattr(history, "MAX_LISTED_DOCUMENTS", 2)
    for name in ("a.md", "b.md", "c.md"):
        project.put(name, "New.")
    answer = tools("dolt_status", verbose=True)
    assert answer["local_changes"]["documents"] == ["a.md", "b.md"]
    assert answer["local_changes"]["summary"]["total"] == 3
    assert "offset=2" in answer["warnings"][0]["message"]
    assert [document["doc_id"] for document in tools("get_diff", offset=2)["documents"]] == ["c.md"]


def test_uncommitted_documents_are_counted_and_listed_on_request(project: Project, tools: Tools) -> None:
    project.put("rest.md", "Never.")
    project.put("new.md", "New.")
    project.drop("setup.md")
    local = tools("dolt_status", verbose=True)["local_changes"]
    assert local["summary"] == {"added": 1, "modified": 1, "deleted": 1, "total": 3}
    assert local["documents"] == ["new.md", "rest.md", "setup.md"]
    assert local["changes"][0] == {
        "collection": "handbook",
        "doc_id": "new.md",
        "change_type": "added",
        "title": "new.md",
    }
    assert tools("dolt_status")["local_changes"].keys() == {"has_changes", "summary"}
    project.vmrag("commit", "-m", "all")
    assert tools("dolt_status", verbose=True)["local_changes"] == {
        "has_changes": False,
        "summary": NOTHING,
        "documents": [],
        "changes": [],
    }


def test_revision_that_no_branch_was_made_for(project: Project, tools: Tools) -> None:
    project.git("switch", "-q", "-c", "fresh")
    result = tools("dolt_status")
    assert result["branch"] is None
    assert result["commit"]["hash"] == project.pinned
    project.git("switch", "-q", "--detach", "first")
    result = tools("dolt_status")
    assert (result["branch"], result["commit"]["hash"]) == (None, project.pinned)
    assert result["link"]["state"] == "in_sync"


def test_how_knowledge_and_pin_compare(project: Project, tools: Tools) -> None:
    pin = project.top / ".dolt-version"
    text, revision = pin.read_text(), project.pinned
    project.vmrag("status")

    def state() -> str:
        return tools("dolt_status")["link"]["state"]

    engine = DoltliteEngine.open(project.shared / "kb")
    head = engine.find_branch("main").head
    engine.write("main", Write(put_documents=[document("d", collection="handbook")]), expected=head)
    ahead = engine.commit("main", message="past us", author=AUTHOR, date=DATE, expected=head)
    assert state() == "kb_ahead"
    engine.move_branch("main", revision, expected=ahead)
    engine.close()
    assert state() == "in_sync"
    pin.write_text(text.replace(revision, "0" * 40))
    assert state() == "kb_behind"
    pin.write_text("{broken")
    result = tools("dolt_status")
    assert result["link"] == {"link_file": ".dolt-version", "pinned_commit": None, "state": "no_link"}
    assert result["kb"]["in_sync"] is False


def test_index_that_did_not_follow_is_pending(project: Project, tools: Tools, monkeypatch: pytest.MonkeyPatch) -> None:
    project.put("new.md", "New.")
    assert tools("dolt_status")["index"]["status"] == "synced"
    (copy,) = (path for path in (project.shared / "uncommitted").iterdir() if path.is_dir())
    copy.with_name(f"{copy.name}.writing").touch()  # a writer was killed
    index = tools("dolt_status")["index"]
    assert (index["status"], index["pending_collections"]) == ("pending", ["handbook"])


def test_status_lists_conflicts_of_an_open_merge(project: Project, tools: Tools) -> None:
    project.record("ours", rest="Ours." + "x" * 600)
    project.git("switch", "-q", "feature")
    project.vmrag("merge", "main", code=1)
    result = tools("dolt_status")
    assert result["merge_in_progress"] is True
    (conflict,) = result["conflicts"]
    assert conflict.keys() == {"table", "collection", "doc_id", "title", "fields", "base", "ours", "theirs", "hunks"}
    assert (conflict["table"], conflict["collection"], conflict["doc_id"]) == ("documents", "handbook", "rest.md")
    assert "content" in conflict["fields"]
    assert conflict["ours"]["content"] == "# Rest\n\nNever rest.\n"
    assert conflict["theirs"]["content"] == ("Ours." + "x" * 600)[:500]
    assert [(hunk["line"], hunk["theirs"]) for hunk in conflict["hunks"]] == [(1, conflict["theirs"]["content"])]
    for name, arguments in {"dolt_branches": {}, "dolt_commits": {}, "get_diff": {}}.items():
        tools(name, **arguments)
    project.vmrag("merge", "--abort")
    assert tools("dolt_status")["conflicts"] == []


def test_gits_conflict_in_the_pin_is_an_open_merge(project: Project, tools: Tools) -> None:
    project.record("ours", rest="Ours.")
    tools("dolt_status")
    project.run("merge", "feature")
    result = tools("dolt_status")
    assert result["merge_in_progress"] is True
    assert [conflict["doc_id"] for conflict in result["conflicts"]] == ["rest.md"]
    assert result["link"]["state"] == "in_sync"  # git leaves our side's pin in the file


def test_document_that_one_side_removed(project: Project, tools: Tools) -> None:
    project.drop("rest.md")
    project.record("away")
    project.git("switch", "-q", "feature")
    project.vmrag("merge", "main", code=1)
    (conflict,) = tools("dolt_status")["conflicts"]
    assert conflict["fields"] == ["document"]
    assert conflict["theirs"] is None
    assert conflict["ours"]["content"] == "# Rest\n\nNever rest.\n"
    assert conflict["base"]["title"] == "Rest"


# -- the remote ------------------------------------------------------------------------------------


def test_remote_that_answers(world: World, ada: Tools) -> None:
    result = ada("dolt_status")
    assert result["remote"] == {"name": "origin", "url": str(world.hub.top), "connected": True}
    assert result["sync_state"] == {"ahead": 0, "behind": 0, "diverged": False}


@pytest.mark.hooks("on")
def test_ahead_and_behind_count_every_commit(world: World, ada: Tools) -> None:
    bob = world.join("bob")
    bob.vmrag("clone")
    world.ada.write_document("setup.md", "Ada's.")
    world.ada.git("push", "-q")
    engine = DoltliteEngine.open(bob.shared / "kb")
    if engine.find_branch("main") is None:
        engine.create_branch("main", bob.pinned)
    revision = bob.pinned
    for number in range(101):
        engine.write("main", Write(put_documents=[document(f"d{number}", collection="handbook")]), expected=revision)
        revision = engine.commit("main", message=str(number), author=AUTHOR, date=DATE, expected=revision)
    engine.close()
    bob.git("config", "branch.main.vmragBranch", "main")
    bob.vmrag("pin")
    tools = Tools(bob.top)
    assert tools("dolt_status")["sync_state"] == {"ahead": 101, "behind": 0, "diverged": False}
    bob.vmrag("fetch")
    assert tools("dolt_status")["sync_state"] == {"ahead": 101, "behind": 1, "diverged": True}
    row = branch(tools, "main")
    assert (row["ahead"], row["behind"]) == (101, 1)


def test_branch_absent_on_remote_is_ahead(world: World, ada: Tools) -> None:
    world.ada.git("switch", "-q", "-c", "topic")
    world.ada.write_document("setup.md", "New.")
    assert ada("dolt_status")["sync_state"] == {"ahead": 1, "behind": 0, "diverged": False}


def test_status_with_unreachable_remote_succeeds_with_a_warning(world: World, ada: Tools) -> None:
    url = f"http://ada:secret@127.0.0.1:{free_port()}/code.git"
    world.ada.git("remote", "set-url", "origin", url)
    result = ada("dolt_status")
    assert result["remote"] == {"name": "origin", "url": url.replace("ada:secret@", ""), "connected": False}
    assert warned(result) == {"REMOTE_UNREACHABLE"}
    assert "secret" not in str(result)


def test_silent_remote_is_not_waited_for_twice(world: World, ada: Tools, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(probe, "PROBE_SECONDS", 0.6)
    with silent_server() as port:
        world.ada.git("remote", "set-url", "origin", f"http://127.0.0.1:{port}/code.git")
        started = time.monotonic()
        assert ada("dolt_status")["remote"]["connected"] is False
        assert time.monotonic() - started < 3 * slack()
    world.ada.git("remote", "set-url", "origin", str(world.hub.top))
    assert ada("dolt_status")["remote"]["connected"] is True  # another URL is another place
    world.hub.top.rename(world.top / "away")
    assert ada("dolt_status")["remote"]["connected"] is True  # for a minute the remote is not contacted again
    monkeypatch.setattr(probe, "REMEMBER_SECONDS", 0)
    assert ada("dolt_status")["remote"]["connected"] is False


def test_untrusted_remote_is_not_contacted(world: World, ada: Tools) -> None:
    world.ada.write(".vmrag.yaml", people.SETTINGS + f"remote: http://127.0.0.1:{free_port()}/kb\n")
    pin = world.ada.top / ".dolt-version"
    pin.write_text(pin.read_text().replace('"git:"', f'"http://127.0.0.1:{free_port()}/kb"'))
    result = ada("dolt_status")
    assert result["remote"]["connected"] is False
    assert warned(result) == {"REMOTE_UNREACHABLE"}
    assert "STALE_REFS" in warned(ada("dolt_branches"))


def test_inaccessible_remote_is_reported(world: World, ada: Tools) -> None:
    with git_server(world.top, user="ada", password="secret") as server:
        world.ada.git("remote", "set-url", "origin", f"{server.url}/code.git")
        result = ada("dolt_status")
    assert result["remote"]["connected"] is False
    assert warned(result) == {"REMOTE_UNREACHABLE"}


def test_server_of_the_engine_reports_no_movement(world: World, ada: Tools) -> None:
    with silent_server() as port:
        url = f"http://127.0.0.1:{port}/kb"
        pin = world.ada.top / ".dolt-version"
        pin.write_text(pin.read_text().replace('"git:"', f'"{url}"'))
        world.ada.vmrag("remote", "--trust", url)
        assert ada("dolt_status")["remote"] == {"name": url, "url": url, "connected": True}
        assert warned(ada("dolt_branches")) == {"STALE_REFS"}
    probe._answers.clear()
    assert ada("dolt_status")["remote"]["connected"] is False


@pytest.mark.parametrize("exists", [True, False])
def test_folder_that_the_engine_reaches_itself(world: World, ada: Tools, exists: bool) -> None:
    url = f"file://{world.top}/kb.doltlite"
    if exists:
        world.ada.vmrag("push", url)
    pin = world.ada.top / ".dolt-version"
    pin.write_text(pin.read_text().replace('"git:"', f'"{url}"'))
    world.ada.vmrag("remote", "--trust", url)
    result = ada("dolt_status")
    assert result["remote"] == {"name": url, "url": url, "connected": exists}
    assert warned(ada("dolt_branches")) == (set() if exists else {"STALE_REFS"})


# -- dolt_branches ---------------------------------------------------------------------------------


def test_local_branches(project: Project, tools: Tools) -> None:
    result = tools("dolt_branches")
    assert (result["current_branch"], result["total_count"]) == ("main", 2)
    feature, main = result["branches"]
    assert main.keys() == {"name", "is_current", "is_local", "is_remote", "latest_commit"}
    assert (main["name"], main["is_current"], main["is_local"], main["is_remote"]) == ("main", True, True, False)
    assert main["latest_commit"].keys() == {"hash", "short_hash", "message", "timestamp"}
    assert main["latest_commit"]["hash"] == project.pinned
    assert (feature["name"], feature["is_current"]) == ("feature", False)
    assert tools("dolt_branches", include_local=False)["branches"] == []


def test_filter_is_a_glob_and_internal_branches_want_to_be_named(tools: Tools) -> None:
    def names(pattern: str) -> list[str]:
        return [branch["name"] for branch in tools("dolt_branches", filter=pattern)["branches"]]

    assert names("f*") == ["feature"]
    assert names("*") == ["feature", "main"]
    assert names("ma?n") == ["main"]
    assert names("main[") == []
    assert "vmrag_root" in names("vmrag*")


def test_branches_of_both_sides_are_one_list(world: World, ada: Tools) -> None:
    bob = world.join("bob")
    bob.vmrag("clone")
    bob.git("switch", "-q", "-c", "theirs")
    bob.write_document("setup.md", "Bob's.")
    bob.vmrag("push")
    result = ada("dolt_branches")
    assert [branch["name"] for branch in result["branches"]] == ["main"]
    assert warned(result) == {"STALE_REFS"}
    world.ada.vmrag("fetch")
    result = ada("dolt_branches")
    assert not warned(result)
    main, theirs = result["branches"]
    assert (main["is_local"], main["is_remote"], main["ahead"], main["behind"]) == (True, True, 0, 0)
    assert (theirs["name"], theirs["is_local"], theirs["is_remote"]) == ("theirs", False, True)
    assert "ahead" not in theirs
    assert [branch["name"] for branch in ada("dolt_branches", include_local=False)["branches"]] == ["main", "theirs"]
    world.ada.git("switch", "-q", "-c", "mine")
    world.ada.write_document("setup.md", "Mine.")
    assert "mine" not in [branch["name"] for branch in ada("dolt_branches", include_local=False)["branches"]]
    assert ada("dolt_show", commit="origin/theirs")["branches"] == ["origin/theirs"]
    assert ada("dolt_find", query="Bob's")["results"][0]["branch"] == "origin/theirs"


def test_answer_of_before_a_fetch_is_not_held_against_it(world: World, ada: Tools) -> None:
    ada("dolt_status")
    world.ada.write_document("setup.md", "New.")
    world.ada.push()
    assert not warned(ada("dolt_branches"))


def test_remote_that_does_not_answer_leaves_the_refs_as_they_are(world: World, ada: Tools) -> None:
    ada("dolt_branches")
    world.hub.top.rename(world.top / "away")
    probe._answers.clear()
    result = ada("dolt_branches")
    assert warned(result) == {"STALE_REFS"}
    assert branch(ada, "main")["is_remote"] is True
