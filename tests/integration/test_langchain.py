"""The retriever for LangChain: the standard tests of that project, unchanged, and its metadata."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from tests.support.repos import isolate
from tests.support.sources import commit, sourced_project
from tests.support.terminal import Project
from vmrag_link.errors import GitReferenceMissing, GitRepositoryMissing

pytest_plugins = ["pytester"]
pytestmark = pytest.mark.hooks("off")

STANDARD_TESTS = """
    from langchain_tests.integration_tests import RetrieversIntegrationTests
    from vmrag_link.langchain import VmragRetriever

    class TestVmragRetriever(RetrieversIntegrationTests):
        @property
        def retriever_constructor(self):
            return VmragRetriever

        @property
        def retriever_constructor_params(self):
            return {"repository": %r, "k": 2}

        @property
        def retriever_query_example(self):
            return "one page of a function"
"""


def open_retriever(**options: Any) -> Any:
    """Return a retriever. The import of LangChain takes long in each process that collects this
    module.
    """
    from vmrag_link.langchain import VmragRetriever

    return VmragRetriever(**options)


@pytest.fixture
def sourced(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Project:
    isolate(monkeypatch, tmp_path / "home")
    return sourced_project(tmp_path / "sourced")


@pytest.mark.long
def test_retriever_passes_the_standard_tests(sourced, pytester, monkeypatch):
    monkeypatch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")
    pytester.makepyfile(STANDARD_TESTS % str(sourced.top))
    plugins = ("-p", "pytest_asyncio.plugin", "-p", "no:cacheprovider")
    run = pytester.runpytest_subprocess(*plugins, "-o", "asyncio_mode=auto")
    run.assert_outcomes(passed=5)


def test_retriever_returns_places_as_metadata(sourced):
    retriever = open_retriever(repository=str(sourced.top), k=1)
    (document,) = retriever.invoke("f", symbol="f")
    expected = {"path": "src/a.py", "lines": [1, 2], "symbol": "f", "commit": sourced.git("rev-parse", "HEAD")}
    assert {name: document.metadata[name] for name in expected} == expected
    assert document.page_content == "def f():\n    pass"
    assert document.id == f"{expected['commit']}:src/a.py:1-2"
    assert asyncio.run(retriever.ainvoke("f", symbol="f")) == [document]
    assert len(retriever.batch(["f", "page"])) == 2


def test_retriever_answers_from_a_release(sourced):
    release = sourced.git("rev-parse", "HEAD")
    commit(sourced, "later", **{"src/a.py": "def g():\n    pass\n"})
    options = {"repository": str(sourced.top), "search_kwargs": {"path": "src/"}}
    (old,), (new,) = (open_retriever(**options, at=at).invoke("pass") for at in (release, None))
    assert (old.metadata["symbol"], new.metadata["symbol"]) == ("f", "g")


def test_retriever_raises_errors_with_hints(sourced, tmp_path):
    with pytest.raises(GitRepositoryMissing):
        open_retriever(repository=str(tmp_path))
    with pytest.raises(GitReferenceMissing) as raised:
        open_retriever(repository=str(sourced.top), at="nowhere").invoke("page")
    assert raised.value.hint
