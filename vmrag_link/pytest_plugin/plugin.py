"""Hooks and fixtures of pytest."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from vmrag_link.pytest_plugin.knowledge import Kb, Workspaces

if TYPE_CHECKING:
    from vmrag_link.pytest_plugin.golden import GoldenQueries

MARKER = "kb_at"

_WORKSPACES = pytest.StashKey[Workspaces]()


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", f"{MARKER}(ref): the fixture `kb` is the knowledge that this git ref pins")
    config.stash[_WORKSPACES] = Workspaces()


def pytest_unconfigure(config: pytest.Config) -> None:
    config.stash[_WORKSPACES].close()


def pytest_collect_file(file_path: Path, parent: pytest.Collector) -> GoldenQueries | None:
    """Collect `.vmrag/queries.yaml` if a user names it.

    pytest does not look into folders that begin with a dot.
    """
    if (file_path.parent.name, file_path.name) != (".vmrag", "queries.yaml"):
        return None
    from vmrag_link.pytest_plugin.golden import GoldenQueries

    collected: GoldenQueries = GoldenQueries.from_parent(
        parent, path=file_path, workspaces=parent.config.stash[_WORKSPACES]
    )
    return collected


@pytest.fixture
def kb(request: pytest.FixtureRequest) -> Kb:
    """The documents that the code around the test pins, or those of the ref in its marker `kb_at`.

    The test fails with a helpful command if they are missing, or if another revision would answer.
    """
    from vmrag_link.errors import VmragError

    ref = _ref(request.node.get_closest_marker(MARKER))
    try:
        base = Kb(request.config.stash[_WORKSPACES].around(request.path.parent), ref)
        base.require()
    except VmragError as error:
        raise pytest.fail.Exception(f"{error.message}\nhint: {error.hint}", pytrace=False) from None
    return base


def _ref(marker: pytest.Mark | None) -> str | None:
    if marker is None:
        return None
    if not marker.kwargs and len(marker.args) == 1 and isinstance(marker.args[0], str):
        return marker.args[0]
    pytest.fail(f"The marker takes one git ref: @pytest.mark.{MARKER}('v1.0')", pytrace=False)
