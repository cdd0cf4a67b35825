"""Documents of sources in reports, in `status`, in golden queries, in tests of a project, and what
is exported.
"""

from __future__ import annotations

import re
import resource
import shutil
import subprocess
import sys
import time

import pytest

from tests.support import sources
from tests.support.repos import isolate
from tests.support.sources import change, commit
from tests.support.terminal import Project
from vmrag_link.code import languages
from vmrag_link.code.cutting import cut_code

pytestmark = pytest.mark.hooks("off")

QUERIES = "queries:\n  - query: three four\n    expect: [docs/docs/page.md]\n"


@pytest.fixture
def project(tmp_path, monkeypatch) -> Project:
    """Without a knowledge base."""
    isolate(monkeypatch, tmp_path / "home")
    made = sources.sourced_project(tmp_path / "work")
    commit(made, "queries", **{".vmrag/queries.yaml": QUERIES})
    return made


@pytest.fixture
def stocked(project) -> Project:
    """With a knowledge base, in which `notes/note.md` is."""
    project.vmrag("init", "--knowledge-base", "--no-sources", "--no-hooks")
    project.put("note.md", "stored text\n", collection="notes")
    project.vmrag("commit", "-m", "note")
    commit(project, "with a note")
    return project


# -- reports


def test_report_of_files_alone_needs_no_knowledge_base(project, tmp_path):
    change(project, "docs/page.md", "two", "TWO")
    change(project, "src/a.py", "pass", "return 1")
    commit(project, "change both")
    result = project.vmrag("report", "HEAD~1", "--html", str(tmp_path / "r.html"), "--markdown", str(tmp_path / "r.md"))
    assert "HEAD changes 1 document in 1 collection.\n1 file of code also differs.\n" in result.out
    assert " M  docs/page.md (file) | +1 -1\n    code: 1 file of code\n" in result.out
    assert "Only files of the code" in (tmp_path / "r.html").read_text()
    assert '<span class="badge plain">file</span>' in (tmp_path / "r.html").read_text()
    assert "docs/page.md (file)" in (tmp_path / "r.md").read_text()
    report = project.ask("report", "HEAD~1")
    assert [(document["kind"], document["file"]) for document in report["documents"]] == [("changed", "docs/page.md")]
    assert report["summary"]["files"] == [{"collection": "code", "added": 0, "modified": 1, "removed": 0}]
    assert report["summary"]["head"]["revision"] is None


def test_report_shows_files_with_stored_documents_and_moves(stocked):
    (stocked.top / "docs/deep").mkdir()
    stocked.git("mv", "docs/page.md", "docs/deep/page.md")
    stocked.put("note.md", "stored words\n", collection="notes")
    stocked.vmrag("commit", "-m", "other words")
    commit(stocked, "move and write")
    shown = {document["doc_id"]: document for document in stocked.ask("report", "HEAD~1")["documents"]}
    moved, note = shown["docs/deep/page.md"], shown["note.md"]
    assert (moved["kind"], moved["old_doc_id"], moved["file"], moved["fields"]) == (
        "moved",
        "docs/page.md",
        "docs/deep/page.md",
        [],
    )
    assert (note["kind"], note["file"]) == ("changed", "")


def test_golden_queries_are_compared_with_a_base_that_pins_nothing(stocked):
    change(stocked, "docs/page.md", "three\nfour", "3\n4")
    commit(stocked, "numbers")
    queries = stocked.ask("report", "HEAD~2")["summary"]["queries"]
    assert (queries["total"], queries["not_compared"], len(queries["changed"])) == (1, "", 1)


# -- status


def test_status_counts_files_and_how_they_differ_from_head(project):
    change(project, "docs/page.md", "two", "TWO")
    (project.top / "README.md").unlink()
    (project.top / "docs/new.md").write_text("new\n")
    shown = project.vmrag("status").out
    assert "  files      2 files in 2 sources, 1 edited, 1 removed, 1 untracked and not searched\n" in shown
    sources = project.ask("status")["sources"]
    assert sources["collections"] == [
        {"collection": "docs", "kind": "document", "files": 1},
        {"collection": "code", "kind": "code", "files": 1},
    ]
    assert (sources["uncommitted"], sources["removed"], sources["untracked"]) == (
        ["docs/docs/page.md"],
        ["README.md"],
        1,
    )


def test_status_builds_no_index_of_files(project):
    project.vmrag("status")
    assert not (project.shared / "sources").exists()


def test_status_names_unsearchable_collections(stocked):
    stocked.put("a.md", "text\n", collection="other")
    stocked.vmrag("commit", "-m", "other")
    settings = (stocked.top / ".vmrag.yaml").read_text()
    (stocked.top / ".vmrag.yaml").write_text(f"{settings}  - collection: other\n    paths: [other/]\n")
    sources = stocked.ask("status", code=None)["sources"]
    assert sources["unavailable"] == {"other": "the knowledge base stores a collection of that name"}
    assert "could not read other: the knowledge base stores" in stocked.vmrag("status", code=None).out


def test_status_without_sources_does_not_mention_them(project):
    commit(project, "none", **{".vmrag.yaml": "embedding:\n  model: hash\n"})
    assert project.ask("status")["sources"] is None


# -- golden queries, and tests of the project


def test_golden_queries_ask_files_without_a_knowledge_base(project):
    assert project.vmrag("check").out.startswith("1 query answered as expected, from commit ")
    (project.top / ".vmrag/queries.yaml").write_text(QUERIES.replace("page.md", "pages.md"))
    missed = project.vmrag("check", code=1)
    assert "no such document; did you mean docs/page.md?" in missed.out


def test_golden_queries_ask_both_kinds(stocked):
    (stocked.top / ".vmrag/queries.yaml").write_text(f"{QUERIES}  - query: stored text\n    first: notes/note.md\n")
    assert stocked.vmrag("check").out.startswith("2 queries answered as expected")


def test_answer_since_a_commit_names_the_commits_of_files(project):
    change(project, "docs/page.md", "two", "TWO")
    commit(project, "louder")
    change(project, "docs/page.md", "one", "ONE")
    report = project.ask("query", "three four", "--since", "HEAD~1")
    (document,) = report["documents"]
    assert (document["document"], document["kind"], document["uncommitted"]) == ("docs/docs/page.md", "modified", True)
    assert [commit["message"] for commit in document["commits"]] == ["louder"]
    assert report["commit"] == project.git("rev-parse", "HEAD~1")
    shown = project.vmrag("query", "three four", "--since", "HEAD~1").out
    assert shown.startswith(f"Since HEAD~1 ({report['commit'][:7]}), the answer is the same:")


def test_answer_since_a_commit_names_revision_and_commit(stocked):
    report = stocked.ask("query", "three four", "--since", "HEAD")
    place = f"{report['since'][:7]} and the files of {stocked.git('rev-parse', 'HEAD')[:7]}"
    assert report["since"]
    assert stocked.vmrag("query", "three four", "--since", "HEAD").out.startswith(f"Since HEAD ({place}), the answer")


TEST = """\
import pytest


def test_of_the_work_tree(kb):
    assert kb.query("three four")[0].doc_id == "docs/page.md"
    assert "ONE" in kb.document("docs/docs/page.md").content
    assert kb.revision == REVISION
    assert kb.fingerprint


@pytest.mark.kb_at("HEAD")
def test_of_a_commit(kb):
    assert "one" in kb.document("docs/docs/page.md").content
    assert kb.query("three four")[0].doc_id == "docs/page.md"
    assert kb.revision == REVISION
"""


@pytest.mark.parametrize("stored", [False, True])
@pytest.mark.sample(1)
def test_tests_of_a_project_ask_files(request, stored):
    project = request.getfixturevalue("stocked" if stored else "project")
    change(project, "docs/page.md", "one", "ONE")
    revision = project.pinned if stored else ""
    (project.top / "test_kb.py").write_text(TEST.replace("REVISION", repr(revision)))
    arguments = ("-q", "-p", "no:cacheprovider", "-p", "no:xdist", "test_kb.py", ".vmrag/queries.yaml")
    result = subprocess.run(
        [sys.executable, "-m", "pytest", *arguments], cwd=project.top, capture_output=True, text=True, check=False
    )
    assert "3 passed" in result.stdout, result.stdout


# -- export


def test_export_leaves_out_files_of_sources_with_a_note(stocked, tmp_path):
    out = stocked.vmrag("export", str(tmp_path / "out")).out
    assert "Not written, because they are files of the repository already: docs and code.\n" in out
    assert sorted(path.name for path in (tmp_path / "out").rglob("*.md")) == ["note.md"]
    refused = stocked.vmrag("export", str(tmp_path / "out"), "--collection", "docs", code=2)
    assert "these documents are files of the repository" in refused.err


# -- texts that cost a parser much


def costly(size: int, number: int = 0) -> str:
    """C# that its parser recovers from again and again: a millisecond for twenty characters."""
    lines = ["a::" * 100] * (size // 300)
    return "\n".join([f"// {number}", *lines]) + "\n"


def child_seconds() -> float:
    return resource.getrusage(resource.RUSAGE_CHILDREN).ru_utime


def test_query_cuts_equal_blobs_once(project):
    before = time.process_time()
    cut_code(costly(24_000), "c_sharp", 1500)
    once = time.process_time() - before
    commit(project, "copies", **{f"src/{number}.cs": costly(24_000) for number in range(8)})
    before = child_seconds()
    answer = project.ask("query", "a", "--collection", "code", "-k", "50")
    assert child_seconds() - before < 3 * once + 1
    assert {hit["doc_id"] for hit in answer["results"]} >= {f"src/{number}.cs" for number in range(8)}


@pytest.mark.parametrize("at", [(), ("--at", "HEAD")], ids=["work tree", "commit"])
@pytest.mark.sample(1)
def test_query_reports_files_beyond_budget_and_indexes_them_later(project, monkeypatch, at):
    names = {f"src/{number}.cs" for number in range(4)}
    commit(project, "costly", **{f"src/{number}.cs": costly(15_000, number) for number in range(4)})
    monkeypatch.setattr(languages, "ANSWER_SECONDS", 0.1)
    command = ("query", "a", "--collection", "code", "--mode", "keyword", "-k", "500", *at)
    answered, percents = [], []
    for _ in range(4):
        ended = project.vmrag(*command)
        answered.append({hit["doc_id"] for hit in project.ask(*command)["results"]} & names)
        percents += [
            int(percent) for percent in re.findall(r"indexing: (\d+) % of the files answer", ended.out + ended.err)
        ]
    assert percents
    assert percents == sorted(percents)
    assert percents[-1] < 100
    assert answered[0] < answered[-1] == names
    assert "indexing:" not in project.vmrag(*command).err
    partly = project.ask(*command)["results"]
    shutil.rmtree(project.shared)
    monkeypatch.undo()
    assert project.ask(*command)["results"] == partly


def test_golden_queries_need_all_files(project, monkeypatch):
    commit(project, "costly", **{f"src/{number}.cs": costly(15_000, number) for number in range(4)})
    monkeypatch.setattr(languages, "ANSWER_SECONDS", 0.1)
    error = project.vmrag("check", "--json", code=1).error
    assert error["code"] == "NOT_COMPARABLE"
