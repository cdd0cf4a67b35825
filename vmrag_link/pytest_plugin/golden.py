"""`pytest .vmrag/queries.yaml`: each golden query is a test."""

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

    def _item(self, name: str, line: int, missed: Callable[[], Iterator[str]]) -> pytest.Item:
        item: pytest.Item = GoldenItem.from_parent(self, name=name, line=line, missed=missed)
        return item

    @property
    def _workspace(self) -> Workspace:
        return self._workspaces.around(self.path.parent.parent)

    def _load(self) -> Iterator[str]:
        golden_file.load_queries(self._workspace)
        yield f"{QUERIES_NAME} was fixed after its collection, so none of its queries ran."

    def _ask(self, number: int) -> Iterator[str]:
        report = check_queries(self._workspace, only=number)
        return _lines(report.queries[0])

    def _compare_settings(self) -> Iterator[str]:
        ws = self._workspace
        golden = golden_file.load_queries(ws).golden
        if reason := explain_outdated(golden, list_ranking_changes(golden, ws.config.retrieval)):
            yield f"{reason} To record them again: {UPDATE}"


class GoldenItem(pytest.Item):
    """A query, which runs as a test. `missed` returns the lines about its failure."""

    def __init__(self, *, line: int, missed: Callable[[], Iterator[str]], **given: Any) -> None:
        super().__init__(**given)
        self._line = line
        self._missed = missed

    def runtest(self) -> None:
        try:
            missed = list(self._missed())
        except VmragError as error:
            raise _Missed(f"{error.message}\nhint: {error.hint}") from error
        if missed:
            raise _Missed("\n".join(missed))

    def repr_failure(self, excinfo: pytest.ExceptionInfo[BaseException], style: Any = None) -> Any:
        return str(excinfo.value) if isinstance(excinfo.value, _Missed) else super().repr_failure(excinfo, style)

    def reportinfo(self) -> tuple[Path, int, str]:
        return self.path, self._line - 1, self.name


class _Missed(Exception):
    pass


def _lines(query: CheckedQuery) -> Iterator[str]:
    for miss in query.misses:
        yield escape_line(f"{miss.kind}: {miss.message}")
        changes = compare_rankings(query.ranking or (), query.chunks) if miss.kind == "ranking" else miss.sides
        yield from (escape_line(f"    {change}") for change in changes)
