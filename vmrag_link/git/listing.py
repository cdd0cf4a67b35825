"""Which files a work tree has, as git lists them."""

from __future__ import annotations

import os
from collections.abc import Sequence

from vmrag_link.git.run import demand
from vmrag_link.paths import Places


def files_below(places: Places, folders: Sequence[str]) -> list[str]:
    """The files in these folders, as paths below the root: tracked ones, also those that are gone,
    and others unless they are ignored. Those of submodules are none. Raises `GitFailed`.
    """
    if not folders:
        return []
    # A repository that a stranger packed must not name a program: core.fsmonitor would be one.
    listed = demand(
        places,
        *("-c", "core.fsmonitor=false", "--literal-pathspecs"),
        *("ls-files", "-z", "--cached", "--others", "--exclude-standard", "--deduplicate", "--"),
        *folders,
    )
    return [os.fsdecode(name) for name in listed.stdout.split(b"\0") if name]
