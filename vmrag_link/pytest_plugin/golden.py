"""`pytest .vmrag/queries.yaml`: each golden query is a test."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from vmrag_link.errors import VmragError
from vmrag_link.golden.queries import UPDATE, ranking_changes
from vmrag_link.ops.checks.check_queries import CheckedQuery, check_queries
from vmrag_link.pytest_plugin.knowledge import Workspaces
from vmrag_link.terminal_text import one_line

OUTDATED = "recorded rankings"


class GoldenQueries(pytest.File):
    """All queries are asked when the file is collected, of one open index."""

    def __init__(self, *, workspaces: Workspaces, **given: Any) -> None:
        super().__init__(**given)
        self._workspaces = workspaces

    def collect(self) -> Iterator[pytest.Item]:
        try:
            report = check_queries(self._workspaces.around(self.path.parent.parent))
        except VmragError as error:
            raise self.CollectError(f"{error.message}\nhint: {error.hint}") from error
        for each in report.queries:
            # no part of a node id ends in `::`
            yield _item(self, one_line(each.name).replace("::", ":"), each.line, list(_lines(each)))
        if report.outdated:
            yield _item(self, OUTDATED, 1, [f"{report.outdated} To record them again: {UPDATE}"])


class GoldenItem(pytest.Item):
    """A query with what it misses; nothing where it gets what it expects."""

    def __init__(self, *, line: int, missed: list[str], **given: Any) -> None:
        super().__init__(**given)
        self._line = line
        self._missed = missed

    def runtest(self) -> None:
        if self._missed:
            raise _Missed("\n".join(self._missed))

    def repr_failure(self, excinfo: pytest.ExceptionInfo[BaseException], style: Any = None) -> Any:
        return str(excinfo.value) if isinstance(excinfo.value, _Missed) else super().repr_failure(excinfo, style)

    def reportinfo(self) -> tuple[Path, int, str]:
        return self.path, self._line - 1, self.name


class _Missed(Exception):
    pass


def _item(parent: GoldenQueries, name: str, line: int, missed: list[str]) -> GoldenItem:
    item: GoldenItem = GoldenItem.from_parent(parent, name=name, line=line, missed=missed)
    return item


def _lines(each: CheckedQuery) -> Iterator[str]:
    for miss in each.misses:
        yield one_line(f"{miss.kind}: {miss.message}")
        changes = ranking_changes(each.ranking or (), each.found) if miss.kind == "ranking" else miss.sides
        yield from (one_line(f"    {change}") for change in changes)
