"""`vmrag gc`: what git can still check out can still be queried, and what nothing needs goes."""

from __future__ import annotations

import json

from tests.support import terminal
from tests.support.terminal import Project

template, project = terminal.template, terminal.project


ASKED = "rest deleted first second attempt reset uv"


def pins(project: Project) -> dict[str, str]:
    """Every commit of refs and reflogs that pins something, with the revision."""
    found = {}
    for commit in project.git("rev-list", "--all", "--reflog").split():
        pin = project.run("show", f"{commit}:.dolt-version")
        if pin.returncode == 0:
            found[commit] = json.loads(pin.stdout)["dolt_commit"]
    return found


def rewrite_history(project: Project) -> None:
    """Branches deleted, commits amended, reset away, rebased away and stashed."""
    project.git("switch", "-q", "-c", "doomed")
    project.record("doomed", doomed="To be deleted.")
    project.record("doomed too", second="To be deleted, too.")
    project.git("switch", "-q", "main")
    project.git("branch", "-q", "-D", "doomed")
    project.put("amended.md", "The first attempt.")
    project.vmrag("commit", "-m", "attempt")
    project.git("commit", "-q", "-m", "attempt")
    project.put("amended.md", "The second attempt.")
    project.vmrag("commit", "-m", "second attempt")
    project.git("commit", "-q", "--amend", "-m", "second attempt")
    project.record("reset", reset="To be reset away.")
    project.git("reset", "-q", "--hard", "HEAD~1")
    project.vmrag("sync")
    project.vmrag("pin", "feature")
    project.git("stash", "-q")
    project.vmrag("sync")


def test_every_commit_that_git_knows_can_be_queried_after_branches_were_deleted_and_history_rewritten(project):
    rewrite_history(project)
    known = pins(project)
    assert len(set(known.values())) >= 7
    before = {commit: project.ask("query", ASKED, "-k", "20", "--at", commit) for commit in known}
    here = project.answers()
    project.git("config", "vmrag.index.keep", "0")
    report = project.ask("gc", "--apply")
    assert report["applied"] is True
    assert project.status()["state"] == "in_sync"
    assert project.answers() == here
    for commit, revision in known.items():
        project.git("checkout", "-q", "--detach", commit)
        found = project.ask("query", ASKED, "-k", "20")
        assert found["results"] == before[commit]["results"]
        assert (found["kb"]["commit"], found["kb"]["in_sync"]) == (revision, True)


def test_uncommitted_documents_of_all_branches_survive(project):
    project.put("draft.md", "A draft of main.")
    project.git("switch", "-q", "feature")
    project.put("draft.md", "A draft of feature.")
    project.vmrag("gc", "--apply")
    assert project.texts()["draft.md"] == "A draft of feature."
    project.git("switch", "-q", "main")
    assert project.texts()["draft.md"] == "A draft of main."
    assert project.consistent()


def test_without_apply_it_only_says_what_it_would_do(project):
    project.git("config", "vmrag.index.keep", "0")
    before = {path: path.stat().st_mtime_ns for path in project.shared.rglob("*") if path.is_file()}
    report = project.ask("gc")
    assert report["applied"] is False
    assert report["snapshots"]
    assert report["snapshot_bytes"] > 0
    assert {path: path.stat().st_mtime_ns for path in project.shared.rglob("*") if path.is_file()} == before
    said = project.vmrag("gc").out
    assert "Would remove" in said
    assert "Next: vmrag gc --apply" in said
    assert project.ask("gc", "--apply")["snapshots"] == report["snapshots"]
    assert project.ask("gc")["snapshots"] == []
    assert project.consistent()


def test_it_can_be_run_again_and_again(project):
    rewrite_history(project)
    project.vmrag("gc", "--apply")
    size = project.ask("gc", "--apply")["kb_bytes_after"]
    for _ in range(3):
        assert project.ask("gc", "--apply")["kb_bytes_after"] <= size
    assert project.consistent()
