from __future__ import annotations

from pathlib import Path

import pygit2
import pytest

from tests.operations import libgit2
from tests.operations.table import OPERATIONS, Operation
from tests.operations.test_operations import assert_answers, prepared, _home
from tests.operations.world import Copy, World

__all__ = ["_home", "prepared"]

BY_LIBGIT2 = [each for each in OPERATIONS if each.name in libgit2.BY_NAME]


@pytest.mark.parametrize("operation", BY_LIBGIT2, ids=lambda each: each.name)
def test_x(operation: Operation, prepared: World, tmp_path: Path) -> None:
    copy = Copy.prepared(prepared, tmp_path / "copy", operation)
    uncommitted = copy.uncommitted()
    libgit2.BY_NAME[operation.name](pygit2.Repository(copy.project.top))
    assert_answers(copy, prepared, tmp_path / "fresh")
    if operation.aside:
        assert uncommitted.pop(operation.start).items() <= copy.texts(copy.head(operation.aside)).items()
    assert copy.uncommitted() == uncommitted
