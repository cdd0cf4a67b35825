"""Count matching lines by file with `git grep`, in the work tree or in a commit's tree."""

from __future__ import annotations

import os
import re
from collections.abc import Sequence

from vmrag_link import env
from vmrag_link.git.run import GUARDS, build_failure, run_git
from vmrag_link.paths import Places

_OPTIONS = ("grep", "-I", "-F", "-z", "-c", "--full-name", "--no-color", "--no-recurse-submodules", "--no-textconv")
_COUNT = re.compile(rb"(?P<path>[^\0]+)\0(?P<count>\d+)\n")
_NO_MATCH = 1


def count_lines(
    places: Places,
    text: str,
    *,
    beside: Sequence[str] = (),
    commit: str | None = None,
    ignore_case: bool = True,
    words: bool = False,
    seconds: float,
) -> dict[str, int]:
    """Return how many lines of each tracked text file hold a text, by path from the top.

    `beside`: texts of which one must be in the same line. `commit`: whose tree to read, None for
    the work tree. `words`: the texts match whole words only. Raises `TimeoutError` after `seconds`,
    and `GitFailed`.
    """
    options = [option for option, is_set in (("-i", ignore_case), ("-w", words)) if is_set]
    second_patterns = ["--and", "(", *(part for word in beside for part in ("-e", word)), ")"] if beside else []
    arguments = (*GUARDS, *_OPTIONS, *options, "-e", text, *second_patterns, *([commit] if commit else []), "--")
    finished = run_git(places, *arguments, extra=env.GIT_OFFLINE, timeout=seconds)
    if finished.returncode > _NO_MATCH:
        raise build_failure(arguments[len(GUARDS) :], finished)
    start = len(commit) + 1 if commit else 0
    counts = ((match["path"], int(match["count"])) for match in _COUNT.finditer(finished.stdout))
    return {os.fsdecode(path[start:]): count for path, count in counts}
