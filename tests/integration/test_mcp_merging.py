"""The tools `merge_branch` and `resolve_conflicts`."""

from __future__ import annotations

import msgspec
import pytest

from tests.support import branching as support
from tests.support.branching import (
    TEXTS,
    assert_consistent,
    changed,
    kb_branches,
    make_branch,
    make_conflict,
    put,
    read_state,
)
from tests.support.mcp import warned
from tests.support.terminal import opened
from vmrag_link.engines.base import Write

pytestmark = pytest.mark.hooks("off")

template, notes, tools = support.template, support.notes, support.tools


def ids(conflicts: list[dict[str, object]]) -> list[object]:
    return [conflict["doc_id"] for conflict in conflicts]


# -- merge_branch ----------------------------------------------------------------------------------


def test_merge_of_newer_branch_is_a_fast_forward(notes, tools, tmp_path):
    before = notes.pinned
    topic = make_branch(notes, tools, t="tau", a=None)
    answer = tools("merge_branch", source="topic")
    assert answer == answer | {
        "source": "topic",
        "target": "main",
        "merge_type": "fast_forward",
        "commits_merged": 1,
        "from_commit": before,
        "to_commit": topic,
        "conflicts": [],
        "sync_summary": {
            "documents_added": 1,
            "documents_modified": 0,
            "documents_deleted": 1,
            "total_changes": 2,
        },
    }
    assert (answer["kb"]["branch"], notes.pinned, notes.git("status", "--porcelain")) == (
        "main",
        topic,
        "M  .dolt-version",
    )
    assert_consistent(notes, tmp_path)
    again = tools("merge_branch", source="topic")
    assert (again["merge_type"], again["commits_merged"], again["to_commit"]) == ("already_up_to_date", 0, topic)


def test_both_sides_changes_are_joined_in_a_commit_with_the_message(notes, tools, tmp_path):
    theirs = make_branch(notes, tools, t="tau", b="beta changed")
    ours = changed(notes, tools, "here", d="delta")
    answer = tools("merge_branch", source_branch="topic", target_branch="main", message="Joined")
    assert (answer["merge_type"], answer["commits_merged"], answer["from_commit"]) == ("merge", 1, ours)
    with opened(notes) as workspace:
        info = workspace.engine.read_revision(answer["to_commit"])
    assert (info.parents, info.message) == ((ours, theirs), "Joined")
    assert notes.texts() == TEXTS | {"t": "tau", "b": "beta changed", "d": "delta"}
    assert_consistent(notes, tmp_path)


def test_default_message_names_source_and_target(notes, tools):
    make_branch(notes, tools, t="tau")
    changed(notes, tools, "here", d="delta")
    answer = tools("merge_branch", source="topic")
    with opened(notes) as workspace:
        assert {"topic", "main"} <= set(workspace.engine.read_revision(answer["to_commit"]).message.split())


def test_trap_7_conflicting_merge_is_a_failure_with_its_conflicts(notes, tools):
    ours, _ = make_conflict(notes, tools, "a", "b")
    previewed = tools.error("MERGE_CONFLICT", "merge_branch", source="topic", on_conflict="abort")
    failed = tools.error("MERGE_CONFLICT", "merge_branch", source="topic")
    conflicts = failed["details"]["conflicts"]
    assert previewed["details"]["conflicts"] == conflicts
    assert conflicts[0] == {
        "table": "documents",
        "collection": "notes",
        "doc_id": "a",
        "title": "a",
        "fields": ["content"],
        "base": {"content": TEXTS["a"]},
        "ours": {"content": "ours"},
        "theirs": {"content": "theirs"},
        "hunks": [{"line": 1, "base": TEXTS["a"], "ours": "ours", "theirs": "theirs"}],
    }
    assert ids(conflicts) == ["a", "b"]
    assert (notes.pinned, notes.texts()["a"]) == (ours, "ours")
    tools.error("MERGE_CONFLICT", "dolt_commit", message="not yet")
    tools.error("MERGE_CONFLICT", "merge_branch", source="topic")
    assert tools("resolve_conflicts", table="all", strategy="ours", doc_ids=["a"])["conflicts"] == conflicts[1:]


def test_trap_7_conflicting_collection_settings_are_not_silently_ours(notes, tools):
    def redefine(name: str, metadata: str) -> None:
        with opened(notes) as workspace:
            head = workspace.engine.find_branch(name).head
            row = workspace.engine.list_collections(head)[0]
            rows = Write(put_collections=[msgspec.structs.replace(row, metadata=metadata)])
            workspace.engine.write(name, rows, expected=head)

    tools("dolt_checkout", target="topic", create_branch=True)
    redefine("topic", '{"owner":"theirs"}')
    tools("dolt_commit", message="theirs")
    tools("dolt_checkout", target="main")
    redefine("main", '{"owner":"ours"}')
    tools("dolt_commit", message="ours")
    conflicts = tools.error("MERGE_CONFLICT", "merge_branch", source="topic")["details"]["conflicts"]
    assert [(conflict["table"], conflict["collection"], conflict["doc_id"]) for conflict in conflicts] == [
        ("collections", "notes", "")
    ]
    assert conflicts[0]["theirs"] == {"metadata": {"owner": "theirs"}}
    tools.error("NO_SELECTION", "resolve_conflicts", table="documents", strategy="theirs")
    answer = tools("resolve_conflicts", table="notes", strategy="theirs", commit=True)
    assert (answer["resolved"], answer["remaining"], answer["commit"]["hash"]) == (1, 0, notes.pinned)
    assert tools("chroma_list_collections")["collections"][0]["metadata"]["owner"] == "theirs"


def test_conflicting_merge_with_abort_changes_nothing(notes, tools):
    make_conflict(notes, tools)
    before = read_state(notes)
    failed = tools.error("MERGE_CONFLICT", "merge_branch", source="topic", on_conflict="abort")
    assert ids(failed["details"]["conflicts"]) == ["a"]
    assert not any(
        "resolve" in suggestion or "dolt_reset" in suggestion for suggestion in failed["suggestions"]
    )  # nothing is open
    assert read_state(notes) == before
    put(notes, d="delta")
    before = read_state(notes)
    for how in ("commit_first", "reset_first"):
        tools.error("MERGE_CONFLICT", "merge_branch", source="topic", on_conflict="abort", if_uncommitted=how)
        assert read_state(notes) == before


@pytest.mark.parametrize("side", ["ours", "theirs"])
@pytest.mark.sample(1)
def test_requested_side_is_used_and_reported(notes, tools, tmp_path, side):
    make_conflict(notes, tools)
    branch = changed(notes, tools, "more", d="delta")
    answer = tools("merge_branch", source="topic", on_conflict=side)
    assert (answer["merge_type"], answer["from_commit"], ids(answer["conflicts"])) == ("merge", branch, ["a"])
    assert notes.texts() == TEXTS | {"a": side, "d": "delta"}
    assert_consistent(notes, tmp_path)
    tools("dolt_checkout", target="topic")  # nothing is open


def test_trap_19_a_preview_switches_no_branch(notes, tools):
    make_conflict(notes, tools)
    make_branch(notes, tools, "third", c="third")
    before = read_state(notes)
    failed = tools.error("MERGE_CONFLICT", "merge_branch", source="main", target="topic", on_conflict="abort")
    assert (ids(failed["details"]["conflicts"]), read_state(notes)) == (["a"], before)


def test_target_that_is_not_current_is_merged_into_and_left_again(notes, tools, tmp_path):
    topic = make_branch(notes, tools, t="tau")
    ours = changed(notes, tools, "here", d="delta")
    before = (notes.top / ".dolt-version").read_bytes()
    answer = tools("merge_branch", source="main", target="topic")
    assert (answer["target"], answer["from_commit"], answer["merge_type"]) == ("topic", topic, "merge")
    assert answer["kb"] == answer["kb"] | {"branch": "main", "commit": ours}
    assert (notes.top / ".dolt-version").read_bytes() == before
    branches = kb_branches(notes)
    assert (branches["main"].head, branches["topic"].head) == (ours, answer["to_commit"])
    assert notes.texts() == TEXTS | {"d": "delta"}
    tools("dolt_checkout", target="topic")
    assert notes.texts() == TEXTS | {"d": "delta", "t": "tau"}
    assert_consistent(notes, tmp_path)
    changed(notes, tools, "on topic", a="ours")
    tools("dolt_checkout", target="main")
    changed(notes, tools, "on main", a="theirs")
    tools.error("MERGE_CONFLICT", "merge_branch", source="main", target="topic")
    resolved = tools("resolve_conflicts", table="all", strategy="theirs", commit=True)
    assert (resolved["kb"]["branch"], notes.texts()["a"]) == ("topic", "theirs")


def test_target_that_cannot_be_merged_into_changes_nothing(notes, tools):
    make_branch(notes, tools, t="tau")
    notes.git("switch", "-q", "-c", "other")
    notes.record("other", o="omega")
    notes.git("switch", "-q", "main")
    before = read_state(notes)
    tools.error("BRANCH_IN_USE", "merge_branch", source="topic", target="other")
    tools.error("BRANCH_NOT_FOUND", "merge_branch", source="topic", target="absent")
    tools.error("INVALID_NAME", "merge_branch", source="topic", target="vmrag_root")
    assert read_state(notes) == before


def test_documents_left_uncommitted_on_the_target_are_in_the_way(notes, tools):
    make_branch(notes, tools, t="tau")
    notes.vmrag("branch", "--switch", "topic")
    put(notes, e="epsilon")
    notes.vmrag("branch", "--switch", "main")
    before = read_state(notes)
    failed = tools.error(
        "UNCOMMITTED_CHANGES", "merge_branch", source="main", target="topic", if_uncommitted="reset_first"
    )
    assert (failed["local_changes"]["documents"], read_state(notes)) == (["e"], before)


def test_merge_of_older_branch_keeps_all_documents(notes, tools):
    """`old` is from before the commit at which the code branches part: it lacks what that one
    added, and has not removed it.
    """
    tools("create_branch", name="old")
    put(notes, d="delta")
    tools("dolt_commit", message="delta")
    notes.git("commit", "-q", "-am", "delta")
    notes.git("switch", "-q", "-c", "other")
    notes.put("o", "omega", collection="notes")
    tools("dolt_commit", message="omega")
    notes.git("commit", "-q", "-am", "omega")
    notes.git("switch", "-q", "main")
    tools("dolt_checkout", target="old")
    changed(notes, tools, "on old", e="epsilon")
    answer = tools("merge_branch", source="other")
    assert notes.texts() == TEXTS | {"d": "delta", "o": "omega", "e": "epsilon"}
    assert (answer["merge_type"], answer["commits_merged"]) == ("merge", 2)
    tools("dolt_reset", target="HEAD~1")
    tools("dolt_checkout", target="main")
    tools("merge_branch", source="other", target="old")
    tools("dolt_checkout", target="old")
    assert notes.texts() == TEXTS | {"d": "delta", "o": "omega", "e": "epsilon"}


# -- resolve_conflicts -----------------------------------------------------------------------------


def test_resolve_rejects_names_without_conflict(notes, tools):
    make_conflict(notes, tools, "a", "b")
    tools.error("MERGE_CONFLICT", "merge_branch", source="topic")
    for code, arguments in (
        ("TABLE_NOT_FOUND", {"table": "absent", "strategy": "ours"}),
        ("DOCUMENT_NOT_FOUND", {"table": "notes", "strategy": "ours", "doc_ids": ["absent"]}),
        ("DOCUMENT_NOT_FOUND", {"table": "notes", "strategy": "ours", "doc_ids": ["a", "c"]}),
        ("NO_SELECTION", {"table": "issue_logs", "strategy": "ours"}),
        ("NO_SELECTION", {"table": "knowledge_docs", "strategy": "ours"}),
        ("INVALID_PARAMETER", {"table": "all", "strategy": "both"}),
        ("INVALID_PARAMETER", {"table": "all"}),
    ):
        tools.error(code, "resolve_conflicts", **arguments)
    conflicts = tools.error("MERGE_CONFLICT", "dolt_commit", message="m")["details"]["conflicts"]
    assert conflicts == ["notes/a", "notes/b"]


@pytest.mark.parametrize("table", ["all", "documents", "notes"])
@pytest.mark.parametrize("strategy", ["ours", "--theirs"])
@pytest.mark.sample(1)
def test_last_decision_suggests_the_commit_that_closes_the_merge(notes, tools, tmp_path, table, strategy):
    ours, theirs = make_conflict(notes, tools, "a", "b")
    tools.error("MERGE_CONFLICT", "merge_branch", source="topic")
    answer = tools("resolve_conflicts", table=table, strategy=strategy)
    side = strategy.removeprefix("--")
    assert answer == answer | {
        "table": table,
        "strategy": side,
        "resolved": 2,
        "remaining": 0,
        "conflicts": [],
        "commit": None,
    }
    assert "dolt_commit" in answer["message"]
    assert notes.pinned == ours
    tools.error("NO_SELECTION", "resolve_conflicts", table="all", strategy="ours")
    closed = tools("dolt_commit", message="merged")
    with opened(notes) as workspace:
        assert workspace.engine.read_revision(closed["commit"]["hash"]).parents == (ours, theirs)
    assert notes.texts() == TEXTS | {"a": side, "b": side}
    assert_consistent(notes, tmp_path)


def test_documents_are_decided_one_by_one_and_can_be_decided_again(notes, tools):
    make_conflict(notes, tools, "a", "b")
    tools.error("MERGE_CONFLICT", "merge_branch", source="topic")
    answer = tools("resolve_conflicts", table="notes", strategy="ours", doc_ids="a_chunk_0")
    assert (answer["resolved"], answer["remaining"], ids(answer["conflicts"])) == (1, 1, ["b"])
    failed = tools.error(
        "MERGE_CONFLICT", "resolve_conflicts", table="notes", strategy="theirs", doc_ids=["a"], commit=True
    )
    assert ids(failed["details"]["conflicts"]) == ["b"]
    answer = tools("resolve_conflicts", table="documents", strategy="ours", commit=True, message="Two sides")
    assert answer["commit"]["message"] == "Two sides"
    assert notes.texts() == TEXTS | {"a": "theirs", "b": "ours"}


def test_texts_of_a_conflict_are_cut(notes, tools):
    make_branch(notes, tools, a="x" * 3000)
    changed(notes, tools, "ours", a="y" * 3000)
    (conflict,) = tools.error("MERGE_CONFLICT", "merge_branch", source="topic")["details"]["conflicts"]
    assert (conflict["ours"]["content"], conflict["theirs"]["content"]) == ("y" * 500, "x" * 500)


def merge_conflicting_pins(notes, tools):
    """Let git merge two pins whose documents are in conflict."""
    put(notes, c="changed")
    tools("dolt_commit", message="a common change")
    notes.git("commit", "-q", "-am", "common")
    notes.git("switch", "-q", "-c", "other")
    put(notes, a="theirs")
    tools("dolt_commit", message="theirs")
    notes.git("commit", "-q", "-am", "theirs")
    notes.git("switch", "-q", "main")
    put(notes, a="ours")
    tools("dolt_commit", message="ours")
    notes.git("commit", "-q", "-am", "ours")
    assert notes.run("merge", "other").returncode == 1


def test_conflict_of_two_pins_is_decided_and_git_continues(notes, tools, tmp_path):
    merge_conflicting_pins(notes, tools)
    tools.error("GIT_BUSY", "dolt_commit", message="m")
    tools.error("TABLE_NOT_FOUND", "resolve_conflicts", table="absent", strategy="ours")
    answer = tools("resolve_conflicts", table="all", strategy="theirs", commit=True)
    assert (answer["resolved"], answer["remaining"]) == (1, 0)
    assert "git" in answer["message"]
    assert answer["commit"]["hash"] == notes.pinned
    notes.git("commit", "-q", "--no-edit")
    assert notes.texts() == TEXTS | {"a": "theirs", "c": "changed"}
    assert_consistent(notes, tmp_path)


def test_resolve_reports_an_unstaged_pin_while_the_index_is_locked(notes, tools):
    merge_conflicting_pins(notes, tools)
    lock = notes.top / ".git" / "index.lock"
    lock.touch()
    answer = tools("resolve_conflicts", table="all", strategy="theirs", commit=True)
    lock.unlink()
    assert "the pin is written, but not staged. Run 'git add .dolt-version'" in answer["message"]
    assert "NOTE" in warned(answer)
    notes.git("add", ".dolt-version")
    notes.git("commit", "-q", "--no-edit")
    assert notes.texts() == TEXTS | {"a": "theirs", "c": "changed"}


def test_decision_is_rejected_if_the_pin_has_moved(notes, tools):
    make_conflict(notes, tools)
    tools.error("MERGE_CONFLICT", "merge_branch", source="topic")
    before = notes.pinned
    notes.git("checkout", "-q", "HEAD", "--", ".dolt-version")
    tools.error("KB_MOVED", "resolve_conflicts", table="all", strategy="ours")
    notes.vmrag("pin", before)
    tools("resolve_conflicts", table="all", strategy="ours", commit=True)
