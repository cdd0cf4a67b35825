"""What a remote gathers and how it is written anew; what CI asks of it; where a repository's knowledge base comes from at its start."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from tests.support import terminal
from tests.support.terminal import Project
from vmrag_link.engines.base import KEEP_BRANCH
from vmrag_link.engines.doltlite.engine import DoltliteEngine

template, project = terminal.template, terminal.project

DATA = "refs/vmrag/data"


@pytest.fixture
def bare(project: Project) -> Path:
    path = project.top.parent / "remote.git"
    project.git("init", "-q", "--bare", str(path))
    project.git("remote", "add", "origin", str(path))
    return path


def there(bare: Path, *arguments: str) -> str:
    return subprocess.run(["git", "-C", bare, *arguments], check=True, capture_output=True, text=True).stdout.strip()


def cloned(bare: Path, name: str) -> Project:
    """A plain git clone of `main`."""
    top = bare.parent / name
    subprocess.run(["git", "clone", "-q", "-b", "main", bare, top], check=True, capture_output=True)
    return Project(top)


def heads(project: Project) -> dict[str, str]:
    engine = DoltliteEngine.open(project.shared / "kb")
    found = engine.remote_heads("origin")
    engine.close()
    return found


def pushed(project: Project) -> list[str]:
    """Four pushes with the hooks; the last one by force, so that something is kept that no branch reaches."""
    revisions = []
    for number in range(3):
        revisions.append(project.record(f"push {number}", faq=f"Answer {number}. " * 200))
        project.git("push", "-q", "origin", "main", "feature")
    project.git("reset", "-q", "--hard", "HEAD~1")
    project.vmrag("sync")
    revisions.append(project.record("instead", faq="Another answer."))
    project.git("push", "-q", "--force", "origin", "main")
    return revisions


# -- gc --remote


def test_a_remote_written_anew_holds_the_same_heads_in_one_commit_and_less_space(project, bare):
    revisions = pushed(project)
    before, size = heads(project), int(there(bare, "rev-list", "--count", DATA))
    assert KEEP_BRANCH in before
    assert size == 4
    report = project.ask("gc", "--remote")
    assert (report["applied"], report["before"]["pushes"]) == (False, 4)
    assert there(bare, "rev-list", "--count", DATA) == "4"
    report = project.ask("gc", "--remote", "origin", "--apply")
    assert report["after"]["pushes"] == 1
    assert report["after"]["bytes"] <= report["before"]["bytes"]
    assert there(bare, "rev-list", "--count", DATA) == "1"
    assert heads(project) == before
    other = cloned(bare, "other")
    other.vmrag("clone")
    assert set(revisions) <= _reachable(other)


def _reachable(project: Project) -> set[str]:
    engine = DoltliteEngine.open(project.shared / "kb")
    found = {each.revision for head in engine.remote_heads("origin").values() for each in engine.log(head)}
    engine.close()
    return found


def test_whoever_knew_the_remote_before_goes_on_with_what_was_written_anew(project, bare):
    pushed(project)
    other = cloned(bare, "other")
    other.vmrag("install")
    project.vmrag("gc", "--remote", "--apply")
    revision = other.record("theirs", theirs="From the other clone.")
    other.git("push", "-q", "origin", "main")
    project.git("pull", "-q", "origin", "main")
    assert project.pinned == revision
    assert project.texts()["theirs.md"] == "From the other clone."


def test_a_damaged_remote_is_replaced_by_what_it_held_when_it_was_last_fetched(project, bare):
    revisions = pushed(project)
    before = heads(project)
    there(bare, "update-ref", DATA, "refs/heads/main")
    assert project.vmrag("fetch", "--json", code=3).error["code"] == "REMOTE_DAMAGED"
    report = project.ask("gc", "--remote")
    assert report["damaged"]
    assert report["before"] is None
    project.vmrag("gc", "--remote", "--apply")
    assert heads(project) == before
    other = cloned(bare, "other")
    other.vmrag("clone")
    assert set(revisions) <= _reachable(other)


def test_only_what_git_carries_is_written_anew(project, bare):
    file = bare.with_name("kb.doltlite")
    project.vmrag("push", f"file://{file}")
    error = project.vmrag("gc", "--remote", f"file://{file}", "--json", code=2).error
    assert error["code"] == "INVALID_REMOTE_URL"


# -- verify --remote


def test_what_is_pinned_and_not_on_the_remote_is_found_until_it_is_pushed(project, bare):
    project.git("push", "-q", "-u", "origin", "main")
    project.record("more", more="More.")
    project.git("push", "-q", "--no-verify", "origin", "main:topic")
    runner = cloned(bare, "runner")
    arguments = ("verify", "--remote", "origin", "--pull-request", "origin/main", "origin/topic")
    report = runner.ask(*arguments, code=1)
    assert [each["code"] for each in report["findings"]] == ["NOT_ON_REMOTE"]
    assert "vmrag adopt" in report["findings"][0]["hint"]
    local = project.ask("verify", "--remote", "origin", "origin/main..HEAD", code=1)
    assert [each["code"] for each in local["findings"]] == ["NOT_ON_REMOTE"], "here, and not there"
    assert project.ask("verify", "origin/main..HEAD")["findings"] == []
    project.vmrag("push")
    assert runner.ask(*arguments)["findings"] == []


# -- where a knowledge base comes from


def test_init_in_a_clone_fetches_instead_of_starting_another_one(project, bare):
    project.git("push", "-q", "origin", "main")
    other = cloned(bare, "other")
    report = other.ask("init")
    assert (report["cloned"], report["started"]) == ("origin", False)
    assert other.pinned == project.pinned
    assert other.answers() == project.answers()


def test_init_on_a_branch_from_before_the_pin_fetches_what_other_branches_pin(project, bare):
    project.git("push", "-q", "origin", "main")
    other = cloned(bare, "other")
    other.git("switch", "-q", "--orphan", "empty")
    assert other.ask("init")["cloned"] == "origin"
    assert other.vmrag("log").out.count("Create the knowledge base") == 1
    other.git("commit", "-q", "-m", "start")
    other.record("theirs", theirs="From here.")
    other.git("push", "-q", "origin", "empty")


def test_init_starts_another_one_where_that_is_asked_for(project, bare):
    project.git("push", "-q", "--no-verify", "origin", "main")
    other = cloned(bare, "other")
    other.git("switch", "-q", "--orphan", "empty")
    error = other.vmrag("init", "--json", code=2).error
    assert error["code"] == "ALREADY_INITIALIZED"
    assert "vmrag init --new" in error["hint"]
    assert other.ask("init", "--new")["started"]


def test_a_clone_with_our_template_says_what_it_pins(project, bare):
    project.git("push", "-q", "origin", "main")
    project.vmrag("init", "--template", "../template")
    done = subprocess.run(
        ["git", "clone", "-q", "--template=template", "-b", "main", bare, "hooked"],
        cwd=bare.parent,
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stderr == "vmrag: this code pins a knowledge base; to fetch it: vmrag clone\n"
    hooked = Project(bare.parent / "hooked")
    hooked.vmrag("clone")
    assert hooked.status()["state"] == "in_sync"


def test_an_unrelated_knowledge_base_is_refused(project, bare):
    project.vmrag("push")
    stranger = terminal.new_project(bare.parent / "stranger")
    stranger.git("remote", "add", "origin", str(bare))
    stranger.vmrag("init", "--new")
    error = stranger.vmrag("push", "--json", code=3).error
    assert error["code"] == "REMOTE_REJECTED"
    assert "no history in common" in error["message"]
