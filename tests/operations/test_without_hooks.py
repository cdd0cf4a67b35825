"""Programs that run no hooks move HEAD as they like: the next command, and the next call of a tool,
answers from the pinned knowledge.
"""

from __future__ import annotations

import dataclasses
import os
import re
import shutil
import subprocess
from pathlib import Path

import pygit2
import pytest

from tests.operations import jj, libgit2
from tests.operations.table import OPERATIONS, Operation
from tests.operations.test_operations import _home, assert_answers, outcome, prepared, refused
from tests.operations.world import Copy, World
from tests.support.long import one_of_each
from tests.support.mcp import Tools

__all__ = ["_home", "prepared"]

pytestmark = pytest.mark.hooks("off")

NAMED = {operation.name: operation for operation in OPERATIONS}
UNMERGED = ("git cherry-pick -n", "git merge --no-commit", "git merge, stopped by a conflict")
"""Operations without a merge driver, so the pin is in conflict; each answer names vmrag resolve."""

GIT = [int(match) for match in re.findall(r"\d+", subprocess.run(["git", "version"], capture_output=True, text=True, check=True).stdout)]  # fmt: skip
FETCHES = [2, 41]

OF_JJ = {
    "JJ_CONFIG": os.devnull,
    "JJ_USER": "Someone",
    "JJ_EMAIL": "someone@example.com",
    "JJ_OP_HOSTNAME": "here",
    "JJ_OP_USERNAME": "me",
}


def operations(names: dict[str, object]) -> list[Operation]:
    rows = [NAMED[name] for name in names]
    return [dataclasses.replace(row, answers="malformed") if row.name in UNMERGED else row for row in rows]


def by_libgit2(copy: Copy) -> None:
    libgit2.BY_NAME[copy.operation.name](pygit2.Repository(copy.project.top))


def by_jj(copy: Copy) -> None:
    if any("git fetch" in line or "git clone" in line for line in jj.BY_NAME[copy.operation.name]) and GIT < FETCHES:
        pytest.skip("jj fetches by git 2.41 or later")
    for command in ("jj git init --colocate", *jj.BY_NAME[copy.operation.name]):
        line = command.replace("jj ", "jj --ignore-immutable ", 1) if command.startswith("jj ") else command
        result = subprocess.run(line, shell=True, cwd=copy.project.top, env=os.environ | OF_JJ, capture_output=True, text=True, check=False)  # fmt: skip
        assert result.returncode == 0, (command, result)


def kinds(operation: Operation) -> tuple[object, ...]:
    return outcome(operation), operation.where


@pytest.mark.parametrize(
    "operation", one_of_each(operations(libgit2.BY_NAME), kinds, refused), ids=lambda operation: operation.name
)
@pytest.mark.sample(4)
def test_next_command_and_call_are_right_after_libgit2(operation, prepared, tmp_path):
    are_right(operation, prepared, tmp_path, by_libgit2)


@pytest.mark.skipif(shutil.which("jj") is None, reason="jj is not installed")
@pytest.mark.parametrize(
    "operation", one_of_each(operations(jj.BY_NAME), kinds, refused), ids=lambda operation: operation.name
)
@pytest.mark.sample(4)
def test_next_command_and_call_are_right_after_jj(operation, prepared, tmp_path):
    are_right(operation, prepared, tmp_path, by_jj)


def are_right(operation: Operation, prepared: World, tmp_path: Path, does) -> None:
    copy = Copy.prepared(prepared, tmp_path / "command", operation)
    twin = copy.twin(tmp_path / "tool")
    uncommitted = copy.uncommitted()
    tools = Tools(twin.project.top)
    tools("chroma_list_collections")  # what a server has open is from before

    does(copy)
    assert_answers(copy, prepared, tmp_path / "fresh")
    if operation.aside:
        assert uncommitted.pop(operation.start).items() <= copy.texts(copy.head(operation.aside)).items()
    assert copy.uncommitted() == uncommitted

    does(twin)
    if operation.answers == "no work tree":
        return
    answer = (tools if operation.where == "." else Tools(twin.where.top))(
        "chroma_query_documents", query_texts=["winter"]
    )
    assert answer["ids"][0][0] == "winter.md"
    assert answer["kb"]["in_sync"] == (operation.answers == "pin")
    assert answer["kb"]["commit"] == prepared.revisions.get(operation.pin, answer["kb"]["commit"])
