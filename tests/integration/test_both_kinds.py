"""Answers from documents and code together: one ranked list, and groups where people read it."""

from __future__ import annotations

import pytest

from tests.support import sources
from tests.support.repos import isolate
from tests.support.sources import commit
from tests.support.terminal import Project

pytestmark = pytest.mark.hooks("off")

QUESTION = "how do I rotate the keys"
PAGES = {
    f"docs/page{number}.md": f"# Page {number}\n\n{'Rotate the keys. ' * number}Then wait for {number} days.\n"
    for number in range(1, 6)
}
MODULES = {
    f"src/module{number}.py": f"def task{number}(keys):\n    '''Rotate the keys.'''\n    return keys * {number}\n"
    for number in range(1, 6)
}


@pytest.fixture
def project(tmp_path, monkeypatch) -> Project:
    isolate(monkeypatch, tmp_path / "home")
    made = sources.sourced_project(tmp_path / "work")
    commit(made, "both kinds", **PAGES, **MODULES)
    return made


def ranking(project: Project, *words: str) -> list[tuple[str, str]]:
    results = project.ask("query", QUESTION, *words)["results"]
    assert [row["rank"] for row in results] == list(range(1, len(results) + 1))
    assert all(row["kind"] == ("code" if row["collection"] == "code" else "document") for row in results)
    return [(row["kind"], row["doc_id"]) for row in results]


@pytest.mark.parametrize("mode", ["hybrid", "keyword", "vector"])
def test_both_kinds_have_places_in_the_order_that_each_has_alone(project, mode):
    together = ranking(project, "-k", "14", "--mode", mode)
    alone = {name: ranking(project, "-k", "5", "--mode", mode, "--collection", name) for name in ("docs", "code")}
    assert [row for row in together if row[0] == "document"][:5] == alone["docs"]
    assert [row for row in together if row[0] == "code"][:5] == alone["code"]
    assert [kind for kind, _ in together[:6]] in (["document", "code"] * 3, ["code", "document"] * 3)


def test_documents_begin_for_a_question_and_a_definition_for_a_name(project):
    assert ranking(project)[0][0] == "document"
    named = project.ask("query", "task3")["results"]
    assert (named[0]["kind"], named[0]["doc_id"], named[1]["kind"]) == ("code", "src/module3.py", "document")


@pytest.mark.parametrize("mode", ["hybrid", "keyword"])
def test_code_begins_if_it_has_more_words_of_the_question(project, mode):
    page = "# Turbines\n\nA turbine has a rotor and a spare valve.\n"
    code = "def check(turbine):\n    rotor, valve, gauge, lever = turbine\n    return rotor + valve + gauge + lever\n"
    commit(project, "turbines", **{"docs/turbines.md": page, "src/turbines.py": code})
    kinds = [
        project.ask("query", text, "--mode", mode)["results"][0]["kind"]
        for text in ("turbine rotor valve gauge lever", "turbine rotor spare valve")
    ]
    assert kinds == ["code", "document"]


def test_fewer_results_are_the_first_of_more_in_each_revision(project):
    many = ranking(project, "-k", "12")
    for k in (1, 2, 3, 5, 7):
        assert ranking(project, "-k", str(k)) == many[:k]
    assert ranking(project, "-k", "12", "--at", "HEAD") == many


def test_change_of_code_leaves_the_order_of_documents(project):
    before = [row for row in ranking(project, "-k", "12") if row[0] == "document"]
    commit(project, "more code", **{"src/more.py": "def rotate_keys(rotate, keys):\n    return rotate(keys)\n"})
    assert [row for row in ranking(project, "-k", "12") if row[0] == "document"][: len(before)] == before


def test_terminal_groups_kinds_and_numbers_results_in_the_order_shown(project):
    shown = project.vmrag("query", QUESTION).out.splitlines()
    heads = [line for line in shown if line and not line.startswith((" ", "from commit"))]
    assert [line.partition(" ")[0] for line in heads] == ["Documentation:", "1.", "2.", "3.", "Code:", "4.", "5."]
    documents = [doc_id for kind, doc_id in ranking(project) if kind == "document"]
    assert [line.split()[1].partition(":")[0] for line in heads[1:4]] == documents
    packed = project.vmrag("query", QUESTION, "--budget", "400").out
    assert packed.index("Documentation:\n") < packed.index("docs/page") < packed.index("\nCode:\n")
    assert "docs/page" not in packed.partition("\nCode:\n")[2]


@pytest.mark.parametrize("narrowed", [["--collection", "docs"], ["--kind", "code"], ["--path", "src"]])
def test_results_of_one_kind_are_not_grouped(project, narrowed):
    shown = project.vmrag("query", QUESTION, *narrowed).out
    assert "Documentation:" not in shown
    assert "Code:" not in shown


def test_passages_name_their_kind(project):
    report = project.ask("query", QUESTION, "--budget", "400")
    assert {(row["kind"], row["collection"]) for row in report["passages"]} == {("document", "docs"), ("code", "code")}
    assert report["tokens"] <= 400
