"""The tools of the toolset `vcs_aliases`: shorter names, the same functions."""

from __future__ import annotations

import re
import shutil

import pytest

from tests.support import branching as support
from tests.support.branching import TEXTS, changed, kb_branches, make_branch, make_conflict, put, read_state
from tests.support.mcp import Tools, warned

pytestmark = pytest.mark.hooks("off")

template, notes, tools = support.template, support.notes, support.tools


def test_commit_reports_the_changes_of_the_index(notes, tools):
    put(notes, d="delta", a="\n\n".join(f"Paragraph {number} of a long text about rivers." for number in range(40)))
    answer = tools("commit", message="two")
    assert answer["changes_committed"] == {"added": 1, "modified": 1, "deleted": 0, "total": 2}
    assert answer["sync"] == answer["sync"] | {"added": 1, "modified": 1, "deleted": 0}
    assert answer["sync"]["chunks"] > 3
    assert (answer["linked"], answer["commit"]["hash"], answer["kb"]["in_sync"]) == (None, notes.pinned, True)
    assert notes.status()["state"] == "in_sync"


def test_outdated_index_without_sync_is_left_to_the_next_call(notes, tools):
    put(notes, d="delta")
    answer = tools("commit", message="one", sync="false")
    assert (warned(answer), answer["sync"]["chunks"], answer["kb"]["in_sync"]) == (
        set(),
        1,
        True,
    )  # it did not lie behind
    put(notes, e="epsilon")
    shutil.rmtree(notes.shared / "uncommitted")
    answer = tools("commit", message="two", sync=False)
    assert ("INDEX_PENDING" in warned(answer), answer["sync"]["chunks"]) == (True, 0)
    assert (answer["commit"]["hash"], answer["kb"]["in_sync"]) == (notes.pinned, False)
    assert tools("get_log")["kb"]["in_sync"]
    assert notes.texts() == TEXTS | {"d": "delta", "e": "epsilon"}


@pytest.mark.parametrize("name", ["commit", "dolt_commit"])
def test_commit_rejects_the_arguments_that_dolt_commit_rejects(notes, tools, name):
    tools.error("MESSAGE_REQUIRED", name, message=" ")
    tools.error("INVALID_PARAMETER", name)
    tools.error("NO_CHANGES", name, message="nothing")
    make_conflict(notes, tools)
    tools.error("MERGE_CONFLICT", "merge_branch", source="topic")
    tools.error("MERGE_CONFLICT", name, message="merged")


def test_create_branch_makes_one_and_stays(notes, tools):
    first, pin = notes.pinned, (notes.top / ".dolt-version").read_bytes()
    put(notes, d="delta")
    answer = tools("create_branch", name="topic")
    assert (answer["branch"], answer["commit"], answer["kb"]["branch"], answer["kb"]["dirty"]) == (
        "topic",
        first,
        "main",
        True,
    )
    assert (notes.top / ".dolt-version").read_bytes() == pin
    assert notes.texts() == TEXTS | {"d": "delta"}
    second = tools("dolt_commit", message="second")["commit"]["hash"]
    assert tools("create_branch", name="next")["commit"] == second
    assert tools("create_branch", name="back", **{"from": "HEAD~1"})["commit"] == first
    tools.error("BRANCH_EXISTS", "create_branch", name="topic")
    tools.error("COMMIT_NOT_FOUND", "create_branch", name="fresh", **{"from": "absent"})
    for name in ("vmrag_links", "refs/heads/main", "origin/main"):
        tools.error("INVALID_NAME", "create_branch", name=name)
    tools.error("INVALID_PARAMETER", "create_branch", name="")


def test_create_branch_starts_at_the_current_commit(notes, tools):
    notes.git("switch", "-q", "-c", "other")
    other = notes.record("other", o="omega")
    notes.git("switch", "-q", "main")
    assert tools("get_log")["kb"]["commit"] != other
    notes.git("switch", "-q", "other", env={"VMRAG": "0"})
    assert tools("create_branch", name="topic")["commit"] == other


def test_switch_branch_equals_dolt_checkout(notes, tools):
    topic = make_branch(notes, tools, t="tau")
    put(notes, d="delta")
    failed = tools.error("UNCOMMITTED_CHANGES", "switch_branch", branch="topic")
    assert failed["local_changes"]["documents"] == ["d"]
    answer = tools("switch_branch", name="topic", if_uncommitted="carry")
    assert (answer["checkout_result"]["to_commit"], answer["detached"]) == (topic, False)
    assert answer["action_taken"] == {"uncommitted_handling": "carry", "branch_created": False}
    assert notes.texts() == TEXTS | {"t": "tau", "d": "delta"}
    answer = tools("switch_branch", branch="fresh", create=True, if_uncommitted="commit_first")
    assert answer["action_taken"] == {"uncommitted_handling": "commit_first", "branch_created": True}
    tools.error("BRANCH_EXISTS", "switch_branch", branch="topic", create=True)
    tools.error("BRANCH_NOT_FOUND", "switch_branch", branch="absent")
    tools.error("COMMIT_NOT_FOUND", "switch_branch", branch="0" * 40)
    tools.error("INVALID_NAME", "switch_branch", branch="vmrag_links", create=True)


def test_get_branch_status_equals_dolt_status_with_branches(notes, tools):
    topic = make_branch(notes, tools, t="tau")
    put(notes, d="delta")
    result = tools("get_branch_status")
    same = tools("dolt_status")
    for answer in (result, same):
        answer.pop("warnings", None)
    assert {**result, "branches": None} == {**same, "branches": None}
    assert result["local_changes"]["summary"]["added"] == 1
    assert result["branches"] == [
        {"name": "main", "is_current": True, "short_hash": notes.pinned[:7]},
        {"name": "topic", "is_current": False, "short_hash": topic[:7]},
    ]


def test_get_branch_status_contacts_no_host(notes):
    notes.git("remote", "add", "origin", str(notes.top.parent / "bare.git"))
    notes.git("init", "-q", "--bare", str(notes.top.parent / "bare.git"))
    fresh = Tools(notes.top)
    assert fresh("get_branch_status")["remote"]["connected"] is None
    assert fresh("dolt_status")["remote"]["connected"] is True
    assert fresh("get_branch_status")["remote"]["connected"] is True


def test_get_log_lists_the_commits_of_the_branch(notes, tools):
    changed(notes, tools, "second", d="delta")
    answer = tools("get_log", limit=500)
    assert answer["commits"] == tools("dolt_commits")["commits"]
    assert answer["commits"][0]["message"] == "second"
    assert warned(answer) == {"IGNORED_SETTING"}
    assert len(tools("get_log", limit=1)["commits"]) == 1
    tools.error("INVALID_PARAMETER", "get_log", limit=0)
    assert answer.keys() == {"success", "commits", "message", "warnings", "kb"}


def test_merged_branch_can_be_deleted_and_recreated_by_its_hash(notes, tools):
    topic = make_branch(notes, tools, t="tau")
    tools.error("BRANCH_NOT_MERGED", "delete_branch", branch="topic")
    tools("merge_branch", source="topic")
    answer = tools("delete_branch", branch="topic")
    assert (answer["branch"], answer["commit"]) == ("topic", topic)
    assert "topic" not in kb_branches(notes)
    tools.error("BRANCH_NOT_FOUND", "delete_branch", branch="topic")
    assert notes.texts() == TEXTS | {"t": "tau"}
    assert tools("create_branch", name="again", **{"from": topic})["commit"] == topic


def test_branch_deleted_by_force_loses_nothing(notes, tools):
    tools("dolt_checkout", target="topic", create_branch=True)
    changed(notes, tools, "second", t="tau")
    put(notes, d="delta")
    tools("dolt_checkout", target="topic")
    topic = notes.pinned
    for refused in (tools.error("BRANCH_IN_USE", "delete_branch", branch="topic", force=True),):
        assert "vmrag branch --switch" in refused["suggestions"][-1]
    notes.vmrag("branch", "--switch", "main")  # what is uncommitted stays there
    tools.error("UNCOMMITTED_CHANGES", "delete_branch", branch="topic")
    answer = tools("delete_branch", branch="topic", force=True)
    (note,) = (warning["message"] for warning in answer["warnings"])
    assert "d" in note
    assert (answer["commit"], "topic" in kb_branches(notes)) == (topic, False)
    held = re.search(r"source=(\w+)", note)[1]
    tools("merge_branch", source=held)
    assert notes.texts() == TEXTS | {"t": "tau", "d": "delta"}


def test_internal_and_unknown_branches_are_not_deleted(notes, tools):
    tools.error("INVALID_NAME", "delete_branch", branch="vmrag_root", force=True)
    tools.error("BRANCH_NOT_FOUND", "delete_branch", branch="absent", force=True)


def test_preview_of_a_merge_matches_the_merge(notes, tools):
    make_branch(notes, tools, t="tau", a="theirs", b=None)
    for _ in range(2):
        before = read_state(notes)
        would = tools("merge_branch", source="topic", preview=True)
        assert read_state(notes) == before
        assert (would["preview"], would["conflicts"], would["to_commit"]) == (True, [], notes.pinned)
        if would["merge_type"] == "fast_forward":
            changed(notes, tools, "ours", o="omega")
    answer = tools("merge_branch", source="topic")
    same = ("merge_type", "commits_merged", "sync_summary", "from_commit", "target")
    assert {field: would[field] for field in same} == {field: answer[field] for field in same}
    assert tools("merge_branch", source="topic", preview=True)["merge_type"] == "already_up_to_date"


def test_preview_lists_conflicts_and_opens_no_merge(notes, tools):
    make_conflict(notes, tools, "a", "b")
    before = read_state(notes)
    would = tools("merge_branch", source="topic", preview=True)
    assert sorted(conflict["doc_id"] for conflict in would["conflicts"]) == ["a", "b"]
    assert read_state(notes) == before
