"""Calls and imports in the text of a program, without a parser."""

from __future__ import annotations

import time

import pytest

from vmrag_link.code.calls import Imported, blank_comments, find_calls, find_imports, list_called_names


def calls(text: str, language: str, *names: str) -> list[tuple[int, tuple[str, ...]]]:
    """Return the line and the receivers of each call of `load`, or of other names."""
    code = blank_comments(text, language)
    sites = find_calls(code, language, {name: name for name in names or ("load",)})
    return [(code.count("\n", 0, site.start) + 1, site.receivers) for site in sites]


@pytest.mark.parametrize(
    ("language", "text", "expected"),
    [
        (
            "python",
            (
                "def load(): ...\nload()\nself.store.load(1)\n# load()\n'load()'\nf'{load()}'\nload\n@load\ndef f(): ...\n"
                '"""\nload()\n"""\nupload()\nload_all()\nmap(load, rows)\nopen(x).load()\n'
            ),
            [(2, ()), (3, ("self", "store")), (6, ()), (8, ()), (16, ("",))],
        ),
        (
            "javascript",
            "function load() {}\nload();\nstore?.load();\n// load()\n/* load() */\n'load()';\n`${load()}`;\nnew load();\nload`x`;\n",
            [(2, ()), (3, ("store",)), (7, ()), (8, ())],
        ),
        ("tsx", "const a = <load x={1} />;\nload<string>('x');\nconst b: Array<load> = [];\n", [(1, ()), (2, ())]),
        ("go", 'func load() {}\nload()\nstore.load()\n// load()\n"load()"\n`load()`\n', [(2, ()), (3, ("store",))]),
        (
            "rust",
            "fn load() {}\nload();\nStore::load();\nself.load();\nload::<u8>();\nload!(1);\n// load()\nlet a = 'x'; fn b<'a>() { load(); }\n",
            [(2, ()), (3, ("Store",)), (4, ("self",)), (5, ()), (6, ()), (8, ())],
        ),
        (
            "java",
            'load();\nthis.load();\nStore.load();\n/** load() */\n"load()";\n',
            [(1, ()), (2, ("this",)), (3, ("Store",))],
        ),
        ("c", "load(1);\ns->load(1);\n/* load(1) */\nx = load;\n", [(1, ()), (2, ("s",))]),
        ("cpp", "shop::load();\nload<int>(1);\n", [(1, ("shop",)), (2, ())]),
        ("ruby", "def load; end\nload\nstore.load 1\n:load\n# load\n'load'\n", [(2, ()), (3, ("store",))]),
        (
            "php",
            "<?php\nload();\n$this->load();\nStore::load();\n// load()\n# load()\n",
            [(2, ()), (3, ("this",)), (4, ("Store",))],
        ),
        ("kotlin", "load()\nload { it }\nstore?.load()\n// load()\n", [(1, ()), (2, ()), (3, ("store",))]),
        ("swift", "load()\nself.load { $0 }\n", [(1, ()), (2, ("self",))]),
        ("c_sharp", "Load();\nawait store.load();\n", [(2, ("store",))]),
        (
            "bash",
            "load a\nx=$(load b)\nif load; then load; fi\necho load\n# load\n",
            [(1, ()), (2, ()), (3, ()), (3, ())],
        ),
        ("lua", "load()\nstore:load()\n", [(1, ()), (2, ())]),
    ],
)
def test_calls_are_found_outside_of_comments_and_strings(language, text, expected):
    result = calls(text, language)
    assert [(line, receivers) for line, receivers in result] == expected


def test_places_are_kept_where_comments_are_removed():
    text = "a = 1  # load()\n'''\nload()\n'''\nload()\n"
    assert len(blank_comments(text, "python")) == len(text)
    assert blank_comments(text, "python").count("\n") == 5


def test_names_that_may_be_called_are_listed():
    assert set(list_called_names("a = load(1)\nstore.save(a)\nif x:\n    return y\n@cached\n", "python")) == {
        "load",
        "save",
        "cached",
    }


@pytest.mark.parametrize(
    ("language", "text", "expected"),
    [
        (
            "python",
            "from a.b import load, save as keep  # why\nfrom . import (\n    one,  # first\n    two as other,\n)\nimport os.path, json as j\nfrom c import *\n",
            {
                "load": ("a.b", "load"),
                "keep": ("a.b", "save"),
                "one": (".", "one"),
                "other": (".", "two"),
                "*4": ("c", "*"),
                "os": ("os", ""),
                "j": ("json", ""),
            },
        ),
        (
            "typescript",
            (
                "import api, { load, save as keep } from './api';\nimport * as store from \"../store\";\nimport type { User } from 'user';\n"
                "const { read: get } = require('./read');\nconst fs = require('fs');\nexport { one } from './one';\n"
            ),
            {
                "api": ("./api", ""),
                "load": ("./api", "load"),
                "keep": ("./api", "save"),
                "store": ("../store", ""),
                "User": ("user", "User"),
                "get": ("./read", "read"),
                "fs": ("fs", ""),
                "one": ("./one", "one"),
            },
        ),
        (
            "go",
            'import "fmt"\nimport (\n\t"github.com/a/shop/v2"\n\tj "encoding/json"\n\t"gopkg.in/yaml.v3"\n)\n',
            {
                "fmt": ("fmt", ""),
                "shop": ("github.com/a/shop/v2", ""),
                "j": ("encoding/json", ""),
                "yaml": ("gopkg.in/yaml.v3", ""),
            },
        ),
        (
            "rust",
            "use crate::store::load;\nuse std::{io, mem::{swap, take as grab}};\nuse super::*;\n",
            {
                "load": ("crate.store", "load"),
                "io": ("std", "io"),
                "swap": ("std", "swap"),
                "grab": ("std", "take"),
                "*4": ("super", "*"),
            },
        ),
        (
            "java",
            "import a.b.Store;\nimport static a.b.Tools.load;\n",
            {"Store": ("a.b", "Store"), "load": ("a.b.Tools", "load")},
        ),
        ("php", "<?php\nuse App\\Store as Shop;\n", {"Shop": ("App", "Store")}),
    ],
)
def test_imports_are_read_in_each_language(language, text, expected):
    assert find_imports(text, language) == {name: Imported(*pair) for name, pair in expected.items()}


@pytest.mark.parametrize("language", ["python", "javascript", "go", "rust", "ruby", "php", "c", "bash"])
@pytest.mark.sample(17)
@pytest.mark.parametrize(
    "text",
    [
        '"' * 200_000,
        "'\\" * 100_000,
        '"""\\' * 60_000,
        "`" * 100_001,
        "/*" * 100_000,
        "import " * 40_000,
        "import " + " \n" * 100_000,
        "import {" + "a," * 100_000,
        "from a import (" * 20_000,
        "use a::" + "a::" * 60_000,
        "use a::{" * 30_000,
        "const {" * 30_000,
        "load" + " " * 200_000 + "(",
        "load" + " " * 200_000 + "x",
        "load<" * 50_000,
        "a." * 100_000 + "load()",
        "load.load" * 30_000,
    ],
)
def test_text_of_any_kind_is_parsed_quickly(text, language):
    before = time.process_time()
    code = blank_comments(text, language)
    list(find_calls(code, language, {"load": "load"}))
    list_called_names(code, language)
    find_imports(text, language)
    assert time.process_time() - before < 3
