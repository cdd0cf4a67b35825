"""The retriever for LlamaIndex, in its query engine, with a scripted model."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from tests.support.repos import isolate
from tests.support.sources import sourced_project
from tests.support.terminal import Project

pytestmark = pytest.mark.hooks("off")


def build_model() -> Any:
    """Return a scripted language model, which answers with the prompt that it gets.

    LlamaIndex is imported here, because its import takes a second in each process that collects
    this module.
    """
    from llama_index.core.llms import CompletionResponse, CompletionResponseGen, CustomLLM, LLMMetadata
    from llama_index.core.llms.callbacks import llm_completion_callback

    class StandInModel(CustomLLM):
        @property
        def metadata(self) -> LLMMetadata:
            return LLMMetadata(model_name="StandInModel")

        @llm_completion_callback()
        def complete(self, prompt: str, formatted: bool = False, **options: Any) -> CompletionResponse:
            return CompletionResponse(text=prompt)

        @llm_completion_callback()
        def stream_complete(self, prompt: str, formatted: bool = False, **options: Any) -> CompletionResponseGen:
            yield CompletionResponse(text=prompt)

    return StandInModel()


@pytest.fixture
def sourced(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Project:
    isolate(monkeypatch, tmp_path / "home")
    return sourced_project(tmp_path / "sourced")


def test_query_engine_gives_passages_to_its_model(sourced):
    from llama_index.core.query_engine import RetrieverQueryEngine

    from vmrag_link.llama_index import VmragRetriever

    retriever = VmragRetriever(sourced.top, k=2, search_kwargs={"kind": "function"})
    answer = RetrieverQueryEngine.from_args(retriever, llm=build_model()).query("what does f do")
    (node,) = answer.source_nodes
    commit = sourced.git("rev-parse", "HEAD")
    expected = {"path": "src/a.py", "lines": [1, 2], "symbol": "f", "commit": commit}
    assert {name: node.metadata[name] for name in expected} == expected
    assert "def f():\n    pass" in answer.response
    assert "source: src/a.py:1-2" in answer.response
    assert "score" not in answer.response
    assert node.node_id == f"{commit}:src/a.py:1-2"
    assert node.score == retriever.kb.search("what does f do", k=1, kind="function")[0].score


def test_retriever_is_async(sourced):
    from vmrag_link.llama_index import VmragRetriever

    retriever = VmragRetriever(sourced.top, k=3)
    nodes = asyncio.run(retriever.aretrieve("page"))
    assert [node.node_id for node in nodes] == [node.node_id for node in retriever.retrieve("page")]
    assert len(nodes) == 3
