"""Counts that may only fall.

`tests/budgets.json` stores the highest allowed value of each count. A check fails if a count is
higher. With `--write` it stores the counts that are lower.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[1]
BUDGETS = Path(__file__).with_suffix(".json")
SHOWN = 12
"""Number of places that a failure lists for one count."""


@dataclass(frozen=True)
class Place:
    """One occurrence of something that is counted."""

    folder: str
    """Top-level folder of the file, or `.`."""
    kind: str
    """Name of the count, for example `vague names`."""
    file: str
    """Path relative to the repository."""
    line: int
    text: str
    """Text that was counted, on one line."""


def check_budgets(section: str, places: Iterable[Place], *, write: bool) -> bool:
    """Compare the counts with their budgets, print the result, and return whether all are kept."""
    places = list(places)
    counts: dict[str, Counter[str]] = {}
    for place in places:
        counts.setdefault(place.folder, Counter())[place.kind] += 1
    stored = json.loads(BUDGETS.read_text())
    budgets: dict[str, dict[str, int]] = stored.get(section, {})
    failures = [
        (folder, kind, count, budgets.get(folder, {}).get(kind, 0))
        for folder, kinds in sorted(counts.items())
        for kind, count in sorted(kinds.items())
        if count > budgets.get(folder, {}).get(kind, 0)
    ]
    totals = sum((kinds for kinds in counts.values()), Counter[str]())
    print(f"{section}: " + ", ".join(f"{kind} {count}" for kind, count in totals.most_common()))
    for folder, kind, count, budget in failures:
        print(f"error: {kind} in {folder}: {count}, budget {budget}")
        relevant = [place for place in places if (place.folder, place.kind) == (folder, kind)]
        for place in prefer_added(relevant)[:SHOWN]:
            print(f"  {place.file}:{place.line}: {place.text[:120]}")
    if write:
        stored[section] = {
            folder: {kind: min(budget, counts.get(folder, Counter())[kind]) for kind, budget in kinds.items()}
            for folder, kinds in budgets.items()
        }
        BUDGETS.write_text(json.dumps(stored, indent=1, sort_keys=True) + "\n")
    return not failures


def prefer_added(places: list[Place]) -> list[Place]:
    """Return the places on lines that were added after the budgets were stored, or all places if
    there are none.
    """
    lines = list_added_lines()
    return [place for place in places if (place.file, place.line) in lines] or places


def list_added_lines() -> set[tuple[str, int]]:
    """Return (file, line) of each line added since the last commit of the budgets."""
    base = run_git("log", "-1", "--format=%H", "--", str(BUDGETS.relative_to(ROOT))).strip() or "HEAD"
    lines = set[tuple[str, int]]()
    file = ""
    for line in run_git("diff", "-U0", "--no-color", base).splitlines():
        if line.startswith("+++ "):
            file = line.removeprefix("+++ b/")
        elif hunk := re.match(r"@@ -\S+ \+(\d+)(?:,(\d+))? @@", line):
            first, length = int(hunk[1]), int(hunk[2] or 1)
            lines |= {(file, number) for number in range(first, first + length)}
    return lines


def run_git(*arguments: str) -> str:
    """Return the output of a git command, or nothing if git fails (for example in an archive)."""
    result = subprocess.run(["git", *arguments], cwd=ROOT, capture_output=True, text=True, check=False)
    return result.stdout if result.returncode == 0 else ""


def list_tracked_files() -> list[str]:
    """Return all tracked files that exist, and new files that git does not ignore."""
    listed = run_git("ls-files", "-z", "--cached", "--others", "--exclude-standard").split("\0")
    return sorted({name for name in listed if name and (ROOT / name).is_file()})


def wants_write() -> bool:
    return "--write" in sys.argv[1:]
