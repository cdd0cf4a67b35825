"""The names of git's that people see: branches, tags, branches of remotes."""

from __future__ import annotations

from vmrag_link.git.heads import BRANCHES
from vmrag_link.git.run import demand
from vmrag_link.paths import Places

_TAGS, _REMOTES = "refs/tags/", "refs/remotes/"
_FORMAT = "%(refname)%00%(objectname)%00%(*objectname)%00%(symref)"


def tips(places: Places) -> dict[str, str]:
    """What each name stands on, in the order in which git decorates its log: `main`, `tag: v1`,
    `origin/main`. Names that only point to others, such as `origin/HEAD`, are left out.
    """
    text = demand(places, "for-each-ref", f"--format={_FORMAT}", BRANCHES, _TAGS, _REMOTES).text
    found = (line.split("\0") for line in text.splitlines())
    known = {name: peeled or commit for name, commit, peeled, symbolic in found if not symbolic}
    shown = (
        (_shown(name), commit)
        for prefix in (BRANCHES, _TAGS, _REMOTES)
        for name, commit in known.items()
        if name.startswith(prefix)
    )
    return dict(shown)


def _shown(ref: str) -> str:
    if ref.startswith(_TAGS):
        return f"tag: {ref.removeprefix(_TAGS)}"
    return ref.removeprefix(BRANCHES).removeprefix(_REMOTES)
