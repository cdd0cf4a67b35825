"""The tools `dolt_commit`, `dolt_checkout` and `dolt_reset`."""

from __future__ import annotations

import re
import signal

import msgspec
import pytest

from tests.support import branching as support
from tests.support import people
from tests.support.branching import (
    TEXTS,
    assert_consistent,
    changed,
    drop,
    kb_branches,
    make_branch,
    make_conflict,
    put,
    read_state,
)
from tests.support.cli import call_patched_tool
from tests.support.mcp import Tools, warned
from tests.support.repos import ENGINE_CLASS
from tests.support.terminal import Project, opened
from vmrag_link.engines.base import Write
from vmrag_link.errors import IndexFailed
from vmrag_link.models import WorkingSet
from vmrag_link.sync import build
from vmrag_mcp.registry import load_catalogue

pytestmark = pytest.mark.hooks("off")

template, notes, tools = support.template, support.notes, support.tools
shared, world = people.shared, people.world

NONE = {"added": 0, "modified": 0, "deleted": 0, "total": 0}


def holds(project: Project, at: str) -> dict[str, str]:
    with opened(project) as workspace:
        return {document.doc_id: document.content for document in workspace.engine.read_documents(at)}


@pytest.fixture
def dirty(notes: Project) -> Project:
    """One document added, one edited and one removed, uncommitted."""
    put(notes, d="delta", a="edited")
    drop(notes, "b")
    return notes


DIRTY = {"a": "edited", "c": TEXTS["c"], "d": "delta"}
COUNTS = {"added": 1, "modified": 1, "deleted": 1, "total": 3}


# -- dolt_commit -----------------------------------------------------------------------------------


def test_commit_holds_everything_uncommitted_and_its_pin_is_staged(dirty, tools, tmp_path):
    before = dirty.pinned
    answer = tools("dolt_commit", message="three changes")
    assert answer["changes_committed"] == COUNTS
    commit = answer["commit"]
    assert commit == commit | {"message": "three changes", "parent_hash": before, "short_hash": commit["hash"][:7]}
    assert commit["timestamp"].endswith("Z")
    assert answer["linked"] is None
    assert answer["kb"] == answer["kb"] | {"commit": commit["hash"], "branch": "main", "dirty": False, "in_sync": True}
    assert dirty.pinned == commit["hash"]
    assert dirty.git("status", "--porcelain") == "M  .dolt-version"
    assert dirty.texts() == DIRTY
    assert_consistent(dirty, tmp_path)


def test_trap_24_deleting_only_a_collection_is_a_change(notes, tools):
    with opened(notes) as workspace:
        row = workspace.engine.list_collections(workspace.locate_documents())[0]
        rows = Write(put_collections=[msgspec.structs.replace(row, name="empty")])
        workspace.engine.write("main", rows, expected=notes.pinned)
    assert tools("dolt_commit", message="an empty collection")["changes_committed"] == NONE
    before = notes.pinned
    with opened(notes) as workspace:
        workspace.engine.write("main", Write(remove_collections=["empty"]), expected=before)
    assert tools("dolt_commit", message="without it")["changes_committed"] == NONE
    assert notes.pinned != before
    tools.error("NO_CHANGES", "dolt_commit", message="again")


def test_commit_links_to_git_head_and_failed_link_is_a_warning(dirty, tools):
    answer = tools("dolt_commit", message="m", auto_link_git=True)
    assert answer["linked"]["link"] == answer["linked"]["link"] | {
        "dolt_commit": answer["commit"]["hash"],
        "dolt_branch": "main",
        "git_commit": dirty.git("rev-parse", "HEAD"),
        "git_branch": "main",
    }
    assert not answer["linked"]["bidirectional"]["enabled"]
    dirty.git("update-ref", "-d", "HEAD")  # no commit to link exists any longer
    put(dirty, e="epsilon")
    answer = tools("dolt_commit", message="m", auto_link_git=True)
    assert (answer["linked"], "IGNORED_SETTING" in warned(answer)) == (None, True)
    assert dirty.marks()["e"] is None


def test_pin_stays_without_auto_pin(dirty, tools):
    before = dirty.pinned
    dirty.write(".vmrag.yaml", "embedding:\n  model: hash\nauto_pin: false\n")
    answer = tools("dolt_commit", message="m")
    assert (dirty.pinned, answer["commit"]["parent_hash"]) == (before, before)
    assert kb_branches(dirty)["main"].head == answer["commit"]["hash"]


def test_commit_succeeds_with_a_warning_if_the_index_fails(dirty, tools, monkeypatch):
    def fail(*_: object, **__: object) -> None:
        raise IndexFailed("The disk of the index is broken.")

    with monkeypatch.context() as patch:
        patch.setattr(build, "provide_view", fail)
        answer = tools("dolt_commit", message="m")
    assert {"INDEX_PENDING", "NOT_IN_SYNC"} <= warned(answer)
    assert (answer["commit"]["hash"], answer["kb"]["in_sync"]) == (dirty.pinned, False)
    assert dirty.texts() == DIRTY


# -- dolt_checkout ---------------------------------------------------------------------------------


def test_checkout_moves_the_pin_and_query_results_and_back(notes, tools, tmp_path):
    before, answers = notes.pinned, notes.answers()
    topic = make_branch(notes, tools, t="tau")
    assert (notes.pinned, notes.answers()) == (before, answers)
    assert notes.git("status", "--porcelain") == ""
    answer = tools("dolt_checkout", target="topic")
    assert answer["checkout_result"] == {
        "from_branch": "main",
        "from_commit": before,
        "to_branch": "topic",
        "to_commit": topic,
    }
    assert answer["action_taken"] == {"uncommitted_handling": "none", "branch_created": False}
    assert answer["sync_summary"] == {
        "documents_added": 1,
        "documents_modified": 0,
        "documents_deleted": 0,
        "total_changes": 1,
    }
    assert not answer["detached"]
    assert answer["kb"] == answer["kb"] | {"branch": "topic", "commit": topic, "in_sync": True}
    assert (notes.pinned, notes.git("status", "--porcelain")) == (topic, "M  .dolt-version")
    assert notes.texts() == TEXTS | {"t": "tau"}
    assert tools("dolt_checkout", target="main")["sync_summary"]["documents_deleted"] == 1
    assert notes.answers() == answers
    assert_consistent(notes, tmp_path)


def test_trap_1_checkout_of_a_hash_never_selects_branch_tip(notes, tools):
    first = notes.pinned
    second = changed(notes, tools, "second", d="delta")
    for target in (first, first[:8], "HEAD~1", f"{second[:8]}~1"):
        answer = tools("dolt_checkout", target=target)
        assert (answer["detached"], answer["checkout_result"]["to_branch"]) == (True, None)
        assert (answer["checkout_result"]["to_commit"], answer["kb"]["commit"]) == (first, first)
        assert notes.texts() == TEXTS
        assert tools("dolt_checkout", target="main")["checkout_result"]["to_commit"] == second
    assert tools.error("COMMIT_NOT_FOUND", "dolt_checkout", target="0" * 40)
    assert notes.pinned == second


def test_tag_of_the_code_names_the_commit_that_it_pins(notes, tools):
    notes.git("tag", "v1")
    first = notes.pinned
    changed(notes, tools, "second", d="delta")
    assert tools("dolt_checkout", target="v1")["checkout_result"]["to_commit"] == first


@pytest.mark.parametrize("how", ["commit_first", "reset_first"])
def test_checkout_rejects_invalid_target_before_it_changes_anything(notes, tools, how):
    make_branch(notes, tools, t="tau")
    put(notes, d="delta")
    before = read_state(notes)
    for code, arguments in (
        ("BRANCH_NOT_FOUND", {"target": "absent"}),
        ("COMMIT_NOT_FOUND", {"target": "0" * 40}),
        ("COMMIT_NOT_FOUND", {"target": "HEAD~99"}),
        ("INVALID_NAME", {"target": "vmrag_root"}),
        ("BRANCH_EXISTS", {"target": "topic", "create_branch": True}),
        ("BRANCH_EXISTS", {"target": "TOPIC", "create_branch": True}),
        ("INVALID_NAME", {"target": "vmrag_links", "create_branch": True}),
        ("INVALID_NAME", {"target": "Vmrag/x", "create_branch": True}),
        ("INVALID_NAME", {"target": "a b", "create_branch": True}),
        ("INVALID_NAME", {"target": "HEAD", "create_branch": True}),
        ("INVALID_NAME", {"target": "f" * 40, "create_branch": True}),
        ("COMMIT_NOT_FOUND", {"target": "fresh", "create_branch": True, "from": "absent"}),
        ("INVALID_PARAMETER", {"target": "topic", "if_uncommitted": "stash"}),
    ):
        tools.error(code, "dolt_checkout", **{"if_uncommitted": how} | arguments)
    assert read_state(notes) == before


def test_name_that_is_kept_for_another_code_branch_makes_no_branch(notes, tools):
    notes.git("config", "branch.main.vmragBranch", "main")
    notes.git("branch", "later")
    notes.git("config", "branch.later.vmragBranch", "later")
    tools.error("BRANCH_IN_USE", "dolt_checkout", target="later", create_branch=True)
    assert "later" not in kb_branches(notes)


def test_checkout_creates_branch_at_the_given_commit(notes, tools):
    first = notes.pinned
    second = changed(notes, tools, "second", d="delta")
    answer = tools("dolt_checkout", target="old", create_branch=True, **{"from": "HEAD~1"})
    assert answer["action_taken"]["branch_created"]
    assert (answer["checkout_result"]["to_branch"], answer["checkout_result"]["to_commit"]) == ("old", first)
    tools("dolt_checkout", target="main")
    answer = tools("dolt_checkout", target="new", create_branch=True)
    assert (answer["checkout_result"]["to_commit"], kb_branches(notes)["new"].head) == (second, second)


def test_checkout_of_current_branch_keeps_uncommitted_documents(dirty, tools):
    before = read_state(dirty)
    for target in ("main", "HEAD"):
        for how in ("abort", "carry"):
            answer = tools("dolt_checkout", target=target, if_uncommitted=how)
            assert (answer["action_taken"]["uncommitted_handling"], answer["sync_summary"]["total_changes"]) == (
                "none",
                0,
            )
    assert read_state(dirty) == before


def test_new_branch_starts_at_the_last_commit(dirty, tools):
    answer = tools("dolt_checkout", target="new", create_branch=True, if_uncommitted="commit_first")
    branches = kb_branches(dirty)
    assert branches["main"].head == branches["new"].head == answer["checkout_result"]["to_commit"]
    assert dirty.texts() == DIRTY


def kept(project: Project) -> list[dict[str, str]]:
    """Return the documents of the commits that the anchor reaches."""
    with opened(project) as workspace:
        revisions = [revision.revision for revision in workspace.engine.log(kb_branches(project)["vmrag_keep"].head)]
    return [holds(project, revision) for revision in revisions]


def test_trap_8_carry_moves_additions_edits_and_deletions(notes, tools, tmp_path):
    make_branch(notes, tools, t="tau")
    put(notes, d="delta", a="edited")
    drop(notes, "b")
    answer = tools("dolt_checkout", target="topic", if_uncommitted="carry")
    assert answer["action_taken"]["uncommitted_handling"] == "carry"
    assert notes.texts() == DIRTY | {"t": "tau"}
    assert notes.marks() == {"a": "modified", "b": "removed", "c": None, "d": "added", "t": None}
    assert answer["kb"]["dirty"]
    assert answer["sync_summary"] == answer["sync_summary"] | {"documents_added": 1, "total_changes": 1}
    branches = kb_branches(notes)
    assert (branches["main"].dirty, branches["topic"].dirty) == (False, True)
    assert not [name for name in branches if name.startswith("vmrag/")]
    assert_consistent(notes, tmp_path)


def test_carry_to_a_commit_creates_a_branch(notes, tools):
    first = notes.pinned
    changed(notes, tools, "second", d="delta")
    put(notes, e="epsilon")
    answer = tools("dolt_checkout", target=first, if_uncommitted="carry")
    assert notes.texts() == TEXTS | {"e": "epsilon"}
    assert (answer["detached"], answer["checkout_result"]["to_commit"]) == (False, first)


def test_carry_that_would_conflict_changes_nothing(notes, tools):
    make_conflict(notes, tools)
    put(notes, a="mine", d="delta")
    before = read_state(notes)
    failed = tools.error("MERGE_CONFLICT", "dolt_checkout", target="topic", if_uncommitted="carry")
    assert [(conflict["collection"], conflict["doc_id"]) for conflict in failed["details"]["conflicts"]] == [
        ("notes", "a")
    ]
    assert read_state(notes) == before


def test_carry_that_conflicts_with_uncommitted_documents_changes_nothing(notes, tools):
    make_branch(notes, tools, t="tau")
    notes.vmrag("branch", "--switch", "topic")
    put(notes, a="left behind")
    notes.vmrag("branch", "--switch", "main")
    put(notes, a="mine")
    before = read_state(notes)
    tools.error("MERGE_CONFLICT", "dolt_checkout", target="topic", if_uncommitted="carry")
    assert read_state(notes) == before
    drop(notes, "a")
    put(notes, a=TEXTS["a"], d="delta")
    tools("dolt_checkout", target="topic", if_uncommitted="carry")
    assert notes.texts() == TEXTS | {"t": "tau", "a": "left behind", "d": "delta"}


def test_branch_is_not_left_while_a_merge_is_open(notes, tools):
    make_conflict(notes, tools)
    tools.error("MERGE_CONFLICT", "merge_branch", source="topic")
    for arguments in ({"target": "topic"}, {"target": "fresh", "create_branch": True}):
        tools.error("MERGE_CONFLICT", "dolt_checkout", if_uncommitted="reset_first", **arguments)


def test_index_that_cannot_follow_keeps_no_branch_from_being_gone_to(notes, tools, monkeypatch):
    topic = make_branch(notes, tools, t="tau")

    def fail(*_: object, **__: object) -> None:
        raise IndexFailed("The disk of the index is broken.")

    with monkeypatch.context() as patch:
        patch.setattr(build, "provide_view", fail)
        answer = tools("dolt_checkout", target="topic")
    assert {"INDEX_PENDING", "NOT_IN_SYNC"} <= warned(answer)
    assert (answer["checkout_result"]["to_commit"], answer["kb"]["in_sync"]) == (topic, False)
    assert notes.texts() == TEXTS | {"t": "tau"}


# -- dolt_reset ------------------------------------------------------------------------------------


def test_reset_requires_confirmation_with_uncommitted_documents(dirty, tools, tmp_path):
    before = read_state(dirty)
    failed = tools.error("CONFIRMATION_REQUIRED", "dolt_reset")
    assert COUNTS.items() <= failed["details"]["local_changes"].items()
    assert read_state(dirty) == before
    answer = tools("dolt_reset", confirm_discard=True)
    assert answer["reset_result"] == {
        "from_commit": dirty.pinned,
        "to_commit": dirty.pinned,
        "discarded_changes": COUNTS,
    }
    assert answer["sync_summary"] == {"documents_restored": 2, "documents_removed": 1}
    assert answer["orphaned_commits"] == []
    assert (dirty.texts(), answer["kb"]["dirty"]) == (TEXTS, False)
    assert DIRTY in kept(dirty)
    assert_consistent(dirty, tmp_path)


def test_trap_6_a_target_that_does_not_resolve_changes_nothing(dirty, tools):
    before = read_state(dirty)
    for target in ("absent", "0" * 40, "HEAD~99", "-f"):
        tools.error("COMMIT_NOT_FOUND", "dolt_reset", target=target, confirm_discard=True)
    assert read_state(dirty) == before


def test_reset_of_a_clean_branch_to_head_does_nothing(notes, tools):
    before = read_state(notes)
    answer = tools("dolt_reset")
    assert answer["reset_result"]["discarded_changes"] == NONE
    assert answer["sync_summary"] == {"documents_restored": 0, "documents_removed": 0}
    assert read_state(notes) == before


def test_changed_collection_without_documents_is_named(tools):
    tools("chroma_create_collection", collection_name="fresh")
    refused = tools.error("CONFIRMATION_REQUIRED", "dolt_reset")
    assert "'main'" in refused["message"]


def test_reset_of_clean_branch_lists_orphaned_commits_that_stay_readable(notes, tools, tmp_path):
    first = notes.pinned
    second = changed(notes, tools, "second", d="delta")
    third = changed(notes, tools, "third", e="epsilon")
    answer = tools("dolt_reset", target="HEAD~2")
    assert (answer["reset_result"]["from_commit"], answer["reset_result"]["to_commit"]) == (third, first)
    assert [commit["hash"] for commit in answer["orphaned_commits"]] == [third, second]
    assert answer["orphaned_commits"][0] == answer["orphaned_commits"][0] | {
        "message": "third",
        "short_hash": third[:7],
    }
    assert answer["sync_summary"] == {"documents_restored": 0, "documents_removed": 2}
    assert (notes.pinned, notes.texts(), kb_branches(notes)["main"].head) == (first, TEXTS, first)
    assert_consistent(notes, tmp_path)
    assert tools("dolt_checkout", target=third)["detached"]
    assert notes.texts() == TEXTS | {"d": "delta", "e": "epsilon"}


def test_reset_does_not_list_commits_of_other_branches_as_orphaned(notes, tools):
    changed(notes, tools, "second", d="delta")
    tools("create_branch", name="second")
    third = changed(notes, tools, "third", e="epsilon")
    answer = tools("dolt_reset", target="HEAD~2")
    assert [commit["hash"] for commit in answer["orphaned_commits"]] == [third]


def test_open_merge_is_given_up_by_a_confirmed_reset(notes, tools, tmp_path):
    ours, _ = make_conflict(notes, tools)
    tools.error("MERGE_CONFLICT", "merge_branch", source="topic")
    assert tools.error("CONFIRMATION_REQUIRED", "dolt_reset")["details"]["merge_in_progress"]
    put(notes, a="by hand")
    answer = tools("dolt_reset", confirm_discard=True)
    assert answer["reset_result"]["discarded_changes"]["modified"] == 1
    assert (notes.pinned, notes.texts()["a"]) == (ours, "ours")
    tools("dolt_checkout", target="topic")  # no merge is in the way
    assert_consistent(notes, tmp_path)


def test_added_collections_are_also_discarded(notes, tools):
    notes.put("x", "chi", collection="fresh")
    tools("dolt_reset", confirm_discard=True)
    assert [collection["name"] for collection in tools("chroma_list_collections")["collections"]] == ["notes"]


def test_reset_to_another_branch_moves_the_current_one(notes, tools):
    topic = make_branch(notes, tools, t="tau")
    answer = tools("dolt_reset", target="topic")
    assert (answer["reset_result"]["to_commit"], answer["kb"]["branch"]) == (topic, "main")
    assert kb_branches(notes)["main"].head == topic == notes.pinned


def test_reset_without_auto_pin_returns_the_branch_to_the_pin(dirty, tools):
    before = dirty.pinned
    dirty.write(".vmrag.yaml", "embedding:\n  model: hash\nauto_pin: false\n")
    made = tools("dolt_commit", message="m")["commit"]["hash"]
    answer = tools("dolt_reset")
    assert [commit["hash"] for commit in answer["orphaned_commits"]] == [made]
    assert (kb_branches(dirty)["main"].head, dirty.texts()) == (before, TEXTS)


# -- kills -----------------------------------------------------------------------------------------

STEPS = {
    "once the documents are set aside": "import vmrag_link.ops.branch.checkout as m; m.switch = die",
    "once the branch is gone to": "import vmrag_link.ops.uncommitted as m; m.restore_aside = die",
    "before the documents are stored": "import vmrag_link.workspace.documents.writing as m; m._store_and_index = die",
    "before their branch is dropped": f"from {ENGINE_CLASS} as m; m.delete_branch = die",
}


def dies(project: Project, step: str, tool: str, **arguments: object) -> None:
    """The call, in a process that is killed at that step."""
    result = call_patched_tool(project, step, tool, arguments)
    assert result.code == -signal.SIGKILL, result


def places(project: Project) -> list[dict[str, str]]:
    """Return the documents of each branch, including uncommitted ones and those of anchored
    commits.
    """
    with opened(project) as workspace:
        names = [branch.name for branch in workspace.engine.list_branches()]
        held = [
            {document.doc_id: document.content for document in workspace.engine.read_documents(WorkingSet(name))}
            for name in names
        ]
    return held + (kept(project) if "vmrag_keep" in names else [])


@pytest.mark.parametrize("step", STEPS)
@pytest.mark.sample(2)
def test_kill_while_documents_are_carried_loses_none_of_them(dirty, tools, tmp_path, step):
    dirty.vmrag("commit", "-m", "first")
    make_branch(dirty, tools, t="tau")
    put(dirty, d="delta again", e="epsilon")
    drop(dirty, "c")
    edited = {"a": "edited", "d": "delta again", "e": "epsilon"}
    dies(dirty, STEPS[step], "dolt_checkout", target="topic", if_uncommitted="carry")
    dirty.vmrag("list")
    assert edited in places(dirty) or edited | {"t": "tau"} in places(dirty)
    if "vmrag/wip/main" in kb_branches(dirty):
        if step == "once the documents are set aside":
            tools("dolt_checkout", target="topic")
        answer = tools("merge_branch", source="vmrag/wip/main")
        assert (answer["target"], answer["to_commit"], answer["commits_merged"]) == ("topic", dirty.pinned, 0)
    assert dirty.texts() == edited | {"t": "tau"}
    assert_consistent(dirty, tmp_path)


@pytest.mark.parametrize("tool", ["dolt_checkout", "dolt_reset"])
def test_kill_while_documents_are_discarded_leaves_them_somewhere(dirty, tools, tool):
    arguments = (
        {"target": "HEAD", "if_uncommitted": "reset_first"} if tool == "dolt_checkout" else {"confirm_discard": True}
    )
    dies(dirty, STEPS["before their branch is dropped"], tool, **arguments)
    assert DIRTY in places(dirty)
    dirty.vmrag("list")
    tools("dolt_reset", confirm_discard=True)
    assert (dirty.texts(), DIRTY in places(dirty)) == (TEXTS, True)


# -- remotes ---------------------------------------------------------------------------------------


def test_branch_that_only_the_remote_has_gets_a_local_one(world, tmp_path):
    ada = world.ada
    tools = Tools(ada.top)
    tools("dolt_checkout", target="topic", create_branch=True)
    ada.put("topic.md", "A topic.")
    topic = tools("dolt_commit", message="topic")["commit"]["hash"]
    tools("dolt_checkout", target="main")
    tools("dolt_push", branch="topic")
    bob = world.join("bob")
    bob.vmrag("clone")
    bobs = Tools(bob.top)
    answer = bobs("dolt_checkout", target="origin/topic")
    assert (answer["detached"], answer["checkout_result"]["to_commit"]) == (True, topic)
    assert bobs.error("BRANCH_NOT_FOUND", "dolt_checkout", target="other")
    answer = bobs("dolt_checkout", target="topic")
    assert answer["action_taken"]["branch_created"]
    assert (answer["checkout_result"]["to_branch"], answer["checkout_result"]["to_commit"]) == ("topic", topic)
    assert kb_branches(bob)["topic"].head == topic == bob.pinned
    assert_consistent(bob, tmp_path)
    bob.put("mine.md", "Mine.")
    made = bobs("dolt_commit", message="mine")["commit"]["hash"]
    answer = bobs("dolt_reset", target="origin/topic")
    assert (answer["reset_result"]["to_commit"], [commit["hash"] for commit in answer["orphaned_commits"]]) == (
        topic,
        [made],
    )
    assert bobs("dolt_reset", target="HEAD~1")["orphaned_commits"] == []  # the remote holds it


@pytest.mark.parametrize(
    ("tool", "arguments"),
    [
        ("dolt_checkout", {"target": "main"}),
        ("dolt_checkout", {"target": "topic"}),
        ("switch_branch", {"branch": "main"}),
        ("merge_branch", {"source": "main"}),
        ("dolt_reset", {}),
    ],
)
def test_discarded_documents_are_named_and_can_be_merged_back(notes, tools, tool, arguments):
    """Also where there was nothing else to do."""
    tools("create_branch", name="topic")
    put(notes, d="delta", a="edited")
    assert load_catalogue()[tool].annotations["destructiveHint"]
    how = {"confirm_discard": True} if tool == "dolt_reset" else {"if_uncommitted": "reset_first"}
    answer = tools(tool, **arguments, **how)
    assert notes.texts() == TEXTS
    (note,) = (warning["message"] for warning in answer["warnings"] if "Discarded" in warning["message"])
    assert "2 documents (a, d)" in note
    tools("merge_branch", source=re.search(r"source=(\w+)", note)[1])
    assert notes.texts() == TEXTS | {"d": "delta", "a": "edited"}


def test_error_after_a_discard_names_the_kept_revision(notes, tools):
    make_conflict(notes, tools)
    put(notes, d="delta")
    refused = tools.error("MERGE_CONFLICT", "merge_branch", source="topic", if_uncommitted="reset_first")
    assert holds(notes, refused["details"]["discarded"])["d"] == "delta"
