"""The hooks that the user chose, and the work trees in which they act.

`vmrag install` records the choice in files of `.git/vmrag`. All work trees of a repository share
the hooks. After `vmrag install --worktree` they act only in work trees that have a mark file.
Another file, the limit, tells the hooks' scripts to look for the mark.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from pathlib import Path

from vmrag_link import permissions
from vmrag_link.file_access import write_atomically
from vmrag_link.git.hook_config import HOOKS
from vmrag_link.paths import Places


def list_chosen_hooks(places: Places) -> tuple[str, ...]:
    """Return the hooks that were chosen here: all, unless the user chose some of them or none."""
    try:
        names = _choice_path(places).read_text(errors="replace").split()
    except FileNotFoundError:
        return HOOKS
    return tuple(hook for hook in HOOKS if hook in names)


def record_chosen_hooks(places: Places, hooks: Collection[str]) -> None:
    """Record the chosen hooks. If all are chosen, the record is removed."""
    if set(hooks) == set(HOOKS):
        _choice_path(places).unlink(missing_ok=True)
    else:
        write_atomically(_choice_path(places), "".join(f"{hook}\n" for hook in HOOKS if hook in hooks).encode())


def format_install_command(places: Places) -> str:
    """Return the `vmrag install` command with the recorded options. If the user chose no hooks, it
    installs all.
    """
    hooks = list_chosen_hooks(places)
    arguments = ["--worktree"] if is_limited(places) else []
    arguments += ["--hooks", ",".join(hooks)] if hooks and hooks != HOOKS else []
    return " ".join(["vmrag install", *arguments])


def is_limited(places: Places) -> bool:
    """Return whether the hooks act only in marked work trees."""
    return _limit_path(places).exists()


def is_active(places: Places) -> bool:
    """Return whether the hooks act in this work tree, if they are installed."""
    return not is_limited(places) or _mark_path(places).exists()


def limit_to_work_tree(places: Places) -> None:
    """Limit the hooks to this work tree and those that are already marked."""
    for path in (_mark_path(places), _limit_path(places)):  # the mark first: a limit without marks turns all hooks off
        permissions.make_file(path)


def unmark_work_tree(places: Places) -> bool:
    """Remove this work tree's mark, and return whether other work trees have one."""
    _mark_path(places).unlink(missing_ok=True)
    return any(_list_marks(places))


def remove_limit(places: Places) -> None:
    """Let the hooks act in all work trees."""
    _limit_path(places).unlink(missing_ok=True)
    for mark in _list_marks(places):
        mark.unlink(missing_ok=True)


def _choice_path(places: Places) -> Path:
    return places.shared / "hooks"


def _limit_path(places: Places) -> Path:
    return places.shared / "some-work-trees"


def _mark_path(places: Places) -> Path:
    return places.work_tree_folder / "hooked"


def _list_marks(places: Places) -> Iterator[Path]:
    """Return the existing mark files of all work trees, including the main one."""
    paths = [places.shared / "hooked", *places.common.glob("worktrees/*/vmrag/hooked")]
    return (mark for mark in paths if mark.exists())
