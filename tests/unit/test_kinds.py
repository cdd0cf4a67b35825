"""One list of documents and code."""

from __future__ import annotations

from typing import NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

from vmrag_link.models import ContentKind
from vmrag_link.retrieval.kinds import alternate_kinds, prefers_code
from vmrag_link.retrieval.query import group_by_kind


class Result(NamedTuple):
    number: int
    kind: ContentKind


LENGTHS = st.integers(0, 30)


def test_kinds_alternate_for_six_results_then_first_gets_two_thirds():
    assert alternate_kinds("abcdefgh", "123456") == list("a1b2c3de4fg5h6")
    assert alternate_kinds("abcd", "1") == list("a1bcd")
    assert alternate_kinds("", "12") == ["1", "2"]


@given(LENGTHS, LENGTHS, st.integers(1, 40))
def test_alternate_keeps_orders_and_gives_the_second_list_a_third(first, second, k):
    ones, others = list(range(first)), list(range(100, 100 + second))
    merged = alternate_kinds(ones, others)
    assert [row for row in merged if row < 100] == ones
    assert [row for row in merged if row >= 100] == others
    shown = merged[:k]
    if k > 1:
        assert sum(row >= 100 for row in shown) >= min(second, k // 3)
        assert sum(row < 100 for row in shown) >= min(first, k // 2)


@pytest.mark.parametrize("text", ["how do I undo an import", "What is a KB branch?", "Why are pins files"])
def test_documents_begin_for_a_question_unless_code_is_far_nearer(text):
    assert not prefers_code(text, 60, 100)
    assert prefers_code(text, 40, 100)


def test_nearer_kind_begins_without_words_of_a_question_or_about_code():
    assert prefers_code("key rotation", 99, 100)
    assert not prefers_code("key rotation", 100, 80)


def test_code_begins_for_words_about_code_unless_documents_are_far_nearer():
    assert prefers_code("Return the pinned revision", 100, 80)
    assert not prefers_code("Return the pinned revision", 100, 70)
    assert prefers_code("the function that retries", 100, 80)
    assert not prefers_code("the classic functionality", 100, 80)


def test_groups_have_titles_only_if_both_kinds_answer():
    mixed = [Result(1, "code"), Result(2, "document"), Result(3, "code")]
    assert group_by_kind(mixed) == [("Code", mixed[0]), ("", mixed[2]), ("Documentation", mixed[1])]
    assert group_by_kind(mixed[:1]) == [("", mixed[0])]
    assert group_by_kind([]) == []
