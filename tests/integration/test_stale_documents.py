"""A file that was changed since it was imported, while its document was not: whatever shows that
document says so.
"""

from __future__ import annotations

import shlex
import time

import pytest

from tests.support import terminal
from tests.support.mcp import Tools
from tests.support.repos import ON
from tests.support.terminal import Project
from vmrag_link.conversion.converter import ConvertingProcess
from vmrag_link.documents import import_base
from vmrag_link.git import versions
from vmrag_link.ops.documents import file_changes
from vmrag_link.ops.documents.update import DocumentUpdate, update

pytestmark = pytest.mark.hooks("off")

template, project = terminal.template, terminal.project

SETUP = "docs/setup.md"
NEW = "# Setup\n\nInstall the program with uv.\n"
SAID = "1 document says what its file said before: handbook/setup.md. Next: vmrag import docs/setup.md --collection handbook"


KEYS = (
    "filter.evil.clean",
    "filter.evil.smudge",
    "diff.evil.textconv",
    "diff.evil.command",
    "core.fsmonitor",
    "diff.external",
)


def edit(project: Project) -> None:
    """In the knowledge base, as an agent does."""
    with terminal.opened(project) as ws:
        update(ws, "handbook", [DocumentUpdate("setup.md", text="# Setup\n\nInstall it as you like.\n")])


def stale(project: Project) -> list[str]:
    """The documents of `vmrag status`, which agree with those of a query that finds all."""
    report = project.ask("status", code=None)
    found = sorted(
        f"{each['collection']}/{each['doc_id']}" for each in report["changes"]["files"]["files"] if each["stale"]
    )
    answer = project.ask("query", "the program, sleep, certificates, uv, question", "-k", "50")["stale"]
    assert (
        sorted(f"{each['collection']}/{each['doc_id']}" for each in (answer or {"documents": []})["documents"]) == found
    )
    assert bool(found) == any("said before" in each for each in report["reasons"])
    return found


def test_an_edited_page_is_said_in_query_and_status_until_it_is_imported(project):
    assert stale(project) == []
    project.write(SETUP, NEW)
    assert stale(project) == ["handbook/setup.md"]
    project.git("commit", "-qam", "uv")
    assert stale(project) == ["handbook/setup.md"]
    assert f"warning: {SAID}\n" in project.vmrag("query", "install the program").out
    assert SAID not in project.vmrag("query", "--collection", "handbook", "-k", "1", "certificates for TLS").out
    shown = project.vmrag("status").out.splitlines()
    assert shown[0] == "in sync with the pin, but 1 document is older than its file"
    assert f"  warning: {SAID}" in shown
    project.vmrag(*shlex.split(SAID.partition("Next: ")[2])[1:])
    assert stale(project) == []
    assert project.vmrag("status").out.splitlines()[0] == "in sync"


def test_a_document_that_was_edited_in_the_knowledge_base_is_not_stale(project):
    edit(project)
    project.vmrag("commit", "-m", "as you like")
    assert stale(project) == []
    project.write(SETUP, NEW)
    assert stale(project) == []


@pytest.mark.parametrize("known", ["by git", "by this work tree"])
def test_an_earlier_text_is_known_by_git_or_by_who_imported_it(project, known):
    if known == "by git":
        (project.own / "seen-files.json").unlink()  # as in a clone
    else:
        project.write(SETUP, "# Setup\n\nBetween two commits.\n")
        project.vmrag("import", SETUP, "--collection", "handbook", "--copy")
    project.write(SETUP, NEW)
    project.git("commit", "-qam", "uv")
    assert stale(project) == ["handbook/setup.md"]


def test_line_ends_of_another_checkout_are_no_change(project):
    project.write(".gitattributes", "*.md text eol=crlf\n")
    for line_ends in ("\n", "\r\n"):
        (project.top / SETUP).write_bytes(terminal.DOCUMENTS["setup.md"].replace("\n", line_ends).encode())
        assert stale(project) == []
    (project.top / SETUP).write_bytes(NEW.replace("\n", "\r\n").encode())
    assert stale(project) == ["handbook/setup.md"]


def test_changed_front_matter_makes_a_document_stale(project):
    project.write("docs/team.md", "---\nteam: core\n---\n# Team\n\nWho works here: the program.\n")
    project.vmrag("import", "docs/team.md", "--collection", "handbook", "--copy")
    project.git("add", "-A")
    project.git("commit", "-qm", "team")
    assert stale(project) == []
    project.write("docs/team.md", "---\nteam: docs\n---\n# Team\n\nWho works here: the program.\n")
    assert stale(project) == ["handbook/team.md"]


def test_a_converted_file_that_was_exchanged_is_said(project, monkeypatch):
    monkeypatch.setattr(file_changes, "CONVERTING_SECONDS", 60.0)  # on a busy machine, too
    project.write("docs/table.csv", "name,age\nAda program,36\n")
    project.vmrag("import", "docs/table.csv", "--collection", "handbook", "--copy")
    assert stale(project) == []
    project.write("docs/table.csv", "name,age\nAda program,37\n")
    assert stale(project) == ["handbook/table.csv"]


def test_an_answer_from_another_commit_is_not_compared_with_the_work_tree(project):
    project.write(SETUP, NEW)
    assert project.ask("query", "install", "--at", "HEAD")["stale"] is None


def test_what_no_version_of_the_file_had_is_looked_up_once_for_a_commit(project, monkeypatch):
    edit(project)
    project.write(SETUP, NEW)
    asked: list[str] = []
    real = versions.versions
    monkeypatch.setattr(
        versions, "versions", lambda places, commit, paths: asked.append(commit) or real(places, commit, paths)
    )
    for _ in range(2):
        project.vmrag("query", "install the program")
    assert len(asked) == 1
    project.git("commit", "-qam", "more")
    project.vmrag("query", "install the program")
    assert len(asked) == 2


def test_a_history_that_names_programs_runs_none(project, tmp_path):
    """A stranger packed this repository: its settings name programs that git would run."""
    (project.own / "seen-files.json").unlink()
    ran = tmp_path / "ran"
    project.write(".gitattributes", "*.md filter=evil diff=evil\n")
    project.write(SETUP, NEW)
    for key in KEYS:
        project.git("config", key, f"echo {key} >> {ran}; cat")
    assert len(project.ask("query", "install the program")["stale"]["documents"]) == 1
    assert not ran.exists(), ran.read_text()


def test_renamed_files_leave_nothing_behind_in_the_record(project):
    for number in range(3):
        project.git("mv", "docs/rest.md" if not number else f"docs/rest{number - 1}.md", f"docs/rest{number}.md")
        project.vmrag("import", "docs", "--collection", "handbook", "--copy")
        project.vmrag("status")
    record = (project.own / "seen-files.json").read_text()
    assert sorted(each for each in ("rest.md", "rest0.md", "rest1.md", "rest2.md") if f"docs/{each}" in record) == [
        "rest2.md"
    ]


# -- tools -----------------------------------------------------------------------------------------


def test_tools_say_which_documents_of_an_answer_are_older_than_their_files(project):
    tools = Tools(project.top)
    install = {"collection_name": "handbook", "query_texts": ["install the program"], "n_results": 1}
    assert "stale" not in tools("chroma_query_documents", **install)["kb"]
    project.write(SETUP, NEW)
    answers = (
        tools("chroma_query_documents", **install),
        tools("chroma_get_documents", collection_name="handbook"),
        tools("chroma_get_documents_by_ids", collection_name="handbook", ids=["setup.md_chunk_0"]),
        tools("chroma_peek_collection", collection_name="handbook"),
        tools("get_document", doc_id="setup.md"),
    )
    for answer in answers:
        assert answer["kb"]["stale"] == ["handbook/setup.md"]
        assert [each["message"] for each in answer["warnings"]] == [SAID.replace("vmrag", f"vmrag -C {project.top}")]
        assert answer["kb"]["in_sync"]  # with the pin
    rest = tools("chroma_get_documents", collection_name="handbook", ids=["rest.md"])
    assert "stale" not in rest["kb"]
    tools("chroma_update_documents", collection_name="handbook", ids=["setup.md"], documents=["# Setup\n\nWith uv."])
    assert "stale" not in tools("chroma_query_documents", **install)["kb"]  # by an agent, who knows better


# -- hooks -----------------------------------------------------------------------------------------

HOOK = "vmrag: 1 document says what its file said before: handbook/setup.md. (vmrag import docs/setup.md --collection handbook)"


def said(project: Project, *arguments: str) -> str:
    """What our hooks say while git runs, and it succeeds."""
    done = project.run(*arguments, env=ON)
    assert done.returncode == 0, done.stderr
    return done.stderr.strip()


@pytest.mark.hooks("on")
def test_git_commit_warns_of_a_page_whose_document_is_older(project):
    project.write(SETUP, NEW)
    project.write("other.py", "pass")
    project.git("add", "other.py")
    assert "said before" not in said(project, "commit", "-qm", "code")
    assert said(project, "commit", "-qm", "uv", SETUP) == HOOK
    project.write(SETUP, NEW + "\nTwice.\n")
    assert said(project, "commit", "-qam", "uv again") == HOOK
    project.vmrag("import", "docs", "--collection", "handbook", "--copy")
    project.vmrag("commit", "-m", "uv")
    project.git("add", "-A")
    assert "said before" not in said(project, "commit", "-qm", "uv")


@pytest.mark.hooks("on")
def test_a_commit_of_the_page_alone_is_told_of_the_pin_that_it_leaves_out(project):
    project.write(SETUP, NEW)
    project.vmrag("import", "docs", "--collection", "handbook", "--copy")
    project.vmrag("commit", "-m", "uv")
    told = said(project, "commit", "-qm", "uv", SETUP)
    hint = "git commit --amend --no-edit .dolt-version"
    assert told == f"vmrag: This commit leaves out the .dolt-version that goes with its files: {SETUP}. ({hint})"
    assert "  The pin is staged, and in no commit yet: git commit .dolt-version" in project.vmrag("status").out
    project.git(*hint.split()[1:], env=ON)
    assert outdated(project, "HEAD") == []
    assert "in no commit" not in project.vmrag("status").out


@pytest.mark.hooks("on")
def test_a_page_that_was_edited_and_imported_after_git_add_is_not_called_the_older_one(project):
    project.write(SETUP, NEW)
    project.git("add", SETUP)
    project.write(SETUP, NEW + "\nTwice.\n")
    project.vmrag("import", "docs", "--collection", "handbook", "--copy")
    project.vmrag("commit", "-m", "uv")
    told = said(project, "commit", "-qm", "uv")
    hint = f"git commit --amend --no-edit -- {SETUP}"
    assert told == f"vmrag: This commit has an earlier text of files that were imported: {SETUP}. ({hint})"
    assert outdated(project, "HEAD") != []
    assert said(project, *hint.split()[1:]) == ""
    assert outdated(project, "HEAD") == []


@pytest.mark.hooks("on")
def test_git_push_warns_of_what_it_brings_and_of_nothing_else(project, tmp_path):
    project.git("init", "-q", "--bare", str(tmp_path / "hub.git"))
    project.git("remote", "add", "origin", str(tmp_path / "hub.git"))
    assert "said before" not in said(project, "push", "-q", "origin", "main")
    project.write(SETUP, NEW)
    project.git("commit", "-qam", "uv", "--no-verify")
    assert said(project, "push", "-q", "origin", "main") == HOOK
    project.write("other.py", "pass")
    project.git("add", "other.py")
    project.git("commit", "-qm", "code", "--no-verify")
    assert said(project, "push", "-q", "origin", "main") == ""


@pytest.mark.hooks("on")
def test_a_commit_that_touches_no_imported_file_starts_no_python(project):
    project.vmrag("status")
    (project.shared / "interpreter").write_text("/bin/false\n")  # where Python is started, git says that it failed
    project.write("other.py", "pass")
    project.git("add", "other.py")
    assert project.run("commit", "-qm", "code", env=ON).stderr == ""
    project.write(SETUP, NEW)
    assert "/bin/false" in project.run("commit", "-qam", "uv", env=ON).stderr


def test_few_paths_stand_for_all_imported_files():
    few = [f"docs/{number}.md" for number in range(100)]
    assert import_base.covering(few) == sorted(few)
    assert import_base.covering([*few, "docs/deep/a.md", "README.md"]) == ["README.md", "docs", "docs/deep"]
    many = [f"docs/{number}/a.md" for number in range(200)]
    assert import_base.covering([*many, "wiki/a.md"]) == ["docs", "wiki"]
    assert import_base.covering([f"{number}.md" for number in range(200)]) == ["."]
    assert import_base.covering(["a\nb.md", "a.md"]) == ["."]
    assert import_base.covering(["../a.md", "/etc/passwd", "https://example.org/a", ""]) == []


# -- verify ----------------------------------------------------------------------------------------


def outdated(project: Project, *arguments: str, code: int = 0) -> list[str]:
    """The levels of the findings."""
    findings = project.ask("verify", *arguments, code=code)["findings"]
    assert all(each["hint"] == "vmrag import docs/setup.md --collection handbook" for each in findings)
    return [each["level"] for each in findings if each["code"] == "STALE_DOCUMENT"]


def test_verify_warns_of_a_file_that_the_pin_lags_behind_and_fails_if_it_is_told_to(project):
    assert outdated(project, "HEAD~1..HEAD") == []
    project.write(SETUP, NEW)
    assert outdated(project, "HEAD") == []  # not committed
    project.git("commit", "-qam", "uv")
    assert outdated(project, "HEAD~1..HEAD") == outdated(project, "HEAD") == ["information"]
    project.git("config", "vmrag.import.on-stale", "fail")
    assert outdated(project, "HEAD~1..HEAD", code=1) == ["error"]
    project.write("other.py", "pass")
    project.git("add", "-A")
    project.git("commit", "-qm", "code")
    assert outdated(project, "HEAD~1..HEAD") == []  # that was there before
    project.vmrag("import", "docs", "--collection", "handbook", "--copy")
    project.vmrag("commit", "-m", "uv")
    project.git("commit", "-qam", "uv")
    assert outdated(project, "HEAD") == []


def test_a_pin_that_goes_back_leaves_the_files_ahead(project):
    before = project.pinned
    project.write(SETUP, NEW)
    project.vmrag("import", "docs", "--collection", "handbook", "--copy")
    project.vmrag("commit", "-m", "uv")
    project.git("commit", "-qam", "uv")
    project.vmrag("pin", before)
    project.git("commit", "-qam", "back")
    report = project.ask("verify", "HEAD~1..HEAD")
    assert {"MOVED_BACK", "STALE_DOCUMENT"} == {each["code"] for each in report["findings"]}


def test_what_git_converts_on_checkout_is_not_compared_as_it_is_stored(project):
    project.write(".gitattributes", "*.md filter=lfs\n")
    project.write(SETUP, "version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 1\n")
    project.git("add", "-A")
    project.git("commit", "-qm", "a pointer")
    assert outdated(project, "HEAD~1..HEAD") == []


@pytest.mark.parametrize("command", [("query", "Ada's program"), ("verify", "HEAD~3..HEAD")])
def test_versions_that_take_long_to_convert_are_looked_at_for_a_bounded_time(project, monkeypatch, command):
    """A stranger's history holds as many as it likes; the document is of none of them."""
    asked = []
    convert = ConvertingProcess.convert

    def slow(self, *given):
        asked.append(given)
        time.sleep(0.2)
        return convert(self, *given)

    monkeypatch.setattr(file_changes, "HISTORY_SECONDS", 1.0)
    monkeypatch.setattr(file_changes, "TREE_SECONDS", 1.0)
    project.write("docs/table.csv", "name,age\nAda's program,36\n")
    project.vmrag("import", "docs/table.csv", "--collection", "handbook", "--copy")
    with terminal.opened(project) as ws:
        update(ws, "handbook", [DocumentUpdate("table.csv", text="Ada's program, as edited.\n")])
    project.vmrag("commit", "-m", "edited")
    for age in range(37, 49):
        project.write("docs/table.csv", f"name,age\nAda's program,{age}\n")
        project.git("add", "-A")
        project.git("commit", "-qm", "another age")
    monkeypatch.setattr(ConvertingProcess, "convert", slow)
    counts = []
    for _ in range(40):
        asked.clear()
        project.vmrag(*command)
        counts.append(len(asked))
        if len(asked) < 3:
            break
    assert max(counts) < 10, counts
    assert counts[-1] < 3, f"what was converted is remembered: {counts}"
    assert 20 < sum(counts) < 60, f"and once all are, no more is asked: {counts}"
