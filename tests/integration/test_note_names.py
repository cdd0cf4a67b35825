"""Notes of every name: written, read, changed, deleted, restored, and cloned."""

from __future__ import annotations

import subprocess
import unicodedata
from pathlib import Path

import pytest

from tests.support.long import LONG
from tests.support.mcp import Tools
from tests.support.repos import isolate
from tests.support.sources import commit
from tests.support.terminal import Project, new_project
from vmrag_link.documents import export_paths

pytestmark = pytest.mark.hooks("off")

FOLDER = ".vmrag/notes"
SETTINGS = f"""\
embedding:
  model: hash
sources:
  - collection: docs
    paths: ["docs/"]
  - collection: notes
    paths: ["{FOLDER}/"]
    write: true
"""

WINDOWS = ["CON", "con.x", "aux.txt", "Lpt1", "nul/x", "dot.", "dots...", "space ", "a/dot./b", "a/space /b"]
SIGNS = ["a:b", "a?", "<", ">", "|", 'a"b', "a*b", "back\\slash", "a: b", "#", "%41", "~", "$HOME", "'", "[x]", "a,b"]
CASES = ["A", "a", "Docs/x", "docs/y", "docs/Y", "ÄRGER", "ärger", "straße", "STRASSE"]
FORMS = [unicodedata.normalize(form, "café/crème") for form in ("NFC", "NFD")] + ["ﬁ", "fi", "日本語/メモ", "🎉"]
LENGTHS = ["x" * 255, "y" * 251, "z" * 200, "ß" * 255, "d/" * 127 + "d", "u" * 199 + "/v"]
DASHES = [
    "-",
    "-x",
    "--help",
    "-rf/x",
    "x/-y",
    ".hidden",
    ".",
    "..",
    "x/.y",
    "x/../y",
    "./x",
    "...",
    " lead",
    "x/ lead",
]
PATHS = [
    ".git/x",
    ".git/hooks/post-commit",
    "../x",
    "../../x",
    "/abs",
    "//x",
    "x//y",
    "x/",
    "git~1/x",
]
NESTED = ["p", "p/q", "p/q/r", "p.md", "p.md/s", "p.md.md", "p.md/s.md/t", "p.txt", "p.txt/x", "notes", "notes/p"]
SAID = ["null", "true", "1", "1e3", "2024-01-01", "id", "- a", "---", "HEAD", "HEAD~1", "a@{0}", ":/x", ":(top)x"]
GROUPS = {
    "Windows refuses": WINDOWS,
    "signs": SIGNS,
    "letter case": CASES,
    "forms of Unicode": FORMS,
    "length": LENGTHS,
    "dashes and dots": DASHES,
    "paths": PATHS,
    "notes as folders": NESTED,
    "folders as notes": NESTED[::-1],
    "values of YAML, refs and pathspecs": SAID,
}


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Project:
    isolate(monkeypatch, tmp_path / "home")
    project = new_project(tmp_path / "repo", settings=SETTINGS)
    commit(project, "begin", **{"docs/setup.md": "# Setup\n"})
    project.vmrag("trust", "--yes")
    return project


def texts(project: Project) -> dict[str, str]:
    """Return the texts of all notes, by id."""
    answer = Tools(project.top)("chroma_get_documents", collection_name="notes", limit=1000)
    return {row["id"]: row["document"] for row in answer["documents"]}


def written(names: list[str], edition: str) -> dict[str, str]:
    return {name: f"The {edition} text of {name!a}.\n" for name in names}


def files(project: Project) -> list[str]:
    paths = (project.top / FOLDER).rglob("*")
    return sorted(path.relative_to(project.top).as_posix() for path in paths if path.is_file())


def full_names(names: list[str]) -> list[str]:
    return [f"notes//{name}" for name in names]


@pytest.mark.parametrize("group", GROUPS)
@pytest.mark.sample(3)
def test_note_of_any_name_is_written_read_deleted_restored_and_cloned(project, tmp_path, group):
    names = GROUPS[group] if LONG else GROUPS[group][:: 1 + len(GROUPS[group]) // 8]
    first, second, third = (written(names, edition) for edition in ("first", "second", "third"))
    for name, text in first.items():
        project.vmrag("add", "-m", text, f"--id={name}")
    assert texts(project) == first
    rows = project.ask("list", "--collection", "notes")["documents"]
    assert sorted(row["doc_id"] for row in rows) == sorted(names)
    for path in files(project):
        assert export_paths.find_name_problem(path.split("/")[2:]) is None
    keys = [export_paths.fold_case(path.split("/")) for path in files(project)]
    assert len(keys) == len(set(keys)) == len(names)

    for name, text in second.items():
        project.vmrag("edit", f"notes//{name}", env={"GIT_EDITOR": "sed -i s/first/second/"})
        assert project.vmrag("show", f"notes//{name}").out == text
    project.git("commit", "-qm", "notes")
    assert project.git("status", "--porcelain") == ""
    clone = Project(tmp_path / "clone")
    subprocess.run(["git", "clone", "-q", project.top, clone.top], check=True)
    assert texts(clone) == texts(project) == second

    project.vmrag("rm", *full_names(names))
    assert (texts(project), files(project)) == ({}, [])
    project.vmrag("restore", *full_names(names))
    assert (texts(project), project.git("status", "--porcelain")) == (second, "")

    for name, text in third.items():
        project.vmrag("add", "-m", text, f"--id={name}", "--replace")
    project.vmrag("rm", *full_names(names))
    for name in names:
        project.vmrag("restore", "--undo", f"notes/{name}")
    assert texts(project) == third


HANDWRITTEN = {
    "What? Why.md": "What? Why",
    ".hidden.md": ".hidden",
    "dot..md": "dot.",
    "con.md": "con",
    f"{unicodedata.normalize('NFD', 'é')}.md": unicodedata.normalize("NFD", "é"),
    "README": "README",
    "page.txt": "page.txt",
    "deep/a: b.md": "deep/a: b",
    f"{'z' * 230}.md": "z" * 230,
}


def test_file_of_any_name_is_changed_and_deleted_as_a_note(project):
    for name, doc_id in HANDWRITTEN.items():
        project.write(f"{FOLDER}/{name}", f"By hand: {doc_id!a}.\n")
    paths = files(project)
    assert sorted(texts(project)) == sorted(HANDWRITTEN.values())
    for doc_id in HANDWRITTEN.values():
        error = project.vmrag("add", "-m", "Other.", f"--id={doc_id}", "--json", code=3).error
        assert error["code"] == "DOCUMENT_EXISTS"
        project.vmrag("edit", f"notes//{doc_id}", env={"GIT_EDITOR": "sed -i s/By.hand/Edited/"})
    assert files(project) == paths
    assert texts(project) == {doc_id: f"Edited: {doc_id!a}.\n" for doc_id in HANDWRITTEN.values()}
    project.vmrag("rm", *full_names([*HANDWRITTEN.values()]))
    assert files(project) == []


CLAIMS = {
    "each the other's": {"a.md": "b", "b.md": "a"},
    "three in a circle": {"a.md": "b", "b.md": "c", "c.md": "a"},
    "a name that a file has": {"a.md": "", "b.md": "a", "c.md": "a"},
    "one id twice": {"a.md": "x", "b.md": "x", "x": ""},
    "an id that a name was made of": {"a-b-75cd1899.md": "a: b", "aaa.md": "a: b"},
    "paths outside": {"a.md": "../../x", "b.md": "/etc/passwd", "c.md": ".git/config"},
    "the path of a note": {"a.md": f"{FOLDER}/b.md", "b.md": ""},
    "folders": {"a.md": "deep", "deep/b.md": "deep/c", "deep/c.md": "a"},
}


@pytest.mark.parametrize("case", CLAIMS)
@pytest.mark.sample(4)
def test_claimed_ids_mean_one_file_for_every_command(project, case):
    for name, claim in CLAIMS[case].items():
        front = f"---\nid: '{claim}'\n---\n" if claim else ""
        project.write(f"{FOLDER}/{name}", f"{front}File {name}.\n")
    begun = texts(project)
    assert sorted(begun.values()) == sorted(f"File {name}.\n" for name in CLAIMS[case])
    paths = files(project)
    for doc_id, text in begun.items():
        project.vmrag("edit", f"notes//{doc_id}", env={"GIT_EDITOR": "sed -i s/File/Edited/"})
        assert texts(project)[doc_id] == text.replace("File", "Edited")
    assert files(project) == paths
    for doc_id, text in begun.items():
        project.vmrag("rm", f"notes//{doc_id}")
        assert text.replace("File", "Edited") not in texts(project).values()
        project.vmrag("restore", "--undo")
        assert texts(project) == {name: text.replace("File", "Edited") for name, text in begun.items()}


def test_full_name_of_note_precedes_an_equally_spelled_id(project):
    project.vmrag("add", "-m", "The note p.", "--id", "p")
    project.vmrag("add", "-m", "Another note.", "--id", "notes/p")
    assert project.vmrag("show", "notes/p").out == "The note p.\n"
    assert project.vmrag("show", "notes/notes/p").out == "Another note.\n"
    project.vmrag("rm", "notes/p")
    assert texts(project) == {"notes/p": "Another note.\n"}
