"""Reading the history as with git: ranges, the forms of `log`, the graph, the pager."""

from __future__ import annotations

import re

import pytest

from tests.support import terminal
from tests.support.terminal import Project, on_a_terminal, opened
from vmrag_link.engines.own_branches import read_root
from vmrag_link.errors import GitReferenceMissing, UsageInvalid
from vmrag_link.models import At
from vmrag_link.workspace import Workspace
from vmrag_link.workspace.commits import revisions
from vmrag_link.workspace.history import ranges, revparse

pytestmark = pytest.mark.hooks("off")

template = terminal.template


@pytest.fixture(scope="module")
def merged(template, tmp_path_factory):
    return terminal.derive_template(tmp_path_factory, "merged-history", template, _merge)


def _merge(project: Project) -> None:
    """`main` and `side` since `first`; `side` merged, and one more revision; tags on the way."""
    project.git("tag", "v1", "first")
    project.git("switch", "-q", "-c", "side", "first")
    project.vmrag("sync")
    project.record("a side of it", side="The side.")
    project.git("switch", "-q", "main")
    project.vmrag("sync")
    project.git("merge", "-q", "--no-edit", "side")
    project.vmrag("sync")
    project.record("after", faq="Another answer.")


@pytest.fixture
def project(merged, tmp_path, monkeypatch):
    return terminal.copied(merged, tmp_path, monkeypatch)


def pin_of(project: Project, ref: str) -> str:
    return project.ask("log", ref, "-n", "1")["revisions"][0]["revision"]


def messages(project: Project, *arguments: str) -> list[str]:
    return [revision["message"].splitlines()[0] for revision in project.ask("log", *arguments)["revisions"]]


# -- ranges ----------------------------------------------------------------------------------------


def test_diff_range_starts_at_first_side_or_merge_base(project):
    """`side` was left by `main` at `first`: what main has made since is not in `main...side`."""

    def names(*places):
        return project.vmrag("diff", "--name-status", *places).out.splitlines()

    assert names("main..side") == names("main", "side") == ["D\thandbook/faq.md"]
    assert names("main~2...side") == ["A\thandbook/side.md"] == names("v1..side")
    assert names("side...main") == names("side..") == names("side..HEAD") == ["A\thandbook/faq.md"]
    assert names("..side") == ["D\thandbook/faq.md"]
    project.put("draft.md", "A draft.")
    assert names("side..WORKING") == ["A\thandbook/draft.md", "A\thandbook/faq.md"] == names("side")
    assert names("v1...WORKING")[0] == "A\thandbook/draft.md"


def find_ends(ws: Workspace, names: list[str]) -> tuple[At, At]:
    """Return the two places of `[OLD [NEW]]` or a range."""
    old, new = ranges.split_range(ws, names)
    start = ws.require_stored_revision() if old is None else revparse.resolve_rev(ws, old)
    end = ws.locate_documents() if new in (None, "", revparse.WORKING) else revparse.resolve_rev(ws, new)
    return start, end


def test_merge_base_of_revisions_comes_from_the_knowledge_base(project):
    side, before = pin_of(project, "side"), pin_of(project, "main~1^")
    with opened(project) as ws:
        assert find_ends(ws, [f"{before}...{side}"]) == (pin_of(project, "v1"), side)


def test_log_of_a_range_excludes_its_first_side(project):
    merge = next(message for message in messages(project) if message.startswith("Merge"))
    assert messages(project, "side..main") == ["after", merge, "faq"]
    assert messages(project, "main..side") == []
    assert sorted(messages(project, "feature...side")) == ["a side of it", "uv"]
    assert messages(project, "side..") == messages(project, "side..HEAD")
    assert messages(project, "v1..v1") == []


@pytest.mark.parametrize("names", [["a..b", "c"], ["c", "a..b"], ["a", "b", "c"]])
def test_more_than_two_places_are_refused(project, names):
    with opened(project) as ws, pytest.raises(UsageInvalid):
        find_ends(ws, names)


@pytest.mark.parametrize("name", ["..", "...", "nowhere..main", "main..nowhere", "HEAD^{/a..b}", "main....side"])
def test_invalid_ranges_are_rejected(project, name):
    with opened(project) as ws, pytest.raises(GitReferenceMissing):
        find_ends(ws, [name])
    assert project.vmrag("log", name, "--json", code=3).error["code"] == "GIT_COMMIT_NOT_FOUND"


def test_expression_of_gits_may_hold_dots(project):
    project.git("commit", "-q", "--allow-empty", "-m", "fix a..b")
    with opened(project) as ws:
        stored = ws.require_stored_revision()
        assert find_ends(ws, ["HEAD^{/fix a..b}..WORKING"]) == (stored, ws.locate_documents())
        assert find_ends(ws, ["HEAD^{/fix a..b}"])[0] == stored


def test_golden_queries_are_compared_over_a_range(project):
    project.write(".vmrag/queries.yaml", "queries:\n  - query: faq question\n    expect: [handbook/faq.md]\n")
    report = project.ask("diff", "--queries", "side...main")
    assert (report["old"], report["new"]) == (pin_of(project, "side"), pin_of(project, "main"))
    assert report == project.ask("diff", "--queries", "side..main")


# -- log -------------------------------------------------------------------------------------------


def test_log_on_one_line_names_the_refs_of_each_revision(project):
    lines = project.vmrag("log", "--oneline").out.splitlines()
    after, merge = (project.git("rev-parse", "--short=10", name) for name in ("HEAD", "HEAD~1"))
    assert re.fullmatch(rf"[0-9a-v]{{7}} \(HEAD, main\) after  <- {after}", lines[0])
    assert lines[1].endswith(f"  <- {merge} Merge branch 'side'")
    (first,) = (line for line in lines if " first" in line)
    assert "(tag: first, tag: v1) first  <- " in first


def test_log_names_kb_branch_whose_head_has_no_commit(project):
    project.put("draft.md", "A draft.")
    project.vmrag("commit", "-m", "not yet in git")
    newest, before, *_ = project.ask("log")["revisions"]
    assert (newest["refs"], newest["commits"]) == (["kb: main"], [])
    assert before["refs"] == ["HEAD", "main"]


def test_graph_is_next_to_the_revisions(project):
    lines = project.vmrag("log", "--graph", "--oneline").out.splitlines()
    assert [re.split(r"[0-9a-v]{7}", line)[0].rstrip() for line in lines] == [
        "*",
        "*",
        "|\\",
        *sorted(["* |", "| *"], reverse="faq" in lines[4]),
        "|/",
        "*",
        "*",
    ]
    shown = project.vmrag("log", "--graph", "-p", "-n", "1").out.splitlines()
    assert shown[0].startswith("* ")
    assert all(line.startswith("|") for line in shown[1:])
    assert "|     Another answer." not in shown  # a new document's text is not shown
    assert "| M  handbook/faq.md" in shown


def test_each_revision_is_shown_with_its_own_changes(project):
    shown = project.vmrag("log", "--oneline", "--name-status", "v1..main").out.splitlines()
    at = {line.split("  <-")[0].split(" ", 1)[1]: number for number, line in enumerate(shown) if "  <-" in line}
    for message, changed in (
        ("(HEAD, main) after", "M\thandbook/faq.md"),
        ("(side) a side of it", "A\thandbook/side.md"),
    ):
        assert shown[at[message] + 1 :][:3] == ["", changed, ""]
    (newest,) = project.ask("log", "-n", "1", "-p")["revisions"]
    assert newest["diff"]["documents"][0]["text"][0]["op"] in ("delete", "equal")
    assert project.ask("log", "-n", "1")["revisions"][0]["diff"] is None


def test_log_reports_further_revisions_unless_limited(project, monkeypatch):
    monkeypatch.setattr("vmrag_link.cli.log.DEFAULT_LIMIT", 2)
    result = project.vmrag("log", "--oneline")
    assert len(result.out.splitlines()) == 2
    assert "vmrag log -n 20" in result.err
    assert project.vmrag("log", "--oneline", "-n", "2").err == ""


def test_initial_engine_commits_are_hidden_in_history(project):
    with opened(project) as ws:
        hidden = revisions.find_beginning(ws.engine)
        root = read_root(ws.engine)
        assert hidden
    for arguments in ([], ["--graph"], ["first"], ["v1...feature"]):
        shown = {revision["revision"] for revision in project.ask("log", "-n", "99", *arguments)["revisions"]}
        assert not shown & hidden
    last = project.ask("log", "-n", "99")["revisions"][-1]
    assert (last["revision"], last["message"], last["parents"]) == (root, "Create the knowledge base", [])
    shown = project.ask("show", root)
    assert (shown["parents"], shown["changes"]["added"], shown["diff"]["collections"]) == ([], 0, [])
    assert "Initialize" not in project.vmrag("log", "-n", "99", "--oneline").out


# -- the pager -------------------------------------------------------------------------------------


def test_long_answer_on_a_terminal_uses_the_pager_of_git(project):
    shown = on_a_terminal(project, "log", "--oneline", pager="sed 's/^/> /'")
    assert [line[:2] for line in shown.splitlines()] == ["> "] * len(messages(project))
    assert "\x1b[33m" in shown  # with colours
    project.git("config", "core.pager", "sed 's/^/core /'")
    assert on_a_terminal(project, "diff", "v1", pager="").startswith("core ")
    assert not project.start("log", "--oneline").out.startswith("core ")  # through a pipe
    assert "after" in on_a_terminal(project, "log", "--oneline", pager="no-such-pager --long")


def test_pager_that_is_left_early_ends_the_command_without_an_error(project):
    assert on_a_terminal(project, "log", "--graph", "-p", pager="head -n 1").count("\n") == 1
