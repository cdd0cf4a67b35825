"""`vmrag verify`, on histories made by git's plumbing, and by git commands with and without the
merge driver.
"""

from __future__ import annotations

import itertools
import random
import shlex
import subprocess
import time
from pathlib import Path

import pytest

from tests.support import code_history
from tests.support.code_history import World, pin_of
from tests.support.pace import slack
from tests.support.terminal import Project
from vmrag_link import hints
from vmrag_link.ops.verify.verify import verify

pytestmark = pytest.mark.hooks("off")

built, world = code_history.built, code_history.world
forked_once, forked = code_history.forked_once, code_history.forked

NOWHERE = "ab" * 20
NO_DRIVER = ("-c", "merge.vmrag.driver=false")

DROPPED = ("error", "KNOWLEDGE_DROPPED")
MENDED = ("information", "KNOWLEDGE_DROPPED")
BACK = ("information", "MOVED_BACK")


class Revisions:
    """a and b on the base, both on it, and one beside it."""

    def __init__(self, world: World) -> None:
        self.old, self.base = world.revision("old"), world.revision("base")
        self.a, self.b = world.on(self.base, a="A."), world.on(self.base, b="B.")
        self.ab = world.on(self.a, joining=self.b, b="B.")
        self.more = world.on(self.ab, more="More.")
        self.beside = world.on(self.old, beside="Beside.")
        self.none = None


@pytest.fixture
def r(world: World) -> Revisions:
    return Revisions(world)


# -- one parent ------------------------------------------------------------------------------------


def test_pin_may_advance_stay_or_be_reformatted(world, r):
    first = world.code(r.base)
    second = world.code(r.a, world.code(r.base, first))
    last = world.code(pin_of(r.ab, date="2030-01-01T00:00:00Z"), world.code(r.ab, second))
    report = world.verified(last)
    assert report == {"range": last, "commits": 5, "pins": 4, "findings": [], "shallow": False, "unpinned": False}


def test_pin_that_goes_back_is_information(world, r):
    back = world.code(r.base, world.code(r.a, world.code(r.base)))
    finding = world.only(back)
    assert (finding["level"], finding["code"], finding["commit"]) == ("information", "MOVED_BACK", back)
    assert r.a[:12] in finding["message"]
    assert r.base[:12] in finding["message"]


def test_pin_that_goes_aside_drops_knowledge(world, r):
    aside = world.code(r.b, world.code(r.a, world.code(r.base)))
    finding = world.only(aside)
    assert (finding["level"], finding["code"], finding["commit"]) == (*DROPPED, aside)
    assert r.a[:12] in finding["message"]
    assert finding["hint"] == f"run 'vmrag merge --repair {aside[:12]}' to restore the documents"
    assert finding["mended_by"] is None


def test_first_commit_with_a_pin_may_pin_anything(world, r):
    assert world.found(world.code(r.beside)) == []
    assert world.found(world.code(r.beside, world.code(None))) == []


def test_only_findings_of_the_range_are_reported(world, r):
    before = world.code(r.b, world.code(r.a))
    after = world.code(r.b, world.code(r.b, before))
    assert world.found(after) == [DROPPED]
    assert world.verified(f"{before}..{after}") == {
        "range": f"{before}..{after}",
        "commits": 2,
        "pins": 0,
        "findings": [],
        "shallow": False,
        "unpinned": False,
    }


# -- merges ----------------------------------------------------------------------------------------

MERGES = {
    # base, ours, theirs, merged: what is found
    "both moved, both are in it": ("base", "a", "b", "ab", []),
    "both moved, and documents came on top": ("base", "a", "b", "more", []),
    "both moved, ours was taken": ("base", "a", "b", "a", [DROPPED]),
    "both moved, theirs was taken": ("base", "a", "b", "b", [DROPPED]),
    "both moved, neither was taken": ("base", "a", "b", "base", [DROPPED]),
    "both moved, and no pin was taken": ("base", "a", "b", "none", [("error", "PIN_REMOVED")]),
    "both moved to the same": ("base", "a", "a", "a", []),
    "theirs moved and was taken": ("base", "base", "b", "b", []),
    "theirs moved, and documents came on top": ("base", "base", "b", "ab", []),
    "theirs moved, ours was taken": ("base", "base", "b", "base", [DROPPED]),
    "theirs moved, what is older was taken": ("base", "base", "b", "old", [DROPPED]),
    "theirs went back and was taken": ("base", "base", "old", "old", [("information", "MOVED_BACK")]),
    "ours went back, theirs moved, and theirs was taken": ("base", "old", "b", "b", [("information", "MOVED_BACK")]),
    "ours went aside, theirs did not move": ("base", "beside", "base", "beside", [DROPPED]),
    "nobody moved, and the pin stays": ("base", "base", "base", "base", []),
    "nobody moved, and documents came on top": ("base", "base", "base", "a", []),
    "nobody moved, and the pin goes back": ("base", "base", "base", "old", [BACK]),
    "nobody moved, and the pin goes aside": ("base", "base", "base", "beside", [DROPPED]),
    "theirs removed it": ("base", "base", "none", "none", [("error", "PIN_REMOVED")]),
    "theirs removed it, ours moved and was taken": ("base", "a", "none", "a", [("information", "PIN_REMOVED")]),
    "theirs removed it, ours moved and was dropped": ("base", "a", "none", "none", [("error", "PIN_REMOVED"), DROPPED]),
    "theirs brought the first": ("none", "none", "b", "b", []),
    "theirs brought the first, and it was dropped": ("none", "none", "b", "none", [DROPPED]),
    "both brought the first": ("none", "a", "b", "ab", []),
    "both brought the first, ours was taken": ("none", "a", "b", "a", [DROPPED]),
}


@pytest.mark.parametrize("case", MERGES.values(), ids=MERGES)
@pytest.mark.sample(9)
def test_merge_must_contain_the_moved_pins_of_its_sides(world, r, case):
    base, ours, theirs, merged, expected = case
    root = world.code(getattr(r, base))
    left_side, right_side = world.code(getattr(r, ours), root), world.code(getattr(r, theirs), root)
    merge = world.code(getattr(r, merged), left_side, right_side)
    assert sorted(world.found(merge)) == sorted(expected)
    if DROPPED in expected and ours != "beside":
        assert world.verified(merge)["findings"][-1]["commit"] == merge


def test_octopus_must_contain_every_side_that_moved(world, r):
    c = world.on(r.base, c="C.")
    abc = world.on(r.ab, joining=c, c="C.")
    older = world.code(r.old)
    root = world.code(r.base, older)
    sides = [world.code(revision, root) for revision in (r.a, r.b, c)]
    assert world.found(world.code(abc, *sides)) == []
    finding = world.only(world.code(r.ab, *sides))
    assert c[:12] in finding["message"]
    assert finding["message"].count(r.a[:12]) == 0
    unmoved = world.code(r.old, older)  # prints nothing, although none of the others pins that
    assert world.found(world.code(r.ab, *sides[:2], unmoved)) == []


def test_side_of_octopus_is_unmoved_if_another_left_equal_pin(world, r):
    root = world.code(r.base)
    fork = world.code(r.a, root)
    sides = world.code(r.b, root), world.code(r.base, fork), world.code(r.a, fork)
    for parents in (sides, sides[::-1]):
        assert world.found(world.code(r.b, *parents)) == [BACK]


def test_criss_cross_merge_has_several_bases(world, r):
    root = world.code(r.base)
    left_side, right_side = world.code(r.a, root), world.code(r.b, root)
    one, two = world.code(r.ab, left_side, right_side), world.code(r.ab, right_side, left_side)
    ours, theirs = world.on(r.ab, ours="O."), world.on(r.ab, theirs="T.")
    both = world.on(ours, joining=theirs, theirs="T.")
    tops = world.code(ours, one), world.code(theirs, two)
    assert world.found(world.code(both, *tops)) == []
    assert world.found(world.code(ours, *tops)) == [DROPPED]
    assert world.found(world.code(ours, tops[0], two)) == []  # theirs holds what both bases pin, and no more


# -- invalid pins ----------------------------------------------------------------------------------


def test_malformed_pin_is_found_only_in_the_commit_that_adds_it(world, r):
    before = world.code(r.a)
    empty = world.git("hash-object", "-t", "tree", "-w", "--stdin")
    bad = {
        "markers": world.code(b"<<<<<<< ours\n", before),
        "large": world.code(b"x" * 9000, before),
        "link": world.code(b"elsewhere", before, mode="120000"),
        "directory": world.code(empty, before, mode="040000", kind="tree"),
        "submodule": world.code(before, before, mode="160000", kind="commit"),
    }
    said = {name: world.only(f"{before}..{commit}") for name, commit in bad.items()}
    assert {(value["level"], value["code"]) for value in said.values()} == {("error", "PIN_MALFORMED")}
    for name, word in zip(bad, ("conflict", "8192 bytes", "symbolic link", "directory", "submodule"), strict=True):
        assert word in said[name]["message"]
        assert said[name]["hint"].startswith(f"run 'git checkout {before[:12]} -- .dolt-version && git commit")
    inherits = world.code(b"<<<<<<< ours\n", bad["markers"])
    assert world.found(f"{bad['markers']}..{inherits}") == []
    assert world.found(f"{bad['markers']}..{world.code(r.b, inherits)}") == []
    assert world.found(f"{bad['directory']}..{world.code(r.b, bad['directory'])}") == []


def test_root_with_an_unreadable_pin_suggests_a_new_one(world):
    finding = world.only(world.code(b"nothing"))
    assert (finding["code"], finding["hint"]) == (
        "PIN_MALFORMED",
        "run 'vmrag pin && git commit -m \"Pin the documents\"' to write a pin",
    )


def test_pin_may_be_executable(world, r):
    assert world.found(world.code(r.a, world.code(r.base, mode="100755"), mode="100755")) == []


def test_command_that_brings_a_removed_pin_back_does(world):
    world.commit("removed", pin=None)
    assert world.found("HEAD~1..HEAD") == [("error", "PIN_REMOVED")]
    [command] = hints.list_commands(world.only("HEAD~1..HEAD")["hint"])
    subprocess.run(command, shell=True, cwd=world.top, check=True, capture_output=True)
    finding = world.only("base..HEAD")
    assert (finding["level"], finding["mended_by"]) == ("information", world.git("rev-parse", "HEAD"))


def test_pin_without_revision_is_found_once(world, r):
    before = world.code(r.base)
    missing = world.code(NOWHERE, before)
    assert world.found(missing) == [("error", "PIN_REVISION_MISSING")]
    assert world.found(f"{missing}..{world.code(NOWHERE, missing)}") == []
    on_top = world.code(r.a, missing)
    finding = world.only(f"{missing}..{on_top}")
    assert (finding["level"], finding["code"], finding["commit"]) == ("error", "PIN_REVISION_MISSING", on_top)
    assert "cannot be checked for dropped documents" in finding["message"]
    assert world.found(on_top) == [("information", "PIN_REVISION_MISSING")]  # the earlier knowledge exists again
    side = world.code(r.b, before)
    assert world.found(f"{missing}..{world.code(NOWHERE, missing, side)}") == [("error", "PIN_REVISION_MISSING")]
    assert world.found(f"{missing}..{world.code(r.b, missing, side)}") == [DROPPED]


# -- later repairs ---------------------------------------------------------------------------------


def test_later_commit_with_the_dropped_knowledge_repairs_it(world, r):
    dropping = world.code(r.b, world.code(r.a))
    still = world.code(world.on(r.b, x="X."), dropping)
    mending = world.code(r.ab, dropping)
    assert world.found(still) == [DROPPED]
    finding = world.only(mending)
    assert (finding["level"], finding["code"]) == MENDED
    assert (finding["commit"], finding["mended_by"], finding["hint"]) == (dropping, mending, "")
    assert world.only(world.code(r.more, mending))["mended_by"] == mending


def test_repair_on_another_branch_applies_from_the_merge_on(world, r):
    first = world.code(r.a)
    dropping = world.code(r.b, first)
    other = world.code(r.ab, first)
    tip = world.code(r.b, dropping)
    assert world.found(tip) == [DROPPED]
    merge = world.code(r.ab, tip, other)
    assert world.only(merge)["mended_by"] == merge


@pytest.mark.parametrize("between", [None, b"nothing", NOWHERE])
def test_knowledge_cannot_be_dropped_in_two_steps(world, r, between):
    broken = world.code(between, world.code(r.a))
    (level, _), *others = world.found(world.code(r.b, broken))
    assert (level, others) == ("error", [])
    (level, _), *others = world.found(world.code(r.ab, broken))
    assert (level, others) == ("information", [])


# -- git's own commands ----------------------------------------------------------------------------


def checked_out(world: World, *arguments: str, branch: str = "main") -> None:
    world.git("switch", "-q", branch)
    world.git(*arguments)


WITH_DRIVER = {
    "merge": ("main", ["merge", "--no-edit", "side"]),
    "squash": ("main", ["merge", "--squash", "side"]),
    "rebase": ("side", ["rebase", "-q", "main"]),
    "cherry-pick": ("main", ["cherry-pick", "side~1", "side"]),
    "cherry-pick of the second alone": ("main", ["cherry-pick", "side"]),
    "revert of one before": ("side", ["revert", "--no-edit", "HEAD~1"]),
    "merge of one side that did not move": ("side", ["merge", "--no-ff", "--no-edit", "base"]),
}


@pytest.mark.parametrize("case", WITH_DRIVER.values(), ids=WITH_DRIVER)
@pytest.mark.sample(3)
def test_git_operations_with_the_merge_driver_drop_nothing(forked, case):
    branch, command = case
    checked_out(forked, *command, branch=branch)
    if forked.git("status", "--porcelain", "--untracked-files=no"):
        forked.commit("squashed")
    assert forked.found("base..HEAD") == []
    assert forked.found() == []


def test_revert_of_the_last_commit_goes_back(forked):
    checked_out(forked, "revert", "--no-edit", "HEAD", branch="side")
    assert forked.found("base..HEAD") == [BACK]


def test_older_pin_that_was_checked_out_goes_back(forked):
    checked_out(forked, "checkout", "base", "--", ".dolt-version")
    forked.commit("as it was")
    assert forked.found("base..HEAD") == [BACK]


def test_branch_reset_to_older_commit_has_no_finding(forked):
    checked_out(forked, "reset", "-q", "--hard", "side~1", branch="side")
    assert forked.found("base..HEAD") == []


def test_revert_of_side_commit_restores_and_drops_its_documents(forked):
    forked.git("checkout", "side", "--", ".dolt-version")
    forked.commit("squashed")
    forked.git("revert", "--no-edit", "HEAD")
    assert forked.found("base..HEAD") == [MENDED, DROPPED]


def test_merge_with_the_ours_strategy_drops_knowledge(forked):
    forked.git("merge", "-q", "-s", "ours", "--no-edit", "side")
    assert forked.found("base..HEAD") == [DROPPED]


def test_merge_tree_commit_names_theirs_in_trailer_and_drops_nothing(forked):
    tree = forked.git("merge-tree", "--write-tree", "main", "side")
    merge = forked.git("commit-tree", tree, "-p", "main", "-p", "side", "-m", "merged")
    with forked.opened() as workspace:
        assert not workspace.engine.is_ancestor(forked.revision("side"), forked.revision(merge))
    assert forked.found(f"base..{merge}") == []


def test_rebased_branch_holds_the_documents_of_the_original(forked):
    before = forked.git("rev-parse", "side")
    checked_out(forked, "rebase", "-q", "main", branch="side")
    assert forked.found(f"{before}..{forked.code(forked.revision('side'), before)}") == []


def test_conflict_that_a_person_decided_about_drops_nothing(forked):
    checked_out(forked, "switch", "-qc", "clash", "base")
    theirs = forked.moves("clash", a="Another a.", c="C.")
    result = forked.run("rebase", "main")
    assert result.returncode == 1
    forked.vmrag("resolve", "--ours")
    forked.git("rebase", "--continue")
    assert (
        forked.found(f"base..{forked.code(forked.pinned, forked.code(theirs, forked.git('rev-parse', 'base')))}") == []
    )


def said(base: str, theirs: str) -> str:
    return f"Merge\n\nVmrag-Base: {base}\nVmrag-Theirs: {theirs}\n"


def test_trailer_hides_nothing_that_the_documents_do_not_hold(world, r):
    root = world.code(r.base)
    left_side, right_side = world.code(r.a, root), world.code(r.b, root)

    def merged(on: str, message: str, **texts: str) -> list[tuple[str, str]]:
        return world.found(world.code(world.on(on, message=message, **texts), left_side, right_side))

    assert merged(r.a, said(r.base, r.b), b="B.") == []
    assert merged(r.a, "without", b="B.") == [DROPPED]
    assert merged(r.a, said(r.base, r.b), x="forged") == [DROPPED]
    assert merged(r.a, said(r.base, r.b), b="other") == [DROPPED]
    assert merged(r.a, said(r.base, NOWHERE), b="B.") == [DROPPED]
    assert merged(r.a, said(r.base, r.base), b="B.") == [DROPPED]


def test_pick_of_one_change_does_not_contain_its_whole_origin(world, r):
    second = world.on(r.b, c="C.")
    root = world.code(r.base)
    left_side, right_side = world.code(r.a, root), world.code(second, root)
    picked = world.on(r.a, message=said(r.b, second), c="C.")
    assert world.found(world.code(picked, left_side, right_side)) == [DROPPED]
    first = world.on(r.a, message=said(r.base, r.b), b="B.")
    both = world.on(first, message=said(r.b, second), c="C.")
    assert world.found(world.code(both, left_side, right_side)) == []


# -- pull requests ---------------------------------------------------------------------------------


def test_pull_request_must_contain_new_knowledge_of_its_base(forked):
    report = forked.verified("--pull-request", "main", "side")
    (finding,) = report["findings"]
    assert (finding["level"], finding["code"], finding["commit"]) == (*DROPPED, forked.git("rev-parse", "side"))
    assert finding["hint"] == "run 'git merge main', or 'git rebase main'"
    assert (report["range"], report["commits"], report["pins"]) == ("main..side", 2, 2)
    checked_out(forked, "merge", "-q", "--no-edit", "main", branch="side")
    assert forked.found("--pull-request", "main", "side") == []


def test_pull_request_that_was_rebased_or_moved_nothing_is_fine(forked):
    forked.git("branch", "code", "base")
    checked_out(forked, "commit", "-q", "--allow-empty", "-m", "code alone", branch="code")
    assert forked.found("--pull-request", "main", "code") == []
    assert forked.found("--pull-request", "code", "side") == []
    checked_out(forked, "rebase", "-q", "main", branch="side")
    assert forked.found("--pull-request", "main", "side") == []


def test_commits_of_a_pull_request_are_verified(forked):
    checked_out(forked, "merge", "-q", "--no-edit", "main", branch="side")
    forked.commit("back", pin=pin_of(forked.revision("base")))
    assert forked.found("--pull-request", "main", "side") == [BACK]
    forked.commit("aside", pin=pin_of(forked.on(forked.revision("old"), beside="Beside.")))
    assert forked.found("--pull-request", "main", "side") == [BACK, DROPPED]


# -- ranges ----------------------------------------------------------------------------------------


def test_default_range_excludes_the_default_branch_of_origin(forked):
    assert forked.verified()["range"] == "HEAD"
    forked.git("update-ref", "refs/remotes/origin/main", "base")
    forked.git("config", "branch.main.remote", "origin")
    forked.git("config", "remote.origin.url", "nowhere")
    forked.git("config", "remote.origin.fetch", "+refs/heads/*:refs/remotes/origin/*")
    forked.git("config", "branch.main.merge", "refs/heads/main")
    assert (forked.verified()["range"], forked.verified()["commits"]) == ("@{upstream}..HEAD", 1)
    forked.git("symbolic-ref", "refs/remotes/origin/HEAD", "refs/remotes/origin/main")
    forked.git("switch", "-q", "side")
    assert (forked.verified()["range"], forked.verified()["commits"]) == ("refs/remotes/origin/HEAD..HEAD", 2)


def as_pushed(world: World) -> None:
    """Update origin's default branch to HEAD: the state of CI on that branch."""
    world.git("update-ref", "refs/remotes/origin/main", "HEAD")
    world.git("symbolic-ref", "refs/remotes/origin/HEAD", "refs/remotes/origin/main")


def test_last_commit_is_verified_on_the_default_branch(forked):
    forked.commit("aside", pin=pin_of(forked.on(forked.revision("old"), beside="Beside.")))
    as_pushed(forked)
    report = forked.verified()
    assert (report["range"], report["commits"]) == ("HEAD^..HEAD", 1)
    assert forked.found() == [DROPPED]


def test_merge_on_the_default_branch_is_verified_with_its_commits(forked):
    checked_out(forked, "checkout", "base", "--", ".dolt-version", branch="side")
    forked.commit("back")
    checked_out(forked, *NO_DRIVER, "merge", "-q", "-s", "ours", "--no-edit", "side")
    as_pushed(forked)
    report = forked.verified()
    assert (report["range"], report["commits"]) == ("HEAD^..HEAD", 4)
    assert forked.found() == [BACK]
    forked.git("reset", "-q", "--hard", "HEAD~1")
    checked_out(forked, *NO_DRIVER, "merge", "-q", "-s", "ours", "--no-edit", "side~1")
    as_pushed(forked)
    assert forked.found() == [DROPPED]


def test_root_is_verified_as_a_last_commit(world):
    world.git("switch", "-q", "--detach", world.code(b"nothing"))
    as_pushed(world)
    assert (world.verified()["range"], world.found()) == ("HEAD", [("error", "PIN_MALFORMED")])


def test_ranges_are_written_as_for_git(forked):
    assert [forked.verified(name)["commits"] for name in ("base..side", "base..", "..side", "side", "base..base")] == [
        2,
        1,
        2,
        4,
        0,
    ]
    for arguments, code in ((["base...side"], 2), (["side", "--pull-request", "main", "side"], 2), (["nowhere"], 3)):
        error = forked.vmrag("verify", *arguments, "--json", code=code).error
        assert error["hint"]
    assert forked.vmrag("verify", "base..nowhere", "--json", code=3).error["code"] == "GIT_COMMIT_NOT_FOUND"
    assert forked.vmrag("verify", "--json", "--", "--all", code=3).error["code"] == "GIT_COMMIT_NOT_FOUND"


def test_verify_requires_a_knowledge_base(world, tmp_path):
    world.git("clone", "-q", ".", str(tmp_path / "clone"))
    error = Project(tmp_path / "clone").vmrag("verify", "--json", code=2).error
    assert error["code"] == "NOT_INITIALIZED"


# -- clones that do not have everything ------------------------------------------------------------


def cloned(world: World, folder: Path, *options: str) -> World:
    """With the knowledge base, as a fetch would bring it."""
    world.git("config", "uploadpack.allowFilter", "true")
    world.git("clone", "-q", "--no-local", *options, f"file://{world.top}", str(folder))
    (folder / ".git/vmrag").mkdir()
    subprocess.run(["cp", "-a", world.shared / "kb", folder / ".git/vmrag/kb"], check=True)
    return World(folder)


def test_shallow_clone_is_reported_as_not_comparable(forked, tmp_path):
    forked.git("merge", "-q", "-s", "ours", "--no-edit", "side")
    clone = cloned(forked, tmp_path / "clone", "--depth", "1")
    nothing = clone.only("HEAD")  # a commit without its parents: nothing was compared
    assert (nothing["level"], nothing["code"]) == ("error", "NOT_COMPARABLE")
    said = clone.vmrag("verify", code=1).out
    assert "git fetch --unshallow" in said
    assert said.endswith("1 with another pin: 1 error.\n")
    assert clone.verified() == clone.verified("HEAD")
    clone.git("fetch", "-q", "--depth", "2")
    assert clone.verified("HEAD")["findings"] == []  # the merge base is not here: a side may not have moved
    assert clone.verified("HEAD")["shallow"]
    for ends in (("HEAD^..HEAD",), ("--pull-request", "HEAD^1", "HEAD^2")):
        error = clone.only(*ends)
        assert (error["level"], error["code"]) == ("error", "NOT_COMPARABLE")
        assert "fetch-depth: 0" in error["hint"]
    clone.git(*hints.list_commands(error["hint"])[0].split()[1:])
    report = clone.verified("HEAD")
    assert [finding["code"] for finding in report["findings"]] == ["KNOWLEDGE_DROPPED"]
    assert not report["shallow"]


def test_range_above_the_cut_is_as_good_as_any(forked, tmp_path):
    forked.commit("code", code="x")
    forked.commit("aside", pin=pin_of(forked.revision("side")))
    clone = cloned(forked, tmp_path / "clone", "--depth", "2")
    report = clone.verified("HEAD~1..HEAD")
    assert [finding["code"] for finding in report["findings"]] == ["KNOWLEDGE_DROPPED"]
    assert not report["shallow"]


def test_deepen_fetches_the_deciding_commits(forked, tmp_path):
    forked.git("switch", "-q", "-c", "feature", "side")
    forked.commit("on the branch", code="x")
    ways: dict[tuple[str, ...], list[str]] = {
        (): [],
        ("HEAD^..HEAD",): [],
        ("HEAD",): [],
        ("origin/main..HEAD",): [],
        ("--pull-request", "origin/main", "HEAD"): ["KNOWLEDGE_DROPPED"],
    }
    for number, (ends, codes) in enumerate(ways.items()):
        clone = cloned(forked, tmp_path / f"clone{number}", "--depth", "1", "--branch", "feature")
        refs = clone.git("for-each-ref")
        report = clone.verified(*ends, "--deepen")
        assert ([finding["code"] for finding in report["findings"]], report["shallow"]) == (codes, False)
        assert report["commits"] >= 1
        assert clone.git("for-each-ref") == refs
    clone.git("remote", "set-url", "origin", "file:///nowhere")
    assert clone.verified("HEAD^..HEAD", "--deepen")["findings"] == []  # it has all that it needs
    lonely = cloned(forked, tmp_path / "lonely", "--depth", "1")
    lonely.git("remote", "set-url", "origin", "file:///nowhere")
    assert lonely.vmrag("verify", "--deepen", "--json", code=3).error["code"] == "GIT_FAILED"


@pytest.mark.parametrize("deepen", [(), ("--deepen",)])
def test_root_and_an_empty_range_pass_in_a_shallow_clone(world, tmp_path, deepen):
    root = world.code(world.revision("base"))
    world.git("branch", "alone", root)
    clone = cloned(world, tmp_path / "clone", "--depth", "1", "--branch", "alone")
    for ends in ((), ("HEAD",), ("HEAD..HEAD",), ("--pull-request", "HEAD", "HEAD")):
        report = clone.verified(*ends, *deepen)
        assert (report["findings"], report["commits"]) == ([], 0 if "HEAD..HEAD" in ends or len(ends) > 1 else 1)


def test_partial_clone_brings_the_pins_that_it_needs(forked, tmp_path):
    forked.git("merge", "-q", "-s", "ours", "--no-edit", "side")
    clone = cloned(forked, tmp_path / "clone", "--filter=blob:none", "--no-checkout")
    missing = clone.git("rev-list", "--objects", "--all", "--missing=print").count("\n?")
    assert missing > 3
    packs = clone.top / ".git/objects/pack"
    before = len(list(packs.glob("*.pack")))
    report = clone.verified("HEAD")
    assert [finding["code"] for finding in report["findings"]] == ["KNOWLEDGE_DROPPED"]
    assert not report["shallow"]
    assert len(list(packs.glob("*.pack"))) == before + 1  # all at once
    clone.git("remote", "set-url", "origin", "file:///nowhere")
    assert clone.verified("HEAD") == report


def test_partial_clone_without_reachable_remote_fails(forked, tmp_path):
    clone = cloned(forked, tmp_path / "clone", "--filter=blob:none", "--no-checkout")
    clone.git("remote", "set-url", "origin", "file:///nowhere")
    assert "nowhere" in clone.vmrag("verify", "HEAD", "--json", code=3).error["message"]


# -- merge --repair cures what is found ------------------------------------------------------------


def repaired(world: World) -> None:
    """Run the hint of each error until none is left, and check that a commit has repaired each."""
    before = [finding["commit"] for finding in world.verified("base..HEAD")["findings"]]
    for _ in range(4):
        errors = [finding for finding in world.verified("base..HEAD")["findings"] if finding["level"] == "error"]
        if not errors:
            break
        assert errors[0]["hint"].startswith("run 'vmrag merge --repair ")
        world.vmrag(*shlex.split(hints.list_commands(errors[0]["hint"])[0])[1:])
        world.commit("repaired")
    report = world.verified("base..HEAD")
    head = world.git("rev-parse", "HEAD")
    assert before
    assert [finding["commit"] for finding in report["findings"]] == before
    assert {finding["level"] for finding in report["findings"]} == {"information"}
    assert head in {finding["mended_by"] for finding in report["findings"]}
    assert world.found("HEAD~1..HEAD") == []
    names = {document["doc_id"] for document in world.ask("list")["documents"]}
    assert names == {"old", "base", "a", "b", "more"}


def test_squash_merge_without_the_driver_is_found_and_repaired(forked):
    forked.git("checkout", "side", "--", ".dolt-version")
    forked.commit("squashed")
    repaired(forked)


@pytest.mark.parametrize("take", ["ours", "theirs"])
def test_merge_by_the_button_is_found_and_repaired(forked, take):
    forked.git(*NO_DRIVER, "merge", "-q", "--no-edit", "side", check=False)
    forked.git("checkout", f"--{take}", ".dolt-version")
    forked.git("add", ".dolt-version")
    forked.commit("merged")
    repaired(forked)


def test_merge_that_took_neither_side_is_repaired_in_two_steps(forked):
    forked.git(*NO_DRIVER, "merge", "-q", "--no-edit", "side", check=False)
    forked.git("checkout", "base", "--", ".dolt-version")
    forked.commit("merged")
    repaired(forked)


def test_merge_that_dropped_an_unmoved_pin_is_repaired(forked):
    forked.git("switch", "-qc", "other", "side")
    forked.commit("other", code="x")
    forked.git("merge", "-q", "--no-ff", "--no-commit", "side", check=False)
    commit = forked.code(forked.revision("main"), "other", "side")
    forked.git("reset", "-q", "--hard", commit)
    repaired(forked)


@pytest.mark.parametrize("between", [None, b"nothing"])
def test_knowledge_dropped_over_an_invalid_pin_is_repaired(forked, between):
    forked.commit("broken", pin=between)
    forked.commit("aside", pin=pin_of(forked.revision("side")))
    repaired(forked)


def test_unmoved_side_does_not_prevent_repair_of_the_moved_side(forked):
    forked.git("switch", "-qc", "other", "base")
    forked.git("commit", "-q", "--allow-empty", "-m", "code alone")
    old, other, side = forked.revision("old"), *forked.git("rev-parse", "other", "side").split()
    forked.git("reset", "-q", "--hard", forked.code(old, other, side))
    assert forked.found("base..HEAD") == [DROPPED]
    assert forked.ask("merge", "--repair", "HEAD")["result"] == "merge"
    forked.commit("repaired")
    assert forked.found("base..HEAD") == [MENDED]


# -- output ----------------------------------------------------------------------------------------


def test_output_explains_findings_and_hints(world, r):
    first = world.code(r.a)
    dropping = world.code(r.b, first)
    said = f"its pin {r.b[:12]} does not contain {r.a[:12]}, which its parent pins. KNOWLEDGE_DROPPED"
    result = world.vmrag("verify", dropping, code=1)
    assert result.out.splitlines() == [
        f"error        the commit {dropping[:12]} drops documents: {said}",
        f"             run 'vmrag merge --repair {dropping[:12]}' to restore the documents",
        (
            'hint: run \'git commit --allow-empty -m "Accept the loss" '
            f'-m "Vmrag-Accept-Drop: {dropping}"\' to accept the loss'
        ),
        f"Checked 2 commits ({dropping}), 2 with another pin: 1 error.",
    ]
    mending = world.code(r.ab, dropping)
    result = world.vmrag("verify", mending)
    assert f"Repaired by {mending[:12]}." in result.out
    assert result.out.endswith("nothing is lost.\n")
    assert (
        world.vmrag("verify", "base..base").out
        == "Checked 0 commits (base..base), 0 with another pin: nothing to compare.\n"
    )
    assert world.vmrag("verify", dropping, "-q", code=1).out == ""


def test_revision_missing_on_the_remote_is_a_finding(world, r, monkeypatch):
    first = world.code(r.base)
    tip = world.code(r.a, world.code(r.a, first))
    requests: list[str] = []

    def list_lacking(revisions):
        requests.extend(revisions)
        return [revision for revision in revisions if revision == r.a]

    monkeypatch.setattr("vmrag_link.ops.verify.verify._fetch_and_check", lambda *_: list_lacking)
    with world.opened() as workspace:
        report = verify(workspace, tip, remote="file:///no-remote")
    assert sorted(requests) == sorted([r.base, r.a])
    (finding,) = report.findings
    assert (finding.code, finding.level, finding.commit) == (
        "NOT_ON_REMOTE",
        "error",
        world.git("rev-parse", f"{tip}^"),
    )
    assert not report.clean


def test_ten_thousand_commits_take_less_than_three_seconds(world, r):
    revisions = [r.base]
    for number in range(50):
        revisions.append(world.on(revisions[-1], **{f"d{number}": "x"}))
    stream = []
    for number in range(10_000):
        stream.append(f"commit refs/heads/long\ncommitter A <a@b> {number} +0000\ndata 1\nx\n")
        if number % 200 == 0:
            pin = pin_of(revisions[number // 200]).decode()
            stream.append(f"M 644 inline .dolt-version\ndata {len(pin)}\n{pin}\n")
    world.git("fast-import", "--quiet", stdin="".join(stream))
    start = time.perf_counter()
    report = world.verified("long")
    assert time.perf_counter() - start < 3 * slack()
    assert (report["commits"], report["pins"], report["findings"]) == (10_000, 50, [])


class Tangle:
    """A history of code at random, over revisions at random; ends with a merge that pins
    something.
    """

    def __init__(self, world: World, seed: int) -> None:
        chance = random.Random(seed)
        self.made = [world.revision("base")]
        for number in range(9):
            joining = chance.choice([None, *self.made])
            self.made.append(world.on(chance.choice(self.made), joining=joining, **{f"d{number}": "x"}))
        self.pinned: dict[str, str | None] = {}
        self.parents: dict[str, list[str]] = {}
        codes = [self._code(world, self.made[0])]
        for _ in range(25):
            before = chance.sample(codes[-6:], k=min(len(codes), chance.choice([1, 1, 2, 2, 3])))
            pin = chance.choice([*self.made, None, *[self.pinned[commit_id] for commit_id in before] * 5])
            codes.append(self._code(world, pin, *before))
        self.tip = self._code(world, self.made[0], *codes[-6:])

    def _code(self, world: World, pin: str | None, *parents: str) -> str:
        commit = world.code(pin, *parents)
        self.pinned[commit] = pin
        self.parents[commit] = world.git("rev-list", "--parents", "-n1", commit).split()[1:]
        return commit


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.sample(1)
def test_random_histories_are_judged_by_the_rules(world, seed):
    tangle = Tangle(world, seed)
    with world.opened() as workspace:
        pairs = itertools.product(tangle.made, repeat=2)
        contains = {(one, two) for one, two in pairs if workspace.engine.is_ancestor(two, one)}
    expected = set()
    for commit in world.git("rev-list", tangle.tip).split():
        if result := naively(world, commit, tangle.parents[commit], tangle.pinned, contains):
            code, needs = result
            later = world.git("rev-list", "--ancestry-path", f"{commit}..{tangle.tip}").split()
            mended = any(all((tangle.pinned[commit_id], need) in contains for need in needs) for commit_id in later)
            expected.add((commit, code, "information" if code == "MOVED_BACK" or mended else "error"))
    got = {(finding["commit"], finding["code"], finding["level"]) for finding in world.verified(tangle.tip)["findings"]}
    assert got == expected


@pytest.mark.parametrize("seed", range(2))
@pytest.mark.sample(1)
def test_repair_fixes_all_findings_of_a_random_history(world, seed):
    world.git("reset", "-q", "--hard", Tangle(world, seed).tip)
    for _ in range(60):
        errors = [finding for finding in world.verified("HEAD")["findings"] if finding["level"] == "error"]
        if not errors:
            break
        assert errors[0]["hint"].startswith("run 'vmrag merge --repair ")
        assert world.ask(*shlex.split(hints.list_commands(errors[0]["hint"])[0])[1:])["result"] != "already_up_to_date"
        world.commit("repaired")
    assert not errors


def naively(
    world: World,
    commit: str,
    parents: list[str],
    pinned: dict[str, str | None],
    contains: set[tuple[str, str]],
) -> tuple[str, set[str]] | None:
    """The rules of a commit, word by word, and what has to come back."""
    sides = {parent: pin for parent in parents if (pin := pinned[parent])}
    moved = set()
    for parent, side in sides.items():
        others = [parent_id for parent_id in parents if parent_id != parent]
        if others and side not in {pinned[part] for part in world.git("merge-base", "--all", parent, *others).split()}:
            moved.add(side)
    pin = pinned[commit]
    if pin is None:
        if parents and len(sides) == len(parents):
            return "PIN_REMOVED", moved or set(sides.values())
        return ("KNOWLEDGE_DROPPED", moved) if moved else None
    lost = {side for side in moved or set(sides.values()) if (pin, side) not in contains}
    if not lost:
        return None
    back = not moved and all((side, pin) in contains for side in lost)
    return ("MOVED_BACK", lost) if back else ("KNOWLEDGE_DROPPED", lost)
