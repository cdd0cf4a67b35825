"""The Python API, as a program uses it, with real repositories."""

from __future__ import annotations

import asyncio
import dataclasses
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import msgspec
import pytest

import vmrag_link as vmrag
from tests.contract import signatures
from tests.support import terminal
from tests.support.repos import isolate
from tests.support.sources import PAGE, commit, sourced_project
from tests.support.terminal import Project
from vmrag_link.api import KnowledgeBase
from vmrag_link.errors import (
    CollectionMissing,
    DocumentMissing,
    FilterInvalid,
    GitReferenceMissing,
    GitRepositoryMissing,
    NoChanges,
    NotInitialized,
    SourceReadOnly,
    UsageInvalid,
    VmragError,
)

pytestmark = pytest.mark.hooks("off")

template, project = terminal.template, terminal.project


@pytest.fixture
def sourced(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Project:
    """A repository without a knowledge base, whose files answer."""
    isolate(monkeypatch, tmp_path / "home")
    return sourced_project(tmp_path / "sourced")


@pytest.fixture
def kb(project: Project) -> Iterator[KnowledgeBase]:
    with vmrag.open(project.top) as opened:
        yield opened


# -- search


def test_search_returns_the_results_of_the_command(project, kb):
    hits = project.ask("query", "certificates", "-k", "3")["results"]
    match = kb.search("certificates", k=3)
    assert [(row.rank, row.collection, row.doc_id, row.score) for row in match] == [
        (hit["rank"], hit["collection"], hit["doc_id"], hit["score"]) for hit in hits
    ]
    assert match.position.revision == project.pinned
    assert match.position.in_sync
    assert not match.notes


def test_search_in_files_returns_places(sourced):
    kb = vmrag.open(sourced.top)
    best = kb.search("f", k=1, symbol="f")[0]
    assert (best.name, best.path, best.lines, best.symbol) == ("src/a.py", "src/a.py", (1, 2), "f")
    assert best.place == "src/a.py:1-2"
    assert best.commit == sourced.git("rev-parse", "HEAD")
    assert not best.revision
    assert best.text == "def f():\n    pass"
    assert kb.search("three", k=1, path="docs/")[0].text.splitlines() == PAGE.splitlines()
    kb.close()


@pytest.mark.parametrize(
    ("options", "names"),
    [
        ({"path": "src/"}, {"src/a.py"}),
        ({"collection": "code"}, {"src/a.py"}),
        ({"collection": ["code", "docs"]}, {"src/a.py", "docs/page.md", "README.md"}),
        ({"lang": "python"}, {"src/a.py"}),
        ({"kind": ["function"]}, {"src/a.py"}),
        ({"symbol": "nothing"}, set()),
        ({"where_document": {"$contains": "three"}}, {"docs/page.md"}),
        ({"path": ["src/", "/README"]}, {"src/a.py", "README.md"}),
    ],
)
def test_search_narrows_by_options(sourced, options, names):
    with vmrag.open(sourced.top) as kb:
        assert {row.name for row in kb.search("page", k=9, **options)} == names


def test_search_fills_a_budget_of_tokens(project, kb):
    report = project.ask("query", "install", "--budget", "100")
    everything = kb.search("install", max_tokens=100)
    assert [row.text for row in everything] == [row["text"] for row in report["passages"]]
    packed = kb.search("install", max_tokens=40)
    assert sum(row.tokens for row in packed) <= 40
    assert packed.left_out == len(everything) - len(packed) > 0


def test_search_at_a_ref_answers_from_its_pin(project, kb):
    at = kb.search("uv", k=1, at="feature")
    assert at[0].doc_id == "uv.md"
    assert at.position.revision == project.ask("fingerprint", "--at", "feature")["revision"]
    assert "uv.md" not in {row.doc_id for row in kb.search("uv", k=9)}
    with vmrag.open(project.top, at="feature") as feature:
        assert feature.search("uv", k=1).to_dict() == at.to_dict()
        assert feature.get("handbook/uv.md").text == "Use uv."
        assert feature.fingerprint() == kb.fingerprint(at="feature") != kb.fingerprint()


@pytest.mark.parametrize(
    ("options", "error"),
    [
        ({"text": " "}, UsageInvalid),
        ({"text": "x", "mode": "fuzzy"}, UsageInvalid),
        ({"text": "x", "k": 0}, UsageInvalid),
        ({"text": "x", "max_tokens": -1}, UsageInvalid),
        ({"text": "x", "lang": "klingon"}, UsageInvalid),
        ({"text": "x", "collection": "nowhere"}, CollectionMissing),
        ({"text": "x", "where": {"$no": 1}}, FilterInvalid),
        ({"text": "x", "at": "nowhere"}, GitReferenceMissing),
        ({"text": "x", "at": "--all"}, GitReferenceMissing),
    ],
)
def test_search_raises_errors_with_hints(kb, options, error):
    with pytest.raises(error) as raised:
        kb.search(**options)
    assert raised.value.hint


# -- position


def test_search_answers_from_the_opened_commit_until_refresh(sourced):
    first = sourced.git("rev-parse", "HEAD")
    kb = vmrag.open(sourced.top)
    unsearched = vmrag.open(sourced.top)
    assert kb.search("page", k=1)[0].commit == first
    second = commit(sourced, "change", **{"docs/page.md": "# Other\n\nfive\n", "src/b.py": "def g():\n    pass\n"})
    for opened in (kb, unsearched):
        assert {row.commit for row in opened.search("g", k=9)} == {first}
        assert opened.get("docs/page.md").text == PAGE
        assert opened.grep("five").count == 0
        with pytest.raises(DocumentMissing):
            opened.get("src/b.py")
        opened.refresh()
        assert {row.commit for row in opened.search("g", k=9)} == {second}
        assert opened.get("docs/page.md").text == "# Other\n\nfive\n"
        assert opened.grep("five").count == 1
        opened.close()


def test_open_with_follow_looks_at_each_call(project):
    with vmrag.open(project.top, follow=True) as following, vmrag.open(project.top) as held:
        before = [row.doc_id for row in held.search("uv", k=9)]
        assert "uv.md" not in before
        project.git("switch", "-q", "feature")
        assert following.search("uv", k=1)[0].doc_id == "uv.md"
        assert [row.doc_id for row in held.search("uv", k=9)] == before
        project.put("late.md", "Late words about uv.")
        assert "late.md" in {row.doc_id for row in following.search("Late words", k=9)}
        assert following.position.dirty


def test_first_document_after_a_switch_is_that_of_the_new_commit(project):
    project.write("docs/place.md", "# Here\n")
    project.git("add", "docs/place.md")
    project.git("commit", "-q", "-m", "place")
    with vmrag.open(project.top, follow=True) as following:
        assert following.get("docs/place.md").text == "# Here\n"
        project.write("docs/place.md", "# Elsewhere\n")
        project.git("commit", "-q", "-am", "elsewhere")
        assert following.get("docs/place.md").text == "# Elsewhere\n"


def test_search_finds_uncommitted_documents_and_lets_others_write(project):
    project.put("draft.md", "A draft about lanterns.")
    with vmrag.open(project.top) as kb:
        assert kb.search("lanterns", k=1)[0].doc_id == "draft.md"
        project.put("second.md", "A second draft about lanterns.")
        assert "second.md" in {row.doc_id for row in kb.search("lanterns", k=9)}


def test_search_rebuilds_a_damaged_index(project, kb):
    expected = kb.search("certificates").to_dict()
    kb.close()
    for file in (project.shared / "segments").rglob("vectors-*"):
        file.write_bytes(b"")
    kb.refresh()
    assert kb.search("certificates").to_dict() == expected


# -- documents


def test_get_returns_files_and_stored_documents(project, kb, sourced):
    stored = kb.get("handbook/faq.md")
    assert (stored.collection, stored.doc_id, stored.text) == ("handbook", "faq.md", "A frequent question.")
    assert stored.version == project.pinned
    with vmrag.open(sourced.top) as files:
        page = files.get("docs/page.md")
        assert (page.text, page.version) == (PAGE, sourced.git("rev-parse", "HEAD"))
        assert str(page) == PAGE
    for name in ("handbook/none.md", "feature"):
        with pytest.raises(DocumentMissing) as raised:
            kb.get(name)
        assert raised.value.hint


def test_grep_returns_lines_with_context(sourced):
    with vmrag.open(sourced.top) as kb:
        result = kb.grep("^two$", context=1)
        assert [(row.name, row.line, row.text, row.matched) for row in result] == [
            ("docs/page.md", 3 + number, text, text == "two") for number, text in enumerate(["one", "two", "three"])
        ]
        assert kb.grep("o", path="docs/", limit=1).count == 3
        assert len(kb.grep("o", path="docs/", limit=1)) == 1
        assert kb.grep("(", fixed=True, path="src/").lines[0].name == "src/a.py"
        with pytest.raises(UsageInvalid):
            kb.grep("(")


def test_list_marks_uncommitted_documents(project, kb):
    project.put("draft.md", "A draft.")
    rows = {row.name: row for row in kb.list(collection="handbook")}
    assert rows["handbook/draft.md"].uncommitted == "added"
    assert rows["handbook/faq.md"].uncommitted is None
    assert [row.name for row in kb.list()] == [row["name"] for row in project.ask("list")["documents"]]


def test_diff_returns_changed_documents(project, kb, sourced):
    result = kb.diff("main", "feature")
    report = project.ask("diff", "main", "feature")
    assert [(row.kind, row.collection, row.doc_id) for row in result] == [
        (row["kind"], row["collection"], row["doc_id"]) for row in report["documents"]
    ]
    assert {row.doc_id for row in kb.diff("main", "feature", only="handbook/uv.md")} == {"uv.md"}
    commit(sourced, "change", **{"docs/page.md": PAGE.replace("two", "2"), "src/a.py": "def g():\n    pass\n"})
    with vmrag.open(sourced.top) as files:
        (change,) = files.diff("HEAD~1", "HEAD")
        assert (change.name, change.inserted, change.deleted) == ("docs/page.md", 1, 1)
        assert "[-two-]{+2+}" in change.text
        assert files.diff("HEAD~1", "HEAD").files[0].modified == 1
        assert {row.name for row in files.diff("HEAD~1", "HEAD", code=True)} == {"docs/page.md", "src/a.py"}
        assert len(files.diff()) == 0


def test_history_returns_versions(project, kb, sourced):
    first = sourced.git("rev-parse", "HEAD")
    second = commit(sourced, "change the page", **{"docs/page.md": "# Other\n"})
    with vmrag.open(sourced.top) as files:
        versions = files.history("docs/page.md")
        assert [(row.version, row.kind) for row in versions] == [(second, "modified"), (first, "added")]
        assert versions[0].message.strip() == "change the page"
        assert [row.version for row in files.history("docs/page.md", at=first)] == [first]
    (stored,) = kb.history("handbook/faq.md")
    assert stored.kind == "added"
    assert stored.commits
    with pytest.raises(DocumentMissing):
        kb.history("handbook/never.md")


# -- write


def test_writing_needs_write(kb):
    for write in (lambda: kb.add("text"), lambda: kb.remove("handbook/faq.md"), lambda: kb.commit("message")):
        with pytest.raises(UsageInvalid) as raised:
            write()
        assert "write=True" in raised.value.hint


def test_add_commit_and_remove_stored_documents(project):
    with vmrag.open(project.top, write=True) as kb:
        added = kb.add("# Lanterns\n\nAbout lanterns.", collection="handbook", id="lanterns.md", metadata={"team": "a"})
        assert (added.name, added.kind) == ("handbook/lanterns.md", "added")
        best = kb.search("lanterns", k=1)[0]
        assert (best.doc_id, best.metadata["team"]) == ("lanterns.md", "a")
        made = kb.commit("Add lanterns", git=True)
        assert (made.added, made.modified, made.removed, made.pinned) == (1, 0, 0, True)
        assert made.revision == project.pinned == kb.position.revision
        assert made.commit == project.git("rev-parse", "HEAD")
        assert kb.remove("lanterns.md", collection="handbook").names == ("handbook/lanterns.md",)
        assert kb.commit("Remove lanterns").removed == 1
        with pytest.raises(NoChanges):
            kb.commit("Nothing")
        with pytest.raises(UsageInvalid):
            kb.add("text", collection="handbook")


def test_add_writes_notes(sourced):
    sourced.vmrag("sources", "add", "--write")
    sourced.git("add", "-A")
    sourced.git("commit", "-q", "-m", "notes")
    with vmrag.open(sourced.top, write=True) as kb:
        note = kb.add("# Use lanterns\n\nThey are bright.\n", commit=True)
        assert (sourced.top / note.path).read_text().endswith("They are bright.\n")
        assert note.commit == sourced.git("rev-parse", "HEAD")
        assert kb.search("bright lanterns", k=1)[0].doc_id == note.doc_id
        more = kb.add("And warm.\n", id=note.doc_id, existing="append")
        assert more.kind == "modified"
        assert kb.get(note.name).text.endswith("They are bright.\nAnd warm.\n")
        assert kb.remove(note.name).names == (note.name,)
        with pytest.raises(SourceReadOnly) as raised:
            kb.remove("src/a.py")
        assert raised.value.hint.startswith("run 'git rm src/a.py")
        with pytest.raises(CollectionMissing):
            kb.remove("lamps/a.py")


def test_add_raises_without_a_place_for_it(sourced):
    with vmrag.open(sourced.top, write=True) as kb:
        with pytest.raises(UsageInvalid):
            kb.add("text")
        with pytest.raises(NotInitialized):
            kb.commit("message")


# -- programs


def test_threads_share_a_knowledge_base(project, kb):
    queries = ["install", "certificates", "A frequent question", "uv"] * 8
    expected = {query: kb.search(query).to_dict() for query in queries}
    kb.close()  # the first thread opens the index, others use it

    def ask(query: str) -> bool:
        assert kb.get("handbook/faq.md").text == "A frequent question."
        return kb.search(query).to_dict() == expected[query] and kb.grep("frequent").count > 0

    with ThreadPoolExecutor(6) as pool:
        assert all(pool.map(ask, queries))

    async def gather() -> list[vmrag.api.SearchResults]:
        return await asyncio.gather(*(asyncio.to_thread(kb.search, query) for query in queries[:4]))

    assert [row.to_dict() for row in asyncio.run(gather())] == [expected[query] for query in queries[:4]]


def test_refresh_in_one_thread_leaves_searches_in_others_whole(project, kb):
    expected = kb.search("certificates").to_dict()

    def ask(number: int) -> bool:
        if number % 5 == 0:
            kb.refresh()
        return kb.search("certificates").to_dict() == expected

    with ThreadPoolExecutor(4) as pool:
        assert all(pool.map(ask, range(40)))


def test_results_are_frozen_and_print(sourced):
    with vmrag.open(sourced.top) as kb:
        match = kb.search("f", symbol="f")
        shown = str(match)
        assert shown.splitlines()[0].startswith("src/a.py:1-2  f  (")
        assert shown.splitlines()[1:3] == ["  def f():", "      pass"]
        with pytest.raises(AttributeError):
            match[0].text = "other"
        assert msgspec.json.decode(msgspec.json.encode(match.to_dict()))["passages"][0]["lines"] == [1, 2]
        assert str(sourced.top) in repr(kb)
    for result in (kb.position, kb.diff(), kb.grep("three"), kb.list()[0], kb.history("docs/page.md")[0]):
        assert str(result)
        assert isinstance(result.to_dict(), dict)
        assert not dataclasses.is_dataclass(result)
    kb.close()


def test_traceback_shows_the_hint(sourced):
    program = f"import vmrag_link as vmrag; vmrag.open({str(sourced.top)!r}).search('lanterns', at='v9')"
    result = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert result.returncode == 1
    message, hint = result.stderr.splitlines()[-2:]
    assert message.startswith("vmrag_link.errors.GitReferenceMissing:")
    assert hint.startswith("hint: run 'git fetch")


def test_open_raises_outside_of_a_repository(tmp_path):
    with pytest.raises(GitRepositoryMissing) as raised:
        vmrag.open(tmp_path)
    assert raised.value.hint
    assert isinstance(raised.value, VmragError)


def test_importing_the_package_imports_no_api():
    program = "import sys, vmrag_link; print([name for name in sys.modules if name.startswith('vmrag_link.')])"
    result = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert result.stdout.strip() == "[]"


def test_public_signatures_hold():
    assert "".join(f"{line}\n" for line in signatures.list_signatures()) == signatures.FILE.read_text(), (
        "python -m tests.contract.signatures"
    )
