"""`vmrag edit`: a stored document in git's editor."""

from __future__ import annotations

import shlex
import time
from pathlib import Path

import pytest

from tests.support import editors, screen, terminal
from tests.support.editors import MakeEditor
from tests.support.screen import Screen
from tests.support.terminal import SCRIPT, Project, opened
from vmrag_link.cli import editor
from vmrag_link.models import Document

template, project, screens, make_editor = terminal.template, terminal.project, screen.screens, editors.make_editor


def read_row(project: Project, doc_id: str, collection: str = "handbook") -> Document:
    with opened(project) as ws:
        document = ws.engine.find_document(ws.locate_documents(), collection, doc_id)
    assert document is not None
    return document


def list_drafts(project: Project) -> dict[str, str]:
    return {path.name: path.read_text() for path in (project.own / "drafts").glob("*/*")}


def test_edit_stores_text_and_keeps_everything_else(project: Project, make_editor: MakeEditor) -> None:
    values = '{"team": "core", "year": 2024}'
    project.vmrag("add", "docs/rest.md", "--collection", "handbook", "--copy", "--metadata", values)
    project.vmrag("commit", "-m", "metadata")
    before = read_row(project, "rest.md")
    assert before.source == "docs/rest.md"
    result = project.vmrag("edit", "handbook/rest.md", env=make_editor("printf 'Wake up.\\n' >> \"$1\""))
    assert result.out.splitlines() == [
        "handbook/rest.md: 1 document modified",
        "hint: run 'vmrag commit -m \"What changed in the documents\"' to commit the documents",
    ]
    after = read_row(project, "rest.md")
    changed = {name for name in before.__struct_fields__ if getattr(before, name) != getattr(after, name)}
    assert after.content == "# Rest\n\nTake a rest, and sleep well.\nWake up.\n"
    assert changed <= {"content", "content_hash", "updated_at"}
    assert project.marks()["rest.md"] == "modified"
    assert project.ask("query", "wake", "--where", '{"team": "core"}')["results"][0]["doc_id"] == "rest.md"
    assert project.consistent()
    assert list_drafts(project) == {}


def test_edit_takes_id_alone_and_derives_title_again(project: Project, make_editor: MakeEditor) -> None:
    report = project.ask("edit", "rest.md", env=make_editor("printf '# Sleep\\n\\nWell.\\n' > \"$1\""))
    assert report == {
        "collection": "handbook", "doc_id": "rest.md", "changed": True, "branch": "main", "pending": "",
    }  # fmt: skip
    assert project.ask("show", "handbook/rest.md")["title"] == "Sleep"
    project.vmrag("add", "-m", "One.", "--title", "By hand", "--collection", "notes", "--id", "one")
    project.vmrag("edit", "one", env=make_editor("printf '# Two\\n' > \"$1\""))
    assert project.ask("show", "notes/one")["title"] == "By hand"


@pytest.mark.parametrize("body", ["true", 'echo >> "$1"', 'rm "$1"; printf "A frequent question." > "$1"'])
def test_edit_stores_nothing_if_text_is_unchanged(project: Project, make_editor: MakeEditor, body: str) -> None:
    before = read_row(project, "faq.md")
    result = project.vmrag("edit", "faq.md", env=make_editor(body))
    assert result.out == "handbook/faq.md is unchanged, so nothing was stored.\n"
    assert project.ask("edit", "faq.md", env=make_editor(body))["changed"] is False
    assert read_row(project, "faq.md") == before
    assert set(project.marks().values()) == {None}
    assert list_drafts(project) == {}


def test_edit_keeps_draft_if_editor_fails(project: Project, make_editor: MakeEditor) -> None:
    before = read_row(project, "faq.md")
    failed = project.vmrag("edit", "faq.md", code=2, env=make_editor('printf "Half" > "$1"; exit 7')).err
    assert "error: the editor failed with exit code 7, so nothing was changed" in failed
    (draft,) = (project.own / "drafts").glob("*/faq.md")
    assert f"The text is in {draft}\n" in failed
    assert draft.read_text() == "Half"
    assert read_row(project, "faq.md") == before
    details = project.vmrag("edit", "faq.md", "--json", code=2, env=make_editor('echo x >> "$1"; exit 1')).error
    assert Path(details["details"]["draft"]).read_text() == "A frequent question.x\n"


@pytest.mark.parametrize("body", ["exit 7", ': > "$1"; exit 7', 'rm "$1"; exit 7'])
def test_edit_keeps_no_draft_without_new_text(project: Project, make_editor: MakeEditor, body: str) -> None:
    assert "The text is in" not in project.vmrag("edit", "faq.md", code=2, env=make_editor(body)).err
    assert list_drafts(project) == {}


@pytest.mark.parametrize(
    ("body", "code", "message"),
    [
        (': > "$1"', 2, "the edited text is empty, so nothing was stored"),
        ("printf '\\377\\376' > \"$1\"", 3, "the text is not UTF-8"),
        ('rm "$1"', 3, "cannot read"),
    ],
)
def test_edit_refuses_text_that_cannot_be_stored(
    project: Project, make_editor: MakeEditor, body: str, code: int, message: str
) -> None:
    before = read_row(project, "faq.md")
    assert message in project.vmrag("edit", "faq.md", code=code, env=make_editor(body)).err
    assert read_row(project, "faq.md") == before


def vmrag(*arguments: str) -> str:
    """Return a shell command that another process runs while the editor is open."""
    return f"{shlex.join([str(SCRIPT), *arguments])} > /dev/null || exit 9"


@pytest.mark.parametrize(
    "other",
    [
        vmrag("add", "-m", "Theirs.", "--collection", "handbook", "--id", "faq.md"),
        vmrag("add", "-m", "A frequent question.", "--metadata", '{"by": "them"}', "--collection", "handbook", "--id", "faq.md"),
        vmrag("add", "-m", "A frequent question.", "--title", "Theirs", "--collection", "handbook", "--id", "faq.md"),
    ],
    ids=["text", "metadata", "title"],
)  # fmt: skip
@pytest.mark.sample(1)
def test_edit_refuses_document_that_another_process_changed(
    project: Project, make_editor: MakeEditor, other: str
) -> None:
    failed = project.vmrag("edit", "faq.md", code=1, env=make_editor(f'{other}\nprintf " Mine." >> "$1"')).err
    assert "error: handbook/faq.md was changed by another process, so nothing was stored\n" in failed
    assert "hint: run 'vmrag edit handbook/faq.md" in failed
    assert list_drafts(project) == {"faq.md": "A frequent question. Mine."}
    assert str(next((project.own / "drafts").glob("*/faq.md"))) in failed
    assert read_row(project, "faq.md").content in ("Theirs.", "A frequent question.")
    assert project.consistent()


def test_edit_refuses_document_that_another_process_removed(project: Project, make_editor: MakeEditor) -> None:
    body = f'{vmrag("rm", "handbook/faq.md")}\nprintf " Mine." >> "$1"'
    failed = project.vmrag("edit", "faq.md", code=1, env=make_editor(body)).err
    assert "handbook/faq.md was removed by another process" in failed
    assert list_drafts(project) == {"faq.md": "A frequent question. Mine."}
    assert "faq.md" not in project.texts()


def test_edit_accepts_same_text_from_another_process(project: Project, make_editor: MakeEditor) -> None:
    other = vmrag("add", "-m", "Same.", "--title", "Same.", "--collection", "handbook", "--id", "faq.md")
    project.vmrag("add", "-m", "Before.", "--title", "Before.", "--collection", "handbook", "--id", "faq.md")
    project.vmrag("edit", "faq.md", env=make_editor(f'{other}\nprintf Same. > "$1"'))
    assert read_row(project, "faq.md").content == "Same."


def test_edit_stores_while_another_document_changes(project: Project, make_editor: MakeEditor) -> None:
    other = vmrag("add", "-m", "Use uv.", "--collection", "handbook", "--id", "uv.md")
    project.vmrag("edit", "faq.md", env=make_editor(f'{other}\nprintf " Mine." >> "$1"'))
    texts = project.texts()
    assert (texts["faq.md"], texts["uv.md"]) == ("A frequent question. Mine.", "Use uv.")


@pytest.mark.parametrize("name", ["guide/setup.md", "files/guide/setup.md"])
def test_edit_refuses_document_of_source(project: Project, make_editor: MakeEditor, name: str) -> None:
    project.write(".vmrag.yaml", "embedding:\n  model: hash\nsources:\n- collection: files\n  paths: [guide/]\n")
    project.commit("sources", **{"guide/setup.md": "# Guide\n"})
    failed = project.vmrag("edit", name, "--json", code=2, env=make_editor("exit 9")).error
    assert (failed["code"], failed["hint"]) == ("SOURCE_READ_ONLY", "edit the file guide/setup.md")
    assert project.vmrag("edit", "files", "--json", code=2).error["code"] == "SOURCE_READ_ONLY"


def test_edit_refuses_document_of_source_without_pin(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from tests.support.repos import isolate

    isolate(monkeypatch, tmp_path / "home")
    project = terminal.new_project(tmp_path / "project")
    project.write("docs/a.md", "# A\n")
    project.write(".vmrag.yaml", "embedding:\n  model: hash\nsources:\n- collection: docs\n  paths: [docs/]\n")
    project.git("add", "-A")
    assert "hint: edit the file docs/a.md" in project.vmrag("edit", "docs/a.md", code=2).err
    assert not (project.top / ".dolt-version").exists()


@pytest.mark.parametrize(
    ("name", "code", "message"),
    [
        ("handbook/faqs.md", "DOCUMENT_NOT_FOUND", "Did you mean 'faq.md'?"),
        ("faqs.md", "DOCUMENT_NOT_FOUND", "Did you mean 'handbook/faq.md'?"),
        ("handbok/faq", "COLLECTION_NOT_FOUND", "Did you mean 'handbook/faq.md'?"),
        ("handbook", "INVALID_PARAMETER", "is a collection, not a document"),
    ],
)
def test_edit_names_closest_document(
    project: Project, make_editor: MakeEditor, name: str, code: str, message: str
) -> None:
    failed = project.vmrag("edit", name, "--json", code=None, env=make_editor("exit 9")).error
    assert failed["code"] == code
    assert message in failed["message"]


def test_edit_refuses_documents_that_add_cannot_store(project: Project, make_editor: MakeEditor) -> None:
    project.vmrag("issue", "add", "birds#7", "-m", "Owls.")
    log = next(row for row in project.ask("list")["documents"] if row["collection"] != "handbook")
    name = f"{log['collection']}/{log['doc_id']}"
    assert "vmrag issue --help" in project.vmrag("edit", name, code=2, env=make_editor("exit 9")).err


def test_edit_refuses_detached_head_before_editor_opens(project: Project, make_editor: MakeEditor) -> None:
    project.git("checkout", "-q", "--detach")
    failed = project.vmrag("edit", "faq.md", "--json", code=3, env=make_editor("exit 9")).error
    assert failed["code"] == "GIT_BUSY"


def test_edit_without_terminal_runs_only_editor_of_git_editor(
    project: Project, make_editor: MakeEditor, monkeypatch: pytest.MonkeyPatch
) -> None:
    command = make_editor('printf "Edited." > "$1"')["GIT_EDITOR"]
    monkeypatch.delenv("GIT_EDITOR")
    project.git("config", "core.editor", command)
    for environ in ({}, {"EDITOR": command}, {"VISUAL": command}):
        failed = project.start("edit", "faq.md", env=environ)
        assert (failed.code, failed.out) == (2, "")
        assert "error: cannot open an editor without a terminal\n" in failed.err
        assert "hint: run 'GIT_EDITOR=COMMAND vmrag edit handbook/faq.md' " in failed.err
    assert project.start("edit", "faq.md", env={"GIT_EDITOR": command}).code == 0
    assert read_row(project, "faq.md").content == "Edited."


def test_edit_opens_configured_editor_on_terminal(
    project: Project, make_editor: MakeEditor, monkeypatch: pytest.MonkeyPatch, screens: list[Screen]
) -> None:
    body = 'test -t 0 && test -t 1 || exit 5; printf "Edit %s: " "$(basename "$1")"; read answer; echo "$answer" > "$1"'
    command = make_editor(body)["GIT_EDITOR"]
    monkeypatch.delenv("GIT_EDITOR")
    project.git("config", "core.editor", command)
    screens.append(Screen(project, "edit", "handbook/faq.md"))
    screens[-1].expect("Edit faq.md: ")
    screens[-1].answer("Typed.\n")
    assert screens[-1].end() == 0
    assert "handbook/faq.md: 1 document modified" in screens[-1].said
    assert read_row(project, "faq.md").content == "Typed.\n"


def test_edit_keeps_draft_if_user_interrupts(project: Project, make_editor: MakeEditor, screens: list[Screen]) -> None:
    screens.append(Screen(project, "edit", "faq.md", **make_editor('echo Half > "$1"; echo ready; sleep 60')))
    screens[-1].expect("ready")
    screens[-1].answer("\x03")
    assert screens[-1].end() == 130
    assert "The text is in" in screens[-1].said
    assert list_drafts(project) == {"faq.md": "Half\n"}
    assert read_row(project, "faq.md").content == "A frequent question."


def test_edit_keeps_draft_if_process_is_killed(project: Project, make_editor: MakeEditor) -> None:
    killed = project.start("edit", "faq.md", env=make_editor('echo Half > "$1"; kill -9 $(ps -o ppid= -p $PPID) $PPID'))
    assert killed.code != 0
    deadline = time.monotonic() + 10
    while list_drafts(project) != {"faq.md": "Half\n"}:
        assert time.monotonic() < deadline
    assert read_row(project, "faq.md").content == "A frequent question."


def test_edit_removes_drafts_of_killed_commands_after_a_month(
    project: Project, make_editor: MakeEditor, monkeypatch: pytest.MonkeyPatch
) -> None:
    project.vmrag("edit", "faq.md", code=2, env=make_editor('echo Half > "$1"; exit 1'))
    project.vmrag("edit", "rest.md", env=make_editor("true"))
    assert list_drafts(project) == {"faq.md": "Half\n"}
    monkeypatch.setattr(editor, "KEPT_SECONDS", -1)
    project.vmrag("edit", "rest.md", env=make_editor("true"))
    assert list_drafts(project) == {}


@pytest.mark.parametrize("doc_id", ["-rf.md", "a b/$(touch x).txt", "..", "Ünïcode.rst", "x" * 250, "no-suffix"])
def test_edit_opens_document_of_any_name(project: Project, make_editor: MakeEditor, doc_id: str) -> None:
    project.put(doc_id, "Text.")
    project.vmrag("edit", f"handbook/{doc_id}", env=make_editor('printf "Edited." > "$1"'))
    assert project.texts()[doc_id] == "Edited."
    assert not (project.top / "x").exists()
