"""Values that a shell proposes for arguments and options.

A proposal becomes a part of a command line, and the names are untrusted. So only names that every
shell takes as a word are proposed. Nothing is updated, fetched or printed.
"""

from __future__ import annotations

import itertools
import re
import time
from collections.abc import Callable, Iterable, Iterator

import click
from click.shell_completion import CompletionItem

from vmrag_link.cli.common import find_directory
from vmrag_link.engines.own_branches import is_reserved
from vmrag_link.errors import VmragError
from vmrag_link.git.run import run_git
from vmrag_link.progress import QUIET
from vmrag_link.workspace import Workspace

_MAX_PROPOSALS = 100
_SEARCH_SECONDS = 0.5
"""Seconds after which the search for documents stops."""

_WORD = r"[\w./@%+=:,][\w./@%+=:,-]*"

_ListValues = Callable[[Workspace, click.Context, str], Iterable[str]]
"""Returns the possible values of a parameter. The text is what the user has typed of it."""


def complete_text(ctx: click.Context, metavar: str, name: str, typed: str) -> list[CompletionItem]:
    """Return proposals for a parameter with this metavar and name."""
    words = set(re.findall(r"[A-Z-]+", metavar))
    lists = [list_values for metavars, list_values in _LISTS_BY_METAVAR if words & metavars]
    if not lists and name in _LIST_BY_NAME:
        lists = [_LIST_BY_NAME[name]]
    if not lists:
        return []
    try:
        ws = Workspace.open(find_directory(ctx), QUIET, patience=0)
        try:
            values = itertools.chain.from_iterable(list_values(ws, ctx, typed) for list_values in lists)
            fitting = (value for value in values if value.startswith(typed) and re.fullmatch(_WORD, value))
            return [CompletionItem(value) for value in itertools.islice(dict.fromkeys(fitting), _MAX_PROPOSALS)]
        finally:
            ws.close()
    except (VmragError, OSError):  # the user is typing; the command itself will report the error
        return []


def _list_references(ws: Workspace, ctx: click.Context, typed: str) -> Iterator[str]:  # noqa: ARG001
    listing = run_git(ws.places, "for-each-ref", "--format=%(refname:short)", "refs/heads", "refs/tags", "refs/remotes")
    yield from listing.text.split()
    yield from (branch.name for branch in ws.engine.list_branches() if not is_reserved(branch.name))


def _list_collections(ws: Workspace, ctx: click.Context, typed: str) -> Iterator[str]:  # noqa: ARG001
    yield from (collection.name for collection in ws.engine.list_collections(ws.locate_documents()))


def _list_documents(ws: Workspace, ctx: click.Context, typed: str) -> Iterator[str]:
    """Yield names `COLLECTION/DOC`, or ids if an option names the collection."""
    deadline = time.monotonic() + _SEARCH_SECONDS
    given = ctx.params.get("collection")
    for name in [given] if isinstance(given, str) else _list_collections(ws, ctx, typed):
        prefix = "" if isinstance(given, str) else f"{name}/"
        if not (prefix.startswith(typed) or typed.startswith(prefix)):
            continue
        for header in ws.engine.read_headers(ws.locate_documents(), collection=name):
            yield f"{prefix}{header.doc_id}"
            if time.monotonic() > deadline:
                return


def _list_range_ends(ws: Workspace, ctx: click.Context, typed: str) -> Iterator[str]:
    """Yield references, also as the other end of a range."""
    prefix = typed[: typed.rfind("..") + 2] if ".." in typed else ""
    yield from (f"{prefix}{reference}" for reference in _list_references(ws, ctx, typed))


_LISTS_BY_METAVAR: tuple[tuple[set[str], _ListValues], ...] = (
    ({"BASE", "HEAD", "KB-BRANCH", "OLD", "RANGE", "REF", "REVISION"}, _list_range_ends),
    ({"DOC"}, _list_documents),
)
_LIST_BY_NAME: dict[str, _ListValues] = {
    **dict.fromkeys(("collection", "collection_name"), _list_collections),
    **dict.fromkeys(("names", "only"), _list_documents),
    **dict.fromkeys(("commit_after", "commit_before", "git_commit", "ref", "repair", "revision"), _list_references),
}
