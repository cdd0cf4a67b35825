"""All messages of errors and findings in the code begin in lower case."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from tests.unit.test_hint_form import PACKAGES, ROOT, _read
from vmrag_link import errors

CLASSES = {name: 0 for name, value in vars(errors).items() if isinstance(value, type) and issubclass(value, Exception)}
POSITIONS = CLASSES | {"Finding": 2, "PinFinding": 3, "CommitFinding": 1, "Caution": 1}
"""The position of the message among the arguments of these classes."""

FINDINGS = re.compile(r"vmrag_hooks|doctor|verify|hook_checks")
"""Modules in which `message` is the message of a finding."""

NAMES = re.compile(r"(?:Chroma|Dolt|GitHub|X|[A-Z]{2}[A-Z_]*)\b")
"""Names that keep their capital letter. `X` is an inserted value."""


def _list_messages() -> Iterator[tuple[str, str]]:
    """Yield the place and the text of each message, with `X` for inserted values."""
    for path in sorted(path for package in PACKAGES for path in (ROOT / package).rglob("*.py")):
        is_of_findings = bool(FINDINGS.search(str(path)))
        for node in ast.walk(ast.parse(path.read_text())):
            for text in _list_texts(node, assigned=is_of_findings):
                yield f"{path.relative_to(ROOT)}:{text.lineno}", _read(text)


def _list_texts(node: ast.AST, *, assigned: bool) -> Iterator[ast.Constant | ast.JoinedStr]:
    match node:
        case ast.Call(func=ast.Name(id=name) | ast.Attribute(attr=name), args=args) if name in POSITIONS:
            values = args[POSITIONS[name] :][:1]
        case ast.Assign(targets=[ast.Name(id="message")], value=value) if assigned:
            values = [value]
        case _:
            return
    for value in values:
        parts = [value.body, value.orelse] if isinstance(value, ast.IfExp) else [value]
        yield from (part for part in parts if isinstance(part, ast.JoinedStr | ast.Constant) and _read(part))


def test_messages_begin_in_lower_case():
    texts = list(_list_messages())
    capital = [f"{place}: {text}" for place, text in texts if text[0].isupper() and not NAMES.match(text)]
    assert not capital, "\n".join(capital)
    assert len(texts) > 900


def test_messages_name_what_is_missing_directly():
    flaws = [f"{place}: {text}" for place, text in _list_messages() if re.match(r"[Tt]here (is|are) ", text)]
    assert not flaws, "\n".join(flaws)
