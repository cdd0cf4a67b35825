"""Count matching lines by file with `git grep`, in the work tree or in a commit's tree."""

from __future__ import annotations

import os
import re

from vmrag_link import env
from vmrag_link.git.run import GUARDS, failure, git
from vmrag_link.paths import Places

_OPTIONS = ("grep", "-I", "-z", "-c", "--full-name", "--no-color", "--no-recurse-submodules", "--no-textconv")
_COUNT = re.compile(rb"(?P<path>[^\0]+)\0(?P<count>\d+)\n")
_NO_MATCH = 1


def count_lines(
    places: Places,
    pattern: str,
    *,
    commit: str | None = None,
    fixed: bool = True,
    ignore_case: bool = True,
    words: bool = False,
    seconds: float,
) -> dict[str, int]:
    """Return how many lines of each tracked text file match, by path from the top.

    `commit`: whose tree to read; None for the work tree. `fixed`: the pattern is the text itself,
    otherwise an extended regular expression. `words`: it matches whole words only. Raises
    `TimeoutError` after so many seconds, and `GitFailed`.
    """
    ways = [*(["-F"] if fixed else ["-E"]), *(["-i"] if ignore_case else []), *(["-w"] if words else [])]
    arguments = (*GUARDS, *_OPTIONS, *ways, "-e", pattern, *([commit] if commit else []), "--")
    finished = git(places, *arguments, extra=env.GIT_OFFLINE, timeout=seconds)
    if finished.returncode > _NO_MATCH:
        raise failure(arguments[len(GUARDS) :], finished)
    start = len(commit) + 1 if commit else 0
    counts = ((match["path"], int(match["count"])) for match in _COUNT.finditer(finished.stdout))
    return {os.fsdecode(path[start:]): count for path, count in counts}
