"""Remains of linked worktrees are found again, and two worktrees on one branch write on separate KB
branches.
"""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from tests.support import terminal
from tests.support.mcp import Tools
from tests.support.repos import ON
from tests.support.terminal import Project, opened

pytestmark = pytest.mark.hooks("off")

template, project = terminal.template, terminal.project


def linked(project: Project, folder: Path, *arguments: str) -> Project:
    project.git("worktree", "add", "-q", *arguments[:-1], str(folder), *arguments[-1:])
    return Project(folder)


def removed(project: Project, tree: Project, how: str = "remove") -> None:
    if how == "remove":
        project.git("worktree", "remove", "--force", str(tree.top))
    else:
        shutil.rmtree(tree.top)
        project.git("worktree", "prune")


def waits(project: Project) -> list[str]:
    """The lines of a status about what waits in no work tree."""
    marks = (" has uncommitted documents", "no commit of ")
    return [reason for reason in project.status()["reasons"] if any(mark in reason for mark in marks)]


# -- free


def test_new_work_tree_and_its_first_query_copy_nothing(project, tmp_path):
    before = {path for path in project.shared.rglob("*") if path.suffix != ".lock"}
    tree = linked(project, tmp_path / "tree", "-b", "agent", "main")
    assert tree.ask("query", "rest")["kb"]["commit"] == project.pinned
    new = {path for path in project.shared.rglob("*") if path.suffix != ".lock"} - before
    assert not [path for path in new if path.is_file()]
    assert sum(path.stat().st_size for path in tree.own.rglob("*") if path.is_file()) < 1000


@pytest.mark.parametrize("where", ["inside", "moved", "/dev/shm"])
def test_worktree_works_at_any_path(project, tmp_path, where):
    folder = {"inside": project.top / ".claude/worktrees/tree", "moved": tmp_path / "tree"}.get(
        where, Path("/dev/shm") / tmp_path.parent.parent.name / tmp_path.name
    )
    folder.parent.mkdir(parents=True, exist_ok=True)
    tree = linked(project, folder, "-b", "agent", "main")
    tree.put("memo.md", "A memory.")
    if where == "moved":
        project.git("worktree", "move", str(folder), str(tmp_path / "elsewhere"))
        tree = Project(tmp_path / "elsewhere")
    project.git("worktree", "lock", str(tree.top))
    assert tree.marks()["memo.md"] == "added"
    tree.vmrag("commit", "-m", "memo")
    tree.git("commit", "-q", "-m", "memo")
    assert (tree.status()["state"], "memo.md" in project.marks()) == ("in_sync", False)
    project.git("worktree", "unlock", str(tree.top))
    removed(project, tree)
    assert waits(project) == []


# -- left behind


@pytest.mark.parametrize("how", ["remove", "prune"])
def test_uncommitted_documents_of_a_removed_work_tree_wait_on_its_branch(project, tmp_path, how):
    tree = linked(project, tmp_path / "tree", "-b", "agent", "main")
    tree.put("memo.md", "A memory.")
    assert waits(project) == []
    removed(project, tree, how)
    assert waits(project) == [
        "'agent' has uncommitted documents, but no worktree has it; run 'git switch agent' to return to them"
    ]
    assert "were not merged. Commit them first" in project.vmrag("merge", "agent").err
    assert project.ask("gc", "--apply")["kept"] == []
    project.git("switch", "-q", "agent")
    assert (project.marks()["memo.md"], waits(project)) == ("added", [])


def test_documents_of_a_deleted_branch_return_by_the_printed_command(project, tmp_path):
    tree = linked(project, tmp_path / "tree", "-b", "agent", "main")
    tree.put("memo.md", "A memory.")
    removed(project, tree)
    project.git("branch", "-q", "-D", "agent")
    [line] = waits(project)
    assert line.endswith("branch or worktree no longer exists; run 'vmrag merge agent' to restore them")
    assert project.ask("gc", "--apply")["kept"][0]["hint"] == "run 'vmrag merge agent' to restore them"
    project.record("later", later="What main learned meanwhile.")
    project.put("own.md", "Uncommitted here.")
    assert project.ask("merge", "agent")["result"] == "uncommitted"
    assert {name for name, mark in project.marks().items() if mark} == {"memo.md", "own.md"}
    assert waits(project) == []
    assert [branch["name"] for branch in project.ask("gc", "--apply")["pruned"]] == ["agent"]
    assert project.marks()["memo.md"] == "added"


def test_tool_brings_them_back_as_the_command_does(project, tmp_path):
    tree = linked(project, tmp_path / "tree", "-b", "agent", "main")
    tree.put("memo.md", "A memory.")
    removed(project, tree)
    project.git("branch", "-q", "-D", "agent")
    project.put("own.md", "Uncommitted here.")
    Tools(project.top)("merge_branch", source="agent")
    assert {name for name, mark in project.marks().items() if mark} == {"memo.md", "own.md"}
    assert waits(project) == []


@pytest.mark.parametrize("hooks", [{}, ON], ids=["without hooks", "with hooks"])
@pytest.mark.parametrize("draft", [False, True])
@pytest.mark.sample(2)
def test_next_work_tree_pins_a_revision_that_no_commit_pinned(project, tmp_path, hooks, draft):
    tree = linked(project, tmp_path / "tree", "-b", "agent", "main")
    tree.put("memo.md", "A memory.")
    tree.vmrag("commit", "-m", "memo")
    if draft:
        tree.put("draft.md", "A draft.")
    removed(project, tree)
    assert any("git switch agent" in wait for wait in waits(project))
    project.git("worktree", "add", "-q", str(tmp_path / "next"), "agent", env=hooks)
    tree = Project(tmp_path / "next")
    assert tree.texts()["memo.md"] == "A memory."
    tree.vmrag("sync")
    assert (tree.status()["state"], tree.git("diff", "--cached", "--name-only")) == ("in_sync", ".dolt-version")
    assert (tree.marks().get("draft.md") == "added") == draft
    tree.git("commit", "-q", "-m", "memo")
    assert waits(project) == []


def test_reset_branch_of_a_removed_worktree_has_no_waiting_documents(project, tmp_path):
    tree = linked(project, tmp_path / "tree", "-b", "agent", "main")
    tree.record("memo", memo="A memory.")
    removed(project, tree)
    project.git("branch", "-q", "-f", "agent", "main")
    assert waits(project) == []
    tree = linked(project, tmp_path / "next", "agent")
    assert ("memo.md" in tree.marks(), tree.git("status", "--porcelain")) == (False, "")


# -- two on one branch


@pytest.fixture
def second(project: Project, tmp_path: Path) -> Project:
    return linked(project, tmp_path / "second", "--force", "main")


def test_second_work_tree_on_branch_writes_on_its_own_kb_branch(project, second):
    project.put("one.md", "Of the first.")
    said = second.vmrag("add", "-", "--collection", "handbook", "--id", "two.md", stdin="Of the second.").err
    assert str(project.top) in said
    assert "vmrag merge main" in said
    branch = second.status()["kb"]["branch"]
    assert branch not in ("main", None)
    assert branch in said
    assert (second.marks().get("one.md"), second.marks()["two.md"]) == (None, "added")
    assert (project.marks()["one.md"], project.marks().get("two.md")) == ("added", None)
    assert project.status()["kb"]["branch"] == "main"
    for tree in (project, second):
        assert (tree.status()["state"], waits(tree)) == ("in_sync", [])
    second.git("switch", "-q", "-c", "other")
    assert "two.md" not in second.marks()
    second.git("switch", "-q", "--ignore-other-worktrees", "main")
    assert second.marks()["two.md"] == "added"
    assert project.ask("gc", "--apply")["pruned"] == []


def test_commit_that_drops_a_pin_of_another_worktree_is_stopped(project, second):
    second.put("two.md", "Of the second.")
    second.vmrag("commit", "-m", "two")
    project.record("one", one="Of the first.")
    result = second.run("commit", "-q", "-m", "two", env=ON)
    assert result.returncode == 1
    assert "vmrag merge main" in result.stderr
    second.vmrag("merge", "main")
    second.git("commit", "-q", "-m", "two", env=ON)
    assert {"one.md", "two.md"} <= second.marks().keys()
    project.put("three.md", "Of the first.")
    project.vmrag("commit", "-m", "three")
    assert project.run("commit", "-q", "-m", "three", env=ON).returncode == 1
    project.vmrag("merge", "main")
    project.git("commit", "-q", "-m", "three", env=ON)
    assert {"one.md", "two.md", "three.md"} <= project.marks().keys()


@pytest.mark.parametrize("committed", [False, True])
def test_documents_of_a_removed_worktree_can_be_merged(project, second, committed):
    second.put("two.md", "Of the second.")
    branch = second.status()["kb"]["branch"]
    if committed:
        second.vmrag("commit", "-m", "two")
        head = second.pinned
    removed(project, second)
    if committed:
        assert [branch["revision"] for branch in project.ask("gc", "--apply")["pruned"]] == [head]
        project.vmrag("merge", head)
        assert project.texts()["two.md"] == "Of the second."
        return
    state = f"{branch!r} has uncommitted documents, but its branch or worktree no longer exists"
    assert waits(project) == [f"{state}; run 'vmrag merge {branch}' to restore them"]
    project.vmrag("merge", branch)
    assert project.marks()["two.md"] == "added"
    assert [branch["name"] for branch in project.ask("gc", "--apply")["pruned"]] == [branch]
    assert branch not in project.git("config", "--list")


def test_second_worktree_keeps_its_branch_until_the_pin_moves(project, second):
    project.put("one.md", "Of the first.")
    second.put("two.md", "Of the second.")
    branch = second.status()["kb"]["branch"]
    project.git("switch", "-q", "feature")
    second.vmrag("commit", "-m", "two")
    assert second.status()["kb"]["branch"] == branch
    [line] = waits(second)
    assert line.endswith("no longer exists; run 'vmrag merge main' to restore them")
    second.vmrag("merge", "main")
    assert second.marks()["one.md"] == "added"
    second.record("both")
    assert {"one.md", "two.md"} <= second.marks().keys()
    second.git("reset", "-q", "--hard", "first")
    assert second.status()["state"] == "drift"
    second.vmrag("sync")
    assert second.status()["kb"]["branch"] == "main"


def test_journal_of_one_is_not_finished_by_the_other(project, second):
    second.put("two.md", "Of the second.")
    project.put("one.md", "Of the first.")
    pin = json.loads((project.top / ".dolt-version").read_text())
    with opened(project) as ws:
        entry = {"type": "commit", "git_dir": str(ws.places.git_dir), "symbolic": "refs/heads/main", "format": 1}
        entry |= {"pin": (project.top / ".dolt-version").read_text(), "kb_branch": "main", "parent": pin["dolt_commit"]}
        ws.engine.commit("main", message="one", author="A <a@b>", date="2026-01-01T00:00:00Z", expected=entry["parent"])
        (ws.places.journal / "commit-0123456789abcdef.json").write_text(json.dumps(entry))
    assert second.marks()["two.md"] == "added"
    assert second.pinned == pin["dolt_commit"]
    assert "one.md" in project.marks()
    assert project.pinned != pin["dolt_commit"]


# -- a container: a bare repository, and a file `.git` that names it, above the work trees


@pytest.fixture(params=[".bare", ".git"])
def container(project, tmp_path, request) -> Project:
    """A folder with a bare repository, and work trees of `main` and `feature`."""
    project.git("init", "-q", "--bare", str(tmp_path / "hub.git"))
    project.git("remote", "add", "origin", str(tmp_path / "hub.git"))
    project.git("push", "-q", "origin", "main", "feature")
    project.vmrag("push", "--all")
    top = tmp_path / "container"
    project.git("clone", "-q", "--bare", str(tmp_path / "hub.git"), str(top / request.param))
    if request.param != ".git":
        (top / ".git").write_text(f"gitdir: ./{request.param}\n")
    made = Project(top)
    made.git("config", "remote.origin.fetch", "+refs/heads/*:refs/remotes/origin/*")
    made.git("fetch", "-q")
    for branch in ("main", "feature"):
        made.git("worktree", "add", "-q", branch)
    Project(top / "main").vmrag("install")
    return made


def test_container_top_answers_as_work_tree_of_head(container, project):
    main = Project(container.top / "main")
    assert container.ask("query", "rest")["kb"] == main.ask("query", "rest")["kb"]
    assert container.status()["state"] == main.status()["state"] == "in_sync"
    assert container.marks() == project.marks()
    assert Tools(container.top)("chroma_list_collections")["kb"]["commit"] == main.pinned
    assert container.vmrag("grep", "sleep").out == main.vmrag("grep", "sleep").out


def test_push_from_container_top_includes_knowledge(container, tmp_path):
    main = Project(container.top / "main")
    main.put("memo.md", "A memory.")
    main.vmrag("commit", "-m", "memo")
    main.git("commit", "-qm", "memo")
    container.push("origin", "main")
    main.git("clone", "-q", str(tmp_path / "hub.git"), str(tmp_path / "clone"))
    other = Project(tmp_path / "clone")
    other.vmrag("clone")
    assert "memo.md" in other.marks()


def test_vmrag_push_from_container_top_pushes_knowledge(container):
    main = Project(container.top / "main")
    main.put("memo.md", "A memory.")
    main.vmrag("commit", "-m", "memo")
    container.vmrag("push")
    assert "nothing to push" in main.vmrag("status", code=None).out


def test_container_top_answers_as_first_work_tree_without_branch_of_head(container):
    container.git("symbolic-ref", "HEAD", "refs/heads/other")
    assert container.ask("query", "uv")["kb"]["worktree"] == str(container.top / "feature")
    container.git("worktree", "remove", "feature")
    assert container.ask("query", "rest")["kb"]["worktree"] == str(container.top / "main")
    container.git("worktree", "remove", "main")
    assert "git worktree add DIR BRANCH" in container.vmrag("query", "rest", code=2).err


def test_bare_repository_cannot_name_foreign_work_tree(container, project, tmp_path):
    (tmp_path / "evil.git/worktrees/main").mkdir(parents=True)
    shutil.copytree(project.top / ".git", tmp_path / "evil.git", dirs_exist_ok=True)
    evil = Project(tmp_path / "evil.git")
    evil.git("config", "core.bare", "true")
    for name, text in {
        "gitdir": f"{container.top}/main/.git",
        "HEAD": "ref: refs/heads/main",
        "commondir": "../..",
    }.items():
        (evil.top / "worktrees/main" / name).write_text(f"{text}\n")
    assert evil.vmrag("status", "--json", code=2).error["code"] == "GIT_REPO_NOT_FOUND"
