"""Options and output of the commands that write documents."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from msgspec import to_builtins

if TYPE_CHECKING:
    from vmrag_link.cli.base import Invocation
    from vmrag_link.workspace import Workspace
    from vmrag_link.workspace.documents.writing import WriteResult


@contextlib.contextmanager
def open_for_writing(invocation: Invocation) -> Iterator[Workspace]:
    """Open the work tree for a command that stores documents.

    If there is no knowledge base and no pin, a knowledge base is created. It is removed again if
    the command fails.
    """
    with invocation.workspace() as workspace, create_if_missing(workspace):
        yield workspace


@contextlib.contextmanager
def create_if_missing(workspace: Workspace) -> Iterator[None]:
    """Create a knowledge base, as `open_for_writing` does, unless the work tree has one."""
    if not workspace.stores_nothing:
        yield
        return
    from vmrag_link.cli.new_knowledge_base import create_for_documents  # rarely needed

    with create_for_documents(workspace):
        yield


def format_json_report(result: WriteResult[Any]) -> dict[str, Any]:
    """Return the JSON of `rm` and `restore`. `branch` is null without a change."""
    return {**to_builtins(result.report), "branch": result.branch, "pending": result.pending}
