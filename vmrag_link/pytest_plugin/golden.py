"""`pytest .vmrag/queries.yaml`: each golden query is a test.

A test calls a function that yields the lines about its failure. If it yields none, the test passes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from vmrag_link.errors import QueriesInvalid, VmragError
from vmrag_link.file_access import read_regular
from vmrag_link.golden import file
from vmrag_link.golden.queries import UPDATE, compare_rankings, name_queries
from vmrag_link.ops.check.check_queries import CheckedQuery, check_queries, explain_outdated, list_ranking_changes
from vmrag_link.paths import QUERIES_NAME
from vmrag_link.pytest_plugin.knowledge import Workspaces
from vmrag_link.terminal_text import escape_line
from vmrag_link.workspace.answers import golden_file

if TYPE_CHECKING:
    from vmrag_link.workspace import Workspace

FILE = "the file of golden queries"
OUTDATED = "recorded rankings"


class GoldenQueries(pytest.File):
    """The queries of a file.

    The collection reads only the file: no knowledge base, index, model or network. If one of these
    or the file is invalid, a test fails, and all other tests run.
    """

    def __init__(self, *, workspaces: Workspaces, **given: Any) -> None:
        super().__init__(**given)
        self._workspaces = workspaces

    def collect(self) -> Iterator[pytest.Item]:
        try:
            golden = file.parse_queries(read_regular(self.path, file.MAX_BYTES + 1), QUERIES_NAME)
        except (OSError, QueriesInvalid):
            yield self._item(FILE, 1, self._load)
            return
        for number, (query, name) in enumerate(zip(golden.queries, name_queries(golden.queries), strict=True)):
            # no part of a node id ends in `::`
            yield self._item(escape_line(name).replace("::", ":"), query.line, partial(self._ask, number))
        if golden.recorded and any(query.ranking for query in golden.queries):
            yield self._item(OUTDATED, 1, self._compare_settings)

    def _item(self, name: str, line: int, check: Callable[[], Iterator[str]]) -> pytest.Item:
        item: pytest.Item = GoldenItem.from_parent(self, name=name, line=line, check=check)
        return item

    @property
    def _workspace(self) -> Workspace:
        return self._workspaces.around(self.path.parent.parent)

    def _load(self) -> Iterator[str]:
        golden_file.load_queries(self._workspace)
        yield f"{QUERIES_NAME} was fixed after its collection, so none of its queries ran."

    def _ask(self, number: int) -> Iterator[str]:
        report = check_queries(self._workspace, only=number)
        return _format_misses(report.queries[0])

    def _compare_settings(self) -> Iterator[str]:
        ws = self._workspace
        golden = golden_file.load_queries(ws).golden
        reason = explain_outdated(golden, list_ranking_changes(golden, ws.config.retrieval))
        if reason:
            yield f"{reason} To record them again: {UPDATE}"


class GoldenItem(pytest.Item):
    """A test. `check`: yields the lines about its failure."""

    def __init__(self, *, line: int, check: Callable[[], Iterator[str]], **given: Any) -> None:
        super().__init__(**given)
        self._line = line
        self._check = check

    def runtest(self) -> None:
        try:
            lines = list(self._check())
        except VmragError as error:
            raise _QueryFailed(f"{error.message}\nhint: {error.hint}") from error
        if lines:
            raise _QueryFailed("\n".join(lines))

    def repr_failure(self, excinfo: pytest.ExceptionInfo[BaseException], style: Any = None) -> Any:
        return str(excinfo.value) if isinstance(excinfo.value, _QueryFailed) else super().repr_failure(excinfo, style)

    def reportinfo(self) -> tuple[Path, int, str]:
        return self.path, self._line - 1, self.name


class _QueryFailed(Exception):
    pass


def _format_misses(query: CheckedQuery) -> Iterator[str]:
    for miss in query.misses:
        yield escape_line(f"{miss.kind}: {miss.message}")
        changes = compare_rankings(query.ranking or (), query.chunks) if miss.kind == "ranking" else miss.sides
        for change in changes:
            yield escape_line(f"    {change}")
