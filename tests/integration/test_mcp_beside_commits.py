"""Calls beside a commit of another process: a commit moves the KB branch first, and the pin
then.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from tests.support import terminal
from tests.support.mcp import Tools
from vmrag_link.workspace import Workspace
from vmrag_link.workspace.pins import pinning

template, project = terminal.template, terminal.project

COUNT = 5
"""Documents of the collection, the new one among them."""


@pytest.fixture
def tools(project) -> Tools:
    project.put("new.md", "all about zebras")
    return Tools(project.top)


@pytest.fixture
def commit_beside(project, tools, monkeypatch) -> Iterator[None]:
    """Once, when this thread has looked for interrupted commits, another process commits; it takes
    its time between branch and pin.
    """
    caller, committed = threading.get_ident(), threading.Event()
    write_pin = pinning.write_pin
    other = threading.Thread(target=lambda: Tools(project.top)("dolt_commit", message="from elsewhere"))

    def later(*arguments: Any, **keywords: Any) -> Any:
        committed.set()
        time.sleep(0.3)
        return write_pin(*arguments, **keywords)

    def beside(step: Callable[..., Any]) -> Callable[..., Any]:
        def around(ws: Workspace, **keywords: Any) -> Any:
            if threading.get_ident() == caller and not other.ident:
                other.start()
                assert committed.wait(10)
            return step(ws, **keywords)

        return around

    monkeypatch.setattr(pinning, "write_pin", later)
    monkeypatch.setattr(Workspace, "bring_to_pin", beside(Workspace.bring_to_pin))
    yield
    assert other.ident, "nothing was committed beside"
    other.join()


def seen_by(tools: Tools, name: str) -> dict[str, Any]:
    arguments = {
        "chroma_get_documents": {"ids": ["new.md"]},
        "chroma_query_documents": {"query_texts": ["zebras"]},
        "chroma_get_collection_count": {},
    }[name]
    return tools(name, collection_name="handbook", **arguments)


@pytest.mark.parametrize("name", ["chroma_get_documents", "chroma_query_documents", "chroma_get_collection_count"])
def test_tools_see_concurrent_commit_completely(project, tools, commit_beside, name):
    result = seen_by(tools, name)
    assert result["kb"]["commit"] == project.pinned
    assert result["kb"]["in_sync"]
    assert "new.md" in str(result) or result["count"] == COUNT


def test_concurrent_write_waits_for_the_pin_of_a_commit(project, tools, commit_beside):
    tools("chroma_add_documents", collection_name="handbook", documents=["more"], ids=["more.md"])
    assert tools("dolt_status")["local_changes"]["summary"]["total"] == 1
