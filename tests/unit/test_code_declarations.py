"""Which symbols each piece declares, however small they are, and in which lines."""

from __future__ import annotations

from collections import Counter

import pytest

from tests.unit.test_code_symbols import SAMPLES
from vmrag_link.code import symbols
from vmrag_link.code.cutting import cut_code
from vmrag_link.code.languages import MOST_DECLARED, SymbolDeclaration

LONG = """\
# Sessions.


@dataclass
class Session(Base):
    \"\"\"Long enough for several pieces.\"\"\"

    @property
    def age(self):
        return 1

    # Twice
    # a day.
    def refresh(
        self,
    ):
        def inner():
            return 2

        return inner()


def after():
    return 3
"""


def declared(text: str, language: str, size: int = 1500) -> list[SymbolDeclaration]:
    return [symbol for piece in cut_code(text, language, size) for symbol in piece.declared]


def lines(text: str, language: str, size: int = 1500) -> dict[str, tuple[int, int]]:
    return {piece.symbol: (piece.line, piece.last_line) for piece in declared(text, language, size)}


def kinds(text: str, language: str, size: int = 1500) -> dict[str, str]:
    return {piece.symbol: piece.kind for piece in declared(text, language, size)}


# -- where they are


@pytest.mark.parametrize("size", [1, 60, 150, 400, 1500])
def test_symbol_spans_its_declaration_to_its_end_in_any_pieces(size: int) -> None:
    assert declared(LONG, "python", size) == [
        ("Session", "class", 5, 20),
        ("Session.age", "method", 9, 10),
        ("Session.refresh", "method", 14, 20),
        ("Session.refresh.inner", "function", 17, 18),
        ("after", "function", 23, 24),
    ]


def test_fitting_class_declares_its_members_with_small_neighbours() -> None:
    _, whole, *rest = cut_code(f"{LONG}\ndef last():\n    return 4\n", "python", 400)
    assert [piece.symbol for piece in whole.declared] == [
        "Session",
        "Session.age",
        "Session.refresh",
        "Session.refresh.inner",
    ]
    assert [(piece.symbol, [one.symbol for one in piece.declared]) for piece in rest] == [("after", ["after", "last"])]


def test_later_parts_of_a_long_symbol_do_not_declare_it() -> None:
    text = "def long():\n" + "".join(f"    value_{row} = compute({row})\n" for row in range(60))
    first, *rest = cut_code(text, "python", 300)
    assert first.declared == (("long", "function", 1, 61),)
    assert len(rest) > 3
    assert {piece.declared for piece in rest} == {()}


def test_declaration_below_long_comment_is_in_piece_of_its_line() -> None:
    text = "".join(f"# Line {row} of what is to be known.\n" for row in range(30)) + "def f():\n    return 1\n"
    pieces = cut_code(text, "python", 200)
    assert {piece.symbol for piece in pieces} == {"f"}
    (declaring_piece,) = (piece for piece in pieces if piece.declared)
    assert "def f():" in text[declaring_piece.start : declaring_piece.end]
    assert declaring_piece.declared == (("f", "function", 31, 32),)


def test_blank_lines_are_behind_a_symbol() -> None:
    assert lines("f() {\n  a\n}\n\n\n\ng() {\n  b\n}\n\n", "bash") == {"f": (1, 3), "g": (7, 9)}


def test_lines_end_as_they_did() -> None:
    assert declared(LONG.replace("\n", "\r\n"), "python", 150) == declared(LONG, "python", 150)


# -- in each language


@pytest.mark.parametrize("sample", SAMPLES)
def test_all_symbols_are_declared_once_at_any_size(sample: str) -> None:
    text, expected = SAMPLES[sample]
    symbols = declared(text, sample)
    assert {name: kind for name, (kind, _) in expected.items()}.items() <= {
        piece.symbol: piece.kind for piece in reversed(symbols)
    }.items()
    assert [symbol.line for symbol in symbols] == sorted(symbol.line for symbol in symbols)
    for size in (1, 60, 160, 400):
        pieces = cut_code(text, sample, size)
        assert [symbol for piece in pieces for symbol in piece.declared] == symbols
        for piece in pieces:
            rows = range(text.count("\n", 0, piece.start) + 1, text.count("\n", 0, piece.end - 1) + 2)
            assert all(symbol.line in rows for symbol in piece.declared)


@pytest.mark.parametrize("sample", SAMPLES)
def test_line_of_a_declaration_is_the_start_of_its_signature(sample: str) -> None:
    text, expected = SAMPLES[sample]
    rows = text.split("\n")
    result = {piece.symbol: piece.line for piece in reversed(declared(text, sample))}
    for symbol, (_, signature) in expected.items():
        begun = " ".join(rows[result[symbol] - 1].split())
        assert begun.startswith(signature) or signature.startswith(begun.rstrip("{ "))


@pytest.mark.parametrize(
    ("language", "text", "symbols"),
    [
        (
            "python",
            "class A:\n    def f(self):\n        class B:\n            def g(self): ...\n",
            "A A.f A.f.B A.f.B.g",
        ),
        ("python", "def f():\n    if x:\n        async def g():\n            pass\n", "f f.g"),
        ("javascript", "function f() {\n  return { g() { return 1; }, h: () => 2 };\n}\n", "f"),
        ("javascript", "function f() {\n  return {\n    g() { return 1; },\n    h: () => 2,\n  };\n}\n", "f f.g f.h"),
        ("javascript", "class A { f() { return 1; } #g() { return 2; } }\n", "A A.f A.#g"),
        (
            "typescript",
            "interface A {\n  f(): void;\n}\nabstract class B {\n  g() {}\n  h = () => 1;\n}\n",
            "A A.f B B.g B.h",
        ),
        ("rust", "trait A { fn f(&self); fn g(&self); }\nfn h() {\n    fn i() {}\n}\n", "A A.f A.g h h.i"),
        (
            "rust",
            "mod m {\n    pub struct A { x: i32 }\n    impl A {\n        fn f(&self) {}\n    }\n}\n",
            "m m.A m.A m.A.f",
        ),
        (
            "go",
            "package a\n\ntype (\n\tA struct{}\n\tB = int\n)\n\nfunc (a A) F() {\n\ttype C int\n\tF()\n}\n",
            "A B A.F A.F.C",
        ),
        ("java", "class A { int f() { return 1; } }\n", "A A.f"),
        ("java", "class A {\n  Object f() {\n    return new B() {\n      void g() {}\n    };\n  }\n}\n", "A A.f A.f.g"),
        ("cpp", "struct A { int f() { return 1; } void g(); };\n", "A A.f A.g"),
        ("c", "int f(int a);\nint g(void);\nint h;\n", "f g h"),
        ("c_sharp", "class A {\n  int P { get; set; }\n  void F() {\n    int G() => 1;\n  }\n}\n", "A A.P A.F A.F.G"),
        (
            "ruby",
            "class A\n  def f = 1\n  def self.g; end\n  class B\n    def h; end\n  end\nend\n",
            "A A.f A.g A.B A.B.h",
        ),
        ("php", "<?php\nclass A {\n  function f() {}\n  function g() {}\n}\nfunction h() {}\n", "A A.f A.g h"),
        ("kotlin", "class A {\n  companion object {\n    fun f() = 1\n  }\n}\n", "A A.Companion A.Companion.f"),
        ("swift", "struct A {\n  var p: Int { 1 }\n  init() {}\n  func f() {}\n}\n", "A A.p A.init A.f"),
        ("sql", "CREATE TABLE a (b INT);\nCREATE INDEX c ON a (b);\n", "a c"),
        ("bash", "f() { a; }\ng() { b; }\n", "f g"),
    ],
)
def test_symbols_too_small_for_a_piece_are_declared(language: str, text: str, symbols: str) -> None:
    assert [piece.symbol for piece in declared(text, language)] == symbols.split()


def test_method_outside_of_its_class_has_its_own_lines() -> None:
    text = "type Server struct {\n\tname string\n}\n\nfunc (s *Server) Start() error {\n\treturn nil\n}\n"
    assert lines(text, "go") == lines(text, "go", 1) == {"Server": (1, 3), "Server.Start": (5, 7)}


@pytest.mark.parametrize("size", [1, 1500])
def test_overloads_are_each_declared(size: int) -> None:
    text = "class A {\n  int f(int a) {\n    return 1;\n  }\n  int f(String a) {\n    return 2;\n  }\n}\n"
    assert declared(text, "java", size) == [
        ("A", "class", 1, 8),
        ("A.f", "method", 2, 4),
        ("A.f", "method", 5, 7),
    ]


@pytest.mark.parametrize("size", [40, 1500])
@pytest.mark.parametrize(
    ("language", "text", "symbols"),
    [
        ("kotlin", "class A {\n  val a = 1\n  fun f() {\n    val b = 2\n    val c = 3\n  }\n}\n", "A A.a A.f"),
        ("swift", "class A {\n  var a = 1\n  func f() {\n    let b = 2\n    var c = 3\n  }\n}\n", "A A.a A.f"),
        ("cpp", "int f() {\n  Guard lock(mutex);\n  int g(int);\n  return 1;\n}\nint h(int);\n", "f h"),
    ],
)
def test_variables_of_functions_are_not_declared(language: str, text: str, symbols: str, size: int) -> None:
    assert [*kinds(text, language, size)] == symbols.split()


def test_text_with_errors_declares_readable_symbols() -> None:
    text = "class A:\n    def f(self):\n        return (\n\n    def g(self):\n        return 1\n\nclass B:\n    x = 1\n"
    assert {"A", "A.f"} <= kinds(text, "python").keys()


# -- limits


def test_piece_declares_at_most_two_hundred_symbols() -> None:
    text = "class A {\n" + "f() {}\n" * 210 + "}\nclass B {\n}\n"
    first, last = cut_code(text, "javascript", len(text) - 9)
    assert Counter(piece.symbol for piece in first.declared) == {"A": 1, "A.f": MOST_DECLARED - 1}
    assert [piece.symbol for piece in last.declared] == ["B"]


def test_first_of_very_many_symbols_are_declared(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(symbols, "MOST_SYMBOLS", 500)
    pieces = cut_code("int f(int a);\n" * 1000, "c", 1500)
    assert sum(len(piece.declared) for piece in pieces) == 500
    assert pieces[-1].symbol == "f"
    assert pieces[-1].declared == ()


def test_small_symbols_have_their_own_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    """Texts are not cut by lines because of symbols within their pieces."""
    text = "".join(f"class A{number}:\n    def f(self):\n        return 1\n\n" for number in range(20))
    before = cut_code(text, "python", 60)
    monkeypatch.setattr(symbols, "MOST_NODES", 60)
    after = cut_code(text, "python", 60)
    assert [piece[:5] for piece in after] == [piece[:5] for piece in before]
    assert "A0.f" in {piece.symbol for piece in after[0].declared}
    assert [piece.symbol for piece in after[-1].declared] == ["A19"]


def test_symbols_deep_within_symbols_are_the_outer_ones() -> None:
    text = "".join(f"{'  ' * depth}class A{depth} {{\n" for depth in range(40)) + "}\n" * 40
    result = kinds(text, "java", 10_000)
    assert len(result) == 16
    assert all(len(name) <= 200 for name in result)
