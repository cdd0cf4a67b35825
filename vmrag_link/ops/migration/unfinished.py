"""What has to be over before a knowledge base changes places: it names revisions in files."""

from __future__ import annotations

from vmrag_link.errors import Busy, GitBusy, MergeConflict
from vmrag_link.git import plumbing, refs
from vmrag_link.ops.follow.recovery import recover
from vmrag_link.ops.merge import merge_state
from vmrag_link.workspace import Workspace


def require_none(ws: Workspace) -> None:
    """Raises `GitBusy`, `MergeConflict` and `Busy` for what git, a merge or a commit has begun."""
    if what := plumbing.busy(ws.places):
        raise GitBusy(f"git is in the middle of a {what}.", hint=plumbing.busy_hint(what))
    recover(ws)
    merge_state.refuse_if_open(ws)
    for folder in refs.git_dirs(ws.places):
        if folder != ws.places.git_dir and (folder / "vmrag" / ws.places.merge.name).exists():
            raise MergeConflict(
                f"A merge is not finished in another work tree, of {folder}.", hint="There: vmrag merge --continue"
            )
    if next(iter(ws.journal.entries()), None):
        raise Busy(
            "A commit that was interrupted is not finished yet.",
            hint="On the branch or in the work tree where it was made: vmrag status",
        )
