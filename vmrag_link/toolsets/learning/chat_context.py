"""What can be derived of a chat where its writer says nothing. Pure."""

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

AROUND = 3
"""Unchanged lines that are shown on each side of a change."""

MOST = 2000
"""Characters of a change that are kept, before and after each."""

MOST_FILES = 20
"""Files of which changes are kept; of the others the repository knows."""

ARROW = "→"


class FileChange(Record, frozen=True):
    """A file's whole text, before and after."""

    file_path: str
    before_content: str = ""
    after_content: str = ""


class ChangedPart(Record, frozen=True):
    """What a change replaces, and by what; `line` counts from 1."""

    line: int
    before: str
    after: str


def tool_sequence(names: Iterable[str]) -> str:
    """`a→b→a` of tools in the order of their use; repeats in a row are one."""
    return ARROW.join(name for name, _ in groupby(names))


def diff_summary(changes: Sequence[FileChange]) -> str:
    """A line a file: how many of its lines are new, and how many gone."""
    return "\n".join(_counted(each) for each in changes)


def _counted(change: FileChange) -> str:
    before, after = (Counter(text.splitlines()) for text in (change.before_content, change.after_content))
    what = "added" if not change.before_content else "deleted" if not change.after_content else "changed"
    return f"{change.file_path}: {what}, +{(after - before).total()} -{(before - after).total()} lines"


def code_context(changes: Sequence[FileChange]) -> dict[str, ChangedPart]:
    """By file, the part that changed, with a few lines around it; of the first files only."""
    differing = (each for each in changes if each.before_content != each.after_content)
    return {each.file_path: _part(each) for each in islice(differing, MOST_FILES)}


def _part(change: FileChange) -> ChangedPart:
    """From the first line that differs to the last one: one pass, however large the files are."""
    before, after = change.before_content.splitlines(), change.after_content.splitlines()
    head = _equal(before, after)
    tail = min(_equal(before[::-1], after[::-1]), len(before) - head, len(after) - head)
    first = max(0, head - AROUND)
    old, new = ("\n".join(lines[first : len(lines) - tail + AROUND])[:MOST] for lines in (before, after))
    return ChangedPart(first + 1, old, new)


def _equal(one: Sequence[str], other: Sequence[str]) -> int:
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
    """The kind of change of which most words speak; of equal ones the first above."""
    text = "\n".join(texts).lower()
    found = {kind: len(re.findall(words, text)) for kind, words in _KEYWORDS.items()}
    best = max(found, key=lambda kind: found[kind])
    return best if found[best] else "unknown"


def confidence(*, changed: bool, tools: int, response: str, kind: ModificationType) -> float:
    """How much there is to learn from a chat, by a fixed rule: 0.4, and more for each of these:
    files were changed, several tools were used, the answer says something, it is known what was
    done.
    """
    few, short = 2, 80
    points = 0.4 + 0.2 * changed + 0.1 * (tools >= few) + 0.1 * (len(response) >= short) + 0.1 * (kind != "unknown")
    return round(points, 2)
