"""Texts merge by line and metadata by key; what is left is decided hunk by hunk."""

from __future__ import annotations

import json
from pathlib import Path

import msgspec
import pytest

from tests.support import terminal
from tests.support.terminal import Project, opened
from vmrag_link.models import Document

pytestmark = pytest.mark.hooks("off")

template, project = terminal.template, terminal.project

PAGE = "".join(f"## Part {number}\n\nParagraph {number}.\n\n" for number in range(1, 6))


def edited(**parts: str) -> str:
    """The page with other paragraphs: `p2="text"`."""
    text = PAGE
    for name, new in parts.items():
        text = text.replace(f"Paragraph {name[1:]}.", new)
    return text


def stored(project: Project, place: str, doc_id: str = "page.md") -> Document:
    with opened(project) as workspace:
        document = workspace.engine.find_document(place, "handbook", doc_id)
    assert document is not None
    return document


def put(project: Project, text: str) -> None:
    project.put("page.md", text)


@pytest.fixture(scope="session")
def _paged(template: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    def change(project: Project) -> None:
        put(project, PAGE)
        project.record("page")
        project.git("branch", "-f", "topic")

    return terminal.derive_template(tmp_path_factory, "paged", template, change)


@pytest.fixture
def paged(_paged: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Project:
    """Return a project whose branches `main` and `topic` both have the unedited page."""
    return terminal.copied(_paged, tmp_path, monkeypatch)


def branched(project: Project, ours: str, theirs: str) -> Project:
    """Each side edits the page; `git merge topic` is next."""
    for branch, text in (("topic", theirs), ("main", ours)):
        project.git("switch", "-q", branch)
        put(project, text)
        project.record(f"edited on {branch}")
    return project


@pytest.fixture(scope="session")
def _two_hunks(_paged: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    ours, theirs = edited(p1="1 ours", p2="2 ours", p4="4 ours"), edited(p2="2 theirs", p4="4 theirs", p5="5 theirs")

    def change(project: Project) -> None:
        branched(project, ours, theirs).git("merge", "-q", "topic", check=False)

    return terminal.derive_template(tmp_path_factory, "two hunks", _paged, change)


@pytest.fixture
def two_hunks(_two_hunks: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Project:
    """Two paragraphs in conflict, and one that each side edited alone; the merge is open."""
    return terminal.copied(_two_hunks, tmp_path, monkeypatch)


@pytest.mark.hooks("on")
def test_edits_in_different_places_of_a_page_merge_like_git(paged):
    branched(paged, edited(p1="1 ours"), edited(p5="5 theirs"))
    assert paged.run("merge", "-q", "--no-edit", "topic").returncode == 0
    assert stored(paged, paged.pinned).content == edited(p1="1 ours", p5="5 theirs")
    assert paged.status()["state"] == "in_sync"


def test_only_hunks_are_in_conflict_and_the_rest_is_merged(two_hunks):
    [row] = two_hunks.ask("resolve", "--list", code=1)["conflicts"]
    hunks = row["conflict"]["hunks"]
    assert row["open"] == ["content"]
    assert [(hunk["line"], hunk["base"], hunk["ours"], hunk["theirs"]) for hunk in hunks] == [
        (7, "Paragraph 2.\n", "2 ours\n", "2 theirs\n"),
        (15, "Paragraph 4.\n", "4 ours\n", "4 theirs\n"),
    ]
    shown = two_hunks.vmrag("resolve", code=1).out
    assert "hunk 1 of 2, line 7\n    ours (main):\n" in shown
    assert "\n    theirs (topic):\n" in shown
    assert "Paragraph 5" not in shown
    assert "Ours is main at " in shown


@pytest.mark.parametrize(
    ("arguments", "second", "fourth"),
    [
        (["--ours"], "2 ours", "4 ours"),
        (["--theirs"], "2 theirs", "4 theirs"),
        (["--union"], "2 ours\n2 theirs", "4 ours\n4 theirs"),
        (["handbook/page.md", "--hunk", "1=theirs", "--hunk", "2=ours"], "2 theirs", "4 ours"),
        (["handbook/page.md", "--ours", "--hunk", "2=union"], "2 ours", "4 ours\n4 theirs"),
    ],
)
@pytest.mark.sample(1)
def test_each_hunk_is_decided_and_clean_edits_stay(two_hunks, arguments, second, fourth):
    two_hunks.vmrag("resolve", *arguments)
    two_hunks.git("commit", "-q", "--no-edit")
    expected = edited(p1="1 ours", p2=second, p4=fourth, p5="5 theirs")
    assert stored(two_hunks, two_hunks.pinned).content == expected


def test_hunk_can_be_decided_later_and_again(two_hunks):
    report = two_hunks.ask("resolve", "handbook/page.md", "--hunk", "2=ours", code=1)
    assert [conflict["open"] for conflict in report["conflicts"]] == [["content"]]
    assert "hunk 2 of 2, line 15  (decided: ours)" in two_hunks.vmrag("resolve", code=1).out
    two_hunks.vmrag("resolve", "handbook/page.md", "--hunk", "2=theirs", code=1)
    two_hunks.vmrag("resolve", "handbook/page.md", "--hunk", "1=ours")
    assert "2 ours" in stored(two_hunks, two_hunks.pinned).content
    assert "4 theirs" in stored(two_hunks, two_hunks.pinned).content


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["handbook/page.md", "--hunk", "3=ours"], "has 2 hunks in conflict, but not number 3"),
        (["handbook/page.md", "--hunk", "0=ours"], "but not number 0"),
        (["handbook/page.md", "--hunk", "1=mine"], "invalid value of --hunk"),
        (["--hunk", "1=ours"], "--hunk needs the name of one document"),
        (["handbook/page.md", "--field", "title=ours"], "the field 'title' of handbook/page.md is not in conflict"),
        (["--from-worktree", "--ours"], "cannot be combined with other resolutions"),
    ],
)
@pytest.mark.sample(2)
def test_choice_that_does_not_fit_is_refused_and_decides_nothing(two_hunks, arguments, said):
    error = two_hunks.vmrag("resolve", *arguments, "--json", code=2).error
    assert said in error["message"]
    assert error["hint"]
    assert two_hunks.ask("resolve", "--list", code=1)["decided"] == 0


def test_metadata_merges_by_key_and_keys_are_decided_apart(project):
    for branch, status, owner, letter in (("topic", "done", "bea", "t"), ("main", "open", "ada", "m")):
        project.git("switch", "-q", *(["-C"] if branch == "topic" else []), branch)
        project.write("docs/page.md", f"---\nstatus: {status}\nowner: {owner}\nonly_{letter}: true\n---\n{PAGE}")
        project.vmrag("import", "docs", "--collection", "handbook", "--copy")
        project.vmrag("commit", "-m", branch)
        project.git("add", ".dolt-version")
        project.git("commit", "-q", "-m", branch)
        (project.top / "docs/page.md").unlink()
    project.git("merge", "-q", "topic", check=False)
    [row] = project.ask("resolve", "--list", code=1)["conflicts"]
    assert (row["open"], row["conflict"]["keys"]) == (["metadata"], ["owner", "status"])
    assert "metadata.owner" in project.vmrag("resolve", code=1).out
    project.vmrag("resolve", "handbook/page.md", "--field", "metadata.owner=theirs", code=1)
    project.vmrag("resolve", "handbook/page.md", "--field", "metadata.status=ours")
    assert json.loads(stored(project, project.pinned).metadata) == {
        "status": "open",
        "owner": "bea",
        "only_m": True,
        "only_t": True,
    }


# -- texts that are merged already -----------------------------------------------------------------


def both_edit_the_file(project: Project, ours: str, theirs: str) -> None:
    """Edit `docs/setup.md`, which is a document and a file in git, on both sides."""
    for branch, text in (("topic", theirs), ("main", ours)):
        project.git("switch", "-q", *(["-C"] if branch == "topic" else []), branch)
        project.write("docs/setup.md", text)
        project.vmrag("import", "docs", "--collection", "handbook", "--copy")
        project.vmrag("commit", "-m", branch)
        project.git("commit", "-q", "-a", "-m", branch)
    project.git("merge", "-q", "topic", check=False)


def test_merged_files_of_the_work_tree_resolve_their_documents(project):
    both_edit_the_file(project, "# Setup\n\nours\n", "# Setup\n\ntheirs\n")
    error = project.vmrag("resolve", "--from-worktree", "--json", code=2).error
    assert error["message"] == "docs/setup.md still has a merge conflict in git."
    project.write("docs/setup.md", "# Setup\n\nboth of us\n")
    project.git("add", "--all")
    report = project.ask("resolve", "--from-worktree")
    assert (report["conflicts"], report["decided"]) == ([], 1)
    assert stored(project, project.pinned, "setup.md").content == "# Setup\n\nboth of us\n"
    project.git("commit", "-q", "--no-edit")
    assert project.status()["state"] == "in_sync"


def test_file_with_gits_markers_in_it_becomes_no_document(project):
    both_edit_the_file(project, "# Setup\n\nours\n", "# Setup\n\ntheirs\n")
    project.git("add", "--all")
    error = project.vmrag("resolve", "--from-worktree", "--json", code=3).error
    assert error["message"] == "docs/setup.md contains git's conflict markers."
    assert project.ask("resolve", "--list", code=1)["decided"] == 0


def test_resolve_from_worktree_rejects_documents_without_file(two_hunks):
    error = two_hunks.vmrag("resolve", "--from-worktree", "--json", code=2).error
    assert "--file FILE" in error["hint"]


def test_untrusted_source_outside_of_the_worktree_is_never_read(project, tmp_path):
    secret = tmp_path / "secret.md"
    secret.write_text("secret")
    both_edit_the_file(project, "# Setup\n\nours\n", "# Setup\n\ntheirs\n")
    (project.top / "docs" / "setup.md").unlink()
    (project.top / "docs" / "setup.md").symlink_to(secret)
    project.git("add", "--all")
    error = project.vmrag("resolve", "--from-worktree", "--json", code=2).error
    assert error["code"] == "INVALID_PARAMETER"


def test_merge_tool_gets_three_versions_and_makes_the_text(two_hunks, tmp_path):
    seen = tmp_path / "seen"
    seen.mkdir()
    script = f'cp "$BASE" "$LOCAL" "$REMOTE" {seen}; printf "by a tool\\n" > "$MERGED"'
    two_hunks.git("config", "mergetool.mine.cmd", script)
    two_hunks.git("config", "mergetool.mine.trustExitCode", "true")
    two_hunks.git("config", "merge.tool", "mine")
    result = two_hunks.start("resolve", "--tool", "", "--json")
    assert result.code == 0, result
    assert stored(two_hunks, two_hunks.pinned).content == "by a tool\n"
    ours, theirs = edited(p1="1 ours", p2="2 ours", p4="4 ours"), edited(p2="2 theirs", p4="4 theirs", p5="5 theirs")
    assert sorted(path.read_text() for path in seen.iterdir()) == sorted((PAGE, ours, theirs))


def test_failing_or_missing_merge_tool_decides_nothing(two_hunks):
    two_hunks.git("config", "mergetool.mine.cmd", "exit 1")
    two_hunks.git("config", "mergetool.mine.trustExitCode", "true")
    for tool in ("mine", "no-such-tool"):
        result = two_hunks.start("resolve", "--tool", tool)
        assert result.code == 3, result
        assert "git mergetool ended with exit code" in result.err
    assert two_hunks.ask("resolve", "--list", code=1)["decided"] == 0


def test_decision_survives_an_edit_elsewhere_and_not_one_of_its_hunk(paged, tmp_path):
    """In a vmrag merge the working set is our side, and the user may edit it during the merge."""
    branched(paged, edited(p2="2 ours", p4="4 ours"), edited(p2="2 theirs", p4="4 theirs"))
    paged.vmrag("merge", "topic", code=1)
    paged.vmrag("resolve", "handbook/page.md", "--hunk", "1=ours", "--hunk", "2=theirs")
    put(paged, edited(p1="1 by hand", p2="2 ours", p4="4 by hand"))
    [row] = paged.ask("resolve", "--list", code=1)["conflicts"]
    assert [hunk["line"] for hunk in row["conflict"]["hunks"]] == [7, 15]
    [decided] = row["choices"].keys() & {f"content#{hunk['key']}" for hunk in row["conflict"]["hunks"]}
    assert decided == f"content#{row['conflict']['hunks'][0]['key']}"


def test_agent_gets_the_hunks(two_hunks):
    from vmrag_link.workspace.merge import conflict_rows

    with opened(two_hunks) as workspace:
        open_merge = conflict_rows.find_open_merge(workspace)
    assert open_merge is not None
    [row] = conflict_rows.encode_rows(open_merge.conflicts)
    assert [hunk["ours"] for hunk in row["hunks"]] == ["2 ours\n", "4 ours\n"]
    assert msgspec.json.encode(row)
