"""Declarations in lines if no grammar helps."""

from __future__ import annotations

import time

import pytest

from vmrag_link.code.cutting import add_declaring_lines, cut_code
from vmrag_link.code.languages import BY_LINES, CodePiece

SCALA = """\
package a

private[a] object No
sealed trait Shape {
  final case class Box[A](x: A) extends S
  override def area: Int = 1
}
// a class of shapes
"""


def declared(text: str, language: str) -> list[tuple[str, str, int]]:
    return [
        (symbol.symbol, symbol.kind, symbol.line)
        for piece in cut_code(text, language, 1500)
        for symbol in piece.declared
    ]


@pytest.mark.parametrize(
    ("language", "text", "expected"),
    [
        (
            "scala",
            SCALA,
            [("Shape", "trait", 4), ("Box", "class", 5), ("area", "function", 6)],
        ),
        (
            "elixir",
            "defmodule Phoenix.Router do\n  def match(a), do: a\n  defp hidden, do: 1\nend\n",
            [("Router", "module", 1), ("match", "function", 2), ("hidden", "function", 3)],
        ),
        ("zig", "pub fn main() void {\n}\n", [("main", "function", 1)]),
        ("lua", "local function M.setup(opts)\nend\n", [("setup", "function", 1)]),
        ("css", ".class { color: red }\n", []),
    ],
)
def test_languages_without_a_grammar_declare_by_their_lines(language, text, expected):
    assert declared(text, language) == expected


def test_lines_declare_symbols_if_the_parser_fails():
    broken = "x = ((((\n\nclass Lost:\n    def found(self): pass\n"
    assert declared(broken, "python") == [("Lost", "class", 3), ("found", "function", 4)]
    sound = "x()\n# class of things\nprint('''\nclass Quoted:\n''')\n"
    assert declared(sound, "python") == []
    mixed = f"LIMIT = 3\n{broken}"
    assert declared(mixed, "python") == [("LIMIT", "constant", 1), ("Lost", "class", 4), ("found", "function", 5)]


def test_lines_are_counted_through_the_pieces_of_symbols_above():
    method = "class Sound:\n    def kept(self):\n" + "        rest = 1\n" * 8
    text = f"{method}\nx = ((((\n\nclass Lost:\n    def found(self): pass\n"
    assert declared(text, "python")[2:] == [("Lost", "class", 14), ("found", "function", 15)]


@pytest.mark.parametrize("language", ["", "c", "sql"])
@pytest.mark.parametrize(
    "line",
    [
        "def " + "a" * 200_000,
        "def " + "a." * 100_000,
        "public " * 50_000,
        "fn <" * 50_000,
        "a *" * 60_000,
        "int a" + "[1] " * 50_000,
        "int" + " " * 200_000,
        "#" + " " * 200_000,
        "create table " + "[a]." * 50_000,
        "create table " + "[" * 200_000,
    ],
)
def test_line_of_any_kind_is_parsed_quickly(line, language):
    before = time.process_time()
    add_declaring_lines([CodePiece(0, len(line))], line, language)
    assert time.process_time() - before < 2


TABLES = (
    "#define SIZE 12\n#define AREA(x) (x)\nstatic const unsigned char primes[] = {\n"
    + "0,1,2,3,4,5,6,7,8,9,\n" * 12_000
    + "};\n\nint *\nlength(const char *text)\n{\n    return find(text);\n}\n"
    + "static int count(int most)\n{\n    return most;\n}\nstruct list {\n    int value;\n};\nint total = 3;\n"
)


@pytest.mark.parametrize("language", ["c", "cpp"])
def test_tables_of_numbers_that_spend_the_budget_keep_their_definitions(language):
    pieces = cut_code(TABLES, language, 1500)
    assert (pieces[0].kind, pieces[0].symbol) == (BY_LINES, "")
    assert [row[:2] for row in declared(TABLES, language)] == [
        ("SIZE", "macro"),
        ("AREA", "macro"),
        ("primes", "constant"),
        ("length", "function"),
        ("count", "function"),
        ("list", "struct"),
        ("total", "variable"),
    ]


def test_texts_in_parsed_languages_are_not_marked_as_cut_by_lines():
    kinds = [
        cut_code(text, language, 1500)[0].kind for text, language in ((SCALA, "scala"), ("", "c"), ("int a;\n", "c"))
    ]
    assert kinds == ["", "", ""]
