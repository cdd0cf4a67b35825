"""Tables of links become one, whichever comes first."""

from __future__ import annotations

import itertools
import random
from functools import reduce

from msgspec.structs import replace

from vmrag_link.merging.rows import join_links, list_link_additions
from vmrag_link.models import Link

ONE, OTHER = "a" * 40, "b" * 40
PIN = Link("1" * 40, ONE, "main", linked_at="2026-01-02T00:00:00Z")
LATER = replace(PIN, dolt_commit=OTHER, linked_at="2026-01-02T00:00:00.5Z")
BY_HAND = replace(PIN, dolt_commit=OTHER, linked_at="2025-01-01T00:00:00Z", source="manual")


def test_manual_link_wins_before_the_link_of_later_revision() -> None:
    assert join_links(PIN, LATER) == LATER
    assert join_links(LATER, BY_HAND) == BY_HAND
    assert join_links(BY_HAND, replace(BY_HAND, dolt_commit=ONE, linked_at=LATER.linked_at)).dolt_commit == ONE


def test_joined_links_keep_fields_of_both_clones() -> None:
    branch, url = replace(PIN, git_branch="topic"), replace(PIN, git_repo_url="https://host/code")
    assert join_links(branch, url) == replace(branch, git_repo_url=url.git_repo_url)


def test_commit_that_was_replaced_stays_so() -> None:
    assert join_links(replace(PIN, superseded_by="2" * 40), BY_HAND) == replace(BY_HAND, superseded_by="2" * 40)


def test_order_in_which_tables_meet_does_not_matter() -> None:
    draw = random.Random(22)
    fields = {
        "dolt_commit": (ONE, OTHER),
        "linked_at": (PIN.linked_at, LATER.linked_at, ""),
        "source": ("pin", "manual"),
        "git_branch": ("", "topic", "main"),
        "superseded_by": ("", "2" * 40),
    }
    for _ in range(200):
        rows = [replace(PIN, **{name: draw.choice(values) for name, values in fields.items()}) for _ in range(4)]
        result = {reduce(join_links, order) for order in itertools.permutations(rows)}
        assert len(result) == 1
        assert {join_links(result.copy().pop(), row) for row in rows} == result


def test_only_rows_that_change_are_additions() -> None:
    other = replace(PIN, git_commit="2" * 40)
    assert list_link_additions([PIN, other], [LATER, other]) == [LATER]
    assert list_link_additions([LATER], [PIN, other]) == [other]
    assert list_link_additions([PIN], []) == []
