"""`vmrag merge` and the commit that closes one: every source, every result, every state in which it
is given up, and kills.
"""

from __future__ import annotations

import json
import signal
from pathlib import Path

import pytest

from tests.support import terminal
from tests.support.cli import WITHOUT_RIGHTS, read_only, run_patched, small_disk, start
from tests.support.compare import assert_whole
from tests.support.dolt import embedded
from tests.support.long import crossed
from tests.support.repos import ENGINE_CLASS, isolate
from tests.support.templates import build_once, copy_tree
from tests.support.terminal import SCRIPT, Done, Project, new_project
from vmrag_link.engines.doltlite.connection import Connection
from vmrag_link.engines.folder import DOLTLITE_FILE as FILE_NAME
from vmrag_link.models import RevisionInfo
from vmrag_link.progress import QUIET
from vmrag_link.workspace import Workspace

pytestmark = pytest.mark.hooks("off")

template, project = terminal.template, terminal.project

OFF = {"VMRAG": "0"}
REST, NEVER, OFTEN = "# Rest\n\nTake a rest, and sleep well.\n", "# Rest\n\nNever rest.\n", "# Rest\n\nRest often.\n"
SETUP = "# Setup\n\nInstall the program with pip.\n"
TLS = "Certificates for TLS are renewed every month.\n"
FIRST = {"setup.md": SETUP, "rest.md": REST, "deep/tls.txt": TLS}
MAIN = FIRST | {"faq.md": "A frequent question."}
FEATURE = {"setup.md": SETUP, "rest.md": NEVER, "uv.md": "Use uv."}
BOTH = FEATURE | {"faq.md": "A frequent question."}
"""Documents of `main` and `feature` together."""


def info(project: Project, revision: str | None = None) -> RevisionInfo:
    workspace = Workspace.open(project.top, QUIET)
    try:
        return workspace.engine.read_revision(revision or project.pinned)
    finally:
        workspace.close()


def revision(project: Project, ref: str) -> str:
    return json.loads(project.git("show", f"{ref}:.dolt-version"))["dolt_commit"]


def refused(project: Project, *arguments: str, code: int = 1) -> dict:
    """Return the error, which must have a hint."""
    error = project.vmrag(*arguments, "--json", code=code).error
    assert error["hint"]
    return error


def whole(project: Project, tmp_path: Path, *, state: str = "in_sync") -> None:
    """Check the state, the index against a fresh one, that no merge is open and no journal left."""
    scratch = tmp_path / f"scratch-{len(list(tmp_path.glob('scratch-*')))}"
    scratch.mkdir()
    assert_whole(project, scratch)
    assert project.status()["state"] == state
    assert not open_merge(project).exists()
    assert not list((project.shared / "journal").iterdir())


def open_merge(project: Project) -> Path:
    return project.own / "merge.json"


def merged(project: Project, tmp_path: Path, *, ours: str, theirs: str, texts: dict[str, str]) -> None:
    """The pinned revision joins both, is staged, and holds exactly these texts."""
    assert info(project).parents == (ours, theirs)
    assert project.git("status", "--porcelain") == "M  .dolt-version"
    assert project.texts() == texts
    whole(project, tmp_path)


@pytest.fixture(scope="session")
def torn_template(template: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    def build(folder: Path) -> None:
        Project(copy_tree(template, folder / "project")).record("often", rest=OFTEN)

    return build_once(tmp_path_factory, "torn", build) / "project"


@pytest.fixture
def torn(torn_template: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Project:
    """On `main`, which has edited `rest.md` otherwise than `feature` has."""
    isolate(monkeypatch, tmp_path / "home")
    return Project(copy_tree(torn_template, tmp_path / "project"))


TORN = MAIN | {"rest.md": OFTEN}


# -- results and sources ---------------------------------------------------------------------------


def test_merge_of_a_code_branch_holds_the_changes_of_both_sides(project, tmp_path):
    ours, theirs = project.pinned, revision(project, "feature")
    report = project.ask("merge", "feature")
    assert report == report | {
        "result": "merge",
        "source": "feature",
        "base": revision(project, "first"),
        "ours": ours,
        "theirs": theirs,
        "revision": project.pinned,
        "changes": {"added": 1, "modified": 1, "removed": 1},
        "conflicts": [],
        "staged": True,
    }
    merged(project, tmp_path, ours=ours, theirs=theirs, texts=BOTH)
    again = project.ask("merge", "feature")
    assert (again["result"], again["revision"]) == ("already_up_to_date", project.pinned)


def test_merge_without_own_changes_is_a_fast_forward(project, tmp_path):
    project.git("switch", "-q", "-c", "late", "first")
    report = project.ask("merge", "feature")
    assert (report["result"], report["revision"]) == ("fast_forward", revision(project, "feature"))
    assert project.pinned == revision(project, "feature")
    assert project.texts() == FEATURE
    whole(project, tmp_path)


@pytest.mark.parametrize(
    "source", ["tag", "refs/remotes/origin/feature", "origin/feature", "feature~0", "revision", "kb-only"]
)
def test_every_kind_of_source_names_the_same_knowledge(project, source):
    theirs = revision(project, "feature")
    match source:
        case "tag":
            project.git("tag", "-a", "tag", "-m", "tag", "feature")
        case "refs/remotes/origin/feature" | "origin/feature":
            project.git("update-ref", "refs/remotes/origin/feature", "feature")
        case "revision":
            source = theirs
        case "kb-only":
            workspace = Workspace.open(project.top, QUIET)
            workspace.engine.create_branch("kb-only", theirs)
            workspace.close()
    report = project.ask("merge", source)
    assert (report["result"], report["source"], report["theirs"]) == ("merge", source, theirs)
    assert project.texts() == BOTH


def test_earlier_commit_is_merged_already(project):
    project.record("more", more="more")
    assert project.ask("merge", "HEAD~2")["result"] == "already_up_to_date"
    assert project.ask("merge", "first")["result"] == "already_up_to_date"
    assert "Nothing to merge" in project.vmrag("merge", "HEAD").out


def test_merge_suggests_git_merge_until_git_has_merged(project):
    """A host compares the pins with where the branches parted, whatever the knowledge holds."""
    todo = "hint: run 'git merge feature' to merge the code of a pull request as well\n"
    assert todo in project.vmrag("merge", "feature").out
    project.git("commit", "-q", "-m", "knowledge")
    assert todo in project.vmrag("merge", "feature").out
    assert "git merge" not in project.vmrag("merge", revision(project, "feature")).out
    project.git("merge", "-q", "--no-edit", "-s", "ours", "feature")
    assert "git merge" not in project.vmrag("merge", "feature").out


# -- where a merge starts from ---------------------------------------------------------------------


def joined(project: Project) -> None:
    """`feature` was merged into `main` by git."""
    project.git("merge", "-q", "--no-edit", "feature")
    assert project.texts() == BOTH


def gone_on(project: Project, branch: str = "feature", **documents: str) -> None:
    """Another commit on a branch; HEAD comes back to `main`."""
    project.git("switch", "-q", branch)
    project.record("gone on", **documents)
    project.git("switch", "-q", "main")


@pytest.mark.parametrize(("committed", "later"), crossed([False, True], [False, True]))
@pytest.mark.sample(2)  # test_merge_histories.py has merges of reverted branches
def test_merge_does_not_bring_back_reverted_documents(project, tmp_path, later, committed):
    """Merge as `git merge` does; at the pin before the merge, their side would be a fast-forward
    for the engine.
    """
    project.git("switch", "-q", "-c", "trunk", "first")
    project.git("branch", "-q", "-D", "main")
    project.git("branch", "-q", "-m", "main")
    project.git("merge", "-q", "--no-ff", "--no-edit", "feature")
    project.git("revert", "--no-edit", "-m", "1", "HEAD")
    gone_on(project, good="Good.")
    if later:
        project.put("later.md", "Later.")
        project.vmrag("commit", "-m", "later")
        if committed:
            project.git("commit", "-q", "-m", "later")
    report = project.ask("merge", "feature")
    assert (report["result"], report["base"]) == ("merge", revision(project, "feature~1"))
    texts = FIRST | {"good.md": "Good."} | ({"later.md": "Later."} if later else {})
    assert project.texts() == texts
    whole(project, tmp_path)
    assert project.ask("merge", "feature")["result"] == "already_up_to_date"
    project.git("commit", "-q", "-m", "merged alone")
    assert project.ask("merge", "feature")["result"] == "already_up_to_date"


def test_pin_that_is_put_back_by_hand_counts_like_a_revert(project):
    before = project.pinned
    joined(project)
    project.vmrag("pin", before)
    project.git("commit", "-q", "-m", "back")
    gone_on(project, good="Good.")
    project.vmrag("merge", "feature")
    assert project.texts() == MAIN | {"good.md": "Good."}


@pytest.mark.parametrize("committed", [False, True])
def test_merge_uses_earlier_merge_without_git_as_base(project, committed):
    """git's base is where the code parted; the documents were joined later, and one was removed
    since.
    """
    project.vmrag("merge", "feature")
    project.drop("uv.md")
    project.vmrag("commit", "-m", "without uv")
    project.git("commit", "-q", "-m", "merged alone, without uv")
    joined_at = revision(project, "feature")
    gone_on(project, good="Good.")
    if not committed:
        project.put("more.md", "More.")
        project.vmrag("commit", "-m", "more")
    report = project.ask("merge", "feature")
    assert (report["result"], report["base"]) == ("merge", joined_at)
    texts = {name: text for name, text in BOTH.items() if name != "uv.md"} | {"good.md": "Good."}
    assert project.texts() == (texts if committed else texts | {"more.md": "More."})


def test_revision_is_merged_from_the_base_of_the_knowledge(project):
    before = project.pinned
    joined(project)
    project.vmrag("pin", before)
    assert project.ask("merge", revision(project, "feature"))["base"] == revision(project, "first")
    assert project.texts() == BOTH


def test_merge_of_crossed_histories_starts_from_all_their_bases(torn):
    """Both sides have settled a conflict, each its own way: to start from one of the bases would
    make one of them win.
    """
    torn.git("tag", "left")
    torn.git("tag", "right", "feature")
    for branch, other in (("main", "right"), ("feature", "left")):
        torn.git("switch", "-q", branch)
        torn.git("merge", "-q", "--no-edit", other, check=False)
        torn.vmrag("resolve", "--ours")
        torn.git("commit", "-q", "-m", "settled")
    torn.git("switch", "-q", "main")
    assert torn.ask("merge", "feature", code=1)["conflicts"] == ["handbook/rest.md"]
    torn.vmrag("resolve", "--theirs")
    torn.vmrag("merge", "--continue")
    assert torn.texts() == BOTH


WRONG = (
    (["nowhere"], 3, "GIT_COMMIT_NOT_FOUND"),
    (["WORKING"], 3, "GIT_COMMIT_NOT_FOUND"),
    (["--", "--output=/tmp/x"], 3, "GIT_COMMIT_NOT_FOUND"),
    (["--", "-x"], 3, "GIT_COMMIT_NOT_FOUND"),
    (["0" * 40], 3, "GIT_COMMIT_NOT_FOUND"),
    (["vmrag/wip/main"], 3, "GIT_COMMIT_NOT_FOUND"),
    (["vmrag_root"], 2, "INVALID_NAME"),
    (["unpinned"], 1, "NO_PIN"),
    (["malformed"], 1, "PIN_MALFORMED"),
    (["dangling"], 1, "PIN_MISSING_REVISION"),
    ([], 2, "INVALID_PARAMETER"),
    (["feature", "--abort"], 2, "INVALID_PARAMETER"),
    (["--continue", "--abort"], 2, "INVALID_PARAMETER"),
    (["--continue", "--no-commit"], 2, "INVALID_PARAMETER"),
    (["--continue"], 1, "MERGE_CONFLICT"),
    (["--abort"], 1, "MERGE_CONFLICT"),
)


def test_invalid_merge_is_rejected_and_changes_nothing(project):
    before = project.pinned
    dangling = (project.top / ".dolt-version").read_text().replace(before, "0" * 40)
    for branch, pin in (("unpinned", None), ("malformed", "<<<<<<< x\n"), ("dangling", dangling)):
        project.git("switch", "-q", "-c", branch, "main", env=OFF)
        project.write(".dolt-version", pin) if pin else (project.top / ".dolt-version").unlink()
        project.git("commit", "-q", "-a", "-m", branch, env=OFF)
    project.git("switch", "-q", "main", env=OFF)
    for arguments, code, name in WRONG:
        error = project.vmrag("merge", "--json", *arguments, code=code).error
        assert (error["code"], bool(error["hint"])) == (name, True), arguments
        assert project.pinned == before
        assert not open_merge(project).exists()
    assert project.texts() == MAIN


@embedded
def test_unrelated_histories_do_not_merge(project, tmp_path):
    other = Project(new_project(tmp_path / "other").top)
    other.vmrag("init", "--knowledge-base", "--no-sources")
    other.put("other.md", "Other.")
    other.vmrag("commit", "-m", "other")
    theirs = other.pinned
    url = f"file://{tmp_path}/bare.db"
    for side, call in ((other, "dolt_push('r', 'main')"), (project, "dolt_fetch('r')")):
        with Connection(side.shared / "kb" / FILE_NAME, access="write") as connection:
            connection.execute("SELECT dolt_remote('add', 'r', ?)", (url,))
            connection.execute(f"SELECT {call}")
    refused(project, "merge", theirs, code=3)


def test_merge_into_a_code_branch_without_a_kb_branch_needs_none(project, tmp_path):
    project.git("switch", "-q", "-c", "fresh")
    ours = project.pinned
    assert project.ask("merge", "feature")["result"] == "merge"
    assert "fresh" not in {branch["name"] for branch in project.ask("branch")["branches"]}
    merged(project, tmp_path, ours=ours, theirs=revision(project, "feature"), texts=BOTH)
    project.git("reset", "-q", "--hard")
    project.ask("merge", "feature", "--no-commit")
    assert project.texts() == BOTH
    project.vmrag("commit", "-m", "both")
    merged(project, tmp_path, ours=ours, theirs=revision(project, "feature"), texts=BOTH)


def test_conflict_waits_for_a_person_and_pins_nothing(torn, tmp_path):
    ours, theirs = torn.pinned, revision(torn, "feature")
    report = torn.ask("merge", "feature", code=1)
    assert (report["result"], report["revision"], report["conflicts"]) == ("conflict", None, ["handbook/rest.md"])
    assert torn.pinned == ours
    assert any("vmrag resolve" in reason for reason in torn.status()["reasons"])
    for again in (["merge", "feature"], ["merge", "HEAD"], ["merge", "--repair", "HEAD"], ["branch", "--switch", ours]):
        assert refused(torn, *again)["code"] == "MERGE_CONFLICT"
    for closing in (["merge", "--continue"], ["commit", "-m", "m"]):
        error = refused(torn, *closing)
        assert (error["code"], error["details"]["conflicts"]) == ("MERGE_CONFLICT", ["handbook/rest.md"])
    torn.vmrag("resolve", "--theirs")
    report = torn.ask("merge", "--continue")
    assert (report["result"], report["changes"]) == ("merge", {"added": 1, "modified": 1, "removed": 1})
    merged(torn, tmp_path, ours=ours, theirs=theirs, texts=BOTH)


def test_commit_closes_a_resolved_merge_with_its_own_message_and_author(torn, tmp_path):
    ours, theirs = torn.pinned, revision(torn, "feature")
    torn.vmrag("merge", "feature", code=1)
    torn.vmrag("resolve", "--ours")
    report = torn.ask("commit", "-m", "rest often", "--author", "Bea <bea@example.org>")
    assert (report["parent"], report["revision"], report["branch"]) == (ours, torn.pinned, "main")
    made = info(torn)
    assert (made.message, made.author) == ("rest often", "Bea <bea@example.org>")
    merged(torn, tmp_path, ours=ours, theirs=theirs, texts=BOTH | {"rest.md": OFTEN})


# -- uncommitted documents -------------------------------------------------------------------------


def test_uncommitted_documents_are_not_mixed_into_a_merge(project):
    project.put("draft.md", "A draft.")
    error = refused(project, "merge", "feature")
    assert (error["code"], error["hint"]) == ("UNCOMMITTED_CHANGES", "run 'vmrag commit' to commit the documents")
    assert project.texts() == MAIN | {"draft.md": "A draft."}


def test_documents_edited_during_conflicts_are_in_the_result(torn, tmp_path):
    ours, theirs = torn.pinned, revision(torn, "feature")
    torn.vmrag("merge", "feature", code=1)
    torn.put("rest.md", "# Rest\n\nRest when tired.\n")
    torn.put("more.md", "More.")
    torn.drop("faq.md")
    assert torn.ask("resolve", "--list", code=1)["conflicts"][0]["conflict"]["ours"]["content"].endswith("tired.\n")
    torn.vmrag("resolve", "handbook/rest.md", "--ours")
    torn.vmrag("merge", "--continue")
    texts = BOTH | {"rest.md": "# Rest\n\nRest when tired.\n", "more.md": "More."}
    del texts["faq.md"]
    merged(torn, tmp_path, ours=ours, theirs=theirs, texts=texts)
    assert {branch["name"]: branch["dirty"] for branch in torn.ask("branch")["branches"]}["main"] is False


def test_editing_document_to_their_text_ends_the_conflict(torn, tmp_path):
    ours, theirs = torn.pinned, revision(torn, "feature")
    torn.vmrag("merge", "feature", code=1)
    torn.put("rest.md", NEVER)
    torn.vmrag("merge", "--continue")
    merged(torn, tmp_path, ours=ours, theirs=theirs, texts=BOTH)


# -- preview ---------------------------------------------------------------------------------------


def test_merge_without_commit_can_be_changed_before_the_commit(project, tmp_path):
    ours, theirs = project.pinned, revision(project, "feature")
    report = project.ask("merge", "feature", "--no-commit")
    assert (report["result"], report["revision"]) == ("uncommitted", ours)
    assert report["changes"] == {"added": 1, "modified": 1, "removed": 1}
    assert project.pinned == ours
    assert project.texts() == BOTH
    assert project.marks() == {
        "setup.md": None,
        "rest.md": "modified",
        "deep/tls.txt": "removed",
        "uv.md": "added",
        "faq.md": None,
    }
    assert any("vmrag commit" in reason for reason in project.status()["reasons"])
    project.put("rest.md", "By hand.")
    project.put("deep/tls.txt", TLS)
    project.drop("uv.md")
    assert project.ask("resolve", "--list")["conflicts"] == []  # the user's documents do not conflict with theirs
    assert project.ask("resolve", "--list")["next"] == "vmrag commit"
    refused(project, "resolve", "handbook/rest.md", "--theirs", code=3)
    project.vmrag("commit", "-m", "both")
    merged(project, tmp_path, ours=ours, theirs=theirs, texts=MAIN | {"rest.md": "By hand."})
    assert info(project).message == "both"
    assert project.ask("merge", "feature")["result"] == "already_up_to_date"


def test_fast_forward_without_commit_is_committed_with_both_parents(project, tmp_path):
    project.git("switch", "-q", "-c", "late", "first")
    ours, theirs = project.pinned, revision(project, "feature")
    assert project.ask("merge", "feature", "--no-commit")["result"] == "uncommitted"
    project.vmrag("merge", "--continue")
    merged(project, tmp_path, ours=ours, theirs=theirs, texts=FEATURE)


def test_conflicting_merge_without_commit_ends_with_a_commit(torn, tmp_path):
    ours, theirs = torn.pinned, revision(torn, "feature")
    torn.vmrag("merge", "feature", "--no-commit", code=1)
    torn.vmrag("resolve", "--theirs")
    assert torn.ask("merge", "--continue")["result"] == "uncommitted"
    assert torn.pinned == ours
    assert torn.texts() == BOTH
    torn.put("more.md", "More.")
    torn.vmrag("commit", "-m", "both")
    merged(torn, tmp_path, ours=ours, theirs=theirs, texts=BOTH | {"more.md": "More."})


def test_merge_without_document_changes_is_still_committed(project, tmp_path):
    project.put("rest.md", NEVER)
    project.drop("deep/tls.txt")
    project.drop("faq.md")
    ours, theirs = project.record("the same", uv="Use uv."), revision(project, "feature")
    assert project.ask("merge", "feature", "--no-commit")["changes"] == {"added": 0, "modified": 0, "removed": 0}
    project.vmrag("commit", "-m", "joined")
    merged(project, tmp_path, ours=ours, theirs=theirs, texts=FEATURE)


# -- collections -----------------------------------------------------------------------------------


@pytest.mark.parametrize("side", ["ours", "theirs"])
@pytest.mark.sample(1)  # test_resolve.py has the sides
def test_collection_removed_by_revert_stays_or_goes_with_all_documents(project, side):
    for name in ("n1", "n2", "n3"):
        project.put(name, name, collection="notes")
    project.record("notes")
    project.put("n4", "n4", collection="notes")
    project.record("later")
    before = project.texts()
    project.git("revert", "--no-edit", "HEAD~1", check=False)
    shown = project.vmrag("resolve", "--list", code=1).out
    assert "notes/\n  ours (main): keeps it, with 4 documents\n  theirs (before " in shown
    assert ", being reverted): removed it\n" in shown
    project.vmrag("resolve", f"--{side}")
    project.git("revert", "--continue", check=False, env={"GIT_EDITOR": "true"})
    gone = {"n1", "n2", "n3", "n4"} if side == "theirs" else set()
    assert project.texts() == {name: text for name, text in before.items() if name not in gone}


# -- giving up -------------------------------------------------------------------------------------


def test_aborted_merge_keeps_documents_edited_manually(torn, tmp_path):
    torn.vmrag("merge", "feature", code=1)
    torn.put("more.md", "More.")
    report = torn.ask("merge", "--abort")
    assert (report["result"], report["revision"], report["notes"]) == ("aborted", torn.pinned, [])
    assert torn.texts() == TORN | {"more.md": "More."}
    whole(torn, tmp_path)


@pytest.mark.parametrize("conflicting", [False, True])
def test_aborted_merge_can_be_merged_back_by_the_printed_command(project, tmp_path, conflicting):
    if conflicting:
        project.record("often", rest=OFTEN)
        project.vmrag("merge", "feature", "--no-commit", code=1)
        project.vmrag("resolve", "--theirs")
        project.vmrag("merge", "--continue")
    else:
        project.vmrag("merge", "feature", "--no-commit")
    ours = project.pinned
    before = TORN if conflicting else MAIN
    project.put("more.md", "More.")
    said = project.vmrag("merge", "--abort").out
    assert project.texts() == before
    whole(project, tmp_path)
    project.put("other.md", "Meanwhile.")
    whole(project, tmp_path)
    command = "vmrag merge vmrag/wip/main"
    assert f"run '{command}'" in said
    project.vmrag(*command.split()[1:])
    assert project.texts() == BOTH | {"more.md": "More.", "other.md": "Meanwhile."}
    assert [branch["name"] for branch in project.ask("branch")["branches"]] == ["feature", "main"]
    whole(project, tmp_path)
    project.vmrag("commit", "-m", "after all")
    assert info(project).parents == (ours,)
    whole(project, tmp_path)


def test_missing_result_is_not_committed_as_a_removal(project, tmp_path):
    ours = project.pinned
    project.vmrag("merge", "feature", "--no-commit")
    project.vmrag("pin", revision(project, "feature"))  # which holds all of it
    project.vmrag("pin", ours)
    assert project.texts() == BOTH  # uncommitted changes come back with their pin
    project.vmrag("merge", "--continue")
    merged(project, tmp_path, ours=ours, theirs=revision(project, "feature"), texts=BOTH)


# -- while git has the pin in conflict -------------------------------------------------------------


@pytest.mark.parametrize("driver", [True, False])
def test_pin_is_rejected_during_a_conflict_with_a_hint_to_resolve(torn, driver):
    before, theirs = torn.pinned, revision(torn, "feature")
    if not driver:
        torn.git("config", "--remove-section", "merge.vmrag")
    torn.git("merge", "feature", check=False)
    pin, stages = (torn.top / ".dolt-version").read_bytes(), torn.git("ls-files", "--unmerged")
    assert (b"<<<<<<<" in pin) == (not driver)
    status = torn.status()
    assert driver or status["hint"].startswith("run 'vmrag resolve")
    for command in (["pin"], ["pin", before], ["pin", theirs], ["link", "--bidirectional"]):
        error = refused(torn, *command)
        assert (error["code"], error["hint"]) == ("MERGE_CONFLICT", "run 'vmrag resolve' to resolve the conflicts"), (
            command
        )
        assert ((torn.top / ".dolt-version").read_bytes(), torn.git("ls-files", "--unmerged")) == (pin, stages)
    torn.vmrag("resolve", "--theirs")
    torn.git("commit", "-q", "--no-edit")
    assert torn.texts() == BOTH
    assert info(torn).parents == (before, theirs)


def test_pin_that_one_side_removed_is_gits_own_question(project):
    project.git("switch", "-q", "-c", "unpinned", "first")
    project.git("rm", "-q", ".dolt-version")
    project.git("commit", "-q", "-m", "unpinned", env=OFF)
    project.git("switch", "-q", "main")
    project.git("merge", "unpinned", check=False)
    assert refused(project, "pin")["hint"].startswith("run 'git add .dolt-version")
    project.git("add", ".dolt-version")
    project.git("commit", "-q", "--no-edit")
    assert project.texts() == MAIN


# -- documents that were set aside -----------------------------------------------------------------


@pytest.fixture
def aside(project: Project) -> Project:
    """On `main` at `feature`'s revision, with two documents set aside: one is new, one conflicts
    there.
    """
    project.put("rest.md", OFTEN)
    project.put("draft.md", "A draft.")
    assert "vmrag merge vmrag/wip/main" in project.vmrag("pin", "feature").out + project.vmrag("status", code=None).out
    project.git("commit", "-q", "-m", "moved", "--", ".dolt-version")
    assert project.texts() == FEATURE
    return project


def test_documents_stashed_by_moved_pin_return_with_their_conflicts(aside, tmp_path):
    report = aside.ask("merge", "vmrag/wip/main", code=1)
    assert (report["result"], report["conflicts"]) == ("conflict", ["handbook/rest.md"])
    aside.vmrag("resolve", "--theirs")
    before = aside.pinned
    assert aside.ask("merge", "--continue")["result"] == "uncommitted"
    assert aside.pinned == before
    assert aside.marks() == dict.fromkeys(FEATURE) | {"rest.md": "modified", "draft.md": "added"}
    assert aside.texts() == FEATURE | {"rest.md": OFTEN, "draft.md": "A draft."}
    assert not [branch for branch in aside.ask("branch")["branches"] if branch["name"].startswith("vmrag")]
    whole(aside, tmp_path, state="dropped")  # the commit "moved" left the documents of main


def test_documents_are_restored_onto_uncommitted_ones(aside, tmp_path):
    aside.put("draft.md", "Another draft.")
    aside.put("more.md", "More.")
    assert aside.ask("merge", "vmrag/wip/main", code=1)["conflicts"] == ["handbook/draft.md", "handbook/rest.md"]
    aside.vmrag("resolve", "handbook/draft.md", "--ours", code=1)
    aside.vmrag("resolve", "handbook/rest.md", "--theirs")
    aside.vmrag("merge", "--continue")
    assert aside.texts() == FEATURE | {"rest.md": OFTEN, "draft.md": "Another draft.", "more.md": "More."}
    whole(aside, tmp_path, state="dropped")  # the commit "moved" left the documents of main


def test_documents_are_restored_on_another_branch(aside, tmp_path):
    aside.git("switch", "-q", "-c", "elsewhere", "first")
    report = aside.ask("merge", "vmrag/wip/main")  # there is nothing to be in conflict with
    assert (report["result"], report["changes"]) == ("uncommitted", {"added": 1, "modified": 1, "removed": 0})
    assert aside.texts() == FIRST | {"rest.md": OFTEN, "draft.md": "A draft."}
    whole(aside, tmp_path)
    aside.git("switch", "-q", "main")
    assert aside.texts() == FEATURE


def test_giving_up_leaves_them_set_aside(aside, tmp_path):
    aside.vmrag("merge", "vmrag/wip/main", code=1)
    aside.vmrag("merge", "--abort")
    assert aside.texts() == FEATURE
    assert "vmrag/wip/main" in {branch["name"] for branch in aside.ask("branch")["branches"]}
    assert any("vmrag merge vmrag/wip/main" in reason for reason in aside.status()["reasons"])
    whole(aside, tmp_path, state="dropped")  # the commit "moved" left the documents of main


def test_their_conflicts_are_not_resolved_on_another_branch_by_accident(aside):
    aside.vmrag("merge", "vmrag/wip/main", code=1)
    aside.git("switch", "-q", "-c", "elsewhere", "first")
    error = refused(aside, "resolve", "--theirs")
    assert (error["code"], "git switch main" in error["hint"]) == ("KB_MOVED", True)
    aside.git("switch", "-q", "main")
    aside.vmrag("resolve", "--theirs")
    aside.vmrag("merge", "--continue")
    assert aside.texts() == FEATURE | {"rest.md": OFTEN, "draft.md": "A draft."}


# -- what happens while a merge is open ------------------------------------------------------------


def test_open_merge_waits_until_its_branch_is_back(torn, tmp_path):
    ours, theirs = torn.pinned, revision(torn, "feature")
    torn.vmrag("merge", "feature", code=1)
    torn.vmrag("resolve", "--theirs")
    torn.git("switch", "-q", "-c", "elsewhere", "first")
    for command in (["merge", "--continue"], ["resolve", "--ours"]):
        error = refused(torn, *command)
        assert (error["code"], f"git switch main && vmrag pin {ours}" in error["hint"]) == ("KB_MOVED", True)
    assert torn.status()["state"] == "in_sync"
    torn.record("a commit meanwhile", note="A note.")
    assert info(torn).parents == (revision(torn, "first"),)
    torn.git("switch", "-q", "main")
    torn.vmrag("merge", "--continue")
    merged(torn, tmp_path, ours=ours, theirs=theirs, texts=BOTH)


def test_open_merge_outlives_a_moved_pin_a_deleted_branch_and_gc(torn, tmp_path):
    ours, theirs = torn.pinned, revision(torn, "feature")
    torn.vmrag("merge", "feature", code=1)
    torn.vmrag("resolve", "--theirs")
    torn.git("branch", "-q", "-D", "feature")
    torn.git("reflog", "expire", "--expire=now", "--all")
    torn.git("gc", "-q", "--prune=now")
    torn.vmrag("gc", "--apply")
    torn.vmrag("pin", revision(torn, "first"))
    for command in (["merge", "--continue"], ["resolve", "--ours"], ["commit", "-m", "m"]):
        assert f"vmrag pin {ours}" in refused(torn, *command)["hint"]
    torn.vmrag("pin", ours)
    torn.vmrag("merge", "--continue")
    merged(torn, tmp_path, ours=ours, theirs=theirs, texts=BOTH)


def test_giving_up_elsewhere_touches_the_documents_of_neither_branch(project, tmp_path):
    project.vmrag("merge", "feature", "--no-commit")
    project.git("switch", "-q", "-c", "elsewhere", "main")  # at the same revision
    project.put("note.md", "A note.")
    assert "uncommitted" in project.vmrag("merge", "--abort").out
    assert project.texts() == MAIN | {"note.md": "A note."}
    project.git("switch", "-q", "main")
    assert project.texts() == BOTH
    whole(project, tmp_path)


def test_two_work_trees_merge_at_once(torn, tmp_path):
    torn.git("branch", "second", "main")
    torn.git("worktree", "add", "-q", str(tmp_path / "second"), "second")
    second = Project(tmp_path / "second")
    ours, theirs = torn.pinned, revision(torn, "feature")
    for project, side in ((torn, "--ours"), (second, "--theirs")):
        project.vmrag("merge", "feature", code=1)
        project.vmrag("resolve", side)
    running = [start(tree, "merge", "--continue") for tree in (torn, second)]
    assert [process.done().code for process in running] == [0, 0]
    merged(torn, tmp_path, ours=ours, theirs=theirs, texts=BOTH | {"rest.md": OFTEN})
    merged(second, tmp_path, ours=ours, theirs=theirs, texts=BOTH)


BUSY = {
    "detached": (["switch", "--detach"], "git switch -c NAME"),
    "rebase": (["rebase", "code"], "git rebase --continue"),
    "merge": (["merge", "code"], "git commit"),
    "cherry-pick": (["cherry-pick", "code"], "git cherry-pick --continue"),
    "revert": (["revert", "--no-edit", "HEAD~1"], "git revert --continue"),
    "bisect": (["bisect", "start"], "git bisect reset"),
}


@pytest.mark.parametrize("what", BUSY)
@pytest.mark.sample(3)
def test_merge_is_rejected_during_a_git_operation(project, what):
    project.git("branch", "code")
    for branch in ("main", "code"):
        project.git("switch", "-q", branch, env=OFF)
        project.commit("one", code=f"{branch} 1\n")
        project.commit("two", code=f"{branch} 2\n")
    project.git("switch", "-q", "main")
    before = project.pinned
    command, hint = BUSY[what]
    project.git(*command, check=False)
    for arguments in (["merge", "feature"], ["merge", "--repair", "main"], ["branch", "--switch", before]):
        error = refused(project, *arguments, code=3)
        assert (error["code"], error["details"]["operation"]) == ("GIT_BUSY", what)
        assert hint in error["hint"]
    assert project.pinned == before


def test_open_merge_is_finished_only_when_git_has_ended(project, tmp_path):
    project.record("often", rest=OFTEN)
    ours, theirs = project.pinned, revision(project, "feature")
    project.vmrag("merge", "feature", code=1)
    project.vmrag("resolve", "--theirs")
    project.git("bisect", "start")
    assert refused(project, "merge", "--continue", code=3)["code"] == "GIT_BUSY"
    project.git("bisect", "reset")
    project.vmrag("merge", "--continue")
    merged(project, tmp_path, ours=ours, theirs=theirs, texts=BOTH)


# -- merge.json ------------------------------------------------------------------------------------


def test_damaged_file_of_the_open_merge_stops_merging_and_nothing_else(torn):
    torn.vmrag("merge", "feature", code=1)
    for content in (b"", b"{", b"\xff\xfe", b'{"kind": "octopus"}', b"[]", b'{"kind":"merge"}'):
        open_merge(torn).write_bytes(content)
        for command in (["merge", "--continue"], ["merge", "--abort"], ["resolve", "--ours"], ["merge", "feature"]):
            error = refused(torn, *command, code=3)
            assert (error["code"], str(open_merge(torn)) in error["hint"]) == ("FILE_SYSTEM_ERROR", True)
        assert torn.status()["state"] == "merging"
        assert any(str(open_merge(torn)) in reason for reason in torn.status()["reasons"])
    assert torn.texts() == TORN
    open_merge(torn).unlink()
    assert torn.ask("merge", "feature", code=1)["result"] == "conflict"


def test_unknown_keys_in_the_merge_file_are_ignored(torn, tmp_path):
    ours, theirs = torn.pinned, revision(torn, "feature")
    torn.vmrag("merge", "feature", code=1)
    stored = json.loads(open_merge(torn).read_text())
    open_merge(torn).write_text(json.dumps(stored | {"strategy": "recursive"}))
    torn.vmrag("resolve", "--theirs")
    torn.vmrag("merge", "--continue")
    merged(torn, tmp_path, ours=ours, theirs=theirs, texts=BOTH)


def rightless(project: Project, *arguments: str) -> Done:
    return start(project, *arguments, program=(*WITHOUT_RIGHTS, str(SCRIPT))).done()


def test_resolve_decides_nothing_if_the_merge_file_is_read_only(torn):
    torn.vmrag("merge", "feature", code=1)
    before = open_merge(torn).read_bytes()
    with read_only(torn.own):
        result = rightless(torn, "resolve", "--theirs", "--json")
    assert (result.code, result.error["code"]) == (3, "FILE_SYSTEM_ERROR")
    assert open_merge(torn).read_bytes() == before
    torn.vmrag("resolve", "--theirs")
    assert torn.ask("merge", "--continue")["result"] == "merge"


def test_full_disk_keeps_the_decisions_so_far(torn, tmp_path):
    torn.vmrag("merge", "feature", code=1)
    torn.vmrag("resolve", "--ours")
    before = open_merge(torn).read_bytes()
    text = tmp_path / "long.md"
    text.write_text("word " * 200_000)
    with small_disk(torn.own, kilobytes=64_000) as fill:
        fill(0)
        result = torn.vmrag("resolve", "handbook/rest.md", "--file", str(text), "--json", code=3)
        assert result.error["code"] == "FILE_SYSTEM_ERROR"
        assert open_merge(torn).read_bytes() == before
        assert [path.name for path in torn.own.glob("*.tmp")] == []


# -- kills -----------------------------------------------------------------------------------------

DIES = {
    "before the revision is made": f"from {ENGINE_CLASS} as m; m.commit_onto = die",
    "before the pin is written": "import vmrag_link.workspace.pins.pinning as m; m.write_pin = die",
    "before the pin is staged": "from vmrag_link.git import staging as m; m.stage_path = die",
    "before workspace.json": "from vmrag_link.sync import binding as m; m.write_binding = die",
    "before merge.json goes": "import vmrag_link.workspace.merge.merge_state as m; m.clear_merge = die",
}


def dies(project: Project, body: str, *arguments: str) -> None:
    result = run_patched(project, body, *arguments)
    assert result.code == -signal.SIGKILL, result


@pytest.mark.parametrize(("step", "resolved"), [*((die, True) for die in DIES), ("before the pin is staged", False)])
@pytest.mark.sample(1)
def test_merge_killed_at_any_step_can_be_repeated_or_finishes(project, tmp_path, step, resolved):
    if resolved:
        project.record("often", rest=OFTEN)
        project.vmrag("merge", "feature", code=1)
        project.vmrag("resolve", "--theirs")
    ours, theirs = project.pinned, revision(project, "feature")
    again = ["merge", "--continue"] if resolved else ["merge", "feature"]
    dies(project, DIES[step], *again)
    result = project.run_quietly(*again)
    landed = project.pinned != ours
    assert result.code == 0 or (resolved and landed and "no merge is open" in result.err), result
    merged(project, tmp_path, ours=ours, theirs=theirs, texts=BOTH)


@pytest.mark.parametrize("step", [*DIES][1:3] + [*DIES][-1:])
@pytest.mark.sample(1)
def test_killed_merge_commit_keeps_written_documents(project, tmp_path, step):
    ours, theirs = project.pinned, revision(project, "feature")
    project.vmrag("merge", "feature", "--no-commit")
    project.put("more.md", "More.")
    dies(project, DIES[step], "commit", "-m", "both")
    result = project.run_quietly("commit", "-m", "both")
    assert result.code == 0 or "no documents have changed" in result.err, result
    merged(project, tmp_path, ours=ours, theirs=theirs, texts=BOTH | {"more.md": "More."})


WRITING = {
    "before the rows are written": f"from {ENGINE_CLASS} as m; m.write = die",
    "before the state says so": (
        "import vmrag_link.workspace.merge.merge_state as m\nsave = m.save_merge\n"
        "m.save_merge = lambda ws, state: die() if state.written else save(ws, state)"
    ),
}


@pytest.mark.parametrize("step", WRITING)
@pytest.mark.sample(1)
def test_killed_merge_without_commit_continues(project, tmp_path, step):
    ours, theirs = project.pinned, revision(project, "feature")
    dies(project, WRITING[step], "merge", "feature", "--no-commit")
    project.vmrag("commit", "-m", "both")
    merged(project, tmp_path, ours=ours, theirs=theirs, texts=BOTH)


ABORTING = {
    "before merge.json goes": DIES["before merge.json goes"],
    "before the documents are kept": DIES["before the revision is made"],
    "before they are taken back": f"from {ENGINE_CLASS} as m; m.discard_saved_rows = die",
    "before the journal's entry goes": "import vmrag_link.journal as m; m.Journal.remove_entry = die",
}


@pytest.mark.parametrize("step", ABORTING)
@pytest.mark.sample(1)
def test_giving_up_killed_at_any_step_loses_no_document(project, tmp_path, step):
    project.vmrag("merge", "feature", "--no-commit")
    project.put("more.md", "More.")
    dies(project, ABORTING[step], "merge", "--abort")
    assert project.texts() == BOTH | {"more.md": "More."}
    project.run_quietly("merge", "--abort")
    names = [branch["name"] for branch in project.ask("branch")["branches"]]
    if "vmrag/wip/main" in names:
        assert project.texts() == MAIN
        project.vmrag("merge", "vmrag/wip/main")
    assert project.texts() == BOTH | {"more.md": "More."}
    whole(project, tmp_path)


# -- repair ----------------------------------------------------------------------------------------

PLAIN = ("-c", "merge.vmrag.driver=false")


def button(project: Project, *, take: str = "--ours") -> str:
    """A merge of `feature` as a web page makes it: no driver, one side's pin."""
    project.git(*PLAIN, "merge", "-q", "--no-edit", "feature", check=False, env=OFF)
    project.git("checkout", take, ".dolt-version", env=OFF)
    project.git("add", ".dolt-version")
    project.git("commit", "-q", "--no-edit", env=OFF)
    return project.git("rev-parse", "HEAD")


@pytest.mark.parametrize("take", ["--ours", "--theirs"])
def test_repair_imports_knowledge_dropped_by_a_merge_without_the_driver(project, tmp_path, take):
    theirs, ours = revision(project, "feature"), project.pinned
    button(project, take=take)
    assert project.texts() == (MAIN if take == "--ours" else FEATURE)
    report = project.ask("merge", "--repair", "HEAD")
    assert (report["result"], report["base"]) == ("merge", revision(project, "first"))
    pair = (ours, theirs) if take == "--ours" else (theirs, ours)
    merged(project, tmp_path, ours=pair[0], theirs=pair[1], texts=BOTH)
    assert project.ask("merge", "--repair", "HEAD")["result"] == "already_up_to_date"


def test_repair_works_on_later_knowledge(project, tmp_path):
    commit = button(project)
    project.record("later", later="Later.")
    ours = project.pinned
    project.vmrag("merge", "--repair", commit)
    merged(project, tmp_path, ours=ours, theirs=revision(project, "feature"), texts=BOTH | {"later.md": "Later."})


def test_repair_restores_knowledge_that_a_squash_dropped(project, tmp_path):
    dropped, taken = project.pinned, revision(project, "feature")
    project.git("checkout", "feature", "--", ".dolt-version", env=OFF)
    project.git("commit", "-q", "-m", "squashed", env=OFF)
    assert project.texts() == FEATURE
    assert project.ask("merge", "--repair", "HEAD")["base"] == revision(project, "first")
    merged(project, tmp_path, ours=taken, theirs=dropped, texts=BOTH)


def test_repair_of_octopus_merges_one_side_in_each_run(project, tmp_path):
    project.git("switch", "-q", "-c", "third", "feature")
    project.record("third", third="Third.")
    project.git("switch", "-q", "-c", "base", "first")
    tree = project.git("rev-parse", "first^{tree}")
    commit = project.git("commit-tree", tree, "-p", "main", "-p", "feature", "-p", "third", "-m", "octopus")
    project.git("reset", "-q", "--hard", commit)
    assert project.texts() == FIRST
    results = []
    for _ in range(5):
        results.append(project.ask("merge", "--repair", commit)["result"])
        if results[-1] == "already_up_to_date":
            break
    assert results == ["fast_forward", "merge", "merge", "already_up_to_date"]
    assert project.texts() == BOTH | {"third.md": "Third."}
    whole(project, tmp_path)


def test_repair_without_findings_does_nothing(project):
    first = project.git("rev-list", "--max-parents=0", "HEAD")
    project.git("switch", "-q", "--orphan", "orphan", env=OFF)
    unpinned = project.commit("nothing", code="nothing")
    project.git("switch", "-q", "main")
    for commit in ("HEAD", first, "HEAD~1", unpinned):
        assert project.ask("merge", "--repair", commit)["result"] == "already_up_to_date"
    assert refused(project, "merge", "--repair", "nowhere", code=3)["code"] == "GIT_COMMIT_NOT_FOUND"
    project.put("draft.md", "A draft.")
    assert project.ask("merge", "--repair", "HEAD")["result"] == "already_up_to_date"


def test_commit_that_pins_nothing_is_repaired_from_its_parents(project, tmp_path):
    theirs = revision(project, "feature")
    project.git(*PLAIN, "merge", "-q", "--no-edit", "feature", check=False, env=OFF)
    project.git("rm", "-q", "-f", ".dolt-version", env=OFF)
    project.git("commit", "-q", "--no-edit", env=OFF)
    project.git("checkout", "HEAD^1", "--", ".dolt-version")
    project.git("commit", "-q", "-m", "pinned again")
    ours = project.pinned
    project.vmrag("merge", "--repair", "HEAD~1")
    merged(project, tmp_path, ours=ours, theirs=theirs, texts=BOTH)


def test_conflicts_of_a_repair_are_resolved_like_others(torn, tmp_path):
    button(torn)
    ours, theirs = torn.pinned, revision(torn, "feature")
    report = torn.ask("merge", "--repair", "HEAD", code=1)
    assert (report["result"], report["conflicts"]) == ("conflict", ["handbook/rest.md"])
    torn.vmrag("resolve", "handbook/rest.md", "--file", "-", stdin="Repaired.")
    torn.vmrag("merge", "--continue")
    merged(torn, tmp_path, ours=ours, theirs=theirs, texts=BOTH | {"rest.md": "Repaired."})
    assert torn.ask("merge", "--repair", "HEAD")["result"] == "already_up_to_date"
