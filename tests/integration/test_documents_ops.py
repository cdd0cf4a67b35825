"""Documents in and out: import, add, rm, list, show, commit."""

from __future__ import annotations

import contextlib
import os
import pty
import shlex
import subprocess

import pytest

from tests.support import terminal
from tests.support.office_files import pdf
from tests.support.repos import isolate
from tests.support.terminal import DOCUMENTS, Project, new_project
from vmrag_link import hints

template, project = terminal.template, terminal.project


def imported(project: Project, *arguments: str) -> dict:
    return project.ask("import", *arguments, "--collection", "handbook", "--copy")


# -- import ----------------------------------------------------------------------------------------


def test_second_import_changes_nothing(project):
    project.git("switch", "-q", "--detach", "first")
    project.git("switch", "-q", "-c", "again")
    before = project.ask("log"), project.answers()
    report = imported(project, "docs")
    assert report["changes"] == {"added": 0, "modified": 0, "removed": 0}
    assert (report["unchanged"], report["branch"], report["created"]) == (3, None, False)
    assert project.status()["kb"]["branch"] is None
    assert "again" not in {branch["name"] for branch in project.ask("branch")["branches"]}
    assert (project.ask("log"), project.answers()) == before
    said = project.vmrag("import", "docs", "--collection", "handbook", "--copy").out
    assert "no documents changed, 3 unchanged" in said
    assert "Next" not in said


def test_import_stores_and_embeds_only_changed_documents(project):
    project.write("docs/setup.md", "# Setup\n\nInstall the program with uv.\n")
    project.write("docs/new.md", "# New\n\nA page that is new.\n")
    report = imported(project, "docs")
    assert report["changes"] == {"added": 1, "modified": 1, "removed": 0}
    assert report["unchanged"] == 2
    assert {doc_id: mark for doc_id, mark in project.marks().items() if mark} == {
        "new.md": "added",
        "setup.md": "modified",
    }
    project.vmrag("commit", "-m", "edits")
    assert project.texts()["setup.md"] == "# Setup\n\nInstall the program with uv.\n"
    assert project.ask("sync", "--rebuild")["chunks"]["embedded"] == 0
    assert project.consistent()


def test_file_that_is_gone_stays_a_document_until_it_is_pruned(project):
    (project.top / "docs/rest.md").unlink()
    assert imported(project, "docs")["changes"]["removed"] == 0
    report = imported(project, "docs", "--prune")
    assert report["changes"] == {"added": 0, "modified": 0, "removed": 1}
    assert {doc_id for doc_id, mark in project.marks().items() if mark == "removed"} == {"rest.md"}
    assert set(project.texts()) == {"setup.md", "deep/tls.txt", "faq.md"}  # faq.md never had a file


def test_prune_removes_nothing_that_came_from_elsewhere(project):
    project.write("notes/one.md", "# One")
    changes = imported(project, "notes", "--prune", "--base", ".")["changes"]
    assert changes == {"added": 1, "modified": 0, "removed": 0}
    (project.top / "notes/one.md").unlink()
    assert imported(project, "docs", "--prune")["changes"]["removed"] == 0
    assert imported(project, "docs/setup.md", "--prune")["changes"]["removed"] == 0
    assert imported(project, "notes", "--prune")["changes"]["removed"] == 1


def test_prune_keeps_a_document_whose_link_is_broken(project):
    (project.top / "docs/alias.md").symlink_to("rest.md")
    assert imported(project, "docs")["changes"]["added"] == 1
    (project.top / "docs/rest.md").unlink()
    assert imported(project, "docs", "--prune")["changes"]["removed"] == 1
    assert "alias.md" in project.texts()


def test_prune_keeps_a_document_with_an_unreadable_file(project):
    project.write("docs/rest.md", b"\xff\xfe broken")
    report = imported(project, "docs", "--prune")
    assert [skipped_file["name"] for skipped_file in report["skipped"]] == ["rest.md"]
    assert project.texts()["rest.md"] == DOCUMENTS["rest.md"]


def test_import_stores_all_formats_and_skips_each_broken_file(project):
    project.write("docs/people.csv", "Service,Owner\nqueue,Ann\n")
    project.write("docs/api.json", '{"title": "The API", "limits": [{"name": "burst", "value": 1.50}]}')
    project.write("docs/broken.json", '{"title": "The API"')
    project.write("docs/feed.xml", '<!DOCTYPE a [<!ENTITY x "ha">]><a>&x;</a>')
    project.write("docs/guide.adoc", "= Guide\n\nStop the worker.\n")
    (project.top / "docs/paper.pdf").write_bytes(pdf("Quarterly forecast"))
    (project.top / "docs/old.doc").write_bytes(b"x")
    report = imported(project, "docs")
    assert report["changes"] == {"added": 4, "modified": 0, "removed": 0}
    assert {skipped_file["name"]: skipped_file["reason"].partition(" (")[0] for skipped_file in report["skipped"]} == {
        "broken.json": "is not JSON",
        "feed.xml": "declares entities, which are not supported",
        "old.doc": "its type .doc is not supported",
    }
    texts = project.texts()
    assert texts["people.csv"] == "Service: queue\nOwner: Ann"
    assert texts["api.json"] == "title: The API\n\nlimits.name: burst\nlimits.value: 1.50"
    assert texts["paper.pdf"] == "Quarterly forecast"
    assert {"The API", "Guide", "paper", "people"} <= {
        document["title"] for document in project.ask("list")["documents"]
    }
    again = imported(project, "docs")
    assert (again["changes"], again["unchanged"]) == ({"added": 0, "modified": 0, "removed": 0}, 7)


def test_import_lists_skipped_files_with_reasons(project):
    for name in ("a.png", "b.pdf", ".hidden.md", "noext", "c.zip", "d.json", "e.exe"):
        project.write(f"docs/{name}", "x")
    report = imported(project, "docs")
    reasons = {skipped_file["name"]: skipped_file["reason"] for skipped_file in report["skipped"]}
    assert reasons["a.png"] == "its type .png is not supported"
    assert reasons[".hidden.md"] == "is hidden"
    assert reasons["noext"] == "has no file type"
    assert len(reasons) == 7
    said = project.vmrag("import", "docs", "--collection", "handbook", "--copy").out
    assert "Skipped 7 files:" in said
    assert "and 2 more (-v shows all)" in said
    assert (
        "e.exe: its type .exe is not supported"
        in project.vmrag("import", "docs", "--collection", "handbook", "--copy", "-v").out
    )


def test_markdown_html_rst_and_text_become_text_with_titles(project):
    project.write(
        "more/page.html",
        "<html><head><title>A page</title></head><body><h1>Top</h1><p>Some <b>text</b> here.</p><script>bad()</script></body></html>",
    )
    project.write("more/guide.rst", "The guide\n=========\n\nReStructured text.\n")
    project.write("more/plain.txt", "Just text.\n")
    project.write("more/front.md", "---\ntitle: From the front\nteam: core\nyear: 2024\n---\n# Other\n\nBody.\n")
    report = project.ask("import", "more", "--collection", "mixed", "--base", "more")
    assert (report["created"], report["changes"]["added"]) == (True, 4)
    titles = {
        document["doc_id"]: document["title"] for document in project.ask("list", "--collection", "mixed")["documents"]
    }
    assert titles == {
        "page.html": "A page",
        "guide.rst": "The guide",
        "plain.txt": "plain",
        "front.md": "From the front",
    }
    page = project.ask("show", "mixed/page.html")["content"]
    assert "Some text here." in page
    assert "bad()" not in page
    front = project.ask("show", "mixed/front.md")
    assert (front["metadata"]["team"], front["metadata"]["year"]) == ("core", 2024)


def test_existing_collection_keeps_the_chunking_that_it_was_made_with(project):
    project.write(".vmrag.yaml", "embedding:\n  model: hash\nchunking:\n  size: 40\n  overlap: 5\n")
    project.write("docs/long.md", "A sentence of text. " * 40)
    imported(project, "docs")
    project.ask("import", "docs/long.md", "--collection", "short", "--base", "docs")
    chunks = {
        document["collection"]: document["chunks"]
        for document in project.ask("list")["documents"]
        if document["doc_id"] == "long.md"
    }
    assert chunks["handbook"] == 2
    assert chunks["short"] > 15
    project.vmrag("commit", "-m", "long")
    assert project.consistent()


def test_existing_collection_keeps_its_model(tmp_path, monkeypatch):
    isolate(monkeypatch, tmp_path / "home")
    project = new_project(tmp_path / "mine")
    project.vmrag("init", "--knowledge-base", "--no-sources")
    project.put("a.md", "made with the hash model")
    project.write(".vmrag.yaml", "")
    project.put("b.md", "added under the default model")
    project.put("c.md", "a collection of the default model", collection="second")
    assert {result["doc_id"] for result in project.ask("query", "model", "--mode", "vector")["results"]} == {
        "a.md",
        "b.md",
        "c.md",
    }
    assert project.consistent()


def test_import_stores_nothing_if_one_file_fails(project):
    project.write("docs/good.md", "good")
    project.write("docs/reserved.md", "---\nsource_id: 1\n---\ntext\n")
    error = project.vmrag("import", "docs", "--collection", "handbook", "--copy", "--json", code=3).error
    assert "source_id" in error["message"]
    assert "reserved.md" in error["message"]
    assert set(project.marks().values()) == {None}


def test_empty_folder_makes_an_empty_collection(project):
    (project.top / "empty").mkdir()
    report = project.ask("import", "empty", "--collection", "nothing")
    assert (report["created"], report["unchanged"]) == (True, 0)
    assert project.ask("list", "--collection", "nothing")["documents"] == []
    assert project.ask("query", "x", "--collection", "nothing")["results"] == []
    assert project.ask("commit", "-m", "an empty collection")["changes"] == {"added": 0, "modified": 0, "removed": 0}
    assert project.consistent()


NOTE = ("add", "--collection", "notes", "--id", "uv")

# -- add, rm ---------------------------------------------------------------------------------------


def test_add_takes_standard_input_with_title_and_metadata(project):
    project.vmrag(
        "add", "-", "--collection", "notes", "--id", "a note", "--title", "The note", "--metadata", '{"team": "core"}',
        stdin="Grüße 🌍\nC:\\new 'quoted' \"twice\"",
    )  # fmt: skip
    shown = project.ask("show", "notes/a note")
    assert shown["content"] == "Grüße 🌍\nC:\\new 'quoted' \"twice\""
    assert (shown["title"], shown["metadata"]) == ("The note", {"team": "core"})
    results = project.ask("query", "quoted", "--where", '{"team": "core"}')["results"]
    assert [(document["doc_id"], document["metadata"]["team"]) for document in results] == [("a note", "core")]


def test_add_reads_piped_input_without_dash(project):
    assert "notes/uv: 1 document added" in project.start(*NOTE, stdin="Use uv.").out
    project.vmrag(*NOTE, "--title", "Tools", stdin="# Uv\n\nUse it.\n")
    assert project.vmrag("show", "notes/uv").out == "# Uv\n\nUse it.\n"
    assert project.ask("show", "notes/uv")["title"] == "Tools"


def test_add_stores_text_of_option(project):
    project.vmrag(*NOTE, "-m", "# Uv\n\nUse it.", stdin="Not this.")
    assert project.ask("show", "notes/uv") | {"title": "Uv", "content": "# Uv\n\nUse it."} == project.ask(
        "show", "notes/uv"
    )
    project.vmrag(*NOTE, "--message", "Use pip.", "--title", "Tools")
    shown = project.ask("show", "notes/uv")
    assert (shown["title"], shown["content"]) == ("Tools", "Use pip.")
    assert (
        project.vmrag("add", "docs/setup.md", *NOTE[1:], "-m", "x", "--json", code=2).error["code"]
        == "INVALID_PARAMETER"
    )
    assert (
        project.vmrag("add", "--collection", "notes", "-m", "x", "--json", code=2).error["code"] == "INVALID_PARAMETER"
    )


@pytest.mark.parametrize("text", ["", "\n", " \n\t\n"])
def test_add_refuses_empty_text(project, text):
    before = project.texts()
    for arguments in (NOTE, ("add", "-", *NOTE[1:]), (*NOTE, "-m", text)):
        refused = project.vmrag(*arguments, code=2, stdin=text).err
        assert "is empty, so nothing was written\nhint: run 'vmrag add -m TEXT --collection notes --id uv" in refused
    assert project.texts() == before


@pytest.mark.parametrize("stdin", ["/dev/null", "/dev/zero", "closed", "terminal"])
def test_add_without_text_refuses_input_that_is_not_piped(project, stdin):
    before, ours = project.texts(), -1
    with contextlib.ExitStack() as opened:
        if stdin == "terminal":
            ours, theirs = pty.openpty()
            opened.callback(os.close, ours)
        else:
            theirs = os.open("/dev/null" if stdin == "closed" else stdin, os.O_RDONLY)
        opened.callback(os.close, theirs)
        command = f"exec {shlex.join([str(terminal.SCRIPT), *NOTE])}" + " <&-" * (stdin == "closed")
        result = subprocess.run(
            ["sh", "-c", command],
            cwd=project.top,
            stdin=theirs,
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
    assert (result.returncode, result.stdout) == (2, "")
    assert "no text is given" in result.stderr
    assert "hint: run 'vmrag add -m TEXT --collection notes --id uv" in result.stderr
    assert project.texts() == before


@pytest.mark.parametrize("line", ["add - --collection notes --id uv", "rm setup.md", "init", "issue add a#1 -F -"])
def test_command_reports_no_bug_with_closed_input(project, line):
    command = f"exec {shlex.quote(str(terminal.SCRIPT))} {line} <&-"
    result = subprocess.run(["sh", "-c", command], cwd=project.top, capture_output=True, text=True, check=False)
    assert result.returncode in (0, 2), result.stderr
    assert "notes/uv" not in project.vmrag("list").out


def test_add_shows_that_it_waits_for_piped_input(project):
    with subprocess.Popen(
        [terminal.SCRIPT, *NOTE],
        cwd=project.top,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        assert "Waiting for the text on standard input" in process.stderr.readline()
        assert process.communicate("Late.", timeout=60)[0].startswith("notes/uv: 1 document added")


def test_add_replaces_a_document_and_prints_the_change(project):
    said = project.vmrag("add", "docs/setup.md", "--collection", "handbook", "--copy").out
    assert "handbook/setup.md: 1 document" in said or "no documents changed" in said
    said = project.vmrag("add", "-", "--collection", "handbook", "--id", "setup.md", stdin="Other.").out
    assert "handbook/setup.md: 1 document modified" in said
    assert "hint: run 'vmrag commit -m \"What changed in the documents\"' to commit the documents" in said
    assert project.texts()["setup.md"] == "Other."
    assert (
        "handbook/new: 1 document added"
        in project.vmrag("add", "-", "--collection", "handbook", "--id", "new", stdin="x").out
    )


def test_text_that_no_engine_stores_is_refused(project):
    refused = project.vmrag("add", "-", "--collection", "handbook", "--id", "x", "--json", code=3, stdin="a\0b").error
    assert refused["code"] == "INVALID_METADATA"
    project.write("latin.md", b"caf\xe9")
    assert (
        "not UTF-8" in project.vmrag("add", "latin.md", "--collection", "handbook", "--json", code=3).error["message"]
    )
    no_name = project.vmrag("add", "-", "--collection", "handbook", "--json", code=2, stdin="x").error
    assert "--id" in no_name["hint"]
    assert set(project.marks().values()) == {None}


def test_rm_of_an_unknown_document_names_the_nearest_and_removes_nothing(project):
    error = project.vmrag("rm", "faq.md", "setpu.md", "--collection", "handbook", "--json", code=3).error
    assert error["code"] == "DOCUMENT_NOT_FOUND"
    assert "Did you mean 'setup.md'?" in error["message"]
    assert (
        error["hint"]
        == "use one of the closest names: setup.md, rest.md, or run 'vmrag list --collection handbook' to list the names"
    )
    assert set(project.marks().values()) == {None}
    error = project.vmrag("rm", "faq.md", "--collection", "handbok", "--json", code=3).error
    assert "Did you mean 'handbook'?" in error["message"]


def test_rm_removes_several_documents_and_prints_the_next_step(project):
    said = project.vmrag("rm", "faq.md", "rest.md", "--collection", "handbook").out
    assert "handbook: 2 documents removed" in said
    assert "hint: run 'vmrag commit -m \"What changed in the documents\"' to commit the documents" in said
    assert project.ask("commit", "-m", "less")["changes"] == {"added": 0, "modified": 0, "removed": 2}
    assert set(project.marks()) == {"setup.md", "deep/tls.txt"}
    assert project.consistent()


def test_two_collections_keep_equal_documents_apart(project):
    project.vmrag("import", "docs", "--collection", "second", "--copy", "--base", "docs")
    documents = project.ask("list")["documents"]
    assert len(documents) == 7
    assert len(project.ask("list", "--collection", "second")["documents"]) == 3
    project.drop("setup.md", collection="second")
    assert {result["collection"] for result in project.ask("query", "install", "--mode", "keyword")["results"]} == {
        "handbook"
    }
    project.vmrag("commit", "-m", "two")
    assert project.consistent()


# -- list, show ------------------------------------------------------------------------------------


def test_list_marks_uncommitted_documents(project):
    project.put("new.md", "New.")
    project.put("setup.md", "Changed.")
    project.drop("faq.md")
    assert project.vmrag("list").out.splitlines() == [
        "  handbook/deep/tls.txt  tls",
        "- handbook/faq.md  faq.md",
        "+ handbook/new.md  new.md",
        "  handbook/rest.md  Rest",
        "~ handbook/setup.md  setup.md",
    ]


def test_empty_list_suggests_the_first_command(tmp_path, monkeypatch):
    isolate(monkeypatch, tmp_path / "home")
    project = new_project(tmp_path / "mine")
    project.vmrag("init", "--knowledge-base", "--no-sources")
    assert project.vmrag("list").out == "No documents yet.\nhint: run 'vmrag import PATH --collection NAME'\n"
    assert project.ask("query", "x")["results"] == []
    error = project.vmrag("list", "--collection", "handbook", "--json", code=3).error
    assert error["hint"] == "run 'vmrag import DIR --collection NAME' to create the first one"


def test_show_at_a_ref_prints_the_pinned_document(project):
    assert project.vmrag("show", "handbook/rest.md").out == DOCUMENTS["rest.md"]
    assert project.vmrag("show", "feature:handbook/rest.md").out == "# Rest\n\nNever rest.\n"
    assert project.vmrag("show", "main~1:handbook/deep/tls.txt").out == DOCUMENTS["deep/tls.txt"]
    project.git("tag", "v1/with:no", "first", check=False)
    assert project.vmrag("show", "feature:handbook/faq.md", "--json", code=3).error["code"] == "DOCUMENT_NOT_FOUND"
    project.git("branch", "topic/deep", "feature")
    assert project.vmrag("show", "topic/deep:handbook/rest.md").out == "# Rest\n\nNever rest.\n"


def test_document_may_have_a_colon_and_slashes_in_its_name(project):
    project.put("a:b/c d.md", "Odd.")
    assert project.vmrag("show", "handbook/a:b/c d.md", "--raw").out == "Odd."


# -- commit ----------------------------------------------------------------------------------------


def test_commit_without_changes_is_a_failed_check(project):
    result = project.vmrag("commit", "-m", "nothing", code=1)
    assert "no documents have changed since the last commit." in result.err
    assert "hint: run 'vmrag import" in result.err


@pytest.mark.parametrize("message", ["One\n\nTwo lines, then\nthree.", "日本語, Grüße 🌍", "quote ' and \\ back", "-m"])
def test_commit_keeps_its_message_exactly(project, message):
    project.put("x.md", "x")
    said = project.vmrag("commit", "-m", message).out
    assert f"] {message.splitlines()[0]}" in said
    assert project.ask("log")["revisions"][0]["message"] == message
    assert message.splitlines()[0] in project.vmrag("log").out


def test_commit_message_is_shown_from_its_first_nonblank_line(project):
    project.put("x.md", "x")
    assert "] Late" in project.vmrag("commit", "-m", "\n\nLate\n").out
    assert "    Late  (1 document added)" in project.vmrag("log").out


def test_author_of_a_commit_can_be_given(project):
    project.put("x.md", "x")
    project.vmrag("commit", "-m", "x", "--author", "Grace Hopper <grace@example.org>")
    assert project.ask("log")["revisions"][0]["author"] == "Grace Hopper <grace@example.org>"


@pytest.mark.parametrize(
    ("author", "signed"),
    [("Grace", "Grace <ada@example.com>"), ("grace@example.org", "grace <grace@example.org>")],
)
def test_name_or_an_address_alone_is_an_author(project, author, signed):
    project.put("x.md", "x")
    project.vmrag("commit", "-m", "x", "--author", author)
    assert project.ask("log")["revisions"][0]["author"] == signed


@pytest.mark.parametrize("author", ["Grace <>", "<g@example.org>", "A <a@b>\nB <c@d>"])
def test_commit_rejects_invalid_author(project, author):
    project.put("x.md", "x")
    error = project.vmrag("commit", "-m", "x", "--author", author, "--json", code=2).error
    assert "Name <email>" in error["hint"]
    assert project.marks()["x.md"] == "added"


def test_pin_is_staged_and_nothing_else(project):
    project.write("code.py", "1")
    project.put("x.md", "x")
    project.vmrag("commit", "-m", "x")
    assert project.git("diff", "--cached", "--name-only") == ".dolt-version"
    assert "?? code.py" in project.git("status", "--short")


def test_commit_that_finds_git_at_work_changes_nothing(project):
    project.put("x.md", "x")
    (project.top / ".git/index.lock").touch()
    result = project.vmrag("commit", "-m", "x", code=3)
    assert "index.lock" in result.err
    assert project.status()["kb"]["dirty"] is True
    (project.top / ".git/index.lock").unlink()
    assert project.ask("commit", "-m", "x")["staged"] is True


def test_pin_prints_git_add_if_it_cannot_stage(project):
    first = project.ask("log")["revisions"][1]["revision"]
    (project.top / ".git/index.lock").touch()
    result = project.vmrag("pin", first, code=1)
    assert "hint: run 'git add .dolt-version'" in result.out
    assert project.pinned == first
    (project.top / ".git/index.lock").unlink()
    project.vmrag("sync")
    assert project.status()["state"] == "in_sync"


def test_import_takes_no_other_documents_place(project: Project) -> None:
    project.write("docs/index.md", "# All\n\nOnly here, and not committed.\n")
    project.write("docs/guide/index.md", "# Guide\n")
    project.write("docs/guide/new.md", "# New\n")
    project.vmrag("import", "docs/index.md", "--collection", "handbook", "--copy")
    before = project.texts()
    based = ("--collection", "handbook", "--base", "docs/guide")
    for words in (("import", "docs/guide"), ("import", "docs/guide/index.md", "docs/guide/new.md")):
        error = project.vmrag(*words, *based, "--json", code=3).error
        assert error["code"] == "DUPLICATE_ID"
        assert "'docs/index.md'" in error["message"]
        assert "'docs/guide/index.md'" in error["message"]
        assert error["details"]["documents"] == [
            {"doc_id": "index.md", "source": "docs/index.md", "file": "docs/guide/index.md"}
        ]
    assert project.texts() == before, "all or nothing, as with two files of one id in one import"
    project.vmrag("import", "docs/guide", *based, "--replace")
    assert project.texts()["index.md"] == "# Guide\n"


def test_same_file_is_imported_again_from_wherever_it_is_named(project: Project) -> None:
    project.write("docs/index.md", "# One\n")
    project.vmrag("import", "docs", "--collection", "handbook", "--copy")
    for number, words in enumerate(
        (("-C", "docs", "import", "."), ("-C", "docs", "import", "index.md"), ("import", str(project.top / "docs")))
    ):
        project.write("docs/index.md", f"# {number}\n")
        project.vmrag(*words, "--collection", "handbook")
        assert project.texts()["index.md"] == f"# {number}\n"
    (project.top / "linked").symlink_to("docs")
    project.write("docs/index.md", "# Through a link\n")
    project.vmrag("import", "linked/index.md", "--collection", "handbook", "--copy")
    assert project.texts()["index.md"] == "# Through a link\n"


def test_import_refuses_two_files_with_one_id_even_with_replace(project: Project) -> None:
    project.write("a/b/index.md", "# A\n")
    project.write("b/index.md", "# B\n")
    project.vmrag("import", "a", "--collection", "fresh", "--base", "a")
    words = ("import", "a", "b", "--collection", "fresh", "--base", ".", "--replace", "--json")
    error = project.vmrag(*words, code=2).error
    assert all(f"/{name}/index.md" in error["message"] for name in ("a/b", "project/b"))
    project.vmrag(*shlex.split(hints.list_commands(error["hint"])[0])[1:])


def test_invalid_front_matter_of_one_file_stops_no_other(project: Project) -> None:
    for number, value in enumerate(
        ("!!bool maybe", '!!int ""', "!!seq foo", "!!map [[x, y]]", "!!timestamp [b]", ".inf")
    ):
        project.write(f"odd/{number}.md", f"---\ntitle: x\na: {value}\n---\ntext\n")
    project.write("odd/good.md", "# Good\n")
    report = project.ask("import", "odd", "--collection", "handbook", "--base", "odd")
    assert {skipped_file["name"] for skipped_file in report["skipped"]} == {f"{number}.md" for number in range(6)}
    assert all("line 3 of its front matter" in skipped_file["reason"] for skipped_file in report["skipped"])
    assert "good.md" in project.texts()
