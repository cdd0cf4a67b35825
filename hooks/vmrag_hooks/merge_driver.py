"""`python -m vmrag_hooks.merge_driver %O %A %B %L %P`: the merge driver of `.dolt-version`, for all
merges of git.

It exits with 0 and the merged pin in %A, or with 1. Then %A is unchanged: it is our side's valid
pin, and `vmrag resolve` resolves the conflict. Only if git merges several bases into one, %A is
empty after a failure.
"""

from __future__ import annotations

import gc
import os
import sys
from collections.abc import Sequence
from pathlib import Path

gc.disable()  # before the imports, which would trigger it several times

from vmrag_hooks.boundary import run_guarded  # noqa: E402
from vmrag_link.git.merge_driver import read_marker_size  # noqa: E402
from vmrag_link.git.pin_merge import is_merge  # noqa: E402
from vmrag_link.progress import QUIET  # noqa: E402
from vmrag_link.workspace import Workspace, twins  # noqa: E402
from vmrag_link.workspace.follow import accepted_losses  # noqa: E402
from vmrag_link.workspace.merge.merge_pins import merge_pins  # noqa: E402


def main(argv: Sequence[str]) -> int:
    return 0 if run_guarded(lambda: merge_pin_files(argv)) else 1


def merge_pin_files(argv: Sequence[str]) -> None:
    """Merge the files %O (base), %A (ours) and %B (theirs), and write the result to %A."""
    base, ours, theirs = (Path(argument) for argument in argv[:3])
    workspace = Workspace.open(Path.cwd(), QUIET)
    # git asks for longer conflict markers while it merges several bases into a virtual one.
    virtual = int(argv[3]) > read_marker_size(workspace.places)
    before = ours.read_bytes()
    if virtual:
        # If this fails, git still continues, and uses the content of this file as the base of the
        # real merge. With our pin as the base, git would drop it as unchanged.
        ours.write_bytes(b"")
    try:
        if workspace.places.merge_in_git.exists():
            from vmrag_link.workspace.merge import merge_state  # rarely needed

            merge_state.discard_aborted(workspace)
        accepted_losses.require_sides(workspace, base.read_bytes(), before, theirs.read_bytes())
        result = merge_pins(
            workspace.engine,
            base.read_bytes(),
            before,
            theirs.read_bytes(),
            joins=is_merge(workspace.places),
            virtual=virtual,
            derived=twins.build_derived(workspace),
        )
    finally:
        workspace.close()
    ours.write_bytes(result)


if __name__ == "__main__":
    code = main(sys.argv[1:])
    sys.stderr.flush()
    os._exit(code)
