"""Every mode of the Action in a merge queue: `verify` decides, `report` tells, and what pushes
leaves all as it is.
"""

from __future__ import annotations

import html
from collections.abc import Iterator

import pytest

from tests.support import dropping, events, hosted, people
from tests.support.actions_runner import Finished
from tests.support.checkout import TOKEN
from tests.support.github_rest import GitHubApi, github_api
from tests.support.hosted import Ci
from tests.support.repos import ON
from vmrag_action.inputs import MODES

pytestmark = pytest.mark.hooks("off")

shared, parted, world, ci = people.shared, dropping.parted, dropping.world, hosted.ci


@pytest.fixture
def api() -> Iterator[GitHubApi]:
    with github_api(TOKEN) as server:
        yield server


def queued(ci: Ci, api: GitHubApi, group: str, mode: str = ",".join(MODES)) -> Finished:
    """A group that GitHub made of `main` and a pull request."""
    ref = f"refs/heads/gh-readonly-queue/main/pr-7-{ci.tip}"
    ci.world.hub.git("update-ref", ref, group)
    payload = events.merge_group(ci.tip, group)
    return ci.run("merge_group", payload, sha=group, ref=ref, mode=mode, environ={"GITHUB_API_URL": api.url})


def test_complete_group_passes_without_pushes(ci, api):
    ada, hub = ci.ada, ci.world.hub
    ada.write(".vmrag/queries.yaml", "queries:\n  - query: otters\n    expect: [handbook/topic.md]\n")
    ada.git("switch", "-q", "topic")
    ada.vmrag("install", "-q")
    ada.git("merge", "-q", "--no-edit", "main", env=ON)
    ada.git("add", "-A")
    ada.git("commit", "-q", "-m", "what must be found")
    ada.push("origin", "topic")
    group = hub.git("commit-tree", "topic^{tree}", "-p", "main", "-p", "topic", "-m", "Merge pull request #7")
    refs = hub.git("for-each-ref")
    result = queued(ci, api, group)
    assert result.passed
    assert "nothing is lost" in result.step("verify").log
    assert "Golden queries: 1; all as expected." in result.step("check").log
    for mode in ("repair", "update", "link"):
        said = f"mode: {mode} has nothing to do on merge_group: "
        assert said in result.step(mode).log
        assert said in html.unescape(result.step(mode).summary)
    assert (result.outputs["repaired"], result.outputs["updated"], result.outputs["linked"]) == ("false", "0", "0")
    assert "topic.md" in html.unescape(result.step("report").summary)
    assert (result.outputs["documents-changed"], result.outputs["report-path"]) == ("1", "")
    refs_without_the_queue = [line for line in hub.git("for-each-ref").splitlines() if "queue" not in line]
    assert refs_without_the_queue == refs.splitlines()
    assert api.methods == []


def test_squashed_group_that_drops_knowledge_fails(ci, api):
    """The conflict was resolved in the web editor with the branch's pin.

    Another test covers a queue that makes merge commits.
    """
    hub = ci.world.hub
    group = hub.git("commit-tree", "topic^{tree}", "-p", "main", "-m", "Topic (#7)")
    result = queued(ci, api, group, "repair,verify,report")
    assert not result.passed
    assert result.step("verify").outcome == "failure"
    assert "KNOWLEDGE_DROPPED" in html.unescape(result.step("verify").summary)
    assert [annotation.file for annotation in result.annotations if annotation.level == "error"] == [".dolt-version"]
    assert result.step("report").outcome == "success"  # it still reports the effect of the group


def test_group_behind_another_is_compared_with_that_one(ci, api):
    """The queue builds the second group on the first, which is on no branch yet."""
    ada, hub = ci.ada, ci.world.hub
    first = hub.git("commit-tree", "main^{tree}", "-p", "main", "-m", "Merge pull request #6")
    ada.git("switch", "-q", "-c", "second", "main")
    ada.write_document("second.md", "The second group knows of seals.")
    ada.push("origin", "second")
    second = hub.git("commit-tree", "second^{tree}", "-p", first, "-p", "second", "-m", "Merge pull request #8")
    ref = f"refs/heads/gh-readonly-queue/main/pr-8-{first}"
    hub.git("update-ref", ref, second)
    result = ci.run("merge_group", events.merge_group(first, second), sha=second, ref=ref, mode="verify,report")
    assert result.passed
    assert result.outputs["documents-changed"] == "1"
