"""`vmrag diff`, `log` and `show`, and the places in the knowledge base that they take."""

from __future__ import annotations

import json
import re
import subprocess
import time

import msgspec
import pytest

from tests.support import terminal
from tests.support.pace import slack
from tests.support.terminal import on_a_terminal, opened
from vmrag_link import hints
from vmrag_link.engines.base import Write
from vmrag_link.errors import GitReferenceMissing, PinMissing
from vmrag_link.workspace.history import revparse
from vmrag_link.workspace.history.compare import compare_places

pytestmark = pytest.mark.hooks("off")

template, project = terminal.template, terminal.project


def rejoined(pieces, *ops):
    return "".join(piece["text"] for piece in pieces if piece["op"] in ops)


# -- diff ------------------------------------------------------------------------------------------


def test_changed_text_is_shown_word_by_word(project):
    assert project.vmrag("diff", "main", "feature").out.splitlines() == [
        "D  handbook/deep/tls.txt",
        "D  handbook/faq.md",
        "M  handbook/rest.md",
        "    source: [-docs/rest.md-]",
        "    file_type: [-markdown-]{+text+}",
        "    # Rest",
        "",
        "    [-Take a-]{+Never+} rest[-, and sleep well-].",
        "A  handbook/uv.md",
        "1 document added, 1 modified, 2 removed",
    ]


def test_reversed_diff_reverses_everything(project):
    report, back = project.ask("diff", "main", "feature"), project.ask("diff", "feature", "main")
    assert (report["old"], report["new"]) == (back["new"], back["old"])
    assert report["words"] == {"inserted": back["words"]["deleted"], "deleted": back["words"]["inserted"], "hidden": 0}
    (changed,) = [document for document in report["documents"] if document["kind"] == "modified"]
    assert rejoined(changed["text"], "equal", "delete") == terminal.DOCUMENTS["rest.md"]
    assert rejoined(changed["text"], "equal", "insert") == "# Rest\n\nNever rest.\n"
    assert changed["fields"][0] == {"name": "source", "before": "docs/rest.md", "after": ""}


def test_equal_text_far_from_a_change_is_left_out(project):
    text = " ".join(f"word{number}" for number in range(1000))
    project.record("long", long=text)
    project.put("long.md", text.replace("word500", "other"))
    (line,) = [line for line in project.vmrag("diff").out.splitlines() if "other" in line]
    assert line.startswith("    … word488 ")
    assert " word499 [-word500-]{+other+} word501 " in line
    assert line.endswith(" word512 …")
    (document,) = project.ask("diff")["documents"]
    assert [piece["op"] for piece in document["text"]] == ["omitted", "equal", "delete", "insert", "equal", "omitted"]
    assert document["words"] == {"inserted": 1, "deleted": 1, "hidden": 0}


def test_stat_counts_words_and_their_sum(project):
    assert project.vmrag("diff", "main", "feature", "--stat").out.splitlines() == [
        "D  handbook/deep/tls.txt | +0 -7",
        "D  handbook/faq.md       | +0 -3",
        "M  handbook/rest.md      | +1 -6",
        "A  handbook/uv.md        | +2 -0",
        "1 document added, 1 modified, 2 removed; 3 words inserted(+), 16 deleted(-)",
    ]
    assert project.vmrag("diff", "main", "main", "--stat").out == "no documents changed\n"
    report = project.ask("diff", "main", "feature", "--stat")
    assert report["words"] == {"inserted": 3, "deleted": 16, "hidden": 0}
    assert [document["text"] for document in report["documents"]] == [[], [], [], []]


def test_names_alone_are_one_a_line(project):
    names = "handbook/deep/tls.txt\nhandbook/faq.md\nhandbook/rest.md\nhandbook/uv.md\n"
    assert project.vmrag("diff", "main", "feature", "--name-only").out == names
    assert project.vmrag("diff", "--name-only").out == ""


def test_diff_can_be_of_one_collection_or_document(project):
    project.put("rest.md", "Another.", collection="notes")
    project.put("rest.md", "Never rest.")

    def names(only):
        report = project.ask("diff", "--only", only)
        assert report["changes"]["added"] + report["changes"]["modified"] == len(report["documents"])
        return [collection["name"] for collection in report["collections"]], [
            f"{document['collection']}/{document['doc_id']}" for document in report["documents"]
        ]

    assert names("notes") == (["notes"], ["notes/rest.md"])
    assert names("handbook") == ([], ["handbook/rest.md"])
    assert names("notes/rest.md") == ([], ["notes/rest.md"])
    error = project.vmrag("diff", "--only", "nothing", "--json", code=3).error
    assert (error["code"], hints.list_commands(error["hint"])) == ("DOCUMENT_NOT_FOUND", ["vmrag list"])
    assert project.ask("diff", "main", "feature", "--only", "handbook/deep/tls.txt")["changes"]["removed"] == 1


def test_old_texts_are_read_only_for_display(project, monkeypatch):
    project.vmrag(
        "add", "docs/setup.md", "--collection", "handbook", "--copy", "--id", "setup.md", "--title", "Renamed"
    )
    project.put("faq.md", "Another answer.")
    read = []
    with opened(project) as ws:
        engine = type(ws.engine)
        real = engine.read_documents

        def documents(self, at, *, collection=None, ids=None):
            read.extend(ids if isinstance(at, str) else ())
            return real(self, at, collection=collection, ids=ids)

        monkeypatch.setattr(engine, "read_documents", documents)
        for detail, expected in (("names", []), ("stat", ["faq.md"]), ("text", ["faq.md", "setup.md"])):
            read.clear()
            report = compare_places(ws, [], detail=detail).form_report()
            assert (read, len(report.documents)) == (expected, 2)


def test_titles_metadata_and_sources_are_compared_and_equal_ones_not_shown(project):
    text = "# Setup\n\nInstall the program with pip.\n"
    project.vmrag(
        "add", "-", "--collection", "notes", "--id", "n", "--metadata", '{"team": "core", "n": 1}', stdin=text
    )
    project.vmrag("commit", "-m", "notes")
    changed = ["--title", "Start", "--metadata", '{"team": "web", "n": 1}']
    project.vmrag("add", "-", "--collection", "notes", "--id", "n", *changed, stdin=text)
    assert project.vmrag("diff").out.splitlines() == [
        "M  notes/n",
        "    title: [-Setup-]{+Start+}",
        '    metadata: {"n":1,"team":"[-core-]{+web+}"}',
        "1 document modified",
    ]
    assert project.vmrag("diff", "--stat").out.splitlines()[0] == "M  notes/n | +0 -0"


def test_collections_changed_settings_are_shown(project):
    project.put("draft.md", "A draft.")
    with opened(project) as ws:
        (collection,) = ws.engine.list_collections(ws.locate_documents())
        smaller = msgspec.structs.replace(collection, distance="l2", metadata='{"owner":"Ada"}')
        branch = ws.find_kb_branch()
        ws.engine.write(branch.name, Write(put_collections=[smaller]), expected=branch.head)
    assert project.vmrag("diff").out.splitlines()[:3] == [
        "M  handbook/ (the collection's settings)",
        '    metadata: {{+"owner":"Ada"+}}',
        "    distance: [-cosine-]{+l2+}",
    ]
    (result,) = project.ask("diff", "--name-only")["collections"]
    assert result["fields"][1] == {"name": "distance", "before": "cosine", "after": "l2"}


def test_diff_ignores_creation_time_of_a_collection(project):
    project.put("draft.md", "A draft.")
    with opened(project) as ws:
        (collection,) = ws.engine.list_collections(ws.locate_documents())
        later = msgspec.structs.replace(collection, created_at="2030-01-01T00:00:00Z")
        branch = ws.find_kb_branch()
        ws.engine.write(branch.name, Write(put_collections=[later]), expected=branch.head)
    assert project.ask("diff")["collections"] == []
    assert "settings" not in project.vmrag("diff").out


def test_terminal_adds_colours_and_nothing_else(project):
    shown = on_a_terminal(project, "diff", "main", "feature", pager="cat")
    assert "\x1b[31m[-Take a-]\x1b[0m\x1b[32m{+Never+}\x1b[0m rest" in shown
    assert re.sub(r"\x1b\[\d+m", "", shown) == project.start("diff", "main", "feature").out


# -- places ----------------------------------------------------------------------------------------


def test_name_is_a_revision_a_git_ref_or_a_kb_branch(project):
    feature = json.loads(project.git("show", "feature:.dolt-version"))["dolt_commit"]
    project.put("draft.md", "A draft.")
    with opened(project) as ws:
        assert revparse.resolve_rev(ws, feature) == feature
        assert revparse.resolve_rev(ws, "feature") == feature
        assert revparse.resolve_rev(ws, project.git("rev-parse", "--short", "feature")) == feature
        ws.engine.create_branch("only/here", feature)
        assert revparse.resolve_rev(ws, "only/here") == feature
        for name in ("nowhere", "", "\udcff", "-x", "f" * 40, "a\nb", "feature:handbook"):
            with pytest.raises(GitReferenceMissing):
                revparse.resolve_rev(ws, name)


def test_git_ref_goes_before_a_kb_branch_unless_it_pins_nothing(project):
    pinned = project.pinned
    project.git("branch", "topic")
    project.git("branch", "bare", project.git("commit-tree", "-m", "empty", project.git("mktree")))
    feature = json.loads(project.git("show", "feature:.dolt-version"))["dolt_commit"]
    with opened(project) as ws:
        ws.engine.create_branch("topic", feature)
        assert revparse.resolve_rev(ws, "topic") == pinned
        with pytest.raises(PinMissing):
            revparse.resolve_rev(ws, "bare")
        ws.engine.create_branch("bare", feature)
        assert revparse.resolve_rev(ws, "bare") == feature


def test_diff_is_between_any_two_places(project):
    project.put("draft.md", "A draft.")
    first = project.ask("log", "first")["revisions"][0]["revision"]
    with opened(project) as ws:
        ws.engine.create_branch("beginning", first)

    def names(*places):
        report = project.ask("diff", *places)
        return [(document["kind"], document["doc_id"]) for document in report["documents"]]

    assert names() == names("main") == names("main", "WORKING") == [("added", "draft.md")]
    assert names("WORKING", "main") == [("removed", "draft.md")]
    assert names("beginning") == names(first) == names("first") == [("added", "draft.md"), ("added", "faq.md")]
    assert names("WORKING", "beginning") == [("removed", "draft.md"), ("removed", "faq.md")]
    assert names("WORKING", "WORKING") == []
    project.put("faq.md", "Rewritten.")
    (faq,) = [
        document for document in project.ask("diff", "WORKING", "main")["documents"] if document["kind"] == "modified"
    ]
    assert rejoined(faq["text"], "equal", "delete") == "Rewritten."


# -- log -------------------------------------------------------------------------------------------


def test_log_names_the_commits_that_pin_each_revision(project):
    project.git("commit", "-q", "--allow-empty", "-m", "code only")
    older = project.pinned
    project.record("second Grüße\n\nlong story", note="A note.")
    project.git("revert", "--no-edit", "HEAD")  # pins the older revision once more
    rows = {revision["revision"]: revision["commits"] for revision in project.ask("log", "feature")["revisions"]}
    assert [row["subject"] for row in rows[project.ask("log", "first")["revisions"][0]["revision"]]] == ["first"]
    newest, *_ = project.ask("log")["revisions"]
    assert newest["revision"] == older
    assert [commit["subject"] for commit in newest["commits"]] == ['Revert "second Grüße"', "faq"]
    assert newest["commits"][0]["commit"] == project.git("rev-parse", "HEAD")
    shown = project.vmrag("log").out
    assert f'    pinned by {project.git("rev-parse", "HEAD")[:10]} Revert "second Grüße"\n' in shown
    assert project.ask("log", "main~1")["revisions"][0]["commits"][0]["subject"] == "second Grüße"


def test_log_tolerates_unpinned_revision_and_malformed_pin(project):
    project.put("draft.md", "A draft.")
    project.vmrag("commit", "-m", "not yet in git")
    project.git("branch", "odd", project.commit("odd", pin="<<<<<<< HEAD\n"))
    project.git("reset", "-q", "--hard", "HEAD~1")
    project.vmrag("sync")
    rows = project.ask("log", "odd~1")["revisions"]
    assert [commit["subject"] for commit in rows[0]["commits"]] == ["faq"]


def test_commit_without_a_subject_and_one_in_another_encoding_are_named(project):
    pin = (project.top / ".dolt-version").read_text()
    for message in ("", "Grüße"):
        project.commit("away", pin=None)
        project.write(".dolt-version", pin)
        project.git("add", "-f", ".dolt-version")
        with_message = ["-c", "i18n.commitEncoding=ISO-8859-1", "commit", "-q", "--allow-empty-message", "-F", "-"]
        subprocess.run(["git", *with_message], cwd=project.top, input=message.encode("latin-1"), check=True)
    newest, *_ = project.ask("log")["revisions"]
    assert [commit["subject"] for commit in newest["commits"]] == ["Grüße", "", "faq"]


def test_log_starts_at_any_place_and_leaves_anchors_out(project):
    for message in ("left behind, too", "to be left behind"):
        gone = project.record(message, note=message)
        project.git("reset", "-q", "--hard", "HEAD~1")
        project.vmrag("sync")
    assert project.ask("log", "vmrag_keep")["revisions"][0]["message"].startswith("Keep ")
    for place in ([], ["WORKING"], ["main"], ["feature"], [gone], ["HEAD"]):
        messages = [revision["message"] for revision in project.ask("log", *place)["revisions"]]
        assert "first" in messages
        assert not any(message.startswith("Keep ") for message in messages)
    newest, *_ = project.ask("log", gone)["revisions"]
    assert (newest["message"], newest["commits"]) == ("to be left behind", [])  # only the reflog has that commit


@pytest.mark.long
def test_log_of_a_long_git_history_does_not_take_seconds(project):
    """10,000 commits, of which 500 pin something."""
    pin = json.loads((project.top / ".dolt-version").read_text())
    stream = [f"reset refs/heads/long\nfrom {project.git('rev-parse', 'HEAD')}\n"]
    for number in range(10_000):
        stream.append(
            f"commit refs/heads/long\ncommitter Ada <ada@example.com> {1767323046 + number} +0000\ndata 6\n{number:06}\n"
            f"M 644 inline code.txt\ndata 6\n{number:06}\n"
        )
        if number % 20 == 0:
            revision = pin["dolt_commit"] if number % 4000 == 0 else f"{number:040x}"
            text = json.dumps(pin | {"dolt_commit": revision})
            stream.append(f"M 644 inline .dolt-version\ndata {len(text)}\n{text}\n")
    project.git("fast-import", "--quiet", stdin="".join(stream))
    since = time.monotonic()
    newest, *_ = project.ask("log", "-n", "20")["revisions"]
    assert time.monotonic() - since < 5 * slack()  # a tenth of that on a quiet machine
    assert [commit["subject"] for commit in newest["commits"]] == ["008000", "004000", "000000", "faq"]


# -- show ------------------------------------------------------------------------------------------


def test_document_is_shown_at_any_place(project):
    feature = json.loads(project.git("show", "feature:.dolt-version"))["dolt_commit"]
    with opened(project) as ws:
        ws.engine.create_branch("b/side", feature)
    project.put("rest.md", "Here.")
    assert project.vmrag("show", "handbook/rest.md", "--raw").out == "Here."
    assert project.vmrag("show", "WORKING:handbook/rest.md").out == "Here.\n"
    for place in (feature, "feature", "b/side", "refs/heads/feature", "feature^{/uv}"):
        report = project.ask("show", f"{place}:handbook/rest.md")
        assert (report["content"], report["revision"]) == ("# Rest\n\nNever rest.\n", feature)
    assert project.vmrag("show", "first:handbook/deep/tls.txt").out == terminal.DOCUMENTS["deep/tls.txt"]


def test_colon_belongs_to_the_document_unless_a_ref_precedes_it(project):
    project.put("a:b/c", "Odd.")
    project.put("a:b c/d", "A blank is in no collection's name.")
    project.put("http://example.org/page", "A page.")
    assert project.vmrag("show", "handbook/a:b/c", "--raw").out == "Odd."
    assert project.vmrag("show", "handbook/a:b c/d", "--raw").out == "A blank is in no collection's name."
    assert project.vmrag("show", "handbook/http://example.org/page", "--raw").out == "A page."
    project.git("branch", "handbook/a")
    error = project.vmrag("show", "handbook/a:b/c", "--json", code=3).error
    assert (error["code"], error["details"]["collection_name"]) == ("COLLECTION_NOT_FOUND", "b")
    assert project.vmrag("show", "WORKING:handbook/a:b/c", "--raw").out == "Odd."
    project.record("odd")
    assert project.vmrag("show", "main:handbook/a:b/c", "--raw").out == "Odd."


@pytest.mark.parametrize(
    ("name", "code", "error"),
    [
        ("handbook", 2, "INVALID_PARAMETER"),
        ("handbook/", 2, "INVALID_PARAMETER"),
        ("feature:handbook", 2, "INVALID_PARAMETER"),
        ("nowhere:handbook/rest.md", 3, "GIT_COMMIT_NOT_FOUND"),
        ("no/where:handbook/rest.md", 3, "GIT_COMMIT_NOT_FOUND"),
        ("handbook/no:where.md", 3, "DOCUMENT_NOT_FOUND"),
        ("feature:notes/rest.md", 3, "COLLECTION_NOT_FOUND"),
        ("feature:handbook/faq.md", 3, "DOCUMENT_NOT_FOUND"),
        (":handbook/rest.md", 3, "COLLECTION_NOT_FOUND"),
    ],
)
def test_show_reports_errors_with_hints(project, name, code, error):
    result = project.vmrag("show", name, "--json", code=code).error
    assert result["code"] == error
    assert result["hint"]
