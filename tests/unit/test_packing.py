"""Pieces of documents in a budget of tokens."""

from __future__ import annotations

import time
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from vmrag_link.documents.chunking import HeaderPaths
from vmrag_link.models import IndexedPiece
from vmrag_link.workspace.answers.packing import (
    PackableDocument,
    PackableHit,
    Packed,
    estimate_tokens,
    pack_hits,
    signature_above,
    whole_symbol,
)

COMMIT = "1a2b3c4d" * 5


def document(text: str, doc_id: str = "src/a.py", **fields: Any) -> PackableDocument:
    header_fields = {"collection": "code", "path": doc_id, "above": 0, "commit": COMMIT}
    return PackableDocument(doc_id=doc_id, text=text, **header_fields | fields)


def part(start: int, symbol: str = "", kind: str = "", signature: str = "") -> IndexedPiece:
    return IndexedPiece(start, 1, symbol, kind, signature, ())


def spans(text: str, size: int) -> list[tuple[int, int]]:
    """Return spans of a number of lines each."""
    ends = [at + 1 for at, character in enumerate(text) if character == "\n"]
    cuts = [0, *ends[size - 1 :: size]]
    return list(pairwise(cuts if cuts[-1] == len(text) else [*cuts, len(text)]))


def ranked(*pieces: tuple[str, tuple[int, int]]) -> list[PackableHit]:
    return [PackableHit(rank, key, (span,)) for rank, (key, span) in enumerate(pieces, start=1)]


def places(packed: Packed) -> list[tuple[str | None, tuple[int, int] | None]]:
    return [(passage.path, passage.lines) for passage in packed.passages]


LINES = "".join(f"    line_{number} = {number}\n" for number in range(1, 41))
FIVES = spans(LINES, 5)


def test_adjacent_pieces_are_one_passage_with_exact_lines():
    packed = pack_hits(ranked(("a", FIVES[3]), ("a", FIVES[1]), ("a", FIVES[2])), {"a": document(LINES)}, 1000)
    [passage] = packed.passages
    assert passage.lines == (6, 20)
    assert passage.text == "\n".join(LINES.split("\n")[5:20])
    assert (passage.rank, packed.left_out) == (1, 0)
    assert passage.head == "src/a.py:6-20  (1a2b3c4)"


def test_overlapping_pieces_are_one_passage():
    hits = ranked(("a", (FIVES[0][0], FIVES[1][0] + 9)), ("a", FIVES[1]), ("a", FIVES[5]))
    assert places(pack_hits(hits, {"a": document(LINES)}, 1000)) == [("src/a.py", (1, 10)), ("src/a.py", (26, 30))]


def test_documents_are_ordered_by_best_piece_and_passages_by_text():
    both = {"a": document(LINES), "b": document(LINES, "src/b.py")}
    packed = pack_hits(ranked(("b", FIVES[4]), ("a", FIVES[0]), ("b", FIVES[1])), both, 1000)
    assert places(packed) == [("src/b.py", (6, 10)), ("src/b.py", (21, 25)), ("src/a.py", (1, 5))]
    assert [passage.rank for passage in packed.passages] == [3, 1, 2]


def test_partial_lines_are_completed_and_surrounding_blank_lines_removed():
    text = "\n\n    first\n        second\n\n\nthird\n"
    [passage] = pack_hits(ranked(("a", (0, text.index("cond")))), {"a": document(text)}, 1000).passages
    assert (passage.text, passage.lines) == ("    first\n        second", (3, 4))
    [passage] = pack_hits(ranked(("a", (text.index("irst"), text.index("hird")))), {"a": document(text)}, 1000).passages
    assert (passage.text, passage.lines) == ("    first\n        second\n\n\nthird", (3, 7))


def test_piece_within_a_long_line_is_marked_as_cut():
    text = "x" * 10_000 + "\n"
    [passage] = pack_hits(ranked(("a", (4000, 4500))), {"a": document(text)}, 1000).passages
    assert (len(passage.text), passage.lines, passage.cut) == (500, (1, 1), "within a line")
    assert passage.head == "src/a.py:1  (1a2b3c4, cut within a line)"


def test_oversized_piece_is_left_out_for_smaller_ones():
    long = document("y = 1\n" * 500, "src/long.py")
    hits = ranked(("a", FIVES[0]), ("long", (0, len(long.text))), ("a", FIVES[4]))
    packed = pack_hits(hits, {"a": document(LINES), "long": long}, 100)
    assert places(packed) == [("src/a.py", (1, 5)), ("src/a.py", (21, 25))]
    assert packed.left_out == 1


def test_search_for_smaller_pieces_ends():
    long, small = document("y = 1\n" * 500, "src/long.py"), document("z = 1\n", "src/z.py")
    hits = ranked(("a", FIVES[0]), *[("long", (0, len(long.text)))] * 50, ("small", (0, 6)))
    documents = {"a": document(LINES), "long": long, "small": small}
    assert places(pack_hits(hits, documents, 200)) == [("src/a.py", (1, 5))]
    assert len(pack_hits([hits[0], *hits[2:]], documents, 200).passages) == 2


@pytest.mark.parametrize("budget", [20, 30, 50, 100])
def test_oversized_best_piece_is_cut_at_a_line_end(budget):
    packed = pack_hits(ranked(("a", (0, len(LINES))), ("a", FIVES[0])), {"a": document(LINES)}, budget)
    [passage] = packed.passages
    count = passage.text.count("\n") + 1
    assert passage.text == "\n".join(LINES.split("\n")[:count])
    assert (passage.cut, passage.lines, packed.left_out) == ("to fit", (1, count), 1)
    assert packed.tokens == passage.tokens <= budget
    more = estimate_tokens("\n".join([*passage.shown_lines, "  " + LINES.split("\n")[count], "", ""]))
    assert more > budget, "another line would have fitted"


def test_overlong_line_is_cut_to_a_number_of_characters():
    packed = pack_hits(ranked(("a", (0, 1500))), {"a": document("ä" * 1500)}, 100)
    [passage] = packed.passages
    assert set(passage.text) == {"ä"}
    assert 98 <= passage.tokens <= 100


CLASS = "class Keys(Base):\n    days = 3\n\n    def rotate(self):\n        one\n        two\n\n    def drop(self):\n        three\n"
AT = [0, CLASS.index("    def rotate"), CLASS.index("        two"), CLASS.index("    def drop")]
PIECES = (
    part(AT[0], "Keys", "class", "class Keys(Base)"),
    part(AT[1], "Keys.rotate", "method", "def rotate(self)"),
    part(AT[2], "Keys.rotate", "method", "def rotate(self)"),
    part(AT[3], "Keys.drop", "method", "def drop(self)"),
)


def test_part_of_a_symbol_without_its_beginning_has_its_signature():
    keys = {"k": document(CLASS, pieces=PIECES)}
    [part] = pack_hits(ranked(("k", (AT[2], AT[3]))), keys, 1000).passages
    assert part.shown_lines == ["src/a.py:6  Keys.rotate  (1a2b3c4)", "  … def rotate(self)", "          two"]
    [whole] = pack_hits(ranked(("k", (AT[1], AT[2])), ("k", (AT[2], AT[3]))), keys, 1000).passages
    assert (whole.signature, whole.lines) == ("", (4, 6))
    [more] = pack_hits(ranked(("k", (AT[2], AT[3])), ("k", (AT[3], len(CLASS)))), keys, 1000).passages
    assert more.shown_lines[:2] == ["src/a.py:6-9  Keys.rotate, Keys.drop  (1a2b3c4)", "  … def rotate(self)"]


def test_symbol_begins_where_no_earlier_piece_contains_it():
    assert [signature_above(PIECES, number) for number in range(4)] == ["", "", "def rotate(self)", ""]
    rest = part(len(CLASS), "Keys", "class", "class Keys(Base)")
    assert signature_above([*PIECES, rest], 4) == "class Keys(Base)"
    other = part(0, "Other", "class", "class Other")
    assert signature_above([*PIECES, other, PIECES[1]], 5) == "", "another of that name"
    assert whole_symbol(PIECES, 1) == whole_symbol(PIECES, 2) == range(1, 3)
    assert whole_symbol(PIECES, 0) == range(1)
    assert whole_symbol([part(0)] * 3, 1) == range(1, 2)


def test_cut_symbol_is_completed_if_it_takes_at_most_a_fourth():
    body = "def long():\n" + LINES
    half = spans(body, 20)
    pieces = [part(start, "long", "function", "def long()") for start, _ in half]
    hits = [PackableHit(1, "a", ((0, len(body)), half[1]))]
    documents = {"a": document(body, pieces=pieces)}
    indented = "".join(f"  {line}\n" for line in body.splitlines())
    whole = estimate_tokens(f"src/a.py:1-41  long  (1a2b3c4)\n{indented}\n")
    assert places(pack_hits(hits, documents, 4 * whole)) == [("src/a.py", (1, 41))]
    [passage] = pack_hits(hits, documents, 4 * whole - 1).passages
    assert (passage.lines, passage.signature) == ((21, 40), "def long()")


def test_second_kind_takes_a_third_and_first_kind_the_rest():
    pages, pieces = ([f"{name}{number}" for number in range(20)] for name in ("page", "piece"))
    text = "".join(f"word_{number} " for number in range(30)) + "\n"
    held = {name: document(text, f"{name}.py", kind="document" if name in pages else "code") for name in pages + pieces}
    mixed = [name for pair in zip(pieces, pages, strict=True) for name in pair]
    packed = pack_hits(ranked(*((name, (0, len(text))) for name in mixed)), held, 1000)
    costs = [sum(row.tokens for row in packed.passages if row.kind == kind) for kind in ("document", "code")]
    assert packed.passages[0].kind == "code"
    assert 0 < costs[0] <= 1000 // 3 < costs[1]
    assert packed.left_out == len(mixed) - len(packed.passages)


def test_pieces_of_another_kind_use_the_rest_of_the_budget():
    text = "".join(f"word_{number} " for number in range(30)) + "\n"
    held = {str(number): document(text, f"{number}.py", kind="code" if number else "document") for number in range(20)}
    packed = pack_hits(ranked(*((name, (0, len(text))) for name in held)), held, 1000)
    assert [row.rank for row in packed.passages] == list(range(1, len(packed.passages) + 1))
    assert packed.tokens > 900


def test_neighbours_are_included_if_they_fit():
    hits = [PackableHit(1, "a", (FIVES[2],), (FIVES[1], FIVES[3]))]
    assert places(pack_hits(hits, {"a": document(LINES)}, 1000)) == [("src/a.py", (6, 20))]
    assert places(pack_hits(hits, {"a": document(LINES)}, 60)) == [("src/a.py", (6, 15))]


def test_head_names_the_document_if_no_file_has_these_lines():
    stored = document("text\n", "a.md", path=None, commit=None, revision=COMMIT, collection="notes")
    assert pack_hits(ranked(("a", (0, 5))), {"a": stored}, 100).passages[0].head == "notes/a.md:1  (1a2b3c4)"
    alone = document("text\n", "a.md", path=None, commit=None, above=None, collection="notes")
    assert pack_hits(ranked(("a", (0, 5))), {"a": alone}, 100).passages[0].head == "notes/a.md  (not versioned)"
    edited = document(
        "# Top\n\ntext\n", "a.md", above=3, headings=HeaderPaths("# Top\n\ntext\n"), uncommitted="modified"
    )
    assert (
        pack_hits(ranked(("a", (7, 12))), {"a": edited}, 100).passages[0].head == "a.md:6  Top  (1a2b3c4, uncommitted)"
    )


def test_empty_input_packs_nothing():
    assert pack_hits([], {}, 100) == Packed((), 0, 0)


TEXTS = st.lists(st.sampled_from(["", "    ", "  x = 1", "y" * 90, "größe", "def f():"]), min_size=1, max_size=40).map(
    lambda lines: "".join(f"{line}\n" for line in lines)
)


@given(st.data(), st.integers(100, 2000))
def test_budget_is_not_exceeded_and_passages_are_lines_of_their_text(data, budget):
    texts = data.draw(st.lists(TEXTS, min_size=1, max_size=3))
    documents = {number: document(text, f"{number}.py") for number, text in enumerate(texts)}
    hits = []
    for rank in range(1, data.draw(st.integers(1, 12)) + 1):
        number = data.draw(st.integers(0, len(texts) - 1))
        some = spans(texts[number], data.draw(st.integers(1, 9)))
        hits.append(PackableHit(rank, number, (data.draw(st.sampled_from(some)),), tuple(some[:2])))
    packed = pack_hits(hits, documents, budget)
    shown = "".join(f"{line}\n" for passage in packed.passages for line in [*passage.shown_lines, ""])
    assert estimate_tokens(shown) <= packed.tokens == sum(passage.tokens for passage in packed.passages) <= budget
    assert min(passage.rank for passage in packed.passages) == 1
    for passage in packed.passages:
        first, last = passage.lines
        assert passage.text == "\n".join(texts[int(passage.path.removesuffix(".py"))].split("\n")[first - 1 : last])
    for one, other in pairwise(packed.passages):
        assert one.path != other.path or one.lines[1] < other.lines[0]
    assert packed == pack_hits(hits, documents, budget)


def test_many_hits_in_a_long_text_take_no_time_without_end():
    text = "".join(f"## Section {number}\n\nwords of {number}\n\n" for number in range(10_000))
    many = [("a", span) for span in spans(text, 4)[::10]]
    begun = time.process_time()
    packed = pack_hits(ranked(*many), {"a": document(text, headings=HeaderPaths(text))}, 1_000_000)
    assert time.process_time() - begun < 10
    assert packed.passages[-1].heading == "Section 9990"
