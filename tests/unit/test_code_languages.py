"""Which language a file is in, and the key of what cuts it."""

from __future__ import annotations

import importlib.metadata
import tomllib
from pathlib import Path

import pytest
from packaging.requirements import Requirement

from vmrag_link.code import languages
from vmrag_link.code.grammars import GRAMMAR_RULES
from vmrag_link.code.languages import GRAMMARS, describe_cutter, detect_language, find_language_problem
from vmrag_link.errors import IndexExtraMissing

PYPROJECT = Path(__file__).parents[2] / "pyproject.toml"


@pytest.mark.parametrize(
    ("path", "language"),
    [
        ("src/a.py", "python"),
        ("typings/a.pyi", "python"),
        ("a.MJS", "javascript"),
        ("a.jsx", "javascript"),
        ("a.d.ts", "typescript"),
        ("a.tsx", "tsx"),
        ("a.go", "go"),
        ("a.rs", "rust"),
        ("A.java", "java"),
        ("a.c", "c"),
        ("a.h", "cpp"),
        ("a.hpp", "cpp"),
        ("A.cs", "c_sharp"),
        ("Rakefile", "ruby"),
        ("a.php", "php"),
        ("build.gradle.kts", "kotlin"),
        ("a.swift", "swift"),
        ("bin/run.sh", "bash"),
        ("a.sql", "sql"),
        ("a.lua", "lua"),
        ("A.scala", "scala"),
        ("deep/Makefile", "make"),
        ("CMakeLists.txt", "cmake"),
        ("README.md", ""),
        ("page.html", ""),
        ("data.json", ""),
        ("LICENSE", ""),
        (".py", ""),
        ("py", ""),
        ("a.py/", ""),
        ("", ""),
    ],
)
def test_language_is_known_by_the_name(path: str, language: str) -> None:
    assert detect_language(path) == language


def test_key_names_the_exact_versions_of_grammar_and_parser() -> None:
    grammar, runtime = (importlib.metadata.version(name) for name in ("tree-sitter-python", "tree-sitter"))
    assert describe_cutter("python") == f"python {grammar} / tree-sitter {runtime} / 3.3"
    assert len({describe_cutter(language) for language in GRAMMARS}) == len(GRAMMARS)


@pytest.mark.parametrize("language", ["lua", "make", ""])
def test_language_without_grammar_is_cut_by_lines(language: str) -> None:
    assert describe_cutter(language) == "lines 3"


def test_key_changes_with_the_rules(monkeypatch: pytest.MonkeyPatch) -> None:
    before = describe_cutter("go"), describe_cutter("lua")
    monkeypatch.setattr(languages, "RULES_OF_LINES", 4)
    assert describe_cutter("go") != before[0]
    assert describe_cutter("lua") != before[1]


def test_missing_extra_error_shows_the_command(monkeypatch: pytest.MonkeyPatch) -> None:
    assert find_language_problem() == ""
    installed = languages.read_stamps()
    monkeypatch.setattr(languages, "read_stamps", lambda: {**installed, "tree-sitter-go": None})
    assert (
        find_language_problem()
        == "source code needs tree-sitter, but tree-sitter-go is not installed; run 'pip install \"vmrag-link[code]\"' to install it"
    )
    monkeypatch.setattr(languages, "read_stamps", lambda: dict.fromkeys(installed))
    assert " and 15 more packages are not installed; " in find_language_problem()


def test_language_without_its_grammar_has_no_key(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(languages, "_read_version", lambda distribution: "" if distribution.endswith("-go") else "1")
    with pytest.raises(IndexExtraMissing) as missing:
        describe_cutter("go")
    assert missing.value.hint == "run 'pip install \"vmrag-link[code]\"' to install it"
    assert describe_cutter("rust").startswith("rust 1 ")


def test_every_grammar_has_rules_and_is_in_the_extra_exactly() -> None:
    assert set(GRAMMAR_RULES) == set(GRAMMARS)
    extra = tomllib.loads(PYPROJECT.read_text())["project"]["optional-dependencies"]["code"]
    required = {requirement.name: next(iter(requirement.specifier)) for requirement in map(Requirement, extra)}
    assert set(required) == {"tree-sitter", *(grammar.distribution for grammar in GRAMMARS.values())}
    assert {value.operator for value in required.values()} == {"=="}
