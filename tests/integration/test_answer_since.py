"""`vmrag query TEXT --since REF`: how an answer has changed, and what changed it."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support import terminal
from tests.support.terminal import Project, copied, derive_template

template, project = terminal.template, terminal.project


@pytest.fixture(scope="session")
def two_tags(template: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return derive_template(tmp_path_factory, "two-tags", template, _write)


def _write(project: Project) -> None:
    project.write("docs/a.md", "# Retries\n\nRequests are retried three times.\n")
    project.write("docs/b.md", "# Cache\n\nThe cache keeps answers for one hour.\n")
    project.write("docs/far.md", "# Colours\n\nGreen and blue.\n")
    commit(project, "first", "v1")
    project.write("docs/a.md", "# Retries\n\nRequests are retried four times.\n")
    commit(project, "four")
    project.write("docs/a.md", "# Retries\n\nRequests are retried five times.\n")
    project.write("docs/c.md", "# Limits\n\nRequests beyond the limit are retried later.\n")
    commit(project, "five and limits", "v2")


@pytest.fixture
def history(two_tags: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Project:
    """Two commits of code, tagged v1 and v2; between them `a` was edited twice and `c` added."""
    return copied(two_tags, tmp_path, monkeypatch)


def commit(project: Project, message: str, tag: str = "") -> None:
    project.vmrag("import", "docs", "--collection", "docs", "--copy")
    project.vmrag("commit", "-m", message)
    project.git("add", "-A")
    project.git("commit", "-q", "-m", message)
    if tag:
        project.git("tag", tag)


def asked(project: Project, *words: str) -> dict:
    return project.ask("query", "how often are requests retried", *words)


def test_query_since_lists_moved_documents_and_their_revisions(history):
    report = asked(history, "--since", "v1")
    changes = {change["document"]: (change["rank_before"], change["rank_after"]) for change in report["changes"]}
    assert changes["docs/docs/c.md"][0] is None
    assert changes["docs/docs/c.md"][1] is not None
    documents = {document["document"]: document for document in report["documents"]}
    assert {name: document["kind"] for name, document in documents.items()} == {
        "docs/docs/a.md": "modified",
        "docs/docs/c.md": "added",
    }
    assert [revision["message"].strip() for revision in documents["docs/docs/a.md"]["revisions"]] == [
        "five and limits",
        "four",
    ]
    assert [revision["message"].strip() for revision in documents["docs/docs/c.md"]["revisions"]] == ["five and limits"]
    assert not any(document["uncommitted"] for document in documents.values())
    assert report["revision"] != report["since"]


def test_answers_are_those_that_both_places_give(history):
    report = asked(history, "--since", "v1")
    for place, answers in (("v1", report["before"]), ("v2", report["after"])):
        given = asked(history, "--at", place)["results"]
        assert [(answer["document"], answer["chunk"], answer["score"]) for answer in answers] == [
            (f"{document['collection']}/{document['doc_id']}", document["chunk"], document["score"])
            for document in given
        ]


def test_query_since_the_current_commit_reports_no_change(history):
    report = asked(history, "--since", "v2")
    assert report["documents"] == []
    assert report["before"] == report["after"]
    shown = history.vmrag("query", "how often are requests retried", "--since", "v2").out
    assert "the answer is the same" in shown


def test_query_since_marks_uncommitted_documents(history):
    history.write("docs/a.md", "# Retries\n\nRequests are retried without end.\n")
    history.vmrag("import", "docs", "--collection", "docs", "--copy")
    report = asked(history, "--since", "v2")
    [changed] = report["documents"]
    assert (changed["document"], changed["kind"], changed["uncommitted"]) == ("docs/docs/a.md", "modified", True)
    assert changed["revisions"] == []
    assert "uncommitted" in history.vmrag("query", "how often are requests retried", "--since", "v2").out


def test_removed_document_is_listed_with_its_revisions_since_older_tag(history):
    (history.top / "docs/a.md").unlink()
    history.vmrag("rm", "docs/docs/a.md")
    history.vmrag("commit", "-m", "no retries")
    history.git("add", "-A")
    history.git("commit", "-q", "-m", "no retries")
    report = asked(history, "--since", "v2")
    changed = {document["document"]: document for document in report["documents"]}["docs/docs/a.md"]
    assert changed["kind"] == "removed"
    assert [revision["message"].strip() for revision in changed["revisions"]] == ["no retries"]


@pytest.mark.parametrize("other", [["--at", "v1"], ["--full"], ["-U", "2"], ["--open"]])
def test_query_since_rejects_options_for_one_answer(history, other):
    result = history.vmrag("query", "retries", "--since", "v1", *other, code=None)
    assert result.code == 2
    assert "--since compares two answers" in result.err


def test_ref_without_a_pin_is_refused_with_its_name(history):
    history.git("checkout", "-q", "--orphan", "bare")
    history.git("rm", "-rq", "--cached", ".")
    history.git("commit", "-q", "--allow-empty", "-m", "bare")
    history.git("checkout", "-qf", "main")
    result = history.vmrag("query", "retries", "--since", "bare", code=None)
    assert result.code != 0
    assert "bare" in result.err
