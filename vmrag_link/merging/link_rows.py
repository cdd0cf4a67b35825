"""Two tables of links become one, row by row. Pure.

Clones write links without asking each other, so the result is the same whichever comes first, and
however often.
"""

from __future__ import annotations

from collections.abc import Iterable

from msgspec.structs import astuple, replace

from vmrag_link.models import Link

AUTHOR = "vmrag <vmrag@localhost>"
"""Who commits links: who links is not who knows."""


def additions(there: Iterable[Link], more: Iterable[Link]) -> list[Link]:
    """The rows of both tables joined that `there` lacks or has otherwise."""
    before = {each.git_commit: each for each in there}
    after = dict(before)
    for each in more:
        known = after.get(each.git_commit)
        after[each.git_commit] = joined(known, each) if known else each
    return [row for commit, row in sorted(after.items()) if row != before.get(commit)]


def joined(one: Link, other: Link) -> Link:
    """What two rows of one commit say together.

    A link that was made by hand wins, then the one of the later revision. A commit that was
    replaced stays so, whichever wins.
    """
    lower, upper = sorted((one, other), key=lambda each: (_rank(each), astuple(each)))
    if _rank(lower) == _rank(upper):  # they differ in what one of the clones did not know
        upper = Link(*map(max, zip(astuple(lower), astuple(upper), strict=True)))
    return replace(upper, superseded_by=max(lower.superseded_by, upper.superseded_by))


def _rank(link: Link) -> tuple[bool, str, str, str]:
    return link.source == "manual", link.linked_at.removesuffix("Z"), link.dolt_commit, link.dolt_branch
