"""What lines declare where no grammar tells."""

from __future__ import annotations

import time

import pytest

from vmrag_link.code.cutting import cut, with_lines_that_declare
from vmrag_link.code.languages import CodePiece

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
    return [(each.symbol, each.kind, each.line) for piece in cut(text, language, 1500) for each in piece.declared]


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


def test_where_the_parser_loses_its_way_lines_tell():
    broken = "x = ((((\n\nclass Lost:\n    def found(self): pass\n"
    assert declared(broken, "python") == [("Lost", "class", 3), ("found", "function", 4)]
    sound = "x = 1\n# class of things\ntext = '''\nclass Quoted:\n'''\n"
    assert declared(sound, "python") == []


@pytest.mark.parametrize("line", ["def " + "a" * 200_000, "def " + "a." * 100_000, "public " * 50_000, "fn <" * 50_000])
def test_no_line_takes_long(line):
    before = time.process_time()
    with_lines_that_declare([CodePiece(0, len(line))], line)
    assert time.process_time() - before < 2
