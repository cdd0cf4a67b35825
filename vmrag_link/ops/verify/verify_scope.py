"""Choose the commits that `vmrag verify` examines, from what the user typed."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import NamedTuple

from vmrag_link.errors import GitReferenceMissing, UsageInvalid, quoted
from vmrag_link.git import plumbing, transfer
from vmrag_link.paths import Places
from vmrag_link.workspace import Workspace
from vmrag_link.workspace.commits import deepen as deepening

LAST = "HEAD^..HEAD"
"""The range if HEAD has nothing new: HEAD, with what it merged."""


class VerifyScope(NamedTuple):
    """The commits that `tip` contains and `without` does not. `without` None: the whole history."""

    shown: str
    """The name of the range for git, such as `main..HEAD`."""
    tip: str
    without: str | None = None
    base: str = ""
    """The displayed name of `without`, if the tip's pin must contain its pin."""

    @property
    def ends(self) -> list[str]:
        return [self.tip, *([self.without] if self.without else [])]


def choose_scope(
    ws: Workspace, revisions: str | None, pull_request: tuple[str, str] | None, *, deepen: bool
) -> VerifyScope:
    """Return the commits to verify. The arguments are those of `verify.verify`.

    Raises `UsageInvalid`, `GitReferenceMissing`, and `HistoryMissing` if the history cannot be
    fetched.
    """
    if not deepen:
        return _parse_scope(ws, revisions, pull_request, plumbing.resolve_commit)
    scope = _parse_scope(ws, revisions, pull_request, deepening.resolve_name)
    if scope.without is None and revisions is None:  # perhaps because the clone lacks the parents of HEAD
        deepening.make_comparable(ws.places, None, scope.tip)
        news = _find_news(ws)
        scope = news if news.without else _find_last(ws)  # a checkout of one commit has no branch, either
    if scope.without:
        deepening.make_comparable(ws.places, scope.without, scope.tip)
    else:
        deepening.fetch_all_history(ws.places, scope.tip)
    return scope


def _parse_scope(
    ws: Workspace,
    revisions: str | None,
    pull_request: tuple[str, str] | None,
    resolve: Callable[[Places, str], str],
) -> VerifyScope:
    if pull_request:
        base, head = pull_request
        if revisions:
            raise UsageInvalid(
                "a range and '--pull-request' exclude each other.",
                hint=f"run 'vmrag verify --pull-request {quoted(base)} {quoted(head)}'",
            )
        return _build_range(ws, base, head, resolve)._replace(base=base)
    if revisions is None:
        return _find_news(ws)
    if "..." in revisions:
        first, _, second = revisions.partition("...")
        raise UsageInvalid(
            f"{revisions} compares two tips, but 'vmrag verify' checks the commits of one range.",
            hint=f"run 'vmrag verify --pull-request {quoted(first or 'HEAD')} {quoted(second or 'HEAD')}'",
        )
    if ".." in revisions:
        first, _, second = revisions.partition("..")
        return _build_range(ws, first or "HEAD", second or "HEAD", resolve)
    return VerifyScope(revisions, resolve(ws.places, revisions))


def _build_range(
    ws: Workspace, base: str, head: str, resolve: Callable[[Places, str], str] = plumbing.resolve_commit
) -> VerifyScope:
    return VerifyScope(f"{base}..{head}", tip=resolve(ws.places, head), without=resolve(ws.places, base))


def _find_news(ws: Workspace) -> VerifyScope:
    """Return HEAD without the remote's default branch or, if that is unknown, without the branch's
    upstream.

    If nothing is left, return HEAD alone.
    """
    for base in ("refs/remotes/origin/HEAD", "@{upstream}"):
        with contextlib.suppress(GitReferenceMissing):
            news = _build_range(ws, base, "HEAD")
            is_contained = news.without is not None and transfer.contains_commit(ws.places, news.without, news.tip)
            return _find_last(ws) if is_contained else news
    return VerifyScope("HEAD", plumbing.resolve_commit(ws.places, "HEAD"))


def _find_last(ws: Workspace) -> VerifyScope:
    """Return HEAD, with what it merged if it is a merge."""
    with contextlib.suppress(GitReferenceMissing):  # a root, or the end of a shallow clone
        return _build_range(ws, "HEAD^", "HEAD")
    return VerifyScope("HEAD", plumbing.resolve_commit(ws.places, "HEAD"))
