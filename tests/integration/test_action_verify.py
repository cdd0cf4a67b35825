"""Findings of the Action in the pins of an event's commits, in checkouts of one commit: from the
event through the fetched history to `verify_between`.
"""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path

import pytest
import yaml

from tests.support import code_history, events, recipes
from tests.support.code_history import World, pin_of
from tests.support.events import FORK, OWN, Job, checkout
from tests.support.repos import Repo, make_repo
from tests.support.terminal import SCRIPT, Project
from vmrag_action.events import Comparison, read_comparison
from vmrag_link import hints
from vmrag_link.errors import VmragError
from vmrag_link.ops.verify.verify import VerifyReport, verify_between
from vmrag_link.progress import QUIET
from vmrag_link.workspace import Workspace
from vmrag_link.workspace.commits import deepen

pytestmark = pytest.mark.hooks("off")

built, forked_once, forked = code_history.built, code_history.forked_once, code_history.forked


class Upstream:
    """`origin.git` has the branches `main` and `side`, which have both moved the pin since `base`,
    and the knowledge that these pin.
    """

    def __init__(self, world: World, folder: Path) -> None:
        self.folder, self.world = folder, world
        self.hub = Repo(folder / "origin.git")
        world.git("init", "-q", "--bare", str(self.hub.top))
        world.git("remote", "add", "origin", str(self.hub.top))
        for branch in ("side", "main"):
            world.git("switch", "-q", branch)
            world.git("push", "-q", "origin", branch, "base")
            world.vmrag("push")
        self._jobs = 0

    def commit(self, pin: str | bytes | None, *parents: str, ref: str = "refs/pull/7/merge") -> str:
        """A commit of the code that pins a revision, on the hub."""
        made = self.world.code(pin, *[self.world.git("rev-parse", parent) for parent in parents])
        self.world.git("push", "-q", "--force", str(self.hub.top), f"{made}:{ref}")
        return made

    def tip(self, branch: str = "main") -> str:
        return self.hub.git("rev-parse", branch)

    def judged(self, event: str, payload: object, *, sha: str, ref: str = "refs/heads/main") -> VerifyReport:
        """Verify like the Action, in a fresh checkout of one commit."""
        self._jobs += 1
        self.checkout = checkout(self.hub.top, self.folder / f"job{self._jobs}", sha)
        job = Job(self.folder, event, payload, sha=sha, ref=ref)
        ws = Workspace.open(self.checkout.top, QUIET)
        try:
            self.comparison: Comparison = read_comparison(job.environ, ws.places)
            comparison = self.comparison
            deepen.make_comparable(ws.places, comparison.base, comparison.head)
            return verify_between(
                ws, comparison.base, comparison.head, base_name=comparison.base_name, fork=comparison.fork
            )
        finally:
            ws.close()

    def pull_request(self, head: str, merged_pin: str, *, source: object = FORK) -> VerifyReport:
        """`head` is known as `refs/pull/7/head`."""
        merge = self.commit(merged_pin, self.tip(), head)
        return self.judged("pull_request", events.pull_request(self.tip("base"), head, source=source), sha=merge)


@pytest.fixture
def upstream(forked: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Upstream:
    monkeypatch.setenv("VMRAG_EMBEDDING_MODEL", "hash")
    return Upstream(forked, tmp_path)


def told(report: VerifyReport) -> list[tuple[str, str]]:
    return [(finding.level, finding.code) for finding in report.findings]


def test_pull_request_that_omits_new_knowledge_of_its_base_drops_it(upstream):
    world = upstream.world
    report = upstream.pull_request(upstream.tip("side"), world.revision("side"), source=OWN)
    assert told(report) == [("error", "KNOWLEDGE_DROPPED")]
    assert report.findings[0].hint == "run 'git merge origin/main', or 'git rebase origin/main'"
    assert (report.commits, report.shallow) == (2, False)
    both = world.on(world.revision("main"), joining=world.revision("side"))
    world.git("switch", "-q", "-c", "joined", "side")
    world.git("merge", "-q", "-s", "ours", "--no-commit", "main")
    joined = world.commit("joined", pin=pin_of(both))
    world.vmrag("push")
    world.git("push", "-q", "origin", "joined:refs/pull/7/head")
    assert told(upstream.pull_request(joined, both, source=OWN)) == []


@pytest.mark.parametrize("way", ["finding", "workflow"])
def test_revision_of_a_fork_is_imported_by_the_suggested_command(upstream, way):
    """The fork's knowledge is neither asked for nor here after the check."""
    world = upstream.world
    revision = world.on(world.revision("main"), news="What a contributor knows.")
    head = upstream.commit(revision, "main", ref="refs/pull/7/head")
    report = upstream.pull_request(head, revision)
    assert told(report) == [("error", "NOT_ON_REMOTE")]
    [hinted] = hints.list_commands(report.findings[0].hint)
    assert hinted == (
        f"git fetch origin refs/pull/7/head && vmrag adopt https://github.example/me/project {report.findings[0].commit[:12]}"
    )
    with_knowledge = Workspace.open(upstream.checkout.top, QUIET)
    assert not with_knowledge.engine.has_revision(revision)
    with_knowledge.close()

    fork = upstream.folder / "fork.git"
    world.git("init", "-q", "--bare", str(fork))
    world.git("remote", "add", "fork", str(fork))
    world.git("switch", "-q", "-c", "proposal", head)
    world.vmrag("push", "fork")
    maintainer = Project(checkout(upstream.hub.top, upstream.folder / "maintainer", upstream.tip()).top)
    maintainer.vmrag("clone")
    maintainer.git("config", f"url.{fork}.insteadOf", "https://github.example/me/project")
    commands, variables = hinted, {}
    if way == "workflow":
        job = yaml.safe_load((recipes.WORKFLOWS / "adopt.yml").read_text())["jobs"]["adopt"]
        commands = job["steps"][-1]["run"]
        variables = {"NUMBER": "7", "COMMIT": head, "FORK": "https://github.example/me/project"}
        assert variables.keys() == job["steps"][-1]["env"].keys()
    environ = os.environ | variables | {"PATH": f"{SCRIPT.parent}:{os.environ['PATH']}"}
    bash = ["bash", "--noprofile", "--norc", "-eo", "pipefail", "-c", commands]
    result = subprocess.run(bash, cwd=maintainer.top, env=environ, capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stdout + result.stderr
    assert told(upstream.pull_request(head, revision)) == []


def test_pull_request_target_reads_the_head_without_checking_it_out(upstream):
    world = upstream.world
    revision = world.on(world.revision("main"), news="What a contributor knows.")
    head = upstream.commit(revision, "main", ref="refs/pull/7/head")
    payload = events.pull_request(upstream.tip("base"), head)
    report = upstream.judged("pull_request_target", payload, sha=upstream.tip())
    assert told(report) == [("error", "NOT_ON_REMOTE")]
    assert report.findings[0].commit == head
    assert not upstream.comparison.checked_out
    top = upstream.checkout
    assert (top.git("rev-parse", "HEAD"), top.git("status", "--porcelain")) == (upstream.tip(), "")
    assert head not in top.git("for-each-ref", "--format=%(objectname)")
    assert not (top.top / ".git/FETCH_HEAD").is_file() or head not in (top.top / ".git/FETCH_HEAD").read_text()


def test_merge_group_fails_if_it_drops_knowledge_and_passes_otherwise(upstream):
    world = upstream.world
    ref = "refs/heads/gh-readonly-queue/main/pr-7"
    for pin, expected in (
        (world.revision("side"), [("error", "KNOWLEDGE_DROPPED")]),
        (world.on(world.revision("main"), joining=world.revision("side")), [("error", "NOT_ON_REMOTE")]),
        (world.revision("main"), []),
    ):
        head = upstream.commit(pin, "main", ref=ref)
        assert (
            told(upstream.judged("merge_group", events.merge_group(upstream.tip(), head), sha=head, ref=ref))
            == expected
        )


def test_push_is_verified_from_the_previous_head(upstream):
    world = upstream.world
    before = upstream.tip()
    back = upstream.commit(world.revision("base"), before, ref="refs/heads/main")
    aside = upstream.commit(world.revision("side"), back, ref="refs/heads/main")
    report = upstream.judged("push", events.push(before, aside), sha=aside)
    assert told(report) == [("information", "MOVED_BACK")]  # from there `side` is ahead
    assert report.clean
    straight = upstream.commit(world.revision("side"), before, ref="refs/heads/main")
    report = upstream.judged("push", events.push(before, straight, forced=False), sha=straight)
    assert told(report) == [("error", "KNOWLEDGE_DROPPED")]


def test_forced_push_does_not_miss_removed_pins(upstream):
    before, after = upstream.tip(), upstream.tip("base")
    upstream.hub.git("update-ref", "refs/keep", before)
    upstream.world.git("push", "-q", "--force", "origin", f"{after}:main")
    report = upstream.judged("push", events.push(before, after, forced=True), sha=after)
    assert (report.findings, report.commits) == ((), 0)


def test_single_commit_is_compared_with_its_parents(upstream):
    world = upstream.world
    merge = upstream.commit(world.revision("side"), "main", "side", ref="refs/heads/main")
    report = upstream.judged("schedule", {"schedule": "0 5 * * *"}, sha=merge)
    assert told(report) == [("error", "KNOWLEDGE_DROPPED")]
    assert report.commits == 3


def test_verify_without_pins_fetches_no_knowledge(upstream, tmp_path):
    host = make_repo(tmp_path / "plain")
    base, head = host.commit("1", a="1"), host.commit("2", a="2")
    repo = checkout(host.top, tmp_path / "checkout", head, depth=2)
    repo.git("remote", "set-url", "origin", "file:///nowhere")
    ws = Workspace.open(repo.top, QUIET)
    report = verify_between(ws, base, head)
    assert (report.commits, report.pins, report.findings, ws.is_initialized) == (1, 0, (), False)
    ws.close()


def test_remote_without_knowledge_is_an_error_if_commits_have_pins(upstream):
    upstream.hub.git("update-ref", "-d", "refs/vmrag/data")
    with pytest.raises(VmragError, match="has no knowledge base yet"):
        upstream.judged("push", events.push(upstream.tip("base"), upstream.tip()), sha=upstream.tip())


def test_missing_history_is_an_error(upstream):
    upstream.pull_request(upstream.tip("side"), upstream.world.revision("side"), source=OWN)
    comparison, again = upstream.comparison, checkout(upstream.hub.top, upstream.folder / "flat", upstream.tip("side"))
    again.git("fetch", "-q", "--depth=1", "origin", comparison.base or "")
    ws = Workspace.open(again.top, QUIET)
    report = verify_between(ws, comparison.base, comparison.head, base_name=comparison.base_name)
    assert ("error", "NOT_COMPARABLE") in told(report)
    ws.close()


def test_knowledge_is_fetched_only_from_a_pinned_remote_of_the_code(upstream):
    """The settings here need not know that it has moved; any other remote of a pin is not asked."""
    world, place = upstream.world, "refs/heads/vmrag/data"
    upstream.hub.git("update-ref", place, "refs/vmrag/data")
    upstream.hub.git("update-ref", "-d", "refs/vmrag/data")
    moved = json.loads(pin_of(world.revision("main"))) | {"dolt_remote": f"git:{place}"}
    before = upstream.tip()
    head = upstream.commit(f"{json.dumps(moved, indent=2)}\n".encode(), before, ref="refs/heads/main")
    assert told(upstream.judged("push", events.push(before, head), sha=head)) == []
    elsewhere = moved | {"dolt_remote": "git+https://127.0.0.1:9/evil.git"}
    head = upstream.commit(f"{json.dumps(elsewhere, indent=2)}\n".encode(), before, ref="refs/heads/main")
    with pytest.raises(VmragError, match="origin has no knowledge base yet"):
        upstream.judged("push", events.push(before, head), sha=head)
