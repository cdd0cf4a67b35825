"""The loop: pin, checkout, sync, query; and every git command that moves the code, with the hooks
installed.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.support import terminal
from tests.support.long import LONG
from tests.support.repos import isolate
from tests.support.terminal import Project, new_project

template, project = terminal.template, terminal.project


def test_loop_as_a_newcomer_types_it(tmp_path, monkeypatch):
    isolate(monkeypatch, tmp_path / "home")
    project = new_project(tmp_path / "mine", settings="embedding:\n  model: hash\n")
    (project.top / ".vmrag.yaml").unlink()
    project.write("docs/setup.md", "# Setup\n\nInstall the program with pip.\n")
    project.write("docs/logo.png", b"\x89PNG\0")

    said = project.vmrag("init", "--knowledge-base", "--no-sources").out
    assert "Started a knowledge base in" in said
    assert "Wrote and staged .vmrag.yaml, .dolt-version, .gitattributes" in said
    assert "Installed the git hooks" in said
    assert "hint: run 'vmrag add FILE --collection NAME'" in said

    project.write(".vmrag.yaml", "embedding:\n  model: hash\n")
    said = project.vmrag("import", "docs/", "--collection", "handbook").out
    assert "handbook: 1 document added, 0 unchanged" in said
    assert "Skipped 1 file" in said
    assert "logo.png: its type .png is not supported" in said
    assert "hint: run 'vmrag commit -m" in said

    assert "uncommitted documents included" in project.vmrag("query", "install").out

    said = project.vmrag("commit", "-m", "Setup guide").out
    assert "[main " in said
    assert "] Setup guide" in said
    assert "1 document added" in said
    assert "Pinned in .dolt-version, which is staged.\nhint: run 'git commit" in said

    project.git("add", "-A")
    project.git("commit", "-q", "-m", "Knowledge")
    assert "in sync" in project.vmrag("status").out

    project.git("switch", "-q", "-c", "feature")
    project.vmrag("add", "-", "--collection", "handbook", "--id", "uv.md", stdin="Use uv.")
    project.vmrag("commit", "-m", "uv")
    project.git("commit", "-q", "-m", "uv")
    assert "handbook/uv.md" in project.vmrag("query", "uv").out

    moved = project.run("checkout", "main").stderr
    assert "vmrag: the knowledge base is now at" in moved
    assert "(+0 ~0 -1 documents)" in moved
    answer = project.vmrag("query", "uv").out
    assert "handbook/uv.md" not in answer
    assert f"from revision {project.pinned[:7]}\n" in answer


def test_loop_with_the_default_model_finds_by_meaning(tmp_path, monkeypatch):
    isolate(monkeypatch, tmp_path / "home")
    project = new_project(tmp_path / "mine", settings="")
    project.vmrag("init", "--knowledge-base", "--no-sources")
    project.put("car.md", "The automobile needs fuel.")
    project.put("cake.md", "Flour, sugar and butter make a dessert.")
    project.vmrag("commit", "-m", "two")
    project.git("commit", "-q", "-m", "two")
    best = project.ask("query", "vehicle", "--mode", "vector")["results"][0]
    assert best["doc_id"] == "car.md"
    project.git("switch", "-q", "-c", "other")
    project.drop("car.md")
    assert [result["doc_id"] for result in project.ask("query", "vehicle")["results"]] == ["cake.md"]
    project.git("switch", "-q", "main")
    assert project.ask("query", "vehicle", "--mode", "vector")["results"][0] == best


# -- every way in which git moves the code ---------------------------------------------------------


def pulled_behind(project: Project) -> None:
    """A branch without knowledge of its own that `main` is ahead of."""
    project.git("branch", "behind", "first")
    project.git("switch", "-q", "behind")


def merge_by_commit(project: Project) -> None:
    project.git("switch", "-q", "-c", "side", "first")
    project.commit("code only", **{"code.py": "1"})
    project.git("merge", "-q", "--no-edit", "feature")


def rebase(project: Project) -> None:
    """Rebase three code commits onto other knowledge; the working tree is at each of them on the
    way.
    """
    project.git("switch", "-q", "-c", "side", "first")
    for name in ("a.py", "b.py", "c.py"):
        project.commit(name, **{name: "1"})
    project.git("rebase", "-q", "feature")


def rebase_knowledge(project: Project) -> None:
    project.git("switch", "-q", "-c", "side", "first")
    project.record("one", one="The first of two.")
    project.record("two", two="The second of two.")
    project.git("switch", "-q", "-c", "base", "first")
    project.commit("code only", **{"code.py": "1"})
    project.git("rebase", "-q", "base", "side")


def amend(project: Project) -> None:
    project.vmrag("pin", project.ask("log")["revisions"][1]["revision"])
    project.git("commit", "-q", "--amend", "--allow-empty", "-m", "back")


def fast_forward(project: Project) -> None:
    pulled_behind(project)
    project.git("merge", "-q", "--ff-only", "main")


def pull(project: Project) -> None:
    pulled_behind(project)
    project.git("pull", "-q", "--ff-only", ".", "feature")


def switch_detached(project: Project) -> None:
    project.git("switch", "-q", "--detach", "feature")


HOOKED: dict[str, Callable[[Project], object]] = {
    "checkout": lambda project: project.git("checkout", "-q", "feature"),
    "checkout of a commit": lambda project: project.git("checkout", "-q", "first"),
    "switch": lambda project: project.git("switch", "-q", "feature"),
    "switch --detach": switch_detached,
    "switch --orphan and back": lambda project: (
        project.git("switch", "-q", "--orphan", "empty"),
        project.git("switch", "-q", "-f", "feature"),
    ),
    "merge --ff-only": fast_forward,
    "merge": merge_by_commit,
    "pull": pull,
    "rebase": rebase,
    "rebase of knowledge": rebase_knowledge,
    "commit --amend": amend,
}


@pytest.mark.parametrize("move", HOOKED.values(), ids=HOOKED)
@pytest.mark.sample(1)
def test_hooks_move_the_knowledge_with_the_code(project, move):
    move(project)
    status = project.status()
    assert status["state"] == "in_sync", status["reasons"]
    assert status["index"]["revision"] == project.pinned
    assert project.ask("query", "uv")["kb"] == {
        "worktree": str(project.top),
        "git_head": project.git("rev-parse", "HEAD"),
        "branch": status["kb"]["branch"] if not status["kb"]["detached"] else None,
        "commit": project.pinned,
        "dirty": False,
        "in_sync": True,
    }
    assert project.consistent()


def stash_a_pin(project: Project) -> None:
    project.vmrag("pin", project.ask("log")["revisions"][1]["revision"])
    assert "faq.md" not in project.marks()
    project.git("stash", "-q")


def restore(project: Project) -> None:
    project.git("restore", "--source", "feature", ".dolt-version")


HOOKLESS: dict[str, Callable[[Project], object]] = {
    "reset --hard": lambda project: project.git("reset", "-q", "--hard", "first"),
    "reset --hard elsewhere": lambda project: project.git("reset", "-q", "--hard", "feature"),
    "stash": stash_a_pin,
    "restore": restore,
    "cherry-pick": lambda project: (
        project.git("reset", "-q", "--hard", "first"),
        project.git("cherry-pick", "feature"),
    ),
    "revert": lambda project: project.git("revert", "--no-edit", "HEAD"),
}


@pytest.mark.parametrize("move", HOOKLESS.values(), ids=HOOKLESS)
@pytest.mark.sample(1)
def test_query_follows_moves_without_hooks(project, move):
    move(project)
    answer = project.ask("query", "uv")["kb"]
    assert (answer["commit"], answer["in_sync"]) == (project.pinned, True)
    assert project.status()["state"] == "in_sync"
    assert project.consistent()


@pytest.mark.parametrize("command", ["list", "log", "diff", "fingerprint", "path", "show", "status"])
def test_every_command_speaks_about_the_code_that_is_checked_out(project, command):
    project.git("reset", "-q", "--hard", "feature")
    match command:
        case "list":
            assert "uv.md" in project.marks()
        case "log":
            assert project.ask("log")["revisions"][0]["message"] == "uv"
        case "diff":
            assert project.ask("diff")["old"] == project.pinned
        case "fingerprint":
            assert project.ask("fingerprint")["revision"] == project.pinned
        case "path":
            assert project.pinned in project.ask("path")["index"]
        case "show":
            assert project.ask("show", "handbook/uv.md")["content"] == "Use uv."
        case "status":
            status = project.status()
            assert (status["state"], status["hint"]) == ("drift", "run 'vmrag sync' to sync to the pin")
            project.vmrag("sync")
            assert project.status()["state"] == "in_sync"


def test_stash_pop_brings_back_the_pin_and_its_knowledge(project):
    stash_a_pin(project)
    assert "faq.md" in project.marks()
    project.git("stash", "pop", "-q", "--index")
    assert "faq.md" not in project.marks()
    assert project.consistent()


def test_merge_of_knowledge_answers_from_both_sides(project):
    project.git("merge", "-q", "--no-edit", "feature")
    assert project.marks().keys() == {"setup.md", "rest.md", "faq.md", "uv.md"}
    assert project.ask("show", "handbook/rest.md")["content"] == "# Rest\n\nNever rest.\n"
    assert project.status()["state"] == "in_sync"
    assert project.consistent()


def test_pin_conflict_keeps_our_knowledge_answering_until_side_is_chosen(project):
    project.put("rest.md", "Rest on Sundays.")
    project.record("rest")
    before, pinned = project.ask("query", "faq"), project.pinned
    assert project.run("merge", "feature").returncode == 1
    assert project.pinned == pinned
    assert project.ask("query", "faq")["results"] == before["results"]
    error = project.vmrag("commit", "-m", "m", "--json", code=3).error
    assert error["code"] == "GIT_BUSY"
    project.git("checkout", "-q", "--theirs", ".dolt-version")
    project.vmrag("sync")
    assert "uv.md" in project.marks()
    project.git("add", "-A")
    project.git("commit", "-q", "--no-edit", "--no-verify")
    assert project.consistent()


def test_merge_without_driver_leaves_markers_and_old_knowledge_answering(project):
    """A clone without hooks, a merge made elsewhere."""
    before = project.ask("query", "faq")
    project.git("config", "--remove-section", "merge.vmrag")
    assert project.run("merge", "feature").returncode == 1
    answer = project.vmrag("query", "faq", "--json")
    assert answer.json["results"] == before["results"]
    assert answer.json["kb"]["in_sync"] is False
    assert "the pin cannot be read" in answer.err
    status = project.status()
    assert status["state"] == "malformed"
    project.git("checkout", "-q", "--theirs", ".dolt-version")
    project.vmrag("sync")
    assert "uv.md" in project.marks()
    project.git("add", "-A")
    project.git("commit", "-q", "--no-edit", "--no-verify")
    assert project.consistent()


def test_switches_back_and_forth_need_no_embedding_and_leave_no_litter(project):
    seen = {project.pinned: project.answers()}
    for branch in ("feature", "main", "first") * (4 if LONG else 2):
        project.git("switch", "-q", "--detach", branch)
        seen.setdefault(project.pinned, project.answers())
        assert project.ask("sync")["chunks"]["embedded"] == 0
    assert seen[project.pinned] == project.answers()
    assert [path for name in ("views", "segments") for path in (project.shared / name).glob(".*")] == []
