"""`mode: link` of the Action: everybody who clones learns which commit has which revision."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import pytest

from tests.support import events, hosted, people
from tests.support.actions_runner import CacheService, Finished
from tests.support.hosted import Ci

pytestmark = pytest.mark.hooks("off")

shared, world, ci = people.shared, people.world, hosted.ci


def link(ci: Ci, before: str, after: str, branch: str = "main", **given: str) -> Finished:
    return ci.on_push(before=before, sha=after, ref=f"refs/heads/{branch}", mode="link", **given)


def links(ci: Ci, name: str) -> dict[str, tuple[str, str, str]]:
    """Return the links that a new clone sees: revision, branch and source by commit."""
    reader = ci.world.join(name)
    reader.vmrag("clone")
    result = reader.ask("links", "list")["links"]
    return {link["git_commit"]: (link["dolt_commit"], link["git_branch"], link["source"]) for link in result}


def test_pushed_commits_are_linked_for_new_clones(ci):
    ada, before = ci.ada, ci.tip
    first = ada.write_document("first.md", "one")
    ada.write("notes.txt", "no knowledge\n")
    ada.git("add", "-A")
    ada.git("commit", "-q", "-m", "code")
    second = ada.write_document("second.md", "two")
    ada.push("origin", "main")
    result = link(ci, before, ci.tip)
    assert (result.passed, result.outputs["linked"]) == (True, "2")
    expected = {
        ada.git("rev-parse", "HEAD~2"): (first, "main", "pin"),
        ada.git("rev-parse", "HEAD"): (second, "main", "pin"),
    }
    assert links(ci, "bob") == expected
    again = link(ci, before, ci.tip)
    assert (again.passed, again.outputs["linked"]) == (True, "0")
    code_alone = link(ci, ada.git("rev-parse", "HEAD~2"), ada.git("rev-parse", "HEAD~1"))
    assert (code_alone.passed, code_alone.outputs["linked"]) == (True, "0")
    assert "0 commits with another pin" in code_alone.log
    assert "Fetching the knowledge base" not in code_alone.log  # the knowledge base is not needed for that


@pytest.mark.long
def test_two_jobs_at_once_lose_no_links(ci, tmp_path):
    ada, start = ci.ada, ci.tip
    pushed = {}
    for name in ("one", "two"):
        ada.git("switch", "-q", "-c", name, "main")
        ada.write_document(f"{name}.md", name)
        ada.push("origin", name)
        pushed[name] = ada.git("rev-parse", "HEAD")
    jobs = {name: Ci(ci.world, tmp_path / name, CacheService(tmp_path / name / "cache")) for name in pushed}
    with ThreadPoolExecutor(2) as pool:
        result = list(pool.map(lambda name: link(jobs[name], start, pushed[name], name), pushed))
    assert [(run.passed, run.outputs["linked"]) for run in result] == [(True, "1")] * 2
    assert {commit: branch for commit, (_, branch, _) in links(ci, "bob").items()} == {
        commit: name for name, commit in pushed.items()
    }


def test_by_hand_the_history_of_the_checkout_is_linked(ci):
    ada = ci.ada
    ada.write_document("first.md", "one")
    ada.push("origin", "main")
    result = ci.run(
        "workflow_dispatch", {"repository": events.OWN}, sha=ci.tip, ref="refs/heads/main", mode="link", depth=None
    )
    assert (result.passed, result.outputs["linked"]) == (True, "2")
    assert set(links(ci, "bob")) == set(ada.git("rev-list", "HEAD").split())


def test_pull_request_is_not_linked(ci):
    before = ci.world.hub.git("for-each-ref", people.DATA)
    run = ci.on_pull_request(ci.tip, ci.tip, mode="link", source=events.FORK)
    assert (run.passed, run.outputs["linked"]) == (True, "0")
    assert "nothing to do on pull_request" in run.log
    assert ci.world.hub.git("for-each-ref", people.DATA) == before
