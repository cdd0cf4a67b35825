"""The pytest plugin, in runs of pytest of their own: as a project's tests see it.

`pytester` forgets at its end what was imported since its beginning, and other tests of the process
would get a second copy of it. So `vmrag` runs as a process here, too.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support import terminal
from tests.support.repos import isolate
from tests.support.templates import copy_tree
from tests.support.terminal import Project
from vmrag_link.retrieval.ranking import VERSION

pytest_plugins = ["pytester"]

template = terminal.template
PLUGIN = "vmrag_link.pytest_plugin.plugin"
WITH_XDIST = ("-p", "xdist", "-n", "2")


@pytest.fixture
def project(template: Path, pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Project:
    """The template's repository, in which pytester runs; no plugin but ours loads itself."""
    isolate(monkeypatch, tmp_path / "home")
    monkeypatch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")
    return Project(copy_tree(template, pytester.path))


def run(pytester: pytest.Pytester, *arguments: str) -> pytest.RunResult:
    return pytester.runpytest_subprocess("-p", PLUGIN, "-p", "no:cacheprovider", *arguments)


TESTS = """
    import pytest
    from vmrag_link.errors import DocumentMissing, UsageInvalid
    from vmrag_link.pytest_plugin import Kb

    def test_answers(kb: Kb) -> None:
        hits = kb.query("certificates", mode="keyword")
        assert [(hit.collection, hit.doc_id) for hit in hits] == [("handbook", "deep/tls.txt")]
        assert len(kb.query("install rest", k=2, collection="handbook")) == 2
        assert kb.query("install", where={"no": "such"}) == []

    def test_documents_and_names(kb: Kb) -> None:
        assert kb.document("handbook/faq.md").content == "A frequent question."
        assert kb.revision == %(main)r
        assert kb.fingerprint == %(fingerprint)r
        with pytest.raises(DocumentMissing):
            kb.document("handbook/uv.md")
        with pytest.raises(UsageInvalid, match="must be one of hybrid, vector, keyword; found 'fuzzy'"):
            kb.query("install", mode="fuzzy")

    @pytest.mark.kb_at("feature")
    def test_at_a_ref(kb: Kb) -> None:
        assert kb.document("handbook/uv.md").content == "Use uv."
        assert kb.query("certificates", mode="keyword") == []
        assert kb.revision == %(feature)r
        assert kb.fingerprint == %(other)r

    @pytest.mark.parametrize("number", range(4))
    def test_many(kb: Kb, number: int) -> None:
        assert kb.query("install")[0].doc_id == "setup.md"
"""


@pytest.mark.parametrize("arguments", [("-p", "no:xdist"), WITH_XDIST], ids=["one process", "two workers"])
def test_tests_ask_the_pinned_knowledge(project, pytester, arguments):
    pinned = {name: project.start("fingerprint", "--at", name, "--json").json for name in ("main", "feature")}
    project.write(".vmrag/queries.yaml", "queries: 3")  # no option names it, so it is not read
    pytester.makepyfile(
        TESTS
        % {
            "main": pinned["main"]["revision"],
            "feature": pinned["feature"]["revision"],
            "fingerprint": pinned["main"]["fingerprint"],
            "other": pinned["feature"]["fingerprint"],
        }
    )
    project.forget_indexes()  # the workers build them, one waiting for the other
    run(pytester, "--strict-markers", "-W", "error", *arguments).assert_outcomes(passed=7)


def test_plugin_fails_tests_with_a_hint_for_invalid_knowledge(project, pytester):
    pytester.makepyfile(
        """
        import pytest

        def test_here(kb):
            raise AssertionError("no test runs on another revision")

        @pytest.mark.kb_at("main")
        def test_at_a_ref_that_is_there(kb):
            assert kb.query("install")

        @pytest.mark.kb_at("nowhere")
        def test_at_a_ref_that_is_not(kb): ...

        @pytest.mark.kb_at(3)
        def test_a_marker_that_names_none(kb): ...
        """
    )
    project.write(".dolt-version", "{")
    drifted = run(pytester)
    drifted.assert_outcomes(passed=1, errors=3)
    drifted.stdout.fnmatch_lines(
        [
            "*.dolt-version*",
            "hint: run 'git checkout*",
            "'nowhere' is not a branch*",
            "hint: run 'git fetch*",
            "*kb_at('v1.0')*",
        ]
    )
    project.git("checkout", "-q", "--", ".dolt-version")
    shutil.rmtree(project.shared / "kb")
    missing = run(pytester, "-k", "test_here")
    missing.assert_outcomes(errors=1)
    missing.stdout.fnmatch_lines(["this repository pins a knowledge base, but it is not on this machine*", "hint: *"])


def test_knowledge_that_drifts_during_a_test_is_an_error_with_hint(project, pytester):
    pytester.makepyfile(
        """
        from pathlib import Path

        def test_drift(kb):
            assert kb.query("install")
            Path(".dolt-version").write_text("{")
            kb.query("install")
        """
    )
    drifted = run(pytester)
    drifted.assert_outcomes(failed=1)
    drifted.stdout.fnmatch_lines([">*kb.query*install*", "E*PinMalformed: *", "E*hint: *"])
    assert "knowledge.py" not in drifted.stdout.str()


def test_golden_queries_are_tests_if_configured(project, pytester):
    project.write(
        ".vmrag/queries.yaml",
        "queries:\n"
        "  - {query: certificates, mode: keyword, first: handbook/deep/tls.txt}\n"
        '  - {query: "a::b\\n", expect: handbook/gone.md}\n'
        "  - {query: install, ranking: []}\n",
    )
    result = run(pytester, ".vmrag/queries.yaml", "-rA")
    result.assert_outcomes(passed=1, failed=2)
    result.stdout.fnmatch_lines(["ranking: the ranking is not the recorded one", "*- -> 1    handbook/setup.md #0*"])
    for line in (
        "expect: handbook/gone.md is not among the first 5; no such document",
        "PASSED .vmrag/queries.yaml::certificates",
        "FAILED .vmrag/queries.yaml::a:b*",
    ):
        result.stdout.fnmatch_lines([line])
    assert project.start("check", "--update").code == 1
    text = (project.top / ".vmrag/queries.yaml").read_text()
    assert f"version: {VERSION}" in text
    project.write(".vmrag/queries.yaml", text.replace(f"version: {VERSION}", "version: 1"))
    outdated = run(pytester, ".vmrag/queries.yaml")
    outdated.assert_outcomes(passed=2, failed=2)
    outdated.stdout.fnmatch_lines([f"*the ranking's version was 1 and is {VERSION}*"])
    project.write(".vmrag/queries.yaml", "queries: 3")
    broken = run(pytester, ".vmrag/queries.yaml")
    broken.assert_outcomes(failed=1)
    broken.stdout.fnmatch_lines([".vmrag/queries.yaml, line 1: queries must be a list", "hint: *"])


def test_collecting_runs_no_query_and_failures_stop_no_other_test(project, pytester):
    project.write(
        ".vmrag/queries.yaml",
        "queries:\n  - {query: certificates, first: handbook/deep/tls.txt}\n  - {query: install, expect: handbook/setup.md}\n",
    )
    pytester.makepyfile(test_units="def test_own(): pass\n\ndef test_kb(kb): assert kb.query('install')")
    project.forget_indexes()
    files = {path: path.stat().st_mtime_ns for path in project.shared.rglob("*")}
    collected = run(pytester, "--collect-only", "-q", "test_units.py", ".vmrag/queries.yaml")
    collected.stdout.fnmatch_lines(
        [".vmrag/queries.yaml::certificates", ".vmrag/queries.yaml::install", "4 tests collected*"]
    )
    assert {path: path.stat().st_mtime_ns for path in project.shared.rglob("*")} == files
    timed = run(pytester, "test_units.py", ".vmrag/queries.yaml", "--durations=0", "-vv", *WITH_XDIST)
    timed.assert_outcomes(passed=4)
    timed.stdout.fnmatch_lines(["*s call *queries.yaml::*"])
    shutil.rmtree(project.shared / "kb")
    project.git("remote", "add", "origin", "ssh://nobody@127.0.0.1:1/nowhere.git")
    lacking = run(pytester, "test_units.py", ".vmrag/queries.yaml")
    lacking.assert_outcomes(passed=1, failed=2, errors=1)
    lacking.stdout.fnmatch_lines(["this repository pins a knowledge base, but it is not on this machine*", "hint: *"])


def test_file_repaired_during_the_run_passes_no_unasked_query(project, pytester):
    queries = "queries:\\n  - {query: certificates, first: handbook/deep/tls.txt}\\n"
    pytester.makeconftest(
        "from pathlib import Path\n\ndef pytest_collection_finish():\n"
        f"    Path('.vmrag/queries.yaml').write_text('{queries}')\n"
    )
    project.write(".vmrag/queries.yaml", "queries: 3")
    mended = run(pytester, ".vmrag/queries.yaml")
    mended.assert_outcomes(failed=1)
    mended.stdout.fnmatch_lines(["*none of its queries ran*"])


def test_project_without_knowledge_is_not_disturbed(pytester, monkeypatch, tmp_path):
    isolate(monkeypatch, tmp_path / "home")
    monkeypatch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")
    pytester.makepyfile("def test_own(): pass\n\ndef test_without_a_repository(kb): ...")
    result = run(pytester, "-W", "error")
    result.assert_outcomes(passed=1, errors=1)
    result.stdout.fnmatch_lines(
        ["*is not in a git repository.", "hint: change to a folder of your repository, or run 'git init' to create one"]
    )


def test_plugin_imports_nothing_but_itself_into_pytest():
    script = (
        "import pytest, sys, contextlib, functools, pathlib\n"
        "before = set(sys.modules)\n"
        f"import {PLUGIN}\n"
        "print(*sorted(set(sys.modules) - before))"
    )
    result = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert result.stdout.split() == [
        "vmrag_link",
        "vmrag_link.pytest_plugin",
        "vmrag_link.pytest_plugin.knowledge",
        PLUGIN,
    ]
