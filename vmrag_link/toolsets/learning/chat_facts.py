"""Derive facts about a chat from its texts: the kind and size of its changes, and a confidence."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Sequence
from itertools import groupby, islice, takewhile
from typing import Literal

from vmrag_link.models import Record

ModificationType = Literal[
    "refactor", "bugfix", "feature", "documentation", "optimization", "test", "config", "style", "unknown"
]

CONTEXT_LINES = 3
"""Number of unchanged lines on each side of a change."""

MAX_CHANGE_CHARS = 2000
"""Maximum number of stored characters of a change, before and after each."""

MAX_FILES = 20
"""Maximum number of files whose changes are stored. The repository has the others."""

ARROW = "→"

MANY_TOOLS = 2
LONG_ANSWER_CHARS = 80


class FileChange(Record, frozen=True):
    """The whole text of a file, before and after."""

    file_path: str
    before_content: str = ""
    after_content: str = ""


class ChangedPart(Record, frozen=True):
    """The text before and after a change. `line` counts from 1."""

    line: int
    before: str
    after: str


def tool_sequence(names: Iterable[str]) -> str:
    """Return `a→b→a` for tools in the order of their use, without immediate repeats."""
    return ARROW.join(name for name, _ in groupby(names))


def diff_summary(changes: Sequence[FileChange]) -> str:
    """Return a line for each file, with its numbers of new and removed lines."""
    return "\n".join(_count_lines(change) for change in changes)


def _count_lines(change: FileChange) -> str:
    before = Counter(change.before_content.splitlines())
    after = Counter(change.after_content.splitlines())
    kind = "changed" if change.after_content else "deleted"
    if not change.before_content:
        kind = "added"
    return f"{change.file_path}: {kind}, +{(after - before).total()} -{(before - after).total()} lines"


def code_context(changes: Sequence[FileChange]) -> dict[str, ChangedPart]:
    """Return the changed part of each file, with a few lines around it; only for the
    first files.
    """
    differing = (change for change in changes if change.before_content != change.after_content)
    return {change.file_path: _find_part(change) for change in islice(differing, MAX_FILES)}


def _find_part(change: FileChange) -> ChangedPart:
    """Return the part from the first to the last changed line, in one pass."""
    before = change.before_content.splitlines()
    after = change.after_content.splitlines()
    head = _count_equal(before, after)
    tail = min(_count_equal(before[::-1], after[::-1]), len(before) - head, len(after) - head)
    first = max(0, head - CONTEXT_LINES)
    old, new = (
        "\n".join(lines[first : len(lines) - tail + CONTEXT_LINES])[:MAX_CHANGE_CHARS] for lines in (before, after)
    )
    return ChangedPart(first + 1, old, new)


def _count_equal(one: Sequence[str], other: Sequence[str]) -> int:
    return sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], zip(one, other, strict=False)))


_KEYWORDS: dict[ModificationType, str] = {
    "bugfix": r"\b(?:fix|bug|error|crash|regress|broken|wrong|fail)",
    "refactor": r"\b(?:refactor|renam|restructur|clean ?up|simplif|extract|split|mov(?:e|ing)\b)",
    "documentation": r"\b(?:documentation|docs?\b|readme|changelog|docstring|comment)|\.(?:md|rst)\b",
    "test": r"\b(?:tests?\b|testing|coverage|pytest|test_)",
    "optimization": r"\b(?:optimi|perform|speed|faster|slow|memory|cach(?:e|ing)\b)",
    "config": r"\b(?:config|setting|environment variable)|\.(?:ya?ml|toml|ini)\b",
    "style": r"\b(?:style|format|lint|whitespace|indent)",
    "feature": r"\b(?:feature|add(?:s|ed|ing)?\b|implement|new\b|support|introduc)",
}


def modification_type(*texts: str) -> ModificationType:
    """Return the kind of change with the most words in the text.

    Of equal kinds, the first is used.
    """
    text = "\n".join(texts).lower()
    counts = {kind: len(re.findall(words, text)) for kind, words in _KEYWORDS.items()}
    best = max(counts, key=lambda kind: counts[kind])
    return best if counts[best] else "unknown"


def estimate_confidence(*, changed: bool, tools: int, response: str, kind: ModificationType) -> float:
    """Return how much a chat can teach, by a fixed rule.

    The base is 0.4. Each of these adds to it: changed files, several tools, a long answer, a known
    kind of change.
    """
    points = 0.4
    points += 0.2 * changed
    points += 0.1 * (tools >= MANY_TOOLS)
    points += 0.1 * (len(response) >= LONG_ANSWER_CHARS)
    points += 0.1 * (kind != "unknown")
    return round(points, 2)
