"""Places where a text is cut: rules for all languages."""

from __future__ import annotations

import random
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from tests.support.long import examples
from vmrag_link.code import symbols
from vmrag_link.code.cutting import MOST_BYTES, cut_code, needs_parser
from vmrag_link.code.languages import GRAMMARS, CodePiece

LANGUAGES = [*sorted(GRAMMARS), "lua", ""]
ROOT = Path(__file__).parents[2]


def texts(text: str, language: str, size: int = 1500) -> list[str]:
    return [text[piece.start : piece.end] for piece in cut_code(text, language, size)]


def named(text: str, language: str = "python", size: int = 1500) -> list[tuple[str, str]]:
    """Each piece's symbol with its text."""
    return [(piece.symbol, text[piece.start : piece.end]) for piece in cut_code(text, language, size)]


def function(name: str, rows: int = 4, indent: str = "") -> str:
    body = "".join(f"{indent}    value_{row} = compute({row})\n" for row in range(rows))
    return f"{indent}def {name}():\n{body}"


# -- what a piece is


def test_each_function_is_a_piece_with_its_following_blank_lines() -> None:
    one, two = function("one"), function("two")
    assert named(f"{one}\n\n{two}\n") == [("one", f"{one}\n\n"), ("two", f"{two}\n")]


def test_text_outside_of_symbols_is_one_piece_from_the_top() -> None:
    top = '#!/usr/bin/env python3\n# Copyright.\n"""What it does."""\n\nimport a\nimport b\n\nLIMIT = 3\n\n\n'
    assert named(f"{top}{function('one')}") == [("", top), ("one", function("one"))]


def test_blank_lines_at_the_top_are_in_the_first_piece() -> None:
    assert named(f"\n\n{function('one')}") == [("one", f"\n\n{function('one')}")]


def test_class_that_fits_is_one_piece() -> None:
    text = f"class A:\n{function('one', indent='    ')}\n{function('two', indent='    ')}"
    assert named(text) == [("A", text)]


def test_longer_class_has_a_head_and_a_piece_for_each_method() -> None:
    head = 'class A(B):\n    """What it is."""\n\n    limit = 1\n\n'
    one, two = function("one", indent="    "), function("two", indent="    ")
    assert named(f"{head}{one}\n{two}", size=200) == [("A", head), ("A.one", f"{one}\n"), ("A.two", two)]


def test_parts_of_a_long_function_have_its_name_and_its_signature() -> None:
    text = function("long", 60)
    pieces = cut_code(text, "python", 300)
    assert len(pieces) > 4
    assert {piece[2:5] for piece in pieces} == {("long", "function", "def long():")}
    assert all(100 <= piece.end - piece.start <= 300 for piece in pieces)


def test_function_in_a_long_function_is_a_piece() -> None:
    inner = function("inner", 4, indent="    ")
    text = f"def outer():\n    x = 1\n    y = 2\n    z = 3\n    a = 4\n{inner}    b = 5\n    return inner\n"
    assert named(text, size=180) == [
        ("outer", text[: text.index("    def inner")]),
        ("outer.inner", text[text.index("    def inner") :]),  # the rest is small
    ]


def test_small_neighbours_in_class_form_one_piece_with_class_name() -> None:
    small = "".join(f"    def f{number}(self):\n        return {number}\n\n" for number in range(4))
    text = f"class A:\n    '''{'x' * 300}'''\n\n    a = 1\n    b = 1\n\n{small}{function('big', 5, '    ')}"
    assert [name for name, _ in named(text, size=400)] == ["A", "A", "A.big"]


def test_small_neighbours_at_the_top_have_the_name_of_the_first() -> None:
    text = "import a\n\ndef one():\n    return 1\n\ndef two():\n    return 2\n"
    assert named(text) == [("one", text)]


def test_small_neighbours_are_not_joined_beyond_the_size() -> None:
    text = "".join(f"def f{number}():\n    return {number}\n\n" for number in range(40))
    assert all(len(piece_text) <= 200 for piece_text in texts(text, "python", 200))
    assert len(texts(text, "python", 200)) > 5


def test_two_symbols_on_a_line_are_in_one_piece() -> None:
    text = "function a() { return 1; } function b() {\n  return 2;\n}\nfunction c() {\n  x();\n  y();\n  z();\n}\n"
    assert "".join(texts(text, "javascript")) == text
    assert texts(text, "javascript")[0].startswith("function a() { return 1; } function b()")


def test_end_of_class_is_in_piece_of_last_method() -> None:
    methods = "".join(f"  int f{number}() {{\n    a();\n    b();\n    return c();\n  }}\n\n" for number in range(5))
    text = f"class A {{\n{methods}}}\n"
    assert texts(text, "java", 120)[-1].endswith("  }\n\n}\n")


def test_comment_behind_code_belongs_to_that_code() -> None:
    text = f"LIMIT = 3  # see below\n{function('one')}"
    assert named(text) == [("", "LIMIT = 3  # see below\n"), ("one", function("one"))]


def test_separate_comment_belongs_to_no_symbol() -> None:
    text = f"# Apart.\n\n# Near.\n{function('one')}"
    assert named(text) == [("", "# Apart.\n\n"), ("one", f"# Near.\n{function('one')}")]


def test_tree_with_errors_is_used() -> None:
    text = f"{function('one')}\nthis is ( no python\n\n{function('two')}"
    result = [name for name, _ in named(text)]
    assert "one" in result
    assert "two" in result


def test_lines_end_as_they_did() -> None:
    text = f"{function('one')}\n{function('two')}".replace("\n", "\r\n")
    assert [name for name, _ in named(text)] == ["one", "two"]
    assert "".join(texts(text, "python")) == text


def test_names_beyond_ascii_do_not_shift_pieces() -> None:
    text = f'"""Größe 😀."""\n\n{function("größe")}\n{function("zwei")}'
    assert named(text)[1:] == [("größe", f"{function('größe')}\n"), ("zwei", function("zwei"))]


def test_signatures_are_one_short_line() -> None:
    arguments = ",\n".join(f"    argument_{number}: int = {number}" for number in range(40))
    (piece,) = cut_code(f"def f(\n{arguments}\n) -> None:\n    pass\n", "python", 4000)
    assert piece.signature.startswith("def f( argument_0: int = 0, argument_1: int = 1,")
    assert len(piece.signature) <= 200
    (piece,) = cut_code("def f(a):  # noqa\n    # Why.\n    return 1\n", "python", 100)
    assert piece.signature == "def f(a):"


# -- by lines


def test_lines_are_cut_at_blocks_without_a_grammar() -> None:
    block = "local function f{}()\n  local a = 1\n\n  return a\nend\n\n"
    text = "".join(block.replace("{}", str(number)) for number in range(30))
    pieces = cut_code(text, "lua", 300)
    assert {piece[2:5] for piece in pieces} == {("", "", "")}
    assert all(text[piece.start : piece.end].startswith("local function") for piece in pieces)
    assert all(piece.end - piece.start <= 300 for piece in pieces)


def test_line_of_more_than_two_thousand_characters_is_cut_within() -> None:
    text = f"a = 1\n{'x' * 2001}\nb = 2\n"
    assert [len(piece_text) for piece_text in texts(text, "lua", 500)] == [6, 500, 500, 500, 500, 2, 6]
    assert [len(text) for text in texts(f"a = 1\n{'x' * 1999}\nb = 2\n", "lua", 500)] == [6, 2000, 6]


def test_long_line_has_no_symbol() -> None:
    minified = "".join(f"function f{number}(){{return {number}}}" for number in range(500)) + "\n"
    pieces = cut_code(minified, "javascript", 1500)
    assert {piece[2:5] for piece in pieces} == {("", "", "")}
    assert len(pieces) == -(-len(minified) // 1500)


def test_empty_text_is_an_empty_piece() -> None:
    assert cut_code("", "python", 100) == cut_code("", "lua", 100) == [CodePiece(0, 0)]


def test_oversized_text_is_cut_by_lines() -> None:
    text = function("one", 8)
    large = text + "#" * 79 + ("\n" + "#" * 79) * (MOST_BYTES // 80)
    assert needs_parser(text, "python")
    assert not needs_parser(large, "python")
    assert {piece.symbol for piece in cut_code(large, "python", 1500)} == {""}


def test_excess_of_operations_leads_to_lines_at_the_same_text(monkeypatch: pytest.MonkeyPatch) -> None:
    """The budget counts what the parser does: the text at which it ends is the same every time."""
    monkeypatch.setattr(symbols, "_SPARE_STEPS", 40)

    def fits(rows: int) -> bool:
        return any(piece.symbol for piece in cut_code(function("f", 10) + "()" * rows, "python", 1500))

    def longest() -> int:
        low, high = 0, 20_000
        while high - low > 1:
            middle = (low + high) // 2
            low, high = (middle, high) if fits(middle) else (low, middle)
        return low

    first = longest()
    assert 0 < first < 20_000
    assert {longest() for _ in range(3)} == {first}


def test_oversized_tree_is_cut_by_lines(monkeypatch: pytest.MonkeyPatch) -> None:
    text = "".join(f"{function(f'f{number}')}\n" for number in range(10))
    by_symbols = cut_code(text, "python", 300)
    monkeypatch.setattr(symbols, "MOST_NODES", 5)
    assert (
        {piece.symbol for piece in cut_code(text, "python", 300)}
        == {""}
        != {by_symbol.symbol for by_symbol in by_symbols}
    )


@pytest.mark.parametrize("language", sorted(GRAMMARS))
@pytest.mark.sample(5)
def test_deep_nesting_ends_no_recursion(language: str) -> None:
    for text in ("(" * 100_000, "{\n" * 20_000, "(\n" * 10_000 + ")\n" * 10_000, "class A {\n" * 3_000):
        assert "".join(texts(text, language)) == text


# -- whatever the text


def is_partition(text: str, pieces: list[CodePiece], size: int) -> bool:
    """Consecutive, complete, between lines but for long ones, and not too long."""
    assert (pieces[0].start, pieces[-1].end) == (0, len(text))
    assert all(before.end == after.start for before, after in pairwise(pieces))
    for piece in pieces:
        assert piece.start < piece.end or not text
        assert len(piece.signature) <= 200
        assert "\n" not in piece.signature + piece.symbol
        assert piece.end - piece.start <= max(2 * size, 2000)
    for piece in pieces[1:]:
        row = text[text.rfind("\n", 0, piece.start) + 1 : (text.find("\n", piece.start) + 1 or len(text) + 1) - 1]
        assert text[piece.start - 1] == "\n" or len(row) + 1 > max(size, 2000)
    return True


_MARKS = (
    "def class function fn func if else for { } ( ) [ ] < > : ; , . = => -> ' \" ` # // /* */ -- $ @ \\ a b C 1 "
    "interface struct impl namespace module end do select create table case return \x00 \ufeff é 😀"
)
WORDS = st.sampled_from([*_MARKS.split(" "), "\n", "\n\n", "    ", "\t", "\r\n", " ", "\r", "\u2028"])


@pytest.mark.parametrize("language", LANGUAGES)
@settings(max_examples=examples(60), deadline=None)
@given(
    text=st.lists(WORDS, max_size=150).map("".join) | st.text(max_size=300), size=st.sampled_from([1, 20, 100, 1500])
)
@example(text="\n" * 500, size=20)
@example(text="}\n" * 500, size=20)
@example(text="x" * 5000, size=100)
def test_pieces_are_the_text(language: str, text: str, size: int) -> None:
    pieces = cut_code(text, language, size)
    assert is_partition(text, pieces, size)
    assert cut_code(text, language, size) == pieces


@pytest.mark.parametrize("language", LANGUAGES)
def test_pieces_are_the_text_of_programs_that_were_damaged(language: str) -> None:
    """The same numbers in every run: what fails once fails again."""
    chance = random.Random(7)
    sources = [(ROOT / "vmrag_link" / name).read_text() for name in ("proc.py", "code/naming.py", "locks.py")]
    for _ in range(examples(15)):
        text = chance.choice(sources)
        for _ in range(chance.randrange(8)):
            start = chance.randrange(len(text))
            length = chance.choice([1, 10, 1000])
            middle = chance.choice(["", "(", '"""', "}\n", "class A:\n", text[start : start + length]])
            text = text[:start] + middle + text[start + chance.choice([0, length]) :]
        size = chance.choice([100, 500, 1500])
        assert is_partition(text, cut_code(text, language, size), size)
