"""History of one document: `log DOC`, `show`, `blame`, and diffs of documents."""

from __future__ import annotations

import random
import re
import time

import pytest

from tests.support import terminal
from tests.support.engines import AUTHOR
from tests.support.long import examples
from tests.support.terminal import Project, opened
from vmrag_link.engines.base import Write
from vmrag_link.errors import VmragError
from vmrag_link.models import Collection, Document, content_hash
from vmrag_link.workspace.history.document_history import list_history
from vmrag_link.workspace.history.trail import Trail

pytestmark = pytest.mark.hooks("off")

template = terminal.template

PAGE = ["# Page", "", "one", "two", "three", "four", "five", "six"]


@pytest.fixture(scope="module")
def paged(template, tmp_path_factory):
    return terminal.derive_template(tmp_path_factory, "document-history", template, _pages)


def _pages(project: Project) -> None:
    """`page.md`: written; a line changed on `side` and one on `main`; merged; moved to
    `guide/deep/page.md` with another line; and an uncommitted line.
    """
    store(project, PAGE, "write it")
    project.git("switch", "-q", "-c", "side")
    store(project, ["# Page", "", "ONE", *PAGE[3:]], "one is ONE")
    project.git("switch", "-q", "main")
    project.vmrag("sync")
    store(project, [*PAGE[:-1], "SIX"], "six is SIX")
    project.git("merge", "-q", "--no-edit", "side")
    project.vmrag("sync")
    project.drop("page.md")
    store(project, [*MERGED, "seven"], "move it", name="deep/page.md", collection="guide")
    project.put("deep/page.md", text([*MERGED, "seven", "eight"]), collection="guide")


MERGED = ["# Page", "", "ONE", "two", "three", "four", "five", "SIX"]


def text(lines: list[str]) -> str:
    return "\n".join(lines) + "\n"


def store(project: Project, lines: list[str], message: str, *, name="page.md", collection="handbook") -> None:
    project.put(name, text(lines), collection=collection)
    project.record(message)


@pytest.fixture
def project(paged, tmp_path, monkeypatch):
    return terminal.copied(paged, tmp_path, monkeypatch)


def steps(project: Project, *arguments: str) -> list[tuple[str, str, str, str]]:
    """The first line of each message, and what happened to the document."""
    result = []
    for revision in project.ask("log", *arguments)["revisions"]:
        (document,) = revision["diff"]["documents"]
        name = f"{document['collection']}/{document['doc_id']}"
        result.append((revision["message"].splitlines()[0], document["kind"], name, document["old_name"]))
    return result


# -- log -------------------------------------------------------------------------------------------


def test_log_of_a_document_follows_its_names_and_skips_clean_merges(project):
    merge, *rest = steps(project, "guide/deep/page.md")[1:]
    moved = steps(project, "guide/deep/page.md")[0]
    assert moved == ("move it", "modified", "guide/deep/page.md", "handbook/page.md")
    assert merge[0].startswith("Merge")  # it differs from both of its parents
    assert sorted(rest[:2]) == [
        ("one is ONE", "modified", "handbook/page.md", ""),
        ("six is SIX", "modified", "handbook/page.md", ""),
    ]
    assert rest[2:] == [("write it", "added", "handbook/page.md", "")]
    assert steps(project, "deep/page.md", "-n", "2") == [moved, merge]
    shown = project.vmrag("log", "deep/page.md", "-n", "1").out
    assert "    move it  (handbook/page.md -> guide/deep/page.md)" in shown


def test_removed_document_still_has_a_log(project):
    result = steps(project, "handbook/page.md")
    assert result[0] == ("move it", "removed", "handbook/page.md", "")
    assert result[-1] == ("write it", "added", "handbook/page.md", "")
    assert steps(project, "side", "handbook/page.md")[0][0] == "one is ONE"
    assert [step[0] for step in steps(project, "side..main", "handbook/page.md")][-1] == "six is SIX"
    assert project.ask("log", "first..side", "handbook/rest.md")["revisions"] == []


def test_log_of_document_leaves_out_overridden_side_branch(project):
    """The history is simplified as in git: the merge's `rest.md` is that of the first parent."""
    assert [step[0] for step in steps(project, "handbook/rest.md")] == ["first"]


def test_graph_of_a_document_leads_from_change_to_change(project):
    lines = project.vmrag("log", "--graph", "--oneline", "deep/page.md").out.splitlines()
    graph = [re.split("[0-9a-v]{7}", line)[0].rstrip() for line in lines]
    assert graph[:3] + graph[5:] == ["*", "*", "|\\", "|/", "*"]
    assert sorted(graph[3:5]) == ["* |", "| *"]


def test_patch_of_a_document_is_of_it_alone(project):
    shown = project.vmrag("log", "-p", "-n", "1", "deep/page.md").out
    assert "M  handbook/page.md -> guide/deep/page.md" in shown
    assert "{+seven" in shown
    assert "collection" not in shown


@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        (["handbook/nope.md"], "DOCUMENT_NOT_FOUND"),
        (["main", "nope/page.md"], "COLLECTION_NOT_FOUND"),
        (["nope/page.md"], "GIT_COMMIT_NOT_FOUND"),
        (["main", "nope.md"], "DOCUMENT_NOT_FOUND"),
        (["nope", "deep/page.md"], "GIT_COMMIT_NOT_FOUND"),
        (["nope"], "GIT_COMMIT_NOT_FOUND"),
    ],
)
def test_log_of_nothing_is_an_error(project, arguments, code):
    error = project.vmrag("log", *arguments, "--json", code=3).error
    assert error["code"] == code
    assert error["hint"]
    assert project.vmrag("log", "a", "b", "c", code=2).err


def test_branch_with_a_slash_is_a_branch(project):
    project.git("branch", "topic/page.md", "side")
    assert project.ask("log", "topic/page.md")["revisions"][0]["message"] == "one is ONE"


# -- blame -----------------------------------------------------------------------------------------


def test_blame_follows_lines_through_merges_and_renames(project):
    report = project.ask("blame", "guide/deep/page.md")
    messages = {revision["revision"]: revision["message"].splitlines()[0] for revision in report["revisions"]}
    result = [(line["text"], messages.get(line["revision"], line["revision"])) for line in report["lines"]]
    assert result == [
        ("# Page", "write it"),
        ("", "write it"),
        ("ONE", "one is ONE"),
        *((line, "write it") for line in PAGE[3:-1]),
        ("SIX", "six is SIX"),
        ("seven", "move it"),
        ("eight", "WORKING"),
    ]
    assert [(line["name"], line["number"]) for line in report["lines"]][-3:] == [
        ("handbook/page.md", 8),
        ("guide/deep/page.md", 9),
        ("guide/deep/page.md", 10),
    ]
    assert len(project.ask("blame", "side:page.md")["lines"]) == 8


def test_blame_names_the_code_that_pinned_a_line_first(project):
    project.git("revert", "--no-edit", "HEAD")  # it pins the revision before once more
    lines = project.vmrag("blame", "HEAD:page.md").out.splitlines()
    six = project.git("log", "--format=%h", "--abbrev=10", "--grep=six is SIX")
    assert lines[7].split()[1:] == [six, "Ada", "Lovelace", lines[7].split()[4], "8)", "SIX"]


def test_random_history_is_blamed_line_by_line(project):
    """Each line is blamed on the revision that wrote it; three branches, merged now and then."""
    chance = random.Random(5)
    with opened(project) as ws:
        engine, base = ws.engine, ws.require_revision()
        (old,) = [collection for collection in engine.list_collections(base) if collection.name == "guide"]
        heads = [(base, ["0:0"])]
        for number in range(1, 40):
            revision, lines = chance.choice(heads[-3:])
            lines = [*lines]
            for place in sorted(chance.sample(range(len(lines) + 1), min(2, len(lines)))):
                lines.insert(place, f"{number}:{place}")
            if chance.random() < 0.3:
                del lines[chance.randrange(len(lines))]
            rows = [Document("guide", "random", "r", text(lines), content_hash(text(lines)))]
            write = Write(
                put_collections=[Collection("guide", embedding_model=old.embedding_model)], put_documents=rows
            )
            date = f"2026-01-01T00:{number:02}:00Z"
            made = engine.commit_onto(revision, [write], message=str(number), author=AUTHOR, date=date)
            heads.append((made, lines))
        revision, lines = heads[-1]
    report = project.ask("blame", f"{revision}:guide/random")
    messages = {revision["revision"]: revision["message"] for revision in report["revisions"]}
    assert [line["text"] for line in report["lines"]] == lines
    written = [messages[line["revision"]] for line in report["lines"] if line["text"] != "0:0"]
    assert written == [line.partition(":")[0] for line in lines if line != "0:0"]


def test_blame_of_thousand_lines_over_many_revisions_is_fast(project):
    chance, revisions = random.Random(1), examples(100)
    lines = [f"line {number} {chance.random()}" for number in range(1000)]
    with opened(project) as ws:
        head = ws.require_revision()
        collection = Collection("long")
        for number in range(revisions):
            for _ in range(10):
                lines[chance.randrange(1000)] = f"changed by {number} {chance.random()}"
            rows = Write(
                [collection], put_documents=[Document("long", "p", "p", text(lines), content_hash(text(lines)))]
            )
            head = ws.engine.commit_onto(head, [rows], message=f"{number}", author=AUTHOR, date="2026-01-01T00:00:00Z")
    since = time.process_time()
    report = project.ask("blame", f"{head}:long/p")
    assert time.process_time() - since < revisions / 20  # a tenth of that on a quiet machine
    messages = {revision["revision"]: revision["message"] for revision in report["revisions"]}
    for line in report["lines"]:
        if line["text"].startswith("changed"):
            assert line["text"].split()[2] == messages[line["revision"]]


def test_hostile_texts_and_messages_reach_no_terminal(project):
    project.put("evil.md", "\x1b[2Jred\u202e\n::error::x\n")
    project.vmrag("commit", "-m", "evil \x1b]0;title\x07 message\n\nsecond\rline")
    for arguments in (["blame", "evil.md"], ["log", "evil.md", "-p"], ["show"], ["log", "--graph", "--oneline", "-n1"]):
        shown = project.vmrag(*arguments).out
        assert not {"\x1b", "\x07", "\r", "\u202e"} & set(shown)
    assert "\\x1b[2Jred" in project.vmrag("blame", "evil.md").out


# -- show ------------------------------------------------------------------------------------------


def test_revision_is_shown_with_all_that_is_known_of_it(project):
    shown = project.vmrag("show", "side").out
    side = project.git("rev-parse", "--short=10", "side")
    revision = project.ask("show", "side")["revision"]
    assert shown.startswith(f"{revision} (side)  2026-")
    assert f"\n    pinned by {side} one is ONE\n\n    one is ONE\n\nM  handbook/page.md\n" in shown
    assert "    [-one-]{+ONE+}\n" in shown
    assert project.vmrag("show", "side", "--name-status").out.endswith("\n\nM\thandbook/page.md\n")
    assert project.vmrag("show").out.splitlines()[0].startswith(project.pinned)
    assert project.ask("show")["changes"] == {"added": 1, "modified": 0, "removed": 1}
    merge = project.vmrag("show", "HEAD~1").out
    assert "    merge of " in merge


def test_document_goes_before_a_revision_that_is_called_so(project):
    project.put("side", "A document.")
    assert project.vmrag("show", "side", "--raw").out == "A document."
    assert project.ask("show", "refs/heads/side")["message"] == "one is ONE"
    assert project.vmrag("show", "side", "--stat", code=2).err


# -- diffs of documents ----------------------------------------------------------------------------


def test_two_documents_are_compared_wherever_they_are(project):
    def changed(*names):
        return project.vmrag("diff", *names).out.splitlines()

    assert changed("side:page.md", "main:deep/page.md")[0] == "M  handbook/page.md -> guide/deep/page.md"
    assert "    {+eight" in "\n".join(changed("HEAD:deep/page.md"))
    assert changed("first:rest.md", "main:handbook/rest.md") == ["no documents changed"]
    report = project.ask("diff", "side:page.md", "deep/page.md", "--stat")
    (document,) = report["documents"]
    assert (document["old_name"], document["words"]) == ("handbook/page.md", {"inserted": 3, "deleted": 1, "hidden": 0})
    assert project.vmrag("diff", "side:nope.md", "--json", code=3).error["code"] == "DOCUMENT_NOT_FOUND"
    assert project.vmrag("diff", "side:page.md", "a", "b", "--json", code=2).error["code"] == "INVALID_PARAMETER"


def test_documents_behind_the_places_are_compared_alone(project):
    def names(*arguments):
        return project.vmrag("diff", "--name-only", *arguments).out.splitlines()

    assert names("first", "side") == ["handbook/faq.md", "handbook/page.md"]
    assert names("first..main", "guide/") == names("first", "main", "guide/deep") == ["guide/deep/page.md"]
    assert names("first", "handbook/faq.md") == ["handbook/faq.md"]
    assert names("side", "handbook/page.md") == ["handbook/page.md"]  # it no longer exists here
    assert names("deep/page.md") == ["guide/deep/page.md"]
    assert names("first", "--only", "*.md", "--only", "handbook") == names("first")
    assert project.vmrag("diff", "first..main", "nope.md", "--json", code=3).error["code"] == "DOCUMENT_NOT_FOUND"


def test_history_of_a_name_with_many_slashes_reads_few_histories(project, monkeypatch):
    names = []
    visits = Trail.list_visits
    monkeypatch.setattr(Trail, "list_visits", lambda trail, name: (names.append(name), visits(trail, name))[1])
    with opened(project) as ws, pytest.raises(VmragError):
        list_history(ws, ["notes" + "/x" * 2000], limit=10)
    assert 0 < len(names) < 20
