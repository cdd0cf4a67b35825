"""Names of knowledge base commits in tools."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

import pytest

from tests.support import people, terminal
from tests.support.engines import document, store
from tests.support.mcp import Tools, warned
from tests.support.people import World
from tests.support.terminal import Project
from vmrag_link.errors import BranchMissing, RevisionMissing
from vmrag_link.models import WorkingSet
from vmrag_link.progress import Quiet
from vmrag_link.workspace import Workspace
from vmrag_link.workspace.history import revparse
from vmrag_link.workspace.history.revparse import resolve_tool_at, resolve_tool_branch_rev, resolve_tool_rev

pytestmark = pytest.mark.hooks("off")

template, project = terminal.template, terminal.project
shared, world = people.shared, people.world


@pytest.fixture
def ws(project: Project) -> Iterator[Workspace]:
    made = Workspace.open(project.top, Quiet())
    made.bring_to_pin()
    yield made
    made.close()


def test_heads_hashes_branches_and_steps_back(project: Project, ws: Workspace) -> None:
    head = project.pinned
    first = project.ask("log")["revisions"][1]["revision"]
    for name in ("HEAD", head, head[:4], head[:12], head.upper()[:12], "main", "HEAD~0", "refs/heads/main"):
        assert resolve_tool_rev(ws, name) == head, name
    for name in ("HEAD~1", "HEAD~", "HEAD^", "main~1", f"{head[:8]}~1", "feature~1", "first", "refs/tags/first"):
        assert resolve_tool_rev(ws, name) == first, name
    root = resolve_tool_rev(ws, "HEAD~2")
    assert resolve_tool_rev(ws, "HEAD~1~1") == resolve_tool_rev(ws, "first~1") == root
    assert resolve_tool_rev(ws, project.git("rev-parse", "first")) == first  # what that code commit pins


@pytest.mark.parametrize(
    "name",
    [
        "absent",
        "0" * 40,
        "0" * 32,
        "HEAD~3",
        "HEAD~99999999999",
        "~1",
        "abc",
        "HEAD@{1}",
        "main:docs",
        "-x",
        "\0",
        "WORKING",
    ],
)
def test_unknown_names_are_not_resolved(ws: Workspace, name: str) -> None:
    with pytest.raises(RevisionMissing):
        resolve_tool_rev(ws, name)
    with pytest.raises(BranchMissing):
        resolve_tool_branch_rev(ws, name)


def test_abbreviated_git_hash_is_not_resolved(project: Project, ws: Workspace) -> None:
    with pytest.raises(RevisionMissing):
        resolve_tool_rev(ws, project.git("rev-parse", "HEAD")[:12])


def test_ambiguous_prefix_error_lists_candidates(ws: Workspace, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(revparse, "MIN_PREFIX_CHARACTERS", 1)  # among more than sixteen, two begin alike
    made = [store(ws.engine, "feature", document(f"d{number}")) for number in range(17)]
    digit = next(name for name, count in Counter(engine[0] for engine in made).items() if count > 1)
    with pytest.raises(RevisionMissing) as caught:
        resolve_tool_rev(ws, digit)
    candidates = caught.value.details["candidates"]
    assert {engine for engine in made if engine[0] == digit} <= set(candidates)
    assert all(candidate.startswith(digit) for candidate in candidates)
    with pytest.raises(RevisionMissing):
        resolve_tool_branch_rev(ws, digit)  # the error explains more than a missing branch


def test_branch_called_like_a_hash_is_found_by_its_whole_name(project: Project, ws: Workspace) -> None:
    tool_rev = resolve_tool_rev(ws, "feature")
    ws.engine.create_branch(project.pinned[:6], tool_rev)
    assert resolve_tool_rev(ws, project.pinned[:6]) == tool_rev
    assert resolve_tool_rev(ws, project.pinned[:7]) == project.pinned


def test_unreachable_revision_is_resolved_by_its_hash(project: Project, ws: Workspace) -> None:
    old = ws.engine.find_branch("feature")
    assert old
    ws.engine.delete_branch("feature", expected=old.head)
    assert resolve_tool_rev(ws, old.head[:10]) == old.head


def test_working_is_the_workspace_with_its_uncommitted_documents(project: Project, ws: Workspace) -> None:
    assert resolve_tool_at(ws, "WORKING") == resolve_tool_at(ws, "HEAD") == project.pinned
    project.put("new.md", "new")
    assert resolve_tool_at(ws, "WORKING") == WorkingSet("main")
    assert resolve_tool_at(ws, "HEAD") == project.pinned


@pytest.mark.hooks("on")
def test_remote_branch_is_at_its_last_fetched_revision(world: World) -> None:
    bob = world.join("bob")
    bob.vmrag("status", code=None)
    bob.vmrag("clone", code=None)
    old = bob.pinned
    new = world.ada.write_document("setup.md", "New.")
    world.ada.git("push", "-q")
    made = Workspace.open(bob.top, Quiet())
    assert resolve_tool_rev(made, "origin/main") == old
    bob.vmrag("fetch")
    made.close()
    made = Workspace.open(bob.top, Quiet())
    assert resolve_tool_rev(made, "origin/main") == resolve_tool_rev(made, new[:8]) == new
    assert resolve_tool_rev(made, "origin/main~1") == old
    with pytest.raises(BranchMissing):
        resolve_tool_branch_rev(made, "origin/absent")
    made.close()


# -- one name that git and the knowledge base both have


@pytest.fixture
def twins(project: Project) -> tuple[str, str]:
    """Create `topic` twice: a git branch that pins the first revision, and a KB branch at the
    second.
    """
    git, kb = project.pinned, project.ask("log", "feature")["revisions"][0]["revision"]
    project.git("branch", "topic")
    with terminal.opened(project) as ws:
        ws.engine.create_branch("topic", kb)
    return git, kb


def test_git_ref_goes_before_a_kb_branch_which_a_warning_names(project: Project, twins: tuple[str, str]) -> None:
    git, kb = twins
    result = project.vmrag("log", "topic", "-n", "1")
    assert result.out.startswith(git)
    (warning,) = result.err.splitlines()
    assert all(part in warning for part in ("'topic' is the git ref", git[:12], kb[:12]))
    result = project.vmrag("log", "topic", "-n", "1", "--json")
    assert result.json["revisions"][0]["revision"] == git
    assert result.err.splitlines() == [warning]


def test_kb_branch_precedes_a_git_ref_in_tools_with_a_warning(project: Project, twins: tuple[str, str]) -> None:
    git, kb = twins
    tools = Tools(project.top)
    result = tools("dolt_show", commit="topic")
    assert result["commit"]["hash"] == kb
    (warning,) = result["warnings"]
    assert warning["code"] == "NOTE"
    assert all(part in warning["message"] for part in ("'topic' is the KB branch", git[:12], kb[:12]))
    other = tools("dolt_show", commit=git[:12])  # as in the warning
    assert other["commit"]["hash"] == git
    assert "warnings" not in other
    assert tools("get_diff", from_ref="topic", to_ref="HEAD")["summary"]["total"] > 0


@pytest.mark.parametrize(
    ("tool", "arguments"),
    [
        ("dolt_checkout", {"target": "f", "create_branch": True, "from": "main"}),
        ("create_branch", {"name": "f", "from": "main"}),
    ],
)
def test_branch_starts_at_a_revision_not_yet_committed_in_git(
    project: Project, tool: str, arguments: dict[str, str]
) -> None:
    pinned = project.pinned
    tools = Tools(project.top)
    tools("chroma_add_documents", collection_name="handbook", documents=["news"], ids=["news"])
    new = tools("dolt_commit", message="news")["commit"]["hash"]
    made = tools(tool, **arguments)
    with terminal.opened(project) as ws:
        branch = ws.engine.find_branch("f")
        assert branch
        assert branch.head == new != pinned
    assert any(pinned[:12] in warning["message"] and new[:12] in warning["message"] for warning in made["warnings"])


@pytest.mark.parametrize(
    ("tool", "arguments", "goes"),
    [
        ("dolt_checkout", {"target": "topic"}, True),
        ("switch_branch", {"branch": "topic"}, True),
        ("dolt_reset", {"target": "topic"}, True),
        ("merge_branch", {"source": "topic"}, False),
        ("dolt_commits", {"branch": "topic"}, False),
        ("dolt_find", {"query": "second", "branch": "topic"}, False),
    ],
)
def test_tool_with_branch_parameter_uses_kb_branch_with_a_warning(
    project: Project, twins: tuple[str, str], tool: str, arguments: dict[str, str], goes: bool
) -> None:
    git, kb = twins
    result = Tools(project.top)(tool, **arguments)
    assert any(git[:12] in warning["message"] and kb[:12] in warning["message"] for warning in result["warnings"])
    assert not goes or result["kb"]["commit"] == kb


@pytest.mark.hooks("on")
def test_branch_that_only_the_remote_has_can_be_named(world: World) -> None:
    ada = world.ada
    ada.git("switch", "-q", "-c", "feature")
    ada.git("push", "-q", "-u", "origin", "feature")
    bob = world.join("bob", "-b", "feature")
    tools = Tools(bob.top)
    tools("dolt_checkout", target="f", create_branch=True, **{"from": "main"})
    assert tools("merge_branch", source="main")["merge_type"] == "already_up_to_date"


def test_dolt_commits_lists_kb_branch_and_warns_about_git_branch(project: Project, twins: tuple[str, str]) -> None:
    git, kb = twins
    result = Tools(project.top)("dolt_commits", branch="topic", limit=1)
    assert result["commits"][0]["hash"] == kb
    (warning,) = result["warnings"]
    assert all(part in warning["message"] for part in ("'topic' is the KB branch", git[:12], kb[:12]))


def test_equal_branch_names_cause_no_warning(project: Project) -> None:
    assert project.vmrag("log", "feature").err == ""
    assert "warnings" not in Tools(project.top)("dolt_show", commit="feature")


def test_command_line_accepts_abbreviated_hash_of_knowledge_base(project: Project) -> None:
    assert project.ask("log", project.pinned[:10])["revisions"][0]["revision"] == project.pinned


@pytest.mark.hooks("on")
def test_later_fetched_remote_branch_precedes_the_pin_in_git(world: World) -> None:
    ada, bob = world.ada, world.join("bob")
    bob.vmrag("clone", code=None)
    old = bob.pinned
    new = ada.write_document("setup.md", "New.")
    ada.git("push", "-q")
    bob.vmrag("fetch")
    assert new != old
    result = bob.vmrag("log", "origin/main", "-n", "1")
    assert result.out.startswith(new)
    assert "as last fetched" in result.err
    assert old[:12] in result.err
    assert warned(Tools(bob.top)("dolt_show", commit="origin/main")) == {"NOTE"}
    bob.git("fetch", "-q")
    assert bob.vmrag("log", "origin/main").err == ""
