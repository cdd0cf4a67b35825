"""Notes whose cited files or lines changed after their last commit."""

from __future__ import annotations

import json
import time
from pathlib import Path

import pytest

from tests.support import sources
from tests.support.repos import Repo, isolate, make_repo
from tests.support.terminal import new_project
from vmrag_link.git import configuration, line_history, plumbing
from vmrag_link.sources.citations import find_citations
from vmrag_link.sources.outdated import NoteCheck, check_all_notes, check_notes, find_citing_notes

NOTE = "notes/auth.md"
FILE = "src/auth.py"
LINES = [f"line {number}" for number in range(1, 31)]


@pytest.fixture
def repo(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Repo:
    """One commit with a file of thirty lines."""
    isolate(monkeypatch, tmp_path / "home")
    repo = make_repo(tmp_path / "work")
    repo.commit("begin", **{FILE: text_of(LINES)})
    return repo


def text_of(lines: list[str]) -> str:
    return "".join(f"{line}\n" for line in lines)


def edit(number: int, *new: str, count: int = 1, lines: list[str] = LINES) -> str:
    """Return the text with `count` lines from line `number` on replaced."""
    return text_of([*lines[: number - 1], *new, *lines[number - 1 + count :]])


def check(repo: Repo, *notes: str, working_tree: bool = True) -> NoteCheck:
    places = plumbing.locate_work_tree(repo.top)
    texts = {note: (repo.top / note).read_text() for note in notes or (NOTE,)}
    return check_notes(places, texts, repo.git("rev-parse", "HEAD"), working_tree=working_tree, seconds=60)


def describe(repo: Repo, note: str = NOTE, *, working_tree: bool = True) -> str:
    result = check(repo, note, working_tree=working_tree)
    assert not result.unknown
    return str(result.outdated[note]) if note in result.outdated else ""


# -- what is marked


def test_note_is_outdated_after_cited_lines_changed(repo: Repo):
    repo.commit("note", **{NOTE: f"See {FILE}:10-12 and {FILE}:20.\n"})
    assert describe(repo) == ""
    for number in range(3):
        repo.commit("edit", **{FILE: edit(11, f"changed {number}")})
    assert describe(repo) == "cites src/auth.py:10-12, changed since in 3 commits"
    repo.commit("read again", **{NOTE: f"See {FILE}:10-12.\n"})
    assert describe(repo) == ""


@pytest.mark.parametrize(
    ("text", "marked"),
    [
        (edit(1, "new 1", "new 2", count=0), False),
        (edit(9, "changed", "more"), False),
        (edit(10, "right above", count=0), False),
        (edit(13, "right below", count=0), False),
        (edit(13, "changed"), False),
        (edit(5, count=3), False),
        (edit(11, "inside", count=0), True),
        (edit(10, "changed"), True),
        (edit(12, "changed"), True),
        (edit(10), True),
        (edit(8, "one", count=3), True),
        (edit(10, count=3), True),
        (text_of(LINES[:9]), True),
        (text_of(LINES[:12]), False),
        (text_of([*LINES[15:], *LINES[:15]]), True),
        ("", True),
    ],
)
@pytest.mark.parametrize("committed", [True, False])
def test_lines_are_followed_through_edits(repo: Repo, text: str, marked: bool, committed: bool):
    repo.commit("note", **{NOTE: f"See {FILE}:10-12.\n"})
    if committed:
        repo.commit("edit", **{FILE: text})
    else:
        repo.write(FILE, text)
    expected = "changed since in 1 commit" if committed else "changed since in the working tree"
    assert describe(repo) == (f"cites {FILE}:10-12, {expected}" if marked else "")


def test_lines_that_moved_are_found_by_later_changes(repo: Repo):
    repo.commit("note", **{NOTE: f"See {FILE}:10-12.\n"})
    moved = ["new"] * 100 + LINES
    repo.commit("move", **{FILE: text_of(moved)})
    repo.commit("elsewhere", **{FILE: edit(11, "changed", lines=moved)})
    assert describe(repo) == ""
    repo.commit("there", **{FILE: edit(111, "changed", lines=moved)})
    assert describe(repo) == f"cites {FILE}:10-12, changed since in 1 commit"


def test_change_in_same_commit_does_not_mark_note(repo: Repo):
    repo.commit("both", **{NOTE: f"See {FILE}:10.\n", FILE: edit(10, "changed")})
    assert describe(repo) == ""


def test_uncommitted_note_is_not_outdated(repo: Repo):
    repo.commit("note", **{NOTE: f"See {FILE}.\n"})
    repo.commit("edit", **{FILE: edit(1, "changed")})
    repo.write("notes/new.md", f"See {FILE}.\n")
    assert describe(repo) == f"cites {FILE}, changed since in 1 commit"
    assert describe(repo, "notes/new.md") == ""
    repo.write(NOTE, f"Still true: see {FILE}.\n")
    assert describe(repo) == ""
    assert describe(repo, working_tree=False) == f"cites {FILE}, changed since in 1 commit"


@pytest.mark.parametrize("staged", [True, False])
def test_uncommitted_edit_of_cited_file_is_named(repo: Repo, staged: bool):
    repo.commit("note", **{NOTE: f"See {FILE}:10 and {FILE}.\n"})
    repo.write(FILE, edit(10, "changed"))
    if staged:
        repo.git("add", FILE)
    [mark, whole] = check(repo).outdated[NOTE].citations
    assert (mark.place, mark.commits, mark.uncommitted, mark.deleted) == (f"{FILE}:10", 0, True, False)
    assert (whole.place, whole.commits, whole.uncommitted) == (FILE, 0, True)
    assert describe(repo) == f"cites {FILE}:10, changed since in the working tree, and 1 more place"
    assert describe(repo, working_tree=False) == ""
    repo.git("commit", "-qam", "edit")
    repo.write(FILE, edit(10, "changed again"))
    assert (
        str(check(repo).outdated[NOTE].citations[0]) == f"{FILE}:10, changed since in 1 commit and in the working tree"
    )


def test_cited_file_that_is_gone_is_named(repo: Repo):
    repo.commit("note", **{NOTE: f"See {FILE}:10.\n"})
    repo.git("mv", FILE, "src/login.py")
    assert describe(repo) == f"cites {FILE}:10, which no longer exists"
    repo.git("commit", "-qm", "rename")
    assert describe(repo) == f"cites {FILE}:10, which no longer exists"
    [mark] = check(repo).outdated[NOTE].citations
    assert (mark.commits, mark.uncommitted, mark.deleted) == (1, False, True)


def test_only_cited_files_of_the_repository_are_compared(repo: Repo):
    repo.commit("note", **{NOTE: "See src/none.py, and/or src/, https://h.org/src/auth.py and `git log`.\n"})
    repo.commit("edit", **{FILE: edit(1, "changed"), "more/src/none.py": "1\n"})
    assert describe(repo) == ""
    repo.commit("planned", **{"src/none.py": "1\n"})
    assert describe(repo) == "cites src/none.py, changed since in 1 commit"


def test_link_cites_file_next_to_note_or_below_root(repo: Repo):
    repo.commit("files", **{"notes/a.md": "a\n", "a.md": "a\n", "b.md": "b\n"})
    repo.commit("note", **{NOTE: "[one](a.md) [two](b.md) [three](../src/auth.py#L3)\n"})
    repo.commit("edit", **{"a.md": "other\n"})
    assert describe(repo) == ""
    repo.commit("edit", **{"notes/a.md": "x\n", "b.md": "x\n", FILE: edit(3, "x")})
    places = [mark.place for mark in check(repo).outdated[NOTE].citations]
    assert places == ["notes/a.md", "b.md", f"{FILE}:3"]
    repo.git("rm", "-q", "b.md", "notes/a.md", "a.md")
    repo.git("commit", "-qm", "gone")
    assert [mark.place for mark in check(repo).outdated[NOTE].citations if mark.deleted] == ["notes/a.md", "b.md"]


# -- branches


def test_change_on_a_merged_branch_is_later_than_the_note(repo: Repo):
    repo.git("branch", "side")
    repo.commit("note", **{NOTE: f"See {FILE}:10.\n"})
    repo.git("checkout", "-q", "side")
    repo.commit("elsewhere", **{FILE: edit(25, "changed")})
    repo.git("checkout", "-q", "main")
    repo.git("merge", "-q", "--no-ff", "-m", "merge", "side")
    assert describe(repo) == ""
    repo.git("checkout", "-q", "side")
    repo.commit("there", **{FILE: edit(10, "changed", lines=[*LINES[:24], "changed", *LINES[25:]])})
    repo.git("checkout", "-q", "main")
    repo.git("merge", "-q", "--no-ff", "-m", "merge", "side")
    assert describe(repo) == f"cites {FILE}:10, changed since in 1 commit"


def test_file_that_was_moved_and_moved_back_has_the_same_lines(repo: Repo):
    repo.commit("note", **{NOTE: f"See {FILE}:10.\n"})
    repo.git("mv", FILE, "src/moved.py")
    repo.git("commit", "-qm", "move")
    repo.git("mv", "src/moved.py", FILE)
    repo.git("commit", "-qm", "back")
    assert describe(repo) == ""
    repo.commit("edit", **{FILE: edit(10, "changed")})
    assert describe(repo).startswith(f"cites {FILE}:10, changed since")


@pytest.mark.parametrize("squash", [True, False])
def test_note_that_arrives_with_a_change_is_not_outdated(repo: Repo, squash: bool):
    repo.git("checkout", "-q", "-b", "side")
    repo.commit("edit", **{FILE: edit(10, "changed")})
    repo.commit("note", **{NOTE: f"See {FILE}:10.\n"})
    repo.git("checkout", "-q", "main")
    repo.commit("other", other="1\n")
    repo.git("merge", "-q", *(["--squash"] if squash else ["--no-ff", "-m", "merge"]), "side")
    if squash:
        repo.git("commit", "-qm", "squash")
    assert describe(repo) == ""


def test_merge_that_brings_back_older_lines_marks_the_note(repo: Repo):
    repo.git("branch", "side")
    repo.commit("edit", **{FILE: edit(10, "changed")})
    repo.commit("note", **{NOTE: f"See {FILE}:10.\n"})
    repo.git("checkout", "-q", "side")
    repo.commit("other", other="1\n")
    repo.git("checkout", "-q", "main")
    repo.git("merge", "-q", "--no-ff", "--no-commit", "side")
    repo.git("checkout", "-q", "side", "--", FILE)
    repo.git("commit", "-qm", "merge")
    assert describe(repo) == f"cites {FILE}:10, changed since in 1 commit"


# -- what is unknown, and what only looks changed


def test_shallow_clone_marks_nothing_before_its_beginning(repo: Repo, tmp_path: Path):
    repo.commit("note", **{NOTE: f"See {FILE}:10.\n"})
    repo.commit("edit", **{FILE: edit(10, "changed")})
    repo.commit("new", **{"notes/new.md": f"See {FILE}:10.\n"})
    repo.commit("edit", **{FILE: edit(10, "again")})
    clone = Repo(tmp_path / "clone")
    repo.git("clone", "-q", "--depth", "3", repo.top.as_uri(), str(clone.top))
    result = check(clone, NOTE, "notes/new.md")
    assert result.unknown == (NOTE,)
    assert [str(note) for note in result.outdated.values()] == [f"cites {FILE}:10, changed since in 1 commit"]


def test_partial_clone_marks_nothing_and_fetches_nothing(repo: Repo, tmp_path: Path):
    repo.commit("note", **{NOTE: f"See {FILE}:10.\n"})
    repo.commit("edit", **{FILE: edit(10, "changed")})
    repo.commit("edit", **{FILE: edit(10, "again")})
    repo.git("config", "uploadpack.allowFilter", "true")
    clone = Repo(tmp_path / "clone")
    repo.git("clone", "-q", "--filter=blob:none", repo.top.as_uri(), str(clone.top))
    assert check(clone) == NoteCheck({}, (NOTE,))


def test_oversized_history_gives_no_mark(repo: Repo, monkeypatch: pytest.MonkeyPatch):
    repo.commit("note", **{NOTE: f"See {FILE}:10.\n"})
    repo.commit("edit", **{FILE: edit(10, "changed")})
    monkeypatch.setattr(line_history, "MAX_OUTPUT_BYTES", 100)
    assert check(repo) == NoteCheck({}, (NOTE,))


def test_unborn_branch_has_no_outdated_notes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    isolate(monkeypatch, tmp_path / "home")
    places = plumbing.locate_work_tree(make_repo(tmp_path / "work").top)
    assert check_notes(places, {NOTE: f"See {FILE}."}, None, working_tree=True) == NoteCheck({})


def test_check_ignores_line_ends_modes_and_filters(repo: Repo):
    repo.commit("note", **{NOTE: f"See {FILE}, data.bin, wide.txt and run.sh.\n", "run.sh": "1\n", "data.bin": "2\n"})
    repo.commit("wide", **{"wide.txt": "a\n", NOTE: f"See {FILE}, data.bin, wide.txt and run.sh!\n"})
    attributes = "*.bin filter=lower\nwide.txt working-tree-encoding=UTF-16\n"
    repo.commit("attributes", **{".gitattributes": attributes})
    repo.git("config", "core.autocrlf", "true")
    repo.git("config", "filter.lower.clean", "tr A-Z a-z")
    (repo.top / FILE).write_bytes(text_of(LINES).replace("\n", "\r\n").encode())
    (repo.top / NOTE).write_bytes((repo.top / NOTE).read_bytes().replace(b"\n", b"\r\n"))
    (repo.top / "data.bin").write_bytes(b"converted\n")
    (repo.top / "wide.txt").write_bytes("a\n".encode("utf-16"))
    (repo.top / "run.sh").chmod(0o755)
    assert describe(repo) == ""
    repo.commit("edit", **{FILE: edit(10, "changed")})
    assert describe(repo) == f"cites {FILE}, changed since in 1 commit", "the note is known in spite of its line ends"


def test_sparse_checkout_deletes_no_file(repo: Repo):
    repo.commit("note", **{NOTE: f"See {FILE}:10.\n"})
    repo.git("sparse-checkout", "set", "notes")
    assert not (repo.top / FILE).exists()
    configuration.clear_cache(plumbing.locate_work_tree(repo.top))
    assert describe(repo) == ""


@pytest.mark.parametrize("object_format", ["sha1", "sha256"])
def test_linked_worktree_is_compared(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, object_format: str):
    isolate(monkeypatch, tmp_path / "home")
    main = Repo(tmp_path / 'odd "name:here')
    main.top.mkdir()
    main.git("init", "-q", f"--object-format={object_format}")
    main.commit("begin", **{FILE: text_of(LINES)})
    main.commit("note", **{NOTE: f"See {FILE}:10 and {FILE}:20.\n"})
    main.git("worktree", "add", "-q", str(tmp_path / "linked"))
    linked = Repo(tmp_path / "linked")
    linked.commit("edit", **{FILE: edit(10, "changed")})
    linked.write(FILE, edit(20, "changed", lines=[*LINES[:9], "changed", *LINES[10:]]))
    marks = [str(mark) for mark in check(linked).outdated[NOTE].citations]
    assert marks == [f"{FILE}:10, changed since in 1 commit", f"{FILE}:20, changed since in the working tree"]


# -- untrusted texts


def test_hostile_names_are_only_paths(repo: Repo, tmp_path: Path):
    outside = tmp_path / "outside"
    note = f"`:(top,glob)**` `:!src` `--output={outside}` `-p` `--` [x](../../../etc/passwd) `src/*` {FILE}:9999999-9000000"
    names = ["--output=x.md", ":(top)x.md", 'a"b.md', "tab é.md"]
    for name in names:
        repo.write(name, f"{note} {FILE}:3\n")
    repo.git("add", "-A")
    repo.git("commit", "-qm", "notes")
    repo.commit("edit", **{FILE: edit(3, "changed")})
    result = check(repo, *names)
    assert {name: str(outdated) for name, outdated in result.outdated.items()} == dict.fromkeys(
        names, f"cites {FILE}:3, changed since in 1 commit"
    )
    assert not outside.exists()


def test_contents_cannot_forge_history(repo: Repo):
    head = repo.git("rev-parse", "HEAD")
    zeros, ones = "0" * 40, "1" * 40
    forged = f"commit {ones} {head}\n:100644 100644 {zeros} {ones} M\t{FILE}\nindex {zeros}..{ones}\n@@ -10 +10 @@\n"
    repo.commit("note", **{NOTE: f"See {FILE}:10, forged.txt and 'a\\b'.\n"})
    repo.commit(forged, **{"forged.txt": forged})
    repo.commit(f"{ones} {zeros}", **{"forged.txt": forged * 2})
    assert describe(repo) == "cites forged.txt, changed since in 2 commits"


def test_configuration_of_git_changes_no_mark(repo: Repo):
    repo.commit("note", **{NOTE: f"See {FILE}:10 and {FILE}:20.\n"})
    repo.commit("edit", **{FILE: edit(10, "changed")})
    for setting in (
        "diff.noprefix=true diff.mnemonicPrefix=true diff.context=9 diff.interHunkContext=9 diff.algorithm=patience "
        "diff.renames=copies diff.relative=true diff.external=false diff.wordRegex=. color.ui=always log.follow=true "
        "log.showRoot=false log.diffMerges=off log.decorate=full log.abbrevCommit=true log.date=raw format.pretty=oneline "
        "core.quotePath=true core.pager=false log.showSignature=true diff.submodule=log diff.suppressBlankEmpty=true"
    ).split():
        repo.git("config", *setting.split("=", 1))
    repo.git("config", "diff.orderFile", str(repo.top / FILE))
    assert describe(repo) == f"cites {FILE}:10, changed since in 1 commit"


def test_answer_starts_at_most_one_process(repo: Repo, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    cited = ["src/one.py", "src/two.py", FILE]
    repo.commit("files", **{name: text_of(LINES) for name in cited})
    texts = {f"notes/{number}.md": f"See {cited[number % 3]}:{number + 1}.\n" for number in range(9)}
    repo.commit("notes", **texts)
    repo.commit("edit", **{FILE: edit(3, "changed")})
    places, head = plumbing.locate_work_tree(repo.top), repo.git("rev-parse", "HEAD")
    configuration.list_entries(places)  # a command has read it before
    trace = tmp_path / "trace"
    monkeypatch.setenv("GIT_TRACE2_EVENT", str(trace))
    assert not check_notes(places, {"notes/0.md": "cites nothing"}, head, working_tree=True).outdated
    assert not trace.exists()
    result = check_notes(places, texts, head, working_tree=True, seconds=60)
    assert list(result.outdated) == ["notes/2.md"]
    started = [json.loads(line) for line in trace.read_text().splitlines() if '"event":"start"' in line]
    assert len(started) == 1


def test_walk_ends_at_the_oldest_note(repo: Repo, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """The log ends as soon as the last commits of all notes are known."""
    blob = "\n".join(
        f"commit refs/heads/long\ncommitter A <a@b> {number} +0000\ndata 1\nx\nM 100644 inline x\ndata {len(str(number))}\n{number}"
        for number in range(20_000)
    )
    repo.git("fast-import", "--quiet", stdin=blob + "\n")
    repo.git("merge", "-q", "--allow-unrelated-histories", "-m", "merge", "long")
    repo.commit("note", **{NOTE: f"See {FILE}:10 and x.\n"})
    repo.commit("edit", **{FILE: edit(10, "changed")})
    started = time.monotonic()
    assert describe(repo) == f"cites {FILE}:10, changed since in 1 commit"
    assert time.monotonic() - started < 5


def test_note_with_many_paths_is_limited(repo: Repo):
    lines = [f"* src/file{number}.py:{number + 1}" for number in range(50_000)]
    repo.commit("note", **{NOTE: "\n".join([f"* {FILE}:10", *lines, ""])})
    repo.commit("edit", **{FILE: edit(10, "changed")})
    started = time.monotonic()
    assert describe(repo) == f"cites {FILE}:10, changed since in 1 commit"
    assert time.monotonic() - started < 10


def test_any_number_of_notes_is_checked(repo: Repo):
    """An answer compares 200 files at most."""
    names = [f"src/file{number}.py" for number in range(600)]
    notes = {f"notes/{number}.md": f"See {name}:1.\n" for number, name in enumerate(names)}
    for name, text in (*((name, "1\n") for name in names), *notes.items()):
        repo.write(name, text)
    repo.git("add", "-A")
    repo.git("commit", "-qm", "files")
    changed = [0, 250, 599]
    repo.commit("edit", **{names[number]: "2\n" for number in changed})
    places, head = plumbing.locate_work_tree(repo.top), repo.git("rev-parse", "HEAD")
    result = check_all_notes(places, notes, head, seconds=60)
    assert list(result.outdated) == [f"notes/{number}.md" for number in changed]
    assert not result.unknown
    assert check_all_notes(places, {}, head, seconds=60) == NoteCheck({})


# -- a pull request


def test_pull_request_lists_notes_that_cite_its_changes(repo: Repo):
    notes = {
        "notes/lines.md": f"See {FILE}:10-12.\n",
        "notes/elsewhere.md": f"See {FILE}:25.\n",
        "notes/file.md": f"See {FILE}.\n",
        "notes/edited.md": f"See {FILE}:10.\n",
        "notes/gone.md": "See src/gone.py:1 and src/none.py.\n",
    }
    repo.commit("notes", **notes, **{"src/gone.py": "1\n"})
    moved = ["new"] * 5 + LINES
    repo.commit("move", **{FILE: text_of(moved)})
    start = repo.git("rev-parse", "HEAD")
    repo.git("checkout", "-q", "-b", "pull")
    repo.commit("edit", **{FILE: edit(16, "changed", lines=moved), "src/gone.py": None})
    head = repo.commit("note", **{"notes/edited.md": f"See {FILE}:15, which is new.\n"})
    texts = {name: (repo.top / name).read_text() for name in notes}
    places = plumbing.locate_work_tree(repo.top)
    citing = find_citing_notes(places, texts, start, head)
    assert {note.path: note.places for note in citing} == {
        "notes/lines.md": (f"{FILE}:10-12",),
        "notes/file.md": (FILE,),
        "notes/gone.md": ("src/gone.py:1",),
    }
    assert str(citing[0]) == f"cites {FILE}:10-12"
    assert find_citing_notes(places, texts, head, head) == ()


def test_pull_request_with_many_notes_is_fast(repo: Repo):
    texts = {
        f"notes/{number}.md": f"See src/file{number}.py:3 and {FILE}:{number % 30 + 1}.\n" for number in range(2_000)
    }
    repo.commit("notes", **{"notes/0.md": texts["notes/0.md"]})
    for name, text in texts.items():
        repo.write(name, text)
    repo.git("add", "-A")
    repo.git("commit", "-qm", "notes")
    start = repo.git("rev-parse", "HEAD")
    head = repo.commit("edit", **{FILE: edit(10, "changed")})
    started = time.monotonic()
    citing = find_citing_notes(plumbing.locate_work_tree(repo.top), texts, start, head)
    assert len(citing) == len([text for text in texts.values() if find_citations("n", text)[1].first == 10])
    assert time.monotonic() - started < 30


SOURCES = """\
embedding:
  model: hash
sources:
  - collection: notes
    paths: [notes/]
    write: true
  - collection: docs
    paths: [docs/]
"""


def test_report_lists_notes_that_cite_changes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    isolate(monkeypatch, tmp_path / "home")
    project = new_project(tmp_path / "work", settings=SOURCES)
    pages = {
        "docs/a.md": f"See {FILE}.\n",
        "notes/b.md": f"# B\n\nSee [the check](../{FILE}#L10).\n",
        NOTE: f"See {FILE}:20.\n",
    }
    start = sources.commit(project, "begin", **{FILE: text_of(LINES)}, **pages)
    head = sources.commit(project, "edit", **{FILE: edit(10, "changed")})
    summary = project.ask("report", start, head)["summary"]
    assert summary["citing"] == [{"path": "notes/b.md", "places": [f"{FILE}:10"]}]
    shown = project.vmrag("report", start, head, "--markdown", "-").out
    assert "1 note cites changed files, and may be outdated." in shown
    assert "### Notes that may be outdated" in shown
    assert "1 note cites changed files, and may be outdated." in project.vmrag("report", start, head).out
    assert not project.ask("report", head, head)["summary"]["citing"]
