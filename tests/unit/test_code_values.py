"""Constants, members and results of calls are declared, next to classes and functions."""

from __future__ import annotations

import pytest

from vmrag_link.code.cutting import cut_code

VALUES: dict[str, tuple[str, dict[str, tuple[str, int]]]] = {
    "python": (
        (
            "import json\nLIMIT = 3\ndefault: int = 2\n(left, right) = 1, 2\nfirst = second = []\nLIMIT += 1\nplain: int\n"
            "double = lambda x: 2 * x\nif LIMIT:\n    DEBUG = 1\nobject.name = 1\nrows[0] = 1\nfor row in rows:\n    inner = row\n"
            "class Color:\n    RED = 1\n    field: int = 2\n\n    def name(self):\n        LOCAL = 1\n        return LOCAL\n"
        ),
        {
            "LIMIT": ("constant", 2),
            "default": ("variable", 3),
            "left": ("variable", 4),
            "right": ("variable", 4),
            "first": ("variable", 5),
            "second": ("variable", 5),
            "double": ("function", 8),
            "DEBUG": ("constant", 10),
            "Color": ("class", 15),
            "Color.RED": ("constant", 16),
            "Color.name": ("method", 19),
        },
    ),
    "javascript": (
        (
            "const fs = require('fs');\nconst a = 1, b = 2;\nexport const LIMIT = 3;\nlet count = 0;\nconst { x, y } = point;\n"
            "exports.version = '1';\nclass A {\n  static size = 3;\n  field = 4;\n}\nit('adds', () => {\n  const local = 1;\n});\n"
        ),
        {
            "a": ("constant", 2),
            "b": ("constant", 2),
            "LIMIT": ("constant", 3),
            "count": ("variable", 4),
            "version": ("constant", 6),
            "A": ("class", 7),
            "A.size": ("variable", 8),
        },
    ),
    "typescript": (
        (
            "export const LIMIT: number = 3;\ndeclare const VERSION: string;\nconst names = ['a'] as const;\n"
            "export abstract class Store {\n  static readonly SIZE = 3;\n  abstract load(id: string): User;\n"
            "  protected abstract save(): void;\n}\n"
            "interface User {\n  id: string;\n  readonly address?: { street: string };\n  rename(name: string): void;\n}\n"
            "type Point = {\n  x: number;\n};\n"
        ),
        {
            "LIMIT": ("constant", 1),
            "VERSION": ("constant", 2),
            "names": ("constant", 3),
            "Store": ("class", 4),
            "Store.SIZE": ("constant", 5),
            "Store.load": ("method", 6),
            "Store.save": ("method", 7),
            "User": ("interface", 9),
            "User.id": ("property", 10),
            "User.address": ("property", 11),
            "User.rename": ("method", 12),
            "Point": ("type", 14),
            "Point.x": ("property", 15),
        },
    ),
    "go": (
        (
            "package a\n\nconst Limit = 3\n\nconst (\n\tRed, Green = iota, 1\n\tBlue\n)\n\nvar count, total int\n"
            "var (\n\tnames = []string{}\n\t_ Store = (*disk)(nil)\n)\n\nfunc f() {\n\tvar local = 1\n\tconst inner = 2\n}\n"
        ),
        {
            "Limit": ("constant", 3),
            "Red": ("constant", 6),
            "Green": ("constant", 6),
            "Blue": ("constant", 7),
            "count": ("variable", 10),
            "total": ("variable", 10),
            "names": ("variable", 12),
            "f": ("function", 16),
        },
    ),
    "rust": (
        (
            "const LIMIT: usize = 3;\npub static NAMES: &[&str] = &[];\nstatic mut COUNT: u8 = 0;\nconst _: () = ();\n"
            "impl Shape {\n    pub const SIDES: u8 = 3;\n}\nfn f() {\n    const LOCAL: u8 = 1;\n}\n"
        ),
        {
            "LIMIT": ("constant", 1),
            "NAMES": ("constant", 2),
            "COUNT": ("variable", 3),
            "Shape": ("impl", 5),
            "Shape.SIDES": ("constant", 6),
            "f": ("function", 8),
        },
    ),
    "c": (
        (
            "#ifndef LIST_H\n#define LIST_H\n#define SIZE 3\n#define AREA(x) (x)\nextern int declared;\nextern int given = 1;\n"
            'static const char *names[] = {\n    "a",\n};\nint total, *last = 0;\nint (*call)(int);\n'
            "int f(void)\n{\n    int local = 1;\n    return local;\n}\n#endif\n"
        ),
        {
            "SIZE": ("macro", 3),
            "AREA": ("macro", 4),
            "given": ("variable", 6),
            "names": ("constant", 7),
            "total": ("variable", 10),
            "last": ("variable", 10),
            "f": ("function", 12),
        },
    ),
    "cpp": (
        (
            "constexpr int kSize = 3;\nnamespace shop { const int kLimit = 2; int area() { return 1; } }\n"
            "class Cart {\n  static constexpr int kMost = 3;\n  int items;\n};\n"
            "TEST(CartTest, AddsItems) {\n  EXPECT_EQ(1, 1);\n}\nTEST_F(CartFixture, Empties) { empty(); }\n"
        ),
        {
            "kSize": ("constant", 1),
            "shop.kLimit": ("constant", 2),
            "shop.area": ("function", 2),
            "Cart": ("class", 3),
            "Cart.kMost": ("constant", 4),
            "CartTest.AddsItems": ("function", 7),
            "CartFixture.Empties": ("function", 10),
        },
    ),
    "java": (
        (
            "class Shop {\n  public static final int LIMIT = 3, MOST = 4;\n  private int items;\n  static int count;\n}\n"
            "interface Open {\n  int HOURS = 8;\n}\n"
        ),
        {
            "Shop": ("class", 1),
            "Shop.LIMIT": ("constant", 2),
            "Shop.MOST": ("constant", 2),
            "Open": ("interface", 6),
            "Open.HOURS": ("constant", 7),
        },
    ),
    "c_sharp": (
        'class Shop {\n  public const int Limit = 3;\n  static readonly string Name = "a";\n  private int items;\n}\n',
        {"Shop": ("class", 1), "Shop.Limit": ("constant", 2), "Shop.Name": ("constant", 3)},
    ),
    "kotlin": (
        "const val LIMIT = 3\nval names = listOf(1)\nobject Shop {\n  const val MOST = 4\n}\n",
        {
            "LIMIT": ("property", 1),
            "names": ("property", 2),
            "Shop": ("object", 3),
            "Shop.MOST": ("property", 4),
        },
    ),
    "ruby": (
        "VERSION = '1'\nmodule Shop\n  LIMIT, MOST = 3, 4\n  Point = Struct.new(:x)\n  name = 1\n  def f\n    other = 2\n  end\nend\n",
        {
            "VERSION": ("constant", 1),
            "Shop": ("module", 2),
            "Shop.LIMIT": ("constant", 3),
            "Shop.MOST": ("constant", 3),
            "Shop.Point": ("constant", 4),
            "Shop.f": ("method", 6),
        },
    ),
    "php": (
        "<?php\nconst LIMIT = 3, MOST = 4;\ndefine('NAME', 'a');\n$local = 1;\nclass Shop {\n  const SIZE = 5;\n  public $items;\n}\n",
        {
            "LIMIT": ("constant", 2),
            "MOST": ("constant", 2),
            "NAME": ("constant", 3),
            "Shop": ("class", 5),
            "Shop.SIZE": ("constant", 6),
        },
    ),
    "sql": (
        (
            'CREATE TABLE [dbo].[Users] (id INT);\nCREATE TABLE "public"."orders" (id INT);\nCREATE TABLE `shop`.`items` (id INT);\n'
            'CREATE UNIQUE INDEX "by id" ON t (id);\nCREATE OR ALTER PROCEDURE [dbo].[Refresh] AS SELECT 1;\n'
        ),
        {
            "dbo.Users": ("table", 1),
            "public.orders": ("table", 2),
            "shop.items": ("table", 3),
            "by id": ("index", 4),
            "dbo.Refresh": ("procedure", 5),
        },
    ),
}


def declared(text: str, language: str, size: int = 1500) -> dict[str, tuple[str, int]]:
    return {row.symbol: (row.kind, row.line) for piece in cut_code(text, language, size) for row in piece.declared}


@pytest.mark.parametrize("language", VALUES)
def test_values_are_declared_in_each_language(language: str) -> None:
    text, expected = VALUES[language]
    assert declared(text, language) == expected


@pytest.mark.parametrize("language", [name for name in VALUES if name not in ("kotlin", "sql")])
def test_values_get_no_piece_of_their_own(language: str) -> None:
    text, expected = VALUES[language]
    values = {name for name, (kind, _) in expected.items() if kind in ("constant", "variable", "property")}
    assert values.isdisjoint({piece.symbol for size in (60, 200, 1500) for piece in cut_code(text, language, size)})


def test_value_that_is_assigned_again_is_declared_once() -> None:
    assert [row.line for piece in cut_code("a = 1\na = 2\n", "python", 1500) for row in piece.declared] == [1]


CALLS = """\
export const Card = React.memo(function Card({ title }) {
  return <h1>{title}</h1>;
});

const Input = forwardRef<HTMLInputElement, Props>((props, ref) => {
  return <input ref={ref} {...props} />;
});

const Row = observer(memo(({ cells }) => {
  return <tr>{cells}</tr>;
}));

export const useStore = create<State>()((set) => ({
  count: 0,
  increase: () => set((state) => ({ count: state.count + 1 })),
}));

const Button = styled.button`
  color: red;
`;

const widths = columns.map((column) => {
  return column.width;
});

export default connect((state) => {
  return state.user;
});

function App() {
  const save = useCallback(() => {
    return 1;
  });
}
"""


def test_names_given_to_calls_are_symbols() -> None:
    assert declared(CALLS, "tsx") == {
        "Card": ("function", 1),
        "Input": ("function", 5),
        "Row": ("function", 9),
        "useStore": ("function", 13),
        "useStore.increase": ("function", 15),
        "Button": ("constant", 18),
        "widths": ("constant", 22),
        "default": ("function", 26),
        "App": ("function", 30),
    }
    assert [(piece.symbol, piece.signature) for piece in cut_code(CALLS, "tsx", 160)][:2] == [
        ("Card", "export const Card = React.memo(function Card({ title })"),
        ("Input", "const Input = forwardRef<HTMLInputElement, Props>((props, ref) =>"),
    ]


@pytest.mark.parametrize(
    ("text", "language", "names"),
    [
        ("module.exports = { load() { return 1; }, save: () => 2 };\n", "javascript", ["load", "save"]),
        ("(function () { function load() { return 1; } })();\n", "javascript", ["load"]),
        ("const one = () => 1, two = () => 2;\n", "javascript", ["one", "two"]),
        ("export default { load() { return 1; } };\n", "javascript", ["load"]),
        ("namespace Shop { export function load() { return 1; } }\n", "typescript", ["Shop.load"]),
        ("module.exports = function load() { return 1; };\n", "javascript", ["module.exports"]),
        ("@cached\ndef load(): return 1\n", "python", ["load"]),
        ("try: LIMIT = 1\nexcept E: pass\n", "python", ["LIMIT"]),
        ('extern "C" { int load(void); }\n', "cpp", ["load"]),
    ],
)
def test_functions_of_one_line_are_declared_inside_wrappers(text: str, language: str, names: list[str]) -> None:
    assert list(declared(text, language)) == names


def test_class_with_a_long_constructor_begins_with_its_whole_head() -> None:
    body = "".join(f"        self.value_{row} = compute({row})\n" for row in range(60))
    text = (
        f"class Semaphore(Base):\n    def __init__(\n        self,\n        value: int = 1,\n    ) -> None:\n{body}\n"
    )
    text += "    def acquire(self):\n        a = 1\n        b = 2\n        return a + b\n"
    first, second, *_ = pieces = cut_code(text, "python", 600)
    assert text[first.start : first.end].startswith("class Semaphore(Base):\n    def __init__(\n        self,")
    assert [piece.symbol for piece in (first, second, pieces[-1])] == [
        "Semaphore",
        "Semaphore.__init__",
        "Semaphore.acquire",
    ]
    assert [row.symbol for row in first.declared] == ["Semaphore", "Semaphore.__init__"]
    assert "".join(text[piece.start : piece.end] for piece in pieces) == text
