"""What a shell proposes behind Tab for references, collections and documents.

A proposal becomes part of a command line, and these names are strangers': only those are proposed
that no shell takes for anything but a word. Nothing is brought up to date, fetched or said.
"""

from __future__ import annotations

import itertools
import re
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING

import click
from click.types import StringParamType

from vmrag_link.errors import VmragError

if TYPE_CHECKING:
    from click.shell_completion import CompletionItem

    from vmrag_link.workspace import Workspace

MOST = 100
"""Proposals: nobody reads more."""

SECONDS = 0.5
"""How long documents are looked through."""

_WORD = re.compile(r"[\w./@%+=:,][\w./@%+=:,-]*")

Values = Callable[["Workspace", click.Context, str], Iterable[str]]
"""What could stand there; `str` is what was typed of it."""


def attach(parameter: click.Parameter) -> None:
    """Let a parameter propose what its metavar or its name says that it takes."""
    named = set(re.findall(r"[A-Z-]+", parameter.metavar or ""))
    kinds = [values for words, values in _BY_METAVAR if words & named]
    if not kinds and parameter.name in _BY_NAME:
        kinds = [_BY_NAME[parameter.name]]
    if kinds and parameter.type is click.STRING:
        parameter.type = _Proposed(kinds)


class _Proposed(StringParamType):
    """A text."""

    def __init__(self, kinds: Sequence[Values]) -> None:
        self._kinds = kinds

    def shell_complete(
        self,
        ctx: click.Context,
        param: click.Parameter,  # noqa: ARG002
        incomplete: str,
    ) -> list[CompletionItem]:
        from click.shell_completion import CompletionItem

        try:
            return [CompletionItem(each) for each in _proposals(self._kinds, ctx, incomplete)]
        except (VmragError, OSError):  # a person is typing: the command itself will say it
            return []


def _proposals(kinds: Sequence[Values], ctx: click.Context, typed: str) -> list[str]:
    from vmrag_link.cli.common import directory_of
    from vmrag_link.progress import QUIET
    from vmrag_link.workspace import Workspace

    ws = Workspace.open(directory_of(ctx), QUIET, patience=0)
    try:
        found = itertools.chain.from_iterable(values(ws, ctx, typed) for values in kinds)
        fitting = (each for each in found if each.startswith(typed) and _WORD.fullmatch(each))
        return list(itertools.islice(dict.fromkeys(fitting), MOST))
    finally:
        ws.close()


def _references(ws: Workspace, ctx: click.Context, typed: str) -> Iterator[str]:  # noqa: ARG001
    from vmrag_link.engines.base import reserved
    from vmrag_link.git.run import git

    found = git(ws.places, "for-each-ref", "--format=%(refname:short)", "refs/heads", "refs/tags", "refs/remotes")
    yield from found.text.split()
    yield from (each.name for each in ws.engine.branches() if not reserved(each.name))


def _collections(ws: Workspace, ctx: click.Context, typed: str) -> Iterator[str]:  # noqa: ARG001
    yield from (each.name for each in ws.engine.collections(ws.at()))


def _documents(ws: Workspace, ctx: click.Context, typed: str) -> Iterator[str]:
    """`COLLECTION/DOC`, or ids where an option names the collection."""
    until = time.monotonic() + SECONDS
    named = ctx.params.get("collection")
    for name in [named] if isinstance(named, str) else _collections(ws, ctx, typed):
        before = "" if isinstance(named, str) else f"{name}/"
        if not (before.startswith(typed) or typed.startswith(before)):
            continue
        for header in ws.engine.headers(ws.at(), collection=name):
            yield f"{before}{header.doc_id}"
            if time.monotonic() > until:
                return


def _ends(ws: Workspace, ctx: click.Context, typed: str) -> Iterator[str]:
    """References, also as the other side of a range."""
    before = typed[: typed.rfind("..") + 2] if ".." in typed else ""
    yield from (f"{before}{each}" for each in _references(ws, ctx, typed))


_BY_METAVAR: tuple[tuple[set[str], Values], ...] = (
    ({"BASE", "HEAD", "KB-BRANCH", "OLD", "RANGE", "REF", "REVISION"}, _ends),
    ({"DOC"}, _documents),
)
_BY_NAME: dict[str, Values] = {
    **dict.fromkeys(("collection", "collection_name"), _collections),
    **dict.fromkeys(("names", "only"), _documents),
    **dict.fromkeys(("commit_after", "commit_before", "git_commit", "ref", "repair", "revision"), _references),
}
