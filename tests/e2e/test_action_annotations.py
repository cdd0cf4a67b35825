"""Annotations of the Action: the worst first, and at the pin only if the pin is the cause."""

from __future__ import annotations

import shutil

import pytest

from tests.support import hosted, people
from tests.support.actions_runner import Finished
from tests.support.repos import Repo

pytestmark = pytest.mark.hooks("off")

shared, world, ci = people.shared, people.world, hosted.ci

ENVIRONMENT = "The job's environment: "


def errors(run: Finished) -> list[tuple[str, str]]:
    return [(annotation.title, annotation.file) for annotation in run.annotations if annotation.level == "error"]


def test_findings_above_the_limit_show_the_worst_and_count_the_rest(ci):
    before = ci.tip
    missing = (ci.ada.top / ".dolt-version").read_text().replace(ci.ada.pinned, "f" * 40)
    ci.ada.commit("not pushed", pin=missing)
    for number in range(16):
        ci.ada.commit(f"broken {number}", pin=f"no pin {number}\n")
    ci.ada.git("push", "-q", "--no-verify")
    run = ci.on_push(before=before, mode="verify")
    assert not run.passed
    assert run.outputs["findings"] == "17"
    assert errors(run) == [("PIN_MALFORMED", ".dolt-version")] * 10
    said = run.said("error")
    assert [line for line in said if "more: see the summary" in line] == [said[9]]
    assert said[9].endswith("\nand 7 more: see the summary")
    assert run.summary.count("| error |") == 17
    assert "NOT_ON_REMOTE" in run.summary
    assert "NOT_ON_REMOTE" not in "\n".join(said)  # the first in history, and not the worst
    assert "does not have" in run.log


def test_ten_findings_make_ten_annotations_in_repair_mode(ci):
    before = ci.tip
    for number in range(10):
        ci.ada.commit(f"broken {number}", pin=f"no pin {number}\n")
    ci.ada.git("push", "-q", "--no-verify")
    run = ci.on_push(before=before, mode="repair", fail_on="never")
    assert run.passed
    assert (run.outputs["repaired"], run.outputs["findings"]) == ("false", "10")
    assert "Nothing to repair on main. 10 findings for you to fix." in run.log
    assert len(run.said("warning")) == 10
    assert "more: see the summary" not in run.log


@pytest.mark.parametrize("mode", ["sync", "verify", "repair"])
@pytest.mark.sample(1)
def test_unreachable_remote_is_not_annotated_at_the_pin(ci, mode):
    gone = lambda repo: repo.git("remote", "set-url", "origin", "http://127.0.0.1:1/them/project.git")  # noqa: E731
    run = ci.on_push(mode=mode, first=gone, fail_on="never")
    assert not run.passed  # what cannot be tried always fails
    assert errors(run) == [(ENVIRONMENT + "REMOTE_UNREACHABLE", "")]
    assert run.said("error")[0].endswith("The pin was not checked.")
    if mode == "sync":
        assert "Could not sync the knowledge base" in run.summary


def test_missing_history_is_not_annotated_at_the_pin(ci):
    """The repository that was cloned from is a shallow one itself."""
    ci.ada.put("new.md", "Otters.")
    ci.ada.vmrag("commit", "-m", "new")
    ci.ada.git("commit", "-q", "-am", "new")
    ci.ada.git("push", "-q", "--no-verify")
    tip = ci.tip
    cut = ci.folder / "cut.git"
    ci.ada.git("clone", "-q", "--bare", "--depth=1", f"file://{ci.world.hub.top}", str(cut))
    shutil.rmtree(ci.world.hub.top)
    cut.rename(ci.world.hub.top)
    assert Repo(ci.world.hub.top).git("rev-list", "--count", "main") == "1"
    run = ci.on_push(before=ci.ada.git("rev-parse", "main~1"), sha=tip, mode="verify")
    assert not run.passed
    assert set(errors(run)) == {(ENVIRONMENT + "GIT_FAILED", "")}


def test_mistake_in_the_workflow_is_neither_the_pins_nor_the_environments(ci):
    run = ci.on_push(mode="destroy")
    assert errors(run) == [("INVALID_PARAMETER", "")]
