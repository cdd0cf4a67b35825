"""`vmrag status` prints "in sync" only if everything is."""

from __future__ import annotations

import pytest

from tests.support import terminal
from vmrag_link import locks
from vmrag_link.git import plumbing
from vmrag_link.sync import background

pytestmark = pytest.mark.hooks("off")

template, project = terminal.template, terminal.project


def test_open_merge_is_not_in_sync(project):
    project.git("switch", "-q", "feature")
    project.record("never", rest="# Rest\n\nNever, ever rest.\n")
    project.git("switch", "-q", "main")
    project.record("often", rest="# Rest\n\nOften rest.\n")
    assert project.status()["state"] == "in_sync"
    project.vmrag("merge", "feature", code=1)
    report = project.status()
    assert (report["state"], report["in_sync"], report["hint"]) == (
        "merging",
        False,
        "run 'vmrag resolve' to resolve the conflicts",
    )
    assert project.vmrag("status", code=1).out.splitlines()[0] == "a merge is open"
    project.git("switch", "-q", "--detach", "first")  # where nothing is merged
    project.vmrag("sync")
    assert project.status()["state"] == "in_sync"
    project.git("switch", "-q", "main")
    project.vmrag("sync")
    project.vmrag("merge", "--abort")
    assert project.status()["state"] == "in_sync"
    project.git("merge", "-q", "feature", check=False)  # git's own, in conflict
    assert (project.status()["state"], project.status()["hint"]) == (
        "merging",
        "run 'vmrag resolve' to resolve the conflicts",
    )
    project.vmrag("resolve", "--theirs")
    report = project.status()
    assert report["state"] == "in_sync"
    assert "the pin is staged, but not committed; run 'git commit' to commit it" in report["reasons"]
    project.git("commit", "-q", "--no-edit")
    assert project.status()["reasons"] == [
        "warning: 1 stored copy of a tracked file may be outdated; run 'vmrag init && vmrag sources dedupe' to search the files instead"
    ]


def test_status_reports_uncommitted_pin_until_it_is_committed(project):
    project.put("new.md", "New.")
    project.vmrag("commit", "-m", "new")
    assert project.status()["reasons"][:1] == [
        "the pin is staged, but not committed; run 'git commit .dolt-version' to commit it"
    ]
    project.git("reset", "-q")
    assert project.status()["reasons"][:1] == [
        "the pin is neither staged nor committed; run 'git add .dolt-version' to stage it"
    ]
    project.git("add", ".dolt-version")
    project.write("docs/rest.md", "# Rest\n\nOften.\n")
    project.git("commit", "-q", "-m", "the page alone", "docs/rest.md")
    assert (
        "the pin is staged, but not committed; run 'git commit .dolt-version' to commit it"
        in project.status()["reasons"]
    )
    project.git("commit", "-q", "-m", "the pin", ".dolt-version")
    assert not any("the pin" in reason for reason in project.status()["reasons"])


def test_status_advises_sync_instead_of_fetch_during_background_sync(project):
    missing = "0123456789abcdef" * 2 + "01234567"
    pin = project.top / ".dolt-version"
    pin.write_text(pin.read_text().replace(project.pinned, missing))
    discard = "run 'git checkout -- .dolt-version' to discard your change of the pin"
    assert project.status()["hint"] == f"{discard}, or 'vmrag fetch' to fetch the revision"
    project.git("add", ".dolt-version")
    assert project.status()["hint"] == "run 'vmrag fetch' to fetch the revision"
    job = background.get_sync_job(plumbing.locate_work_tree(project.top))
    with locks.hold_exclusive(job.lock, purpose="sync in the background", timeout=1):
        report = project.status()
    assert (report["state"], report["hint"]) == ("missing", "run 'vmrag sync' to wait for it")
    assert any(reason.endswith("A sync in the background fetches it.") for reason in report["reasons"])
