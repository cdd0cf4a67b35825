"""How texts are cut."""

from __future__ import annotations

import itertools
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from vmrag_link.documents.chunking import MAX_CODE_SIZES, HeaderPaths, join_chunks, split_text
from vmrag_link.errors import UsageInvalid
from vmrag_link.models import Chunk, Chunking

PROSE = st.text(alphabet=st.sampled_from("ab .!\n\t\r。é\U0001f600"), max_size=400)


@st.composite
def chunkings(draw: st.DrawFn) -> Chunking:
    size = draw(st.integers(1, 60))
    return Chunking(size=size, overlap=draw(st.integers(0, size - 1)))


@given(PROSE | st.text(max_size=300), chunkings())
def test_pieces_cover_the_text_without_nesting(text: str, chunking: Chunking) -> None:
    pieces = split_text(text, chunking)
    assert [piece.number for piece in pieces] == list(range(len(pieces)))
    assert all(piece.text == text[piece.start : piece.end] for piece in pieces)
    assert all(piece.end - piece.start <= chunking.size for piece in pieces)
    assert pieces[0].start == 0
    assert pieces[-1].end == len(text)
    for one, following in itertools.pairwise(pieces):
        assert one.start < following.start <= one.end < following.end
        assert one.end - following.start <= chunking.overlap


def test_empty_text_is_one_empty_piece() -> None:
    assert split_text("", Chunking()) == [Chunk(0, "", 0, 0)]


def test_text_that_fits_is_one_piece() -> None:
    assert split_text(" \n x" * 128, Chunking()) == [Chunk(0, " \n x" * 128, 0, 512)]


def test_paragraph_ends_a_piece_before_a_sentence_does() -> None:
    text = "One sentence here.\n\nAnother one. And a third that is long."
    assert [piece.text for piece in split_text(text, Chunking(size=36, overlap=0))] == [
        "One sentence here.\n\n",
        "Another one. And a third that is lon"[:13] + "And a third that is ",
        "long.",
    ]


def test_sentence_ends_a_piece_before_a_space_does() -> None:
    text = "Some words of it. Then more and more words follow"
    assert split_text(text, Chunking(size=30, overlap=0))[0].text == "Some words of it. "


def test_space_ends_a_piece_before_its_room_does() -> None:
    assert [piece.text for piece in split_text("alpha beta gamma", Chunking(size=12, overlap=0))] == [
        "alpha beta ",
        "gamma",
    ]


def test_text_without_spaces_is_cut_at_the_limit() -> None:
    assert [piece.text for piece in split_text("x" * 25, Chunking(size=10, overlap=2))] == ["x" * 10, "x" * 10, "x" * 9]


def test_overlap_begins_at_a_word() -> None:
    pieces = split_text("alpha beta gamma delta epsilon zeta", Chunking(size=18, overlap=8))
    assert [piece.text for piece in pieces] == ["alpha beta gamma ", "gamma delta ", "delta epsilon zeta"]


@pytest.mark.parametrize(("size", "overlap"), [(10, 10), (10, 11), (0, 0), (10, -1), (-5, -6)])
def test_sizes_that_cannot_be_are_refused(size: int, overlap: int) -> None:
    with pytest.raises(UsageInvalid):
        split_text("some text", Chunking(size=size, overlap=overlap))


@pytest.mark.parametrize("unit", ["x", " ", "\n", "." * 7 + " ", "A sentence of words. ", "\n \t\r"])
@pytest.mark.sample(2)
def test_five_million_characters_are_cut_in_a_moment(unit: str) -> None:
    text = unit * (5_000_000 // len(unit))
    start = time.process_time()
    split_text(text, Chunking())
    assert time.process_time() - start < 5


def test_blank_pages_take_linear_time() -> None:
    text = "\f" * 500_000 + "a"
    start = time.process_time()
    assert (
        "".join(piece.text for piece in split_text(text, Chunking(strategy="headings", size=1_000_000, overlap=0)))
        == text
    )
    assert time.process_time() - start < 5


HEADED = Chunking("headings", 200, 0)
GUIDE = "# Guide\n\nWhat it is.\n\n```sh\n# no heading\n\nls\n```\n\n## Setup ##\n\nFirst this.\n\nThen that.\n"


def test_markdown_is_cut_at_its_headings() -> None:
    text = GUIDE + "### Last\nEnd.\n# Other\n## Inner\n\nMore.\n##### Deep\nDeeper.\n"
    assert [chunk.text.splitlines()[0] for chunk in split_text(text, HEADED)] == [
        "# Guide",
        "## Setup ##",
        "### Last",
        "# Other",
    ]


@given(
    st.lists(st.sampled_from(["## A\n", "# B\n", "```\n", "~~~~\n", "word " * 9 + "\n", "\n", "x" * 70]), max_size=40)
)
def test_pieces_by_headings_join_to_the_text_and_keep_code_together(lines: list[str]) -> None:
    text = "".join(lines)
    pieces = split_text(text, Chunking("headings", 60, 0))
    assert "".join(piece.text for piece in pieces) == text
    assert [(piece.number, text[piece.start : piece.end]) for piece in pieces] == [
        (number, piece.text) for number, piece in enumerate(pieces)
    ]
    longest = max(len(piece.text) for piece in pieces)
    assert longest <= (60 * MAX_CODE_SIZES if {"```\n", "~~~~\n"}.intersection(lines) else 60)


def test_paragraphs_of_long_section_fill_a_piece_completely() -> None:
    text = ("a" * 58 + "\n\n") * 3
    assert [len(piece.text) for piece in split_text(text, Chunking("headings", 120, 0))] == [120, 60]
    assert [len(piece.text) for piece in split_text(text, Chunking("headings", 119, 0))] == [60, 60, 60]


def test_place_comes_from_headings_above_and_not_from_code_comments() -> None:
    assert HeaderPaths(GUIDE).find_path(GUIDE.index("ls")) == "Guide"
    assert HeaderPaths(GUIDE).find_path(GUIDE.index("Then")) == "Guide > Setup"
    assert HeaderPaths("text\n" + GUIDE).find_path(0) == "Guide"


@given(st.lists(st.sampled_from(["# A\n", "## B\n", "### C #\n", "#\n", " # D\r\n", "text\n", "```\n", "#no\n"])))
def test_headings_above_a_place_are_those_of_its_sections(lines: list[str]) -> None:
    text = "".join(lines)
    paths = HeaderPaths(text)
    headings: list[tuple[int, str]] = []
    above: list[tuple[int, str]] = []
    at, fenced, expected = 0, False, list[tuple[range, str]]()
    for line in lines:
        fenced = fenced != (line == "```\n")
        mark, _, title = line.strip().removesuffix(" #").partition(" ")
        if not fenced and mark and not mark.strip("#"):
            headings.append((len(mark), title))
            above = [*(heading for heading in above if heading[0] < len(mark)), (len(mark), title)]
        expected.append((range(at, at + len(line)), " > ".join(title for _, title in above if title)))
        at += len(line)
    has_title = bool(headings) and all(level > headings[0][0] for level, _ in headings[1:])
    for places, path in expected:
        assert {paths.find_path(place) for place in places} == {path or (headings[0][1] if has_title else "")}


@pytest.mark.parametrize("strategy", ["characters", "headings"])
def test_chunks_do_not_cross_pages(strategy):
    pages = ["", "First page.", "", "  ", "Third. " * 30, "# Fourth\n\nLast words"]
    text = "\n\n\f".join(pages)
    result = split_text(text, Chunking(strategy, size=100, overlap=20 if strategy == "characters" else 0))
    assert all(passage.text == text[passage.start : passage.end] for passage in result)
    assert [chunk.number for chunk in result] == list(range(len(result)))
    assert all(one.start < two.start and one.end < two.end for one, two in itertools.pairwise(result))
    assert {*range(len(text))} == {place for chunk in result for place in range(chunk.start, chunk.end)}
    for passage in result:
        assert "\f" not in passage.text.strip("\f\n ")
    assert [passage.text.strip() for passage in result if "First" in passage.text] == ["First page."]
    assert result[-1].text.strip() == "# Fourth\n\nLast words"


@pytest.mark.parametrize("strategy", ["characters", "headings"])
@pytest.mark.parametrize("pages", [1, 3])
def test_pieces_together_are_the_text_again(strategy, pages):
    page = "".join(f"# Part {number}\n\nWords of part {number}, and some  more.\n\n" for number in range(40))
    text = "\f".join([page] * pages)
    for size, overlap in ((60, 0), (60, 15), (200, 50)):
        chunking = Chunking(strategy, size, overlap)
        assert join_chunks([chunk.text for chunk in split_text(text, chunking)], chunking) == text
