"""Notes: documents of a writable source, from the command line to git's index."""

from __future__ import annotations

import os
import subprocess

import pytest

from tests.support.repos import isolate
from tests.support.sources import commit
from tests.support.terminal import SCRIPT, Project, new_project
from vmrag_link import hints

pytestmark = pytest.mark.hooks("off")

SETTINGS = """\
embedding:
  model: hash
sources:
  - collection: docs
    paths: ["**/*.md"]
  - collection: notes
    paths: [".vmrag/notes/"]
    write: true
"""
FOLDER = ".vmrag/notes"


@pytest.fixture
def project(tmp_path, monkeypatch) -> Project:
    isolate(monkeypatch, tmp_path)
    project = new_project(tmp_path / "repo", settings=SETTINGS)
    commit(project, "begin", **{"docs/setup.md": "# Setup\n"})
    project.vmrag("trust", "--yes")
    return project


def note(project: Project, doc_id: str) -> str:
    return (project.top / FOLDER / f"{doc_id}.md").read_text()


def refused(project: Project, *arguments: str, code: int = 2) -> dict[str, object]:
    return project.vmrag(*arguments, "--json", code=code).error


# -- writing


def test_add_writes_a_staged_file_that_a_query_finds(project):
    result = project.vmrag("add", "-m", "We chose Pagefind, because it needs no server.")
    path = f"{FOLDER}/we-chose-pagefind-because-it-needs-no-server.md"
    assert f"in {path}" in result.out
    assert (project.top / path).read_text() == "We chose Pagefind, because it needs no server.\n"
    assert project.git("status", "--short") == f"A  {path}"
    first = project.ask("query", "why Pagefind for search")["results"][0]
    assert (first["collection"], first["file"]) == ("notes", path)


def test_note_is_a_document_once(project):
    project.vmrag("add", "-m", "Only once.")
    rows = [row["collection"] for row in project.ask("list")["documents"]]
    assert rows == ["docs", "notes"]


def test_add_reads_piped_input_and_takes_a_title_and_metadata(project):
    project.vmrag("add", "--title", "Retry: three times", "--metadata", '{"team": "core"}', stdin="The gateway.")
    assert note(project, "retry-three-times") == "---\nteam: core\ntitle: 'Retry: three times'\n---\nThe gateway.\n"
    (row,) = project.ask("list", "--collection", "notes")["documents"]
    assert (row["title"], row["metadata"]["team"]) == ("Retry: three times", "core")
    hit = project.ask("query", "gateway", "--where", '{"team": "core"}')["results"][0]
    assert hit["doc_id"] == "retry-three-times"


def test_add_refuses_an_existing_note_and_shows_its_text(project):
    project.vmrag("add", "-m", "One.", "--id", "a")
    error = refused(project, "add", "-m", "Two.", "--id", "a", code=3)
    assert (error["code"], error["details"]["text"]) == ("DOCUMENT_EXISTS", "One.\n")
    assert note(project, "a") == "One.\n"
    assert "already has this text" in project.vmrag("add", "-m", "One.", "--id", "a").out


def test_add_replaces_or_appends_on_request(project):
    project.vmrag("add", "-m", "One.", "--id", "a", "--metadata", '{"n": 1}')
    project.vmrag("add", "-m", "Two.", "--id", "a", "--append")
    assert note(project, "a") == "---\nn: 1\n---\nOne.\nTwo.\n"
    assert "vmrag restore --undo" in project.vmrag("add", "-m", "Three.", "--id", "a", "--replace").out
    assert note(project, "a") == "Three.\n"


def test_add_commits_the_note_alone(project):
    project.write("docs/other.md", "# Other\n")
    project.git("add", "docs/other.md")
    project.vmrag("add", "-m", "# We use uv\n", "--commit")
    assert project.git("log", "-1", "--format=%s", "--name-only").split("\n")[-1] == f"{FOLDER}/we-use-uv.md"
    assert project.git("status", "--short") == "A  docs/other.md"


def test_add_of_a_file_outside_git_writes_a_note(project, tmp_path):
    (tmp_path / "page.md").write_text("---\nteam: web\n---\n# A page\n\nText.\n")
    project.vmrag("add", str(tmp_path / "page.md"))
    assert note(project, "a-page") == "---\nteam: web\n---\n# A page\n\nText.\n"
    assert refused(project, "add", "docs/setup.md")["code"] == "SOURCE_READ_ONLY"


def test_edit_opens_the_text_and_keeps_front_matter_unchanged(project):
    project.write(f"{FOLDER}/a.md", "---\n# ours\nteam:   core\n---\nOne.\n")
    project.vmrag("edit", "notes/a", env={"GIT_EDITOR": "sed -i s/One/Two/"})
    assert note(project, "a") == "---\n# ours\nteam:   core\n---\nTwo.\n"


def test_edit_rejects_a_concurrently_changed_note(project):
    project.vmrag("add", "-m", "One.", "--id", "a")
    script = project.top.parent / "editor"
    script.write_text(f'#!/bin/sh\necho Other. > {project.top}/{FOLDER}/a.md\necho Mine. > "$1"\n')
    script.chmod(0o755)
    result = project.vmrag("edit", "a", code=1, env={"GIT_EDITOR": str(script)})
    assert "changed or deleted the note" in result.err
    assert note(project, "a") == "Other.\n"


# -- deleting and restoring


def test_rm_deletes_the_file_and_restore_brings_it_back(project):
    project.vmrag("add", "-m", "One.", "--id", "decisions/a")
    project.git("commit", "-qm", "note")
    assert "vmrag restore notes/decisions/a" in project.vmrag("rm", "decisions/a").out
    assert project.git("status", "--short") == f"D  {FOLDER}/decisions/a.md"
    assert not (project.top / FOLDER).exists() or not (project.top / FOLDER / "decisions").exists()
    project.vmrag("restore", "notes/decisions/a")
    assert (project.git("status", "--short"), note(project, "decisions/a")) == ("", "One.\n")


def test_undo_restores_notes_unknown_to_git(project):
    project.vmrag("add", "-m", "One.", "--id", "a")
    project.vmrag("add", "-m", "Two.", "--id", "a", "--replace")
    project.vmrag("rm", "a")
    deleted = project.ask("restore", "--undo", "a")
    assert note(project, "a") == "Two.\n"
    replaced = project.ask("restore", "--undo", "notes/a")
    assert note(project, "a") == "One.\n"
    assert [result["notes"][0]["kind"] for result in (deleted, replaced)] == ["added", "modified"]


def test_undo_without_kept_text_names_the_other_command(project):
    error = refused(project, "restore", "--undo", code=3)
    assert (error["code"], hints.list_commands(error["hint"])[0]) == ("DOCUMENT_NOT_FOUND", "vmrag restore NAME")


def test_restore_takes_a_note_from_an_older_commit(project):
    project.vmrag("add", "-m", "One.", "--id", "a", "--commit")
    project.vmrag("add", "-m", "Two.", "--id", "a", "--replace", "--commit")
    project.vmrag("restore", "--source", "HEAD~1", "notes/a")
    assert note(project, "a") == "One.\n"


# -- history


def test_history_of_a_note_is_that_of_its_file(project):
    project.vmrag("add", "-m", "One.", "--id", "a: b", "--commit")
    project.vmrag("add", "-m", "Two.", "--id", "a: b", "--replace", "--commit")
    steps = project.ask("log", "notes/a: b")
    assert [step["kind"] for step in steps["commits"]] == ["modified", "added"]
    lines = project.ask("blame", "notes/a: b")["lines"]
    assert [line["text"] for line in lines][-1] == "Two."
    (change,) = project.ask("diff", "HEAD~1", "HEAD")["documents"]
    assert (change["collection"], change["doc_id"]) == ("notes", "a: b")
    hit = project.ask("query", "one", "--at", "HEAD~1")["results"][0]
    assert (hit["doc_id"], hit["text"].strip()) == ("a: b", "One.")


def test_note_is_read_by_its_path(project):
    project.vmrag("add", "-m", "One.", "--id", "a: b")
    path = next((project.top / FOLDER).iterdir()).relative_to(project.top).as_posix()
    assert project.vmrag("show", path).out == project.vmrag("show", "notes/a: b").out == "One.\n"


# -- set-up and trust


def test_init_adds_and_trusts_the_source_for_notes(tmp_path, monkeypatch):
    isolate(monkeypatch, tmp_path)
    project = new_project(tmp_path / "repo")
    (project.top / ".vmrag.yaml").unlink()
    commit(project, "begin", **{"docs/setup.md": "# Setup\n"})
    assert "Added the source notes" in project.vmrag("init").out
    project.vmrag("add", "-m", "First.")
    assert note(project, "first") == "First.\n"


def test_no_notes_option_leaves_the_source_out(tmp_path, monkeypatch):
    isolate(monkeypatch, tmp_path)
    project = new_project(tmp_path / "repo")
    (project.top / ".vmrag.yaml").unlink()
    commit(project, "begin", **{"docs/setup.md": "# Setup\n"})
    project.vmrag("init", "--no-notes")
    error = refused(project, "add", "-m", "First.")
    assert error["hint"] == "run 'vmrag sources add --write'"
    project.vmrag("sources", "add", "--write")
    project.vmrag("add", "-m", "First.")
    assert note(project, "first") == "First.\n"


def test_clone_writes_only_after_trust(project, tmp_path):
    subprocess.run(["git", "clone", "-q", project.top, tmp_path / "clone"], check=True)
    clone = Project(tmp_path / "clone")
    error = refused(clone, "add", "-m", "First.")
    assert (error["code"], error["hint"]) == ("SOURCE_READ_ONLY", "run 'vmrag trust' to trust the settings")
    assert "sources.notes.write: .vmrag/notes" in clone.vmrag("trust", code=1).out
    clone.vmrag("trust", "--yes")
    clone.vmrag("add", "-m", "First.")
    clone.write(".vmrag.yaml", SETTINGS.replace(".vmrag/notes/", "docs/"))
    assert refused(clone, "add", "-m", "Second.")["hint"] == "run 'vmrag trust' to trust the settings"


def test_sources_add_write_takes_an_existing_folder(project):
    commit(project, "adr", **{"docs/adr/0001-begin.md": "# Begin\n"})
    project.vmrag("sources", "add", "--write", "docs/adr")
    project.vmrag("add", "-m", "# Use uv\n", "--collection", "adr", "--id", "0002-uv")
    assert (project.top / "docs/adr/0002-uv.md").read_text() == "# Use uv\n"
    names = {(row["collection"], row["doc_id"]) for row in project.ask("list")["documents"]}
    assert names == {("docs", "docs/setup.md"), ("adr", "0001-begin"), ("adr", "0002-uv")}


@pytest.mark.parametrize(
    ("entry", "flaw"),
    [
        ("paths: [docs/, src/]", "exactly one folder"),
        ('paths: ["docs/*"]', "exactly one folder"),
        ("paths: [docs/]\n    kind: code", "kind: code"),
    ],
)
def test_writable_source_has_one_folder(project, entry, flaw):
    project.write(".vmrag.yaml", f"sources:\n  - collection: notes\n    {entry}\n    write: true\n")
    assert flaw in str(refused(project, "list")["message"])


# -- files that people write


def test_untracked_notes_are_searched_and_listed(project):
    project.write(f"{FOLDER}/hand.md", "---\ntitle: By hand\ntags: [a, b]\n---\nSee [[decisions]].\n")
    assert project.ask("query", "see decisions")["results"][0]["doc_id"] == "hand"
    assert "notes/hand" in project.vmrag("status").out
    assert project.ask("status")["sources"]["untracked"] == 0


def test_sources_warns_of_an_id_that_two_notes_claim(project):
    project.write(f"{FOLDER}/a.md", "One.\n")
    project.write(f"{FOLDER}/b.md", "---\nid: a\n---\nTwo.\n")
    assert "states the id a, which another note has" in project.vmrag("sources").out
    texts = {row["doc_id"]: row["title"] for row in project.ask("list", "--collection", "notes")["documents"]}
    assert texts == {"a": "One.", "b": "Two."}


# -- refused


def refuse_ignored(project: Project) -> None:
    project.write(".gitignore", ".vmrag/\n")


def refuse_link(project: Project) -> None:
    (project.top / "elsewhere").mkdir()
    (project.top / ".vmrag").mkdir(exist_ok=True)
    (project.top / FOLDER).symlink_to(project.top / "elsewhere")


def refuse_filter(project: Project) -> None:
    project.write(".gitattributes", "*.md filter=lfs\n")


def refuse_sparse(project: Project) -> None:
    project.git("sparse-checkout", "set", "docs")


def refuse_bisect(project: Project) -> None:
    project.git("bisect", "start")


def refuse_unmerged(project: Project) -> None:
    commit(project, "base", a="1\n")
    project.write("a", "2\n")
    project.git("stash")
    commit(project, "other", a="3\n")
    subprocess.run(["git", "stash", "pop"], cwd=project.top, capture_output=True, check=False)


@pytest.mark.parametrize(
    ("make", "code"),
    [
        (refuse_ignored, "SOURCE_READ_ONLY"),
        (refuse_link, "SOURCE_READ_ONLY"),
        (refuse_filter, "SOURCE_READ_ONLY"),
        (refuse_sparse, "SOURCE_READ_ONLY"),
        (refuse_bisect, "GIT_BUSY"),
        (refuse_unmerged, "GIT_BUSY"),
    ],
)
def test_note_is_refused_and_never_stored(project, make, code):
    make(project)
    error = refused(project, "add", "-m", "Refused.", code=None)
    assert (error["code"], bool(error["hint"])) == (code, True)
    assert not list(project.top.rglob("refused*"))
    assert not (project.top / ".git/vmrag/kb").exists()


def test_note_is_written_on_a_detached_head(project):
    project.git("switch", "-q", "--detach")
    project.vmrag("add", "-m", "First.")
    assert note(project, "first") == "First.\n"


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_note_is_refused_in_a_read_only_work_tree(project):
    project.top.chmod(0o555)
    try:
        assert refused(project, "add", "-m", "First.", code=None)["hint"]
    finally:
        project.top.chmod(0o755)


def test_note_with_a_private_key_is_refused_unless_allowed(project):
    text = "-----BEGIN OPENSSH PRIVATE KEY-----\nx"
    assert "private key" in str(refused(project, "add", "-m", text, "--id", "k", code=3)["message"])
    project.vmrag("add", "-m", text, "--id", "k", "--allow-secret")


def test_note_stays_if_another_command_holds_the_index(project):
    (project.top / ".git/index.lock").touch()
    result = project.vmrag("add", "-m", "First.")
    assert "git add" in result.out
    (project.top / ".git/index.lock").unlink()
    assert project.ask("query", "first")["results"][0]["doc_id"] == "first"


# -- names


def test_names_that_a_file_system_confuses_get_files_of_their_own(project):
    for doc_id in ("Docs/x", "docs/y", "a", "A", "a.md/b"):
        project.vmrag("add", "-m", f"Text of {doc_id}.", "--id", doc_id)
    rows = project.ask("list", "--collection", "notes")["documents"]
    assert {row["doc_id"]: row["title"] for row in rows} == {
        doc_id: f"Text of {doc_id}." for doc_id in ("Docs/x", "docs/y", "a", "A", "a.md/b")
    }
    folded = [path.relative_to(project.top).as_posix().casefold() for path in (project.top / FOLDER).rglob("*.md")]
    assert len(set(folded)) == len(folded)


# -- moving


def test_move_makes_stored_documents_files_and_back(project):
    project.vmrag("init", "--knowledge-base", code=None)
    project.write(".vmrag.yaml", "embedding:\n  model: hash\n")
    project.vmrag("add", "-", "--collection", "log", "--id", "a/b", "--metadata", '{"n": 1}', stdin="One.")
    project.vmrag("commit", "-m", "One")
    project.vmrag("move", "log", "--to", "files")
    assert (project.top / ".vmrag/log/a/b.md").read_text() == "---\nn: 1\n---\nOne."
    assert project.ask("query", "one")["results"][0]["doc_id"] == "a/b"
    project.vmrag("commit", "--git", "-m", "Moved")
    earlier = project.vmrag("log", "log/a/b").err.partition("a stored document: ")[2].split()
    assert "One" in project.vmrag(*earlier[1:]).out
    project.vmrag("move", "log", "--to", "store")
    assert not (project.top / ".vmrag/log").exists()
    project.vmrag("commit", "--git", "-m", "Stored")
    assert "as a note: git log -- .vmrag/log/a/b.md" in project.vmrag("log", "log/a/b").err
    (row,) = project.ask("list", "--collection", "log")["documents"]
    assert (row["doc_id"], row["metadata"]) == ("a/b", {"n": 1})


def test_move_keeps_ids_that_end_in_the_suffix_of_notes(project):
    project.vmrag("init", "--knowledge-base", code=None)
    project.write(".vmrag.yaml", "embedding:\n  model: hash\n")
    ids = ["backups.md", "both", "both.md", "twice.md.md"]
    for doc_id in ids:
        project.vmrag("add", "-m", f"Text of {doc_id}.", "--collection", "wiki", "--id", doc_id)
    project.vmrag("commit", "-m", "Wiki")
    project.vmrag("move", "wiki", "--to", "files")
    folder = project.top / ".vmrag/wiki"
    assert (folder / "backups.md").read_text() == "---\nid: backups.md\n---\nText of backups.md."
    assert {"backups.md", "both.md", "twice.md.md"} < {path.name for path in folder.iterdir()}
    rows = project.ask("list", "--collection", "wiki")["documents"]
    assert {row["doc_id"]: row["title"] for row in rows} == {doc_id: f"Text of {doc_id}." for doc_id in ids}
    project.vmrag("commit", "--git", "-m", "Moved")
    project.vmrag("move", "wiki", "--to", "store")
    assert not folder.exists()
    assert [row["doc_id"] for row in project.ask("list", "--collection", "wiki")["documents"]] == ids


# -- several writers


def test_writers_at_the_same_time_lose_nothing(project):
    commands = [[str(SCRIPT), "add", "-m", f"Line {number}.", "--id", "log", "--append"] for number in range(6)]
    running = [subprocess.Popen(command, cwd=project.top, stdout=subprocess.DEVNULL) for command in commands]
    assert [process.wait() for process in running] == [0] * len(running)
    assert sorted(note(project, "log").splitlines()) == [f"Line {number}." for number in range(6)]
