"""`vmrag report`: the changes between two refs, on a terminal, as JSON, and in files."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest

from tests.support import terminal
from tests.support.terminal import SCRIPT, Project, opened
from vmrag_link.engines.base import Write
from vmrag_link.models import Collection, Document, encode_canonical_json
from vmrag_link.ops.report.ends import NamedEnd
from vmrag_link.ops.report.gather import gather_report

pytestmark = pytest.mark.hooks("off")

template, project = terminal.template, terminal.project

QUERIES = "queries:\n  - query: rest and sleep\n    mode: keyword\n    k: 1\n    expect: [handbook/rest.md]\n"
PAGE = [f"Line {number} of the page." for number in range(10)]


def report(project: Project, *places: str) -> dict:
    return project.ask("report", *places)["summary"]


def changes(project: Project, *places: str) -> dict[str, str]:
    """How each document changed, by its name; of a moved one from where."""
    return {
        f"{document['collection']}/{document['doc_id']}": document["old_doc_id"] or document["kind"]
        for document in report(project, *places)["documents"]
    }


def page(*lines: str) -> str:
    return "\n".join(lines) + "\n"


def with_queries(project: Project, ref: str, text: str, *parents: str) -> str:
    """A commit with the files of another one, and these golden queries."""
    project.git("switch", "-q", "--detach", ref)
    made = project.commit("queries", **{".vmrag/queries.yaml": text})
    project.git("switch", "-q", "main")
    tree = project.git("rev-parse", f"{made}^{{tree}}")
    return project.git(
        "commit-tree", tree, *(word for parent in parents or [ref] for word in ("-p", parent)), "-m", "q"
    )


def asked(project: Project, base: str, head: str, text: str = QUERIES, *, before: str | None = None) -> tuple[str, str]:
    """Both with golden queries: commits that stand for them, the second one behind the first."""
    start = with_queries(project, base, text if before is None else before)
    return start, with_queries(project, head, text, start, head)


# -- which places


def test_report_lists_changes_of_the_head_since_the_merge_base(project):
    result = report(project, "main", "feature")
    assert changes(project, "main", "feature") == {
        "handbook/deep/tls.txt": "removed",
        "handbook/rest.md": "changed",
        "handbook/uv.md": "added",
    }
    assert result["counts"] == {"added": 1, "changed": 1, "moved": 0, "removed": 1}
    assert result["start"]["commit"] == project.git("rev-parse", "first")
    assert (result["base"]["name"], result["head"]["name"], result["missing"]) == ("main", "feature", 1)
    assert [finding["message"] for finding in result["gained"]["shown"]] == ["uv"]
    assert result["gained"]["shown"][0]["commits"][0]["subject"] == "uv"
    assert result["lost"] == {"shown": [], "total": 0}
    assert result["size"]["documents"] == {"before": 3, "after": 3}
    said = project.vmrag("report", "main", "feature").out
    assert "Compared: the merge base" in said
    assert (
        "where feature left main, with feature. main has moved on by 1 revision, which the report leaves out." in said
    )


def test_report_compares_with_head_of_work_tree_by_default(project):
    assert changes(project, "first") == changes(project, "first", "HEAD") == {"handbook/faq.md": "added"}


def test_report_of_swapped_refs_suggests_the_other_order(project):
    said = project.vmrag("report", "main", "first").out
    assert "main contains everything of first. To see what else main contains: vmrag report first main" in said


def test_same_place_twice_changes_nothing(project):
    result = report(project, "main", "HEAD")
    assert (result["documents"], result["gained"]["total"], result["findings"]) == ([], 0, [])
    assert "HEAD changes no knowledge." in project.vmrag("report", "main").out


def test_report_accepts_revisions_and_kb_branches(project):
    first, now = (project.ask("log", ref)["revisions"][0]["revision"] for ref in ("first", "main"))
    result = report(project, first, now[:12])
    assert [document["doc_id"] for document in result["documents"]] == ["faq.md"]
    assert (result["base"]["commit"], result["verified"]) == (None, False)


def test_name_that_git_knows_is_gits(project):
    """The KB branch with that name is at another revision."""
    project.git("branch", "ahead", "first")
    project.git("switch", "-q", "ahead")
    project.put("later.md", "Later.")
    project.vmrag("commit", "-m", "later")
    project.git("checkout", "-q", "-f", "main")
    assert changes(project, "first", "ahead") == {}


def test_knowledge_that_the_head_drops_is_shown_as_gone(project):
    squashed = project.git("commit-tree", "feature^{tree}", "-p", "main", "-m", "squashed")
    result = report(project, "main", squashed)
    assert "handbook/faq.md" in changes(project, "main", squashed)
    assert [finding["message"] for finding in result["lost"]["shown"]] == ["faq"]
    assert [finding["code"] for finding in result["findings"]] == ["KNOWLEDGE_DROPPED"]
    assert "KNOWLEDGE_DROPPED" in project.vmrag("report", "main", squashed).out


def test_side_without_a_pin_has_no_documents(project):
    empty = project.git("hash-object", "-w", "-t", "tree", "/dev/null")
    without = project.git("commit-tree", empty, "-m", "before vmrag")
    begun = project.git("commit-tree", "main^{tree}", "-p", without, "-m", "begun")
    ended = project.git("commit-tree", empty, "-p", "main", "-m", "ended")
    assert set(changes(project, without, begun).values()) == {"added"}
    result = report(project, "main", ended)
    assert result["counts"] == {"added": 0, "changed": 0, "moved": 0, "removed": 4}
    assert (result["head"]["revision"], result["size"]["documents"]) == (None, {"before": 4, "after": 0})
    assert [finding["code"] for finding in result["findings"]] == ["PIN_REMOVED"]
    nothing = project.git("commit-tree", empty, "-p", without, "-m", "nothing")
    assert project.vmrag("report", without, nothing, "--json", code=None).error["code"] == "NO_PIN"


@pytest.mark.parametrize(
    ("name", "code", "hint"),
    [
        ("nowhere", "GIT_COMMIT_NOT_FOUND", "run 'vmrag branch' to list the KB branches"),
        ("WORKING", "INVALID_PARAMETER", ", or 'vmrag commit -m "),
        ("elsewhere", "PIN_MISSING_REVISION", ""),
        ("apart", "INVALID_PARAMETER", "run 'vmrag diff main apart' to compare them without a merge base"),
    ],
)
def test_incomparable_ref_is_an_error_with_the_reason(project, name: str, code: str, hint: str):
    pin = json.loads((project.top / ".dolt-version").read_text())
    project.git("switch", "-q", "-c", "elsewhere")
    project.commit("elsewhere", pin=json.dumps(pin | {"dolt_commit": "0" * len(pin["dolt_commit"])}, indent=2) + "\n")
    project.git("checkout", "-q", "-f", "main")
    project.git("branch", "apart", project.git("commit-tree", "main^{tree}", "-m", "apart"))
    error = project.vmrag("report", "main", name, "--json", code=None).error
    assert error["code"] == code, error
    assert hint in error["hint"]


def test_shallow_clone_cannot_find_the_merge_base(project):
    tips = project.git("rev-parse", "main", "feature")
    (project.top / ".git" / "shallow").write_text(f"{tips}\n")
    error = project.vmrag("report", "main", "feature", "--json", code=None).error
    assert error["hint"].startswith("run 'git fetch --unshallow")


# -- documents


def test_report_lists_changed_words_of_each_document(project):
    texts = {document["doc_id"]: document for document in project.ask("report", "first", "feature")["documents"]}
    changed = [(piece["op"], piece["text"]) for piece in texts["rest.md"]["text"]["pieces"]]
    assert changed[1:-1] == [
        ("delete", "Take a"),
        ("insert", "Never"),
        ("equal", " rest"),
        ("delete", ", and sleep well"),
    ]
    assert [piece["op"] for piece in texts["uv.md"]["text"]["pieces"]] == ["insert"]
    assert [piece["op"] for piece in texts["deep/tls.txt"]["text"]["pieces"]] == ["delete"]
    assert texts["rest.md"]["characters"]["before"] == len("# Rest\n\nTake a rest, and sleep well.\n")


def test_document_that_went_elsewhere_has_moved(project):
    project.put("page.md", page(*PAGE))
    project.put("empty.md", "-\n")
    project.record("pages")
    project.drop("page.md")
    project.drop("empty.md")
    project.put("other/page.md", page(*PAGE[:-3], "Another end."), collection="guide")
    project.put("note.md", "Certificates for TLS are renewed every month.\n", collection="guide")
    project.drop("deep/tls.txt")
    project.put("new.md", "Nothing of before.\n")
    project.record("moved")
    assert changes(project, "HEAD~1") == {
        "guide/note.md": "deep/tls.txt",
        "guide/other/page.md": "page.md",
        "handbook/empty.md": "removed",
        "handbook/new.md": "added",
    }
    said = project.vmrag("report", "HEAD~1").out
    assert " R  handbook/page.md -> guide/other/page.md" in said
    assert "guide/ (the collection's settings)" in said


def test_report_lists_changed_metadata_and_settings(project):
    with opened(project) as ws:
        branch, head = ws.find_kb_branch().name, ws.require_revision()
        rest = ws.engine.find_document(head, "handbook", "rest.md")
        row = next(collection for collection in ws.engine.list_collections(head) if collection.name == "handbook")
        fields = {name: getattr(rest, name) for name in rest.__struct_fields__}
        tagged = Document(**fields | {"metadata": encode_canonical_json({"tag": "sleep " * 2000})})
        settled = Collection(**{name: getattr(row, name) for name in row.__struct_fields__} | {"distance": "l2"})
        ws.engine.write(branch, Write(put_documents=[tagged], put_collections=[settled]), expected=head)
    project.record("tagged")
    report = project.ask("report", "HEAD~1")
    [document] = report["documents"]
    assert (document["words"], document["text"]["pieces"]) == ({"inserted": 0, "deleted": 0, "hidden": 0}, [])
    [field] = document["fields"]
    assert (field["name"], field["change"]["left_out"] > 7000) == ("metadata", True)
    [collection] = report["summary"]["collections"]
    assert [field["name"] for field in collection["fields"]] == ["distance"]


def test_documents_can_be_read_again_and_each_keeps_a_share(project, monkeypatch):
    for number in range(5):
        project.put(f"long{number}.md", f"word{number} " * 5000)
    project.record("long")
    monkeypatch.setattr("vmrag_link.ops.report.gather._MAX_TOTAL_CHARACTERS", 25_000)
    with opened(project) as ws, gather_report(ws, NamedEnd("HEAD~1"), NamedEnd("HEAD")) as report:
        once, again = list(report.read_documents()), list(report.read_documents())
        assert once == again
        assert [sum(len(piece.text) for piece in passage.text.pieces) for passage in once] == [5000] * 5
        assert all(passage.text.left_out == 6 * 5000 - 5000 for passage in once)
        assert [document.words.inserted for document in report.summary.documents] == [5000] * 5


# -- golden queries


def test_changed_answers_are_shown_side_by_side(project):
    queries = report(project, *asked(project, "first", "feature"))["queries"]
    assert (queries["total"], queries["not_compared"]) == (1, "")
    [query] = queries["changed"]
    assert [chunk["document"] for chunk in query["before"]] == ["handbook/rest.md"]
    assert query["change"] in ("ranking", "scores")
    project.git("switch", "-q", "feature")
    project.vmrag("sync")
    project.drop("rest.md")
    project.record("no rest")
    ends = asked(project, "first", "feature")
    [query] = report(project, *ends)["queries"]["changed"]
    assert (query["missed_before"], len(query["missed_after"]), query["change"]) == ([], 1, "ranking")
    said = project.vmrag("report", *ends).out
    assert "? rest and sleep" in said
    assert "1 golden query is no longer answered as expected." in said


def test_markdown_is_printed_and_a_redirect_gets_all_of_it(project):
    project.vmrag("report", "main", "feature", "--markdown", "report.md")
    written = (project.top / "report.md").read_text()
    assert project.vmrag("report", "main", "feature", "--markdown", "-").out == written
    assert (
        project.vmrag("report", "main", "feature", "--markdown", "-", "--json", code=2).error["code"]
        == "INVALID_PARAMETER"
    )
    with (project.top / "redirected.md").open("w") as file:
        argv = [SCRIPT, "report", "main", "feature"]
        subprocess.run(argv, cwd=project.top, stdout=file, check=True)
    assert (project.top / "redirected.md").read_text() == written
    assert "<details>" in written


def test_report_counts_missed_queries_like_check(project):
    project.git("switch", "-q", "feature")
    project.vmrag("sync")
    texts = ["rest and sleep", "install the program", "sleep"]
    written = "".join(f"  - query: {text}\n    mode: keyword\n" for text in texts)
    project.write(".vmrag/queries.yaml", f"queries:\n{written}    first: handbook/never.md\n")
    project.vmrag("check", "--update", code=1)
    project.commit("queries", **{".vmrag/queries.yaml": (project.top / ".vmrag/queries.yaml").read_text()})
    project.drop("rest.md")
    project.record("no rest")
    queries = report(project, "HEAD~1", "HEAD")["queries"]
    checked = project.ask("check", code=1)
    assert queries["missed"] == checked["missed"] >= 2
    assert any("the ranking is not the recorded one." in change["missed_after"] for change in queries["changed"])
    said = project.vmrag("report", "HEAD~1", "HEAD").out
    assert "1 golden query was also not answered as expected before." in said


def changed_answers(project: Project, queries: str) -> list[tuple[str, int, bool, list[str]]]:
    """Return the changes of `main` to the answers since `first`, with these golden queries."""
    answers = report(project, *asked(project, "first", "main", queries))["queries"]["answers"]
    return [(answer["query"], answer["place"], answer["below"], answer["missing"]) for answer in answers]


def test_report_counts_changed_text_but_not_changed_score(project):
    project.record("pip", setup="# Setup\n\nInstall the program with uv.\n")
    queries = (
        "queries:\n  - {query: install the program, mode: keyword}\n  - {query: TLS certificates, mode: keyword}\n"
    )
    alone = "queries:\n  - {query: install the program, k: 1}\n"
    [query] = report(project, *asked(project, "first", "main", alone))["queries"]["changed"]
    assert query["change"] == "none"  # the best by words and by meaning has the score 1
    assert changed_answers(project, queries) == [("install the program", 1, False, [])]
    ends = asked(project, "first", "main", queries)
    result = report(project, *ends)["queries"]
    [answer] = result["answers"]
    assert answer["before"] == {"document": "handbook/setup.md", "text": "# Setup\n\nInstall the program with pip.\n"}
    assert answer["after"] == {"document": "handbook/setup.md", "text": "# Setup\n\nInstall the program with uv.\n"}
    assert {change["change"] for change in result["changed"]} == {"scores"}  # the same chunks, by their numbers
    said = " ".join(project.vmrag("report", *ends).out.split())
    assert "1 of 2 golden queries has another answer." in said
    assert "? install the program handbook/setup.md has a different text at place 1." in said
    assert "? TLS" not in said


def test_renamed_text_is_the_same_answer_unless_expected(project):
    project.drop("setup.md")
    project.record("renamed", install="# Setup\n\nInstall the program with pip.\n")
    query = "queries:\n  - {query: install the program, mode: keyword"
    assert changed_answers(project, f"{query}}}\n") == []
    expected = changed_answers(project, f"{query}, expect: [handbook/setup.md]}}\n")
    assert expected == [("install the program", 1, False, ["handbook/setup.md"])]


def test_report_folds_changes_at_lower_ranks_unless_expected(project):
    project.record("rest", rest="# Rest\n\nTake a rest, and sleep long.\n")
    query = "queries:\n  - {query: certificates for TLS or a rest, mode: keyword"
    assert changed_answers(project, f"{query}}}\n") == [("certificates for TLS or a rest", 2, True, [])]
    expected = changed_answers(project, f"{query}, expect: [handbook/rest.md]}}\n")
    assert expected == [("certificates for TLS or a rest", 2, False, [])]


def test_queries_that_one_side_lacks_are_listed_and_not_compared(project):
    kept, gone = "{query: sleep, mode: keyword}", "{query: TLS, mode: keyword}"
    new = "{query: certificates for TLS, mode: keyword, expect: [handbook/deep/tls.txt]}"
    before, after = (f"queries:\n  - {kept}\n  - {query}\n" for query in (gone, new))
    ends = asked(project, "first", "feature", after, before=before)  # which removes deep/tls.txt
    queries = report(project, *ends)["queries"]
    assert [(document["query"], document["line"], document["missed"]) for document in queries["removed"]] == [
        ("TLS", 3, [])
    ]
    [added] = queries["added"]
    assert (added["query"], len(added["missed"]), queries["missed"], queries["total"]) == (
        "certificates for TLS",
        1,
        1,
        2,
    )
    assert {change["query"] for change in (*queries["changed"], *queries["answers"])} == {"sleep"}
    said = project.vmrag("report", *ends).out
    assert "1 new golden query is not answered as expected." in said
    assert "1 golden query is new, 1 is removed." in said
    assert " A  golden query: certificates for TLS\n    handbook/deep/tls.txt is not among the first" in said
    assert " D  golden query: TLS\n" in said
    assert "| removed | TLS |" in project.vmrag("report", *ends, "--markdown", "-").out


def test_removed_queries_are_listed_and_broken_files_are_unknown(project):
    queries = f"{QUERIES}  - query: sleep\n"
    project.commit("queries", **{".vmrag/queries.yaml": queries})
    project.git("rm", "-q", ".vmrag/queries.yaml")
    project.git("commit", "-q", "-m", "none")
    result = report(project, "HEAD~1", "HEAD")["queries"]
    assert ([document["query"] for document in result["removed"]], result["total"]) == (["rest and sleep", "sleep"], 0)
    ends = asked(project, "first", "feature", before="queries: 7\n")
    result = report(project, *ends)["queries"]
    assert (result["added"], result["removed"], len(result["changed"])) == ([], [], 1)


def test_report_without_golden_queries_builds_no_index(project):
    project.forget_indexes()
    result = report(project, "main", "feature")
    assert "no golden queries" in result["queries"]["not_compared"]
    assert result["size"]["chunks"] is None
    assert not [path for path in (project.shared / "views").glob("*") if path.is_dir()]


def test_equal_knowledge_is_queried_only_with_other_ranking(project):
    project.commit("queries", **{".vmrag/queries.yaml": QUERIES})
    project.commit("code", **{"main.py": "print()\n"})
    project.forget_indexes()
    queries = report(project, "main~1", "main")["queries"]
    assert (queries["total"], queries["changed"], queries["not_compared"]) == (1, [], "")
    assert not [path for path in (project.shared / "views").glob("*") if path.is_dir()]
    text = QUERIES.replace("    mode: keyword\n    k: 1\n", "")
    project.commit(
        "ranking", **{".vmrag.yaml": "embedding:\n  model: hash\nretrieval:\n  k: 2\n", ".vmrag/queries.yaml": text}
    )
    [query] = report(project, "main~1", "main")["queries"]["changed"]
    assert (len(query["before"]), len(query["after"])) == (4, 2)


def test_unreadable_queries_are_reported_with_the_rest(project):
    result = report(project, "main", with_queries(project, "feature", "queries: 7\n"))
    assert "queries.yaml, line 1" in result["queries"]["not_compared"]
    assert result["counts"]["added"] == 1
    empty = project.git("hash-object", "-w", "-t", "tree", "/dev/null")
    ended = project.git("commit-tree", empty, "-p", "main", "-m", "ended")
    assert "has no golden queries" in report(project, "main", ended)["queries"]["not_compared"]


# -- files


def test_files_are_replaced_whole_or_not_at_all(project, tmp_path, monkeypatch):
    page_file, summary = tmp_path / "page.html", tmp_path / "summary.md"
    page_file.write_text("of before")
    page_file.chmod(0o600)
    project.vmrag("report", "main", "feature", "--html", str(page_file), "--markdown", str(summary))
    assert page_file.read_text().startswith("<!doctype html>")
    assert page_file.stat().st_mode & 0o777 == 0o600
    assert "handbook/uv.md" in summary.read_text()
    before = page_file.read_bytes()

    def broken(_):
        yield "<!doctype html>"
        raise OSError(28, "No space left on device", str(page_file))

    monkeypatch.setattr("vmrag_link.ops.report.html.render_page", broken)
    refused = project.vmrag("report", "main", "feature", "--html", str(page_file), "--json", code=None)
    assert (refused.error["code"], page_file.read_bytes()) == ("FILE_SYSTEM_ERROR", before)
    assert sorted(path.name for path in tmp_path.iterdir() if path.name.startswith(".")) == []


@pytest.mark.parametrize("name", ["folder", "nowhere/file.md"])
def test_file_that_cannot_be_one_is_refused(project, name: str):
    (project.top / "folder").mkdir()
    error = project.vmrag("report", "main", "feature", "--markdown", name, "--json", code=None).error
    assert error["hint"] in ("name a file in the folder", f"run 'mkdir -p {project.top / Path(name).parent}'")


def test_pipe_is_written_to(project):
    result = project.start("report", "first", "feature", "-q", "--markdown", "/dev/stdout")
    assert (result.code, result.out.startswith("## feature adds 1 document")) == (0, True)
