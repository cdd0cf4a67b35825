"""Uncommitted documents, KB branches that follow their code branches, and the possible states."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from tests.support import terminal
from tests.support.indexes import list_folders, segments_of, view_of
from tests.support.repos import isolate
from tests.support.terminal import Project, new_project
from vmrag_link import hints

pytestmark = pytest.mark.hooks("off")

template, project = terminal.template, terminal.project


def kb_branches(project: Project) -> dict[str, tuple[str, bool, str | None]]:
    """Head, dirtiness and code branch of every KB branch."""
    listed = project.ask("branch")["branches"]
    return {revision["name"]: (revision["revision"], revision["dirty"], revision["code_branch"]) for revision in listed}


# -- uncommitted documents stay with their code branch ---------------------------------------------


@pytest.fixture
def three(project: Project) -> dict[str, dict[str, str]]:
    """Uncommitted edits on three code branches, of which `twin` pins the same revision as `main`;
    what each one shows.
    """
    project.git("branch", "twin", "main")
    expected = {}
    for branch in ("main", "twin", "feature"):
        project.git("switch", "-q", branch)
        assert set(project.marks().values()) == {None}
        expected[branch] = project.texts()
        project.put(f"added-on-{branch}.md", f"Written on {branch}.")
        project.put("setup.md", f"Setup as {branch} does it.")
        project.drop("rest.md")
        expected[branch] |= {
            f"added-on-{branch}.md": f"Written on {branch}.",
            "setup.md": f"Setup as {branch} does it.",
        }
        del expected[branch]["rest.md"]
    return expected


@pytest.mark.hooks("on")
def test_each_code_branch_shows_only_its_own_uncommitted_documents(project, three):
    before = kb_branches(project)
    assert {name: dirty for name, (_, dirty, _) in before.items()} == dict.fromkeys(three, True)
    main, twin, feature = three
    for branch in (main, twin, feature, main, feature, twin, main):  # from each of them to each other one
        project.git("switch", "-q", branch)
        status = project.status()
        assert (status["state"], status["kb"]["branch"], status["kb"]["dirty"]) == ("in_sync", branch, True)
        assert project.texts() == three[branch]
        marks = {doc_id: mark for doc_id, mark in project.marks().items() if mark}
        assert marks == {f"added-on-{branch}.md": "added", "setup.md": "modified", "rest.md": "removed"}
        answer = project.ask("query", "written setup rest sleep", "-k", "50")
        assert {result["doc_id"]: result["text"] for result in answer["results"]}.items() <= three[branch].items()
        assert f"added-on-{branch}.md" in {result["doc_id"] for result in answer["results"]}
        assert (answer["kb"]["branch"], answer["kb"]["dirty"]) == (branch, True)
    assert kb_branches(project) == before


def test_commit_on_one_branch_takes_nothing_from_the_others(project, three):
    project.git("switch", "-q", "twin")
    assert project.ask("commit", "-m", "twin")["changes"] == {"added": 1, "modified": 1, "removed": 1}
    project.git("commit", "-q", "-m", "twin")
    for branch, dirty in (("main", True), ("feature", True), ("twin", False)):
        project.git("switch", "-q", branch)
        assert project.texts() == three[branch]
        assert project.status()["kb"]["dirty"] is dirty
    project.git("switch", "-q", "feature")
    project.vmrag("commit", "-m", "feature")
    project.git("commit", "-q", "-m", "feature")
    project.git("switch", "-q", "main")
    assert project.texts() == three["main"]
    assert project.consistent()


def test_uncommitted_documents_do_not_leak_into_a_new_branch(project):
    project.put("draft.md", "A draft.")
    project.git("switch", "-q", "-c", "fresh")
    assert "draft.md" not in project.marks()
    project.put("other.md", "Another.")
    project.git("switch", "-q", "--detach", "main")
    assert set(project.marks()) == {"setup.md", "rest.md", "deep/tls.txt", "faq.md"}
    project.git("switch", "-q", "main")
    assert project.marks()["draft.md"] == "added"
    assert "other.md" not in project.marks()


def test_index_of_uncommitted_documents_is_derived(project):
    project.put("draft.md", "A draft about uv.")
    project.drop("faq.md")
    assert project.consistent()


def test_taking_an_edit_back_leaves_nothing_to_commit(project):
    before = project.answers()
    project.put("draft.md", "A draft.")
    project.drop("draft.md")
    assert set(project.marks().values()) == {None}
    assert project.status()["kb"]["dirty"] is False
    assert project.vmrag("commit", "-m", "nothing", "--json", code=1).error["code"] == "NO_CHANGES"
    assert project.answers() == before


# -- the pin moves under uncommitted documents -----------------------------------------------------


def test_uncommitted_documents_follow_the_pin_there_and_back(project):
    project.put("draft.md", "A draft.")
    pinned, head = project.pinned, project.git("rev-parse", "HEAD")
    project.git("reset", "-q", "--hard", "first")
    status = project.status()
    assert (status["state"], status["hint"]) == ("drift", "run 'vmrag sync' to sync to the pin")
    assert any("uncommitted documents of 'main'" in reason for reason in status["reasons"])
    assert "1 uncommitted document of 'main' moved to" in project.vmrag("sync").err
    assert (project.marks()["draft.md"], "faq.md" in project.marks()) == ("added", False)
    assert kb_branches(project)["main"] == (project.pinned, True, "main")
    assert project.status()["state"] == "in_sync"
    project.git("reset", "-q", "--hard", head)
    assert (project.marks()["draft.md"], "faq.md" in project.marks()) == ("added", True)
    assert kb_branches(project)["main"] == (pinned, True, "main")
    assert project.ask("commit", "-m", "draft")["parent"] == pinned


def test_pin_over_uncommitted_documents_reports_that_they_followed(project):
    project.put("draft.md", "A draft.")
    said = project.vmrag("pin", project.ask("log")["revisions"][1]["revision"])
    assert "1 uncommitted document of 'main' moved to" in said.err
    assert project.marks()["draft.md"] == "added"
    assert "faq.md" not in project.marks()


# -- a clean KB branch follows the pin -------------------------------------------------------------


def test_clean_kb_branch_follows_pin_and_old_head_survives_gc(project):
    before, answers = project.pinned, project.answers()
    project.git("reset", "-q", "--hard", "first")
    project.vmrag("sync")
    assert kb_branches(project)["main"] == (project.pinned, False, "main")
    project.git("reflog", "expire", "--expire=now", "--all")
    project.vmrag("gc", "--apply")
    project.vmrag("pin", before)
    assert project.answers() == answers
    assert kb_branches(project)["main"][0] == before


@pytest.mark.parametrize("conflict", [False, True])
def test_rebased_branch_reports_no_documents_left_behind(project, conflict):
    if conflict:
        project.record("setup", setup="# Setup\n\nInstall the program with poetry.\n")
    project.git("switch", "-q", "-c", "topic", "first")
    project.record("sleep", sleep="Sleep well.")
    project.record("uv", setup="# Setup\n\nInstall the program with uv.\n")
    project.git("rebase", "-q", "main", check=not conflict)
    if conflict:
        project.vmrag("resolve", "--theirs")
        project.git("rebase", "--continue", env={"GIT_EDITOR": "true"})
    said = project.vmrag("sync").err
    assert "left revision" not in said
    assert {"faq.md", "sleep.md"} <= project.texts().keys()
    assert kb_branches(project)["topic"][0] == project.pinned


@pytest.mark.parametrize("elsewhere", [False, True])
def test_documents_that_a_branch_leaves_are_named_with_the_way_back(project, elsewhere):
    if elsewhere:  # as after a merge that dropped them: the branch that was merged has them still
        project.git("switch", "-q", "-c", "keep")
        project.record("more", more="More.")
        project.git("switch", "-q", "main")
    pinned, before = project.pinned, project.texts()
    project.git("reset", "-q", "--hard", "first")
    assert (
        f"'main' left revision {pinned[:7]}, which is kept; run 'vmrag pin {pinned}' to go back"
        in project.vmrag("sync").err
    )
    project.vmrag("merge", pinned)
    assert project.texts() == before


def test_amended_pin_replaces_the_last_one(project):
    old = project.pinned
    project.put("more.md", "More.")
    project.vmrag("commit", "-m", "more")
    project.git("commit", "-q", "--amend", "-m", "faq and more")
    assert project.status()["state"] == "in_sync"
    assert kb_branches(project)["main"][0] == project.pinned != old
    assert project.ask("show", f"{project.git('rev-parse', 'HEAD@{1}')}:handbook/faq.md")["revision"] == old


def test_commit_that_was_not_pinned_is_not_taken_back(project):
    project.git("config", "vmrag.auto-pin", "false")
    project.put("more.md", "More.")
    report = project.ask("commit", "-m", "more")
    assert (report["pin"], report["staged"]) == (None, False)
    status = project.status()
    assert (status["state"], status["hint"]) == ("drift", "run 'vmrag pin' to move the pin there")
    assert "more.md" not in project.marks()
    error = project.vmrag("add", "-", "--collection", "handbook", "--id", "x.md", "--json", code=1, stdin="x").error
    assert (error["code"], error["hint"]) == ("KB_MOVED", status["hint"])
    assert status["hint"] in project.vmrag("sync").err
    assert kb_branches(project)["main"][0] == report["revision"]
    assert "Pinned" in project.vmrag("pin").out
    assert "more.md" in project.marks()
    assert project.git("diff", "--cached", "--name-only") == ".dolt-version"
    assert project.status()["state"] == "in_sync"


def test_pin_goes_to_a_revision_and_to_a_kb_branch(project):
    first = project.ask("log")["revisions"][1]["revision"]
    report = project.ask("pin", first)
    assert (report["pin"]["dolt_commit"], report["changed"], report["staged"]) == (first, True, True)
    assert "faq.md" not in project.marks()
    assert project.status()["state"] == "in_sync"
    project.vmrag("pin", "feature")
    assert "uv.md" in project.marks()
    assert kb_branches(project)["main"] == (project.pinned, False, "main")
    assert project.ask("pin", "feature")["changed"] is False
    error = project.vmrag("pin", "featur", "--json", code=3).error
    assert error["code"] == "BRANCH_NOT_FOUND"
    assert "vmrag branch" in error["hint"]


# -- KB branches and code branches -----------------------------------------------------------------


def test_kb_branch_is_made_at_the_first_write_only(project):
    project.git("switch", "-q", "-c", "quiet")
    project.vmrag("query", "rest")
    project.vmrag("sync")
    project.vmrag("commit", "-m", "nothing", code=1)
    assert "quiet" not in kb_branches(project)
    assert project.status()["kb"]["detached"] is True
    project.put("x.md", "x")
    assert kb_branches(project)["quiet"] == (project.pinned, True, "quiet")
    assert project.git("config", "branch.quiet.vmragBranch") == "quiet"


def test_renamed_code_branch_keeps_its_documents(project):
    project.git("switch", "-q", "-c", "old-name")
    project.put("draft.md", "A draft.")
    project.git("branch", "-m", "new/name")
    assert project.status()["state"] in ("in_sync", "drift")
    assert project.marks()["draft.md"] == "added"
    assert kb_branches(project)["old-name"][2] == "new/name"
    assert project.ask("commit", "-m", "draft")["branch"] == "old-name"


def test_new_branch_does_not_adopt_kb_branch_of_deleted_namesake(project):
    project.git("switch", "-q", "-c", "topic")
    project.put("draft.md", "A draft.")
    project.git("switch", "-q", "main")
    project.git("branch", "-q", "-D", "topic")
    assert kb_branches(project)["topic"][1:] == (True, None)
    project.git("switch", "-q", "-c", "topic")
    assert "draft.md" not in project.marks()
    project.put("other.md", "Another.")
    report = project.ask("commit", "-m", "other")
    assert report["branch"].startswith("b/topic-")
    assert kb_branches(project)["topic"][1:] == (True, None)


@pytest.mark.parametrize("arguments", [("-c", "main", "copy"), ("-C", "main", "feature")])
def test_copied_code_branch_gets_a_kb_branch_of_its_own(project, arguments):
    project.put("draft.md", "A draft of main.")
    before = kb_branches(project)["main"]
    project.git("branch", *arguments)
    copy = arguments[-1]
    project.git("switch", "-q", copy)
    assert "draft.md" not in project.marks()
    assert project.status()["state"] == "in_sync"
    project.put("other.md", "Another.")
    assert set(project.marks()) == {"setup.md", "rest.md", "deep/tls.txt", "faq.md", "other.md"}
    report = project.ask("commit", "-m", "on the copy")
    assert report["branch"] == copy
    assert kb_branches(project)["main"] == before
    assert kb_branches(project)[copy][2] == copy
    project.git("commit", "-q", "-m", "other")
    project.git("switch", "-q", "main")
    assert project.marks()["draft.md"] == "added"
    assert "other.md" not in project.marks()


@pytest.mark.parametrize(
    "name",
    [
        "Feature",
        "FEATURE",
        "grün/日本",
        "head",
        "WORKING",
        "staged",
        "vmrag_keep",
        "a" * 40,
        "x@y",
        "-".join("ab" * 60),
    ],
)
@pytest.mark.sample(2)
def test_code_branch_may_have_a_name_that_no_engine_takes(project, name):
    project.git("update-ref", f"refs/heads/{name}", "main")
    project.git("symbolic-ref", "HEAD", f"refs/heads/{name}")
    project.put("x.md", "x")
    branch = project.ask("commit", "-m", "x")["branch"]
    project.git("commit", "-q", "-m", "x")
    assert kb_branches(project)[branch] == (project.pinned, False, name)
    assert project.status()["state"] == "in_sync"
    assert kb_branches(project)["feature"][2] == "feature"
    project.git("switch", "-q", "main")
    assert "x.md" not in project.marks()


def test_branches_are_listed_with_their_code_branches(project):
    project.put("draft.md", "A draft.")
    said = project.vmrag("branch").out.splitlines()
    assert said[0].startswith("  feature  ")
    assert said[1] == f"* main  {project.pinned[:7]}  for main, uncommitted changes"


# -- linked worktrees ------------------------------------------------------------------------------


@pytest.mark.hooks("on")
def test_two_worktrees_have_their_own_view_of_one_knowledge_base(project, tmp_path):
    said = project.run("worktree", "add", "-q", "-b", "side", str(tmp_path / "side"), "feature")
    side = Project(tmp_path / "side")
    assert said.returncode == 0
    assert side.status()["state"] == "in_sync"
    assert side.shared == project.shared
    assert side.own != project.own
    assert ("uv.md" in side.marks(), "uv.md" in project.marks()) == (True, False)

    side.put("side.md", "Written beside.")
    project.put("main.md", "Written on main.")
    assert (side.marks()["side.md"], project.marks()["main.md"]) == ("added", "added")
    assert "main.md" not in side.marks()
    assert "side.md" not in project.marks()
    assert {result["doc_id"] for result in side.ask("query", "written", "--mode", "keyword")["results"]} == {"side.md"}
    assert {result["doc_id"] for result in project.ask("query", "written", "--mode", "keyword")["results"]} == {
        "main.md"
    }

    revision = side.ask("commit", "-m", "beside")["revision"]
    assert "side.md" not in project.marks()
    assert project.marks()["main.md"] == "added"
    side.git("commit", "-q", "-m", "beside")
    assert project.ask("query", "beside", "--at", "side")["kb"]["commit"] == revision
    assert side.consistent()
    assert project.status()["kb"]["dirty"] is True

    project.git("worktree", "remove", "--force", str(side.top))
    assert project.marks()["main.md"] == "added"
    assert project.consistent()
    project.vmrag("commit", "-m", "main")
    project.git("commit", "-q", "-m", "main")
    project.git("merge", "-q", "-X", "theirs", "--no-edit", "first")
    project.git("switch", "-q", "side")
    assert "side.md" in project.marks()


@pytest.mark.hooks("on")
def test_eviction_in_one_worktree_keeps_views_of_another(project, tmp_path):
    project.git("worktree", "add", "-q", str(tmp_path / "side"), "feature")
    side = Project(tmp_path / "side")
    project.git("config", "vmrag.index.keep-mb", "0")
    before = {*list_folders(side.shared / "segments")}
    for branch in ("first", "main", "first", "main"):
        project.git("switch", "-q", "--detach", branch)
        project.vmrag("sync")
    assert before - {*list_folders(side.shared / "segments")}
    project.vmrag("gc", "--apply")
    bound = {path for view in (view_of(project), view_of(side)) for path in segments_of(view)}
    assert {*list_folders(side.shared / "segments")} == bound
    for view in list_folders(side.shared / "views"):  # a spare one may stay where it costs nothing
        assert {*segments_of(view)} <= bound
    assert side.status()["state"] == "in_sync"


@pytest.mark.hooks("on")
def test_new_branch_with_equal_pin_is_in_sync_and_independent(project):
    """The checkout starts no Python for it: what its hook would note, the next command does."""
    applied = (project.own / "applied").read_bytes()
    assert project.run("switch", "-q", "-c", "twin").stderr == ""
    assert (project.own / "applied").read_bytes() == applied
    report = project.status()
    [reason] = report["reasons"]
    assert (report["state"], "stored copies" in reason) == ("in_sync", True)
    project.put("draft.md", "A draft on twin.")
    assert (project.own / "applied").read_bytes() != applied
    project.git("switch", "-q", "main")
    assert "draft.md" not in project.texts()
    project.git("switch", "-q", "twin")
    assert project.texts()["draft.md"] == "A draft on twin."
    assert project.consistent()


@pytest.mark.hooks("on")
def test_first_of_two_worktrees_has_the_uncommitted_documents(project, tmp_path):
    project.put("draft.md", "A draft.")
    project.git("worktree", "add", "-q", "--force", str(tmp_path / "twin"), "main")
    twin = Project(tmp_path / "twin")
    assert "draft.md" not in twin.marks()
    assert twin.status()["state"] == "in_sync"
    assert project.marks()["draft.md"] == "added"


# -- states ----------------------------------------------------------------------------------------


def test_state_not_initialized(tmp_path, monkeypatch):
    isolate(monkeypatch, tmp_path / "home")
    project = new_project(tmp_path / "new")
    report = project.ask("status")
    assert (report["state"], report["hint"], report["pin"]) == (
        "files",
        "run 'vmrag init' to set up this repository",
        None,
    )
    for command in (["query", "x"], ["list"], ["sync"], ["log"], ["commit", "-m", "m"], ["branch"], ["pin"], ["gc"]):
        error = project.vmrag(*command, "--json", code=2).error
        assert (error["code"], error["hint"]) == (
            "NOT_INITIALIZED",
            "run 'git add FILES' to make files searchable, or 'vmrag init --knowledge-base' to create a knowledge base",
        ), command


def test_state_no_pin_keeps_the_knowledge_in_place(project):
    before = project.answers()
    project.git("rm", "-q", ".dolt-version")
    project.git("commit", "-q", "-m", "no pin")
    report = project.ask("status", code=1)
    assert (report["state"], report["pin"], report["hint"]) == ("no_pin", None, "run 'vmrag pin' to write the pin")
    answer = project.vmrag("query", "faq", "--json")
    assert answer.json["kb"]["in_sync"] is False
    assert "has no pin" in answer.err
    assert project.answers() == before
    assert project.vmrag("sync", "--json", code=1).error["code"] == "NO_PIN"
    assert (
        project.vmrag("add", "-", "--collection", "handbook", "--id", "x", "--json", code=1, stdin="x").error["code"]
        == "NO_PIN"
    )
    project.vmrag("pin")
    assert project.status()["state"] == "in_sync"


def test_state_no_pin_shows_the_uncommitted_documents_that_queries_answer_from(project):
    project.put("draft.md", "A draft.")
    project.git("rm", "-q", ".dolt-version")
    project.git("commit", "-q", "-m", "no pin")
    kb = project.ask("status", code=1)["kb"]
    assert (kb["branch"], kb["detached"], kb["dirty"], kb["documents"]) == ("main", False, True, 5)
    assert (project.ask("query", "draft")["kb"]["dirty"], project.marks()["draft.md"]) == (True, "added")


def test_state_no_pin_without_earlier_binding_begins_with_init(project, tmp_path):
    project.git("branch", "ancient", project.git("commit-tree", "-m", "ancient", project.git("mktree")))
    project.git("worktree", "add", "-q", str(tmp_path / "old"), "ancient")
    old = Project(tmp_path / "old")
    assert old.ask("status", code=1)["hint"] == "run 'vmrag init --knowledge-base' to create a knowledge base"
    for command, *options in (("pin",), ("init", "--knowledge-base")):
        error = old.vmrag(command, *options, "--json", code=1).error
        assert (error["code"], hints.list_commands(error["hint"])[-1]) == ("NO_PIN", f"vmrag {command} --empty")
    old.vmrag("init", "--knowledge-base", "--no-sources", "--empty")
    assert old.status()["state"] == "in_sync"
    assert old.marks() == {}


@pytest.mark.hooks("on")
def test_state_no_pin_on_a_branch_from_before_the_knowledge_base(project):
    pinned = project.pinned
    project.git("switch", "-q", "--orphan", "ancient")
    project.commit("ancient", **{"code.py": "1"})
    assert project.ask("query", "faq")["kb"] | {"in_sync": False, "commit": pinned} == project.ask("query", "faq")["kb"]
    project.git("switch", "-q", "feature")
    assert project.status()["state"] == "in_sync"


def test_state_malformed_names_line_and_fix_and_the_old_revision_answers(project):
    before = project.answers()
    project.write(".dolt-version", '{\n  "dolt_remote": 5\n}\n')
    report = project.ask("status", code=1)
    assert (report["state"], report["pin"]) == ("malformed", None)
    assert ".dolt-version, line 2" in report["reasons"][0]
    assert "git checkout -- .dolt-version" in report["hint"]
    assert project.answers() == before
    assert project.ask("query", "faq")["kb"]["in_sync"] is False
    assert project.vmrag("sync", "--json", code=1).error["code"] == "PIN_MALFORMED"
    assert project.vmrag("commit", "-m", "m", "--json", code=1).error["code"] == "PIN_MALFORMED"
    project.git("checkout", "HEAD", "--", ".dolt-version")
    assert project.status()["state"] == "in_sync"


def test_state_missing_names_possible_owners_and_the_old_revision_answers(project):
    before = project.answers()
    nowhere = "0" * len(project.pinned)  # of the form that the engine's own have
    pin = json.loads((project.top / ".dolt-version").read_text()) | {"dolt_commit": nowhere}
    project.write(".dolt-version", json.dumps(pin))
    project.git("add", ".dolt-version")
    report = project.ask("status", code=1)
    assert (report["state"], report["pin"]["dolt_commit"]) == ("missing", nowhere)
    assert report["hint"] == "run 'vmrag fetch' to fetch the revision"
    assert project.answers() == before
    assert project.ask("query", "faq")["kb"]["in_sync"] is False
    assert project.vmrag("sync", "--json", code=1).error["code"] == "PIN_MISSING_REVISION"


def test_state_drift_after_index_damage_is_repaired_by_sync(project):
    before = project.answers()
    folder = Path(project.status()["index"]["path"])
    (segments_of(folder)[0] / "words-1.idx").unlink()
    report = project.ask("status", code=1)
    assert (report["state"], report["hint"]) == ("drift", "run 'vmrag sync' to sync to the pin")
    assert "cannot be used" in report["reasons"][0]
    assert project.ask("sync")["snapshot"]["how"] in ("delta", "fresh")
    assert project.answers() == before


def test_clone_without_the_knowledge_base_suggests_a_command(project, tmp_path):
    project.git("clone", "-q", str(project.top), str(tmp_path / "clone"))
    clone = Project(tmp_path / "clone")
    report = clone.ask("status", code=1)
    assert report["state"] == "not_initialized"
    error = clone.vmrag("init", "--knowledge-base", "--no-sources", "--json", code=2).error
    assert error["code"] == "ALREADY_INITIALIZED"
    shutil.copytree(project.shared / "kb", clone.shared / "kb")
    assert clone.answers() == project.answers()


# -- where nothing is written ----------------------------------------------------------------------


def test_writes_on_a_detached_head_are_rejected(project):
    project.git("switch", "-q", "--detach")
    error = project.vmrag("add", "-", "--collection", "handbook", "--id", "x", "--json", code=3, stdin="x").error
    assert (error["code"], error["hint"]) == ("GIT_BUSY", "run 'git switch -c NAME' to create a branch")


def test_applied_knowledge_answers_and_writes_fail_while_git_locks_index(project):
    """In the middle of a checkout: the pin is the target's already, HEAD still the old branch."""
    pinned, feature = project.pinned, project.git("show", "feature:.dolt-version")
    project.write(".dolt-version", feature + "\n")
    (project.top / ".git/index.lock").touch()
    answer = project.vmrag("query", "uv", "--json")
    assert (answer.json["kb"]["commit"], answer.json["kb"]["in_sync"]) == (pinned, False)
    assert "the pin has moved" in answer.err
    error = project.vmrag("add", "-", "--collection", "handbook", "--id", "x", "--json", code=3, stdin="x").error
    assert error["code"] == "GIT_BUSY"
    assert "index.lock" in error["hint"]
    (project.top / ".git/index.lock").unlink()
    assert project.ask("query", "uv")["kb"]["commit"] == project.pinned != pinned


@pytest.mark.hooks("on")
def test_writes_during_a_rebase_are_rejected_and_reading_works(project):
    project.git("switch", "-q", "-c", "side", "first")
    project.commit("a", **{"a.py": "1"})
    project.git("-c", "sequence.editor=sed -i s/^pick/edit/", "rebase", "-q", "-i", "feature")
    error = project.vmrag("commit", "-m", "m", "--json", code=3).error
    assert error["code"] == "GIT_BUSY"
    assert "git rebase --continue" in error["hint"]
    assert project.ask("query", "uv")["kb"]["commit"] == project.pinned
    project.git("rebase", "--continue")
    assert project.status()["state"] == "in_sync"
