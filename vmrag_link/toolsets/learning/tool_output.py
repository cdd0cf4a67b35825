"""Read the output of linters, type checkers and coverage as one number.

A file can be untrusted. Entities that XML declares are refused.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Literal, NamedTuple
from xml.parsers import expat

from vmrag_link.models import parse_user_json
from vmrag_link.toolsets.learning.junit import OutputUnreadable

Metric = Literal["error_count", "linting", "complexity", "coverage", "maintainability"]

COVERAGE = "coverage"

_RULE = r"[A-Z]+[0-9]+"
_CONCISE = re.compile(rf"^\S.*:\d+:\d+:? (?P<rule>{_RULE}|invalid-syntax)\b", re.MULTILINE)
"""`path:line:column: RULE …`, the format of ruff, flake8 and pylint."""

_RUFF_FULL = re.compile(rf"^(?P<rule>{_RULE}|invalid-syntax)(?=:? ).*\n +--> \S", re.MULTILINE)
_RUFF_END = re.compile(r"^(Found \d+ errors?|All checks passed!)", re.MULTILINE)
_PYLINT_END = re.compile(r"^Your code has been rated at ", re.MULTILINE)
_MYPY = re.compile(r"^\S.*:\d+(?::\d+)?(?::\d+:\d+)?: error: ", re.MULTILINE)
_MYPY_END = re.compile(r"^(Found \d+ errors?|Success: no issues found) in ", re.MULTILINE)
_PERCENT = re.compile(r"\d{1,3}(?:\.\d{1,6})?%")

_COMPLEX = re.compile(r"C901|PLR09\d\d|R09\d\d|R1260")
"""The rules about complexity of mccabe and pylint, also under ruff's names."""


class Measure(NamedTuple):
    """A number. If `is_understood` is false, the output was not understood, and its lines were
    counted.
    """

    value: float
    is_understood: bool = True


def parse_measure(tool: str, metric: Metric, text: str) -> Measure:
    """Return the number in a tool's output. Raises `OutputUnreadable`.

    It is percent for `coverage`, and otherwise the number of messages; with the metric
    `complexity`, only of messages about complexity.
    """
    if tool == COVERAGE:
        return Measure(_parse_coverage(text))
    if tool not in _MESSAGES:
        return Measure(sum(1 for line in text.splitlines() if line.strip()), is_understood=False)
    rules = list(_parse_json(tool, text) if text.lstrip()[:1] in ("[", "{") else _MESSAGES[tool](text))
    if not rules and text.strip() and not _reports_nothing(tool, text):
        raise OutputUnreadable(f"is not output of {tool}")
    return Measure(sum(1 for rule in rules if metric != "complexity" or _COMPLEX.fullmatch(rule)))


def higher_is_better(tool: str) -> bool:
    return tool == COVERAGE


def _reports_nothing(tool: str, text: str) -> bool:
    """Return whether the output reports that the tool found nothing."""
    if text.strip() == "[]" or (text.lstrip()[:1] == "{" and tool == "pylint"):
        return True
    ends = {"ruff": _RUFF_END, "pylint": _PYLINT_END, "mypy": _MYPY_END}
    return tool in ends and ends[tool].search(text) is not None


def _parse_concise(text: str) -> Iterator[str]:
    return (match["rule"] for match in _CONCISE.finditer(text))


def _parse_ruff(text: str) -> Iterator[str]:
    yield from _parse_concise(text)
    yield from (match["rule"] for match in _RUFF_FULL.finditer(text))


def _parse_mypy(text: str) -> Iterator[str]:
    return ("error" for _ in _MYPY.finditer(text))


_MESSAGES: Mapping[str, Callable[[str], Iterator[str]]] = {
    "ruff": _parse_ruff,
    "flake8": _parse_concise,
    "pylint": _parse_concise,
    "mypy": _parse_mypy,
}
_RULE_KEYS = ("code", "message-id", "messageId")


def _parse_json(tool: str, text: str) -> Iterator[str]:
    """Return the rules in JSON of ruff, pylint (`json` and `json2`) or `mypy -O json` (one object
    per line).
    """
    lines = text.splitlines() if tool == "mypy" else [text]
    for line in filter(str.strip, lines):
        try:
            parsed = parse_user_json(line)
        except ValueError as error:
            raise OutputUnreadable(str(error)) from None
        rows = parsed.get("messages", [parsed]) if isinstance(parsed, dict) else parsed
        for row in rows if isinstance(rows, list) else ():
            if not isinstance(row, dict) or not any(key in row for key in _RULE_KEYS):
                raise OutputUnreadable(f"is not output of {tool}")
            if row.get("severity") != "note":
                yield next(str(row[key]) for key in _RULE_KEYS if key in row)


def _parse_coverage(text: str) -> float:
    """Return the percentage of `coverage report`, `coverage json` or `coverage xml`."""
    parsers = {"{": _parse_json_percent, "<": _parse_xml_percent}
    percent = parsers.get(text.lstrip()[:1], _parse_percent)(text)
    if percent is None or not 0 <= percent <= 100:  # noqa: PLR2004
        raise OutputUnreadable("is not output of coverage: neither its report nor its JSON or XML")
    return round(percent, 2)


def _parse_percent(text: str) -> float | None:
    """Return the percentage of the last report."""
    totals = [line.split()[-1] for line in text.splitlines() if line.startswith("TOTAL ")]
    return float(totals[-1][:-1]) if totals and _PERCENT.fullmatch(totals[-1]) else None


def _parse_json_percent(text: str) -> float | None:
    try:
        parsed: Any = parse_user_json(text)
    except ValueError as error:
        raise OutputUnreadable(str(error)) from None
    totals = parsed.get("totals") if isinstance(parsed, dict) else None
    percent = totals.get("percent_covered") if isinstance(totals, dict) else None
    return float(percent) if isinstance(percent, int | float) and not isinstance(percent, bool) else None


def _parse_xml_percent(text: str) -> float | None:
    """Return the rate of the root: lines and, if they were measured, branches."""
    roots: list[tuple[str, Mapping[str, str]]] = []

    def start_element(name: str, attributes: Mapping[str, str]) -> None:
        if not roots:
            roots.append((name, attributes))

    def refuse_entity(*_: Any) -> None:
        raise OutputUnreadable("declares entities, which are not read")

    parser = expat.ParserCreate()
    parser.StartElementHandler = start_element
    parser.EntityDeclHandler = refuse_entity
    try:
        parser.Parse(text.encode(), True)
    except (expat.ExpatError, ValueError) as error:
        raise OutputUnreadable(f"is not valid XML ({error})") from None
    name, attributes = roots[0]
    kinds = ("lines", "branches")
    try:
        covered = sum(int(attributes.get(f"{kind}-covered", 0)) for kind in kinds)
        valid = sum(int(attributes.get(f"{kind}-valid", 0)) for kind in kinds)
    except ValueError:
        return None
    return 100 * covered / valid if name == COVERAGE and valid > 0 else None
