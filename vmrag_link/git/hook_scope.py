"""Which hooks there are, which were chosen, and in which work trees they act: in all, or, after
`vmrag install --worktree`, in those with a mark.

The shims read mark and limit, because all work trees of a repository share its hooks.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from pathlib import Path

from vmrag_link import permissions
from vmrag_link.paths import Places, write_atomically

SYNCING = ("post-checkout", "post-merge", "post-rewrite", "post-commit", "post-applypatch")
"""After these HEAD or the pin may have moved; git ignores what they say, except that a failing
post-checkout fails the checkout.
"""

CHECKING = ("pre-commit", "pre-merge-commit", "pre-push")
"""What these say decides whether git goes on."""

HOOKS = (*SYNCING, *CHECKING)
"""The hooks that are installed."""


DRY = "vmrag-hook"
"""What a hook says with `VMRAG=dry`, before its name."""


def chosen(places: Places) -> tuple[str, ...]:
    """The hooks that were chosen here: all, unless some were named, or a person wants none."""
    try:
        names = _choice(places).read_text().split()
    except FileNotFoundError:
        return HOOKS
    return tuple(hook for hook in HOOKS if hook in names)


def choose(places: Places, hooks: Collection[str]) -> None:
    """Record the chosen hooks; all of them are no record."""
    if set(hooks) == set(HOOKS):
        _choice(places).unlink(missing_ok=True)
    else:
        write_atomically(_choice(places), "".join(f"{hook}\n" for hook in HOOKS if hook in hooks).encode())


def install_command(places: Places) -> str:
    """The command that installs as it was done before."""
    names = chosen(places)
    words = ["vmrag install"]
    words += ["--worktree"] if is_limited(places) else []
    words += ["--hooks", ",".join(names)] if names and names != HOOKS else []
    return " ".join(words)


def is_limited(places: Places) -> bool:
    return _limit(places).exists()


def acts(places: Places) -> bool:
    """Whether the hooks act in this work tree, if they are installed."""
    return not is_limited(places) or _mark(places).exists()


def limit(places: Places) -> None:
    """Limit the hooks to this work tree, and those that have a mark already."""
    for path in (_mark(places), _limit(places)):  # never without a mark
        permissions.make_file(path)


def leave(places: Places) -> bool:
    """Take this work tree's mark away; returns whether there are others."""
    _mark(places).unlink(missing_ok=True)
    return any(_marks(places))


def widen(places: Places) -> None:
    """Let the hooks act in all work trees."""
    _limit(places).unlink(missing_ok=True)
    for mark in _marks(places):
        mark.unlink(missing_ok=True)


def _choice(places: Places) -> Path:
    return places.shared / "hooks"


def _limit(places: Places) -> Path:
    return places.shared / "some-work-trees"


def _mark(places: Places) -> Path:
    return places.own / "hooked"


def _marks(places: Places) -> Iterator[Path]:
    """The marks of all work trees, the main one included."""
    there = [places.shared / "hooked", *places.common.glob("worktrees/*/vmrag/hooked")]
    return (mark for mark in there if mark.exists())
