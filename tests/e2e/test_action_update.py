"""`mode: update` of the Action: of two pull requests that both change knowledge, the second one can
be merged after the first has landed.
"""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from tests.support import dropping, events, hosted, people
from tests.support.actions_runner import CacheService, Finished
from tests.support.checkout import TOKEN
from tests.support.events import FORK, OWN
from tests.support.github_rest import GitHubApi, github_api
from tests.support.hosted import Ci
from tests.support.people import User
from tests.support.repos import Repo
from vmrag_action.github_api import GitHub
from vmrag_link.errors import AuthenticationFailed

pytestmark = pytest.mark.hooks("off")

shared, parted, world, ci = people.shared, dropping.parted, dropping.world, hosted.ci

HOSTILE = "a'b;$(touch${IFS}owned)`id`"


@pytest.fixture
def api() -> Iterator[GitHubApi]:
    with github_api(TOKEN) as server:
        yield server


def request(ci: Ci, number: int, branch: str, *, source: Any = OWN, base: str = "main", head: str = "") -> Any:
    """An open pull request, as GitHub's API tells of it."""
    sha = head or ci.world.hub.git("rev-parse", branch)
    pull_request = events.pull_request(ci.tip, sha, number=number, source=source, ref=base)["pull_request"]
    return pull_request | {
        "head": pull_request["head"] | {"ref": branch, "label": f"{source['owner']['login']}:{branch}"}
    }


def update(ci: Ci, api: GitHubApi, **given: Any) -> Finished:
    """`main` was pushed."""
    environ = {"GITHUB_API_URL": api.url}
    return ci.on_push(before=ci.world.hub.git("rev-parse", "main~1"), mode="update", environ=environ, **given)


def merged_by_the_host(hub: Repo, branch: str) -> str:
    """Return the result of plain git for the merge button, without any driver or attributes."""
    result = subprocess.run(
        ["git", "merge-tree", "--write-tree", "--name-only", "main", branch],
        cwd=hub.top,
        capture_output=True,
        text=True,
        check=False,
    )
    return result.stdout.split("\n", 1)[1].strip() if result.returncode else ""


def landed(hub: Repo, branch: str) -> str:
    """The merge button."""
    tree = hub.git("merge-tree", "--write-tree", "main", branch)
    commit = hub.git("commit-tree", tree, "-p", "main", "-p", branch, "-m", "Merge pull request")
    hub.git("update-ref", "refs/heads/main", commit)
    return commit


def test_second_request_can_be_merged_after_the_first(ci, api):
    hub = ci.world.hub
    before, tip = hub.git("rev-parse", "topic"), ci.tip
    assert merged_by_the_host(hub, "topic").startswith(".dolt-version")
    api.listed = [request(ci, 7, "topic")]
    run = update(ci, api)
    assert (run.passed, run.outputs["updated"]) == (True, "1")
    assert merged_by_the_host(hub, "topic") == ""
    made = hub.git("rev-parse", "topic")
    assert hub.git("rev-parse", "topic^@").split() == [before, tip]
    assert hub.git("show", "-s", "--format=%s", "topic") == "Merge branch 'main' into topic"
    assert hub.git("diff", "--name-only", "main", "topic").split() == [".dolt-version", "docs/topic.md"]
    expected = {"topic.md": "Only the topic knows of otters.", "rest.md": "# Rest\n\nSleep at noon.\n"}
    assert dropping.documents(ci.world, made).items() >= expected.items()
    assert f"main is merged into topic as {made[:12]}" in run.said("notice")[-1]

    again = update(ci, api)
    assert (again.passed, again.outputs["updated"], hub.git("rev-parse", "topic")) == (True, "0", made)
    assert "topic has everything that main has" in again.log

    ada = ci.ada
    ada.vmrag("install", "-q")
    ada.git("switch", "-q", "topic")
    ada.git("merge", "-q", "--no-edit", "main")  # at home the driver makes the same of it
    assert ada.pinned == json.loads(hub.git("show", "topic:.dolt-version"))["dolt_commit"]

    landed(hub, "topic")
    ada.git("fetch", "-q")
    ada.vmrag("fetch")
    ada.vmrag("verify", f"{tip}..origin/main")


def test_update_reports_conflicts_and_forks_without_pushing(ci, api):
    """Code in conflict, knowledge in conflict, forks, names, and the default branch: in one run."""
    ada, hub = ci.ada, ci.world.hub
    argue(ada)
    ada.git("switch", "-q", "-c", "calm", "main~1")
    ada.write("notes.txt", "no knowledge\n")
    ada.git("add", "-A")
    ada.git("commit", "-q", "-m", "calm")
    ada.push("origin", "calm")
    ada.git("switch", "-q", "-c", "unpinned", "main~1")
    ada.git("rm", "-q", ".dolt-version")
    ada.git("commit", "-q", "-m", "unpinned")
    ada.push("origin", "unpinned")
    hub.git("update-ref", "refs/pull/11/head", hub.git("rev-parse", "topic"))
    hub.git("branch", "release", "main~1")
    before = refs(hub)
    api.listed = [
        request(ci, 8, "clash"),
        request(ci, 9, "argue"),
        request(ci, 10, "calm"),
        request(ci, 11, HOSTILE, source=FORK, head=hub.git("rev-parse", "topic")),
        request(ci, 12, "a..b", head=hub.git("rev-parse", "topic")),
        request(ci, 13, "main", base="main"),
        request(ci, 14, "gone", head=hub.git("rev-parse", "topic")),
        request(ci, 16, "unpinned"),
        request(ci, 15, "other", base="release", head=hub.git("rev-parse", "topic")),
    ]
    run = update(ci, api)
    assert (run.passed, run.outputs["updated"]) == (True, "0")
    assert refs(hub) == before
    said = {
        annotation[: annotation.index(":")]: annotation for annotation in (*run.said("warning"), *run.said("notice"))
    }
    assert said.keys() == {"#8", "#9", "#11", "#12", "#16"}
    assert "conflicts with main in more than the pin, so nothing was pushed" in said["#8"]
    assert "docs/rest.md" in said["#8"]
    assert "changed the same parts of documents, so nothing was pushed: handbook/rest.md" in said["#9"]
    assert "git fetch origin && git switch argue && git merge origin/main" in said["#9"]
    assert said["#11"].endswith("\ngit pull --no-rebase https://github.example/them/project main\ngit push")
    assert "fork me/project" in said["#11"]
    assert "git does not allow a branch of that name" in said["#12"]
    assert "unpinned has no pin" in said["#16"]
    assert "calm merges into main without conflicts" in run.log
    assert "main is the default branch" in run.log
    assert "gone or main no longer exists" in run.log
    assert "other" not in run.log
    assert "`id`" not in run.summary  # as text: punctuation is written as character references
    assert not list(ci.workspace.glob("owned*"))


def argue(ada: User) -> None:
    """Create a branch that differs from `main` only in its knowledge."""
    ada.git("switch", "-q", "-c", "argue", "main~1")
    ada.write("docs/rest.md", "# Rest\n\nSleep at dawn.\n")
    ada.vmrag("import", "docs", "--collection", "handbook", "--copy", "--base", "docs")
    ada.vmrag("commit", "-m", "dawn")
    ada.git("checkout", "-q", "HEAD", "--", "docs")
    ada.git("commit", "-q", "-m", "dawn", "--", ".dolt-version")
    ada.push("origin", "argue")


def refs(hub: Repo) -> str:
    return hub.git("for-each-ref")


@pytest.mark.long
def test_branches_that_have_merged_each_other_before_are_merged_from_both(ci, api):
    """git has two merge bases then, and the merge driver joins their pins."""
    ada, hub = ci.ada, ci.world.hub
    ada.vmrag("install", "-q")
    ada.git("switch", "-q", "topic")
    early = {name: ada.git("rev-parse", name) for name in ("main", "topic")}
    ada.git("merge", "-q", "--no-edit", early["main"])
    ada.write_document("topic.md", "Only the topic knows of seals.")
    ada.push("origin", "topic")
    ada.git("switch", "-q", "main")
    ada.git("merge", "-q", "--no-ff", "--no-edit", early["topic"])
    ada.write_document("rest.md", "# Rest\n\nSleep at two.\n")
    ada.push("origin", "main")
    assert len(ada.git("merge-base", "--all", "main", "topic").split()) == 2
    assert merged_by_the_host(hub, "topic").startswith(".dolt-version")
    api.listed = [request(ci, 7, "topic")]
    run = update(ci, api)
    assert (run.passed, run.outputs["updated"]) == (True, "1")
    expected = {"topic.md": "Only the topic knows of seals.", "rest.md": "# Rest\n\nSleep at two.\n"}
    assert dropping.documents(ci.world, hub.git("rev-parse", "topic")).items() >= expected.items()


@pytest.mark.parametrize("event", ["workflow_dispatch", "pull_request_target"])
@pytest.mark.sample(1)
def test_pull_request_is_updated_on_its_own_and_by_hand(event, ci, api):
    hub, api.listed = ci.world.hub, [request(ci, 7, "topic")]
    given = {"sha": ci.tip, "ref": "refs/heads/main", "mode": "update", "environ": {"GITHUB_API_URL": api.url}}
    if event == "workflow_dispatch":
        result = ci.run(event, {"inputs": {"branch": "topic"}, "repository": OWN}, branch="topic", **given)
    else:
        comparison = events.pull_request(ci.tip, hub.git("rev-parse", "topic"), source=OWN)
        comparison["pull_request"]["head"]["ref"] = "topic"
        result = ci.run(event, comparison, **given)
        assert api.methods == []
    assert (result.passed, result.outputs["updated"]) == (True, "1")
    assert merged_by_the_host(hub, "topic") == ""


@pytest.mark.parametrize("event", ["merge_group", "tag", "release"])
@pytest.mark.sample(1)
def test_other_events_have_nothing_to_update(event, ci, api):
    hub = ci.world.hub
    before, sha = refs(hub), ci.tip
    payload, ref = {
        "merge_group": (events.merge_group(hub.git("rev-parse", "main~1"), sha), "refs/heads/gh-readonly-queue/main"),
        "tag": (events.push(events.ZEROS, sha, ref="refs/tags/v1"), "refs/tags/v1"),
        "release": ({"repository": OWN}, "refs/tags/v1"),
    }[event]
    result = ci.run("push" if event == "tag" else event, payload, sha=sha, ref=ref, mode="update,link")
    assert (result.passed, result.outputs["updated"], result.outputs["linked"]) == (True, "0", "0")
    assert result.log.count("has nothing to do on ") == 2
    assert refs(hub) == before
    assert api.methods == []


def test_concurrent_updates_update_once(ci, api, tmp_path):
    api.listed = [request(ci, 7, "topic")]
    before = ci.world.hub.git("rev-parse", "topic")
    jobs = [Ci(ci.world, tmp_path / name, CacheService(tmp_path / name / "cache")) for name in ("one", "two")]
    with ThreadPoolExecutor(2) as pool:
        result = list(pool.map(lambda job: update(job, api), jobs))
    assert [run.passed for run in result] == [True, True]
    assert sorted(run.outputs["updated"] for run in result) == ["0", "1"]
    assert ci.world.hub.git("rev-list", "--count", f"{before}..topic", "^main") == "1"


def test_update_fails_if_host_refuses_the_branch(ci, api):
    hub, api.listed = ci.world.hub, [request(ci, 7, "topic"), request(ci, 8, "clash")]
    dropping.protect(hub, "topic")
    before = hub.git("rev-parse", "topic")
    run = update(ci, api)
    assert (run.passed, run.outputs["updated"], hub.git("rev-parse", "topic")) == (False, "0", before)
    assert "GH006" in run.said("error")[0]
    assert "clash conflicts with main" in run.log  # the other requests are still checked


def test_pull_requests_are_listed_a_page_at_a_time(ci, api):
    one = request(ci, 1, "topic")
    api.listed = [one | {"number": number} for number in range(1, 202)]
    api.listed.append(one | {"number": 300, "state": "closed"})
    github = GitHub(api.url, api.repository, TOKEN)
    assert [request.number for request in github.list_pull_requests(base="main")] == list(range(1, 202))
    assert api.methods == ["GET"] * 3
    assert github.list_pull_requests(base="release") == github.list_pull_requests(head="elsewhere") == []
    assert len(github.list_pull_requests(head="topic")) == 201
    with pytest.raises(AuthenticationFailed) as caught:
        github._replace(token="another").list_pull_requests(base="main")
    assert caught.value.hint == "set 'permissions: pull-requests: read' for the job"
    assert "another" not in str(caught.value)


def test_update_merges_no_branches_for_untrusted_users(ci, api):
    """Any reader can open a pull request of two existing branches."""
    hub = ci.world.hub
    before = refs(hub)
    theirs = request(ci, 7, "topic") | {"author_association": "CONTRIBUTOR", "user": {"login": "me", "type": "User"}}
    api.listed = [theirs, theirs | {"number": 8, "author_association": "", "user": None}]
    run = update(ci, api)
    assert (run.passed, run.outputs["updated"], refs(hub)) == (True, "0", before)
    assert run.log.count("no write access to the repository") == 2

    hub.git("branch", "evil", "main")
    comparison = events.pull_request(ci.tip, hub.git("rev-parse", "topic"), source=OWN, ref="evil")
    comparison["pull_request"]["head"]["ref"] = "topic"
    run = ci.run("pull_request_target", comparison, sha=ci.tip, ref="refs/heads/main", mode="update")
    assert (run.passed, run.outputs["updated"]) == (True, "0")
    assert "base evil is not the default branch" in run.log

    api.listed = [theirs | {"user": {"login": "../../me", "type": "User"}}]
    api.people = {"me": "read"}
    assert update(ci, api).outputs["updated"] == "0"
    api.listed = [theirs | {"user": {"login": "dependabot[bot]", "type": "Bot"}}]
    assert update(ci, api).outputs["updated"] == "1"


def test_private_member_is_treated_as_a_member(ci, api):
    """GitHub calls them a contributor in what it lists."""
    api.listed = [
        request(ci, 7, "topic") | {"author_association": "CONTRIBUTOR", "user": {"login": "Quiet-1", "type": "User"}}
    ]
    api.people = {"Quiet-1": "write"}
    assert update(ci, api).outputs["updated"] == "1"


def test_update_handles_unrelated_fork_last_without_failing(ci, api):
    """Its author pushed commits that have nothing in common with the base, after it was opened."""
    hub = ci.world.hub
    strange = hub.git("commit-tree", hub.git("mktree", stdin=""), "-m", "strange")
    hub.git("update-ref", "refs/pull/11/head", strange)
    api.listed = [request(ci, 11, "strange", source=FORK, head=strange), request(ci, 7, "topic")]
    run = update(ci, api)
    assert (run.passed, run.outputs["updated"], run.said("error")) == (True, "1", [])
    assert run.said("warning")[0].startswith("#11: could not update strange.")
    assert run.log.index("#7: main is merged") < run.log.index("#11: ")


HOOKS = ("pre-commit", "post-merge", "post-checkout", "pre-push", "pre-merge-commit", "commit-msg")


def plant(marker: Path) -> Callable[[Repo], None]:
    """Install filters and drivers as `git lfs install` does, and hooks: programs that untrusted
    attributes could start.
    """

    def do(repo: Repo) -> None:
        repo.git("config", "filter.evil.smudge", f"touch {marker}; cat")
        repo.git("config", "filter.evil.clean", f"touch {marker}; cat")
        repo.git("config", "merge.evil.driver", f"touch {marker}; exit 0")
        for name in HOOKS:
            hook = repo.write(f".git/hooks/{name}", f"#!/bin/sh\ntouch {marker}\n")
            hook.chmod(0o755)

    return do


def test_update_runs_nothing_of_a_branch(ci, api, tmp_path):
    """Its attributes name drivers and filters, it brings a submodule and hooks."""
    ada, hub, marker = ci.ada, ci.world.hub, tmp_path / "ran"
    ada.git("switch", "-q", "topic")
    ada.write(".gitattributes", "* merge=evil filter=evil\n")
    ada.write(".gitmodules", '[submodule "evil"]\n\tpath = evil\n\turl = ext::sh -c touch% ' + f"{marker}\n")
    ada.git("update-index", "--add", "--cacheinfo", f"160000,{'1' * 40},evil")
    ada.git("add", ".gitattributes", ".gitmodules")
    ada.git("commit", "-q", "-m", "evil")
    ada.push("origin", "topic")
    api.listed = [request(ci, 7, "topic")]
    run = update(ci, api, first=plant(marker))
    assert (run.passed, run.outputs["updated"]) == (True, "1")
    assert not marker.exists()
    assert hub.git("ls-tree", "topic", "evil").startswith("160000")
    assert hub.git("show", "topic:docs/rest.md") == "# Rest\n\nSleep at noon."


def test_branch_with_concurrent_push_keeps_its_commits(ci, api, tmp_path):
    """The host's own hook simulates a faster push: it runs before the branch moves."""
    ada, hub = ci.ada, ci.world.hub
    ada.git("switch", "-q", "topic")
    ada.write("late.txt", "late\n")
    ada.git("add", "late.txt")
    ada.git("commit", "-q", "-m", "late")
    ada.push("origin", "topic:refs/heads/late")
    late = hub.git("rev-parse", "late")
    hook = hub.write(
        "hooks/update",
        f'#!/bin/sh\ntest "$1" = refs/heads/topic || exit 0\ntest -e {tmp_path}/once && exit 0\n'
        f"touch {tmp_path}/once\nenv -u GIT_QUARANTINE_PATH git update-ref refs/heads/topic {late}\n",
    )
    hook.chmod(0o755)
    api.listed = [request(ci, 7, "topic")]
    run = update(ci, api)
    assert (run.passed, run.outputs["updated"]) == (True, "1")
    assert (tmp_path / "once").exists()
    assert hub.git("rev-parse", "topic^1") == late
    assert merged_by_the_host(hub, "topic") == ""
