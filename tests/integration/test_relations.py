"""Callers and callees of a name, as commands and tools list them."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support import sources
from tests.support.repos import isolate
from tests.support.sources import commit
from tests.support.templates import build_once, copy_tree
from tests.support.terminal import Project

pytestmark = pytest.mark.hooks("off")

FILES = {
    "shop/__init__.py": "from shop.cart import Cart\n",
    "shop/cart.py": (
        '"""total() is not called here."""\n\nLIMIT = 3\n\n\nclass Cart:\n    def get(self, name):\n        return self.rows[name]\n\n'
        "    def empty_out(self):\n        return total(self.get('a'))\n\n\ndef total(row):\n    return row\n"
    ),
    "shop/orders.py": (
        "import os\n\nfrom shop.cart import Cart, total\n\n\ndef order(name):\n    cart = Cart()\n    row = cart.get(name)\n"
        "    # total(row)\n    return total(\n        row\n    )\n\n\nprint(total(1))\n"
    ),
    "shop/alias.py": "from .cart import total as sum_up\n\n\ndef alias():\n    return sum_up(2)\n",
    "shop/module.py": "from shop import cart as basket\n\n\ndef twice():\n    return basket.total(1)\n",
    "shop/other.py": "from decimal import total\n\nrows = {}\n\n\ndef get(name):\n    return total(rows.get(name))\n",
    "shop/value.py": "from shop.cart import total\n\nprint(map(total, [1]))\n",
    "web/view.tsx": (
        "import { memo } from 'react';\nimport { load as fetchAll } from './api';\nimport * as api from './api';\n\n"
        "export const Row = memo(() => {\n  return <td>{fetchAll()}</td>;\n});\n\n"
        "export function Table() {\n  api.load();\n  return <Row />;\n}\n"
    ),
    "web/api.ts": "export function load() {\n  return 1;\n}\n",
    "web/far.ts": "import { load } from 'far-away';\n\nload();\n",
    "go/shop/shop.go": "package shop\n\nfunc Open() int {\n\treturn 1\n}\n\nfunc Twice() int {\n\treturn Open() + Open()\n}\n",
    "go/main.go": 'package main\n\nimport (\n\t"example.com/go/shop"\n\t"os"\n)\n\nfunc main() {\n\tshop.Open()\n\tos.Open("a")\n}\n',
    "native/list.c": "static int area(int x)\n{\n\treturn x;\n}\n\nint size(void)\n{\n\treturn area(2);\n}\n",
    "native/other.c": "int other(void)\n{\n\treturn area(1) + size();\n}\n",
    "native/fold.c": "int\nfold(int x)\n{\n\treturn x ? fold(x - 1) : 0;\n}\n",
    "src/lib.rs": "pub mod store {\n    pub fn keep() {}\n}\n\nuse store::keep;\n\nfn run() {\n    keep();\n    std::mem::keep();\n}\n",
    "src/Shop.java": "class Shop {\n  int price() {\n    return 1;\n  }\n\n  int both() {\n    return price() + this.price();\n  }\n}\n",
}


def prepared(folder: Path) -> None:
    project = sources.sourced_project(folder / "top")
    sources.change(project, ".vmrag.yaml", "[src/]", "[src/, shop/, web/, go/, native/]")
    commit(project, "shop", **FILES)
    project.vmrag("query", "total")


@pytest.fixture(scope="session")
def related_template(tmp_path_factory) -> Path:
    return build_once(tmp_path_factory, "related", prepared)


@pytest.fixture
def project(related_template, tmp_path, monkeypatch) -> Project:
    isolate(monkeypatch, tmp_path / "home")
    copy_tree(related_template / "top", tmp_path / "project")
    monkeypatch.setenv("VMRAG_EMBEDDING_MODEL", "hash")
    return Project(tmp_path / "project")


def related(project: Project, relation: str, name: str, *more: str) -> dict[tuple[str, str], list[int]]:
    """Return the lines of the calls, by path and symbol."""
    report = project.ask("query", f"--{relation}", name, *more)
    assert (report["relation"], report["by"], report["left_out"]) == (relation, "name", 0)
    return {(row["path"], row.get("symbol", "")): [call["line"] for call in row["calls"]] for row in report["related"]}


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        (
            "total",
            {
                ("shop/alias.py", "alias"): [5],
                ("shop/cart.py", "Cart.empty_out"): [11],
                ("shop/module.py", "twice"): [5],
                ("shop/orders.py", "order"): [10],
                ("shop/orders.py", ""): [15],
            },
        ),
        ("Cart", {("shop/orders.py", "order"): [7]}),
        ("Cart.get", {("shop/cart.py", "Cart.empty_out"): [11], ("shop/orders.py", "order"): [8]}),
        ("load", {("web/view.tsx", "Row"): [6], ("web/view.tsx", "Table"): [10]}),
        ("Row", {("web/view.tsx", "Table"): [11]}),
        ("Open", {("go/main.go", "main"): [9], ("go/shop/shop.go", "Twice"): [8]}),
        ("area", {("native/list.c", "size"): [8]}),
        ("size", {("native/other.c", "other"): [3]}),
        ("fold", {("native/fold.c", "fold"): [4]}),
        ("keep", {("src/lib.rs", "run"): [8]}),
        ("Shop.price", {("src/Shop.java", "Shop.both"): [7]}),
    ],
)
def test_callers_are_found_by_name_and_import(project, name, expected):
    assert related(project, "callers", name) == expected


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        (
            "order",
            {("shop/cart.py", "Cart"): [7], ("shop/cart.py", "Cart.get"): [8], ("shop/cart.py", "total"): [10]},
        ),
        ("Cart.empty_out", {("shop/cart.py", "Cart.get"): [11], ("shop/cart.py", "total"): [11]}),
        ("alias", {("shop/cart.py", "total"): [5]}),
        ("Table", {("web/api.ts", "load"): [10], ("web/view.tsx", "Row"): [11]}),
        ("main", {("go/shop/shop.go", "Open"): [9]}),
        ("other", {("native/list.c", "size"): [3]}),
        ("area", {}),
        ("fold", {("native/fold.c", "fold"): [4]}),
    ],
)
def test_callees_are_definitions_that_the_code_calls(project, name, expected):
    assert related(project, "callees", name) == expected


def test_rows_have_the_lines_of_the_caller_and_of_its_calls(project):
    (row,) = project.ask("query", "--callers", "total", "--path", "shop/orders.py", "--symbol", "order")["related"]
    assert row == {
        "path": "shop/orders.py",
        "line": 6,
        "last_line": 12,
        "symbol": "order",
        "kind": "function",
        "collection": "code",
        "calls": [{"path": "shop/orders.py", "line": 10, "text": "return total("}],
    }
    shown = project.vmrag("query", "--callers", "total", "--path", "shop/orders.py").out.splitlines()
    assert shown[:2] == ["shop/orders.py:6  function order", "    10: return total("]
    assert "2 callers of 'total', by name" in shown


def test_relations_are_narrowed_and_include_edited_files(project):
    assert related(project, "callers", "total", "--path", "module") == {("shop/module.py", "twice"): [5]}
    assert related(project, "callers", "load", "--lang", "python") == {}
    project.write("shop/new.py", "from shop.cart import total\n\ntotal(3)\n")
    project.git("add", "-N", "shop/new.py")
    rows = project.ask("query", "--callers", "total")["related"]
    assert [row["uncommitted"] for row in rows if row["path"] == "shop/new.py"] == ["added"]
    assert ("shop/new.py", "") not in related(project, "callers", "total", "--at", "HEAD")


def test_unknown_name_gets_the_closest_names(project):
    error = project.vmrag("query", "--callers", "totl", "--json", code=2).error
    assert (error["code"], error["details"]["parameter"]) == ("INVALID_PARAMETER", "callers")
    assert "total" in error["hint"]


@pytest.mark.parametrize("more", [("text",), ("-k", "3"), ("--symbols", "a"), ("--callees", "a"), ("--budget", "500")])
def test_relation_goes_with_no_search(project, more):
    assert project.vmrag("query", "--callers", "total", *more, "--json", code=2).error["code"] == "INVALID_PARAMETER"
