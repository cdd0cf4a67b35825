"""Questions about code whose answers are known: the first sentences of docstrings, which are
removed, as are all others of their packages. A ranking must find a definition by the words of its
author.

The packages are others than those of `code_sets`; every second one, by name, is of the test half.
No setting may be chosen by the packages of `KEPT_BACK`.
"""

from __future__ import annotations

import ast
import hashlib
import re
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from bench.code_sets import CodeSet, Labelled, Question, Target, fetched

DOCUMENTED = (
    "beets==2.14.1",
    "celery==5.7.0",
    "django==5.2.19",
    "docutils==0.23",
    "networkx==3.6.1",
    "nltk==3.10.4",
    "scrapy==2.19.0",
    "sphinx==9.0.4",
    "sqlalchemy==2.1.6",
    "twisted==26.10.0",
)
KEPT_BACK = (
    "ansible-core==2.19.14",
    "dask==2026.8.0",
    "hypothesis==6.170.17",
    "paramiko==5.1.0",
    "pip==26.3",
    "pylint==4.1.4",
    "textual==8.2.8",
    "tornado==6.6.1",
    "werkzeug==3.1.9",
    "xarray==2026.9.0",
)
EACH = 200
"""Number of questions about one package."""

ROLE = re.compile(r":[\w:-]+:`~?!?([^`<]*?)\s*(?:<[^`]*>)?`")
SENTENCE = re.compile(r"(.*?[.!?])(?:\s|$)")


class Definition(NamedTuple):
    """A class, a function of a module, or a method. `docstring`: its text as written."""

    name: str
    start: int
    end: int
    docstring: str


def documented(folder: Path, *, test: bool = False, kept_back: bool = False) -> list[CodeSet]:
    """Return the questions, and files without docstrings, of one half or of `KEPT_BACK`."""
    made = []
    for package in KEPT_BACK if kept_back else DOCUMENTED[test::2]:
        whole = whole_package(folder, package)
        root = folder / "bare" / whole.name
        made.append(CodeSet(whole.name, "python", root, _some(_bared(whole, root))))
    return made


def whole_package(folder: Path, package: str) -> Path:
    """Its files with their docstrings."""
    return fetched(folder / "whole", Labelled(package.partition("==")[0], "pip", package, {"": ""}))


def _bared(whole: Path, root: Path) -> list[Question]:
    """Write the files of a package below `root` without docstrings, and return the questions about
    them. Tests give no questions.
    """
    questions = []
    for path in sorted(whole.rglob("*.py")):
        place = path.relative_to(whole)
        try:
            text = path.read_text("utf-8")
            bare, kept = without_docstrings(text), definitions(ast.parse(text))
            bare_definitions = definitions(ast.parse(bare))
        except (SyntaxError, ValueError):  # templates of code
            continue
        if [definition.name for definition in kept] != [definition.name for definition in bare_definitions]:
            raise AssertionError(f"{path} has other definitions without its docstrings")
        copy = root / place
        copy.parent.mkdir(parents=True, exist_ok=True)
        copy.write_text(bare)
        if not re.search(r"\b_?tests?\b", place.as_posix()):
            for documented_definition, bare_definition in zip(kept, bare_definitions, strict=True):
                if sentence := first_sentence(documented_definition.docstring, documented_definition.name):
                    target = Target(place.as_posix(), bare_definition.start, bare_definition.end)
                    questions.append(Question(sentence, "docstring", (target,)))
    return questions


def definitions(module: ast.Module) -> list[Definition]:
    """In the order of the file; nothing that is defined within a function."""

    def within(body: list[ast.stmt]) -> Iterator[Definition]:
        for node in body:
            if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
                start = min(part.lineno for part in (node, *node.decorator_list))
                yield Definition(node.name, start, node.end_lineno or start, ast.get_docstring(node) or "")
            if isinstance(node, (ast.ClassDef, ast.If, ast.Try)):
                yield from within(node.body)

    return list(within(module.body))


def without_docstrings(text: str) -> str:
    """Return the same code without docstrings, with `pass` in each body that became empty."""
    lines = text.encode().splitlines(keepends=True)
    for node in sorted(_documentable(ast.parse(text)), key=lambda node: -node.body[0].lineno):
        said = node.body[0]
        first, last = said.lineno - 1, (said.end_lineno or said.lineno) - 1
        before, after = lines[first][: said.col_offset], lines[last][said.end_col_offset :]
        instead = b"pass" if len(node.body) == 1 and not isinstance(node, ast.Module) else b""
        line = before + instead + after.lstrip(b"; \t")
        lines[first : last + 1] = [line] if line.strip() else []
    return b"".join(lines).decode()


def _documentable(module: ast.Module) -> Iterator[ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef]:
    """Yield each node that has a docstring."""
    for node in ast.walk(module):
        kinds = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
        if isinstance(node, kinds) and ast.get_docstring(node, clean=False) is not None:
            yield node


def first_sentence(docstring: str, name: str) -> str:
    """Without markup; none with less than four words or more than forty, none that has the name
    itself as a word, none that is an example or a list of fields.
    """
    paragraph = " ".join(docstring.partition("\n\n")[0].split())
    plain = re.sub(r"\b[A-Z]\{([^{}]*)\}", r"\1", ROLE.sub(r"\1", paragraph)).replace("`", "").replace("*", "")
    match = SENTENCE.match(plain)
    sentence = (match[1] if match else plain).rstrip(".: ")
    if not 4 <= len(sentence.split()) <= 40 or re.search(r">>>|::|^[:@.]|->|==|--", sentence):
        return ""
    return "" if re.search(rf"(?<!\w){re.escape(name)}(?!\w)", sentence) else sentence


def _some(questions: list[Question]) -> list[Question]:
    """Return `EACH` of the questions whose text is unique, chosen by their texts alone."""
    times = Counter(question.text.lower() for question in questions)
    once = [question for question in questions if times[question.text.lower()] == 1]
    return sorted(once, key=lambda question: hashlib.sha256(question.text.encode()).hexdigest())[:EACH]
