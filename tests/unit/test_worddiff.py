import itertools
import time
from functools import cache

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from vmrag_link.worddiff import Piece, count_words, cut_equal_text, diff_words, render_pieces


def old_of(pieces):
    return "".join(piece.text for piece in pieces if piece.op in ("equal", "delete"))


def new_of(pieces):
    return "".join(piece.text for piece in pieces if piece.op in ("equal", "insert"))


few_words = st.lists(st.sampled_from(["a", "b", "c", "word", "\n", "\n\n", " ", "  ", ".", "-", "日", "本"])).map(
    "".join
)
many_lines = st.lists(st.sampled_from([f"line {number}\n" for number in range(6)]), max_size=400).map("".join)
texts = few_words | many_lines | st.text()


@given(texts, texts)
@example("", "")
@example("a\r\nb\rc\u2028d\x0b", "a\nb\r\nc")
@example("x\n" * 300, "x\n" * 150 + "y\n" + "x\n" * 150)
def test_pieces_make_up_both_texts_exactly(old, new):
    pieces = diff_words(old, new)
    assert (old_of(pieces), new_of(pieces)) == (old, new)
    assert all(piece.text for piece in pieces)
    for one, other in itertools.pairwise(pieces):
        assert (one.op, other.op) in {
            ("equal", "delete"),
            ("equal", "insert"),
            ("delete", "insert"),
            ("delete", "equal"),
            ("insert", "equal"),
        }


@given(texts)
def test_equal_texts_are_one_equal_piece(text):
    assert diff_words(text, text) == ((Piece("equal", text),) if text else ())


@given(texts, texts, st.integers(0, 5))
def test_cutting_keeps_every_change(old, new, context):
    pieces = diff_words(old, new)
    short = cut_equal_text(pieces, context=context)
    changed = [piece for piece in pieces if piece.op != "equal"]
    assert [piece for piece in short if piece.op in ("delete", "insert")] == changed
    assert count_words(short, "equal") <= 2 * context * (len(changed) + 1)


CASES = [
    ("Take a rest, and sleep well.\n", "Never rest.\n", "[-Take a-]{+Never+} rest[-, and sleep well-].\n"),
    ("the quick brown fox", "the slow red fox", "the [-quick brown-]{+slow red+} fox"),
    ("one\ntwo\nthree\n", "one\nthree\n", "one\n[-two\n-]three\n"),
    ("one\nthree\n", "one\n\ntwo\n\nthree\n", "one\n{+\ntwo\n\n+}three\n"),
    ("Old.", "New", "[-Old.-]{+New+}"),
    ("Old.\n", "New.\n", "[-Old-]{+New+}.\n"),
    ("a b", "a  b", "a[- -]{+  +}b"),
    ("一二三四五", "一二六四五", "一二[-三-]{+六+}四五"),
    ("text", "text\n", "text{+\n+}"),
    ("", "all new", "{+all new+}"),
    ("all gone", "", "[-all gone-]"),
    (
        "Install the thing.\n",
        "Certificates are renewed every month\n",
        "[-Install the thing.-]{+Certificates are renewed every month+}\n",
    ),
]


@pytest.mark.parametrize(("old", "new", "shown"), CASES)
def test_words_are_marked_as_git_marks_them(old, new, shown):
    assert render_pieces(diff_words(old, new)) == shown


def test_equal_text_far_from_a_change_is_omitted():
    sentence = "one two three four five six seven eight nine ten eleven twelve"
    pieces = diff_words(f"{sentence} OLD {sentence}\n\n{sentence} gone", f"{sentence} NEW {sentence}\n\n{sentence}")
    assert (
        render_pieces(cut_equal_text(pieces, context=2))
        == "… eleven twelve [-OLD-]{+NEW+} one two\n…\neleven twelve[- gone-]"
    )
    assert cut_equal_text(diff_words(sentence, sentence)) == (Piece("omitted", "…"),)
    assert render_pieces(
        cut_equal_text(diff_words(f"{sentence} OLD {sentence}", f"{sentence} NEW {sentence}"), context=2)
    ).endswith("one two …")


def test_marks_can_be_coloured():
    assert (
        render_pieces(diff_words("a b", "a c"), style=lambda op, text: f"<{op} {text}>")
        == "a <delete [-b-]><insert {+c+}>"
    )


def test_words_are_counted_between_blanks():
    pieces = diff_words("Take a rest, and sleep well.\n", "Never rest.\n")
    assert (count_words(pieces, "delete"), count_words(pieces, "insert"), count_words(pieces, "equal")) == (6, 1, 2)


@cache
def text_of(seed, *, lines):
    """Lines of eight words each; the words repeat, the lines do not."""
    return "".join(
        " ".join(f"w{(line * 31 + place * seed) % (997 + seed)}" for place in range(8)) + f" {seed}-{line}.\n"
        for line in range(lines)
    )


LARGE_CASES = (
    "one word",
    "every hundredth line",
    "every line of a table without anything unique",
    "no line breaks",
    "unrelated",
    "unrelated, no line breaks",
    "two words only",
    "one line of numbers",
)


def large(case: str) -> tuple[str, str, int | None]:
    """Two texts of megabytes, and how many pieces differ, where that is known."""
    text = text_of(7, lines=120_000)  # 5 MB
    line, other = text.replace("\n", " "), text_of(13, lines=24_000)
    digits = [str(number * number % 7919 % 10) for number in range(1_500_000)]
    others = ["7" if number % 50 == 3 else digit for number, digit in enumerate(digits)]
    table = "".join(f"| {number % 50} | value | 0.{number % 10} |\n" for number in range(50_000))
    return {
        "one word": (text, text.replace("7-60000.", "other"), 2),
        "every hundredth line": (text, text.replace("00.\n", "00 more.\n"), 1_200),
        "every line of a table without anything unique": (table, table.replace("value", "other"), 100_000),
        "no line breaks": (line, line.replace("7-60000.", "other"), 2),
        "unrelated": (text[:1_000_000], other, 2),
        "unrelated, no line breaks": (line[:1_000_000], other.replace("\n", " "), 2),
        "two words only": ("a b " * 250_000, "b a a " * 200_000, None),
        "one line of numbers": (",".join(digits), ",".join(others), None),
    }[case]


@pytest.mark.parametrize("case", LARGE_CASES)
@pytest.mark.sample(1)
@pytest.mark.long
def test_megabytes_are_compared_in_seconds(case):
    old, new, changes = large(case)
    since = time.process_time()
    pieces = diff_words(old, new)
    assert time.process_time() - since < 20  # ten times what it takes
    assert (old_of(pieces), new_of(pieces)) == (old, new)
    assert changes is None or sum(piece.op != "equal" for piece in pieces) <= changes
