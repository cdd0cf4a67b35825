"""Repair of a hosted branch, from the checkout of a job: what others do to it meanwhile counts."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import pytest

from tests.support import dropping, events, people
from tests.support.dropping import Landed
from tests.support.people import World
from tests.support.repos import Repo
from tests.support.terminal import opened
from vmrag_link.engines.own_branches import is_reserved
from vmrag_link.errors import PinMissing, RemoteMoved, RemoteRejected
from vmrag_link.git.remotes import Peer
from vmrag_link.merging import revisions
from vmrag_link.merging.revisions import make_virtual_base
from vmrag_link.ops.pull_requests.repair_branch import BranchRepair, HostedBranch, repair_branch
from vmrag_link.ops.pull_requests.update_branch import ATTEMPTS
from vmrag_link.progress import QUIET
from vmrag_link.transport import address
from vmrag_link.workspace import Workspace
from vmrag_link.workspace.commits import deepen
from vmrag_link.workspace.history import ranges

pytestmark = pytest.mark.hooks("off")

shared, parted, world = people.shared, dropping.parted, dropping.world


@dataclass
class Host:
    """The hosted repository, and jobs that repair its `main`."""

    world: World
    jobs: int = 0

    @property
    def hub(self) -> Repo:
        return self.world.hub

    @property
    def tip(self) -> str:
        return self.hub.git("rev-parse", "main")

    def repair(self, landed: Landed, meanwhile: Callable[[], object] = lambda: None) -> BranchRepair:
        """`meanwhile`: what happens after the branch was looked up, each time."""
        self.jobs += 1
        job = events.checkout(self.hub.top, self.world.top / f"job-{self.jobs}", landed.after)
        ws = Workspace.open(job.top, QUIET)

        def bring(base: str | None, head: str) -> None:
            deepen.make_comparable(ws.places, base, head)
            meanwhile()

        try:
            return repair_branch(ws, HostedBranch(Peer("origin"), "main", landed.before, bring))
        finally:
            ws.close()

    def move(self, name: str = "main", *, pin: str = "") -> str:
        """Push to the host: other code, or another pin."""
        entries = [line for line in self.hub.git("ls-tree", name).splitlines() if not line.endswith("\t.dolt-version")]
        blob = self.hub.git("hash-object", "-w", "--stdin", stdin=pin) if pin else ""
        entries += [f"100644 blob {blob}\t.dolt-version"] if pin else [self.hub.git("ls-tree", name, ".dolt-version")]
        tree = self.hub.git("mktree", stdin="\n".join(entries) + "\n")
        made = self.hub.git("commit-tree", tree, "-p", name, "-m", "somebody else's")
        self.hub.git("update-ref", f"refs/heads/{name}", made)
        return made

    def pin(self, commit: str = "main") -> dict[str, str]:
        content: dict[str, str] = json.loads(self.hub.git("show", f"{commit}:.dolt-version"))
        return content

    def parents(self, commit: str) -> str:
        return self.hub.git("rev-parse", f"{commit}^@")


@pytest.fixture
def host(world: World) -> Iterator[Host]:
    return Host(world)


def once(act: Callable[[], object]) -> Callable[[], None]:
    remaining = [act]
    return lambda: remaining.pop()() and None if remaining else None


@pytest.mark.long
def test_concurrently_moved_branch_is_checked_and_repaired_again(host):
    landed = dropping.squash(host.world.ada)
    moved: list[str] = []
    run = host.repair(landed, once(lambda: moved.append(host.move())))
    assert run.result == "repaired"
    assert (host.tip, host.parents("main")) == (run.commit, moved[0])


def test_branch_that_always_moves_is_given_up_and_never_forced(host):
    landed = dropping.squash(host.world.ada)
    moved: list[str] = []
    with pytest.raises(RemoteMoved, match=f"main moved {ATTEMPTS} times"):
        host.repair(landed, lambda: moved.append(host.move()))
    assert host.tip == moved[-1]
    assert len(moved) == ATTEMPTS


def test_repair_does_nothing_after_a_concurrent_manual_repair(host):
    landed = dropping.squash(host.world.ada)
    bob = host.world.join("bob")
    bob.vmrag("install")

    def by_hand() -> None:
        bob.vmrag("merge", "--repair", "HEAD")
        bob.git("commit", "-q", "-m", "Repaired")
        bob.push("origin", "main")

    run = host.repair(landed, once(by_hand))
    assert (run.result, run.dropped) == ("nothing", ())
    assert [repair.mended_by for repair in run.mended] == [host.tip]
    assert host.tip == bob.git("rev-parse", "HEAD")


def test_several_commits_that_dropped_are_one_repair_with_a_trailer_each(host):
    ada = host.world.ada
    first = dropping.squash(ada)
    ada.git("switch", "-q", "main")
    ada.git("reset", "-q", "--hard", first.after)
    ada.git("switch", "-q", "-c", "other", "topic~1")
    ada.write_document("other.md", "Only the other one knows of herons.")
    ada.push("origin", "other")
    ada.git("switch", "-q", "main")
    second = dropping.squash(ada, "other")
    run = host.repair(Landed(first.before, second.after, ""))
    assert run.result == "repaired"
    shown = host.hub.git("log", "-1", "--format=%s%n%(trailers:key=Vmrag-Repairs,valueonly)", "main").split("\n")
    assert shown[0] == "Merge the knowledge that 2 commits dropped"
    assert set(shown[1:]) == {first.after, second.after}
    names = dropping.documents(host.world, "main").keys()
    assert {"topic.md", "other.md"} <= names


def test_merge_that_kept_neither_side_gets_both(host):
    ada = host.world.ada
    before, base = ada.git("rev-parse", "main"), ada.git("merge-base", "main", "topic")
    ada.git("switch", "-q", "--detach", "main")
    ada.git("checkout", "-q", base, "--", ".dolt-version")
    tree = ada.git("write-tree")
    ada.git("reset", "-q", "--hard", ada.git("commit-tree", tree, "-p", "main", "-p", "topic", "-m", "Merge"))
    landed = dropping.land(ada, before)
    assert host.repair(landed).result == "repaired"
    texts = dropping.documents(host.world, "main")
    assert texts["rest.md"] == "# Rest\n\nSleep at noon.\n"
    assert "topic.md" in texts


def test_repair_of_branch_without_pin_raises_pin_missing(host):
    landed = dropping.squash(host.world.ada)
    ada = host.world.ada
    ada.git("switch", "-q", "--detach", landed.after)
    ada.git("rm", "-q", ".dolt-version")
    ada.git("commit", "-q", "--no-verify", "-m", "no pin")
    removed = dropping.land(ada, landed.after)
    with pytest.raises(PinMissing):
        host.repair(landed)
    assert host.tip == removed.after


# -- whose word counts


def test_pin_of_the_branch_keeps_its_other_keys_and_leads_nowhere(host):
    """A foreign pin names another remote, without an agreement."""
    landed = dropping.squash(host.world.ada)
    strange = host.pin() | {"dolt_remote": "http://127.0.0.1:1/kb", "dolt_branch": "theirs", "of a newer one": 3}
    host.move(pin=json.dumps(strange, indent=2) + "\n")
    run = host.repair(landed)
    assert run.result == "repaired"
    result = host.pin()
    changed = {key for key in result if result[key] != strange[key]}
    assert changed == {"dolt_commit", "linked_at"}
    assert host.world.holds(result["dolt_commit"])


def test_branches_of_the_knowledge_base_do_not_move_on_the_host(host):
    """Pins also contain their names."""
    landed = dropping.squash(host.world.ada)

    def heads(name: str) -> dict[str, str]:
        reader = host.world.join(name)
        reader.vmrag("clone")
        with opened(reader) as ws:
            remote_heads = ws.engine.remote_heads(address.remote_address(ws.places, "origin").key)
        return {name: head for name, head in remote_heads.items() if not is_reserved(name)}

    before = heads("before")
    assert host.repair(landed).result == "repaired"
    after = heads("after")
    assert before
    assert before == after


# -- a branch that refuses


def test_offered_repair_is_redone_after_its_branch_has_moved(host):
    landed = dropping.squash(host.world.ada)
    dropping.protect(host.hub)
    first = host.repair(landed)
    assert (first.result, first.offered_on) == ("offered", f"vmrag/repair-{landed.after[:8]}")
    tip = host.move()
    second = host.repair(landed)
    assert second.offered_on == first.offered_on
    assert host.hub.git("rev-parse", first.offered_on) == second.commit
    assert host.parents(second.offered_on) == tip
    assert host.repair(landed).commit == second.commit


def test_repair_keeps_commits_of_others_on_its_branch(host):
    landed = dropping.squash(host.world.ada)
    dropping.protect(host.hub)
    name = host.repair(landed).offered_on
    theirs = host.move(name)
    host.move()
    again = host.repair(landed)
    assert (again.offered_on, again.commit) == (name, theirs)
    assert host.hub.git("rev-parse", name) == theirs


@pytest.mark.parametrize("existing", ["main", "strange"])
def test_branch_of_that_name_that_repairs_nothing_is_not_replaced(host, existing):
    """`strange`: it could be where a pin, `git:refs/heads/vmrag…`, lets the knowledge lie."""
    landed = dropping.squash(host.world.ada)
    dropping.protect(host.hub)
    name = f"vmrag/repair-{landed.after[:8]}"
    empty = host.hub.git("mktree", stdin="")
    at = host.tip if existing == "main" else host.hub.git("commit-tree", empty, "-m", "strange")
    host.hub.git("update-ref", f"refs/heads/{name}", at)
    with pytest.raises(RemoteRejected, match=f"{name} already exists on the host"):
        host.repair(landed)
    assert host.hub.git("rev-parse", name) == at


@pytest.mark.parametrize("sign", ["vmrag's trailer", "no trailer"])
def test_repair_replaces_forged_repair_commits(host, sign):
    """A user with push access, but not to `main`, has pushed other code there first."""
    landed = dropping.squash(host.world.ada)
    dropping.protect(host.hub)
    run = host.repair(landed)
    assert run.commit
    entries = (
        host.hub.git("ls-tree", run.commit) + f"\n100644 blob {host.hub.git('rev-parse', 'main:.dolt-version')}\tevil"
    )
    tree, tip = host.hub.git("mktree", stdin=entries + "\n"), host.tip
    said = "Take in" + (f"\n\nVmrag-Repairs: {landed.after}" if sign == "vmrag's trailer" else "")
    forged = host.hub.git("commit-tree", tree, "-p", tip, "-m", said)
    host.hub.git("update-ref", f"refs/heads/{run.offered_on}", forged)
    again = host.repair(landed)
    stays = sign == "no trailer"
    assert host.hub.git("rev-parse", run.offered_on) == (forged if stays else again.commit)
    assert (host.hub.git("diff", "--name-only", "main", again.commit) == ".dolt-version") is not stays


def test_knowledge_that_a_pull_request_hid_in_its_history_stays_out(host):
    """Its last commit, which was reviewed, pins something else; then came the merge button."""
    ada = host.world.ada
    ada.git("switch", "-q", "-c", "sly", "main")
    ada.write_document("hidden.md", "Nobody has seen this.")
    hidden = ada.git("rev-parse", "HEAD:.dolt-version")
    ada.push("origin", "sly")
    ada.git("switch", "-q", "-c", "shown", "main")
    ada.write_document("shown.md", "A harmless text.")
    ada.push("origin", "shown")
    harmless = ada.git("commit-tree", "shown^{tree}", "-p", "sly", "-m", "harmless")
    before = host.tip
    merge = ada.git("commit-tree", "shown^{tree}", "-p", "main", "-p", harmless, "-m", "Merge pull request #7")
    ada.git("switch", "-q", "--detach", merge)
    landed = dropping.land(ada, before)
    run = host.repair(landed)
    assert (run.result, run.dropped, host.tip) == ("nothing", (), merge)
    assert [(other.code, other.commit) for other in run.others] == [("KNOWLEDGE_DROPPED", harmless)]
    assert "main itself has never pinned this" in run.others[0].message
    assert "hidden.md" not in dropping.documents(host.world, "main")
    assert hidden != ada.git("rev-parse", "main:.dolt-version")


def test_side_that_reverted_the_pin_removes_nothing(host):
    """The merge kept `main`'s pin; to take the other side in, as git would, drops that."""
    ada = host.world.ada
    ada.git("switch", "-q", "-c", "back", "main")
    ada.git("checkout", "-q", "topic", "--", ".dolt-version")
    ada.git("commit", "-q", "--no-verify", "-m", "without what main has")
    before, pinned = host.tip, host.pin()
    ada.git("switch", "-q", "main")
    tree = ada.git("rev-parse", "main^{tree}")
    merge = ada.git("commit-tree", tree, "-p", "main", "-p", "back", "-m", "Merge, ours")
    ada.git("switch", "-q", "--detach", merge)
    landed = dropping.land(ada, before)
    run = host.repair(landed)
    assert (run.result, run.dropped, host.tip, host.pin()) == ("nothing", (), merge, pinned)
    assert [other.commit for other in run.others] == [merge]
    assert "would drop what main pins now" in run.others[0].message


def test_histories_that_cross_again_and_again_are_merged_in_linear_time(host, monkeypatch):
    """Each of three commits merges all three before them; 2^8 ways lead to the first ones."""
    merges: list[str] = []

    def counted(*given: Any, **more: Any) -> str:
        merges.append(more["theirs"])
        assert len(merges) < 100
        return make_virtual_base(*given, **more)

    monkeypatch.setattr(revisions, "make_virtual_base", counted)
    hub, names = host.hub, ("main", "topic", "clash")
    layer = [host.tip]
    for _ in range(8):
        parents = [word for parent in layer for word in ("-p", parent)]
        layer = [hub.git("commit-tree", f"{name}^{{tree}}", *parents, "-m", "crossed") for name in names]
    ada = host.world.ada
    for name, commit in zip(names, layer, strict=True):
        hub.git("update-ref", f"refs/heads/crossed-{name}", commit)
    ada.git("fetch", "-q", "origin")
    one, other = (host.pin(name)["dolt_commit"] for name in ("main", "topic"))
    with opened(ada) as ws:
        parents = [word for parent in layer for word in ("-p", parent)]
        ends = [ada.git("commit-tree", f"{name}^{{tree}}", *parents, "-m", "end") for name in ("main", "origin/topic")]
        assert ranges.find_base(ws, one, other, (ends[0], ends[1]))
    assert merges
