"""`vmrag check`: golden queries against the knowledge that the code pins."""

from __future__ import annotations

import json
import math
import shutil
import subprocess

import pytest

from tests.support import terminal
from tests.support.terminal import Done, Project
from vmrag_link import hints

template, project = terminal.template, terminal.project

FILE = ".vmrag/queries.yaml"
QUERIES = """\
# What people ask.
queries:
  - query: certificates for TLS   # once a month
    mode: keyword
    expect: [handbook/deep/tls.txt]
    first: handbook/deep/tls.txt
  # the one that everybody asks
  - query: install the program
"""


@pytest.fixture
def golden(project: Project) -> Project:
    """With golden queries, recorded."""
    project.write(FILE, QUERIES)
    project.vmrag("check", "--update")
    return project


def text(project: Project) -> str:
    return (project.top / FILE).read_text()


def missed(project: Project, *arguments: str) -> list[list[str]]:
    report = project.vmrag("check", *arguments, "--json", code=None).json
    assert report["missed"] == sum(bool(query["misses"]) for query in report["queries"])
    return [[miss["kind"] for miss in query["misses"]] for query in report["queries"]]


def error(project: Project, *arguments: str, code: int = 2) -> dict[str, str]:
    return project.vmrag("check", *arguments, "--json", code=code).error


def test_check_update_records_rankings_and_keeps_text_of_user(golden):
    recorded = text(golden)
    assert recorded.startswith("# What people ask.\nrecorded: {version: ")
    assert "certificates for TLS   # once a month\n" in recorded
    assert "  # the one that everybody asks\n" in recorded
    assert missed(golden) == [[], []]
    said = golden.vmrag("check", "--update").out
    assert said.splitlines()[0] == f"{FILE} holds these rankings already."
    assert text(golden) == recorded
    golden.forget_indexes()
    assert golden.vmrag("check").out == f"2 queries answered as expected; asked revision {golden.pinned[:7]}.\n"


def test_changed_answer_fails_readably_until_it_is_recorded(golden):
    golden.put("install.md", "Install the program, install the program.")
    result = golden.vmrag("check", code=1)
    assert f"miss  install the program  {FILE}:9" in result.out
    assert "ranking: the ranking is not the recorded one" in result.out
    assert "- -> 1    handbook/install.md #0" in result.out
    assert result.out.splitlines()[-1].endswith(", uncommitted documents included.")
    result = golden.vmrag("check", "--update")
    assert "recorded  install the program" in result.out
    assert f"Recorded 1 ranking in {FILE}: 0 new, 1 changed." in result.out
    assert missed(golden) == [[], []]
    golden.drop("install.md")
    assert missed(golden) == [[], ["ranking"]]


def test_recorded_order_holds_if_another_document_moves_all_scores(project):
    texts = ("install the program", "certificates for TLS", "questions")
    project.write(FILE, "queries:\n" + "".join(f"  - query: {text}\n    mode: keyword\n" for text in texts))
    project.vmrag("check", "--update", "--order")
    recorded = text(project)
    assert ("ranking:" in recorded, "recorded:" in recorded, recorded.count("order:")) == (False, False, 3)
    exact = recorded.replace("    order:", "    ranking: []\n    order:")
    project.write(FILE, exact)
    project.vmrag("check", "--update")
    faq = project.ask("show", "handbook/faq.md")["content"]
    project.put("faq.md", f"{faq}\nNothing in particular.\n", collection="handbook")
    kinds = missed(project)
    assert {kind for query in kinds for kind in query} == {"ranking"}


def test_thresholds_decide_in_place_of_single_misses(golden):
    def failed(*arguments: str) -> list[tuple[str, float]]:
        report = golden.vmrag("check", *arguments, "--json", code=None).json
        return [
            (threshold["name"], threshold["found"])
            for threshold in report["thresholds"]
            if threshold["found"] != threshold["limit"]
        ]

    project_text = text(golden)
    golden.write(
        FILE,
        "queries:\n"
        "  - {query: certificates for TLS, mode: keyword, first: handbook/deep/tls.txt}\n"
        "  - {query: certificates for TLS, mode: keyword, expect: [handbook/deep/tls.txt, handbook/gone.md]}\n"
        "  - {query: zzzz, mode: keyword, first: handbook/setup.md}\n"
        "  - {query: certificates, ranking: []}\n",
    )
    report = golden.vmrag("check", "--json", code=1).json
    metrics = report["metrics"]
    assert (metrics["judged"], metrics["recall"], metrics["mrr"]) == (3, 0.5, pytest.approx(2 / 3))
    assert metrics["ndcg"] == pytest.approx((1 + 1 / (1 + 1 / math.log2(3)) + 0) / 3)
    assert metrics["mrr_interval"] == pytest.approx([0.207660, 0.938508], abs=1e-6)
    assert report["thresholds"] == []
    golden.vmrag("check", "--min-mrr", "0.6", "--min-recall", "0.5", "--max-regressions", "3")
    result = golden.vmrag("check", "--min-mrr", "0.7", code=1)
    assert "below  mrr 0.6667; at least 0.7 required\n" in result.out
    assert failed("--max-regressions", "2") == [("regressions", 3)]
    assert golden.vmrag("check", "--base", "HEAD").out.count("holds  0 regressions; at most 0 allowed") == 1
    golden.drop("deep/tls.txt")
    assert failed("--base", "HEAD") == [("regressions", 1)]
    tests = golden.vmrag("check", "--base", "HEAD", "--max-regressions", "1", "--junit", "-").out
    assert 'failures="0"' in tests
    golden.write(FILE, "queries: [{query: a, ranking: []}]\n")
    assert golden.vmrag("check", "--min-mrr", "0", "--json", code=2).error["code"] == "QUERIES_INVALID"
    golden.write(FILE, project_text)


def test_quality_of_earlier_commits_uses_the_present_queries(project):
    project.write(FILE, "queries: [{query: certificates for TLS, mode: keyword, first: handbook/deep/tls.txt}]\n")
    project.write("code.py", "x = 1\n")
    project.git("add", ".")
    project.git("commit", "-q", "-m", "neither pin nor settings")
    good = project.git("log", "-1", "--format=%H", "--", ".dolt-version").strip()
    project.drop("deep/tls.txt")
    project.vmrag("commit", "-m", "dropped")
    project.git("commit", "-q", "-am", "no certificates")
    bad = project.git("rev-parse", "HEAD").strip()
    pin = (project.top / ".dolt-version").read_text()
    project.write(".dolt-version", pin.replace(project.pinned, "0" * len(project.pinned)))
    project.git("commit", "-q", "--no-verify", "-am", "a pin of nothing")
    broken = project.git("rev-parse", "HEAD").strip()
    project.write(".dolt-version", pin)
    project.git("commit", "-q", "--no-verify", "-am", "mended")
    report = project.vmrag("check", "--history", "4", "--json", code=1).json["history"]
    result = [(commit["commit"], commit.get("missed")) for commit in report["commits"]]
    assert result == [(project.git("rev-parse", "HEAD").strip(), 1), (broken, None), (bad, 1), (good, 0)]
    assert [commit.get("metrics", {}).get("mrr") for commit in report["commits"]] == [0.0, None, 0.0, 1.0]
    assert "0000000" in report["commits"][1]["problem"]
    assert not report["shallow"]
    shown = project.vmrag("check", "--history", "2", "--at", broken + "^", code=1).out.splitlines()
    start = shown.index("commit   date        mrr     ndcg    recall  missed")
    assert [line.split()[2:6] for line in shown[start + 1 : -2]] == [
        ["0.0000", "0.0000", "0.0000", "1"],
        ["1.0000", "1.0000", "1.0000", "0"],
    ]


def test_check_update_does_not_rewrite_expectations(golden):
    golden.drop("deep/tls.txt")
    golden.put("tls.txt", "Nothing of that kind.")
    before = text(golden)
    result = golden.vmrag("check", "--update", code=1)
    assert (
        "expect: handbook/deep/tls.txt is not among the first 5; no such document; did you mean handbook/tls.txt?"
        in result.out
    )
    assert [line for line in before.splitlines() if line.startswith("    expect")] == [
        "    expect: [handbook/deep/tls.txt]"
    ]
    assert "    expect: [handbook/deep/tls.txt]\n    first: handbook/deep/tls.txt\n" in text(golden)


def test_check_reports_where_the_expected_document_is(project):
    project.write(
        FILE,
        "queries:\n"
        "  - {query: install the program, k: 1, expect: handbook/rest.md}\n"
        "  - {query: install, mode: keyword, first: handbook/rest.md}\n"
        "  - {query: zzzz, mode: keyword, first: handbook/rest.md}\n"
        "  - {query: x, collection: handbok, first: handbok/rest.md}\n",
    )
    messages = [query["misses"][0]["message"] for query in project.vmrag("check", "--json", code=1).json["queries"]]
    assert messages[0].startswith("handbook/rest.md is not among the first 1; it is at rank ")
    assert messages[1:] == [
        "handbook/rest.md is not the first, but handbook/setup.md; the query does not find it",
        "handbook/rest.md is not the first, because nothing is found; the query does not find it",
        "no such collection: 'handbok'. Did you mean 'handbook'?",
    ]


def test_query_at_a_ref_uses_its_knowledge_and_settings(golden):
    assert missed(golden, "--at", "main") == [[], []]
    assert missed(golden, "--at", "feature") == [["expect", "first"], ["ranking"]]
    settings = "embedding:\n  model: hash\nretrieval:\n  k: 1\n  vector_weight: 0.9\n"
    golden.commit("weights", **{".vmrag.yaml": settings})
    outdated = golden.vmrag("check", "--json", code=1).json
    assert (outdated["missed"], outdated["ranking"]["vector_weight"]) == (0, 0.9)
    answer = golden.vmrag("check", "--at", "HEAD~1", "--json").json
    assert (answer["missed"], answer["outdated"], answer["ranking"]["vector_weight"]) == (0, "", 0.4)
    assert len(golden.ask("query", "install")["results"]) == 1
    assert len(golden.ask("query", "install", "--at", "HEAD~1")["results"]) == 4
    assert golden.ask("fingerprint", "--at", "HEAD~1") != golden.ask("fingerprint")
    assert golden.ask("fingerprint", "--at", "HEAD") == golden.ask("fingerprint")


def test_check_reports_other_ranking_version_once_and_fails(golden):
    version = golden.ask("check")["ranking"]["version"]
    (golden.top / FILE).write_text(text(golden).replace(f"version: {version}", "version: 1"))
    result = golden.vmrag("check", code=1)
    assert result.out.count("version") == 1
    assert f"the ranking's version was 1 and is {version}" in result.out
    assert missed(golden) == [[], []]
    golden.vmrag("check", "--update")
    assert f"recorded: {{version: {version}," in text(golden)
    golden.vmrag("check")


def test_query_that_expects_nothing_is_refused_until_its_ranking_is_recorded(project):
    project.write(FILE, QUERIES)
    refused = error(project)
    assert refused["message"] == f"{FILE}, line 8: the query 'install the program' has no expectation."
    assert "vmrag check --update" in refused["hint"]


def test_check_without_a_file_hints_how_to_create_it(project):
    refused = error(project, "-C", "docs")
    assert refused["code"] == "NO_QUERIES"
    [command] = hints.list_commands(refused["hint"])
    command = command.removesuffix(" && vmrag check --update")
    subprocess.run(command, shell=True, check=True, cwd="/")
    assert project.vmrag("check", "--update").code == 0
    project.vmrag("check")


@pytest.mark.parametrize("kind", ["link", "folder", "linked folder"])
def test_check_rejects_query_files_other_than_regular_files(project, tmp_path, kind):
    outside = tmp_path / "outside" / "queries.yaml"
    outside.parent.mkdir()
    outside.write_text(QUERIES)
    path = project.top / FILE
    if kind == "linked folder":
        path.parent.symlink_to(outside.parent)
    else:
        path.parent.mkdir()
        path.symlink_to(outside) if kind == "link" else path.mkdir()
    for arguments in ((), ("--update",)):
        assert error(project, *arguments, code=3)["code"] == "FILE_SYSTEM_ERROR"
    assert outside.read_text() == QUERIES


def pin(project: Project, text: str) -> None:
    project.write(".dolt-version", text)


def test_old_revision_never_passes_for_the_pinned_one(golden):
    """Not where the pin is missing here, malformed, or gone; a query goes on answering there."""
    pinned = json.loads((golden.top / ".dolt-version").read_text())
    cases = {
        json.dumps(pinned | {"dolt_commit": "0" * 32}): "PIN_MISSING_REVISION",
        "{": "PIN_MALFORMED",
    }
    for content, code in cases.items():
        pin(golden, content)
        assert golden.ask("query", "install")["kb"]["in_sync"] is False
        assert error(golden, code=1)["code"] == code
        assert error(golden, "--update", code=1)["code"] == code
        golden.vmrag("check", "--at", "HEAD")
    golden.git("switch", "-q", "--discard-changes", "--orphan", "elsewhere")
    golden.write(FILE, QUERIES)
    refused = error(golden, "--update", code=1)
    assert (refused["code"], refused["hint"]) == ("NO_PIN", "run 'vmrag pin' to write the pin")


def test_check_without_a_knowledge_base_fails(golden):
    shutil.rmtree(golden.shared / "kb")
    assert error(golden)["code"] == "NOT_INITIALIZED"


def test_untrusted_texts_are_shown_escaped(project):
    project.write(FILE, 'queries:\n  - {query: "\\e[31mred\\n::error::y ##[x]", first: "handbook/\\e[1m"}\n')
    result: Done = project.vmrag("check", code=1, env={"GITHUB_ACTIONS": "true"})
    assert "\x1b" not in result.out
    assert not [line for line in result.out.splitlines() if line.lstrip().startswith("::")]
    assert "##[x]" not in result.out


# -- diff --queries --------------------------------------------------------------------------------


def changes(project: Project, *places: str) -> list[str]:
    return [query["change"] for query in project.ask("diff", *places, "--queries")["queries"]]


def test_diff_shows_both_rankings_side_by_side(golden):
    assert changes(golden, "main", "main") == ["none", "none"]
    assert changes(golden, "main", "feature") == ["ranking", "ranking"]
    assert golden.vmrag("diff", "main", "main", "--queries").out == (
        "2 queries: 0 ranked differently, 0 with other scores only, 2 alike\n"
    )
    said = golden.vmrag("diff", "main", "feature", "--queries").out.splitlines()
    assert said[0] == f"certificates for TLS  {FILE}:4"
    assert said[1].split() == ["main", "feature"]
    assert said[2].startswith("  1 - handbook/deep/tls.txt #0  ")
    assert said[2].split()[1:3] == ["-", "handbook/deep/tls.txt"]
    assert said[-1] == "2 queries: 2 ranked differently, 0 with other scores only, 0 alike"


def test_diff_of_queries_without_places_is_about_the_uncommitted_documents(golden):
    assert changes(golden) == ["none", "none"]
    golden.put("install.md", "Install the program.")
    assert changes(golden) == ["scores", "ranking"]
    assert changes(golden, "HEAD") == changes(golden, golden.pinned, "WORKING") == changes(golden)


def test_diff_of_queries_ranks_a_git_ref_by_its_settings(golden):
    golden.commit("k", **{".vmrag.yaml": "embedding:\n  model: hash\nretrieval:\n  k: 1\n"})
    assert [len(query["after"]) for query in golden.ask("diff", "main~1", "main", "--queries")["queries"]] == [1, 1]
    assert [len(query["before"]) for query in golden.ask("diff", "main~1", "main", "--queries")["queries"]] == [1, 4]
    assert [len(query["before"]) for query in golden.ask("diff", golden.pinned, "main", "--queries")["queries"]] == [
        1,
        1,
    ]


def test_diff_of_queries_names_queries_that_one_side_cannot_answer(golden):
    golden.write(FILE, "queries:\n  - {query: x, collection: notes}\n")
    golden.put("1", "x", collection="notes")
    [query] = golden.ask("diff", "--queries")["queries"]
    assert (query["change"], query["problem_after"]) == ("ranking", "")
    assert query["problem_before"] == "no such collection: 'notes'"
    assert golden.vmrag("diff", "--queries", "--stat", code=2).out == ""
