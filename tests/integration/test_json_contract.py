"""Interface for programs: each key of each answer with its type, the errors, and the exit codes.

The tables list required keys; an answer may have more.
"""

from __future__ import annotations

import json
from collections.abc import Collection
from typing import Any

import pytest

from tests.contract import golden
from tests.support import dolt, terminal
from tests.support.repos import isolate
from tests.support.terminal import new_project

pytestmark = pytest.mark.hooks("off")

template, project = terminal.template, terminal.project

CONFLICT = {"collection", "doc_id", "fields", "documents", "hunks", "keys"}
ERROR = {"code": str, "message": str, "hint": str, "details": dict}


def require(name: str, report: Any, *, also: Collection[str] = ()) -> None:
    """Fail if a command's JSON has other keys, types or values than its type declares."""
    assert golden.list_problems(name, report, also=also) == []


def test_golden_schemas_are_those_of_the_reports():
    """If this fails: run `python -m tests.contract.golden` and review what changes for programs."""
    assert golden.REPORTS.read_text() == golden.reports_json()


def test_report_that_differs_from_its_type_has_problems():
    report = {"collection": "c", "doc_id": "d", "changed": True, "branch": None, "pending": ""}
    assert golden.list_problems("edit", report) == []
    for wrong in ({"changed": 1}, {"branch": 5}, {"more": 1}):
        assert golden.list_problems("edit", report | wrong)
    assert golden.list_problems("edit", {key: value for key, value in report.items() if key != "pending"})
    assert golden.list_problems("edit", report | {"revision": "abc"}, also=("revision",)) == []


def test_status_in_sync_and_with_uncommitted_documents(project):
    report = project.ask("status")
    require("status", report)
    warning = "warning: 3 stored copies of tracked files may be outdated; run 'vmrag init && vmrag sources dedupe' to search the files instead"
    assert (report["state"], report["reasons"], report["hint"]) == ("in_sync", [warning], "")
    assert report["kb"] == {
        "engine": "doltlite",
        "revision": project.pinned,
        "branch": "main",
        "detached": False,
        "dirty": False,
        "documents": 4,
        "pinned": True,
    }
    assert (report["index"]["revision"], report["index"]["documents"]) == (project.pinned, 4)
    assert report["index"]["working_copy"] is None
    project.put("draft.md", "A draft.")
    report = project.ask("status")
    require("status", report)
    assert (report["in_sync"], report["kb"]["dirty"], report["kb"]["documents"]) == (True, True, 5)
    assert report["index"]["working_copy"].startswith(str(project.shared / "uncommitted"))


def test_fingerprint_names_the_ranking_and_only_its_settings_change_it(project):
    report = project.ask("fingerprint")
    require("fingerprint", report)
    assert report["ranking"] == {"version": 7, "vector_weight": 0.4, "document_weight": 0.6, "per_document": 0}
    project.git("config", "vmrag.retrieval.k", "9")
    assert project.ask("fingerprint") == report
    project.git("config", "vmrag.retrieval.vector-weight", ".25")
    changed = project.ask("fingerprint")
    assert changed["ranking"]["vector_weight"] == 0.25
    assert changed["fingerprint"] != report["fingerprint"]
    project.git("config", "vmrag.retrieval.vector-weight", "0.400")
    assert project.ask("fingerprint") == report
    project.git("config", "vmrag.retrieval.vector-weight", "0.4001")
    assert "at most three decimals" in project.vmrag("fingerprint", "--json", code=2).error["message"]


def test_status_changes_nothing(project):
    project.ask("status")  # a copied index is checked once, and a note next to it records that
    project.git("reset", "-q", "--hard", "feature")
    before = {path: path.stat().st_mtime_ns for path in project.shared.rglob("*") if path.is_file()}
    project.ask("status", code=1)
    assert {path: path.stat().st_mtime_ns for path in project.shared.rglob("*") if path.is_file()} == before


def test_status_has_equal_keys_and_exit_code_1_in_other_states(project, tmp_path):
    (tmp_path / "new").mkdir()
    new = terminal.Project(tmp_path / "new")
    new.git("init", "-q")
    files = new.ask("status")
    require("status", files)
    assert (files["state"], files["in_sync"]) == ("files", True)
    states = {}
    project.git("reset", "-q", "--hard", "feature")
    states["drift"] = project.ask("status", code=1)
    pin = json.loads((project.top / ".dolt-version").read_text())
    project.write(".dolt-version", json.dumps(pin | {"dolt_commit": "0" * 40}))
    states["missing"] = project.ask("status", code=1)
    project.write(".dolt-version", "<<<<<<< HEAD\n")
    states["malformed"] = project.ask("status", code=1)
    project.git("rm", "-q", "-f", ".dolt-version")
    project.git("commit", "-q", "-m", "gone")
    states["no_pin"] = project.ask("status", code=1)
    project.git("switch", "-q", "--detach")
    states["no_pin "] = project.ask("status", code=1)
    for state, report in states.items():
        assert report["state"] == state.strip()
        assert report["in_sync"] is False
        assert report["reasons"], state
        assert report["hint"], state
        require("status", report)
    assert states["no_pin "]["git"]["branch"] is None


def test_sync(project):
    project.git("reset", "-q", "--hard", "feature")
    report = project.ask("sync")
    require("sync", report)
    assert (report["to"], report["plan"]) == (project.pinned, {"added": 1, "modified": 1, "removed": 2})
    assert "total" in report["seconds"]
    nothing = project.ask("sync")
    require("sync", nothing)
    assert (nothing["from"], nothing["to"]) == (project.pinned, project.pinned)
    assert nothing["plan"] == {"added": 0, "modified": 0, "removed": 0}
    assert nothing["snapshot"]["how"] == "reused"
    project.forget_indexes()
    rebuilt = project.ask("sync")
    assert rebuilt["snapshot"]["how"] == "fresh"
    assert rebuilt["chunks"] == {"added": 3, "removed": 0, "embedded": 0, "cached": 3}
    require("sync", project.ask("sync", "--rebuild"))


def test_query(project):
    report = project.ask("query", "faq", "-k", "2")
    require("query", report)
    assert [result["rank"] for result in report["results"]] == [1, 2]
    assert report["kb"]["worktree"] == str(project.top)
    require("query", project.ask("query", "faq", "--at", "feature"))
    require("query", project.ask("query", "faq", "--context", "1"))
    project.git("switch", "-q", "--detach")
    require("query", project.ask("query", "faq"))


def test_query_in_a_budget(project):
    report = project.ask("query", "faq", "--budget", "500")
    require("query --budget", report)
    require("query --budget", project.ask("query", "faq", "--budget", "500", "--at", "feature"))


def test_grep_export_and_help(project):
    require("grep", project.ask("grep", "rest", "--context", "1"))
    require("export", project.ask("export", "out"))
    assert project.ask("help", "query").keys() == {"command", "help"}


def test_ask(project):
    report = project.ask("ask", "how is the program installed", "--min-score", "0.1")
    require("ask", report)
    assert report["sources"]
    assert project.ask("ask", "zzzz", "--min-score", "1")["sources"] == []


def test_check(project):
    project.write(
        ".vmrag/queries.yaml", "queries:\n  - query: faq\n  - {query: pip, expect: [handbook/faq.md], k: 1}\n"
    )
    for arguments in (["--update"], []):
        report = project.ask("check", *arguments, code=1)
        require("check", report)
        assert [query["recorded"] for query in report["queries"]] == ["new" if arguments else None, None]
        assert [len(query["misses"]) for query in report["queries"]] == [0, 1]
    report = project.ask("check", "--min-mrr", "0.5", "--max-regressions", "0", code=1)
    require("check", report)
    assert len(report["thresholds"]) == 2


def test_diff_of_queries(project):
    project.write(".vmrag/queries.yaml", "queries: [{query: faq}]")
    report = project.ask("diff", "main", "feature", "--queries")
    require("diff --queries", report)


def test_list_and_show(project):
    project.vmrag(
        "add", "-", "--collection", "handbook", "--id", "d", "--metadata", '{"n": 1, "deep": [1]}', stdin="draft"
    )
    project.drop("faq.md")
    report = project.ask("list")
    require("list", report)
    assert {document["doc_id"]: document["uncommitted"] for document in report["documents"]} == {
        "d": "added",
        "deep/tls.txt": None,
        "faq.md": "removed",
        "rest.md": None,
        "setup.md": None,
    }
    shown = project.ask("show", "handbook/d")
    require("show", shown)
    assert (shown["content"], shown["metadata"], shown["revision"]) == ("draft", {"n": 1, "deep": [1]}, project.pinned)
    require("show", project.ask("show", "feature:handbook/uv.md"))


def test_rm_and_restore(project):
    project.put("new.md", "Never committed.")
    for name, arguments in (("rm", ["handbook", "--yes"]), ("restore", ["."])):
        report = project.ask(name, *arguments)
        require(name, report, also=("branch", "pending"))
        assert (report["branch"], type(report["pending"])) == ("main", str)


def test_log(project):
    report = project.ask("log")
    for revision in report["revisions"]:
        require("log: revision", revision)
    first, second = report["revisions"][:2]
    assert (first["message"], first["author"]) == ("faq", "Ada Lovelace <ada@example.com>")
    assert first["changes"] == {"added": 1, "modified": 0, "removed": 0}
    assert first["parents"] == [second["revision"]]
    assert len(project.ask("log", "-n", "1")["revisions"]) == 1
    assert project.ask("log", "feature")["revisions"][0]["message"] == "uv"
    for revision in project.ask("log", "feature", "handbook/rest.md", "-p")["revisions"]:
        require("log: revision", revision)
    require("log: revision", project.ask("show", "feature"))


def test_blame(project):
    project.put("faq.md", "A frequent question.\nAnd another.\n")
    report = project.ask("blame", "faq.md")
    require("blame", report)
    assert [line["revision"] for line in report["lines"]] == [project.pinned, "WORKING"]


@dolt.embedded
def test_migrate(project):
    dolt.require()
    require("migrate", project.ask("migrate", "--to", "dolt", "--dry-run"))
    report = project.ask("migrate", "--to", "dolt")
    require("migrate", report)
    assert (report["applied"], report["branches"], report["changed"]["written"][-1]) == (
        True,
        ["feature", "main"],
        ".dolt-version",
    )
    require("migrate --undo", project.ask("migrate", "--undo"))


def test_report(project):
    project.git("switch", "-q", "--detach", "first")
    kept, gone, new = "- query: uv\n    expect: [handbook/faq.md]", "- query: gone", "- query: new"
    base = project.commit("queries", **{".vmrag/queries.yaml": f"queries:\n  {kept}\n  {gone}\n"})
    project.git("merge", "-q", "--no-edit", "feature")
    project.commit("queries", **{".vmrag/queries.yaml": f"queries:\n  {kept}\n  {new}\n"})
    report = project.ask("report", base, "HEAD")
    require("report", report)
    assert [document["kind"] for document in report["documents"]] == ["removed", "changed", "added"]
    queries = report["summary"]["queries"]
    [query] = queries["changed"]
    assert (query["change"], len(query["missed_after"])) == ("ranking", 1)
    assert [answer["query"] for answer in queries["answers"]] == ["uv"]
    assert [query["query"] for query in (*queries["added"], *queries["removed"])] == ["new", "gone"]


def test_diff(project):
    for options in ([], ["--stat"], ["--name-only"]):
        report = project.ask("diff", "main", "feature", *options)
        require("diff", report)
        assert report["changes"] == {"added": 1, "modified": 1, "removed": 2}
    assert (report["words"], report["documents"][0]["words"]) == (None, None)


def test_commit(project):
    before = project.pinned
    project.put("draft.md", "A draft.")
    report = project.ask("commit", "-m", "draft")
    require("commit", report)
    assert (report["parent"], report["branch"], report["staged"]) == (before, "main", True)
    assert report["pin"] == json.loads((project.top / ".dolt-version").read_text())
    assert report["revision"] == project.pinned


def test_commit_with_git(project):
    project.put("draft.md", "A draft.")
    report = project.ask("commit", "--git", "-m", "draft")
    require("commit", report, also=("git_commit",))
    assert report["git_commit"] == project.git("rev-parse", "HEAD")


@pytest.mark.parametrize("command", ["true", "echo more >>"])
def test_edit(project, command):
    report = project.ask("edit", "rest.md", env={"GIT_EDITOR": command})
    require("edit", report)
    assert report["changed"] == (report["branch"] == "main") == (command != "true")


def merge(project, *arguments: str, code: int = 0) -> str:
    """The result of a merge, whose report has its shape."""
    report = project.ask("merge", *arguments, code=code)
    require("merge", report)
    assert (report["revision"] is None) == (report["result"] == "conflict")
    assert (report["pin"] is not None) == (report["result"] in ("merge", "fast_forward"))
    return report["result"]


def test_merge(project):
    before = project.pinned
    assert merge(project, "feature", "--no-commit") == "uncommitted"
    assert merge(project, "--abort") == "aborted"
    assert merge(project, "vmrag/wip/main") == "uncommitted"
    project.git("restore", "--source", "first", "-SW", ".dolt-version")
    project.vmrag("commit", "-m", "brought back", code=None)
    project.vmrag("pin", before)
    project.git("switch", "-q", "-c", "new")
    assert merge(project, "feature") == "merge"
    assert merge(project, "feature") == "already_up_to_date"
    assert merge(project, "--repair", "HEAD") == "already_up_to_date"
    project.git("commit", "-q", "-m", "merged")
    project.git("switch", "-q", "-c", "old", "first")
    assert merge(project, "new") == "fast_forward"


def require_resolve(report: dict[str, Any]) -> None:
    """Fail if a report of `resolve` has other keys than it should."""
    require("resolve", report, also=("conflicts",))
    for row in report["conflicts"]:
        assert row.keys() == {"id", "open", "conflict", "choices"}
        assert row["conflict"].keys() == {*CONFLICT, "base", "ours", "theirs", "merged"}


def test_merge_and_resolve_with_conflicts(project):
    project.record("rest", rest="Rest often.")
    assert merge(project, "feature", code=1) == "conflict"
    for arguments, code in (([], 1), (["--list"], 1), (["handbook/rest.md", "--ours"], 0), (["--list"], 0)):
        report = project.ask("resolve", *arguments, code=code)
        require_resolve(report)
        assert (report["kind"], bool(report["conflicts"])) == ("merge", code == 1)
    assert merge(project, "--continue") == "merge"
    project.git("reset", "-q", "--hard")
    project.git("merge", "feature", check=False)
    require_resolve(project.ask("resolve", code=1))
    report = project.ask("resolve", "--theirs")
    require_resolve(report)
    assert (report["kind"], report["pin"]["dolt_commit"], report["staged"]) == ("git", project.pinned, True)


def test_import_reports_all_optional_fields(project):
    for name, text in {"a.md": "# A\n", "b.md": "B", "ignored.md": "I", "kept.md": "K"}.items():
        project.write(f"more/{name}", text)
    project.vmrag("import", "more", "--collection", "more")
    (project.top / "more/a.md").rename(project.top / "more/z.md")
    (project.top / "more/b.md").unlink()
    project.write(".gitignore", "ignored.md\n")
    report = project.ask("import", "more", "more/ignored.md", "docs", "--collection", "more", "--copy")
    require("import", report)
    assert (len(report["renamed"]), report["gone"], report["ignored"]) == (1, ["more/b.md"], ["more/ignored.md"])
    assert report["skipped"] == []
    report = project.ask("import", "more", "--collection", "more")
    assert (report["left_out"], len(report["skipped"])) == (["more/ignored.md"], 1)


def test_pin_and_init_without_earlier_pins_have_their_fields(project):
    require("pin", project.ask("pin"))
    project.git("switch", "-q", "--orphan", "new")
    report = project.ask("pin")
    require("pin", report)
    assert report["first"]
    project.git("rm", "-q", "-f", ".dolt-version")
    report = project.ask("init", "--knowledge-base", "--no-sources", "--empty")
    require("init: files", report["files"])
    require("init: knowledge base", report, also=("files",))
    assert report["others"]


def test_import_into_a_library(project):
    for sources, code in ((["docs"], 0), (["docs/setup.md"], 0), (["docs", ".gitattributes"], 1)):
        report = project.ask("import", *sources, "--library", "shelf", "--copy", code=code)
        require("import --library", report)
        assert bool(report["refused"]) == (code == 1)
    assert {file["status"] for file in report["taken"]} == {"skipped"}


def test_branch_and_its_switch(project):
    require("branch", project.ask("branch"))
    report = project.ask("branch", "--switch", project.pinned)
    require("branch --switch", report)
    assert report["branch"] is None
    require("branch", project.ask("branch"))
    report = project.ask("branch", "--switch", "main")
    require("branch --switch", report)
    assert (report["code_branch"], report["branch"]) == ("main", "main")


# -- errors ----------------------------------------------------------------------------------------

ERRORS = {
    "no subcommand of that name": (["quer", "x"], 2, "INVALID_PARAMETER"),
    "an unknown option": (["query", "x", "--colection", "c"], 2, "INVALID_PARAMETER"),
    "a missing argument": (["query"], 2, "INVALID_PARAMETER"),
    "a wrong choice": (["query", "x", "--mode", "fuzzy"], 2, "INVALID_PARAMETER"),
    "a number out of range": (["query", "x", "-k", "0"], 2, "INVALID_PARAMETER"),
    "an unknown collection": (["query", "x", "--collection", "handbok"], 3, "COLLECTION_NOT_FOUND"),
    "a filter that is no JSON": (["query", "x", "--where", "{"], 2, "INVALID_FILTER"),
    "an unknown git ref": (["query", "x", "--at", "nowhere"], 3, "GIT_COMMIT_NOT_FOUND"),
    "an unknown document": (["show", "handbook/setup"], 3, "DOCUMENT_NOT_FOUND"),
    "a name that is no document": (["show", "handbook"], 2, "INVALID_PARAMETER"),
    "nothing to commit": (["commit", "-m", "m"], 1, "NO_CHANGES"),
    "an empty message": (["commit", "-m", " "], 2, "MESSAGE_REQUIRED"),
    "an unknown revision": (["pin", "0" * 40], 3, "BRANCH_NOT_FOUND"),
    "a folder that is not there": (["import", "nowhere", "--collection", "handbook"], 2, "INVALID_PARAMETER"),
    "a name that no collection may have": (["import", "docs", "--collection", "a"], 2, "INVALID_NAME"),
    "a place for documents that is not named": (["import", "docs"], 2, "INVALID_PARAMETER"),
    "a page for a collection": (["import", "https://example.org", "--collection", "c"], 2, "INVALID_PARAMETER"),
    "a library with a base": (["import", "docs", "--library", "shelf", "--base", "docs"], 2, "INVALID_PARAMETER"),
    "a library of a collection's name": (["import", "docs", "--library", "handbook"], 3, "COLLECTION_EXISTS"),
    "a file that cannot be converted": (["import", ".gitattributes", "--library", "shelf"], 3, "UNSUPPORTED_FORMAT"),
    "a second init": (["init", "--knowledge-base"], 2, "ALREADY_INITIALIZED"),
    "an unknown place": (["diff", "nowhere"], 3, "GIT_COMMIT_NOT_FOUND"),
    "metadata that are no object": (
        ["add", "docs/setup.md", "--collection", "handbook", "--metadata", "1"],
        2,
        "INVALID_PARAMETER",
    ),
    "metadata that the index needs": (
        ["add", "docs/setup.md", "--collection", "handbook", "--metadata", '{"source_id": 1}'],
        3,
        "INVALID_METADATA",
    ),
    "nothing to merge": (["merge"], 2, "INVALID_PARAMETER"),
    "a merge of what is not there": (["merge", "nowhere"], 3, "GIT_COMMIT_NOT_FOUND"),
    "no open merge": (["merge", "--continue"], 1, "MERGE_CONFLICT"),
    "nothing to resolve": (["resolve", "--ours"], 1, "MERGE_CONFLICT"),
    "a switch to what is not there": (["branch", "--switch", "nowhere"], 3, "BRANCH_NOT_FOUND"),
    "a switch to another's branch": (["branch", "--switch", "feature"], 3, "BRANCH_IN_USE"),
    "a directory that is not there": (["status", "-C", "nowhere"], 2, "GIT_REPO_NOT_FOUND"),
}


@pytest.mark.parametrize(("arguments", "code", "name"), ERRORS.values(), ids=ERRORS)
@pytest.mark.sample(12)
def test_error_is_json_on_stderr_and_nothing_on_stdout(project, arguments, code, name):
    result = project.vmrag(*arguments, "--json", code=code)
    assert result.out == ""
    assert {key: type(value) for key, value in json.loads(result.err)["error"].items()} == ERROR
    assert result.error["code"] == name
    assert result.error["hint"]
    assert result.error["message"].strip()
    for_people = project.vmrag(*arguments, code=code)
    assert for_people.out == ""
    assert "Traceback" not in for_people.err


def test_missing_and_bare_git_repositories_are_reported(tmp_path, monkeypatch):
    isolate(monkeypatch, tmp_path / "home")
    (tmp_path / "plain").mkdir()
    plain = terminal.Project(tmp_path / "plain")
    assert (
        plain.vmrag("status", "--json", code=2).error["hint"]
        == "change to a folder of your repository, or run 'git init' to create one"
    )
    plain.git("init", "-q", "--bare", "bare.git")
    error = plain.vmrag("-C", "bare.git", "status", "--json", code=2).error
    assert error["code"] == "GIT_REPO_NOT_FOUND"
    assert "git worktree add" in error["hint"]


def test_settings_file_that_cannot_be_read_names_the_line(tmp_path, monkeypatch):
    isolate(monkeypatch, tmp_path / "home")
    project = new_project(tmp_path / "mine", settings="retrieval:\n  kk: 5\n")
    error = project.vmrag("init", "--knowledge-base", "--no-sources", "--json", code=2).error
    assert (error["code"], error["details"]["line"]) == ("CONFIG_INVALID", 2)
    assert (error["details"]["nearest"], error["hint"]) == ("retrieval.k", "write 'k', or delete the line")
    assert not (project.top / ".git/vmrag/kb").exists()


def test_warnings_do_not_get_into_the_json(project):
    project.write(".vmrag.yaml", "embedding:\n  model: hash\n  model_path: /somewhere\n")
    result = project.vmrag("list", "--json")
    require("list", result.json)
    assert "untrusted setting embedding.model_path (line 3)" in result.err
    assert project.vmrag("list", "-q").err == ""
