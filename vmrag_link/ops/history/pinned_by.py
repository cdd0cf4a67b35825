"""What of the code has which revision: the commits that pin it, the branches and tags that stand on
it.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable

from vmrag_link.engines.base import reserved
from vmrag_link.git import history as git_history
from vmrag_link.git import plumbing, refs
from vmrag_link.models import Record
from vmrag_link.ops.pins import history_pins
from vmrag_link.ops.pins.pinning import parsed
from vmrag_link.workspace import Workspace

HEAD = "HEAD"


class GitCommit(Record, frozen=True):
    commit: str
    subject: str


def commits(ws: Workspace, revisions: Collection[str], *, also: Iterable[str] = ()) -> dict[str, list[GitCommit]]:
    """By revision, the commits of git's refs that introduced a pin on it, newest first; `also`:
    commits that no ref may have, by full hash, with their ancestors.
    """
    pinned: dict[str, str] = {}
    for pin, introducing in history_pins.read_pins(ws.places, reflogs=False, also=also):
        if pin.dolt_commit in revisions:
            pinned.update(dict.fromkeys(introducing, pin.dolt_commit))
    found: dict[str, list[GitCommit]] = {}
    for commit, subject in git_history.subjects(ws.places, pinned).items():
        found.setdefault(pinned[commit], []).append(GitCommit(commit, subject))
    return found


def names(ws: Workspace, revisions: Collection[str]) -> dict[str, list[str]]:
    """By revision, what stands on it: `HEAD`, git's branches, `tag: NAME`, branches of remotes, and
    `kb: NAME` for a branch of the knowledge base where git's branch of that name pins another one.
    """
    head = plumbing.head(ws.places)
    tips = {HEAD: head.commit, **refs.tips(ws.places)} if head.commit else refs.tips(ws.places)
    pins = git_history.pins_of(ws.places, {each for each in tips.values() if each})
    found: dict[str, list[str]] = {}
    for name, commit in tips.items():
        pin = parsed(ws.places.kb, pins[commit]) if commit in pins else None
        if pin and pin.dolt_commit in revisions:
            found.setdefault(pin.dolt_commit, []).append(name)
    for branch in ws.engine.branches():
        there = found.get(branch.head, [])
        if branch.head in revisions and not reserved(branch.name) and branch.name not in there:
            found.setdefault(branch.head, []).append(f"kb: {branch.name}")
    return found
